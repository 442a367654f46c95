/*
 * `gpudays export MODEL --gpu 4x3090`: what plan answers for hardware that need not be here, as a
 * trial. By whose memory it is planned, --stack says, or the format: that of the software that will
 * run the settings.
 */
#ifndef GD_CLI_EXPORT_TARGET_H
#define GD_CLI_EXPORT_TARGET_H

#include "cli/plan_stack.h"
#include "cli/predicting.h"

struct gd_export_target {
  struct gd_trial trial;
  const struct gd_target *target;
  const char *software;            /* "PyTorch with torch.compile"; NULL: gpudays' own engine */
  const char *stack;               /* "own", or a name of data/stacks */
  struct gd_predicting predicting; /* what these borrow from */
  struct gd_stack_plan plan;
};

/* GD_NOMEM_DEVICE, GD_NOMEM_HOST: it does not fit; the sentence says what would. Deinitialise it
   also after a failure. */
enum gd_status gd_export_target_make(struct gd_cli *cli, const struct gd_model *model,
                                     struct gd_export_target *made,
                                     struct gd_error *err) GD_MUST_USE;
void gd_export_target_deinit(struct gd_export_target *made); /* safe on a zeroed one */

#endif
