/*
 * The parts of the page: sections, tables and figures with their files.
 */
#include <stdio.h>
#include <string.h>

#include "base/csv.h"
#include "base/file.h"
#include "report/html.h"
#include "report/report_int.h"

static const struct {
  const char *class_name, *name;
} sources[] = {
    [GD_REPORT_PAPER] = {"paper", "Paper"},
    [GD_REPORT_MEASURED] = {"measured", "Measured"},
    [GD_REPORT_PREDICTED] = {"predicted", "Predicted"},
    [GD_REPORT_DATA] = {"data", "Data sheets"},
};

enum gd_status gd_report_no_memory(struct gd_error *err) {
  return gd_nomem(err, "while making the report");
}

const char *gd_report_keep(struct gd_report *report, const char *text) {
  report->body.failed = report->body.failed || !text;
  return text ? text : "";
}

/* --- sections ------------------------------------------------------------------------------ */

static void end_chapter(struct gd_report *report) {
  if (report->chapter)
    gd_strbuf_append(&report->contents, "</ul></li>\n");
  report->chapter = false;
}

void gd_report_chapter(struct gd_report *report, const char *anchor, const char *title) {
  const char *level = report->appendix ? "h3" : "h2";
  end_chapter(report);
  gd_strbuf_printf(&report->contents, "<li><a class=\"chapter\" href=\"#%s\">", anchor);
  gd_html_text(&report->contents, title);
  gd_strbuf_append(&report->contents, "</a><ul>\n");
  gd_strbuf_printf(&report->body, "<%s class=\"chapter\" id=\"%s\">", level, anchor);
  gd_html_text(&report->body, title);
  gd_strbuf_printf(&report->body, "</%s>\n", level);
  report->chapter = true;
}

void gd_report_appendix(struct gd_report *report, const char *anchor, const char *title) {
  end_chapter(report);
  gd_strbuf_append(&report->contents, "<li><details><summary>");
  gd_html_text(&report->contents, title);
  gd_strbuf_append(&report->contents, "</summary><ul>\n");
  gd_strbuf_printf(&report->body,
                   "<details class=\"appendix\" id=\"%s\"><summary><h2 class=\"chapter\">", anchor);
  gd_html_text(&report->body, title);
  gd_strbuf_append(&report->body, "</h2></summary>\n");
  report->appendix = true;
}

void gd_report_appendix_end(struct gd_report *report) {
  end_chapter(report);
  gd_strbuf_append(&report->contents, "</ul></details></li>\n");
  gd_strbuf_append(&report->body, "</details>\n");
  report->appendix = false;
}

void gd_report_begin(struct gd_report *report, const char *anchor, const char *kind,
                     const char *title) {
  const char *level = report->appendix ? "h4" : "h3";
  gd_strbuf_printf(&report->contents, "<li><a href=\"#%s\">", anchor);
  gd_strbuf_printf(&report->body,
                   "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<%s id=\"%s-title\">", anchor,
                   anchor, level, anchor);
  if (kind) {
    gd_strbuf_append(&report->contents, "<b>");
    gd_html_text(&report->contents, kind);
    gd_strbuf_append(&report->contents, "</b> ");
    gd_strbuf_printf(&report->body, "<a class=\"kind\" href=\"#%s\">", anchor);
    gd_html_text(&report->body, kind);
    gd_strbuf_append(&report->body, "</a> ");
  }
  gd_html_text(&report->contents, title);
  gd_strbuf_append(&report->contents, "</a></li>\n");
  gd_html_text(&report->body, title);
  gd_strbuf_printf(&report->body, "</%s>\n", level);
}

void gd_report_end(struct gd_report *report) {
  gd_strbuf_append(&report->body, "</section>\n");
}

void gd_report_text(struct gd_report *report, const char *text) {
  gd_html_element(&report->body, "p", NULL, text);
}

void gd_report_chip(struct gd_strbuf *out, enum gd_report_source source) {
  gd_strbuf_printf(out, "<span class=\"chip %s\">%s</span> ", sources[source].class_name,
                   sources[source].name);
}

void gd_report_lacks(struct gd_report *report, enum gd_report_source source, const char *text) {
  gd_strbuf_append(&report->body, "<p class=\"lacks\">");
  gd_report_chip(&report->body, source);
  gd_html_text(&report->body, text);
  gd_strbuf_append(&report->body, "</p>\n");
}

void gd_report_pair(struct gd_report *report, bool open) {
  gd_strbuf_append(&report->body, open ? "<div class=\"pair\">\n" : "</div>\n");
  report->paired = open;
}

void gd_report_fold(struct gd_report *report, const char *summary) {
  if (!summary) {
    gd_strbuf_append(&report->body, "</details>\n");
    return;
  }
  gd_strbuf_append(&report->body, "<details class=\"more\">");
  gd_html_element(&report->body, "summary", NULL, summary);
}

/* --- blocks -------------------------------------------------------------------------------- */

static void note_file(struct gd_report *report, const char *name, const char *ending) {
  gd_strbuf_printf(&report->files, "%s.%s\n", name, ending);
  report->made->files++;
}

enum gd_status gd_report_write_text(struct gd_report *report, const char *name, const char *ending,
                                    const struct gd_strbuf *text, struct gd_error *err) {
  struct gd_strbuf path = {0};
  gd_strbuf_printf(&path, "%s/%s.%s", report->order->folder, name, ending);
  enum gd_status status =
      text->failed || path.failed
          ? gd_report_no_memory(err)
          : gd_file_write(path.text, text->text ? text->text : "", text->length, err);
  gd_strbuf_deinit(&path);
  note_file(report, name, ending);
  return status;
}

/* title: of a figure, or NULL. */
static void begin_block(struct gd_report *report, const struct gd_report_block *block,
                        const char *title) {
  gd_strbuf_printf(&report->body, "<figure id=\"%s\" class=\"%s\">\n<figcaption>", block->name,
                   sources[block->source].class_name);
  gd_report_chip(&report->body, block->source);
  if (title) {
    gd_strbuf_append(&report->body, "<b>");
    gd_html_text(&report->body, title);
    gd_strbuf_append(&report->body, "</b><br>");
  }
  gd_html_text(&report->body, block->caption);
  gd_strbuf_append(&report->body, "</figcaption>\n");
}

static void end_block(struct gd_report *report, const struct gd_report_block *block, bool drawn) {
  gd_strbuf_append(&report->body, "<p class=\"from\">Source: ");
  gd_html_text(&report->body, block->from);
  gd_strbuf_append(&report->body, " <span class=\"files\">");
  if (drawn)
    gd_strbuf_printf(&report->body, "<a href=\"%s.svg\">SVG</a> <a href=\"%s.png\">PNG</a> ",
                     block->name, block->name);
  gd_strbuf_printf(&report->body, "<a href=\"%s.csv\">CSV</a></span></p>\n</figure>\n",
                   block->name);
}

/* Wide content scrolls by itself, also by keys; the box around it shows that there is more. */
static void begin_scroll(struct gd_report *report, const char *class_name, const char *label) {
  gd_strbuf_printf(&report->body,
                   "<div class=\"box\"><div class=\"scroll %s\" tabindex=\"0\" role=\"group\" "
                   "aria-label=\"",
                   class_name);
  gd_html_text(&report->body, label);
  gd_strbuf_append(&report->body, "\">\n");
}

static void end_scroll(struct gd_report *report) {
  gd_strbuf_append(&report->body, "</div></div>\n");
}

enum gd_status gd_report_add_table(struct gd_report *report, const struct gd_report_block *block,
                                   const struct gd_report_table *table, struct gd_error *err) {
  struct gd_strbuf csv = {0};
  if (!table)
    return gd_report_no_memory(err);
  gd_report_table_csv(table, &csv);
  enum gd_status status = gd_report_write_text(report, block->name, "csv", &csv, err);
  gd_strbuf_deinit(&csv);
  begin_block(report, block, NULL);
  begin_scroll(report, "wide", block->caption);
  gd_report_table_html(table, &report->body);
  end_scroll(report);
  end_block(report, block, false);
  report->made->tables++;
  return status;
}

/* The numbers of a figure, for those who cannot see it and those who want them. */
static enum gd_status numbers_html(struct gd_report *report, const struct gd_report_block *block,
                                   const struct gd_strbuf *text, struct gd_error *err) {
  struct gd_csv csv = {0};
  struct gd_strbuf *out = &report->body;
  GD_TRY(gd_csv_parse(&csv, block->name, text->text, (int64_t)text->length, err));
  gd_strbuf_printf(out, "<details%s><summary>Numbers</summary>\n", report->draws ? "" : " open");
  begin_scroll(report, "wide", "Numbers of the figure");
  gd_strbuf_append(out, "<table class=\"sortable\">\n<thead><tr>");
  for (int i = 0; i < csv.columns; i++) {
    gd_strbuf_append(out, "<th scope=\"col\">");
    gd_html_text(out, csv.header[i]);
    gd_strbuf_append(out, "</th>");
  }
  gd_strbuf_append(out, "</tr></thead>\n<tbody>\n");
  for (int row = 0; row < csv.rows; row++) {
    gd_strbuf_append(out, "<tr>");
    for (int i = 0; i < csv.columns; i++) {
      const char *cell = gd_csv_cell(&csv, row, i);
      double value;
      char shown[48];
      if (gd_csv_number(&csv, row, i, -1e300, 1e300, &value, NULL) == GD_OK) {
        gd_format_digits(shown, sizeof shown, value, 4);
        gd_strbuf_printf(out, "<td class=\"n\" data-v=\"%s\">", cell);
        gd_html_text(out, fabs(value - round(value)) > 0 || fabs(value) >= 1e15
                              ? shown
                              : gd_format_count(shown, sizeof shown, (int64_t)value));
      } else {
        gd_strbuf_append(out, "<td>");
        gd_html_text(out, cell);
      }
      gd_strbuf_append(out, "</td>");
    }
    gd_strbuf_append(out, "</tr>\n");
  }
  gd_strbuf_append(out, "</tbody></table>\n");
  end_scroll(report);
  gd_strbuf_append(out, "</details>\n");
  gd_csv_deinit(&csv);
  return GD_OK;
}

/* Remembers where the figure that is added now goes. */
static enum gd_status add_place(struct gd_report *report, struct gd_error *err) {
  if (!gd_vec_reserve((void **)&report->places, &report->places_room, report->n_places + 1,
                      sizeof *report->places))
    return gd_report_no_memory(err);
  report->places[report->n_places++] =
      (struct gd_report_place){report->body.length, report->n_drawn++};
  return GD_OK;
}

enum gd_status gd_report_write_plot(struct gd_report *report, const char *name,
                                    const struct gd_plot *plot, struct gd_error *err) {
  struct gd_strbuf csv = {0};
  if (report->draws) {
    report->n_drawn++;
    note_file(report, name, "csv");
    note_file(report, name, "svg");
    return gd_plot_batch_add(report->batch, plot, NULL, report->order->folder, name, err);
  }
  gd_plot_csv(plot, &csv);
  enum gd_status status = gd_report_write_text(report, name, "csv", &csv, err);
  gd_strbuf_deinit(&csv);
  return status;
}

enum gd_status gd_report_add_plot(struct gd_report *report, const struct gd_report_block *block,
                                  const struct gd_plot *plot, struct gd_error *err) {
  enum { HALF = 450 }; /* of the page's width at 1280 pixels, so that no text is scaled there */
  struct gd_strbuf csv = {0};
  struct gd_plot file = *plot, inside = *plot;
  file.note = block->from;
  inside.title = NULL;
  inside.width = report->paired ? HALF : plot->width;
  inside.alt =
      plot->title ? gd_report_print(report, "%s. %s", plot->title, block->caption) : block->caption;
  inside.note = NULL;
  enum gd_status status = GD_OK;
  gd_plot_csv(plot, &csv);
  begin_block(report, block, plot->title);
  if (report->draws) {
    begin_scroll(report, "drawing", plot->title ? plot->title : block->caption);
    status = add_place(report, err);
    if (status == GD_OK)
      status =
          gd_plot_batch_add(report->batch, &file, &inside, report->order->folder, block->name, err);
    end_scroll(report);
    note_file(report, block->name, "csv");
    note_file(report, block->name, "svg");
    note_file(report, block->name, "png");
  } else {
    status = gd_report_write_text(report, block->name, "csv", &csv, err);
  }
  if (status == GD_OK)
    status = numbers_html(report, block, &csv, err);
  gd_strbuf_deinit(&csv);
  end_block(report, block, report->draws);
  report->made->figures++;
  return status;
}

static bool speaks_of(const struct gd_paper_statement *statement, const char *figure) {
  const char *found = strstr(statement->where, figure);
  char after = found ? found[strlen(figure)] : '0';
  return found && !(after >= '0' && after <= '9'); /* Figure 1 is not Figure 11 */
}

enum gd_status gd_report_add_statements(struct gd_report *report, const char *name,
                                        const char *figure, struct gd_error *err) {
  static const struct gd_report_column columns[] = {{"What the text states", NULL, false},
                                                    {"Value", NULL, true},
                                                    {"Unit", NULL, false},
                                                    {"Where", NULL, false}};
  const struct gd_paper *paper = &report->paper;
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, columns, 4, paper->n_statements);
  if (table)
    table->prose = true;
  for (int i = 0; i < paper->n_statements && table; i++) {
    const struct gd_paper_statement *statement = &paper->statements[i];
    char text[48];
    if (!speaks_of(statement, figure))
      continue;
    struct gd_report_cell *row = gd_report_table_row(table);
    row[0].text = statement->text;
    row[1].text =
        gd_report_print(report, "%s",
                        gd_format_number(text, sizeof text, statement->value,
                                         fabs(statement->value - round(statement->value)) > 0));
    row[1].value = statement->value;
    row[2].text = statement->unit;
    row[3].text = statement->where;
  }
  return gd_report_add_table(
      report,
      &(struct gd_report_block){
          name, gd_report_print(report, "Numbers that the text states of %s.", figure),
          GD_REPORT_PAPER, "arXiv 2410.23261, 2024-10-30, in our words"},
      table, err);
}
