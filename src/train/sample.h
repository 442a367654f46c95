/*
 * Text out of a model: the next token again and again, the likeliest or by chance.
 *
 *   GD_TRY(gd_sample(&(struct gd_sampling){.model = &model, .weights = &weights, ...}, &ids, err));
 */
#ifndef GD_TRAIN_SAMPLE_H
#define GD_TRAIN_SAMPLE_H

#include "data/tokenizer.h"
#include "exec/forward.h"

struct gd_sampling {
  const struct gd_model *model;         /* borrowed, as all here; causal */
  const struct gd_safetensors *weights; /* of its folder */
  const char *backend;
  int threads;
  int64_t length;     /* tokens to add */
  double temperature; /* 0: the likeliest token */
  double top_p;       /* of the likeliest tokens that together have this probability; 1: of all */
  uint64_t seed;
  int32_t eos;                             /* token that ends the text; -1: none */
  void (*added)(void *user, int64_t done); /* may be NULL */
  void *user;
};

/* GD_UNSUPPORTED: the model is one of images, or masked, and does not go on with a text. */
enum gd_status gd_sample_check(const struct gd_model *model, struct gd_error *err) GD_MUST_USE;
/* The prompt as ids, appended to empty ones; for "", the token that ends a document, as another
   begins behind it. GD_BAD_INPUT: longer than the model's sequence, or tokens that it has not. */
enum gd_status gd_sample_prompt(const struct gd_model *model, const struct gd_tokenizer *tokenizer,
                                const char *prompt, struct gd_token_ids *ids,
                                struct gd_error *err) GD_MUST_USE;

/* Appends to ids, which hold the prompt: at least one token. Ends at the length, behind eos, or
   where the model's sequence ends. */
enum gd_status gd_sample(const struct gd_sampling *sampling, struct gd_token_ids *ids,
                         struct gd_error *err) GD_MUST_USE;

/*
 * The token that a uniform number in [0, 1) chooses: of the likeliest tokens, sorted, the first so
 * many whose probability reaches top_p. order is scratch of as many elements. Ties: the lower id.
 */
int32_t gd_sample_token(const float *logits, int64_t count, double temperature, double top_p,
                        double uniform, int32_t *order);

#endif
