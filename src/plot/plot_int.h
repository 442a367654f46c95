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

/* GD_PLOT_SMALL is the smallest size of any text; UNDER: from an axis to the middle of the numbers
   below it, so far that they do not meet those at its left end. */
enum { GD_PLOT_SMALL = 12, GD_PLOT_CELL_HEIGHT = 30, GD_PLOT_MOST_TICKS = 24, GD_PLOT_UNDER = 17 };
enum { GD_PLOT_PAD = 14, GD_PLOT_TITLE = 16, GD_PLOT_LINE = 18 };

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
/* How many lines the text takes in so many pixels. Writes it too, from y downwards, unless at is
   NULL. */
int gd_plot_put_lines(struct gd_plot_layout *at, double x, double y, double width,
                      struct gd_plot_style style, const char *text);
/* From y downwards; says how many lines it takes. With at->out NULL it only counts. */
int gd_plot_put_legend(struct gd_plot_layout *at, double y);
void gd_plot_put_ticks(struct gd_plot_layout *at, const double *x_ticks, int n_x_ticks);
/* About as wide as the widest of the usual sans-serif fonts makes it. */
double gd_plot_text_width(const char *text, size_t length, double size);
/* A number in three digits, for axes and labels. */
const char *gd_plot_format_value(char *text, size_t size, double value);

double gd_plot_pixel_x(const struct gd_plot_layout *at, double x);
double gd_plot_pixel_y(const struct gd_plot_layout *at, double y);
/* The range of an axis for a span of values. Returns the number of ticks. */
int gd_plot_set_range(struct gd_plot_span span, bool logarithmic, bool from_zero, double *low,
                      double *high, double *ticks);
/* Keeps every second tick; of x, as often as it takes for the numbers to stand apart. */
int gd_plot_halve(double *ticks, int count);
int gd_plot_thin_out(const struct gd_plot_layout *at, double *ticks, int count);
bool gd_plot_has_categories(const struct gd_plot *plot);
double gd_plot_category_width(const struct gd_plot_layout *at);
/* Of all values and intervals; of sums where series are stacked. */
struct gd_plot_span gd_plot_span_y(const struct gd_plot *plot);
/* Of the points that have a y. */
struct gd_plot_span gd_plot_span_x(const struct gd_plot *plot);
/* Lines whose names stand at their ends. */
bool gd_plot_ends_labelled(const struct gd_plot *plot);

int gd_plot_marker(int series); /* gnuplot's number of it */
/* Of one of so many series or classes, and of a cell, as a number. */
int gd_plot_colour_of(const struct gd_plot *plot, int index, int count);
int gd_plot_cell_colour(const struct gd_plot *plot, struct gd_plot_span span, double y);
/* Black or white, whichever is read better on it. */
const char *gd_plot_text_on(int colour);

/* --- what stands there (plot_content.c) ------------------------------------------------------ */

/* What the kind draws: its rectangles as data ($boxes, $empty), its texts as labels. */
void gd_plot_put_content(struct gd_plot_layout *at);
/* What the widest text of the cells needs. */
double gd_plot_cells_width(const struct gd_plot *plot);
/* $s0, $s1, ...: the points of a series each. */
void gd_plot_points_data(struct gd_plot_layout *at);
bool gd_plot_any_drawn(const struct gd_plot_layout *at, const struct gd_plot_series *series);
/* $errors; false: there are none. */
bool gd_plot_errors_data(struct gd_plot_layout *at);
bool gd_plot_is_drawn(const struct gd_plot_layout *at, const struct gd_plot_series *series, int i);

/* --- small multiples (plot_panels.c) --------------------------------------------------------- */

void gd_plot_panels_size(const struct gd_plot *plot, int *width, int *height);
void gd_plot_panels_script(const struct gd_plot *plot, struct gd_strbuf *script);
/* Of the panel that has most series: their number, and the name of one. */
int gd_plot_panels_series(const struct gd_plot *plot);
const char *gd_plot_panels_name(const struct gd_plot *plot, int i);

#endif
