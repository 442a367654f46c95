/*
 * What the compile method does to one model on this machine: passes with and without it, in turns,
 * on the same input; clusters, bytes of activations, and how long building the kernels takes.
 *
 *   bench_compile MODEL [MICRO_BATCH [PASSES]] [--explain|--clusters]
 *
 * --clusters: instead of micro-steps, each distinct cluster by itself next to the ops it consists
 * of, in CPU time (OMP_NUM_THREADS=1 makes that a fair measure).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/kernel.h"
#include "base/clock.h"
#include "codegen/codegen.h"
#include "exec/run.h"
#include "pass/pass.h"

enum { NAIVE, RECOMPUTED, COMPILED, VARIANTS };
static const char *const names[VARIANTS] = {"naive", "recompute", "compile"};

static struct gd_error err;

static void must(enum gd_status status) {
  if (status == GD_OK)
    return;
  fprintf(stderr, "bench_compile: %s\n", err.text);
  exit(1);
}

struct variant {
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_run run;
  double best_s, best_cpu_s, loss;
};

/* On one thread this does not see what else the machine does. */
static double cpu_s(void) {
  return (double)clock() / CLOCKS_PER_SEC;
}

static void prepare(struct variant *v, int which, const struct gd_model *model, int64_t micro_batch,
                    bool explain) {
  struct gd_backend_options options = {0};
  struct gd_caps caps;
  bool substituted;
  must(gd_backend_open("cpu", &options, &v->backend, &err));
  v->backend->ops->caps(&options, &caps);
  struct gd_setup setup = {.model = model, .micro_batch = micro_batch};
  must(gd_setup_precision(model, &caps, NULL, &setup.precision, &substituted, &err));
  struct gd_pass_ctx ctx = {&setup, &err};
  must(gd_pipeline_build(&setup, &v->graph, &err));
  int64_t begin = gd_clock_ns();
  if (which >= RECOMPUTED)
    must(gd_pass_recompute(&ctx, &v->graph));
  if (which >= COMPILED)
    must(gd_pass_compile(&ctx, &v->graph));
  double micro_step_s = (double)(gd_clock_ns() - begin) * 1e-9;
  must(gd_graph_verify(&v->graph, &err));
  must(gd_plan_make(&v->graph, &caps, &v->plan, &err));
  if (explain && which == COMPILED) {
    struct gd_strbuf text = {0};
    gd_graph_print(&v->graph, &text);
    puts(text.text);
    gd_strbuf_deinit(&text);
  }
  printf("%-10s %5u ops, %3u clusters, activations %.1f MiB (live %.1f), pass took %.3f s\n",
         names[which], v->plan.n_order[GD_PROGRAM_MICRO_STEP], v->graph.n_fusions,
         (double)v->plan.bytes[GD_CATEGORY_ACTIVATIONS] / 1048576,
         (double)v->plan.live_bytes / 1048576, micro_step_s);
  begin = gd_clock_ns();
  must(gd_run_open(&v->run, v->backend, &v->plan, NULL, &err));
  printf("%-10s bound in %.3f s\n", "", (double)(gd_clock_ns() - begin) * 1e-9);
  must(gd_run_init(&v->run, 5, &err));
  must(gd_run_random_batch(&v->run, GD_RUN_FULL, model->family->classes(model), 7, &err));
  if (v->graph.dropout_seed != GD_NONE)
    must(gd_run_seed(&v->run, GD_RUN_FULL, 9, 1, 0, &err));
  v->best_s = v->best_cpu_s = HUGE_VAL;
}

static void once(struct variant *v) {
  double begin_cpu = cpu_s();
  int64_t begin = gd_clock_ns();
  must(gd_run_micro_step(&v->run, GD_RUN_FULL, &err));
  v->best_s = fmin(v->best_s, (double)(gd_clock_ns() - begin) * 1e-9);
  v->best_cpu_s = fmin(v->best_cpu_s, cpu_s() - begin_cpu);
  must(gd_run_take_loss(&v->run, &v->loss, &err));
}

/* --- clusters alone -------------------------------------------------------------------------- */

static struct gd_view view_of(const struct gd_graph *body, void *const *memory, gd_tensor_id id) {
  const struct gd_tensor *t = &body->tensors[id];
  int64_t offset;
  gd_tensor_id root = gd_tensor_root(body, id, &offset);
  return (struct gd_view){.data = (char *)memory[root] + offset,
                          .dtype = t->dtype,
                          .rank = t->rank,
                          .dims = t->dims,
                          .elements = gd_tensor_elements(body, id)};
}

static void run_op(const struct gd_graph *body, const struct gd_op *op, void *const *memory,
                   void *workspace, int64_t bytes, int threads) {
  struct gd_view views[32];
  for (uint32_t i = 0; i < op->n_in; i++)
    views[i] = view_of(body, memory, op->in[i]);
  for (uint32_t i = 0; i < op->n_out; i++)
    views[op->n_in + i] = view_of(body, memory, op->out[i]);
  if (gd_cpu_kernels[op->kind])
    gd_cpu_kernels[op->kind](&(struct gd_kernel_args){.attr = &op->attr,
                                                      .n_in = op->n_in,
                                                      .n_out = op->n_out,
                                                      .in = views,
                                                      .out = views + op->n_in,
                                                      .workspace = workspace,
                                                      .workspace_bytes = bytes,
                                                      .threads = threads});
}

static void run_fused(const struct gd_fusion *f, const struct gd_fused_kernel *kernel,
                      void *const *memory, void *workspace, int64_t bytes, int threads) {
  struct gd_view in[64], out[GD_MAX_OUTPUTS];
  for (uint32_t i = 0; i < f->n_in; i++)
    in[i] = view_of(&f->body, memory, i);
  for (uint32_t i = 0; i < f->n_out; i++)
    out[i] = view_of(&f->body, memory, f->out[i]);
  gd_cpu_kernels[GD_OP_fused](&(struct gd_kernel_args){.fused = kernel,
                                                       .n_in = f->n_in,
                                                       .n_out = f->n_out,
                                                       .in = in,
                                                       .out = out,
                                                       .workspace = workspace,
                                                       .workspace_bytes = bytes,
                                                       .threads = threads});
}

static double total_ops_s, total_fused_s;

static void measure_cluster(const struct gd_fusion *f, const struct gd_fused_kernel *kernel,
                            int count, int threads) {
  enum { TIMES = 12 };
  const struct gd_graph *body = &f->body;
  void **memory = gd_mem_alloc(body->n_tensors, sizeof *memory);
  int64_t bytes = gd_cpu_workspace_bytes(threads, gd_graph_widest_row(body));
  void *workspace = aligned_alloc(64, (size_t)bytes + 64);
  double ops_s = HUGE_VAL, fused_s = HUGE_VAL;
  for (gd_tensor_id id = 0; id < body->n_tensors; id++) {
    if (body->tensors[id].alias_of != GD_NONE)
      continue;
    memory[id] = gd_mem_alloc((size_t)gd_tensor_bytes(body, id) + 64, 1);
    for (int64_t i = 0; body->tensors[id].dtype != GD_DTYPE_I32 && id < f->n_in &&
                        i < gd_tensor_elements(body, id);
         i++)
      gd_dtype_store(body->tensors[id].dtype, memory[id], i, (float)(i % 251) / 100 - 1.2F);
  }
  for (int time = 0; time < TIMES; time++) {
    double begin = cpu_s();
    for (gd_op_id id = 0; id < body->n_ops; id++)
      run_op(body, &body->ops[id], memory, workspace, bytes, threads);
    ops_s = fmin(ops_s, cpu_s() - begin);
    begin = cpu_s();
    run_fused(f, kernel, memory, workspace, bytes, threads);
    fused_s = fmin(fused_s, cpu_s() - begin);
  }
  total_ops_s += count * ops_s;
  total_fused_s += count * fused_s;
  printf("%3d x %8.3f ms -> %8.3f ms  %5.2fx  [%lld,%lld]", count, ops_s * 1e3, fused_s * 1e3,
         ops_s / fused_s, (long long)f->rows, (long long)f->columns);
  for (gd_op_id id = 0; id < body->n_ops; id++)
    printf(" %s", gd_op_info(body->ops[id].kind)->name);
  printf("\n");
  for (gd_tensor_id id = 0; id < body->n_tensors; id++)
    gd_mem_free(memory[id]);
  gd_mem_free(memory);
  free(workspace);
}

static void measure_clusters(const struct gd_graph *graph) {
  struct gd_codegen *code;
  const char *threads = getenv("OMP_NUM_THREADS");
  must(gd_codegen_build(graph, &code, &err));
  for (uint32_t i = 0; i < graph->n_fusions; i++) {
    const struct gd_fused_kernel *kernel = gd_codegen_kernel(code, i);
    int count = 0;
    bool seen = false;
    for (uint32_t j = 0; j < graph->n_fusions; j++) {
      bool same = gd_codegen_kernel(code, j)->function == kernel->function;
      count += same;
      seen |= same && j < i;
    }
    if (!seen)
      measure_cluster(&graph->fusions[i], kernel, count,
                      threads ? (int)strtol(threads, NULL, 10) : 1);
  }
  printf("all:  %8.3f ms -> %8.3f ms  %5.2fx\n", total_ops_s * 1e3, total_fused_s * 1e3,
         total_ops_s / total_fused_s);
  gd_codegen_free(code);
}

int main(int argc, char **argv) {
  static struct variant variants[VARIANTS];
  struct gd_model model;
  bool explain = argc > 1 && strcmp(argv[argc - 1], "--explain") == 0;
  bool clusters = argc > 1 && strcmp(argv[argc - 1], "--clusters") == 0;
  argc -= explain || clusters;
  if (argc < 2) {
    fprintf(stderr, "usage: bench_compile MODEL [MICRO_BATCH [PASSES]] [--explain|--clusters]\n");
    return 2;
  }
  must(gd_model_load(argv[1], &model, &err));
  int64_t micro_batch = argc > 2 ? strtoll(argv[2], NULL, 10) : 1;
  int passes = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 5;
  for (int i = 0; i < VARIANTS; i++)
    prepare(&variants[i], i, &model, micro_batch, explain);
  if (clusters) {
    measure_clusters(&variants[COMPILED].graph);
    passes = 0;
  }
  for (int pass = 0; pass < passes; pass++)
    for (int i = 0; i < VARIANTS; i++)
      once(&variants[i]);
  for (int i = 0; i < VARIANTS && passes > 0; i++)
    printf("%-10s pass %.1f ms, %.3fx; CPU time %.1f ms, %.3fx (best of %d); loss %.7f\n", names[i],
           variants[i].best_s * 1e3, variants[0].best_s / variants[i].best_s,
           variants[i].best_cpu_s * 1e3, variants[0].best_cpu_s / variants[i].best_cpu_s, passes,
           variants[i].loss);
  for (int i = 0; i < VARIANTS; i++) {
    gd_run_close(&variants[i].run);
    gd_backend_close(variants[i].backend);
    gd_plan_deinit(&variants[i].plan);
    gd_graph_deinit(&variants[i].graph);
  }
  return 0;
}
