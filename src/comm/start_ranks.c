/*
 * Ranks as processes of this program; see start_ranks.h. How mpirun is watched is in mpirun.c.
 */
#define _GNU_SOURCE /* setenv, environ */
#include "comm/start_ranks.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/scratch.h"
#include "base/switches.h"
#include "comm/comm.h"
#include "comm/mpirun.h"

/* --- their environment --------------------------------------------------------------------- */

/* Set what the user has not set. */
static void prefer(const char *name, const char *value) {
  setenv(name, value, 0);
}

/* Only under a batch system may mpirun spread over several. */
static bool is_one_machine(void) {
  static const char *const variables[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"};
  const char *nodes = gd_env("SLURM_JOB_NUM_NODES");
  if (gd_env("SLURM_JOB_ID") && nodes && strcmp(nodes, "1") == 0)
    return true;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
    if (gd_env(variables[i]))
      return false;
  return true;
}

/*
 * What a step of one task (mpirun -n 1, srun --pty bash with PMIx) tells its process about itself:
 * an mpirun that inherits it takes itself for a part of that step, and fails. Settings that a user
 * may have made (OMPI_MCA_btl, PMIX_MCA_...) stay.
 */
static void leave_step(void) {
  static const char *const prefixes[] = {
      "PMI_",           "PMIX_",        "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE",
      "OMPI_APP_CTX",   "OMPI_NUM_APP", "OMPI_FIRST_RANKS", "OMPI_FILE_LOCATION",
      "OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix=",   "OMPI_MCA_initial_wdir",
      "OMPI_COMMAND",   "OMPI_ARGV",    "PRTE_LAUNCHED",    "OMPI_MCA_shmem_RUNTIME",
  };
  char name[256];
  for (char **at = environ; *at;) {
    size_t length = strcspn(*at, "="), i = 0, count = sizeof prefixes / sizeof *prefixes;
    while (i < count && strncmp(*at, prefixes[i], strlen(prefixes[i])) != 0)
      i++;
    if (i == count || length >= sizeof name || strncmp(*at, "PMIX_MCA_", 9) == 0) {
      at++;
      continue;
    }
    snprintf(name, sizeof name, "%.*s", (int)length, *at);
    unsetenv(name); /* the next one moves here */
  }
}

/*
 * What ranks share is files: shared memory in /dev/shm, and mpirun's session folder in TMPDIR.
 * OpenMPI leaves both behind when ranks or mpirun are killed, so both are in a folder that goes
 * away with the ranks. Containers often have 64 MiB of /dev/shm: where that is short of 16 MiB a
 * rank, the folder is in the temporary one, or in /tmp where the name of that is so long that the
 * 108 bytes of a Unix socket's would not hold a socket in the session folder.
 */
#define SHARED_NAME "gpudays-ranks-"
static bool make_shared_folder(int64_t ranks, const char *temporary, struct gd_scratch *scratch) {
  enum { LONGEST = 32 };
  struct statvfs shm;
  const char *folders[] = {"/dev/shm", strlen(temporary) > LONGEST ? "/tmp" : temporary, temporary};
  bool small = statvfs("/dev/shm", &shm) != 0 ||
               (int64_t)(shm.f_bavail * shm.f_frsize) / (16 * 1024 * 1024) < ranks;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    gd_scratch_sweep(folders[i], SHARED_NAME, NULL, 0);
  for (size_t i = small ? 1 : 0; i < sizeof folders / sizeof *folders; i++)
    if (gd_scratch_make(scratch, folders[i], SHARED_NAME, NULL) == GD_OK)
      return true;
  return false; /* OpenMPI then tries its own folders, and says what is wrong with them */
}

/* Ranks keep the TMPDIR that there was (-x): from a folder in /dev/shm it may be forbidden to load
 * compiled kernels. */
static void use_shared_folder(int64_t ranks, struct gd_scratch *scratch, char *kept, size_t size) {
  const char *temporary = gd_env("TMPDIR");
  temporary = temporary && temporary[0] ? temporary : "/tmp";
  int length = snprintf(kept, size, "TMPDIR=%s", temporary);
  if (length < 0 || (size_t)length >= size || !make_shared_folder(ranks, temporary, scratch)) {
    kept[0] = '\0';
    return;
  }
  prefer("OMPI_MCA_btl_vader_backing_directory", scratch->path);
  prefer("OMPI_MCA_btl_sm_backing_directory", scratch->path);
  setenv("TMPDIR", scratch->path, 1);
}

/* Names of OpenMPI 4 and 5; each ignores the other's. The network between several machines is not
 * ours to choose, and a folder of this one is none of theirs. */
static void prepare_environment(int64_t ranks, struct gd_scratch *scratch, char *kept,
                                size_t size) {
  kept[0] = '\0';
  leave_step();
  prefer("OMPI_MCA_odls_base_sigkill_timeout", "0");
  prefer("PRTE_MCA_odls_base_sigkill_timeout", "0");
  if (!is_one_machine())
    return;
  prefer("OMPI_MCA_pml", "ob1");
  prefer("OMPI_MCA_btl", "^openib,tcp"); /* they would look for networks, and complain */
  use_shared_folder(ranks, scratch, kept, size);
}

/* --- running them -------------------------------------------------------------------------- */

/* What the next launch is not to find: a folder that is gone. */
static void restore_environment(const char *shared, const char *kept) {
  static const char *const names[] = {"OMPI_MCA_btl_vader_backing_directory",
                                      "OMPI_MCA_btl_sm_backing_directory"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (gd_env(names[i]) && strcmp(gd_env(names[i]), shared) == 0)
      unsetenv(names[i]);
  if (kept[0])
    setenv("TMPDIR", kept + strlen("TMPDIR="), 1);
}

/* All ranks, once. */
static enum gd_status run_ranks(const struct gd_ranks_order *order, int *code, bool *asked,
                                struct gd_error *err) {
  enum { OWN = 16, MEET_S = 300 };
  struct gd_scratch scratch = GD_SCRATCH_NONE;
  double meet_s =
      order->rank_timeout_s > 0 ? fmax(order->rank_timeout_s, GD_COMM_LEAST_START_S) : MEET_S;
  char mpirun[PATH_MAX], self[PATH_MAX], kept[PATH_MAX], shared[PATH_MAX], ranks[24];
  struct gd_arena arena = {0};
  int at = 0;
  GD_TRY(gd_mpirun_find(mpirun, sizeof mpirun, err));
  GD_TRY(gd_process_self(self, sizeof self, err));
  snprintf(ranks, sizeof ranks, "%lld", (long long)order->ranks);
  const char **arguments = gd_arena_alloc(&arena, (size_t)order->argc + OWN, sizeof *arguments);
  if (!arguments)
    return gd_nomem(err, "before the ranks were started");
  prepare_environment(order->ranks, &scratch, kept, sizeof kept);
  snprintf(shared, sizeof shared, "%s", scratch.path);
  arguments[at++] = mpirun;
  if (kept[0]) {
    arguments[at++] = "-x";
    arguments[at++] = kept;
  }
  if (geteuid() == 0)
    arguments[at++] = "--allow-run-as-root";
  const char *const fixed[] = {"--oversubscribe", "--bind-to", "none", "-x",
                               order->mark,       "-n",        ranks,  self};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    arguments[at++] = fixed[i];
  for (int i = 1; i < order->argc; i++)
    arguments[at++] = order->argv[i];
  /* A rank that waits in MPI_Init says so itself after meet_s, and knows more: it comes first. */
  enum gd_status status = gd_mpirun_run(&(struct gd_mpirun_order){.arguments = arguments,
                                                                  .meet_s = 5 + 1.1 * meet_s,
                                                                  .scratch = &scratch,
                                                                  .orderly = order->orderly,
                                                                  .heard = order->heard},
                                        code, asked, err);
  gd_scratch_remove(&scratch); /* where mpirun could not be started */
  restore_environment(shared, kept);
  gd_arena_deinit(&arena);
  return status;
}

/* The same for a run of one process. */
static enum gd_status run_alone(const struct gd_ranks_order *order, int *code, bool *asked,
                                struct gd_error *err) {
  char self[PATH_MAX];
  struct gd_arena arena = {0};
  GD_TRY(gd_process_self(self, sizeof self, err));
  const char **arguments = gd_arena_alloc(&arena, (size_t)order->argc + 1, sizeof *arguments);
  if (!arguments)
    return gd_nomem(err, "before the run was started");
  arguments[0] = self;
  for (int i = 1; i < order->argc; i++)
    arguments[i] = order->argv[i];
  enum gd_status status = gd_mpirun_run(&(struct gd_mpirun_order){.arguments = arguments,
                                                                  .meet_s = HUGE_VAL,
                                                                  .alone = true,
                                                                  .orderly = true,
                                                                  .heard = order->heard},
                                        code, asked, err);
  gd_arena_deinit(&arena);
  return status;
}

enum gd_status gd_ranks_run(const struct gd_ranks_order *order, int *code, struct gd_error *err) {
  char number[24];
  for (int64_t retry = 0;; retry++) {
    bool asked = false;
    enum gd_status status = order->ranks > 1 ? run_ranks(order, code, &asked, err)
                                             : run_alone(order, code, &asked, err);
    int end = status == GD_OK ? *code : (int)gd_exit_of(status);
    if (asked || retry >= order->retries || (end != GD_EXIT_ENVIRONMENT && end != GD_EXIT_INTERNAL))
      return status;
    order->retries_now(status == GD_OK ? "" : err->text, retry + 1, order->retries);
    snprintf(number, sizeof number, "%lld", (long long)retry + 1);
    setenv(GD_RANKS_RETRIED, number, 1);
    *err = (struct gd_error){0};
  }
}
