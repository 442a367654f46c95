/*
 * Epilogue fusion: a GEMM with GELU or dGELU in its epilogue. cuBLASLt can store gelu of the
 * result, and the result itself in aux for the backward pass; or the result times the derivative of
 * gelu at aux, which is the gradient of the layer before. Both save a read and a write of the
 * result, and both slow the GEMM down: which is faster depends on the shape, so it is timed.
 * op_matmul.c runs the GEMMs.
 *
 * The library's GELU is the tanh approximation, and takes the result before it is rounded to 16
 * bits; the separate ops take it after that. It writes D while other CTAs still read A and B, and
 * promises nothing where D lies over aux: the plan has to keep them apart (plan.c, inplace_input).
 *
 * The second op alone is timed too, under a key that holds the hash of its kernel's text.
 * GPUDAYS_GEMM_EPILOGUE=0: never fused; 1: wherever the library can. Never where nothing is timed.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/gemm/gemm_steps.h"
#include "backend/cuda/runtime/autotune.h"
#include "backend/cuda/runtime/fused.h"
#include "backend/cuda/runtime/module.h"
#include "base/rng.h"

enum {
  MULTIPLE = 8,        /* of distances between columns: the library's for aux */
  LEAST_ALIGNMENT = 16 /* of all addresses, likewise */
};

/* --- finding -------------------------------------------------------------------------------- */

static bool is_aligned(const void *at) {
  return (uintptr_t)at % LEAST_ALIGNMENT == 0;
}

/* GEMMs that the library has epilogues for. */
static bool takes_epilogue(const struct gd_cuda_gemm *p) {
  return (p->dtype_d == GD_DTYPE_BF16 || p->dtype_d == GD_DTYPE_F16) && p->dtype == p->dtype_d &&
         p->batch == 1 && !p->staged && !p->adds &&
         (p->bias_mode == GD_CUDA_BIAS_NONE || p->bias_mode == GD_CUDA_BIAS_ROUNDED) && p->m > 0 &&
         p->n > 0 && p->k > 0 && p->lda % MULTIPLE == 0 && p->ldb % MULTIPLE == 0 &&
         p->ldd % MULTIPLE == 0 && p->ldd == p->m && is_aligned(p->a) && is_aligned(p->b) &&
         is_aligned(p->d);
}

/* Has it the elements of D, as D has them? */
static bool is_like(const struct gd_view *view, const struct gd_cuda_gemm *p) {
  return view->dtype == p->dtype_d && view->elements == p->m * p->n && is_aligned(view->data);
}

static bool find_gelu(const struct gd_kernel_args *gemm, const struct gd_kernel_args *op,
                      struct gd_cuda_fused_gemm *found) {
  const struct gd_view *x = &op->in[0], *y = &op->out[0];
  struct gd_cuda_gemm *p = &found->fused;
  if (op->attr->activate.function != GD_ACTIVATION_GELU_TANH || x->data != p->d || !is_like(x, p) ||
      !is_like(y, p))
    return false;
  p->epilogue = GD_CUDA_EPILOGUE_GELU;
  if (y->data == x->data) /* nobody reads the result itself */
    return true;
  p->aux = x->data;
  p->d = y->data;
  if (gd_cuda_views_touch(y, x))
    return false;
  for (uint32_t i = 0; i < gemm->n_in; i++)
    if (gd_cuda_views_touch(y, &gemm->in[i]))
      return false;
  return true;
}

/* dx overwrites dy, the GEMM's own result: so nobody reads that afterwards. */
static bool find_dgelu(const struct gd_view *x, const struct gd_view *dy, const struct gd_view *dx,
                       struct gd_cuda_fused_gemm *found) {
  struct gd_cuda_gemm *p = &found->fused;
  if (p->bias || dy->data != p->d || dx->data != p->d || !is_like(dy, p) || !is_like(dx, p) ||
      !is_like(x, p) || gd_cuda_views_touch(x, dx))
    return false;
  p->epilogue = GD_CUDA_EPILOGUE_DGELU;
  p->aux = x->data;
  return true;
}

static bool find_fused(const struct gd_kernel_args *op, struct gd_cuda_fused_gemm *found) {
  const struct gd_cuda_gelu_grad *g = &op->device_fused->gelu_grad;
  if (!g->is_one || !find_dgelu(&op->in[g->x], &op->in[g->dy], &op->out[g->dx], found))
    return false;
  if (!g->has_sums)
    return true;
  found->sums = op->out[g->sums];
  found->sums_add = gd_kernel_adds(op, g->sums);
  return found->sums.elements == found->fused.m;
}

bool gd_cuda_fused_gemm_find(const struct gd_cuda_step *steps, uint32_t n_steps,
                             struct gd_cuda_fused_gemm *found) {
  *found = (struct gd_cuda_fused_gemm){0};
  if (n_steps < 2 || steps[0].kind != GD_OP_matmul)
    return false;
  const struct gd_kernel_args *op = steps[1].args;
  gd_cuda_gemm_of(steps[0].args, &found->alone);
  found->fused = found->alone;
  if (!takes_epilogue(&found->alone))
    return false;
  if (steps[1].kind == GD_OP_activate)
    return find_gelu(steps[0].args, op, found);
  if (steps[1].kind == GD_OP_activate_grad)
    return op->attr->activate.function == GD_ACTIVATION_GELU_TANH &&
           find_dgelu(&op->in[0], &op->in[1], &op->out[0], found);
  return steps[1].kind == GD_OP_fused && op->device_fused && find_fused(op, found);
}

/* --- the sum that is left ------------------------------------------------------------------- */

/* A step of its own: sum_rows of D. */
struct sums {
  struct gd_view in, out;
  int64_t dims[2];
  union gd_attr attr;
  struct gd_kernel_args args;
  struct gd_cuda_step step;
};

static void make_sums(const struct gd_cuda_fused_gemm *found, const struct gd_kernel_args *op,
                      struct sums *sums) {
  const struct gd_cuda_gemm *p = &found->fused;
  *sums = (struct sums){.out = found->sums, .dims = {p->n, p->m}, .attr.rows = {1}};
  sums->in = (struct gd_view){
      .data = p->d, .dtype = p->dtype_d, .rank = 2, .dims = sums->dims, .elements = p->n * p->m};
  sums->args = (struct gd_kernel_args){.attr = &sums->attr,
                                       .n_in = 1,
                                       .n_out = 1,
                                       .adds = found->sums_add,
                                       .in = &sums->in,
                                       .out = &sums->out,
                                       .workspace = op->workspace,
                                       .workspace_bytes = op->workspace_bytes};
  sums->step = (struct gd_cuda_step){GD_OP_sum_rows, &sums->args};
}

/* --- times of steps ------------------------------------------------------------------------- */

/* Of the text that the kernels of a step are built from: another text may take another time. */
static enum gd_status hash_text(const struct gd_cuda_call *call, const struct gd_cuda_step *step,
                                uint64_t *hash) {
  struct gd_strbuf text = {0};
  if (step->kind != GD_OP_fused)
    return gd_cuda_source_hash(call->cuda, step->kind == GD_OP_sum_rows ? "columns" : "pointwise",
                               hash, call->err);
  enum gd_status status =
      gd_cuda_fused_source(step->args->device_fused->text->kernel, true, &text, call->err);
  if (status == GD_OK)
    *hash = gd_hash_string(text.text);
  gd_strbuf_deinit(&text);
  return status;
}

static int key_view(const struct gd_view *view, char *key, int at) {
  return at + snprintf(key + at, (size_t)(GD_CUDA_KEY_BYTES - at), " %s %" PRId64 "%s",
                       gd_dtype_name(view->dtype), view->elements,
                       is_aligned(view->data) ? "" : " unaligned");
}

static enum gd_status write_key(const struct gd_cuda_call *call, const struct gd_cuda_step *step,
                                char key[GD_CUDA_KEY_BYTES]) {
  const struct gd_kernel_args *args = step->args;
  uint64_t hash = 0;
  GD_TRY(hash_text(call, step, &hash));
  GD_ASSERT(args->n_in <= 2 && args->n_out <= 2); /* of more the key would be cut off */
  int at = snprintf(key, GD_CUDA_KEY_BYTES, "step %s by %016" PRIx64 " of",
                    gd_op_info(step->kind)->name, hash);
  for (uint32_t i = 0; i < args->n_in; i++)
    at = key_view(&args->in[i], key, at);
  at += snprintf(key + at, (size_t)(GD_CUDA_KEY_BYTES - at), " to%s", args->adds ? " add to" : "");
  for (uint32_t i = 0; i < args->n_out; i++)
    at = key_view(&args->out[i], key, at);
  return GD_OK;
}

struct timed {
  struct gd_cuda_call call;
  const struct gd_cuda_step *step;
};

static enum gd_status run_timed(const void *user, int at) {
  const struct timed *timed = user;
  (void)at;
  return gd_cuda_step_run(&timed->call, timed->step);
}

/* Microseconds of an op alone, timed in TUNE; infinite where it never was. */
static enum gd_status time_of(const struct gd_cuda_call *call, const struct gd_cuda_step *step,
                              double *us) {
  struct timed timed = {*call, step};
  char key[GD_CUDA_KEY_BYTES];
  struct gd_cuda_contest contest = {.key = key, .n = 1, .run = run_timed, .user = &timed};
  int best;
  GD_TRY(write_key(call, step, key));
  struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(call->cuda, key);
  *us = tuned ? tuned->us : HUGE_VAL;
  if (tuned || call->stage != GD_CUDA_TUNE || !gd_cuda_autotunes(call->cuda))
    return GD_OK;
  timed.call.args = step->args;
  timed.call.err = NULL; /* a failure is no error: it has no time, and is not fused */
  GD_TRY(gd_cuda_random_inputs(&timed.call));
  timed.call.stage = GD_CUDA_LAUNCH;
  GD_TRY(gd_cuda_autotune(call, &contest, &best, us));
  tuned = best == 0 ? gd_cuda_tuned_add(call->cuda, key) : NULL;
  if (tuned) {
    gd_cuda_tuned_set(call->cuda, tuned, *us, 0, "");
    *us = tuned->us;
  }
  return GD_OK;
}

/* --- choosing and running ------------------------------------------------------------------- */

/* In TUNE it times what was not timed before. */
static enum gd_status is_faster(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                                const struct gd_cuda_fused_gemm *found, const struct sums *sums,
                                bool *faster) {
  double alone_us, second_us, fused_us, sums_us = 0;
  GD_TRY(gd_cuda_gemm_us(call, &found->alone, &alone_us));
  GD_TRY(gd_cuda_gemm_us(call, &found->fused, &fused_us));
  GD_TRY(time_of(call, &steps[1], &second_us));
  if (found->sums.data)
    GD_TRY(time_of(call, &sums->step, &sums_us));
  *faster = isfinite(second_us) && fused_us + sums_us < alone_us + second_us;
  return GD_OK;
}

static enum gd_status tune(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                           const struct gd_cuda_fused_gemm *found, const struct sums *sums) {
  struct gd_cuda_call first = *call;
  bool done, faster;
  first.args = steps[0].args; /* for the workspace: all have the same */
  GD_TRY(gd_cuda_step_run(call, &steps[0]));
  GD_TRY(gd_cuda_step_run(call, &steps[1]));
  if (found->sums.data)
    GD_TRY(gd_cuda_step_run(call, &sums->step));
  GD_TRY(gd_cuda_gemm_epilogue(&first, &found->fused, &done));
  return is_faster(&first, steps, found, sums, &faster);
}

enum gd_status gd_cuda_multi_epilogue(const struct gd_cuda_call *call,
                                      const struct gd_cuda_step *steps, uint32_t n_steps,
                                      uint32_t *taken) {
  struct gd_cuda_fused_gemm found;
  struct gd_cuda_call first = *call;
  struct sums sums;
  char how = gd_cuda_switch("GPUDAYS_GEMM_EPILOGUE");
  bool fused = how == '1';
  *taken = 0;
  if (how == '0' || call->cuda->untimed || (!fused && !gd_cuda_autotunes(call->cuda)) ||
      !gd_cuda_fused_gemm_find(steps, n_steps, &found))
    return GD_OK;
  make_sums(&found, steps[1].args, &sums);
  if (call->stage == GD_CUDA_COLLECT) /* the two ops alone collect their own */
    return found.sums.data ? gd_cuda_step_run(call, &sums.step) : GD_OK;
  if (call->stage == GD_CUDA_TUNE) {
    *taken = 2;
    return tune(call, steps, &found, &sums);
  }
  first.args = steps[0].args;
  if (!fused)
    GD_TRY(is_faster(&first, steps, &found, &sums, &fused));
  if (fused)
    GD_TRY(gd_cuda_gemm_epilogue(&first, &found.fused, &fused));
  if (!fused)
    return GD_OK;
  call->cuda->epilogues++;
  *taken = 2;
  return found.sums.data ? gd_cuda_step_run(call, &sums.step) : GD_OK;
}
