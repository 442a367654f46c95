/*
 * Measuring a machine for predictions: GEMMs over a grid of shapes, then small models of every
 * family, whose ops are timed one by one as they run, then whole steps of other models, which the
 * predictions are checked against. The small models are none of the presets. It goes through the
 * backend interface alone, so that the same code measures a CPU and a GPU.
 *
 *   struct gd_rates rates = {0};
 *   GD_TRY(gd_calibrate(&(struct gd_calibrate_options){.backend = "cpu"}, &rates, err));
 *   GD_TRY(gd_rates_save(&rates, path, err));
 *   gd_rates_deinit(&rates);
 */
#ifndef GD_PREDICT_CALIBRATE_H
#define GD_PREDICT_CALIBRATE_H

#include "backend/backend.h"
#include "model/model.h"
#include "pass/method.h"
#include "predict/predict.h"

struct gd_calibrate_options {
  const char *backend; /* "cpu" or "cuda" */
  int threads;         /* 0: all */
  /* Borrowed; NULL: one rank. Several run the collectives of their backends together; then rank 0
     goes on, and the others wait for it. */
  struct gd_comm *comm;
  double limit_s; /* what is left after this long is not measured; 0: 60 s */
  void (*progress)(void *user, const char *what, double done, double eta_s); /* may be NULL */
  void (*alone)(void *user); /* rank 0 begins what it does by itself; may be NULL */
  void *progress_user;
};

/* Fills rates, which the caller deinitialises also after a failure; of ranks above 0 it is empty.
 */
enum gd_status gd_calibrate(const struct gd_calibrate_options *options, struct gd_rates *rates,
                            struct gd_error *err) GD_MUST_USE;

/* --- the models that are run (calibrate_models.c) ------------------------------------------- */

struct gd_calibrate_spec {
  const char *family; /* "gpt_neox", "roberta", ... as config.json's model_type */
  int width, heads, key_heads, layers, classes, seq, batch;
};
/* One whose steps are predicted and measured, instead of one that is learnt from: held_out. */
const struct gd_calibrate_spec *gd_calibrate_specs(bool held_out, int *count);
/* A GPU, which small models leave idle, gets it three times as wide, with twelve times the batch.
 */
enum gd_status gd_calibrate_model(const struct gd_calibrate_spec *spec, bool gpu,
                                  struct gd_model *model, struct gd_error *err) GD_MUST_USE;

#endif
