/*
 * `gpudays train --slurm`: submits the chain of jobs of a run (search/slurm_run.h), or shows it.
 */
#ifndef GD_CLI_TRAIN_JOBS_H
#define GD_CLI_TRAIN_JOBS_H

#include "cli/cli.h"
#include "train/run_folder.h"

/* What the jobs compute with: sets options.backend from the command line or slurm.json. */
struct gd_slurm_config;
enum gd_status gd_train_jobs_prepare(struct gd_cli *cli, struct gd_slurm_config *config,
                                     struct gd_error *err) GD_MUST_USE;
/* For a folder that has its run.json. */
enum gd_status gd_train_jobs_submit(struct gd_cli *cli, const struct gd_slurm_config *config,
                                    const char *folder, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_train_jobs_show(struct gd_cli *cli, const char *folder,
                                  const struct gd_run_settings *settings,
                                  struct gd_error *err) GD_MUST_USE;

#endif
