/*
 * The record of a trial: what was asked, planned and measured, as --json shows it and as the store
 * keeps it; and where it came from. It is plain data: src/search fills it, src/cli prints it.
 *
 * As text it is one line of JSON with every number exact, for whatever is not a database: a result
 * that a trial's own process or a cluster job hands over, and the files that labs exchange.
 *
 *   struct gd_strbuf line = {0};
 *   GD_TRY(gd_record_print(&trial, &line, err));
 *   GD_TRY(gd_record_parse("pipe of the trial", line.text, (int64_t)line.length, &copy, err));
 *   gd_strbuf_deinit(&line);
 */
#ifndef GD_STORE_RECORD_H
#define GD_STORE_RECORD_H

#include "backend/machine.h"
#include "base/csv.h"
#include "base/strbuf.h"
#include "ir/graph.h"
#include "model/model.h"
#include "plan/plan.h"

/* --- trials -------------------------------------------------------------------------------- */

/* How the micro-batch is chosen among those that fit. */
enum gd_micro_batch {
  GD_MICRO_BATCH_AUTO, /* largest power of two within gd_caps.enough_flops a pass; one at least */
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
enum { GD_HASH_TEXT = 33 }; /* 128 bits in hexadecimal digits, with the end */

struct gd_samples {
  int count;
  int64_t ns[GD_TRIAL_MAX_SAMPLES];
  double median_s, half_width_s; /* the median lies within +- half width of theirs in 95 % of
                                    trials, however sampling ended */
};
/* Sampling ends when the half width is this part of the median, but not before so many samples:
 * fewer are too often alike by chance. */
#define GD_SAMPLES_TIGHT 0.02
enum { GD_SAMPLES_TO_JUDGE = 8 };

/* Where the time of a training step goes: one kind of op in one program. */
struct gd_profile_row {
  enum gd_op_kind kind;
  enum gd_program program;
  bool beside;    /* beside the computation: its time need not add to the step's */
  uint32_t count; /* ops of that kind in one run of the program */
  double seconds; /* of one run of the program */
  double bytes;   /* that they must read and write in that run, at least */
  double flops;   /* of their products, as executed */
};
enum { GD_PROFILE_ROWS = 96 };

struct gd_trial {
  enum gd_trial_status status;
  char reason[1152]; /* why not ok, or ok with nothing kept; empty otherwise */
  char model[128];
  char method[64];
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
  int64_t device_limit_bytes, host_limit_bytes;
  int64_t bytes[GD_CATEGORY_COUNT];
  int64_t host_parts[GD_CATEGORY_DEVICE_COUNT]; /* what host_bytes consists of */
  int64_t kept_blocks;                          /* layers that make nothing again for products */
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
  double peak_flops;  /* of the device in this precision; 0: unknown */
  double limit_flops; /* that no trial can exceed, where it is more than the peak: products in TF32
                         may be computed by the units of fp16. Not stored */
  double mfu, hfu;    /* 0 when the peak is unknown */
  double busy_share;  /* of the CPUs, used by others while sampling; -1: unknown */
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
  char recipe[GD_HASH_TEXT];     /* gd_recipe_hash */
  char machine[GD_MACHINE_TEXT]; /* gd_machine_print: what it was measured on */
  enum gd_trial_failure failure; /* of a failed one */
  int tries;                     /* how often it was tried, this one included; 0: not told */
};

/*
 * The share of the time that the trial was held back by what is not the machine's speed: a quota,
 * stops, steal, a GPU with lowered clocks. The load of other programs is busy_share alone: a thread
 * that only sleeps, as the one that notices stops, wakes in time beside them.
 */
double gd_trial_held_share(const struct gd_trial *trial);
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

/* Median and half width of what is in ns[0..count). */
void gd_samples_summarise(struct gd_samples *samples);
/* Whether a summary is good enough to end sampling. */
bool gd_samples_are_tight(const struct gd_samples *samples);

/* --- provenance ---------------------------------------------------------------------------- */

/* Where and when it was measured (the trial knows by which gpudays); texts that are not known are
 * empty. */
struct gd_provenance {
  char time[32];    /* UTC, "2024-05-01T12:00:00.123Z": sorts as text */
  char host[256];   /* its name */
  char system[128]; /* "Debian GNU/Linux 12 (bookworm)" */
  char kernel[128]; /* "Linux 6.1.0-18-amd64" */
  char cpu[128];    /* as /proc/cpuinfo calls it */
  char clocks[64];  /* of the CPU, "800-3500 MHz" */
  char driver[256]; /* of the GPU, and libraries; empty on a CPU */
};
/* This machine, now, for a trial on that backend ("cuda" has a driver). What cannot be found out
 * stays empty: it never fails. */
void gd_provenance_here(const char *backend, struct gd_provenance *provenance);

/* --- as text ------------------------------------------------------------------------------- */

/* Appends one line without its newline: {"status":"ok","reason":"",...}. */
enum gd_status gd_record_print(const struct gd_trial *trial, struct gd_strbuf *out,
                               struct gd_error *err) GD_MUST_USE;
/*
 * Reads such a line; label names it in messages. A field that is missing, unknown, of another type
 * or too long: GD_BAD_INPUT with the field's name. *trial is untouched then.
 */
enum gd_status gd_record_parse(const char *label, const char *text, int64_t length,
                               struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;

/*
 * A row of the table that `results --csv` prints: one reader for whatever takes published trials.
 * GD_BAD_INPUT, with line and column, for a column that is missing and for numbers that cannot be,
 * alone or together. provenance may be NULL.
 */
enum gd_status gd_record_read_csv(const struct gd_csv *csv, int row, struct gd_trial *trial,
                                  struct gd_provenance *provenance, bool *superseded,
                                  struct gd_error *err) GD_MUST_USE;

/* The same for where it came from: {"time":"2024-05-01T12:00:00.123Z","host":...}. */
enum gd_status gd_provenance_print(const struct gd_provenance *provenance, struct gd_strbuf *out,
                                   struct gd_error *err) GD_MUST_USE;
enum gd_status gd_provenance_parse(const char *label, const char *text, int64_t length,
                                   struct gd_provenance *provenance,
                                   struct gd_error *err) GD_MUST_USE;

/* 128 bits of the text as 32 hexadecimal digits. Made for telling texts apart, not for secrets. */
void gd_hash_hex(char hex[GD_HASH_TEXT], const char *text);

#endif
