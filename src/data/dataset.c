/*
 * Data sets of token files; see dataset.h.
 */
#include "data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/permute.h"

/* BERT (arXiv:1810.04805, section 3.1): of 15 % of the tokens, 80 % become the mask, 10 % a random
   token, 10 % stay. */
enum { MASKED_PERCENT = 15, AS_MASK_PERCENT = 80, AS_RANDOM_PERCENT = 10 };
enum { FILES_MOST = 60000 }; /* their numbers fit into a slot */
enum { CHECKED_IDS = 1 << 24, IDS_AT_ONCE = 1 << 16 };
enum { HASHED_PLACES = 64, HASHED_IDS = 256 };

/* "path:0.7": a weight behind the last colon, unless a file of the whole name is there. */
static enum gd_status split_weight(const char *argument, char *path, size_t size, double *weight,
                                   struct gd_error *err) {
  const char *colon = strrchr(argument, ':');
  size_t length = strlen(argument);
  *weight = 0;
  if (colon && gd_file_is_missing(argument)) {
    char *end;
    *weight = strtod(colon + 1, &end);
    if (end == colon + 1 || *end || !(*weight > 0) || !isfinite(*weight))
      return gd_fail(err, GD_BAD_INPUT,
                     "\"%s\" is no file, and its weight \"%s\" is no positive number", argument,
                     colon + 1);
    length = (size_t)(colon - argument);
  }
  if (length >= size)
    return gd_fail(err, GD_BAD_INPUT, "the path %.64s... is too long", argument);
  memcpy(path, argument, length);
  path[length] = '\0';
  return GD_OK;
}

static enum gd_status open_part(struct gd_dataset *data, const char *argument,
                                struct gd_dataset_part *part, struct gd_error *err) {
  char path[GD_FILE_PATH];
  const struct gd_dataset_options *o = &data->options;
  GD_TRY(split_weight(argument, path, sizeof path, &part->weight, err));
  GD_TRY(gd_token_file_open(&part->file, path, o->width, err));
  part->sequences = part->file.count < o->seq ? 0 : (part->file.count - o->seq) / data->stride + 1;
  if (part->sequences == 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s has %" PRId64 " tokens (%s, %d bytes an id), fewer than one sequence of "
                   "%" PRId64 "; --seq takes shorter ones",
                   path, part->file.count, gd_token_format_name(part->file.format),
                   part->file.width, o->seq);
  data->sequences += part->sequences;
  data->tokens += part->file.count;
  return GD_OK;
}

/*
 * The slots of a weighted collection: one by one to the file that is furthest behind its share, so
 * that any stretch of samples has the proportions of the whole.
 */
static enum gd_status deal_slots(struct gd_dataset *data, struct gd_error *err) {
  double sum = 0;
  for (int i = 0; i < data->n_parts; i++)
    sum += data->parts[i].weight;
  for (int slot = 0; slot < GD_DATASET_SLOTS; slot++) {
    int behind = 0;
    double most = -HUGE_VAL;
    for (int i = 0; i < data->n_parts; i++) {
      const struct gd_dataset_part *part = &data->parts[i];
      double lag = part->weight / sum * (slot + 1) - part->slots;
      if (lag > most) {
        most = lag;
        behind = i;
      }
    }
    data->slot[slot] = (uint16_t)behind;
    data->prior[slot] = (uint16_t)data->parts[behind].slots++;
  }
  for (int i = 0; i < data->n_parts; i++)
    if (data->parts[i].slots == 0)
      return gd_fail(err, GD_BAD_INPUT,
                     "the weight of %s is less than 1/%d of all: it would never be read",
                     data->parts[i].file.path, GD_DATASET_SLOTS);
  return GD_OK;
}

/* Looks for ids that the model does not have: in all of a file, or in the first ones of one that is
   too long to read before a run begins. Those behind are looked at as they are read. */
static enum gd_status check_ids(const struct gd_dataset *data, const struct gd_token_file *file,
                                struct gd_error *err) {
  int64_t most = file->count < CHECKED_IDS ? file->count : CHECKED_IDS;
  int32_t *ids = gd_mem_alloc(IDS_AT_ONCE, sizeof *ids);
  enum gd_status status = ids ? GD_OK : gd_nomem(err, "before reading token files");
  for (int64_t first = 0; first < most && status == GD_OK; first += IDS_AT_ONCE)
    status =
        gd_token_file_read(file, first, most - first < IDS_AT_ONCE ? most - first : IDS_AT_ONCE,
                           data->options.vocabulary, ids, err);
  gd_mem_free(ids);
  return status;
}

static enum gd_status open_parts(struct gd_dataset *data, const struct gd_dataset_options *options,
                                 struct gd_error *err) {
  int weighted = 0;
  data->parts = gd_mem_alloc((size_t)options->n_files, sizeof *data->parts);
  if (!data->parts)
    return gd_nomem(err, "before opening token files");
  memset(data->parts, 0, (size_t)options->n_files * sizeof *data->parts);
  data->n_parts = options->n_files;
  for (int i = 0; i < options->n_files; i++) {
    GD_TRY(open_part(data, options->files[i], &data->parts[i], err));
    GD_TRY(check_ids(data, &data->parts[i].file, err));
    weighted += data->parts[i].weight > 0;
  }
  if (weighted && weighted < data->n_parts)
    return gd_fail(err, GD_BAD_INPUT,
                   "%d of %d token files have a weight; give one to all of them, or to none",
                   weighted, data->n_parts);
  data->weighted = weighted > 0 && data->n_parts > 1;
  return data->weighted ? deal_slots(data, err) : GD_OK;
}

enum gd_status gd_dataset_open(struct gd_dataset *data, const struct gd_dataset_options *options,
                               struct gd_error *err) {
  *data = (struct gd_dataset){.options = *options, .stride = options->seq - options->causal};
  data->options.files = NULL;
  if (options->n_files < 1 || options->n_files > FILES_MOST || data->stride < 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "%d token files in sequences of %" PRId64 " cannot be trained on",
                   options->n_files, options->seq);
  if (!options->causal && (options->mask_token < 0 || options->mask_token >= options->vocabulary))
    return gd_fail(err, GD_BAD_INPUT,
                   "the mask is token %" PRId32 ", and the model's vocabulary has %" PRId64
                   "; --mask-token says which one it is",
                   options->mask_token, options->vocabulary);
  enum gd_status status = open_parts(data, options, err);
  if (status != GD_OK)
    gd_dataset_close(data);
  return status;
}

void gd_dataset_close(struct gd_dataset *data) {
  for (int i = 0; i < data->n_parts; i++)
    gd_token_file_close(&data->parts[i].file);
  gd_mem_free(data->parts);
  *data = (struct gd_dataset){0};
}

/* --- order --------------------------------------------------------------------------------- */

static uint64_t order_of(const struct gd_dataset *data, int part, int64_t epoch, int64_t count,
                         int64_t at) {
  uint32_t key[4];
  if (data->options.in_order)
    return (uint64_t)at;
  gd_rng_philox(data->options.seed, gd_hash_string("order") + (uint64_t)part, (uint64_t)epoch, key);
  return gd_permute((uint64_t)key[0] << 32 | key[1], (uint64_t)count, (uint64_t)at);
}

void gd_dataset_locate(const struct gd_dataset *data, int64_t index, struct gd_sample *sample) {
  if (data->weighted) {
    int64_t round = index / GD_DATASET_SLOTS, slot = index % GD_DATASET_SLOTS;
    int part = data->slot[slot];
    int64_t count = data->parts[part].sequences;
    int64_t at = round * data->parts[part].slots + data->prior[slot]; /* the file's own samples */
    *sample = (struct gd_sample){.part = part, .epoch = at / count};
    sample->sequence = (int64_t)order_of(data, part, sample->epoch, count, at % count);
    return;
  }
  *sample = (struct gd_sample){.epoch = index / data->sequences};
  sample->sequence =
      (int64_t)order_of(data, 0, sample->epoch, data->sequences, index % data->sequences);
  while (sample->sequence >= data->parts[sample->part].sequences)
    sample->sequence -= data->parts[sample->part++].sequences;
}

void gd_dataset_prefetch(const struct gd_dataset *data, int64_t index) {
  struct gd_sample sample;
  gd_dataset_locate(data, index, &sample);
  gd_token_file_prefetch(&data->parts[sample.part].file, sample.sequence * data->stride,
                         data->options.seq);
}

enum gd_status gd_dataset_hash(const struct gd_dataset *data, uint64_t *hash,
                               struct gd_error *err) {
  uint64_t sum = 0;
  int32_t ids[HASHED_IDS];
  for (int i = 0; i < data->n_parts; i++) {
    const struct gd_dataset_part *part = &data->parts[i];
    int64_t count = part->file.count < HASHED_IDS ? part->file.count : HASHED_IDS;
    sum = gd_hash_bytes(sum, &part->file.count, sizeof part->file.count);
    sum = gd_hash_bytes(sum, &part->weight, sizeof part->weight);
    for (int64_t place = 0; place < HASHED_PLACES; place++) {
      int64_t first = (part->file.count - count) / (HASHED_PLACES - 1) * place;
      if (place == HASHED_PLACES - 1)
        first = part->file.count - count;
      GD_TRY(gd_token_file_read(&part->file, first, count, data->options.vocabulary, ids, err));
      sum = gd_hash_bytes(sum, ids, (size_t)count * sizeof *ids);
    }
  }
  *hash = sum;
  return GD_OK;
}

/* Masks anew in every epoch: by file, epoch and token, whatever the order. */
static void mask(const struct gd_dataset *data, const struct gd_sample *sample, int32_t *ids,
                 int32_t *labels) {
  const struct gd_dataset_options *o = &data->options;
  uint64_t stream =
      gd_hash_string("mask") + ((uint64_t)sample->epoch << 16) + (uint64_t)sample->part;
  bool any = false;
  for (int64_t i = 0; i < o->seq; i++) {
    uint32_t draw[4];
    gd_rng_philox(o->seed, stream, (uint64_t)(sample->sequence * o->seq + i), draw);
    labels[i] = -100;
    bool last_chance = !any && i + 1 == o->seq; /* never a sequence without a label */
    if (draw[0] % 100 >= MASKED_PERCENT && !last_chance)
      continue;
    any = true;
    labels[i] = ids[i];
    uint32_t fate = draw[1] % 100;
    if (fate < AS_MASK_PERCENT)
      ids[i] = o->mask_token;
    else if (fate < AS_MASK_PERCENT + AS_RANDOM_PERCENT)
      ids[i] = (int32_t)(draw[2] % (uint64_t)o->vocabulary);
  }
}

enum gd_status gd_dataset_read(const struct gd_dataset *data, int64_t index, int32_t *ids,
                               int32_t *labels, struct gd_error *err) {
  const struct gd_dataset_options *o = &data->options;
  struct gd_sample sample;
  gd_dataset_locate(data, index, &sample);
  GD_TRY(gd_token_file_read(&data->parts[sample.part].file, sample.sequence * data->stride, o->seq,
                            o->vocabulary, ids, err));
  if (o->causal)
    memcpy(labels, ids, (size_t)o->seq * sizeof *labels);
  else
    mask(data, &sample, ids, labels);
  return GD_OK;
}
