/*
 * A curve in text: dots of Braille patterns, eight a character, or stars where the terminal has no
 * UTF-8; the range of its values at the left, that of its steps below.
 */
#ifndef GD_CLI_CURVE_H
#define GD_CLI_CURVE_H

#include "base/strbuf.h"

struct gd_curve {
  const double *x, *y; /* x rises; y that is not finite is left out */
  int count;
  int columns, rows; /* of characters, the labels left out; up to GD_CURVE_COLUMNS */
  int indent;
  bool braille;
};
enum { GD_CURVE_COLUMNS = 512, GD_CURVE_ROWS = 64 };

/* Appends rows + 1 lines; nothing where fewer than two points are finite. */
void gd_curve_append(struct gd_strbuf *out, const struct gd_curve *curve);

#endif
