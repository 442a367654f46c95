/*
 * Attention on CUDA: the tiled kernels (kernels/attention_tiles.cuh) for heads of up to 256,
 * kernels/attention_wide.cu for the rest. The gradient is cut into slices of heads whose sums per
 * row (delta) fit the workspace.
 *
 * Tilings are data: a few candidates for each kernel, precision and head size. Those that the
 * device holds are timed on the real shapes (autotune.h) and the fastest is kept for the shape, so
 * that a forward pass and its recomputation agree; small problems take the first.
 * GPUDAYS_ATTENTION_TILE=N takes tiling N, modulo their number, and times no other (cuDNN is still
 * asked: GPUDAYS_CUDNN=0). On sm_90 the gradient of sequences of up to about 512 has one kernel for
 * all of it, besides the pair for dq and for dk and dv; where all were timed the faster is taken; N
 * means the pair, w the one kernel wherever it can be.
 *
 * Key head number p of all samples and key heads, p = b M + m, serves query heads p N/M and up, so
 * both ops see a batch of key heads and nothing else.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/runtime/autotune.h"
#include "backend/cuda/runtime/module.h"
#include "base/rng.h"

enum { HEAD_MAX = 256 };

/* Of the first head to work on; the gradient has all of them. */
struct tensors {
  void *q, *k, *v, *out, *lse, *seed;
  void *dout, *delta, *dq, *dk, *dv;
};

struct problem {
  struct gd_attention device;
  struct tensors at;
  int64_t key_heads; /* of all samples */
  enum gd_dtype dtype;
  int head; /* D, padded */
  int mmas; /* tensor core MMAs for one: 3 where fp32 is split into TF32 terms */
  bool aligned, drops;
};

/* What a CTA has: see the head of attention_tiles.cuh. */
struct tiling {
  int warps, row_tiles, columns, stages;
  int blocks; /* CTAs on a multiprocessor, which bounds the registers of one */
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
                      .mmas = q->dtype == GD_DTYPE_F32 && !attr->tf32 ? 3 : 1};
  p.aligned = size * gd_dtype_bytes(q->dtype) % 16 == 0;
  for (uint32_t i = 0; i < first + 4 && i < args->n_in; i++) /* dout, q, k, v, out */
    p.aligned &= args->in[i].dtype != p.dtype || aligned16(&args->in[i]);
  for (uint32_t i = 0; i < args->n_out; i++)
    p.aligned &= args->out[i].dtype != p.dtype || aligned16(&args->out[i]);
  p.drops = args->n_in > seed;
  float exponent = (float)((double)attr->scale * 1.4426950408889634);
  p.at = (struct tensors){
      .q = q->data, .k = k->data, .v = v->data, .seed = p.drops ? args->in[seed].data : NULL};
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

/* Shared memory for queries and dout (or keys and values) and for the stages of the other pair,
   with lse and delta. */
static int grad_bytes(const struct problem *p, const struct tiling *t) {
  return 2 * tile_rows(t) * row_bytes(p) + t->stages * 2 * t->columns * (row_bytes(p) + 4);
}

/* Keys and values; two stages of queries and dout, with lse and delta; dscores, twice; dq as fp32,
   unless the first keys are all; up to 1,024 for alignment. Rows are not padded. */
static int64_t whole_bytes(const struct problem *p, const struct tiling *t) {
  int64_t steps = p->device.steps, visits = (steps + t->columns - 1) / t->columns;
  int64_t so_far = steps <= tile_rows(t) ? 0 : visits * t->columns * p->head * 4;
  int line = p->head * 2;
  return 4 * tile_rows(t) * line + 4 * t->columns * (line + 4) + 1024 + so_far;
}

/* KEYS: gradients of keys and values; WHOLE: all of the gradient. */
enum phase { FORWARD, QUERIES, KEYS, WHOLE };
static const char *const kernel_names[] = {"attention_forward", "attention_grad_queries",
                                           "attention_grad_keys", "attention_grad"};
enum kind { BITS16, TF32, FP32 };
enum { NEVER, ALWAYS, EITHER };
enum { MOST_TILINGS = 7 };

/*
 * Registers bound the tiles: of a lane's 255, a warp's sums take row_tiles x head / 2 (twice for dk
 * and dv at once), its scores row_tiles x columns / 2 (twice in the gradient), an operand that
 * stays in registers row_tiles x head / 4 (16 bits; else / 2). Reads of shared memory bound the
 * MMAs: by their bytes one MMA takes 2.25 cycles with one row tile, 1.5 with two, 1 with two and an
 * operand in registers, while mma.sync does one in about 1.6 on sm_90. Seven warps are for T 197,
 * whose rows they cover with 224 where four or eight take 256.
 *
 * The first row that fits is a problem's. Its first `tries` tilings are candidates where a
 * multiprocessor holds them as often as they say; the others are for devices with less shared
 * memory, and the last one fits sm_86, whose blocks have the least.
 */
static const struct variants {
  enum phase phase;
  enum kind kind;
  int head_most, drops, tries, count;
  struct tiling tilings[MOST_TILINGS];
} variants[] = {
#define TILINGS(...)                                                \
  sizeof((struct tiling[]){__VA_ARGS__}) / sizeof(struct tiling), { \
    __VA_ARGS__                                                     \
  }
    {FORWARD, BITS16, 64, ALWAYS, 5,
     TILINGS({4, 2, 32, 2, 2, 1}, {4, 2, 32, 1, 3, 0}, {4, 1, 32, 2, 3, 1}, {4, 1, 32, 2, 4, 0},
             {4, 1, 32, 1, 4, 1}, {8, 1, 64, 1, 1, 0})},
    {FORWARD, BITS16, 64, NEVER, 4,
     TILINGS({4, 2, 64, 1, 2, 1}, {4, 2, 32, 2, 2, 1}, {4, 1, 64, 1, 3, 1}, {4, 2, 64, 2, 2, 0},
             {8, 1, 64, 1, 1, 0})},
    {FORWARD, BITS16, 128, ALWAYS, 3,
     TILINGS({4, 2, 32, 1, 2, 0}, {4, 1, 32, 1, 3, 0}, {8, 1, 64, 1, 1, 1}, {8, 1, 64, 1, 1, 0})},
    {FORWARD, BITS16, 128, NEVER, 3,
     TILINGS({4, 2, 64, 1, 2, 0}, {4, 2, 32, 1, 2, 0}, {8, 1, 64, 1, 1, 1}, {8, 1, 64, 1, 1, 0})},
    {FORWARD, BITS16, 256, EITHER, 1, TILINGS({8, 1, 64, 1, 1, 0}, {4, 1, 64, 1, 1, 0})},
    {FORWARD, TF32, 64, EITHER, 5,
     TILINGS({4, 2, 32, 2, 2, 0}, {7, 1, 32, 2, 2, 1}, {4, 2, 32, 1, 2, 1}, {4, 1, 32, 1, 3, 1},
             {4, 2, 64, 1, 2, 0}, {8, 1, 32, 1, 1, 0})},
    {FORWARD, TF32, 128, EITHER, 2,
     TILINGS({4, 2, 32, 1, 2, 0}, {8, 1, 32, 1, 1, 0}, {4, 1, 32, 1, 1, 0}, {4, 1, 16, 1, 1, 0})},
    {FORWARD, FP32, 64, EITHER, 2, TILINGS({4, 2, 32, 1, 2, 0}, {8, 1, 32, 1, 1, 0})},
    {FORWARD, FP32, 256, EITHER, 1,
     TILINGS({8, 1, 32, 1, 1, 0}, {4, 1, 32, 1, 1, 0}, {4, 1, 16, 1, 1, 0})},

    {QUERIES, BITS16, 64, EITHER, 5,
     TILINGS({4, 2, 32, 3, 2, 0}, {4, 2, 32, 2, 2, 2}, {4, 1, 32, 2, 4, 2}, {4, 2, 32, 2, 3, 0},
             {4, 1, 32, 2, 5, 0}, {8, 1, 64, 2, 1, 0})},
    {QUERIES, BITS16, 128, EITHER, 2,
     TILINGS({4, 2, 32, 2, 2, 0}, {8, 1, 64, 2, 1, 0}, {4, 1, 32, 2, 1, 0})},
    {QUERIES, TF32, 64, EITHER, 5,
     TILINGS({4, 2, 16, 3, 2, 0}, {4, 2, 32, 2, 2, 1}, {4, 2, 32, 2, 2, 0}, {4, 1, 32, 2, 3, 0},
             {7, 1, 32, 2, 2, 0}, {8, 1, 32, 2, 1, 0}, {4, 1, 32, 2, 1, 0})},

    {KEYS, BITS16, 64, EITHER, 5,
     TILINGS({4, 2, 32, 3, 2, 0}, {4, 2, 32, 2, 2, 0}, {4, 1, 32, 3, 3, 0}, {4, 1, 32, 2, 3, 0},
             {4, 1, 32, 2, 4, 0}, {8, 1, 64, 2, 1, 0})},
    {KEYS, BITS16, 128, EITHER, 1, TILINGS({8, 1, 64, 2, 1, 0}, {4, 1, 32, 2, 1, 0})},
    {KEYS, TF32, 64, EITHER, 4,
     TILINGS({4, 2, 16, 3, 2, 0}, {4, 2, 32, 2, 2, 0}, {4, 1, 32, 2, 3, 0}, {7, 1, 32, 2, 2, 0},
             {8, 1, 32, 2, 1, 0}, {4, 1, 32, 2, 1, 0})},

    {WHOLE, BITS16, 64, EITHER, 1,
     TILINGS({8, 1, 64, 2, 1, 0})}, /* attention_grad.cu has no other */
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

static int64_t phase_bytes(const struct problem *p, enum phase phase, const struct tiling *t) {
  return phase == FORWARD ? forward_bytes(p, t)
         : phase == WHOLE ? whole_bytes(p, t)
                          : grad_bytes(p, t);
}

static const struct variants *variants_of(const struct problem *p, enum phase phase) {
  enum kind kind = gd_dtype_bytes(p->dtype) == 2 ? BITS16 : p->mmas == 1 ? TF32 : FP32;
  for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
    const struct variants *v = &variants[i];
    bool same_kind = v->kind == kind || (v->kind == FP32 && kind == TF32);
    if (v->phase == phase && same_kind && p->head <= v->head_most &&
        (v->drops == EITHER || p->drops == (v->drops == ALWAYS)))
      return v;
  }
  return &other_grads;
}

/* What is worth timing, or what there is; at least one, but for WHOLE. all: whatever fits. */
static int candidates_of(const struct gd_cuda *cuda, const struct problem *p, enum phase phase,
                         bool all, const struct tiling *list[MOST_TILINGS]) {
  const struct variants *v = variants_of(p, phase);
  int n = 0, tries = all ? v->count : v->tries;
  if (phase == WHOLE &&
      (v->phase != WHOLE || p->device.group != 1 || cuda->sm != 90 || !p->aligned || p->head != 64))
    return 0;
  for (int i = 0; i < v->count && (i < tries || n == 0); i++) {
    const struct tiling *t = &v->tilings[i];
    if (t->blocks * (phase_bytes(p, phase, t) + 1024) <= cuda->shared_bytes + 1024 ||
        (phase != WHOLE && i == v->count - 1))
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
           "ALIGNED=%d MMAS=%d BLOCKS=%d KEEP=%d",
           p->head, t->warps, t->row_tiles, t->columns, t->stages, parts, dropout, p->aligned,
           p->mmas, t->blocks, t->keep);
  return (struct gd_cuda_kernel){
      .file = name, .name = name, .defines = defines, .n_types = 1, .types = {p->dtype}};
}

static struct gd_cuda_grid grid_of(const struct problem *p, enum phase phase,
                                   const struct tiling *t, int64_t heads) {
  int64_t blocks = (p->device.steps + tile_rows(t) - 1) / tile_rows(t); /* of a head */
  return (struct gd_cuda_grid){.x = heads * (phase == WHOLE && blocks > 1 ? 1 : blocks),
                               .threads = t->warps * 32,
                               .shared_bytes = (int)phase_bytes(p, phase, t)};
}

/* One pass, but for its tiles. */
struct work {
  enum phase phase;
  const struct problem *problem;
  struct gd_attention *device; /* what the kernel gets; its chunk depends on the tiling */
  double visited;              /* matrices a head */
  void **params;
};

static enum gd_status launch_tiled(const struct gd_cuda_call *call, const struct work *work,
                                   const struct tiling *t) {
  char defines[DEFINES_BYTES];
  const struct problem *p = work->problem;
  int64_t heads = work->device->heads;
  work->device->chunk = chunk_of(call->cuda, p, heads, work->visited, tile_rows(t));
  struct gd_cuda_grid grid = grid_of(p, work->phase, t, heads);
  int first = work->phase != KEYS ? 0 : keys_at_once(p) ? 3 : 1;
  int last = work->phase != KEYS ? 0 : keys_at_once(p) ? 3 : 2;
  for (int parts = first; parts <= last; parts++) {
    struct gd_cuda_kernel kernel = kernel_of(p, t, kernel_names[work->phase], parts, defines);
    GD_TRY(gd_cuda_launch(call, &kernel, grid, work->params));
  }
  return GD_OK;
}

/* --- autotuning ------------------------------------------------------------------------------- */

/* Of the heads that are worked on. A GEMM that several kernels repeat counts once, so that the two
   kernels of the gradient share five. */
static double flops_of(const struct work *work) {
  const struct gd_attention *d = &work->problem->device;
  static const double gemms[] = {[FORWARD] = 2, [QUERIES] = 2, [KEYS] = 3, [WHOLE] = 5};
  double flops = 2 * gemms[work->phase] * (double)d->steps * (double)d->steps * (double)d->size;
  return flops * (double)d->heads / (d->causal ? 2 : 1);
}

static enum gd_status write_key(const struct gd_cuda_call *call, const struct work *work,
                                char key[GD_CUDA_KEY_BYTES]) {
  const struct problem *p = work->problem;
  uint64_t hash;
  GD_TRY(gd_cuda_source_hash(call->cuda, kernel_names[work->phase], &hash, call->err));
  snprintf(key, GD_CUDA_KEY_BYTES, "%s %016llx %s%s key heads %lld group %d steps %d size %d%s%s%s",
           kernel_names[work->phase], (unsigned long long)hash, gd_dtype_name(p->dtype),
           p->dtype == GD_DTYPE_F32 && p->mmas == 1 ? " tf32" : "", (long long)p->key_heads,
           p->device.group, p->device.steps, p->device.size, p->device.causal ? " causal" : "",
           p->drops ? " dropout" : "", p->aligned ? "" : " unaligned");
  return GD_OK;
}

/* A tiling as the cache has it. */
static uint64_t pack(const struct tiling *t) {
  const int parts[] = {t->warps, t->row_tiles, t->columns, t->stages, t->blocks, t->keep};
  uint64_t packed = 0;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    packed = packed << 8 | (uint64_t)parts[i];
  return packed;
}

/* The tiling that was timed as the fastest; NULL: none was, or the table has it no more. */
static const struct tiling *tuned_tiling(const struct gd_cuda_call *call, const struct work *work,
                                         const char *key) {
  const struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(call->cuda, key);
  const struct variants *v = variants_of(work->problem, work->phase);
  for (int i = 0; tuned && i < v->count; i++)
    if (pack(&v->tilings[i]) == tuned->choice[0])
      return &v->tilings[i];
  return NULL;
}

struct timed {
  struct gd_cuda_call call;
  const struct work *work;
  const struct tiling *const *list;
};

static enum gd_status run_timed(const void *user, int at) {
  const struct timed *t = user;
  return launch_tiled(&t->call, t->work, t->list[at]);
}

static void name_tiling(const void *user, int at, char *text, size_t size) {
  const struct tiling *t = ((const struct timed *)user)->list[at];
  snprintf(text, size, "warps %d row_tiles %d columns %d stages %d blocks %d keep %d", t->warps,
           t->row_tiles, t->columns, t->stages, t->blocks, t->keep);
}

static enum gd_status tune(const struct gd_cuda_call *call, const struct work *work,
                           const char *key, const struct tiling *const *list, int count) {
  struct gd_error unused = {0}; /* a tiling that fails is not taken */
  struct timed timed = {*call, work, list};
  struct gd_cuda_contest contest = {.key = key,
                                    .n = count,
                                    .run = run_timed,
                                    .user = &timed,
                                    .flops = flops_of(work),
                                    .name = name_tiling};
  char what[96];
  int best;
  double us;
  if (tuned_tiling(call, work, key))
    return GD_OK;
  timed.call.stage = GD_CUDA_LAUNCH;
  timed.call.err = &unused;
  GD_TRY(gd_cuda_random_inputs(call));
  GD_TRY(gd_cuda_autotune(call, &contest, &best, &us));
  struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(call->cuda, key);
  if (!tuned)
    tuned = gd_cuda_tuned_add(call->cuda, key);
  if (!tuned)
    return gd_nomem(call->err, "while autotuning attention");
  tuned->choice[0] = pack(list[best > 0 ? best : 0]);
  name_tiling(&timed, best > 0 ? best : 0, what, sizeof what);
  gd_cuda_tuned_set(call->cuda, tuned, us, contest.flops, what);
  return GD_OK;
}

/* Whether building and timing several tilings is worth it. */
static bool wants_tuning(const struct gd_cuda *cuda, const struct work *work) {
  return gd_cuda_autotunes(cuda) && flops_of(work) >= 1e9;
}

/* GPUDAYS_ATTENTION_TILE: the tiling that is demanded, modulo their number; -1: none is. */
static int forced_tile(bool *whole) {
  char first = gd_cuda_switch("GPUDAYS_ATTENTION_TILE");
  *whole = first == 'w';
  return *whole ? 0 : first >= '0' && first <= '9' ? first - '0' : -1;
}

/* All stages. Where cuDNN is mostly faster `tunes` is false. */
static enum gd_status run_tiled(const struct gd_cuda_call *call, const struct work *work,
                                bool tunes) {
  const struct tiling *list[MOST_TILINGS] = {NULL}, *tuned = NULL;
  char key[GD_CUDA_KEY_BYTES];
  bool whole;
  int forced = forced_tile(&whole);
  int count = candidates_of(call->cuda, work->problem, work->phase, forced >= 0, list);
  GD_ASSERT(count > 0 && list[0]);
  if (forced >= 0 || !tunes || !wants_tuning(call->cuda, work)) {
    list[0] = list[forced >= 0 ? forced % count : gd_cuda_first_candidate(call->cuda, count)];
    count = 1;
  } else {
    GD_TRY(write_key(call, work, key));
    if (call->stage == GD_CUDA_TUNE)
      return tune(call, work, key, list, count);
    tuned = tuned_tiling(call, work, key);
  }
  if (call->stage == GD_CUDA_TUNE)
    return GD_OK;
  if (tuned || call->stage == GD_CUDA_LAUNCH)
    return launch_tiled(call, work, tuned ? tuned : list[0]);
  for (int i = 0; i < count; i++) /* COLLECT */
    GD_TRY(launch_tiled(call, work, list[i]));
  return GD_OK;
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
  struct tensors *t = &p.at;
  t->out = args->out[0].data;
  t->lse = args->out[1].data;
  void *params[] = {&t->q, &t->k, &t->v, &t->out, &t->lse, &t->seed, &p.device};
  if (p.head > HEAD_MAX) {
    struct gd_cuda_kernel kernel = wide_kernel(&p, "attention_wide");
    return gd_cuda_launch(call, &kernel, wide_grid(p.device.heads * p.device.steps), params);
  }
  struct work work = {.phase = FORWARD,
                      .problem = &p,
                      .device = &p.device,
                      .visited = 2.0 / (p.device.group ? p.device.group : 1),
                      .params = params};
  return run_tiled(call, &work, tunes);
}

static enum gd_status wide_grad(const struct gd_cuda_call *call, const struct problem *p,
                                int64_t key_heads) {
  struct gd_cuda_kernel queries = wide_kernel(p, "attention_wide_queries");
  struct gd_cuda_kernel keys = wide_kernel(p, "attention_wide_keys");
  struct gd_attention device = p->device;
  struct tensors t = p->at;
  GD_TRY(GD_CUDA_LAUNCH(call, &queries, wide_grid(device.heads * device.steps), &t.dout, &t.q, &t.k,
                        &t.v, &t.lse, &t.delta, &t.seed, &t.dq, &device));
  device.heads = key_heads;
  return GD_CUDA_LAUNCH(call, &keys, wide_grid(key_heads * device.steps), &t.dout, &t.q, &t.k, &t.v,
                        &t.lse, &t.delta, &t.seed, &t.dk, &t.dv, &device);
}

/* Microseconds of the fastest tiling; infinite where it was not timed. */
static enum gd_status time_of(const struct gd_cuda_call *call, const struct work *work,
                              double *us) {
  char key[GD_CUDA_KEY_BYTES];
  GD_TRY(write_key(call, work, key));
  const struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(call->cuda, key);
  *us = tuned ? tuned->us : HUGE_VAL;
  return GD_OK;
}

/* Whether the one kernel is the gradient: demanded, or all were timed and it is the fastest. */
static enum gd_status takes_whole(const struct gd_cuda_call *call, const struct work *whole,
                                  const struct work *queries, const struct work *keys, bool tunes,
                                  bool *takes) {
  double whole_us, queries_us, keys_us;
  if (forced_tile(takes) >= 0 || !tunes)
    return GD_OK;
  GD_TRY(time_of(call, whole, &whole_us));
  GD_TRY(time_of(call, queries, &queries_us));
  GD_TRY(time_of(call, keys, &keys_us));
  *takes = isfinite(queries_us) && isfinite(keys_us) && whole_us < queries_us + keys_us &&
           wants_tuning(call->cuda, queries);
  return GD_OK;
}

/* Whether the one kernel is built, and timed. */
static bool wants_whole(const struct gd_cuda *cuda, const struct work *queries, bool tunes) {
  bool forced;
  return forced_tile(&forced) >= 0 ? forced : tunes && wants_tuning(cuda, queries);
}

static enum gd_status tiled_grad(const struct gd_cuda_call *call, const struct problem *p,
                                 int64_t key_heads, bool tunes) {
  const struct tiling *unused[MOST_TILINGS];
  struct gd_attention device = p->device, of_keys = p->device;
  double group = (double)device.group;
  of_keys.heads = key_heads;
  struct tensors t = p->at;
  struct work queries = {
      .phase = QUERIES,
      .problem = p,
      .device = &device,
      .visited = 2 / (group > 0 ? group : 1),
      .params = (void *[]){&t.dout, &t.q, &t.k, &t.v, &t.lse, &t.delta, &t.seed, &t.dq, &device}};
  struct work keys = {.phase = KEYS,
                      .problem = p,
                      .device = &of_keys,
                      .visited = 2 * group,
                      .params = (void *[]){&t.dout, &t.q, &t.k, &t.v, &t.lse, &t.delta, &t.seed,
                                           &t.dk, &t.dv, &of_keys}};
  struct work whole = {.phase = WHOLE,
                       .problem = p,
                       .device = &of_keys,
                       .visited = 2,
                       .params = (void *[]){&t.dout, &t.q, &t.k, &t.v, &t.lse, &t.delta, &t.seed,
                                            &t.dq, &t.dk, &t.dv, &of_keys}};
  if (candidates_of(call->cuda, p, WHOLE, false, unused) > 0) {
    bool takes = false;
    if (call->stage == GD_CUDA_LAUNCH)
      GD_TRY(takes_whole(call, &whole, &queries, &keys, tunes, &takes));
    if (takes)
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
    int64_t rows = key_heads * group * steps;
    struct problem part = p;
    part.at = (struct tensors){.dout = (char *)args->in[0].data + query_bytes,
                               .q = (char *)args->in[1].data + query_bytes,
                               .k = (char *)args->in[2].data + key_bytes,
                               .v = (char *)args->in[3].data + key_bytes,
                               .out = (char *)args->in[4].data + query_bytes,
                               .lse = (char *)args->in[5].data + first * delta_bytes,
                               .seed = p.at.seed,
                               .delta = args->workspace,
                               .dq = (char *)args->out[0].data + query_bytes,
                               .dk = (char *)args->out[1].data + key_bytes,
                               .dv = (char *)args->out[2].data + key_bytes};
    part.device.heads = key_heads * group;
    part.device.first_head = first * group;
    struct gd_cuda_grid grid = {.x = (rows + 31) / 32, .threads = 256};
    GD_TRY(GD_CUDA_LAUNCH(call, &delta, grid, &part.at.dout, &part.at.out, &part.at.delta, &rows,
                          &part.device.size));
    GD_TRY(p.head > HEAD_MAX ? wide_grad(call, &part, key_heads)
                             : tiled_grad(call, &part, key_heads, tunes));
  }
  return GD_OK;
}
