/*
 * Counting what PyTorch would do; see stack_graph.h. What autograd keeps follows the formulas of
 * its operators: a GEMM saves its operands, a softmax its result, an activation and a norm their
 * input, dropout a mask of one byte. Autocast runs norms, softmax and the loss in fp32 and leaves
 * the sums between blocks in fp32, so those tensors take 4 bytes an element there; under DeepSpeed
 * the whole model is in 16 bits.
 */
#include "predict/stack_graph.h"

#include <string.h>

#include "ir/autodiff.h"
#include "pass/kernels.h"
#include "pass/pass.h"

/*
 * Bytes an element of the logits. Transformers makes them in 16 bits (2), copies all but the last
 * position (2), and the loss keeps its log-softmax; autocast widens that copy (4), the result (4)
 * and what the model returns (4); the backward pass has one gradient of them alive. Megatron-LM
 * widens them (4) and keeps the softmax (4).
 */
static const double logit_bytes_autocast = 2 + 2 + 4 + 4 + 4, logit_bytes_half = 2 + 2 + 2 + 2,
                    logit_bytes_fp32 = 4 + 4 + 4, logit_bytes_megatron = 2 + 4 + 4;

struct counting {
  const struct gd_model *model;
  enum gd_stack_mode mode;
  bool bits16; /* the recipe computes in 16 bits */
  struct gd_graph *graph;
  double *saved; /* by root tensor: bytes kept */
  double *masks; /* likewise: of dropout, in addition to the result that others save */
};

static bool is_language(const struct gd_model *model) {
  return !model->family->images;
}

/* --- the graph ----------------------------------------------------------------------------- */

/* Appendix F: no fused attention for RoBERTa; nothing is compiled for Mamba or under DeepSpeed. */
static bool fuses_attention(const struct gd_model *model) {
  return strcmp(model->family->model_type, "roberta") != 0;
}

bool gd_stack_compiles(const struct gd_model *model) {
  return strcmp(model->family->model_type, "mamba") != 0;
}

static enum gd_status build(const struct counting *c, int64_t micro_batch, struct gd_error *err) {
  struct gd_graph *graph = c->graph;
  struct gd_setup setup = {.model = c->model,
                           .precision = c->model->recipe.precision,
                           .micro_batch = micro_batch,
                           .ranks = 1};
  struct gd_pass_ctx ctx = {&setup, err};
  gd_graph_init(graph);
  c->model->family->build(c->model, micro_batch, graph);
  GD_TRY(gd_graph_check(graph, err));
  GD_TRY(gd_pass_precision(&ctx, graph));
  if (c->mode != GD_STACK_NAIVE) {
    if (fuses_attention(c->model) && c->mode != GD_STACK_MEGATRON)
      GD_TRY(gd_kernels_attention(graph, err));
    GD_TRY(gd_kernels_scan(graph, err));
  }
  return GD_OK;
}

/* --- what is kept -------------------------------------------------------------------------- */

static bool is_activation(const struct gd_graph *graph, gd_tensor_id id) {
  return graph->tensors[id].role == GD_ROLE_ACTIVATION;
}

/* element_bytes 0: those of its dtype. */
static void keep(struct counting *c, gd_tensor_id id, double element_bytes) {
  if (id == GD_NONE)
    return;
  gd_tensor_id root = gd_tensor_root(c->graph, id, NULL);
  if (!is_activation(c->graph, root))
    return;
  double bytes = element_bytes > 0 ? element_bytes * (double)gd_tensor_elements(c->graph, root)
                                   : (double)gd_tensor_bytes(c->graph, root);
  if (bytes > c->saved[root])
    c->saved[root] = bytes;
}

static void keep_inputs(struct counting *c, const struct gd_op *op) {
  for (uint32_t i = 0; i < op->n_in; i++)
    keep(c, op->in[i], 0);
}

/* Bytes of an element of what autocast computes in fp32; 0: as many as its dtype has. */
static double wide(const struct counting *c) {
  return c->bits16 && (c->mode == GD_STACK_NAIVE || c->mode == GD_STACK_COMPILED) ? 4 : 0;
}

static double logit_bytes(const struct counting *c) {
  if (!c->bits16)
    return logit_bytes_fp32;
  return c->mode == GD_STACK_HALF       ? logit_bytes_half
         : c->mode == GD_STACK_MEGATRON ? logit_bytes_megatron
                                        : logit_bytes_autocast;
}

/* mamba_ssm's kernel for the inside of a block keeps its input and its result, and makes what lies
   between again: in addition to them only the norm's input and what the first GEMM read remain. */
static bool keep_for_mamba(struct counting *c, const struct gd_op *op, bool *first) {
  if (op->block < 0 || c->mode == GD_STACK_NAIVE || gd_stack_compiles(c->model))
    return false;
  const struct gd_op_info *info = gd_op_info(op->kind);
  if (info->saves == GD_SAVES_INPUT_FP32) { /* the norm */
    keep(c, op->in[0], 4);                  /* residual_in_fp32 */
    *first = true;
  } else if (info->work == GD_WORK_MATMUL && *first) {
    keep_inputs(c, op);
    keep(c, op->out[0], 0);
    *first = false;
  } else if (info->work == GD_WORK_SCAN) {
    keep(c, op->out[0], 0);
  }
  return true;
}

static void keep_for(struct counting *c, const struct gd_op *op) {
  switch (gd_op_info(op->kind)->saves) {
  case GD_SAVES_NOTHING: return;
  case GD_SAVES_INPUT: keep(c, op->in[0], 0); return;
  case GD_SAVES_INPUTS: keep_inputs(c, op); return;
  case GD_SAVES_INPUTS_AND_OUTPUT:
    keep_inputs(c, op);
    keep(c, op->out[0], 0);
    return;
  case GD_SAVES_INPUT_FP32: keep(c, op->in[0], wide(c)); return;
  case GD_SAVES_OUTPUT_FP32: /* and its 16-bit copy for the GEMM that follows */
    keep(c, op->out[0], wide(c) > 0 ? wide(c) + 2 : 0);
    return;
  case GD_SAVES_MASK:
    c->masks[gd_tensor_root(c->graph, op->out[0], NULL)] =
        op->attr.dropout.per_sample /* no other op has a mask */
            ? 0                     /* a number a sample */
            : (double)gd_tensor_elements(c->graph, op->out[0]);
    return;
  case GD_SAVES_LOGITS:
    if (is_language(c->model))
      keep(c, op->in[0], logit_bytes(c));
    return;
  }
}

static enum gd_status count_saved(struct counting *c, struct gd_stack_sums *sums,
                                  struct gd_error *err) {
  struct gd_graph *graph = c->graph;
  int32_t blocks = gd_graph_blocks(graph);
  c->saved = gd_mem_alloc(2 * (size_t)graph->n_tensors + 1, sizeof *c->saved);
  if (!c->saved)
    return gd_nomem(err, "while counting what autograd keeps");
  c->masks = c->saved + graph->n_tensors;
  bool first = false;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (!keep_for_mamba(c, &graph->ops[id], &first))
      keep_for(c, &graph->ops[id]);
  for (int32_t block = -1; block < blocks; block++) {
    double bytes = 0;
    for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
      if (graph->tensors[id].block == block)
        bytes += c->saved[id] + c->masks[id];
    sums->saved_bytes += bytes;
    if (block < 0)
      sums->outside_bytes = bytes;
    else if (bytes > sums->block_saved_bytes)
      sums->block_saved_bytes = bytes;
  }
  gd_mem_free(c->saved);
  return GD_OK;
}

/* What a block reads of those before it: the input that checkpointing keeps. */
static void count_ckpt(const struct counting *c, struct gd_stack_sums *sums) {
  const struct gd_graph *graph = c->graph;
  int32_t block = -1;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    if (op->block < 0 || op->block == block)
      continue;
    block = op->block; /* its first op reads the input */
    double element =
        wide(c) > 0 ? wide(c) : (double)gd_dtype_bytes(graph->tensors[op->in[0]].dtype);
    sums->ckpt_bytes += element * (double)gd_tensor_elements(graph, op->in[0]);
  }
}

/* --- what is computed ---------------------------------------------------------------------- */

int64_t gd_stack_scores(const struct gd_graph *graph) {
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (gd_op_info(graph->ops[id].kind)->work == GD_WORK_SOFTMAX)
      return gd_tensor_elements(graph, graph->ops[id].out[0]);
  return 0;
}

bool gd_stack_works_on_scores(const struct gd_graph *graph, const struct gd_op *op,
                              int64_t scores) {
  if (op->n_out == 0 || scores == 0)
    return false;
  const struct gd_tensor *t = &graph->tensors[op->out[0]];
  return t->rank >= 3 && t->dims[t->rank - 1] == t->dims[t->rank - 2] &&
         gd_tensor_elements(graph, op->out[0]) == scores;
}

static void count_phases(const struct gd_graph *graph, int64_t scores, struct gd_stack_sums *sums) {
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    const struct gd_op_info *info = gd_op_info(op->kind);
    struct gd_cost cost;
    if (info->op_class == GD_CLASS_VIEW || gd_phase_program(op->phase) != GD_PROGRAM_MICRO_STEP)
      continue;
    struct gd_stack_phase *phase = op->phase == GD_PHASE_FORWARD ? &sums->forward : &sums->backward;
    gd_op_cost(graph, id, &cost);
    double bytes = cost.read_bytes + cost.write_bytes;
    bool attention = info->work == GD_WORK_ATTENTION || info->work == GD_WORK_ATTENTION_GRAD;
    bool gemm = info->flops_per_element == GD_FLOPS_GEMM && !attention &&
                info->work != GD_WORK_FILTER; /* filters are bound by memory */
    phase->kernels++;
    if (attention)
      phase->attention_flops += cost.executed_flops;
    else if (gemm)
      phase->gemm_flops += cost.executed_flops;
    if (gemm)
      phase->gemm_bytes += bytes;
    else if (gd_stack_works_on_scores(graph, op, scores))
      phase->score_bytes += bytes;
    else
      phase->other_bytes += bytes;
  }
}

static void count_parameters(const struct gd_graph *graph, struct gd_stack_graph *result) {
  const int32_t blocks = gd_graph_blocks(graph);
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    result->parameter_tensors += graph->tensors[id].role == GD_ROLE_PARAM;
  result->parameters = (double)gd_graph_parameters(graph);
  result->blocks = blocks;
  for (int32_t block = 0; block < blocks; block++) {
    double parameters = 0;
    for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
      if (graph->tensors[id].role == GD_ROLE_PARAM && graph->tensors[id].block == block)
        parameters += (double)gd_tensor_elements(graph, id);
    if (parameters > result->block_parameters)
      result->block_parameters = parameters;
  }
}

static enum gd_status count(struct counting *c, int64_t micro_batch, struct gd_stack_sums *sums,
                            struct gd_stack_graph *result, struct gd_error *err) {
  struct gd_setup setup = {.model = c->model, .micro_batch = micro_batch, .ranks = 1};
  struct gd_pass_ctx ctx = {&setup, err};
  GD_TRY(build(c, micro_batch, err));
  GD_TRY(count_saved(c, sums, err));
  count_ckpt(c, sums);
  count_parameters(c->graph, result);
  GD_TRY(gd_autodiff(c->graph, err));
  result->model_flops = c->graph->model_flops / (double)micro_batch;
  int64_t scores = gd_stack_scores(c->graph);
  if (c->mode == GD_STACK_COMPILED && gd_stack_compiles(c->model))
    GD_TRY(gd_pass_compile(&ctx, c->graph));
  count_phases(c->graph, scores, sums);
  return GD_OK;
}

enum gd_status gd_stack_graph_make(const struct gd_model *model, enum gd_stack_mode mode,
                                   struct gd_stack_graph *result, struct gd_error *err) {
  *result = (struct gd_stack_graph){.fp32 = model->recipe.precision == GD_PRECISION_FP32};
  for (int64_t micro_batch = 1; micro_batch <= 2; micro_batch++) {
    struct gd_graph graph = {0};
    struct counting c = {.model = model,
                         .mode = mode,
                         .bits16 = model->recipe.precision != GD_PRECISION_FP32,
                         .graph = &graph};
    struct gd_stack_graph scratch = {0};
    enum gd_status status = count(&c, micro_batch, micro_batch == 1 ? &result->one : &result->two,
                                  micro_batch == 1 ? result : &scratch, err);
    gd_graph_deinit(&graph);
    GD_TRY(status);
  }
  return GD_OK;
}

void gd_stack_graph_at(const struct gd_stack_graph *graph, double micro_batch,
                       struct gd_stack_sums *sums) {
  /* The struct is doubles alone. */
  const double *one = (const double *)&graph->one, *two = (const double *)&graph->two;
  double *out = (double *)sums;
  for (size_t i = 0; i < sizeof *sums / sizeof *out; i++)
    out[i] = one[i] + (micro_batch - 1) * (two[i] - one[i]);
}
