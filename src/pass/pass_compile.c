/*
 * The compile method: clusters of pointwise, normalisation and reduction ops over the same rows
 * become fused ops, for which code generation makes one kernel each.
 *
 * Every op that kernels are generated for starts as a cluster of its own. In program order, each
 * op's cluster is merged with those that produce its inputs, or that read the same tensor shortly
 * before, where that is possible. All members of a cluster run at the place of one of them. Two
 * clusters are merged only if at that place all inputs are made already and all readers of the
 * results come later; so no order of merges can produce a cycle. STATE ops never move, and no
 * cluster reads what they overwrite.
 *
 * Clusters stay within a phase and a block, since checkpointing recomputes the forward clusters of
 * a block. One exception: a column sum of a gradient (the gradient of a bias) may join the cluster
 * that makes the gradient, whatever its block, since it reads nothing else.
 */
#include <stdio.h>

#include "codegen/lower.h"
#include "pass/pass.h"

enum { MOST_MEMBERS = 24, MOST_INPUTS = 40 };

/* A cluster that was merged into another one is empty. */
struct cluster {
  uint32_t n_members;
  gd_op_id members[MOST_MEMBERS]; /* ascending: the order of the program */
  gd_op_id place;                 /* the member at whose place all run */
  int64_t elements, columns;      /* columns 0: any */
  bool sums_only;
};

struct compile {
  struct gd_graph *graph;
  struct gd_error *err;
  const struct gd_op *ops; /* the list before the rewriting */
  uint32_t n_ops;
  struct cluster *clusters;
  uint32_t n_clusters;
  uint32_t *cluster_of;   /* by op; GD_NONE */
  bool *overwritten;      /* by root: a STATE op of the micro-step writes it */
  uint32_t *readers_from; /* by root tensor: where its readers are in readers */
  gd_op_id *readers;      /* ops that read it or a view of it; views left out */
  struct gd_lowered *lowered;
};

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "in the compile pass");
}

static gd_tensor_id root_of(const struct compile *c, gd_tensor_id id) {
  return gd_tensor_root(c->graph, id, NULL);
}

/* The first tensor that has the same elements in the same order: a kernel can look through
   reshapes. */
static gd_tensor_id same_elements(const struct gd_graph *graph, gd_tensor_id id) {
  while (graph->tensors[id].alias_of != GD_NONE &&
         gd_tensor_elements(graph, graph->tensors[id].alias_of) == gd_tensor_elements(graph, id))
    id = graph->tensors[id].alias_of;
  return id;
}

static gd_op_id place_of(const struct compile *c, gd_op_id op) {
  return c->cluster_of[op] == GD_NONE ? op : c->clusters[c->cluster_of[op]].place;
}

/* --- readers, and one cluster for each op ---------------------------------------------------- */

static bool in_micro_step(const struct gd_op *op) {
  return gd_phase_program(op->phase) == GD_PROGRAM_MICRO_STEP;
}

static bool find_readers(struct compile *c) {
  size_t n = c->graph->n_tensors, total = 0;
  c->readers_from = gd_mem_alloc(n + 2, sizeof *c->readers_from);
  if (!c->readers_from)
    return false;
  for (int round = 0; round < 2; round++) { /* counts, then fills */
    for (gd_op_id id = 0; id < c->n_ops; id++)
      for (uint32_t i = 0; !gd_op_is_view(c->ops[id].kind) && i < c->ops[id].n_in; i++) {
        gd_tensor_id root = root_of(c, c->ops[id].in[i]);
        if (round == 0)
          c->readers_from[root + 2]++;
        else
          c->readers[c->readers_from[root + 1]++] = id;
        total += round == 0;
      }
    if (round == 1)
      break;
    for (size_t i = 1; i < n + 2; i++)
      c->readers_from[i] += c->readers_from[i - 1];
    c->readers = gd_mem_alloc(total + 1, sizeof *c->readers);
    if (!c->readers)
      return false;
  }
  return true;
}

static void find_overwritten(struct compile *c) {
  for (gd_op_id id = 0; id < c->n_ops; id++)
    for (uint32_t i = 0; in_micro_step(&c->ops[id]) && i < c->ops[id].n_out; i++)
      if (gd_op_info(c->ops[id].kind)->op_class == GD_CLASS_STATE)
        c->overwritten[root_of(c, c->ops[id].out[i])] = true;
}

static void start_clusters(struct compile *c) {
  for (gd_op_id id = 0; id < c->n_ops; id++) {
    struct cluster *cluster = &c->clusters[c->n_clusters];
    c->cluster_of[id] = GD_NONE;
    *cluster = (struct cluster){.n_members = 1, .members = {id}, .place = id};
    if (!in_micro_step(&c->ops[id]) || c->ops[id].n_in == 0 ||
        !gd_lower_shape(c->graph, id, &cluster->elements, &cluster->columns))
      continue;
    bool changes = false;
    for (uint32_t i = 0; i < c->ops[id].n_in; i++)
      changes |= c->overwritten[root_of(c, c->ops[id].in[i])];
    if (changes)
      continue;
    cluster->sums_only = gd_op_info(c->ops[id].kind)->fuse == GD_FUSE_COLUMN_SUM;
    c->cluster_of[id] = c->n_clusters++;
  }
}

/* --- the fusion of a cluster ---------------------------------------------------------------- */

/* Tensors of the graph, and which tensor of the fusion's body each is: its local. */
struct local_map {
  gd_tensor_id tensor[4 * MOST_MEMBERS + 2 * MOST_INPUTS],
      local[4 * MOST_MEMBERS + 2 * MOST_INPUTS];
  uint32_t n;
};

static gd_tensor_id find_local(const struct local_map *map, gd_tensor_id tensor) {
  for (uint32_t i = 0; i < map->n; i++)
    if (map->tensor[i] == tensor)
      return map->local[i];
  return GD_NONE;
}

static bool add_local(struct local_map *map, gd_tensor_id tensor, gd_tensor_id local) {
  if (map->n == sizeof map->tensor / sizeof *map->tensor)
    return false;
  map->tensor[map->n] = tensor;
  map->local[map->n++] = local;
  return true;
}

static bool has_member(const struct cluster *cluster, gd_op_id op) {
  for (uint32_t i = 0; i < cluster->n_members; i++)
    if (cluster->members[i] == op)
      return true;
  return false;
}

static bool is_read_outside(const struct compile *c, const struct cluster *cluster,
                            gd_tensor_id tensor) {
  for (uint32_t i = c->readers_from[tensor]; i < c->readers_from[tensor + 1]; i++)
    if (!has_member(cluster, c->readers[i]))
      return true;
  return tensor == c->graph->loss;
}

/* A fusion with the tensors of the graph that its op reads and writes. */
struct fused {
  struct gd_fusion fusion;
  gd_tensor_id in[MOST_INPUTS], out[GD_MAX_OUTPUTS];
};

static bool collect_inputs(const struct compile *c, const struct cluster *cluster,
                           struct fused *fused, struct local_map *map) {
  struct gd_graph *body = &fused->fusion.body;
  for (uint32_t m = 0; m < cluster->n_members; m++) {
    const struct gd_op *op = &c->ops[cluster->members[m]];
    for (uint32_t i = 0; i < op->n_in; i++) {
      gd_tensor_id id = same_elements(c->graph, op->in[i]);
      gd_op_id producer = c->graph->tensors[id].producer;
      if ((producer != GD_NONE && has_member(cluster, producer)) || find_local(map, id) != GD_NONE)
        continue;
      if (fused->fusion.n_in == MOST_INPUTS)
        return false;
      const struct gd_tensor *t = &c->graph->tensors[id];
      char name[16];
      snprintf(name, sizeof name, "i%u", fused->fusion.n_in);
      gd_tensor_id local = gd_graph_leaf(body, GD_ROLE_INPUT, name, t->dtype, t->rank, t->dims);
      fused->in[fused->fusion.n_in++] = id;
      if (local == GD_NONE || !add_local(map, id, local))
        return false;
    }
  }
  return true;
}

/* The local of a tensor, reshaped on the way if it must be. */
static gd_tensor_id local_of(const struct compile *c, struct gd_graph *body, struct local_map *map,
                             gd_tensor_id id) {
  gd_tensor_id local = find_local(map, id);
  if (local != GD_NONE)
    return local;
  local = find_local(map, same_elements(c->graph, id));
  if (local == GD_NONE)
    return GD_NONE;
  const struct gd_tensor *t = &c->graph->tensors[id];
  local = gd_reshape(body, local, t->rank, t->dims);
  return local != GD_NONE && add_local(map, id, local) ? local : GD_NONE;
}

static bool copy_ops(const struct compile *c, const struct cluster *cluster, struct fused *fused,
                     struct local_map *map) {
  struct gd_graph *body = &fused->fusion.body;
  for (uint32_t m = 0; m < cluster->n_members; m++) {
    const struct gd_op *op = &c->ops[cluster->members[m]];
    gd_tensor_id in[8];
    if (op->n_in > 8)
      return false;
    for (uint32_t i = 0; i < op->n_in; i++) {
      in[i] = local_of(c, body, map, op->in[i]);
      if (in[i] == GD_NONE)
        return false;
    }
    gd_tensor_id first = gd_graph_op(body, op->kind, &op->attr, op->n_in, in);
    for (uint32_t i = 0; i < op->n_out; i++) {
      if (first == GD_NONE || !add_local(map, op->out[i], first + i))
        return false;
      if (!is_read_outside(c, cluster, op->out[i]))
        continue;
      if (fused->fusion.n_out == GD_MAX_OUTPUTS)
        return false;
      fused->out[fused->fusion.n_out] = op->out[i];
      fused->fusion.out[fused->fusion.n_out++] = first + i;
    }
  }
  return fused->fusion.n_out > 0;
}

/* Only output 0 of an op can be written in place of an input: it becomes the one that may take the
   place of most inputs. */
static void choose_inplace(const struct compile *c, struct fused *fused) {
  struct gd_fusion *f = &fused->fusion;
  uint32_t best = 0;
  for (uint32_t i = 0; i < f->n_out; i++) {
    uint64_t mask = gd_lower_inplace(c->lowered, i);
    if (__builtin_popcountll(mask) > __builtin_popcountll(f->inplace)) {
      f->inplace = mask;
      best = i;
    }
  }
  gd_tensor_id tensor = fused->out[0], local = f->out[0];
  fused->out[0] = fused->out[best];
  f->out[0] = f->out[best];
  fused->out[best] = tensor;
  f->out[best] = local;
}

/* False: this cluster cannot be a kernel. In either case the caller owns fused->fusion.body. */
static bool make_fused(const struct compile *c, const struct cluster *cluster,
                       struct fused *fused) {
  const struct gd_op *first = &c->ops[cluster->members[0]];
  const struct gd_tensor *x = &c->graph->tensors[first->in[0]];
  struct local_map map = {.n = 0};
  *fused = (struct fused){0};
  gd_graph_init(&fused->fusion.body);
  fused->fusion.columns =
      cluster->columns ? cluster->columns : gd_lower_free_columns(x->rank, x->dims);
  fused->fusion.rows = cluster->elements / fused->fusion.columns;
  if (!collect_inputs(c, cluster, fused, &map) || !copy_ops(c, cluster, fused, &map) ||
      !gd_lower(&fused->fusion, c->lowered))
    return false;
  choose_inplace(c, fused);
  return true;
}

/* --- merging -------------------------------------------------------------------------------- */

/* Whether a cluster can run at `place`: what it reads is made before, what it makes is read after.
 */
static bool fits_at(const struct compile *c, const struct cluster *cluster, gd_op_id place) {
  for (uint32_t m = 0; m < cluster->n_members; m++) {
    const struct gd_op *op = &c->ops[cluster->members[m]];
    for (uint32_t i = 0; i < op->n_in; i++) {
      gd_tensor_id root = root_of(c, op->in[i]);
      gd_op_id producer = c->graph->tensors[root].producer;
      if (producer == GD_NONE)
        continue;
      if (has_member(cluster, producer)
              ? same_elements(c->graph, op->in[i]) != root /* a part is not known row by row */
              : place_of(c, producer) >= place)
        return false;
    }
    for (uint32_t i = 0; i < op->n_out; i++)
      for (uint32_t k = c->readers_from[op->out[i]]; k < c->readers_from[op->out[i] + 1]; k++)
        if (!has_member(cluster, c->readers[k]) && place_of(c, c->readers[k]) <= place)
          return false;
  }
  return true;
}

static struct cluster join(const struct cluster *a, const struct cluster *b) {
  struct cluster both = {.elements = a->elements,
                         .columns = a->columns ? a->columns : b->columns,
                         .sums_only = a->sums_only && b->sums_only};
  uint32_t i = 0, j = 0;
  while (i < a->n_members || j < b->n_members)
    both.members[both.n_members++] =
        j == b->n_members || (i < a->n_members && a->members[i] < b->members[j]) ? a->members[i++]
                                                                                 : b->members[j++];
  return both;
}

/* Phase and block of a cluster: those of its members that are no column sums, if there are any. */
static const struct gd_op *label_of(const struct compile *c, const struct cluster *cluster) {
  for (uint32_t i = 0; i < cluster->n_members; i++)
    if (gd_op_info(c->ops[cluster->members[i]].kind)->fuse != GD_FUSE_COLUMN_SUM)
      return &c->ops[cluster->members[i]];
  return &c->ops[cluster->members[0]];
}

static bool may_mix(const struct compile *c, const struct cluster *a, const struct cluster *b) {
  const struct gd_op *first = label_of(c, a), *second = label_of(c, b);
  if (a->elements != b->elements || (a->columns && b->columns && a->columns != b->columns) ||
      a->n_members + b->n_members > MOST_MEMBERS || first->phase != second->phase)
    return false;
  return first->block == second->block ||
         (first->phase == GD_PHASE_BACKWARD && (a->sums_only || b->sums_only));
}

/* Whether only views, STATE ops and ops that can be fused stand between two places. Then moving a
   cluster from one to the other keeps no tensor alive across a GEMM. */
static bool is_near(const struct compile *c, gd_op_id from, gd_op_id to) {
  for (gd_op_id id = from + 1; id < to; id++)
    if (c->cluster_of[id] == GD_NONE && !gd_op_is_view(c->ops[id].kind) &&
        gd_op_info(c->ops[id].kind)->op_class != GD_CLASS_STATE)
      return false;
  return true;
}

/* One cluster out of two, a before b, if it can be. `fed`: b reads what a makes. */
static void try_merge(struct compile *c, uint32_t a, uint32_t b, bool fed) {
  struct cluster *first = &c->clusters[a], *second = &c->clusters[b];
  struct fused fused;
  if (a == b || !may_mix(c, first, second))
    return;
  if (first->place > second->place) {
    struct cluster *swap = first;
    first = second;
    second = swap;
  }
  struct cluster both = join(first, second);
  /* The earlier place is tried first: there, results can be written over inputs that die. At the
     later place the inputs must live until then. */
  bool early = fed || second->sums_only || is_near(c, first->place, second->place);
  bool late = fed || is_near(c, first->place, second->place);
  if (early && fits_at(c, &both, first->place))
    both.place = first->place;
  else if (late && fits_at(c, &both, second->place))
    both.place = second->place;
  else
    return;
  bool ok = make_fused(c, &both, &fused);
  if (fused.fusion.body.error.status == GD_ENVIRONMENT)
    c->graph->error = fused.fusion.body.error;
  gd_graph_deinit(&fused.fusion.body);
  if (!ok)
    return;
  *first = both;
  second->n_members = 0;
  for (uint32_t i = 0; i < both.n_members; i++)
    c->cluster_of[both.members[i]] = (uint32_t)(first - c->clusters);
}

/* Merges the cluster of an op with others, where that is possible. */
static void grow(struct compile *c, gd_op_id id) {
  const struct gd_op *op = &c->ops[id];
  for (uint32_t i = 0; i < op->n_in; i++) { /* with the producers of its inputs */
    gd_op_id producer = c->graph->tensors[same_elements(c->graph, op->in[i])].producer;
    if (producer != GD_NONE && c->cluster_of[producer] != GD_NONE)
      try_merge(c, c->cluster_of[producer], c->cluster_of[id], true);
  }
  for (uint32_t i = 0; i < op->n_in; i++) { /* with other readers of its inputs */
    gd_tensor_id root = root_of(c, op->in[i]);
    /* Only of whole rows: a weight or a statistic that both read is no reason to merge. */
    int64_t elements = c->clusters[c->cluster_of[id]].elements;
    if (gd_tensor_elements(c->graph, op->in[i]) != elements ||
        c->graph->tensors[root].producer == GD_NONE)
      continue;
    for (uint32_t k = c->readers_from[root]; k < c->readers_from[root + 1]; k++) {
      gd_op_id other = c->readers[k];
      if (other < id && c->cluster_of[other] != GD_NONE)
        try_merge(c, c->cluster_of[other], c->cluster_of[id], false);
    }
  }
}

/* --- rewriting ------------------------------------------------------------------------------ */

static bool is_fused(const struct compile *c, gd_op_id id) {
  return c->cluster_of[id] != GD_NONE && c->clusters[c->cluster_of[id]].n_members > 1;
}

static void emit_cluster(struct compile *c, struct gd_graph_rewrite *rewrite,
                         const struct cluster *cluster) {
  struct gd_graph *graph = c->graph;
  struct fused fused;
  gd_tensor_id in[MOST_INPUTS];
  bool ok = make_fused(c, cluster, &fused); /* it could be when it was merged */
  GD_ASSERT(ok || fused.fusion.body.error.status == GD_ENVIRONMENT);
  uint32_t n_in = fused.fusion.n_in, n_out = fused.fusion.n_out;
  for (uint32_t i = 0; i < n_in; i++)
    in[i] = gd_graph_rewrite_now(rewrite, fused.in[i]);
  union gd_attr attr = {.fused = {gd_graph_fusion(graph, &fused.fusion)}};
  if (attr.fused.fusion == GD_NONE)
    return;
  gd_graph_rewrite_enter(rewrite, (gd_op_id)(label_of(c, cluster) - c->ops));
  gd_tensor_id first = gd_graph_op(graph, GD_OP_fused, &attr, n_in, in);
  for (uint32_t i = 0; first != GD_NONE && i < n_out; i++)
    gd_graph_rewrite_replace(rewrite, fused.out[i], first + i);
}

/* The place where the root of a view is made; GD_NONE: it is a leaf. */
static gd_op_id place_of_root(const struct compile *c, const struct gd_op *view) {
  gd_op_id producer = c->graph->tensors[root_of(c, view->in[0])].producer;
  return producer == GD_NONE ? GD_NONE : place_of(c, producer);
}

/* A cluster may run later than some views of its results stand: these views follow it. */
static void emit_views(struct compile *c, struct gd_graph_rewrite *rewrite, const bool *live,
                       const struct cluster *cluster) {
  for (gd_op_id id = cluster->members[0] + 1; id < cluster->place; id++)
    if (gd_op_is_view(c->ops[id].kind) && live[id] &&
        place_of_root(c, &c->ops[id]) == cluster->place)
      gd_graph_rewrite_keep(rewrite, id);
}

/* Views that something still reads. Clusters look through reshapes, so many are not. */
static void find_live_views(const struct compile *c, bool *live) {
  for (gd_op_id id = c->n_ops; id-- > 0;) {
    const struct gd_op *op = &c->ops[id];
    if (gd_op_is_view(op->kind) && !live[id])
      continue;
    for (uint32_t i = 0; i < op->n_in; i++) {
      gd_tensor_id in = is_fused(c, id) ? same_elements(c->graph, op->in[i]) : op->in[i];
      gd_op_id producer = c->graph->tensors[in].producer;
      if (producer != GD_NONE)
        live[producer] = true;
    }
  }
}

static enum gd_status rewrite_all(struct compile *c) {
  struct gd_graph_rewrite rewrite;
  bool *live = gd_mem_alloc((size_t)c->n_ops + 1, sizeof *live);
  if (!live)
    return no_memory(c->err);
  find_live_views(c, live);
  enum gd_status status = gd_graph_rewrite_begin(&rewrite, c->graph, c->err);
  if (status == GD_OK) {
    c->ops = rewrite.ops;
    for (gd_op_id id = 0; id < c->n_ops; id++) {
      const struct gd_op *op = &c->ops[id];
      if (gd_op_is_view(op->kind)) {
        gd_op_id place = place_of_root(c, op);
        if (live[id] && (place == GD_NONE || place < id))
          gd_graph_rewrite_keep(&rewrite, id);
      } else if (!is_fused(c, id)) {
        gd_graph_rewrite_keep(&rewrite, id);
      } else if (c->clusters[c->cluster_of[id]].place == id) {
        emit_cluster(c, &rewrite, &c->clusters[c->cluster_of[id]]);
        emit_views(c, &rewrite, live, &c->clusters[c->cluster_of[id]]);
      }
    }
    status = gd_graph_rewrite_end(&rewrite, c->err);
  }
  gd_mem_free(live);
  return status;
}

enum gd_status gd_pass_compile(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  enum gd_status status = GD_OK;
  if (ctx->setup->no_compiler)
    return GD_OK;
  struct compile c = {.graph = graph,
                      .err = ctx->err,
                      .ops = graph->ops,
                      .n_ops = graph->n_ops,
                      .clusters = gd_mem_alloc((size_t)graph->n_ops + 1, sizeof *c.clusters),
                      .cluster_of = gd_mem_alloc((size_t)graph->n_ops + 1, sizeof *c.cluster_of),
                      .overwritten = gd_mem_alloc(graph->n_tensors, sizeof *c.overwritten),
                      .lowered = gd_mem_alloc(1, sizeof *c.lowered)};
  if (!c.clusters || !c.cluster_of || !c.overwritten || !c.lowered || !find_readers(&c)) {
    status = no_memory(ctx->err);
  } else {
    find_overwritten(&c);
    start_clusters(&c);
    for (gd_op_id id = 0; id < c.n_ops && graph->error.status == GD_OK; id++)
      if (c.cluster_of[id] != GD_NONE)
        grow(&c, id);
    status = gd_graph_check(graph, ctx->err);
    if (status == GD_OK)
      status = rewrite_all(&c);
  }
  gd_mem_free(c.clusters);
  gd_mem_free(c.cluster_of);
  gd_mem_free(c.overwritten);
  gd_mem_free(c.readers_from);
  gd_mem_free(c.readers);
  gd_mem_free(c.lowered);
  return status;
}
