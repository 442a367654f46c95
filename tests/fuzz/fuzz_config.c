/*
 * Any bytes as a configuration or a preset: refused with a sentence, or a model whose graph can be
 * built and passes its own checks, or says that it is too large.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_recipe(const struct gd_recipe *recipe) {
  const int64_t steps[] = {0, recipe->warmup_steps - 1, recipe->warmup_steps, recipe->steps - 1};
  GD_ASSERT(recipe->batch > 0 && recipe->seq > 0 && recipe->steps > 0);
  for (int i = 0; i < 4; i++) {
    double lr = gd_recipe_lr(recipe, steps[i]);
    GD_ASSERT(lr >= 0 && lr <= recipe->lr * (1 + 1e-12));
  }
}

/* Ops are made by the layer: few layers are quickly built, whatever their sizes are. */
static bool has_few_layers(const json_t *root) {
  static const char *const keys[] = {"num_hidden_layers", "n_layer"};
  const json_t *config = json_object_get(root, "config");
  for (int i = 0; i < 2; i++)
    if (json_number_value(json_object_get(config ? config : root, keys[i])) > 4)
      return false;
  return true;
}

static void check_graph(struct gd_model *model) {
  struct gd_graph graph;
  struct gd_error err = {0};
  gd_graph_init(&graph);
  model->family->build(model, 2, &graph);
  enum gd_status status = gd_graph_check(&graph, &err);
  if (status == GD_OK) {
    GD_ASSERT(gd_graph_parameters(&graph) > 0);
    status = gd_graph_verify(&graph, &err);
    if (status != GD_OK)
      gd_assert_failed(err.text, __FILE__, __LINE__);
  } else {
    GD_ASSERT(err.text[0] != '\0');
  }
  gd_graph_deinit(&graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct gd_json json;
  struct gd_model model;
  struct gd_error err = {0};
  int64_t blocks = gd_mem_live_blocks();
  enum gd_status status =
      gd_json_parse(&json, "fuzz.json", (const char *)data, (int64_t)size, &err);
  if (status == GD_OK)
    status = gd_model_parse(&json, &model, &err);
  GD_ASSERT(status == err.status);
  bool quick = status == GD_OK && has_few_layers(json.root);
  gd_json_deinit(&json);
  if (status == GD_OK) {
    check_recipe(&model.recipe);
    if (quick)
      check_graph(&model); /* as large as the file says, then small */
    model.recipe.seq = 7;
    if (quick)
      check_graph(&model);
  } else {
    GD_ASSERT(status == GD_BAD_INPUT || status == GD_UNSUPPORTED);
    GD_ASSERT(err.text[0] != '\0' && !strchr(err.text, '\n'));
  }
  GD_ASSERT(gd_mem_live_blocks() == blocks);
  return 0;
}
