/*
 * What a figure draws inside its axes: rectangles of bars and cells, points and lines, and the
 * texts next to them. Where things stand is the layout's (plot_script.c).
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plot/plot_int.h"

enum { MOST_LABELS = 400 }; /* of points; further ones are in the CSV alone */

/* --- rectangles ---------------------------------------------------------------------------- */

static void put_box(struct gd_plot_layout *at, double x0, double y0, double x1, double y1,
                    int colour) {
  gd_strbuf_printf(at->out, "%.9g %.9g %.9g %.9g %.9g %.9g %d\n", (x0 + x1) / 2, (y0 + y1) / 2, x0,
                   x1, y0, y1, colour);
  at->n_boxes++;
}

static const char *label_at(const struct gd_plot_series *series, int i) {
  return series->labels ? series->labels[i] : NULL;
}

/* Of one bar, as a share of its category, whose bars stand side by side; at most 72 pixels. */
static double bar_width(const struct gd_plot_layout *at) {
  int count = at->plot->n_series > 0 ? at->plot->n_series : 1;
  return fmin(0.84 / count, 72 / gd_plot_category_width(at));
}

/* The left edge of a bar, in widths of a category from the left. */
static double bar_left(const struct gd_plot_layout *at, int category, int series) {
  return category + 0.5 + (series - at->plot->n_series / 2.0) * bar_width(at);
}

static void bars_boxes(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  double width = bar_width(at);
  double base = at->log_y ? at->y0 : 0;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count && i < plot->n_categories; i++) {
      double x = bar_left(at, i, s), y = plot->series[s].y[i];
      if (isfinite(y) && (!at->log_y || y > 0))
        put_box(at, x, base, x + width * 0.94, y, gd_plot_colour_of(plot, s, plot->n_series));
    }
}

/* What stands over a bar; NULL: nothing. text is room for a number. */
static const char *bar_text(const struct gd_plot_layout *at, int s, int i, bool values, char *text,
                            size_t size) {
  const char *label = label_at(&at->plot->series[s], i);
  double y = at->plot->series[s].y[i];
  bool there = isfinite(y) && (!at->log_y || y > 0);
  return !label && there && values ? gd_plot_format_value(text, size, y) : label;
}

/* Of the widest of them, at size 1. */
static double widest_bar_text(const struct gd_plot_layout *at, bool values) {
  const struct gd_plot *plot = at->plot;
  char text[48];
  double most = 0;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count && i < plot->n_categories; i++) {
      const char *label = bar_text(at, s, i, values, text, sizeof text);
      most = fmax(most, label ? gd_plot_text_width(label, strlen(label), 1) : 0);
    }
  return most;
}

/* All of one size and one way round: upright where one of them is wider than its bar. */
static void bars_labels(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  char text[48];
  double room = gd_plot_category_width(at) * bar_width(at);
  bool values = plot->n_categories * plot->n_series <= 40 && room >= 22;
  double widest = widest_bar_text(at, values);
  double free = plot->n_series == 1 ? gd_plot_category_width(at) - 4 : room;
  bool fits = widest * GD_PLOT_SMALL <= free;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count && i < plot->n_categories; i++) {
      const struct gd_plot_series *series = &plot->series[s];
      double y = series->y[i], top = series->high ? series->high[i] : y;
      const char *label = bar_text(at, s, i, values, text, sizeof text);
      bool there = isfinite(y) && (!at->log_y || y > 0);
      if (!label)
        continue;
      double x = at->left + gd_plot_category_width(at) * bar_left(at, i, s) + 0.47 * room;
      double up = there ? gd_plot_pixel_y(at, isfinite(top) && top > y ? top : y) : at->bottom;
      bool below = there && y < 0;
      struct gd_plot_style style = {there ? GD_PLOT_INK : GD_PLOT_MUTED, GD_PLOT_SMALL,
                                    fits ? GD_PLOT_CENTRE : GD_PLOT_LEFT, false, fits ? 0 : 90};
      gd_plot_put_text(at, x, below ? up + 9 : up - (fits ? 9 : 5), style, label);
    }
}

static void stacked_boxes(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  double half = fmin(0.38, 50 / gd_plot_category_width(at));
  for (int i = 0; i < plot->n_categories; i++) {
    double sum = 0;
    for (int s = 0; s < plot->n_series; s++)
      if (i < plot->series[s].count && plot->series[s].y[i] > 0) {
        put_box(at, i + 0.5 - half, sum, i + 0.5 + half, sum + plot->series[s].y[i],
                gd_plot_colour_of(plot, s, plot->n_series));
        sum += plot->series[s].y[i];
      }
  }
}

/* Writes the value of each part of a stacked bar into it, where the part is high enough for text.
 */
static void stacked_labels(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  char text[48];
  for (int i = 0; i < plot->n_categories; i++) {
    double sum = 0;
    for (int s = 0; s < plot->n_series; s++) {
      const struct gd_plot_series *series = &plot->series[s];
      if (i >= series->count || !(series->y[i] > 0))
        continue;
      const char *label = label_at(series, i);
      if (!label)
        label = gd_plot_format_value(text, sizeof text, series->y[i]);
      double low = gd_plot_pixel_y(at, sum), high = gd_plot_pixel_y(at, sum + series->y[i]);
      sum += series->y[i];
      struct gd_plot_style style = {gd_plot_text_on(gd_plot_colour_of(plot, s, plot->n_series)),
                                    GD_PLOT_SMALL, GD_PLOT_CENTRE, false, 0};
      if (low - high >= 14 && gd_plot_text_width(label, strlen(label), GD_PLOT_SMALL) <
                                  gd_plot_category_width(at) * 0.76)
        gd_plot_put_text(at, at->left + gd_plot_category_width(at) * (i + 0.5), (low + high) / 2,
                         style, label);
    }
  }
}

static void cells_boxes(struct gd_plot_layout *at, bool empty) {
  const struct gd_plot *plot = at->plot;
  struct gd_plot_span span = gd_plot_span_y(plot);
  double x_gap = 1 / gd_plot_category_width(at), y_gap = 1.0 / GD_PLOT_CELL_HEIGHT;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count && i < plot->n_categories; i++) {
      double y = plot->series[s].y[i], row = plot->n_series - 1 - s;
      if (isfinite(y) != empty)
        put_box(at, i + x_gap, row + y_gap, i + 1 - x_gap, row + 1 - y_gap,
                empty ? 0 : gd_plot_cell_colour(plot, span, y));
    }
}

/* What a cell says; NULL: nothing. text is room for a number. */
static const char *cell_text(const struct gd_plot *plot, int row, int column, char *text,
                             size_t size) {
  double y = plot->series[row].y[column];
  const char *label = label_at(&plot->series[row], column);
  if (!label && isfinite(y) && plot->n_classes == 0)
    label = gd_plot_format_value(text, size, y);
  return label && label[0] ? label : NULL;
}

double gd_plot_cells_width(const struct gd_plot *plot) {
  char text[48];
  double most = 0;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count && i < plot->n_categories; i++) {
      const char *label = cell_text(plot, s, i, text, sizeof text);
      most = fmax(most, label ? gd_plot_text_width(label, strlen(label), GD_PLOT_SMALL) : 0);
    }
  return most + 4;
}

static void cells_labels(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  struct gd_plot_span span = gd_plot_span_y(plot);
  char text[48];
  double height = (at->bottom - at->top) / plot->n_series;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count && i < plot->n_categories; i++) {
      double y = plot->series[s].y[i];
      const char *label = cell_text(plot, s, i, text, sizeof text);
      double x = at->left + gd_plot_category_width(at) * (i + 0.5),
             middle = at->top + height * (s + 0.5);
      if (!isfinite(y)) /* a stroke through it, so that it shows without colours too */
        gd_strbuf_printf(at->out,
                         "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead lc rgb "
                         "'#60787878' lw 1 front\n",
                         (x - gd_plot_category_width(at) / 2 + 2) / at->width,
                         1 - (middle + height / 2 - 2) / at->height,
                         (x + gd_plot_category_width(at) / 2 - 2) / at->width,
                         1 - (middle - height / 2 + 2) / at->height);
      if (!label)
        continue;
      gd_plot_put_text(
          at, x, middle,
          (struct gd_plot_style){isfinite(y) ? gd_plot_text_on(gd_plot_cell_colour(plot, span, y))
                                             : GD_PLOT_INK,
                                 GD_PLOT_SMALL, GD_PLOT_CENTRE, false, 0},
          label);
    }
}

/* --- points -------------------------------------------------------------------------------- */

struct box {
  double x0, y0, x1, y1; /* pixels */
};

static double shared_area(const struct box *a, const struct box *b) {
  double width = fmin(a->x1, b->x1) - fmax(a->x0, b->x0);
  double height = fmin(a->y1, b->y1) - fmax(a->y0, b->y0);
  return width > 0 && height > 0 ? width * height : 0;
}

/* How bad a place for a label is: the area of others that it covers, and four times what sticks out
   of the figure. */
static double covered(const struct gd_plot_layout *at, const struct box *box,
                      const struct box *taken, int count) {
  struct box inside = {at->left, at->top, at->width - 4, at->bottom};
  double sum = 4 * ((box->x1 - box->x0) * (box->y1 - box->y0) - shared_area(box, &inside));
  for (int i = 0; i < count; i++)
    sum += shared_area(box, &taken[i]);
  return sum;
}

bool gd_plot_is_drawn(const struct gd_plot_layout *at, const struct gd_plot_series *series, int i) {
  return isfinite(series->y[i]) && isfinite(series->x[i]) && (!at->log_y || series->y[i] > 0) &&
         (!at->log_x || series->x[i] > 0);
}

bool gd_plot_any_drawn(const struct gd_plot_layout *at, const struct gd_plot_series *series) {
  for (int i = 0; i < series->count; i++)
    if (gd_plot_is_drawn(at, series, i))
      return true;
  return false;
}

/* Next to its point, where it covers least. What would lie upon another label is left out: it is in
   the CSV. Labels begin behind `points` in `taken`. */
static void place_label(struct gd_plot_layout *at, double x, double y, const char *label,
                        struct box *taken, int points, int *count) {
  static const double ways[][2] = {{1, 0},     {-1, 0},    {0, -1},   {0, 1},   {1, -0.9},
                                   {-1, -0.9}, {1, 0.9},   {-1, 0.9}, {0, -2},  {0, 2},
                                   {1, -1.8},  {-1, -1.8}, {1, 1.8},  {-1, 1.8}};
  double width = gd_plot_text_width(label, strlen(label), GD_PLOT_SMALL), best_cost = DBL_MAX;
  struct box best = {0};
  for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
    double middle = x + ways[w][0] * (width / 2 + (fabs(ways[w][1]) > 0.5 ? 4 : 8));
    double line = y + ways[w][1] * 13;
    struct box box = {middle - width / 2, line - 7, middle + width / 2, line + 7};
    double cost =
        covered(at, &box, taken, *count) + 0.01 * (double)w + (fabs(ways[w][1]) > 1.5 ? 20 : 0);
    if (cost < best_cost) {
      best_cost = cost;
      best = box;
    }
  }
  for (int i = points; i < *count; i++)
    if (shared_area(&best, &taken[i]) > 0)
      return;
  taken[(*count)++] = best;
  gd_plot_put_text(at, (best.x0 + best.x1) / 2, (best.y0 + best.y1) / 2,
                   (struct gd_plot_style){GD_PLOT_INK, GD_PLOT_SMALL, GD_PLOT_CENTRE, false, 0},
                   label);
}

/* Labels of points, none upon a point or an interval where that can be helped. */
static void point_labels(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  struct box taken[2 * MOST_LABELS];
  int count = 0;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count && count < MOST_LABELS; i++)
      if (gd_plot_is_drawn(at, &plot->series[s], i)) {
        const struct gd_plot_series *series = &plot->series[s];
        double x = gd_plot_pixel_x(at, series->x[i]), y = gd_plot_pixel_y(at, series->y[i]);
        taken[count++] = (struct box){x - 6, y - 6, x + 6, y + 6};
        if (series->low && series->high && isfinite(series->low[i]) && isfinite(series->high[i]) &&
            series->low[i] > 0 && count < MOST_LABELS)
          taken[count++] = (struct box){x - 2, gd_plot_pixel_y(at, series->high[i]), x + 2,
                                        gd_plot_pixel_y(at, series->low[i])};
      }
  int points = count;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count && count < 2 * MOST_LABELS; i++) {
      const char *label = label_at(&plot->series[s], i);
      if (label && label[0] && gd_plot_is_drawn(at, &plot->series[s], i))
        place_label(at, gd_plot_pixel_x(at, plot->series[s].x[i]),
                    gd_plot_pixel_y(at, plot->series[s].y[i]), label, taken, points, &count);
    }
}

/* The names of lines where they end, from the highest down, none upon another. */
static void end_labels(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  bool done[8] = {false};
  double below = -DBL_MAX;
  for (int k = 0; k < plot->n_series; k++) {
    int next = -1;
    double next_y = DBL_MAX;
    for (int s = 0; s < plot->n_series; s++) {
      const struct gd_plot_series *series = &plot->series[s];
      int last = series->count - 1;
      while (last >= 0 && !gd_plot_is_drawn(at, series, last))
        last--;
      if (!done[s] && last >= 0 && gd_plot_pixel_y(at, series->y[last]) < next_y) {
        next = s;
        next_y = gd_plot_pixel_y(at, series->y[last]);
      }
    }
    if (next < 0)
      return;
    done[next] = true;
    char colour[16];
    snprintf(colour, sizeof colour, "#%06x", gd_plot_colour_of(plot, next, plot->n_series));
    double lowest = at->bottom - 14 * (plot->n_series - 1 - k); /* above the numbers of the axis */
    double y = fmax(fmin(next_y, lowest), below + 14);
    below = y;
    gd_plot_put_text(at, at->right + 8, y,
                     (struct gd_plot_style){plot->ordered ? GD_PLOT_INK : colour, GD_PLOT_SMALL,
                                            GD_PLOT_LEFT, true, 0},
                     plot->series[next].name);
  }
}

void gd_plot_points_data(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  for (int s = 0; s < plot->n_series; s++) {
    const struct gd_plot_series *series = &plot->series[s];
    gd_strbuf_printf(at->out, "$s%d << END\n", s);
    for (int i = 0; i < series->count; i++)
      if (gd_plot_is_drawn(at, series, i))
        gd_strbuf_printf(at->out, "%.12g %.12g\n", series->x[i], series->y[i]);
      else
        gd_strbuf_append(at->out, "\n"); /* the line breaks there */
    gd_strbuf_append(at->out, "END\n");
  }
}

/* Error bars, a line each: x, low, 0, height. */
bool gd_plot_errors_data(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  bool any = false;
  gd_strbuf_append(at->out, "$errors << END\n");
  for (int s = 0; s < plot->n_series && plot->kind != GD_PLOT_CELLS; s++)
    for (int i = 0; i < plot->series[s].count && plot->kind != GD_PLOT_STACKED; i++) {
      const struct gd_plot_series *series = &plot->series[s];
      if (!series->low || !series->high || !isfinite(series->low[i]) || !isfinite(series->high[i]))
        continue;
      double x =
          plot->kind == GD_PLOT_BARS ? bar_left(at, i, s) + 0.47 * bar_width(at) : series->x[i];
      double low = at->log_y && series->low[i] <= 0 ? at->y0 : series->low[i];
      gd_strbuf_printf(at->out, "%.12g %.12g 0 %.12g\n", x, low, series->high[i] - low);
      any = true;
    }
  gd_strbuf_append(at->out, "END\n");
  return any;
}

/* --- all of it ----------------------------------------------------------------------------- */

/* What the kind draws: its rectangles as data, its texts as labels. */
void gd_plot_put_content(struct gd_plot_layout *at) {
  gd_strbuf_append(at->out, "$boxes << END\n");
  switch (at->plot->kind) {
  case GD_PLOT_BARS: bars_boxes(at); break;
  case GD_PLOT_STACKED: stacked_boxes(at); break;
  case GD_PLOT_CELLS: cells_boxes(at, false); break;
  case GD_PLOT_SCATTER:
  case GD_PLOT_LINES: break;
  }
  gd_strbuf_append(at->out, "END\n$empty << END\n");
  int boxes = at->n_boxes;
  if (at->plot->kind == GD_PLOT_CELLS)
    cells_boxes(at, true);
  at->n_empty = at->n_boxes - boxes;
  at->n_boxes = boxes;
  gd_strbuf_append(at->out, "END\n");
  switch (at->plot->kind) {
  case GD_PLOT_BARS: bars_labels(at); break;
  case GD_PLOT_STACKED: stacked_labels(at); break;
  case GD_PLOT_CELLS: cells_labels(at); break;
  case GD_PLOT_SCATTER: point_labels(at); break;
  case GD_PLOT_LINES:
    point_labels(at);
    if (gd_plot_ends_labelled(at->plot))
      end_labels(at);
    break;
  }
}
