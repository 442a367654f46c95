/*
 * What the recompute pass makes again and what it keeps where there is memory to spare: same bits,
 * fewer ops, more activations, block by block; and how many blocks a trial lets keep.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hw/hw.h"
#include "support/ok.h"
#include "support/small_run.h"
#include "trial/choose.h"

static int64_t saved_blocks;

static enum gd_status recompute(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  struct gd_setup setup = *ctx->setup;
  setup.saved_blocks = saved_blocks;
  struct gd_pass_ctx with = {&setup, ctx->err};
  return gd_pass_recompute(&with, graph);
}

static void start(struct small_run *s, const char *reference, int64_t kept) {
  saved_blocks = kept;
  small_start(s,
              &(struct small_setup){.reference = reference, .backend = "cpu", .after = recompute});
}

static void test_saved_blocks(void **state) {
  (void)state;
  for (int i = 0; small_references[i]; i++) {
    struct small_run none, some, all;
    const char *name = small_references[i];
    start(&none, name, 0);
    start(&some, name, 1);
    start(&all, name, 1000);
    double loss = small_pass(&none);
    assert_true(small_pass(&some) == loss && small_pass(&all) == loss);
    assert_true(small_worst_gradient(&some, &none, NULL) == 0);
    assert_true(small_worst_gradient(&all, &none, NULL) == 0);
    if (!(all.graph.n_ops < some.graph.n_ops && some.graph.n_ops < none.graph.n_ops))
      fail_msg("%s: %u ops, with one block kept %u, with all %u", name, none.graph.n_ops,
               some.graph.n_ops, all.graph.n_ops);
    assert_true(all.plan.bytes[GD_CATEGORY_ACTIVATIONS] > none.plan.bytes[GD_CATEGORY_ACTIVATIONS]);
    small_stop(&none);
    small_stop(&some);
    small_stop(&all);
  }
}

/* On a GPU, within what it has: more memory, more blocks, never past the limit; on a CPU none. */
static void test_trial_keeps(void **state) {
  (void)state;
  struct gd_error err = {0};
  struct gd_hw hw = {0};
  struct gd_model model;
  struct gd_target target;
  OK(gd_hw_load(&hw, &err));
  OK(gd_model_load("pythia-160m", &model, &err));
  OK(gd_hw_target(&hw, "h200", 1, 1, NULL, NULL, &target, &err));
  struct gd_trial_options options = {.target = &target,
                                     .micro_batch = GD_MICRO_BATCH_FIXED,
                                     .micro_batch_size = 32,
                                     .method = {.compile = true, .kernels = true}};
  int64_t kept = -1;
  static const int64_t gib[] = {15, 17, 20, 60};
  for (size_t i = 0; i < sizeof gib / sizeof *gib; i++) {
    struct gd_trial trial;
    options.device_limit_bytes = gib[i] << 30;
    OK(gd_trial_plan(&model, &options, &trial, &err));
    assert_int_equal(trial.status, GD_TRIAL_PLANNED);
    assert_true(trial.peak_bytes <= options.device_limit_bytes);
    assert_true(trial.saved_blocks >= kept);
    kept = trial.saved_blocks;
    if (i == 0)
      assert_int_equal(kept, 0);
    options.saves_nothing = true;
    OK(gd_trial_plan(&model, &options, &trial, &err));
    assert_int_equal(trial.saved_blocks, 0);
    options.saves_nothing = false;
  }
  assert_int_equal(kept, 12);
  gd_hw_deinit(&hw);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_saved_blocks),
      cmocka_unit_test(test_trial_keeps),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
