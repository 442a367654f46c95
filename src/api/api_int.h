/*
 * What the files of the public API share: the handle of a model, and the way from an internal error
 * to the caller's.
 */
#ifndef GD_API_API_INT_H
#define GD_API_API_INT_H

#include <gpudays/gpudays.h>

#include "base/status.h"
#include "model/model.h"
#include "pass/method.h"

struct gpd_model {
  struct gd_model model;
  bool precision_given; /* the caller asked for model.recipe.precision */
};

/* Copies the first failure to the caller's record, and returns its status. */
enum gpd_status gd_api_result(enum gd_status status, const struct gd_error *from,
                              struct gpd_error *to);

/* A method by name, or the one that NULL stands for. */
enum gd_status gd_api_method(const char *text, const char *otherwise, struct gd_method *method,
                             struct gd_error *err) GD_MUST_USE;
enum gd_status gd_api_precision(const char *text, enum gd_precision *precision,
                                struct gd_error *err) GD_MUST_USE;
/* Numbers of options may be zero, but not negative. */
enum gd_status gd_api_check(const char *name, int64_t value, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_api_check_threads(int threads, struct gd_error *err) GD_MUST_USE;

/* Arguments of a public function that may not be NULL: returns GPD_BAD_INPUT, with the name. */
#define GD_API_NEEDS(argument, err)            \
  do {                                         \
    if (!(argument))                           \
      return gd_api_missing(#argument, (err)); \
  } while (0)
enum gpd_status gd_api_missing(const char *argument, struct gpd_error *err);

#endif
