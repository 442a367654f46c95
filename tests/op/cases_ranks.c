/*
 * Copies and collectives on one rank, where a collective leaves its tensor as it is. Several ranks
 * are in tests/comm and tests/methods.
 */
#include "op/op_cases.h"

static void flat_cases(enum gd_op_kind kind, const union gd_attr *attr, uint32_t n_in,
                       enum gd_dtype dtype) {
  for (int64_t s = 0; s < COUNT(flat_shapes); s++) {
    struct op_case c = {.kind = kind, .n_in = n_in, .attr = *attr};
    if (flat_shapes[s].rank != 1)
      continue;
    for (uint32_t i = 0; i < n_in; i++) {
      c.in[i] = flat_shapes[s];
      c.in[i].dtype = dtype;
    }
    check(&c);
  }
  struct op_case c = {.kind = kind, .n_in = n_in, .attr = *attr};
  for (uint32_t i = 0; i < n_in; i++)
    c.in[i] = (struct op_input){.dtype = dtype, DIMS(4099), .low = -1, .high = 1};
  check(&c);
}

void cases_view(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    check_view(GD_OP_view, &(union gd_attr){.view = {.start = 0, .rank = 2, .dims = {3, 7}}},
               floats[d], 1, (int64_t[]){21});
}

void cases_buffer(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    check(&(struct op_case){/* all of it padding: the rest has no value to compare */
                            .kind = GD_OP_buffer,
                            .attr = {.buffer = {.dtype = floats[d], .elements = 37}}});
}

void cases_wait(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    flat_cases(GD_OP_wait, &(union gd_attr){.none = {0}}, 1, floats[d]);
}

void cases_all_reduce(void) {
  flat_cases(GD_OP_all_reduce, &(union gd_attr){.ranks = {0, 1}}, 1, GD_DTYPE_F32);
}

void cases_reduce_scatter(void) {
  flat_cases(GD_OP_reduce_scatter, &(union gd_attr){.ranks = {0, 1}}, 1, GD_DTYPE_F32);
}

void cases_all_gather(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    flat_cases(GD_OP_all_gather, &(union gd_attr){.ranks = {0, 1}}, 1, floats[d]);
}

void cases_gather(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    flat_cases(GD_OP_gather, &(union gd_attr){.ranks = {0, 1}}, 1, floats[d]);
}

void cases_transfer(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    flat_cases(GD_OP_transfer, &(union gd_attr){.transfer = {GD_SPACE_HOST}}, 1, floats[d]);
}

void cases_transfer_into(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    flat_cases(GD_OP_transfer_into, &(union gd_attr){.none = {0}}, 2, floats[d]);
}
