/*
 * The graph as stable text, one line an op:
 *   b3 fwd  %41 = matmul(%40, gpt_neox.layers.3.mlp.dense_h_to_4h.weight, ...) tb : bf16[2,9,256]
 * Leaves print by name, activations by id. An output that is added to a leaf names the leaf:
 *   b3 bwd  %97, grad.scale += %98 = rmsnorm_grad(...) : bf16[2,9,256], f32[256]
 */
#include "ir/fusion.h"

#include <inttypes.h>

void gd_tensor_print(const struct gd_graph *graph, gd_tensor_id id, struct gd_strbuf *out) {
  if (id == GD_NONE) {
    gd_strbuf_append(out, "-");
    return;
  }
  const struct gd_tensor *t = &graph->tensors[id];
  if (t->role == GD_ROLE_PARAM_COMPUTE && !t->flat)
    gd_strbuf_printf(out, "%s:%s", graph->tensors[t->owner].name, gd_dtype_name(t->dtype));
  else if (t->producer == GD_NONE)
    gd_strbuf_append(out, t->name);
  else
    gd_strbuf_printf(out, "%%%u", id);
}

static void print_type(const struct gd_tensor *t, struct gd_strbuf *out) {
  gd_strbuf_printf(out, "%s[", gd_dtype_name(t->dtype));
  for (uint32_t i = 0; i < t->rank; i++)
    gd_strbuf_printf(out, "%s%" PRId64, i ? "," : "", t->dims[i]);
  gd_strbuf_append(out, "]");
}

/* One function a type of attrs.def; rank: of input 0. */
struct printing {
  struct gd_strbuf *out;
  uint32_t rank;
};

static void print_flag(const struct printing *p, const char *label, bool value) {
  (void)value; /* a flag is shown when it is set */
  gd_strbuf_append(p->out, label);
}
static void print_f32(const struct printing *p, const char *label, float value) {
  gd_strbuf_printf(p->out, "%s%g", label, (double)value);
}
static void print_i64(const struct printing *p, const char *label, int64_t value) {
  gd_strbuf_printf(p->out, "%s%" PRId64, label, value);
}
#define print_i32 print_i64
#define print_u32 print_i64
static void print_dtype(const struct printing *p, const char *label, enum gd_dtype value) {
  gd_strbuf_printf(p->out, "%s%s", label, gd_dtype_name(value));
}
static void print_space(const struct printing *p, const char *label, enum gd_space value) {
  gd_strbuf_printf(p->out, "%s%s", label, value == GD_SPACE_HOST ? "host" : "device");
}
static void print_activation(const struct printing *p, const char *label,
                             enum gd_activation value) {
  gd_strbuf_printf(p->out, "%s%s", label, gd_activation_name(value));
}
static void print_dims(const struct printing *p, const char *label, const int64_t *value) {
  gd_strbuf_append(p->out, label);
  for (uint32_t i = 0; i < GD_MAX_RANK; i++)
    gd_strbuf_printf(p->out, "%s%" PRId64, i ? "," : "", value[i]);
}
static void print_perm(const struct printing *p, const char *label, const uint8_t *value) {
  gd_strbuf_append(p->out, label);
  for (uint32_t i = 0; i < p->rank; i++)
    gd_strbuf_printf(p->out, "%d", value[i]);
}

#define FIELD(type, field, label, shown) \
  if (shown)                             \
    print_##type(p, label, a->field);
#define GD_ATTR(name, ...)                                                                  \
  static void print_attr_##name(const struct printing *p, const struct gd_attr_##name *a) { \
    __VA_ARGS__                                                                             \
  }
#include "ir/attrs.def"
#undef GD_ATTR
#undef FIELD

static void print_attr(const struct gd_graph *graph, const struct gd_op *op,
                       struct gd_strbuf *out) {
  struct printing p = {out, op->n_in > 0 ? graph->tensors[op->in[0]].rank : 0};
  switch (gd_op_info(op->kind)->attr) {
#define GD_ATTR(name, ...)                 \
  case GD_ATTR_##name:                     \
    print_attr_##name(&p, &op->attr.name); \
    break;
#include "ir/attrs.def"
#undef GD_ATTR
  case GD_ATTR_COUNT: break;
  }
}

void gd_op_print(const struct gd_graph *graph, gd_op_id id, struct gd_strbuf *out) {
  static const char *const phases[] = {"fwd", "bwd", "upd", "ini"};
  const struct gd_op *op = &graph->ops[id];
  if (op->block >= 0)
    gd_strbuf_printf(out, "b%-3d %s  ", op->block, phases[op->phase]);
  else
    gd_strbuf_printf(out, "-    %s  ", phases[op->phase]);
  for (uint32_t i = 0; i < op->n_out; i++) {
    gd_strbuf_append(out, i ? ", " : "");
    if (op->adds >> i & 1u) {
      gd_tensor_print(graph, graph->tensors[op->out[i]].alias_of, out);
      gd_strbuf_append(out, " += ");
    }
    gd_tensor_print(graph, op->out[i], out);
  }
  gd_strbuf_printf(out, " = %s(", gd_op_info(op->kind)->name);
  for (uint32_t i = 0; i < op->n_in; i++) {
    gd_strbuf_append(out, i ? ", " : "");
    gd_tensor_print(graph, op->in[i], out);
  }
  gd_strbuf_append(out, ")");
  print_attr(graph, op, out);
  gd_strbuf_append(out, op->recomputed ? " again" : "");
  gd_strbuf_append(out, op->last_only ? " last" : "");
  gd_strbuf_append(out, " : ");
  for (uint32_t i = 0; i < op->n_out; i++) {
    gd_strbuf_append(out, i ? ", " : "");
    print_type(&graph->tensors[op->out[i]], out);
  }
  gd_strbuf_append(out, "\n");
  if (gd_op_fusion(graph, op))
    gd_fusion_print(gd_op_fusion(graph, op), out);
}

void gd_graph_print(const struct gd_graph *graph, struct gd_strbuf *out) {
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    if (graph->tensors[id].producer != GD_NONE)
      continue;
    gd_tensor_print(graph, id, out);
    gd_strbuf_append(out, " : ");
    print_type(&graph->tensors[id], out);
    gd_strbuf_append(out, "\n");
  }
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    gd_op_print(graph, id, out);
}
