/*
 * How things look: numbers with sensible units for people, wrapped lines, aligned tables
 * (libsmartcols), and JSON and CSV for programs. CSV is made from the same JSON objects, so both
 * have the same names. Only src/cli uses this; nothing here knows what a trial is.
 */
#ifndef GD_CLI_SHOW_H
#define GD_CLI_SHOW_H

#include <jansson.h>

#include "base/status.h"
#include "base/strbuf.h"

struct gd_cli;

enum { GD_SHOW_TEXT = 48 }; /* bytes that hold any number formatted here */

/* "28.9 ms", "7.43 s", "12.3 min", "5.20 h", "12.3 days". */
const char *gd_show_seconds(char *text, size_t size, double seconds);
/* "2.9e20". */
const char *gd_show_power(char *text, size_t size, double value);
/* "465 GFLOP/s". */
const char *gd_show_rate(char *text, size_t size, double flops_per_s);

/*
 * How long a run takes: one unit for the value and its interval, with as many decimals as the
 * interval deserves, and the years where there are many days.
 */
struct gd_show_duration {
  char value[3 * GD_SHOW_TEXT];    /* "1,240 days (3.4 years)" */
  char interval[3 * GD_SHOW_TEXT]; /* "1,231 - 1,249" in the same unit */
};
void gd_show_duration(struct gd_show_duration *shown, double days, double low_days,
                      double high_days);

/*
 * How wide what follows may be: the columns of the terminal, 0: nobody says (tables are shown
 * whole, paragraphs have 80 columns). wide: --wide, all columns of tables.
 */
void gd_show_set_columns(int columns, bool wide);
int gd_show_columns(void);
bool gd_show_is_wide(void);
/* Columns that a text takes on the terminal. */
int gd_show_width(const char *text);

/*
 * What was appended, with lines that are longer than the terminal is wide broken at blanks. They go
 * on below what they say: behind the name where a line has a name and two blanks, else indented two
 * deeper. A command to type goes on behind a backslash. Nothing changes where no width is known,
 * nor with --wide.
 */
void gd_show_fold(struct gd_strbuf *out);

/* The words of a text and a newline, from that column on; lines after the first begin at `hang`. */
void gd_show_wrap(struct gd_strbuf *out, int column, int hang, int columns, const char *text);
/* Text wrapped at the terminal's width, at most 100 columns; lines after the first are indented two
 * deeper than `indent`. */
void gd_show_paragraph(struct gd_strbuf *out, int indent, const char *text);
/* The same from a buffer, which is freed; nothing where it is empty. */
void gd_show_buffer(struct gd_strbuf *out, int indent, struct gd_strbuf *line);
/* The same text, bold on a terminal. */
void gd_show_bold(struct gd_cli *cli, const char *text);

struct gd_show_column {
  const char *title;
  bool right;   /* numbers */
  int priority; /* 0: always shown; the largest is the first to go where the terminal is narrow */
};
/* A cell's text, in the arena of cli. Without memory it is NULL and cli->out has failed. */
const char *gd_show_cell(struct gd_cli *cli, const char *format, ...) GD_PRINTF(2, 3);
/* Cells of numbers: "1,024", "20.7 GiB", "1.71 s". */
const char *gd_show_count_cell(struct gd_cli *cli, int64_t count);
const char *gd_show_bytes_cell(struct gd_cli *cli, int64_t bytes);
const char *gd_show_seconds_cell(struct gd_cli *cli, double seconds);
/* cells: rows x columns texts, row by row; NULL is an empty cell. Up to GD_SHOW_COLUMNS columns. */
enum gd_status gd_show_table(struct gd_strbuf *out, int indent,
                             const struct gd_show_column *columns, int n_columns,
                             const char *const *cells, int n_rows,
                             struct gd_error *err) GD_MUST_USE;

/*
 * A table that grows by rows, in the arena of cli. Without memory cli->out has failed: fill freely.
 *
 *   struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
 *   const char **row = gd_show_row(&rows);
 *   row[0] = "name";
 *   return gd_show_rows(&rows, 2, err);
 */
enum { GD_SHOW_COLUMNS = 40 };
struct gd_show_rows {
  struct gd_cli *cli;
  const struct gd_show_column *columns;
  int n_columns; /* up to GD_SHOW_COLUMNS */
  int count, capacity;
  const char **cells;
  const char *spare[GD_SHOW_COLUMNS]; /* the row that is written where there is no memory */
};
#define GD_SHOW_ROWS(of, titles) \
  { .cli = (of), .columns = (titles), .n_columns = (int)(sizeof(titles) / sizeof *(titles)) }
/* A new row of empty cells; those before it may have moved. */
const char **gd_show_row(struct gd_show_rows *rows);
/* Appends the table to cli->out. */
enum gd_status gd_show_rows(struct gd_show_rows *rows, int indent,
                            struct gd_error *err) GD_MUST_USE;

/* An object under construction. The first failure is kept: set freely, check in gd_show_json. */
struct gd_show_object {
  json_t *object;
  bool failed;
  struct gd_strbuf *out; /* where what is set goes at once, as text; NULL: it is kept in object */
  int indent;            /* of that text */
  bool any;              /* something was set */
  bool csv;              /* that text is a row of CSV */
};
void gd_show_begin(struct gd_show_object *to);
/* The same, written to out as it is set, as gd_show_json_inside would: for objects by the hundred
   thousand. What was set cannot be asked for, nor set again. */
void gd_show_begin_text(struct gd_show_object *to, struct gd_strbuf *out, int indent);
/* A row of CSV in the same way; see gd_show_csv. Objects inside are begun by gd_show_begin_inside.
 */
void gd_show_begin_csv(struct gd_show_object *to, struct gd_strbuf *out);
enum gd_status gd_show_end_text(struct gd_show_object *to, struct gd_error *err) GD_MUST_USE;
/* An object that goes into its parent next, by gd_show_set_object: written at once if that is. */
void gd_show_begin_inside(struct gd_show_object *child, struct gd_show_object *parent,
                          const char *key);
void gd_show_set(struct gd_show_object *to, const char *key, json_t *value); /* takes value */
void gd_show_set_text(struct gd_show_object *to, const char *key, const char *text);
void gd_show_set_int(struct gd_show_object *to, const char *key, int64_t value);
void gd_show_set_bool(struct gd_show_object *to, const char *key, bool value);
/* null when the number is not finite. */
void gd_show_set_real(struct gd_show_object *to, const char *key, double value);
void gd_show_set_null(struct gd_show_object *to, const char *key);
/* null where the text is NULL; for the second one also where it is empty, which is: not known. */
void gd_show_set_text_or_null(struct gd_show_object *to, const char *key, const char *text);
void gd_show_set_known_text(struct gd_show_object *to, const char *key, const char *text);
/* null where it is not above 0, which is: not known. */
void gd_show_set_positive(struct gd_show_object *object, const char *key, double value);
/* An array of finite numbers. */
void gd_show_set_reals(struct gd_show_object *to, const char *key, const double *values, int count);
/* Moves the finished child into its parent. */
void gd_show_set_object(struct gd_show_object *to, const char *key, struct gd_show_object *child);
void gd_show_append(struct gd_show_object *array, struct gd_show_object *child);

/* Appends the object as text and frees it, also after a failure. */
enum gd_status gd_show_json(struct gd_strbuf *out, struct gd_show_object *object,
                            struct gd_error *err) GD_MUST_USE;
/* The same within other text: lines after the first have the indent, and the last one no end. */
enum gd_status gd_show_json_inside(struct gd_strbuf *out, struct gd_show_object *object, int indent,
                                   struct gd_error *err) GD_MUST_USE;
/*
 * Appends the rows (an array of objects with the same keys in the same order; frees it). Objects
 * inside become columns "outer.inner", texts in an array are joined by blanks, other arrays are
 * left out.
 */
enum gd_status gd_show_csv(struct gd_strbuf *out, struct gd_show_object *rows,
                           struct gd_error *err) GD_MUST_USE;
/* One of those rows at a time; the first with the names of the columns before it. */
enum gd_status gd_show_csv_row(struct gd_strbuf *out, struct gd_show_object *row, bool first,
                               struct gd_error *err) GD_MUST_USE;

#endif
