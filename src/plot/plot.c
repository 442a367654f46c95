/*
 * A figure as files: data as CSV, and what gnuplot makes of the script (plot_script.c). gnuplot
 * runs as a child, in a folder of its own under $TMPDIR; what it drew is read from there, so that
 * no name of the user's gets into a script.
 */
#define _GNU_SOURCE
#include "plot/plot.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/csv.h"
#include "base/file.h"
#include "base/process.h"
#include "base/scratch.h"
#include "plot/plot_int.h"

enum { MOST_BYTES = 64 << 20 }; /* of a drawing */

/* --- data ---------------------------------------------------------------------------------- */

/* A row for each point. */
static void points_csv(const struct gd_plot *plot, struct gd_strbuf *out) {
  bool errors = false, labels = false;
  for (int s = 0; s < plot->n_series; s++) {
    errors = errors || (plot->series[s].low && plot->series[s].high);
    labels = labels || plot->series[s].labels;
  }
  gd_strbuf_append(out, "series,");
  gd_csv_append_cell(out, plot->x_label ? plot->x_label : "x");
  gd_strbuf_append(out, ",");
  gd_csv_append_cell(out, plot->y_label ? plot->y_label : "y");
  gd_strbuf_printf(out, "%s%s\n", errors ? ",low,high" : "", labels ? ",label" : "");
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count; i++) {
      const struct gd_plot_series *series = &plot->series[s];
      gd_csv_append_cell(out, series->name);
      gd_strbuf_append(out, ",");
      gd_csv_append_number(out, series->x[i]);
      gd_strbuf_append(out, ",");
      gd_csv_append_number(out, series->y[i]);
      if (errors) {
        gd_strbuf_append(out, ",");
        gd_csv_append_number(out, series->low ? series->low[i] : (double)NAN);
        gd_strbuf_append(out, ",");
        gd_csv_append_number(out, series->high ? series->high[i] : (double)NAN);
      }
      if (labels)
        gd_strbuf_append(out, ",");
      if (labels && series->labels && series->labels[i])
        gd_csv_append_cell(out, series->labels[i]);
      gd_strbuf_append(out, "\n");
    }
}

/* Like the drawing: a row for each series, a column for each category. */
static void cells_csv(const struct gd_plot *plot, struct gd_strbuf *out) {
  gd_csv_append_cell(out, plot->y_label ? plot->y_label : "row");
  for (int i = 0; i < plot->n_categories; i++) {
    gd_strbuf_append(out, ",");
    gd_csv_append_cell(out, plot->categories[i]);
  }
  gd_strbuf_append(out, "\n");
  for (int s = 0; s < plot->n_series; s++) {
    gd_csv_append_cell(out, plot->series[s].name);
    for (int i = 0; i < plot->n_categories; i++) {
      double value = i < plot->series[s].count ? plot->series[s].y[i] : (double)NAN;
      gd_strbuf_append(out, ",");
      if (plot->n_classes > 0 && value >= 0 && value < plot->n_classes)
        gd_csv_append_cell(out, plot->classes[(int)value]);
      else
        gd_csv_append_number(out, value);
    }
    gd_strbuf_append(out, "\n");
  }
}

/* A row for each category, a column for each series, then its interval where it has one. */
static void categories_csv(const struct gd_plot *plot, struct gd_strbuf *out) {
  gd_csv_append_cell(out, plot->x_label ? plot->x_label : "category");
  for (int s = 0; s < plot->n_series; s++) {
    const struct gd_plot_series *series = &plot->series[s];
    struct gd_strbuf name = {0};
    for (int part = 0; part < (series->low && series->high ? 3 : 1); part++) {
      name.length = 0;
      gd_strbuf_printf(&name, "%s%s", series->name, part == 0 ? "" : part == 1 ? " low" : " high");
      gd_strbuf_append(out, ",");
      gd_csv_append_cell(out, name.text ? name.text : "");
    }
    gd_strbuf_deinit(&name);
  }
  gd_strbuf_append(out, "\n");
  for (int i = 0; i < plot->n_categories; i++) {
    gd_csv_append_cell(out, plot->categories[i]);
    for (int s = 0; s < plot->n_series; s++) {
      const struct gd_plot_series *series = &plot->series[s];
      const double *parts[] = {series->y, series->low, series->high};
      for (int part = 0; part < (series->low && series->high ? 3 : 1); part++) {
        gd_strbuf_append(out, ",");
        if (i < series->count)
          gd_csv_append_number(out, parts[part][i]);
      }
    }
    gd_strbuf_append(out, "\n");
  }
}

void gd_plot_csv(const struct gd_plot *plot, struct gd_strbuf *out) {
  switch (plot->kind) {
  case GD_PLOT_BARS:
  case GD_PLOT_STACKED: categories_csv(plot, out); break;
  case GD_PLOT_SCATTER:
  case GD_PLOT_LINES: points_csv(plot, out); break;
  case GD_PLOT_CELLS: cells_csv(plot, out); break;
  }
}

/* --- gnuplot ------------------------------------------------------------------------------- */

static enum gd_status fail_missing(const char *why, struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT,
                 "figures need gnuplot, and it does not run here (%s); install it: apt-get install "
                 "gnuplot-nox",
                 why);
}

enum gd_status gd_plot_works(struct gd_error *err) {
  static const char *const arguments[] = {"gnuplot", "--version", NULL};
  struct gd_process_output output;
  struct gd_error why = {0};
  enum gd_status status = gd_process_run(arguments, 30, &output, &why);
  bool fine = status == GD_OK && output.code == 0;
  gd_process_output_deinit(&output);
  if (status != GD_OK)
    return fail_missing(why.text, err);
  return fine ? GD_OK : fail_missing("gnuplot --version failed", err);
}

/* The files of one drawing, in a folder that nobody else has. */
struct workshop {
  struct gd_scratch folder;
  char script[PATH_MAX + 16], svg[PATH_MAX + 16], png[PATH_MAX + 16], inside[PATH_MAX + 16];
};

static enum gd_status open_workshop(struct workshop *shop, struct gd_error *err) {
  GD_TRY(gd_scratch_open(&shop->folder, NULL, "gpudays-plot-", err));
  const char *folder = shop->folder.path;
  snprintf(shop->script, sizeof shop->script, "%s/figure.gp", folder);
  snprintf(shop->svg, sizeof shop->svg, "%s/figure.svg", folder);
  snprintf(shop->png, sizeof shop->png, "%s/figure.png", folder);
  snprintf(shop->inside, sizeof shop->inside, "%s/inside.svg", folder);
  return GD_OK;
}

/* In single quotes nothing but the quote itself has a meaning. */
static void append_output(struct gd_strbuf *script, const char *path) {
  gd_strbuf_append(script, "set output '");
  for (; *path; path++)
    gd_strbuf_printf(script, "%s%c", *path == '\'' ? "'" : "", *path);
  gd_strbuf_append(script, "'\n");
}

static void append_svg(const struct gd_plot *plot, const char *path, struct gd_strbuf *script) {
  int width, height;
  gd_plot_size(plot, &width, &height);
  gd_strbuf_printf(
      script,
      "reset\nset terminal svg size %d,%d dynamic noenhanced font 'sans-serif,13' name 'gd'\n",
      width, height);
  append_output(script, path);
  gd_plot_script(plot, script);
}

/* The last drawing again as PNG, with twice the pixels, so that it is sharp on screens and in
   print. Font sizes are pixels in the SVG and points of 4/3 pixels here. */
static void append_png(const struct gd_plot *plot, const char *path, struct gd_strbuf *script) {
  int width, height;
  gd_plot_size(plot, &width, &height);
  gd_strbuf_printf(script,
                   "set terminal pngcairo size %d,%d noenhanced font 'sans-serif,13' fontscale 1.5 "
                   "linewidth 2 pointscale 2 background rgb 'white'\n",
                   2 * width, 2 * height);
  append_output(script, path);
  gd_strbuf_append(script, "replot\n");
}

/* file: as SVG and PNG; inside, where it is not NULL: as SVG. */
static enum gd_status draw(const struct workshop *shop, const struct gd_plot *file,
                           const struct gd_plot *inside, struct gd_error *err) {
  const char *arguments[] = {"gnuplot", shop->script, NULL};
  struct gd_strbuf script = {0};
  struct gd_process_output output = {0};
  struct gd_error why = {0};
  append_svg(file, shop->svg, &script);
  append_png(file, shop->png, &script);
  if (inside)
    append_svg(inside, shop->inside, &script);
  gd_strbuf_append(&script, "unset output\n");
  enum gd_status status = GD_OK;
  if (script.failed)
    status = gd_nomem(err, "while drawing a figure");
  if (status == GD_OK)
    status = gd_file_write(shop->script, script.text, script.length, err);
  gd_strbuf_deinit(&script);
  if (status != GD_OK)
    return status;
  status = gd_process_run(arguments, 120, &output, &why);
  if (status != GD_OK)
    status = fail_missing(why.text, err);
  else if (output.code != 0)
    status = gd_fail(err, GD_ENVIRONMENT, "gnuplot ended with code %d: %.400s", output.code,
                     output.errors.text ? output.errors.text : "it said nothing");
  gd_process_output_deinit(&output);
  return status;
}

/* --- SVG ----------------------------------------------------------------------------------- */

static void append_escaped(struct gd_strbuf *out, const char *text) {
  for (size_t bytes; *text; text += bytes) {
    bool shown = gd_text_shown(text, &bytes);
    switch (*text) {
    case '&': gd_strbuf_append(out, "&amp;"); break;
    case '<': gd_strbuf_append(out, "&lt;"); break;
    case '>': gd_strbuf_append(out, "&gt;"); break;
    case '"': gd_strbuf_append(out, "&quot;"); break;
    default: gd_strbuf_append_bytes(out, shown ? text : " ", shown ? bytes : 1);
    }
  }
}

/* What gnuplot writes (from), and what replaces it: before, then, where named, the figure's name
   and after. Ids become the figure's own, so that a page may hold many; texts get classes in
   addition to colours. */
static const struct {
  const char *from, *before, *after; /* before and after the name, where named */
  bool named;
} rewrites[] = {
    {"id='gp", "id='", "-gp", true},
    {"href='#gp", "href='#", "-gp", true},
    {"id='textbox'", "id='", "-textbox'", true},
    {"id='greybox'", "id='", "-greybox'", true},
    {"id=\"gnuplot_canvas\"", "id=\"", "-canvas\"", true},
    {"id=\"gd_plot_", "id=\"", "-plot-", true},
    {"fill=\"rgb(30,31,33)\"", "class=\"gd-ink\" fill=\"" GD_PLOT_INK "\"", NULL, false},
    {"fill=\"rgb(91,95,102)\"", "class=\"gd-muted\" fill=\"" GD_PLOT_MUTED "\"", NULL, false},
    {"stroke='rgb( 30,  31,  33)'", "class='gd-line' stroke='" GD_PLOT_INK "'", NULL, false},
    {"font-family=\":Bold\"", "font-family=\"sans-serif\" font-weight=\"bold\"", NULL, false},
};

/* Whether a place in the drawing is in a CDATA section; its texts hold no ]]> of their own. */
static bool is_in_cdata(const char *text, const char *at) {
  for (; at > text; at--)
    if (strncmp(at, "]]>", 3) == 0)
      return false;
    else if (strncmp(at, "<![CDATA[", 9) == 0)
      return true;
  return false;
}

/* The ]]> of a text: two sections share it where it is in one, as some versions of gnuplot write
   texts; elsewhere its end is escaped. Returns what follows. */
static const char *split_end(const char *text, const char *at, struct gd_strbuf *out) {
  const char *end = at + strlen(GD_PLOT_JOINER);
  if (is_in_cdata(text, at)) {
    gd_strbuf_append(out, "]]><![CDATA[");
    return end;
  }
  if (*end != '>') /* escaped already */
    return end;
  gd_strbuf_append(out, "&gt;");
  return end + 1;
}

/* The drawing without gnuplot's root element and title: append_root writes another one. */
static enum gd_status rewrite(const char *text, const char *name, struct gd_strbuf *out,
                              struct gd_error *err) {
  const char *at = strstr(text, "<g id=\"gnuplot_canvas\">");
  if (!at || !strstr(at, "</svg>"))
    return gd_fail(err, GD_ENVIRONMENT, "gnuplot wrote an SVG that is not whole");
  while (*at) {
    if (strncmp(at, GD_PLOT_JOINER, strlen(GD_PLOT_JOINER)) == 0) {
      at = split_end(text, at, out);
      continue;
    }
    size_t next = 0, count = sizeof rewrites / sizeof *rewrites;
    for (; next < count; next++)
      if (strncmp(at, rewrites[next].from, strlen(rewrites[next].from)) == 0)
        break;
    if (next < count) {
      gd_strbuf_append(out, rewrites[next].before);
      if (rewrites[next].named)
        gd_strbuf_printf(out, "%s%s", name, rewrites[next].after);
      at += strlen(rewrites[next].from);
      continue;
    }
    size_t length = 1 + strcspn(at + 1, "ihfs\xe2");
    gd_strbuf_append_bytes(out, at, length);
    at += length;
  }
  return GD_OK;
}

static void append_root(const struct gd_plot *plot, bool alone, struct gd_strbuf *out) {
  int width, height;
  gd_plot_size(plot, &width, &height);
  if (alone)
    gd_strbuf_append(out, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n");
  gd_strbuf_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" "
                   "xmlns:xlink=\"http://www.w3.org/1999/xlink\" viewBox=\"0 0 %d %d\" "
                   "width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"",
                   width, height, width, height);
  const char *alt = plot->alt ? plot->alt : plot->title;
  append_escaped(out, alt ? alt : "figure");
  gd_strbuf_append(out, "\">\n");
  if (alone)
    gd_strbuf_append(out, "<style>svg{background:#fff}"
                          "@media(prefers-color-scheme:dark){svg{background:#14171b}"
                          ".gd-ink{fill:#e8eaed}.gd-muted{fill:#a7adb5}.gd-line{stroke:#e8eaed}}"
                          "</style>\n");
}

static enum gd_status take_svg(const struct gd_plot *plot, const char *path, const char *name,
                               bool alone, struct gd_strbuf *out, struct gd_error *err) {
  struct gd_strbuf drawn = {0};
  enum gd_status status = gd_file_read(path, MOST_BYTES, &drawn, err);
  if (status == GD_OK) {
    append_root(plot, alone, out);
    status = rewrite(drawn.text ? drawn.text : "", name, out, err);
  }
  if (status == GD_OK && out->failed)
    status = gd_nomem(err, "while drawing a figure");
  gd_strbuf_deinit(&drawn);
  return status;
}

/* --- files --------------------------------------------------------------------------------- */

static enum gd_status write_part(const char *dir, const char *name, const char *ending,
                                 const struct gd_strbuf *text, struct gd_error *err) {
  struct gd_strbuf path = {0};
  gd_strbuf_printf(&path, "%s/%s.%s", dir, name, ending);
  enum gd_status status =
      text->failed || path.failed
          ? gd_nomem(err, "while writing %s.%s", name, ending)
          : gd_file_write(path.text, text->text ? text->text : "", text->length, err);
  gd_strbuf_deinit(&path);
  return status;
}

static enum gd_status write_drawings(const struct workshop *shop, const struct gd_plot *plot,
                                     const char *dir, const char *name, struct gd_error *err) {
  struct gd_strbuf svg = {0}, png = {0};
  enum gd_status status = take_svg(plot, shop->svg, name, true, &svg, err);
  if (status == GD_OK)
    status = gd_file_read(shop->png, MOST_BYTES, &png, err);
  if (status == GD_OK)
    status = write_part(dir, name, "svg", &svg, err);
  if (status == GD_OK)
    status = write_part(dir, name, "png", &png, err);
  gd_strbuf_deinit(&svg);
  gd_strbuf_deinit(&png);
  return status;
}

enum gd_status gd_plot_write_both(const struct gd_plot *plot, const struct gd_plot *inside,
                                  const char *dir, const char *name, struct gd_strbuf *out,
                                  struct gd_error *err) {
  struct workshop shop;
  struct gd_strbuf csv = {0};
  gd_plot_csv(plot, &csv);
  enum gd_status status = write_part(dir, name, "csv", &csv, err);
  gd_strbuf_deinit(&csv);
  GD_TRY(status);
  GD_TRY(open_workshop(&shop, err));
  status = draw(&shop, plot, inside, err);
  if (status == GD_OK)
    status = write_drawings(&shop, plot, dir, name, err);
  if (status == GD_OK && inside)
    status = take_svg(inside, shop.inside, name, false, out, err);
  gd_scratch_remove(&shop.folder);
  return status;
}

enum gd_status gd_plot_write(const struct gd_plot *plot, const char *dir, const char *name,
                             struct gd_error *err) {
  return gd_plot_write_both(plot, NULL, dir, name, NULL, err);
}
