/*
 * The recipes of the presets against what their authors published, figure by figure: a preset that
 * is changed without its source fails here. Where sources disagree, the preset's own "source" says
 * which one is taken and why; the ones that were doubted are named in it.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/embedded.h"
#include "base/json.h"
#include "data/image_set.h"
#include "model/model.h"

static const struct published {
  const char *model;
  double lr, min_lr, beta2, eps, weight_decay, max_grad_norm;
  int64_t warmup_steps;
} published[] = {
    /* arXiv:2304.01373, Table 1; EleutherAI/pythia models/ (yml), README and issue 132 */
    {"pythia-14m", 1e-3, 1e-4, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-31m", 1e-3, 1e-4, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-70m", 1e-3, 1e-4, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-160m", 6e-4, 6e-5, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-410m", 3e-4, 3e-5, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-1b", 3e-4, 3e-5, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-1.4b", 2e-4, 2e-5, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-2.8b", 1.6e-4, 1.6e-5, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-6.9b", 1.2e-4, 1.2e-5, 0.95, 1e-8, 0.1, 1, 1430},
    {"pythia-12b", 1.2e-4, 1.2e-5, 0.95, 1e-8, 0.1, 1, 1430},
    /* arXiv:2312.00752, appendix E.2; state-spaces/mamba issues 144 (rate) and 184 (warm-up) */
    {"mamba-130m", 5 * 6e-4, 1e-5, 0.95, 1e-8, 0.1, 1, 57200},
    {"mamba-370m", 5 * 3e-4, 1e-5, 0.95, 1e-8, 0.1, 1, 57200},
    {"mamba-790m", 5 * 2.5e-4, 1e-5, 0.95, 1e-8, 0.1, 1, 57200},
    {"mamba-1.4b", 5 * 2e-4, 1e-5, 0.95, 1e-8, 0.1, 1, 57200},
    {"mamba", 3 * 1.6e-4, 1e-5, 0.95, 1e-8, 0.1, 1, 57200},
    /* arXiv:1907.11692, Table 9; fairseq examples/roberta/config/pretraining/base.yaml */
    {"roberta-base", 6e-4, 0, 0.98, 1e-6, 0.01, 0, 24000},
    {"roberta", 4e-4, 0, 0.98, 1e-6, 0.01, 0, 30000},
    /* arXiv:2010.11929, Table 3: ImageNet-21k */
    {"vit-base", 1e-3, 0, 0.999, 1e-8, 0.03, 0, 10000},
    {"vit", 1e-3, 0, 0.999, 1e-8, 0.03, 0, 10000},
    /* arXiv:2201.03545, Table 5; facebookresearch/ConvNeXt main.py: 20 and 5 epochs of warm-up */
    {"convnext-large-1k", 4e-3, 1e-6, 0.999, 1e-8, 0.05, 0, 6240},
    {"convnext-large-22k", 4e-3, 1e-6, 0.999, 1e-8, 0.05, 0, 17333},
    {"convnext-xlarge-22k", 4e-3, 1e-6, 0.999, 1e-8, 0.05, 0, 17333},
    /* google-research/bert optimization.py; arXiv:1810.04805, appendix A.2 */
    {"bert-base", 1e-4, 0, 0.999, 1e-6, 0.01, 1, 10000},
    /* arXiv:1909.08053, section 4.2 */
    {"gpt-345m", 1.5e-4, 1e-5, 0.999, 1e-8, 0.01, 1, 3000},
    {"gpt-2.5b", 1.5e-4, 1e-5, 0.999, 1e-8, 0.01, 1, 3000},
    {"gpt-5.8b", 1.5e-4, 1e-5, 0.999, 1e-8, 0.01, 1, 3000},
    /* karpathy/nanoGPT train.py, with the rates of arXiv:2005.14165, Table 2.1 */
    {"gpt2", 6e-4, 6e-5, 0.95, 1e-8, 0.1, 1, 2000},
    {"gpt2-medium", 3e-4, 3e-5, 0.95, 1e-8, 0.1, 1, 2000},
    {"gpt2-large", 2.5e-4, 2.5e-5, 0.95, 1e-8, 0.1, 1, 2000},
    {"gpt2-xl", 2e-4, 2e-5, 0.95, 1e-8, 0.1, 1, 2000},
    /* arXiv:2407.21783, Table 3 and section 3.4.1; arXiv:2307.09288 */
    {"llama-3.1-8b", 3e-4, 3e-6, 0.95, 1e-5, 0.1, 1, 8000},
    {"llama-3.2-1b", 3e-4, 3e-6, 0.95, 1e-5, 0.1, 1, 8000},
    /* allenai/OLMo configs/official/OLMo-1B.yaml; arXiv:2402.00838 (eps) */
    {"olmo-1b", 4e-4, 4e-5, 0.95, 1e-5, 0.1, 1, 2000},
    /* jzhang38/TinyLlama pretrain/tinyllama.py */
    {"tinyllama-1.1b", 4e-4, 4e-5, 0.95, 1e-8, 0.1, 1, 2000},
    /* huggingface/smollm pre-training/smollm1/config_smollm1_135M.yaml */
    {"smollm-135m", 3e-3, 0, 0.95, 1e-8, 0.01, 1, 2000},
    /* arXiv:2309.16609, Table 1 and section 2.4: Qwen2.5's own are not published */
    {"qwen2.5-0.5b", 3e-4, 3e-5, 0.95, 1e-8, 0.1, 1, 2000},
    /* the same: Qwen3's are not published either */
    {"qwen3-0.6b", 3e-4, 3e-5, 0.95, 1e-8, 0.1, 1, 2000},
    {"qwen3-1.7b", 3e-4, 3e-5, 0.95, 1e-8, 0.1, 1, 2000},
    {"qwen3-4b", 3e-4, 3e-5, 0.95, 1e-8, 0.1, 1, 2000},
    {"qwen3-8b", 3e-4, 3e-5, 0.95, 1e-8, 0.1, 1, 2000},
};
enum { PUBLISHED = sizeof published / sizeof *published };

static void expect(const char *model, const char *field, double has, double wants) {
  if (fabs(has - wants) > 1e-9 * fabs(wants))
    fail_msg("%s: %s is %g, its source says %g", model, field, has, wants);
}

static void test_published(void **state) {
  (void)state;
  for (int i = 0; i < PUBLISHED; i++) {
    const struct published *p = &published[i];
    struct gd_model model;
    struct gd_error err = {0};
    if (gd_model_load(p->model, &model, &err) != GD_OK)
      fail_msg("%s", err.text);
    expect(p->model, "lr", model.recipe.lr, p->lr);
    expect(p->model, "min_lr", model.recipe.min_lr, p->min_lr);
    expect(p->model, "beta1", model.recipe.beta1, 0.9);
    expect(p->model, "beta2", model.recipe.beta2, p->beta2);
    expect(p->model, "eps", model.recipe.eps, p->eps);
    expect(p->model, "weight_decay", model.recipe.weight_decay, p->weight_decay);
    expect(p->model, "max_grad_norm", model.recipe.max_grad_norm, p->max_grad_norm);
    expect(p->model, "warmup_steps", (double)model.recipe.warmup_steps, (double)p->warmup_steps);
    /* Also what they call Adam: apex, fairseq and flax decay the parameter. */
    if (!gd_recipe_decouples(&model.recipe))
      fail_msg("%s: weight decay is added to the gradient", p->model);
  }
}

/* What train does with images: Table 5 of arXiv:2201.03545; vit_jax/input_pipeline.py of
   google-research/vision_transformer. Every part is one that there is. */
static void test_images(void **state) {
  (void)state;
  static const char convnext[] =
      "crop,bicubic,flip,rand-m9-mstd0.5-inc1,noise=0.25,mixup=0.8,cutmix=1";
  static const struct {
    const char *model, *augment, *normalize;
    double smoothing, drop_path;
  } cases[] = {
      {"convnext-large-1k", convnext, "imagenet", 0.1, 0.5},
      {"convnext-large-22k", convnext, "imagenet", 0.1, 0.1},
      {"convnext-xlarge-22k", convnext, "imagenet", 0.1, 0.2},
      {"vit", "crop,flip", "half", 0, 0},
      {"vit-base", "crop,flip", "half", 0, 0},
      {"pythia-14m", "", "", 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_model model;
    struct gd_error err = {0};
    struct gd_augment augment;
    enum gd_normalize normalize;
    assert_int_equal(gd_model_load(cases[i].model, &model, &err), GD_OK);
    assert_string_equal(model.images.augment, cases[i].augment);
    assert_string_equal(model.images.normalize, cases[i].normalize);
    expect(cases[i].model, "label_smoothing", model.images.label_smoothing, cases[i].smoothing);
    expect(cases[i].model, "drop_path", model.images.drop_path, cases[i].drop_path);
    expect(cases[i].model, "drop_path of plans", model.recipe.drop_path, 0);
    if (!model.family->images)
      continue;
    assert_int_equal(gd_augment_parse(model.images.augment, &augment, &err), GD_OK);
    assert_true(gd_normalize_parse(model.images.normalize, &normalize));
  }
}

/* What a run keeps and a trial's process gets is read as it was: all of it. */
static void test_json(void **state) {
  (void)state;
  const struct gd_recipe wrote = {.batch = 3,
                                  .seq = 5,
                                  .steps = 70,
                                  .precision = GD_PRECISION_FP16,
                                  .optimizer = GD_OPTIMIZER_ADAM,
                                  .decoupled_decay = true,
                                  .lr = 0.5,
                                  .min_lr = 0.25,
                                  .beta1 = 0.125,
                                  .beta2 = 0.75,
                                  .eps = 0.0625,
                                  .weight_decay = 1.5,
                                  .max_grad_norm = 2.5,
                                  .schedule = GD_SCHEDULE_WSD,
                                  .warmup_steps = 7,
                                  .decay_steps = 9,
                                  .drop_path = 0.375};
  struct gd_model model;
  struct gd_error err = {0};
  struct gd_json json = {0};
  struct gd_strbuf text = {0};
  json_t *object = gd_recipe_json(&wrote);
  assert_true(gd_json_append(&text, object, 0));
  json_decref(object);
  assert_int_equal(gd_json_parse(&json, "recipe", text.text, (int64_t)text.length, &err), GD_OK);
  assert_int_equal(gd_model_load("pythia-14m", &model, &err), GD_OK);
  assert_int_equal(gd_recipe_parse(&json, json.root, &model.recipe, &err), GD_OK);
  const struct gd_recipe *read = &model.recipe;
  assert_true(read->batch == 3 && read->seq == 5 && read->steps == 70);
  assert_true(read->precision == wrote.precision && read->optimizer == wrote.optimizer);
  assert_true(read->decoupled_decay && read->lr == 0.5 && read->min_lr == 0.25);
  assert_true(read->beta1 == 0.125 && read->beta2 == 0.75 && read->eps == 0.0625);
  assert_true(read->weight_decay == 1.5 && read->max_grad_norm == 2.5);
  assert_true(read->schedule == wrote.schedule && read->warmup_steps == 7);
  assert_true(read->decay_steps == 9 && read->drop_path == 0.375);
  gd_json_deinit(&json);
  gd_strbuf_deinit(&text);
}

/* Every preset is held against something above, and says where its figures come from. */
static void test_every_preset(void **state) {
  int presets = 0;
  (void)state;
  for (int i = 0; i < gd_embedded_file_count; i++) {
    const struct gd_embedded_file *file = &gd_embedded_files[i];
    struct gd_json json = {0};
    struct gd_error err = {0};
    const char *name, *source, *date;
    bool listed = false;
    if (strncmp(file->path, "models/", 7) != 0)
      continue;
    if (gd_json_parse(&json, file->path, file->text, file->length, &err) != GD_OK ||
        gd_json_string(&json, json.root, "name", &name, &err) != GD_OK ||
        gd_json_string(&json, json.root, "source", &source, &err) != GD_OK ||
        gd_json_string(&json, json.root, "date", &date, &err) != GD_OK)
      fail_msg("%s", err.text);
    if (strlen(source) < 20 || strlen(date) < 4)
      fail_msg("%s: no source, or no date", file->path);
    for (int j = 0; j < PUBLISHED && !listed; j++)
      listed = strcmp(published[j].model, name) == 0;
    if (!listed)
      fail_msg("%s: no published figures in this test", file->path);
    presets++;
    gd_json_deinit(&json);
  }
  assert_int_equal(presets, PUBLISHED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_published),
      cmocka_unit_test(test_images),
      cmocka_unit_test(test_json),
      cmocka_unit_test(test_every_preset),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
