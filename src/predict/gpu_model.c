/*
 * The GPU model; see gpu_model.h. Where a constant is no parameter, its source is next to it.
 */
#include "predict/gpu_model.h"

#include <math.h>
#include <string.h>

#include "base/embedded.h"
#include "base/file.h"
#include "base/paths.h"

static const struct gd_gpu_parameter_info parameters[GD_GPU_PARAMETERS] = {
    [GD_GPU_GEMM] = {"gemm", "of the peak at its clock", "large GEMMs", 0.90, 0.05},
    [GD_GPU_START] = {"start", "of K", "length of a sum that the start of a tile costs", 100, 0.5},
    [GD_GPU_MEMORY] = {"memory", "of the data sheet's", "bandwidth of all else", 0.70, 0.1},
    [GD_GPU_GAP] = {"gap", "s", "between two kernels", 3.5e-6, 0.4},
    [GD_GPU_ATTENTION] = {"attention", "of the peak at its clock", "GEMMs of fused attention", 0.5,
                          0.15},
    [GD_GPU_SOFTMAX] = {"softmax", "cycles", "a score on a multiprocessor, forward", 0.07, 0.3},
    [GD_GPU_SOFTMAX_GRAD] = {"softmax_grad", "cycles", "likewise, backward", 0.16, 0.3},
    [GD_GPU_MMA] = {"mma", "of the peak", "attention written for Ampere on Hopper", 0.55, 0.15},
    [GD_GPU_BOOST] = {"boost", "x", "clock of cards over the data sheet's", 1.08, 0.03},
    [GD_GPU_WATTS_12NM] = {"watts_12nm", "W a TFLOP/s", "Volta, Turing", 2.2, 0.15},
    [GD_GPU_WATTS_7NM] = {"watts_7nm", "W a TFLOP/s", "A100", 1.1, 0.15},
    [GD_GPU_WATTS_8NM] = {"watts_8nm", "W a TFLOP/s", "other Amperes", 1.9, 0.15},
    [GD_GPU_WATTS_ADA] = {"watts_ada", "W a TFLOP/s", "Ada, cards of Blackwell", 1.45, 0.15},
    [GD_GPU_WATTS_HOPPER] = {"watts_hopper", "W a TFLOP/s", "Hopper", 0.85, 0.15},
    [GD_GPU_WATTS_B200] = {"watts_b200", "W a TFLOP/s", "Blackwell of servers", 0.55, 0.15},
    /* NCCL's channels hold a multiprocessor each: 16 to 24 of the 108 of an A100. */
    [GD_GPU_EXPOSED] = {"exposed", "of their time", "what overlapped collectives add", 0.2, 0.4},
};

const struct gd_gpu_parameter_info *gd_gpu_parameter(enum gd_gpu_parameter parameter) {
  GD_ASSERT(parameter < GD_GPU_PARAMETERS);
  return &parameters[parameter];
}

void gd_gpu_fit_start(struct gd_gpu_fit *fit) {
  for (int i = 0; i < GD_GPU_PARAMETERS; i++)
    fit->value[i] = parameters[i].start;
}

static enum gd_status read_fit(const struct gd_json *json, struct gd_gpu_fit *fit,
                               struct gd_error *err) {
  const json_t *values = json_object_get(json->root, "parameters");
  struct gd_gpu_fit read;
  if (!json_is_object(values))
    return gd_json_mismatch(json, json->root, "parameters", "an object", err);
  for (int i = 0; i < GD_GPU_PARAMETERS; i++)
    GD_TRY(gd_json_number(json, values, parameters[i].name, 1e-9, 1e9, &read.value[i], err));
  *fit = read;
  return GD_OK;
}

enum gd_status gd_fitted_open(struct gd_json *json, bool *found, struct gd_error *err) {
  char path[4096];
  *found = true;
  if (gd_path_data("fitted.json", path, sizeof path) && !gd_file_is_missing(path))
    return gd_json_load(json, path, err);
  const struct gd_embedded_file *file = gd_embedded_find("fitted/published.json");
  *found = file != NULL;
  return file ? gd_json_parse(json, file->path, file->text, file->length, err) : GD_OK;
}

enum gd_status gd_gpu_fit_load(struct gd_gpu_fit *fit, struct gd_error *err) {
  struct gd_json json = {0};
  bool found;
  gd_gpu_fit_start(fit);
  GD_TRY(gd_fitted_open(&json, &found, err));
  enum gd_status status = found ? read_fit(&json, fit, err) : GD_OK;
  gd_json_deinit(&json);
  return status;
}

/* --- a GPU ---------------------------------------------------------------------------------- */

/* Units for fp32 of a multiprocessor: NVIDIA's white papers of each generation. */
static double fp32_lanes(int compute_capability) {
  return compute_capability <= 80 ? 64 : 128;
}

/*
 * Rows that begin anywhere cannot be read 16 bytes at a time, nor by what feeds Hopper's own
 * instructions: kernels of before load element by element, and loads are what they wait for. A
 * multiprocessor does so many FLOPs a cycle with 2 bytes a load: 139 TFLOP/s of an H200, GEMMs
 * with RoBERTa's vocabulary of 50,265 (results/cuda-notes.md).
 */
static const double odd_flops_a_cycle = 530;

double gd_gpu_odd_flops(double fp32_flops, int compute_capability) {
  return odd_flops_a_cycle * fp32_flops / (2 * fp32_lanes(compute_capability));
}

static enum gd_gpu_parameter process_of(const struct gd_gpu *gpu) {
  int capability = gpu->compute_capability;
  return capability < 80    ? GD_GPU_WATTS_12NM
         : capability == 80 ? GD_GPU_WATTS_7NM
         : capability < 89  ? GD_GPU_WATTS_8NM
         : capability == 89 ? GD_GPU_WATTS_ADA
         : capability < 100 ? GD_GPU_WATTS_HOPPER
         : capability < 120 ? GD_GPU_WATTS_B200
                            : GD_GPU_WATTS_ADA;
}

static bool is_datacenter(const struct gd_gpu *gpu) {
  return strcmp(gpu->class_name, "datacenter") == 0;
}

static bool has_wgmma(const struct gd_gpu *gpu) {
  return gpu->compute_capability >= 90 && gpu->compute_capability < 120;
}

bool gd_gpu_uses(const struct gd_gpu *gpu, enum gd_gpu_parameter parameter) {
  switch (parameter) {
  case GD_GPU_MMA: return has_wgmma(gpu);
  case GD_GPU_BOOST: return !is_datacenter(gpu);
  case GD_GPU_WATTS_12NM:
  case GD_GPU_WATTS_7NM:
  case GD_GPU_WATTS_8NM:
  case GD_GPU_WATTS_ADA:
  case GD_GPU_WATTS_HOPPER:
  case GD_GPU_WATTS_B200: return parameter == process_of(gpu);
  default: return true;
  }
}

/* A unit that a GPU lacks is the other one of 16 bits, or the next wider. */
static void set_rates(const struct gd_gpu *gpu, struct gd_gpu_model *m) {
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    m->flops[i] = gpu->flops[i];
  if (m->flops[GD_PEAK_TF32] <= 0)
    m->flops[GD_PEAK_TF32] = m->flops[GD_PEAK_FP32];
  if (m->flops[GD_PEAK_FP16] <= 0)
    m->flops[GD_PEAK_FP16] =
        m->flops[GD_PEAK_BF16] > 0 ? m->flops[GD_PEAK_BF16] : m->flops[GD_PEAK_TF32];
  if (m->flops[GD_PEAK_BF16] <= 0)
    m->flops[GD_PEAK_BF16] = m->flops[GD_PEAK_FP16];
}

void gd_gpu_model_make(const struct gd_gpu *gpu, const struct gd_gpu_fit *fit,
                       struct gd_gpu_model *model) {
  struct gd_gpu_model m = {.fit = *fit,
                           .memory_bytes_per_s = gpu->memory_bytes_per_s,
                           .multiprocessors = gpu->multiprocessors};
  bool datacenter = is_datacenter(gpu);
  set_rates(gpu, &m);
  m.clock_hz =
      gpu->flops[GD_PEAK_FP32] / (2 * fp32_lanes(gpu->compute_capability) * m.multiprocessors);
  m.wgmma = has_wgmma(gpu);
  m.has_flash = gpu->compute_capability >= 80;
  /* 512 flops a cycle and multiprocessor are the half rate of GeForce cards from Turing on. */
  double cycle = m.flops[GD_PEAK_FP16] / (m.multiprocessors * m.clock_hz);
  bool half = cycle < 700 && gpu->compute_capability >= 75;
  /* Tensor cores at half rate wait half as long for their operands. */
  double gemm = fit->value[GD_GPU_GEMM], attention = fit->value[GD_GPU_ATTENTION];
  m.gemm_share = half ? (1 + gemm) / 2 : gemm;
  m.attention_share = half ? 2 * attention / (1 + attention) : attention;
  struct gd_power_units units = {.watts_per_tflops = fit->value[process_of(gpu)],
                                 .clock_most = datacenter ? 1 : fit->value[GD_GPU_BOOST],
                                 .half_rate = half};
  memcpy(units.flops, m.flops, sizeof units.flops);
  gd_power_of(gpu, &units, &m.power);
  *model = m;
}

/* --- a piece of work ------------------------------------------------------------------------ */

/*
 * The share of the multipliers that a GEMM keeps busy: the best of four tiles, each with what it
 * reaches on one multiprocessor; the edges; the last wave of tiles; the start of each tile's sum.
 * GEMMs with few tiles and a long sum are cut along it, 512 a piece, as the libraries do.
 */
static double tiled_share(const struct gd_gpu_model *model, const double *sizes) {
  static const struct {
    double m, n, reach;
  } tiles[] = {{256, 128, 1}, {128, 128, 0.97}, {128, 64, 0.85}, {64, 64, 0.7}};
  const double piece = 512;
  double batch = sizes[0], m = fmax(sizes[1], sizes[2]), n = fmin(sizes[1], sizes[2]);
  double k = sizes[3], start = model->fit.value[GD_GPU_START], best = 0;
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
    double rows = ceil(m / tiles[i].m), columns = ceil(n / tiles[i].n), pieces = 1;
    double count = batch * rows * columns;
    double edges = m * n / (rows * tiles[i].m * columns * tiles[i].n);
    if (count < model->multiprocessors)
      pieces = fmax(1, fmin(floor(k / piece), floor(model->multiprocessors / count)));
    double waves = count * pieces / model->multiprocessors, each = k / pieces;
    best = fmax(best, tiles[i].reach * edges * waves / ceil(waves) * each / (each + start));
  }
  return best;
}

/* Both take their time; the longer one hides most of the shorter. */
static double overlapped(double a, double b) {
  double a4 = a * a * a * a, b4 = b * b * b * b;
  return sqrt(sqrt(a4 + b4));
}

static double memory_s(const struct gd_gpu_model *model, double bytes) {
  return bytes / (model->fit.value[GD_GPU_MEMORY] * model->memory_bytes_per_s);
}

static void time_gemm(const struct gd_gpu_model *model, const struct gd_work *work,
                      struct gd_gpu_timing *timing) {
  timing->bound = GD_GPU_TIMING_GEMM;
  timing->flops = work->flops;
  timing->rate = model->flops[work->unit] * model->gemm_share;
  double start = model->fit.value[GD_GPU_START];
  if (timing->multiprocessors != model->multiprocessors || timing->start != start)
    timing->share = tiled_share(model, work->sizes);
  timing->multiprocessors = model->multiprocessors;
  timing->start = start;
  timing->memory_s = memory_s(model, work->bytes);
}

/*
 * FlashAttention (arXiv:2205.14135, 2307.08691): GEMMs on the tensor cores, and exponentials and
 * scaling of each score, which no tensor core does. Heads of short sequences fill blocks badly. On
 * Hopper kernels for Ampere use instructions that reach part of its rate (arXiv:2407.08608).
 */
static void time_attention(const struct gd_gpu_model *model, const struct gd_work *work,
                           const struct gd_gpu_software *software, struct gd_gpu_timing *timing) {
  const double block = 192;
  bool backward = gd_op_info(work->kind)->work == GD_WORK_ATTENTION_GRAD;
  double length = work->sizes[1], head = work->sizes[2];
  double scores = work->flops / ((backward ? 10 : 4) * head);
  double rate = model->flops[work->unit] * model->attention_share *
                (model->wgmma && !software->native ? model->fit.value[GD_GPU_MMA] : 1) *
                (model->has_flash ? 1 : 0.5); /* older GPUs have xFormers' kernels at best */
  double cycles = scores * model->fit.value[backward ? GD_GPU_SOFTMAX_GRAD : GD_GPU_SOFTMAX];
  timing->bound = GD_GPU_TIMING_ATTENTION;
  timing->seconds = work->flops / rate + cycles / (model->multiprocessors * model->clock_hz);
  timing->speed = software->attention;
  timing->edge = length + block;
  timing->each = length;
  timing->memory_s = memory_s(model, work->bytes);
}

/* Whether its bytes are moved op by op, so that a stack may move more of them. */
static bool is_moved(const struct gd_work *work) {
  enum gd_work_class class = gd_op_info(work->kind)->work;
  return class != GD_WORK_MATMUL && class != GD_WORK_LINEAR_XENT && class != GD_WORK_ATTENTION &&
         class != GD_WORK_ATTENTION_GRAD;
}

void gd_gpu_timing_make(const struct gd_gpu_model *model, const struct gd_work *work,
                        const struct gd_gpu_software *software, struct gd_gpu_timing *timing) {
  timing->gap_s = model->fit.value[GD_GPU_GAP];
  switch (gd_op_info(work->kind)->work) {
  case GD_WORK_NONE:
  case GD_WORK_COLLECTIVE:
  case GD_WORK_TRANSFER: timing->gap_s = 0; return;
  case GD_WORK_MATMUL:
  case GD_WORK_LINEAR_XENT: time_gemm(model, work, timing); return;
  case GD_WORK_ATTENTION:
  case GD_WORK_ATTENTION_GRAD: time_attention(model, work, software, timing); return;
  default: timing->memory_s = memory_s(model, software->traffic * work->bytes);
  }
}

double gd_gpu_timing_seconds(const struct gd_gpu_timing *t, double clock) {
  double seconds = t->memory_s;
  if (t->bound == GD_GPU_TIMING_GEMM)
    seconds = overlapped(t->flops / (t->rate * clock * t->share), t->memory_s);
  else if (t->bound == GD_GPU_TIMING_ATTENTION)
    seconds = fmax(t->seconds / (clock * t->speed) * t->edge / t->each, t->memory_s);
  return seconds + t->gap_s;
}

double gd_gpu_model_seconds(const struct gd_gpu_model *model, const struct gd_work *work,
                            const struct gd_gpu_software *software, double clock) {
  struct gd_gpu_timing timing = {0};
  gd_gpu_timing_make(model, work, software, &timing);
  return gd_gpu_timing_seconds(&timing, clock);
}

/* --- power ---------------------------------------------------------------------------------- */

void gd_gpu_model_load(const struct gd_gpu_model *model, const struct gd_work *work, double traffic,
                       double count, struct gd_power_load *load) {
  double bytes = work->bytes * (is_moved(work) ? traffic : 1);
  gd_power_add(&model->power, work->unit, count * work->flops, count * bytes, load);
}

struct one_gemm {
  const struct gd_gpu_model *model;
  struct gd_work work;
};

static double one_seconds(void *user, double clock) {
  const struct one_gemm *one = user;
  static const struct gd_gpu_software plain = {1, 1, true};
  return gd_gpu_model_seconds(one->model, &one->work, &plain, clock);
}

double gd_gpu_model_gemm_flops(const struct gd_gpu_model *model, double m, double n, double k) {
  struct one_gemm one = {.model = model,
                         .work = {.kind = GD_OP_matmul,
                                  .unit = GD_PEAK_BF16,
                                  .sizes = {1, m, n, k},
                                  .flops = 2 * m * n * k,
                                  .bytes = 2 * (m * k + n * k + m * n)}};
  struct gd_power_load load = {0};
  gd_gpu_model_load(model, &one.work, 1, 1, &load);
  return one.work.flops /
         one_seconds(&one, gd_power_clock(&model->power, &load, one_seconds, &one));
}
