/*
 * Op test harness; see op_harness.h. A case becomes a graph of one op, whose shape rule gives the
 * outputs and what they overwrite; each run gets fresh copies of the inputs between guard bytes.
 */
#include "support/op_harness.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum {
  GUARD_BYTES = 128, /* two cache lines: wider than any vector store */
  POISON = 0xff,     /* a NaN in every floating dtype, -1 as an index */
};

const struct op_backend op_backend_ref = {.name = "ref", .kernels = gd_ref_kernels};

static char message[1024];

__attribute__((format(printf, 1, 2))) static const char *wrong(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return message;
}

/* --- buffers ------------------------------------------------------------------------------- */

struct buffer {
  char *block; /* owned */
  char *data;  /* bytes of it, 64-byte aligned but for the shift, guards on both sides */
  int64_t bytes;
};

static void buffer_init(struct buffer *buffer, int64_t bytes, int64_t shift_bytes) {
  size_t size = (size_t)bytes + 2 * GUARD_BYTES + 64 + (size_t)shift_bytes;
  buffer->block = gd_mem_alloc(size, 1);
  GD_ASSERT(buffer->block);
  memset(buffer->block, POISON, size);
  uintptr_t misaligned = (uintptr_t)(buffer->block + GUARD_BYTES) % 64;
  buffer->data = buffer->block + GUARD_BYTES + (64 - misaligned) % 64 + shift_bytes;
  buffer->bytes = bytes;
}

static bool guards_intact(const struct buffer *buffer) {
  for (int64_t i = 1; i <= GUARD_BYTES; i++)
    if ((unsigned char)buffer->data[-i] != POISON ||
        (unsigned char)buffer->data[buffer->bytes + i - 1] != POISON)
      return false;
  return true;
}

/* --- a case with its inputs ---------------------------------------------------------------- */

struct problem {
  const struct op_case *c;
  struct gd_graph graph;
  const struct gd_op *op;
  char *inputs[OP_MAX_IN]; /* as every run must find them */
};

static int64_t count_of(const struct op_input *in) {
  int64_t count = 1;
  for (uint32_t i = 0; i < in->rank; i++)
    count *= in->dims[i];
  return count;
}

static double statistic(enum op_fill fill, enum gd_dtype dtype, const void *x, int64_t at,
                        int64_t columns) {
  double sum = 0, squares = 0;
  for (int64_t j = 0; j < columns; j++) {
    double value = (double)gd_dtype_load(dtype, x, at + j);
    sum += fill == OP_FILL_LSE ? exp(value) : value;
  }
  if (fill == OP_FILL_LSE)
    return log(sum);
  double mean = sum / (double)columns;
  for (int64_t j = 0; j < columns; j++) {
    double difference = (double)gd_dtype_load(dtype, x, at + j) - mean;
    squares += difference * difference;
  }
  return fill == OP_FILL_MEAN ? mean : 1 / sqrt(squares / (double)columns + 1e-5);
}

/* Scales the first `seen` of a row of positive values to sum 1. */
static void normalise(enum gd_dtype dtype, void *data, int64_t at, int64_t seen) {
  double sum = 0;
  for (int64_t j = 0; j < seen; j++)
    sum += (double)gd_dtype_load(dtype, data, at + j);
  for (int64_t j = 0; j < seen; j++)
    gd_dtype_store(dtype, data, at + j, (float)((double)gd_dtype_load(dtype, data, at + j) / sum));
}

static void fill_rows(const struct op_input *in, void *data) {
  bool causal = in->fill == OP_FILL_CAUSAL || in->fill == OP_FILL_CAUSAL_P;
  bool scaled = in->fill == OP_FILL_SOFTMAX || in->fill == OP_FILL_CAUSAL_P;
  int64_t columns = in->dims[in->rank - 1], count = count_of(in);
  for (int64_t at = 0; at < count; at += columns) {
    int64_t index = in->rank < 2 ? 0 : at / columns % in->dims[in->rank - 2];
    int64_t seen = causal && index + 1 < columns ? index + 1 : columns;
    if (scaled)
      normalise(in->dtype, data, at, seen);
    for (int64_t j = seen; j < columns; j++)
      gd_dtype_store(in->dtype, data, at + j, nanf(""));
  }
}

static double made_up(const struct op_case *c, uint32_t input, int64_t i, const char *of_data) {
  const struct op_input *in = &c->in[input];
  uint64_t seed = c->seed + (uint64_t)c->kind * 1000, at = (uint64_t)i;
  double low = in->low, high = in->high;
  if (low == 0 && high == 0)
    high = 1;
  switch (in->fill) {
  case OP_FILL_VALUES: return in->values[i];
  case OP_FILL_LABEL:
    if (gd_rng_below(seed, input + 100, at, 5) == 0)
      return -100;
    return (double)gd_rng_below(seed, input, at, (int64_t)high);
  case OP_FILL_INDEX: return (double)gd_rng_below(seed, input, at, (int64_t)high);
  case OP_FILL_SOFTMAX:
  case OP_FILL_CAUSAL_P: return 0.01 + (double)gd_rng_uniform(seed, input, at);
  case OP_FILL_ANGLES: {
    int64_t columns = in->dims[1], half = columns / 2, j = i % columns;
    double angle = (double)(i / columns) * pow(10000, -(double)(j % half) / (double)half);
    return j < half ? cos(angle) : sin(angle);
  }
  case OP_FILL_MEAN:
  case OP_FILL_RSTD:
  case OP_FILL_LSE: {
    const struct op_input *x = &c->in[in->of];
    int64_t columns = x->dims[x->rank - 1];
    return statistic(in->fill, x->dtype, of_data, i * columns, columns);
  }
  case OP_FILL_NAN:
    if (i == count_of(in) / 2)
      return nan("0x7ffffffffffff");
    break;
  case OP_FILL_UNIFORM:
  case OP_FILL_EIGHTHS:
  case OP_FILL_CAUSAL: break;
  }
  if (low == 0)
    low = -high;
  double value = low + (high - low) * (double)gd_rng_uniform(seed, input, at);
  return in->fill == OP_FILL_EIGHTHS ? floor(8 * value) / 8 : value;
}

static const char *problem_init(struct problem *problem, const struct op_case *c) {
  gd_tensor_id ids[OP_MAX_IN];
  struct gd_error err = {0};
  *problem = (struct problem){.c = c};
  gd_graph_init(&problem->graph);
  for (uint32_t i = 0; i < c->n_in; i++)
    ids[i] = gd_graph_leaf(&problem->graph, GD_ROLE_INPUT, "in", c->in[i].dtype, c->in[i].rank,
                           c->in[i].dims);
  gd_graph_op(&problem->graph, c->kind, &c->attr, c->n_in, ids);
  if (gd_graph_check(&problem->graph, &err) != GD_OK)
    return wrong("%s", err.text);
  problem->op = &problem->graph.ops[0];
  for (uint32_t i = 0; i < c->n_in; i++) {
    const struct op_input *in = &c->in[i];
    int64_t count = count_of(in);
    char *data = gd_mem_alloc((size_t)count + 1, (size_t)gd_dtype_bytes(in->dtype));
    GD_ASSERT(data);
    problem->inputs[i] = data;
    for (int64_t j = 0; j < count; j++)
      gd_dtype_store(in->dtype, data, j, (float)made_up(c, i, j, problem->inputs[in->of]));
    if (in->fill == OP_FILL_CAUSAL || in->fill == OP_FILL_CAUSAL_P || in->fill == OP_FILL_SOFTMAX)
      fill_rows(in, data);
  }
  return NULL;
}

static void problem_deinit(struct problem *problem) {
  for (uint32_t i = 0; i < OP_MAX_IN; i++)
    gd_mem_free(problem->inputs[i]);
  gd_graph_deinit(&problem->graph);
}

/* `matmul(bf16[2,3], bf16[3,5])` into text. */
static void describe(const struct op_case *c, char *text, size_t size) {
  size_t at = (size_t)snprintf(text, size, "%s(", gd_op_info(c->kind)->name);
  for (uint32_t i = 0; i < c->n_in && at < size; i++) {
    at += (size_t)snprintf(text + at, size - at, "%s%s[", i ? ", " : "",
                           gd_dtype_name(c->in[i].dtype));
    for (uint32_t d = 0; d < c->in[i].rank && at < size; d++)
      at += (size_t)snprintf(text + at, size - at, "%s%lld", d ? "," : "",
                             (long long)c->in[i].dims[d]);
    if (at < size)
      at += (size_t)snprintf(text + at, size - at, "]");
  }
  if (at < size)
    snprintf(text + at, size - at, ")");
}

/* --- one run ------------------------------------------------------------------------------- */

struct variant {
  int threads;
  bool shifted;  /* every buffer starts one element past its alignment */
  int in_place;  /* output 0 takes the memory of this input; -1: it has its own */
  uint32_t adds; /* bit i: output i is added to what initial_value says */
};

struct run {
  struct buffer in[OP_MAX_IN], out[GD_MAX_OUTPUTS], workspace;
  char *result[GD_MAX_OUTPUTS]; /* borrowed from in or out */
};

static void run_deinit(struct run *run) {
  for (uint32_t i = 0; i < OP_MAX_IN; i++)
    gd_mem_free(run->in[i].block);
  for (uint32_t i = 0; i < GD_MAX_OUTPUTS; i++)
    gd_mem_free(run->out[i].block);
  gd_mem_free(run->workspace.block);
  *run = (struct run){0};
}

/* What the memory of an output that is added to holds before. */
static float initial_value(uint32_t output, int64_t i) {
  return 2 * gd_rng_uniform(77, output, (uint64_t)i) - 1;
}

static struct gd_view view_of(const struct gd_graph *graph, gd_tensor_id id, void *data) {
  const struct gd_tensor *tensor = &graph->tensors[id];
  return (struct gd_view){data, tensor->dtype, tensor->rank, tensor->dims,
                          gd_tensor_elements(graph, id)};
}

/* The input that output i overwrites, or -1. */
static int overwritten_by(const struct problem *problem, const struct variant *variant,
                          uint32_t i) {
  const struct gd_op *op = problem->op;
  if (i == 0 && variant->in_place >= 0)
    return variant->in_place;
  for (uint32_t j = 0; j < op->n_in; j++)
    if (problem->graph.tensors[op->out[i]].alias_of == op->in[j])
      return (int)j;
  return -1;
}

/* The longest row the op sees: what the scratch of a backend is asked for. */
static int64_t widest(const struct gd_view *views, uint32_t n) {
  int64_t width = 0;
  for (uint32_t i = 0; i < n; i++) {
    int64_t last = views[i].rank ? views[i].dims[views[i].rank - 1] : 1;
    width = last > width ? last : width;
  }
  return width;
}

static enum op_ran last_ran;

enum op_ran op_check_ran(void) {
  return last_ran;
}

static const char *run_init(struct run *run, const struct problem *problem,
                            const struct op_backend *backend, const struct variant *variant) {
  const struct gd_op *op = problem->op;
  struct gd_view views[OP_MAX_IN + GD_MAX_OUTPUTS];
  bool overwritten[OP_MAX_IN] = {false}, left_to_ref = false;
  *run = (struct run){0};
  if (!backend->kernels[op->kind])
    return "the kernel is missing";
  for (uint32_t i = 0; i < op->n_in; i++) {
    int64_t bytes = gd_tensor_bytes(&problem->graph, op->in[i]);
    buffer_init(&run->in[i], bytes, variant->shifted ? gd_dtype_bytes(problem->c->in[i].dtype) : 0);
    memcpy(run->in[i].data, problem->inputs[i], (size_t)bytes);
    views[i] = view_of(&problem->graph, op->in[i], run->in[i].data);
  }
  for (uint32_t i = 0; i < op->n_out; i++) {
    int from = overwritten_by(problem, variant, i);
    if (from >= 0) {
      run->result[i] = run->in[from].data;
      overwritten[from] = true;
    } else {
      enum gd_dtype dtype = problem->graph.tensors[op->out[i]].dtype;
      buffer_init(&run->out[i], gd_tensor_bytes(&problem->graph, op->out[i]),
                  variant->shifted ? gd_dtype_bytes(dtype) : 0);
      run->result[i] = run->out[i].data;
      int64_t count = gd_tensor_elements(&problem->graph, op->out[i]);
      for (int64_t j = 0; (variant->adds >> i & 1u) && j < count; j++)
        gd_dtype_store(dtype, run->result[i], j, initial_value(i, j));
    }
    views[op->n_in + i] = view_of(&problem->graph, op->out[i], run->result[i]);
  }
  int64_t scratch_bytes = 0;
  if (backend->workspace_bytes)
    scratch_bytes =
        backend->workspace_bytes(variant->threads, widest(views, op->n_in + op->n_out)) +
        gd_op_scratch_bytes(&problem->graph, 0);
  buffer_init(&run->workspace, scratch_bytes, 0);

  backend->kernels[op->kind](&(struct gd_kernel_args){.attr = &op->attr,
                                                      .n_in = op->n_in,
                                                      .n_out = op->n_out,
                                                      .adds = variant->adds,
                                                      .in = views,
                                                      .out = views + op->n_in,
                                                      .workspace = run->workspace.data,
                                                      .workspace_bytes = scratch_bytes,
                                                      .threads = variant->threads,
                                                      .left_to_ref = &left_to_ref});
  if (backend != &op_backend_ref)
    last_ran = left_to_ref ? OP_RAN_REF : OP_RAN_KERNEL;

  for (uint32_t i = 0; i < op->n_in; i++) {
    if (!guards_intact(&run->in[i]))
      return "it wrote outside an input";
    if (!overwritten[i] &&
        memcmp(run->in[i].data, problem->inputs[i], (size_t)run->in[i].bytes) != 0)
      return "it changed an input";
  }
  for (uint32_t i = 0; i < op->n_out; i++)
    if (run->out[i].block && !guards_intact(&run->out[i]))
      return "it wrote outside an output";
  return guards_intact(&run->workspace) ? NULL : "it wrote outside the workspace";
}

/* --- comparison ---------------------------------------------------------------------------- */

/*
 * Inputs are rounded to their dtype before, so ref and a backend differ by the order of fp32 sums
 * (relative 1e-6 to 1e-5) and, in a 16-bit dtype, where that moves a value across the middle
 * between two neighbours: such an element is off by one unit, 2^-7 (bf16) or 2^-10 (f16) of itself
 * at most, and at most one in a hundred is. In a small tensor a single such element decides the
 * mean, so there the bound on elements stands alone.
 */
static const struct {
  double nmse;  /* sum of squared errors / sum of squares */
  double unit;  /* relative to the element */
  double floor; /* absolute: the step of f16 subnormals */
} bounds[GD_DTYPE_COUNT] = {
    [GD_DTYPE_F32] = {1e-10, 1e-5, 0},
    [GD_DTYPE_BF16] = {5e-7, 0x1p-7, 0},
    [GD_DTYPE_F16] = {1e-8, 0x1p-10, 0x1p-24},
};
static const double accumulation = 1e-5; /* relative to the root mean square of the tensor */
static const int64_t small = 256;        /* elements */

/*
 * The last bit of what a backend that multiplies with a library rounds to 16 bits before it uses it
 * again, where ref keeps it in full: attention's weights and their gradients, the logits of the
 * loss. In a gradient two such roundings add up, and over two keys there is little to average: the
 * root of the mean square error is two last bits or less (1.2 is the most that was seen). A single
 * element may be off by more, relative to the root mean square of the output, which is smaller than
 * what is summed.
 */
static double op_rounding(const struct op_backend *backend, const struct op_case *c) {
  bool rounds =
      c->kind == GD_OP_attention || c->kind == GD_OP_attention_grad || c->kind == GD_OP_linear_xent;
  enum gd_dtype dtype = c->in[0].dtype;
  return !backend->library_sums || !rounds ? 0
         : dtype == GD_DTYPE_BF16          ? 0x1p-8
         : dtype == GD_DTYPE_F16           ? 0x1p-11
                                           : 0;
}
static const double roundings = 5, mean_roundings = 2; /* of an element, of all */

static const char *compare(enum gd_dtype dtype, int64_t count, const void *got, const void *want,
                           double noise, double rounding) {
  double squares = 0, errors = 0, worst = 0;
  int64_t worst_at = 0;
  for (int64_t i = 0; i < count; i++) {
    double w = (double)gd_dtype_load(dtype, want, i), g = (double)gd_dtype_load(dtype, got, i);
    if (!isfinite(w) || !isfinite(g)) {
      if (isnan(w) != isnan(g) || (!isnan(w) && w != g))
        return wrong("element %lld is %g, not %g", (long long)i, g, w);
      continue;
    }
    squares += w * w;
    errors += (g - w) * (g - w);
  }
  if (dtype == GD_DTYPE_I32)
    return errors > 0 ? "the integers differ" : NULL;
  double rms = count ? sqrt(squares / (double)count) : 0;
  for (int64_t i = 0; i < count; i++) {
    double w = (double)gd_dtype_load(dtype, want, i), g = (double)gd_dtype_load(dtype, got, i);
    double allowed = bounds[dtype].unit * fabs(w) + (accumulation + roundings * rounding) * rms +
                     bounds[dtype].floor + noise;
    if (isfinite(w) && !(fabs(g - w) <= allowed) && fabs(g - w) > worst) {
      worst = fabs(g - w);
      worst_at = i;
    }
  }
  if (worst > 0)
    return wrong("element %lld is %.9g, not %.9g", (long long)worst_at,
                 (double)gd_dtype_load(dtype, got, worst_at),
                 (double)gd_dtype_load(dtype, want, worst_at));
  double tolerated = (bounds[dtype].nmse + pow(mean_roundings * rounding, 2)) * squares +
                     (double)count * noise * noise;
  if (errors > tolerated && (dtype == GD_DTYPE_F32 || count >= small) &&
      rms > 1000 * bounds[dtype].floor)
    return wrong("the normalised mean squared error is %.3g", errors / squares);
  return NULL;
}

static const char *compare_output(const struct problem *problem, const struct op_backend *backend,
                                  const struct run *run, const struct run *ref, uint32_t i) {
  gd_tensor_id id = problem->op->out[i];
  char copy[256];
  const char *why =
      compare(problem->graph.tensors[id].dtype, gd_tensor_elements(&problem->graph, id),
              run->result[i], ref->result[i], problem->c->noise, op_rounding(backend, problem->c));
  if (!why)
    return NULL;
  snprintf(copy, sizeof copy, "%s", why);
  return wrong("output %u: %s", i, copy);
}

/*
 * One more run of the backend: the bits must be those of its first run, which agrees with ref, or,
 * where they need not be (`first_bits` false), agree with ref themselves.
 */
static const char *check_variant(const struct problem *problem, const struct op_backend *backend,
                                 const struct variant *variant, const struct run *ref,
                                 const struct run *first, bool first_bits) {
  struct run run;
  const char *why = run_init(&run, problem, backend, variant);
  for (uint32_t i = 0; i < problem->op->n_out && !why; i++) {
    int64_t bytes = gd_tensor_bytes(&problem->graph, problem->op->out[i]);
    if (first && memcmp(run.result[i], first->result[i], (size_t)bytes) == 0)
      continue;
    why = first_bits
              ? wrong("output %u: the bits differ from those of the plain run on one thread", i)
              : compare_output(problem, backend, &run, ref, i);
  }
  run_deinit(&run);
  return why;
}

/* May output 0 take the memory of input i? */
static bool permits_in_place(const struct problem *problem, uint32_t i) {
  const struct gd_op *op = problem->op;
  return (gd_op_info(op->kind)->inplace >> i & 1) &&
         gd_tensor_bytes(&problem->graph, op->in[i]) ==
             gd_tensor_bytes(&problem->graph, op->out[0]);
}

/* Kernels that add to their memory more than once: their sums have another order then. */
static bool adds_in_pieces(enum gd_op_kind kind) {
  return kind == GD_OP_embed_grad || kind == GD_OP_scan_grad || kind == GD_OP_linear_xent;
}

/*
 * Output i of a run that added it, against the plain run of the same backend: the bits of one fp32
 * addition, or close to it where the kernel adds in pieces.
 */
static const char *compare_added(const struct problem *problem, const struct op_backend *backend,
                                 const struct run *added, const struct run *plain, uint32_t i) {
  int64_t count = gd_tensor_elements(&problem->graph, problem->op->out[i]);
  const float *sum = (const float *)(const void *)plain->result[i];
  const float *got = (const float *)(const void *)added->result[i];
  double largest = 1;
  for (int64_t j = 0; j < count; j++)
    largest = fabs((double)sum[j]) > largest ? fabs((double)sum[j]) : largest;
  for (int64_t j = 0; j < count; j++) {
    float want = initial_value(i, j) + sum[j];
    /* A library may multiply by another algorithm where it adds: sums in another order, too.
       Eight last bits of the largest; two is the most that was seen. */
    bool library = backend->library_sums && problem->op->kind == GD_OP_matmul;
    double allowed = library || adds_in_pieces(problem->op->kind) ? 0x1p-20 * largest : 0;
    if (!(fabs((double)got[j] - (double)want) <= allowed) && !(isnan(want) && isnan(got[j])))
      return wrong("output %u, added to: element %lld is %.9g, not %.9g", i, (long long)j,
                   (double)got[j], (double)want);
  }
  return NULL;
}

/* One backend with some outputs added to their memory: those are sums, the others as before. */
static const char *check_adds(const struct problem *problem, const struct op_backend *backend,
                              const struct variant *variant, const struct run *plain) {
  const struct gd_op *op = problem->op;
  struct run run;
  const char *why = run_init(&run, problem, backend, variant);
  for (uint32_t i = 0; i < op->n_out && !why; i++) {
    if (variant->adds >> i & 1u)
      why = compare_added(problem, backend, &run, plain, i);
    else if (memcmp(run.result[i], plain->result[i],
                    (size_t)gd_tensor_bytes(&problem->graph, op->out[i])) != 0)
      why = wrong("output %u changes where others are added to their memory", i);
  }
  run_deinit(&run);
  return why;
}

/* Outputs that the op can add to what is there. */
static uint32_t permitted_adds(const struct problem *problem) {
  const struct gd_op *op = problem->op;
  uint32_t permitted = gd_op_info(op->kind)->adds;
  for (uint32_t i = 0; i < 32; i++)
    if (i >= op->n_out || problem->graph.tensors[op->out[i]].dtype != GD_DTYPE_F32)
      permitted &= ~(1u << i);
  return permitted;
}

/* Every set of outputs that the op can add, on one thread and on several, on ref too. */
static const char *check_all_adds(const struct problem *problem, const struct op_backend *backend,
                                  const struct run *ref, const struct run *first,
                                  struct variant *at) {
  uint32_t permitted = permitted_adds(problem);
  const char *why = NULL;
  for (uint32_t adds = permitted; adds && !why; adds = (adds - 1) & permitted) {
    *at = (struct variant){.threads = 1, .in_place = -1, .adds = adds};
    why = check_adds(problem, &op_backend_ref, at, ref);
    for (int threads = 1; threads <= (backend->threads_alike ? 1 : 3) && !why; threads += 2) {
      at->threads = threads;
      why = check_adds(problem, backend, at, first);
    }
  }
  return why;
}

static const char *check_variants(const struct problem *problem, const struct op_backend *backend,
                                  struct variant *at) {
  struct run ref, first = {0};
  *at = (struct variant){.threads = 1, .in_place = -1};
  const char *why = run_init(&ref, problem, &op_backend_ref, at);
  if (!why)
    why = check_variant(problem, backend, at, &ref, NULL, false);
  if (!why)
    why = run_init(&first, problem, backend, at);
  for (int threads = 1; threads <= (backend->threads_alike ? 1 : 3) && !why; threads++) {
    *at = (struct variant){.threads = threads, .in_place = -1};
    why = check_variant(problem, backend, at, &ref, &first, !backend->varies);
  }
  for (uint32_t i = 0; i < problem->op->n_in && !why; i++)
    if (permits_in_place(problem, i)) {
      *at = (struct variant){.threads = 2, .in_place = (int)i};
      why = check_variant(problem, backend, at, &ref, &first, !backend->varies);
    }
  if (!why) { /* another alignment may legitimately sum in another order */
    *at = (struct variant){.threads = 2, .in_place = -1, .shifted = true};
    why = check_variant(problem, backend, at, &ref, &first, false);
  }
  if (!why)
    why = check_all_adds(problem, backend, &ref, &first, at);
  run_deinit(&ref);
  run_deinit(&first);
  return why;
}

/* --- a case, checked ----------------------------------------------------------------------- */

/*
 * GD_TEST_BRIEF=N: every Nth case of an op, none of them large, and of its runs those that have
 * kernels of their own. For tools under which all of them would take hours.
 */
static int64_t brief(void) {
  const char *text = getenv("GD_TEST_BRIEF");
  return text ? strtoll(text, NULL, 10) : 0;
}

static bool is_left_out(const struct op_case *c, const struct op_backend *backend) {
  enum { MOST_ELEMENTS = 1 << 18 };
  static int64_t seen[GD_OP_COUNT][2]; /* the cases noted are those run */
  int64_t every = brief();
  if (every < 1)
    return false;
  for (uint32_t i = 0; i < c->n_in; i++)
    if (count_of(&c->in[i]) > MOST_ELEMENTS)
      return true;
  return seen[c->kind][backend->collects]++ % every != 0;
}

/*
 * A run for each kernel that check_variants may ask for: other alignments and sums onto memory have
 * kernels of their own, and one that is not noted here is built alone, when it is launched. In
 * place is no kernel of its own. With ref, runs that add to nothing are compared with it.
 */
static const char *run_kernels(const struct problem *problem, const struct op_backend *backend,
                               const struct run *ref, struct variant *at) {
  uint32_t adds = permitted_adds(problem);
  const char *why = NULL;
  for (int variant = 0; variant < (adds ? 3 : 2) && !why; variant++) {
    struct run run;
    *at = (struct variant){
        .threads = 1, .in_place = -1, .shifted = variant == 1, .adds = variant == 2 ? adds : 0};
    why = run_init(&run, problem, backend, at);
    for (uint32_t i = 0; ref && !at->adds && i < problem->op->n_out && !why; i++)
      why = compare_output(problem, backend, &run, ref, i);
    run_deinit(&run);
  }
  return why;
}

static const char *check_briefly(const struct problem *problem, const struct op_backend *backend,
                                 struct variant *at) {
  struct run ref;
  *at = (struct variant){.threads = 1, .in_place = -1};
  const char *why = run_init(&ref, problem, &op_backend_ref, at);
  if (!why)
    why = run_kernels(problem, backend, &ref, at);
  run_deinit(&ref);
  return why;
}

const char *op_check(const struct op_case *c, const struct op_backend *backend) {
  struct problem problem;
  struct variant variant = {0};
  last_ran = OP_RAN_NOTHING;
  if (is_left_out(c, backend))
    return NULL;
  const char *why = problem_init(&problem, c);
  if (!why && backend->collects)
    why = run_kernels(&problem, backend, NULL, &variant);
  else if (!why && brief() > 0)
    why = check_briefly(&problem, backend, &variant);
  else if (!why)
    why = check_variants(&problem, backend, &variant);
  if (why) {
    char copy[320], text[384];
    snprintf(copy, sizeof copy, "%s", why);
    describe(c, text, sizeof text);
    why = wrong("%s on %s, %d threads, in place of %d, adds %x%s: %s", text, backend->name,
                variant.threads, variant.in_place, variant.adds, variant.shifted ? ", shifted" : "",
                copy);
  }
  problem_deinit(&problem);
  return why;
}

const char *op_check_values(const struct op_case *c, const struct op_backend *backend,
                            uint32_t output, int64_t count, const double *expected,
                            double tolerance) {
  struct problem problem;
  struct run run = {0};
  const char *why = problem_init(&problem, c);
  if (!why)
    why = run_init(&run, &problem, backend, &(struct variant){.threads = 1, .in_place = -1});
  if (!why && (output >= problem.op->n_out ||
               gd_tensor_elements(&problem.graph, problem.op->out[output]) != count))
    why = "the output has another number of elements";
  for (int64_t i = 0; i < count && !why; i++) {
    enum gd_dtype dtype = problem.graph.tensors[problem.op->out[output]].dtype;
    double got = (double)gd_dtype_load(dtype, run.result[output], i);
    bool same_infinity = isinf(expected[i]) && got == expected[i];
    if (!same_infinity && !(isnan(got) && isnan(expected[i])) &&
        !(fabs(got - expected[i]) <= tolerance * (1 + fabs(expected[i]))))
      why = wrong("%s on %s: output %u, element %lld is %.9g, not %.9g", gd_op_info(c->kind)->name,
                  backend->name, output, (long long)i, got, expected[i]);
  }
  run_deinit(&run);
  problem_deinit(&problem);
  return why;
}

/* --- a whole graph ------------------------------------------------------------------------- */

bool op_program_init(struct op_program *program, const struct gd_graph *graph) {
  *program = (struct op_program){.graph = graph};
  program->storage = gd_mem_alloc(graph->n_tensors, sizeof *program->storage);
  if (!program->storage)
    return false;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    if (graph->tensors[id].alias_of != GD_NONE)
      continue;
    size_t bytes = (size_t)gd_tensor_bytes(graph, id);
    program->storage[id] = gd_mem_alloc(bytes + 1, 1);
    if (!program->storage[id]) {
      op_program_deinit(program);
      return false;
    }
    if (graph->tensors[id].role == GD_ROLE_ACTIVATION)
      memset(program->storage[id], POISON, bytes);
  }
  return true;
}

void op_program_deinit(struct op_program *program) {
  for (gd_tensor_id id = 0; program->storage && id < program->graph->n_tensors; id++)
    gd_mem_free(program->storage[id]);
  gd_mem_free(program->storage);
  *program = (struct op_program){0};
}

void *op_program_data(const struct op_program *program, gd_tensor_id id) {
  int64_t offset_bytes;
  gd_tensor_id root = gd_tensor_root(program->graph, id, &offset_bytes);
  return program->storage[root] + offset_bytes;
}

void op_program_run(const struct op_program *program, const gd_kernel *kernels,
                    enum gd_phase phase) {
  const struct gd_graph *graph = program->graph;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    struct gd_view views[OP_MAX_IN + GD_MAX_OUTPUTS] = {{0}};
    if (op->phase != phase || !kernels[op->kind])
      continue;
    GD_ASSERT(op->n_in <= OP_MAX_IN);
    for (uint32_t i = 0; i < op->n_in; i++)
      if (op->in[i] != GD_NONE)
        views[i] = view_of(graph, op->in[i], op_program_data(program, op->in[i]));
    for (uint32_t i = 0; i < op->n_out; i++)
      views[op->n_in + i] = view_of(graph, op->out[i], op_program_data(program, op->out[i]));
    kernels[op->kind](&(struct gd_kernel_args){.attr = &op->attr,
                                               .n_in = op->n_in,
                                               .n_out = op->n_out,
                                               .adds = op->adds,
                                               .in = views,
                                               .out = views + op->n_in,
                                               .threads = 1});
  }
}
