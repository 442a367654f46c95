/*
 * Points are taken from a common counter, so that a slow one delays nobody; see plans.h.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "search/plans.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MOST_THREADS = 16 };

struct work {
  struct gd_plan_point *points;
  int count;
  const struct gd_predictor *predictor;
  struct gd_error *errors; /* by point */
  atomic_int next;
};

static void *take_points(void *argument) {
  struct work *work = argument;
  for (int i; (i = atomic_fetch_add(&work->next, 1)) < work->count;) {
    struct gd_plan_point *point = &work->points[i];
    /* A failure stays in errors[i]. */
    (void)!gd_trial_predict(point->model, &point->options, work->predictor, &point->trial,
                            &point->prediction, &work->errors[i]);
  }
  return NULL;
}

static int thread_count(int points) {
  cpu_set_t set;
  int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  int most = cpus < MOST_THREADS ? cpus : MOST_THREADS;
  return points < most ? points : most;
}

enum gd_status gd_plan_points(struct gd_plan_point *points, int count,
                              const struct gd_predictor *predictor, struct gd_error *err) {
  struct work work = {.points = points,
                      .count = count,
                      .predictor = predictor,
                      .errors = gd_mem_alloc((size_t)count + 1, sizeof *work.errors)};
  pthread_t threads[MOST_THREADS];
  int started = 0, wanted = thread_count(count);
  enum gd_status status = GD_OK;
  if (!work.errors)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first plan");
  while (started + 1 < wanted && pthread_create(&threads[started], NULL, take_points, &work) == 0)
    started++;
  take_points(&work); /* this thread works too, so none that could not be started is missed */
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < count && status == GD_OK; i++)
    if (work.errors[i].status != GD_OK)
      status = gd_fail(err, work.errors[i].status, "%s", work.errors[i].text);
  gd_mem_free(work.errors);
  return status;
}
