/*
 * A model alone; see forward.h.
 */
#include "exec/forward.h"

#include <string.h>

void gd_forward_close(struct gd_forward *forward) {
  gd_run_close(&forward->run);
  gd_backend_close(forward->backend);
  gd_plan_deinit(&forward->plan);
  gd_graph_deinit(&forward->graph);
  *forward = (struct gd_forward){0};
}

static enum gd_status open_forward(struct gd_forward *f, const struct gd_forward_options *options,
                                   const struct gd_safetensors *weights, struct gd_error *err) {
  struct gd_backend_options backend_options = {.threads = options->threads};
  struct gd_caps caps;
  struct gd_device_info info;
  bool logits = options->end == GD_FORWARD_LOGITS;
  GD_TRY(gd_backend_open(options->backend, &backend_options, &f->backend, err));
  f->backend->ops->caps(&backend_options, &caps);
  f->backend->ops->describe(f->backend, &info);
  struct gd_setup setup = {.model = &f->model,
                           .precision = GD_PRECISION_FP32,
                           .micro_batch = options->batch,
                           .method = {.kernels = !logits}};
  gd_setup_device(&setup, &caps);
  GD_TRY(gd_pipeline_forward(&setup, options->end, &f->graph, err));
  GD_TRY(gd_plan_make(&f->graph, &caps, &f->plan, err));
  GD_TRY(gd_plan_fits(&f->plan,
                      options->device_bytes > 0 ? options->device_bytes : info.memory_bytes,
                      info.host_memory_bytes, err));
  GD_TRY(gd_run_open(&f->run, f->backend, &f->plan, NULL, err));
  return gd_run_load(&f->run, f->model.family, weights, err);
}

enum gd_status gd_forward_open(struct gd_forward *forward, const struct gd_forward_options *options,
                               const struct gd_safetensors *weights, struct gd_error *err) {
  *forward = (struct gd_forward){.model = *options->model};
  if (options->seq > 0)
    forward->model.recipe.seq = options->seq;
  enum gd_status status = open_forward(forward, options, weights, err);
  if (status != GD_OK)
    gd_forward_close(forward);
  return status;
}

enum gd_status gd_forward_logits(struct gd_forward *f, const int32_t *ids, int64_t count,
                                 float *logits, struct gd_error *err) {
  const struct gd_graph *graph = &f->graph;
  gd_tensor_id last = graph->ops[graph->n_ops - 1].out[0];
  const struct gd_tensor *t = &graph->tensors[last];
  int64_t seq = f->model.recipe.seq, classes = t->dims[t->rank - 1];
  struct gd_batch batch;
  void *inputs, *behind;
  gd_run_stage(&f->run, GD_RUN_FULL, 0, &batch, &inputs, &behind);
  int32_t *staged = inputs, *labels = behind;
  GD_ASSERT(count > 0 && count <= seq && t->dtype == GD_DTYPE_F32);
  memcpy(staged, ids, (size_t)count * sizeof *ids);
  for (int64_t i = 0; i < seq; i++) {
    staged[i] = i < count ? staged[i] : 0; /* padding: no earlier position attends to it */
    labels[i] = -100;
  }
  GD_TRY(gd_run_batch(&f->run, GD_RUN_FULL, &batch, err));
  GD_TRY(gd_run_micro_step(&f->run, GD_RUN_FULL, err));
  return f->backend->ops->read(f->backend, t->space,
                               f->plan.offset_bytes[last] +
                                   (count - 1) * classes * (int64_t)sizeof *logits,
                               logits, classes * (int64_t)sizeof *logits, err);
}
