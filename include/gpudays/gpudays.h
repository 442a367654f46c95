/*
 * gpudays as a library: how long, and how much memory, to pre-train a model on given hardware, by
 * the very planner and engine of the program.
 *
 *   struct gpd_error err = {0};
 *   struct gpd_model *model;
 *   struct gpd_plan *plan;
 *   struct gpd_prediction days;
 *   if (gpd_model_load("pythia-160m", NULL, &model, &err) != GPD_OK)
 *     return fprintf(stderr, "%s\n", err.text);
 *   struct gpd_plan_options where = {.method = "free-lunch", .gpu = "a100", .count = 4};
 *   if (gpd_plan_make(model, &where, &plan, &err) == GPD_OK &&
 *       gpd_plan_predict(plan, &days, &err) == GPD_OK)
 *     printf("%.1f days\n", days.days);
 *
 * Rules of every function:
 *   - The result is a status. Anything but GPD_OK has filled *err, if err is not NULL, with one
 *     sentence: the value that is wrong, and the remedy. Results are then untouched.
 *   - Arguments may not be NULL, but for recipe, options and err: that is GPD_BAD_INPUT, with the
 *     argument's name. The functions without a status then leave a struct of zeros, or do nothing.
 *   - GPD_ENVIRONMENT is possible everywhere: the system refused memory, or a file.
 *   - Handles are opaque. What a function makes belongs to the caller, who hands it to the function
 *     whose name ends in _free or _close; NULL is fine there. All else is borrowed for the call,
 *     unless said otherwise.
 *   - Nothing is printed, the process is never ended by what a caller gives, and there is no global
 *     state to set up. A handle may be used by one thread at a time. Models and plans of different
 *     handles may be made by different threads at once; train and verify in one thread.
 *   - In structs of options, zero (or NULL) means the default. Initialise with {0}.
 *
 * The program's environment variables hold here too: `gpudays doctor` lists them.
 */
#ifndef GD_GPUDAYS_H
#define GD_GPUDAYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPD_API __attribute__((visibility("default")))

/* --- status --------------------------------------------------------------------------------- */

enum gpd_status {
  GPD_OK = 0,
  GPD_BAD_INPUT,    /* a file, name or value of the caller's is wrong */
  GPD_UNSUPPORTED,  /* well-formed, but the engine does not have it */
  GPD_NOMEM_DEVICE, /* does not fit in device memory */
  GPD_NOMEM_HOST,   /* does not fit in host memory */
  GPD_MISMATCH,     /* numbers differ that should not */
  GPD_ENVIRONMENT,  /* no memory, a full disk, no permission, a missing library */
  GPD_INTERNAL      /* a bug of gpudays */
};

/* Zero it before the first call and after a failure: only the first failure is kept. */
struct gpd_error {
  enum gpd_status status;
  char text[1024]; /* one sentence, no newline */
};

/* "0.1.0": of the library that is loaded. Static text. */
GPD_API const char *gpd_version(void);
/* "ok", "bad input", ...; "unknown" for a number that is no status. Static text. */
GPD_API const char *gpd_status_name(enum gpd_status status);

/* --- models --------------------------------------------------------------------------------- */

struct gpd_model;

/* What to train with instead of the model's own recipe. Zero or NULL: as the recipe has it. */
struct gpd_recipe {
  int64_t batch;         /* sequences (or images) a training step */
  int64_t seq;           /* tokens a sequence: 2 or more, and no more than the model has positions;
                            GPD_BAD_INPUT for a model of images */
  int64_t steps;         /* training steps of the whole run */
  const char *precision; /* "fp32", "bf16" or "fp16" */
  const char *optimizer; /* "adam" or "adamw" */
};

/*
 * Loads a preset by name ("pythia-160m"), a Hugging Face config.json, or the folder that holds one.
 * recipe may be NULL. *model is the caller's: gpd_model_free.
 * GPD_BAD_INPUT: unknown name, wrong file, wrong value. GPD_UNSUPPORTED: a family that is not here.
 */
GPD_API enum gpd_status gpd_model_load(const char *name_or_path, const struct gpd_recipe *recipe,
                                       struct gpd_model **model, struct gpd_error *err);
GPD_API void gpd_model_free(struct gpd_model *model);

struct gpd_model_info {
  char name[128];
  const char *family; /* config.json's model_type: "gpt_neox"; static text */
  bool images;        /* samples are images: no tokens */
  int64_t parameters;
  int64_t classes; /* that the loss chooses among: size of the vocabulary, or labels */
  int64_t batch, seq, steps;
  const char *precision, *optimizer; /* static text */
  double flops_per_step;             /* forward and backward, as the paper counts them */
};
/* The model was checked when it was loaded. GPD_ENVIRONMENT: no memory to build its graph. */
GPD_API enum gpd_status gpd_model_describe(const struct gpd_model *model,
                                           struct gpd_model_info *info, struct gpd_error *err);

/* --- plans ---------------------------------------------------------------------------------- */

struct gpd_plan;

struct gpd_plan_options {
  const char *method;          /* as --methods of the program; NULL: "free-lunch" */
  const char *gpu;             /* of the catalogue ("a100"), or a file; NULL: this machine's CPU */
  int count;                   /* GPUs; 0: one */
  int nodes;                   /* that hold them; 0: as few as can */
  const char *machine;         /* of the catalogue, that holds them; NULL: the usual one */
  const char *network;         /* between nodes; NULL: the machine's */
  int threads;                 /* of the CPU, or CPUs a GPU has: 1 to 4096; 0: the default */
  int64_t micro_batch;         /* samples, at most a rank's share of the batch; 0: chosen */
  int64_t device_memory_bytes; /* limit; 0: what is there */
  int64_t host_memory_bytes;   /* likewise */
};

/*
 * Plans training of the model: exact bytes, and the largest micro-batch that is worth it. options
 * may be NULL. *plan is the caller's (gpd_plan_free), and outlives the model.
 * A model that does not fit is GPD_OK with a plan that is not feasible.
 * GPD_BAD_INPUT: unknown method, GPU, machine or network, numbers that cannot be.
 */
GPD_API enum gpd_status gpd_plan_make(const struct gpd_model *model,
                                      const struct gpd_plan_options *options,
                                      struct gpd_plan **plan, struct gpd_error *err);
GPD_API void gpd_plan_free(struct gpd_plan *plan);

struct gpd_plan_info {
  bool feasible;
  char reason[1152]; /* why not; empty otherwise */
  char method[128];
  char device[128];
  int ranks;                        /* GPUs, or 1 */
  int64_t micro_batch;              /* samples of one rank */
  int64_t accumulation;             /* micro-steps of a rank in a training step */
  int64_t device_bytes, host_bytes; /* that one rank needs */
  int64_t device_limit_bytes, host_limit_bytes;
  const char *precision;      /* static text */
  bool precision_substituted; /* the device lacks the recipe's */
};
/* Zeros (NULL as precision) where the plan is NULL. */
GPD_API void gpd_plan_describe(const struct gpd_plan *plan, struct gpd_plan_info *info);

/* --- predictions ---------------------------------------------------------------------------- */

struct gpd_prediction {
  bool calibrated; /* by measurements on this kind of device, so that the interval was checked */
  double micro_step_s, update_s, step_s;
  double days, days_low, days_high; /* of the whole run */
  double samples_per_s;             /* of all ranks */
  double mfu;                       /* model FLOPs by the peak of the devices; 0: unknown */
  char basis[1024];                 /* what the figures rest on, a sentence */
};
/*
 * How long the planned run would take. GPD_NOMEM_DEVICE, GPD_NOMEM_HOST: the plan is not feasible,
 * for want of that memory; where both lack, GPD_NOMEM_DEVICE.
 */
GPD_API enum gpd_status gpd_plan_predict(const struct gpd_plan *plan,
                                         struct gpd_prediction *prediction, struct gpd_error *err);

/* --- training ------------------------------------------------------------------------------- */

struct gpd_trainer;

struct gpd_train_options {
  const char
      *method; /* of one device: "naive", "free-lunch", "free-lunch+ckpt"; NULL: free-lunch */
  int threads; /* 1 to 4096; 0: as many as the process may use */
  int64_t micro_batch; /* samples, at most the batch; 0: the whole batch */
  uint64_t seed;       /* of the parameters, and of dropout */
  double lr;           /* learning rate of every step; 0: the recipe's schedule */
};

/*
 * Builds the model on the CPU backend of this machine, with parameters as transformers initialises
 * them. options may be NULL. *trainer is the caller's (gpd_trainer_close), and outlives the model.
 * GPD_BAD_INPUT: a method that is unknown or of several devices (zero1, fsdp3, offload, ...), a
 * number out of range, a batch of more bytes than can be counted. GPD_NOMEM_DEVICE: it does not fit
 * in the memory that this process may use, which is the CPU backend's device memory.
 */
GPD_API enum gpd_status gpd_trainer_open(const struct gpd_model *model,
                                         const struct gpd_train_options *options,
                                         struct gpd_trainer **trainer, struct gpd_error *err);
GPD_API void gpd_trainer_close(struct gpd_trainer *trainer);

/* How many values the arrays of a step have. */
struct gpd_batch_shape {
  int64_t ids;    /* token ids: batch x seq; 0 for a model of images */
  int64_t pixels; /* batch x 3 x height x width; 0 for a model of tokens */
  int64_t labels; /* batch x seq, or batch */
};
/* Zeros where the trainer is NULL. */
GPD_API void gpd_trainer_shape(const struct gpd_trainer *trainer, struct gpd_batch_shape *shape);

/* The data of one training step, in the sizes of gpd_trainer_shape. */
struct gpd_batch {
  const int32_t *ids;    /* 0 .. classes-1 */
  const float *pixels;   /* finite */
  const int32_t *labels; /* 0 .. classes-1, or -100: does not count. Causal models shift inside,
                            as transformers does: labels are the ids themselves */
};
/*
 * One training step: forward and backward of all micro-batches, then the update. *loss is the mean
 * over the labels that count, before the update. GPD_BAD_INPUT: a value out of range, an array that
 * is missing, or no label that counts; the model is then as it was.
 */
GPD_API enum gpd_status gpd_trainer_step(struct gpd_trainer *trainer, const struct gpd_batch *batch,
                                         double *loss, struct gpd_error *err);

/* --- numerics ------------------------------------------------------------------------------- */

struct gpd_verify_options {
  const char *method;    /* of one device, as to train; NULL: "naive" */
  const char *precision; /* NULL: "fp32" */
  int threads;           /* 1 to 4096; 0: as many as the process may use */
};
struct gpd_verify_result {
  bool ok;                       /* all errors are within their bounds */
  double loss_error, loss_bound; /* relative */
  double gradient_error, gradient_bound;
  double trajectory_error, trajectory_bound; /* of training losses; -1: the folder has none */
  char worst_parameter[160];
};
/*
 * Compares loss, gradients and training losses on the CPU backend with those that transformers left
 * in a folder (docs/reference-format.md). options may be NULL. A numeric miss is GPD_OK with ok
 * false; GPD_BAD_INPUT: the folder is no reference, the method is of several devices, or a value is
 * out of range.
 */
GPD_API enum gpd_status gpd_verify(const char *folder, const struct gpd_verify_options *options,
                                   struct gpd_verify_result *result, struct gpd_error *err);

#ifdef __cplusplus
}
#endif

#endif
