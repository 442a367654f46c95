/*
 * Inside of the reading of published rates: the columns of a row, and whether what a row says can
 * be; see published.h.
 */
#ifndef GD_PREDICT_PUBLISHED_INT_H
#define GD_PREDICT_PUBLISHED_INT_H

#include "model/model.h"
#include "predict/published.h"

enum gd_published_column {
  GD_ROW_ID,
  GD_ROW_SOURCE,
  GD_ROW_STACK,
  GD_ROW_GPU,
  GD_ROW_COUNT,
  GD_ROW_MODEL,
  GD_ROW_SEQ,
  GD_ROW_MICRO_BATCH,
  GD_ROW_BATCH,
  GD_ROW_METHOD,
  GD_ROW_PRECISION,
  GD_ROW_ATTENTION,
  GD_ROW_GRADIENT_BYTES,
  GD_ROW_NETWORK,
  GD_ROW_PER_GPU,
  GD_ROW_UNIT,
  GD_ROW_NOTE,
  GD_ROW_COLUMNS
};

/* What can not be: the column, and the bound, as gd_csv_mismatch says it. */
struct gd_published_doubt {
  enum gd_published_column column;
  char expected[320];
};

/* Whether its GPU computes in its precision. */
bool gd_published_has_precision(const struct gd_published_row *row,
                                struct gd_published_doubt *doubt);
/* Whether its rate is within what the multipliers of its GPU do; works: its ops. */
bool gd_published_has_rate(const struct gd_published_row *row, const struct gd_stack_works *works,
                           const char *unit, struct gd_published_doubt *doubt);
/* Whether its micro-batch may fit, by the rule of `plan --stack`. */
enum gd_status gd_published_has_memory(const struct gd_published_row *row,
                                       const struct gd_model *model, bool flash, bool *has,
                                       struct gd_published_doubt *doubt,
                                       struct gd_error *err) GD_MUST_USE;

#endif
