/*
 * `gpudays doctor`: what was found on this machine, what is missing, and how to get it. One finding
 * is one line; a new optional thing adds one finding.
 */
#include <math.h>
#include <stdio.h>

#include "backend/cpu/isa.h"
#include "backend/cuda/cuda_int.h"
#include "base/cache.h"
#include "cli/cli.h"
#include "cli/show_trial.h"
#include "gd_version.h"
#include "plot/plot.h"

struct machine {
  struct gd_device_info info;
  enum gd_isa isa;
  double fp32_flops, bf16_flops;
  int presets;
};

static enum gd_status look(struct gd_cli *cli, struct machine *machine, struct gd_error *err) {
  struct gd_backend_options options = {.threads = (int)cli->options.threads};
  struct gd_backend *backend;
  const char *const *names;
  GD_TRY(gd_model_list(&cli->arena, &names, &machine->presets, err));
  GD_TRY(gd_backend_open("cpu", &options, &backend, err));
  backend->ops->describe(backend, &machine->info);
  machine->isa = gd_isa_detect();
  machine->fp32_flops = backend->ops->peak_flops(backend, GD_DTYPE_F32, false);
  machine->bf16_flops = backend->ops->peak_flops(backend, GD_DTYPE_BF16, false);
  gd_backend_close(backend);
  return GD_OK;
}

/* --- NVIDIA --------------------------------------------------------------------------------- */

static void append_library(void *user, const struct gd_cuda_library *library) {
  struct gd_cli *cli = user;
  if (library->path)
    gd_strbuf_printf(&cli->out, "%-13s ok: %s, %s\n", library->name, library->version,
                     library->path);
  else
    gd_strbuf_printf(&cli->out, "%-13s missing: %s\n", library->name, library->missing);
}

static void set_library(void *user, const struct gd_cuda_library *library) {
  struct gd_show_object *libraries = user, one;
  gd_show_begin(&one);
  gd_show_set_text(&one, "version", library->version);
  gd_show_set_text(&one, "path", library->path ? library->path : "");
  gd_show_set_text(&one, "missing", library->path ? "" : library->missing);
  gd_show_set_object(libraries, library->name, &one);
}

/* The GPU that the cuda backend would take, or why there is none. */
static bool find_gpu(struct gd_device_info *info, double *half_flops, double *tf32_flops,
                     struct gd_error *why) {
  struct gd_backend *backend;
  if (gd_backend_open("cuda", &(struct gd_backend_options){0}, &backend, why) != GD_OK)
    return false;
  backend->ops->describe(backend, info);
  *half_flops = backend->ops->peak_flops(backend, GD_DTYPE_BF16, false);
  *tf32_flops = backend->ops->peak_flops(backend, GD_DTYPE_F32, true);
  gd_backend_close(backend);
  return true;
}

static void append_gpu(struct gd_cli *cli) {
  struct gd_device_info info;
  struct gd_error why = {0};
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  double half_flops, tf32_flops;
  if (find_gpu(&info, &half_flops, &tf32_flops, &why))
    gd_strbuf_printf(&cli->out, "GPU           ok: %s, %s for arenas, %s bf16, %s TF32 (%s)\n",
                     info.name, gd_format_bytes(a, sizeof a, info.memory_bytes),
                     gd_show_rate(b, sizeof b, half_flops), gd_show_rate(c, sizeof c, tf32_flops),
                     gd_show_peak_source("cuda", info.name, GD_PEAK_BF16, half_flops));
  else
    gd_strbuf_printf(&cli->out, "GPU           missing: %s\n", why.text);
  gd_cuda_libraries(append_library, cli);
}

static void set_fallback(void *user, const struct gd_cuda_library *library) {
  if (!library->path && library->without)
    gd_show_set_text(user, library->name, library->without);
}

/* The names are there with and without a GPU. */
static void set_gpu(struct gd_show_object *to) {
  struct gd_device_info info = {0};
  struct gd_error why = {0};
  struct gd_show_object gpu, peaks, fallbacks;
  double half_flops = (double)NAN, tf32_flops = (double)NAN;
  bool found = find_gpu(&info, &half_flops, &tf32_flops, &why);
  gd_show_begin(&gpu);
  gd_show_begin(&peaks);
  gd_show_begin(&fallbacks);
  gd_show_set_text(&gpu, "name", info.name);
  if (found)
    gd_show_set_int(&gpu, "memory_bytes", info.memory_bytes);
  else
    gd_show_set_null(&gpu, "memory_bytes");
  gd_show_set_real(&peaks, "bf16", half_flops);
  gd_show_set_real(&peaks, "tf32", tf32_flops);
  gd_show_set_object(&gpu, "peak_flops", &peaks);
  gd_show_set_text(&gpu, "peak_source",
                   found ? gd_show_peak_source("cuda", info.name, GD_PEAK_BF16, half_flops) : "");
  gd_show_set_text(&gpu, "missing", why.text);
  gd_cuda_libraries(set_fallback, &fallbacks);
  gd_show_set_object(&gpu, "falls_back", &fallbacks);
  gd_show_set_object(to, "gpu", &gpu);
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

static void append_cache(struct gd_strbuf *out) {
  char path[1024], problem[1024];
  if (gd_cache_problem("kernels", problem, sizeof problem))
    gd_strbuf_printf(out, "kernel cache  missing: %s\n", problem);
  else if (gd_cache_folder("kernels", path, sizeof path))
    gd_strbuf_printf(out, "kernel cache  ok: %s\n", path);
}

static enum gd_status show_object(struct gd_cli *cli, const struct machine *machine,
                                  struct gd_error *err) {
  struct gd_show_object object, versions, peaks, libraries;
  gd_show_begin(&object);
  gd_show_begin(&versions);
  gd_show_set_text(&versions, "gpudays", GD_VERSION);
  gd_show_set_text(&versions, "commit", GD_COMMIT);
  gd_show_set_object(&object, "versions", &versions);
  gd_show_set_text(&object, "device", machine->info.name);
  gd_show_set_text(&object, "isa", gd_isa_name(machine->isa));
  gd_show_set_int(&object, "threads", machine->info.threads);
  gd_show_set_int(&object, "memory_bytes", machine->info.memory_bytes);
  gd_show_begin(&peaks);
  gd_show_set_real(&peaks, "fp32", machine->fp32_flops);
  gd_show_set_real(&peaks, "bf16", machine->bf16_flops);
  gd_show_set_object(&object, "peak_flops", &peaks);
  gd_show_set_bool(&object, "bf16_instructions", machine->isa >= GD_ISA_AVX512_BF16);
  gd_show_set_int(&object, "presets", machine->presets);
  set_gpu(&object);
  gd_show_begin(&libraries);
  gd_cuda_libraries(set_library, &libraries);
  gd_show_set_object(&object, "nvidia", &libraries);
  set_cache(&object);
  gd_show_set_bool(&object, "gnuplot", gd_plot_works(NULL) == GD_OK);
  return gd_show_json(&cli->out, &object, err);
}

static void append_sheet(struct gd_cli *cli, const struct machine *machine) {
  struct gd_strbuf *out = &cli->out;
  struct gd_error no_figures = {0};
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  gd_strbuf_printf(out, "gpudays       %s (%s)\n", GD_VERSION, GD_COMMIT);
  gd_strbuf_printf(out, "cpu           ok: %s\n", machine->info.name);
  gd_strbuf_printf(out, "memory        ok: %s free for arenas (--device-memory sets a limit)\n",
                   gd_format_bytes(a, sizeof a, machine->info.memory_bytes));
  gd_strbuf_printf(out, "peak          ok: %s fp32, %s bf16 on %d thread%s, measured\n",
                   gd_show_rate(a, sizeof a, machine->fp32_flops),
                   gd_show_rate(b, sizeof b, machine->bf16_flops), machine->info.threads,
                   machine->info.threads == 1 ? "" : "s");
  if (machine->isa >= GD_ISA_AVX512_BF16)
    gd_strbuf_printf(out, "bf16 products ok: %s\n", gd_isa_name(machine->isa));
  else
    gd_strbuf_append(out, "bf16 products missing: computed in fp32; a CPU with AVX512_BF16 or AMX "
                          "has them\n");
  append_gpu(cli);
  append_cache(out);
  gd_strbuf_printf(out, "presets       ok: %d models ('gpudays models')\n", machine->presets);
  if (gd_plot_works(&no_figures) == GD_OK)
    gd_strbuf_append(out, "gnuplot       ok: figures of report and survey\n");
  else
    gd_strbuf_printf(out, "gnuplot       missing: %s\n", no_figures.text);
}

enum gd_status gd_cmd_doctor(struct gd_cli *cli, struct gd_error *err) {
  struct machine machine = {0};
  GD_TRY(look(cli, &machine, err));
  if (cli->options.json)
    return show_object(cli, &machine, err);
  append_sheet(cli, &machine);
  return GD_OK;
}
