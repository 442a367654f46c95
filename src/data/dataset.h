/*
 * What a run trains on: token files cut into sequences, in an order that has no state. Sample
 * `index` of a run (step x batch + place in the step) is a function of seed and index alone:
 * micro-batch, ranks and method do not change it, no two ranks see one sequence in an epoch, and a
 * run resumes from its step counter.
 *
 * A causal model scores all tokens of a sequence but the first, so its sequences overlap by one
 * token: each token of a file is predicted once an epoch. Masked models have sequences side by
 * side.
 *
 * Files without weights are one collection, permuted anew every epoch. Files with weights are drawn
 * from in those proportions, each with epochs of its own.
 *
 *   struct gd_dataset data;
 *   GD_TRY(gd_dataset_open(&data, &(struct gd_dataset_options){...}, err));
 *   GD_TRY(gd_dataset_read(&data, step * batch + i, ids, labels, err));
 *   gd_dataset_close(&data);
 */
#ifndef GD_DATA_DATASET_H
#define GD_DATA_DATASET_H

#include <stdbool.h>

#include "data/token_file.h"

struct gd_dataset_options {
  const char *const *files; /* "train.bin", or "train.bin:0.7" with its weight: all or none */
  int n_files;
  int64_t seq;        /* tokens a sequence */
  int64_t vocabulary; /* ids are below */
  bool causal;        /* labels are the ids; otherwise masked as BERT masks */
  int32_t mask_token; /* of a masked model */
  int width;          /* of ids in raw files; 0: by content */
  uint64_t seed;
  bool in_order; /* no permutation: for evaluation */
};

enum { GD_DATASET_SLOTS = 4096 }; /* in which weights are kept exactly: to 0.025 % */

struct gd_dataset_part {
  struct gd_token_file file;
  int64_t sequences;
  double weight;
  int32_t slots; /* of GD_DATASET_SLOTS; weighted files only */
};

struct gd_dataset {
  struct gd_dataset_options options; /* without the list of files */
  struct gd_dataset_part *parts;
  int n_parts;
  bool weighted;
  int64_t sequences, tokens;        /* of all files */
  int64_t stride;                   /* tokens from one sequence to the next */
  uint16_t slot[GD_DATASET_SLOTS];  /* weighted: which file sample i mod GD_DATASET_SLOTS is of, */
  uint16_t prior[GD_DATASET_SLOTS]; /* and how many slots before it are of the same file */
};

/* Opens every file and checks its format and length. GD_BAD_INPUT: not one sequence in a file,
   a weight that is no positive number, weights on some files only. */
enum gd_status gd_dataset_open(struct gd_dataset *data, const struct gd_dataset_options *options,
                               struct gd_error *err) GD_MUST_USE;
void gd_dataset_close(struct gd_dataset *data); /* safe on a zeroed one */

/* What tells data sets apart: weights, lengths, and ids from all over each file; not where the
   files lie or how ids are written. Costs the same for 100 GB as for a page. */
enum gd_status gd_dataset_hash(const struct gd_dataset *data, uint64_t *hash,
                               struct gd_error *err) GD_MUST_USE;

/* Where a sample comes from. */
struct gd_sample {
  int part;         /* file */
  int64_t sequence; /* in the file */
  int64_t epoch;    /* of the file, or of all files together */
};
void gd_dataset_locate(const struct gd_dataset *data, int64_t index, struct gd_sample *sample);
/* seq ids, and as many labels (-100: does not count). */
enum gd_status gd_dataset_read(const struct gd_dataset *data, int64_t index, int32_t *ids,
                               int32_t *labels, struct gd_error *err) GD_MUST_USE;
/* Asks the system to have it in memory soon. */
void gd_dataset_prefetch(const struct gd_dataset *data, int64_t index);

#endif
