/*
 * Invented answers, for tests and demonstration: a file that passes the checks of survey_answers.c
 * and whose every row is marked. The rules are simple and ours (a respondent has more or less of
 * everything; larger numbers of GPUs are lent for shorter) and are fitted to no survey.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "survey/survey_int.h"

/* One respondent: draws are numbered, so that each is its own whatever came before. */
struct person {
  uint64_t seed;
  uint64_t index; /* of the next draw */
  uint64_t number;
  double means; /* how well off, 0 to 1 */
  bool has_class;
};

static double draw(struct person *person) {
  return (double)gd_rng_uniform(person->seed, person->number, person->index++);
}

static int draw_below(struct person *person, int bound) {
  int value = (int)(draw(person) * bound);
  return value < bound ? value : bound - 1;
}

static void answer_multiple(struct person *person, const struct gd_survey_question *question,
                            struct gd_strbuf *cell) {
  int alone = 0;
  while (alone < question->n_answers && question->answers[alone].alone)
    alone++;
  person->has_class = draw(person) < 0.4 + 0.5 * person->means;
  if (alone > 0 && !person->has_class) {
    gd_strbuf_append(cell, question->answers[draw_below(person, alone)].text);
    return;
  }
  int sure = alone + draw_below(person, question->n_answers - alone);
  for (int i = alone; i < question->n_answers; i++)
    if (i == sure || draw(person) < 0.2)
      gd_strbuf_printf(cell, "%s%s", cell->length ? "; " : "", question->answers[i].text);
}

/* Better off is nearer to the last answer, more or less. */
static void answer_ordered(struct person *person, const struct gd_survey_question *question,
                           struct gd_strbuf *cell) {
  double place = 0.6 * person->means + 0.4 * draw(person);
  int answer = (int)(place * question->n_answers);
  if (answer >= question->n_answers)
    answer = question->n_answers - 1;
  gd_strbuf_append(cell, question->kind == GD_SURVEY_SCALE ? question->answers[answer].label
                                                           : question->answers[answer].text);
}

/* A row has twice the GPUs of the one before, and is lent for no longer. */
static void answer_grid(struct person *person, const struct gd_survey_question *question, int row,
                        struct gd_strbuf *cell) {
  struct person same = *person; /* one draw for all rows of the grid */
  same.index = 1000 + (uint64_t)question->first_column;
  double most = person->has_class ? (1 + 5 * person->means) * (0.5 + draw(&same)) : 0;
  int answer = (int)(most - 0.8 * row);
  if (answer < 0)
    answer = 0;
  if (answer >= question->n_answers)
    answer = question->n_answers - 1;
  gd_strbuf_append(cell, question->answers[answer].text);
}

static void answer(struct person *person, const struct gd_survey_question *question, int row,
                   struct gd_strbuf *cell) {
  switch (question->kind) {
  case GD_SURVEY_SINGLE:
  case GD_SURVEY_SCALE: answer_ordered(person, question, cell); break;
  case GD_SURVEY_MULTIPLE: answer_multiple(person, question, cell); break;
  case GD_SURVEY_GRID: answer_grid(person, question, row, cell); break;
  case GD_SURVEY_NUMBER:
    gd_strbuf_printf(cell, "%d", draw(person) < 0.7 ? 0 : 50 * (1 + draw_below(person, 60)));
    break;
  case GD_SURVEY_TEXT:
    gd_strbuf_printf(cell, "synthetic answer %d", 1 + draw_below(person, 30));
    break;
  case GD_SURVEY_KIND_COUNT: break;
  }
}

static void append_row(const struct gd_survey_schema *schema, struct person *person,
                       struct gd_strbuf *out) {
  struct gd_strbuf cell = {0};
  gd_strbuf_append(out, gd_survey_marked);
  for (int i = 0; i < schema->n_questions; i++)
    for (int row = 0; row < schema->questions[i].n_rows; row++) {
      const struct gd_survey_question *question = &schema->questions[i];
      cell.length = 0;
      /* Some leave out what they may. */
      if (question->required || question->kind == GD_SURVEY_GRID || draw(person) < 0.9)
        answer(person, question, row, &cell);
      gd_strbuf_append(out, ",");
      if (cell.length)
        gd_csv_append_cell(out, cell.text);
    }
  gd_strbuf_append(out, "\n");
  out->failed = out->failed || cell.failed;
  gd_strbuf_deinit(&cell);
}

enum gd_status gd_survey_synthetic(struct gd_survey_schema *schema, int respondents, uint64_t seed,
                                   struct gd_strbuf *out, struct gd_error *err) {
  GD_TRY(gd_survey_template(schema, true, out, err));
  for (int i = 0; i < respondents && !out->failed; i++) {
    struct person person = {.seed = seed, .number = (uint64_t)i};
    person.means = draw(&person);
    append_row(schema, &person, out);
  }
  return out->failed ? gd_nomem(err, "while inventing answers") : GD_OK;
}
