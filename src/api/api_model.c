/*
 * The public API: status, models and verification. Each function checks what the caller gave, calls
 * the library and translates the error; nothing is computed here.
 */
#include <stdio.h>

#include "api/api_int.h"
#include "exec/reference.h"
#include "gd_version.h"
#include "hw/estimate.h"

_Static_assert((int)GPD_OK == (int)GD_OK && (int)GPD_BAD_INPUT == (int)GD_BAD_INPUT &&
                   (int)GPD_UNSUPPORTED == (int)GD_UNSUPPORTED &&
                   (int)GPD_NOMEM_DEVICE == (int)GD_NOMEM_DEVICE &&
                   (int)GPD_NOMEM_HOST == (int)GD_NOMEM_HOST &&
                   (int)GPD_MISMATCH == (int)GD_MISMATCH &&
                   (int)GPD_ENVIRONMENT == (int)GD_ENVIRONMENT &&
                   (int)GPD_INTERNAL == (int)GD_INTERNAL,
               "the public status is the internal one");

/* --- errors and values ---------------------------------------------------------------------- */

enum gpd_status gd_api_result(enum gd_status status, const struct gd_error *from,
                              struct gpd_error *to) {
  if (status != GD_OK && to && to->status == GPD_OK) {
    to->status = (enum gpd_status)status;
    snprintf(to->text, sizeof to->text, "%s", from->text);
  }
  return (enum gpd_status)status;
}

enum gd_status gd_api_method(const char *text, const char *otherwise, struct gd_method *method,
                             struct gd_error *err) {
  return gd_method_parse(text ? text : otherwise, method, err);
}

enum gd_status gd_api_precision(const char *text, enum gd_precision *precision,
                                struct gd_error *err) {
  if (gd_precision_parse(text, precision))
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT, "precision is \"%s\"; expected fp32, bf16 or fp16", text);
}

enum gd_status gd_api_check(const char *name, int64_t value, struct gd_error *err) {
  if (value >= 0)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT, "%s is %lld; expected 0 or more", name, (long long)value);
}

enum gd_status gd_api_check_threads(int threads, struct gd_error *err) {
  if (threads >= 0 && threads <= 4096) /* as --threads */
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT, "threads is %d; expected 1 to 4096, or 0 for the default",
                 threads);
}

enum gpd_status gd_api_missing(const char *argument, struct gpd_error *err) {
  struct gd_error why = {0};
  return gd_api_result(
      gd_fail(&why, GD_BAD_INPUT, "%s is NULL; only recipe, options and err may be", argument),
      &why, err);
}

const char *gpd_version(void) {
  return GD_VERSION;
}

const char *gpd_status_name(enum gpd_status status) {
  return gd_status_name((enum gd_status)status);
}

/* --- models --------------------------------------------------------------------------------- */

static enum gd_status set_recipe(struct gpd_model *model, const struct gpd_recipe *asked,
                                 struct gd_error *err) {
  enum gd_optimizer optimizer;
  struct gd_recipe_change change = {
      .seq = asked->seq, .batch = asked->batch, .steps = asked->steps};
  const struct {
    const char *name;
    int64_t value;
  } sizes[] = {{"batch", asked->batch}, {"seq", asked->seq}, {"steps", asked->steps}};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    GD_TRY(gd_api_check(sizes[i].name, sizes[i].value, err));
    if (sizes[i].value > 1000000000) /* as in a recipe's file */
      return gd_fail(err, GD_BAD_INPUT, "%s is %lld; at most 1000000000 is possible", sizes[i].name,
                     (long long)sizes[i].value);
  }
  if (asked->seq && model->model.family->images)
    return gd_fail(err, GD_BAD_INPUT, "%s is trained on images; seq does not apply to it",
                   model->model.name);
  if (asked->seq == 1)
    return gd_fail(err, GD_BAD_INPUT, "seq is 1; one token has no next one to learn");
  if (asked->precision)
    GD_TRY(gd_api_precision(asked->precision, &model->model.recipe.precision, err));
  model->precision_given = asked->precision != NULL;
  if (asked->optimizer && !gd_optimizer_parse(asked->optimizer, &optimizer))
    return gd_fail(err, GD_BAD_INPUT, "optimizer is \"%s\"; expected adam or adamw",
                   asked->optimizer);
  change.optimizer = asked->optimizer ? &optimizer : NULL;
  return gd_model_change_recipe(&model->model, &change, err);
}

enum gpd_status gpd_model_load(const char *name_or_path, const struct gpd_recipe *recipe,
                               struct gpd_model **model, struct gpd_error *err) {
  GD_API_NEEDS(name_or_path, err);
  GD_API_NEEDS(model, err);
  struct gd_error why = {0};
  struct gd_model_facts facts;
  struct gpd_model *made = gd_mem_alloc(1, sizeof *made);
  enum gd_status status = made ? gd_model_load(name_or_path, &made->model, &why)
                               : gd_nomem(&why, "while loading a model");
  if (status == GD_OK && recipe)
    status = set_recipe(made, recipe, &why);
  if (status == GD_OK) /* builds the graph of a sample: a sequence may be longer than the model's */
    status = gd_model_facts(&made->model, made->model.recipe.precision, &facts, &why);
  if (status == GD_OK)
    *model = made;
  else
    gd_mem_free(made);
  return gd_api_result(status, &why, err);
}

void gpd_model_free(struct gpd_model *model) {
  gd_mem_free(model);
}

enum gpd_status gpd_model_describe(const struct gpd_model *model, struct gpd_model_info *info,
                                   struct gpd_error *err) {
  GD_API_NEEDS(model, err);
  GD_API_NEEDS(info, err);
  const struct gd_recipe *recipe = &model->model.recipe;
  struct gd_error why = {0};
  struct gd_model_facts facts;
  enum gd_status status = gd_model_facts(&model->model, recipe->precision, &facts, &why);
  if (status == GD_OK) {
    *info = (struct gpd_model_info){.family = model->model.family->model_type,
                                    .images = model->model.family->images,
                                    .parameters = facts.parameters,
                                    .classes = model->model.family->classes(&model->model),
                                    .batch = recipe->batch,
                                    .seq = recipe->seq,
                                    .steps = recipe->steps,
                                    .precision = gd_precision_name(recipe->precision),
                                    .optimizer = gd_optimizer_name(recipe->optimizer),
                                    .flops_per_step = facts.flops_per_step};
    snprintf(info->name, sizeof info->name, "%s", model->model.name);
  }
  return gd_api_result(status, &why, err);
}

/* --- numerics ------------------------------------------------------------------------------- */

static enum gd_status verify(const char *folder, const struct gpd_verify_options *options,
                             struct gd_verify_result *found, struct gd_error *err) {
  struct gd_verify_options with = {.backend = "cpu", .threads = options->threads};
  GD_TRY(gd_api_check_threads(options->threads, err));
  GD_TRY(gd_api_method(options->method, "naive", &with.method, err));
  GD_TRY(gd_api_precision(options->precision ? options->precision : "fp32", &with.precision, err));
  return gd_verify(folder, &with, found, err);
}

enum gpd_status gpd_verify(const char *folder, const struct gpd_verify_options *options,
                           struct gpd_verify_result *result, struct gpd_error *err) {
  static const struct gpd_verify_options defaults = {0};
  GD_API_NEEDS(folder, err);
  GD_API_NEEDS(result, err);
  struct gd_error why = {0};
  struct gd_verify_result found;
  enum gd_status status = verify(folder, options ? options : &defaults, &found, &why);
  if (status == GD_OK) {
    *result = (struct gpd_verify_result){.ok = found.ok,
                                         .loss_error = found.loss_error,
                                         .loss_bound = found.loss_bound,
                                         .gradient_error = found.gradient_error,
                                         .gradient_bound = found.gradient_bound,
                                         .trajectory_error = found.trajectory_error,
                                         .trajectory_bound = found.trajectory_bound};
    snprintf(result->worst_parameter, sizeof result->worst_parameter, "%s", found.worst_parameter);
  }
  return gd_api_result(status, &why, err);
}
