/*
 * Inside of src/plot: where things stand in a figure, and the script that gnuplot gets.
 */
#ifndef GD_PLOT_PLOT_INT_H
#define GD_PLOT_PLOT_INT_H

#include "plot/plot.h"

#define GD_PLOT_JOINER "\xe2\x81\xa0" /* U+2060, in the middle of ]]> */
/* Colours of text and of what is drawn like text. Nothing else has them, so that texts can be found
   in the SVG by colour and given classes. */
#define GD_PLOT_INK   "#1e1f21"
#define GD_PLOT_MUTED "#5b5f66"

/* The size that the figure will have. */
void gd_plot_size(const struct gd_plot *plot, int *width, int *height);
/*
 * Everything that gnuplot needs to know but terminal and output, ending in `plot ...`; it must be
 * drawn on a canvas of that size. Out of memory shows in script->failed.
 */
void gd_plot_script(const struct gd_plot *plot, struct gd_strbuf *script);

/* --- where things stand, in pixels from the top left ----------------------------------------- */

enum { GD_PLOT_SMALL = 12, GD_PLOT_CELL_HEIGHT = 30, GD_PLOT_MOST_TICKS = 24 };

struct gd_plot_layout {
  const struct gd_plot *plot;
  struct gd_strbuf *out; /* the script */
  double width, height;
  double left, right, top, bottom; /* of the axes */
  double x0, x1, y0, y1;           /* their ranges */
  bool log_x, log_y;
  double ticks[GD_PLOT_MOST_TICKS]; /* of y */
  int n_ticks;
  double legend_top;
  int n_boxes, n_empty; /* rectangles written: gnuplot complains of data without any */
};

enum gd_plot_align { GD_PLOT_LEFT, GD_PLOT_CENTRE, GD_PLOT_RIGHT };

struct gd_plot_style {
  const char *colour;
  int size; /* of the font */
  enum gd_plot_align align;
  bool bold;
  int rotate; /* degrees, against the clock */
};

struct gd_plot_span {
  double low, high; /* low > high: nothing was found */
};

/* y is the middle of the line. */
void gd_plot_put_text(struct gd_plot_layout *at, double x, double y, struct gd_plot_style style,
                      const char *text);
/* About as wide as the widest of the usual sans-serif fonts makes it. */
double gd_plot_text_width(const char *text, size_t length, double size);
/* A number in three digits, for axes and labels. */
const char *gd_plot_format_value(char *text, size_t size, double value);

double gd_plot_pixel_x(const struct gd_plot_layout *at, double x);
double gd_plot_pixel_y(const struct gd_plot_layout *at, double y);
double gd_plot_category_width(const struct gd_plot_layout *at);
/* Of all values and intervals; of sums where series are stacked. */
struct gd_plot_span gd_plot_span_y(const struct gd_plot *plot);
/* Lines whose names stand at their ends. */
bool gd_plot_ends_labelled(const struct gd_plot *plot);

/* Of one of so many series or classes, and of a cell, as a number. */
int gd_plot_colour_of(const struct gd_plot *plot, int index, int count);
int gd_plot_cell_colour(const struct gd_plot *plot, struct gd_plot_span span, double y);
/* Black or white, whichever is read better on it. */
const char *gd_plot_text_on(int colour);

/* --- what stands there (plot_content.c) ------------------------------------------------------ */

/* What the kind draws: its rectangles as data ($boxes, $empty), its texts as labels. */
void gd_plot_put_content(struct gd_plot_layout *at);
/* $s0, $s1, ...: the points of a series each. */
void gd_plot_points_data(struct gd_plot_layout *at);
bool gd_plot_any_drawn(const struct gd_plot_layout *at, const struct gd_plot_series *series);
/* $errors; false: there are none. */
bool gd_plot_errors_data(struct gd_plot_layout *at);

#endif
