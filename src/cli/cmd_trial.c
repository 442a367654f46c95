/*
 * `gpudays trial-child ORDER RESULT RANKS TIMEOUT`: one trial in a process (or, under mpirun, the
 * processes) of its own; `trial-rank` is the same in a job whose ranks are started by srun. Only
 * the search starts either; see search/child.h and search/slurm.h.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/launch.h"
#include "search/child.h"

static enum gd_status run_trial(struct gd_cli *cli, struct gd_error *err) {
  bool several = cli->options.ranks > 1, by_srun = cli->command == &gd_command_rank;
  if (several && by_srun)
    GD_TRY(gd_child_check_ranks((int)cli->options.ranks, err));
  if (several)
    GD_TRY(gd_launch_join(cli, err));
  return gd_child_answer(&(struct gd_child_side){.order = cli->arguments[0],
                                                 .result = cli->arguments[1],
                                                 .comm = several ? cli->comm : NULL,
                                                 .rank = cli->rank,
                                                 .threads = (int)cli->options.threads,
                                                 .by_srun = by_srun},
                         err);
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
