/*
 * A figure as data: drawn by gnuplot into NAME.svg and NAME.png, and written as NAME.csv. One
 * description serves all three, so that what is drawn is what is in the table.
 *
 *   struct gd_plot plot = {.kind = GD_PLOT_BARS, .title = "...", .categories = gpus, ...};
 *   GD_TRY(gd_plot_write(&plot, "out", "figure-7", err));
 */
#ifndef GD_PLOT_PLOT_H
#define GD_PLOT_PLOT_H

#include <stdbool.h>

#include "base/status.h"
#include "base/strbuf.h"

enum gd_plot_kind {
  GD_PLOT_BARS,    /* series side by side over categories */
  GD_PLOT_STACKED, /* series upon each other over categories */
  GD_PLOT_SCATTER, /* points of (x, y), each with a label where there is one */
  GD_PLOT_LINES,   /* (x, y) joined */
  GD_PLOT_CELLS,   /* a table of colours: series are rows, categories columns */
};

struct gd_plot_series {
  const char *name;
  const double *x;           /* SCATTER and LINES; otherwise the category's number */
  const double *y;           /* NaN: nothing there, and the CSV cell is empty */
  const double *low, *high;  /* of error bars; NULL: none */
  const char *const *labels; /* of points or cells; NULL: none */
  int count;
};

struct gd_plot {
  enum gd_plot_kind kind;
  const char *title, *x_label, *y_label;
  const char *note;              /* a line under the figure: source, "synthetic answers"; or NULL */
  const char *const *categories; /* BARS, STACKED, CELLS */
  int n_categories;
  const struct gd_plot_series *series;
  int n_series;
  bool log_x, log_y;
  int width, height; /* pixels; 0: 800 x 450 */
};

/* GD_OK where gnuplot runs, else GD_ENVIRONMENT with what to install. */
enum gd_status gd_plot_works(struct gd_error *err) GD_MUST_USE;
/* Writes DIR/NAME.svg, .png and .csv, each by rename; the CSV needs no gnuplot. */
enum gd_status gd_plot_write(const struct gd_plot *plot, const char *dir, const char *name,
                             struct gd_error *err) GD_MUST_USE;
/* The figure's data alone. */
void gd_plot_csv(const struct gd_plot *plot, struct gd_strbuf *out);
/* The figure as SVG text, for a page that holds its figures itself. */
enum gd_status gd_plot_svg(const struct gd_plot *plot, struct gd_strbuf *out,
                           struct gd_error *err) GD_MUST_USE;

#endif
