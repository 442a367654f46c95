/*
 * The families that classify images: what their configurations may say, what is refused and how,
 * the shapes and blocks of their graphs, presets by their parameters and FLOPs. Numbers of a whole
 * model are in tests/parity.
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
#include "support/ok.h"
#include "support/tiny.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
/* What every case has; the sizes that some cases change are apart. */
#define VIT_LAYERS                                                           \
  "\"model_type\": \"vit\", \"hidden_size\": 24, \"num_hidden_layers\": 2, " \
  "\"intermediate_size\": 40"
#define VIT_IMAGE VIT_LAYERS ", \"num_attention_heads\": 3" /* lacks image and patch */
#define VIT       VIT_IMAGE ", \"image_size\": 32, \"patch_size\": 8"
#define CONVNEXT_IMAGE                                                \
  "\"model_type\": \"convnext\", \"hidden_sizes\": [8, 12, 16, 20], " \
  "\"depths\": [1, 2, 1, 1]"
#define CONVNEXT CONVNEXT_IMAGE ", \"image_size\": 64"

static void test_accepted(void **state) {
  static const char *const configs[] = {
      "{" VIT "}",
      "{" VIT_IMAGE ", \"image_size\": [24, 40], \"patch_size\": [8, 5], \"num_channels\": 1}",
      "{" VIT_IMAGE ", \"image_size\": 39, \"qkv_bias\": false, \"head_dim\": 8}",
      "{" VIT ", \"problem_type\": \"single_label_classification\", \"num_labels\": 7}",
      "{" VIT ", \"id2label\": {\"0\": \"a\", \"1\": \"b\", \"2\": \"c\"}, \"num_labels\": 3}",
      "{" CONVNEXT "}",
      "{" CONVNEXT_IMAGE ", \"image_size\": [35, 51], \"layer_scale_init_value\": 0}",
      "{" CONVNEXT ", \"drop_path_rate\": 0.4}",
      "{" CONVNEXT ", \"drop_path_rate\": 0.0, \"problem_type\": null}",
      "{\"model_type\": \"convnext\", \"image_size\": 32}", /* transformers' default sizes */
  };
  (void)state;
  for (size_t i = 0; i < COUNT(configs); i++)
    tiny_expect(configs[i], 0, GD_OK, NULL);
}

static void test_refused(void **state) {
  static const struct tiny_refused cases[] = {
      {"{" VIT ", \"hidden_act\": \"mish\"}", GD_UNSUPPORTED, "hidden_act is \"mish\""},
      {"{" VIT ", \"head_dim\": 16}", GD_UNSUPPORTED, "head_dim is 16"},
      {"{" VIT ", \"num_labels\": 1}", GD_UNSUPPORTED, "num_labels is 1"},
      {"{" VIT ", \"problem_type\": \"regression\"}", GD_UNSUPPORTED,
       "problem_type is \"regression\""},
      {"{" CONVNEXT ", \"drop_path_rate\": 1}", GD_BAD_INPUT, "drop_path_rate is 1"},
      {"{" CONVNEXT ", \"problem_type\": \"multi_label_classification\"}", GD_UNSUPPORTED,
       "problem_type is \"multi_label_classification\""},
      {"{\"model_type\": \"vit\"}", GD_BAD_INPUT, "hidden_size is missing"},
      {"{" VIT_LAYERS ", \"num_attention_heads\": 5}", GD_BAD_INPUT,
       "5 does not divide hidden_size 24"},
      {"{" VIT_IMAGE ", \"image_size\": 15}", GD_BAD_INPUT,
       "15 x 15 is smaller than patch_size 16 x 16"},
      {"{" VIT_IMAGE ", \"image_size\": [32, 0]}", GD_BAD_INPUT, "image_size is"},
      {"{" VIT_IMAGE ", \"patch_size\": [8, 8, 8]}", GD_BAD_INPUT, "patch_size is"},
      {"{" VIT ", \"hidden_dropout_prob\": 1}", GD_BAD_INPUT, "hidden_dropout_prob is 1"},
      {"{" VIT ", \"id2label\": {\"0\": \"a\", \"1\": \"b\"}, \"num_labels\": 3}", GD_BAD_INPUT,
       "num_labels is 3, but id2label names 2 classes"},
      {"{" CONVNEXT ", \"num_stages\": 3}", GD_BAD_INPUT, "hidden_sizes is"},
      {"{\"model_type\": \"convnext\", \"depths\": [1, 2, 0, 1]}", GD_BAD_INPUT, "depths is"},
      {"{\"model_type\": \"convnext\", \"depths\": [1000, 20, 4, 1]}", GD_BAD_INPUT,
       "1025 blocks in all"},
      {"{" CONVNEXT_IMAGE ", \"image_size\": 28}", GD_BAD_INPUT, "28 x 28 vanishes in 4 stages"},
  };
  (void)state;
  tiny_expect_refused(cases, COUNT(cases));
}

static int32_t last_block(const struct gd_graph *graph) {
  int32_t last = -1;
  for (gd_op_id op = 0; op < graph->n_ops; op++)
    last = graph->ops[op].block > last ? graph->ops[op].block : last;
  return last;
}

static void test_graphs(void **state) {
  struct gd_model model;
  struct gd_graph graph;
  struct gd_error err;
  (void)state;
  assert_int_equal(tiny_build("{" VIT ", \"hidden_dropout_prob\": 0.1, \"num_labels\": 9}", 0,
                              &model, &graph, &err),
                   GD_OK);
  assert_int_equal(model.recipe.seq, 17); /* 4 x 4 patches and the class token */
  assert_int_equal(model.family->classes(&model), 9);
  assert_int_equal(graph.n_dropouts, 1 + 2 * 2);
  assert_int_equal(last_block(&graph), 1);
  assert_int_equal(gd_tensor_elements(&graph, graph.pixels), 2 * 3 * 32 * 32);
  assert_int_equal(gd_tensor_elements(&graph, graph.labels), 2);
  assert_int_equal(graph.ids, GD_NONE);
  gd_graph_deinit(&graph);
  assert_int_equal(tiny_build("{" CONVNEXT "}", 0, &model, &graph, &err), GD_OK);
  assert_int_equal(model.recipe.seq, 1);
  assert_int_equal(model.family->classes(&model), 2);
  assert_int_equal(last_block(&graph), 4);
  gd_graph_deinit(&graph);
}

/* Probabilities of the dropouts that drop whole samples, and the blocks that they are in. */
static int find_drop_paths(const struct gd_graph *graph, double *probabilities, int32_t *blocks) {
  int count = 0;
  for (gd_op_id op = 0; op < graph->n_ops; op++)
    if (graph->ops[op].kind == GD_OP_dropout && graph->ops[op].attr.dropout.per_sample) {
      probabilities[count] = (double)graph->ops[op].attr.dropout.probability;
      blocks[count++] = graph->ops[op].block;
    }
  return count;
}

/* Linear over the blocks, 0 at the first: linspace(0, rate, blocks). A recipe's rate goes before
   the one in the configuration; evaluation has none. */
static void test_drop_path(void **state) {
  static const struct {
    const char *preset;
    int count; /* of ConvNeXt's 5 blocks, or of twice ViT's 2 */
    double last;
  } cases[] = {
      {"{" CONVNEXT ", \"drop_path_rate\": 0.4}", 4, 0.4},
      {"{\"config\": {" CONVNEXT "}, \"recipe\": {\"drop_path\": 0.4}}", 4, 0.4},
      {"{\"config\": {" CONVNEXT ", \"drop_path_rate\": 0.4}, \"recipe\": {\"drop_path\": 0}}", 0,
       0},
      {"{\"config\": {" VIT "}, \"recipe\": {\"drop_path\": 0.3}}", 2, 0.3},
  };
  struct gd_model model;
  struct gd_graph graph;
  struct gd_error err;
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    double p[8];
    int32_t block[8];
    assert_int_equal(tiny_build(cases[i].preset, 0, &model, &graph, &err), GD_OK);
    assert_int_equal(find_drop_paths(&graph, p, block), cases[i].count);
    for (int n = 0; n < cases[i].count; n++)
      assert_true(fabs(p[n] - cases[i].last * block[n] / last_block(&graph)) < 1e-7);
    gd_graph_deinit(&graph);
    gd_graph_init(&graph);
    graph.no_dropout = true;
    model.family->build(&model, 2, &graph);
    OK(gd_graph_check(&graph, &err));
    assert_int_equal(find_drop_paths(&graph, p, block), 0);
    gd_graph_deinit(&graph);
  }
  tiny_expect("{\"config\": {" VIT "}, \"recipe\": {\"drop_path\": 1}}", 0, GD_BAD_INPUT,
              "drop_path is 1");
  tiny_expect(
      "{\"config\": {\"model_type\": \"gpt_neox\", \"vocab_size\": 96, \"hidden_size\": 32, "
      "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 64}, "
      "\"recipe\": {\"drop_path\": 0.1}}",
      0, GD_BAD_INPUT, "is for models of images");
}

/* As transformers counts them on the meta device; FLOPs as appendix E of arXiv:2410.23261. */
static void test_presets(void **state) {
  static const struct {
    const char *name;
    int64_t parameters;
    double train_flops; /* 0: not published, or published wrong: docs/flops.md */
  } presets[] = {
      {"vit", 325688657, 4.7e20},
      {"vit-base", 102594385, 0},
      {"convnext-large-1k", 197767336, 0},
      {"convnext-large-22k", 229799953, 0},
      {"convnext-xlarge-22k", 392900177, 0},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(presets); i++)
    tiny_expect_preset(presets[i].name, presets[i].parameters, presets[i].train_flops);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_accepted), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_graphs),   cmocka_unit_test(test_drop_path),
      cmocka_unit_test(test_presets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
