/*
 * A figure as data: drawn by gnuplot into NAME.svg and NAME.png, and written as NAME.csv. One
 * description serves all three, so that what is drawn is what is in the table.
 *
 *   struct gd_plot plot = {.kind = GD_PLOT_BARS, .title = "...", .categories = gpus, ...};
 *   GD_TRY(gd_plot_write(&plot, "out", "figure-7", err));
 *
 * Many figures are drawn by few runs of gnuplot, side by side: gd_plot_batch.
 *
 * Texts may hold anything: none of them is read as a command or as markup.
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
  const char *const *labels; /* of points, bars or cells; NULL: none, an entry may be NULL too. A
                                bar without a value shows its label where it would stand */
  int count;
};

/* One of several axes in a figure of SCATTER or LINES. */
struct gd_plot_panel {
  const char *title, *y_label; /* NULL: none */
  const struct gd_plot_series *series;
  int n_series;
};

struct gd_plot {
  enum gd_plot_kind kind;
  const char *title, *x_label, *y_label; /* NULL: none */
  const char *alt;                       /* for those who cannot see it; NULL: the title */
  const char *note;              /* a line under the figure: source, "synthetic answers"; or NULL */
  const char *const *categories; /* BARS, STACKED, CELLS */
  int n_categories;
  const struct gd_plot_series *series;
  int n_series;
  const char *const *classes; /* CELLS whose y is an index into these words; NULL: y is a number */
  int n_classes;
  bool log_x, log_y;      /* CELLS: log_y is the scale of the colours */
  bool ordered;           /* the series (or classes) are steps of a scale: colours are a ramp */
  bool diverging;         /* CELLS: two colours, which part at 0 */
  const char *empty_name; /* CELLS: what a cell without a value is, for the legend; or NULL */
  int width, height;      /* pixels; 0: 720 and what the kind needs */
  /* Small multiples, in place of series: a series of the same place has the same name and colour in
     each. Labels of points are in the CSV alone. */
  const struct gd_plot_panel *panels;
  int n_panels, panel_columns; /* panel_columns 0: 3 */
  bool shared_y;               /* all panels have the same range of y; they always share x */
  bool joined;                 /* SCATTER: a thin line joins the points of a series, in order */
};

/* GD_OK where gnuplot runs, else GD_ENVIRONMENT with what to install. */
enum gd_status gd_plot_works(struct gd_error *err) GD_MUST_USE;
/* Writes DIR/NAME.svg, .png and .csv, each by rename, the CSV first: it needs no gnuplot. */
enum gd_status gd_plot_write(const struct gd_plot *plot, const char *dir, const char *name,
                             struct gd_error *err) GD_MUST_USE;
/*
 * Writes one file and nothing next to it: a picture, or the figure's data, as the path ends in
 * .svg, .png or .csv; gd_plot_file_known says whether it does. Only pictures need gnuplot.
 */
bool gd_plot_file_known(const char *path);
bool gd_plot_file_is_drawn(const char *path); /* not .csv */
enum gd_status gd_plot_write_file(const struct gd_plot *plot, const char *path,
                                  struct gd_error *err) GD_MUST_USE;
/* The figure's data alone. */
void gd_plot_csv(const struct gd_plot *plot, struct gd_strbuf *out);
/*
 * Figures that are drawn together: each is added with its files' folder and name (letters, digits,
 * -, which ids begin with), then all are drawn, by as many runs of gnuplot as there are CPUs.
 * Adding writes the CSV. What a figure points to may go after it was added.
 *
 *   struct gd_plot_batch *batch = gd_plot_batch_new();
 *   GD_TRY(gd_plot_batch_add(batch, &plot, &inside, "out", "figure-7", err));
 *   GD_TRY(gd_plot_batch_draw(batch, err));
 *   ... gd_plot_batch_svg(batch, 0) ...
 *   gd_plot_batch_free(batch);
 */
struct gd_plot_batch;
struct gd_plot_batch *gd_plot_batch_new(void); /* NULL without memory */
/*
 * inside: the figure as SVG text for a page that holds its figures itself, kept until the batch is
 * freed; NULL: none. Texts have the classes gd-ink and gd-muted, so that the page may colour them:
 * light and dark share all other colours. Without `inside` there is no PNG, which takes longest.
 */
enum gd_status gd_plot_batch_add(struct gd_plot_batch *batch, const struct gd_plot *plot,
                                 const struct gd_plot *inside, const char *dir, const char *name,
                                 struct gd_error *err) GD_MUST_USE;
enum gd_status gd_plot_batch_draw(struct gd_plot_batch *batch, struct gd_error *err) GD_MUST_USE;
/* Of the figure that was added as number i, from 0 on, once it is drawn. */
const char *gd_plot_batch_svg(const struct gd_plot_batch *batch, int i);
void gd_plot_batch_free(struct gd_plot_batch *batch); /* NULL is fine */

#endif
