/*
 * Calibration files: JSON with the peaks, the links, one array a measured point, and what the
 * predictions made from it were checked against.
 *
 *   "points": [["matmul", "bf16", variant, on_host, [batch, M, N, K], flops, bytes, seconds], ...]
 *   "rates":  [{"op": "attention", "unit": "bf16", "flops_per_s": 2.9e14, "source": "..."}, ...]
 *
 *   "learned": {"trials": 29, "from": "...", "square": 0.004, "energy": 1.6, "host": 0.6, "step":
 * 1, "without": [{"model": "pythia-1b", "energy": 1.7, ...}, ...]} "errors": {"naive": {"trials":
 * 7, "median_error": 0.29, "worst_error": 0.35, "cpus": [16, 16]}}
 *
 * Points are compared by size; rates hold for any size of their op. Errors are those of predictions
 * for measured trials; `gpudays accuracy --calibration FILE` writes them.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "hw/hw.h"
#include "predict/rates.h"

enum { FORMAT = 1, MOST_POINTS = 100000 };

/* --- reading ------------------------------------------------------------------------------- */

static enum gd_status read_text(const struct gd_json *json, const char *key, char *to, size_t size,
                                struct gd_error *err) {
  const char *text = "";
  if (gd_json_has(json->root, key))
    GD_TRY(gd_json_string(json, json->root, key, &text, err));
  snprintf(to, size, "%s", text);
  return GD_OK;
}

static enum gd_status read_count(const struct gd_json *json, const char *key, int *to,
                                 struct gd_error *err) {
  int64_t value = 0;
  if (gd_json_has(json->root, key))
    GD_TRY(gd_json_int(json, json->root, key, 0, 1000000, &value, err));
  *to = (int)value;
  return GD_OK;
}

static enum gd_status read_link(const struct gd_json *json, const char *key, struct gd_link *link,
                                struct gd_error *err) {
  const json_t *object = json_object_get(json->root, key);
  if (!json_is_object(object))
    return gd_json_mismatch(json, json->root, key, "an object with bytes_per_s and latency_s", err);
  GD_TRY(gd_json_number(json, object, "bytes_per_s", 1, 1e18, &link->bytes_per_s, err));
  return gd_json_number(json, object, "latency_s", 0, 10, &link->latency_s, err);
}

static bool read_number(const json_t *value, double low, double *to) {
  double number = json_number_value(value);
  *to = number;
  return json_is_number(value) && isfinite(number) && number >= low;
}

/* False: not a point. An op that this version does not have is a point to skip (*known false). */
static bool read_point(const json_t *row, struct gd_work *work, double *seconds, bool *known) {
  const json_t *sizes = json_array_get(row, 4);
  const char *kind = json_string_value(json_array_get(row, 0));
  const char *unit = json_string_value(json_array_get(row, 1));
  const json_t *variant = json_array_get(row, 2);
  *work = (struct gd_work){0};
  if (json_array_size(row) != 8 || !kind || !unit || !json_is_integer(variant) ||
      !json_is_array(sizes) || json_array_size(sizes) != GD_WORK_SIZES ||
      !gd_unit_parse(unit, &work->unit))
    return false;
  *known = gd_op_find(kind, &work->kind);
  work->variant = (uint64_t)json_integer_value(variant);
  work->on_host = json_is_true(json_array_get(row, 3));
  for (size_t i = 0; i < GD_WORK_SIZES; i++)
    if (!read_number(json_array_get(sizes, i), 1, &work->sizes[i]))
      return false;
  return read_number(json_array_get(row, 5), 0, &work->flops) &&
         read_number(json_array_get(row, 6), 0, &work->bytes) &&
         read_number(json_array_get(row, 7), 1e-12, seconds);
}

/* Peaks are measured or of a data sheet, and clocks vary: twice the peak is no measurement. */
static bool is_impossible(const struct gd_rates *rates, const struct gd_work *work,
                          double seconds) {
  double peak = rates->flops[work->unit];
  return gd_op_info(work->kind)->work == GD_WORK_MATMUL && !work->on_host && peak > 0 &&
         work->flops > 2 * peak * seconds;
}

static enum gd_status read_points(const struct gd_json *json, struct gd_rates *rates,
                                  struct gd_error *err) {
  const json_t *points = json_object_get(json->root, "points"), *row;
  size_t i;
  if (!points)
    return GD_OK;
  if (!json_is_array(points) || json_array_size(points) > MOST_POINTS ||
      json_array_size(points) == 0)
    return gd_json_mismatch(json, json->root, "points", "a list of 1 to 100,000 points", err);
  json_array_foreach(points, i, row) {
    struct gd_work work;
    double seconds;
    bool known = false;
    if (!read_point(row, &work, &seconds, &known))
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: points[%zu] is no point; expected [op, unit, variant, on host, [4 "
                     "sizes], flops, bytes, seconds]",
                     json->file, i);
    if (known && is_impossible(rates, &work, seconds))
      return gd_fail(
          err, GD_BAD_INPUT,
          "%s: points[%zu] is a matmul of %.3g FLOP/s, and the peak there is %.3g: these "
          "times are not of that device",
          json->file, i, work.flops / seconds, rates->flops[work.unit]);
    if (known)
      GD_TRY(gd_rates_add(rates, &work, seconds, err));
  }
  return GD_OK;
}

/* A rate for every size is a point of one second's work, without the cost of its launch. */
static enum gd_status read_rate(const struct gd_json *json, const json_t *row,
                                struct gd_rates *rates, struct gd_error *err) {
  const char *op, *unit;
  struct gd_work work = {.sizes = {1, 1e6, 1e6, 1e6}};
  GD_TRY(gd_json_string(json, row, "op", &op, err));
  GD_TRY(gd_json_string(json, row, "unit", &unit, err));
  if (!gd_op_find(op, &work.kind))
    return gd_json_mismatch(json, row, "op", "a kind of op", err);
  if (!gd_unit_parse(unit, &work.unit))
    return gd_json_mismatch(json, row, "unit", "fp32, tf32, fp16 or bf16", err);
  if (gd_json_has(row, "variant")) {
    int64_t variant;
    GD_TRY(gd_json_int(json, row, "variant", 0, INT64_MAX, &variant, err));
    work.variant = (uint64_t)variant;
  }
  if (gd_json_has(row, "on_host"))
    GD_TRY(gd_json_bool(json, row, "on_host", &work.on_host, err));
  if (gd_json_has(row, "flops_per_s"))
    GD_TRY(gd_json_number(json, row, "flops_per_s", 1, 1e20, &work.flops, err));
  else
    GD_TRY(gd_json_number(json, row, "bytes_per_s", 1, 1e20, &work.bytes, err));
  GD_TRY(gd_rates_add(rates, &work, 1, err));
  rates->points[rates->n_points - 1].any_size = true;
  return GD_OK;
}

static enum gd_status read_rates(const struct gd_json *json, struct gd_rates *rates,
                                 struct gd_error *err) {
  const json_t *list = json_object_get(json->root, "rates"), *row;
  size_t i;
  json_array_foreach(list, i, row) {
    if (!json_is_object(row))
      return gd_json_mismatch(json, json->root, "rates", "objects with op, unit and a rate", err);
    GD_TRY(read_rate(json, row, rates, err));
  }
  return GD_OK;
}

static enum gd_status read_names(const struct gd_json *json, struct gd_rates *r,
                                 struct gd_error *err) {
  GD_TRY(read_text(json, "device", r->device, sizeof r->device, err));
  GD_TRY(read_text(json, "gpu", r->gpu, sizeof r->gpu, err));
  GD_TRY(read_text(json, "architecture", r->architecture, sizeof r->architecture, err));
  GD_TRY(read_text(json, "backend", r->backend, sizeof r->backend, err));
  GD_TRY(read_text(json, "version", r->version, sizeof r->version, err));
  GD_TRY(read_text(json, "commit", r->commit, sizeof r->commit, err));
  GD_TRY(read_text(json, "date", r->date, sizeof r->date, err));
  GD_TRY(read_text(json, "source", r->source, sizeof r->source, err));
  GD_TRY(read_text(json, "peer_source", r->peer_source, sizeof r->peer_source, err));
  GD_TRY(read_count(json, "compute_capability", &r->compute_capability, err));
  GD_TRY(read_count(json, "multiprocessors", &r->multiprocessors, err));
  GD_TRY(read_count(json, "threads", &r->threads, err));
  return read_count(json, "cpus", &r->cpus, err);
}

static enum gd_status read_checked(const struct gd_json *json, struct gd_rates *r,
                                   struct gd_error *err) {
  const json_t *checked = json_object_get(json->root, "checked");
  const char *what;
  int64_t trials;
  if (!checked || json_is_null(checked))
    return GD_OK;
  if (!json_is_object(checked))
    return gd_json_mismatch(json, json->root, "checked", "an object", err);
  GD_TRY(gd_json_int(json, checked, "trials", 0, 1000000, &trials, err));
  GD_TRY(gd_json_number(json, checked, "median_error", 0, 100, &r->median_error, err));
  GD_TRY(gd_json_number(json, checked, "worst_error", 0, 100, &r->worst_error, err));
  GD_TRY(gd_json_string(json, checked, "what", &what, err));
  r->checked_trials = (int)trials;
  snprintf(r->checked, sizeof r->checked, "%s", what);
  return GD_OK;
}

static enum gd_status read_class_errors(const struct gd_json *json, const json_t *row,
                                        struct gd_trial_errors *to, struct gd_error *err) {
  const json_t *cpus = json_object_get(row, "cpus");
  const json_t *least = json_array_get(cpus, 0), *most = json_array_get(cpus, 1);
  int64_t trials;
  if (!json_is_object(row))
    return gd_json_mismatch(json, json->root, "errors", "an object a class of points", err);
  GD_TRY(gd_json_int(json, row, "trials", 1, 1000000, &trials, err));
  GD_TRY(gd_json_number(json, row, "median_error", 0, 100, &to->median_error, err));
  GD_TRY(gd_json_number(json, row, "worst_error", 0, 100, &to->worst_error, err));
  if (!json_is_integer(least) || !json_is_integer(most) || json_integer_value(least) < 0 ||
      json_integer_value(most) > 1000000 || json_integer_value(least) > json_integer_value(most))
    return gd_json_mismatch(json, row, "cpus", "the least and the most CPUs of a rank", err);
  to->cpus_least = (int)json_integer_value(least);
  to->cpus_most = (int)json_integer_value(most);
  to->trials = (int)trials;
  return GD_OK;
}

static enum gd_status read_errors(const struct gd_json *json, struct gd_rates *r,
                                  struct gd_error *err) {
  const json_t *errors = json_object_get(json->root, "errors");
  if (!errors)
    return GD_OK;
  if (!json_is_object(errors))
    return gd_json_mismatch(json, json->root, "errors", "an object", err);
  for (int i = 0; i < GD_POINT_CLASSES; i++) {
    const json_t *row = json_object_get(errors, gd_point_class_name((enum gd_point_class)i));
    if (row)
      GD_TRY(read_class_errors(json, row, &r->errors[i], err));
  }
  return GD_OK;
}

static enum gd_status read_learned(const struct gd_json *json, const json_t *row,
                                   struct gd_learned *to, struct gd_error *err) {
  GD_TRY(gd_json_number(json, row, "energy", 0, 100, &to->energy, err));
  GD_TRY(gd_json_number(json, row, "host", 0, 100, &to->host, err));
  return gd_json_number(json, row, "step", 0, 100, &to->step, err);
}

/* Files of before do not have them: none is narrower than the worst error then. */
static enum gd_status read_square(const struct gd_json *json, const json_t *learned,
                                  const char *key, double *to, struct gd_error *err) {
  *to = 0;
  return gd_json_has(learned, key) ? gd_json_number(json, learned, key, 0, 100, to, err) : GD_OK;
}

static enum gd_status read_all_learned(const struct gd_json *json, struct gd_rates *r,
                                       struct gd_error *err) {
  const json_t *learned = json_object_get(json->root, "learned"), *without, *row;
  const char *text;
  int64_t trials;
  size_t i;
  if (!learned || json_is_null(learned))
    return GD_OK;
  without = json_object_get(learned, "without");
  if (!json_is_object(learned) || !json_is_array(without) ||
      json_array_size(without) > GD_LEARNED_MODELS)
    return gd_json_mismatch(json, json->root, "learned",
                            "an object with a list \"without\" of at most 64", err);
  GD_TRY(read_learned(json, learned, &r->learned, err));
  GD_TRY(gd_json_int(json, learned, "trials", 1, 1000000, &trials, err));
  GD_TRY(gd_json_string(json, learned, "from", &text, err));
  GD_TRY(gd_json_number(json, learned, "median_error", 0, 1e9, &r->learned_median, err));
  GD_TRY(gd_json_number(json, learned, "worst_error", 0, 1e9, &r->learned_worst, err));
  GD_TRY(read_square(json, learned, "square", &r->learned_square, err));
  GD_TRY(read_square(json, learned, "square_without_learning", &r->calibrated_square, err));
  r->learned_trials = (int)trials;
  snprintf(r->learned_from, sizeof r->learned_from, "%s", text);
  json_array_foreach(without, i, row) {
    struct gd_learned_without *to = &r->without[r->n_without++];
    GD_TRY(gd_json_string(json, row, "model", &text, err));
    snprintf(to->model, sizeof to->model, "%s", text);
    GD_TRY(read_learned(json, row, &to->learned, err));
  }
  return GD_OK;
}

static enum gd_status read_all(const struct gd_json *json, struct gd_rates *r,
                               struct gd_error *err) {
  const json_t *root = json->root, *peaks = json_object_get(root, "peaks");
  int64_t format;
  GD_TRY(gd_json_int(json, root, "format", FORMAT, FORMAT, &format, err));
  GD_TRY(read_names(json, r, err));
  if (!json_is_object(peaks))
    return gd_json_mismatch(json, root, "peaks", "an object of FLOP/s by precision", err);
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    GD_TRY(gd_json_number(json, peaks, gd_unit_name((enum gd_peak)i), 0, 1e20, &r->flops[i], err));
  if (r->flops[GD_PEAK_FP32] <= 0)
    return gd_json_mismatch(json, peaks, "fp32", "FLOP/s above 0", err);
  GD_TRY(gd_json_number(json, root, "memory_bytes_per_s", 1, 1e18, &r->memory_bytes_per_s, err));
  GD_TRY(gd_json_number(json, root, "op_s", 0, 1, &r->op_s, err));
  GD_TRY(gd_json_number(json, root, "host_bytes_per_s", 1, 1e18, &r->host_bytes_per_s, err));
  /* Files of before call it beside_speed. */
  GD_TRY(gd_json_number(json, root,
                        json_object_get(root, "async_speed") ? "async_speed" : "beside_speed", 0.01,
                        1, &r->async_speed, err));
  GD_TRY(gd_json_number(json, root, "busy_share", -1, 1, &r->busy_share, err));
  GD_TRY(read_link(json, "host_link", &r->host_link, err));
  GD_TRY(read_link(json, "peer_link", &r->peer_link, err));
  GD_TRY(read_checked(json, r, err));
  GD_TRY(read_errors(json, r, err));
  GD_TRY(read_all_learned(json, r, err));
  GD_TRY(read_points(json, r, err));
  return read_rates(json, r, err);
}

enum gd_status gd_rates_parse(struct gd_rates *rates, const struct gd_json *json,
                              struct gd_error *err) {
  enum gd_status status = read_all(json, rates, err);
  if (status == GD_OK)
    gd_rates_sort(rates);
  else
    gd_rates_deinit(rates);
  return status;
}

enum gd_status gd_rates_load(struct gd_rates *rates, const char *path, struct gd_error *err) {
  struct gd_json json = {0};
  enum gd_status status = gd_json_load(&json, path, err);
  if (status == GD_OK)
    status = gd_rates_parse(rates, &json, err);
  gd_json_deinit(&json);
  return status;
}

/* Twice the data sheet's is no such GPU: clocks vary by a tenth. */
static enum gd_status check_gpu(const struct gd_rates *rates, const struct gd_gpu *gpu,
                                const char *path, struct gd_error *err) {
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    if (gpu->flops[i] > 0 && rates->flops[i] > 2 * gpu->flops[i])
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: peaks.%s is %.3g FLOP/s, and the data sheet of the %s says %.3g: this "
                     "was not measured on it",
                     path, gd_unit_name((enum gd_peak)i), rates->flops[i], gpu->title,
                     gpu->flops[i]);
  if (rates->memory_bytes_per_s > 2 * gpu->memory_bytes_per_s)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: memory_bytes_per_s is %.3g, and the data sheet of the %s says %.3g: this "
                   "was not measured on it",
                   path, rates->memory_bytes_per_s, gpu->title, gpu->memory_bytes_per_s);
  return GD_OK;
}

enum gd_status gd_rates_take(struct gd_rates *rates, const char *path, struct gd_error *err) {
  struct gd_hw hw = {0};
  const struct gd_gpu *gpu;
  GD_TRY(gd_rates_load(rates, path, err));
  enum gd_status status = rates->gpu[0] ? gd_hw_load(&hw, err) : GD_OK;
  if (status == GD_OK && rates->gpu[0] && gd_hw_gpu(&hw, rates->gpu, &gpu, NULL) == GD_OK)
    status = check_gpu(rates, gpu, path, err);
  gd_hw_deinit(&hw);
  if (status != GD_OK)
    gd_rates_deinit(rates);
  return status;
}

/* --- writing ------------------------------------------------------------------------------- */

static json_t *pack_link(const struct gd_link *link) {
  return json_pack("{sf sf}", "bytes_per_s", link->bytes_per_s, "latency_s", link->latency_s);
}

static json_t *pack_point(const struct gd_rate_point *point) {
  const struct gd_work *w = &point->work;
  return json_pack("[s s I b [f f f f] f f f]", gd_op_info(w->kind)->name, gd_unit_name(w->unit),
                   (json_int_t)w->variant, w->on_host, w->sizes[0], w->sizes[1], w->sizes[2],
                   w->sizes[3], w->flops, w->bytes, point->seconds);
}

static json_t *pack_errors(const struct gd_trial_errors *errors) {
  json_t *object = json_object();
  for (int i = 0; i < GD_POINT_CLASSES; i++)
    if (errors[i].trials > 0)
      json_object_set_new(object, gd_point_class_name((enum gd_point_class)i),
                          json_pack("{si sf sf s[ii]}", "trials", errors[i].trials, "median_error",
                                    errors[i].median_error, "worst_error", errors[i].worst_error,
                                    "cpus", errors[i].cpus_least, errors[i].cpus_most));
  return object;
}

/* NULL: nothing was learned. */
static json_t *pack_learned(const struct gd_rates *r) {
  json_t *without = json_array();
  if (r->learned_trials == 0) {
    json_decref(without);
    return NULL;
  }
  for (int i = 0; i < r->n_without; i++) {
    const struct gd_learned *l = &r->without[i].learned;
    json_array_append_new(without,
                          json_pack("{ss sf sf sf}", "model", r->without[i].model, "energy",
                                    l->energy, "host", l->host, "step", l->step));
  }
  return json_pack("{si ss sf sf sf sf sf sf sf so}", "trials", r->learned_trials, "from",
                   r->learned_from, "median_error", r->learned_median, "worst_error",
                   r->learned_worst, "square", r->learned_square, "square_without_learning",
                   r->calibrated_square, "energy", r->learned.energy, "host", r->learned.host,
                   "step", r->learned.step, "without", without);
}

static json_t *pack_rates(const struct gd_rates *r) {
  json_t *points = json_array(), *peaks = json_object();
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    json_object_set_new(peaks, gd_unit_name((enum gd_peak)i), json_real(r->flops[i]));
  for (uint32_t i = 0; i < r->n_points; i++)
    if (!r->points[i].any_size)
      json_array_append_new(points, pack_point(&r->points[i]));
  return json_pack(
      "{si ss ss ss ss si si si si ss ss ss ss sf so sf sf sf sf so so ss s{si sf sf ss} so so* "
      "so}",
      "format", FORMAT, "device", r->device, "gpu", r->gpu, "architecture", r->architecture,
      "backend", r->backend, "compute_capability", r->compute_capability, "multiprocessors",
      r->multiprocessors, "threads", r->threads, "cpus", r->cpus, "version", r->version, "commit",
      r->commit, "date", r->date, "source", r->source, "busy_share", r->busy_share, "peaks", peaks,
      "memory_bytes_per_s", r->memory_bytes_per_s, "op_s", r->op_s, "host_bytes_per_s",
      r->host_bytes_per_s, "async_speed", r->async_speed, "host_link", pack_link(&r->host_link),
      "peer_link", pack_link(&r->peer_link), "peer_source", r->peer_source, "checked", "trials",
      r->checked_trials, "median_error", r->median_error, "worst_error", r->worst_error, "what",
      r->checked, "errors", pack_errors(r->errors), "learned", pack_learned(r), "points", points);
}

/* One line a field, and one a point: a file that can be read and compared. */
static void write_json(json_t *root, FILE *file) {
  const char *key;
  json_t *value, *row;
  size_t at = 0, i;
  fputs("{\n", file);
  json_object_foreach(root, key, value) {
    fprintf(file, "%s  \"%s\": ", at++ ? ",\n" : "", key);
    if (strcmp(key, "points") != 0) {
      json_dumpf(value, file, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
      continue;
    }
    fputs("[", file);
    json_array_foreach(value, i, row) {
      fputs(i ? ",\n    " : "\n    ", file);
      json_dumpf(row, file, JSON_COMPACT | JSON_REAL_PRECISION(6));
    }
    fputs("\n  ]", file);
  }
  fputs("\n}\n", file);
}

/* In the order of a file that is new: points are many, and come last. */
static void put_last(json_t *root, const char *key) {
  json_t *value = json_incref(json_object_get(root, key));
  if (!value)
    return;
  json_object_del(root, key);
  json_object_set_new(root, key, value);
}

static void put_in_order(json_t *root) {
  put_last(root, "learned");
  put_last(root, "points");
}

static enum gd_status save_json(json_t *root, const char *path, struct gd_error *err) {
  struct gd_file_out out;
  enum gd_status status = gd_file_begin(&out, path, err);
  if (status == GD_OK) {
    write_json(root, out.stream);
    status = gd_file_end(&out, GD_OK, err);
  }
  return status;
}

enum gd_status gd_rates_save(const struct gd_rates *rates, const char *path, struct gd_error *err) {
  json_t *root = pack_rates(rates);
  if (!root)
    return gd_nomem(err, "while writing a calibration");
  enum gd_status status = save_json(root, path, err);
  json_decref(root);
  return status;
}

enum gd_status gd_rates_save_learned(const char *path, const struct gd_rates *rates,
                                     struct gd_error *err) {
  struct gd_json json = {0};
  json_t *learned = pack_learned(rates);
  enum gd_status status =
      learned ? gd_json_load(&json, path, err) : gd_nomem(err, "while writing a calibration");
  if (status == GD_OK && (json_object_set(json.root, "learned", learned) != 0 ||
                          json_object_set_new(json.root, "errors", pack_errors(rates->errors))))
    status = gd_nomem(err, "while writing a calibration");
  if (status == GD_OK)
    put_in_order(json.root);
  if (status == GD_OK)
    status = save_json(json.root, path, err);
  gd_json_deinit(&json);
  json_decref(learned);
  return status;
}

enum gd_status gd_rates_save_errors(const char *path,
                                    const struct gd_trial_errors errors[GD_POINT_CLASSES],
                                    struct gd_error *err) {
  struct gd_json json = {0};
  enum gd_status status = gd_json_load(&json, path, err);
  if (status == GD_OK && json_object_set_new(json.root, "errors", pack_errors(errors)) != 0)
    status = gd_nomem(err, "while writing a calibration");
  if (status == GD_OK)
    put_in_order(json.root);
  if (status == GD_OK)
    status = save_json(json.root, path, err);
  gd_json_deinit(&json);
  return status;
}
