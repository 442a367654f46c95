/*
 * Depthwise convolution over images, channels last, with its gradients. Letters: B images, H W rows
 * and columns, C channels, K filter size.
 *
 * dx is the convolution of dy with the mirrored filter, so both run the same loops. A task is
 * one group of channels (one vector) in a band of one image's rows; results do not depend on the
 * bands. dw is a sum over all pixels: the rows of all images are cut into chunks by the shape
 * alone, a chunk is summed in fp32, and the chunks are added in order, in double.
 *
 * Bound: multiply-adds (K^2 an element) for K = 7 and up; bytes for small filters.
 */
#include "backend/cpu/cpu_int.h"
#include "base/sizes.h"

static struct gd_cpu_depthwise describe(const struct gd_view *x, int64_t k) {
  return (struct gd_cpu_depthwise){.dtype = x->dtype,
                                   .height = x->dims[1],
                                   .width = x->dims[2],
                                   .channels = x->dims[3],
                                   .k = k,
                                   .x = x->data};
}

/* filters[group][tap][lane] out of weight[C,K,K]; lanes past the channels are 0. */
static void arrange_filters(float *filters, const float *weight, int64_t taps, int64_t lanes,
                            int64_t channels, int64_t group, bool mirrored) {
  float *out = filters + group * taps * lanes;
  for (int64_t l = 0; l < lanes; l++) {
    int64_t c = group * lanes + l;
    const float *from = weight + c * taps;
    if (c >= channels)
      for (int64_t t = 0; t < taps; t++)
        out[t * lanes + l] = 0;
    else if (mirrored)
      for (int64_t t = 0; t < taps; t++)
        out[t * lanes + l] = from[taps - 1 - t];
    else
      for (int64_t t = 0; t < taps; t++)
        out[t * lanes + l] = from[t];
  }
}

static void convolve(const struct gd_kernel_args *args, const float *bias, bool mirrored) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0], *w = &args->in[1];
  struct gd_cpu_depthwise d = describe(x, w->dims[2]);
  const float *weight = w->data;
  float *filters = args->workspace;
  int64_t taps = d.k * d.k, lanes = rows->lanes, images = x->dims[0];
  int64_t groups = (d.channels + lanes - 1) / lanes;
  int threads = gd_cpu_threads(args, 8 * x->elements);
  /* Several tasks a thread, so that none waits long; a band fetches K - 1 rows of its neighbours.
   */
  int64_t bands = 4 * (int64_t)threads / (images * groups + 1) + 1;
  bands = gd_least(bands, (d.height + 7) / 8);
  d.bias = bias;
  d.y = args->out[0].data;
  d.filters = filters;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int64_t group = 0; group < groups; group++)
      arrange_filters(filters, weight, taps, lanes, d.channels, group, mirrored);
#pragma omp for schedule(static)
    for (int64_t task = 0; task < images * bands * groups; task++) {
      int64_t group = task % groups, band = task / groups % bands, image = task / groups / bands;
      struct gd_cpu_range range = gd_cpu_share(d.height, 1, band, bands);
      rows->depthwise(&d, image, group, range.begin, range.end);
    }
  }
}

/* Whether the loops have room for such filters; no model has larger ones, but they are no error. */
static bool fits(int64_t k, int64_t channels) {
  return k <= GD_CPU_FILTER_MOST && (k * k + 1) * (channels + 16) <= GD_CPU_PARTIALS;
}

void gd_cpu_depthwise(const struct gd_kernel_args *args) {
  if (fits(args->in[1].dims[2], args->in[1].dims[0]))
    convolve(args, args->in[2].data, false);
  else
    gd_cpu_leave_to_ref(GD_OP_depthwise, args);
}

void gd_cpu_depthwise_dx(const struct gd_kernel_args *args) {
  if (fits(args->in[1].dims[2], args->in[1].dims[0]))
    convolve(args, NULL, true);
  else
    gd_cpu_leave_to_ref(GD_OP_depthwise_dx, args);
}

/* Adds up the chunks of channels begin .. end - 1: dw[C,K,K] and dbias[C], written or added to. */
static void add_chunks(const struct gd_kernel_args *args, const float *partials, int64_t chunks,
                       int64_t taps, int64_t channels, int64_t begin, int64_t end) {
  float *dw = args->out[0].data, *dbias = args->out[1].data;
  for (int64_t t = 0; t <= taps; t++)
    for (int64_t c = begin; c < end; c++) {
      double total = 0;
      for (int64_t chunk = 0; chunk < chunks; chunk++)
        total += (double)partials[(chunk * (taps + 1) + t) * channels + c];
      float *sum = t < taps ? &dw[c * taps + t] : &dbias[c];
      *sum = gd_kernel_adds(args, t < taps ? 0 : 1) ? *sum + (float)total : (float)total;
    }
}

void gd_cpu_depthwise_dw(const struct gd_kernel_args *args) {
  enum { CHUNK_PIXELS = 1024 }; /* enough that adding chunks up costs little */
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *dy = &args->in[0], *x = &args->in[1];
  struct gd_cpu_depthwise d = describe(x, args->attr->rows.rows);
  if (!fits(d.k, d.channels)) {
    gd_cpu_leave_to_ref(GD_OP_depthwise_dw, args);
    return;
  }
  float *partials = args->workspace; /* [chunks][K * K + 1][C] */
  int64_t taps = d.k * d.k, lanes = rows->lanes, lines = x->dims[0] * d.height;
  int64_t groups = (d.channels + lanes - 1) / lanes;
  int64_t chunks =
      gd_least(lines * d.width / CHUNK_PIXELS + 1, gd_cpu_chunks(lines, (taps + 1) * d.channels));
  int threads = gd_cpu_threads(args, 8 * x->elements);
  d.dy = dy->data;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int64_t task = 0; task < chunks * groups; task++) {
      int64_t group = task % groups, chunk = task / groups;
      struct gd_cpu_range range = gd_cpu_share(lines, 1, chunk, chunks);
      float *sums = partials + chunk * (taps + 1) * d.channels + group * lanes;
      rows->depthwise_dw(&d, group, range.begin, range.end, sums, d.channels);
    }
#pragma omp for schedule(static)
    for (int part = 0; part < threads; part++) {
      struct gd_cpu_range range = gd_cpu_share(d.channels, 16, part, threads);
      add_chunks(args, partials, chunks, taps, d.channels, range.begin, range.end);
    }
  }
}
