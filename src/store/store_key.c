/*
 * The key of a trial: everything that determines its result, as one line of text that two
 * questions share only when the same measurement answers both.
 *
 * A model counts by its name and by the graph that it builds: a configuration that was edited is
 * another model under the same name.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "gd_version.h"
#include "store/record_int.h"
#include "store/store_int.h"

/* A key under construction; failed: it did not fit. */
struct writer {
  char *text;
  size_t size, length;
  bool failed;
};

static void put_char(struct writer *to, char c) {
  if (to->length + 1 >= to->size) {
    to->failed = true;
    return;
  }
  to->text[to->length++] = c;
  to->text[to->length] = '\0';
}

/* What separates fields, and what a terminal would obey, is written as %3B: no value can look like
   the beginning of the next field. */
static void put_value(struct writer *to, const char *value) {
  static const char digits[] = "0123456789ABCDEF";
  for (; *value; value++) {
    unsigned char c = (unsigned char)*value;
    if (c > 0x20 && c < 0x7f && c != ';' && c != '%') {
      put_char(to, (char)c);
    } else if (c == ' ') {
      put_char(to, ' ');
    } else {
      put_char(to, '%');
      put_char(to, digits[c >> 4]);
      put_char(to, digits[c & 15]);
    }
  }
}

static void put(struct writer *to, const char *name, const char *format, ...) GD_PRINTF(3, 4);
static void put(struct writer *to, const char *name, const char *format, ...) {
  char value[GD_MACHINE_TEXT];
  va_list args;
  va_start(args, format);
  vsnprintf(value, sizeof value, format, args);
  va_end(args);
  if (to->length)
    put_char(to, ';');
  put_value(to, name);
  put_char(to, '=');
  put_value(to, value);
}

static void put_recipe(struct writer *to, const struct gd_recipe *recipe) {
  put(to, "batch", "%" PRId64, recipe->batch);
  put(to, "seq", "%" PRId64, recipe->seq);
  put(to, "steps", "%" PRId64, recipe->steps);
  put(to, "recipe_precision", "%s", gd_precision_name(recipe->precision));
  put(to, "optimizer", "%s", gd_optimizer_name(recipe->optimizer));
  put(to, "lr", "%.17g", recipe->lr);
  put(to, "min_lr", "%.17g", recipe->min_lr);
  put(to, "betas", "%.17g,%.17g", recipe->beta1, recipe->beta2);
  put(to, "eps", "%.17g", recipe->eps);
  put(to, "weight_decay", "%.17g%s%s", recipe->weight_decay,
      recipe->decoupled_decay ? ",decoupled" : "", recipe->decay_all ? ",all" : "");
  put(to, "max_grad_norm", "%.17g", recipe->max_grad_norm);
  put(to, "schedule", "%s", gd_schedule_name(recipe->schedule));
  put(to, "warmup_steps", "%" PRId64, recipe->warmup_steps);
  if (recipe->drop_path > 0)
    put(to, "drop_path", "%.17g", recipe->drop_path);
}

/* --- the program --------------------------------------------------------------------------- */

/* The program's own bytes, 8 at a time: a build with changes that are not committed is known by
   nothing else. 0 when it cannot be read. */
static uint64_t hash_program(void) {
  enum { WORDS = 8192 };
  uint64_t hash = 0, *words = gd_mem_alloc(WORDS, sizeof *words);
  FILE *file = words ? fopen("/proc/self/exe", "re") : NULL;
  while (file) {
    size_t bytes = fread(words, 1, WORDS * sizeof *words, file);
    if (bytes == 0)
      break;
    memset((char *)words + bytes, 0, WORDS * sizeof *words - bytes);
    for (size_t i = 0; i < (bytes + 7) / 8; i++)
      hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u + (hash >> 29);
  }
  if (file)
    fclose(file);
  gd_mem_free(words);
  return hash;
}

static void put_program(struct writer *to) {
  static const char dirty[] = "-dirty";
  const char *commit = GD_COMMIT;
  size_t length = strlen(commit);
  bool known = strcmp(commit, "unknown") != 0 &&
               (length < strlen(dirty) || strcmp(commit + length - strlen(dirty), dirty) != 0);
  put(to, "version", "%s", GD_VERSION);
  put(to, "commit", "%s", commit);
  if (!known)
    put(to, "build", "%016" PRIx64, hash_program());
}

/* --- all of it ----------------------------------------------------------------------------- */

enum gd_status gd_store_key_make(const struct gd_store_asked *asked, struct gd_store_key *key,
                                 struct gd_error *err) {
  static const char *const policies[] = {[GD_MICRO_BATCH_AUTO] = "auto",
                                         [GD_MICRO_BATCH_POW2] = "pow2",
                                         [GD_MICRO_BATCH_MAX] = "max",
                                         [GD_MICRO_BATCH_FIXED] = "fixed"};
  const struct gd_trial *plan = asked->plan;
  struct gd_store_key made = {0};
  struct writer to = {.text = made.text, .size = sizeof made.text};
  char graph[GD_HASH_TEXT];
  if (plan->model_graph[0])
    memcpy(graph, plan->model_graph, sizeof graph);
  else
    GD_TRY(gd_model_hash(asked->model, graph, err));
  put(&to, "model", "%s", asked->model->name);
  put(&to, "family", "%s", asked->model->family->model_type);
  put(&to, "graph", "%s", graph);
  put_recipe(&to, &asked->model->recipe);
  put(&to, "method", "%s", plan->method);
  put(&to, "compiler", "%s", plan->no_compiler[0] ? "no" : "yes");
  put(&to, "precision", "%s", gd_precision_name(plan->precision));
  put(&to, "ranks", "%d", plan->ranks);
  put(&to, "nodes", "%d", plan->nodes);
  put(&to, "backend", "%s", plan->backend);
  put(&to, "device", "%s", plan->device);
  put(&to, "machine", "%s", plan->machine);
  put(&to, "threads", "%d", plan->threads);
  put(&to, "device_limit_bytes", "%" PRId64, plan->device_limit_bytes);
  put(&to, "host_limit_bytes", "%" PRId64, plan->host_limit_bytes);
  put(&to, "micro_batch", "%s", policies[asked->micro_batch]);
  if (asked->micro_batch == GD_MICRO_BATCH_FIXED)
    put(&to, "micro_batch_size", "%" PRId64, asked->micro_batch_size);
  put(&to, "seed", "%" PRIu64, asked->seed);
  put(&to, "sample_seconds", "%.17g", asked->sample_seconds);
  put(&to, "profile", "%d", (int)asked->profile);
  put_program(&to);
  if (to.failed)
    return gd_fail(err, GD_INTERNAL, "the key of a trial of %s is longer than %zu bytes",
                   asked->model->name, sizeof made.text);
  gd_hash_hex(made.hash, made.text);
  *key = made;
  return GD_OK;
}

/* --- what it says -------------------------------------------------------------------------- */

static int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Undoes put_value. */
static void unescape(char *to, size_t size, const char *from, size_t bytes) {
  size_t length = 0;
  for (size_t i = 0; i < bytes && length + 1 < size; i++) {
    bool escaped = from[i] == '%' && i + 2 < bytes && hex_digit(from[i + 1]) >= 0 &&
                   hex_digit(from[i + 2]) >= 0;
    to[length++] = escaped ? (char)(hex_digit(from[i + 1]) * 16 + hex_digit(from[i + 2])) : from[i];
    i += escaped ? 2 : 0;
  }
  to[length] = '\0';
}

bool gd_key_value(const char *key_text, const char *name, char *value, size_t size) {
  size_t length = strlen(name);
  char raw[GD_MACHINE_TEXT];
  for (const char *at = key_text; at; at = strchr(at, ';'), at = at ? at + 1 : NULL) {
    if (strncmp(at, name, length) != 0 || at[length] != '=')
      continue;
    const char *from = at + length + 1;
    size_t bytes = strcspn(from, ";");
    if (bytes == 0 || bytes >= 3 * sizeof raw)
      return false;
    unescape(raw, sizeof raw, from, bytes);
    if (strlen(raw) >= size)
      return false;
    gd_clean_text(value, size, raw);
    return true;
  }
  return false;
}

static bool says(const char *key_text, const char *name, const char *value) {
  char text[256];
  return !gd_key_value(key_text, name, text, sizeof text) || strcmp(text, value) == 0;
}

static bool says_number(const char *key_text, const char *name, double value) {
  char text[64];
  int64_t number;
  return !gd_key_value(key_text, name, text, sizeof text) ||
         (gd_parse_int(text, 0, INT64_MAX, &number) &&
          fabs((double)number - value) <= 1e-6 * fabs(value));
}

/* A job runs on the machine that it gets, and the key has what it asked for. */
static bool is_of_job(const char *key_text) {
  char text[GD_MACHINE_TEXT];
  return (gd_key_value(key_text, "device", text, sizeof text) && strncmp(text, "SLURM", 5) == 0) ||
         (gd_key_value(key_text, "machine", text, sizeof text) && strncmp(text, "job=", 4) == 0);
}

const char *gd_key_contradicts(const char *key_text, const struct gd_trial *trial) {
  bool here = !is_of_job(key_text), ok = trial->status == GD_TRIAL_OK;
  if (!says(key_text, "model", trial->model))
    return "model";
  if (!says(key_text, "method", trial->method))
    return "method";
  if (!says(key_text, "precision", gd_precision_name(trial->precision)))
    return "precision";
  if (!says_number(key_text, "ranks", trial->ranks))
    return "ranks";
  if (here && !says(key_text, "device", trial->device))
    return "device";
  if (here && !says(key_text, "backend", trial->backend))
    return "backend";
  if (here && !says_number(key_text, "threads", trial->threads))
    return "threads";
  if (ok && !says_number(key_text, "batch", gd_record_batch(trial)))
    return "samples_per_s";
  if (ok && !says_number(key_text, "seq", trial->tokens_per_s / trial->samples_per_s))
    return "tokens_per_s";
  if (ok && !says_number(key_text, "steps", trial->train_flops / trial->model_flops_per_step))
    return "train_flops";
  return NULL;
}

bool gd_key_is_whole(const char *key_text) {
  static const char *const names[] = {"model",  "graph",     "batch", "seq",     "steps",
                                      "method", "precision", "ranks", "backend", "device"};
  char text[GD_MACHINE_TEXT];
  size_t length = strlen(GD_KEY_OF_TABLE);
  if (strncmp(key_text, GD_KEY_OF_TABLE, length) == 0)
    return strlen(key_text) == length + GD_HASH_TEXT - 1 &&
           strspn(key_text + length, "0123456789abcdef") == GD_HASH_TEXT - 1;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!gd_key_value(key_text, names[i], text, sizeof text))
      return false;
  return true;
}
