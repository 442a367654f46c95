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

/* "1,234.5": thousands separated, so many decimals. */
const char *gd_show_number(char *text, size_t size, double value, int decimals);
/* The same with `digits` significant ones, and no more decimals than that takes. */
const char *gd_show_digits(char *text, size_t size, double value, int digits);
/* "28.9 ms", "7.43 s", "12.3 min", "5.20 h", "12.3 days". */
const char *gd_show_seconds(char *text, size_t size, double seconds);
/* "2.9e20". */
const char *gd_show_power(char *text, size_t size, double value);
/* "465 GFLOP/s". */
const char *gd_show_rate(char *text, size_t size, double flops_per_s);

/*
 * How long a run takes: one unit for the value and its interval, with as many decimals as the
 * interval deserves, and the years beside many days.
 */
struct gd_show_duration {
  char value[3 * GD_SHOW_TEXT];    /* "1,240 days (3.4 years)" */
  char interval[3 * GD_SHOW_TEXT]; /* "1,231 - 1,249" in the same unit */
};
void gd_show_duration(struct gd_show_duration *shown, double seconds, double low_s, double high_s);

/* Text wrapped at 80 columns; lines after the first are indented two deeper than `indent`. */
void gd_show_paragraph(struct gd_strbuf *out, int indent, const char *text);
/* The same text, bold on a terminal. */
void gd_show_bold(struct gd_cli *cli, const char *text);

struct gd_show_column {
  const char *title;
  bool right; /* numbers */
};
/* A cell's text, in the arena of cli. Without memory it is NULL and cli->out has failed. */
const char *gd_show_cell(struct gd_cli *cli, const char *format, ...) GD_PRINTF(2, 3);
/* cells: rows x columns texts, row by row; NULL is an empty cell. */
enum gd_status gd_show_table(struct gd_strbuf *out, int indent,
                             const struct gd_show_column *columns, int n_columns,
                             const char *const *cells, int n_rows,
                             struct gd_error *err) GD_MUST_USE;

/* An object under construction. The first failure is kept: set freely, check in gd_show_json. */
struct gd_show_object {
  json_t *object;
  bool failed;
  struct gd_strbuf *out; /* where what is set goes at once, as text; NULL: it is kept in object */
  int indent;            /* of that text */
  bool any;              /* something was set */
};
void gd_show_begin(struct gd_show_object *to);
/* The same, written to out as it is set, as gd_show_json_inside would: for objects by the hundred
   thousand. What was set cannot be asked for, nor set again. */
void gd_show_begin_text(struct gd_show_object *to, struct gd_strbuf *out, int indent);
enum gd_status gd_show_end_text(struct gd_show_object *to, struct gd_error *err) GD_MUST_USE;
void gd_show_set(struct gd_show_object *to, const char *key, json_t *value); /* takes value */
void gd_show_set_text(struct gd_show_object *to, const char *key, const char *text);
void gd_show_set_int(struct gd_show_object *to, const char *key, int64_t value);
void gd_show_set_bool(struct gd_show_object *to, const char *key, bool value);
/* null when the number is not finite. */
void gd_show_set_real(struct gd_show_object *to, const char *key, double value);
void gd_show_set_null(struct gd_show_object *to, const char *key);
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
