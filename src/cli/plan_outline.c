/*
 * Answers of 6 N D FLOPs; see plan_outline.h. The days are src/search/stand_in.h's.
 */
#include "cli/plan_outline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/plan_stack.h"
#include "cli/predicting.h"
#include "cli/show_cost.h"
#include "cli/show_items.h"
#include "cli/show_trial.h"
#include "hw/estimate.h"
#include "hw/gpu_spec.h"
#include "money/run_cost.h"
#include "report/stack_days.h"
#include "search/stand_in.h"

/* One hardware's answer. */
struct row {
  const char *place, *gpu; /* gpu: NULL: this machine */
  int count;
  double days, low, high; /* 0: not predicted */
  double tokens_per_s;
  double share_low, share, share_high; /* of the peak, by 6 N D; 0: not known */
  double state_low, state_high;        /* bytes of a GPU, split over all */
  double memory;                       /* bytes that it has; 0: not known */
  double rent_usd, usd_per_gpu_hour, energy_kwh;
  const char *provider;
  int fitting;
  bool too_large;    /* its state alone, however it is split */
  const char *names; /* of those that fit: "pythia-1.4b (free-lunch), ..." */
};

struct outlining {
  struct gd_cli *cli;
  const struct gd_outline *outline;
  struct gd_stand_ins in;
  const char *software; /* NULL: this engine */
  struct row *rows;
  int count;
};

/* --- what is asked ------------------------------------------------------------------------- */

enum gd_status gd_cli_outline(struct gd_cli *cli, const char *argument, struct gd_outline *outline,
                              struct gd_error *err) {
  const struct gd_cli_options *o = &cli->options;
  const struct gd_recipe_change change = {
      .seq = o->seq, .batch = o->batch, .steps = o->steps, .tokens = o->tokens};
  if (o->params && argument)
    return gd_fail(err, GD_BAD_INPUT,
                   "--params stands in the place of a model of which nothing else is known; leave "
                   "out %s",
                   argument);
  if (o->params)
    gd_outline_of_size((double)o->params, outline);
  else
    GD_TRY(gd_outline_load(argument, outline, err));
  if (o->precision_given) {
    outline->recipe.precision = o->precision;
    outline->assumed &= ~(unsigned)GD_ASSUMED_PRECISION;
  }
  return gd_outline_change(outline, &change, err);
}

/* --- one hardware -------------------------------------------------------------------------- */

static void set_state(const struct gd_outline *outline, double memory, struct row *row) {
  bool fp32 = outline->recipe.precision == GD_PRECISION_FP32;
  double high = fp32 ? GD_STATE_BYTES_LOW : GD_STATE_BYTES_HIGH;
  row->state_low = GD_STATE_BYTES_LOW * outline->parameters / row->count;
  row->state_high = high * outline->parameters / row->count;
  row->memory = memory;
}

/* What the stand-ins were predicted for. */
struct hardware {
  struct gd_hw *hw;
  const struct gd_target *target; /* NULL: this machine */
  const char *device;
  int count;
  double peak; /* FLOP/s of each; 0: not known */
};

static enum gd_status set_row(struct outlining *o, const struct hardware *on,
                              const struct gd_stand_in_answer *answers, struct row *row,
                              struct gd_error *err) {
  const struct gd_outline *outline = o->outline;
  struct gd_stand_in_days days;
  double memory = on->target ? (double)on->target->memory_bytes : 0;
  gd_stand_ins_days(&o->in, outline, answers,
                    (struct gd_stand_in_place){.count = on->count, .memory_bytes = memory}, &days);
  *row = (struct row){.count = on->count,
                      .fitting = days.fitting,
                      .rent_usd = (double)NAN,
                      .usd_per_gpu_hour = (double)NAN,
                      .energy_kwh = (double)NAN};
  row->gpu = on->target ? gd_show_cell(o->cli, "%s", on->target->gpu->name) : NULL;
  row->place = row->count > 1 ? gd_show_cell(o->cli, "%d x %s", row->count, on->device)
                              : gd_show_cell(o->cli, "%s", on->device);
  set_state(outline, memory, row);
  row->names = gd_show_cell(o->cli, "%s", days.names);
  row->too_large = days.too_large;
  if (days.days <= 0)
    return GD_OK;
  row->days = days.days;
  row->low = days.low;
  row->high = days.high;
  row->tokens_per_s = outline->tokens / (days.days * 86400);
  double peak = on->peak * row->count;
  double flops = gd_outline_flops(outline) / 86400;
  if (peak > 0 && (on->target || row->count == 1)) {
    row->share = flops / row->days / peak;
    row->share_low = flops / row->high / peak;
    row->share_high = flops / row->low / peak;
  }
  if (!on->target)
    return GD_OK;
  struct gd_run_cost cost;
  GD_TRY(gd_run_cost_find(on->hw, on->target, row->days, days.power_w, &cost, err));
  row->rent_usd = cost.option.rent_usd;
  row->usd_per_gpu_hour = cost.option.rent ? cost.option.rent->usd_per_gpu_hour : (double)NAN;
  row->provider = cost.option.rent ? gd_show_cell(o->cli, "%s", cost.option.rent->provider) : NULL;
  row->energy_kwh = cost.option.energy_kwh;
  return GD_OK;
}

static enum gd_status plan_points(struct outlining *o, struct gd_predicting *p,
                                  struct gd_points *points, struct gd_error *err) {
  struct gd_method *methods;
  struct gd_points_asked asked = {.models = o->in.models, .n_models = o->in.count};
  struct gd_point_machine machine = gd_predicting_machine(p);
  GD_TRY(gd_cli_methods(o->cli, "all", &methods, &asked.n_methods, err));
  asked.methods = methods;
  asked.machines = &machine;
  asked.n_machines = 1;
  gd_cli_trial_options(o->cli, &(struct gd_method){0}, &asked.options);
  GD_TRY(gd_points_make(&asked, points, err));
  GD_TRY(gd_points_plan(points->all, points->count, err));
  for (int i = 0; i < points->count; i++)
    if (points->all[i].status == GD_OK)
      return GD_OK;
  return gd_points_error(points->all, points->count, true, err); /* what all are refused for */
}

/* The same for other software; its GPUs are the catalogue's. */
static enum gd_status plan_stack(struct outlining *o, struct gd_error *err) {
  struct gd_cli *cli = o->cli;
  struct gd_stack_plan plan = {0};
  struct gd_stand_in_answer answers[GD_STAND_INS];
  struct gd_method *methods = gd_arena_alloc(&cli->arena, GD_METHODS_MOST, sizeof *methods);
  struct gd_stack_asked asked =
      gd_plan_stack_asked(cli, cli->options.stack, o->in.models, o->in.count);
  enum gd_status status = methods ? gd_stack_plan_open(cli->options.stack, &plan, err)
                                  : gd_nomem(err, "before the first plan");
  if (status == GD_OK && cli->options.methods)
    status = gd_cli_methods(cli, "all", &methods, &asked.n_methods, err);
  else if (status == GD_OK)
    asked.n_methods = gd_stack_plan_methods(&plan, asked.count > 1, methods);
  asked.methods = methods;
  if (status == GD_OK)
    status = gd_stack_plan_fill(&plan, &asked, err);
  for (int i = 0; status == GD_OK && i < o->in.count; i++) {
    struct gd_time time = {0};
    gd_stack_days_of(&plan, &o->in.models[i], &time);
    answers[i] = gd_stand_in_answer_of(&time);
  }
  const struct hardware on = {
      .hw = gd_stack_plan_hw(&plan),
      .target = &plan.target,
      .device = status == GD_OK ? plan.target.gpu->title : "",
      .count = plan.target.count,
      .peak = status == GD_OK ? gd_estimate_peak(plan.target.gpu, o->outline->recipe.precision,
                                                 GD_PEAKS_DATASHEET)
                              : 0};
  if (status == GD_OK)
    status = set_row(o, &on, answers, &o->rows[o->count++], err);
  o->software = status == GD_OK ? gd_show_cell(cli, "%s", plan.facts->title) : NULL;
  gd_stack_plan_deinit(&plan);
  return status;
}

static enum gd_status plan_own(struct outlining *o, struct gd_error *err) {
  struct gd_predicting predicting = {0};
  struct gd_points points = {0};
  GD_TRY(gd_predicting_open(&predicting, o->cli, err));
  enum gd_status status = plan_points(o, &predicting, &points, err);
  if (status == GD_OK) {
    const struct gd_trial *first = &points.all[0].trial;
    struct gd_stand_in_answer answers[GD_STAND_INS];
    const struct hardware on = {.hw = &predicting.hw,
                                .target = predicting.has_target ? &predicting.target : NULL,
                                .device = first->device,
                                .count = first->ranks,
                                .peak = gd_predictor_peak(&predicting.predictor, first->precision,
                                                          gd_trial_peak(first) == GD_PEAK_TF32)};
    gd_stand_ins_best(&o->in, points.all, points.count / o->in.count, answers);
    for (int i = 0; i < o->in.count && !gd_predicting_shows(&predicting); i++)
      answers[i].days = 0; /* a guess, which is not shown */
    status = set_row(o, &on, answers, &o->rows[o->count++], err);
  }
  gd_points_free(&points);
  gd_predicting_close(&predicting);
  return status;
}

static enum gd_status plan_one(struct outlining *o, struct gd_error *err) {
  return o->cli->options.stack ? plan_stack(o, err) : plan_own(o, err);
}

static enum gd_status plan_each(struct outlining *o, struct gd_error *err) {
  struct gd_cli_options *options = &o->cli->options;
  const struct gd_cli_options given = *options;
  if (options->n_gpus == 0)
    return plan_one(o, err);
  for (int i = 0; i < given.n_gpus; i++) {
    *options = given;
    options->gpu = given.gpus[i].name;
    options->count = given.gpus[i].count > 0 ? given.gpus[i].count : given.count;
    GD_TRY(plan_one(o, err));
  }
  *options = given;
  return GD_OK;
}

/* --- for people ---------------------------------------------------------------------------- */

const char *gd_show_outline_flops(struct gd_cli *cli, const struct gd_outline *outline) {
  char flops[GD_SHOW_TEXT], n[GD_SHOW_TEXT], d[GD_SHOW_TEXT];
  return gd_show_cell(
      cli, "%s = 6 N D of %s %sparameters and %s tokens%s",
      gd_show_power(flops, sizeof flops, gd_outline_flops(outline)),
      gd_show_power(n, sizeof n, outline->active), outline->experts > 0 ? "active " : "",
      gd_show_power(d, sizeof d, outline->tokens), outline->images ? " (patches of images)" : "");
}

void gd_show_outline_notes(struct gd_cli *cli, const struct gd_outline *outline) {
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  if (outline->counted && outline->experts > 0)
    gd_show_item(cli, "size",
                 gd_show_cell(cli, "about %s, of which a token passes %s: %lld of %lld experts",
                              gd_show_power(a, sizeof a, outline->parameters),
                              gd_show_power(b, sizeof b, outline->active),
                              (long long)outline->chosen, (long long)outline->experts));
  else if (outline->counted)
    gd_show_item(cli, "size",
                 gd_show_cell(cli, "about %s, counted from the sizes in the configuration",
                              gd_show_power(a, sizeof a, outline->parameters)));
  if (outline->lacks[0])
    gd_show_item(
        cli, "lacking",
        gd_show_cell(cli, "%s; so FLOPs only: no plan, no bench, no train", outline->lacks));
  if (outline->unread[0])
    gd_show_item(cli, "ignored", outline->unread);
  if (outline->assumed & GD_ASSUMED_STEPS)
    gd_show_item(cli, "assumed",
                 outline->images ? "100,000 steps, as nobody gave --steps"
                                 : gd_show_cell(cli,
                                                "%s tokens: 20 a parameter, as Chinchilla "
                                                "(arXiv:2203.15556); --tokens sets others",
                                                gd_show_power(a, sizeof a, outline->tokens)));
  if (outline->assumed & (GD_ASSUMED_BATCH | GD_ASSUMED_SEQ | GD_ASSUMED_PRECISION))
    gd_show_item(cli, "assumed",
                 gd_show_cell(cli,
                              "batch %lld, sequence %lld, %s: the usual ones; --batch, --seq and "
                              "--precision set others",
                              (long long)outline->recipe.batch, (long long)outline->recipe.seq,
                              gd_precision_name(outline->recipe.precision)));
}

static const char *say_state(struct outlining *o, const struct row *row) {
  char low[GD_SHOW_TEXT], high[GD_SHOW_TEXT], has[GD_SHOW_TEXT];
  bool fp32 = o->outline->recipe.precision == GD_PRECISION_FP32;
  gd_format_bytes(low, sizeof low, (int64_t)row->state_low);
  gd_format_bytes(high, sizeof high, (int64_t)row->state_high);
  gd_format_bytes(has, sizeof has, (int64_t)row->memory);
  return gd_show_cell(
      o->cli,
      "not known: %s bytes a parameter of parameters, gradients and Adam's moments are "
      "%s%s%s%s%s%s; "
      "activations come on top",
      fp32 ? "16" : "16 (16-bit gradients: arXiv:1910.02054) to 18 (fp32 ones, as here)", low,
      fp32 ? "" : " to ", fp32 ? "" : high, row->count > 1 ? " a GPU, split by ZeRO stage 3," : "",
      row->memory > 0 ? " of " : "", row->memory > 0 ? has : "");
}

static void append_trust(struct outlining *o, const struct row *row) {
  struct gd_cli *cli = o->cli;
  double distance = gd_stand_ins_distance(&o->in, o->outline);
  char text[GD_SHOW_TEXT];
  gd_show_item(cli, "trust",
               gd_show_cell(cli,
                            "the rates are those predicted for %s on this hardware, each of the "
                            "same FLOPs; the interval holds all of theirs. As good as the likeness "
                            "to them: another architecture may be slower",
                            row->names));
  if (distance > GD_STAND_IN_FAR)
    gd_show_item(cli, "",
                 gd_show_cell(cli, "the nearest preset is %s times %s: far from what is known",
                              gd_format_digits(text, sizeof text, distance, 2),
                              o->in.active[0] < o->outline->active ? "smaller" : "larger"));
}

static void append_answer(struct outlining *o, const struct row *row) {
  struct gd_cli *cli = o->cli;
  struct gd_show_duration shown;
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  gd_show_bold(cli, o->outline->name);
  gd_strbuf_append(&cli->out, " on ");
  gd_show_bold(cli, row->place);
  gd_strbuf_append(&cli->out, ", FLOPs only\n");
  if (row->days > 0) {
    gd_show_duration(&shown, row->days, row->low, row->high);
    gd_show_item(cli, "time", gd_show_cell(cli, "%s  (%s)", shown.value, shown.interval));
    gd_show_item(cli, "speed",
                 gd_show_cell(cli,
                              "%s tokens/s, %s per GPU; %.0f %% of the %s peak by 6 N D "
                              "(%.0f - %.0f %%)%s%s",
                              gd_format_digits(a, sizeof a, row->tokens_per_s, 3),
                              gd_format_digits(b, sizeof b, row->tokens_per_s / row->count, 3),
                              100 * row->share, gd_precision_name(o->outline->recipe.precision),
                              100 * row->share_low, 100 * row->share_high, o->software ? "; " : "",
                              o->software ? o->software : ""));
  } else if (row->too_large) {
    gd_show_item(cli, "time",
                 "not known: parameters, gradients and Adam's moments alone are more than the "
                 "GPUs hold; more GPUs, or offloading, which a size does not tell the time of");
  } else if (row->fitting == 0) {
    gd_show_item(cli, "time", "not known: no preset of nearly that size fits on this hardware");
  } else {
    gd_show_item(cli, "time",
                 "not known before this machine was calibrated ('gpudays calibrate', once, a "
                 "minute); --gpu asks for GPUs of the catalogue");
  }
  gd_show_item(cli, "FLOPs", gd_show_outline_flops(cli, o->outline));
  gd_show_item(cli, "memory", say_state(o, row));
  if (isfinite(row->rent_usd))
    gd_show_item(cli, "cost",
                 gd_show_cell(cli, "rent %s (%s a GPU-hour, %s)",
                              gd_show_usd(a, sizeof a, row->rent_usd),
                              gd_show_usd(b, sizeof b, row->usd_per_gpu_hour), row->provider));
  gd_show_outline_notes(cli, o->outline);
  if (row->days > 0)
    append_trust(o, row);
}

static enum gd_status append_table(struct outlining *o, struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"HARDWARE", false, 0}, {"TIME", true, 0},        {"INTERVAL", true, 0}, {"PER S", true, 0},
      {"PEAK", true, 1},      {"STATE A GPU", true, 0}, {"RENT", true, 2},     {"KWH", true, 3}};
  struct gd_cli *cli = o->cli;
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char text[GD_SHOW_TEXT];
  for (int i = 0; i < o->count; i++) {
    const struct row *from = &o->rows[i];
    const char **row = gd_show_row(&rows);
    struct gd_show_duration shown;
    row[0] = from->place;
    row[1] = from->too_large ? "does not fit" : "not known";
    row[5] = gd_show_bytes_cell(cli, (int64_t)from->state_high);
    if (from->days <= 0)
      continue;
    gd_show_duration(&shown, from->days, from->low, from->high);
    row[1] = gd_show_cell(cli, "%s", shown.value);
    row[2] = gd_show_cell(cli, "%s", shown.interval);
    row[3] = gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, from->tokens_per_s, 3));
    row[4] = gd_show_cell(cli, "%.0f %%", 100 * from->share);
    if (isfinite(from->rent_usd))
      row[6] = gd_show_cell(cli, "%s", gd_show_usd(text, sizeof text, from->rent_usd));
    if (isfinite(from->energy_kwh))
      row[7] = gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, from->energy_kwh, 3));
  }
  gd_show_bold(cli, o->outline->name);
  gd_strbuf_printf(&cli->out, ", FLOPs only: %s%s%s\n", gd_show_outline_flops(cli, o->outline),
                   o->software ? "; " : "", o->software ? o->software : "");
  GD_TRY(gd_show_rows(&rows, 2, err));
  gd_show_outline_notes(cli, o->outline);
  gd_show_paragraph(&cli->out, 2,
                    "each at the rates predicted for presets of nearly that size; PEAK: share of "
                    "it by 6 N D; STATE: parameters, gradients and Adam's moments if ZeRO stage 3 "
                    "splits them, activations come on top");
  return GD_OK;
}

/* --- for programs -------------------------------------------------------------------------- */

static void add_assumed(struct gd_show_object *list, const char *field, double value,
                        const char *from) {
  struct gd_show_object row;
  gd_show_begin(&row);
  gd_show_set_text(&row, "field", field);
  gd_show_set_real(&row, "value", value);
  gd_show_set_text(&row, "from", from);
  gd_show_append(list, &row);
}

void gd_show_set_assumed_of_outline(struct gd_show_object *to, const struct gd_outline *outline) {
  struct gd_show_object list = {.object = json_array()};
  if (outline->assumed & GD_ASSUMED_STEPS)
    add_assumed(&list, "tokens", outline->tokens,
                outline->images ? "100,000 steps" : "20 a parameter: arXiv:2203.15556");
  if (outline->assumed & GD_ASSUMED_BATCH)
    add_assumed(&list, "batch", (double)outline->recipe.batch, "the usual one");
  if (outline->assumed & GD_ASSUMED_SEQ)
    add_assumed(&list, "seq", (double)outline->recipe.seq,
                "the usual one, or all positions that the model has");
  gd_show_set_object(to, "assumed", &list);
}

void gd_show_set_stand_ins(struct gd_show_object *to, const struct gd_stand_ins *in) {
  json_t *names = json_array();
  for (int i = 0; i < in->count; i++)
    json_array_append_new(names, json_string(in->models[i].name));
  gd_show_set(to, "stand_ins", names);
}

void gd_show_set_outline(struct gd_show_object *to, struct gd_cli *cli,
                         const struct gd_outline *outline) {
  (void)cli;
  gd_show_set_text(to, "model", outline->name);
  gd_show_set_bool(to, "flops_only", true);
  if (outline->model_type[0])
    gd_show_set_text(to, "model_type", outline->model_type);
  else
    gd_show_set_null(to, "model_type");
  gd_show_set_real(to, "parameters", outline->parameters);
  gd_show_set_real(to, "active_parameters", outline->active);
  gd_show_set_real(to, "tokens", outline->tokens);
  gd_show_set_real(to, "train_flops", gd_outline_flops(outline));
  gd_show_set_int(to, "seq", outline->recipe.seq);
  gd_show_set_int(to, "batch", outline->recipe.batch);
  gd_show_set_text(to, "precision", gd_precision_name(outline->recipe.precision));
  if (outline->lacks[0])
    gd_show_set_text(to, "lacks", outline->lacks);
  else
    gd_show_set_null(to, "lacks");
  gd_show_set_text(to, "not_counted", outline->unread);
  gd_show_set_assumed_of_outline(to, outline);
}

static void set_object(struct outlining *o, const struct row *row, struct gd_show_object *to) {
  gd_show_begin(to);
  gd_show_set_outline(to, o->cli, o->outline);
  gd_show_set_text(to, "stack", o->cli->options.stack ? o->cli->options.stack : "own");
  if (row->gpu)
    gd_show_set_text(to, "gpu", row->gpu);
  else
    gd_show_set_null(to, "gpu");
  gd_show_set_int(to, "count", row->count);
  gd_show_set_positive(to, "days", row->days);
  gd_show_set_positive(to, "days_low", row->low);
  gd_show_set_positive(to, "days_high", row->high);
  gd_show_set_positive(to, "tokens_per_s", row->tokens_per_s);
  gd_show_set_positive(to, "mfu", row->share);
  gd_show_set_positive(to, "mfu_low", row->share_low);
  gd_show_set_positive(to, "mfu_high", row->share_high);
  gd_show_set_real(to, "state_bytes_low", row->state_low);
  gd_show_set_real(to, "state_bytes_high", row->state_high);
  gd_show_set_real(to, "rent_usd", row->rent_usd);
  gd_show_set_real(to, "energy_kwh", row->energy_kwh);
  gd_show_set_stand_ins(to, &o->in);
}

static enum gd_status show_objects(struct outlining *o, struct gd_error *err) {
  struct gd_show_object root, row, rows = {.object = json_array()};
  for (int i = 0; i < o->count; i++) {
    set_object(o, &o->rows[i], &row);
    gd_show_append(&rows, &row);
  }
  if (o->cli->options.csv)
    return gd_show_csv(&o->cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", &rows);
  return gd_show_json(&o->cli->out, &root, err);
}

enum gd_status gd_plan_outline(struct gd_cli *cli, const struct gd_outline *outline,
                               struct gd_error *err) {
  struct outlining o = {.cli = cli, .outline = outline};
  int machines = cli->options.n_gpus > 1 ? cli->options.n_gpus : 1;
  const char *of_plans = cli->options.explain ? "explain" : cli->options.output ? "output" : NULL;
  if (of_plans)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is known by its size alone, so that there is no plan; leave out --%s",
                   outline->name, of_plans);
  static const char *const of_cost[] = {"days", "wall-limit", "queue-wait", "jobs"};
  for (size_t i = 0; i < sizeof of_cost / sizeof *of_cost; i++)
    if (gd_cli_was_given(cli, of_cost[i]))
      return gd_fail(err, GD_BAD_INPUT,
                     "plan holds no size alone against --%s; gpudays cost does, with the same "
                     "arguments",
                     of_cost[i]);
  o.rows = gd_arena_alloc(&cli->arena, (size_t)machines, sizeof *o.rows);
  if (!o.rows)
    return gd_nomem(err, "before the first plan");
  if (cli->options.stack && cli->options.n_gpus == 0)
    return gd_fail(err, GD_BAD_INPUT, "--stack %s predicts for given GPUs; name one with --gpu",
                   cli->options.stack);
  GD_TRY(gd_stand_ins_find(outline, &o.in, err));
  GD_TRY(plan_each(&o, err));
  if (gd_cli_for_programs(cli))
    return show_objects(&o, err);
  if (o.count > 1)
    return append_table(&o, err);
  append_answer(&o, &o.rows[0]);
  return GD_OK;
}
