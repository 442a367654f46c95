/*
 * `gpudays runs [FOLDER...]`: the runs of folders, a row each. What a run is is src/train's.
 */
#include <math.h>

#include "cli/cli.h"
#include "cli/show_run.h"

static const struct gd_show_column columns[] = {
    {"RUN", false, 0},     {"MODEL", false, 2}, {"METHOD", false, 4},
    {"STEP", true, 0},     {"LOSS", true, 0},   {"EVAL", true, 3},
    {"TOKENS/S", true, 5}, {"STATE", false, 0}, {"DATE", false, 1},
};

static const char *loss_cell(struct gd_cli *cli, double loss) {
  return isnan(loss) ? NULL : gd_show_cell(cli, "%.4f", loss);
}

static void add_row(struct gd_show_rows *rows, const char *folder, const struct gd_run_view *view) {
  struct gd_cli *cli = rows->cli;
  char step[GD_SHOW_TEXT], steps[GD_SHOW_TEXT], text[GD_SHOW_TEXT];
  bool trains = view->completion_s > 0;
  const char **row = gd_show_row(rows);
  row[0] = folder;
  row[1] = gd_show_cell(cli, "%s", view->model);
  row[2] = gd_show_cell(cli, "%s", view->session.method);
  row[3] = gd_show_cell(cli, "%s of %s", gd_format_count(step, sizeof step, view->step),
                        gd_format_count(steps, sizeof steps, view->steps));
  row[4] = loss_cell(cli, view->loss);
  row[5] = loss_cell(cli, view->eval_loss);
  if (view->tokens_per_s > 0)
    row[6] = gd_show_cell(cli, "%s%s", gd_format_number(text, sizeof text, view->tokens_per_s, 0),
                          view->log.images ? " images" : "");
  row[7] = gd_run_state_name(view->state);
  row[8] =
      gd_show_cell(cli, "%s%s", trains ? "done " : "",
                   gd_show_date(text, sizeof text, trains ? view->completion_s : view->changed_s));
}

struct listing {
  struct gd_cli *cli;
  struct gd_show_rows rows;
  struct gd_show_object objects; /* for programs: an array */
  int count;
};

/* A run that cannot be read is a note: the others are none the worse. */
static void add_run(struct listing *listing, const char *folder) {
  struct gd_cli *cli = listing->cli;
  struct gd_run_view view = {0};
  struct gd_error why = {0};
  struct gd_show_object object;
  if (gd_run_view_read(&view, folder, &why) != GD_OK) {
    gd_strbuf_printf(&cli->notes, "%s was left out: %s\n", folder, why.text);
  } else if (gd_cli_for_programs(cli)) {
    gd_show_begin(&object);
    gd_show_set_run(&object, folder, &view);
    gd_show_append(&listing->objects, &object);
  } else {
    add_row(&listing->rows, folder, &view);
    listing->count++;
  }
  gd_show_run_damage(&cli->notes, &view, folder);
  gd_run_view_deinit(&view);
}

static enum gd_status end_listing(struct listing *listing, struct gd_error *err) {
  struct gd_cli *cli = listing->cli;
  struct gd_show_object root;
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &listing->objects, err);
  if (cli->options.json) {
    gd_show_begin(&root);
    gd_show_set_object(&root, "runs", &listing->objects);
    return gd_show_json(&cli->out, &root, err);
  }
  if (listing->count > 0)
    return gd_show_rows(&listing->rows, 0, err);
  gd_strbuf_printf(&cli->out, "no runs in %s: 'gpudays train MODEL --data FILE' makes one\n",
                   cli->n_arguments > 0 ? cli->arguments[0] : "runs");
  return GD_OK;
}

enum gd_status gd_cmd_runs(struct gd_cli *cli, struct gd_error *err) {
  struct listing listing = {.cli = cli, .rows = GD_SHOW_ROWS(cli, columns)};
  const char *const *paths;
  int count;
  GD_TRY(gd_run_view_find_all(cli->arguments, cli->n_arguments, &cli->arena, &paths, &count, err));
  if (gd_cli_for_programs(cli))
    listing.objects = (struct gd_show_object){.object = json_array()};
  for (int i = 0; i < count; i++)
    add_run(&listing, paths[i]);
  return end_listing(&listing, err);
}
