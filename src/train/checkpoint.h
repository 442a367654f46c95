/*
 * Checkpoints: the state of a run as logical tensors (exec/state.h), written by all ranks, whole or
 * not at all. A run of another method, micro-batch or number of ranks can go on from one.
 *
 *   FOLDER/step-00000500/
 *     config.json             as transformers wants it, with
 *     model.safetensors       the fp32 parameters: a model folder of Hugging Face
 *     optimizer.safetensors   optimizer.m.NAME, optimizer.v.NAME
 *     checksums-0.txt, ...    of what each rank has written; headers are rank 0's
 *     state.json              step, loss scale, whose it is; a checksum of itself and those lists
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
#include "train/binding.h"

/* What one takes on the disk, but for some text: parameters in fp32, and two moments of each. */
int64_t gd_checkpoint_bytes(int64_t parameters);

/* What a checkpoint says besides its tensors. */
struct gd_checkpoint_facts {
  int64_t step;     /* training steps done */
  int64_t first;    /* sample that the next step begins with */
  double loss;      /* of the last step */
  double eval_loss; /* of the last evaluation; 0: none */
  char method[128]; /* that wrote it */
  int ranks;        /* likewise */
  struct gd_state_scalars scalars;
  struct gd_binding binding; /* whose it is */
  /* What a run that is stopped and goes on must know of spikes, to do what it would have done. */
  bool scheduled;      /* it would be there if nobody had stopped the run: one to go back to */
  int bad_in_row;      /* updates that were skipped last */
  int roll_backs;      /* since the last scheduled checkpoint */
  int64_t judged_from; /* spikes are judged by the steps behind this one */
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
  float *copy;   /* of all slices, one after another; NULL: read as they are written */
  float *pinned; /* memory for it that stays from one checkpoint to the next; NULL: none */
  int64_t pinned_bytes;
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

/*
 * Takes memory for the copy once, where the device copies faster to memory of its own kind, and at
 * most half of what the machine has left. Optional; nothing else changes without it.
 */
void gd_checkpoint_reserve(struct gd_checkpoint_writer *writer, struct gd_run *run);
/* Gives it back, while the run is open. */
void gd_checkpoint_release(struct gd_checkpoint_writer *writer);

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
/* Which ones a run looks for. */
struct gd_checkpoint_query {
  const char *folder;               /* of all checkpoints */
  const struct gd_binding *binding; /* those of this run, and those that do not say; NULL: any */
  bool scheduled;                   /* those that lie on the schedule alone */
};

/*
 * Removes, of this run's checkpoints, all but the newest `keep`, the newest one to go back to, and
 * the one of the step `best` (-1: none); and all behind step `behind` but that of step `now`: they
 * are damaged, or of steps that are done again. Those of other runs stay. One rank.
 */
struct gd_checkpoint_pruning {
  int keep;
  int64_t best, now, behind;
};
void gd_checkpoint_prune(const struct gd_checkpoint_query *query,
                         const struct gd_checkpoint_pruning *pruning);

/* The step of the one with the lowest evaluation loss, of several the oldest; -1: none has one. */
int64_t gd_checkpoint_best(const struct gd_checkpoint_query *query);

/*
 * The newest whole checkpoint: *found false where there is none. All bytes are checked, by all
 * ranks together. What was passed over, if not NULL, gets a line for each, with the reason.
 */
struct gd_checkpoint {
  char path[GD_FILE_PATH];
  struct gd_checkpoint_facts facts;
};
struct gd_checkpoint_passed {
  struct gd_strbuf lines; /* free with gd_strbuf_deinit */
  int count;              /* of them all */
  int foreign;            /* of them, whole or not, are of another run */
};
enum gd_status gd_checkpoint_find(const struct gd_checkpoint_query *query, struct gd_comm *comm,
                                  bool *found, struct gd_checkpoint *checkpoint,
                                  struct gd_checkpoint_passed *passed,
                                  struct gd_error *err) GD_MUST_USE;
/* Restores a run from it. */
enum gd_status gd_checkpoint_load(const struct gd_checkpoint *checkpoint, struct gd_run *run,
                                  const struct gd_family *family, struct gd_error *err) GD_MUST_USE;

#endif
