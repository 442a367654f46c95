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
  int64_t bytes; /* of whole lines */
  int64_t lost;  /* lines that could not be written */
  struct gd_events events;
  /* A sentence a line that a user should read; who says them empties it. */
  char trouble[2048];
};

/* What the log knows of the steps before. */
struct gd_train_before {
  struct gd_recent recent;
  int64_t evaluated_step; /* of the last evaluation; -1: none */
};
/* Opens RUN/log.jsonl for steps behind `step`; before->recent has those behind `judged_from`. */
enum gd_status gd_train_log_open(struct gd_train_log *log, const char *folder, int64_t step,
                                 int64_t judged_from, struct gd_train_before *before,
                                 struct gd_error *err) GD_MUST_USE;
/* A line that cannot be written (the disk is full) is left out, and training goes on: trouble says
   so the first time, and when lines can be written again. */
void gd_train_log_step(struct gd_train_log *log, const struct gd_train_step *step);
/* accuracy below 0: none. */
void gd_train_log_eval(struct gd_train_log *log, int64_t step, double loss, double accuracy);
void gd_train_log_close(struct gd_train_log *log); /* safe on a zeroed one */

#endif
