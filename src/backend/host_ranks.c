/*
 * What ranks and memories need of a host backend: copies between the two arenas, and collectives
 * over src/comm. All but buffer run on the communication thread (async.h), so none of them uses
 * OpenMP or the kernels' workspace. Without a communicator there is one rank, and nothing to
 * exchange.
 */
#include <string.h>

#include "backend/kernel.h"

static void copy_bytes(const struct gd_view *to, const struct gd_view *from) {
  size_t bytes = (size_t)(from->elements * gd_dtype_bytes(from->dtype));
  if (bytes > 0)
    memcpy(to->data, from->data, bytes);
}

/* Whether there is anybody to talk to; after a failure there is not. */
static bool connected(const struct gd_kernel_args *args) {
  return args->comm && args->attr->ranks.ranks > 1 && args->err->status == GD_OK;
}

/* A failure stays in args->err, where the run finds it. */
static void settle(enum gd_status status) {
  (void)status;
}

void gd_host_buffer(const struct gd_kernel_args *args) {
  const struct gd_attr_buffer *attr = &args->attr->buffer;
  int64_t size = gd_dtype_bytes(attr->dtype);
  if (attr->used < attr->elements)
    memset((char *)args->out[0].data + attr->used * size, 0,
           (size_t)((attr->elements - attr->used) * size));
}

/* The waiting is done by whoever starts it. */
void gd_host_wait(const struct gd_kernel_args *args) {
  (void)args;
}

void gd_host_all_reduce(const struct gd_kernel_args *args) {
  int64_t slice = args->out[0].elements / args->attr->ranks.ranks;
  if (connected(args))
    settle(gd_comm_all_reduce(args->comm, args->out[0].data, slice, args->comm_scratch,
                              args->comm_scratch_bytes, args->err));
}

void gd_host_reduce_scatter(const struct gd_kernel_args *args) {
  if (connected(args))
    settle(gd_comm_reduce_scatter(args->comm, args->in[0].data, args->out[0].elements,
                                  args->comm_scratch, args->comm_scratch_bytes, args->err));
}

void gd_host_all_gather(const struct gd_kernel_args *args) {
  int64_t slice = args->out[0].elements / args->attr->ranks.ranks;
  if (connected(args))
    settle(gd_comm_all_gather(args->comm, args->out[0].data,
                              slice * gd_dtype_bytes(args->out[0].dtype), args->err));
}

void gd_host_gather(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0];
  int64_t slice_bytes = x->elements * gd_dtype_bytes(x->dtype);
  struct gd_view own = *x;
  own.data = (char *)args->out[0].data + args->attr->ranks.rank * slice_bytes;
  copy_bytes(&own, x);
  if (connected(args))
    settle(gd_comm_all_gather(args->comm, args->out[0].data, slice_bytes, args->err));
}

void gd_host_transfer(const struct gd_kernel_args *args) {
  copy_bytes(&args->out[0], &args->in[0]);
}

void gd_host_transfer_into(const struct gd_kernel_args *args) {
  copy_bytes(&args->out[0], &args->in[1]);
}
