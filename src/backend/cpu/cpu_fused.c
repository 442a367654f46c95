/*
 * Fused ops: shares the rows of a generated kernel (src/codegen) out to threads.
 *
 * Where rows are summed they are cut into chunks by the shape alone, as in cpu_norm.c: a chunk is
 * summed in fp32 by whoever takes it, and the chunks are added in order, in double. Bytes: each
 * full input and output once; a row's intermediate values stay in L1.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "codegen/codegen.h"

enum { MOST_INPUTS = 64 };

struct call {
  const struct gd_fused_kernel *kernel;
  const void *in[MOST_INPUTS];
  void *out[GD_MAX_OUTPUTS];
  uint32_t n_out;
  float *partials; /* [chunks][sums][columns] */
  float *buffers;  /* [threads][buffer floats] */
};

static float *buffer_of(const struct call *call) {
  return call->buffers + omp_get_thread_num() * gd_cpu_buffer_floats(call->kernel->buffer_floats);
}

static void run_rows(const struct call *call, int threads) {
  const struct gd_fused_kernel *k = call->kernel;
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(k->row_count, 1, part, threads);
    k->function(call->in, call->out, k->streams, range.begin, range.end, buffer_of(call), NULL);
  }
}

static void run_chunks(const struct call *call, int64_t chunks, int threads) {
  const struct gd_fused_kernel *k = call->kernel;
  const int64_t floats = k->n_sums * k->columns;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
      struct gd_cpu_range range = gd_cpu_share(k->row_count, 1, c, chunks);
      float *sums = call->partials + c * floats;
      memset(sums, 0, (size_t)floats * sizeof *sums);
      k->function(call->in, call->out, k->streams, range.begin, range.end, buffer_of(call), sums);
    }
#pragma omp for schedule(static)
    for (int part = 0; part < threads; part++) {
      struct gd_cpu_range range = gd_cpu_share(k->columns, 16, part, threads);
      for (uint32_t i = 0; i < call->n_out; i++)
        if (k->sum_of[i] != GD_NONE)
          gd_cpu_add_chunks(call->out[i], call->partials + k->sum_of[i] * k->columns, chunks,
                            floats, range.begin, range.end, false);
    }
  }
}

void gd_cpu_fused(const struct gd_kernel_args *args) {
  const struct gd_fused_kernel *k = args->fused;
  struct call call = {.kernel = k, .n_out = args->n_out, .buffers = args->workspace};
  int threads = gd_cpu_threads(args, 2 * k->row_bytes * k->row_count);
  for (uint32_t i = 0; i < args->n_in; i++)
    call.in[i] = args->in[i].data;
  for (uint32_t i = 0; i < args->n_out; i++)
    call.out[i] = args->out[i].data;
  call.partials = call.buffers + threads * gd_cpu_buffer_floats(k->buffer_floats);
  if (k->n_sums == 0)
    run_rows(&call, threads);
  else
    run_chunks(&call, gd_cpu_chunks(k->row_count, k->n_sums * k->columns), threads);
}
