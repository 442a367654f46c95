/*
 * Other names of parameters: each as a library or an author's checkpoint really has it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model/aliases.h"

/* The tensor that is found for a name in a file that holds `stored` and another one. */
static const char *found_in(const struct gd_family *family, const char *stored, const char *prefix,
                            const char *name) {
  struct gd_safetensor tensors[] = {{.name = "!"}, {.name = stored}};
  const struct gd_safetensors file = {.tensors = tensors, .count = 2};
  const struct gd_safetensor *tensor = gd_find_parameter(family, &file, prefix, name);
  return tensor ? tensor->name : "";
}

static void test_names(void **state) {
  static const struct {
    const struct gd_family *family;
    const char *name, *stored;
  } cases[] = {
      {&gd_family_neox, "embed_out.weight", "embed_out.weight"},
      {&gd_family_neox, "embed_out.weight", "lm_head.weight"},
      {&gd_family_neox, "gpt_neox.layers.3.mlp.dense_h_to_4h.bias",
       "layers.3.mlp.dense_h_to_4h.bias"},
      {&gd_family_gpt2, "transformer.h.0.attn.c_attn.weight", "h.0.attn.c_attn.weight"},
      {&gd_family_llama, "model.layers.0.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"},
      {&gd_family_mistral, "model.embed_tokens.weight", "embed_tokens.weight"},
      {&gd_family_qwen2, "model.norm.weight", "norm.weight"},
      {&gd_family_olmo, "model.embed_tokens.weight", "embed_tokens.weight"},
      {&gd_family_mamba, "backbone.embeddings.weight", "backbone.embedding.weight"},
      {&gd_family_mamba, "backbone.embeddings.weight", "embeddings.weight"},
      {&gd_family_roberta, "lm_head.bias", "lm_head.decoder.bias"},
      {&gd_family_roberta, "roberta.embeddings.LayerNorm.weight",
       "roberta.embeddings.LayerNorm.gamma"},
      {&gd_family_bert, "cls.predictions.bias", "cls.predictions.decoder.bias"},
      {&gd_family_bert, "bert.encoder.layer.0.output.LayerNorm.bias",
       "bert.encoder.layer.0.output.LayerNorm.beta"},
      {&gd_family_vit, "vit.encoder.layer.1.attention.attention.query.bias",
       "vit.layers.1.attention.q_proj.bias"},
      {&gd_family_vit, "vit.encoder.layer.1.attention.output.dense.weight",
       "vit.layers.1.attention.o_proj.weight"},
      {&gd_family_vit, "vit.encoder.layer.1.output.dense.weight", "vit.layers.1.mlp.fc2.weight"},
      {&gd_family_vit, "vit.encoder.layer.1.layernorm_after.weight",
       "vit.layers.1.layernorm_after.weight"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char gradient[128] = "grad.";
    strncat(gradient, cases[i].stored, sizeof gradient - 6);
    assert_string_equal(found_in(cases[i].family, cases[i].stored, "", cases[i].name),
                        cases[i].stored);
    assert_string_equal(found_in(cases[i].family, gradient, "grad.", cases[i].name), gradient);
  }
}

/* A name of another family is no name of this one, and a name that is too long is none. */
static void test_strangers(void **state) {
  char longest[512];
  (void)state;
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  assert_string_equal(found_in(&gd_family_llama, "lm_head.weight", "", "embed_out.weight"), "");
  assert_string_equal(found_in(&gd_family_vit, "encoder.weight", "", "transformer.encoder.weight"),
                      "");
  assert_string_equal(found_in(&gd_family_neox, longest, "", longest), "");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                     cmocka_unit_test(test_strangers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
