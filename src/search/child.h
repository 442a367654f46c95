/*
 * A trial in a process of its own, so that nothing a trial does can end the search: a crash, a
 * kill, a hang and memory that runs out become a sentence. The program starts itself as
 * `gpudays trial-child ORDER RESULT RANKS TIMEOUT`, in its own process group; with several ranks
 * that process starts mpirun. The order is a file of JSON, the result one that appears by rename;
 * progress and the last words come over stderr. Both files lie in a folder that the caller holds:
 * a result that nobody came to read before this process was killed is there for the next one.
 *
 *   GD_TRY(gd_child_run(&order, &options, &trial, &end, err));
 *   if (end.how == GD_CHILD_BROKEN)
 *     show(trial.reason); // trial.status is GD_TRIAL_FAILED
 */
#ifndef GD_SEARCH_CHILD_H
#define GD_SEARCH_CHILD_H

#include "base/scratch.h"
#include "search/points.h"
#include "trial/measure.h"

#define GD_CHILD_COMMAND "trial-child"
#define GD_CHILD_RANK    "trial-rank" /* the same; a scheduler has started all of its ranks */

/* What the process is told. Its model is loaded anew by name; the recipe is the one given here. */
struct gd_child_order {
  const char *model; /* as gd_model_load takes it */
  struct gd_recipe recipe;
  struct gd_trial_options trial; /* without comm; progress_user is not looked at */
  double rank_timeout_s;         /* 0: the default */
};

struct gd_child_options {
  const struct gd_scratch *scratch; /* where order and result go; NULL: a temporary folder */
  double timeout_s;    /* a trial that takes longer has hung, Ctrl-Z not counted; 0: any time */
  int64_t deadline_ns; /* of gd_clock_ns(): it is ended then; 0: none */
  void (*progress)(void *user, const char *what, double done, double eta_s); /* may be NULL */
  void *progress_user;
};

enum gd_child_how {
  GD_CHILD_DONE,    /* *trial is its answer */
  GD_CHILD_BROKEN,  /* it ended without one: *trial is failed, with the reason */
  GD_CHILD_LATE,    /* the deadline came first; *trial as it was */
  GD_CHILD_STOPPED, /* a signal asked this process to end; *trial as it was */
};
struct gd_child_end {
  enum gd_child_how how;
  enum gd_status status; /* BROKEN: what kind of failure it was */
  int signal;            /* that asked this process to end; 0: none */
  double wall_s;
};

/*
 * Runs one trial and waits for it. SIGINT, SIGTERM and SIGHUP to this process end the trial within
 * a second, ranks and compilers included, as does the death of this process. *trial holds the plan
 * before, and keeps it where the trial breaks. GD_ENVIRONMENT when no process can be started.
 */
enum gd_status gd_child_run(const struct gd_child_order *order,
                            const struct gd_child_options *options, struct gd_trial *trial,
                            struct gd_child_end *end, struct gd_error *err) GD_MUST_USE;

/* The result that a trial has left in its folder; false: there is none that is whole. */
bool gd_child_collect(const struct gd_scratch *scratch, struct gd_trial *trial,
                      struct gd_provenance *provenance);
/* Removes the folders of trials of searches that were killed, in the temporary folder and, where
   there is one, in the folder of a store's trials. Results that nobody read stay for a month. */
void gd_child_sweep(const char *folder);

/* --- for whoever starts trials in another way (slurm.h) ------------------------------------ */

/* progress: somebody reads the stderr of the process. */
enum gd_status gd_child_write_order(const char *path, const struct gd_child_order *order,
                                    bool progress, struct gd_error *err) GD_MUST_USE;
/* What gd_child_write_result wrote; provenance may be NULL. */
enum gd_status gd_child_read_result(const char *path, struct gd_trial *trial,
                                    struct gd_provenance *provenance,
                                    struct gd_error *err) GD_MUST_USE;

/* The last words of a trial, line by line. */
struct gd_child_said {
  char sentence[1024]; /* the first "gpudays: ..." */
  char other[256];     /* the last line of anything else: an assertion, a loader */
};
void gd_child_hear(struct gd_child_said *said, const char *line);
/* "90 s", "1.5 h". */
const char *gd_child_span(char *text, size_t size, double seconds);

/* --- the other side ------------------------------------------------------------------------ */

/* What the order's texts and precision point to. */
struct gd_child_task {
  struct gd_child_order order;
  struct gd_model model; /* with the order's recipe */
  enum gd_precision precision;
  char backend[16];
  bool progress; /* somebody looks at it */
};
/* length: of the text of an order file. */
enum gd_status gd_child_parse_order(const char *text, int64_t length, struct gd_child_task *task,
                                    struct gd_error *err) GD_MUST_USE;
/* In a process that srun has started. GD_ENVIRONMENT: it is no rank of so many, as where srun lacks
   the MPI that was asked for: each process would be a trial. */
enum gd_status gd_child_check_ranks(int ranks, struct gd_error *err) GD_MUST_USE;
struct gd_child_side {
  const char *order, *result; /* files; of rank 0 alone */
  struct gd_comm *comm;       /* NULL: one rank */
  int rank;
  int threads;  /* of a rank, where the order has none */
  bool by_srun; /* and not by mpirun */
};
/* Reads the order, measures, and writes the result. */
enum gd_status gd_child_answer(const struct gd_child_side *side, struct gd_error *err) GD_MUST_USE;
/* Writes the trial, and that it was made here and now, to path: whole or not at all. */
enum gd_status gd_child_write_result(const char *path, const struct gd_trial *trial,
                                     struct gd_error *err) GD_MUST_USE;
/* The progress callback of the child: a line on stderr for the process above, ten a second at most.
 * user is a zeroed one of these. */
struct gd_child_reported {
  int64_t ns;
  char what[32];
};
void gd_child_report(void *user, const char *what, double done, double eta_s);

#endif
