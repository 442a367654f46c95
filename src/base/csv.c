/*
 * CSV by one walk over the text: cells are cut in a copy of it, in place, so a cell is a pointer
 * into the arena. See csv.h for the dialect.
 */
#include "base/csv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { MOST_BYTES = 256 << 20, FIRST_COLUMNS = 64 };

static const char byte_order_mark[] = "\xef\xbb\xbf";

struct reader {
  struct gd_csv *csv;
  char *at;  /* next byte to read */
  char *end; /* a NUL stands there */
  int line;  /* of `at` */
};

static enum gd_status fail_at(const struct reader *reader, int line, const char *what,
                              struct gd_error *err) {
  return gd_fail(err, GD_BAD_INPUT, "%s, line %d: %s", reader->csv->file, line, what);
}

static enum gd_status fail_memory(const struct gd_csv *csv, struct gd_error *err) {
  return gd_nomem(err, "while reading %s", csv->file);
}

/* Whether a spreadsheet would take it for a formula, apostrophes before it aside. */
static bool begins_formula(const char *text) {
  text += strspn(text, "'");
  return *text && strchr("=+-@\t\r", *text);
}

/* Undoubles quotes and leaves `at` behind the closing one; *length is the cell's. */
static enum gd_status read_quoted(struct reader *reader, size_t *length, struct gd_error *err) {
  char *out = reader->at;
  char *start = out;
  int line = reader->line; /* where it begins: the end may be the end of the file */
  reader->at++;
  for (;;) {
    if (reader->at == reader->end)
      return fail_at(reader, line, "a quoted cell does not end; expected a closing \"", err);
    char c = *reader->at++;
    if (c == '"' && *reader->at != '"')
      break;
    if (c == '"')
      reader->at++;
    if (c == '\n')
      reader->line++;
    *out++ = c;
  }
  *length = (size_t)(out - start);
  return GD_OK;
}

/* One cell; *last when the row ends with it. `at` is then behind the separator. */
static enum gd_status read_cell(struct reader *reader, const char **cell, bool *last,
                                struct gd_error *err) {
  char *start = reader->at;
  size_t length;
  if (*start == '"')
    GD_TRY(read_quoted(reader, &length, err));
  else {
    length = strcspn(start, ",\r\n");
    reader->at += length;
  }
  char separator = *reader->at;
  if (separator == '\r' && reader->at[1] == '\n')
    separator = *++reader->at;
  if (separator == '\r')
    return fail_at(reader, reader->line,
                   "a carriage return without a line feed; save the file with lines that end in "
                   "LF or CRLF, or quote the cell",
                   err);
  if (separator != ',' && separator != '\n' && reader->at != reader->end)
    return fail_at(reader, reader->line,
                   "text behind a closing quote; expected a comma or the end of the line", err);
  if (reader->at != reader->end)
    reader->at++;
  *last = separator != ',';
  start[length] = '\0';
  *cell = *start == '\'' && begins_formula(start) ? start + 1 : start;
  return GD_OK;
}

static bool skip_empty_lines(struct reader *reader) {
  for (; *reader->at == '\n' || (*reader->at == '\r' && reader->at[1] == '\n'); reader->at++)
    reader->line += *reader->at == '\n';
  return reader->at != reader->end;
}

/* Doubles the room for names. The old array stays in the arena: together they waste less than the
   new one has. */
static bool grow_header(struct gd_csv *csv, int *room) {
  if (csv->columns < *room)
    return true;
  int more = *room ? 2 * *room : FIRST_COLUMNS;
  const char **header = gd_arena_alloc(&csv->arena, (size_t)more, sizeof *header);
  if (!header)
    return false;
  if (csv->columns > 0)
    memcpy(header, csv->header, (size_t)csv->columns * sizeof *header);
  csv->header = header;
  *room = more;
  return true;
}

static enum gd_status read_header(struct reader *reader, struct gd_error *err) {
  struct gd_csv *csv = reader->csv;
  bool last = false;
  int room = 0;
  while (!last) {
    if (!grow_header(csv, &room))
      return fail_memory(csv, err);
    GD_TRY(read_cell(reader, &csv->header[csv->columns++], &last, err));
  }
  reader->line++;
  return GD_OK;
}

static enum gd_status read_row(struct reader *reader, struct gd_error *err) {
  struct gd_csv *csv = reader->csv;
  const char **row = csv->cells + (ptrdiff_t)csv->rows * csv->columns;
  bool last = false;
  int count = 0;
  csv->lines[csv->rows] = reader->line;
  while (!last) {
    const char *cell;
    GD_TRY(read_cell(reader, &cell, &last, err));
    if (count < csv->columns)
      row[count] = cell;
    count++;
  }
  if (count != csv->columns)
    return gd_fail(err, GD_BAD_INPUT, "%s, line %d: %d cells; the header has %d", csv->file,
                   csv->lines[csv->rows], count, csv->columns);
  csv->rows++;
  reader->line++;
  return GD_OK;
}

/*
 * Room for all rows: each takes a separator a cell (the last one may end with the file), so the
 * cells are bounded by the file's bytes, however many columns its header has.
 */
static bool reserve_rows(struct reader *reader) {
  struct gd_csv *csv = reader->csv;
  size_t lines = 1, cells = 1;
  for (const char *at = reader->at; at < reader->end; at++) {
    lines += *at == '\n';
    cells += *at == '\n' || *at == ',';
  }
  csv->cells = gd_arena_alloc(&csv->arena, cells, sizeof *csv->cells);
  csv->lines = gd_arena_alloc(&csv->arena, lines, sizeof *csv->lines);
  return csv->cells && csv->lines;
}

static enum gd_status read_all(struct reader *reader, struct gd_error *err) {
  if (!skip_empty_lines(reader))
    return gd_fail(err, GD_BAD_INPUT, "%s is empty; expected a header and rows", reader->csv->file);
  GD_TRY(read_header(reader, err));
  if (!reserve_rows(reader))
    return fail_memory(reader->csv, err);
  while (skip_empty_lines(reader))
    GD_TRY(read_row(reader, err));
  return GD_OK;
}

enum gd_status gd_csv_parse(struct gd_csv *csv, const char *label, const char *text, int64_t length,
                            struct gd_error *err) {
  *csv = (struct gd_csv){0};
  gd_json_excerpt(csv->file, sizeof csv->file, label);
  if (length > MOST_BYTES)
    return gd_fail(err, GD_BAD_INPUT, "%s has more than %d MiB; expected a table", csv->file,
                   MOST_BYTES >> 20);
  if (memchr(text, '\0', (size_t)length))
    return gd_fail(err, GD_BAD_INPUT, "%s holds a NUL byte; expected text", csv->file);
  char *copy = gd_arena_alloc(&csv->arena, (size_t)length + 1, 1);
  if (!copy)
    return fail_memory(csv, err);
  memcpy(copy, text, (size_t)length);
  copy[length] = '\0';
  struct reader reader = {.csv = csv, .at = copy, .end = copy + length, .line = 1};
  if (strncmp(copy, byte_order_mark, sizeof byte_order_mark - 1) == 0)
    reader.at += sizeof byte_order_mark - 1;
  enum gd_status status = read_all(&reader, err);
  if (status != GD_OK)
    gd_csv_deinit(csv);
  return status;
}

/* The whole file; one byte past the bound is enough to know that it is too large. */
static enum gd_status read_file(FILE *file, const char *name, struct gd_strbuf *text,
                                struct gd_error *err) {
  char piece[1 << 16];
  size_t got;
  errno = 0;
  while ((got = fread(piece, 1, sizeof piece, file)) > 0 && text->length <= MOST_BYTES &&
         !text->failed)
    gd_strbuf_append_bytes(text, piece, got);
  if (text->failed)
    return gd_nomem(err, "while reading %s", name);
  if (ferror(file) && errno == EISDIR)
    return gd_fail(err, GD_BAD_INPUT, "%s is a folder; name a CSV file", name);
  if (ferror(file))
    return gd_fail(err, GD_ENVIRONMENT, "cannot read %s: %s", name, strerror(errno));
  return GD_OK;
}

enum gd_status gd_csv_load(struct gd_csv *csv, const char *path, struct gd_error *err) {
  char clean[256];
  struct gd_strbuf text = {0};
  FILE *file = fopen(path, "rb");
  *csv = (struct gd_csv){0};
  gd_json_excerpt(clean, sizeof clean, path);
  if (!file)
    return gd_fail(err, GD_BAD_INPUT, "cannot open %s: %s", clean, strerror(errno));
  enum gd_status status = read_file(file, clean, &text, err);
  fclose(file);
  if (status == GD_OK)
    status = gd_csv_parse(csv, path, text.text ? text.text : "", (int64_t)text.length, err);
  gd_strbuf_deinit(&text);
  return status;
}

void gd_csv_deinit(struct gd_csv *csv) {
  gd_arena_deinit(&csv->arena);
  *csv = (struct gd_csv){0};
}

int gd_csv_column(const struct gd_csv *csv, const char *name) {
  for (int i = 0; i < csv->columns; i++)
    if (strcmp(csv->header[i], name) == 0)
      return i;
  return -1;
}

enum gd_status gd_csv_check_names(const struct gd_csv *csv, struct gd_error *err) {
  char name[64];
  for (int i = 1; i < csv->columns; i++) {
    int first = gd_csv_column(csv, csv->header[i]);
    if (first < i)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: columns %d and %d are both called \"%s\"; expected each name once",
                     csv->file, first + 1, i + 1,
                     gd_json_excerpt(name, sizeof name, csv->header[i]));
  }
  return GD_OK;
}

const char *gd_csv_cell(const struct gd_csv *csv, int row, int column) {
  GD_ASSERT(row >= 0 && row < csv->rows && column >= 0 && column < csv->columns);
  return csv->cells[(ptrdiff_t)row * csv->columns + column];
}

enum gd_status gd_csv_mismatch(const struct gd_csv *csv, int row, int column, const char *expected,
                               struct gd_error *err) {
  char clean[64], name[64];
  return gd_fail(err, GD_BAD_INPUT, "%s, line %d, column \"%s\": \"%s\"; expected %s", csv->file,
                 csv->lines[row], gd_json_excerpt(name, sizeof name, csv->header[column]),
                 gd_json_excerpt(clean, sizeof clean, gd_csv_cell(csv, row, column)), expected);
}

static bool read_number(const char *text, double *number) {
  char *end;
  *number = strtod(text, &end);
  /* strtod also takes words (inf, nan) and hexadecimal digits, which nobody means in a table. */
  bool plain = text[strspn(text, " 0123456789+-.eE")] == '\0';
  return plain && end != text && *end == '\0' && isfinite(*number);
}

enum gd_status gd_csv_number(const struct gd_csv *csv, int row, int column, double low, double high,
                             double *value, struct gd_error *err) {
  char expected[96];
  double number;
  if (read_number(gd_csv_cell(csv, row, column), &number) && number >= low && number <= high) {
    *value = number;
    return GD_OK;
  }
  snprintf(expected, sizeof expected, "a number from %g to %g", low, high);
  return gd_csv_mismatch(csv, row, column, expected, err);
}

/* --- writing ------------------------------------------------------------------------------- */

void gd_csv_append_cell(struct gd_strbuf *out, const char *text) {
  /* A blank at either end is kept by every reader only inside quotes, as is a byte order mark. */
  size_t length = strlen(text);
  double number;
  bool formula = begins_formula(text) && !read_number(text, &number) && strcmp(text, "-") != 0;
  bool kept = length > 0 && text[0] != ' ' && text[length - 1] != ' ' &&
              strncmp(text, byte_order_mark, sizeof byte_order_mark - 1) != 0;
  if ((kept || length == 0) && !strpbrk(text, ",\"\r\n")) {
    gd_strbuf_append(out, formula ? "'" : "");
    gd_strbuf_append(out, text);
    return;
  }
  gd_strbuf_append(out, formula ? "\"'" : "\"");
  for (; *text; text++) {
    if (*text == '"')
      gd_strbuf_append(out, "\"");
    gd_strbuf_append_bytes(out, text, 1);
  }
  gd_strbuf_append(out, "\"");
}

void gd_csv_append_number(struct gd_strbuf *out, double value) {
  char text[48];
  if (!isfinite(value))
    return;
  if (fabs(value) < 1e15 && value == (double)(int64_t)value && !signbit(value)) { /* often 0 */
    gd_strbuf_printf(out, "%lld", (long long)value);
    return;
  }
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value)
      break;
  }
  gd_strbuf_append(out, text);
}
