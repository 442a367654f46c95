/*
 * Settings of a run; see run_settings.h.
 */
#include "train/run_settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cache.h"
#include "base/cpus.h"
#include "base/file.h"
#include "data/preprocessor.h"
#include "data/tokenizer.h"
#include "trial/agree.h"

/* --- of a new run -------------------------------------------------------------------------- */

enum gd_status gd_run_set_tokenizer(struct gd_run_settings *s, const char *path, const char *model,
                                    struct gd_arena *arena, struct gd_error *err) {
  char inside[GD_FILE_PATH];
  s->tokenizer_mask = -1;
  struct gd_strbuf text = {0};
  struct gd_tokenizer *tokenizer = NULL;
  int64_t classes = s->model.family->classes(&s->model), size;
  snprintf(inside, sizeof inside, "%.4000s/tokenizer.json", model);
  if (!path && gd_file_is_missing(inside))
    return GD_OK;
  GD_TRY(gd_tokenizer_load(&tokenizer, path ? path : inside, err));
  size = gd_tokenizer_size(tokenizer);
  s->tokenizer_mask = gd_tokenizer_id(tokenizer, "<mask>");
  if (s->tokenizer_mask < 0)
    s->tokenizer_mask = gd_tokenizer_id(tokenizer, "[MASK]");
  gd_tokenizer_free(tokenizer);
  if (size > classes)
    return gd_fail(err, GD_BAD_INPUT,
                   "the tokenizer has %lld tokens, and %s has %lld; choose another one",
                   (long long)size, s->model.name, (long long)classes);
  enum gd_status status = gd_tokenizer_text(path ? path : inside, &text, err);
  if (status == GD_OK)
    s->tokenizer_text = gd_arena_copy_string(arena, text.text);
  gd_strbuf_deinit(&text);
  return status != GD_OK || s->tokenizer_text ? status : gd_nomem(err, "for the tokenizer");
}

int64_t gd_run_usual_mask(int64_t classes) {
  return classes == 30522 ? 103 : classes == 50265 ? 50264 : -1;
}

enum gd_status gd_run_set_mask(struct gd_run_settings *s, int64_t given, struct gd_error *err) {
  int64_t classes = s->model.family->classes(&s->model);
  bool causal;
  s->mask_token = given >= 0               ? given
                  : s->tokenizer_mask >= 0 ? s->tokenizer_mask
                                           : gd_run_usual_mask(classes);
  if (s->mask_token >= 0 || s->model.family->images)
    return GD_OK;
  GD_TRY(gd_model_is_causal(&s->model, &causal, err));
  if (!causal)
    return gd_fail(
        err, GD_BAD_INPUT,
        "%s fills in masked tokens, and which token masks is not known: --mask-token ID, "
        "or --tokenizer FILE with a token <mask> or [MASK]",
        s->model.name);
  return GD_OK;
}

static enum gd_status folder_normalize(const char *folder, const char **normalize,
                                       struct gd_error *err) {
  enum gd_normalize by;
  bool found;
  GD_TRY(gd_preprocessor_read(folder, &by, &found, err));
  *normalize = found ? gd_normalizations[by].name : NULL;
  return GD_OK;
}

enum gd_status gd_run_normalize_of(const struct gd_trained *trained, const char **normalize,
                                   struct gd_error *err) {
  *normalize = trained->settings.normalize;
  return trained->is_run ? GD_OK : folder_normalize(trained->weights, normalize, err);
}

enum gd_status gd_run_set_images(struct gd_run_settings *s, const struct gd_run_images *given,
                                 struct gd_arena *arena, struct gd_error *err) {
  const struct gd_image_training *usual = &s->model.images;
  bool images = s->model.family->images;
  s->augment = given->augment ? given->augment : usual->augment[0] ? usual->augment : "crop,flip";
  s->label_smoothing = given->label_smoothing ? *given->label_smoothing : usual->label_smoothing;
  s->normalize = given->normalize;
  s->model.soft_targets = images;
  if (!given->drop_path && s->model.recipe.drop_path <= 0)
    s->model.recipe.drop_path = usual->drop_path;
  if (images && !s->normalize && given->init)
    GD_TRY(gd_run_normalize_of(given->init, &s->normalize, err));
  if (images && !s->normalize)
    GD_TRY(folder_normalize(given->model, &s->normalize, err));
  if (!s->normalize && usual->normalize[0])
    s->normalize = usual->normalize;
  if (!s->normalize)
    s->normalize = gd_normalizations[GD_NORMALIZE_IMAGENET].name;
  s->augment = gd_arena_copy_string(arena, s->augment); /* settings are copied, with their model */
  s->normalize = gd_arena_copy_string(arena, s->normalize);
  return s->augment && s->normalize ? GD_OK : gd_nomem(err, "before training");
}

void gd_run_shorten_warmup(struct gd_recipe *recipe) {
  int64_t most = (recipe->steps + 9) / 10;
  if (recipe->warmup_steps > most)
    recipe->warmup_steps = most;
}

void gd_run_set_usual(struct gd_run_settings *s) {
  s->keep = 2;
  s->checkpoint_s = 1800;
  s->eval_samples = s->model.family->images ? INT64_C(1) << 40 : 256;
}

/* --- data and plan ------------------------------------------------------------------------- */

static struct gd_dataset_options token_options(const struct gd_run_settings *s,
                                               const char *const *files, int count, bool causal) {
  return (struct gd_dataset_options){.files = files,
                                     .n_files = count,
                                     .seq = s->model.recipe.seq,
                                     .vocabulary = s->model.family->classes(&s->model),
                                     .causal = causal,
                                     .mask_token = (int32_t)s->mask_token,
                                     .width = (int)s->token_bytes,
                                     .seed = (uint64_t)s->seed};
}

static enum gd_status image_options(const struct gd_run_settings *s, const struct gd_graph *graph,
                                    int threads, struct gd_image_options *out,
                                    struct gd_error *err) {
  const struct gd_tensor *pixels = &graph->tensors[graph->pixels];
  *out = (struct gd_image_options){.files = s->data,
                                   .n_files = s->n_data,
                                   .height = pixels->dims[2],
                                   .width = pixels->dims[3],
                                   .classes = s->model.family->classes(&s->model),
                                   .seed = (uint64_t)s->seed,
                                   .smoothing = s->label_smoothing,
                                   .threads = threads};
  if (pixels->dims[1] != 3)
    return gd_fail(err, GD_UNSUPPORTED, "%s wants images of %lld channels, and JPEG and PNG have 3",
                   s->model.name, (long long)pixels->dims[1]);
  if (!gd_normalize_parse(s->normalize, &out->normalize))
    return gd_fail(err, GD_BAD_INPUT, "--normalize %s: it is imagenet, half or none", s->normalize);
  return gd_augment_parse(s->augment, &out->augment, err);
}

enum gd_status gd_run_data_options(const struct gd_run_settings *s, int ranks, int threads,
                                   struct gd_source_options *data, struct gd_source_options *eval,
                                   struct gd_error *err) {
  struct gd_graph graph; /* says what a sample is */
  int cores = gd_cpus(1) / ranks;
  *data = *eval = (struct gd_source_options){0};
  gd_graph_init(&graph);
  s->model.family->build(&s->model, 1, &graph);
  enum gd_status status = gd_graph_check(&graph, err);
  if (status == GD_OK && s->model.family->images) {
    status = image_options(s, &graph,
                           threads     ? threads
                           : cores < 1 ? 1
                                       : cores,
                           &data->images, err);
    eval->images = data->images;
    eval->images.files = s->eval;
    eval->images.n_files = s->n_eval;
    eval->images.evaluates = true;
  } else if (status == GD_OK) {
    data->tokens = token_options(s, s->data, s->n_data, graph.predicts_next);
    eval->tokens = token_options(s, s->eval, s->n_eval, graph.predicts_next);
    eval->tokens.in_order = true;
  }
  gd_graph_deinit(&graph);
  return status;
}

/* Data that changed since the run began would be another order, or other samples. */
static enum gd_status check_data(struct gd_run_settings *s, const char *name,
                                 const struct gd_source *data, struct gd_arena *arena,
                                 struct gd_error *err) {
  const struct gd_dataset *tokens = gd_source_tokens(data);
  int64_t size = tokens ? tokens->tokens : gd_source_images(data)->files.count;
  uint64_t hash = 0;
  char text[32] = "";
  if (s->data_size > 0 && s->data_size != size)
    return gd_fail(err, GD_BAD_INPUT,
                   "the data of %s has %lld %s, and had %lld when the run began: bring the files "
                   "back, or start a new run",
                   name, (long long)size, tokens ? "tokens" : "images", (long long)s->data_size);
  s->data_size = size;
  if (tokens) {
    GD_TRY(gd_dataset_hash(tokens, &hash, err));
    snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
  }
  if (s->data_hash && s->data_hash[0] && strcmp(s->data_hash, text) != 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "the data of %s has other tokens, files or weights than when the run began: "
                   "bring the files back, or start a new run",
                   name);
  if (!s->data_hash)
    s->data_hash = gd_arena_copy_string(arena, text);
  return s->data_hash ? GD_OK : gd_nomem(err, "before training");
}

enum gd_status gd_run_set_epochs(struct gd_run_settings *s, double epochs, int ranks, int threads,
                                 struct gd_error *err) {
  struct gd_recipe *recipe = &s->model.recipe;
  struct gd_source_options options, unused;
  struct gd_source data;
  GD_TRY(gd_run_data_options(s, ranks, threads, &options, &unused, err));
  GD_TRY(gd_source_open(&data, &options, NULL, err));
  bool weighted = gd_source_tokens(&data) && gd_source_tokens(&data)->weighted;
  double steps = ceil(epochs * (double)data.samples / (double)recipe->batch);
  gd_source_close(&data);
  if (weighted)
    return gd_fail(err, GD_BAD_INPUT,
                   "files with weights have epochs of their own lengths, so --epochs does not say "
                   "how long to train; give --steps or --tokens");
  if (steps > 1e9)
    return gd_fail(err, GD_BAD_INPUT, "--epochs %g are %.3g steps, and a run has at most 1e9",
                   epochs, steps);
  recipe->steps = (int64_t)fmax(steps, 1);
  if (recipe->warmup_steps > recipe->steps)
    recipe->warmup_steps = recipe->steps;
  return GD_OK;
}

enum gd_status gd_run_open_data(struct gd_run_settings *s, const char *name, int ranks, int threads,
                                struct gd_arena *arena, struct gd_source *data,
                                struct gd_error *err) {
  struct gd_source_options data_options, eval_options;
  struct gd_source eval = {0};
  GD_TRY(gd_run_data_options(s, ranks, threads, &data_options, &eval_options, err));
  GD_TRY(gd_source_open(data, &data_options, NULL, err));
  enum gd_status status = GD_OK;
  if (gd_source_is_given(&eval_options))
    status = gd_source_open(&eval, &eval_options, data, err);
  if (status == GD_OK)
    status = check_data(s, name, data, arena, err);
  gd_source_close(&eval);
  if (status != GD_OK)
    gd_source_close(data);
  return status;
}

enum gd_status gd_run_trial_options(const struct gd_run_settings *s, bool fixed,
                                    struct gd_trial_options *options, struct gd_error *err) {
  GD_TRY(gd_method_parse(s->method, &options->method, err));
  options->seed = (uint64_t)s->seed;
  if (s->micro_batch > 0) {
    int64_t most = s->model.recipe.batch / (options->comm ? gd_comm_size(options->comm) : 1);
    options->micro_batch = GD_MICRO_BATCH_FIXED;
    options->micro_batch_size = s->micro_batch > most && !fixed && most > 0 ? most : s->micro_batch;
  }
  return GD_OK;
}

/* --- ranks --------------------------------------------------------------------------------- */

enum gd_status gd_run_agree(struct gd_comm *comm, const char *folder,
                            const struct gd_run_settings *s, struct gd_error *err) {
  const struct gd_recipe *r = &s->model.recipe;
  const double numbers[] = {r->lr,
                            r->min_lr,
                            r->beta1,
                            r->beta2,
                            r->eps,
                            r->weight_decay,
                            r->max_grad_norm,
                            (double)r->warmup_steps,
                            (double)r->decay_steps,
                            (double)r->schedule,
                            r->drop_path};
  uint64_t files = 0;
  for (int i = 0; i < s->n_data; i++)
    files = gd_cache_hash_text(files, s->data[i]);
  for (int i = 0; i < s->n_eval; i++)
    files = gd_cache_hash_text(files + 1, s->eval[i]);
  uint64_t images = gd_cache_hash(0, &s->label_smoothing, sizeof s->label_smoothing);
  if (s->model.family->images)
    images = gd_cache_hash_text(gd_cache_hash_text(images, s->augment), s->normalize);
  const struct gd_term terms[] = {
      {"folder", (int64_t)gd_cache_hash_text(0, folder), false},
      {"list of data files", (int64_t)files, false},
      {"treatment of images", (int64_t)images, false},
      {"recipe", (int64_t)gd_cache_hash(0, numbers, sizeof numbers), false},
      {"number of steps", r->steps, true},
      {"seed", s->seed, true},
      {"mask token", s->mask_token, true},
      {"--checkpoint-every", s->checkpoint_steps + (int64_t)(1000 * s->checkpoint_s), true},
      {"--eval-every", s->eval_steps, true},
  };
  return comm ? gd_agree_terms(comm, terms, sizeof terms / sizeof *terms, err) : GD_OK;
}

enum gd_status gd_run_take_folder(struct gd_comm *comm, const char *folder, bool resumes,
                                  const struct gd_run_settings *s, int *lock,
                                  struct gd_error *err) {
  enum gd_status status = GD_OK;
  bool first = !comm || gd_comm_rank(comm) == 0;
  *lock = -1;
  if (first && !resumes)
    status = gd_run_folder_create(folder, s, err);
  if (first && status == GD_OK)
    status = gd_run_folder_lock(folder, lock, err);
  return comm ? gd_comm_agree(comm, status, err) : status;
}
