/*
 * The pipeline: from a model to the verified graph that is planned, run and simulated.
 */
#include "ir/autodiff.h"
#include "pass/pass.h"

static enum gd_status compile(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  if (!ctx->setup->method.compile || ctx->setup->no_compiler)
    return GD_OK;
  GD_TRY(gd_pass_recompute(ctx, graph));
  return gd_pass_compile(ctx, graph);
}

static const struct gd_pass passes[] = {
    {"precision", gd_pass_precision, GD_STAGE_FORWARD, false,
     "16-bit products with fp32 master weights"},
    {"kernels", gd_pass_kernels, GD_STAGE_FORWARD, false,
     "fused attention, selective scan, linear + cross-entropy"},
    {"compile", compile, GD_STAGE_PASS, false,
     "generated kernels for clusters of small ops; what is cheap is made again, not kept"},
    {"tf32", gd_pass_tf32, GD_STAGE_PASS, false,
     "fp32 products on faster units of lower precision, where a device has them"},
    {"ckpt", gd_pass_ckpt, GD_STAGE_PASS, true,
     "a block's inside is computed again in the backward pass"},
    {"shard", gd_pass_shard, GD_STAGE_PASS, false,
     "ranks share state, gradients or parameters: data parallel, ZeRO, FSDP"},
    {"accumulate", gd_pass_accumulate, GD_STAGE_PASS, false,
     "ops add gradients to their leaves themselves"},
    {"offload", gd_pass_offload, GD_STAGE_ALL, true, "state in host memory, Adam on the CPU"},
};

const struct gd_pass *gd_passes(int *count) {
  *count = (int)(sizeof passes / sizeof *passes);
  return passes;
}

static bool has_precision(const struct gd_caps *caps, enum gd_precision precision) {
  switch (precision) {
  case GD_PRECISION_BF16: return caps->dtype[GD_DTYPE_BF16];
  case GD_PRECISION_FP16: return caps->dtype[GD_DTYPE_F16];
  case GD_PRECISION_FP32: break;
  }
  return true;
}

/* Itself, the other one of 16 bits, fp32: the first that the device has. */
static enum gd_precision nearest_precision(const struct gd_caps *caps,
                                           enum gd_precision precision) {
  enum gd_precision other = precision == GD_PRECISION_FP16 ? GD_PRECISION_BF16 : GD_PRECISION_FP16;
  return has_precision(caps, precision) ? precision
         : has_precision(caps, other)   ? other
                                        : GD_PRECISION_FP32;
}

enum gd_status gd_setup_precision(const struct gd_model *model, const struct gd_caps *caps,
                                  const enum gd_precision *forced, enum gd_precision *precision,
                                  bool *substituted, struct gd_error *err) {
  enum gd_precision wanted = forced ? *forced : model->recipe.precision;
  enum gd_precision nearest = nearest_precision(caps, wanted);
  if (forced && caps->dtypes_alone && nearest != wanted)
    return gd_fail(err, GD_UNSUPPORTED,
                   "--precision is %s, which this GPU does not compute in; choose %s, or leave it "
                   "out",
                   gd_precision_name(wanted), gd_precision_name(nearest));
  *precision = forced ? wanted : nearest;
  *substituted = *precision != wanted;
  return GD_OK;
}

/* All passes of a stage; then the graph is verified. */
static enum gd_status run_passes(struct gd_pass_ctx *ctx, struct gd_graph *graph,
                                 enum gd_stage stage) {
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
    if (passes[i].stage == stage)
      GD_TRY(passes[i].run(ctx, graph));
  return gd_graph_verify(graph, ctx->err);
}

enum gd_status gd_pipeline_build(const struct gd_setup *setup, struct gd_graph *graph,
                                 struct gd_error *err) {
  const struct gd_recipe *recipe = &setup->model->recipe;
  struct gd_pass_ctx ctx = {setup, err};
  struct gd_update update = {.adam = {.beta1 = (float)recipe->beta1,
                                      .beta2 = (float)recipe->beta2,
                                      .eps = (float)recipe->eps,
                                      .weight_decay = (float)recipe->weight_decay,
                                      .decoupled = recipe->optimizer == GD_OPTIMIZER_ADAMW},
                             .decay_all = recipe->decay_all,
                             /* 2000 steps between doublings: PyTorch's GradScaler. */
                             .control = {.max_norm = (float)recipe->max_grad_norm,
                                         .dynamic_scale = setup->precision == GD_PRECISION_FP16,
                                         .growth_interval = 2000}};
  gd_graph_init(graph);
  graph->trims = setup->method.compile;
  setup->model->family->build(setup->model, setup->micro_batch, graph);
  GD_TRY(gd_graph_check(graph, err));
  GD_TRY(run_passes(&ctx, graph, GD_STAGE_FORWARD));
  GD_TRY(gd_autodiff(graph, err));
  GD_TRY(run_passes(&ctx, graph, GD_STAGE_PASS));
  GD_TRY(gd_append_update(graph, &update, err));
  return run_passes(&ctx, graph, GD_STAGE_ALL);
}
