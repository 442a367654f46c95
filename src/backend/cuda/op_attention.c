/*
 * Attention on CUDA: kernels/attention.cu for heads of up to 256, kernels/attention_wide.cu for the
 * rest. Here the tiles are picked by head size, dtype and the shared memory of the device, and the
 * gradient is cut into slices of heads whose sums per row (delta) fit the workspace.
 *
 * Key head number p of all samples and key heads, p = b M + m, serves query heads p N/M and up, so
 * both ops see a batch of key heads and nothing else.
 */
#include <stdio.h>

#include "backend/cuda/attention.h"
#include "backend/cuda/cuda_int.h"
#include "base/rng.h"

enum { HEAD_MAX = 256 };

/* As kernels/attention.cu has it. */
struct gd_attention {
  int64_t heads, first_head, weights;
  int32_t group, steps, size, chunk, causal;
  float scale, exponent, kept_scale;
  uint32_t threshold, stream;
};

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

/* What a block of threads has: see the head of attention.cu. */
struct tiling {
  int warps, row_tiles, columns, stages;
  int blocks; /* on a multiprocessor: what the registers are limited for */
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

static int forward_bytes(const struct problem *p, const struct tiling *t) {
  return (tile_rows(t) + 2 * t->columns) * row_bytes(p);
}

/* Queries and dout, or keys and values; then stages of the others, with lse and delta. */
static int grad_bytes(const struct problem *p, const struct tiling *t) {
  return 2 * tile_rows(t) * row_bytes(p) + t->stages * 2 * t->columns * (row_bytes(p) + 4);
}

/* The first of the list that a multiprocessor holds as often as it says (each block takes 1 KiB
   more); every list ends with one that fits sm_86, whose blocks have the least. */
static struct tiling first_fit(const struct gd_cuda *cuda, const struct problem *p,
                               int (*bytes)(const struct problem *, const struct tiling *),
                               const struct tiling *list, int count) {
  int i = 0;
  while (i < count - 1 && list[i].blocks * (bytes(p, &list[i]) + 1024) > cuda->shared_bytes + 1024)
    i++;
  return list[i];
}

#define FIRST_FIT(cuda, p, bytes, ...)                            \
  first_fit(cuda, p, bytes, (const struct tiling[]){__VA_ARGS__}, \
            (int)(sizeof(const struct tiling[]){__VA_ARGS__} / sizeof(struct tiling)))

/*
 * Registers bound the tiles: of a lane's 255, a warp's sums take row_tiles x head / 2 (twice for dk
 * and dv together), its scores row_tiles x columns / 2 (twice in the gradient). Two row tiles halve
 * the reads of shared memory, which one row tile is bound by: 2.25 cycles a product of 16 x 8 x 16
 * by count of bytes, of which mma.sync does one in about 1.6 on sm_90.
 */
static struct tiling forward_tiling(const struct gd_cuda *cuda, const struct problem *p) {
  bool half = gd_dtype_bytes(p->dtype) == 2;
  if (half && p->head <= 128 && p->drops)
    return FIRST_FIT(cuda, p, forward_bytes, {4, 2, 32, 1, 2}, {8, 1, 64, 1, 1});
  if (half && p->head <= 128)
    return FIRST_FIT(cuda, p, forward_bytes, {4, 2, 64, 1, 2}, {8, 1, 64, 1, 1});
  if (half)
    return FIRST_FIT(cuda, p, forward_bytes, {8, 1, 64, 1, 1}, {4, 1, 64, 1, 1});
  if (p->head <= 64)
    return FIRST_FIT(cuda, p, forward_bytes, {4, 2, 32, 1, 2}, {8, 1, 32, 1, 1});
  return FIRST_FIT(cuda, p, forward_bytes, {8, 1, 32, 1, 1}, {4, 1, 32, 1, 1}, {4, 1, 16, 1, 1});
}

static struct tiling grad_tiling(const struct gd_cuda *cuda, const struct problem *p, bool keys) {
  bool half = gd_dtype_bytes(p->dtype) == 2;
  if (half && p->head <= 64 && keys)
    return FIRST_FIT(cuda, p, grad_bytes, {4, 2, 32, 2, 2}, {8, 1, 64, 2, 1});
  if (half && p->head <= 64)
    return FIRST_FIT(cuda, p, grad_bytes, {4, 2, 64, 2, 2}, {8, 1, 64, 2, 1});
  if (half && p->head <= 128 && keys)
    return FIRST_FIT(cuda, p, grad_bytes, {8, 1, 64, 2, 1}, {4, 1, 32, 2, 1});
  if (half && p->head <= 128)
    return FIRST_FIT(cuda, p, grad_bytes, {4, 2, 32, 2, 2}, {8, 1, 64, 2, 1}, {4, 1, 32, 2, 1});
  return FIRST_FIT(cuda, p, grad_bytes, {8, 1, 32, 2, 1}, {4, 1, 32, 2, 1}, {4, 1, 16, 2, 1},
                   {4, 1, 16, 1, 1}, {2, 1, 16, 1, 1});
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
                                       const char *name, const char *pass, int parts,
                                       char defines[DEFINES_BYTES]) {
  int dropout = !p->drops ? 0 : p->device.steps % 8 ? 1 : 2;
  snprintf(defines, DEFINES_BYTES,
           "%s=1 HEAD=%d WARPS=%d ROW_TILES=%d COLUMNS=%d STAGES=%d PARTS=%d DROPOUT=%d "
           "ALIGNED=%d PRODUCTS=%d BLOCKS=%d",
           pass, p->head, t->warps, t->row_tiles, t->columns, t->stages, parts, dropout, p->aligned,
           p->products, t->blocks);
  return (struct gd_cuda_kernel){
      .file = "attention", .name = name, .defines = defines, .n_types = 1, .types = {p->dtype}};
}

static struct gd_cuda_grid grid_of(const struct problem *p, const struct tiling *t, int64_t heads,
                                   int shared_bytes) {
  int64_t blocks = (p->device.steps + tile_rows(t) - 1) / tile_rows(t);
  return (struct gd_cuda_grid){
      .x = heads * blocks, .threads = t->warps * 32, .shared_bytes = shared_bytes};
}

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

enum gd_status gd_cuda_own_attention(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  struct problem p = problem_of(args, 0, 3);
  GD_TRY(check_size(&args->in[0], call->err));
  void *out = args->out[0].data, *lse = args->out[1].data;
  if (p.head > HEAD_MAX) {
    struct gd_cuda_kernel kernel = wide_kernel(&p, "attention_wide");
    return GD_CUDA_LAUNCH(call, &kernel, wide_grid(p.device.heads * p.device.steps), &p.q, &p.k,
                          &p.v, &out, &lse, &p.seed, &p.device);
  }
  char defines[DEFINES_BYTES];
  struct tiling t = forward_tiling(call->cuda, &p);
  struct gd_cuda_kernel kernel = kernel_of(&p, &t, "attention_forward", "FORWARD", 0, defines);
  p.device.chunk = chunk_of(call->cuda, &p, p.device.heads,
                            2.0 / (p.device.group ? p.device.group : 1), tile_rows(&t));
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(&p, &t, p.device.heads, forward_bytes(&p, &t)), &p.q,
                        &p.k, &p.v, &out, &lse, &p.seed, &p.device);
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

static enum gd_status tiled_grad(const struct gd_cuda_call *call, const struct problem *p,
                                 struct slice *s) {
  char defines[DEFINES_BYTES];
  const int32_t *seed = p->seed;
  struct gd_attention device = p->device;
  double group = (double)device.group;

  struct tiling t = grad_tiling(call->cuda, p, false);
  struct gd_cuda_kernel kernel =
      kernel_of(p, &t, "attention_grad_queries", "GRAD_QUERIES", 0, defines);
  device.chunk = chunk_of(call->cuda, p, device.heads, 2 / (group > 0 ? group : 1), tile_rows(&t));
  GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(p, &t, device.heads, grad_bytes(p, &t)), &s->dout,
                        &s->q, &s->k, &s->v, &s->lse, &s->delta, &seed, &s->dq, &device));

  t = grad_tiling(call->cuda, p, true);
  device.heads = s->key_heads;
  device.chunk = chunk_of(call->cuda, p, device.heads, 2 * group, tile_rows(&t));
  bool at_once = keys_at_once(p);
  for (int parts = at_once ? 3 : 1; parts <= (at_once ? 3 : 2); parts++) {
    kernel = kernel_of(p, &t, "attention_grad_keys", "GRAD_KEYS", parts, defines);
    GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(p, &t, device.heads, grad_bytes(p, &t)), &s->dout,
                          &s->q, &s->k, &s->v, &s->lse, &s->delta, &seed, &s->dk, &s->dv, &device));
  }
  return GD_OK;
}

enum gd_status gd_cuda_own_attention_grad(const struct gd_cuda_call *call) {
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
  snprintf(defines, sizeof defines, "DELTA=1 ALIGNED=%d", p.aligned);
  struct gd_cuda_kernel delta = {.file = "attention",
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
    GD_TRY(p.head > HEAD_MAX ? wide_grad(call, &p, &s) : tiled_grad(call, &p, &s));
  }
  return GD_OK;
}
