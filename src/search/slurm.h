/*
 * Trials as jobs of SLURM: another way to run what child.h runs, for all pending trials at once. A
 * job gets the order of a trial as a file in a folder that its nodes share with this machine, and
 * leaves the result there by rename; sbatch, squeue and scancel are all that is asked of SLURM
 * (sacct needs a database that many clusters do not have). Only the submitter opens the store.
 *
 * The folder of a trial is named by its key and holds order.json, job.sh, job (the job's id), log,
 * code and result.json. It outlives a submitter that is killed, so that the next one finds the job
 * instead of submitting it again: by its id, or by its name where even that was not yet written.
 *
 *   GD_TRY(gd_slurm_open(&options, &slurm, err));
 *   for each trial: GD_TRY(gd_slurm_start(slurm, key.hash, &order, i, err)); // submits nothing yet
 *   while (...) {
 *     GD_TRY(gd_slurm_poll(slurm, &job, err));
 *     if (job) {
 *       status = gd_slurm_collect(slurm, job, &trial, &provenance);
 *       ... store it ...
 *       gd_slurm_forget(slurm, job);
 *     }
 *   }
 *   gd_slurm_close(slurm);
 */
#ifndef GD_SEARCH_SLURM_H
#define GD_SEARCH_SLURM_H

#include "search/child.h"
#include "search/slurm_config.h"

struct gd_slurm;
struct gd_slurm_job;

struct gd_slurm_options {
  const struct gd_slurm_config *config; /* borrowed */
  const char *folder;                   /* on a file system that the nodes share; it is made */
  int ranks, nodes;                     /* of each trial; nodes divide ranks */
  bool gpus;                            /* a rank has one */
  double timeout_s;                     /* a trial that runs longer has hung */
};

/*
 * Whether the trial with that tag has been answered meanwhile, by another submitter. Asked when its
 * folder is ours: of several submitters one submits a trial, and the others wait for it.
 */
typedef enum gd_status (*gd_slurm_known)(void *user, int tag, bool *known, struct gd_error *err);

/*
 * From here to gd_slurm_close, SIGINT, SIGTERM and SIGHUP are taken by gd_slurm_poll.
 * GD_ENVIRONMENT where SLURM's commands are missing, or the folder cannot be made.
 */
enum gd_status gd_slurm_open(const struct gd_slurm_options *options, struct gd_slurm **slurm,
                             struct gd_error *err) GD_MUST_USE;
void gd_slurm_close(struct gd_slurm *slurm); /* cancels nothing; NULL is fine */

/* Puts a trial on the list. What the order points to must stay; tag is the caller's. key names its
   folder: that of a job of another build, where there is one, is adopted with the job. */
enum gd_status gd_slurm_start(struct gd_slurm *slurm, const char *key,
                              const struct gd_child_order *order, int tag,
                              struct gd_error *err) GD_MUST_USE;

/* Before the first poll; without it nobody else is expected to answer. */
void gd_slurm_ask(struct gd_slurm *slurm, gd_slurm_known known, void *user);

/*
 * One thing: submits a job, or asks after those there are, or waits for a moment. *ended is a job
 * that has an answer or never will, each one once; NULL: none. A job that SLURM refuses is an error
 * where no other has just ended or is left to wait for, and is tried again otherwise (limits on how
 * many one may have). Jobs stay as they are when this fails.
 */
enum gd_status gd_slurm_poll(struct gd_slurm *slurm, struct gd_slurm_job **ended,
                             struct gd_error *err) GD_MUST_USE;
/* Where the jobs of a store's searches are unless something else is said: next to the database. */
void gd_slurm_folder_of_store(const char *store_path, char *folder, size_t size);
/* Where the folders of its jobs are. */
const char *gd_slurm_folder(const struct gd_slurm *slurm);
/* Whether SLURM has a job of ours for the trial of that key, waiting or running. */
enum gd_status gd_slurm_is_queued(const char *key, bool *queued, struct gd_error *err) GD_MUST_USE;
/* The signal that asked this process to end; 0: none. */
int gd_slurm_stop_signal(const struct gd_slurm *slurm);

int gd_slurm_tag(const struct gd_slurm_job *job);
/* An ended job that was never submitted, since the trial is known: there is nothing to collect. */
bool gd_slurm_is_known(const struct gd_slurm_job *job);
/*
 * The answer of an ended job in *trial, which holds the plan before, and where it comes from. Any
 * other status: it broke; *trial is failed with the reason, *provenance as it was.
 */
enum gd_status gd_slurm_collect(struct gd_slurm *slurm, const struct gd_slurm_job *job,
                                struct gd_trial *trial, struct gd_provenance *provenance);
/* Removes its files: the answer is kept elsewhere. */
void gd_slurm_forget(struct gd_slurm *slurm, struct gd_slurm_job *job);

struct gd_slurm_counts {
  int pending; /* in the queue, or to be submitted */
  int running;
  int ended;
  const char *why; /* what SLURM says a pending one waits for; empty: nothing */
};
void gd_slurm_count(const struct gd_slurm *slurm, struct gd_slurm_counts *counts);

/* Cancels the jobs that have not ended; how many. -1: scancel failed, and they may go on. */
int gd_slurm_cancel(struct gd_slurm *slurm);

#endif
