/*
 * The language families: what their configurations may say, what is refused and how, presets by
 * their parameters and FLOPs, and rotary frequencies. Numbers of a whole model are in tests/parity.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
#include "model/rope.h"
#include "support/tiny.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define SIZES                                                           \
  "\"vocab_size\": 96, \"hidden_size\": 32, \"num_hidden_layers\": 2, " \
  "\"num_attention_heads\": 4, \"intermediate_size\": 48, \"max_position_embeddings\": 40"
#define LLAMA   "\"model_type\": \"llama\", " SIZES
#define MISTRAL "\"model_type\": \"mistral\", \"num_key_value_heads\": 2, " SIZES
#define QWEN2   "\"model_type\": \"qwen2\", " SIZES
#define OLMO    "\"model_type\": \"olmo\", " SIZES
#define ROBERTA "\"model_type\": \"roberta\", " SIZES
#define BERT    "\"model_type\": \"bert\", " SIZES
#define GPT2                                                                       \
  "\"model_type\": \"gpt2\", \"vocab_size\": 96, \"n_embd\": 32, \"n_layer\": 2, " \
  "\"n_head\": 4, \"n_positions\": 40"

static void test_accepted(void **state) {
  static const char *const configs[] = {
      "{" GPT2 "}",
      "{\"model_type\": \"gpt2\", " SIZES ", \"n_inner\": 7}",
      "{" GPT2 ", \"n_inner\": null, \"tie_word_embeddings\": false}",
      "{" LLAMA "}",
      "{" LLAMA ", \"num_key_value_heads\": 1, \"head_dim\": 6, \"pad_token_id\": -1}",
      "{" LLAMA ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
      "{" LLAMA ", \"rope_parameters\": {\"rope_theta\": 500, \"rope_type\": \"default\"}}",
      "{" LLAMA ", \"rope_scaling\": {}, \"clip_qkv\": null}",
      "{" MISTRAL ", \"sliding_window\": null}",
      "{" QWEN2 ", \"sliding_window\": 8, \"use_sliding_window\": false}",
      "{" QWEN2 ", \"sliding_window\": 8, \"use_sliding_window\": true}", /* past layer 28 */
      "{" QWEN2 ", \"sliding_window\": 8, \"use_sliding_window\": true, "
      "\"layer_types\": [\"full_attention\", \"full_attention\"]}",
      "{" OLMO ", \"pad_token_id\": null}",
      "{" ROBERTA "}",
      "{" BERT ", \"pad_token_id\": null, \"hidden_act\": \"relu\"}",
  };
  (void)state;
  for (size_t i = 0; i < COUNT(configs); i++)
    tiny_expect(configs[i], 0, GD_OK, NULL);
}

static void test_unsupported(void **state) {
  static const struct {
    const char *config, *part;
  } cases[] = {
      {"{" GPT2 ", \"activation_function\": \"mish\"}", "activation_function is \"mish\""},
      {"{" GPT2 ", \"scale_attn_weights\": false}", "scale_attn_weights is false"},
      {"{" GPT2 ", \"scale_attn_by_inverse_layer_idx\": true}", "inverse_layer_idx is true"},
      {"{" GPT2 ", \"reorder_and_upcast_attn\": true}", "reorder_and_upcast_attn is true"},
      {"{" GPT2 ", \"add_cross_attention\": true}", "add_cross_attention is true"},
      {"{" LLAMA ", \"hidden_act\": \"laplace\"}", "hidden_act is \"laplace\""},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"longrope\"}}",
       "rope_scaling.rope_type is \"longrope\""},
      {"{" LLAMA ", \"rope_parameters\": {\"type\": \"axial\"}}",
       "rope_parameters.type is \"axial\""},
      {"{" LLAMA ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor is 0.5"},
      {"{" LLAMA ", \"sliding_window\": 16}", "sliding_window is 16"},
      {"{" MISTRAL ", \"sliding_window\": 39}", "sliding_window is 39"},
      {"{" QWEN2 ", \"sliding_window\": 8, \"use_sliding_window\": true, "
       "\"max_window_layers\": 1}",
       "sliding_window is 8"},
      {"{" OLMO ", \"clip_qkv\": 8.0}", "clip_qkv is 8"},
      {"{" ROBERTA ", \"is_decoder\": true}", "is_decoder is true"},
      {"{" ROBERTA ", \"add_cross_attention\": true}", "add_cross_attention is true"},
      {"{" ROBERTA ", \"tie_word_embeddings\": false}", "tie_word_embeddings is false"},
      {"{" BERT ", \"position_embedding_type\": \"relative_key\"}",
       "position_embedding_type is \"relative_key\""},
      {"{" BERT ", \"hidden_act\": \"mish\"}", "hidden_act is \"mish\""},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++)
    tiny_expect(cases[i].config, 0, GD_UNSUPPORTED, cases[i].part);
}

static void test_bad(void **state) {
  static const struct {
    const char *config, *part;
    int64_t seq;
  } cases[] = {
      {"{\"model_type\": \"gpt2\", \"vocab_size\": 9}", "n_positions is missing", 0},
      {"{\"model_type\": \"gpt2\", " SIZES ", \"n_head\": 5}", "5 does not divide n_embd 32", 0},
      {"{" GPT2 ", \"n_inner\": 0}", "n_inner is 0", 0},
      {"{" GPT2 ", \"attn_pdrop\": 1}", "attn_pdrop is 1; expected a number from 0 to below 1", 0},
      {"{" GPT2 "}", "a sequence of 41 tokens is longer than the model's 40 positions", 41},
      {"{" LLAMA ", \"num_key_value_heads\": 3}", "3 does not divide num_attention_heads 4", 0},
      {"{" LLAMA ", \"head_dim\": 7}", "a head has 7 dims", 0},
      {"{" LLAMA ", \"rope_scaling\": 3}", "rope_scaling is 3; expected an object or null", 0},
      {"{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}", "rope_scaling.factor is missing",
       0},
      {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
       "\"low_freq_factor\": 4, \"high_freq_factor\": 4}}",
       "high_freq_factor is 4; expected more than low_freq_factor", 0},
      {"{" LLAMA ", \"pad_token_id\": 96}", "pad_token_id is 96", 0},
      {"{" ROBERTA ", \"pad_token_id\": null}", "pad_token_id is null", 0},
      {"{" ROBERTA ", \"pad_token_id\": 39}", "pad_token_id is 39", 0},
      {"{" ROBERTA "}", "a sequence of 39 tokens is longer than the 38 positions", 39},
      {"{" BERT "}", "a sequence of 41 tokens is longer than the 40 positions", 41},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++)
    tiny_expect(cases[i].config, cases[i].seq, GD_BAD_INPUT, cases[i].part);
}

/* Without a recipe the sequence is what the positions allow; dropout is transformers' default. */
static void test_defaults(void **state) {
  struct gd_model model;
  struct gd_graph graph;
  struct gd_error err;
  (void)state;
  assert_int_equal(tiny_parse("{" GPT2 "}", &model, &err), GD_OK);
  assert_int_equal(model.recipe.seq, 40);
  assert_int_equal(tiny_parse("{" ROBERTA "}", &model, &err), GD_OK);
  assert_int_equal(model.recipe.seq, 38);
  assert_int_equal(tiny_parse("{" BERT "}", &model, &err), GD_OK);
  assert_int_equal(model.recipe.seq, 40);
  /* The same of presets, unless their recipe says how long a sequence is. */
  assert_int_equal(tiny_parse("{\"config\": {" GPT2 "}}", &model, &err), GD_OK);
  assert_int_equal(model.recipe.seq, 40);
  assert_int_equal(
      tiny_parse("{\"config\": {" ROBERTA "}, \"recipe\": {\"batch\": 8}}", &model, &err), GD_OK);
  assert_int_equal(model.recipe.seq, 38);
  assert_int_equal(tiny_parse("{\"config\": {" GPT2 "}, \"recipe\": {\"seq\": 41}}", &model, &err),
                   GD_OK);
  assert_int_equal(model.recipe.seq, 41);
  assert_int_equal(tiny_build("{" GPT2 "}", 0, &model, &graph, &err), GD_OK);
  assert_int_equal(graph.n_dropouts, 1 + 3 * 2);
  gd_graph_deinit(&graph);
  assert_int_equal(tiny_build("{" ROBERTA "}", 0, &model, &graph, &err), GD_OK);
  assert_int_equal(graph.n_dropouts, 1 + 3 * 2);
  gd_graph_deinit(&graph);
  assert_int_equal(tiny_build("{" LLAMA "}", 0, &model, &graph, &err), GD_OK);
  assert_int_equal(graph.n_dropouts, 0);
  gd_graph_deinit(&graph);
}

/* As transformers counts them on the meta device. */
static void test_presets(void **state) {
  static const struct {
    const char *name;
    int64_t parameters;
    double train_flops; /* 0: not published */
  } presets[] = {
      {"gpt2", 124439808, 0},          {"gpt2-medium", 354823168, 0},
      {"gpt2-large", 774030080, 0},    {"gpt2-xl", 1557611200, 0},
      {"gpt-345m", 354871296, 0},      {"gpt-2.5b", 2522320896, 0},
      {"gpt-5.8b", 5796111360, 0},     {"tinyllama-1.1b", 1100048384, 0},
      {"llama-3.2-1b", 1235814400, 0}, {"llama-3.1-8b", 8030261248, 0},
      {"olmo-1b", 1176764416, 0},      {"roberta", 355412057, 4.8e21},
      {"roberta-base", 124697433, 0},  {"bert-base", 109514298, 0},
      {"smollm-135m", 134515008, 0},   {"qwen2.5-0.5b", 494032768, 0},
      {"qwen3-0.6b", 596049920, 0},    {"qwen3-1.7b", 1720574976, 0},
      {"qwen3-4b", 4022468096, 0},     {"qwen3-8b", 8190735360, 0},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(presets); i++)
    tiny_expect_preset(presets[i].name, presets[i].parameters, presets[i].train_flops);
}

static const float *frequencies(struct gd_graph *graph, const struct gd_rope *rope, int64_t t) {
  gd_tensor_id table = gd_rope_table(graph, rope, t, t, 8);
  assert_int_not_equal(table, GD_NONE);
  return graph->tensors[table].frequencies;
}

static void expect_frequency(float found, double expected) {
  if (!(fabs((double)found / expected - 1) < 1e-6))
    fail_msg("frequency %.9g, expected %.9g", (double)found, expected);
}

static void test_rope(void **state) {
  struct gd_graph graph;
  struct gd_rope rope = {.base = 10000, .factor = 4, .original = 64, .magnitude = 1};
  (void)state;
  gd_graph_init(&graph);
  const float *plain = frequencies(&graph, &rope, 64);
  rope.type = GD_ROPE_LINEAR;
  const float *linear = frequencies(&graph, &rope, 64);
  rope.type = GD_ROPE_DYNAMIC;
  const float *shorter = frequencies(&graph, &rope, 64), *longer = frequencies(&graph, &rope, 128);
  rope.type = GD_ROPE_LLAMA3;
  rope.slow = 1;
  rope.fast = 4;
  const float *llama3 = frequencies(&graph, &rope, 64);
  for (int i = 0; i < 4; i++) {
    double frequency = pow(10, -i); /* 10000^(-2i/8) */
    expect_frequency(plain[i], frequency);
    expect_frequency(linear[i], frequency / 4);
    expect_frequency(shorter[i], frequency);
    /* The base grows by (4 x 2 - 3)^(8/6). */
    expect_frequency(longer[i], frequency * pow(5, -i / 3.0));
  }
  /* In 64 positions the pairs turn 10 times, 1.02 times and 0.1 times. */
  double kept = (6.4 / 6.283185307179586 - 1) / 3;
  expect_frequency(llama3[0], 1);
  expect_frequency(llama3[1], 0.1 * ((1 - kept) / 4 + kept));
  expect_frequency(llama3[2], 0.01 / 4);
  gd_graph_deinit(&graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_accepted), cmocka_unit_test(test_unsupported),
      cmocka_unit_test(test_bad),      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_presets),  cmocka_unit_test(test_rope),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
