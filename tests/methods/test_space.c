/*
 * The search space, trained: every point, on every family, for five steps, gives the losses of the
 * naive method on one device, whatever the micro-batch and the number of ranks; and points of one
 * space give the same bits, since checkpointing, offloading and sharding leave every sum in its
 * order. One sum does change its order: with several passes a step, sharded gradients are summed
 * within a pass and then over passes, whole ones as they come. So in fp32, with
 * several passes, these two groups have each their bits; in bf16, with one pass, all have the same.
 *
 * GD_TEST_BACKEND names another backend than cpu. There fp32 means fp32 (no TF32), and Adam on the
 * host may round another way than on the device. Bits are compared on one rank alone, and only
 * where GPUDAYS_DETERMINISTIC=1 keeps each run from choosing its algorithms by timing.
 *
 * Several ranks take a while, above all those that share one GPU: a family trains with each
 * sharding once in a precision, and which of checkpointing and offloading comes with it goes round
 * over families. So every point is trained in both precisions, by one family or two instead of all
 * seven; on 4 ranks, in one precision a family, each at least once. On one rank of the CPU a family
 * trains in one precision a day. GD_TEST_ALL=1: all of it.
 *
 * GD_TEST_LOSSES names a file to which rank 0 appends the losses of every run.
 *
 * Alone it checks the space of one device, then starts itself under mpirun with 2 and with 4 ranks
 * for the space of several. With an argument, 1, 2 or 4: for so many alone.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/ranks.h"
#include "support/sample.h"
#include "support/synthetic.h"

enum { STEPS = 5, BATCH = 8 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int failures, points;
static const char *backend = "cpu";

static bool on_gpu(void) {
  return strcmp(backend, "cuda") == 0;
}

/* Whether two runs on so many ranks have the same bits wherever the sums have the same order. */
static bool is_exact(bool several) {
  const char *fixed = getenv("GPUDAYS_DETERMINISTIC");
  return !on_gpu() || (!several && fixed && fixed[0] == '1');
}

/* One configuration a family, and others of the same families that are trained on one rank alone.
 */
static const char *const families[] = {
    "neox-parallel", "gpt2-a", "llama-a", "roberta-a", "vit-a", "mamba-a", "convnext-a",
};
static const char *const others[] = {"neox-serial", "qwen2", "olmo", "bert"};

/* Of the space of several ranks, what a family trains: see above. */
static bool is_its_share(int family, enum gd_precision precision, int ranks,
                         const struct gd_method *method) {
  int half = precision == GD_PRECISION_BF16;
  int turn = family + 2 * half + (int)method->sharding;
  if (ranks > 2 && family % 2 != half)
    return false;
  if (method->sharding == GD_SHARDING_NONE)
    return method->ckpt == turn / (ranks > 2 ? 2 : 1) % 2;
  return turn % 4 == method->offload + 2 * method->ckpt;
}

/* A family trains on one rank in one precision today, and in the other one tomorrow. */
static bool is_todays(int family, enum gd_precision precision) {
  return on_gpu() || sample_has((uint64_t)family + (precision == GD_PRECISION_BF16), 2);
}

static bool is_trained(int family, enum gd_precision precision, const struct gd_comm *comm,
                       const struct gd_method *method) {
  int ranks = comm ? gd_comm_size(comm) : 1;
  if (ranks == 1)
    return is_todays(family, precision);
  return getenv("GD_TEST_ALL") || is_its_share(family, precision, ranks, method);
}

static void complain(const char *family, const char *method, enum gd_precision precision,
                     const char *what) {
  fprintf(stderr, "%s, %s, %s: %s\n", family, method, gd_precision_name(precision), what);
  failures++;
}

static void note_losses(const struct gd_comm *comm, const char *family, const char *method,
                        enum gd_precision precision, const double *losses) {
  const char *path = getenv("GD_TEST_LOSSES");
  FILE *file = path && (!comm || gd_comm_rank(comm) == 0) ? fopen(path, "a") : NULL;
  if (!file)
    return;
  fprintf(file, "%s %s %s", family, method, gd_precision_name(precision));
  for (int i = 0; i < STEPS; i++)
    fprintf(file, " %.17g", losses[i]);
  fprintf(file, "\n");
  fclose(file);
}

static bool train(const struct gd_model *model, struct gd_comm *comm, struct gd_method method,
                  enum gd_precision precision, int64_t micro_batch, const char *family,
                  double *losses) {
  struct gd_error err = {0};
  char name[GD_METHOD_NAME];
  struct synthetic_options options = {.trainer = {.model = model,
                                                  .backend = backend,
                                                  .threads = 1,
                                                  .precision = precision,
                                                  .method = method,
                                                  .comm = comm,
                                                  .batch = BATCH,
                                                  .micro_batch = micro_batch,
                                                  .seed = 11},
                                      .steps = STEPS,
                                      .lr = 3e-3};
  points++;
  gd_method_name(&method, name);
  if (synthetic_train(&options, losses, &err) == GD_OK) {
    if (comm)
      note_losses(comm, family, name, precision, losses);
    return true;
  }
  complain(family, name, precision, err.text);
  return false;
}

static void compare(const char *family, const struct gd_method *method, enum gd_precision precision,
                    const double *losses, const double *naive, const double *plain) {
  double bound = precision == GD_PRECISION_FP32 ? 1e-5 : 1e-2, worst = 0;
  char name[GD_METHOD_NAME], what[160];
  gd_method_name(method, name);
  for (int i = 0; i < STEPS; i++)
    worst = fmax(worst, fabs(losses[i] - naive[i]) / fabs(naive[i]));
  if (!(worst <= bound)) {
    snprintf(what, sizeof what,
             "losses differ from naive by %.2e (%.9g ... %.9g, not %.9g ... %.9g)", worst,
             losses[0], losses[STEPS - 1], naive[0], naive[STEPS - 1]);
    complain(family, name, precision, what);
  }
  if (plain && memcmp(losses, plain, STEPS * sizeof *losses) != 0) {
    snprintf(what, sizeof what, "not the bits of the same without it (%.17g, not %.17g)",
             losses[STEPS - 1], plain[STEPS - 1]);
    complain(family, name, precision, what);
  }
}

/* No point may be in nobody's share: on 2 ranks in neither precision, on 4 in both together. */
static void check_shares(void) {
  struct gd_method methods[GD_METHODS_MOST];
  int count = gd_method_space(true, methods);
  for (int i = 0; i < count; i++)
    for (int ranks = 2; ranks <= 4; ranks += 2) {
      int times[2] = {0, 0};
      for (int family = 0; family < (int)COUNT(families); family++) {
        times[0] += is_its_share(family, GD_PRECISION_FP32, ranks, &methods[i]);
        times[1] += is_its_share(family, GD_PRECISION_BF16, ranks, &methods[i]);
      }
      char name[GD_METHOD_NAME];
      if (ranks == 2 ? times[0] == 0 || times[1] == 0 : times[0] + times[1] == 0)
        complain("no family", gd_method_name(&methods[i], name), GD_PRECISION_FP32,
                 "is in nobody's share");
    }
}

static void check_family(int number, const char *family, struct gd_comm *comm,
                         enum gd_precision precision) {
  struct gd_method methods[GD_METHODS_MOST];
  struct gd_error err = {0};
  struct gd_model model;
  char path[512];
  bool several = comm && gd_comm_size(comm) > 1;
  int64_t local = several ? BATCH / gd_comm_size(comm) : BATCH;
  int count = 0, all = gd_method_space(several, methods);
  for (int i = 0; i < all; i++)
    if (is_trained(number, precision, comm, &methods[i]))
      methods[count++] = methods[i];
  if (count == 0)
    return;
  bool accumulates = precision == GD_PRECISION_FP32;
  int64_t micro_batch = !accumulates ? local
                        : several    ? local - 1
                                     : 3; /* 3 + 1, 1 + 1, 3 + 3 + 2 */
  double naive[STEPS], plain[2][STEPS], losses[STEPS];
  bool known[2] = {false, false};
  const char *source = getenv("GD_SOURCE_DIR"); /* it may have moved since */
  snprintf(path, sizeof path, "%s/tests/reference/%s/config.json", source ? source : GD_SOURCE_DIR,
           family);
  if (gd_model_load(path, &model, &err) != GD_OK) {
    complain(family, "", precision, err.text);
    return;
  }
  if (model.family->images)
    model.recipe.drop_path = 0.3;
  else
    model.recipe.seq = 13;
  model.recipe.max_grad_norm = 1;
  if (!train(&model, NULL, (struct gd_method){0}, precision, BATCH, family, naive))
    return;
  if (naive[STEPS - 1] >= naive[0])
    complain(family, "naive", precision, "the loss does not fall");
  if (train(&model, comm, (struct gd_method){0}, precision, micro_batch, family, losses))
    compare(family, &(struct gd_method){0}, precision, losses, naive, NULL);
  for (int i = 0; i < count; i++) {
    if (on_gpu())
      methods[i].tf32 = false;
    if (!train(&model, comm, methods[i], precision, micro_batch, family, losses))
      continue;
    int group = accumulates && gd_shards_gradients(methods[i].sharding);
    bool same = known[group] && is_exact(several) && !(on_gpu() && methods[i].offload);
    compare(family, &methods[i], precision, losses, naive, same ? plain[group] : NULL);
    if (!known[group])
      memcpy(plain[group], losses, sizeof losses);
    known[group] = true;
  }
}

static void check_both(int number, const char *family, struct gd_comm *comm) {
  int64_t start_ns = gd_clock_ns();
  int before = points;
  check_family(number, family, comm, GD_PRECISION_FP32);
  check_family(number, family, comm, GD_PRECISION_BF16);
  if (on_gpu()) /* where the minutes go */
    fprintf(stderr, "%s, %d ranks: %d runs in %.1f s\n", family, comm ? gd_comm_size(comm) : 1,
            points - before, (double)(gd_clock_ns() - start_ns) / 1e9);
}

static int check_all(struct gd_comm *comm) {
  for (size_t i = 0; i < COUNT(families); i++)
    check_both((int)i, families[i], comm);
  for (size_t i = 0; !comm && i < COUNT(others); i++)
    check_both((int)i, others[i], comm);
  return failures;
}

static int run_rank(void) {
  struct gd_comm *comm = ranks_join();
  int rank = gd_comm_rank(comm), ranks = gd_comm_size(comm);
  if (rank != 0)
    fclose(stderr); /* every rank finds the same; one says so */
  int bad = check_all(comm);
  if (rank == 0)
    printf("%d ranks: %d runs, %d failures\n", ranks, points, bad);
  gd_comm_close(comm);
  return bad > 0;
}

int main(int argc, char **argv) {
  int rank, size, bad = 0, only = argc > 1 ? atoi(argv[1]) : 0;
  setenv("OMP_NUM_THREADS", "1", 1);
  if (getenv("GD_TEST_BACKEND"))
    backend = getenv("GD_TEST_BACKEND");
  if (gd_comm_in_job(&rank, &size))
    return run_rank();
  if (argc > 1 && only != 1 && only != 2 && only != 4) {
    fprintf(stderr, "\"%s\" is no number of ranks that this tests; 1, 2 and 4 are\n", argv[1]);
    return 1;
  }
  check_shares();
  if (!only || only == 1) {
    check_all(NULL);
    printf("1 rank: %d runs, %d failures\n", points, failures);
  }
  bad = failures;
  if (only != 1 && !ranks_can_start())
    return bad ? 1 : 77;
  if (!only || only == 2)
    bad += ranks_run(argv[0], 2);
  if (!only || only == 4)
    bad += ranks_run(argv[0], 4);
  return bad > 0;
}
