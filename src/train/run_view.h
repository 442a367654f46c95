/*
 * What can be seen of a run from its folder, by any process at any time: what it trains, how far it
 * is, and whether it is being trained. `runs` lists views, `watch` follows one, `report` draws
 * them.
 *
 *   struct gd_run_view view = {0};
 *   GD_TRY(gd_run_view_read(&view, "runs/pythia-14m", err));
 *   GD_TRY(gd_run_view_read(&view, "runs/pythia-14m", err)); // later: what is new
 *   gd_run_view_deinit(&view);
 */
#ifndef GD_TRAIN_RUN_VIEW_H
#define GD_TRAIN_RUN_VIEW_H

#include "train/run_folder.h"
#include "train/run_log.h"

enum gd_run_state { GD_RUN_STATE_TRAINING, GD_RUN_STATE_STOPPED, GD_RUN_STATE_FINISHED };
const char *gd_run_state_name(enum gd_run_state state); /* "training", ... */

struct gd_run_view {
  char model[128];
  int64_t batch, seq, steps;     /* of its recipe */
  struct gd_run_session session; /* method: that of run.json where no step was made */
  enum gd_run_state state;
  /* of the log */
  struct gd_run_log log;
  int64_t step;                /* done */
  double loss, eval_loss;      /* last ones; NaN: none */
  double step_s, tokens_per_s; /* median of the last steps; 0: none; log.images: images */
  int64_t skipped;             /* updates */
  int64_t changed_s;           /* last change, since 1970 */
  int64_t completion_s;        /* being trained: when it will be done; else 0 */
};

/* Reads, or reads what is new. GD_BAD_INPUT: the folder has no run.json, or one that is damaged. A
   zeroed view is needed at first, and gd_run_view_deinit also after a failure. */
enum gd_status gd_run_view_read(struct gd_run_view *view, const char *folder,
                                struct gd_error *err) GD_MUST_USE;
void gd_run_view_deinit(struct gd_run_view *view);

/* How far a run is, whoever trains it and whether or not somebody does now. */
struct gd_run_progress {
  int64_t step, steps;
  bool finished;
  int64_t end_s; /* when it was finished, or will be at its speed if it does not wait; 0: unknown */
};
enum gd_status gd_run_progress_read(const char *folder, const struct gd_run_settings *settings,
                                    struct gd_run_progress *progress,
                                    struct gd_error *err) GD_MUST_USE;

/* The runs of folders, in the order of these: a folder itself where it is a run, else those right
   in it, by name; of no folder: those of the folder `runs`, where there is one. Paths in the
   arena; none is *count 0. */
enum gd_status gd_run_view_find_all(const char *const *folders, int n_folders,
                                    struct gd_arena *arena, const char *const **paths, int *count,
                                    struct gd_error *err) GD_MUST_USE;

#endif
