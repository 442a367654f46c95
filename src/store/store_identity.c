/*
 * What a trial that was written elsewhere is a trial of. Its recipe is never taken from the file:
 * the text of its key says it, or its own numbers together with the preset of that name. A recipe
 * that neither tells stays empty, and such a trial is compared with none.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/autodiff.h"
#include "store/record_int.h"
#include "store/store_int.h"

/* --- what is asked more than once ---------------------------------------------------------- */

static struct gd_identity *recall(struct gd_identities *known, const char *question, bool *new) {
  for (int i = 0; i < known->count; i++)
    if (strcmp(known->list[i].question, question) == 0) {
      *new = false;
      return &known->list[i];
    }
  int at = known->count < GD_IDENTITIES ? known->count++ : known->next++ % GD_IDENTITIES;
  known->list[at] = (struct gd_identity){0};
  snprintf(known->list[at].question, sizeof known->list[at].question, "%s", question);
  *new = true;
  return &known->list[at];
}

/* A folder of that name here says nothing of a trial from elsewhere. */
static bool load_preset(const char *name, struct gd_model *model) {
  struct stat info;
  return !strchr(name, '/') && stat(name, &info) != 0 && gd_model_load(name, model, NULL) == GD_OK;
}

/* Graph and parameters of the preset of that name with such sequences (0: its own); 0 parameters:
   there is none. */
static const struct gd_identity *ask_preset(struct gd_identities *known, const char *name,
                                            int64_t seq) {
  char question[sizeof known->list->question];
  struct gd_model model;
  struct gd_graph graph;
  bool new;
  snprintf(question, sizeof question, "preset %.200s %" PRId64, name, seq);
  struct gd_identity *found = recall(known, question, &new);
  if (!new || !load_preset(name, &model))
    return found;
  if (model.family->images)
    found->seq = model.recipe.seq;
  else if (seq > 0)
    model.recipe.seq = seq;
  gd_graph_init(&graph);
  model.family->build(&model, 1, &graph);
  if (gd_graph_check(&graph, NULL) == GD_OK && gd_model_hash(&model, found->hash, NULL) == GD_OK) {
    found->parameters = gd_graph_parameters(&graph);
    if (gd_autodiff(&graph, NULL) == GD_OK)
      found->flops = graph.model_flops;
  }
  gd_graph_deinit(&graph);
  return found;
}

/* --- the recipe ---------------------------------------------------------------------------- */

static enum gd_status recipe_of_numbers(struct gd_identities *known, struct gd_trial *trial,
                                        struct gd_error *err) {
  char question[sizeof known->list->question];
  struct gd_model model;
  struct gd_recipe sizes = {0};
  bool new;
  trial->recipe[0] = '\0';
  if (!gd_recipe_sizes(trial, &sizes))
    return GD_OK;
  snprintf(question, sizeof question,
           "recipe %.160s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %d %d", trial->model,
           trial->parameters, sizes.batch, sizes.seq, sizes.steps, (int)trial->precision,
           (int)trial->precision_substituted);
  struct gd_identity *found = recall(known, question, &new);
  if (new &&load_preset(trial->model, &model))
    GD_TRY(gd_recipe_of_trial(trial, &model, found->hash, err));
  snprintf(trial->recipe, sizeof trial->recipe, "%s", found->hash);
  return GD_OK;
}

enum gd_status gd_store_identify_with(struct gd_identities *known, const struct gd_store_key *key,
                                      const struct gd_provenance *provenance,
                                      struct gd_trial *trial, struct gd_error *err) {
  bool gpu = gd_backend_is_gpu(trial->backend);
  if (!trial->machine[0])
    snprintf(trial->machine, sizeof trial->machine, "cpu=%s%s%s", provenance->cpu,
             gpu ? ";gpu=" : "", gpu ? trial->device : "");
  if (gd_recipe_of_key(key->text, trial->precision_substituted, trial->recipe))
    return GD_OK;
  return recipe_of_numbers(known, trial, err);
}

enum gd_status gd_store_identify(const struct gd_store_key *key,
                                 const struct gd_provenance *provenance, struct gd_trial *trial,
                                 struct gd_error *err) {
  struct gd_identities known = {0};
  return gd_store_identify_with(&known, key, provenance, trial, err);
}

const char *gd_store_contradicts_preset(struct gd_identities *known, const struct gd_store_key *key,
                                        const struct gd_trial *trial, char expected[64]) {
  char graph[GD_HASH_TEXT], text[24];
  int64_t seq = 0;
  if (trial->parameters == 0) /* it could not be planned */
    return NULL;
  bool whole = gd_key_value(key->text, "graph", graph, sizeof graph) &&
               gd_key_value(key->text, "seq", text, sizeof text) &&
               gd_parse_int(text, 1, INT64_MAX / 4, &seq);
  if (!whole && trial->samples_per_s > 0)
    seq = (int64_t)nearbyint(fmin(trial->tokens_per_s / trial->samples_per_s, 1e9));
  const struct gd_identity *preset = ask_preset(known, trial->model, seq);
  /* Another graph: a model of the user's that is called like a preset. */
  if (preset->parameters == 0 || (whole && strcmp(preset->hash, graph) != 0))
    return NULL;
  snprintf(expected, 64, "%" PRId64 ", as the model of that name has", preset->parameters);
  if (preset->parameters != trial->parameters)
    return "parameters";
  /* Methods leave out parts of it, and never most of it. */
  double flops = trial->model_flops_per_step / gd_record_batch(trial) / preset->flops;
  snprintf(expected, 64, "tokens of sequences that have the FLOPs of a step");
  if (trial->status == GD_TRIAL_OK && preset->seq > 0 && seq != preset->seq)
    return "tokens_per_s";
  return trial->status == GD_TRIAL_OK && preset->flops > 0 && !(flops > 0.3 && flops < 2)
             ? "tokens_per_s"
             : NULL;
}
