/*
 * Why a run is slow, by runs that are simulated themselves: a step with a fault is explained by
 * that fault, one without any by none; a fault that is denied is no cause.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "predict/diagnosis.h"

struct fixture {
  struct gd_model model;
  struct gd_hw hw;
  struct gd_stacks stacks;
  struct gd_fitted fitted;
  struct gd_target target;
  struct gd_diagnosis_question q;
  struct gd_diagnosis d;
};

static void begin(struct fixture *f, const char *model, const char *gpu, int count) {
  *f = (struct fixture){0};
  struct gd_error err = {0};
  if (gd_model_load(model, &f->model, &err) != GD_OK || gd_hw_load(&f->hw, &err) != GD_OK ||
      gd_stacks_load(&f->stacks, &err) != GD_OK || gd_fitted_load(&f->fitted, &err) != GD_OK ||
      gd_hw_target(&f->hw, gpu, count, 0, NULL, NULL, &f->target, &err) != GD_OK ||
      gd_stacks_find(&f->stacks, "pytorch-compile", &f->q.facts, &err) != GD_OK)
    fail_msg("%s", err.text);
  f->q.model = &f->model;
  f->q.hw = &f->hw;
  f->q.target = &f->target;
  f->q.stacks = &f->stacks;
  f->q.fitted = &f->fitted;
  f->q.precision = GD_PRECISION_BF16;
  f->q.step_s = 100; /* more than any */
}

static void ask(struct fixture *f) {
  struct gd_error err = {0};
  gd_diagnosis_deinit(&f->d);
  if (gd_diagnosis_make(&f->q, &f->d, &err) != GD_OK)
    fail_msg("%s", err.text);
}

static const struct gd_found_cause *find(const struct fixture *f, const char *name) {
  for (int i = 0; i < f->d.count; i++)
    if (strcmp(f->d.causes[i].cause->name, name) == 0)
      return &f->d.causes[i];
  return NULL;
}

static void end(struct fixture *f) {
  gd_diagnosis_deinit(&f->d);
  gd_stacks_deinit(&f->stacks);
  gd_hw_deinit(&f->hw);
}

/* Every cause that a log can state, and micro-batches, is the first of a run that has it. */
static void test_each_cause(void **state) {
  (void)state;
  int count, tried = 0;
  const struct gd_cause *causes = gd_causes(&count);
  for (int i = 0; i < count; i++) {
    struct fixture f;
    bool small = strcmp(causes[i].name, "small-micro-batch") == 0;
    if (!small && (causes[i].fact == GD_RUN_FACT_COUNT || causes[i].fault == GD_RUN_UNKNOWN))
      continue;
    begin(&f, "gpt2", "a100", causes[i].multi_gpu ? 16 : 1);
    if (small)
      f.q.micro_batch = 1;
    else
      f.q.facts_said[causes[i].fact].answer = causes[i].fault;
    ask(&f);
    f.q.step_s = 2 * f.d.healthy_s;
    ask(&f);
    const struct gd_found_cause *found = find(&f, causes[i].name);
    if (!found)
      fail_msg("%s is not found", causes[i].name);
    f.q.step_s = found->with_s;
    ask(&f);
    if (f.d.count == 0 || strcmp(f.d.causes[0].cause->name, causes[i].name) != 0)
      fail_msg("%s is not the first", causes[i].name);
    assert_true(f.d.causes[0].probability > 0.9);
    assert_true(f.d.causes[0].n_evidence > 0 && f.d.causes[0].remedy[0]);
    assert_true(f.d.causes[0].without_s < f.d.causes[0].with_s);
    tried++;
    end(&f);
  }
  assert_true(tried >= 7);
}

static void test_without_fault(void **state) {
  (void)state;
  struct fixture f;
  begin(&f, "gpt2", "a100", 1);
  ask(&f);
  assert_true(f.d.bound_s > 0 && f.d.bound_s < f.d.healthy_s);
  assert_true(f.d.low_s < f.d.healthy_s && f.d.healthy_s < f.d.high_s);
  f.q.step_s = 1.02 * f.d.healthy_s;
  ask(&f);
  for (int i = 0; i < f.d.count; i++)
    assert_true(f.d.causes[i].probability < 0.5);
  f.q.step_s = 0.9 * f.d.healthy_s;
  ask(&f);
  assert_int_equal(f.d.count, 0);
  end(&f);
}

/* A run that is twice as slow and denies what would explain it has another reason. */
static void test_denied(void **state) {
  (void)state;
  struct fixture f;
  begin(&f, "gpt2", "a100", 1);
  ask(&f);
  f.q.step_s = 2 * f.d.healthy_s;
  ask(&f);
  double before = find(&f, "attention-scores")->probability;
  assert_true(before > 0.2);
  f.q.facts_said[GD_RUN_HALF].answer = GD_RUN_YES;
  ask(&f);
  assert_null(find(&f, "fp32-gemms"));
  assert_true(find(&f, "attention-scores")->probability > before);
  f.q.facts_said[GD_RUN_FUSED_ATTENTION].answer = GD_RUN_YES;
  ask(&f);
  assert_null(find(&f, "attention-scores"));
  assert_null(find(&f, "slow-links")); /* of one GPU */
  f.q.step_s = 1e6 * f.d.healthy_s;
  ask(&f);
  assert_true(f.d.unexplained > 0.99);
  end(&f);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_cause),
                                     cmocka_unit_test(test_without_fault),
                                     cmocka_unit_test(test_denied)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
