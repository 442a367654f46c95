/*
 * The last position of a model that predicts the next token is left out where that leaves whole
 * tiles: which lengths that are, that other models keep all positions, and that loss and gradients
 * are those of the whole sequence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "pass/kernels.h"
#include "support/small_run.h"

#define GPT2                                                                                       \
  "{\"model_type\": \"gpt2\", \"vocab_size\": 71, \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 3, " \
  "\"n_positions\": 80, \"embd_pdrop\": 0, \"attn_pdrop\": 0, \"resid_pdrop\": 0}"
static const char *const causal[] = {"neox-serial", "neox-parallel", "llama-a", "qwen2",
                                     "qwen3",       "olmo",          "mamba-a", GPT2};
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Tokens of a sequence that the first embedding reads. */
static int64_t positions_read(const struct gd_graph *graph) {
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (graph->ops[id].kind == GD_OP_embed)
      return graph->tensors[graph->ops[id].in[1]].dims[1];
  fail_msg("no embedding");
  return 0;
}

static int64_t positions_of(const char *reference, int64_t seq, bool trims) {
  struct small_run s;
  small_start(&s, &(struct small_setup){
                      .reference = reference, .backend = "ref", .seq = seq, .trims = trims});
  assert_int_equal(s.graph.tensors[s.graph.ids].dims[1], seq);
  assert_int_equal(s.graph.tensors[s.graph.labels].dims[1], seq);
  int64_t positions = positions_read(&s.graph);
  small_stop(&s);
  return positions;
}

static void test_which_lengths(void **state) {
  (void)state;
  assert_int_equal(positions_of("neox-serial", 65, true), 64);
  assert_int_equal(positions_of("neox-serial", 129, true), 128);
  assert_int_equal(positions_of("neox-serial", 65, false), 65);
  assert_int_equal(positions_of("neox-serial", 64, true), 64);
  assert_int_equal(positions_of("neox-serial", 66, true), 66);
  assert_int_equal(positions_of("neox-serial", 1, true), 1);
  assert_int_equal(positions_of("roberta-a", 13, true), 13);
}

/* All four families, and both losses: logits stored, and the fused one. */
static void test_same_gradients(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(causal); i++)
    for (int fused = 0; fused < 2; fused++) {
      struct small_setup setup = {.reference = causal[i],
                                  .backend = fused ? "cpu" : "ref",
                                  .seq = 65,
                                  .micro_batch = 2,
                                  .before = fused ? gd_kernels_loss : NULL};
      struct small_run whole, trimmed;
      const char *name;
      small_start(&whole, &setup);
      setup.trims = true;
      small_start(&trimmed, &setup);
      assert_int_equal(positions_read(&trimmed.graph), 64);
      double loss = small_pass(&trimmed), expected = small_pass(&whole);
      double worst = small_worst_gradient(&trimmed, &whole, &name);
      if (!(fabs(loss - expected) <= 1e-6 * expected) || !(worst <= 2e-6))
        fail_msg("%s: loss %.9g, whole %.9g; gradient of %s off by %.3g", causal[i], loss, expected,
                 name, worst);
      small_stop(&whole);
      small_stop(&trimmed);
    }
}

static void test_no_label_counts(void **state) {
  (void)state;
  struct small_run s;
  small_start(&s, &(struct small_setup){.reference = "neox-serial",
                                        .backend = "ref",
                                        .seq = 65,
                                        .trims = true,
                                        .all_ignored = true});
  assert_true(small_pass(&s) == 0);
  small_stop(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_which_lengths),
      cmocka_unit_test(test_same_gradients),
      cmocka_unit_test(test_no_label_counts),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
