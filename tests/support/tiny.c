/*
 * Small models for tests; see tiny.h.
 */
#include "support/tiny.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pass/pass.h"
#include "support/ok.h"

enum gd_status tiny_parse(const char *text, struct gd_model *model, struct gd_error *err) {
  struct gd_json json;
  *err = (struct gd_error){0};
  enum gd_status status = gd_json_parse(&json, "tiny.json", text, (int64_t)strlen(text), err);
  if (status == GD_OK)
    status = gd_model_parse(&json, model, err);
  gd_json_deinit(&json);
  return status;
}

/* The same length, so that it can be done in place. */
static void turn_on_dropout(char *text) {
  static const char *const keys[] = {"\"hidden_dropout_prob\": 0.0",
                                     "\"attention_probs_dropout_prob\": 0.0", "\"embd_pdrop\": 0.0",
                                     "\"attn_pdrop\": 0.0", "\"resid_pdrop\": 0.0"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    char *at = strstr(text, keys[i]);
    if (at)
      at[strlen(keys[i]) - 1] = '2';
  }
}

void tiny_load_reference(const char *folder, int64_t seq, struct gd_model *model) {
  static char text[16384];
  char path[512];
  struct gd_error err;
  snprintf(path, sizeof path, "%s/tests/reference/%s/config.json", GD_SOURCE_DIR, folder);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  size_t bytes = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  assert_true(bytes < sizeof text - 1);
  text[bytes] = '\0';
  turn_on_dropout(text);
  OK(tiny_parse(text, model, &err));
  if (model->family->images)
    model->recipe.drop_path = 0.2;
  else
    model->recipe.seq = seq;
}

enum gd_status tiny_build(const char *text, int64_t seq, struct gd_model *model,
                          struct gd_graph *graph, struct gd_error *err) {
  gd_graph_init(graph);
  enum gd_status status = tiny_parse(text, model, err);
  if (status != GD_OK)
    return status;
  model->recipe.seq = seq ? seq : model->recipe.seq;
  model->family->build(model, 2, graph);
  status = gd_graph_check(graph, err);
  return status == GD_OK ? gd_graph_verify(graph, err) : status;
}

void tiny_expect(const char *text, int64_t seq, enum gd_status expected, const char *part) {
  struct gd_model model;
  struct gd_graph graph;
  struct gd_error err;
  enum gd_status status = tiny_build(text, seq, &model, &graph, &err);
  if (status != expected || (part && !strstr(err.text, part)))
    fail_msg("%s: status %d, \"%s\"; expected %d, \"%s\"", text, (int)status, err.text,
             (int)expected, part ? part : "");
  gd_graph_deinit(&graph);
}

void tiny_expect_refused(const struct tiny_refused *cases, size_t count) {
  for (size_t i = 0; i < count; i++)
    tiny_expect(cases[i].config, 0, cases[i].status, cases[i].part);
}

gd_tensor_id tiny_parameter(const struct gd_graph *graph, const char *name) {
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM && strcmp(graph->tensors[id].name, name) == 0)
      return id;
  return GD_NONE;
}

void tiny_expect_preset(const char *name, int64_t parameters, double train_flops) {
  struct gd_model model;
  struct gd_graph graph = {0};
  struct gd_error err = {0};
  if (gd_model_load(name, &model, &err) != GD_OK)
    fail_msg("%s", err.text);
  struct gd_setup setup = {.model = &model, .precision = GD_PRECISION_FP32, .micro_batch = 1};
  if (gd_pipeline_build(&setup, &graph, &err) != GD_OK)
    fail_msg("%s", err.text);
  double flops = graph.model_flops * (double)model.recipe.batch * (double)model.recipe.steps;
  if (gd_graph_parameters(&graph) != parameters ||
      (train_flops > 0 && fabs(flops / train_flops - 1) >= 0.01))
    fail_msg("%s: %lld parameters, %.4g FLOPs; expected %lld, %.4g", name,
             (long long)gd_graph_parameters(&graph), flops, (long long)parameters, train_flops);
  gd_graph_deinit(&graph);
}
