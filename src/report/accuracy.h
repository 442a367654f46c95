/*
 * How good predictions are: predicted against measured for stored trials, for the paper's Tables 1
 * and 4 (only by parameters that were fitted without the GPU or the family in question), and for
 * the Megatron/DeepSpeed table. `gpudays accuracy` writes it as results/accuracy.md, so what the
 * page says is what the program computes.
 *
 *   struct gd_accuracy accuracy = {0};
 *   GD_TRY(gd_accuracy_make(&accuracy, err));
 *   GD_TRY(gd_accuracy_add_file(&accuracy, "results/h200.csv", err));
 *   gd_accuracy_page(&accuracy, &out);
 *   gd_accuracy_deinit(&accuracy);
 */
#ifndef GD_REPORT_ACCURACY_H
#define GD_REPORT_ACCURACY_H

#include "predict/published_errors.h"
#include "predict/rates.h"
#include "predict/stack_megatron.h"
#include "predict/stack_paper.h"
#include "store/store.h"

struct gd_accuracy_score {
  int count;
  double median, p90, worst; /* relative errors */
};

/* One fit, and what it says of the cells it has not seen. */
struct gd_accuracy_fold {
  struct gd_stack_leave leave; /* nothing: the fit to all cells, scored on the same */
  const char *name;            /* "RTX 3090", "Pythia" */
  struct gd_stack_fit fit;
  struct gd_accuracy_score score;    /* of group GD_STACK_FITTED */
  struct gd_accuracy_score apart;    /* of group GD_STACK_APART */
  struct gd_accuracy_score table[2]; /* of the score: Table 1, Table 4 */
};

/* By cell: predicted days without its GPU, and without its family; 0: does not fit. */
struct gd_accuracy_cell {
  double days_gpu, days_family;
  const struct gd_stack_point *point; /* the method of the former */
};

struct gd_accuracy_trial {
  const char *file, *model, *method, *device, *precision;
  int ranks;
  int64_t micro_batch;
  bool feasible, planned_feasible;
  int64_t peak_bytes, planned_bytes;
  int cpus;                       /* that it was measured with and is predicted for, a rank */
  enum gd_point_class of;         /* whose interval the prediction has */
  double measured_s, predicted_s; /* of a training step; 0: none */
  double low_s, high_s;           /* the interval, as `plan` prints it */
  const char *why;                /* there is no prediction; NULL: there is */
  const char *basis;              /* what the prediction rests on */
  const char *calibrated;         /* when that was measured, as in the file; "": never */
};

/* A run of `train`: what one process measured. Its errors are not those of a calibration: a run has
   neighbours, checkpoints and evaluations. */
struct gd_accuracy_run {
  struct gd_accuracy_trial trial; /* measured_s: median of its steps */
  const char *folder, *expected_by, *slowed_by;
  int64_t steps;     /* that it made */
  double whole_s;    /* of a step, with all that is none: time of the process / steps */
  double expected_s; /* what it was started on; 0: nobody said */
};

enum { GD_ACCURACY_FOLDS = 16 };

struct gd_accuracy {
  struct gd_arena arena;
  struct gd_stack stack;
  struct gd_accuracy_fold all, gpus[GD_ACCURACY_FOLDS], families[GD_ACCURACY_FOLDS];
  struct gd_accuracy_fold models[GD_ACCURACY_FOLDS];
  int n_gpus, n_families, n_models;
  struct gd_accuracy_score held_gpu, held_family, held_model; /* over all folds of a kind */
  struct gd_accuracy_score apart_gpu, apart_family;
  struct gd_accuracy_cell *cells;     /* as stack.cells */
  struct gd_stack_megatron *megatron; /* as paper.megatron; zero where it is not predicted */
  struct gd_accuracy_score megatron_memory, megatron_time;
  struct gd_accuracy_trial *trials;
  uint32_t n_trials, trials_capacity;
  struct gd_accuracy_run *runs;
  uint32_t n_runs, runs_capacity;
  struct gd_published published; /* empty unless added */
  struct gd_published_errors published_errors;
};

/* The paper's part; no trials yet. */
enum gd_status gd_accuracy_make(struct gd_accuracy *accuracy, struct gd_error *err) GD_MUST_USE;
void gd_accuracy_deinit(struct gd_accuracy *accuracy); /* safe on a zeroed one */

/*
 * Trials of a file that `gpudays results --csv` wrote, or of a store with its runs. Those that are
 * neither measured nor infeasible are left out; what cannot be predicted here says why.
 */
enum gd_status gd_accuracy_add_file(struct gd_accuracy *accuracy, const char *path,
                                    struct gd_error *err) GD_MUST_USE;
enum gd_status gd_accuracy_add_store(struct gd_accuracy *accuracy, struct gd_store *store,
                                     struct gd_error *err) GD_MUST_USE;

/* One trial, from `file`, which may be empty. It becomes the last one, unless it is neither
   measured nor infeasible. */
enum gd_status gd_accuracy_add_trial(struct gd_accuracy *accuracy, const char *file,
                                     const struct gd_trial *trial,
                                     struct gd_error *err) GD_MUST_USE;

/* Throughput that others published, by fits that have not seen it; takes seconds. */
enum gd_status gd_accuracy_add_published(struct gd_accuracy *accuracy,
                                         struct gd_error *err) GD_MUST_USE;

/* Scores of relative errors; sorts them. */
struct gd_accuracy_score gd_accuracy_score(double *errors, int count);
/* Of the trials of one device; NULL: of all. */
struct gd_accuracy_score gd_accuracy_trials(const struct gd_accuracy *accuracy, const char *device);
/* Of the runs. */
struct gd_accuracy_score gd_accuracy_runs(const struct gd_accuracy *accuracy);
/* Of the trials of one device and class, as its calibration file has them. */
struct gd_trial_errors gd_accuracy_errors(const struct gd_accuracy *accuracy, const char *device,
                                          enum gd_point_class of);
/* Trials of a device that lie within the interval of their prediction; *compared: of how many. */
int gd_accuracy_within(const struct gd_accuracy *accuracy, const char *device, int *compared);
/*
 * Intervals that `plan` prints for free-lunch by what is known of a GPU, and the left-out errors
 * that they join: how many of each lie within the whole.
 */
struct gd_accuracy_interval {
  const char *question; /* "GPUs of other architectures: a100" */
  double error;         /* as gd_predictor_class has it */
  int trials, trials_within;
  int rates; /* published; 0: none is in it */
  double rates_within;
};
enum { GD_ACCURACY_INTERVALS = 4 };
enum gd_status gd_accuracy_intervals(const struct gd_accuracy *accuracy,
                                     struct gd_accuracy_interval intervals[GD_ACCURACY_INTERVALS],
                                     struct gd_error *err) GD_MUST_USE;

/* Cells of a table whose feasibility is as the paper says. */
int gd_accuracy_feasible(const struct gd_accuracy *accuracy, enum gd_paper_table table, int *cells);
/* Settings of Appendix J whose micro-batch is found: exactly, and within a factor of two. */
void gd_accuracy_micro_batches(const struct gd_accuracy *accuracy, int *exact, int *near);

/* What a fit did not see. */
enum gd_accuracy_unseen {
  GD_ACCURACY_ALL_SEEN,
  GD_ACCURACY_GPU_UNSEEN,
  GD_ACCURACY_MODEL_UNSEEN,
  GD_ACCURACY_FAMILY_UNSEEN,
  GD_ACCURACY_UNSEEN_COUNT
};
/* Methods of Table 1 that are chosen, against those of Appendix J. The paper has no times of the
   methods that it did not choose: how much longer its own is predicted to take than the choice is
   the regret, and a choice is near where that is 2 % at most. */
struct gd_accuracy_choices {
  int of, right, near;
  struct gd_accuracy_score regret; /* where the paper's is predicted to fit */
};
struct gd_accuracy_choices gd_accuracy_choices(const struct gd_accuracy *accuracy,
                                               enum gd_accuracy_unseen unseen);
/* How many of them a rule finds that needs no model: ZeRO 1 on several GPUs, free-lunch on one. */
int gd_accuracy_rule_finds(const struct gd_accuracy *accuracy);
/* Likewise of the cells whose method of Appendix J is in a group, the GPU left out. */
enum gd_accuracy_group {
  GD_ACCURACY_PLAIN,  /* free-lunch alone */
  GD_ACCURACY_ZERO_1, /* with ZeRO 1 alone */
  GD_ACCURACY_CKPT,   /* with checkpointing, without offload */
  GD_ACCURACY_OFFLOAD,
  GD_ACCURACY_GROUP_COUNT
};
struct gd_accuracy_choices gd_accuracy_choices_of(const struct gd_accuracy *accuracy,
                                                  enum gd_accuracy_group group);

/* The page, in Markdown. */
enum gd_status gd_accuracy_page(const struct gd_accuracy *accuracy, struct gd_strbuf *out,
                                struct gd_error *err) GD_MUST_USE;
/* Predicted over published rates as an SVG, both axes logarithmic. */
void gd_accuracy_published_picture(const struct gd_accuracy *accuracy, struct gd_strbuf *out);
/* Its part about published throughput, where that was added. */
enum gd_status gd_accuracy_published_section(const struct gd_accuracy *accuracy,
                                             struct gd_strbuf *out,
                                             struct gd_error *err) GD_MUST_USE;
/* Where gd_accuracy_write_page puts accuracy.svg; false: it writes none, since no published
   throughput was added, or the page is no file that others could lie next to. */
bool gd_accuracy_picture_path(const struct gd_accuracy *accuracy, const char *page, char *path,
                              size_t size);
/* With accuracy.svg next to it, where published throughput was added. */
enum gd_status gd_accuracy_write_page(const struct gd_accuracy *accuracy, const char *path,
                                      struct gd_error *err) GD_MUST_USE;

/*
 * Writes the errors of a calibration's own device, by class of points, into its file. GD_BAD_INPUT
 * where no trial of that device was compared, or one was predicted from another calibration.
 */
enum gd_status gd_accuracy_keep_errors(const struct gd_accuracy *accuracy, const char *path,
                                       struct gd_error *err) GD_MUST_USE;

#endif
