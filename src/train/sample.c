/*
 * Sampling; see sample.h.
 */
#define _GNU_SOURCE
#include "train/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { FEWEST_TOKENS = 64 }; /* of a graph that logits are computed with; doubled as text grows */

/* Higher logits first, then lower ids. */
static int compare_logits(const void *a, const void *b, void *logits) {
  const float *values = logits;
  int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  if (values[x] < values[y])
    return 1;
  return values[x] > values[y] ? -1 : x - y;
}

static int32_t likeliest(const float *logits, int64_t count) {
  int32_t best = 0;
  for (int64_t i = 1; i < count; i++)
    if (logits[i] > logits[best])
      best = (int32_t)i;
  return best;
}

int32_t gd_sample_token(const float *logits, int64_t count, double temperature, double top_p,
                        double uniform, int32_t *order) {
  double highest = (double)logits[likeliest(logits, count)], all = 0, kept = 0, sum = 0;
  int64_t n = 0;
  if (temperature <= 0)
    return likeliest(logits, count);
  for (int64_t i = 0; i < count; i++) {
    order[i] = (int32_t)i;
    all += exp(((double)logits[i] - highest) / temperature);
  }
  union {
    const float *in;
    void *out;
  } shared = {.in = logits};
  qsort_r(order, (size_t)count, sizeof *order, compare_logits, shared.out);
  while (n < count && (n == 0 || kept < top_p * all))
    kept += exp(((double)logits[order[n++]] - highest) / temperature);
  for (int64_t i = 0; i < n; i++) {
    sum += exp(((double)logits[order[i]] - highest) / temperature);
    if (uniform * kept < sum)
      return order[i];
  }
  return order[n - 1];
}

/* --- the prompt ---------------------------------------------------------------------------- */

enum gd_status gd_sample_check(const struct gd_model *model, struct gd_error *err) {
  bool causal;
  if (model->family->images)
    return gd_fail(err, GD_UNSUPPORTED, "%s is a model of images, and writes no text", model->name);
  GD_TRY(gd_model_is_causal(model, &causal, err));
  if (!causal)
    return gd_fail(err, GD_UNSUPPORTED,
                   "%s fills in masked tokens and cannot go on with a text; evaluate it instead",
                   model->name);
  return GD_OK;
}

static enum gd_status encode(const struct gd_tokenizer *tokenizer, const char *prompt,
                             struct gd_token_ids *ids, struct gd_error *err) {
  struct gd_tokenizer_work *work = NULL;
  int32_t eos = gd_tokenizer_eos(tokenizer);
  enum gd_status status = gd_tokenizer_work_new(&work, tokenizer, err);
  if (status == GD_OK)
    status = gd_tokenizer_encode(tokenizer, work, prompt, strlen(prompt), true, ids, err);
  gd_tokenizer_work_free(work);
  if (status != GD_OK || ids->count > 0)
    return status;
  if (ids->capacity == 0) {
    ids->ids = gd_mem_grow(NULL, 0, 1, sizeof *ids->ids);
    if (!ids->ids)
      return gd_nomem(err, "for the prompt");
    ids->capacity = 1;
  }
  ids->ids[0] = eos >= 0 ? eos : 0;
  ids->count = 1;
  return GD_OK;
}

enum gd_status gd_sample_prompt(const struct gd_model *model, const struct gd_tokenizer *tokenizer,
                                const char *prompt, struct gd_token_ids *ids,
                                struct gd_error *err) {
  int64_t classes = model->family->classes(model);
  GD_TRY(encode(tokenizer, prompt, ids, err));
  if (ids->count >= model->recipe.seq)
    return gd_fail(
        err, GD_BAD_INPUT,
        "the prompt has %lld tokens, and %s was trained on sequences of %lld; shorten it",
        (long long)ids->count, model->name, (long long)model->recipe.seq);
  for (int64_t i = 0; i < ids->count; i++)
    if (ids->ids[i] >= classes)
      return gd_fail(err, GD_BAD_INPUT,
                     "the tokenizer makes token %d of the prompt, and the model has %lld; is it "
                     "another model's tokenizer?",
                     (int)ids->ids[i], (long long)classes);
  return GD_OK;
}

/* --- a text -------------------------------------------------------------------------------- */

struct sampler {
  const struct gd_sampling *o;
  struct gd_forward forward;
  int64_t seq, most; /* of the graph that is open; of the model */
  float *logits;
  int32_t *order;
};

/* The graph has room for so many tokens. */
static enum gd_status make_room(struct sampler *s, int64_t count, struct gd_error *err) {
  int64_t seq = FEWEST_TOKENS;
  while (seq < count)
    seq *= 2;
  seq = seq < s->most ? seq : s->most;
  if (seq == s->seq)
    return GD_OK;
  gd_forward_close(&s->forward);
  s->seq = seq;
  return gd_forward_open(&s->forward,
                         &(struct gd_forward_options){.model = s->o->model,
                                                      .backend = s->o->backend,
                                                      .threads = s->o->threads,
                                                      .seq = seq,
                                                      .batch = 1,
                                                      .end = GD_FORWARD_LOGITS},
                         s->o->weights, err);
}

static enum gd_status add_token(struct sampler *s, struct gd_token_ids *ids, struct gd_error *err) {
  const struct gd_sampling *o = s->o;
  int64_t classes = o->model->family->classes(o->model);
  GD_TRY(make_room(s, ids->count, err));
  if (!s->logits) {
    s->logits = gd_mem_alloc((size_t)classes, sizeof *s->logits);
    s->order = gd_mem_alloc((size_t)classes, sizeof *s->order);
  }
  int32_t *grown = gd_mem_grow(ids->ids, (size_t)ids->count, (size_t)ids->count + 1, sizeof *grown);
  if (grown)
    ids->ids = grown;
  if (!s->logits || !s->order || !grown)
    return gd_nomem(err, "while sampling");
  ids->capacity = ids->count + 1;
  GD_TRY(gd_forward_logits(&s->forward, ids->ids, ids->count, s->logits, err));
  for (int64_t i = 0; i < classes; i++)
    if (!isfinite(s->logits[i]))
      return gd_fail(err, GD_MISMATCH, "the model's logits are not finite: its weights are broken");
  double uniform = (double)gd_rng_uniform(o->seed, gd_hash_string("sample"), (uint64_t)ids->count);
  ids->ids[ids->count++] =
      gd_sample_token(s->logits, classes, o->temperature, o->top_p, uniform, s->order);
  return GD_OK;
}

enum gd_status gd_sample(const struct gd_sampling *sampling, struct gd_token_ids *ids,
                         struct gd_error *err) {
  struct sampler s = {.o = sampling, .most = sampling->model->recipe.seq};
  enum gd_status status = GD_OK;
  GD_ASSERT(ids->count > 0);
  for (int64_t done = 0; done < sampling->length && ids->count < s.most && status == GD_OK;
       done++) {
    status = add_token(&s, ids, err);
    if (sampling->added)
      sampling->added(sampling->user, done + 1);
    if (status == GD_OK && ids->ids[ids->count - 1] == sampling->eos)
      break;
  }
  gd_forward_close(&s.forward);
  gd_mem_free(s.logits);
  gd_mem_free(s.order);
  return status;
}
