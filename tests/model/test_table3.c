/*
 * Table 3 and Appendix E of the paper: sizes and training FLOPs of its nine models, counted on the
 * graph. docs/flops.md has the arithmetic where the paper's count cannot be right.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pass/pass.h"

static const struct {
  const char *name;
  int64_t parameters;
  double paper_flops;   /* Appendix E */
  double counted_flops; /* two digits; 0: the paper's */
} models[] = {
    {"pythia-160m", 162322944, 2.9e20, 0},
    {"pythia-410m", 405334016, 8.2e20, 0},
    {"pythia-1b", 1011781632, 1.9e21, 0},
    {"pythia-2.8b", 2775208960, 5.4e21, 0},
    {"pythia-6.9b", 6857302016, 1.3e22, 0},
    {"roberta", 355412057, 4.8e21, 0},
    {"vit", 325688657, 4.7e20, 0},
    {"mamba", 2768345600, 8.7e20, 5.0e21},
    {"convnext-xlarge-22k", 392900177, 1.4e21, 4.7e20},
    /* not in the table, but exact all the same */
    {"convnext-large-1k", 197767336, 0, 7.9e19},
    {"convnext-large-22k", 229799953, 0, 2.6e20},
    {"gpt2", 124439808, 0, 2.7e20},
    {"gpt2-medium", 354823168, 0, 7.6e20},
    {"gpt2-large", 774030080, 0, 1.6e21},
    {"gpt2-xl", 1557611200, 0, 3.2e21},
};

/* Rounded to two significant digits, as the paper prints. */
static double two_digits(double value) {
  double scale = pow(10, floor(log10(value)) - 1);
  return round(value / scale) * scale;
}

static void test_counts(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    struct gd_model model;
    struct gd_graph graph = {0};
    struct gd_error err = {0};
    if (gd_model_load(models[i].name, &model, &err) != GD_OK)
      fail_msg("%s", err.text);
    struct gd_setup setup = {.model = &model, .precision = GD_PRECISION_FP32, .micro_batch = 1};
    if (gd_pipeline_build(&setup, &graph, &err) != GD_OK)
      fail_msg("%s: %s", models[i].name, err.text);
    double flops = graph.model_flops * (double)model.recipe.batch * (double)model.recipe.steps;
    double expected = models[i].counted_flops > 0 ? models[i].counted_flops : models[i].paper_flops;
    print_message("%-20s %11lld parameters, %.3e FLOPs, paper %.1e\n", models[i].name,
                  (long long)gd_graph_parameters(&graph), flops, models[i].paper_flops);
    assert_int_equal(gd_graph_parameters(&graph), models[i].parameters);
    assert_true(fabs(two_digits(flops) / expected - 1) < 1e-9);
    gd_graph_deinit(&graph);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
