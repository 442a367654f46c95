/*
 * The paper's stack: its memory, and the cells of the paper's tables; see stack_paper.h. Its time
 * is stack_paper_time.c, the fit stack_fit.c.
 *
 * Memory is counted, not fitted: PyTorch keeps 16 bytes a parameter and autocast 2 more, DeepSpeed
 * keeps the model in 16 bits and the rest in shares; activations are those of stack_graph.c.
 */
#include "predict/stack_paper_int.h"

#include <math.h>
#include <string.h>

/* --- what is known of the stack, and not fitted ---------------------------------------------- */

static const double context_bytes = 0.9 * 1024 * 1024 * 1024; /* CUDA, cuBLAS, NCCL */
static const double allocator_overhead = 1.02;                /* of activations, by rounding */
static const double zero3_live_parameters = 1e9; /* stage3_max_live_parameters of DeepSpeed */

/* --- models and methods -------------------------------------------------------------------- */

enum gd_status gd_stack_model_make(struct gd_stack_model *model, struct gd_error *err) {
  for (int mode = 0; mode < GD_STACK_MODE_COUNT; mode++)
    GD_TRY(gd_stack_graph_make(&model->model, (enum gd_stack_mode)mode, &model->graphs[mode], err));
  return GD_OK;
}

enum gd_stack_mode gd_stack_mode(const struct gd_method *method) {
  bool plain = !method->ckpt && method->sharding == GD_SHARDING_NONE;
  return gd_method_is_naive(method)           ? (plain ? GD_STACK_NAIVE : GD_STACK_MEGATRON)
         : gd_stack_is_zero(method->sharding) ? GD_STACK_HALF
                                              : GD_STACK_COMPILED;
}

/* --- memory -------------------------------------------------------------------------------- */

/* fp32 weights, gradients and moments, the 16-bit copies that autocast caches, and the buckets into
   which data parallel copies gradients; at the update, the temporaries of Adam instead. */
static double replicated_bytes(const struct gd_stack_graph *graph, int count, double activations) {
  double p = graph->parameters;
  double micro_step = (graph->fp32 ? 0 : 2 * p) + (count > 1 ? 4 * p : 0) + activations;
  return 16 * p + fmax(micro_step, 4 * p);
}

static void zero_bytes(const struct gd_stack_graph *graph, const struct gd_method *method,
                       int count, struct gd_stack_bytes *bytes) {
  double p = graph->parameters, own = p / count, width = gd_stack_compute_bytes(graph);
  double optimizer = graph->fp32 ? 8 : 12; /* with fp32 masters */
  bool gradients = gd_shards_gradients(method->sharding);
  if (gd_shards_parameters(method->sharding)) {
    double live = fmin(p, zero3_live_parameters + 2 * graph->block_parameters);
    bytes->device = width * live + (method->offload ? 0 : 2 * width * own);
    bytes->host = method->offload ? 2 * width * own : 0;
  } else {
    bytes->device = width * p + width * (gradients ? own : p);
  }
  if (method->offload)
    bytes->host += (optimizer + 4) * own; /* and gradients in fp32 for the CPU */
  else
    bytes->device += optimizer * own;
}

static void fsdp_bytes(const struct gd_stack_graph *graph, const struct gd_method *method,
                       int count, struct gd_stack_bytes *bytes) {
  double p = graph->parameters, own = p / count, width = gd_stack_compute_bytes(graph);
  double outside = fmax(0, p - graph->blocks * graph->block_parameters);
  double gathered =
      method->sharding == GD_SHARDING_FSDP2 ? p : 3 * graph->block_parameters + outside;
  bytes->device = width * gathered + 8 * graph->block_parameters;
  *(method->offload ? &bytes->host : &bytes->device) += 16 * own;
}

void gd_stack_bytes(const struct gd_stack_graph *graph, const struct gd_method *method, int count,
                    double micro_batch, struct gd_stack_bytes *bytes) {
  struct gd_stack_sums sums;
  gd_stack_graph_at(graph, micro_batch, &sums);
  /* Under checkpointing the logits are gone when a block is computed again. */
  double activations = method->ckpt
                           ? sums.ckpt_bytes + fmax(sums.block_saved_bytes, sums.outside_bytes)
                           : sums.saved_bytes;
  activations *= allocator_overhead;
  *bytes = (struct gd_stack_bytes){0};
  if (method->sharding == GD_SHARDING_NONE)
    bytes->device = replicated_bytes(graph, count, activations);
  else if (gd_stack_is_zero(method->sharding))
    zero_bytes(graph, method, count, bytes);
  else
    fsdp_bytes(graph, method, count, bytes);
  if (method->sharding != GD_SHARDING_NONE)
    bytes->device += activations;
  bytes->device += context_bytes;
}

static bool has_room(const struct gd_stack_bytes *bytes, const struct gd_target *target,
                     const struct gd_stack_limits *limits) {
  double device =
      limits->device_bytes > 0 ? limits->device_bytes : (double)target->gpu->memory_bytes;
  double host = limits->host_bytes > 0 ? limits->host_bytes : (double)target->host_memory_bytes;
  return bytes->device <= device && bytes->host <= host;
}

void gd_stack_point(const struct gd_stack_model *model, const struct gd_method *method,
                    const struct gd_target *target, int64_t batch,
                    const struct gd_stack_limits *limits, struct gd_stack_point *point) {
  static const struct gd_stack_limits none = {0};
  limits = limits ? limits : &none;
  *point = (struct gd_stack_point){.method = *method, .mode = gd_stack_mode(method)};
  const struct gd_stack_graph *graph = &model->graphs[point->mode];
  int64_t own = batch / target->count;
  int64_t size = limits->micro_batch > 0 ? limits->micro_batch : 1;
  while (size <= own) {
    struct gd_stack_bytes bytes;
    gd_stack_bytes(graph, method, target->count, (double)size, &bytes);
    if (point->micro_batch == 0)
      point->bytes = bytes; /* where nothing fits: what the least would take */
    if (!has_room(&bytes, target, limits))
      break;
    point->micro_batch = size;
    point->bytes = bytes;
    if (limits->micro_batch > 0)
      break;
    size += limits->any_size ? 1 : size;
  }
  if (point->micro_batch == 0)
    return;
  struct gd_stack_sums sums;
  gd_stack_graph_at(graph, (double)point->micro_batch, &sums);
  point->forward = sums.forward;
  point->backward = sums.backward;
  point->accumulation = ceil((double)own / (double)point->micro_batch - 1e-9);
}

/* --- the paper's cells --------------------------------------------------------------------- */

static void fill_points(struct gd_stack_cell *cell) {
  struct gd_method methods[GD_METHODS_MOST] = {{0}};
  int n = 1;
  if (cell->paper->table == GD_PAPER_OPTIMAL)
    n = gd_method_space(cell->paper->count > 1, methods);
  for (int i = 0; i < n; i++)
    gd_stack_point(cell->model, &methods[i], &cell->target, cell->model->model.recipe.batch, NULL,
                   &cell->points[i]);
  cell->n_points = n;
}

static void find_setting(const struct gd_paper *paper, struct gd_stack_cell *cell) {
  const struct gd_paper_setting *setting =
      gd_paper_find_setting(paper, cell->paper->model, cell->paper->gpu, cell->paper->count);
  if (cell->paper->table == GD_PAPER_NAIVE) {
    cell->setting = &cell->points[0];
    return;
  }
  for (int i = 0; i < cell->n_points && setting; i++) {
    const struct gd_method *method = &cell->points[i].method;
    if (method->ckpt == setting->checkpointing && method->offload == setting->offloading &&
        gd_method_is_naive(method) != setting->free_lunch &&
        strcmp(gd_sharding_name(method->sharding), setting->sharding) == 0)
      cell->setting = &cell->points[i];
  }
}

static void classify(struct gd_stack_cell *cell) {
  const struct gd_recipe *recipe = &cell->model->model.recipe;
  bool naive = cell->paper->table == GD_PAPER_NAIVE;
  double peak = gd_stack_peak(cell->target.gpu, recipe->precision, naive) * cell->paper->count;
  double flops = cell->model->graphs[GD_STACK_NAIVE].model_flops * (double)recipe->batch *
                 (double)recipe->steps;
  if (cell->paper->days > 0)
    cell->share = flops / (peak * 86400 * cell->paper->days);
  cell->group = cell->paper->days <= 0 ? GD_STACK_INFEASIBLE
                : cell->share > 1      ? GD_STACK_IMPOSSIBLE
                : cell->share > 0.8    ? GD_STACK_APART
                                       : GD_STACK_FITTED;
}

static enum gd_status fill_cells(struct gd_stack *stack, struct gd_error *err) {
  for (int i = 0; i < stack->n_cells; i++) {
    struct gd_stack_cell *cell = &stack->cells[i];
    cell->paper = &stack->paper.days[i];
    for (int m = 0; m < stack->n_models; m++)
      if (strcmp(stack->paper.recipes[m].model, cell->paper->model) == 0) {
        cell->model = &stack->models[m];
        cell->family = stack->paper.recipes[m].family;
      }
    GD_ASSERT(cell->model); /* gd_paper_load has checked it */
    GD_TRY(gd_hw_target(&stack->hw, cell->paper->gpu, cell->paper->count, 1, NULL, NULL,
                        &cell->target, err));
    classify(cell);
    fill_points(cell);
    find_setting(&stack->paper, cell);
  }
  return GD_OK;
}

static enum gd_status load(struct gd_stack *stack, struct gd_error *err) {
  GD_TRY(gd_paper_load(&stack->paper, err));
  GD_TRY(gd_hw_load(&stack->hw, err));
  stack->n_models = stack->paper.n_recipes;
  stack->n_cells = stack->paper.n_days;
  stack->models = gd_arena_alloc(&stack->arena, (size_t)stack->n_models, sizeof *stack->models);
  stack->cells = gd_arena_alloc(&stack->arena, (size_t)stack->n_cells, sizeof *stack->cells);
  if (!stack->models || !stack->cells)
    return gd_nomem(err, "while predicting the paper's tables");
  for (int i = 0; i < stack->n_models; i++) {
    GD_TRY(gd_model_load(stack->paper.recipes[i].model, &stack->models[i].model, err));
    GD_TRY(gd_stack_model_make(&stack->models[i], err));
  }
  return fill_cells(stack, err);
}

enum gd_status gd_stack_load(struct gd_stack *stack, struct gd_error *err) {
  *stack = (struct gd_stack){0};
  enum gd_status status = load(stack, err);
  if (status != GD_OK)
    gd_stack_deinit(stack);
  return status;
}

void gd_stack_deinit(struct gd_stack *stack) {
  gd_paper_deinit(&stack->paper);
  gd_hw_deinit(&stack->hw);
  gd_arena_deinit(&stack->arena);
  *stack = (struct gd_stack){0};
}

bool gd_stack_leaves_out(const struct gd_stack_leave *leave, const struct gd_stack_cell *cell) {
  return leave && ((leave->gpu && strcmp(leave->gpu, cell->paper->gpu) == 0) ||
                   (leave->family && strcmp(leave->family, cell->family) == 0) ||
                   (leave->model && strcmp(leave->model, cell->paper->model) == 0));
}

void gd_stack_cell_predict(const struct gd_stack_cell *cell, const struct gd_stack_fit *fit,
                           struct gd_stack_answer *answer) {
  *answer = (struct gd_stack_answer){0};
  for (int i = 0; i < cell->n_points; i++) {
    const struct gd_stack_point *point = &cell->points[i];
    if (point->micro_batch == 0)
      continue;
    double step_s = gd_stack_step_s(cell->model, point, &cell->target, fit);
    /* Of two that are as fast, the one with fewer parts, which comes first. */
    if (!answer->feasible || step_s < 0.999 * answer->step_s)
      *answer = (struct gd_stack_answer){.feasible = true, .point = point, .step_s = step_s};
  }
  answer->days = answer->step_s * (double)cell->model->model.recipe.steps / 86400;
}

double gd_stack_cell_regret(const struct gd_stack_cell *cell, const struct gd_stack_fit *fit) {
  struct gd_stack_answer answer;
  gd_stack_cell_predict(cell, fit, &answer);
  if (!answer.feasible || !cell->setting || cell->setting->micro_batch == 0)
    return -1;
  return gd_stack_step_s(cell->model, cell->setting, &cell->target, fit) / answer.step_s - 1;
}

double gd_stack_cell_error(const struct gd_stack_cell *cell, double days) {
  double off = fabs(days - cell->paper->days);
  if (cell->paper->days < 10)
    off = fmax(0, off - 0.5);
  return off / cell->paper->days;
}
