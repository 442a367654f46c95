/*
 * `gpudays survey`: a file of answers to the compute survey checked, counted and drawn; the
 * questions; an empty file to fill in; invented answers. What the answers mean is src/survey's.
 * Where some are synthetic, every table, line of CSV, JSON and figure says so.
 */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "plot/plot.h"
#include "survey/survey.h"

/* --- questions ----------------------------------------------------------------------------- */

static void set_texts(struct gd_show_object *to, const char *key, const char *const *texts,
                      int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++)
    if (json_array_append_new(list, json_string(texts[i])) != 0)
      to->failed = true;
  gd_show_set(to, key, list);
}

static void set_answers(struct gd_show_object *to, const struct gd_survey_question *question) {
  json_t *list = json_array();
  for (int i = 0; i < question->n_answers; i++)
    if (json_array_append_new(list, json_string(question->answers[i].text)) != 0)
      to->failed = true;
  gd_show_set(to, "answers", list);
}

static struct gd_show_object schema_rows(const struct gd_survey_schema *schema) {
  struct gd_show_object rows = {.object = json_array()};
  for (int i = 0; i < schema->n_questions; i++) {
    const struct gd_survey_question *question = &schema->questions[i];
    struct gd_show_object row;
    gd_show_begin(&row);
    gd_show_set_text(&row, "id", question->id);
    gd_show_set_text(&row, "title", question->title);
    gd_show_set_text(&row, "text", question->text);
    gd_show_set_text(&row, "kind", gd_survey_kind_name(question->kind));
    gd_show_set_bool(&row, "required", question->required);
    gd_show_set_bool(&row, "other", question->other);
    set_texts(&row, "rows", question->rows, question->rows ? question->n_rows : 0);
    set_answers(&row, question);
    gd_show_append(&rows, &row);
  }
  return rows;
}

/* A line an answer: lists have no place in a cell. */
static enum gd_status append_schema_csv(struct gd_cli *cli, const struct gd_survey_schema *schema,
                                        struct gd_error *err) {
  struct gd_show_object rows = {.object = json_array()};
  for (int i = 0; i < schema->n_questions; i++)
    for (int a = 0; a < schema->questions[i].n_answers || a == 0; a++) {
      const struct gd_survey_question *question = &schema->questions[i];
      struct gd_show_object row;
      gd_show_begin(&row);
      gd_show_set_text(&row, "id", question->id);
      gd_show_set_text(&row, "kind", gd_survey_kind_name(question->kind));
      gd_show_set_bool(&row, "required", question->required);
      gd_show_set_bool(&row, "other", question->other);
      gd_show_set_text(&row, "text", question->text);
      gd_show_set_text(&row, "answer", question->n_answers ? question->answers[a].text : "");
      gd_show_append(&rows, &row);
    }
  return gd_show_csv(&cli->out, &rows, err);
}

static void append_question(struct gd_cli *cli, const struct gd_survey_question *question) {
  char line[512];
  gd_strbuf_printf(&cli->out, "\n%s (%s%s)\n", question->id, gd_survey_kind_name(question->kind),
                   question->required ? ", required" : "");
  gd_show_paragraph(&cli->out, 2, question->text);
  if (question->note)
    gd_show_paragraph(&cli->out, 2, question->note);
  for (int i = 0; question->rows && i < question->n_rows; i++)
    gd_strbuf_printf(&cli->out, "    column: %s [%s]\n", question->id, question->rows[i]);
  if (question->kind == GD_SURVEY_NUMBER) {
    snprintf(line, sizeof line, "a number from %g to %g", question->low, question->high);
    gd_show_paragraph(&cli->out, 4, line);
    return;
  }
  for (int i = 0; i < question->n_answers; i++)
    if (question->kind == GD_SURVEY_SCALE)
      gd_strbuf_printf(&cli->out, "    %s  %s\n", question->answers[i].label,
                       question->answers[i].text);
    else
      gd_strbuf_printf(&cli->out, "    %s\n", question->answers[i].text);
  if (question->other)
    gd_strbuf_append(&cli->out, "    or something else: Other: TEXT\n");
}

static enum gd_status show_questions(struct gd_cli *cli, struct gd_survey_schema *schema,
                                     struct gd_error *err) {
  struct gd_show_object root, rows;
  if (cli->options.csv)
    return append_schema_csv(cli, schema, err);
  if (cli->options.json) {
    gd_show_begin(&root);
    gd_show_set_text(&root, "title", schema->title);
    gd_show_set_text(&root, "source", schema->source);
    gd_show_set_text(&root, "date", schema->date);
    rows = schema_rows(schema);
    gd_show_set_object(&root, "questions", &rows);
    return gd_show_json(&cli->out, &root, err);
  }
  gd_strbuf_printf(&cli->out, "%s: %d questions\n", schema->title, schema->n_questions);
  gd_show_paragraph(&cli->out, 0, schema->source);
  for (int i = 0; i < schema->n_questions; i++)
    append_question(cli, &schema->questions[i]);
  gd_strbuf_append(&cli->out, "\nA file of answers is a CSV with a column for each, in any order, "
                              "named by id or\n  by text ('gpudays survey --template'). Several "
                              "answers are joined by ;\n");
  return GD_OK;
}

/* --- files to fill in, or filled ----------------------------------------------------------- */

/* To stdout, to the file of -o, or as a value for programs. */
static enum gd_status deliver(struct gd_cli *cli, const struct gd_strbuf *text, int respondents,
                              struct gd_error *err) {
  const char *path = gd_cli_file(cli->options.output);
  struct gd_show_object root;
  if (path)
    GD_TRY(gd_file_write(path, text->text, text->length, err));
  if (cli->options.json) {
    gd_show_begin(&root);
    gd_show_set_bool(&root, "synthetic", respondents > 0);
    gd_show_set_int(&root, "respondents", respondents);
    gd_show_set_text(&root, "text", text->text);
    return gd_show_json(&cli->out, &root, err);
  }
  if (path && respondents > 0)
    gd_strbuf_printf(&cli->out, "wrote %s: %d synthetic answers, marked as such in each row\n",
                     path, respondents);
  else if (path)
    gd_strbuf_printf(&cli->out, "wrote %s: the columns of the survey\n", path);
  else
    gd_strbuf_append(&cli->out, text->text);
  return GD_OK;
}

static enum gd_status make_file(struct gd_cli *cli, struct gd_survey_schema *schema,
                                struct gd_error *err) {
  struct gd_strbuf text = {0};
  int respondents = (int)cli->options.synthetic;
  enum gd_status status =
      respondents > 0
          ? gd_survey_synthetic(schema, respondents, (uint64_t)cli->options.seed, &text, err)
          : gd_survey_template(schema, false, &text, err);
  if (status == GD_OK)
    status = deliver(cli, &text, respondents, err);
  gd_strbuf_deinit(&text);
  return status;
}

/* --- what is wrong with a file ------------------------------------------------------------- */

static enum gd_status append_problems(struct gd_cli *cli, const struct gd_survey *survey,
                                      struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"LINE", true, 0}, {"COLUMN", false, 0}, {"FOUND", false, 0}, {"EXPECTED", false, 0}};
  struct gd_show_object root, row, rows = {.object = json_array()};
  struct gd_show_rows table = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < survey->n_problems; i++) {
    const struct gd_survey_problem *problem = &survey->problems[i];
    gd_show_begin(&row);
    gd_show_set_int(&row, "line", problem->line);
    gd_show_set_text(&row, "column", problem->column);
    gd_show_set_text(&row, "found", problem->found);
    gd_show_set_text(&row, "expected", problem->expected);
    gd_show_append(&rows, &row);
    const char **cells = gd_show_row(&table);
    cells[0] = gd_show_cell(cli, "%d", problem->line);
    cells[1] = gd_show_cell(cli, "%s", problem->column);
    cells[2] = gd_show_cell(cli, "%s", problem->found);
    cells[3] = gd_show_cell(cli, "%s", problem->expected);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  if (cli->options.json) {
    gd_show_begin(&root);
    gd_show_set_int(&root, "all_problems", survey->all_problems);
    gd_show_set_object(&root, "problems", &rows);
    return gd_show_json(&cli->out, &root, err);
  }
  json_decref(rows.object);
  if (survey->all_problems == 1) /* the sentence says it */
    return GD_OK;
  GD_TRY(gd_show_rows(&table, 0, err));
  if (survey->all_problems > survey->n_problems)
    gd_strbuf_printf(&cli->out, "and %d more\n", survey->all_problems - survey->n_problems);
  return GD_OK;
}

/* --- counts, for people -------------------------------------------------------------------- */

/* "12 of 48", "25 %", "15 - 39": a share never stands without its number of answers. */
static void set_share(struct gd_cli *cli, const char **cells, const struct gd_survey_count *count,
                      int answered) {
  cells[0] = gd_show_cell(cli, "%d of %d", count->count, answered);
  if (answered == 0)
    return;
  cells[1] = gd_show_cell(cli, "%.0f %%", 100 * count->share);
  cells[2] = gd_show_cell(cli, "%.0f - %.0f", 100 * count->low, 100 * count->high);
}

static void append_title(struct gd_cli *cli, const struct gd_survey *survey, const char *title) {
  gd_strbuf_append(&cli->out, "\n");
  gd_show_bold(cli, title);
  if (survey->synthetic > 0)
    gd_strbuf_append(&cli->out, " (synthetic answers)");
  gd_strbuf_append(&cli->out, "\n");
}

static enum gd_status append_answers(struct gd_cli *cli, const struct gd_survey_table *table,
                                     struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"ANSWER", false, 0}, {"COUNT", true, 0}, {"SHARE", true, 0}, {"95 %", true, 0}};
  char clean[80];
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < table->n_counts; i++) {
    const struct gd_survey_answer *answer = table->counts[i].answer;
    bool scale = table->question->kind == GD_SURVEY_SCALE;
    const char **cells = gd_show_row(&rows);
    cells[0] = scale ? gd_show_cell(cli, "%s  %s", answer->label, answer->text) : answer->text;
    set_share(cli, cells + 1, &table->counts[i], table->answered);
  }
  GD_TRY(gd_show_rows(&rows, 2, err));
  for (int i = 0; i < table->n_others; i++)
    gd_strbuf_printf(&cli->out, "  else: %s\n",
                     gd_json_excerpt(clean, sizeof clean, table->others[i]));
  return GD_OK;
}

/* Rows of a grid down, its answers across. */
static enum gd_status append_grid(struct gd_cli *cli, const struct gd_survey_table *tables,
                                  struct gd_error *err) {
  const struct gd_survey_question *question = tables[0].question;
  int width = question->n_answers + 2;
  struct gd_show_column columns[GD_SURVEY_ANSWERS + 2] = {{"GPUS", false, 0}};
  struct gd_show_rows rows = {.cli = cli, .columns = columns, .n_columns = width};
  for (int i = 0; i < question->n_answers; i++)
    columns[i + 1] = (struct gd_show_column){question->answers[i].label, true, 0};
  columns[width - 1] = (struct gd_show_column){"n", true, 0};
  for (int row = 0; row < question->n_rows; row++) {
    const char **line = gd_show_row(&rows);
    line[0] = tables[row].row;
    for (int i = 0; i < question->n_answers; i++)
      line[i + 1] = gd_show_cell(cli, "%d", tables[row].counts[i].count);
    line[width - 1] = gd_show_cell(cli, "%d", tables[row].answered);
  }
  return gd_show_rows(&rows, 2, err);
}

/* Whole amounts as such, others with two decimals. */
static const char *show_amount(char text[GD_SHOW_TEXT], double value) {
  return gd_format_number(text, GD_SHOW_TEXT, value, value == floor(value) ? 0 : 2);
}

static enum gd_status append_table(struct gd_cli *cli, const struct gd_survey *survey,
                                   const struct gd_survey_table *table, struct gd_error *err) {
  const struct gd_survey_question *question = table->question;
  char title[256], low[GD_SHOW_TEXT], middle[GD_SHOW_TEXT], high[GD_SHOW_TEXT];
  snprintf(title, sizeof title, "%s: %s", question->id, question->title);
  append_title(cli, survey, title);
  if (question->kind == GD_SURVEY_GRID)
    return append_grid(cli, table, err);
  if (table->answered == 0) {
    gd_strbuf_append(&cli->out, "  nobody answered\n");
    return GD_OK;
  }
  if (question->kind == GD_SURVEY_TEXT) {
    gd_strbuf_printf(&cli->out, "  %d of %d answered, %d different\n", table->answered,
                     survey->respondents, table->distinct);
    return GD_OK;
  }
  GD_TRY(append_answers(cli, table, err));
  if (question->kind == GD_SURVEY_NUMBER)
    gd_strbuf_printf(&cli->out, "  least %s, median %s, most %s (n = %d)\n",
                     show_amount(low, table->least), show_amount(middle, table->median),
                     show_amount(high, table->most), table->answered);
  return GD_OK;
}

static enum gd_status append_access(struct gd_cli *cli, const struct gd_survey *survey,
                                    const struct gd_survey_access *access, int count,
                                    struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"CLASS", false, 0},
                                                  {"CAN USE SOME", true, 0},
                                                  {"NONE", true, 0},
                                                  {"NOT SURE", true, 0},
                                                  {"n", true, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  append_title(cli, survey, "Access to GPUs by class");
  for (int i = 0; i < count; i++) {
    const char **cells = gd_show_row(&rows);
    cells[0] = access[i].question->class_name;
    cells[1] = gd_show_cell(cli, "%d", access[i].have);
    cells[2] = gd_show_cell(cli, "%d", access[i].none);
    cells[3] = gd_show_cell(cli, "%d", access[i].unsure);
    cells[4] = gd_show_cell(cli, "%d", access[i].answered);
  }
  return gd_show_rows(&rows, 2, err);
}

static enum gd_status append_compared(struct gd_cli *cli, const struct gd_survey *survey,
                                      const struct gd_survey_comparison *compared, int count,
                                      int paper_respondents, struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"STATED BY THE PAPER", false, 0},
                                                  {"PAPER", true, 0},
                                                  {"HERE", true, 0},
                                                  {"SHARE", true, 0},
                                                  {"95 %", true, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  if (count == 0)
    return GD_OK;
  append_title(cli, survey, "Compared with what the paper states of its own respondents");
  for (int i = 0; i < count; i++) {
    const char **cells = gd_show_row(&rows);
    cells[0] = compared[i].text;
    cells[1] = gd_show_cell(cli, "%g %%", compared[i].paper_percent);
    set_share(cli, cells + 2, &compared[i].here, compared[i].answered);
  }
  GD_TRY(gd_show_rows(&rows, 2, err));
  gd_strbuf_printf(&cli->out, "  the paper's shares are of up to %d respondents (%s)\n",
                   paper_respondents, survey->schema.date);
  return GD_OK;
}

/* --- counts, for programs ------------------------------------------------------------------ */

static void set_count(struct gd_show_object *to, const struct gd_survey_count *count,
                      int answered) {
  gd_show_set_int(to, "count", count->count);
  gd_show_set_int(to, "n", answered);
  gd_show_set_real(to, "share", count->share);
  gd_show_set_real(to, "share_low", count->low);
  gd_show_set_real(to, "share_high", count->high);
}

static void append_counts(struct gd_show_object *rows, const struct gd_survey *survey,
                          const struct gd_survey_table *table, bool whole) {
  for (int i = 0; i < table->n_counts; i++) {
    struct gd_show_object row;
    gd_show_begin(&row);
    if (whole) {
      gd_show_set_bool(&row, "synthetic", survey->synthetic > 0);
      gd_show_set_text(&row, "id", table->question->id);
    }
    if (whole || table->row)
      gd_show_set_text(&row, "row", table->row ? table->row : "");
    gd_show_set_text(&row, "answer", table->counts[i].answer->text);
    set_count(&row, &table->counts[i], table->answered);
    gd_show_append(rows, &row);
  }
}

static enum gd_status append_csv(struct gd_cli *cli, const struct gd_survey *survey,
                                 const struct gd_survey_table *tables, int count,
                                 struct gd_error *err) {
  struct gd_show_object rows = {.object = json_array()};
  for (int i = 0; i < count; i++)
    append_counts(&rows, survey, &tables[i], true);
  return gd_show_csv(&cli->out, &rows, err);
}

/* All rows of a grid are one question. */
static void append_question_object(struct gd_show_object *list, const struct gd_survey *survey,
                                   const struct gd_survey_table *tables) {
  const struct gd_survey_question *question = tables[0].question;
  struct gd_show_object object, counts = {.object = json_array()};
  gd_show_begin(&object);
  gd_show_set_text(&object, "id", question->id);
  gd_show_set_text(&object, "title", question->title);
  gd_show_set_text(&object, "kind", gd_survey_kind_name(question->kind));
  if (question->kind != GD_SURVEY_GRID)
    gd_show_set_int(&object, "n", tables[0].answered);
  if (question->kind == GD_SURVEY_TEXT)
    gd_show_set_int(&object, "distinct", tables[0].distinct);
  if (question->kind == GD_SURVEY_NUMBER) {
    gd_show_set_real(&object, "least", tables[0].least);
    gd_show_set_real(&object, "median", tables[0].median);
    gd_show_set_real(&object, "most", tables[0].most);
  }
  for (int row = 0; row < question->n_rows; row++)
    append_counts(&counts, survey, &tables[row], false);
  gd_show_set_object(&object, "counts", &counts);
  if (question->other) {
    struct gd_show_object others = {.object = json_array()};
    for (int i = 0; i < tables[0].n_others; i++) {
      struct gd_show_object text;
      gd_show_begin(&text);
      gd_show_set_text(&text, "text", tables[0].others[i]);
      gd_show_append(&others, &text);
    }
    gd_show_set_object(&object, "others", &others);
  }
  gd_show_append(list, &object);
}

static void set_access(struct gd_show_object *root, const struct gd_survey_access *access,
                       int count) {
  struct gd_show_object list = {.object = json_array()};
  for (int i = 0; i < count; i++) {
    struct gd_show_object object;
    gd_show_begin(&object);
    gd_show_set_text(&object, "class", access[i].question->class_name);
    gd_show_set_int(&object, "have", access[i].have);
    gd_show_set_int(&object, "none", access[i].none);
    gd_show_set_int(&object, "unsure", access[i].unsure);
    gd_show_set_int(&object, "n", access[i].answered);
    gd_show_append(&list, &object);
  }
  gd_show_set_object(root, "access", &list);
}

static void set_compared(struct gd_show_object *root, const struct gd_survey_comparison *compared,
                         int count, int paper_respondents) {
  struct gd_show_object list = {.object = json_array()};
  for (int i = 0; i < count; i++) {
    struct gd_show_object object;
    gd_show_begin(&object);
    gd_show_set_text(&object, "id", compared[i].id);
    gd_show_set_text(&object, "text", compared[i].text);
    gd_show_set_text(&object, "where", compared[i].where);
    gd_show_set_real(&object, "paper_percent", compared[i].paper_percent);
    gd_show_set_int(&object, "paper_respondents", paper_respondents);
    set_count(&object, &compared[i].here, compared[i].answered);
    gd_show_append(&list, &object);
  }
  gd_show_set_object(root, "statements", &list);
}

/* --- all of it ----------------------------------------------------------------------------- */

static enum gd_status append_json(struct gd_cli *cli, const struct gd_survey *survey,
                                  const struct gd_survey_findings *found, struct gd_error *err) {
  struct gd_show_object root, list = {.object = json_array()};
  gd_show_begin(&root);
  gd_show_set_text(&root, "file", survey->csv.file);
  gd_show_set_bool(&root, "synthetic", survey->synthetic > 0);
  if (survey->synthetic > 0)
    gd_show_set_text(&root, "warning", gd_survey_warning(survey));
  else
    gd_show_set_null(&root, "warning");
  gd_show_set_int(&root, "respondents", survey->respondents);
  gd_show_set_int(&root, "synthetic_respondents", survey->synthetic);
  for (int i = 0; i < survey->schema.n_questions; i++)
    append_question_object(&list, survey, &found->tables[survey->schema.questions[i].first_column]);
  gd_show_set_object(&root, "questions", &list);
  set_access(&root, found->access, found->n_access);
  set_compared(&root, found->compared, found->n_compared, found->paper_respondents);
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status append_text(struct gd_cli *cli, const struct gd_survey *survey,
                                  const struct gd_survey_findings *found, struct gd_error *err) {
  const char *warning = gd_survey_warning(survey);
  gd_strbuf_printf(&cli->out, "%s: %d respondent%s\n", survey->csv.file, survey->respondents,
                   survey->respondents == 1 ? "" : "s");
  if (warning)
    gd_strbuf_printf(&cli->out, "SYNTHETIC: %s\n", warning);
  GD_TRY(append_access(cli, survey, found->access, found->n_access, err));
  for (int i = 0; i < survey->schema.n_questions; i++)
    GD_TRY(
        append_table(cli, survey, &found->tables[survey->schema.questions[i].first_column], err));
  return append_compared(cli, survey, found->compared, found->n_compared, found->paper_respondents,
                         err);
}

static enum gd_status write_figures(struct gd_cli *cli, const struct gd_survey_findings *found,
                                    struct gd_error *err) {
  GD_TRY(gd_survey_draw(found, cli->options.output, err));
  if (!gd_cli_for_programs(cli))
    gd_strbuf_printf(&cli->out, "\nwrote %d figures to %s\n", found->n_figures,
                     cli->options.output);
  return GD_OK;
}

static enum gd_status show_survey(struct gd_cli *cli, struct gd_survey *survey,
                                  struct gd_error *err) {
  struct gd_survey_findings found;
  GD_TRY(gd_survey_find(survey, &found, err));
  if (cli->options.csv)
    GD_TRY(append_csv(cli, survey, found.tables, found.n_tables, err));
  else if (cli->options.json)
    GD_TRY(append_json(cli, survey, &found, err));
  else
    GD_TRY(append_text(cli, survey, &found, err));
  return cli->options.output ? write_figures(cli, &found, err) : GD_OK;
}

static enum gd_status read_survey(struct gd_cli *cli, struct gd_error *err) {
  struct gd_survey survey;
  struct gd_error printing = {0};
  enum gd_status status = gd_survey_load(&survey, cli->arguments[0], err);
  if (status == GD_OK)
    status = show_survey(cli, &survey, err);
  else if (survey.all_problems > 0 && append_problems(cli, &survey, &printing) != GD_OK) {
    status = printing.status;
    *err = printing;
  }
  gd_survey_deinit(&survey);
  return status;
}

enum gd_status gd_cmd_survey(struct gd_cli *cli, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  struct gd_survey_schema schema;
  int asked = cli->n_arguments + options->questions + options->template + (options->synthetic > 0);
  cli->verbatim = options->template;
  if (asked != 1)
    return gd_fail(
        err, GD_BAD_INPUT,
        "survey takes one of: a file of answers, --questions, --template, --synthetic N");
  if (options->seed && !options->synthetic)
    return gd_fail(err, GD_BAD_INPUT, "--seed needs --synthetic, which invents answers");
  if (options->output && options->questions)
    return gd_fail(err, GD_BAD_INPUT,
                   "--output is a folder for figures, or a file for --template and --synthetic");
  if (cli->n_arguments > 0 && options->output && !gd_cli_file(options->output))
    return gd_fail(err, GD_BAD_INPUT, "figures need a folder: -o DIR (a folder named - is ./-)");
  if (cli->n_arguments > 0)
    return read_survey(cli, err);
  GD_TRY(gd_survey_schema_load(&schema, err));
  enum gd_status status =
      options->questions ? show_questions(cli, &schema, err) : make_file(cli, &schema, err);
  gd_survey_schema_deinit(&schema);
  return status;
}
