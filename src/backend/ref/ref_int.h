/*
 * What the files of the ref backend share: element access in double, whatever the dtype, and the
 * declarations of the kernels.
 */
#ifndef GD_BACKEND_REF_REF_INT_H
#define GD_BACKEND_REF_REF_INT_H

#include <string.h>

#include "backend/kernel.h"

static inline double get(const struct gd_view *view, int64_t i) {
  return (double)gd_dtype_load(view->dtype, view->data, i);
}

static inline void put(const struct gd_view *view, int64_t i, double value) {
  gd_dtype_store(view->dtype, view->data, i, (float)value);
}

/* Stores a value of output `output`, or adds it rounded to fp32, as accumulate would. */
static inline void put_out(const struct gd_kernel_args *args, uint32_t output, int64_t i,
                           double value) {
  const struct gd_view *view = &args->out[output];
  put(view, i, gd_kernel_adds(args, output) ? get(view, i) + (double)(float)value : value);
}

static inline int32_t get_index(const struct gd_view *view, int64_t i) {
  return ((const int32_t *)view->data)[i];
}

/* The label row r is scored against, or attr->ignore. */
static inline int32_t label_of(const struct gd_attr_xent *attr, const struct gd_view *labels,
                               int64_t r) {
  if (!attr->shift)
    return get_index(labels, r);
  int64_t positions = labels->dims[labels->rank - 1];
  return r % positions == positions - 1 ? attr->ignore : get_index(labels, r + 1);
}

/* Copies count elements between tensors of one dtype, bit by bit. */
static inline void move(const struct gd_view *to, int64_t to_at, const struct gd_view *from,
                        int64_t from_at, int64_t count) {
  int64_t size = gd_dtype_bytes(to->dtype);
  if (count > 0)
    memcpy((char *)to->data + to_at * size, (const char *)from->data + from_at * size,
           (size_t)(count * size));
}

/* gd_ref_<op> of every row of ops.def. Other backends take them from gd_ref_kernels. */
#define REF_none(name)
#define REF_host(name)
#define REF_own(name) void gd_ref_##name(const struct gd_kernel_args *args);

#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, ...) REF_##ref(name)
#include "ir/ops.def"
#undef GD_OP
#undef REF_none
#undef REF_host
#undef REF_own

#endif
