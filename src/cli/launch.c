/*
 * Starting ranks and being one; see launch.h. How they are started is src/comm/start_ranks.c's.
 */
#define _GNU_SOURCE /* setenv */
#include "cli/launch.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "base/mem.h"
#include "base/switches.h"
#include "cli/progress.h"
#include "comm/comm.h"
#include "comm/mpirun.h"
#include "comm/start_ranks.h"
#include "train/run_folder.h"

/* Set for the ranks that were started here: 'b' and 'p' in it allow bold text and progress, 'w' and
 * a number say how wide the terminal is, which a rank cannot find out, since its output goes
 * through mpirun. */
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

static bool is_training(const struct gd_cli *cli) {
  return cli->command == &gd_commands[GD_COMMAND_TRAIN] && !cli->options.help;
}

static void pass_on(const char *text, size_t length) {
  fwrite(text, 1, length, stderr);
  fflush(stderr);
}

static void say_retry(const char *why, int64_t retry, int64_t of) {
  fprintf(stderr, "gpudays: %s%sgoing on from the last checkpoint: retry %lld of %lld\n", why,
          why[0] ? "; " : "", (long long)retry, (long long)of);
  fflush(stderr);
}

/* A run goes on from its newest checkpoint as often as --retries says. */
static enum gd_status supervise(const struct gd_cli *cli, int argc, char **argv, int *code,
                                struct gd_error *err) {
  char mark[32];
  snprintf(mark, sizeof mark, "1%s%sw%d", cli->bold ? "b" : "", cli->progress ? "p" : "",
           gd_progress_columns());
  setenv(MARK, mark, 1);
  return gd_ranks_run(&(struct gd_ranks_order){.argc = argc,
                                               .argv = argv,
                                               .ranks = cli->options.ranks,
                                               .rank_timeout_s = cli->options.rank_timeout,
                                               .mark = MARK,
                                               .orderly = is_training(cli),
                                               .retries = cli->options.retries,
                                               .heard = pass_on,
                                               .retries_now = say_retry},
                      code, err);
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

/* A run goes on with as many ranks as --ranks started it with, unless it is told otherwise. */
static bool takes_ranks_of_run(struct gd_cli *cli) {
  if (!is_training(cli) || cli->options.ranks > 0 || cli->options.slurm || cli->n_arguments < 1)
    return false;
  cli->options.ranks = gd_run_folder_ranks(cli->arguments[0]);
  return cli->options.ranks > 1;
}

enum gd_status gd_launch_ranks(struct gd_cli *cli, int argc, char **argv, int *code,
                               struct gd_error *err) {
  int rank, size;
  bool trial = cli->command == &gd_command_trial;
  bool calibrates = cli->command == &gd_commands[GD_COMMAND_CALIBRATE] && !cli->options.help;
  bool trains = is_training(cli) && !cli->options.slurm;
  bool works = trial || calibrates || trains ||
               (cli->command == &gd_commands[GD_COMMAND_BENCH] && !cli->options.help);
  char mpirun[PATH_MAX];
  *code = -1;
  if (gd_comm_in_job(&rank, &size))
    return works ? check_size(cli, size, err) : check_alone(cli, size, err);
  if (takes_ranks_of_run(cli) &&
      gd_mpirun_find(mpirun, sizeof mpirun, &(struct gd_error){0}) != GD_OK)
    return gd_fail(
        err, GD_ENVIRONMENT,
        "%s was started with --ranks %lld, and there is no mpirun in PATH to start them: "
        "install OpenMPI (Debian: apt-get install openmpi-bin), or go on with --ranks 1",
        cli->arguments[0], (long long)cli->options.ranks);
  if ((trial || calibrates || trains) && cli->options.ranks > 1)
    return supervise(cli, argc, argv, code, err);
  return trains && cli->options.retries > 0 && !gd_env(MARK) ? supervise(cli, argc, argv, code, err)
                                                             : GD_OK;
}
