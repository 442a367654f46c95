/*
 * The planner: packing on random intervals, and plans of random graphs replayed against a model of
 * memory that knows nothing of lifetimes: a read must find what was written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ir/autodiff.h"
#include "pass/pass.h"
#include "plan/occupancy.h"
#include "plan/plan.h"

static uint64_t draws;
static int64_t draw(int64_t bound) {
  return gd_rng_below(7, 1, draws++, bound);
}

/* --- packing ------------------------------------------------------------------------------- */

static bool alive_together(const struct gd_interval *a, const struct gd_interval *b) {
  return a->first <= b->last && b->first <= a->last;
}

static void check_packing(struct gd_interval *intervals, uint32_t count) {
  int64_t sum = 0;
  int64_t peak = gd_pack_intervals(intervals, count, 0);
  for (uint32_t i = 0; i < count; i++) {
    sum += intervals[i].bytes;
    assert_in_range(intervals[i].offset_bytes, 0, peak);
    assert_true(intervals[i].offset_bytes + intervals[i].bytes <= peak);
    for (uint32_t j = 0; j < i; j++) {
      const struct gd_interval *a = &intervals[i], *b = &intervals[j];
      if (!alive_together(a, b) || a->bytes == 0 || b->bytes == 0)
        continue;
      assert_true(a->offset_bytes + a->bytes <= b->offset_bytes ||
                  b->offset_bytes + b->bytes <= a->offset_bytes);
    }
  }
  assert_true(peak <= sum);
  for (uint32_t at = 0; at < 100; at++) { /* no packing is below what is alive at one op */
    int64_t live = 0;
    for (uint32_t i = 0; i < count; i++)
      if (intervals[i].first <= at && at <= intervals[i].last)
        live += intervals[i].bytes;
    assert_true(live <= peak);
  }
}

static void test_random_intervals(void **state) {
  (void)state;
  for (int round = 0; round < 300; round++) {
    struct gd_interval intervals[300];
    uint32_t count = (uint32_t)draw(300);
    for (uint32_t i = 0; i < count; i++) {
      uint32_t first = (uint32_t)draw(100);
      intervals[i] = (struct gd_interval){.bytes = draw(10) == 0 ? 0 : 64 * draw(1000),
                                          .first = first,
                                          .last = first + (uint32_t)draw(100 - first)};
    }
    check_packing(intervals, count);
  }
}

/* The smallest gap that holds so many bytes between intervals that are alive together, by looking
   at all of them; they are sorted by offset. */
static int64_t find_slowly(const struct gd_interval *taken, uint32_t count, uint32_t first,
                           uint32_t last, int64_t bytes) {
  int64_t reached = 0, best_at = -1, best_gap = INT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    int64_t gap = taken[i].offset_bytes - reached;
    if (taken[i].last < first || last < taken[i].first)
      continue;
    if (gap >= bytes && gap < best_gap) {
      best_gap = gap;
      best_at = reached;
    }
    if (taken[i].offset_bytes + taken[i].bytes > reached)
      reached = taken[i].offset_bytes + taken[i].bytes;
  }
  return best_at >= 0 ? best_at : reached;
}

static void test_gaps(void **state) {
  (void)state;
  for (int round = 0; round < 100; round++) {
    struct gd_interval taken[200];
    struct gd_occupancy occupancy;
    uint32_t n_times = 1 + (uint32_t)draw(100);
    assert_true(gd_occupancy_init(&occupancy, n_times));
    for (uint32_t count = 0; count < 200; count++) {
      uint32_t first = (uint32_t)draw(n_times), last = first + (uint32_t)draw(n_times - first);
      int64_t bytes = 1 + draw(30);
      int64_t at = find_slowly(taken, count, first, last, bytes);
      assert_int_equal(gd_occupancy_find(&occupancy, first, last, bytes), at);
      at += draw(4) == 0 ? draw(50) : 0; /* packing leaves holes too */
      assert_true(gd_occupancy_take(&occupancy, first, last, at, at + bytes));
      uint32_t place = count;
      for (; place > 0 && taken[place - 1].offset_bytes > at; place--)
        taken[place] = taken[place - 1];
      taken[place] = (struct gd_interval){bytes, first, last, at};
    }
    gd_occupancy_deinit(&occupancy);
  }
}

/* Forward activations that die in reverse order: a stack has an exact layout, and it is found. */
static void test_stack_is_exact(void **state) {
  struct gd_interval intervals[50];
  int64_t sum = 0;
  (void)state;
  for (uint32_t i = 0; i < 50; i++) {
    intervals[i] = (struct gd_interval){.bytes = 64 * (1 + draw(99)), .first = i, .last = 99 - i};
    sum += intervals[i].bytes;
  }
  assert_int_equal(gd_pack_intervals(intervals, 50, sum), sum);
}

/* --- replay -------------------------------------------------------------------------------- */

/* What memory holds: ranges with the tensor that was written there last. */
struct range {
  int64_t at, bytes;
  gd_tensor_id id;
};
struct memory {
  struct range ranges[4096];
  uint32_t count;
};

static bool overlaps(int64_t at, int64_t bytes, int64_t other_at, int64_t other_bytes) {
  return at < other_at + other_bytes && other_at < at + bytes;
}

static void memory_write(struct memory *memory, int64_t at, int64_t bytes, gd_tensor_id id) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < memory->count; i++)
    if (!overlaps(at, bytes, memory->ranges[i].at, memory->ranges[i].bytes))
      memory->ranges[kept++] = memory->ranges[i];
  memory->count = kept;
  assert_true(memory->count < 4096);
  memory->ranges[memory->count++] = (struct range){at, bytes, id};
}

static bool memory_holds(const struct memory *memory, int64_t at, gd_tensor_id id) {
  for (uint32_t i = 0; i < memory->count; i++)
    if (memory->ranges[i].id == id && memory->ranges[i].at == at)
      return true;
  return false;
}

/* The tensor whose write a reader of `id` relies on: views are not writes. */
static gd_tensor_id written_as(const struct gd_graph *graph, gd_tensor_id id) {
  while (graph->tensors[id].producer != GD_NONE &&
         gd_op_info(graph->ops[graph->tensors[id].producer].kind)->op_class == GD_CLASS_VIEW)
    id = graph->tensors[id].alias_of;
  return id;
}

static void replay(const struct gd_plan *plan) {
  static struct memory memory;
  const struct gd_graph *graph = plan->graph;
  memory.count = 0;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].producer == GD_NONE)
      memory_write(&memory, plan->offset_bytes[id], gd_tensor_bytes(graph, id), id);
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t n = 0; n < plan->n_order[program]; n++) {
      const struct gd_op *op = &graph->ops[plan->order[program][n]];
      bool leaf_only = program != GD_PROGRAM_MICRO_STEP;
      for (uint32_t i = 0; i < op->n_in; i++) {
        gd_tensor_id source = written_as(graph, op->in[i]);
        int64_t at = plan->offset_bytes[source];
        bool stale_leaf = leaf_only && graph->tensors[source].producer == GD_NONE;
        if (!stale_leaf) /* an earlier program may have overwritten a leaf: that is its purpose */
          assert_true(memory_holds(&memory, at, source));
      }
      for (uint32_t i = 0; i < op->n_out; i++) {
        gd_tensor_id out = op->out[i];
        int64_t at = plan->offset_bytes[out], bytes = gd_tensor_bytes(graph, out);
        assert_true(at >= 0 && at + bytes <= plan->device_bytes);
        assert_int_equal(at % 4, 0);
        for (uint32_t j = 0; j < op->n_in; j++) {
          int64_t in_at = plan->offset_bytes[op->in[j]];
          int64_t in_bytes = gd_tensor_bytes(graph, op->in[j]);
          bool permitted = graph->tensors[out].alias_of != GD_NONE ||
                           (i == 0 && (gd_op_info(op->kind)->inplace >> j & 1u) && at == in_at) ||
                           (i == 0 && at == in_at && op->in[j] == op->in[0]);
          if (bytes && in_bytes && !permitted)
            assert_false(overlaps(at, bytes, in_at, in_bytes));
        }
        memory_write(&memory, at, bytes, out);
      }
    }
}

/* A random differentiable graph over [n, n] tensors that ends in a loss. */
static void random_graph(struct gd_graph *graph) {
  enum { MOST = 40 };
  gd_tensor_id pool[MOST];
  int count = 0;
  int64_t n = 2 * (1 + draw(9)), dims[] = {n, n};
  gd_graph_init(graph);
  graph->labels = gd_graph_leaf(graph, GD_ROLE_INPUT, "labels", GD_DTYPE_I32, 1, dims);
  graph->loss_weight =
      gd_graph_leaf(graph, GD_ROLE_INPUT, "weight", GD_DTYPE_F32, 1, (int64_t[]){1});
  gd_tensor_id vector = gd_graph_param(graph, "vector", 1, dims, GD_INIT_ONES, 0);
  for (int i = 0; i < 3; i++) {
    char name[16];
    snprintf(name, sizeof name, "p%d", i);
    pool[count++] = gd_graph_param(graph, name, 2, dims, GD_INIT_NORMAL, 1);
  }
  int64_t steps = 5 + draw(MOST - 10);
  for (int64_t i = 0; i < steps; i++) {
    gd_tensor_id a = pool[draw(count)], b = pool[draw(count)], out = GD_NONE;
    switch (draw(8)) {
    case 0: out = gd_add(graph, a, b); break;
    case 1: out = gd_activate(graph, a, GD_ACTIVATION_GELU); break;
    case 2: out = gd_softmax(graph, a, draw(2)); break;
    case 3: out = gd_transpose(graph, a, (uint8_t[]){1, 0}); break;
    case 4: out = gd_layernorm(graph, a, vector, draw(2) ? vector : GD_NONE, 1e-5f); break;
    case 5: {
      gd_tensor_id half = gd_split(graph, a, 2);
      out = gd_concat(graph, 2, (gd_tensor_id[]){half + 1, half});
      break;
    }
    case 6: {
      gd_tensor_id flat = gd_reshape(graph, a, 1, (int64_t[]){n * n});
      out = gd_reshape(graph, gd_activate(graph, flat, GD_ACTIVATION_SILU), 2, dims);
      break;
    }
    default:
      out = gd_matmul(
          graph, a, b, draw(2) ? vector : GD_NONE,
          (struct gd_attr_matmul){
              .trans_a = draw(2), .trans_b = draw(2), .alpha = 1, .out_dtype = GD_DTYPE_COUNT});
    }
    pool[count++] = out;
  }
  graph->loss = gd_xent(graph, pool[count - 1], graph->labels, graph->loss_weight,
                        (struct gd_attr_xent){.ignore = -100});
}

static void test_random_graphs(void **state) {
  struct gd_caps caps = {.alignment_bytes = 64, .workspace_bytes = 4096};
  (void)state;
  uint32_t inplace = 0;
  for (int round = 0; round < 400; round++) {
    struct gd_graph graph;
    struct gd_plan plan = {0};
    struct gd_error err = {0};
    random_graph(&graph);
    assert_int_equal(gd_autodiff(&graph, &err), GD_OK);
    assert_int_equal(gd_append_update(&graph, &(struct gd_update){0}, &err), GD_OK);
    assert_int_equal(gd_graph_verify(&graph, &err), GD_OK);
    assert_int_equal(gd_plan_make(&graph, &caps, &plan, &err), GD_OK);
    assert_true(plan.live_bytes <= plan.bytes[GD_CATEGORY_ACTIVATIONS]);
    inplace += plan.n_inplace;
    replay(&plan);
    gd_plan_deinit(&plan);
    gd_graph_deinit(&graph);
  }
  assert_true(inplace > 400); /* the interesting case did occur */
}

/* --- models -------------------------------------------------------------------------------- */

static void plan_preset(const char *name, int64_t micro_batch, enum gd_precision precision,
                        struct gd_graph *graph, struct gd_plan *plan, struct gd_model *model) {
  struct gd_error err = {0};
  struct gd_caps caps = {.alignment_bytes = 64, .workspace_bytes = 1 << 20};
  assert_int_equal(gd_model_load(name, model, &err), GD_OK);
  struct gd_setup setup = {.model = model, .precision = precision, .micro_batch = micro_batch};
  assert_int_equal(gd_pipeline_build(&setup, graph, &err), GD_OK);
  assert_int_equal(gd_plan_make(graph, &caps, plan, &err), GD_OK);
}

static void test_categories_sum_to_peak(void **state) {
  struct gd_graph graph = {0};
  struct gd_plan plan = {0};
  struct gd_model model;
  (void)state;
  plan_preset("pythia-160m", 2, GD_PRECISION_BF16, &graph, &plan, &model);
  int64_t sum = 0, parameters = gd_graph_parameters(&graph);
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++)
    sum += plan.bytes[i];
  assert_int_equal(sum, plan.device_bytes);
  /* Padding apart, each parameter has 4 bytes of gradient and 8 of moments. */
  assert_in_range(plan.bytes[GD_CATEGORY_GRADIENTS], 4 * parameters, 4 * parameters + 64 * 200);
  assert_in_range(plan.bytes[GD_CATEGORY_OPTIMIZER], 8 * parameters, 8 * parameters + 64 * 400);
  replay(&plan);
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
}

/* Parameters, moments and state keep their place when the micro-batch changes. */
static void test_leaves_are_shared(void **state) {
  struct gd_graph small = {0}, large = {0};
  struct gd_plan small_plan = {0}, large_plan = {0};
  struct gd_model model;
  (void)state;
  plan_preset("pythia-14m", 1, GD_PRECISION_BF16, &small, &small_plan, &model);
  plan_preset("pythia-14m", 3, GD_PRECISION_BF16, &large, &large_plan, &model);
  assert_int_equal(small.n_tensors, large.n_tensors);
  for (gd_tensor_id id = 0; id < small.n_tensors; id++)
    if (small.tensors[id].producer == GD_NONE && small.tensors[id].role != GD_ROLE_INPUT)
      assert_int_equal(small_plan.offset_bytes[id], large_plan.offset_bytes[id]);
  assert_true(small_plan.device_bytes < large_plan.device_bytes);
  gd_plan_deinit(&small_plan);
  gd_plan_deinit(&large_plan);
  gd_graph_deinit(&small);
  gd_graph_deinit(&large);
}

static void test_fits(void **state) {
  struct gd_graph graph = {0};
  struct gd_plan plan = {0};
  struct gd_model model;
  struct gd_error err = {0};
  (void)state;
  plan_preset("pythia-14m", 1, GD_PRECISION_BF16, &graph, &plan, &model);
  assert_int_equal(gd_plan_fits(&plan, plan.device_bytes, plan.host_bytes, &err), GD_OK);
  assert_int_equal(gd_plan_fits(&plan, plan.device_bytes - 1, plan.host_bytes, &err),
                   GD_NOMEM_DEVICE);
  assert_non_null(strstr(err.text, "activations"));
  assert_non_null(strstr(err.text, "1 B too little"));
  err = (struct gd_error){0};
  assert_int_equal(gd_plan_fits(&plan, plan.device_bytes, plan.host_bytes - 1, &err),
                   GD_NOMEM_HOST);
  assert_non_null(strstr(err.text, "host memory"));
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
}

/* Every allocation of build + plan fails once: an error each time, and nothing is left over. */
static void test_out_of_memory(void **state) {
  struct gd_model model;
  struct gd_error err = {0};
  struct gd_caps caps = {.alignment_bytes = 64};
  (void)state;
  assert_int_equal(gd_model_load("pythia-14m", &model, &err), GD_OK);
  struct gd_setup setup = {.model = &model, .precision = GD_PRECISION_BF16, .micro_batch = 1};
  int64_t before = gd_mem_live_blocks();
  int failures = 0;
  for (int64_t nth = 1;; nth++) {
    struct gd_graph graph = {0};
    struct gd_plan plan = {0};
    err = (struct gd_error){0};
    gd_mem_fail_after(nth);
    enum gd_status status = gd_pipeline_build(&setup, &graph, &err);
    if (status == GD_OK)
      status = gd_plan_make(&graph, &caps, &plan, &err);
    gd_mem_fail_after(0);
    gd_plan_deinit(&plan);
    gd_graph_deinit(&graph);
    assert_int_equal(gd_mem_live_blocks(), before);
    if (status == GD_OK)
      break;
    assert_int_equal(status, GD_ENVIRONMENT);
    assert_true(strlen(err.text) > 0);
    failures++;
  }
  assert_true(failures > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_intervals),
      cmocka_unit_test(test_gaps),
      cmocka_unit_test(test_stack_is_exact),
      cmocka_unit_test(test_random_graphs),
      cmocka_unit_test(test_categories_sum_to_peak),
      cmocka_unit_test(test_leaves_are_shared),
      cmocka_unit_test(test_fits),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
