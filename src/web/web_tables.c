/*
 * Aligned tables without libsmartcols: the columns as wide as their widest cell, two blanks between
 * them. Takes the place of cli/show_table.c.
 */
#include <string.h>

#include "cli/show.h"

/* Characters of UTF-8 text: all bytes but those that continue one. */
static size_t width_of(const char *text) {
  size_t width = 0;
  for (; text && *text; text++)
    width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

static void append_row(struct gd_strbuf *out, int indent, const struct gd_show_column *columns,
                       const size_t *widths, int n_columns, const char *const *cells) {
  int last = n_columns - 1;
  while (last >= 0 && width_of(cells[last]) == 0)
    last--;
  gd_strbuf_printf(out, "%*s", last >= 0 ? indent : 0, "");
  for (int c = 0; c <= last; c++) {
    int blanks = (int)(widths[c] - width_of(cells[c]));
    const char *cell = cells[c] ? cells[c] : "";
    if (columns[c].right)
      gd_strbuf_printf(out, "%*s%s", blanks, "", cell);
    else
      gd_strbuf_printf(out, "%s%*s", cell, c < last ? blanks : 0, "");
    gd_strbuf_append(out, c < last ? "  " : "");
  }
  gd_strbuf_append(out, "\n");
}

enum gd_status gd_show_table(struct gd_strbuf *out, int indent,
                             const struct gd_show_column *columns, int n_columns,
                             const char *const *cells, int n_rows, struct gd_error *err) {
  size_t widths[GD_SHOW_COLUMNS];
  const char *titles[GD_SHOW_COLUMNS];
  GD_ASSERT(n_columns <= GD_SHOW_COLUMNS);
  for (int c = 0; c < n_columns; c++) {
    titles[c] = columns[c].title;
    widths[c] = width_of(titles[c]);
    for (int r = 0; r < n_rows; r++) {
      size_t width = width_of(cells[(size_t)r * (size_t)n_columns + (size_t)c]);
      widths[c] = width > widths[c] ? width : widths[c];
    }
  }
  append_row(out, indent, columns, widths, n_columns, titles);
  for (int r = 0; r < n_rows; r++)
    append_row(out, indent, columns, widths, n_columns, cells + (size_t)r * (size_t)n_columns);
  return out->failed ? gd_nomem(err, "while printing a table") : GD_OK;
}
