/*
 * Launches: one op, a few ops that share a kernel or a GEMM, or a whole program on the two streams.
 *
 * Copies and collectives go to the communication stream. An event ties it to the computation where
 * the plan says so: an asynchronous launch starts after everything before it, and the first op that
 * reads its output waits for it (gd_plan.waits).
 */
#include "backend/cuda/runtime/cuda_program.h"
#include "backend/cuda/runtime/multi_tensor.h"

enum { MOST_GROUPED = 256 }; /* ops that one launch may take */

static int64_t view_bytes(const struct gd_view *view) {
  return view->elements * gd_dtype_bytes(view->dtype);
}

const struct gd_view *gd_cuda_whole_of(const struct gd_launch *launch) {
  return gd_cuda_scatters(launch->kind) ? &launch->args.in[0] : &launch->args.out[0];
}

/* Called by the driver, on a thread of its own, in the order of the stream. */
static void run_job(void *argument) {
  const struct gd_cuda_job *job = argument;
  job->kernel(&job->args);
}

/* By NCCL; or down to the host, over the ranks, and up again; a single rank has nothing to do. */
enum gd_status gd_cuda_launch_collective(struct gd_cuda *cuda, const struct gd_cuda_launch *launch,
                                         CUstream stream, struct gd_error *err) {
  const struct gd_launch *op = launch->op;
  const struct gd_view *whole = gd_cuda_whole_of(op), *x = &op->args.in[0];
  if (gd_op_info(op->kind)->op_class == GD_CLASS_PURE) /* gathers into new memory */
    GD_TRY(gd_cuda_copy(cuda, (char *)whole->data + op->args.attr->ranks.rank * view_bytes(x),
                        x->data, view_bytes(x), stream, err));
  if (launch->by_nccl)
    return gd_cuda_nccl_put(cuda, op->kind, whole->data, whole->elements, whole->dtype, stream,
                            err);
  if (!launch->job)
    return GD_OK;
  void *staging = launch->job->args.out[0].data;
  if (gd_cuda_scatters(op->kind))
    staging = launch->job->args.in[0].data;
  GD_TRY(gd_cuda_copy(cuda, staging, whole->data, view_bytes(whole), stream, err));
  GD_CUDA_TRY(cuda->cu->LaunchHostFunc(stream, run_job, launch->job), "cuLaunchHostFunc");
  return gd_cuda_copy(cuda, whole->data, staging, view_bytes(whole), stream, err);
}

static enum gd_status launch_op(struct gd_cuda *cuda, const struct gd_cuda_launch *launch,
                                enum gd_cuda_stage stage, struct gd_error *err) {
  CUstream stream = launch->op->async ? cuda->comm_stream : cuda->stream;
  const struct gd_kernel_args *args = &launch->op->args;
  struct gd_cuda_call call = {.cuda = cuda,
                              .args = args,
                              .stream = stream,
                              .stage = stage,
                              .err = err,
                              .toggles = launch->toggles};
  if (launch->function)
    return launch->function(&call);
  if (stage != GD_CUDA_LAUNCH)
    return GD_OK;
  if (gd_cuda_is_collective(launch->op->kind))
    return gd_cuda_launch_collective(cuda, launch, stream, err);
  if (gd_op_info(launch->op->kind)->work == GD_WORK_TRANSFER) { /* copies its last input */
    const struct gd_view *from = &args->in[args->n_in - 1];
    return gd_cuda_copy(cuda, args->out[0].data, from->data, view_bytes(from), stream, err);
  }
  if (launch->job)
    GD_CUDA_TRY(cuda->cu->LaunchHostFunc(stream, run_job, launch->job), "cuLaunchHostFunc");
  return GD_OK;
}

/*
 * The same for as many launches as one kernel takes (updates of many parameters), or as share work
 * (GEMMs of one operand, a GEMM and the activation behind it). *taken says how many that were, at
 * least one. With trace every op is launched alone.
 */
static enum gd_status launch_some(struct gd_cuda *cuda, const struct gd_cuda_launch *launches,
                                  uint32_t n, enum gd_cuda_stage stage, uint32_t *taken,
                                  struct gd_error *err) {
  static enum gd_status (*const multi[])(const struct gd_cuda_call *, const struct gd_cuda_step *,
                                         uint32_t, uint32_t *) = {
      gd_cuda_multi_adam, gd_cuda_multi_squares, gd_cuda_multi_gemm, gd_cuda_multi_epilogue};
  struct gd_cuda_step steps[MOST_GROUPED];
  struct gd_cuda_call call = {.cuda = cuda, .stream = cuda->stream, .stage = stage, .err = err};
  uint32_t count = 0;
  *taken = 0;
  while (!cuda->trace && count < n && count < MOST_GROUPED && launches[count].function &&
         !launches[count].op->async && (count == 0 || !launches[count].op->waits)) {
    const struct gd_launch *op = launches[count].op;
    steps[count++] = (struct gd_cuda_step){op->kind, &op->args};
  }
  for (size_t i = 0; i < sizeof multi / sizeof *multi && count > 1 && *taken == 0; i++)
    GD_TRY(multi[i](&call, steps, count, taken)); /* takes none where it does not apply */
  if (*taken > 0)
    return GD_OK;
  *taken = 1;
  return launch_op(cuda, launches, stage, err);
}

enum gd_status gd_cuda_launch_stage(struct gd_cuda *cuda, struct gd_bound *bound,
                                    enum gd_cuda_stage stage, struct gd_error *err) {
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t i = 0, n = bound->n_launches[program], taken; i < n; i += taken)
      GD_TRY(launch_some(cuda, &bound->launches[program][i], n - i, stage, &taken, err));
  return GD_OK;
}

enum gd_status gd_cuda_launch_program(struct gd_cuda *cuda, struct gd_bound *bound,
                                      enum gd_program program, struct gd_error *err) {
  const struct gd_cuda_launch *launches = bound->launches[program], *last_async = NULL;
  CUevent *marks = cuda->trace ? bound->marks : NULL;
  for (uint32_t i = 0, n = bound->n_launches[program], taken; i < n; i += taken) {
    const struct gd_cuda_launch *launch = &launches[i];
    bool async = launch->op->async;
    CUstream stream = async ? cuda->comm_stream : cuda->stream;
    if (async) { /* after everything before it */
      GD_CUDA_TRY(cuda->cu->EventRecord(bound->fork, cuda->stream), "cuEventRecord");
      GD_CUDA_TRY(cuda->cu->StreamWaitEvent(stream, bound->fork, 0), "cuStreamWaitEvent");
    } else if (launch->op->waits) {
      GD_CUDA_TRY(cuda->cu->StreamWaitEvent(stream, launches[launch->op->waits - 1].done, 0),
                  "cuStreamWaitEvent");
    }
    if (marks)
      GD_CUDA_TRY(cuda->cu->EventRecord(marks[2 * i], stream), "cuEventRecord");
    GD_TRY(launch_some(cuda, launch, n - i, GD_CUDA_LAUNCH, &taken, err));
    if (marks)
      GD_CUDA_TRY(cuda->cu->EventRecord(marks[2 * i + 1], stream), "cuEventRecord");
    if (async) {
      GD_CUDA_TRY(cuda->cu->EventRecord(launch->done, stream), "cuEventRecord");
      last_async = launch;
    }
  }
  if (last_async)
    GD_CUDA_TRY(cuda->cu->StreamWaitEvent(cuda->stream, last_async->done, 0), "cuStreamWaitEvent");
  return GD_OK;
}
