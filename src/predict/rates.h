/*
 * What a device does in a second: its peaks, and how far from them each kind of op was measured to
 * stay. A calibration file is one of these; `gpudays calibrate` writes it, and a prediction for
 * other hardware takes the nearest one and puts that hardware's peaks in its place.
 *
 * The time of a piece of work is a roofline (GEMMs at the peak of their unit, with the tiles a
 * GPU cuts them into; all else bytes at the speed of memory; a fixed cost a launch) times a factor.
 * The factor is what measured points of the same kind had, weighted by how near they are in size.
 *
 *   struct gd_rates rates = {0};
 *   GD_TRY(gd_rates_load(&rates, "h200.json", err));
 *   double seconds = gd_rates_seconds(&rates, &work);
 *   gd_rates_deinit(&rates);
 */
#ifndef GD_PREDICT_RATES_H
#define GD_PREDICT_RATES_H

#include "base/json.h"
#include "base/strbuf.h"
#include "hw/collective.h"
#include "hw/hw.h"
#include "pass/method.h"
#include "predict/gpu_model.h"
#include "predict/power.h"
#include "predict/work.h"

/* Up to this share of the CPUs in other programs' hands a calibration counts as quiet. */
#define GD_RATES_QUIET 0.05

struct gd_rate_point {
  struct gd_work work;
  bool any_size;  /* stands for its kind at any size: work.flops or work.bytes in seconds */
  double seconds; /* measured */
  double factor;  /* log of seconds over the roofline of the device it was measured on */
};

/* Points of the search space that predictions err alike on, so that each has an interval of its
   own. Checkpointing changes none of them. */
enum gd_point_class {
  GD_POINT_NAIVE,
  GD_POINT_FREE_LUNCH,
  GD_POINT_OFFLOAD, /* free-lunch with state in host memory */
  GD_POINT_OTHER,   /* parts of free-lunch, or naive with offload */
  GD_POINT_CLASSES
};
const char *gd_point_class_name(enum gd_point_class of); /* "free-lunch" */
enum gd_point_class gd_point_class_of(const struct gd_method *method);

/* What predictions missed the step times of measured trials by. */
struct gd_trial_errors {
  int trials;                       /* 0: none were compared */
  double median_error, worst_error; /* relative, in whole percent; the worst rounded up */
  int cpus_least, cpus_most;        /* of the machines that measured, a rank */
};

/* One way between two devices or two memories. */
struct gd_link {
  double bytes_per_s, latency_s;
};

/* Rates of one GPU that stand for another: each piece of work takes as long as was measured on the
   one, times what the GPU model (gpu_model.h) says of the two, both at the highest clock that they
   reach: ops that are timed alone find it, and what a limit leaves of it is the simulation's. */
struct gd_rates_carry {
  bool on;
  double flops[GD_PEAK_COUNT]; /* of the GPU that was measured, as its points' factors have them */
  double memory_bytes_per_s;
  int multiprocessors, compute_capability;
  struct gd_gpu_model from, to;
};

/* What whole steps of measured trials said that ops timed one by one cannot. */
struct gd_learned {
  double energy; /* times the published joules a FLOP of the GPU: what training draws */
  double host;   /* times what work on host memory took while calibrating */
  double step;   /* times what the ops of the device take one by one */
};
/* The same without any trial of a model, to predict that one by. */
struct gd_learned_without {
  char model[128];
  struct gd_learned learned;
};
enum { GD_LEARNED_MODELS = 64 };

struct gd_rates {
  struct gd_arena arena;
  char device[128];      /* as the backend calls it */
  char gpu[32];          /* its record in the catalogue; empty: a CPU, or unknown */
  char architecture[32]; /* likewise */
  char backend[16];
  int compute_capability, multiprocessors; /* 0: a CPU */
  int threads, cpus;                       /* that compute, and those there are */
  char version[32], commit[64], date[32];
  char source[256];  /* how the figures were found */
  double busy_share; /* of the CPUs, used by others meanwhile; -1: unknown */
  double flops[GD_PEAK_COUNT];
  double memory_bytes_per_s;
  double op_s;             /* fixed cost of a launch */
  double host_bytes_per_s; /* of one CPU that computes on offloaded state */
  struct gd_link host_link, peer_link;
  char peer_source[128];   /* of peer_link: "two ranks", "estimated from memory" */
  struct gd_fabric fabric; /* of a target, in place of peer_link; no ranks: there is none */
  double
      slowest; /* of the ranks over a typical one: what computation takes longer; 0 counts as 1 */
  struct gd_rates_carry carry;
  double async_speed; /* speed of the computation while an asynchronous op runs; 1: as alone */
  struct gd_rate_point *points;
  uint32_t n_points, points_capacity;
  uint32_t first[GD_OP_COUNT + 1]; /* where a kind's points begin, once sorted */
  struct gd_rates_memo *memo;      /* factors that were looked up; NULL: none is kept */
  /* What was found when predictions were compared with measurements that it had not seen. */
  int checked_trials;               /* 0: never */
  double median_error, worst_error; /* relative */
  char checked[256];                /* which */
  struct gd_trial_errors errors[GD_POINT_CLASSES];
  struct gd_power power;     /* of a GPU; limit 0: not known */
  struct gd_learned learned; /* all 0: nothing was */
  int learned_trials;
  double learned_median, learned_worst; /* relative, of trials of models left out */
  /* Mean squares of the logarithm of predicted over measured, of trials of models left out, every
     model weighing the same: with what the others say, and with the calibration alone. 0: unknown
   */
  double learned_square, calibrated_square;
  /* The latter of another GPU, for one without trials of its own. */
  double others_square;
  int others_models;
  char learned_from[192]; /* which: "29 trials of 9 models, h200.csv" */
  struct gd_learned_without without[GD_LEARNED_MODELS];
  int n_without;
};

void gd_rates_deinit(struct gd_rates *rates); /* safe on a zeroed one */

/* A device that nobody measured: a CPU of that many threads, or a GPU by its record. */
void gd_rates_guess_cpu(struct gd_rates *rates, int threads, int cpus);

/* The roofline, and the roofline times the factor of the nearest points. */
double gd_rates_bound(const struct gd_rates *rates, const struct gd_work *work);
double gd_rates_seconds(const struct gd_rates *rates, const struct gd_work *work);

/* Of a collective over the fabric of a target: how NCCL does it; false: it is none. */
bool gd_rates_collective(const struct gd_rates *rates, const struct gd_work *work,
                         enum gd_collective *kind, struct gd_collective_time *time);

/* Keeps factors from now on, for who predicts the same work again and again; until the points
   change. Without memory it keeps none. */
void gd_rates_remember(struct gd_rates *rates);
/* Keeps them together with others that do, where both have the same points: a GPU whose times are
   carried over from the same calibration. They may be used by several threads. false: they differ.
 */
bool gd_rates_remember_with(struct gd_rates *rates, const struct gd_rates *other);
void gd_rates_forget(struct gd_rates *rates);

/* Adds a measured point (its factor follows from the peaks, which must be set); then sort. */
enum gd_status gd_rates_add(struct gd_rates *rates, const struct gd_work *work, double seconds,
                            struct gd_error *err) GD_MUST_USE;
void gd_rates_sort(struct gd_rates *rates);

/*
 * Other programs can only make a measured time longer. Points that two neighbours in size agree are
 * 2.5 times too slow are dropped. Work over a link keeps all its points, as latency sets the time
 * of small messages and bandwidth that of large ones: one that takes longer than a larger message
 * gets the larger one's time. Needs sorted points.
 */
enum gd_status gd_rates_drop_disturbed(struct gd_rates *rates, struct gd_error *err) GD_MUST_USE;
/* Bandwidth and latency of the links, by least squares over the points that went over them; a link
   without points stays as it is. Factors of all points follow. */
void gd_rates_fit_links(struct gd_rates *rates);

/* The rates of one kind of op in one unit, over the sizes that were measured. */
struct gd_rates_range {
  int count;  /* of points; 0: there are none */
  bool flops; /* FLOP/s; else bytes/s */
  double low, high;
};
struct gd_rates_range gd_rates_range(const struct gd_rates *rates, enum gd_op_kind kind,
                                     enum gd_peak unit);

/* Calibration files. GD_BAD_INPUT names the field; rates must be zeroed or deinitialised. */
enum gd_status gd_rates_load(struct gd_rates *rates, const char *path,
                             struct gd_error *err) GD_MUST_USE;
/* Somebody else's: where the catalogue has its GPU, no faster than that can be. */
enum gd_status gd_rates_take(struct gd_rates *rates, const char *path,
                             struct gd_error *err) GD_MUST_USE;
enum gd_status gd_rates_parse(struct gd_rates *rates, const struct gd_json *json,
                              struct gd_error *err) GD_MUST_USE;
/* Whole or not at all. */
enum gd_status gd_rates_save(const struct gd_rates *rates, const char *path,
                             struct gd_error *err) GD_MUST_USE;

/* As if no trial of that model had been learned from. */
void gd_rates_leave_out(struct gd_rates *rates, const char *model);
/* Whether arithmetic sets the time of that work, and not memory. */
bool gd_rates_is_arithmetic(const struct gd_rates *rates, const struct gd_work *work);

/* Puts what was learned into a calibration file and leaves all else in it as it is. */
enum gd_status gd_rates_save_learned(const char *path, const struct gd_rates *rates,
                                     struct gd_error *err) GD_MUST_USE;
/* Puts these errors into a calibration file and leaves all else in it as it is. */
enum gd_status gd_rates_save_errors(const char *path,
                                    const struct gd_trial_errors errors[GD_POINT_CLASSES],
                                    struct gd_error *err) GD_MUST_USE;

/* Another device in its place: peaks, power and links of a target; factors as they are, but for
   those of collectives, whose links are not the target's. Where carry.from is set, they are carried
   over by the GPU model. */
void gd_rates_retarget(struct gd_rates *rates, const struct gd_target *target,
                       const struct gd_gpu_fit *fit);
/* The power of that GPU alone. */
void gd_rates_set_power(struct gd_rates *rates, const struct gd_gpu *gpu,
                        const struct gd_gpu_fit *fit);
/* Before the first of these: that the rates were measured on that GPU. */
void gd_rates_carry_from(struct gd_rates *rates, const struct gd_gpu *measured,
                         const struct gd_gpu_fit *fit);
/* The links of a target alone: its collectives, and the slowest of its GPUs. */
void gd_rates_set_fabric(struct gd_rates *rates, const struct gd_target *target,
                         const struct gd_gpu_fit *fit);

#endif
