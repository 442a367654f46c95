/*
 * The plan that is exported for hardware of the catalogue; see export_target.h.
 */
#include "cli/export_target.h"

#include <stdio.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/cli.h"

/* --- gpudays' own engine ------------------------------------------------------------------- */

/* Why nothing fits, and the commands that find what does. */
static enum gd_status refuse_own(struct gd_cli *cli, struct gd_predicting *p,
                                 const struct gd_points_asked *asked, const struct gd_point *point,
                                 struct gd_error *err) {
  struct gd_error verdict = {0};
  struct gd_remedies remedies = {0};
  struct gd_strbuf text = {0};
  gd_trial_verdict(&point->trial, &verdict);
  GD_TRY(gd_answer_find_remedies(cli, p, asked, point, &remedies, err));
  for (int i = 0; i < remedies.count; i++)
    gd_strbuf_printf(&text, "%s '%s'", i ? "," : "; what fits:",
                     gd_answer_remedy_command(cli, point, &p->target, &remedies.list[i]));
  (void)gd_fail(err, verdict.status, "%s%s", verdict.text, text.text ? text.text : "");
  gd_strbuf_deinit(&text);
  return verdict.status;
}

/* The trial with what is predicted of it in the place of what would be measured. */
static void take_point(const struct gd_point *point, struct gd_trial *trial) {
  *trial = point->trial;
  if (!point->prediction.known)
    return;
  trial->step_s = point->prediction.step_s;
  trial->days = point->prediction.days;
  trial->days_low = point->prediction.days_low;
  trial->days_high = point->prediction.days_high;
}

static enum gd_status choose_own(struct gd_cli *cli, const struct gd_points_asked *asked,
                                 const struct gd_points *points, struct gd_export_target *made,
                                 struct gd_error *err) {
  const struct gd_point *best = gd_points_best(points->all, points->count);
  const struct gd_point *nearest = gd_points_nearest(points->all, points->count);
  GD_TRY(gd_points_error(points->all, points->count, cli->options.methods || (!best && !nearest),
                         err));
  if (!best)
    return refuse_own(cli, &made->predicting, asked, nearest, err);
  take_point(best, &made->trial);
  return GD_OK;
}

/* The very point that plan answers with. */
static enum gd_status plan_own(struct gd_cli *cli, const struct gd_model *model,
                               struct gd_export_target *made, struct gd_error *err) {
  struct gd_points points = {0};
  struct gd_method *methods;
  GD_TRY(gd_predicting_open(&made->predicting, cli, err));
  struct gd_point_machine machine = gd_predicting_machine(&made->predicting);
  struct gd_points_asked asked = {.models = model,
                                  .arguments = cli->arguments,
                                  .n_models = 1,
                                  .machines = &machine,
                                  .n_machines = 1};
  GD_TRY(gd_cli_methods(cli, "all", &methods, &asked.n_methods, err));
  asked.methods = methods;
  gd_cli_trial_options(cli, &(struct gd_method){0}, &asked.options);
  made->target = &made->predicting.target;
  made->stack = "own";
  enum gd_status status = gd_points_make(&asked, &points, err);
  if (status == GD_OK)
    status = gd_points_plan(points.all, points.count, err);
  if (status == GD_OK)
    status = choose_own(cli, &asked, &points, made, err);
  gd_points_free(&points);
  return status;
}

/* --- other software ------------------------------------------------------------------------ */

/* The methods that were named; else those of the software that the format says whole. */
static enum gd_status find_methods(struct gd_cli *cli, const struct gd_stack_plan *plan,
                                   bool several, struct gd_method **methods, int *count,
                                   struct gd_error *err) {
  int all;
  if (cli->options.methods)
    return gd_cli_methods(cli, "all", methods, count, err);
  *methods = gd_arena_alloc(&cli->arena, GD_METHODS_MOST, sizeof **methods);
  if (!*methods)
    return gd_nomem(err, "before the first plan");
  all = gd_stack_plan_methods(plan, several, *methods);
  *count = 0;
  for (int i = 0; i < all; i++)
    if (gd_export_keeps(cli->options.format, &(*methods)[i], several))
      (*methods)[(*count)++] = (*methods)[i];
  return GD_OK;
}

/* Another method on as many GPUs, where one was named; else more GPUs. *count 0: neither fits. */
static enum gd_status find_enough(struct gd_cli *cli, struct gd_stack_plan *plan,
                                  struct gd_stack_asked *asked, int *count, struct gd_error *err) {
  struct gd_method *methods;
  bool named = cli->options.methods != NULL;
  cli->options.methods = NULL;
  if (named) {
    GD_TRY(find_methods(cli, plan, asked->count > 1, &methods, &asked->n_methods, err));
    asked->methods = methods;
    GD_TRY(gd_stack_plan_fill(plan, asked, err));
    *count = asked->count;
    if (plan->count > 0 && plan->rows[0].fits)
      return GD_OK;
  }
  GD_TRY(find_methods(cli, plan, true, &methods, &asked->n_methods, err));
  asked->methods = methods;
  return gd_stack_plan_enough(plan, asked, count, err);
}

static enum gd_status refuse_stack(struct gd_cli *cli, struct gd_export_target *made,
                                   struct gd_stack_asked *asked, struct gd_error *err) {
  struct gd_stack_plan *plan = &made->plan;
  char reason[256], verdict[640], recipe[GD_CLI_RECIPE_TEXT];
  int count;
  bool host = gd_stack_plan_miss(plan, &plan->rows[0]).host;
  enum gd_status status = host ? GD_NOMEM_HOST : GD_NOMEM_DEVICE;
  gd_stack_plan_reason(plan, &plan->rows[0], reason, sizeof reason);
  snprintf(verdict, sizeof verdict, "%s does not fit on %d x %s with %s: %s",
           plan->rows[0].model->name, asked->count, plan->target.gpu->title, plan->facts->title,
           reason);
  GD_TRY(find_enough(cli, plan, asked, &count, err));
  const char *more = gd_answer_hardware(cli, plan->target.gpu->name, count ? count : asked->count);
  gd_cli_recipe_options(cli, recipe, sizeof recipe);
  if (count == 0)
    return gd_fail(err, status, "%s; 'gpudays plan %s%s %s%s' says what gpudays' own engine needs",
                   verdict, cli->arguments[0], recipe, more, gd_answer_limits(cli));
  return gd_fail(err, status, "%s; what fits: 'gpudays export %s%s %s%s%s%s --format %s'", verdict,
                 cli->arguments[0], recipe, more, gd_answer_limits(cli),
                 cli->options.stack ? " --stack " : "",
                 cli->options.stack ? cli->options.stack : "", gd_export_name(cli->options.format));
}

static enum gd_status plan_stack(struct gd_cli *cli, const struct gd_model *model,
                                 const char *stack, struct gd_export_target *made,
                                 struct gd_error *err) {
  struct gd_stack_asked asked = gd_plan_stack_asked(cli, stack, model, 1);
  struct gd_method *methods;
  cli->options.ranks = asked.count; /* what the methods are for */
  GD_TRY(gd_stack_plan_open(stack, &made->plan, err));
  GD_TRY(find_methods(cli, &made->plan, asked.count > 1, &methods, &asked.n_methods, err));
  asked.methods = methods;
  GD_TRY(gd_stack_plan_fill(&made->plan, &asked, err));
  gd_stack_plan_prefer_simple(&made->plan);
  made->target = &made->plan.target;
  made->software = made->plan.facts->title;
  made->stack = made->plan.facts->name;
  if (made->plan.count == 0)
    return gd_fail(err, GD_UNSUPPORTED, "%s has no method that --format %s can say", stack,
                   gd_export_name(cli->options.format));
  if (!made->plan.rows[0].fits)
    return refuse_stack(cli, made, &asked, err);
  return gd_stack_plan_trial(&made->plan, &made->plan.rows[0], &made->trial, err);
}

/* --- which of them ------------------------------------------------------------------------- */

enum gd_status gd_export_target_make(struct gd_cli *cli, const struct gd_model *model,
                                     struct gd_export_target *made, struct gd_error *err) {
  static const char *const of_trials[] = {"device", "host", "since", "store", "id"};
  const struct gd_cli_options *options = &cli->options;
  struct gd_method method;
  for (size_t i = 0; i < sizeof of_trials / sizeof *of_trials; i++)
    if (gd_cli_was_given(cli, of_trials[i]))
      return gd_fail(err, GD_BAD_INPUT,
                     "--gpu has it planned, and --%s chooses among trials that were measured; "
                     "leave one of them out",
                     of_trials[i]);
  if (options->methods && (strchr(options->methods, ',') || strcmp(options->methods, "all") == 0))
    return gd_fail(err, GD_BAD_INPUT,
                   "export takes one method, such as --methods free-lunch+ckpt+zero2; without "
                   "--methods it is the best");
  if (options->methods)
    GD_TRY(gd_method_parse(options->methods, &method, err));
  if (gd_cli_was_given(cli, "stack") && !options->stack)
    return plan_own(cli, model, made, err);
  return plan_stack(
      cli, model,
      options->stack ? options->stack
                     : gd_export_stack(options->format, model, options->methods ? &method : NULL),
      made, err);
}

void gd_export_target_deinit(struct gd_export_target *made) {
  gd_stack_plan_deinit(&made->plan);
  gd_predicting_close(&made->predicting);
  *made = (struct gd_export_target){0};
}
