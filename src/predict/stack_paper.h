/*
 * `--stack paper`: a prediction for the software that the paper measured (PyTorch, Transformers,
 * DeepSpeed), from the graph of the model, a memory model of that stack, and a few physical
 * parameters that are fitted to the paper's own tables when asked. Whether that is any good is
 * judged on cells that the fit has not seen: gd_stack_fit leaves out a GPU or a family of models.
 *
 *   struct gd_stack stack = {0};
 *   struct gd_stack_fit fit;
 *   GD_TRY(gd_stack_load(&stack, err));
 *   gd_stack_fit(&stack, &(struct gd_stack_leave){.gpu = "h100"}, &fit);
 *   for (int i = 0; i < stack.n_cells; i++)
 *     gd_stack_cell_predict(&stack.cells[i], &fit, &answer);
 *   gd_stack_deinit(&stack);
 */
#ifndef GD_PREDICT_STACK_PAPER_H
#define GD_PREDICT_STACK_PAPER_H

#include "hw/hw.h"
#include "paper/paper.h"
#include "pass/method.h"
#include "predict/stack_graph.h"

/* What is fitted; the same for all GPUs and all models. */
enum gd_stack_parameter {
  GD_STACK_REUSE,          /* FLOPs of GEMMs for each byte of memory bandwidth they keep busy */
  GD_STACK_COMPILED_BYTES, /* bytes moved where compiled over those of our graph */
  GD_STACK_EAGER,          /* likewise op by op, model in one precision */
  GD_STACK_AUTOCAST,       /* how many times more under autocast, with its conversions */
  GD_STACK_SCORES,         /* bytes over ours by what works on scores of attention, likewise */
  GD_STACK_AHEAD,          /* kernels of our graph that the host is ahead of the GPU */
  GD_STACK_BUS,            /* bytes a second of collectives over the host's bus */
  GD_STACK_PARAMETERS
};
struct gd_stack_parameter_info {
  const char *name, *unit, *meaning;
  double least; /* what it means allows no less */
  double start; /* where a fit starts, and what it is weakly pulled to */
  double shown; /* values are shown in this many: 1e9 for GB */
};
const struct gd_stack_parameter_info *gd_stack_parameter(enum gd_stack_parameter parameter);

struct gd_stack_fit {
  double value[GD_STACK_PARAMETERS];
  int cells; /* that it was fitted to */
};

/* A model in every mode. */
struct gd_stack_model {
  struct gd_model model; /* filled by the caller */
  struct gd_stack_graph graphs[GD_STACK_MODE_COUNT];
};
enum gd_status gd_stack_model_make(struct gd_stack_model *model, struct gd_error *err) GD_MUST_USE;

/* How a method is run there. Naive is a method without any part; with checkpointing or ZeRO and
   without the free lunch, it is what Megatron-LM runs on DeepSpeed. */
enum gd_stack_mode gd_stack_mode(const struct gd_method *method);

/* Bytes on one GPU and in its share of host memory. */
struct gd_stack_bytes {
  double device, host;
};
void gd_stack_bytes(const struct gd_stack_graph *graph, const struct gd_method *method, int count,
                    double micro_batch, struct gd_stack_bytes *bytes);

/* A method with the largest power of two that fits, and all that its time depends on. */
struct gd_stack_point {
  struct gd_method method;
  enum gd_stack_mode mode;
  int64_t micro_batch; /* 0: does not fit */
  double accumulation;
  struct gd_stack_bytes bytes;
  struct gd_stack_phase forward, backward;
};
/* What may be asked for instead of the largest power of two in all the memory there is. */
struct gd_stack_limits {
  int64_t micro_batch;             /* 0: the largest that fits */
  bool any_size;                   /* that need not be a power of two */
  double device_bytes, host_bytes; /* 0: what the GPU and its share of the host have */
};
/* Of a batch of so many sequences on a target; limits may be NULL. */
void gd_stack_point(const struct gd_stack_model *model, const struct gd_method *method,
                    const struct gd_target *target, int64_t batch,
                    const struct gd_stack_limits *limits, struct gd_stack_point *point);
/* Seconds of one training step of a point that fits: as the paper's clock shows it, which does not
   wait for the GPU (stack_paper_time.c), and as a run takes. */
struct gd_stack_time {
  double step_s, waited_s;
};
void gd_stack_time(const struct gd_stack_model *model, const struct gd_stack_point *point,
                   const struct gd_target *target, const struct gd_stack_fit *fit,
                   struct gd_stack_time *time);
/* The former. */
double gd_stack_step_s(const struct gd_stack_model *model, const struct gd_stack_point *point,
                       const struct gd_target *target, const struct gd_stack_fit *fit);

struct gd_stack_answer {
  bool feasible;
  const struct gd_stack_point *point; /* the fastest; NULL where none fits */
  double step_s, days;
};

/* --- the paper's cells --------------------------------------------------------------------- */

enum gd_stack_group {
  GD_STACK_FITTED,     /* up to 80 % of the peak */
  GD_STACK_APART,      /* 80 to 100 %: predicted, not fitted, reported apart */
  GD_STACK_IMPOSSIBLE, /* above the peak: flagged */
  GD_STACK_INFEASIBLE, /* the paper says that it does not fit */
  GD_STACK_GROUP_COUNT
};

struct gd_stack_cell {
  const struct gd_paper_days *paper;
  const char *family; /* as Table 3 groups the models */
  const struct gd_stack_model *model;
  struct gd_target target;
  double share; /* of the datasheet's peak that it would need, by the FLOPs of our graph */
  enum gd_stack_group group;
  struct gd_stack_point points[GD_METHODS_MOST];
  int n_points;
  const struct gd_stack_point *setting; /* the one that the paper chose (Appendix J); or NULL */
};

struct gd_stack {
  struct gd_paper paper;
  struct gd_hw hw;
  struct gd_arena arena;
  struct gd_stack_model *models;
  struct gd_stack_cell *cells; /* as in paper.days */
  int n_models, n_cells;
};

enum gd_status gd_stack_load(struct gd_stack *stack, struct gd_error *err) GD_MUST_USE;
void gd_stack_deinit(struct gd_stack *stack); /* safe on a zeroed one */

/* What a fit must not see; NULL: nothing is left out. */
struct gd_stack_leave {
  const char *gpu, *family, *model;
};
bool gd_stack_leaves_out(const struct gd_stack_leave *leave, const struct gd_stack_cell *cell);

/* Least squares in the logarithm of days, outliers weighted down (Huber), over the cells of group
   GD_STACK_FITTED that are not left out: of the days that the best setting is predicted to
   take, and, a fifth as heavy, of how much longer the paper's own setting is predicted to take. */
void gd_stack_fit(const struct gd_stack *stack, const struct gd_stack_leave *leave,
                  struct gd_stack_fit *fit);
void gd_stack_cell_predict(const struct gd_stack_cell *cell, const struct gd_stack_fit *fit,
                           struct gd_stack_answer *answer);
/* How much longer the paper's setting is predicted to take than the best one, relative; below 0:
   there is no setting, or it is predicted not to fit. */
double gd_stack_cell_regret(const struct gd_stack_cell *cell, const struct gd_stack_fit *fit);
/* Relative; below 10 days half a day of it is the table's rounding. Not for what does not fit. */
double gd_stack_cell_error(const struct gd_stack_cell *cell, double days);

#endif
