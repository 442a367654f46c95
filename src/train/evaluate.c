/*
 * Evaluation; see evaluate.h.
 */
#include "train/evaluate.h"

/* Samples first .. first + count, and behind them samples without labels up to the micro-batch. */
static enum gd_status read_samples(const struct gd_evaluation *e, int64_t first, int64_t count,
                                   int32_t *ids, int32_t *labels, struct gd_error *err) {
  int64_t seq = e->data->options.seq;
  for (int64_t i = 0; i < count; i++)
    GD_TRY(gd_dataset_read(e->data, first + i, ids + i * seq, labels + i * seq, err));
  for (int64_t i = count * seq; i < e->micro_batch * seq; i++) {
    ids[i] = 0;
    labels[i] = -100;
  }
  return GD_OK;
}

/* The same of images. */
static enum gd_status read_images(const struct gd_evaluation *e, int64_t first, int64_t count,
                                  void *pixels, float *targets, struct gd_error *err) {
  int64_t classes = gd_source_images(e->images)->options.classes;
  GD_TRY(gd_source_read(e->images, first, e->micro_batch, pixels, targets, err));
  for (int64_t i = count * classes; i < e->micro_batch * classes; i++)
    targets[i] = 0;
  return GD_OK;
}

/* One micro-batch: its loss times its labels, these, and classes that were found. */
static enum gd_status evaluate_some(const struct gd_evaluation *e, int64_t first, int64_t count,
                                    double totals[3], struct gd_error *err) {
  struct gd_run *run = e->run;
  const struct gd_graph *graph = run->plan[e->part]->graph;
  struct gd_batch batch;
  void *inputs, *labels;
  double loss, hits, valid = (double)count;
  gd_run_stage(run, e->part, 1, &batch, &inputs, &labels);
  if (e->images) {
    GD_TRY(read_images(e, first, count, inputs, labels, err));
  } else {
    GD_TRY(read_samples(e, first, count, inputs, labels, err));
    valid = (double)gd_batch_valid_labels(graph, labels);
  }
  batch.weight = valid > 0 ? 1 / valid : 0;
  GD_TRY(gd_run_batch(run, e->part, &batch, err));
  GD_TRY(gd_run_micro_step(run, e->part, err));
  GD_TRY(gd_run_take_loss(run, &loss, err));
  GD_TRY(gd_run_take_hits(run, &hits, err));
  totals[0] += valid > 0 ? loss * valid : 0;
  totals[1] += valid;
  totals[2] += hits;
  return GD_OK;
}

enum gd_status gd_evaluate(const struct gd_evaluation *e, struct gd_evaluated *result,
                           struct gd_error *err) {
  int64_t ranks = e->comm ? gd_comm_size(e->comm) : 1, rank = e->comm ? gd_comm_rank(e->comm) : 0;
  double totals[3] = {0}, before; /* loss times labels, labels, hits; hits of training */
  GD_TRY(gd_run_take_hits(e->run, &before, err));
  *result = (struct gd_evaluated){0};
  for (int64_t begin = 0; begin < e->samples; begin += ranks * e->micro_batch) {
    double asked = e->stop && e->stop(e->user);
    if (e->comm && e->stop)
      GD_TRY(gd_comm_sum_doubles(e->comm, &asked, 1, err));
    result->stopped = asked > 0;
    if (result->stopped)
      return GD_OK;
    int64_t first = begin + rank * e->micro_batch, left = e->samples - first;
    int64_t count = left < 0 ? 0 : left < e->micro_batch ? left : e->micro_batch;
    GD_TRY(evaluate_some(e, first, count, totals, err));
    if (e->evaluated)
      e->evaluated(e->user, first + count);
  }
  if (e->comm)
    GD_TRY(gd_comm_sum_doubles(e->comm, totals, 3, err));
  *result = (struct gd_evaluated){.loss = totals[1] > 0 ? totals[0] / totals[1] : 0,
                                  .accuracy = totals[1] > 0 ? totals[2] / totals[1] : 0,
                                  .labels = totals[1],
                                  .samples = e->samples};
  return GD_OK;
}
