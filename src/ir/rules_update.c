/*
 * What ops of the update program mean, and accumulation: their shape rules. They have no gradient.
 */
#include "ir/rules_int.h"

enum gd_status gd_shape_accumulate(const struct gd_rule *r) {
  if (!same_dims(input(r, 0), input(r, 1)) || !is_float(input(r, 0)) || !is_float(input(r, 1)))
    return gd_rule_wrong(r, "the dims differ");
  output_overwrites(r, 0);
  return GD_OK;
}

enum gd_status gd_shape_sum_squares(const struct gd_rule *r) {
  if (!is_float(input(r, 0)))
    return gd_rule_wrong(r, "wants floats");
  output(r, GD_DTYPE_F32, 1, (int64_t[]){2});
  return GD_OK;
}

enum gd_status gd_shape_control(const struct gd_rule *r) {
  if (!is_vector(input(r, 0), 2) || !is_vector(input(r, 1), 2))
    return gd_rule_wrong(r, "wants step[2] and loss scale[2]");
  for (uint32_t i = 2; i < r->n_in; i++)
    if (input(r, i)->rank != 1 || input(r, i)->dims[0] % 2 || input(r, i)->dtype != GD_DTYPE_F32)
      return gd_rule_wrong(r, "wants pairs: value and rest of a sum of squares");
  output_overwrites(r, 0);
  output_overwrites(r, 1);
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  return GD_OK;
}

enum gd_status gd_shape_adam(const struct gd_rule *r) {
  for (uint32_t i = 0; i < 4; i++)
    if (!same_dims(input(r, 0), input(r, i)) || input(r, i)->dtype != GD_DTYPE_F32)
      return gd_rule_wrong(r, "parameter, gradient and moments differ");
  if (!is_vector(input(r, 4), 1) || !is_vector(input(r, 5), 1) || !is_vector(input(r, 6), 2))
    return gd_rule_wrong(r, "wants factor[1], lr[1] and step[2]");
  if (r->n_in > 7 && !same_dims(input(r, 0), input(r, 7)))
    return gd_rule_wrong(r, "the half copy differs");
  output_overwrites(r, 0);
  output_overwrites(r, 2);
  output_overwrites(r, 3);
  if (r->n_in > 7)
    output_overwrites(r, 7);
  return GD_OK;
}

enum gd_status gd_shape_fill(const struct gd_rule *r) {
  output_overwrites(r, 0);
  return GD_OK;
}
