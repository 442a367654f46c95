/*
 * The compute survey of the paper's Appendix A: its questions as a schema (data/survey), a CSV file
 * of answers read and checked against them, counted, and made into the figures 1 and 8. Answers may
 * be synthetic, for tests and demonstration; a file that holds such is never shown without saying
 * so. What the paper states of its own respondents is shown next to it, and never mixed in.
 *
 *   struct gd_survey survey = {0};
 *   const struct gd_survey_table *tables;
 *   int count;
 *   enum gd_status status = gd_survey_load(&survey, "answers.csv", err);
 *   if (status == GD_OK)
 *     status = gd_survey_tabulate(&survey, &tables, &count, err);
 *   gd_survey_deinit(&survey); // also after a failure: the problems found are in it until then
 */
#ifndef GD_SURVEY_SURVEY_H
#define GD_SURVEY_SURVEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/csv.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "plot/plot.h"

/* --- questions ----------------------------------------------------------------------------- */

enum gd_survey_kind {
  GD_SURVEY_SINGLE,   /* one of the answers */
  GD_SURVEY_MULTIPLE, /* any of them, joined by ; or , in a cell */
  GD_SURVEY_SCALE,    /* 1 .. n_answers, each of which has a meaning */
  GD_SURVEY_NUMBER,   /* counted in bins */
  GD_SURVEY_TEXT,     /* anything; only counted */
  GD_SURVEY_GRID,     /* one of the answers in each row; a column a row */
  GD_SURVEY_KIND_COUNT
};

enum { GD_SURVEY_ANSWERS = 31 }; /* at most; the bit behind the last is "something else" */

struct gd_survey_answer {
  const char *text;  /* in full: "Ampere (RTX 3000 series)", of a number its bin: "100 to 499" */
  const char *label; /* short, and taken as an answer too: "Ampere"; of a scale "3" */
  bool alone;        /* contradicts every other answer: "None available" */
  double from;       /* of a bin: its least value */
  const char *folded_text, *folded_label; /* for comparing: survey_int.h */
};

struct gd_survey_question {
  const char *id; /* "q9_desktop_time": the column's name */
  const char
      *short_name;   /* "desktop": the paper's own file has desktop_1, desktop_2, ...; or NULL */
  const char *title; /* of table and figure */
  const char *text;  /* as it is asked */
  const char *note;  /* what stands under it; NULL: nothing */
  enum gd_survey_kind kind;
  bool required;
  bool other;             /* something else may be answered */
  const char *class_name; /* "Desktop": asks which GPUs of that class there are; else NULL */
  const char *figure;     /* the figure's name, "figure-8-uses"; NULL: none */
  const struct gd_survey_answer *answers;
  const char *const *rows; /* of a grid */
  int n_answers;
  int n_rows;       /* 1 where it is no grid */
  int first_column; /* of gd_survey.cells, and of a file made by gd_survey_template */
  double low, high; /* of a number */
};

/* A share of the respondents that the paper states: who gave one of these answers. */
struct gd_survey_statement {
  const char *id; /* in data/paper/statements.csv */
  int question;
  uint32_t answers; /* a bit each */
};

struct gd_survey_schema {
  struct gd_arena arena;
  const char *title, *source, *date;
  const char *const *ignored; /* columns that forms add: "Timestamp" */
  struct gd_survey_question *questions;
  struct gd_survey_statement *statements;
  int n_ignored, n_questions, n_statements;
  int columns; /* all questions' rows */
};

/* The questions of data/survey/questions.json, which is in the program. */
enum gd_status gd_survey_schema_load(struct gd_survey_schema *schema,
                                     struct gd_error *err) GD_MUST_USE;
void gd_survey_schema_deinit(struct gd_survey_schema *schema); /* safe on a zeroed one */
const char *gd_survey_kind_name(enum gd_survey_kind kind);     /* "single" */
/* The first line of a file of answers; with the column that marks synthetic ones or without. */
enum gd_status gd_survey_template(struct gd_survey_schema *schema, bool synthetic,
                                  struct gd_strbuf *out, struct gd_error *err) GD_MUST_USE;
/* A file of invented answers, each row marked as such; the same for the same seed. */
enum gd_status gd_survey_synthetic(struct gd_survey_schema *schema, int respondents, uint64_t seed,
                                   struct gd_strbuf *out, struct gd_error *err) GD_MUST_USE;

/* --- answers ------------------------------------------------------------------------------- */

/* What one respondent answered to a question, or to a row of a grid. */
struct gd_survey_cell {
  bool answered;
  uint32_t chosen;  /* a bit an answer (a number's bin); bit n_answers: something else */
  double number;    /* of a number */
  const char *text; /* of a text, and of something else */
};

/* One thing that is wrong with a file; texts are fit for a message. */
struct gd_survey_problem {
  int line;
  const char *column, *found, *expected;
};
enum { GD_SURVEY_PROBLEMS = 100 }; /* that are kept */

struct gd_survey {
  struct gd_arena arena;
  struct gd_survey_schema schema;
  struct gd_csv csv;
  int respondents;
  int synthetic;                /* of them, marked as synthetic */
  struct gd_survey_cell *cells; /* respondents x schema.columns */
  struct gd_survey_problem *problems;
  int n_problems;   /* kept, in the order of the file */
  int all_problems; /* found */
  char warning[96]; /* see gd_survey_warning */
};

/*
 * GD_BAD_INPUT where the file is no CSV or its answers are none of the schema's: err names the
 * first problem and how many there are, survey->problems has all. Columns may stand in any order;
 * each is named by the question's id or text. Rows without any answer are skipped.
 */
enum gd_status gd_survey_load(struct gd_survey *survey, const char *path,
                              struct gd_error *err) GD_MUST_USE;
enum gd_status gd_survey_parse(struct gd_survey *survey, const char *label, const char *text,
                               int64_t length, struct gd_error *err) GD_MUST_USE;
/* "synthetic answers, not a survey of people", to be shown with whatever is made of them; NULL
   where none is synthetic. */
const char *gd_survey_warning(const struct gd_survey *survey);
void gd_survey_deinit(struct gd_survey *survey); /* safe on a zeroed one, and after a failure */

/* --- counts -------------------------------------------------------------------------------- */

/* How many gave an answer, of the `answered` of its table; the interval is Wilson's, 95 %. */
struct gd_survey_count {
  const struct gd_survey_answer *answer;
  int count;
  double share, low, high; /* 0 to 1; NaN where nobody answered */
};

/* A question, or a row of a grid. Answers of a multiple choice sum to more than those who gave
   them. */
struct gd_survey_table {
  const struct gd_survey_question *question;
  const char *row; /* of a grid: "4 GPUs"; else NULL */
  int answered;
  struct gd_survey_count *counts; /* all answers in their order, then something else */
  int n_counts;
  const char **others; /* what that was, as it stands in the file, each once */
  int n_others;
  int distinct;               /* of a text: how many different ones */
  double least, median, most; /* of a number; NaN without one */
};

/* In the order of the schema; all of it lives in the survey's arena. */
enum gd_status gd_survey_tabulate(struct gd_survey *survey, const struct gd_survey_table **tables,
                                  int *count, struct gd_error *err) GD_MUST_USE;

/* Who can use GPUs of a class at all. */
struct gd_survey_access {
  const struct gd_survey_question *question; /* its class_name says which */
  int answered, have, none, unsure;
};
enum gd_status gd_survey_count_access(struct gd_survey *survey,
                                      const struct gd_survey_access **access, int *count,
                                      struct gd_error *err) GD_MUST_USE;

/* A share that the paper states, and the same share here. */
struct gd_survey_comparison {
  const struct gd_survey_question *question;
  const char *id, *text, *where; /* of the statement: "Sec. 2, Figure 8" */
  double paper_percent;
  struct gd_survey_count here; /* its answer is NULL */
  int answered;
};
/* Those of the paper's statements (data/paper/statements.csv) that the schema knows, and the
   paper's own number of respondents. */
enum gd_status gd_survey_compare(struct gd_survey *survey,
                                 const struct gd_survey_comparison **compared, int *count,
                                 int *paper_respondents, struct gd_error *err) GD_MUST_USE;

/* --- figures ------------------------------------------------------------------------------- */

struct gd_survey_figure {
  const char *name; /* "figure-1", "figure-8-uses": of the file */
  struct gd_plot plot;
};
/* Figure 1 and the parts of Figure 8, in the survey's arena. Titles and notes say how many
   answered, and that answers are synthetic where they are. */
enum gd_status gd_survey_plots(struct gd_survey *survey, const struct gd_survey_figure **figures,
                               int *count, struct gd_error *err) GD_MUST_USE;

/* --- all of it ------------------------------------------------------------------------------ */

/* What is made of a file of answers; all of it lives in the survey's arena. */
struct gd_survey_findings {
  const struct gd_survey_table *tables;
  const struct gd_survey_access *access;
  const struct gd_survey_comparison *compared;
  const struct gd_survey_figure *figures;
  int n_tables, n_access, n_compared, n_figures;
  int paper_respondents;
};
enum gd_status gd_survey_find(struct gd_survey *survey, struct gd_survey_findings *found,
                              struct gd_error *err) GD_MUST_USE;
/* Draws all figures into a folder, which is made if it is not there. */
enum gd_status gd_survey_draw(const struct gd_survey_findings *found, const char *folder,
                              struct gd_error *err) GD_MUST_USE;

#endif
