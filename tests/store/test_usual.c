/*
 * Recipes that go without saying: the preset's, and of other models that of the first trial.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "store/store_usual.h"
#include "support/ok.h"

/* A trial of ten steps of 64 x 128; steps 0: its numbers tell nothing. */
static struct gd_trial *trial_of(const char *model, const char *recipe) {
  static struct gd_trial trial;
  trial = (struct gd_trial){.status = GD_TRIAL_OK,
                            .precision = GD_PRECISION_FP32,
                            .micro_batch = 16,
                            .accumulation = 2,
                            .ranks = 2,
                            .model_flops_per_step = 3e9,
                            .train_flops = 3e10,
                            .samples_per_s = 5,
                            .tokens_per_s = 640};
  snprintf(trial.model, sizeof trial.model, "%s", model);
  snprintf(trial.recipe, sizeof trial.recipe, "%s", recipe);
  return &trial;
}

static void a_preset_has_its_own(void **state) {
  struct gd_usual_recipes usual = {0};
  struct gd_usual_compared of;
  struct gd_error err = {0};
  struct gd_model model;
  char hash[GD_HASH_TEXT];
  (void)state;
  OK(gd_model_load("pythia-14m", &model, &err));
  OK(gd_recipe_hash(&model, NULL, hash, &err));
  OK(gd_usual_compare(&usual, trial_of("pythia-14m", hash), &of, &err));
  assert_true(of.known && !of.differs && !of.images);
  OK(gd_usual_compare(&usual, trial_of("pythia-14m", "0123"), &of, &err));
  assert_true(of.known && of.differs && of.precision_differs);
  assert_int_equal(of.recipe.batch, 64);
  assert_int_equal(of.recipe.seq, 128);
  assert_int_equal(of.recipe.steps, 10);
  struct gd_trial *planned = trial_of("pythia-14m", hash);
  planned->samples_per_s = planned->tokens_per_s = 0;
  OK(gd_usual_compare(&usual, planned, &of, &err));
  assert_int_equal(of.recipe.seq, model.recipe.seq);
  OK(gd_usual_compare(&usual, trial_of("vit", "0123"), &of, &err));
  assert_true(of.images);
  assert_int_equal(usual.count, 2);
  gd_usual_deinit(&usual);
}

static void another_model_has_that_of_its_first_trial(void **state) {
  struct gd_usual_recipes usual = {0};
  struct gd_usual_compared of;
  struct gd_error err = {0};
  (void)state;
  OK(gd_usual_compare(&usual, trial_of("./mine", "aa"), &of, &err));
  assert_true(of.known && !of.differs && !of.precision_differs);
  OK(gd_usual_compare(&usual, trial_of("./mine", "bb"), &of, &err));
  assert_true(of.differs);
  OK(gd_usual_compare(&usual, trial_of("./mine", ""), &of, &err)); /* an old row: not known */
  assert_false(of.differs);
  struct gd_trial *failed = trial_of("./mine", "aa");
  failed->micro_batch = 0;
  OK(gd_usual_compare(&usual, failed, &of, &err));
  assert_false(of.known);
  gd_usual_deinit(&usual);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_preset_has_its_own),
      cmocka_unit_test(another_model_has_that_of_its_first_trial),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
