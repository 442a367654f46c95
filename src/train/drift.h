/*
 * Whether a run keeps to its expected step time, and what can be seen where it does not.
 * Steps are judged in windows of GD_DRIFT_WINDOW by their median, after a warm-up; while a window
 * lasts, the accounts of the machine are read (trial/load.h) and the GPU's clocks are looked at
 * (trial/clocks.h). A sentence is made when the state changes, or a new cause is seen; not else.
 *
 *   gd_drift_begin(&drift, &expected, backend, comm);
 *   GD_TRY(gd_drift_add(&drift, &step, &sentence, err));  // each step, on all ranks
 *   gd_drift_end(&drift);
 */
#ifndef GD_TRAIN_DRIFT_H
#define GD_TRAIN_DRIFT_H

#include "train/expected.h"
#include "trial/clocks.h"
#include "trial/load.h"

enum { GD_DRIFT_WINDOW = 32, GD_DRIFT_WARMUP = 8 };

/* What a step took on this rank. */
struct gd_drift_step {
  double step_s;
  double early_s;     /* before its last micro-step, the one in which ranks synchronise */
  double data_wait_s; /* of it, for samples */
  double stalled_s;   /* before it, for a checkpoint */
  bool writing;       /* a checkpoint was being written meanwhile */
};

/* What a rank saw in a window; shares are of its time, or of the CPUs. */
struct gd_drift_seen {
  double step_s, early_s; /* medians */
  double data_wait_share, stalled_share, writing_share;
  double busy_share, quota_share, steal_share; /* below 0: not known */
  double own_s, wall_s;                        /* CPU time of the rank, time of the window */
  double gpu_throttled_share;
  int gpu_mhz, gpu_max_mhz;
  char gpu_reasons[96]; /* empty: none */
};

struct gd_drift {
  struct gd_expected expected;
  struct gd_backend *backend;
  struct gd_comm *comm;
  bool watches;  /* a window is under way */
  bool slow;     /* the state */
  unsigned said; /* causes that were named since it is slow */
  int warm, count;
  double step_s[GD_DRIFT_WINDOW], early_s[GD_DRIFT_WINDOW];
  double data_wait_s, stalled_s, total_s;
  int writing;
  int64_t began_ns;
  struct gd_load before;
  struct gd_clocks_watch clocks;
  char sentence[1024];
  char causes[256]; /* of the last window in which it was slow; empty: it never was */
};

/* backend and comm are borrowed; comm NULL: one rank. Without an expected time nothing is watched.
 */
void gd_drift_begin(struct gd_drift *drift, const struct gd_expected *expected,
                    struct gd_backend *backend, struct gd_comm *comm);
/* *sentence: NULL, or what to tell; on rank 0 alone, good until the next call. */
enum gd_status gd_drift_add(struct gd_drift *drift, const struct gd_drift_step *step,
                            const char **sentence, struct gd_error *err) GD_MUST_USE;
void gd_drift_end(struct gd_drift *drift); /* safe on a zeroed one, and twice */

/* Judges a window by what all ranks saw: the sentence, or NULL. For gd_drift_add, and tests. */
const char *gd_drift_judge(struct gd_drift *drift, const struct gd_drift_seen *seen, int ranks);

#endif
