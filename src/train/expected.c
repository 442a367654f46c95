/*
 * Expected step times; see expected.h.
 */
#include "train/expected.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/switches.h"
#include "predict/predict.h"
#include "store/store.h"

#define TOLERANCE 0.05 /* past it a run says that it is slow: docs/modules/train.md */

struct looking {
  const struct gd_trial *plan;
  const struct gd_recipe *recipe;
  double step_s, disturbed_s; /* the shortest; 0: none */
};

static bool is_equal(double a, double b) {
  return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b));
}

/* Without choices by timing, or without cuDNN, a step takes longer. */
static bool is_deterministic_alike(const struct gd_trial *trial) {
  static const char *const values[] = {"1", "kept"};
  const char *here = gd_env("GPUDAYS_DETERMINISTIC");
  bool alike = true;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
    char text[64];
    snprintf(text, sizeof text, "GPUDAYS_DETERMINISTIC=%s", values[i]);
    alike &= (strstr(trial->machine, text) != NULL) == (here && strcmp(here, values[i]) == 0);
  }
  return alike;
}

/* The plan says what runs, the FLOPs and parameters that the model is the same one. The number of
   steps does not matter to a step. */
static bool is_of_plan(const struct gd_trial *trial, const struct looking *l) {
  const struct gd_trial *plan = l->plan;
  struct gd_recipe sizes = {.precision = plan->precision};
  return strcmp(trial->method, plan->method) == 0 && strcmp(trial->backend, plan->backend) == 0 &&
         strcmp(trial->device, plan->device) == 0 && trial->ranks == plan->ranks &&
         trial->threads == plan->threads && trial->precision == plan->precision &&
         trial->micro_batch == plan->micro_batch && trial->accumulation == plan->accumulation &&
         trial->remainder == plan->remainder && trial->parameters == plan->parameters &&
         is_equal(trial->model_flops_per_step, plan->model_flops_per_step) &&
         gd_recipe_sizes(trial, &sizes) && sizes.batch == l->recipe->batch &&
         sizes.seq == l->recipe->seq;
}

static enum gd_status look(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct looking *l = user;
  double *least = gd_trial_is_disturbed(&row->trial) ? &l->disturbed_s : &l->step_s;
  (void)err;
  if (!row->origin[0] && is_of_plan(&row->trial, l) && is_deterministic_alike(&row->trial) &&
      (*least <= 0 || row->trial.step_s < *least))
    *least = row->trial.step_s;
  return GD_OK;
}

static double trial_step_s(const char *path, const struct gd_model *model,
                           const struct gd_trial *plan) {
  const enum gd_trial_status ok = GD_TRIAL_OK;
  struct looking l = {.plan = plan, .recipe = &model->recipe};
  struct gd_store *store = NULL;
  struct gd_error unused = {0};
  struct gd_store_filter filter = {.model_name = plan->model, .status = &ok, .brief = true};
  bool read = gd_store_open(path, &store, &unused) == GD_OK &&
              gd_store_query(store, &filter, look, &l, &unused) == GD_OK;
  gd_store_close(store);
  return !read ? 0 : l.step_s > 0 ? l.step_s : l.disturbed_s;
}

static bool predict(const struct gd_session *session, const struct gd_model *model,
                    const struct gd_trial *plan, struct gd_prediction *prediction) {
  struct gd_predictor predictor = {0};
  struct gd_error unused = {0};
  struct gd_step_shape shape = {.accumulation = plan->accumulation,
                                .steps = model->recipe.steps,
                                .of = gd_point_class_of(&session->options.method)};
  bool known =
      gd_predictor_for_machine(&predictor, &session->place->info, plan->ranks, &unused) == GD_OK &&
      predictor.calibrated &&
      gd_predict(&predictor, &session->full.plan, plan->remainder ? &session->remainder.plan : NULL,
                 &shape, prediction, &unused) == GD_OK;
  gd_predictor_deinit(&predictor);
  return known && prediction->known && prediction->step_s > 0;
}

void gd_expected_find(const char *store, const struct gd_session *session,
                      const struct gd_model *model, const struct gd_trial *plan,
                      struct gd_expected *expected) {
  struct gd_prediction prediction = {0};
  *expected = (struct gd_expected){.tolerance = TOLERANCE, .by = ""};
  expected->step_s = trial_step_s(store, model, plan);
  if (expected->step_s > 0) {
    expected->by = "trial";
  } else if (predict(session, model, plan, &prediction)) {
    expected->step_s = prediction.step_s;
    expected->tolerance = fmax(TOLERANCE, prediction.error);
    expected->by = "prediction";
  }
}
