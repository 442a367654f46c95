/*
 * The log of a run; see train_log.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "train/train_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum { LINE = 512 };

static enum gd_status cannot(const struct gd_train_log *log, const char *what,
                             struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT, "%s cannot be %s: %s", log->path, what, strerror(errno));
}

/* The number behind "key": in a line that this program wrote; false: it has none. */
static bool number_of(const char *line, const char *key, double *value) {
  char *end;
  const char *at = strstr(line, key);
  if (!at)
    return false;
  *value = strtod(at + strlen(key), &end);
  return end > at + strlen(key);
}

/* Where the lines end that stay: whole ones, of steps up to `step`. */
static int64_t find_cut(FILE *file, int64_t step, double *recent, int most, int *n_recent) {
  char line[LINE];
  int64_t cut = 0;
  double of, loss;
  *n_recent = 0;
  while (fgets(line, sizeof line, file)) {
    if (!strchr(line, '\n') || !number_of(line, "\"step\": ", &of) || of > (double)step)
      break;
    cut = ftello(file);
    if (!number_of(line, "\"loss\": ", &loss) || !isfinite(loss) || strstr(line, "\"skipped\": t"))
      continue;
    if (*n_recent == most)
      memmove(recent, recent + 1, (size_t)(--*n_recent) * sizeof *recent);
    recent[(*n_recent)++] = loss;
  }
  return cut;
}

enum gd_status gd_train_log_open(struct gd_train_log *log, const char *folder, int64_t step,
                                 double *recent, int most, int *n_recent, struct gd_error *err) {
  *log = (struct gd_train_log){0};
  *n_recent = 0;
  snprintf(log->path, sizeof log->path, "%.4000s/log.jsonl", folder);
  log->file = fopen(log->path, "a+e");
  if (!log->file)
    return cannot(log, "opened", err);
  rewind(log->file);
  int64_t cut = find_cut(log->file, step, recent, most, n_recent);
  fflush(log->file);
  if (ftruncate(fileno(log->file), cut) != 0 || fseeko(log->file, 0, SEEK_END) != 0) {
    enum gd_status status = cannot(log, "cut", err);
    gd_train_log_close(log);
    return status;
  }
  return GD_OK;
}

/* JSON has no NaN. */
static const char *number(char *text, size_t size, double value) {
  if (isfinite(value))
    snprintf(text, size, "%.9g", value);
  else
    snprintf(text, size, "null");
  return text;
}

enum gd_status gd_train_log_step(struct gd_train_log *log, const struct gd_train_step *s,
                                 struct gd_error *err) {
  char loss[32], norm[32];
  const char *unit = s->images ? "images" : "tokens";
  if (fprintf(log->file,
              "{\"step\": %" PRId64 ", \"loss\": %s, \"lr\": %.9g, \"gradient_norm\": %s, "
              "\"%s_per_s\": %.6g, \"mfu\": %.6g, \"step_s\": %.6g, \"data_wait_s\": %.6g, "
              "\"%s\": %" PRId64 "%s}\n",
              s->step, number(loss, sizeof loss, s->loss), s->lr,
              number(norm, sizeof norm, s->norm), unit, s->tokens_per_s, s->mfu, s->step_s,
              s->data_wait_s, unit, s->tokens, s->skipped ? ", \"skipped\": true" : "") < 0 ||
      fflush(log->file) != 0)
    return cannot(log, "written", err);
  return GD_OK;
}

enum gd_status gd_train_log_eval(struct gd_train_log *log, int64_t step, double loss,
                                 double accuracy, struct gd_error *err) {
  char text[32], found[64] = "";
  if (accuracy >= 0)
    snprintf(found, sizeof found, ", \"eval_accuracy\": %.9g", accuracy);
  if (fprintf(log->file, "{\"step\": %" PRId64 ", \"eval_loss\": %s%s}\n", step,
              number(text, sizeof text, loss), found) < 0 ||
      fflush(log->file) != 0)
    return cannot(log, "written", err);
  return GD_OK;
}

void gd_train_log_close(struct gd_train_log *log) {
  if (log->file)
    fclose(log->file);
  *log = (struct gd_train_log){0};
}
