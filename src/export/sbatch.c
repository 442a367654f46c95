/*
 * A SLURM job that runs the user's program with the exported settings: the paper's resources (4
 * CPUs and 64 GB a GPU; on CPUs the trial's own), torchrun on every node, and where the run takes
 * longer than one job may, a chain of them as an array that runs one at a time.
 *
 * Whatever comes from outside goes through clean_name in export.c or into a comment without control
 * characters: the text is a program.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "export/export_int.h"

/* The settings say so many; SLURM's MaxArraySize is 1001 where nobody changed it. */
static const int64_t most_jobs = 1000;
/* Loading data, writing checkpoints, and what is lost between the last one and the end of a job. */
static const double slack = 1.1;
static const double gib = 1024.0 * 1024.0 * 1024.0;

struct job {
  int64_t nodes, per_node; /* ranks a node */
  int64_t cpus, mem_gib;   /* of a node */
  int64_t count;           /* jobs of the chain */
  int64_t minutes;         /* of one job */
};

/* Next to the trial's own arenas: Python, torch and what the program reads ahead. */
static const int64_t program_gib = 4;

/* A rank's memory on the host: on a CPU that is all of it; of a GPU the paper's, or more. */
static int64_t rank_gib(const struct gd_export_point *point) {
  const struct gd_trial *trial = point->trial;
  double bytes = (double)trial->host_bytes + (point->cpu ? (double)trial->peak_bytes : 0);
  int64_t needed = (int64_t)ceil(bytes * 1.25 / gib);
  if (point->cpu)
    return needed + program_gib;
  return needed > GD_EXPORT_MEM_GIB ? needed : GD_EXPORT_MEM_GIB;
}

/* A run that fits into one job asks for its own time, others for the whole of each. */
static void plan_time(const struct gd_export_point *point, struct job *job) {
  double limit_s = point->from->job_s > 0 ? point->from->job_s : GD_EXPORT_JOB_S;
  double run_s = point->timed ? point->trial->days_high * 86400 * slack : limit_s;
  double jobs = ceil(run_s / limit_s);
  job->count = jobs > (double)most_jobs ? most_jobs : jobs < 1 ? 1 : (int64_t)jobs;
  /* A hair less, or rounding makes a minute more out of a whole number of them. */
  job->minutes = (int64_t)ceil((job->count == 1 ? fmin(run_s, limit_s) : limit_s) / 60 - 1e-6);
  if (job->minutes < 10) /* starting takes a while too */
    job->minutes = 10;
  if (!point->timed)
    gd_strbuf_append(point->notes,
                     "this point was planned and not measured: the job's time is a guess\n");
  else if (jobs > (double)most_jobs)
    gd_strbuf_printf(point->notes,
                     "the run takes %.0f jobs; the array has %" PRId64
                     ", submit it again after them\n",
                     jobs, most_jobs);
}

static enum gd_status plan_job(const struct gd_export_point *point, struct job *job,
                               struct gd_error *err) {
  const struct gd_trial *trial = point->trial;
  int64_t cpus = GD_EXPORT_CPUS;
  job->nodes = trial->nodes > 0 ? trial->nodes : 1;
  if (point->ranks % job->nodes != 0)
    return gd_fail(err, GD_UNSUPPORTED,
                   "%" PRId64 " ranks do not divide among %" PRId64
                   " nodes, and torchrun starts as many on each; export a trial of another --ranks",
                   point->ranks, job->nodes);
  job->per_node = point->ranks / job->nodes;
  if (point->cpu && trial->threads > 0)
    cpus = trial->threads;
  job->cpus = cpus * job->per_node;
  job->mem_gib = rank_gib(point) * job->per_node;
  plan_time(point, job);
  return GD_OK;
}

static void put_head(const struct gd_export_point *point, struct gd_strbuf *out) {
  const struct gd_trial *trial = point->trial;
  const struct gd_target *target = point->from->target;
  char device[128], days[96];
  gd_strbuf_printf(out, "#!/bin/bash\n# %s, %s, on %" PRId64 " x %s", point->name, trial->method,
                   point->ranks, gd_json_excerpt(device, sizeof device, trial->device));
  if (target && target->network)
    gd_strbuf_printf(out, ", %d nodes joined by %s", target->nodes,
                     gd_json_excerpt(days, sizeof days, target->network->name));
  if (point->measured)
    gd_strbuf_printf(out, ": %.3g days as gpudays measured it", trial->days);
  else if (point->timed)
    gd_strbuf_printf(out, ": %s as gpudays predicts it",
                     gd_export_say_days(point, days, sizeof days));
  gd_strbuf_append(out,
                   ".\n"
                   "# sbatch [OPTION...] THIS_FILE train.py [ARGUMENT...]\n"
                   "# The program gets its arguments and then the file of settings; started again, "
                   "it has to go on\n"
                   "# from its last checkpoint. Options of sbatch (--partition, --account) stand "
                   "above those here.\n");
}

static void put_resources(const struct gd_export_point *point, const struct job *job,
                          struct gd_strbuf *out) {
  gd_strbuf_printf(out,
                   "#SBATCH --job-name=%s\n"
                   "#SBATCH --nodes=%" PRId64 "\n"
                   "#SBATCH --ntasks=%" PRId64 "\n"
                   "#SBATCH --ntasks-per-node=1\n"
                   "#SBATCH --cpus-per-task=%" PRId64 "\n",
                   point->name, job->nodes, job->nodes, job->cpus);
  if (!point->cpu)
    gd_strbuf_printf(out, "#SBATCH --gpus-per-node=%" PRId64 "\n", job->per_node);
  gd_strbuf_printf(out,
                   "#SBATCH --mem=%" PRId64 "G\n"
                   "#SBATCH --time=%" PRId64 "-%02" PRId64 ":%02" PRId64 ":00\n",
                   job->mem_gib, job->minutes / 1440, job->minutes / 60 % 24, job->minutes % 60);
  if (job->count > 1)
    gd_strbuf_printf(out, "#SBATCH --array=1-%" PRId64 "%%1\n", job->count);
  gd_strbuf_printf(out,
                   "#SBATCH --requeue\n"
                   "#SBATCH --open-mode=append\n"
                   "#SBATCH --output=%%x-%s.log\n",
                   job->count > 1 ? "%A_%a" : "%j");
}

/* Whether the text means nothing but itself between the double quotes of a shell. */
static bool is_plain_path(const char *text) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              " ._/+-";
  return text && text[0] && text[strspn(text, plain)] == '\0';
}

static void put_program(const struct gd_export_point *point, const struct job *job,
                        struct gd_strbuf *out) {
  const char *argument = point->from->argument, *options = point->from->options;
  gd_strbuf_printf(out,
                   "\nset -euo pipefail\n"
                   "settings=${SETTINGS:-%s.hf.json}\n"
                   "finished=%s.finished\n"
                   "if [[ $# == 0 ]]; then\n"
                   "  echo \"name the program: sbatch THIS_FILE train.py [ARGUMENT...]\" >&2\n"
                   "  exit 2\n"
                   "fi\n"
                   "if [[ ! -r $settings ]]; then\n"
                   "  echo \"$settings is missing: gpudays export %s%s --format hf -o $settings\" "
                   ">&2\n"
                   "  exit 2\n"
                   "fi\n",
                   point->name, point->name, is_plain_path(argument) ? argument : "MODEL",
                   options && is_plain_path(options) ? options : "");
  gd_strbuf_printf(out,
                   "if [[ -e $finished ]]; then\n"
                   "  echo \"the run has ended: $finished is there\"\n"
                   "  exit 0\n"
                   "fi\n"
                   "\n"
                   "export OMP_NUM_THREADS=%" PRId64 "\n"
                   "mapfile -t hosts < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n"
                   "srun --kill-on-bad-exit=1 --cpus-per-task=%" PRId64 " \\\n"
                   "  torchrun --nnodes=%" PRId64 " --nproc-per-node=%" PRId64 " \\\n"
                   "  --rdzv-backend=c10d --rdzv-id=\"$SLURM_JOB_ID\" \\\n"
                   "  --rdzv-endpoint=\"${hosts[0]}:$((20000 + SLURM_JOB_ID %% 10000))\" \\\n"
                   "  \"$@\" \"$settings\"\n"
                   "touch \"$finished\"\n",
                   job->cpus / job->per_node, job->cpus, job->nodes, job->per_node);
}

enum gd_status gd_export_sbatch(const struct gd_export_point *point, struct gd_strbuf *out,
                                struct gd_error *err) {
  struct job job = {0};
  GD_TRY(plan_job(point, &job, err));
  put_head(point, out);
  put_resources(point, &job, out);
  put_program(point, &job, out);
  gd_strbuf_printf(point->notes,
                   "the job reads %s.hf.json where it is submitted, which --format hf -o "
                   "%s.hf.json writes, and needs a program that resumes from its checkpoints\n",
                   point->name, point->name);
  return GD_OK;
}
