/*
 * The clocks of the GPU while a trial is measured: looked at every 100 ms by a thread, so that what
 * lowers them is noticed. Where the backend has no clocks to tell there are no looks.
 *
 *   struct gd_clocks_watch watch;
 *   gd_clocks_watch_start(&watch, backend);
 *   work();
 *   gd_clocks_watch_stop(&watch);
 *   GD_TRY(gd_clocks_tell(&watch, comm, trial, err));
 */
#ifndef GD_TRIAL_CLOCKS_H
#define GD_TRIAL_CLOCKS_H

#include "backend/backend.h"
#include "base/ticker.h"
#include "comm/comm.h"
#include "trial/trial.h"

enum { GD_CLOCKS_MOST_MHZ = 4096 };

struct gd_clocks_watch {
  struct gd_ticker ticker;
  struct gd_backend *backend;
  int looks;                      /* at a GPU that was not idle; the others count for nothing */
  int throttled;                  /* of them, with one of GD_CLOCKS_BAD */
  int with[GD_CLOCKS_REASONS];    /* of them, with that reason */
  int at_mhz[GD_CLOCKS_MOST_MHZ]; /* of them, with that clock; 0: not told */
  int max_mhz;
  double power_w, power_limit_w; /* the first is a sum over looks */
};

void gd_clocks_watch_start(struct gd_clocks_watch *watch, struct gd_backend *backend);
void gd_clocks_watch_stop(struct gd_clocks_watch *watch);
/* One look's readings, as the thread counts them. */
void gd_clocks_count(struct gd_clocks_watch *watch, const struct gd_clocks *now);

/*
 * Sets the trial's gpu_... fields. All ranks leave with those of the rank whose GPU was slowed down
 * most, since the others waited for it. comm NULL: one rank.
 */
enum gd_status gd_clocks_tell(const struct gd_clocks_watch *watch, struct gd_comm *comm,
                              struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;

#endif
