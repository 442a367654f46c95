/*
 * A CSV file in memory (RFC 4180: quotes, quoted commas and line ends, CRLF or LF, an optional
 * byte order mark), as a table of strings. Errors name file, line and column; lines are those of
 * a text editor, so that a quoted cell of two lines counts twice, and the header is line 1.
 *
 *   struct gd_csv csv = {0};
 *   GD_TRY(gd_csv_load(&csv, "answers.csv", err));
 *   int days = gd_csv_column(&csv, "days");
 *   for (int row = 0; row < csv.rows; row++)
 *     GD_TRY(gd_csv_number(&csv, row, days, 0, 1e6, &value, err));
 *   gd_csv_deinit(&csv);
 */
#ifndef GD_BASE_CSV_H
#define GD_BASE_CSV_H

#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/strbuf.h"

struct gd_csv {
  struct gd_arena arena;
  char file[512];      /* for messages */
  int rows, columns;   /* rows without the header */
  const char **header; /* columns names */
  const char **cells;  /* rows x columns; never NULL, an empty cell is "" */
  int *lines;          /* by row: the line of the file where it begins */
};

/* At most 256 MiB. Every row must have as many cells as the header; lines that are wholly empty are
 * skipped. */
enum gd_status gd_csv_load(struct gd_csv *csv, const char *path, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_csv_parse(struct gd_csv *csv, const char *label, const char *text, int64_t length,
                            struct gd_error *err) GD_MUST_USE;
void gd_csv_deinit(struct gd_csv *csv); /* safe on a zeroed one */

int gd_csv_column(const struct gd_csv *csv, const char *name); /* -1: there is none */
/* GD_BAD_INPUT where two columns have one name: a reader by name would see the first alone. */
enum gd_status gd_csv_check_names(const struct gd_csv *csv, struct gd_error *err) GD_MUST_USE;
const char *gd_csv_cell(const struct gd_csv *csv, int row, int column);
/* A finite number in [low, high], or GD_BAD_INPUT that names row, column and what was found. */
enum gd_status gd_csv_number(const struct gd_csv *csv, int row, int column, double low, double high,
                             double *value, struct gd_error *err) GD_MUST_USE;
/* That failure for checks made elsewhere. */
enum gd_status gd_csv_mismatch(const struct gd_csv *csv, int row, int column, const char *expected,
                               struct gd_error *err);

/* --- writing ------------------------------------------------------------------------------- */

/*
 * A cell as a file holds it: quoted where it must be. Commas and line ends are the caller's.
 *
 * A spreadsheet takes a cell that begins with = + - @, a tab or a carriage return for a formula and
 * runs it, and names and answers are what others wrote. Such a text gets an apostrophe before it,
 * which a spreadsheet takes for "this is text". Numbers (-3.5, +1e9) and a lone - stay as they are.
 * Reading takes one apostrophe away where what follows is such a beginning, so a text that has
 * apostrophes before one gets another, and every text reads back as it was.
 */
void gd_csv_append_cell(struct gd_strbuf *out, const char *text);
/* A number in the fewest digits that read back as it; nothing where it is not finite. */
void gd_csv_append_number(struct gd_strbuf *out, double value);

#endif
