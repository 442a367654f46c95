/*
 * Products with gelu in their epilogue. The library can store gelu of a product, and the product
 * itself beside it for the backward pass; or a product times gelu's slope at a third matrix, which
 * is the gradient of the layer before. Both save a pass over the result, and both slow the product
 * down: what is faster depends on the shape, so it is timed. op_matmul.c runs the products.
 *
 * The library's gelu is the one by tanh, and takes the product before it is rounded to 16 bits;
 * the ops apart take it after that. It writes D while others still read A and B, and promises
 * nothing where D lies over aux: the plan has to keep them apart (plan.c, inplace_input).
 *
 * What the second op takes apart is timed too, and kept with the choices of products, by the text
 * of its kernels: a line for people to read, and none in a second process. GPUDAYS_EPILOGUES=0:
 * always apart; 1: together wherever that can be. Never where nothing may be chosen by its time.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/choices.h"
#include "backend/cuda/fused.h"
#include "backend/cuda/multi.h"
#include "base/rng.h"

enum {
  MULTIPLE = 8,        /* of distances between columns: the library's for aux */
  LEAST_ALIGNMENT = 16 /* of all addresses, likewise */
};

/* --- finding -------------------------------------------------------------------------------- */

static bool is_aligned(const void *at) {
  return (uintptr_t)at % LEAST_ALIGNMENT == 0;
}

/* Products that the library has epilogues for. */
static bool takes_epilogue(const struct gd_cuda_product *p) {
  return (p->dtype_d == GD_DTYPE_BF16 || p->dtype_d == GD_DTYPE_F16) && p->dtype == p->dtype_d &&
         p->batch == 1 && !p->staged && !p->adds &&
         (p->bias_way == GD_CUDA_BIAS_NONE || p->bias_way == GD_CUDA_BIAS_ROUNDED) && p->m > 0 &&
         p->n > 0 && p->k > 0 && p->lda % MULTIPLE == 0 && p->ldb % MULTIPLE == 0 &&
         p->ldd % MULTIPLE == 0 && p->ldd == p->m && is_aligned(p->a) && is_aligned(p->b) &&
         is_aligned(p->d);
}

/* Has it the product's elements, as the product has them? */
static bool is_like(const struct gd_view *view, const struct gd_cuda_product *p) {
  return view->dtype == p->dtype_d && view->elements == p->m * p->n && is_aligned(view->data);
}

static bool find_gelu(const struct gd_kernel_args *product, const struct gd_kernel_args *op,
                      struct gd_cuda_activated *found) {
  const struct gd_view *x = &op->in[0], *y = &op->out[0];
  struct gd_cuda_product *p = &found->together;
  if (op->attr->activate.function != GD_ACTIVATION_GELU_TANH || x->data != p->d || !is_like(x, p) ||
      !is_like(y, p))
    return false;
  p->epilogue = GD_CUDA_EPILOGUE_GELU;
  if (y->data == x->data) /* nobody reads the product itself */
    return true;
  p->aux = x->data;
  p->d = y->data;
  if (gd_cuda_views_touch(y, x))
    return false;
  for (uint32_t i = 0; i < product->n_in; i++)
    if (gd_cuda_views_touch(y, &product->in[i]))
      return false;
  return true;
}

/* Over dy, the product's own result: so nobody reads that afterwards. */
static bool find_slope(const struct gd_view *x, const struct gd_view *dy, const struct gd_view *dx,
                       struct gd_cuda_activated *found) {
  struct gd_cuda_product *p = &found->together;
  if (p->bias || dy->data != p->d || dx->data != p->d || !is_like(dy, p) || !is_like(dx, p) ||
      !is_like(x, p) || gd_cuda_views_touch(x, dx))
    return false;
  p->epilogue = GD_CUDA_EPILOGUE_DGELU;
  p->aux = x->data;
  return true;
}

static bool find_fused(const struct gd_kernel_args *op, struct gd_cuda_activated *found) {
  const struct gd_cuda_gelu_grad *g = &op->device_fused->gelu_grad;
  if (!g->is_one || !find_slope(&op->in[g->x], &op->in[g->dy], &op->out[g->dx], found))
    return false;
  if (!g->has_sums)
    return true;
  found->sums = op->out[g->sums];
  found->sums_add = gd_kernel_adds(op, g->sums);
  return found->sums.elements == found->together.m;
}

bool gd_cuda_activated_find(const struct gd_cuda_step *steps, uint32_t n_steps,
                            struct gd_cuda_activated *found) {
  *found = (struct gd_cuda_activated){0};
  if (n_steps < 2 || steps[0].kind != GD_OP_matmul)
    return false;
  const struct gd_kernel_args *op = steps[1].args;
  gd_cuda_product_of(steps[0].args, &found->apart);
  found->together = found->apart;
  if (!takes_epilogue(&found->apart))
    return false;
  if (steps[1].kind == GD_OP_activate)
    return find_gelu(steps[0].args, op, found);
  if (steps[1].kind == GD_OP_activate_grad)
    return op->attr->activate.function == GD_ACTIVATION_GELU_TANH &&
           find_slope(&op->in[0], &op->in[1], &op->out[0], found);
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

static void make_sums(const struct gd_cuda_activated *found, const struct gd_kernel_args *op,
                      struct sums *sums) {
  const struct gd_cuda_product *p = &found->together;
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

/* What the kernels of a step are built from: another text may take another time. */
static enum gd_status hash_text(const struct gd_cuda_call *call, const struct gd_cuda_step *step,
                                uint64_t *hash) {
  struct gd_strbuf text = {0};
  struct gd_cuda_kernel kernel = {.file = step->kind == GD_OP_sum_rows ? "columns" : "pointwise"};
  enum gd_status status =
      step->kind == GD_OP_fused
          ? gd_cuda_fused_source(step->args->device_fused->text->kernel, true, &text, call->err)
          : gd_cuda_source(&kernel, &text, call->err);
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
  GD_ASSERT(args->n_in <= 2 && args->n_out <= 2); /* the key has room for more */
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

static enum gd_status run_timed(const void *user) {
  const struct timed *timed = user;
  return gd_cuda_step_run(&timed->call, timed->step);
}

/* Microseconds of a step; infinite where it was never timed, which is done in TUNE. */
static enum gd_status time_of(const struct gd_cuda_call *call, const struct gd_cuda_step *step,
                              double *us) {
  struct gd_cuda_choices *choices;
  struct timed timed = {*call, step};
  char key[GD_CUDA_KEY_BYTES];
  *us = HUGE_VAL;
  GD_TRY(write_key(call, step, key));
  GD_TRY(gd_cuda_products_choices(call, &choices));
  struct gd_cuda_choice *choice = gd_cuda_choice_find(choices, key);
  if (choice && choice->note[0])
    *us = strtod(choice->note, NULL);
  if (choice || call->stage != GD_CUDA_TUNE)
    return GD_OK;
  timed.call.args = step->args;
  timed.call.err = NULL; /* a failure is no error: it has no time, and stays apart */
  GD_TRY(gd_cuda_noise_inputs(&timed.call));
  timed.call.stage = GD_CUDA_LAUNCH;
  *us = gd_cuda_time_us(call, run_timed, &timed);
  choice = *us < HUGE_VAL ? gd_cuda_choice_add(choices, key) : NULL;
  if (!choice)
    return GD_OK;
  snprintf(choice->note, sizeof choice->note, "%.1f us", *us);
  choice->state = GD_CUDA_CHOICE_TIMED;
  choices->changed = true;
  return GD_OK;
}

/* --- choosing and running ------------------------------------------------------------------- */

/* In TUNE, everything is timed here that was not before. */
static enum gd_status is_faster(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                                const struct gd_cuda_activated *found, const struct sums *sums,
                                bool *faster) {
  double apart_us, second_us, together_us, sums_us = 0;
  GD_TRY(gd_cuda_product_us(call, &found->apart, &apart_us));
  GD_TRY(gd_cuda_product_us(call, &found->together, &together_us));
  GD_TRY(time_of(call, &steps[1], &second_us));
  if (found->sums.data)
    GD_TRY(time_of(call, &sums->step, &sums_us));
  *faster = isfinite(second_us) && together_us + sums_us < apart_us + second_us;
  return GD_OK;
}

static enum gd_status tune(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                           const struct gd_cuda_activated *found, const struct sums *sums) {
  struct gd_cuda_call first = *call;
  bool done, faster;
  first.args = steps[0].args; /* for the workspace: all have the same */
  GD_TRY(gd_cuda_step_run(call, &steps[0]));
  GD_TRY(gd_cuda_step_run(call, &steps[1]));
  if (found->sums.data)
    GD_TRY(gd_cuda_step_run(call, &sums->step));
  GD_TRY(gd_cuda_product_activated(&first, &found->together, &done));
  return is_faster(&first, steps, found, sums, &faster);
}

enum gd_status gd_cuda_multi_activated(const struct gd_cuda_call *call,
                                       const struct gd_cuda_step *steps, uint32_t n_steps,
                                       uint32_t *taken) {
  struct gd_cuda_activated found;
  struct gd_cuda_call first = *call;
  struct sums sums;
  char how = gd_cuda_said("GPUDAYS_EPILOGUES");
  bool together = how == '1';
  *taken = 0;
  if (how == '0' || call->cuda->deterministic || !gd_cuda_activated_find(steps, n_steps, &found))
    return GD_OK;
  make_sums(&found, steps[1].args, &sums);
  if (call->stage == GD_CUDA_COLLECT) /* the two are called alone, too */
    return found.sums.data ? gd_cuda_step_run(call, &sums.step) : GD_OK;
  if (call->stage == GD_CUDA_TUNE) {
    *taken = 2;
    return tune(call, steps, &found, &sums);
  }
  first.args = steps[0].args;
  if (!together)
    GD_TRY(is_faster(&first, steps, &found, &sums, &together));
  if (together)
    GD_TRY(gd_cuda_product_activated(&first, &found.together, &together));
  if (!together)
    return GD_OK;
  call->cuda->epilogues++;
  *taken = 2;
  return found.sums.data ? gd_cuda_step_run(call, &sums.step) : GD_OK;
}
