/*
 * Causal convolution over sequences, one filter a channel, with its gradients. Letters: B
 * sequences, T steps, C channels, K taps.
 *
 * dx looks ahead where the convolution looks back and is otherwise the same loop. A task is a run
 * of steps of one sequence. dw is a sum over all steps: they are cut into chunks by the shape
 * alone, a chunk is summed in fp32 and the chunks are added in order, in double. Filters lie as
 * [K][C] in the workspace meanwhile; where K C would not fit, channels are taken in panels.
 *
 * Bound: bytes, x and y once each.
 */
#include <string.h>

#include "backend/cpu/cpu_int.h"

enum { RUN_STEPS = 64 };

static struct gd_cpu_conv1d describe(const struct gd_view *x, int64_t taps) {
  return (struct gd_cpu_conv1d){
      .dtype = x->dtype, .steps = x->dims[1], .channels = x->dims[2], .taps = taps, .x = x->data};
}

/* Channels of a panel: those for which one row of K + 1 sums fits the workspace. */
static int64_t panel_of(const struct gd_cpu_conv1d *conv) {
  int64_t most = GD_CPU_PARTIALS / (conv->taps + 1) / 16 * 16;
  GD_ASSERT(most > 0);
  return conv->channels < most ? conv->channels : most;
}

static void next_panel(struct gd_cpu_conv1d *conv, int64_t begin, int64_t panel) {
  conv->begin = begin;
  conv->end = conv->channels - begin < panel ? conv->channels : begin + panel;
}

static void convolve(const struct gd_kernel_args *args, const float *bias, bool ahead) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0];
  struct gd_cpu_conv1d conv = describe(x, args->in[1].dims[2]);
  const float *weight = args->in[1].data; /* [C][K], the tap of the present last */
  float *transposed = args->workspace;
  int64_t panel = panel_of(&conv), runs = (conv.steps + RUN_STEPS - 1) / RUN_STEPS;
  int threads = gd_cpu_threads(args, 4 * x->elements);
  conv.ahead = ahead;
  conv.bias = bias;
  conv.y = args->out[0].data;
  conv.w = transposed;
  for (int64_t begin = 0; begin < conv.channels; begin += panel) {
    next_panel(&conv, begin, panel);
    for (int64_t c = conv.begin; c < conv.end; c++)
      for (int64_t j = 0; j < conv.taps; j++)
        transposed[j * (conv.end - conv.begin) + c - conv.begin] =
            weight[c * conv.taps + conv.taps - 1 - j];
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t task = 0; task < x->dims[0] * runs; task++) {
      int64_t first = task % runs * RUN_STEPS, left = conv.steps - first;
      rows->conv1d(&conv, task / runs, first, first + (left < RUN_STEPS ? left : RUN_STEPS));
    }
  }
}

void gd_cpu_conv1d(const struct gd_kernel_args *args) {
  convolve(args, args->in[2].data, false);
}

void gd_cpu_conv1d_dx(const struct gd_kernel_args *args) {
  convolve(args, NULL, true);
}

/* Sums of steps begin .. end - 1 of all sequences, numbered consecutively: sums[K + 1][channels].
 */
static void sum_chunk(const struct gd_cpu_rows *rows, const struct gd_cpu_conv1d *conv,
                      int64_t begin, int64_t end, float *sums) {
  memset(sums, 0, (size_t)((conv->taps + 1) * (conv->end - conv->begin)) * sizeof *sums);
  while (begin < end) {
    int64_t batch = begin / conv->steps, first = begin % conv->steps;
    int64_t count = conv->steps - first < end - begin ? conv->steps - first : end - begin;
    rows->conv1d_dw(conv, batch, first, first + count, sums);
    begin += count;
  }
}

/* Adds up the chunks of channels begin .. end - 1: dw[C,K] and dbias[C], written or added to. */
static void add_chunks(const struct gd_kernel_args *args, const struct gd_cpu_conv1d *conv,
                       const float *partials, int64_t chunks, int64_t begin, int64_t end) {
  enum { BLOCK = 64 };
  float *dw = args->out[0].data, *dbias = args->out[1].data;
  int64_t taps = conv->taps, width = conv->end - conv->begin;
  for (int64_t c = begin; c < end; c += BLOCK) {
    int64_t count = end - c < BLOCK ? end - c : BLOCK;
    for (int64_t j = 0; j <= taps; j++) {
      double total[BLOCK] = {0};
      for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const float *part = partials + (chunk * (taps + 1) + j) * width + c - conv->begin;
        for (int64_t i = 0; i < count; i++)
          total[i] += (double)part[i];
      }
      bool adds = gd_kernel_adds(args, j < taps ? 0 : 1);
      for (int64_t i = 0; i < count; i++) {
        float *sum = j < taps ? &dw[(c + i) * taps + taps - 1 - j] : &dbias[c + i];
        *sum = adds ? *sum + (float)total[i] : (float)total[i];
      }
    }
  }
}

void gd_cpu_conv1d_dw(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *dy = &args->in[0];
  struct gd_cpu_conv1d conv = describe(&args->in[1], args->attr->rows.rows);
  GD_ASSERT(dy->dtype == args->in[1].dtype);
  float *partials = args->workspace; /* [chunks][K + 1][panel] */
  int64_t panel = panel_of(&conv), count = dy->dims[0] * conv.steps;
  int64_t chunks = gd_cpu_chunks(count, (conv.taps + 1) * panel);
  int threads = gd_cpu_threads(args, 4 * dy->elements);
  conv.dy = dy->data;
  for (int64_t from = 0; from < conv.channels; from += panel) {
    next_panel(&conv, from, panel);
    int64_t width = conv.end - conv.begin;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
      for (int64_t chunk = 0; chunk < chunks; chunk++) {
        struct gd_cpu_range range = gd_cpu_share(count, 1, chunk, chunks);
        sum_chunk(rows, &conv, range.begin, range.end, partials + chunk * (conv.taps + 1) * width);
      }
#pragma omp for schedule(static)
      for (int part = 0; part < threads; part++) {
        struct gd_cpu_range range = gd_cpu_share(width, 16, part, threads);
        add_chunks(args, &conv, partials, chunks, from + range.begin, from + range.end);
      }
    }
  }
}
