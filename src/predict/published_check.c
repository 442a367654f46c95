/*
 * What a published row says, held against its GPU: what it cannot compute in, rates above the peak
 * of its multipliers or next to none, micro-batches that its memory does not hold. One such row,
 * taken for a measurement, would bend every fit.
 */
#include <stdio.h>

#include "base/strbuf.h"
#include "predict/published_int.h"

bool gd_published_has_precision(const struct gd_published_row *row,
                                struct gd_published_doubt *doubt) {
  static const enum gd_precision all[] = {GD_PRECISION_FP32, GD_PRECISION_FP16, GD_PRECISION_BF16};
  struct gd_caps caps;
  size_t length;
  const char *between = "";
  gd_gpu_caps(row->target.gpu, &caps);
  if (caps.dtype[gd_precision_dtype(row->precision)])
    return true;
  doubt->column = GD_ROW_PRECISION;
  length = (size_t)snprintf(doubt->expected, sizeof doubt->expected,
                            "a precision of the %s: ", row->target.gpu->title);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (caps.dtype[gd_precision_dtype(all[i])]) {
      length += (size_t)snprintf(doubt->expected + length, sizeof doubt->expected - length, "%s%s",
                                 between, gd_precision_name(all[i]));
      between = " or ";
    }
  return false;
}

bool gd_published_has_rate(const struct gd_published_row *row, const struct gd_stack_works *works,
                           const char *unit, struct gd_published_doubt *doubt) {
  struct gd_gpu_fit fit;
  struct gd_gpu_model gpu;
  char most[32], least[32];
  enum { SLOWEST = 100000 }; /* of the peak: a small model, op by op, with launches alone */
  gd_gpu_fit_start(&fit);
  gd_gpu_model_make(row->target.gpu, &fit, &gpu);
  double least_s = gd_stack_works_least_s(works, &gpu);
  double tokens = (double)row->micro_batch * (row->seq > 0 ? (double)row->seq : 1);
  doubt->column = GD_ROW_PER_GPU;
  if (row->per_gpu * least_s * SLOWEST < tokens) {
    snprintf(doubt->expected, sizeof doubt->expected,
             "at least %s %s a GPU, which is 0.001 %% of the %s's peak",
             gd_format_digits(least, sizeof least, tokens / least_s / SLOWEST, 2), unit,
             row->target.gpu->title);
    return false;
  }
  if (row->per_gpu * least_s <= tokens)
    return true;
  snprintf(doubt->expected, sizeof doubt->expected,
           "at most %s %s a GPU, which is %s on the %s at 100 %% of its %s peak",
           gd_format_digits(most, sizeof most, tokens / least_s, 4), unit, row->model,
           row->target.gpu->title, gd_precision_name(row->precision));
  return false;
}

/* With every block computed again and logits made in pieces, since a row does not say what else its
   run gave up for memory. */
enum gd_status gd_published_has_memory(const struct gd_published_row *row,
                                       const struct gd_model *model, bool flash, bool *has,
                                       struct gd_published_doubt *doubt, struct gd_error *err) {
  struct gd_stack_graph graph;
  struct gd_stack_bytes bytes;
  struct gd_method method = row->method;
  struct gd_stack_facts facts = *row->facts;
  char need[32], have[32];
  const double memory = (double)row->target.gpu->memory_bytes;
  method.ckpt = true;
  facts.kernels = GD_STACK_KERNELS_FUSED;
  GD_TRY(gd_stack_graph_make(model, gd_stack_facts_mode(&facts, flash), &graph, err));
  gd_stack_facts_bytes(&facts, &graph, &method, row->target.count, (double)row->micro_batch,
                       &bytes);
  *has = bytes.device <= facts.memory_over * memory;
  if (*has)
    return GD_OK;
  doubt->column = GD_ROW_MICRO_BATCH;
  snprintf(doubt->expected, sizeof doubt->expected,
           "one that fits: %s needs about %s a GPU even with checkpointing, and the %s has %s",
           row->model, gd_format_bytes(need, sizeof need, (int64_t)bytes.device),
           row->target.gpu->title, gd_format_bytes(have, sizeof have, (int64_t)memory));
  return GD_OK;
}
