/*
 * Steps against the expected step time; see drift.h.
 */
#include "train/drift.h"

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compare.h"
#include "base/mem.h"
#include "trial/agree.h"

/* Of the tolerance: a slow run is called fast again only below it. */
#define BACK_SHARE 0.6
#define VISIBLE    0.05 /* a share that counts as a cause */

/* --- causes -------------------------------------------------------------------------------- */

enum cause {
  CAUSE_GPU,
  CAUSE_BUSY,
  CAUSE_QUOTA,
  CAUSE_STEAL,
  CAUSE_DATA,
  CAUSE_STALL,
  CAUSE_WRITING,
  CAUSE_RANK
};

struct causes {
  char *text;
  size_t size;
  unsigned found; /* bit per enum cause */
  int ranks;
};

static void add(struct causes *c, enum cause cause, int rank, const char *format, ...)
    GD_PRINTF(4, 5);
static void add(struct causes *c, enum cause cause, int rank, const char *format, ...) {
  size_t used = strlen(c->text);
  char where[32] = "", what[192];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  if (c->ranks > 1 && rank >= 0)
    snprintf(where, sizeof where, " (rank %d)", rank);
  if (used + strlen(what) + strlen(where) + 3 > c->size)
    return;
  snprintf(c->text + used, c->size - used, "%s%s%s", used ? "; " : "", what, where);
  c->found |= 1U << cause;
}

/* The rank whose share (the double at `offset` in its struct) is the largest. */
static int worst(const struct gd_drift_seen *seen, int ranks, size_t offset, double *share) {
  int at = 0;
  *share = -1;
  for (int i = 0; i < ranks; i++) {
    double value = *(const double *)(const void *)((const char *)&seen[i] + offset);
    if (value > *share) {
      *share = value;
      at = i;
    }
  }
  return at;
}

static void name_gpu(struct causes *c, const struct gd_drift_seen *seen) {
  int at = -1;
  for (int i = 0; i < c->ranks; i++)
    if (seen[i].gpu_reasons[0] &&
        (at < 0 || seen[i].gpu_throttled_share > seen[at].gpu_throttled_share ||
         seen[i].gpu_mhz < seen[at].gpu_mhz))
      at = i;
  if (at >= 0)
    add(c, CAUSE_GPU, at, "the GPU's clock was at %d of %d MHz: %s", seen[at].gpu_mhz,
        seen[at].gpu_max_mhz, seen[at].gpu_reasons);
}

static void name_share(struct causes *c, const struct gd_drift_seen *seen, enum cause cause,
                       size_t offset, const char *format) {
  double share;
  char text[160];
  int rank = worst(seen, c->ranks, offset, &share);
  if (share <= VISIBLE)
    return;
  snprintf(text, sizeof text, "%.0f %%", 100 * share);
  const char *mark = strchr(format, '@');
  add(c, cause, rank, "%.*s%s%s", (int)(mark - format), format, text, mark + 1);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, gd_compare_doubles);
  return values[count / 2];
}

/* A rank that takes longer than the others until they wait for each other. */
static void name_rank(struct causes *c, const struct gd_drift_seen *seen) {
  double slowest, others_s = 0;
  int rank = worst(seen, c->ranks, offsetof(struct gd_drift_seen, early_s), &slowest);
  if (c->ranks < 2)
    return;
  for (int i = 0; i < c->ranks; i++)
    others_s += i == rank ? 0 : seen[i].early_s / (c->ranks - 1);
  if (others_s > 0 && slowest > (1 + VISIBLE) * others_s)
    add(c, CAUSE_RANK, -1, "rank %d takes %.0f %% longer than the others", rank,
        100 * (slowest / others_s - 1));
}

#define SHARE(name) offsetof(struct gd_drift_seen, name)

static void name_causes(struct causes *c, const struct gd_drift_seen *seen) {
  name_gpu(c, seen);
  name_share(c, seen, CAUSE_BUSY, SHARE(busy_share), "other programs used @ of the CPUs");
  name_share(c, seen, CAUSE_QUOTA, SHARE(quota_share),
             "a quota of its control group denied it @ of its CPU time");
  name_share(c, seen, CAUSE_STEAL, SHARE(steal_share),
             "the host of the virtual machine took @ of the CPUs");
  name_share(c, seen, CAUSE_DATA, SHARE(data_wait_share), "data wait was @ of the time");
  name_share(c, seen, CAUSE_STALL, SHARE(stalled_share),
             "it stood still for checkpoints @ of the time");
  if (seen[0].writing_share > 0.5)
    add(c, CAUSE_WRITING, -1, "a checkpoint was being written");
  name_rank(c, seen);
}

/* --- judgement ----------------------------------------------------------------------------- */

static const char *seconds_text(char *text, size_t size, double seconds) {
  if (seconds < 1)
    snprintf(text, size, "%.3g ms", 1000 * seconds);
  else
    snprintf(text, size, "%.3g s", seconds);
  return text;
}

const char *gd_drift_judge(struct gd_drift *d, const struct gd_drift_seen *seen, int ranks) {
  char now[32], then[32], text[512] = "";
  struct causes causes = {.text = text, .size = sizeof text, .ranks = ranks};
  double share = seen[0].step_s / d->expected.step_s - 1, stalled = seen[0].stalled_share;
  double most = d->slow ? BACK_SHARE * d->expected.tolerance : d->expected.tolerance;
  bool slow = share > most || stalled > (d->slow ? BACK_SHARE * VISIBLE : VISIBLE);
  seconds_text(now, sizeof now, seen[0].step_s);
  seconds_text(then, sizeof then, d->expected.step_s);
  if (!slow) {
    bool was = d->slow;
    d->slow = false;
    d->said = 0;
    if (!was)
      return NULL;
    snprintf(d->sentence, sizeof d->sentence, "a step takes %s again; the %s said %s", now,
             d->expected.by, then);
    return d->sentence;
  }
  name_causes(&causes, seen);
  snprintf(d->causes, sizeof d->causes, "%s", text[0] ? text : "nothing that can be seen");
  bool tells = !d->slow || (causes.found & ~d->said);
  d->slow = true;
  d->said |= causes.found;
  if (!tells)
    return NULL;
  if (share <= most) /* steps are as expected; the time between them is not */
    snprintf(d->sentence, sizeof d->sentence,
             "checkpoints stop the run for %.0f %% of the time (a step takes %s; the %s said %s); "
             "--checkpoint-every sets how often",
             100 * stalled, now, d->expected.by, then);
  else
    snprintf(d->sentence, sizeof d->sentence,
             "a step takes %s, %.0f %% longer than the %s said (%s): %s", now, 100 * share,
             d->expected.by, then, text[0] ? text : "nothing is seen that slows it down");
  return d->sentence;
}

/* --- windows ------------------------------------------------------------------------------- */

static void begin_window(struct gd_drift *d) {
  d->count = d->writing = 0;
  d->data_wait_s = d->stalled_s = d->total_s = 0;
  d->began_ns = gd_clock_ns();
  gd_load_read(&d->before);
  gd_clocks_watch_start(&d->clocks, d->backend);
  d->watches = true;
}

/* Fills in what this rank saw, and stops the thread that watches clocks. */
static enum gd_status end_window(struct gd_drift *d, struct gd_drift_seen *seen,
                                 struct gd_error *err) {
  struct gd_load after;
  struct gd_trial *gpu = gd_mem_alloc(1, sizeof *gpu);
  gd_clocks_watch_stop(&d->clocks);
  d->watches = false;
  if (!gpu)
    return gd_nomem(err, "while training");
  gd_load_read(&after);
  double own_s = 1e-9 * (double)(after.own_ns - d->before.own_ns);
  enum gd_status status = GD_OK;
  *seen = (struct gd_drift_seen){
      .own_s = own_s,
      .wall_s = 1e-9 * (double)(gd_clock_ns() - d->began_ns),
      .step_s = median(d->step_s, d->count),
      .early_s = median(d->early_s, d->count),
      .data_wait_share = d->data_wait_s / d->total_s,
      .stalled_share = d->stalled_s / (d->total_s + d->stalled_s),
      .writing_share = (double)d->writing / d->count,
      .quota_share = gd_load_throttled_share(&d->before, &after),
      .steal_share = gd_load_steal_share(&d->before, &after),
  };
  if (d->comm) /* other ranks are not other programs; those of further machines count as if here */
    status = gd_comm_sum_doubles(d->comm, &own_s, 1, err);
  after.own_ns = d->before.own_ns + (int64_t)(1e9 * own_s);
  seen->busy_share = gd_load_share(&d->before, &after);
  if (status == GD_OK)
    status = gd_clocks_tell(&d->clocks, NULL, gpu, err);
  seen->gpu_throttled_share = gpu->gpu_throttled_share;
  seen->gpu_mhz = gpu->gpu_clock_mhz;
  seen->gpu_max_mhz = gpu->gpu_max_clock_mhz;
  snprintf(seen->gpu_reasons, sizeof seen->gpu_reasons, "%s", gpu->gpu_clock_reasons);
  gd_mem_free(gpu);
  return status;
}

static enum gd_status judge_window(struct gd_drift *d, const char **sentence,
                                   struct gd_error *err) {
  struct gd_drift_seen seen;
  void *all;
  GD_TRY(end_window(d, &seen, err));
  if (!d->comm || gd_comm_size(d->comm) == 1) {
    *sentence = gd_drift_judge(d, &seen, 1);
    return GD_OK;
  }
  GD_TRY(gd_agree_gather(d->comm, &seen, sizeof seen, &all, err));
  *sentence = gd_drift_judge(d, all, gd_comm_size(d->comm));
  if (gd_comm_rank(d->comm) != 0)
    *sentence = NULL;
  gd_mem_free(all);
  return GD_OK;
}

void gd_drift_begin(struct gd_drift *d, const struct gd_expected *expected,
                    struct gd_backend *backend, struct gd_comm *comm) {
  *d = (struct gd_drift){.expected = *expected, .backend = backend, .comm = comm};
}

enum gd_status gd_drift_add(struct gd_drift *d, const struct gd_drift_step *step,
                            const char **sentence, struct gd_error *err) {
  *sentence = NULL;
  if (d->expected.step_s <= 0)
    return GD_OK;
  if (d->warm < GD_DRIFT_WARMUP) {
    if (++d->warm == GD_DRIFT_WARMUP)
      begin_window(d);
    return GD_OK;
  }
  d->step_s[d->count] = step->step_s;
  d->early_s[d->count++] = step->early_s;
  d->total_s += step->step_s;
  d->data_wait_s += step->data_wait_s;
  d->stalled_s += step->stalled_s;
  d->writing += step->writing;
  if (d->count < GD_DRIFT_WINDOW)
    return GD_OK;
  GD_TRY(judge_window(d, sentence, err));
  begin_window(d);
  return GD_OK;
}

void gd_drift_end(struct gd_drift *d) {
  if (d->watches)
    gd_clocks_watch_stop(&d->clocks);
  d->watches = false;
}
