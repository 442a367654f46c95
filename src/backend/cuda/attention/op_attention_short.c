/*
 * Attention over short sequences of fp32 in TF32, by kernels/attention_short.cu: which ops it
 * takes, and its launches. Everything else is op_attention.c's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/runtime/autotune.h"

enum {
  TILE = 16,
  MOST_TILES = 13,      /* T 208: 13 warps have 128 registers each, or twice 72; dscores fit */
  STATIC_BYTES = 16,    /* of shared memory; of the gradient also two floats a row */
  TWO_BLOCKS_TILES = 6, /* up to here there are registers for two blocks of the gradient */
};

struct shape {
  int64_t heads, steps, size;
  int tiles;
  bool gradient, aligned;
};

/* Inputs are q, k, v, ..., in the gradient behind dout. Aligned: vectors of 16 bytes may be loaded
   and stored. */
static struct shape shape_of(const struct gd_kernel_args *args, bool gradient) {
  const struct gd_view *q = &args->in[gradient];
  struct shape shape = {.heads = q->dims[0] * q->dims[1],
                        .steps = q->dims[2],
                        .size = q->dims[3],
                        .tiles = (int)((q->dims[2] + TILE - 1) / TILE),
                        .gradient = gradient,
                        .aligned = true};
  for (uint32_t i = 0; i < (gradient ? 5u : 3u); i++)
    shape.aligned &= (uintptr_t)args->in[i].data % 16 == 0;
  for (uint32_t i = 0; i < (gradient ? 3u : 1u); i++)
    shape.aligned &= (uintptr_t)args->out[i].data % 16 == 0;
  return shape;
}

/* As the kernels lay it out: rows of fp16, padded by 16 bytes against bank conflicts. */
static int64_t shared_bytes(const struct shape *s) {
  int64_t rows = (int64_t)s->tiles * TILE, matrix = rows * (2 * s->size + 16);
  return s->gradient ? 4 * matrix + rows * (2 * rows + 16) : 3 * matrix;
}

static bool is_gradient(const struct gd_kernel_args *args) {
  return args->n_out == 3; /* dq, dk, dv; forward has out and logsumexp */
}

/* It rounds to fp16, as the emulation of TF32 does: what rules that out rules this out. */
static bool is_wanted(void) {
  char how = gd_cuda_switch("GPUDAYS_ATTENTION_SHORT");
  return how ? how == '1' : gd_cuda_switch("GPUDAYS_TF32_EMULATED") != '0';
}

bool gd_cuda_short_attention_takes(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_attention *attr = &args->attr->attention;
  bool gradient = is_gradient(args);
  const struct gd_view *q = &args->in[gradient], *k = &args->in[gradient + 1];
  struct shape s = shape_of(args, gradient);
  int64_t fixed =
      STATIC_BYTES + (gradient ? (int64_t)s.tiles * TILE * 2 * (int64_t)sizeof(float) : 0);
  return q->dtype == GD_DTYPE_F32 && attr->tf32 && attr->probability == 0 && attr->scale > 0 &&
         q->dims[1] == k->dims[1] && (s.size == 16 || s.size == 32 || s.size == 64) &&
         s.steps > 0 && s.tiles <= MOST_TILES && is_wanted() &&
         shared_bytes(&s) + fixed <= call->cuda->shared_bytes;
}

/* Blocks of the gradient kernel that one multiprocessor holds. */
static int blocks_of_gradient(const struct shape *s) {
  return s->tiles <= TWO_BLOCKS_TILES ? 2 : 1;
}

static enum gd_status launch(const struct gd_cuda_call *call, const struct shape *s,
                             void **params) {
  char defines[80];
  snprintf(defines, sizeof defines, "HEAD=%d TILES=%d BLOCKS=%d ALIGNED=%d", (int)s->size, s->tiles,
           blocks_of_gradient(s), s->aligned);
  struct gd_cuda_kernel kernel = {.file = "attention_short",
                                  .name = s->gradient ? "attention_short_grad" : "attention_short",
                                  .defines = defines};
  struct gd_cuda_grid grid = {
      .x = s->heads, .threads = s->tiles * 32, .shared_bytes = (int)shared_bytes(s)};
  call->cuda->short_attentions += call->stage == GD_CUDA_LAUNCH;
  return gd_cuda_launch(call, &kernel, grid, params);
}

/* chunk: heads that are worked on at once. */
static struct gd_attention args_of(const struct gd_cuda_call *call, const struct shape *s) {
  const struct gd_attr_attention *attr = &call->args->attr->attention;
  return (struct gd_attention){.heads = s->heads,
                               .chunk = call->cuda->sm_count * blocks_of_gradient(s),
                               .group = 1,
                               .steps = (int32_t)s->steps,
                               .size = (int32_t)s->size,
                               .causal = attr->causal,
                               .scale = attr->scale,
                               .exponent = (float)((double)attr->scale * 1.4426950408889634)};
}

enum gd_status gd_cuda_short_attention(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  struct shape shape = shape_of(args, false);
  struct gd_attention device = args_of(call, &shape);
  const struct gd_view *in = args->in, *out = args->out;
  void *q = in[0].data, *k = in[1].data, *v = in[2].data, *to = out[0].data, *lse = out[1].data;
  return launch(call, &shape, (void *[]){&q, &k, &v, &to, &lse, &device});
}

enum gd_status gd_cuda_short_attention_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  struct shape shape = shape_of(args, true);
  struct gd_attention device = args_of(call, &shape);
  const struct gd_view *in = args->in, *to = args->out;
  void *dout = in[0].data, *q = in[1].data, *k = in[2].data, *v = in[3].data, *out = in[4].data;
  void *lse = in[5].data, *dq = to[0].data, *dk = to[1].data, *dv = to[2].data;
  return launch(call, &shape, (void *[]){&dout, &q, &k, &v, &out, &lse, &dq, &dk, &dv, &device});
}
