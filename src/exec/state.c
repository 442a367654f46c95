/*
 * Logical tensors of a run; see state.h.
 */
#include "exec/state.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/aliases.h"

enum { CHUNK_ELEMENTS = 1 << 20 };

const char *gd_state_prefix(enum gd_state_kind kind) {
  static const char *const prefixes[GD_STATE_KINDS] = {"", "optimizer.m.", "optimizer.v."};
  return prefixes[kind];
}

/* --- what there is ------------------------------------------------------------------------- */

/* The kind of a leaf; GD_STATE_KINDS: it is no state of training. */
static enum gd_state_kind kind_of(const struct gd_tensor *t) {
  if (t->producer != GD_NONE)
    return GD_STATE_KINDS;
  if (t->role == GD_ROLE_PARAM)
    return GD_STATE_PARAM;
  if (t->role != GD_ROLE_OPTIMIZER)
    return GD_STATE_KINDS;
  return strncmp(t->name, "m.", 2) == 0 ? GD_STATE_M : GD_STATE_V;
}

struct listing {
  const struct gd_graph *graph;
  struct gd_state_slices *slices;
  uint32_t capacity;
  bool own;
};

static enum gd_status append(struct listing *l, struct gd_state_slice slice, bool replicated,
                             struct gd_error *err) {
  int64_t ranks = l->graph->ranks, rank = l->graph->rank;
  if (l->own && replicated && ranks > 1) { /* each rank's part of what all have */
    int64_t skip = slice.count * rank / ranks, end = slice.count * (rank + 1) / ranks;
    slice.first += skip;
    slice.leaf_first += skip;
    slice.count = end - skip;
  }
  if (slice.count == 0)
    return GD_OK;
  if (!gd_vec_reserve((void **)&l->slices->all, &l->capacity, l->slices->count + 1,
                      sizeof *l->slices->all))
    return gd_nomem(err, "while listing the state of a run");
  l->slices->all[l->slices->count++] = slice;
  return GD_OK;
}

/* The pieces of a flat leaf, or of the shard of one. */
static enum gd_status append_flat(struct listing *l, gd_tensor_id leaf, enum gd_state_kind kind,
                                  struct gd_error *err) {
  const struct gd_graph *graph = l->graph;
  const struct gd_tensor *t = &graph->tensors[leaf];
  const struct gd_flat *flat = &graph->flats[t->flat - 1];
  const struct gd_tensor *owner = kind == GD_STATE_PARAM ? t : &graph->tensors[t->owner];
  int64_t begin = owner->flat_first, end = begin + gd_tensor_elements(graph, leaf);
  bool replicated = end - begin > flat->shard;
  for (uint32_t i = 0; i < flat->n_pieces; i++) {
    int64_t start = flat->starts[i], stop = start + gd_tensor_elements(graph, flat->pieces[i]);
    int64_t from = start > begin ? start : begin, to = stop < end ? stop : end;
    if (from < to)
      GD_TRY(append(l,
                    (struct gd_state_slice){.parameter = flat->pieces[i],
                                            .kind = kind,
                                            .first = from - start,
                                            .count = to - from,
                                            .leaf = leaf,
                                            .leaf_first = from - begin},
                    replicated, err));
  }
  return GD_OK;
}

static enum gd_status append_leaf(struct listing *l, gd_tensor_id leaf, struct gd_error *err) {
  const struct gd_tensor *t = &l->graph->tensors[leaf];
  enum gd_state_kind kind = kind_of(t);
  if (kind == GD_STATE_KINDS)
    return GD_OK;
  GD_ASSERT(t->dtype == GD_DTYPE_F32);
  if (t->flat)
    return append_flat(l, leaf, kind, err);
  return append(l,
                (struct gd_state_slice){.parameter = kind == GD_STATE_PARAM ? leaf : t->owner,
                                        .kind = kind,
                                        .count = gd_tensor_elements(l->graph, leaf),
                                        .leaf = leaf},
                true, err);
}

enum gd_status gd_state_list(const struct gd_graph *graph, bool own, struct gd_state_slices *slices,
                             struct gd_error *err) {
  struct listing l = {.graph = graph, .slices = slices, .own = own};
  enum gd_status status = GD_OK;
  *slices = (struct gd_state_slices){0};
  for (gd_tensor_id id = 0; id < graph->n_tensors && status == GD_OK; id++)
    status = append_leaf(&l, id, err);
  if (status != GD_OK)
    gd_state_slices_free(slices);
  return status;
}

void gd_state_slices_free(struct gd_state_slices *slices) {
  gd_mem_free(slices->all);
  *slices = (struct gd_state_slices){0};
}

struct named {
  const char *name;
  gd_tensor_id id;
};

static int compare_names(const void *a, const void *b) {
  return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static uint32_t add_named(const struct gd_graph *graph, gd_tensor_id id, struct named *out,
                          uint32_t n) {
  out[n] = (struct named){graph->tensors[id].name, id};
  return n + 1;
}

enum gd_status gd_state_parameters(const struct gd_graph *graph, gd_tensor_id **ids,
                                   uint32_t *count, struct gd_error *err) {
  uint32_t n = 0, unique = 0;
  struct named *found = gd_mem_alloc(2 * (size_t)graph->n_tensors + 1, sizeof *found);
  gd_tensor_id *sorted = gd_mem_alloc((size_t)graph->n_tensors + 1, sizeof *sorted);
  if (!found || !sorted) {
    gd_mem_free(found);
    gd_mem_free(sorted);
    return gd_nomem(err, "while listing the parameters of a run");
  }
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM && !graph->tensors[id].flat)
      n = add_named(graph, id, found, n);
  for (uint32_t i = 0; i < graph->n_flats; i++)
    for (uint32_t j = 0; j < graph->flats[i].n_pieces; j++)
      n = add_named(graph, graph->flats[i].pieces[j], found, n);
  qsort(found, n, sizeof *found, compare_names);
  for (uint32_t i = 0; i < n;
       i++) /* one parameter may be in several flats: gradients have theirs */
    if (i == 0 || strcmp(found[i].name, found[i - 1].name) != 0)
      sorted[unique++] = found[i].id;
  gd_mem_free(found);
  *ids = sorted;
  *count = unique;
  return GD_OK;
}

/* --- out ----------------------------------------------------------------------------------- */

enum gd_status gd_state_read(struct gd_run *run, const struct gd_state_slice *slice, int64_t first,
                             int64_t count, float *out, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[GD_RUN_FULL];
  const int64_t size = sizeof *out;
  return run->backend->ops->read(
      run->backend, plan->graph->tensors[slice->leaf].space,
      plan->offset_bytes[slice->leaf] + (slice->leaf_first + first) * size, out, count * size, err);
}

enum gd_status gd_state_read_scalars(struct gd_run *run, struct gd_state_scalars *scalars,
                                     struct gd_error *err) {
  const struct gd_graph *graph = run->plan[GD_RUN_FULL]->graph;
  float scale[2], step[2];
  GD_TRY(gd_run_read(run, graph->step, step, err));
  GD_TRY(gd_run_read(run, graph->loss_scale, scale, err));
  scalars->step = step[0];
  scalars->loss_scale = scale[0];
  scalars->good_steps = scale[1];
  return GD_OK;
}

/* --- in ------------------------------------------------------------------------------------ */

static enum gd_status write_floats(struct gd_run *run, gd_tensor_id leaf, int64_t first,
                                   const float *values, int64_t count, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[GD_RUN_FULL];
  const int64_t size = sizeof *values;
  return run->backend->ops->write(run->backend, plan->graph->tensors[leaf].space,
                                  plan->offset_bytes[leaf] + first * size, values, count * size,
                                  err);
}

static enum gd_status restore_slice(struct gd_run *run, const struct gd_family *family,
                                    const struct gd_safetensors *file,
                                    const struct gd_state_slice *slice, float *chunk,
                                    struct gd_error *err) {
  const struct gd_tensor *t = &run->plan[GD_RUN_FULL]->graph->tensors[slice->parameter];
  const char *prefix = gd_state_prefix(slice->kind);
  const struct gd_safetensor *stored = gd_find_parameter(family, file, prefix, t->name);
  if (!stored || stored->rank != t->rank ||
      memcmp(t->dims, stored->dims, t->rank * sizeof *t->dims) != 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: tensor \"%s%s\" %s; is it another model's checkpoint?",
                   file->path, prefix, t->name, stored ? "has other dims" : "is missing");
  for (int64_t at = 0; at < slice->count; at += CHUNK_ELEMENTS) {
    int64_t count = slice->count - at < CHUNK_ELEMENTS ? slice->count - at : CHUNK_ELEMENTS;
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++)
      chunk[i] = gd_safetensor_value(stored, slice->first + at + i);
    GD_TRY(write_floats(run, slice->leaf, slice->leaf_first + at, chunk, count, err));
  }
  return GD_OK;
}

static enum gd_status restore_tensors(struct gd_run *run, const struct gd_family *family,
                                      const struct gd_safetensors *parameters,
                                      const struct gd_safetensors *moments, struct gd_error *err) {
  struct gd_state_slices slices;
  GD_TRY(gd_state_list(run->plan[GD_RUN_FULL]->graph, false, &slices, err));
  float *chunk = gd_mem_alloc(CHUNK_ELEMENTS, sizeof *chunk);
  enum gd_status status = chunk ? GD_OK : gd_nomem(err, "while restoring a run");
  for (uint32_t i = 0; i < slices.count && status == GD_OK; i++) {
    const struct gd_state_slice *slice = &slices.all[i];
    status = restore_slice(run, family, slice->kind == GD_STATE_PARAM ? parameters : moments, slice,
                           chunk, err);
  }
  gd_mem_free(chunk);
  gd_state_slices_free(&slices);
  return status;
}

enum gd_status gd_state_restore(struct gd_run *run, const struct gd_family *family,
                                const struct gd_safetensors *parameters,
                                const struct gd_safetensors *moments,
                                const struct gd_state_scalars *scalars, struct gd_error *err) {
  const struct gd_graph *graph = run->plan[GD_RUN_FULL]->graph;
  const float scale[2] = {scalars->loss_scale, scalars->good_steps};
  GD_TRY(gd_run_init(run, 0, err)); /* constants, and zeros in the padding of flat leaves */
  GD_TRY(restore_tensors(run, family, parameters, moments, err));
  GD_TRY(write_floats(run, graph->step, 0, &scalars->step, 1, err));
  GD_TRY(write_floats(run, graph->loss_scale, 0, scale, 2, err));
  GD_TRY(run->backend->ops->run(run->backend, run->bound[GD_RUN_FULL], GD_PROGRAM_INIT, err));
  return run->backend->ops->sync(run->backend, err);
}

enum gd_status gd_state_clear_gradients(struct gd_run *run, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[GD_RUN_FULL];
  const struct gd_graph *graph = plan->graph;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    if (t->role == GD_ROLE_GRAD && t->producer == GD_NONE && t->alias_of == GD_NONE)
      GD_TRY(run->backend->ops->clear(run->backend, t->space, plan->offset_bytes[id],
                                      gd_tensor_bytes(graph, id), err));
  }
  return GD_OK;
}
