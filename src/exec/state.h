/*
 * The state of training as logical tensors: every parameter and its two Adam moments under the
 * parameter's Hugging Face name, whatever leaves a method keeps them in (flat, in shards, on the
 * host). Checkpoints are made of these, so that a run goes on with another method or other ranks.
 */
#ifndef GD_EXEC_STATE_H
#define GD_EXEC_STATE_H

#include "exec/run.h"

enum gd_state_kind { GD_STATE_PARAM, GD_STATE_M, GD_STATE_V, GD_STATE_KINDS };
/* Before a parameter's name: "", "optimizer.m.", "optimizer.v.". */
const char *gd_state_prefix(enum gd_state_kind kind);

/* A stretch of a logical tensor, and where this rank has it. */
struct gd_state_slice {
  gd_tensor_id parameter; /* whose name and dims the tensor has */
  enum gd_state_kind kind;
  int64_t first, count; /* elements of the tensor */
  gd_tensor_id leaf;    /* where they are, */
  int64_t leaf_first;   /* from this element on */
};

struct gd_state_slices {
  struct gd_state_slice *all;
  uint32_t count;
};

/*
 * What this rank holds. own: so that over all ranks each element is listed once; where all ranks
 * have a tensor, each lists a part. Free with gd_state_slices_free.
 */
enum gd_status gd_state_list(const struct gd_graph *graph, bool own, struct gd_state_slices *slices,
                             struct gd_error *err) GD_MUST_USE;
void gd_state_slices_free(struct gd_state_slices *slices);
/* The parameters of a graph sorted by name: the same for every method. *ids is the caller's. */
enum gd_status gd_state_parameters(const struct gd_graph *graph, gd_tensor_id **ids,
                                   uint32_t *count, struct gd_error *err) GD_MUST_USE;

/* count elements of a slice, from its element first on, as fp32. */
enum gd_status gd_state_read(struct gd_run *run, const struct gd_state_slice *slice, int64_t first,
                             int64_t count, float *out, struct gd_error *err) GD_MUST_USE;

/* What a run needs besides its tensors. */
struct gd_state_scalars {
  float step;       /* updates so far */
  float loss_scale; /* 1 where nothing is scaled */
  float good_steps; /* since the scale changed */
};
enum gd_status gd_state_read_scalars(struct gd_run *run, struct gd_state_scalars *scalars,
                                     struct gd_error *err) GD_MUST_USE;

/*
 * Everything as a checkpoint has it. parameters and moments may be one file. Gradients are cleared
 * and 16-bit copies made. A tensor that is missing or misshapen: GD_BAD_INPUT.
 */
enum gd_status gd_state_restore(struct gd_run *run, const struct gd_family *family,
                                const struct gd_safetensors *parameters,
                                const struct gd_safetensors *moments,
                                const struct gd_state_scalars *scalars,
                                struct gd_error *err) GD_MUST_USE;
/* Gradients to zero: what a step did is forgotten, and no update follows. */
enum gd_status gd_state_clear_gradients(struct gd_run *run, struct gd_error *err) GD_MUST_USE;

#endif
