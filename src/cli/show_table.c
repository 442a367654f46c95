/*
 * Tables for people (libsmartcols), fitted to the terminal; see show.h. A table that is wider than
 * the terminal leaves out the columns of least priority and says which; the cells of what is left
 * are wrapped.
 */
#define _GNU_SOURCE  /* fopencookie: libsmartcols prints to a FILE, and ours is a string; wcswidth \
                      */
#include <libsmartcols.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "cli/cli.h"
#include "cli/show.h"

/* --- cells --------------------------------------------------------------------------------- */

const char *gd_show_cell(struct gd_cli *cli, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const char *cell = gd_arena_copy_string(&cli->arena, text);
  if (!cell)
    cli->out.failed = true;
  return cell;
}

const char *gd_show_count_cell(struct gd_cli *cli, int64_t count) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(cli, "%s", gd_format_count(text, sizeof text, count));
}

const char *gd_show_bytes_cell(struct gd_cli *cli, int64_t bytes) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, bytes));
}

const char *gd_show_seconds_cell(struct gd_cli *cli, double seconds) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(cli, "%s", gd_show_seconds(text, sizeof text, seconds));
}

/* --- the terminal -------------------------------------------------------------------------- */

/* Of the process, as its terminal is. */
static struct {
  int columns;
  bool wide;
} terminal;

void gd_show_set_columns(int columns, bool wide) {
  terminal.columns = columns;
  terminal.wide = wide;
}

int gd_show_columns(void) {
  return terminal.columns;
}

bool gd_show_is_wide(void) {
  return terminal.wide;
}

/* Bytes where the text is not of the locale. */
int gd_show_width(const char *text) {
  wchar_t wide[512];
  size_t length = mbstowcs(wide, text, sizeof wide / sizeof *wide);
  int width = length < sizeof wide / sizeof *wide ? wcswidth(wide, length) : -1;
  return width >= 0 ? width : (int)strlen(text);
}

/* --- fitting ------------------------------------------------------------------------------- */

enum { GAP = 2, LEAST_WRAPPED = 10 };

struct layout {
  const struct gd_show_column *columns;
  const char *const *cells;
  int n_columns, n_rows, indent;
  int width[GD_SHOW_COLUMNS];
  bool out[GD_SHOW_COLUMNS]; /* left out */
};

static const char *cell_of(const struct layout *layout, int r, int c) {
  return layout->cells[(size_t)r * (size_t)layout->n_columns + (size_t)c];
}

static void measure(struct layout *layout) {
  for (int c = 0; c < layout->n_columns; c++) {
    layout->width[c] = gd_show_width(layout->columns[c].title);
    for (int r = 0; r < layout->n_rows; r++) {
      const char *cell = cell_of(layout, r, c);
      int width = cell ? gd_show_width(cell) : 0;
      if (width > layout->width[c])
        layout->width[c] = width;
    }
  }
}

static int width_of_all(const struct layout *layout) {
  int width = layout->indent - GAP;
  for (int c = 0; c < layout->n_columns; c++)
    width += layout->out[c] ? 0 : layout->width[c] + GAP;
  return width;
}

/* The column to leave out next: of the largest number, and of those the last. -1: none may be. */
static int least_of(const struct layout *layout) {
  int least = -1;
  for (int c = 0; c < layout->n_columns; c++)
    if (!layout->out[c] && layout->columns[c].priority > 0 &&
        (least < 0 || layout->columns[c].priority >= layout->columns[least].priority))
      least = c;
  return least;
}

/* The widest column of words, which can be wrapped; -1: all are narrow. */
static int widest_of(const struct layout *layout) {
  int widest = -1;
  for (int c = 0; c < layout->n_columns; c++)
    if (!layout->out[c] && !layout->columns[c].right && layout->width[c] > LEAST_WRAPPED &&
        (widest < 0 || layout->width[c] > layout->width[widest]))
      widest = c;
  return widest;
}

/* Of the columns left out that there is room for, that of the smallest number; -1: none. */
static int most_of(const struct layout *layout) {
  int most = -1, room = terminal.columns - width_of_all(layout) - GAP;
  for (int c = 0; c < layout->n_columns; c++)
    if (layout->out[c] && layout->width[c] <= room &&
        (most < 0 || layout->columns[c].priority < layout->columns[most].priority))
      most = c;
  return most;
}

static void fit(struct layout *layout) {
  int c;
  while (width_of_all(layout) > terminal.columns && (c = least_of(layout)) >= 0)
    layout->out[c] = true;
  while (width_of_all(layout) > terminal.columns && (c = widest_of(layout)) >= 0)
    layout->width[c]--;
  /* What came out early may have room now that a wider one is out: the most important first. */
  while ((c = most_of(layout)) >= 0)
    layout->out[c] = false;
}

/* Bytes, at least one, of the text that go onto a line of `width` columns: up to a blank, else to
   the end of a part of a name, else as many as there is room for. */
static size_t line_of(const char *text, int width) {
  size_t length = 0, blank = 0, part = 0;
  while (text[length] && (int)length < width) {
    if (text[length] == ' ')
      blank = length;
    else if (strchr("+/,_-", text[length]))
      part = length + 1;
    length++;
  }
  if (!text[length] || text[length] == ' ')
    return length;
  length = blank > 0 ? blank : part > 0 ? part : length;
  while (((unsigned char)text[length] & 0xc0) == 0x80) /* not within a letter */
    length++;
  return length;
}

/* --- printing ------------------------------------------------------------------------------ */

static ssize_t write_to_strbuf(void *cookie, const char *data, size_t length) {
  struct gd_strbuf *out = cookie;
  gd_strbuf_append_bytes(out, data, length);
  return out->failed ? -1 : (ssize_t)length;
}

/* The next line of a cell, of which text is the rest; *text moves on. */
static bool set_line(struct libscols_line *line, size_t at, const char **text, int width) {
  char part[512];
  size_t length = gd_show_width(*text) <= width ? strlen(*text) : line_of(*text, width);
  if (length >= sizeof part)
    length = sizeof part - 1;
  memcpy(part, *text, length);
  part[length] = '\0';
  *text += length;
  *text += strspn(*text, " ");
  return scols_line_set_data(line, at, part) == 0;
}

/* One row: as many lines as its longest cell takes. */
static bool fill_row(struct libscols_table *table, const struct layout *layout, int r) {
  const char *rest[GD_SHOW_COLUMNS];
  bool more = true;
  for (int c = 0; c < layout->n_columns; c++)
    rest[c] = cell_of(layout, r, c);
  while (more) {
    struct libscols_line *line = scols_table_new_line(table, NULL);
    size_t at = 0;
    more = false;
    if (!line)
      return false;
    for (int c = 0; c < layout->n_columns; c++) {
      if (layout->out[c])
        continue;
      if (rest[c] && *rest[c] && !set_line(line, at, &rest[c], layout->width[c]))
        return false;
      more = more || (rest[c] && *rest[c]);
      at++;
    }
  }
  return true;
}

static bool fill_table(struct libscols_table *table, const struct layout *layout) {
  for (int c = 0; c < layout->n_columns; c++)
    if (!layout->out[c] && !scols_table_new_column(table, layout->columns[c].title, 0,
                                                   layout->columns[c].right ? SCOLS_FL_RIGHT : 0))
      return false;
  for (int r = 0; r < layout->n_rows; r++)
    if (!fill_row(table, layout, r))
      return false;
  return true;
}

/* Copies line by line with the indent, without the blanks that pad the last column. */
static void append_indented(struct gd_strbuf *out, int indent, const char *text) {
  while (*text) {
    size_t length = strcspn(text, "\n"), used = length;
    while (used > 0 && text[used - 1] == ' ')
      used--;
    gd_strbuf_printf(out, "%*s%.*s\n", used ? indent : 0, "", (int)used, text);
    text += length + (text[length] == '\n');
  }
}

/* Which columns are missing, and how to have them. */
static void append_left_out(struct gd_strbuf *out, const struct layout *layout) {
  struct gd_strbuf line = {0};
  int count = 0;
  for (int c = 0; c < layout->n_columns; c++)
    if (layout->out[c])
      gd_strbuf_printf(&line, "%s%s",
                       count++ ? ", " : "not shown for lack of width: ", layout->columns[c].title);
  if (count > 0)
    gd_strbuf_printf(&line, "; --wide shows %s", count > 1 ? "them" : "it");
  gd_show_buffer(out, layout->indent, &line);
}

enum gd_status gd_show_table(struct gd_strbuf *out, int indent,
                             const struct gd_show_column *columns, int n_columns,
                             const char *const *cells, int n_rows, struct gd_error *err) {
  struct layout layout = {.columns = columns,
                          .cells = cells,
                          .n_columns = n_columns,
                          .n_rows = n_rows,
                          .indent = indent};
  struct gd_strbuf text = {0};
  GD_ASSERT(n_columns <= GD_SHOW_COLUMNS);
  measure(&layout);
  if (terminal.columns > 0 && !terminal.wide)
    fit(&layout);
  FILE *stream = fopencookie(&text, "w", (cookie_io_functions_t){.write = write_to_strbuf});
  struct libscols_table *table = scols_new_table();
  bool ok = stream && table && fill_table(table, &layout);
  if (ok) {
    scols_table_set_stream(table, stream);
    scols_table_set_column_separator(table, "  ");
    scols_table_enable_nowrap(table, 1);
    /* The width is settled above. */
    scols_table_set_termforce(table, SCOLS_TERMFORCE_NEVER);
    ok = scols_print_table(table) == 0;
  }
  scols_unref_table(table);
  if (stream && fclose(stream) != 0)
    ok = false;
  if (ok && text.text)
    append_indented(out, indent, text.text);
  if (ok)
    append_left_out(out, &layout);
  ok = ok && !text.failed;
  gd_strbuf_deinit(&text);
  return ok ? GD_OK : gd_nomem(err, "while printing a table");
}

const char **gd_show_row(struct gd_show_rows *rows) {
  size_t width = (size_t)rows->n_columns;
  GD_ASSERT(rows->n_columns <= GD_SHOW_COLUMNS);
  if (rows->count == rows->capacity) {
    int capacity = rows->capacity > 0 ? 2 * rows->capacity : 16;
    const char **cells = gd_arena_alloc(&rows->cli->arena, (size_t)capacity * width, sizeof *cells);
    if (!cells) {
      rows->cli->out.failed = true;
      return rows->spare;
    }
    for (size_t i = 0; i < (size_t)rows->count * width; i++)
      cells[i] = rows->cells[i];
    rows->cells = cells;
    rows->capacity = capacity;
  }
  return rows->cells + (size_t)rows->count++ * width;
}

enum gd_status gd_show_rows(struct gd_show_rows *rows, int indent, struct gd_error *err) {
  return gd_show_table(&rows->cli->out, indent, rows->columns, rows->n_columns, rows->cells,
                       rows->count, err);
}
