/*
 * The figures 1 and 8 of the paper from a file of answers: counts of respondents, never shares, so
 * that few answers look like few. What is synthetic says so in the title and under the figure.
 */
#include <string.h>

#include "base/file.h"
#include "survey/survey_int.h"

/* Everything is in the survey's arena; the first request that fails makes all of it fail. */
struct drawing {
  struct gd_survey *survey;
  struct gd_survey_figure *figures;
  int count;
  bool failed;
};

static void *take(struct drawing *drawing, int count, size_t size) {
  void *block = gd_arena_alloc(&drawing->survey->arena, (size_t)count + 1, size);
  if (!block)
    drawing->failed = true;
  return block;
}

static const char *say(struct drawing *drawing, const char *text) {
  if (!text)
    drawing->failed = true;
  return text;
}

/* The next figure; its title, and the note with what `who` says of those who answered. */
static struct gd_plot *begin(struct drawing *drawing, const char *name, const char *title,
                             const char *who) {
  struct gd_arena *arena = &drawing->survey->arena;
  const char *warning = gd_survey_warning(drawing->survey);
  struct gd_survey_figure *figure = &drawing->figures[drawing->count++];
  figure->name = name;
  figure->plot.title =
      warning ? say(drawing, gd_arena_printf(arena, "%s (synthetic answers)", title)) : title;
  figure->plot.note =
      warning && who ? say(drawing, gd_arena_printf(arena, "%s; %s", who, warning)) : who;
  figure->plot.x_label = warning ? "synthetic answers" : NULL; /* the head of the figure's CSV */
  figure->plot.y_label = "respondents";
  return &figure->plot;
}

/* A bar an answer. */
static void draw_bars(struct drawing *drawing, const struct gd_survey_table *table) {
  const struct gd_survey_question *question = table->question;
  const char **labels = take(drawing, table->n_counts, sizeof *labels);
  double *heights = take(drawing, table->n_counts, sizeof *heights);
  struct gd_plot_series *series = take(drawing, 1, sizeof *series);
  const char *who =
      say(drawing,
          gd_arena_printf(&drawing->survey->arena, "n = %d of %d respondents%s", table->answered,
                          drawing->survey->respondents,
                          question->kind == GD_SURVEY_MULTIPLE ? ", several answers each" : ""));
  if (drawing->failed)
    return;
  struct gd_plot *plot = begin(drawing, question->figure, question->title, who);
  for (int i = 0; i < table->n_counts; i++) {
    labels[i] = table->counts[i].answer->label;
    heights[i] = table->counts[i].count;
  }
  *series = (struct gd_plot_series){.name = "respondents", .y = heights, .count = table->n_counts};
  plot->kind = GD_PLOT_BARS;
  plot->categories = labels;
  plot->n_categories = table->n_counts;
  plot->series = series;
  plot->n_series = 1;
}

/* "n = 40 / 38 / 38 of 50 respondents, by bar; ...". */
static const char *say_answered(struct drawing *drawing, const struct gd_survey_table *tables,
                                int count) {
  struct gd_strbuf text = {0};
  bool same = true;
  for (int i = 1; i < count; i++)
    same = same && tables[i].answered == tables[0].answered;
  gd_strbuf_append(&text, "n = ");
  for (int i = 0; i < (same ? 1 : count); i++)
    gd_strbuf_printf(&text, "%s%d", i ? " / " : "", tables[i].answered);
  gd_strbuf_printf(&text, " of %d respondents%s; the rest of n cannot use so many",
                   drawing->survey->respondents, same ? "" : ", by bar");
  const char *who = text.failed ? NULL : gd_arena_copy_string(&drawing->survey->arena, text.text);
  gd_strbuf_deinit(&text);
  return say(drawing, who);
}

/*
 * A bar a row of the grid: its height is those who can use so many GPUs at all, its parts for how
 * long at most. Who cannot ("N/A", the answer that stands alone) is the rest up to n.
 */
static void draw_grid(struct drawing *drawing, const struct gd_survey_table *tables) {
  const struct gd_survey_question *question = tables[0].question;
  int rows = question->n_rows, used = 0;
  struct gd_plot_series *series = take(drawing, question->n_answers, sizeof *series);
  double *heights = take(drawing, rows * question->n_answers, sizeof *heights);
  const char *who = say_answered(drawing, tables, rows);
  if (drawing->failed)
    return;
  struct gd_plot *plot = begin(drawing, question->figure, question->title, who);
  for (int i = 0; i < question->n_answers; i++) {
    double *y = heights + (ptrdiff_t)used * rows;
    if (question->answers[i].alone)
      continue;
    for (int row = 0; row < rows; row++)
      y[row] = tables[row].counts[i].count;
    series[used++] =
        (struct gd_plot_series){.name = question->answers[i].label, .y = y, .count = rows};
  }
  plot->kind = GD_PLOT_STACKED;
  plot->categories = question->rows;
  plot->n_categories = rows;
  plot->series = series;
  plot->n_series = used;
  plot->ordered = true;
}

/* Which classes of GPUs respondents can use at all. */
static void draw_access(struct drawing *drawing, const struct gd_survey_access *access, int count) {
  static const char *const names[] = {"can use some", "none available", "not sure"};
  const char **labels = take(drawing, count, sizeof *labels);
  double *heights = take(drawing, 3 * count, sizeof *heights);
  struct gd_plot_series *series = take(drawing, 3, sizeof *series);
  const char *who = say(drawing, gd_arena_printf(&drawing->survey->arena, "n = %d respondents",
                                                 drawing->survey->respondents));
  if (drawing->failed)
    return;
  struct gd_plot *plot = begin(drawing, "figure-8-classes", "Access to GPUs by class", who);
  for (int i = 0; i < count; i++) {
    labels[i] = access[i].question->class_name;
    heights[i] = access[i].have;
    heights[count + i] = access[i].none;
    heights[2 * count + i] = access[i].unsure;
  }
  for (int s = 0; s < 3; s++)
    series[s] = (struct gd_plot_series){.name = names[s], .y = heights + s * count, .count = count};
  plot->kind = GD_PLOT_STACKED;
  plot->categories = labels;
  plot->n_categories = count;
  plot->series = series;
  plot->n_series = 3;
}

enum gd_status gd_survey_plots(struct gd_survey *survey, const struct gd_survey_figure **figures,
                               int *count, struct gd_error *err) {
  struct drawing drawing = {.survey = survey};
  const struct gd_survey_table *tables;
  const struct gd_survey_access *access;
  int n_tables, n_access;
  GD_TRY(gd_survey_tabulate(survey, &tables, &n_tables, err));
  GD_TRY(gd_survey_count_access(survey, &access, &n_access, err));
  drawing.figures = take(&drawing, survey->schema.n_questions + 1, sizeof *drawing.figures);
  for (int i = 0; i < survey->schema.n_questions && !drawing.failed; i++) {
    const struct gd_survey_question *question = &survey->schema.questions[i];
    if (!question->figure)
      continue;
    if (question->kind == GD_SURVEY_GRID)
      draw_grid(&drawing, &tables[question->first_column]);
    else
      draw_bars(&drawing, &tables[question->first_column]);
  }
  if (!drawing.failed)
    draw_access(&drawing, access, n_access);
  if (drawing.failed)
    return gd_nomem(err, "while drawing the survey");
  *figures = drawing.figures;
  *count = drawing.count;
  return GD_OK;
}

enum gd_status gd_survey_find(struct gd_survey *survey, struct gd_survey_findings *found,
                              struct gd_error *err) {
  struct gd_survey_findings made = {0};
  GD_TRY(gd_survey_tabulate(survey, &made.tables, &made.n_tables, err));
  GD_TRY(gd_survey_count_access(survey, &made.access, &made.n_access, err));
  GD_TRY(gd_survey_compare(survey, &made.compared, &made.n_compared, &made.paper_respondents, err));
  GD_TRY(gd_survey_plots(survey, &made.figures, &made.n_figures, err));
  *found = made;
  return GD_OK;
}

enum gd_status gd_survey_draw(const struct gd_survey_findings *found, const char *folder,
                              struct gd_error *err) {
  GD_TRY(gd_file_make_folder(folder, err));
  for (int i = 0; i < found->n_figures; i++)
    GD_TRY(gd_plot_write(&found->figures[i].plot, folder, found->figures[i].name, err));
  return GD_OK;
}
