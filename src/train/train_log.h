/*
 * The log of a run: RUN/log.jsonl, a line of JSON a step, flushed. A run that goes on from an
 * earlier checkpoint cuts the lines behind it: those steps come again.
 */
#ifndef GD_TRAIN_TRAIN_LOG_H
#define GD_TRAIN_TRAIN_LOG_H

#include <stdio.h>

#include "train/train.h"

struct gd_train_log {
  FILE *file;
  char path[GD_FILE_PATH];
};

/* Opens RUN/log.jsonl for steps behind `step`. recent gets the last losses before it, oldest first:
 *n_recent of at most `most`. */
enum gd_status gd_train_log_open(struct gd_train_log *log, const char *folder, int64_t step,
                                 double *recent, int most, int *n_recent,
                                 struct gd_error *err) GD_MUST_USE;
/* GD_ENVIRONMENT: the disk is full. */
enum gd_status gd_train_log_step(struct gd_train_log *log, const struct gd_train_step *step,
                                 struct gd_error *err) GD_MUST_USE;
/* accuracy below 0: none. */
enum gd_status gd_train_log_eval(struct gd_train_log *log, int64_t step, double loss,
                                 double accuracy, struct gd_error *err) GD_MUST_USE;
void gd_train_log_close(struct gd_train_log *log); /* safe on a zeroed one */

#endif
