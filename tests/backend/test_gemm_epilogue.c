/*
 * Which steps of a program become one gemm with gelu in its epilogue
 * (backend/cuda/gemm/gemm_epilogue.c), without a GPU: hand-made steps, what makes them stay apart,
 * and the plans of GPT-2's models.
 */
#include <string.h>

#include "backend/cuda/gemm/gemm_steps.h"
#include "backend/cuda/runtime/fused.h"
#include "hw/hw.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "support/ok.h"
#include "support/tiny.h"

static struct gd_error err;

/* Memory that nobody reads or writes: only addresses matter. */
static char *const memory = (char *)0x10000000; /* NOLINT(performance-no-int-to-ptr) */
enum { ROWS = 6, K = 16, N = 24, AT_A = 0, AT_B = 1024, AT_BIAS = 4096, AT_Y = 8192, AT_Z = 16384 };

/* A gemm of rows [6,16] and a weight, and an op on its result. */
struct pair {
  union gd_attr attrs[2];
  int64_t a_dims[3], b_dims[2], bias_dims[1], y_dims[3];
  struct gd_view gemm[4], op[4]; /* inputs, then outputs */
  struct gd_kernel_args args[2];
  struct gd_cuda_step steps[2];
};

static struct gd_view view(int64_t at, enum gd_dtype dtype, uint32_t rank, const int64_t *dims) {
  struct gd_view v = {
      .data = memory + at, .dtype = dtype, .rank = rank, .dims = dims, .elements = 1};
  for (uint32_t i = 0; i < rank; i++)
    v.elements *= dims[i];
  return v;
}

/* y = a b + bias at AT_Y, z = gelu(y) at AT_Z. */
static void make_forward(struct pair *p, int64_t k, int64_t n, enum gd_dtype dtype) {
  *p = (struct pair){
      .a_dims = {2, ROWS / 2, k}, .b_dims = {k, n}, .bias_dims = {n}, .y_dims = {2, ROWS / 2, n}};
  p->attrs[0].matmul = (struct gd_attr_matmul){.alpha = 1, .out_dtype = GD_DTYPE_COUNT};
  p->attrs[1].activate.function = GD_ACTIVATION_GELU_TANH;
  p->gemm[0] = view(AT_A, dtype, 3, p->a_dims);
  p->gemm[1] = view(AT_B, dtype, 2, p->b_dims);
  p->gemm[2] = view(AT_BIAS, GD_DTYPE_F32, 1, p->bias_dims);
  p->gemm[3] = view(AT_Y, dtype, 3, p->y_dims);
  p->op[0] = view(AT_Y, dtype, 3, p->y_dims);
  p->op[1] = view(AT_Z, dtype, 3, p->y_dims);
  p->args[0] = (struct gd_kernel_args){
      .attr = &p->attrs[0], .n_in = 3, .n_out = 1, .in = p->gemm, .out = &p->gemm[3]};
  p->args[1] = (struct gd_kernel_args){
      .attr = &p->attrs[1], .n_in = 1, .n_out = 1, .in = p->op, .out = &p->op[1]};
  p->steps[0] = (struct gd_cuda_step){GD_OP_matmul, &p->args[0]};
  p->steps[1] = (struct gd_cuda_step){GD_OP_activate, &p->args[1]};
}

/* dy = a b' at AT_Y, without a bias; dx = dy gelu'(x), in its place; x at AT_Z. */
static void make_backward(struct pair *p) {
  make_forward(p, K, N, GD_DTYPE_BF16);
  p->attrs[0].matmul.trans_b = true;
  p->b_dims[0] = N;
  p->b_dims[1] = K;
  p->args[0].n_in = 2;
  p->op[0] = view(AT_Z, GD_DTYPE_BF16, 3, p->y_dims);
  p->op[1] = p->op[2] = view(AT_Y, GD_DTYPE_BF16, 3, p->y_dims);
  p->args[1] = (struct gd_kernel_args){
      .attr = &p->attrs[1], .n_in = 2, .n_out = 1, .in = p->op, .out = &p->op[2]};
  p->steps[1].kind = GD_OP_activate_grad;
}

static bool finds(const struct pair *p, struct gd_cuda_fused_gemm *found) {
  return gd_cuda_fused_gemm_find(p->steps, 2, found);
}

/* --- forward -------------------------------------------------------------------------------- */

static void test_forward(void **state) {
  struct pair p;
  struct gd_cuda_fused_gemm found;
  (void)state;
  for (int i = 0; i < 4; i++) {
    make_forward(&p, K, N, i % 2 ? GD_DTYPE_F16 : GD_DTYPE_BF16);
    p.args[0].n_in = i / 2 ? 2 : 3;
    assert_true(finds(&p, &found));
    assert_true(found.fused.epilogue == GD_CUDA_EPILOGUE_GELU && !found.sums.data);
    assert_true(found.fused.aux == memory + AT_Y && found.fused.d == memory + AT_Z);
    assert_true(found.alone.epilogue == GD_CUDA_EPILOGUE_NONE && found.alone.d == memory + AT_Y);
    assert_true(found.fused.m == N && found.fused.n == ROWS && found.fused.ldd == N);
    assert_true((found.fused.bias != NULL) == (i / 2 == 0));
    assert_false(gd_cuda_fused_gemm_find(p.steps, 1, &found));
  }
  make_forward(&p, K, N, GD_DTYPE_BF16); /* in place: what gelu is taken of is not kept */
  p.op[1].data = p.op[0].data;
  assert_true(finds(&p, &found));
  assert_true(found.fused.epilogue == GD_CUDA_EPILOGUE_GELU && !found.fused.aux);
  assert_true(found.fused.d == memory + AT_Y);
}

static void test_forward_apart(void **state) {
  struct pair p;
  struct gd_cuda_fused_gemm found;
  int64_t other[2] = {ROWS, N / 2};
  (void)state;
#define APART(k, n, dtype, change) \
  make_forward(&p, k, n, dtype);   \
  change;                          \
  assert_false(finds(&p, &found))
  APART(K, N, GD_DTYPE_F32, (void)0);
  APART(K, N + 4, GD_DTYPE_BF16, (void)0);            /* the bias is ours to add */
  APART(K, N + 4, GD_DTYPE_BF16, p.args[0].n_in = 2); /* aux has no such distances */
  APART(K + 2, N, GD_DTYPE_BF16, (void)0);            /* nor has an operand */
  APART(0, N, GD_DTYPE_BF16, (void)0);                /* there is no gemm */
  APART(K, N, GD_DTYPE_BF16, p.steps[0].kind = GD_OP_add);
  APART(K, N, GD_DTYPE_BF16, p.steps[1].kind = GD_OP_softmax);
  APART(K, N, GD_DTYPE_BF16, p.attrs[1].activate.function = GD_ACTIVATION_GELU);
  APART(K, N, GD_DTYPE_BF16, p.gemm[3].dtype = GD_DTYPE_F32; p.op[0].dtype = GD_DTYPE_F32);
  APART(K, N, GD_DTYPE_BF16, p.op[0].data = memory + AT_Y + 2 * N);          /* of something else */
  APART(K, N, GD_DTYPE_BF16, p.op[0] = view(AT_Y, GD_DTYPE_BF16, 2, other)); /* of a part */
  APART(K, N, GD_DTYPE_BF16, p.op[1].data = memory + AT_A);                  /* over the rows */
  APART(K, N, GD_DTYPE_BF16, p.op[1].data = memory + AT_B + 2 * K * N - 16); /* the weight's end */
  APART(K, N, GD_DTYPE_BF16, p.op[1].data = memory + AT_BIAS - 16);          /* the bias */
  APART(K, N, GD_DTYPE_BF16, p.op[1].data = memory + AT_Y + 16); /* a part of what it reads */
  APART(K, N, GD_DTYPE_BF16, p.op[1].data = memory + AT_Z + 2);  /* an odd address */
#undef APART
  make_forward(&p, K, N, GD_DTYPE_BF16); /* right behind the weight is free */
  p.op[1].data = memory + AT_B + 2 * K * N;
  assert_true(finds(&p, &found));
}

/* --- backward ------------------------------------------------------------------------------- */

static void test_backward(void **state) {
  struct pair p;
  struct gd_cuda_fused_gemm found;
  (void)state;
  make_backward(&p);
  assert_true(finds(&p, &found));
  assert_true(found.fused.epilogue == GD_CUDA_EPILOGUE_DGELU && !found.sums.data);
  assert_true(found.fused.aux == memory + AT_Z && found.fused.d == memory + AT_Y);
#define APART(change) \
  make_backward(&p);  \
  change;             \
  assert_false(finds(&p, &found))
  APART(p.attrs[1].activate.function = GD_ACTIVATION_GELU);
  APART(p.args[0].n_in = 3; p.args[0].out = &p.gemm[3]);      /* with a bias */
  APART(p.op[2].data = p.op[0].data);                         /* over x */
  APART(p.op[2].data = memory + 2 * AT_Z);                    /* dy may be read again */
  APART(p.op[0].data = memory + AT_Y + 16);                   /* x in part under it */
  APART(p.op[1].data = memory + 2 * AT_Z; p.op[2] = p.op[1]); /* another dy */
  APART(p.op[0] = p.op[1]; p.op[1] = view(AT_Z, GD_DTYPE_BF16, 3, p.y_dims)); /* as x */
  APART(p.op[0].dtype = GD_DTYPE_F32);
#undef APART
}

/* A fused op of (x, dy), or (dy, x); its body is the gradient, `sums` of it, and `more`. */
static struct gd_cuda_fusions *fuse(struct gd_graph *graph, enum gd_activation function,
                                    bool swapped, bool sums, bool sums_first, bool more) {
  struct gd_fusion fusion = {.n_in = 2, .n_out = 1 + sums, .rows = ROWS, .columns = N};
  struct gd_graph *g = &fusion.body;
  struct gd_cuda_fusions *fusions = NULL;
  const int64_t dims[] = {2, ROWS / 2, N};
  const union gd_attr attr = {.activate = {function}};
  gd_graph_init(graph);
  gd_graph_init(g);
  for (int i = 0; i < 2; i++)
    gd_graph_leaf(g, GD_ROLE_INPUT, "in", GD_DTYPE_BF16, 3, dims);
  gd_tensor_id in[] = {swapped, !swapped};
  gd_tensor_id dx = gd_graph_op(g, GD_OP_activate_grad, &attr, 2, in);
  gd_tensor_id all = more ? gd_add(g, dx, in[1]) : dx;
  fusion.out[sums && sums_first] = all;
  if (sums)
    fusion.out[!sums_first] =
        gd_graph_op(g, GD_OP_sum_rows, &(union gd_attr){.rows = {1}}, 1, &all);
  assert_int_equal(gd_graph_fusion(graph, &fusion), 0);
  OK(gd_cuda_fusions_build(NULL, graph, &fusions, &err));
  return fusions;
}

static void test_fused(void **state) {
  struct pair p;
  struct gd_cuda_fused_gemm found;
  (void)state;
  for (int i = 0; i < 64; i++) {
    bool swapped = i & 1, sums = i & 2, first = i & 4, more = i & 8, tanh = i & 16, adds = i & 32;
    struct gd_graph graph;
    struct gd_cuda_fusions *fusions = fuse(
        &graph, tanh ? GD_ACTIVATION_GELU_TANH : GD_ACTIVATION_GELU, swapped, sums, first, more);
    struct gd_view x, dy, views[4];
    make_backward(&p);
    x = p.op[0];
    dy = p.op[1];
    views[0] = swapped ? dy : x;
    views[1] = swapped ? x : dy;
    views[2 + (sums && first)] = dy;
    if (sums)
      views[2 + !first] = view(AT_BIAS, GD_DTYPE_F32, 1, p.bias_dims);
    p.args[1] = (struct gd_kernel_args){.attr = &p.attrs[1],
                                        .device_fused = gd_cuda_fusion(fusions, 0),
                                        .n_in = 2,
                                        .n_out = 1 + sums,
                                        .adds = adds && sums ? first ? 1 : 2 : 0,
                                        .in = views,
                                        .out = &views[2]};
    p.steps[1].kind = GD_OP_fused;
    assert_int_equal(finds(&p, &found), tanh && !more);
    if (tanh && !more) {
      assert_true(found.fused.aux == x.data && found.fused.d == dy.data);
      assert_true(found.sums.data == (sums ? memory + AT_BIAS : NULL));
      assert_int_equal(found.sums_add, adds && sums);
      views[2 + (sums && first)] = x; /* over x: as plans were before */
      assert_false(finds(&p, &found));
    }
    gd_cuda_fusions_free(fusions);
    gd_graph_deinit(&graph);
  }
}

/* --- models --------------------------------------------------------------------------------- */

enum { MOST_VIEWS = 24 };

static struct gd_view tensor_view(const struct gd_plan *plan, gd_tensor_id id) {
  const struct gd_tensor *t = &plan->graph->tensors[id == GD_NONE ? 0 : id];
  if (id == GD_NONE)
    return (struct gd_view){0};
  return view(plan->offset_bytes[id], t->dtype, t->rank, t->dims);
}

static void bind_step(const struct gd_plan *plan, const struct gd_cuda_fusions *fusions,
                      gd_op_id id, struct gd_view *views, struct gd_kernel_args *args) {
  const struct gd_op *op = &plan->graph->ops[id];
  assert_true(op->n_in + op->n_out <= MOST_VIEWS);
  for (uint32_t i = 0; i < op->n_in + op->n_out; i++)
    views[i] = tensor_view(plan, i < op->n_in ? op->in[i] : op->out[i - op->n_in]);
  *args = (struct gd_kernel_args){
      .attr = &op->attr,
      .device_fused =
          op->kind == GD_OP_fused ? gd_cuda_fusion(fusions, op->attr.fused.fusion) : NULL,
      .n_in = op->n_in,
      .n_out = op->n_out,
      .adds = op->adds,
      .in = views,
      .out = views + op->n_in};
}

/* How many blocks of a model's pass can have the epilogue: forward, forward in place, backward. */
static void count_pairs(const struct gd_plan *plan, int counts[3]) {
  struct gd_cuda_fusions *fusions = NULL;
  const gd_op_id *order = plan->order[GD_PROGRAM_MICRO_STEP];
  OK(gd_cuda_fusions_build(NULL, plan->graph, &fusions, &err));
  memset(counts, 0, 3 * sizeof *counts);
  for (uint32_t i = 0; i + 1 < plan->n_order[GD_PROGRAM_MICRO_STEP]; i++) {
    struct gd_view views[2][MOST_VIEWS];
    struct gd_kernel_args args[2];
    struct gd_cuda_step steps[2];
    struct gd_cuda_fused_gemm found;
    if (plan->graph->ops[order[i]].kind != GD_OP_matmul)
      continue;
    for (int j = 0; j < 2; j++) {
      bind_step(plan, fusions, order[i + (uint32_t)j], views[j], &args[j]);
      steps[j] = (struct gd_cuda_step){plan->graph->ops[order[i + (uint32_t)j]].kind, &args[j]};
    }
    if (gd_cuda_fused_gemm_find(steps, 2, &found))
      counts[found.fused.epilogue == GD_CUDA_EPILOGUE_DGELU ? 2 : !found.fused.aux]++;
  }
  gd_cuda_fusions_free(fusions);
}

static void count_of(const char *name, const char *method, int64_t micro_batch, int64_t kept,
                     int counts[3]) {
  struct gd_model model;
  struct gd_graph graph = {0};
  struct gd_plan plan = {0};
  struct gd_caps caps;
  gd_caps_gpu(90, &caps);
  OK(gd_model_load(name, &model, &err));
  struct gd_setup setup = {.model = &model,
                           .precision = GD_PRECISION_BF16,
                           .micro_batch = micro_batch,
                           .saved_blocks = kept,
                           .loss_chunk_bytes = caps.loss_chunk_bytes,
                           .tf32 = true};
  OK(gd_method_parse(method, &setup.method, &err));
  OK(gd_pipeline_build(&setup, &graph, &err));
  OK(gd_plan_make(&graph, &caps, &plan, &err));
  count_pairs(&plan, counts);
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
}

/* Of a model that keeps nothing, gelu's result lies where the rows of the gemm were. */
static void test_models(void **state) {
  static const struct {
    const char *model, *method;
    int64_t micro_batch, kept;
    int counts[3];
  } cases[] = {
      {"gpt2", "free-lunch", 256, 12, {12, 0, 12}},
      {"gpt2", "free-lunch", 32, 0, {0, 0, 12}},
      {"gpt2", "naive", 16, 0, {12, 0, 12}},
      {"gpt2", "free-lunch+ckpt", 64, 0, {0, 12, 12}},
      {"gpt2-medium", "free-lunch", 128, 24, {24, 0, 24}},
      {"gpt2-xl", "free-lunch", 32, 48, {48, 0, 48}},
      {"pythia-160m", "free-lunch", 32, 12, {0, 0, 0}}, /* by erf */
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int counts[3];
    count_of(cases[i].model, cases[i].method, cases[i].micro_batch, cases[i].kept, counts);
    if (memcmp(counts, cases[i].counts, sizeof counts) != 0)
      fail_msg("%s %s, %lld blocks kept: %d forward, %d in place, %d backward", cases[i].model,
               cases[i].method, (long long)cases[i].kept, counts[0], counts[1], counts[2]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_forward),  cmocka_unit_test(test_forward_apart),
      cmocka_unit_test(test_backward), cmocka_unit_test(test_fused),
      cmocka_unit_test(test_models),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
