/*
 * Rotary positions: the fields that describe them and the frequencies that follow. The formulas are
 * those of transformers' modeling_rope_utils, each with its source.
 */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#include "model/config.h"

static const double two_pi = 6.28318530717958647692;
enum { MOST_DIMS = 1 << 16 }; /* of a head: far past any, and small enough to list */

/* --- config.json --------------------------------------------------------------------------- */

static enum gd_status read_type(const struct gd_json *json, const json_t *from,
                                enum gd_rope_type *type, struct gd_error *err) {
  static const char *const names[] = {[GD_ROPE_DEFAULT] = "default",
                                      [GD_ROPE_LINEAR] = "linear",
                                      [GD_ROPE_DYNAMIC] = "dynamic",
                                      [GD_ROPE_YARN] = "yarn",
                                      [GD_ROPE_LLAMA3] = "llama3"};
  const char *key = gd_config_has(json, from, "rope_type") ? "rope_type" : "type", *name;
  if (!gd_config_has(json, from, key))
    return GD_OK;
  GD_TRY(gd_json_string(json, from, key, &name, err));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) {
      *type = (enum gd_rope_type)i;
      return GD_OK;
    }
  return gd_config_unsupported(json, from, key, "default, linear, dynamic, yarn or llama3", err);
}

/* Yarn's temperature, equation 22: 0.1 ln(factor) + 1. */
static double temperature(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static enum gd_status read_yarn(const struct gd_json *json, const json_t *from,
                                struct gd_rope *rope, struct gd_error *err) {
  double mscale = 0, mscale_all_dim = 0;
  rope->slow = 1; /* alpha and beta of section 3.2 */
  rope->fast = 32;
  GD_TRY(gd_config_number(json, from, "beta_slow", 1e-6, 1e9, &rope->slow, err));
  GD_TRY(gd_config_number(json, from, "beta_fast", 1e-6, 1e9, &rope->fast, err));
  GD_TRY(gd_config_bool(json, from, "truncate", &rope->truncate, err));
  GD_TRY(gd_config_number(json, from, "mscale", 0, 1e6, &mscale, err));
  GD_TRY(gd_config_number(json, from, "mscale_all_dim", 0, 1e6, &mscale_all_dim, err));
  rope->magnitude = mscale > 0 && mscale_all_dim > 0 ? temperature(rope->factor, mscale) /
                                                           temperature(rope->factor, mscale_all_dim)
                                                     : temperature(rope->factor, 1);
  return gd_config_number(json, from, "attention_factor", 1e-6, 1e6, &rope->magnitude, err);
}

static enum gd_status read_scaling(const struct gd_json *json, const json_t *config,
                                   const json_t *from, double positions, struct gd_rope *rope,
                                   struct gd_error *err) {
  bool originals = rope->type == GD_ROPE_YARN || rope->type == GD_ROPE_LLAMA3;
  rope->original = positions;
  if (originals) { /* Phi writes it at the top, and then that counts */
    const char *key = "original_max_position_embeddings";
    const json_t *place = gd_config_has(json, config, key) ? config : from;
    GD_TRY(gd_config_number(json, place, key, 1, 1e12, &rope->original, err));
  }
  if (rope->type == GD_ROPE_YARN && !gd_config_has(json, from, "factor"))
    rope->factor = positions / rope->original;
  else
    GD_TRY(gd_json_number(json, from, "factor", 1e-6, 1e9, &rope->factor, err));
  if (rope->type == GD_ROPE_YARN)
    return read_yarn(json, from, rope, err);
  if (rope->type == GD_ROPE_LLAMA3) {
    GD_TRY(gd_json_number(json, from, "low_freq_factor", 1e-6, 1e9, &rope->slow, err));
    GD_TRY(gd_json_number(json, from, "high_freq_factor", 1e-6, 1e9, &rope->fast, err));
    if (!(rope->fast > rope->slow))
      return gd_json_mismatch(json, from, "high_freq_factor", "more than low_freq_factor", err);
  }
  return GD_OK;
}

enum gd_status gd_rope_parse(const struct gd_json *json, const json_t *config, struct gd_rope *rope,
                             struct gd_error *err) {
  static const char *const places[] = {"rope_scaling", "rope_parameters"};
  struct gd_rope read = {.base = 10000, .factor = 1, .magnitude = 1, .truncate = true};
  double positions = 2048, share = 1;
  const json_t *from = NULL;
  for (int i = 0; i < 2 && !from; i++) {
    const json_t *found = gd_json_get(json, config, places[i]);
    if (!gd_config_has(json, config, places[i]))
      continue;
    if (!json_is_object(found))
      return gd_json_mismatch(json, config, places[i], "an object or null", err);
    from = json_object_size(found) > 0 ? found : NULL;
  }
  GD_TRY(gd_config_number(json, config, "max_position_embeddings", 1, 1e12, &positions, err));
  GD_TRY(gd_config_number(json, config, "rope_theta", 1e-3, 1e12, &read.base, err));
  GD_TRY(gd_config_number(json, config, "partial_rotary_factor", 0, 1, &share, err));
  if (from) {
    GD_TRY(gd_config_number(json, from, "rope_theta", 1e-3, 1e12, &read.base, err));
    GD_TRY(gd_config_number(json, from, "partial_rotary_factor", 0, 1, &share, err));
    GD_TRY(read_type(json, from, &read.type, err));
    if (read.type != GD_ROPE_DEFAULT)
      GD_TRY(read_scaling(json, config, from, positions, &read, err));
  }
  if (share != 1) {
    const char *key = "partial_rotary_factor";
    gd_json_refuse(json, gd_config_has(json, from, key) ? from : config, key);
    return gd_fail(err, GD_UNSUPPORTED,
                   "%s: partial_rotary_factor is %g; this family rotates whole heads here, so "
                   "leave it out",
                   json->file, share);
  }
  *rope = read;
  return GD_OK;
}

/* --- frequencies --------------------------------------------------------------------------- */

/* The pair, as a real number, that turns so often within the original positions; yarn's section
   3.2 solved for the pair. */
static double pair_of_turns(const struct gd_rope *rope, int64_t rotary, double turns) {
  return (double)rotary * log(rope->original / (turns * two_pi)) / (2 * log(rope->base));
}

/* How much of a pair's frequency is divided by the factor: 0 to 1. */
static double stretched_share(const struct gd_rope *rope, int64_t rotary, int64_t pair,
                              double frequency) {
  double share = 1;
  if (rope->type == GD_ROPE_LLAMA3) {
    double turns = rope->original * frequency / two_pi;
    share = 1 - (turns - rope->slow) / (rope->fast - rope->slow);
  } else if (rope->type == GD_ROPE_YARN) {
    double low = pair_of_turns(rope, rotary, rope->fast);
    double high = pair_of_turns(rope, rotary, rope->slow);
    low = fmax(rope->truncate ? floor(low) : low, 0);
    high = fmin(rope->truncate ? ceil(high) : high, (double)rotary - 1);
    share = ((double)pair - low) / (high == low ? 0.001 : high - low);
  }
  return fmin(fmax(share, 0), 1);
}

static double frequency_of(const struct gd_rope *rope, int64_t positions, int64_t rotary,
                           int64_t pair) {
  double base = rope->base, dims = (double)rotary;
  if (rope->type == GD_ROPE_DYNAMIC) {
    double longer = fmax((double)positions / rope->original, 1);
    base *= pow(rope->factor * longer - (rope->factor - 1), dims / (dims - 2));
  }
  double frequency = 1 / pow(base, 2 * (double)pair / dims);
  if (rope->type == GD_ROPE_DEFAULT || rope->type == GD_ROPE_DYNAMIC)
    return frequency;
  double share = stretched_share(rope, rotary, pair, frequency);
  return frequency * (share / rope->factor + (1 - share));
}

gd_tensor_id gd_rope_table(struct gd_graph *graph, const struct gd_rope *rope, int64_t seq,
                           int64_t positions, int64_t rotary) {
  if (graph->error.status == GD_OK && rotary > MOST_DIMS)
    gd_fail(&graph->error, GD_BAD_INPUT,
            "the size of rope_table overflows: %lld rotary dims a head, where %d are the most; "
            "check the sizes in the configuration",
            (long long)rotary, MOST_DIMS);
  gd_tensor_id table = gd_graph_leaf(graph, GD_ROLE_CONST, "rope_table", GD_DTYPE_F32, 2,
                                     (int64_t[]){positions, rotary});
  if (table == GD_NONE)
    return GD_NONE;
  float *frequencies = gd_arena_alloc(&graph->arena, (size_t)(rotary / 2), sizeof *frequencies);
  if (!frequencies) {
    gd_nomem(&graph->error, "while building rotary positions");
    return GD_NONE;
  }
  for (int64_t pair = 0; pair < rotary / 2; pair++)
    frequencies[pair] = (float)frequency_of(rope, seq, rotary, pair);
  graph->tensors[table].init = GD_INIT_ROPE;
  graph->tensors[table].init_value = rope->magnitude;
  graph->tensors[table].frequencies = frequencies;
  return table;
}
