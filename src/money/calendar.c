/*
 * Jobs in a queue, one after another; see calendar.h.
 */
#include "money/calendar.h"

#include <math.h>

#include "search/slurm_config.h"

enum gd_deadline gd_deadline_of(double days_low, double days_high, double limit_days) {
  if (limit_days <= 0)
    return GD_DEADLINE_NONE;
  return days_high <= limit_days  ? GD_DEADLINE_LIKELY
         : days_low <= limit_days ? GD_DEADLINE_AT_RISK
                                  : GD_DEADLINE_NO;
}

const char *gd_deadline_name(enum gd_deadline deadline) {
  static const char *const names[] = {"", "likely", "at risk", "no"};
  return names[deadline];
}

bool gd_queue_is_asked(const struct gd_queue *queue) {
  return queue->wall_limit_s > 0 || queue->wait_s > 0;
}

static double move_s(double bytes) {
  return bytes / GD_QUEUE_BYTES_PER_S;
}

/* A job ends in order so long before its limit, or as long before as its checkpoint takes. */
static double spare_s(const struct gd_queue *queue, double checkpoint_bytes) {
  return fmax(gd_slurm_spare_s(queue->wall_limit_s), move_s(checkpoint_bytes));
}

double gd_queue_overhead_s(const struct gd_queue *queue, double checkpoint_bytes) {
  double overhead_s = GD_QUEUE_STARTUP_S + move_s(checkpoint_bytes);
  return overhead_s +
         (queue->wall_limit_s > 0 ? spare_s(queue, checkpoint_bytes) : move_s(checkpoint_bytes));
}

/* Seconds that train, with the pauses of checkpoints among them. */
static double with_checkpoints(double seconds, double checkpoint_bytes) {
  double pause_s = checkpoint_bytes / GD_QUEUE_COPY_BYTES_PER_S;
  return seconds * (1 + pause_s / GD_QUEUE_CHECKPOINT_EVERY_S);
}

/* Until the last of so many jobs begins, all before it being as long as that. */
static double begin_of_last(const struct gd_queue *queue, int64_t jobs, double job_s) {
  int64_t at_a_time = queue->at_a_time > 1 ? queue->at_a_time : 1;
  /* The first jobs are submitted together. Each of the others is when the one that many before it
     has ended: it waits while those between them run, and only what is left of its wait is lost. */
  double gap_s = fmax(0, queue->wait_s - (double)(at_a_time - 1) * job_s);
  int64_t after = jobs > at_a_time ? jobs - at_a_time : 0;
  /* After a gap the jobs that were submitted before it have waited it too. */
  int64_t gaps = (after + at_a_time - 1) / at_a_time;
  return queue->wait_s + (double)(jobs - 1) * job_s + (double)gaps * gap_s;
}

/* Seconds from now to the end of seconds of training. */
static double end_of(const struct gd_queue *queue, double checkpoint_bytes, double seconds,
                     int64_t *jobs) {
  double rest_s = with_checkpoints(seconds, checkpoint_bytes), move = move_s(checkpoint_bytes);
  double train_s = queue->wall_limit_s - gd_queue_overhead_s(queue, checkpoint_bytes);
  *jobs = 1;
  if (queue->wall_limit_s <= 0)
    return queue->wait_s + GD_QUEUE_STARTUP_S + rest_s + move;
  if (!(train_s > 0) || !(ceil(rest_s / train_s) <= GD_QUEUE_JOBS_MOST))
    return (double)INFINITY;
  *jobs = (int64_t)fmax(1, ceil(rest_s / train_s));
  /* A job in the middle ends when its checkpoint is written, not at its limit. */
  double job_s = queue->wall_limit_s - spare_s(queue, checkpoint_bytes) + move;
  double last_s =
      GD_QUEUE_STARTUP_S + (*jobs > 1 ? move : 0) + (rest_s - (double)(*jobs - 1) * train_s) + move;
  return begin_of_last(queue, *jobs, job_s) + last_s;
}

void gd_calendar_find(const struct gd_queue *queue, double checkpoint_bytes, double days,
                      double days_low, double days_high, struct gd_calendar *calendar) {
  int64_t unused;
  *calendar = (struct gd_calendar){.days = days, .days_low = days_low, .days_high = days_high};
  if (!gd_queue_is_asked(queue))
    return;
  calendar->checkpoint_bytes = checkpoint_bytes;
  calendar->overhead_s = gd_queue_overhead_s(queue, checkpoint_bytes);
  calendar->days = end_of(queue, checkpoint_bytes, days * 86400, &calendar->jobs) / 86400;
  calendar->days_low = end_of(queue, checkpoint_bytes, days_low * 86400, &unused) / 86400;
  calendar->days_high = end_of(queue, checkpoint_bytes, days_high * 86400, &unused) / 86400;
}
