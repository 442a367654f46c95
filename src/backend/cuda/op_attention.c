/*
 * Attention on CUDA: the tiled kernels (kernels/attention_tiles.cuh) for heads of up to 256,
 * kernels/attention_wide.cu for the rest. The gradient is cut into slices of heads whose sums per
 * row (delta) fit the workspace.
 *
 * Tiles are data: a few candidates for each pass, kind of products and head size. Those that the
 * device holds are timed on the real shapes in stage TUNE and the fastest is kept for the shape, so
 * that a forward pass and its recomputation agree; small problems take the first. For people who
 * tune: GPUDAYS_ATTENTION_TRACE=FILE appends a line for every candidate timed (shape, pass, tile,
 * microseconds, TFLOP/s), GPUDAYS_ATTENTION_TILE=N takes tiling N, counted round, and times no
 * other (cuDNN is still asked: GPUDAYS_CUDNN=0); with GPUDAYS_DETERMINISTIC=1 it is the first. On
 * sm_90 the gradient of sequences of up to about 512 has one kernel that does all of it beside the
 * two that have a share each, and where all were timed the faster is taken; N means the two, w the
 * one wherever it can be.
 *
 * Key head number p of all samples and key heads, p = b M + m, serves query heads p N/M and up, so
 * both ops see a batch of key heads and nothing else.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/cuda_int.h"
#include "base/rng.h"

enum { HEAD_MAX = 256 };

struct problem {
  struct gd_attention device;
  int64_t key_heads; /* of all samples together */
  enum gd_dtype dtype;
  int head;     /* D, padded */
  int products; /* of the tensor cores for one product */
  bool aligned, drops;
  const void *q, *k, *v;
  const int32_t *seed;
};

/* What a block of threads has: see the head of attention_tiles.cuh. */
struct tiling {
  int warps, row_tiles, columns, stages;
  int blocks; /* on a multiprocessor: what the registers are limited for */
  int keep;
};

static bool aligned16(const struct gd_view *view) {
  return (uintptr_t)view->data % 16 == 0;
}

/* q, k, v as inputs first.., the seed as input `seed`. */
static struct problem problem_of(const struct gd_kernel_args *args, uint32_t first, uint32_t seed) {
  const struct gd_attr_attention *attr = &args->attr->attention;
  const struct gd_view *q = &args->in[first], *k = &args->in[first + 1], *v = &args->in[first + 2];
  int64_t steps = q->dims[2], size = q->dims[3];
  struct problem p = {.key_heads = k->dims[0] * k->dims[1],
                      .dtype = q->dtype,
                      .head = size < 16 ? 16 : (int)((size + 15) / 16 * 16),
                      .products = q->dtype == GD_DTYPE_F32 && !attr->tf32 ? 3 : 1,
                      .q = q->data,
                      .k = k->data,
                      .v = v->data};
  p.aligned = size * gd_dtype_bytes(q->dtype) % 16 == 0;
  for (uint32_t i = 0; i < first + 4 && i < args->n_in; i++) /* dout, q, k, v, out */
    p.aligned &= args->in[i].dtype != p.dtype || aligned16(&args->in[i]);
  for (uint32_t i = 0; i < args->n_out; i++)
    p.aligned &= args->out[i].dtype != p.dtype || aligned16(&args->out[i]);
  p.seed = args->n_in > seed ? args->in[seed].data : NULL;
  p.drops = args->n_in > seed;
  float exponent = (float)((double)attr->scale * 1.4426950408889634);
  p.device = (struct gd_attention){
      .heads = q->dims[0] * q->dims[1],
      .weights = q->dims[1] * steps * steps,
      .group = (int32_t)(q->dims[1] / k->dims[1]),
      .steps = (int32_t)steps,
      .size = (int32_t)size,
      .causal = attr->causal,
      .scale = attr->scale,
      .exponent = exponent == 0 ? 1e-30F : exponent, /* 0 times -infinity, a masked score, is NaN */
      .kept_scale = (float)gd_rng_dropout_scale((double)attr->probability),
      .threshold = gd_rng_dropout_threshold((double)attr->probability),
      .stream = attr->stream};
  return p;
}

/* The kernels count rows, and elements of one head, in 32 bits. */
static enum gd_status check_size(const struct gd_view *q, struct gd_error *err) {
  int64_t steps = q->dims[2], size = q->dims[3];
  if (steps < INT32_MAX / 2 && (size == 0 || steps < INT32_MAX / size))
    return GD_OK;
  return gd_fail(err, GD_UNSUPPORTED,
                 "attention over %lld steps with heads of %lld: a head has 2^31 elements or more, "
                 "which the CUDA kernels do not take; shorten the sequence",
                 (long long)steps, (long long)size);
}

/* --- tiles ------------------------------------------------------------------------------------ */

static int row_bytes(const struct problem *p) {
  return p->head * (int)gd_dtype_bytes(p->dtype) + 16;
}

static int tile_rows(const struct tiling *t) {
  return t->warps * t->row_tiles * 16;
}

/* Queries; then stages of keys and of values. */
static int forward_bytes(const struct problem *p, const struct tiling *t) {
  return (tile_rows(t) + 2 * t->stages * t->columns) * row_bytes(p);
}

/* Queries and dout, or keys and values; then stages of the others, with lse and delta. */
static int grad_bytes(const struct problem *p, const struct tiling *t) {
  return 2 * tile_rows(t) * row_bytes(p) + t->stages * 2 * t->columns * (row_bytes(p) + 4);
}

/* Keys and values; two stages of queries and dout, with lse and delta; slopes, twice; dq as fp32,
   unless the first keys are all; up to 1,024 for alignment. Rows are not padded. */
static int64_t whole_bytes(const struct problem *p, const struct tiling *t) {
  int64_t steps = p->device.steps, visits = (steps + t->columns - 1) / t->columns;
  int64_t so_far = steps <= tile_rows(t) ? 0 : visits * t->columns * p->head * 4;
  int line = p->head * 2;
  return 4 * tile_rows(t) * line + 4 * t->columns * (line + 4) + 1024 + so_far;
}

/* KEYS: gradients of keys and values; WHOLE: all of the gradient. */
enum pass { FORWARD, QUERIES, KEYS, WHOLE };
enum kind { HALF, TF32, FP32 };
enum { NEVER, ALWAYS, EITHER };
enum { MOST_TILINGS = 7 };

/*
 * Registers bound the tiles: of a lane's 255, a warp's sums take row_tiles x head / 2 (twice for dk
 * and dv together), its scores row_tiles x columns / 2 (twice in the gradient), an operand that is
 * kept row_tiles x head / 4 (16 bits; else / 2). Reads of shared memory bound the products: with
 * one row tile 2.25 cycles each by count of bytes, with two 1.5, with two and an operand kept 1, of
 * which mma.sync does one in about 1.6 on sm_90. Seven warps are for T 197, whose rows they cover
 * with 224 where four or eight take 256.
 *
 * The first row that fits is a problem's. Its first `tries` tilings are candidates where a
 * multiprocessor holds them as often as they say; the others are for devices with less shared
 * memory, and the last one fits sm_86, whose blocks have the least.
 */
static const struct variants {
  enum pass pass;
  enum kind kind;
  int head_most, drops, tries, count;
  struct tiling tilings[MOST_TILINGS];
} variants[] = {
#define TILINGS(...)                                                \
  sizeof((struct tiling[]){__VA_ARGS__}) / sizeof(struct tiling), { \
    __VA_ARGS__                                                     \
  }
    {FORWARD, HALF, 64, ALWAYS, 5,
     TILINGS({4, 2, 32, 2, 2, 1}, {4, 2, 32, 1, 3, 0}, {4, 1, 32, 2, 3, 1}, {4, 1, 32, 2, 4, 0},
             {4, 1, 32, 1, 4, 1}, {8, 1, 64, 1, 1, 0})},
    {FORWARD, HALF, 64, NEVER, 4,
     TILINGS({4, 2, 64, 1, 2, 1}, {4, 2, 32, 2, 2, 1}, {4, 1, 64, 1, 3, 1}, {4, 2, 64, 2, 2, 0},
             {8, 1, 64, 1, 1, 0})},
    {FORWARD, HALF, 128, ALWAYS, 3,
     TILINGS({4, 2, 32, 1, 2, 0}, {4, 1, 32, 1, 3, 0}, {8, 1, 64, 1, 1, 1}, {8, 1, 64, 1, 1, 0})},
    {FORWARD, HALF, 128, NEVER, 3,
     TILINGS({4, 2, 64, 1, 2, 0}, {4, 2, 32, 1, 2, 0}, {8, 1, 64, 1, 1, 1}, {8, 1, 64, 1, 1, 0})},
    {FORWARD, HALF, 256, EITHER, 1, TILINGS({8, 1, 64, 1, 1, 0}, {4, 1, 64, 1, 1, 0})},
    {FORWARD, TF32, 64, EITHER, 5,
     TILINGS({4, 2, 32, 2, 2, 0}, {7, 1, 32, 2, 2, 1}, {4, 2, 32, 1, 2, 1}, {4, 1, 32, 1, 3, 1},
             {4, 2, 64, 1, 2, 0}, {8, 1, 32, 1, 1, 0})},
    {FORWARD, TF32, 128, EITHER, 2,
     TILINGS({4, 2, 32, 1, 2, 0}, {8, 1, 32, 1, 1, 0}, {4, 1, 32, 1, 1, 0}, {4, 1, 16, 1, 1, 0})},
    {FORWARD, FP32, 64, EITHER, 2, TILINGS({4, 2, 32, 1, 2, 0}, {8, 1, 32, 1, 1, 0})},
    {FORWARD, FP32, 256, EITHER, 1,
     TILINGS({8, 1, 32, 1, 1, 0}, {4, 1, 32, 1, 1, 0}, {4, 1, 16, 1, 1, 0})},

    {QUERIES, HALF, 64, EITHER, 5,
     TILINGS({4, 2, 32, 3, 2, 0}, {4, 2, 32, 2, 2, 2}, {4, 1, 32, 2, 4, 2}, {4, 2, 32, 2, 3, 0},
             {4, 1, 32, 2, 5, 0}, {8, 1, 64, 2, 1, 0})},
    {QUERIES, HALF, 128, EITHER, 2,
     TILINGS({4, 2, 32, 2, 2, 0}, {8, 1, 64, 2, 1, 0}, {4, 1, 32, 2, 1, 0})},
    {QUERIES, TF32, 64, EITHER, 5,
     TILINGS({4, 2, 16, 3, 2, 0}, {4, 2, 32, 2, 2, 1}, {4, 2, 32, 2, 2, 0}, {4, 1, 32, 2, 3, 0},
             {7, 1, 32, 2, 2, 0}, {8, 1, 32, 2, 1, 0}, {4, 1, 32, 2, 1, 0})},

    {KEYS, HALF, 64, EITHER, 5,
     TILINGS({4, 2, 32, 3, 2, 0}, {4, 2, 32, 2, 2, 0}, {4, 1, 32, 3, 3, 0}, {4, 1, 32, 2, 3, 0},
             {4, 1, 32, 2, 4, 0}, {8, 1, 64, 2, 1, 0})},
    {KEYS, HALF, 128, EITHER, 1, TILINGS({8, 1, 64, 2, 1, 0}, {4, 1, 32, 2, 1, 0})},
    {KEYS, TF32, 64, EITHER, 4,
     TILINGS({4, 2, 16, 3, 2, 0}, {4, 2, 32, 2, 2, 0}, {4, 1, 32, 2, 3, 0}, {7, 1, 32, 2, 2, 0},
             {8, 1, 32, 2, 1, 0}, {4, 1, 32, 2, 1, 0})},

    {WHOLE, HALF, 64, EITHER, 1, TILINGS({8, 1, 64, 2, 1, 0})}, /* attention_grad.cu has no other */
};

/* Both gradients, all else. */
static const struct variants other_grads = {QUERIES,
                                            FP32,
                                            256,
                                            EITHER,
                                            1,
                                            TILINGS({8, 1, 32, 2, 1, 0}, {4, 1, 32, 2, 1, 0},
                                                    {4, 1, 16, 2, 1, 0}, {4, 1, 16, 1, 1, 0},
                                                    {2, 1, 16, 1, 1, 0})};

static int64_t pass_bytes(const struct problem *p, enum pass pass, const struct tiling *t) {
  return pass == FORWARD ? forward_bytes(p, t)
         : pass == WHOLE ? whole_bytes(p, t)
                         : grad_bytes(p, t);
}

static const struct variants *variants_of(const struct problem *p, enum pass pass) {
  enum kind kind = gd_dtype_bytes(p->dtype) == 2 ? HALF : p->products == 1 ? TF32 : FP32;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct variants *v = &variants[i];
    bool same_kind = v->kind == kind || (v->kind == FP32 && kind == TF32);
    if (v->pass == pass && same_kind && p->head <= v->head_most &&
        (v->drops == EITHER || p->drops == (v->drops == ALWAYS)))
      return v;
  }
  return &other_grads;
}

/* What is worth timing, or what there is; at least one, but for WHOLE. all: whatever fits. */
static int candidates_of(const struct gd_cuda *cuda, const struct problem *p, enum pass pass,
                         bool all, const struct tiling *list[MOST_TILINGS]) {
  const struct variants *v = variants_of(p, pass);
  int n = 0, tries = all ? v->count : v->tries;
  if (pass == WHOLE &&
      (v->pass != WHOLE || p->device.group != 1 || cuda->sm != 90 || !p->aligned || p->head != 64))
    return 0;
  for (int i = 0; i < v->count && (i < tries || n == 0); i++) {
    const struct tiling *t = &v->tilings[i];
    if (t->blocks * (pass_bytes(p, pass, t) + 1024) <= cuda->shared_bytes + 1024 ||
        (pass != WHOLE && i == v->count - 1))
      list[n++] = t;
  }
  return n;
}

/* dk and dv in one pass where a lane has the registers for both. */
static bool keys_at_once(const struct problem *p) {
  return p->head <= (gd_dtype_bytes(p->dtype) == 2 ? 160 : 128);
}

/* Heads (of rows) at a time: what they visit, `visited` matrices a head, is to stay in half of L2,
   whose size is 40 to 50 MB on sm_80 and sm_90, 6 MB on sm_86. */
static int32_t chunk_of(const struct gd_cuda *cuda, const struct problem *p, int64_t heads,
                        double visited, int rows) {
  double bytes =
      visited * (double)p->device.steps * (double)p->device.size * (double)gd_dtype_bytes(p->dtype);
  double cache_bytes = cuda->sm == 80 || cuda->sm >= 90 ? 20e6 : 3e6;
  double most = (double)(1 << 30) / ((double)p->device.steps / rows + 1);
  double chunk = cache_bytes / (bytes + 1);
  chunk = chunk > most ? most : chunk;
  chunk = chunk > (double)heads ? (double)heads : chunk;
  return chunk < 1 ? 1 : (int32_t)chunk;
}

/* --- launches --------------------------------------------------------------------------------- */

enum { DEFINES_BYTES = 192 };

static struct gd_cuda_kernel kernel_of(const struct problem *p, const struct tiling *t,
                                       const char *name, int parts, char defines[DEFINES_BYTES]) {
  int dropout = !p->drops ? 0 : p->device.steps % 8 ? 1 : 2;
  snprintf(defines, DEFINES_BYTES,
           "HEAD=%d WARPS=%d ROW_TILES=%d COLUMNS=%d STAGES=%d PARTS=%d DROPOUT=%d "
           "ALIGNED=%d PRODUCTS=%d BLOCKS=%d KEEP=%d",
           p->head, t->warps, t->row_tiles, t->columns, t->stages, parts, dropout, p->aligned,
           p->products, t->blocks, t->keep);
  return (struct gd_cuda_kernel){
      .file = name, .name = name, .defines = defines, .n_types = 1, .types = {p->dtype}};
}

static struct gd_cuda_grid grid_of(const struct problem *p, enum pass pass, const struct tiling *t,
                                   int64_t heads) {
  int64_t blocks = (p->device.steps + tile_rows(t) - 1) / tile_rows(t); /* of a head */
  return (struct gd_cuda_grid){.x = heads * (pass == WHOLE && blocks > 1 ? 1 : blocks),
                               .threads = t->warps * 32,
                               .shared_bytes = (int)pass_bytes(p, pass, t)};
}

/* One pass, but for its tiles. */
struct work {
  enum pass pass;
  const struct problem *problem;
  struct gd_attention *device; /* the last parameter; its chunk depends on the tiles */
  double visited;              /* matrices a head */
  void **params;
};

static enum gd_status launch_tiled(const struct gd_cuda_call *call, const struct work *work,
                                   const struct tiling *t) {
  static const char *const names[] = {"attention_forward", "attention_grad_queries",
                                      "attention_grad_keys", "attention_grad"};
  char defines[DEFINES_BYTES];
  const struct problem *p = work->problem;
  int64_t heads = work->device->heads;
  work->device->chunk = chunk_of(call->cuda, p, heads, work->visited, tile_rows(t));
  struct gd_cuda_grid grid = grid_of(p, work->pass, t, heads);
  int first = work->pass != KEYS ? 0 : keys_at_once(p) ? 3 : 1;
  int last = work->pass != KEYS ? 0 : keys_at_once(p) ? 3 : 2;
  for (int parts = first; parts <= last; parts++) {
    struct gd_cuda_kernel kernel = kernel_of(p, t, names[work->pass], parts, defines);
    GD_TRY(gd_cuda_launch(call, &kernel, grid, work->params));
  }
  return GD_OK;
}

/* --- choice of tiles -------------------------------------------------------------------------- */

/* What the choice is made for. */
struct shape {
  int64_t key_heads;
  int32_t group, steps, size;
  int pass, dtype, products, causal, drops, aligned;
};

struct choice {
  struct shape shape;
  const struct tiling *tiling;
  double us;
  struct choice *next;
};

static struct shape shape_of(const struct work *work) {
  const struct problem *p = work->problem;
  return (struct shape){.key_heads = p->key_heads,
                        .group = p->device.group,
                        .steps = p->device.steps,
                        .size = p->device.size,
                        .pass = (int)work->pass,
                        .dtype = (int)p->dtype,
                        .products = p->products,
                        .causal = p->device.causal,
                        .drops = p->drops,
                        .aligned = p->aligned};
}

static bool same_shape(const struct shape *a, const struct shape *b) {
  return a->key_heads == b->key_heads && a->group == b->group && a->steps == b->steps &&
         a->size == b->size && a->pass == b->pass && a->dtype == b->dtype &&
         a->products == b->products && a->causal == b->causal && a->drops == b->drops &&
         a->aligned == b->aligned;
}

static struct choice *find_choice(const struct gd_cuda *cuda, const struct shape *shape) {
  struct choice *c = cuda->attention_tiles;
  while (c && !same_shape(&c->shape, shape))
    c = c->next;
  return c;
}

void gd_cuda_own_attention_free(struct gd_cuda *cuda) {
  for (struct choice *c = cuda->attention_tiles, *next; c; c = next) {
    next = c->next;
    gd_mem_free(c);
  }
  cuda->attention_tiles = NULL;
}

/* Of the heads that are worked on; products that a pass repeats are not counted again, so that the
   two passes of the gradient share five. */
static double flops_of(const struct work *work) {
  const struct gd_attention *d = &work->problem->device;
  static const double of_pass[] = {[FORWARD] = 2, [QUERIES] = 2, [KEYS] = 3, [WHOLE] = 5};
  double products = of_pass[work->pass];
  double flops = 2 * products * (double)d->steps * (double)d->steps * (double)d->size;
  return flops * (double)d->heads / (d->causal ? 2 : 1);
}

static void trace(const struct work *work, const struct tiling *t, double us) {
  static const char *const names[] = {"forward", "queries", "keys", "whole"};
  const char *path = getenv("GPUDAYS_ATTENTION_TRACE");
  const struct problem *p = work->problem;
  FILE *file = path && path[0] ? fopen(path, "a") : NULL;
  if (!file)
    return;
  fprintf(
      file,
      "%s %s%s heads %lld group %d steps %d size %d causal %d dropout %d: warps %d row_tiles %d "
      "columns %d stages %d blocks %d keep %d: %.1f us %.1f TFLOP/s\n",
      names[work->pass], gd_dtype_name(p->dtype),
      p->dtype == GD_DTYPE_F32 && p->products == 1 ? " tf32" : "", (long long)p->device.heads,
      p->device.group, p->device.steps, p->device.size, p->device.causal, p->drops, t->warps,
      t->row_tiles, t->columns, t->stages, t->blocks, t->keep, us, flops_of(work) / us * 1e-6);
  fclose(file);
}

struct timing {
  const struct gd_cuda_call *call;
  const struct work *work;
  const struct tiling *tiling;
};

static enum gd_status run_timed(const void *user) {
  const struct timing *t = user;
  return launch_tiled(t->call, t->work, t->tiling);
}

static enum gd_status tune(const struct gd_cuda_call *call, const struct work *work,
                           const struct tiling *const *list, int count) {
  struct shape shape = shape_of(work);
  if (find_choice(call->cuda, &shape))
    return GD_OK;
  struct choice *choice = gd_mem_alloc(1, sizeof *choice);
  if (!choice)
    return gd_fail(call->err, GD_ENVIRONMENT, "out of memory while tuning attention");
  *choice = (struct choice){.shape = shape, .tiling = list[0], .next = call->cuda->attention_tiles};
  call->cuda->attention_tiles = choice;
  GD_TRY(gd_cuda_noise_inputs(call));
  struct gd_error unused = {0};
  struct gd_cuda_call quiet = *call;
  quiet.stage = GD_CUDA_LAUNCH;
  quiet.err = &unused;
  choice->us = HUGE_VAL;
  for (int i = 0; i < count; i++) {
    struct timing timing = {&quiet, work, list[i]};
    double us = gd_cuda_time_us(&quiet, run_timed, &timing);
    trace(work, list[i], us);
    if (us < choice->us) {
      choice->us = us;
      choice->tiling = list[i];
    }
  }
  return gd_cuda_check(call->cuda, call->cuda->cu->StreamSynchronize(call->stream),
                       "timing attention", call->err);
}

/* Is it worth building, and timing, several? */
static bool wants_tuning(const struct gd_cuda *cuda, const struct work *work) {
  return !cuda->deterministic && flops_of(work) >= 1e9;
}

/* The tiling that the user wants, of those that fit, counted round; -1: no wish. */
static int forced_tile(bool *whole) {
  const char *forced = getenv("GPUDAYS_ATTENTION_TILE");
  char first = forced ? forced[0] : 0;
  *whole = first == 'w';
  return *whole ? 0 : first >= '0' && first <= '9' ? first - '0' : -1;
}

/* All stages. A library that is better anyway leaves `tunes` false. */
static enum gd_status run_tiled(const struct gd_cuda_call *call, const struct work *work,
                                bool tunes) {
  const struct tiling *list[MOST_TILINGS] = {NULL};
  bool whole;
  int forced = forced_tile(&whole);
  int count = candidates_of(call->cuda, work->problem, work->pass, forced >= 0, list);
  GD_ASSERT(count > 0 && list[0]);
  if (forced >= 0) {
    list[0] = list[forced % count];
    count = 1;
  } else if (!tunes || !wants_tuning(call->cuda, work)) {
    count = 1;
  }
  if (call->stage == GD_CUDA_COLLECT) {
    for (int i = 0; i < count; i++)
      GD_TRY(launch_tiled(call, work, list[i]));
    return GD_OK;
  }
  if (call->stage == GD_CUDA_TUNE)
    return forced < 0 && tunes && wants_tuning(call->cuda, work) ? tune(call, work, list, count)
                                                                 : GD_OK;
  struct shape shape = shape_of(work);
  const struct choice *choice = forced < 0 ? find_choice(call->cuda, &shape) : NULL;
  return launch_tiled(call, work, choice ? choice->tiling : list[0]);
}

/* --- ops -------------------------------------------------------------------------------------- */

static struct gd_cuda_kernel wide_kernel(const struct problem *p, const char *name) {
  return (struct gd_cuda_kernel){.file = "attention_wide",
                                 .name = name,
                                 .defines = p->drops ? "DROPOUT=1" : "DROPOUT=0",
                                 .n_types = 1,
                                 .types = {p->dtype}};
}

/* A warp a row, four a block. */
static struct gd_cuda_grid wide_grid(int64_t rows) {
  return (struct gd_cuda_grid){.x = (rows + 3) / 4, .threads = 128};
}

enum gd_status gd_cuda_own_attention(const struct gd_cuda_call *call, bool tunes) {
  if (gd_cuda_short_attention_takes(call))
    return gd_cuda_short_attention(call);
  const struct gd_kernel_args *args = call->args;
  struct problem p = problem_of(args, 0, 3);
  GD_TRY(check_size(&args->in[0], call->err));
  void *out = args->out[0].data, *lse = args->out[1].data;
  if (p.head > HEAD_MAX) {
    struct gd_cuda_kernel kernel = wide_kernel(&p, "attention_wide");
    return GD_CUDA_LAUNCH(call, &kernel, wide_grid(p.device.heads * p.device.steps), &p.q, &p.k,
                          &p.v, &out, &lse, &p.seed, &p.device);
  }
  struct work work = {.pass = FORWARD,
                      .problem = &p,
                      .device = &p.device,
                      .visited = 2.0 / (p.device.group ? p.device.group : 1),
                      .params = (void *[]){&p.q, &p.k, &p.v, &out, &lse, &p.seed, &p.device}};
  return run_tiled(call, &work, tunes);
}

/* What the passes of the gradient share: addresses of one slice of key heads. */
struct slice {
  const char *dout, *q, *k, *v, *out, *lse;
  char *dq, *dk, *dv;
  float *delta;
  int64_t key_heads, rows; /* rows: of queries */
};

static enum gd_status wide_grad(const struct gd_cuda_call *call, const struct problem *p,
                                struct slice *s) {
  struct gd_cuda_kernel queries = wide_kernel(p, "attention_wide_queries");
  struct gd_cuda_kernel keys = wide_kernel(p, "attention_wide_keys");
  struct gd_attention device = p->device;
  const int32_t *seed = p->seed;
  GD_TRY(GD_CUDA_LAUNCH(call, &queries, wide_grid(s->rows), &s->dout, &s->q, &s->k, &s->v, &s->lse,
                        &s->delta, &seed, &s->dq, &device));
  device.heads = s->key_heads;
  return GD_CUDA_LAUNCH(call, &keys, wide_grid(s->key_heads * p->device.steps), &s->dout, &s->q,
                        &s->k, &s->v, &s->lse, &s->delta, &seed, &s->dk, &s->dv, &device);
}

/* Is the one kernel the gradient? Where it is asked for, or all were timed and it is the fastest.
 */
static bool takes_whole(const struct gd_cuda *cuda, const struct work *whole,
                        const struct work *queries, const struct work *keys) {
  struct shape shapes[] = {shape_of(whole), shape_of(queries), shape_of(keys)};
  const struct choice *one = find_choice(cuda, &shapes[0]);
  const struct choice *first = find_choice(cuda, &shapes[1]);
  const struct choice *second = find_choice(cuda, &shapes[2]);
  bool forced;
  if (forced_tile(&forced) >= 0)
    return forced;
  return one && first && second && one->us < first->us + second->us;
}

/* Is the one kernel to be built, and timed? */
static bool wants_whole(const struct gd_cuda *cuda, const struct work *queries, bool tunes) {
  bool forced;
  return forced_tile(&forced) >= 0 ? forced : tunes && wants_tuning(cuda, queries);
}

static enum gd_status tiled_grad(const struct gd_cuda_call *call, const struct problem *p,
                                 struct slice *s, bool tunes) {
  const struct tiling *unused[MOST_TILINGS];
  const int32_t *seed = p->seed;
  struct gd_attention device = p->device, of_keys = p->device;
  double group = (double)device.group;
  of_keys.heads = s->key_heads;
  struct work queries = {.pass = QUERIES,
                         .problem = p,
                         .device = &device,
                         .visited = 2 / (group > 0 ? group : 1),
                         .params = (void *[]){&s->dout, &s->q, &s->k, &s->v, &s->lse, &s->delta,
                                              &seed, &s->dq, &device}};
  struct work keys = {.pass = KEYS,
                      .problem = p,
                      .device = &of_keys,
                      .visited = 2 * group,
                      .params = (void *[]){&s->dout, &s->q, &s->k, &s->v, &s->lse, &s->delta, &seed,
                                           &s->dk, &s->dv, &of_keys}};
  struct work whole = {.pass = WHOLE,
                       .problem = p,
                       .device = &of_keys,
                       .visited = 2,
                       .params = (void *[]){&s->dout, &s->q, &s->k, &s->v, &s->lse, &s->delta,
                                            &seed, &s->dq, &s->dk, &s->dv, &of_keys}};
  if (candidates_of(call->cuda, p, WHOLE, false, unused) > 0) {
    if (call->stage == GD_CUDA_LAUNCH && takes_whole(call->cuda, &whole, &queries, &keys))
      return run_tiled(call, &whole, tunes);
    if (call->stage != GD_CUDA_LAUNCH && wants_whole(call->cuda, &queries, tunes))
      GD_TRY(run_tiled(call, &whole, tunes));
  }
  GD_TRY(run_tiled(call, &queries, tunes));
  return run_tiled(call, &keys, tunes);
}

enum gd_status gd_cuda_own_attention_grad(const struct gd_cuda_call *call, bool tunes) {
  if (gd_cuda_short_attention_takes(call))
    return gd_cuda_short_attention_grad(call);
  const struct gd_kernel_args *args = call->args;
  struct problem p = problem_of(args, 1, 6);
  GD_TRY(check_size(&args->in[1], call->err));
  int64_t group = p.device.group, steps = p.device.steps;
  int64_t row_bytes = p.device.size * gd_dtype_bytes(p.dtype);
  int64_t delta_bytes = group * steps * (int64_t)sizeof(float); /* of a key head */
  int64_t most = delta_bytes ? args->workspace_bytes / delta_bytes : p.key_heads;
  if (p.key_heads && most < 1)
    return gd_fail(call->err, GD_UNSUPPORTED,
                   "the gradient of attention over %lld steps wants %lld bytes of workspace for %d "
                   "heads that share keys and has %lld; shorten the sequence",
                   (long long)steps, (long long)delta_bytes, p.device.group,
                   (long long)args->workspace_bytes);
  char defines[32];
  snprintf(defines, sizeof defines, "ALIGNED=%d", p.aligned);
  struct gd_cuda_kernel delta = {.file = "attention_delta",
                                 .name = "attention_delta",
                                 .defines = defines,
                                 .n_types = 1,
                                 .types = {p.dtype}};
  for (int64_t first = 0; first < p.key_heads; first += most) {
    int64_t key_heads = p.key_heads - first < most ? p.key_heads - first : most;
    int64_t query_bytes = first * group * steps * row_bytes, key_bytes = first * steps * row_bytes;
    struct slice s = {.dout = (const char *)args->in[0].data + query_bytes,
                      .q = (const char *)p.q + query_bytes,
                      .k = (const char *)p.k + key_bytes,
                      .v = (const char *)p.v + key_bytes,
                      .out = (const char *)args->in[4].data + query_bytes,
                      .lse = (const char *)args->in[5].data + first * delta_bytes,
                      .dq = (char *)args->out[0].data + query_bytes,
                      .dk = (char *)args->out[1].data + key_bytes,
                      .dv = (char *)args->out[2].data + key_bytes,
                      .delta = args->workspace,
                      .key_heads = key_heads,
                      .rows = key_heads * group * steps};
    struct gd_cuda_grid grid = {.x = (s.rows + 31) / 32, .threads = 256};
    p.device.heads = key_heads * group;
    p.device.first_head = first * group;
    GD_TRY(GD_CUDA_LAUNCH(call, &delta, grid, &s.dout, &s.out, &s.delta, &s.rows, &p.device.size));
    GD_TRY(p.head > HEAD_MAX ? wide_grad(call, &p, &s) : tiled_grad(call, &p, &s, tunes));
  }
  return GD_OK;
}
