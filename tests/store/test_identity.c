/*
 * What a trial is a trial of, and on what: identities of recipes and machines, what rows of older
 * databases and files gain.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "backend/machine.h"
#include "base/mem.h"
#include "model/model.h"
#include "store/store_int.h"
#include "support/scratch.h"
#include "support/trial_sample.h"

#define OK(expr)                                                       \
  do {                                                                 \
    struct gd_error oops = {0};                                        \
    if ((expr) != GD_OK)                                               \
      fail_msg("%s: %s", #expr, oops.text[0] ? oops.text : "no text"); \
  } while (0)

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

static struct gd_store *open_store(const char *name) {
  struct gd_store *store = NULL;
  OK(gd_store_open(scratch_path(name), &store, &oops));
  return store;
}

static void run_sql(const char *path, const char *sql) {
  sqlite3 *db;
  char *message = NULL;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
    fail_msg("%s: %s", sql, message);
  sqlite3_close(db);
}

/* --- recipes ------------------------------------------------------------------------------- */

static const char *recipe_of(const char *name, void (*edit)(struct gd_model *),
                             const enum gd_precision *precision) {
  static char hashes[16][GD_HASH_TEXT];
  static int next;
  struct gd_model model;
  char *hash = hashes[next++ % 16];
  OK(gd_model_load(name, &model, &oops));
  if (edit)
    edit(&model);
  OK(gd_recipe_hash(&model, precision, hash, &oops));
  return hash;
}

static void edit_name(struct gd_model *model) {
  snprintf(model->name, sizeof model->name, "m[1]");
}
static void edit_learning(struct gd_model *model) {
  model->recipe.lr *= 2;
  model->recipe.weight_decay *= 3;
  model->recipe.eps *= 10;
  model->recipe.warmup_steps++;
  model->recipe.max_grad_norm = 0;
}
static void edit_batch(struct gd_model *model) {
  model->recipe.batch *= 2;
}
static void edit_seq(struct gd_model *model) {
  model->recipe.seq--;
}
static void edit_steps(struct gd_model *model) {
  model->recipe.steps++;
}
static void edit_optimizer(struct gd_model *model) {
  model->recipe.optimizer =
      model->recipe.optimizer == GD_OPTIMIZER_ADAM ? GD_OPTIMIZER_ADAMW : GD_OPTIMIZER_ADAM;
}
static void edit_heads(struct gd_model *model) {
  model->config.neox.heads *= 2;
}

static void test_recipes(void **state) {
  static void (*const other[])(struct gd_model *) = {edit_batch, edit_seq, edit_steps,
                                                     edit_optimizer, edit_heads};
  static const enum gd_precision fp32 = GD_PRECISION_FP32, fp16 = GD_PRECISION_FP16;
  const char *preset = recipe_of("pythia-14m", NULL, NULL);
  (void)state;
  assert_string_equal(recipe_of("pythia-14m", edit_name, NULL), preset);
  assert_string_equal(recipe_of("pythia-14m", edit_learning, NULL), preset);
  assert_string_equal(recipe_of("pythia-14m", NULL, &fp16), preset); /* as the recipe has it */
  assert_string_not_equal(recipe_of("pythia-14m", NULL, &fp32), preset);
  assert_string_not_equal(recipe_of("pythia-70m", NULL, NULL), preset);
  for (size_t i = 0; i < sizeof other / sizeof *other; i++)
    if (strcmp(recipe_of("pythia-14m", other[i], NULL), preset) == 0)
      fail_msg("edit %zu is no other recipe", i);
}

/* Hashes are in databases and published files: whatever ops are called by now, they stay. */
static void test_recipes_stay(void **state) {
  FILE *file = fopen(GD_SOURCE_DIR "/tests/store/recipes.txt", "r");
  char line[256], name[128], hash[GD_HASH_TEXT];
  int count = 0;
  (void)state;
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    if (line[0] == '#')
      continue;
    assert_int_equal(sscanf(line, "%127s %32s", name, hash), 2);
    if (strcmp(recipe_of(name, NULL, NULL), hash) != 0)
      fail_msg("the recipe of %s is another one than that of stored trials", name);
    count++;
  }
  fclose(file);
  assert_true(count >= 30);
}

/* An op without a lasting name would change recipes when it is renamed. */
static void test_ops_have_lasting_names(void **state) {
  struct gd_arena arena = {0};
  const char *const *names;
  int count;
  (void)state;
  OK(gd_model_list(&arena, &names, &count, &oops));
  for (int i = 0; i < count; i++) {
    struct gd_model model;
    struct gd_graph graph;
    OK(gd_model_load(names[i], &model, &oops));
    gd_graph_init(&graph);
    model.family->build(&model, 1, &graph);
    for (gd_op_id id = 0; id < graph.n_ops; id++)
      if (!gd_recipe_op_name(graph.ops[id].kind))
        fail_msg("%s has the op %s, which has no name in trial/recipe.c", names[i],
                 gd_op_info(graph.ops[id].kind)->name);
    gd_graph_deinit(&graph);
  }
  gd_arena_deinit(&arena);
}

/* --- machines ------------------------------------------------------------------------------ */

static void test_machines(void **state) {
  struct gd_device_info gpu = {.name = "A GPU", .memory_bytes = (int64_t)80 << 30, .devices = 2};
  char plain[GD_MACHINE_TEXT], other[GD_MACHINE_TEXT], long_text[4 * GD_MACHINE_TEXT];
  (void)state;
  unsetenv("GPUDAYS_NCCL");
  unsetenv("GPUDAYS_DETERMINISTIC");
  gd_machine_print("cpu", &gpu, 1, plain);
  assert_non_null(strstr(plain, "cores="));
  assert_non_null(strstr(plain, "memory="));
  assert_null(strstr(plain, "A GPU"));
  setenv("GPUDAYS_DB", "/elsewhere", 1); /* no part of a measurement */
  gd_machine_print("cpu", &gpu, 1, other);
  assert_string_equal(plain, other);
  setenv("GPUDAYS_NCCL", "off", 1);
  gd_machine_print("cpu", &gpu, 1, other);
  assert_non_null(strstr(other, ";GPUDAYS_NCCL=off"));
  setenv("GPUDAYS_DETERMINISTIC", "1", 1);
  gd_machine_print("cuda", &gpu, 4, other);
  assert_non_null(strstr(other, ";gpu=A GPU;gpus=2;gpu_memory=80 GiB"));
  assert_non_null(strstr(other, ";GPUDAYS_DETERMINISTIC=1;GPUDAYS_NCCL=off"));
  assert_non_null(strstr(other, "NCCL="));
  /* What moves messages counts where there are any; where segments lie counts nowhere. */
  static const char *const tuning[] = {"OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_coll"};
  for (size_t i = 0; i < sizeof tuning / sizeof *tuning; i++) {
    char field[64];
    snprintf(field, sizeof field, ";%s=x", tuning[i]);
    setenv(tuning[i], "x", 1);
    gd_machine_print("cpu", &gpu, 1, plain);
    gd_machine_print("cpu", &gpu, 2, other);
    unsetenv(tuning[i]);
    assert_null(strstr(plain, field));
    assert_non_null(strstr(other, field));
  }
  assert_null(strstr(plain, "OpenMPI="));
  /* Two long texts that differ past what fits are still two. */
  memset(long_text, 'x', sizeof long_text);
  long_text[sizeof long_text - 1] = '\0';
  setenv("NCCL_LONG", long_text, 1);
  gd_machine_print("cpu", &gpu, 1, plain);
  long_text[sizeof long_text - 2] = 'y';
  setenv("NCCL_LONG", long_text, 1);
  gd_machine_print("cpu", &gpu, 1, other);
  assert_string_not_equal(plain, other);
  unsetenv("NCCL_LONG");
  unsetenv("GPUDAYS_NCCL");
  unsetenv("GPUDAYS_DETERMINISTIC");
}

/* --- rows of before ------------------------------------------------------------------------ */

struct seen {
  int rows, preset, short_run, loaded;
};

static enum gd_status look(void *user, const struct gd_store_row *row, struct gd_error *err) {
  static const enum gd_precision fp32 = GD_PRECISION_FP32;
  struct seen *seen = user;
  (void)err;
  seen->rows++;
  seen->loaded += row->origin[0] != '\0';
  assert_int_equal(strlen(row->trial.recipe), GD_HASH_TEXT - 1);
  assert_int_equal(row->trial.failure, GD_FAILURE_NONE);
  if (strcmp(row->trial.recipe, recipe_of("pythia-14m", NULL, NULL)) == 0)
    seen->preset++;
  struct gd_model model;
  char hash[GD_HASH_TEXT];
  OK(gd_model_load("pythia-14m", &model, &oops));
  model.recipe.batch = 8;
  model.recipe.seq = 64;
  model.recipe.steps = 10;
  OK(gd_recipe_hash(&model, &fp32, hash, &oops));
  seen->short_run += strcmp(row->trial.recipe, hash) == 0;
  return GD_OK;
}

/* The database that 5a9dd79b906c made, and what it saved. Both are known by the same digests, so
   that loading its file into its database adds nothing. */
static void test_rows_of_before(void **state) {
  const char *path = scratch_path("old.db");
  int64_t added, known;
  size_t length;
  struct seen seen = {0};
  (void)state;
  char *sql = slurp(GD_SOURCE_DIR "/tests/store/schema2.sql", &length);
  assert_non_null(sql);
  run_sql(path, sql);
  gd_mem_free(sql);
  struct gd_store *store = open_store("old.db"), *fresh;
  OK(gd_store_query(store, &(struct gd_store_filter){0}, look, &seen, &oops));
  /* naive, free-lunch and what does not fit, of the preset; a short one in fp32; a ViT */
  assert_true(seen.rows == 5 && seen.preset == 3 && seen.short_run == 1);
  OK(gd_store_load(store, GD_SOURCE_DIR "/tests/store/saved1.jsonl", &added, &known, &oops));
  assert_true(added == 0 && known == 5);
  gd_store_close(store);
  fresh = open_store("fresh.db");
  OK(gd_store_load(fresh, GD_SOURCE_DIR "/tests/store/saved1.jsonl", &added, &known, &oops));
  assert_true(added == 5 && known == 0);
  seen = (struct seen){0};
  OK(gd_store_query(fresh, &(struct gd_store_filter){0}, look, &seen, &oops));
  assert_true(seen.rows == 5 && seen.preset == 3 && seen.short_run == 1 && seen.loaded == 5);
  gd_store_close(fresh);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_recipes, scratch_setup, scratch_teardown),
      cmocka_unit_test(test_recipes_stay),
      cmocka_unit_test(test_ops_have_lasting_names),
      cmocka_unit_test_setup_teardown(test_machines, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_rows_of_before, scratch_setup, scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
