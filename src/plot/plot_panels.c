/*
 * Small multiples: several pairs of axes in one figure, in rows, with one legend. gnuplot draws
 * them as one plot whose coordinates are pixels, so that nothing but points and texts is needed.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "plot/plot_int.h"

enum { COLUMNS = 3, GAP = 22, PANEL_HEIGHT = 150 };

/* Where all panels stand, and what they share. */
struct grid {
  const struct gd_plot *plot;
  struct gd_plot_layout whole; /* of the figure: its width, height and texts */
  int columns, rows;
  double top;       /* of the first row's titles */
  double row, axes; /* heights of a row, and of its axes */
  double head;      /* of the titles over the axes */
  double foot;      /* of the numbers under the axes */
};

static const struct gd_plot *as_plot(const struct gd_plot *plot, int panel, struct gd_plot *to) {
  *to = *plot;
  to->series = plot->panels[panel].series;
  to->n_series = plot->panels[panel].n_series;
  to->n_panels = 0;
  return to;
}

static int most_series(const struct gd_plot *plot) {
  int most = 0;
  for (int i = 1; i < plot->n_panels; i++)
    if (plot->panels[i].n_series > plot->panels[most].n_series)
      most = i;
  return most;
}

int gd_plot_panels_series(const struct gd_plot *plot) {
  return plot->panels[most_series(plot)].n_series;
}

const char *gd_plot_panels_name(const struct gd_plot *plot, int i) {
  return plot->panels[most_series(plot)].series[i].name;
}

static struct gd_plot_span join(struct gd_plot_span a, struct gd_plot_span b) {
  return (struct gd_plot_span){fmin(a.low, b.low), fmax(a.high, b.high)};
}

/* --- layout -------------------------------------------------------------------------------- */

static void lay_out(const struct gd_plot *plot, struct gd_strbuf *out, struct grid *grid) {
  const struct gd_plot_style title = {.size = GD_PLOT_TITLE, .bold = true},
                             note = {.size = GD_PLOT_SMALL};
  struct gd_plot_layout *whole = &grid->whole;
  *grid = (struct grid){.plot = plot,
                        .whole = {.plot = plot, .width = plot->width > 0 ? plot->width : 720},
                        .columns = plot->panel_columns > 0 ? plot->panel_columns : COLUMNS,
                        .head = GD_PLOT_LINE + 12,
                        .foot = GD_PLOT_UNDER + 12};
  if (grid->columns > plot->n_panels)
    grid->columns = plot->n_panels;
  grid->rows = (plot->n_panels + grid->columns - 1) / grid->columns;
  for (int i = 0; i < plot->n_panels; i++)
    if (plot->panels[i].y_label)
      grid->head = 2 * GD_PLOT_LINE + 12;
  double inner = whole->width - 2 * GD_PLOT_PAD;
  grid->top = GD_PLOT_PAD;
  if (plot->title)
    grid->top += (GD_PLOT_TITLE + 4) * gd_plot_put_lines(NULL, 0, 0, inner, title, plot->title) + 6;
  whole->legend_top = grid->top + GD_PLOT_LINE / 2.0;
  int legend = gd_plot_put_legend(whole, 0);
  grid->top += legend * GD_PLOT_LINE + (legend ? 8 : 0);
  if (plot->y_label)
    grid->top += GD_PLOT_LINE + 4;
  double under = GD_PLOT_PAD + (plot->x_label ? GD_PLOT_LINE : 0);
  if (plot->note)
    under += 6 + (GD_PLOT_SMALL + 4) * gd_plot_put_lines(NULL, 0, 0, inner, note, plot->note);
  grid->axes = PANEL_HEIGHT;
  grid->row = grid->head + grid->axes + grid->foot;
  whole->height = ceil(grid->top + grid->rows * grid->row + under);
  whole->out = out;
}

void gd_plot_panels_size(const struct gd_plot *plot, int *width, int *height) {
  struct grid grid;
  lay_out(plot, NULL, &grid);
  *width = (int)grid.whole.width;
  *height = (int)grid.whole.height;
}

static double widest(const double *ticks, int count) {
  char text[48];
  double most = 0;
  for (int i = 0; i < count; i++) {
    gd_plot_format_value(text, sizeof text, ticks[i]);
    most = fmax(most, gd_plot_text_width(text, strlen(text), GD_PLOT_SMALL));
  }
  return most;
}

static bool differ(const struct gd_plot_layout *at) {
  char one[48], two[48];
  for (int i = 1; i < at->n_ticks; i++) {
    gd_plot_format_value(one, sizeof one, at->ticks[i - 1]);
    gd_plot_format_value(two, sizeof two, at->ticks[i]);
    if (strcmp(one, two) == 0)
      return false;
  }
  return true;
}

static void thin_out_y(struct gd_plot_layout *at) {
  while (at->n_ticks > 2 && (fabs(gd_plot_pixel_y(at, at->ticks[0]) -
                                  gd_plot_pixel_y(at, at->ticks[1])) < GD_PLOT_SMALL + 6 ||
                             !differ(at)))
    at->n_ticks = gd_plot_halve(at->ticks, at->n_ticks);
}

/* --- one panel ----------------------------------------------------------------------------- */

static void place(const struct grid *grid, int panel, struct gd_plot_layout *at) {
  double width = (grid->whole.width - 2 * GD_PLOT_PAD - GAP * (grid->columns - 1)) / grid->columns;
  int row = panel / grid->columns, column = panel % grid->columns;
  at->left = GD_PLOT_PAD + column * (width + GAP);
  at->right = at->left + width - 12; /* half of the last number */
  at->top = grid->top + row * grid->row + grid->head;
  at->bottom = at->top + grid->axes;
}

static void put_panel(const struct grid *grid, int panel, struct gd_plot_span x,
                      struct gd_plot_span y, struct gd_plot_layout *at) {
  const struct gd_plot_panel *of = &grid->plot->panels[panel];
  const struct gd_plot_style title = {GD_PLOT_INK, 13, GD_PLOT_LEFT, true, 0},
                             muted = {GD_PLOT_MUTED, GD_PLOT_SMALL, GD_PLOT_LEFT, false, 0};
  double x_ticks[GD_PLOT_MOST_TICKS];
  place(grid, panel, at);
  at->log_x = grid->plot->log_x;
  at->log_y = grid->plot->log_y;
  at->n_ticks = gd_plot_set_range(y, at->log_y, false, &at->y0, &at->y1, at->ticks);
  int n_x_ticks = gd_plot_set_range(x, at->log_x, false, &at->x0, &at->x1, x_ticks);
  thin_out_y(at);
  double line = at->top - 17; /* above the highest number of the axis */
  if (of->y_label)
    gd_plot_put_text(at, at->left, line, muted, of->y_label);
  if (of->title)
    gd_plot_put_text(at, at->left, line - (of->y_label ? GD_PLOT_LINE : 0), title, of->title);
  at->left += widest(at->ticks, at->n_ticks) + 10;
  n_x_ticks = gd_plot_thin_out(at, x_ticks, n_x_ticks);
  gd_plot_put_ticks(at, x_ticks, n_x_ticks);
}

/* Points of one series in all panels, in pixels; a line breaks between panels. Error bars go into
   another buffer: x, low, 0, height. */
static void put_points(const struct gd_plot_layout *at, const struct gd_plot_series *series,
                       struct gd_strbuf *points, struct gd_strbuf *errors) {
  for (int i = 0; i < series->count; i++) {
    if (!gd_plot_is_drawn(at, series, i)) {
      gd_strbuf_append(points, "\n");
      continue;
    }
    double x = gd_plot_pixel_x(at, series->x[i]);
    gd_strbuf_printf(points, "%.2f %.2f\n", x, at->height - gd_plot_pixel_y(at, series->y[i]));
    if (!series->low || !series->high || !isfinite(series->low[i]) || !isfinite(series->high[i]))
      continue;
    double low = at->height -
                 gd_plot_pixel_y(at, at->log_y && series->low[i] <= 0 ? at->y0 : series->low[i]);
    gd_strbuf_printf(errors, "%.2f %.2f 0 %.2f\n", x, low,
                     at->height - gd_plot_pixel_y(at, series->high[i]) - low);
  }
  gd_strbuf_append(points, "\n");
}

/* --- all of it ----------------------------------------------------------------------------- */

static void put_texts(const struct grid *grid, struct gd_plot_layout *at) {
  const struct gd_plot *plot = grid->plot;
  const struct gd_plot_style title = {GD_PLOT_INK, GD_PLOT_TITLE, GD_PLOT_LEFT, true, 0};
  struct gd_plot_style note = {GD_PLOT_MUTED, GD_PLOT_SMALL, GD_PLOT_LEFT, false, 0};
  double inner = at->width - 2 * GD_PLOT_PAD;
  double under = grid->top + grid->rows * grid->row + GD_PLOT_LINE / 2.0;
  if (plot->title)
    gd_plot_put_lines(at, GD_PLOT_PAD, GD_PLOT_PAD + GD_PLOT_TITLE / 2.0, inner, title,
                      plot->title);
  gd_plot_put_legend(at, at->legend_top);
  if (plot->y_label)
    gd_plot_put_text(at, GD_PLOT_PAD, grid->top - GD_PLOT_LINE / 2.0 - 2, note, plot->y_label);
  if (plot->note)
    gd_plot_put_lines(at, GD_PLOT_PAD, under + (plot->x_label ? GD_PLOT_LINE : 0) + 6, inner, note,
                      plot->note);
  note.align = GD_PLOT_RIGHT;
  if (plot->x_label)
    gd_plot_put_text(at, at->width - GD_PLOT_PAD, under, note, plot->x_label);
}

static void put_plot(const struct gd_plot *plot, const struct gd_plot_layout *whole, int n_series,
                     struct gd_strbuf *data, const struct gd_strbuf *errors,
                     struct gd_strbuf *out) {
  bool lines = plot->kind == GD_PLOT_LINES;
  gd_strbuf_printf(out,
                   "set encoding utf8\nunset key\nunset border\nunset xtics\nunset ytics\n"
                   "set margins screen 0, screen 1, screen 0, screen 1\n"
                   "set xrange [0:%.0f]\nset yrange [0:%.0f]\n",
                   whole->width, whole->height);
  for (int s = 0; s < n_series; s++)
    gd_strbuf_printf(out, "$s%d << END\n%sEND\n", s, data[s].text ? data[s].text : "");
  gd_strbuf_printf(out, "$frame << END\n0 0\nEND\n$errors << END\n%sEND\n",
                   errors->text ? errors->text : "");
  gd_strbuf_append(out, "plot $frame using 1:2 with dots lc rgb '#ffffffff' notitle");
  if (errors->length > 0)
    gd_strbuf_append(out, ", $errors using 1:2:3:4 with vectors nohead lw 1.5 lc rgb '" GD_PLOT_INK
                          "' notitle");
  for (int s = 0; s < n_series; s++) {
    if (!data[s].text || strspn(data[s].text, "\n") == data[s].length)
      continue;
    int colour = gd_plot_colour_of(plot, s, n_series);
    if (lines || plot->joined)
      gd_strbuf_printf(out, ", $s%d using 1:2 with lines lw %s lc rgb '#%06x' notitle", s,
                       lines ? "1.6" : "1", (unsigned)colour);
    if (!lines)
      gd_strbuf_printf(out, ", $s%d using 1:2 with points pt %d ps 0.8 lc rgb '#%06x' notitle", s,
                       gd_plot_marker(s), (unsigned)colour);
  }
  gd_strbuf_append(out, "\n");
}

void gd_plot_panels_script(const struct gd_plot *plot, struct gd_strbuf *script) {
  enum { MOST_SERIES = 8 };
  struct grid grid;
  struct gd_strbuf data[MOST_SERIES] = {0}, errors = {0};
  struct gd_plot_span x = {DBL_MAX, -DBL_MAX}, y = x;
  struct gd_plot one;
  int n_series = gd_plot_panels_series(plot);
  if (n_series > MOST_SERIES)
    n_series = MOST_SERIES;
  lay_out(plot, script, &grid);
  for (int i = 0; i < plot->n_panels; i++) {
    x = join(x, gd_plot_span_x(as_plot(plot, i, &one)));
    y = join(y, gd_plot_span_y(&one));
  }
  for (int i = 0; i < plot->n_panels; i++) {
    struct gd_plot_layout at = grid.whole;
    const struct gd_plot_panel *panel = &plot->panels[i];
    put_panel(&grid, i, x, plot->shared_y ? y : gd_plot_span_y(as_plot(plot, i, &one)), &at);
    for (int s = 0; s < panel->n_series && s < n_series; s++)
      put_points(&at, &panel->series[s], &data[s], &errors);
  }
  put_texts(&grid, &grid.whole);
  put_plot(plot, &grid.whole, n_series, data, &errors, script);
  for (int s = 0; s < n_series; s++) {
    script->failed = script->failed || data[s].failed;
    gd_strbuf_deinit(&data[s]);
  }
  script->failed = script->failed || errors.failed;
  gd_strbuf_deinit(&errors);
}
