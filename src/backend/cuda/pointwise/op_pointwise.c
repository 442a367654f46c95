/*
 * Ops of the CUDA backend that treat every element alone: cast, copy, accumulate, add, mul,
 * dropout, activations. The kernels are in kernels/pointwise.cu; here it is decided how many
 * elements an access has, and long tensors with a repeated operand are cut to what the kernels'
 * indices hold.
 */
#include "backend/cuda/runtime/cuda_int.h"
#include "backend/cuda/runtime/divide.h"
#include "base/rng.h"

enum { THREADS = 256, UNROLL = 4, ACTIVATION_ELEMENTS = 16 /* a thread */ };

static bool is_aligned(const void *data, int64_t bytes) {
  return (uintptr_t)data % (uintptr_t)bytes == 0;
}

/* Elements an access has: 16 bytes of the larger dtype, if all addresses are multiples of theirs.
 */
static int64_t width_of(const struct gd_view *const *views, int count) {
  int64_t largest = 1;
  for (int i = 0; i < count; i++) {
    int64_t size = gd_dtype_bytes(views[i]->dtype);
    largest = size > largest ? size : largest;
  }
  for (int i = 0; i < count; i++)
    if (!is_aligned(views[i]->data, 16 / largest * gd_dtype_bytes(views[i]->dtype)))
      return 1;
  return 16 / largest;
}

static struct gd_cuda_grid grid_of(int64_t elements, int64_t width, int64_t unroll) {
  int64_t each = THREADS * unroll, vectors = elements / width;
  int64_t blocks = (vectors + each - 1) / each;
  return (struct gd_cuda_grid){.x = blocks || !elements ? blocks : 1, .threads = THREADS};
}

static struct gd_cuda_kernel kernel_of(const char *name, enum gd_dtype type0, enum gd_dtype type1) {
  return (struct gd_cuda_kernel){
      .file = "pointwise", .name = name, .n_types = 2, .types = {type0, type1}};
}

/* --- conversions ----------------------------------------------------------------------------- */

static enum gd_status convert(const struct gd_cuda_call *call, const struct gd_view *y,
                              const struct gd_view *x) {
  int64_t count = x->elements;
  void *to = y->data, *from = x->data;
  if (y->dtype == x->dtype) {
    if (call->stage != GD_CUDA_LAUNCH || count == 0)
      return GD_OK;
    int result =
        call->cuda->cu->MemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                    (size_t)(count * gd_dtype_bytes(x->dtype)), call->stream);
    return gd_cuda_check(call->cuda, result, "copying on the device", call->err);
  }
  int64_t width = width_of((const struct gd_view *[]){y, x}, 2);
  struct gd_cuda_kernel kernel =
      kernel_of(width > 1 ? "convert_wide" : "convert_narrow", x->dtype, y->dtype);
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(count, width, UNROLL), &to, &from, &count);
}

enum gd_status gd_cuda_op_cast(const struct gd_cuda_call *call) {
  return convert(call, &call->args->out[0], &call->args->in[0]);
}

enum gd_status gd_cuda_op_copy(const struct gd_cuda_call *call) {
  return convert(call, &call->args->out[0], &call->args->in[1]);
}

/* --- add, mul, accumulate -------------------------------------------------------------------- */

struct names {
  const char *wide, *narrow, *repeated_wide, *repeated_narrow;
};

/* y = a op b, element by element. */
static enum gd_status combine_all(const struct gd_cuda_call *call, const struct names *names,
                                  const struct gd_view *y, const struct gd_view *a,
                                  const struct gd_view *b, int64_t first) {
  int64_t width = width_of((const struct gd_view *[]){y, a, b}, 3), count = b->elements;
  void *to = (char *)y->data + first * gd_dtype_bytes(y->dtype);
  void *left = (char *)a->data + first * gd_dtype_bytes(a->dtype), *right = b->data;
  if (!is_aligned(left, width * gd_dtype_bytes(a->dtype)) ||
      !is_aligned(to, width * gd_dtype_bytes(y->dtype)))
    width = 1;
  struct gd_cuda_kernel kernel =
      kernel_of(width > 1 ? names->wide : names->narrow, a->dtype, b->dtype);
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(count, width, UNROLL), &to, &left, &right, &count);
}

static enum gd_status combine(const struct gd_cuda_call *call, const struct names *names) {
  const struct gd_view *y = &call->args->out[0], *a = &call->args->in[0], *b = &call->args->in[1];
  if (a->elements == 0)
    return GD_OK;
  if (a->elements == b->elements)
    return combine_all(call, names, y, a, b, 0);
  int64_t width = width_of((const struct gd_view *[]){y, a, b}, 3);
  if (b->elements % width)
    width = 1;
  int64_t period = b->elements / width, rows = a->elements / b->elements;
  if (period >= GD_CUDA_DIVIDEND_LIMIT) {
    for (int64_t r = 0; r < rows; r++)
      GD_TRY(combine_all(call, names, y, a, b, r * b->elements));
    return GD_OK;
  }
  struct gd_divider divider = gd_divider_of(period);
  struct gd_cuda_kernel kernel =
      kernel_of(width > 1 ? names->repeated_wide : names->repeated_narrow, a->dtype, b->dtype);
  int64_t most = (GD_CUDA_DIVIDEND_LIMIT - 1) / period; /* rows of a launch */
  for (int64_t r = 0; r < rows; r += most) {
    int64_t count = (rows - r < most ? rows - r : most) * b->elements, first = r * b->elements;
    void *to = (char *)y->data + first * gd_dtype_bytes(y->dtype);
    void *left = (char *)a->data + first * gd_dtype_bytes(a->dtype), *right = b->data;
    GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(count, width, UNROLL), &to, &left, &right, &count,
                          &divider));
  }
  return GD_OK;
}

/* gd_cuda_op_<op> of every row of ops.def that says `combine`. */
#define OP_none(name)
#define OP_runtime(name)
#define OP_own(name)
#define OP_combine(name)                                                                       \
  enum gd_status gd_cuda_op_##name(const struct gd_cuda_call *call) {                          \
    static const struct names names = {#name "_wide", #name "_narrow", #name "_repeated_wide", \
                                       #name "_repeated_narrow"};                              \
    return combine(call, &names);                                                              \
  }
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, cpu, cuda, ...) \
  OP_##cuda(name)
#include "ir/ops.def"
#undef GD_OP

/* Output 0 is input 0. */
enum gd_status gd_cuda_op_accumulate(const struct gd_cuda_call *call) {
  return gd_cuda_op_add(call);
}

/* --- dropout --------------------------------------------------------------------------------- */

/* The rule of the random numbers is that of gd_ref_dropout. */
enum gd_status gd_cuda_op_dropout(const struct gd_cuda_call *call) {
  const struct gd_attr_dropout *attr = &call->args->attr->dropout;
  const struct gd_view *x = &call->args->in[0], *y = &call->args->out[0];
  uint32_t stream = attr->stream, threshold = gd_rng_dropout_threshold((double)attr->probability);
  float scale = (float)gd_rng_dropout_scale((double)attr->probability);
  int64_t count = x->elements, sample = x->dims[0] ? count / x->dims[0] : 0;
  int64_t vector = 16 / gd_dtype_bytes(x->dtype);
  int32_t wide = is_aligned(x->data, 16) && is_aligned(y->data, 16);
  struct gd_cuda_kernel kernel =
      kernel_of(attr->per_sample ? "drop_samples" : "dropout", x->dtype, x->dtype);
  void *to = y->data, *from = x->data, *seed = call->args->in[1].data;
  /* A thread's elements may begin before the first and end behind the last; of a sample they begin
     at the first. */
  struct gd_cuda_grid grid =
      attr->per_sample ? grid_of((count + vector - 1) / vector, 1, 1)
                       : grid_of(count ? (count + 2 * vector - 2) / vector : 0, 1, UNROLL);
  return GD_CUDA_LAUNCH(call, &kernel, grid, &to, &from, &seed, &count, &sample, &stream,
                        &threshold, &scale, &wide);
}

/* --- activations ----------------------------------------------------------------------------- */

/* The module of a function holds both kernels. */
static struct gd_cuda_kernel activation(enum gd_activation function, const char *name,
                                        enum gd_dtype dtype) {
#define FUNCTION(name) "ACTIVATION=gd_" #name " DERIVATIVE=gd_" #name "_derivative"
  static const char *const defines[GD_ACTIVATION_COUNT] = {
      [GD_ACTIVATION_GELU] = FUNCTION(gelu),
      [GD_ACTIVATION_GELU_TANH] = FUNCTION(gelu_tanh),
      [GD_ACTIVATION_RELU] = FUNCTION(relu),
      [GD_ACTIVATION_SILU] = FUNCTION(silu),
      [GD_ACTIVATION_SOFTPLUS] = FUNCTION(softplus),
      [GD_ACTIVATION_QUICK_GELU] = FUNCTION(quick_gelu),
      [GD_ACTIVATION_TANH] = FUNCTION(tanh),
      [GD_ACTIVATION_SIGMOID] = FUNCTION(logistic),
  };
#undef FUNCTION
  return (struct gd_cuda_kernel){.file = "pointwise",
                                 .name = name,
                                 .defines = defines[function],
                                 .n_types = 1,
                                 .types = {dtype}};
}

enum gd_status gd_cuda_op_activate(const struct gd_cuda_call *call) {
  const struct gd_view *x = &call->args->in[0], *y = &call->args->out[0];
  int64_t width = width_of((const struct gd_view *[]){x, y}, 2), count = x->elements;
  struct gd_cuda_kernel kernel =
      activation(call->args->attr->activate.function,
                 width > 1 ? "activate_wide" : "activate_narrow", x->dtype);
  void *to = y->data, *from = x->data;
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(count, width, ACTIVATION_ELEMENTS / width), &to,
                        &from, &count);
}

enum gd_status gd_cuda_op_activate_grad(const struct gd_cuda_call *call) {
  const struct gd_view *x = &call->args->in[0], *dy = &call->args->in[1], *dx = &call->args->out[0];
  int64_t width = width_of((const struct gd_view *[]){x, dy, dx}, 3), count = x->elements;
  struct gd_cuda_kernel kernel =
      activation(call->args->attr->activate.function,
                 width > 1 ? "activate_grad_wide" : "activate_grad_narrow", x->dtype);
  void *to = dx->data, *from = x->data, *gradient = dy->data;
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(count, width, ACTIVATION_ELEMENTS / width), &to,
                        &from, &gradient, &count);
}
