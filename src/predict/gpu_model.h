/*
 * How long a GPU takes for a piece of work, from its data sheet and a few physical parameters that
 * all GPUs share: GEMMs by tiles and waves over the multiprocessors at the clock that the power
 * limit allows, fused attention by its GEMMs and its exponentials, all else by memory. The
 * parameters are fitted by `gpudays fit` (published.h) and kept in data/fitted/published.json;
 * nothing here knows a software stack or a calibration.
 *
 *   struct gd_gpu_fit fit;
 *   struct gd_gpu_model model;
 *   GD_TRY(gd_gpu_fit_load(&fit, err));
 *   gd_gpu_model_make(gpu, &fit, &model);
 *   double seconds = gd_gpu_model_seconds(&model, &work, &software, model.power.clock_most);
 */
#ifndef GD_PREDICT_GPU_MODEL_H
#define GD_PREDICT_GPU_MODEL_H

#include "base/json.h"
#include "hw/hw.h"
#include "predict/power.h"
#include "predict/work.h"

/* What is fitted; the same for all GPUs. */
enum gd_gpu_parameter {
  GD_GPU_GEMM,         /* share of the tensor cores' rate that large GEMMs reach */
  GD_GPU_START,        /* length of a sum that the start of a tile costs */
  GD_GPU_MEMORY,       /* share of the memory bandwidth that all else reaches */
  GD_GPU_GAP,          /* seconds between two kernels */
  GD_GPU_ATTENTION,    /* share of the tensor cores' rate of fused attention's GEMMs */
  GD_GPU_SOFTMAX,      /* cycles of a multiprocessor a score of the forward pass */
  GD_GPU_SOFTMAX_GRAD, /* likewise of the backward pass */
  GD_GPU_MMA,          /* share of Hopper's rate that kernels for Ampere reach there */
  GD_GPU_BOOST,        /* clock of cards of desktops and workstations over the data sheet's */
  GD_GPU_WATTS_12NM, /* watts a TFLOP/s of 16-bit GEMMs at the data sheet's clock: Volta, Turing */
  GD_GPU_WATTS_7NM,  /* A100 */
  GD_GPU_WATTS_8NM,  /* other Amperes */
  GD_GPU_WATTS_ADA,  /* 4N at the clocks of Ada and of Blackwell's cards */
  GD_GPU_WATTS_HOPPER, /* 4N at the clocks of Hopper */
  GD_GPU_WATTS_B200,   /* 4NP */
  GD_GPU_EXPOSED,      /* how much longer a GPU takes while a collective runs, relative */
  GD_GPU_PARAMETERS
};
struct gd_gpu_parameter_info {
  const char *name, *unit, *meaning;
  double start; /* what it is expected to be: where a fit starts, and what it is pulled to */
  double width; /* how uncertain that is, relative */
};
const struct gd_gpu_parameter_info *gd_gpu_parameter(enum gd_gpu_parameter parameter);

struct gd_gpu_fit {
  double value[GD_GPU_PARAMETERS];
};
/* What a fit starts from. */
void gd_gpu_fit_start(struct gd_gpu_fit *fit);
/* What `gpudays fit -o` wrote: the user's $XDG_DATA_HOME/gpudays/fitted.json, else the program's
   own data/fitted/published.json. *found false: there is neither. */
enum gd_status gd_fitted_open(struct gd_json *json, bool *found, struct gd_error *err) GD_MUST_USE;
/* Its parameters of GPUs; what is expected where there is none. */
enum gd_status gd_gpu_fit_load(struct gd_gpu_fit *fit, struct gd_error *err) GD_MUST_USE;

struct gd_gpu_model {
  struct gd_gpu_fit fit;
  double flops[GD_PEAK_COUNT]; /* of the data sheet; what it lacks is done in the next wider unit */
  double memory_bytes_per_s;
  double multiprocessors;
  double clock_hz;                    /* of the data sheet's rates */
  struct gd_power power;              /* what its clock rises to, and what limits it */
  double gemm_share, attention_share; /* of the tensor cores' rate, at their clock */
  bool wgmma;                         /* tensor cores that only kernels of their own keep busy */
  bool has_flash;                     /* FlashAttention runs on it: Ampere on */
};
void gd_gpu_model_make(const struct gd_gpu *gpu, const struct gd_gpu_fit *fit,
                       struct gd_gpu_model *model);

/* FLOP/s of 16-bit GEMMs for each element that a load takes, where odd rows keep it from taking
   eight (gd_work_load_elements): of a GPU with that rate in fp32. */
double gd_gpu_odd_flops(double fp32_flops, int compute_capability);

/* What of a stack decides how long its kernels take. */
struct gd_gpu_software {
  double traffic;   /* times that it moves the bytes of what is bound by memory */
  double attention; /* speed of its fused attention over that of FlashAttention 1 */
  bool native;      /* which has kernels for Hopper's own instructions */
};
/* Speed of FlashAttention 2 over 1: forward and backward of causal heads of 64 and 128 on an A100
   (arXiv:2307.08691, figures 5 to 7). */
#define GD_GPU_FLASH_2 1.65

/* Seconds of one piece of work on the device; clock is relative to the data sheet's. Collectives
   and transfers have none. */
double gd_gpu_model_seconds(const struct gd_gpu_model *model, const struct gd_work *work,
                            const struct gd_gpu_software *software, double clock);
/*
 * The same in two parts, for who tries many clocks: all that no clock changes is found once. A
 * timing is zeroed at first, and may later be that of the same work on another model: its share of
 * the multipliers is kept where it is the same.
 */
struct gd_gpu_timing {
  enum { GD_GPU_TIMING_FIXED, GD_GPU_TIMING_GEMM, GD_GPU_TIMING_ATTENTION } bound;
  double gap_s, memory_s;
  double flops, rate; /* of GEMMs: rate at the data sheet's clock, and */
  double share;       /* how much of it tiles leave, for these two: */
  double multiprocessors, start;
  double seconds, speed, edge, each; /* of attention: at that clock, and what slows it */
};
void gd_gpu_timing_make(const struct gd_gpu_model *model, const struct gd_work *work,
                        const struct gd_gpu_software *software, struct gd_gpu_timing *timing);
double gd_gpu_timing_seconds(const struct gd_gpu_timing *timing, double clock);
/* Whether that parameter is in anything of the GPU; false: no time on it depends on it. */
bool gd_gpu_uses(const struct gd_gpu *gpu, enum gd_gpu_parameter parameter);
/* What count times that work asks of its power. */
void gd_gpu_model_load(const struct gd_gpu_model *model, const struct gd_work *work, double traffic,
                       double count, struct gd_power_load *load);
/* FLOP/s of a GEMM of that size at the sustained clock, in 16 bits. */
double gd_gpu_model_gemm_flops(const struct gd_gpu_model *model, double m, double n, double k);

#endif
