/*
 * A trial: one method on one model on one machine. This is its record, plain data: what was asked,
 * planned (choose.h), predicted or measured (measure.h). src/store keeps it, src/cli prints it.
 */
#ifndef GD_TRIAL_TRIAL_H
#define GD_TRIAL_TRIAL_H

#include "backend/machine.h"
#include "base/hash.h"
#include "ir/graph.h"
#include "model/model.h"
#include "plan/plan.h"

/* How the micro-batch is chosen among those that fit. */
enum gd_micro_batch {
  GD_MICRO_BATCH_AUTO, /* largest power of two within gd_caps.enough_flops; one at least; half or a
                          quarter of it where that is predicted faster */
  GD_MICRO_BATCH_POW2, /* largest power of two, as in the paper */
  GD_MICRO_BATCH_MAX,  /* largest */
  GD_MICRO_BATCH_FIXED /* the size that was asked for */
};

enum gd_trial_status {
  GD_TRIAL_PLANNED,     /* feasible, not measured; in the store: pending */
  GD_TRIAL_OK,          /* measured and checked */
  GD_TRIAL_INFEASIBLE,  /* does not fit; reason has the breakdown */
  GD_TRIAL_FAILED,      /* the same-run check failed, or the run ended; reason says which, how */
  GD_TRIAL_IMPLAUSIBLE, /* faster than the device can be */
  GD_TRIAL_STATUS_COUNT
};
const char *gd_trial_status_name(enum gd_trial_status status); /* "planned", "ok", ... */
bool gd_trial_status_parse(const char *text, enum gd_trial_status *status);

/* Why a trial has failed (GD_TRIAL_FAILED), so far as asking again is concerned. */
enum gd_trial_failure {
  GD_FAILURE_NONE,        /* it has not, or is of a gpudays that did not tell */
  GD_FAILURE_PLAN,        /* it would again: it cannot be built, its numbers are nonsense */
  GD_FAILURE_ENVIRONMENT, /* it may do better: memory that others had, a signal, scancel, a time
                             limit, a node or a context that was lost */
  GD_FAILURE_CRASH,       /* it would again, by a fault of gpudays itself: exit code 4 */
  GD_FAILURE_COUNT
};
const char *gd_trial_failure_name(enum gd_trial_failure failure); /* "", "plan", "environment" */
bool gd_trial_failure_parse(const char *text, enum gd_trial_failure *failure);

enum { GD_TRIAL_MAX_SAMPLES = 64 };

struct gd_samples {
  int count;
  int64_t ns[GD_TRIAL_MAX_SAMPLES];
  double median_s, half_width_s; /* 95 % of such intervals hold the true median, however sampling
                                    ended */
};
/* Sampling ends when the half width is this part of the median, but not before so many samples:
 * fewer are too often alike by chance. */
#define GD_SAMPLES_TIGHT 0.02
enum { GD_SAMPLES_TO_JUDGE = 8 };

/* Where the time of a training step goes: one kind of op in one program. */
struct gd_profile_row {
  enum gd_op_kind kind;
  enum gd_program program;
  bool async;     /* on a copy or communication stream: its time need not add to the step's */
  uint32_t count; /* ops of that kind in one run of the program */
  double seconds; /* of one run of the program */
  double bytes;   /* that they must read and write in that run, at least */
  double flops;   /* of their GEMMs, as executed */
};
enum { GD_PROFILE_ROWS = 96 };

struct gd_trial {
  enum gd_trial_status status;
  char reason[1152]; /* why not ok, or ok with nothing saved; empty otherwise */
  char model[128];
  char method[128]; /* GD_METHOD_NAME */
  char device[128];
  char backend[16];
  int threads, ranks, nodes;
  char version[32], commit[64]; /* of the gpudays that made it */
  enum gd_precision precision;
  char no_compiler[256];      /* why the compile method runs unfused; empty: it does not */
  bool precision_substituted; /* the device lacks the recipe's */

  /* the plan */
  int64_t parameters;
  int64_t micro_batch, accumulation, remainder; /* of one rank; remainder: size of the last
                                                   one, 0: full */
  int64_t peak_bytes, host_bytes, live_bytes;
  int64_t gathered_bytes; /* of the activations: see struct gd_plan; 0 of what was read */
  int64_t device_limit_bytes, host_limit_bytes;
  int64_t bytes[GD_CATEGORY_COUNT];
  int64_t host_parts[GD_CATEGORY_DEVICE_COUNT]; /* what host_bytes consists of */
  int64_t saved_blocks;                         /* layers that recompute no input of a GEMM */
  uint64_t plan_hash;          /* gd_plan_hash of the full micro-batch; not stored */
  bool reduces;                /* the last micro-step exchanges gradients */
  double plan_s;               /* time to build and plan one graph */
  double model_flops_per_step; /* as the paper counts */
  double exec_flops_per_step;  /* GEMMs as executed */
  double train_flops;          /* of the whole run */

  /* the measurement */
  struct gd_samples micro_step;
  struct gd_samples
      last_micro_step; /* of a step, where it differs: smaller, or it reduces gradients */
  struct gd_samples update;
  double warmup_s;
  double step_s, step_half_width_s;
  double days, days_low, days_high;
  double tokens_per_s, samples_per_s;
  double peak_flops;      /* of the device in this precision; 0: unknown */
  double limit_flops;     /* no trial can be faster. Above peak_flops where GEMMs in TF32 may be
                             computed by the units of fp16. Not stored */
  double mfu, hfu;        /* 0 when the peak is unknown */
  double busy_share;      /* of the CPUs, used by others while sampling; -1: unknown */
  double throttled_share; /* of the CPU time it asked for, denied by a quota while sampling */
  double stalled_share;   /* of the time of sampling, in which the process did not run at all */
  double steal_share;     /* of the CPUs, taken by the host of a virtual machine */
  int gpu_looks;          /* at the GPU's clocks while sampling; 0: they were not watched */
  int gpu_clock_mhz, gpu_low_clock_mhz, gpu_max_clock_mhz; /* median, lowest, highest there is */
  double gpu_throttled_share;    /* of the looks, with clocks lowered by heat or by the hardware */
  double gpu_power_capped_share; /* of the looks, with clocks lowered by the limit of its power */
  double gpu_power_w, gpu_power_limit_w; /* mean, and what it may have */
  char gpu_clock_reasons[96];            /* GD_REASON_..., ", " between them */
  int devices;       /* different GPUs, or machines of CPUs, that the ranks have; 0: not known */
  char note[320];    /* what to know about it, one sentence: ranks with unequal limits */
  double loss, norm; /* of the warm-up step at random start */
  int64_t resident_bytes; /* growth of the process's resident set over the run; -1: unknown */
  uint32_t n_profile;     /* with options.profile, longest first */
  struct gd_profile_row profile[GD_PROFILE_ROWS];
  int64_t runtime_bytes; /* resident before the arenas: code, libraries, graph, plan; -1: unknown */

  /* identity; empty in trials of a gpudays that did not tell */
  char model_graph[GD_HASH_TEXT]; /* gd_model_hash; not stored: a key has it */
  char recipe[GD_HASH_TEXT];      /* gd_recipe_hash */
  char machine[GD_MACHINE_TEXT];  /* gd_machine_print: what it was measured on */
  enum gd_trial_failure failure;  /* of a failed one */
  int tries;                      /* how often it was tried, this one included; 0: not told */
};

/*
 * The share of the time that the trial was held back by what is not the machine's speed: a quota,
 * stops, steal, a GPU with lowered clocks. The load of other programs is not in it; that is
 * busy_share.
 */
double gd_trial_held_share(const struct gd_trial *trial);
/*
 * Whether other programs had more than half of the cores that it computes on, so that its time may
 * be many times too long: threads that wait for each other wait for a turn each time. Such a trial
 * comes after all that are not when one is chosen. On a GPU only offloaded state is computed on
 * cores.
 */
#define GD_TRIAL_MOST_BUSY 0.5
bool gd_trial_is_disturbed(const struct gd_trial *trial);
/* Energy of all GPUs in a run, by the power that was measured; 0: not known. */
double gd_trial_energy_kwh(const struct gd_trial *trial);
/*
 * The share of the time that a GPU with lowered clocks may have lost: all of the looks that were
 * throttled at the lowest clock that was seen.
 */
double gd_trial_gpu_lost_share(const struct gd_trial *trial);
/* What more than a twentieth of the looks at a GPU said. */
#define GD_REASON_THERMAL     "thermal"
#define GD_REASON_POWER_BRAKE "power brake"
#define GD_REASON_SLOWDOWN    "hardware slowdown"
#define GD_REASON_POWER_CAP   "power cap"
#define GD_REASON_SETTING     "clock setting"

/*
 * Whether it is infeasible within a limit that is far below what its machine has, as
 * --device-memory and --host-memory set: then it says nothing of the machine. False where that is
 * not known.
 */
bool gd_trial_is_limited(const struct gd_trial *trial);

/* Of an infeasible trial: the memory that it has too little of. The device's, where it lacks both.
 */
struct gd_trial_need {
  bool device;                /* false: the host's */
  int64_t bytes, limit_bytes; /* needed, allowed */
};
struct gd_trial_need gd_trial_need(const struct gd_trial *trial);

/* A trial that is not ok as a sentence and a status; of several, err keeps the first. */
enum gd_status gd_trial_verdict(const struct gd_trial *trial, struct gd_error *err);

/* Median and half width of what is in ns[0..count). */
void gd_samples_summarise(struct gd_samples *samples);
/* Whether a summary is good enough to end sampling. */
bool gd_samples_are_tight(const struct gd_samples *samples);

#endif
