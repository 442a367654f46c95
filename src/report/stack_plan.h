/*
 * What a software stack would take on given GPUs: the paper's by the model that is fitted to its
 * tables (predict/stack_paper.h), any other of data/stacks by its facts and the GPU model
 * (predict/stack_step.h), each with the interval of what it missed where a fit had not looked.
 *
 *   struct gd_stack_plan plan = {0};
 *   GD_TRY(gd_stack_plan_make(&asked, &plan, err));
 *   ... plan.rows[i].days, plan.rows[i].days_low, plan.basis ...
 *   gd_stack_plan_deinit(&plan);
 */
#ifndef GD_REPORT_STACK_PLAN_H
#define GD_REPORT_STACK_PLAN_H

#include "predict/published_errors.h"
#include "report/accuracy.h"

struct gd_stack_asked {
  const char *stack;             /* a name of data/stacks; NULL: "paper" */
  const struct gd_model *models; /* with their recipes */
  int n_models;
  const struct gd_method *methods;
  int n_methods;
  const struct gd_target *target;      /* or, where this is NULL, */
  const char *gpu, *machine, *network; /* of the catalogue; the last two may be NULL */
  int count, nodes;                    /* nodes 0: as few as hold the GPUs */
  int cpus;                            /* that a GPU has for what is offloaded; 0: the target's */
  const enum gd_precision *precision;  /* NULL: the recipe's */
  struct gd_stack_limits limits;
};

struct gd_stack_row {
  const struct gd_model *model;
  struct gd_method method;
  int64_t micro_batch; /* 0: nothing fits */
  double accumulation;
  struct gd_stack_bytes bytes;
  bool fits;
  bool tight;                  /* by the estimate it does not, but that is not sure */
  double step_s, days;         /* where it fits: of a run */
  double clock_days;           /* by the paper's clock, which does not wait for the GPU; else 0 */
  double days_low, days_high;  /* 90 % of such times lie between, none above the GPU's peak */
  struct gd_stack_step step;   /* seconds 0: the paper's clock, which has none */
  int number;                  /* its place in the order of asking */
  enum gd_precision precision; /* that the GPU runs the recipe in */
  bool substituted;            /* which is not the recipe's */
};

struct gd_stack_plan {
  struct gd_accuracy accuracy; /* of the paper's stack */
  struct gd_hw hw;             /* of the others */
  struct gd_stacks stacks;
  const struct gd_stack_facts *facts;
  struct gd_fitted fitted;
  struct gd_gpu_model gpu;
  struct gd_target target;
  struct gd_calibrations *calibrations; /* for what a step draws; NULL: none were asked for yet */
  double energy;                        /* gd_learned's of the nearest calibration */
  struct gd_stack_limits limits;
  const struct gd_model *models; /* that were asked for */
  double low, high;              /* of 90 % of the times, over the predicted one */
  bool validated;                /* such software was compared on that GPU */
  char basis[640];
  struct gd_stack_row
      *rows; /* models as asked for; of each the shortest first, last what does not fit */
  int count;
  uint32_t capacity;
  struct gd_stack_counted *counted; /* graphs and works that several questions share */
};
/* GD_UNSUPPORTED for a method that the software does not have. Deinitialise it also after a
   failure. */
enum gd_status gd_stack_plan_make(const struct gd_stack_asked *asked, struct gd_stack_plan *plan,
                                  struct gd_error *err) GD_MUST_USE;
/* The catalogue that it was planned with: of the paper's comparison, or its own. */
struct gd_hw *gd_stack_plan_hw(struct gd_stack_plan *plan);
void gd_stack_plan_deinit(struct gd_stack_plan *plan); /* safe on a zeroed one */
/* The same in two, for who asks often: open reads the stack (asked->stack alone), fill answers, and
   its rows take the place of those before. Models are told apart by address, and must outlive it.
 */
enum gd_status gd_stack_plan_open(const char *stack, struct gd_stack_plan *plan,
                                  struct gd_error *err) GD_MUST_USE;
enum gd_status gd_stack_plan_fill(struct gd_stack_plan *plan, const struct gd_stack_asked *asked,
                                  struct gd_error *err) GD_MUST_USE;
/* Puts the method with the fewest parts of those near to the fastest first of its model, as
   gd_points_best chooses; of the paper's software the fastest stays, as in its tables. */
void gd_stack_plan_prefer_simple(struct gd_stack_plan *plan);
/* The methods of the search space that the software has; room for GD_METHODS_MOST. */
int gd_stack_plan_methods(const struct gd_stack_plan *plan, bool several,
                          struct gd_method *methods);

/*
 * How many GPUs of the kind hold what did not fit on asked->count, by doubling, with these methods;
 * 0: not within a few hundred. The plan is then that of the last try.
 */
enum gd_status gd_stack_plan_enough(struct gd_stack_plan *plan, const struct gd_stack_asked *asked,
                                    int *count, struct gd_error *err) GD_MUST_USE;
/* A row as a trial that is planned, with its predicted step_s and days (0: it does not fit). */
enum gd_status gd_stack_plan_trial(const struct gd_stack_plan *plan, const struct gd_stack_row *row,
                                   struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;
/* "micro-batch 1 needs 30 GiB of the 24 GiB that a GPU has": why a row does not fit. */
void gd_stack_plan_reason(const struct gd_stack_plan *plan, const struct gd_stack_row *row,
                          char *text, size_t size);

/* Which memory a row lacks: bytes that its micro-batch needs, and that there are. */
struct gd_stack_miss {
  double device_bytes; /* what a GPU has, whatever is short */
  bool host;
  double need_bytes, have_bytes;
};
struct gd_stack_miss gd_stack_plan_miss(const struct gd_stack_plan *plan,
                                        const struct gd_stack_row *row);

#endif
