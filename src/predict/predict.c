/*
 * Which calibration stands for a device, and a step put together from its programs; see predict.h.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "predict/predict.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/embedded.h"

enum { PATH_BYTES = 4096 };

void gd_predictor_deinit(struct gd_predictor *predictor) {
  gd_rates_deinit(&predictor->rates);
  *predictor = (struct gd_predictor){0};
}

/* --- files --------------------------------------------------------------------------------- */

static bool data_folder(char *folder, size_t size) {
  const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
  int length = -1;
  if (data && data[0] == '/') /* the specification ignores relative ones */
    length = snprintf(folder, size, "%s/gpudays/calibration", data);
  else if (home && home[0])
    length = snprintf(folder, size, "%s/.local/share/gpudays/calibration", home);
  return length >= 0 && (size_t)length < size;
}

bool gd_calibration_path(const char *device, char *path, size_t size) {
  char folder[PATH_BYTES], name[128];
  size_t n = 0;
  if (!data_folder(folder, sizeof folder))
    return false;
  for (; *device && n + 1 < sizeof name; device++) {
    bool plain = isalnum((unsigned char)*device) || *device == '.';
    if (plain || (n > 0 && name[n - 1] != '-'))
      name[n++] = plain ? (char)tolower((unsigned char)*device) : '-';
  }
  while (n > 0 && name[n - 1] == '-')
    n--;
  name[n] = '\0';
  int length = snprintf(path, size, "%s/%s.json", folder, name[0] ? name : "device");
  return length >= 0 && (size_t)length < size;
}

/* --- which calibration --------------------------------------------------------------------- */

/* How far a calibration is from a GPU: 0 its own, below 1 its architecture, else generations. */
static double distance_to(const struct gd_rates *rates, const struct gd_gpu *gpu) {
  if (rates->multiprocessors == 0)
    return HUGE_VAL;
  if (rates->gpu[0] && strcmp(rates->gpu, gpu->name) == 0)
    return 0;
  double apart = abs(rates->compute_capability - gpu->compute_capability) / 10.0;
  return strcmp(rates->architecture, gpu->architecture) == 0 ? 0.5 * apart / (1 + apart) + 0.01
                                                             : 1 + apart;
}

struct choice {
  const struct gd_gpu *gpu;
  struct gd_rates best;
  double distance;
};

/* Keeps what was read if it is nearer; a file of the user's that cannot be read is skipped here,
   since another one may serve: `gpudays doctor` is where files are judged. */
static void consider(struct choice *choice, struct gd_rates *rates) {
  double distance = distance_to(rates, choice->gpu);
  if (distance < choice->distance) {
    gd_rates_deinit(&choice->best);
    choice->best = *rates;
    choice->distance = distance;
  } else {
    gd_rates_deinit(rates);
  }
}

static void consider_folder(struct choice *choice) {
  char folder[PATH_BYTES - 300], path[PATH_BYTES];
  if (!data_folder(folder, sizeof folder))
    return;
  DIR *open = opendir(folder);
  for (const struct dirent *entry; open && (entry = readdir(open));) {
    struct gd_rates rates = {0};
    size_t length = strlen(entry->d_name);
    if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0)
      continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (gd_rates_load(&rates, path, NULL) == GD_OK)
      consider(choice, &rates);
  }
  if (open)
    closedir(open);
}

static enum gd_status consider_embedded(struct choice *choice, struct gd_error *err) {
  static const char folder[] = "calibration/";
  for (int i = 0; i < gd_embedded_file_count; i++) {
    const struct gd_embedded_file *file = &gd_embedded_files[i];
    struct gd_rates rates = {0};
    struct gd_json json = {0};
    if (strncmp(file->path, folder, strlen(folder)) != 0)
      continue;
    enum gd_status status = gd_json_parse(&json, file->path, file->text, file->length, err);
    if (status == GD_OK)
      status = gd_rates_parse(&rates, &json, err);
    gd_json_deinit(&json);
    if (status != GD_OK)
      return status;
    consider(choice, &rates);
  }
  return GD_OK;
}

/* --- what it rests on ---------------------------------------------------------------------- */

/* The published error is the worst that was seen; ten percent where luck made it smaller. */
static double checked_error(const struct gd_rates *rates) {
  return fmax(0.1, rates->worst_error);
}

static void say_checked(struct gd_predictor *p) {
  const struct gd_rates *rates = &p->rates;
  size_t length = strlen(p->basis);
  if (rates->checked_trials > 0)
    snprintf(p->basis + length, sizeof p->basis - length,
             "; validated against %s: median error %.0f %%, worst %.0f %%", rates->checked,
             100 * rates->median_error, 100 * rates->worst_error);
}

static void widen(struct gd_predictor *p, double error) {
  p->validated = false;
  p->error = fmax(p->error, error);
}

/* What was validated on one device says nothing of the links between several. */
static void judge_ranks(struct gd_predictor *p, int ranks, bool links_measured) {
  size_t length = strlen(p->basis);
  if (ranks < 2 || links_measured)
    return;
  widen(p, GD_PREDICT_UNVALIDATED);
  snprintf(p->basis + length, sizeof p->basis - length,
           "; the links between ranks are %s: unvalidated", p->rates.peer_source);
}

static void say_target(struct gd_predictor *p, const struct gd_target *target, double distance,
                       const char *measured_on) {
  const char *title = target->gpu->title;
  if (distance <= 0) {
    p->calibrated = true;
    p->validated = p->rates.checked_trials > 0;
    p->error = p->validated ? checked_error(&p->rates) : GD_PREDICT_UNVALIDATED;
    snprintf(p->basis, sizeof p->basis, "efficiencies of the %s (%s)", title, p->rates.source);
    say_checked(p);
    if (!p->validated)
      snprintf(p->basis, sizeof p->basis, "unvalidated; efficiencies of the %s (%s)", title,
               p->rates.source);
  } else if (isfinite(distance)) {
    bool same = distance < 1;
    widen(p, fmax(same ? GD_PREDICT_UNVALIDATED : 0.5, p->rates.worst_error));
    snprintf(p->basis, sizeof p->basis,
             "unvalidated on the %s; efficiencies of the %s (%s), scaled by the peaks of the "
             "data sheet",
             title, measured_on,
             same ? "the same architecture" : "the nearest generation that was measured");
  } else {
    widen(p, 0.6);
    snprintf(p->basis, sizeof p->basis,
             "unvalidated; usual efficiencies and the peaks of the data sheet of the %s", title);
  }
}

enum gd_status gd_predictor_for_target(struct gd_predictor *p, const struct gd_target *target,
                                       struct gd_error *err) {
  struct choice choice = {.gpu = target->gpu, .distance = HUGE_VAL};
  char measured_on[128];
  consider_folder(&choice); /* what the user measured comes before what is built in */
  enum gd_status status = consider_embedded(&choice, err);
  if (status != GD_OK) {
    gd_rates_deinit(&choice.best);
    return status;
  }
  *p = (struct gd_predictor){.rates = choice.best};
  if (!isfinite(choice.distance))
    p->rates = (struct gd_rates){
        .op_s = 4e-6, .host_bytes_per_s = 5e9, .host_link.latency_s = 1e-5, .beside_speed = 1};
  snprintf(measured_on, sizeof measured_on, "%s", p->rates.device);
  gd_rates_retarget(&p->rates, target);
  snprintf(p->rates.peer_source, sizeof p->rates.peer_source, "taken from data sheets");
  say_target(p, target, choice.distance, measured_on);
  judge_ranks(p, target->count, false);
  return GD_OK;
}

static int usable_cpus(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Ranks on one machine share its cores; what each finds of its memory is less, too, by as much as
   two such ranks on two cores were seen to lose (docs/prediction.md). */
static void share_machine(struct gd_rates *rates, int ranks) {
  double cpus = usable_cpus();
  if (ranks < 2 || rates->multiprocessors > 0)
    return;
  rates->beside_speed = fmin(1, cpus / ((double)ranks * (rates->threads + 1.0)));
}

/* The same CPU with another number of threads: "AMD EPYC, 2 threads, avx512" is named up to there.
 */
static bool is_same_cpu(const struct gd_rates *rates, const char *device) {
  size_t length = strcspn(device, ",");
  return strcmp(rates->backend, "cpu") == 0 && strcspn(rates->device, ",") == length &&
         strncmp(rates->device, device, length) == 0;
}

/* Cores multiply by their number, the memory they share by less. */
static void scale_threads(struct gd_rates *rates, int threads) {
  double ratio = (double)threads / rates->threads;
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    rates->flops[i] *= ratio;
  rates->memory_bytes_per_s *= sqrt(ratio);
  rates->threads = threads;
}

static bool find_same_cpu(struct gd_rates *found, const char *device) {
  char folder[PATH_BYTES - 300], path[PATH_BYTES];
  bool is_found = false;
  DIR *open = data_folder(folder, sizeof folder) ? opendir(folder) : NULL;
  for (const struct dirent *entry; open && !is_found && (entry = readdir(open));) {
    size_t length = strlen(entry->d_name);
    if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0)
      continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (gd_rates_load(found, path, NULL) != GD_OK)
      continue;
    is_found = is_same_cpu(found, device);
    if (!is_found)
      gd_rates_deinit(found);
  }
  if (open)
    closedir(open);
  return is_found;
}

/* What the machine's figures rest on, by how they were found. */
static enum gd_status find_machine(struct gd_predictor *p, const struct gd_device_info *info,
                                   struct gd_error *err) {
  char path[PATH_BYTES];
  if (gd_calibration_path(info->name, path, sizeof path) && access(path, F_OK) == 0) {
    GD_TRY(gd_rates_load(&p->rates, path, err));
    p->calibrated = true;
    p->validated = p->rates.checked_trials > 0;
    p->error = p->validated ? checked_error(&p->rates) : GD_PREDICT_UNVALIDATED;
    snprintf(p->basis, sizeof p->basis, "%scalibrated here on %.10s",
             p->validated ? "" : "unvalidated; ", p->rates.date);
    say_checked(p);
  } else if (find_same_cpu(&p->rates, info->name)) {
    p->calibrated = true;
    snprintf(p->basis, sizeof p->basis,
             "unvalidated; calibrated here on %.10s with %d thread%s, scaled to %d", p->rates.date,
             p->rates.threads, p->rates.threads == 1 ? "" : "s", info->threads);
    scale_threads(&p->rates, info->threads);
  } else {
    gd_rates_guess_cpu(&p->rates, info->threads, usable_cpus());
    snprintf(p->basis, sizeof p->basis,
             "unvalidated; this machine was not measured: 'gpudays calibrate' does that");
  }
  return GD_OK;
}

enum gd_status gd_predictor_for_machine(struct gd_predictor *p, const char *backend, int threads,
                                        int ranks, struct gd_error *err) {
  struct gd_backend *open;
  struct gd_device_info info;
  GD_TRY(gd_backend_open(backend, &(struct gd_backend_options){.threads = threads}, &open, err));
  open->ops->describe(open, &info);
  gd_backend_close(open);
  *p = (struct gd_predictor){.error = GD_PREDICT_UNVALIDATED};
  GD_TRY(find_machine(p, &info, err));
  bool links = strcmp(p->rates.peer_source, "measured") == 0;
  share_machine(&p->rates, ranks);
  judge_ranks(p, ranks, links);
  return GD_OK;
}

double gd_predictor_peak(const struct gd_predictor *predictor, enum gd_precision precision,
                         bool tf32) {
  const double *flops = predictor->rates.flops;
  switch (precision) {
  case GD_PRECISION_FP16: return flops[GD_PEAK_FP16];
  case GD_PRECISION_BF16: return flops[GD_PEAK_BF16];
  case GD_PRECISION_FP32: break;
  }
  return tf32 && flops[GD_PEAK_TF32] > 0 ? flops[GD_PEAK_TF32] : flops[GD_PEAK_FP32];
}

/* --- a step -------------------------------------------------------------------------------- */

enum gd_status gd_predict(const struct gd_predictor *predictor, const struct gd_plan *full,
                          const struct gd_plan *remainder, const struct gd_step_shape *shape,
                          struct gd_prediction *prediction, struct gd_error *err) {
  const struct gd_rates *rates = &predictor->rates;
  struct gd_simulated last;
  struct gd_prediction p = {.known = true, .has_last_pass = remainder || full->has_last};
  GD_TRY(gd_simulate(full, GD_PROGRAM_PASS, rates, &p.pass, err));
  GD_TRY(gd_simulate(full, GD_PROGRAM_UPDATE, rates, &p.update, err));
  p.pass_s = p.last_pass_s = p.pass.seconds;
  p.update_s = p.update.seconds;
  if (p.has_last_pass) {
    GD_TRY(gd_simulate(remainder ? remainder : full, GD_PROGRAM_LAST, rates, &last, err));
    p.last_pass_s = last.seconds;
  }
  p.step_s = (double)(shape->accumulation - 1) * p.pass_s + p.last_pass_s + p.update_s;
  double narrow = 1 - fmin(predictor->error, 0.8); /* +-40 % is a factor of 0.6 to 1 / 0.6 */
  p.low_s = p.step_s * narrow;
  p.high_s = p.step_s / narrow;
  double days_per_s = (double)shape->steps / 86400;
  p.days = p.step_s * days_per_s;
  p.days_low = p.low_s * days_per_s;
  p.days_high = p.high_s * days_per_s;
  *prediction = p;
  return GD_OK;
}
