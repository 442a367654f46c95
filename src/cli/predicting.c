/*
 * The hardware that a prediction is for, and how it is shown; see predicting.h.
 */
#include "cli/predicting.h"

#include <stdio.h>

#include "cli/cli.h"

static enum gd_status find_target(struct gd_predicting *p, struct gd_cli *cli,
                                  struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  int count = options->count > 0 ? (int)options->count : 1;
  GD_TRY(gd_hw_load(&p->hw, err));
  GD_TRY(gd_hw_target(&p->hw, options->gpu, count, (int)options->nodes, options->machine,
                      options->network, &p->target, err));
  p->has_target = true;
  p->target.calibration = options->calibration;
  if (options->threads > 0)
    p->target.cpus = (int)options->threads;
  options->ranks = p->target.count;
  options->nodes = p->target.nodes;
  options->backend = "cuda";
  return gd_predictor_for_target(&p->predictor, &p->target, err);
}

/* The backend is opened once, and what it says is kept for everybody. Ranks share the cores. */
static enum gd_status look_here(struct gd_predicting *p, struct gd_cli *cli, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  if (options->threads == 0 && !options->slurm)
    options->threads = gd_points_threads((int)options->ranks);
  GD_TRY(gd_place_find(gd_cli_backend(cli),
                       &(struct gd_backend_options){.threads = (int)options->threads}, &p->place,
                       err));
  if (options->calibration)
    return gd_predictor_named(&p->predictor, options->calibration, &p->place.info,
                              options->ranks > 1 ? (int)options->ranks : 1, err);
  return gd_predictor_for_machine(&p->predictor, &p->place.info,
                                  options->ranks > 1 ? (int)options->ranks : 1, err);
}

enum gd_status gd_predicting_open(struct gd_predicting *p, struct gd_cli *cli,
                                  struct gd_error *err) {
  enum gd_status status = cli->options.gpu ? find_target(p, cli, err) : look_here(p, cli, err);
  if (status != GD_OK)
    gd_predicting_close(p);
  return status;
}

/* All models are read before anything is planned: a misspelt last name must not cost the time of
   the others. */
enum gd_status gd_points_of_cli(struct gd_cli *cli, const char *methods,
                                struct gd_points_asked *asked, struct gd_error *err) {
  struct gd_method *parsed;
  struct gd_model *models = gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments, sizeof *models);
  *asked = (struct gd_points_asked){
      .models = models, .arguments = cli->arguments, .n_models = cli->n_arguments};
  GD_TRY(gd_cli_methods(cli, methods, &parsed, &asked->n_methods, err));
  if (!models)
    return gd_nomem(err, "before the first plan");
  asked->methods = parsed;
  for (int i = 0; i < cli->n_arguments; i++)
    GD_TRY(gd_cli_load_model(cli, cli->arguments[i], &models[i], err));
  gd_cli_trial_options(cli, &(struct gd_method){0}, &asked->options);
  return GD_OK;
}

struct gd_point_machine gd_predicting_machine(const struct gd_predicting *p) {
  return (struct gd_point_machine){.target = p->has_target ? &p->target : NULL,
                                   .place = p->has_target ? NULL : &p->place,
                                   .predictor = &p->predictor,
                                   .shared_bytes =
                                       p->has_target ? 0 : gd_place_shared_bytes(&p->place)};
}

void gd_predicting_close(struct gd_predicting *p) {
  gd_predictor_deinit(&p->predictor);
  gd_hw_deinit(&p->hw);
  *p = (struct gd_predicting){0};
}

bool gd_predicting_shows(const struct gd_predicting *p) {
  return p->has_target || p->predictor.calibrated;
}

void gd_show_target(struct gd_show_object *to, const struct gd_target *target) {
  gd_show_set_text(to, "gpu", target->gpu->name);
  gd_show_set_int(to, "count", target->count);
  gd_show_set_int(to, "nodes", target->nodes);
  if (target->machine)
    gd_show_set_text(to, "machine", target->machine->name);
  else
    gd_show_set_null(to, "machine");
  if (target->network)
    gd_show_set_text(to, "network", target->network->name);
  else
    gd_show_set_null(to, "network");
  gd_show_set_bool(to, "network_assumed", target->network_assumed);
  if (target->network)
    gd_show_set_int(to, "network_cards", target->network_cards);
  else
    gd_show_set_null(to, "network_cards");
  gd_show_set_bool(to, "network_cards_assumed", target->cards_assumed);
}

void gd_show_nodes(struct gd_cli *cli, const struct gd_target *target) {
  char line[400];
  int each = target->count / target->nodes;
  if (!target->machine && each > target->node_gpus) {
    snprintf(line, sizeof line,
             "note: %d GPUs in one node are assumed; machines of the catalogue hold up to %d: "
             "--nodes spreads them",
             each, target->node_gpus);
    gd_show_paragraph(&cli->out, 2, line);
  }
  if (target->network_unused) {
    snprintf(line, sizeof line, "note: %d GPU%s in one node, so that --network %s is not used%s",
             target->count, target->count == 1 ? " is" : "s are", target->network_unused->name,
             target->count == 1 ? "" : "; --nodes spreads them");
    gd_show_paragraph(&cli->out, 2, line);
  }
  if (!target->network)
    return;
  int used = gd_target_cards(target);
  int length =
      snprintf(line, sizeof line, "%d nodes of %d GPU%s, joined by %s (%s), %d card%s a node%s%s",
               target->nodes, each, each == 1 ? "" : "s", target->network->name,
               target->network->title, target->network_cards, target->network_cards == 1 ? "" : "s",
               target->machine ? " as in " : "", target->machine ? target->machine->name : "");
  if (used < target->network_cards)
    length += snprintf(line + length, sizeof line - (size_t)length,
                       ", %d of them next to the GPUs that are used", used);
  if (target->network_assumed)
    snprintf(line + length, sizeof line - (size_t)length,
             ": assumed, --network names another, such as 2x%s", target->network->name);
  else if (target->cards_assumed)
    snprintf(line + length, sizeof line - (size_t)length, ": assumed, '--network 2x%s' is two",
             target->network->name);
  gd_show_paragraph(&cli->out, 2, line);
}

static void add_collectives(struct gd_cli *cli, struct gd_show_rows *rows, const char *program,
                            const struct gd_predicting *p, const struct gd_simulated *simulated) {
  char text[GD_SHOW_TEXT];
  for (int i = 0; i < GD_COLLECTIVE_COUNT; i++) {
    const struct gd_simulated_collective *all = &simulated->collectives[i];
    if (all->calls == 0)
      continue;
    double each = all->bytes / all->calls;
    struct gd_collective_time usual =
        gd_collective_time(&p->predictor.rates.fabric, (enum gd_collective)i, each);
    const char **row = gd_show_row(rows);
    row[0] = program;
    row[1] = gd_collective_name((enum gd_collective)i);
    row[2] = gd_show_cell(cli, "%u", all->calls);
    row[3] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, (int64_t)each));
    row[4] = gd_show_seconds_cell(cli, all->seconds);
    row[5] = gd_show_seconds_cell(cli, all->latency_s);
    row[6] = gd_show_cell(cli, "%s, %s", usual.algorithm, usual.protocol);
    row[7] = gd_show_cell(cli, "%s",
                          gd_format_digits(text, sizeof text, usual.bus_bytes_per_s / 1e9, 3));
  }
}

/* "a step of 1.50 s computes for 838 ms (56 %), ...: 5,461 tokens/s a GPU" */
static void say_waiting(const struct gd_point *point, int gpus, struct gd_strbuf *line) {
  const struct gd_prediction *prediction = &point->prediction;
  const struct gd_recipe *recipe = &point->model->recipe;
  char step[GD_SHOW_TEXT], compute[GD_SHOW_TEXT], rate[GD_SHOW_TEXT];
  double each = (double)recipe->batch * (double)recipe->seq / prediction->step_s / gpus;
  gd_strbuf_printf(
      line,
      "a step of %s computes for %s (%.0f %%), and waits for collectives and copies, or "
      "shares the GPU with them, for the rest: %s %s/s a GPU; ",
      gd_show_seconds(step, sizeof step, prediction->step_s),
      gd_show_seconds(compute, sizeof compute, prediction->compute_s),
      100 * prediction->compute_s / prediction->step_s,
      gd_format_number(rate, sizeof rate, each, each < 100 ? 1 : 0),
      recipe->seq > 1 ? "tokens" : "samples");
}

enum gd_status gd_show_collectives(struct gd_cli *cli, const struct gd_predicting *p,
                                   const struct gd_point *point, struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"PROGRAM", false, 0},      {"COLLECTIVE", false, 0}, {"CALLS", true, 2},
      {"MEAN SIZE", true, 1},     {"TIME", true, 0},        {"LATENCY", true, 4},
      {"OF MEAN SIZE", false, 5}, {"BUS GB/S", true, 3}};
  const struct gd_rates *rates = &p->predictor.rates;
  char links[GD_FABRIC_TEXT];
  struct gd_strbuf line = {0};
  const struct gd_prediction *prediction = &point->prediction;
  if (!p->has_target || !prediction->known || rates->fabric.ranks < 2)
    return GD_OK;
  say_waiting(point, rates->fabric.ranks, &line);
  gd_strbuf_printf(
      &line,
      "collectives among %d GPUs, as NCCL would do them: %s; computation takes %.1f %% "
      "longer than on a typical GPU, since all wait for the slowest",
      rates->fabric.ranks, gd_fabric_say(&rates->fabric, links), 100 * (rates->slowest - 1));
  gd_show_buffer(&cli->out, 0, &line);
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  add_collectives(cli, &rows, "micro-step", p, &prediction->micro_step);
  add_collectives(cli, &rows, "update", p, &prediction->update);
  return gd_show_rows(&rows, 2, err);
}

void gd_show_prediction(struct gd_show_object *to, const struct gd_predicting *p,
                        const struct gd_trial *trial, const struct gd_prediction *prediction) {
  bool shows = gd_predicting_shows(p) && prediction->known && trial->status != GD_TRIAL_INFEASIBLE;
  char basis[GD_PREDICTOR_BASIS];
  if (p->has_target)
    gd_show_target(to, &p->target);
  if (shows) {
    gd_show_set_real(to, "micro_step_s", prediction->micro_step_s);
    if (prediction->has_last_micro_step)
      gd_show_set_real(to, "last_micro_step_s", prediction->last_micro_step_s);
    gd_show_set_real(to, "update_s", prediction->update_s);
    gd_show_set_real(to, "step_s", prediction->step_s);
    gd_show_set_real(to, "days", prediction->days);
    gd_show_set_real(to, "days_low", prediction->days_low);
    gd_show_set_real(to, "days_high", prediction->days_high);
    if (prediction->power_w > 0) {
      gd_show_set_real(to, "gpu_power_w", prediction->power_w);
      gd_show_set_real(to, "energy_kwh",
                       prediction->power_w * trial->ranks * 24 * prediction->days / 1000);
    }
  }
  gd_show_set_bool(to, "predicted", shows);
  gd_show_set_bool(to, "validated", shows && prediction->validated);
  gd_show_set_text(to, "basis",
                   shows ? gd_predictor_basis(&p->predictor, prediction->of, basis)
                         : p->predictor.basis);
  if (p->has_target)
    gd_show_set_bool(to, "engine_runs", p->target.gpu->compute_capability >= GD_GPU_OLDEST);
}

void gd_show_too_old(struct gd_cli *cli, const struct gd_predicting *p) {
  char line[192];
  int has = p->has_target ? p->target.gpu->compute_capability : GD_GPU_OLDEST;
  if (has >= GD_GPU_OLDEST)
    return;
  snprintf(line, sizeof line,
           "note: the engine does not run on it (compute capability %d.%d; %d.%d is needed): a "
           "prediction for comparison only",
           has / 10, has % 10, GD_GPU_OLDEST / 10, GD_GPU_OLDEST % 10);
  gd_show_paragraph(&cli->out, 2, line);
}

/* What is offloaded takes as long as the CPUs need. */
static void append_cpus(const struct gd_cli *cli, const struct gd_target *target,
                        struct gd_strbuf *line) {
  gd_strbuf_printf(line, "; offloaded work has %d CPU%s a GPU%s", target->cpus,
                   target->cpus == 1 ? "" : "s",
                   cli->options.threads > 0 ? "" : ": assumed, --threads sets another number");
}

void gd_show_basis(struct gd_cli *cli, const struct gd_predicting *p, unsigned classes) {
  const unsigned offloads = 1u << GD_POINT_OFFLOAD | 1u << GD_POINT_OTHER;
  struct gd_strbuf line = {0};
  if (gd_predicting_shows(p)) {
    gd_strbuf_append(&line, "predicted, not measured: ");
    gd_predictor_say(&p->predictor, classes, &line);
    if (p->has_target && classes & offloads)
      append_cpus(cli, &p->target, &line);
  } else
    gd_strbuf_append(&line, "note: 'gpudays calibrate' measures this machine once, in about a "
                            "minute; plans then come with predicted times");
  gd_show_buffer(&cli->out, 2, &line);
  gd_show_too_old(cli, p);
}
