/*
 * Speed of the cpu backend's kernels other than the GEMM, on the shapes of pythia-160m,
 * stand-alone.
 *
 *   bench_ops [--dtype bf16|f16|f32] [--threads N] [--batch N] [--seq N] [--filter TEXT]
 *
 * The table: op, milliseconds (median and best of several runs after a warm-up), GB/s of the best
 * run over the bytes that must move at least once, and the same of memcpy on as many threads for as
 * many bytes, which is the bound of a kernel that only streams. The best run is the one that other
 * programs disturbed least. Small tensors stay in the last-level cache between runs, for both.
 * Before a case is timed it is compared with the ref backend on a short sequence; a row says
 * "WRONG" where they differ.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/kernel.h"
#include "base/clock.h"
#include "ir/graph.h"
#include "ir/shape.h"

enum { MAX_IN = 8, MAX_RANK = 5, CHECK_SEQ = 33, VOCABULARY = 50304 };

/* Dims that are options, and the dtype that is one. */
enum { BATCH = -1, SEQ = -2, CHUNKS = -3 }; /* CHUNKS: of a scan over SEQ steps */
#define HALF GD_DTYPE_COUNT
#define F32  GD_DTYPE_F32
#define I32  GD_DTYPE_I32

struct input {
  enum gd_dtype dtype;
  uint32_t rank;
  int64_t dims[MAX_RANK];
};

struct op_case {
  const char *name;
  enum gd_op_kind kind;
  union gd_attr attr;
  int in_place; /* 1 + the input whose memory output 0 takes; 0: its own */
  uint32_t n_in;
  struct input in[MAX_IN];
};

/* clang-format off */
#define WIDTH_768  3, {BATCH, SEQ, 768}
#define WIDTH_3072 3, {BATCH, SEQ, 3072}
#define HEADS      4, {BATCH, 12, SEQ, 64}
#define SCORES     4, {BATCH, 12, SEQ, SEQ}
#define LOGITS     3, {BATCH, SEQ, VOCABULARY}
#define TOKENS     2, {BATCH, SEQ}
#define ONE        1, {1}
#define TABLE      2, {VOCABULARY, 768}
/* Those of mamba-130m. */
#define CHANNELS 3, {BATCH, SEQ, 1536}
#define SELECTED 3, {BATCH, SEQ, 16}
#define STATES   4, {BATCH, SEQ, 1536, 16}
#define SCAN     {HALF, CHANNELS}, {F32, CHANNELS}, {F32, 2, {1536, 16}}, {HALF, SELECTED}, \
                 {HALF, SELECTED}, {F32, 1, {1536}}

static const struct op_case cases[] = {
    {"concat x3", GD_OP_concat, {.none = {0}}, 0, 3, {{HALF, HEADS}, {HALF, HEADS}, {HALF, HEADS}}},
    {"transpose BTN3D-3BNTD", GD_OP_transpose, {.transpose = {{3, 0, 2, 1, 4}}}, 0, 1,
     {{HALF, 5, {BATCH, SEQ, 12, 3, 64}}}},
    {"transpose 3BNTD-BTN3D", GD_OP_transpose, {.transpose = {{1, 3, 2, 0, 4}}}, 0, 1,
     {{HALF, 5, {3, BATCH, 12, SEQ, 64}}}},
    {"transpose BNTD-BTND", GD_OP_transpose, {.transpose = {{0, 2, 1, 3}}}, 0, 1, {{HALF, HEADS}}},
    {"transpose 2-D", GD_OP_transpose, {.transpose = {{1, 0}}}, 0, 1, {{HALF, 2, {SEQ, 3072}}}},
    {"slice half", GD_OP_slice, {.slice = {2, 0, 1536}}, 0, 1, {{HALF, WIDTH_3072}}},
    {"slice 16 of 80", GD_OP_slice, {.slice = {2, 48, 16}}, 0, 1,
     {{HALF, 3, {BATCH, SEQ, 80}}}},
    {"pad half", GD_OP_pad, {.slice = {2, 1536, 3072}}, 0, 1, {{HALF, 3, {BATCH, SEQ, 1536}}}},
    {"cast f32-half", GD_OP_cast, {.cast = {HALF}}, 0, 1, {{F32, WIDTH_3072}}},
    {"positions", GD_OP_positions, {.positions = {1}}, 0, 1, {{I32, 2, {768, SEQ}}}},
    {"embed", GD_OP_embed, {.none = {0}}, 0, 2, {{HALF, TABLE}, {I32, TOKENS}}},
    {"add", GD_OP_add, {.none = {0}}, 0, 2, {{HALF, WIDTH_768}, {HALF, WIDTH_768}}},
    {"add bias", GD_OP_add, {.none = {0}}, 1, 2, {{HALF, WIDTH_3072}, {F32, 1, {3072}}}},
    {"mul", GD_OP_mul, {.none = {0}}, 0, 2, {{HALF, WIDTH_3072}, {HALF, WIDTH_3072}}},
    {"mul weight", GD_OP_mul, {.none = {0}}, 1, 2, {{HALF, WIDTH_768}, {F32, 1, {768}}}},
    {"dropout", GD_OP_dropout, {.dropout = {0.1f, 3, false}}, 0, 2,
     {{HALF, WIDTH_3072}, {I32, 1, {3}}}},
    {"dropout in place", GD_OP_dropout, {.dropout = {0.1f, 3, false}}, 1, 2,
     {{HALF, WIDTH_3072}, {I32, 1, {3}}}},
    {"rmsnorm", GD_OP_rmsnorm, {.norm = {1e-5f}}, 0, 2, {{HALF, WIDTH_768}, {F32, 1, {768}}}},
    {"rmsnorm_grad", GD_OP_rmsnorm_grad, {.none = {0}}, 0, 4,
     {{HALF, WIDTH_768}, {HALF, WIDTH_768}, {F32, 1, {768}}, {F32, TOKENS}}},
    {"layernorm", GD_OP_layernorm, {.norm = {1e-5f}}, 0, 3,
     {{HALF, WIDTH_768}, {F32, 1, {768}}, {F32, 1, {768}}}},
    {"layernorm_grad", GD_OP_layernorm_grad, {.norm_grad = {true}}, 0, 5,
     {{HALF, WIDTH_768}, {HALF, WIDTH_768}, {F32, 1, {768}}, {F32, TOKENS}, {F32, TOKENS}}},
    {"rope", GD_OP_rope, {.rope = {16, false}}, 0, 2, {{HALF, HEADS}, {F32, 2, {SEQ, 16}}}},
    {"rope in place", GD_OP_rope, {.rope = {16, false}}, 1, 2,
     {{HALF, HEADS}, {F32, 2, {SEQ, 16}}}},
    {"split_heads BTN3D rotary", GD_OP_split_heads,
     {.heads = {12, 3, true, 3, 16, false}}, 0, 2,
     {{HALF, 3, {BATCH, SEQ, 2304}}, {F32, 2, {SEQ, 16}}}},
    {"merge_heads BTN3D rotary", GD_OP_merge_heads,
     {.heads = {12, 3, true, 3, 16, true}}, 0, 4,
     {{HALF, HEADS}, {HALF, HEADS}, {HALF, HEADS}, {F32, 2, {SEQ, 16}}}},
    {"merge_heads BTND", GD_OP_merge_heads, {.heads = {12, 1, false, 0, 0, false}}, 0, 1,
     {{HALF, HEADS}}},
    {"softmax", GD_OP_softmax, {.softmax = {false}}, 0, 1, {{HALF, SCORES}}},
    {"softmax causal", GD_OP_softmax, {.softmax = {true}}, 0, 1, {{HALF, SCORES}}},
    {"softmax causal in place", GD_OP_softmax, {.softmax = {true}}, 1, 1, {{HALF, SCORES}}},
    {"softmax_grad causal", GD_OP_softmax_grad, {.softmax = {true}}, 0, 2,
     {{HALF, SCORES}, {HALF, SCORES}}},
    {"softmax_grad in place", GD_OP_softmax_grad, {.softmax = {true}}, 2, 2,
     {{HALF, SCORES}, {HALF, SCORES}}},
    {"gelu", GD_OP_activate, {.activate = {GD_ACTIVATION_GELU}}, 0, 1, {{HALF, WIDTH_3072}}},
    {"gelu_tanh", GD_OP_activate, {.activate = {GD_ACTIVATION_GELU_TANH}}, 0, 1,
     {{HALF, WIDTH_3072}}},
    {"relu", GD_OP_activate, {.activate = {GD_ACTIVATION_RELU}}, 0, 1, {{HALF, WIDTH_3072}}},
    {"silu", GD_OP_activate, {.activate = {GD_ACTIVATION_SILU}}, 0, 1, {{HALF, WIDTH_3072}}},
    {"softplus", GD_OP_activate, {.activate = {GD_ACTIVATION_SOFTPLUS}}, 0, 1,
     {{HALF, WIDTH_3072}}},
    {"quick_gelu", GD_OP_activate, {.activate = {GD_ACTIVATION_QUICK_GELU}}, 0, 1,
     {{HALF, WIDTH_3072}}},
    {"tanh", GD_OP_activate, {.activate = {GD_ACTIVATION_TANH}}, 0, 1, {{HALF, WIDTH_3072}}},
    {"sigmoid", GD_OP_activate, {.activate = {GD_ACTIVATION_SIGMOID}}, 0, 1, {{HALF, WIDTH_3072}}},
    {"tanh_grad", GD_OP_activate_grad, {.activate = {GD_ACTIVATION_TANH}}, 0, 2,
     {{HALF, WIDTH_3072}, {HALF, WIDTH_3072}}},
    {"softplus_grad", GD_OP_activate_grad, {.activate = {GD_ACTIVATION_SOFTPLUS}}, 0, 2,
     {{HALF, WIDTH_3072}, {HALF, WIDTH_3072}}},
    {"pool", GD_OP_pool, {.none = {0}}, 0, 1, {{HALF, 3, {32, SEQ, 768}}}},
    {"pool_grad", GD_OP_pool_grad, {.rows = {197}}, 0, 1, {{HALF, 2, {128, 768}}}},
    {"gelu_grad", GD_OP_activate_grad, {.activate = {GD_ACTIVATION_GELU}}, 0, 2,
     {{HALF, WIDTH_3072}, {HALF, WIDTH_3072}}},
    {"xent", GD_OP_xent, {.xent = {.ignore = -100, .shift = true}}, 0, 3,
     {{HALF, LOGITS}, {I32, TOKENS}, {F32, ONE}}},
    {"xent_grad", GD_OP_xent_grad, {.xent = {.ignore = -100, .shift = true}}, 0, 5,
     {{HALF, LOGITS}, {F32, TOKENS}, {I32, TOKENS}, {F32, ONE}, {F32, 1, {2}}}},
    {"xent_grad in place", GD_OP_xent_grad, {.xent = {.ignore = -100, .shift = true}}, 1, 5,
     {{HALF, LOGITS}, {F32, TOKENS}, {I32, TOKENS}, {F32, ONE}, {F32, 1, {2}}}},
    {"embed_grad", GD_OP_embed_grad, {.rows = {VOCABULARY}}, 0, 2,
     {{HALF, WIDTH_768}, {I32, TOKENS}}},
    {"sum_rows 768", GD_OP_sum_rows, {.rows = {1}}, 0, 1, {{HALF, WIDTH_768}}},
    {"sum_rows 3072", GD_OP_sum_rows, {.rows = {1}}, 0, 1, {{HALF, WIDTH_3072}}},
    {"accumulate", GD_OP_accumulate, {.none = {0}}, 0, 2,
     {{F32, 2, {3072, 768}}, {F32, 2, {3072, 768}}}},
    {"sum_squares", GD_OP_sum_squares, {.none = {0}}, 0, 1, {{F32, TABLE}}},
    {"adam", GD_OP_adam, {.adam = {0.9f, 0.95f, 1e-8f, 0.1f, true}}, 0, 8,
     {{F32, TABLE}, {F32, TABLE}, {F32, TABLE}, {F32, TABLE}, {F32, ONE}, {F32, ONE}, {F32, ONE},
      {HALF, TABLE}}},
    {"conv1d", GD_OP_conv1d, {.none = {0}}, 0, 3,
     {{HALF, CHANNELS}, {F32, 3, {1536, 1, 4}}, {F32, 1, {1536}}}},
    {"conv1d_dx", GD_OP_conv1d_dx, {.none = {0}}, 0, 2, {{HALF, CHANNELS}, {F32, 3, {1536, 1, 4}}}},
    {"conv1d_dw", GD_OP_conv1d_dw, {.rows = {4}}, 0, 2, {{HALF, CHANNELS}, {HALF, CHANNELS}}},
    {"scan", GD_OP_scan, {.none = {0}}, 0, 6, {SCAN}},
    {"scan_grad", GD_OP_scan_grad, {.none = {0}}, 0, 8,
     {{HALF, CHANNELS}, SCAN, {F32, 4, {BATCH, CHUNKS, 1536, 16}}}},
    {"decay", GD_OP_decay, {.none = {0}}, 0, 2, {{F32, CHANNELS}, {F32, 2, {1536, 16}}}},
    {"decay_grad", GD_OP_decay_grad, {.none = {0}}, 0, 4,
     {{F32, STATES}, {F32, STATES}, {F32, CHANNELS}, {F32, 2, {1536, 16}}}},
    {"outer", GD_OP_outer, {.none = {0}}, 0, 2, {{F32, CHANNELS}, {HALF, SELECTED}}},
    {"recur", GD_OP_recur, {.none = {0}}, 0, 2, {{F32, STATES}, {F32, STATES}}},
    {"recur in place", GD_OP_recur, {.none = {0}}, 2, 2, {{F32, STATES}, {F32, STATES}}},
    {"recur_grad in place", GD_OP_recur_grad, {.none = {0}}, 1, 3,
     {{F32, STATES}, {F32, STATES}, {F32, STATES}}},
    {"contract_states", GD_OP_contract_states, {.contract = {F32}}, 0, 2,
     {{F32, STATES}, {HALF, SELECTED}}},
    {"contract_channels", GD_OP_contract_channels, {.contract = {GD_DTYPE_BF16}}, 0, 2,
     {{F32, STATES}, {F32, CHANNELS}}},
    {"fill", GD_OP_fill, {.fill = {0}}, 0, 1, {{F32, TABLE}}},
    {"copy f32-half", GD_OP_copy, {.none = {0}}, 0, 2, {{HALF, TABLE}, {F32, TABLE}}},
};
/* clang-format on */

struct options {
  enum gd_dtype dtype;
  int threads;
  int64_t batch, seq;
  const char *filter;
};

/* --- one op with its memory ----------------------------------------------------------------- */

struct bound_op {
  struct gd_graph graph;
  const struct gd_op *op;
  struct gd_view views[MAX_IN + GD_MAX_OUTPUTS];
  void *blocks[MAX_IN + GD_MAX_OUTPUTS]; /* owned; NULL where a view borrows */
};

static void *allocate(int64_t bytes) {
  void *block = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
  if (!block) {
    fprintf(stderr, "bench_ops: %lld bytes do not fit in memory\n", (long long)bytes);
    exit(3);
  }
  return block;
}

/* Floats in [-2, 2), or in [0, 2) where a negative one makes no sense; ids below `below`. */
static void fill(const struct gd_view *view, uint32_t seed, bool positive, int32_t below) {
#pragma omp parallel for
  for (int64_t i = 0; i < view->elements; i++) {
    uint32_t x = (uint32_t)i * 2654435761u + seed * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    float value = (float)((int32_t)(x >> 8) - (1 << 23)) * 0x1p-22f;
    if (view->dtype == GD_DTYPE_I32)
      ((int32_t *)view->data)[i] = (int32_t)(x % (uint32_t)below);
    else
      gd_dtype_store(view->dtype, view->data, i, positive ? fabsf(value) : value);
  }
}

static struct gd_view view_of(const struct gd_graph *graph, gd_tensor_id id, void *data) {
  const struct gd_tensor *tensor = &graph->tensors[id];
  return (struct gd_view){data, tensor->dtype, tensor->rank, tensor->dims,
                          gd_tensor_elements(graph, id)};
}

static void bound_op_init(struct bound_op *b, const struct op_case *c, const struct options *o,
                          int64_t seq) {
  *b = (struct bound_op){.op = NULL};
  gd_graph_init(&b->graph);
  gd_tensor_id in[MAX_IN];
  for (uint32_t i = 0; i < c->n_in; i++) {
    int64_t dims[MAX_RANK];
    for (uint32_t d = 0; d < c->in[i].rank; d++) {
      int64_t dim = c->in[i].dims[d];
      dims[d] = dim == BATCH    ? o->batch
                : dim == SEQ    ? seq
                : dim == CHUNKS ? (seq + GD_SCAN_CHUNK - 1) / GD_SCAN_CHUNK
                                : dim;
    }
    enum gd_dtype dtype = c->in[i].dtype == HALF ? o->dtype : c->in[i].dtype;
    in[i] = gd_graph_leaf(&b->graph, GD_ROLE_INPUT, "x", dtype, c->in[i].rank, dims);
  }
  union gd_attr attr = c->attr;
  if (c->kind == GD_OP_cast && attr.cast.dtype == HALF)
    attr.cast.dtype = o->dtype;
  gd_graph_op(&b->graph, c->kind, &attr, c->n_in, in);
  struct gd_error err = {0};
  if (gd_graph_check(&b->graph, &err) != GD_OK) {
    fprintf(stderr, "bench_ops: %s: %s\n", c->name, err.text);
    exit(4);
  }
  b->op = &b->graph.ops[0];
  for (uint32_t i = 0; i < c->n_in; i++) {
    b->blocks[i] = allocate(gd_tensor_bytes(&b->graph, in[i]));
    b->views[i] = view_of(&b->graph, in[i], b->blocks[i]);
    bool positive = (c->kind == GD_OP_adam && i >= 3) || b->views[i].elements <= 2 ||
                    (c->kind == GD_OP_layernorm_grad && i == 4) ||
                    (c->kind == GD_OP_scan && i == 1) || (c->kind == GD_OP_scan_grad && i == 2) ||
                    c->kind == GD_OP_decay;
    fill(&b->views[i], i + 1, positive, VOCABULARY);
  }
  if (c->kind == GD_OP_xent_grad) /* about what the logits above have */
    for (int64_t i = 0; i < b->views[1].elements; i++)
      ((float *)b->views[1].data)[i] = 11.4f;
  for (uint32_t i = 0; i < b->op->n_out; i++) {
    gd_tensor_id out = b->op->out[i];
    void *data = i == 0 && c->in_place ? b->views[c->in_place - 1].data : NULL;
    for (uint32_t j = 0; j < c->n_in; j++)
      if (b->graph.tensors[out].alias_of == in[j])
        data = b->views[j].data;
    if (!data)
      data = b->blocks[c->n_in + i] = allocate(gd_tensor_bytes(&b->graph, out));
    b->views[c->n_in + i] = view_of(&b->graph, out, data);
    if (data == b->blocks[c->n_in + i])
      memset(data, 0, (size_t)gd_tensor_bytes(&b->graph, out));
  }
}

static void bound_op_deinit(struct bound_op *b) {
  for (size_t i = 0; i < sizeof b->blocks / sizeof *b->blocks; i++)
    free(b->blocks[i]);
  gd_graph_deinit(&b->graph);
}

static void bound_op_run(const struct bound_op *b, const gd_kernel *kernels, void *workspace,
                         int64_t workspace_bytes, int threads) {
  kernels[b->op->kind](&(struct gd_kernel_args){.attr = &b->op->attr,
                                                .n_in = b->op->n_in,
                                                .n_out = b->op->n_out,
                                                .in = b->views,
                                                .out = b->views + b->op->n_in,
                                                .workspace = workspace,
                                                .workspace_bytes = workspace_bytes,
                                                .threads = threads});
}

static double view_bytes(const struct gd_view *view) {
  return (double)view->elements * (double)gd_dtype_bytes(view->dtype);
}

/* What must be read and written at least once. */
static double bytes_moved(const struct op_case *c, const struct bound_op *b) {
  double bytes = 0;
  for (uint32_t i = 0; i < b->op->n_in; i++) {
    bool written_only = c->kind == GD_OP_fill || (c->kind == GD_OP_copy && i == 0) ||
                        (c->kind == GD_OP_adam && i == 7);
    double share = 1;
    if (c->kind == GD_OP_embed && i == 0) /* only the rows asked for */
      share = (double)b->views[1].elements / VOCABULARY;
    if ((c->kind == GD_OP_softmax || c->kind == GD_OP_softmax_grad) && c->attr.softmax.causal)
      share = 0.5;
    bytes += written_only ? 0 : share * view_bytes(&b->views[i]);
  }
  for (uint32_t i = 0; i < b->op->n_out; i++)
    bytes += view_bytes(&b->views[b->op->n_in + i]);
  return bytes;
}

/* --- check and timing ----------------------------------------------------------------------- */

/* Root mean square of the difference relative to that of ref's outputs, the worst of them. */
static bool agrees_with_ref(const struct op_case *c, const struct options *o, void *workspace,
                            int64_t workspace_bytes) {
  struct bound_op cpu, ref;
  bound_op_init(&cpu, c, o, CHECK_SEQ);
  bound_op_init(&ref, c, o, CHECK_SEQ);
  bound_op_run(&cpu, gd_cpu_kernels, workspace, workspace_bytes, o->threads);
  bound_op_run(&ref, gd_ref_kernels, NULL, 0, 1);
  bool good = true;
  for (uint32_t i = 0; i < cpu.op->n_out; i++) {
    const struct gd_view *got = &cpu.views[c->n_in + i], *want = &ref.views[c->n_in + i];
    double squares = 0, errors = 0;
    for (int64_t j = 0; j < got->elements; j++) {
      double w = (double)gd_dtype_load(want->dtype, want->data, j);
      double d = (double)gd_dtype_load(got->dtype, got->data, j) - w;
      squares += w * w;
      errors += d * d;
    }
    double bound = got->dtype == GD_DTYPE_F32 ? 1e-5 : 1e-3;
    good = good && errors <= bound * bound * squares; /* false for NaN */
  }
  bound_op_deinit(&cpu);
  bound_op_deinit(&ref);
  return good;
}

static int compare_times(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

enum { MIN_RUNS = 5, MAX_RUNS = 200 };
static const int64_t case_ns = 300000000;

struct times {
  double best_ns, median_ns;
};

/* Times what `run` does: at least MIN_RUNS times, then as often as fits in case_ns. */
static struct times measure(void (*run)(void *), void *context) {
  int64_t times[MAX_RUNS], total = 0;
  int count = 0;
  run(context);
  while (count < MAX_RUNS && (count < MIN_RUNS || total < case_ns)) {
    int64_t begin = gd_clock_ns();
    run(context);
    times[count] = gd_clock_ns() - begin;
    total += times[count++];
  }
  qsort(times, (size_t)count, sizeof *times, compare_times);
  return (struct times){(double)times[0], (double)times[count / 2]};
}

struct timed {
  const struct bound_op *op;
  void *workspace;
  int64_t workspace_bytes;
  int threads;
};

static void run_op(void *context) {
  const struct timed *t = context;
  bound_op_run(t->op, gd_cpu_kernels, t->workspace, t->workspace_bytes, t->threads);
}

struct copied {
  char *to;
  const char *from;
  int64_t bytes;
  int threads;
};

static void run_copy(void *context) {
  const struct copied *c = context;
#pragma omp parallel for num_threads(c->threads)
  for (int part = 0; part < c->threads; part++) {
    int64_t begin = c->bytes * part / c->threads, end = c->bytes * (part + 1) / c->threads;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
  }
}

/* GB/s of memcpy that reads and writes so many bytes together. */
static double copy_speed(double bytes, int threads) {
  int64_t half = (int64_t)(bytes / 2) + 1;
  char *to = allocate(half), *from = allocate(half);
  memset(from, 1, (size_t)half);
  memset(to, 0, (size_t)half);
  struct times times = measure(run_copy, &(struct copied){to, from, half, threads});
  free(to);
  free(from);
  return bytes / times.best_ns;
}

static void run_case(const struct op_case *c, const struct options *o, void *workspace,
                     int64_t workspace_bytes) {
  bool good = agrees_with_ref(c, o, workspace, workspace_bytes);
  struct bound_op op;
  bound_op_init(&op, c, o, o->seq);
  double bytes = bytes_moved(c, &op);
  struct times times =
      measure(run_op, &(struct timed){&op, workspace, workspace_bytes, o->threads});
  bound_op_deinit(&op);
  double copy = copy_speed(bytes, o->threads), speed = bytes / times.best_ns;
  printf("%-24s %5s %8.1f %9.3f %9.3f %7.1f %7.1f %5.0f%%%s\n", c->name, gd_dtype_name(o->dtype),
         bytes * 1e-6, times.median_ns * 1e-6, times.best_ns * 1e-6, speed, copy,
         100 * speed / copy, good ? "" : "  WRONG");
  fflush(stdout);
}

static bool parse(int argc, char **argv, struct options *o) {
  for (int i = 1; i < argc; i += 2) {
    const char *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (!value)
      return false;
    if (strcmp(argv[i], "--dtype") == 0) {
      if (!gd_dtype_parse(value, &o->dtype) || o->dtype == GD_DTYPE_I32)
        return false;
    } else if (strcmp(argv[i], "--threads") == 0) {
      o->threads = (int)strtol(value, NULL, 10);
    } else if (strcmp(argv[i], "--batch") == 0) {
      o->batch = strtol(value, NULL, 10);
    } else if (strcmp(argv[i], "--seq") == 0) {
      o->seq = strtol(value, NULL, 10);
    } else if (strcmp(argv[i], "--filter") == 0) {
      o->filter = value;
    } else {
      return false;
    }
  }
  return o->threads > 0 && o->batch > 0 && o->seq > 0;
}

int main(int argc, char **argv) {
  struct options o = {GD_DTYPE_BF16, omp_get_max_threads(), 1, 2049, ""};
  if (!parse(argc, argv, &o)) {
    fprintf(stderr, "usage: bench_ops [--dtype bf16|f16|f32] [--threads N] [--batch N] [--seq N] "
                    "[--filter TEXT]\n");
    return 2;
  }
  int64_t workspace_bytes = gd_cpu_workspace_bytes(o.threads, VOCABULARY);
  void *workspace = allocate(workspace_bytes);
  printf("%d threads, batch %lld, sequence %lld\n", o.threads, (long long)o.batch,
         (long long)o.seq);
  printf("%-24s %5s %8s %9s %9s %7s %7s %6s\n", "op", "dtype", "MB", "median ms", "best ms", "GB/s",
         "memcpy", "share");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (strstr(cases[i].name, o.filter))
      run_case(&cases[i], &o, workspace, workspace_bytes);
  free(workspace);
  return 0;
}
