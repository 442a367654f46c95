/*
 * Aligned tables for people, by libsmartcols; see show.h. The planner for browsers has none of it
 * (src/web/web_tables.c).
 */
#define _GNU_SOURCE /* fopencookie: libsmartcols prints to a FILE, and ours is a string */
#include <libsmartcols.h>
#include <stdio.h>
#include <string.h>

#include "cli/show.h"

static ssize_t write_to_strbuf(void *cookie, const char *data, size_t length) {
  struct gd_strbuf *out = cookie;
  gd_strbuf_append_bytes(out, data, length);
  return out->failed ? -1 : (ssize_t)length;
}

static bool fill_table(struct libscols_table *table, const struct gd_show_column *columns,
                       int n_columns, const char *const *cells, int n_rows) {
  for (int c = 0; c < n_columns; c++)
    if (!scols_table_new_column(table, columns[c].title, 0, columns[c].right ? SCOLS_FL_RIGHT : 0))
      return false;
  for (int r = 0; r < n_rows; r++) {
    struct libscols_line *line = scols_table_new_line(table, NULL);
    if (!line)
      return false;
    for (int c = 0; c < n_columns; c++) {
      const char *cell = cells[(size_t)r * (size_t)n_columns + (size_t)c];
      if (cell && scols_line_set_data(line, (size_t)c, cell) != 0)
        return false;
    }
  }
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

enum gd_status gd_show_table(struct gd_strbuf *out, int indent,
                             const struct gd_show_column *columns, int n_columns,
                             const char *const *cells, int n_rows, struct gd_error *err) {
  struct gd_strbuf text = {0};
  FILE *stream = fopencookie(&text, "w", (cookie_io_functions_t){.write = write_to_strbuf});
  struct libscols_table *table = scols_new_table();
  bool ok = stream && table && fill_table(table, columns, n_columns, cells, n_rows);
  if (ok) {
    scols_table_set_stream(table, stream);
    scols_table_set_column_separator(table, "  ");
    scols_table_enable_nowrap(table, 1);
    /* Cells are shown whole, whatever the width of the terminal. */
    scols_table_set_termforce(table, SCOLS_TERMFORCE_NEVER);
    ok = scols_print_table(table) == 0;
  }
  scols_unref_table(table);
  if (stream && fclose(stream) != 0)
    ok = false;
  if (ok && text.text)
    append_indented(out, indent, text.text);
  ok = ok && !text.failed;
  gd_strbuf_deinit(&text);
  return ok ? GD_OK : gd_nomem(err, "while printing a table");
}
