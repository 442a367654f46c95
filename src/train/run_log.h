/*
 * RUN/log.jsonl as it is read: by `runs`, `watch` and `report`, also while the run is being
 * trained. What is new is appended by the next read; steps that a resumed run does again replace
 * those before. A damaged line is counted and passed over.
 *
 *   struct gd_run_log log = {0};
 *   GD_TRY(gd_run_log_read(&log, "run", err));
 *   gd_run_log_deinit(&log);
 */
#ifndef GD_TRAIN_RUN_LOG_H
#define GD_TRAIN_RUN_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct gd_run_point {
  int64_t step;
  double loss;                                /* NaN: it was not finite; likewise norm */
  double lr, norm, tokens_per_s, mfu, step_s; /* of a model of images, images_per_s */
  bool skipped;
};

struct gd_run_eval {
  int64_t step;
  double loss;
};

struct gd_run_log {
  struct gd_run_point *points; /* by step, each once */
  struct gd_run_eval *evals;
  uint32_t n_points, n_evals, points_capacity, evals_capacity;
  int64_t damaged;       /* lines */
  bool images;           /* it counts images, not tokens */
  int64_t read_bytes;    /* of the file, so far */
  int64_t changed_s;     /* when the file was last written, since 1970; 0: there is none */
  uint64_t device, file; /* which file that was */
};

enum { GD_RUN_RECENT = 32 }; /* steps that speed is judged by */

/* Reads what was added since the last time; all of it where the file is a new one or was cut. No
   log at all is an empty one. GD_ENVIRONMENT: it cannot be read, or memory ran out. */
enum gd_status gd_run_log_read(struct gd_run_log *log, const char *folder,
                               struct gd_error *err) GD_MUST_USE;
void gd_run_log_deinit(struct gd_run_log *log); /* safe on a zeroed one */

/* Median seconds of the last GD_RUN_RECENT steps; 0 without steps. */
double gd_run_log_step_s(const struct gd_run_log *log);
/* The number behind `key`, as in "\"step\": ", in a line of the log; false: there is none. */
bool gd_run_log_number(const char *line, const char *key, double *value);

#endif
