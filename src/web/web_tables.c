/*
 * Aligned tables for a system without libsmartcols; see libsmartcols.h here. Without memory a
 * function fails, as in the library.
 */
#include <libsmartcols.h>
#include <string.h>

#include "base/mem.h"

enum { COLUMNS = 40 };

struct libscols_line {
  struct libscols_line *next;
  char *cells[COLUMNS];
};

struct libscols_column {
  const char *name;
  int flags;
};

struct libscols_table {
  struct libscols_column columns[COLUMNS];
  int n_columns;
  struct libscols_line *lines, *last;
  FILE *stream;
  const char *separator;
};

struct libscols_table *scols_new_table(void) {
  struct libscols_table *table = gd_mem_alloc(1, sizeof *table);
  if (table)
    table->separator = " ";
  return table;
}

void scols_unref_table(struct libscols_table *table) {
  if (!table)
    return;
  for (struct libscols_line *line = table->lines, *next; line; line = next) {
    next = line->next;
    for (int c = 0; c < COLUMNS; c++)
      gd_mem_free(line->cells[c]);
    gd_mem_free(line);
  }
  gd_mem_free(table);
}

struct libscols_column *scols_table_new_column(struct libscols_table *table, const char *name,
                                               double hint, int flags) {
  (void)hint;
  if (table->n_columns == COLUMNS)
    return NULL;
  struct libscols_column *column = &table->columns[table->n_columns++];
  *column = (struct libscols_column){.name = name, .flags = flags};
  return column;
}

struct libscols_line *scols_table_new_line(struct libscols_table *table,
                                           struct libscols_line *parent) {
  struct libscols_line *line = gd_mem_alloc(1, sizeof *line);
  (void)parent;
  if (!line)
    return NULL;
  if (table->last)
    table->last->next = line;
  else
    table->lines = line;
  table->last = line;
  return line;
}

int scols_line_set_data(struct libscols_line *line, size_t column, const char *text) {
  size_t size = strlen(text) + 1;
  char *copy = column < COLUMNS ? gd_mem_alloc(size, 1) : NULL;
  if (!copy)
    return -1;
  memcpy(copy, text, size);
  gd_mem_free(line->cells[column]);
  line->cells[column] = copy;
  return 0;
}

int scols_table_set_stream(struct libscols_table *table, FILE *stream) {
  table->stream = stream;
  return 0;
}

int scols_table_set_column_separator(struct libscols_table *table, const char *text) {
  table->separator = text;
  return 0;
}

int scols_table_enable_nowrap(struct libscols_table *table, int on) {
  (void)table;
  (void)on;
  return 0;
}

int scols_table_set_termforce(struct libscols_table *table, int force) {
  (void)table;
  (void)force;
  return 0;
}

/* Characters of UTF-8 text: all bytes but those that continue one. */
static int width_of(const char *text) {
  int width = 0;
  for (; text && *text; text++)
    width += ((unsigned char)*text & 0xc0) != 0x80;
  return width;
}

static void print_cell(const struct libscols_table *table, int c, const char *text, int width) {
  int blanks = width - width_of(text);
  const char *shown = text ? text : "";
  if (table->columns[c].flags & SCOLS_FL_RIGHT)
    fprintf(table->stream, "%*s%s", blanks, "", shown);
  else
    fprintf(table->stream, "%s%*s", shown, c + 1 < table->n_columns ? blanks : 0, "");
  fputs(c + 1 < table->n_columns ? table->separator : "\n", table->stream);
}

int scols_print_table(struct libscols_table *table) {
  int widths[COLUMNS];
  for (int c = 0; c < table->n_columns; c++) {
    widths[c] = width_of(table->columns[c].name);
    for (const struct libscols_line *line = table->lines; line; line = line->next) {
      int width = width_of(line->cells[c]);
      widths[c] = width > widths[c] ? width : widths[c];
    }
  }
  for (int c = 0; c < table->n_columns; c++)
    print_cell(table, c, table->columns[c].name, widths[c]);
  for (const struct libscols_line *line = table->lines; line; line = line->next)
    for (int c = 0; c < table->n_columns; c++)
      print_cell(table, c, line->cells[c], widths[c]);
  return ferror(table->stream) ? -1 : 0;
}
