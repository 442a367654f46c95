/*
 * The choice of a plan against a search of all sizes, and the bounds by which it leaves sizes out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pass/graph_cache.h"
#include "pass/pass.h"
#include "trial/choose.h"

enum { RANKS = 2, MOST_BLOCKS = 16, MOST_POWERS = 5 };

static struct gd_target target;

static struct gd_setup setup_of(const struct gd_model *model, const char *method,
                                struct gd_graph_cache *cache) {
  struct gd_caps caps;
  struct gd_error err = {0};
  bool substituted;
  struct gd_setup setup = {.model = model, .ranks = RANKS, .micro_batch = 1, .cache = cache};
  gd_target_caps(&target, &caps);
  assert_int_equal(gd_method_parse(method, &setup.method, &err), GD_OK);
  gd_setup_device(&setup, &caps);
  assert_int_equal(gd_setup_precision(model, &caps, NULL, &setup.precision, &substituted, &err),
                   GD_OK);
  return setup;
}

/* What was planned for a micro-batch of 2^power with so many saving layers. */
struct planned {
  int64_t device_bytes, state_bytes;
};

static struct planned plan(struct gd_setup setup, int64_t micro_batch, int64_t saved) {
  struct gd_graph graph = {0};
  struct gd_plan made;
  struct gd_caps caps;
  struct gd_error err = {0};
  gd_target_caps(&target, &caps);
  setup.micro_batch = micro_batch;
  setup.saved_blocks = saved;
  if (gd_pipeline_build(&setup, &graph, &err) != GD_OK ||
      gd_plan_make(&graph, &caps, &made, &err) != GD_OK)
    fail_msg("%s", err.text);
  struct planned planned = {made.device_bytes, made.bytes[GD_CATEGORY_PARAMETERS] +
                                                   made.bytes[GD_CATEGORY_GRADIENTS] +
                                                   made.bytes[GD_CATEGORY_OPTIMIZER]};
  gd_plan_deinit(&made);
  gd_graph_deinit(&graph);
  return planned;
}

/* Every size of a method: bytes[power][saved]. */
struct sizes {
  int64_t bytes[MOST_POWERS][MOST_BLOCKS + 1];
  int powers, blocks;
};

static void plan_all(const struct gd_setup *setup, int blocks, struct sizes *sizes) {
  sizes->blocks = blocks;
  sizes->powers = 0;
  for (int64_t size = 1; size <= setup->model->recipe.batch / RANKS; size *= 2, sizes->powers++)
    for (int saved = 0; saved <= blocks; saved++)
      sizes->bytes[sizes->powers][saved] = plan(*setup, size, saved).device_bytes;
}

/* The largest micro-batch that fits with nothing saved, and the most layers that then save. */
static void search_all(const struct sizes *sizes, int64_t limit_bytes, int64_t *micro_batch,
                       int64_t *bytes) {
  const int64_t save_bytes = limit_bytes / 32 * 31;
  *micro_batch = 0;
  *bytes = sizes->bytes[0][0];
  for (int power = 0; power < sizes->powers; power++)
    if (sizes->bytes[power][0] <= limit_bytes) {
      *micro_batch = (int64_t)1 << power;
      *bytes = sizes->bytes[power][0];
      for (int saved = 1; saved <= sizes->blocks; saved++)
        if (sizes->bytes[power][saved] <= save_bytes)
          *bytes = sizes->bytes[power][saved];
    }
}

static void compare(const struct gd_model *model, const char *method, struct gd_graph_cache *cache,
                    const struct sizes *sizes) {
  enum { LIMITS = 37 };
  const int64_t least = sizes->bytes[0][0], most = sizes->bytes[sizes->powers - 1][sizes->blocks];
  struct gd_planner *kept = gd_planner_new(model);
  assert_non_null(kept);
  for (int i = 0; i <= LIMITS; i++) {
    struct gd_trial_options options = {.target = &target, .graphs = cache};
    struct gd_error err = {0};
    int64_t micro_batch, bytes;
    options.device_limit_bytes = least / 20 * 19 + (most / 20 * 22 - least / 20 * 19) / LIMITS * i;
    assert_int_equal(gd_method_parse(method, &options.method, &err), GD_OK);
    search_all(sizes, options.device_limit_bytes, &micro_batch, &bytes);
    for (int with_kept = 0; with_kept < 2; with_kept++) {
      struct gd_planner *planner = with_kept ? kept : gd_planner_new(model);
      struct gd_candidate full = {0};
      struct gd_trial trial;
      assert_non_null(planner);
      if (gd_planner_choose(planner, &options, &trial, &full, &err) != GD_OK)
        fail_msg("%s", err.text);
      assert_int_equal(trial.status == GD_TRIAL_INFEASIBLE, micro_batch == 0);
      assert_int_equal(trial.micro_batch, micro_batch ? micro_batch : 1);
      assert_int_equal(trial.peak_bytes, bytes);
      if (with_kept)
        gd_planner_return(planner, &full);
      gd_candidate_deinit(&full);
      if (!with_kept)
        gd_planner_free(planner);
    }
  }
  gd_planner_free(kept);
}

static void compare_methods(const char *name, int64_t seq, int blocks,
                            struct gd_graph_cache *cache) {
  static const char *const methods[] = {"naive",
                                        "free-lunch",
                                        "free-lunch+ckpt",
                                        "free-lunch+zero1",
                                        "free-lunch+zero2+offload",
                                        "free-lunch+zero3",
                                        "free-lunch+fsdp2",
                                        "free-lunch+fsdp3+offload",
                                        "free-lunch+ckpt+zero2"};
  struct gd_model model;
  struct gd_error err = {0};
  assert_int_equal(gd_model_load(name, &model, &err), GD_OK);
  if (seq)
    model.recipe.seq = seq;
  model.recipe.batch = RANKS << (MOST_POWERS - 1);
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
    struct sizes sizes;
    struct gd_setup setup = setup_of(&model, methods[i], NULL);
    plan_all(&setup, blocks, &sizes);
    compare(&model, methods[i], cache, &sizes);
  }
}

/* With and without what methods have in common: guesses and bounds change no answer. */
static void test_all_sizes(void **state) {
  static const struct {
    const char *model;
    int64_t seq;
    int blocks;
  } cases[] = {{"pythia-14m", 513, 6}, {"gpt2", 65, 12}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_graph_cache *cache = gd_graph_cache_new();
    assert_non_null(cache);
    compare_methods(cases[i].model, cases[i].seq, cases[i].blocks, cache);
    gd_graph_cache_free(cache);
  }
  compare_methods("pythia-14m", 65, 6, NULL);
}

/* What a graph says that each of its plans has, no plan is without: for some layers that save, too,
   of which only graphs are asked where none or all do. */
static void test_least(void **state) {
  static const char *const models[] = {"pythia-14m", "gpt2",         "smollm-135m",
                                       "mamba-130m", "roberta-base", "vit-base"};
  static const char *const methods[] = {"naive", "free-lunch+zero1+offload",
                                        "free-lunch+ckpt+zero3", "free-lunch+fsdp3"};
  (void)state;
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    struct gd_graph_cache *cache = gd_graph_cache_new();
    struct gd_error err = {0};
    struct gd_model model;
    assert_int_equal(gd_model_load(models[m], &model, &err), GD_OK);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
      struct gd_setup setup = setup_of(&model, methods[i], cache);
      struct gd_graph_least none, all;
      setup.micro_batch = 2;
      assert_int_equal(gd_pipeline_least(&setup, 0, &none, &err), GD_OK);
      const int64_t saved[] = {0, 1, none.blocks / 2, none.blocks};
      assert_true(none.blocks > 2 && none.last.bytes == 0);
      for (size_t s = 0; s < sizeof saved / sizeof *saved; s++) {
        struct planned planned = plan(setup, 2, saved[s]);
        setup.saved_blocks = 0;
        assert_int_equal(gd_pipeline_least(&setup, saved[s], &none, &err), GD_OK);
        setup.saved_blocks = INT64_MAX;
        assert_int_equal(gd_pipeline_least(&setup, saved[s], &all, &err), GD_OK);
        int64_t least = none.all.bytes - none.last.bytes + all.last.bytes;
        print_message("%s %s, %d layers save: %.1f of %.1f MiB of activations\n", models[m],
                      methods[i], (int)saved[s], (double)least / 0x1p20,
                      (double)(planned.device_bytes - planned.state_bytes) / 0x1p20);
        assert_true(least > 0 && planned.state_bytes + least <= planned.device_bytes);
      }
    }
    gd_graph_cache_free(cache);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_sizes),
      cmocka_unit_test(test_least),
  };
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  if (gd_hw_load(&hw, &err) != GD_OK ||
      gd_hw_target(&hw, "a100", RANKS, 1, NULL, NULL, &target, &err) != GD_OK) {
    fprintf(stderr, "%s\n", err.text);
    return 1;
  }
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  gd_hw_deinit(&hw);
  return failed;
}
