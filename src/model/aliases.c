/*
 * The one table of other names, and the lookup through it.
 */
#include "model/aliases.h"

#include <stdio.h>
#include <string.h>

/* A name in which `ours` is replaced by `theirs` is another name of the same parameter. Rows are
   tried in every combination, each at most once and in this order. */
static const struct {
  const char *model_type; /* of the family; NULL: of all */
  const char *ours, *theirs;
} aliases[] = {
    /* transformers 5, as its modules are called; its save_pretrained may turn names back into those
       of 4: conversion_mapping.py. */
    {"gpt_neox", "embed_out.", "lm_head."},
    {"vit", "vit.encoder.layer.", "vit.layers."},
    {"vit", "attention.attention.query", "attention.q_proj"},
    {"vit", "attention.attention.key", "attention.k_proj"},
    {"vit", "attention.attention.value", "attention.v_proj"},
    {"vit", "attention.output.dense", "attention.o_proj"},
    {"vit", "intermediate.dense", "mlp.fc1"},
    {"vit", "output.dense", "mlp.fc2"},
    /* A bias that is tied: _tied_weights_keys of both versions. */
    {"roberta", "lm_head.bias", "lm_head.decoder.bias"},
    {"bert", "cls.predictions.bias", "cls.predictions.decoder.bias"},
    /* Ported from TensorFlow, BERT's first checkpoints among them; both versions read them. */
    {NULL, "LayerNorm.weight", "LayerNorm.gamma"},
    {NULL, "LayerNorm.bias", "LayerNorm.beta"},
    /* The authors' own checkpoints of Mamba. */
    {"mamba", "backbone.embeddings.", "backbone.embedding."},
    /* Models that were saved without their head, which is tied (base_model_prefix): OpenAI's GPT-2
       among them. */
    {"gpt2", "transformer.", ""},
    {"gpt_neox", "gpt_neox.", ""},
    {"llama", "model.", ""},
    {"mistral", "model.", ""},
    {"qwen2", "model.", ""},
    {"qwen3", "model.", ""},
    {"olmo", "model.", ""},
    {"mamba", "backbone.", ""},
};
enum { N_ALIASES = sizeof aliases / sizeof *aliases };

enum { NAME_BYTES = 256 };

/* `name` with `ours` of a row replaced; false: it is not in there, or the result is too long. */
static bool apply_alias(uint32_t row, const char *name, char *renamed) {
  const char *at = strstr(name, aliases[row].ours);
  if (!at)
    return false;
  int length = snprintf(renamed, NAME_BYTES, "%.*s%s%s", (int)(at - name), name,
                        aliases[row].theirs, at + strlen(aliases[row].ours));
  return length >= 0 && length < NAME_BYTES;
}

/* By the name as it is, then with each row from `row` on that applies, and the rows after it. */
static const struct gd_safetensor *find(const char *model_type, const struct gd_safetensors *file,
                                        const char *name, uint32_t row) {
  const struct gd_safetensor *found = gd_safetensors_find(file, name);
  for (; !found && row < N_ALIASES; row++) {
    char renamed[NAME_BYTES];
    bool ours = !aliases[row].model_type || strcmp(aliases[row].model_type, model_type) == 0;
    if (ours && apply_alias(row, name, renamed))
      found = find(model_type, file, renamed, row + 1); /* NOLINT(misc-no-recursion): by rows */
  }
  return found;
}

const struct gd_safetensor *gd_find_parameter(const struct gd_family *family,
                                              const struct gd_safetensors *file, const char *prefix,
                                              const char *name) {
  char full[NAME_BYTES];
  int length = snprintf(full, sizeof full, "%s%s", prefix, name);
  return length >= 0 && length < NAME_BYTES ? find(family->model_type, file, full, 0) : NULL;
}
