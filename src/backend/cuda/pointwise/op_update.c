/*
 * The update program on the CUDA backend: sum_squares, control, adam, alone or several at once
 * (multi_tensor.h). The kernels, and what they promise of their numbers, are in kernels/update.cu.
 */
#include <math.h>

#include "backend/cuda/kernels/update_args.cuh"
#include "backend/cuda/runtime/cuda_int.h"
#include "backend/cuda/runtime/multi_tensor.h"

static bool is_aligned(const void *data, int64_t bytes) {
  return (uintptr_t)data % (uintptr_t)bytes == 0;
}

static struct gd_cuda_kernel kernel_of(const char *name, enum gd_dtype type) {
  return (struct gd_cuda_kernel){.file = "update", .name = name, .n_types = 1, .types = {type}};
}

/* --- sum of squares -------------------------------------------------------------------------- */

enum {
  WHOLE_THREADS = 1024,
  WHOLE_ELEMENTS = 64 * WHOLE_THREADS, /* up to here one launch is quicker than two */
  PIECE_THREADS = 256,
  PIECE_ELEMENTS = 64 * PIECE_THREADS,
  MAX_PIECES = 8192, /* of a tensor */
};
_Static_assert(GD_SQUARES_ENTRIES *MAX_PIECES * sizeof(double) <= (size_t)GD_CUDA_WORKSPACE_BYTES,
               "the workspace holds all pieces of a launch");

static void append_squares(struct gd_squares_table *table, const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0];
  const int64_t most = (int64_t)PIECE_ELEMENTS * MAX_PIECES;
  int64_t each = PIECE_ELEMENTS * ((x->elements + most - 1) / most);
  int64_t pieces = x->elements > 0 ? (x->elements + each - 1) / each : 1;
  uint32_t begin = table->count ? table->at[table->count - 1].end : 0;
  table->at[table->count++] = (struct gd_squares_entry){.x = x->data,
                                                        .y = args->out[0].data,
                                                        .count = x->elements,
                                                        .each = each,
                                                        .end = begin + (uint32_t)pieces,
                                                        .wide = is_aligned(x->data, 16)};
}

static enum gd_status run_squares(const struct gd_cuda_call *call,
                                  const struct gd_kernel_args *args,
                                  struct gd_squares_table *table) {
  enum gd_dtype dtype = args->in[0].dtype;
  void *partials = args->workspace;
  uint32_t pieces = table->at[table->count - 1].end;
  struct gd_cuda_kernel adding = kernel_of("squares_pieces", dtype);
  struct gd_cuda_kernel totalling = kernel_of("squares_totals", dtype);
  struct gd_cuda_grid by_piece = {.x = pieces, .threads = PIECE_THREADS};
  struct gd_cuda_grid by_tensor = {.x = table->count, .threads = PIECE_THREADS};
  GD_ASSERT(args->workspace_bytes >= pieces * (int64_t)sizeof(double));
  GD_TRY(GD_CUDA_LAUNCH(call, &adding, by_piece, &partials, table));
  return GD_CUDA_LAUNCH(call, &totalling, by_tensor, &partials, table);
}

enum gd_status gd_cuda_op_sum_squares(const struct gd_cuda_call *call) {
  const struct gd_view *x = &call->args->in[0];
  bool wide = is_aligned(x->data, 16);
  int64_t count = x->elements;
  if (count > WHOLE_ELEMENTS) {
    struct gd_squares_table table = {.count = 0};
    append_squares(&table, call->args);
    return run_squares(call, call->args, &table);
  }
  struct gd_cuda_kernel kernel =
      kernel_of(wide ? "squares_whole_wide" : "squares_whole_narrow", x->dtype);
  struct gd_cuda_grid grid = {.x = 1, .threads = WHOLE_THREADS};
  void *y = call->args->out[0].data, *from = x->data;
  return GD_CUDA_LAUNCH(call, &kernel, grid, &y, &from, &count);
}

enum gd_status gd_cuda_multi_squares(const struct gd_cuda_call *call,
                                     const struct gd_cuda_step *steps, uint32_t n_steps,
                                     uint32_t *taken) {
  struct gd_squares_table table = {.count = 0};
  *taken = 0;
  while (*taken < n_steps && steps[*taken].kind == GD_OP_sum_squares &&
         steps[*taken].args->in[0].dtype == steps[0].args->in[0].dtype) {
    append_squares(&table, steps[(*taken)++].args);
    if (table.count == GD_SQUARES_ENTRIES) {
      GD_TRY(run_squares(call, steps[0].args, &table));
      table.count = 0;
    }
  }
  return table.count ? run_squares(call, steps[0].args, &table) : GD_OK;
}

/* --- control --------------------------------------------------------------------------------- */

enum { CONTROL_THREADS = 256 };

enum gd_status gd_cuda_op_control(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_control *attr = &args->attr->control;
  struct gd_control_rules rules = {attr->max_norm, attr->growth_interval, attr->dynamic_scale};
  struct gd_cuda_kernel kernel = kernel_of("control", GD_DTYPE_F32);
  struct gd_cuda_grid grid = {.x = 1, .threads = CONTROL_THREADS};
  void *step = args->out[0].data, *scale = args->out[1].data;
  void *norm = args->out[2].data, *factor = args->out[3].data, *carry = args->workspace;
  uint32_t next = 2;
  do {
    uint32_t left = args->n_in - next, taken = left < GD_CONTROL_SUMS ? left : GD_CONTROL_SUMS;
    struct gd_control_sums sums = {
        .count = (int32_t)taken, .first = next == 2, .last = next + taken == args->n_in};
    int64_t end = 0;
    for (uint32_t i = 0; i < taken; i++) {
      sums.from[i] = args->in[next + i].data;
      sums.end[i] = end += args->in[next + i].elements;
    }
    GD_TRY(
        GD_CUDA_LAUNCH(call, &kernel, grid, &step, &scale, &norm, &factor, &carry, &sums, &rules));
    next += taken;
  } while (next < args->n_in);
  return GD_OK;
}

/* --- Adam ------------------------------------------------------------------------------------ */

enum { ADAM_THREADS = 256, ADAM_ELEMENTS = 4 * ADAM_THREADS };

static struct gd_adam_rule rule_of(const struct gd_attr_adam *attr) {
  double beta1 = (double)attr->beta1, beta2 = (double)attr->beta2;
  return (struct gd_adam_rule){.beta1 = attr->beta1,
                               .beta2 = attr->beta2,
                               .rest1 = (float)(1 - beta1),
                               .rest2 = (float)(1 - beta2),
                               .log_beta1 = (float)log(beta1),
                               .log_beta2 = (float)log(beta2),
                               .eps = attr->eps,
                               .decoupled = attr->decoupled};
}

static enum gd_dtype copy_dtype(const struct gd_kernel_args *args) {
  return args->n_out > 3 ? args->out[3].dtype : GD_DTYPE_F32;
}

static void append_adam(struct gd_adam_table *table, const struct gd_kernel_args *args) {
  struct gd_adam_entry *entry = &table->at[table->count];
  *entry = (struct gd_adam_entry){.param = args->out[0].data,
                                  .m = args->out[1].data,
                                  .v = args->out[2].data,
                                  .grad = args->in[1].data,
                                  .copy = args->n_out > 3 ? args->out[3].data : NULL,
                                  .count = args->out[0].elements,
                                  .end = table->count ? table->at[table->count - 1].end : 0,
                                  .decay = args->attr->adam.weight_decay};
  entry->wide = is_aligned(entry->param, 16) && is_aligned(entry->m, 16) &&
                is_aligned(entry->v, 16) && is_aligned(entry->grad, 16) &&
                is_aligned(entry->copy, 4 * gd_dtype_bytes(copy_dtype(args)));
  entry->end += (uint32_t)((entry->count + ADAM_ELEMENTS - 1) / ADAM_ELEMENTS);
  table->count++;
}

static enum gd_status run_adam(const struct gd_cuda_call *call, const struct gd_kernel_args *args,
                               struct gd_adam_table *table) {
  struct gd_adam_rule rule = rule_of(&args->attr->adam);
  void *factor = args->in[4].data, *lr = args->in[5].data, *step = args->in[6].data;
  struct gd_cuda_kernel kernel = kernel_of("adam", copy_dtype(args));
  struct gd_cuda_grid grid = {.x = table->at[table->count - 1].end, .threads = ADAM_THREADS};
  return GD_CUDA_LAUNCH(call, &kernel, grid, table, &rule, &factor, &lr, &step);
}

enum gd_status gd_cuda_op_adam(const struct gd_cuda_call *call) {
  struct gd_adam_table table = {.count = 0};
  append_adam(&table, call->args);
  return run_adam(call, call->args, &table);
}

/* Whether two ops differ in nothing but tensors and decay. */
static bool same_adam(const struct gd_kernel_args *a, const struct gd_kernel_args *b) {
  const struct gd_attr_adam *x = &a->attr->adam, *y = &b->attr->adam;
  return x->beta1 == y->beta1 && x->beta2 == y->beta2 && x->eps == y->eps &&
         x->decoupled == y->decoupled && a->n_out == b->n_out && copy_dtype(a) == copy_dtype(b) &&
         a->in[4].data == b->in[4].data && a->in[5].data == b->in[5].data &&
         a->in[6].data == b->in[6].data;
}

/* The entry whose gradient a fill zeroes, or NULL. */
static struct gd_adam_entry *cleared_by(struct gd_adam_table *table,
                                        const struct gd_kernel_args *fill) {
  for (int32_t i = table->count; i-- > 0;)
    if (table->at[i].grad == fill->out[0].data && table->at[i].count == fill->out[0].elements &&
        fill->out[0].dtype == GD_DTYPE_F32 && fill->attr->fill.value == 0)
      return &table->at[i];
  return NULL;
}

enum gd_status gd_cuda_multi_adam(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                                  uint32_t n_steps, uint32_t *taken) {
  struct gd_adam_table table = {.count = 0};
  *taken = 0;
  if (n_steps == 0 || steps[0].kind != GD_OP_adam)
    return GD_OK;
  for (; *taken < n_steps; ++*taken) {
    const struct gd_cuda_step *step = &steps[*taken];
    if (step->kind == GD_OP_fill) {
      struct gd_adam_entry *entry = cleared_by(&table, step->args);
      if (!entry)
        break;
      entry->clear = true;
      continue;
    }
    if (step->kind != GD_OP_adam || !same_adam(step->args, steps[0].args))
      break;
    if (table.count == GD_ADAM_ENTRIES) {
      GD_TRY(run_adam(call, steps[0].args, &table));
      table.count = 0;
    }
    append_adam(&table, step->args);
  }
  return run_adam(call, steps[0].args, &table);
}
