/*
 * `gpudays fit`: the parameters of the GPU model and of software stacks, fitted to published
 * throughput, with what they miss on rows that a fit has not seen. What is fitted and how is
 * src/predict/published.h.
 */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "predict/published_errors.h"

static enum gd_status show_parameters(struct gd_cli *cli, const struct gd_published_errors *errors,
                                      struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"PARAMETER", false, 0},
                                                  {"VALUE", true, 0},
                                                  {"EXPECTED", true, 1},
                                                  {"UNIT", false, 0},
                                                  {"OF WHAT", false, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < GD_GPU_PARAMETERS; i++) {
    const struct gd_gpu_parameter_info *info = gd_gpu_parameter((enum gd_gpu_parameter)i);
    const char **row = gd_show_row(&rows);
    row[0] = info->name;
    row[1] = gd_show_cell(cli, "%.3g", errors->fit.gpu.value[i]);
    row[2] = gd_show_cell(cli, "%.3g", info->start);
    row[3] = info->unit;
    row[4] = info->meaning;
  }
  return gd_show_rows(&rows, 0, err);
}

static enum gd_status show_stacks(struct gd_cli *cli, const struct gd_published_errors *errors,
                                  struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"STACK", false, 0},
                                                  {"ROWS", true, 0},
                                                  {"TRAFFIC", true, 1},
                                                  {"HOST", true, 2},
                                                  {"TITLE", false, 3}};
  const struct gd_stacks *stacks = &errors->published->stacks;
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < stacks->count; i++) {
    if (stacks->all[i].own || stacks->all[i].paper)
      continue;
    const char **row = gd_show_row(&rows);
    row[0] = stacks->all[i].name;
    row[1] = gd_show_cell(cli, "%d", errors->fit.stack_rows[i]);
    row[2] = gd_show_cell(cli, "%.2f", errors->fit.stack[i][GD_STACK_TRAFFIC]);
    row[3] = gd_show_cell(cli, "%.3g us", 1e6 * errors->fit.stack[i][GD_STACK_HOST]);
    row[4] = stacks->all[i].title;
  }
  return gd_show_rows(&rows, 0, err);
}

static enum gd_status show_errors(struct gd_cli *cli, const struct gd_published_errors *errors,
                                  struct gd_error *err) {
  static const char *const names[GD_UNSEEN_COUNT] = {
      [GD_UNSEEN_NOTHING] = "nothing left out",
      [GD_UNSEEN_MODEL] = "a fifth of the models left out",
      [GD_UNSEEN_GPU] = "the GPU left out",
      [GD_UNSEEN_ARCHITECTURE] = "the architecture left out",
      [GD_UNSEEN_STACK] = "source and stack left out",
      [GD_UNSEEN_BOTH] = "GPU, source and stack left out"};
  static const struct gd_show_column columns[] = {{"PREDICTED WITH", false, 0},
                                                  {"ROWS", true, 0},
                                                  {"MEDIAN", true, 0},
                                                  {"90 %", true, 0},
                                                  {"WORST", true, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < GD_UNSEEN_COUNT; i++) {
    struct gd_published_score score =
        gd_published_score(errors, (enum gd_published_unseen)i, NULL, NULL);
    const char **row = gd_show_row(&rows);
    row[0] = names[i];
    row[1] = gd_show_cell(cli, "%d", score.rows);
    row[2] = gd_show_cell(cli, "%.1f %%", 100 * score.median);
    row[3] = gd_show_cell(cli, "%.1f %%", 100 * score.p90);
    row[4] = gd_show_cell(cli, "%.1f %%", 100 * score.worst);
  }
  return gd_show_rows(&rows, 0, err);
}

static enum gd_status show(struct gd_cli *cli, const struct gd_published_errors *errors,
                           struct gd_error *err) {
  const char *path = gd_cli_file(cli->options.output);
  struct gd_strbuf file = {0};
  if (cli->options.json || (cli->options.output && !path))
    return gd_published_errors_append(errors, &cli->out, err);
  GD_TRY(show_parameters(cli, errors, err));
  gd_strbuf_append(&cli->out, "\n");
  GD_TRY(show_stacks(cli, errors, err));
  gd_strbuf_append(&cli->out, "\n");
  GD_TRY(show_errors(cli, errors, err));
  if (!path)
    return GD_OK;
  enum gd_status status = gd_published_errors_append(errors, &file, err);
  if (status == GD_OK)
    status = gd_file_write(path, file.text, file.length, err);
  gd_strbuf_deinit(&file);
  if (status == GD_OK)
    gd_strbuf_printf(&cli->out, "Wrote %s.\n", path);
  return status;
}

enum gd_status gd_cmd_fit(struct gd_cli *cli, struct gd_error *err) {
  struct gd_published published = {0};
  struct gd_published_errors errors = {0};
  enum gd_status status = gd_published_load(&published, err);
  if (status == GD_OK)
    status = gd_published_errors_make(&published, &errors, err);
  if (status == GD_OK)
    status = show(cli, &errors, err);
  gd_published_errors_deinit(&errors);
  gd_published_deinit(&published);
  return status;
}
