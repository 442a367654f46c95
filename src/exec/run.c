/*
 * Runs: filling the leaves of a plan, and calling its programs.
 */
#include "exec/run.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "model/aliases.h"

/* Leaves are filled through a small buffer, so that filling never needs memory the plan lacks;
   threads share its pieces, since a billion normal deviates take one of them half a minute. */
enum { PIECE_ELEMENTS = 1 << 13, CHUNK_ELEMENTS = 64 * PIECE_ELEMENTS };
enum { MASKED_PERCENT = 15 }; /* of the tokens of a masked model are predicted: BERT's rate */

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while preparing a run");
}

enum gd_status gd_run_open_parts(struct gd_run *run, struct gd_backend *backend,
                                 const struct gd_plan *const plans[GD_RUN_PARTS],
                                 struct gd_error *err) {
  int64_t device_bytes = 0, host_bytes = 0;
  *run = (struct gd_run){.backend = backend};
  for (int part = 0; part < GD_RUN_PARTS; part++) {
    run->plan[part] = plans[part];
    if (plans[part] && plans[part]->device_bytes > device_bytes)
      device_bytes = plans[part]->device_bytes;
    if (plans[part] && plans[part]->host_bytes > host_bytes)
      host_bytes = plans[part]->host_bytes;
  }
  enum gd_status status = backend->ops->reserve(backend, device_bytes, host_bytes, err);
  for (int part = 0; part < GD_RUN_PARTS && status == GD_OK; part++)
    if (run->plan[part])
      status = backend->ops->bind(backend, run->plan[part], &run->bound[part], err);
  if (status != GD_OK)
    gd_run_close(run);
  return status;
}

enum gd_status gd_run_open(struct gd_run *run, struct gd_backend *backend,
                           const struct gd_plan *full, const struct gd_plan *remainder,
                           struct gd_error *err) {
  const struct gd_plan *plans[GD_RUN_PARTS] = {
      [GD_RUN_FULL] = full, [GD_RUN_REMAINDER] = remainder, [GD_RUN_EVALUATION] = NULL};
  return gd_run_open_parts(run, backend, plans, err);
}

void gd_run_close(struct gd_run *run) {
  for (int part = 0; part < GD_RUN_PARTS; part++)
    if (run->bound[part])
      run->backend->ops->unbind(run->backend, run->bound[part]);
  *run = (struct gd_run){0};
}

/* Writes bytes of a leaf, from first_byte on. */
static enum gd_status write_leaf(struct gd_run *run, const struct gd_plan *plan, gd_tensor_id id,
                                 int64_t first_byte, const void *from, int64_t bytes,
                                 struct gd_error *err) {
  return run->backend->ops->write(run->backend, plan->graph->tensors[id].space,
                                  plan->offset_bytes[id] + first_byte, from, bytes, err);
}

static enum gd_status write_scalars(struct gd_run *run, const struct gd_plan *plan, gd_tensor_id id,
                                    const float *values, int count, struct gd_error *err) {
  return write_leaf(run, plan, id, 0, values, count * (int64_t)sizeof *values, err);
}

/* --- filling leaves ------------------------------------------------------------------------ */

/* Elements first .. first + count of the values that a leaf is initialised with. */
static void initial_values(const struct gd_tensor *t, uint64_t seed, int64_t first, float *out,
                           int64_t count) {
  switch (t->init) {
  case GD_INIT_ZEROS:
  case GD_INIT_ONES:
    for (int64_t i = 0; i < count; i++)
      out[i] = t->init == GD_INIT_ONES ? 1.0f : 0.0f;
    return;
  case GD_INIT_NORMAL:
    gd_rng_normal(seed, gd_hash_string(t->name), t->init_value, first, out, count);
    return;
  case GD_INIT_UNIFORM:
    gd_rng_uniforms(seed, gd_hash_string(t->name), -t->init_value, t->init_value, first, out,
                    count);
    return;
  case GD_INIT_CONSTANT:
    for (int64_t i = 0; i < count; i++)
      out[i] = (float)t->init_value;
    return;
  case GD_INIT_LOG_INDEX:
    for (int64_t i = 0; i < count; i++)
      out[i] = (float)log(1 + (double)((first + i) % t->dims[t->rank - 1]));
    return;
  case GD_INIT_STEPS: /* inverse softplus of the step, stable for any step */
    gd_rng_uniforms(seed, gd_hash_string(t->name), log(t->init_low), log(t->init_value), first, out,
                    count);
    for (int64_t i = 0; i < count; i++) {
      double step = exp((double)out[i]);
      out[i] = (float)(step + log(-expm1(-step)));
    }
    return;
  case GD_INIT_ROPE:
    for (int64_t i = 0; i < count; i++) {
      /* Angles in fp32 as transformers computes them: inv_freq and t * inv_freq are rounded. */
      int64_t rotary = t->dims[1], row = (first + i) / rotary, column = (first + i) % rotary;
      int64_t pair = column % (rotary / 2);
      double angle = (double)((float)row * t->frequencies[pair]);
      out[i] = (float)((column < rotary / 2 ? cos(angle) : sin(angle)) * t->init_value);
    }
    return;
  }
}

/* Whether a leaf starts from its init rule (true) or as zeros (false). */
static bool has_init(const struct gd_tensor *t) {
  return t->role == GD_ROLE_PARAM || t->role == GD_ROLE_CONST;
}

/* Where parameters come from: their init rules, or a file. */
struct source {
  uint64_t seed;
  const struct gd_family *family;
  const struct gd_safetensors *file; /* NULL: the rules */
};

/* Elements first .. first + count of a parameter or a constant. */
static void values_of(const struct source *source, const struct gd_tensor *t, int64_t first,
                      float *out, int64_t count) {
  const struct gd_safetensor *stored =
      source->file && t->role != GD_ROLE_CONST
          ? gd_find_parameter(source->family, source->file, "", t->name)
          : NULL;
  if (!stored) {
    initial_values(t, source->seed, first, out, count);
    return;
  }
  for (int64_t i = 0; i < count; i++)
    out[i] = gd_safetensor_value(stored, first + i);
}

/* The same for a flat leaf: the values of the pieces that lie there, zeros as padding. */
static void flat_values(const struct gd_graph *graph, const struct source *source,
                        const struct gd_tensor *leaf, int64_t first, float *out, int64_t count) {
  const struct gd_flat *flat = &graph->flats[leaf->flat - 1];
  int64_t begin = leaf->flat_first + first, end = begin + count;
  memset(out, 0, (size_t)count * sizeof *out);
  for (uint32_t i = 0; i < flat->n_pieces; i++) {
    int64_t start = flat->starts[i];
    int64_t stop = start + gd_tensor_elements(graph, flat->pieces[i]);
    int64_t from = start > begin ? start : begin, to = stop < end ? stop : end;
    if (from < to)
      values_of(source, &graph->tensors[flat->pieces[i]], from - start, out + (from - begin),
                to - from);
  }
}

static void chunk_values(const struct gd_graph *graph, const struct source *source,
                         const struct gd_tensor *t, int64_t first, float *out, int64_t count) {
#pragma omp parallel for schedule(dynamic)
  for (int64_t at = 0; at < count; at += PIECE_ELEMENTS) {
    int64_t piece = count - at < PIECE_ELEMENTS ? count - at : PIECE_ELEMENTS;
    if (t->flat)
      flat_values(graph, source, t, first + at, out + at, piece);
    else
      values_of(source, t, first + at, out + at, piece);
  }
}

/* Writes every persistent leaf. */
static enum gd_status fill_leaves(struct gd_run *run, const struct source *source,
                                  struct gd_error *err) {
  const struct gd_plan *plan = run->plan[GD_RUN_FULL];
  const struct gd_graph *graph = plan->graph;
  float *chunk = gd_mem_alloc(CHUNK_ELEMENTS, sizeof *chunk);
  enum gd_status status = chunk ? GD_OK : no_memory(err);
  for (gd_tensor_id id = 0; id < graph->n_tensors && status == GD_OK; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    if (t->producer != GD_NONE || t->role == GD_ROLE_INPUT || t->role == GD_ROLE_PARAM_COMPUTE ||
        t->role == GD_ROLE_PIECE)
      continue;
    int64_t elements = gd_tensor_elements(graph, id);
    if (!has_init(t))
      status = run->backend->ops->clear(run->backend, t->space, plan->offset_bytes[id],
                                        gd_tensor_bytes(graph, id), err);
    for (int64_t first = 0; has_init(t) && first < elements && status == GD_OK;
         first += CHUNK_ELEMENTS) {
      int64_t count = elements - first < CHUNK_ELEMENTS ? elements - first : CHUNK_ELEMENTS;
      chunk_values(graph, source, t, first, chunk, count);
      status = write_leaf(run, plan, id, first * (int64_t)sizeof *chunk, chunk,
                          count * (int64_t)sizeof *chunk, err);
    }
  }
  gd_mem_free(chunk);
  if (status != GD_OK)
    return status;
  /* 2^16: the first loss scale of PyTorch's GradScaler; 1 where nothing is scaled. */
  bool scaled = false;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    scaled |= gd_op_info(graph->ops[id].kind)->attr == GD_ATTR_control &&
              graph->ops[id].attr.control.dynamic_scale;
  float scale[2] = {scaled ? 65536.0f : 1.0f, 0};
  if (graph->loss_scale != GD_NONE)
    GD_TRY(write_scalars(run, plan, graph->loss_scale, scale, 2, err));
  GD_TRY(run->backend->ops->run(run->backend, run->bound[GD_RUN_FULL], GD_PROGRAM_INIT, err));
  return run->backend->ops->sync(run->backend, err);
}

enum gd_status gd_run_init(struct gd_run *run, uint64_t seed, struct gd_error *err) {
  return fill_leaves(run, &(struct source){.seed = seed}, err);
}

/* By tensor: whether it is a parameter, as a leaf of its own or as a piece of a flat one. */
static void find_params(const struct gd_graph *graph, bool *is_param) {
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    is_param[id] = graph->tensors[id].role == GD_ROLE_PARAM && !graph->tensors[id].flat;
  for (uint32_t i = 0; i < graph->n_flats; i++)
    for (uint32_t j = 0; j < graph->flats[i].n_pieces; j++)
      is_param[graph->flats[i].pieces[j]] = true;
}

static enum gd_status check_file(const struct gd_graph *graph, const struct gd_family *family,
                                 const struct gd_safetensors *file, struct gd_error *err) {
  enum gd_status status = GD_OK;
  bool *known = gd_mem_alloc(file->count, sizeof *known); /* by tensor of the file */
  bool *is_param = gd_mem_alloc(graph->n_tensors, sizeof *is_param);
  if (!known || !is_param) {
    gd_mem_free(known);
    gd_mem_free(is_param);
    return no_memory(err);
  }
  find_params(graph, is_param);
  for (gd_tensor_id id = 0; id < graph->n_tensors && status == GD_OK; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    if (!is_param[id])
      continue;
    const struct gd_safetensor *stored = gd_find_parameter(family, file, "", t->name);
    if (!stored)
      status =
          gd_fail(err, GD_BAD_INPUT, "%s: tensor \"%s\" is missing; is it another model's file?",
                  file->path, t->name);
    else if (t->rank != stored->rank ||
             memcmp(t->dims, stored->dims, t->rank * sizeof *t->dims) != 0)
      status =
          gd_fail(err, GD_BAD_INPUT, "%s: tensor \"%s\" has other dims than config.json asks for",
                  file->path, t->name);
    else
      known[stored - file->tensors] = true;
  }
  for (uint32_t i = 0; i < file->count && status == GD_OK; i++)
    if (!known[i] && !(family->ignores_tensor && family->ignores_tensor(file->tensors[i].name)))
      status = gd_fail(err, GD_BAD_INPUT,
                       "%s: tensor \"%s\" is no parameter of this model; is it another model's "
                       "file?",
                       file->path, file->tensors[i].name);
  gd_mem_free(known);
  gd_mem_free(is_param);
  return status;
}

enum gd_status gd_run_load(struct gd_run *run, const struct gd_family *family,
                           const struct gd_safetensors *file, struct gd_error *err) {
  GD_TRY(check_file(run->plan[GD_RUN_FULL]->graph, family, file, err));
  return fill_leaves(run, &(struct source){.family = family, .file = file}, err);
}

/* --- batches ------------------------------------------------------------------------------- */

int64_t gd_batch_valid_labels(const struct gd_graph *graph, const int32_t *labels) {
  const struct gd_tensor *t = &graph->tensors[graph->labels];
  GD_ASSERT(t->dtype == GD_DTYPE_I32);
  int64_t count = gd_tensor_elements(graph, graph->labels), valid = 0;
  int64_t seq = t->rank ? t->dims[t->rank - 1] : 1;
  for (int64_t i = 0; i < count; i++)
    valid += labels[i] != -100 && !(graph->predicts_next && i % seq == 0);
  return valid;
}

static enum gd_status write_inputs(struct gd_run *run, enum gd_run_part part,
                                   const struct gd_batch *batch, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[part];
  const struct gd_graph *graph = plan->graph;
  const struct {
    gd_tensor_id id;
    const void *data;
  } inputs[] = {{graph->ids, batch->ids},
                {graph->pixels, batch->pixels},
                {graph->labels, batch->targets ? (const void *)batch->targets : batch->labels}};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    if (inputs[i].id != GD_NONE) {
      GD_ASSERT(inputs[i].data);
      GD_TRY(write_leaf(run, plan, inputs[i].id, 0, inputs[i].data,
                        gd_tensor_bytes(graph, inputs[i].id), err));
    }
  return GD_OK;
}

enum gd_status gd_run_batch(struct gd_run *run, enum gd_run_part part, const struct gd_batch *batch,
                            struct gd_error *err) {
  float weight = (float)batch->weight;
  GD_TRY(write_inputs(run, part, batch, err));
  return write_scalars(run, run->plan[part], run->plan[part]->graph->loss_weight, &weight, 1, err);
}

enum gd_status gd_run_send(struct gd_run *run, enum gd_run_part part, struct gd_error *err) {
  struct gd_batch batch;
  void *inputs, *labels;
  gd_run_stage(run, part, 0, &batch, &inputs, &labels);
  return write_inputs(run, part, &batch, err);
}

void gd_run_stage(struct gd_run *run, enum gd_run_part part, double weight, struct gd_batch *batch,
                  void **inputs, void **labels) {
  const struct gd_graph *graph = run->plan[part]->graph;
  bool images = graph->pixels != GD_NONE, soft = graph->hits != GD_NONE;
  char *memory = run->backend->ops->host_memory(run->backend);
  *inputs = memory + run->plan[part]->staging_at;
  *labels = (char *)*inputs + gd_tensor_bytes(graph, images ? graph->pixels : graph->ids);
  *batch = (struct gd_batch){.ids = images ? NULL : *inputs,
                             .pixels = images ? *inputs : NULL,
                             .labels = soft ? NULL : *labels,
                             .weight = weight,
                             .targets = soft ? *labels : NULL};
}

double gd_run_step_share(const struct gd_run *run, enum gd_run_part part) {
  const struct gd_graph *graph = run->plan[part]->graph;
  double samples = (double)graph->tensors[graph->labels].dims[0] * graph->ranks;
  return run->batch > 0 ? samples / (double)run->batch : 1;
}

double gd_run_counted_share(const struct gd_graph *graph) {
  return graph->ids == GD_NONE || graph->predicts_next ? 1 : MASKED_PERCENT / 100.0;
}

enum gd_status gd_run_random_batch(struct gd_run *run, enum gd_run_part part, int64_t classes,
                                   uint64_t seed, struct gd_error *err) {
  const struct gd_graph *graph = run->plan[part]->graph;
  char *staging = run->backend->ops->host_memory(run->backend);
  staging += run->plan[part]->staging_at;
  int64_t n_labels = gd_tensor_elements(graph, graph->labels);
  const uint64_t stream = gd_hash_string("batch") + (uint64_t)part;
  int32_t *ids = NULL, *labels;
  float *pixels = NULL;
  if (graph->ids != GD_NONE) {
    ids = (int32_t *)staging;
    labels = ids + gd_tensor_elements(graph, graph->ids);
    for (int64_t i = 0; i < n_labels; i++) {
      ids[i] = (int32_t)gd_rng_below(seed, stream, (uint64_t)i, classes);
      bool counts =
          graph->predicts_next || gd_rng_below(seed, stream + 7, (uint64_t)i, 100) < MASKED_PERCENT;
      labels[i] = counts ? ids[i] : -100;
    }
    labels[n_labels - 1] = ids[n_labels - 1]; /* never a batch without a label */
  } else {
    int64_t n_pixels = gd_tensor_elements(graph, graph->pixels);
    pixels = (float *)staging;
    labels = (int32_t *)(pixels + n_pixels);
    gd_rng_normal(seed, stream, 1, 0, pixels, n_pixels);
    for (int64_t i = 0; i < n_labels; i++)
      labels[i] = (int32_t)gd_rng_below(seed, stream + 7, (uint64_t)i, classes);
  }
  double valid = (double)gd_batch_valid_labels(graph, labels);
  struct gd_batch batch = {.ids = ids,
                           .pixels = pixels,
                           .labels = labels,
                           .weight = gd_run_step_share(run, part) / graph->ranks / valid};
  GD_TRY(gd_run_seed(run, part, (uint32_t)seed, 0, 0, err));
  return gd_run_batch(run, part, &batch, err);
}

enum gd_status gd_run_seed(struct gd_run *run, enum gd_run_part part, uint32_t seed, int64_t step,
                           int64_t first_sample, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[part];
  int32_t values[3] = {(int32_t)seed, (int32_t)step, (int32_t)first_sample};
  if (plan->graph->dropout_seed == GD_NONE)
    return GD_OK;
  return write_leaf(run, plan, plan->graph->dropout_seed, 0, values, sizeof values, err);
}

/* --- programs ------------------------------------------------------------------------------ */

enum gd_status gd_run_start(struct gd_run *run, enum gd_run_part part, bool last,
                            struct gd_error *err) {
  return run->backend->ops->run(run->backend, run->bound[part],
                                last ? GD_PROGRAM_LAST_MICRO_STEP : GD_PROGRAM_MICRO_STEP, err);
}

enum gd_status gd_run_wait(struct gd_run *run, struct gd_error *err) {
  return run->backend->ops->sync(run->backend, err);
}

enum gd_status gd_run_micro_step(struct gd_run *run, enum gd_run_part part, struct gd_error *err) {
  GD_TRY(gd_run_start(run, part, false, err));
  return gd_run_wait(run, err);
}

enum gd_status gd_run_last_micro_step(struct gd_run *run, enum gd_run_part part,
                                      struct gd_error *err) {
  GD_TRY(gd_run_start(run, part, true, err));
  return gd_run_wait(run, err);
}

enum gd_status gd_run_update(struct gd_run *run, double lr, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[GD_RUN_FULL];
  float value = (float)lr;
  GD_TRY(write_scalars(run, plan, plan->graph->lr, &value, 1, err));
  GD_TRY(run->backend->ops->run(run->backend, run->bound[GD_RUN_FULL], GD_PROGRAM_UPDATE, err));
  return run->backend->ops->sync(run->backend, err);
}

enum gd_status gd_run_limit_norm(struct gd_run *run, float most, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[GD_RUN_FULL];
  return write_leaf(run, plan, plan->graph->step, sizeof most, &most, sizeof most, err);
}

/* An update that skips itself, whatever the norm; it may have touched the loss scale. */
enum gd_status gd_run_take_norm(struct gd_run *run, double *norm, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[GD_RUN_FULL];
  float scale[2], step[2];
  GD_TRY(gd_run_read(run, plan->graph->loss_scale, scale, err));
  GD_TRY(gd_run_read(run, plan->graph->step, step, err));
  GD_TRY(gd_run_limit_norm(run, FLT_MIN, err));
  GD_TRY(gd_run_update(run, 0, err));
  GD_TRY(gd_run_norm(run, norm, err));
  GD_TRY(write_scalars(run, plan, plan->graph->loss_scale, scale, 2, err));
  return write_scalars(run, plan, plan->graph->step, step, 2, err);
}

/* --- results ------------------------------------------------------------------------------- */

/* Reads a sum and begins it anew. */
static enum gd_status take_sum(struct gd_run *run, gd_tensor_id sum, double *out,
                               struct gd_error *err) {
  float value = 0, zero = 0;
  GD_TRY(gd_run_read(run, sum, &value, err));
  GD_TRY(write_scalars(run, run->plan[GD_RUN_FULL], sum, &zero, 1, err));
  *out = (double)value;
  return GD_OK;
}

enum gd_status gd_run_take_loss(struct gd_run *run, double *loss, struct gd_error *err) {
  const struct gd_graph *graph = run->plan[GD_RUN_FULL]->graph;
  float value = 0;
  if (graph->loss_sum != GD_NONE)
    return take_sum(run, graph->loss_sum, loss, err);
  GD_TRY(gd_run_read(run, graph->loss, &value, err)); /* exec/forward.h: of the last batch */
  *loss = (double)value;
  return GD_OK;
}

enum gd_status gd_run_take_hits(struct gd_run *run, double *hits, struct gd_error *err) {
  const struct gd_graph *graph = run->plan[GD_RUN_FULL]->graph;
  float value = 0;
  if (graph->hits_sum != GD_NONE)
    return take_sum(run, graph->hits_sum, hits, err);
  if (graph->hits != GD_NONE) /* likewise */
    GD_TRY(gd_run_read(run, graph->hits, &value, err));
  *hits = (double)value;
  return GD_OK;
}

enum gd_status gd_run_norm(struct gd_run *run, double *norm, struct gd_error *err) {
  float value = 0;
  GD_TRY(gd_run_read(run, run->plan[GD_RUN_FULL]->graph->norm, &value, err));
  *norm = (double)value;
  return GD_OK;
}

enum gd_status gd_run_read(struct gd_run *run, gd_tensor_id id, float *out, struct gd_error *err) {
  const struct gd_plan *plan = run->plan[GD_RUN_FULL];
  const struct gd_tensor *t = &plan->graph->tensors[id];
  int64_t elements = gd_tensor_elements(plan->graph, id);
  int64_t bytes = gd_tensor_bytes(plan->graph, id);
  if (t->dtype == GD_DTYPE_F32)
    return run->backend->ops->read(run->backend, t->space, plan->offset_bytes[id], out, bytes, err);
  void *raw = gd_mem_alloc(1, (size_t)bytes);
  if (!raw)
    return no_memory(err);
  enum gd_status status =
      run->backend->ops->read(run->backend, t->space, plan->offset_bytes[id], raw, bytes, err);
  for (int64_t i = 0; i < elements && status == GD_OK; i++)
    out[i] = gd_dtype_load(t->dtype, raw, i);
  gd_mem_free(raw);
  return status;
}
