/*
 * `gpudays export MODEL --format NAME`: the best stored trial, or a given point, as settings for
 * another tool. What they are is src/export's; here is which trial, and where the text goes.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/show_trial.h"
#include "search/search.h"

/* --- which trial --------------------------------------------------------------------------- */

struct first {
  struct gd_trial *trial;
  bool found;
};

static enum gd_status keep_first(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct first *first = user;
  (void)err;
  if (!first->found)
    *first->trial = row->trial;
  first->found = true;
  return GD_OK;
}

/* The fastest stored trial, of the method where one is named. */
static enum gd_status read_best(struct gd_cli *cli, const struct gd_model *model,
                                const char *method, struct gd_trial *trial, struct gd_error *err) {
  struct gd_store *store = NULL;
  struct gd_store_filter filter = cli->options.filter;
  struct first first = {.trial = trial};
  char recipe[GD_CLI_RECIPE_TEXT];
  struct gd_best_asked asked = gd_cli_best_asked(cli, model, &filter, recipe);
  filter.method = method;
  filter.ranks = (int)cli->options.ranks;
  filter.brief = true;
  GD_TRY(gd_store_open(cli->options.store, &store, err));
  enum gd_status status = gd_best_query(store, &asked, keep_first, &first, err);
  if (status == GD_OK)
    gd_store_note_left_out(store, &cli->notes);
  gd_store_close(store);
  return status;
}

/* The point as it fits this machine, or the memory that was named. */
static enum gd_status plan_point(struct gd_cli *cli, const struct gd_model *model,
                                 const struct gd_method *method, struct gd_trial *trial,
                                 struct gd_error *err) {
  struct gd_trial_options options;
  struct gd_error verdict = {0};
  char name[GD_METHOD_NAME], ranks[24] = "", recipe[GD_CLI_RECIPE_TEXT];
  struct gd_place place;
  gd_cli_trial_options(cli, method, &options);
  GD_TRY(gd_place_find(options.backend, &(struct gd_backend_options){.threads = options.threads},
                       &place, err));
  options.place = &place;
  gd_options_share(&options, gd_place_shared_bytes(&place));
  *trial = (struct gd_trial){0};
  GD_TRY(gd_trial_plan(model, &options, trial, err));
  if (gd_trial_verdict(trial, &verdict) != GD_OK)
    return gd_fail(err, verdict.status, "%s", verdict.text);
  if (trial->ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", trial->ranks);
  gd_strbuf_printf(&cli->notes,
                   "micro-batch %lld is planned, not measured; 'gpudays bench %s%s --methods %s%s "
                   "--micro-batch %lld' measures it\n",
                   (long long)trial->micro_batch, cli->arguments[0],
                   gd_cli_recipe_options(cli, recipe, sizeof recipe), gd_method_name(method, name),
                   ranks, (long long)trial->micro_batch);
  return GD_OK;
}

static enum gd_status find_trial(struct gd_cli *cli, const struct gd_model *model,
                                 struct gd_trial *trial, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  const struct gd_store_filter *f = &options->filter;
  bool planned = options->device_memory_bytes || options->host_memory_bytes ||
                 options->micro_batch != GD_MICRO_BATCH_AUTO;
  struct gd_error missing = {0};
  struct gd_method method;
  char name[GD_METHOD_NAME];
  if (!options->methods && planned)
    return gd_fail(err, GD_BAD_INPUT,
                   "--device-memory, --host-memory and --micro-batch plan a point anew; name it "
                   "with --methods");
  if (!options->methods)
    return read_best(cli, model, NULL, trial, err);
  if (strchr(options->methods, ',') || strcmp(options->methods, "all") == 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "export takes one method, such as --methods "
                   "free-lunch+ckpt+zero2; without --methods it is the best");
  GD_TRY(gd_method_parse(options->methods, &method, err));
  if (!planned) {
    enum gd_status status = read_best(cli, model, gd_method_name(&method, name), trial, &missing);
    if (status != GD_MISMATCH || f->device || f->host || f->since)
      return status == GD_OK ? GD_OK : gd_fail(err, status, "%s", missing.text);
  }
  return plan_point(cli, model, &method, trial, err);
}

/* --- where it goes ------------------------------------------------------------------------- */

/* For programs: the text and the notes as values. */
static enum gd_status show_json(struct gd_cli *cli, const struct gd_trial *trial,
                                const struct gd_strbuf *text, struct gd_error *err) {
  struct gd_show_object root, notes = {.object = json_array()};
  gd_show_begin(&root);
  gd_show_set_text(&root, "format", gd_export_name(cli->options.format));
  gd_show_set_text(&root, "model", trial->model);
  gd_show_set_text(&root, "method", trial->method);
  gd_show_set_int(&root, "ranks", trial->ranks);
  gd_show_set_bool(&root, "measured", trial->status == GD_TRIAL_OK);
  for (const char *at = cli->notes.text; at && *at;) {
    size_t length = strcspn(at, "\n");
    if (json_array_append_new(notes.object, json_stringn(at, length)) != 0)
      notes.failed = true;
    at += length + (at[length] != '\0');
  }
  gd_show_set_object(&root, "notes", &notes);
  gd_show_set_text(&root, "text", text->text);
  gd_strbuf_deinit(&cli->notes);
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status deliver(struct gd_cli *cli, const struct gd_trial *trial,
                              const struct gd_strbuf *text, struct gd_error *err) {
  const char *path = gd_cli_file(cli->options.output);
  if (path)
    GD_TRY(gd_file_write(path, text->text, text->length, err));
  if (cli->options.json)
    return show_json(cli, trial, text, err);
  if (path)
    gd_strbuf_printf(&cli->out, "wrote %s: ", path);
  if (path)
    gd_show_trial_title(&cli->out, trial);
  else
    gd_strbuf_append(&cli->out, text->text);
  return GD_OK;
}

enum gd_status gd_cmd_export(struct gd_cli *cli, struct gd_error *err) {
  struct gd_strbuf text = {0};
  struct gd_model model;
  if (!cli->options.format_given)
    return gd_fail(err, GD_BAD_INPUT,
                   "export needs a format: --format hf, deepspeed, torchtitan or sbatch");
  GD_TRY(gd_cli_load_model(cli, cli->arguments[0], &model, err));
  struct gd_trial *trial = gd_arena_alloc(&cli->arena, 1, sizeof *trial);
  if (!trial)
    return gd_nomem(err, "before the export");
  GD_TRY(find_trial(cli, &model, trial, err));
  char chosen[GD_CLI_RECIPE_TEXT + GD_METHOD_NAME + 48];
  char recipe[GD_CLI_RECIPE_TEXT];
  snprintf(chosen, sizeof chosen, "%s --methods %s --ranks %d",
           gd_cli_recipe_options(cli, recipe, sizeof recipe), trial->method, trial->ranks);
  struct gd_export from = {.model = &model,
                           .argument = cli->arguments[0],
                           .options = chosen,
                           .trial = trial,
                           .seed = (uint64_t)cli->options.seed,
                           .job_s = cli->options.job_time};
  enum gd_status status = gd_export(cli->options.format, &from, &text, &cli->notes, err);
  if (status == GD_OK)
    status = deliver(cli, trial, &text, err);
  gd_strbuf_deinit(&text);
  return status;
}
