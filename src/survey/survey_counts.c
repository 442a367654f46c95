/*
 * Counting answers: tables by question, access by class of GPU, and the shares that the paper
 * states next to the same shares here. A share is of those who answered the question, and always
 * comes with how many they are and an interval: surveys of a few dozen people deserve no less.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "paper/paper.h"
#include "survey/survey_int.h"

enum { MOST_OTHERS = 100 }; /* different texts that are listed */

static enum gd_status fail_memory(struct gd_error *err) {
  return gd_nomem(err, "while counting answers");
}

static const struct gd_survey_cell *cell_of(const struct gd_survey *survey, int respondent,
                                            int column) {
  return &survey->cells[(ptrdiff_t)respondent * survey->schema.columns + column];
}

/* Wilson, 1927: unlike the textbook's interval it holds for few answers and for shares near 0. */
static void set_share(struct gd_survey_count *count, int answered) {
  const double z = 1.959963984540054; /* 97.5 % of a normal distribution */
  count->share = count->low = count->high = (double)NAN;
  if (answered == 0)
    return;
  double n = answered, p = count->count / n, scale = 1 + z * z / n;
  double middle = (p + z * z / (2 * n)) / scale;
  double half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / scale;
  count->share = p;
  count->low = count->count == 0 ? 0 : middle - half;
  count->high = count->count == answered ? 1 : middle + half;
}

/* --- tables -------------------------------------------------------------------------------- */

static bool count_distinct(struct gd_survey *survey, struct gd_survey_table *table, int column) {
  const char **texts = gd_arena_alloc(&survey->arena, (size_t)table->answered + 1, sizeof *texts);
  int count = 0;
  if (!texts)
    return false;
  for (int r = 0; r < survey->respondents; r++) {
    const struct gd_survey_cell *cell = cell_of(survey, r, column);
    char folded[GD_SURVEY_FOLD];
    if (!cell->answered)
      continue;
    texts[count] = gd_arena_copy_string(&survey->arena, gd_survey_fold(folded, cell->text));
    if (!texts[count++])
      return false;
  }
  qsort(texts, (size_t)count, sizeof *texts, gd_compare_texts);
  for (int i = 0; i < count; i++)
    table->distinct += i == 0 || strcmp(texts[i], texts[i - 1]) != 0;
  return true;
}

static bool find_median(struct gd_survey *survey, struct gd_survey_table *table, int column) {
  double *numbers = gd_arena_alloc(&survey->arena, (size_t)table->answered + 1, sizeof *numbers);
  int count = 0;
  if (!numbers)
    return false;
  table->least = table->median = table->most = (double)NAN;
  for (int r = 0; r < survey->respondents; r++)
    if (cell_of(survey, r, column)->answered)
      numbers[count++] = cell_of(survey, r, column)->number;
  if (count == 0)
    return true;
  qsort(numbers, (size_t)count, sizeof *numbers, gd_compare_doubles);
  table->least = numbers[0];
  table->most = numbers[count - 1];
  table->median = (numbers[(count - 1) / 2] + numbers[count / 2]) / 2;
  return true;
}

static void list_other(struct gd_survey_table *table, const char *text) {
  char folded[GD_SURVEY_FOLD], known[GD_SURVEY_FOLD];
  gd_survey_fold(folded, text);
  if (!folded[0] || table->n_others == MOST_OTHERS)
    return;
  for (int i = 0; i < table->n_others; i++)
    if (strcmp(folded, gd_survey_fold(known, table->others[i])) == 0)
      return;
  table->others[table->n_others++] = text;
}

static void count_answers(const struct gd_survey *survey, struct gd_survey_table *table,
                          int column) {
  const struct gd_survey_question *question = table->question;
  for (int r = 0; r < survey->respondents; r++) {
    const struct gd_survey_cell *cell = cell_of(survey, r, column);
    table->answered += cell->answered;
    for (int i = 0; i < table->n_counts; i++)
      table->counts[i].count += (cell->chosen >> i & 1u) != 0;
    if (question->other && (cell->chosen >> question->n_answers & 1u))
      list_other(table, cell->text);
  }
  for (int i = 0; i < table->n_counts; i++)
    set_share(&table->counts[i], table->answered);
}

static bool fill_table(struct gd_survey *survey, struct gd_survey_table *table, int column) {
  static const struct gd_survey_answer other = {.text = "something else",
                                                .label = "something else"};
  const struct gd_survey_question *question = table->question;
  table->n_counts = question->n_answers + question->other;
  table->counts =
      gd_arena_alloc(&survey->arena, (size_t)table->n_counts + 1, sizeof *table->counts);
  table->others = gd_arena_alloc(&survey->arena, MOST_OTHERS, sizeof *table->others);
  if (!table->counts || !table->others)
    return false;
  for (int i = 0; i < table->n_counts; i++)
    table->counts[i].answer = i < question->n_answers ? &question->answers[i] : &other;
  count_answers(survey, table, column);
  if (question->kind == GD_SURVEY_TEXT)
    return count_distinct(survey, table, column);
  return question->kind != GD_SURVEY_NUMBER || find_median(survey, table, column);
}

enum gd_status gd_survey_tabulate(struct gd_survey *survey, const struct gd_survey_table **tables,
                                  int *count, struct gd_error *err) {
  const struct gd_survey_schema *schema = &survey->schema;
  struct gd_survey_table *made =
      gd_arena_alloc(&survey->arena, (size_t)schema->columns, sizeof *made);
  if (!made)
    return fail_memory(err);
  for (int i = 0; i < schema->n_questions; i++)
    for (int row = 0; row < schema->questions[i].n_rows; row++) {
      const struct gd_survey_question *question = &schema->questions[i];
      struct gd_survey_table *table = &made[question->first_column + row];
      table->question = question;
      table->row = question->rows ? question->rows[row] : NULL;
      if (!fill_table(survey, table, question->first_column + row))
        return fail_memory(err);
    }
  *tables = made;
  *count = schema->columns;
  return GD_OK;
}

/* --- access -------------------------------------------------------------------------------- */

static void count_class(const struct gd_survey *survey, struct gd_survey_access *access) {
  const struct gd_survey_question *question = access->question;
  uint32_t none = 0, unsure = 0;
  int at;
  if ((at = gd_survey_find_answer(question, "None available")) >= 0)
    none = 1u << at;
  if ((at = gd_survey_find_answer(question, "Not sure")) >= 0)
    unsure = 1u << at;
  for (int r = 0; r < survey->respondents; r++) {
    const struct gd_survey_cell *cell = cell_of(survey, r, question->first_column);
    access->answered += cell->answered;
    access->none += (cell->chosen & none) != 0;
    access->unsure += (cell->chosen & unsure) != 0;
    access->have += (cell->chosen & ~(none | unsure)) != 0;
  }
}

enum gd_status gd_survey_count_access(struct gd_survey *survey,
                                      const struct gd_survey_access **access, int *count,
                                      struct gd_error *err) {
  const struct gd_survey_schema *schema = &survey->schema;
  struct gd_survey_access *made =
      gd_arena_alloc(&survey->arena, (size_t)schema->n_questions, sizeof *made);
  if (!made)
    return fail_memory(err);
  *count = 0;
  for (int i = 0; i < schema->n_questions; i++)
    if (schema->questions[i].class_name) {
      made[*count].question = &schema->questions[i];
      count_class(survey, &made[(*count)++]);
    }
  *access = made;
  return GD_OK;
}

/* --- compared with the paper ---------------------------------------------------------------- */

static void count_statement(const struct gd_survey *survey,
                            const struct gd_survey_statement *statement,
                            struct gd_survey_comparison *compared) {
  const struct gd_survey_question *question = &survey->schema.questions[statement->question];
  compared->question = question;
  compared->id = statement->id;
  for (int r = 0; r < survey->respondents; r++) {
    const struct gd_survey_cell *cell = cell_of(survey, r, question->first_column);
    compared->answered += cell->answered;
    compared->here.count += (cell->chosen & statement->answers) != 0;
  }
  set_share(&compared->here, compared->answered);
}

static enum gd_status copy_statement(struct gd_survey *survey,
                                     const struct gd_paper_statement *statement,
                                     struct gd_survey_comparison *compared, struct gd_error *err) {
  compared->paper_percent = statement->value;
  compared->text = gd_arena_copy_string(&survey->arena, statement->text);
  compared->where = gd_arena_copy_string(&survey->arena, statement->where);
  return compared->text && compared->where ? GD_OK : fail_memory(err);
}

enum gd_status gd_survey_compare(struct gd_survey *survey,
                                 const struct gd_survey_comparison **compared, int *count,
                                 int *paper_respondents, struct gd_error *err) {
  struct gd_paper paper = {0};
  struct gd_survey_comparison *made =
      gd_arena_alloc(&survey->arena, (size_t)survey->schema.n_statements + 1, sizeof *made);
  if (!made)
    return fail_memory(err);
  *compared = made;
  *count = 0;
  GD_TRY(gd_paper_load(&paper, err));
  const struct gd_paper_statement *asked = gd_paper_find_statement(&paper, "survey_respondents");
  *paper_respondents = asked ? (int)asked->value : 0;
  enum gd_status status = GD_OK;
  for (int i = 0; i < survey->schema.n_statements && status == GD_OK; i++) {
    const struct gd_survey_statement *ours = &survey->schema.statements[i];
    const struct gd_paper_statement *stated = gd_paper_find_statement(&paper, ours->id);
    if (!stated)
      continue;
    count_statement(survey, ours, &made[*count]);
    status = copy_statement(survey, stated, &made[(*count)++], err);
  }
  gd_paper_deinit(&paper);
  return status;
}
