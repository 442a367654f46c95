/*
 * Ops as the tables say them: kinds and facts out of ops.def, attributes out of attrs.def. Whoever
 * wants to know something of an op asks gd_op_info; comparing kinds is for the files that rewrite a
 * given pattern of ops (tools/lint_c.awk lists them).
 *
 *   if (gd_op_info(op->kind)->work == GD_WORK_COLLECTIVE) ...
 */
#ifndef GD_IR_OP_H
#define GD_IR_OP_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/dtype.h"

enum gd_op_kind {
#define GD_OP(name, ...) GD_OP_##name,
#include "ir/ops.def"
#undef GD_OP
  GD_OP_COUNT
};

/* --- attributes ------------------------------------------------------------------------------ */

enum { GD_MAX_RANK = 8 };    /* checked: a ninth dim is an error, not a truncation */
enum { GD_HEADS_PARTS = 3 }; /* q, k and v */

/* Which memory a tensor lies in. Offloading keeps state on the host; all else is on the device. */
enum gd_space { GD_SPACE_DEVICE, GD_SPACE_HOST, GD_SPACE_COUNT };

enum gd_activation {
  GD_ACTIVATION_GELU,
  GD_ACTIVATION_GELU_TANH,
  GD_ACTIVATION_RELU,
  GD_ACTIVATION_SILU,
  GD_ACTIVATION_SOFTPLUS,   /* log(1 + e^x) */
  GD_ACTIVATION_QUICK_GELU, /* x sigmoid(1.702 x) */
  GD_ACTIVATION_TANH,
  GD_ACTIVATION_SIGMOID,
  GD_ACTIVATION_COUNT
};
/* Name as printed: "gelu_tanh". */
const char *gd_activation_name(enum gd_activation activation);

#define GD_FIELD_flag(name)       bool name;
#define GD_FIELD_f32(name)        float name;
#define GD_FIELD_i32(name)        int32_t name;
#define GD_FIELD_u32(name)        uint32_t name;
#define GD_FIELD_i64(name)        int64_t name;
#define GD_FIELD_dtype(name)      enum gd_dtype name;
#define GD_FIELD_space(name)      enum gd_space name;
#define GD_FIELD_activation(name) enum gd_activation name;
#define GD_FIELD_dims(name)       int64_t name[GD_MAX_RANK];
#define GD_FIELD_perm(name)       uint8_t name[GD_MAX_RANK];

/* struct gd_attr_matmul { bool trans_a; ... }; and so on. */
#define FIELD(type, field, label, shown) GD_FIELD_##type(field)
#define GD_ATTR(name, ...) \
  struct gd_attr_##name {  \
    __VA_ARGS__            \
  };
#include "ir/attrs.def"
#undef GD_ATTR
#undef FIELD

union gd_attr {
#define GD_ATTR(name, ...) struct gd_attr_##name name;
#include "ir/attrs.def"
#undef GD_ATTR
};

enum gd_attr_kind { /* the tag of the union: gd_op_info(kind)->attr */
#define GD_ATTR(name, ...) GD_ATTR_##name,
#include "ir/attrs.def"
#undef GD_ATTR
                    GD_ATTR_COUNT
};

/* Where the op says whether TF32 is permitted; NULL: it runs no GEMM. */
bool *gd_attr_tf32(enum gd_op_kind kind, union gd_attr *attr);

/* --- facts ----------------------------------------------------------------------------------- */

enum gd_op_class { GD_CLASS_PURE, GD_CLASS_VIEW, GD_CLASS_STATE };

enum gd_recompute {
  GD_RECOMPUTE_FREE,
  GD_RECOMPUTE_CHEAP,
  GD_RECOMPUTE_SAVED,
  GD_RECOMPUTE_COSTLY,
  GD_RECOMPUTE_NEVER,
};

/*
 * What an op's time depends on. predict/work.c has, for each class, the sizes that decide it and
 * the variants that have kernels of their own.
 */
enum gd_work_class {
  GD_WORK_NONE,      /* takes no time: views, waits, memory to be filled */
  GD_WORK_BYTES,     /* bytes and columns of a row; so do the next ones, each with variants */
  GD_WORK_BROADCAST, /* one operand may be a row */
  GD_WORK_TRANSPOSE,
  GD_WORK_HEADS,
  GD_WORK_SOFTMAX,
  GD_WORK_ACTIVATE,
  GD_WORK_ACTIVATE_GRAD,
  GD_WORK_ADAM,
  GD_WORK_FUSED,
  GD_WORK_MATMUL,      /* batch, M, N, K */
  GD_WORK_LINEAR_XENT, /* 1, rows, classes, width */
  GD_WORK_ATTENTION,   /* B N, T, D, query heads to a key */
  GD_WORK_ATTENTION_GRAD,
  GD_WORK_SCAN, /* B, T, C, S */
  GD_WORK_SCAN_GRAD,
  GD_WORK_FILTER,     /* B, positions, C, taps */
  GD_WORK_COLLECTIVE, /* bytes of the whole buffer, ranks */
  GD_WORK_TRANSFER,   /* bytes over the host link */
  GD_WORK_COUNT
};

/*
 * How an op runs where its tensors are cut into slices, one a rank of a mesh axis: which dims of
 * its inputs may be cut, and what the outputs then are. The mesh pass will read it; nothing does
 * yet.
 */
enum gd_shard_rule {
  GD_SHARD_REPLICATE, /* no dim: every rank runs the whole op */
  GD_SHARD_ELEMENTS,  /* any dim, in all tensors alike; the outputs are cut likewise */
  GD_SHARD_LAYOUT, /* any dim that the op moves or renames as a whole: followed to its new place */
  GD_SHARD_ROWS, /* any dim but the last; what sums over rows (weight gradients) is a partial sum */
  GD_SHARD_BATCH,    /* dim 0 */
  GD_SHARD_HEADS,    /* batch and heads: B and N of [B,N,T,D], C of [B,T,C] by whole heads */
  GD_SHARD_CHANNELS, /* batch and channels, B and C; what sums over one of them is a partial sum */
  GD_SHARD_MATMUL,   /* rows of a, columns of b: the output is cut likewise; the contracted dim:
                        partial sum */
  GD_SHARD_VOCABULARY, /* rows; and V: rows of the table give a partial sum, a loss exchanges max
                          and sum */
  GD_SHARD_SUM,        /* any dim: the output is a partial sum */
  GD_SHARD_BODY,       /* what all ops of the fusion permit */
  GD_SHARD_MESH,       /* belongs to the mesh: placed after sharding, never sharded itself */
};

/* How an op can be part of a fused kernel over [rows, columns]: codegen/lower.h. */
enum gd_fuse {
  GD_FUSE_NONE,
  GD_FUSE_ELEMENTS,   /* element by element: rows may be of any length */
  GD_FUSE_BROADCAST,  /* likewise; input 1 may be a row */
  GD_FUSE_ROWS,       /* rows are the last dim; not with a causal mask */
  GD_FUSE_COLUMN_SUM, /* sums over the rows */
};

/* What PyTorch's autograd saves of an op for the backward pass: predict/stack_graph.c. */
enum gd_saves {
  GD_SAVES_NOTHING,
  GD_SAVES_INPUT,
  GD_SAVES_INPUTS,
  GD_SAVES_INPUTS_AND_OUTPUT,
  GD_SAVES_INPUT_FP32,  /* in fp32 under autocast */
  GD_SAVES_OUTPUT_FP32, /* in fp32 under autocast, and a 16-bit copy */
  GD_SAVES_MASK,        /* one byte an element */
  GD_SAVES_LOGITS,      /* and what the loss makes of them */
};

/* What a collective does with the ranks' slices of a flat tensor. */
enum gd_exchange {
  GD_EXCHANGE_NONE = 0,
  GD_EXCHANGE_SUM = 1,   /* each rank gets the sum of its slice over all ranks */
  GD_EXCHANGE_SHARE = 2, /* each rank gets the slices of all ranks */
  GD_EXCHANGE_SUM_AND_SHARE = 3,
};

struct gd_op_info {
  const char *name, *doc;
  uint32_t inputs_min, inputs_max; /* inputs_max 0: any number */
  enum gd_attr_kind attr;
  int flops_per_element; /* GD_FLOPS_GEMM: 2 m n k */
  enum gd_op_class op_class;
  enum gd_recompute recompute;
  enum gd_work_class work;
  enum gd_shard_rule shard;
  uint32_t inplace;        /* bit i: output 0 may take the memory of input i */
  uint32_t adds;           /* bit i: kernels can add output i to its memory, where it is fp32 */
  uint32_t compute_inputs; /* bit i: input i is read in the compute dtype */
  enum gd_fuse fuse;
  uint32_t sums; /* bit i: in a fused kernel, output i is a sum over all rows */
  enum gd_saves saves;
  enum gd_exchange exchange;
  bool async;           /* see gd_op_is_async */
  bool cpu_may_use_ref; /* shapes past the limits of the cpu kernel go to ref's */
};
#define GD_FLOPS_GEMM (-1)

const struct gd_op_info *gd_op_info(enum gd_op_kind kind);
/* By name; false: there is none of it, or name is NULL. */
bool gd_op_find(const char *name, enum gd_op_kind *kind);

/* Runs on the copy or communication stream: collectives, and copies between memories. What it works
   on is in use until the first op that reads its output, or to the end of the program. */
bool gd_op_is_async(enum gd_op_kind kind);
/* Moves nothing: its outputs are the memory of its input. */
bool gd_op_is_view(enum gd_op_kind kind);

#endif
