/*
 * Ranks from the command line's side: the process of a trial of several ranks starts this program
 * again under mpirun; a process that is a rank of a job (started so, or by the user's own mpirun or
 * srun) joins it, and only rank 0 speaks. main() calls all of these but gd_launch_join, in this
 * order.
 */
#ifndef GD_CLI_LAUNCH_H
#define GD_CLI_LAUNCH_H

#include "cli/cli.h"

/* Who may write: sets cli->rank, and bold and progress where a rank cannot ask its terminal. A rank
 * above 0 loses its stdout. */
void gd_launch_begin(struct gd_cli *cli);

/*
 * Starts the ranks of a trial (cmd_trial.c) where this process is not one, and waits for them. A
 * run of training is asked to end in order by a signal, and started again as --retries says.
 * *code becomes their exit code; -1: this process is to do the work. GD_BAD_INPUT when --ranks
 * contradicts the job, GD_ENVIRONMENT without mpirun or when a rank died. A run that goes on takes
 * the number of ranks from its run.json where --ranks is not given.
 */
enum gd_status gd_launch_ranks(struct gd_cli *cli, int argc, char **argv, int *code,
                               struct gd_error *err) GD_MUST_USE;

/* Whether gpudays has started this process, as a rank or as a run that is watched. */
bool gd_launch_is_watched(void);
/* Tells the process that started this one, where there is one, that signals are taken from now on.
 */
void gd_launch_say_met(void);

/* For a command that works on all ranks: opens cli->comm with --rank-timeout, and makes --threads
 * this rank's share of the cores unless it was given. */
enum gd_status gd_launch_join(struct gd_cli *cli, struct gd_error *err) GD_MUST_USE;

/*
 * Before the answer is written: the ranks wait for each other, which may fail in turn; a rank that
 * comes with a failure waits for its turn to report it instead, so that rank 0 speaks for all of
 * them where all have the same to say.
 */
enum gd_status gd_launch_meet(struct gd_cli *cli, enum gd_status status, struct gd_error *err);
/* Leaves the job; a code other than 0 ends all of its ranks. */
void gd_launch_leave(struct gd_cli *cli, int code);

#endif
