/*
 * Runs in `accuracy`: the prediction of a run is that of a trial with its plan, and its error
 * counts neither among the trials' nor in a calibration.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/csv.h"
#include "report/accuracy.h"
#include "store/store_runs.h"
#include "support/ok.h"
#include "support/scratch.h"

/* The first measured trial of results/h200.csv, as a run that was a quarter slower. */
static void make_run(struct gd_run_record *run) {
  struct gd_csv csv = {0};
  struct gd_error err = {0};
  bool superseded = true;
  OK(gd_csv_load(&csv, GD_SOURCE_DIR "/results/h200.csv", &err));
  for (int i = 0; superseded || run->trial.status != GD_TRIAL_OK; i++)
    OK(gd_record_read_csv(&csv, i, &run->trial, NULL, &superseded, &err));
  gd_csv_deinit(&csv);
  run->trial.step_s *= 1.25;
  run->trial.samples_per_s /= 1.25;
  run->trial.tokens_per_s /= 1.25;
  run->last_step = 100;
  run->seconds = 150 * run->trial.step_s;
  run->expected_step_s = run->trial.step_s / 1.25;
  snprintf(run->folder, sizeof run->folder, "/runs/a");
  snprintf(run->expected_by, sizeof run->expected_by, "trial");
}

static void a_run_is_predicted_as_its_trial(void **state) {
  static struct gd_run_record run;
  struct gd_accuracy a = {0};
  struct gd_store *store = NULL;
  struct gd_error err = {0};
  const struct gd_accuracy_trial *same = NULL;
  (void)state;
  make_run(&run);
  OK(gd_hw_load(&a.stack.hw, &err));
  OK(gd_accuracy_add_file(&a, GD_SOURCE_DIR "/results/h200.csv", &err));
  struct gd_accuracy_score before = gd_accuracy_trials(&a, NULL);
  OK(gd_store_open(scratch_path("runs.db"), &store, &err));
  OK(gd_store_put_run(store, &run, &err));
  OK(gd_accuracy_add_store(&a, store, &err));
  assert_int_equal(a.n_runs, 1);
  for (uint32_t i = 0; i < a.n_trials && !same; i++)
    if (a.trials[i].feasible)
      same = &a.trials[i];
  const struct gd_accuracy_run *found = &a.runs[0];
  assert_non_null(same);
  if (!same) /* for clang's analyzer */
    return;
  assert_null(found->trial.why);
  assert_true(found->trial.predicted_s > 0 &&
              fabs(found->trial.predicted_s - same->predicted_s) <= 1e-9 * same->predicted_s);
  assert_true(fabs(found->trial.measured_s - 1.25 * same->measured_s) <= 1e-9 * same->measured_s);
  assert_true(fabs(found->whole_s - 1.5 * found->trial.measured_s) <= 1e-9 * found->whole_s);
  assert_true(found->steps == 100 && found->expected_s > 0);
  assert_int_equal(gd_accuracy_runs(&a).count, 1);
  struct gd_accuracy_score after = gd_accuracy_trials(&a, NULL);
  assert_true(after.count == before.count && !(after.worst < before.worst) &&
              !(after.worst > before.worst));
  gd_store_close(store);
  gd_accuracy_deinit(&a);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_run_is_predicted_as_its_trial, scratch_setup,
                                      scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
