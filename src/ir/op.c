/*
 * The tables of ops.def and attrs.def as data; see op.h.
 */
#include "ir/op.h"

#include <string.h>

#include "base/status.h"

static const struct gd_op_info op_infos[GD_OP_COUNT] = {
#define GEMM           GD_FLOPS_GEMM
#define CPU_none       false
#define CPU_own        false
#define CPU_host       false
#define CPU_own_or_ref true
#define INPLACE(mask)  .inplace = (mask)
#define ADDS(mask)     .adds = (mask)
#define COMPUTE(mask)  .compute_inputs = (mask)
#define FUSE(how)      .fuse = GD_FUSE_##how
#define SUMS(mask)     .sums = (mask)
#define SAVES(what)    .saves = GD_SAVES_##what
#define EXCHANGE(what) .exchange = GD_EXCHANGE_##what
#define ASYNC          .async = true
#define GD_OP(op, min, max, attr_, doc_, shape_, grad, cost, flops, lower, ref, cpu, cuda, kind, \
              recompute_, work_, ...)                                                            \
  [GD_OP_##op] = {.name = #op,                                                                   \
                  .inputs_min = min,                                                             \
                  .inputs_max = max,                                                             \
                  .attr = GD_ATTR_##attr_,                                                       \
                  .doc = doc_,                                                                   \
                  .flops_per_element = flops,                                                    \
                  .op_class = GD_CLASS_##kind,                                                   \
                  .recompute = GD_RECOMPUTE_##recompute_,                                        \
                  .work = GD_WORK_##work_,                                                       \
                  .cpu_may_use_ref = CPU_##cpu,                                                  \
                  .shard = GD_SHARD_##__VA_ARGS__},
#include "ir/ops.def"
#undef GD_OP
};

const struct gd_op_info *gd_op_info(enum gd_op_kind kind) {
  GD_ASSERT(kind < GD_OP_COUNT);
  return &op_infos[kind];
}

bool gd_op_is_async(enum gd_op_kind kind) {
  return gd_op_info(kind)->async;
}

bool gd_op_is_view(enum gd_op_kind kind) {
  return gd_op_info(kind)->op_class == GD_CLASS_VIEW;
}

const char *gd_activation_name(enum gd_activation activation) {
  static const char *const names[GD_ACTIVATION_COUNT] = {
      [GD_ACTIVATION_GELU] = "gelu",         [GD_ACTIVATION_GELU_TANH] = "gelu_tanh",
      [GD_ACTIVATION_RELU] = "relu",         [GD_ACTIVATION_SILU] = "silu",
      [GD_ACTIVATION_SOFTPLUS] = "softplus", [GD_ACTIVATION_QUICK_GELU] = "quick_gelu",
      [GD_ACTIVATION_TANH] = "tanh",         [GD_ACTIVATION_SIGMOID] = "sigmoid",
  };
  GD_ASSERT(activation < GD_ACTIVATION_COUNT);
  return names[activation];
}

/* --- attributes ------------------------------------------------------------------------------ */

bool *gd_attr_tf32(enum gd_op_kind kind, union gd_attr *attr) {
  const struct gd_op_info *info = gd_op_info(kind);
  if (info->flops_per_element != GD_FLOPS_GEMM)
    return NULL;
  switch ((int)info->attr) {
  case GD_ATTR_matmul: return &attr->matmul.tf32;
  case GD_ATTR_attention: return &attr->attention.tf32;
  case GD_ATTR_xent: return &attr->xent.tf32;
  default: return NULL;
  }
}

bool gd_op_find(const char *name, enum gd_op_kind *kind) {
  for (int i = 0; i < GD_OP_COUNT && name; i++)
    if (strcmp(gd_op_info((enum gd_op_kind)i)->name, name) == 0) {
      *kind = (enum gd_op_kind)i;
      return true;
    }
  return false;
}
