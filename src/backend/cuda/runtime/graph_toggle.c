/*
 * See graph_toggle.h. While a program is captured, the nodes that a toggle added to the graph are
 * those that were not there before it; the executable graph is told by them what to leave out. The
 * driver can switch kernels, copies and fills; a toggle with anything else stays.
 */
#include <stdlib.h>

#include "backend/cuda/runtime/autotune.h"
#include "backend/cuda/runtime/graph_toggle.h"

enum { MOST_COUNTERS = 8 }; /* of a program; a model has one loss */

struct counter {
  const struct gd_kernel_args *args;
  gd_cuda_count count;
};

struct toggle {
  int counter;
  int64_t least;
  uint32_t first, n_nodes; /* in gd_cuda_toggles.nodes */
  bool on;
};

struct nodes {
  CUgraphNode *at;
  uint32_t n, capacity;
};

struct gd_cuda_toggles {
  const struct gd_cu_nodes *cu; /* NULL: the driver is too old */
  struct counter counters[MOST_COUNTERS];
  int n_counters;
  int32_t *counts; /* pinned, one a counter */
  struct toggle *at;
  uint32_t n_toggles, capacity;
  struct nodes nodes;         /* of all toggles */
  struct nodes before, after; /* of the graph, around a toggle */
  bool capturing;
  bool open; /* `before` is known */
  int64_t least;
  CUgraph graph; /* which names the nodes of exec */
  CUgraphExec exec;
  uint64_t writes; /* gd_cuda.writes that the counts belong to */
};

enum gd_status gd_cuda_toggles_open(struct gd_cuda *cuda, struct gd_cuda_toggles **toggles,
                                    struct gd_error *err) {
  *toggles = NULL;
  if (gd_cuda_switch("GPUDAYS_GRAPH_TOGGLE") == '0')
    return GD_OK;
  struct gd_cuda_toggles *s = gd_mem_alloc(1, sizeof *s);
  *toggles = s;
  if (!s)
    return gd_nomem(err, "while binding a plan");
  if (gd_cu_nodes_load(&s->cu, NULL) != GD_OK)
    s->cu = NULL;
  s->writes = cuda->writes - 1;
  return GD_OK;
}

void gd_cuda_toggles_close(struct gd_cuda *cuda, struct gd_cuda_toggles *toggles) {
  if (!toggles)
    return;
  if (toggles->counts)
    cuda->cu->MemFreeHost(toggles->counts);
  if (toggles->graph)
    cuda->cu->GraphDestroy(toggles->graph);
  gd_mem_free(toggles->at);
  gd_mem_free(toggles->nodes.at);
  gd_mem_free(toggles->before.at);
  gd_mem_free(toggles->after.at);
  gd_mem_free(toggles);
}

/* --- for ops -------------------------------------------------------------------------------- */

static int counter_of(const struct gd_cuda_toggles *toggles, const struct gd_kernel_args *args) {
  for (int i = 0; toggles && i < toggles->n_counters; i++)
    if (toggles->counters[i].args == args)
      return i;
  return -1;
}

enum gd_status gd_cuda_toggles_count(const struct gd_cuda_call *call, gd_cuda_count count) {
  struct gd_cuda_toggles *s = call->toggles;
  struct gd_cuda *cuda = call->cuda;
  if (!s || call->stage != GD_CUDA_COLLECT || s->n_counters == MOST_COUNTERS ||
      counter_of(s, call->args) >= 0)
    return GD_OK;
  if (!s->counts) {
    const int64_t bytes = MOST_COUNTERS * (int64_t)sizeof *s->counts;
    int result = cuda->cu->MemHostAlloc((void **)&s->counts, (size_t)bytes, 0);
    GD_TRY(gd_cuda_check_pinned(cuda, result, bytes, call->err));
  }
  s->counters[s->n_counters++] = (struct counter){call->args, count};
  return GD_OK;
}

static int by_address(const void *a, const void *b) {
  uintptr_t x = (uintptr_t) * (const CUgraphNode *)a, y = (uintptr_t) * (const CUgraphNode *)b;
  return x < y ? -1 : x > y;
}

/* All nodes so far of the graph that is captured, by address. */
static bool list_nodes(const struct gd_cuda_toggles *s, CUstream stream, struct nodes *nodes) {
  CUgraph graph = NULL;
  int status = 0;
  size_t n = 0;
  if (!s->cu ||
      s->cu->StreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL) != CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE ||
      s->cu->GraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS || n > UINT32_MAX ||
      !gd_vec_reserve((void **)&nodes->at, &nodes->capacity, (uint32_t)n + 1,
                      sizeof(CUgraphNode)) ||
      s->cu->GraphGetNodes(graph, nodes->at, &n) != CUDA_SUCCESS)
    return false;
  nodes->n = (uint32_t)n;
  qsort(nodes->at, nodes->n, sizeof(CUgraphNode), by_address);
  return true;
}

bool gd_cuda_toggle_begin(const struct gd_cuda_call *call, int64_t least) {
  struct gd_cuda_toggles *s = call->toggles;
  int counter = counter_of(s, call->args);
  if (counter < 0 || call->stage != GD_CUDA_LAUNCH)
    return true;
  if (!s->capturing) /* one by one, after the counts */
    return s->counts[counter] >= least;
  s->open = list_nodes(s, call->stream, &s->before);
  s->least = least;
  return true;
}

static bool can_be_switched(const struct gd_cuda_toggles *s, CUgraphNode node) {
  int type = -1;
  return s->cu->GraphNodeGetType(node, &type) == CUDA_SUCCESS &&
         (type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
          type == CU_GRAPH_NODE_TYPE_MEMSET);
}

/* Nodes in `after` that are not in `before`, to the end of `nodes`. False: not all of them can be
   switched, and there are none. */
static bool take_new(struct gd_cuda_toggles *s) {
  uint32_t first = s->nodes.n, b = 0;
  if (!gd_vec_reserve((void **)&s->nodes.at, &s->nodes.capacity, first + s->after.n + 1,
                      sizeof(CUgraphNode)))
    return false;
  for (uint32_t a = 0; a < s->after.n; a++) {
    CUgraphNode node = s->after.at[a];
    while (b < s->before.n && (uintptr_t)s->before.at[b] < (uintptr_t)node)
      b++;
    if (b < s->before.n && s->before.at[b] == node)
      continue;
    if (!can_be_switched(s, node)) {
      s->nodes.n = first;
      return false;
    }
    s->nodes.at[s->nodes.n++] = node;
  }
  return true;
}

void gd_cuda_toggle_end(const struct gd_cuda_call *call) {
  struct gd_cuda_toggles *s = call->toggles;
  uint32_t first = s ? s->nodes.n : 0;
  if (!s || !s->open)
    return;
  s->open = false;
  if (!list_nodes(s, call->stream, &s->after) ||
      !gd_vec_reserve((void **)&s->at, &s->capacity, s->n_toggles + 1, sizeof *s->at) ||
      !take_new(s))
    return;
  s->at[s->n_toggles++] = (struct toggle){.counter = counter_of(s, call->args),
                                          .least = s->least,
                                          .first = first,
                                          .n_nodes = s->nodes.n - first,
                                          .on = true};
}

/* --- for the runtime ------------------------------------------------------------------------ */

void gd_cuda_toggles_capture(struct gd_cuda_toggles *toggles) {
  if (toggles)
    toggles->capturing = true;
}

static int set(const struct gd_cuda_toggles *s, struct toggle *toggle, bool on) {
  for (uint32_t i = 0; i < toggle->n_nodes; i++) {
    int result = s->cu->GraphNodeSetEnabled(s->exec, s->nodes.at[toggle->first + i], on);
    if (result != CUDA_SUCCESS)
      return result;
  }
  toggle->on = on;
  return CUDA_SUCCESS;
}

/* Whatever the driver does not switch off at this first time stays on. */
void gd_cuda_toggles_captured(struct gd_cuda *cuda, struct gd_cuda_toggles *toggles, CUgraph graph,
                              CUgraphExec exec) {
  uint32_t n = 0;
  if (toggles)
    toggles->capturing = false;
  if (!toggles || !exec || toggles->n_toggles == 0) {
    if (toggles)
      toggles->n_counters = 0; /* nothing depends on them */
    if (graph)
      cuda->cu->GraphDestroy(graph);
    return;
  }
  toggles->graph = graph;
  toggles->exec = exec;
  for (uint32_t i = 0; i < toggles->n_toggles; i++) {
    struct toggle *toggle = &toggles->at[i];
    if (set(toggles, toggle, false) == CUDA_SUCCESS)
      toggles->at[n++] = *toggle;
    else
      (void)set(toggles, toggle, true);
  }
  toggles->n_toggles = n;
  if (n == 0)
    toggles->n_counters = 0;
}

static enum gd_status count_all(struct gd_cuda *cuda, struct gd_cuda_toggles *s,
                                struct gd_error *err) {
  for (int i = 0; i < s->n_counters; i++) {
    struct gd_cuda_call call = {.cuda = cuda,
                                .args = s->counters[i].args,
                                .stream = cuda->stream,
                                .stage = GD_CUDA_LAUNCH,
                                .err = err};
    GD_TRY(s->counters[i].count(&call, &s->counts[i]));
  }
  if (cuda->nccl)
    return gd_cuda_nccl_sync(cuda, cuda->stream, err);
  return gd_cuda_check(cuda, cuda->cu->StreamSynchronize(cuda->stream), "counting", err);
}

enum gd_status gd_cuda_toggles_settle(struct gd_cuda *cuda, struct gd_cuda_toggles *toggles,
                                      struct gd_error *err) {
  struct gd_cuda_toggles *s = toggles;
  if (!s || s->n_counters == 0 || s->writes == cuda->writes)
    return GD_OK;
  GD_TRY(count_all(cuda, s, err));
  for (uint32_t i = 0; i < s->n_toggles; i++) {
    struct toggle *toggle = &s->at[i];
    bool on = s->counts[toggle->counter] >= toggle->least;
    if (on != toggle->on)
      GD_TRY(gd_cuda_check(cuda, set(s, toggle, on), "cuGraphNodeSetEnabled", err));
  }
  s->writes = cuda->writes;
  return GD_OK;
}
