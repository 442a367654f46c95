/*
 * The table of formats, and a trial made ready for them.
 */
#include "export/export.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "export/export_int.h"

/* `says` is its column of methods.def; sbatch starts this program, which runs every part. */
static const struct {
  const char *name;
  gd_export_write write;
  enum gd_part_format says;
} formats[GD_EXPORT_COUNT] = {
    [GD_EXPORT_HF] = {"hf", gd_export_hf, GD_FORMAT_HF},
    [GD_EXPORT_TRAIN_PY] = {"train.py", gd_export_train_py, GD_FORMAT_HF},
    [GD_EXPORT_DEEPSPEED] = {"deepspeed", gd_export_deepspeed, GD_FORMAT_DEEPSPEED},
    [GD_EXPORT_TORCHTITAN] = {"torchtitan", gd_export_torchtitan, GD_FORMAT_TORCHTITAN},
    [GD_EXPORT_SBATCH] = {"sbatch", gd_export_sbatch, GD_FORMAT_COUNT},
};

const char *gd_export_name(enum gd_export_format format) {
  GD_ASSERT(format < GD_EXPORT_COUNT);
  return formats[format].name;
}

bool gd_export_parse(const char *text, enum gd_export_format *format) {
  for (int i = 0; i < GD_EXPORT_COUNT; i++)
    if (strcmp(text, formats[i].name) == 0) {
      *format = (enum gd_export_format)i;
      return true;
    }
  return false;
}

const char *gd_export_stack(enum gd_export_format format, const struct gd_model *model,
                            const struct gd_method *method) {
  if (format == GD_EXPORT_TORCHTITAN)
    return "torchtitan";
  if (format == GD_EXPORT_DEEPSPEED || (method && gd_export_is_deepspeed(method)))
    return "deepspeed";
  return model->family == &gd_family_mamba ? "pytorch-eager" : "pytorch-compile";
}

enum gd_export_format gd_export_of_stack(const char *stack, const struct gd_model *model,
                                         const struct gd_method *method) {
  if (strcmp(stack, "deepspeed") == 0)
    return GD_EXPORT_DEEPSPEED;
  return strcmp(stack, "torchtitan") == 0 && model->family == &gd_family_llama &&
                 gd_export_keeps(GD_EXPORT_TORCHTITAN, method, true)
             ? GD_EXPORT_TORCHTITAN
             : GD_EXPORT_HF;
}

bool gd_export_keeps(enum gd_export_format format, const struct gd_method *method, bool several) {
  enum gd_part_format says = formats[format].says;
  if (says == GD_FORMAT_COUNT)
    says = GD_FORMAT_HF; /* which the job runs */
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++)
    if (gd_method_has(method, (enum gd_method_part_id)i) &&
        !gd_method_row((enum gd_method_part_id)i)->exports[says])
      return false;
  switch (says) {
  case GD_FORMAT_HF: return !gd_export_is_deepspeed(method); /* which it would not compile */
  case GD_FORMAT_DEEPSPEED: return !gd_shards_by_block(method->sharding);
  case GD_FORMAT_TORCHTITAN:
    return (method->sharding == GD_SHARDING_NONE || gd_shards_by_block(method->sharding)) &&
           (several || !method->offload);
  case GD_FORMAT_COUNT: break;
  }
  return true;
}

enum gd_schedule gd_export_schedule(const struct gd_recipe *recipe) {
  return recipe->min_lr >= recipe->lr ? GD_SCHEDULE_CONSTANT : recipe->schedule;
}

/* The largest divisor of whole that is no larger than most. */
static int64_t largest_divisor(int64_t whole, int64_t most) {
  int64_t best = 1;
  for (int64_t low = 1; low <= whole / low; low++) {
    if (whole % low != 0)
      continue;
    if (low <= most && low > best)
      best = low;
    if (whole / low <= most && whole / low > best)
      best = whole / low;
  }
  return best;
}

/* The batch stays as it is, and no micro-batch becomes larger than what was found to fit. */
static enum gd_status divide_batch(struct gd_export_point *point, struct gd_error *err) {
  const struct gd_trial *trial = point->trial;
  int64_t batch = point->recipe->batch;
  point->ranks = trial->ranks > 0 ? trial->ranks : 1;
  if (batch % point->ranks != 0 || trial->micro_batch < 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "a batch of %" PRId64 " does not divide among %" PRId64
                   " ranks of micro-batch %" PRId64 "; choose --batch so that it does",
                   batch, point->ranks, trial->micro_batch);
  int64_t per_rank = batch / point->ranks;
  point->micro_batch = largest_divisor(per_rank, trial->micro_batch);
  point->accumulation = per_rank / point->micro_batch;
  if (point->micro_batch != trial->micro_batch)
    gd_strbuf_printf(point->notes,
                     "micro-batch %" PRId64 " leaves a smaller last one in the %" PRId64
                     " sequences of a rank, which cannot be said here; it is %" PRId64 ", %" PRId64
                     " times\n",
                     trial->micro_batch, per_rank, point->micro_batch, point->accumulation);
  return GD_OK;
}

static bool is_plain(char c) {
  return isalnum((unsigned char)c) || strchr("._-", c);
}

/* Letters, digits and ._- alone, and a beginning that is no option and not hidden. */
static void clean_name(char *to, size_t size, const char *from) {
  size_t at = 0;
  while (*from && !isalnum((unsigned char)*from))
    from++;
  for (; *from && at + 1 < size; from++)
    to[at++] = is_plain(*from) ? *from : '_';
  to[at] = '\0';
  if (at == 0)
    snprintf(to, size, "model");
}

static int64_t hourly_steps(const struct gd_export_point *point) {
  double steps = point->timed ? 3600 / point->trial->step_s : 0;
  if (steps <= 0)
    return 0;
  return steps < 1                              ? 1
         : steps > (double)point->recipe->steps ? point->recipe->steps
                                                : (int64_t)steps;
}

/* A part that the format has no words for is an error: it would be left out in silence. */
static enum gd_status check_parts(enum gd_export_format format, const struct gd_export_point *point,
                                  struct gd_error *err) {
  enum gd_part_format says = formats[format].says;
  if (says == GD_FORMAT_COUNT)
    return GD_OK;
  if (point->method.without)
    return gd_fail(err, GD_UNSUPPORTED,
                   "%s has no passes to switch off; export a method without --without, not %s",
                   formats[format].name, point->trial->method);
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    const struct gd_method_part *part = gd_method_row((enum gd_method_part_id)i);
    const char *other = NULL;
    if (!gd_method_has(&point->method, (enum gd_method_part_id)i) || part->exports[says])
      continue;
    for (int k = 0; k < GD_EXPORT_COUNT && !other; k++)
      if (formats[k].says == GD_FORMAT_COUNT || part->exports[formats[k].says])
        other = formats[k].name;
    return gd_fail(err, GD_UNSUPPORTED,
                   "%s has nothing like %s (%s); export %s with --format %s, or another method "
                   "with --methods",
                   formats[format].name, part->name, part->doc, point->trial->method, other);
  }
  return GD_OK;
}

/* --- what it was planned for ----------------------------------------------------------------- */

void gd_export_say_place(const struct gd_export_point *point, char *text, size_t size) {
  static const char plain[] = " ._-+/(),";
  if (point->ranks > 1)
    snprintf(text, size, "%" PRId64 " x %s", point->ranks, point->trial->device);
  else
    snprintf(text, size, "%s", point->trial->device);
  for (; *text; text++)
    if (!isalnum((unsigned char)*text) && !strchr(plain, *text))
      *text = '_';
}

const char *gd_export_say_days(const struct gd_export_point *point, char *text, size_t size) {
  const struct gd_trial *trial = point->trial;
  char days[32], low[32], high[32];
  bool hours = trial->days < 1;
  double unit = hours ? 24 : 1;
  text[0] = '\0';
  if (point->timed)
    snprintf(text, size, "%s %s (%s to %s)",
             gd_format_digits(days, sizeof days, unit * trial->days, 2), hours ? "hours" : "days",
             gd_format_digits(low, sizeof low, unit * trial->days_low, 2),
             gd_format_digits(high, sizeof high, unit * trial->days_high, 2));
  return text;
}

/* The memory of one software is not that of another, and so not its micro-batch. */
static void note_software(enum gd_export_format format, const struct gd_export_point *point) {
  const struct gd_export *from = point->from;
  const struct gd_trial *trial = point->trial;
  char place[160], days[96], size[32], has[32];
  gd_export_say_place(point, place, sizeof place);
  gd_export_say_days(point, days, sizeof days);
  if (from->software)
    gd_strbuf_printf(point->notes,
                     "planned for %s on %s: %s, %s, accumulation %" PRId64 " x micro-batch %" PRId64
                     ", about %s of %s a GPU%s%s; where that estimate is too low, %s\n",
                     from->software, place, trial->method, gd_precision_name(trial->precision),
                     point->accumulation, point->micro_batch,
                     gd_format_bytes(size, sizeof size, trial->peak_bytes),
                     gd_format_bytes(has, sizeof has, trial->device_limit_bytes),
                     days[0] ? ", " : "", days,
                     point->micro_batch > 1 ? "halve the micro-batch and double the accumulation"
                                            : "take a method with ckpt, or more GPUs");
  else if (from->target)
    gd_strbuf_printf(point->notes,
                     "planned for gpudays' own engine on %s; without --stack own it is planned "
                     "for the memory of the software that runs it\n",
                     place);
  else if (!point->cpu && formats[format].says != GD_FORMAT_COUNT)
    gd_strbuf_printf(point->notes,
                     "the micro-batch is one that fits gpudays' own engine; --gpu NAME in place "
                     "of a trial plans for the memory of the software that runs it\n");
}

enum gd_status gd_export(enum gd_export_format format, const struct gd_export *from,
                         struct gd_strbuf *out, struct gd_strbuf *notes, struct gd_error *err) {
  const struct gd_trial *trial = from->trial;
  struct gd_export_point point = {
      .from = from,
      .recipe = &from->model->recipe,
      .trial = trial,
      .measured = trial->status == GD_TRIAL_OK,
      .cpu = strcmp(trial->backend, "cpu") == 0 || strcmp(trial->backend, "ref") == 0,
      .script = format == GD_EXPORT_TRAIN_PY,
      .timed = trial->step_s > 0,
      .notes = notes,
  };
  GD_ASSERT(format < GD_EXPORT_COUNT);
  if (from->seed > UINT32_MAX)
    return gd_fail(err, GD_BAD_INPUT,
                   "a seed of %" PRIu64 " has more than the 32 bits that numpy "
                   "takes; choose a smaller --seed",
                   from->seed);
  GD_TRY(gd_method_parse(trial->method, &point.method, err));
  clean_name(point.name, sizeof point.name, from->model->name);
  point.tf32 = !point.cpu && trial->precision == GD_PRECISION_FP32 && point.method.tf32;
  GD_TRY(check_parts(format, &point, err));
  GD_TRY(divide_batch(&point, err));
  note_software(format, &point);
  point.save_steps = hourly_steps(&point);
  if (trial->precision_substituted)
    gd_strbuf_printf(notes, "the recipe's %s runs as %s on this device, and is exported as such\n",
                     gd_precision_name(point.recipe->precision),
                     gd_precision_name(trial->precision));
  GD_TRY(formats[format].write(&point, out, err));
  return out->failed || notes->failed ? gd_nomem(err, "while exporting") : GD_OK;
}
