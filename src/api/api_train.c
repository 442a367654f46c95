/*
 * The public API: training steps on the CPU backend, on the caller's data.
 */
#include <math.h>

#include "api/api_int.h"
#include "exec/trainer.h"
#include "pass/pass.h"

struct gpd_trainer {
  struct gd_model model;
  struct gd_trainer trainer;
  double lr; /* 0: the recipe's schedule */
  int64_t step;
};

static enum gd_status check_options(const struct gpd_train_options *asked, int64_t batch,
                                    struct gd_error *err) {
  GD_TRY(gd_api_check_threads(asked->threads, err));
  if (asked->micro_batch < 0 || asked->micro_batch > batch)
    return gd_fail(err, GD_BAD_INPUT, "micro_batch is %lld; expected 1 to %lld (the batch), or 0",
                   (long long)asked->micro_batch, (long long)batch);
  if (!(asked->lr >= 0 && asked->lr < 1e6))
    return gd_fail(err, GD_BAD_INPUT, "lr is %g; expected a learning rate, or 0", asked->lr);
  return GD_OK;
}

static enum gd_status open_trainer(struct gpd_trainer *to, bool precision_given,
                                   const struct gpd_train_options *asked, struct gd_error *err) {
  const struct gd_recipe *recipe = &to->model.recipe;
  struct gd_caps caps;
  bool substituted;
  struct gd_trainer_options options = {.model = &to->model,
                                       .backend = "cpu",
                                       .threads = asked->threads,
                                       .batch = recipe->batch,
                                       .micro_batch = asked->micro_batch > 0 ? asked->micro_batch
                                                                             : recipe->batch,
                                       .seed = asked->seed};
  GD_TRY(check_options(asked, recipe->batch, err));
  to->lr = asked->lr;
  GD_TRY(gd_api_method(asked->method, "free-lunch", &options.method, err));
  if (options.method.sharding != GD_SHARDING_NONE || options.method.offload)
    return gd_fail(err, GD_BAD_INPUT,
                   "method is \"%s\"; expected one of one device: naive, free-lunch, compile, "
                   "kernels, tf32, each with or without +ckpt",
                   asked->method);
  gd_backend_cpu.caps(&(struct gd_backend_options){.threads = asked->threads}, &caps);
  GD_TRY(gd_setup_precision(&to->model, &caps, precision_given ? &recipe->precision : NULL,
                            &options.precision, &substituted, err));
  return gd_trainer_open(&to->trainer, &options, err);
}

enum gpd_status gpd_trainer_open(const struct gpd_model *model,
                                 const struct gpd_train_options *options,
                                 struct gpd_trainer **trainer, struct gpd_error *err) {
  static const struct gpd_train_options defaults = {0};
  GD_API_NEEDS(model, err);
  GD_API_NEEDS(trainer, err);
  struct gd_error why = {0};
  struct gpd_trainer *made = gd_mem_alloc(1, sizeof *made);
  enum gd_status status = GD_OK;
  if (!made) {
    status = gd_nomem(&why, "before training");
  } else {
    made->model = model->model;
    status = open_trainer(made, model->precision_given, options ? options : &defaults, &why);
  }
  if (status == GD_OK)
    *trainer = made;
  else
    gd_mem_free(made);
  return gd_api_result(status, &why, err);
}

void gpd_trainer_close(struct gpd_trainer *trainer) {
  if (trainer)
    gd_trainer_close(&trainer->trainer);
  gd_mem_free(trainer);
}

/* --- data ----------------------------------------------------------------------------------- */

/* Values of a tensor of one sample. */
static int64_t values_a_sample(const struct gd_graph *graph, gd_tensor_id id) {
  return id == GD_NONE ? 0 : gd_tensor_elements(graph, id) / graph->tensors[id].dims[0];
}

void gpd_trainer_shape(const struct gpd_trainer *trainer, struct gpd_batch_shape *shape) {
  if (!shape)
    return;
  *shape = (struct gpd_batch_shape){0};
  if (!trainer)
    return;
  const struct gd_graph *graph = &trainer->trainer.graphs[GD_RUN_FULL];
  int64_t batch = trainer->trainer.options.batch;
  *shape = (struct gpd_batch_shape){.ids = batch * values_a_sample(graph, graph->ids),
                                    .pixels = batch * values_a_sample(graph, graph->pixels),
                                    .labels = batch * values_a_sample(graph, graph->labels)};
}

static void fill(void *user, const struct gd_graph *graph, int64_t first, int64_t count,
                 struct gd_batch *batch) {
  const struct gpd_batch *given = user;
  (void)count;
  if (graph->ids != GD_NONE)
    batch->ids = given->ids + first * values_a_sample(graph, graph->ids);
  if (graph->pixels != GD_NONE)
    batch->pixels = given->pixels + first * values_a_sample(graph, graph->pixels);
  batch->labels = given->labels + first * values_a_sample(graph, graph->labels);
}

static enum gd_status check_values(const char *name, const int32_t *values, int64_t count,
                                   int64_t classes, bool may_be_ignored, struct gd_error *err) {
  if (count > 0 && !values)
    return gd_fail(err, GD_BAD_INPUT, "the batch has no %s", name);
  for (int64_t i = 0; i < count; i++)
    if ((values[i] < 0 || values[i] >= classes) && !(may_be_ignored && values[i] == -100))
      return gd_fail(err, GD_BAD_INPUT, "%s[%lld] is %d; expected 0 to %lld%s", name, (long long)i,
                     values[i], (long long)classes - 1, may_be_ignored ? ", or -100" : "");
  return GD_OK;
}

static enum gd_status check_pixels(const float *pixels, int64_t count, struct gd_error *err) {
  if (count > 0 && !pixels)
    return gd_fail(err, GD_BAD_INPUT, "the batch has no pixels");
  for (int64_t i = 0; i < count; i++)
    if (!isfinite(pixels[i]))
      return gd_fail(err, GD_BAD_INPUT, "pixels[%lld] is %g; expected a finite number",
                     (long long)i, (double)pixels[i]);
  return GD_OK;
}

/* Labels that count, summed over the micro-batches as they are run. */
static int64_t count_valid(const struct gd_trainer *trainer, const int32_t *labels) {
  int64_t valid = 0, size = trainer->options.micro_batch;
  for (int64_t done = 0; done < trainer->local; done += size) {
    const struct gd_graph *graph =
        &trainer->graphs[done + size > trainer->local ? GD_RUN_REMAINDER : GD_RUN_FULL];
    valid += gd_batch_valid_labels(graph, labels + done * values_a_sample(graph, graph->labels));
  }
  return valid;
}

static enum gd_status run_step(struct gpd_trainer *trainer, const struct gpd_batch *batch,
                               double *loss, struct gd_error *err) {
  const struct gd_model *model = &trainer->model;
  int64_t classes = model->family->classes(model);
  struct gpd_batch given = *batch;
  struct gd_trainer_data data = {.fill = fill, .user = &given};
  struct gpd_batch_shape shape;
  gpd_trainer_shape(trainer, &shape);
  GD_TRY(check_values("ids", batch->ids, shape.ids, classes, false, err));
  GD_TRY(check_values("labels", batch->labels, shape.labels, classes, true, err));
  GD_TRY(check_pixels(batch->pixels, shape.pixels, err));
  data.valid = count_valid(&trainer->trainer, batch->labels);
  if (data.valid == 0)
    return gd_fail(err, GD_BAD_INPUT, "no label of the batch counts; all are -100");
  double lr = trainer->lr > 0 ? trainer->lr : gd_recipe_lr(&model->recipe, trainer->step);
  GD_TRY(gd_trainer_step(&trainer->trainer, trainer->step, &data, lr, loss, err));
  trainer->step++;
  return GD_OK;
}

enum gpd_status gpd_trainer_step(struct gpd_trainer *trainer, const struct gpd_batch *batch,
                                 double *loss, struct gpd_error *err) {
  GD_API_NEEDS(trainer, err);
  GD_API_NEEDS(batch, err);
  GD_API_NEEDS(loss, err);
  struct gd_error why = {0};
  return gd_api_result(run_step(trainer, batch, loss, &why), &why, err);
}
