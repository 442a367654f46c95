/*
 * The answer of `why`; see show_why.h. Its first lines say how much slower than elsewhere and for
 * which cause; then each cause with its evidence, its gain and the change to make.
 */
#include "cli/show_why.h"

#include <math.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/show_items.h"

enum { MOST_CAUSES = 5 };

static const char *unit_of(const struct why *why) {
  return why->model.family->images ? "images" : "tokens";
}

/* Of a step of so many seconds: as a share of the 16-bit peak. */
static double mfu_of(const struct why *why, double step_s) {
  return why->peak > 0 && step_s > 0 ? why->step_flops / step_s / why->peak : 0;
}

static double rate_of(const struct why *why, double step_s) {
  return step_s > 0 ? why->per_s * why->step_s / step_s : 0;
}

/* "85,900 tokens/s". */
static const char *say_rate(struct why *why, double step_s) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(why->cli, "%s %s/s",
                      gd_format_digits(text, sizeof text, rate_of(why, step_s), 3), unit_of(why));
}

static const char *say_mfu(struct why *why, double step_s) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(why->cli, "%s",
                      gd_format_digits(text, sizeof text, 100 * mfu_of(why, step_s), 2));
}

static const char *say_seconds(struct why *why, double seconds) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(why->cli, "%s", gd_show_seconds(text, sizeof text, seconds));
}

/* What the simulation gains, on the measured time; no more than a run without any fault has. */
static double gain_of(const struct why *why, const struct gd_found_cause *found) {
  double gain = found->without_s > 0 ? found->with_s / found->without_s : 0;
  return why->gap > 1 ? fmin(gain, why->gap) : gain;
}

/* --- for people ------------------------------------------------------------------------------ */

static const char *say_answer(struct why *why) {
  const double on_cpu = 30; /* a GPU over the CPUs next to it */
  char gap[GD_SHOW_TEXT];
  struct gd_cli *cli = why->cli;
  const struct gd_diagnosis *d = &why->diagnosis;
  const struct gd_found_cause *first = d->count > 0 ? &d->causes[0] : NULL;
  if (!why->target.gpu)
    return first ? gd_show_cell(cli, "%s", first->cause->title)
                 : "the log alone names no cause; --gpu says what should be reached";
  if (why->step_s < 0.8 * d->low_s)
    return gd_show_cell(cli,
                        "%.2gx as fast as such software is predicted to be: check --gpu, --count "
                        "and how tokens were counted",
                        1 / why->gap);
  if (why->good)
    return gd_show_cell(cli, "that is good: %s what such software reaches elsewhere",
                        why->gap < 0.95 ? "more than" : "about");
  if (!first || first->probability < 0.2)
    return gd_show_cell(cli, "%sx slower than elsewhere, and no known cause explains it%s",
                        gd_format_digits(gap, sizeof gap, why->gap, 2),
                        why->gap > on_cpu ? ": does it run on the GPU at all?" : "");
  return gd_show_cell(cli, "%sx slower than elsewhere, most likely since %s",
                      gd_format_digits(gap, sizeof gap, why->gap, 2), first->cause->title);
}

static const char *say_measured(struct why *why) {
  struct gd_cli *cli = why->cli;
  struct gd_strbuf text = {0};
  gd_strbuf_printf(&text, "%s, a step of %s", say_rate(why, why->step_s),
                   say_seconds(why, why->step_s));
  if (why->peak > 0)
    gd_strbuf_printf(&text, "; MFU %s %%", say_mfu(why, why->step_s));
  if (why->log.format && why->log.times.steps == 0)
    gd_strbuf_printf(&text,
                     "; rates of a log of %s, which has not the sizes of its steps: batch %lld and "
                     "sequence %lld are assumed (--batch, --seq)",
                     why->log.format->title, (long long)why->model.recipe.batch,
                     (long long)why->model.recipe.seq);
  else if (why->log.format)
    gd_strbuf_printf(&text, "; log of %s, %lld step%s", why->log.format->title,
                     (long long)why->log.times.steps, why->log.times.steps == 1 ? "" : "s");
  if (why->micro_batch > 0)
    gd_strbuf_printf(&text, ", micro-batch %lld", (long long)why->micro_batch);
  const char *cell = gd_show_cell(cli, "%s", text.text ? text.text : "");
  gd_strbuf_deinit(&text);
  return cell;
}

/* "fsdp3, ckpt, ": what is neither usual nor the kernels'. */
static const char *say_method(struct why *why) {
  char name[GD_METHOD_NAME], *at;
  struct gd_method method = why->diagnosis.method;
  gd_method_name(&method, name);
  struct gd_strbuf text = {0};
  for (at = strchr(name, '+'); at; at = strchr(at + 1, '+'))
    gd_strbuf_printf(&text, "%.*s, ", (int)strcspn(at + 1, "+"), at + 1);
  const char *cell = gd_show_cell(why->cli, "%s", text.text ? text.text : "");
  gd_strbuf_deinit(&text);
  return cell;
}

static const char *say_elsewhere(struct why *why) {
  const struct gd_diagnosis *d = &why->diagnosis;
  char low[GD_SHOW_TEXT], high[GD_SHOW_TEXT];
  gd_format_digits(low, sizeof low, rate_of(why, d->high_s), 3);
  gd_format_digits(high, sizeof high, rate_of(why, d->low_s), 3);
  return gd_show_cell(
      why->cli,
      "%s (%s - %s); MFU %s %%; predicted: compiled, fused attention, %s, %smicro-batch %lld; "
      "%s",
      say_rate(why, d->healthy_s), low, high, say_mfu(why, d->healthy_s),
      gd_precision_name(why->question.precision), say_method(why), (long long)d->micro_batch,
      d->basis);
}

static const char *say_published(struct why *why) {
  const struct gd_published_row *row = why->near;
  char rate[GD_SHOW_TEXT];
  return gd_show_cell(why->cli, "%s %s/s per GPU: %s on %d x %s, %s (%s)",
                      gd_format_digits(rate, sizeof rate, row->per_gpu, 3), unit_of(why),
                      row->model, row->target.count, row->gpu_name, row->facts->name, row->source);
}

static void append_cause(struct why *why, int number, const struct gd_found_cause *found) {
  struct gd_cli *cli = why->cli;
  gd_strbuf_printf(&cli->out, "\n");
  gd_show_bold(cli, gd_show_cell(cli, "%d. %s", number, found->cause->title));
  gd_strbuf_printf(&cli->out, "\n");
  gd_show_item(cli, "likely",
               found->said ? "all but certain"
                           : gd_show_cell(cli, "%.0f %%; expected to cost %.0f %% of the time",
                                          100 * found->probability, 100 * found->share));
  for (int i = 0; i < found->n_evidence; i++)
    gd_show_item(cli, i ? "" : "evidence", found->evidence[i]);
  if (gain_of(why, found) > 0)
    gd_show_item(cli, "gain",
                 gd_show_cell(cli, "%.2fx: %s", gain_of(why, found),
                              say_rate(why, why->step_s / gain_of(why, found))));
  gd_show_item(cli, "change", found->remedy);
}

/* The command that goes on, and what it is predicted to reach. */
static const char *say_next(struct why *why) {
  char recipe[GD_CLI_RECIPE_TEXT];
  const struct gd_cli_options *options = &why->cli->options;
  gd_cli_recipe_options(why->cli, recipe, sizeof recipe);
  return gd_show_cell(
      why->cli, "gpudays plan %s%s --gpu %s%s", gd_show_argument(why->cli, why->cli->arguments[0]),
      recipe, options->gpu,
      why->target.count > 1 ? gd_show_cell(why->cli, " --count %d", why->target.count) : "");
}

static void append_lines(struct why *why) {
  char gain[GD_SHOW_TEXT];
  struct gd_cli *cli = why->cli;
  const struct gd_diagnosis *d = &why->diagnosis;
  gd_show_bold(cli, why->model.name);
  if (why->target.gpu) {
    gd_strbuf_append(&cli->out, " on ");
    gd_show_bold(cli, gd_answer_place(cli, why->target.gpu->title, why->target.count, true));
  }
  gd_strbuf_append(&cli->out, "\n");
  gd_show_item(cli, "answer", say_answer(why));
  gd_show_item(cli, "measured", say_measured(why));
  if (why->target.gpu)
    gd_show_item(cli, "elsewhere", say_elsewhere(why));
  if (why->near)
    gd_show_item(cli, "published", say_published(why));
  for (int i = 0, number = 1; i < d->count && number <= MOST_CAUSES; i++)
    if (!why->good || d->causes[i].said || d->causes[i].probability > 0.5)
      append_cause(why, number++, &d->causes[i]);
  if (why->target.gpu && !why->good && d->unexplained > 0.3)
    gd_show_paragraph(&cli->out, 0,
                      gd_show_cell(cli,
                                   "\nwith %.0f %% something else is behind it: profile a step "
                                   "(torch.profiler, nsys)",
                                   100 * d->unexplained));
  if (why->own_s > 0 && why->own_s < why->step_s) {
    gd_strbuf_append(&cli->out, "\n");
    gd_show_item(cli, "gpudays",
                 gd_show_cell(cli, "its own engine is predicted to reach %s there, %sx",
                              say_rate(why, why->own_s),
                              gd_format_digits(gain, sizeof gain, why->step_s / why->own_s, 3)));
    gd_show_item_command(cli, "next", say_next(why));
  }
}

/* --- for programs ---------------------------------------------------------------------------- */

static void set_cause(struct why *why, struct gd_show_object *to,
                      const struct gd_found_cause *found) {
  json_t *evidence = json_array();
  gd_show_begin(to);
  gd_show_set_text(to, "name", found->cause->name);
  gd_show_set_text(to, "title", found->cause->title);
  gd_show_set_real(to, "probability", found->probability);
  gd_show_set_bool(to, "said", found->said);
  gd_show_set_real(to, "time_share", found->share);
  gd_show_set_positive(to, "level", found->level);
  gd_show_set_positive(to, "step_with_s", found->with_s);
  gd_show_set_positive(to, "step_without_s", found->without_s);
  gd_show_set_positive(to, "gain", gain_of(why, found));
  gd_show_set_positive(to, "rate_without",
                       gain_of(why, found) > 0 ? rate_of(why, why->step_s / gain_of(why, found))
                                               : 0);
  for (int i = 0; i < found->n_evidence; i++)
    if (json_array_append_new(evidence, json_string(found->evidence[i])) != 0)
      to->failed = true;
  gd_show_set(to, "evidence", evidence);
  gd_show_set_text(to, "change", found->remedy);
}

static void set_log(const struct why *why, struct gd_show_object *to) {
  struct gd_show_object log;
  const struct gd_stack_log_times *times = &why->log.times;
  if (!why->log.format) {
    gd_show_set_null(to, "log");
    return;
  }
  gd_show_begin(&log);
  gd_show_set_text(&log, "format", why->log.format->name);
  gd_show_set_int(&log, "steps", times->steps);
  gd_show_set_positive(&log, "mean_s", times->mean_s);
  gd_show_set_positive(&log, "median_s", times->median_s);
  gd_show_set_positive(&log, "fastest_s", times->fastest_s);
  gd_show_set_real(&log, "spread", times->spread);
  gd_show_set_int(&log, "stalls", times->stalls);
  gd_show_set_real(&log, "stalled", times->stalled);
  gd_show_set_positive(&log, "drift", times->drift);
  gd_show_set_object(to, "log", &log);
}

static void set_elsewhere(const struct why *why, struct gd_show_object *to) {
  const struct gd_diagnosis *d = &why->diagnosis;
  struct gd_show_object elsewhere;
  char method[GD_METHOD_NAME];
  if (!why->target.gpu) {
    gd_show_set_null(to, "elsewhere");
    return;
  }
  gd_show_begin(&elsewhere);
  gd_show_set_real(&elsewhere, "per_s", rate_of(why, d->healthy_s));
  gd_show_set_real(&elsewhere, "per_s_low", rate_of(why, d->high_s));
  gd_show_set_real(&elsewhere, "per_s_high", rate_of(why, d->low_s));
  gd_show_set_real(&elsewhere, "step_s", d->healthy_s);
  gd_show_set_real(&elsewhere, "mfu", mfu_of(why, d->healthy_s));
  gd_show_set_int(&elsewhere, "micro_batch", d->micro_batch);
  gd_show_set_text(&elsewhere, "method", gd_method_name(&d->method, method));
  gd_show_set_text(&elsewhere, "precision", gd_precision_name(why->question.precision));
  gd_show_set_text(&elsewhere, "basis", d->basis);
  gd_show_set_object(to, "elsewhere", &elsewhere);
}

static enum gd_status show_json(struct why *why, struct gd_error *err) {
  struct gd_show_object root, row, causes = {.object = json_array()};
  const struct gd_diagnosis *d = &why->diagnosis;
  gd_show_begin(&root);
  gd_show_set_text(&root, "model", why->model.name);
  gd_show_set_text(&root, "gpu", why->target.gpu ? why->target.gpu->name : "");
  gd_show_set_int(&root, "count", why->target.gpu ? why->target.count : 0);
  gd_show_set_text(&root, "stack", why->question.facts->name);
  gd_show_set_text(&root, "unit", why->model.family->images ? "images/s" : "tokens/s");
  gd_show_set_real(&root, "per_s", why->per_s);
  gd_show_set_real(&root, "step_s", why->step_s);
  gd_show_set_positive(&root, "mfu", mfu_of(why, why->step_s));
  set_log(why, &root);
  set_elsewhere(why, &root);
  gd_show_set_positive(&root, "gap", why->gap);
  gd_show_set_bool(&root, "good", why->good);
  gd_show_set_real(&root, "unexplained", d->unexplained);
  for (int i = 0; i < d->count; i++) {
    set_cause(why, &row, &d->causes[i]);
    gd_show_append(&causes, &row);
  }
  gd_show_set_object(&root, "causes", &causes);
  gd_show_set_text(&root, "published", why->near ? why->near->id : "");
  gd_show_set_positive(&root, "gpudays_per_s", rate_of(why, why->own_s));
  return gd_show_json(&why->cli->out, &root, err);
}

enum gd_status gd_show_why(struct why *why, struct gd_error *err) {
  if (why->cli->options.json)
    return show_json(why, err);
  append_lines(why);
  return GD_OK;
}
