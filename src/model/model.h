/*
 * A model: an architecture with its sizes, and the recipe that trains it.
 *
 * It comes from a preset name ("pythia-160m": data/models, built into the binary, or the user's
 * own folder) or from a path to a Hugging Face config.json or its folder. A family is one file
 * that reads such a configuration and builds the forward graph of one micro-batch; nothing here
 * knows about devices, precision or methods.
 */
#ifndef GD_MODEL_MODEL_H
#define GD_MODEL_MODEL_H

#include "base/json.h"
#include "ir/graph.h"

enum gd_precision { GD_PRECISION_FP32, GD_PRECISION_FP16, GD_PRECISION_BF16 };
enum gd_optimizer { GD_OPTIMIZER_ADAM, GD_OPTIMIZER_ADAMW };
enum gd_schedule {
  GD_SCHEDULE_CONSTANT,
  GD_SCHEDULE_LINEAR,
  GD_SCHEDULE_COSINE,
  GD_SCHEDULE_WSD, /* warm-up, stable, decay: linear over the last decay_steps */
};

struct gd_recipe {
  int64_t batch; /* sequences a training step */
  int64_t seq;   /* tokens a sequence */
  int64_t steps; /* training steps of the whole run */
  enum gd_precision precision;
  enum gd_optimizer optimizer;
  double lr, min_lr; /* peak, and where the schedule ends */
  double beta1, beta2, eps, weight_decay;
  bool decoupled_decay; /* of adam: decays the parameter, as GPT-NeoX's and fairseq's "Adam" do */
  bool decay_all;       /* also what the family leaves out: an optimizer without groups */
  double max_grad_norm; /* 0: no clipping */
  enum gd_schedule schedule;
  int64_t warmup_steps;
  int64_t decay_steps; /* of wsd; 0: the last fifth of the run */
  double drop_path;    /* of images: stochastic depth of the last block; 0: none */
};

/* GPT-NeoX (Pythia): config.json's fields, by what they mean. */
struct gd_neox {
  int64_t vocab, width, layers, heads, inner; /* inner: intermediate_size */
  int64_t rotary;                             /* dims of a head that rotate: even */
  double rope_base;
  double norm_eps, init_deviation;
  bool parallel_residual, tied, attention_bias;
  enum gd_activation activation;
};

/* Parts of a recipe that nobody gave, so that they are the program's. */
enum gd_assumed {
  GD_ASSUMED_STEPS = 1 << 0, /* of models of tokens: GD_CHINCHILLA_TOKENS a parameter */
  GD_ASSUMED_BATCH = 1 << 1,
  GD_ASSUMED_SEQ = 1 << 2,
  GD_ASSUMED_LR = 1 << 3,
  GD_ASSUMED_PRECISION = 1 << 4,
};
/* Hoffmann et al. 2022, arXiv:2203.15556, Table 3: what a compute-optimal run has. */
#define GD_CHINCHILLA_TOKENS 20

/* What `train` does with images ("images" of a preset). Days are counted without: samples are made
   while the step runs, and stochastic depth costs less than 1 % of it. */
struct gd_image_training {
  char augment[96];   /* as gd_augment_parse of data/image_set.h reads it; "": not said */
  char normalize[16]; /* likewise gd_normalize_parse */
  double label_smoothing;
  double drop_path; /* where the recipe has none */
};

struct gd_family;
struct gd_model {
  char name[128];
  const struct gd_family *family;
  union {
    struct gd_neox neox;
    int64_t opaque[64]; /* other families keep their struct here, private to their file */
  } config;
  struct gd_recipe recipe;
  struct gd_image_training images;
  unsigned assumed;  /* enum gd_assumed */
  char unknown[160]; /* fields of its configuration that nothing here knows: "foo, bar" */
  bool preset;       /* loaded by a preset's name, not from a file */
  bool soft_targets; /* of images: a probability for each class is the target, not one label */
};

struct gd_family {
  const char *model_type; /* config.json's model_type: "gpt_neox" */
  const char *title;      /* for tables: "GPT-NeoX" */
  enum gd_status (*parse)(const struct gd_json *json, const json_t *config, struct gd_model *model,
                          struct gd_error *err);
  /* Appends the forward graph of micro_batch sequences of model->recipe.seq tokens, ending in
     graph->loss; sets graph->ids (or pixels), labels (or targets in their place) and
     loss_weight. */
  void (*build)(const struct gd_model *model, int64_t micro_batch, struct gd_graph *graph);
  /* Buffers that old checkpoints carry and that are no parameters: skipped when loading. */
  bool (*ignores_tensor)(const char *name);
  int64_t (*classes)(const struct gd_model *model); /* what the loss chooses among */
  bool images; /* samples are images: no sequence length, no tokens */
  /* What its time is made of, for predictions that rest on other models: "state-space model";
     NULL: a transformer. */
  const char *kind;
};
const char *gd_family_kind(const struct gd_family *family); /* "transformer" */

#define GD_FAMILY(name) extern const struct gd_family gd_family_##name;
#include "model/families.def"
#undef GD_FAMILY

/*
 * Sets the steps that nobody gave, and the warm-up with them, by parameters, batch and sequence as
 * they are now. A graph that cannot be built leaves them: who builds it says why.
 */
enum gd_status gd_model_assume_steps(struct gd_model *model, struct gd_error *err) GD_MUST_USE;
/* The warm-up of a bare configuration: 2 % of its steps as they are now, 2,000 at most. */
void gd_model_assume_warmup(struct gd_model *model);

/* Finds a preset by name or loads a config.json (or the folder that holds one). */
enum gd_status gd_model_load(const char *name_or_path, struct gd_model *model,
                             struct gd_error *err) GD_MUST_USE;
/* The same, and appends its configuration, as a config.json has it, to config (NULL: not). */
enum gd_status gd_model_load_config(const char *name_or_path, struct gd_model *model,
                                    struct gd_strbuf *config, struct gd_error *err) GD_MUST_USE;
/* Reads {"config": ..., "recipe": ...} (a preset) or a bare Hugging Face configuration. */
enum gd_status gd_model_parse(const struct gd_json *json, struct gd_model *model,
                              struct gd_error *err) GD_MUST_USE;
/* Names of all presets, sorted by family and size, in the arena; user presets included. */
enum gd_status gd_model_list(struct gd_arena *arena, const char *const **names, int *count,
                             struct gd_error *err) GD_MUST_USE;

/* Whether it predicts next tokens; others have masked ones, or images. Its graph says so. */
enum gd_status gd_model_is_causal(const struct gd_model *model, bool *causal,
                                  struct gd_error *err) GD_MUST_USE;

const char *gd_precision_name(enum gd_precision precision); /* "fp32", "fp16", "bf16" */
enum gd_dtype gd_precision_dtype(enum gd_precision precision);
/* Whether weight decay shrinks the parameter (AdamW), or adds to the gradient (PyTorch's Adam). */
bool gd_recipe_decouples(const struct gd_recipe *recipe);
/* "weight decay", of an Adam that decouples it "decoupled weight decay". */
const char *gd_recipe_decay_name(const struct gd_recipe *recipe);
const char *gd_optimizer_name(enum gd_optimizer optimizer); /* "adam", "adamw" */
const char *gd_schedule_name(enum gd_schedule schedule);    /* "cosine" */
bool gd_precision_parse(const char *text, enum gd_precision *precision);
bool gd_optimizer_parse(const char *text, enum gd_optimizer *optimizer);
bool gd_schedule_parse(const char *text, enum gd_schedule *schedule);

/*
 * Overwrites the fields of *recipe that the object has (a preset's "recipe", a recipe.json) and
 * checks the whole. min_lr follows lr, and warmup_steps follows steps, where only the latter is
 * given. A field that no recipe has, or a value that makes no sense: GD_BAD_INPUT, *recipe as it
 * was.
 */
enum gd_status gd_recipe_parse(const struct gd_json *json, json_t *object, struct gd_recipe *recipe,
                               struct gd_error *err) GD_MUST_USE;
/* What a bare configuration trains with. */
const struct gd_recipe *gd_recipe_default(void);
/* What gd_recipe_parse reads, all of it; NULL: memory ran out. */
json_t *gd_recipe_json(const struct gd_recipe *recipe);
/* Stochastic depth of a model of tokens: GD_BAD_INPUT. */
enum gd_status gd_model_check_drop_path(const struct gd_model *model,
                                        struct gd_error *err) GD_MUST_USE;
/*
 * What is asked of a recipe in place of its own values, within the bounds of a recipe's file; zero
 * and NULL: nothing.
 */
struct gd_recipe_change {
  int64_t seq, batch, steps;
  int64_t tokens; /* steps, said as tokens; the last step may be a part of one */
  const enum gd_optimizer *optimizer; /* its decay of weights goes with it */
  const double *drop_path;
};
/*
 * The warm-up becomes no longer than the run. What is given is no longer assumed, and steps that
 * are follow the rest. GD_BAD_INPUT, in the words of the command line:
 * sequences of a model of images, steps as well as tokens, fewer tokens than a step has, stochastic
 * depth of a model of tokens or of every block.
 */
enum gd_status gd_model_change_recipe(struct gd_model *model, const struct gd_recipe_change *change,
                                      struct gd_error *err) GD_MUST_USE;
/* Steps at the end over which the learning rate falls: of wsd its decay, else all after warm-up. */
int64_t gd_recipe_decay_steps(const struct gd_recipe *recipe);
/* Learning rate of training step `step` (0-based): linear warm-up, then the schedule. */
double gd_recipe_lr(const struct gd_recipe *recipe, int64_t step);

#endif
