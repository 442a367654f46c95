/*
 * The store as src/search uses it: exact round trips, keys, history, pending trials, filters,
 * exchange files, migrations, and files that must be refused untouched.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "store/record_int.h"
#include "store/store_int.h"
#include "support/fault.h"
#include "support/scratch.h"
#include "support/trial_sample.h"

#define OK(expr)                                                       \
  do {                                                                 \
    struct gd_error oops = {0};                                        \
    if ((expr) != GD_OK)                                               \
      fail_msg("%s: %s", #expr, oops.text[0] ? oops.text : "no text"); \
  } while (0)

static struct gd_store *open_store(const char *name) {
  struct gd_store *store = NULL;
  OK(gd_store_open(scratch_path(name), &store, &oops));
  return store;
}

/* The whole of a file, or NULL. */
static char *slurp(const char *path, size_t *length) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return NULL;
  char *text = gd_mem_alloc(1, 1 << 20);
  *length = fread(text, 1, (1 << 20) - 1, file);
  fclose(file);
  return text;
}

static void assert_same_record(const struct gd_trial *a, const struct gd_trial *b) {
  struct gd_strbuf left = {0}, right = {0};
  OK(gd_record_print(a, &left, &oops));
  OK(gd_record_print(b, &right, &oops));
  assert_string_equal(left.text, right.text);
  gd_strbuf_deinit(&left);
  gd_strbuf_deinit(&right);
}

static enum gd_status count_row(void *user, const struct gd_store_row *row, struct gd_error *err) {
  (void)row;
  (void)err;
  (*(int *)user)++;
  return GD_OK;
}

static int count_rows(struct gd_store *store, const struct gd_store_filter *filter) {
  int rows = 0;
  OK(gd_store_query(store, filter, count_row, &rows, &oops));
  return rows;
}

/* --- records ------------------------------------------------------------------------------- */

static void test_line_round_trip(void **state) {
  (void)state;
  for (uint64_t seed = 0; seed < 50; seed++) {
    struct gd_trial trial, copy = {0};
    struct gd_strbuf line = {0};
    trial_sample(&trial, seed);
    OK(gd_record_print(&trial, &line, &oops));
    assert_null(strchr(line.text, '\n'));
    OK(gd_record_parse("line", line.text, (int64_t)line.length, &copy, &oops));
    assert_memory_equal(&trial.micro_step, &copy.micro_step, sizeof trial.micro_step);
    assert_memory_equal(trial.bytes, copy.bytes, sizeof trial.bytes);
    assert_memory_equal(trial.profile, copy.profile, sizeof trial.profile);
    assert_true(trial.days == copy.days && trial.busy_share == copy.busy_share);
    assert_same_record(&trial, &copy);
    gd_strbuf_deinit(&line);
  }
}

static void test_not_finite(void **state) {
  struct gd_trial trial, copy = {0};
  struct gd_strbuf line = {0};
  (void)state;
  trial_sample(&trial, 1);
  trial.status = GD_TRIAL_FAILED;
  trial.loss = (double)NAN;
  trial.norm = (double)INFINITY;
  trial.mfu = -(double)INFINITY;
  OK(gd_record_print(&trial, &line, &oops));
  OK(gd_record_parse("line", line.text, (int64_t)line.length, &copy, &oops));
  assert_true(isnan(copy.loss) && isinf(copy.norm) && copy.mfu < 0 && isinf(copy.mfu));
  struct gd_store *store = open_store("a.db");
  struct gd_store_key key = {.hash = "1", .text = "k=1"};
  bool found;
  OK(gd_store_put(store, &key, &trial, NULL, &oops));
  memset(&copy, 0, sizeof copy);
  OK(gd_store_find(store, &key, &copy, NULL, &found, &oops));
  assert_true(found && isnan(copy.loss) && isinf(copy.norm) && copy.mfu < 0 && isinf(copy.mfu));
  gd_store_close(store);
  gd_strbuf_deinit(&line);
}

/* What may reach a terminal later cannot carry its commands; a cut character does no harm. */
static void test_text_is_cleaned(void **state) {
  struct gd_trial trial, copy;
  struct gd_strbuf line = {0};
  (void)state;
  trial_sample(&trial, 2);
  snprintf(trial.reason, sizeof trial.reason, "bad \x1b[2J\nline \xc2\x9b caf\xc3\xa9 \xc3");
  OK(gd_record_print(&trial, &line, &oops));
  OK(gd_record_parse("line", line.text, (int64_t)line.length, &copy, &oops));
  assert_string_equal(copy.reason, "bad ?[2J?line ? caf\xc3\xa9 ?");
  gd_strbuf_deinit(&line);
}

static void expect_refused(const char *line, const char *find, const char *replace,
                           const char *expected) {
  struct gd_trial trial;
  struct gd_error err = {0};
  const char *at = strstr(line, find);
  char *text = gd_mem_alloc(1, 1 << 16);
  assert_non_null(at);
  snprintf(text, 1 << 16, "%.*s%s%s", (int)(at - line), line, replace, at + strlen(find));
  assert_int_equal(gd_record_parse("line", text, (int64_t)strlen(text), &trial, &err),
                   GD_BAD_INPUT);
  if (!strstr(err.text, expected))
    fail_msg("\"%s\" does not say \"%s\"", err.text, expected);
  gd_mem_free(text);
}

/* GEMMs in TF32 may run on the units of fp16: faster than the peak of TF32, but never than that of
   fp16. */
static void test_tf32_above_its_peak(void **state) {
  static const struct {
    const char *method;
    enum gd_precision precision;
    double hfu;
    bool taken;
  } cases[] = {
      {"free-lunch", GD_PRECISION_FP32, 1.5, true}, {"free-lunch", GD_PRECISION_FP32, 4.5, false},
      {"naive", GD_PRECISION_FP32, 1.5, false},     {"free-lunch", GD_PRECISION_BF16, 1.5, false},
      {"free-lunch", GD_PRECISION_BF16, 0.9, true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_trial trial, again;
    struct gd_strbuf line = {0};
    struct gd_error err = {0};
    trial_sample(&trial, 3);
    snprintf(trial.method, sizeof trial.method, "%s", cases[i].method);
    trial.precision = cases[i].precision;
    trial.hfu = cases[i].hfu;
    OK(gd_record_print(&trial, &line, &oops));
    assert_int_equal(gd_record_parse("line", line.text, (int64_t)strlen(line.text), &again, &err),
                     cases[i].taken ? GD_OK : GD_BAD_INPUT);
    gd_strbuf_deinit(&line);
  }
}

static void test_bad_records(void **state) {
  struct gd_trial trial;
  struct gd_strbuf line = {0};
  (void)state;
  trial_sample(&trial, 3);
  OK(gd_record_print(&trial, &line, &oops));
  expect_refused(line.text, "\"status\":\"ok\"", "\"status\":\"good\"", "status");
  expect_refused(line.text, "\"ranks\":", "\"ronks\":", "ronks");
  expect_refused(line.text, "\"days\":", "\"days\":-", "days");
  expect_refused(line.text, "\"hfu\":", "\"hfu\":1", "hfu");
  expect_refused(line.text, "\"method\":\"", "\"method\":\"un", "method");
  expect_refused(line.text, "\"micro_step_ns\":[", "\"micro_step_ns\":[-1,", "samples");
  expect_refused(line.text, "\"parameters\":", "\"parameters\":-5", "parameters");
  expect_refused(line.text, "\"optimizer\":", "\"optimiser\":", "bytes");
  expect_refused(line.text, "\"precision\":\"", "\"precision\":\"q", "precision");
  expect_refused(line.text, "{\"status\"", "[\"status\"", "line");
  gd_strbuf_deinit(&line);
}

/* --- keys ---------------------------------------------------------------------------------- */

static void make_key(const char *model_name, const struct gd_store_asked *changed,
                     void (*edit)(struct gd_model *, struct gd_trial *), struct gd_store_key *key) {
  struct gd_model model;
  struct gd_trial plan;
  struct gd_store_asked asked = changed ? *changed : (struct gd_store_asked){0};
  OK(gd_model_load(model_name, &model, &oops));
  trial_sample(&plan, 0);
  snprintf(plan.method, sizeof plan.method, "naive");
  if (edit)
    edit(&model, &plan);
  asked.model = &model;
  asked.plan = &plan;
  OK(gd_store_key_make(&asked, key, &oops));
  assert_int_equal(strlen(key->hash), 32);
}

static void edit_steps(struct gd_model *model, struct gd_trial *plan) {
  (void)plan;
  model->recipe.steps++;
}
static void edit_lr(struct gd_model *model, struct gd_trial *plan) {
  (void)plan;
  model->recipe.lr *= 1 + 1e-15;
}
static void edit_layers(struct gd_model *model, struct gd_trial *plan) {
  (void)plan;
  model->config.neox.layers++;
}
static void edit_eps(struct gd_model *model, struct gd_trial *plan) {
  (void)plan;
  model->config.neox.norm_eps *= 2;
}
static void edit_init(struct gd_model *model, struct gd_trial *plan) {
  (void)plan;
  model->config.neox.init_deviation *= 2;
}
static void edit_rope(struct gd_model *model, struct gd_trial *plan) {
  (void)plan;
  model->config.neox.rope_base *= 2;
}
static void edit_method(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  snprintf(plan->method, sizeof plan->method, "free-lunch");
}
static void edit_device(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  snprintf(plan->device, sizeof plan->device, "other");
}
/* A new driver, say. */
static void edit_machine(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  snprintf(plan->machine, sizeof plan->machine, "cpu=A CPU;driver=550.1");
}
static void edit_ranks(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  plan->ranks++;
}
static void edit_nodes(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  plan->nodes++;
}
static void edit_threads(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  plan->threads++;
}
static void edit_limit(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  plan->device_limit_bytes++;
}
static void edit_host_limit(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  plan->host_limit_bytes++;
}
static void edit_precision(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  plan->precision = plan->precision == GD_PRECISION_FP32 ? GD_PRECISION_BF16 : GD_PRECISION_FP32;
}
static void edit_compiler(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  snprintf(plan->no_compiler, sizeof plan->no_compiler, "%s", plan->no_compiler[0] ? "" : "none");
}
static void edit_result(struct gd_model *model, struct gd_trial *plan) {
  (void)model;
  plan->micro_batch++; /* an answer, not a part of the question */
  plan->plan_s *= 2;
}
/* A value cannot be mistaken for the next field. */
static void edit_name(struct gd_model *model, struct gd_trial *plan) {
  (void)plan;
  snprintf(model->name, sizeof model->name, "x;family=y\n%%");
}

static void test_keys(void **state) {
  static void (*const edits[])(struct gd_model *, struct gd_trial *) = {
      NULL,          edit_steps,  edit_lr,    edit_layers,     edit_eps,       edit_init,
      edit_rope,     edit_method, edit_ranks, edit_nodes,      edit_threads,   edit_limit,
      edit_compiler, edit_device, edit_name,  edit_host_limit, edit_precision, edit_machine,
  };
  static const struct gd_store_asked asked[] = {
      {.seed = 1},
      {.sample_seconds = 1},
      {.profile = true},
      {.micro_batch = GD_MICRO_BATCH_POW2},
      {.micro_batch = GD_MICRO_BATCH_MAX},
      {.micro_batch = GD_MICRO_BATCH_FIXED, .micro_batch_size = 4},
      {.micro_batch = GD_MICRO_BATCH_FIXED, .micro_batch_size = 8},
  };
  enum { EDITS = sizeof edits / sizeof *edits, ASKED = sizeof asked / sizeof *asked };
  struct gd_store_key keys[EDITS + ASKED + 1], again;
  int count = 0;
  (void)state;
  for (int i = 0; i < EDITS; i++)
    make_key("pythia-14m", NULL, edits[i], &keys[count++]);
  for (int i = 0; i < ASKED; i++)
    make_key("pythia-14m", &asked[i], NULL, &keys[count++]);
  make_key("pythia-70m", NULL, NULL, &keys[count++]);
  for (int i = 0; i < count; i++)
    for (int k = 0; k < i; k++)
      if (strcmp(keys[i].hash, keys[k].hash) == 0 || strcmp(keys[i].text, keys[k].text) == 0)
        fail_msg("keys %d and %d are the same: %s", k, i, keys[i].text);
  make_key("pythia-14m", NULL, NULL, &again);
  assert_string_equal(again.text, keys[0].text);
  make_key("pythia-14m", NULL, edit_result, &again);
  assert_string_equal(again.hash, keys[0].hash);
  assert_non_null(strstr(keys[0].text, "model=pythia-14m;family=gpt_neox;graph="));
  assert_non_null(strstr(keys[14].text, "model=x%3Bfamily=y%0A%25;"));
}

/* --- one trial ----------------------------------------------------------------------------- */

static void test_round_trip(void **state) {
  struct gd_store *store = open_store("deep/er/results.db"); /* folders are made */
  (void)state;
  for (uint64_t seed = 0; seed < 50; seed++) {
    struct gd_trial trial, copy;
    struct gd_provenance here, from;
    struct gd_store_key key;
    bool found;
    trial_sample(&trial, seed);
    trial_sample_key(&key, seed);
    gd_provenance_here("cpu", &here);
    OK(gd_store_find(store, &key, &copy, NULL, &found, &oops));
    assert_false(found);
    OK(gd_store_put(store, &key, &trial, &here, &oops));
    OK(gd_store_find(store, &key, &copy, &from, &found, &oops));
    assert_true(found);
    assert_same_record(&trial, &copy);
    assert_memory_equal(&trial.micro_step, &copy.micro_step, sizeof trial.micro_step);
    assert_memory_equal(&trial.last_micro_step, &copy.last_micro_step, sizeof trial.micro_step);
    assert_memory_equal(&trial.update, &copy.update, sizeof trial.update);
    assert_memory_equal(trial.profile, copy.profile, sizeof trial.profile);
    assert_memory_equal(&here, &from, sizeof here);
  }
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 50);
  gd_store_close(store);
  store = open_store("deep/er/results.db");
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 50);
  gd_store_close(store);
}

static void test_provenance(void **state) {
  struct gd_provenance here;
  char host[256] = "";
  (void)state;
  gd_provenance_here("cpu", &here);
  gethostname(host, sizeof host - 1);
  assert_string_equal(here.host, host);
  assert_int_equal(strlen(here.time), strlen("2024-05-01T12:00:00.123Z"));
  assert_true(strcmp(here.time, "2024-01-01T00:00:00.000Z") > 0);
  assert_non_null(strstr(here.kernel, "Linux"));
}

static void test_history(void **state) {
  struct gd_store *store = open_store("a.db");
  struct gd_store_key key;
  struct gd_trial trial, copy;
  bool found;
  (void)state;
  trial_sample(&trial, 7);
  trial_sample_key(&key, 7);
  for (int i = 0; i < 3; i++) {
    trial.loss = 1 + i;
    OK(gd_store_put(store, &key, &trial, NULL, &oops));
    OK(gd_store_find(store, &key, &copy, NULL, &found, &oops));
    assert_true(found && copy.loss == 1 + i);
  }
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 1);
  assert_int_equal(count_rows(store, &(struct gd_store_filter){.history = true}), 3);
  /* The clock may have been set back since: the newest put still is the answer. */
  struct gd_provenance old = {.time = "2001-01-01T00:00:00.000Z"};
  trial.loss = 9;
  OK(gd_store_put(store, &key, &trial, &old, &oops));
  OK(gd_store_find(store, &key, &copy, NULL, &found, &oops));
  assert_true(copy.loss == 9);
  OK(gd_store_put(store, &key, &trial, &old, &oops)); /* the very same again */
  assert_int_equal(count_rows(store, &(struct gd_store_filter){.history = true}), 4);
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 1);
  /* A key that only hashes alike is another key. */
  struct gd_store_key alike = key;
  alike.text[0] = alike.text[0] == 'x' ? 'y' : 'x';
  OK(gd_store_find(store, &alike, &copy, NULL, &found, &oops));
  assert_false(found);
  gd_store_close(store);
}

static void test_pending(void **state) {
  struct gd_store *store = open_store("a.db");
  struct gd_store_filter pending = {.pending = true};
  struct gd_store_key key, other;
  struct gd_trial trial, copy;
  bool found;
  (void)state;
  trial_sample(&trial, 7);
  trial_sample_key(&key, 7);
  trial_sample_key(&other, 8);
  trial.status = GD_TRIAL_PLANNED;
  OK(gd_store_put(store, &key, &trial, NULL, &oops));
  OK(gd_store_put(store, &key, &trial, NULL, &oops));
  OK(gd_store_put(store, &other, &trial, NULL, &oops));
  OK(gd_store_find(store, &key, &copy, NULL, &found, &oops));
  assert_true(found && copy.status == GD_TRIAL_PLANNED);
  assert_int_equal(count_rows(store, &pending), 2);
  assert_int_equal(count_rows(store, &(struct gd_store_filter){.history = true}), 0);
  trial.status = GD_TRIAL_OK;
  OK(gd_store_put(store, &key, &trial, NULL, &oops));
  assert_int_equal(count_rows(store, &pending), 1);
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 1);
  /* Measured anew: the old result stays the answer until the new one is there: not pending. */
  trial.status = GD_TRIAL_PLANNED;
  OK(gd_store_put(store, &key, &trial, NULL, &oops));
  OK(gd_store_find(store, &key, &copy, NULL, &found, &oops));
  assert_true(found && copy.status == GD_TRIAL_OK);
  assert_int_equal(count_rows(store, &pending), 1);
  OK(gd_store_drop_pending(store, &key, &oops));
  OK(gd_store_drop_pending(store, &other, &oops));
  OK(gd_store_drop_pending(store, &other, &oops));
  assert_int_equal(count_rows(store, &pending), 0);
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 1);
  gd_store_close(store);
}

/* Parts are read as they are written; what is written otherwise is read as JSON, or refused. */
static void test_parts(void **state) {
  static const struct {
    const char *text;
    int count; /* of micro-steps; -1: refused */
  } samples[] = {
      {"{\"pass_ns\":[],\"last_pass_ns\":[],\"update_ns\":[]}", 0},
      {"{\"pass_ns\":[0,12],\"last_pass_ns\":[],\"update_ns\":[3]}", 2},
      {"{\"pass_ns\": [0, 12], \"last_pass_ns\": [], \"update_ns\": [3]}", 2},
      {"{\"micro_step_ns\":[7],\"last_micro_step_ns\":[],\"update_ns\":[3]}", 1},
      {"{\"update_ns\":[],\"last_pass_ns\":[],\"pass_ns\":[9223372036854775807]}", 1},
      {"{\"pass_ns\":[9223372036854775808],\"last_pass_ns\":[],\"update_ns\":[]}", -1},
      {"{\"pass_ns\":[1,],\"last_pass_ns\":[],\"update_ns\":[]}", -1},
      {"{\"pass_ns\":[,1],\"last_pass_ns\":[],\"update_ns\":[]}", -1},
      {"{\"pass_ns\":[01],\"last_pass_ns\":[],\"update_ns\":[]}", -1},
      {"{\"pass_ns\":[-1],\"last_pass_ns\":[],\"update_ns\":[]}", -1},
      {"{\"pass_ns\":[1.5],\"last_pass_ns\":[],\"update_ns\":[]}", -1},
      {"{\"pass_ns\":[1],\"last_pass_ns\":[],\"update_ns\":[]", -1},
      {"{\"pass_ns\":[1],\"last_pass_ns\":[],\"update_ns\":[]}x", -1},
      {"{\"pass_ns\":[1],\"last_pass_ns\":[]}", -1},
      {"{\"pass_ns\":[1", -1},
      {"", -1},
  };
  struct gd_trial trial, again = {0};
  struct gd_strbuf text = {0};
  (void)state;
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    trial = (struct gd_trial){0};
    bool fine = gd_part_parse(samples[i].text, &trial, GD_PART_SAMPLES);
    assert_int_equal(fine ? trial.micro_step.count : -1, samples[i].count);
  }
  gd_strbuf_append(&text, "{\"pass_ns\":[1"); /* more than there is room for */
  for (int i = 0; i < GD_TRIAL_MAX_SAMPLES; i++)
    gd_strbuf_append(&text, ",1");
  gd_strbuf_append(&text, "],\"last_pass_ns\":[],\"update_ns\":[]}");
  assert_false(gd_part_parse(text.text, &trial, GD_PART_SAMPLES));
  trial_sample(&trial, 5);
  for (int i = 0; i < GD_PART_COUNT; i++) {
    text.length = 0;
    gd_part_append(&text, &trial, (enum gd_part)i, GD_NAMES_FIRST);
    assert_true(gd_part_parse(text.text, &again, (enum gd_part)i));
  }
  gd_strbuf_deinit(&text);
  assert_memory_equal(again.bytes, trial.bytes, sizeof trial.bytes);
  assert_memory_equal(again.host_parts, trial.host_parts, sizeof trial.host_parts);
  assert_int_equal(again.n_profile, trial.n_profile);
  assert_int_equal(again.micro_step.count, trial.micro_step.count);
  assert_memory_equal(again.micro_step.ns, trial.micro_step.ns,
                      (size_t)trial.micro_step.count * sizeof *trial.micro_step.ns);
}

/* --- many ---------------------------------------------------------------------------------- */

struct seen {
  int count;
  double days[64];
  char model[64][32];
  int samples;
};

static enum gd_status see(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct seen *seen = user;
  (void)err;
  seen->days[seen->count] = row->trial.status == GD_TRIAL_OK ? row->trial.days : -1;
  snprintf(seen->model[seen->count], 32, "%.31s", row->trial.model);
  seen->samples += row->trial.micro_step.count;
  seen->count++;
  return GD_OK;
}

static enum gd_status refuse(void *user, const struct gd_store_row *row, struct gd_error *err) {
  (void)user;
  (void)row;
  return gd_fail(err, GD_MISMATCH, "enough");
}

static void test_filters(void **state) {
  struct gd_store *store = open_store("a.db");
  static const enum gd_trial_status infeasible = GD_TRIAL_INFEASIBLE;
  struct gd_provenance when = {.host = "here"};
  struct seen seen = {0};
  struct gd_store_total total;
  struct gd_error err = {0};
  (void)state;
  for (int i = 0; i < 24; i++) {
    struct gd_trial trial;
    struct gd_store_key key;
    trial_sample(&trial, 1);
    trial_sample_key(&key, (uint64_t)i);
    snprintf(trial.model, sizeof trial.model, i % 2 ? "pythia-%dm" : "vit-%dm", 10 + i % 3);
    snprintf(trial.method, sizeof trial.method, i % 4 ? "free-lunch" : "free-lunch+ckpt");
    snprintf(trial.device, sizeof trial.device, i < 12 ? "NVIDIA A100 80GB" : "AMD EPYC 9R14");
    trial.ranks = i < 6 ? 4 : 1;
    trial.status = i % 6 == 5 ? GD_TRIAL_INFEASIBLE : GD_TRIAL_OK;
    trial.last_micro_step = trial.update = (struct gd_samples){0};
    trial.micro_step = (struct gd_samples){.count = 1, .ns = {(100 - i) * (int64_t)1e9}};
    trial_sample_derive(&trial, 86400);
    snprintf(when.time, sizeof when.time, "2024-05-%02dT00:00:00.000Z", (i + 1) % 100);
    OK(gd_store_put(store, &key, &trial, &when, &oops));
  }
#define COUNT(...) count_rows(store, &(struct gd_store_filter){__VA_ARGS__})
  assert_int_equal(COUNT(.ranks = 0), 24);
  assert_int_equal(COUNT(.model = "pythia-10m"), 4);
  assert_int_equal(COUNT(.model = "pythia-*"), 12);
  assert_int_equal(COUNT(.model = "pythia-"), 0);
  assert_int_equal(COUNT(.method = "free-lunch"), 18);
  assert_int_equal(COUNT(.method = "*ckpt*"), 6);
  assert_int_equal(COUNT(.device = "a100"), 12);
  assert_int_equal(COUNT(.device = "%"), 0);
  assert_int_equal(COUNT(.status = &infeasible), 4);
  assert_int_equal(COUNT(.ranks = 4), 6);
  assert_int_equal(COUNT(.since = "2024-05-21"), 4);
  assert_int_equal(COUNT(.since = "2024-05-21", .device = "a100"), 0);
  assert_int_equal(COUNT(.host = "there"), 0);
  assert_int_equal(COUNT(.limit = 5), 5);
  assert_int_equal(COUNT(.model = "'; DROP TABLE trials; --"), 0);
  OK(gd_store_query(store, &(struct gd_store_filter){.sort = GD_STORE_SORT_DAYS, .brief = true},
                    see, &seen, &oops));
  assert_int_equal(seen.count, 24);
  assert_int_equal(seen.samples, 0);
  for (int i = 1; i < 20; i++)
    assert_true(seen.days[i - 1] <= seen.days[i] && seen.days[i] > 0);
  for (int i = 20; i < 24; i++)
    assert_true(seen.days[i] == -1);
  seen.count = 0;
  OK(gd_store_query(store, &(struct gd_store_filter){.sort = GD_STORE_SORT_MODEL}, see, &seen,
                    &oops));
  assert_true(seen.samples > 0);
  for (int i = 1; i < 24; i++)
    assert_true(strcmp(seen.model[i - 1], seen.model[i]) <= 0);
  for (int i = 0; i < GD_STORE_SORT_COUNT; i++) {
    enum gd_store_sort sort;
    assert_true(gd_store_sort_parse(gd_store_sort_name((enum gd_store_sort)i), &sort));
    assert_int_equal(COUNT(.sort = sort), 24);
    assert_int_equal(COUNT(.sort = sort, .reverse = true), 24);
  }
  OK(gd_store_count(store, &(struct gd_store_filter){.device = "epyc"}, &total, &oops));
  assert_int_equal(total.trials, 12);
  assert_int_equal(total.by_status[GD_TRIAL_OK], 10);
  assert_int_equal(total.by_status[GD_TRIAL_INFEASIBLE], 2);
  assert_int_equal(total.models, 6);
  assert_int_equal(total.devices, 1);
  assert_true(total.measured_s > 0);
  assert_int_equal(gd_store_query(store, &(struct gd_store_filter){0}, refuse, NULL, &err),
                   GD_MISMATCH);
  assert_string_equal(err.text, "enough");
  assert_int_equal(COUNT(.ranks = 0), 24); /* and the store is usable after it */
  gd_store_close(store);
}

/* --- exchange ------------------------------------------------------------------------------ */

static void put_sample(struct gd_store *store, uint64_t seed, double loss, const char *host,
                       const char *time) {
  struct gd_trial trial;
  struct gd_store_key key;
  struct gd_provenance from = {0};
  trial_sample(&trial, seed);
  trial_sample_key(&key, seed);
  trial.loss = loss;
  trial.recipe[0] = '\0'; /* neither its key nor its numbers tell: one that is loaded has none */
  snprintf(from.host, sizeof from.host, "%s", host);
  snprintf(from.time, sizeof from.time, "%s", time);
  OK(gd_store_put(store, &key, &trial, &from, &oops));
}

static int64_t ask(const char *path, const char *sql) {
  sqlite3 *db;
  sqlite3_stmt *statement;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
  int64_t number = sqlite3_column_int64(statement, 0);
  sqlite3_finalize(statement);
  sqlite3_close(db);
  return number;
}

static void test_exchange(void **state) {
  struct gd_store *mine = open_store("mine.db"), *theirs = open_store("theirs.db");
  const char *file = scratch_path("saved.jsonl"), *again = scratch_path("again.jsonl");
  int64_t saved, added, known;
  size_t length, length_again;
  struct gd_store_key key;
  struct gd_trial trial, pending;
  bool found;
  (void)state;
  for (uint64_t i = 0; i < 10; i++)
    put_sample(mine, i, 1, "here", "2024-05-01T00:00:00.000Z");
  put_sample(mine, 0, 2, "here", "2024-05-02T00:00:00.000Z"); /* history goes too */
  trial_sample(&pending, 50);
  trial_sample_key(&key, 50);
  pending.status = GD_TRIAL_PLANNED; /* what is pending here is nobody else's business */
  OK(gd_store_put(mine, &key, &pending, NULL, &oops));
  OK(gd_store_save(mine, file, &saved, &oops));
  assert_int_equal(saved, 11);
  trial_sample_key(&key, 5);
  OK(gd_store_put(theirs, &key, &pending, NULL, &oops)); /* what comes in was not measured here */
  OK(gd_store_load(theirs, file, &added, &known, &oops));
  assert_true(added == 11 && known == 0);
  assert_int_equal(count_rows(theirs, &(struct gd_store_filter){.pending = true}), 1);
  OK(gd_store_drop_pending(theirs, &key, &oops));
  OK(gd_store_load(theirs, file, &added, &known, &oops));
  assert_true(added == 0 && known == 11);
  OK(gd_store_save(theirs, again, &saved, &oops));
  char *text = slurp(file, &length), *text_again = slurp(again, &length_again);
  assert_int_equal(length, length_again);
  assert_memory_equal(text, text_again, length);
  gd_mem_free(text);
  gd_mem_free(text_again);
  assert_int_equal(count_rows(theirs, &(struct gd_store_filter){0}), 10);
  /* Another machine's result of the same key is kept too; an older one of the same is history. */
  put_sample(mine, 3, 4, "there", "2024-05-03T00:00:00.000Z");
  put_sample(mine, 4, 5, "here", "2024-04-01T00:00:00.000Z");
  OK(gd_store_save(mine, file, &saved, &oops));
  OK(gd_store_load(theirs, file, &added, &known, &oops));
  assert_true(added == 2 && known == 11);
  assert_int_equal(count_rows(theirs, &(struct gd_store_filter){0}), 11);
  assert_int_equal(count_rows(theirs, &(struct gd_store_filter){.history = true}), 13);
  /* None of them answers as measured here; what is measured here neither supersedes them, nor do
     they, whatever their date. */
  trial_sample_key(&key, 3);
  OK(gd_store_find(theirs, &key, &trial, NULL, &found, &oops));
  assert_false(found);
  put_sample(theirs, 3, 6, "theirs", "2024-04-01T00:00:00.000Z");
  OK(gd_store_find(theirs, &key, &trial, NULL, &found, &oops));
  assert_true(found && trial.loss == 6);
  assert_int_equal(count_rows(theirs, &(struct gd_store_filter){0}), 12);
  put_sample(mine, 3, 7, "there", "2024-06-03T00:00:00.000Z");
  OK(gd_store_save(mine, file, &saved, &oops));
  OK(gd_store_load(theirs, file, &added, &known, &oops));
  assert_true(added == 1 && known == 13);
  OK(gd_store_find(theirs, &key, &trial, NULL, &found, &oops));
  assert_true(found && trial.loss == 6);
  assert_int_equal(count_rows(theirs, &(struct gd_store_filter){0}), 12);
  assert_int_equal(scratch_count(""), 8); /* two databases with -wal and -shm, two files */
  gd_store_close(mine);
  gd_store_close(theirs);
}

static void expect_load_fails(struct gd_store *store, const char *text, enum gd_status status,
                              const char *expected) {
  int64_t added, known;
  struct gd_error err = {0};
  scratch_write_text("bad.jsonl", text);
  assert_int_equal(gd_store_load(store, scratch_path("bad.jsonl"), &added, &known, &err), status);
  if (!strstr(err.text, expected))
    fail_msg("\"%s\" does not say \"%s\"", err.text, expected);
  assert_int_equal(count_rows(store, &(struct gd_store_filter){.history = true}), 0);
}

/* Trials that were measured again and again: as many changes as rows, not as pairs of them. */
static void test_long_history(void **state) {
  enum { ROWS = 150 };
  struct gd_store *mine = open_store("mine.db"), *theirs = open_store("theirs.db");
  const char *file = scratch_path("saved.jsonl");
  int64_t saved, added, known;
  (void)state;
  OK(gd_store_exec(mine, "open", "PRAGMA synchronous = OFF", &oops));
  for (int i = 0; i < ROWS; i++) {
    char time[32];
    snprintf(time, sizeof time, "2024-05-01T00:%02d:%02d.000Z", i * 7 % ROWS / 60,
             i * 7 % ROWS % 60); /* in no order */
    put_sample(mine, 1, 1 + 1e-3 * i, "here", time);
  }
  OK(gd_store_save(mine, file, &saved, &oops));
  OK(gd_store_load(theirs, file, &added, &known, &oops));
  assert_int_equal(added, ROWS);
  assert_int_equal(count_rows(theirs, &(struct gd_store_filter){.history = true}), ROWS);
  assert_int_equal(count_rows(theirs, &(struct gd_store_filter){0}), 1);
  assert_int_equal(ask(scratch_path("theirs.db"),
                       "SELECT time = '2024-05-01T00:02:29.000Z' FROM trials WHERE NOT superseded"),
                   1);
  int changes = sqlite3_total_changes(theirs->db);
  if (changes > 5 * ROWS)
    fail_msg("%d rows were changed to load %d", changes, ROWS);
  gd_store_close(mine);
  gd_store_close(theirs);
}

static void test_bad_exchange(void **state) {
  struct gd_store *store = open_store("a.db"), *full = open_store("full.db");
  const char *file = scratch_path("good.jsonl");
  struct gd_error err = {0};
  int64_t saved, added, known;
  size_t length;
  (void)state;
  put_sample(full, 1, 1, "here", "2024-05-01T00:00:00.000Z");
  put_sample(full, 2, 1, "here", "2024-05-01T00:00:00.000Z");
  OK(gd_store_save(full, file, &saved, &oops));
  char *text = slurp(file, &length), *cut = strrchr(text, '}');
  expect_load_fails(store, "", GD_BAD_INPUT, "is empty");
  expect_load_fails(store, "model,days\n", GD_BAD_INPUT, "results save");
  expect_load_fails(store, "model,method,days\nm,naive,1\n", GD_BAD_INPUT, "no column 'status'");
  expect_load_fails(store, "{\"format\":\"gpudays results\",\"version\":4}\n", GD_UNSUPPORTED,
                    "newer");
  expect_load_fails(store, "{\"format\":\"gpudays results\",\"version\":1}\n{}\n", GD_BAD_INPUT,
                    "line 2: key");
  memcpy(strstr(text, "2024-05-01T"), "2024-05-01 ", 11);
  expect_load_fails(store, text, GD_BAD_INPUT, "time");
  memcpy(strstr(text, "2024-05-01 "), "2024-05-01T", 11);
  *cut = '\0'; /* the first trial is whole, the second is not: neither comes in */
  expect_load_fails(store, text, GD_BAD_INPUT, "line 3");
  gd_mem_free(text);
  assert_int_equal(gd_store_load(store, scratch_path("none"), &added, &known, &err), GD_BAD_INPUT);
  err = (struct gd_error){0};
  assert_int_equal(gd_store_save(full, scratch_path("no/such/folder"), &saved, &err),
                   GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "no/such/folder"));
  gd_store_close(store);
  gd_store_close(full);
}

/* --- files that are not ours --------------------------------------------------------------- */

static void run_sql(const char *path, const char *sql) {
  sqlite3 *db;
  char *message = NULL;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
    fail_msg("%s: %s", sql, message);
  sqlite3_close(db);
}

static void expect_open_fails(const char *name, const char *expected) {
  struct gd_store *store;
  struct gd_error err = {0};
  const char *path = scratch_path(name);
  size_t before, after;
  char *text = slurp(path, &before);
  assert_int_equal(gd_store_open(path, &store, &err), GD_ENVIRONMENT);
  assert_null(store);
  assert_non_null(strstr(err.text, path));
  if (!strstr(err.text, expected))
    fail_msg("\"%s\" does not say \"%s\"", err.text, expected);
  if (!text)
    return;
  char *text_after = slurp(path, &after);
  assert_int_equal(before, after);
  assert_memory_equal(text, text_after, before);
  gd_mem_free(text);
  gd_mem_free(text_after);
}

static void test_refused(void **state) {
  char noise[8192];
  (void)state;
  scratch_write_text("text.db", "not a database\n");
  expect_open_fails("text.db", "damaged");
  run_sql(scratch_path("other.db"), "CREATE TABLE phones(number); PRAGMA user_version = 1");
  expect_open_fails("other.db", "another program");
  gd_store_close(open_store("newer.db"));
  run_sql(scratch_path("newer.db"), "PRAGMA user_version = 99");
  expect_open_fails("newer.db", "newer gpudays (schema 99");
  assert_int_equal(scratch_count(""), 3); /* and nothing else */
  mkdir(scratch_path("folder.db"), 0777);
  expect_open_fails("folder.db", "is no file");
  scratch_write_text("plain", "");
  expect_open_fails("plain/results.db", "GPUDAYS_DB");
  /* The header is whole, what comes after it is noise. */
  gd_store_close(open_store("torn.db"));
  FILE *file = fopen(scratch_path("torn.db"), "r+b");
  memset(noise, 0xa5, sizeof noise);
  fseek(file, 100, SEEK_SET);
  assert_int_equal(fwrite(noise, 1, sizeof noise, file), sizeof noise);
  fclose(file);
  expect_open_fails("torn.db", "damaged");
  /* Cut off in the middle. */
  struct gd_store *store = open_store("cut.db");
  for (uint64_t i = 0; i < 50; i++)
    put_sample(store, i, 1, "here", "2024-05-01T00:00:00.000Z");
  gd_store_close(store);
  assert_int_equal(truncate(scratch_path("cut.db"), 30000), 0);
  struct gd_error err = {0};
  int rows = 0;
  if (gd_store_open(scratch_path("cut.db"), &store, &err) == GD_OK) {
    assert_int_equal(gd_store_query(store, &(struct gd_store_filter){0}, count_row, &rows, &err),
                     GD_ENVIRONMENT);
    gd_store_close(store);
  }
  assert_non_null(strstr(err.text, "cut.db is damaged"));
}

/* One row is no good: it is named, left out of lists and files, and measured again; the others are
   as they were. */
static void test_edited(void **state) {
  static const struct {
    const char *sql, *said;
    bool saved; /* its key alone: only a file needs that */
  } edits[] = {
#define EDIT(change) "UPDATE trials SET " change " WHERE id = 1"
      {EDIT("precision = 'fp1'"), "trial 1 has a precision", false},
      {EDIT("ranks = 4294967297"), "trial 1 has a ranks", false}, /* 1 in 32 bits */
      {EDIT("ranks = 2147483647"), "trial 1 has a ranks", false},
      {EDIT("days = 'soon'"), "trial 1 has a days", false},
      {EDIT("days = 0.0000001"), "trial 1 has a days", false},
      {EDIT("peak_bytes = -5"), "trial 1 has a peak_bytes", false},
      {EDIT("peak_bytes = 1"), "trial 1 has a peak_bytes", false},
      {EDIT("method = 'foo'"), "trial 1 has a method", false},
      {EDIT("model = ''"), "trial 1 has a model", false},
      {EDIT("device = ''"), "trial 1 has a device", false},
      {EDIT("micro_batch = 0"), "trial 1 has a micro_batch", false},
      {EDIT("accumulation = accumulation + 1"), "trial 1 has a step_s", false},
      {EDIT("pass_s = 0"), "trial 1 has a micro_step_s", false},
      {EDIT("tokens_per_s = 1"), "trial 1 has a tokens_per_s", false},
      {EDIT("loss = -4"), "trial 1 has a loss", false},
      {EDIT("loss = 1e30"), "trial 1 has a loss", false},
      {EDIT("loss = NULL"), "trial 1 has a loss", false},
      {EDIT("norm = 9e999"), "trial 1 has a norm", false},
      {EDIT("norm = -1"), "trial 1 has a norm", false},
      {EDIT("stalled_share = 7"), "trial 1 has a stalled_share", false},
      {EDIT("time = '2099-01-01T00:00:00.000Z'"), "trial 1 has a time", false},
      {"UPDATE details SET key_text = 'model=m;threads=77' WHERE id = 1", "trial 1 has a model",
       false},
      {"UPDATE details SET key_text = 'x;threads=77' WHERE id = 1", "trial 1 has a threads", false},
      {"UPDATE details SET samples = '[1]' WHERE id = 1", "trial 1 has a samples", false},
      {"UPDATE details SET samples = "
       "'{\"micro_step_ns\":[1],\"last_micro_step_ns\":[],\"update_ns\":[]}'"
       " WHERE id = 1",
       "trial 1 has a samples", false},
      {"UPDATE details SET key_text = CAST(x'6d3dff' AS TEXT) WHERE id = 1", "trial 1 has a key",
       true},
      {"DELETE FROM details WHERE id = 1", "trial 1 has a missing part", false},
#undef EDIT
  };
  struct gd_store *store = open_store("a.db");
  (void)state;
  put_sample(store, 1, 1, "here", "2024-05-01T00:00:00.000Z");
  put_sample(store, 2, 1, "here", "2024-05-01T00:00:00.000Z");
  run_sql(scratch_path("a.db"), "CREATE TABLE kept AS SELECT * FROM trials;"
                                "CREATE TABLE parts AS SELECT * FROM details");
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    const char *said;
    int64_t saved = 0;
    run_sql(scratch_path("a.db"), edits[i].sql);
    int rows = count_rows(store, &(struct gd_store_filter){0});
    assert_int_equal(rows, edits[i].saved ? 2 : 1);
    OK(gd_store_save(store, scratch_path("saved"), &saved, &oops));
    assert_int_equal(saved, 1);
    assert_int_equal(gd_store_damage(store, &said), 1);
    if (!strstr(said, edits[i].said))
      fail_msg("\"%s\" does not say \"%s\"", said, edits[i].said);
    run_sql(scratch_path("a.db"),
            "REPLACE INTO trials SELECT * FROM kept; REPLACE INTO details SELECT * FROM parts");
    assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 2);
  }
  gd_store_close(store);
}

/* --- schema -------------------------------------------------------------------------------- */

struct last_row {
  struct gd_store_row row;
};
static enum gd_status keep_last(void *user, const struct gd_store_row *row, struct gd_error *err) {
  (void)err;
  ((struct last_row *)user)->row = *row;
  return GD_OK;
}

/* A database of schema 1, as the first gpudays wrote it (tests/store/schema1.sql). */
static void test_migration(void **state) {
  const char *path = scratch_path("old.db");
  struct gd_store_key key = {.hash = "0123456789abcdef0123456789abcdef",
                             .text = "model=pythia-14m"};
  struct gd_trial trial;
  size_t length;
  bool found;
  (void)state;
  char *sql = slurp(GD_SOURCE_DIR "/tests/store/schema1.sql", &length);
  assert_non_null(sql);
  run_sql(path, sql);
  gd_mem_free(sql);
  assert_int_equal(ask(path, "PRAGMA user_version"), 1);
  struct gd_store *store = open_store("old.db");
  OK(gd_store_find(store, &key, &trial, NULL, &found, &oops));
  assert_false(found); /* of another host */
  struct last_row last = {0};
  OK(gd_store_query(store, &(struct gd_store_filter){0}, keep_last, &last, &oops));
  trial = last.row.trial;
  assert_string_equal(trial.model, "pythia-14m");
  assert_true(trial.days == 12.625 && trial.micro_step.count == 3 &&
              trial.micro_step.ns[2] == 49000001);
  assert_string_equal(last.row.provenance.host, "lab1");
  assert_string_equal(last.row.provenance.clocks, "");
  assert_string_equal(last.row.origin, "a store of before");
  assert_string_equal(trial.recipe, ""); /* its key does not tell */
  trial.days = trial.days_low = trial.days_high = 3;
  OK(gd_store_put(store, &key, &trial, NULL, &oops));
  gd_store_close(store);
  assert_int_equal(ask(path, "PRAGMA user_version"), GD_STORE_SCHEMA);
  assert_int_equal(ask(path, "SELECT count(*) FROM trials"), 2);
  assert_int_equal(ask(path, "SELECT count(*) FROM pragma_integrity_check"), 1);
  gd_store_close(open_store("old.db")); /* and once more, with nothing to do */
}

/* A step that fails halfway leaves the version and the tables of before. */
static void test_failed_migration(void **state) {
  const char *steps[] = {gd_store_steps[0], gd_store_steps[1], gd_store_steps[2], gd_store_steps[3],
                         "CREATE TABLE new_table(x); INSERT INTO no_such_table VALUES(1)"};
  struct gd_store *store = open_store("a.db");
  struct gd_error err = {0};
  (void)state;
  put_sample(store, 1, 1, "here", "2024-05-01T00:00:00.000Z");
  assert_int_not_equal(gd_store_migrate(store, steps, GD_STORE_SCHEMA + 1, &err), GD_OK);
  assert_non_null(strstr(err.text, "no_such_table"));
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 1);
  gd_store_close(store);
  assert_int_equal(ask(scratch_path("a.db"), "PRAGMA user_version"), GD_STORE_SCHEMA);
  assert_int_equal(
      ask(scratch_path("a.db"), "SELECT count(*) FROM sqlite_schema WHERE name = 'new_table'"), 0);
}

static void test_columns(void **state) {
  char sql[256];
  (void)state;
  gd_store_close(open_store("a.db"));
  int own = 6; /* id, digest, key, superseded, measured_s, origin */
  for (int i = 0; i < gd_trial_field_count; i++) {
    snprintf(sql, sizeof sql, "SELECT count(*) FROM pragma_table_info('trials') WHERE name = '%s'",
             gd_trial_fields[i].first_name ? gd_trial_fields[i].first_name
                                           : gd_trial_fields[i].name);
    if (ask(scratch_path("a.db"), sql) != 1)
      fail_msg("no column %s: add a step to gd_store_steps", gd_trial_fields[i].name);
  }
  assert_int_equal(ask(scratch_path("a.db"), "SELECT count(*) FROM pragma_table_info('trials')"),
                   own + gd_trial_field_count + gd_provenance_field_count);
}

/* --- places -------------------------------------------------------------------------------- */

static void test_places(void **state) {
  struct gd_store *store = NULL;
  struct gd_error err = {0};
  char expected[512];
  (void)state;
  setenv("GPUDAYS_DB", scratch_path("one/mine.db"), 1);
  setenv("XDG_DATA_HOME", scratch_path("two"), 1);
  setenv("HOME", scratch_path("three"), 1);
  OK(gd_store_open(NULL, &store, &oops));
  assert_string_equal(gd_store_path(store), scratch_path("one/mine.db"));
  gd_store_close(store);
  unsetenv("GPUDAYS_DB");
  OK(gd_store_open(NULL, &store, &oops));
  assert_string_equal(gd_store_path(store), scratch_path("two/gpudays/results.db"));
  gd_store_close(store);
  setenv("XDG_DATA_HOME", "relative", 1);
  OK(gd_store_open(NULL, &store, &oops));
  snprintf(expected, sizeof expected, "%s", scratch_path("three/.local/share/gpudays/results.db"));
  assert_string_equal(gd_store_path(store), expected);
  gd_store_close(store);
  unsetenv("XDG_DATA_HOME");
  unsetenv("HOME");
  assert_int_equal(gd_store_open(NULL, &store, &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "GPUDAYS_DB"));
}

static void test_network(void **state) {
  (void)state;
  assert_true(gd_store_is_network(0x6969));              /* NFS */
  assert_true(gd_store_is_network(0x0bd00bd0));          /* Lustre */
  assert_true(gd_store_is_network(0xff534d42));          /* CIFS */
  assert_true(gd_store_is_network((int32_t)0xff534d42)); /* as a signed word extends it */
  assert_false(gd_store_is_network(0xef53));             /* ext4 */
  assert_false(gd_store_is_network(0x01021994));         /* tmpfs */
  assert_false(gd_store_is_network(0x9123683e));         /* btrfs */
}

static bool is_wal(const char *path) {
  return ask(path, "SELECT journal_mode = 'wal' FROM pragma_journal_mode") == 1;
}

/* On a local disk the mode is WAL; a database that moves to a network file system loses it. */
static void test_journal(void **state) {
  const char *path = scratch_path("a.db");
  struct gd_store *store, *other;
  (void)state;
  OK(gd_store_open_as(path, GD_STORE_LOCAL, &store, &oops));
  put_sample(store, 1, 1, "here", "2024-05-01T00:00:00.000Z");
  gd_store_close(store);
  assert_true(is_wal(path));
  OK(gd_store_open_as(path, GD_STORE_NETWORK, &store, &oops));
  OK(gd_store_open_as(path, GD_STORE_NETWORK, &other, &oops)); /* and it is not held */
  put_sample(store, 2, 1, "here", "2024-05-01T00:00:00.000Z");
  put_sample(other, 3, 1, "here", "2024-05-01T00:00:00.000Z");
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 3);
  assert_int_equal(scratch_count(""), 1); /* no -wal, no -shm */
  gd_store_close(store);
  gd_store_close(other);
  assert_false(is_wal(path));
  OK(gd_store_open_as(path, GD_STORE_LOCAL, &store, &oops));
  assert_int_equal(count_rows(store, &(struct gd_store_filter){0}), 3);
  gd_store_close(store);
  assert_true(is_wal(path));
  OK(gd_store_open_as(scratch_path("new.db"), GD_STORE_NETWORK, &store, &oops));
  gd_store_close(store);
  assert_false(is_wal(scratch_path("new.db")));
}

/* --- memory -------------------------------------------------------------------------------- */

static enum gd_status open_and_close(void *context, struct gd_error *err) {
  struct gd_store *store = NULL;
  enum gd_status status = gd_store_open(context, &store, err);
  gd_store_close(store);
  return status;
}

struct session {
  struct gd_store *store;
  struct gd_trial trial;
  struct gd_store_key key;
};

/* Not synchronous, and always the same row: hundreds of times must not take a minute. */
static enum gd_status use(void *context, struct gd_error *err) {
  struct session *session = context;
  struct gd_store *store = session->store;
  struct gd_provenance from = {.time = "2024-05-01T00:00:00.000Z"};
  struct gd_trial copy;
  struct gd_store_total total;
  int64_t saved, added, known;
  int rows = 0;
  bool found;
  enum gd_status status = gd_store_put(store, &session->key, &session->trial, &from, err);
  if (status == GD_OK)
    status = gd_store_find(store, &session->key, &copy, NULL, &found, err);
  if (status == GD_OK)
    status = gd_store_query(store, &(struct gd_store_filter){0}, count_row, &rows, err);
  if (status == GD_OK)
    status = gd_store_count(store, &(struct gd_store_filter){0}, &total, err);
  if (status == GD_OK)
    status = gd_store_save(store, scratch_path("f.jsonl"), &saved, err);
  if (status == GD_OK)
    status = gd_store_load(store, scratch_path("f.jsonl"), &added, &known, err);
  return status;
}

static void test_memory_runs_out(void **state) {
  struct session session = {0};
  char path[512];
  (void)state;
  snprintf(path, sizeof path, "%s", scratch_path("f.db"));
  assert_int_equal(fault_sweep(open_and_close, path), GD_OK);
  OK(gd_store_open(path, &session.store, &oops));
  OK(gd_store_exec(session.store, "open", "PRAGMA synchronous = OFF", &oops));
  trial_sample(&session.trial, 2);
  trial_sample_key(&session.key, 1);
  session.trial.micro_step.count = session.trial.last_micro_step.count =
      session.trial.update.count = 3;
  trial_sample_derive(&session.trial, 1000);
  assert_int_equal(fault_sweep(use, &session), GD_OK);
  assert_int_equal(count_rows(session.store, &(struct gd_store_filter){.history = true}), 1);
  gd_store_close(session.store);
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_line_round_trip),
      IN_SCRATCH(test_not_finite),
      cmocka_unit_test(test_text_is_cleaned),
      cmocka_unit_test(test_bad_records),
      cmocka_unit_test(test_tf32_above_its_peak),
      cmocka_unit_test(test_keys),
      IN_SCRATCH(test_round_trip),
      cmocka_unit_test(test_provenance),
      IN_SCRATCH(test_history),
      IN_SCRATCH(test_pending),
      cmocka_unit_test(test_parts),
      IN_SCRATCH(test_filters),
      IN_SCRATCH(test_exchange),
      IN_SCRATCH(test_long_history),
      IN_SCRATCH(test_bad_exchange),
      IN_SCRATCH(test_refused),
      IN_SCRATCH(test_edited),
      IN_SCRATCH(test_migration),
      IN_SCRATCH(test_failed_migration),
      IN_SCRATCH(test_columns),
      IN_SCRATCH(test_places),
      cmocka_unit_test(test_network),
      IN_SCRATCH(test_journal),
      IN_SCRATCH(test_memory_runs_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
