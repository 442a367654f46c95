/*
 * `gpudays export MODEL --format NAME`: the best stored trial, or a given point, as settings for
 * another tool. Which trial that is, and what its settings are, is src/export's.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
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
  cli->verbatim = true;
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
