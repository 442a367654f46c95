/*
 * Which trial is exported: the fastest of the store, or a point that is named, as it was measured
 * or, where it was not, as it is planned.
 *
 *   struct gd_export_choice choice = {.model = &model, .best = &best, .plan = options};
 *   GD_TRY(gd_export_choose(&choice, &trial, err));
 */
#ifndef GD_EXPORT_EXPORT_CHOICE_H
#define GD_EXPORT_EXPORT_CHOICE_H

#include "store/store_best.h"
#include "trial/choose.h"

struct gd_export_choice {
  const struct gd_model *model;     /* with the recipe that is asked for */
  const struct gd_best_asked *best; /* what of the store is wanted; the method of its filter is set
                                       here; its notes get a line where a point is planned */
  const char *store;                /* as gd_store_open takes it */
  const char *method;               /* of the point, by name; NULL: that of the fastest trial */
  struct gd_trial_options plan;     /* of a point that is planned, but for the method */
};
/*
 * The fastest stored trial, of the method where one is named. Without one the method is planned for
 * this machine, unless the filter asks for a device, a host or a date. Limits of memory and a
 * micro-batch in `plan` have it planned anew in any case. GD_MISMATCH: there is no such trial.
 * GD_NOMEM_DEVICE, GD_NOMEM_HOST: the point does not fit. GD_BAD_INPUT: a method that is none, or
 * that is missing where a point is to be planned.
 */
enum gd_status gd_export_choose(const struct gd_export_choice *choice, struct gd_trial *trial,
                                struct gd_error *err) GD_MUST_USE;

#endif
