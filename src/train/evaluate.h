/*
 * The loss on data that is not trained on. A run evaluates with a plan of its own
 * (gd_pipeline_evaluation): no dropout, no backward pass. Gradients may have been written
 * afterwards: whoever trains on clears them.
 *
 *   struct gd_evaluation evaluation = {.run = run, .data = &data, .micro_batch = 8, ...};
 *   GD_TRY(gd_evaluate(&evaluation, &result, err));
 */
#ifndef GD_TRAIN_EVALUATE_H
#define GD_TRAIN_EVALUATE_H

#include "data/source.h"
#include "exec/run.h"

struct gd_evaluation {
  struct gd_run *run;
  enum gd_run_part part;         /* of the run that computes the loss */
  const struct gd_dataset *data; /* tokens; NULL: images, which are followed rank by rank */
  struct gd_source *images;
  int64_t micro_batch, samples;                   /* the first so many samples are evaluated */
  struct gd_comm *comm;                           /* NULL: one rank */
  void (*evaluated)(void *user, int64_t samples); /* so far; may be NULL */
  bool (*stop)(void *user);                       /* true on a rank: all call it off; NULL: never */
  void *user;
};

struct gd_evaluated {
  double loss;     /* mean over the labels that count */
  double accuracy; /* of images with soft targets: share whose class was found */
  double labels;   /* so many */
  int64_t samples; /* and samples */
  bool stopped;    /* it was called off, and the loss is none */
};

/* All ranks call it and get the same result. */
enum gd_status gd_evaluate(const struct gd_evaluation *evaluation, struct gd_evaluated *result,
                           struct gd_error *err) GD_MUST_USE;

#endif
