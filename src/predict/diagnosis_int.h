/*
 * What diagnosis.c weighs and diagnosis_evidence.c puts into words.
 */
#ifndef GD_PREDICT_DIAGNOSIS_INT_H
#define GD_PREDICT_DIAGNOSIS_INT_H

#include "predict/diagnosis.h"

/* A cause of this question: with what is known of it. */
struct gd_cause_option {
  const struct gd_cause *cause;
  double levels[GD_CAUSE_LEVELS];
  int n_levels;
  double prior;
  bool fixed; /* said, or seen in the times */
  double weight, share;
  double best; /* weight of the likeliest set with it */
  double with_s, without_s, level;
};

bool gd_cause_is(const struct gd_cause_option *option, const char *name);

/* Evidence and remedy of a cause; micro_batch: of the run without a fault. */
void gd_cause_describe(const struct gd_diagnosis_question *question,
                       const struct gd_cause_option *option, int64_t micro_batch,
                       struct gd_found_cause *found);

#endif
