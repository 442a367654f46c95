/*
 * `gpudays estimate [MODEL...]`: days by Section 3.1 of the paper, training FLOPs over peaks, for
 * models x GPUs x counts.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/show.h"
#include "hw/estimate.h"

enum { COUNTS_MOST = 8 };

/* What is asked for; the lists are in the arena. */
struct question {
  const char *const *models;
  int n_models;
  const struct gd_gpu **gpus;
  int n_gpus;
  int counts[COUNTS_MOST];
  int n_counts;
  enum gd_peaks peaks;
};

struct cell {
  const char *model;
  enum gd_precision recipe; /* asked for */
  struct gd_estimate of;
};

static int length_of(const char *const *list) {
  int n = 0;
  while (list[n])
    n++;
  return n;
}

/* --gpu: names joined by commas, else those of the paper. */
static enum gd_status find_gpus(struct gd_cli *cli, struct gd_hw *hw, struct question *question,
                                struct gd_error *err) {
  const char *list = cli->options.gpu;
  int most = length_of(gd_estimate_gpus) + 1;
  for (const char *at = list; at && *at; at++)
    most += *at == ',';
  question->gpus = gd_arena_alloc(&cli->arena, (size_t)most, sizeof(void *));
  if (!question->gpus)
    return gd_nomem(err, "while reading --gpu");
  for (int i = 0; !list && gd_estimate_gpus[i]; i++)
    GD_TRY(gd_hw_gpu(hw, gd_estimate_gpus[i], &question->gpus[question->n_gpus++], err));
  while (list) {
    char *name = gd_arena_printf(&cli->arena, "%.*s", (int)strcspn(list, ","), list);
    if (!name)
      return gd_nomem(err, "while reading --gpu");
    GD_TRY(gd_hw_gpu(hw, name, &question->gpus[question->n_gpus++], err));
    list = list[strlen(name)] ? list + strlen(name) + 1 : NULL;
  }
  return GD_OK;
}

static enum gd_status ask(struct gd_cli *cli, struct gd_hw *hw, struct question *question,
                          struct gd_error *err) {
  *question = (struct question){.models = cli->arguments, .n_models = cli->n_arguments};
  if (question->n_models == 0) {
    question->models = gd_estimate_models;
    question->n_models = length_of(gd_estimate_models);
  }
  question->peaks = cli->options.paper_peaks ? GD_PEAKS_PAPER : GD_PEAKS_DATASHEET;
  for (int count = 1; count <= 8; count *= 2)
    question->counts[question->n_counts++] = count;
  if (cli->options.count > 0) {
    question->counts[0] = (int)cli->options.count;
    question->n_counts = 1;
  }
  GD_TRY(find_gpus(cli, hw, question, err));
  for (int i = 0; i < question->n_gpus && question->peaks == GD_PEAKS_PAPER; i++)
    if (question->gpus[i]->paper_flops <= 0)
      return gd_fail(err, GD_BAD_INPUT,
                     "the paper states no peak of %s; with --peaks paper choose among 3090, a6000, "
                     "a100 and h100",
                     question->gpus[i]->name);
  return GD_OK;
}

static enum gd_status fill_model(const struct gd_cli *cli, const struct question *question,
                                 const char *name, struct cell *cells, struct gd_error *err) {
  struct gd_model model;
  double flops;
  GD_TRY(gd_cli_load_model(cli, name, &model, err));
  const enum gd_precision *forced = cli->options.precision_given ? &cli->options.precision : NULL;
  GD_TRY(gd_estimate_flops(&model, forced ? *forced : model.recipe.precision, &flops, err));
  for (int g = 0; g < question->n_gpus; g++)
    for (int c = 0; c < question->n_counts; c++) {
      struct cell *cell = &cells[g * question->n_counts + c];
      *cell = (struct cell){.model = name, .recipe = model.recipe.precision};
      GD_TRY(gd_estimate_make(&model, flops, question->gpus[g], question->counts[c], forced,
                              question->peaks, &cell->of, err));
    }
  return GD_OK;
}

/* --- answers ------------------------------------------------------------------------------- */

static void set_cell(struct gd_show_object *to, const struct cell *cell) {
  gd_show_begin(to);
  gd_show_set_text(to, "model", cell->model);
  gd_show_set_text(to, "gpu", cell->of.gpu->name);
  gd_show_set_int(to, "count", cell->of.count);
  gd_show_set_real(to, "days", cell->of.days);
  gd_show_set_real(to, "train_flops", cell->of.train_flops);
  gd_show_set_real(to, "peak_flops", cell->of.peak_flops);
  gd_show_set_text(to, "precision", gd_precision_name(cell->of.precision));
  gd_show_set_text(to, "rate", gd_peak_name(cell->of.kind));
  gd_show_set_bool(to, "precision_substituted", cell->of.substituted);
}

/* One cell is an object with its days; several are a list. */
static enum gd_status show_objects(struct gd_cli *cli, const struct question *question,
                                   const struct cell *cells, int count, struct gd_error *err) {
  struct gd_show_object root, list = {.object = json_array()}, object;
  for (int i = 0; i < count; i++) {
    set_cell(&object, &cells[i]);
    gd_show_append(&list, &object);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &list, err);
  if (count == 1)
    set_cell(&root, &cells[0]);
  else
    gd_show_begin(&root);
  gd_show_set_text(&root, "peaks", question->peaks == GD_PEAKS_PAPER ? "paper" : "datasheet");
  gd_show_set_object(&root, "estimates", &list);
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status show_table(struct gd_cli *cli, const struct question *question,
                                 const struct cell *cells, struct gd_error *err) {
  enum { FIXED = 5, COLUMNS = FIXED + COUNTS_MOST };
  struct gd_show_column columns[COLUMNS] = {
      {"MODEL", false}, {"FLOPS", true}, {"GPU", false}, {"RATE", false}, {"TFLOP/s", true}};
  int n_rows = question->n_models * question->n_gpus, n_columns = FIXED + question->n_counts;
  struct gd_show_rows rows = {.cli = cli, .columns = columns, .n_columns = n_columns};
  char text[GD_SHOW_TEXT];
  for (int c = 0; c < question->n_counts; c++)
    columns[FIXED + c] = (struct gd_show_column){
        gd_show_cell(cli, "%d GPU%s", question->counts[c], question->counts[c] == 1 ? "" : "s"),
        true};
  for (int r = 0; r < n_rows; r++) {
    const struct cell *cell = &cells[r * question->n_counts];
    const char **row = gd_show_row(&rows);
    row[0] = cell->model;
    row[1] = gd_show_cell(cli, "%s", gd_show_power(text, sizeof text, cell->of.train_flops));
    row[2] = cell->of.gpu->name;
    row[3] = gd_peak_name(cell->of.kind);
    row[4] = cell->of.peak_flops > 0
                 ? gd_show_cell(cli, "%s",
                                gd_format_digits(text, sizeof text, cell->of.peak_flops / 1e12, 4))
                 : "-";
    for (int c = 0; c < question->n_counts; c++)
      row[FIXED + c] =
          isfinite(cell[c].of.days)
              ? gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, cell[c].of.days, 3))
              : "-";
  }
  GD_TRY(gd_show_rows(&rows, 0, err));
  gd_strbuf_append(
      &cli->out,
      "\nLower bound (100 % MFU): days at the peak of every GPU, which no run reaches.\n");
  for (int r = 0; r < n_rows; r++) {
    const struct cell *cell = &cells[r * question->n_counts];
    if (cell->of.substituted)
      gd_strbuf_printf(&cli->out,
                       "%s on %s: the recipe's %s runs as %s, since the GPU has no %s.\n",
                       cell->model, cell->of.gpu->name, gd_precision_name(cell->recipe),
                       gd_precision_name(cell->of.precision), gd_precision_name(cell->recipe));
  }
  return GD_OK;
}

static enum gd_status answer(struct gd_cli *cli, struct gd_hw *hw, struct gd_error *err) {
  struct question question;
  GD_TRY(ask(cli, hw, &question, err));
  int per_model = question.n_gpus * question.n_counts, count = question.n_models * per_model;
  struct cell *cells = gd_arena_alloc(&cli->arena, (size_t)count, sizeof *cells);
  if (!cells)
    return gd_nomem(err, "while estimating");
  for (int i = 0; i < question.n_models; i++)
    GD_TRY(fill_model(cli, &question, question.models[i], &cells[i * per_model], err));
  return gd_cli_for_programs(cli) ? show_objects(cli, &question, cells, count, err)
                                  : show_table(cli, &question, cells, err);
}

enum gd_status gd_cmd_estimate(struct gd_cli *cli, struct gd_error *err) {
  struct gd_hw hw = {0};
  GD_TRY(gd_hw_load(&hw, err));
  enum gd_status status = answer(cli, &hw, err);
  gd_hw_deinit(&hw);
  return status;
}
