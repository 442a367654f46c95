/*
 * Choosing a plan: the micro-batch, and how many layers save their activations. Nothing runs here.
 * A planner tries the largest useful micro-batch first and bounds the others by what that needed,
 * until it has found the largest that fits; it knows the device from its backend, or from the
 * catalogue (hw/hw.h) where the device is not here.
 *
 *   struct gd_planner *planner = gd_planner_new(&model);
 *   struct gd_candidate full = {0};
 *   GD_TRY(gd_planner_choose(planner, &options, &trial, &full, err));
 *   if (trial.status != GD_TRIAL_INFEASIBLE)
 *     ... predict (predict/predict_trial.h) or measure (measure.h) full.plan ...
 *   gd_candidate_deinit(&full);
 *   gd_planner_free(planner);
 */
#ifndef GD_TRIAL_CHOOSE_H
#define GD_TRIAL_CHOOSE_H

#include "backend/backend.h"
#include "hw/hw.h"
#include "model/model.h"
#include "pass/method.h"
#include "plan/plan.h"
#include "trial/recipe.h"
#include "trial/trial.h"

/* A device that is here, as its backend describes it: found once, planned for many times. */
struct gd_place {
  struct gd_caps caps;
  struct gd_device_info info;
  bool reduced; /* of a planner: ranks have different threads, and this is what the least makes */
};
enum gd_status gd_place_find(const char *backend, const struct gd_backend_options *options,
                             struct gd_place *place, struct gd_error *err) GD_MUST_USE;
/* The same of a backend that is open with these options. */
void gd_place_of(struct gd_backend *backend, const struct gd_backend_options *options,
                 struct gd_place *place);

/*
 * Which plan another process has chosen. Whoever gets one plans that alone and compares: where the
 * hash differs, or it does not fit, it chooses by itself and trial->note says so.
 */
struct gd_plan_identity {
  int64_t micro_batch; /* 0: none was chosen */
  int64_t saved_blocks;
  uint64_t hash; /* gd_plan_hash */
};

struct gd_trial_options {
  const char *backend;            /* "cpu", "cuda", "ref" */
  const struct gd_target *target; /* borrowed: plan for that hardware and open no device; or NULL */
  const struct gd_place
      *place;  /* borrowed: what is here; NULL: the backend is opened to find out */
  int threads; /* 0: all */
  struct gd_method method;
  struct gd_graph_cache *graphs;      /* borrowed: what plans have in common; may be NULL */
  int ranks;                          /* to plan for; 0: as many as comm has, or one */
  int nodes;                          /* that the ranks are spread over; 0: one */
  struct gd_comm *comm;               /* borrowed; NULL: one rank */
  enum gd_micro_batch micro_batch;    /* policy */
  int64_t micro_batch_size;           /* GD_MICRO_BATCH_FIXED */
  const enum gd_precision *precision; /* NULL: the recipe's, or its substitute on this device */
  int64_t device_limit_bytes;         /* 0: what the machine has */
  int64_t host_limit_bytes;           /* 0: what the machine has */
  int64_t save_limit_bytes; /* layers save activations while the plan is below; 0: nearly all */
  bool saves_nothing;       /* no layer saves activations that can be recomputed */
  const struct gd_model_identity *identity; /* borrowed: of the model; NULL: it is found */
  struct gd_plan_identity expected;         /* micro_batch 0: choose freely */
  uint64_t seed;
  double sample_seconds; /* of each program, 0: 5 s; 3 samples are taken in any case */
  bool profile;          /* also time each op of one step */
  bool evaluates;        /* a session also opens a plan for evaluation */
  const char *choices;   /* folder where the backend keeps its choices; NULL: none */
  void (*progress)(void *user, const char *what, double done, double eta_s); /* may be NULL */
  void *progress_user;
};

/* A graph with its plan, for one micro-batch size. */
struct gd_candidate {
  struct gd_graph graph;
  struct gd_plan plan; /* points to the graph */
};
void gd_candidate_deinit(struct gd_candidate *candidate); /* safe on a zeroed one */
void gd_candidate_move(struct gd_candidate *to, struct gd_candidate *from);

struct gd_planner;
/* Borrows the model. NULL without memory. */
struct gd_planner *gd_planner_new(const struct gd_model *model);
void gd_planner_free(struct gd_planner *planner); /* NULL is fine */

/*
 * Fills the plan part of the trial and leaves the plan of a full micro-batch. Infeasible is GD_OK
 * with that status, and leaves the plan of the least micro-batch. A planner may be asked again for
 * the same method on another device, such as a GPU with more memory: it does not plan again what it
 * knows. options, and what they borrow, must live until the next call, or gd_planner_free.
 */
enum gd_status gd_planner_choose(struct gd_planner *planner, const struct gd_trial_options *options,
                                 struct gd_trial *trial, struct gd_candidate *full,
                                 struct gd_error *err) GD_MUST_USE;
/*
 * A part of the trial's micro-batch, which is the largest useful one, that may be faster: half of
 * it a number of times. 0: none, as where each micro-step waits for an exchange. Ranks that run
 * (options->comm) all take the largest.
 */
int64_t gd_planner_smaller_size(const struct gd_trial_options *options,
                                const struct gd_trial *trial, int halvings);
/* gd_planner_choose with that micro-batch. */
enum gd_status gd_planner_choose_size(struct gd_planner *planner,
                                      const struct gd_trial_options *options, int64_t micro_batch,
                                      struct gd_trial *trial, struct gd_candidate *full,
                                      struct gd_error *err) GD_MUST_USE;
/* Of several choices the one that stays, for what is asked after it. */
void gd_planner_take(struct gd_planner *planner, const struct gd_trial_options *options,
                     struct gd_trial *trial);
/* The plan of the smaller last micro-batch of the trial that was chosen last. */
enum gd_status gd_planner_remainder(struct gd_planner *planner, struct gd_candidate *remainder,
                                    struct gd_error *err) GD_MUST_USE;
/* The plan of GD_RUN_EVALUATION, with the micro-batch of the trial that was chosen last. It is no
   larger than the one that trains. */
enum gd_status gd_planner_evaluation(struct gd_planner *planner, struct gd_candidate *evaluation,
                                     struct gd_error *err) GD_MUST_USE;
/* Gives back the plan that was chosen last: the next choice may be the same. */
void gd_planner_return(struct gd_planner *planner, struct gd_candidate *full);
/* Makes a failure of one rank a failure of all ranks. Once, after gd_planner_choose. */
enum gd_status gd_planner_settle(struct gd_planner *planner, enum gd_status status,
                                 struct gd_error *err);
const struct gd_model *gd_planner_model(const struct gd_planner *planner);
/* The device that was planned for: the threads that all ranks open the backend with, TF32, the
   rank's own GPU. */
const struct gd_place *gd_planner_place(const struct gd_planner *planner);

/* gd_planner_choose for one trial; the plan itself is not kept. */
enum gd_status gd_trial_plan(const struct gd_model *model, const struct gd_trial_options *options,
                             struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;
/* Text of graph and plan for the trial's micro-batch, `plan --explain`; or, where pass is not NULL,
   what gd_pipeline_explain says of it. */
enum gd_status gd_trial_explain(const struct gd_model *model,
                                const struct gd_trial_options *options,
                                const struct gd_trial *trial, const char *pass,
                                struct gd_strbuf *out, struct gd_error *err) GD_MUST_USE;

/* The peak that the MFU of a trial is a share of, that of its GEMMs; CPUs have no TF32. */
enum gd_peak gd_trial_peak(const struct gd_trial *trial);

/* FLOPs of an op's GEMMs as executed: a fused loss multiplies only rows whose label counts. */
double gd_trial_op_flops(const struct gd_graph *graph, gd_op_id id);

/*
 * The memory that all ranks of a trial share here, where the device's is the machine's; 0 where the
 * device has its own. gd_options_share gives each rank its part of it, where no limit was set.
 */
int64_t gd_place_shared_bytes(const struct gd_place *place);
void gd_options_share(struct gd_trial_options *options, int64_t shared_bytes);

#endif
