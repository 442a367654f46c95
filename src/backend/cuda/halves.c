/*
 * Products as scaled halves: how they are cut, and the launches before the library's. halves.h says
 * why; kernels/halves.cu has the kernels.
 */
#include "backend/cuda/halves.h"

#include <stddef.h>

enum {
  THREADS = 256,
  DIRECT_ELEMENTS = 64 * THREADS, /* of D, of a block that multiplies what halves cannot */
  TILE_UNITS = 4 * THREADS,       /* of a block: kernels/halves.cu */
  UNIT = 4,                       /* elements */
  STEP = 128,                     /* pieces are multiples of it */
  PITCH = 8,                      /* elements: lines begin at multiples of 16 bytes */
  SQUARE = 64,                    /* a tile of what is turned */
  OPERANDS = 1 + GD_CUDA_HALVES_SHARING,
  ROOM_ALIGNMENT = 256,
  SEGMENT = 64,                                     /* elements that are sampled together */
  SAMPLED = 8 << 20,                                /* operands of more elements are sampled, */
  SAMPLE_EVERY = 16,                                /* one segment of so many */
  SAMPLE_TARGET = 7,                                /* exponent of what is largest in a sample */
  WHOLE_TARGET = 14,                                /* of what is largest of all */
  SAMPLE_SEGMENTS = 4 * THREADS / (SEGMENT / UNIT), /* of a block */
};

/* As kernels/halves.cu has it. */
struct slots {
  float alpha, beta;
  uint32_t sampled[OPERANDS];
  uint32_t seen[OPERANDS][GD_CUDA_HALVES_PIECES];
};
_Static_assert(sizeof(struct slots) <= GD_CUDA_HALVES_SLOTS_BYTES, "slots have their room");

static int64_t up(int64_t x, int64_t to) {
  return (x + to - 1) / to * to;
}

/* --- cutting -------------------------------------------------------------------------------- */

/* An operand as it is stored: `lines` of `length`. */
struct stored {
  const float *data;
  int64_t length, lines, pitch;
};

/* Of A[m,k] or B[k,n], or that part of it that [from, from + size) of the cut dim leaves. */
static struct stored stored_of(const struct gd_cuda_product *p, int operand, enum gd_cuda_cut cut,
                               int64_t from, int64_t size) {
  bool turned = operand == 0 ? p->trans_a : p->trans_b;
  int64_t rows = operand == 0 ? p->m : p->k, columns = operand == 0 ? p->k : p->n;
  bool cuts_rows = cut == (operand == 0 ? GD_CUDA_CUT_M : GD_CUDA_CUT_K);
  bool cuts_columns = cut == (operand == 0 ? GD_CUDA_CUT_K : GD_CUDA_CUT_N);
  struct stored s = {.data = operand == 0 ? p->a : p->b, .pitch = operand == 0 ? p->lda : p->ldb};
  int64_t row = cuts_rows ? from : 0, column = cuts_columns ? from : 0;
  rows = cuts_rows ? size : rows;
  columns = cuts_columns ? size : columns;
  s.length = turned ? columns : rows;
  s.lines = turned ? rows : columns;
  s.data += turned ? column + row * s.pitch : row + column * s.pitch;
  return s;
}

static int64_t half_bytes(const struct stored *s, bool turned) {
  int64_t length = turned ? s->lines : s->length, lines = turned ? s->length : s->lines;
  return up(2 * up(length, PITCH) * lines, ROOM_ALIGNMENT);
}

static int64_t cut_dim(const struct gd_cuda_product *p, enum gd_cuda_cut cut) {
  return cut == GD_CUDA_CUT_M ? p->m : cut == GD_CUDA_CUT_N ? p->n : p->k;
}

/* Products of one B, each along its dim, in as few pieces as fit; halves[0] has the room. */
static bool cut_along(const struct gd_cuda_product *p, int n, const enum gd_cuda_cut *cuts,
                      int64_t room_bytes, struct gd_cuda_halves *halves) {
  int64_t dim = cut_dim(&p[0], cuts[0]);
  for (int64_t pieces = 1; pieces <= GD_CUDA_HALVES_PIECES; pieces++) {
    int64_t size = pieces == 1 ? dim : up((dim + pieces - 1) / pieces, STEP);
    struct stored b = stored_of(&p[0], 1, cuts[0], 0, size);
    int64_t bytes = half_bytes(&b, false);
    for (int i = 0; i < n; i++) {
      struct stored a = stored_of(&p[i], 0, cuts[i], 0, size);
      halves[i] = (struct gd_cuda_halves){.pieces = (dim + size - 1) / size,
                                          .cut = cuts[i],
                                          .size = size,
                                          .room = halves[0].room,
                                          .a_at = bytes,
                                          .turns_a = p[i].trans_a && cuts[i] == GD_CUDA_CUT_N,
                                          .number = i};
      bytes += half_bytes(&a, halves[i].turns_a);
    }
    if (bytes <= room_bytes)
      return true;
  }
  halves[0] = (struct gd_cuda_halves){.room = halves[0].room};
  return false;
}

static bool can_be_halved(const struct gd_cuda_product *p) {
  return p->dtype == GD_DTYPE_F32 && p->dtype_d == GD_DTYPE_F32 && p->batch == 1 && !p->staged &&
         p->m > 0 && p->n > 0 && p->k > 0 &&
         /* Units of an operand are counted in 31 bits. */
         up(p->m, UNIT) / UNIT * up(p->k, UNIT) < GD_CUDA_DIVIDEND_LIMIT &&
         up(p->n, UNIT) / UNIT * up(p->k, UNIT) < GD_CUDA_DIVIDEND_LIMIT;
}

bool gd_cuda_halves_plan(const struct gd_cuda_product *p, void *room, int64_t room_bytes,
                         struct gd_cuda_halves *halves) {
  enum gd_cuda_cut order[3] = {GD_CUDA_CUT_N, GD_CUDA_CUT_M, GD_CUDA_CUT_K};
  *halves = (struct gd_cuda_halves){.room = room};
  if (!can_be_halved(p))
    return false;
  for (int i = 0; i < 2; i++) /* the longest first */
    for (int j = 0; j < 2 - i; j++)
      if (cut_dim(p, order[j]) < cut_dim(p, order[j + 1])) {
        enum gd_cuda_cut swapped = order[j];
        order[j] = order[j + 1];
        order[j + 1] = swapped;
      }
  for (int i = 0; i < 3; i++)
    if (cut_along(p, 1, &order[i], room_bytes, halves))
      return true;
  return false;
}

bool gd_cuda_halves_share(const struct gd_cuda_product *a, const struct gd_cuda_product *b) {
  struct stored s = stored_of(a, 1, GD_CUDA_CUT_M, 0, a->m);
  struct stored t = stored_of(b, 1, GD_CUDA_CUT_M, 0, b->m);
  return can_be_halved(a) && can_be_halved(b) && s.data == t.data && s.length == t.length &&
         s.lines == t.lines && s.pitch == t.pitch;
}

bool gd_cuda_halves_plan_all(const struct gd_cuda_product *products, int n, void *room,
                             int64_t room_bytes, struct gd_cuda_halves *halves) {
  enum gd_cuda_cut cuts[GD_CUDA_HALVES_SHARING] = {GD_CUDA_CUT_N};
  GD_ASSERT(n >= 1 && n <= GD_CUDA_HALVES_SHARING);
  for (int i = 0; i < n; i++) { /* lines of B are its columns, or rows where it is turned */
    GD_ASSERT(gd_cuda_halves_share(&products[0], &products[i]));
    cuts[i] = products[i].trans_b ? GD_CUDA_CUT_K : GD_CUDA_CUT_N;
  }
  halves[0] = (struct gd_cuda_halves){.room = room};
  return cut_along(products, n, cuts, room_bytes, halves);
}

static int32_t sample_every(int64_t elements) {
  return elements > SAMPLED ? SAMPLE_EVERY : 1;
}

static void make_cast(const struct stored *s, bool turned, void *to, struct gd_cuda_cast *cast) {
  *cast = (struct gd_cuda_cast){.from = s->data,
                                .to = to,
                                .length = s->length,
                                .lines = s->lines,
                                .from_pitch = s->pitch,
                                .to_pitch = up(turned ? s->lines : s->length, PITCH),
                                .turned = turned};
  if (turned) {
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

/* Of the A of a product among those that share B. */
static int32_t operand_of(int32_t number) {
  return number == 0 ? 0 : number + 1;
}

/* piece: with its sizes and its place in D. */
static struct gd_cuda_direct direct_of(const struct gd_cuda_product *p, enum gd_cuda_cut cut,
                                       int64_t from, int64_t size,
                                       const struct gd_cuda_product *piece) {
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

void gd_cuda_halves_piece(const struct gd_cuda_product *p, const struct gd_cuda_halves *halves,
                          int64_t at, struct gd_cuda_product *piece, struct gd_cuda_casts *casts) {
  int64_t from = at * halves->size, left = cut_dim(p, halves->cut) - from;
  int64_t size = left < halves->size ? left : halves->size;
  GD_ASSERT(at >= 0 && at < halves->pieces && size > 0);
  *piece = *p;
  *casts = (struct gd_cuda_casts){.operand = {operand_of(halves->number), 1},
                                  .stays = halves->cut == GD_CUDA_CUT_N && halves->pieces > 1};
  for (int i = 0; i < 2; i++) {
    bool whole = halves->cut == (i == 0 ? GD_CUDA_CUT_N : GD_CUDA_CUT_M);
    bool turned = i == 0 && halves->turns_a, is_there = i == 1 && halves->number > 0;
    struct stored s = stored_of(p, i, halves->cut, from, size);
    char *to = halves->room + (i == 0 ? halves->a_at : halves->b_at);
    if ((!whole || at == 0) && !is_there)
      make_cast(&s, turned, to, &casts->at[i]);
    casts->slot[i] = whole ? 0 : (int32_t)at;
    casts->target[i] =
        sample_every(i == 0 ? p->m * p->k : p->k * p->n) == 1 ? WHOLE_TARGET : SAMPLE_TARGET;
    *(i == 0 ? &piece->a : &piece->b) = to;
    *(i == 0 ? &piece->lda : &piece->ldb) = up(turned ? s.lines : s.length, PITCH);
    if (turned)
      piece->trans_a = false;
  }
  piece->dtype = GD_DTYPE_F16;
  piece->tf32 = false;
  *(halves->cut == GD_CUDA_CUT_M   ? &piece->m
    : halves->cut == GD_CUDA_CUT_N ? &piece->n
                                   : &piece->k) = size;
  if (halves->cut == GD_CUDA_CUT_K && at > 0) { /* to what the pieces before have left */
    piece->adds = true;
    piece->bias = NULL;
    piece->bias_way = GD_CUDA_BIAS_NONE;
  }
  if (halves->cut == GD_CUDA_CUT_M) {
    piece->d = (float *)p->d + from;
    piece->bias = p->bias ? p->bias + from : NULL;
  }
  if (halves->cut == GD_CUDA_CUT_N)
    piece->d = (float *)p->d + from * p->ldd;
  casts->as_it_is = direct_of(p, halves->cut, from, size, piece);
}

/* --- launching ------------------------------------------------------------------------------ */

static struct gd_cuda_kernel kernel_of(const char *name) {
  return (struct gd_cuda_kernel){.file = "halves", .name = name};
}

enum gd_status gd_cuda_halves_collect(const struct gd_cuda_call *call) {
  struct gd_cuda_kernel kernel = kernel_of("halves_cast");
  return gd_cuda_launch_now(call, &kernel, (struct gd_cuda_grid){0}, NULL);
}

/* As kernels/halves.cu has it. */
struct sample {
  const float *from;
  int64_t length, lines, pitch;
  int64_t segments, line_segments; /* all, of a line */
  int64_t groups;                  /* of `every` segments: one is looked at */
  int64_t blocks;
  int32_t every;
};

static void make_sample(const struct stored *s, struct sample *sample) {
  *sample =
      (struct sample){.from = s->data, .length = s->length, .lines = s->lines, .pitch = s->pitch};
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

enum gd_status gd_cuda_halves_sample(const struct gd_cuda_call *call,
                                     const struct gd_cuda_product *products, int n, void *slots) {
  struct gd_cuda_kernel kernel = kernel_of("halves_sample");
  struct {
    struct sample at[OPERANDS];
  } samples = {0};
  struct gd_cuda_grid grid = {.threads = THREADS};
  for (int i = 0; i <= n; i++) {
    const struct gd_cuda_product *p = &products[i < 2 ? 0 : i - 1];
    struct stored s = stored_of(p, i == 1, GD_CUDA_CUT_K, 0, p->k);
    make_sample(&s, &samples.at[i]);
    grid.x += samples.at[i].blocks;
  }
  GD_TRY(gd_cuda_check(call->cuda,
                       call->cuda->cu->MemsetD8Async((CUdeviceptr)(uintptr_t)slots, 0,
                                                     sizeof(struct slots), call->stream),
                       "clearing the exponents of a product", call->err));
  return gd_cuda_launch_now(call, &kernel, grid, (void *[]){&slots, &samples});
}

enum gd_status gd_cuda_halves_cast(const struct gd_cuda_call *call,
                                   const struct gd_cuda_product *piece,
                                   const struct gd_cuda_casts *casts, void *slots) {
  struct gd_cuda_kernel cast = kernel_of("halves_cast"), check = kernel_of("halves_check");
  struct gd_cuda_casts all = *casts;
  float alpha = piece->alpha, beta = piece->adds ? 1 : 0;
  int64_t tiles = casts->at[0].tiles + casts->at[1].tiles;
  /* What no power undoes is done by the check, whose blocks then have elements of D. */
  int64_t shares = tiles + piece->m * piece->n / DIRECT_ELEMENTS + 1;
  struct gd_cuda_grid grid = {.x = tiles, .threads = THREADS};
  struct gd_cuda_grid few = {.x = gd_cuda_blocks(call->cuda, shares, 1, 4), .threads = THREADS};
  GD_TRY(gd_cuda_launch_now(call, &cast, grid, (void *[]){&slots, &all}));
  return gd_cuda_launch_now(call, &check, few, (void *[]){&slots, &all, &alpha, &beta});
}

const float *gd_cuda_halves_factors(const void *slots) {
  return &((const struct slots *)slots)->alpha;
}
