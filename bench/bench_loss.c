/*
 * Speed and memory of the fused loss (linear_xent) against the ops that it replaces: the GEMM
 * with the vocabulary, xent, xent_grad, the two GEMMs of the backward pass and the accumulate.
 *
 *   bench_loss [--dtype bf16|f32|f16] [--threads N] [--rows N] [--width N] [--vocabulary N]
 *              [--runs N]
 *
 * The table: form, share of labels that count, milliseconds (best of the runs: the one that other
 * programs disturbed least), GFLOP/s of the three GEMMs over all rows, and MiB of activations
 * and scratch. Both forms see the same input; a row says "WRONG" where loss, dx or dw differ.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/rng.h"

struct options {
  enum gd_dtype dtype;
  int threads, runs;
  int64_t rows, width, vocabulary;
};

/* One form of the loss, in memory and ready to run. */
struct form {
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_bound *bound;
  struct gd_error err;
  gd_tensor_id x, w, labels, weight, scale, grad, loss_sum; /* leaves */
  gd_tensor_id dx;
};

static void check(enum gd_status status, const struct gd_error *err) {
  if (status == GD_OK)
    return;
  fprintf(stderr, "bench_loss: %s\n", err->text);
  exit(4);
}

static void build(struct form *f, const struct options *o, bool fused) {
  struct gd_graph *g = &f->graph;
  struct gd_attr_xent attr = {.ignore = -100};
  gd_graph_init(g);
  f->x = gd_graph_leaf(g, GD_ROLE_INPUT, "x", o->dtype, 2, (int64_t[]){o->rows, o->width});
  f->w = gd_graph_leaf(g, GD_ROLE_INPUT, "w", o->dtype, 2, (int64_t[]){o->vocabulary, o->width});
  f->labels = gd_graph_leaf(g, GD_ROLE_INPUT, "labels", GD_DTYPE_I32, 1, (int64_t[]){o->rows});
  f->weight = gd_graph_leaf(g, GD_ROLE_INPUT, "weight", GD_DTYPE_F32, 1, (int64_t[]){1});
  f->scale = gd_graph_loss_scale(g);
  f->grad = gd_graph_leaf(g, GD_ROLE_STATE, "grad", GD_DTYPE_F32, 2,
                          (int64_t[]){o->vocabulary, o->width});
  f->loss_sum = gd_graph_leaf(g, GD_ROLE_STATE, "loss_sum", GD_DTYPE_F32, 1, (int64_t[]){1});
  gd_tensor_id loss;
  if (fused) {
    loss = gd_linear_xent(g, f->x, f->w, GD_NONE, f->labels, f->weight, attr);
    f->dx = loss + 2;
    g->ops[0].adds = 1u << 3; /* as the accumulate pass has it */
    g->tensors[loss + 3].alias_of = f->grad;
  } else {
    gd_tensor_id logits = gd_linear(g, f->x, f->w, GD_NONE);
    loss = gd_xent(g, logits, f->labels, f->weight, attr);
    gd_tensor_id dlogits =
        gd_graph_op(g, GD_OP_xent_grad, &(union gd_attr){.xent = attr}, 5,
                    (gd_tensor_id[]){logits, loss + 1, f->labels, f->weight, f->scale});
    gd_tensor_id dw =
        gd_matmul(g, dlogits, f->x, GD_NONE,
                  (struct gd_attr_matmul){.trans_a = true, .alpha = 1, .out_dtype = GD_DTYPE_F32});
    gd_graph_op(g, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){f->grad, dw});
    f->dx = gd_matmul(g, dlogits, f->w, GD_NONE,
                      (struct gd_attr_matmul){.alpha = 1, .out_dtype = GD_DTYPE_COUNT});
  }
  gd_graph_op(g, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){f->loss_sum, loss});
  check(gd_graph_check(g, &f->err), &f->err);
}

static void *arena_at(const struct form *f, gd_tensor_id id, void *host, bool read) {
  int64_t at = f->plan.offset_bytes[id], bytes = gd_tensor_bytes(&f->graph, id);
  struct gd_error err = {0};
  check(read ? f->backend->ops->read(f->backend, GD_SPACE_DEVICE, at, host, bytes, &err)
             : f->backend->ops->write(f->backend, GD_SPACE_DEVICE, at, host, bytes, &err),
        &err);
  return host;
}

static void *allocate(int64_t bytes) {
  void *block = calloc((size_t)bytes + 64, 1);
  if (!block) {
    fprintf(stderr, "bench_loss: %lld bytes do not fit in memory\n", (long long)bytes);
    exit(3);
  }
  return block;
}

/* Uniform in [-high, high). */
static void write_random(struct form *f, gd_tensor_id id, uint64_t seed, float high) {
  int64_t count = gd_tensor_elements(&f->graph, id);
  void *host = allocate(gd_tensor_bytes(&f->graph, id));
  for (int64_t i = 0; i < count; i++)
    gd_dtype_store(f->graph.tensors[id].dtype, host, i,
                   high * (2 * gd_rng_uniform(seed, 1, (uint64_t)i) - 1));
  arena_at(f, id, host, false);
  free(host);
}

static void start(struct form *f, const struct options *o, bool fused, double counted) {
  struct gd_backend_options options = {.threads = o->threads};
  struct gd_caps caps;
  *f = (struct form){0};
  build(f, o, fused);
  check(gd_backend_open("cpu", &options, &f->backend, &f->err), &f->err);
  f->backend->ops->caps(&options, &caps);
  check(gd_plan_make(&f->graph, &caps, &f->plan, &f->err), &f->err);
  check(f->backend->ops->reserve(f->backend, f->plan.device_bytes, 0, &f->err), &f->err);
  check(f->backend->ops->bind(f->backend, &f->plan, &f->bound, &f->err), &f->err);
  write_random(f, f->x, 1, 1);
  write_random(f, f->w, 2, 0.1f);
  int32_t *labels = allocate(4 * o->rows);
  for (int64_t i = 0; i < o->rows; i++)
    labels[i] = (double)gd_rng_uniform(3, 1, (uint64_t)i) < counted
                    ? (int32_t)gd_rng_below(3, 2, (uint64_t)i, o->vocabulary)
                    : -100;
  arena_at(f, f->labels, labels, false);
  free(labels);
  float weight = 1.0f / (float)o->rows, scale[2] = {1, 0};
  arena_at(f, f->weight, &weight, false);
  arena_at(f, f->scale, scale, false);
}

static void stop(struct form *f) {
  f->backend->ops->unbind(f->backend, f->bound);
  gd_backend_close(f->backend);
  gd_plan_deinit(&f->plan);
  gd_graph_deinit(&f->graph);
}

static double run_once(struct form *f) {
  int64_t begin = gd_clock_ns();
  check(f->backend->ops->run(f->backend, f->bound, GD_PROGRAM_MICRO_STEP, &f->err), &f->err);
  return (double)(gd_clock_ns() - begin) * 1e-9;
}

/* Root mean square of the difference of one tensor in both forms, relative. */
static double difference(struct form *a, gd_tensor_id of_a, struct form *b, gd_tensor_id of_b) {
  int64_t count = gd_tensor_elements(&a->graph, of_a);
  enum gd_dtype dtype = a->graph.tensors[of_a].dtype;
  void *x = arena_at(a, of_a, allocate(gd_tensor_bytes(&a->graph, of_a)), true);
  void *y = arena_at(b, of_b, allocate(gd_tensor_bytes(&b->graph, of_b)), true);
  double squares = 0, errors = 0;
  for (int64_t i = 0; i < count; i++) {
    double w = (double)gd_dtype_load(dtype, y, i), d = (double)gd_dtype_load(dtype, x, i) - w;
    squares += w * w;
    errors += d * d;
  }
  free(x);
  free(y);
  return sqrt(errors / squares);
}

static void compare(const struct options *o, double counted) {
  static const char *const names[] = {"unfused", "linear_xent"};
  struct form forms[2];
  double best[2] = {0};
  for (int fused = 0; fused < 2; fused++) {
    start(&forms[fused], o, fused, counted);
    run_once(&forms[fused]); /* warm-up; its results are compared */
  }
  bool same = difference(&forms[1], forms[1].loss_sum, &forms[0], forms[0].loss_sum) < 1e-6 &&
              difference(&forms[1], forms[1].dx, &forms[0], forms[0].dx) < 1e-4 &&
              difference(&forms[1], forms[1].grad, &forms[0], forms[0].grad) < 1e-5;
  for (int run = 0; run < o->runs; run++) /* in turn, so that both see the same machine */
    for (int fused = 0; fused < 2; fused++) {
      double seconds = run_once(&forms[fused]);
      best[fused] = run == 0 || seconds < best[fused] ? seconds : best[fused];
    }
  double flops = 6.0 * (double)o->rows * (double)o->width * (double)o->vocabulary;
  for (int fused = 0; fused < 2; fused++) {
    const int64_t *bytes = forms[fused].plan.bytes;
    printf("%-12s %5.0f %% %9.1f ms %9.1f GFLOP/s %8.1f MiB%s\n", names[fused], 100 * counted,
           1e3 * best[fused], 1e-9 * flops / best[fused],
           (double)(bytes[GD_CATEGORY_ACTIVATIONS] + bytes[GD_CATEGORY_WORKSPACE]) / 0x1p20,
           fused && !same ? "  WRONG" : "");
    stop(&forms[fused]);
  }
}

static int64_t number(const char *text) {
  char *end;
  long long value = strtoll(text, &end, 10);
  if (*end || value < 1) {
    fprintf(stderr, "bench_loss: \"%s\" is no positive number\n", text);
    exit(2);
  }
  return value;
}

int main(int argc, char **argv) {
  struct options o = {.dtype = GD_DTYPE_BF16,
                      .threads = 2,
                      .runs = 7,
                      .rows = 2048,
                      .width = 512,
                      .vocabulary = 50304};
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *value = argv[i + 1];
    if (strcmp(argv[i], "--dtype") == 0)
      o.dtype = strcmp(value, "f32") == 0   ? GD_DTYPE_F32
                : strcmp(value, "f16") == 0 ? GD_DTYPE_F16
                                            : GD_DTYPE_BF16;
    else if (strcmp(argv[i], "--threads") == 0)
      o.threads = (int)number(value);
    else if (strcmp(argv[i], "--rows") == 0)
      o.rows = number(value);
    else if (strcmp(argv[i], "--width") == 0)
      o.width = number(value);
    else if (strcmp(argv[i], "--vocabulary") == 0)
      o.vocabulary = number(value);
    else if (strcmp(argv[i], "--runs") == 0)
      o.runs = (int)number(value);
    else {
      fprintf(stderr, "bench_loss: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  printf("loss of x[%lld,%lld] w[%lld,%lld], %s, %d threads\n", (long long)o.rows,
         (long long)o.width, (long long)o.vocabulary, (long long)o.width, gd_dtype_name(o.dtype),
         o.threads);
  compare(&o, 1);
  compare(&o, 0.15); /* a masked language model */
  return 0;
}
