/*
 * Axes: their ranges and ticks, numbers as texts, and where values stand in pixels.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plot/plot_int.h"

static const char *trim_zeros(char *text) {
  if (strchr(text, '.') && !strchr(text, 'e')) {
    size_t length = strlen(text);
    while (text[length - 1] == '0')
      text[--length] = '\0';
    if (text[length - 1] == '.')
      text[length - 1] = '\0';
  }
  return text;
}

const char *gd_plot_format_value(char *text, size_t size, double value) {
  double magnitude = fabs(value);
  if (magnitude >= 1e7 || (magnitude > 0 && magnitude < 1e-3)) {
    snprintf(text, size, "%.2g", value);
    char *power = strchr(text, 'e'); /* "e+09" is "e9" */
    size_t extra = power ? strspn(power + 1, "+0") : 0;
    if (extra > 0)
      memmove(power + 1, power + 1 + extra, strlen(power + 1 + extra) + 1);
    return text;
  }
  gd_format_digits(text, size, value, 3);
  return trim_zeros(text);
}

/* --- ranges -------------------------------------------------------------------------------- */

static void take(struct gd_plot_span *span, double value, bool logarithmic) {
  if (!isfinite(value) || (logarithmic && value <= 0))
    return;
  if (value < span->low)
    span->low = value;
  if (value > span->high)
    span->high = value;
}

struct gd_plot_span gd_plot_span_y(const struct gd_plot *plot) {
  struct gd_plot_span span = {DBL_MAX, -DBL_MAX};
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count; i++) {
      const struct gd_plot_series *series = &plot->series[s];
      take(&span, series->y[i], plot->log_y);
      if (series->low && series->high && plot->kind != GD_PLOT_STACKED) {
        take(&span, series->low[i], plot->log_y);
        take(&span, series->high[i], plot->log_y);
      }
    }
  if (plot->kind == GD_PLOT_STACKED)
    for (int i = 0; i < plot->n_categories; i++) {
      double sum = 0;
      for (int s = 0; s < plot->n_series; s++)
        if (i < plot->series[s].count && isfinite(plot->series[s].y[i]))
          sum += plot->series[s].y[i];
      take(&span, sum, false);
    }
  return span;
}

struct gd_plot_span gd_plot_span_x(const struct gd_plot *plot) {
  struct gd_plot_span span = {DBL_MAX, -DBL_MAX};
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count; i++)
      if (isfinite(plot->series[s].y[i]))
        take(&span, plot->series[s].x[i], plot->log_x);
  return span;
}

/* 1, 2 or 5 times a power of ten, at least the value. */
static double nice_above(double value) {
  double power = pow(10, floor(log10(value)));
  double part = value / power;
  return power * (part <= 1.0001 ? 1 : part <= 2.0001 ? 2 : part <= 5.0001 ? 5 : 10);
}

/* The same, at most the value. */
static double nice_below(double value) {
  double power = pow(10, floor(log10(value) + 1e-9));
  double part = value / power;
  return power * (part >= 4.9999 ? 5 : part >= 1.9999 ? 2 : 1);
}

static int linear_ticks(double *low, double *high, double *ticks) {
  double step = nice_above((*high - *low) / 6);
  double first = floor(*low / step + 1e-9), last = ceil(*high / step - 1e-9);
  int count = 0;
  *low = first * step;
  *high = last * step;
  for (int i = 0; first + i <= last && count < GD_PLOT_MOST_TICKS; i++)
    ticks[count++] = fabs(first + i) < 0.5 ? 0 : (first + i) * step;
  return count;
}

static int log_ticks(double low, double high, double *ticks) {
  static const double parts[] = {1, 2, 5};
  double decades = log10(high / low);
  int count = 0, every = decades > 12 ? 3 : decades > 8 ? 2 : 1;
  int last = (int)floor(log10(high) + 1e-9);
  for (int power = (int)floor(log10(low)); power <= last; power += every)
    for (int p = 0; p < (decades < 2.6 ? 3 : 1); p++) {
      double tick = parts[p] * pow(10, power);
      if (tick >= low * 0.9999 && tick <= high * 1.0001 && count < GD_PLOT_MOST_TICKS)
        ticks[count++] = tick;
    }
  return count;
}

int gd_plot_set_range(struct gd_plot_span span, bool logarithmic, bool from_zero, double *low,
                      double *high, double *ticks) {
  if (span.low > span.high)
    span = logarithmic ? (struct gd_plot_span){1, 10} : (struct gd_plot_span){0, 1};
  if (logarithmic) {
    *low = nice_below(span.low * 0.94);
    *high = nice_above(span.high * 1.06);
    return log_ticks(*low, *high, ticks);
  }
  if (from_zero || (span.low > 0 && span.low < 0.6 * span.high))
    span.low = span.low < 0 ? span.low : 0;
  if (from_zero)
    span.high = span.high > 0 ? span.high : 0;
  if (!(span.high > span.low))
    span.high = span.low + 1;
  *low = span.low;
  *high = span.high;
  return linear_ticks(low, high, ticks);
}

double gd_plot_pixel_x(const struct gd_plot_layout *at, double x) {
  double part =
      at->log_x ? log(x / at->x0) / log(at->x1 / at->x0) : (x - at->x0) / (at->x1 - at->x0);
  return at->left + part * (at->right - at->left);
}

double gd_plot_pixel_y(const struct gd_plot_layout *at, double y) {
  double part =
      at->log_y ? log(y / at->y0) / log(at->y1 / at->y0) : (y - at->y0) / (at->y1 - at->y0);
  return at->bottom - part * (at->bottom - at->top);
}

int gd_plot_halve(double *ticks, int count) {
  int kept = 0;
  for (int i = 0; i < count; i += 2)
    ticks[kept++] = ticks[i];
  return kept;
}

static bool stand_apart(const struct gd_plot_layout *at, const double *ticks, int count) {
  double free_from = -DBL_MAX;
  char text[48];
  for (int i = 0; i < count; i++) {
    gd_plot_format_value(text, sizeof text, ticks[i]);
    double half = gd_plot_text_width(text, strlen(text), GD_PLOT_SMALL) / 2;
    double x = gd_plot_pixel_x(at, ticks[i]);
    if (x - half < free_from)
      return false;
    free_from = x + half + 8;
  }
  return true;
}

int gd_plot_thin_out(const struct gd_plot_layout *at, double *ticks, int count) {
  while (count > 2 && !stand_apart(at, ticks, count))
    count = gd_plot_halve(ticks, count);
  return count;
}
