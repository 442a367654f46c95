/*
 * `gpudays doctor`: what was found on this machine, what is missing, and how to get it. One finding
 * is one line; a new optional thing adds one finding.
 */
#include <stdio.h>
#include <string.h>

#include "backend/findings.h"
#include "base/cache.h"
#include "base/switches.h"
#include "cli/cli.h"
#include "cli/show_trial.h"
#include "gd_version.h"
#include "plot/plot.h"

struct machine {
  struct gd_findings here;
  int presets;
};

/* --- for people ----------------------------------------------------------------------------- */

static void append_gpu(struct gd_strbuf *out, const struct gd_findings *here) {
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  if (here->gpu.found)
    gd_strbuf_printf(
        out, "GPU           ok: %s, %s for arenas, %s bf16, %s TF32 (%s)\n", here->gpu.info.name,
        gd_format_bytes(a, sizeof a, here->gpu.info.memory_bytes),
        gd_show_rate(b, sizeof b, here->gpu.bf16_flops),
        gd_show_rate(c, sizeof c, here->gpu.tf32_flops),
        gd_show_peak_source("cuda", here->gpu.info.name, GD_PEAK_BF16, here->gpu.bf16_flops));
  else
    gd_strbuf_printf(out, "GPU           missing: %s\n", here->gpu.missing);
  for (int i = 0; i < here->n_libraries; i++) {
    const struct gd_finding_library *library = &here->libraries[i];
    if (library->path)
      gd_strbuf_printf(out, "%-13s ok: %s, %s\n", library->name, library->version, library->path);
    else
      gd_strbuf_printf(out, "%-13s missing: %s\n", library->name, library->missing);
  }
}

static void append_cache(struct gd_strbuf *out) {
  char path[1024], problem[1024];
  if (gd_cache_problem("kernels", problem, sizeof problem))
    gd_strbuf_printf(out, "kernel cache  missing: %s\n", problem);
  else if (gd_cache_folder("kernels", path, sizeof path))
    gd_strbuf_printf(out, "kernel cache  ok: %s\n", path);
  if (gd_cache_untrusted("kernels", problem, sizeof problem))
    gd_strbuf_printf(out, "%-13s note: %s\n", "", problem);
}

/* A value that its switch does not allow: doctor goes on as if it were not set. */
static bool is_wrong(const struct gd_switch *row) {
  const char *value = gd_switch_given(row);
  return value && !gd_switch_allows(row, value);
}

/* Every switch in the order of the table, what is set or wrong marked; then names of none. */
static void append_switches(struct gd_strbuf *out) {
  char clean[128], values[128], text[256];
  const char *unknown;
  size_t at = 0;
  gd_strbuf_append(out, "\nenvironment   (* set, ! wrong; 'man gpudays' says more)\n");
  for (int i = 0; i < gd_switch_count; i++) {
    const struct gd_switch *row = &gd_switches[i];
    const char *value = gd_switch_given(row);
    gd_switch_values(row, values, sizeof values);
    if (value && is_wrong(row))
      gd_strbuf_printf(out, "! %s=%s is wrong: expected %s, or unset it\n", row->name,
                       gd_json_excerpt(clean, sizeof clean, value), values);
    else if (value)
      gd_strbuf_printf(out, "* %s=%s: %s\n", row->name, gd_json_excerpt(clean, sizeof clean, value),
                       row->about);
    else if (row->kind == GD_SWITCH_TUNING || row->kind == GD_SWITCH_PLACE)
      gd_strbuf_printf(out, "  %s (%s), unset: %s\n", row->name, values, row->unset);
  }
  while ((unknown = gd_switch_unknown(&at)))
    gd_strbuf_printf(out, "! %s\n", gd_switch_unknown_text(unknown, text, sizeof text));
}

static void append_summary(struct gd_cli *cli, const struct machine *machine) {
  const struct gd_findings *here = &machine->here;
  struct gd_strbuf *out = &cli->out;
  struct gd_error no_figures = {0};
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  gd_strbuf_printf(out, "gpudays       %s (%s)\n", GD_VERSION, GD_SOURCE);
  gd_strbuf_printf(out, "cpu           ok: %s\n", here->cpu.info.name);
  gd_strbuf_printf(out, "memory        ok: %s free for arenas (--device-memory sets a limit)\n",
                   gd_format_bytes(a, sizeof a, here->cpu.info.memory_bytes));
  gd_strbuf_printf(out, "peak          ok: %s fp32, %s bf16 on %d thread%s, measured\n",
                   gd_show_rate(a, sizeof a, here->cpu.fp32_flops),
                   gd_show_rate(b, sizeof b, here->cpu.bf16_flops), here->cpu.info.threads,
                   here->cpu.info.threads == 1 ? "" : "s");
  if (here->cpu.multiplies_bf16)
    gd_strbuf_printf(out, "bf16 GEMM     ok: %s\n", here->cpu.isa);
  else
    gd_strbuf_append(out, "bf16 GEMM     missing: computed in fp32; a CPU with AVX512_BF16 or AMX "
                          "has it\n");
  append_gpu(out, here);
  append_cache(out);
  gd_strbuf_printf(out, "presets       ok: %d models ('gpudays models')\n", machine->presets);
  if (gd_plot_works(&no_figures) == GD_OK)
    gd_strbuf_append(out, "gnuplot       ok: figures of report and survey\n");
  else
    gd_strbuf_printf(out, "gnuplot       missing: %s\n", no_figures.text);
  append_switches(out);
}

/* --- for programs --------------------------------------------------------------------------- */

/* The names are there with and without a GPU. */
static void set_gpu(struct gd_show_object *to, const struct gd_findings *here) {
  struct gd_show_object gpu, peaks, fallbacks, libraries;
  gd_show_begin(&gpu);
  gd_show_begin(&peaks);
  gd_show_begin(&fallbacks);
  gd_show_begin(&libraries);
  gd_show_set_text(&gpu, "name", here->gpu.info.name);
  if (here->gpu.found)
    gd_show_set_int(&gpu, "memory_bytes", here->gpu.info.memory_bytes);
  else
    gd_show_set_null(&gpu, "memory_bytes");
  gd_show_set_real(&peaks, "bf16", here->gpu.bf16_flops);
  gd_show_set_real(&peaks, "tf32", here->gpu.tf32_flops);
  gd_show_set_object(&gpu, "peak_flops", &peaks);
  gd_show_set_text(&gpu, "peak_source",
                   here->gpu.found ? gd_show_peak_source("cuda", here->gpu.info.name, GD_PEAK_BF16,
                                                         here->gpu.bf16_flops)
                                   : "");
  gd_show_set_text(&gpu, "missing", here->gpu.missing);
  for (int i = 0; i < here->n_libraries; i++) {
    const struct gd_finding_library *library = &here->libraries[i];
    struct gd_show_object one;
    if (!library->path && library->without)
      gd_show_set_text(&fallbacks, library->name, library->without);
    gd_show_begin(&one);
    gd_show_set_text(&one, "version", library->version);
    gd_show_set_text(&one, "path", library->path ? library->path : "");
    gd_show_set_text(&one, "missing", library->path ? "" : library->missing);
    gd_show_set_object(&libraries, library->name, &one);
  }
  gd_show_set_object(&gpu, "falls_back", &fallbacks);
  gd_show_set_object(to, "gpu", &gpu);
  gd_show_set_object(to, "nvidia", &libraries);
}

/* The folder of compiled kernels that outlives a process, or why there is none. */
static void set_cache(struct gd_show_object *to) {
  struct gd_show_object cache;
  char path[1024], problem[1024];
  bool lasts = !gd_cache_problem("kernels", problem, sizeof problem);
  gd_show_begin(&cache);
  gd_show_set_text(&cache, "path",
                   lasts && gd_cache_folder("kernels", path, sizeof path) ? path : "");
  gd_show_set_text(&cache, "problem", lasts ? "" : problem);
  gd_show_set_object(to, "kernel_cache", &cache);
}

/* Variables that are set, with their values; of those with a wrong one, the values that are
   allowed; those that nothing reads. */
static void set_switches(struct gd_show_object *to) {
  struct gd_show_object set, wrong, unknown;
  const char *variable;
  char values[128];
  size_t at = 0;
  gd_show_begin(&set);
  gd_show_begin(&wrong);
  gd_show_begin(&unknown);
  for (int i = 0; i < gd_switch_count; i++) {
    const struct gd_switch *row = &gd_switches[i];
    if (gd_switch_given(row))
      gd_show_set_text(&set, row->name, gd_switch_given(row));
    if (is_wrong(row))
      gd_show_set_text(&wrong, row->name, gd_switch_values(row, values, sizeof values));
  }
  while ((variable = gd_switch_unknown(&at))) {
    char name[128];
    const char *equals = strchr(variable, '=');
    snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - variable : 127), variable);
    gd_show_set_text(&unknown, name, equals ? equals + 1 : "");
  }
  gd_show_set_object(to, "environment", &set);
  gd_show_set_object(to, "wrong_environment", &wrong);
  gd_show_set_object(to, "unknown_environment", &unknown);
}

static enum gd_status show_object(struct gd_cli *cli, const struct machine *machine,
                                  struct gd_error *err) {
  const struct gd_findings *here = &machine->here;
  struct gd_show_object object, versions, peaks;
  gd_show_begin(&object);
  gd_show_begin(&versions);
  gd_show_set_text(&versions, "gpudays", GD_VERSION);
  gd_show_set_text(&versions, "commit", GD_COMMIT);
  gd_show_set_object(&object, "versions", &versions);
  gd_show_set_text(&object, "device", here->cpu.info.name);
  gd_show_set_text(&object, "isa", here->cpu.isa);
  gd_show_set_int(&object, "threads", here->cpu.info.threads);
  gd_show_set_int(&object, "memory_bytes", here->cpu.info.memory_bytes);
  gd_show_begin(&peaks);
  gd_show_set_real(&peaks, "fp32", here->cpu.fp32_flops);
  gd_show_set_real(&peaks, "bf16", here->cpu.bf16_flops);
  gd_show_set_object(&object, "peak_flops", &peaks);
  gd_show_set_bool(&object, "bf16_instructions", here->cpu.multiplies_bf16);
  gd_show_set_int(&object, "presets", machine->presets);
  set_gpu(&object, here);
  set_cache(&object);
  gd_show_set_bool(&object, "gnuplot", gd_plot_works(NULL) == GD_OK);
  set_switches(&object);
  return gd_show_json(&cli->out, &object, err);
}

enum gd_status gd_cmd_doctor(struct gd_cli *cli, struct gd_error *err) {
  struct machine machine = {0};
  const char *const *names;
  GD_TRY(gd_model_list(&cli->arena, &names, &machine.presets, err));
  GD_TRY(gd_findings_look((int)cli->options.threads, &machine.here, err));
  if (cli->options.json)
    return show_object(cli, &machine, err);
  append_summary(cli, &machine);
  return GD_OK;
}
