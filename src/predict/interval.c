/*
 * Intervals of predictions; see interval.h.
 */
#include "predict/interval.h"

#include <math.h>
#include <stdio.h>

/* 95 % of Student's t distribution lie below it. */
static double student(int freedom) {
  static const double t[] = {6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81};
  const int most = sizeof t / sizeof *t;
  return freedom < 1 ? t[0] : freedom <= most ? t[freedom - 1] : 1.645 + 1.7 / freedom;
}

double gd_interval_half(double mean_square, int draws) {
  return draws > 0 ? student(draws - 1) * sqrt(mean_square * (1 + 1.0 / draws)) : 1;
}

double gd_interval_error(double half) {
  return 1 - exp(-half);
}

double gd_interval_half_of(double error) {
  return -log(1 - fmin(error, 0.8));
}

const char *gd_interval_say(double error, char text[GD_INTERVAL_TEXT]) {
  double low = 1 - fmin(error, 0.8);
  snprintf(text, GD_INTERVAL_TEXT, "x%.2f to x%.2f", low, 1 / low);
  return text;
}
