/*
 * Recipes with values that were asked for: what follows from them, and what makes no sense.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "support/ok.h"

static struct gd_recipe changed(const char *name, struct gd_recipe_change change) {
  struct gd_model model;
  struct gd_error err = {0};
  OK(gd_model_load(name, &model, &err));
  OK(gd_model_change_recipe(&model, &change, &err));
  return model.recipe;
}

static void refused(const char *name, struct gd_recipe_change change, const char *sentence) {
  struct gd_model model;
  struct gd_error err = {0};
  OK(gd_model_load(name, &model, &err));
  assert_int_equal(gd_model_change_recipe(&model, &change, &err), GD_BAD_INPUT);
  if (!strstr(err.text, sentence))
    fail_msg("\"%s\" lacks \"%s\"", err.text, sentence);
}

static void nothing_asked_changes_nothing(void **state) {
  struct gd_model model;
  struct gd_error err = {0};
  (void)state;
  OK(gd_model_load("pythia-14m", &model, &err));
  struct gd_recipe recipe = changed("pythia-14m", (struct gd_recipe_change){0});
  assert_int_equal(recipe.batch, model.recipe.batch);
  assert_int_equal(recipe.seq, model.recipe.seq);
  assert_int_equal(recipe.steps, model.recipe.steps);
  assert_int_equal(recipe.warmup_steps, model.recipe.warmup_steps);
  assert_int_equal(recipe.optimizer, model.recipe.optimizer);
}

static void tokens_are_whole_steps(void **state) {
  struct gd_recipe_change change = {.batch = 8, .seq = 128, .tokens = 10 * 8 * 128 + 1};
  (void)state;
  struct gd_recipe recipe = changed("pythia-14m", change);
  assert_int_equal(recipe.steps, 11);
  assert_int_equal(recipe.warmup_steps, 11); /* no longer than the run */
  change.tokens = 10 * 8 * 128;
  assert_int_equal(changed("pythia-14m", change).steps, 10);
}

static void an_optimizer_brings_its_own_decay(void **state) {
  static const enum gd_optimizer adam = GD_OPTIMIZER_ADAM;
  (void)state;
  struct gd_recipe recipe = changed("pythia-14m", (struct gd_recipe_change){.optimizer = &adam});
  assert_int_equal(recipe.optimizer, GD_OPTIMIZER_ADAM);
  assert_false(recipe.decoupled_decay);
}

static void what_makes_no_sense(void **state) {
  static const double half = 0.5, all = 1;
  (void)state;
  refused("vit", (struct gd_recipe_change){.seq = 128}, "--seq does not apply");
  refused("vit", (struct gd_recipe_change){.tokens = 1 << 30}, "--tokens does not apply");
  refused("vit", (struct gd_recipe_change){.drop_path = &all}, "--drop-path is 1");
  refused("pythia-14m", (struct gd_recipe_change){.drop_path = &half}, "models of images");
  refused("pythia-14m", (struct gd_recipe_change){.steps = 1, .tokens = 1 << 30}, "give one");
  refused("pythia-14m", (struct gd_recipe_change){.tokens = 300}, "did you mean 300B?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_asked_changes_nothing),
      cmocka_unit_test(tokens_are_whole_steps),
      cmocka_unit_test(an_optimizer_brings_its_own_decay),
      cmocka_unit_test(what_makes_no_sense),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
