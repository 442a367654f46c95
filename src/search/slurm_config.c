/*
 * slurm.json, and the batch script it ends up in; see slurm_config.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "search/slurm_config.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/json.h"
#include "base/paths.h"
#include "search/child.h"

#define MIB INT64_C(1048576)

/* --- slurm.json ---------------------------------------------------------------------------- */

/* SLURM's parser takes blanks, quotes and # for its own; gd_json_string has refused line ends. */
static enum gd_status read_word(const struct gd_json *json, const json_t *section, const char *key,
                                char to[GD_SLURM_TEXT], struct gd_error *err) {
  const char *text;
  GD_TRY(gd_json_string(json, section, key, &text, err));
  if (!text[0] || strlen(text) >= GD_SLURM_TEXT || strpbrk(text, " \"'\\#"))
    return gd_json_mismatch(json, section, key, "a word without blanks or quotes", err);
  snprintf(to, GD_SLURM_TEXT, "%s", text);
  return GD_OK;
}

static enum gd_status read_memory(const struct gd_json *json, const json_t *section,
                                  struct gd_slurm_config *config, struct gd_error *err) {
  const char *text = json_string_value(json_object_get(section, "memory"));
  int64_t bytes;
  if (!text || !gd_parse_bytes(text, &bytes) || bytes < MIB || bytes > INT64_C(1) << 50)
    return gd_json_mismatch(json, section, "memory", "a size of a rank's memory such as \"64GiB\"",
                            err);
  config->memory_bytes = bytes;
  return GD_OK;
}

static bool is_backend(const char *name) {
  const struct gd_backend_ops *ops;
  return gd_backend_find(name, &ops, NULL) == GD_OK;
}

static enum gd_status read_backend(const struct gd_json *json, const json_t *section,
                                   struct gd_slurm_config *config, struct gd_error *err) {
  const char *text = json_string_value(json_object_get(section, "backend"));
  if (!text || !is_backend(text))
    return gd_json_mismatch(json, section, "backend", "cuda, cpu or ref", err);
  snprintf(config->backend, sizeof config->backend, "%s", text);
  return GD_OK;
}

static enum gd_status read_extra(const struct gd_json *json, const json_t *section,
                                 struct gd_slurm_config *config, struct gd_error *err) {
  const json_t *list = json_object_get(section, "extra"), *item;
  size_t i;
  config->n_extra = 0;
  if (!json_is_array(list) || json_array_size(list) > GD_SLURM_EXTRA)
    return gd_json_mismatch(json, section, "extra",
                            "up to 16 options of sbatch, such as [\"--qos=short\"]", err);
  json_array_foreach(list, i, item) {
    char clean[64];
    const char *text = json_string_value(item);
    bool fine = text && text[0] == '-' && strlen(text) < sizeof config->extra[0];
    for (const char *at = text; fine && *at; at++)
      fine = (unsigned char)*at >= 0x20;
    if (!fine)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: extra[%zu] of %s is %s; expected an option of sbatch, such as "
                     "\"--qos=short\"",
                     json->file, i, config->device,
                     text ? gd_json_excerpt(clean, sizeof clean, text) : "no text");
    snprintf(config->extra[config->n_extra++], sizeof config->extra[0], "%s", text);
  }
  return GD_OK;
}

static enum gd_status read_setting(const struct gd_json *json, const json_t *section,
                                   const char *key, struct gd_slurm_config *config,
                                   struct gd_error *err) {
  struct {
    const char *key;
    char *to;
  } words[] = {{"partition", config->partition},
               {"account", config->account},
               {"constraint", config->constraint},
               {"time", config->time},
               {"gres", config->gres},
               {"gpu", config->gpu},
               {"mpi", config->mpi}};
  char clean[64];
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(key, words[i].key) == 0)
      return read_word(json, section, key, words[i].to, err);
  if (strcmp(key, "cpus") == 0)
    return gd_json_int(json, section, key, 1, 4096, &config->cpus, err);
  if (strcmp(key, "memory") == 0)
    return read_memory(json, section, config, err);
  if (strcmp(key, "backend") == 0)
    return read_backend(json, section, config, err);
  if (strcmp(key, "extra") == 0)
    return read_extra(json, section, config, err);
  return gd_fail(
      err, GD_BAD_INPUT,
      "%s: \"%s\" of %s is unknown; there are backend, gpu, partition, account, constraint, "
      "time, cpus, memory, gres, mpi and extra",
      json->file, gd_json_excerpt(clean, sizeof clean, key), config->device);
}

static enum gd_status read_section(const struct gd_json *json, const char *name,
                                   struct gd_slurm_config *config, struct gd_error *err) {
  const json_t *section = json_object_get(json->root, name);
  const char *key;
  json_t *value;
  if (!json_is_object(section))
    return gd_json_mismatch(json, json->root, name, "an object of settings", err);
  gd_json_excerpt(config->device, sizeof config->device, name);
  json_object_foreach((json_t *)(uintptr_t)section, key, value) {
    GD_TRY(read_setting(json, section, key, config, err));
  }
  return GD_OK;
}

/* What the jobs of a section compute with. */
static const char *backend_of(const struct gd_slurm_config *section) {
  if (section->backend[0])
    return section->backend;
  return is_backend(section->device) ? section->device : "cuda";
}

/* Which sections there are, and which of them fit what was asked for. */
struct sections {
  char names[256]; /* all, joined by commas; "default" is none */
  size_t length;
  char fit[GD_SLURM_TEXT]; /* the first that fits by more than its name */
  int n_fit;
};

static bool fits(const struct gd_slurm_config *section, const struct gd_slurm_asked *asked) {
  if (asked->gpu)
    return section->gpu[0] && strcasecmp(section->gpu, asked->gpu) == 0;
  return !asked->backend || strcmp(backend_of(section), asked->backend) == 0;
}

/* Every section is read, so that a mistake is said before somebody needs it. */
static enum gd_status list_sections(const struct gd_json *json, const struct gd_slurm_asked *asked,
                                    const struct gd_slurm_config *from, struct sections *sections,
                                    struct gd_error *err) {
  char clean[64];
  const char *key;
  json_t *value;
  json_object_foreach(json->root, key, value) {
    struct gd_slurm_config any = *from;
    GD_TRY(read_section(json, key, &any, err));
    if (strcmp(key, "default") == 0)
      continue;
    if (sections->length < sizeof sections->names)
      sections->length += (size_t)snprintf(
          sections->names + sections->length, sizeof sections->names - sections->length, "%s%s",
          sections->length ? ", " : "", gd_json_excerpt(clean, sizeof clean, key));
    if (fits(&any, asked) && strlen(key) < sizeof sections->fit && sections->n_fit++ == 0)
      snprintf(sections->fit, sizeof sections->fit, "%s", key);
  }
  return GD_OK;
}

/* The name of the section; NULL: "default" alone. */
static enum gd_status choose_section(const struct gd_json *json, const struct gd_slurm_asked *asked,
                                     const struct sections *sections, const char **name,
                                     struct gd_error *err) {
  char clean[64];
  *name = NULL;
  if (asked->section && !json_object_get(json->root, asked->section))
    return gd_fail(err, GD_BAD_INPUT, "%s: has no section \"%s\" (--slurm-device); it has: %s",
                   json->file, gd_json_excerpt(clean, sizeof clean, asked->section),
                   sections->length ? sections->names : "none");
  const char *const by_name[] = {asked->section, asked->gpu, asked->gpu ? "cuda" : asked->backend};
  for (size_t i = 0; i < sizeof by_name / sizeof *by_name && !*name; i++)
    if (by_name[i] && json_object_get(json->root, by_name[i]))
      *name = by_name[i];
  if (!*name && sections->n_fit == 1)
    *name = sections->fit;
  if (!*name && sections->n_fit > 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: several sections fit; --slurm-device says which the jobs are for: %s",
                   json->file, sections->names);
  return GD_OK;
}

static enum gd_status read_sections(const struct gd_json *json, const struct gd_slurm_asked *asked,
                                    struct gd_slurm_config *config, struct gd_error *err) {
  struct sections sections = {0};
  const char *name;
  if (json_object_get(json->root, "default"))
    GD_TRY(read_section(json, "default", config, err));
  config->device[0] = '\0';
  GD_TRY(list_sections(json, asked, config, &sections, err));
  GD_TRY(choose_section(json, asked, &sections, &name, err));
  return name ? read_section(json, name, config, err) : GD_OK;
}

/* Of what the command line and the section say. */
static enum gd_status set_backend(const struct gd_slurm_asked *asked,
                                  struct gd_slurm_config *config, struct gd_error *err) {
  const char *backend = asked->backend                            ? asked->backend
                        : asked->gpu                              ? "cuda"
                        : config->device[0] || config->backend[0] ? backend_of(config)
                                                                  : NULL;
  char chosen[sizeof config->backend];
  if (!backend)
    return gd_fail(
        err, GD_BAD_INPUT,
        "this machine cannot tell whether the jobs of --slurm run on GPUs: add --backend "
        "cuda or cpu, --gpu, or --slurm-device with a section of slurm.json");
  snprintf(chosen, sizeof chosen, "%s", backend);
  snprintf(config->backend, sizeof config->backend, "%s", chosen);
  if (!config->device[0])
    snprintf(config->device, sizeof config->device, "%s", chosen);
  return GD_OK;
}

enum gd_status gd_slurm_config_load(const struct gd_slurm_asked *asked,
                                    struct gd_slurm_config *config, struct gd_error *err) {
  char found[PATH_MAX], clean[64];
  const char *path = asked->path;
  struct gd_json json = {0};
  struct gd_slurm_config read = {
      .cpus = 4, .memory_bytes = 65536 * MIB, .gres = "gpu", .mpi = "pmix"};
  if (!path && gd_path_config("slurm.json", found, sizeof found) && access(found, F_OK) == 0)
    path = found;
  if (!path && asked->section)
    return gd_fail(err, GD_BAD_INPUT,
                   "--slurm-device %s is a section of slurm.json, and there is no such file; write "
                   "~/.config/gpudays/slurm.json or name one by --slurm-config",
                   gd_json_excerpt(clean, sizeof clean, asked->section));
  enum gd_status status = path ? gd_json_load(&json, path, err) : GD_OK;
  if (status == GD_OK && path)
    status = read_sections(&json, asked, &read, err);
  gd_json_deinit(&json);
  if (status == GD_OK)
    status = set_backend(asked, &read, err);
  if (status == GD_OK)
    *config = read;
  return status;
}

/* --- the script ---------------------------------------------------------------------------- */

static void append_option(struct gd_strbuf *out, const char *name, const char *value) {
  if (value[0])
    gd_strbuf_printf(out, "#SBATCH --%s=%s\n", name, value);
}

/* One word for the shell. */
static void append_quoted(struct gd_strbuf *out, const char *text) {
  gd_strbuf_append(out, "'");
  for (; *text; text++)
    if (*text == '\'')
      gd_strbuf_append(out, "'\\''");
    else
      gd_strbuf_printf(out, "%c", *text);
  gd_strbuf_append(out, "'");
}

/* What a job of that name asks for. */
static void append_resources(const struct gd_slurm_config *config, const char *name, int ranks,
                             int nodes, bool gpus, const char *time, struct gd_strbuf *out) {
  int per_node = ranks / nodes;
  gd_strbuf_append(out, "#!/bin/sh\n");
  append_option(out, "job-name", name);
  gd_strbuf_printf(out, "#SBATCH --nodes=%d\n#SBATCH --ntasks=%d\n#SBATCH --ntasks-per-node=%d\n",
                   nodes, ranks, per_node);
  gd_strbuf_printf(out, "#SBATCH --cpus-per-task=%" PRId64 "\n", config->cpus);
  gd_strbuf_printf(out, "#SBATCH --mem=%" PRId64 "M\n",
                   (config->memory_bytes + MIB - 1) / MIB * per_node);
  if (gpus)
    gd_strbuf_printf(out, "#SBATCH --gres=%s:%d\n", config->gres, per_node);
  append_option(out, "time", time);
  append_option(out, "partition", config->partition);
  append_option(out, "account", config->account);
  append_option(out, "constraint", config->constraint);
  gd_strbuf_append(out, "#SBATCH --no-requeue\n");
  for (int i = 0; i < config->n_extra; i++)
    gd_strbuf_printf(out, "#SBATCH %s\n", config->extra[i]);
}

/*
 * Also one rank is a step: what a shell has started may outlive it where SLURM follows parents and
 * children. From 22.05 on srun does not take over the CPUs of the job by itself.
 */
static void append_srun(const struct gd_slurm_config *config, int ranks, const char *program,
                        struct gd_strbuf *out) {
  gd_strbuf_append(out, "srun --mpi=");
  append_quoted(out, ranks > 1 ? config->mpi : "none");
  gd_strbuf_printf(out, " --kill-on-bad-exit=1 --cpus-per-task=%" PRId64 " ", config->cpus);
  append_quoted(out, program);
}

void gd_slurm_script_print(const struct gd_slurm_config *config,
                           const struct gd_slurm_script *script, struct gd_strbuf *out) {
  char minutes[32];
  /* SLURM's clock also counts the start of the job, and knows whole minutes. */
  snprintf(minutes, sizeof minutes, "%.0f", ceil(script->timeout_s / 60) + 1);
  append_resources(config, script->name, script->ranks, script->nodes, script->gpus,
                   config->time[0] ? config->time : minutes, out);
  append_srun(config, script->ranks, script->program, out);
  gd_strbuf_append(out, " " GD_CHILD_RANK " ");
  append_quoted(out, script->order);
  gd_strbuf_append(out, " ");
  append_quoted(out, script->result);
  gd_strbuf_printf(out, " %d %g\ncode=$?\necho $code > ", script->ranks, script->rank_timeout_s);
  append_quoted(out, script->code);
  gd_strbuf_append(out, "\nexit $code\n");
}

/* --- the script of a run ------------------------------------------------------------------- */

/* "90", "90:00", "1:30:00", "1-12", "1-12:30", "1-12:30:00" in seconds; 0: none of these. */
static double seconds_of(const char *text) {
  double part[3] = {0, 0, 0}, days = 0;
  int n = 0;
  char *end;
  const char *dash = strchr(text, '-'), *at = dash ? dash + 1 : text;
  if (dash) {
    days = strtod(text, &end);
    if (end != dash)
      return 0;
  }
  for (; n < 3; at = end + 1) {
    part[n++] = strtod(at, &end);
    if (end == at || (*end && *end != ':'))
      return 0;
    if (!*end)
      break;
  }
  if (*end)
    return 0;
  if (dash || n == 3)
    return days * 86400 + part[0] * 3600 + part[1] * 60 + part[2];
  return part[0] * 60 + part[1];
}

/* A tenth, within reason. */
double gd_slurm_spare_s(double limit_s) {
  return fmin(fmax(limit_s / 10, 15), 600);
}

void gd_slurm_run_script_print(const struct gd_slurm_config *config,
                               const struct gd_slurm_run_script *script, struct gd_strbuf *out) {
  char time[GD_SLURM_TEXT];
  if (script->limit_s > 0)
    snprintf(time, sizeof time, "%.0f", fmax(1, ceil(script->limit_s / 60)));
  else
    snprintf(time, sizeof time, "%s", config->time[0] ? config->time : "1-0");
  double limit_s = seconds_of(time);
  append_resources(config, script->name, script->ranks, script->nodes, script->gpus, time, out);
  gd_strbuf_append(out, "begun=$(date +%s)\ncd ");
  append_quoted(out, script->folder);
  /* Whatever ends this job, the next one is there already. A chain that gets nowhere ends. */
  gd_strbuf_append(
      out,
      " || exit 3\n"
      "step=$(ls ../checkpoints 2>/dev/null | sed -n 's/^step-0*\\([0-9]\\)/\\1/p' | tail -n 1)\n"
      "step=${step:-0}\n"
      "if [ \"$(tail -n 3 jobs 2>/dev/null | cut -d ' ' -f 2 | grep -cx \"$step\")\" -ge 3 ]; "
      "then\n"
      "  echo \"gpudays: three jobs in a row have ended without a checkpoint\" >&2\n"
      "  exit 3\n"
      "fi\n"
      "echo \"$SLURM_JOB_ID $step $begun\" >>jobs\n"
      "next=$(sbatch --parsable --dependency=afterany:$SLURM_JOB_ID ");
  append_quoted(out, script->output);
  gd_strbuf_append(out, " job.sh)\n");
  append_srun(config, script->ranks, script->program, out);
  gd_strbuf_append(out, " train ");
  append_quoted(out, script->run);
  if (limit_s > 0)
    gd_strbuf_printf(out, " --time-limit $((%.0f - $(date +%%s) + begun))s",
                     limit_s - gd_slurm_spare_s(limit_s));
  for (int i = 0; i < script->n_options; i++) {
    gd_strbuf_append(out, " ");
    append_quoted(out, script->options[i]);
  }
  /* 0 and not done: the time was up. 3, or a signal: the machine's fault. All else stays. */
  gd_strbuf_append(out, "\ncode=$?\n"
                        "echo \"$SLURM_JOB_ID $code $(date +%s)\" >>ended\n"
                        "if [ -e ../model/model.safetensors ] ||\n"
                        "  { [ $code -ne 0 ] && [ $code -ne 3 ] && [ $code -le 128 ]; }; then\n"
                        "  scancel \"$next\"\n"
                        "fi\n"
                        "exit $code\n");
}
