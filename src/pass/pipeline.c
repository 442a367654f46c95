/*
 * The pipeline: from a model to the verified graph that is planned, run and simulated.
 */
#include <string.h>

#include "base/clock.h"
#include "codegen/codegen.h"
#include "ir/autodiff.h"
#include "pass/graph_cache.h"
#include "pass/pass.h"

enum gd_status gd_pass_trim(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  (void)ctx;
  graph->trims = true;
  return GD_OK;
}

static const struct gd_pass passes[] = {
    {"trim", gd_pass_trim, GD_STAGE_BUILD, .shared = true, .needs = "",
     .doc = "a last position that predicts nothing is left out: 2,048 of 2,049"},
    {"precision", gd_pass_precision, GD_STAGE_FORWARD, .shared = true, .always = true, .needs = "",
     .stays = "it makes the precision that the trial names; choose --precision fp32 instead",
     .doc = "16-bit GEMMs with fp32 master weights"},
    {"kernels", gd_pass_kernels, GD_STAGE_FORWARD, .shared = true, .needs = "",
     .doc = "fused attention, selective scan, linear + cross-entropy"},
    {"recompute", gd_pass_recompute, GD_STAGE_MICRO_STEP, .shared = true, .needs = "",
     .doc = "activations that are cheap to recompute are not saved"},
    {"compile", gd_pass_compile, GD_STAGE_MICRO_STEP, .shared = true, .needs = "",
     .doc = "generated kernels for clusters of small ops"},
    {"tf32", gd_pass_tf32, GD_STAGE_MICRO_STEP, .shared = true, .needs = "",
     .doc = "fp32 GEMMs round their operands to TF32, where a device has it"},
    {"ckpt", gd_pass_ckpt, GD_STAGE_MICRO_STEP, .shared = true, .preserves_numerics = true,
     .needs = "", .doc = "a layer's activations are recomputed in the backward pass"},
    {"shard", gd_pass_shard, GD_STAGE_MICRO_STEP, .always = true, .needs = "",
     .doc = "what ranks exchange: data parallel, ZeRO, FSDP"},
    {"accumulate", gd_pass_accumulate, GD_STAGE_MICRO_STEP, .needs = "",
     .doc = "ops add gradients to their leaves themselves"},
    {"offload", gd_pass_offload, GD_STAGE_ALL, .preserves_numerics = true, .needs = "shard",
     .doc = "state in host memory, Adam on the CPU"},
};
enum { PASSES = sizeof passes / sizeof *passes };

const struct gd_pass *gd_passes(int *count) {
  *count = PASSES;
  return passes;
}

int gd_pass_find(const char *name, size_t length) {
  for (int i = 0; i < PASSES; i++)
    if (strlen(passes[i].name) == length && memcmp(passes[i].name, name, length) == 0)
      return i;
  return -1;
}

void gd_pass_list(struct gd_strbuf *out) {
  for (int i = 0; i < PASSES; i++)
    gd_strbuf_printf(out, "%s%s", i ? ", " : "", passes[i].name);
}

/* --- what a setup takes from a device -------------------------------------------------------- */

void gd_setup_device(struct gd_setup *setup, const struct gd_caps *caps) {
  struct gd_error why = {0};
  setup->tf32 = caps->tf32;
  setup->loss_chunk_bytes = caps->loss_chunk_bytes;
  setup->no_compiler = setup->method.compile && !gd_codegen_works(caps, &why);
}

/* The precision itself, the other one of 16 bits, or fp32: the first that the device has. */
static enum gd_precision nearest_precision(const struct gd_caps *caps,
                                           enum gd_precision precision) {
  enum gd_precision other = precision == GD_PRECISION_FP16 ? GD_PRECISION_BF16 : GD_PRECISION_FP16;
  return caps->dtype[gd_precision_dtype(precision)] ? precision
         : caps->dtype[gd_precision_dtype(other)]   ? other
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

/* --- building ------------------------------------------------------------------------------- */

#if defined __SANITIZE_ADDRESS__
enum { VERIFIES_EACH = true };
#else
enum { VERIFIES_EACH = false };
#endif

struct building {
  struct gd_pass_ctx ctx;
  struct gd_graph *graph;
  int64_t step_ns; /* when the step that runs now began; only where setup->watch is set */
};

static void end_step(struct building *b, const struct gd_pass *pass) {
  const struct gd_setup *setup = b->ctx.setup;
  if (!setup->watch)
    return;
  setup->watch(setup->watch_user, pass, b->graph, 1e-9 * (double)(gd_clock_ns() - b->step_ns));
  b->step_ns = gd_clock_ns();
}

/* The passes of a stage that are shared, or those that are not. */
static enum gd_status run_passes(struct building *b, enum gd_stage stage, bool shared) {
  const struct gd_setup *setup = b->ctx.setup;
  for (int i = 0; i < PASSES; i++) {
    if (passes[i].stage != stage || passes[i].shared != shared || !gd_pass_is_on(&setup->method, i))
      continue;
    GD_TRY(passes[i].run(&b->ctx, b->graph));
    end_step(b, &passes[i]);
    if (setup->verify_each || VERIFIES_EACH)
      GD_TRY(gd_stage_verify(b->graph, stage, b->ctx.err));
  }
  return GD_OK;
}

static enum gd_status build_forward(struct building *b) {
  const struct gd_setup *setup = b->ctx.setup;
  gd_graph_init(b->graph);
  b->graph->no_dropout = setup->no_dropout;
  b->step_ns = setup->watch ? gd_clock_ns() : 0;
  GD_TRY(run_passes(b, GD_STAGE_BUILD, true));
  setup->model->family->build(setup->model, setup->micro_batch, b->graph);
  GD_TRY(gd_graph_check(b->graph, b->ctx.err));
  end_step(b, NULL);
  GD_TRY(run_passes(b, GD_STAGE_FORWARD, true));
  return gd_stage_verify(b->graph, GD_STAGE_FORWARD, b->ctx.err);
}

enum gd_status gd_pipeline_build_forward(const struct gd_setup *setup, struct gd_graph *graph,
                                         struct gd_error *err) {
  return build_forward(&(struct building){.ctx = {setup, err}, .graph = graph});
}

/* What methods have in common: the forward graph, autodiff, and the shared passes. */
static enum gd_status build_shared(const struct gd_setup *setup, struct gd_graph *graph,
                                   struct gd_error *err) {
  struct building b = {.ctx = {setup, err}, .graph = graph};
  GD_TRY(build_forward(&b));
  GD_TRY(gd_autodiff(graph, err));
  end_step(&b, NULL);
  return run_passes(&b, GD_STAGE_MICRO_STEP, true);
}

static uint32_t shared_passes(const struct gd_method *method) {
  uint32_t bits = 0;
  for (int i = 0; i < PASSES; i++)
    if (passes[i].shared && gd_pass_is_on(method, i))
      bits |= 1u << i;
  return bits;
}

/* Gradients of several ranks are summed by a pass, which therefore must run. */
static enum gd_status check_ranks(const struct gd_setup *setup, struct gd_error *err) {
  int shard = gd_pass_find("shard", strlen("shard"));
  if (setup->ranks > 1 && !gd_pass_is_on(&setup->method, shard))
    return gd_fail(err, GD_BAD_INPUT,
                   "pass shard cannot be switched off on %d ranks: it sums their gradients",
                   setup->ranks);
  return GD_OK;
}

enum gd_status gd_pipeline_least(const struct gd_setup *setup, int64_t last_blocks,
                                 struct gd_graph_least *least, struct gd_error *err) {
  return gd_graph_cache_least(setup, shared_passes(&setup->method), build_shared, last_blocks,
                              least, err);
}

void gd_pipeline_note(const struct gd_setup *setup, int64_t rest_bytes) {
  gd_graph_cache_note(setup, shared_passes(&setup->method), rest_bytes);
}

enum gd_status gd_pipeline_build(const struct gd_setup *setup, struct gd_graph *graph,
                                 struct gd_error *err) {
  const struct gd_recipe *recipe = &setup->model->recipe;
  struct building b = {.ctx = {setup, err}, .graph = graph};
  struct gd_update update = {.adam = {.beta1 = (float)recipe->beta1,
                                      .beta2 = (float)recipe->beta2,
                                      .eps = (float)recipe->eps,
                                      .weight_decay = (float)recipe->weight_decay,
                                      .decoupled = gd_recipe_decouples(recipe)},
                             .decay_all = recipe->decay_all,
                             /* 2000 steps between doublings: PyTorch's GradScaler. */
                             .control = {.max_norm = (float)recipe->max_grad_norm,
                                         .dynamic_scale = setup->precision == GD_PRECISION_FP16,
                                         .growth_interval = 2000}};
  *graph = (struct gd_graph){0};
  GD_TRY(check_ranks(setup, err));
  if (setup->cache && !setup->watch)
    GD_TRY(gd_graph_cache_get(setup, shared_passes(&setup->method), build_shared, graph, err));
  else
    GD_TRY(build_shared(setup, graph, err));
  b.step_ns = setup->watch ? gd_clock_ns() : 0;
  GD_TRY(run_passes(&b, GD_STAGE_MICRO_STEP, false));
  GD_TRY(gd_append_update(graph, &update, err));
  end_step(&b, NULL);
  GD_TRY(run_passes(&b, GD_STAGE_ALL, false));
  return gd_stage_verify(graph, GD_STAGE_ALL, err);
}
