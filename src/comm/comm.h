/*
 * The ranks of a run and what they exchange: sums, shards and scalars over MPI, for data parallel
 * training on CPUs. Everything is blocking and in host memory; the caller gives it a thread of its
 * own where communication should overlap with computation.
 *
 *   struct gd_comm *comm = NULL;
 *   GD_TRY(gd_comm_open(&comm, NULL, err));     // rank 0 of 1 outside a job: MPI is never touched
 *   GD_TRY(gd_comm_reduce_scatter(comm, gradients, shard, scratch, scratch_bytes, err));
 *   GD_TRY(gd_comm_all_gather(comm, parameters, shard * 4, err));
 *   gd_comm_close(comm);
 *
 * Contract: every rank makes the same calls in the same order with the same sizes, from one thread
 * at a time (any thread). Sums are taken in rank order 0, 1, ..., so results are the same bits
 * whatever the timing. Ranks that break this contract get an error that names both calls, never
 * each other's data. After a failure (GD_ENVIRONMENT) the communicator only takes gd_comm_abort and
 * gd_comm_close. Waiting sleeps between looks: it never holds a core that computes.
 */
#ifndef GD_COMM_COMM_H
#define GD_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct gd_comm;

enum { GD_COMM_MIN_SCRATCH_BYTES = 65536 };

/*
 * Whether this process is a rank of a job, from the environment alone: what mpirun (OpenMPI), or
 * srun with --mpi=pmix or --mpi=pmi2, sets. A batch script's SLURM_PROCID alone is no job, and
 * neither is one task. *size is 0 where only MPI knows it. Otherwise false, rank 0 of 1.
 */
bool gd_comm_in_job(int *rank, int *size);

/* The version of OpenMPI that several ranks would use, "4.1.4"; loads it, but joins nothing. False:
   there is none, or it does not say. */
bool gd_comm_version(char *text, size_t size);

/* Ranks have so long to start, however short the limit of an answer: loading the library and
   MPI_Init take seconds on a busy machine. */
#define GD_COMM_LEAST_START_S 10

/*
 * What to do about a job whose ranks do not all come. MPI_Init waits for them and cannot be called
 * off, so `stalled` is called from another thread with the reason, and best ends the process; when
 * it returns, the wait goes on.
 */
struct gd_comm_start {
  double timeout_s; /* 0: the default; as gd_comm_set_timeout for what comes after */
  void (*stalled)(void *user, const struct gd_error *err); /* NULL: wait for ever */
  void *user;
};

/* Joins the job; free with gd_comm_close. GD_ENVIRONMENT without OpenMPI or when it fails. start
 * may be NULL. */
enum gd_status gd_comm_open(struct gd_comm **comm, const struct gd_comm_start *start,
                            struct gd_error *err) GD_MUST_USE;
/*
 * Leaves the job, together with all other ranks when nothing has failed (they wait for each other:
 * call gd_comm_barrier before to learn of one that does not come). NULL is fine.
 */
void gd_comm_close(struct gd_comm *comm);
/* Ends every rank of the job with that exit code, this one included. Does nothing on one rank. */
void gd_comm_abort(struct gd_comm *comm, int code);

int gd_comm_rank(const struct gd_comm *comm);
int gd_comm_size(const struct gd_comm *comm);
/* Its number among the ranks of its machine. */
int gd_comm_local_rank(const struct gd_comm *comm);
/* Ranks of the machine that has most of them: the same on all, as plans must be. */
int gd_comm_local_size(const struct gd_comm *comm);
/* How many cores this rank may call its own: those it may run on, over the ranks of its machine. */
int gd_comm_cores(const struct gd_comm *comm);
/* How many this rank may run on, alone or not. */
int gd_comm_allowed_cores(const struct gd_comm *comm);
/* The first rank on the machine of that rank: equal for two that share one. */
int gd_comm_host(const struct gd_comm *comm, int rank);
/* Cores of this machine that one of its ranks at least may run on. */
int gd_comm_host_cores(const struct gd_comm *comm);
bool gd_comm_has_failed(const struct gd_comm *comm);

/* A collective that gets nothing from another rank for this long fails; 300 until set. */
void gd_comm_set_timeout(struct gd_comm *comm, double seconds);
double gd_comm_timeout_s(const struct gd_comm *comm);

/*
 * Around a call of a library that waits for the other ranks and cannot be called off, such as
 * ncclCommInitRank: when it takes longer than the timeout, `stalled` of gd_comm_start is told so,
 * from another thread. what names the call. Without a job, or without `stalled`, *guard is NULL and
 * nobody watches; gd_comm_guard_end(NULL) is fine.
 */
struct gd_comm_guard;
enum gd_status gd_comm_guard_begin(struct gd_comm *comm, const char *what,
                                   struct gd_comm_guard **guard, struct gd_error *err) GD_MUST_USE;
void gd_comm_guard_end(struct gd_comm_guard *guard);

/*
 * data holds size x shard_elements. Afterwards the own slice, data[rank * shard_elements ...], is
 * the sum over all ranks; what the other slices hold is not specified. Any scratch from
 * GD_COMM_MIN_SCRATCH_BYTES works; 1 MiB x (size - 1) is best.
 */
enum gd_status gd_comm_reduce_scatter(struct gd_comm *comm, float *data, int64_t shard_elements,
                                      void *scratch, int64_t scratch_bytes,
                                      struct gd_error *err) GD_MUST_USE;
/* data holds size x shard_bytes: the own slice goes in, all slices come out. */
enum gd_status gd_comm_all_gather(struct gd_comm *comm, void *data, int64_t shard_bytes,
                                  struct gd_error *err) GD_MUST_USE;
/* All of data (size x shard_elements) becomes the sum over all ranks. */
enum gd_status gd_comm_all_reduce(struct gd_comm *comm, float *data, int64_t shard_elements,
                                  void *scratch, int64_t scratch_bytes,
                                  struct gd_error *err) GD_MUST_USE;
enum gd_status gd_comm_broadcast(struct gd_comm *comm, void *data, int64_t bytes, int root,
                                 struct gd_error *err) GD_MUST_USE;
/*
 * A rank that fails alone would go on to something else while the others wait for it here. So all
 * say how they fare: GD_OK where all are; else every rank that was well fails for the reason of the
 * first that was not. Does nothing where the communicator has failed.
 */
enum gd_status gd_comm_agree(struct gd_comm *comm, enum gd_status status,
                             struct gd_error *err) GD_MUST_USE;
enum gd_status gd_comm_barrier(struct gd_comm *comm, struct gd_error *err) GD_MUST_USE;
/* Sums of a few scalars, in rank order as well. */
enum gd_status gd_comm_sum_doubles(struct gd_comm *comm, double *values, int count,
                                   struct gd_error *err) GD_MUST_USE;

#endif
