/*
 * What a run says when steps take longer than was expected, once for a
 * change and with the causes that were seen; and a run of the program against a trial of its store.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "base/json.h"
#include "store/store_runs.h"
#include "support/ok.h"
#include "support/scratch.h"
#include "train/drift.h"

static struct gd_drift make_drift(void) {
  return (struct gd_drift){.expected = {.step_s = 2, .tolerance = 0.05, .by = "trial"}};
}

static struct gd_drift_seen quiet(double step_s) {
  return (struct gd_drift_seen){.step_s = step_s, .early_s = step_s / 2, .busy_share = -1};
}

static void it_speaks_once_per_change(void **state) {
  struct gd_drift d = make_drift();
  struct gd_drift_seen seen = quiet(2.08);
  (void)state;
  assert_null(gd_drift_judge(&d, &seen, 1)); /* 4 % */
  seen.step_s = 2.5;
  assert_string_equal(gd_drift_judge(&d, &seen, 1),
                      "a step takes 2.5 s, 25 % longer than the trial said (2 s): "
                      "nothing is seen that slows it down");
  assert_null(gd_drift_judge(&d, &seen, 1));
  seen.busy_share = 0.34; /* a cause that was not there before */
  assert_string_equal(gd_drift_judge(&d, &seen, 1),
                      "a step takes 2.5 s, 25 % longer than the trial said (2 s): "
                      "other programs used 34 % of the CPUs");
  assert_null(gd_drift_judge(&d, &seen, 1));
  seen = quiet(2.09); /* below the limit, and not yet well below it */
  assert_null(gd_drift_judge(&d, &seen, 1));
  seen = quiet(2.04);
  assert_string_equal(gd_drift_judge(&d, &seen, 1),
                      "a step takes 2.04 s again; the trial said 2 s");
  assert_null(gd_drift_judge(&d, &seen, 1));
  seen = quiet(1); /* faster is nobody's complaint */
  assert_null(gd_drift_judge(&d, &seen, 1));
  assert_non_null(strstr(d.causes, "nothing that can be seen")); /* of the last slow window */
}

static void a_prediction_has_its_interval(void **state) {
  struct gd_drift d = {.expected = {.step_s = 2, .tolerance = 0.4, .by = "prediction"}};
  struct gd_drift_seen seen = quiet(2.7);
  (void)state;
  assert_null(gd_drift_judge(&d, &seen, 1));
  seen.step_s = 3;
  assert_non_null(
      strstr(gd_drift_judge(&d, &seen, 1), "50 % longer than the prediction said (2 s)"));
}

static void causes_are_named(void **state) {
  struct gd_drift d = make_drift();
  struct gd_drift_seen seen = quiet(0.5), *s = &seen;
  (void)state;
  s->stalled_share = 0.2; /* steps are fast, and the run stands still all the same */
  const char *text = gd_drift_judge(&d, s, 1);
  assert_non_null(strstr(text, "checkpoints stop the run for 20 % of the time"));
  s->step_s = 4;
  s->quota_share = 0.5;
  s->steal_share = 0.06;
  s->data_wait_share = 0.3;
  s->writing_share = 1;
  s->gpu_mhz = 1410;
  s->gpu_max_mhz = 1980;
  snprintf(s->gpu_reasons, sizeof s->gpu_reasons, GD_REASON_THERMAL ", " GD_REASON_POWER_CAP);
  text = gd_drift_judge(&d, s, 1);
  assert_non_null(strstr(text, "the GPU's clock was at 1410 of 1980 MHz: thermal, power cap; "));
  assert_non_null(strstr(text, "a quota of its control group denied it 50 % of its CPU time; "));
  assert_non_null(strstr(text, "the host of the virtual machine took 6 % of the CPUs; "));
  assert_non_null(strstr(text, "data wait was 30 % of the time; "));
  assert_non_null(strstr(text, "a checkpoint was being written"));
  assert_null(strstr(text, "rank"));
}

static void a_slow_rank_is_named(void **state) {
  struct gd_drift d = make_drift();
  struct gd_drift_seen seen[4];
  (void)state;
  for (int i = 0; i < 4; i++)
    seen[i] = quiet(3);
  seen[2].early_s = 1.8;
  seen[2].data_wait_share = 0.4;
  const char *text = gd_drift_judge(&d, seen, 4);
  assert_non_null(strstr(text, "data wait was 40 % of the time (rank 2)"));
  assert_non_null(strstr(text, "rank 2 takes 20 % longer than the others"));
}

/* Windows of 32 steps after a warm-up of 8. */
static void windows_are_counted(void **state) {
  struct gd_backend *backend = NULL;
  static struct gd_drift d;
  struct gd_error err = {0};
  int said_at = 0, count = 0;
  (void)state;
  OK(gd_backend_open("ref", &(struct gd_backend_options){.threads = 1}, &backend, &err));
  gd_drift_begin(&d, &(struct gd_expected){.step_s = 2, .tolerance = 0.05, .by = "trial"}, backend,
                 NULL);
  for (int i = 1; i <= 200; i++) {
    const char *sentence;
    OK(gd_drift_add(&d, &(struct gd_drift_step){.step_s = i <= 8 ? 100 : 3, .early_s = 1},
                    &sentence, &err));
    said_at = sentence && !said_at ? i : said_at;
    count += sentence != NULL;
  }
  assert_int_equal(said_at, GD_DRIFT_WARMUP + GD_DRIFT_WINDOW);
  assert_int_equal(count, 1);
  gd_drift_end(&d);
  gd_drift_end(&d);
  gd_backend_close(backend);
}

/* --- the program --------------------------------------------------------------------------- */

static void run_program(const char *const *arguments, const char *said) {
  const char *program = getenv("GPUDAYS");
  int status;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    dup2(open("/dev/null", O_RDWR), STDIN_FILENO);
    dup2(open("/dev/null", O_RDWR), STDOUT_FILENO);
    dup2(open(said, O_RDWR | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
    if (program)
      execv(program, (char *const *)(uintptr_t)arguments);
    _exit(127);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void run_sql(const char *path, const char *sql) {
  sqlite3 *db;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

static enum gd_status take_step(void *user, const struct gd_store_row *row, struct gd_error *err) {
  (void)err;
  *(double *)user = row->trial.step_s;
  return GD_OK;
}

static enum gd_status take_run(void *user, const struct gd_run_record *run, struct gd_error *err) {
  (void)err;
  *(struct gd_run_record *)user = *run;
  return GD_OK;
}

static double expected_of(const char *folder, const char *by) {
  struct gd_json json = {0};
  struct gd_error err = {0};
  char path[800];
  snprintf(path, sizeof path, "%s/run.json", folder);
  OK(gd_json_load(&json, path, &err));
  const json_t *session = json_object_get(json.root, "session");
  assert_string_equal(json_string_value(json_object_get(session, "expected_by")), by);
  double step_s = json_number_value(json_object_get(session, "expected_step_s"));
  gd_json_deinit(&json);
  return step_s;
}

static int count_of(const char *path, const char *text) {
  struct gd_strbuf all = {0};
  struct gd_error err = {0};
  int count = 0;
  OK(gd_file_read(path, 1 << 20, &all, &err));
  for (const char *at = all.text; at && (at = strstr(at, text)); at++)
    count++;
  gd_strbuf_deinit(&all);
  return count;
}

/* All times of the store's trial ten times shorter: no machine keeps that. */
static const char shorter[] =
    "UPDATE trials SET pass_s = pass_s / 10, pass_half_width_s = pass_half_width_s / 10,"
    " last_pass_s = last_pass_s / 10, last_pass_half_width_s = last_pass_half_width_s / 10,"
    " update_s = update_s / 10, update_half_width_s = update_half_width_s / 10,"
    " step_s = step_s / 10, step_half_width_s = step_half_width_s / 10, days = days / 10,"
    " days_low = days_low / 10, days_high = days_high / 10, tokens_per_s = tokens_per_s * 10,"
    " samples_per_s = samples_per_s * 10, peak_flops = peak_flops * 10";

static void train(const char *folder, const char *said) {
  char model[600], data[600], store[600];
  snprintf(model, sizeof model, "%s/tests/reference/gpt2-a", GD_SOURCE_DIR);
  snprintf(data, sizeof data, "%s", scratch_path("train.bin"));
  snprintf(store, sizeof store, "%s", scratch_path("results.db"));
  run_program((const char *const[]){"gpudays",   "train",   model,       "--data", data,
                                    "-o",        folder,    "--seq",     "16",     "--batch",
                                    "4",         "--steps", "200",       "--lr",   "1e-3",
                                    "--threads", "1",       "--methods", "naive",  "--store",
                                    store,       "-q",      "--warmup",  "2",      "--micro-batch",
                                    "4",         NULL},
              said);
}

static void a_run_is_held_against_its_trial(void **state) {
  static struct gd_run_record run;
  unsigned char ids[20000] = {0};
  char model[600], store[600], said[600], folder[600];
  double step_s = 0;
  struct gd_store *opened = NULL;
  struct gd_error err = {0};
  (void)state;
  for (size_t i = 0, x = 1; i < sizeof ids / 2; i++)
    ids[2 * i] = (unsigned char)(x = (x * 5 + 3 + (i % 7 == 0)) % 64);
  scratch_write("train.bin", ids, sizeof ids);
  snprintf(model, sizeof model, "%s/tests/reference/gpt2-a", GD_SOURCE_DIR);
  snprintf(store, sizeof store, "%s", scratch_path("results.db"));
  snprintf(said, sizeof said, "%s", scratch_path("said"));
  snprintf(folder, sizeof folder, "%s", scratch_path("alone"));
  train(folder, said); /* nothing is expected */
  assert_true(expected_of(folder, "") == 0);
  assert_int_equal(count_of(said, "gpudays: "), 0);
  /* Another number of steps is the same step. */
  run_program((const char *const[]){"gpudays",
                                    "bench",
                                    model,
                                    "--seq",
                                    "16",
                                    "--batch",
                                    "4",
                                    "--steps",
                                    "7",
                                    "--threads",
                                    "1",
                                    "--methods",
                                    "naive",
                                    "--store",
                                    store,
                                    "-q",
                                    "--micro-batch",
                                    "4",
                                    "--sample-seconds",
                                    "0.1",
                                    NULL},
              said);
  run_sql(store, shorter);
  OK(gd_store_open(store, &opened, &err));
  OK(gd_store_query(opened, &(struct gd_store_filter){.brief = true}, take_step, &step_s, &err));
  snprintf(folder, sizeof folder, "%s", scratch_path("held"));
  train(folder, said);
  assert_true(step_s > 0 && fabs(expected_of(folder, "trial") - step_s) < 1e-12 * step_s);
  assert_true(count_of(said, " longer than the trial said (") >= 1);
  OK(gd_store_query_runs(opened, take_run, &run, &err));
  assert_int_equal(strlen(run.folder) > 4 ? strcmp(run.folder + strlen(run.folder) - 4, "held") : 1,
                   0);
  assert_true(run.finished && run.first_step == 0 && run.last_step == 200);
  assert_true(fabs(run.expected_step_s - step_s) < 1e-12 * step_s && run.trial.step_s > step_s);
  assert_true(run.seconds >= 100 * run.trial.step_s && run.slowed_by[0]);
  gd_store_close(opened);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_speaks_once_per_change),
      cmocka_unit_test(a_prediction_has_its_interval),
      cmocka_unit_test(causes_are_named),
      cmocka_unit_test(a_slow_rank_is_named),
      cmocka_unit_test(windows_are_counted),
      cmocka_unit_test_setup_teardown(a_run_is_held_against_its_trial, scratch_setup,
                                      scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
