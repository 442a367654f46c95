/*
 * The questions, out of data/survey/questions.json inside the program. The file is ours, so what is
 * wrong in it is still said by field, for those who change it.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embedded.h"
#include "base/json.h"
#include "survey/survey_int.h"

const char gd_survey_mark[] = "synthetic", gd_survey_marked[] = "yes";

static const char *const kind_names[GD_SURVEY_KIND_COUNT] = {
    [GD_SURVEY_SINGLE] = "single", [GD_SURVEY_MULTIPLE] = "multiple", [GD_SURVEY_SCALE] = "scale",
    [GD_SURVEY_NUMBER] = "number", [GD_SURVEY_TEXT] = "text",         [GD_SURVEY_GRID] = "grid"};

const char *gd_survey_kind_name(enum gd_survey_kind kind) {
  GD_ASSERT((unsigned)kind < GD_SURVEY_KIND_COUNT);
  return kind_names[kind];
}

/* --- comparing texts ----------------------------------------------------------------------- */

/* One character as a plain one: its bytes in *length. Spreadsheets put in the others by themselves.
 */
static char plain_character(const char *text, size_t *length) {
  static const struct {
    const char *bytes;
    char plain;
  } table[] = {{"\xe2\x80\x98", '\''}, {"\xe2\x80\x99", '\''}, {"\xe2\x80\x93", '-'},
               {"\xe2\x80\x94", '-'},  {"\xe2\x80\x91", '-'},  {"\xc2\xa0", ' '}};
  *length = 1;
  if ((unsigned char)*text < 0x80)
    return isspace((unsigned char)*text) ? ' ' : (char)tolower((unsigned char)*text);
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strncmp(text, table[i].bytes, strlen(table[i].bytes)) == 0) {
      *length = strlen(table[i].bytes);
      return table[i].plain;
    }
  return *text;
}

const char *gd_survey_fold(char out[GD_SURVEY_FOLD], const char *text) {
  size_t used = 0, length;
  for (; *text && used + 1 < GD_SURVEY_FOLD; text += length) {
    char c = plain_character(text, &length);
    if (c == '\'') /* "Masters Student" is the same */
      continue;
    if (c != ' ' || (used > 0 && out[used - 1] != ' '))
      out[used++] = c;
  }
  while (used > 0 && out[used - 1] == ' ')
    used--;
  out[used] = '\0';
  return out;
}

int gd_survey_find_answer(const struct gd_survey_question *question, const char *text) {
  char typed[GD_SURVEY_FOLD];
  gd_survey_fold(typed, text);
  for (int i = 0; i < question->n_answers; i++)
    if (strcmp(typed, question->answers[i].folded_text) == 0 ||
        strcmp(typed, question->answers[i].folded_label) == 0)
      return i;
  return -1;
}

/* --- the file ------------------------------------------------------------------------------ */

struct loading {
  struct gd_survey_schema *schema;
  struct gd_json json;
  struct gd_error *err;
};

static enum gd_status fail_memory(struct gd_error *err) {
  return gd_nomem(err, "while reading the survey's questions");
}

static enum gd_status copy_string(struct loading *loading, const json_t *object, const char *key,
                                  bool optional, const char **out) {
  const char *text;
  *out = NULL;
  if (optional && !gd_json_has(object, key))
    return GD_OK;
  GD_TRY(gd_json_string(&loading->json, object, key, &text, loading->err));
  *out = gd_arena_copy_string(&loading->schema->arena, text);
  return *out ? GD_OK : fail_memory(loading->err);
}

/* A list of texts; none where the key is not there. */
static enum gd_status copy_strings(struct loading *loading, const json_t *object, const char *key,
                                   const char *const **out, int *count) {
  const json_t *list = json_object_get(object, key), *item;
  size_t i, length = json_array_size(list);
  const char **texts = gd_arena_alloc(&loading->schema->arena, length + 1, sizeof *texts);
  if (!texts)
    return fail_memory(loading->err);
  *out = texts;
  *count = (int)length;
  if (list && !json_is_array(list))
    return gd_json_mismatch(&loading->json, object, key, "a list of texts", loading->err);
  json_array_foreach(list, i, item) {
    if (!json_is_string(item))
      return gd_json_mismatch(&loading->json, object, key, "a list of texts", loading->err);
    texts[i] = gd_arena_copy_string(&loading->schema->arena, json_string_value(item));
    if (!texts[i])
      return fail_memory(loading->err);
  }
  return GD_OK;
}

/* "Ampere" for "Ampere (RTX 3000 series)", where no other answer begins with it. */
static enum gd_status make_label(struct loading *loading, struct gd_survey_answer *answers,
                                 int count, int i) {
  const char *text = answers[i].text, *bracket = strstr(text, " (");
  size_t length = bracket ? (size_t)(bracket - text) : 0;
  answers[i].label = text;
  for (int j = 0; j < count; j++)
    if (j != i && length && strncmp(answers[j].text, text, length) == 0)
      length = 0;
  if (length)
    answers[i].label = gd_arena_printf(&loading->schema->arena, "%.*s", (int)length, text);
  return answers[i].label ? GD_OK : fail_memory(loading->err);
}

static enum gd_status read_bins(struct loading *loading, const json_t *object,
                                struct gd_survey_answer *answers, int *count) {
  const json_t *bins = json_object_get(object, "bins"), *bin;
  size_t i;
  *count = (int)json_array_size(bins);
  if (*count == 0 || *count > GD_SURVEY_ANSWERS)
    return gd_json_mismatch(&loading->json, object, "bins", "1 to 31 of {from, text}",
                            loading->err);
  json_array_foreach(bins, i, bin) {
    GD_TRY(gd_json_number(&loading->json, bin, "from", i ? answers[i - 1].from : -HUGE_VAL,
                          HUGE_VAL, &answers[i].from, loading->err));
    GD_TRY(copy_string(loading, bin, "text", false, &answers[i].text));
    answers[i].label = answers[i].text;
  }
  return GD_OK;
}

static enum gd_status read_choices(struct loading *loading, const json_t *object,
                                   const struct gd_survey_question *question,
                                   struct gd_survey_answer *answers, int *count) {
  const char *const *texts, *const *alone, *const *labels;
  int n_alone, n_labels;
  GD_TRY(copy_strings(loading, object, "answers", &texts, count));
  GD_TRY(copy_strings(loading, object, "alone", &alone, &n_alone));
  GD_TRY(copy_strings(loading, object, "labels", &labels, &n_labels));
  if (*count == 0 || *count > GD_SURVEY_ANSWERS)
    return gd_json_mismatch(&loading->json, object, "answers", "1 to 31 texts", loading->err);
  if (n_labels && n_labels != *count)
    return gd_json_mismatch(&loading->json, object, "labels", "as many as answers", loading->err);
  for (int i = 0; i < *count; i++) {
    if (question->kind == GD_SURVEY_MULTIPLE && strpbrk(texts[i], ",;"))
      return gd_json_mismatch(&loading->json, object, "answers", "texts without a comma in them",
                              loading->err);
    answers[i].text = texts[i];
    for (int j = 0; j < n_alone; j++)
      answers[i].alone = answers[i].alone || strcmp(alone[j], texts[i]) == 0;
  }
  for (int i = 0; i < *count; i++) {
    if (n_labels)
      answers[i].label = labels[i];
    else if (question->kind != GD_SURVEY_SCALE)
      GD_TRY(make_label(loading, answers, *count, i));
    else if (!(answers[i].label = gd_arena_printf(&loading->schema->arena, "%d", i + 1)))
      return fail_memory(loading->err);
  }
  return GD_OK;
}

static enum gd_status read_kind(struct loading *loading, const json_t *object,
                                struct gd_survey_question *question,
                                struct gd_survey_answer *answers) {
  if (question->kind == GD_SURVEY_TEXT)
    return GD_OK;
  if (question->kind == GD_SURVEY_GRID) {
    GD_TRY(copy_strings(loading, object, "rows", &question->rows, &question->n_rows));
    if (question->n_rows == 0)
      return gd_json_mismatch(&loading->json, object, "rows", "a list of texts", loading->err);
  }
  if (question->kind != GD_SURVEY_NUMBER)
    return read_choices(loading, object, question, answers, &question->n_answers);
  GD_TRY(gd_json_number(&loading->json, object, "low", -1e15, 1e15, &question->low, loading->err));
  GD_TRY(gd_json_number(&loading->json, object, "high", question->low, 1e15, &question->high,
                        loading->err));
  return read_bins(loading, object, answers, &question->n_answers);
}

static enum gd_status read_answers(struct loading *loading, const json_t *object,
                                   struct gd_survey_question *question) {
  struct gd_arena *arena = &loading->schema->arena;
  char folded[GD_SURVEY_FOLD];
  struct gd_survey_answer *answers = gd_arena_alloc(arena, GD_SURVEY_ANSWERS, sizeof *answers);
  if (!answers)
    return fail_memory(loading->err);
  question->answers = answers;
  question->n_rows = 1;
  GD_TRY(read_kind(loading, object, question, answers));
  for (int i = 0; i < question->n_answers; i++) {
    struct gd_survey_answer *answer = &answers[i];
    answer->folded_text = gd_arena_copy_string(arena, gd_survey_fold(folded, answer->text));
    answer->folded_label = gd_arena_copy_string(arena, gd_survey_fold(folded, answer->label));
    if (!answer->folded_text || !answer->folded_label)
      return fail_memory(loading->err);
  }
  return GD_OK;
}

static enum gd_status read_question(struct loading *loading, const json_t *object,
                                    struct gd_survey_question *question) {
  const char *kind;
  int found = GD_SURVEY_KIND_COUNT;
  GD_TRY(copy_string(loading, object, "id", false, &question->id));
  GD_TRY(copy_string(loading, object, "short", true, &question->short_name));
  GD_TRY(copy_string(loading, object, "title", false, &question->title));
  GD_TRY(copy_string(loading, object, "text", false, &question->text));
  GD_TRY(copy_string(loading, object, "note", true, &question->note));
  GD_TRY(copy_string(loading, object, "class", true, &question->class_name));
  GD_TRY(copy_string(loading, object, "figure", true, &question->figure));
  GD_TRY(gd_json_string(&loading->json, object, "kind", &kind, loading->err));
  GD_TRY(gd_json_bool(&loading->json, object, "required", &question->required, loading->err));
  if (gd_json_has(object, "other"))
    GD_TRY(gd_json_bool(&loading->json, object, "other", &question->other, loading->err));
  for (int i = 0; i < GD_SURVEY_KIND_COUNT; i++)
    if (strcmp(kind, kind_names[i]) == 0)
      found = i;
  if (found == GD_SURVEY_KIND_COUNT)
    return gd_json_mismatch(&loading->json, object, "kind",
                            "single, multiple, scale, number, text or grid", loading->err);
  question->kind = (enum gd_survey_kind)found;
  GD_TRY(read_answers(loading, object, question));
  question->first_column = loading->schema->columns;
  loading->schema->columns += question->n_rows;
  return GD_OK;
}

static enum gd_status read_statement(struct loading *loading, const json_t *object,
                                     struct gd_survey_statement *statement) {
  const struct gd_survey_schema *schema = loading->schema;
  const char *id, *const *answers;
  int count, answer;
  GD_TRY(copy_string(loading, object, "id", false, &statement->id));
  GD_TRY(gd_json_string(&loading->json, object, "question", &id, loading->err));
  statement->question = -1;
  for (int i = 0; i < schema->n_questions; i++)
    if (strcmp(schema->questions[i].id, id) == 0)
      statement->question = i;
  if (statement->question < 0)
    return gd_json_mismatch(&loading->json, object, "question", "a question's id", loading->err);
  GD_TRY(copy_strings(loading, object, "answers", &answers, &count));
  for (int i = 0; i < count; i++) {
    answer = gd_survey_find_answer(&schema->questions[statement->question], answers[i]);
    if (answer < 0)
      return gd_json_mismatch(&loading->json, object, "answers", "answers of the question",
                              loading->err);
    statement->answers |= 1u << answer;
  }
  return GD_OK;
}

static enum gd_status read_schema(struct loading *loading) {
  struct gd_survey_schema *schema = loading->schema;
  const json_t *root = loading->json.root;
  const json_t *questions = json_object_get(root, "questions"), *object;
  const json_t *statements = json_object_get(root, "statements");
  size_t i;
  GD_TRY(copy_string(loading, root, "title", false, &schema->title));
  GD_TRY(copy_string(loading, root, "source", false, &schema->source));
  GD_TRY(copy_string(loading, root, "date", false, &schema->date));
  GD_TRY(copy_strings(loading, root, "ignored", &schema->ignored, &schema->n_ignored));
  schema->questions =
      gd_arena_alloc(&schema->arena, json_array_size(questions) + 1, sizeof *schema->questions);
  schema->statements =
      gd_arena_alloc(&schema->arena, json_array_size(statements) + 1, sizeof *schema->statements);
  if (!schema->questions || !schema->statements)
    return fail_memory(loading->err);
  json_array_foreach(questions, i, object)
      GD_TRY(read_question(loading, object, &schema->questions[schema->n_questions++]));
  json_array_foreach(statements, i, object)
      GD_TRY(read_statement(loading, object, &schema->statements[schema->n_statements++]));
  return GD_OK;
}

enum gd_status gd_survey_schema_load(struct gd_survey_schema *schema, struct gd_error *err) {
  static const char path[] = "survey/questions.json";
  struct loading loading = {.schema = schema, .err = err};
  *schema = (struct gd_survey_schema){0};
  const struct gd_embedded_file *file = gd_embedded_find(path);
  if (!file)
    return gd_fail(err, GD_INTERNAL, "data/%s is not in the program; build it again", path);
  enum gd_status status = gd_json_parse(&loading.json, path, file->text, file->length, err);
  if (status == GD_OK)
    status = read_schema(&loading);
  gd_json_deinit(&loading.json);
  if (status != GD_OK)
    gd_survey_schema_deinit(schema);
  return status;
}

void gd_survey_schema_deinit(struct gd_survey_schema *schema) {
  gd_arena_deinit(&schema->arena);
  *schema = (struct gd_survey_schema){0};
}

/* The name of a question's column: "q9_desktop_time [2 GPUs]". In the schema's arena; NULL: none
   left. */
static const char *column_name(struct gd_survey_schema *schema, int question, int row) {
  const struct gd_survey_question *q = &schema->questions[question];
  GD_ASSERT(row >= 0 && row < q->n_rows);
  return q->rows ? gd_arena_printf(&schema->arena, "%s [%s]", q->id, q->rows[row]) : q->id;
}

enum gd_status gd_survey_template(struct gd_survey_schema *schema, bool synthetic,
                                  struct gd_strbuf *out, struct gd_error *err) {
  const char *comma = "";
  if (synthetic) {
    gd_strbuf_append(out, gd_survey_mark);
    comma = ",";
  }
  for (int i = 0; i < schema->n_questions; i++)
    for (int row = 0; row < schema->questions[i].n_rows; row++) {
      const char *name = column_name(schema, i, row);
      if (!name)
        return fail_memory(err);
      gd_strbuf_append(out, comma);
      gd_csv_append_cell(out, name);
      comma = ",";
    }
  gd_strbuf_append(out, "\n");
  return out->failed ? fail_memory(err) : GD_OK;
}

/* --- names of the paper's own file --------------------------------------------------------- */

/* Whether a column is "desktop_4", of the row "4 GPUs", or "role", of a question without rows. */
static bool is_short_name(const struct gd_survey_question *question, int row, const char *name) {
  size_t length = question->short_name ? strlen(question->short_name) : 0;
  if (length == 0 || strncmp(name, question->short_name, length) != 0)
    return false;
  if (!question->rows)
    return name[length] == '\0';
  char text[32];
  snprintf(text, sizeof text, "_%ld", strtol(question->rows[row], NULL, 10));
  return strcmp(name + length, text) == 0;
}

static enum gd_status name_column(struct gd_survey *survey, int column, struct gd_error *err) {
  for (int q = 0; q < survey->schema.n_questions; q++) {
    const struct gd_survey_question *question = &survey->schema.questions[q];
    for (int row = 0; row < question->n_rows; row++) {
      if (!is_short_name(question, row, survey->csv.header[column]))
        continue;
      const char *name = question->rows ? gd_arena_printf(&survey->arena, "%s [%s]", question->id,
                                                          question->rows[row])
                                        : question->id;
      if (!name)
        return fail_memory(err);
      survey->csv.header[column] = name;
      return GD_OK;
    }
  }
  return GD_OK;
}

enum gd_status gd_survey_name_columns(struct gd_survey *survey, struct gd_error *err) {
  for (int c = 0; c < survey->csv.columns; c++)
    if (survey->csv.header[c][0])
      GD_TRY(name_column(survey, c, err));
  return GD_OK;
}
