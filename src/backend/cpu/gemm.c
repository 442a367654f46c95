/*
 * The driver of the CPU's GEMM: blocking, packing, threads, dispatch.
 *
 * C is cut into blocks of mb x nb; a block is a task, owned by one thread from the first to the
 * last k, so threads share nothing they write and need no barrier. Inside a block:
 *
 *   for each round of k (at most depth_max units deep)
 *     pack nb columns of B                                    -> L2
 *     for each run of rows of A (some panels)
 *       pack the run, unless reading A in place is as good    -> L2, the panel in use in L1
 *       for each panel of A, for each panel of B
 *         tile: sums += A panel * B panel                     (registers)
 *         in the last round: store: C = alpha * sums + bias (+ C)
 *
 * The bound is the multiply-add rate: packing costs O(mb + nb) per k against O(mb * nb)
 * multiplications. Packing happens here for every block again; that is cheaper than barriers around
 * shared panels.
 */
#include "backend/cpu/gemm.h"

#include <omp.h>

#include "backend/cpu/gemm_int.h"
#include "base/sizes.h"
#include "base/status.h"

/* How one GEMM is cut up. Rounds of k depend on the shape alone, so that the sums do too. */
struct blocking {
  int64_t depth;              /* units of k in a round; the last may be shallower */
  int64_t rounds;             /* at least 1, also for k = 0 */
  int64_t mb, nb;             /* rows and columns of a block: multiples of mr and nr */
  int64_t m_blocks, n_blocks; /* blocks of one batch item */
  int64_t run_rows;           /* rows of A packed at a time: a multiple of mr */
  bool rows_first;            /* order of the tasks: down the rows of C first */
};

struct job {
  const struct gd_gemm *g;
  const struct gd_gemm_ops *ops;
  const char *a, *b;
  char *c;
  const float *bias;
  enum gd_gemm_unit unit;
  struct gd_gemm_output out;
  struct blocking cut;
};

/* One thread's share of the workspace. */
struct scratch {
  _Alignas(64) char a[GD_GEMM_A_UNITS * 4];
  _Alignas(64) char b[GD_GEMM_B_UNITS * 4];
  _Alignas(64) float sums[GD_GEMM_SUMS];
  _Alignas(64) float tile_sums[GD_GEMM_TILE_SUMS];
};
_Static_assert(sizeof(struct scratch) == GD_GEMM_THREAD_BYTES, "no padding, so no hidden bytes");

/*
 * Picks mb and nb: the fewest multiply-adds on the busiest thread, counting padding to whole tiles
 * and the packing of both operands. A handful of divisors of each side is enough to choose from.
 */
static struct blocking choose_blocking(const struct gd_gemm *g, const struct gd_gemm_ops *ops,
                                       int threads) {
  enum { CANDIDATES = 16 };
  struct blocking best = {0};
  int64_t units = gd_div_up(g->k, ops->unit_k);
  best.rounds = units > 0 ? gd_div_up(units, ops->depth_max) : 1;
  best.depth = gd_round_up(gd_div_up(units, best.rounds), ops->depth_step);
  best.rows_first = g->n > g->m;
  best.run_rows = GD_GEMM_A_UNITS / (ops->depth_max * ops->a_step) * ops->mr;

  int64_t m_panels = gd_div_up(g->m, ops->mr), n_panels = gd_div_up(g->n, ops->nr);
  int64_t n_least = gd_div_up(n_panels, ops->width_max / ops->nr);
  double best_cost = 0;
  for (int64_t n_try = n_least; n_try <= gd_least(n_panels, n_least + CANDIDATES - 1); n_try++) {
    int64_t nb = gd_div_up(n_panels, n_try);
    int64_t n_blocks = gd_div_up(n_panels, nb);
    /* With several rounds of k, the sums of the whole block wait in the workspace. */
    int64_t mb_max = best.rounds == 1 ? m_panels : ops->sums_max / (ops->mr * ops->nr * nb);
    int64_t m_least = gd_div_up(m_panels, mb_max);
    for (int64_t m_try = m_least; m_try <= gd_least(m_panels, m_least + CANDIDATES - 1); m_try++) {
      int64_t mb = gd_div_up(m_panels, m_try);
      int64_t m_blocks = gd_div_up(m_panels, mb);
      double rows = (double)(mb * ops->mr), cols = (double)(nb * ops->nr);
      double block_cost = rows * cols + ops->pack_penalty * (rows + cols);
      double cost = (double)gd_div_up(m_blocks * n_blocks * g->batch, threads) * block_cost;
      if (best.mb == 0 || cost < best_cost) {
        best_cost = cost;
        best.mb = mb * ops->mr;
        best.nb = nb * ops->nr;
        best.m_blocks = m_blocks;
        best.n_blocks = n_blocks;
      }
    }
  }
  return best;
}

/* A block of C that one thread computes. */
struct block {
  const char *a, *b; /* this batch item's operands */
  char *c;           /* its first element */
  const float *bias; /* at its first column, or NULL */
  int64_t row_at, rows, col_at, cols;
};

/* A round of k: which elements, and how deep they are packed. */
struct round {
  int64_t k_at, k, depth;
};

static struct round get_round(const struct job *job, int64_t i) {
  const int64_t unit_k = job->ops->unit_k;
  struct round round = {.k_at = i * job->cut.depth * unit_k};
  round.k = gd_least(job->cut.depth * unit_k, job->g->k - round.k_at);
  round.depth = gd_round_up(gd_div_up(round.k, unit_k), job->ops->depth_step);
  return round;
}

/* `width` rows of op(A) or columns of op(B) from `at` on, over one round. */
static struct gd_gemm_piece cut_piece(const struct job *job, const char *data, int64_t ld,
                                      bool k_contiguous, int64_t at, int64_t width,
                                      const struct round *round) {
  int64_t offset = k_contiguous ? at * ld + round->k_at : round->k_at * ld + at;
  return (struct gd_gemm_piece){.data = data + offset * gd_dtype_bytes(job->g->dtype_a),
                                .ld = ld,
                                .k_contiguous = k_contiguous,
                                .unit = job->unit,
                                .width = width,
                                .k = round->k,
                                .depth = round->depth};
}

static struct gd_gemm_piece cut_a(const struct job *job, const struct block *block, int64_t run_at,
                                  const struct round *round) {
  int64_t width = gd_least(job->cut.run_rows, block->rows - run_at);
  return cut_piece(job, block->a, job->g->lda, !job->g->trans_a, block->row_at + run_at, width,
                   round);
}

static struct gd_gemm_piece cut_b(const struct job *job, const struct block *block,
                                  const struct round *round) {
  return cut_piece(job, block->b, job->g->ldb, job->g->trans_b, block->col_at, block->cols, round);
}

/*
 * Whether tiles read A itself instead of a packed copy. That pays if the copy would serve few
 * columns, or if mr rows of A spread over the sets of L1 (which repeat every 4 KiB) nearly as well
 * as a copy.
 */
static bool read_in_place(const struct job *job, const struct block *block,
                          const struct gd_gemm_piece *piece) {
  const struct gd_gemm_ops *ops = job->ops;
  const int64_t row_bytes = piece->ld * gd_dtype_bytes(job->g->dtype_a);
  bool same_units = piece->unit == GD_GEMM_UNIT_F32 || piece->unit == GD_GEMM_UNIT_BF16_PAIR;
  bool whole_units = piece->k == piece->depth * ops->unit_k;
  bool few_columns = block->cols <= 4 * ops->nr;
  bool spread = (row_bytes + 512) % 4096 >= 1024;
  return ops->in_place && piece->k_contiguous && same_units && whole_units &&
         (few_columns || spread);
}

static void run_block(const struct job *job, const struct block *block, struct scratch *scratch) {
  const struct gd_gemm *g = job->g;
  const struct gd_gemm_ops *ops = job->ops;
  const int64_t mr = ops->mr, nr = ops->nr, rounds = job->cut.rounds;
  const int64_t row_bytes = g->lda * gd_dtype_bytes(g->dtype_a);
  const int64_t c_bytes = gd_dtype_bytes(g->dtype_c);

  for (int64_t r = 0; r < rounds; r++) {
    const bool last = r == rounds - 1;
    const struct round round = get_round(job, r);
    const int64_t a_panel_bytes = ops->a_step * round.depth * 4;
    const int64_t b_panel_bytes = nr * round.depth * 4;
    struct gd_gemm_piece piece = cut_b(job, block, &round);
    ops->pack_b(&piece, scratch->b);
    float *sums = rounds == 1 ? scratch->tile_sums : scratch->sums;

    for (int64_t run_at = 0; run_at < block->rows; run_at += job->cut.run_rows) {
      piece = cut_a(job, block, run_at, &round);
      const char *in_place = piece.data;
      const int64_t run = piece.width;
      const int64_t packed_from = read_in_place(job, block, &piece) ? run / mr * mr : 0;
      if (packed_from < run) {
        piece = cut_a(job, block, run_at + packed_from, &round);
        piece.width = run - packed_from;
        ops->pack_a(&piece, scratch->a);
      }
      for (int64_t i = 0; i < run; i += mr) {
        struct gd_gemm_rows a = {
            .data = in_place + i * row_bytes, .row_bytes = row_bytes, .unit_bytes = 4};
        if (i >= packed_from)
          a = (struct gd_gemm_rows){.data = scratch->a + (i - packed_from) / mr * a_panel_bytes,
                                    .row_bytes = 4,
                                    .unit_bytes = ops->a_step * 4};
        char *c = block->c + (run_at + i) * g->ldc * c_bytes;
        const int64_t rows = gd_least(mr, run - i);
        for (int64_t j = 0; j < block->cols; j += nr) {
          const int64_t cols = gd_least(nr, block->cols - j);
          ops->tile(round.depth, &a, scratch->b + j / nr * b_panel_bytes, sums, r > 0, rows, cols);
          if (last)
            ops->store(&job->out, sums, rows, cols, block->bias ? block->bias + j : NULL,
                       c + j * c_bytes);
          if (rounds > 1)
            sums += mr * nr;
        }
      }
    }
  }
}

static void run_task(const struct job *job, int64_t task, struct scratch *scratch) {
  const struct gd_gemm *g = job->g;
  const struct blocking *cut = &job->cut;
  const int64_t item = task / (cut->m_blocks * cut->n_blocks);
  const int64_t i = task % (cut->m_blocks * cut->n_blocks);
  struct block block = {
      .a = job->a + item * g->stride_a * gd_dtype_bytes(g->dtype_a),
      .b = job->b + item * g->stride_b * gd_dtype_bytes(g->dtype_b),
      .row_at = cut->mb * (cut->rows_first ? i % cut->m_blocks : i / cut->n_blocks),
      .col_at = cut->nb * (cut->rows_first ? i / cut->m_blocks : i % cut->n_blocks),
  };
  block.rows = gd_least(cut->mb, g->m - block.row_at);
  block.cols = gd_least(cut->nb, g->n - block.col_at);
  block.c = job->c + (item * g->stride_c + block.row_at * g->ldc + block.col_at) *
                         gd_dtype_bytes(g->dtype_c);
  block.bias = job->bias ? job->bias + block.col_at : NULL;
  run_block(job, &block, scratch);
}

static const struct gd_gemm_ops *choose_ops(enum gd_dtype dtype, enum gd_isa isa) {
#if defined(__x86_64__)
  if (dtype == GD_DTYPE_BF16 && isa == GD_ISA_AMX)
    return &gd_gemm_ops_amx;
  if (dtype == GD_DTYPE_BF16 && isa == GD_ISA_AVX512_BF16)
    return &gd_gemm_ops_avx512_bf16;
  if (isa >= GD_ISA_AVX512)
    return &gd_gemm_ops_avx512;
  if (isa == GD_ISA_AVX2)
    return &gd_gemm_ops_avx2;
#endif
  (void)dtype, (void)isa;
  return &gd_gemm_ops_plain;
}

static enum gd_gemm_unit choose_unit(enum gd_dtype dtype, const struct gd_gemm_ops *ops) {
  if (dtype == GD_DTYPE_F16)
    return GD_GEMM_UNIT_F16;
  if (dtype == GD_DTYPE_BF16)
    return ops->unit_k == 2 ? GD_GEMM_UNIT_BF16_PAIR : GD_GEMM_UNIT_BF16;
  GD_ASSERT(dtype == GD_DTYPE_F32);
  return GD_GEMM_UNIT_F32;
}

const struct gd_gemm_ops *gd_gemm_choose(enum gd_dtype dtype, enum gd_isa isa,
                                         enum gd_gemm_unit *unit) {
  const struct gd_gemm_ops *ops = choose_ops(dtype, isa);
  *unit = choose_unit(dtype, ops);
  return ops;
}

int64_t gd_gemm_tile_rows(enum gd_dtype dtype) {
  return choose_ops(dtype, gd_isa_detect())->mr;
}

int64_t gd_gemm_workspace_bytes(int threads) {
  GD_ASSERT(threads > 0);
  return (int64_t)threads * GD_GEMM_THREAD_BYTES;
}

void gd_gemm_run_isa(const struct gd_gemm *g, const void *a, const void *b, const float *bias,
                     void *c, void *workspace, int threads, enum gd_isa isa) {
  GD_ASSERT(g->dtype_a == g->dtype_b && g->dtype_c != GD_DTYPE_I32);
  GD_ASSERT(threads > 0 && isa <= gd_isa_detect() && (uintptr_t)workspace % 64 == 0);
  if (g->m <= 0 || g->n <= 0 || g->batch <= 0)
    return;
  /* Waking a thread costs microseconds: each one gets at least some 100,000 multiply-adds. */
  const double least_work = 131072;
  double work = (double)g->m * (double)g->n * (double)(g->k + 16) * (double)g->batch;
  if (work < least_work * threads)
    threads = 1 + (int)(work / least_work);

  const struct gd_gemm_ops *ops = choose_ops(g->dtype_a, isa);
  struct job job = {
      .g = g,
      .ops = ops,
      .a = a,
      .b = b,
      .c = c,
      .bias = bias,
      .unit = choose_unit(g->dtype_a, ops),
      .out = {.dtype = g->dtype_c, .ld = g->ldc, .alpha = g->alpha, .accumulate = g->accumulate},
      .cut = choose_blocking(g, ops, threads)};
  struct scratch *scratch = workspace;
  int64_t tasks = g->batch * job.cut.m_blocks * job.cut.n_blocks;
  if (tasks < threads)
    threads = (int)tasks;

#pragma omp parallel num_threads(threads)
  {
    if (ops->begin)
      ops->begin();
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t task = 0; task < tasks; task++)
      run_task(&job, task, &scratch[omp_get_thread_num()]);
    if (ops->end)
      ops->end();
  }
}

void gd_gemm_run(const struct gd_gemm *g, const void *a, const void *b, const float *bias, void *c,
                 void *workspace, int threads) {
  gd_gemm_run_isa(g, a, b, bias, c, workspace, threads, gd_isa_detect());
}
