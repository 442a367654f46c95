/*
 * The rewrites behind the `kernels` method: patterns of the forward graph that one fused op
 * computes in less memory and time. Each works on the forward graph alone, after the precision pass
 * and before autodiff, replaces every occurrence, and leaves a graph without any as it is.
 */
#ifndef GD_PASS_KERNELS_H
#define GD_PASS_KERNELS_H

#include "ir/graph.h"

/* softmax(q k^T) v, with or without mask, dropout and shared key heads -> attention. */
enum gd_status gd_kernels_attention(struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;
/* Around attention: transposes to and from heads, parts and rotary positions -> split_heads,
   merge_heads. Finds what gd_kernels_attention has made. */
enum gd_status gd_kernels_heads(struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;
/* The selective scan whose decay, input and state are written out for every step -> scan. */
enum gd_status gd_kernels_scan(struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;
/* The cross-entropy of a matmul with the vocabulary -> linear_xent, which computes gradients in the
   forward pass: it reads the loss scale, so that leaf is made here already. */
enum gd_status gd_kernels_loss(struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;

/* The op that makes x if it is of that kind and x has no other reader; else GD_NONE. */
gd_op_id gd_kernels_maker(const struct gd_graph_rewrite *r, gd_tensor_id x, enum gd_op_kind kind);
bool gd_kernels_has_dims(const struct gd_tensor *t, uint32_t rank, const int64_t *dims);

#endif
