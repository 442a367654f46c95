/*
 * Small models for tests of passes; see small_run.h.
 */
#include "support/small_run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ir/autodiff.h"
#include "support/tiny.h"

const char *const small_references[] = {"neox-serial", "neox-tied", "gpt2-a",     "llama-a",
                                        "olmo",        "bert",      "roberta-a",  "mamba-a",
                                        "mamba-b",     "vit-a",     "convnext-a", NULL};

#define OK(expr)                              \
  do {                                        \
    if ((expr) != GD_OK)                      \
      fail_msg("%s: %s", #expr, s->err.text); \
  } while (0)

/* As gd_pipeline_build, with the two passes of the set-up. */
static void build(struct small_run *s, const struct small_setup *setup, int64_t micro_batch) {
  /* The passes are called here by name: all of them are meant to run. */
  struct gd_setup what = {.model = &s->model,
                          .precision = setup->precision,
                          .micro_batch = micro_batch,
                          .method = {.compile = true, .kernels = true, .tf32 = true}};
  struct gd_pass_ctx ctx = {&what, &s->err};
  gd_graph_init(&s->graph);
  s->graph.trims = setup->trims;
  s->model.family->build(&s->model, micro_batch, &s->graph);
  OK(gd_graph_check(&s->graph, &s->err));
  OK(gd_pass_precision(&ctx, &s->graph));
  if (setup->before)
    OK(setup->before(&s->graph, &s->err));
  OK(gd_graph_verify(&s->graph, &s->err));
  OK(gd_autodiff(&s->graph, &s->err));
  if (setup->after)
    OK(setup->after(&ctx, &s->graph));
  OK(gd_graph_verify(&s->graph, &s->err));
  struct gd_update update = {.adam = {.beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f},
                             .control = {.dynamic_scale = setup->precision == GD_PRECISION_FP16}};
  OK(gd_append_update(&s->graph, &update, &s->err));
  OK(gd_graph_verify(&s->graph, &s->err));
}

/* Causal models ignore a fifth of the labels, masked ones all but a seventh, images one. */
static int32_t label_of(const struct small_run *s, const struct small_setup *setup, int64_t i,
                        int64_t classes) {
  bool masked = strcmp(s->model.family->model_type, "bert") == 0 ||
                strcmp(s->model.family->model_type, "roberta") == 0;
  bool ignored =
      masked ? gd_rng_below(3, 2, (uint64_t)i, 7) != 0 : gd_rng_below(3, 2, (uint64_t)i, 5) == 0;
  if (s->model.family->images)
    ignored = i == 1;
  return ignored || setup->all_ignored ? -100 : (int32_t)gd_rng_below(3, 3, (uint64_t)i, classes);
}

static void set_batch(struct small_run *s, const struct small_setup *setup) {
  const struct gd_graph *graph = &s->graph;
  int64_t classes = s->model.family->classes(&s->model);
  int64_t n_labels = gd_tensor_elements(graph, graph->labels);
  int64_t n_in = gd_tensor_elements(graph, s->model.family->images ? graph->pixels : graph->ids);
  int32_t *labels = gd_mem_alloc((size_t)n_labels, sizeof *labels);
  int32_t *ids = gd_mem_alloc((size_t)n_in, sizeof *ids);
  float *pixels = gd_mem_alloc((size_t)n_in, sizeof *pixels);
  assert_true(labels && ids && pixels);
  for (int64_t i = 0; i < n_labels; i++)
    labels[i] = label_of(s, setup, i, classes);
  for (int64_t i = 0; i < n_in; i++) {
    ids[i] = (int32_t)gd_rng_below(3, 4, (uint64_t)i, classes);
    pixels[i] = 2 * gd_rng_uniform(3, 5, (uint64_t)i) - 1;
  }
  int64_t valid = gd_batch_valid_labels(graph, labels);
  struct gd_batch batch = {.labels = labels, .weight = 1.0 / (double)(valid ? valid : 1)};
  if (s->model.family->images)
    batch.pixels = pixels;
  else
    batch.ids = ids;
  OK(gd_run_batch(&s->run, GD_RUN_FULL, &batch, &s->err));
  if (graph->dropout_seed != GD_NONE)
    OK(gd_run_seed(&s->run, GD_RUN_FULL, 1, 0, 0, &s->err));
  gd_mem_free(labels);
  gd_mem_free(ids);
  gd_mem_free(pixels);
}

void small_start(struct small_run *s, const struct small_setup *setup) {
  struct gd_backend_options options = {.threads = setup->threads};
  struct gd_caps caps;
  char path[512];
  *s = (struct small_run){0};
  snprintf(path, sizeof path, "%s/tests/reference/%s/config.json", GD_SOURCE_DIR, setup->reference);
  if (setup->reference[0] == '{')
    OK(tiny_parse(setup->reference, &s->model, &s->err));
  else
    OK(gd_model_load(path, &s->model, &s->err));
  if (!s->model.family->images)
    s->model.recipe.seq = setup->seq ? setup->seq : 11;
  build(s, setup, setup->micro_batch ? setup->micro_batch : 3);
  OK(gd_backend_open(setup->backend, &options, &s->backend, &s->err));
  s->backend->ops->caps(&options, &caps);
  OK(gd_plan_make(&s->graph, &caps, &s->plan, &s->err));
  OK(gd_run_open(&s->run, s->backend, &s->plan, NULL, &s->err));
  OK(gd_run_init(&s->run, 5, &s->err));
  set_batch(s, setup);
}

void small_stop(struct small_run *s) {
  gd_run_close(&s->run);
  gd_backend_close(s->backend);
  gd_plan_deinit(&s->plan);
  gd_graph_deinit(&s->graph);
}

double small_pass(struct small_run *s) {
  double loss;
  OK(gd_run_micro_step(&s->run, GD_RUN_FULL, &s->err));
  OK(gd_run_take_loss(&s->run, &loss, &s->err));
  return loss;
}

/* The next GRAD leaf at or after *at; the caller frees the values. */
static float *next_gradient(struct small_run *s, gd_tensor_id *at, int64_t *count) {
  while (*at < s->graph.n_tensors && s->graph.tensors[*at].role != GD_ROLE_GRAD)
    ++*at;
  if (*at == s->graph.n_tensors)
    return NULL;
  *count = gd_tensor_elements(&s->graph, *at);
  float *values = gd_mem_alloc((size_t)*count, sizeof *values);
  assert_non_null(values);
  OK(gd_run_read(&s->run, *at, values, &s->err));
  return values;
}

double small_worst_gradient(struct small_run *a, struct small_run *b, const char **name) {
  double all = 0, worst = 0;
  for (int round = 0; round < 2; round++) { /* first the norm of all, then each against it */
    gd_tensor_id at_a = 0, at_b = 0;
    int64_t count, count_b;
    float *g;
    while ((g = next_gradient(a, &at_a, &count))) {
      float *r = next_gradient(b, &at_b, &count_b);
      assert_non_null(r);
      assert_string_equal(a->graph.tensors[at_a].name, b->graph.tensors[at_b].name);
      assert_int_equal(count, count_b);
      double squares = 0, errors = 0;
      for (int64_t i = 0; i < count; i++) {
        squares += (double)r[i] * (double)r[i];
        errors += ((double)g[i] - (double)r[i]) * ((double)g[i] - (double)r[i]);
      }
      double error = sqrt(errors) / fmax(fmax(sqrt(squares), 1e-4 * sqrt(all)), 1e-30);
      if (round == 0)
        all += squares;
      else if (!(error <= worst)) {
        worst = isnan(error) ? HUGE_VAL : error;
        if (name)
          *name = a->graph.tensors[at_a].name;
      }
      gd_mem_free(g);
      gd_mem_free(r);
      at_a++, at_b++;
    }
    assert_null(next_gradient(b, &at_b, &count_b));
  }
  return worst;
}
