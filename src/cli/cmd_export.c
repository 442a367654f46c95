/*
 * `gpudays export MODEL --format NAME`: the best stored trial, a given point, or with --gpu the
 * plan for hardware of the catalogue, as settings for another tool. Which trial that is, and what
 * its settings are, is src/export's; the plan is export_target.h's.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/export_target.h"
#include "cli/show_trial.h"
#include "export/export_choice.h"

/* The trial that the command line asks for. */
static enum gd_status find_trial(struct gd_cli *cli, const struct gd_model *model,
                                 struct gd_trial *trial, struct gd_error *err) {
  struct gd_store_filter filter = cli->options.filter;
  char recipe[GD_CLI_RECIPE_TEXT];
  struct gd_best_asked best = gd_cli_best_asked(cli, model, &filter, recipe);
  struct gd_export_choice choice = {
      .model = model, .best = &best, .store = cli->options.store, .method = cli->options.methods};
  filter.ranks = (int)cli->options.ranks;
  gd_cli_trial_options(cli, &(struct gd_method){0}, &choice.plan);
  return gd_export_choose(&choice, trial, err);
}

/* What is exported, and the options that name it again. */
struct exported {
  struct gd_trial *trial;
  struct gd_export_target made; /* with --gpu */
  struct gd_strbuf text, config, options;
};

/* Those of the plan, so that a job finds the same settings. */
static void name_again(struct gd_cli *cli, struct exported *e) {
  char recipe[GD_CLI_RECIPE_TEXT];
  gd_strbuf_append(&e->options, gd_cli_recipe_options(cli, recipe, sizeof recipe));
  if (e->made.target)
    gd_strbuf_printf(&e->options, " %s%s --stack %s --methods %s",
                     gd_answer_hardware(cli, e->made.target->gpu->name, e->made.target->count),
                     gd_answer_limits(cli), e->made.stack, e->trial->method);
  else
    gd_strbuf_printf(&e->options, " --methods %s --ranks %d", e->trial->method, e->trial->ranks);
}

static enum gd_status find_exported(struct gd_cli *cli, const struct gd_model *model,
                                    struct exported *e, struct gd_error *err) {
  if (!cli->options.gpu && cli->options.stack)
    return gd_fail(err, GD_BAD_INPUT, "--stack %s plans for given GPUs; name one with --gpu",
                   cli->options.stack);
  if (!cli->options.gpu) {
    e->trial = gd_arena_alloc(&cli->arena, 1, sizeof *e->trial);
    return e->trial ? find_trial(cli, model, e->trial, err) : gd_nomem(err, "before the export");
  }
  e->trial = &e->made.trial;
  return gd_export_target_make(cli, model, &e->made, err);
}

/* --- where it goes ------------------------------------------------------------------------- */

/* For programs: the text and the notes as values. */
static enum gd_status show_json(struct gd_cli *cli, const struct exported *e,
                                struct gd_error *err) {
  const struct gd_trial *trial = e->trial;
  struct gd_show_object root, notes = {.object = json_array()};
  gd_show_begin(&root);
  gd_show_set_text(&root, "format", gd_export_name(cli->options.format));
  gd_show_set_text(&root, "model", trial->model);
  gd_show_set_text(&root, "method", trial->method);
  gd_show_set_int(&root, "ranks", trial->ranks);
  gd_show_set_bool(&root, "measured", trial->status == GD_TRIAL_OK);
  gd_show_set_text(&root, "stack", e->made.stack ? e->made.stack : "own");
  gd_show_set_text(&root, "device", trial->device);
  gd_show_set_int(&root, "nodes", trial->nodes > 0 ? trial->nodes : 1);
  gd_show_set_int(&root, "micro_batch", trial->micro_batch);
  gd_show_set_int(&root, "accumulation", trial->accumulation);
  gd_show_set_text(&root, "precision", gd_precision_name(trial->precision));
  gd_show_set_int(&root, "peak_bytes", trial->peak_bytes);
  gd_show_set_positive(&root, "days", trial->days);
  for (const char *at = cli->notes.text; at && *at;) {
    size_t length = strcspn(at, "\n");
    if (json_array_append_new(notes.object, json_stringn(at, length)) != 0)
      notes.failed = true;
    at += length + (at[length] != '\0');
  }
  gd_show_set_object(&root, "notes", &notes);
  gd_show_set_text(&root, "text", e->text.text);
  gd_strbuf_deinit(&cli->notes);
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status deliver(struct gd_cli *cli, const struct exported *e, struct gd_error *err) {
  const char *path = gd_cli_file(cli->options.output);
  if (path)
    GD_TRY(gd_file_write(path, e->text.text, e->text.length, err));
  if (cli->options.json)
    return show_json(cli, e, err);
  if (path)
    gd_strbuf_printf(&cli->out, "wrote %s: ", path);
  if (path)
    gd_show_trial_title(&cli->out, e->trial);
  else
    gd_strbuf_append(&cli->out, e->text.text);
  return GD_OK;
}

static enum gd_status write_export(struct gd_cli *cli, const struct gd_model *model,
                                   struct exported *e, struct gd_error *err) {
  GD_TRY(find_exported(cli, model, e, err));
  name_again(cli, e);
  struct gd_export from = {.model = model,
                           .argument = cli->arguments[0],
                           .options = e->options.text,
                           .config = e->config.text,
                           .trial = e->trial,
                           .software = e->made.software,
                           .target = e->made.target,
                           .seed = (uint64_t)cli->options.seed,
                           .job_s = cli->options.job_time};
  GD_TRY(gd_export(cli->options.format, &from, &e->text, &cli->notes, err));
  return deliver(cli, e, err);
}

enum gd_status gd_cmd_export(struct gd_cli *cli, struct gd_error *err) {
  struct exported *e = gd_arena_alloc(&cli->arena, 1, sizeof *e);
  struct gd_model model;
  cli->verbatim = true;
  if (!cli->options.format_given)
    return gd_fail(err, GD_BAD_INPUT, "export needs a format: --format " GD_EXPORT_NAMES);
  if (!e)
    return gd_nomem(err, "before the export");
  *e = (struct exported){0};
  GD_TRY(gd_cli_load_model(cli, cli->arguments[0], &model, err));
  struct gd_model same;
  enum gd_status status = gd_model_load_config(cli->arguments[0], &same, &e->config, err);
  if (status == GD_OK)
    status = write_export(cli, &model, e, err);
  gd_export_target_deinit(&e->made);
  gd_strbuf_deinit(&e->text);
  gd_strbuf_deinit(&e->config);
  gd_strbuf_deinit(&e->options);
  return status;
}
