/*
 * Lowering of fusions. First part: each op in terms of values (the table of formulas). Second
 * part: the schedule, which puts values into sweeps and buffers.
 *
 * The formulas are plain C over floats and the functions of the prelude, so that every dialect of
 * emit.c can print them as they are. Equal values are made once: two norms of one tensor share
 * their statistics.
 */
#include "codegen/lower.h"

#include <stddef.h>
#include <string.h>

#include "base/rng.h"

/* --- values --------------------------------------------------------------------------------- */

#define UNSET GD_NONE

struct lowering {
  struct gd_lowered *out;
  const struct gd_graph *body;
  uint32_t *of_tensor;  /* out's */
  int64_t *repeat_rows; /* out's */
  bool failed;
};

static bool same_value(const struct gd_value *a, const struct gd_value *b) {
  if (a->kind != b->kind || a->n_args != b->n_args || a->input != b->input ||
      a->repeat_rows != b->repeat_rows || a->number[0] != b->number[0] ||
      a->number[1] != b->number[1] || strcmp(a->text, b->text) != 0)
    return false;
  return memcmp(a->arg, b->arg, a->n_args * sizeof *a->arg) == 0;
}

static uint32_t make(struct lowering *l, const struct gd_value *value) {
  struct gd_lowered *out = l->out;
  for (uint32_t i = 0; i < value->n_args; i++)
    if (value->arg[i] == UNSET)
      l->failed = true; /* an input that is a sum of this very kernel */
  for (uint32_t i = 0; i < out->n_values && !l->failed; i++)
    if (same_value(&out->values[i], value))
      return i;
  if (l->failed || out->n_values == GD_LOWER_MAX_VALUES) {
    l->failed = true;
    return 0;
  }
  out->values[out->n_values] = *value;
  out->values[out->n_values].buffer = GD_NONE;
  return out->n_values++;
}

static bool is_row_kind(enum gd_value_kind kind) {
  return kind >= GD_VALUE_ROW_LOAD;
}

static bool is_row(const struct lowering *l, uint32_t value) {
  return is_row_kind(l->out->values[value].kind);
}

/* A formula; it is one per row when all of its arguments are. */
static uint32_t formula(struct lowering *l, int cost, const char *text, const double number[2],
                        uint32_t n_args, const uint32_t *args) {
  struct gd_value value = {
      .text = text, .n_args = n_args, .number = {number[0], number[1]}, .cost = cost};
  bool row = true;
  for (uint32_t i = 0; i < n_args; i++) {
    value.arg[i] = args[i];
    row = row && args[i] != UNSET && is_row(l, args[i]);
  }
  value.kind = row ? GD_VALUE_ROW_EXPR : GD_VALUE_EXPR;
  return make(l, &value);
}

#define ARGS(...)                                                        \
  (sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)), (uint32_t[]) { \
    __VA_ARGS__                                                          \
  }
#define NUMBERS(a, b) \
  (double[2]) {       \
    a, b              \
  }
#define EXPR(text, ...) formula(l, 1, text, NUMBERS(0, 0), ARGS(__VA_ARGS__))

static uint32_t reduce(struct lowering *l, enum gd_value_kind kind, uint32_t of) {
  return make(l, &(struct gd_value){.kind = kind, .text = "", .n_args = 1, .arg = {of}});
}

/* --- tensors -------------------------------------------------------------------------------- */

/* The tensor behind reshapes. */
static gd_tensor_id root_of(const struct lowering *l, gd_tensor_id id) {
  return gd_tensor_root(l->body, id, NULL);
}

/* How a leaf is read must not depend on who asks: loads and in-place reuse rely on it. */
static void read_as(struct lowering *l, gd_tensor_id leaf, int64_t repeat_rows) {
  if (l->repeat_rows[leaf] >= 0 && l->repeat_rows[leaf] != repeat_rows)
    l->failed = true;
  l->repeat_rows[leaf] = repeat_rows;
}

/* An input that has a value at every element: full, or repeated after so many rows. */
static uint32_t element(struct lowering *l, gd_tensor_id id) {
  const struct gd_fusion *f = l->out->fusion;
  gd_tensor_id root = root_of(l, id);
  int64_t elements = gd_tensor_elements(l->body, root);
  if (l->of_tensor[root] != UNSET || root >= f->n_in)
    return l->of_tensor[root];
  int64_t repeat_rows = elements == f->rows * f->columns ? 0 : elements / f->columns;
  if (elements % f->columns || (repeat_rows && f->rows % repeat_rows))
    l->failed = true;
  read_as(l, root, repeat_rows);
  l->of_tensor[root] =
      make(l, &(struct gd_value){
                  .kind = GD_VALUE_LOAD, .text = "", .input = root, .repeat_rows = repeat_rows});
  return l->of_tensor[root];
}

/* Statistics of rows. */
static uint32_t per_row(struct lowering *l, gd_tensor_id id) {
  const struct gd_fusion *f = l->out->fusion;
  gd_tensor_id root = root_of(l, id);
  if (l->of_tensor[root] != UNSET || root >= f->n_in)
    return l->of_tensor[root];
  if (gd_tensor_elements(l->body, root) != f->rows)
    l->failed = true;
  read_as(l, root, INT64_MAX);
  l->of_tensor[root] =
      make(l, &(struct gd_value){.kind = GD_VALUE_ROW_LOAD, .text = "", .input = root});
  return l->of_tensor[root];
}

static bool is_sum(enum gd_op_kind kind, uint32_t output) {
  return gd_op_info(kind)->sums >> output & 1u;
}

/* --- ops ------------------------------------------------------------------------------------ */

struct function {
  const char *value, *derivative_times; /* of $0; the derivative there, times $1 */
  int cost;
};

static const struct function functions[GD_ACTIVATION_COUNT] = {
    [GD_ACTIVATION_GELU] = {"gd_gelu($0)", "gd_gelu_derivative($0) * $1", 30},
    [GD_ACTIVATION_GELU_TANH] = {"gd_gelu_tanh($0)", "gd_gelu_tanh_derivative($0) * $1", 25},
    [GD_ACTIVATION_RELU] = {"gd_relu($0)", "gd_relu_derivative($0) * $1", 1},
    [GD_ACTIVATION_SILU] = {"gd_silu($0)", "gd_silu_derivative($0) * $1", 20},
    [GD_ACTIVATION_SOFTPLUS] = {"gd_softplus($0)", "gd_logistic($0) * $1", 30},
    [GD_ACTIVATION_QUICK_GELU] = {"gd_quick_gelu($0)", "gd_quick_gelu_derivative($0) * $1", 20},
    [GD_ACTIVATION_TANH] = {"gd_tanh($0)", "gd_tanh_derivative($0) * $1", 25},
    [GD_ACTIVATION_SIGMOID] = {"gd_logistic($0)", "gd_logistic_derivative($0) * $1", 20},
};

/* An op that no kernel can have inside. */
static void lower_none(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  (void)op;
  results[0] = UNSET;
  l->failed = true;
}

/* Readers ask for its root. */
static void lower_view(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  (void)l;
  (void)op;
  results[0] = UNSET;
}

/* The value as it is: a cast rounds when it is stored, a sum adds up what it is given. */
static void lower_copy(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  results[0] = element(l, op->in[0]);
}

static void lower_add(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  results[0] = EXPR("$0 + $1", element(l, op->in[0]), element(l, op->in[1]));
}

static void lower_mul(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  results[0] = EXPR("$0 * $1", element(l, op->in[0]), element(l, op->in[1]));
}

static void lower_activate(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  const struct function *f = &functions[op->attr.activate.function];
  results[0] = formula(l, f->cost, f->value, NUMBERS(0, 0), ARGS(element(l, op->in[0])));
}

static void lower_activate_grad(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  const struct function *f = &functions[op->attr.activate.function];
  results[0] = formula(l, f->cost, f->derivative_times, NUMBERS(0, 0),
                       ARGS(element(l, op->in[0]), element(l, op->in[1])));
}

/* The rule of the random numbers is that of gd_ref_dropout. */
static void lower_dropout(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  struct gd_lowered *out = l->out;
  const struct gd_tensor *x = &l->body->tensors[op->in[0]];
  double probability = (double)op->attr.dropout.probability;
  if (out->n_dropouts == GD_LOWER_MAX_DROPOUTS || op->in[1] >= out->fusion->n_in) {
    l->failed = true;
    return;
  }
  read_as(l, op->in[1], INT64_MAX - 1);
  out->dropouts[out->n_dropouts] = (struct gd_lowered_dropout){
      .seed_input = op->in[1],
      .stream = op->attr.dropout.stream,
      .sample_elements = gd_tensor_elements(l->body, op->in[0]) / x->dims[0],
      .per_sample = op->attr.dropout.per_sample};
  uint32_t word =
      make(l, &(struct gd_value){.kind = GD_VALUE_WORD, .text = "", .input = out->n_dropouts++});
  results[0] =
      formula(l, 2, "gd_drop($0, $1, #0, @1)",
              NUMBERS(gd_rng_dropout_threshold(probability), gd_rng_dropout_scale(probability)),
              ARGS(element(l, op->in[0]), word));
}

/*
 * Mean and variance are two sweeps: the squares of deviations do not cancel. The deviations also
 * tell how far the fp32 mean is off, which matters in rows whose spread is small against their
 * mean.
 */
static void lower_layernorm(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  const double *n = NUMBERS((double)l->out->fusion->columns, 0);
  uint32_t x = element(l, op->in[0]), weight = element(l, op->in[1]);
  uint32_t mean = formula(l, 1, "$0 / @0", n, ARGS(reduce(l, GD_VALUE_SUM, x)));
  uint32_t d = EXPR("$0 - $1", x, mean);
  uint32_t off = formula(l, 1, "$0 / @0", n, ARGS(reduce(l, GD_VALUE_SUM, d)));
  uint32_t squares = reduce(l, GD_VALUE_SUM, EXPR("$0 * $0", d));
  uint32_t variance = formula(l, 1, "$0 / @0 - $1 * $1", n, ARGS(squares, off));
  uint32_t rstd = formula(l, 1, "1.0f / gd_sqrt($0 + @0)", NUMBERS((double)op->attr.norm.eps, 0),
                          ARGS(variance));
  uint32_t h = EXPR("($0 - $1) * $2", d, off, rstd);
  results[0] = op->n_in > 2 ? EXPR("$0 * $1 + $2", h, weight, element(l, op->in[2]))
                            : EXPR("$0 * $1", h, weight);
  results[1] = EXPR("$0 + $1", mean, off);
  results[2] = rstd;
}

static void lower_rmsnorm(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  uint32_t x = element(l, op->in[0]), weight = element(l, op->in[1]);
  uint32_t squares = reduce(l, GD_VALUE_SUM, EXPR("$0 * $0", x));
  uint32_t rstd =
      formula(l, 1, "1.0f / gd_sqrt($0 / @0 + @1)",
              NUMBERS((double)l->out->fusion->columns, (double)op->attr.norm.eps), ARGS(squares));
  results[0] = EXPR("$0 * $1 * $2", x, rstd, weight);
  results[1] = rstd;
}

/*
 * With h = (x - mean) rstd and g = dy w: dx = rstd (g - mean(g) - h mean(g h)), dw = sum of dy h,
 * dbias = sum of dy. Where x was not centred, neither mean is there.
 */
static void norm_grad(struct lowering *l, const struct gd_op *op, bool centred, uint32_t *results) {
  const double *n = NUMBERS((double)l->out->fusion->columns, 0);
  uint32_t dy = element(l, op->in[0]), x = element(l, op->in[1]), weight = element(l, op->in[2]);
  uint32_t rstd = per_row(l, op->in[op->n_in - 1]);
  uint32_t h =
      centred ? EXPR("($0 - $1) * $2", x, per_row(l, op->in[3]), rstd) : EXPR("$0 * $1", x, rstd);
  uint32_t g = EXPR("$0 * $1", dy, weight);
  uint32_t sum_gh = reduce(l, GD_VALUE_SUM, EXPR("$0 * $1", g, h));
  uint32_t mean_gh = formula(l, 1, "$0 / @0", n, ARGS(sum_gh));
  if (centred) {
    uint32_t mean_g = formula(l, 1, "$0 / @0", n, ARGS(reduce(l, GD_VALUE_SUM, g)));
    results[0] = EXPR("($0 - $1 * $2 - $3) * $4", g, h, mean_gh, mean_g, rstd);
  } else {
    results[0] = EXPR("($0 - $1 * $2) * $3", g, h, mean_gh, rstd);
  }
  results[1] = EXPR("$0 * $1", dy, h);
  results[2] = dy;
}

static void lower_layernorm_grad(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  norm_grad(l, op, true, results);
}

static void lower_rmsnorm_grad(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  norm_grad(l, op, false, results);
}

static void lower_softmax(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  uint32_t x = element(l, op->in[0]);
  uint32_t e =
      formula(l, 20, "gd_exp_small($0 - $1)", NUMBERS(0, 0), ARGS(x, reduce(l, GD_VALUE_MAX, x)));
  results[0] = EXPR("$0 * $1", e, EXPR("1.0f / $0", reduce(l, GD_VALUE_SUM, e)));
}

static void lower_softmax_grad(struct lowering *l, const struct gd_op *op, uint32_t *results) {
  uint32_t y = element(l, op->in[0]), dy = element(l, op->in[1]);
  uint32_t dot = reduce(l, GD_VALUE_SUM, EXPR("$0 * $1", y, dy));
  results[0] = EXPR("$0 * ($1 - $2)", y, dy, dot);
}

static void lower_op(struct lowering *l, const struct gd_op *op) {
  static void (*const rules[GD_OP_COUNT])(struct lowering *, const struct gd_op *, uint32_t *) = {
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ...) \
  [GD_OP_##name] = lower_##lower,
#include "ir/ops.def"
#undef GD_OP
  };
  uint32_t results[3] = {UNSET, UNSET, UNSET};
  rules[op->kind](l, op, results);
  if (l->failed)
    return;
  for (uint32_t i = 0; i < op->n_out && i < 3; i++)
    l->of_tensor[op->out[i]] = results[i];
}

/* --- shapes --------------------------------------------------------------------------------- */

static int64_t last_dim(const struct gd_tensor *t) {
  return t->rank ? t->dims[t->rank - 1] : 1;
}

bool gd_lower_shape(const struct gd_graph *graph, gd_op_id id, int64_t *elements,
                    int64_t *columns) {
  const struct gd_op *op = &graph->ops[id];
  const struct gd_tensor *x = &graph->tensors[op->in[0]];
  *elements = gd_tensor_elements(graph, op->in[0]);
  *columns = 0;
  switch (gd_op_info(op->kind)->fuse) {
  case GD_FUSE_NONE: return false;
  case GD_FUSE_ELEMENTS: break;
  case GD_FUSE_BROADCAST:
    if (gd_tensor_elements(graph, op->in[1]) != *elements)
      *columns = last_dim(&graph->tensors[op->in[1]]);
    break;
  case GD_FUSE_ROWS:
    /* Half of the scores under a causal mask are never computed: only softmax's own kernel knows.
     */
    if (gd_op_info(op->kind)->attr == GD_ATTR_softmax && op->attr.softmax.causal)
      return false;
    *columns = last_dim(x);
    break;
  case GD_FUSE_COLUMN_SUM: *columns = gd_tensor_elements(graph, op->out[0]); break;
  }
  if (*elements < 1 || *columns > *elements)
    return false;
  return *columns == 0 || *elements % *columns == 0;
}

/* Trailing dims as long as they fit, then a divisor of the next: samples stay whole rows. */
int64_t gd_lower_free_columns(uint32_t rank, const int64_t *dims) {
  int64_t columns = 1;
  for (uint32_t i = rank; i-- > 0;) {
    int64_t part = GD_LOWER_FREE_COLUMNS / columns;
    part = part < dims[i] ? part : dims[i];
    while (part > 1 && dims[i] % part)
      part--;
    columns *= part > 1 ? part : 1;
    if (part < dims[i])
      break;
  }
  return columns;
}

/* --- the schedule --------------------------------------------------------------------------- */

/* Arguments come before values, so one walk forwards settles what depends on what. */
static void find_sweeps(struct gd_lowered *out) {
  for (uint32_t i = 0; i < out->n_values; i++) {
    struct gd_value *v = &out->values[i];
    v->sweep = 0;
    for (uint32_t a = 0; a < v->n_args; a++)
      if (out->values[v->arg[a]].sweep > v->sweep)
        v->sweep = out->values[v->arg[a]].sweep;
    if (v->kind == GD_VALUE_SUM || v->kind == GD_VALUE_MAX)
      v->sweep++;
  }
}

static void find_used(struct gd_lowered *out) {
  for (uint32_t i = 0; i < out->fusion->n_out; i++)
    out->values[out->results[i].value].used = true;
  for (uint32_t i = out->n_values; i-- > 0;)
    for (uint32_t a = 0; out->values[i].used && a < out->values[i].n_args; a++)
      out->values[out->values[i].arg[a]].used = true;
}

/*
 * Cheap to compute again in a later sweep: a few operations on one full input (which then is still
 * in L1) or on something kept. A second full input would rather be in the buffer: an input that is
 * not read again can be overwritten.
 */
static void find_cheap(const struct gd_lowered *out, bool *cheap) {
  int loads[GD_LOWER_MAX_VALUES], cost[GD_LOWER_MAX_VALUES];
  for (uint32_t i = 0; i < out->n_values; i++) {
    const struct gd_value *v = &out->values[i];
    loads[i] = v->kind == GD_VALUE_LOAD && v->repeat_rows == 0;
    cost[i] = v->kind == GD_VALUE_EXPR ? v->cost : 0;
    for (uint32_t a = 0; v->kind == GD_VALUE_EXPR && a < v->n_args; a++) {
      loads[i] += cheap[v->arg[a]] ? loads[v->arg[a]] : 0;
      cost[i] += cheap[v->arg[a]] ? cost[v->arg[a]] : 0;
    }
    cheap[i] = v->kind != GD_VALUE_EXPR || (loads[i] <= 1 && cost[i] <= 3);
  }
}

/* Marks in wanted[] what the sweep computes; what it needs from before goes into buffers. */
static void want(struct gd_lowered *out, const bool *cheap, uint32_t sweep, bool *wanted) {
  for (uint32_t i = out->n_values; i-- > 0;) {
    struct gd_value *v = &out->values[i];
    if (!wanted[i] || is_row_kind(v->kind))
      continue;
    if (v->kind == GD_VALUE_LOAD) {
      if (out->last_load[v->input] < sweep + 1)
        out->last_load[v->input] = sweep + 1;
      continue;
    }
    if (v->kind == GD_VALUE_EXPR && v->sweep < sweep && !cheap[i]) {
      if (v->buffer == GD_NONE)
        v->buffer = out->n_buffers++;
      continue;
    }
    for (uint32_t a = 0; a < v->n_args; a++)
      wanted[v->arg[a]] = true;
  }
}

/* The values that end in this sweep: stores, sums, and what later sweeps want kept. */
static void want_ends(const struct gd_lowered *out, uint32_t sweep, bool *wanted) {
  memset(wanted, 0, GD_LOWER_MAX_VALUES * sizeof *wanted);
  for (uint32_t i = 0; i < out->fusion->n_out; i++) {
    const struct gd_result *result = &out->results[i];
    if (result->kind != GD_RESULT_ROW && out->values[result->value].sweep == sweep)
      wanted[result->value] = true;
  }
  for (uint32_t i = 0; i < out->n_values; i++) {
    const struct gd_value *v = &out->values[i];
    if ((v->kind == GD_VALUE_SUM || v->kind == GD_VALUE_MAX) && v->used && v->sweep == sweep + 1)
      wanted[v->arg[0]] = true;
    if (v->buffer != GD_NONE && v->sweep == sweep)
      wanted[i] = true;
  }
}

void gd_lower_wanted(struct gd_lowered *out, uint32_t sweep, bool *wanted) {
  bool cheap[GD_LOWER_MAX_VALUES];
  find_cheap(out, cheap);
  want_ends(out, sweep, wanted);
  want(out, cheap, sweep, wanted);
}

static void schedule(struct gd_lowered *out) {
  bool wanted[GD_LOWER_MAX_VALUES];
  find_sweeps(out);
  find_used(out);
  out->n_sweeps = 1;
  for (uint32_t i = 0; i < out->fusion->n_out; i++) {
    const struct gd_result *result = &out->results[i];
    uint32_t sweep = out->values[result->value].sweep;
    uint32_t sweeps = result->kind == GD_RESULT_ROW ? sweep : sweep + 1;
    out->n_sweeps = sweeps > out->n_sweeps ? sweeps : out->n_sweeps;
  }
  for (uint32_t sweep = out->n_sweeps; sweep-- > 0;) /* later sweeps say what earlier ones keep */
    gd_lower_wanted(out, sweep, wanted);
}

/* --- the whole ------------------------------------------------------------------------------ */

static bool find_results(struct lowering *l) {
  struct gd_lowered *out = l->out;
  const struct gd_fusion *f = out->fusion;
  for (uint32_t i = 0; i < f->n_out; i++) {
    const struct gd_tensor *t = &l->body->tensors[f->out[i]];
    const struct gd_op *op = &l->body->ops[t->producer];
    bool sum = is_sum(op->kind, f->out[i] - op->out[0]);
    struct gd_result *result = &out->results[i];
    result->value = l->of_tensor[f->out[i]];
    if (result->value == UNSET)
      return false;
    result->kind = sum ? GD_RESULT_SUM : is_row(l, result->value) ? GD_RESULT_ROW : GD_RESULT_FULL;
    if (sum) { /* biases of two GEMMs may have the same gradient */
      result->sum = out->n_sums;
      for (uint32_t j = 0; j < i; j++)
        if (out->results[j].kind == GD_RESULT_SUM && out->results[j].value == result->value)
          result->sum = out->results[j].sum;
      out->n_sums += result->sum == out->n_sums;
    }
    int64_t want = sum                             ? f->columns
                   : result->kind == GD_RESULT_ROW ? f->rows
                                                   : f->rows * f->columns;
    if (gd_tensor_elements(l->body, f->out[i]) != want)
      return false;
    if (result->kind != GD_RESULT_FULL && t->dtype != GD_DTYPE_F32)
      return false;
  }
  return true;
}

bool gd_lower(const struct gd_fusion *fusion, struct gd_lowered *out) {
  const struct gd_graph *body = &fusion->body;
  struct lowering l = {
      .out = out, .body = body, .of_tensor = out->of_tensor, .repeat_rows = out->repeat_rows};
  memset(out, 0, offsetof(struct gd_lowered, values)); /* most fusions have few values */
  out->fusion = fusion;
  l.failed = body->n_tensors > GD_LOWER_MAX_TENSORS || fusion->n_in > 64;
  for (gd_tensor_id id = 0; !l.failed && id < body->n_tensors; id++) {
    l.of_tensor[id] = UNSET;
    l.repeat_rows[id] = -1;
  }
  for (gd_op_id id = 0; !l.failed && id < body->n_ops; id++) {
    const struct gd_op *op = &body->ops[id];
    /* A sum of this kernel is not known before all rows are done. */
    for (uint32_t i = 0; i < op->n_in; i++) {
      gd_op_id producer = body->tensors[root_of(&l, op->in[i])].producer;
      if (producer != GD_NONE &&
          is_sum(body->ops[producer].kind, root_of(&l, op->in[i]) - body->ops[producer].out[0]))
        l.failed = true;
    }
    if (!l.failed)
      lower_op(&l, op);
  }
  if (l.failed || !find_results(&l))
    return false;
  schedule(out);
  return gd_lower_buffer_floats(out) <= GD_LOWER_BUFFER_FLOATS &&
         out->n_sums * fusion->columns <= GD_LOWER_SUM_FLOATS;
}

int64_t gd_lower_row_floats(const struct gd_lowered *lowered) {
  return (lowered->fusion->columns + 15) / 16 * 16;
}

/* Two words fit into a float. A counter makes 8 words; a row may begin inside of one, and up to 16
   counters are drawn at a time. Rounded up to whole lines of the cache. */
int64_t gd_lower_words_floats(const struct gd_lowered *lowered) {
  return (gd_lower_row_floats(lowered) / 2 + 88) / 16 * 16;
}

int64_t gd_lower_buffer_floats(const struct gd_lowered *lowered) {
  return lowered->n_buffers * gd_lower_row_floats(lowered) +
         lowered->n_dropouts * gd_lower_words_floats(lowered);
}

uint64_t gd_lower_inplace(const struct gd_lowered *lowered, uint32_t output) {
  const struct gd_fusion *f = lowered->fusion;
  const struct gd_result *result = &lowered->results[output];
  uint64_t mask = 0;
  if (result->kind != GD_RESULT_FULL)
    return 0;
  uint32_t stored = lowered->values[result->value].sweep + 1;
  for (uint32_t i = 0; i < lowered->n_values; i++) {
    const struct gd_value *v = &lowered->values[i];
    if (v->kind == GD_VALUE_LOAD && v->used && v->repeat_rows == 0 &&
        lowered->last_load[v->input] <= stored &&
        gd_dtype_bytes(f->body.tensors[v->input].dtype) ==
            gd_dtype_bytes(f->body.tensors[f->out[output]].dtype))
      mask |= (uint64_t)1 << v->input;
  }
  return mask;
}
