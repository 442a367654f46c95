/*
 * The CUDA dialect: the snippets of emit.c in CUDA C++, and how rows are shared out to threads. The
 * functions that the text calls are in backend/cuda/kernels/fused.cu; who launches it, in
 * backend/cuda/pointwise/op_fused.c.
 *
 * A thread takes its columns of every full input into registers before the first sweep, 16 bytes an
 * access, as they are in memory (16-bit elements stay packed); sweeps and row buffers are registers
 * too, since all of it is unrolled. So each input comes from memory once, and an output may lie
 * where any full input was. Where registers do not suffice the compiler puts them into local
 * memory: slow, and still right.
 *
 * Kernels that both reduce rows and sum over them (gradients of norms) have few blocks, each with a
 * long way to go, whose threads wait for each other once a row. They take their rows from shared
 * memory, where the next ones arrive meanwhile, and keep the weights in registers.
 */
#include "codegen/codegen_int.h"

/* --- snippets ------------------------------------------------------------------------------- */

const struct gd_dialect gd_dialect_cuda = {
    .prelude = (const char *const[]){NULL},
    .chains = 1,
    .kernel_open = "typedef gd_layout<$0, $1, $2, $3, $4, $5, $6, $7, $8, $9> gd_l;\n"
                   "typedef gd_lanes<$0> gd_val;\n"
                   "typedef gd_lane_words<$0> gd_word;\n"
                   "extern \"C\" __global__ void __launch_bounds__($3, gd_l::BLOCKS)\n"
                   "gd_rows(const gd_fused_args args) {\n"
                   "  __shared__ float shared[gd_l::SHARED_FLOATS];\n"
                   "  __shared__ uint4 ring[gd_l::RING];\n"
                   "  const int lane = threadIdx.x % gd_l::TEAM, first = gd_l::first(lane);\n"
                   "  int parity = 0;\n",
    .input = "  const gd_~ *i$0 = (const gd_~ *)args.in[$0];\n",
    .output = "  gd_~ *o$0 = (gd_~ *)args.out[$0];\n",
    .buffer = "  gd_val b$0[gd_l::PER];\n",
    .sum_open = "  gd_val s$0[gd_l::PER];\n"
                "  gd_clear(s$0);\n",
    .sum_close = "  gd_write_sums<gd_l>(args.partials, $0, s$0, first, shared);\n",
    .row_open =
        "  for (int64_t group = blockIdx.x; group * gd_l::ROWS < args.rows; group += gridDim.x) {\n"
        "    const int64_t r = group * gd_l::ROWS + threadIdx.x / gd_l::TEAM, at = r * $0;\n"
        "    const bool live = gd_l::ROWS == 1 || r < args.rows;\n",
    .row_close = "    parity ^= 1;\n"
                 "  }\n",
    .load_row = "    gd_raw<gd_l::LANES * sizeof(gd_~)> x$0[gd_l::PER];\n"
                "    gd_read_row<gd_l>(x$0, i$0 + at, first, live);\n",
    .keep_row = "  gd_raw<gd_l::LANES * sizeof(gd_~)> x$0[gd_l::PER];\n"
                "  gd_read_row<gd_l>(x$0, i$0, first, true);\n",
    .keep_value = "  float n$0 = gd_of_row(i$1, (int64_t)blockIdx.x * gd_l::ROWS +\n"
                  "                        threadIdx.x / gd_l::TEAM, args.rows);\n",
    .ahead_open = "  const auto ahead = [&](int64_t group, int to) {\n"
                  "    const int64_t r = group * gd_l::ROWS + threadIdx.x / gd_l::TEAM;\n"
                  "    const bool live = r < args.rows;\n"
                  "    const int64_t at = live ? r * $0 : 0;\n",
    .ahead_row = "    gd_read_ahead<gd_l>(ring, to, $1, i$0, at, first, live);\n",
    .ahead_close = "    gd_commit_ahead();\n"
                   "  };\n"
                   "  for (int s = 0; s < gd_l::DEPTH - 1; s++)\n"
                   "    ahead(blockIdx.x + (int64_t)s * gridDim.x, s);\n"
                   "  int stage = 0;\n",
    .take_open = "    gd_wait_ahead<gd_l::DEPTH - 2>();\n",
    .take_row = "    gd_raw<gd_l::LANES * sizeof(gd_~)> x$0[gd_l::PER];\n"
                "    gd_take_row<gd_l, gd_~>(x$0, ring, stage, $1);\n",
    .take_close = "    ahead(group + (gd_l::DEPTH - 1) * (int64_t)gridDim.x,\n"
                  "          stage > 0 ? stage - 1 : gd_l::DEPTH - 1);\n"
                  "    stage = stage + 1 < gd_l::DEPTH ? stage + 1 : 0;\n",
    .take_value = "    const float v$0 = n$0;\n"
                  "    n$0 = gd_of_row(i$1, r + (int64_t)gridDim.x * gd_l::ROWS, args.rows);\n",
    .words = "    const gd_draws<gd_whole($3)> w$0(i$2, args.streams[$0], $3, at);\n",
    .sample_words = "    const gd_sample_draws<$3> w$0(i$2, args.streams[$0], at);\n",
    .reduce_open = {"    float a$0 = 0;\n", "    float a$0 = -GD_INFINITY;\n"},
    .sweep_open = "#pragma unroll gd_l::UNROLL\n"
                  "    for (int k = 0; k < gd_l::PER; k++) {\n",
    .chain_open = "      const int j = first + k * gd_l::STEP;\n"
                  "      const bool on = gd_l::on(j, live);\n",
    .chain_close = "",
    .load = "      const gd_val v$0 = gd_values<gd_~, gd_l::LANES>(x$1[k]);\n",
    .load_repeated = "      const gd_val v$0 = gd_values<gd_~, gd_l::LANES>(\n"
                     "          gd_read<gd_l::LANES>(i$1 + at_i$1 + j, on));\n",
    .load_buffer = "      const gd_val v$0 = b$1[k];\n",
    .load_word = "      const gd_word v$0 = gd_draw<gd_l::LANES>(w$1, j);\n",
    .element = "      const gd_val v$0 = ",
    .store = "      gd_write(o$0 + at + j, v$1, on);\n",
    .store_buffer = "      b$0[k] = v$1;\n",
    .reduce_step = {"      a$0 += on ? gd_sum(v$1) : 0.0f;\n",
                    "      a$0 = fmaxf(a$0, on ? gd_largest(v$1) : -GD_INFINITY);\n"},
    .reduce_join = {"", ""},
    .reduce_share = {"    gd_share<gd_l, gd_add>(a$0, shared, parity, $1);\n",
                     "    gd_share<gd_l, gd_greater>(a$0, shared, parity, $1);\n"},
    .reduce_wait = "    gd_wait<gd_l>();\n",
    .reduce_close =
        {"    const float v$0 = gd_total<gd_l, gd_add>(a$0, shared, parity, $1);\n",
         "    const float v$0 = gd_total<gd_l, gd_greater>(a$0, shared, parity, $1);\n"},
    .column_sum = "      gd_accumulate(s$0[k], v$2, on);\n",
    .row_load = "    const float v$0 = live ? gd_float(i$1[r]) : 0.0f;\n",
    .row_store = "    if (live && gd_l::leads(lane))\n"
                 "      o$0[r] = v$1;\n",
};

/* --- teams ---------------------------------------------------------------------------------- */

enum {
  WARP = 32,
  MOST_TEAM = 1024,
  MOST_PARTS = 65535,
  /* Registers for what a thread holds of its row; the rest of the 255 or so is for addresses and
     the arithmetic. About half as many leave room for 16 warps on a multiprocessor. */
  HELD_REGISTERS = 80,
  MOST_LANES_REGISTERS = 128, /* more than this for one value of each tensor: fewer lanes */
  MOST_ELEMENTS = 32,         /* of a tensor, a thread */
  MOST_UNROLLED = 16,         /* gd_layout::UNROLL of fused.cu */
  RING_BYTES = 32768,         /* of shared memory for rows ahead, a block */
  MOST_DEPTH = 3,             /* rows in it: 32 KiB or more are then in flight on an H200's
                                 multiprocessor */
};

enum { COMPUTED_BYTES = 12 }; /* of values in between, of an element of held_bytes */

/* Bytes of registers that one element of a row takes: inputs, buffers, sums, what is computed. */
static int held_bytes(const struct gd_lowered *l, bool *wide, struct gd_teams *t) {
  const struct gd_tensor *tensors = l->fusion->body.tensors;
  int bytes = 4 * (int)(l->n_buffers + l->n_sums) + COMPUTED_BYTES;
  *wide = false;
  for (uint32_t i = 0; i < l->n_values; i++) {
    const struct gd_value *v = &l->values[i];
    if (v->kind == GD_VALUE_LOAD && v->used && !v->repeat_rows) {
      t->full_bytes += (int)gd_dtype_bytes(tensors[v->input].dtype);
      *wide |= gd_dtype_bytes(tensors[v->input].dtype) > 2;
    }
  }
  for (uint32_t i = 0; i < l->fusion->n_out; i++)
    if (l->results[i].kind == GD_RESULT_FULL)
      *wide |= gd_dtype_bytes(tensors[l->fusion->out[i]].dtype) > 2;
  return bytes + t->full_bytes;
}

/*
 * Blocks that run on a multiprocessor at a time: what the compiler is told, and how many a kernel
 * with sums has. Addresses and the like take 12 to 20 registers besides those counted here, random
 * numbers 8.
 */
static int resident_blocks(const struct gd_lowered *l, const struct gd_teams *t, int bytes) {
  int elements = t->lanes * t->per, threads = 384; /* up to 168 registers each */
  int held = ((bytes - COMPUTED_BYTES) * elements + COMPUTED_BYTES * t->lanes) / 4;
  held += 8 * (int)l->n_dropouts;
  for (uint32_t i = 0; i < l->n_values; i++) /* weights: emit.c keeps them */
    if (t->depth > 1 && l->values[i].kind == GD_VALUE_LOAD && l->values[i].repeat_rows == 1)
      held += elements;
  if (l->n_sums && held <= 68)
    threads = held <= 44 ? 1024 : 768; /* 64, 80 */
  else if (l->n_sums && held <= 100)
    threads = held <= 84 ? 640 : 512; /* 96, 128 */
  return t->block < threads ? threads / t->block : 1;
}

static int rows_ahead(const struct gd_lowered *l, const struct gd_teams *t) {
  int64_t stage = (int64_t)t->full_bytes * t->lanes * t->per * t->block;
  if (l->n_sums == 0 || t->n_reductions == 0 || t->lanes < 4 || stage == 0)
    return 1;
  return RING_BYTES / stage < MOST_DEPTH ? (int)(RING_BYTES / stage) : MOST_DEPTH;
}

/* Threads of a row: as few as hold it; idle ones at its end count against a size. */
static void choose_team(int64_t chunks, int most_per, struct gd_teams *t) {
  double best = 0;
  if (chunks > (int64_t)MOST_TEAM * most_per) /* more than registers hold, or nearly */
    most_per = (int)((chunks + MOST_TEAM - 1) / MOST_TEAM);
  for (int size = 1; size <= MOST_TEAM && best < 0.875; size += size < WARP ? size : WARP) {
    int64_t per = (chunks + size - 1) / size;
    double busy = (double)chunks / (double)(per * size);
    if (per > most_per || busy <= best)
      continue;
    best = busy;
    t->team = size;
    t->per = (int)per;
  }
}

void gd_emit_teams(const struct gd_lowered *l, struct gd_teams *t) {
  enum { BLOCK = 128, SUMS_BLOCK = 256, CUT_BLOCK = 256 }; /* a block leaves one row of sums */
  const int64_t columns = l->fusion->columns;
  bool wide;
  *t = (struct gd_teams){.parts = 1};
  int bytes = held_bytes(l, &wide, t);
  t->lanes = wide ? 4 : 8;
  for (uint32_t i = 0; i < l->n_values; i++)
    t->n_reductions += (l->values[i].kind == GD_VALUE_SUM || l->values[i].kind == GD_VALUE_MAX) &&
                       l->values[i].used;
  while (t->lanes > 1 &&
         (columns % t->lanes || (t->lanes > 4 && t->lanes * bytes > 4 * MOST_LANES_REGISTERS)))
    t->lanes /= 2;
  int most_per = 4 * HELD_REGISTERS / (t->lanes * bytes);
  int most = MOST_ELEMENTS / t->lanes < MOST_UNROLLED ? MOST_ELEMENTS / t->lanes : MOST_UNROLLED;
  most_per = most_per < 1 ? 1 : most_per > most ? most : most_per;
  int64_t chunks = columns / t->lanes;
  if (t->n_reductions == 0 && chunks > CUT_BLOCK * most_per) {
    t->team = CUT_BLOCK;
    t->per = most_per;
    while ((chunks + CUT_BLOCK * t->per - 1) / (CUT_BLOCK * t->per) > MOST_PARTS)
      t->per *= 2;
    t->parts = (int)((chunks + CUT_BLOCK * t->per - 1) / (CUT_BLOCK * t->per));
  } else {
    choose_team(chunks, most_per, t);
  }
  int block = l->n_sums ? SUMS_BLOCK : t->team > WARP ? 1 : BLOCK;
  t->block = t->team > block ? t->team : block / t->team * t->team;
  t->depth = rows_ahead(l, t);
  t->resident = resident_blocks(l, t, bytes);
}
