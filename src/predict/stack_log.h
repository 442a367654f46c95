/*
 * Logs that other software prints while it trains: nanoGPT and what descends from it, Hugging
 * Face's Trainer, torchtitan, Megatron-LM, llm.c. A log is known by its content; its lines give the
 * time of each step, the settings that it repeats, and what it says of its kernels, its precision
 * and its links. Nothing is taken for granted: what a log does not say stays unknown, and lines
 * that nobody knows are passed over. Nothing here knows a GPU or what should be.
 *
 *   struct gd_stack_log log;
 *   GD_TRY(gd_stack_log_parse(&log, text, length, err));
 *   printf("%s: %g tokens/s\n", log.format->title, log.tokens_per_s);
 *   gd_stack_log_deinit(&log);
 */
#ifndef GD_PREDICT_STACK_LOG_H
#define GD_PREDICT_STACK_LOG_H

#include "base/mem.h"
#include "base/status.h"

/* What a log or its reader may say of a run, that matters to its speed. */
enum gd_run_fact {
  GD_RUN_COMPILED,        /* torch.compile, or the like */
  GD_RUN_FUSED_ATTENTION, /* no scores in memory */
  GD_RUN_HALF,            /* GEMMs in 16 bits */
  GD_RUN_TF32,            /* those that are left in fp32 in TF32 */
  GD_RUN_CHECKPOINTING,
  GD_RUN_LOADER_WORKERS, /* processes that load data next to the training */
  GD_RUN_FAST_NETWORK,   /* NCCL goes through InfiniBand or its like; no: through sockets */
  GD_RUN_FULL_CLOCK,     /* no: the driver says that power or heat holds it back */
  GD_RUN_FACT_COUNT
};
enum gd_run_answer { GD_RUN_UNKNOWN, GD_RUN_NO, GD_RUN_YES };

/* Whose remedies a run can use. */
enum gd_framework {
  GD_FRAMEWORK_PYTORCH, /* a training loop of one's own; nanoGPT and its like */
  GD_FRAMEWORK_TRAINER, /* Hugging Face's */
  GD_FRAMEWORK_TORCHTITAN,
  GD_FRAMEWORK_MEGATRON,
  GD_FRAMEWORK_LLM_C,
  GD_FRAMEWORK_COUNT
};

struct gd_stack_log_format {
  const char *name, *title; /* "nanogpt", "nanoGPT" */
  const char *stack;        /* of data/stacks, that it runs as unless it says otherwise */
  enum gd_framework framework;
};

struct gd_stack_log_step {
  int64_t step;
  double seconds;
  bool first;       /* after a start, where kernels are still compiled */
  bool interrupted; /* an evaluation or a checkpoint was just before */
};

struct gd_stack_log_fact {
  enum gd_run_answer answer;
  char said[96]; /* the words that say so; "": nobody said it */
};

/* Of the steps but for first and interrupted ones that took long; 0 without steps. */
struct gd_stack_log_times {
  int64_t steps;              /* that count */
  double mean_s;              /* of all steps that passed, as far as they are known */
  double median_s, fastest_s; /* the latter: one in ten is faster */
  double spread;              /* from the fastest tenth to the slowest, over the median */
  int64_t stalls;             /* steps of more than 1.5 medians */
  double stalled;             /* share of the time beyond a median that these took */
  double drift;               /* median of the last quarter over that of the first; 1: too few */
};

struct gd_stack_log {
  const struct gd_stack_log_format *format;
  struct gd_stack_log_step *steps; /* in the order of the file, each number once */
  uint32_t n_steps, capacity;
  struct gd_stack_log_times times;
  /* Settings; 0: not said. */
  double micro_batch, seq, accumulation, gpus;
  double batch;            /* sequences of a step of all GPUs */
  double step_tokens;      /* tokens of one */
  double tokens_per_gpu_s; /* of the last line that says so, and */
  double tokens_per_s;     /* of the whole job: of the settings and times, or as said */
  double samples_per_s;    /* likewise */
  double mfu;              /* as the software counts, a share */
  char device[64];         /* "NVIDIA A100-SXM4-40GB" */
  struct gd_stack_log_fact facts[GD_RUN_FACT_COUNT];
};

/* GD_BAD_INPUT: no line tells how fast it was, in any format known here. */
enum gd_status gd_stack_log_parse(struct gd_stack_log *log, const char *text, size_t length,
                                  struct gd_error *err) GD_MUST_USE;
/* The file of that name; GD_ENVIRONMENT where it cannot be read. */
enum gd_status gd_stack_log_load(struct gd_stack_log *log, const char *path,
                                 struct gd_error *err) GD_MUST_USE;
void gd_stack_log_deinit(struct gd_stack_log *log); /* safe on a zeroed one */
/* "nanoGPT, Hugging Face Trainer, ...": those that are known. */
const char *gd_stack_log_formats(char *text, size_t size);

/* Of a stack by its name or alias (NULL: none was named), else of the log's format. A log without a
   format is of a training loop of one's own. */
enum gd_framework gd_stack_log_framework(const struct gd_stack_log *log, const char *stack);

#endif
