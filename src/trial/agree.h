/*
 * What the ranks of a trial must have in common before it runs. Each rank plans by itself, from its
 * own options and its own machine; with plans that differ, collectives would wait for each other
 * for ever. So ranks first take the least of their limits, then compare what they planned.
 *
 *   GD_TRY(gd_agree_limits(comm, &limits, note, sizeof note, err));
 *   ... plan within them ...
 *   GD_TRY(gd_agree_plan(comm, &offer, err));
 */
#ifndef GD_TRIAL_AGREE_H
#define GD_TRIAL_AGREE_H

#include "comm/comm.h"
#include "model/model.h"
#include "plan/plan.h"
#include "trial/trial.h"

struct gd_limits {
  int64_t threads;
  int64_t device_bytes, host_bytes;
  bool threads_differ;   /* of gd_agree_limits: between ranks */
  char no_compiler[256]; /* why generated kernels cannot be built; empty: they can */
};

/*
 * Each becomes the least of all ranks'; where one rank has no compiler, no rank uses one. Where
 * ranks differ, note becomes a sentence that names the limits and the ranks that have the least;
 * else it is empty. comm NULL: one rank.
 */
enum gd_status gd_agree_limits(struct gd_comm *comm, struct gd_limits *limits, char *note,
                               size_t size, struct gd_error *err) GD_MUST_USE;

/* Every rank's value of `bytes` bytes, by rank. The caller frees *all with gd_mem_free. Ranks wait
   for each other here. */
enum gd_status gd_agree_gather(struct gd_comm *comm, const void *own, size_t bytes, void **all,
                               struct gd_error *err) GD_MUST_USE;

/* Something that must be the same on all ranks. */
struct gd_term {
  const char *name;
  int64_t value;
  bool number; /* to be named; else it is a hash or a code */
};

/*
 * All ranks call it with the same terms, in the order of cause and effect. GD_BAD_INPUT where a
 * rank's differ from rank 0's: names those ranks, and the first term that is different.
 */
enum gd_status gd_agree_terms(struct gd_comm *comm, const struct gd_term *terms, int count,
                              struct gd_error *err) GD_MUST_USE;

/*
 * 64 bits of what a model is: its graph and all numbers of its recipe, not its name. Every rank
 * reads its own config.json or preset, and two of one name may differ. 0: no graph can be built.
 */
int64_t gd_agree_model_hash(const struct gd_model *model);
/* The term that it is compared as; it comes after batch, sequence length and steps. */
#define GD_TERM_MODEL "definition of the model (config.json or preset)"

/* What a rank is about to run. */
struct gd_offer {
  const struct gd_trial *trial; /* planned */
  const struct gd_model *model;
  double sample_seconds;
  uint64_t seed;
  bool profile;
  const struct gd_plan *full, *remainder; /* remainder NULL: there is none */
};

/* As gd_agree_terms, of all that the offer holds. */
enum gd_status gd_agree_plan(struct gd_comm *comm, const struct gd_offer *offer,
                             struct gd_error *err) GD_MUST_USE;

/*
 * The peak of all devices together: ranks that share a GPU have one peak, and the threads of a
 * machine's ranks no more than its cores. *devices: how many GPUs, or machines where ranks compute
 * on CPUs.
 */
struct gd_peak_share {
  double peak_flops, limit_flops; /* of what this rank computes on */
  unsigned char uuid[16];         /* of its GPU; zeros: a CPU */
  int64_t threads;
};
enum gd_status gd_agree_peak(struct gd_comm *comm, const struct gd_peak_share *own,
                             double *peak_flops, double *limit_flops, int *devices,
                             struct gd_error *err) GD_MUST_USE;

/* 64 bits of what all ranks must do alike: the ops of every program in order, with their shapes. */
uint64_t gd_plan_hash(const struct gd_plan *plan);

#endif
