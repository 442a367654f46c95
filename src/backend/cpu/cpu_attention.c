/*
 * Attention and its gradient without a stored score matrix. Letters: B sequences, N heads, M key
 * heads, T steps, D head size.
 *
 * Scores exist a strip at a time: as many queries as a tile of the GEMM has rows, by a
 * block of keys. Forward, a task is a run of queries of one head; it goes over the blocks of keys,
 * packs each once, and keeps sums of weighted values relative to a shift that rises with the
 * largest score seen (Milakov, Gimelshein, arXiv:1805.02867; Dao et al., arXiv:2205.14135).
 * Backward, the weights of a block of queries by a block of keys are recomputed from the
 * logsumexp, and give the block's share of dv, dk and dq at once:
 *
 *   one task a head of keys: for each block of keys, for each block of queries: dv, dk, dq
 *
 * which takes the sums of dq of a whole head. Where these have no room, or heads are fewer than
 * threads, there are two rounds of smaller tasks, which compute the weights twice:
 *
 *   a task a block of keys: dv, dk        a task a block of queries: dq
 *
 * Each sum adds the same tiles in the same order either way, so neither the choice nor the number
 * of threads changes a bit. Under a causal mask, blocks past the diagonal are left out, and strips
 * on it end with the last key that any of their queries sees.
 *
 * GEMMs are done by the micro-kernels of gemm.h on packed operands, sums in fp32. Weights and
 * their gradients are bf16 where the kernels multiply bf16, else fp32.
 *
 * Bound: the multiply-add rate, 2 GEMMs forward and 5 (or 7) backward; besides, about 15
 * vector operations for 16 scores, and 15 more with dropout.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_int.h"
#include "base/rng.h"
#include "base/sizes.h"
#include "base/status.h"

struct problem {
  const struct gd_gemm_ops *ops;
  const struct gd_cpu_rows *rows;
  enum gd_dtype dtype;
  enum gd_gemm_unit unit;        /* of q, k, v, dout */
  enum gd_gemm_unit weight_unit; /* of weights and dscores */
  int64_t batch, heads, group;   /* group: heads that share a key head */
  int64_t steps, size, elem_bytes;
  int64_t block;      /* keys of a block */
  int64_t depth;      /* units of D, packed */
  int64_t panels;     /* of D columns */
  int64_t row_floats; /* of the tiles of sums of one strip by D columns */
  bool causal;
  bool in_place; /* rows of D elements can be left operands as they are */
  bool trims;    /* GEMMs may stop short of the packed depth */
  float scale, scale_base_2;
  bool drops;
  uint32_t seed, threshold;
  uint64_t stream, first;
  float kept;
  const char *q, *k, *v, *out_in, *dout; /* the last two: backward */
  const float *lse_in;
  char *out, *dq, *dk, *dv;
  float *lse;
};

/* At most `most` keys: whole vectors, and whole strips where those are as even. */
static int64_t block_of(const struct gd_gemm_ops *ops, int64_t most) {
  return most / ops->mr * ops->mr / 16 * 16;
}

/* q, k, v from input `first` on, and the seed, if there is one, as input `seed`. */
static struct problem describe(const struct gd_kernel_args *args, uint32_t first, uint32_t seed_at,
                               enum gd_isa isa) {
  const struct gd_attr_attention *attr = &args->attr->attention;
  const struct gd_view *q = &args->in[first], *k = &args->in[first + 1];
  struct problem p = {
      .rows = gd_cpu_rows_for(isa),
      .dtype = q->dtype,
      .batch = q->dims[0],
      .heads = q->dims[1],
      .group = q->dims[1] / k->dims[1],
      .steps = q->dims[2],
      .size = q->dims[3],
      .elem_bytes = gd_dtype_bytes(q->dtype),
      .causal = attr->causal,
      .scale = attr->scale,
      .scale_base_2 = attr->scale * 0x1.715476p0f, /* log2(e) */
      .drops = args->n_in > seed_at,
      .kept = 1,
      .q = q->data,
      .k = k->data,
      .v = args->in[first + 2].data,
  };
  p.ops = gd_gemm_choose(p.dtype, isa, &p.unit);
  p.weight_unit = p.unit == GD_GEMM_UNIT_BF16_PAIR ? p.unit : GD_GEMM_UNIT_F32;
  p.trims = p.ops->depth_step == 1;
  p.depth = gd_round_up(gd_div_up(p.size, p.ops->unit_k), p.ops->depth_step);
  p.panels = gd_div_up(p.size, p.ops->nr);
  p.row_floats = p.panels * p.ops->mr * p.ops->nr;
  p.in_place = p.ops->in_place && p.size == p.depth * p.ops->unit_k &&
               (p.unit == GD_GEMM_UNIT_F32 || p.unit == GD_GEMM_UNIT_BF16_PAIR);
  p.block = block_of(p.ops, GD_CPU_ATTENTION_BLOCK);
  if (p.drops) { /* as gd_cpu_dropout has it */
    const int32_t *seed = args->in[seed_at].data;
    double probability = (double)attr->probability;
    p.seed = (uint32_t)seed[0];
    p.stream = (uint64_t)attr->stream << 32 | (uint32_t)seed[1];
    p.first = (uint64_t)seed[2] * (uint64_t)(p.heads * p.steps * p.steps);
    p.threshold = gd_rng_dropout_threshold(probability);
    p.kept = (float)gd_rng_dropout_scale(probability);
  }
  return p;
}

/* --- operands ------------------------------------------------------------------------------- */

/* Left operand: strips of rows, in place as long as they are whole, packed where not. */
struct left {
  const char *data;
  int64_t row_bytes;
  int64_t in_place; /* strips */
  const char *packed;
  int64_t strip_bytes; /* of a packed strip */
};

static struct gd_gemm_rows strip_of(const struct problem *p, const struct left *left, int64_t s) {
  if (s < left->in_place)
    return (struct gd_gemm_rows){.data = left->data + s * p->ops->mr * left->row_bytes,
                                 .row_bytes = left->row_bytes,
                                 .unit_bytes = 4};
  return (struct gd_gemm_rows){.data = left->packed + (s - left->in_place) * left->strip_bytes,
                               .row_bytes = 4,
                               .unit_bytes = p->ops->a_step * 4};
}

/* `rows` rows of D elements, one after another. */
static struct left left_rows(const struct problem *p, const char *data, int64_t rows,
                             char *packed) {
  const struct gd_gemm_ops *ops = p->ops;
  struct left left = {.data = data,
                      .row_bytes = p->size * p->elem_bytes,
                      .in_place = p->in_place ? rows / ops->mr : 0,
                      .packed = packed,
                      .strip_bytes = ops->a_step * p->depth * 4};
  int64_t from = left.in_place * ops->mr;
  if (from < rows)
    ops->pack_a(&(struct gd_gemm_piece){.data = data + from * left.row_bytes,
                                        .ld = p->size,
                                        .k_contiguous = true,
                                        .unit = p->unit,
                                        .width = rows - from,
                                        .k = p->size,
                                        .depth = p->depth},
                packed);
  return left;
}

/* Rows as columns of the right operand, contracted over D: for scores. */
static void pack_across(const struct problem *p, const char *data, int64_t rows, char *packed) {
  p->ops->pack_b(&(struct gd_gemm_piece){.data = data,
                                         .ld = p->size,
                                         .k_contiguous = true,
                                         .unit = p->unit,
                                         .width = rows,
                                         .k = p->size,
                                         .depth = p->depth},
                 packed);
}

/* Rows as rows of the right operand, contracted over them: for sums of values. */
static int64_t pack_down(const struct problem *p, const char *data, int64_t rows, char *packed) {
  int64_t depth = gd_round_up(gd_div_up(rows, p->ops->unit_k), p->ops->depth_step);
  p->ops->pack_b(&(struct gd_gemm_piece){.data = data,
                                         .ld = p->size,
                                         .unit = p->unit,
                                         .width = p->size,
                                         .k = rows,
                                         .depth = depth},
                 packed);
  return depth;
}

/* tiles (+)= a strip by the first `cols` columns of packed panels, from unit `skip` on. */
static void multiply(const struct problem *p, int64_t depth, const struct gd_gemm_rows *a,
                     const char *panels, int64_t panel_depth, int64_t skip, float *tiles, bool add,
                     int64_t rows, int64_t cols) {
  const struct gd_gemm_ops *ops = p->ops;
  for (int64_t j = 0, t = 0; j < cols; j += ops->nr, t++)
    ops->tile(depth, a, panels + (t * panel_depth + skip) * ops->nr * 4,
              tiles + t * ops->mr * ops->nr, add, rows, gd_least(ops->nr, cols - j));
}

/* Rows of sums into a tensor, each times its factor, or all times one. */
static void store_rows(const struct problem *p, const float *tiles, int64_t rows,
                       const float *factors, float factor, char *to) {
  const int64_t mr = p->ops->mr, nr = p->ops->nr;
  for (int64_t i = 0; i < rows; i++)
    for (int64_t t = 0; t < p->panels; t++)
      p->rows->scale(p->dtype, to + (i * p->size + t * nr) * p->elem_bytes, GD_DTYPE_F32,
                     tiles + i / mr * p->row_floats + (t * mr + i % mr) * nr,
                     factors ? factors[i] : factor, gd_least(nr, p->size - t * nr));
}

/* --- strips --------------------------------------------------------------------------------- */

/* Keys of a block at `key_at` that queries up to row_at + rows - 1 see at most. */
static int64_t keys_seen(const struct problem *p, int64_t row_at, int64_t rows, int64_t key_at,
                         int64_t keys) {
  return p->causal ? gd_least(row_at + rows - key_at, keys) : keys;
}

/* What both directions fill in: rows from row_at on, keys from key_at on, of one head. */
static struct gd_cpu_strip make_strip(const struct problem *p, int64_t head, int64_t row_at,
                                      int64_t rows, int64_t key_at, int64_t keys) {
  return (struct gd_cpu_strip){
      .rows = rows,
      .keys = keys,
      .seen = p->causal ? row_at + 1 - key_at : keys,
      .seen_step = p->causal,
      .scale = p->scale_base_2,
      .tile_bits = __builtin_ctz((unsigned)p->ops->nr),
      .tile_floats = p->ops->mr * p->ops->nr,
      .bf16 = p->weight_unit == GD_GEMM_UNIT_BF16_PAIR,
      .drops = p->drops,
      .seed = p->seed,
      .stream = p->stream,
      .first = p->first + (uint64_t)((head * p->steps + row_at) * p->steps + key_at),
      .row_step = (uint64_t)p->steps,
      .threshold = p->threshold,
      .kept = p->kept,
      .ld = p->block,
  };
}

/* Depth of a GEMM over the keys of a strip, and the columns that must be there for it. */
static int64_t strip_depth(const struct problem *p, int64_t seen, int64_t block_depth,
                           int64_t *width) {
  int64_t depth = p->trims ? gd_div_up(seen, p->ops->unit_k) : block_depth;
  *width = depth * p->ops->unit_k;
  return depth;
}

/* A strip of weights or dscores as the left operand; packed has room for it. */
static struct gd_gemm_rows left_strip(const struct problem *p, const void *data, int64_t rows,
                                      int64_t width, int64_t depth, char *packed) {
  int64_t elem_bytes = p->weight_unit == GD_GEMM_UNIT_F32 ? 4 : 2;
  if (p->ops->in_place)
    return (struct gd_gemm_rows){.data = data, .row_bytes = p->block * elem_bytes, .unit_bytes = 4};
  p->ops->pack_a(&(struct gd_gemm_piece){.data = data,
                                         .ld = p->block,
                                         .k_contiguous = true,
                                         .unit = p->weight_unit,
                                         .width = rows,
                                         .k = width,
                                         .depth = depth},
                 packed);
  return (struct gd_gemm_rows){.data = packed, .row_bytes = 4, .unit_bytes = p->ops->a_step * 4};
}

/* --- scratch -------------------------------------------------------------------------------- */

/* Hands out a thread's share of the workspace, in whole cache lines. */
struct scratch {
  char *at, *end;
};

static void *take(struct scratch *scratch, int64_t bytes) {
  char *begin = scratch->at;
  scratch->at += gd_round_up(bytes, 64);
  GD_ASSERT(scratch->at <= scratch->end);
  return begin;
}

static struct scratch scratch_of(const struct gd_kernel_args *args, int thread) {
  char *begin = (char *)args->workspace + thread * (int64_t)GD_GEMM_THREAD_BYTES;
  return (struct scratch){begin, begin + GD_GEMM_THREAD_BYTES};
}

static int64_t left_bytes(const struct problem *p, int64_t rows) {
  int64_t strips = p->in_place ? 1 : gd_div_up(rows, p->ops->mr);
  return strips * p->ops->a_step * p->depth * 4;
}

static int64_t across_bytes(const struct problem *p) {
  return gd_round_up(p->block, p->ops->nr) * p->depth * 4;
}

static int64_t down_bytes(const struct problem *p) {
  return p->panels * p->ops->nr *
         gd_round_up(gd_div_up(p->block, p->ops->unit_k), p->ops->depth_step) * 4;
}

static int64_t strip_tiles_bytes(const struct problem *p) {
  return gd_round_up(p->block, p->ops->nr) * p->ops->mr * 4;
}

static int64_t packed_strip_bytes(const struct problem *p) {
  return p->ops->a_step * gd_round_up(gd_div_up(p->block, p->ops->unit_k), p->ops->depth_step) * 4;
}

/* --- forward -------------------------------------------------------------------------------- */

struct forward {
  char *q, *k, *v;
  float *scores, *sums;
  void *weights;
  char *packed;
  float *shift, *sum, *factor;
};

/* For tasks of so many queries. */
static struct forward forward_scratch(const struct problem *p, int64_t rows,
                                      struct scratch scratch) {
  return (struct forward){
      .q = take(&scratch, left_bytes(p, rows)),
      .k = take(&scratch, across_bytes(p)),
      .v = take(&scratch, down_bytes(p)),
      .scores = take(&scratch, strip_tiles_bytes(p)),
      .sums = take(&scratch, gd_div_up(rows, p->ops->mr) * p->row_floats * 4),
      .weights = take(&scratch, p->ops->mr * p->block * 4),
      .packed = take(&scratch, packed_strip_bytes(p)),
      .shift = take(&scratch, rows * 4),
      .sum = take(&scratch, rows * p->rows->lanes * 4),
      .factor = take(&scratch, rows * 4),
  };
}

/* Queries row_at .. row_at + rows - 1 of head (of all sequences: b N + n). */
static void forward_task(const struct problem *p, int64_t head, int64_t row_at, int64_t rows,
                         const struct forward *own) {
  const struct gd_gemm_ops *ops = p->ops;
  const int64_t head_bytes = p->steps * p->size * p->elem_bytes;
  const char *k = p->k + head / p->group * head_bytes, *v = p->v + head / p->group * head_bytes;
  const int64_t at = (head * p->steps + row_at) * p->size * p->elem_bytes;
  struct left q = left_rows(p, p->q + at, rows, own->q);
  const int64_t end = keys_seen(p, row_at, rows, 0, p->steps);
  for (int64_t key_at = 0; key_at < end; key_at += p->block) {
    const int64_t keys = gd_least(p->block, end - key_at);
    pack_across(p, k + key_at * p->size * p->elem_bytes, keys, own->k);
    const int64_t depth_v = pack_down(p, v + key_at * p->size * p->elem_bytes, keys, own->v);
    for (int64_t i = 0, s = 0; i < rows; i += ops->mr, s++) {
      const int64_t count = gd_least(ops->mr, rows - i);
      const int64_t seen = keys_seen(p, row_at + i, count, key_at, keys);
      if (seen <= 0)
        continue;
      float *sums = own->sums + s * p->row_floats;
      struct gd_gemm_rows a = strip_of(p, &q, s);
      multiply(p, p->depth, &a, own->k, p->depth, 0, own->scores, false, count, seen);
      struct gd_cpu_strip strip = make_strip(p, head, row_at + i, count, key_at, keys);
      const int64_t depth = strip_depth(p, seen, depth_v, &strip.width);
      strip.scores = own->scores;
      strip.weights = own->weights;
      strip.is_first = key_at == 0;
      strip.shift = own->shift + i;
      strip.sum = own->sum + i * p->rows->lanes;
      strip.factor = own->factor;
      p->rows->attention_weights(&strip);
      if (key_at > 0)
        p->rows->scale_tile_rows(sums, count, p->panels, strip.tile_floats, ops->nr, own->factor);
      a = left_strip(p, own->weights, count, strip.width, depth, own->packed);
      multiply(p, depth, &a, own->v, depth_v, 0, sums, key_at > 0, count, p->size);
    }
  }
  p->rows->attention_finish(rows, own->shift, own->sum, p->kept, p->lse + head * p->steps + row_at,
                            own->factor);
  store_rows(p, own->sums, rows, own->factor, 1, p->out + at);
}

/* Threads worth waking: each gets some 100,000 multiply-adds at least, as in gemm.c. */
static int threads_for(const struct gd_kernel_args *args, const struct problem *p) {
  double work = (double)(p->batch * p->heads * p->steps) * (double)(p->steps * (p->size + 16));
  double useful = 1 + work / 131072;
  return useful < (double)args->threads ? (int)useful : args->threads;
}

/* Queries of a task: the more, the less often keys are packed. A row's result does not depend on
   the others, so this may depend on threads. */
static int64_t rows_of_task(const struct problem *p, int threads) {
  int64_t many = 2 * GD_CPU_ATTENTION_ROWS;
  bool plenty = p->batch * p->heads * gd_div_up(p->steps, many) >= 4 * threads;
  return plenty && p->size <= GD_CPU_ATTENTION_SIZE / 2 ? many : GD_CPU_ATTENTION_ROWS;
}

void gd_cpu_attention_isa(const struct gd_kernel_args *args, enum gd_isa isa) {
  struct problem p = describe(args, 0, 3, isa);
  p.out = args->out[0].data;
  p.lse = args->out[1].data;
  if (p.size < 1 || p.size > GD_CPU_ATTENTION_SIZE) {
    gd_cpu_leave_to_ref(GD_OP_attention, args);
    return;
  }
  const int64_t rows = rows_of_task(&p, args->threads);
  const int64_t runs = gd_div_up(p.steps, rows), tasks = p.batch * p.heads * runs;
  if (tasks == 0)
    return;
  const int threads = (int)gd_least(threads_for(args, &p), tasks);
  GD_ASSERT(threads * (int64_t)GD_GEMM_THREAD_BYTES <= args->workspace_bytes);
#pragma omp parallel num_threads(threads)
  {
    struct forward own = forward_scratch(&p, rows, scratch_of(args, omp_get_thread_num()));
    if (p.ops->begin)
      p.ops->begin();
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t task = 0; task < tasks; task++) {
      /* The last queries first: under a mask they take longest. */
      int64_t row_at = (runs - 1 - task / (p.batch * p.heads)) * rows;
      forward_task(&p, task % (p.batch * p.heads), row_at, gd_least(rows, p.steps - row_at), &own);
    }
    if (p.ops->end)
      p.ops->end();
  }
}

void gd_cpu_attention(const struct gd_kernel_args *args) {
  gd_cpu_attention_isa(args, gd_isa_detect());
}

/* --- backward ------------------------------------------------------------------------------- */

struct backward {
  char *k, *v, *k_down;     /* a block of keys, packed */
  char *q, *dout;           /* a block of queries, packed */
  float *scores, *dweights; /* of a strip */
  void *weights, *dscores;  /* [block][block]: of a block of queries by a block of keys */
  uint32_t *weight_pairs, *dscore_pairs;
  char *packed;        /* a strip, or a block of weights transposed, as left operand */
  float *dq, *dk, *dv; /* sums: of one block, or of all blocks of a head */

  /* What is made of queries and needed with every block of keys: of one block, or of all. */
  bool keeps_rows;
  char *q_down, *dout_down; /* packed */
  float *lse, *delta;
};

static int64_t blocks_of(const struct problem *p) {
  return gd_div_up(p->steps, p->block);
}

/* Sums of one block of rows by D columns. */
static int64_t sums_floats(const struct problem *p) {
  return gd_div_up(p->block, p->ops->mr) * p->row_floats;
}

/* What is saved of so many blocks of queries. */
static void take_rows(const struct problem *p, int64_t blocks, struct scratch *scratch,
                      struct backward *own) {
  own->keeps_rows = blocks > 1;
  own->q_down = take(scratch, blocks * down_bytes(p));
  own->dout_down = take(scratch, blocks * down_bytes(p));
  own->lse = take(scratch, blocks * p->block * 4);
  own->delta = take(scratch, blocks * p->block * 4);
}

/* Everything else but the sums. */
static struct backward backward_scratch(const struct problem *p, struct scratch *scratch) {
  const int64_t whole = p->block * p->block;
  const int64_t whole_bytes = p->weight_unit == GD_GEMM_UNIT_F32 ? whole * 4 : whole * 2;
  struct backward own = {
      .k = take(scratch, across_bytes(p)),
      .v = take(scratch, across_bytes(p)),
      .k_down = take(scratch, down_bytes(p)),
      .q = take(scratch, left_bytes(p, p->block)),
      .dout = take(scratch, left_bytes(p, p->block)),
      .scores = take(scratch, strip_tiles_bytes(p)),
      .dweights = take(scratch, strip_tiles_bytes(p)),
      .dscores = take(scratch, whole_bytes),
  };
  if (p->weight_unit == GD_GEMM_UNIT_BF16_PAIR && p->ops->in_place) {
    own.weight_pairs = take(scratch, whole * 2);
    own.dscore_pairs = take(scratch, whole * 2);
  } else {
    own.weights = take(scratch, whole_bytes);
  }
  if (!p->ops->in_place)
    own.packed = take(scratch, gd_div_up(p->block, p->ops->mr) * packed_strip_bytes(p));
  return own;
}

/* A block of queries by a block of keys. */
struct pair {
  int64_t head;
  int64_t row_at, rows, key_at, keys;
  int64_t depth_rows, depth_keys; /* units, packed */
  const char *q_down, *dout_down; /* of the queries */
  const float *lse, *delta;
};

static const char *head_at(const struct problem *p, const char *data, int64_t head, int64_t row) {
  return data + (head * p->steps + row) * p->size * p->elem_bytes;
}

static void load_keys(const struct problem *p, struct pair *pair, int64_t key_block,
                      const struct backward *own) {
  int64_t key_head = pair->head / p->group;
  pair->key_at = key_block * p->block;
  pair->keys = gd_least(p->block, p->steps - pair->key_at);
  pack_across(p, head_at(p, p->k, key_head, pair->key_at), pair->keys, own->k);
  pack_across(p, head_at(p, p->v, key_head, pair->key_at), pair->keys, own->v);
  pair->depth_keys =
      pack_down(p, head_at(p, p->k, key_head, pair->key_at), pair->keys, own->k_down);
}

/* `fresh`: what is saved of these queries is not there yet. */
static void load_rows(const struct problem *p, struct pair *b, int64_t row_block, bool fresh,
                      const struct backward *own) {
  const int64_t slot = own->keeps_rows ? row_block : 0, slot_bytes = slot * down_bytes(p);
  float *lse = own->lse + slot * p->block, *delta = own->delta + slot * p->block;
  b->row_at = row_block * p->block;
  b->rows = gd_least(p->block, p->steps - b->row_at);
  b->depth_rows = gd_round_up(gd_div_up(b->rows, p->ops->unit_k), p->ops->depth_step);
  b->q_down = own->q_down + slot_bytes;
  b->dout_down = own->dout_down + slot_bytes;
  b->lse = lse;
  b->delta = delta;
  if (!fresh && own->keeps_rows)
    return;
  const char *dout = head_at(p, p->dout, b->head, b->row_at);
  pack_down(p, head_at(p, p->q, b->head, b->row_at), b->rows, own->q_down + slot_bytes);
  pack_down(p, dout, b->rows, own->dout_down + slot_bytes);
  p->rows->row_dots(p->dtype, delta, dout, head_at(p, p->out_in, b->head, b->row_at), b->rows,
                    p->size);
  for (int64_t r = 0; r < b->rows; r++)
    lse[r] = p->lse_in[b->head * p->steps + b->row_at + r] * 0x1.715476p0f; /* log2(e) */
}

/* Weights and dscores of the block; and its share of dq, if sums for that are given. */
static void score_block(const struct problem *p, const struct pair *b, const struct backward *own,
                        float *dq) {
  const struct gd_gemm_ops *ops = p->ops;
  const int64_t elem_bytes = p->weight_unit == GD_GEMM_UNIT_F32 ? 4 : 2;
  struct left q = left_rows(p, head_at(p, p->q, b->head, b->row_at), b->rows, own->q);
  struct left dout = left_rows(p, head_at(p, p->dout, b->head, b->row_at), b->rows, own->dout);
  for (int64_t i = 0, s = 0; i < b->rows; i += ops->mr, s++) {
    const int64_t count = gd_least(ops->mr, b->rows - i);
    const int64_t seen = keys_seen(p, b->row_at + i, count, b->key_at, b->keys);
    struct gd_cpu_strip strip = make_strip(p, b->head, b->row_at + i, count, b->key_at, b->keys);
    int64_t width;
    const int64_t depth = strip_depth(p, seen, b->depth_keys, &width);
    /* Where add_transposed packs, it reads all columns. */
    strip.width = ops->in_place || width > b->keys ? width : b->keys;
    struct gd_gemm_rows a = strip_of(p, &q, s);
    multiply(p, p->depth, &a, own->k, p->depth, 0, own->scores, false, count, seen);
    a = strip_of(p, &dout, s);
    multiply(p, p->depth, &a, own->v, p->depth, 0, own->dweights, false, count, seen);
    strip.scores = own->scores;
    strip.dweights = own->dweights;
    strip.lse = b->lse + i;
    strip.delta = b->delta + i;
    strip.dscores = (char *)own->dscores + i * p->block * elem_bytes;
    if (own->weight_pairs) {
      strip.weight_pairs = own->weight_pairs + i / 2 * p->block;
      strip.dscore_pairs = own->dscore_pairs + i / 2 * p->block;
    } else {
      strip.weights = (char *)own->weights + i * p->block * elem_bytes;
    }
    p->rows->attention_dscores(&strip);
    if (!dq)
      continue;
    a = left_strip(p, strip.dscores, count, width, depth, own->packed);
    multiply(p, depth, &a, own->k_down, b->depth_keys, 0, dq + s * p->row_floats, b->key_at > 0,
             count, p->size);
  }
}

/* Adds weights^T values to the sums of a block of keys: columns become rows of the left operand. */
static void add_transposed(const struct problem *p, const struct pair *b,
                           const struct backward *own, const void *weights, const uint32_t *pairs,
                           const char *values, float *sums) {
  const struct gd_gemm_ops *ops = p->ops;
  struct gd_gemm_rows a = {.row_bytes = 4, .unit_bytes = p->block * 4};
  const char *columns = pairs ? (const char *)pairs : weights;
  const bool transposed = ops->in_place; /* a column's units are p->block apart already */
  const int64_t packed_bytes = ops->a_step * b->depth_rows * 4;
  if (!transposed)
    ops->pack_a(&(struct gd_gemm_piece){.data = weights,
                                        .ld = p->block,
                                        .unit = p->weight_unit,
                                        .width = b->keys,
                                        .k = b->rows,
                                        .depth = b->depth_rows},
                own->packed);
  for (int64_t j = 0, s = 0; j < b->keys; j += ops->mr, s++) {
    /* The queries before the first key of the strip do not see it. */
    int64_t skip = p->causal && transposed ? (b->key_at + j - b->row_at) / ops->unit_k : 0;
    skip = skip > 0 ? skip : 0;
    if (skip >= b->depth_rows)
      continue;
    a.data = columns + skip * a.unit_bytes + j * 4;
    if (!transposed)
      a = (struct gd_gemm_rows){
          .data = own->packed + s * packed_bytes, .row_bytes = 4, .unit_bytes = ops->a_step * 4};
    multiply(p, b->depth_rows - skip, &a, values, b->depth_rows, skip, sums + s * p->row_floats,
             true, gd_least(ops->mr, b->keys - j), p->size);
  }
}

static void add_to_keys(const struct problem *p, const struct pair *b, const struct backward *own,
                        float *dk, float *dv) {
  add_transposed(p, b, own, own->weights, own->weight_pairs, b->dout_down, dv);
  add_transposed(p, b, own, own->dscores, own->dscore_pairs, b->q_down, dk);
}

static void store_keys(const struct problem *p, const struct pair *b, const float *dk,
                       const float *dv) {
  int64_t at = (b->head / p->group * p->steps + b->key_at) * p->size * p->elem_bytes;
  store_rows(p, dk, b->keys, NULL, p->scale, p->dk + at);
  store_rows(p, dv, b->keys, NULL, p->kept, p->dv + at);
}

static void store_queries(const struct problem *p, int64_t head, int64_t row_block,
                          const float *dq) {
  int64_t row_at = row_block * p->block;
  store_rows(p, dq, gd_least(p->block, p->steps - row_at), NULL, p->scale,
             p->dq + (head * p->steps + row_at) * p->size * p->elem_bytes);
}

/* All gradients of a key head (of all sequences: b M + m) and of the heads that share it. */
static void head_task(const struct problem *p, int64_t key_head, const struct backward *own) {
  const int64_t blocks = blocks_of(p), floats = sums_floats(p);
  for (int64_t g = 0; g < p->group; g++) {
    struct pair b = {.head = key_head * p->group + g};
    for (int64_t j = 0; j < blocks; j++) {
      float *dk = own->dk + (p->group > 1 ? j * floats : 0);
      float *dv = own->dv + (p->group > 1 ? j * floats : 0);
      if (g == 0) {
        memset(dk, 0, (size_t)floats * sizeof *dk);
        memset(dv, 0, (size_t)floats * sizeof *dv);
      }
      load_keys(p, &b, j, own);
      for (int64_t i = p->causal ? j : 0; i < blocks; i++) {
        load_rows(p, &b, i, j == 0, own);
        score_block(p, &b, own, own->dq + i * floats);
        add_to_keys(p, &b, own, dk, dv);
      }
      if (g == p->group - 1)
        store_keys(p, &b, dk, dv);
    }
    for (int64_t i = 0; i < blocks; i++)
      store_queries(p, b.head, i, own->dq + i * floats);
  }
}

static void keys_task(const struct problem *p, int64_t key_head, int64_t key_block,
                      const struct backward *own) {
  struct pair b = {.head = key_head * p->group};
  memset(own->dk, 0, (size_t)sums_floats(p) * sizeof *own->dk);
  memset(own->dv, 0, (size_t)sums_floats(p) * sizeof *own->dv);
  load_keys(p, &b, key_block, own);
  for (int64_t g = 0; g < p->group; g++, b.head++)
    for (int64_t i = p->causal ? key_block : 0; i < blocks_of(p); i++) {
      load_rows(p, &b, i, true, own);
      score_block(p, &b, own, NULL);
      add_to_keys(p, &b, own, own->dk, own->dv);
    }
  b.head = key_head * p->group;
  store_keys(p, &b, own->dk, own->dv);
}

static void queries_task(const struct problem *p, int64_t head, int64_t row_block,
                         const struct backward *own) {
  struct pair b = {.head = head};
  load_rows(p, &b, row_block, true, own);
  for (int64_t j = 0; j < (p->causal ? row_block + 1 : blocks_of(p)); j++) {
    load_keys(p, &b, j, own);
    score_block(p, &b, own, own->dq);
  }
  store_queries(p, head, row_block, own->dq);
}

/* How many blocks of queries a task by heads can keep what it made of: all, 1, or 0 if it does not
   even have room for its sums. */
static int64_t blocks_saved(const struct problem *p, const struct gd_kernel_args *args) {
  struct scratch scratch = scratch_of(args, 0);
  int64_t blocks = blocks_of(p), sums = blocks + 2 * (p->group > 1 ? blocks : 1);
  backward_scratch(p, &scratch);
  int64_t left_bytes = scratch.end - scratch.at - sums * gd_round_up(sums_floats(p) * 4, 64);
  int64_t kept_bytes = 2 * down_bytes(p) + 2 * p->block * 4 + 4 * 64;
  return left_bytes >= blocks * kept_bytes ? blocks : left_bytes >= kept_bytes ? 1 : 0;
}

static void run_heads(const struct gd_kernel_args *args, const struct problem *p, int64_t saved,
                      int threads) {
  const int64_t tasks = p->batch * p->heads / p->group, blocks = blocks_of(p);
  const int64_t sums_bytes = sums_floats(p) * (int64_t)sizeof(float);
#pragma omp parallel num_threads(threads)
  {
    struct scratch scratch = scratch_of(args, omp_get_thread_num());
    struct backward own = backward_scratch(p, &scratch);
    own.dq = take(&scratch, blocks * sums_bytes);
    own.dk = take(&scratch, (p->group > 1 ? blocks : 1) * sums_bytes);
    own.dv = take(&scratch, (p->group > 1 ? blocks : 1) * sums_bytes);
    take_rows(p, saved, &scratch, &own);
    if (p->ops->begin)
      p->ops->begin();
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t task = 0; task < tasks; task++)
      head_task(p, task, &own);
    if (p->ops->end)
      p->ops->end();
  }
}

static void run_blocks(const struct gd_kernel_args *args, const struct problem *p, int threads) {
  const int64_t blocks = blocks_of(p), heads = p->batch * p->heads, key_heads = heads / p->group;
  const int64_t sums_bytes = sums_floats(p) * (int64_t)sizeof(float);
#pragma omp parallel num_threads(threads)
  {
    struct scratch scratch = scratch_of(args, omp_get_thread_num());
    struct backward own = backward_scratch(p, &scratch);
    own.dq = own.dk = take(&scratch, sums_bytes);
    own.dv = take(&scratch, sums_bytes);
    take_rows(p, 1, &scratch, &own);
    if (p->ops->begin)
      p->ops->begin();
      /* The longest first: the first keys, the last queries. */
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t task = 0; task < key_heads * blocks; task++)
      keys_task(p, task % key_heads, task / key_heads, &own);
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t task = 0; task < heads * blocks; task++)
      queries_task(p, task % heads, blocks - 1 - task / heads, &own);
    if (p->ops->end)
      p->ops->end();
  }
}

void gd_cpu_attention_grad_isa(const struct gd_kernel_args *args, enum gd_isa isa) {
  struct problem p = describe(args, 1, 6, isa);
  p.dout = args->in[0].data;
  p.out_in = args->in[4].data;
  p.lse_in = args->in[5].data;
  p.dq = args->out[0].data;
  p.dk = args->out[1].data;
  p.dv = args->out[2].data;
  if (p.size < 1 || p.size > GD_CPU_ATTENTION_SIZE || p.group == 0) {
    gd_cpu_leave_to_ref(GD_OP_attention_grad, args);
    return;
  }
  const int64_t key_heads = p.batch * p.heads / p.group;
  if (key_heads == 0 || p.steps == 0)
    return;
  const int threads = threads_for(args, &p);
  GD_ASSERT(threads * (int64_t)GD_GEMM_THREAD_BYTES <= args->workspace_bytes);
  /* 5 GEMMs on the busiest thread against 7 shared evenly. */
  const bool by_heads =
      5.0 * (double)gd_div_up(key_heads, threads) <= 7.0 * (double)key_heads / (double)threads;
  int64_t saved = blocks_saved(&p, args);
  if (saved == 0) { /* smaller blocks leave more room; by the shape alone */
    p.block = block_of(p.ops, GD_CPU_ATTENTION_BLOCK / 2);
    saved = blocks_saved(&p, args);
  }
  if (by_heads && saved > 0)
    run_heads(args, &p, saved, (int)gd_least(threads, key_heads));
  else
    run_blocks(args, &p, threads);
}

void gd_cpu_attention_grad(const struct gd_kernel_args *args) {
  gd_cpu_attention_grad_isa(args, gd_isa_detect());
}
