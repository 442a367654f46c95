/*
 * The parts of the page: sections, tables and figures with their files, and the page around them.
 * Style and script are data/report/page.css and page.js, inside the program and inside the page.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/csv.h"
#include "base/embedded.h"
#include "base/file.h"
#include "gd_version.h"
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

void gd_report_chapter(struct gd_report *report, const char *title) {
  if (report->chapter)
    gd_strbuf_append(&report->contents, "</ul></li>\n");
  gd_strbuf_append(&report->contents, "<li>");
  gd_html_element(&report->contents, "span", NULL, title);
  gd_strbuf_append(&report->contents, "<ul>\n");
  gd_html_element(&report->body, "h2", "chapter", title);
  report->chapter = true;
}

void gd_report_begin(struct gd_report *report, const char *anchor, const char *kind,
                     const char *title) {
  gd_strbuf_printf(&report->contents, "<li><a href=\"#%s\"><b>", anchor);
  gd_html_text(&report->contents, kind);
  gd_strbuf_append(&report->contents, "</b> ");
  gd_html_text(&report->contents, title);
  gd_strbuf_append(&report->contents, "</a></li>\n");
  gd_strbuf_printf(&report->body,
                   "<section id=\"%s\" aria-labelledby=\"%s-title\">\n<h3 id=\"%s-title\"><a "
                   "class=\"kind\" href=\"#%s\">",
                   anchor, anchor, anchor, anchor);
  gd_html_text(&report->body, kind);
  gd_strbuf_append(&report->body, "</a> ");
  gd_html_text(&report->body, title);
  gd_strbuf_append(&report->body, "</h3>\n");
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

static enum gd_status write_text(struct gd_report *report, const char *name, const char *ending,
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

static void begin_block(struct gd_report *report, const struct gd_report_block *block) {
  gd_strbuf_printf(&report->body, "<figure id=\"%s\" class=\"%s\">\n<figcaption>", block->name,
                   sources[block->source].class_name);
  gd_report_chip(&report->body, block->source);
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

/* Wide content scrolls by itself, also by keys. */
static void begin_scroll(struct gd_report *report, const char *class_name, const char *label) {
  gd_strbuf_printf(&report->body,
                   "<div class=\"scroll %s\" tabindex=\"0\" role=\"group\" aria-label=\"",
                   class_name);
  gd_html_text(&report->body, label);
  gd_strbuf_append(&report->body, "\">\n");
}

enum gd_status gd_report_add_table(struct gd_report *report, const struct gd_report_block *block,
                                   const struct gd_report_table *table, struct gd_error *err) {
  struct gd_strbuf csv = {0};
  if (!table)
    return gd_report_no_memory(err);
  gd_report_table_csv(table, &csv);
  enum gd_status status = write_text(report, block->name, "csv", &csv, err);
  gd_strbuf_deinit(&csv);
  begin_block(report, block);
  begin_scroll(report, "wide", block->caption);
  gd_report_table_html(table, &report->body);
  gd_strbuf_append(&report->body, "</div>\n");
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
  gd_strbuf_append(out, "</tbody></table></div></details>\n");
  gd_csv_deinit(&csv);
  return GD_OK;
}

enum gd_status gd_report_add_plot(struct gd_report *report, const struct gd_report_block *block,
                                  const struct gd_plot *plot, struct gd_error *err) {
  struct gd_strbuf csv = {0};
  struct gd_plot file = *plot, inside = *plot;
  file.note = block->from;
  inside.title = NULL;
  inside.width = report->paired ? 520 : 0; /* so that its texts are as large as others' */
  inside.alt =
      plot->title ? gd_report_print(report, "%s. %s", plot->title, block->caption) : block->caption;
  inside.note = NULL;
  enum gd_status status = GD_OK;
  gd_plot_csv(plot, &csv);
  begin_block(report, block);
  if (report->draws) {
    begin_scroll(report, "drawing", plot->title ? plot->title : block->caption);
    status =
        gd_plot_write_both(&file, &inside, report->order->folder, block->name, &report->body, err);
    gd_strbuf_append(&report->body, "</div>\n");
    note_file(report, block->name, "csv");
    note_file(report, block->name, "svg");
    note_file(report, block->name, "png");
  } else {
    status = write_text(report, block->name, "csv", &csv, err);
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

/* --- the page ------------------------------------------------------------------------------ */

static const char *embedded(const char *path) {
  for (int i = 0; i < gd_embedded_file_count; i++)
    if (strcmp(gd_embedded_files[i].path, path) == 0)
      return gd_embedded_files[i].text;
  return "";
}

static void append_head(struct gd_strbuf *out) {
  gd_strbuf_append(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                        "<meta name=\"color-scheme\" content=\"light dark\">\n"
                        "<meta name=\"generator\" content=\"gpudays " GD_VERSION "\">\n"
                        "<link rel=\"icon\" href=\"data:,\">\n"
                        "<title>gpudays report: days, methods and cost of pre-training</title>\n"
                        "<style>\n");
  gd_strbuf_append(out, embedded("report/page.css"));
  gd_strbuf_append(out, "</style>\n</head>\n<body>\n"
                        "<a class=\"skip\" href=\"#content\">Skip to the content</a>\n");
}

static void append_header(struct gd_report *report, struct gd_strbuf *out) {
  gd_strbuf_append(out, "<header>\n<h1>Pre-training on the GPUs at hand</h1>\n<p class=\"lead\">"
                        "How long, how much, and with which settings: the tables and figures of "
                        "&ldquo;$100K or 100 Days&rdquo; (arXiv 2410.23261) next to what was "
                        "measured here.</p>\n<p class=\"made\">");
  gd_html_text(out, report->made_at);
  gd_strbuf_append(out, "</p>\n<button type=\"button\" id=\"theme\" hidden>Theme: system</button>\n"
                        "</header>\n");
}

enum gd_status gd_report_write_page(struct gd_report *report, struct gd_error *err) {
  struct gd_strbuf page = {0};
  append_head(&page);
  append_header(report, &page);
  gd_strbuf_append(&page, "<nav aria-label=\"Contents\"><details open><summary>Contents</summary>"
                          "<ul>\n");
  gd_strbuf_append(&page, report->contents.text ? report->contents.text : "");
  gd_strbuf_printf(&page, "%s</ul></details></nav>\n<main id=\"content\" tabindex=\"-1\">\n",
                   report->chapter ? "</ul></li>\n" : "");
  gd_strbuf_append(&page, report->body.text ? report->body.text : "");
  gd_strbuf_append(&page, "</main>\n<footer>Made by gpudays " GD_VERSION " (" GD_COMMIT
                          "). This page needs no network; the files next to it hold every figure "
                          "and table.</footer>\n<script>\n");
  gd_strbuf_append(&page, embedded("report/page.js"));
  gd_strbuf_append(&page, "</script>\n</body>\n</html>\n");
  page.failed = page.failed || report->body.failed || report->contents.failed;
  enum gd_status status = write_text(report, "index", "html", &page, err);
  gd_strbuf_deinit(&page);
  return status;
}

/* --- files of an older report ---------------------------------------------------------------- */

/* A name as this program gives them: nothing outside the folder, nothing of the user's own. */
static bool is_ours(const char *name) {
  size_t plain = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.");
  const char *ending = strrchr(name, '.');
  return name[plain] == '\0' && name[0] != '.' && ending &&
         (strcmp(ending, ".csv") == 0 || strcmp(ending, ".svg") == 0 ||
          strcmp(ending, ".png") == 0);
}

static bool is_listed(const struct gd_strbuf *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list->text ? list->text : ""; *at;) {
    size_t line = strcspn(at, "\n");
    if (line == length && strncmp(at, name, length) == 0)
      return true;
    at += line + (at[line] == '\n');
  }
  return false;
}

static void remove_old(struct gd_report *report, const struct gd_strbuf *old) {
  char name[256], path[GD_REPORT_PATH + 256];
  for (const char *at = old->text ? old->text : ""; *at;) {
    size_t line = strcspn(at, "\n");
    snprintf(name, sizeof name, "%.*s", (int)line, at);
    if (line < sizeof name && is_ours(name) && !is_listed(&report->files, name)) {
      snprintf(path, sizeof path, "%s/%s", report->order->folder, name);
      unlink(path);
    }
    at += line + (at[line] == '\n');
  }
}

enum gd_status gd_report_replace_files(struct gd_report *report, struct gd_error *err) {
  enum { MOST_BYTES = 1 << 20 };
  struct gd_strbuf old = {0};
  char path[GD_REPORT_PATH + 16];
  snprintf(path, sizeof path, "%s/files.txt", report->order->folder);
  bool had = gd_file_read(path, MOST_BYTES, &old, NULL) == GD_OK;
  enum gd_status status = report->files.failed || old.failed
                              ? gd_report_no_memory(err)
                              : gd_file_write(path, report->files.text, report->files.length, err);
  if (status == GD_OK && had)
    remove_old(report, &old);
  gd_strbuf_deinit(&old);
  return status;
}
