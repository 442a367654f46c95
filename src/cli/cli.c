/*
 * What several subcommands do with their options: loading a model with the recipe the user asked
 * for, and the options of a trial.
 */
#include "cli/cli.h"

enum gd_status gd_cli_load_model(const struct gd_cli *cli, const char *name, struct gd_model *model,
                                 struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  GD_TRY(gd_model_load(name, model, err));
  struct gd_recipe *recipe = &model->recipe;
  if (model->family->images && (options->seq || options->tokens))
    return gd_fail(err, GD_BAD_INPUT, "%s is trained on images; %s does not apply to it",
                   model->name, options->seq ? "--seq" : "--tokens");
  if (options->seq)
    recipe->seq = options->seq;
  if (options->batch)
    recipe->batch = options->batch;
  if (options->steps && options->tokens)
    return gd_fail(err, GD_BAD_INPUT, "--steps and --tokens say the same thing twice; give one");
  if (options->steps)
    recipe->steps = options->steps;
  if (options->tokens) { /* the last step may be a part of one: round up */
    int64_t per_step = recipe->batch * recipe->seq;
    recipe->steps = (options->tokens + per_step - 1) / per_step;
  }
  if (recipe->warmup_steps > recipe->steps)
    recipe->warmup_steps = recipe->steps;
  if (options->optimizer_given)
    recipe->optimizer = options->optimizer;
  return GD_OK;
}

enum gd_status gd_cli_trial_options(const struct gd_cli *cli, struct gd_trial_options *trial,
                                    struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  struct gd_method method;
  GD_TRY(gd_method_parse(options->method, &method, err));
  *trial = (struct gd_trial_options){
      .backend = options->backend,
      .threads = (int)options->threads,
      .method = method,
      .micro_batch = options->micro_batch,
      .micro_batch_size = options->micro_batch_size,
      .precision = options->precision_given ? &options->precision : NULL,
      .device_limit_bytes = options->device_memory_bytes,
      .host_limit_bytes = options->host_memory_bytes,
      .seed = (uint64_t)options->seed,
      .sample_seconds = options->sample_seconds,
  };
  return GD_OK;
}
