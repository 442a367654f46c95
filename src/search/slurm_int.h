/*
 * SLURM's commands, as slurm.c (jobs of trials) and slurm_run.c (jobs of a run) call them.
 */
#ifndef GD_SEARCH_SLURM_INT_H
#define GD_SEARCH_SLURM_INT_H

#include "base/file.h"
#include "base/process.h"

enum { GD_SLURM_ID = 24 }; /* bytes of a job's id as text */

/* Runs a command of SLURM. GD_ENVIRONMENT, with the remedy, where it is not installed. */
enum gd_status gd_slurm_command(const char *const *arguments, struct gd_process_output *output,
                                struct gd_error *err) GD_MUST_USE;
/* That sbatch, squeue and scancel are there. */
enum gd_status gd_slurm_check_commands(struct gd_error *err) GD_MUST_USE;
/* What a command complains of, on one line and without its own name before each. */
void gd_slurm_complaint(const char *errors, char *text, size_t size);
/* The sentence for a job that sbatch did not take; always GD_ENVIRONMENT. */
enum gd_status gd_slurm_refusal(const char *errors, struct gd_error *err);
/* A job of ours of that name that has not ended: its id, or empty. */
enum gd_status gd_slurm_find_by_name(const char *name, char id[GD_SLURM_ID],
                                     struct gd_error *err) GD_MUST_USE;
/* The id that sbatch --parsable has printed; false: there is none. */
bool gd_slurm_read_id(const struct gd_process_output *output, char id[GD_SLURM_ID]);
/* "--output=FOLDER/log", in which % would stand for things. */
void gd_slurm_output_option(const char *folder, const char *log, char option[2 * GD_FILE_PATH]);

#endif
