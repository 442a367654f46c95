/*
 * The jobs of a run; see slurm_run.h.
 */
#define _GNU_SOURCE
#include "search/slurm_run.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

/* The same for every job of a run, and for no other run. */
static enum gd_status name_run(const char *run, char name[64], char whole[PATH_MAX],
                               struct gd_error *err) {
  char hash[GD_HASH_TEXT];
  if (!realpath(run, whole))
    return gd_fail(err, GD_ENVIRONMENT, "%s cannot be found: %s", run, strerror(errno));
  gd_hash_hex(hash, whole);
  snprintf(name, 64, "gpudays-run-%.16s", hash);
  return GD_OK;
}

static enum gd_status write_script(const struct gd_slurm_config *config,
                                   const struct gd_slurm_run_script *script, const char *path,
                                   struct gd_error *err) {
  struct gd_strbuf text = {0};
  gd_slurm_run_script_print(config, script, &text);
  enum gd_status status = text.failed ? gd_nomem(err, "while writing a batch script")
                                      : gd_file_write(path, text.text, text.length, err);
  gd_strbuf_deinit(&text);
  return status;
}

enum gd_status gd_slurm_run_submit(const struct gd_slurm_config *config, const char *run,
                                   const struct gd_slurm_run_script *asked, char id[GD_SLURM_ID],
                                   struct gd_error *err) {
  char name[64], whole[PATH_MAX], folder[PATH_MAX], path[PATH_MAX + 16];
  char output_path[2 * PATH_MAX], program[PATH_MAX];
  struct gd_process_output output;
  struct gd_slurm_run_script script = *asked;
  GD_TRY(gd_slurm_check_commands(err));
  GD_TRY(name_run(run, name, whole, err));
  GD_TRY(gd_process_self(program, sizeof program, err));
  GD_TRY(gd_slurm_find_by_name(name, id, err));
  if (id[0])
    return gd_fail(err, GD_BAD_INPUT,
                   "%s has job %s of SLURM already: 'gpudays train %s --slurm --job-status' shows "
                   "it, 'scancel --name=%s' ends it and its successor",
                   run, id, run, name);
  snprintf(folder, sizeof folder, "%.4000s/slurm", whole);
  snprintf(path, sizeof path, "%s/job.sh", folder);
  GD_TRY(gd_file_make_folder(folder, err));
  gd_slurm_output_option(folder, "log-%j", output_path);
  script.name = name;
  script.program = program;
  script.run = whole;
  script.folder = folder;
  script.output = output_path;
  GD_TRY(write_script(config, &script, path, err));
  const char *const arguments[] = {"sbatch", "--parsable", output_path, path, NULL};
  enum gd_status status = gd_slurm_command(arguments, &output, err);
  if (status == GD_OK && !gd_slurm_read_id(&output, id))
    status = gd_slurm_refusal(output.errors.text, err);
  gd_process_output_deinit(&output);
  return status;
}

/* --- what became of them ------------------------------------------------------------------- */

/* Lines "ID NUMBER TIME" that jobs have appended. */
static enum gd_status read_list(const char *run, const char *name, struct gd_strbuf *text) {
  char path[PATH_MAX + 32];
  snprintf(path, sizeof path, "%.4000s/slurm/%s", run, name);
  return gd_file_read(path, 1 << 24, text, NULL);
}

static const char *next_line(const char *at) {
  const char *end = strchr(at, '\n');
  return end ? end + 1 : at + strlen(at);
}

static struct gd_slurm_run_job *find_job(struct gd_slurm_run_job *jobs, int count, const char *id) {
  for (int i = 0; i < count; i++)
    if (strcmp(jobs[i].id, id) == 0)
      return &jobs[i];
  return NULL;
}

static enum gd_status read_jobs(const char *run, struct gd_slurm_run_job **jobs, int *count,
                                struct gd_error *err) {
  struct gd_strbuf begun = {0}, ended = {0};
  uint32_t capacity = 0, n = 0;
  enum gd_status status = GD_OK;
  struct gd_slurm_run_job job = {.state = "ENDED", .code = -1}, *found;
  if (read_list(run, "jobs", &begun) == GD_OK)
    for (const char *at = begun.text; at && *at && status == GD_OK; at = next_line(at)) {
      if (sscanf(at, "%23s %" SCNd64 " %" SCNd64, job.id, &job.first_step, &job.begun_s) != 3)
        continue;
      if (gd_vec_reserve((void **)jobs, &capacity, n + 1, sizeof **jobs))
        (*jobs)[n++] = job;
      else
        status = gd_nomem(err, "while reading the jobs of a run");
    }
  if (read_list(run, "ended", &ended) == GD_OK)
    for (const char *at = ended.text; at && *at; at = next_line(at)) {
      int code;
      if (sscanf(at, "%23s %d", job.id, &code) == 2 && (found = find_job(*jobs, (int)n, job.id)))
        found->code = code;
    }
  gd_strbuf_deinit(&begun);
  gd_strbuf_deinit(&ended);
  *count = (int)n;
  return status;
}

/* What SLURM knows of jobs of that name; one that has not begun is added. */
static enum gd_status ask_states(const char *name, struct gd_slurm_run_job **jobs, int *count,
                                 struct gd_error *err) {
  struct gd_process_output output;
  char option[96];
  uint32_t capacity = (uint32_t)*count;
  snprintf(option, sizeof option, "--name=%s", name);
  const char *const arguments[] = {
      "squeue", "--noheader", "--states=all", "--sort=i", "--format=%i %T", option, NULL};
  enum gd_status status = gd_slurm_command(arguments, &output, err);
  struct gd_slurm_run_job job = {.first_step = -1, .code = -1}, *found;
  for (const char *at = output.out.text; status == GD_OK && at && *at; at = next_line(at)) {
    if (sscanf(at, "%23s %31s", job.id, job.state) != 2)
      continue;
    if ((found = find_job(*jobs, *count, job.id)))
      memcpy(found->state, job.state, sizeof found->state);
    else if (strcmp(job.state, "CANCELLED") == 0)
      continue; /* a successor that was not needed */
    else if (gd_vec_reserve((void **)jobs, &capacity, (uint32_t)*count + 1, sizeof **jobs))
      (*jobs)[(*count)++] = job;
    else
      status = gd_nomem(err, "while reading the jobs of a run");
  }
  gd_process_output_deinit(&output);
  return status;
}

enum gd_status gd_slurm_run_list(const char *run, struct gd_slurm_run_job **jobs, int *count,
                                 struct gd_error *err) {
  char name[64], whole[PATH_MAX];
  *jobs = NULL;
  *count = 0;
  GD_TRY(name_run(run, name, whole, err));
  enum gd_status status = read_jobs(whole, jobs, count, err);
  if (status == GD_OK)
    status = ask_states(name, jobs, count, err);
  if (status != GD_OK) {
    gd_mem_free(*jobs);
    *jobs = NULL;
  }
  return status;
}
