/*
 * Attention by cuDNN, and the choice between it and the own kernels (op_attention.c), which cover
 * every case. cuDNN takes bf16 and fp16 without dropout, for head sizes that are multiples of 8;
 * where it takes a case, both are timed when a plan is bound (autotune.h), and the faster one runs.
 *
 * cuDNN has no attention function in C: one describes softmax(scale q k') v, and its gradient, as a
 * graph of matmuls, pointwise ops and reductions over virtual tensors, and its engines recognise
 * the pattern. The backward pass accumulates dq in fp32, in our workspace, so large batches go in
 * slices. Its sums over key blocks have no fixed order: two runs may differ in the last bits.
 * GPUDAYS_DETERMINISTIC=1 leaves cuDNN out, as does GPUDAYS_CUDNN=0; GPUDAYS_CUDNN=1 demands it
 * wherever it takes a case.
 */
#include "backend/cuda/lib/cudnn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/runtime/autotune.h"
#include "backend/cuda/runtime/module.h"
#include "base/switches.h"

enum {
  OLDEST_VERSION = 90600, /* clears what it accumulates into by itself */
  MOST_DESCRIPTORS = 160,
  MOST_OPERATIONS = 40,
  SLOTS = 16, /* real tensors of a graph */

  /* cuDNN's own numbers */
  DATA_FLOAT = 0,
  DATA_HALF = 2,
  DATA_INT32 = 4,
  DATA_BFLOAT16 = 9,
  DATA_BOOLEAN = 11,

  POINTWISE_ADD = 0,
  POINTWISE_MUL = 1,
  POINTWISE_DIV = 6,
  POINTWISE_SUB = 9,
  POINTWISE_EXP = 13,
  POINTWISE_LOG = 15,
  POINTWISE_IDENTITY = 21,
  POINTWISE_CMP_GE = 303,
  POINTWISE_GEN_INDEX = 501,
  POINTWISE_BINARY_SELECT = 601,
  REDUCE_ADD = 0,
  REDUCE_MAX = 3,
  HEUR_MODE_A = 3,

  TYPE_HANDLE = 0,
  TYPE_DATA_TYPE = 1,
  TYPE_BOOLEAN = 2,
  TYPE_INT64 = 3,
  TYPE_VOID_PTR = 6,
  TYPE_HEUR_MODE = 8,
  TYPE_POINTWISE_MODE = 14,
  TYPE_DESCRIPTOR = 15,
  TYPE_REDUCTION = 18,

  DESCRIPTOR_POINTWISE = 0,
  DESCRIPTOR_ENGINECFG = 3,
  DESCRIPTOR_ENGINEHEUR = 4,
  DESCRIPTOR_PLAN = 5,
  DESCRIPTOR_OPERATION_POINTWISE = 13,
  DESCRIPTOR_GRAPH = 15,
  DESCRIPTOR_VARIANT_PACK = 16,
  DESCRIPTOR_TENSOR = 17,
  DESCRIPTOR_MATMUL = 18,
  DESCRIPTOR_OPERATION_MATMUL = 19,
  DESCRIPTOR_REDUCTION = 21,
  DESCRIPTOR_OPERATION_REDUCTION = 22,
  DESCRIPTOR_OPERATION_RESHAPE = 31,

  ATTR_POINTWISE_MODE = 0,
  ATTR_POINTWISE_MATH_PREC = 1,
  ATTR_POINTWISE_AXIS = 9,
  ATTR_HEUR_MODE = 200,
  ATTR_HEUR_GRAPH = 201,
  ATTR_HEUR_RESULTS = 202,
  ATTR_PLAN_HANDLE = 400,
  ATTR_PLAN_CONFIG = 401,
  ATTR_PLAN_WORKSPACE = 402,
  ATTR_OP_POINTWISE = 750,
  ATTR_OP_POINTWISE_X = 751,
  ATTR_OP_POINTWISE_B = 752,
  ATTR_OP_POINTWISE_Y = 753,
  ATTR_OP_POINTWISE_T = 758,
  ATTR_GRAPH_HANDLE = 800,
  ATTR_GRAPH_OPS = 801,
  ATTR_TENSOR_ALIGNMENT = 900,
  ATTR_TENSOR_TYPE = 901,
  ATTR_TENSOR_DIMS = 902,
  ATTR_TENSOR_STRIDES = 903,
  ATTR_TENSOR_ID = 906,
  ATTR_TENSOR_VIRTUAL = 907,
  ATTR_TENSOR_BY_VALUE = 908,
  ATTR_PACK_IDS = 1000,
  ATTR_PACK_POINTERS = 1001,
  ATTR_PACK_WORKSPACE = 1003,
  ATTR_MATMUL_TYPE = 1500,
  ATTR_OP_MATMUL_A = 1520,
  ATTR_OP_MATMUL_B = 1521,
  ATTR_OP_MATMUL_C = 1522,
  ATTR_OP_MATMUL = 1523,
  ATTR_REDUCTION_OPERATOR = 1600,
  ATTR_REDUCTION_TYPE = 1601,
  ATTR_OP_REDUCTION_X = 1610,
  ATTR_OP_REDUCTION_Y = 1611,
  ATTR_OP_REDUCTION = 1612,
  ATTR_OP_RESHAPE_X = 2200,
  ATTR_OP_RESHAPE_Y = 2201,
};

/* Real tensors, by the number that cuDNN knows them by. */
enum slot {
  SLOT_Q = 1,
  SLOT_K,
  SLOT_V,
  SLOT_OUT,
  SLOT_STATS,
  SLOT_DOUT,
  SLOT_DQ,
  SLOT_DK,
  SLOT_DV,
  SLOT_SUM,    /* scratch: row sums of dout * out */
  SLOT_DQ_F32, /* scratch */
  SLOT_SCALE,  /* by value, as the next two */
  SLOT_MASKED,
  SLOT_ONE,
  FIRST_VIRTUAL = 100,
};

struct shape {
  bool grad, causal;
  enum gd_dtype dtype;
  float scale;
  int64_t B, N, M, T, D;
};

struct plan {
  struct shape shape;
  cudnnBackendDescriptor_t plan, descriptors[MOST_DESCRIPTORS];
  int n_descriptors;
  int64_t workspace_bytes;
  struct plan *next;
};

struct gd_cuda_cudnn {
  const struct gd_cudnn *dnn;
  cudnnHandle_t handle;
  bool absent;
  struct plan *plans;
};

/* --- describing a graph --------------------------------------------------------------------- */

struct builder {
  const struct gd_cudnn *dnn;
  struct plan *plan;
  cudnnBackendDescriptor_t operations[MOST_OPERATIONS];
  int n_operations;
  int64_t next_id;
  bool failed; /* cuDNN refuses something: the own kernels serve */
};

typedef cudnnBackendDescriptor_t descriptor;

static descriptor make(struct builder *b, int type) {
  descriptor d = NULL;
  if (b->failed || b->plan->n_descriptors == MOST_DESCRIPTORS ||
      b->dnn->BackendCreateDescriptor(type, &d) != 0) {
    b->failed = true;
    return NULL;
  }
  b->plan->descriptors[b->plan->n_descriptors++] = d;
  return d;
}

static void set(struct builder *b, descriptor d, int name, int type, int64_t count,
                const void *values) {
  if (!b->failed)
    b->failed = b->dnn->BackendSetAttribute(d, name, type, count, values) != 0;
}

static void set_descriptor(struct builder *b, descriptor d, int name, descriptor value) {
  set(b, d, name, TYPE_DESCRIPTOR, 1, &value);
}

static void finalize(struct builder *b, descriptor d) {
  if (!b->failed)
    b->failed = b->dnn->BackendFinalize(d) != 0;
}

struct dims {
  int64_t at[4];
};

static struct dims dense(struct dims dims) {
  return (struct dims){
      {dims.at[1] * dims.at[2] * dims.at[3], dims.at[2] * dims.at[3], dims.at[3], 1}};
}

/* The last two swapped: the same memory, seen as its transpose. */
static struct dims swapped(struct dims dims) {
  return (struct dims){{dims.at[0], dims.at[1], dims.at[3], dims.at[2]}};
}

/* slot 0: virtual. */
static descriptor tensor(struct builder *b, int slot, int type, struct dims dims,
                         struct dims strides) {
  descriptor d = make(b, DESCRIPTOR_TENSOR);
  int64_t id = slot ? slot : b->next_id++, alignment = 16;
  bool is_virtual = slot == 0, by_value = slot >= SLOT_SCALE;
  set(b, d, ATTR_TENSOR_TYPE, TYPE_DATA_TYPE, 1, &type);
  set(b, d, ATTR_TENSOR_DIMS, TYPE_INT64, 4, dims.at);
  set(b, d, ATTR_TENSOR_STRIDES, TYPE_INT64, 4, strides.at);
  set(b, d, ATTR_TENSOR_ID, TYPE_INT64, 1, &id);
  set(b, d, ATTR_TENSOR_ALIGNMENT, TYPE_INT64, 1, &alignment);
  if (is_virtual)
    set(b, d, ATTR_TENSOR_VIRTUAL, TYPE_BOOLEAN, 1, &is_virtual);
  if (by_value)
    set(b, d, ATTR_TENSOR_BY_VALUE, TYPE_BOOLEAN, 1, &by_value);
  finalize(b, d);
  return d;
}

static descriptor scalar(struct builder *b, int slot) {
  struct dims one = {{1, 1, 1, 1}};
  return tensor(b, slot, DATA_FLOAT, one, one);
}

static descriptor between(struct builder *b, int type, struct dims dims) {
  return tensor(b, 0, type, dims, dense(dims));
}

static void add_operation(struct builder *b, descriptor operation) {
  finalize(b, operation);
  if (b->n_operations == MOST_OPERATIONS)
    b->failed = true;
  if (!b->failed)
    b->operations[b->n_operations++] = operation;
}

/* y = mode(x, second, third); axis below 0: none. second and third may be NULL. */
static descriptor pointwise_into(struct builder *b, int mode, int math, int64_t axis, descriptor x,
                                 descriptor second, descriptor third, descriptor y) {
  descriptor how = make(b, DESCRIPTOR_POINTWISE), op;
  set(b, how, ATTR_POINTWISE_MODE, TYPE_POINTWISE_MODE, 1, &mode);
  set(b, how, ATTR_POINTWISE_MATH_PREC, TYPE_DATA_TYPE, 1, &math);
  if (axis >= 0)
    set(b, how, ATTR_POINTWISE_AXIS, TYPE_INT64, 1, &axis);
  finalize(b, how);
  op = make(b, DESCRIPTOR_OPERATION_POINTWISE);
  set_descriptor(b, op, ATTR_OP_POINTWISE, how);
  set_descriptor(b, op, ATTR_OP_POINTWISE_X, x);
  if (second)
    set_descriptor(b, op, ATTR_OP_POINTWISE_B, second);
  if (third)
    set_descriptor(b, op, ATTR_OP_POINTWISE_T, third);
  set_descriptor(b, op, ATTR_OP_POINTWISE_Y, y);
  add_operation(b, op);
  return y;
}

static descriptor pointwise(struct builder *b, int mode, struct dims dims, descriptor x,
                            descriptor second) {
  return pointwise_into(b, mode, DATA_FLOAT, -1, x, second, NULL, between(b, DATA_FLOAT, dims));
}

static descriptor matmul_into(struct builder *b, descriptor x, descriptor y, descriptor out) {
  descriptor how = make(b, DESCRIPTOR_MATMUL), op;
  int math = DATA_FLOAT;
  set(b, how, ATTR_MATMUL_TYPE, TYPE_DATA_TYPE, 1, &math);
  finalize(b, how);
  op = make(b, DESCRIPTOR_OPERATION_MATMUL);
  set_descriptor(b, op, ATTR_OP_MATMUL_A, x);
  set_descriptor(b, op, ATTR_OP_MATMUL_B, y);
  set_descriptor(b, op, ATTR_OP_MATMUL_C, out);
  set_descriptor(b, op, ATTR_OP_MATMUL, how);
  add_operation(b, op);
  return out;
}

static descriptor reduce_into(struct builder *b, int mode, descriptor x, descriptor y) {
  descriptor how = make(b, DESCRIPTOR_REDUCTION), op;
  int math = DATA_FLOAT;
  set(b, how, ATTR_REDUCTION_OPERATOR, TYPE_REDUCTION, 1, &mode);
  set(b, how, ATTR_REDUCTION_TYPE, TYPE_DATA_TYPE, 1, &math);
  finalize(b, how);
  op = make(b, DESCRIPTOR_OPERATION_REDUCTION);
  set_descriptor(b, op, ATTR_OP_REDUCTION_X, x);
  set_descriptor(b, op, ATTR_OP_REDUCTION_Y, y);
  set_descriptor(b, op, ATTR_OP_REDUCTION, how);
  add_operation(b, op);
  return y;
}

static descriptor reshape(struct builder *b, descriptor x, descriptor y) {
  descriptor op = make(b, DESCRIPTOR_OPERATION_RESHAPE);
  set_descriptor(b, op, ATTR_OP_RESHAPE_X, x);
  set_descriptor(b, op, ATTR_OP_RESHAPE_Y, y);
  add_operation(b, op);
  return y;
}

/* Scores beyond the diagonal become -infinity. */
static descriptor mask(struct builder *b, const struct shape *s, struct dims scores, descriptor x) {
  if (!s->causal)
    return x;
  descriptor row = pointwise_into(b, POINTWISE_GEN_INDEX, DATA_FLOAT, 2, x, NULL, NULL,
                                  between(b, DATA_INT32, scores));
  descriptor column = pointwise_into(b, POINTWISE_GEN_INDEX, DATA_FLOAT, 3, x, NULL, NULL,
                                     between(b, DATA_INT32, scores));
  descriptor seen = pointwise_into(b, POINTWISE_CMP_GE, DATA_BOOLEAN, -1, row, column, NULL,
                                   between(b, DATA_BOOLEAN, scores));
  return pointwise_into(b, POINTWISE_BINARY_SELECT, DATA_FLOAT, -1, x, scalar(b, SLOT_MASKED), seen,
                        between(b, DATA_FLOAT, scores));
}

static int type_of(const struct shape *s) {
  return s->dtype == GD_DTYPE_BF16 ? DATA_BFLOAT16 : DATA_HALF;
}

static void describe_forward(struct builder *b, const struct shape *s) {
  int type = type_of(s);
  struct dims q = {{s->B, s->N, s->T, s->D}}, k = {{s->B, s->M, s->T, s->D}};
  struct dims scores = {{s->B, s->N, s->T, s->T}}, rows = {{s->B, s->N, s->T, 1}};
  descriptor x = matmul_into(b, tensor(b, SLOT_Q, type, q, dense(q)),
                             tensor(b, SLOT_K, type, swapped(k), swapped(dense(k))),
                             between(b, DATA_FLOAT, scores));
  x = pointwise(b, POINTWISE_MUL, scores, x, scalar(b, SLOT_SCALE));
  x = mask(b, s, scores, x);
  descriptor most = reduce_into(b, REDUCE_MAX, x, between(b, DATA_FLOAT, rows));
  x = pointwise(b, POINTWISE_SUB, scores, x, most);
  x = pointwise(b, POINTWISE_EXP, scores, x, NULL);
  descriptor sum = reduce_into(b, REDUCE_ADD, x, between(b, DATA_FLOAT, rows));
  descriptor logarithm = pointwise(b, POINTWISE_LOG, rows, sum, NULL);
  pointwise_into(b, POINTWISE_ADD, DATA_FLOAT, -1, most, logarithm, NULL,
                 tensor(b, SLOT_STATS, DATA_FLOAT, rows, dense(rows)));
  x = pointwise_into(b, POINTWISE_DIV, DATA_FLOAT, -1, x, sum, NULL, between(b, type, scores));
  matmul_into(b, x, tensor(b, SLOT_V, type, k, dense(k)), tensor(b, SLOT_OUT, type, q, dense(q)));
}

/* weights' or scores' gradient, transposed, times x: of k or v, summed over the heads of a group.
 */
static void into_key(struct builder *b, const struct shape *s, descriptor weights, descriptor x,
                     int slot) {
  int type = type_of(s);
  struct dims scores = {{s->B, s->N, s->T, s->T}}, whole = {{s->B, s->N, s->T, s->D}};
  struct dims k = {{s->B, s->M, s->T, s->D}};
  descriptor transposed =
      reshape(b, weights, tensor(b, 0, type, swapped(scores), swapped(dense(scores))));
  if (s->N == s->M)
    matmul_into(b, transposed, x, tensor(b, slot, type, k, dense(k)));
  else
    reduce_into(b, REDUCE_ADD, matmul_into(b, transposed, x, between(b, type, whole)),
                tensor(b, slot, type, k, dense(k)));
}

static void describe_backward(struct builder *b, const struct shape *s) {
  int type = type_of(s);
  struct dims q = {{s->B, s->N, s->T, s->D}}, k = {{s->B, s->M, s->T, s->D}};
  struct dims scores = {{s->B, s->N, s->T, s->T}}, rows = {{s->B, s->N, s->T, 1}};
  descriptor query = tensor(b, SLOT_Q, type, q, dense(q));
  descriptor key = tensor(b, SLOT_K, type, swapped(k), swapped(dense(k)));
  descriptor value = tensor(b, SLOT_V, type, swapped(k), swapped(dense(k)));
  descriptor dout = tensor(b, SLOT_DOUT, type, q, dense(q));
  descriptor scale = scalar(b, SLOT_SCALE);

  descriptor x = pointwise(b, POINTWISE_MUL, q, dout, tensor(b, SLOT_OUT, type, q, dense(q)));
  x = reduce_into(b, REDUCE_ADD, x, between(b, DATA_FLOAT, rows));
  descriptor sum = pointwise_into(b, POINTWISE_MUL, DATA_FLOAT, -1, x, scalar(b, SLOT_ONE), NULL,
                                  tensor(b, SLOT_SUM, DATA_FLOAT, rows, dense(rows)));

  x = matmul_into(b, query, key, between(b, DATA_FLOAT, scores));
  x = pointwise(b, POINTWISE_MUL, scores, x, scale);
  x = pointwise(b, POINTWISE_SUB, scores, x, tensor(b, SLOT_STATS, DATA_FLOAT, rows, dense(rows)));
  x = mask(b, s, scores, x);
  descriptor weights = pointwise(b, POINTWISE_EXP, scores, x, NULL);
  into_key(b, s, weights, dout, SLOT_DV);

  x = matmul_into(b, dout, value, between(b, DATA_FLOAT, scores));
  x = pointwise(b, POINTWISE_SUB, scores, x, sum);
  x = pointwise(b, POINTWISE_MUL, scores, x, weights);
  x = pointwise(b, POINTWISE_MUL, scores, x, scale);
  into_key(b, s, x, query, SLOT_DK);

  descriptor straight = reshape(b, key, tensor(b, 0, type, k, dense(k)));
  descriptor wide = matmul_into(b, x, straight, tensor(b, SLOT_DQ_F32, DATA_FLOAT, q, dense(q)));
  pointwise_into(b, POINTWISE_IDENTITY, DATA_FLOAT, -1, wide, NULL, NULL,
                 tensor(b, SLOT_DQ, type, q, dense(q)));
}

/* --- plans ---------------------------------------------------------------------------------- */

/* asks: the context is not broken, so the library may be called. */
static void free_plan(const struct gd_cudnn *dnn, struct plan *plan, bool asks) {
  if (plan->plan && asks)
    dnn->BackendDestroyDescriptor(plan->plan);
  for (int i = plan->n_descriptors; asks && i-- > 0;)
    dnn->BackendDestroyDescriptor(plan->descriptors[i]);
  gd_mem_free(plan);
}

/* The first engine that the library's own heuristic names and that takes it. */
static void choose_engine(struct builder *b, struct gd_cuda_cudnn *state) {
  enum { CONFIGS = 8 };
  descriptor graph = make(b, DESCRIPTOR_GRAPH), heuristic;
  descriptor configs[CONFIGS] = {0};
  int mode = HEUR_MODE_A;
  int64_t found = 0;
  set(b, graph, ATTR_GRAPH_OPS, TYPE_DESCRIPTOR, b->n_operations, b->operations);
  set(b, graph, ATTR_GRAPH_HANDLE, TYPE_HANDLE, 1, &state->handle);
  finalize(b, graph);
  heuristic = make(b, DESCRIPTOR_ENGINEHEUR);
  set_descriptor(b, heuristic, ATTR_HEUR_GRAPH, graph);
  set(b, heuristic, ATTR_HEUR_MODE, TYPE_HEUR_MODE, 1, &mode);
  finalize(b, heuristic);
  for (int i = 0; i < CONFIGS; i++)
    configs[i] = make(b, DESCRIPTOR_ENGINECFG);
  if (b->failed || b->dnn->BackendGetAttribute(heuristic, ATTR_HEUR_RESULTS, TYPE_DESCRIPTOR,
                                               CONFIGS, &found, configs) != 0)
    found = 0;
  for (int64_t i = 0; i < found && i < CONFIGS && !b->plan->plan; i++) {
    descriptor plan = NULL;
    if (b->dnn->BackendCreateDescriptor(DESCRIPTOR_PLAN, &plan) != 0)
      break;
    if (b->dnn->BackendSetAttribute(plan, ATTR_PLAN_HANDLE, TYPE_HANDLE, 1, &state->handle) == 0 &&
        b->dnn->BackendSetAttribute(plan, ATTR_PLAN_CONFIG, TYPE_DESCRIPTOR, 1, &configs[i]) == 0 &&
        b->dnn->BackendFinalize(plan) == 0)
      b->plan->plan = plan;
    else
      b->dnn->BackendDestroyDescriptor(plan);
  }
  int64_t count;
  if (!b->plan->plan || b->dnn->BackendGetAttribute(b->plan->plan, ATTR_PLAN_WORKSPACE, TYPE_INT64,
                                                    1, &count, &b->plan->workspace_bytes) != 0)
    b->failed = true;
}

static bool same_shape(const struct shape *a, const struct shape *b) {
  return a->grad == b->grad && a->causal == b->causal && a->dtype == b->dtype &&
         a->scale == b->scale && a->B == b->B && a->N == b->N && a->M == b->M && a->T == b->T &&
         a->D == b->D;
}

/* The plan of a shape, made on first use; NULL: cuDNN does not take it. */
static struct plan *plan_of(struct gd_cuda_cudnn *state, const struct shape *shape) {
  for (struct plan *p = state->plans; p; p = p->next)
    if (same_shape(&p->shape, shape))
      return p->plan ? p : NULL;
  struct plan *plan = gd_mem_alloc(1, sizeof *plan);
  if (!plan)
    return NULL;
  struct builder b = {.dnn = state->dnn, .plan = plan, .next_id = FIRST_VIRTUAL};
  plan->shape = *shape;
  if (shape->grad)
    describe_backward(&b, shape);
  else
    describe_forward(&b, shape);
  choose_engine(&b, state);
  if (b.failed && plan->plan) {
    state->dnn->BackendDestroyDescriptor(plan->plan);
    plan->plan = NULL;
  }
  plan->next = state->plans;
  state->plans = plan;
  return plan->plan ? plan : NULL;
}

/* The switch GPUDAYS_CUDNN. */
static bool says(const char *wish) {
  const char *value = gd_env("GPUDAYS_CUDNN");
  return value && strcmp(value, wish) == 0;
}

static struct gd_cuda_cudnn *state_of(struct gd_cuda *cuda) {
  struct gd_cuda_cudnn *state = cuda->cudnn;
  if (state)
    return state->absent ? NULL : state;
  state = gd_mem_alloc(1, sizeof *state);
  if (!state)
    return NULL;
  cuda->cudnn = state;
  state->absent = cuda->deterministic || says("0") || gd_cudnn_load(&state->dnn, NULL) != GD_OK ||
                  gd_cudnn_version() < OLDEST_VERSION || state->dnn->Create(&state->handle) != 0;
  return state->absent ? NULL : state;
}

void gd_cuda_cudnn_free(struct gd_cuda *cuda) {
  struct gd_cuda_cudnn *state = cuda->cudnn;
  if (!state)
    return;
  for (struct plan *p = state->plans, *next; p; p = next) {
    next = p->next;
    free_plan(state->dnn, p, !cuda->broken);
  }
  if (state->handle && !cuda->broken)
    state->dnn->Destroy(state->handle);
  gd_mem_free(state);
  cuda->cudnn = NULL;
}

/* --- running -------------------------------------------------------------------------------- */

static bool describe_call(const struct gd_kernel_args *args, bool grad, struct shape *s) {
  const struct gd_attr_attention *attr = &args->attr->attention;
  const struct gd_view *q = &args->in[grad ? 1 : 0], *k = &args->in[grad ? 2 : 1];
  *s = (struct shape){.grad = grad,
                      .causal = attr->causal,
                      .dtype = q->dtype,
                      .scale = attr->scale,
                      .B = q->dims[0],
                      .N = q->dims[1],
                      .M = k->dims[1],
                      .T = q->dims[2],
                      .D = q->dims[3]};
  bool aligned = true;
  for (uint32_t i = 0; i < args->n_in; i++)
    aligned &= (uintptr_t)args->in[i].data % 16 == 0;
  for (uint32_t i = 0; i < args->n_out; i++)
    aligned &= (uintptr_t)args->out[i].data % 16 == 0;
  return (s->dtype == GD_DTYPE_BF16 || s->dtype == GD_DTYPE_F16) && attr->probability == 0 &&
         s->D % 8 == 0 && s->D <= 256 && s->B > 0 && s->N > 0 && s->T > 1 && aligned;
}

static int64_t rounded(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

/* Scratch of one slice, without the workspace of the plan. */
static int64_t scratch_bytes(const struct shape *s) {
  return s->grad ? rounded(4 * s->B * s->N * s->T) + rounded(4 * s->B * s->N * s->T * s->D) : 0;
}

static enum gd_status run_slice(const struct gd_cuda_call *call, struct gd_cuda_cudnn *state,
                                struct plan *plan, int64_t first) {
  const struct shape *s = &plan->shape;
  const struct gd_kernel_args *args = call->args;
  float scale = s->scale, masked = -INFINITY, one = 1;
  int64_t heads = first * s->N * s->T, keys = first * s->M * s->T;
  int64_t at_q = 2 * heads * s->D, at_k = 2 * keys * s->D, at_row = 4 * heads;
  char *scratch = args->workspace;
  char *sums = scratch, *wide = scratch + rounded(4 * s->B * s->N * s->T);
  char *rest = scratch + scratch_bytes(s);
  int64_t ids[SLOTS];
  void *pointers[SLOTS];
  int n = 0;
#define GIVE(slot, pointer) (ids[n] = (slot), pointers[n++] = (pointer))
#define IN(i)               ((char *)args->in[i].data)
#define OUT(i)              ((char *)args->out[i].data)
  if (s->grad) {
    GIVE(SLOT_DOUT, IN(0) + at_q);
    GIVE(SLOT_Q, IN(1) + at_q);
    GIVE(SLOT_K, IN(2) + at_k);
    GIVE(SLOT_V, IN(3) + at_k);
    GIVE(SLOT_OUT, IN(4) + at_q);
    GIVE(SLOT_STATS, IN(5) + at_row);
    GIVE(SLOT_DQ, OUT(0) + at_q);
    GIVE(SLOT_DK, OUT(1) + at_k);
    GIVE(SLOT_DV, OUT(2) + at_k);
    GIVE(SLOT_SUM, sums);
    GIVE(SLOT_DQ_F32, wide);
    GIVE(SLOT_ONE, &one);
  } else {
    GIVE(SLOT_Q, IN(0) + at_q);
    GIVE(SLOT_K, IN(1) + at_k);
    GIVE(SLOT_V, IN(2) + at_k);
    GIVE(SLOT_OUT, OUT(0) + at_q);
    GIVE(SLOT_STATS, OUT(1) + at_row);
  }
  GIVE(SLOT_SCALE, &scale);
  if (s->causal)
    GIVE(SLOT_MASKED, &masked);
  descriptor pack = NULL;
  const struct gd_cudnn *dnn = state->dnn;
  int status = dnn->BackendCreateDescriptor(DESCRIPTOR_VARIANT_PACK, &pack);
  if (status == 0)
    status = dnn->BackendSetAttribute(pack, ATTR_PACK_IDS, TYPE_INT64, n, ids);
  if (status == 0)
    status = dnn->BackendSetAttribute(pack, ATTR_PACK_POINTERS, TYPE_VOID_PTR, n, pointers);
  if (status == 0)
    status = dnn->BackendSetAttribute(pack, ATTR_PACK_WORKSPACE, TYPE_VOID_PTR, 1, &rest);
  if (status == 0)
    status = dnn->BackendFinalize(pack);
  if (status == 0)
    status = dnn->SetStream(state->handle, call->stream);
  if (status == 0)
    status = dnn->BackendExecute(state->handle, plan->plan, pack);
  if (pack)
    dnn->BackendDestroyDescriptor(pack);
  if (status != 0)
    return gd_fail(call->err, GD_ENVIRONMENT,
                   "cuDNN fails with status %d in attention over %lld x %lld heads of %lld; set "
                   "GPUDAYS_DETERMINISTIC=1 to do without it",
                   status, (long long)s->B, (long long)s->N, (long long)s->D);
  call->cuda->slices_by_cudnn++;
  return GD_OK;
}

/* All of the batch, `slice` entries at a time. */
static enum gd_status run_library(const struct gd_cuda_call *call, struct gd_cuda_cudnn *state,
                                  const struct shape *whole, int64_t slice) {
  for (int64_t first = 0; first < whole->B; first += slice) {
    struct shape part = *whole;
    part.B = whole->B - first < slice ? whole->B - first : slice;
    struct plan *plan = plan_of(state, &part);
    if (!plan)
      return gd_fail(call->err, GD_INTERNAL, "an attention plan of cuDNN got lost");
    GD_TRY(run_slice(call, state, plan, first));
  }
  return GD_OK;
}

static bool fits(struct gd_cuda_cudnn *state, const struct shape *s, int64_t room_bytes) {
  struct plan *plan = scratch_bytes(s) <= room_bytes ? plan_of(state, s) : NULL;
  return plan && scratch_bytes(s) + plan->workspace_bytes <= room_bytes;
}

/* Whether logsumexp, fp32, is still aligned where the next slice begins: cuDNN was told so. */
static bool keeps_alignment(const struct shape *part) {
  return 4 * part->B * part->N * part->T % 16 == 0;
}

/* The most batch entries at a time, a half, a quarter and so on of all, that cuDNN takes and the
   workspace holds, or one; 0: not even that. */
static int64_t slice_of(struct gd_cuda_cudnn *state, const struct shape *whole,
                        int64_t room_bytes) {
  for (int64_t size = whole->B; size > 0; size = size > 1 ? (size + 1) / 2 : 0) {
    struct shape part = *whole, last = *whole;
    part.B = size;
    last.B = whole->B % part.B ? whole->B % part.B : part.B;
    if ((size == whole->B || keeps_alignment(&part)) && fits(state, &part, room_bytes) &&
        fits(state, &last, room_bytes))
      return part.B;
  }
  return 0;
}

struct timed {
  struct gd_cuda_call call;
  struct gd_cuda_cudnn *state;
  const struct shape *shape;
  int64_t slice;
};

enum { OWN, CUDNN, CANDIDATES };

static enum gd_status run_own(const struct gd_cuda_call *call, bool grad, bool tunes) {
  return grad ? gd_cuda_own_attention_grad(call, tunes) : gd_cuda_own_attention(call, tunes);
}

static enum gd_status run_timed(const void *user, int at) {
  const struct timed *t = user;
  return at == CUDNN ? run_library(&t->call, t->state, t->shape, t->slice)
                     : run_own(&t->call, t->shape->grad, false);
}

static void name_candidate(const void *user, int at, char *text, size_t size) {
  (void)user;
  snprintf(text, size, "%s", at == CUDNN ? "cuDNN" : "own kernels");
}

static enum gd_status write_key(const struct gd_cuda_call *call, const struct shape *s,
                                char key[GD_CUDA_KEY_BYTES]) {
  uint64_t hash;
  GD_TRY(gd_cuda_source_hash(call->cuda, s->grad ? "attention_grad_queries" : "attention_forward",
                             &hash, call->err));
  snprintf(key, GD_CUDA_KEY_BYTES,
           "attention%s cudnn %zu own %016llx %s %lldx%lldx%lldx%lld%s key heads %lld scale %g in "
           "%lld bytes",
           s->grad ? "_grad" : "", gd_cudnn_version(), (unsigned long long)hash,
           gd_dtype_name(s->dtype), (long long)s->B, (long long)s->N, (long long)s->T,
           (long long)s->D, s->causal ? " causal" : "", (long long)s->M, (double)s->scale,
           (long long)call->args->workspace_bytes);
  return GD_OK;
}

/* Times both. A result from the cache needs one run, which loads cuDNN's kernels. */
static enum gd_status tune(const struct gd_cuda_call *call, struct gd_cuda_cudnn *state,
                           const struct shape *shape, const char *key) {
  struct timed timed = {.call = *call, .state = state, .shape = shape};
  struct gd_cuda_contest contest = {
      .key = key, .n = CANDIDATES, .run = run_timed, .user = &timed, .name = name_candidate};
  struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(call->cuda, key);
  struct gd_error unused = {0};
  int best;
  double us;
  if (tuned && (tuned->ran || tuned->choice[0] == OWN))
    return GD_OK;
  timed.call.stage = GD_CUDA_LAUNCH;
  timed.call.err = &unused; /* a candidate that fails is not taken */
  timed.slice = slice_of(state, shape, call->args->workspace_bytes);
  if (timed.slice == 0)
    return GD_OK;
  if (tuned) {
    tuned->ran = true;
    tuned->choice[0] = run_timed(&timed, CUDNN) == GD_OK ? CUDNN : OWN;
    return GD_OK;
  }
  GD_TRY(gd_cuda_random_inputs(call));
  GD_TRY(gd_cuda_autotune(call, &contest, &best, &us));
  tuned = gd_cuda_tuned_add(call->cuda, key);
  if (!tuned)
    return gd_nomem(call->err, "while autotuning attention");
  tuned->choice[0] = best == CUDNN ? CUDNN : OWN;
  gd_cuda_tuned_set(call->cuda, tuned, us, 0, best == CUDNN ? "cuDNN" : "own kernels");
  return GD_OK;
}

/* Batch entries at a time by cuDNN; 0: the own kernels. */
static enum gd_status choose(const struct gd_cuda_call *call, struct gd_cuda_cudnn *state,
                             const struct shape *shape, int64_t *slice) {
  char key[GD_CUDA_KEY_BYTES];
  bool by_cudnn = says("1");
  *slice = 0;
  if (!by_cudnn && gd_cuda_autotunes(call->cuda)) {
    GD_TRY(write_key(call, shape, key));
    if (call->stage == GD_CUDA_TUNE)
      GD_TRY(tune(call, state, shape, key));
    const struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(call->cuda, key);
    by_cudnn = tuned && tuned->choice[0] == CUDNN;
  } else if (!by_cudnn) {
    by_cudnn = gd_cuda_first_candidate(call->cuda, CANDIDATES) == CUDNN;
  }
  if (by_cudnn)
    *slice = slice_of(state, shape, call->args->workspace_bytes);
  return GD_OK;
}

static enum gd_status attend(const struct gd_cuda_call *call, bool grad) {
  struct shape shape;
  struct gd_cuda_cudnn *state =
      describe_call(call->args, grad, &shape) ? state_of(call->cuda) : NULL;
  int64_t slice = 0;
  GD_TRY(gd_cuda_autotune_open(call->cuda, call->err));
  if (call->stage == GD_CUDA_COLLECT)
    GD_TRY(gd_cuda_random_inputs(call));
  if (state && call->stage != GD_CUDA_COLLECT) {
    GD_TRY(choose(call, state, &shape, &slice));
    if (call->stage == GD_CUDA_TUNE)
      return GD_OK;
  }
  if (slice)
    return run_library(call, state, &shape, slice);
  /* Where there is cuDNN, it is mostly the faster one: building several tilings is not worth it. */
  return run_own(call, grad, !state);
}

enum gd_status gd_cuda_op_attention(const struct gd_cuda_call *call) {
  return attend(call, false);
}

enum gd_status gd_cuda_op_attention_grad(const struct gd_cuda_call *call) {
  return attend(call, true);
}
