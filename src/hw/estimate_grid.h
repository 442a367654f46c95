/*
 * The lower bounds of estimate.h for models x GPUs x counts: what `gpudays estimate` shows.
 *
 *   struct gd_estimate_grid grid;
 *   GD_TRY(gd_estimate_grid_make(&asked, &arena, &grid, err));
 *   ... gd_estimate_grid_cell(&grid, model, gpu, count)->days ...
 */
#ifndef GD_HW_ESTIMATE_GRID_H
#define GD_HW_ESTIMATE_GRID_H

#include "base/mem.h"
#include "hw/estimate.h"

enum { GD_ESTIMATE_COUNTS = 4 }; /* 1, 2, 4, 8 */

struct gd_estimate_asked {
  struct gd_hw *hw;
  const struct gd_model *models; /* with their recipes */
  int n_models;
  const double *flops; /* of each model's run, where they are known; NULL: counted on its graph */
  const char *gpus;    /* names joined by commas; NULL: those of the paper */
  int count;           /* of GPUs; 0: 1, 2, 4 and 8 */
  enum gd_peaks peaks;
  const enum gd_precision *forced; /* NULL: the recipe's */
};
struct gd_estimate_grid {
  const struct gd_gpu **gpus;
  int n_models, n_gpus;
  int counts[GD_ESTIMATE_COUNTS], n_counts;
  struct gd_estimate *cells; /* by model, GPU, count: counts change first */
};
/* In the arena. GD_BAD_INPUT for an unknown GPU, and for one whose peak the paper does not state
   where that is asked for. */
enum gd_status gd_estimate_grid_make(const struct gd_estimate_asked *asked, struct gd_arena *arena,
                                     struct gd_estimate_grid *grid,
                                     struct gd_error *err) GD_MUST_USE;
const struct gd_estimate *gd_estimate_grid_cell(const struct gd_estimate_grid *grid, int model,
                                                int gpu, int count);

#endif
