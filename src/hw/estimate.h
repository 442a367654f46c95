/*
 * Section 3.1 of the paper: training FLOPs over what the GPUs could do at best. It is a lower
 * bound, since no run reaches 100 % MFU; src/predict says what to expect.
 *
 *   double flops;
 *   GD_TRY(gd_estimate_flops(&model, model.recipe.precision, &flops, err));
 *   double days = gd_estimate_days(flops, gd_estimate_peak(gpu, precision, GD_PEAKS_PAPER), 4);
 */
#ifndef GD_HW_ESTIMATE_H
#define GD_HW_ESTIMATE_H

#include "hw/hw.h"
#include "model/model.h"

enum gd_peaks {
  GD_PEAKS_DATASHEET, /* of the record: fp32 recipes at the TF32 rate where the GPU has it */
  GD_PEAKS_PAPER,     /* of the paper's Figure 9: fp32 recipes at half of the 16-bit rate */
};

/* What a run of a model consists of, counted on its graph. FLOPs are those of GEMMs and
 * convolutions, forward and backward, with full attention: as the paper counts. */
struct gd_model_facts {
  int64_t parameters;
  int64_t height, width; /* of an image; 0: the model has none */
  double tokens;         /* of the run; images of a model of images */
  double flops_per_step, train_flops;
};
enum gd_status gd_model_facts(const struct gd_model *model, enum gd_precision precision,
                              struct gd_model_facts *facts, struct gd_error *err) GD_MUST_USE;

/* gd_model_facts.train_flops alone. */
enum gd_status gd_estimate_flops(const struct gd_model *model, enum gd_precision precision,
                                 double *flops, struct gd_error *err) GD_MUST_USE;
/* The precision that a GPU runs the recipe in, as gd_setup_precision says. */
enum gd_status gd_estimate_precision(const struct gd_model *model, const struct gd_gpu *gpu,
                                     const enum gd_precision *forced, enum gd_precision *precision,
                                     bool *substituted, struct gd_error *err) GD_MUST_USE;
/* The peak (of fp32, TF32, fp16 or bf16) that MFU and days of that precision are computed with. */
enum gd_peak gd_estimate_kind(const struct gd_gpu *gpu, enum gd_precision precision);
/* FLOP/s of one GPU; 0: it does not compute in that precision, or is not among the paper's. */
double gd_estimate_peak(const struct gd_gpu *gpu, enum gd_precision precision, enum gd_peaks peaks);
/* Infinite where the peak is 0. */
double gd_estimate_days(double flops, double peak_flops, int count);

/* The lower bound of one model on so many GPUs of a kind. */
struct gd_estimate {
  const struct gd_gpu *gpu;
  int count;
  enum gd_precision precision; /* that it runs in */
  bool substituted;            /* the GPU lacks the recipe's */
  enum gd_peak kind;           /* whose rate counts */
  double train_flops, peak_flops, days;
};
/* flops: gd_estimate_flops. GD_UNSUPPORTED where the GPU cannot compute in a forced precision. */
enum gd_status gd_estimate_make(const struct gd_model *model, double flops,
                                const struct gd_gpu *gpu, int count,
                                const enum gd_precision *forced, enum gd_peaks peaks,
                                struct gd_estimate *estimate, struct gd_error *err) GD_MUST_USE;

/* The models and GPUs of the paper's tables, in its order; they end with NULL. */
extern const char *const gd_estimate_models[], *const gd_estimate_gpus[];

#endif
