/*
 * NCCL with the one rank that a single GPU allows: each collective is captured into a CUDA graph as
 * a program's are, run, and leaves what the only rank put in. That it is NCCL that ran is in the
 * communicator's presence. Skipped with the reason where there is no GPU or no NCCL.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "backend/cuda/runtime/cuda_int.h"

enum { ELEMENTS = 1000003, ARENA_BYTES = ELEMENTS * (int)sizeof(float) };

static struct gd_cuda *cuda;
static struct gd_error err;
static float before[ELEMENTS], after[ELEMENTS];

static void expect(enum gd_status status) {
  if (status != GD_OK)
    fail_msg("%s", err.text);
}

static void expect_cu(int result, const char *what) {
  expect(gd_cuda_check(cuda, result, what, &err));
}

static void run_captured(enum gd_op_kind kind) {
  CUgraph graph = NULL;
  CUgraphExec exec = NULL;
  void *whole = (void *)(uintptr_t)cuda->arena;
  expect_cu(cuda->cu->StreamBeginCapture(cuda->stream, CU_STREAM_CAPTURE_MODE_RELAXED), "capture");
  expect(gd_cuda_nccl_put(cuda, kind, whole, ELEMENTS, GD_DTYPE_F32, cuda->stream, &err));
  expect_cu(cuda->cu->StreamEndCapture(cuda->stream, &graph), "capture");
  expect_cu(cuda->cu->GraphInstantiate(&exec, graph, 0), "cuGraphInstantiate");
  expect_cu(cuda->cu->GraphLaunch(exec, cuda->stream), "cuGraphLaunch");
  expect(gd_cuda_nccl_sync(cuda, cuda->stream, &err));
  cuda->cu->GraphExecDestroy(exec);
  cuda->cu->GraphDestroy(graph);
}

static void test_collectives(void **state) {
  static const enum gd_op_kind kinds[] = {GD_OP_all_reduce, GD_OP_reduce_scatter, GD_OP_all_gather,
                                          GD_OP_gather};
  (void)state;
  const struct gd_backend_ops *ops = cuda->base.ops;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
    for (int i = 0; i < ELEMENTS; i++)
      before[i] = (float)(i % 1009) - 504.5f * (float)k;
    expect(ops->write(&cuda->base, GD_SPACE_DEVICE, 0, before, ARENA_BYTES, &err));
    run_captured(kinds[k]);
    expect(ops->read(&cuda->base, GD_SPACE_DEVICE, 0, after, ARENA_BYTES, &err));
    assert_memory_equal(before, after, ARENA_BYTES);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_collectives)};
  struct gd_backend *backend = NULL;
  const struct gd_nccl *api;
  setenv("GPUDAYS_NCCL", "on", 1);
  if (gd_backend_open("cuda", &(struct gd_backend_options){0}, &backend, &err) != GD_OK ||
      gd_nccl_load(&api, &err) != GD_OK) {
    printf("skipped: %s\n", err.text);
    gd_backend_close(backend);
    return 77;
  }
  cuda = (struct gd_cuda *)backend;
  enum gd_status status = backend->ops->reserve(backend, ARENA_BYTES, 0, &err);
  if (status == GD_OK)
    status = gd_cuda_nccl_open(cuda, &err);
  if (status != GD_OK || !cuda->nccl) {
    printf("NCCL does not start: %s\n", err.text);
    return 1;
  }
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  gd_backend_close(backend);
  return failed;
}
