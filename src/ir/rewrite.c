/*
 * Rewriting a graph: walks over the old list of ops and builds a new one, of ops that stay and of
 * ops that replace others. Passes that fuse ops use it; it knows no op.
 *
 * While it runs, old tensors keep their ids and still name the old op that produced them; what is
 * built meanwhile gets ids after theirs. The end renumbers: leaves in their old order, then the
 * outputs of the ops in their new order. Tensors that nothing produces any more are removed.
 */
#include "ir/graph.h"

static enum gd_status no_memory(struct gd_graph *graph) {
  return gd_nomem(&graph->error, "while rewriting a graph of %u ops", graph->n_ops);
}

/* The tensors that the executor or the host reads, besides what ops read. */
enum { NAMED = 14 };

static void named_tensors(struct gd_graph *graph, gd_tensor_id *named[NAMED]) {
  gd_tensor_id *all[NAMED] = {
      &graph->ids,  &graph->pixels,       &graph->labels, &graph->loss_weight, &graph->loss_scale,
      &graph->step, &graph->dropout_seed, &graph->lr,     &graph->loss,        &graph->loss_sum,
      &graph->norm, &graph->factor,       &graph->hits,   &graph->hits_sum};
  for (int i = 0; i < NAMED; i++)
    named[i] = all[i];
}

static void count_readers(struct gd_graph_rewrite *rewrite) {
  gd_tensor_id *named[NAMED];
  for (gd_tensor_id id = 0; id < rewrite->n_tensors; id++)
    rewrite->reader[id] = GD_NONE;
  for (gd_op_id id = 0; id < rewrite->n_ops; id++)
    for (uint32_t i = 0; i < rewrite->ops[id].n_in; i++) {
      gd_tensor_id in = rewrite->ops[id].in[i];
      if (in == GD_NONE)
        continue;
      rewrite->n_readers[in]++;
      rewrite->reader[in] = id;
    }
  named_tensors(rewrite->graph, named);
  for (int i = 0; i < NAMED; i++)
    if (*named[i] != GD_NONE)
      rewrite->n_readers[*named[i]]++;
}

enum gd_status gd_graph_rewrite_begin(struct gd_graph_rewrite *rewrite, struct gd_graph *graph,
                                      struct gd_error *err) {
  GD_TRY(gd_graph_check(graph, err));
  *rewrite = (struct gd_graph_rewrite){
      .graph = graph,
      .n_ops = graph->n_ops,
      .n_tensors = graph->n_tensors,
      .block = graph->block,
      .phase = graph->phase,
      .n_readers = gd_mem_alloc(graph->n_tensors, sizeof *rewrite->n_readers),
      .reader = gd_mem_alloc(graph->n_tensors, sizeof *rewrite->reader),
      .instead = gd_mem_alloc(graph->n_tensors, sizeof *rewrite->instead),
      .place = gd_mem_alloc(graph->n_ops, sizeof *rewrite->place)};
  uint32_t room = graph->n_ops + graph->n_ops / 8 + 1; /* most passes keep about as many */
  struct gd_op *ops = gd_mem_alloc(room, sizeof *ops);
  if (!rewrite->n_readers || !rewrite->reader || !rewrite->instead || !rewrite->place || !ops) {
    gd_mem_free(ops);
    gd_mem_free(rewrite->n_readers);
    gd_mem_free(rewrite->reader);
    gd_mem_free(rewrite->instead);
    gd_mem_free(rewrite->place);
    return gd_nomem(err, "while rewriting a graph");
  }
  rewrite->ops = graph->ops;
  graph->ops = ops;
  graph->n_ops = 0;
  graph->ops_capacity = room;
  count_readers(rewrite);
  for (gd_tensor_id id = 0; id < rewrite->n_tensors; id++)
    rewrite->instead[id] = GD_NONE;
  for (gd_op_id id = 0; id < rewrite->n_ops; id++)
    rewrite->place[id] = GD_NONE;
  return GD_OK;
}

void gd_graph_rewrite_enter(struct gd_graph_rewrite *rewrite, gd_op_id id) {
  rewrite->graph->block = rewrite->ops[id].block;
  rewrite->graph->phase = rewrite->ops[id].phase;
}

void gd_graph_rewrite_keep(struct gd_graph_rewrite *rewrite, gd_op_id id) {
  struct gd_graph *graph = rewrite->graph;
  if (graph->error.status != GD_OK)
    return;
  const struct gd_op *old = &rewrite->ops[id];
  GD_ASSERT(rewrite->place[id] == GD_NONE);
  gd_tensor_id *in = gd_arena_alloc(&graph->arena, old->n_in, sizeof *in);
  if (!in || !gd_vec_reserve((void **)&graph->ops, &graph->ops_capacity, graph->n_ops + 1,
                             sizeof *graph->ops)) {
    no_memory(graph);
    return;
  }
  for (uint32_t i = 0; i < old->n_in; i++)
    in[i] = gd_graph_rewrite_now(rewrite, old->in[i]);
  rewrite->place[id] = graph->n_ops;
  graph->ops[graph->n_ops] = *old;
  graph->ops[graph->n_ops++].in = in;
}

void gd_graph_rewrite_drop(struct gd_graph_rewrite *rewrite, gd_op_id id) {
  if (rewrite->graph->error.status != GD_OK)
    return;
  GD_ASSERT(rewrite->place[id] != GD_NONE);
  rewrite->graph->ops[rewrite->place[id]].kind = GD_OP_COUNT;
}

void gd_graph_rewrite_replace(struct gd_graph_rewrite *rewrite, gd_tensor_id old, gd_tensor_id by) {
  const struct gd_graph *graph = rewrite->graph;
  if (graph->error.status != GD_OK)
    return;
  GD_ASSERT(old < rewrite->n_tensors && by < graph->n_tensors && old != by);
  GD_ASSERT(gd_tensor_elements(graph, old) == gd_tensor_elements(graph, by));
  rewrite->instead[old] = by;
}

gd_tensor_id gd_graph_rewrite_now(const struct gd_graph_rewrite *rewrite, gd_tensor_id id) {
  while (id < rewrite->n_tensors && rewrite->instead[id] != GD_NONE)
    id = rewrite->instead[id];
  return id;
}

/* --- the end ------------------------------------------------------------------------------- */

/* New ids of what stays, by old id: leaves, then the outputs of ops in order. */
static uint32_t number_tensors(const struct gd_graph *graph, gd_tensor_id *now) {
  uint32_t count = 0;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    now[id] = graph->tensors[id].role == GD_ROLE_ACTIVATION ? GD_NONE : count++;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    for (uint32_t i = 0; i < graph->ops[id].n_out; i++)
      now[graph->ops[id].out[i]] = count++;
  return count;
}

/* The same ids under their new numbers; NULL when memory is out or one of them is gone. */
static const gd_tensor_id *renumber(struct gd_graph *graph, const gd_tensor_id *ids, uint32_t count,
                                    const gd_tensor_id *now) {
  gd_tensor_id *copy = gd_arena_alloc(&graph->arena, count, sizeof *copy);
  for (uint32_t i = 0; copy && i < count; i++) {
    copy[i] = ids[i] == GD_NONE ? GD_NONE : now[ids[i]];
    if (ids[i] != GD_NONE && copy[i] == GD_NONE) {
      gd_fail(&graph->error, GD_INTERNAL,
              "a rewrite dropped the op that makes tensor %u, which is still read", ids[i]);
      return NULL;
    }
  }
  if (!copy)
    no_memory(graph);
  return copy;
}

static void remove_dropped(struct gd_graph *graph) {
  uint32_t kept = 0;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (graph->ops[id].kind != GD_OP_COUNT)
      graph->ops[kept++] = graph->ops[id];
  graph->n_ops = kept;
}

static void renumber_flats(struct gd_graph *graph, const gd_tensor_id *now) {
  for (uint32_t i = 0; i < graph->n_flats; i++) {
    struct gd_flat *flat = &graph->flats[i];
    flat->pieces = renumber(graph, flat->pieces, flat->n_pieces, now);
  }
  for (uint32_t i = 0; i < graph->n_targets; i++) {
    struct gd_adam_target *target = &graph->targets[i];
    gd_tensor_id *ids[] = {&target->param, &target->grad,  &target->compute,
                           &target->norm,  &target->clear, &target->gather};
    for (size_t j = 0; j < sizeof ids / sizeof *ids; j++)
      if (*ids[j] != GD_NONE)
        *ids[j] = now[*ids[j]];
  }
}

/* Ops, aliases, owners and named tensors, all under their new numbers. */
static void apply_numbers(const struct gd_graph_rewrite *rewrite, const gd_tensor_id *now,
                          struct gd_tensor *tensors, uint32_t n_tensors) {
  struct gd_graph *graph = rewrite->graph;
  gd_tensor_id *named[NAMED];
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    if (now[id] == GD_NONE)
      continue;
    struct gd_tensor *t = &tensors[now[id]];
    *t = graph->tensors[id];
    if (t->owner != GD_NONE)
      t->owner = now[t->owner];
    if (t->alias_of !=
        GD_NONE) /* a piece, or a leaf that is added to; the shape rules give the others */
      t->alias_of = now[t->alias_of];
  }
  renumber_flats(graph, now);
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_op *op = &graph->ops[id];
    op->in = renumber(graph, op->in, op->n_in, now);
    op->out = renumber(graph, op->out, op->n_out, now);
    if (!op->in || !op->out)
      return;
    for (uint32_t i = 0; i < op->n_out; i++)
      tensors[op->out[i]].producer = id;
  }
  named_tensors(graph, named);
  for (int i = 0; i < NAMED; i++) {
    gd_tensor_id last = gd_graph_rewrite_now(rewrite, *named[i]);
    const gd_tensor_id *id = renumber(graph, &last, 1, now);
    if (!id)
      return;
    *named[i] = *id;
  }
  for (gd_tensor_id id = 0; id < n_tensors; id++)
    graph->tensors[id] = tensors[id];
  graph->n_tensors = n_tensors;
}

enum gd_status gd_graph_rewrite_end(struct gd_graph_rewrite *rewrite, struct gd_error *err) {
  struct gd_graph *graph = rewrite->graph;
  graph->block = rewrite->block;
  graph->phase = rewrite->phase;
  remove_dropped(graph);
  gd_tensor_id *now = gd_mem_alloc(graph->n_tensors, sizeof *now);
  struct gd_tensor *tensors = gd_mem_alloc(graph->n_tensors, sizeof *tensors);
  if (!now || !tensors)
    no_memory(graph);
  else if (graph->error.status == GD_OK)
    apply_numbers(rewrite, now, tensors, number_tensors(graph, now));
  gd_mem_free(now);
  gd_mem_free(tensors);
  gd_mem_free(rewrite->ops);
  gd_mem_free(rewrite->n_readers);
  gd_mem_free(rewrite->reader);
  gd_mem_free(rewrite->instead);
  gd_mem_free(rewrite->place);
  *rewrite = (struct gd_graph_rewrite){0};
  GD_TRY(gd_graph_check(graph, err));
  return gd_graph_infer(graph, err); /* aliases, and dtypes where a replacement has another */
}
