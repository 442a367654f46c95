/*
 * Models that attend; see attending.h.
 */
#include "support/attending.h"

#include "exec/run.h"
#include "ir/autodiff.h"
#include "pass/pass.h"
#include "support/ok.h"
#include "support/tiny.h"

/* clang-format off */
#define SIZES                                                           \
  "\"vocab_size\": 67, \"hidden_size\": 32, \"num_hidden_layers\": 2, " \
  "\"intermediate_size\": 48, \"max_position_embeddings\": 140, "
#define HEADS(n)     "\"num_attention_heads\": " #n
#define KEY_HEADS(m) ", \"num_key_value_heads\": " #m
#define NEOX         "{\"model_type\": \"gpt_neox\", " SIZES
#define DROPOUT      ", \"attention_probs_dropout_prob\": 0.2, \"hidden_dropout_prob\": 0.1"

const struct attending attending[ATTENDING_COUNT] = {
    {NEOX HEADS(4) ", \"rotary_pct\": 0.5}", 37, false, 1, 2},
    {NEOX HEADS(4) ", \"rotary_pct\": 1.0}", 33, false, 1, 2},
    {NEOX HEADS(4) ", \"rotary_pct\": 0.0}", 19, false, 1, 0},
    {NEOX HEADS(2) ", \"rotary_pct\": 0.5}", 131, false, 1, 2},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 67, \"n_embd\": 33, \"n_layer\": 2, "
     "\"n_head\": 3, \"n_positions\": 40, \"attn_pdrop\": 0.3, \"embd_pdrop\": 0.1, "
     "\"resid_pdrop\": 0.1}", 29, true, 1, 0},
    {"{\"model_type\": \"llama\", " SIZES HEADS(4) KEY_HEADS(2) ", \"attention_dropout\": 0.25}",
     33, true, 3, 2},
    {"{\"model_type\": \"mistral\", " SIZES HEADS(4) KEY_HEADS(1) ", \"sliding_window\": null}",
     21, false, 3, 2},
    {"{\"model_type\": \"qwen2\", " SIZES HEADS(4) KEY_HEADS(2) "}", 16, false, 3, 2},
    {"{\"model_type\": \"olmo\", " SIZES HEADS(4) "}", 130, false, 3, 2},
    {"{\"model_type\": \"roberta\", " SIZES HEADS(4) DROPOUT "}", 31, true, 3, 0},
    {"{\"model_type\": \"bert\", " SIZES HEADS(2) DROPOUT "}", 120, true, 3, 0},
    {"{\"model_type\": \"vit\", \"hidden_size\": 24, \"num_hidden_layers\": 2, " HEADS(3) ", "
     "\"intermediate_size\": 40, \"image_size\": 20, \"patch_size\": 4, \"num_channels\": 3, "
     "\"num_labels\": 7" DROPOUT "}", 0, true, 3, 0},
};
/* clang-format on */

void attending_load(const struct attending *from, struct gd_model *model) {
  struct gd_error err;
  OK(tiny_parse(from->config, model, &err));
  if (from->seq)
    model->recipe.seq = from->seq;
}

void attending_forward(const struct gd_model *model, enum gd_precision precision,
                       const attending_rewrite *rewrites, struct gd_graph *graph) {
  struct gd_error err = {0};
  struct gd_setup setup = {.model = model, .precision = precision, .micro_batch = ATTENDING_BATCH};
  struct gd_pass_ctx ctx = {.setup = &setup, .err = &err};
  gd_graph_init(graph);
  model->family->build(model, ATTENDING_BATCH, graph);
  OK(gd_graph_check(graph, &err));
  OK(gd_pass_precision(&ctx, graph));
  OK(gd_graph_verify(graph, &err));
  for (; *rewrites; rewrites++) {
    OK((*rewrites)(graph, &err));
    OK(gd_graph_verify(graph, &err));
  }
}

int64_t attending_train(const struct gd_model *model, struct gd_graph *graph,
                        const char *backend_name, int threads, double *loss,
                        float gradients[ATTENDING_GRADIENTS]) {
  struct gd_error err = {0};
  struct gd_plan plan = {0};
  struct gd_run run = {0};
  struct gd_backend *backend;
  struct gd_caps caps;
  struct gd_backend_options options = {.threads = threads};
  int64_t count = 0;
  OK(gd_autodiff(graph, &err));
  OK(gd_append_update(graph, &(struct gd_update){0}, &err));
  OK(gd_graph_verify(graph, &err));
  OK(gd_backend_open(backend_name, &options, &backend, &err));
  backend->ops->caps(&options, &caps);
  OK(gd_plan_make(graph, &caps, &plan, &err));
  OK(gd_run_open(&run, backend, &plan, NULL, &err));
  OK(gd_run_init(&run, 5, &err));
  OK(gd_run_random_batch(&run, GD_RUN_FULL, model->family->classes(model), 3, &err));
  OK(gd_run_seed(&run, GD_RUN_FULL, 11, 4, 6, &err));
  OK(gd_run_micro_step(&run, GD_RUN_FULL, &err));
  OK(gd_run_take_loss(&run, loss, &err));
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].role == GD_ROLE_GRAD) {
      int64_t elements = gd_tensor_elements(graph, id);
      assert_true(count + elements <= ATTENDING_GRADIENTS);
      OK(gd_run_read(&run, id, gradients + count, &err));
      count += elements;
    }
  gd_run_close(&run);
  gd_backend_close(backend);
  gd_plan_deinit(&plan);
  return count;
}
