/*
 * Predictions: how long the programs of a plan take on a device that need not be here, with an
 * interval and a sentence that says what the figures rest on. The device is this machine, if
 * `gpudays calibrate` has measured it, or a target of the catalogue, for which the nearest
 * calibration stands in: the same GPU, else its architecture, else the nearest generation.
 *
 *   struct gd_predictor predictor = {0};
 *   GD_TRY(gd_predictor_for_target(&predictor, &target, err));
 *   GD_TRY(gd_predict(&predictor, &plan, NULL, &shape, &prediction, err));
 *   gd_predictor_deinit(&predictor);
 */
#ifndef GD_PREDICT_PREDICT_H
#define GD_PREDICT_PREDICT_H

#include "backend/backend.h"
#include "predict/published_errors.h"
#include "predict/simulate.h"

/* What nobody has compared with anything, for any device: a factor of 0.6 to 1.67. */
#define GD_PREDICT_UNVALIDATED 0.4

struct gd_predictor {
  struct gd_rates rates;
  struct gd_fitted fitted; /* of the GPU model, and what it misses published rates by */
  bool calibrated;         /* the rates are this very device's */
  double distance;         /* of a target from the device that was calibrated; 0: the same kind */
  char basis[512];         /* what the figures rest on, as a sentence without its full stop */
  struct gd_predictor_class {
    bool validated;  /* against measurements on this kind of device, under these conditions */
    double error;    /* of its interval of 90 %: from 1 - error to 1 / (1 - error) */
    char words[320]; /* what that rests on; empty: the basis says it */
  } of[GD_POINT_CLASSES];
};

/* The basis and the words of one class, as one sentence; returns the text. */
enum { GD_PREDICTOR_BASIS = 1280 };
const char *gd_predictor_basis(const struct gd_predictor *predictor, enum gd_point_class of,
                               char text[GD_PREDICTOR_BASIS]);
/* The same for all classes whose bit (1 << class) is set, each with its interval. */
void gd_predictor_say(const struct gd_predictor *predictor, unsigned classes,
                      struct gd_strbuf *out);

/* The device that a backend has described here: its own calibration; else that of its CPU with
   other threads; else the catalogue's GPU of that name; else (calibrated false) a guess. */
enum gd_status gd_predictor_for_machine(struct gd_predictor *predictor,
                                        const struct gd_device_info *info, int ranks,
                                        struct gd_error *err) GD_MUST_USE;
enum gd_status gd_predictor_for_target(struct gd_predictor *predictor,
                                       const struct gd_target *target,
                                       struct gd_error *err) GD_MUST_USE;
/*
 * The same for many targets: calibrations, the fit and the catalogue are read once. What is
 * predicted does not need them any more; gd_predictor_by is called by one thread at a time.
 */
struct gd_calibrations;
enum gd_status gd_calibrations_new(struct gd_calibrations **calibrations,
                                   struct gd_error *err) GD_MUST_USE;
void gd_calibrations_free(struct gd_calibrations *calibrations); /* NULL is fine */
enum gd_status gd_predictor_by(struct gd_calibrations *calibrations, struct gd_predictor *predictor,
                               const struct gd_target *target, struct gd_error *err) GD_MUST_USE;
/* The same for another target with the GPU that `like` was made for, without reading files again.
 */
enum gd_status gd_predictor_like(struct gd_predictor *predictor, const struct gd_predictor *like,
                                 const struct gd_target *target, struct gd_error *err) GD_MUST_USE;
void gd_predictor_deinit(struct gd_predictor *predictor); /* safe on a zeroed one */

/* The peak that a trial's FLOPs are held against: of its precision, and of TF32 where it counts. */
double gd_predictor_peak(const struct gd_predictor *predictor, enum gd_precision precision,
                         bool tf32);

/* What a training step consists of. */
struct gd_step_shape {
  int64_t accumulation; /* micro-steps of a rank */
  int64_t steps;        /* of the whole run */
  enum gd_point_class of;
};

struct gd_prediction {
  bool known;               /* false: nothing was predicted */
  bool has_last_micro_step; /* last_micro_step_s differs from micro_step_s */
  double micro_step_s, last_micro_step_s, update_s, step_s;
  double compute_s; /* of a step: what its ops take where nothing waits; the rest is waiting for
                       collectives and copies, or sharing the device with them */
  enum gd_point_class of;
  bool validated;       /* as the predictor's class */
  double error;         /* likewise */
  double low_s, high_s; /* of the step */
  bool ends_at_peak;    /* low_s is 100 % HFU, where the interval alone would be faster */
  double days, days_low, days_high;
  double power_w;                         /* of a GPU's board, mean over a step; 0: not known */
  struct gd_simulated micro_step, update; /* by kind of op */
};

/* remainder: the plan of a smaller last pass, or NULL. */
enum gd_status gd_predict(const struct gd_predictor *predictor, const struct gd_plan *full,
                          const struct gd_plan *remainder, const struct gd_step_shape *shape,
                          struct gd_prediction *prediction, struct gd_error *err) GD_MUST_USE;

/*
 * The interval of a class of points on a device with a calibration of its own. With trials of that
 * class: that of 90 %, from what trials of models left out were missed by ('gpudays calibrate
 * learn'); 10 % at least, since devices of one kind differ. Without, the check that ends a
 * calibration validates a CPU's naive and free-lunch points: of a GPU its passes are too small to
 * stand for whole models, and it has no offload. Of a CPU no less than the share that other
 * programs had of it meanwhile, since without them it is faster by up to that.
 */
double gd_calibration_error(const struct gd_rates *rates, enum gd_point_class of, bool *validated);

/*
 * Calibrations that are kept, in the user's data folder and inside the program. One is named by its
 * file's name without .json, or by a path.
 */
struct gd_calibration_entry {
  const char *name, *path; /* path empty: inside the program */
  const struct gd_rates *rates;
};
enum gd_status gd_calibration_each(enum gd_status (*visit)(void *user,
                                                           const struct gd_calibration_entry *entry,
                                                           struct gd_error *err),
                                   void *user, struct gd_error *err) GD_MUST_USE;
/* GD_BAD_INPUT lists those that there are. path, which may be NULL, becomes its file's; empty: it
   is inside the program. */
enum gd_status gd_calibration_find(const char *name, struct gd_rates *rates, char *path,
                                   size_t size, struct gd_error *err) GD_MUST_USE;
/* Puts a copy of a file into the user's folder; whole or not at all. */
enum gd_status gd_calibration_add(const char *from, const char *to,
                                  struct gd_error *err) GD_MUST_USE;

/* This machine as that calibration has it, whatever measured it: a colleague's, of such a CPU. */
enum gd_status gd_predictor_named(struct gd_predictor *predictor, const char *calibration,
                                  const struct gd_device_info *info, int ranks,
                                  struct gd_error *err) GD_MUST_USE;

/* The file of a device's calibration in the user's data folder; false: there is no such folder. */
bool gd_calibration_path(const char *device, char *path, size_t size);
/*
 * Saves rates to the file `asked`, or, where that is NULL, to their device's own, which is written
 * to path. GD_MISMATCH where others used more than the share `quiet` of the CPUs meanwhile and a
 * better calibration is there: it stays.
 */
enum gd_status gd_calibration_keep(const struct gd_rates *rates, const char *asked, double quiet,
                                   char *path, size_t size, struct gd_error *err) GD_MUST_USE;

#endif
