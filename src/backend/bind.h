/*
 * A program of a plan bound to memory: its ops in order, with the addresses of their tensors and
 * what each waits for. The host runtime (host.c) and the CUDA runtime (cuda/runtime) bind with the
 * same code, and add to it how they run a launch.
 *
 *   struct gd_launches launches;
 *   GD_TRY(gd_bind_program(plan, GD_PROGRAM_UPDATE, &memory, &arena, &launches, err));
 *   for (uint32_t i = 0; i < launches.n; i++)
 *     ... launches.at[i].args ...
 */
#ifndef GD_BACKEND_BIND_H
#define GD_BACKEND_BIND_H

#include "backend/backend.h"
#include "backend/kernel.h"

/* The two arenas of a backend. */
struct gd_memory {
  void *data[GD_SPACE_COUNT]; /* the device's is never dereferenced here */
  int64_t bytes[GD_SPACE_COUNT];
};

struct gd_launch {
  gd_op_id op;
  enum gd_op_kind kind;
  bool async;     /* a copy or a collective: runs on the communication stream, in order there */
  uint32_t waits; /* 1 + index of the asynchronous launch that must be done first; 0: none */
  struct gd_kernel_args args; /* without what a backend alone knows: fused kernels, comm, threads */
};

struct gd_launches {
  struct gd_launch *at;
  uint32_t n;
};

/* In `arena`, which must outlive the launches, as must the plan. GD_ENVIRONMENT: out of memory. */
enum gd_status gd_bind_program(const struct gd_plan *plan, enum gd_program program,
                               const struct gd_memory *memory, struct gd_arena *arena,
                               struct gd_launches *launches, struct gd_error *err) GD_MUST_USE;

/* Events for all launches of a program, named and not yet timed; NULL: out of memory. */
struct gd_event *gd_bind_events(const struct gd_launches *launches, struct gd_arena *arena);

/* The arena that holds a tensor, which may be a view of another. */
enum gd_space gd_bind_space(const struct gd_graph *graph, gd_tensor_id id);

#endif
