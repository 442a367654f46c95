/*
 * Speed of the CUDA backend's ops at the sizes that models give them: GEMMs by shape, the fused
 * loss, attention (as chosen, and our own kernel), and what memory binds. Needs a GPU; says so and
 * ends well where there is none.
 *
 *   bench_cuda [TEXT]     only rows whose model or name holds TEXT
 *
 * Every row is one op, called as a bound plan calls it: modules noted and built, algorithms tuned,
 * then launched between two events, several times; the least time counts. Inputs are random: zeros
 * draw less power and would flatter the clock. The table: model, what, microseconds, TFLOP/s of the
 * GEMMs as executed or GB/s of what must be read and written once, and that as a share of the
 * GPU's peak (GEMMs) or of the rate of a device-to-device copy (bytes).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/runtime/fused.h"
#include "backend/cuda/runtime/module.h"
#include "base/rng.h"
#include "ir/fusion.h"

enum {
  MOST_IN = 8,
  MOST_OUT = 8,
  RUNS = 5,
  ALIGNMENT = 256,
  PATTERN_BYTES = 32 << 20,
  VOCABULARY = 50000, /* rows of embed_grad */
  MOST_ID = 20000,    /* of ids and labels: fewer than any vocabulary here */
};
static const int64_t most_arena_bytes = (int64_t)24 << 30;

struct bench {
  struct gd_cuda *cuda;
  const char *wanted;
  CUdeviceptr patterns[GD_DTYPE_COUNT]; /* random numbers, at the start of the arena */
  CUdeviceptr free_at;
  int64_t arena_bytes;
  CUevent begin, end;
  double copy_rate; /* bytes a second, read and written */
  bool collects;    /* the first walk over all rows: kernels are noted, to be built side by side */
  struct gd_error err;
};

struct row {
  const char *model, *name;
  enum gd_op_kind kind;
  gd_cuda_op op; /* NULL: that of the table */
  /* Of a fused op: makes its body from the leaves, and says which tensors it writes. */
  void (*cluster)(struct gd_fusion *fusion);
  union gd_attr attr;
  bool by_bytes; /* its speed is stated in bytes, though it has GEMMs */
  uint32_t n_in, adds;
  struct {
    enum gd_dtype dtype;
    uint32_t rank;
    int64_t dims[GD_MAX_RANK];
  } in[MOST_IN];
};

static void check(enum gd_status status, const struct gd_error *err) {
  if (status == GD_OK)
    return;
  fprintf(stderr, "bench_cuda: %s\n", err->text);
  exit(4);
}

static void check_cu(struct bench *b, int result, const char *what) {
  check(gd_cuda_check(b->cuda, result, what, &b->err), &b->err);
}

static CUdeviceptr place(CUdeviceptr *at, int64_t bytes) {
  CUdeviceptr start = (*at + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  *at = start + (CUdeviceptr)bytes;
  return start;
}

static void copy(struct bench *b, CUdeviceptr to, CUdeviceptr from, int64_t bytes) {
  check_cu(b, b->cuda->cu->MemcpyAsync(to, from, (size_t)bytes, b->cuda->stream), "copying");
}

static double event_ms(struct bench *b) {
  float ms = 0;
  check_cu(b, b->cuda->cu->EventRecord(b->end, b->cuda->stream), "timing");
  check_cu(b, b->cuda->cu->EventSynchronize(b->end), "timing");
  check_cu(b, b->cuda->cu->EventElapsedTime(&ms, b->begin, b->end), "timing");
  return (double)ms;
}

/* --- one row --------------------------------------------------------------------------------- */

/* Tensors of the graph one behind the other, inputs filled. False: the arena is too small. */
static bool lay_out(struct bench *b, struct gd_graph *g, struct gd_view *views, CUdeviceptr at) {
  const struct gd_op *op = &g->ops[0];
  for (uint32_t i = 0; i < op->n_in + op->n_out; i++) {
    gd_tensor_id id = i < op->n_in ? op->in[i] : op->out[i - op->n_in], root;
    int64_t bytes = gd_tensor_bytes(g, id), offset = 0;
    struct gd_tensor *t = &g->tensors[id];
    views[i] = (struct gd_view){
        .dtype = t->dtype, .rank = t->rank, .dims = t->dims, .elements = gd_tensor_elements(g, id)};
    root = gd_tensor_root(g, id, &offset);
    for (uint32_t j = 0; j < i && root != id; j++) /* outputs of adam are its inputs */
      if (j < op->n_in && op->in[j] == root)
        views[i].data = (char *)views[j].data + offset;
    if (views[i].data)
      continue;
    CUdeviceptr to = place(&at, bytes);
    if (at > b->cuda->arena + (CUdeviceptr)b->arena_bytes)
      return false;
    views[i].data = (void *)(uintptr_t)to;
    for (int64_t done = 0; done < bytes && i < op->n_in && !b->collects; done += PATTERN_BYTES)
      copy(b, to + (CUdeviceptr)done, b->patterns[t->dtype],
           bytes - done < PATTERN_BYTES ? bytes - done : PATTERN_BYTES);
  }
  return true;
}

static void show(struct bench *b, const struct row *r, const struct gd_graph *g, double ms) {
  struct gd_cost cost;
  bool tf32 = r->in[0].dtype == GD_DTYPE_F32;
  gd_op_cost(g, 0, &cost);
  printf("%-12s %-34s %10.1f us", r->model, r->name, ms * 1e3);
  if (cost.executed_flops > 0 && !r->by_bytes) {
    double rate = cost.executed_flops / ms * 1e3;
    double peak = b->cuda->base.ops->peak_flops(&b->cuda->base, r->in[0].dtype, tf32);
    printf(" %8.1f TFLOP/s %4.0f %%\n", rate * 1e-12, 100 * rate / peak);
  } else {
    double rate = (cost.read_bytes + cost.write_bytes) / ms * 1e3;
    printf(" %8.1f GB/s    %4.0f %%\n", rate * 1e-9, 100 * rate / b->copy_rate);
  }
  fflush(stdout);
}

/* The first input of a cluster has its rows and columns. */
static void add_fusion(struct gd_graph *g, const struct row *r) {
  const uint32_t rank = r->in[0].rank;
  struct gd_fusion f = {.n_in = r->n_in, .rows = 1, .columns = r->in[0].dims[rank - 1]};
  for (uint32_t i = 0; i + 1 < rank; i++)
    f.rows *= r->in[0].dims[i];
  gd_graph_init(&f.body);
  for (uint32_t i = 0; i < r->n_in; i++)
    gd_graph_leaf(&f.body, GD_ROLE_INPUT, "input", r->in[i].dtype, r->in[i].rank, r->in[i].dims);
  r->cluster(&f);
  gd_graph_fusion(g, &f);
}

static void run_row(struct bench *b, const struct row *r) {
  struct gd_cuda_fusions *fusions = NULL;
  struct gd_graph g;
  struct gd_view views[MOST_IN + MOST_OUT];
  gd_tensor_id in[MOST_IN];
  if (b->wanted && !strstr(r->model, b->wanted) && !strstr(r->name, b->wanted))
    return;
  gd_graph_init(&g);
  for (uint32_t i = 0; i < r->n_in; i++)
    in[i] = gd_graph_leaf(&g, GD_ROLE_INPUT, "input", r->in[i].dtype, r->in[i].rank, r->in[i].dims);
  if (r->cluster)
    add_fusion(&g, r);
  if (gd_graph_op(&g, r->kind, &r->attr, r->n_in, in) == GD_NONE) {
    printf("%-12s %-34s is no valid op\n", r->model, r->name);
    gd_graph_deinit(&g);
    return;
  }
  g.ops[0].adds = r->adds;
  int64_t workspace_bytes = GD_CUDA_WORKSPACE_BYTES + gd_op_scratch_bytes(&g, 0);
  CUdeviceptr at = b->free_at, workspace = place(&at, workspace_bytes);
  if (!lay_out(b, &g, views, at)) {
    if (!b->collects)
      printf("%-12s %-34s needs more than %lld GiB\n", r->model, r->name,
             (long long)(b->arena_bytes >> 30));
    gd_graph_deinit(&g);
    return;
  }
  struct gd_kernel_args args = {.attr = &g.ops[0].attr,
                                .n_in = g.ops[0].n_in,
                                .n_out = g.ops[0].n_out,
                                .adds = r->adds,
                                .in = views,
                                .out = views + g.ops[0].n_in,
                                .workspace = (void *)(uintptr_t)workspace,
                                .workspace_bytes = workspace_bytes};
  if (r->cluster) {
    check(gd_cuda_fusions_build(b->cuda, &g, &fusions, &b->err), &b->err);
    args.device_fused = gd_cuda_fusion(fusions, 0);
  }
  struct gd_cuda_call call = {
      .cuda = b->cuda, .args = &args, .stream = b->cuda->stream, .err = &b->err};
  gd_cuda_op op = r->op ? r->op : gd_cuda_ops[r->kind];
  call.stage = GD_CUDA_COLLECT;
  check(op(&call), &b->err);
  if (!b->collects) {
    double best_ms = -1;
    call.stage = GD_CUDA_TUNE;
    check(op(&call), &b->err);
    lay_out(b, &g, views, at); /* tuning overwrites */
    call.stage = GD_CUDA_LAUNCH;
    check(op(&call), &b->err);
    for (int i = 0; i < RUNS; i++) {
      check_cu(b, b->cuda->cu->EventRecord(b->begin, b->cuda->stream), "timing");
      check(op(&call), &b->err);
      double ms = event_ms(b);
      best_ms = best_ms < 0 || ms < best_ms ? ms : best_ms;
    }
    show(b, r, &g, best_ms);
  }
  gd_cuda_fusions_free(fusions);
  gd_graph_deinit(&g);
}

/* --- the rows -------------------------------------------------------------------------------- */

#define SHAPE(type, ...)                                                                   \
  {                                                                                        \
    .dtype = (type), .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = { \
      __VA_ARGS__                                                                          \
    }                                                                                      \
  }

struct model {
  const char *name;
  enum gd_dtype dtype;
  int64_t batch, length, width, inner, heads, vocabulary; /* inner: of the feed-forward part */
  bool causal, loss_bias;
  float dropout; /* of attention */
};

/* y = x w' + bias, dx = dy w, dw (+)= dy' x. */
static void gemms(struct bench *b, const struct model *m, const char *what, int64_t n, int64_t k) {
  const int64_t rows = m->batch * m->length;
  const bool tf32 = m->dtype == GD_DTYPE_F32;
  char name[64];
  snprintf(name, sizeof name, "%s %lldx%lldx%lld", what, (long long)rows, (long long)n,
           (long long)k);
  struct row r = {.model = m->name,
                  .name = name,
                  .kind = GD_OP_matmul,
                  .n_in = 3,
                  .attr.matmul = {false, true, 1, GD_DTYPE_COUNT, tf32},
                  .in = {SHAPE(m->dtype, rows, k), SHAPE(m->dtype, n, k), SHAPE(GD_DTYPE_F32, n)}};
  run_row(b, &r);
  snprintf(name, sizeof name, "%s dx", what);
  r = (struct row){.model = m->name,
                   .name = name,
                   .kind = GD_OP_matmul,
                   .n_in = 2,
                   .attr.matmul = {false, false, 1, GD_DTYPE_COUNT, tf32},
                   .in = {SHAPE(m->dtype, rows, n), SHAPE(m->dtype, n, k)}};
  run_row(b, &r);
  snprintf(name, sizeof name, "%s dw", what);
  r = (struct row){.model = m->name,
                   .name = name,
                   .kind = GD_OP_matmul,
                   .n_in = 2,
                   .adds = 1,
                   .attr.matmul = {true, false, 1, GD_DTYPE_F32, tf32},
                   .in = {SHAPE(m->dtype, rows, n), SHAPE(m->dtype, rows, k)}};
  run_row(b, &r);
}

static void loss(struct bench *b, const struct model *m, int64_t chunk_bytes) {
  const int64_t rows = m->batch * m->length;
  char name[64];
  snprintf(name, sizeof name, "linear_xent, chunks of %lld MiB", (long long)(chunk_bytes >> 20));
  struct row r = {
      .model = m->name,
      .name = name,
      .kind = GD_OP_linear_xent,
      .n_in = m->loss_bias ? 6 : 5,
      .adds = 1u << 3,
      .attr.xent = {.ignore = -100, .tf32 = m->dtype == GD_DTYPE_F32, .chunk_bytes = chunk_bytes},
      .in = {SHAPE(m->dtype, rows, m->width), SHAPE(m->dtype, m->vocabulary, m->width),
             SHAPE(GD_DTYPE_I32, rows), SHAPE(GD_DTYPE_F32, 1), SHAPE(GD_DTYPE_F32, 2),
             SHAPE(GD_DTYPE_F32, m->vocabulary)}};
  run_row(b, &r);
}

static enum gd_status own_attention(const struct gd_cuda_call *call) {
  return gd_cuda_own_attention(call, true);
}

static enum gd_status own_attention_grad(const struct gd_cuda_call *call) {
  return gd_cuda_own_attention_grad(call, true);
}

static void attention(struct bench *b, const struct model *m, float dropout, bool own) {
  const int64_t n = m->heads, t = m->length, d = m->width / n;
  char name[64];
  for (int grad = 0; grad < 2; grad++) {
    struct row r = {.model = m->name,
                    .name = name,
                    .kind = grad ? GD_OP_attention_grad : GD_OP_attention,
                    .n_in = (grad ? 6u : 3u) + (dropout > 0 ? 1u : 0u),
                    .attr.attention = {.causal = m->causal,
                                       .scale = 0.125f,
                                       .probability = dropout,
                                       .tf32 = m->dtype == GD_DTYPE_F32}};
    if (own)
      r.op = grad ? own_attention_grad : own_attention;
    for (int i = 0; i < 5; i++)
      r.in[i] = (__typeof__(r.in[0]))SHAPE(m->dtype, m->batch, n, t, d);
    if (grad)
      r.in[5] = (__typeof__(r.in[0]))SHAPE(GD_DTYPE_F32, m->batch, n, t);
    if (dropout > 0) /* the seed comes last */
      r.in[r.n_in - 1] = (__typeof__(r.in[0]))SHAPE(GD_DTYPE_I32, 3);
    snprintf(name, sizeof name, "attention%s%s, %s", grad ? "_grad" : "",
             dropout > 0 ? ", dropout" : "", own ? "own" : "chosen");
    run_row(b, &r);
  }
}

static void memory_bound(struct bench *b, const struct model *m) {
  const int64_t rows = m->batch * m->length, c = m->width, d = c / m->heads;
  const int64_t parameters = m->inner * c;
  const enum gd_dtype f32 = GD_DTYPE_F32;
  run_row(b, &(struct row){.model = m->name,
                           .name = "layernorm",
                           .kind = GD_OP_layernorm,
                           .n_in = 3,
                           .attr.norm = {1e-5f},
                           .in = {SHAPE(m->dtype, rows, c), SHAPE(f32, c), SHAPE(f32, c)}});
  run_row(b, &(struct row){.model = m->name,
                           .name = "layernorm_grad",
                           .kind = GD_OP_layernorm_grad,
                           .n_in = 5,
                           .adds = 6,
                           .attr.norm_grad = {true},
                           .in = {SHAPE(m->dtype, rows, c), SHAPE(m->dtype, rows, c), SHAPE(f32, c),
                                  SHAPE(f32, rows), SHAPE(f32, rows)}});
  run_row(b, &(struct row){.model = m->name,
                           .name = "gelu",
                           .kind = GD_OP_activate,
                           .n_in = 1,
                           .attr.activate = {GD_ACTIVATION_GELU},
                           .in = {SHAPE(m->dtype, rows, m->inner)}});
  run_row(b,
          &(struct row){.model = m->name,
                        .name = "gelu_grad",
                        .kind = GD_OP_activate_grad,
                        .n_in = 2,
                        .attr.activate = {GD_ACTIVATION_GELU},
                        .in = {SHAPE(m->dtype, rows, m->inner), SHAPE(m->dtype, rows, m->inner)}});
  run_row(b, &(struct row){.model = m->name,
                           .name = "transpose of heads",
                           .kind = GD_OP_transpose,
                           .n_in = 1,
                           .attr.transpose = {{0, 2, 1, 3}},
                           .in = {SHAPE(m->dtype, m->batch, m->length, m->heads, d)}});
  run_row(b, &(struct row){.model = m->name,
                           .name = "rope",
                           .kind = GD_OP_rope,
                           .n_in = 2,
                           .attr.rope = {.rotary = d / 4},
                           .in = {SHAPE(m->dtype, m->batch, m->heads, m->length, d),
                                  SHAPE(f32, m->length, d / 4)}});
  run_row(b, &(struct row){.model = m->name,
                           .name = "sum_rows",
                           .kind = GD_OP_sum_rows,
                           .n_in = 1,
                           .adds = 1,
                           .attr.rows = {1},
                           .in = {SHAPE(m->dtype, rows, m->inner)}});
  run_row(b, &(struct row){.model = m->name,
                           .name = "embed_grad",
                           .kind = GD_OP_embed_grad,
                           .n_in = 2,
                           .adds = 1,
                           .attr.embed = {.rows = VOCABULARY},
                           .in = {SHAPE(m->dtype, rows, c), SHAPE(GD_DTYPE_I32, rows)}});
  run_row(b, &(struct row){.model = m->name,
                           .name = "adam, one matrix",
                           .kind = GD_OP_adam,
                           .n_in = 7,
                           .attr.adam = {0.9f, 0.95f, 1e-8f, 0.1f, true},
                           .in = {SHAPE(f32, parameters), SHAPE(f32, parameters),
                                  SHAPE(f32, parameters), SHAPE(f32, parameters), SHAPE(f32, 1),
                                  SHAPE(f32, 1), SHAPE(f32, 1)}});
}

/* dx of a layernorm and the residual's gradient, with what they leave of weight, bias and the bias
   of the GEMM before: inputs dy, x, weight, mean, scale, residual. */
static void norm_gradient(struct gd_fusion *f) {
  struct gd_graph *g = &f->body;
  gd_tensor_id dx = gd_graph_op(g, GD_OP_layernorm_grad, &(union gd_attr){.norm_grad = {true}}, 5,
                                (gd_tensor_id[]){0, 1, 2, 3, 4});
  gd_tensor_id sum = gd_add(g, dx, 5);
  gd_tensor_id columns = gd_graph_op(g, GD_OP_sum_rows, &(union gd_attr){.rows = {1}}, 1, &sum);
  f->n_out = 4;
  memcpy(f->out, (gd_tensor_id[]){sum, dx + 1, dx + 2, columns}, 4 * sizeof *f->out);
}

/* What memory binds, at widths of pythia-1b and pythia-2.8b: rows of several warps, heads of 80. */
static void wide_rows(struct bench *b, enum gd_dtype dtype, int64_t batch, int64_t c, int64_t n) {
  enum { LENGTH = 2048, PARTS = 3 };
  const int64_t rows = batch * LENGTH, d = c / n;
  const struct gd_attr_heads heads = {n, PARTS, true, 3, d / 4, false};
  char name[64];
  struct row r = {.model = "wide rows",
                  .name = name,
                  .kind = GD_OP_layernorm,
                  .n_in = 3,
                  .attr.norm = {1e-5f},
                  .in = {SHAPE(dtype, rows, c), SHAPE(GD_DTYPE_F32, c), SHAPE(GD_DTYPE_F32, c)}};
  snprintf(name, sizeof name, "layernorm %lldx%lld", (long long)rows, (long long)c);
  run_row(b, &r);
  snprintf(name, sizeof name, "norm_gradient %lldx%lld", (long long)rows, (long long)c);
  r = (struct row){.model = "wide rows",
                   .name = name,
                   .kind = GD_OP_fused,
                   .cluster = norm_gradient,
                   .n_in = 6,
                   .adds = 0xe,
                   .in = {SHAPE(dtype, rows, c), SHAPE(dtype, rows, c), SHAPE(GD_DTYPE_F32, c),
                          SHAPE(GD_DTYPE_F32, rows), SHAPE(GD_DTYPE_F32, rows),
                          SHAPE(dtype, rows, c)}};
  run_row(b, &r);
  snprintf(name, sizeof name, "split_heads of %lld", (long long)d);
  r = (struct row){
      .model = "wide rows",
      .name = name,
      .kind = GD_OP_split_heads,
      .n_in = 2,
      .attr.heads = heads,
      .in = {SHAPE(dtype, batch, LENGTH, PARTS * c), SHAPE(GD_DTYPE_F32, LENGTH, d / 4)}};
  run_row(b, &r);
  snprintf(name, sizeof name, "merge_heads of %lld", (long long)d);
  r = (struct row){.model = "wide rows",
                   .name = name,
                   .kind = GD_OP_merge_heads,
                   .n_in = PARTS + 1,
                   .attr.heads = heads,
                   .in = {SHAPE(dtype, batch, n, LENGTH, d), SHAPE(dtype, batch, n, LENGTH, d),
                          SHAPE(dtype, batch, n, LENGTH, d), SHAPE(GD_DTYPE_F32, LENGTH, d / 4)}};
  r.attr.heads.inverse = true;
  run_row(b, &r);
}

/* One filter a channel: x, w and bias; dy and w; dy and x. */
static void filter(struct bench *b, const char *model, const char *name, enum gd_op_kind forward,
                   enum gd_op_kind to_x, enum gd_op_kind to_w, const struct row *shapes,
                   int64_t k) {
  const struct {
    const char *part;
    enum gd_op_kind kind;
    uint32_t n_in, second; /* which of the shapes is the second input */
  } parts[] = {{"", forward, 3, 1}, {" to x", to_x, 2, 1}, {" to w", to_w, 2, 0}};
  char text[96];
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    struct row r = *shapes;
    r.model = model;
    r.name = text;
    r.kind = parts[i].kind;
    r.by_bytes = true;
    r.n_in = parts[i].n_in;
    r.in[1] = shapes->in[parts[i].second];
    if (r.kind == to_w) {
      r.attr.rows.rows = k;
      r.adds = 3;
    }
    snprintf(text, sizeof text, "%s%s", name, parts[i].part);
    run_row(b, &r);
  }
}

static void images(struct bench *b, enum gd_dtype dtype, int64_t batch, int64_t side, int64_t c) {
  struct row shapes = {.in = {SHAPE(dtype, batch, side, side, c), SHAPE(GD_DTYPE_F32, c, 1, 7, 7),
                              SHAPE(GD_DTYPE_F32, c)}};
  char name[64];
  snprintf(name, sizeof name, "depthwise %s %lldx%lldx%lld", gd_dtype_name(dtype), (long long)batch,
           (long long)side, (long long)c);
  filter(b, "convnext", name, GD_OP_depthwise, GD_OP_depthwise_dx, GD_OP_depthwise_dw, &shapes, 7);
}

static void sequences(struct bench *b, enum gd_dtype dtype, int64_t batch, int64_t steps,
                      int64_t c) {
  const enum gd_dtype f32 = GD_DTYPE_F32;
  const int64_t s = 16, chunks = (steps + GD_SCAN_CHUNK - 1) / GD_SCAN_CHUNK;
  struct row shapes = {.in = {SHAPE(dtype, batch, steps, c), SHAPE(f32, c, 1, 4), SHAPE(f32, c)}};
  char name[64], text[96];
  snprintf(name, sizeof name, "%s %lldx%lldx%lld", gd_dtype_name(dtype), (long long)batch,
           (long long)steps, (long long)c);
  snprintf(text, sizeof text, "conv1d %s", name);
  filter(b, "mamba", text, GD_OP_conv1d, GD_OP_conv1d_dx, GD_OP_conv1d_dw, &shapes, 4);
  snprintf(text, sizeof text, "scan %s", name);
  run_row(b, &(struct row){.model = "mamba",
                           .name = text,
                           .kind = GD_OP_scan,
                           .by_bytes = true,
                           .n_in = 6,
                           .in = {SHAPE(dtype, batch, steps, c), SHAPE(dtype, batch, steps, c),
                                  SHAPE(f32, c, s), SHAPE(dtype, batch, steps, s),
                                  SHAPE(dtype, batch, steps, s), SHAPE(f32, c)}});
  snprintf(text, sizeof text, "scan_grad %s", name);
  run_row(b, &(struct row){.model = "mamba",
                           .name = text,
                           .kind = GD_OP_scan_grad,
                           .by_bytes = true,
                           .n_in = 8,
                           .adds = 0x24,
                           .in = {SHAPE(dtype, batch, steps, c), SHAPE(dtype, batch, steps, c),
                                  SHAPE(dtype, batch, steps, c), SHAPE(f32, c, s),
                                  SHAPE(dtype, batch, steps, s), SHAPE(dtype, batch, steps, s),
                                  SHAPE(f32, c), SHAPE(f32, batch, chunks, c, s)}});
}

/* Tokens of the micro-batches that fill an H200, or fewer: rates no longer change. */
static const struct model models[] = {
    {"pythia-160m", GD_DTYPE_F16, 64, 2048, 768, 3072, 12, 50304, true, false, 0},
    {"pythia-1b", GD_DTYPE_F16, 16, 2048, 2048, 8192, 8, 50304, true, false, 0},
    {"roberta", GD_DTYPE_F16, 128, 512, 1024, 4096, 16, 50265, false, true, 0.1f},
    {"vit", GD_DTYPE_F32, 512, 197, 1024, 4096, 16, 21841, false, true, 0},
};

static void run_all(struct bench *b) {
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    const struct model *m = &models[i];
    if (m->causal || m->dtype == GD_DTYPE_F32)
      gemms(b, m, "q,k,v", 3 * m->width, m->width);
    gemms(b, m, "out", m->width, m->width);
    gemms(b, m, "up", m->inner, m->width);
    gemms(b, m, "down", m->width, m->inner);
    loss(b, m, 256 << 20);
    loss(b, m, 512 << 20);
    loss(b, m, 1 << 30);
    for (int own = 0; own < 2; own++) {
      attention(b, m, 0, own);
      if (m->dropout > 0)
        attention(b, m, m->dropout, own);
    }
    memory_bound(b, m);
  }
  wide_rows(b, GD_DTYPE_F16, 64, 768, 12);
  wide_rows(b, GD_DTYPE_F32, 16, 1024, 16);
  wide_rows(b, GD_DTYPE_BF16, 64, 2048, 8);
  wide_rows(b, GD_DTYPE_F16, 16, 2560, 32);
  sequences(b, GD_DTYPE_BF16, 4, 4096, 5120);
  sequences(b, GD_DTYPE_BF16, 12, 500, 3840);
  sequences(b, GD_DTYPE_F32, 4, 4096, 5120);
  images(b, GD_DTYPE_F32, 12, 56, 480);
  images(b, GD_DTYPE_BF16, 12, 56, 480);
  for (int64_t side = 56, c = 256; side >= 7; side /= 2, c *= 2)
    images(b, GD_DTYPE_F32, 256, side, c);
}

/* --- the machine ----------------------------------------------------------------------------- */

/* Blocks of random numbers in the arena, which inputs are copied from. */
static void make_patterns(struct bench *b) {
  void *host = gd_mem_alloc(PATTERN_BYTES, 1);
  if (!host)
    exit(3);
  for (int d = 0; d < GD_DTYPE_COUNT; d++) {
    enum gd_dtype dtype = (enum gd_dtype)d;
    b->patterns[d] = place(&b->free_at, PATTERN_BYTES);
    for (int64_t i = 0; i < PATTERN_BYTES / gd_dtype_bytes(dtype); i++)
      if (dtype == GD_DTYPE_I32)
        ((int32_t *)host)[i] = (int32_t)gd_rng_below(1, 1, (uint64_t)i, MOST_ID);
      else
        gd_dtype_store(dtype, host, i, 0.5f * gd_rng_uniform(1, 2, (uint64_t)i) - 0.2f);
    copy(b, b->patterns[d], (CUdeviceptr)(uintptr_t)host, PATTERN_BYTES);
    check_cu(b, b->cuda->cu->StreamSynchronize(b->cuda->stream), "copying");
  }
  gd_mem_free(host);
}

static void measure_copy(struct bench *b) {
  const int64_t bytes = b->arena_bytes / 8;
  double best_ms = -1;
  for (int i = 0; i < RUNS; i++) {
    check_cu(b, b->cuda->cu->EventRecord(b->begin, b->cuda->stream), "timing");
    copy(b, b->free_at + (CUdeviceptr)bytes, b->free_at, bytes);
    double ms = event_ms(b);
    best_ms = best_ms < 0 || ms < best_ms ? ms : best_ms;
  }
  b->copy_rate = 2 * (double)bytes / best_ms * 1e3;
  printf("a copy: %.0f GB/s read and written\n", b->copy_rate * 1e-9);
}

int main(int argc, char **argv) {
  struct gd_backend *backend;
  struct bench b = {.wanted = argc > 1 ? argv[1] : NULL, .collects = true};
  struct gd_device_info info;
  if (gd_backend_open("cuda", &(struct gd_backend_options){0}, &backend, &b.err) != GD_OK) {
    printf("bench_cuda: no GPU to measure: %s\n", b.err.text);
    return 0;
  }
  backend->ops->describe(backend, &info);
  b.cuda = (struct gd_cuda *)backend;
  printf("%s\n", info.name);
  b.arena_bytes =
      info.memory_bytes / 10 * 8 < most_arena_bytes ? info.memory_bytes / 10 * 8 : most_arena_bytes;
  check(backend->ops->reserve(backend, b.arena_bytes, 0, &b.err), &b.err);
  b.free_at = b.cuda->arena;
  check_cu(&b, b.cuda->cu->EventCreate(&b.begin, CU_EVENT_DEFAULT), "making an event");
  check_cu(&b, b.cuda->cu->EventCreate(&b.end, CU_EVENT_DEFAULT), "making an event");
  make_patterns(&b);
  measure_copy(&b);
  run_all(&b);
  check(gd_cuda_modules_build(b.cuda, &b.err), &b.err);
  b.collects = false;
  run_all(&b);
  b.cuda->cu->EventDestroy(b.begin);
  b.cuda->cu->EventDestroy(b.end);
  gd_backend_close(backend);
  return 0;
}
