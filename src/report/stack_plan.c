/*
 * Plans for software stacks; see stack_plan.h.
 */
#include "report/stack_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hw/estimate.h"
#include "predict/predict.h"
#include "search/points.h"

/* --- what was asked for ---------------------------------------------------------------------- */

static enum gd_status check_paper_method(const struct gd_method *method, struct gd_error *err) {
  bool known = true;
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    enum gd_part_paper paper = gd_method_row((enum gd_method_part_id)i)->paper;
    if (gd_method_has(method, (enum gd_method_part_id)i))
      known = known && (paper == GD_ON_PAPER_YES ||
                        (paper == GD_ON_PAPER_WHOLE_GROUP && gd_method_is_free_lunch(method)));
  }
  if (known)
    return GD_OK;
  return gd_fail(err, GD_UNSUPPORTED,
                 "--stack paper knows naive, also with ckpt, zero1 to zero3 and offload (as "
                 "Megatron-LM on DeepSpeed), and free-lunch with ckpt, a sharding and offload; "
                 "choose among these");
}

static enum gd_status check_method(const struct gd_stack_facts *facts,
                                   const struct gd_method *method, struct gd_error *err) {
  if (method->without)
    return gd_fail(err, GD_UNSUPPORTED, "--stack %s is not made of passes; leave out --without",
                   facts->name);
  if (facts->paper)
    return check_paper_method(method, err);
  if (gd_method_is_free_lunch(method) || gd_method_is_naive(method))
    return GD_OK;
  return gd_fail(err, GD_UNSUPPORTED,
                 "--stack %s knows naive and free-lunch, each with ckpt, a sharding and offload; "
                 "parts of free-lunch are this engine's",
                 facts->name);
}

/* --- the paper's software --------------------------------------------------------------------- */

/* Only what the paper's tables hold has been compared with anything. */
static void judge_paper(struct gd_stack_plan *plan, bool known_models) {
  const struct gd_accuracy_score *score = &plan->accuracy.held_gpu;
  const struct gd_target *target = &plan->target;
  bool known = gd_paper_find_gpu(&plan->accuracy.stack.paper, target->gpu->name) != NULL;
  plan->validated = known && known_models && target->nodes == 1 && target->count <= 8;
  double error = fmax(score->p90, plan->validated ? 0 : GD_PREDICT_UNVALIDATED);
  plan->low = 1 - error;
  plan->high = 1 + error;
  snprintf(plan->basis, sizeof plan->basis,
           "%sthe paper's software on the %s, fitted to its Tables 1 and 4, by their clock; on "
           "GPUs that "
           "a fit had not seen, median error %.0f %%, interval of 90 %% x%.2f to x%.2f",
           plan->validated ? "" : "unvalidated; ", target->gpu->title, 100 * score->median,
           plan->low, plan->high);
}

/* Seconds of a step at 100 % of the data sheet's peak. */
static double least_step_s(const struct gd_stack_plan *plan, const struct gd_stack_row *row,
                           double sample_flops) {
  double peak = gd_estimate_peak(plan->target.gpu, row->precision, GD_PEAKS_DATASHEET);
  double flops = sample_flops * (double)row->model->recipe.batch;
  return peak > 0 ? flops / (peak * plan->target.count) : 0;
}

/* Nothing is above the peak, and so neither is an end of an interval. */
static void set_days(const struct gd_stack_plan *plan, struct gd_stack_row *row, double step_s,
                     double least_s) {
  const double steps_a_day = (double)row->model->recipe.steps / 86400;
  row->step_s = fmax(step_s, least_s);
  row->days = row->step_s * steps_a_day;
  row->days_low = fmax(row->days * plan->low, least_s * steps_a_day);
  row->days_high = row->days * plan->high;
}

static void fill_paper_row(struct gd_stack_plan *plan, const struct gd_stack_model *model,
                           struct gd_stack_row *row) {
  struct gd_stack_point point;
  gd_stack_point(model, &row->method, &plan->target, row->model->recipe.batch, &plan->limits,
                 &point);
  row->micro_batch = point.micro_batch;
  row->accumulation = point.accumulation;
  row->bytes = point.bytes;
  row->fits = point.micro_batch > 0;
  if (!row->fits)
    return;
  struct gd_stack_time time;
  gd_stack_time(model, &point, &plan->target, &plan->accuracy.all.fit, &time);
  set_days(plan, row, time.waited_s,
           least_step_s(plan, row, model->graphs[point.mode].model_flops));
  row->clock_days = time.step_s * (double)row->model->recipe.steps / 86400;
}

/* --- what several questions share ------------------------------------------------------------- */

/* Of one model as that software builds it; a list, since there are few. */
struct gd_stack_counted {
  struct gd_stack_counted *next;
  const struct gd_model *model; /* and of its paper's software all of what follows: */
  bool paper;
  struct gd_stack_model of_paper;
  enum gd_precision precision;
  bool flash, tf32;
  int64_t micro_batch; /* of the works; 0: this is a graph */
  struct gd_stack_graph graph;
  struct gd_stack_works works;
};

static struct gd_stack_counted *find_counted(const struct gd_stack_plan *plan,
                                             const struct gd_stack_counted *like) {
  struct gd_stack_counted *at = plan->counted;
  while (at && (at->model != like->model || at->paper != like->paper ||
                at->precision != like->precision || at->flash != like->flash ||
                at->tf32 != like->tf32 || at->micro_batch != like->micro_batch))
    at = at->next;
  return at;
}

static enum gd_status make_counted(struct gd_stack_plan *plan, struct gd_stack_counted *made,
                                   struct gd_error *err) {
  struct gd_model model = *made->model;
  if (made->paper) {
    made->of_paper.model = model;
    return gd_stack_model_make(&made->of_paper, err);
  }
  model.recipe.precision = made->precision;
  if (made->micro_batch == 0)
    return gd_stack_graph_make(&model, gd_stack_facts_mode(plan->facts, made->flash), &made->graph,
                               err);
  return gd_stack_works_make(plan->facts, &model, made->precision, made->micro_batch, made->flash,
                             made->tf32, &made->works, err);
}

static enum gd_status count(struct gd_stack_plan *plan, const struct gd_stack_counted *wanted,
                            const struct gd_stack_counted **counted, struct gd_error *err) {
  *counted = find_counted(plan, wanted);
  if (*counted)
    return GD_OK;
  struct gd_stack_counted *made = gd_mem_alloc(1, sizeof *made);
  if (!made)
    return gd_nomem(err, "before a plan");
  *made = *wanted;
  enum gd_status status = make_counted(plan, made, err);
  if (status != GD_OK) {
    gd_mem_free(made);
    return status;
  }
  made->next = plan->counted;
  plan->counted = made;
  *counted = made;
  return GD_OK;
}

static void forget_counted(struct gd_stack_plan *plan) {
  while (plan->counted) {
    struct gd_stack_counted *next = plan->counted->next;
    gd_stack_works_deinit(&plan->counted->works);
    gd_mem_free(plan->counted);
    plan->counted = next;
  }
}

/* --- the others ------------------------------------------------------------------------------ */

static void judge_stack(struct gd_stack_plan *plan, const struct gd_stack_asked *asked) {
  struct gd_fitted_ground ground;
  gd_fitted_stand(&plan->fitted, plan->target.gpu, plan->facts, asked->models, asked->n_models,
                  &ground);
  plan->validated = ground.known == GD_KNOWN_BOTH;
  plan->low = ground.interval->low;
  plan->high = ground.interval->high;
  snprintf(
      plan->basis, sizeof plan->basis,
      "%s%s on the %s, by a model of the GPU and of the software that rests on %s; on rows that a "
      "fit had not seen, every source weighing the same, median error %.0f %%, interval of 90 %% "
      "x%.2f to x%.2f",
      plan->validated ? "" : "unvalidated; ", plan->facts->title, plan->target.gpu->title,
      ground.words, 100 * ground.interval->median, plan->low, plan->high);
}

static double device_limit(const struct gd_stack_plan *plan) {
  return plan->limits.device_bytes > 0 ? plan->limits.device_bytes
                                       : (double)plan->target.gpu->memory_bytes;
}

static double host_limit(const struct gd_stack_plan *plan) {
  return plan->limits.host_bytes > 0 ? plan->limits.host_bytes
                                     : (double)plan->target.host_memory_bytes;
}

static bool has_room(const struct gd_stack_plan *plan, const struct gd_stack_bytes *bytes,
                     double margin) {
  return bytes->device <= margin * device_limit(plan) && bytes->host <= margin * host_limit(plan);
}

/* The largest micro-batch that fits, or whether the one that was asked for does. */
static void choose_micro_batch(const struct gd_stack_plan *plan, const struct gd_stack_graph *graph,
                               struct gd_stack_row *row) {
  int64_t own = row->model->recipe.batch / plan->target.count, fixed = plan->limits.micro_batch;
  int64_t size = fixed > 0 ? fixed : 1;
  double margin = fixed > 0 ? plan->facts->memory_over : 1;
  for (; size <= own; size += plan->limits.any_size ? 1 : size) {
    struct gd_stack_bytes bytes;
    gd_stack_facts_bytes(plan->facts, graph, &row->method, plan->target.count, (double)size,
                         &bytes);
    bool fits = has_room(plan, &bytes, margin);
    if (fits || row->micro_batch == 0)
      row->bytes = bytes;
    if (!fits)
      break;
    row->micro_batch = size;
    row->tight = !has_room(plan, &bytes, 1);
    if (fixed > 0)
      break;
  }
  row->fits = row->micro_batch > 0;
}

static enum gd_status fill_row(struct gd_stack_plan *plan, struct gd_stack_row *row,
                               struct gd_error *err) {
  const struct gd_stack_facts *facts = plan->facts;
  const struct gd_stack_counted *graph, *works;
  struct gd_stack_counted wanted = {
      .model = row->model,
      .precision = row->precision,
      .tf32 = !gd_method_is_naive(&row->method), /* torch.backends.cuda.matmul.allow_tf32 */
      .flash = gd_stack_has_flash(facts, row->model, gd_method_is_naive(&row->method))};
  GD_TRY(count(plan, &wanted, &graph, err));
  choose_micro_batch(plan, &graph->graph, row);
  if (!row->fits)
    return GD_OK;
  double own = (double)row->model->recipe.batch / plan->target.count;
  row->accumulation = ceil(own / (double)row->micro_batch - 1e-9);
  wanted.micro_batch = row->micro_batch;
  GD_TRY(count(plan, &wanted, &works, err));
  struct gd_stack_run run = {
      .facts = facts,
      .works = &works->works,
      .gpu = &plan->gpu,
      .target = &plan->target,
      .method = row->method,
      .accumulation = own / (double)row->micro_batch,
      .energy = plan->energy,
      .value = {facts->value[GD_STACK_TRAFFIC], facts->value[GD_STACK_HOST]}};
  gd_stack_step(&run, &row->step);
  set_days(plan, row, row->step.seconds,
           least_step_s(plan, row, works->works.model_flops / (double)row->micro_batch));
  return GD_OK;
}

/* --- all of them ----------------------------------------------------------------------------- */

static enum gd_status add_row(struct gd_stack_plan *plan, const struct gd_stack_asked *asked,
                              const struct gd_model *model, const struct gd_method *method,
                              struct gd_error *err) {
  const struct gd_stack_counted *paper;
  if (!gd_vec_reserve((void **)&plan->rows, &plan->capacity, (uint32_t)plan->count + 1,
                      sizeof *plan->rows))
    return gd_nomem(err, "before the first plan");
  struct gd_stack_row *row = &plan->rows[plan->count];
  *row = (struct gd_stack_row){.model = model, .method = *method, .number = plan->count++};
  GD_TRY(gd_estimate_precision(model, plan->target.gpu, asked->precision, &row->precision,
                               &row->substituted, err));
  if (!plan->facts->paper)
    return fill_row(plan, row, err);
  GD_TRY(count(plan, &(struct gd_stack_counted){.model = model, .paper = true}, &paper, err));
  fill_paper_row(plan, &paper->of_paper, row);
  return GD_OK;
}

static enum gd_status check_model(const struct gd_stack_plan *plan, const struct gd_model *model,
                                  struct gd_error *err) {
  int64_t batch = model->recipe.batch;
  if (batch % plan->target.count)
    return gd_fail(err, GD_BAD_INPUT, "a batch of %lld does not divide among %d GPUs",
                   (long long)batch, plan->target.count);
  if (plan->limits.micro_batch > batch / plan->target.count)
    return gd_fail(err, GD_BAD_INPUT,
                   "--micro-batch is %lld, but a batch of %lld leaves each of %d GPUs %lld",
                   (long long)plan->limits.micro_batch, (long long)batch, plan->target.count,
                   (long long)(batch / plan->target.count));
  return GD_OK;
}

static enum gd_status add_rows(const struct gd_stack_asked *asked, struct gd_stack_plan *plan,
                               struct gd_error *err) {
  bool known = true, paper = plan->facts->paper;
  for (int i = 0; i < asked->n_models && paper; i++)
    known = known && gd_paper_find_recipe(&plan->accuracy.stack.paper, asked->models[i].name);
  if (paper)
    judge_paper(plan, known);
  else
    judge_stack(plan, asked);
  for (int i = 0; i < asked->n_models; i++) {
    GD_TRY(check_model(plan, &asked->models[i], err));
    for (int k = 0; k < asked->n_methods; k++)
      GD_TRY(add_row(plan, asked, &asked->models[i], &asked->methods[k], err));
  }
  return GD_OK;
}

static int compare_rows(const void *left, const void *right) {
  const struct gd_stack_row *a = left, *b = right;
  if (a->model != b->model)
    return a->model < b->model ? -1 : 1;
  if (a->fits != b->fits)
    return a->fits ? -1 : 1;
  if (a->days < b->days || a->days > b->days)
    return a->days < b->days ? -1 : 1;
  return a->number - b->number;
}

/* The row to answer with, of those of one model from `first` on. */
static int simplest_of(const struct gd_stack_plan *plan, int first) {
  const struct gd_stack_row *rows = plan->rows;
  int best = first;
  for (int i = first + 1; i < plan->count && rows[i].model == rows[first].model; i++) {
    if (!rows[i].fits || rows[i].days > GD_POINTS_NEAR * rows[first].days)
      break;
    if (gd_points_count_parts(&rows[i].method) < gd_points_count_parts(&rows[best].method))
      best = i;
  }
  return best;
}

void gd_stack_plan_prefer_simple(struct gd_stack_plan *plan) {
  for (int i = 0; i < plan->count && !plan->facts->paper; i++) {
    if (i > 0 && plan->rows[i].model == plan->rows[i - 1].model)
      continue;
    int best = plan->rows[i].fits ? simplest_of(plan, i) : i;
    struct gd_stack_row chosen = plan->rows[best];
    memmove(&plan->rows[i + 1], &plan->rows[i], (size_t)(best - i) * sizeof chosen);
    plan->rows[i] = chosen;
  }
}

static enum gd_status open_stack(const char *stack, struct gd_stack_plan *plan,
                                 struct gd_error *err) {
  GD_TRY(gd_stacks_load(&plan->stacks, err));
  GD_TRY(gd_stacks_find(&plan->stacks, stack ? stack : "paper", &plan->facts, err));
  if (plan->facts->paper)
    return gd_accuracy_make(&plan->accuracy, err);
  GD_TRY(gd_hw_load(&plan->hw, err));
  return gd_fitted_load(&plan->fitted, err);
}

enum gd_status gd_stack_plan_open(const char *stack, struct gd_stack_plan *plan,
                                  struct gd_error *err) {
  *plan = (struct gd_stack_plan){0};
  return open_stack(stack, plan, err);
}

struct gd_hw *gd_stack_plan_hw(struct gd_stack_plan *plan) {
  return plan->facts->paper ? &plan->accuracy.stack.hw : &plan->hw;
}

/* What training draws over what the tensor cores' FLOPs do was learned from this engine's trials,
   and holds for whoever trains: other units work too. */
static enum gd_status find_energy(struct gd_stack_plan *plan, const struct gd_gpu *before,
                                  struct gd_error *err) {
  struct gd_predictor predictor = {0};
  if (plan->facts->paper || (plan->calibrations && before == plan->target.gpu))
    return GD_OK;
  if (!plan->calibrations)
    GD_TRY(gd_calibrations_new(&plan->calibrations, err));
  GD_TRY(gd_predictor_by(plan->calibrations, &predictor, &plan->target, err));
  plan->energy = predictor.rates.learned.energy;
  gd_predictor_deinit(&predictor);
  return GD_OK;
}

enum gd_status gd_stack_plan_fill(struct gd_stack_plan *plan, const struct gd_stack_asked *asked,
                                  struct gd_error *err) {
  const struct gd_gpu *before = plan->target.gpu;
  plan->count = 0;
  plan->limits = asked->limits;
  plan->models = asked->models;
  for (int i = 0; i < asked->n_methods; i++)
    GD_TRY(check_method(plan->facts, &asked->methods[i], err));
  if (asked->target)
    plan->target = *asked->target;
  else
    GD_TRY(gd_hw_target(gd_stack_plan_hw(plan), asked->gpu, asked->count, asked->nodes,
                        asked->machine, asked->network, &plan->target, err));
  if (asked->cpus > 0)
    plan->target.cpus = asked->cpus;
  gd_gpu_model_make(plan->target.gpu, &plan->fitted.gpu, &plan->gpu);
  GD_TRY(find_energy(plan, before, err));
  GD_TRY(add_rows(asked, plan, err));
  qsort(plan->rows, (size_t)plan->count, sizeof *plan->rows, compare_rows);
  return GD_OK;
}

enum gd_status gd_stack_plan_make(const struct gd_stack_asked *asked, struct gd_stack_plan *plan,
                                  struct gd_error *err) {
  GD_TRY(gd_stack_plan_open(asked->stack, plan, err));
  return gd_stack_plan_fill(plan, asked, err);
}

int gd_stack_plan_methods(const struct gd_stack_plan *plan, bool several,
                          struct gd_method *methods) {
  int count = gd_method_space(several, methods), kept = 0;
  for (int i = 0; i < count; i++)
    if (check_method(plan->facts, &methods[i], NULL) == GD_OK)
      methods[kept++] = methods[i];
  return kept;
}

void gd_stack_plan_deinit(struct gd_stack_plan *plan) {
  forget_counted(plan);
  gd_mem_free(plan->rows);
  gd_accuracy_deinit(&plan->accuracy);
  gd_stacks_deinit(&plan->stacks);
  gd_hw_deinit(&plan->hw);
  gd_calibrations_free(plan->calibrations);
  *plan = (struct gd_stack_plan){0};
}

struct gd_stack_miss gd_stack_plan_miss(const struct gd_stack_plan *plan,
                                        const struct gd_stack_row *row) {
  const struct gd_stack_bytes *bytes = &row->bytes;
  double device = device_limit(plan);
  bool host = bytes->device <= device;
  return (struct gd_stack_miss){.host = host,
                                .device_bytes = device,
                                .need_bytes = host ? bytes->host : bytes->device,
                                .have_bytes = host ? host_limit(plan) : device};
}

void gd_stack_plan_reason(const struct gd_stack_plan *plan, const struct gd_stack_row *row,
                          char *text, size_t size) {
  char need[32], have[32];
  struct gd_stack_miss miss = gd_stack_plan_miss(plan, row);
  int64_t micro_batch = plan->limits.micro_batch > 0 ? plan->limits.micro_batch : 1;
  snprintf(text, size, "micro-batch %lld needs %s of the %s that a %s has", (long long)micro_batch,
           gd_format_bytes(need, sizeof need, (int64_t)miss.need_bytes),
           gd_format_bytes(have, sizeof have, (int64_t)miss.have_bytes),
           miss.host ? "GPU's host share" : "GPU");
}

enum gd_status gd_stack_plan_enough(struct gd_stack_plan *plan, const struct gd_stack_asked *asked,
                                    int *count, struct gd_error *err) {
  enum { MOST = 512 };
  const int64_t batch = asked->models->recipe.batch;
  struct gd_stack_asked more = *asked;
  *count = 0;
  for (more.count = 2 * asked->count; more.count <= MOST && batch % more.count == 0;
       more.count *= 2) {
    more.nodes = asked->nodes > 0 ? asked->nodes * more.count / asked->count : 0;
    GD_TRY(gd_stack_plan_fill(plan, &more, err));
    if (plan->rows[0].fits) {
      *count = more.count;
      return GD_OK;
    }
  }
  return GD_OK;
}

enum gd_status gd_stack_plan_trial(const struct gd_stack_plan *plan, const struct gd_stack_row *row,
                                   struct gd_trial *trial, struct gd_error *err) {
  const struct gd_target *target = &plan->target;
  struct gd_model_facts facts;
  GD_TRY(gd_model_facts(row->model, row->precision, &facts, err));
  *trial = (struct gd_trial){.status = row->fits ? GD_TRIAL_PLANNED : GD_TRIAL_INFEASIBLE,
                             .threads = target->cpus,
                             .ranks = target->count,
                             .nodes = target->nodes,
                             .parameters = facts.parameters,
                             .precision = row->precision,
                             .precision_substituted = row->substituted,
                             .micro_batch = row->micro_batch,
                             .accumulation = (int64_t)row->accumulation,
                             .peak_bytes = (int64_t)row->bytes.device,
                             .host_bytes = (int64_t)row->bytes.host,
                             .device_limit_bytes = (int64_t)device_limit(plan),
                             .host_limit_bytes = (int64_t)host_limit(plan),
                             .step_s = row->step_s,
                             .days = row->days,
                             .days_low = row->days_low,
                             .days_high = row->days_high};
  snprintf(trial->model, sizeof trial->model, "%s", row->model->name);
  snprintf(trial->device, sizeof trial->device, "%s", target->gpu->title);
  snprintf(trial->backend, sizeof trial->backend, "cuda");
  gd_method_name(&row->method, trial->method);
  if (!row->fits)
    gd_stack_plan_reason(plan, row, trial->reason, sizeof trial->reason);
  return GD_OK;
}
