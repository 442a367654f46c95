/*
 * A job of torchtitan 0.2, the last that reads TOML; later ones take the same names as options.
 * It shards by FSDP alone, trains in bf16 or fp32, and knows few models: what has nothing near to
 * it there is an error that names the other formats.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "export/export_int.h"

/* --- TOML ----------------------------------------------------------------------------------- */

/* A basic string of TOML 1.0: quotes and backslashes are escaped, control characters as \uXXXX. */
static void put_text(struct gd_strbuf *out, const char *key, const char *text) {
  gd_strbuf_printf(out, "%s = \"", key);
  for (; *text; text++) {
    unsigned char byte = (unsigned char)*text;
    if (byte < 0x20 || byte == 0x7f)
      gd_strbuf_printf(out, "\\u%04x", byte);
    else
      gd_strbuf_printf(out, "%s%c", byte == '"' || byte == '\\' ? "\\" : "", *text);
  }
  gd_strbuf_append(out, "\"\n");
}

static void put_int(struct gd_strbuf *out, const char *key, int64_t value) {
  gd_strbuf_printf(out, "%s = %" PRId64 "\n", key, value);
}

static void put_bool(struct gd_strbuf *out, const char *key, bool value) {
  gd_strbuf_printf(out, "%s = %s\n", key, value ? "true" : "false");
}

/* 1 would be an integer. */
static void put_real(struct gd_strbuf *out, const char *key, double value) {
  char text[40];
  snprintf(text, sizeof text, "%.15g", value);
  gd_strbuf_printf(out, "%s = %s%s\n", key, text, strpbrk(text, ".e") ? "" : ".0");
}

/* --- what it has ---------------------------------------------------------------------------- */

/* Its Llama 3 models by their parameters, which tell them apart whatever a file is called. */
static const struct {
  int64_t parameters;
  const char *name;
} flavors[] = {{8030261248, "8B"}, {70553706496, "70B"}, {405853388800, "405B"}};

static const char *find_flavor(const struct gd_export_point *point) {
  for (size_t i = 0; i < sizeof flavors / sizeof *flavors; i++)
    if (flavors[i].parameters == point->trial->parameters)
      return flavors[i].name;
  gd_strbuf_printf(point->notes,
                   "torchtitan has no Llama of %" PRId64
                   " parameters: add a flavor \"%s\" to its llama3_args\n",
                   point->trial->parameters, point->name);
  return point->name;
}

static enum gd_status check(const struct gd_export_point *point, struct gd_error *err) {
  const struct gd_model *model = point->from->model;
  const struct gd_method *method = &point->method;
  if (model->family != &gd_family_llama)
    return gd_fail(
        err, GD_UNSUPPORTED,
        "torchtitan has no %s model, only Llama of the families here; export %s with --format hf "
        "or deepspeed",
        model->family->title, model->name);
  if (method->offload && point->ranks == 1)
    return gd_fail(err, GD_UNSUPPORTED,
                   "torchtitan offloads with FSDP only, which it does not run on one device; "
                   "export %s with --format hf or deepspeed",
                   point->trial->method);
  return GD_OK;
}

/* When gathered weights are freed: "always" after a layer's forward pass, or "never". */
static const char *reshard(const struct gd_export_point *point) {
  return gd_sharding_part(point->method.sharding)->exports[GD_FORMAT_TORCHTITAN];
}

static void add_notes(const struct gd_export_point *point) {
  const struct gd_method *method = &point->method;
  struct gd_strbuf *notes = point->notes;
  if (method->sharding != GD_SHARDING_NONE && !gd_shards_by_block(method->sharding))
    gd_strbuf_printf(notes,
                     "torchtitan shards by FSDP alone; %s is nearest to fsdp_reshard_after_"
                     "forward = \"%s\"\n",
                     gd_sharding_name(method->sharding), reshard(point));
  if (method->sharding == GD_SHARDING_ZERO2 && method->offload)
    gd_strbuf_append(notes, "torchtitan offloads parameters and gradients with the optimizer\n");
  if (point->trial->precision == GD_PRECISION_FP16)
    gd_strbuf_append(notes, "torchtitan has no fp16; mixed_precision_param is bfloat16\n");
  if (point->tf32)
    gd_strbuf_append(notes, "TF32 is a call: torch.set_float32_matmul_precision(\"high\")\n");
  if (point->cpu)
    gd_strbuf_append(notes, "torchtitan trains on GPUs; the trial ran on a CPU\n");
  if (!method->kernels)
    gd_strbuf_append(notes, "torchtitan has no attention that stores its scores, as naive does\n");
  gd_strbuf_append(notes,
                   "this is a file of torchtitan 0.2; from 0.3 on the same names are options: "
                   "--module llama3 --config NAME --training.seq_len N ...\n");
}

/* --- the file ------------------------------------------------------------------------------- */

static void put_recipe(const struct gd_export_point *point, struct gd_strbuf *out) {
  const struct gd_recipe *recipe = point->recipe;
  enum gd_schedule schedule = gd_export_schedule(recipe);
  gd_strbuf_append(out, "\n[optimizer]\n");
  put_text(out, "name", gd_recipe_decouples(recipe) ? "AdamW" : "Adam");
  put_real(out, "lr", recipe->lr);
  put_real(out, "beta1", recipe->beta1);
  put_real(out, "beta2", recipe->beta2);
  put_real(out, "eps", recipe->eps);
  put_real(out, "weight_decay", recipe->weight_decay);
  put_text(out, "implementation",
           point->method.kernels && !point->method.offload ? "fused" : "foreach");
  gd_strbuf_append(out, "\n[lr_scheduler]\n");
  put_int(out, "warmup_steps", recipe->warmup_steps);
  if (schedule == GD_SCHEDULE_CONSTANT)
    put_real(out, "decay_ratio", 0);
  else {
    bool stable = schedule == GD_SCHEDULE_WSD;
    if (stable)
      put_real(out, "decay_ratio", (double)gd_recipe_decay_steps(recipe) / (double)recipe->steps);
    put_text(out, "decay_type", stable ? "linear" : gd_schedule_name(schedule));
    put_real(out, "min_lr_factor", recipe->min_lr / recipe->lr);
  }
}

static void put_training(const struct gd_export_point *point, struct gd_strbuf *out) {
  const struct gd_recipe *recipe = point->recipe;
  bool half = point->trial->precision != GD_PRECISION_FP32;
  gd_strbuf_append(out, "\n[training]\n");
  put_int(out, "local_batch_size", point->micro_batch);
  put_int(out, "global_batch_size", recipe->batch);
  put_int(out, "seq_len", recipe->seq);
  put_int(out, "steps", recipe->steps);
  /* Its clipping has no off; this norm is never reached. */
  put_real(out, "max_norm", recipe->max_grad_norm > 0 ? recipe->max_grad_norm : 1e30);
  put_bool(out, "enable_cpu_offload", point->method.offload);
  put_text(out, "mixed_precision_param", half ? "bfloat16" : "float32");
  put_text(out, "mixed_precision_reduce", "float32");
}

/* One rank's FSDP is none there; without sharding every rank has everything. */
static void put_parallelism(const struct gd_export_point *point, struct gd_strbuf *out) {
  bool shards = point->method.sharding != GD_SHARDING_NONE;
  gd_strbuf_append(out, "\n[parallelism]\n");
  put_int(out, "data_parallel_replicate_degree", shards ? 1 : point->ranks);
  put_int(out, "data_parallel_shard_degree", shards ? point->ranks : 1);
  if (shards)
    put_text(out, "fsdp_reshard_after_forward", reshard(point));
}

enum gd_status gd_export_torchtitan(const struct gd_export_point *point, struct gd_strbuf *out,
                                    struct gd_error *err) {
  char about[320];
  GD_TRY(check(point, err));
  snprintf(about, sizeof about, "%s, %s, %" PRId64 " ranks", point->name, point->trial->method,
           point->ranks);
  gd_strbuf_append(out, "[job]\n");
  put_text(out, "dump_folder", point->name);
  put_text(out, "description", about);
  gd_strbuf_append(out, "\n[model]\n");
  put_text(out, "name", "llama3");
  put_text(out, "flavor", find_flavor(point));
  put_recipe(point, out);
  put_training(point, out);
  put_parallelism(point, out);
  if (point->save_steps > 0) {
    gd_strbuf_append(out, "\n[checkpoint]\n");
    put_bool(out, "enable", true);
    put_int(out, "interval", point->save_steps);
  }
  gd_strbuf_append(out, "\n[activation_checkpoint]\n");
  put_text(out, "mode", point->method.ckpt ? "full" : "none");
  gd_strbuf_append(out, "\n[compile]\n");
  put_bool(out, "enable", point->method.compile);
  gd_strbuf_append(out, "\n[debug]\n");
  put_int(out, "seed", (int64_t)point->from->seed);
  add_notes(point);
  return GD_OK;
}
