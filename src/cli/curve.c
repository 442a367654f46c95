/*
 * Curves in text; see curve.h. Points that share a column of dots are shown by their mean, and
 * columns without a point by the line between their neighbours.
 */
#include "cli/curve.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL = 8 };

struct canvas {
  int columns, rows;                                    /* of dots */
  double value[2 * GD_CURVE_COLUMNS];                   /* mean of each column; NaN: none */
  unsigned char dots[GD_CURVE_ROWS * GD_CURVE_COLUMNS]; /* Braille patterns, by character */
};

/* Bits of a Braille pattern, by column and row of its dots (Unicode, U+2800). */
static const unsigned char bits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

/* Finite points as means of columns; their number. */
static int fill_columns(const struct gd_curve *curve, struct canvas *canvas) {
  double first = curve->x[0], span = curve->x[curve->count - 1] - first;
  double sums[2 * GD_CURVE_COLUMNS] = {0};
  int counts[2 * GD_CURVE_COLUMNS] = {0}, finite = 0;
  for (int i = 0; i < curve->count; i++) {
    double share = span > 0 ? (curve->x[i] - first) / span : 0;
    int at = (int)(share * (canvas->columns - 1) + 0.5);
    if (!isfinite(curve->y[i]))
      continue;
    sums[at] += curve->y[i];
    counts[at]++;
    finite++;
  }
  for (int i = 0; i < canvas->columns; i++)
    canvas->value[i] = counts[i] > 0 ? sums[i] / counts[i] : (double)NAN;
  return finite;
}

static void fill_gaps(struct canvas *canvas) {
  int last = -1;
  for (int i = 0; i < canvas->columns; i++) {
    if (isnan(canvas->value[i]))
      continue;
    for (int j = last + 1; j < i && last >= 0; j++)
      canvas->value[j] = canvas->value[last] + (canvas->value[i] - canvas->value[last]) *
                                                   (double)(j - last) / (double)(i - last);
    last = i;
  }
}

static void set_dot(struct canvas *canvas, int column, int row) {
  canvas->dots[row / 4 * GD_CURVE_COLUMNS + column / 2] |= bits[column % 2][row % 4];
}

/* Each column has the dots from the value before to its own, so that the curve has no holes. */
static void draw(struct canvas *canvas, double low, double high) {
  int before = -1;
  for (int i = 0; i < canvas->columns; i++) {
    if (isnan(canvas->value[i]))
      continue;
    double share = high > low ? (high - canvas->value[i]) / (high - low) : 0.5;
    int row = (int)(share * (canvas->rows - 1) + 0.5);
    int step = before < 0 || before == row ? 0 : before < row ? 1 : -1;
    for (int at = before < 0 ? row : before + step; step && at != row; at += step)
      set_dot(canvas, i, at);
    set_dot(canvas, i, row);
    before = row;
  }
}

static void append_character(struct gd_strbuf *out, unsigned dots, bool braille) {
  unsigned code = 0x2800 + dots;
  const char utf8[3] = {(char)(0xe0 | code >> 12), (char)(0x80 | (code >> 6 & 0x3f)),
                        (char)(0x80 | (code & 0x3f))};
  if (dots == 0)
    gd_strbuf_append(out, " ");
  else if (braille)
    gd_strbuf_append_bytes(out, utf8, sizeof utf8);
  else
    gd_strbuf_append(out, "*");
}

static void append_rows(struct gd_strbuf *out, const struct gd_curve *curve,
                        const struct canvas *canvas, double low, double high) {
  for (int row = 0; row < curve->rows; row++) {
    const unsigned char *dots = canvas->dots + (size_t)row * GD_CURVE_COLUMNS;
    char label[32] = "";
    int used = curve->columns;
    if (row == 0 || row == curve->rows - 1)
      snprintf(label, sizeof label, "%.4g", row == 0 ? high : low);
    gd_strbuf_printf(out, "%*s%*s |", curve->indent, "", LABEL, label);
    while (used > 0 && dots[used - 1] == 0)
      used--;
    for (int i = 0; i < used; i++)
      append_character(out, dots[i], curve->braille);
    gd_strbuf_append(out, "\n");
  }
}

void gd_curve_append(struct gd_strbuf *out, const struct gd_curve *curve) {
  struct canvas canvas = {.columns = 2 * curve->columns, .rows = 4 * curve->rows};
  double low = HUGE_VAL, high = -HUGE_VAL;
  char first[32], last[32];
  if (curve->count < 2 || fill_columns(curve, &canvas) < 2)
    return;
  for (int i = 0; i < canvas.columns; i++) {
    low = fmin(low, canvas.value[i]); /* a NaN is ignored */
    high = fmax(high, canvas.value[i]);
  }
  fill_gaps(&canvas);
  draw(&canvas, low, high);
  append_rows(out, curve, &canvas, low, high);
  snprintf(first, sizeof first, "%.0f", curve->x[0]);
  snprintf(last, sizeof last, "%.0f", curve->x[curve->count - 1]);
  gd_strbuf_printf(out, "%*s%s%*s\n", curve->indent + LABEL + 2, "", first,
                   curve->columns - (int)strlen(first), last);
}
