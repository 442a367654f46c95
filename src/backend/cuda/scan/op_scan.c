/*
 * The selective scan on CUDA, fused (scan.cu, scan_grad.cu) and in parts (states.cu), with
 * gradients. Letters: B sequences, T steps, C channels, S states.
 *
 * db and dc are sums over channels: CTAs leave partial sums per group of channels in the workspace,
 * which are added in order. Where the shares of all steps do not fit, the backward scan is cut into
 * slices of sequences and of steps; between slices of steps dL/dh is carried through the workspace.
 */
#include <stdio.h>

#include "backend/cuda/kernels/scan_args.cuh"
#include "backend/cuda/pointwise/columns.h"
#include "base/sizes.h"

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
  int64_t groups; /* blocks of a sequence */
  int threads, shared_bytes;
  int at_once; /* blocks on a multiprocessor */
};

/* u, delta, A_log, b are inputs first .. first + 3. */
static struct scan scan_of(const struct gd_cuda_call *call, uint32_t first) {
  const struct gd_view *in = call->args->in + first;
  struct scan s = {.batches = in[0].dims[0],
                   .steps = in[0].dims[1],
                   .channels = in[0].dims[2],
                   .states = in[2].dims[1]};
  s.chunks = gd_div_up(s.steps, GD_SCAN_CHUNK);
  s.kernel =
      (struct gd_cuda_kernel){"scan", NULL, NULL, 3, {in[0].dtype, in[1].dtype, in[3].dtype}};
  return s;
}

enum gd_status gd_cuda_op_scan(const struct gd_cuda_call *call) {
  struct gd_cuda_data p = gd_cuda_data_of(call->args);
  struct scan s = scan_of(call, 0);
  int64_t lanes = s.states <= 16 ? 4 : s.states <= 32 ? 8 : 32;
  int64_t each = gd_cuda_power(gd_div_up(s.states, lanes));
  bool pairs = s.channels % 2 == 0 && gd_cuda_all_aligned(call->args, 16);
  snprintf(s.defines, sizeof s.defines,
           "STATES=%lld LANES=%d SP=%d VEC=%d THREADS=%d MIN_BLOCKS=%d", (long long)s.states,
           (int)lanes, (int)each, pairs ? 2 : 1, FORWARD_THREADS,
           s.states <= 16   ? 5
           : s.states <= 32 ? 4
                            : 1);
  s.kernel.name = "scan";
  s.kernel.defines = s.defines;
  struct gd_cuda_grid grid = {.threads = FORWARD_THREADS};
  grid.x = s.steps ? s.batches * gd_div_up(s.channels, FORWARD_THREADS / lanes) : 0;
  struct gd_scan_args args = {.u = p.in[0],
                              .delta = p.in[1],
                              .a_log = p.in[2],
                              .b = p.in[3],
                              .c = p.in[4],
                              .d = p.in[5],
                              .y = p.out[0],
                              .saved = p.out[1],
                              .steps = s.steps,
                              .channels = s.channels};
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &args);
}

/* Floats of db and dc that the blocks leave of a chunk. */
static int64_t chunk_floats(const struct scan *s) {
  return s->groups * GD_SCAN_CHUNK * 2 * s->states;
}

/* What a slice of the backward scan leaves in the workspace, per sequence. */
struct slices {
  int64_t batches;     /* sequences of a slice */
  int64_t chunks;      /* chunks of a slice */
  int64_t fixed_bytes; /* dA_log, dL/dh, dd and the parts that are done */
  int64_t chunk_bytes; /* db and dc of a chunk, by group */
};

static enum gd_status slices_of(const struct gd_cuda_call *call, const struct scan *s,
                                struct slices *slices) {
  int64_t bytes = call->args->workspace_bytes, few = gd_least(s->chunks, 4);
  *slices = (struct slices){.batches = s->batches, .chunks = s->chunks};
  slices->fixed_bytes = (s->channels * (2 * s->states + 1) + s->groups + 1) * 4;
  slices->chunk_bytes = chunk_floats(s) * 4;
  /* As many sequences at once as leave room for a few chunks each: these run in parallel. */
  int64_t least = slices->fixed_bytes + few * slices->chunk_bytes;
  if (s->batches * least > bytes) {
    int64_t at_once = gd_most(bytes / least, 1);
    slices->batches = gd_div_up(s->batches, gd_div_up(s->batches, at_once));
  }
  int64_t each = bytes / gd_most(slices->batches, 1) - slices->fixed_bytes;
  if (each < slices->chunk_bytes || each < 0)
    return gd_fail(call->err, GD_UNSUPPORTED,
                   "the scan's gradient over %lld channels and %lld states needs a workspace of "
                   "%lld bytes, not %lld: use fewer channels",
                   (long long)s->channels, (long long)s->states,
                   (long long)(slices->fixed_bytes + slices->chunk_bytes), (long long)bytes);
  if (slices->chunk_bytes && each < s->chunks * slices->chunk_bytes) {
    int64_t at_once = each / slices->chunk_bytes;
    slices->chunks = gd_div_up(s->chunks, gd_div_up(s->chunks, at_once));
  }
  return GD_OK;
}

/*
 * Parts of a slice's chunks: CTAs of their own that continue where those of the part behind ended,
 * so that the last CTAs to run are short. Each costs half a chunk more, and there must be more
 * blocks than an H200 runs at once, whatever the device: with the 16 states that models have, sums
 * do not depend on it. The last blocks, where they are alone on their multiprocessors, take a
 * quarter less time.
 */
static int grad_parts(const struct scan *s, int64_t blocks, int64_t chunks) {
  int64_t at_once = 132 * s->at_once, best = 1;
  double least = 0;
  for (int64_t parts = 1; blocks > at_once && parts <= gd_least(chunks, 8); parts++) {
    int64_t each = gd_div_up(chunks, parts), full = blocks * parts / at_once;
    int64_t rest = blocks * parts % at_once;
    double waves = (double)full + (rest == 0 ? 0 : 2 * rest <= at_once ? 0.75 : 1);
    double cost = waves * ((double)each + 0.5);
    if (parts == gd_div_up(chunks, each) && (parts == 1 || cost < least)) {
      best = parts;
      least = cost;
    }
  }
  return (int)best;
}

/* One slice: sequences [batch, batch + batches), chunks [begin, end). */
static enum gd_status grad_slice(const struct gd_cuda_call *call, struct scan *s, int64_t batch,
                                 int64_t batches, int64_t begin, int64_t end,
                                 const struct slices *slices, bool first) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  int64_t width = s->channels * s->states, chunks = end - begin;
  float *partial = a->workspace; /* first: read by 16 bytes */
  float *partial_a = partial + batches * slices->chunks * chunk_floats(s);
  float *carry = partial_a + batches * width, *partial_d = carry + batches * width;
  float *finished =
      partial_d + batches * s->channels; /* counts: of each block of a part, and one of all */
  int parts = grad_parts(s, batches * s->groups, chunks);
  struct gd_scan_grad_args args = {
      .dy = p.in[0],
      .u = p.in[1],
      .delta = p.in[2],
      .a_log = p.in[3],
      .b = p.in[4],
      .c = p.in[5],
      .d = p.in[6],
      .saved = p.in[7],
      .du = p.out[0],
      .ddelta = p.out[1],
      .partial = partial,
      .partial_a = partial_a,
      .partial_d = partial_d,
      .carry = slices->chunks == s->chunks && parts == 1 ? NULL : carry,
      .finished = (uint32_t *)finished,
      .first_batch = batch,
      .begin = begin,
      .end = end,
      .steps = s->steps,
      .channels = s->channels,
      .from_carry = end < s->chunks,
      .parts = parts,
  };
  struct gd_scan_sums_args shares = {.partial = partial,
                                     .db = p.out[3],
                                     .dc = p.out[4],
                                     .sequences = batches,
                                     .groups = s->groups,
                                     .chunks = chunks,
                                     .first_batch = batch,
                                     .first = begin,
                                     .steps = s->steps};
  struct gd_cuda_grid grid = {
      .x = batches * s->groups * parts, .threads = s->threads, .shared_bytes = s->shared_bytes};
  if (parts > 1 && call->stage == GD_CUDA_LAUNCH)
    GD_TRY(gd_cuda_check(call->cuda,
                         call->cuda->cu->MemsetD8Async((CUdeviceptr)(uintptr_t)finished, 0,
                                                       (size_t)(batches * s->groups + 1) * 4,
                                                       call->stream),
                         "clearing inside scan_grad", call->err));
  s->kernel.name = "scan_grad";
  GD_TRY(GD_CUDA_LAUNCH(call, &s->kernel, grid, &args));
  grid = (struct gd_cuda_grid){
      .x = gd_div_up(batches * chunks * s->states * GD_SCAN_CHUNK / 2, BLOCK), .threads = BLOCK};
  s->kernel.name = "scan_sums";
  GD_TRY(GD_CUDA_LAUNCH(call, &s->kernel, grid, &shares));
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

/* Shared memory of a block of scan_grad with `each` channels a row of 8 lanes: what is laid out
   there, in order. */
static int64_t grad_shared_bytes(const struct scan *s, int64_t threads, int64_t each, bool staged) {
  int64_t channels = threads / 8 * each, padded = gd_div_up(s->states, 4) * 4;
  int64_t tile = gd_least(padded, 16), elements = GD_SCAN_CHUNK * channels;
  int64_t floats =
      tile * (4 * GD_SCAN_CHUNK + 4) + 4 * padded * (channels + 4) + padded * threads * each;
  int64_t of_u = gd_dtype_bytes(s->kernel.types[0]);
  int64_t of_delta = gd_dtype_bytes(s->kernel.types[1]);
  int64_t of_b = gd_dtype_bytes(s->kernel.types[2]);
  return floats * 4 + (staged ? 2 * GD_SCAN_CHUNK * s->states * of_b : 0) +
         elements * (3 * of_u + of_delta) + 4 * 128;
}

/* Blocks of scan_grad, the best first: threads, channels of a row of 8 lanes, and how many fill a
   multiprocessor's registers. The more channels, the less of b, c and their sums is moved in shared
   memory; with many states there is room for few. */
static const struct block {
  int threads, each, at_once;
} blocks[] = {{128, 2, 2}, {64, 2, 4}, {32, 2, 4}, {32, 1, 4}};

/* That with the most channels at once on a multiprocessor; NULL: none fits its shared memory, of
   which a block takes 1 KiB more than it asks for, and 16 bytes for its ticket. */
static const struct block *grad_block(const struct gd_cuda_call *call, const struct scan *s,
                                      bool staged) {
  const struct block *best = NULL;
  int64_t most = 0, fixed = 1024 + 16, all_bytes = call->cuda->shared_bytes + 1024;
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
    const struct block *block = &blocks[i];
    int64_t bytes = grad_shared_bytes(s, block->threads, block->each, staged) + fixed;
    int64_t fit = gd_least(all_bytes / bytes, block->at_once);
    if (fit * block->threads * block->each > most) {
      most = fit * block->threads * block->each;
      best = block;
    }
  }
  return best;
}

static enum gd_status grad_shape(const struct gd_cuda_call *call, struct scan *s) {
  int vec = s->channels % 8 == 0 ? 8 : s->channels % 4 == 0 ? 4 : 1;
  vec = gd_cuda_all_aligned(call->args, 16) ? vec : 1;
  bool staged = vec > 1 && s->states * gd_dtype_bytes(s->kernel.types[2]) % 16 == 0;
  const struct block *block = grad_block(call, s, staged);
  if (!block && staged) { /* b and c are read in place then */
    vec = 1;
    staged = false;
    block = grad_block(call, s, staged);
  }
  if (!block)
    return gd_fail(call->err, GD_UNSUPPORTED,
                   "the scan's gradient over %lld states does not fit the %d bytes of shared "
                   "memory that this GPU has: use fewer states",
                   (long long)s->states, call->cuda->shared_bytes);
  s->threads = block->threads;
  s->at_once = block->at_once;
  s->shared_bytes = (int)grad_shared_bytes(s, block->threads, block->each, staged);
  s->groups = gd_div_up(s->channels, block->threads / 8 * block->each);
  snprintf(s->defines, sizeof s->defines, "STATES=%lld VEC=%d THREADS=%d CP=%d MIN_BLOCKS=%d",
           (long long)s->states, vec, s->threads, block->each, block->at_once);
  s->kernel.file = "scan_grad";
  s->kernel.defines = s->defines;
  return GD_OK;
}

enum gd_status gd_cuda_op_scan_grad(const struct gd_cuda_call *call) {
  struct scan s = scan_of(call, 1);
  GD_TRY(grad_shape(call, &s));
  struct slices slices;
  GD_TRY(slices_of(call, &s, &slices));
  bool first = true;
  int64_t batch = 0;
  do { /* once at least: sums over nothing are 0 */
    int64_t batches = gd_least(slices.batches, s.batches - batch), end = s.chunks;
    do {
      int64_t begin = gd_most(end - slices.chunks, 0);
      GD_TRY(grad_slice(call, &s, batch, batches, begin, end, &slices, first));
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

/* Threads have neighbouring positions in x, and rows or groups of rows in y. */
static struct gd_cuda_grid positions_grid(const struct parts *s, int64_t y) {
  return (struct gd_cuda_grid){
      .x = y ? gd_div_up(s->width / s->vec, BLOCK) : 0, .y = y, .threads = BLOCK};
}

/* Rows of blocks that fill a large device, each with `least` rows of the tensor at least. */
static int64_t rows_of_blocks(const struct parts *s, int64_t least) {
  int64_t across = gd_most(gd_div_up(s->width / s->vec, BLOCK), 1);
  int64_t most = gd_least(gd_div_up(s->rows, least), MOST_ROWS);
  return gd_least(gd_div_up(SUM_BLOCKS, across), most);
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
  *lanes = (int)gd_least(gd_cuda_power(s->states / s->vec), 32);
  return (struct gd_cuda_grid){.x = gd_div_up(s->rows * s->channels, BLOCK / *lanes),
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
  int across = (int)gd_least(gd_cuda_power(s.states), BLOCK);
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
  int64_t fit = a->workspace_bytes / gd_most(4 * s.width, 1);
  int64_t groups = gd_most(gd_least(rows_of_blocks(&s, 8), fit), 1);
  int64_t per = gd_most(gd_div_up(s.rows, groups), 1);
  groups = gd_div_up(s.rows, per);
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
  struct gd_cuda_grid grid = {.x = gd_div_up(s.batches * s.width, BLOCK), .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.out[0], &s.batches, &s.steps,
                        &s.width);
}

enum gd_status gd_cuda_op_recur_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct parts s;
  parts_init(&s, call, "recur_grad", &a->in[0], GD_DTYPE_F32, GD_DTYPE_F32);
  struct gd_cuda_grid grid = {.x = gd_div_up(s.batches * s.width, BLOCK), .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.out[0], &p.out[1],
                        &s.batches, &s.steps, &s.width);
}
