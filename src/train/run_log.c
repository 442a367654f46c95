/*
 * Reading log.jsonl; see run_log.h. Lines are of this program: a scan for keys is enough, and reads
 * a log of 100,000 steps in a tenth of a second.
 */
#define _POSIX_C_SOURCE 200809L
#include "train/run_log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/compare.h"
#include "base/file.h"
#include "base/mem.h"

enum { LINE = 4096 };

bool gd_run_log_number(const char *line, const char *key, double *value) {
  char *end;
  const char *at = strstr(line, key);
  if (!at)
    return false;
  double found = strtod(at + strlen(key), &end);
  if (end == at + strlen(key))
    return false;
  *value = found;
  return true;
}

static double number_or_nan(const char *line, const char *key) {
  double value = (double)NAN;
  return gd_run_log_number(line, key, &value) ? value : (double)NAN;
}

/* --- lines --------------------------------------------------------------------------------- */

/* What a resumed run does again goes. */
static void forget_from(struct gd_run_log *log, int64_t step, bool eval) {
  while (log->n_points > 0 && !eval && log->points[log->n_points - 1].step >= step)
    log->n_points--;
  while (log->n_evals > 0 && log->evals[log->n_evals - 1].step >= step)
    log->n_evals--;
}

static bool add_point(struct gd_run_log *log, const struct gd_run_point *point) {
  forget_from(log, point->step, false);
  if (!gd_vec_reserve((void **)&log->points, &log->points_capacity, log->n_points + 1,
                      sizeof *log->points))
    return false;
  log->points[log->n_points++] = *point;
  return true;
}

static bool add_eval(struct gd_run_log *log, const struct gd_run_eval *eval) {
  forget_from(log, eval->step, true);
  if (!gd_vec_reserve((void **)&log->evals, &log->evals_capacity, log->n_evals + 1,
                      sizeof *log->evals))
    return false;
  log->evals[log->n_evals++] = *eval;
  return true;
}

/* False: there is no memory. */
static bool read_line(struct gd_run_log *log, const char *line) {
  struct gd_run_point p = {.skipped = strstr(line, "\"skipped\": true") != NULL};
  size_t length = strlen(line);
  double step, value;
  bool whole = line[0] == '{' && length > 2 && strcmp(line + length - 2, "}\n") == 0;
  if (!whole || !gd_run_log_number(line, "\"step\": ", &step) || !(step >= 0 && step < 1e15)) {
    log->damaged++;
    return true;
  }
  p.step = (int64_t)step;
  if (gd_run_log_number(line, "\"eval_loss\": ", &value))
    return add_eval(log, &(struct gd_run_eval){p.step, value});
  if (!gd_run_log_number(line, "\"step_s\": ", &p.step_s) || !strstr(line, " \"loss\": ")) {
    log->damaged += !strstr(line, "\"eval_loss\": null");
    return true;
  }
  p.loss = number_or_nan(line, " \"loss\": ");
  p.norm = number_or_nan(line, "\"gradient_norm\": ");
  p.lr = number_or_nan(line, "\"lr\": ");
  p.tokens_per_s = number_or_nan(line, "\"tokens_per_s\": ");
  if (isnan(p.tokens_per_s)) {
    p.tokens_per_s = number_or_nan(line, "\"images_per_s\": ");
    log->images = isfinite(p.tokens_per_s);
  }
  p.mfu = number_or_nan(line, "\"mfu\": ");
  return add_point(log, &p);
}

/* --- the file ------------------------------------------------------------------------------ */

/* A last line without its end is being written: the next read has it. */
static bool read_lines(struct gd_run_log *log, FILE *file) {
  char line[LINE];
  bool rest = false; /* of a line that is longer than any of ours */
  while (fgets(line, sizeof line, file)) {
    bool ended = strchr(line, '\n') != NULL;
    if (!ended && feof(file))
      break;
    if (!rest && !read_line(log, line))
      return false;
    rest = !ended;
    log->read_bytes = ftello(file);
  }
  return true;
}

/* Whether what was read still ends where a line does: the file may have been cut, and grown. */
static bool ends_a_line(const struct gd_run_log *log, FILE *file) {
  return log->read_bytes == 0 ||
         (fseeko(file, log->read_bytes - 1, SEEK_SET) == 0 && fgetc(file) == '\n');
}

static void start_again(struct gd_run_log *log, const struct stat *file) {
  log->n_points = log->n_evals = 0;
  log->damaged = log->read_bytes = 0;
  log->device = (uint64_t)file->st_dev;
  log->file = (uint64_t)file->st_ino;
}

enum gd_status gd_run_log_read(struct gd_run_log *log, const char *folder, struct gd_error *err) {
  char path[GD_FILE_PATH];
  struct stat now;
  snprintf(path, sizeof path, "%.4000s/log.jsonl", folder);
  FILE *file = gd_file_open(path, "r");
  if (!file && errno == ENOENT)
    return GD_OK;
  if (!file || fstat(fileno(file), &now) != 0) {
    enum gd_status status =
        gd_fail(err, GD_ENVIRONMENT, "%s cannot be read: %s", path, strerror(errno));
    if (file)
      fclose(file);
    return status;
  }
  if (log->device != (uint64_t)now.st_dev || log->file != (uint64_t)now.st_ino ||
      log->read_bytes > (int64_t)now.st_size || !ends_a_line(log, file))
    start_again(log, &now);
  log->changed_s = (int64_t)now.st_mtime;
  enum gd_status status = GD_OK;
  if (fseeko(file, log->read_bytes, SEEK_SET) != 0 || !read_lines(log, file))
    status = gd_nomem(err, "while reading the log of a run");
  fclose(file);
  return status;
}

void gd_run_log_deinit(struct gd_run_log *log) {
  gd_mem_free(log->points);
  gd_mem_free(log->evals);
  *log = (struct gd_run_log){0};
}

double gd_run_log_step_s(const struct gd_run_log *log) {
  double seconds[GD_RUN_RECENT];
  uint32_t count = log->n_points < GD_RUN_RECENT ? log->n_points : GD_RUN_RECENT;
  if (count == 0)
    return 0;
  for (uint32_t i = 0; i < count; i++)
    seconds[i] = log->points[log->n_points - count + i].step_s;
  qsort(seconds, count, sizeof *seconds, gd_compare_doubles);
  return seconds[count / 2];
}
