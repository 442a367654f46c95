/*
 * Runs in the store: they come back as they were put, are never seen where trials are asked for,
 * and a database of before has room for them once it is opened.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store/store_best.h"
#include "store/store_int.h"
#include "store/store_runs.h"
#include "support/ok.h"
#include "support/scratch.h"
#include "support/trial_sample.h"

static struct gd_store *open_store(const char *name) {
  struct gd_store *store = NULL;
  struct gd_error err = {0};
  OK(gd_store_open(scratch_path(name), &store, &err));
  return store;
}

static void run_sql(const char *path, const char *sql) {
  sqlite3 *db;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

struct seen {
  int count;
  struct gd_run_record last;
};

static enum gd_status look(void *user, const struct gd_run_record *run, struct gd_error *err) {
  struct seen *seen = user;
  (void)err;
  seen->count++;
  seen->last = *run;
  return GD_OK;
}

static enum gd_status count_trial(void *user, const struct gd_store_row *row,
                                  struct gd_error *err) {
  (void)row;
  (void)err;
  ++*(int *)user;
  return GD_OK;
}

static void make_run(struct gd_run_record *run, uint64_t seed) {
  *run = (struct gd_run_record){.folder = "/home/me/runs/a",
                                .first_step = 5,
                                .last_step = 40,
                                .seconds = 71.25,
                                .stalled_s = 1.5,
                                .data_s = 0.125,
                                .expected_step_s = 1.75,
                                .expected_by = "trial",
                                .slowed_by = "other programs used 34 % of the CPUs"};
  trial_sample(&run->trial, seed);
  /* A run has no samples of micro-steps. */
  run->trial.micro_step = run->trial.last_micro_step = run->trial.update = (struct gd_samples){0};
}

static void they_come_back(void **state) {
  static struct gd_run_record run;
  static struct seen seen;
  struct gd_store *store = open_store("a.db");
  struct gd_error err = {0};
  (void)state;
  make_run(&run, 3);
  OK(gd_store_put_run(store, &run, &err));
  OK(gd_store_query_runs(store, look, &seen, &err));
  assert_int_equal(seen.count, 1);
  assert_string_equal(seen.last.folder, run.folder);
  assert_string_equal(seen.last.expected_by, "trial");
  assert_string_equal(seen.last.slowed_by, run.slowed_by);
  assert_true(seen.last.first_step == 5 && seen.last.last_step == 40 && !seen.last.finished);
  assert_true(seen.last.seconds == 71.25 && seen.last.stalled_s == 1.5 &&
              seen.last.data_s == 0.125 && seen.last.expected_step_s == 1.75);
  assert_true(seen.last.trial.status == GD_TRIAL_OK && seen.last.trial.step_s == run.trial.step_s &&
              seen.last.trial.micro_batch == run.trial.micro_batch);
  assert_string_equal(seen.last.trial.model, run.trial.model);
  assert_true(seen.last.provenance.host[0] && seen.last.provenance.time[0]);
  run.finished = true;
  run.last_step = 50;
  OK(gd_store_put_run(store, &run, &err)); /* the same process, later */
  run.first_step = 50;
  run.last_step = 60;
  OK(gd_store_put_run(store, &run, &err)); /* the next one */
  seen.count = 0;
  OK(gd_store_query_runs(store, look, &seen, &err));
  assert_int_equal(seen.count, 2);
  assert_true(seen.last.finished && seen.last.last_step == 60);
  gd_store_close(store);
}

static void they_are_no_trials(void **state) {
  static struct gd_run_record run;
  struct gd_model model;
  struct gd_store *store = open_store("a.db");
  struct gd_error err = {0};
  struct gd_strbuf notes = {0};
  struct gd_store_total total;
  int count = 0;
  (void)state;
  make_run(&run, 3);
  OK(gd_model_load("pythia-14m", &model, &err));
  OK(gd_recipe_hash(&model, NULL, run.trial.recipe, &err));
  snprintf(run.trial.model, sizeof run.trial.model, "pythia-14m");
  OK(gd_store_put_run(store, &run, &err));
  OK(gd_store_query(store, &(struct gd_store_filter){.history = true}, count_trial, &count, &err));
  OK(gd_store_count(store, &(struct gd_store_filter){0}, &total, &err));
  assert_true(count == 0 && total.trials == 0);
  assert_int_equal(gd_best_query(store,
                                 &(struct gd_best_asked){.model = &model,
                                                         .filter = &(struct gd_store_filter){0},
                                                         .argument = "pythia-14m",
                                                         .recipe_options = "",
                                                         .notes = &notes},
                                 count_trial, &count, &err),
                   GD_MISMATCH);
  assert_int_equal(count, 0);
  gd_strbuf_deinit(&notes);
  gd_store_close(store);
}

static void a_damaged_one_is_left_out(void **state) {
  static struct gd_run_record run;
  static struct seen seen;
  struct gd_store *store = open_store("a.db");
  struct gd_error err = {0};
  const char *sentence;
  (void)state;
  make_run(&run, 3);
  OK(gd_store_put_run(store, &run, &err));
  run.first_step = 40;
  run.last_step = 41;
  OK(gd_store_put_run(store, &run, &err));
  run_sql(scratch_path("a.db"), "UPDATE runs SET record = '{}' WHERE first_step = 5");
  OK(gd_store_query_runs(store, look, &seen, &err));
  assert_int_equal(seen.count, 1);
  assert_int_equal(seen.last.first_step, 40);
  assert_int_equal(gd_store_damage(store, &sentence), 1);
  assert_non_null(strstr(sentence, "run 1 of the store"));
  gd_store_close(store);
}

/* tests/store/schema3.sql: what gpudays wrote before runs were stored. */
static void a_store_of_before_takes_them(void **state) {
  static struct gd_run_record run;
  static struct seen seen;
  struct gd_strbuf sql = {0};
  struct gd_error err = {0};
  int trials = 0;
  (void)state;
  OK(gd_file_read(GD_SOURCE_DIR "/tests/store/schema3.sql", 1 << 20, &sql, &err));
  run_sql(scratch_path("old.db"), sql.text);
  gd_strbuf_deinit(&sql);
  struct gd_store *store = open_store("old.db");
  OK(gd_store_query(store, &(struct gd_store_filter){0}, count_trial, &trials, &err));
  assert_int_equal(trials, 2);
  make_run(&run, 3);
  OK(gd_store_put_run(store, &run, &err));
  OK(gd_store_query_runs(store, look, &seen, &err));
  assert_int_equal(seen.count, 1);
  gd_store_close(store);
  store = open_store("old.db"); /* once more, with nothing to do */
  OK(gd_store_query_runs(store, look, &seen, &err));
  assert_int_equal(seen.count, 2);
  gd_store_close(store);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(they_come_back),
      TEST(they_are_no_trials),
      TEST(a_damaged_one_is_left_out),
      TEST(a_store_of_before_takes_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
