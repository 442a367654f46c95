/*
 * The analytic estimate of Section 3.1. FLOPs come from the graph that would be trained, peaks from
 * the GPU's record; there is nothing else to it, on purpose.
 */
#include "hw/estimate.h"

#include <math.h>
#include <stddef.h>

#include "pass/pass.h"

const char *const gd_estimate_models[] = {
    "pythia-160m", "pythia-410m", "pythia-1b",           "pythia-2.8b", "pythia-6.9b",
    "roberta",     "mamba",       "convnext-xlarge-22k", "vit",         NULL,
};
const char *const gd_estimate_gpus[] = {"3090", "a6000", "a100", "h100", NULL};

enum gd_status gd_model_facts(const struct gd_model *model, enum gd_precision precision,
                              struct gd_model_facts *facts, struct gd_error *err) {
  const struct gd_recipe *recipe = &model->recipe;
  struct gd_graph graph = {0};
  struct gd_setup setup = {.model = model, .precision = precision, .micro_batch = 1};
  enum gd_status status = gd_pipeline_build(&setup, &graph, err);
  if (status == GD_OK) {
    double samples = (double)recipe->batch * (double)recipe->steps;
    *facts = (struct gd_model_facts){.parameters = gd_graph_parameters(&graph),
                                     .tokens = samples *
                                               (model->family->images ? 1.0 : (double)recipe->seq),
                                     .flops_per_step = graph.model_flops * (double)recipe->batch};
    facts->train_flops = facts->flops_per_step * (double)recipe->steps;
    if (graph.pixels != GD_NONE) {
      facts->height = graph.tensors[graph.pixels].dims[2];
      facts->width = graph.tensors[graph.pixels].dims[3];
    }
  }
  gd_graph_deinit(&graph);
  return status;
}

enum gd_status gd_estimate_flops(const struct gd_model *model, enum gd_precision precision,
                                 double *flops, struct gd_error *err) {
  struct gd_model_facts facts;
  GD_TRY(gd_model_facts(model, precision, &facts, err));
  *flops = facts.train_flops;
  return GD_OK;
}

enum gd_status gd_estimate_precision(const struct gd_model *model, const struct gd_gpu *gpu,
                                     const enum gd_precision *forced, enum gd_precision *precision,
                                     bool *substituted, struct gd_error *err) {
  struct gd_caps caps;
  gd_gpu_caps(gpu, &caps);
  return gd_setup_precision(model, &caps, forced, precision, substituted, err);
}

enum gd_peak gd_estimate_kind(const struct gd_gpu *gpu, enum gd_precision precision) {
  if (precision == GD_PRECISION_FP16)
    return GD_PEAK_FP16;
  if (precision == GD_PRECISION_BF16)
    return GD_PEAK_BF16;
  return gpu->flops[GD_PEAK_TF32] > gpu->flops[GD_PEAK_FP32] ? GD_PEAK_TF32 : GD_PEAK_FP32;
}

double gd_estimate_peak(const struct gd_gpu *gpu, enum gd_precision precision,
                        enum gd_peaks peaks) {
  if (peaks == GD_PEAKS_PAPER)
    return precision == GD_PRECISION_FP32 ? gpu->paper_flops / 2 : gpu->paper_flops;
  return gpu->flops[gd_estimate_kind(gpu, precision)];
}

double gd_estimate_days(double flops, double peak_flops, int count) {
  return peak_flops > 0 ? flops / (peak_flops * count) / 86400 : (double)INFINITY;
}

enum gd_status gd_estimate_make(const struct gd_model *model, double flops,
                                const struct gd_gpu *gpu, int count,
                                const enum gd_precision *forced, enum gd_peaks peaks,
                                struct gd_estimate *estimate, struct gd_error *err) {
  struct gd_estimate made = {.gpu = gpu, .count = count, .train_flops = flops};
  GD_TRY(gd_estimate_precision(model, gpu, forced, &made.precision, &made.substituted, err));
  made.kind = gd_estimate_kind(gpu, made.precision);
  made.peak_flops = gd_estimate_peak(gpu, made.precision, peaks);
  made.days = gd_estimate_days(flops, made.peak_flops, count);
  *estimate = made;
  return GD_OK;
}
