/*
 * Reverse-mode differentiation and the update program.
 *
 * The forward ops are walked backwards; each op's grad_<rule> appends ops that turn the gradient
 * of its outputs into contributions to its inputs. Contributions add up in the order they are
 * found. Each one to a parameter goes into its GRAD leaf at once, so that a weight gradient lives
 * for one op and not until the end of the pass; pass_accumulate.c saves even that.
 */
#include "ir/autodiff.h"

#include "ir/rules_int.h"

void gd_diff_contribute(struct gd_diff *d, gd_tensor_id to, gd_tensor_id grad) {
  gd_tensor_id key = key_of(d, to);
  if (grad == GD_NONE || !d->wanted[key])
    return;
  if (d->graph->tensors[key].role == GD_ROLE_PARAM)
    d->grad_sum[key] =
        gd_graph_op(d->graph, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){d->grad_sum[key], grad});
  else
    d->grad[key] = d->grad[key] == GD_NONE ? grad : gd_add(d->graph, d->grad[key], grad);
}

enum gd_status gd_grad_none(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)d;
  return unsupported(op, "it has no gradient rule", err);
}

/* --- the walk ------------------------------------------------------------------------------ */

static gd_tensor_id owned_leaf(struct gd_graph *graph, gd_tensor_id param, enum gd_role role,
                               const char *prefix) {
  if (graph->error.status != GD_OK)
    return GD_NONE;
  const struct gd_tensor owner = graph->tensors[param];
  char *name = gd_arena_printf(&graph->arena, "%s.%s", prefix, owner.name);
  gd_tensor_id id =
      gd_graph_leaf(graph, role, name ? name : prefix, GD_DTYPE_F32, owner.rank, owner.dims);
  if (id != GD_NONE) {
    graph->tensors[id].owner = param;
    graph->tensors[id].block = owner.block;
  }
  return id;
}

/* What depends on a parameter. */
static void find_wanted(struct gd_diff *d) {
  const struct gd_graph *graph = d->graph;
  for (gd_tensor_id id = 0; id < d->n_forward; id++)
    d->wanted[id] = graph->tensors[id].role == GD_ROLE_PARAM;
  for (gd_op_id op = 0; op < graph->n_ops; op++) {
    bool any = false;
    for (uint32_t i = 0; i < graph->ops[op].n_in; i++)
      any |= wants(d, graph->ops[op].in[i]);
    for (uint32_t i = 0; i < graph->ops[op].n_out; i++)
      d->wanted[graph->ops[op].out[i]] = any;
  }
}

static enum gd_status walk(struct gd_diff *d, struct gd_error *err) {
  static enum gd_status (*const rules[GD_OP_COUNT])(struct gd_diff *, const struct gd_op *,
                                                    struct gd_error *) = {
#define GD_OP(name, min, max, attr, doc, shape, grad, ...) [GD_OP_##name] = gd_grad_##grad,
#include "ir/ops.def"
#undef GD_OP
  };
  struct gd_graph *graph = d->graph;
  for (gd_op_id id = graph->n_ops; id-- > 0;) {
    const struct gd_op op = graph->ops[id]; /* a copy: the array grows while rules append */
    bool reached = op.out[0] == graph->loss;
    for (uint32_t i = 0; i < op.n_out; i++)
      reached |= d->grad[op.out[i]] != GD_NONE;
    if (!d->wanted[op.out[0]] || !reached)
      continue;
    graph->block = op.block;
    GD_TRY(rules[op.kind](d, &op, err));
    GD_TRY(gd_graph_check(graph, err));
  }
  graph->block = -1;
  return GD_OK;
}

enum gd_status gd_autodiff(struct gd_graph *graph, struct gd_error *err) {
  enum gd_status status = gd_graph_check(graph, err);
  struct gd_diff d = {.graph = graph};
  if (status != GD_OK)
    return status;
  GD_ASSERT(graph->loss != GD_NONE && !graph->backward_done);
  graph->block = -1;
  gd_graph_loss_scale(graph);
  graph->loss_sum =
      gd_graph_leaf(graph, GD_ROLE_STATE, "loss_sum", GD_DTYPE_F32, 1, (int64_t[]){1});
  if (graph->hits != GD_NONE)
    graph->hits_sum =
        gd_graph_leaf(graph, GD_ROLE_STATE, "hits_sum", GD_DTYPE_F32, 1, (int64_t[]){1});
  uint32_t before_leaves = graph->n_tensors;
  gd_tensor_id *grad_sum = gd_mem_alloc(before_leaves, sizeof *grad_sum);
  for (gd_tensor_id id = 0; grad_sum && id < before_leaves; id++)
    grad_sum[id] = graph->tensors[id].role == GD_ROLE_PARAM
                       ? owned_leaf(graph, id, GD_ROLE_GRAD, "grad")
                       : GD_NONE;

  d.n_forward = graph->n_tensors;
  d.grad_sum = grad_sum;
  d.grad = gd_mem_alloc(d.n_forward, sizeof *d.grad);
  d.wanted = gd_mem_alloc(d.n_forward, sizeof *d.wanted);
  if (!grad_sum || !d.grad || !d.wanted) {
    status = gd_nomem(err, "while differentiating");
    goto done;
  }
  for (gd_tensor_id id = 0; id < d.n_forward; id++)
    d.grad[id] = GD_NONE;
  find_wanted(&d);
  graph->phase = GD_PHASE_BACKWARD;
  status = walk(&d, err);
  if (status == GD_OK) {
    gd_graph_op(graph, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){graph->loss_sum, graph->loss});
    if (graph->hits != GD_NONE)
      gd_graph_op(graph, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){graph->hits_sum, graph->hits});
    status = gd_graph_check(graph, err);
  }
  graph->phase = GD_PHASE_FORWARD;
  if (status != GD_OK)
    goto done;
  graph->backward_done = true;
  struct gd_cost cost;
  gd_graph_cost(graph, &cost);
  graph->model_flops = cost.gemm_flops;
done:
  gd_mem_free(grad_sum);
  gd_mem_free(d.grad);
  gd_mem_free(d.wanted);
  return status;
}

/* --- the update program -------------------------------------------------------------------- */

/* Every parameter by itself, where no pass has said otherwise. */
static enum gd_status default_targets(struct gd_graph *graph, struct gd_error *err) {
  const uint32_t n = graph->n_tensors;
  uint32_t count = 0;
  for (gd_tensor_id id = 0; id < n; id++)
    count += graph->tensors[id].role == GD_ROLE_GRAD;
  struct gd_adam_target *targets = gd_arena_alloc(&graph->arena, count, sizeof *targets);
  gd_tensor_id *half_of = gd_mem_alloc(n, sizeof *half_of); /* by master */
  if (!targets || !half_of) {
    gd_mem_free(half_of);
    return gd_nomem(err, "while building the update program");
  }
  for (gd_tensor_id id = 0; id < n; id++)
    half_of[id] = GD_NONE;
  for (gd_tensor_id id = 0; id < n; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM_COMPUTE)
      half_of[graph->tensors[id].owner] = id;
  count = 0;
  for (gd_tensor_id id = 0; id < n; id++)
    if (graph->tensors[id].role == GD_ROLE_GRAD)
      targets[count++] = (struct gd_adam_target){.param = graph->tensors[id].owner,
                                                 .grad = id,
                                                 .compute = half_of[graph->tensors[id].owner],
                                                 .norm = id,
                                                 .clear = id,
                                                 .gather = GD_NONE};
  gd_mem_free(half_of);
  graph->targets = targets;
  graph->n_targets = count;
  return GD_OK;
}

/* The sums of squares behind step and loss scale: what control reads. Returns the step. */
static gd_tensor_id append_control(struct gd_graph *graph, const struct gd_attr_control *control,
                                   gd_tensor_id *sums) {
  uint32_t n = 2;
  sums[0] = graph->step;
  sums[1] = graph->loss_scale;
  for (uint32_t i = 0; i < graph->n_targets; i++)
    sums[n++] = gd_graph_op(graph, GD_OP_sum_squares, NULL, 1, &graph->targets[i].norm);
  if (graph->ranks > 1) { /* each rank has summed its own: all need the whole */
    gd_tensor_id own = gd_concat(graph, n - 2, sums + 2);
    union gd_attr attr = {.ranks = {graph->rank, graph->ranks}};
    sums[2] = gd_graph_op(graph, GD_OP_gather, &attr, 1, &own);
    n = 3;
  }
  return gd_graph_op(graph, GD_OP_control, &(union gd_attr){.control = *control}, n, sums);
}

static void append_all_gather(struct gd_graph *graph, gd_tensor_id flat) {
  union gd_attr attr = {.ranks = {graph->rank, graph->ranks}};
  if (flat != GD_NONE)
    gd_graph_op(graph, GD_OP_all_gather, &attr, 1, &flat);
}

static void append_adam(struct gd_graph *graph, const struct gd_adam_target *target,
                        const struct gd_update *update, gd_tensor_id step) {
  union gd_attr adam = {.adam = update->adam};
  if (graph->tensors[target->param].no_decay && !update->decay_all)
    adam.adam.weight_decay = 0;
  gd_tensor_id m = owned_leaf(graph, target->param, GD_ROLE_OPTIMIZER, "m");
  gd_tensor_id v = owned_leaf(graph, target->param, GD_ROLE_OPTIMIZER, "v");
  if (v == GD_NONE)
    return;
  graph->tensors[m].flat = graph->tensors[v].flat = graph->tensors[target->param].flat;
  gd_graph_op(graph, GD_OP_adam, &adam, target->compute == GD_NONE ? 7 : 8,
              (gd_tensor_id[]){target->param, target->grad, m, v, graph->factor, graph->lr, step,
                               target->compute});
  append_all_gather(graph, target->gather);
  gd_graph_op(graph, GD_OP_fill, &(union gd_attr){.fill = {0}}, 1, &target->clear);
}

enum gd_status gd_append_update(struct gd_graph *graph, const struct gd_update *update,
                                struct gd_error *err) {
  GD_TRY(gd_graph_check(graph, err));
  GD_ASSERT(graph->backward_done && graph->step == GD_NONE);
  if (graph->n_targets == 0)
    GD_TRY(default_targets(graph, err));
  gd_tensor_id *sums = gd_mem_alloc((size_t)graph->n_targets + 3, sizeof *sums);
  if (!sums)
    return gd_nomem(err, "while building the update program");
  graph->phase = GD_PHASE_UPDATE;
  graph->step = gd_graph_leaf(graph, GD_ROLE_STATE, "step", GD_DTYPE_F32, 1, (int64_t[]){2});
  graph->lr = gd_graph_leaf(graph, GD_ROLE_INPUT, "lr", GD_DTYPE_F32, 1, (int64_t[]){1});
  gd_tensor_id step = append_control(graph, &update->control, sums);
  gd_mem_free(sums);
  GD_TRY(gd_graph_check(graph, err));
  graph->norm = step + 2;
  graph->factor = step + 3;
  for (uint32_t i = 0; i < graph->n_targets; i++) {
    graph->block = graph->tensors[graph->targets[i].param].block;
    append_adam(graph, &graph->targets[i], update, step);
  }

  graph->phase = GD_PHASE_INIT;
  for (uint32_t i = 0; i < graph->n_targets; i++) {
    const struct gd_adam_target *target = &graph->targets[i];
    if (target->compute == GD_NONE)
      continue;
    gd_graph_op(graph, GD_OP_copy, NULL, 2, (gd_tensor_id[]){target->compute, target->param});
    append_all_gather(graph, target->gather);
  }
  graph->phase = GD_PHASE_FORWARD;
  graph->block = -1;
  return gd_graph_check(graph, err);
}
