/*
 * `gpudays evaluate RUN --data FILE`: loss, perplexity and bits a byte of a model on token files,
 * in fp32 and without dropout. RUN may be a model folder. The work is src/train/evaluate.c's.
 */
#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "data/tokenizer.h"
#include "exec/forward.h"
#include "train/evaluate.h"
#include "train/trained.h"

enum { TOKENS_AT_ONCE = 8192 };

struct evaluating {
  struct gd_cli *cli;
  struct gd_trained trained;
  struct gd_safetensors weights;
  struct gd_dataset data;
  struct gd_forward forward;
  struct gd_tokenizer *tokenizer; /* NULL: none is known, and bits a byte are not told */
  struct gd_progress progress;
  int64_t samples;
  double bytes; /* of the text of all tokens that are predicted */
};

static enum gd_status open_data(struct evaluating *e, bool causal, struct gd_error *err) {
  struct gd_cli *cli = e->cli;
  const struct gd_cli_options *o = &cli->options;
  struct gd_model *model = &e->trained.model;
  const struct gd_run_settings *run = e->trained.is_run ? &e->trained.settings : NULL;
  const char **files = gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments + 1, sizeof *files);
  struct gd_dataset_options options = {.seq = model->recipe.seq,
                                       .vocabulary = model->family->classes(model),
                                       .causal = causal,
                                       .mask_token = run ? (int32_t)run->mask_token : 0,
                                       .width = (int)o->token_bytes,
                                       .in_order = true};
  if (!files)
    return gd_nomem(err, "before evaluating");
  if (o->mask_token.given)
    options.mask_token = (int32_t)o->mask_token.value;
  else if (!causal && !run)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s fills in masked tokens: --mask-token says which token masks", model->name);
  if (o->data) {
    files[options.n_files++] = o->data;
    for (int i = 1; i < cli->n_arguments; i++)
      files[options.n_files++] = cli->arguments[i];
    options.files = files;
  } else if (run && run->n_eval > 0) {
    options.files = run->eval;
    options.n_files = run->n_eval;
    options.width = (int)run->token_bytes;
  } else {
    return gd_fail(err, GD_BAD_INPUT,
                   "evaluate needs --data FILE: token ids that the model was not trained on");
  }
  GD_TRY(gd_dataset_open(&e->data, &options, err));
  if (e->data.weighted)
    return gd_fail(err, GD_BAD_INPUT, "evaluate takes whole files: leave their weights out");
  e->samples = e->data.sequences;
  if (o->samples > 0 && o->samples < e->samples)
    e->samples = o->samples;
  return GD_OK;
}

/* Bytes of the text that the tokens of the samples stand for, but for the first of each. */
static enum gd_status count_bytes(struct evaluating *e, struct gd_error *err) {
  int64_t seq = e->data.options.seq;
  int32_t *ids = gd_arena_alloc(&e->cli->arena, (size_t)seq, 2 * sizeof *ids);
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
  return status;
}

/* As many sequences at a time as the device has room for. */
static enum gd_status open_forward(struct evaluating *e, int64_t *batch, struct gd_error *err) {
  const struct gd_cli_options *o = &e->cli->options;
  int64_t seq = e->data.options.seq;
  *batch = o->micro_batch == GD_MICRO_BATCH_FIXED ? o->micro_batch_size
           : TOKENS_AT_ONCE / seq > 1             ? TOKENS_AT_ONCE / seq
                                                  : 1;
  *batch = *batch < e->samples ? *batch : e->samples;
  for (;; *batch /= 2) {
    struct gd_error why = {0};
    enum gd_status status =
        gd_forward_open(&e->forward,
                        &(struct gd_forward_options){.model = &e->trained.model,
                                                     .backend = gd_cli_backend(e->cli),
                                                     .threads = (int)o->threads,
                                                     .batch = *batch,
                                                     .device_bytes = o->device_memory_bytes,
                                                     .end = GD_FORWARD_LOSS},
                        &e->weights, &why);
    if (status == GD_OK)
      return GD_OK;
    if (status != GD_NOMEM_DEVICE || *batch == 1 || o->micro_batch == GD_MICRO_BATCH_FIXED) {
      *err = why;
      return status;
    }
  }
}

static enum gd_status append_answer(struct evaluating *e, const struct gd_evaluated *result,
                                    struct gd_error *err) {
  struct gd_cli *cli = e->cli;
  char labels[GD_SHOW_TEXT];
  double per_byte = e->bytes > 0 ? result->loss * result->labels / e->bytes / log(2) : 0;
  if (cli->options.json) {
    struct gd_show_object object;
    gd_show_begin(&object);
    gd_show_set_text(&object, "model", e->trained.model.name);
    if (e->trained.is_run)
      gd_show_set_int(&object, "step", e->trained.step);
    else
      gd_show_set_null(&object, "step");
    gd_show_set_real(&object, "loss", result->loss);
    gd_show_set_real(&object, "perplexity", exp(result->loss));
    if (per_byte > 0)
      gd_show_set_real(&object, "bits_per_byte", per_byte);
    else
      gd_show_set_null(&object, "bits_per_byte");
    gd_show_set_int(&object, "tokens", (int64_t)result->labels);
    gd_show_set_int(&object, "samples", result->samples);
    return gd_show_json(&cli->out, &object, err);
  }
  gd_show_bold(cli, e->trained.model.name);
  if (e->trained.is_run)
    gd_strbuf_printf(&cli->out, ", step %lld", (long long)e->trained.step);
  gd_strbuf_printf(&cli->out, ": loss %.4f, perplexity %.4g", result->loss, exp(result->loss));
  if (per_byte > 0)
    gd_strbuf_printf(&cli->out, ", %.4f bits a byte", per_byte);
  gd_strbuf_printf(&cli->out, "\n  %s tokens predicted, in fp32\n",
                   gd_format_count(labels, sizeof labels, (int64_t)result->labels));
  return GD_OK;
}

static void show_done(void *user, int64_t done) {
  struct evaluating *e = user;
  gd_progress_report(&e->progress, "", (double)done / (double)e->samples, -1);
}

static enum gd_status evaluate(struct evaluating *e, struct gd_error *err) {
  struct gd_cli *cli = e->cli;
  const struct gd_cli_options *o = &cli->options;
  struct gd_evaluated result;
  int64_t batch;
  bool causal;
  GD_TRY(gd_cli_find_trained(cli, cli->arguments[0], &e->trained, err));
  if (e->trained.model.family->images)
    return gd_fail(err, GD_UNSUPPORTED, "%s is a model of images; evaluate takes models of tokens",
                   e->trained.model.name);
  if (o->seq)
    e->trained.model.recipe.seq = o->seq;
  GD_TRY(gd_model_is_causal(&e->trained.model, &causal, err));
  GD_TRY(open_data(e, causal, err));
  const char *tokenizer = o->tokenizer ? o->tokenizer : e->trained.tokenizer;
  if (tokenizer[0] && causal) {
    GD_TRY(gd_tokenizer_load(&e->tokenizer, tokenizer, err));
    GD_TRY(count_bytes(e, err));
  }
  GD_TRY(gd_safetensors_open(&e->weights, e->trained.weights, err));
  GD_TRY(open_forward(e, &batch, err));
  enum gd_status status = gd_evaluate(&(struct gd_evaluation){.run = &e->forward.run,
                                                              .part = GD_RUN_FULL,
                                                              .data = &e->data,
                                                              .micro_batch = batch,
                                                              .samples = e->samples,
                                                              .evaluated = show_done,
                                                              .user = e},
                                      &result, err);
  gd_progress_clear(&e->progress);
  GD_TRY(status);
  if (!isfinite(result.loss))
    return gd_fail(err, GD_MISMATCH, "the loss is not finite: the weights of %s are broken",
                   e->trained.weights);
  return append_answer(e, &result, err);
}

enum gd_status gd_cmd_evaluate(struct gd_cli *cli, struct gd_error *err) {
  struct evaluating e = {.cli = cli, .progress = {.on = cli->progress, .label = "evaluate"}};
  enum gd_status status = evaluate(&e, err);
  gd_forward_close(&e.forward);
  gd_safetensors_close(&e.weights);
  gd_dataset_close(&e.data);
  gd_tokenizer_free(e.tokenizer);
  return status;
}
