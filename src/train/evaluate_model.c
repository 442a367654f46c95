/*
 * Evaluation of a model with its weights; see evaluate_model.h.
 */
#include "train/evaluate_model.h"

#include <math.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "data/preprocessor.h"
#include "data/tokenizer.h"
#include "exec/forward.h"
#include "train/run_settings.h"

enum { TOKENS_AT_ONCE = 8192, IMAGES_AT_ONCE = 32 };

struct evaluating {
  const struct gd_model_evaluation *asked;
  struct gd_model model;
  struct gd_safetensors weights;
  struct gd_dataset data;
  struct gd_source images; /* of a model of images */
  struct gd_forward forward;
  struct gd_arena arena;
  struct gd_tokenizer *tokenizer; /* NULL: none is known, and bits a byte are not told */
  int64_t samples, micro_batch;
  double bytes; /* of the text of all tokens that are predicted */
};

/* The folder that a run was trained on, if it was one and is there; a run on shards has numbers.
   Without it, classes are numbered as they would have been: by their names. */
static const char *known_classes(const struct gd_run_settings *run, bool *gone) {
  struct stat facts;
  *gone = false;
  if (!run || run->n_data != 1)
    return NULL;
  *gone = stat(run->data[0], &facts) != 0;
  return !*gone && S_ISDIR(facts.st_mode) ? run->data[0] : NULL;
}

static enum gd_status open_images(struct evaluating *e, bool *gone, struct gd_error *err) {
  const struct gd_model_evaluation *asked = e->asked;
  const struct gd_run_settings *run = asked->trained->is_run ? &asked->trained->settings : NULL;
  struct gd_run_settings settings = {.augment = "none"};
  struct gd_source_options train, options;
  e->model.soft_targets = true; /* the loss that counts what was found */
  if (run)
    settings = *run;
  settings.model = e->model;
  settings.normalize = asked->normalize;
  if (!settings.normalize)
    GD_TRY(gd_run_normalize_of(asked->trained, &settings.normalize, err));
  if (!settings.normalize)
    settings.normalize = gd_normalizations[GD_NORMALIZE_IMAGENET].name;
  if (asked->n_files > 0) {
    settings.eval = asked->files;
    settings.n_eval = asked->n_files;
  } else if (settings.n_eval == 0) {
    return gd_fail(err, GD_BAD_INPUT,
                   "evaluate needs --data FILE: images that the model was not trained on");
  }
  GD_TRY(gd_run_data_options(&settings, 1, asked->data_threads, &train, &options, err));
  options.images.classes_of = known_classes(run, gone);
  if (!run)
    GD_TRY(gd_class_names_read(asked->trained->weights, &e->arena, &options.images.class_names,
                               &options.images.n_class_names, err));
  GD_TRY(gd_source_open(&e->images, &options, NULL, err));
  e->samples = e->images.samples;
  if (asked->samples > 0 && asked->samples < e->samples)
    e->samples = asked->samples;
  return GD_OK;
}

static enum gd_status open_tokens(struct evaluating *e, bool causal, struct gd_error *err) {
  const struct gd_model_evaluation *asked = e->asked;
  const struct gd_run_settings *run = asked->trained->is_run ? &asked->trained->settings : NULL;
  struct gd_dataset_options options = {.files = asked->files,
                                       .n_files = asked->n_files,
                                       .seq = e->model.recipe.seq,
                                       .vocabulary = e->model.family->classes(&e->model),
                                       .causal = causal,
                                       .mask_token = run ? (int32_t)run->mask_token : 0,
                                       .width = (int)asked->token_bytes,
                                       .in_order = true};
  if (asked->mask_token >= 0)
    options.mask_token = (int32_t)asked->mask_token;
  else if (!causal && !run)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s fills in masked tokens: --mask-token says which token masks", e->model.name);
  if (asked->n_files == 0 && run && run->n_eval > 0) {
    options.files = run->eval;
    options.n_files = run->n_eval;
    options.width = (int)run->token_bytes;
  } else if (asked->n_files == 0) {
    return gd_fail(err, GD_BAD_INPUT,
                   "evaluate needs --data FILE: token ids that the model was not trained on");
  }
  GD_TRY(gd_dataset_open(&e->data, &options, err));
  if (e->data.weighted)
    return gd_fail(err, GD_BAD_INPUT, "evaluate takes whole files: leave their weights out");
  e->samples = e->data.sequences;
  if (asked->samples > 0 && asked->samples < e->samples)
    e->samples = asked->samples;
  return GD_OK;
}

/* Bytes of the text that the tokens of the samples stand for, but for the first of each. */
static enum gd_status count_bytes(struct evaluating *e, struct gd_error *err) {
  int64_t seq = e->data.options.seq;
  int32_t *ids = gd_mem_alloc((size_t)seq, 2 * sizeof *ids);
  struct gd_strbuf text = {0};
  enum gd_status status = ids ? GD_OK : gd_nomem(err, "while counting bytes");
  for (int64_t i = 0; i < e->samples && status == GD_OK; i++) {
    status = gd_dataset_read(&e->data, i, ids, ids + seq, err);
    text.length = 0;
    if (status == GD_OK)
      status = gd_tokenizer_decode(e->tokenizer, ids + 1, seq - 1, false, &text, err);
    e->bytes += (double)text.length;
  }
  gd_strbuf_deinit(&text);
  gd_mem_free(ids);
  return status;
}

/* As many samples at a time as the device has room for. */
static enum gd_status open_forward(struct evaluating *e, struct gd_error *err) {
  const struct gd_model_evaluation *asked = e->asked;
  int64_t seq = e->data.options.seq, batch = asked->micro_batch;
  if (batch == 0 && e->images.ops)
    batch = IMAGES_AT_ONCE;
  else if (batch == 0)
    batch = TOKENS_AT_ONCE / seq > 1 ? TOKENS_AT_ONCE / seq : 1;
  batch = batch < e->samples ? batch : e->samples;
  for (;; batch /= 2) {
    struct gd_error why = {0};
    enum gd_status status =
        gd_forward_open(&e->forward,
                        &(struct gd_forward_options){.model = &e->model,
                                                     .backend = asked->backend,
                                                     .threads = asked->threads,
                                                     .batch = batch,
                                                     .device_bytes = asked->device_bytes,
                                                     .end = GD_FORWARD_LOSS},
                        &e->weights, &why);
    e->micro_batch = batch;
    if (status == GD_OK)
      return GD_OK;
    if (status != GD_NOMEM_DEVICE || batch == 1 || asked->micro_batch > 0) {
      *err = why;
      return status;
    }
  }
}

static void tell(void *user, int64_t samples) {
  const struct evaluating *e = user;
  if (e->asked->evaluated)
    e->asked->evaluated(e->asked->user, samples, e->samples);
}

static enum gd_status open_data(struct evaluating *e, bool *gone, struct gd_error *err) {
  const struct gd_model_evaluation *asked = e->asked;
  const char *tokenizer = asked->tokenizer ? asked->tokenizer : asked->trained->tokenizer;
  bool causal;
  if (e->model.family->images)
    return open_images(e, gone, err);
  GD_TRY(gd_model_is_causal(&e->model, &causal, err));
  GD_TRY(open_tokens(e, causal, err));
  if (!tokenizer[0] || !causal)
    return GD_OK;
  GD_TRY(gd_tokenizer_load(&e->tokenizer, tokenizer, err));
  return count_bytes(e, err);
}

static enum gd_status evaluate(struct evaluating *e, struct gd_model_evaluated *result,
                               struct gd_error *err) {
  const struct gd_model_evaluation *asked = e->asked;
  *result = (struct gd_model_evaluated){0};
  GD_TRY(open_data(e, &result->by_own_names, err));
  GD_TRY(gd_safetensors_open(&e->weights, asked->trained->weights, err));
  GD_TRY(open_forward(e, err));
  if (e->images.ops)
    GD_TRY(gd_source_follow(&e->images, 0, e->micro_batch, e->micro_batch, err));
  GD_TRY(gd_evaluate(&(struct gd_evaluation){.run = &e->forward.run,
                                             .part = GD_RUN_FULL,
                                             .data = e->images.ops ? NULL : &e->data,
                                             .images = e->images.ops ? &e->images : NULL,
                                             .micro_batch = e->micro_batch,
                                             .samples = e->samples,
                                             .evaluated = tell,
                                             .user = e},
                     &result->of, err));
  if (!isfinite(result->of.loss))
    return gd_fail(err, GD_MISMATCH, "the loss is not finite: the weights of %s are broken",
                   asked->trained->weights);
  result->bits_per_byte =
      e->bytes > 0 ? result->of.loss * result->of.labels / e->bytes / log(2) : 0;
  return GD_OK;
}

enum gd_status gd_evaluate_model(const struct gd_model_evaluation *asked,
                                 struct gd_model_evaluated *result, struct gd_error *err) {
  struct evaluating e = {.asked = asked, .model = asked->trained->model};
  enum gd_status status = evaluate(&e, result, err);
  gd_forward_close(&e.forward);
  gd_safetensors_close(&e.weights);
  gd_source_close(&e.images);
  gd_dataset_close(&e.data);
  gd_tokenizer_free(e.tokenizer);
  gd_arena_deinit(&e.arena);
  return status;
}
