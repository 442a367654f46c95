/*
 * Training: the plan that was timed, run on data until the recipe's last step, through checkpoints
 * and interruptions. All state of a run is its step, its tensors and the loss scale; samples and
 * dropout are functions of seed and step. So a run that was killed goes on from its last checkpoint
 * with the losses that it would have had.
 *
 *   GD_TRY(gd_train_run(&(struct gd_training){.model = &model, .folder = "run", ...}, &end, err));
 *
 * A run is a folder:
 *   run.json         what is trained, on what, with which settings (run_folder.h)
 *   log.jsonl        a line a step
 *   tensorboard/     the same as curves (events.h)
 *   checkpoints/     see checkpoint.h
 *   tokenizer.json   where it is known
 *   model/           at the end: a model folder as transformers loads it
 */
#ifndef GD_TRAIN_TRAIN_H
#define GD_TRAIN_TRAIN_H

#include "data/source.h"
#include "train/checkpoint.h"
#include "trial/choose.h"

/* A finished step, as the log has it. */
struct gd_train_step {
  int64_t step;   /* steps done, this one included */
  int64_t tokens; /* seen so far; images of a model of images */
  double loss;    /* mean over the labels of the step, before the update */
  double lr, norm;
  double step_s, tokens_per_s, mfu; /* mfu 0: the peak is not known */
  double data_wait_s;               /* part of step_s that the device waited for samples */
  bool images;                      /* tokens and tokens_per_s are images and images_per_s */
  bool skipped; /* no update: the loss was not finite, or it or the gradient norm a spike */
};

struct gd_training {
  /* what to train; all borrowed */
  const struct gd_model *model;        /* with the recipe that is trained */
  struct gd_trial_options trial;       /* backend, method, micro-batch, limits, ranks, seed */
  struct gd_source_options data, eval; /* eval may have no files */
  const char *folder;
  const char *config_text; /* config.json */
  bool keeps;        /* use the store: look up the expected step time, keep the measured one */
  const char *store; /* path of it, as of gd_store_open */
  const char *init;  /* folder of weights to begin with; NULL or "": random ones */
  /* when to write, and when to end */
  int64_t checkpoint_steps; /* 0: by time alone */
  double checkpoint_s;      /* 0: by steps alone */
  int keep;                 /* newest checkpoints that stay */
  int64_t eval_steps;       /* 0: at the end alone */
  int64_t eval_samples;     /* of each evaluation, at most */
  double time_limit_s;      /* of this process; 0: none */
  int64_t hardware_steps;   /* between checks of the hardware, and after a spike; 0: none */
  /* callbacks; may be NULL. `stop` says that the process was asked to end, on any rank. `note` gets
     sentences that a user should read, on rank 0. */
  bool (*stop)(void *user);
  void (*opened)(void *user, const struct gd_trial *plan, int64_t step); /* before the first step */
  void (*stepped)(void *user, const struct gd_train_step *step);
  void (*evaluated)(void *user, int64_t step, double loss);
  void (*note)(void *user, const char *sentence);
  void *user;
};

/* How it ended. */
struct gd_train_end {
  int64_t step;            /* done */
  bool finished;           /* the recipe's last step is done */
  bool asked;              /* `stop` ended it, on some rank; else the time limit */
  bool resumed;            /* it began from a checkpoint, */
  int64_t resumed_step;    /* of this step */
  double loss, eval_loss;  /* of the last step; of the last evaluation, 0: none */
  double seconds;          /* of stepping */
  double step_s;           /* median */
  double eval_accuracy;    /* of images: share whose class was found; -1: none */
  double stalled_s;        /* that steps waited for checkpoints */
  double data_wait_s;      /* that steps waited for samples */
  int64_t skipped;         /* updates */
  int64_t best_step;       /* of the checkpoint with the lowest evaluation loss; -1: none; rank 0 */
  double expected_step_s;  /* what the run was started on; 0: nobody said */
  const char *expected_by; /* "trial", "prediction" or "" */
};

/*
 * Trains from the newest whole checkpoint of the folder, or from the start, until the last step,
 * the time limit, or `stop`; a checkpoint is written before it returns. Infeasible is
 * GD_NOMEM_DEVICE with the planner's sentence. A loss that stays not finite is
 * GD_MISMATCH. A checkpoint that cannot be written is a note, and training goes on; the last one is
 * GD_ENVIRONMENT.
 */
enum gd_status gd_train_run(const struct gd_training *training, struct gd_train_end *end,
                            struct gd_error *err) GD_MUST_USE;

#endif
