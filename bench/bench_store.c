/*
 * The store at 100,000 trials: how long it takes to add one, to find one by its key, and to list
 * what a filter finds. The goal is a filter in under 100 ms.
 *
 *   bench_store [FILE]    FILE: keep the database there
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "pass/method.h"
#include "store/record_int.h"
#include "store/store_int.h"

enum { TRIALS = 100000, MODELS = 40, DEVICES = 8, METHODS = 22, ROUNDS = 5 };

static void die(const struct gd_error *err) {
  fprintf(stderr, "bench_store: %s\n", err->text);
  exit(1);
}

static void make_trial(int i, const struct gd_method *methods, struct gd_trial *trial) {
  *trial = (struct gd_trial){.status = i % 5 == 4 ? GD_TRIAL_INFEASIBLE : GD_TRIAL_OK,
                             .backend = "cuda",
                             .version = "0.1.0",
                             .commit = "0123456789ab",
                             .threads = 16,
                             .ranks = 1 << i % 4,
                             .nodes = 1,
                             .precision = GD_PRECISION_BF16};
  snprintf(trial->model, sizeof trial->model, "model-%dm", 10 * (1 + i % MODELS));
  snprintf(trial->device, sizeof trial->device, "Made-up GPU %d, 80 GiB", i / MODELS % DEVICES);
  gd_method_name(&methods[i / (MODELS * DEVICES) % METHODS], trial->method);
  trial->parameters = 1000000;
  trial->micro_batch = 8;
  trial->accumulation = 16;
  trial->peak_bytes = trial->bytes[0] = 1000000000 + i;
  trial->device_limit_bytes = 80000000000;
  if (trial->status != GD_TRIAL_OK)
    return;
  for (trial->micro_step.count = 0; trial->micro_step.count < 20; trial->micro_step.count++)
    trial->micro_step.ns[trial->micro_step.count] = 100000000 + 1000 * (int64_t)i;
  for (trial->update.count = 0; trial->update.count < 3; trial->update.count++)
    trial->update.ns[trial->update.count] = 10000000;
  gd_samples_summarise(&trial->micro_step);
  gd_samples_summarise(&trial->update);
  /* What follows from these, as the store reads no trial that does not add up. */
  const double steps = 10000;
  trial->step_s = (double)trial->accumulation * trial->micro_step.median_s + trial->update.median_s;
  trial->days = trial->days_low = trial->days_high = steps * trial->step_s / 86400;
  trial->samples_per_s =
      (double)(trial->ranks * trial->accumulation * trial->micro_batch) / trial->step_s;
  trial->tokens_per_s = 2048 * trial->samples_per_s;
  trial->model_flops_per_step = trial->exec_flops_per_step = 1e13;
  trial->train_flops = steps * trial->model_flops_per_step;
  trial->peak_flops = 1e15;
  trial->mfu = trial->hfu = trial->model_flops_per_step / trial->step_s / trial->peak_flops;
  trial->loss = 10;
  trial->norm = 1;
}

static void make_key(int i, struct gd_store_key *key) {
  snprintf(key->text, sizeof key->text,
           "a key as long as they are, with model, recipe, method, device, limits, seed and "
           "version, which takes a few hundred bytes;%0400d",
           i);
  gd_hash_hex(key->hash, key->text);
}

static enum gd_status count_row(void *user, const struct gd_store_row *row, struct gd_error *err) {
  (void)row;
  (void)err;
  (*(int *)user)++;
  return GD_OK;
}

/* The least of a few, in a store that was just opened, as a command has it. */
static void time_filter(const char *path, const char *name, const struct gd_store_filter *filter,
                        bool total) {
  struct gd_error err = {0};
  double least_ms = 1e9;
  int rows = 0;
  for (int round = 0; round < ROUNDS; round++) {
    struct gd_store *store;
    struct gd_store_total counted;
    rows = 0;
    int64_t start = gd_clock_ns();
    if (gd_store_open(path, &store, &err) != GD_OK)
      die(&err);
    if (total ? gd_store_count(store, filter, &counted, &err) != GD_OK
              : gd_store_query(store, filter, count_row, &rows, &err) != GD_OK)
      die(&err);
    gd_store_close(store);
    double ms = 1e-6 * (double)(gd_clock_ns() - start);
    least_ms = ms < least_ms ? ms : least_ms;
    if (total)
      rows = (int)counted.trials;
  }
  printf("  %-44s %7d rows  %8.1f ms\n", name, rows, least_ms);
}

int main(int argc, char **argv) {
  char folder[] = "/tmp/gpudays-bench-XXXXXX", path[4096];
  struct gd_method methods[GD_METHODS_MOST];
  struct gd_store *store;
  struct gd_error err = {0};
  struct gd_trial trial;
  struct gd_store_key key;
  struct gd_provenance from;
  const char *why;
  bool added, found;
  static const enum gd_trial_status infeasible = GD_TRIAL_INFEASIBLE;
  gd_method_space(true, methods);
  if (argc > 1)
    snprintf(path, sizeof path, "%s", argv[1]);
  else if (mkdtemp(folder))
    snprintf(path, sizeof path, "%s/results.db", folder);
  if (gd_store_open(path, &store, &err) != GD_OK)
    die(&err);
  gd_provenance_here("cpu", &from);
  int64_t start = gd_clock_ns();
  if (gd_store_begin(store, &err) != GD_OK)
    die(&err);
  for (int i = 0; i < TRIALS; i++) {
    make_trial(i, methods, &trial);
    make_key(i, &key);
    snprintf(from.time, sizeof from.time, "20%02d-%02d-%02dT%02d:00:00.000Z", 24 + i / 50000,
             1 + i / 5000 % 12, 1 + i / 200 % 28, i % 24);
    if (gd_store_insert(store, &key, &trial, &from, "", &added, &err) != GD_OK)
      die(&err);
  }
  if (gd_store_end(store, GD_OK, &err) != GD_OK)
    die(&err);
  printf("store of %d trials\n", TRIALS);
  printf("  %-44s %24.1f us\n", "add, in one transaction",
         1e-3 * (double)(gd_clock_ns() - start) / TRIALS);
  start = gd_clock_ns();
  for (int i = 0; i < 100; i++) {
    make_trial(i, methods, &trial);
    make_key(i, &key);
    if (gd_store_put(store, &key, &trial, NULL, &err) != GD_OK)
      die(&err);
  }
  printf("  %-44s %24.1f us\n", "put, a transaction each, durable",
         1e-3 * (double)(gd_clock_ns() - start) / 100);
  start = gd_clock_ns();
  for (int i = 0; i < 1000; i++) {
    make_key(i * (TRIALS / 1000), &key);
    if (gd_store_find(store, &key, &trial, NULL, &found, &err) != GD_OK)
      die(&err);
    if (!found) {
      gd_store_damage(store, &why);
      fprintf(stderr, "bench_store: a trial that was stored is not found: %s\n", why);
      return 1;
    }
  }
  printf("  %-44s %24.1f us\n", "find by key", 1e-3 * (double)(gd_clock_ns() - start) / 1000);
  gd_store_close(store);
#define FILTER(...) &(struct gd_store_filter){.brief = true, __VA_ARGS__}
  time_filter(path, "--model X", FILTER(.model = "model-10m"), false);
  time_filter(path, "--model X --device Y --sort days",
              FILTER(.model = "model-10m", .device = "gpu 3", .sort = GD_STORE_SORT_DAYS), false);
  time_filter(path, "--device Y --ranks 4 --status infeasible",
              FILTER(.device = "gpu 3", .ranks = 4, .status = &infeasible), false);
  time_filter(path, "--method '*ckpt*' --sort mfu --limit 100",
              FILTER(.method = "*ckpt*", .sort = GD_STORE_SORT_MFU, .limit = 100), false);
  time_filter(path, "--since the last month", FILTER(.since = "2025-08-20"), false);
  time_filter(path, "--sort days --limit 50", FILTER(.sort = GD_STORE_SORT_DAYS, .limit = 50),
              false);
  time_filter(path, "--total", FILTER(.ranks = 0), true);
  if (argc <= 1) {
    unlink(path);
    rmdir(folder);
  }
  return 0;
}
