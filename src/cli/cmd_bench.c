/*
 * `gpudays bench MODEL...`: training measured here, by a search over models and methods. One trial
 * is answered by a few lines that begin with the answer, several by a table, the winner, and why
 * the others lost.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/cpus.h"
#include "base/switches.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/predicting.h"
#include "cli/progress.h"
#include "cli/show_search.h"
#include "cli/show_trial.h"
#include "cli/summary.h"
#include "comm/comm.h"
#include "comm/mpirun.h"
#include "search/jobs.h"
#include "search/search.h"

/* --- progress ------------------------------------------------------------------------------ */

struct watching {
  const struct gd_cli *cli;
  struct gd_progress progress;
  const char *reason; /* of the last trial that was not good; NULL: none */
};

static void set_label(struct watching *watching, const struct gd_point *point, int number, int of) {
  struct gd_progress *progress = &watching->progress;
  if (!point)
    snprintf(progress->label, sizeof progress->label, "%d job%s", of, of == 1 ? "" : "s");
  else if (of > 1)
    snprintf(progress->label, sizeof progress->label, "%d of %d, %.64s, %.64s", number, of,
             point->model->name, point->trial.method);
  else
    snprintf(progress->label, sizeof progress->label, "%.128s", point->model->name);
}

static void show_progress(void *user, const struct gd_point *point, int number, int of,
                          const char *what, double done, double eta_s) {
  struct watching *watching = user;
  set_label(watching, point, number, of);
  gd_progress_report(&watching->progress, what, done, eta_s);
}

/* The live table: a line for each finished trial, above the progress line. */
static void show_finished(void *user, const struct gd_point *point) {
  struct watching *watching = user;
  const struct gd_trial *trial = &point->trial;
  struct gd_show_duration days;
  char memory[GD_SHOW_TEXT];
  bool ok = trial->status == GD_TRIAL_OK, colour = watching->cli->colour;
  gd_progress_clear(&watching->progress);
  char model[64];
  fprintf(stderr, "  %-16s  %-30s  ", gd_json_excerpt(model, sizeof model, trial->model),
          trial->method);
  if (ok) {
    bool predicted = point->source == GD_SEARCH_PREDICTED;
    gd_show_duration(&days, trial->days, trial->days_low, trial->days_high);
    fprintf(stderr, "%s%s%s  (%s: %s)  %s\n", colour ? "\033[32m" : "", days.value,
            colour ? "\033[0m" : "", predicted ? "predicted" : "95 %", days.interval,
            gd_format_bytes(memory, sizeof memory, trial->peak_bytes));
  } else {
    bool again = watching->reason && strcmp(watching->reason, trial->reason) == 0;
    fprintf(stderr, "%s%s%s  %.160s\n", colour ? "\033[31m" : "",
            gd_trial_status_name(trial->status), colour ? "\033[0m" : "",
            again ? "for the same reason" : trial->reason);
    watching->reason = trial->reason;
  }
}

/* --- all of it ----------------------------------------------------------------------------- */

/* What became of jobs is said in any case: nobody sees them end. */
static void say_jobs(const struct gd_search *search) {
  static const char on[] = "the same command goes on";
  if (search->n_cancelled < 0)
    fprintf(stderr, "gpudays: interrupted; scancel failed, so its jobs are still there: "
                    "the same command waits for them, 'squeue --me' lists them\n");
  else if (search->stop_signal == SIGHUP)
    fprintf(stderr, "gpudays: interrupted; its jobs stay with SLURM, and %s with them\n", on);
  else
    fprintf(stderr, "gpudays: interrupted with %d of %d trials to go; %d job%s cancelled; %s\n",
            search->n_pending, search->count, search->n_cancelled,
            search->n_cancelled == 1 ? " was" : "s were", on);
}

/* Ctrl-C and its like: the trial is gone, and so are we, in the way the shell expects. */
static void leave_by_signal(const struct gd_cli *cli, const struct gd_search *search) {
  if (search->slurm_config)
    say_jobs(search);
  else if (cli->progress)
    fprintf(stderr, "gpudays: interrupted with %d of %d trials to go; the same command goes on\n",
            search->n_pending, search->count);
  signal(search->stop_signal, SIG_DFL);
  raise(search->stop_signal);
}

/* With --slurm: what a rank has is what its job asks for, and not what this machine has. */
static enum gd_status prepare_jobs(struct gd_cli *cli, struct gd_search *search,
                                   struct gd_predicting *predicting, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  const struct gd_gpu *gpu = options->gpu ? predicting->target.gpu : NULL;
  struct gd_slurm_config *config = gd_arena_alloc(&cli->arena, 1, sizeof *config);
  if (!config)
    return gd_nomem(err, "before the first job");
  GD_TRY(gd_slurm_config_load(
      &(struct gd_slurm_asked){.path = options->slurm_config,
                               .section = options->slurm_device,
                               .backend = options->gpu ? NULL : options->backend,
                               .gpu = gpu ? gpu->name : NULL},
      config, err));
  struct gd_job_place place = {.gpu = options->gpu,
                               .nodes = options->nodes,
                               .threads = options->threads,
                               .device_bytes = options->device_memory_bytes,
                               .host_bytes = options->host_memory_bytes};
  gd_job_place_complete(config, &place);
  options->backend = config->backend;
  if (place.gpu && !gpu) {
    options->gpu = place.gpu;
    options->count = options->ranks > 1 ? options->ranks : 1;
    options->nodes = place.nodes;
    GD_TRY(gd_predicting_open(predicting, cli, err));
  }
  options->threads = place.threads;
  options->device_memory_bytes = place.device_bytes;
  options->host_memory_bytes = place.host_bytes;
  search->any_gpu = place.any_gpu;
  search->slurm_config = config;
  search->slurm_folder = options->slurm_dir;
  return GD_OK;
}

static enum gd_status run_search(struct gd_cli *cli, struct gd_search *search,
                                 struct gd_error *err) {
  struct watching watching = {.cli = cli, .progress = {.on = cli->progress}};
  struct gd_cli_options *options = &cli->options;
  char mpirun[4096];
  bool stores = !search->in_job && !options->no_store && !options->without && !options->simulate;
  if (options->ranks > 1 && !search->in_job && !options->simulate && !options->slurm)
    GD_TRY(gd_mpirun_find(mpirun, sizeof mpirun, err));
  search->fresh = options->fresh;
  search->retry_failed = options->retry_failed;
  search->simulate = options->simulate;
  search->fast = options->fast;
  search->time_limit_s = options->time_limit;
  search->trial_timeout_s = options->trial_timeout;
  search->rank_timeout_s = options->rank_timeout;
  search->user = &watching;
  search->progress = cli->progress ? show_progress : NULL;
  search->finished = cli->progress && search->count > 1 ? show_finished : NULL;
  enum gd_status status = stores ? gd_store_open(options->store, &search->store, err) : GD_OK;
  if (status == GD_OK)
    status = gd_search_run(search, err);
  gd_store_close(search->store);
  search->store = NULL;
  search->user = NULL;
  gd_progress_clear(&watching.progress);
  if (search->stop_signal)
    leave_by_signal(cli, search);
  return status;
}

/* In short: the summary has the reason with its parts. */
static enum gd_status does_not_fit(const struct gd_trial *trial, struct gd_error *err) {
  char needed[GD_SHOW_TEXT], allowed[GD_SHOW_TEXT];
  struct gd_trial_need need = gd_trial_need(trial);
  return gd_fail(err, need.device ? GD_NOMEM_DEVICE : GD_NOMEM_HOST,
                 "%s does not fit: it needs %s of %s memory and has %s", trial->model,
                 gd_format_bytes(needed, sizeof needed, need.bytes),
                 need.device ? "device" : "host",
                 gd_format_bytes(allowed, sizeof allowed, need.limit_bytes));
}

static enum gd_status show_one(struct gd_cli *cli, const struct gd_search *search,
                               const struct gd_predicting *predicting, struct gd_error *err) {
  const struct gd_point *only = &search->points[0];
  GD_TRY(gd_summary_append(cli, predicting, only, false, err));
  if (search->best_alone && only->trial.status != GD_TRIAL_INFEASIBLE)
    gd_show_paragraph(&cli->out, 2,
                      "note: the best method by prediction; --methods naive,free-lunch compares, "
                      "--methods all measures all");
  return GD_OK;
}

static enum gd_status show_search(struct gd_cli *cli, const struct gd_search *search,
                                  const struct gd_predicting *predicting, struct gd_error *err) {
  const struct gd_point *only = &search->points[0];
  bool people = !cli->options.json && !cli->options.csv;
  if (search->count == 1 && only->source == GD_SEARCH_RUN && only->status != GD_OK)
    return gd_fail(err, only->status, "%s", only->trial.reason);
  if (!people)
    GD_TRY(gd_search_objects(cli, search, err));
  else if (search->count == 1 && only->source != GD_SEARCH_PENDING)
    GD_TRY(show_one(cli, search, predicting, err));
  else
    GD_TRY(gd_search_table(cli, predicting, search, err));
  if (people && search->count == 1 && only->trial.status == GD_TRIAL_INFEASIBLE)
    return does_not_fit(&only->trial, err);
  for (int i = 0; i < search->count && people; i++)
    if (search->points[i].trial.n_profile > 0)
      GD_TRY(gd_show_profile(cli, &search->points[i].trial, err));
  return gd_search_verdict(search, err);
}

/* Kernels that were compiled for one process alone cost their time again in the next trial, and
   files that others could have written cost it now. */
static void note_cache(struct gd_cli *cli, const struct gd_search *search, const char *untrusted) {
  char problem[1024];
  if (!gd_search_has_compiled(search))
    return;
  if (gd_cache_problem(gd_backend_is_gpu(cli->options.backend) ? "cuda" : "kernels", problem,
                       sizeof problem))
    gd_strbuf_printf(&cli->notes, "%s\n", problem);
  if (untrusted)
    gd_strbuf_printf(&cli->notes, "%s\n", untrusted);
}

/* What the store had of a point and could not be read: it must not be replaced without a word. */
static void note_damage(struct gd_cli *cli, const struct gd_search *search) {
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *point = &search->points[i];
    if (point->damage[0])
      gd_strbuf_printf(&cli->notes, "%s, %s: %s; %s\n", point->trial.model, point->trial.method,
                       point->damage,
                       point->source == GD_SEARCH_PENDING ? "it is to be measured again"
                       : point->source == GD_SEARCH_PLAN  ? "it was planned again"
                                                          : "it was measured again");
  }
}

/* What was measured is lost with this output, though the user did not ask for that. */
static void note_unstored(struct gd_cli *cli, const struct gd_search *search) {
  const struct gd_cli_options *options = &cli->options;
  if (search->n_run == 0 || options->no_store || cli->rank > 0 ||
      !(search->in_job || options->without))
    return;
  gd_strbuf_printf(&cli->notes, "nothing is stored %s\n",
                   options->without
                       ? "of trials with --without: they answer for no method"
                       : "inside of one's own mpirun or srun; 'gpudays bench --ranks N' stores");
}

/* Results of other builds, which this one did not order. */
static void note_found(struct gd_cli *cli, const struct gd_search *search) {
  if (search->n_found > 0)
    gd_strbuf_printf(
        &cli->notes,
        "%d trial%s of another build of gpudays %s found next to the store and %s stored "
        "as that build's; this one measures its own\n",
        search->n_found, search->n_found == 1 ? "" : "s", search->n_found == 1 ? "was" : "were",
        search->n_found == 1 ? "is" : "are");
}

/* What there is to search, before anything of it is planned. */
static enum gd_status ask(struct gd_cli *cli, struct gd_predicting *predicting, bool in_job,
                          struct gd_points_asked *asked, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  if (options->methods && strstr(options->methods, " without "))
    return gd_fail(
        err, GD_BAD_INPUT,
        "--methods of bench takes no \"without\"; use --without PASS, whose trials are not "
        "stored");
  /* Ranks that others have started measure what they are told, and plan apart from each other. */
  const char *usual = in_job ? "free-lunch" : "all";
  GD_TRY(gd_points_of_cli(cli, usual, asked, err)); /* a wrong name is said before ranks meet */
  if (in_job) {
    GD_TRY(gd_launch_join(cli, err));
    GD_TRY(gd_points_agree(asked, cli->options.simulate, cli->options.fast, cli->comm, err));
    return gd_points_of_cli(cli, usual, asked, err); /* `all` depends on how many ranks there are */
  }
  if (!options->gpu) /* the hardware of --gpu was looked up before: it counts the ranks */
    GD_TRY(gd_predicting_open(predicting, cli, err));
  gd_cli_trial_options(cli, &(struct gd_method){0}, &asked->options);
  if (predicting->has_target)
    asked->options.nodes = predicting->target.nodes; /* as many as its machines make of --count */
  return GD_OK;
}

static enum gd_status bench(struct gd_cli *cli, struct gd_predicting *predicting, bool in_job,
                            struct gd_points *points, struct gd_error *err) {
  struct gd_search search = {.in_job = in_job, .best_alone = !in_job && !cli->options.methods};
  struct gd_points_asked asked;
  char text[1024];
  if (cli->options.slurm && in_job)
    return gd_fail(err, GD_BAD_INPUT,
                   "--slurm submits jobs, and this process is a rank of one; leave out --slurm");
  if (cli->options.slurm)
    GD_TRY(prepare_jobs(cli, &search, predicting, err));
  cli->options.backend = gd_cli_backend(cli);
  GD_TRY(ask(cli, predicting, in_job, &asked, err));
  const struct gd_point_machine machine = gd_predicting_machine(predicting);
  GD_TRY(gd_search_make(&search, &asked, &machine, points, err));
  /* Asked before, as what is made anew is ours. */
  const char *untrusted = gd_cache_untrusted(
      gd_backend_is_gpu(cli->options.backend) ? "cuda" : "kernels", text, sizeof text);
  GD_TRY(run_search(cli, &search, err));
  note_cache(cli, &search, untrusted);
  note_damage(cli, &search);
  note_found(cli, &search);
  note_unstored(cli, &search);
  return show_search(cli, &search, predicting, err);
}

enum gd_status gd_cmd_bench(struct gd_cli *cli, struct gd_error *err) {
  struct gd_predicting predicting = {0};
  struct gd_points points = {0};
  int rank, size;
  bool in_job = gd_comm_in_job(&rank, &size);
  if (cli->options.gpu && !in_job)
    GD_TRY(gd_predicting_open(&predicting, cli, err));
  enum gd_status status = bench(cli, &predicting, in_job, &points, err);
  gd_points_free(&points);
  gd_predicting_close(&predicting);
  return status;
}
