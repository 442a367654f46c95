/*
 * Days of a run on a machine, from one of several sources; each is a row of one table, and GD_TIMES
 * AUTO tries them in order. A source answers, says that it is infeasible, or says nothing.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "hw/estimate.h"
#include "money/money_int.h"
#include "search/points.h"

static bool equal(double a, double b) {
  return fabs(a - b) <= 1e-6 * fabs(b);
}

/* --- measured ------------------------------------------------------------------------------ */

static void leave_out(struct gd_times_context *context, const char *device) {
  size_t length = strlen(context->left_out);
  if (strstr(context->left_out, device))
    return;
  if (length + strlen(device) + 3 < GD_TIMES_LEFT_OUT)
    snprintf(context->left_out + length, GD_TIMES_LEFT_OUT - length, "%s%s", length ? "; " : "",
             device);
}

/* The trial's own low end, which is lower where something held it back. */
static double low_step_s(const struct gd_trial *trial) {
  return trial->days > 0 ? trial->step_s * trial->days_low / trial->days
                         : trial->step_s - trial->step_half_width_s;
}

static void set_measured(const struct gd_times_context *context, const struct gd_store_row *row,
                         struct gd_time *time) {
  const struct gd_trial *trial = &row->trial;
  double days_per_step_s = (double)context->asked->model->recipe.steps / 86400;
  *time = (struct gd_time){
      .state = GD_TIME_KNOWN,
      .times = GD_TIMES_MEASURED,
      .days = trial->step_s * days_per_step_s,
      .days_low = low_step_s(trial) * days_per_step_s,
      .days_high = (trial->step_s + trial->step_half_width_s) * days_per_step_s,
      .share = trial->mfu,
      .gpu_power_w = trial->gpu_power_w,
  };
  snprintf(time->method, sizeof time->method, "%s", trial->method);
  snprintf(time->source, sizeof time->source, "measured on %d x %.80s%s%.32s, %.10s", trial->ranks,
           trial->device, row->origin[0] ? " by " : "", row->origin[0] ? row->provenance.host : "",
           row->provenance.time);
  size_t length = strlen(time->source);
  if (gd_trial_is_disturbed(trial))
    snprintf(time->source + length, sizeof time->source - length,
             " while other programs had %.0f %% of the cores: too long, and to be measured again",
             100 * trial->busy_share);
}

/* Whether a trial's recipe is the one asked for, but for the number of steps: a run of another
   length has the same step. */
static enum gd_status has_same_step(struct gd_times_context *context, const struct gd_trial *trial,
                                    bool *same, struct gd_error *err) {
  struct gd_model model = *context->asked->model;
  double steps = nearbyint(trial->train_flops / trial->model_flops_per_step);
  *same = false;
  if (!(steps >= 1 && steps <= 1e15))
    return GD_OK;
  if (context->recipe_steps != (int64_t)steps) { /* most trials have the same */
    model.recipe.steps = (int64_t)steps;
    GD_TRY(gd_recipe_hash(&model, NULL, context->recipe, err));
    context->recipe_steps = (int64_t)steps;
  }
  *same = strcmp(context->recipe, trial->recipe) == 0;
  return GD_OK;
}

/* Rows come by days, so the first one of a kind and count is the fastest; one that was disturbed
   makes room for the first that was not. */
static enum gd_status add_trial(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct gd_times_context *context = user;
  const struct gd_trial *trial = &row->trial;
  bool same = false;
  if (trial->nodes <= 1)
    GD_TRY(has_same_step(context, trial, &same, err));
  if (!same)
    return GD_OK;
  const struct gd_gpu *gpu;
  if (gd_hw_gpu(context->asked->hw, trial->device, &gpu, NULL) != GD_OK) {
    leave_out(context, trial->device);
    return GD_OK;
  }
  int at = 0;
  while (at < context->n_trials &&
         (context->trials[at].gpu != gpu || context->trials[at].count != trial->ranks))
    at++;
  bool disturbed = gd_trial_is_disturbed(trial);
  if (at < context->n_trials ? disturbed || !context->trials[at].disturbed : at == GD_TIMES_TRIALS)
    return GD_OK;
  context->n_trials += at == context->n_trials;
  struct gd_times_trial *added = &context->trials[at];
  added->gpu = gpu;
  added->count = trial->ranks;
  added->disturbed = disturbed;
  set_measured(context, row, &added->time);
  return GD_OK;
}

static enum gd_status find_measured(const struct gd_times_context *context,
                                    const struct gd_machine *machine, const struct gd_gpu *gpu,
                                    struct gd_time *time, struct gd_error *err) {
  (void)err;
  for (int i = 0; i < context->n_trials; i++)
    if (context->trials[i].gpu == gpu && context->trials[i].count == machine->count)
      *time = context->trials[i].time;
  return GD_OK;
}

/* --- analytic ------------------------------------------------------------------------------ */

static enum gd_status find_analytic(const struct gd_times_context *context,
                                    const struct gd_machine *machine, const struct gd_gpu *gpu,
                                    struct gd_time *time, struct gd_error *err) {
  double share = context->asked->terms.mfu.value;
  enum gd_precision precision;
  bool substituted;
  GD_TRY(gd_estimate_precision(context->asked->model, gpu, NULL, &precision, &substituted, err));
  double peak_flops = gd_estimate_peak(gpu, precision, GD_PEAKS_DATASHEET);
  if (!(peak_flops > 0))
    return GD_OK;
  time->state = GD_TIME_KNOWN;
  time->days = gd_estimate_days(context->work->train_flops, peak_flops * share, machine->count);
  time->days_low = time->days_high = time->days;
  time->share = share;
  snprintf(time->source, sizeof time->source, "assumed %g %% of %.4g TFLOP/s %s a GPU%s%s",
           100 * share, peak_flops / 1e12, gd_peak_name(gd_estimate_kind(gpu, precision)),
           substituted ? ", which has no " : "",
           substituted ? gd_precision_name(context->asked->model->recipe.precision) : "");
  return GD_OK;
}

/* --- the paper ----------------------------------------------------------------------------- */

static void set_method(const struct gd_paper_setting *s, struct gd_time *time) {
  snprintf(time->method, sizeof time->method, "%s%s%s%s%s", s->free_lunch ? "free-lunch" : "naive",
           s->checkpointing ? "+ckpt" : "", s->sharding[0] ? "+" : "", s->sharding,
           s->offloading ? "+offload" : "");
}

/* Days are printed as whole numbers: half a day either way. */
static enum gd_status find_paper(const struct gd_times_context *context,
                                 const struct gd_machine *machine, const struct gd_gpu *gpu,
                                 struct gd_time *time, struct gd_error *err) {
  const struct gd_paper *paper = context->asked->paper;
  const struct gd_paper_days *cell = NULL;
  (void)err;
  if (paper && context->paper_scale > 0)
    cell = gd_paper_find(paper, GD_PAPER_OPTIMAL, context->asked->model->name, gpu->name,
                         machine->count);
  if (!cell)
    return GD_OK;
  snprintf(time->source, sizeof time->source, "Table 1 of the paper%s",
           equal(context->paper_scale, 1) ? "" : ", scaled by training steps");
  time->state = cell->days > 0 ? GD_TIME_KNOWN : GD_TIME_INFEASIBLE;
  if (cell->days <= 0)
    return GD_OK;
  time->days = cell->days * context->paper_scale;
  time->days_low = (cell->days - 0.5) * context->paper_scale;
  time->days_high = (cell->days + 0.5) * context->paper_scale;
  time->share = cell->share;
  const struct gd_paper_setting *setting =
      gd_paper_find_setting(paper, cell->model, cell->gpu, cell->count);
  if (setting)
    set_method(setting, time);
  return GD_OK;
}

/* Steps asked for over steps of the paper's recipe, where that is otherwise the same; else 0. */
static double paper_scale(const struct gd_money_asked *asked) {
  const struct gd_recipe *recipe = &asked->model->recipe;
  bool images = asked->model->family->images;
  const struct gd_paper_recipe *paper =
      asked->paper ? gd_paper_find_recipe(asked->paper, asked->model->name) : NULL;
  if (!paper || paper->batch != recipe->batch || (!images && paper->seq != recipe->seq))
    return 0;
  return (double)recipe->steps / (double)paper->steps;
}

/* --- all of them --------------------------------------------------------------------------- */

static const struct {
  const char *name;
  enum gd_status (*find)(const struct gd_times_context *context, const struct gd_machine *machine,
                         const struct gd_gpu *gpu, struct gd_time *time, struct gd_error *err);
} sources[GD_TIMES_COUNT] = {
    [GD_TIMES_AUTO] = {"auto", NULL},
    [GD_TIMES_MEASURED] = {"measured", find_measured},
    [GD_TIMES_PREDICTED] = {"predicted", NULL}, /* all machines at once */
    [GD_TIMES_ANALYTIC] = {"analytic", find_analytic},
    [GD_TIMES_PAPER] = {"paper", find_paper},
};

const char *gd_times_name(enum gd_times times) {
  return sources[times].name;
}

bool gd_times_parse(const char *text, enum gd_times *times) {
  for (int i = 0; i < GD_TIMES_COUNT; i++)
    if (strcmp(text, sources[i].name) == 0) {
      *times = (enum gd_times)i;
      return true;
    }
  return false;
}

enum gd_status gd_times_open(const struct gd_money_asked *asked, struct gd_money_table *table,
                             struct gd_times_context *context, struct gd_error *err) {
  static const enum gd_trial_status ok = GD_TRIAL_OK;
  bool measured = asked->times == GD_TIMES_AUTO || asked->times == GD_TIMES_MEASURED;
  *context =
      (struct gd_times_context){.asked = asked, .work = &table->work, .left_out = table->left_out};
  context->paper_scale = paper_scale(asked);
  if (!measured || !asked->store)
    return GD_OK;
  context->trials = gd_arena_alloc(&table->arena, GD_TIMES_TRIALS, sizeof *context->trials);
  if (!context->trials)
    return gd_nomem(err, "before the results are read");
  struct gd_store_filter filter = {
      .model_name = asked->model->name, .status = &ok, .brief = true, .sort = GD_STORE_SORT_DAYS};
  return gd_store_query(asked->store, &filter, add_trial, context, err);
}

void gd_times_close(struct gd_times_context *context) {
  gd_points_kept_free(context->kept);
  *context = (struct gd_times_context){0};
}

/* One source, for the options that have no answer yet. */
static enum gd_status find_by(struct gd_times_context *context, enum gd_times source,
                              struct gd_money_option *options, int count, struct gd_error *err) {
  for (int i = 0; i < count; i++)
    if (options[i].time.state == GD_TIME_UNKNOWN)
      options[i].time = (struct gd_time){.times = source};
  if (source == GD_TIMES_PREDICTED)
    return gd_times_predict(context, options, count, err);
  for (int i = 0; i < count; i++)
    if (options[i].time.state == GD_TIME_UNKNOWN)
      GD_TRY(
          sources[source].find(context, options[i].machine, options[i].gpu, &options[i].time, err));
  return GD_OK;
}

enum gd_status gd_times_find(struct gd_times_context *context, struct gd_money_option *options,
                             int count, struct gd_error *err) {
  enum gd_times asked = context->asked->times;
  int first = asked == GD_TIMES_AUTO ? GD_TIMES_MEASURED : (int)asked;
  int last = asked == GD_TIMES_AUTO ? GD_TIMES_ANALYTIC : (int)asked;
  for (int i = first; i <= last; i++)
    GD_TRY(find_by(context, (enum gd_times)i, options, count, err));
  return GD_OK;
}
