/*
 * Which calibration stands for a device, and a step put together from its programs; see predict.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "predict/predict.h"

#include <ctype.h>
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/cpus.h"
#include "base/embedded.h"
#include "base/file.h"
#include "base/paths.h"
#include "predict/interval.h"

enum { PATH_BYTES = 4096 };

void gd_predictor_deinit(struct gd_predictor *predictor) {
  gd_rates_deinit(&predictor->rates);
  *predictor = (struct gd_predictor){0};
}

/* --- files --------------------------------------------------------------------------------- */

bool gd_calibration_path(const char *device, char *path, size_t size) {
  char folder[PATH_BYTES], name[128];
  size_t n = 0;
  if (!gd_path_data("calibration", folder, sizeof folder))
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

/* Whether a calibration that others disturbed would take the place of a better one. */
static bool is_worse(const struct gd_rates *rates, const char *path) {
  struct gd_rates before = {0};
  if (gd_rates_load(&before, path, NULL) != GD_OK)
    return false;
  bool worse =
      before.checked_trials > 0 && (rates->median_error > 2 * before.median_error + 0.05 ||
                                    (!gd_backend_is_gpu(rates->backend) && before.busy_share >= 0 &&
                                     rates->busy_share > before.busy_share + 0.2));
  gd_rates_deinit(&before);
  return worse;
}

enum gd_status gd_calibration_keep(const struct gd_rates *rates, const char *asked, double quiet,
                                   char *path, size_t size, struct gd_error *err) {
  if (asked) {
    snprintf(path, size, "%s", asked);
    return gd_rates_save(rates, path, err);
  }
  if (!gd_calibration_path(rates->device, path, size))
    return gd_fail(err, GD_ENVIRONMENT,
                   "there is no folder to keep the calibration in; set HOME or XDG_DATA_HOME, or "
                   "name a file with -o");
  char folder[PATH_BYTES];
  snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
  GD_TRY(gd_file_make_folder(folder, err));
  if (rates->busy_share > quiet && is_worse(rates, path))
    return gd_fail(err, GD_MISMATCH,
                   "other programs used %.0f %% of the CPUs meanwhile, and predictions were off by "
                   "%.0f %%: the better calibration in %s stays; run it again when the machine is "
                   "quiet, or name another file with -o",
                   100 * rates->busy_share, 100 * rates->median_error, path);
  return gd_rates_save(rates, path, err);
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

/* Of two calibrations of one GPU: the one that trials taught, else the newer one. */
static bool is_better(const struct gd_rates *rates, const struct gd_rates *than) {
  GD_ASSERT(than);
  if ((rates->learned_trials > 0) != (than->learned_trials > 0))
    return rates->learned_trials > 0;
  return strcmp(rates->date, than->date) > 0;
}

/* All that targets may be predicted from, read once: what the user measured comes before what is
   built in. */
struct gd_calibrations {
  struct gd_rates *all; /* in gd_mem */
  uint32_t count, capacity;
  uint32_t n_user;
  struct gd_fitted fitted;
  struct gd_hw hw; /* once it was needed */
  bool has_hw;
};

static enum gd_status add_calibration(struct gd_calibrations *to, struct gd_rates *rates,
                                      struct gd_error *err) {
  if (!gd_vec_reserve((void **)&to->all, &to->capacity, to->count + 1, sizeof *to->all)) {
    gd_rates_deinit(rates);
    return gd_nomem(err, "while calibrations are read");
  }
  to->all[to->count++] = *rates;
  return GD_OK;
}

/* A file of the user's that cannot be read is skipped here, since another one may serve: `gpudays
   doctor` is where files are judged. */
static enum gd_status read_folder(struct gd_calibrations *to, struct gd_error *err) {
  char folder[PATH_BYTES - 300], path[PATH_BYTES];
  enum gd_status status = GD_OK;
  if (!gd_path_data("calibration", folder, sizeof folder))
    return GD_OK;
  DIR *open = opendir(folder);
  for (const struct dirent *entry; open && status == GD_OK && (entry = readdir(open));) {
    struct gd_rates rates = {0};
    size_t length = strlen(entry->d_name);
    if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0)
      continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (gd_rates_load(&rates, path, NULL) == GD_OK)
      status = add_calibration(to, &rates, err);
  }
  if (open)
    closedir(open);
  to->n_user = to->count;
  return status;
}

static enum gd_status read_embedded(struct gd_calibrations *to, struct gd_error *err) {
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
    if (status == GD_OK)
      status = add_calibration(to, &rates, err);
    if (status != GD_OK)
      return status;
  }
  return GD_OK;
}

enum gd_status gd_calibrations_new(struct gd_calibrations **calibrations, struct gd_error *err) {
  struct gd_calibrations *made = gd_mem_alloc(1, sizeof *made);
  if (!made)
    return gd_nomem(err, "while calibrations are read");
  enum gd_status status = read_folder(made, err);
  if (status == GD_OK)
    status = read_embedded(made, err);
  if (status == GD_OK)
    status = gd_fitted_load(&made->fitted, err);
  if (status != GD_OK) {
    gd_calibrations_free(made);
    return status;
  }
  *calibrations = made;
  return GD_OK;
}

void gd_calibrations_free(struct gd_calibrations *calibrations) {
  if (!calibrations)
    return;
  for (uint32_t i = 0; i < calibrations->count; i++)
    gd_rates_deinit(&calibrations->all[i]);
  gd_mem_free(calibrations->all);
  gd_hw_deinit(&calibrations->hw);
  gd_mem_free(calibrations);
}

/* The nearest one, and of the user's that are as near the better; NULL: none is of a GPU. */
static const struct gd_rates *find_nearest(const struct gd_calibrations *calibrations,
                                           const struct gd_gpu *gpu, double *distance) {
  const struct gd_rates *best = NULL;
  *distance = HUGE_VAL;
  for (uint32_t i = 0; i < calibrations->count; i++) {
    const struct gd_rates *rates = &calibrations->all[i];
    double apart = distance_to(rates, gpu);
    bool as_near = apart <= *distance && isfinite(apart);
    if (apart < *distance || (i < calibrations->n_user && as_near && is_better(rates, best))) {
      best = rates;
      *distance = apart;
    }
  }
  return best;
}

static enum gd_status each_of_user(enum gd_status (*visit)(void *,
                                                           const struct gd_calibration_entry *,
                                                           struct gd_error *),
                                   void *user, struct gd_error *err) {
  char folder[PATH_BYTES - 300], path[PATH_BYTES], name[256];
  enum gd_status status = GD_OK;
  DIR *open = gd_path_data("calibration", folder, sizeof folder) ? opendir(folder) : NULL;
  for (const struct dirent *entry; open && status == GD_OK && (entry = readdir(open));) {
    struct gd_rates rates = {0};
    size_t length = strlen(entry->d_name);
    if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0)
      continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    snprintf(name, sizeof name, "%.*s", (int)(length - 5), entry->d_name);
    if (gd_rates_load(&rates, path, NULL) == GD_OK)
      status = visit(user, &(struct gd_calibration_entry){name, path, &rates}, err);
    gd_rates_deinit(&rates);
  }
  if (open)
    closedir(open);
  return status;
}

static enum gd_status parse_embedded(const struct gd_embedded_file *file, struct gd_rates *rates,
                                     struct gd_error *err) {
  struct gd_json json = {0};
  enum gd_status status = gd_json_parse(&json, file->path, file->text, file->length, err);
  if (status == GD_OK)
    status = gd_rates_parse(rates, &json, err);
  gd_json_deinit(&json);
  return status;
}

enum gd_status gd_calibration_each(enum gd_status (*visit)(void *user,
                                                           const struct gd_calibration_entry *entry,
                                                           struct gd_error *err),
                                   void *user, struct gd_error *err) {
  static const char folder[] = "calibration/";
  GD_TRY(each_of_user(visit, user, err));
  for (int i = 0; i < gd_embedded_file_count; i++) {
    const struct gd_embedded_file *file = &gd_embedded_files[i];
    struct gd_rates rates = {0};
    char name[256];
    if (strncmp(file->path, folder, strlen(folder)) != 0)
      continue;
    snprintf(name, sizeof name, "%s", file->path + strlen(folder));
    name[strcspn(name, ".")] = '\0';
    GD_TRY(parse_embedded(file, &rates, err));
    enum gd_status status = visit(user, &(struct gd_calibration_entry){name, "", &rates}, err);
    gd_rates_deinit(&rates);
    GD_TRY(status);
  }
  return GD_OK;
}

struct sought {
  const char *name;
  struct gd_strbuf names;
  char path[PATH_BYTES];
  bool found, embedded;
};

static enum gd_status seek(void *user, const struct gd_calibration_entry *entry,
                           struct gd_error *err) {
  struct sought *sought = user;
  (void)err;
  gd_strbuf_printf(&sought->names, "%s%s", sought->names.length ? ", " : "", entry->name);
  if (sought->found || strcmp(entry->name, sought->name) != 0)
    return GD_OK;
  sought->found = true;
  sought->embedded = !entry->path[0];
  snprintf(sought->path, sizeof sought->path, "%s", entry->path);
  return GD_OK;
}

static enum gd_status load_embedded(const char *name, struct gd_rates *rates,
                                    struct gd_error *err) {
  char path[300];
  snprintf(path, sizeof path, "calibration/%s.json", name);
  const struct gd_embedded_file *file = gd_embedded_find(path);
  return file ? parse_embedded(file, rates, err)
              : gd_fail(err, GD_INTERNAL, "%s is not inside the program", path);
}

enum gd_status gd_calibration_find(const char *name, struct gd_rates *rates, char *path,
                                   size_t size, struct gd_error *err) {
  struct sought sought = {.name = name};
  if (strchr(name, '/') || access(name, F_OK) == 0) {
    if (path)
      snprintf(path, size, "%s", name);
    return gd_rates_take(rates, name, err);
  }
  enum gd_status status = gd_calibration_each(seek, &sought, err);
  if (status == GD_OK && !sought.found)
    status = gd_fail(err, GD_BAD_INPUT, "unknown calibration \"%s\"; there are %s, or a path", name,
                     sought.names.text ? sought.names.text : "none");
  gd_strbuf_deinit(&sought.names);
  GD_TRY(status);
  if (path)
    snprintf(path, size, "%s", sought.path);
  return sought.embedded ? load_embedded(name, rates, err) : gd_rates_load(rates, sought.path, err);
}

enum gd_status gd_calibration_add(const char *from, const char *to, struct gd_error *err) {
  enum { MOST_BYTES = 256 << 20 };
  char folder[PATH_BYTES];
  struct gd_strbuf text = {0};
  snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(to, '/') - to), to);
  GD_TRY(gd_file_make_folder(folder, err));
  enum gd_status status = gd_file_read(from, MOST_BYTES, &text, err);
  if (status == GD_OK)
    status = gd_file_write(to, text.text, text.length, err);
  gd_strbuf_deinit(&text);
  return status;
}

/* --- what it rests on ---------------------------------------------------------------------- */

/* A GPU's rates hardly depend on who uses the CPUs. */
static bool was_disturbed(const struct gd_rates *rates) {
  return rates->multiprocessors == 0 && rates->busy_share > GD_RATES_QUIET;
}

/* Offloaded work is as fast as the CPUs are many. */
static bool has_their_cpus(const struct gd_rates *rates, enum gd_point_class of) {
  const struct gd_trial_errors *errors = &rates->errors[of];
  return of != GD_POINT_OFFLOAD || rates->multiprocessors == 0 ||
         (rates->cpus >= errors->cpus_least && rates->cpus <= errors->cpus_most);
}

/* Whether the passes that end a calibration say something of that class; see predict.h. */
static bool check_covers(const struct gd_rates *rates, enum gd_point_class of) {
  return rates->checked_trials > 0 && rates->multiprocessors == 0 &&
         (of == GD_POINT_NAIVE || of == GD_POINT_FREE_LUNCH);
}

/* Whether trials of whole steps say how far predictions of that device are off. */
static bool has_learned(const struct gd_rates *rates) {
  return rates->learned_trials > 0 && rates->learned_square > 0;
}

/* This GPU has no trials of the class, but the calibration of another GPU was compared with trials
   there. */
static bool has_others(const struct gd_rates *rates, enum gd_point_class of) {
  return rates->multiprocessors > 0 && rates->others_models > 0 && rates->errors[of].trials == 0 &&
         (of == GD_POINT_NAIVE || of == GD_POINT_FREE_LUNCH);
}

static double error_of_others(const struct gd_rates *rates) {
  return gd_interval_error(gd_interval_half(rates->others_square, rates->others_models));
}

double gd_calibration_error(const struct gd_rates *rates, enum gd_point_class of, bool *validated) {
  const struct gd_trial_errors *errors = &rates->errors[of];
  bool compared = errors->trials > 0 ? has_their_cpus(rates, of) : check_covers(rates, of);
  double error = fmax(rates->checked_trials > 0 ? rates->worst_error : 0, errors->worst_error);
  if (errors->trials > 0 && has_learned(rates))
    error = gd_interval_error(gd_interval_half(rates->learned_square, rates->n_without));
  error = fmax(error, compared                ? 0.1
                      : has_others(rates, of) ? error_of_others(rates)
                                              : GD_PREDICT_UNVALIDATED);
  *validated = compared && !was_disturbed(rates);
  return was_disturbed(rates) ? fmax(error, rates->busy_share) : error;
}

/* "free-lunch with offload" */
static const char *say_class(enum gd_point_class of) {
  return of == GD_POINT_OFFLOAD ? "free-lunch with offload"
         : of == GD_POINT_OTHER ? "other methods"
                                : gd_point_class_name(of);
}

/* What is known of a class of points on a device with a calibration of its own. */
static void judge_class(struct gd_predictor *p, enum gd_point_class of, int ranks) {
  const struct gd_rates *rates = &p->rates;
  const struct gd_trial_errors *errors = &rates->errors[of];
  struct gd_predictor_class *to = &p->of[of];
  const char *name = say_class(of), *gpu = rates->multiprocessors > 0 ? "GPU" : "rank";
  char cpus[96] = "", alone[32] = "";
  bool like_theirs = errors->trials == 0 || has_their_cpus(rates, of);
  to->error = gd_calibration_error(rates, of, &to->validated);
  const char *how = to->validated ? "validated" : like_theirs ? "unvalidated, checked" : "checked";
  if (ranks > 1)
    snprintf(alone, sizeof alone, " on one %s", gpu);
  if (!like_theirs)
    snprintf(cpus, sizeof cpus, "unvalidated with %d CPU%s a %s; with %d%s ", rates->cpus,
             rates->cpus == 1 ? "" : "s", gpu, errors->cpus_most,
             errors->cpus_least < errors->cpus_most ? " at most" : "");
  if (errors->trials > 0)
    snprintf(to->words, sizeof to->words,
             "%s %s%s%s against %d trial%s%s: median error %.0f %%, worst %.0f %%", name, cpus, how,
             alone, errors->trials, errors->trials == 1 ? "" : "s",
             has_learned(rates) ? ", each predicted without those of its model" : "",
             100 * errors->median_error, 100 * errors->worst_error);
  else if (has_others(rates, of))
    snprintf(
        to->words, sizeof to->words,
        "%s unvalidated: compared with no trial here; on another GPU a calibration alone was off "
        "by %.0f %% (root mean square of %d models)",
        name, 100 * sqrt(rates->others_square), rates->others_models);
  else if (check_covers(rates, of))
    snprintf(to->words, sizeof to->words, "%s against %.160s: median error %.0f %%, worst %.0f %%",
             how, rates->checked, 100 * rates->median_error, 100 * rates->worst_error);
  else
    snprintf(to->words, sizeof to->words, "%s unvalidated: compared with no trial", name);
  size_t length = strlen(to->words);
  if (was_disturbed(rates))
    snprintf(to->words + length, sizeof to->words - length,
             "; other programs used %.0f %% of the CPUs meanwhile", 100 * rates->busy_share);
}

static void judge_classes(struct gd_predictor *p, int ranks) {
  for (int i = 0; i < GD_POINT_CLASSES; i++)
    judge_class(p, (enum gd_point_class)i, ranks);
}

/* No class is validated, and none has a narrower interval, nor one narrower than its trials. */
static void widen(struct gd_predictor *p, double error) {
  for (int i = 0; i < GD_POINT_CLASSES; i++) {
    p->of[i].validated = false;
    p->of[i].error = fmax(fmax(p->of[i].error, error), p->rates.errors[i].worst_error);
  }
}

/* Errors of two kinds that know nothing of each other; none is narrower for it. */
static void add_error(struct gd_predictor *p, double half) {
  for (int i = 0; i < GD_POINT_CLASSES; i++) {
    double own = gd_interval_half_of(p->of[i].error);
    /* Not hypot(), whose last digit depends on the C library. */
    p->of[i].error = gd_interval_error(sqrt(own * own + half * half));
  }
}

/* What the model of GPUs and links misses published rates by, with so much known of a GPU. */
static double half_published(const struct gd_predictor *p, enum gd_published_known known) {
  double high = p->fitted.of[known].high;
  return high > 1 ? log(high) : gd_interval_half_of(GD_PREDICT_UNVALIDATED);
}

static size_t say_more(struct gd_predictor *p, const char *format, ...) GD_PRINTF(2, 3);
static size_t say_more(struct gd_predictor *p, const char *format, ...) {
  size_t length = strlen(p->basis);
  va_list list;
  va_start(list, format);
  vsnprintf(p->basis + length, sizeof p->basis - length, format, list);
  va_end(list);
  return strlen(p->basis);
}

/*
 * What was validated on one device says nothing of the links between several. Those of GPUs are
 * data sheets and NCCL's algorithms, as in published rates of other software on up to 128 GPUs:
 * errors on those join the device's own. A carried time has them among its own already.
 */
static void judge_ranks(struct gd_predictor *p, int ranks, bool links_measured) {
  char text[GD_INTERVAL_TEXT];
  if (ranks < 2 || links_measured)
    return;
  say_more(p, "; the links between ranks are %s: unvalidated", p->rates.peer_source);
  if (p->rates.multiprocessors == 0) {
    widen(p, GD_PREDICT_UNVALIDATED);
    return;
  }
  for (int i = 0; i < GD_POINT_CLASSES; i++)
    p->of[i].validated = false;
  if (p->distance > 0)
    return;
  double half = half_published(p, GD_KNOWN_BOTH);
  add_error(p, half);
  say_more(p,
           ", and the interval joins errors on %d published rates of other software on up to 128 "
           "GPUs, models and GPUs left out (%s)",
           p->fitted.rows, gd_interval_say(gd_interval_error(half), text));
}

const char *gd_predictor_basis(const struct gd_predictor *p, enum gd_point_class of,
                               char text[GD_PREDICTOR_BASIS]) {
  const char *words = p->of[of].words;
  snprintf(text, GD_PREDICTOR_BASIS, "%s%s%s", p->basis, words[0] ? "; " : "", words);
  return text;
}

/* Whether all of those classes have one interval. */
static bool is_one_interval(const struct gd_predictor *p, unsigned classes) {
  double low = HUGE_VAL, high = 0;
  for (int i = 0; i < GD_POINT_CLASSES; i++)
    if (classes >> i & 1) {
      low = fmin(low, p->of[i].error);
      high = fmax(high, p->of[i].error);
    }
  return high - low < 1e-9;
}

/* Whether an earlier class of `classes` has the words and the interval of class `of`. */
static bool is_said(const struct gd_predictor *p, unsigned classes, int of) {
  for (int i = 0; i < of; i++)
    if (classes >> i & 1 && strcmp(p->of[i].words, p->of[of].words) == 0 &&
        is_one_interval(p, 1u << i | 1u << of))
      return true;
  return false;
}

void gd_predictor_say(const struct gd_predictor *p, unsigned classes, struct gd_strbuf *out) {
  bool one = is_one_interval(p, classes);
  gd_strbuf_append(out, p->basis);
  for (int i = 0; i < GD_POINT_CLASSES; i++) {
    const struct gd_predictor_class *class = &p->of[i];
    bool named = !class->words[0] && !one;
    if (!(classes >> i & 1) || (!named && is_said(p, classes, i)))
      continue;
    char text[GD_INTERVAL_TEXT];
    gd_strbuf_printf(out, "; %s%sinterval of 90 %% %s",
                     named ? say_class((enum gd_point_class)i) : class->words,
                     named             ? ": "
                     : class->words[0] ? ", "
                                       : "",
                     gd_interval_say(class->error, text));
  }
}

/* What was learned besides. */
static void say_learned(struct gd_predictor *p) {
  size_t length = strlen(p->basis);
  if (p->rates.learned_trials > 0)
    snprintf(p->basis + length, sizeof p->basis - length, "; learned from %.120s",
             p->rates.learned_from);
}

/*
 * A GPU that nobody ran this engine on: errors on trials of the GPU whose times are carried over,
 * each model left out, and errors of the GPU model on published rates of other software, each GPU
 * or architecture left out. What is offloaded is as fast as CPUs that nobody measured.
 */
static void judge_carried(struct gd_predictor *p, const char *title, const char *measured_on) {
  enum gd_published_known known = p->distance < 1 ? GD_KNOWN_STACK : GD_KNOWN_STACK_ALONE;
  double half = half_published(p, known), own = GD_PREDICT_UNVALIDATED;
  char theirs[GD_INTERVAL_TEXT], ours[GD_INTERVAL_TEXT];
  bool any;
  for (int i = 0; i < GD_POINT_CLASSES; i++) {
    double error = gd_calibration_error(&p->rates, (enum gd_point_class)i, &any);
    p->of[i].error = i == GD_POINT_OFFLOAD ? fmax(error, GD_PREDICT_UNVALIDATED) : error;
    own = fmin(own, error);
  }
  snprintf(p->of[GD_POINT_OFFLOAD].words, sizeof p->of[GD_POINT_OFFLOAD].words,
           "free-lunch with offload has CPUs that nobody measured (%s)",
           gd_interval_say(GD_PREDICT_UNVALIDATED, ours));
  add_error(p, half);
  snprintf(
      p->basis, sizeof p->basis,
      "unvalidated on the %s, where nobody has run it: times measured on the %s, carried over by "
      "a model of both GPUs; the interval joins errors ",
      title, measured_on);
  if (has_learned(&p->rates))
    say_more(p, "on %d trials there, each predicted without those of its model",
             p->rates.learned_trials);
  else
    say_more(p, "of calibrations alone, since there are no trials of it");
  say_more(p,
           " (%s), and of that model on %d published rates of other software, their %s left out "
           "(%s)",
           gd_interval_say(own, ours), p->fitted.of[known].rows,
           p->distance < 1 ? "GPUs" : "architectures",
           gd_interval_say(gd_interval_error(half), theirs));
}

static void say_target(struct gd_predictor *p, const struct gd_target *target, double distance,
                       const char *measured_on) {
  const char *title = target->gpu->title;
  if (distance <= 0) {
    p->calibrated = true;
    snprintf(p->basis, sizeof p->basis, "efficiencies of the %s (%s)", title, p->rates.source);
    say_learned(p);
    judge_classes(p, target->count);
  } else if (isfinite(distance) && p->rates.carry.on) {
    judge_carried(p, title, measured_on);
  } else if (isfinite(distance)) {
    widen(p, fmax(distance < 1 ? GD_PREDICT_UNVALIDATED : 0.5, p->rates.worst_error));
    snprintf(
        p->basis, sizeof p->basis,
        "unvalidated on the %s; times measured on the %s (%s), scaled by the peaks of the data "
        "sheet",
        title, measured_on,
        distance < 1 ? "the same architecture" : "the nearest generation that was measured");
  } else {
    widen(p, 0.6);
    snprintf(p->basis, sizeof p->basis,
             "unvalidated; usual efficiencies and the peaks of the data sheet of the %s", title);
  }
}

/* All of a predictor that follows from the calibration and the target. */
static void aim(struct gd_predictor *p, const struct gd_target *target) {
  char measured_on[128];
  p->calibrated = false;
  memset(p->of, 0, sizeof p->of);
  snprintf(measured_on, sizeof measured_on, "%s", p->rates.device);
  gd_rates_retarget(&p->rates, target, &p->fitted.gpu);
  snprintf(p->rates.peer_source, sizeof p->rates.peer_source, "taken from data sheets");
  say_target(p, target, p->distance, measured_on);
  judge_ranks(p, target->count, false);
}

/* Points hold no pointers, and all else is in place. */
static enum gd_status copy_rates(struct gd_rates *to, const struct gd_rates *from,
                                 struct gd_error *err) {
  struct gd_rates made = *from;
  size_t count = made.n_points;
  made.arena = (struct gd_arena){0};
  made.memo = NULL;
  made.points = gd_mem_alloc(count + 1, sizeof *made.points);
  if (!made.points)
    return gd_nomem(err, "while a calibration is copied");
  if (count > 0)
    memcpy(made.points, from->points, count * sizeof *made.points);
  made.points_capacity = made.n_points;
  *to = made;
  return GD_OK;
}

/* Another GPU's rates are carried over by the GPU model, where the catalogue has that GPU. */
static enum gd_status carry_over(struct gd_calibrations *calibrations, struct gd_predictor *p,
                                 struct gd_error *err) {
  const struct gd_gpu *measured;
  if (!calibrations->has_hw)
    GD_TRY(gd_hw_load(&calibrations->hw, err));
  calibrations->has_hw = true;
  if (gd_hw_gpu(&calibrations->hw, p->rates.gpu, &measured, NULL) == GD_OK)
    gd_rates_carry_from(&p->rates, measured, &p->fitted.gpu);
  return GD_OK;
}

static enum gd_status take_others(void *user, const struct gd_calibration_entry *entry,
                                  struct gd_error *err) {
  struct gd_rates *rates = user;
  const struct gd_rates *other = entry->rates;
  (void)err;
  if (other->multiprocessors > 0 && other->calibrated_square > rates->others_square) {
    rates->others_square = other->calibrated_square;
    rates->others_models = other->n_without;
  }
  return GD_OK;
}

/* For a GPU that was calibrated and has no trials: how well calibrations alone do elsewhere. */
static enum gd_status ask_others(struct gd_rates *rates, struct gd_error *err) {
  bool asks = rates->multiprocessors > 0 && rates->learned_trials == 0;
  return asks ? gd_calibration_each(take_others, rates, err) : GD_OK;
}

/* The calibration of --calibration. */
static enum gd_status take_named(const struct gd_target *target, struct gd_predictor *p,
                                 struct gd_error *err) {
  struct gd_rates rates = {0};
  enum gd_status status = gd_calibration_find(target->calibration, &rates, NULL, 0, err);
  if (status == GD_OK && rates.multiprocessors == 0)
    status =
        gd_fail(err, GD_BAD_INPUT, "--calibration %s is of the %s, and --gpu needs one of a GPU",
                target->calibration, rates.device);
  if (status != GD_OK) {
    gd_rates_deinit(&rates);
    return status;
  }
  p->rates = rates;
  p->distance = distance_to(&rates, target->gpu);
  return GD_OK;
}

static enum gd_status take_nearest(const struct gd_calibrations *calibrations,
                                   const struct gd_target *target, struct gd_predictor *p,
                                   struct gd_error *err) {
  const struct gd_rates *nearest = find_nearest(calibrations, target->gpu, &p->distance);
  if (nearest)
    return copy_rates(&p->rates, nearest, err);
  p->rates = (struct gd_rates){
      .op_s = 4e-6, .host_bytes_per_s = 5e9, .host_link.latency_s = 1e-5, .async_speed = 1};
  return GD_OK;
}

enum gd_status gd_predictor_by(struct gd_calibrations *calibrations, struct gd_predictor *p,
                               const struct gd_target *target, struct gd_error *err) {
  *p = (struct gd_predictor){.fitted = calibrations->fitted};
  enum gd_status status =
      target->calibration ? take_named(target, p, err) : take_nearest(calibrations, target, p, err);
  if (status == GD_OK)
    status = ask_others(&p->rates, err);
  if (status == GD_OK && isfinite(p->distance) && p->distance > 0 && p->rates.gpu[0])
    status = carry_over(calibrations, p, err);
  if (status != GD_OK) {
    gd_predictor_deinit(p);
    return status;
  }
  aim(p, target);
  return GD_OK;
}

enum gd_status gd_predictor_for_target(struct gd_predictor *p, const struct gd_target *target,
                                       struct gd_error *err) {
  struct gd_calibrations *calibrations;
  GD_TRY(gd_calibrations_new(&calibrations, err));
  enum gd_status status = gd_predictor_by(calibrations, p, target, err);
  gd_calibrations_free(calibrations);
  return status;
}

enum gd_status gd_predictor_like(struct gd_predictor *p, const struct gd_predictor *like,
                                 const struct gd_target *target, struct gd_error *err) {
  struct gd_predictor made = *like;
  GD_TRY(copy_rates(&made.rates, &like->rates, err));
  aim(&made, target);
  (void)gd_rates_remember_with(&made.rates, &like->rates);
  *p = made;
  return GD_OK;
}

/* Ranks on one machine share its cores: asynchronous work slows down by as much as two ranks on two
   cores were seen to lose (docs/prediction.md). */
static void share_machine(struct gd_rates *rates, int ranks) {
  double cpus = gd_cpus(1);
  if (ranks < 2 || rates->multiprocessors > 0)
    return;
  rates->async_speed = fmin(1, cpus / ((double)ranks * (rates->threads + 1.0)));
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
  DIR *open = gd_path_data("calibration", folder, sizeof folder) ? opendir(folder) : NULL;
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

/* A GPU that is here and was not calibrated is predicted as if it were not here: by the catalogue,
   which knows it by the driver's name. false: it is no GPU of the catalogue. */
static bool find_in_catalogue(struct gd_predictor *p, const struct gd_device_info *info,
                              int ranks) {
  struct gd_hw hw = {0};
  struct gd_target target;
  bool found = gd_hw_load(&hw, NULL) == GD_OK &&
               gd_hw_target(&hw, info->name, ranks, 0, NULL, NULL, &target, NULL) == GD_OK;
  if (found) {
    target.cpus = info->threads;
    found = gd_predictor_for_target(p, &target, NULL) == GD_OK;
  }
  gd_hw_deinit(&hw);
  return found;
}

/* The power of a GPU here is that of the catalogue's record of it. */
static enum gd_status assume_power(struct gd_predictor *p, struct gd_error *err) {
  struct gd_hw hw = {0};
  const struct gd_gpu *gpu;
  if (!p->rates.gpu[0])
    return GD_OK;
  GD_TRY(ask_others(&p->rates, err));
  GD_TRY(gd_fitted_load(&p->fitted, err));
  GD_TRY(gd_hw_load(&hw, err));
  if (gd_hw_gpu(&hw, p->rates.gpu, &gpu, NULL) == GD_OK)
    gd_rates_set_power(&p->rates, gpu, &p->fitted.gpu);
  gd_hw_deinit(&hw);
  return GD_OK;
}

/* Links of a GPU here that nobody measured are those of the catalogue's machine with such GPUs. */
static void assume_links(struct gd_predictor *p, int ranks) {
  struct gd_hw hw = {0};
  struct gd_target target;
  if (p->rates.gpu[0] && gd_hw_load(&hw, NULL) == GD_OK &&
      gd_hw_target(&hw, p->rates.gpu, ranks, 0, NULL, NULL, &target, NULL) == GD_OK)
    gd_rates_set_fabric(&p->rates, &target, &p->fitted.gpu);
  gd_hw_deinit(&hw);
}

/* What the machine's figures rest on, by how they were found. whole: nothing is left to be said. */
static enum gd_status find_machine(struct gd_predictor *p, const struct gd_device_info *info,
                                   int ranks, bool *whole, struct gd_error *err) {
  char path[PATH_BYTES];
  if (gd_calibration_path(info->name, path, sizeof path) && access(path, F_OK) == 0) {
    GD_TRY(gd_rates_load(&p->rates, path, err));
    GD_TRY(assume_power(p, err));
    p->calibrated = true;
    snprintf(p->basis, sizeof p->basis, "calibrated here on %.10s", p->rates.date);
    say_learned(p);
    judge_classes(p, ranks);
  } else if (find_same_cpu(&p->rates, info->name)) {
    p->calibrated = true;
    snprintf(p->basis, sizeof p->basis,
             "unvalidated; calibrated here on %.10s with %d thread%s, scaled to %d", p->rates.date,
             p->rates.threads, p->rates.threads == 1 ? "" : "s", info->threads);
    judge_classes(p, ranks);
    widen(p, GD_PREDICT_UNVALIDATED);
    for (int i = 0; i < GD_POINT_CLASSES; i++)
      p->of[i].words[0] = '\0'; /* they are of the other number of threads */
    scale_threads(&p->rates, info->threads);
  } else if (!(*whole = find_in_catalogue(p, info, ranks))) {
    gd_rates_guess_cpu(&p->rates, info->threads, gd_cpus(1));
    widen(p, GD_PREDICT_UNVALIDATED);
    snprintf(p->basis, sizeof p->basis,
             "unvalidated; this machine was not measured: 'gpudays calibrate' does that");
  }
  return GD_OK;
}

enum gd_status gd_predictor_named(struct gd_predictor *p, const char *calibration,
                                  const struct gd_device_info *info, int ranks,
                                  struct gd_error *err) {
  *p = (struct gd_predictor){0};
  GD_TRY(gd_calibration_find(calibration, &p->rates, NULL, 0, err));
  GD_TRY(assume_power(p, err));
  p->calibrated = true;
  bool same = strcmp(p->rates.device, info->name) == 0;
  snprintf(p->basis, sizeof p->basis, "%scalibration %.80s of the %s, measured on %.10s",
           same ? "" : "unvalidated here; ", calibration, p->rates.device, p->rates.date);
  judge_classes(p, ranks);
  say_learned(p);
  if (!same)
    widen(p, GD_PREDICT_UNVALIDATED);
  share_machine(&p->rates, ranks);
  judge_ranks(p, ranks, strcmp(p->rates.peer_source, "measured") == 0);
  return GD_OK;
}

enum gd_status gd_predictor_for_machine(struct gd_predictor *p, const struct gd_device_info *info,
                                        int ranks, struct gd_error *err) {
  *p = (struct gd_predictor){0};
  bool whole = false;
  GD_TRY(find_machine(p, info, ranks, &whole, err));
  if (whole)
    return GD_OK;
  bool links = strcmp(p->rates.peer_source, "measured") == 0;
  share_machine(&p->rates, ranks);
  if (ranks > 1 && !links)
    assume_links(p, ranks);
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
  struct gd_prediction p = {.known = true, .has_last_micro_step = remainder || full->has_last};
  GD_TRY(gd_simulate(full, GD_PROGRAM_MICRO_STEP, rates, &p.micro_step, err));
  GD_TRY(gd_simulate(full, GD_PROGRAM_UPDATE, rates, &p.update, err));
  p.micro_step_s = p.last_micro_step_s = p.micro_step.seconds;
  p.update_s = p.update.seconds;
  last = p.micro_step;
  if (p.has_last_micro_step) {
    GD_TRY(
        gd_simulate(remainder ? remainder : full, GD_PROGRAM_LAST_MICRO_STEP, rates, &last, err));
    p.last_micro_step_s = last.seconds;
  }
  p.step_s = (double)(shape->accumulation - 1) * p.micro_step_s + p.last_micro_step_s + p.update_s;
  p.compute_s =
      (double)(shape->accumulation - 1) * p.micro_step.main_s + last.main_s + p.update.main_s;
  double joules = (double)(shape->accumulation - 1) * p.micro_step_s * p.micro_step.power_w +
                  p.last_micro_step_s * p.micro_step.power_w + p.update_s * p.update.power_w;
  p.power_w = joules / p.step_s;
  p.of = shape->of;
  p.validated = predictor->of[shape->of].validated;
  p.error = predictor->of[shape->of].error;
  double narrow = 1 - fmin(p.error, 0.8);
  p.low_s = p.step_s * narrow;
  p.high_s = p.step_s / narrow;
  double days_per_s = (double)shape->steps / 86400;
  p.days = p.step_s * days_per_s;
  p.days_low = p.low_s * days_per_s;
  p.days_high = p.high_s * days_per_s;
  *prediction = p;
  return GD_OK;
}
