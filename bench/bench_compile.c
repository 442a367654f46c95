/*
 * What the compile method does to one model on this machine: passes with and without it, in turns,
 * on the same input; clusters, bytes of activations, and how long building the kernels takes.
 *
 *   bench_compile MODEL [MICRO_BATCH [PASSES]] [--explain]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
  double best_s, loss;
};

static void prepare(struct variant *v, int which, const struct gd_model *model, int64_t micro_batch,
                    bool explain) {
  struct gd_backend_options options = {0};
  struct gd_caps caps;
  bool substituted;
  must(gd_backend_open("cpu", &options, &v->backend, &err));
  v->backend->ops->caps(&options, &caps);
  struct gd_setup setup = {.model = model,
                           .precision = gd_setup_precision(model, &caps, NULL, &substituted),
                           .micro_batch = micro_batch};
  struct gd_pass_ctx ctx = {&setup, &err};
  must(gd_pipeline_build(&setup, &v->graph, &err));
  int64_t begin = gd_clock_ns();
  if (which >= RECOMPUTED)
    must(gd_pass_recompute(&ctx, &v->graph));
  if (which >= COMPILED)
    must(gd_pass_compile(&ctx, &v->graph));
  double pass_s = (double)(gd_clock_ns() - begin) * 1e-9;
  must(gd_graph_verify(&v->graph, &err));
  must(gd_plan_make(&v->graph, &caps, &v->plan, &err));
  if (explain && which == COMPILED) {
    struct gd_strbuf text = {0};
    gd_graph_print(&v->graph, &text);
    puts(text.text);
    gd_strbuf_deinit(&text);
  }
  printf("%-10s %5u ops, %3u clusters, activations %.1f MiB (live %.1f), pass took %.3f s\n",
         names[which], v->plan.n_order[GD_PROGRAM_PASS], v->graph.n_fusions,
         (double)v->plan.bytes[GD_CATEGORY_ACTIVATIONS] / 1048576,
         (double)v->plan.live_bytes / 1048576, pass_s);
  begin = gd_clock_ns();
  must(gd_run_open(&v->run, v->backend, &v->plan, NULL, &err));
  printf("%-10s bound in %.3f s\n", "", (double)(gd_clock_ns() - begin) * 1e-9);
  must(gd_run_init(&v->run, 5, &err));
  must(gd_run_random_batch(&v->run, GD_RUN_FULL, model->family->classes(model), 7, &err));
  if (v->graph.dropout_seed != GD_NONE)
    must(gd_run_seed(&v->run, GD_RUN_FULL, 9, 1, 0, &err));
  v->best_s = INFINITY;
}

static void once(struct variant *v) {
  int64_t begin = gd_clock_ns();
  must(gd_run_pass(&v->run, GD_RUN_FULL, &err));
  double seconds = (double)(gd_clock_ns() - begin) * 1e-9;
  v->best_s = seconds < v->best_s ? seconds : v->best_s;
  must(gd_run_take_loss(&v->run, &v->loss, &err));
}

int main(int argc, char **argv) {
  static struct variant variants[VARIANTS];
  struct gd_model model;
  bool explain = argc > 1 && strcmp(argv[argc - 1], "--explain") == 0;
  argc -= explain;
  if (argc < 2) {
    fprintf(stderr, "usage: bench_compile MODEL [MICRO_BATCH [PASSES]] [--explain]\n");
    return 2;
  }
  must(gd_model_load(argv[1], &model, &err));
  int64_t micro_batch = argc > 2 ? strtoll(argv[2], NULL, 10) : 1;
  int passes = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 5;
  for (int i = 0; i < VARIANTS; i++)
    prepare(&variants[i], i, &model, micro_batch, explain);
  for (int pass = 0; pass < passes; pass++)
    for (int i = 0; i < VARIANTS; i++)
      once(&variants[i]);
  for (int i = 0; i < VARIANTS; i++)
    printf("%-10s pass %.1f ms (best of %d), %.3fx, loss %.7f\n", names[i],
           variants[i].best_s * 1e3, passes, variants[0].best_s / variants[i].best_s,
           variants[i].loss);
  for (int i = 0; i < VARIANTS; i++) {
    gd_run_close(&variants[i].run);
    gd_backend_close(variants[i].backend);
    gd_plan_deinit(&variants[i].plan);
    gd_graph_deinit(&variants[i].graph);
  }
  return 0;
}
