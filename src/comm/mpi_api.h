/*
 * The part of OpenMPI that gpudays uses, loaded at run time: one binary serves machines with and
 * without it, and the build needs no mpi.h. Only src/comm includes this.
 *
 * OpenMPI's handles are pointers, and its predefined ones are the addresses of exported objects
 * (mpi.h, OMPI_PREDEFINED_GLOBAL); versions 4 and 5 share this ABI (libmpi.so.40). MPICH and its
 * relatives have integers for handles instead, so they are refused by name.
 */
#ifndef GD_COMM_MPI_API_H
#define GD_COMM_MPI_API_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* MPI_Status, as mpi.h of both versions has it (struct ompi_status_public_t). */
struct gd_mpi_status {
  int source, tag, error, cancelled;
  size_t bytes;
};

/* Name, parameters (a handle is a void *, a request an array element of them); each returns an int,
 * GD_MPI_SUCCESS when it worked. */
#define GD_MPI_FUNCTIONS(X)                                                                        \
  X(Init_thread, (int *argc, char ***argv, int required, int *provided))                           \
  X(Initialized, (int *flag))                                                                      \
  X(Finalized, (int *flag))                                                                        \
  X(Finalize, (void))                                                                              \
  X(Abort, (void *comm, int code))                                                                 \
  X(Comm_rank, (void *comm, int *rank))                                                            \
  X(Comm_size, (void *comm, int *size))                                                            \
  X(Comm_set_errhandler, (void *comm, void *handler))                                              \
  X(Error_string, (int code, char *text, int *length))                                             \
  X(Isend, (const void *data, int count, void *type, int to, int tag, void *comm, void **request)) \
  X(Irecv, (void *data, int count, void *type, int from, int tag, void *comm, void **request))     \
  X(Iprobe, (int from, int tag, void *comm, int *flag, struct gd_mpi_status *status))              \
  X(Cancel, (void **request))                                                                      \
  X(Test, (void **request, int *flag, struct gd_mpi_status *status))                               \
  X(Testall, (int count, void **requests, int *flag, struct gd_mpi_status *statuses))

/* Exported objects whose addresses are handles: field, symbol. */
#define GD_MPI_OBJECTS(X)       \
  X(world, ompi_mpi_comm_world) \
  X(byte, ompi_mpi_byte)        \
  X(errors, ompi_mpi_errors_return)

enum {
  GD_MPI_SUCCESS = 0,
  GD_MPI_ERR_TRUNCATE = 15,
  GD_MPI_ERR_PENDING = 18,
  GD_MPI_THREAD_SERIALIZED = 2,  /* MPI_THREAD_SINGLE is 0 */
  GD_MPI_MAX_ERROR_STRING = 256, /* OPAL_MAX_ERROR_STRING */
};
#define GD_MPI_IGNORE ((void *)0) /* MPI_STATUS_IGNORE, MPI_STATUSES_IGNORE */

struct gd_mpi {
/* A declarator cannot be put in parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define GD_MPI_FIELD(name, parameters) int(*name) parameters;
  GD_MPI_FUNCTIONS(GD_MPI_FIELD)
#undef GD_MPI_FIELD
#define GD_MPI_FIELD(name, symbol) void *name;
  GD_MPI_OBJECTS(GD_MPI_FIELD)
#undef GD_MPI_FIELD
  /* NOLINTEND(bugprone-macro-parentheses) */
};

/*
 * Looks for libmpi: $GPUDAYS_LIBMPI, $OPAL_PREFIX/lib, the loader's path, the folders of the usual
 * distributions. GD_ENVIRONMENT when there is none or it is not OpenMPI. What was loaded stays
 * until the process ends: OpenMPI does not survive being unloaded.
 */
enum gd_status gd_mpi_load(struct gd_mpi *mpi, struct gd_error *err) GD_MUST_USE;
/* The version of the one that would be loaded, "4.1.4"; false: there is none, or it does not say.
 */
bool gd_mpi_version(char *text, size_t size);

#endif
