/*
 * A recipe: the names of its choices, what a file says of it, and the learning rate of a step. What
 * the command line says instead is recipe_change.c's.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "model/config.h"
#include "model/model.h"

/* --- names of the recipe's choices --------------------------------------------------------- */

static const char *const precision_names[] = {
    [GD_PRECISION_FP32] = "fp32", [GD_PRECISION_FP16] = "fp16", [GD_PRECISION_BF16] = "bf16"};
static const char *const optimizer_names[] = {
    [GD_OPTIMIZER_ADAM] = "adam", [GD_OPTIMIZER_ADAMW] = "adamw"};
static const char *const schedule_names[] = {[GD_SCHEDULE_CONSTANT] = "constant",
                                             [GD_SCHEDULE_LINEAR] = "linear",
                                             [GD_SCHEDULE_COSINE] = "cosine",
                                             [GD_SCHEDULE_WSD] = "wsd"};
enum {
  PRECISION_COUNT = sizeof precision_names / sizeof *precision_names,
  OPTIMIZER_COUNT = sizeof optimizer_names / sizeof *optimizer_names,
  SCHEDULE_COUNT = sizeof schedule_names / sizeof *schedule_names,
};

static int find_name(const char *const *names, int count, const char *text) {
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], text) == 0)
      return i;
  return -1;
}

const char *gd_precision_name(enum gd_precision precision) {
  GD_ASSERT((int)precision < PRECISION_COUNT);
  return precision_names[precision];
}

enum gd_dtype gd_precision_dtype(enum gd_precision precision) {
  static const enum gd_dtype dtypes[] = {[GD_PRECISION_FP32] = GD_DTYPE_F32,
                                         [GD_PRECISION_FP16] = GD_DTYPE_F16,
                                         [GD_PRECISION_BF16] = GD_DTYPE_BF16};
  return dtypes[precision];
}

bool gd_recipe_decouples(const struct gd_recipe *recipe) {
  return recipe->optimizer == GD_OPTIMIZER_ADAMW || recipe->decoupled_decay;
}

const char *gd_recipe_decay_name(const struct gd_recipe *recipe) {
  bool unusual = recipe->optimizer == GD_OPTIMIZER_ADAM && gd_recipe_decouples(recipe);
  return unusual ? "decoupled weight decay" : "weight decay";
}

const char *gd_optimizer_name(enum gd_optimizer optimizer) {
  GD_ASSERT((int)optimizer < OPTIMIZER_COUNT);
  return optimizer_names[optimizer];
}

const char *gd_schedule_name(enum gd_schedule schedule) {
  GD_ASSERT((int)schedule < SCHEDULE_COUNT);
  return schedule_names[schedule];
}

bool gd_precision_parse(const char *text, enum gd_precision *precision) {
  enum gd_dtype dtype; /* a dtype has more names than "fp16" */
  if (!gd_dtype_parse(text, &dtype))
    return false;
  for (int i = 0; i < PRECISION_COUNT; i++)
    if (gd_precision_dtype((enum gd_precision)i) == dtype) {
      *precision = (enum gd_precision)i;
      return true;
    }
  return false;
}

bool gd_optimizer_parse(const char *text, enum gd_optimizer *optimizer) {
  int found = find_name(optimizer_names, OPTIMIZER_COUNT, text);
  if (found >= 0)
    *optimizer = (enum gd_optimizer)found;
  return found >= 0;
}

bool gd_schedule_parse(const char *text, enum gd_schedule *schedule) {
  int found = find_name(schedule_names, SCHEDULE_COUNT, text);
  if (found >= 0)
    *schedule = (enum gd_schedule)found;
  return found >= 0;
}

/* --- recipes ------------------------------------------------------------------------------- */

/* Past any run, and far enough from overflow that batch * seq and batch * steps fit. */
static const int64_t most_sequences = 1000000000, most_steps = 1000000000;

static const char *const recipe_keys[] = {
    "batch",        "seq",          "steps",           "precision",
    "optimizer",    "lr",           "min_lr",          "betas",
    "eps",          "weight_decay", "max_grad_norm",   "schedule",
    "warmup_steps", "decay_steps",  "decoupled_decay", "drop_path",
};

static enum gd_status read_betas(const struct gd_json *json, const json_t *object,
                                 struct gd_recipe *recipe, struct gd_error *err) {
  const json_t *betas = json_object_get(object, "betas");
  double values[2];
  bool fine = json_is_array(betas) && json_array_size(betas) == 2;
  for (size_t i = 0; fine && i < 2; i++) {
    const json_t *beta = json_array_get(betas, i);
    values[i] = json_number_value(beta);
    /* Compared as the float the optimizer computes with: 1 - beta divides. */
    fine = json_is_number(beta) && values[i] >= 0 && (float)values[i] < 1.0f;
  }
  if (!fine)
    return gd_json_mismatch(json, object, "betas", "two numbers from 0 to below 1", err);
  recipe->beta1 = values[0];
  recipe->beta2 = values[1];
  return GD_OK;
}

static enum gd_status read_choices(const struct gd_json *json, const json_t *object,
                                   struct gd_recipe *recipe, struct gd_error *err) {
  const char *text;
  if (gd_json_has(object, "precision")) {
    GD_TRY(gd_json_string(json, object, "precision", &text, err));
    if (!gd_precision_parse(text, &recipe->precision))
      return gd_json_mismatch(json, object, "precision", "fp32, fp16 or bf16", err);
  }
  if (gd_json_has(object, "optimizer")) {
    GD_TRY(gd_json_string(json, object, "optimizer", &text, err));
    if (!gd_optimizer_parse(text, &recipe->optimizer))
      return gd_json_mismatch(json, object, "optimizer", "adam or adamw", err);
    recipe->decoupled_decay = false;
  }
  if (gd_json_has(object, "decoupled_decay")) {
    GD_TRY(gd_json_bool(json, object, "decoupled_decay", &recipe->decoupled_decay, err));
    if (recipe->optimizer == GD_OPTIMIZER_ADAMW && !recipe->decoupled_decay)
      return gd_json_mismatch(json, object, "decoupled_decay", "true, as adamw has it", err);
  }
  if (gd_json_has(object, "schedule")) {
    GD_TRY(gd_json_string(json, object, "schedule", &text, err));
    if (!gd_schedule_parse(text, &recipe->schedule))
      return gd_json_mismatch(json, object, "schedule", "constant, linear, cosine or wsd", err);
  }
  return GD_OK;
}

enum gd_status gd_recipe_parse(const struct gd_json *json, json_t *object, struct gd_recipe *recipe,
                               struct gd_error *err) {
  struct gd_recipe read = *recipe;
  GD_TRY(gd_config_keys(json, object, "a recipe", recipe_keys,
                        (int)(sizeof recipe_keys / sizeof *recipe_keys), err));
  GD_TRY(gd_config_int(json, object, "batch", 1, most_sequences, &read.batch, err));
  GD_TRY(gd_config_int(json, object, "seq", 1, most_sequences, &read.seq, err));
  GD_TRY(gd_config_int(json, object, "steps", 1, most_steps, &read.steps, err));
  GD_TRY(read_choices(json, object, &read, err));
  GD_TRY(gd_config_number(json, object, "lr", 0, 1000, &read.lr, err));
  if (gd_json_has(object, "lr"))
    read.min_lr = read.lr / 10; /* the ratio of the default recipe, and of Pythia's */
  GD_TRY(gd_config_number(json, object, "min_lr", 0, read.lr, &read.min_lr, err));
  if (gd_json_has(object, "betas"))
    GD_TRY(read_betas(json, object, &read, err));
  /* The optimizer divides by sqrt(v) + eps in fp32, and v may be zero. */
  GD_TRY(gd_config_number(json, object, "eps", (double)FLT_MIN, 1, &read.eps, err));
  GD_TRY(gd_config_number(json, object, "weight_decay", 0, 1000, &read.weight_decay, err));
  GD_TRY(gd_config_number(json, object, "max_grad_norm", 0, 1e6, &read.max_grad_norm, err));
  if (read.warmup_steps > read.steps)
    read.warmup_steps = read.steps;
  GD_TRY(gd_config_int(json, object, "warmup_steps", 0, read.steps, &read.warmup_steps, err));
  if (read.decay_steps > read.steps)
    read.decay_steps = read.steps;
  GD_TRY(gd_config_int(json, object, "decay_steps", 0, read.steps, &read.decay_steps, err));
  GD_TRY(gd_config_dropout(json, object, "drop_path", &read.drop_path, err));
  *recipe = read;
  return GD_OK;
}

json_t *gd_recipe_json(const struct gd_recipe *r) {
  return json_pack("{sI sI sI ss ss sb sf sf s[ff] sf sf sf ss sI sI sf}", "batch",
                   (json_int_t)r->batch, "seq", (json_int_t)r->seq, "steps", (json_int_t)r->steps,
                   "precision", gd_precision_name(r->precision), "optimizer",
                   gd_optimizer_name(r->optimizer), "decoupled_decay", gd_recipe_decouples(r), "lr",
                   r->lr, "min_lr", r->min_lr, "betas", r->beta1, r->beta2, "eps", r->eps,
                   "weight_decay", r->weight_decay, "max_grad_norm", r->max_grad_norm, "schedule",
                   gd_schedule_name(r->schedule), "warmup_steps", (json_int_t)r->warmup_steps,
                   "decay_steps", (json_int_t)r->decay_steps, "drop_path", r->drop_path);
}

int64_t gd_recipe_decay_steps(const struct gd_recipe *recipe) {
  int64_t after = recipe->steps - recipe->warmup_steps;
  int64_t decay = recipe->decay_steps > 0 ? recipe->decay_steps : (recipe->steps + 4) / 5;
  return recipe->schedule == GD_SCHEDULE_WSD && decay < after ? decay : after;
}

double gd_recipe_lr(const struct gd_recipe *recipe, int64_t step) {
  if (step < 0)
    step = 0;
  /* The first step already moves: warm-up counts from 1. */
  if (step < recipe->warmup_steps)
    return recipe->lr * (double)(step + 1) / (double)recipe->warmup_steps;
  if (recipe->schedule == GD_SCHEDULE_CONSTANT)
    return recipe->lr;
  double left = step >= recipe->steps
                    ? 0
                    : (double)(recipe->steps - step) / (double)gd_recipe_decay_steps(recipe);
  left = left < 1 ? left : 1;
  double share = recipe->schedule == GD_SCHEDULE_COSINE
                     ? 0.5 * (1 + cos(3.14159265358979323846 * (1 - left)))
                     : left;
  return recipe->min_lr + (recipe->lr - recipe->min_lr) * share;
}
