/*
 * A training step of a software stack on GPUs of the catalogue: the ops that it runs, counted on
 * our graph of the model as the stack builds it, timed by the GPU model; the host that launches
 * them; collectives as far as the stack hides them; the clock that the power limit allows.
 *
 *   struct gd_stack_works works = {0};
 *   GD_TRY(gd_stack_works_make(facts, &model, precision, micro_batch, flash, tf32, &works, err));
 *   gd_stack_step(&run, &step);
 *   gd_stack_works_deinit(&works);
 */
#ifndef GD_PREDICT_STACK_STEP_H
#define GD_PREDICT_STACK_STEP_H

#include "hw/hw.h"
#include "pass/method.h"
#include "predict/gpu_model.h"
#include "predict/stack_facts.h"
#include "predict/stack_paper.h"

/* Ops that are alike, and how many there are of them in one micro-step. */
struct gd_stack_work {
  struct gd_work work;
  double count;
  bool forward, in_block;
  bool scores; /* works on the scores of attention */
};
struct gd_stack_works {
  struct gd_stack_work *all;
  struct gd_gpu_timing *timings; /* as many, for gd_stack_step: one thread at a time */
  int count, capacity;
  double parameters, tensors;  /* in so many tensors */
  double block_parameters;     /* of all blocks together */
  double head_parameters;      /* outside, used behind the blocks alone */
  double embedding_parameters; /* outside, used ahead of them */
  double model_flops;          /* the latter of the whole micro-batch, as the paper counts */
  int blocks;
};
enum gd_status gd_stack_works_make(const struct gd_stack_facts *facts, const struct gd_model *model,
                                   enum gd_precision precision, int64_t micro_batch, bool flash,
                                   bool tf32, struct gd_stack_works *works,
                                   struct gd_error *err) GD_MUST_USE;
void gd_stack_works_deinit(struct gd_stack_works *works); /* safe on a zeroed one */
/* Seconds of the multipliers alone at their peak and highest clock: no micro-step takes less. */
double gd_stack_works_least_s(const struct gd_stack_works *works, const struct gd_gpu_model *gpu);

struct gd_stack_run {
  const struct gd_stack_facts *facts;
  const struct gd_stack_works *works;
  const struct gd_gpu_model *gpu;
  const struct gd_target *target;
  struct gd_method method;
  double accumulation;
  double gradient_bytes; /* a parameter, as ranks sum them; 0: as the facts say */
  double value[GD_STACK_FITTED_COUNT];
  double score_traffic; /* as value[GD_STACK_TRAFFIC], of what works on scores; 0: the same */
  double energy; /* a step draws that often what its tensor cores do: gd_learned's; 0: as often */
  double links;  /* share of their rate that the links between GPUs reach; 0: all of it */
};
struct gd_stack_step {
  double seconds;
  double forward_s, backward_s;  /* of a micro-step, collectives included */
  double gpu_s, host_s;          /* of a micro-step: what each alone would take */
  double update_s, collective_s; /* of the step; the latter as far as it shows */
  double clock, watts;           /* over the data sheet's; mean of the board */
};
void gd_stack_step(const struct gd_stack_run *run, struct gd_stack_step *step);

/* Memory of a stack: the rules of stack_paper.h, with its own bytes of state. */
void gd_stack_facts_bytes(const struct gd_stack_facts *facts, const struct gd_stack_graph *graph,
                          const struct gd_method *method, int count, double micro_batch,
                          struct gd_stack_bytes *bytes);
/* By whose rules that graph is made. */
enum gd_stack_mode gd_stack_facts_mode(const struct gd_stack_facts *facts, bool flash);

#endif
