/*
 * What predictions miss published figures by, on rows that the fit has not seen: each row is
 * predicted by fits without its model, without its GPU, without GPUs of its architecture, without
 * its source and stack, and without both. The intervals of predictions are quantiles of these, by
 * what is known of a question; `gpudays fit` keeps them in data/fitted/published.json.
 */
#ifndef GD_PREDICT_PUBLISHED_ERRORS_H
#define GD_PREDICT_PUBLISHED_ERRORS_H

#include "predict/published.h"

/* What a fit has not seen of a row. */
enum gd_published_unseen {
  GD_UNSEEN_NOTHING,      /* the fit to all rows */
  GD_UNSEEN_MODEL,        /* rows of the same model */
  GD_UNSEEN_GPU,          /* of the same GPU */
  GD_UNSEEN_ARCHITECTURE, /* of GPUs of the same architecture */
  GD_UNSEEN_STACK,        /* of the same source and of the same stack: facts alone */
  GD_UNSEEN_BOTH,         /* of the same GPU, and of the same source and stack */
  GD_UNSEEN_COUNT
};

/* What is known of a question, from the most to the least. */
enum gd_published_known {
  GD_KNOWN_BOTH,        /* rows of that stack, rows of that GPU */
  GD_KNOWN_STACK,       /* rows of that stack; of the GPU's architecture, not of the GPU */
  GD_KNOWN_STACK_ALONE, /* rows of that stack; none of the architecture */
  GD_KNOWN_GPU,         /* rows of that GPU; none of the stack */
  GD_KNOWN_NOTHING,
  GD_KNOWN_COUNT
};

struct gd_published_interval {
  double low, high;            /* of 90 % of the times, over the predicted one */
  double median, p90, covered; /* errors, and the share of rows within it: by weight */
  int within;                  /* rows within it, each counting as one */
  int rows, sources;
};

struct gd_published_errors {
  struct gd_arena arena;
  const struct gd_published *published;
  struct gd_published_fit fit;        /* to all rows */
  double *predicted[GD_UNSEEN_COUNT]; /* by row; 0: nothing is left to fit to */
  struct gd_published_interval of[GD_KNOWN_COUNT];
};
enum gd_status gd_published_errors_make(const struct gd_published *published,
                                        struct gd_published_errors *errors,
                                        struct gd_error *err) GD_MUST_USE;
void gd_published_errors_deinit(struct gd_published_errors *errors);

/* Median, 90 % and worst error of some rows, every row or every source weighing the same. */
struct gd_published_score {
  int rows;
  double median, p90, worst, bias; /* of |log|, as a share: exp - 1; bias: median of the log */
};
struct gd_published_score
gd_published_score(const struct gd_published_errors *errors, enum gd_published_unseen unseen,
                   bool (*takes)(const struct gd_published_row *row, const void *user),
                   const void *user);
/* log of predicted over published seconds of a row; NAN where there is none. */
double gd_published_error(const struct gd_published_errors *errors, enum gd_published_unseen unseen,
                          int row);

/* The interval that a prediction has of which that much is not known; of nothing: as of rows of the
   same software and GPU. */
const struct gd_published_interval *
gd_published_interval_without(const struct gd_published_errors *errors,
                              enum gd_published_unseen unseen);

/* As data/fitted/published.json. */
enum gd_status gd_published_errors_append(const struct gd_published_errors *errors,
                                          struct gd_strbuf *out, struct gd_error *err) GD_MUST_USE;

/* That file, for predictions. */
struct gd_fitted {
  struct gd_gpu_fit gpu;
  struct gd_published_interval of[GD_KNOWN_COUNT];
  char gpus[512], architectures[256]; /* ",a100,h100,": with rows */
  char kinds[128];                    /* likewise, of models: gd_family_kind */
  int rows, sources;
};
enum gd_status gd_fitted_load(struct gd_fitted *fitted, struct gd_error *err) GD_MUST_USE;

/* What a prediction of models by a stack on a GPU rests on, and so its interval: `plan` and `why`
   ask here. Of models of which nobody published a rate, less is known than of any row that was left
   out: theirs is the widest. */
enum { GD_FITTED_WORDS = 192 };
struct gd_fitted_ground {
  enum gd_published_known known;
  const struct gd_published_interval *interval;
  char words[GD_FITTED_WORDS]; /* gd_published_known_words, and which models nobody published */
};
void gd_fitted_stand(const struct gd_fitted *fitted, const struct gd_gpu *gpu,
                     const struct gd_stack_facts *facts, const struct gd_model *models,
                     int n_models, struct gd_fitted_ground *ground);
/* "figures of that software were published for this GPU" */
const char *gd_published_known_words(enum gd_published_known known);

#endif
