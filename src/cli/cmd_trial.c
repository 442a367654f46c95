/*
 * `gpudays trial-child ORDER RESULT RANKS TIMEOUT`: one trial in a process (or, under mpirun, the
 * processes) of its own; `trial-rank` is the same in a job whose ranks are started by srun. Only
 * the search starts either; see search/child.h and search/slurm.h.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/switches.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "comm/comm.h"
#include "search/child.h"

/* --- faults -------------------------------------------------------------------------------- */

/* Takes memory until somebody objects; past a few GiB that will not happen. */
static void take_memory(void) {
  enum { PIECE = 16 << 20, MOST = 256 };
  for (int i = 0; i < MOST; i++) {
    char *piece = gd_mem_alloc(1, PIECE);
    if (!piece)
      break;
    memset(piece, 1, PIECE);
  }
  raise(SIGKILL);
}

/* What befalls one rank before a timed launch with collectives: the others launch theirs and wait
   inside of it. */
static const struct {
  const char *name;
  int signal; /* 0: it does nothing any more, but its other threads do */
} rank_faults[] = {{"absent", 0}, {"stopped", SIGSTOP}, {"killed", SIGKILL}};

static void strike_rank(void *user, const char *what, double done, double eta_s) {
  const int *number = user;
  (void)done, (void)eta_s;
  if (strcmp(what, "last micro-step") != 0 && strcmp(what, "updates") != 0)
    return;
  if (*number)
    raise(*number);
  for (;;)
    pause();
}

static void strike_later(const struct gd_cli *cli, const char *fault,
                         struct gd_trial_options *options) {
  for (size_t i = 0; i < sizeof rank_faults / sizeof *rank_faults; i++) {
    size_t length = strlen(rank_faults[i].name);
    if (strncmp(fault, rank_faults[i].name, length) != 0 ||
        strtol(fault + length, NULL, 10) != cli->rank)
      continue;
    options->progress = strike_rank;
    options->progress_user = (void *)(uintptr_t)&rank_faults[i].signal;
  }
}

/*
 * For tests of the search: GPUDAYS_TEST_FAULT=METHOD=FAULT breaks the trial of that method in a way
 * that real ones break, at rank 0; absentRANK, stoppedRANK and killedRANK say at which. held=FILE
 * is a trial that takes as long as FILE is there.
 */
static void inject_fault(const struct gd_cli *cli, struct gd_trial_options *options) {
  const char *wanted = gd_env("GPUDAYS_TEST_FAULT");
  char name[GD_METHOD_NAME];
  size_t length = strlen(gd_method_name(&options->method, name));
  if (!wanted || strncmp(wanted, name, length) != 0 || wanted[length] != '=')
    return;
  const char *fault = wanted + length + 1;
  strike_later(cli, fault, options);
  if (cli->rank > 0)
    return;
  if (strcmp(fault, "segfault") == 0)
    raise(SIGSEGV);
  else if (strcmp(fault, "assert") == 0)
    GD_ASSERT(!"a fault that was asked for");
  else if (strcmp(fault, "kill") == 0)
    raise(SIGKILL);
  else if (strcmp(fault, "memory") == 0)
    take_memory();
  else if (strcmp(fault, "exit") == 0)
    _exit(5);
  else if (strcmp(fault, "silent") == 0)
    _exit(0);
  else if (strcmp(fault, "otherplan") == 0)
    options->expected.hash ^= 1;
  else if (strncmp(fault, "held=", 5) == 0)
    while (access(fault + 5, F_OK) == 0)
      nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  else if (strcmp(fault, "hang") == 0) {
    signal(SIGTERM, SIG_IGN); /* the kind that does not listen either */
    for (;;)
      pause();
  }
}

/* --- the trial ----------------------------------------------------------------------------- */

/* An srun without the MPI that was asked for starts processes that know nothing of each other: each
 * would be a trial. */
static enum gd_status check_ranks(int ranks, struct gd_error *err) {
  int rank, size;
  bool joined = gd_comm_in_job(&rank, &size);
  if (!joined)
    return gd_fail(err, GD_ENVIRONMENT,
                   "srun started a process that is no rank of an MPI job, instead of one of %d; "
                   "'srun --mpi=list' must list what slurm.json names as \"mpi\" (pmix)",
                   ranks);
  if (size != ranks)
    return gd_fail(
        err, GD_ENVIRONMENT,
        "srun started %d ranks, and not the %d that were asked for; look at \"extra\" in "
        "slurm.json",
        size, ranks);
  return GD_OK;
}

static enum gd_status check_nodes(const struct gd_trial_options *options, struct gd_error *err) {
  int64_t nodes;
  const char *text = gd_env("SLURM_STEP_NUM_NODES");
  if (text && gd_parse_int(text, 1, 1 << 20, &nodes) && nodes != options->nodes)
    return gd_fail(err, GD_ENVIRONMENT,
                   "srun started the ranks on %s node%s, and not on the %d that were asked for; "
                   "look at \"extra\" in slurm.json",
                   text, nodes == 1 ? "" : "s", options->nodes);
  return GD_OK;
}

/* Rank 0 reads the order and sends it to the others, whose nodes may not have the file. */
static enum gd_status read_order(struct gd_cli *cli, struct gd_child_task *task,
                                 struct gd_error *err) {
  enum { MOST_BYTES = 1 << 20 };
  struct gd_strbuf file = {0};
  enum gd_status status =
      cli->rank == 0 ? gd_file_read(cli->arguments[0], MOST_BYTES, &file, err) : GD_OK;
  int64_t length = (int64_t)file.length;
  if (status == GD_OK && cli->comm)
    status = gd_comm_broadcast(cli->comm, &length, sizeof length, 0, err);
  char *text = status == GD_OK ? gd_arena_alloc(&cli->arena, (size_t)length + 1, 1) : NULL;
  if (status == GD_OK && !text)
    status = gd_nomem(err, "before the trial");
  if (status == GD_OK && cli->rank == 0 && file.text)
    memcpy(text, file.text, (size_t)length);
  if (status == GD_OK && cli->comm)
    status = gd_comm_broadcast(cli->comm, text, length, 0, err);
  if (status == GD_OK)
    status = gd_child_parse_order(text, length, task, err);
  gd_strbuf_deinit(&file);
  return status;
}

static enum gd_status run_trial(struct gd_cli *cli, struct gd_error *err) {
  struct gd_child_task *task = gd_arena_alloc(&cli->arena, 1, sizeof *task);
  struct gd_trial *trial = gd_arena_alloc(&cli->arena, 1, sizeof *trial);
  struct gd_child_reported reported = {0};
  if (!task || !trial)
    return gd_nomem(err, "before the trial");
  bool several = cli->options.ranks > 1, by_srun = cli->command == &gd_command_rank;
  if (several && by_srun)
    GD_TRY(check_ranks((int)cli->options.ranks, err));
  if (several)
    GD_TRY(gd_launch_join(cli, err));
  GD_TRY(read_order(cli, task, err));
  struct gd_trial_options *options = &task->order.trial;
  if (several && by_srun)
    GD_TRY(check_nodes(options, err));
  if (several) {
    options->comm = cli->comm;
    if (options->threads == 0)
      options->threads = (int)cli->options.threads;
  }
  if (task->progress && cli->rank == 0) {
    options->progress = gd_child_report;
    options->progress_user = &reported;
  }
  inject_fault(cli, options);
  GD_TRY(gd_trial_measure(&task->model, options, trial, err));
  return cli->rank == 0 ? gd_child_write_result(cli->arguments[1], trial, err) : GD_OK;
}

const struct gd_command gd_command_trial = {
    GD_CHILD_COMMAND,       "ORDER RESULT RANKS TIMEOUT", 4,        4, "one trial of a search",
    "Used by bench alone.", "gpudays bench pythia-14m",   run_trial};

const struct gd_command gd_command_rank = {
    GD_CHILD_RANK,          "ORDER RESULT RANKS TIMEOUT", 4,        4, "one trial of a search",
    "Used by bench alone.", "gpudays bench pythia-14m",   run_trial};

bool gd_cmd_trial_parse(int argc, char **argv, struct gd_cli *cli) {
  bool rank = argc == 6 && strcmp(argv[1], GD_CHILD_RANK) == 0;
  if (argc != 6 || (!rank && strcmp(argv[1], GD_CHILD_COMMAND) != 0))
    return false;
  cli->arguments = gd_arena_alloc(&cli->arena, 2, sizeof *cli->arguments);
  if (!cli->arguments)
    return false;
  cli->command = rank ? &gd_command_rank : &gd_command_trial;
  cli->arguments[0] = argv[2];
  cli->arguments[1] = argv[3];
  cli->n_arguments = 2;
  cli->options.ranks = strtol(argv[4], NULL, 10);
  cli->options.rank_timeout = strtod(argv[5], NULL);
  cli->options.quiet = true;
  return true;
}
