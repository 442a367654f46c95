/*
 * What copies between memories and collectives over ranks mean: their shape rules. They have no
 * gradient.
 */
#include "ir/rules_int.h"

enum gd_status gd_shape_buffer(const struct gd_rule *r) {
  const struct gd_attr_buffer *want = &r->attr->buffer;
  if (want->elements < 0 || want->used < 0 || want->used > want->elements)
    return gd_rule_wrong(r, "more is used than there is");
  output(r, want->dtype, 1, &want->elements)->space = want->space;
  return GD_OK;
}

/* A flat tensor of one equal slice a rank. */
static bool is_sliced(const struct gd_rule *r) {
  const struct gd_attr_ranks *at = &r->attr->ranks;
  return input(r, 0)->rank == 1 && at->ranks > 0 && at->rank >= 0 && at->rank < at->ranks &&
         input(r, 0)->dims[0] % at->ranks == 0;
}

enum gd_status gd_shape_all_gather(const struct gd_rule *r) {
  if (!is_sliced(r))
    return gd_rule_wrong(r, "wants a flat tensor of equal slices");
  output_overwrites(r, 0);
  return GD_OK;
}

enum gd_status gd_shape_all_reduce(const struct gd_rule *r) {
  if (!is_sliced(r) || input(r, 0)->dtype != GD_DTYPE_F32)
    return gd_rule_wrong(r, "wants a flat fp32 tensor of equal slices");
  output_overwrites(r, 0);
  return GD_OK;
}

enum gd_status gd_shape_reduce_scatter(const struct gd_rule *r) {
  if (!is_sliced(r) || input(r, 0)->dtype != GD_DTYPE_F32)
    return gd_rule_wrong(r, "wants a flat fp32 tensor of equal slices");
  int64_t slice = input(r, 0)->dims[0] / r->attr->ranks.ranks;
  struct gd_shape *out = output(r, GD_DTYPE_F32, 1, &slice);
  out->alias_of = r->in[0];
  out->alias_elements = slice * r->attr->ranks.rank;
  return GD_OK;
}

enum gd_status gd_shape_gather(const struct gd_rule *r) {
  if (input(r, 0)->rank != 1)
    return gd_rule_wrong(r, "wants a flat tensor");
  int64_t whole = input(r, 0)->dims[0] * r->attr->ranks.ranks;
  output(r, input(r, 0)->dtype, 1, &whole);
  return GD_OK;
}

enum gd_status gd_shape_transfer(const struct gd_rule *r) {
  output_like(r, 0)->space = r->attr->transfer.space;
  return GD_OK;
}

enum gd_status gd_shape_transfer_into(const struct gd_rule *r) {
  if (!same_dims(input(r, 0), input(r, 1)) || input(r, 0)->dtype != input(r, 1)->dtype)
    return gd_rule_wrong(r, "dims or dtypes differ");
  output_overwrites(r, 0);
  return GD_OK;
}
