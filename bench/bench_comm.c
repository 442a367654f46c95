/*
 * Bandwidth of the collectives, run under mpirun: what a rank receives over the time of the slowest
 * rank (the bus bandwidth of nccl-tests: bytes x (n - 1) / n / time), the best of several, next to
 * a check of the result. Usage: mpirun -n N bench_comm [MIB [SCRATCH_KIB]]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "comm/comm.h"

enum { ROUNDS = 16 };

struct setup {
  struct gd_comm *comm;
  float *data, *scratch;
  int64_t shard, scratch_bytes;
};

static enum gd_status reduce_scatter(struct setup *s, struct gd_error *err) {
  return gd_comm_reduce_scatter(s->comm, s->data, s->shard, s->scratch, s->scratch_bytes, err);
}

static enum gd_status all_gather(struct setup *s, struct gd_error *err) {
  return gd_comm_all_gather(s->comm, s->data, 4 * s->shard, err);
}

static enum gd_status all_reduce(struct setup *s, struct gd_error *err) {
  return gd_comm_all_reduce(s->comm, s->data, s->shard, s->scratch, s->scratch_bytes, err);
}

/* Each rank's elements are rank + 1 + index % 8, so that every sum is exact. */
static void fill(struct setup *s) {
  int rank = gd_comm_rank(s->comm);
  for (int64_t i = 0; i < s->shard * gd_comm_size(s->comm); i++)
    s->data[i] = (float)(rank + 1 + i % 8);
}

static int64_t count_wrong(const struct setup *s, bool summed, bool gathered) {
  int rank = gd_comm_rank(s->comm), size = gd_comm_size(s->comm);
  int64_t wrong = 0;
  for (int64_t i = 0; i < s->shard * size; i++) {
    int64_t owner = i / s->shard;
    float sum = (float)(size * (size + 1) / 2 + size * (i % 8));
    float want = summed ? sum : (float)(owner + 1 + i % 8);
    wrong += (gathered || owner == rank) && !(s->data[i] == want);
  }
  return wrong;
}

static enum gd_status measure(struct setup *s, const char *name, bool summed, bool gathered,
                              enum gd_status (*run)(struct setup *, struct gd_error *),
                              struct gd_error *err) {
  int size = gd_comm_size(s->comm);
  int64_t best = INT64_MAX;
  double wrong = 0;
  fill(s);
  for (int i = 0; i < ROUNDS; i++) {
    GD_TRY(gd_comm_barrier(s->comm, err));
    int64_t start = gd_clock_ns();
    GD_TRY(run(s, err));
    GD_TRY(gd_comm_barrier(s->comm, err));
    int64_t took = gd_clock_ns() - start;
    best = took < best ? took : best;
    if (i == 0) /* the values of later rounds grow, the time is the same */
      wrong = (double)count_wrong(s, summed, gathered);
  }
  GD_TRY(gd_comm_sum_doubles(s->comm, &wrong, 1, err));
  double bytes = (double)s->shard * (size - 1) * 4 * (summed && gathered ? 2 : 1);
  if (gd_comm_rank(s->comm) == 0)
    printf("%-15s %d ranks  %8.2f ms  %6.2f GB/s received per rank  %.0f wrong\n", name, size,
           (double)best * 1e-6, bytes / (double)best, wrong);
  return GD_OK;
}

static enum gd_status bench(struct setup *s, int64_t mib, struct gd_error *err) {
  GD_TRY(gd_comm_open(&s->comm, NULL, err));
  int size = gd_comm_size(s->comm);
  s->shard = mib * 1024 * 1024 / 4 / size;
  s->data = gd_mem_alloc((size_t)(s->shard * size), sizeof *s->data);
  s->scratch = gd_mem_alloc((size_t)s->scratch_bytes, 1);
  if (!s->data || !s->scratch)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory");
  GD_TRY(measure(s, "reduce_scatter", true, false, reduce_scatter, err));
  GD_TRY(measure(s, "all_gather", false, true, all_gather, err));
  return measure(s, "all_reduce", true, true, all_reduce, err);
}

int main(int argc, char **argv) {
  struct setup s = {0};
  struct gd_error err = {0};
  int64_t mib = 64, scratch_kib = 2048;
  if ((argc > 1 && !gd_parse_int(argv[1], 1, 65536, &mib)) ||
      (argc > 2 && !gd_parse_int(argv[2], 64, 1 << 20, &scratch_kib))) {
    fprintf(stderr, "usage: mpirun -n N %s [MIB [SCRATCH_KIB]]\n", argv[0]);
    return 2;
  }
  s.scratch_bytes = scratch_kib * 1024;
  enum gd_status status = bench(&s, mib, &err);
  if (status != GD_OK)
    fprintf(stderr, "bench_comm: %s\n", err.text);
  gd_comm_close(s.comm);
  gd_mem_free(s.data);
  gd_mem_free(s.scratch);
  return status == GD_OK ? 0 : 3;
}
