/*
 * `gpudays gpus [NAME]`: the catalogue of hardware and prices, one GPU with all that is known of
 * it and where each figure comes from, or the check of a user's file.
 */
#include <stdio.h>
#include <string.h>

#include "base/embedded.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "hw/hw.h"

/* --- for programs -------------------------------------------------------------------------- */

static void set_cites(struct gd_show_object *to, const struct gd_cite *cites, int n_cites) {
  struct gd_show_object list = {.object = json_array()}, object;
  for (int i = 0; i < n_cites; i++) {
    gd_show_begin(&object);
    gd_show_set_text(&object, "field", cites[i].field);
    gd_show_set_text(&object, "source", cites[i].source);
    gd_show_set_text(&object, "date", cites[i].date);
    gd_show_append(&list, &object);
  }
  gd_show_set_object(to, "sources", &list);
}

static void set_gpu(struct gd_show_object *to, const struct gd_gpu *gpu) {
  struct gd_show_object peaks;
  char capability[GD_SHOW_TEXT];
  snprintf(capability, sizeof capability, "%d.%d", gpu->compute_capability / 10,
           gpu->compute_capability % 10);
  gd_show_begin(to);
  gd_show_set_text(to, "name", gpu->name);
  gd_show_set_text(to, "title", gpu->title);
  gd_show_set_text(to, "architecture", gpu->architecture);
  gd_show_set_text(to, "class", gpu->class_name);
  gd_show_set_text(to, "compute_capability", capability);
  gd_show_set_int(to, "multiprocessors", gpu->multiprocessors);
  gd_show_set_int(to, "memory_bytes", gpu->memory_bytes);
  gd_show_set_int(to, "plan_bytes", gd_gpu_plan_bytes(gpu->memory_bytes));
  gd_show_set_real(to, "memory_bytes_per_s", gpu->memory_bytes_per_s);
  gd_show_begin(&peaks);
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    gd_show_set_positive(&peaks, gd_peak_name((enum gd_peak)i), gpu->flops[i]);
  gd_show_set_object(to, "peak_flops", &peaks);
  gd_show_set_positive(to, "paper_flops", gpu->paper_flops);
  gd_show_set_real(to, "host_link_bytes_per_s", gpu->host_link_bytes_per_s);
  gd_show_set_real(to, "peer_link_bytes_per_s", gpu->peer_link_bytes_per_s);
  gd_show_set_text(to, "topology", gd_topology_name(gpu->topology));
  gd_show_set_real(to, "power_w", gpu->power_w);
  gd_show_set_positive(to, "usd", gpu->usd);
  gd_show_set_text(to, "file", gpu->file);
  set_cites(to, gpu->cites, gpu->n_cites);
}

static void add_machine(struct gd_show_object *list, const struct gd_machine *machine) {
  struct gd_show_object object;
  gd_show_begin(&object);
  gd_show_set_text(&object, "name", machine->name);
  gd_show_set_text(&object, "title", machine->title);
  gd_show_set_text(&object, "gpu", machine->gpu);
  gd_show_set_int(&object, "count", machine->count);
  gd_show_set_int(&object, "cpus", machine->cpus);
  gd_show_set_int(&object, "host_memory_bytes", machine->host_memory_bytes);
  gd_show_set_text(&object, "topology", gd_topology_name(machine->topology));
  if (machine->network)
    gd_show_set_text(&object, "network", machine->network);
  else
    gd_show_set_null(&object, "network");
  if (machine->network_cards > 0)
    gd_show_set_int(&object, "network_cards", machine->network_cards);
  else
    gd_show_set_null(&object, "network_cards");
  gd_show_set_bool(&object, "in_paper", machine->in_paper);
  gd_show_set_positive(&object, "usd", machine->usd);
  gd_show_set_real(&object, "power_w", machine->power_w);
  set_cites(&object, machine->cites, machine->n_cites);
  gd_show_append(list, &object);
}

static void add_rent(struct gd_show_object *list, const struct gd_rent *rent) {
  struct gd_show_object object;
  gd_show_begin(&object);
  gd_show_set_text(&object, "gpu", rent->gpu);
  gd_show_set_text(&object, "provider", rent->provider);
  gd_show_set_real(&object, "usd_per_gpu_hour", rent->usd_per_gpu_hour);
  set_cites(&object, rent->cites, rent->n_cites);
  gd_show_append(list, &object);
}

static void add_network(struct gd_show_object *list, const struct gd_network *network) {
  struct gd_show_object object;
  gd_show_begin(&object);
  gd_show_set_text(&object, "name", network->name);
  gd_show_set_text(&object, "title", network->title);
  gd_show_set_real(&object, "bytes_per_s", network->bytes_per_s);
  gd_show_set_real(&object, "latency_s", network->latency_s);
  set_cites(&object, network->cites, network->n_cites);
  gd_show_append(list, &object);
}

static void add_energy(struct gd_show_object *list, const struct gd_energy *energy) {
  struct gd_show_object object;
  gd_show_begin(&object);
  gd_show_set_text(&object, "name", energy->name);
  gd_show_set_text(&object, "title", energy->title);
  gd_show_set_real(&object, "usd_per_kwh", energy->usd_per_kwh);
  gd_show_set_real(&object, "pue", energy->pue);
  gd_show_set_real(&object, "g_co2_per_kwh", energy->g_co2_per_kwh);
  set_cites(&object, energy->cites, energy->n_cites);
  gd_show_append(list, &object);
}

/* Machines and rents of that GPU; NULL: of all. */
static void set_offers(struct gd_show_object *to, const struct gd_hw *hw, const char *gpu) {
  struct gd_show_object machines = {.object = json_array()}, rents = {.object = json_array()};
  for (int i = 0; i < hw->n_machines; i++)
    if (!gpu || strcmp(hw->machines[i].gpu, gpu) == 0)
      add_machine(&machines, &hw->machines[i]);
  for (int i = 0; i < hw->n_rents; i++)
    if (!gpu || strcmp(hw->rents[i].gpu, gpu) == 0)
      add_rent(&rents, &hw->rents[i]);
  gd_show_set_object(to, "machines", &machines);
  gd_show_set_object(to, "rents", &rents);
}

static enum gd_status show_objects(struct gd_cli *cli, const struct gd_hw *hw,
                                   const struct gd_gpu *const *gpus, struct gd_error *err) {
  struct gd_show_object root, list = {.object = json_array()}, object;
  for (int i = 0; i < hw->n_gpus; i++) {
    set_gpu(&object, gpus[i]);
    gd_show_append(&list, &object);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &list, err);
  struct gd_show_object networks = {.object = json_array()}, energies = {.object = json_array()};
  gd_show_begin(&root);
  gd_show_set_object(&root, "gpus", &list);
  set_offers(&root, hw, NULL);
  for (int i = 0; i < hw->n_networks; i++)
    add_network(&networks, &hw->networks[i]);
  gd_show_set_object(&root, "networks", &networks);
  for (int i = 0; i < hw->n_energies; i++)
    add_energy(&energies, &hw->energies[i]);
  gd_show_set_object(&root, "energies", &energies);
  return gd_show_json(&cli->out, &root, err);
}

/* --- all of them --------------------------------------------------------------------------- */

/* A column of TFLOP/s; empty where the GPU does not compute so. */
static const char *rate_cell(struct gd_cli *cli, double flops) {
  char text[GD_SHOW_TEXT];
  return flops > 0 ? gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, flops / 1e12, 3))
                   : "-";
}

static const char *usd_cell(struct gd_cli *cli, double usd) {
  char text[GD_SHOW_TEXT];
  return usd > 0 ? gd_show_cell(cli, "%s", gd_format_number(text, sizeof text, usd, 0)) : "-";
}

/* What can stand between nodes: --network takes these names. */
static enum gd_status append_networks(struct gd_cli *cli, const struct gd_hw *hw,
                                      struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"NETWORK", false, 0}, {"TITLE", false, 1}, {"GB/s", true, 1}, {"LATENCY", true, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char text[GD_SHOW_TEXT];
  for (int i = 0; i < hw->n_networks; i++) {
    const struct gd_network *network = &hw->networks[i];
    const char **row = gd_show_row(&rows);
    row[0] = network->name;
    row[1] = network->title;
    row[2] =
        gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, network->bytes_per_s / 1e9, 3));
    row[3] = gd_show_seconds_cell(cli, network->latency_s);
  }
  gd_strbuf_append(&cli->out, "\n");
  return gd_show_rows(&rows, 0, err);
}

static enum gd_status show_table(struct gd_cli *cli, const struct gd_hw *hw,
                                 const struct gd_gpu *const *gpus, struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"GPU", false, 0},   {"CLASS", false, 6}, {"MEMORY", true, 0}, {"GB/s", true, 1},
      {"16-BIT", true, 0}, {"TF32", true, 3},   {"FP32", true, 3},   {"PEERS", false, 7},
      {"LINK", true, 8},   {"W", true, 5},      {"USD", true, 4},    {"USD/h FROM", true, 2},
  };
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char text[GD_SHOW_TEXT];
  for (int i = 0; i < hw->n_gpus; i++) {
    const struct gd_gpu *gpu = gpus[i];
    const struct gd_rent *rent = gd_hw_cheapest_rent(hw, gpu->name, NULL);
    const char **row = gd_show_row(&rows);
    row[0] = gpu->name;
    row[1] = gpu->class_name;
    row[2] = gd_show_bytes_cell(cli, gpu->memory_bytes);
    row[3] = gd_show_cell(cli, "%s",
                          gd_format_number(text, sizeof text, gpu->memory_bytes_per_s / 1e9, 0));
    row[4] = rate_cell(cli, gpu->flops[GD_PEAK_FP16]);
    row[5] = rate_cell(cli, gpu->flops[GD_PEAK_TF32]);
    row[6] = rate_cell(cli, gpu->flops[GD_PEAK_FP32]);
    row[7] = gd_topology_name(gpu->topology);
    row[8] = gpu->peer_link_bytes_per_s > 0
                 ? gd_show_cell(cli, "%.0f", gpu->peer_link_bytes_per_s / 1e9)
                 : "-";
    row[9] = gd_show_cell(cli, "%.0f", gpu->power_w);
    row[10] = usd_cell(cli, gpu->usd);
    row[11] = rent ? gd_show_cell(cli, "%.2f", rent->usd_per_gpu_hour) : "-";
  }
  GD_TRY(gd_show_rows(&rows, 0, err));
  gd_strbuf_append(&cli->out,
                   "\n16-BIT, TF32, FP32: TFLOP/s of dense GEMMs that add in fp32. LINK: GB/s "
                   "one way.\n'gpudays gpus GPU' shows machines, prices and the source of every "
                   "figure.\n");
  return append_networks(cli, hw, err);
}

/* --- one GPU ------------------------------------------------------------------------------- */

static void append_summary(struct gd_cli *cli, const struct gd_gpu *gpu) {
  struct gd_strbuf *out = &cli->out;
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  gd_show_bold(cli, gpu->title);
  gd_strbuf_printf(out, ", %s, %s\n", gpu->name, gpu->class_name);
  gd_strbuf_printf(out, "  architecture  %s, compute capability %d.%d, %d multiprocessors\n",
                   gpu->architecture, gpu->compute_capability / 10, gpu->compute_capability % 10,
                   gpu->multiprocessors);
  gd_strbuf_printf(out, "  memory        %s, %s of them for a plan, %.0f GB/s\n",
                   gd_format_bytes(a, sizeof a, gpu->memory_bytes),
                   gd_format_bytes(b, sizeof b, gd_gpu_plan_bytes(gpu->memory_bytes)),
                   gpu->memory_bytes_per_s / 1e9);
  gd_strbuf_append(out, "  GEMM          ");
  for (int i = 0, n = 0; i < GD_PEAK_COUNT; i++)
    if (gpu->flops[i] > 0)
      gd_strbuf_printf(out, "%s%s %s", n++ ? ", " : "", gd_peak_name((enum gd_peak)i),
                       gd_format_digits(a, sizeof a, gpu->flops[i] / 1e12, 4));
  gd_strbuf_append(out, " TFLOP/s, dense\n");
  gd_strbuf_printf(out, "  to the host   %s GB/s one way\n",
                   gd_format_digits(a, sizeof a, gpu->host_link_bytes_per_s / 1e9, 3));
  if (gpu->peer_link_bytes_per_s > 0)
    gd_strbuf_printf(out, "  to peers      %s GB/s one way, %s\n",
                     gd_format_digits(a, sizeof a, gpu->peer_link_bytes_per_s / 1e9, 3),
                     gd_topology_name(gpu->topology));
  else
    gd_strbuf_append(out, "  to peers      through the host\n");
  gd_strbuf_printf(out, "  power         %.0f W\n", gpu->power_w);
  if (gpu->usd > 0)
    gd_strbuf_printf(out, "  price         $%s\n", gd_format_number(a, sizeof a, gpu->usd, 0));
}

static enum gd_status append_machines(struct gd_cli *cli, const struct gd_hw *hw,
                                      const struct gd_gpu *gpu, struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MACHINE", false, 0}, {"GPUS", true, 0},   {"CPUS", true, 4}, {"MEMORY", true, 0},
      {"PEERS", false, 7},   {"W MORE", true, 5}, {"USD", true, 4},
  };
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < hw->n_machines; i++) {
    const struct gd_machine *machine = &hw->machines[i];
    if (strcmp(machine->gpu, gpu->name) != 0)
      continue;
    const char **row = gd_show_row(&rows);
    row[0] = machine->name;
    row[1] = gd_show_cell(cli, "%d", machine->count);
    row[2] = gd_show_cell(cli, "%d", machine->cpus);
    row[3] = gd_show_bytes_cell(cli, machine->host_memory_bytes);
    row[4] = gd_topology_name(machine->topology);
    row[5] = gd_show_cell(cli, "%.0f", machine->power_w);
    row[6] = usd_cell(cli, machine->usd);
  }
  if (rows.count == 0)
    return GD_OK;
  gd_strbuf_append(&cli->out, "\n");
  return gd_show_rows(&rows, 0, err);
}

static enum gd_status append_rents(struct gd_cli *cli, const struct gd_hw *hw,
                                   const struct gd_gpu *gpu, struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"RENT", false, 0}, {"USD A GPU-HOUR", true, 0}, {"DATE", false, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < hw->n_rents; i++) {
    if (strcmp(hw->rents[i].gpu, gpu->name) != 0)
      continue;
    const char **row = gd_show_row(&rows);
    row[0] = hw->rents[i].provider;
    row[1] = gd_show_cell(cli, "%.2f", hw->rents[i].usd_per_gpu_hour);
    row[2] = hw->rents[i].cites[0].date;
  }
  if (rows.count == 0)
    return GD_OK;
  gd_strbuf_append(&cli->out, "\n");
  return gd_show_rows(&rows, 0, err);
}

/* One paragraph a source, with the figures that come from it. */
static void append_sources(struct gd_cli *cli, const struct gd_gpu *gpu) {
  gd_strbuf_append(&cli->out, "\nsources\n");
  for (int i = 0; i < gpu->n_cites; i++) {
    const struct gd_cite *cite = &gpu->cites[i];
    struct gd_strbuf line = {0};
    bool said = false;
    for (int k = 0; k < gpu->n_cites; k++) {
      bool same = strcmp(gpu->cites[k].source, cite->source) == 0;
      said = said || (same && k < i);
      if (same)
        gd_strbuf_printf(&line, "%s%s", line.length ? ", " : "", gpu->cites[k].field);
    }
    gd_strbuf_printf(&line, ": %s (%s)", cite->source, cite->date);
    if (!said && line.text && !line.failed)
      gd_show_paragraph(&cli->out, 2, line.text);
    cli->out.failed = cli->out.failed || line.failed;
    gd_strbuf_deinit(&line);
  }
}

static enum gd_status show_one(struct gd_cli *cli, struct gd_hw *hw, struct gd_error *err) {
  const struct gd_gpu *gpu;
  struct gd_show_object object, rows;
  GD_TRY(gd_hw_gpu(hw, cli->arguments[0], &gpu, err));
  if (!gd_cli_for_programs(cli)) {
    append_summary(cli, gpu);
    GD_TRY(append_machines(cli, hw, gpu, err));
    GD_TRY(append_rents(cli, hw, gpu, err));
    append_sources(cli, gpu);
    return GD_OK;
  }
  set_gpu(&object, gpu);
  if (cli->options.json) {
    set_offers(&object, hw, gpu->name);
    return gd_show_json(&cli->out, &object, err);
  }
  rows = (struct gd_show_object){.object = json_array()};
  gd_show_append(&rows, &object);
  return gd_show_csv(&cli->out, &rows, err);
}

/* --- a user's file ------------------------------------------------------------------------- */

static enum gd_status check(struct gd_cli *cli, struct gd_hw *hw, struct gd_error *err) {
  const char *what = "";
  struct gd_show_object object, rows = {.object = NULL};
  GD_TRY(gd_hw_add_file(hw, cli->options.check, &what, err));
  if (!gd_cli_for_programs(cli)) {
    gd_strbuf_printf(&cli->out, "%s: fine: %s\n", cli->options.check, what);
    return GD_OK;
  }
  gd_show_begin(&object);
  gd_show_set_text(&object, "file", cli->options.check);
  gd_show_set_bool(&object, "ok", true);
  gd_show_set_text(&object, "holds", what);
  if (cli->options.json)
    return gd_show_json(&cli->out, &object, err);
  rows.object = json_array();
  gd_show_append(&rows, &object);
  return gd_show_csv(&cli->out, &rows, err);
}

static enum gd_status answer(struct gd_cli *cli, struct gd_hw *hw, struct gd_error *err) {
  if (cli->options.check)
    return check(cli, hw, err);
  if (cli->n_arguments > 0)
    return show_one(cli, hw, err);
  const struct gd_gpu *const *gpus;
  GD_TRY(gd_hw_sorted_gpus(hw, &cli->arena, &gpus, err));
  return gd_cli_for_programs(cli) ? show_objects(cli, hw, gpus, err)
                                  : show_table(cli, hw, gpus, err);
}

/* The record of a GPU as its file in the program has it: to change, for one of one's own. */
static enum gd_status print_template(struct gd_cli *cli, struct gd_hw *hw, struct gd_error *err) {
  const struct gd_gpu *gpu;
  char path[128];
  GD_TRY(gd_hw_gpu(hw, cli->n_arguments > 0 ? cli->arguments[0] : "3090", &gpu, err));
  snprintf(path, sizeof path, "gpus/%s.json", gpu->name);
  const struct gd_embedded_file *file = gd_embedded_find(path);
  if (!file)
    return gd_fail(err, GD_BAD_INPUT, "%s is in a file of yours; gpus --template prints ours",
                   gpu->name);
  gd_strbuf_append_bytes(&cli->out, file->text, (size_t)file->length);
  return GD_OK;
}

enum gd_status gd_cmd_gpus(struct gd_cli *cli, struct gd_error *err) {
  struct gd_hw hw = {0};
  cli->verbatim = cli->options.template;
  if (cli->options.template && (cli->options.check || cli->n_arguments > 1))
    return gd_fail(err, GD_BAD_INPUT,
                   "--template prints the file of one GPU: gpus a100 --template");
  if (cli->options.check && cli->n_arguments > 0)
    return gd_fail(err, GD_BAD_INPUT, "--check reads one file; leave out \"%s\"",
                   cli->arguments[0]);
  GD_TRY(gd_hw_load(&hw, err));
  enum gd_status status =
      cli->options.template ? print_template(cli, &hw, err) : answer(cli, &hw, err);
  gd_hw_deinit(&hw);
  return status;
}
