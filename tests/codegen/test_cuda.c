/*
 * The CUDA dialect without a GPU: how rows are shared out to threads, which texts are shared, and
 * that NVRTC builds the kernels of every family for every architecture. What they compute is tested
 * on a GPU, op by op and model by model.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/fused.h"
#include "pass/pass.h"
#include "support/fault.h"
#include "support/ok.h"
#include "support/sample.h"
#include "support/tiny.h"

static struct gd_error err;

/* One of each family, and what differs inside one. */
static const char *const folders[] = {
    "neox-parallel", "gpt2-a", "llama-a", "olmo", "roberta-a", "mamba-a", "vit-a", "convnext-a",
};
enum { N_FOLDERS = sizeof folders / sizeof *folders, MOST_TEXTS = 512 };

static void build_graph(const char *folder, struct gd_graph *graph) {
  struct gd_model model;
  tiny_load_reference(folder, 17, &model);
  struct gd_setup setup = {.model = &model, .precision = GD_PRECISION_BF16, .micro_batch = 3};
  struct gd_pass_ctx ctx = {&setup, &err};
  OK(gd_pipeline_build(&setup, graph, &err));
  OK(gd_pass_recompute(&ctx, graph));
  OK(gd_pass_compile(&ctx, graph));
  assert_true(graph->n_fusions > 0);
}

/* --- how rows are shared out ---------------------------------------------------------------- */

/* rmsnorm of x[rows,columns] and a sum over its rows, or the silu of it. */
static void make_fusion(enum gd_dtype dtype, int64_t columns, bool norm, struct gd_fusion *fusion) {
  *fusion = (struct gd_fusion){.n_in = 2, .rows = 6, .columns = columns};
  struct gd_graph *g = &fusion->body;
  gd_graph_init(g);
  gd_tensor_id x = gd_graph_leaf(g, GD_ROLE_INPUT, "x", dtype, 2, (int64_t[]){6, columns});
  gd_tensor_id w = gd_graph_leaf(g, GD_ROLE_INPUT, "w", GD_DTYPE_F32, 1, &columns);
  fusion->n_out = norm ? 2 : 1;
  fusion->out[0] = norm ? gd_rmsnorm(g, x, w, 1e-6F) : gd_activate(g, x, GD_ACTIVATION_SILU);
  if (norm)
    fusion->out[1] = gd_graph_op(g, GD_OP_sum_rows, &(union gd_attr){.rows = {1}}, 1, &x);
  OK(gd_graph_check(g, &err));
}

static void check_teams(const struct gd_teams *t, int64_t columns) {
  int64_t held = (int64_t)t->lanes * t->team * t->per * t->parts;
  assert_int_equal(columns % t->lanes, 0);
  assert_true(held >= columns);
  assert_true(held - (int64_t)t->lanes * t->team * t->per < columns); /* no part without columns */
  assert_int_equal(t->block % t->team, 0);
  assert_true(t->block <= 1024 && t->parts <= 65535);
  if (t->team > 32)
    assert_int_equal(t->team % 32, 0);
  else
    assert_true(t->block % 32 == 0 && (t->team & (t->team - 1)) == 0);
}

static void test_teams(void **state) {
  static const int64_t all[] = {1,    2,    3,     8,     17,    33,    64,    96,     100,
                                512,  768,  1000,  1024,  1536,  2048,  3072,  4096,   5120,
                                9999, 8192, 11008, 16384, 21845, 50000, 65536, 262144, 1000003};
  static struct gd_lowered lowered;
  (void)state;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (int variant = 0; variant < 6; variant++) {
      static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16};
      struct gd_fusion fusion;
      struct gd_teams teams;
      bool norm = variant < 3;
      make_fusion(dtypes[variant % 3], all[i], norm, &fusion);
      if (gd_lower(&fusion, &lowered)) {
        gd_emit_teams(&lowered, &teams);
        check_teams(&teams, all[i]);
        assert_int_equal(teams.n_reductions, norm ? 1 : 0);
        if (norm)
          assert_int_equal(teams.parts, 1); /* one team sees a whole row */
        if (all[i] % 8 == 0)
          assert_int_equal(teams.lanes, variant % 3 ? 8 : 4);        /* 16 bytes */
        assert_true(all[i] > 8192 || teams.per * teams.lanes <= 32); /* in registers */
      } else {
        assert_true(norm && all[i] > GD_LOWER_SUM_FLOATS);
      }
      gd_graph_deinit(&fusion.body);
    }
}

/* --- texts ---------------------------------------------------------------------------------- */

/* Layers share a kernel; no snippet is left with an unknown number or dtype. */
static void test_texts(void **state) {
  struct gd_graph graph = {0};
  struct gd_cuda_fusions *fusions = NULL;
  const char *seen[MOST_TEXTS];
  uint32_t n = 0;
  (void)state;
  build_graph("neox-parallel", &graph);
  OK(gd_cuda_fusions_build(NULL, &graph, &fusions, &err));
  for (uint32_t i = 0; i < graph.n_fusions; i++) {
    const struct gd_cuda_fused *fused = gd_cuda_fusion(fusions, i);
    assert_int_equal(fused->about.row_count, graph.fusions[i].rows);
    check_teams(&fused->teams, graph.fusions[i].columns);
    assert_null(strpbrk(fused->text->kernel, "$~@"));
    bool known = false;
    for (uint32_t j = 0; j < n; j++)
      known |= seen[j] == fused->text->kernel;
    if (!known)
      seen[n++] = fused->text->kernel;
  }
  assert_true(n < graph.n_fusions);
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < i; j++)
      assert_string_not_equal(seen[i], seen[j]);
  gd_cuda_fusions_free(fusions);
  gd_graph_deinit(&graph);
  assert_int_equal(gd_mem_live_blocks(), 0);
}

static enum gd_status build_once(void *context, struct gd_error *why) {
  struct gd_cuda_fusions *fusions = NULL;
  enum gd_status status = gd_cuda_fusions_build(NULL, context, &fusions, why);
  gd_cuda_fusions_free(fusions);
  return status;
}

static void test_out_of_memory(void **state) {
  struct gd_graph graph = {0};
  (void)state;
  build_graph("llama-a", &graph);
  assert_int_equal(fault_sweep(build_once, &graph), GD_OK);
  gd_graph_deinit(&graph);
}

/* --- NVRTC ---------------------------------------------------------------------------------- */

/*
 * Distinct kernels of all families as one text: those whose number leaves this remainder. A program
 * each, and every kernel for every architecture, would take minutes; the formulas and shapes of one
 * kernel are in many others.
 */
static void some_kernels(uint32_t divisor, uint32_t remainder, bool aligned,
                         struct gd_strbuf *source) {
  static uint64_t seen[MOST_TEXTS];
  uint32_t n = 0;
  OK(gd_cuda_fused_source("", aligned, source, &err));
  for (int i = 0; i < N_FOLDERS; i++) {
    struct gd_graph graph = {0};
    struct gd_cuda_fusions *fusions = NULL;
    build_graph(folders[i], &graph);
    OK(gd_cuda_fusions_build(NULL, &graph, &fusions, &err));
    for (uint32_t k = 0; k < graph.n_fusions; k++) {
      const char *kernel = gd_cuda_fusion(fusions, k)->text->kernel;
      uint64_t hash = 5381;
      for (const char *at = kernel; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
      bool known = false;
      for (uint32_t j = 0; j < n; j++)
        known |= seen[j] == hash;
      if (known)
        continue;
      assert_true(n < MOST_TEXTS);
      seen[n++] = hash;
      if (n % divisor != remainder)
        continue;
      gd_strbuf_printf(source, "#define gd_rows gd_rows_%u\nnamespace k%u {\n", n, n);
      gd_strbuf_append(source, kernel);
      gd_strbuf_append(source, "}\n#undef gd_rows\n");
    }
    gd_cuda_fusions_free(fusions);
    gd_graph_deinit(&graph);
  }
  assert_false(source->failed);
  assert_true(n > 50);
}

static void test_nvrtc(void **state) {
  static const int architectures[] = {80, 86, 90};
  const struct gd_nvrtc *nvrtc;
  (void)state;
  if (gd_nvrtc_load(&nvrtc, &err) != GD_OK) {
    print_message("skipped: %s\n", err.text);
    skip();
  }
  for (int i = 0; i < 4; i++) { /* the last: where tensors are not aligned */
    struct gd_strbuf source = {0};
    char *cubin = NULL;
    size_t bytes = 0;
    if (!sample_has((uint64_t)i, 4))
      continue;
    some_kernels(i < 3 ? 3 : 6, i < 3 ? (uint32_t)i : 5, i < 3, &source);
    OK(gd_cuda_compile("fused", source.text, architectures[i % 3], &cubin, &bytes, &err));
    assert_true(bytes > 0);
    gd_mem_free(cubin);
    gd_strbuf_deinit(&source);
  }
  assert_int_equal(gd_mem_live_blocks(), 0);
}

/* A GPU that is newer than the compiler is no bug of the kernels. */
static void test_unknown_architecture(void **state) {
  struct gd_error why = {0};
  const struct gd_nvrtc *nvrtc;
  char *cubin = NULL;
  size_t bytes = 0;
  (void)state;
  if (gd_nvrtc_load(&nvrtc, &why) != GD_OK) {
    print_message("skipped: %s\n", why.text);
    skip();
  }
  const char *text = "__global__ void f() {}\n";
  assert_int_equal(gd_cuda_compile("one", text, 999, &cubin, &bytes, &why), GD_ENVIRONMENT);
  assert_non_null(strstr(why.text, "does not know sm_999"));
  assert_null(cubin);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_teams),
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_nvrtc),
      cmocka_unit_test(test_unknown_architecture),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
