/*
 * Fused ops on a GPU: the kernels that src/codegen writes in CUDA C++, built like the others
 * (module.c) and launched here.
 *
 * Bytes: each full input and output once; weights and statistics come from caches. A kernel without
 * sums over rows has as many blocks as keep the device busy, and its results do not depend on how
 * many. Where rows are summed, each block leaves its partial sums in the workspace and a second
 * kernel adds these in order. How many blocks that are depends on the shape and the size of the
 * workspace alone, so the results have the same bits on every device that has the same arithmetic.
 */
#include <string.h>

#include "backend/cuda/kernels/fused_args.cuh"
#include "backend/cuda/runtime/fused.h"
#include "backend/cuda/runtime/module.h"

enum { SUMS_THREADS = 256, SUMS_COLUMNS = 32 };

_Static_assert((int)GD_MAX_OUTPUTS == (int)GD_FUSED_OUTPUTS &&
                   (int)GD_LOWER_MAX_DROPOUTS == (int)GD_FUSED_STREAMS,
               "kernels take what is lowered");

/* --- texts ---------------------------------------------------------------------------------- */

struct gd_cuda_fusions {
  struct gd_cuda_fused *fused;      /* by fusion of the graph */
  struct gd_cuda_fused_text *texts; /* n_texts of them */
  uint32_t n_fused, n_texts;
};

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while generating CUDA kernels");
}

enum gd_status gd_cuda_fused_source(const char *kernel, bool aligned, struct gd_strbuf *source,
                                    struct gd_error *err) {
  const struct gd_cuda_kernel prelude = {
      .file = "fused", .name = "gd_rows", .defines = aligned ? NULL : "GD_ALIGNED=0"};
  GD_TRY(gd_cuda_source(&prelude, source, err));
  gd_strbuf_append(source, "#line 1 \"generated\"\n");
  gd_strbuf_append(source, kernel);
  return source->failed ? no_memory(err) : GD_OK;
}

static char *copy_of(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = gd_mem_alloc(bytes, 1);
  if (copy)
    memcpy(copy, text, bytes);
  return copy;
}

/* The text with this kernel, a new one if need be; NULL when memory is out. */
static struct gd_cuda_fused_text *text_for(struct gd_cuda_fusions *f, const char *kernel) {
  for (uint32_t i = 0; i < f->n_texts; i++)
    if (strcmp(f->texts[i].kernel, kernel) == 0)
      return &f->texts[i];
  struct gd_cuda_fused_text *text = &f->texts[f->n_texts];
  text->kernel = copy_of(kernel);
  if (!text->kernel)
    return NULL;
  f->n_texts++;
  return text;
}

static void find_vectors(const struct gd_lowered *l, struct gd_cuda_fused *fused) {
  for (uint32_t i = 0; i < l->n_values; i++)
    if (l->values[i].kind == GD_VALUE_LOAD && l->values[i].used)
      fused->in_vectors |= (uint64_t)1 << l->values[i].input;
  for (uint32_t i = 0; i < l->fusion->n_out; i++)
    if (l->results[i].kind == GD_RESULT_FULL)
      fused->out_vectors |= (uint32_t)1 << i;
}

/* The whole of tensor `id` of a body, whatever its shape. */
static bool is_whole(const struct gd_graph *body, gd_tensor_id id, gd_tensor_id of) {
  return gd_tensor_root(body, id, NULL) == of &&
         gd_tensor_elements(body, id) == gd_tensor_elements(body, of);
}

static struct gd_cuda_gelu_grad find_gelu_grad(const struct gd_fusion *f) {
  const struct gd_cuda_gelu_grad none = {0};
  struct gd_cuda_gelu_grad g = {0};
  gd_tensor_id dx = GD_NONE, sums = GD_NONE;
  for (gd_op_id i = 0; i < f->body.n_ops; i++) {
    const struct gd_op *op = &f->body.ops[i];
    if (op->kind == GD_OP_activate_grad && dx == GD_NONE && f->n_in == 2 &&
        op->attr.activate.function == GD_ACTIVATION_GELU_TANH) {
      dx = op->out[0];
      g.x = gd_tensor_root(&f->body, op->in[0], NULL) != 0;
      g.dy = !g.x;
      if (!is_whole(&f->body, op->in[0], g.x) || !is_whole(&f->body, op->in[1], g.dy))
        return none;
    } else if (op->kind == GD_OP_sum_rows && dx != GD_NONE && sums == GD_NONE &&
               is_whole(&f->body, op->in[0], dx)) {
      sums = op->out[0];
    } else if (gd_op_info(op->kind)->op_class != GD_CLASS_VIEW) {
      return none;
    }
  }
  for (uint32_t i = 0; i < f->n_out; i++)
    if (sums != GD_NONE && is_whole(&f->body, f->out[i], sums)) {
      g.sums = (uint8_t)i;
      g.has_sums = true;
    } else if (dx != GD_NONE && is_whole(&f->body, f->out[i], dx)) {
      g.dx = (uint8_t)i;
      g.is_one = true;
    }
  return g.is_one && f->n_out == 1u + g.has_sums ? g : none;
}

static enum gd_status make_text(struct gd_cuda_fusions *f, uint32_t i,
                                const struct gd_fusion *fusion, struct gd_lowered *lowered,
                                struct gd_error *err) {
  struct gd_strbuf kernel = {0};
  if (!gd_lower(fusion, lowered))
    return gd_fail(err, GD_INTERNAL, "fusion %u cannot be a kernel", i);
  if (fusion->columns > INT32_MAX)
    return gd_fail(err, GD_UNSUPPORTED, "a fused op has rows of %lld columns, %d are possible",
                   (long long)fusion->columns, INT32_MAX);
  gd_emit(&gd_dialect_cuda, lowered, &kernel);
  f->fused[i].text = kernel.failed ? NULL : text_for(f, kernel.text);
  gd_strbuf_deinit(&kernel);
  gd_fused_describe(lowered, &f->fused[i].about);
  gd_emit_teams(lowered, &f->fused[i].teams);
  find_vectors(lowered, &f->fused[i]);
  f->fused[i].gelu_grad = find_gelu_grad(fusion);
  return f->fused[i].text ? GD_OK : no_memory(err);
}

enum gd_status gd_cuda_fusions_build(struct gd_cuda *cuda, const struct gd_graph *graph,
                                     struct gd_cuda_fusions **out, struct gd_error *err) {
  (void)cuda;
  enum gd_status status = GD_OK;
  struct gd_lowered *lowered = gd_mem_alloc(1, sizeof *lowered);
  struct gd_cuda_fusions *f = gd_mem_alloc(1, sizeof *f);
  if (f) {
    f->fused = gd_mem_alloc((size_t)graph->n_fusions + 1, sizeof *f->fused);
    f->texts = gd_mem_alloc((size_t)graph->n_fusions + 1, sizeof *f->texts);
    f->n_fused = graph->n_fusions;
  }
  if (!lowered || !f || !f->fused || !f->texts)
    status = no_memory(err);
  for (uint32_t i = 0; i < graph->n_fusions && status == GD_OK; i++)
    status = make_text(f, i, &graph->fusions[i], lowered, err);
  gd_mem_free(lowered);
  if (status != GD_OK) {
    gd_cuda_fusions_free(f);
    return status;
  }
  *out = f;
  return GD_OK;
}

const struct gd_cuda_fused *gd_cuda_fusion(const struct gd_cuda_fusions *fusions, uint32_t fusion) {
  GD_ASSERT(fusion < fusions->n_fused);
  return &fusions->fused[fusion];
}

void gd_cuda_fusions_free(struct gd_cuda_fusions *fusions) {
  if (!fusions)
    return;
  for (uint32_t i = 0; i < fusions->n_texts; i++) {
    gd_mem_free(fusions->texts[i].kernel);
    gd_mem_free(fusions->texts[i].source[0]);
    gd_mem_free(fusions->texts[i].source[1]);
  }
  gd_mem_free(fusions->texts);
  gd_mem_free(fusions->fused);
  gd_mem_free(fusions);
}

static enum gd_status find_source(struct gd_cuda_fused_text *text, bool unaligned,
                                  struct gd_error *err) {
  struct gd_strbuf source = {0};
  if (text->source[unaligned])
    return GD_OK;
  enum gd_status status = gd_cuda_fused_source(text->kernel, !unaligned, &source, err);
  if (status == GD_OK && !(text->source[unaligned] = copy_of(source.text)))
    status = no_memory(err);
  gd_strbuf_deinit(&source);
  return status;
}

/* --- launching ------------------------------------------------------------------------------ */

static bool is_unaligned(const struct gd_view *view, int lanes) {
  int64_t bytes = lanes * gd_dtype_bytes(view->dtype);
  return (uintptr_t)view->data % (uintptr_t)(bytes < 16 ? bytes : 16) != 0;
}

static bool any_unaligned(const struct gd_cuda_fused *fused, const struct gd_kernel_args *args) {
  bool unaligned = false;
  for (uint32_t i = 0; i < args->n_in; i++)
    unaligned |= fused->in_vectors >> i & 1 && is_unaligned(&args->in[i], fused->teams.lanes);
  for (uint32_t i = 0; i < args->n_out; i++)
    unaligned |= fused->out_vectors >> i & 1 && is_unaligned(&args->out[i], fused->teams.lanes);
  return unaligned;
}

/*
 * Blocks of a kernel with sums: as many as run at a time on an H200, whatever the device (132
 * multiprocessors; a few more would run alone when the others are done), fewer where their partial
 * sums would be many bytes compared with the rows, or do not fit.
 */
static int64_t blocks_with_sums(const struct gd_cuda_fused *fused, int64_t workspace_bytes) {
  enum { MULTIPROCESSORS = 132, MOST = 528, FEW = 264 };
  const struct gd_fused_kernel *k = &fused->about;
  int64_t most = (int64_t)MULTIPROCESSORS * fused->teams.resident;
  int64_t team_rows = fused->teams.block / fused->teams.team;
  int64_t groups = (k->row_count + team_rows - 1) / team_rows;
  int64_t worth = k->row_count / (4 * k->n_sums);
  int64_t bytes =
      workspace_bytes < GD_CUDA_WORKSPACE_BYTES ? workspace_bytes : GD_CUDA_WORKSPACE_BYTES;
  int64_t fit = bytes / (k->n_sums * k->columns * (int64_t)sizeof(float));
  int64_t blocks = worth > FEW ? worth : FEW;
  blocks = blocks < most ? blocks : most;
  blocks = blocks < MOST ? blocks : MOST;
  blocks = blocks < groups ? blocks : groups;
  return blocks < fit ? blocks : fit;
}

static enum gd_status launch_sums(const struct gd_cuda_call *call, const struct gd_fused_args *rows,
                                  int64_t blocks) {
  static const struct gd_cuda_kernel kernel = {.file = "fused_sums", .name = "gd_fused_sums"};
  const struct gd_kernel_args *args = call->args;
  const struct gd_fused_kernel *k = &args->device_fused->about;
  struct gd_fused_sums_args sums = {.partials = rows->partials,
                                    .stride = k->n_sums * k->columns,
                                    .columns = k->columns,
                                    .blocks = (int32_t)blocks};
  int64_t n = 0;
  for (uint32_t i = 0; i < args->n_out; i++) {
    if (k->sum_of[i] == GD_NONE)
      continue;
    sums.out[n] = rows->out[i];
    sums.sum[n] = (int32_t)k->sum_of[i];
    sums.adds |= (uint32_t)gd_kernel_adds(args, i) << n;
    n++;
  }
  struct gd_cuda_grid grid = {
      .x = (k->columns + SUMS_COLUMNS - 1) / SUMS_COLUMNS, .y = n, .threads = SUMS_THREADS};
  return GD_CUDA_LAUNCH(call, &kernel, grid, &sums);
}

enum gd_status gd_cuda_op_fused(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_cuda_fused *fused = args->device_fused;
  const struct gd_fused_kernel *k = &fused->about;
  struct gd_cuda_fused_text *text = fused->text;
  bool unaligned = any_unaligned(fused, args);
  struct gd_fused_args rows = {.rows = k->row_count, .partials = args->workspace};
  GD_ASSERT(args->n_in <= GD_FUSED_INPUTS);
  for (uint32_t i = 0; i < args->n_in; i++)
    rows.in[i] = args->in[i].data;
  for (uint32_t i = 0; i < args->n_out; i++)
    rows.out[i] = args->out[i].data;
  memcpy(rows.streams, k->streams, sizeof rows.streams);

  GD_TRY(find_source(text, unaligned, call->err));
  if (call->stage == GD_CUDA_COLLECT)
    GD_TRY(gd_cuda_text_note(call->cuda, text->source[unaligned], call->err));
  int64_t team_rows = fused->teams.block / fused->teams.team;
  int64_t blocks = k->n_sums ? blocks_with_sums(fused, args->workspace_bytes)
                             : gd_cuda_blocks(call->cuda, k->row_count, team_rows, 32);
  if (blocks == 0)
    return gd_fail(call->err, GD_INTERNAL, "the workspace of %lld bytes holds no row of %u sums",
                   (long long)args->workspace_bytes, k->n_sums);
  if (call->stage == GD_CUDA_LAUNCH) {
    struct gd_cuda_grid grid = {
        .x = blocks, .y = fused->teams.parts, .threads = fused->teams.block};
    if (!text->function[unaligned])
      GD_TRY(gd_cuda_text_function(call->cuda, text->source[unaligned], "gd_rows",
                                   &text->function[unaligned], call->err));
    GD_TRY(gd_cuda_launch_function(call, text->function[unaligned], "a fused op", grid,
                                   (void *[]){&rows}));
  }
  return k->n_sums ? launch_sums(call, &rows, blocks) : GD_OK;
}
