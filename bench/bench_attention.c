/*
 * Speed of fused attention against the ops it replaces, forward and backward, on the shapes of some
 * models.
 *
 *   bench_attention [--dtype bf16|f16|f32] [--threads N] [--filter TEXT]
 *
 * The table: milliseconds of the unfused sequence (GEMM, softmax, dropout, GEMM, and their
 * gradients) and of the fused op, best of several runs taken in turn; the ratio of both; GFLOP/s of
 * the fused op over the GEMMs it executes (a causal mask leaves out half; the backward pass has
 * five GEMMs, the unfused one four). "WRONG" where the two differ by more than rounding does.
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

struct shape {
  const char *name;
  int64_t batch, heads, key_heads, steps, size;
  bool causal;
  double dropout;
};

static const struct shape shapes[] = {
    {"pythia-70m", 1, 8, 8, 2048, 64, true, 0},
    {"pythia-160m", 1, 12, 12, 2048, 64, true, 0},
    {"roberta-base", 4, 12, 12, 512, 64, false, 0.1},
    {"roberta-base, no dropout", 4, 12, 12, 512, 64, false, 0},
    {"gpt2", 2, 12, 12, 1024, 64, true, 0.1},
    {"vit-base", 8, 12, 12, 197, 64, false, 0},
    {"tinyllama", 1, 32, 4, 2048, 64, true, 0},
    {"pythia-1b", 1, 8, 8, 2048, 256, true, 0},
    {"one head", 1, 1, 1, 2048, 64, true, 0},
};

/* Forward and backward ops over q, k, v and dout, with their memory. */
struct program {
  struct gd_graph graph;
  void **storage;                /* by tensor; NULL where another one's is used */
  gd_tensor_id dout, results[4]; /* out, dq, dk, dv */
};

static void *allocate(int64_t bytes) {
  void *block = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
  if (!block) {
    fprintf(stderr, "bench_attention: %lld bytes do not fit in memory\n", (long long)bytes);
    exit(3);
  }
  memset(block, 0, (size_t)bytes);
  return block;
}

static gd_tensor_id gemm(struct gd_graph *g, gd_tensor_id a, gd_tensor_id b, bool trans_a,
                         bool trans_b, float alpha) {
  return gd_matmul(g, a, b, GD_NONE,
                   (struct gd_attr_matmul){trans_a, trans_b, alpha, GD_DTYPE_COUNT, false});
}

static gd_tensor_id reshape(struct gd_graph *g, gd_tensor_id x, int64_t b, int64_t n, int64_t r,
                            int64_t c) {
  return gd_reshape(g, x, 4, (int64_t[]){b, n, r, c});
}

/* What gd_blocks_attention builds and autodiff makes of it. */
static void add_unfused(struct program *p, const struct shape *s, const gd_tensor_id qkv[3],
                        gd_tensor_id seed) {
  struct gd_graph *g = &p->graph;
  int64_t b = s->batch, m = s->key_heads, t = s->steps, rows = s->heads / m * t, d = s->size;
  float scale = 1 / sqrtf((float)d);
  union gd_attr drop = {.dropout = {(float)s->dropout, 3, false}}, soft = {.softmax = {s->causal}};
  gd_tensor_id q = reshape(g, qkv[0], b, m, rows, d), k = qkv[1], v = qkv[2];
  gd_tensor_id scores = reshape(g, gemm(g, q, k, false, true, scale), b, s->heads, t, t);
  gd_tensor_id p0 = gd_softmax(g, scores, s->causal), p1 = p0;
  if (s->dropout > 0)
    p1 = gd_graph_op(g, GD_OP_dropout, &drop, 2, (gd_tensor_id[]){p0, seed});
  gd_tensor_id weights = reshape(g, p1, b, m, rows, t);
  p->results[0] = gemm(g, weights, v, false, false, 1);

  g->phase = GD_PHASE_BACKWARD;
  gd_tensor_id dout = reshape(g, p->dout, b, m, rows, d);
  p->results[3] = gemm(g, weights, dout, true, false, 1);
  gd_tensor_id dp = reshape(g, gemm(g, dout, v, false, true, 1), b, s->heads, t, t);
  if (s->dropout > 0)
    dp = gd_graph_op(g, GD_OP_dropout, &drop, 2, (gd_tensor_id[]){dp, seed});
  gd_tensor_id ds = gd_graph_op(g, GD_OP_softmax_grad, &soft, 2, (gd_tensor_id[]){p0, dp});
  ds = reshape(g, ds, b, m, rows, t);
  p->results[2] = gemm(g, ds, q, true, false, scale);
  p->results[1] = gemm(g, ds, k, false, false, scale);
}

static void add_fused(struct program *p, const struct shape *s, const gd_tensor_id qkv[3],
                      gd_tensor_id seed) {
  struct gd_graph *g = &p->graph;
  union gd_attr attr = {.attention = {.causal = s->causal,
                                      .scale = 1 / sqrtf((float)s->size),
                                      .probability = (float)s->dropout,
                                      .stream = 3}};
  gd_tensor_id out =
      gd_attention(g, qkv[0], qkv[1], qkv[2], s->dropout > 0 ? seed : GD_NONE, attr.attention);
  p->results[0] = out;
  g->phase = GD_PHASE_BACKWARD;
  gd_tensor_id dq =
      gd_graph_op(g, GD_OP_attention_grad, &attr, s->dropout > 0 ? 7 : 6,
                  (gd_tensor_id[]){p->dout, qkv[0], qkv[1], qkv[2], out, out + 1, seed});
  for (uint32_t i = 0; i < 3; i++)
    p->results[1 + i] = dq + i;
}

/* Values of about the size they have in a model, the same for both programs. */
static void fill(struct gd_graph *g, gd_tensor_id id, void *data) {
  for (int64_t i = 0; i < gd_tensor_elements(g, id); i++) {
    uint32_t x = ((uint32_t)i + id * 7919u) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    if (g->tensors[id].dtype == GD_DTYPE_I32)
      ((int32_t *)data)[i] = (int32_t)(x % 1000);
    else
      gd_dtype_store(g->tensors[id].dtype, data, i,
                     (float)((int32_t)(x >> 8) - (1 << 23)) * 0x1p-22f);
  }
}

/* The input whose memory output 0 takes, as the planner would have it: the last to read it. */
static gd_tensor_id taken_over(const struct gd_graph *g, gd_op_id id) {
  const struct gd_op *op = &g->ops[id];
  for (uint32_t i = 0; i < op->n_in; i++) {
    gd_tensor_id root = gd_tensor_root(g, op->in[i], NULL);
    bool last = (gd_op_info(op->kind)->inplace >> i & 1u) && g->tensors[root].producer != GD_NONE;
    for (gd_op_id later = id + 1; later < g->n_ops; later++)
      for (uint32_t j = 0; j < g->ops[later].n_in; j++)
        last = last && gd_tensor_root(g, g->ops[later].in[j], NULL) != root;
    if (last)
      return root;
  }
  return GD_NONE;
}

static void *data_of(const struct program *p, gd_tensor_id id) {
  return p->storage[gd_tensor_root(&p->graph, id, NULL)];
}

static void program_init(struct program *p, const struct shape *s, enum gd_dtype dtype,
                         bool fused) {
  struct gd_graph *g = &p->graph;
  struct gd_error err = {0};
  gd_tensor_id qkv[3];
  gd_graph_init(g);
  for (uint32_t i = 0; i < 3; i++)
    qkv[i] =
        gd_graph_leaf(g, GD_ROLE_INPUT, "x", dtype, 4,
                      (int64_t[]){s->batch, i == 0 ? s->heads : s->key_heads, s->steps, s->size});
  p->dout = gd_graph_leaf(g, GD_ROLE_INPUT, "dout", dtype, 4,
                          (int64_t[]){s->batch, s->heads, s->steps, s->size});
  gd_tensor_id seed = gd_graph_leaf(g, GD_ROLE_INPUT, "seed", GD_DTYPE_I32, 1, (int64_t[]){3});
  if (fused)
    add_fused(p, s, qkv, seed);
  else
    add_unfused(p, s, qkv, seed);
  if (gd_graph_check(g, &err) != GD_OK) {
    fprintf(stderr, "bench_attention: %s\n", err.text);
    exit(4);
  }
  p->storage = calloc(g->n_tensors, sizeof *p->storage);
  if (!p->storage)
    exit(3);
  for (gd_tensor_id id = 0; id < g->n_tensors; id++)
    if (g->tensors[id].producer == GD_NONE) {
      p->storage[id] = allocate(gd_tensor_bytes(g, id));
      fill(g, id, p->storage[id]);
    }
  for (gd_op_id id = 0; id < g->n_ops; id++)
    for (uint32_t i = 0; i < g->ops[id].n_out; i++) {
      gd_tensor_id out = g->ops[id].out[i], from = i == 0 ? taken_over(g, id) : GD_NONE;
      if (g->tensors[out].alias_of == GD_NONE)
        p->storage[out] = from != GD_NONE ? p->storage[from] : allocate(gd_tensor_bytes(g, out));
    }
}

static void program_deinit(struct program *p) {
  for (gd_tensor_id id = 0; id < p->graph.n_tensors; id++)
    for (gd_tensor_id other = id + 1; other < p->graph.n_tensors; other++)
      if (p->storage[other] == p->storage[id])
        p->storage[other] = NULL;
  for (gd_tensor_id id = 0; id < p->graph.n_tensors; id++)
    free(p->storage[id]);
  free(p->storage);
  gd_graph_deinit(&p->graph);
}

static struct gd_view view_of(const struct program *p, gd_tensor_id id) {
  const struct gd_tensor *t = &p->graph.tensors[id];
  return (struct gd_view){data_of(p, id), t->dtype, t->rank, t->dims,
                          gd_tensor_elements(&p->graph, id)};
}

/* Seconds of one phase. */
static double run(const struct program *p, enum gd_phase phase, void *workspace,
                  int64_t workspace_bytes, int threads) {
  int64_t begin_ns = gd_clock_ns();
  for (gd_op_id id = 0; id < p->graph.n_ops; id++) {
    const struct gd_op *op = &p->graph.ops[id];
    struct gd_view views[16];
    if (op->phase != phase || !gd_cpu_kernels[op->kind])
      continue;
    for (uint32_t i = 0; i < op->n_in; i++)
      views[i] = view_of(p, op->in[i]);
    for (uint32_t i = 0; i < op->n_out; i++)
      views[op->n_in + i] = view_of(p, op->out[i]);
    gd_cpu_kernels[op->kind](&(struct gd_kernel_args){.attr = &op->attr,
                                                      .n_in = op->n_in,
                                                      .n_out = op->n_out,
                                                      .in = views,
                                                      .out = views + op->n_in,
                                                      .workspace = workspace,
                                                      .workspace_bytes = workspace_bytes,
                                                      .threads = threads});
  }
  return (double)(gd_clock_ns() - begin_ns) * 1e-9;
}

/* The worst root mean square of a difference relative to that of the unfused result. */
static double difference(const struct program *fused, const struct program *unfused) {
  double worst = 0;
  for (int i = 0; i < 4; i++) {
    struct gd_view a = view_of(fused, fused->results[i]), b = view_of(unfused, unfused->results[i]);
    double squares = 0, errors = 0;
    for (int64_t j = 0; j < a.elements; j++) {
      double want = (double)gd_dtype_load(b.dtype, b.data, j);
      double off = (double)gd_dtype_load(a.dtype, a.data, j) - want;
      squares += want * want;
      errors += off * off;
    }
    double relative = sqrt(errors / squares);
    worst = relative <= worst ? worst : relative; /* NaN stays */
  }
  return worst;
}

static void bench(const struct shape *s, enum gd_dtype dtype, int threads) {
  enum { ROUNDS = 7 };
  struct program unfused = {0}, fused = {0};
  static const enum gd_phase phases[] = {GD_PHASE_FORWARD, GD_PHASE_BACKWARD};
  double best[2][2] = {{1e9, 1e9}, {1e9, 1e9}};
  int64_t workspace_bytes = gd_cpu_workspace_bytes(threads, s->steps);
  void *workspace = allocate(workspace_bytes);
  program_init(&unfused, s, dtype, false);
  program_init(&fused, s, dtype, true);
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < 2; i++) {
      const struct program *p = i ? &fused : &unfused;
      for (int phase = 0; phase < 2; phase++) {
        double seconds = run(p, phases[phase], workspace, workspace_bytes, threads);
        best[i][phase] = fmin(best[i][phase], seconds);
      }
    }
  double off = difference(&fused, &unfused);
  bool wrong = !(off <= (dtype == GD_DTYPE_F32 ? 1e-5 : dtype == GD_DTYPE_F16 ? 3e-3 : 2e-2));
  for (int phase = 0; phase < 2; phase++) {
    struct gd_cost cost;
    gd_op_cost(&fused.graph, (gd_op_id)phase, &cost);
    printf("%-26s %-9s %10.3f %10.3f %7.2fx %9.1f%s\n", phase ? "" : s->name,
           phase ? "backward" : "forward", best[0][phase] * 1e3, best[1][phase] * 1e3,
           best[0][phase] / best[1][phase], cost.executed_flops / best[1][phase] * 1e-9,
           wrong ? "  WRONG" : "");
  }
  if (wrong)
    printf("  differs by %.3g\n", off);
  program_deinit(&unfused);
  program_deinit(&fused);
  free(workspace);
}

int main(int argc, char **argv) {
  enum gd_dtype dtype = GD_DTYPE_BF16;
  int threads = omp_get_max_threads();
  const char *filter = "";
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *value = argv[i + 1];
    if (strcmp(argv[i], "--dtype") == 0)
      dtype = strcmp(value, "f32") == 0   ? GD_DTYPE_F32
              : strcmp(value, "f16") == 0 ? GD_DTYPE_F16
                                          : GD_DTYPE_BF16;
    else if (strcmp(argv[i], "--threads") == 0)
      threads = (int)strtol(value, NULL, 10);
    else if (strcmp(argv[i], "--filter") == 0)
      filter = value;
  }
  printf("attention, %s, %d threads\n", gd_dtype_name(dtype), threads);
  printf("%-26s %-9s %10s %10s %8s %9s\n", "", "", "unfused ms", "fused ms", "ratio", "GFLOP/s");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (strstr(shapes[i].name, filter))
      bench(&shapes[i], dtype, threads);
  return 0;
}
