/*
 * Sources of samples, and that of tokens; see source.h. Images: image_source.c.
 */
#include "data/source.h"

#include "base/mem.h"
#include "data/source_int.h"

/* --- tokens -------------------------------------------------------------------------------- */

struct token_source {
  struct gd_dataset data;
  int32_t *scratch; /* a sample: ids and labels */
};

static void close_tokens(void *self) {
  struct token_source *s = self;
  gd_dataset_close(&s->data);
  gd_mem_free(s->scratch);
  gd_mem_free(s);
}

static enum gd_status follow_tokens(void *self, int64_t offset, int64_t count, int64_t stride,
                                    struct gd_error *err) {
  (void)self, (void)offset, (void)count, (void)stride, (void)err;
  return GD_OK;
}

static enum gd_status count_tokens(void *self, int64_t first, int64_t count, double *valid,
                                   struct gd_error *err) {
  struct token_source *s = self;
  int64_t seq = s->data.options.seq;
  int32_t *ids = s->scratch, *labels = ids + seq;
  *valid = s->data.options.causal ? (double)(count * (seq - 1)) : 0;
  for (int64_t i = 0; i < count && !s->data.options.causal; i++) {
    GD_TRY(gd_dataset_read(&s->data, first + i, ids, labels, err));
    for (int64_t j = 0; j < seq; j++)
      *valid += labels[j] != -100;
  }
  return GD_OK;
}

static enum gd_status read_tokens(void *self, int64_t first, int64_t count, void *inputs,
                                  void *labels, struct gd_error *err) {
  struct token_source *s = self;
  int64_t seq = s->data.options.seq;
  int32_t *ids = inputs, *to = labels;
  for (int64_t i = 0; i < count; i++)
    GD_TRY(gd_dataset_read(&s->data, first + i, ids + i * seq, to + i * seq, err));
  return GD_OK;
}

static void prefetch_tokens(void *self, int64_t first, int64_t count) {
  struct token_source *s = self;
  for (int64_t i = 0; i < count; i++)
    gd_dataset_prefetch(&s->data, first + i);
}

static const struct gd_source_ops token_ops = {.close = close_tokens,
                                               .follow = follow_tokens,
                                               .count = count_tokens,
                                               .read = read_tokens,
                                               .prefetch = prefetch_tokens};

static enum gd_status open_tokens(struct gd_source *source,
                                  const struct gd_dataset_options *options, struct gd_error *err) {
  struct token_source *s = gd_mem_alloc(1, sizeof *s);
  if (!s)
    return gd_nomem(err, "before opening token files");
  enum gd_status status = gd_dataset_open(&s->data, options, err);
  if (status == GD_OK && !(s->scratch = gd_mem_alloc((size_t)options->seq, 2 * sizeof *s->scratch)))
    status = gd_nomem(err, "before opening token files");
  if (status != GD_OK) {
    close_tokens(s);
    return status;
  }
  *source = (struct gd_source){.ops = &token_ops, .self = s, .samples = s->data.sequences};
  return GD_OK;
}

const struct gd_dataset *gd_source_tokens(const struct gd_source *source) {
  return source->ops == &token_ops ? &((const struct token_source *)source->self)->data : NULL;
}

const struct gd_image_set *gd_source_images(const struct gd_source *source) {
  return gd_image_source_set(source);
}

/* --- both ---------------------------------------------------------------------------------- */

bool gd_source_is_given(const struct gd_source_options *options) {
  return options->tokens.n_files > 0 || options->images.n_files > 0;
}

enum gd_status gd_source_open(struct gd_source *source, const struct gd_source_options *options,
                              const struct gd_source *known, struct gd_error *err) {
  *source = (struct gd_source){0};
  if (options->images.n_files == 0)
    return open_tokens(source, &options->tokens, err);
  const struct gd_image_set *set = known ? gd_source_images(known) : NULL;
  return gd_image_source_open(source, &options->images, set ? &set->files : NULL, err);
}

void gd_source_close(struct gd_source *source) {
  if (source->ops)
    source->ops->close(source->self);
  *source = (struct gd_source){0};
}

enum gd_status gd_source_follow(struct gd_source *source, int64_t offset, int64_t count,
                                int64_t stride, struct gd_error *err) {
  return source->ops->follow(source->self, offset, count, stride, err);
}

enum gd_status gd_source_count(struct gd_source *source, int64_t first, int64_t count,
                               double *labels, struct gd_error *err) {
  return source->ops->count(source->self, first, count, labels, err);
}

enum gd_status gd_source_read(struct gd_source *source, int64_t first, int64_t count, void *inputs,
                              void *labels, struct gd_error *err) {
  return source->ops->read(source->self, first, count, inputs, labels, err);
}

void gd_source_prefetch(struct gd_source *source, int64_t first, int64_t count) {
  source->ops->prefetch(source->self, first, count);
}
