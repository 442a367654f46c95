/*
 * The collectives on 1 to 4 ranks. Without arguments this program starts itself under mpirun with
 * the name of a set of checks; each rank then runs them and ends with 1 at the first that fails.
 * What needs no job (the environment, a missing library) is checked in this process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "comm/comm.h"

/* --- on a rank ----------------------------------------------------------------------------- */

#define CHECK(expr) ((expr) ? (void)0 : check_failed(#expr, __LINE__))
#define CHECK_OK(expr) \
  ((expr) == GD_OK ? (void)0 : (fprintf(stderr, "%s\n", err.text), check_failed(#expr, __LINE__)))

_Noreturn static void check_failed(const char *expr, int line) {
  fprintf(stderr, "rank %s: line %d: %s\n", getenv("OMPI_COMM_WORLD_RANK"), line, expr);
  _exit(1);
}

static void nap(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* splitmix64: the same on every rank, so that each knows what the others have. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* Of magnitudes so different that the order of a sum shows in its last bits. */
static float value_of(int rank, int64_t index, uint64_t round) {
  uint64_t bits = mix(mix((uint64_t)rank * 1000003 + (uint64_t)index) + round);
  float scale = (float)(1u << (bits % 20));
  return scale * ((float)(bits >> 40) / 8388608.0f - 1.0f);
}

static float sum_in_order(int64_t index, int size, uint64_t round) {
  float sum = value_of(0, index, round);
  for (int rank = 1; rank < size; rank++)
    sum += value_of(rank, index, round);
  return sum;
}

static bool same_bits(float a, float b) {
  return memcmp(&a, &b, sizeof a) == 0;
}

enum { GUARD = 16 }; /* elements before and after the data */

static float *guarded(int64_t count) {
  float *data = gd_mem_alloc((size_t)count + 2 * GUARD, sizeof *data);
  CHECK(data != NULL);
  for (int i = 0; i < GUARD; i++)
    data[i] = data[GUARD + count + i] = -77.0f;
  return data + GUARD;
}

static void check_guards(float *data, int64_t count) {
  for (int i = 1; i <= GUARD; i++)
    CHECK(data[-i] == -77.0f && data[count + i - 1] == -77.0f);
  gd_mem_free(data - GUARD);
}

static void fill(float *data, int64_t count, int rank, uint64_t round) {
  for (int64_t i = 0; i < count; i++)
    data[i] = value_of(rank, i, round);
}

/* Ranks come at different times: results must not know. */
static void jitter(int rank, uint64_t round) {
  nap((long)(mix((uint64_t)rank + 7 * round) % 4));
}

static void check_sums(struct gd_comm *comm, int64_t shard, int64_t scratch_bytes, uint64_t round) {
  struct gd_error err = {0};
  int rank = gd_comm_rank(comm), size = gd_comm_size(comm);
  int64_t count = shard * size, unlike = 0;
  float *data = guarded(count), *scratch = guarded(scratch_bytes / 4);
  fill(data, count, rank, round);
  jitter(rank, round);
  CHECK_OK(gd_comm_reduce_scatter(comm, data, shard, scratch, scratch_bytes, &err));
  for (int64_t i = rank * shard; i < (rank + 1) * shard; i++)
    CHECK(same_bits(data[i], sum_in_order(i, size, round)));

  fill(data, count, rank, round + 1);
  jitter(rank, round + 1);
  CHECK_OK(gd_comm_all_reduce(comm, data, shard, scratch, scratch_bytes, &err));
  for (int64_t i = 0; i < count; i++) {
    CHECK(same_bits(data[i], sum_in_order(i, size, round + 1)));
    float backwards = value_of(size - 1, i, round + 1);
    for (int r = size - 2; r >= 0; r--)
      backwards += value_of(r, i, round + 1);
    unlike += !same_bits(data[i], backwards);
  }
  CHECK(size < 3 || shard < 1000 || unlike > 0); /* or the check above would see nothing */
  check_guards(data, count);
  check_guards(scratch, scratch_bytes / 4);
}

static unsigned char byte_of(int rank, int64_t index) {
  return (unsigned char)mix((uint64_t)rank * 1000003 + (uint64_t)index);
}

static void check_gather(struct gd_comm *comm, int64_t shard) {
  struct gd_error err = {0};
  int rank = gd_comm_rank(comm), size = gd_comm_size(comm);
  unsigned char *data = gd_mem_alloc((size_t)(shard * size) + 1, 1);
  CHECK(data != NULL);
  data[shard * size] = 0xa5;
  for (int64_t i = 0; i < shard; i++)
    data[rank * shard + i] = byte_of(rank, i);
  jitter(rank, (uint64_t)shard);
  CHECK_OK(gd_comm_all_gather(comm, data, shard, &err));
  for (int r = 0; r < size; r++)
    for (int64_t i = 0; i < shard; i++)
      CHECK(data[r * shard + i] == byte_of(r, i));
  CHECK(data[shard * size] == 0xa5);
  gd_mem_free(data);
}

static void check_broadcast(struct gd_comm *comm, int64_t bytes) {
  struct gd_error err = {0};
  int rank = gd_comm_rank(comm), size = gd_comm_size(comm);
  unsigned char *data = gd_mem_alloc((size_t)bytes + 1, 1);
  CHECK(data != NULL);
  data[bytes] = 0xa5;
  for (int root = 0; root < size; root++) {
    for (int64_t i = 0; i < bytes; i++)
      data[i] = byte_of(rank, i);
    CHECK_OK(gd_comm_broadcast(comm, data, bytes, root, &err));
    for (int64_t i = 0; i < bytes; i++)
      CHECK(data[i] == byte_of(root, i));
    CHECK(data[bytes] == 0xa5);
  }
  gd_mem_free(data);
}

static void check_scalars(struct gd_comm *comm, int count) {
  struct gd_error err = {0};
  int rank = gd_comm_rank(comm), size = gd_comm_size(comm);
  double values[101];
  values[count] = -77;
  for (int i = 0; i < count; i++)
    values[i] = (double)value_of(rank, i, 3) * 1e-3;
  CHECK_OK(gd_comm_sum_doubles(comm, values, count, &err));
  for (int i = 0; i < count; i++) {
    double sum = (double)value_of(0, i, 3) * 1e-3;
    for (int r = 1; r < size; r++)
      sum += (double)value_of(r, i, 3) * 1e-3;
    CHECK(memcmp(&sum, &values[i], sizeof sum) == 0);
  }
  CHECK(values[count] == -77);
}

static int64_t cpu_ns(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return ((int64_t)usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000 +
         ((int64_t)usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

/* Nobody leaves before the last has come (ranks of one machine share the clock), and those who wait
 * leave the cores alone. */
static void check_barrier(struct gd_comm *comm) {
  struct gd_error err = {0};
  int rank = gd_comm_rank(comm), size = gd_comm_size(comm);
  int64_t *times = gd_mem_alloc((size_t)size * 2, sizeof *times);
  CHECK(times != NULL);
  CHECK_OK(gd_comm_barrier(comm, &err));
  int64_t used = cpu_ns(), start = gd_clock_ns();
  nap(rank == size - 1 ? 1000 : 10L * rank);
  times[2 * rank] = gd_clock_ns();
  CHECK_OK(gd_comm_barrier(comm, &err));
  times[2 * rank + 1] = gd_clock_ns();
  used = cpu_ns() - used;
  CHECK(used < (times[2 * rank + 1] - start) * 2 / 5);
  CHECK_OK(gd_comm_all_gather(comm, times, 2 * sizeof *times, &err));
  for (int i = 0; i < size; i++)
    for (int j = 0; j < size; j++)
      CHECK(times[2 * i] <= times[2 * j + 1]);
  gd_mem_free(times);
}

/* Ranks that come late enough for the others to look who is missing, with a last chunk that is
 * smaller: what has come by then is not asked for twice. */
static void check_late(struct gd_comm *comm) {
  struct gd_error err = {0};
  int rank = gd_comm_rank(comm), size = gd_comm_size(comm);
  double limit_s = gd_comm_timeout_s(comm);
  gd_comm_set_timeout(comm, 100); /* a look every second */
  CHECK_OK(gd_comm_barrier(comm, &err));
  nap(rank == size - 1 && size > 1 ? 2500 : 0);
  check_gather(comm, 2 * 1024 * 1024 + 3);
  check_sums(comm, 70001, GD_COMM_MIN_SCRATCH_BYTES, 99);
  gd_comm_set_timeout(comm, limit_s);
}

static void *check_all(void *user) {
  struct gd_comm *comm = user;
  static const int64_t shards[] = {0, 1, 3, 17, 1000, 4099, 70001};
  static const int64_t sizes[] = {0, 1, 7, 4096, 5 * 1024 * 1024 + 3, 9 * 1024 * 1024};
  static const int counts[] = {0, 1, 5, 32, 33, 100};
  uint64_t round = 1;
  for (size_t i = 0; i < sizeof shards / sizeof *shards; i++, round += 3) {
    check_sums(comm, shards[i], GD_COMM_MIN_SCRATCH_BYTES, round);
    check_sums(comm, shards[i], 1000 * 1000, round);
  }
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    check_gather(comm, sizes[i]);
    check_broadcast(comm, sizes[i]);
  }
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
    check_scalars(comm, counts[i]);
  return NULL;
}

/* From the main thread, then from another: that is how a communication thread uses it. */
static int run_collectives(int expected) {
  struct gd_comm *comm = NULL;
  struct gd_error err = {0};
  pthread_t thread;
  int rank = -1, size = -1;
  int64_t before = gd_mem_live_blocks();
  CHECK(gd_comm_in_job(&rank, &size) == (expected > 1) && size == expected);
  CHECK_OK(gd_comm_open(&comm, NULL, &err));
  CHECK(gd_comm_size(comm) == expected && gd_comm_rank(comm) == rank);
  CHECK(gd_comm_cores(comm) >= 1 && !gd_comm_has_failed(comm));
  check_all(comm);
  CHECK(pthread_create(&thread, NULL, check_all, comm) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  check_barrier(comm);
  check_late(comm);
  gd_comm_close(comm);
  CHECK(gd_mem_live_blocks() == before);
  return 0;
}

/* The last rank stops; the others get a sentence that names it, and nobody is left over. */
static int run_stall(void) {
  struct gd_comm *comm = NULL;
  struct gd_error err = {0};
  enum { limit_s = 5 };
  float data[64] = {0};
  static float scratch[GD_COMM_MIN_SCRATCH_BYTES / 4];
  char who[32];
  CHECK_OK(gd_comm_open(&comm, NULL, &err));
  int rank = gd_comm_rank(comm), last = gd_comm_size(comm) - 1;
  CHECK_OK(gd_comm_barrier(comm, &err));
  gd_comm_set_timeout(comm, limit_s); /* more than what the others need, on a busy machine too */
  if (rank == last) {
    FILE *note = fopen(getenv("GD_TEST_STALLED_AT"), "w"); /* the clock is the machine's */
    CHECK(note && fprintf(note, "%" PRId64, gd_clock_ns()) > 0 && fclose(note) == 0);
    raise(SIGSTOP);
    nap(200000); /* mpirun wakes it to end it */
  }
  int64_t start = gd_clock_ns();
  enum gd_status status = gd_comm_reduce_scatter(comm, data, 16, scratch, sizeof scratch, &err);
  int64_t took = gd_clock_ns() - start;
  CHECK(status == GD_ENVIRONMENT && gd_comm_has_failed(comm));
  CHECK(took > limit_s * INT64_C(900000000));
  snprintf(who, sizeof who, "rank %d for %d s", last, limit_s);
  if (!strstr(err.text, who) || !strstr(err.text, "--rank-timeout"))
    fprintf(stderr, "%s\n", err.text), _exit(1);
  nap(rank == 0 ? 500 : 5000); /* the others must be done before rank 0 ends them */
  gd_comm_abort(comm, 7);
  return 1;
}

/*
 * Rank 0 and the others call different things. Both sides get an error that says so well before the
 * limit, and what they wanted to receive into may be freed: nothing arrives there any more.
 */
static int run_apart(const char *how) {
  struct gd_comm *comm = NULL;
  struct gd_error err = {0};
  enum { BIG = 3 * 1024 * 1024, SMALL = 64 };
  bool kind = strcmp(how, "apart-kind") == 0;
  CHECK_OK(gd_comm_open(&comm, NULL, &err));
  int rank = gd_comm_rank(comm), size = gd_comm_size(comm);
  gd_comm_set_timeout(comm, 100);
  char *data = gd_mem_alloc((size_t)size, BIG);
  CHECK(data != NULL);
  CHECK_OK(gd_comm_barrier(comm, &err));
  int64_t start = gd_clock_ns();
  /* A remainder on one rank only is of the first kind. */
  enum gd_status status =
      kind && rank == 0 ? gd_comm_barrier(comm, &err)
                        : gd_comm_all_gather(comm, data, !kind && rank == 0 ? SMALL : BIG, &err);
  CHECK(status == GD_ENVIRONMENT && gd_comm_has_failed(comm));
  CHECK(gd_clock_ns() - start < INT64_C(90000000000));
  if (!strstr(err.text, "start all with the same gpudays and the same options"))
    fprintf(stderr, "rank %d: %s\n", rank, err.text), _exit(1);
  gd_mem_free(data);
  memset(data = gd_mem_alloc((size_t)size, BIG), 0x5a, (size_t)size * BIG);
  nap(rank == 0 ? 3000 : 1000);
  for (int i = 0; i < size * BIG; i++)
    CHECK(data[i] == 0x5a);
  gd_mem_free(data);
  if (rank > 0)
    nap(200000); /* until rank 0 ends it: it has looked longer */
  gd_comm_abort(comm, 7);
  return 1;
}

/* --- starting ranks ------------------------------------------------------------------------ */

static char self[4096];
static bool have_mpirun;

static int run_ranks(int ranks, const char *checks) {
  char command[8192];
  snprintf(command, sizeof command,
           "timeout 400 mpirun --oversubscribe --bind-to none -n %d '%s' %s %d", ranks, self,
           checks, ranks);
  int status = system(command);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void need_mpirun(void) {
  if (!have_mpirun)
    skip();
}

static void test_collectives(void **state) {
  need_mpirun();
  assert_int_equal(run_ranks(*(int *)*state, "collectives"), 0);
}

/* Without process_vm_readv, as in most containers. */
static void test_without_single_copy(void **state) {
  (void)state;
  need_mpirun();
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
  setenv("OMPI_MCA_smsc", "^cma", 1);
  assert_int_equal(run_ranks(3, "collectives"), 0);
  unsetenv("OMPI_MCA_btl_vader_single_copy_mechanism");
  unsetenv("OMPI_MCA_smsc");
}

static void test_stall(void **state) {
  (void)state;
  need_mpirun();
  char path[] = "/tmp/gpudays-stall-XXXXXX";
  int64_t stalled = 0;
  int file = mkstemp(path);
  assert_true(file >= 0);
  close(file);
  setenv("GD_TEST_STALLED_AT", path, 1);
  assert_int_equal(run_ranks(3, "stall"), 7);
  int64_t ended = gd_clock_ns();
  FILE *note = fopen(path, "r");
  assert_non_null(note);
  assert_int_equal(fscanf(note, "%" SCNd64, &stalled), 1);
  fclose(note);
  unlink(path);
  assert_true(stalled > 0 && ended - stalled < INT64_C(100000000000)); /* all gone before it ends */
}

static void test_apart(void **state) {
  (void)state;
  need_mpirun();
  assert_int_equal(run_ranks(3, "apart-kind"), 7);
  assert_int_equal(run_ranks(2, "apart-size"), 7);
}

/* --- in this process ----------------------------------------------------------------------- */

static const char *const variables[] = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",     "PMI_SIZE",      "PMIX_RANK",
    "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "GPUDAYS_LIBMPI"};

static int clear_environment(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    unsetenv(variables[i]);
  return 0;
}

static void expect_job(bool in_job, int rank, int size) {
  int r = -1, n = -1;
  assert_int_equal(gd_comm_in_job(&r, &n), in_job);
  assert_int_equal(r, rank);
  assert_int_equal(n, size);
  clear_environment(NULL);
}

static void test_environment(void **state) {
  (void)state;
  expect_job(false, 0, 1);
  setenv("OMPI_COMM_WORLD_RANK", "2", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  expect_job(true, 2, 4);
  setenv("PMI_RANK", "1", 1);
  setenv("PMI_SIZE", "2", 1);
  expect_job(true, 1, 2);
  setenv("PMIX_RANK", "3", 1);
  setenv("SLURM_NTASKS", "8", 1); /* of the allocation; the step has fewer */
  setenv("SLURM_STEP_NUM_TASKS", "5", 1);
  expect_job(true, 3, 5);
  setenv("PMIX_RANK", "3", 1);
  setenv("SLURM_NTASKS", "8", 1);
  expect_job(true, 3, 8);
  setenv("PMIX_RANK", "3", 1);
  expect_job(true, 3, 0);
  /* A step of one task: srun --pty bash with PMIx, with PMI-2, mpirun -n 1. */
  setenv("PMIX_RANK", "0", 1);
  setenv("SLURM_NTASKS", "8", 1);
  setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  expect_job(false, 0, 1);
  setenv("PMI_RANK", "0", 1);
  setenv("PMI_SIZE", "1", 1);
  expect_job(false, 0, 1);
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
  expect_job(false, 0, 1);
  setenv("SLURM_PROCID", "0", 1); /* a batch script */
  setenv("SLURM_NTASKS", "8", 1);
  expect_job(false, 0, 1);
  setenv("OMPI_COMM_WORLD_RANK", "4", 1); /* nonsense is no job */
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  expect_job(false, 0, 1);
  setenv("OMPI_COMM_WORLD_RANK", "-1", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "x", 1);
  expect_job(false, 0, 1);
}

static bool mpi_is_loaded(void) {
  char line[4352];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  while (fgets(line, sizeof line, maps))
    found = found || strstr(line, "libmpi");
  fclose(maps);
  return found;
}

/* Outside a job everything works, and MPI is not even loaded. */
static void test_alone(void **state) {
  struct gd_comm *comm = NULL;
  struct gd_error err = {0};
  int64_t before = gd_mem_live_blocks();
  (void)state;
  assert_int_equal(gd_comm_open(&comm, NULL, &err), GD_OK);
  assert_int_equal(gd_comm_rank(comm), 0);
  assert_int_equal(gd_comm_size(comm), 1);
  check_all(comm);
  check_barrier(comm);
  gd_comm_abort(comm, 3); /* nobody to end */
  gd_comm_close(comm);
  gd_comm_close(NULL);
  assert_false(mpi_is_loaded());
  assert_int_equal(gd_mem_live_blocks(), before);
}

static void test_out_of_memory(void **state) {
  int64_t before = gd_mem_live_blocks();
  int failures = 0;
  (void)state;
  for (int64_t nth = 1;; nth++) {
    struct gd_comm *comm = NULL;
    struct gd_error err = {0};
    gd_mem_fail_after(nth);
    enum gd_status status = gd_comm_open(&comm, NULL, &err);
    gd_mem_fail_after(0);
    gd_comm_close(comm);
    assert_int_equal(gd_mem_live_blocks(), before);
    if (status == GD_OK)
      break;
    assert_int_equal(status, GD_ENVIRONMENT);
    failures++;
  }
  assert_true(failures > 5);
}

static void expect_no_library(const char *path, const char *text) {
  struct gd_comm *comm = NULL;
  struct gd_error err = {0};
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("GPUDAYS_LIBMPI", path, 1);
  assert_int_equal(gd_comm_open(&comm, NULL, &err), GD_ENVIRONMENT);
  assert_null(comm);
  if (!strstr(err.text, text))
    fail_msg("\"%s\" lacks \"%s\"", err.text, text);
  clear_environment(NULL);
}

static void test_library(void **state) {
  (void)state;
  expect_no_library("/nowhere/libmpi.so.40", "/nowhere/libmpi.so.40: cannot open");
  expect_no_library("libm.so.6", "libm.so.6 is not OpenMPI's");
}

int main(int argc, char **argv) {
  static int sizes[] = {1, 2, 3, 4};
  int64_t ranks = 0;
  if (argc == 3 && gd_parse_int(argv[2], 1, 64, &ranks))
    return strcmp(argv[1], "stall") == 0       ? run_stall()
           : strncmp(argv[1], "apart", 5) == 0 ? run_apart(argv[1])
                                               : run_collectives((int)ranks);
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0)
    return 1;
  clear_environment(NULL);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  have_mpirun = system("command -v mpirun >/dev/null") == 0;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_environment),
      cmocka_unit_test(test_alone),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_library),
      cmocka_unit_test_prestate(test_collectives, &sizes[0]),
      cmocka_unit_test_prestate(test_collectives, &sizes[1]),
      cmocka_unit_test_prestate(test_collectives, &sizes[2]),
      cmocka_unit_test_prestate(test_collectives, &sizes[3]),
      cmocka_unit_test(test_without_single_copy),
      cmocka_unit_test(test_stall),
      cmocka_unit_test(test_apart),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (failed == 0 && !have_mpirun) {
    fprintf(stderr, "SKIPPED: the collectives on several ranks: mpirun is missing; run tools/setup "
                    "(Debian: apt-get install openmpi-bin)\n");
    return 77;
  }
  return failed;
}
