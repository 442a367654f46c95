/*
 * The numbers of "$100K or 100 Days" (arXiv 2410.23261) and of the Megatron/DeepSpeed table, as
 * data: the CSV files of data/paper, inside the program. What the paper states is here and nowhere
 * else; nothing is invented where it states nothing.
 */
#ifndef GD_PAPER_PAPER_H
#define GD_PAPER_PAPER_H

#include "base/mem.h"
#include "base/status.h"

enum gd_paper_table { GD_PAPER_OPTIMAL = 1, GD_PAPER_NAIVE = 4 };

/* A cell of Table 1 or Table 4. */
struct gd_paper_days {
  enum gd_paper_table table;
  const char *model; /* our preset: "pythia-160m" */
  const char *gpu;   /* our record: "3090", "a6000", "a100", "h100" */
  int count;
  double days;  /* 0: infeasible */
  double share; /* of the GPU's peak that it would need, by the paper's FLOPs and peaks */
};

/* A row of Appendix J: the settings behind a cell of Table 1. */
struct gd_paper_setting {
  const char *model, *gpu;
  int count;
  bool free_lunch, checkpointing, offloading;
  const char *sharding; /* "", "zero1".. "fsdp3" */
  int micro_batch, accumulation;
};

/* A row of the Megatron/DeepSpeed table (8 x A100 40 GB). */
struct gd_megatron_row {
  const char *model; /* "gpt-345m" */
  int gpus, data_parallel, model_parallel, zero_stage;
  bool offload;
  int batch;                                  /* 0: cannot be initialised */
  double iteration_s;                         /* 0: not measured */
  double memory_low_bytes, memory_high_bytes; /* over its GPUs */
};

struct gd_paper {
  struct gd_arena arena;
  struct gd_paper_days *days; /* 144 of each table */
  struct gd_paper_setting *settings;
  struct gd_megatron_row *megatron;
  int n_days, n_settings, n_megatron;
};

enum gd_status gd_paper_load(struct gd_paper *paper, struct gd_error *err) GD_MUST_USE;
void gd_paper_deinit(struct gd_paper *paper); /* safe on a zeroed one */
/* NULL: no such cell. */
const struct gd_paper_days *gd_paper_find(const struct gd_paper *paper, enum gd_paper_table table,
                                          const char *model, const char *gpu, int count);

#endif
