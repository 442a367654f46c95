/*
 * Why a run is as slow as it is. A cause is a fault that can be switched on in the simulated step
 * of the run's software (stack_step.h): kernels launched op by op, scores of attention in memory,
 * GEMMs in fp32, small micro-batches, recomputing, slow links, a low clock, waiting for data,
 * tokens that were counted wrongly. Every set of few faults is simulated and weighed by how well
 * its time agrees with the measured one and by how likely its faults were before: what a log says
 * makes one all but certain, or rules it out. A cause is as likely as the sets with it together,
 * and they are ranked by the share of the time that they are expected to cost.
 *
 *   struct gd_diagnosis diagnosis = {0};
 *   GD_TRY(gd_diagnosis_make(&question, &diagnosis, err));
 *   ... diagnosis.causes[0].cause->title, diagnosis.causes[0].probability ...
 *   gd_diagnosis_deinit(&diagnosis);
 */
#ifndef GD_PREDICT_DIAGNOSIS_H
#define GD_PREDICT_DIAGNOSIS_H

#include "predict/published_errors.h"
#include "predict/stack_log.h"

/* What is computed of a step; the first are those of a run without a fault. */
struct gd_step_state {
  bool eager;      /* kernels op by op */
  bool scores;     /* attention writes its scores */
  bool fp32, tf32; /* GEMMs in either, not in 16 bits */
  bool ckpt;
  int64_t micro_batch; /* 0: the largest that fits */
  double links;        /* share of their rate; 1 */
  double clock;        /* share of the highest clock; 1 */
  double wait;         /* time without work over that of the step; 0 */
  double counted;      /* tokens that were counted over those that were trained on; 1 */
};

enum { GD_CAUSE_LEVELS = 6, GD_CAUSE_EVIDENCE = 4 };
struct gd_cause {
  const char *name, *title; /* "attention-scores", "attention writes its scores to memory" */
  double prior;             /* how often a slow run has it, where nothing is known of it */
  enum gd_run_fact fact;    /* that tells of it; GD_RUN_FACT_COUNT: none does */
  enum gd_run_answer fault; /* the answer that proves it */
  /* What it changes, and how far; 0 ends the list. */
  void (*apply)(struct gd_step_state *state, double level);
  double levels[GD_CAUSE_LEVELS];
  bool multi_gpu;                         /* nothing of one GPU alone */
  const char *remedy[GD_FRAMEWORK_COUNT]; /* NULL: that software has none, and is not asked */
  const char *in_node; /* the change where one node holds all GPUs; NULL: the same */
};
const struct gd_cause *gd_causes(int *count);

struct gd_diagnosis_question {
  const struct gd_model *model; /* with the run's own sequences and batch */
  const struct gd_hw *hw;
  const struct gd_target *target;
  const struct gd_stacks *stacks;
  const struct gd_stack_facts *facts; /* the run's software */
  const struct gd_fitted *fitted;
  enum gd_framework framework;
  enum gd_precision precision;    /* that a good run has: of the recipe, or 16 bits */
  const struct gd_method *method; /* its sharding and offload; NULL: not known */
  int64_t micro_batch;            /* likewise 0 */
  double step_s;                  /* measured, of the whole batch */
  double accumulation;            /* as counted by the run; 0: not known */
  double links;                   /* share of the target's links that it has; 0: not known */
  bool counted_by_hand;           /* the rate is what somebody typed */
  const struct gd_stack_log *log; /* NULL */
  struct gd_stack_log_fact facts_said[GD_RUN_FACT_COUNT]; /* of the log, and by options */
};

struct gd_found_cause {
  const struct gd_cause *cause;
  double level;
  double probability;
  double share;             /* of the time that it is expected to cost */
  double with_s, without_s; /* a step of the likeliest set that has it, and without it */
  double fits_s;            /* a step with it alone */
  bool said;
  char evidence[GD_CAUSE_EVIDENCE][160];
  int n_evidence;
  char remedy[160];
};

struct gd_diagnosis {
  double healthy_s, low_s, high_s; /* a step without a fault, and 90 % of such */
  double bound_s;                  /* by the peak of the GPU's multipliers: nothing takes less */
  double error;                    /* of the logarithm, of such predictions */
  int64_t micro_batch;             /* of that step */
  struct gd_method method;
  struct gd_stack_step healthy;
  double likely_s;               /* of the likeliest set of faults */
  double unexplained;            /* probability that it is none of the causes */
  char basis[GD_FITTED_WORDS];   /* what that interval rests on */
  struct gd_found_cause *causes; /* the likeliest first */
  int count;
  struct gd_arena arena;
};
enum gd_status gd_diagnosis_make(const struct gd_diagnosis_question *question,
                                 struct gd_diagnosis *diagnosis, struct gd_error *err) GD_MUST_USE;
/* Without hardware: what the log alone tells. */
enum gd_status gd_diagnosis_of_log(const struct gd_diagnosis_question *question,
                                   struct gd_diagnosis *diagnosis,
                                   struct gd_error *err) GD_MUST_USE;
void gd_diagnosis_deinit(struct gd_diagnosis *diagnosis); /* safe on a zeroed one */

#endif
