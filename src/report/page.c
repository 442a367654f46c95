/*
 * The page around its parts, and the files of an older report, which go. Style and script are
 * data/report/page.css and page.js, inside the program and inside the page.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/file.h"
#include "gd_version.h"
#include "report/html.h"
#include "report/report_int.h"

/* --- the page ------------------------------------------------------------------------------ */

static const char *embedded(const char *path) {
  const struct gd_embedded_file *file = gd_embedded_find(path);
  return file ? file->text : "";
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
  gd_strbuf_append(out,
                   "<header>\n<h1>Pre-training on the GPUs at hand</h1>\n<p class=\"lead\">"
                   "How long, how much, and with which settings: what was measured and trained "
                   "here, what it would cost, and the tables and figures of &ldquo;$100K or 100 "
                   "Days&rdquo; (arXiv 2410.23261) as an appendix.</p>\n<p class=\"made\">");
  gd_html_text(out, report->made_at);
  gd_strbuf_append(out, "</p>\n<button type=\"button\" id=\"theme\" hidden>Theme: system</button>\n"
                        "</header>\n");
}

/* The body with its figures in their places. */
static void append_body(struct gd_report *report, struct gd_strbuf *out) {
  size_t from = 0;
  for (uint32_t i = 0; i < report->n_places; i++) {
    const struct gd_report_place *place = &report->places[i];
    gd_strbuf_append_bytes(out, report->body.text + from, place->offset - from);
    gd_strbuf_append(out, gd_plot_batch_svg(report->batch, place->figure));
    from = place->offset;
  }
  if (report->body.text)
    gd_strbuf_append(out, report->body.text + from);
}

enum gd_status gd_report_write_page(struct gd_report *report, struct gd_error *err) {
  struct gd_strbuf page = {0};
  if (report->body.failed)
    return gd_report_no_memory(err); /* then the places in it are not where they were */
  append_head(&page);
  append_header(report, &page);
  gd_strbuf_append(&page, "<nav aria-label=\"Contents\"><details open><summary>Contents</summary>"
                          "<ul>\n");
  gd_strbuf_append(&page, report->contents.text ? report->contents.text : "");
  gd_strbuf_append(&page, "</ul></details></nav>\n<main id=\"content\" tabindex=\"-1\">\n");
  append_body(report, &page);
  gd_strbuf_append(&page, "</main>\n<footer>Made by gpudays " GD_VERSION " (" GD_COMMIT
                          "). This page needs no network; the files next to it hold every figure "
                          "and table.</footer>\n<script>\n");
  gd_strbuf_append(&page, embedded("report/page.js"));
  gd_strbuf_append(&page, "</script>\n</body>\n</html>\n");
  page.failed = page.failed || report->body.failed || report->contents.failed;
  enum gd_status status = gd_report_write_text(report, "index", "html", &page, err);
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
