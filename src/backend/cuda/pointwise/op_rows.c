/*
 * Ops over rows on CUDA: norms, softmax, rotary positions, sums and means, with their gradients.
 * Kernels: rows.cu (a row in the registers of one or more warps), columns.cu (sums over rows),
 * rope.cu. What a thread holds is fixed at compile time from the number of columns, so that each
 * width of a model has its own module.
 *
 * Gradients of weights are summed in two stages: blocks leave sums of their rows in the workspace,
 * a second kernel adds these in order.
 */
#include <stdio.h>

#include "backend/cuda/pointwise/columns.h"
#include "base/sizes.h"

enum {
  DEFINES = 96,      /* bytes of a list of defines */
  VECTOR_BYTES = 16, /* the widest access */
  BLOCK = 256,       /* threads, where a row does not ask for more */
  NORM_BLOCK = 128,  /* threads of a norm's block that has rows of a warp or less */
  MOST_LANES = 1024, /* threads of a block */
  SUM_BLOCKS = 1056, /* enough to fill 132 multiprocessors eight times; a constant on purpose */
  GRAD_BLOCKS = 528, /* of BLOCK threads: each leaves a row of sums */
};

/* Elements of a row of `columns` that move as one: as many as all the views' addresses allow. */
static int64_t vector_of(const struct gd_kernel_args *args, int64_t columns, int64_t size) {
  int64_t vec = VECTOR_BYTES / size;
  if (columns % vec)
    return 1;
  for (uint32_t i = 0; i < args->n_in; i++)
    if (!gd_cuda_aligned(args->in[i].data, VECTOR_BYTES))
      return 1;
  for (uint32_t i = 0; i < args->n_out; i++)
    if (!gd_cuda_aligned(args->out[i].data, VECTOR_BYTES))
      return 1;
  return vec;
}

/* --- a row in registers -------------------------------------------------------------------- */

struct rows {
  char defines[DEFINES];
  struct gd_cuda_kernel kernel;
  int64_t rows, columns;
  int threads;
  int64_t rows_of_block;
  int64_t resident; /* blocks a multiprocessor that the kernel's registers leave room for */
};

/* Blocks of a norm on a multiprocessor. A thread holds the elements of a row, those of the next row
   as they are in memory, and the weights: three to four registers an element, and 25 to 30 more. */
static int64_t resident_of(int64_t elements, int64_t threads) {
  int64_t all = elements <= 8 ? 1024 : elements <= 16 ? 640 : elements <= 24 ? 512 : 384;
  return gd_most(all / threads, 1);
}

/* `held`: how many elements of a row a thread should hold, a multiple of VECTOR_BYTES / 2. `block`:
   threads of a block, unless a row needs more. Rows of several warps that share a block wait for
   each other at its barriers. */
static void rows_init(struct rows *r, const struct gd_cuda_call *call, const char *name,
                      const struct gd_view *x, int64_t held, int64_t block) {
  int64_t columns = gd_view_columns(x),
          vec = vector_of(call->args, columns, gd_dtype_bytes(x->dtype));
  int64_t vectors = columns / vec, lanes = gd_div_up(vectors, held / vec);
  if (lanes <= 32)
    lanes = gd_cuda_power(lanes);
  else
    lanes = gd_least(gd_div_up(lanes, 32) * 32, MOST_LANES);
  int64_t items = gd_most(gd_div_up(vectors, lanes), 1);
  r->rows = gd_view_rows(x);
  r->columns = columns;
  r->rows_of_block = lanes > 32 && block < BLOCK ? 1 : gd_most(block / lanes, 1);
  r->threads = (int)(r->rows_of_block * lanes);
  r->resident = resident_of(items * vec, r->threads);
  snprintf(r->defines, sizeof r->defines, "VEC=%d LANES=%d ITEMS=%lld THREADS=%d RESIDENT=%d",
           (int)vec, (int)lanes, (long long)items, r->threads, (int)r->resident);
  r->kernel = (struct gd_cuda_kernel){"rows", name, r->defines, 1, {x->dtype}};
}

static struct gd_cuda_grid rows_grid(const struct rows *r) {
  return (struct gd_cuda_grid){.x = gd_div_up(r->rows, r->rows_of_block), .threads = r->threads};
}

/* Blocks that go through all rows, as many as run at a time. */
static struct gd_cuda_grid norm_grid(const struct gd_cuda_call *call, const struct rows *r) {
  return (struct gd_cuda_grid){
      .x = gd_cuda_blocks(call->cuda, r->rows, r->rows_of_block, r->resident),
      .threads = r->threads};
}

/* One tensor to hold: narrow rows fit a warp, which needs no barrier. */
static int64_t held_of(const struct gd_view *x) {
  return gd_view_columns(x) <= 32 * 32 ? 32 : 16;
}

enum gd_status gd_cuda_op_layernorm(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct rows r;
  rows_init(&r, call, "layernorm", &a->in[0], held_of(&a->in[0]), NORM_BLOCK);
  void *bias = a->n_in > 2 ? a->in[2].data : NULL;
  float eps = a->attr->norm.eps;
  return GD_CUDA_LAUNCH(call, &r.kernel, norm_grid(call, &r), &p.in[0], &p.in[1], &bias, &p.out[0],
                        &p.out[1], &p.out[2], &r.rows, &r.columns, &eps);
}

enum gd_status gd_cuda_op_rmsnorm(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct rows r;
  rows_init(&r, call, "rmsnorm", &a->in[0], held_of(&a->in[0]), NORM_BLOCK);
  float eps = a->attr->norm.eps;
  return GD_CUDA_LAUNCH(call, &r.kernel, norm_grid(call, &r), &p.in[0], &p.in[1], &p.out[0],
                        &p.out[1], &r.rows, &r.columns, &eps);
}

/* Rows that a causal softmax numbers, 0 for one that is not. */
static int64_t positions_of(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0];
  if (!args->attr->softmax.causal)
    return 0;
  return x->rank < 2 ? 1 : gd_most(x->dims[x->rank - 2], 1);
}

enum gd_status gd_cuda_op_softmax(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct rows r;
  int64_t positions = positions_of(a);
  rows_init(&r, call, "softmax", &a->in[0], held_of(&a->in[0]), BLOCK);
  return GD_CUDA_LAUNCH(call, &r.kernel, rows_grid(&r), &p.in[0], &p.out[0], &r.rows, &positions,
                        &r.columns);
}

enum gd_status gd_cuda_op_softmax_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct rows r;
  int64_t positions = positions_of(a);
  rows_init(&r, call, "softmax_grad", &a->in[0], 16, BLOCK);
  return GD_CUDA_LAUNCH(call, &r.kernel, rows_grid(&r), &p.in[0], &p.in[1], &p.out[0], &r.rows,
                        &positions, &r.columns);
}

/* Groups of rows whose sums of `width` floats each fit the workspace. */
static int64_t groups_of(const struct gd_cuda_call *call, int64_t most, int64_t rows,
                         int64_t rows_of_block, int64_t width) {
  int64_t fit = call->args->workspace_bytes / (4 * gd_most(width, 1));
  most = gd_least(most, gd_div_up(rows, rows_of_block));
  return gd_most(gd_least(most, fit), 1);
}

/* dx and the groups' sums of `parts` weights; then these. */
static enum gd_status norm_grad(const struct gd_cuda_call *call, const char *name, bool centred,
                                int64_t parts) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  struct rows r;
  rows_init(&r, call, name, &a->in[1], 16, BLOCK);
  int64_t groups = groups_of(call, (int64_t)GRAD_BLOCKS * BLOCK / r.threads, r.rows,
                             r.rows_of_block, parts * r.columns);
  int64_t per = gd_most(gd_div_up(r.rows, groups), 1);
  groups = gd_div_up(r.rows, per);
  struct gd_cuda_grid grid = {.x = groups, .threads = r.threads};
  void *partial = a->workspace;
  if (centred)
    GD_TRY(GD_CUDA_LAUNCH(call, &r.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.in[3], &p.in[4],
                          &p.out[0], &partial, &r.rows, &per, &r.columns));
  else
    GD_TRY(GD_CUDA_LAUNCH(call, &r.kernel, grid, &p.in[0], &p.in[1], &p.in[2], &p.in[3], &p.out[0],
                          &partial, &r.rows, &per, &r.columns));
  for (int64_t part = 0; part < parts; part++)
    GD_TRY(gd_cuda_sum_columns(
        call, (struct gd_cuda_sums){.x = (float *)partial + part * r.columns,
                                    .dtype = GD_DTYPE_F32,
                                    .rows = groups,
                                    .columns = r.columns,
                                    .stride = parts * r.columns,
                                    .out = p.out[1 + part],
                                    .out_dtype = GD_DTYPE_F32,
                                    .adds = gd_kernel_adds(a, (uint32_t)(1 + part))}));
  return GD_OK;
}

enum gd_status gd_cuda_op_layernorm_grad(const struct gd_cuda_call *call) {
  if (call->args->attr->norm_grad.has_bias)
    return norm_grad(call, "layernorm_bias_grad", true, 2);
  return norm_grad(call, "layernorm_grad", true, 1);
}

enum gd_status gd_cuda_op_rmsnorm_grad(const struct gd_cuda_call *call) {
  return norm_grad(call, "rmsnorm_grad", false, 1);
}

/* --- sums over rows ------------------------------------------------------------------------ */

struct tiles {
  char defines[DEFINES];
  int64_t vec, across, down; /* a block: across vectors wide, down rows */
  int64_t count;             /* of CTAs in x */
};

static struct tiles tiles_of(int64_t columns, int64_t vec, int64_t rows) {
  struct tiles t = {.vec = vec};
  t.across = gd_least(gd_cuda_power(columns / vec), 32);
  t.down = BLOCK / t.across;
  if (t.across == 32 && rows >= 512 && vec <= 4) /* few columns and many rows: a second stage */
    t.down = 32;
  t.count = gd_div_up(columns, t.across * vec);
  snprintf(t.defines, sizeof t.defines, "VEC=%d TX=%d TY=%d", (int)vec, (int)t.across, (int)t.down);
  return t;
}

/* Groups of `per` rows each, one row of out a group. */
static enum gd_status sum_groups(const struct gd_cuda_call *call, const struct gd_cuda_sums *s,
                                 const struct tiles *tiles, int64_t groups, int64_t per,
                                 float divisor) {
  struct gd_cuda_kernel kernel = {
      "columns", "column_sums", tiles->defines, 2, {s->dtype, s->out_dtype}};
  struct gd_cuda_grid grid = {.x = tiles->count * groups,
                              .threads = (int)(tiles->across * tiles->down)};
  int64_t rows = s->rows, columns = s->columns, stride = s->stride;
  void *x = s->x, *out = s->out;
  int adds = s->adds;
  return GD_CUDA_LAUNCH(call, &kernel, grid, &x, &out, &rows, &per, &columns, &stride, &divisor,
                        &adds);
}

static int64_t sums_vector(const struct gd_cuda_sums *s) {
  int64_t vec = VECTOR_BYTES / gd_dtype_bytes(s->dtype);
  bool whole = s->columns % vec == 0 && s->stride % vec == 0;
  return whole && gd_cuda_aligned(s->x, VECTOR_BYTES) ? vec : 1;
}

enum gd_status gd_cuda_sum_columns(const struct gd_cuda_call *call, struct gd_cuda_sums sums) {
  /* Few rows and few columns: single elements make more blocks. */
  int64_t vec = sums.columns < SUM_BLOCKS * 32 ? 1 : sums_vector(&sums);
  struct tiles tiles = tiles_of(sums.columns, vec, sums.rows);
  return sum_groups(call, &sums, &tiles, 1, gd_most(sums.rows, 1), 1);
}

enum gd_status gd_cuda_op_sum_rows(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  int64_t columns = 1, rows = 1, last = a->attr->rows.rows;
  for (uint32_t i = 0; i < a->in[0].rank; i++)
    *(i + last < a->in[0].rank ? &rows : &columns) *= a->in[0].dims[i];
  struct gd_cuda_sums sums = {.x = a->in[0].data,
                              .dtype = a->in[0].dtype,
                              .rows = rows,
                              .columns = columns,
                              .stride = columns,
                              .out = a->out[0].data,
                              .out_dtype = GD_DTYPE_F32,
                              .adds = gd_kernel_adds(a, 0)};
  struct tiles tiles = tiles_of(columns, sums_vector(&sums), 0);
  if (tiles.count == 0)
    return GD_OK;
  int64_t groups =
      groups_of(call, gd_div_up(SUM_BLOCKS, tiles.count), rows, 4 * tiles.down, columns);
  int64_t per = gd_most(gd_div_up(rows, groups), 1);
  groups = gd_most(gd_div_up(rows, per), 1);
  if (groups == 1)
    return sum_groups(call, &sums, &tiles, 1, per, 1);
  struct gd_cuda_sums first = sums, second = sums;
  first.out = a->workspace;
  first.adds = false;
  second.x = a->workspace;
  second.dtype = GD_DTYPE_F32;
  second.rows = groups;
  GD_TRY(sum_groups(call, &first, &tiles, groups, per, 1));
  return gd_cuda_sum_columns(call, second);
}

enum gd_status gd_cuda_op_pool(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  int64_t images = a->in[0].dims[0], positions = a->in[0].dims[1], columns = a->in[0].dims[2];
  struct gd_cuda_sums sums = {.x = a->in[0].data,
                              .dtype = a->in[0].dtype,
                              .rows = images * positions,
                              .columns = columns,
                              .stride = columns,
                              .out = a->out[0].data,
                              .out_dtype = a->out[0].dtype};
  struct tiles tiles = tiles_of(columns, sums_vector(&sums), 0);
  return sum_groups(call, &sums, &tiles, images, positions, (float)positions);
}

enum gd_status gd_cuda_op_pool_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  const struct gd_view *dx = &a->out[0];
  int64_t images = dx->dims[0], positions = dx->dims[1], columns = dx->dims[2], each = 4;
  struct tiles tiles = tiles_of(columns, vector_of(a, columns, gd_dtype_bytes(dx->dtype)), 0);
  struct gd_cuda_kernel kernel = {
      "columns", "repeat_rows", tiles.defines, 2, {dx->dtype, dx->dtype}};
  struct gd_cuda_grid grid = {.x = images * tiles.count * gd_div_up(positions, tiles.down * each),
                              .threads = (int)(tiles.across * tiles.down)};
  return GD_CUDA_LAUNCH(call, &kernel, grid, &p.in[0], &p.out[0], &positions, &columns, &each);
}

/* --- rotary positions ---------------------------------------------------------------------- */

enum gd_status gd_cuda_op_rope(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *a = call->args;
  struct gd_cuda_data p = gd_cuda_data_of(a);
  const struct gd_view *x = &a->in[0];
  int64_t columns = gd_view_columns(x), rows = gd_view_rows(x), positions = x->dims[x->rank - 2];
  int64_t rotary = a->attr->rope.rotary, size = gd_dtype_bytes(x->dtype);
  int64_t vec = vector_of(a, columns, size); /* addresses and rows; then half a row */
  while (vec > 1 && (rotary / 2 % vec || (columns - rotary) % vec))
    vec /= 2;
  int64_t copied = x->data == a->out[0].data ? 0 : columns - rotary;
  int64_t items = (rotary / 2 + copied) / vec;
  int lanes = (int)gd_least(gd_cuda_power(items), BLOCK);
  float sign = a->attr->rope.inverse ? -1.0f : 1.0f;
  char defines[DEFINES];
  snprintf(defines, sizeof defines, "VEC=%d", (int)vec);
  struct gd_cuda_kernel kernel = {"rope", "rope", defines, 1, {x->dtype}};
  struct gd_cuda_grid grid = {.x = items ? gd_div_up(rows, BLOCK / lanes) : 0, .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &kernel, grid, &p.in[0], &p.in[1], &p.out[0], &rows, &positions,
                        &columns, &rotary, &sign, &lanes);
}
