/*
 * The log of a run; see train_log.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "train/train_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/run_log.h"

enum { LINE = 512 };

static enum gd_status cannot(const struct gd_train_log *log, const char *what,
                             struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT, "%s cannot be %s: %s", log->path, what, strerror(errno));
}

/* Where the lines end that stay: whole ones, of steps up to `step`. */
static int64_t find_cut(FILE *file, int64_t step, int64_t judged_from,
                        struct gd_train_before *before) {
  char line[LINE];
  int64_t cut = 0;
  double of, loss, norm;
  while (fgets(line, sizeof line, file)) {
    if (!strchr(line, '\n') || !gd_run_log_number(line, "\"step\": ", &of))
      continue; /* damaged: the lines behind it are none the worse */
    if (of > (double)step)
      break;
    cut = ftello(file);
    if (strstr(line, "\"eval_loss\": "))
      before->evaluated_step = (int64_t)of;
    if (of > (double)judged_from && gd_run_log_number(line, "\"loss\": ", &loss) &&
        gd_run_log_number(line, "\"gradient_norm\": ", &norm) && !strstr(line, "\"skipped\": t"))
      gd_recent_add(&before->recent, loss, norm);
  }
  return cut;
}

/* --- events ---------------------------------------------------------------------------------- */

static void tell(struct gd_train_log *log, const char *format, ...) GD_PRINTF(2, 3);
static void tell(struct gd_train_log *log, const char *format, ...) {
  size_t used = strlen(log->trouble);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(log->trouble + used, sizeof log->trouble - used, format, arguments);
  va_end(arguments);
}

/* A failure to write TensorBoard's events ends them, not the log. */
static void end_events(struct gd_train_log *log, const struct gd_error *why) {
  tell(log, "%.900s; log.jsonl goes on without TensorBoard's\n", why->text);
  gd_events_close(&log->events);
}

static void open_events(struct gd_train_log *log, const char *folder, int64_t step) {
  struct gd_error why = {0};
  if (gd_events_open(&log->events, folder, step, &why) != GD_OK)
    end_events(log, &why);
}

static void add_events(struct gd_train_log *log, int64_t step, const struct gd_scalar *scalars,
                       int count) {
  struct gd_error why = {0};
  if (log->events.file && gd_events_add(&log->events, step, scalars, count, &why) != GD_OK)
    end_events(log, &why);
}

/* --- the log -----------------------------------------------------------------------------------
 */

enum gd_status gd_train_log_open(struct gd_train_log *log, const char *folder, int64_t step,
                                 int64_t judged_from, struct gd_train_before *before,
                                 struct gd_error *err) {
  *log = (struct gd_train_log){0};
  *before = (struct gd_train_before){.evaluated_step = -1};
  snprintf(log->path, sizeof log->path, "%.4000s/log.jsonl", folder);
  log->file = gd_file_open(log->path, "a+");
  if (!log->file)
    return cannot(log, "opened", err);
  rewind(log->file);
  int64_t cut = find_cut(log->file, step, judged_from, before);
  fflush(log->file);
  if (ftruncate(fileno(log->file), cut) != 0 || fseeko(log->file, 0, SEEK_END) != 0) {
    enum gd_status status = cannot(log, "cut", err);
    gd_train_log_close(log);
    return status;
  }
  log->bytes = cut;
  open_events(log, folder, step);
  return GD_OK;
}

/* A whole line, or nothing of it: half of one would spoil the next. */
static bool write_line(const struct gd_train_log *log, const char *line, size_t length) {
  int fd = fileno(log->file);
  for (size_t done = 0; done < length;) {
    ssize_t n = write(fd, line + done, length - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      int why = n == 0 ? ENOSPC : errno;
      if (done > 0 && ftruncate(fd, (off_t)log->bytes) != 0) {
        /* then a reader passes over the line, as over any that is damaged */
      }
      errno = why;
      return false;
    }
    done += (size_t)n;
  }
  return true;
}

static void add_line(struct gd_train_log *log, int64_t step, const char *line) {
  size_t length = strlen(line);
  if (!log->file)
    return;
  if (!write_line(log, line, length)) {
    if (log->lost++ == 0)
      tell(log, "%.900s cannot be written: %s; training goes on, and the log lacks these steps\n",
           log->path, strerror(errno));
    return;
  }
  log->bytes += (int64_t)length;
  if (log->lost > 0)
    tell(log, "log.jsonl is written again, from step %" PRId64 " on; it lacks %" PRId64 " lines\n",
         step, log->lost);
  log->lost = 0;
}

/* JSON has no NaN. */
static const char *number(char *text, size_t size, double value) {
  if (isfinite(value))
    snprintf(text, size, "%.9g", value);
  else
    snprintf(text, size, "null");
  return text;
}

void gd_train_log_step(struct gd_train_log *log, const struct gd_train_step *s) {
  char loss[32], norm[32], line[LINE];
  const char *unit = s->images ? "images" : "tokens";
  snprintf(line, sizeof line,
           "{\"step\": %" PRId64 ", \"loss\": %s, \"lr\": %.9g, \"gradient_norm\": %s, "
           "\"%s_per_s\": %.6g, \"mfu\": %.6g, \"step_s\": %.6g, \"data_wait_s\": %.6g, "
           "\"%s\": %" PRId64 "%s}\n",
           s->step, number(loss, sizeof loss, s->loss), s->lr, number(norm, sizeof norm, s->norm),
           unit, s->tokens_per_s, s->mfu, s->step_s, s->data_wait_s, unit, s->tokens,
           s->skipped ? ", \"skipped\": true" : "");
  add_line(log, s->step, line);
  const struct gd_scalar scalars[] = {
      {"loss", s->loss},
      {"lr", s->lr},
      {"gradient_norm", s->norm},
      {s->images ? "images_per_s" : "tokens_per_s", s->tokens_per_s},
      {"mfu", s->mfu}}; /* the last one where it is known */
  add_events(log, s->step, scalars, s->mfu > 0 ? 5 : 4);
}

void gd_train_log_eval(struct gd_train_log *log, int64_t step, double loss, double accuracy) {
  char text[32], found[64] = "", line[LINE];
  if (accuracy >= 0)
    snprintf(found, sizeof found, ", \"eval_accuracy\": %.9g", accuracy);
  snprintf(line, sizeof line, "{\"step\": %" PRId64 ", \"eval_loss\": %s%s}\n", step,
           number(text, sizeof text, loss), found);
  add_line(log, step, line);
  const struct gd_scalar scalars[] = {{"eval_loss", loss}, {"eval_accuracy", accuracy}};
  add_events(log, step, scalars, accuracy >= 0 ? 2 : 1);
}

void gd_train_log_close(struct gd_train_log *log) {
  if (log->file)
    fclose(log->file);
  gd_events_close(&log->events);
  *log = (struct gd_train_log){0};
}
