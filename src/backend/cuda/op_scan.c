/*
 * The selective scan on CUDA, fused (scan.cu) and in parts (states.cu), with gradients. Letters:
 * B sequences, T steps, C channels, S states.
 *
 * db and dc are sums over channels: blocks leave shares per group of channels in the workspace,
 * which are added in order. Where the shares of all steps do not fit, the backward scan is cut into
 * slices of sequences and of steps; between slices of steps dL/dh is carried through the workspace.
 */
#include <stdio.h>

#include "backend/cuda/columns.h"

enum {
  DEFINES = 128,
  BLOCK = 256,
  FORWARD_THREADS = 128,
  SUM_BLOCKS = 1056, /* as in op_rows.c */
  MOST_ROWS = 65535, /* of a grid */
};

/* --- fused ---------------------------------------------------------------------------------- */

struct scan {
  char defines[DEFINES];
  struct gd_cuda_kernel kernel;
  int64_t batches, steps, channels, states, chunks;
  int64_t padded;         /* states, as threads have them */
  int64_t block_channels; /* channels of a block */
  int64_t groups;         /* blocks of a sequence */
  int threads, shared_bytes;
};

/* u, delta, A_log, b are inputs first .. first + 3. */
static struct scan scan_of(const struct gd_cuda_call *call, uint32_t first) {
  const struct gd_view *in = call->args->in + first;
  struct scan s = {.batches = in[0].dims[0],
                   .steps = in[0].dims[1],
                   .channels = in[0].dims[2],
                   .states = in[2].dims[1]};
  s.chunks = gd_cuda_ceil(s.steps, GD_SCAN_CHUNK);
  s.kernel =
      (struct gd_cuda_kernel){"scan", NULL, NULL, 3, {in[0].dtype, in[1].dtype, in[3].dtype}};
  return s;
}

static int vector_of(const struct gd_cuda_call *call, const struct scan *s) {
  return s->channels % 4 == 0 && gd_cuda_all_aligned(call->args, 16) ? 4 : 1;
}

enum gd_status gd_cuda_op_scan(const struct gd_cuda_call *call) {
  struct gd_cuda_data p = gd_cuda_data_of(call->args);
  struct scan s = scan_of(call, 0);
  int64_t lanes = s.states <= 16 ? 4 : s.states <= 32 ? 8 : 32;
  int64_t each = gd_cuda_power(gd_cuda_ceil(s.states, lanes));
  bool pairs = s.channels % 2 == 0 && gd_cuda_all_aligned(call->args, 16);
  snprintf(s.defines, sizeof s.defines,
           "FORWARD=1 STATES=%lld LANES=%d SP=%d VEC=%d THREADS=%d MIN_BLOCKS=%d",
           (long long)s.states, (int)lanes, (int)each, pairs ? 2 : 1, FORWARD_THREADS,
           s.states <= 16   ? 5
           : s.states <= 32 ? 4
                            : 1);
  s.kernel.name = "scan";
  s.kernel.defines = s.defines;
  struct gd_cuda_grid grid = {.threads = FORWARD_THREADS};
  grid.x = s.steps ? s.batches * gd_cuda_ceil(s.channels, FORWARD_THREADS / lanes) : 0;
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.in[3], &p.in[4],
                        &p.in[5], &p.out[0], &p.out[1], &s.steps, &s.channels);
}

/* What a slice of the backward scan leaves in the workspace, per sequence. */
struct slices {
  int64_t batches;     /* sequences of a slice */
  int64_t chunks;      /* chunks of a slice */
  int64_t fixed_bytes; /* dA_log, dL/dh and dd */
  int64_t chunk_bytes; /* db and dc of a chunk, by group */
};

static enum gd_status slices_of(const struct gd_cuda_call *call, const struct scan *s,
                                struct slices *slices) {
  int64_t bytes = call->args->workspace_bytes, few = gd_cuda_least(s->chunks, 4);
  *slices = (struct slices){.batches = s->batches, .chunks = s->chunks};
  slices->fixed_bytes = s->channels * (2 * s->states + 1) * 4;
  slices->chunk_bytes = s->groups * GD_SCAN_CHUNK * 2 * s->states * 4;
  /* As many sequences at once as leave room for a few chunks each: these run side by side. */
  int64_t least = slices->fixed_bytes + few * slices->chunk_bytes;
  if (s->batches * least > bytes) {
    int64_t at_once = gd_cuda_most(bytes / least, 1);
    slices->batches = gd_cuda_ceil(s->batches, gd_cuda_ceil(s->batches, at_once));
  }
  int64_t each = bytes / gd_cuda_most(slices->batches, 1) - slices->fixed_bytes;
  if (each < slices->chunk_bytes || each < 0)
    return gd_fail(call->err, GD_UNSUPPORTED,
                   "the scan's gradient over %lld channels and %lld states needs a workspace of "
                   "%lld bytes, not %lld: use fewer channels",
                   (long long)s->channels, (long long)s->states,
                   (long long)(slices->fixed_bytes + slices->chunk_bytes), (long long)bytes);
  if (slices->chunk_bytes && each < s->chunks * slices->chunk_bytes) {
    int64_t at_once = each / slices->chunk_bytes;
    slices->chunks = gd_cuda_ceil(s->chunks, gd_cuda_ceil(s->chunks, at_once));
  }
  return GD_OK;
}

/* One slice: sequences [batch, batch + batches), chunks [begin, end). */
static enum gd_status grad_slice(const struct gd_cuda_call *call, struct scan *s, int64_t batch,
                                 int64_t batches, int64_t begin, int64_t end, bool whole,
                                 bool first) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  int64_t width = s->channels * s->states;
  float *partial_a = a->workspace, *carry = partial_a + batches * width;
  float *partial_d = carry + batches * width, *partial = partial_d + batches * s->channels;
  int from_carry = end < s->chunks;
  void *carried = whole ? NULL : carry;
  struct gd_cuda_grid grid = {
      .x = batches * s->groups, .threads = s->threads, .shared_bytes = s->shared_bytes};
  s->kernel.name = "scan_grad";
  GD_TRY(GD_CUDA_LAUNCH(call, &s->kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.in[3], &p.in[4],
                        &p.in[5], &p.in[6], &p.in[7], &p.out[0], &p.out[1], &partial, &partial_a,
                        &partial_d, &carried, &from_carry, &batch, &begin, &end, &s->steps,
                        &s->channels));
  int64_t from = begin * GD_SCAN_CHUNK;
  int64_t part_steps = gd_cuda_least(end * GD_SCAN_CHUNK, s->steps) - from;
  grid = (struct gd_cuda_grid){.x = gd_cuda_ceil(batches * part_steps * 2 * s->states, BLOCK),
                               .threads = BLOCK};
  s->kernel.name = "scan_sums";
  GD_TRY(GD_CUDA_LAUNCH(call, &s->kernel, grid, &partial, &p.out[3], &p.out[4], &batches,
                        &s->groups, &part_steps, &batch, &from, &s->steps));
  struct gd_cuda_sums sums = {.x = partial_a,
                              .dtype = GD_DTYPE_F32,
                              .rows = batches,
                              .columns = width,
                              .stride = width,
                              .out = p.out[2],
                              .out_dtype = GD_DTYPE_F32,
                              .adds = gd_kernel_adds(a, 2) || !first};
  GD_TRY(gd_cuda_sum_columns(call, sums));
  sums.x = partial_d;
  sums.columns = sums.stride = s->channels;
  sums.out = p.out[5];
  sums.adds = gd_kernel_adds(a, 5) || !first;
  return gd_cuda_sum_columns(call, sums);
}

enum gd_status gd_cuda_op_scan_grad(const struct gd_cuda_call *call) {
  struct scan s = scan_of(call, 1);
  bool wide = s.states > 32; /* as scan.cu has it: b and c are not kept in shared memory */
  int64_t lanes = wide ? 32 : 8, each = gd_cuda_power(gd_cuda_ceil(s.states, lanes));
  int64_t pair = each <= 2 && !wide ? 2 : 1; /* channels of a thread */
  s.threads = wide ? 128 : 256;
  s.padded = lanes * each;
  s.block_channels = s.threads / lanes * pair;
  s.groups = gd_cuda_ceil(s.channels, s.block_channels);
  int64_t warps = s.threads / 32;
  int64_t floats = 3 * GD_SCAN_CHUNK * (s.block_channels + 4) + 8 * pair * each * s.threads +
                   warps * 8 * 2 * s.padded + (wide ? 0 : 2 * GD_SCAN_CHUNK * s.padded);
  s.shared_bytes = (int)(floats * 4);
  if (s.shared_bytes > call->cuda->shared_bytes)
    return gd_fail(call->err, GD_UNSUPPORTED,
                   "the scan's gradient over %lld states needs %d bytes of shared memory, of which "
                   "this GPU has %d: use fewer states",
                   (long long)s.states, s.shared_bytes, call->cuda->shared_bytes);
  snprintf(s.defines, sizeof s.defines,
           "BACKWARD=1 STATES=%lld LANES=%d SP=%d CP=%d VEC=%d THREADS=%d MIN_BLOCKS=%d",
           (long long)s.states, (int)lanes, (int)each, (int)pair, vector_of(call, &s), s.threads,
           each <= 2 && !wide ? 2 : 1);
  s.kernel.defines = s.defines;
  struct slices slices;
  GD_TRY(slices_of(call, &s, &slices));
  bool first = true;
  int64_t batch = 0;
  do { /* once at least: sums over nothing are 0 */
    int64_t batches = gd_cuda_least(slices.batches, s.batches - batch), end = s.chunks;
    do {
      int64_t begin = gd_cuda_most(end - slices.chunks, 0);
      GD_TRY(grad_slice(call, &s, batch, batches, begin, end, slices.chunks == s.chunks, first));
      first = false;
      end = begin;
    } while (end > 0);
    batch += batches;
  } while (batch < s.batches);
  return GD_OK;
}

/* --- in parts -------------------------------------------------------------------------------- */

struct parts {
  char defines[DEFINES];
  struct gd_cuda_kernel kernel;
  int64_t batches, steps, rows, channels, states;
  int64_t width; /* positions: channels * states */
  int64_t vec;
};

/* states: a view [B,T,C,S]. */
static void parts_init(struct parts *s, const struct gd_cuda_call *call, const char *name,
                       const struct gd_view *states, enum gd_dtype type0, enum gd_dtype type1) {
  *s = (struct parts){.batches = states->dims[0],
                      .steps = states->dims[1],
                      .channels = states->dims[2],
                      .states = states->dims[3]};
  s->rows = s->batches * s->steps;
  s->width = s->channels * s->states;
  s->vec = s->states % 4 == 0 && gd_cuda_all_aligned(call->args, 16) ? 4 : 1;
  snprintf(s->defines, sizeof s->defines, "VEC=%d", (int)s->vec);
  s->kernel = (struct gd_cuda_kernel){"states", name, s->defines, 2, {type0, type1}};
}

/* Threads that have positions side by side, and rows or groups of rows in y. */
static struct gd_cuda_grid positions_grid(const struct parts *s, int64_t y) {
  return (struct gd_cuda_grid){
      .x = y ? gd_cuda_ceil(s->width / s->vec, BLOCK) : 0, .y = y, .threads = BLOCK};
}

/* Rows of blocks that fill a large device, each with `least` rows of the tensor at least. */
static int64_t rows_of_blocks(const struct parts *s, int64_t least) {
  int64_t across = gd_cuda_most(gd_cuda_ceil(s->width / s->vec, BLOCK), 1);
  int64_t most = gd_cuda_least(gd_cuda_ceil(s->rows, least), MOST_ROWS);
  return gd_cuda_least(gd_cuda_ceil(SUM_BLOCKS, across), most);
}

enum gd_status gd_cuda_op_decay(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct parts s;
  parts_init(&s, call, "decay", &a->out[0], a->in[0].dtype, GD_DTYPE_F32);
  return GD_CUDA_LAUNCH(call, &s.kernel, positions_grid(&s, rows_of_blocks(&s, 1)), &p.in[0],
                        &p.in[1], &p.out[0], &s.rows, &s.channels, &s.states);
}

enum gd_status gd_cuda_op_outer(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct parts s;
  parts_init(&s, call, "outer", &a->out[0], a->in[0].dtype, a->in[1].dtype);
  return GD_CUDA_LAUNCH(call, &s.kernel, positions_grid(&s, rows_of_blocks(&s, 1)), &p.in[0],
                        &p.in[1], &p.out[0], &s.rows, &s.channels, &s.states);
}

/* Lanes that share the states of one channel, and the grid of all channels of all rows. */
static struct gd_cuda_grid items_grid(const struct parts *s, int *lanes) {
  *lanes = (int)gd_cuda_least(gd_cuda_power(s->states / s->vec), 32);
  return (struct gd_cuda_grid){.x = gd_cuda_ceil(s->rows * s->channels, BLOCK / *lanes),
                               .threads = BLOCK};
}

enum gd_status gd_cuda_op_contract_states(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct parts s;
  int lanes;
  parts_init(&s, call, "contract_states", &a->in[0], a->in[1].dtype, a->out[0].dtype);
  struct gd_cuda_grid grid = items_grid(&s, &lanes);
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.out[0], &s.rows, &s.channels,
                        &s.states, &lanes);
}

enum gd_status gd_cuda_op_contract_channels(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct parts s;
  parts_init(&s, call, "contract_channels", &a->in[0], a->in[1].dtype, a->out[0].dtype);
  int across = (int)gd_cuda_least(gd_cuda_power(s.states), BLOCK);
  struct gd_cuda_grid grid = {.x = s.rows, .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.out[0], &s.channels,
                        &s.states, &across);
}

enum gd_status gd_cuda_op_decay_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct parts s;
  int lanes;
  parts_init(&s, call, "decay_grad_steps", &a->in[0], a->in[2].dtype, GD_DTYPE_F32);
  struct gd_cuda_grid grid = items_grid(&s, &lanes);
  GD_TRY(GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.in[3], &p.out[0], &s.rows,
                        &s.channels, &s.states, &lanes));
  int64_t fit = a->workspace_bytes / gd_cuda_most(4 * s.width, 1);
  int64_t groups = gd_cuda_most(gd_cuda_least(rows_of_blocks(&s, 8), fit), 1);
  int64_t per = gd_cuda_most(gd_cuda_ceil(s.rows, groups), 1);
  groups = gd_cuda_ceil(s.rows, per);
  /* One group is the result itself, whatever the workspace. */
  void *partial = groups > 1 ? a->workspace : p.out[1];
  s.kernel.name = "decay_grad_rates";
  GD_TRY(GD_CUDA_LAUNCH(call, &s.kernel, positions_grid(&s, groups), &p.in[0], &p.in[1], &p.in[2],
                        &p.in[3], &partial, &s.rows, &per, &s.channels, &s.states));
  if (groups == 1)
    return GD_OK;
  return gd_cuda_sum_columns(call, (struct gd_cuda_sums){.x = partial,
                                                         .dtype = GD_DTYPE_F32,
                                                         .rows = groups,
                                                         .columns = s.width,
                                                         .stride = s.width,
                                                         .out = p.out[1],
                                                         .out_dtype = GD_DTYPE_F32});
}

enum gd_status gd_cuda_op_recur(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct parts s;
  parts_init(&s, call, "recur", &a->out[0], GD_DTYPE_F32, GD_DTYPE_F32);
  struct gd_cuda_grid grid = {.x = gd_cuda_ceil(s.batches * s.width, BLOCK), .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.out[0], &s.batches, &s.steps,
                        &s.width);
}

enum gd_status gd_cuda_op_recur_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct parts s;
  parts_init(&s, call, "recur_grad", &a->in[0], GD_DTYPE_F32, GD_DTYPE_F32);
  struct gd_cuda_grid grid = {.x = gd_cuda_ceil(s.batches * s.width, BLOCK), .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.out[0], &p.out[1],
                        &s.batches, &s.steps, &s.width);
}
