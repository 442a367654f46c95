/*
 * Training steps; see trainer.h.
 */
#include "exec/trainer.h"

#include "base/process.h"
#include "pass/pass.h"

static enum gd_status make_part(struct gd_trainer *t, int64_t micro_batch, enum gd_run_part part,
                                struct gd_error *err) {
  const struct gd_trainer_options *o = &t->options;
  struct gd_setup setup = {.model = o->model,
                           .precision = o->precision,
                           .micro_batch = micro_batch,
                           .method = o->method,
                           .ranks = o->comm ? gd_comm_size(o->comm) : 1,
                           .rank = o->comm ? gd_comm_rank(o->comm) : 0};
  const struct gd_backend_ops *ops;
  struct gd_caps caps;
  GD_TRY(gd_backend_find(o->backend, &ops, err));
  ops->caps(&(struct gd_backend_options){.threads = o->threads}, &caps);
  gd_setup_device(&setup, &caps);
  GD_TRY(gd_pipeline_build(&setup, &t->graphs[part], err));
  return gd_plan_make(&t->graphs[part], &caps, &t->plans[part], err);
}

/* Before the arenas: a system that grants more than it has ends the process later. */
static enum gd_status check_memory(const struct gd_trainer *t, struct gd_error *err) {
  struct gd_device_info info = {0};
  t->backend->ops->describe(t->backend, &info);
  return gd_plan_fits(&t->plans[GD_RUN_FULL], info.memory_bytes, info.host_memory_bytes, err);
}

static enum gd_status open_parts(struct gd_trainer *t, struct gd_error *err) {
  const struct gd_trainer_options *o = &t->options;
  int64_t rest = t->local % o->micro_batch;
  GD_TRY(make_part(t, o->micro_batch, GD_RUN_FULL, err));
  if (rest)
    GD_TRY(make_part(t, rest, GD_RUN_REMAINDER, err));
  GD_TRY(gd_backend_open(o->backend,
                         &(struct gd_backend_options){.threads = o->threads, .comm = o->comm},
                         &t->backend, err));
  GD_TRY(check_memory(t, err));
  t->resident_bytes = gd_process_resident_bytes();
  GD_TRY(gd_run_open(&t->run, t->backend, &t->plans[GD_RUN_FULL],
                     rest ? &t->plans[GD_RUN_REMAINDER] : NULL, err));
  return gd_run_init(&t->run, o->seed, err);
}

enum gd_status gd_trainer_open(struct gd_trainer *trainer, const struct gd_trainer_options *options,
                               struct gd_error *err) {
  int ranks = options->comm ? gd_comm_size(options->comm) : 1;
  *trainer = (struct gd_trainer){.options = *options};
  if (options->batch < 1 || options->micro_batch < 1 || options->batch % ranks)
    return gd_fail(err, GD_BAD_INPUT, "a batch of %lld does not divide among %d ranks",
                   (long long)options->batch, ranks);
  trainer->local = options->batch / ranks;
  trainer->first = trainer->local * (options->comm ? gd_comm_rank(options->comm) : 0);
  if (trainer->options.micro_batch > trainer->local)
    trainer->options.micro_batch = trainer->local;
  enum gd_status status = open_parts(trainer, err);
  if (status != GD_OK)
    gd_trainer_close(trainer);
  return status;
}

void gd_trainer_close(struct gd_trainer *trainer) {
  gd_run_close(&trainer->run);
  gd_backend_close(trainer->backend);
  for (int part = 0; part < GD_RUN_PARTS; part++) {
    gd_plan_deinit(&trainer->plans[part]);
    gd_graph_deinit(&trainer->graphs[part]);
  }
  *trainer = (struct gd_trainer){0};
}

enum gd_status gd_trainer_step(struct gd_trainer *trainer, int64_t step,
                               const struct gd_trainer_data *data, double lr, double *loss,
                               struct gd_error *err) {
  struct gd_run *run = &trainer->run;
  struct gd_comm *comm = trainer->options.comm;
  int64_t size = trainer->options.micro_batch;
  double sum;
  for (int64_t done = 0; done < trainer->local; done += size) {
    bool last = done + size >= trainer->local, smaller = done + size > trainer->local;
    enum gd_run_part part = smaller ? GD_RUN_REMAINDER : GD_RUN_FULL;
    int64_t first = trainer->first + done, count = smaller ? trainer->local - done : size;
    struct gd_batch batch = {.weight = 1 / (double)data->valid};
    data->fill(data->user, &trainer->graphs[part], first, count, &batch);
    GD_TRY(gd_run_seed(run, part, (uint32_t)trainer->options.seed, step, first, err));
    GD_TRY(gd_run_batch(run, part, &batch, err));
    GD_TRY(last ? gd_run_last_micro_step(run, part, err) : gd_run_micro_step(run, part, err));
  }
  GD_TRY(gd_run_take_loss(run, &sum, err));
  if (comm)
    GD_TRY(gd_comm_sum_doubles(comm, &sum, 1, err));
  GD_TRY(gd_run_update(run, lr, err));
  *loss = sum;
  return GD_OK;
}
