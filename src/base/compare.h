/*
 * Orders for qsort: from small to large, texts by their bytes.
 */
#ifndef GD_BASE_COMPARE_H
#define GD_BASE_COMPARE_H

#include <string.h>

/* Of doubles. */
static inline int gd_compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of pointers to texts. */
static inline int gd_compare_texts(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#endif
