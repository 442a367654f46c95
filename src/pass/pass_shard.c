/*
 * Ranks and shards: data parallel, ZeRO and FSDP as one rewrite (docs/methods.md has the table).
 *
 * Parameters lie behind each other in flat tensors, padded so that every rank's shard has the same
 * size: one plan serves all ranks. A flat belongs to a unit: a layer (FSDP) or a bucket of about
 * equal size (the others). It holds the parameters of one kind: with or without a 16-bit copy that
 * GEMMs read, with or without weight decay. From then on everything is per flat:
 *
 *   weights     whole, or a shard that is all-gathered before use, one unit ahead
 *   gradients   whole, reduced once a step after the last backward pass of the unit; or a shard, to
 *               which every micro-step adds its reduced gradients
 *   Adam        on the shard (data parallel: on everything), then shards are exchanged
 *
 * Collectives are asynchronous: they start where their input is ready, and the first op that reads
 * their output waits. This pass places them so that there is time in between; the planner keeps
 * their memory until then.
 */
#include <stdio.h>
#include <string.h>

#include "pass/pass.h"

/* Small enough that the first ones are reduced while the backward pass still runs, large enough
   that messages are few: PyTorch's DDP takes 25 MiB. A small model still has several. */
enum { BUCKET_BYTES = 25 << 20, BUCKET_LEAST_BYTES = 64 << 10, BUCKETS = 8 };
enum { AHEAD = 2 };           /* flats that are gathered in advance: a unit has about two */
enum { SHARD_ELEMENTS = 64 }; /* shards start on whole cache lines in every dtype */

/* A stretch of the micro-step, from op `first` on, in which a flat's gathered weights are in use.
 */
struct span {
  uint32_t flat;
  gd_op_id first;
};

struct unit_flat {
  int64_t elements, shard;
  uint32_t n_pieces;
  bool copied;            /* GEMMs read 16-bit copies of it */
  bool no_decay;          /* weight decay leaves it out */
  gd_tensor_id compute;   /* leaf that the micro-step reads: flat, or a shard of it */
  gd_tensor_id grad;      /* leaf that gradients are added to: flat, or a shard */
  gd_tensor_id buffer;    /* of this micro-step's gradients, where the leaf holds a shard */
  gd_op_id last_gradient; /* old op */
  /* Old tensors that the micro-step computes with, and old ops that are views of them, in order:
     the first of each; the others follow by next_piece and next_view. */
  gd_tensor_id first_piece;
  gd_op_id first_view;
  bool has_span[2]; /* [0] in the forward pass, [1] in the backward pass; one for both is [0] */
};

struct shard {
  const struct gd_setup *setup;
  struct gd_graph_rewrite rewrite;
  struct gd_graph *graph;
  uint32_t n_old;
  bool offloads;            /* a later pass moves state to the host */
  uint32_t *flat_of;        /* by parameter, 16-bit copy and gradient: 1 + index of its flat */
  int64_t *start_of;        /* likewise: where it begins */
  bool *has_copy;           /* by parameter: a 16-bit one */
  bool *computes;           /* by parameter and copy: the micro-step reads it */
  bool *written;            /* by gradient leaf: its part of the buffer holds something already */
  gd_tensor_id *next_piece; /* by tensor: the next one of its flat that computes, or GD_NONE */
  gd_op_id *next_view;      /* by op: the next view of a piece of the same flat, or GD_NONE */
  enum gd_dtype copy_dtype; /* of 16-bit copies */
  struct unit_flat *flats;
  struct span *spans;
  uint32_t n_flats, n_spans;
  gd_tensor_id pending; /* reduced gradients that are not added yet; GD_NONE */
  uint32_t pending_flat;
};

static bool several(const struct shard *s) {
  return s->graph->ranks > 1;
}

static union gd_attr ranks_attr(const struct shard *s) {
  return (union gd_attr){.ranks = {s->graph->rank, s->graph->ranks}};
}

/* --- units --------------------------------------------------------------------------------- */

static int64_t bucket_bytes(const struct gd_graph *graph) {
  int64_t bytes = gd_graph_parameters(graph) * (int64_t)sizeof(float) / BUCKETS;
  bytes = bytes < BUCKET_BYTES ? bytes : BUCKET_BYTES;
  return bytes > BUCKET_LEAST_BYTES ? bytes : BUCKET_LEAST_BYTES;
}

/* Gives every parameter its flat: units in order, in each a flat per kind of parameter. */
static void assign_flats(struct shard *s) {
  const struct gd_graph *graph = s->graph;
  const int64_t most_bytes = bucket_bytes(graph);
  bool by_block = gd_shards_by_block(s->setup->method.sharding);
  int64_t unit_bytes = 0;
  int32_t block = INT32_MIN;
  uint32_t current[4] = {0}; /* by kind: 1 + index */
  s->copy_dtype = GD_DTYPE_F32;
  for (gd_tensor_id id = 0; id < s->n_old; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM_COMPUTE) {
      s->has_copy[graph->tensors[id].owner] = true;
      s->copy_dtype = graph->tensors[id].dtype; /* they all have the same */
    }
  for (gd_tensor_id id = 0; id < s->n_old; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    if (t->role != GD_ROLE_PARAM)
      continue;
    bool starts = by_block ? t->block != block : unit_bytes >= most_bytes;
    if (starts) {
      memset(current, 0, sizeof current);
      unit_bytes = 0;
    }
    block = t->block;
    unit_bytes += gd_tensor_bytes(graph, id);
    bool copied = s->has_copy[id];
    int kind = 2 * t->no_decay + copied;
    if (!current[kind]) {
      current[kind] = ++s->n_flats;
      s->flats[s->n_flats - 1] = (struct unit_flat){.copied = copied,
                                                    .no_decay = t->no_decay,
                                                    .buffer = GD_NONE,
                                                    .last_gradient = GD_NONE,
                                                    .first_piece = GD_NONE,
                                                    .first_view = GD_NONE};
    }
    struct unit_flat *flat = &s->flats[current[kind] - 1];
    s->flat_of[id] = current[kind];
    s->start_of[id] = flat->elements;
    s->computes[id] = !copied;
    flat->elements += gd_tensor_elements(graph, id);
    flat->n_pieces++;
  }
  for (gd_tensor_id id = 0; id < s->n_old; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    if (t->role != GD_ROLE_PARAM_COMPUTE && t->role != GD_ROLE_GRAD)
      continue;
    s->flat_of[id] = s->flat_of[t->owner];
    s->start_of[id] = s->start_of[t->owner];
    s->computes[id] = t->role == GD_ROLE_PARAM_COMPUTE;
  }
  for (gd_tensor_id id = s->n_old; id-- > 0;)
    if (s->computes[id]) {
      struct unit_flat *flat = &s->flats[s->flat_of[id] - 1];
      s->next_piece[id] = flat->first_piece;
      flat->first_piece = id;
    }
  for (uint32_t i = 0; i < s->n_flats; i++) {
    int64_t elements = (s->flats[i].elements + graph->ranks - 1) / graph->ranks;
    s->flats[i].shard = (elements + SHARD_ELEMENTS - 1) / SHARD_ELEMENTS * SHARD_ELEMENTS;
  }
}

/* --- leaves -------------------------------------------------------------------------------- */

static void describe_flats(struct shard *s) {
  struct gd_graph *graph = s->graph;
  uint32_t n_pieces = 0, given = 0;
  for (uint32_t i = 0; i < s->n_flats; i++)
    n_pieces += s->flats[i].n_pieces;
  gd_tensor_id *pieces = gd_arena_alloc(&graph->arena, n_pieces, sizeof *pieces);
  int64_t *starts = gd_arena_alloc(&graph->arena, n_pieces, sizeof *starts);
  graph->flats = gd_arena_alloc(&graph->arena, s->n_flats, sizeof *graph->flats);
  graph->targets = gd_arena_alloc(&graph->arena, s->n_flats, sizeof *graph->targets);
  if (!graph->flats || !graph->targets || !pieces || !starts) {
    gd_nomem(&graph->error, "in the shard pass");
    return;
  }
  for (uint32_t i = 0; i < s->n_flats; i++) {
    const struct unit_flat *flat = &s->flats[i];
    graph->flats[i] =
        (struct gd_flat){0, pieces + given, starts + given, flat->elements, flat->shard};
    given += flat->n_pieces;
  }
  for (gd_tensor_id id = 0; id < s->n_old; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM) {
      struct gd_flat *flat = &graph->flats[s->flat_of[id] - 1];
      ptrdiff_t at = flat->pieces - pieces + flat->n_pieces++;
      pieces[at] = id;
      starts[at] = s->start_of[id];
    }
  graph->n_flats = s->n_flats;
}

/* A leaf that holds a flat (whole) or this rank's shard of it. */
static gd_tensor_id flat_leaf(struct shard *s, uint32_t index, enum gd_role role, const char *what,
                              enum gd_dtype dtype, bool whole) {
  struct gd_graph *graph = s->graph;
  const struct unit_flat *flat = &s->flats[index];
  char name[64];
  int64_t elements = whole ? flat->shard * graph->ranks : flat->shard;
  snprintf(name, sizeof name, "%s.flat%u%s", what, index, whole ? "" : ".shard");
  gd_tensor_id id = gd_graph_leaf(graph, role, name, dtype, 1, &elements);
  if (id == GD_NONE)
    return id;
  graph->tensors[id].flat = index + 1;
  graph->tensors[id].flat_first = whole ? 0 : flat->shard * graph->rank;
  graph->tensors[id].no_decay = flat->no_decay;
  return id;
}

/* This rank's slice of a flat leaf, as a leaf of its own that uses the same memory. */
static gd_tensor_id own_slice(struct shard *s, uint32_t index, gd_tensor_id flat) {
  struct gd_graph *graph = s->graph;
  if (graph->error.status != GD_OK)
    return GD_NONE;
  char name[96];
  snprintf(name, sizeof name, "%s.own", graph->tensors[flat].name);
  gd_tensor_id id = gd_graph_leaf(graph, GD_ROLE_PIECE, name, graph->tensors[flat].dtype, 1,
                                  &s->flats[index].shard);
  if (id == GD_NONE)
    return id;
  struct gd_tensor *t = &graph->tensors[id];
  t->alias_of = flat;
  t->alias_elements = s->flats[index].shard * graph->rank;
  t->flat = index + 1;
  t->flat_first = t->alias_elements;
  t->no_decay = s->flats[index].no_decay;
  return id;
}

/* The leaves of one flat, and what Adam works on. */
static void make_leaves(struct shard *s, uint32_t index) {
  const struct gd_method *method = &s->setup->method;
  struct gd_graph *graph = s->graph;
  struct unit_flat *flat = &s->flats[index];
  struct gd_adam_target *target = &graph->targets[index];
  bool sharded = method->sharding != GD_SHARDING_NONE; /* Adam works on a shard */
  bool whole_compute = !gd_shards_parameters(method->sharding);
  bool whole_grad = !gd_shards_gradients(method->sharding);
  /* Adam on the host cannot work on parameters of the device: it then has its own. */
  bool master = flat->copied || (s->offloads && whole_compute);
  *target = (struct gd_adam_target){GD_NONE, GD_NONE, GD_NONE, GD_NONE, GD_NONE, GD_NONE};

  flat->compute = flat_leaf(s, index, master ? GD_ROLE_PARAM_COMPUTE : GD_ROLE_PARAM, "compute",
                            flat->copied ? s->copy_dtype : GD_DTYPE_F32, whole_compute);
  gd_tensor_id compute =
      sharded && whole_compute ? own_slice(s, index, flat->compute) : flat->compute;
  target->param =
      master ? flat_leaf(s, index, GD_ROLE_PARAM, "master", GD_DTYPE_F32, !sharded) : compute;
  target->compute = master ? compute : GD_NONE;

  flat->grad = flat_leaf(s, index, GD_ROLE_GRAD, "grad", GD_DTYPE_F32, whole_grad);
  gd_tensor_id own = whole_grad ? own_slice(s, index, flat->grad) : flat->grad;
  target->grad = sharded ? own : flat->grad;
  target->norm = own;
  target->clear = flat->grad;
  target->gather = sharded && whole_compute && several(s) ? flat->compute : GD_NONE;
}

/* Parameters, copies and gradients become pieces of the flat leaves, or of nothing. */
static void make_pieces(struct shard *s) {
  struct gd_graph *graph = s->graph;
  bool whole_compute = !gd_shards_parameters(s->setup->method.sharding);
  bool whole_grad = !gd_shards_gradients(s->setup->method.sharding);
  for (gd_tensor_id id = 0; id < s->n_old; id++) {
    struct gd_tensor *t = &graph->tensors[id];
    if (!s->flat_of[id])
      continue;
    const struct unit_flat *flat = &s->flats[s->flat_of[id] - 1];
    bool is_grad = t->role == GD_ROLE_GRAD;
    if (s->computes[id] && whole_compute)
      t->alias_of = flat->compute;
    else if (is_grad && whole_grad)
      t->alias_of = flat->grad;
    t->alias_elements = t->alias_of == GD_NONE ? 0 : s->start_of[id];
    t->role = GD_ROLE_PIECE;
  }
  graph->n_targets = s->n_flats;
}

/* --- the micro-step ------------------------------------------------------------------------ */

/* The parameter or copy that a tensor is, itself or as a view; GD_NONE: it is none. */
static gd_tensor_id compute_piece(const struct shard *s, gd_tensor_id id) {
  while (id != GD_NONE && s->graph->tensors[id].producer != GD_NONE &&
         gd_op_is_view(s->rewrite.ops[s->graph->tensors[id].producer].kind))
    id = s->rewrite.ops[s->graph->tensors[id].producer].in[0];
  return id != GD_NONE && id < s->n_old && s->computes[id] ? id : GD_NONE;
}

/* Whether an op is a view of a parameter (a filter as a matrix). Every span makes its own: a view
   of the forward pass would keep the gathered weights until the backward pass. */
static bool is_piece_view(const struct shard *s, const struct gd_op *op) {
  return gd_op_is_view(op->kind) && compute_piece(s, op->in[0]) != GD_NONE;
}

/* The leaf of the gradient that an accumulate adds to, maybe through earlier ones; or GD_NONE. */
static gd_tensor_id added_to(const struct shard *s, const struct gd_op *op) {
  gd_tensor_id id = op->kind == GD_OP_accumulate ? op->in[0] : GD_NONE;
  while (id != GD_NONE && !(id < s->n_old && s->flat_of[id]))
    id = s->graph->tensors[id].alias_of;
  return id;
}

/* The views of each flat's pieces. */
static void find_views(struct shard *s) {
  for (gd_op_id id = s->rewrite.n_ops; id-- > 0;) {
    const struct gd_op *op = &s->rewrite.ops[id];
    if (!is_piece_view(s, op))
      continue;
    struct unit_flat *flat = &s->flats[s->flat_of[compute_piece(s, op->in[0])] - 1];
    s->next_view[id] = flat->first_view;
    flat->first_view = id;
  }
}

/* Where each flat is in use: one span for the whole micro-step, or one in the forward and one in
   the backward pass. */
static void find_spans(struct shard *s) {
  const struct gd_graph_rewrite *r = &s->rewrite;
  bool twice = gd_regathers(s->setup->method.sharding);
  for (gd_op_id id = 0; id < r->n_ops; id++) {
    const struct gd_op *op = &r->ops[id];
    gd_tensor_id leaf = added_to(s, op);
    if (leaf != GD_NONE) {
      s->flats[s->flat_of[leaf] - 1].last_gradient = id;
      continue;
    }
    for (uint32_t i = 0; i < op->n_in && !gd_op_is_view(op->kind); i++) {
      gd_tensor_id piece = compute_piece(s, op->in[i]);
      if (piece == GD_NONE)
        continue;
      uint32_t flat = s->flat_of[piece] - 1;
      bool *has_span = &s->flats[flat].has_span[twice && op->phase == GD_PHASE_BACKWARD];
      if (!*has_span)
        s->spans[s->n_spans++] = (struct span){flat, id}; /* in order of first use */
      *has_span = true;
    }
  }
}

/* From here on ops read their parameters out of the gathered flat. */
static void use_gathered(struct shard *s, const struct span *span, gd_tensor_id gathered) {
  struct gd_graph *graph = s->graph;
  const struct unit_flat *flat = &s->flats[span->flat];
  for (gd_tensor_id id = flat->first_piece; id != GD_NONE && graph->error.status == GD_OK;
       id = s->next_piece[id]) {
    const struct gd_tensor t = graph->tensors[id];
    gd_tensor_id view = gd_view(graph, gathered, s->start_of[id], t.rank, t.dims);
    if (view != GD_NONE)
      gd_graph_rewrite_replace(&s->rewrite, id, view);
  }
  for (gd_op_id id = flat->first_view; id != GD_NONE && graph->error.status == GD_OK;
       id = s->next_view[id]) {
    const struct gd_op *op = &s->rewrite.ops[id];
    gd_tensor_id in = gd_graph_rewrite_now(&s->rewrite, op->in[0]);
    gd_tensor_id view = gd_graph_op(graph, op->kind, &op->attr, 1, &in);
    for (uint32_t i = 0; i < op->n_out && view != GD_NONE; i++)
      gd_graph_rewrite_replace(&s->rewrite, op->out[i], view + i);
  }
}

/* Reduced gradients are added only after the next reduction has started: that gives them time to
   arrive. */
static void add_pending(struct shard *s) {
  if (s->pending == GD_NONE)
    return;
  gd_graph_op(s->graph, GD_OP_accumulate, NULL, 2,
              (gd_tensor_id[]){s->flats[s->pending_flat].grad, s->pending});
  s->pending = GD_NONE;
}

/* Puts one parameter's gradient into the buffer of a flat of which this rank keeps a shard. */
static void put_gradient(struct shard *s, const struct gd_op *op, gd_tensor_id leaf) {
  struct gd_graph *graph = s->graph;
  struct unit_flat *flat = &s->flats[s->flat_of[leaf] - 1];
  if (flat->buffer == GD_NONE)
    flat->buffer = gd_buffer(graph, (struct gd_attr_buffer){.dtype = GD_DTYPE_F32,
                                                            .elements = flat->shard * graph->ranks,
                                                            .used = flat->elements});
  if (graph->error.status != GD_OK)
    return;
  const struct gd_tensor t = graph->tensors[leaf];
  gd_tensor_id view = gd_view(graph, flat->buffer, s->start_of[leaf], t.rank, t.dims);
  gd_graph_op(graph, s->written[leaf] ? GD_OP_accumulate : GD_OP_copy, NULL, 2,
              (gd_tensor_id[]){view, gd_graph_rewrite_now(&s->rewrite, op->in[1])});
  s->written[leaf] = true;
}

/* Starts to reduce the gradients of a flat, which are complete. */
static void reduce_gradients(struct shard *s, uint32_t index) {
  enum gd_sharding sharding = s->setup->method.sharding;
  struct gd_graph *graph = s->graph;
  struct unit_flat *flat = &s->flats[index];
  union gd_attr attr = ranks_attr(s);
  if (gd_shards_gradients(sharding)) {
    gd_tensor_id own = gd_graph_op(graph, GD_OP_reduce_scatter, &attr, 1, &flat->buffer);
    add_pending(s);
    s->pending = own;
    s->pending_flat = index;
  } else if (several(s)) {
    enum gd_op_kind kind = sharding == GD_SHARDING_NONE ? GD_OP_all_reduce : GD_OP_reduce_scatter;
    if (gd_graph_op(graph, kind, &attr, 1, &flat->grad) != GD_NONE)
      graph->ops[graph->n_ops - 1].last_only = true;
  }
}

static void rewrite_ops(struct shard *s) {
  struct gd_graph_rewrite *r = &s->rewrite;
  const struct gd_method *method = &s->setup->method;
  bool gathers = gd_shards_parameters(method->sharding);
  bool buffers = gd_shards_gradients(method->sharding);
  uint32_t started = 0, used = 0; /* spans whose gather has started; spans that have begun */
  const union gd_attr attr = ranks_attr(s);
  gd_tensor_id ahead[AHEAD + 1];
  for (gd_op_id id = 0; id < r->n_ops; id++) {
    const struct gd_op *op = &r->ops[id];
    if (gathers && is_piece_view(s, op))
      continue;
    gd_graph_rewrite_enter(r, id);
    while (gathers && used < s->n_spans && s->spans[used].first == id) {
      for (; started < s->n_spans && started <= used + AHEAD; started++)
        ahead[started % (AHEAD + 1)] = gd_graph_op(s->graph, GD_OP_gather, &attr, 1,
                                                   &s->flats[s->spans[started].flat].compute);
      use_gathered(s, &s->spans[used], ahead[used % (AHEAD + 1)]);
      used++;
    }
    gd_tensor_id leaf = added_to(s, op);
    if (leaf == GD_NONE) {
      gd_graph_rewrite_keep(r, id);
      continue;
    }
    uint32_t flat = s->flat_of[leaf] - 1;
    if (buffers)
      put_gradient(s, op, leaf);
    else
      gd_graph_rewrite_keep(r, id);
    if (s->flats[flat].last_gradient == id)
      reduce_gradients(s, flat);
  }
  add_pending(s);
}

enum gd_status gd_pass_shard(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  const struct gd_setup *setup = ctx->setup;
  graph->rank = (int32_t)setup->rank;
  graph->ranks = setup->ranks > 0 ? (int32_t)setup->ranks : 1;
  if (graph->ranks == 1 && setup->method.sharding == GD_SHARDING_NONE)
    return GD_OK;
  size_t n = graph->n_tensors;
  struct shard s = {.setup = setup,
                    .graph = graph,
                    .offloads = gd_pass_is_on(&setup->method, gd_pass_find("offload", 7)),
                    .n_old = graph->n_tensors,
                    .flat_of = gd_mem_alloc(n, sizeof *s.flat_of),
                    .start_of = gd_mem_alloc(n, sizeof *s.start_of),
                    .has_copy = gd_mem_alloc(n, sizeof *s.has_copy),
                    .computes = gd_mem_alloc(n, sizeof *s.computes),
                    .written = gd_mem_alloc(n, sizeof *s.written),
                    .next_piece = gd_mem_alloc(n, sizeof *s.next_piece),
                    .next_view = gd_mem_alloc(graph->n_ops, sizeof *s.next_view),
                    .flats = gd_mem_alloc(n, sizeof *s.flats),
                    .spans = gd_mem_alloc(2 * n, sizeof *s.spans),
                    .pending = GD_NONE};
  enum gd_status status = GD_OK;
  if (!s.flat_of || !s.start_of || !s.has_copy || !s.computes || !s.written || !s.next_piece ||
      !s.next_view || !s.flats || !s.spans) {
    status = gd_nomem(ctx->err, "in the shard pass");
    goto done;
  }
  assign_flats(&s);
  describe_flats(&s);
  for (uint32_t i = 0; i < s.n_flats && graph->error.status == GD_OK; i++)
    make_leaves(&s, i);
  status = gd_graph_rewrite_begin(&s.rewrite, graph, ctx->err);
  if (status != GD_OK)
    goto done;
  find_views(&s);
  find_spans(&s);
  make_pieces(&s);
  rewrite_ops(&s);
  status = gd_graph_rewrite_end(&s.rewrite, ctx->err);
done:
  gd_mem_free(s.flat_of);
  gd_mem_free(s.start_of);
  gd_mem_free(s.has_copy);
  gd_mem_free(s.computes);
  gd_mem_free(s.written);
  gd_mem_free(s.next_piece);
  gd_mem_free(s.next_view);
  gd_mem_free(s.flats);
  gd_mem_free(s.spans);
  return status;
}
