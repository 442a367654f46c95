/*
 * The side thread: one mutex, one condition, a ring of jobs. It sleeps while there is nothing to
 * do, since the cores belong to the computation.
 */
#define _POSIX_C_SOURCE 200809L
#include "backend/side.h"

#include <string.h>

static void *work(void *argument) {
  struct gd_side *side = argument;
  pthread_mutex_lock(&side->mutex);
  for (;;) {
    while (side->done == side->pushed && !side->stopping)
      pthread_cond_wait(&side->changed, &side->mutex);
    if (side->done == side->pushed)
      break;
    uint64_t slot = side->done % GD_SIDE_JOBS;
    void (*run)(void *job) = side->jobs[slot].run;
    void *job = side->jobs[slot].job;
    pthread_mutex_unlock(&side->mutex);
    run(job);
    pthread_mutex_lock(&side->mutex);
    side->done++;
    pthread_cond_broadcast(&side->changed);
  }
  pthread_mutex_unlock(&side->mutex);
  return NULL;
}

enum gd_status gd_side_start(struct gd_side *side, struct gd_error *err) {
  GD_ASSERT(!side->started);
  pthread_mutex_init(&side->mutex, NULL);
  pthread_cond_init(&side->changed, NULL);
  int failed = pthread_create(&side->thread, NULL, work, side);
  if (failed)
    return gd_fail(err, GD_ENVIRONMENT, "the system refused a thread for communication: %s",
                   strerror(failed));
  side->started = true;
  return GD_OK;
}

void gd_side_stop(struct gd_side *side) {
  if (!side->started)
    return;
  pthread_mutex_lock(&side->mutex);
  side->stopping = true;
  pthread_cond_broadcast(&side->changed);
  pthread_mutex_unlock(&side->mutex);
  pthread_join(side->thread, NULL);
  pthread_mutex_destroy(&side->mutex);
  pthread_cond_destroy(&side->changed);
  *side = (struct gd_side){0};
}

uint64_t gd_side_push(struct gd_side *side, void (*run)(void *job), void *job) {
  pthread_mutex_lock(&side->mutex);
  while (side->pushed - side->done == GD_SIDE_JOBS)
    pthread_cond_wait(&side->changed, &side->mutex);
  side->jobs[side->pushed % GD_SIDE_JOBS].run = run;
  side->jobs[side->pushed % GD_SIDE_JOBS].job = job;
  uint64_t number = ++side->pushed;
  pthread_cond_broadcast(&side->changed);
  pthread_mutex_unlock(&side->mutex);
  return number;
}

void gd_side_wait(struct gd_side *side, uint64_t number) {
  pthread_mutex_lock(&side->mutex);
  while (side->done < number)
    pthread_cond_wait(&side->changed, &side->mutex);
  pthread_mutex_unlock(&side->mutex);
}

uint32_t gd_side_waits_for(const struct gd_graph *graph, const struct gd_op *op,
                           const uint32_t *beside_at) {
  uint32_t latest = 0;
  for (uint32_t i = 0; i < op->n_in; i++)
    for (gd_tensor_id in = op->in[i]; in != GD_NONE; in = graph->tensors[in].alias_of) {
      gd_op_id producer = graph->tensors[in].producer;
      if (producer != GD_NONE && beside_at[producer] > latest)
        latest = beside_at[producer];
    }
  return latest;
}
