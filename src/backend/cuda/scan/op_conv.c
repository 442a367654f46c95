/*
 * Filters with one kernel a channel on CUDA: depthwise over images (depthwise.cu) and the causal
 * conv1d over sequences (conv1d.cu), with their gradients. Each has a fast kernel for the filter
 * sizes that models use and a general one for all others.
 *
 * Gradients of filters are sums over all outputs: blocks leave sums of theirs in the workspace as
 * [taps and bias, channels], which are then added in order and transposed to [channels, taps].
 */
#include <stdio.h>

#include "backend/cuda/pointwise/columns.h"
#include "base/sizes.h"

enum {
  DEFINES = 96,
  BLOCK = 256,
  SUM_BLOCKS = 1056,   /* as in op_rows.c */
  MOST_BLOCKS = 65535, /* in y and z */
  STRIP_ACROSS = 7,    /* as in depthwise.cu: columns of a warp, warps of a block, blocks at once */
  STRIP_WARPS = 4,
  STRIP_BLOCKS = 4,
  STRIP_BLOCKS_DW = 3,
  STRIP_START = 4, /* rows that could be filtered while a block starts */
  MOST_EACH = 64,
  MOST_ROWS = 1 << 24,
  SEQUENCE_THREADS = 128, /* of a block of conv1d.cu's fast kernels */
  RUN = 16,               /* steps of a thread there */
  DW_BLOCKS = 660,        /* that run at once: 5 on each multiprocessor of a large device */
  LEAST_RUN_DW = 16,
};

/* How a sum is cut into groups; each has a row of partial sums in the workspace. */
struct cut {
  int64_t groups, per; /* per items of the sum a group */
};

/* Divides `items` into groups, each of at least `least`; the grid has `across` CTAs in x and a
   group in y. */
static struct cut cut_of(const struct gd_cuda_call *call, int64_t items, int64_t least,
                         int64_t across, int64_t width) {
  int64_t fit = call->args->workspace_bytes / (4 * gd_most(width, 1));
  int64_t groups = gd_div_up(SUM_BLOCKS, gd_most(across, 1));
  groups = gd_least(gd_least(groups, gd_div_up(items, least)), fit);
  groups = gd_most(groups, 1);
  struct cut cut = {.per = gd_most(gd_div_up(items, groups), 1)};
  cut.groups = gd_div_up(items, cut.per);
  return cut;
}

/*
 * dw[C, taps] and dbias[C] out of the groups' [taps + 1, C], in one launch: a second one is 4 us of
 * 60 to 90 (H200, images of 7 x 7).
 */
static enum gd_status add_up(const struct gd_cuda_call *call, int64_t groups, int64_t taps,
                             int64_t channels) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  int64_t columns = (taps + 1) * channels;
  /* Few columns: single elements make more blocks. */
  bool wide = channels % 4 == 0 && columns >= SUM_BLOCKS * 32 && gd_cuda_aligned(p.work, 16);
  int64_t vec = wide ? 4 : 1, down = groups < 512 || wide ? 8 : 32;
  char defines[DEFINES];
  snprintf(defines, sizeof defines, "VEC=%d TX=32 TY=%d", (int)vec, (int)down);
  struct gd_cuda_kernel kernel = {
      "columns", "filter_sums", defines, 2, {GD_DTYPE_F32, GD_DTYPE_F32}};
  struct gd_cuda_grid grid = {.x = gd_div_up(columns, 32 * vec), .threads = (int)(32 * down)};
  int adds[2] = {gd_kernel_adds(a, 0), gd_kernel_adds(a, 1)};
  return GD_CUDA_LAUNCH(call, &kernel, grid, &p.work, &p.out[0], &p.out[1], &groups, &taps,
                        &channels, &adds[0], &adds[1]);
}

static enum gd_status check_workspace(const struct gd_cuda_call *call, int64_t taps,
                                      int64_t channels) {
  int64_t bytes = 4 * (taps + 1) * channels;
  if (bytes <= call->args->workspace_bytes && taps < MOST_BLOCKS)
    return GD_OK;
  return gd_fail(call->err, GD_UNSUPPORTED,
                 "the gradient of %lld filters of %lld taps needs a workspace of %lld bytes, not "
                 "%lld: use smaller filters",
                 (long long)channels, (long long)taps, (long long)bytes,
                 (long long)call->args->workspace_bytes);
}

/* --- depthwise ------------------------------------------------------------------------------ */

struct images {
  char defines[DEFINES];
  struct gd_cuda_kernel kernel;
  int64_t images, height, width, channels, k;
  bool fast, wide;       /* wide: rows may be copied 16 bytes at a time */
  int64_t strips, tiles; /* of the fast kernels: along the columns, along the channels */
  int64_t at_once;       /* blocks of them on a multiprocessor */
};

static void images_init(struct images *s, const char *name, const struct gd_view *x, int64_t k) {
  *s = (struct images){.images = x->dims[0],
                       .height = x->dims[1],
                       .width = x->dims[2],
                       .channels = x->dims[3],
                       .k = k,
                       .fast = (k == 3 || k == 5 || k == 7) && x->dims[1] < MOST_ROWS,
                       .at_once = STRIP_BLOCKS};
  s->wide = s->channels * gd_dtype_bytes(x->dtype) % 16 == 0 && gd_cuda_aligned(x->data, 16);
  s->strips = gd_div_up(s->width, STRIP_ACROSS);
  s->tiles = gd_div_up(s->channels, 32);
  s->kernel = (struct gd_cuda_kernel){"depthwise", name, s->defines, 1, {x->dtype}};
}

static void images_define(struct images *s) {
  if (s->fast)
    snprintf(s->defines, sizeof s->defines, "TAPS=%d CHANNELS=%lld WIDTH=%lld WIDE_COPIES=%d",
             (int)s->k, (long long)s->channels, (long long)s->width, s->wide);
  else
    snprintf(s->defines, sizeof s->defines, "TAPS=0");
}

/* How warps share the images: each walks down `each` images or one of the bands of one. */
struct walk {
  int each, band;
  int64_t count, blocks, cost; /* warps; blocks of a tile; tenths of rows of the busiest place */
};

static struct walk walk_of(const struct images *s, int64_t each, int64_t bands, int64_t halo) {
  int64_t band = gd_div_up(s->height, bands);
  struct walk walk = {.each = (int)each, .band = (int)band};
  walk.count = s->strips * gd_div_up(s->height, band) * gd_div_up(s->images, each);
  walk.blocks = gd_div_up(walk.count, STRIP_WARPS);
  /* Blocks per multiprocessor. The last round may have fewer than it can hold: these are slower
     each, since too few are there to hide the latency of memory. */
  int64_t blocks = gd_div_up(walk.blocks * s->tiles, SUM_BLOCKS / 8);
  int64_t last = blocks % s->at_once;
  int64_t tenths = 10 * (blocks - last) + (last ? gd_most(10 * last, 21 + 2 * last) : 0);
  walk.cost = tenths * (each * band + (bands > 1 ? halo : 0) + STRIP_START);
  return walk;
}

/*
 * The walk that ends first, for the multiprocessors of an H200 whatever the device: sums must not
 * depend on it. halo: rows that a band has besides its own. most: blocks of a tile.
 */
static struct walk walk_best(const struct images *s, int64_t halo, int64_t most) {
  struct walk best = {.each = 1, .band = 1};
  if (s->images * s->height * s->width * s->channels == 0)
    return best;
  best = walk_of(s, s->images < MOST_EACH ? s->images : MOST_EACH, 1, halo);
  for (int64_t each = best.each - 1; each > 0; each--) {
    struct walk walk = walk_of(s, each, 1, halo);
    if (walk.cost < best.cost && walk.blocks <= most)
      best = walk;
  }
  for (int64_t bands = 2; bands * s->k <= s->height; bands++) {
    struct walk walk = walk_of(s, 1, bands, halo);
    if (walk.cost < best.cost && walk.blocks <= most)
      best = walk;
  }
  return best;
}

/* flip: the gradient to x, which filters dy with the filter flipped. */
static enum gd_status depthwise(const struct gd_cuda_call *call, int flip) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct images s;
  images_init(&s, "depthwise", &a->in[0], a->in[1].dims[2]);
  images_define(&s);
  if (!s.fast) {
    struct gd_cuda_grid grid = {.x = gd_div_up(a->in[0].elements, BLOCK), .threads = BLOCK};
    return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.out[0], &s.images,
                          &s.height, &s.width, &s.channels, &s.k, &flip);
  }
  if (flip)
    s.kernel.name = "depthwise_dx";
  struct walk walk = walk_best(&s, s.k - 1, INT32_MAX / gd_most(s.tiles, 1));
  struct gd_cuda_grid grid = {.x = walk.blocks * s.tiles, .threads = 32 * STRIP_WARPS};
  int height = (int)s.height;
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.out[0], &s.images,
                        &walk.count, &height, &walk.band, &walk.each);
}

enum gd_status gd_cuda_op_depthwise(const struct gd_cuda_call *call) {
  return depthwise(call, 0);
}

enum gd_status gd_cuda_op_depthwise_dx(const struct gd_cuda_call *call) {
  return depthwise(call, 1);
}

enum gd_status gd_cuda_op_depthwise_dw(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct images s;
  images_init(&s, "depthwise_dw", &a->in[0], a->attr->rows.rows);
  s.wide = s.wide && gd_cuda_aligned(a->in[1].data, 16);
  s.at_once = STRIP_BLOCKS_DW;
  int64_t taps = s.k * s.k, width = (taps + 1) * s.channels;
  GD_TRY(check_workspace(call, taps, s.channels));
  int64_t fit = call->args->workspace_bytes / (4 * gd_most(width, 1));
  struct walk walk = walk_best(&s, 0, gd_least(fit, MOST_BLOCKS));
  s.fast = s.fast && walk.blocks <= gd_least(fit, MOST_BLOCKS);
  images_define(&s);
  if (s.fast) {
    struct gd_cuda_grid grid = {
        .x = walk.blocks ? s.tiles : 0, .y = walk.blocks, .threads = 32 * STRIP_WARPS};
    int height = (int)s.height;
    GD_TRY(GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.work, &s.images,
                          &walk.count, &height, &walk.band, &walk.each));
    return add_up(call, walk.blocks, taps, s.channels);
  }
  int64_t across = gd_div_up(s.channels, BLOCK);
  struct cut cut = cut_of(call, s.width ? s.images * s.height : 0, 8, across * (taps + 1), width);
  struct gd_cuda_grid grid = {
      .x = cut.groups ? across : 0, .y = taps + 1, .z = cut.groups, .threads = BLOCK};
  GD_TRY(GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.work, &s.images, &cut.per,
                        &s.height, &s.width, &s.channels, &s.k));
  return add_up(call, cut.groups, taps, s.channels);
}

/* --- conv1d --------------------------------------------------------------------------------- */

struct sequences {
  char defines[DEFINES];
  struct gd_cuda_kernel kernel;
  int64_t batches, steps, channels, k, vec;
  bool fast;
};

static void sequences_init(struct sequences *s, const struct gd_cuda_call *call, const char *name,
                           int64_t k) {
  const struct gd_view *x = &call->args->in[0];
  *s = (struct sequences){.batches = x->dims[0],
                          .steps = x->dims[1],
                          .channels = x->dims[2],
                          .k = k,
                          .vec = 1,
                          .fast = k >= 2 && k <= 4};
  if (s->fast && s->channels % 4 == 0 && gd_cuda_all_aligned(call->args, 16))
    s->vec = 4;
  snprintf(s->defines, sizeof s->defines, "TAPS=%d VEC=%d", s->fast ? (int)k : 0, (int)s->vec);
  s->kernel = (struct gd_cuda_kernel){"conv1d", name, s->defines, 1, {x->dtype}};
}

/* sign -1: the filter looks back; 1: its gradient looks ahead. */
static enum gd_status conv1d(const struct gd_cuda_call *call, int sign) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct sequences s;
  sequences_init(&s, call, "conv1d", a->in[1].dims[2]);
  int64_t rows = s.batches * s.steps;
  struct gd_cuda_grid grid = {.threads = BLOCK};
  if (!s.fast) {
    grid.x = gd_div_up(rows * s.channels, BLOCK);
    return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.out[0], &rows,
                          &s.steps, &s.channels, &s.k, &sign);
  }
  int length = RUN;
  if (sign > 0)
    s.kernel.name = "conv1d_dx";
  grid.threads = SEQUENCE_THREADS;
  grid.x = gd_div_up(s.channels / s.vec * s.batches * gd_div_up(s.steps, length), SEQUENCE_THREADS);
  return GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.out[0], &s.batches,
                        &s.steps, &s.channels, &length);
}

enum gd_status gd_cuda_op_conv1d(const struct gd_cuda_call *call) {
  return conv1d(call, -1);
}

enum gd_status gd_cuda_op_conv1d_dx(const struct gd_cuda_call *call) {
  return conv1d(call, 1);
}

/*
 * Runs of steps, `length` each, and how many a group has: such that CTAs, which are `across`
 * in x and whose warps have a run each, all run at once.
 */
static struct cut cut_sequences(const struct gd_cuda_call *call, const struct sequences *s,
                                int64_t across, int *length) {
  enum { WARPS = SEQUENCE_THREADS / 32 };
  int64_t fit = call->args->workspace_bytes / (4 * gd_most((s->k + 1) * s->channels, 1));
  int64_t groups = gd_least(DW_BLOCKS / gd_most(across, 1), fit);
  groups = gd_most(groups, 1);
  int64_t wanted = gd_most(groups * WARPS / gd_most(s->batches, 1), 1);
  int64_t each = gd_most(gd_div_up(s->steps, wanted), LEAST_RUN_DW);
  *length = (int)gd_least(gd_div_up(each, 8) * 8, 1 << 20);
  int64_t runs = s->batches * gd_div_up(s->steps, *length);
  struct cut cut = {.per = gd_most(gd_div_up(runs, groups * WARPS), 1) * WARPS};
  cut.groups = gd_div_up(runs, cut.per);
  return cut;
}

enum gd_status gd_cuda_op_conv1d_dw(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct sequences s;
  sequences_init(&s, call, "conv1d_dw", a->attr->rows.rows);
  int64_t width = (s.k + 1) * s.channels, rows = s.batches * s.steps;
  GD_TRY(check_workspace(call, s.k, s.channels));
  if (s.fast) {
    int64_t across = gd_div_up(s.channels, 32 * s.vec);
    int length;
    struct cut cut = cut_sequences(call, &s, across, &length);
    struct gd_cuda_grid grid = {
        .x = cut.groups ? across : 0, .y = cut.groups, .threads = SEQUENCE_THREADS};
    GD_TRY(GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.work, &s.batches, &cut.per,
                          &s.steps, &s.channels, &length));
    return add_up(call, cut.groups, s.k, s.channels);
  }
  int64_t across = gd_div_up(s.channels, BLOCK);
  struct cut cut = cut_of(call, rows, 64, across * (s.k + 1), width);
  struct gd_cuda_grid grid = {
      .x = cut.groups ? across : 0, .y = s.k + 1, .z = cut.groups, .threads = BLOCK};
  GD_TRY(GD_CUDA_LAUNCH(call, &s.kernel, grid, &p.in[0], &p.in[1], &p.work, &rows, &cut.per,
                        &s.steps, &s.channels, &s.k));
  return add_up(call, cut.groups, s.k, s.channels);
}
