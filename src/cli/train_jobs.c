/*
 * Jobs of a run; see train_jobs.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/train_jobs.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cli/show.h"
#include "search/slurm_run.h"
#include "train/run_view.h"

enum gd_status gd_train_jobs_prepare(struct gd_cli *cli, struct gd_slurm_config *config,
                                     struct gd_error *err) {
  struct gd_cli_options *o = &cli->options;
  GD_TRY(gd_slurm_config_load(&(struct gd_slurm_asked){.path = o->slurm_config,
                                                       .section = o->slurm_device,
                                                       .backend = o->backend},
                              config, err));
  o->backend = gd_arena_copy_string(&cli->arena, config->backend);
  return o->backend ? GD_OK : gd_nomem(err, "before the first job");
}

struct options {
  struct gd_cli *cli;
  const char *all[32];
  int count;
};

static void add(struct options *options, const char *name, const char *value) {
  options->all[options->count++] = name;
  options->all[options->count++] = value;
}

static void add_int(struct options *options, const char *name, int64_t value) {
  if (value > 0)
    add(options, name, gd_show_cell(options->cli, "%lld", (long long)value));
}

/* What run.json does not say, or says otherwise. */
static void list_options(struct gd_cli *cli, const struct gd_slurm_config *config,
                         struct options *options) {
  const struct gd_cli_options *o = &cli->options;
  *options = (struct options){.cli = cli};
  add(options, "--backend", config->backend);
  add_int(options, "--threads", o->threads ? o->threads : config->cpus);
  add_int(options, "--device-memory", o->device_memory_bytes);
  add_int(options, "--host-memory", o->host_memory_bytes);
  add_int(options, "--ranks", o->ranks);
  add_int(options, "--keep", o->keep);
  add_int(options, "--eval-every", o->eval_every);
  add_int(options, "--check-hardware", o->check_hardware);
  if (o->rank_timeout > 0)
    add(options, "--rank-timeout", gd_show_cell(cli, "%.9g", o->rank_timeout));
  if (o->methods)
    add(options, "--methods", o->methods);
  if (o->deterministic)
    options->all[options->count++] = "--deterministic";
  if (o->micro_batch == GD_MICRO_BATCH_FIXED)
    add_int(options, "--micro-batch", o->micro_batch_size);
  double every = o->checkpoint_every.value;
  if (o->checkpoint_every.given)
    add(options, "--checkpoint-every",
        gd_show_cell(cli, every < 0 ? "%.9gs" : "%.9g", every < 0 ? -every : every));
}

enum gd_status gd_train_jobs_submit(struct gd_cli *cli, const struct gd_slurm_config *config,
                                    const char *folder, struct gd_error *err) {
  const struct gd_cli_options *o = &cli->options;
  struct options options;
  char id[GD_SLURM_ID], line[1024];
  list_options(cli, config, &options);
  if (cli->out.failed)
    return gd_nomem(err, "before the first job");
  struct gd_slurm_run_script script = {.ranks = o->ranks > 1 ? (int)o->ranks : 1,
                                       .nodes = o->nodes > 1 ? (int)o->nodes : 1,
                                       .gpus = gd_backend_is_gpu(config->backend),
                                       .limit_s = o->job_time,
                                       .options = options.all,
                                       .n_options = options.count};
  GD_TRY(gd_slurm_run_submit(config, folder, &script, id, err));
  if (o->json) {
    struct gd_show_object object;
    gd_show_begin(&object);
    gd_show_set_text(&object, "run", folder);
    gd_show_set_text(&object, "job", id);
    return gd_show_json(&cli->out, &object, err);
  }
  snprintf(line, sizeof line,
           "job %s was submitted, and jobs follow it until the run is done: 'gpudays train %.400s "
           "--slurm --job-status' shows them",
           id, folder);
  gd_show_paragraph(&cli->out, 0, line);
  return GD_OK;
}

/* --- how they fare ------------------------------------------------------------------------- */

static const char *date_of(char text[32], int64_t seconds) {
  time_t at = (time_t)seconds;
  struct tm parts;
  text[0] = '\0';
  if (seconds > 0 && localtime_r(&at, &parts))
    strftime(text, 32, "%Y-%m-%d %H:%M", &parts);
  return text;
}

static enum gd_status append_json(struct gd_cli *cli, const char *folder,
                                  const struct gd_run_progress *progress,
                                  const struct gd_slurm_run_job *jobs, int count,
                                  struct gd_error *err) {
  struct gd_show_object object;
  char date[32];
  gd_show_begin(&object);
  gd_show_set_text(&object, "run", folder);
  gd_show_set_int(&object, "step", progress->step);
  gd_show_set_int(&object, "steps", progress->steps);
  gd_show_set_bool(&object, "finished", progress->finished);
  gd_show_set_text(&object, "completion", date_of(date, progress->end_s));
  json_t *list = json_array();
  for (int i = 0; i < count; i++)
    json_array_append_new(list,
                          json_pack("{s:s,s:s,s:I}", "job", jobs[i].id, "state", jobs[i].state,
                                    "first_step", (json_int_t)jobs[i].first_step));
  gd_show_set(&object, "jobs", list);
  return gd_show_json(&cli->out, &object, err);
}

enum gd_status gd_train_jobs_show(struct gd_cli *cli, const char *folder,
                                  const struct gd_run_settings *settings, struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"JOB", true, 0},
                                                  {"STATE", false, 0},
                                                  {"FROM STEP", true, 0},
                                                  {"BEGUN", false, 0},
                                                  {"EXIT", true, 0}};
  struct gd_run_progress progress;
  struct gd_slurm_run_job *jobs;
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char date[32];
  int count;
  GD_TRY(gd_run_progress_read(folder, settings, &progress, err));
  GD_TRY(gd_slurm_run_list(folder, &jobs, &count, err));
  if (cli->options.json) {
    enum gd_status status = append_json(cli, folder, &progress, jobs, count, err);
    gd_mem_free(jobs);
    return status;
  }
  gd_show_bold(cli, settings->model.name);
  gd_strbuf_printf(&cli->out, ": %lld of %lld steps", (long long)progress.step,
                   (long long)progress.steps);
  if (progress.end_s > 0)
    gd_strbuf_printf(&cli->out,
                     progress.finished ? "; done %s" : "; done about %s, without waiting",
                     date_of(date, progress.end_s));
  gd_strbuf_append(&cli->out, "\n");
  for (int i = 0; i < count; i++) {
    const char **row = gd_show_row(&rows);
    row[0] = gd_show_cell(cli, "%s", jobs[i].id);
    row[1] = gd_show_cell(cli, "%s", jobs[i].state);
    if (jobs[i].first_step >= 0)
      row[2] = gd_show_count_cell(cli, jobs[i].first_step);
    row[3] = gd_show_cell(cli, "%s", date_of(date, jobs[i].begun_s));
    if (jobs[i].code >= 0)
      row[4] = gd_show_cell(cli, "%d", jobs[i].code);
  }
  gd_mem_free(jobs);
  return gd_show_rows(&rows, 2, err);
}
