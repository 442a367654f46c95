/*
 * Starting ranks and being one; see launch.h. How mpirun is watched is in mpirun.c.
 */
#define _GNU_SOURCE /* setenv, environ */
#include "cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/scratch.h"
#include "base/switches.h"
#include "cli/mpirun.h"
#include "comm/comm.h"

/* Set for the ranks that were started here: 'b' and 'p' in it allow bold text and progress, which a
 * rank cannot find out, since its output goes through mpirun. */
#define MARK "GPUDAYS_LAUNCHED"

/* --- being a rank -------------------------------------------------------------------------- */

void gd_launch_begin(struct gd_cli *cli) {
  const char *mark = gd_env(MARK);
  int size;
  bool in_job = gd_comm_in_job(&cli->rank, &size);
  if (!in_job && !mark)
    return;
  cli->bold = mark && strchr(mark, 'b');
  cli->progress = mark && strchr(mark, 'p') && cli->rank == 0;
  if (cli->rank == 0)
    return;
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
}

static enum gd_status check_size(const struct gd_cli *cli, int size, struct gd_error *err) {
  if (cli->options.ranks > 0 && size > 0 && cli->options.ranks != size)
    return gd_fail(err, GD_BAD_INPUT,
                   "--ranks is %lld, but this process is one of %d rank%s already (mpirun or srun "
                   "started it); leave --ranks out, or start as many",
                   (long long)cli->options.ranks, size, size == 1 ? "" : "s");
  return GD_OK;
}

/*
 * Rank 0 speaks at once. mpirun takes up to a second to end the others after that, so the next one
 * waits for longer, and the rest a little longer each. When a message failed, its cause may be a
 * rank that died, which mpirun knows better: it gets time to say so.
 */
static void wait_for_turn(const struct gd_cli *cli) {
  int64_t ms = cli->comm && gd_comm_has_failed(cli->comm) ? 400 : 0;
  if (cli->rank > 0)
    ms += 1300 + 400 * ((cli->rank < 6 ? cli->rank : 6) - 1);
  struct timespec turn = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&turn, NULL);
}

/* The other ranks did not come. This one is inside of MPI_Init, from which nothing leads back to
 * main(); mpirun and srun end the rest when it ends so. */
static void end_stalled(void *user, const struct gd_error *err) {
  const struct gd_cli *cli = user;
  wait_for_turn(cli);
  fprintf(stderr, "gpudays: %s\n", err->text);
  fflush(stderr);
  _exit(GD_EXIT_ENVIRONMENT);
}

/* 'mpirun -n 1 gpudays bench ... : -n 1 gpudays calibrate': each would wait for what the other
 * never sends. */
static enum gd_status check_command(const struct gd_cli *cli, struct gd_error *err) {
  enum { NAME = 32 };
  int rank = gd_comm_rank(cli->comm), size = gd_comm_size(cli->comm), other = rank;
  char *names = gd_mem_alloc((size_t)size, NAME);
  if (!names)
    return gd_nomem(err, "while joining the job");
  char *own = names + (ptrdiff_t)NAME * rank;
  snprintf(own, NAME, "%s", cli->command->name);
  enum gd_status status = gd_comm_all_gather(cli->comm, names, NAME, err);
  for (int i = 0; i < size && status == GD_OK && other == rank; i++)
    if (strcmp(names + (ptrdiff_t)NAME * i, own) != 0)
      other = i;
  if (other != rank)
    status = gd_fail(err, GD_BAD_INPUT,
                     "rank %d runs '%s' and rank %d runs '%.31s': the ranks of a job answer one "
                     "question together; give all of them the same command",
                     rank, own, other, names + (ptrdiff_t)NAME * other);
  gd_mem_free(names);
  return status;
}

bool gd_launch_is_watched(void) {
  return gd_env(MARK) != NULL;
}

void gd_launch_say_met(void) {
  if (!gd_launch_is_watched())
    return;
  fprintf(stderr, GD_MPIRUN_MET "\n"); /* for gd_mpirun_run, which passes on all other lines */
  fflush(stderr);
}

enum gd_status gd_launch_join(struct gd_cli *cli, struct gd_error *err) {
  const struct gd_comm_start start = {
      .timeout_s = cli->options.rank_timeout, .stalled = end_stalled, .user = cli};
  GD_TRY(gd_comm_open(&cli->comm, &start, err));
  GD_TRY(check_size(cli, gd_comm_size(cli->comm), err));
  GD_TRY(check_command(cli, err));
  if (gd_comm_rank(cli->comm) == 0)
    gd_launch_say_met();
  if (gd_comm_size(cli->comm) > 1 && cli->options.threads == 0 && !gd_env("OMP_NUM_THREADS"))
    cli->options.threads = gd_comm_cores(cli->comm);
  return GD_OK;
}

enum gd_status gd_launch_meet(struct gd_cli *cli, enum gd_status status, struct gd_error *err) {
  if (status == GD_OK && cli->comm) {
    status = gd_comm_barrier(cli->comm, err);
    if (status != GD_OK)
      gd_strbuf_deinit(&cli->out);
  }
  if (status != GD_OK)
    wait_for_turn(cli);
  return status;
}

void gd_launch_leave(struct gd_cli *cli, int code) {
  if (code != 0 && cli->comm)
    gd_comm_abort(cli->comm, code);
  gd_comm_close(cli->comm);
  cli->comm = NULL;
}

/* --- starting them ------------------------------------------------------------------------- */

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

static bool is_training(const struct gd_cli *cli) {
  return cli->command == &gd_commands[GD_COMMAND_TRAIN] && !cli->options.help;
}

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
static enum gd_status launch(const struct gd_cli *cli, int argc, char **argv, int *code,
                             bool *asked, struct gd_error *err) {
  enum { OWN = 16, MEET_S = 300 };
  struct gd_scratch scratch = GD_SCRATCH_NONE;
  double meet_s = cli->options.rank_timeout > 0
                      ? fmax(cli->options.rank_timeout, GD_COMM_LEAST_START_S)
                      : MEET_S;
  char mpirun[PATH_MAX], self[PATH_MAX], kept[PATH_MAX], shared[PATH_MAX], ranks[24];
  struct gd_arena arena = {0};
  int at = 0;
  GD_TRY(gd_mpirun_find(mpirun, sizeof mpirun, err));
  GD_TRY(gd_process_self(self, sizeof self, err));
  snprintf(ranks, sizeof ranks, "%lld", (long long)cli->options.ranks);
  const char **arguments = gd_arena_alloc(&arena, (size_t)argc + OWN, sizeof *arguments);
  if (!arguments)
    return gd_nomem(err, "before the ranks were started");
  prepare_environment(cli->options.ranks, &scratch, kept, sizeof kept);
  snprintf(shared, sizeof shared, "%s", scratch.path);
  arguments[at++] = mpirun;
  if (kept[0]) {
    arguments[at++] = "-x";
    arguments[at++] = kept;
  }
  if (geteuid() == 0)
    arguments[at++] = "--allow-run-as-root";
  const char *const fixed[] = {
      "--oversubscribe", "--bind-to", "none", "-x", MARK, "-n", ranks, self};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    arguments[at++] = fixed[i];
  for (int i = 1; i < argc; i++)
    arguments[at++] = argv[i];
  /* A rank that waits in MPI_Init says so itself after meet_s, and knows more: it comes first. */
  enum gd_status status = gd_mpirun_run(&(struct gd_mpirun_order){.arguments = arguments,
                                                                  .meet_s = 5 + 1.1 * meet_s,
                                                                  .scratch = &scratch,
                                                                  .orderly = is_training(cli)},
                                        code, asked, err);
  gd_scratch_remove(&scratch); /* where mpirun could not be started */
  restore_environment(shared, kept);
  gd_arena_deinit(&arena);
  return status;
}

/* The same for a run of one process. */
static enum gd_status launch_alone(int argc, char **argv, int *code, bool *asked,
                                   struct gd_error *err) {
  char self[PATH_MAX];
  struct gd_arena arena = {0};
  GD_TRY(gd_process_self(self, sizeof self, err));
  const char **arguments = gd_arena_alloc(&arena, (size_t)argc + 1, sizeof *arguments);
  if (!arguments)
    return gd_nomem(err, "before the run was started");
  arguments[0] = self;
  for (int i = 1; i < argc; i++)
    arguments[i] = argv[i];
  enum gd_status status = gd_mpirun_run(
      &(struct gd_mpirun_order){
          .arguments = arguments, .meet_s = HUGE_VAL, .alone = true, .orderly = true},
      code, asked, err);
  gd_arena_deinit(&arena);
  return status;
}

/*
 * Starts what works, and starts it again as often as --retries says when it dies or is lost: a run
 * goes on from its newest checkpoint. What a user did wrong, and an answer that is no, stay.
 */
static enum gd_status supervise(const struct gd_cli *cli, int argc, char **argv, int *code,
                                struct gd_error *err) {
  char mark[8], number[24];
  snprintf(mark, sizeof mark, "1%s%s", cli->bold ? "b" : "", cli->progress ? "p" : "");
  setenv(MARK, mark, 1);
  for (int64_t retry = 0;; retry++) {
    bool asked = false;
    enum gd_status status = cli->options.ranks > 1 ? launch(cli, argc, argv, code, &asked, err)
                                                   : launch_alone(argc, argv, code, &asked, err);
    int end = status == GD_OK ? *code : (int)gd_exit_of(status);
    if (asked || retry >= cli->options.retries ||
        (end != GD_EXIT_ENVIRONMENT && end != GD_EXIT_INTERNAL))
      return status;
    fprintf(stderr, "gpudays: %s%sgoing on from the last checkpoint: retry %lld of %lld\n",
            status == GD_OK ? "" : err->text, status == GD_OK ? "" : "; ", (long long)retry + 1,
            (long long)cli->options.retries);
    fflush(stderr);
    snprintf(number, sizeof number, "%lld", (long long)retry + 1);
    setenv(GD_LAUNCH_RETRIED, number, 1);
    *err = (struct gd_error){0};
  }
}

/* A command that needs no ranks answers on rank 0, and never joins: in a job of several commands
 * ('mpirun ... : ...') those that join would wait for it. OpenMPI says how many commands there are.
 */
static enum gd_status check_alone(const struct gd_cli *cli, int size, struct gd_error *err) {
  const char *commands = gd_env("OMPI_NUM_APP_CTX");
  if (size < 2 || !cli->command || !commands || strcmp(commands, "1") == 0)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT,
                 "'%s' needs no ranks, but this process is one of %d that mpirun started with %s "
                 "commands, and the others may wait for it; run it by itself",
                 cli->command->name, size, commands);
}

enum gd_status gd_launch_ranks(const struct gd_cli *cli, int argc, char **argv, int *code,
                               struct gd_error *err) {
  int rank, size;
  bool trial = cli->command == &gd_command_trial;
  bool calibrates = cli->command == &gd_commands[GD_COMMAND_CALIBRATE] && !cli->options.help;
  bool trains = is_training(cli) && !cli->options.slurm;
  bool works = trial || calibrates || trains ||
               (cli->command == &gd_commands[GD_COMMAND_BENCH] && !cli->options.help);
  *code = -1;
  if (gd_comm_in_job(&rank, &size))
    return works ? check_size(cli, size, err) : check_alone(cli, size, err);
  if ((trial || calibrates || trains) && cli->options.ranks > 1)
    return supervise(cli, argc, argv, code, err);
  return trains && cli->options.retries > 0 && !gd_env(MARK) ? supervise(cli, argc, argv, code, err)
                                                             : GD_OK;
}
