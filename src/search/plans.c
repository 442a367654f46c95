/*
 * Points are taken from a common counter, so that a slow one delays nobody; see plans.h.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "search/plans.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MOST_THREADS = 16 };

/* Things to do that do not depend on each other. */
struct work {
  void (*one)(const struct work *work, int number, struct gd_error *err);
  void *things;
  int count;
  const struct gd_predictor *predictor;
  struct gd_error *errors; /* by number */
  atomic_int next;
};

static void *take_things(void *argument) {
  struct work *work = argument;
  for (int i; (i = atomic_fetch_add(&work->next, 1)) < work->count;)
    work->one(work, i, &work->errors[i]);
  return NULL;
}

static int thread_count(int things) {
  cpu_set_t set;
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  int most = cpus < MOST_THREADS ? cpus : MOST_THREADS;
  return things < most ? things : most;
}

static enum gd_status do_work(struct work *work, struct gd_error *err) {
  pthread_t threads[MOST_THREADS];
  int started = 0, wanted = thread_count(work->count);
  enum gd_status status = GD_OK;
  work->errors = gd_mem_alloc((size_t)work->count + 1, sizeof *work->errors);
  if (!work->errors)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first plan");
  while (started + 1 < wanted && pthread_create(&threads[started], NULL, take_things, work) == 0)
    started++;
  take_things(work); /* this thread works too, so none that could not be started is missed */
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < work->count && status == GD_OK; i++)
    if (work->errors[i].status != GD_OK)
      status = gd_fail(err, work->errors[i].status, "%s", work->errors[i].text);
  gd_mem_free(work->errors);
  return status;
}

/* A failure stays in *err, of both. */
static void plan_point(const struct work *work, int number, struct gd_error *err) {
  struct gd_plan_point *point = (struct gd_plan_point *)work->things + number;
  (void)!gd_trial_predict(point->model, &point->options, work->predictor, &point->trial,
                          &point->prediction, err);
}

static void plan_family(const struct work *work, int number, struct gd_error *err) {
  struct gd_plan_family *family = (struct gd_plan_family *)work->things + number;
  (void)!gd_trial_predict_targets(family->model, &family->options, family->targets, family->count,
                                  err);
}

enum gd_status gd_plan_points(struct gd_plan_point *points, int count,
                              const struct gd_predictor *predictor, struct gd_error *err) {
  struct work work = {.one = plan_point, .things = points, .count = count, .predictor = predictor};
  return do_work(&work, err);
}

enum gd_status gd_plan_families(struct gd_plan_family *families, int count, struct gd_error *err) {
  struct work work = {.one = plan_family, .things = families, .count = count};
  return do_work(&work, err);
}
