/*
 * What `evaluate` answers: loss and bits a byte of a trained model on token files, or loss
 * and top-1 accuracy on images, in fp32 and without dropout.
 *
 *   GD_TRY(gd_evaluate_model(&(struct gd_model_evaluation){.trained = &trained, ...}, &result,
 * err));
 */
#ifndef GD_TRAIN_EVALUATE_MODEL_H
#define GD_TRAIN_EVALUATE_MODEL_H

#include "train/evaluate.h"
#include "train/trained.h"

struct gd_model_evaluation {
  const struct gd_trained *trained; /* its recipe says how long a sequence is */
  const char *const *files;         /* n_files 0: those that the run evaluates on */
  int n_files;
  int64_t token_bytes;   /* of raw files; 0: by content */
  int64_t mask_token;    /* of a masked model; -1: the run's */
  const char *tokenizer; /* NULL: the model's, if it is known */
  const char *normalize; /* of images; NULL: as in the run, or imagenet */
  int data_threads;      /* that decode them; 0: one for each core */
  int64_t samples;       /* at most; 0: all */
  int64_t micro_batch;   /* samples at a time; 0: as many as fit */
  const char *backend;
  int threads;                                                /* 0: all */
  int64_t device_bytes;                                       /* limit; 0: what the device has */
  void (*evaluated)(void *user, int64_t samples, int64_t of); /* may be NULL */
  void *user;
};

struct gd_model_evaluated {
  struct gd_evaluated of;
  double bits_per_byte; /* 0: there is no tokenizer, the model is masked, or one of images */
  bool by_own_names;    /* the run's training images are gone: classes are numbered by the names of
                           those that were evaluated */
};

/* GD_MISMATCH: the loss is not finite. */
enum gd_status gd_evaluate_model(const struct gd_model_evaluation *asked,
                                 struct gd_model_evaluated *result,
                                 struct gd_error *err) GD_MUST_USE;

#endif
