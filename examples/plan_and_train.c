/*
 * gpudays as a library: plans pythia-160m for four A100s and predicts the days, then verifies the
 * numerics of a reference folder and trains its model for a few steps on this CPU.
 *
 *   cc plan_and_train.c $(pkg-config --cflags --libs gpudays) -o plan_and_train
 *   ./plan_and_train tests/reference/neox-tied
 */
#include <stdio.h>
#include <stdlib.h>

#include <gpudays/gpudays.h>

static int fail(const struct gpd_error *err) {
  fprintf(stderr, "plan_and_train: %s (%s)\n", err->text, gpd_status_name(err->status));
  return 1;
}

/* How long four A100s would take. Nothing of them need be here. */
static int plan(void) {
  struct gpd_error err = {0};
  struct gpd_model *model = NULL;
  struct gpd_plan *made = NULL;
  struct gpd_plan_options four_a100 = {.method = "free-lunch+zero1", .gpu = "a100", .count = 4};
  struct gpd_model_info about;
  struct gpd_prediction days;
  struct gpd_plan_info info;
  int result = 1;
  if (gpd_model_load("pythia-160m", NULL, &model, &err) != GPD_OK ||
      gpd_model_describe(model, &about, &err) != GPD_OK ||
      gpd_plan_make(model, &four_a100, &made, &err) != GPD_OK ||
      gpd_plan_predict(made, &days, &err) != GPD_OK) {
    fail(&err);
  } else {
    gpd_plan_describe(made, &info);
    printf("%s: %lld parameters, %s\n", about.name, (long long)about.parameters, info.precision);
    printf("%s on %d x %s: gradient accumulation %lld x micro-batch %lld, %.1f GiB\n", info.method,
           info.ranks, info.device, (long long)info.accumulation, (long long)info.micro_batch,
           (double)info.device_bytes / (1 << 30));
    printf("%.2f days (%.2f to %.2f), MFU %.0f %%\n", days.days, days.days_low, days.days_high,
           100 * days.mfu);
    result = 0;
  }
  gpd_plan_free(made);
  gpd_model_free(model);
  return result;
}

static int verify(const char *folder) {
  struct gpd_error err = {0};
  struct gpd_verify_result found;
  if (gpd_verify(folder, NULL, &found, &err) != GPD_OK)
    return fail(&err);
  printf("verify: %s, loss %.1e, gradients %.1e\n", found.ok ? "ok" : "FAILED", found.loss_error,
         found.gradient_error);
  return !found.ok;
}

/* Steps on one batch of made-up tokens, which the model learns by heart: the loss falls. */
static int train(const char *folder) {
  struct gpd_error err = {0};
  struct gpd_recipe small = {.batch = 4, .seq = 16, .precision = "fp32"};
  struct gpd_train_options options = {.micro_batch = 2, .lr = 1e-2, .threads = 1};
  struct gpd_model *model = NULL;
  struct gpd_trainer *trainer = NULL;
  struct gpd_model_info about;
  struct gpd_batch_shape shape;
  int32_t *tokens = NULL;
  int result = 1;
  if (gpd_model_load(folder, &small, &model, &err) != GPD_OK ||
      gpd_model_describe(model, &about, &err) != GPD_OK ||
      gpd_trainer_open(model, &options, &trainer, &err) != GPD_OK)
    goto done;
  gpd_trainer_shape(trainer, &shape);
  tokens = malloc((size_t)shape.ids * sizeof *tokens);
  if (!tokens)
    goto done;
  for (int64_t i = 0; i < shape.ids; i++)
    tokens[i] = (int32_t)(i * i * 7919 % about.classes);
  struct gpd_batch batch = {.ids = tokens, .labels = tokens};
  for (int step = 0; step < 5; step++) {
    double loss;
    if (gpd_trainer_step(trainer, &batch, &loss, &err) != GPD_OK)
      goto done;
    printf("step %d: loss %.4f\n", step, loss);
  }
  result = 0;
done:
  if (result)
    fail(&err);
  free(tokens);
  gpd_trainer_close(trainer);
  gpd_model_free(model);
  return result;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: plan_and_train FOLDER, such as tests/reference/neox-tied\n");
    return 2;
  }
  printf("gpudays %s\n", gpd_version());
  return plan() || verify(argv[1]) || train(argv[1]);
}
