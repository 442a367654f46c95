/*
 * Cases of scan, scan_grad, and the parts of an unfused scan. Shapes: channels around
 * the widths of vectors, pairs and groups, more groups than run at once, of one sequence and of
 * many, steps around the chunks between stored states, states around a block, and so many that a
 * GPU's shared memory holds few channels; each dtype of activations with steps in fp32 (as models
 * have them) and in the same dtype.
 */
#include <math.h>

#include "op/op_cases.h"

static const struct scan_shape scan_shapes[] = {
    {1, 1, 1, 1},     {2, 3, 5, 2},     {1, 7, 17, 16},   {3, 63, 33, 5},   {1, 64, 16, 16},
    {2, 65, 31, 3},   {1, 129, 65, 7},  {1, 200, 8, 16},  {2, 17, 130, 1},  {1, 66, 7, 17},
    {1, 5, 3, 33},    {1, 70, 70, 18},  {1, 9, 2, 256},   {0, 3, 4, 5},     {2, 0, 4, 5},
    {2, 3, 0, 5},     {2, 70, 4, 0},    {1, 20, 257, 16}, {1, 2, 800, 250}, {2, 100, 34, 12},
    {1, 97, 40, 32},  {2, 130, 72, 16}, {1, 67, 36, 20},  {1, 65, 8640, 1}, {1, 70, 8, 256},
    {140, 65, 36, 1},
};

/* u, delta, A_log, b, c, d as inputs first, first + 1, ... */
static void scan_inputs(struct op_case *c, uint32_t first, const struct scan_shape *shape,
                        enum gd_dtype dtype, enum gd_dtype dtype_delta) {
  int64_t b = shape->batch, t = shape->steps, channels = shape->channels, s = shape->states;
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

void check_scan_of(enum gd_op_kind kind, const struct scan_shape *shape, uint64_t seed,
                   enum gd_dtype dtype, enum gd_dtype dtype_delta) {
  struct op_case c = {.kind = kind, .n_in = 6, .seed = seed};
  int64_t b = shape->batch, t = shape->steps, channels = shape->channels, s = shape->states;
  if (kind == GD_OP_scan) {
    scan_inputs(&c, 0, shape, dtype, dtype_delta);
    c.noise = 4 * last_bit * sqrt((double)s + 1);
  } else {
    scan_inputs(&c, 1, shape, dtype, dtype_delta);
    c.n_in = 8;
    c.in[0] = c.in[1];
    c.in[7] = (struct op_input){.dtype = GD_DTYPE_F32,
                                DIMS(b, (t + GD_SCAN_CHUNK - 1) / GD_SCAN_CHUNK, channels, s)};
    /* Sums over states, over channels, and over sequences and steps. */
    c.noise = 4 * last_bit * sqrt((double)(s + channels + b * t) + 1);
  }
  check(&c);
}

static void check_scan(enum gd_op_kind kind) {
  for (int64_t shape = 0; shape < COUNT(scan_shapes); shape++)
    for (int64_t d = 0; d < COUNT(floats); d++)
      for (int same = 0; same < (d == 0 ? 1 : 2); same++)
        check_scan_of(kind, &scan_shapes[shape], (uint64_t)shape, floats[d],
                      same ? floats[d] : GD_DTYPE_F32);
}

void cases_scan(void) {
  check_scan(GD_OP_scan);
}

void cases_scan_grad(void) {
  check_scan(GD_OP_scan_grad);
}

/* --- in parts ------------------------------------------------------------------------------- */

static struct op_input states_input(int64_t shape) {
  return (struct op_input){.dtype = GD_DTYPE_F32,
                           DIMS(scan_shapes[shape].batch, scan_shapes[shape].steps,
                                scan_shapes[shape].channels, scan_shapes[shape].states)};
}

/* [B,T,C] or [B,T,S]. */
static struct op_input along_input(int64_t shape, enum gd_dtype dtype, bool channels) {
  return (struct op_input){
      .dtype = dtype,
      DIMS(scan_shapes[shape].batch, scan_shapes[shape].steps,
           channels ? scan_shapes[shape].channels : scan_shapes[shape].states)};
}

/* delta and A_log, as scan has them. */
static void decay_inputs(struct op_input *delta, struct op_input *a_log, int64_t shape,
                         enum gd_dtype dtype) {
  *delta = along_input(shape, dtype, true);
  delta->low = 1e-3;
  delta->high = 0.7;
  *a_log = (struct op_input){.dtype = GD_DTYPE_F32,
                             DIMS(scan_shapes[shape].channels, scan_shapes[shape].states),
                             .high = 2};
}

void cases_decay(void) {
  for (int64_t shape = 0; shape < COUNT(scan_shapes); shape++)
    for (int64_t d = 0; d < COUNT(floats); d++) {
      struct op_case c = {.kind = GD_OP_decay, .n_in = 2, .seed = (uint64_t)shape};
      decay_inputs(&c.in[0], &c.in[1], shape, floats[d]);
      c.noise = 4 * last_bit;
      check(&c);
    }
}

void cases_decay_grad(void) {
  for (int64_t shape = 0; shape < COUNT(scan_shapes); shape++)
    for (int64_t d = 0; d < COUNT(floats); d++) {
      int64_t rows = scan_shapes[shape].batch * scan_shapes[shape].steps;
      struct op_case c = {.kind = GD_OP_decay_grad, .n_in = 4, .seed = (uint64_t)shape};
      c.in[0] = c.in[1] = states_input(shape);
      decay_inputs(&c.in[2], &c.in[3], shape, floats[d]);
      c.noise = 8 * last_bit * sqrt((double)(rows + scan_shapes[shape].states) + 1);
      check(&c);
    }
}

void cases_outer(void) {
  for (int64_t shape = 0; shape < COUNT(scan_shapes); shape++)
    for (int64_t d = 0; d < COUNT(floats); d++)
      for (int64_t e = 0; e < COUNT(floats); e++) {
        struct op_case c = {.kind = GD_OP_outer, .n_in = 2, .seed = (uint64_t)shape};
        c.in[0] = along_input(shape, floats[d], true);
        c.in[1] = along_input(shape, floats[e], false);
        check(&c);
      }
}

static void check_contract(enum gd_op_kind kind) {
  static const enum gd_dtype to[] = {GD_DTYPE_COUNT, GD_DTYPE_F32, GD_DTYPE_BF16};
  for (int64_t shape = 0; shape < COUNT(scan_shapes); shape++)
    for (int64_t d = 0; d < COUNT(floats); d++)
      for (int64_t e = 0; e < COUNT(to); e++) {
        struct op_case c = {.kind = kind, .n_in = 2, .seed = (uint64_t)shape};
        bool states = kind == GD_OP_contract_states;
        int64_t terms = states ? scan_shapes[shape].states : scan_shapes[shape].channels;
        c.attr.contract.dtype = to[e];
        c.in[0] = states_input(shape);
        c.in[1] = along_input(shape, floats[d], !states);
        c.noise = 2 * last_bit * sqrt((double)terms + 1);
        check(&c);
      }
}

void cases_contract_states(void) {
  check_contract(GD_OP_contract_states);
}

void cases_contract_channels(void) {
  check_contract(GD_OP_contract_channels);
}

static void check_recur(enum gd_op_kind kind, uint32_t n_in, uint32_t factors) {
  for (int64_t shape = 0; shape < COUNT(scan_shapes); shape++) {
    struct op_case c = {.kind = kind, .n_in = n_in, .seed = (uint64_t)shape};
    for (uint32_t i = 0; i < n_in; i++)
      c.in[i] = states_input(shape);
    c.in[factors].low = 0.5; /* long memory: about ten steps */
    c.in[factors].high = 1;
    c.noise = 16 * last_bit;
    check(&c);
  }
}

void cases_recur(void) {
  check_recur(GD_OP_recur, 2, 0);
}

void cases_recur_grad(void) {
  check_recur(GD_OP_recur_grad, 3, 1);
}
