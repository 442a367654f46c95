/*
 * The paper's stack: that a fit finds parameters that are known, that what is left out has no
 * influence on it, that memory behaves as memory does, what its clock misses, which methods it
 * chooses, and how the cells are sorted.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "predict/stack_paper.h"
#include "report/stack_plan.h"

static int load(void **state) {
  static struct gd_stack stack;
  struct gd_error err = {0};
  *state = &stack;
  return gd_stack_load(&stack, &err) == GD_OK ? 0 : -1;
}

static int unload(void **state) {
  gd_stack_deinit(*state);
  return 0;
}

static void test_groups(void **state) {
  const struct gd_stack *stack = *state;
  int counts[GD_STACK_GROUP_COUNT] = {0};
  for (int i = 0; i < stack->n_cells; i++)
    counts[stack->cells[i].group]++;
  assert_int_equal(counts[GD_STACK_FITTED], 193);
  assert_int_equal(counts[GD_STACK_APART], 24);
  assert_int_equal(counts[GD_STACK_IMPOSSIBLE], 14);
  assert_int_equal(counts[GD_STACK_INFEASIBLE], 57);
}

/* Tables that the model itself wrote, with other parameters than those a fit starts from. */
static void test_fit_recovers(void **state) {
  struct gd_stack *stack = *state;
  static double kept[512];
  struct gd_stack_fit truth, fit;
  static const double factor[GD_STACK_PARAMETERS] = {1.3, 0.75, 1.2, 0.85, 1.3, 0.7, 1.2};
  for (int i = 0; i < GD_STACK_PARAMETERS; i++)
    truth.value[i] = gd_stack_parameter((enum gd_stack_parameter)i)->start * factor[i];
  for (int i = 0; i < stack->n_cells; i++) {
    struct gd_stack_answer answer;
    gd_stack_cell_predict(&stack->cells[i], &truth, &answer);
    kept[i] = stack->paper.days[i].days;
    if (stack->cells[i].group == GD_STACK_FITTED)
      stack->paper.days[i].days = answer.days;
  }
  gd_stack_fit(stack, NULL, &fit);
  double worst = 0;
  for (int i = 0; i < stack->n_cells; i++) {
    struct gd_stack_answer answer;
    gd_stack_cell_predict(&stack->cells[i], &fit, &answer);
    if (stack->cells[i].group == GD_STACK_FITTED && answer.feasible)
      worst = fmax(worst, fabs(answer.days / stack->paper.days[i].days - 1));
    stack->paper.days[i].days = kept[i];
  }
  assert_int_equal(fit.cells, 193);
  for (int i = 0; i < GD_STACK_PARAMETERS; i++) /* the weak pull to the start is felt */
    if (!(fabs(log(fit.value[i] / truth.value[i])) < 0.15))
      fail_msg("%s: %g, not %g", gd_stack_parameter((enum gd_stack_parameter)i)->name, fit.value[i],
               truth.value[i]);
  if (!(worst < 0.05))
    fail_msg("days are off by %.1f %%", 100 * worst);
}

/* Whatever the cells that are left out say, the fit is the same to the last bit. */
static void test_left_out_is_unseen(void **state) {
  struct gd_stack *stack = *state;
  const struct gd_stack_leave leaves[] = {
      {.gpu = "h100"}, {.family = "Pythia"}, {.model = "pythia-410m"}};
  for (int l = 0; l < 3; l++) {
    struct gd_stack_fit before, after, all;
    static double kept[512];
    int left = 0;
    gd_stack_fit(stack, &leaves[l], &before);
    for (int i = 0; i < stack->n_cells; i++) {
      kept[i] = stack->paper.days[i].days;
      if (!gd_stack_leaves_out(&leaves[l], &stack->cells[i]))
        continue;
      left += stack->cells[i].group == GD_STACK_FITTED;
      stack->paper.days[i].days *= 7;
    }
    gd_stack_fit(stack, &leaves[l], &after);
    gd_stack_fit(stack, NULL, &all);
    for (int i = 0; i < stack->n_cells; i++)
      stack->paper.days[i].days = kept[i];
    assert_int_equal(before.cells, 193 - left);
    assert_memory_equal(before.value, after.value, sizeof before.value);
    assert_memory_not_equal(before.value, all.value, sizeof before.value);
  }
}

static const struct gd_stack_cell *find(const struct gd_stack *stack, enum gd_paper_table table,
                                        const char *model, const char *gpu, int count) {
  const struct gd_paper_days *cell = gd_paper_find(&stack->paper, table, model, gpu, count);
  return &stack->cells[cell - stack->paper.days];
}

static double bytes_of(const struct gd_stack_cell *cell, const char *name, double micro_batch,
                       double *host) {
  struct gd_method method;
  struct gd_stack_bytes bytes;
  assert_int_equal(gd_method_parse(name, &method, NULL), GD_OK);
  gd_stack_bytes(&cell->model->graphs[gd_stack_mode(&method)], &method, cell->paper->count,
                 micro_batch, &bytes);
  if (host)
    *host = bytes.host;
  return bytes.device;
}

static void test_memory(void **state) {
  const struct gd_stack_cell *cell = find(*state, GD_PAPER_OPTIMAL, "pythia-2.8b", "a100", 4);
  double parameters = cell->model->graphs[GD_STACK_HALF].parameters, host, none;
  double ddp = bytes_of(cell, "free-lunch", 1, NULL),
         zero1 = bytes_of(cell, "free-lunch+zero1", 1, NULL);
  double zero2 = bytes_of(cell, "free-lunch+zero2", 1, NULL);
  double zero3 = bytes_of(cell, "free-lunch+zero3", 1, NULL);
  assert_true(parameters > 2.7e9 && parameters < 2.8e9);
  assert_true(ddp > 16 * parameters);
  assert_true(ddp > zero1 && zero1 > zero2 && zero2 > zero3);
  /* Gradients: 2 bytes a parameter, of which ZeRO 2 keeps a quarter. */
  assert_true(fabs(zero1 - zero2 - 1.5 * parameters) < 1e6);
  assert_true(bytes_of(cell, "free-lunch+ckpt+zero1", 4, NULL) <
              bytes_of(cell, "free-lunch+zero1", 4, NULL));
  bytes_of(cell, "free-lunch+zero1", 1, &none);
  assert_true(none == 0);
  assert_true(bytes_of(cell, "free-lunch+zero1+offload", 1, &host) < zero1);
  assert_true(fabs(host - 4 * parameters) < 1e6); /* 16 bytes, shared by 4 */
  double one = bytes_of(cell, "free-lunch", 1, NULL), two = bytes_of(cell, "free-lunch", 2, NULL);
  double naive = bytes_of(cell, "naive", 2, NULL) - bytes_of(cell, "naive", 1, NULL);
  assert_true(fabs(bytes_of(cell, "free-lunch", 5, NULL) - (one + 4 * (two - one))) < 1e3);
  assert_true(naive > 3 * (two - one)); /* 32 layers of 32 heads of scores */
}

/* Pythia-6.9B on one GPU: not for want of GPU memory alone, but of the host's 64 GB. */
static void test_host_memory(void **state) {
  const struct gd_stack *stack = *state;
  for (int i = 0; i < stack->n_cells; i++) {
    const struct gd_stack_cell *cell = &stack->cells[i];
    if (cell->paper->table != GD_PAPER_OPTIMAL || cell->paper->count != 1 ||
        strcmp(cell->paper->model, "pythia-6.9b") != 0)
      continue;
    assert_int_equal(cell->n_points, 12);
    for (int p = 0; p < cell->n_points; p++)
      assert_int_equal(cell->points[p].micro_batch, 0);
    double host, device = bytes_of(cell, "free-lunch+ckpt+zero3+offload", 1, &host);
    assert_true(device < 24e9 && host > 64e9);
  }
}

/* Faster GPUs are faster, and more of them too. */
static void test_order(void **state) {
  const struct gd_stack *stack = *state;
  struct gd_stack_fit fit;
  static const char *const gpus[] = {"3090", "a6000", "a100", "h100"};
  gd_stack_fit(stack, NULL, &fit);
  double last = HUGE_VAL;
  for (int g = 0; g < 4; g++) {
    struct gd_stack_answer one, eight;
    gd_stack_cell_predict(find(stack, GD_PAPER_OPTIMAL, "pythia-410m", gpus[g], 1), &fit, &one);
    gd_stack_cell_predict(find(stack, GD_PAPER_OPTIMAL, "pythia-410m", gpus[g], 8), &fit, &eight);
    assert_true(one.feasible && one.days < last);
    assert_true(eight.days < one.days && eight.days > one.days / 9);
    last = one.days;
  }
  /* No prediction is above the peak, whatever the paper says. */
  for (int i = 0; i < stack->n_cells; i++) {
    const struct gd_stack_cell *cell = &stack->cells[i];
    struct gd_stack_answer answer;
    gd_stack_cell_predict(cell, &fit, &answer);
    if (cell->paper->days > 0 && answer.feasible)
      assert_true(cell->share * cell->paper->days / answer.days < 1);
  }
}

/* Seconds of a step as the paper's clock has it, and as a run takes, of a method in a cell. */
static struct gd_stack_time time_of(const struct gd_stack_cell *cell, const char *name,
                                    const struct gd_stack_fit *fit) {
  struct gd_method method;
  struct gd_stack_point point;
  struct gd_stack_time time;
  assert_int_equal(gd_method_parse(name, &method, NULL), GD_OK);
  gd_stack_point(cell->model, &method, &cell->target, cell->model->model.recipe.batch, NULL,
                 &point);
  assert_true(point.micro_batch > 0);
  gd_stack_time(cell->model, &point, &cell->target, fit, &time);
  return time;
}

/* The clock misses something only where nothing waits for the GPU, and less the more is launched.
 */
static void test_clock(void **state) {
  const struct gd_stack_cell *cell = find(*state, GD_PAPER_OPTIMAL, "pythia-1b", "a100", 4);
  const struct gd_stack_cell *small = find(*state, GD_PAPER_OPTIMAL, "pythia-1b", "a6000", 1);
  static const char *const waits[] = {"zero2", "zero3", "fsdp2", "fsdp3", "zero1+offload"};
  struct gd_stack_fit fit, none;
  gd_stack_fit(*state, NULL, &fit);
  none = fit;
  none.value[GD_STACK_AHEAD] = 0;
  for (int i = 0; i < 5; i++) {
    char name[64];
    snprintf(name, sizeof name, "free-lunch+%s", waits[i]);
    struct gd_stack_time time = time_of(cell, name, &fit);
    assert_true(fabs(time.step_s / time.waited_s - 1) < 1e-12);
  }
  for (int i = 0; i < 2; i++) {
    const char *name = i ? "free-lunch+zero1" : "free-lunch";
    struct gd_stack_time time = time_of(cell, name, &fit), whole = time_of(cell, name, &none);
    assert_true(time.step_s < 0.95 * time.waited_s);
    assert_true(fabs(time.waited_s / whole.waited_s - 1) < 1e-12);
  }
  struct gd_stack_time plain = time_of(small, "free-lunch", &fit),
                       again = time_of(small, "free-lunch+ckpt", &fit);
  assert_true(again.step_s / again.waited_s > plain.step_s / plain.waited_s);
}

/* What a multiplier means keeps it from being less than 1, whatever is left out. */
static void test_bounds(void **state) {
  const struct gd_stack *stack = *state;
  static const char *const gpus[] = {NULL, "3090", "a6000", "a100", "h100"};
  for (int g = 0; g < 5; g++) {
    struct gd_stack_fit fit;
    gd_stack_fit(stack, &(struct gd_stack_leave){.gpu = gpus[g]}, &fit);
    for (int i = 0; i < GD_STACK_PARAMETERS; i++)
      assert_true(fit.value[i] > gd_stack_parameter((enum gd_stack_parameter)i)->least);
  }
  assert_true(gd_stack_parameter(GD_STACK_EAGER)->least >= 1);
}

/* The paper's methods, found by fits that have not seen the GPU. */
static void test_choices(void **state) {
  const struct gd_stack *stack = *state;
  static const char *const gpus[] = {"3090", "a6000", "a100", "h100"};
  int right = 0, within = 0, of = 0;
  for (int g = 0; g < 4; g++) {
    struct gd_stack_fit fit;
    gd_stack_fit(stack, &(struct gd_stack_leave){.gpu = gpus[g]}, &fit);
    for (int i = 0; i < stack->n_cells; i++) {
      const struct gd_stack_cell *cell = &stack->cells[i];
      struct gd_stack_answer answer;
      if (cell->paper->table != GD_PAPER_OPTIMAL || !cell->setting ||
          strcmp(cell->paper->gpu, gpus[g]) != 0)
        continue;
      gd_stack_cell_predict(cell, &fit, &answer);
      double regret = gd_stack_cell_regret(cell, &fit);
      of++;
      right += answer.point == cell->setting;
      within += regret >= 0 && regret <= 0.05;
    }
  }
  assert_int_equal(of, 140);
  assert_true(right >= 85);
  assert_true(within >= 90);
}

static void test_rounding(void **state) {
  const struct gd_stack_cell *small = find(*state, GD_PAPER_OPTIMAL, "pythia-160m", "h100", 8);
  const struct gd_stack_cell *large = find(*state, GD_PAPER_OPTIMAL, "pythia-1b", "a100", 1);
  assert_true(gd_stack_cell_error(small, 1.4) == 0); /* 1 day, give or take a half */
  assert_true(fabs(gd_stack_cell_error(small, 2) - 0.5) < 1e-9);
  assert_true(fabs(gd_stack_cell_error(large, 79.2) - 0.1) < 1e-9);
}

static void test_scores(void **state) {
  (void)state;
  double errors[] = {0.5, 0.1, 0.3, 0.2};
  struct gd_accuracy_score score = gd_accuracy_score(errors, 4);
  assert_true(fabs(score.median - 0.25) < 1e-12 && fabs(score.p90 - 0.5) < 1e-12);
  assert_int_equal(gd_accuracy_score(NULL, 0).count, 0);
}

/* Plans by the same model: ranked, with the memory that is short, and no method that it lacks. */
static void test_plan(void **state) {
  struct gd_model models[2];
  struct gd_method methods[3];
  struct gd_error err = {0};
  struct gd_stack_plan plan;
  struct gd_stack_asked asked = {.models = models,
                                 .n_models = 2,
                                 .methods = methods,
                                 .n_methods = 2,
                                 .gpu = "3090",
                                 .count = 1};
  (void)state;
  assert_int_equal(gd_model_load("pythia-160m", &models[0], &err), GD_OK);
  assert_int_equal(gd_model_load("pythia-6.9b", &models[1], &err), GD_OK);
  assert_int_equal(gd_method_parse("naive", &methods[0], &err), GD_OK);
  assert_int_equal(gd_method_parse("free-lunch", &methods[1], &err), GD_OK);
  assert_int_equal(gd_method_parse("compile", &methods[2], &err), GD_OK);
  assert_int_equal(gd_stack_plan_make(&asked, &plan, &err), GD_OK);
  assert_int_equal(plan.count, 4);
  assert_true(plan.rows[0].fits && plan.rows[1].fits && !plan.rows[2].fits && !plan.rows[3].fits);
  assert_true(plan.rows[0].days < plan.rows[1].days);
  assert_int_equal(plan.rows[0].number, 1); /* free-lunch is faster, and was asked for second */
  assert_true(plan.validated && plan.low < 1 && plan.high > 1);
  struct gd_stack_miss miss = gd_stack_plan_miss(&plan, &plan.rows[2]);
  assert_true(!miss.host && miss.need_bytes > miss.have_bytes);
  gd_stack_plan_deinit(&plan);
  asked.n_methods = 3;
  assert_int_equal(gd_stack_plan_make(&asked, &plan, &err), GD_UNSUPPORTED);
  gd_stack_plan_deinit(&plan);
  models[0].recipe.batch = 3;
  asked.n_methods = 2;
  asked.count = 2;
  assert_int_equal(gd_stack_plan_make(&asked, &plan, &err), GD_BAD_INPUT);
  gd_stack_plan_deinit(&plan);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_groups),
      cmocka_unit_test(test_fit_recovers),
      cmocka_unit_test(test_left_out_is_unseen),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_host_memory),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_clock),
      cmocka_unit_test(test_bounds),
      cmocka_unit_test(test_choices),
      cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_scores),
      cmocka_unit_test(test_plan),
  };
  return cmocka_run_group_tests(tests, load, unload);
}
