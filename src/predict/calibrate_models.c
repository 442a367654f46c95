/*
 * The models that calibration runs: one or two layers of each family, wide and narrow, long and
 * short, with vocabularies that none of the presets has.
 */
#include <stdio.h>
#include <string.h>

#include "predict/calibrate.h"

/* family, width, heads, key heads, layers, classes, seq, batch; convnext: width of its first stage,
   images of 224 x 224 as vit's. */
static const struct gd_calibrate_spec learnt[] = {
    {"gpt_neox", 256, 4, 4, 2, 8192, 512, 2},   {"gpt_neox", 128, 2, 2, 1, 40000, 2001, 1},
    {"gpt_neox", 512, 4, 4, 1, 16000, 1000, 1}, {"roberta", 192, 3, 3, 2, 16000, 500, 2},
    {"mamba", 192, 1, 1, 2, 8000, 1000, 1},     {"vit", 192, 3, 3, 2, 1200, 1, 2},
    {"convnext", 64, 1, 1, 1, 1200, 1, 1},      {"gpt2", 320, 5, 5, 1, 20000, 1000, 1},
    {"llama", 384, 6, 2, 1, 16000, 800, 1},     {"roberta", 640, 10, 10, 1, 30000, 250, 2},
    {"gpt_neox", 1024, 8, 8, 1, 4000, 250, 2},  {"mamba", 640, 1, 1, 1, 16000, 500, 1},
    {"vit", 640, 10, 10, 1, 20000, 1, 2},       {"convnext", 160, 1, 1, 1, 20000, 1, 1},
    {"llama", 1280, 20, 4, 1, 8000, 400, 1},
};

static const struct gd_calibrate_spec held_out[] = {
    {"gpt_neox", 384, 6, 6, 3, 30000, 1200, 1}, {"roberta", 320, 5, 5, 2, 24000, 400, 2},
    {"vit", 448, 7, 7, 2, 5000, 1, 2},          {"mamba", 320, 1, 1, 2, 20000, 700, 1},
    {"convnext", 96, 1, 1, 1, 5000, 1, 1},      {"llama", 512, 8, 4, 2, 24000, 600, 1},
};

const struct gd_calibrate_spec *gd_calibrate_specs(bool other, int *count) {
  *count =
      other ? (int)(sizeof held_out / sizeof *held_out) : (int)(sizeof learnt / sizeof *learnt);
  return other ? held_out : learnt;
}

static void print_config(const struct gd_calibrate_spec *s, char *text, size_t size) {
  if (strcmp(s->family, "gpt2") == 0)
    snprintf(text, size,
             "{\"model_type\":\"gpt2\",\"vocab_size\":%d,\"n_embd\":%d,\"n_head\":%d,"
             "\"n_layer\":%d,\"n_positions\":%d,\"activation_function\":\"gelu_new\","
             "\"attn_pdrop\":0.1,\"embd_pdrop\":0.1,\"resid_pdrop\":0.1}",
             s->classes, s->width, s->heads, s->layers, s->seq);
  else if (strcmp(s->family, "mamba") == 0)
    snprintf(text, size,
             "{\"model_type\":\"mamba\",\"vocab_size\":%d,\"hidden_size\":%d,"
             "\"num_hidden_layers\":%d,\"state_size\":16,\"expand\":2,\"conv_kernel\":4}",
             s->classes, s->width, s->layers);
  else if (strcmp(s->family, "convnext") == 0)
    snprintf(text, size,
             "{\"model_type\":\"convnext\",\"hidden_sizes\":[%d,%d,%d,%d],"
             "\"depths\":[%d,%d,%d,%d],\"image_size\":224,\"patch_size\":4,\"num_labels\":%d}",
             s->width, 2 * s->width, 4 * s->width, 8 * s->width, s->layers, s->layers, s->layers,
             s->layers, s->classes);
  else if (strcmp(s->family, "vit") == 0)
    snprintf(text, size,
             "{\"model_type\":\"vit\",\"hidden_size\":%d,\"num_hidden_layers\":%d,"
             "\"num_attention_heads\":%d,\"intermediate_size\":%d,\"image_size\":224,"
             "\"patch_size\":16,\"num_labels\":%d,\"hidden_act\":\"gelu\","
             "\"hidden_dropout_prob\":0.1,\"attention_probs_dropout_prob\":0.0}",
             s->width, s->layers, s->heads, 4 * s->width, s->classes);
  else /* roberta's dropout is its default; the others have none */
    snprintf(text, size,
             "{\"model_type\":\"%s\",\"vocab_size\":%d,\"hidden_size\":%d,"
             "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,"
             "\"intermediate_size\":%d,\"max_position_embeddings\":%d,\"hidden_act\":\"%s\","
             "\"rotary_pct\":0.25,\"hidden_dropout_prob\":0.1,"
             "\"attention_probs_dropout_prob\":0.1}",
             s->family, s->classes, s->width, s->layers, s->heads, s->key_heads, 4 * s->width,
             s->seq + 2, strcmp(s->family, "llama") == 0 ? "silu" : "gelu");
}

enum gd_status gd_calibrate_model(const struct gd_calibrate_spec *small, bool gpu,
                                  struct gd_model *model, struct gd_error *err) {
  char text[640];
  struct gd_json json = {0};
  const struct gd_calibrate_spec larger = {small->family,        3 * small->width, 3 * small->heads,
                                           3 * small->key_heads, small->layers,    small->classes,
                                           small->seq,           12 * small->batch};
  const struct gd_calibrate_spec *spec = gpu ? &larger : small;
  print_config(spec, text, sizeof text);
  enum gd_status status = gd_json_parse(&json, "calibration", text, (int64_t)strlen(text), err);
  if (status == GD_OK)
    status = gd_model_parse(&json, model, err);
  gd_json_deinit(&json);
  if (status != GD_OK)
    return status;
  snprintf(model->name, sizeof model->name, "%s-%d", spec->family, spec->width);
  model->recipe.batch = spec->batch;
  if (!model->family->images)
    model->recipe.seq = spec->seq;
  return GD_OK;
}
