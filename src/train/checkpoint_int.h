/*
 * What writing and reading checkpoints share.
 */
#ifndef GD_TRAIN_CHECKPOINT_INT_H
#define GD_TRAIN_CHECKPOINT_INT_H

#include <inttypes.h>

#include "base/hash.h"
#include "base/json.h"
#include "train/checkpoint.h"

#define GD_CHECKPOINT_NAME "step-%08" PRId64
enum { GD_CHECKPOINT_LIST_BYTES = 1 << 28 }; /* the longest list of checksums */

extern const char *const gd_checkpoint_file[2]; /* "model.safetensors", "optimizer.safetensors" */

/* What state.json of a checkpoint says. GD_BAD_INPUT: it is missing or damaged. */
enum gd_status gd_checkpoint_read_facts(const char *path, struct gd_checkpoint_facts *facts,
                                        struct gd_error *err) GD_MUST_USE;
/* The steps of all checkpoints in a folder, newest first; whole or not. Free with gd_mem_free. */
int64_t *gd_checkpoint_steps(const char *folder, int *count);
/* The checksum of state.json: of all fields but "check". False without memory. */
bool gd_checkpoint_sum(json_t *state, char check[GD_HASH_TEXT]);

#endif
