/*
 * A file of answers against the schema: which column is which question, then every cell by the
 * question's kind. All that is wrong is noted, with its place and what was expected, so that a file
 * is mended in one go; nothing is guessed, since a guess would be counted.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "survey/survey_int.h"

enum { EXPECTED_BYTES = 256, FOUND_BYTES = 80, MOST_ROWS = 1000000 };

/* What a column of the file is, where it is no row of a question. */
enum { COLUMN_UNKNOWN = -1, COLUMN_IGNORED = -2, COLUMN_MARK = -3 };

struct column_name {
  const char *folded;
  int meaning; /* a column of the schema, or above */
  int rank;    /* of names that are the same the first counts */
};

struct checking {
  struct gd_survey *survey;
  struct column_name *names; /* that a column may have, sorted */
  int n_names;
  struct gd_strbuf others; /* what a cell holds besides the answers of the schema */
  int *owner;              /* by column of the schema: its question */
  int *meaning;            /* by column of the file: of the schema's, or above */
  int *place;              /* by column of the schema: the file's, or -1 */
  int row;                 /* of the file, while cells are read */
  int column;
  bool failed; /* out of memory */
};

static const struct gd_survey_question *question_at(const struct checking *checking, int column) {
  return &checking->survey->schema.questions[checking->owner[column]];
}

/* --- problems ------------------------------------------------------------------------------ */

static const char *keep(struct checking *checking, const char *text, size_t size) {
  char clean[EXPECTED_BYTES];
  const char *kept =
      gd_arena_copy_string(&checking->survey->arena,
                           gd_json_excerpt(clean, size < sizeof clean ? size : sizeof clean, text));
  if (!kept)
    checking->failed = true;
  return kept;
}

static bool is_full(const struct checking *checking) {
  return checking->survey->n_problems == GD_SURVEY_PROBLEMS;
}

static void note_problem(struct checking *checking, int line, const char *column, const char *found,
                         const char *expected) {
  struct gd_survey *survey = checking->survey;
  survey->all_problems++;
  if (is_full(checking))
    return;
  survey->problems[survey->n_problems++] =
      (struct gd_survey_problem){.line = line,
                                 .column = keep(checking, column, FOUND_BYTES),
                                 .found = keep(checking, found, FOUND_BYTES),
                                 .expected = keep(checking, expected, EXPECTED_BYTES)};
}

/* About the cell that is being read; found may be a part of it. */
static void note_cell(struct checking *checking, const char *found, const char *expected) {
  const struct gd_csv *csv = &checking->survey->csv;
  note_problem(checking, csv->lines[checking->row], csv->header[checking->column], found, expected);
}

/* --- columns ------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
  const struct column_name *x = a, *y = b;
  int order = strcmp(x->folded, y->folded);
  return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

static void add_name(struct checking *checking, const char *text, const char *row, int meaning) {
  char plain[2 * GD_SURVEY_FOLD], folded[GD_SURVEY_FOLD];
  if (row)
    snprintf(plain, sizeof plain, "%s [%s]", text, row);
  else
    snprintf(plain, sizeof plain, "%s", text);
  char *kept = gd_arena_copy_string(&checking->survey->arena, gd_survey_fold(folded, plain));
  if (!kept)
    checking->failed = true;
  else
    checking->names[checking->n_names] = (struct column_name){kept, meaning, checking->n_names};
  checking->n_names += kept != NULL;
}

/* All names that a column may have, sorted: the id and the text of each question, with the row in
   brackets for a grid. A name that two have means the first. */
static void list_names(struct checking *checking) {
  const struct gd_survey_schema *schema = &checking->survey->schema;
  size_t most = 1 + (size_t)schema->n_ignored + 2 * (size_t)schema->columns;
  checking->names = gd_arena_alloc(&checking->survey->arena, most, sizeof *checking->names);
  if (!checking->names) {
    checking->failed = true;
    return;
  }
  add_name(checking, gd_survey_mark, NULL, COLUMN_MARK);
  for (int i = 0; i < schema->n_ignored; i++)
    add_name(checking, schema->ignored[i], NULL, COLUMN_IGNORED);
  for (int i = 0; i < schema->columns; i++) {
    const struct gd_survey_question *question = question_at(checking, i);
    const char *row = question->rows ? question->rows[i - question->first_column] : NULL;
    add_name(checking, question->id, row, i);
    add_name(checking, question->text, row, i);
  }
  qsort(checking->names, (size_t)checking->n_names, sizeof *checking->names, compare_names);
}

static int find_column(const struct checking *checking, const char *header) {
  char folded[GD_SURVEY_FOLD];
  int low = 0, high = checking->n_names;
  gd_survey_fold(folded, header);
  while (low < high) { /* the first that is not before it */
    int middle = low + (high - low) / 2;
    if (strcmp(checking->names[middle].folded, folded) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  bool known = low < checking->n_names && strcmp(checking->names[low].folded, folded) == 0;
  return known ? checking->names[low].meaning : COLUMN_UNKNOWN;
}

static void note_unknown_column(struct checking *checking, const char *header) {
  const struct gd_survey_schema *schema = &checking->survey->schema;
  char expected[EXPECTED_BYTES], folded[GD_SURVEY_FOLD];
  const char *nearest = NULL;
  int best = 4;            /* further off is a guess */
  if (is_full(checking)) { /* counted, and not shown: what was meant is not looked for */
    note_problem(checking, 1, header, header, "");
    return;
  }
  gd_survey_fold(folded, header);
  for (int i = 0; i < schema->n_questions; i++) {
    int distance = gd_edit_distance(folded, schema->questions[i].id);
    if (distance < best) {
      best = distance;
      nearest = schema->questions[i].id;
    }
  }
  if (nearest)
    snprintf(expected, sizeof expected, "a column of the survey; did you mean %s?", nearest);
  else
    snprintf(expected, sizeof expected,
             "a column of the survey: the id or the text of a question "
             "('gpudays survey --template' prints all)");
  note_problem(checking, 1, header, header, expected);
}

static void check_columns(struct checking *checking) {
  struct gd_survey *survey = checking->survey;
  const struct gd_csv *csv = &survey->csv;
  bool marked = false;
  for (int c = 0; c < csv->columns; c++) {
    int meaning = checking->meaning[c] = find_column(checking, csv->header[c]);
    if (meaning == COLUMN_UNKNOWN)
      note_unknown_column(checking, csv->header[c]);
    if ((meaning >= 0 && checking->place[meaning] >= 0) || (meaning == COLUMN_MARK && marked))
      note_problem(checking, 1, csv->header[c], csv->header[c],
                   "each question once; this column is there twice");
    else if (meaning >= 0)
      checking->place[meaning] = c;
    marked = marked || meaning == COLUMN_MARK;
  }
  for (int i = 0; i < survey->schema.columns; i++)
    if (question_at(checking, i)->required && checking->place[i] < 0)
      note_problem(checking, 1, question_at(checking, i)->id, "",
                   "this column: the question must be answered");
}

/* --- cells --------------------------------------------------------------------------------- */

/* An answer of the schema that this seems to be meant as; NULL: none. */
static const char *nearest_answer(const struct gd_survey_question *question, const char *text) {
  char typed[GD_SURVEY_FOLD];
  gd_survey_fold(typed, text);
  if (strlen(typed) < 4)
    return NULL;
  for (int i = 0; i < question->n_answers; i++) {
    const struct gd_survey_answer *answer = &question->answers[i];
    if (gd_edit_within(typed, answer->folded_text, 2) ||
        gd_edit_within(typed, answer->folded_label, 2) ||
        strncmp(typed, answer->folded_text, strlen(typed)) == 0)
      return answer->label;
  }
  return NULL;
}

/* What may be answered: all of it where the answers are few, else the nearest, else an example. */
static void say_expected(const struct gd_survey_question *question, const char *nearest, char *out,
                         size_t size) {
  if (question->kind == GD_SURVEY_SCALE) {
    snprintf(out, size, "a number from 1 to %d", question->n_answers);
    return;
  }
  size_t length = (size_t)snprintf(out, size, "one of: ");
  for (int i = 0; i < question->n_answers && length < size; i++)
    length += (size_t)snprintf(out + length, size - length, "%s%s", i ? "; " : "",
                               question->answers[i].label);
  if (length >= size)
    snprintf(out, size, "%s\"%s\" ('gpudays survey --questions' lists all %d answers)",
             nearest ? "" : "an answer such as ",
             nearest ? nearest : question->answers[question->n_answers - 1].label,
             question->n_answers);
}

/* "Other: robots" and "[Other] robots" are robots, "Other" is nothing more; *marked says so. */
static const char *strip_other(const char *text, bool *marked) {
  static const char *const words[] = {"[other]", "other:", "other"};
  char folded[GD_SURVEY_FOLD];
  gd_survey_fold(folded, text);
  *marked = true;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t length = strlen(words[i]);
    bool whole = folded[length > strlen(folded) ? 0 : length] == '\0';
    if (strncmp(folded, words[i], length) == 0 && (whole || i < 2))
      return text + length + strspn(text + length, " :");
  }
  *marked = false;
  return text;
}

/* Adds what was answered besides the schema's answers to the cell. */
static void add_other(struct checking *checking, const struct gd_survey_question *question,
                      const char *text, struct gd_survey_cell *cell) {
  char expected[EXPECTED_BYTES];
  bool marked = false;
  const char *rest = question->other ? strip_other(text, &marked) : text;
  const char *nearest = marked ? NULL : nearest_answer(question, text);
  if (nearest && question->other)
    snprintf(expected, sizeof expected, "\"%s\"; or, if something else is meant, \"Other: %.60s\"",
             nearest, text);
  else
    say_expected(question, nearest, expected, sizeof expected);
  if (nearest || !question->other) {
    note_cell(checking, text, expected);
    return;
  }
  cell->chosen |= 1u << question->n_answers;
  gd_strbuf_append(&checking->others, checking->others.length > 0 ? "; " : "");
  gd_strbuf_append(&checking->others, rest);
}

/* Copies the other answers of a cell when all of them were read, so that a cell with very many
   takes one copy and not one each. */
static void keep_others(struct checking *checking, struct gd_survey_cell *cell) {
  struct gd_strbuf *others = &checking->others;
  cell->text = others->failed ? NULL : gd_arena_copy_string(&checking->survey->arena, others->text);
  if (!cell->text)
    checking->failed = true;
  others->length = 0;
  if (others->text)
    others->text[0] = '\0';
}

static void read_choice(struct checking *checking, const struct gd_survey_question *question,
                        const char *text, struct gd_survey_cell *cell) {
  int answer = gd_survey_find_answer(question, text);
  cell->answered = true;
  if (answer >= 0)
    cell->chosen |= 1u << answer;
  else
    add_other(checking, question, text, cell);
}

/* Answers are joined by ; or, in a cell that has none, by commas, as forms do. */
static void read_choices(struct checking *checking, const struct gd_survey_question *question,
                         const char *text, struct gd_survey_cell *cell) {
  const char *separator = strchr(text, ';') ? ";" : ",";
  uint32_t alone = 0;
  while (*text) {
    size_t length = strcspn(text, separator), blanks = strspn(text, " \t\n");
    if (blanks < length) {
      char *part =
          gd_arena_printf(&checking->survey->arena, "%.*s", (int)(length - blanks), text + blanks);
      if (!part) {
        checking->failed = true;
        return;
      }
      read_choice(checking, question, part, cell);
    }
    text += length + (text[length] != '\0');
  }
  if (!cell->answered)
    note_cell(checking, separator, "answers between the separators, or an empty cell");
  for (int i = 0; i < question->n_answers; i++)
    if (question->answers[i].alone)
      alone |= 1u << i;
  uint32_t which = cell->chosen & alone;
  if (which && (cell->chosen & (cell->chosen - 1))) {
    char expected[EXPECTED_BYTES];
    int i = 0;
    while (!(which & 1u << i))
      i++;
    snprintf(expected, sizeof expected, "\"%s\" alone, or the other answers without it",
             question->answers[i].label);
    note_cell(checking, gd_csv_cell(&checking->survey->csv, checking->row, checking->column),
              expected);
  }
}

static void read_number(struct checking *checking, const struct gd_survey_question *question,
                        const char *text, struct gd_survey_cell *cell) {
  char expected[EXPECTED_BYTES];
  if (gd_csv_number(&checking->survey->csv, checking->row, checking->column, question->low,
                    question->high, &cell->number, NULL) != GD_OK) {
    snprintf(expected, sizeof expected, "a plain number from %g to %g, without unit or separators",
             question->low, question->high);
    note_cell(checking, text, expected);
    return;
  }
  int bin = 0;
  while (bin + 1 < question->n_answers && cell->number >= question->answers[bin + 1].from)
    bin++;
  cell->chosen = 1u << bin;
  cell->answered = true;
}

static void read_cell(struct checking *checking, const struct gd_survey_question *question,
                      struct gd_survey_cell *cell) {
  const char *text = gd_csv_cell(&checking->survey->csv, checking->row, checking->column);
  text += strspn(text, " \t\r\n");
  if (*text == '\0') {
    if (question->required)
      note_cell(checking, "", "an answer: the question must be answered");
    return;
  }
  switch (question->kind) {
  case GD_SURVEY_SINGLE:
  case GD_SURVEY_SCALE:
  case GD_SURVEY_GRID: read_choice(checking, question, text, cell); break;
  case GD_SURVEY_MULTIPLE: read_choices(checking, question, text, cell); break;
  case GD_SURVEY_NUMBER: read_number(checking, question, text, cell); break;
  case GD_SURVEY_TEXT:
    cell->text = text;
    cell->answered = true;
    break;
  case GD_SURVEY_KIND_COUNT: break;
  }
  if (cell->chosen >> question->n_answers & 1u)
    keep_others(checking, cell);
}

/* The marks of synthetic rows. */
static void read_mark(struct checking *checking) {
  char folded[GD_SURVEY_FOLD];
  const char *text = gd_csv_cell(&checking->survey->csv, checking->row, checking->column);
  gd_survey_fold(folded, text);
  if (strcmp(folded, gd_survey_marked) == 0)
    checking->survey->synthetic++;
  else if (folded[0] && strcmp(folded, "no") != 0)
    note_cell(checking, text, "yes for a synthetic answer, no or nothing for a real one");
}

/* Spreadsheets leave rows of nothing but commas behind. */
static bool is_empty_row(const struct gd_csv *csv, int row) {
  for (int c = 0; c < csv->columns; c++)
    if (gd_csv_cell(csv, row, c)[0])
      return false;
  return true;
}

static void read_row(struct checking *checking, struct gd_survey_cell *cells) {
  const struct gd_csv *csv = &checking->survey->csv;
  for (int c = 0; c < csv->columns; c++) {
    int meaning = checking->meaning[c];
    checking->column = c;
    if (meaning == COLUMN_MARK)
      read_mark(checking);
    else if (meaning >= 0 && checking->place[meaning] == c)
      read_cell(checking, question_at(checking, meaning), &cells[meaning]);
  }
}

/* --- the file ------------------------------------------------------------------------------ */

static enum gd_status fail_memory(const struct gd_survey *survey, struct gd_error *err) {
  return gd_nomem(err, "while reading %s", survey->csv.file);
}

static bool prepare(struct checking *checking) {
  struct gd_survey *survey = checking->survey;
  const struct gd_survey_schema *schema = &survey->schema;
  struct gd_arena *arena = &survey->arena;
  size_t columns = (size_t)schema->columns;
  checking->owner = gd_arena_alloc(arena, columns, sizeof *checking->owner);
  checking->place = gd_arena_alloc(arena, columns, sizeof *checking->place);
  checking->meaning = gd_arena_alloc(arena, (size_t)survey->csv.columns, sizeof *checking->meaning);
  survey->problems = gd_arena_alloc(arena, GD_SURVEY_PROBLEMS, sizeof *survey->problems);
  survey->cells =
      gd_arena_alloc(arena, (size_t)survey->csv.rows * columns + 1, sizeof *survey->cells);
  if (!checking->owner || !checking->place || !checking->meaning || !survey->problems ||
      !survey->cells)
    return false;
  for (int i = 0; i < schema->n_questions; i++)
    for (int row = 0; row < schema->questions[i].n_rows; row++) {
      int column = schema->questions[i].first_column + row;
      checking->owner[column] = i;
      checking->place[column] = -1;
    }
  return true;
}

/* The first problem, and how many more. */
static enum gd_status report(const struct gd_survey *survey, struct gd_error *err) {
  const struct gd_survey_problem *first = &survey->problems[0];
  char more[64] = "";
  if (survey->all_problems > 1)
    snprintf(more, sizeof more, " (and %d more problem%s)", survey->all_problems - 1,
             survey->all_problems == 2 ? "" : "s");
  return gd_fail(err, GD_BAD_INPUT, "%s, line %d, column \"%s\": \"%s\"; expected %s%s",
                 survey->csv.file, first->line, first->column, first->found, first->expected, more);
}

static void set_warning(struct gd_survey *survey) {
  if (survey->synthetic > 0 && survey->synthetic == survey->respondents)
    snprintf(survey->warning, sizeof survey->warning, "synthetic answers, not a survey of people");
  else if (survey->synthetic > 0)
    snprintf(survey->warning, sizeof survey->warning,
             "%d of %d answers are synthetic, not of people", survey->synthetic,
             survey->respondents);
}

static bool none_available(const struct gd_survey_question *question,
                           const struct gd_survey_cell *cells) {
  int at = gd_survey_find_answer(question, "None available");
  return at >= 0 && (cells[question->first_column].chosen >> at & 1u);
}

/* Who has no GPU of a class cannot use one for any time, whatever the grid says: the authors of
   the paper count so (scripts/plotting/survey.py). Kinds, memory and time of a class follow each
   other in the schema. */
static void drop_times(const struct gd_survey *survey, struct gd_survey_cell *cells) {
  const struct gd_survey_schema *schema = &survey->schema;
  for (int i = 0; i + 2 < schema->n_questions; i++) {
    const struct gd_survey_question *kinds = &schema->questions[i], *time = kinds + 2;
    int at = time->kind == GD_SURVEY_GRID ? gd_survey_find_answer(time, "N/A") : -1;
    if (!kinds->class_name || at < 0 ||
        (!none_available(kinds, cells) && !none_available(kinds + 1, cells)))
      continue;
    for (int row = 0; row < time->n_rows; row++)
      if (cells[time->first_column + row].answered)
        cells[time->first_column + row].chosen = 1u << at;
  }
}

static enum gd_status check(struct gd_survey *survey, struct gd_error *err) {
  struct checking checking = {.survey = survey};
  if (survey->csv.rows > MOST_ROWS)
    return gd_fail(err, GD_BAD_INPUT, "%s has %d rows; at most %d answers are read",
                   survey->csv.file, survey->csv.rows, MOST_ROWS);
  if (!prepare(&checking))
    return fail_memory(survey, err);
  list_names(&checking);
  check_columns(&checking);
  for (int row = 0; row < survey->csv.rows && !checking.failed; row++) {
    if (is_empty_row(&survey->csv, row))
      continue;
    struct gd_survey_cell *cells =
        survey->cells + (ptrdiff_t)survey->respondents++ * survey->schema.columns;
    checking.row = row;
    read_row(&checking, cells);
    drop_times(survey, cells);
  }
  gd_strbuf_deinit(&checking.others);
  if (checking.failed)
    return fail_memory(survey, err);
  set_warning(survey);
  if (survey->all_problems > 0)
    return report(survey, err);
  if (survey->respondents == 0)
    return gd_fail(err, GD_BAD_INPUT, "%s has a header and no answers; expected a row a respondent",
                   survey->csv.file);
  return GD_OK;
}

enum gd_status gd_survey_load(struct gd_survey *survey, const char *path, struct gd_error *err) {
  *survey = (struct gd_survey){0};
  GD_TRY(gd_survey_schema_load(&survey->schema, err));
  GD_TRY(gd_csv_load(&survey->csv, path, err));
  GD_TRY(gd_survey_name_columns(survey, err));
  return check(survey, err);
}

enum gd_status gd_survey_parse(struct gd_survey *survey, const char *label, const char *text,
                               int64_t length, struct gd_error *err) {
  *survey = (struct gd_survey){0};
  GD_TRY(gd_survey_schema_load(&survey->schema, err));
  GD_TRY(gd_csv_parse(&survey->csv, label, text, length, err));
  GD_TRY(gd_survey_name_columns(survey, err));
  return check(survey, err);
}

void gd_survey_deinit(struct gd_survey *survey) {
  gd_csv_deinit(&survey->csv);
  gd_survey_schema_deinit(&survey->schema);
  gd_arena_deinit(&survey->arena);
  *survey = (struct gd_survey){0};
}

const char *gd_survey_warning(const struct gd_survey *survey) {
  return survey->warning[0] ? survey->warning : NULL;
}
