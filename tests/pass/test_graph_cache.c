/*
 * Graphs that methods have in common: built from a cache they are, to the letter, those built
 * alone, for every point of the space; from several threads, in any order, after the cache is gone,
 * and where memory runs out.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "pass/graph_cache.h"

enum { MOST_THREADS = 4 };

struct work {
  const struct gd_model *model;
  struct gd_graph_cache *cache;
  int first; /* methods are taken from here on, around */
  struct gd_graph graphs[GD_METHODS_MOST];
  enum gd_status status;
};

static struct gd_setup setup_of(const struct work *work, int method, int64_t micro_batch) {
  struct gd_method methods[GD_METHODS_MOST];
  (void)gd_method_space(true, methods);
  return (struct gd_setup){.model = work->model,
                           .precision = GD_PRECISION_BF16,
                           .micro_batch = micro_batch,
                           .method = methods[method],
                           .ranks = 2,
                           .saved_blocks = method % 3,
                           .cache = work->cache};
}

static void *build_all(void *argument) {
  struct work *work = argument;
  for (int i = 0; i < GD_METHODS_MOST && work->status == GD_OK; i++) {
    int method = (work->first + i) % GD_METHODS_MOST;
    struct gd_setup setup = setup_of(work, method, 2);
    work->status = gd_pipeline_build(&setup, &work->graphs[method], NULL);
  }
  return NULL;
}

static void same_text(const struct gd_graph *a, const struct gd_graph *b) {
  struct gd_strbuf texts[2] = {{0}, {0}};
  gd_graph_print(a, &texts[0]);
  gd_graph_print(b, &texts[1]);
  assert_false(texts[0].failed || texts[1].failed);
  assert_string_equal(texts[0].text, texts[1].text);
  assert_true(a->model_flops <= b->model_flops && a->model_flops >= b->model_flops);
  gd_strbuf_deinit(&texts[0]);
  gd_strbuf_deinit(&texts[1]);
}

static void load(const char *preset, struct gd_model *model) {
  struct gd_error err = {0};
  assert_int_equal(gd_model_load(preset, model, &err), GD_OK);
  if (!model->family->images)
    model->recipe.seq = 65;
}

static void test_same(void **state) {
  static const char *const presets[] = {"pythia-14m", "mamba-130m", "vit-base"};
  (void)state;
  for (size_t p = 0; p < sizeof presets / sizeof *presets; p++) {
    struct gd_model model;
    struct work alone = {.model = &model}, *with;
    pthread_t threads[MOST_THREADS];
    load(presets[p], &model);
    with = gd_mem_alloc(MOST_THREADS, sizeof *with);
    assert_non_null(with);
    struct gd_graph_cache *cache = gd_graph_cache_new();
    build_all(&alone);
    assert_int_equal(alone.status, GD_OK);
    for (int i = 0; i < MOST_THREADS; i++) {
      with[i] = (struct work){.model = &model, .cache = cache, .first = 5 * i};
      assert_int_equal(pthread_create(&threads[i], NULL, build_all, &with[i]), 0);
    }
    for (int i = 0; i < MOST_THREADS; i++)
      pthread_join(threads[i], NULL);
    gd_graph_cache_free(cache); /* graphs live on */
    for (int i = 0; i < MOST_THREADS; i++) {
      assert_int_equal(with[i].status, GD_OK);
      for (int m = 0; m < GD_METHODS_MOST; m++) {
        same_text(&alone.graphs[m], &with[i].graphs[m]);
        gd_graph_deinit(&with[i].graphs[m]);
      }
    }
    for (int m = 0; m < GD_METHODS_MOST; m++)
      gd_graph_deinit(&alone.graphs[m]);
    gd_mem_free(with);
  }
}

/* More graphs than it holds: the oldest go, and are built again. */
static void test_full(void **state) {
  struct gd_model model;
  struct work work = {.model = &model, .cache = gd_graph_cache_new()};
  struct gd_graph first = {0}, graph = {0};
  (void)state;
  load("pythia-14m", &model);
  struct gd_setup setup = setup_of(&work, 0, 1);
  assert_int_equal(gd_pipeline_build(&setup, &first, NULL), GD_OK);
  for (int64_t size = 1; size <= 120; size++) {
    setup.micro_batch = size;
    assert_int_equal(gd_pipeline_build(&setup, &graph, NULL), GD_OK);
    gd_graph_deinit(&graph);
  }
  setup.micro_batch = 1;
  assert_int_equal(gd_pipeline_build(&setup, &graph, NULL), GD_OK);
  gd_graph_cache_free(work.cache);
  same_text(&first, &graph);
  gd_graph_deinit(&graph);
  gd_graph_deinit(&first);
}

static void test_no_memory(void **state) {
  struct gd_model model;
  int64_t before = gd_mem_live_blocks();
  (void)state;
  load("pythia-14m", &model);
  for (int64_t nth = 1;; nth += 1 + nth / 4) {
    struct work work = {.model = &model, .cache = gd_graph_cache_new()};
    struct gd_graph graphs[2] = {{0}, {0}};
    struct gd_setup setup = setup_of(&work, 3, 1);
    struct gd_error err = {0};
    gd_mem_fail_after(nth);
    enum gd_status status = gd_pipeline_build(&setup, &graphs[0], &err);
    if (status == GD_OK)
      status = gd_pipeline_build(&setup, &graphs[1], &err);
    gd_mem_fail_after(0);
    gd_graph_deinit(&graphs[0]);
    gd_graph_cache_free(work.cache);
    gd_graph_deinit(&graphs[1]);
    assert_int_equal(gd_mem_live_blocks(), before);
    if (status == GD_OK)
      break;
    assert_int_equal(status, GD_ENVIRONMENT);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_same), cmocka_unit_test(test_full),
                                     cmocka_unit_test(test_no_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
