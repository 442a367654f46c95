/*
 * Models and GPUs: Table 3 (recipes), Appendix E with Figure 9 (FLOPs and peaks), both next to what
 * this program counts on its own graphs; and the survey, Figures 1 and 8.
 */
#include <stdio.h>
#include <string.h>

#include "report/report_int.h"

/* --- Table 3 -------------------------------------------------------------------------------- */

static const struct gd_report_column recipe_columns[] = {
    {"Model", NULL, false},
    {"Paper", "Parameters", false},
    {"Counted", "Parameters", true},
    {"Length", "Language", true},
    {"Vocabulary", "Language", true},
    {"Size", "Images", true},
    {"Classes", "Images", true},
    {"Batch", NULL, true},
    {"Steps", NULL, true},
    {"Precision", NULL, false},
    {"Optimizer", NULL, false},
    {"Preset", NULL, false},
};
enum { RECIPE_COLUMNS = sizeof recipe_columns / sizeof *recipe_columns };

static void set_if(struct gd_report *report, struct gd_report_cell *cell, int64_t value) {
  if (value > 0)
    gd_report_set_count(report, cell, value);
}

static void recipe_row(struct gd_report *report, const struct gd_paper_recipe *from,
                       const struct gd_report_preset *ours, struct gd_report_table *table) {
  struct gd_report_cell *row = gd_report_table_row(table);
  row[0].text = from->family;
  row[1].text = from->size;
  row[1].value = from->parameters;
  if (ours->known)
    gd_report_set_count(report, &row[2], (int64_t)ours->parameters);
  set_if(report, &row[3], from->seq);
  set_if(report, &row[4], from->vocab);
  set_if(report, &row[5], from->image);
  set_if(report, &row[6], from->classes);
  set_if(report, &row[7], from->batch);
  set_if(report, &row[8], from->steps);
  row[9].text = from->precision;
  row[10].text = from->optimizer;
  row[11].text = from->model;
}

static enum gd_status bars_of_two(struct gd_report *report, const struct gd_report_block *block,
                                  const char *title, const char *y_label, const char *const *names,
                                  const double *paper, const double *here, const char *here_name,
                                  int count, struct gd_error *err) {
  struct gd_plot_series series[] = {{.name = "paper", .y = paper, .count = count},
                                    {.name = here_name, .y = here, .count = count}};
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title = title,
                         .x_label = "model",
                         .y_label = y_label,
                         .categories = names,
                         .n_categories = count,
                         .series = series,
                         .n_series = 2,
                         .log_y = true};
  return gd_report_add_plot(report, block, &plot, err);
}

#define COUNTED "counted on the graphs of this program's presets"

static enum gd_status table_3(struct gd_report *report, const struct gd_report_preset *ours,
                              const char *const *names, struct gd_error *err) {
  int count = report->paper.n_recipes;
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, recipe_columns, RECIPE_COLUMNS, count);
  double *paper = gd_report_numbers(report, count), *here = gd_report_numbers(report, count);
  if (!table || !paper || !here)
    return gd_report_no_memory(err);
  gd_report_begin(report, "table-3", "Table 3", "Models and how they are trained");
  gd_report_text(report,
                 "The paper gives ViT a length of 256. The preset's is 197: 14 x 14 patches of "
                 "224 pixels and the class token, and with these its FLOPs are the paper's.");
  for (int i = 0; i < count; i++) {
    recipe_row(report, &report->paper.recipes[i], &ours[i], table);
    paper[i] = report->paper.recipes[i].parameters / 1e6;
    here[i] = ours[i].parameters / 1e6;
  }
  GD_TRY(gd_report_add_table(
      report,
      &(struct gd_report_block){"table-3-paper",
                                "Recipes of the original reports; the parameters next to them are "
                                "counted here, and the last column names the preset.",
                                GD_REPORT_PAPER,
                                "arXiv 2410.23261, Table 3, 2024-10-30; parameters " COUNTED},
      table, err));
  GD_TRY(bars_of_two(
      report,
      &(struct gd_report_block){"table-3-parameters", "Parameters by the paper and as counted.",
                                GD_REPORT_PAPER, "arXiv 2410.23261, Table 3; " COUNTED},
      "Presets have the parameters of the paper's models", "million parameters, logarithmic", names,
      paper, here, "counted here", count, err));
  gd_report_end(report);
  return GD_OK;
}

/* --- Appendix E, Figure 9 -------------------------------------------------------------------- */

static const struct gd_report_column flops_columns[] = {
    {"Model", NULL, false},
    {"Paper", "Training FLOPs", true},
    {"Counted", "Training FLOPs", true},
    {"Counted / paper", NULL, true},
};
static const struct gd_report_column peak_columns[] = {
    {"GPU", NULL, false},       {"Paper", "FLOP/s", true},      {"Data sheet", "FLOP/s", true},
    {"Memory, GB", NULL, true}, {"Data sheet of", NULL, false},
};

static void set_power(struct gd_report *report, struct gd_report_cell *cell, double value) {
  char text[32], *plus;
  if (!isfinite(value))
    return;
  snprintf(text, sizeof text, "%.2e", value);
  if ((plus = strchr(text, '+'))) /* "2.90e20" */
    memmove(plus, plus + 1, strlen(plus));
  *cell = (struct gd_report_cell){gd_report_print(report, "%s", text), value, NULL, NULL};
}

static enum gd_status figure_9a(struct gd_report *report, const struct gd_report_preset *ours,
                                const char *const *names, struct gd_error *err) {
  int count = report->paper.n_recipes;
  struct gd_report_table *table = gd_report_table_new(&report->arena, flops_columns, 4, count);
  double *paper = gd_report_numbers(report, count), *here = gd_report_numbers(report, count);
  if (!table || !paper || !here)
    return gd_report_no_memory(err);
  for (int i = 0; i < count; i++) {
    struct gd_report_cell *row = gd_report_table_row(table);
    row[0].text = names[i];
    set_power(report, &row[1], paper[i] = report->paper.recipes[i].train_flops);
    set_power(report, &row[2], here[i] = ours[i].train_flops);
    gd_report_set_digits(report, &row[3], here[i] / paper[i]);
  }
  GD_TRY(
      gd_report_add_table(report,
                          &(struct gd_report_block){
                              "figure-9a-table",
                              "FLOPs of the whole training run. Mamba and ConvNeXt differ by more "
                              "than rounding; docs/flops.md says why.",
                              GD_REPORT_PAPER, "arXiv 2410.23261, Figure 9 (a); " COUNTED},
                          table, err));
  return bars_of_two(report,
                     &(struct gd_report_block){"figure-9a", "The same, as bars.", GD_REPORT_PAPER,
                                               "arXiv 2410.23261, Figure 9 (a); " COUNTED},
                     "FLOPs of the runs: the paper's and as counted",
                     "FLOPs of the run, logarithmic", names, paper, here, "counted here", count,
                     err);
}

static enum gd_status figure_9b(struct gd_report *report, struct gd_error *err) {
  int count = report->paper.n_gpus;
  struct gd_report_table *table = gd_report_table_new(&report->arena, peak_columns, 5, count);
  double *peaks = gd_report_numbers(report, count), *sheets = gd_report_numbers(report, count);
  const char **names = gd_report_texts(report, count);
  if (!table || !peaks || !sheets || !names)
    return gd_report_no_memory(err);
  for (int i = 0; i < count; i++) {
    const struct gd_paper_gpu *gpu = &report->paper.gpus[i];
    struct gd_report_cell *row = gd_report_table_row(table);
    row[0].text = names[i] = gpu->title;
    const struct gd_gpu *record;
    set_power(report, &row[1], gpu->flops);
    gd_report_set_count(report, &row[3], (int64_t)gpu->memory_gb);
    peaks[i] = gpu->flops / 1e12;
    if (gd_hw_gpu(&report->hw, gpu->gpu, &record, NULL) != GD_OK)
      continue;
    set_power(report, &row[2], record->flops[GD_PEAK_FP16]);
    row[4].text = gd_report_print(report, "%s", record->title);
    sheets[i] = record->flops[GD_PEAK_FP16] / 1e12;
  }
  struct gd_plot_series series[] = {{.name = "paper", .y = peaks, .count = count},
                                    {.name = "data sheet", .y = sheets, .count = count}};
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title = "Peaks of 16-bit GEMMs: the paper's and of data sheets",
                         .x_label = "GPU",
                         .y_label = "TFLOP/s",
                         .categories = names,
                         .n_categories = count,
                         .series = series,
                         .n_series = 2};
  GD_TRY(gd_report_add_table(
      report,
      &(struct gd_report_block){
          "figure-9b-table",
          "Peaks of 16-bit recipes; recipes in fp32 are counted at half of "
          "them. The paper's figure for the H100 is the PCIe card's, and "
          "data sheets count GEMMs that accumulate in fp32.",
          GD_REPORT_PAPER,
          "arXiv 2410.23261, Figure 9 (b); data sheets of this program's catalogue"},
      table, err));
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){
          "figure-9b", "The same, as bars.", GD_REPORT_PAPER,
          "arXiv 2410.23261, Figure 9 (b); data sheets of this program's catalogue"},
      &plot, err);
}

static enum gd_status models_and_gpus(struct gd_report *report, struct gd_error *err) {
  int count = report->paper.n_recipes;
  struct gd_report_preset *ours = gd_arena_alloc(&report->arena, (size_t)count, sizeof *ours);
  const char **names = gd_report_texts(report, count);
  if (!ours || !names)
    return gd_report_no_memory(err);
  for (int i = 0; i < count; i++) {
    GD_TRY(gd_report_count_preset(report->paper.recipes[i].model, &ours[i], err));
    names[i] = gd_report_model_title(report, report->paper.recipes[i].model);
  }
  gd_report_chapter(report, "paper-models", "Models and GPUs");
  GD_TRY(table_3(report, ours, names, err));
  gd_report_begin(report, "figure-9", "Figure 9", "Compute of models, peaks of GPUs (Appendix E)");
  GD_TRY(figure_9a(report, ours, names, err));
  GD_TRY(figure_9b(report, err));
  gd_report_end(report);
  return GD_OK;
}

/* --- the survey ------------------------------------------------------------------------------ */

/* Percentages of Figure 8 that the text states, in few words. */
static const struct {
  const char *id, *name;
} shares[] = {
    {"survey_no_cloud", "no budget for clouds"},
    {"survey_gpu_links", "links between GPUs"},
    {"survey_satisfaction_low", "satisfied 3 of 5 or less"},
    {"survey_model_analysis", "analyse models"},
    {"survey_no_multi_node", "no multi-node support"},
    {"survey_ethernet", "Ethernet between nodes"},
    {"survey_infiniband", "Infiniband between nodes"},
    {"survey_pretraining", "pre-train below 1B"},
    {"survey_h100", "have H100"},
};
enum { SHARES = sizeof shares / sizeof *shares };

static enum gd_status figure_8_plot(struct gd_report *report, struct gd_error *err) {
  double values[SHARES];
  const char *names[SHARES] = {0};
  int count = 0;
  for (int i = 0; i < SHARES; i++) {
    const struct gd_paper_statement *statement =
        gd_paper_find_statement(&report->paper, shares[i].id);
    if (statement) {
      names[count] = shares[i].name;
      values[count++] = statement->value;
    }
  }
  struct gd_plot_series series = {.name = "%", .y = values, .count = count};
  struct gd_plot plot = {
      .kind = GD_PLOT_BARS,
      .title = count > 0
                   ? gd_report_print(report, "%.0f %% of the respondents: %s", values[0], names[0])
                   : "What the survey found",
      .x_label = "respondents who",
      .y_label = "% of 50 respondents",
      .categories = names,
      .n_categories = count,
      .series = &series,
      .n_series = 1};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){"figure-8-stated", "Shares that the text states.", GD_REPORT_PAPER,
                                "arXiv 2410.23261, Sec. 2 and Appendix A"},
      &plot, err);
}

/* The figures whose names begin so, from the answers of a file. */
static enum gd_status add_answers(struct gd_report *report, const struct gd_survey *answers,
                                  const struct gd_survey_figure *figures, int count,
                                  const char *prefix, struct gd_error *err) {
  size_t length = strlen(prefix);
  const char *warning = gd_survey_warning(answers);
  const char *from =
      gd_report_print(report, "%s, %d respondents%s%s", answers->csv.file, answers->respondents,
                      warning ? ": " : "", warning ? warning : "");
  for (int i = 0; i < count; i++) {
    const char *behind = figures[i].name + length;
    if (strncmp(figures[i].name, prefix, length) != 0 || (*behind && *behind != '-'))
      continue;
    const char *name = gd_report_print(report, "%s-answers", figures[i].name);
    GD_TRY(gd_report_add_plot(
        report, &(struct gd_report_block){name, figures[i].plot.title, GD_REPORT_MEASURED, from},
        &figures[i].plot, err));
  }
  return GD_OK;
}

static enum gd_status survey_sections(struct gd_report *report, const struct gd_survey *answers,
                                      const struct gd_survey_figure *figures, int count,
                                      struct gd_error *err) {
  gd_report_chapter(report, "paper-survey", "Survey");
  gd_report_begin(report, "figure-1", "Figure 1", "How long GPUs of data centers can be used");
  gd_report_text(report, "The answers behind this figure are not in the paper's text. What it "
                         "states of them follows; 'gpudays report --survey FILE.csv' draws the "
                         "figure from answers of your own.");
  GD_TRY(gd_report_add_statements(report, "figure-1-paper", "Figure 1", err));
  GD_TRY(add_answers(report, answers, figures, count, "figure-1", err));
  gd_report_end(report);
  gd_report_begin(report, "figure-8", "Figure 8", "What the survey found");
  GD_TRY(figure_8_plot(report, err));
  GD_TRY(gd_report_add_statements(report, "figure-8-paper", "Figure 8", err));
  GD_TRY(add_answers(report, answers, figures, count, "figure-8", err));
  gd_report_end(report);
  return GD_OK;
}

enum gd_status gd_report_items_rest(struct gd_report *report, struct gd_error *err) {
  GD_TRY(models_and_gpus(report, err));
  return survey_sections(report, &report->answers, report->answer_figures, report->n_answer_figures,
                         err);
}
