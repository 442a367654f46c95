/*
 * A trial: one method on one model on one machine. First planned (largest micro-batch that fits),
 * then measured: warm-up, passes and updates timed apart until the interval is tight, each number
 * beside the check of the same run.
 */
#ifndef GD_SEARCH_TRIAL_H
#define GD_SEARCH_TRIAL_H

#include "backend/backend.h"
#include "model/model.h"
#include "pass/method.h"
#include "plan/plan.h"

enum gd_micro_batch { GD_MICRO_BATCH_POW2, GD_MICRO_BATCH_MAX, GD_MICRO_BATCH_FIXED };

struct gd_trial_options {
  const char *backend; /* "cpu", "ref" */
  int threads;         /* 0: all */
  struct gd_method method;
  int ranks;                          /* to plan for; 0: as many as comm has, or one */
  struct gd_comm *comm;               /* borrowed; NULL: one rank */
  enum gd_micro_batch micro_batch;    /* policy */
  int64_t micro_batch_size;           /* GD_MICRO_BATCH_FIXED */
  const enum gd_precision *precision; /* NULL: the recipe's, or its substitute on this device */
  int64_t device_limit_bytes;         /* 0: what the machine has */
  int64_t host_limit_bytes;           /* 0: what the machine has */
  uint64_t seed;
  double
      sample_seconds; /* stop sampling each program after this long (0: 20 s), 3 samples at least */
  bool profile;       /* also time each op of one step */
  void (*progress)(void *user, const char *what, double done, double eta_s); /* may be NULL */
  void *progress_user;
};

enum gd_trial_status {
  GD_TRIAL_PLANNED,     /* feasible, not measured */
  GD_TRIAL_OK,          /* measured and checked */
  GD_TRIAL_INFEASIBLE,  /* does not fit; reason has the breakdown */
  GD_TRIAL_FAILED,      /* the same-run check failed; reason says which */
  GD_TRIAL_IMPLAUSIBLE, /* faster than the device can be */
};
const char *gd_trial_status_name(enum gd_trial_status status); /* "planned", "ok", ... */

enum { GD_TRIAL_MAX_SAMPLES = 64 };

struct gd_samples {
  int count;
  int64_t ns[GD_TRIAL_MAX_SAMPLES];
  double median_s, half_width_s; /* 95 %: median +- half width (Student's t over the samples) */
};

/* Where the time of a training step goes: one kind of op in one program. */
struct gd_profile_row {
  enum gd_op_kind kind;
  enum gd_program program;
  bool beside;    /* beside the computation: its time need not add to the step's */
  uint32_t count; /* ops of that kind in one run of the program */
  double seconds; /* of one run of the program */
};
enum { GD_PROFILE_ROWS = 96 };

struct gd_trial {
  enum gd_trial_status status;
  char reason[1152]; /* why not ok; empty otherwise */
  char model[128];
  char method[64];
  char device[128];
  char backend[16];
  int threads, ranks;
  enum gd_precision precision;
  char no_compiler[256];      /* why the compile method runs unfused; empty: it does not */
  bool precision_substituted; /* the recipe says fp16 and the device runs bf16 */

  /* the plan */
  int64_t parameters;
  int64_t micro_batch, accumulation, remainder; /* of one rank; remainder: size of the last
                                                   one, 0: full */
  int64_t peak_bytes, host_bytes, live_bytes;
  int64_t device_limit_bytes, host_limit_bytes;
  int64_t bytes[GD_CATEGORY_COUNT];
  int64_t host_parts[GD_CATEGORY_DEVICE_COUNT]; /* what host_bytes consists of */
  bool reduces;                                 /* the last pass of a step exchanges gradients */
  double plan_s;                                /* time to build and plan one graph */
  double model_flops_per_step;                  /* as the paper counts */
  double exec_flops_per_step;                   /* products as executed */
  double train_flops;                           /* of the whole run */

  /* the measurement */
  struct gd_samples pass;
  struct gd_samples last_pass; /* of a step, where it differs: smaller, or it reduces gradients */
  struct gd_samples update;
  double warmup_s;
  double step_s, step_half_width_s;
  double days, days_low, days_high;
  double tokens_per_s, samples_per_s;
  double peak_flops;      /* of the device in this precision; 0: unknown */
  double mfu, hfu;        /* 0 when the peak is unknown */
  double busy_share;      /* of the CPUs, used by others while sampling; -1: unknown */
  double loss, norm;      /* of the warm-up step at random start */
  int64_t resident_bytes; /* growth of the process's resident set over the run; -1: unknown */
  uint32_t n_profile;     /* with options.profile, longest first */
  struct gd_profile_row profile[GD_PROFILE_ROWS];
  int64_t runtime_bytes; /* resident before the arenas: code, libraries, graph, plan */
};

/* Finds the micro-batch and fills the plan part. Infeasible is GD_OK with that status. */
enum gd_status gd_trial_plan(const struct gd_model *model, const struct gd_trial_options *options,
                             struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;
/* gd_trial_plan, then measures. Wrong numbers are GD_OK with status failed or implausible. */
enum gd_status gd_trial_measure(const struct gd_model *model,
                                const struct gd_trial_options *options, struct gd_trial *trial,
                                struct gd_error *err) GD_MUST_USE;

/* Text of graph and plan for the trial's micro-batch: `plan --explain`. */
enum gd_status gd_trial_explain(const struct gd_model *model,
                                const struct gd_trial_options *options,
                                const struct gd_trial *trial, struct gd_strbuf *out,
                                struct gd_error *err) GD_MUST_USE;

/*
 * The guards on a measured trial: loss and gradient norm must be sane at random start, and the
 * model FLOPs per second must not exceed the device's peak. Sets status, reason, mfu and hfu from
 * loss, norm, step_s, the FLOP counts and peak_flops.
 */
void gd_trial_judge(struct gd_trial *trial, int64_t classes);

/* Median and half width of what is in ns[0..count). */
void gd_samples_summarise(struct gd_samples *samples);

#endif
