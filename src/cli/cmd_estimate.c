/*
 * `gpudays estimate [MODEL...]`: days by Section 3.1 of the paper, training FLOPs over peaks, for
 * models x GPUs x counts. What is computed is src/hw/estimate_grid.h.
 */
#include <math.h>
#include <stdio.h>

#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/plan_outline.h"
#include "cli/show.h"
#include "cli/show_items.h"
#include "cli/show_model.h"
#include "hw/estimate_grid.h"

/* What was asked for, and the answer. */
struct question {
  const char *const *names; /* of the models */
  struct gd_model *models;
  bool outlined;             /* there is one, of which only the size is known */
  struct gd_outline outline; /* and this is it */
  double flops;
  struct gd_estimate_asked asked;
  struct gd_estimate_grid grid;
};

/* The only model, known by its size: its recipe and its FLOPs are what the grid needs. */
static enum gd_status ask_outline(struct gd_cli *cli, const char *argument,
                                  struct question *question, struct gd_error *err) {
  const char **names = gd_arena_alloc(&cli->arena, 1, sizeof *names);
  struct gd_model *model = gd_arena_alloc(&cli->arena, 1, sizeof *model);
  if (!names || !model)
    return gd_nomem(err, "while estimating");
  GD_TRY(gd_cli_outline(cli, argument, &question->outline, err));
  *model = (struct gd_model){.recipe = question->outline.recipe};
  names[0] = question->outline.name;
  question->outlined = true;
  question->names = names;
  question->flops = gd_outline_flops(&question->outline);
  question->models = model;
  question->asked.models = model;
  question->asked.n_models = 1;
  question->asked.flops = &question->flops;
  return GD_OK;
}

static enum gd_status ask(struct gd_cli *cli, struct gd_hw *hw, struct question *question,
                          struct gd_error *err) {
  struct gd_estimate_asked *asked = &question->asked;
  *question = (struct question){.names = cli->arguments};
  *asked = (struct gd_estimate_asked){
      .hw = hw,
      .n_models = cli->n_arguments,
      .gpus = cli->options.gpu,
      .count = (int)cli->options.count,
      .peaks = cli->options.paper_peaks ? GD_PEAKS_PAPER : GD_PEAKS_DATASHEET,
      .forced = cli->options.precision_given ? &cli->options.precision : NULL};
  if (cli->options.params) {
    GD_TRY(ask_outline(cli, cli->n_arguments > 0 ? cli->arguments[0] : NULL, question, err));
    return gd_estimate_grid_make(asked, &cli->arena, &question->grid, err);
  }
  if (asked->n_models == 0)
    question->names = gd_estimate_models;
  while (cli->n_arguments == 0 && gd_estimate_models[asked->n_models])
    asked->n_models++;
  question->models = gd_arena_alloc(&cli->arena, (size_t)asked->n_models, sizeof(struct gd_model));
  if (!question->models)
    return gd_nomem(err, "while estimating");
  const char **names = gd_arena_alloc(&cli->arena, (size_t)asked->n_models, sizeof *names);
  if (!names)
    return gd_nomem(err, "while estimating");
  for (int i = 0; i < asked->n_models; i++) {
    struct gd_error refused = {0};
    enum gd_status status =
        gd_cli_load_model(cli, question->names[i], &question->models[i], &refused);
    if (status == GD_UNSUPPORTED && asked->n_models == 1) { /* its size may be counted */
      GD_TRY(ask_outline(cli, question->names[0], question, err));
      return gd_estimate_grid_make(asked, &cli->arena, &question->grid, err);
    }
    if (status != GD_OK) {
      *err = refused;
      return status;
    }
    names[i] = question->models[i].name;
  }
  question->names = names;
  asked->models = question->models;
  return gd_estimate_grid_make(asked, &cli->arena, &question->grid, err);
}

/* --- answers ------------------------------------------------------------------------------- */

static void set_cell(struct gd_show_object *to, const char *model, const struct gd_estimate *cell) {
  gd_show_begin(to);
  gd_show_set_text(to, "model", model);
  gd_show_set_text(to, "gpu", cell->gpu->name);
  gd_show_set_int(to, "count", cell->count);
  gd_show_set_real(to, "days", cell->days);
  gd_show_set_real(to, "train_flops", cell->train_flops);
  gd_show_set_real(to, "peak_flops", cell->peak_flops);
  gd_show_set_text(to, "precision", gd_precision_name(cell->precision));
  gd_show_set_text(to, "rate", gd_peak_name(cell->kind));
  gd_show_set_bool(to, "precision_substituted", cell->substituted);
}

static void set_assumed(struct gd_cli *cli, const struct question *question,
                        struct gd_show_object *to, int model) {
  if (question->outlined)
    gd_show_set_outline(to, cli, &question->outline);
  else
    gd_show_set_assumed(to, cli, &question->models[model]);
}

/* One cell is an object with its days; several are a list. */
static enum gd_status show_objects(struct gd_cli *cli, const struct question *question,
                                   struct gd_error *err) {
  const struct gd_estimate_grid *grid = &question->grid;
  const int each = grid->n_gpus * grid->n_counts, count = grid->n_models * each;
  struct gd_show_object root, list = {.object = json_array()}, object;
  for (int i = 0; i < count; i++) {
    set_cell(&object, question->names[i / each], &grid->cells[i]);
    set_assumed(cli, question, &object, i / each);
    gd_show_append(&list, &object);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &list, err);
  if (count == 1)
    set_cell(&root, question->names[0], &grid->cells[0]);
  else
    gd_show_begin(&root);
  gd_show_set_text(&root, "peaks", question->asked.peaks == GD_PEAKS_PAPER ? "paper" : "datasheet");
  gd_show_set_object(&root, "estimates", &list);
  return gd_show_json(&cli->out, &root, err);
}

enum { FIXED = 5, COLUMNS = FIXED + GD_ESTIMATE_COUNTS };

static void set_row(struct gd_cli *cli, const struct question *question, int model, int gpu,
                    const char **row) {
  const struct gd_estimate_grid *grid = &question->grid;
  const struct gd_estimate *first = gd_estimate_grid_cell(grid, model, gpu, 0);
  char text[GD_SHOW_TEXT];
  row[0] = question->names[model];
  row[1] = gd_show_cell(cli, "%s", gd_show_power(text, sizeof text, first->train_flops));
  row[2] = first->gpu->name;
  row[3] = gd_peak_name(first->kind);
  row[4] = first->peak_flops > 0
               ? gd_show_cell(cli, "%s",
                              gd_format_digits(text, sizeof text, first->peak_flops / 1e12, 4))
               : "-";
  for (int c = 0; c < grid->n_counts; c++) {
    double days = gd_estimate_grid_cell(grid, model, gpu, c)->days;
    row[FIXED + c] = isfinite(days)
                         ? gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, days, 3))
                         : "-";
  }
}

static void append_substitutions(struct gd_cli *cli, const struct question *question) {
  const struct gd_estimate_grid *grid = &question->grid;
  for (int m = 0; m < grid->n_models; m++)
    for (int g = 0; g < grid->n_gpus; g++) {
      const struct gd_estimate *cell = gd_estimate_grid_cell(grid, m, g, 0);
      const char *recipe = gd_precision_name(question->models[m].recipe.precision);
      if (cell->substituted)
        gd_strbuf_printf(&cli->out,
                         "%s on %s: the recipe's %s runs as %s, since the GPU has no %s.\n",
                         question->names[m], cell->gpu->name, recipe,
                         gd_precision_name(cell->precision), recipe);
    }
}

static enum gd_status show_table(struct gd_cli *cli, const struct question *question,
                                 struct gd_error *err) {
  const struct gd_estimate_grid *grid = &question->grid;
  struct gd_show_column columns[COLUMNS] = {{"MODEL", false, 0},
                                            {"FLOPS", true, 0},
                                            {"GPU", false, 0},
                                            {"RATE", false, 0},
                                            {"TFLOP/s", true, 0}};
  struct gd_show_rows rows = {.cli = cli, .columns = columns, .n_columns = FIXED + grid->n_counts};
  for (int c = 0; c < grid->n_counts; c++)
    columns[FIXED + c] = (struct gd_show_column){
        gd_show_cell(cli, "%d GPU%s", grid->counts[c], grid->counts[c] == 1 ? "" : "s"), true, 0};
  for (int m = 0; m < grid->n_models; m++)
    for (int g = 0; g < grid->n_gpus; g++)
      set_row(cli, question, m, g, gd_show_row(&rows));
  GD_TRY(gd_show_rows(&rows, 0, err));
  gd_strbuf_append(
      &cli->out,
      "\nLower bound (100 % MFU): days at the peak of every GPU, which no run reaches. As MFU "
      "does, it "
      "counts\nmasked scores of causal attention, which kernels skip: most of the work above some "
      "10,000 tokens.\n");
  append_substitutions(cli, question);
  for (int i = 0; i < question->grid.n_models && !question->outlined; i++)
    gd_show_assumed(cli, &question->models[i]);
  if (question->outlined) {
    gd_show_item(cli, "FLOPs", gd_show_outline_flops(cli, &question->outline));
    gd_show_outline_notes(cli, &question->outline);
  }
  return GD_OK;
}

static enum gd_status answer(struct gd_cli *cli, struct gd_hw *hw, struct gd_error *err) {
  struct question question;
  GD_TRY(ask(cli, hw, &question, err));
  return gd_cli_for_programs(cli) ? show_objects(cli, &question, err)
                                  : show_table(cli, &question, err);
}

enum gd_status gd_cmd_estimate(struct gd_cli *cli, struct gd_error *err) {
  struct gd_hw hw = {0};
  GD_TRY(gd_hw_load(&hw, err));
  enum gd_status status = answer(cli, &hw, err);
  gd_hw_deinit(&hw);
  return status;
}
