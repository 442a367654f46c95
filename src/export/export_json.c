/*
 * The two formats that are JSON: Hugging Face's TrainingArguments, which may hold a DeepSpeed
 * configuration, and the DeepSpeed configuration alone.
 *
 * Inside of TrainingArguments what both say is "auto" in the DeepSpeed part: the Trainer fills it
 * in, so that the two cannot contradict each other when somebody edits one.
 */
#include <string.h>

#include <jansson.h>

#include "export/export_int.h"

/* The first failure is kept: set freely, check in append. */
struct dict {
  json_t *object;
  bool failed;
};

static void set(struct dict *to, const char *key, json_t *value) {
  if (json_object_set_new(to->object, key, value) != 0)
    to->failed = true;
}

static void set_int(struct dict *to, const char *key, int64_t value) {
  set(to, key, json_integer(value));
}

static void set_real(struct dict *to, const char *key, double value) {
  set(to, key, json_real(value));
}

static void set_bool(struct dict *to, const char *key, bool value) {
  set(to, key, json_boolean(value));
}

static void set_text(struct dict *to, const char *key, const char *text) {
  set(to, key, json_string(text));
}

static void set_dict(struct dict *to, const char *key, struct dict *child) {
  to->failed |= child->failed;
  set(to, key, child->object);
  *child = (struct dict){0};
}

static void begin(struct dict *to) {
  *to = (struct dict){.object = json_object()};
}

static int append_dump(const char *text, size_t length, void *out) {
  gd_strbuf_printf(out, "%.*s", (int)length, text);
  return 0;
}

/* Recipes have a few decimal digits: 15 of them print 0.0006 as it was written. */
static enum gd_status append(struct dict *from, struct gd_strbuf *out, struct gd_error *err) {
  bool ok = !from->failed && json_dump_callback(from->object, append_dump, out,
                                                JSON_INDENT(2) | JSON_REAL_PRECISION(15)) == 0;
  json_decref(from->object);
  gd_strbuf_append(out, "\n");
  return ok ? GD_OK : gd_nomem(err, "while exporting");
}

/* --- DeepSpeed ------------------------------------------------------------------------------ */

/* PyTorch's own names for them: shard-grad-op is ZeRO 2, full-shard ZeRO 3. */
static int stage_of(enum gd_sharding sharding) {
  const struct gd_method_part *part = gd_sharding_part(sharding);
  int64_t stage = 0;
  if (part && part->exports[GD_FORMAT_DEEPSPEED])
    (void)gd_parse_int(part->exports[GD_FORMAT_DEEPSPEED], 1, 3, &stage);
  return (int)stage;
}

bool gd_export_is_deepspeed(const struct gd_method *method) {
  const struct gd_method_part *part = gd_sharding_part(method->sharding);
  return part && strcmp(part->exports[GD_FORMAT_HF], "deepspeed") == 0;
}

static void set_zero(const struct gd_export_point *point, struct dict *to) {
  int stage = stage_of(point->method.sharding);
  struct dict zero, host;
  begin(&zero);
  set_int(&zero, "stage", stage);
  if (stage > 0) {
    set_bool(&zero, "overlap_comm", true);
    set_bool(&zero, "contiguous_gradients", true);
  }
  for (int i = 0; point->method.offload && i < (stage == 3 ? 2 : 1); i++) {
    begin(&host);
    set_text(&host, "device", "cpu");
    set_bool(&host, "pin_memory", true);
    set_dict(&zero, i == 0 ? "offload_optimizer" : "offload_param", &host);
  }
  if (stage == 3) /* or no checkpoint has the weights in one piece */
    set_bool(&zero, "stage3_gather_16bit_weights_on_model_save", true);
  set_dict(to, "zero_optimization", &zero);
}

/* A value of the recipe, or "auto" inside of TrainingArguments. */
static void set_shared(struct dict *to, const char *key, bool inside, double value) {
  set(to, key, inside ? json_string("auto") : json_real(value));
}

static void set_optimizer(const struct gd_export_point *point, bool inside, struct dict *to) {
  const struct gd_recipe *recipe = point->recipe;
  struct dict optimizer, params;
  bool adamw = gd_recipe_decouples(recipe);
  begin(&params);
  set_shared(&params, "lr", inside, recipe->lr);
  set(&params, "betas",
      inside ? json_string("auto") : json_pack("[f, f]", recipe->beta1, recipe->beta2));
  set_shared(&params, "eps", inside, recipe->eps);
  set_shared(&params, "weight_decay", inside, recipe->weight_decay);
  if (!adamw) /* its Adam is AdamW unless it is told */
    set_bool(&params, "adam_w_mode", false);
  begin(&optimizer);
  set_text(&optimizer, "type", adamw ? "AdamW" : "Adam");
  set_dict(&optimizer, "params", &params);
  set_dict(to, "optimizer", &optimizer);
}

/* The length of sequences is the data's in both tools; memory and time hold for this one alone. */
static void note_sequence(const struct gd_export_point *point, const char *what) {
  if (!point->from->model->family->images)
    gd_strbuf_printf(point->notes,
                     "%s no length of sequences; make them %lld tokens long, as here\n", what,
                     (long long)point->recipe->seq);
}

/* WarmupCosineLR counts in shares of the optimizer's rate, the others in rates. */
static void set_scheduler(const struct gd_export_point *point, struct dict *to) {
  const struct gd_recipe *recipe = point->recipe;
  enum gd_schedule schedule = gd_export_schedule(recipe);
  int64_t warmup = recipe->warmup_steps > 1 ? recipe->warmup_steps : 1;
  struct dict scheduler, params;
  if (schedule == GD_SCHEDULE_CONSTANT && recipe->warmup_steps == 0)
    return;
  begin(&params);
  if (schedule == GD_SCHEDULE_COSINE) {
    set_real(&params, "warmup_min_ratio", 0);
    set_real(&params, "cos_min_ratio", recipe->min_lr / recipe->lr);
  } else {
    bool floor = schedule == GD_SCHEDULE_LINEAR && recipe->min_lr > 0;
    set_real(&params, "warmup_min_lr", floor ? recipe->min_lr : 0);
    set_real(&params, "warmup_max_lr", recipe->lr);
    if (floor)
      gd_strbuf_printf(point->notes,
                       "DeepSpeed's linear schedule ends where its warm-up begins: both are %g\n",
                       recipe->min_lr);
  }
  if (schedule == GD_SCHEDULE_WSD)
    gd_strbuf_printf(point->notes,
                     "DeepSpeed has no schedule that is stable and then decays: this one stays at "
                     "%g; lower it over the last %lld steps\n",
                     recipe->lr, (long long)gd_recipe_decay_steps(recipe));
  if (recipe->warmup_steps < 2)
    gd_strbuf_append(point->notes, "DeepSpeed warms up over two steps at least\n");
  set_int(&params, "warmup_num_steps", warmup);
  set_text(&params, "warmup_type", "linear");
  if (schedule == GD_SCHEDULE_COSINE || schedule == GD_SCHEDULE_LINEAR)
    set_int(&params, "total_num_steps", recipe->steps);
  begin(&scheduler);
  set_text(&scheduler, "type",
           schedule == GD_SCHEDULE_COSINE   ? "WarmupCosineLR"
           : schedule == GD_SCHEDULE_LINEAR ? "WarmupDecayLR"
                                            : "WarmupLR");
  set_dict(&scheduler, "params", &params);
  set_dict(to, "scheduler", &scheduler);
}

/* Dynamic loss scaling from 65,536, as the engine begins. */
static void set_precision(const struct gd_export_point *point, struct dict *to) {
  struct dict half;
  begin(&half);
  switch (point->trial->precision) {
  case GD_PRECISION_FP16:
    set_bool(&half, "enabled", true);
    set_int(&half, "loss_scale", 0);
    set_int(&half, "initial_scale_power", 16);
    set_dict(to, "fp16", &half);
    return;
  case GD_PRECISION_BF16:
    set_bool(&half, "enabled", true);
    set_dict(to, "bf16", &half);
    return;
  case GD_PRECISION_FP32: break;
  }
  json_decref(half.object);
}

static void set_batch(const struct gd_export_point *point, bool inside, struct dict *to) {
  static const char *const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                     "gradient_accumulation_steps"};
  const int64_t values[] = {point->recipe->batch, point->micro_batch, point->accumulation};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    set(to, keys[i], inside ? json_string("auto") : json_integer(values[i]));
}

static void make_deepspeed(const struct gd_export_point *point, bool inside, struct dict *to) {
  begin(to);
  set_batch(point, inside, to);
  set_shared(to, "gradient_clipping", inside, point->recipe->max_grad_norm);
  set_zero(point, to);
  set_optimizer(point, inside, to);
  set_precision(point, to);
}

enum gd_status gd_export_deepspeed(const struct gd_export_point *point, struct gd_strbuf *out,
                                   struct gd_error *err) {
  const struct gd_method *method = &point->method;
  struct gd_strbuf *notes = point->notes;
  struct dict root, ckpt;
  make_deepspeed(point, false, &root);
  set_scheduler(point, &root);
  if (method->ckpt) {
    begin(&ckpt);
    set_bool(&ckpt, "partition_activations", false);
    set_bool(&ckpt, "cpu_checkpointing", false);
    set_bool(&ckpt, "contiguous_memory_optimization", false);
    set_dict(&root, "activation_checkpointing", &ckpt);
    gd_strbuf_append(notes,
                     "checkpointing is the model's business: gradient_checkpointing_enable() of a "
                     "transformers model, deepspeed.checkpointing in one's own\n");
  }
  if (gd_shards_by_block(method->sharding))
    gd_strbuf_printf(notes, "DeepSpeed has no FSDP; %s is its nearest, ZeRO stage %d\n",
                     gd_sharding_name(method->sharding), stage_of(method->sharding));
  if (method->sharding == GD_SHARDING_FSDP2 && method->offload)
    gd_strbuf_append(notes, "ZeRO stage 2 offloads the optimizer; parameters stay on the device\n");
  if (method->compile)
    gd_strbuf_append(notes, "torch.compile is left out: the versions of the paper (appendix F) do "
                            "not compile with DeepSpeed, and newer ones have a call for it: "
                            "engine.compile() after deepspeed.initialize()\n");
  if (point->tf32)
    gd_strbuf_append(notes, "TF32 is a call: torch.set_float32_matmul_precision(\"high\")\n");
  gd_strbuf_printf(notes,
                   "a DeepSpeed file has no number of steps; train for %lld step%s on %lld "
                   "rank%s\n",
                   (long long)point->recipe->steps, point->recipe->steps == 1 ? "" : "s",
                   (long long)point->ranks, point->ranks == 1 ? "" : "s");
  note_sequence(point, "a DeepSpeed file has");
  return append(&root, out, err);
}

/* --- Hugging Face --------------------------------------------------------------------------- */

static void set_hf_schedule(const struct gd_recipe *recipe, struct dict *to) {
  struct dict extra;
  const char *type = NULL;
  begin(&extra);
  switch (gd_export_schedule(recipe)) {
  case GD_SCHEDULE_CONSTANT:
    type = recipe->warmup_steps > 0 ? "constant_with_warmup" : "constant";
    break;
  case GD_SCHEDULE_LINEAR:
    type = recipe->min_lr > 0 ? "polynomial" : "linear";
    if (recipe->min_lr > 0) {
      set_real(&extra, "lr_end", recipe->min_lr);
      set_real(&extra, "power", 1);
    }
    break;
  case GD_SCHEDULE_WSD:
    type = "warmup_stable_decay";
    set_int(&extra, "num_decay_steps", gd_recipe_decay_steps(recipe));
    set_text(&extra, "decay_type", "linear");
    set_real(&extra, "min_lr_ratio", recipe->min_lr / recipe->lr);
    break;
  case GD_SCHEDULE_COSINE:
    type = recipe->min_lr > 0 ? "cosine_with_min_lr" : "cosine";
    if (recipe->min_lr > 0)
      set_real(&extra, "min_lr", recipe->min_lr);
    break;
  }
  set_text(to, "lr_scheduler_type", type);
  if (json_object_size(extra.object) > 0)
    set_dict(to, "lr_scheduler_kwargs", &extra);
  json_decref(extra.object);
  set_int(to, "warmup_steps", recipe->warmup_steps);
}

/* FSDP2, the default of transformers 5: resharding after the forward pass is full-shard. */
static void set_fsdp(const struct gd_export_point *point, struct dict *to) {
  struct dict fsdp;
  begin(&fsdp);
  set_int(&fsdp, "version", 2);
  set_bool(&fsdp, "reshard_after_forward", gd_regathers(point->method.sharding));
  set_text(&fsdp, "auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
  set_bool(&fsdp, "activation_checkpointing", point->method.ckpt);
  set_bool(&fsdp, "cpu_offload", point->method.offload);
  set_text(&fsdp, "state_dict_type", "SHARDED_STATE_DICT");
  set_bool(to, "fsdp", true);
  set_dict(to, "fsdp_config", &fsdp);
}

const char *gd_export_why_not_compiled(const struct gd_export_point *point) {
  if (!point->method.compile)
    return NULL;
  if (gd_export_is_deepspeed(&point->method))
    return "DeepSpeed is planned without it, since in the versions of the paper (appendix F) the "
           "two do not work together; in newer ones true compiles by DeepSpeed's engine.compile()";
  if (point->from->model->family == &gd_family_mamba)
    return "in the versions of the paper (appendix F) it does not work with the scan of Mamba; set "
           "it where yours can";
  return NULL;
}

static void set_hf_methods(const struct gd_export_point *point, struct dict *to) {
  const struct gd_method *method = &point->method;
  bool fsdp = gd_shards_by_block(method->sharding);
  struct dict section;
  /* FSDP wraps what it recomputes itself; the other way gathers once more. */
  set_bool(to, "gradient_checkpointing", method->ckpt && !fsdp);
  if (method->ckpt && !fsdp) {
    begin(&section);
    set_bool(&section, "use_reentrant", false);
    set_dict(to, "gradient_checkpointing_kwargs", &section);
  }
  set_bool(to, "torch_compile", method->compile && !gd_export_why_not_compiled(point));
  if (fsdp) {
    set_fsdp(point, to);
  } else if (gd_export_is_deepspeed(method)) {
    make_deepspeed(point, true, &section);
    set_dict(to, "deepspeed", &section);
  }
}

const char *gd_export_attention(const struct gd_export_point *point) {
  const struct gd_family *family = point->from->model->family;
  if (family == &gd_family_mamba || family == &gd_family_convnext)
    return NULL;
  return point->method.kernels ? "sdpa" : "eager";
}

static void note_hf(const struct gd_export_point *point) {
  const struct gd_recipe *recipe = point->recipe;
  const struct gd_family *family = point->from->model->family;
  bool zero = gd_export_is_deepspeed(&point->method);
  if (gd_export_attention(point) && !point->script)
    gd_strbuf_printf(point->notes,
                     "attention is an argument of the model, not of the Trainer: "
                     "from_config(config, attn_implementation=\"%s\")\n",
                     gd_export_attention(point));
  else if (family == &gd_family_mamba && point->method.kernels)
    gd_strbuf_append(point->notes,
                     "transformers runs the fused scan where the packages mamba-ssm and "
                     "causal-conv1d are installed\n");
  if (gd_export_why_not_compiled(point) && !point->script)
    gd_strbuf_printf(point->notes, "torch_compile is false: %s\n",
                     gd_export_why_not_compiled(point));
  if (!gd_recipe_decouples(recipe) && recipe->weight_decay > 0 && !zero && !point->script)
    gd_strbuf_append(point->notes,
                     "the Trainer has AdamW alone, and the recipe's Adam adds its decay to the "
                     "gradient: pass torch.optim.Adam as optimizers=(...), or train as AdamW\n");
  if (point->ranks > 1 && !point->script)
    gd_strbuf_printf(point->notes,
                     "a step has the recipe's batch of %lld on %lld ranks: start them "
                     "with torchrun\n",
                     (long long)recipe->batch, (long long)point->ranks);
  if (point->cpu)
    gd_strbuf_append(point->notes,
                     "the device is a CPU, so use_cpu is set; leave it out elsewhere\n");
}

enum gd_status gd_export_hf(const struct gd_export_point *point, struct gd_strbuf *out,
                            struct gd_error *err) {
  const struct gd_recipe *recipe = point->recipe;
  const struct gd_trial *trial = point->trial;
  struct dict root;
  if (!point->script)
    note_sequence(point, "TrainingArguments have");
  begin(&root);
  set_text(&root, "output_dir", point->name);
  set_int(&root, "per_device_train_batch_size", point->micro_batch);
  set_int(&root, "gradient_accumulation_steps", point->accumulation);
  set_int(&root, "max_steps", recipe->steps);
  set_real(&root, "learning_rate", recipe->lr);
  set_hf_schedule(recipe, &root);
  /* The fused one is for parameters on a GPU. */
  set_text(&root, "optim",
           point->method.kernels && !point->method.offload && !point->cpu ? "adamw_torch_fused"
                                                                          : "adamw_torch");
  set_real(&root, "weight_decay", recipe->weight_decay);
  set_real(&root, "adam_beta1", recipe->beta1);
  set_real(&root, "adam_beta2", recipe->beta2);
  set_real(&root, "adam_epsilon", recipe->eps);
  set_real(&root, "max_grad_norm", recipe->max_grad_norm);
  set_bool(&root, "bf16", trial->precision == GD_PRECISION_BF16);
  set_bool(&root, "fp16", trial->precision == GD_PRECISION_FP16);
  if (!point->cpu && trial->precision == GD_PRECISION_FP32)
    set_bool(&root, "tf32", point->tf32);
  if (point->cpu)
    set_bool(&root, "use_cpu", true);
  set_hf_methods(point, &root);
  if (point->from->model->family->images) /* which are decoded on CPUs */
    set_int(&root, "dataloader_num_workers", GD_EXPORT_CPUS);
  if (point->save_steps > 0) {
    set_text(&root, "save_strategy", "steps");
    set_int(&root, "save_steps", point->save_steps);
  }
  set_int(&root, "seed", (int64_t)point->from->seed);
  note_hf(point);
  return append(&root, out, err);
}
