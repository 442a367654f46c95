/*
 * `gpudays verify`: loads a folder that transformers wrote, runs the same batch, and compares loss,
 * gradients and a short training trajectory.
 */
#include "exec/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "exec/run.h"
#include "model/aliases.h"
#include "pass/pass.h"

/* Everything one comparison owns; freed whole. */
struct verifier {
  struct gd_model model;
  struct gd_safetensors weights, batch, reference;
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_run run;
  int32_t *ids, *labels; /* ids: NULL for images */
  float *pixels;         /* NULL for tokens */
  int64_t samples;
  int64_t recipe_steps; /* 0: no recipe.json */
  const char *folder;
};

static enum gd_status join(char *path, size_t size, const char *folder, const char *name,
                           struct gd_error *err) {
  if (snprintf(path, size, "%s/%s", folder, name) >= (int)size)
    return gd_fail(err, GD_BAD_INPUT, "the path %s/%s is too long", folder, name);
  return GD_OK;
}

static enum gd_status open_tensors(struct gd_safetensors *file, const char *folder,
                                   const char *name, struct gd_error *err) {
  char path[512];
  GD_TRY(join(path, sizeof path, folder, name, err));
  return gd_safetensors_open(file, path, err);
}

static enum gd_status find_tensor(const struct gd_safetensors *file, const char *name,
                                  const struct gd_safetensor **found, struct gd_error *err) {
  *found = gd_safetensors_find(file, name);
  if (!*found)
    return gd_fail(err, GD_BAD_INPUT, "%s: tensor \"%s\" is missing; see docs/reference-format.md",
                   file->path, name);
  return GD_OK;
}

/* --- inputs -------------------------------------------------------------------------------- */

static enum gd_status no_memory(const struct gd_safetensors *file, struct gd_error *err) {
  return gd_nomem(err, "while reading %s", file->path);
}

static int64_t elements_of(const struct gd_safetensor *tensor) {
  int64_t elements = 1;
  for (uint32_t i = 0; i < tensor->rank; i++)
    elements *= tensor->dims[i];
  return elements;
}

/* Integers in [0, high), or -100 among labels. The caller frees *out. */
static enum gd_status read_integers(const struct gd_safetensors *file,
                                    const struct gd_safetensor *tensor, int64_t high, bool labels,
                                    int32_t **out, struct gd_error *err) {
  int64_t count = elements_of(tensor);
  *out = gd_mem_alloc((size_t)count, sizeof **out);
  if (!*out)
    return no_memory(file, err);
  for (int64_t i = 0; i < count; i++) {
    double value = (double)gd_safetensor_value(tensor, i);
    bool ignored = labels && value == -100;
    if (!ignored && !(value >= 0 && value < (double)high))
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: \"%s\" element %lld is %g, outside 0..%lld of the model's classes",
                     file->path, tensor->name, (long long)i, value, (long long)high - 1);
    (*out)[i] = (int32_t)value;
  }
  return GD_OK;
}

static enum gd_status read_tokens(struct verifier *v, const struct gd_safetensor *labels,
                                  int64_t classes, struct gd_error *err) {
  const struct gd_safetensor *ids;
  GD_TRY(find_tensor(&v->batch, "input_ids", &ids, err));
  if (ids->rank != 2 || labels->rank != 2 || ids->dims[0] != labels->dims[0] ||
      ids->dims[1] != labels->dims[1] || ids->dims[0] < 1 || ids->dims[1] < 2)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: input_ids and labels are not two [batch, sequence] tensors of one size "
                   "with at least two positions",
                   v->batch.path);
  v->samples = ids->dims[0];
  v->model.recipe.seq = ids->dims[1];
  return read_integers(&v->batch, ids, classes, false, &v->ids, err);
}

static enum gd_status read_images(struct verifier *v, const struct gd_safetensor *pixels,
                                  const struct gd_safetensor *labels, struct gd_error *err) {
  int64_t count = elements_of(pixels);
  if (pixels->rank != 4 || labels->rank != 1 || pixels->dims[0] != labels->dims[0] ||
      pixels->dims[0] < 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: pixel_values and labels are not [batch, channels, height, width] and "
                   "[batch]",
                   v->batch.path);
  v->samples = pixels->dims[0];
  v->pixels = gd_mem_alloc((size_t)count, sizeof *v->pixels);
  if (!v->pixels)
    return no_memory(&v->batch, err);
  for (int64_t i = 0; i < count; i++)
    v->pixels[i] = gd_safetensor_value(pixels, i);
  return GD_OK;
}

static enum gd_status read_batch(struct verifier *v, struct gd_error *err) {
  const struct gd_safetensor *labels;
  const struct gd_safetensor *pixels = gd_safetensors_find(&v->batch, "pixel_values");
  int64_t classes = v->model.family->classes(&v->model);
  GD_TRY(find_tensor(&v->batch, "labels", &labels, err));
  if (pixels)
    GD_TRY(read_images(v, pixels, labels, err));
  else
    GD_TRY(read_tokens(v, labels, classes, err));
  v->model.recipe.batch = v->samples;
  return read_integers(&v->batch, labels, classes, true, &v->labels, err);
}

/* The batch must be what the graph asks for: images of its size, or tokens. */
static enum gd_status set_batch(struct verifier *v, struct gd_error *err) {
  const struct gd_graph *graph = &v->graph;
  int64_t valid = gd_batch_valid_labels(graph, v->labels);
  if ((graph->pixels != GD_NONE) != (v->pixels != NULL))
    return gd_fail(err, GD_BAD_INPUT, "%s: the model takes %s", v->batch.path,
                   v->pixels ? "input_ids, not pixel_values" : "pixel_values, not input_ids");
  if (v->pixels) {
    const struct gd_safetensor *pixels = gd_safetensors_find(&v->batch, "pixel_values");
    if (elements_of(pixels) != gd_tensor_elements(graph, graph->pixels))
      return gd_fail(err, GD_BAD_INPUT, "%s: pixel_values are not of config.json's image size",
                     v->batch.path);
  }
  if (valid == 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: every label is -100, so there is no loss",
                   v->batch.path);
  struct gd_batch batch = {
      .ids = v->ids, .pixels = v->pixels, .labels = v->labels, .weight = 1.0 / (double)valid};
  return gd_run_batch(&v->run, GD_RUN_FULL, &batch, err);
}

static enum gd_status parse_recipe(struct verifier *v, const struct gd_json *json,
                                   struct gd_error *err) {
  struct gd_recipe *recipe = &v->model.recipe;
  const char *optimizer;
  GD_TRY(gd_json_string(json, json->root, "optimizer", &optimizer, err));
  if (!gd_optimizer_parse(optimizer, &recipe->optimizer))
    return gd_fail(err, GD_BAD_INPUT, "%s: optimizer is \"%s\"; there are adam and adamw",
                   json->file, optimizer);
  const json_t *betas = json_object_get(json->root, "betas");
  if (json_array_size(betas) != 2 || !json_is_number(json_array_get(betas, 0)) ||
      !json_is_number(json_array_get(betas, 1)))
    return gd_fail(err, GD_BAD_INPUT, "%s: betas is not two numbers", json->file);
  recipe->beta1 = json_number_value(json_array_get(betas, 0));
  recipe->beta2 = json_number_value(json_array_get(betas, 1));
  GD_TRY(gd_json_number(json, json->root, "lr", 0, 1e6, &recipe->lr, err));
  GD_TRY(gd_json_number(json, json->root, "eps", 0, 1, &recipe->eps, err));
  GD_TRY(gd_json_number(json, json->root, "weight_decay", 0, 1e6, &recipe->weight_decay, err));
  recipe->decay_all = true; /* torch's optimizers decay whatever they are given */
  if (gd_json_has(json->root, "decay_all"))
    GD_TRY(gd_json_bool(json, json->root, "decay_all", &recipe->decay_all, err));
  GD_TRY(gd_json_number(json, json->root, "max_grad_norm", 0, 1e30, &recipe->max_grad_norm, err));
  return gd_json_int(json, json->root, "steps", 1, 1000000, &v->recipe_steps, err);
}

static enum gd_status read_recipe(struct verifier *v, struct gd_error *err) {
  char path[512];
  struct gd_json json = {0};
  GD_TRY(join(path, sizeof path, v->folder, "recipe.json", err));
  if (gd_file_is_missing(path))
    return GD_OK;
  enum gd_status status = gd_json_load(&json, path, err);
  if (status == GD_OK)
    status = parse_recipe(v, &json, err);
  gd_json_deinit(&json);
  return status;
}

static enum gd_status prepare(struct verifier *v, const struct gd_verify_options *options,
                              struct gd_error *err) {
  const struct gd_backend_ops *ops;
  struct gd_backend_options backend_options = {.threads = options->threads};
  struct gd_caps caps;
  char path[512];
  if (options->method.sharding != GD_SHARDING_NONE || options->method.offload)
    return gd_fail(err, GD_BAD_INPUT,
                   "verify compares gradients of whole parameters on one device: its method is one "
                   "of naive, free-lunch, compile, kernels, tf32, each with or without +ckpt");
  GD_TRY(join(path, sizeof path, v->folder, "config.json", err));
  GD_TRY(gd_model_load(path, &v->model, err));
  GD_TRY(open_tensors(&v->batch, v->folder, "batch.safetensors", err));
  GD_TRY(open_tensors(&v->reference, v->folder, "reference.safetensors", err));
  GD_TRY(open_tensors(&v->weights, v->folder, "model.safetensors", err));
  GD_TRY(read_batch(v, err));
  GD_TRY(read_recipe(v, err));
  struct gd_setup setup = {.model = &v->model,
                           .precision = options->precision,
                           .micro_batch = v->samples,
                           .method = options->method};
  GD_TRY(gd_backend_find(options->backend, &ops, err));
  ops->caps(&backend_options, &caps);
  gd_setup_device(&setup, &caps);
  GD_TRY(gd_pipeline_build(&setup, &v->graph, err));
  GD_TRY(gd_plan_make(&v->graph, &caps, &v->plan, err));
  GD_TRY(ops->open(&backend_options, &v->backend, err));
  GD_TRY(gd_run_open(&v->run, v->backend, &v->plan, NULL, err));
  GD_TRY(gd_run_load(&v->run, v->model.family, &v->weights, err));
  return set_batch(v, err);
}

/* --- comparisons --------------------------------------------------------------------------- */

static double relative(double value, double reference) {
  return fabs(value - reference) / fmax(fabs(reference), 1e-30);
}

/* NaN must lose every comparison with a bound, so it counts as infinitely wrong. */
static double worse(double a, double b) {
  return isnan(a) || isnan(b) ? HUGE_VAL : fmax(a, b);
}

static enum gd_status reference_gradient(const struct verifier *v, gd_tensor_id param,
                                         const struct gd_safetensor **stored,
                                         struct gd_error *err) {
  const char *name = v->graph.tensors[param].name;
  *stored = gd_find_parameter(v->model.family, &v->reference, "grad.", name);
  if (!*stored)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: tensor \"grad.%s\" is missing; see docs/reference-format.md",
                   v->reference.path, name);
  if (elements_of(*stored) != gd_tensor_elements(&v->graph, param))
    return gd_fail(err, GD_BAD_INPUT, "%s: \"grad.%s\" has another size than its parameter",
                   v->reference.path, name);
  return GD_OK;
}

static enum gd_status compare_gradients(struct verifier *v, struct gd_verify_result *result,
                                        struct gd_error *err) {
  const struct gd_graph *graph = &v->graph;
  double all_reference = 0, all_difference = 0;
  float scales[2];
  result->parameters = 0;
  result->worst_error = 0;
  GD_TRY(gd_run_read(&v->run, graph->loss_scale, scales, err));
  double scale = (double)scales[0];       /* gradients carry the loss scale until the update */
  for (int round = 0; round < 2; round++) /* first the norm of all, then each against it */
    for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
      const struct gd_safetensor *stored;
      if (graph->tensors[id].role != GD_ROLE_GRAD)
        continue;
      GD_TRY(reference_gradient(v, graph->tensors[id].owner, &stored, err));
      int64_t elements = gd_tensor_elements(graph, id);
      double own = 0, difference = 0;
      float *values = round ? gd_mem_alloc((size_t)elements, sizeof *values) : NULL;
      if (round && !values)
        return gd_nomem(err, "while comparing gradients");
      enum gd_status status = round ? gd_run_read(&v->run, id, values, err) : GD_OK;
      for (int64_t i = 0; i < elements && status == GD_OK; i++) {
        double r = (double)gd_safetensor_value(stored, i);
        own += r * r;
        if (round)
          difference += ((double)values[i] / scale - r) * ((double)values[i] / scale - r);
      }
      gd_mem_free(values);
      GD_TRY(status);
      if (!round) {
        all_reference += own;
        continue;
      }
      all_difference += difference;
      double error = sqrt(difference) / fmax(sqrt(own), 1e-4 * sqrt(all_reference));
      result->parameters++;
      if (isnan(error) || error >= result->worst_error) {
        result->worst_error = worse(error, result->worst_error);
        snprintf(result->worst_parameter, sizeof result->worst_parameter, "%s",
                 graph->tensors[graph->tensors[id].owner].name);
      }
    }
  result->together_error = worse(sqrt(all_difference / fmax(all_reference, 1e-60)), 0);
  return GD_OK;
}

static enum gd_status compare_trajectory(struct verifier *v, struct gd_verify_result *result,
                                         struct gd_error *err) {
  const struct gd_safetensor *losses;
  result->trajectory_error = -1;
  if (v->recipe_steps == 0)
    return GD_OK;
  GD_TRY(find_tensor(&v->reference, "losses", &losses, err));
  if (losses->rank != 1 || losses->dims[0] < v->recipe_steps)
    return gd_fail(err, GD_BAD_INPUT, "%s: \"losses\" holds fewer than the recipe's %lld steps",
                   v->reference.path, (long long)v->recipe_steps);
  GD_TRY(gd_run_load(&v->run, v->model.family, &v->weights, err));
  result->trajectory_error = 0;
  int skipped = 0;
  for (int64_t step = 0; step < v->recipe_steps; step++) {
    double loss, norm;
    GD_TRY(gd_run_micro_step(&v->run, GD_RUN_FULL, err));
    GD_TRY(gd_run_take_loss(&v->run, &loss, err));
    GD_TRY(gd_run_update(&v->run, v->model.recipe.lr, err));
    GD_TRY(gd_run_norm(&v->run, &norm, err));
    if (!isfinite(norm) && skipped++ < GD_RUN_MOST_SKIPS) {
      step--; /* the update skipped it, so it comes again */
      continue;
    }
    result->trajectory_error =
        worse(result->trajectory_error, relative(loss, (double)gd_safetensor_value(losses, step)));
  }
  return GD_OK;
}

static enum gd_status compare(struct verifier *v, const struct gd_verify_options *options,
                              struct gd_verify_result *result, struct gd_error *err) {
  const struct gd_safetensor *loss;
  GD_TRY(find_tensor(&v->reference, "loss", &loss, err));
  if (elements_of(loss) != 1)
    return gd_fail(err, GD_BAD_INPUT, "%s: \"loss\" is not one number", v->reference.path);
  result->loss_reference = (double)gd_safetensor_value(loss, 0);
  for (int skipped = 0; skipped < GD_RUN_MOST_SKIPS; skipped++) {
    GD_TRY(gd_run_micro_step(&v->run, GD_RUN_FULL, err));
    GD_TRY(gd_run_take_loss(&v->run, &result->loss, err));
    result->loss_error = worse(relative(result->loss, result->loss_reference), 0);
    GD_TRY(compare_gradients(v, result, err));
    if (options->precision != GD_PRECISION_FP16 || isfinite(result->together_error))
      break;
    GD_TRY(gd_run_update(&v->run, 0, err)); /* skips, and halves the loss scale */
  }
  GD_TRY(compare_trajectory(v, result, err));

  bool full = options->precision == GD_PRECISION_FP32;
  result->gradient_error = full ? result->worst_error : result->together_error;
  result->loss_bound = full ? 1e-5 : 2e-2;
  result->gradient_bound = full ? 1e-4 : 2e-2;
  result->trajectory_bound = full ? 1e-4 : 2e-2;
  result->ok = result->loss_error <= result->loss_bound &&
               result->gradient_error <= result->gradient_bound &&
               result->trajectory_error <= result->trajectory_bound;
  return GD_OK;
}

enum gd_status gd_verify(const char *folder, const struct gd_verify_options *options,
                         struct gd_verify_result *result, struct gd_error *err) {
  struct verifier v = {.folder = folder};
  *result = (struct gd_verify_result){0};
  enum gd_status status = prepare(&v, options, err);
  if (status == GD_OK)
    status = compare(&v, options, result, err);
  gd_run_close(&v.run);
  gd_backend_close(v.backend);
  gd_plan_deinit(&v.plan);
  gd_graph_deinit(&v.graph);
  gd_safetensors_close(&v.weights);
  gd_safetensors_close(&v.batch);
  gd_safetensors_close(&v.reference);
  gd_mem_free(v.ids);
  gd_mem_free(v.labels);
  gd_mem_free(v.pixels);
  return status;
}
