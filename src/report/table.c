/*
 * A table as HTML, with a value to sort by in every cell, and as CSV.
 */
#include <string.h>

#include "base/csv.h"
#include "report/html.h"
#include "report/report_int.h"

struct gd_report_table *gd_report_table_new(struct gd_arena *arena,
                                            const struct gd_report_column *columns, int n_columns,
                                            int rows) {
  struct gd_report_table *table = gd_arena_alloc(arena, 1, sizeof *table);
  struct gd_report_cell *cells =
      gd_arena_alloc(arena, (size_t)n_columns * (size_t)(rows > 0 ? rows : 1), sizeof *cells);
  if (!table || !cells)
    return NULL;
  *table = (struct gd_report_table){
      .columns = columns, .n_columns = n_columns, .cells = cells, .room = rows};
  return table;
}

struct gd_report_cell *gd_report_table_row(struct gd_report_table *table) {
  GD_ASSERT(table->n_rows < table->room);
  struct gd_report_cell *row = table->cells + (ptrdiff_t)table->n_rows++ * table->n_columns;
  for (int i = 0; i < table->n_columns; i++)
    row[i].value = (double)NAN;
  return row;
}

static bool same_group(const struct gd_report_column *a, const struct gd_report_column *b) {
  return a->group == b->group || (a->group && b->group && strcmp(a->group, b->group) == 0);
}

static void group_row(const struct gd_report_table *table, struct gd_strbuf *out) {
  bool any = false;
  for (int i = 0; i < table->n_columns; i++)
    any = any || table->columns[i].group;
  if (!any)
    return;
  gd_strbuf_append(out, "<tr class=\"groups\">");
  for (int i = 0, next; i < table->n_columns; i = next) {
    for (next = i + 1; next < table->n_columns; next++)
      if (!same_group(&table->columns[i], &table->columns[next]))
        break;
    if (table->columns[i].group) {
      gd_strbuf_printf(out, "<th scope=\"colgroup\" colspan=\"%d\">", next - i);
      gd_html_text(out, table->columns[i].group);
      gd_strbuf_append(out, "</th>");
    } else {
      gd_strbuf_printf(out, "<td colspan=\"%d\"></td>", next - i);
    }
  }
  gd_strbuf_append(out, "</tr>\n");
}

/* The first column of a group has a line before it. */
static bool starts_group(const struct gd_report_table *table, int column) {
  return column > 0 && table->columns[column].group &&
         !same_group(&table->columns[column - 1], &table->columns[column]);
}

static void append_class(struct gd_strbuf *out, bool number, bool edge, const char *class_name) {
  if (number || edge || class_name)
    gd_strbuf_printf(out, " class=\"%s%s%s%s%s\"", number ? "n" : "", number && edge ? " " : "",
                     edge ? "edge" : "", (number || edge) && class_name ? " " : "",
                     class_name ? class_name : "");
}

static void cell_html(const struct gd_report_table *table, const struct gd_report_cell *cell,
                      int column, struct gd_strbuf *out) {
  const char *tag = column == 0 ? "th" : "td";
  gd_strbuf_printf(out, "<%s", tag);
  if (column == 0)
    gd_strbuf_append(out, " scope=\"row\"");
  append_class(out, table->columns[column].number, starts_group(table, column), cell->class_name);
  if (isfinite(cell->value)) {
    gd_strbuf_append(out, " data-v=\"");
    gd_csv_append_number(out, cell->value);
    gd_strbuf_append(out, "\"");
  }
  gd_strbuf_append(out, ">");
  if (cell->href) {
    gd_strbuf_append(out, "<a href=\"");
    gd_html_text(out, cell->href);
    gd_strbuf_append(out, "\">");
  }
  gd_html_text(out, cell->text ? cell->text : "");
  gd_strbuf_printf(out, "%s</%s>", cell->href ? "</a>" : "", tag);
}

void gd_report_table_html(const struct gd_report_table *table, struct gd_strbuf *out) {
  gd_strbuf_printf(out, "<table class=\"sortable%s\">\n", table->prose ? " prose" : "");
  gd_strbuf_append(out, "<thead>\n");
  group_row(table, out);
  gd_strbuf_append(out, "<tr>");
  for (int i = 0; i < table->n_columns; i++) {
    gd_strbuf_append(out, "<th scope=\"col\"");
    append_class(out, table->columns[i].number, starts_group(table, i), NULL);
    gd_strbuf_append(out, ">");
    gd_html_text(out, table->columns[i].title);
    gd_strbuf_append(out, "</th>");
  }
  gd_strbuf_append(out, "</tr>\n</thead>\n<tbody>\n");
  for (int row = 0; row < table->n_rows; row++) {
    gd_strbuf_append(out, "<tr>");
    for (int i = 0; i < table->n_columns; i++)
      cell_html(table, &table->cells[(ptrdiff_t)row * table->n_columns + i], i, out);
    gd_strbuf_append(out, "</tr>\n");
  }
  gd_strbuf_append(out, "</tbody>\n</table>\n");
}

void gd_report_table_csv(const struct gd_report_table *table, struct gd_strbuf *out) {
  for (int i = 0; i < table->n_columns; i++) {
    const struct gd_report_column *column = &table->columns[i];
    struct gd_strbuf name = {0};
    gd_strbuf_printf(&name, "%s%s%s", column->group ? column->group : "",
                     column->group ? " x " : "", column->title);
    gd_strbuf_append(out, i ? "," : "");
    gd_csv_append_cell(out, name.text ? name.text : "");
    out->failed = out->failed || name.failed;
    gd_strbuf_deinit(&name);
  }
  gd_strbuf_append(out, "\n");
  for (int row = 0; row < table->n_rows; row++) {
    for (int i = 0; i < table->n_columns; i++) {
      const struct gd_report_cell *cell = &table->cells[(ptrdiff_t)row * table->n_columns + i];
      gd_strbuf_append(out, i ? "," : "");
      if (isfinite(cell->value))
        gd_csv_append_number(out, cell->value);
      else if (!table->columns[i].number && cell->text)
        gd_csv_append_cell(out, cell->text);
    }
    gd_strbuf_append(out, "\n");
  }
}
