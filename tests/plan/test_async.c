/*
 * Plans with two memories and with asynchronous ops: on random graphs and on
 * every point of the search space, what is alive at the same time never shares memory.
 *
 * Lifetimes are found here from what a run does, not as the planner finds them. The side thread
 * works in order; whatever it has started may be at work until an op of the computation waits for
 * it or for something behind it, or until the program ends. So long its inputs and outputs are
 * alive.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ir/fusion.h"
#include "pass/pass.h"
#include "plan/plan.h"

static uint64_t draws;
static int64_t draw(int64_t bound) {
  return gd_rng_below(11, 1, draws++, bound);
}

/* --- lifetimes ----------------------------------------------------------------------------- */

struct life {
  bool lives;
  uint32_t first, last; /* ops of the graph, both included */
};

/* By op: the number of what goes to the side thread, and what must be done before the others. */
struct schedule {
  uint32_t *number, *waits;
};

static void find_schedule(const struct gd_plan *plan, enum gd_program program,
                          struct schedule *schedule) {
  const struct gd_graph *graph = plan->graph;
  uint32_t next = 0;
  schedule->number = gd_mem_alloc(graph->n_ops, sizeof(uint32_t));
  schedule->waits = gd_mem_alloc(graph->n_ops, sizeof(uint32_t));
  assert_true(schedule->number && schedule->waits);
  for (uint32_t at = 0; at < plan->n_order[program]; at++) {
    gd_op_id id = plan->order[program][at];
    const struct gd_op *op = &graph->ops[id];
    if (gd_op_is_async(op->kind)) {
      schedule->number[id] = ++next;
      continue;
    }
    for (uint32_t i = 0; i < op->n_in; i++)
      for (gd_tensor_id in = op->in[i]; in != GD_NONE; in = graph->tensors[in].alias_of) {
        gd_op_id from = graph->tensors[in].producer;
        if (from != GD_NONE && schedule->number[from] > schedule->waits[id])
          schedule->waits[id] = schedule->number[from];
      }
  }
}

/* The last op during which the one at a place of the order may be at work. */
static gd_op_id done_by(const struct gd_plan *plan, enum gd_program program,
                        const struct schedule *schedule, uint32_t at) {
  const gd_op_id *order = plan->order[program];
  if (!schedule->number[order[at]])
    return order[at];
  for (uint32_t next = at + 1; next < plan->n_order[program]; next++)
    if (schedule->waits[order[next]] >= schedule->number[order[at]])
      return order[next] - 1;
  return plan->graph->n_ops - 1;
}

static void touch(const struct gd_graph *graph, struct life *lives, gd_tensor_id id, gd_op_id first,
                  gd_op_id last) {
  gd_tensor_id root = gd_tensor_root(graph, id, NULL);
  struct life *life = &lives[root];
  if (graph->tensors[root].producer == GD_NONE) { /* a leaf always lives */
    *life = (struct life){true, 0, graph->n_ops - 1};
    return;
  }
  if (!life->lives)
    *life = (struct life){true, first, last};
  life->last = life->last > last ? life->last : last;
}

static void find_lives(const struct gd_plan *plan, enum gd_program program, struct life *lives) {
  const struct gd_graph *graph = plan->graph;
  struct schedule schedule;
  find_schedule(plan, program, &schedule);
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    lives[id] = (struct life){0};
    if (graph->tensors[id].producer == GD_NONE && plan->offset_bytes[id] >= 0 &&
        graph->tensors[id].alias_of == GD_NONE)
      touch(graph, lives, id, 0, 0);
  }
  for (uint32_t at = 0; at < plan->n_order[program]; at++) {
    gd_op_id id = plan->order[program][at], until = done_by(plan, program, &schedule, at);
    for (uint32_t i = 0; i < graph->ops[id].n_out; i++)
      touch(graph, lives, graph->ops[id].out[i], id, until);
    for (uint32_t i = 0; i < graph->ops[id].n_in; i++)
      if (graph->ops[id].in[i] != GD_NONE)
        touch(graph, lives, graph->ops[id].in[i], id, until);
  }
  gd_mem_free(schedule.number);
  gd_mem_free(schedule.waits);
}

/* Whether `taker` took the place of `giver`, an input that dies where it begins. */
static bool in_place(const struct gd_plan *plan, const struct life *lives, gd_tensor_id giver,
                     gd_tensor_id taker) {
  const struct gd_graph *graph = plan->graph;
  gd_op_id id = graph->tensors[taker].producer;
  if (id == GD_NONE || graph->ops[id].out[0] != taker || lives[giver].last != id ||
      plan->offset_bytes[giver] != plan->offset_bytes[taker])
    return false;
  for (uint32_t i = 0; i < graph->ops[id].n_in; i++)
    if (gd_op_inplace(graph, &graph->ops[id]) >> i & 1u &&
        gd_tensor_root(graph, graph->ops[id].in[i], NULL) == giver)
      return true;
  return false;
}

static bool overlaps(int64_t at, int64_t bytes, int64_t other_at, int64_t other_bytes) {
  return bytes > 0 && other_bytes > 0 && at < other_at + other_bytes && other_at < at + bytes;
}

/* What the batch takes on the host while it is prepared. */
static int64_t staging_bytes(const struct gd_graph *graph) {
  const gd_tensor_id inputs[] = {graph->ids, graph->pixels, graph->labels};
  int64_t bytes = 0;
  for (int i = 0; i < 3; i++)
    bytes += inputs[i] == GD_NONE ? 0 : gd_tensor_bytes(graph, inputs[i]);
  return bytes;
}

/* Inside its arena, and apart from what has a place of its own there. */
static void check_place(const struct gd_plan *plan, gd_tensor_id id) {
  enum gd_space space = plan->graph->tensors[id].space;
  int64_t at = plan->offset_bytes[id], bytes = gd_tensor_bytes(plan->graph, id);
  int64_t end = space == GD_SPACE_HOST ? plan->host_bytes : plan->device_bytes;
  if (at < 0 || at + bytes > end)
    fail_msg("tensor %u of op %u, at %lld with %lld bytes, leaves its arena of %lld", id,
             plan->graph->tensors[id].producer, (long long)at, (long long)bytes, (long long)end);
  if (space == GD_SPACE_HOST) {
    assert_false(overlaps(at, bytes, plan->staging_at, staging_bytes(plan->graph)));
    return;
  }
  assert_false(overlaps(at, bytes, plan->workspace_at, plan->workspace_bytes));
  assert_false(overlaps(at, bytes, plan->comm_at, plan->comm_bytes));
}

static void check_program(const struct gd_plan *plan, enum gd_program program) {
  const struct gd_graph *graph = plan->graph;
  struct life *lives = gd_mem_alloc(graph->n_tensors, sizeof *lives);
  assert_non_null(lives);
  find_lives(plan, program, lives);
  for (gd_tensor_id a = 0; a < graph->n_tensors; a++) {
    if (!lives[a].lives)
      continue;
    check_place(plan, a);
    for (gd_tensor_id b = 0; b < a; b++) {
      if (!lives[b].lives || graph->tensors[a].space != graph->tensors[b].space ||
          lives[a].first > lives[b].last || lives[b].first > lives[a].last ||
          !overlaps(plan->offset_bytes[a], gd_tensor_bytes(graph, a), plan->offset_bytes[b],
                    gd_tensor_bytes(graph, b)))
        continue;
      if (!in_place(plan, lives, a, b) && !in_place(plan, lives, b, a))
        fail_msg("%u (ops %u to %u) and %u (ops %u to %u) share memory of space %d", b,
                 lives[b].first, lives[b].last, a, lives[a].first, lives[a].last,
                 (int)graph->tensors[a].space);
    }
  }
  gd_mem_free(lives);
}

static void check_plan(const struct gd_plan *plan) {
  int64_t device = 0, host = 0;
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    check_program(plan, (enum gd_program)program);
  for (int category = 0; category < GD_CATEGORY_DEVICE_COUNT; category++) {
    device += plan->bytes[category];
    host += plan->host_parts[category];
  }
  assert_int_equal(device, plan->device_bytes);
  assert_int_equal(host, plan->host_bytes);
}

/* --- random graphs ------------------------------------------------------------------------- */

enum { MOST = 96, RANKS = 2 };

struct values {
  gd_tensor_id ids[GD_SPACE_COUNT][MOST];
  int count[GD_SPACE_COUNT];
};

static gd_tensor_id pick(const struct values *values, enum gd_space space) {
  return values->ids[space][draw(values->count[space])];
}

static void put(const struct gd_graph *graph, struct values *values, gd_tensor_id id) {
  enum gd_space space = graph->tensors[gd_tensor_root(graph, id, NULL)].space;
  values->ids[space][values->count[space]++] = id;
}

/* Memory that holds a copy of x, in its space. */
static gd_tensor_id filled_buffer(struct gd_graph *graph, gd_tensor_id x) {
  int64_t elements = gd_tensor_elements(graph, x);
  gd_tensor_id buffer = gd_buffer(
      graph, (struct gd_attr_buffer){.dtype = GD_DTYPE_F32,
                                     .space = graph->tensors[gd_tensor_root(graph, x, NULL)].space,
                                     .elements = elements,
                                     .used = elements});
  return gd_graph_op(graph, GD_OP_copy, NULL, 2, (gd_tensor_id[]){buffer, x});
}

/* Half of a tensor, as a view or through a collective; so sizes go down again. */
static gd_tensor_id halved(struct gd_graph *graph, gd_tensor_id x) {
  union gd_attr ranks = {.ranks = {(int32_t)draw(RANKS), RANKS}};
  int64_t half = gd_tensor_elements(graph, x) / 2;
  if (half < 2 || draw(3) == 0)
    return gd_activate(graph, x, GD_ACTIVATION_SILU);
  gd_tensor_id buffer = filled_buffer(graph, x);
  return draw(2) ? gd_graph_op(graph, GD_OP_reduce_scatter, &ranks, 1, &buffer)
                 : gd_view(graph, buffer, draw(half), 1, &half);
}

static gd_tensor_id random_op(struct gd_graph *graph, const struct values *values,
                              gd_tensor_id into[GD_SPACE_COUNT]) {
  enum gd_space space = draw(3) ? GD_SPACE_DEVICE : GD_SPACE_HOST;
  enum gd_space other = space == GD_SPACE_HOST ? GD_SPACE_DEVICE : GD_SPACE_HOST;
  gd_tensor_id x = pick(values, space), y = pick(values, GD_SPACE_DEVICE);
  union gd_attr ranks = {.ranks = {0, RANKS}};
  switch (draw(space == GD_SPACE_DEVICE ? 8 : 4)) {
  case 0:
  case 1: return gd_transfer(graph, x, other);
  case 2: { /* a chain on the side thread: there and back */
    gd_tensor_id away = gd_transfer(graph, x, other);
    return gd_transfer(graph, away, space);
  }
  case 3: {
    if (draw(2)) {
      gd_tensor_id buffer = filled_buffer(graph, x);
      return gd_graph_op(graph, GD_OP_all_reduce, &ranks, 1, &buffer);
    }
    if (gd_tensor_elements(graph, x) != gd_tensor_elements(graph, into[other]))
      return gd_transfer(graph, x, other);
    into[other] =
        gd_graph_op(graph, GD_OP_transfer_into, NULL, 2, (gd_tensor_id[]){into[other], x});
    if (draw(2))
      into[other] = gd_graph_op(graph, GD_OP_wait, NULL, 1, &into[other]);
    return GD_NONE;
  }
  case 4:
    if (gd_tensor_elements(graph, x) == gd_tensor_elements(graph, y))
      return gd_add(graph, x, y);
    return gd_activate(graph, x, GD_ACTIVATION_GELU);
  case 5:
    if (gd_tensor_elements(graph, x) < 512)
      return gd_graph_op(graph, GD_OP_gather, &ranks, 1, &x);
    return halved(graph, x);
  case 6: return halved(graph, x);
  default: return gd_activate(graph, x, GD_ACTIVATION_GELU);
  }
}

static gd_tensor_id leaf(struct gd_graph *graph, const char *name, enum gd_space space) {
  gd_tensor_id id = gd_graph_leaf(graph, GD_ROLE_STATE, name, GD_DTYPE_F32, 1, (int64_t[]){64});
  graph->tensors[id].space = space;
  return id;
}

static void random_graph(struct gd_graph *graph) {
  struct values values = {0};
  gd_graph_init(graph);
  graph->ranks = RANKS;
  gd_tensor_id into[GD_SPACE_COUNT] = {leaf(graph, "device", GD_SPACE_DEVICE),
                                       leaf(graph, "host", GD_SPACE_HOST)};
  put(graph, &values, leaf(graph, "x", GD_SPACE_DEVICE));
  put(graph, &values, leaf(graph, "y", GD_SPACE_HOST));
  int64_t steps = 10 + draw(MOST - 20);
  for (int64_t i = 0; i < steps && graph->error.status == GD_OK; i++) {
    gd_tensor_id out = random_op(graph, &values, into);
    if (out != GD_NONE)
      put(graph, &values, out);
  }
}

static void test_random_graphs(void **state) {
  const struct gd_caps caps = {
      .alignment_bytes = 64, .workspace_bytes = 4096, .comm_bytes = 1 << 16};
  uint32_t inplace = 0, async = 0;
  (void)state;
  for (int round = 0; round < 1000; round++) {
    struct gd_graph graph;
    struct gd_plan plan = {0};
    struct gd_error err = {0};
    random_graph(&graph);
    if (gd_graph_check(&graph, &err) != GD_OK || gd_graph_verify(&graph, &err) != GD_OK)
      fail_msg("%s", err.text);
    assert_int_equal(gd_plan_make(&graph, &caps, &plan, &err), GD_OK);
    check_plan(&plan);
    assert_true(plan.live_bytes <= plan.bytes[GD_CATEGORY_ACTIVATIONS]);
    inplace += plan.n_inplace;
    for (gd_op_id id = 0; id < graph.n_ops; id++)
      async += gd_op_is_async(graph.ops[id].kind);
    gd_plan_deinit(&plan);
    gd_graph_deinit(&graph);
  }
  assert_true(inplace > 1000 && async > 10000); /* the interesting cases did occur */
}

/* --- the search space ---------------------------------------------------------------------- */

static void test_search_space(void **state) {
  static const char *const references[] = {"neox-tied", "roberta-a", "mamba-a", "convnext-a"};
  const struct gd_caps caps = {.alignment_bytes = 64, .comm_bytes = 1 << 16};
  struct gd_method methods[GD_METHODS_MOST];
  (void)state;
  for (size_t i = 0; i < sizeof references / sizeof *references; i++)
    for (int ranks = 1; ranks <= 3; ranks += 2)
      for (int at = 0, count = gd_method_space(ranks > 1, methods); at < count; at++) {
        struct gd_model model;
        struct gd_graph graph = {0};
        struct gd_plan plan = {0};
        struct gd_error err = {0};
        char path[512];
        snprintf(path, sizeof path, "%s/tests/reference/%s/config.json", GD_SOURCE_DIR,
                 references[i]);
        assert_int_equal(gd_model_load(path, &model, &err), GD_OK);
        struct gd_setup setup = {.model = &model,
                                 .precision = at % 2 ? GD_PRECISION_FP32 : GD_PRECISION_BF16,
                                 .micro_batch = 2,
                                 .method = methods[at],
                                 .ranks = ranks,
                                 .rank = ranks - 1};
        assert_int_equal(gd_pipeline_build(&setup, &graph, &err), GD_OK);
        assert_int_equal(gd_plan_make(&graph, &caps, &plan, &err), GD_OK);
        check_plan(&plan);
        gd_plan_deinit(&plan);
        gd_graph_deinit(&graph);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_random_graphs),
      cmocka_unit_test(test_search_space),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
