/*
 * Cases of test_ops.c: scan, scan_grad. Shapes: channels around the widths of vectors, pairs and
 * groups, steps around the chunks between stored states, states around a block; each dtype of
 * activations with steps in fp32 (as models have them) and in the same dtype.
 */
#ifndef GD_TESTS_OP_CASES_SCAN_H
#define GD_TESTS_OP_CASES_SCAN_H

static const struct {
  int64_t batch, steps, channels, states;
} scan_shapes[] = {
    {1, 1, 1, 1},   {2, 3, 5, 2},    {1, 7, 17, 16},  {3, 63, 33, 5},  {1, 64, 16, 16},
    {2, 65, 31, 3}, {1, 129, 65, 7}, {1, 200, 8, 16}, {2, 17, 130, 1}, {1, 66, 7, 17},
    {1, 5, 3, 33},  {1, 70, 70, 18}, {1, 9, 2, 256},  {0, 3, 4, 5},
    {2, 0, 4, 5},   {2, 3, 0, 5},    {2, 70, 4, 0},   {1, 20, 257, 16}, {1, 2, 800, 250},
};

/* u, delta, A_log, b, c, d as inputs first, first + 1, ... */
static void scan_inputs(struct op_case *c, uint32_t first, int64_t shape, enum gd_dtype dtype,
                        enum gd_dtype dtype_delta) {
  int64_t b = scan_shapes[shape].batch, t = scan_shapes[shape].steps;
  int64_t channels = scan_shapes[shape].channels, s = scan_shapes[shape].states;
  struct op_input u = {.dtype = dtype, DIMS(b, t, channels)};
  struct op_input selected = {.dtype = dtype, DIMS(b, t, s)};
  c->in[first] = u;
  c->in[first + 1] = u;
  c->in[first + 1].dtype = dtype_delta;
  c->in[first + 1].low = 1e-3; /* a softplus came before; with A from -1 to -e^2 all decays occur */
  c->in[first + 1].high = 0.7;
  c->in[first + 2] = (struct op_input){.dtype = GD_DTYPE_F32, DIMS(channels, s), .high = 2};
  c->in[first + 3] = c->in[first + 4] = selected;
  c->in[first + 5] = (struct op_input)F32_VECTOR(channels);
}

static void check_scan(enum gd_op_kind kind) {
  for (int64_t shape = 0; shape < COUNT(scan_shapes); shape++)
    for (int64_t d = 0; d < COUNT(floats); d++)
      for (int same = 0; same < (d == 0 ? 1 : 2); same++) {
        struct op_case c = {.kind = kind, .n_in = 6, .seed = (uint64_t)shape};
        int64_t b = scan_shapes[shape].batch, t = scan_shapes[shape].steps;
        int64_t channels = scan_shapes[shape].channels, s = scan_shapes[shape].states;
        enum gd_dtype dtype_delta = same ? floats[d] : GD_DTYPE_F32;
        if (kind == GD_OP_scan) {
          scan_inputs(&c, 0, shape, floats[d], dtype_delta);
          c.noise = 4 * last_bit * sqrt((double)s + 1);
        } else {
          scan_inputs(&c, 1, shape, floats[d], dtype_delta);
          c.n_in = 8;
          c.in[0] = c.in[1];
          c.in[7] = (struct op_input){
              .dtype = GD_DTYPE_F32, DIMS(b, (t + GD_SCAN_CHUNK - 1) / GD_SCAN_CHUNK, channels, s)};
          /* Sums over states, over channels, and over sequences and steps. */
          c.noise = 4 * last_bit * sqrt((double)(s + channels + b * t) + 1);
        }
        check(&c);
      }
}

static void cases_scan(void) {
  check_scan(GD_OP_scan);
}

static void cases_scan_grad(void) {
  check_scan(GD_OP_scan_grad);
}

#endif
