/*
 * The log of a run: RUN/log.jsonl, a line of JSON a step, flushed. A run that goes on from an
 * earlier checkpoint cuts the lines behind it: those steps come again. The same values go to
 * RUN/tensorboard (events.h).
 */
#ifndef GD_TRAIN_TRAIN_LOG_H
#define GD_TRAIN_TRAIN_LOG_H

#include <stdio.h>

#include "train/events.h"
#include "train/spikes.h"
#include "train/train.h"

struct gd_train_log {
  FILE *file;
  char path[GD_FILE_PATH];
  struct gd_events events;
  char trouble[1024]; /* why events are not written any more; who says it empties it */
};

/* What the log knows of the steps before. */
struct gd_train_before {
  struct gd_recent recent;
  int64_t evaluated_step; /* of the last evaluation; -1: none */
};
/* Opens RUN/log.jsonl for steps behind `step`. */
enum gd_status gd_train_log_open(struct gd_train_log *log, const char *folder, int64_t step,
                                 struct gd_train_before *before, struct gd_error *err) GD_MUST_USE;
/* GD_ENVIRONMENT: the disk is full. */
enum gd_status gd_train_log_step(struct gd_train_log *log, const struct gd_train_step *step,
                                 struct gd_error *err) GD_MUST_USE;
/* accuracy below 0: none. */
enum gd_status gd_train_log_eval(struct gd_train_log *log, int64_t step, double loss,
                                 double accuracy, struct gd_error *err) GD_MUST_USE;
void gd_train_log_close(struct gd_train_log *log); /* safe on a zeroed one */

#endif
