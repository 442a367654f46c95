/*
 * The plan is what a run uses, under every method: the resident set of the process grows by the
 * bytes of the two arenas, on one device and on two ranks. And a model that does not fit does fit
 * with a method that saves memory, and trains.
 *
 * On one device every point runs in a child, so that nothing of the last one is left over; for two
 * ranks the program starts itself under mpirun.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/ranks.h"
#include "support/synthetic.h"
#include "support/tiny.h"
#include "trial/choose.h"

static int failures, points;

/* Large enough that its state stands out from whatever a process has, small enough to be quick:
   3 M parameters, 50 MB of state. */
static const char config[] =
    "{\"model_type\": \"gpt_neox\", \"vocab_size\": 1200, \"hidden_size\": 256,"
    " \"intermediate_size\": 1024, \"num_hidden_layers\": 3, \"num_attention_heads\": 4,"
    " \"hidden_act\": \"gelu\", \"max_position_embeddings\": 256, \"rotary_pct\": 0.25,"
    " \"layer_norm_eps\": 1e-05, \"tie_word_embeddings\": false,"
    " \"use_parallel_residual\": true}";

static void complain(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  failures++;
}

/* 2 %, and 2 MiB for what libraries and generated kernels bring along. */
static bool is_planned(const struct synthetic_options *options) {
  double planned = (double)(options->device_bytes + options->host_bytes);
  double used = (double)options->resident_bytes;
  return used > 0.98 * planned - 0x1p21 && used < 1.02 * planned + 0x1p21;
}

/* Trains a step of two passes and compares. Returns whether all is well. */
static bool check_point(struct gd_comm *comm, struct gd_method method,
                        enum gd_precision precision) {
  char name[GD_METHOD_NAME], what[128], why[160];
  double loss;
  struct gd_model model;
  struct gd_error err = {0};
  int ranks = comm ? gd_comm_size(comm) : 1;
  snprintf(what, sizeof what, "%s, %s, %d rank%s", gd_method_name(&method, name),
           gd_precision_name(precision), ranks, ranks == 1 ? "" : "s");
  if (tiny_parse(config, &model, &err) != GD_OK) {
    complain(what, err.text);
    return false;
  }
  model.recipe.seq = 96;
  struct synthetic_options options = {.trainer = {.model = &model,
                                                  .backend = "cpu",
                                                  .threads = 1,
                                                  .precision = precision,
                                                  .method = method,
                                                  .comm = comm,
                                                  .batch = 5L * ranks,
                                                  .micro_batch = 4,
                                                  .seed = 3},
                                      .steps = 1,
                                      .lr = 1e-3};
  if (synthetic_train(&options, &loss, &err) != GD_OK) {
    complain(what, err.text);
    return false;
  }
  bool good = is_planned(&options);
  snprintf(why, sizeof why, "planned %.2f + %.2f MiB, resident set grew by %.2f MiB",
           (double)options.device_bytes / 0x1p20, (double)options.host_bytes / 0x1p20,
           (double)options.resident_bytes / 0x1p20);
  if (!good)
    complain(what, why);
  else if (!comm || gd_comm_rank(comm) == 0)
    printf("%s: %s\n", what, why);
  return good;
}

static void check_in_child(struct gd_method method, enum gd_precision precision) {
  int status;
  fflush(stdout);
  points++;
  pid_t child = fork();
  if (child == 0) {
    bool good = check_point(NULL, method, precision);
    fflush(stdout);
    _exit(!good);
  }
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
    failures++;
}

/* naive and every point of the space, mostly in bf16: fp32 where that may make a difference. */
static void check_space(struct gd_comm *comm) {
  struct gd_method methods[GD_METHODS_MOST + 1] = {0};
  int count = 1 + gd_method_space(comm != NULL, methods + 1);
  for (int i = 0; i < count; i++) {
    if (comm) {
      check_point(comm, methods[i], i % 3 ? GD_PRECISION_BF16 : GD_PRECISION_FP32);
      points++;
      continue;
    }
    if (!methods[i].ckpt)
      check_in_child(methods[i], GD_PRECISION_FP32);
    check_in_child(methods[i], GD_PRECISION_BF16);
  }
}

/* --- what does not fit --------------------------------------------------------------------- */

/* pythia-160m has 2.7 GiB of state alone; 1.5 GiB are given. */
static void train_what_fits(void) {
  static const int64_t limit_bytes = 3LL << 29;
  struct gd_method methods[GD_METHODS_MOST + 1] = {0};
  int count = 1 + gd_method_space(false, methods + 1), fits = 0, first = -1;
  struct gd_model model;
  struct gd_error err = {0};
  struct gd_trial trial;
  const enum gd_precision bf16 = GD_PRECISION_BF16;
  if (gd_model_load("pythia-160m", &model, &err) != GD_OK) {
    complain("pythia-160m", err.text);
    return;
  }
  model.recipe.seq = 512;
  for (int i = 0; i < count; i++) {
    struct gd_trial_options options = {.backend = "cpu",
                                       .method = methods[i],
                                       .micro_batch = GD_MICRO_BATCH_FIXED,
                                       .micro_batch_size = 1,
                                       .precision = &bf16,
                                       .device_limit_bytes = limit_bytes,
                                       .host_limit_bytes = 8LL << 30};
    if (gd_trial_plan(&model, &options, &trial, &err) != GD_OK) {
      complain(trial.method, err.text);
      return;
    }
    bool is_feasible = trial.status == GD_TRIAL_PLANNED;
    if (is_feasible && first < 0)
      first = i;
    fits += is_feasible;
    if (i == 0 && is_feasible)
      complain("naive", "fits 1.5 GiB, and should not");
    printf("pythia-160m, %s: %.2f GiB, %s\n", trial.method, (double)trial.peak_bytes / 0x1p30,
           gd_trial_status_name(trial.status));
  }
  if (first < 0) {
    complain("pythia-160m", "no method fits 1.5 GiB");
    return;
  }
  char name[GD_METHOD_NAME];
  double loss = 0;
  struct synthetic_options options = {.trainer = {.model = &model,
                                                  .backend = "cpu",
                                                  .precision = bf16,
                                                  .method = methods[first],
                                                  .batch = 1,
                                                  .micro_batch = 1},
                                      .steps = 1,
                                      .lr = 1e-3};
  if (synthetic_train(&options, &loss, &err) != GD_OK)
    complain(gd_method_name(&methods[first], name), err.text);
  else if (!(fabs(loss - log(50304)) < 0.5 && options.device_bytes <= limit_bytes))
    complain(gd_method_name(&methods[first], name), "the first loss is not that of chance");
  else if (!is_planned(&options))
    complain(gd_method_name(&methods[first], name), "the resident set is not the plan");
  printf("pythia-160m in 1.5 GiB: %d of %d methods fit; %s trains: loss %.3f; planned "
         "%.0f MiB, used %.0f MiB\n",
         fits, count, gd_method_name(&methods[first], name), loss,
         (double)(options.device_bytes + options.host_bytes) / 0x1p20,
         (double)options.resident_bytes / 0x1p20);
}

/* --- start --------------------------------------------------------------------------------- */

static int run_rank(void) {
  struct gd_comm *comm = ranks_join();
  check_space(comm);
  if (gd_comm_rank(comm) == 0)
    printf("%d ranks: %d runs, %d failures\n", gd_comm_size(comm), points, failures);
  gd_comm_close(comm);
  return failures > 0;
}

int main(int argc, char **argv) {
  int rank, size;
  (void)argc;
  setenv("OMP_NUM_THREADS", "1", 1);
  if (gd_comm_in_job(&rank, &size))
    return run_rank();
  check_space(NULL);
  train_what_fits();
  printf("1 rank: %d runs, %d failures\n", points, failures);
  if (!ranks_can_start())
    return failures ? 1 : 77;
  failures += ranks_run(argv[0], 2);
  return failures > 0;
}
