/*
 * Checkpoints: the state of a run as logical tensors (exec/state.h), written by all ranks, whole or
 * not at all. A run of another method, micro-batch or number of ranks can go on from one.
 *
 *   FOLDER/step-00000500/
 *     config.json             as transformers wants it, with
 *     model.safetensors       the fp32 parameters: a model folder of Hugging Face
 *     optimizer.safetensors   optimizer.m.NAME, optimizer.v.NAME
 *     checksums-0.txt, ...    of what each rank has written; headers are rank 0's
 *     state.json              step, loss scale, ...; a checksum of itself and of those lists
 *
 * It is written under a temporary name, synced and renamed. The step loop stops only while the
 * state is copied to host memory; a thread writes it to disk. Where there is no memory for the copy
 * it is written at once.
 *
 *   GD_TRY(gd_checkpoint_begin(&writer, run, &facts, err));      // all ranks
 *   while (!gd_checkpoint_is_written(&writer)) ... train ...
 *   GD_TRY(gd_checkpoint_end(&writer, err));                     // all ranks: now it counts
 */
#ifndef GD_TRAIN_CHECKPOINT_H
#define GD_TRAIN_CHECKPOINT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/file.h"
#include "exec/state.h"

/* What a checkpoint says besides its tensors. */
struct gd_checkpoint_facts {
  int64_t step;     /* training steps done */
  int64_t first;    /* sample that the next step begins with */
  double loss;      /* of the last step */
  double eval_loss; /* of the last evaluation; 0: none */
  char method[128]; /* that wrote it */
  int ranks;        /* likewise */
  struct gd_state_scalars scalars;
};

struct gd_checkpoint_writer {
  /* set by the caller, borrowed */
  const char *folder;      /* of all checkpoints */
  const char *config_text; /* config.json */
  struct gd_comm *comm;    /* NULL: one rank */
  bool synchronous;        /* no thread: for tests, and where memory is short */
  /* of the one under way */
  bool active, threaded;
  struct gd_checkpoint_facts facts;
  struct gd_run *run;
  struct gd_state_slices slices;
  float *copy; /* of all slices, one after another; NULL: read as they are written */
  char part[GD_FILE_PATH], path[GD_FILE_PATH];
  int64_t *offsets;       /* by kind and parameter: where it begins in its file */
  uint64_t header_sum[2]; /* of what stands before the tensors, by file */
  size_t header_bytes[2];
  gd_tensor_id *parameters;
  uint32_t n_parameters;
  pthread_t thread;
  atomic_bool written;
  enum gd_status status;
  struct gd_error error;
};

/* Starts one, on all ranks: facts->scalars is filled in here. A failure leaves nothing to end. */
enum gd_status gd_checkpoint_begin(struct gd_checkpoint_writer *writer, struct gd_run *run,
                                   const struct gd_checkpoint_facts *facts,
                                   struct gd_error *err) GD_MUST_USE;
/* Whether this rank's part is on the disk, or has failed. */
bool gd_checkpoint_is_written(const struct gd_checkpoint_writer *writer);
/* Waits for it and puts it in its place, on all ranks. GD_ENVIRONMENT (a full disk) on every rank
   where one failed: older checkpoints are as they were. Without one under way: GD_OK. */
enum gd_status gd_checkpoint_end(struct gd_checkpoint_writer *writer,
                                 struct gd_error *err) GD_MUST_USE;
/* Removes all but the newest `keep`, and the one of the step `best` (-1: none). One rank. */
void gd_checkpoint_prune(const char *folder, int keep, int64_t best);

/* The step of the one with the lowest evaluation loss, of several the oldest; -1: none has one. */
int64_t gd_checkpoint_best(const char *folder);

/*
 * The newest whole checkpoint: *found false where there is none. All bytes are checked, by all
 * ranks together. damaged, if not NULL, gets a line for each that was passed over, with the reason.
 */
struct gd_checkpoint {
  char path[GD_FILE_PATH];
  struct gd_checkpoint_facts facts;
};
enum gd_status gd_checkpoint_find(const char *folder, struct gd_comm *comm, bool *found,
                                  struct gd_checkpoint *checkpoint, struct gd_strbuf *damaged,
                                  struct gd_error *err) GD_MUST_USE;
/* Checks one folder; GD_BAD_INPUT with what is wrong. rank and ranks share the reading. */
enum gd_status gd_checkpoint_check(const char *path, int rank, int ranks,
                                   struct gd_checkpoint *checkpoint,
                                   struct gd_error *err) GD_MUST_USE;
/* Restores a run from it. */
enum gd_status gd_checkpoint_load(const struct gd_checkpoint *checkpoint, struct gd_run *run,
                                  const struct gd_family *family, struct gd_error *err) GD_MUST_USE;

#endif
