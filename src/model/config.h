/*
 * Fields of a Hugging Face config.json that several families read. transformers leaves out what
 * equals its defaults and writes null for "none", so most fields are optional: missing or null
 * leaves *value as it is. What the engine does not have is GD_UNSUPPORTED naming the field.
 *
 * Also what other JSON files of a user's share with it: presets, hardware records.
 */
#ifndef GD_MODEL_CONFIG_H
#define GD_MODEL_CONFIG_H

#include "base/json.h"
#include "ir/graph.h"

/* Past any model; sizes are multiplied with checks where tensors are made. */
#define GD_CONFIG_LARGEST ((int64_t)1 << 31)
enum { GD_CONFIG_MOST_LAYERS = 1024 };

/* Whether the field is there and not null. What a family looks at goes through here or through
   gd_json_get, so that the log of fields (fields.h) is complete. */
bool gd_config_has(const struct gd_json *json, const json_t *config, const char *key);

enum gd_status gd_config_int(const struct gd_json *json, const json_t *config, const char *key,
                             int64_t low, int64_t high, int64_t *value,
                             struct gd_error *err) GD_MUST_USE;
enum gd_status gd_config_number(const struct gd_json *json, const json_t *config, const char *key,
                                double low, double high, double *value,
                                struct gd_error *err) GD_MUST_USE;
enum gd_status gd_config_bool(const struct gd_json *json, const json_t *config, const char *key,
                              bool *value, struct gd_error *err) GD_MUST_USE;
/* A dropout probability: 0 to below 1. */
enum gd_status gd_config_dropout(const struct gd_json *json, const json_t *config, const char *key,
                                 double *value, struct gd_error *err) GD_MUST_USE;
/* "gelu", "gelu_new", "silu", ... */
enum gd_status gd_config_activation(const struct gd_json *json, const json_t *config,
                                    const char *key, enum gd_activation *value,
                                    struct gd_error *err) GD_MUST_USE;
/* pad_token_id as a row of the embedding, counted from the end where negative; -1: null. */
enum gd_status gd_config_padding(const struct gd_json *json, const json_t *config, int64_t vocab,
                                 int64_t *value, struct gd_error *err) GD_MUST_USE;

/* GD_BAD_INPUT unless heads divide width; the key names the heads. */
enum gd_status gd_config_divides(const struct gd_json *json, const char *heads_key, int64_t heads,
                                 const char *width_key, int64_t width,
                                 struct gd_error *err) GD_MUST_USE;

/* GD_UNSUPPORTED unless the switch is missing, null or `only`. */
enum gd_status gd_config_only(const struct gd_json *json, const json_t *config, const char *key,
                              bool only, struct gd_error *err) GD_MUST_USE;
/* GD_UNSUPPORTED with the value found and what the engine has: "clip_qkv is 8; expected null". */
enum gd_status gd_config_unsupported(const struct gd_json *json, const json_t *object,
                                     const char *key, const char *expected, struct gd_error *err);

/* GD_BAD_INPUT for a field that is not among the keys, with the nearest one: a misspelt field would
   otherwise leave its default in place without a word. what: "a recipe". */
enum gd_status gd_config_keys(const struct gd_json *json, json_t *object, const char *what,
                              const char *const *keys, int count, struct gd_error *err) GD_MUST_USE;
/* A sequence that no recipe chose has at most so many tokens. */
void gd_config_limit_seq(const struct gd_json *json, int64_t most, int64_t *seq);

bool gd_name_ends(const char *name, const char *end);
bool gd_name_begins(const char *name, const char *begin);
/* Whether what a user typed, or a folder holds, is a file of JSON by its name. */
bool gd_name_is_json(const char *name);

#endif
