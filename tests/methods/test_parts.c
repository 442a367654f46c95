/*
 * The table of parts (methods.def) and the pipeline (pipeline.c): names that read back, the search
 * space in its order, passes that can be switched off, and docs/methods.md, whose tables of parts,
 * passes and bytes are written from them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pass/pass.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct gd_method_part *row(int i) {
  return gd_method_row((enum gd_method_part_id)i);
}

static int pass_number(const char *name) {
  return gd_pass_find(name, strlen(name));
}

/* --- the tables ----------------------------------------------------------------------------- */

static void test_rows(void **state) {
  (void)state;
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    const struct gd_method_part *part = row(i);
    assert_true(part->passes[0] && part->doc[0] && part->title[0]);
    for (int k = 0; k < i; k++)
      assert_string_not_equal(part->name, row(k)->name);
    if (part->numerics == GD_NUMERICS_CHANGED)
      assert_int_equal(part->search, GD_SEARCH_ASKED);
    if (part->kind == GD_KIND_SHARDING)
      assert_ptr_equal(gd_sharding_part((enum gd_sharding)part->value), part);
    for (const char *at = part->passes; *at; at += strspn(at, " ")) {
      size_t length = strcspn(at, " ");
      if (gd_pass_find(at, length) < 0)
        fail_msg("%s names the pass \"%.*s\", which there is not", part->name, (int)length, at);
      at += length;
    }
  }
  assert_ptr_equal(gd_sharding_part(GD_SHARDING_NONE), NULL);
}

/* What a pass needs stands before it, and each pass is a part's or runs always. */
static void test_passes(void **state) {
  int count;
  const struct gd_pass *passes = gd_passes(&count);
  (void)state;
  assert_true(count <= 32); /* bits of struct gd_method's without */
  for (int i = 0; i < count; i++) {
    bool named = passes[i].always;
    for (int k = 0; k < GD_METHOD_PART_COUNT && !named; k++)
      named = strstr(row(k)->passes, passes[i].name) != NULL;
    assert_true(named);
    assert_int_equal(pass_number(passes[i].name), i);
    if (passes[i].needs[0])
      assert_in_range(pass_number(passes[i].needs), 0, i - 1);
    if (i > 0)
      assert_true(passes[i].stage >= passes[i - 1].stage);
  }
}

/* --- names ---------------------------------------------------------------------------------- */

static void reads_as(const char *text, const char *wanted) {
  struct gd_method method, again;
  struct gd_error err = {0};
  char name[GD_METHOD_NAME], second[GD_METHOD_NAME];
  if (gd_method_parse(text, &method, &err) != GD_OK)
    fail_msg("%s: %s", text, err.text);
  assert_string_equal(gd_method_name(&method, name), wanted);
  assert_int_equal(gd_method_parse(name, &again, &err), GD_OK);
  assert_string_equal(gd_method_name(&again, second), wanted);
  assert_memory_equal(&again, &method, sizeof again);
}

static void fails_as(const char *text, const char *part) {
  struct gd_method method;
  struct gd_error err = {0};
  assert_int_equal(gd_method_parse(text, &method, &err), GD_BAD_INPUT);
  if (!strstr(err.text, part))
    fail_msg("%s: \"%s\" lacks \"%s\"", text, err.text, part);
}

static void test_names(void **state) {
  (void)state;
  reads_as("naive", "naive");
  reads_as("naive+ckpt", "naive+ckpt");
  reads_as("ckpt", "naive+ckpt");
  reads_as("tf32+compile+kernels", "free-lunch");
  reads_as("tf32+compile", "compile+tf32");
  reads_as("kernels", "kernels");
  reads_as("offload+fsdp2+free-lunch", "free-lunch+fsdp2+offload");
  reads_as("zero1+zero1", "naive+zero1");
  fails_as("", "unknown part \"\"");
  fails_as("free-lunch+", "unknown part \"\"");
  fails_as("free-lunch+zero", "unknown part \"zero\"");
  fails_as("zero9", "there are naive, free-lunch, compile, kernels, tf32, ckpt, zero1, zero2, "
                    "zero3, fsdp2, fsdp3 and offload, joined by +");
  fails_as("zero1+zero2", "two shardings");
  fails_as("naive+tf32", "naive and not naive");
  fails_as("offload", "shards nothing; add zero1, zero2, zero3, fsdp2 or fsdp3");
}

/* The order is that of tables and of searches; it is part of what programs see. */
static void test_space(void **state) {
  static const char *const all[] = {"", "+ckpt", "+zero1", "+ckpt+zero1", "+zero1+offload"};
  struct gd_method methods[GD_METHODS_MOST];
  char name[GD_METHOD_NAME];
  (void)state;
  assert_int_equal(gd_method_space(true, methods), 22);
  for (size_t i = 0; i < COUNT(all); i++)
    assert_string_equal(gd_method_name(&methods[i], name) + strlen("free-lunch"), all[i]);
  assert_string_equal(gd_method_name(&methods[21], name), "free-lunch+ckpt+fsdp3+offload");
  assert_int_equal(gd_method_space(false, methods), 12);
  assert_string_equal(gd_method_name(&methods[2], name), "free-lunch+zero1+offload");
  for (int i = 0; i < 12; i++) {
    reads_as(gd_method_name(&methods[i], name), name);
    assert_true(gd_method_is_free_lunch(&methods[i]) && !gd_method_is_naive(&methods[i]));
  }
}

static void test_without(void **state) {
  (void)state;
  reads_as("free-lunch without accumulate", "free-lunch without accumulate");
  reads_as("free-lunch+ckpt without ckpt+compile", "free-lunch+ckpt without compile+ckpt");
  reads_as("naive without compile", "naive"); /* which it does not have */
  reads_as("naive+zero1 without offload", "naive+zero1");
  reads_as("naive+zero1+offload without shard+offload",
           "naive+zero1+offload without shard+offload");
  reads_as("free-lunch+ckpt+zero1+offload without "
           "trim+kernels+recompute+compile+tf32+ckpt+shard+accumulate+offload",
           "free-lunch+ckpt+zero1+offload without "
           "trim+kernels+recompute+compile+tf32+ckpt+shard+accumulate+offload");
  fails_as("free-lunch without nothing", "unknown pass \"nothing\"; there are trim, precision");
  fails_as("free-lunch without ", "unknown pass \"\"");
  fails_as("free-lunch without precision", "choose --precision fp32");
  fails_as("naive+zero1+offload without shard", "pass offload needs it");
}

/* --- graphs --------------------------------------------------------------------------------- */

static void build(const struct gd_model *model, const struct gd_method *method, int ranks,
                  enum gd_status wanted) {
  struct gd_graph graph = {0};
  struct gd_error err = {0};
  char name[GD_METHOD_NAME];
  struct gd_setup setup = {.model = model,
                           .precision = GD_PRECISION_BF16,
                           .micro_batch = 1,
                           .method = *method,
                           .ranks = ranks,
                           .tf32 = true,
                           .verify_each = true};
  if (gd_pipeline_build(&setup, &graph, &err) != wanted)
    fail_msg("%s, %s: %s", model->name, gd_method_name(method, name), err.text);
  gd_graph_deinit(&graph);
}

/* Each point, whole and without each of its passes: the graph holds the rules of every stage. */
static void test_graphs(void **state) {
  static const char *const presets[] = {"pythia-14m", "mamba-130m", "vit-base", "roberta-base",
                                        "convnext-large-1k"};
  struct gd_method methods[GD_METHODS_MOST];
  struct gd_model model;
  struct gd_error err = {0};
  int n_passes, count = gd_method_space(true, methods);
  const struct gd_pass *passes = gd_passes(&n_passes);
  (void)state;
  for (size_t i = 0; i < COUNT(presets); i++) {
    assert_int_equal(gd_model_load(presets[i], &model, &err), GD_OK);
    for (int m = 0; m < count; m++) {
      build(&model, &methods[m], 2, GD_OK);
      for (int p = 0; p < n_passes && (m % 5 == 0 || i == 0); p++) {
        struct gd_method without = methods[m];
        if (gd_method_leave_out(&without, passes[p].name, ',', NULL) != GD_OK)
          continue;
        bool alone = strcmp(passes[p].name, "shard") == 0;
        build(&model, &without, alone ? 1 : 2, GD_OK);
        if (alone) /* ranks without it would not sum their gradients */
          build(&model, &without, 2, GD_BAD_INPUT);
      }
    }
  }
}

/* What a stage does not have yet. */
static void test_stages(void **state) {
  struct gd_model model;
  struct gd_graph graph = {0};
  struct gd_error err = {0};
  (void)state;
  assert_int_equal(gd_model_load("pythia-14m", &model, &err), GD_OK);
  struct gd_setup setup = {.model = &model, .micro_batch = 1};
  assert_int_equal(gd_pipeline_build(&setup, &graph, &err), GD_OK);
  assert_int_equal(gd_stage_verify(&graph, GD_STAGE_ALL, &err), GD_OK);
  for (enum gd_stage stage = GD_STAGE_BUILD; stage < GD_STAGE_ALL; stage++) {
    struct gd_error why = {0};
    assert_int_equal(gd_stage_verify(&graph, stage, &why), GD_INTERNAL);
    assert_non_null(strstr(why.text, "before"));
  }
  gd_graph_deinit(&graph);
}

/* --- docs/methods.md ------------------------------------------------------------------------ */

static char *page(void) {
  static char text[1 << 16];
  FILE *file = fopen(GD_SOURCE_DIR "/docs/methods.md", "r");
  assert_non_null(file);
  size_t bytes = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[bytes] = '\0';
  return text;
}

static void page_has(const char *line) {
  if (!strstr(page(), line))
    fail_msg("docs/methods.md lacks the line\n%s", line);
}

static void test_page(void **state) {
  static const char *const in_all[] = {[GD_SEARCH_ALWAYS] = "always",
                                       [GD_SEARCH_VARIES] = "with and without",
                                       [GD_SEARCH_ENABLES] = "with and without",
                                       [GD_SEARCH_ASKED] = "no"};
  static const char *const numerics[] = {[GD_NUMERICS_BITS] = "the same bits",
                                         [GD_NUMERICS_ROUNDING] = "to rounding",
                                         [GD_NUMERICS_CHANGED] = "changed"};
  static const char *const paper[] = {[GD_ON_PAPER_NO] = "no",
                                      [GD_ON_PAPER_WHOLE_GROUP] = "with free-lunch",
                                      [GD_ON_PAPER_YES] = "yes"};
  static const char *const stages[] = {"before the forward graph", "forward", "micro-step", "all"};
  char line[512];
  int count;
  const struct gd_pass *passes = gd_passes(&count);
  (void)state;
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    const struct gd_method_part *part = row(i);
    const char *cells[GD_FORMAT_COUNT];
    for (int k = 0; k < GD_FORMAT_COUNT; k++)
      cells[k] = part->exports[k] ? part->exports[k] : "-";
    snprintf(line, sizeof line, "\n| `%s` | %s | %s | %s | %s | %s | %s | %s | %s |\n", part->name,
             part->passes, part->needs == GD_GROUP_SHARDING ? "a sharding" : "-",
             in_all[part->search], numerics[part->numerics], paper[part->paper], cells[0], cells[1],
             cells[2]);
    page_has(line);
  }
  for (int i = 0; i < count; i++) {
    snprintf(line, sizeof line, "\n| `%s` | %s | %s | %s | %s | %s |\n", passes[i].name,
             stages[passes[i].stage], passes[i].needs[0] ? passes[i].needs : "-",
             passes[i].preserves_numerics ? "yes" : "no", passes[i].stays ? "no" : "yes",
             passes[i].doc);
    page_has(line);
  }
}

/* A quantity on the device and on the host: "4/R | 0". */
static void put(char *line, size_t size, int bytes, bool divided, bool host) {
  size_t at = strlen(line);
  char cell[8] = "0";
  if (bytes)
    snprintf(cell, sizeof cell, "%d%s", bytes, divided ? "/R" : "");
  snprintf(line + at, size - at, " %s | %s |", host ? "0" : cell, host ? cell : "0");
}

/* Bytes per parameter follow from the columns of memory. */
static void test_bytes(void **state) {
  char line[256];
  (void)state;
  for (int sharding = GD_SHARDING_ZERO1; sharding < GD_SHARDING_COUNT; sharding++)
    for (int offload = 0; offload < 2; offload++)
      for (int copied = 0; copied < 2; copied++) {
        const struct gd_method_part *part = gd_sharding_part((enum gd_sharding)sharding);
        unsigned divides = part->divides, host = offload ? part->offloads : 0;
        bool whole = !(divides & GD_STATE_COMPUTE);
        snprintf(line, sizeof line, "\n| %s | %s |", part->name, offload ? "yes" : "no");
        /* Without a copy the master computes; on the host Adam has its own, and a copy computes. */
        put(line, sizeof line, 4, copied || !whole || host, host & GD_STATE_MASTER);
        put(line, sizeof line, copied ? 2 : whole && host ? 4 : 0, !whole, host & GD_STATE_COMPUTE);
        put(line, sizeof line, 4, divides & GD_STATE_GRADIENT, host & GD_STATE_GRADIENT);
        put(line, sizeof line, 8, divides & GD_STATE_MOMENTS, host & GD_STATE_MOMENTS);
        snprintf(line + strlen(line), sizeof line - strlen(line), "\n");
        page_has(line);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows),   cmocka_unit_test(test_passes),  cmocka_unit_test(test_names),
      cmocka_unit_test(test_space),  cmocka_unit_test(test_without), cmocka_unit_test(test_graphs),
      cmocka_unit_test(test_stages), cmocka_unit_test(test_page),    cmocka_unit_test(test_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
