/*
 * Emulated GEMMs: how they are cut, and the launches before the library's. gemm_emulated.h says
 * why; kernels/gemm_emulated.cu has the kernels.
 */
#include "backend/cuda/gemm/gemm_emulated.h"
#include "base/sizes.h"

#include <stddef.h>

enum {
  THREADS = 256,
  DIRECT_ELEMENTS = 64 * THREADS, /* of D, of a CTA that computes what fp16 cannot hold */
  TILE_UNITS = 4 * THREADS,       /* of a block: kernels/gemm_emulated.cu */
  UNIT = 4,                       /* elements */
  STEP = 128,                     /* pieces are multiples of it */
  PITCH = 8,                      /* elements: lines begin at multiples of 16 bytes */
  SQUARE = 64,                    /* a tile that is transposed */
  ROOM_ALIGNMENT = 256,
  SEGMENT = 64,                                     /* neighbouring elements of a sample */
  SAMPLED = 8 << 20,                                /* operands of more elements are sampled, */
  SAMPLE_EVERY = 16,                                /* one segment of so many */
  SAMPLE_TARGET = 7,                                /* exponent of what is largest in a sample */
  WHOLE_TARGET = 14,                                /* of what is largest of all */
  SAMPLE_SEGMENTS = 4 * THREADS / (SEGMENT / UNIT), /* of a block */
};

_Static_assert(sizeof(struct gd_cuda_slots) <= GD_CUDA_EMULATED_SLOTS_BYTES,
               "slots have their room");

/* --- cutting -------------------------------------------------------------------------------- */

/* An operand as it is stored: `lines` of `length`. */
struct stored {
  const float *data;
  int64_t length, lines, pitch;
};

/* Of A[m,k] or B[k,n], or that part of it that [from, from + size) of the cut dim leaves. */
static struct stored stored_of(const struct gd_cuda_gemm *p, int operand, enum gd_cuda_cut cut,
                               int64_t from, int64_t size) {
  bool transposed = operand == 0 ? p->trans_a : p->trans_b;
  int64_t rows = operand == 0 ? p->m : p->k, columns = operand == 0 ? p->k : p->n;
  bool cuts_rows = cut == (operand == 0 ? GD_CUDA_CUT_M : GD_CUDA_CUT_K);
  bool cuts_columns = cut == (operand == 0 ? GD_CUDA_CUT_K : GD_CUDA_CUT_N);
  struct stored s = {.data = operand == 0 ? p->a : p->b, .pitch = operand == 0 ? p->lda : p->ldb};
  int64_t row = cuts_rows ? from : 0, column = cuts_columns ? from : 0;
  rows = cuts_rows ? size : rows;
  columns = cuts_columns ? size : columns;
  s.length = transposed ? columns : rows;
  s.lines = transposed ? rows : columns;
  s.data += transposed ? column + row * s.pitch : row + column * s.pitch;
  return s;
}

static int64_t fp16_bytes(const struct stored *s, bool transposed) {
  int64_t length = transposed ? s->lines : s->length, lines = transposed ? s->length : s->lines;
  return gd_round_up(2 * gd_round_up(length, PITCH) * lines, ROOM_ALIGNMENT);
}

static int64_t cut_dim(const struct gd_cuda_gemm *p, enum gd_cuda_cut cut) {
  return cut == GD_CUDA_CUT_M ? p->m : cut == GD_CUDA_CUT_N ? p->n : p->k;
}

/* GEMMs of one B, each along its dim, in as few pieces as fit; emulated[0] has the room. */
static bool cut_along(const struct gd_cuda_gemm *p, int n, const enum gd_cuda_cut *cuts,
                      int64_t room_bytes, struct gd_cuda_emulated *emulated) {
  int64_t dim = cut_dim(&p[0], cuts[0]);
  for (int64_t pieces = 1; pieces <= GD_CUDA_EMULATED_PIECES; pieces++) {
    int64_t size = pieces == 1 ? dim : gd_round_up((dim + pieces - 1) / pieces, STEP);
    struct stored b = stored_of(&p[0], 1, cuts[0], 0, size);
    int64_t bytes = fp16_bytes(&b, false);
    for (int i = 0; i < n; i++) {
      struct stored a = stored_of(&p[i], 0, cuts[i], 0, size);
      emulated[i] =
          (struct gd_cuda_emulated){.pieces = (dim + size - 1) / size,
                                    .cut = cuts[i],
                                    .size = size,
                                    .room = emulated[0].room,
                                    .a_at = bytes,
                                    .transposes_a = p[i].trans_a && cuts[i] == GD_CUDA_CUT_N,
                                    .number = i};
      bytes += fp16_bytes(&a, emulated[i].transposes_a);
    }
    if (bytes <= room_bytes)
      return true;
  }
  emulated[0] = (struct gd_cuda_emulated){.room = emulated[0].room};
  return false;
}

static bool can_be_emulated(const struct gd_cuda_gemm *p) {
  return p->dtype == GD_DTYPE_F32 && p->dtype_d == GD_DTYPE_F32 && p->batch == 1 && !p->staged &&
         p->m > 0 && p->n > 0 && p->k > 0 &&
         /* Units of an operand are counted in 31 bits. */
         gd_round_up(p->m, UNIT) / UNIT * gd_round_up(p->k, UNIT) < GD_CUDA_DIVIDEND_LIMIT &&
         gd_round_up(p->n, UNIT) / UNIT * gd_round_up(p->k, UNIT) < GD_CUDA_DIVIDEND_LIMIT;
}

bool gd_cuda_emulated_plan(const struct gd_cuda_gemm *p, void *room, int64_t room_bytes,
                           struct gd_cuda_emulated *emulated) {
  enum gd_cuda_cut order[3] = {GD_CUDA_CUT_N, GD_CUDA_CUT_M, GD_CUDA_CUT_K};
  *emulated = (struct gd_cuda_emulated){.room = room};
  if (!can_be_emulated(p))
    return false;
  for (int i = 0; i < 2; i++) /* the longest first */
    for (int j = 0; j < 2 - i; j++)
      if (cut_dim(p, order[j]) < cut_dim(p, order[j + 1])) {
        enum gd_cuda_cut swapped = order[j];
        order[j] = order[j + 1];
        order[j + 1] = swapped;
      }
  for (int i = 0; i < 3; i++)
    if (cut_along(p, 1, &order[i], room_bytes, emulated))
      return true;
  return false;
}

bool gd_cuda_emulated_share(const struct gd_cuda_gemm *a, const struct gd_cuda_gemm *b) {
  struct stored s = stored_of(a, 1, GD_CUDA_CUT_M, 0, a->m);
  struct stored t = stored_of(b, 1, GD_CUDA_CUT_M, 0, b->m);
  return can_be_emulated(a) && can_be_emulated(b) && s.data == t.data && s.length == t.length &&
         s.lines == t.lines && s.pitch == t.pitch;
}

bool gd_cuda_emulated_plan_all(const struct gd_cuda_gemm *gemms, int n, void *room,
                               int64_t room_bytes, struct gd_cuda_emulated *emulated) {
  enum gd_cuda_cut cuts[GD_CUDA_EMULATED_SHARING] = {GD_CUDA_CUT_N};
  GD_ASSERT(n >= 1 && n <= GD_CUDA_EMULATED_SHARING);
  for (int i = 0; i < n; i++) { /* lines of B are its columns, or rows where it is transposed */
    GD_ASSERT(gd_cuda_emulated_share(&gemms[0], &gemms[i]));
    cuts[i] = gemms[i].trans_b ? GD_CUDA_CUT_K : GD_CUDA_CUT_N;
  }
  emulated[0] = (struct gd_cuda_emulated){.room = room};
  return cut_along(gemms, n, cuts, room_bytes, emulated);
}

static int32_t sample_every(int64_t elements) {
  return elements > SAMPLED ? SAMPLE_EVERY : 1;
}

static void make_cast(const struct stored *s, bool transposed, void *to,
                      struct gd_cuda_cast *cast) {
  *cast = (struct gd_cuda_cast){.from = s->data,
                                .to = to,
                                .length = s->length,
                                .lines = s->lines,
                                .from_pitch = s->pitch,
                                .to_pitch = gd_round_up(transposed ? s->lines : s->length, PITCH),
                                .transposed = transposed};
  if (transposed) {
    cast->line_units = (s->length + SQUARE - 1) / SQUARE; /* squares */
    cast->units = cast->tiles = cast->line_units * ((s->lines + SQUARE - 1) / SQUARE);
    return;
  }
  if (cast->from_pitch == s->length && cast->to_pitch == s->length) { /* no gaps: one line */
    cast->length *= cast->lines;
    cast->lines = 1;
  }
  cast->line_units = (cast->length + UNIT - 1) / UNIT;
  cast->units = cast->line_units * cast->lines;
  if (cast->lines > 1)
    cast->divider = gd_divider_of(cast->line_units);
  cast->tiles = (cast->units + TILE_UNITS - 1) / TILE_UNITS;
}

/* Of the A of a GEMM among those that share B. */
static int32_t operand_of(int32_t number) {
  return number == 0 ? 0 : number + 1;
}

/* piece: with its sizes and its place in D. */
static struct gd_cuda_direct direct_of(const struct gd_cuda_gemm *p, enum gd_cuda_cut cut,
                                       int64_t from, int64_t size,
                                       const struct gd_cuda_gemm *piece) {
  struct stored a = stored_of(p, 0, cut, from, size), b = stored_of(p, 1, cut, from, size);
  return (struct gd_cuda_direct){.a = a.data,
                                 .b = b.data,
                                 .d = piece->d,
                                 .m = piece->m,
                                 .n = piece->n,
                                 .k = piece->k,
                                 .a_m = p->trans_a ? a.pitch : 1,
                                 .a_k = p->trans_a ? 1 : a.pitch,
                                 .b_k = p->trans_b ? b.pitch : 1,
                                 .b_n = p->trans_b ? 1 : b.pitch,
                                 .ldd = piece->ldd};
}

void gd_cuda_emulated_piece(const struct gd_cuda_gemm *p, const struct gd_cuda_emulated *emulated,
                            int64_t at, struct gd_cuda_gemm *piece, struct gd_cuda_casts *casts) {
  int64_t from = at * emulated->size, left = cut_dim(p, emulated->cut) - from;
  int64_t size = left < emulated->size ? left : emulated->size;
  GD_ASSERT(at >= 0 && at < emulated->pieces && size > 0);
  *piece = *p;
  *casts = (struct gd_cuda_casts){.operand = {operand_of(emulated->number), 1},
                                  .stays = emulated->cut == GD_CUDA_CUT_N && emulated->pieces > 1};
  for (int i = 0; i < 2; i++) {
    bool whole = emulated->cut == (i == 0 ? GD_CUDA_CUT_N : GD_CUDA_CUT_M);
    bool transposed = i == 0 && emulated->transposes_a, is_there = i == 1 && emulated->number > 0;
    struct stored s = stored_of(p, i, emulated->cut, from, size);
    char *to = emulated->room + (i == 0 ? emulated->a_at : emulated->b_at);
    if ((!whole || at == 0) && !is_there)
      make_cast(&s, transposed, to, &casts->at[i]);
    casts->slot[i] = whole ? 0 : (int32_t)at;
    casts->target[i] =
        sample_every(i == 0 ? p->m * p->k : p->k * p->n) == 1 ? WHOLE_TARGET : SAMPLE_TARGET;
    *(i == 0 ? &piece->a : &piece->b) = to;
    *(i == 0 ? &piece->lda : &piece->ldb) = gd_round_up(transposed ? s.lines : s.length, PITCH);
    if (transposed)
      piece->trans_a = false;
  }
  piece->dtype = GD_DTYPE_F16;
  piece->tf32 = false;
  *(emulated->cut == GD_CUDA_CUT_M   ? &piece->m
    : emulated->cut == GD_CUDA_CUT_N ? &piece->n
                                     : &piece->k) = size;
  if (emulated->cut == GD_CUDA_CUT_K && at > 0) { /* to what the pieces before have left */
    piece->adds = true;
    piece->bias = NULL;
    piece->bias_mode = GD_CUDA_BIAS_NONE;
  }
  if (emulated->cut == GD_CUDA_CUT_M) {
    piece->d = (float *)p->d + from;
    piece->bias = p->bias ? p->bias + from : NULL;
  }
  if (emulated->cut == GD_CUDA_CUT_N)
    piece->d = (float *)p->d + from * p->ldd;
  casts->direct = direct_of(p, emulated->cut, from, size, piece);
}

/* --- launching ------------------------------------------------------------------------------ */

static struct gd_cuda_kernel kernel_of(const char *name) {
  return (struct gd_cuda_kernel){.file = "gemm_emulated", .name = name};
}

enum gd_status gd_cuda_emulated_collect(const struct gd_cuda_call *call) {
  struct gd_cuda_kernel kernel = kernel_of("emulated_cast");
  return gd_cuda_launch_now(call, &kernel, (struct gd_cuda_grid){0}, NULL);
}

static void make_sample(const struct stored *s, struct gd_cuda_sample *sample) {
  *sample = (struct gd_cuda_sample){
      .from = s->data, .length = s->length, .lines = s->lines, .pitch = s->pitch};
  if (s->pitch == s->length) {
    sample->length *= sample->lines;
    sample->lines = 1;
  }
  sample->line_segments = (sample->length + SEGMENT - 1) / SEGMENT;
  sample->segments = sample->line_segments * sample->lines;
  sample->every = sample_every(s->length * s->lines);
  sample->groups = (sample->segments + sample->every - 1) / sample->every;
  sample->blocks = (sample->groups + SAMPLE_SEGMENTS - 1) / SAMPLE_SEGMENTS;
}

enum gd_status gd_cuda_emulated_sample(const struct gd_cuda_call *call,
                                       const struct gd_cuda_gemm *gemms, int n, void *slots) {
  struct gd_cuda_kernel kernel = kernel_of("emulated_sample");
  struct gd_cuda_samples samples = {0};
  struct gd_cuda_grid grid = {.threads = THREADS};
  for (int i = 0; i <= n; i++) {
    const struct gd_cuda_gemm *p = &gemms[i < 2 ? 0 : i - 1];
    struct stored s = stored_of(p, i == 1, GD_CUDA_CUT_K, 0, p->k);
    make_sample(&s, &samples.at[i]);
    grid.x += samples.at[i].blocks;
  }
  GD_TRY(gd_cuda_check(call->cuda,
                       call->cuda->cu->MemsetD8Async((CUdeviceptr)(uintptr_t)slots, 0,
                                                     sizeof(struct gd_cuda_slots), call->stream),
                       "clearing the exponents of a GEMM", call->err));
  return gd_cuda_launch_now(call, &kernel, grid, (void *[]){&slots, &samples});
}

enum gd_status gd_cuda_emulated_cast(const struct gd_cuda_call *call,
                                     const struct gd_cuda_gemm *piece,
                                     const struct gd_cuda_casts *casts, void *slots) {
  struct gd_cuda_kernel cast = kernel_of("emulated_cast"), check = kernel_of("emulated_check");
  struct gd_cuda_casts all = *casts;
  float alpha = piece->alpha, beta = piece->adds ? 1 : 0;
  int64_t tiles = casts->at[0].tiles + casts->at[1].tiles;
  /* What no alpha undoes is computed by the check, whose CTAs then have elements of D. */
  int64_t shares = tiles + piece->m * piece->n / DIRECT_ELEMENTS + 1;
  struct gd_cuda_grid grid = {.x = tiles, .threads = THREADS};
  struct gd_cuda_grid few = {.x = gd_cuda_blocks(call->cuda, shares, 1, 4), .threads = THREADS};
  GD_TRY(gd_cuda_launch_now(call, &cast, grid, (void *[]){&slots, &all}));
  return gd_cuda_launch_now(call, &check, few, (void *[]){&slots, &all, &alpha, &beta});
}

const float *gd_cuda_emulated_factors(const void *slots) {
  return &((const struct gd_cuda_slots *)slots)->alpha;
}
