/*
 * From points to results; see search.h.
 */
#define _GNU_SOURCE /* realpath, SIGHUP */
#include "search/search.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "base/switches.h"
#include "search/child.h"
#include "search/jobs.h"
#include "search/leftovers.h"

/* --- what is asked -------------------------------------------------------------------------- */

enum gd_status gd_search_make(struct gd_search *search, const struct gd_points_asked *asked,
                              const struct gd_point_machine *machine, struct gd_points *points,
                              struct gd_error *err) {
  struct gd_point_machine on = {0};
  struct gd_points_asked whole = *asked;
  if (!search->in_job)
    on = *machine;
  if (on.shared_bytes > 0 && search->slurm_config)
    on.shared_bytes = asked->options.ranks * gd_job_bytes(search->slurm_config);
  whole.machines = &on;
  whole.n_machines = 1;
  GD_TRY(gd_points_make(&whole, points, err));
  search->points = points->all;
  search->count = points->count;
  search->trial = asked->options;
  search->trial.target = on.target;
  search->predictor = on.predictor;
  search->shared_bytes = on.shared_bytes;
  return GD_OK;
}

static enum gd_status open_jobs(struct gd_search *search, struct gd_error *err) {
  char folder[GD_STORE_PATH + 8];
  gd_slurm_folder_of_store(gd_store_path(search->store), folder, sizeof folder);
  return gd_slurm_open(
      &(struct gd_slurm_options){.config = search->slurm_config,
                                 .folder = search->slurm_folder ? search->slurm_folder : folder,
                                 .ranks = search->trial.ranks,
                                 .nodes = search->trial.nodes,
                                 .gpus = gd_backend_is_gpu(search->trial.backend),
                                 .timeout_s = search->trial_timeout_s > 0
                                                  ? search->trial_timeout_s
                                                  : GD_SEARCH_TRIAL_TIMEOUT_S},
      &search->slurm, err);
}

/* --- which first --------------------------------------------------------------------------- */

static bool comes_before(const struct gd_point *a, const struct gd_point *b) {
  double a_s = a->prediction.step_s, b_s = b->prediction.step_s;
  if (a->tried != b->tried) /* what hung before comes last */
    return a->tried < b->tried;
  if (a_s < b_s || a_s > b_s)
    return a_s < b_s;
  return a->trial.micro_batch > b->trial.micro_batch;
}

/* Days of different models are not compared, so their points take turns by rank within a model:
 * a time limit leaves each with its most promising ones. */
static int compare_places(const void *left, const void *right) {
  const int *a = left, *b = right;
  return a[0] != b[0] ? (a[0] < b[0] ? -1 : 1) : a[1] < b[1] ? -1 : a[1] > b[1];
}

/* The points that are pending, in the order in which they run; how many. */
static int order_points(const struct gd_search *search, int (*places)[2]) {
  int count = 0;
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *point = &search->points[i];
    int before = 0;
    if (point->source != GD_SEARCH_PENDING)
      continue;
    for (int k = 0; k < search->count; k++) {
      const struct gd_point *other = &search->points[k];
      if (k != i && other->source == GD_SEARCH_PENDING &&
          strcmp(other->argument, point->argument) == 0 &&
          (comes_before(other, point) || (k < i && !comes_before(point, other))))
        before++;
    }
    places[count][0] = before;
    places[count++][1] = i;
  }
  qsort(places, (size_t)count, sizeof *places, compare_places);
  return count;
}

/* --- what is known before anything runs ---------------------------------------------------- */

static enum gd_status make_key(const struct gd_search *search, struct gd_point *point,
                               struct gd_error *err) {
  struct gd_trial asked = point->trial;
  /* Free memory changes from minute to minute: what counts is the limit that was asked for. */
  asked.device_limit_bytes = search->trial.device_limit_bytes;
  asked.host_limit_bytes = search->trial.host_limit_bytes;
  return gd_store_key_make(
      &(struct gd_store_asked){.model = point->model,
                               .plan = &asked,
                               .micro_batch = search->trial.micro_batch,
                               .micro_batch_size = search->trial.micro_batch_size,
                               .seed = search->trial.seed,
                               .sample_seconds = search->trial.sample_seconds,
                               .profile = search->trial.profile},
      &point->key, err);
}

/* All that decides which machine a job gets, and the GPU that it was planned for. */
static void name_job_machine(const struct gd_search *search, struct gd_trial *trial) {
  const struct gd_slurm_config *config = search->slurm_config;
  GD_ASSERT(config);
  struct gd_strbuf text = {0};
  gd_strbuf_printf(&text, "job=%s;partition=%s;constraint=%s;gres=%s;mpi=%s;cpus=%lld;memory=%lld",
                   config->device, config->partition, config->constraint, config->gres, config->mpi,
                   (long long)config->cpus, (long long)config->memory_bytes);
  if (search->trial.target && !search->any_gpu)
    gd_strbuf_printf(&text, ";gpu=%s;gpus=%d", trial->device, trial->ranks);
  for (int i = 0; i < config->n_extra; i++)
    gd_strbuf_printf(&text, ";extra=%s", config->extra[i]);
  if (text.length < sizeof trial->machine)
    snprintf(trial->machine, sizeof trial->machine, "%s", text.text ? text.text : "");
  else
    gd_hash_hex(trial->machine, text.text);
  gd_strbuf_deinit(&text);
}

/* A job runs on whatever machine it gets, so that what was asked for stands for the device. */
static void name_device(const struct gd_search *search, struct gd_trial *trial) {
  const struct gd_slurm_config *config = search->slurm_config;
  if (!search->slurm)
    return;
  GD_ASSERT(config);
  name_job_machine(search, trial);
  const char *gpu = search->trial.target && !search->any_gpu ? search->trial.target->gpu->name : "";
  snprintf(trial->device, sizeof trial->device, "SLURM: %.24s%s%.24s%s%.24s%s%.24s", config->device,
           config->partition[0] ? ", " : "", config->partition, config->constraint[0] ? ", " : "",
           config->constraint, gpu[0] ? ", " : "", gpu);
}

/* Of each model one point stays: the best, or, where none fits, the nearest. */
static void keep_best(struct gd_search *search) {
  int kept = 0;
  for (int from = 0, to; from < search->count; from = to) {
    const struct gd_point *of = &search->points[from];
    for (to = from; to < search->count && search->points[to].model == of->model;)
      to++;
    const struct gd_point *best = gd_points_best(of, to - from);
    if (!best)
      best = gd_points_nearest(of, to - from);
    search->points[kept++] = best ? *best : *of;
  }
  search->count = kept;
}

/* All points at once; then what the store calls them. */
static enum gd_status plan_points(struct gd_search *search, struct gd_error *err) {
  for (int i = 0; i < search->count; i++)
    if (search->any_gpu && search->points[i].options.device_limit_bytes == 0)
      search->points[i].options.device_limit_bytes =
          INT64_MAX / 4; /* its job finds out what fits */
  GD_TRY(gd_points_plan(search->points, search->count, err));
  if (search->best_alone)
    keep_best(search);
  for (int i = 0; i < search->count; i++) {
    struct gd_point *point = &search->points[i];
    if (point->status != GD_OK)
      continue;
    name_device(search, &point->trial);
    GD_TRY(make_key(search, point, err));
  }
  return GD_OK;
}

/* The name is what was asked for, as a path or in another case. */
static void take_trial(struct gd_point *point, const struct gd_trial *trial) {
  point->trial = *trial;
  snprintf(point->trial.model, sizeof point->trial.model, "%s", point->model->name);
}

/* Where nothing can be planned, it is the question that is wrong. */
static enum gd_status check_plans(const struct gd_search *search, struct gd_error *err) {
  for (int i = 0; i < search->count; i++)
    if (search->points[i].status == GD_OK)
      return GD_OK;
  return gd_fail(err, search->points[0].status, "%s", search->points[0].trial.reason);
}

/* A failure that another search has met since this one began is not tried by both. */
static bool is_tried_again(const struct gd_search *search, const struct gd_trial *known,
                           const struct gd_provenance *provenance) {
  return known->status == GD_TRIAL_FAILED && strcmp(provenance->time, search->began) < 0 &&
         (search->retry_failed ||
          (known->failure != GD_FAILURE_PLAN && known->failure != GD_FAILURE_CRASH));
}

/*
 * What the store knows of a planned point. A pending one is measured; an infeasible one is noted
 * unless there is a result, which a machine with more free memory may have given.
 */
static enum gd_status ask_store(struct gd_search *search, struct gd_point *point,
                                struct gd_error *err) {
  struct gd_provenance provenance = {0};
  struct gd_trial known;
  bool found = false;
  if (!search->store || search->simulate ||
      (point->source == GD_SEARCH_PLAN && point->status != GD_OK))
    return GD_OK;
  GD_TRY(gd_store_find(search->store, &point->key, &known, &provenance, &found, err));
  const char *damage;
  if (!found && gd_store_damage(search->store, &damage) > 0)
    snprintf(point->damage, sizeof point->damage, "%s", damage);
  found = found && known.status != GD_TRIAL_PLANNED;
  if (point->source == GD_SEARCH_PLAN)
    return found && !search->fresh
               ? GD_OK
               : gd_store_put(search->store, &point->key, &point->trial, NULL, err);
  if (found && is_tried_again(search, &known, &provenance)) {
    point->tried = known.tries > 0 ? known.tries : 1;
    return GD_OK;
  }
  if (found && !search->fresh && known.status != GD_TRIAL_INFEASIBLE) {
    take_trial(point, &known);
    point->source = GD_SEARCH_STORE;
    snprintf(point->stored_at, sizeof point->stored_at, "%s", provenance.time);
  }
  return GD_OK;
}

/* Listed as pending from here on, should the search be killed. */
static enum gd_status announce(struct gd_search *search, struct gd_error *err) {
  for (int i = 0; i < search->count && search->store; i++)
    if (search->points[i].source == GD_SEARCH_PENDING)
      GD_TRY(
          gd_store_put(search->store, &search->points[i].key, &search->points[i].trial, NULL, err));
  return GD_OK;
}

/* --- measuring ----------------------------------------------------------------------------- */

struct measuring {
  struct gd_search *search;
  char folder[PATH_MAX]; /* where searches of this store keep their trials; empty: no store */
  int64_t start_ns, deadline_ns; /* deadline 0: none */
  int64_t machine_bytes;         /* 0: not known */
  const struct gd_point *point;
  int number, of;
  int64_t trial_start_ns;
  double finished_s; /* wall time of the finished trials */
};

/* What is left of this trial, and as much for each of the others as those before have taken. */
static void report(void *user, const char *what, double done, double eta_s) {
  const struct measuring *m = user;
  double spent = 1e-9 * (double)(gd_clock_ns() - m->trial_start_ns);
  int after = m->of - m->number, before = m->number - 1;
  double mean_s = before > 0 ? m->finished_s / before : spent + eta_s;
  double whole = (before + (eta_s < 0 ? 0 : done)) / m->of; /* no ETA: not known how far it is */
  double left_s = eta_s < 0 && before > 0 ? (mean_s > spent ? mean_s - spent : 0) : eta_s;
  m->search->progress(m->search->user, m->point, m->number, m->of, what, whole,
                      left_s < 0 ? -1 : left_s + after * mean_s);
}

/* A plan that fits its limit may still be more than there is; better not to find out by trying. */
static bool is_beyond_machine(const struct measuring *m, struct gd_point *point) {
  char need[32], have[32];
  struct gd_trial *trial = &point->trial;
  int64_t bytes = trial->ranks * (trial->peak_bytes + trial->host_bytes);
  if (m->machine_bytes <= 0 || bytes <= m->machine_bytes)
    return false;
  point->status = GD_NOMEM_HOST;
  trial->status = GD_TRIAL_FAILED;
  snprintf(trial->reason, sizeof trial->reason,
           "its plan keeps to the limits, but needs %s%s, and %s has %s free; lower "
           "--device-memory or --host-memory",
           gd_format_bytes(need, sizeof need, bytes), trial->ranks > 1 ? " over all ranks" : "",
           m->search->slurm ? "its job" : "this machine",
           gd_format_bytes(have, sizeof have, m->machine_bytes));
  return true;
}

/* A point that was asked for twice is measured once. */
static bool copy_twin(struct gd_search *search, struct gd_point *point) {
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *twin = &search->points[i];
    if (twin == point || twin->source != GD_SEARCH_RUN ||
        strcmp(twin->key.hash, point->key.hash) != 0)
      continue;
    take_trial(point, &twin->trial);
    point->status = twin->status;
    point->source = GD_SEARCH_RUN;
    return true;
  }
  return false;
}

static struct gd_child_order make_order(const struct gd_search *search,
                                        const struct gd_point *point) {
  struct gd_child_order order = {.model = point->argument,
                                 .recipe = point->model->recipe,
                                 .trial = search->trial,
                                 .rank_timeout_s = search->rank_timeout_s};
  order.trial.method = point->options.method;
  order.trial.comm = NULL;
  order.trial.identity = NULL;
  if (!search->slurm) /* a job's machine may have another plan */
    order.trial.expected = (struct gd_plan_identity){.micro_batch = point->trial.micro_batch,
                                                     .saved_blocks = point->trial.saved_blocks,
                                                     .hash = point->trial.plan_hash};
  /* As planned, whatever free memory is by then; but the memory of a job's GPU is known there. */
  if (!search->slurm || !search->trial.target)
    order.trial.device_limit_bytes = point->trial.device_limit_bytes;
  order.trial.host_limit_bytes = point->trial.host_limit_bytes;
  return order;
}

/* provenance NULL: here and now. */
static enum gd_status keep_point(struct gd_search *search, struct gd_point *point,
                                 const struct gd_provenance *provenance, struct gd_error *err) {
  point->source = GD_SEARCH_RUN;
  point->trial.tries = point->tried + 1;
  gd_point_set_failure(point);
  if (search->store)
    GD_TRY(gd_store_put(search->store, &point->key, &point->trial, provenance, err));
  if (search->finished)
    search->finished(search->user, point);
  return GD_OK;
}

/*
 * The folder of a point's trial, <store>.trials/KEY, is locked while a search works on it: of
 * several searches of one store one measures a point, and the others read it. It also lies where
 * all machines of an allocation find it that find the store.
 */
static enum gd_status open_folder(struct measuring *m, struct gd_error *err) {
  const char *store = m->search->store ? gd_store_path(m->search->store) : ":memory:";
  char folder[PATH_MAX];
  if (strcmp(store, ":memory:") == 0) {
    gd_child_sweep(NULL);
    return GD_OK;
  }
  int length = snprintf(folder, sizeof folder, "%s.trials", store);
  if (length < 0 || (size_t)length >= sizeof folder)
    return gd_fail(err, GD_ENVIRONMENT, "the path of the store is too long: %.256s", store);
  GD_TRY(gd_file_make_folder(folder, err));
  if (!realpath(folder, m->folder))
    snprintf(m->folder, sizeof m->folder, "%s", folder);
  gd_child_sweep(m->folder);
  return GD_OK;
}

/* *ours false: another search is at it. Otherwise it may have been, and has stored the answer. */
static enum gd_status claim(struct measuring *m, struct gd_point *point, struct gd_scratch *scratch,
                            bool *ours, struct gd_error *err) {
  *ours = true;
  if (!m->folder[0])
    return GD_OK;
  GD_TRY(gd_scratch_take(scratch, m->folder, point->key.hash, ours, err));
  return *ours && !m->search->fresh ? ask_store(m->search, point, err) : GD_OK;
}

/* Half a second, unless a signal asks this process to end. */
static enum gd_status wait_for_others(struct measuring *m, struct gd_error *err) {
  struct gd_signals signals;
  if (!gd_signals_open(&signals))
    return gd_fail(err, GD_ENVIRONMENT, "cannot wait for signals: %s", strerror(errno));
  poll(&(struct pollfd){.fd = signals.fd, .events = POLLIN}, 1, 500);
  m->search->stop_signal = gd_signals_asked(&signals);
  gd_signals_close(&signals);
  return GD_OK;
}

/*
 * Threads of OpenMP spin while they wait for each other. Where other programs have most of the
 * CPUs, the thread that is waited for is not running, and each op may last as long as a turn of the
 * scheduler: a small model was up to a thousand times too slow. Threads that sleep meanwhile took
 * two or three times as long as alone; on a quiet machine spinning is faster.
 */
static bool may_have_spun(const struct gd_trial *trial) {
  return gd_trial_is_disturbed(trial) && trial->threads > 1 && !gd_env("OMP_WAIT_POLICY") &&
         !gd_env("GOMP_SPINCOUNT");
}

/* Once more, with threads that sleep; the faster of both trials is nearer to the truth. */
static enum gd_status run_asleep(struct measuring *m, const struct gd_child_order *order,
                                 const struct gd_child_options *options,
                                 const struct gd_trial *plan, struct gd_trial *trial,
                                 struct gd_error *err) {
  struct gd_trial again = *plan;
  struct gd_child_end end = {0};
  setenv("OMP_WAIT_POLICY", "passive", 1);
  enum gd_status status = gd_child_run(order, options, &again, &end, err);
  unsetenv("OMP_WAIT_POLICY");
  GD_TRY(status);
  m->search->stop_signal = end.signal;
  m->finished_s += end.wall_s;
  if (end.how != GD_CHILD_DONE || again.status != GD_TRIAL_OK || again.step_s >= trial->step_s)
    return GD_OK;
  again.busy_share = fmax(again.busy_share, trial->busy_share); /* it may be too short to tell */
  gd_trial_set_days_low(&again);
  *trial = again;
  size_t length = strlen(trial->note);
  snprintf(trial->note + length, sizeof trial->note - length,
           "%sits threads slept while they waited for each other (OMP_WAIT_POLICY=passive), as "
           "other programs had the CPUs",
           length ? "; " : "");
  return GD_OK;
}

/* Measures and stores a point that is ours; it stays pending where the search ends first. */
static enum gd_status measure_claimed(struct measuring *m, struct gd_point *point,
                                      const struct gd_scratch *scratch, struct gd_error *err) {
  struct gd_search *search = m->search;
  struct gd_child_order order = make_order(search, point);
  struct gd_provenance where;
  struct gd_child_options options = {.scratch = scratch->path[0] ? scratch : NULL,
                                     .timeout_s = search->trial_timeout_s > 0
                                                      ? search->trial_timeout_s
                                                      : GD_SEARCH_TRIAL_TIMEOUT_S,
                                     .deadline_ns = m->deadline_ns,
                                     .progress = search->progress ? report : NULL,
                                     .progress_user = m};
  struct gd_child_end end = {0};
  const struct gd_trial plan = point->trial;
  /* A search before this one was killed after its trial had ended. */
  bool found = !search->fresh && gd_child_collect(scratch, &point->trial, &where);
  if (found && may_have_spun(&point->trial)) { /* or before its second one had */
    found = false;
    point->trial = plan;
  }
  if (found)
    return keep_point(search, point, &where, err);
  m->trial_start_ns = gd_clock_ns();
  if (!is_beyond_machine(m, point)) {
    if (search->progress)
      report(m, "starting", 0, -1);
    GD_TRY(gd_child_run(&order, &options, &point->trial, &end, err));
    search->stop_signal = end.signal;
    if (end.how == GD_CHILD_LATE || end.how == GD_CHILD_STOPPED)
      return GD_OK;
    point->status = end.status;
    if (end.how == GD_CHILD_DONE && may_have_spun(&point->trial))
      GD_TRY(run_asleep(m, &order, &options, &plan, &point->trial, err));
  }
  m->finished_s += end.wall_s;
  return keep_point(search, point, NULL, err);
}

/* *elsewhere: another search is at it, and it stays pending. */
static enum gd_status measure_point(struct measuring *m, struct gd_point *point, bool *elsewhere,
                                    struct gd_error *err) {
  struct gd_scratch scratch = GD_SCRATCH_NONE;
  bool ours;
  *elsewhere = false;
  if (copy_twin(m->search, point))
    return GD_OK;
  m->point = point;
  enum gd_status status = claim(m, point, &scratch, &ours, err);
  *elsewhere = status == GD_OK && !ours;
  if (status == GD_OK && ours && point->source == GD_SEARCH_PENDING)
    status = measure_claimed(m, point, &scratch, err);
  if (status == GD_OK)
    gd_scratch_remove(&scratch);
  else
    gd_scratch_leave(&scratch); /* a result that could not be stored is for the next search */
  return status;
}

/* --- measuring in the ranks of a job -------------------------------------------------------- */

/*
 * A trial that fails for want of memory is a result; one that fails in its environment ends the
 * job, on all ranks: what the process has lost, such as a GPU's context, the next trials would lack
 * too.
 */
static enum gd_status measure_in_rank(struct measuring *m, struct gd_point *point,
                                      struct gd_error *err) {
  struct gd_search *search = m->search;
  struct gd_trial_options options = point->options;
  struct gd_error own = {0};
  m->point = point;
  m->trial_start_ns = gd_clock_ns();
  snprintf(point->trial.model, sizeof point->trial.model, "%s", point->model->name);
  gd_method_name(&options.method, point->trial.method);
  options.progress = search->progress ? report : NULL;
  options.progress_user = m;
  point->status = gd_trial_measure(point->model, &options, &point->trial, &own);
  if (point->status != GD_OK) {
    point->trial.status = GD_TRIAL_FAILED;
    snprintf(point->trial.reason, sizeof point->trial.reason, "%s", own.text);
  }
  m->finished_s += 1e-9 * (double)(gd_clock_ns() - m->trial_start_ns);
  GD_TRY(keep_point(search, point, NULL, err));
  if (point->status == GD_ENVIRONMENT || (options.comm && gd_comm_has_failed(options.comm)))
    return gd_fail(err, point->status, "%s", own.text);
  return GD_OK;
}

/* Each trial plans by itself, since ranks first agree on what they have. */
static enum gd_status measure_in_job(struct measuring *m, struct gd_error *err) {
  m->of = m->search->count;
  for (int i = 0; i < m->of; i++) {
    m->number = i + 1;
    GD_TRY(measure_in_rank(m, &m->search->points[i], err));
  }
  return GD_OK;
}

/* --- measuring by jobs --------------------------------------------------------------------- */

static void report_jobs(const struct measuring *m) {
  struct gd_slurm_counts counts;
  char what[128];
  if (!m->search->progress)
    return;
  gd_slurm_count(m->search->slurm, &counts);
  int of = counts.pending + counts.running + counts.ended;
  double spent = 1e-9 * (double)(gd_clock_ns() - m->start_ns);
  bool waits = counts.running == 0 && counts.pending > 0 && counts.why[0];
  snprintf(what, sizeof what, "%d pending%s%s%s, %d running, %d done", counts.pending,
           waits ? " (" : "", waits ? counts.why : "", waits ? ")" : "", counts.running,
           counts.ended);
  m->search->progress(m->search->user, NULL, counts.ended, of, what,
                      of ? (double)counts.ended / of : 0,
                      counts.ended ? spent / counts.ended * (of - counts.ended) : -1);
}

/* Whether another search has stored the answer since this one asked. */
static enum gd_status is_answered(void *user, int tag, bool *known, struct gd_error *err) {
  struct gd_search *search = user;
  struct gd_point *point = &search->points[tag];
  if (!search->fresh)
    GD_TRY(ask_store(search, point, err));
  *known = point->source == GD_SEARCH_STORE;
  return GD_OK;
}

/* The answer of a job that has ended, kept before its files go. */
static enum gd_status keep_job(struct gd_search *search, struct gd_slurm_job *job,
                               struct gd_error *err) {
  struct gd_point *point = &search->points[gd_slurm_tag(job)];
  struct gd_provenance where = {0};
  struct gd_trial answer = point->trial;
  if (gd_slurm_is_known(job)) {
    gd_slurm_forget(search->slurm, job);
    return GD_OK;
  }
  point->status = gd_slurm_collect(search->slurm, job, &answer, &where);
  take_trial(point, &answer);
  GD_TRY(keep_point(search, point, point->status == GD_OK ? &where : NULL, err));
  gd_slurm_forget(search->slurm, job);
  return GD_OK;
}

static bool has_twin_before(const struct gd_search *search, int (*places)[2], int at) {
  const char *hash = search->points[places[at][1]].key.hash;
  for (int i = 0; i < at; i++)
    if (strcmp(search->points[places[i][1]].key.hash, hash) == 0)
      return true;
  return false;
}

static enum gd_status start_jobs(struct measuring *m, int (*places)[2], int *started,
                                 struct gd_error *err) {
  struct gd_search *search = m->search;
  *started = 0;
  for (int i = 0; i < m->of; i++) {
    struct gd_point *point = &search->points[places[i][1]];
    if (has_twin_before(search, places, i))
      continue;
    if (is_beyond_machine(m, point)) {
      GD_TRY(keep_point(search, point, NULL, err));
      continue;
    }
    struct gd_child_order order = make_order(search, point);
    GD_TRY(gd_slurm_start(search->slurm, point->key.hash, &order, places[i][1], err));
    *started += 1;
  }
  return GD_OK;
}

/* All jobs are in the queue at once, as the cluster has room for more than one. */
static enum gd_status measure_jobs(struct measuring *m, int (*places)[2], struct gd_error *err) {
  struct gd_search *search = m->search;
  struct gd_slurm_job *job;
  int left;
  bool late = false;
  gd_slurm_ask(search->slurm, is_answered, search);
  GD_TRY(start_jobs(m, places, &left, err));
  while (left > 0 && !late && !search->stop_signal) {
    GD_TRY(gd_slurm_poll(search->slurm, &job, err));
    if (job) {
      GD_TRY(keep_job(search, job, err));
      left--;
    }
    report_jobs(m);
    search->stop_signal = gd_slurm_stop_signal(search->slurm);
    late = m->deadline_ns && gd_clock_ns() >= m->deadline_ns;
  }
  /* A terminal that goes away is no wish to give up a place in the queue. */
  if (left > 0 && search->stop_signal != SIGHUP)
    search->n_cancelled = gd_slurm_cancel(search->slurm);
  for (int i = 0; i < m->of; i++)
    if (search->points[places[i][1]].source == GD_SEARCH_PENDING)
      copy_twin(search, &search->points[places[i][1]]);
  return GD_OK;
}

/* --- what prediction answers --------------------------------------------------------------- */

static void add_rows(struct gd_trial *trial, const struct gd_simulated *program) {
  for (uint32_t i = 0; i < program->n_rows && trial->n_profile < GD_PROFILE_ROWS; i++)
    trial->profile[trial->n_profile++] = program->rows[i];
}

static int compare_rows(const void *left, const void *right) {
  const struct gd_profile_row *a = left, *b = right;
  return a->seconds > b->seconds ? -1 : a->seconds < b->seconds;
}

/* A predicted trial looks like a measured one; its source says what it is. */
static void take_prediction(const struct gd_search *search, struct gd_point *point) {
  const struct gd_prediction *p = &point->prediction;
  struct gd_trial *trial = &point->trial;
  const struct gd_recipe *recipe = &point->model->recipe;
  point->source = GD_SEARCH_PREDICTED;
  trial->status = GD_TRIAL_OK;
  trial->micro_step.median_s = p->micro_step_s;
  trial->last_micro_step.median_s = p->has_last_micro_step ? p->last_micro_step_s : 0;
  trial->last_micro_step.count = p->has_last_micro_step ? 1 : 0;
  trial->update.median_s = p->update_s;
  trial->step_s = p->step_s;
  trial->days = p->days;
  trial->days_low = p->days_low;
  trial->days_high = p->days_high;
  trial->samples_per_s = (double)recipe->batch / p->step_s;
  trial->tokens_per_s = trial->samples_per_s * (double)recipe->seq;
  if (search->trial.profile) {
    add_rows(trial, &p->micro_step);
    add_rows(trial, &p->update);
    qsort(trial->profile, trial->n_profile, sizeof *trial->profile, compare_rows);
  }
  trial->peak_flops = trial->ranks * gd_predictor_peak(search->predictor, trial->precision,
                                                       point->options.method.tf32);
  if (trial->peak_flops > 0) {
    trial->mfu = trial->model_flops_per_step / p->step_s / trial->peak_flops;
    trial->hfu = trial->exec_flops_per_step / p->step_s / trial->peak_flops;
  }
}

static bool counts_as_measured(const struct gd_point *point) {
  return (point->source == GD_SEARCH_RUN || point->source == GD_SEARCH_STORE) &&
         point->trial.status == GD_TRIAL_OK && point->prediction.step_s > 0;
}

/* The shortest step that was measured of a point's model; NULL: none was. */
static const struct gd_point *best_measured(const struct gd_search *search,
                                            const struct gd_point *of) {
  const struct gd_point *best = NULL;
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *point = &search->points[i];
    if (counts_as_measured(point) && strcmp(point->argument, of->argument) == 0 &&
        (!best || point->trial.step_s < best->trial.step_s))
      best = point;
  }
  return best;
}

/* Seconds of a predicted step by kind of op; the last element is the time that the computation
   waits. */
static void step_by_kind(const struct gd_point *point, double seconds[GD_OP_COUNT + 1]) {
  const struct gd_prediction *p = &point->prediction;
  double micro_steps = (double)point->trial.accumulation, sum = 0;
  memset(seconds, 0, (GD_OP_COUNT + 1) * sizeof *seconds);
  for (uint32_t i = 0; i < p->micro_step.n_rows; i++)
    if (!p->micro_step.rows[i].async)
      seconds[p->micro_step.rows[i].kind] += micro_steps * p->micro_step.rows[i].seconds;
  for (uint32_t i = 0; i < p->update.n_rows; i++)
    if (!p->update.rows[i].async)
      seconds[p->update.rows[i].kind] += p->update.rows[i].seconds;
  for (int kind = 0; kind < GD_OP_COUNT; kind++)
    sum += seconds[kind];
  seconds[GD_OP_COUNT] = p->step_s - sum;
}

/*
 * The least by which one step may be longer than another (below 0: shorter), when each kind of op
 * may be off by the error of the predictor. What both spend on a kind has the same error in both,
 * so that only the difference counts: copies that one has and the other has not cannot make it
 * faster, however wrong their time is.
 */
static double least_difference(const struct gd_point *a, const struct gd_point *b, double error) {
  double in_a[GD_OP_COUNT + 1], in_b[GD_OP_COUNT + 1], least = 0;
  step_by_kind(a, in_a);
  step_by_kind(b, in_b);
  for (int i = 0; i <= GD_OP_COUNT; i++) {
    double more = in_a[i] - in_b[i];
    least += more * (more > 0 ? 1 - error : 1 + error);
  }
  return least;
}

/* Whether a point cannot be faster than the best of its model by more than a hundredth. */
static bool is_excluded(const struct gd_search *search, const struct gd_point *point) {
  const double worth = 0.01;
  const struct gd_point *best = best_measured(search, point);
  if (!best)
    return false;
  double ratio = best->trial.step_s / best->prediction.step_s; /* what all methods have in common */
  double error = fmax(point->prediction.error, best->prediction.error);
  double least_s = best->trial.step_s + ratio * least_difference(point, best, fmin(error, 0.9));
  return least_s > (1 - worth) * best->trial.step_s;
}

/* --simulate: every pending point takes its prediction. */
static enum gd_status answer_by_prediction(struct gd_search *search) {
  for (int i = 0; i < search->count; i++)
    if (search->points[i].source == GD_SEARCH_PENDING)
      take_prediction(search, &search->points[i]);
  return GD_OK;
}

static enum gd_status exclude(struct gd_search *search, struct gd_point *point,
                              struct gd_error *err) {
  if (search->store)
    GD_TRY(gd_store_drop_pending(search->store, &point->key, err));
  take_prediction(search, point);
  if (search->finished)
    search->finished(search->user, point);
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

static bool is_late(const struct measuring *m) {
  return m->deadline_ns && gd_clock_ns() >= m->deadline_ns;
}

/* One after the other; what other searches are at is looked after when all else is done. */
static enum gd_status measure_here(struct measuring *m, int (*places)[2], struct gd_error *err) {
  struct gd_search *search = m->search;
  for (int elsewhere = 1; elsewhere > 0;) {
    elsewhere = 0;
    for (int i = 0; i < m->of; i++) {
      struct gd_point *point = &search->points[places[i][1]];
      bool others = false;
      if (point->source != GD_SEARCH_PENDING)
        continue;
      if (search->stop_signal || is_late(m))
        return GD_OK;
      m->number = i + 1;
      if (search->fast && is_excluded(search, point))
        GD_TRY(exclude(search, point, err));
      else
        GD_TRY(measure_point(m, point, &others, err));
      elsewhere += others;
    }
    if (elsewhere > 0 && search->progress) {
      m->trial_start_ns = gd_clock_ns();
      report(m, "measured by another search", 0, -1);
    }
    if (elsewhere > 0)
      GD_TRY(wait_for_others(m, err));
  }
  return GD_OK;
}

/* What a search that was killed left of points that others have stored since. */
static enum gd_status sweep_stored(struct measuring *m, struct gd_error *err) {
  struct gd_search *search = m->search;
  char path[PATH_MAX];
  struct stat info;
  if (search->slurm)
    return gd_leftovers_take(search, gd_slurm_folder(search->slurm), err);
  if (!search->store)
    return GD_OK;
  int length = snprintf(path, sizeof path, "%s.trials", gd_store_path(search->store));
  if (length < 0 || (size_t)length >= sizeof path || stat(path, &info) != 0)
    return GD_OK;
  GD_TRY(open_folder(m, err));
  if (m->folder[0])
    GD_TRY(gd_leftovers_take(search, m->folder, err));
  for (int i = 0; i < search->count; i++) {
    struct gd_scratch scratch = GD_SCRATCH_NONE;
    bool ours = false;
    if (search->points[i].source != GD_SEARCH_STORE)
      continue;
    GD_TRY(gd_scratch_take(&scratch, m->folder, search->points[i].key.hash, &ours, err));
    if (ours)
      gd_scratch_remove(&scratch);
  }
  rmdir(m->folder); /* unless there is something in it */
  return GD_OK;
}

static enum gd_status measure_all(struct measuring *m, int (*places)[2], struct gd_error *err) {
  struct gd_search *search = m->search;
  if (search->simulate)
    return answer_by_prediction(search);
  m->of = order_points(search, places);
  if (m->of == 0)
    return sweep_stored(m, err);
  GD_TRY(announce(search, err));
  if (search->slurm) {
    GD_TRY(gd_leftovers_take(search, gd_slurm_folder(search->slurm), err));
    return measure_jobs(m, places, err);
  }
  GD_TRY(open_folder(m, err));
  if (m->folder[0])
    GD_TRY(gd_leftovers_take(search, m->folder, err));
  enum gd_status status = measure_here(m, places, err);
  if (m->folder[0])
    rmdir(m->folder); /* unless there is something in it */
  return status;
}

static void count_sources(struct gd_search *search) {
  search->n_run = search->n_stored = search->n_pending = search->n_predicted = 0;
  memset(search->n_failed, 0, sizeof search->n_failed);
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *point = &search->points[i];
    if (point->source != GD_SEARCH_PENDING && point->trial.status == GD_TRIAL_FAILED)
      search->n_failed[point->trial.failure]++;
    search->n_run += search->points[i].source == GD_SEARCH_RUN;
    search->n_stored += search->points[i].source == GD_SEARCH_STORE;
    search->n_pending += search->points[i].source == GD_SEARCH_PENDING;
    search->n_predicted += search->points[i].source == GD_SEARCH_PREDICTED;
  }
}

enum gd_status gd_search_run(struct gd_search *search, struct gd_error *err) {
  struct measuring m = {
      .search = search, .start_ns = gd_clock_ns(), .machine_bytes = search->shared_bytes};
  struct gd_provenance here;
  gd_provenance_here("cpu", &here); /* for the time alone */
  snprintf(search->began, sizeof search->began, "%s", here.time);
  if (search->time_limit_s > 0)
    m.deadline_ns = m.start_ns + (int64_t)(search->time_limit_s * 1e9);
  int(*places)[2] = gd_mem_alloc((size_t)search->count + 1, sizeof *places);
  enum gd_status status = places ? GD_OK : gd_nomem(err, "before the search");
  if (status == GD_OK && search->in_job) {
    status = measure_in_job(&m, err);
    gd_mem_free(places);
    count_sources(search);
    return status;
  }
  if (status == GD_OK && search->slurm_config)
    status = open_jobs(search, err);
  if (status == GD_OK)
    status = plan_points(search, err);
  if (status == GD_OK)
    status = check_plans(search, err);
  for (int i = 0; i < search->count && status == GD_OK; i++)
    status = ask_store(search, &search->points[i], err);
  if (status == GD_OK)
    status = measure_all(&m, places, err);
  gd_slurm_close(search->slurm);
  search->slurm = NULL;
  gd_mem_free(places);
  count_sources(search);
  return status;
}

static bool is_better(const struct gd_trial *a, const struct gd_trial *b) {
  bool a_disturbed = gd_trial_is_disturbed(a), b_disturbed = gd_trial_is_disturbed(b);
  return a_disturbed != b_disturbed ? b_disturbed : a->days < b->days;
}

int gd_search_best(const struct gd_search *search, int of) {
  int best = -1;
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *point = &search->points[i];
    bool measured = point->source != GD_SEARCH_PREDICTED || search->simulate;
    if (strcmp(point->argument, search->points[of].argument) == 0 && measured &&
        point->trial.status == GD_TRIAL_OK &&
        (best < 0 || is_better(&point->trial, &search->points[best].trial)))
      best = i;
  }
  return best;
}

/* --- what came of it ------------------------------------------------------------------------ */

bool gd_search_has_compiled(const struct gd_search *search) {
  bool gpus = gd_backend_is_gpu(search->trial.backend), compiled = false;
  for (int i = 0; i < search->count && !search->slurm_config; i++)
    compiled |= search->points[i].source == GD_SEARCH_RUN &&
                (gpus || search->points[i].options.method.compile);
  return compiled;
}

bool gd_search_fails_alike(const struct gd_search *search) {
  for (int i = 0; i < search->count; i++)
    if (!gd_point_same_failure(&search->points[0], &search->points[i]))
      return false;
  return search->count > 1;
}

/* Seconds that a point's trial takes at least by its prediction, without compiling: each program
   once to warm up, then at least three times, and for as long as its samples last. 0: not known. */
static double wanted_s(const struct gd_search *search, const struct gd_point *point) {
  const struct gd_prediction *p = &point->prediction;
  const double sample_s = search->trial.sample_seconds > 0 ? search->trial.sample_seconds : 5;
  if (!p->known)
    return 0;
  return p->micro_step_s + fmax(3 * p->micro_step_s, sample_s) + p->update_s +
         fmax(3 * p->update_s, sample_s);
}

/* What the pending trial that is the soonest to end would need. */
static void say_wanted(const struct gd_search *search, char *text, size_t size) {
  const struct gd_point *first = NULL;
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *point = &search->points[i];
    double wants_s = point->source == GD_SEARCH_PENDING ? wanted_s(search, point) : 0;
    if (wants_s > 0 && (!first || wants_s < wanted_s(search, first)))
      first = point;
  }
  text[0] = '\0';
  if (first)
    snprintf(text, size,
             "; %.64s alone is expected to take %.0f s, and more to compile it: --time-limit is "
             "for all of them",
             first->trial.method, ceil(wanted_s(search, first)));
}

enum gd_status gd_search_verdict(const struct gd_search *search, struct gd_error *err) {
  struct gd_error first = {0};
  for (int i = 0; i < search->count; i++)
    if (search->points[i].trial.status == GD_TRIAL_OK)
      return GD_OK;
  for (int i = 0; i < search->count && first.status == GD_OK; i++)
    if (search->points[i].source != GD_SEARCH_PENDING)
      gd_trial_verdict(&search->points[i].trial, &first);
  if (gd_search_fails_alike(search)) {
    const struct gd_trial *trial = &search->points[0].trial;
    return gd_fail(err, first.status, "all %d trials %s%s: %s", search->count,
                   trial->status == GD_TRIAL_FAILED ? "" : "are ",
                   gd_trial_status_name(trial->status), trial->reason);
  }
  if (first.status != GD_OK && search->n_pending == 0) {
    *err = first;
    return first.status;
  }
  char wanted[192];
  say_wanted(search, wanted, sizeof wanted);
  return gd_fail(err, GD_MISMATCH,
                 "no trial was good before the time limit, and %d of %d are pending; the same "
                 "command goes on with them%s",
                 search->n_pending, search->count, wanted);
}
