/*
 * `gpudays evaluate RUN --data FILE`: loss, perplexity and bits a byte of a model on token files,
 * or loss and top-1 accuracy on images, in fp32 and without dropout. RUN may be a model folder. The
 * work is src/train/evaluate_model.c's.
 */
#include <math.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "train/evaluate_model.h"

static void set_known(struct gd_show_object *object, const char *name, bool known, double value) {
  if (known)
    gd_show_set_real(object, name, value);
  else
    gd_show_set_null(object, name);
}

static enum gd_status append_answer(struct gd_cli *cli, const struct gd_trained *trained,
                                    const struct gd_model_evaluated *result, struct gd_error *err) {
  const struct gd_evaluated *of = &result->of;
  char labels[GD_SHOW_TEXT];
  bool images = trained->model.family->images;
  if (cli->options.json) {
    struct gd_show_object object;
    gd_show_begin(&object);
    gd_show_set_text(&object, "model", trained->model.name);
    if (trained->is_run)
      gd_show_set_int(&object, "step", trained->step);
    else
      gd_show_set_null(&object, "step");
    gd_show_set_real(&object, "loss", of->loss);
    set_known(&object, "perplexity", !images, exp(of->loss));
    set_known(&object, "bits_per_byte", result->bits_per_byte > 0, result->bits_per_byte);
    set_known(&object, "accuracy", images, of->accuracy);
    if (images)
      gd_show_set_null(&object, "tokens");
    else
      gd_show_set_int(&object, "tokens", (int64_t)of->labels);
    gd_show_set_int(&object, "samples", of->samples);
    return gd_show_json(&cli->out, &object, err);
  }
  gd_show_bold(cli, trained->model.name);
  if (trained->is_run)
    gd_strbuf_printf(&cli->out, ", step %lld", (long long)trained->step);
  gd_format_count(labels, sizeof labels, (int64_t)of->labels);
  if (images) {
    gd_strbuf_printf(&cli->out, ": loss %.4f, top-1 %.2f %%\n  %s image%s, in fp32\n", of->loss,
                     100 * of->accuracy, labels, of->labels == 1 ? "" : "s");
    return GD_OK;
  }
  gd_strbuf_printf(&cli->out, ": loss %.4f, perplexity %.4g", of->loss, exp(of->loss));
  if (result->bits_per_byte > 0)
    gd_strbuf_printf(&cli->out, ", %.4f bits a byte", result->bits_per_byte);
  gd_strbuf_printf(&cli->out, "\n  %s tokens predicted, in fp32\n", labels);
  return GD_OK;
}

/* Options of the other kind of model. */
static enum gd_status check_options(const struct gd_cli_options *o, const struct gd_model *model,
                                    struct gd_error *err) {
  bool images = model->family->images;
  const char *other = images && o->seq                ? "--seq"
                      : images && o->tokenizer        ? "--tokenizer"
                      : images && o->token_bytes      ? "--token-bytes"
                      : images && o->mask_token.given ? "--mask-token"
                      : !images && o->normalize       ? "--normalize"
                      : !images && o->data_threads    ? "--data-threads"
                                                      : NULL;
  return other
             ? gd_fail(err, GD_BAD_INPUT, "%s is for models of %s, and %s is trained on %s", other,
                       images ? "tokens" : "images", model->name, images ? "images" : "tokens")
             : GD_OK;
}

static void show_done(void *user, int64_t done, int64_t of) {
  gd_progress_report(user, "", (double)done / (double)of, -1);
}

enum gd_status gd_cmd_evaluate(struct gd_cli *cli, struct gd_error *err) {
  const struct gd_cli_options *o = &cli->options;
  struct gd_progress progress = {.on = cli->progress, .label = "evaluate"};
  struct gd_trained trained;
  struct gd_model_evaluated result;
  const char **files = gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments + 1, sizeof *files);
  struct gd_model_evaluation asked = {
      .trained = &trained,
      .files = files,
      .token_bytes = o->token_bytes,
      .mask_token = o->mask_token.given ? (int64_t)o->mask_token.value : -1,
      .tokenizer = o->tokenizer,
      .normalize = o->normalize,
      .data_threads = (int)o->data_threads,
      .samples = o->samples,
      .micro_batch = o->micro_batch == GD_MICRO_BATCH_FIXED ? o->micro_batch_size : 0,
      .backend = gd_cli_backend(cli),
      .threads = (int)o->threads,
      .device_bytes = o->device_memory_bytes,
      .evaluated = show_done,
      .user = &progress};
  if (!files)
    return gd_nomem(err, "before evaluating");
  if (o->data) {
    files[asked.n_files++] = o->data;
    for (int i = 1; i < cli->n_arguments; i++)
      files[asked.n_files++] = cli->arguments[i];
  }
  GD_TRY(gd_cli_find_trained(cli, cli->arguments[0], &trained, err));
  GD_TRY(check_options(o, &trained.model, err));
  if (o->seq)
    trained.model.recipe.seq = o->seq;
  enum gd_status status = gd_evaluate_model(&asked, &result, err);
  gd_progress_clear(&progress);
  if (status == GD_OK && result.by_own_names)
    fprintf(stderr,
            "gpudays: %s, which the run was trained on, is not there: its classes are taken to "
            "have the names of those that are evaluated\n",
            trained.settings.data[0]);
  return status == GD_OK ? append_answer(cli, &trained, &result, err) : status;
}
