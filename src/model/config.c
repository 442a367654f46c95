/*
 * Optional fields of config.json, with one message for each way in which they can be wrong.
 */
#include "model/config.h"

#include <string.h>

#include "base/strbuf.h"

bool gd_config_has(const struct gd_json *json, const json_t *config, const char *key) {
  const json_t *value = gd_json_get(json, config, key);
  return value && !json_is_null(value);
}

enum gd_status gd_config_int(const struct gd_json *json, const json_t *config, const char *key,
                             int64_t low, int64_t high, int64_t *value, struct gd_error *err) {
  return gd_config_has(json, config, key) ? gd_json_int(json, config, key, low, high, value, err)
                                          : GD_OK;
}

enum gd_status gd_config_number(const struct gd_json *json, const json_t *config, const char *key,
                                double low, double high, double *value, struct gd_error *err) {
  return gd_config_has(json, config, key) ? gd_json_number(json, config, key, low, high, value, err)
                                          : GD_OK;
}

enum gd_status gd_config_bool(const struct gd_json *json, const json_t *config, const char *key,
                              bool *value, struct gd_error *err) {
  return gd_config_has(json, config, key) ? gd_json_bool(json, config, key, value, err) : GD_OK;
}

enum gd_status gd_config_dropout(const struct gd_json *json, const json_t *config, const char *key,
                                 double *value, struct gd_error *err) {
  double probability = *value;
  GD_TRY(gd_config_number(json, config, key, 0, 1, &probability, err));
  if ((float)probability >= 1) /* as the kernels see it: they divide by 1 - p */
    return gd_json_mismatch(json, config, key, "a number from 0 to below 1", err);
  *value = probability;
  return GD_OK;
}

enum gd_status gd_config_activation(const struct gd_json *json, const json_t *config,
                                    const char *key, enum gd_activation *value,
                                    struct gd_error *err) {
  static const struct {
    const char *name;
    enum gd_activation activation;
  } known[] = {
      {"gelu", GD_ACTIVATION_GELU},
      {"gelu_new", GD_ACTIVATION_GELU_TANH},
      {"gelu_fast", GD_ACTIVATION_GELU_TANH}, /* the same polynomial, factored otherwise */
      {"gelu_pytorch_tanh", GD_ACTIVATION_GELU_TANH},
      {"quick_gelu", GD_ACTIVATION_QUICK_GELU},
      {"relu", GD_ACTIVATION_RELU},
      {"silu", GD_ACTIVATION_SILU},
      {"swish", GD_ACTIVATION_SILU},
      {"tanh", GD_ACTIVATION_TANH},
  };
  const char *name;
  if (!gd_config_has(json, config, key))
    return GD_OK;
  GD_TRY(gd_json_string(json, config, key, &name, err));
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(name, known[i].name) == 0) {
      *value = known[i].activation;
      return GD_OK;
    }
  return gd_config_unsupported(json, config, key,
                               "gelu, gelu_new, gelu_fast, gelu_pytorch_tanh, quick_gelu, relu, "
                               "silu or tanh",
                               err);
}

enum gd_status gd_config_padding(const struct gd_json *json, const json_t *config, int64_t vocab,
                                 int64_t *value, struct gd_error *err) {
  if (json_is_null(gd_json_get(json, config, "pad_token_id"))) /* as opposed to left out */
    *value = -1;
  if (!gd_config_has(json, config, "pad_token_id"))
    return GD_OK;
  GD_TRY(gd_json_int(json, config, "pad_token_id", -vocab, vocab - 1, value, err));
  if (*value < 0)
    *value += vocab;
  return GD_OK;
}

enum gd_status gd_config_divides(const struct gd_json *json, const char *heads_key, int64_t heads,
                                 const char *width_key, int64_t width, struct gd_error *err) {
  if (width % heads == 0)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT, "%s: %s %lld does not divide %s %lld; choose a divisor",
                 json->file, heads_key, (long long)heads, width_key, (long long)width);
}

enum gd_status gd_config_only(const struct gd_json *json, const json_t *config, const char *key,
                              bool only, struct gd_error *err) {
  bool value = only;
  GD_TRY(gd_config_bool(json, config, key, &value, err));
  return value == only ? GD_OK
                       : gd_config_unsupported(json, config, key,
                                               only ? "true, as no other is built here"
                                                    : "false, as no other is built here",
                                               err);
}

enum gd_status gd_config_unsupported(const struct gd_json *json, const json_t *object,
                                     const char *key, const char *expected, struct gd_error *err) {
  struct gd_error found = {0}; /* the same sentence under another status */
  gd_json_mismatch(json, object, key, expected, &found);
  return gd_fail(err, GD_UNSUPPORTED, "%s", found.text);
}

static bool is_one_of(const char *key, const char *const *keys, int count) {
  for (int i = 0; i < count; i++)
    if (strcmp(key, keys[i]) == 0)
      return true;
  return false;
}

static const char *nearest_of(const char *key, const char *const *keys, int count) {
  int nearest = 0;
  for (int i = 1; i < count; i++)
    if (gd_edit_distance(key, keys[i]) < gd_edit_distance(key, keys[nearest]))
      nearest = i;
  return keys[nearest];
}

enum gd_status gd_config_keys(const struct gd_json *json, json_t *object, const char *what,
                              const char *const *keys, int count, struct gd_error *err) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    char clean[64];
    if (!is_one_of(key, keys, count))
      return gd_fail(err, GD_BAD_INPUT, "%s: \"%s\" is not a field of %s; did you mean %s?",
                     json->file, gd_json_excerpt(clean, sizeof clean, key), what,
                     nearest_of(key, keys, count));
  }
  return GD_OK;
}

void gd_config_limit_seq(const struct gd_json *json, int64_t most, int64_t *seq) {
  if (*seq > most && !gd_json_has(json_object_get(json->root, "recipe"), "seq"))
    *seq = most;
}

bool gd_name_ends(const char *name, const char *end) {
  size_t length = strlen(name), end_length = strlen(end);
  return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

bool gd_name_begins(const char *name, const char *begin) {
  return strncmp(name, begin, strlen(begin)) == 0;
}

bool gd_name_is_json(const char *name) {
  return strlen(name) > strlen(".json") && gd_name_ends(name, ".json");
}
