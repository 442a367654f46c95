/*
 * The numbers of "$100K or 100 Days" (arXiv 2410.23261) and of the Megatron/DeepSpeed table, as
 * data: the CSV files of data/paper, inside the program. What the paper states is here and nowhere
 * else; nothing is invented where it states nothing. data/paper/sources.csv says where each file
 * comes from.
 *
 *   struct gd_paper paper = {0};
 *   GD_TRY(gd_paper_load(&paper, err));
 *   const struct gd_paper_days *cell =
 *       gd_paper_find(&paper, GD_PAPER_OPTIMAL, "pythia-1b", "a100", 4);
 *   gd_paper_deinit(&paper);
 */
#ifndef GD_PAPER_PAPER_H
#define GD_PAPER_PAPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

enum gd_paper_table { GD_PAPER_OPTIMAL = 1, GD_PAPER_NAIVE = 4 };

/* A cell of Table 1 or Table 4. */
struct gd_paper_days {
  int table;         /* enum gd_paper_table */
  const char *model; /* our preset: "pythia-160m" */
  const char *gpu;   /* our record: "3090", "a6000", "a100", "h100" */
  int count;
  double days;  /* 0: infeasible */
  double share; /* of the GPUs' peak that it would need, by the paper's FLOPs and peaks */
};

/* A row of Appendix J: the settings behind a cell of Table 1. */
struct gd_paper_setting {
  const char *model, *gpu;
  int count;
  bool free_lunch, checkpointing, offloading;
  const char *sharding; /* "", "zero1" .. "fsdp3" */
  int micro_batch, accumulation;
};

/* A row of Table 3, with the training FLOPs of Appendix E. */
struct gd_paper_recipe {
  const char *model;  /* our preset */
  const char *family; /* "Pythia", as the tables group them */
  const char *size;   /* "1.0B", as printed */
  double parameters;  /* two significant figures */
  int seq, vocab;     /* 0: images only */
  int image, classes; /* 0: language */
  int batch, steps;
  const char *precision, *optimizer; /* "fp16", "bf16", "fp32"; "adam", "adamw" */
  double train_flops;                /* Figure 9 (a); see docs/flops.md for Mamba and ConvNeXt */
};

/* Appendix E, Figure 9 (b), and Table 5. */
struct gd_paper_gpu {
  const char *gpu, *title; /* "3090", "RTX 3090" */
  double memory_gb;
  double flops; /* of 16-bit recipes, two significant figures; fp32 recipes: half */
  double usd;
  const char *quote; /* where the price was seen */
};

/* Tables 6 and 7: what a machine for so many GPUs is built of, without them. */
struct gd_paper_part {
  int gpus;
  const char *part, *detail;
  double usd; /* 0: in the price of the whole server */
};

/* Figure 6 (a): what the models were first trained on. */
struct gd_paper_original {
  const char *model, *size;
  int gpus;        /* 0: not known */
  const char *gpu; /* "A100 (40 GB)", as printed */
  double days;     /* 0: not known */
};

/* A number that the text states. */
struct gd_paper_statement {
  const char *id;    /* "speedup_mean" */
  const char *where; /* "Sec. 4, Figure 2" */
  double value;
  const char *unit; /* "x", "%", "USD", "days", "of 20" */
  const char *text; /* what it is the number of */
};

/* A row of the Megatron/DeepSpeed table (a node of 8 x A100 40 GB). */
struct gd_megatron_row {
  const char *model; /* "gpt-345m" */
  int layers, hidden, heads;
  int gpus, data_parallel, model_parallel, zero_stage;
  bool offload;
  int batch;                         /* of all GPUs; 0: cannot be initialised */
  double iteration_s, samples_per_s; /* 0: not measured */
  double memory_bytes[8];            /* of each GPU, as nvidia-smi has it; 0: not measured */
  double memory_low_bytes, memory_high_bytes; /* over its GPUs; likewise */
  const char *note;
};

/* What we know of a cell that is not as it seems. */
struct gd_paper_note {
  int table;
  const char *model, *gpu;
  int count; /* 0: any */
  const char *note;
};

struct gd_paper_source {
  const char *file, *source, *date, *note; /* "days.csv" */
};

struct gd_paper {
  struct gd_arena arena;
  struct gd_paper_days *days; /* 144 of each table, in the order of the tables */
  struct gd_paper_setting *settings;
  struct gd_paper_recipe *recipes; /* the models, in the order of the tables */
  struct gd_paper_gpu *gpus;       /* in the order of the tables */
  struct gd_paper_part *parts;
  struct gd_paper_original *originals;
  struct gd_paper_statement *statements;
  struct gd_megatron_row *megatron;
  struct gd_paper_note *notes;
  struct gd_paper_source *sources;
  int n_days, n_settings, n_recipes, n_gpus, n_parts, n_originals, n_statements, n_megatron;
  int n_notes, n_sources;
};

enum gd_status gd_paper_load(struct gd_paper *paper, struct gd_error *err) GD_MUST_USE;
void gd_paper_deinit(struct gd_paper *paper); /* safe on a zeroed one */

/* All of these: NULL when there is no such thing. */
const struct gd_paper_days *gd_paper_find(const struct gd_paper *paper, enum gd_paper_table table,
                                          const char *model, const char *gpu, int count);
const struct gd_paper_setting *gd_paper_find_setting(const struct gd_paper *paper,
                                                     const char *model, const char *gpu, int count);
const struct gd_paper_recipe *gd_paper_find_recipe(const struct gd_paper *paper, const char *model);
const struct gd_paper_gpu *gd_paper_find_gpu(const struct gd_paper *paper, const char *gpu);
const struct gd_paper_statement *gd_paper_find_statement(const struct gd_paper *paper,
                                                         const char *id);

/* Days by Sec. 3.1 with the paper's FLOPs and peaks: the analytic side of Figure 2. */
double gd_paper_analytic_days(const struct gd_paper_recipe *recipe, const struct gd_paper_gpu *gpu,
                              int count);
/* What a machine for so many GPUs costs without them by Tables 6 and 7; 0: not in them. */
double gd_paper_system_usd(const struct gd_paper *paper, int gpus);

#endif
