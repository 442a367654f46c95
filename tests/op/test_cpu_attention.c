/*
 * Attention on the cpu at every level this CPU has, in every dtype, against the ref kernels:
 * test_cpu_ops.c covers the best level only. Also what random inputs do not reach: scores that grow
 * along the keys, so that what was summed before becomes negligible, or that dwarf all that follow.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu_int.h"
#include "backend/ref/ref_int.h"
#include "base/mem.h"
#include "base/rng.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum scores { EVEN, RISING, FALLING };

struct shape {
  int64_t batch, heads, key_heads, steps, size;
  bool causal;
  float dropout;
  enum scores scores;
};

static const struct shape shapes[] = {
    {2, 3, 3, 19, 5, false, 0, EVEN},      {1, 4, 2, 33, 16, true, 0.3f, EVEN},
    {1, 2, 1, 230, 8, true, 0, EVEN},      {1, 1, 1, 500, 7, false, 0.2f, EVEN},
    {1, 2, 2, 470, 12, true, 0.1f, EVEN},  {1, 1, 1, 40, 256, false, 0, EVEN},
    {1, 1, 1, 37, 255, true, 0.5f, EVEN},  {1, 1, 1, 500, 4, false, 0, RISING},
    {1, 1, 1, 500, 4, true, 0.2f, RISING}, {1, 1, 1, 500, 4, false, 0.2f, FALLING},
};

enum { MOST_VIEWS = 12 };

/* q, k, v, seed; out, logsumexp; dout; dq, dk, dv. */
struct tensors {
  struct gd_view views[MOST_VIEWS];
  int64_t dims[MOST_VIEWS][4];
  union gd_attr attr;
};
enum { Q, K, V, SEED, OUT, LSE, DOUT, DQ, DK, DV };

static void add(struct tensors *t, int at, enum gd_dtype dtype, uint32_t rank,
                const int64_t *dims) {
  struct gd_view *view = &t->views[at];
  *view = (struct gd_view){.dtype = dtype, .rank = rank, .elements = 1};
  for (uint32_t i = 0; i < rank; i++)
    view->elements *= t->dims[at][i] = dims[i];
  view->dims = t->dims[at];
  view->data = gd_mem_alloc((size_t)view->elements + 1, sizeof(float));
  assert_non_null(view->data);
  memset(view->data, 0xff, (size_t)(view->elements * gd_dtype_bytes(dtype)));
}

static void fill(const struct gd_view *view, int at, enum scores scores) {
  for (int64_t i = 0; i < view->elements; i++) {
    double x = 2 * (double)gd_rng_uniform(1, (uint64_t)at, (uint64_t)i) - 1;
    double step = (double)(i / view->dims[3] % view->dims[2]);
    if (scores != EVEN && at == Q)
      x = 2 + 0.1 * x;
    if (scores == RISING && at == K) /* exponents from 0 to about 1000 */
      x = 0.25 * step + x;
    if (scores == FALLING && at == K)
      x = 0.25 * (500 - step) + x;
    gd_dtype_store(view->dtype, view->data, i, (float)x);
  }
}

static void tensors_init(struct tensors *t, const struct shape *s, enum gd_dtype dtype) {
  int64_t q[] = {s->batch, s->heads, s->steps, s->size};
  int64_t k[] = {s->batch, s->key_heads, s->steps, s->size};
  for (int i = Q; i <= DV; i++)
    if (i == SEED)
      add(t, i, GD_DTYPE_I32, 1, (int64_t[]){3});
    else if (i == LSE)
      add(t, i, GD_DTYPE_F32, 3, q);
    else
      add(t, i, dtype, 4, i == K || i == V || i == DK || i == DV ? k : q);
  fill(&t->views[Q], Q, s->scores);
  fill(&t->views[K], K, s->scores);
  fill(&t->views[V], V, s->scores);
  fill(&t->views[DOUT], DOUT, s->scores);
  memcpy(t->views[SEED].data, (int32_t[]){7, 2, 3}, 3 * sizeof(int32_t));
  t->attr.attention = (struct gd_attr_attention){
      .causal = s->causal, .scale = 0.5f, .probability = s->dropout, .stream = 4};
}

static void tensors_deinit(struct tensors *t) {
  for (int i = Q; i <= DV; i++)
    gd_mem_free(t->views[i].data);
}

typedef void kernel(const struct gd_kernel_args *args, enum gd_isa isa);

static void ref_forward(const struct gd_kernel_args *args, enum gd_isa isa) {
  (void)isa;
  gd_ref_attention(args);
}
static void ref_backward(const struct gd_kernel_args *args, enum gd_isa isa) {
  (void)isa;
  gd_ref_attention_grad(args);
}

/* The backward pass gets out and logsumexp of `from`, if given, so that it is judged alone. */
static void run(struct tensors *t, kernel *forward, kernel *backward, const struct tensors *from,
                enum gd_isa isa, int threads) {
  bool drops = t->attr.attention.probability > 0;
  const struct gd_view *v = t->views;
  int64_t bytes = gd_cpu_workspace_bytes(threads, v[Q].dims[3]);
  char *block = gd_mem_alloc((size_t)bytes + 64, 1);
  assert_non_null(block);
  memset(block, 0xff, (size_t)bytes + 64); /* what is not written is NaN */
  struct gd_view in[] = {v[Q], v[K], v[V], v[SEED]}, out[] = {v[OUT], v[LSE]};
  struct gd_kernel_args args = {.attr = &t->attr,
                                .n_in = drops ? 4 : 3,
                                .n_out = 2,
                                .in = in,
                                .out = out,
                                .workspace = block + (64 - (uintptr_t)block % 64) % 64,
                                .workspace_bytes = bytes,
                                .threads = threads};
  forward(&args, isa);
  const struct gd_view *known = from ? from->views : v;
  struct gd_view in_grad[] = {v[DOUT], v[Q], v[K], v[V], known[OUT], known[LSE], v[SEED]};
  struct gd_view out_grad[] = {v[DQ], v[DK], v[DV]};
  args.n_in = drops ? 7 : 6;
  args.n_out = 3;
  args.in = in_grad;
  args.out = out_grad;
  backward(&args, isa);
  gd_mem_free(block);
}

/* Root mean square of the difference relative to that of ref. */
static double distance(const struct gd_view *got, const struct gd_view *want) {
  double squares = 0, errors = 0;
  for (int64_t i = 0; i < want->elements; i++) {
    double w = (double)gd_dtype_load(want->dtype, want->data, i);
    double g = (double)gd_dtype_load(got->dtype, got->data, i);
    squares += w * w;
    errors += (g - w) * (g - w);
  }
  return sqrt(errors / squares);
}

static void test_levels(void **state) {
  static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16};
  static const char *const names[] = {"out", "logsumexp", "dout", "dq", "dk", "dv"};
  (void)state;
  for (int i = 0; i < COUNT(shapes); i++)
    for (int d = 0; d < COUNT(dtypes); d++) {
      struct tensors want = {0};
      bool wild = shapes[i].scores != EVEN;
      /* The last bits of scores of 1000 are worth 1e-4 of a weight; gradients of weights cancel,
         and keys of 125 multiply what is left. */
      double bounds[] = {wild ? 1e-3 : 3e-6, wild ? 2e-2 : 6e-3, wild ? 3e-3 : 1e-3};
      double slack = wild ? 50 : 1;
      tensors_init(&want, &shapes[i], dtypes[d]);
      run(&want, ref_forward, ref_backward, NULL, GD_ISA_PLAIN, 1);
      for (int isa = GD_ISA_PLAIN; isa <= (int)gd_isa_detect(); isa++) {
        struct tensors got[2] = {0};
        for (int j = 0; j < 2; j++) {
          tensors_init(&got[j], &shapes[i], dtypes[d]);
          run(&got[j], gd_cpu_attention_isa, gd_cpu_attention_grad_isa, &want, (enum gd_isa)isa,
              j == 0 ? 1 : 4);
        }
        for (int o = OUT; o <= DV; o++) {
          double off = distance(&got[0].views[o], &want.views[o]);
          if (o != DOUT && !(off <= bounds[d] * (o < DOUT ? 1 : slack)))
            fail_msg("shape %d, %s, %s: %s is off by %.3g", i, gd_dtype_name(dtypes[d]),
                     gd_isa_name((enum gd_isa)isa), names[o - OUT], off);
          assert_memory_equal(
              got[0].views[o].data, got[1].views[o].data,
              (size_t)(got[0].views[o].elements * gd_dtype_bytes(got[0].views[o].dtype)));
        }
        tensors_deinit(&got[0]);
        tensors_deinit(&got[1]);
      }
      tensors_deinit(&want);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
