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
  if (t->role == GD_ROLE_PARAM_HALF && !t->flat)
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

static void print_attr(const struct gd_graph *graph, const struct gd_op *op,
                       struct gd_strbuf *out) {
  const union gd_attr *attr = &op->attr;
  switch (gd_op_info(op->kind)->attr) {
  case GD_ATTR_none:
  case GD_ATTR_reshape:
  case GD_ATTR_norm_grad: break;
  case GD_ATTR_matmul:
    gd_strbuf_printf(out, "%s%s", attr->matmul.trans_a ? " ta" : "",
                     attr->matmul.trans_b ? " tb" : "");
    if (attr->matmul.alpha != 1)
      gd_strbuf_printf(out, " alpha=%g", (double)attr->matmul.alpha);
    break;
  case GD_ATTR_split: gd_strbuf_printf(out, " parts=%u", attr->split.parts); break;
  case GD_ATTR_transpose:
    gd_strbuf_append(out, " perm=");
    for (uint32_t i = 0; i < graph->tensors[op->in[0]].rank; i++)
      gd_strbuf_printf(out, "%d", attr->transpose.perm[i]);
    break;
  case GD_ATTR_slice:
    gd_strbuf_printf(out, " dim=%u start=%" PRId64 " length=%" PRId64, attr->slice.dim,
                     attr->slice.start, attr->slice.length);
    break;
  case GD_ATTR_cast: break;
  case GD_ATTR_positions: gd_strbuf_printf(out, " pad=%d", (int)attr->positions.pad); break;
  case GD_ATTR_dropout:
    gd_strbuf_printf(out, " p=%g stream=%u", (double)attr->dropout.probability,
                     attr->dropout.stream);
    break;
  case GD_ATTR_norm: gd_strbuf_printf(out, " eps=%g", (double)attr->norm.eps); break;
  case GD_ATTR_rope:
    gd_strbuf_printf(out, " rotary=%" PRId64 "%s", attr->rope.rotary,
                     attr->rope.inverse ? " inverse" : "");
    break;
  case GD_ATTR_heads:
    gd_strbuf_printf(out, " heads=%" PRId64 " parts=%u%s", attr->heads.heads, attr->heads.parts,
                     attr->heads.interleaved ? " interleaved" : "");
    if (attr->heads.rotated)
      gd_strbuf_printf(out, " rotated=%u rotary=%" PRId64 "%s", attr->heads.rotated,
                       attr->heads.rotary, attr->heads.inverse ? " inverse" : "");
    break;
  case GD_ATTR_softmax: gd_strbuf_append(out, attr->softmax.causal ? " causal" : ""); break;
  case GD_ATTR_attention:
    gd_strbuf_printf(out, "%s scale=%g", attr->attention.causal ? " causal" : "",
                     (double)attr->attention.scale);
    if (attr->attention.probability > 0)
      gd_strbuf_printf(out, " p=%g stream=%u", (double)attr->attention.probability,
                       attr->attention.stream);
    if (attr->attention.tf32)
      gd_strbuf_append(out, " tf32");
    break;
  case GD_ATTR_activate:
    gd_strbuf_printf(out, " %s", gd_activation_name(attr->activate.function));
    break;
  case GD_ATTR_xent:
    gd_strbuf_printf(out, " ignore=%d%s", (int)attr->xent.ignore, attr->xent.shift ? " shift" : "");
    if (attr->xent.masked)
      gd_strbuf_printf(out, " masked");
    if (attr->xent.chunk_bytes)
      gd_strbuf_printf(out, " chunk=%lld", (long long)attr->xent.chunk_bytes);
    break;
  case GD_ATTR_embed:
    if (op->kind == GD_OP_embed_grad)
      gd_strbuf_printf(out, " rows=%" PRId64, attr->embed.rows);
    if (attr->embed.has_pad)
      gd_strbuf_printf(out, " pad=%d", (int)attr->embed.pad);
    break;
  case GD_ATTR_rows: gd_strbuf_printf(out, " rows=%" PRId64, attr->rows.rows); break;
  case GD_ATTR_control:
    gd_strbuf_printf(out, " max_norm=%g%s", (double)attr->control.max_norm,
                     attr->control.dynamic_scale ? " dynamic_scale" : "");
    break;
  case GD_ATTR_adam:
    gd_strbuf_printf(out, " betas=%g,%g eps=%g decay=%g%s", (double)attr->adam.beta1,
                     (double)attr->adam.beta2, (double)attr->adam.eps,
                     (double)attr->adam.weight_decay, attr->adam.decoupled ? " decoupled" : "");
    break;
  case GD_ATTR_fill: gd_strbuf_printf(out, " %g", (double)attr->fill.value); break;
  case GD_ATTR_view: gd_strbuf_printf(out, " start=%" PRId64, attr->view.start); break;
  case GD_ATTR_buffer: gd_strbuf_printf(out, " used=%" PRId64, attr->buffer.used); break;
  case GD_ATTR_ranks:
    gd_strbuf_printf(out, " rank=%d/%d", (int)attr->ranks.rank, (int)attr->ranks.ranks);
    break;
  case GD_ATTR_transfer:
    gd_strbuf_append(out, attr->transfer.space == GD_SPACE_HOST ? " host" : " device");
    break;
  case GD_ATTR_fused: gd_strbuf_printf(out, " fusion=%u", attr->fused.fusion); break;
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
  if (op->kind == GD_OP_fused)
    gd_fusion_print(&graph->fusions[op->attr.fused.fusion], out);
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
