/*
 * `gpudays cost [MODEL]`: what was asked, for one model or for presets within a budget. The
 * arithmetic is src/money's, the answers are those of cost.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"
#include "cli/cost.h"
#include "cli/plan_outline.h"
#include "cli/progress.h"
#include "cli/show_items.h"
#include "report/stack_days.h"
#include "search/stand_in.h"
#include "store/store_best.h"

/* What a question needs; zeroed before, freed after. */
struct sources {
  struct gd_hw hw;
  struct gd_paper paper;
  struct gd_store *store;
  struct gd_stack_days days; /* with --stack */
  struct gd_progress progress;
};

static void sources_deinit(struct sources *sources) {
  gd_hw_deinit(&sources->hw);
  gd_paper_deinit(&sources->paper);
  gd_store_close(sources->store);
  gd_stack_days_close(&sources->days);
}

/* --- what was asked ------------------------------------------------------------------------ */

/* What the user says instead of what is assumed. */
static enum gd_status set_terms(const struct gd_cli_options *options, struct gd_money_asked *asked,
                                struct gd_error *err) {
  const struct {
    const struct gd_cli_number *number;
    enum gd_money_term term;
    const char *name;
  } given[] = {{&options->kwh_usd, GD_MONEY_USD_PER_KWH, "--kwh-usd"},
               {&options->pue, GD_MONEY_PUE, "--pue"},
               {&options->utilisation, GD_MONEY_UTILISATION, "--utilisation"},
               {&options->co2, GD_MONEY_G_CO2_PER_KWH, "--co2"},
               {&options->mfu, GD_MONEY_MFU, "--mfu"},
               {&options->usd_per_hour, GD_MONEY_USD_PER_GPU_HOUR, "--usd-per-hour"}};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    if (given[i].number->given)
      gd_money_terms_set(&asked->terms, given[i].term, given[i].number->value, given[i].name);
  if (!options->rent)
    return GD_OK;
  return gd_money_terms_set_rent(&asked->terms, options->rent, &asked->provider, err);
}

/* --gpu-usd is a price as that of a file: the catalogue's machines are built with it. */
static enum gd_status add_prices(const struct gd_cli_options *options, struct gd_hw *hw,
                                 struct gd_error *err) {
  char text[512], today[GD_SHOW_DAY];
  for (int i = 0; options->gpu_usd.given && i < options->n_gpus; i++) {
    const struct gd_gpu *gpu;
    GD_TRY(gd_hw_gpu(hw, options->gpus[i].name, &gpu, err));
    snprintf(text, sizeof text,
             "{\"kind\": \"price\", \"gpu\": \"%.80s\", \"usd\": %.12g, \"source\": \"--gpu-usd\", "
             "\"date\": \"%s\"}",
             gpu->name, options->gpu_usd.value, gd_show_day(today, 0));
    GD_TRY(gd_hw_add_text(hw, "--gpu-usd", text, (int64_t)strlen(text), NULL, err));
  }
  return GD_OK;
}

static enum gd_status ask(const struct gd_cli *cli, struct sources *sources,
                          struct gd_money_asked *asked, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  GD_TRY(gd_hw_load(&sources->hw, err));
  GD_TRY(gd_paper_load(&sources->paper, err));
  if (options->stack)
    GD_TRY(gd_stack_days_open(options->stack, &sources->days, err));
  else if (options->times == GD_TIMES_AUTO || options->times == GD_TIMES_MEASURED)
    GD_TRY(gd_store_open(options->store, &sources->store, err));
  GD_TRY(add_prices(options, &sources->hw, err));
  *asked = (struct gd_money_asked){.hw = &sources->hw,
                                   .paper = &sources->paper,
                                   .store = sources->store,
                                   .times = options->stack ? GD_TIMES_PREDICTED : options->times,
                                   .stack = options->stack ? &sources->days.stack : NULL,
                                   .machines = options->machine,
                                   .gpus = options->gpus,
                                   .n_gpus = options->n_gpus,
                                   .progress = gd_progress_report,
                                   .progress_user = &sources->progress};
  sources->progress.on = cli->progress;
  GD_TRY(gd_money_terms_default(&sources->hw, options->energy, &asked->terms, err));
  asked->terms.owned = options->own;
  asked->terms.queue = gd_show_queue_of(cli);
  return set_terms(options, asked, err);
}

/* What is there already has no price. */
static enum gd_status check_own(const struct gd_cli_options *options, struct gd_error *err) {
  const char *price = options->rent                 ? "--rent"
                      : options->usd_per_hour.given ? "--usd-per-hour"
                      : options->gpu_usd.given      ? "--gpu-usd"
                      : options->budget_usd.given   ? "--budget"
                                                    : NULL;
  if (!options->own)
    return GD_OK;
  if (options->n_gpus == 0 && !options->machine)
    return gd_fail(err, GD_BAD_INPUT,
                   "--own says that the GPUs are yours; --gpu or --machine names them, such as "
                   "'--gpu 4x3090 --own'");
  if (price)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is for what is bought or rented, and --own says that it is there already; "
                   "leave one of them out",
                   price);
  return GD_OK;
}

static enum gd_status check_options(const struct gd_cli *cli, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  const bool model = cli->n_arguments > 0 || options->params;
  if (!model && options->text)
    return gd_fail(err, GD_BAD_INPUT, "--text needs a model: gpudays cost MODEL --text");
  const bool gpus = options->n_gpus > 0 || options->machine;
  if (!model && !options->budget_usd.given && options->days.given && !gpus)
    return gd_fail(err, GD_BAD_INPUT,
                   "--days %g of what? 'gpudays cost --days %g --gpu 4x3090' lists what these GPUs "
                   "train in them, 'gpudays cost MODEL --days %g' the machines that train a model, "
                   "--budget what its dollars do",
                   options->days.value, options->days.value, options->days.value);
  if (!model && !options->budget_usd.given && !options->days.given)
    return gd_fail(err, GD_BAD_INPUT,
                   "cost needs a model, such as 'gpudays cost pythia-1b'; or --budget, or --days "
                   "with --gpu: which presets they allow");
  if (options->n_gpus > 0 && options->machine)
    return gd_fail(err, GD_BAD_INPUT,
                   "--gpu names GPUs and --machine what holds them; leave one of them out");
  if (options->gpu_usd.given && options->n_gpus == 0)
    return gd_fail(err, GD_BAD_INPUT, "--gpu-usd is the price of a GPU; --gpu says which");
  if (options->usd_per_hour.given && options->rent)
    return gd_fail(err, GD_BAD_INPUT,
                   "--usd-per-hour and --rent both say what a GPU-hour costs; leave one out");
  GD_TRY(check_own(options, err));
  GD_TRY(gd_show_check_queue(cli, err));
  if (!model && (options->seq || options->batch || options->steps || options->tokens))
    return gd_fail(err, GD_BAD_INPUT,
                   "--seq, --batch, --steps and --tokens change a model's recipe; name the model");
  if (options->params && options->text)
    return gd_fail(err, GD_BAD_INPUT,
                   "--text writes of a model, and --params is a size alone; leave one of them out");
  if (options->mfu.given && options->times != GD_TIMES_ANALYTIC)
    return gd_fail(
        err, GD_BAD_INPUT,
        "--mfu %g is the share of the peak that --times analytic assumes, and the days of "
        "--times %s do not rest on it; add --times analytic, or leave --mfu out",
        options->mfu.value, gd_times_name(options->times));
  if (options->stack && options->times != GD_TIMES_AUTO && options->times != GD_TIMES_PREDICTED)
    return gd_fail(err, GD_BAD_INPUT,
                   "--stack %s only has predicted days, but --times %s asks for other ones; leave "
                   "one of them out",
                   options->stack, gd_times_name(options->times));
  if (options->text && options->csv)
    return gd_fail(err, GD_BAD_INPUT, "--text and --csv exclude each other; --json has both");
  return GD_OK;
}

struct gd_money_limits gd_cost_limits(const struct gd_cli *cli) {
  return (struct gd_money_limits){.budget_usd = cli->options.budget_usd.value,
                                  .days = cli->options.days.value};
}

const char *gd_cost_plural(double count) {
  return fabs(count - 1) < 1e-9 ? "" : "s";
}

void gd_cost_label_progress(void *user, const char *name, int number, int count) {
  struct gd_progress *progress = user;
  if (count > 1)
    snprintf(progress->label, sizeof progress->label, "%.80s (%d of %d)", name, number, count);
  else
    snprintf(progress->label, sizeof progress->label, "%.80s", name);
}

/*
 * A size alone, of --params or of a configuration that cannot be built: presets of nearly that size
 * stand in for it, each with as many steps as are its FLOPs.
 */
static enum gd_status answer_outline(struct gd_cli *cli, const char *argument,
                                     struct gd_money_asked *asked, struct gd_money_table *table,
                                     struct gd_model *model, struct gd_error *err) {
  struct gd_outline outline;
  struct gd_stand_ins in;
  GD_TRY(gd_cli_outline(cli, argument, &outline, err));
  GD_TRY(gd_stand_ins_find(&outline, &in, err));
  *model = in.models[0];
  snprintf(model->name, sizeof model->name, "%s", outline.name);
  asked->model = model;
  if (asked->times == GD_TIMES_AUTO)
    asked->times = GD_TIMES_PREDICTED; /* what was measured was measured of the preset */
  asked->outline = &outline;
  asked->stand_ins = &in;
  GD_TRY(gd_cost_model(cli, asked, table, err));
  if (gd_cli_for_programs(cli))
    return GD_OK;
  struct gd_strbuf names = {0};
  for (int i = 0; i < in.count; i++)
    gd_strbuf_printf(&names, "%s%s", i ? ", " : "", in.models[i].name);
  gd_strbuf_append(&cli->out, "\n");
  gd_show_item(cli, "FLOPs",
               gd_show_cell(cli,
                            "%s; days are the mean of those of %s, each with as many FLOPs: FLOPs "
                            "only, and memory is theirs",
                            gd_show_outline_flops(cli, &outline), names.text));
  gd_strbuf_deinit(&names);
  gd_show_outline_notes(cli, &outline);
  return GD_OK;
}

static enum gd_status answer_named(struct gd_cli *cli, const char *name,
                                   struct gd_money_asked *asked, struct gd_money_table *table,
                                   struct gd_model *model, struct gd_error *err) {
  struct gd_error refused = {0};
  enum gd_status status = gd_cli_load_model(cli, name, model, &refused);
  if (status == GD_UNSUPPORTED && !cli->options.text) /* its size may be counted */
    return answer_outline(cli, name, asked, table, model, err);
  if (status != GD_OK) {
    *err = refused;
    return status;
  }
  asked->model = model;
  return gd_cost_model(cli, asked, table, err);
}

enum gd_status gd_cmd_cost(struct gd_cli *cli, struct gd_error *err) {
  struct sources sources = {0};
  struct gd_money_asked asked = {0};
  struct gd_money_table table = {0};
  struct gd_model model;
  GD_TRY(check_options(cli, err));
  enum gd_status status = ask(cli, &sources, &asked, err);
  const char *named = cli->n_arguments > 0 ? cli->arguments[0] : NULL;
  if (status == GD_OK && cli->options.params)
    status = answer_outline(cli, named, &asked, &table, &model, err);
  else if (status == GD_OK && named)
    status = answer_named(cli, named, &asked, &table, &model, err);
  else if (status == GD_OK)
    status = gd_cost_presets(cli, &asked, err);
  gd_progress_clear(&sources.progress);
  if (status == GD_OK && sources.store)
    gd_store_note_left_out(sources.store, &cli->notes);
  gd_money_table_deinit(&table);
  sources_deinit(&sources);
  return status;
}
