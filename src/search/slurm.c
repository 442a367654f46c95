/*
 * Submission, tracking and collection of jobs; see slurm.h. squeue is asked once a second at first
 * and every ten later on; results are looked for in between, which costs the cluster nothing.
 */
#define _GNU_SOURCE
#include "search/slurm.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/process.h"
#include "base/scratch.h"
#include "search/slurm_int.h"

#define S_NS INT64_C(1000000000)

enum {
  COMMAND_S = 120, /* for sbatch and its like: a busy controller takes its time */
  LOOK_MS = 250,   /* between looks at the files */
  ASK_MOST_S = 10, /* between questions to squeue */
  GRACE_S = 10,    /* for files of another machine to show up here */
  REFUSED_S = 120, /* that a job which has ended may still count against a limit */
  SILENCE_S = 900, /* squeue fails for so long: something is wrong for good */
};

enum state { WAITING, PENDING, RUNNING, ENDED, FORGOTTEN };

struct gd_slurm_job {
  int tag;
  enum state state;
  struct gd_child_order order;
  char key[33];
  char folder[PATH_MAX - 64];
  struct gd_scratch scratch; /* the folder, where it is ours */
  char id[24];               /* empty: there is an answer without one */
  char how[32];              /* what SLURM calls its end, or "GONE"; empty: it has not ended */
  char why[64];              /* what it waits for */
  int64_t ended_ns;          /* when `how` was learnt */
  int64_t running_ns;
  int64_t cancel_ns; /* not before then, as it has just failed */
  int64_t taken_ns;  /* not before then, as another submitter holds its folder */
  bool hung;
  bool known; /* another submitter has answered it */
};

struct gd_slurm {
  struct gd_slurm_options options;
  gd_slurm_known known; /* NULL: nobody is asked */
  void *user;
  char folder[PATH_MAX - 128];
  char program[PATH_MAX];
  struct gd_slurm_job *jobs;
  uint32_t count, capacity;
  bool held;                    /* the last submission was refused: wait until a job has ended */
  int64_t refused_ns, ended_ns; /* when that was; when the last job ended, 0: never */
  int64_t ask_ns, interval_ns, heard_ns;
  struct gd_signals signals;
  int stop_signal;
};

static bool is_active(const struct gd_slurm_job *job) {
  return job->state == PENDING || job->state == RUNNING;
}

/* --- files --------------------------------------------------------------------------------- */

static const char *path_in(const struct gd_slurm_job *job, const char *name, char path[PATH_MAX]) {
  snprintf(path, PATH_MAX, "%s/%s", job->folder, name);
  return path;
}

static enum gd_status write_text(const char *path, const char *text, struct gd_error *err) {
  return gd_file_write(path, text, strlen(text), err);
}

/* The first line of a file; false when there is none. */
static bool read_line(const char *path, char *line, size_t size) {
  FILE *file = fopen(path, "re");
  bool found = file && fgets(line, (int)size, file);
  if (file)
    fclose(file);
  if (found)
    line[strcspn(line, "\n")] = '\0';
  return found;
}

/* Listing the folder makes a network file system look again. */
static bool has_file(const struct gd_slurm_job *job, const char *name) {
  char path[PATH_MAX];
  DIR *folder = opendir(job->folder);
  if (folder) {
    while (readdir(folder))
      ;
    closedir(folder);
  }
  return access(path_in(job, name, path), F_OK) == 0;
}

/* One submitter at a time. *ours false: it is another one's turn. */
static enum gd_status take_folder(const struct gd_slurm *slurm, struct gd_slurm_job *job,
                                  bool *ours, struct gd_error *err) {
  *ours = job->scratch.path[0] != '\0';
  return *ours ? GD_OK : gd_scratch_take(&job->scratch, slurm->folder, job->key, ours, err);
}

static void leave_folder(struct gd_slurm_job *job) {
  gd_scratch_leave(&job->scratch);
}

/* The job may still be about to write its last files: under another name it does not find it. */
void gd_slurm_forget(struct gd_slurm *slurm, struct gd_slurm_job *job) {
  char gone[PATH_MAX - 32];
  (void)slurm;
  snprintf(gone, sizeof gone, "%s.gone", job->folder);
  gd_scratch_remove_tree(gone); /* of a submitter that was killed here */
  const char *left = rename(job->folder, gone) == 0 ? gone : job->folder;
  gd_scratch_remove_tree(left);
  leave_folder(job);
  rmdir(left); /* NFS keeps a file that is open under another name, until it is closed */
  job->state = FORGOTTEN;
}

/* --- SLURM's commands ---------------------------------------------------------------------- */

void gd_slurm_complaint(const char *errors, char *text, size_t size) {
  size_t length = 0;
  text[0] = '\0';
  while (errors && *errors && length < size) {
    size_t end = strcspn(errors, "\n");
    const char *mark = memmem(errors, end, ": error: ", 9);
    const char *from = mark && mark - errors < 16 ? mark + 9 : errors;
    length += (size_t)snprintf(text + length, size - length, "%s%.*s", length ? "; " : "",
                               (int)(errors + end - from), from);
    errors += end + (errors[end] == '\n');
  }
  for (char *at = text; *at; at++)
    *at = (char)(iscntrl((unsigned char)*at) ? '?' : *at);
}

/* SLURM's commands without slurm.conf: src/common/read_config.c there. */
static bool has_no_cluster(const char *errors) {
  return errors && strstr(errors, "establish a configuration source");
}

enum gd_status gd_slurm_refusal(const char *errors, struct gd_error *err) {
  char why[256];
  gd_slurm_complaint(errors, why, sizeof why);
  if (has_no_cluster(errors))
    return gd_fail(err, GD_ENVIRONMENT,
                   "SLURM's commands are here, but they find no cluster: there is no slurm.conf, "
                   "nor a controller to get it from; run this on a login node of the cluster, or "
                   "leave out --slurm");
  return gd_fail(err, GD_ENVIRONMENT,
                 "sbatch refuses the job: %s; slurm.json (--slurm-config) says what a job asks for",
                 why[0] ? why : "it gives no reason");
}

enum gd_status gd_slurm_command(const char *const *arguments, struct gd_process_output *output,
                                struct gd_error *err) {
  struct gd_error own = {0};
  enum gd_status status = gd_process_run(arguments, COMMAND_S, output, &own);
  if (status == GD_UNSUPPORTED)
    return gd_fail(err, GD_ENVIRONMENT,
                   "--slurm needs SLURM's commands, and %s; run it where jobs are submitted, or "
                   "leave out --slurm",
                   own.text);
  return status == GD_OK ? GD_OK : gd_fail(err, status, "%s", own.text);
}

enum gd_status gd_slurm_find_by_name(const char *name, char id[GD_SLURM_ID], struct gd_error *err) {
  struct gd_process_output output;
  char option[96], user[48], why[256];
  snprintf(option, sizeof option, "--name=%s", name);
  snprintf(user, sizeof user, "--user=%lld", (long long)geteuid());
  const char *const arguments[] = {"squeue", "--noheader", "--format=%i", user, option, NULL};
  enum gd_status status = gd_slurm_command(arguments, &output, err);
  id[0] = '\0';
  if (status == GD_OK && output.code != 0) {
    gd_slurm_complaint(output.errors.text, why, sizeof why);
    status = has_no_cluster(output.errors.text)
                 ? gd_slurm_refusal(output.errors.text, err)
                 : gd_fail(err, GD_ENVIRONMENT, "squeue fails: %s", why);
  } else if (status == GD_OK && output.out.text) {
    size_t length = strspn(output.out.text, "0123456789");
    snprintf(id, 24, "%.*s", (int)(length < 23 ? length : 0), output.out.text);
  }
  gd_process_output_deinit(&output);
  return status;
}

static void name_job(const struct gd_slurm_job *job, char name[64]) {
  snprintf(name, 64, "gpudays-%s", job->key);
}

enum gd_status gd_slurm_is_queued(const char *key, bool *queued, struct gd_error *err) {
  char name[64], id[24];
  snprintf(name, sizeof name, "gpudays-%s", key);
  GD_TRY(gd_slurm_find_by_name(name, id, err));
  *queued = id[0] != '\0';
  return GD_OK;
}

const char *gd_slurm_folder(const struct gd_slurm *slurm) {
  return slurm->folder;
}

void gd_slurm_folder_of_store(const char *store_path, char *folder, size_t size) {
  const char *slash = strrchr(store_path, '/');
  snprintf(folder, size, "%.*sslurm", slash ? (int)(slash - store_path) + 1 : 0, store_path);
}

/* --- submitting ---------------------------------------------------------------------------- */

#define SUBMITTING "submitting"

static void adopt(struct gd_slurm *slurm, struct gd_slurm_job *job, const char *id) {
  snprintf(job->id, sizeof job->id, "%s", id);
  job->state = PENDING;
  slurm->ask_ns = 0;
}

/* What a submitter before us has left: its job, or its answer. */
static enum gd_status find_job(struct gd_slurm *slurm, struct gd_slurm_job *job, bool *found,
                               struct gd_error *err) {
  char path[PATH_MAX], line[64], name[64], id[24] = "";
  if (has_file(job, "result.json")) {
    adopt(slurm, job, "");
  } else if (read_line(path_in(job, "job", path), line, sizeof line)) {
    if (strcmp(line, SUBMITTING) == 0) {
      name_job(job, name);
      GD_TRY(gd_slurm_find_by_name(name, id, err));
    } else if (line[0] && line[strspn(line, "0123456789")] == '\0' && strlen(line) < sizeof id) {
      snprintf(id, sizeof id, "%s", line);
    }
    if (id[0])
      adopt(slurm, job, id);
  }
  *found = job->state == PENDING;
  return GD_OK;
}

static enum gd_status write_files(struct gd_slurm *slurm, const struct gd_slurm_job *job,
                                  struct gd_error *err) {
  char name[64], order[PATH_MAX], result[PATH_MAX], code[PATH_MAX], path[PATH_MAX];
  struct gd_strbuf text = {0};
  name_job(job, name);
  struct gd_slurm_script script = {.name = name,
                                   .program = slurm->program,
                                   .order = path_in(job, "order.json", order),
                                   .result = path_in(job, "result.json", result),
                                   .code = path_in(job, "code", code),
                                   .ranks = slurm->options.ranks,
                                   .nodes = slurm->options.nodes,
                                   .gpus = slurm->options.gpus,
                                   .timeout_s = slurm->options.timeout_s,
                                   .rank_timeout_s = job->order.rank_timeout_s};
  unlink(code); /* of a job before */
  unlink(path_in(job, "log", path));
  GD_TRY(gd_child_write_order(order, &job->order, false, err));
  gd_slurm_script_print(slurm->options.config, &script, &text);
  enum gd_status status = text.failed ? gd_nomem(err, "while writing a batch script")
                                      : write_text(path_in(job, "job.sh", path), text.text, err);
  gd_strbuf_deinit(&text);
  return status == GD_OK ? write_text(path_in(job, "job", path), SUBMITTING "\n", err) : status;
}

void gd_slurm_output_option(const char *folder, const char *log, char option[2 * PATH_MAX]) {
  size_t length = (size_t)snprintf(option, 2 * PATH_MAX, "--output=");
  for (const char *at = folder; *at && length + 32 < 2 * PATH_MAX; at++) {
    if (*at == '%')
      option[length++] = '%';
    option[length++] = *at;
  }
  snprintf(option + length, 32, "/%s", log);
}

bool gd_slurm_read_id(const struct gd_process_output *output, char id[GD_SLURM_ID]) {
  size_t digits = output->out.text ? strspn(output->out.text, "0123456789") : 0;
  if (output->code != 0 || digits == 0 || digits >= GD_SLURM_ID)
    return false;
  snprintf(id, GD_SLURM_ID, "%.*s", (int)digits, output->out.text);
  return true;
}

static bool has_active(const struct gd_slurm *slurm) {
  for (uint32_t i = 0; i < slurm->count; i++)
    if (is_active(&slurm->jobs[i]))
      return true;
  return false;
}

/* A submission that failed may have arrived all the same. */
static enum gd_status take_refusal(struct gd_slurm *slurm, struct gd_slurm_job *job,
                                   const char *errors, struct gd_error *err) {
  char path[PATH_MAX], name[64], id[24] = "";
  name_job(job, name);
  if (gd_slurm_find_by_name(name, id, NULL) == GD_OK && id[0]) {
    adopt(slurm, job, id);
    return GD_OK;
  }
  unlink(path_in(job, "job", path));
  slurm->refused_ns = gd_clock_ns();
  slurm->held = has_active(slurm) ||
                (slurm->ended_ns && slurm->refused_ns - slurm->ended_ns < REFUSED_S * S_NS);
  if (slurm->held) {
    leave_folder(job);
    return GD_OK;
  }
  gd_slurm_forget(slurm, job);
  return gd_slurm_refusal(errors, err);
}

/* Puts a job into the queue, or finds it there; *moved false: its folder is another submitter's. */
static enum gd_status submit(struct gd_slurm *slurm, struct gd_slurm_job *job, bool *moved,
                             struct gd_error *err) {
  char path[PATH_MAX], output_path[2 * PATH_MAX], script[PATH_MAX], line[GD_SLURM_ID];
  struct gd_process_output output;
  bool found;
  GD_TRY(take_folder(slurm, job, moved, err));
  if (!*moved) {
    job->taken_ns = gd_clock_ns() + S_NS;
    return GD_OK;
  }
  if (slurm->known)
    GD_TRY(slurm->known(slurm->user, job->tag, &job->known, err));
  if (job->known) {
    job->state = PENDING; /* and has ended */
    return GD_OK;
  }
  GD_TRY(find_job(slurm, job, &found, err));
  if (found)
    return GD_OK;
  GD_TRY(write_files(slurm, job, err));
  gd_slurm_output_option(job->folder, "log", output_path);
  const char *const arguments[] = {"sbatch", "--parsable", output_path,
                                   path_in(job, "job.sh", script), NULL};
  enum gd_status status = gd_slurm_command(arguments, &output, err);
  if (status == GD_OK && !gd_slurm_read_id(&output, line)) {
    status = take_refusal(slurm, job, output.errors.text, err);
  } else if (status == GD_OK) {
    adopt(slurm, job, line);
    status = write_text(path_in(job, "job", path), line, err);
  }
  gd_process_output_deinit(&output);
  return status;
}

/* --- tracking ------------------------------------------------------------------------------ */

static bool is_end(const char *state) {
  static const char *const ends[] = {"COMPLETED",     "FAILED",    "CANCELLED",   "TIMEOUT",
                                     "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED",   "BOOT_FAIL",
                                     "DEADLINE",      "REVOKED",   "SPECIAL_EXIT"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (strcmp(state, ends[i]) == 0)
      return true;
  return false;
}

static void set_state(struct gd_slurm *slurm, struct gd_slurm_job *job, const char *state,
                      const char *why) {
  int64_t now = gd_clock_ns();
  bool running = strcmp(state, "RUNNING") == 0 || strcmp(state, "COMPLETING") == 0;
  snprintf(job->why, sizeof job->why, "%s", strcmp(why, "None") == 0 ? "" : why);
  if (running && job->state == PENDING) {
    job->running_ns = now;
    slurm->interval_ns = S_NS;
    job->state = RUNNING;
  }
  if ((is_end(state) || strcmp(state, "GONE") == 0) && !job->how[0]) {
    snprintf(job->how, sizeof job->how, "%s", state);
    job->ended_ns = now;
  }
}

/* Lines "12|RUNNING|None". Jobs that are not among them are over and forgotten by SLURM. */
static void read_states(struct gd_slurm *slurm, char *text) {
  for (uint32_t i = 0; i < slurm->count; i++) {
    struct gd_slurm_job *job = &slurm->jobs[i];
    bool found = false;
    if (!is_active(job) || !job->id[0])
      continue;
    size_t length = strlen(job->id);
    for (char *line = text; line && *line && !found;) {
      size_t end = strcspn(line, "\n");
      if (strncmp(line, job->id, length) == 0 && line[length] == '|') {
        char state[32] = "", why[64] = "";
        found = sscanf(line + length, "|%31[^|\n]|%63[^\n]", state, why) >= 1;
        if (found)
          set_state(slurm, job, state, why);
      }
      line += end + (line[end] == '\n');
    }
    if (!found)
      set_state(slurm, job, "GONE", "");
  }
}

static enum gd_status ask(struct gd_slurm *slurm, struct gd_error *err) {
  struct gd_strbuf list = {0};
  struct gd_process_output output;
  char why[256];
  int64_t now = gd_clock_ns();
  for (uint32_t i = 0; i < slurm->count; i++)
    if (is_active(&slurm->jobs[i]) && slurm->jobs[i].id[0])
      gd_strbuf_printf(&list, "%s%s", list.length ? "," : "--jobs=", slurm->jobs[i].id);
  slurm->ask_ns = now + slurm->interval_ns;
  slurm->interval_ns = slurm->interval_ns * 5 / 4;
  if (slurm->interval_ns > ASK_MOST_S * S_NS)
    slurm->interval_ns = ASK_MOST_S * S_NS;
  if (list.failed || !list.length) {
    enum gd_status none = list.failed ? gd_nomem(err, "while listing jobs") : GD_OK;
    gd_strbuf_deinit(&list);
    return none;
  }
  const char *const arguments[] = {"squeue",  "--noheader", "--states=all", "--format=%i|%T|%r",
                                   list.text, NULL};
  struct gd_error own = {0};
  enum gd_status status = gd_slurm_command(arguments, &output, &own);
  gd_slurm_complaint(output.errors.text, why, sizeof why);
  /* Of several jobs it leaves out those it does not know; of one it says so. */
  if (status == GD_OK && (output.code == 0 || strstr(why, "Invalid job id"))) {
    read_states(slurm, output.out.text);
    slurm->heard_ns = now;
  } else if (now - slurm->heard_ns > SILENCE_S * S_NS) {
    status = gd_fail(err, GD_ENVIRONMENT,
                     "squeue has failed for %d minutes: %s; the jobs stay, and the same command "
                     "goes on with them",
                     SILENCE_S / 60, status == GD_OK ? why : own.text);
  } else {
    status = GD_OK; /* a controller that starts anew, or is busy */
  }
  gd_process_output_deinit(&output);
  gd_strbuf_deinit(&list);
  return status;
}

/* A controller that does not take it is asked again, but not at once. */
static void cancel_hung(struct gd_slurm *slurm, struct gd_slurm_job *job) {
  struct gd_process_output output;
  int64_t now = gd_clock_ns();
  double running_s = 1e-9 * (double)(now - job->running_ns);
  if (job->state != RUNNING || job->hung || job->how[0] || now < job->cancel_ns ||
      running_s < slurm->options.timeout_s)
    return;
  const char *const arguments[] = {"scancel", job->id, NULL};
  job->hung = gd_slurm_command(arguments, &output, NULL) == GD_OK && output.code == 0;
  job->cancel_ns = now + ASK_MOST_S * S_NS;
  slurm->interval_ns = S_NS;
  slurm->ask_ns = 0;
  gd_process_output_deinit(&output);
}

/* Files of another machine may be late: what should be there is waited for. */
static bool has_ended(const struct gd_slurm_job *job) {
  if (job->known || has_file(job, "result.json"))
    return true;
  if (!job->how[0])
    return job->hung; /* SLURM may take its time to end it: the answer is known */
  bool late = gd_clock_ns() - job->ended_ns > GRACE_S * S_NS;
  if (strcmp(job->how, "COMPLETED") == 0)
    return late;
  if (strcmp(job->how, "FAILED") == 0 || strcmp(job->how, "GONE") == 0)
    return late || has_file(job, "code");
  return true;
}

static void take_signals(struct gd_slurm *slurm) {
  int asked = gd_signals_asked(&slurm->signals);
  if (slurm->stop_signal == 0)
    slurm->stop_signal = asked;
}

enum gd_status gd_slurm_poll(struct gd_slurm *slurm, struct gd_slurm_job **ended,
                             struct gd_error *err) {
  *ended = NULL;
  take_signals(slurm);
  if (slurm->stop_signal)
    return GD_OK;
  if (!has_active(slurm) && gd_clock_ns() - slurm->refused_ns > 2 * S_NS)
    slurm->held = false;
  for (uint32_t i = 0; i < slurm->count && !slurm->held; i++) {
    bool moved = false;
    if (slurm->jobs[i].state == WAITING && gd_clock_ns() >= slurm->jobs[i].taken_ns) {
      GD_TRY(submit(slurm, &slurm->jobs[i], &moved, err));
      if (moved)
        return GD_OK;
    }
  }
  for (uint32_t i = 0; i < slurm->count; i++) {
    struct gd_slurm_job *job = &slurm->jobs[i];
    if (!is_active(job))
      continue;
    if (has_ended(job)) {
      job->state = ENDED;
      slurm->held = false;
      slurm->ended_ns = gd_clock_ns();
      slurm->interval_ns = S_NS;
      *ended = job;
      return GD_OK;
    }
    cancel_hung(slurm, job);
  }
  if (gd_clock_ns() >= slurm->ask_ns)
    return ask(slurm, err);
  poll(&(struct pollfd){.fd = slurm->signals.fd, .events = POLLIN}, 1, LOOK_MS);
  take_signals(slurm);
  return GD_OK;
}

/* --- what came of it ----------------------------------------------------------------------- */

struct last_words {
  struct gd_child_said said;
  char task[256]; /* the first thing that srun says of one */
  char srun[512]; /* what it says of itself */
};

/* Of what srun and the daemon of a step complain, one after the other. */
static void hear_srun(struct last_words *words, const char *line) {
  static const char *const starts[] = {"srun: error: ", "srun: fatal: ", "slurmstepd: error: "};
  char clean[256];
  size_t length = strlen(words->srun);
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
    const char *text = line + strlen(starts[i]);
    if (strncmp(line, starts[i], strlen(starts[i])) != 0 || strncmp(text, "*** ", 4) == 0)
      continue; /* "*** STEP 3.0 ON node1 CANCELLED ***" is how it ends all others */
    gd_json_excerpt(clean, sizeof clean, text + strspn(text, " "));
    if (strstr(text, ": task") && !words->task[0])
      snprintf(words->task, sizeof words->task, "%s", clean);
    else if (!strstr(text, ": task") && length + 1 < sizeof words->srun)
      snprintf(words->srun + length, sizeof words->srun - length, "%s%s", length ? "; " : "",
               clean);
  }
}

static void read_log(const struct gd_slurm_job *job, struct last_words *words) {
  char path[PATH_MAX], line[1100];
  FILE *file = fopen(path_in(job, "log", path), "re");
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = '\0';
    if (strncmp(line, "srun: ", 6) == 0 || strncmp(line, "slurmstepd: ", 12) == 0)
      hear_srun(words, line);
    else
      gd_child_hear(&words->said, line);
  }
  if (file)
    fclose(file);
}

/* "node1: task 0: Segmentation fault (core dumped)", "node1: task 0: Exited with exit code 3". */
static enum gd_status judge_task(const char *task, struct gd_error *err) {
  const char *exited = strstr(task, "exit code ");
  int code = exited ? (int)strtol(exited + strlen("exit code "), NULL, 10) : 0;
  bool stopped = strstr(task, ": Killed") || strstr(task, ": Terminated");
  return gd_fail(err,
                 stopped  ? GD_ENVIRONMENT
                 : exited ? gd_exit_status(code)
                          : GD_INTERNAL,
                 "a rank of it ended (%s), and the others were stopped%s", task,
                 stopped ? "; by a user, or because memory ran out" : "");
}

/*
 * How the program ended, by what the script wrote; a code above 128 is a signal. That of srun is
 * the highest of its ranks', and those that were stopped have one too: what it says of the first
 * counts.
 */
static enum gd_status judge_code(const struct last_words *words, int code, int ranks,
                                 struct gd_error *err) {
  char said[1024];
  bool own = words->said.sentence[0] != '\0';
  enum gd_status status = code <= 128                             ? gd_exit_status(code)
                          : gd_process_was_stopped_by(code - 128) ? GD_ENVIRONMENT
                                                                  : GD_INTERNAL;
  gd_json_excerpt(said, sizeof said, own ? words->said.sentence : words->said.other);
  if (!own && words->task[0] && ranks > 1)
    return judge_task(words->task, err);
  if (code == 128 + SIGKILL)
    return gd_fail(err, GD_ENVIRONMENT,
                   "its process was killed by signal 9 (Killed): by somebody, or for want of "
                   "memory");
  if (code > 128 && code < 128 + 65)
    return gd_fail(err, status, "its process ended by signal %d (%s)%s%.800s", code - 128,
                   strsignal(code - 128), said[0] ? ": " : "", said);
  if (own)
    return gd_fail(err, status, "%s", said);
  if (!words->task[0] && words->srun[0])
    return gd_fail(err, GD_ENVIRONMENT,
                   "srun could not start it: %s; \"mpi\" and \"extra\" in slurm.json say what is "
                   "asked of it",
                   words->srun);
  return gd_fail(err, status, "its process ended with exit code %d%s%.800s", code,
                 said[0] ? ": " : " and gave no reason", said);
}

static enum gd_status judge(const struct gd_slurm *slurm, const struct gd_slurm_job *job,
                            struct gd_error *err) {
  char path[PATH_MAX], text[64];
  struct last_words words = {0};
  int64_t code = 0;
  if (job->hung)
    return gd_fail(err, GD_ENVIRONMENT,
                   "it took longer than %s and was ended; --trial-timeout sets the limit",
                   gd_child_span(text, sizeof text, slurm->options.timeout_s));
  if (strcmp(job->how, "TIMEOUT") == 0)
    return gd_fail(err, GD_ENVIRONMENT,
                   "its job %s came to SLURM's time limit; raise \"time\" in slurm.json%s", job->id,
                   slurm->options.config->time[0] ? "" : ", or --trial-timeout");
  if (strcmp(job->how, "OUT_OF_MEMORY") == 0)
    return gd_fail(err, GD_ENVIRONMENT,
                   "its job %s ran out of memory, of which it had %s a rank; raise \"memory\" in "
                   "slurm.json, or lower --device-memory or --host-memory",
                   job->id,
                   gd_format_bytes(text, sizeof text, slurm->options.config->memory_bytes));
  if (strcmp(job->how, "CANCELLED") == 0)
    return gd_fail(err, GD_ENVIRONMENT, "its job %s was cancelled by somebody", job->id);
  read_log(job, &words);
  bool has_code =
      read_line(path_in(job, "code", path), text, sizeof text) && gd_parse_int(text, 0, 255, &code);
  if (has_code && code != 0)
    return judge_code(&words, (int)code, slurm->options.ranks, err);
  const char *said = words.said.sentence[0] ? words.said.sentence
                     : words.said.other[0]  ? words.said.other
                                            : words.srun;
  gd_json_excerpt(text, sizeof text, job->how);
  return gd_fail(err, GD_ENVIRONMENT, "its job %s ended (%s) without an answer%s%.600s%s", job->id,
                 text, said[0] ? ": " : "", said,
                 has_code || said[0] ? "" : "; is its folder (--slurm-dir) shared with the nodes?");
}

enum gd_status gd_slurm_collect(struct gd_slurm *slurm, const struct gd_slurm_job *job,
                                struct gd_trial *trial, struct gd_provenance *provenance) {
  char path[PATH_MAX];
  struct gd_error why = {0};
  struct gd_trial answer;
  enum gd_status status = access(path_in(job, "result.json", path), F_OK) == 0
                              ? gd_child_read_result(path, &answer, provenance, &why)
                              : judge(slurm, job, &why);
  if (status == GD_OK) {
    *trial = answer;
  } else {
    trial->status = GD_TRIAL_FAILED;
    snprintf(trial->reason, sizeof trial->reason, "%s", why.text);
  }
  return status;
}

/* --- all of it ----------------------------------------------------------------------------- */

static enum gd_status make_folder(struct gd_slurm *slurm, struct gd_error *err) {
  char whole[PATH_MAX];
  const char *folder = slurm->options.folder;
  if ((mkdir(folder, 0777) != 0 && errno != EEXIST) || !realpath(folder, whole))
    return gd_fail(err, GD_ENVIRONMENT,
                   "cannot make the folder %s for jobs: %s; name another by --slurm-dir", folder,
                   strerror(errno));
  if (strlen(whole) >= sizeof slurm->folder || access(whole, W_OK) != 0)
    return gd_fail(err, GD_ENVIRONMENT,
                   "the folder %s for jobs cannot be written to; name another by --slurm-dir",
                   folder);
  snprintf(slurm->folder, sizeof slurm->folder, "%.*s", (int)sizeof slurm->folder - 1, whole);
  return GD_OK;
}

/* That sbatch is there is found out before anything is announced. */
enum gd_status gd_slurm_check_commands(struct gd_error *err) {
  static const char *const names[] = {"sbatch", "squeue", "scancel"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct gd_process_output output;
    const char *const arguments[] = {names[i], "--version", NULL};
    enum gd_status status = gd_slurm_command(arguments, &output, err);
    gd_process_output_deinit(&output);
    GD_TRY(status);
  }
  return GD_OK;
}

enum gd_status gd_slurm_open(const struct gd_slurm_options *options, struct gd_slurm **slurm,
                             struct gd_error *err) {
  struct gd_slurm *opened = gd_mem_alloc(1, sizeof *opened);
  if (!opened)
    return gd_nomem(err, "before the first job");
  opened->options = *options;
  opened->interval_ns = S_NS;
  opened->heard_ns = gd_clock_ns();
  if (!gd_signals_open(&opened->signals)) {
    gd_mem_free(opened);
    return gd_fail(err, GD_ENVIRONMENT, "cannot wait for signals: %s", strerror(errno));
  }
  enum gd_status status = gd_slurm_check_commands(err);
  if (status == GD_OK)
    status = make_folder(opened, err);
  if (status == GD_OK)
    status = gd_process_self(opened->program, sizeof opened->program, err);
  if (status != GD_OK) {
    gd_slurm_close(opened);
    return status;
  }
  *slurm = opened;
  return GD_OK;
}

void gd_slurm_close(struct gd_slurm *slurm) {
  if (!slurm)
    return;
  for (uint32_t i = 0; i < slurm->count; i++)
    leave_folder(&slurm->jobs[i]);
  gd_signals_close(&slurm->signals);
  gd_mem_free(slurm->jobs);
  gd_mem_free(slurm);
}

enum gd_status gd_slurm_start(struct gd_slurm *slurm, const char *key,
                              const struct gd_child_order *order, int tag, struct gd_error *err) {
  if (!gd_vec_reserve((void **)&slurm->jobs, &slurm->capacity, slurm->count + 1,
                      sizeof *slurm->jobs))
    return gd_nomem(err, "before the first job");
  struct gd_slurm_job *job = &slurm->jobs[slurm->count++];
  *job = (struct gd_slurm_job){
      .tag = tag, .state = WAITING, .order = *order, .scratch = GD_SCRATCH_NONE};
  snprintf(job->key, sizeof job->key, "%s", key);
  snprintf(job->folder, sizeof job->folder, "%s/%s", slurm->folder, job->key);
  return GD_OK;
}

int gd_slurm_stop_signal(const struct gd_slurm *slurm) {
  return slurm->stop_signal;
}

int gd_slurm_tag(const struct gd_slurm_job *job) {
  return job->tag;
}

bool gd_slurm_is_known(const struct gd_slurm_job *job) {
  return job->known;
}

void gd_slurm_ask(struct gd_slurm *slurm, gd_slurm_known known, void *user) {
  slurm->known = known;
  slurm->user = user;
}

void gd_slurm_count(const struct gd_slurm *slurm, struct gd_slurm_counts *counts) {
  *counts = (struct gd_slurm_counts){.why = ""};
  for (uint32_t i = 0; i < slurm->count; i++) {
    const struct gd_slurm_job *job = &slurm->jobs[i];
    counts->pending += job->state == WAITING || job->state == PENDING;
    counts->running += job->state == RUNNING;
    counts->ended += job->state == ENDED || job->state == FORGOTTEN;
    if (job->state == PENDING && job->why[0])
      counts->why = job->why;
  }
}

int gd_slurm_cancel(struct gd_slurm *slurm) {
  struct gd_process_output output = {0};
  int count = 0;
  const char **arguments = gd_mem_alloc((size_t)slurm->count + 2, sizeof *arguments);
  if (!arguments)
    return -1;
  arguments[0] = "scancel";
  for (uint32_t i = 0; i < slurm->count; i++)
    if (is_active(&slurm->jobs[i]) && slurm->jobs[i].id[0])
      arguments[++count] = slurm->jobs[i].id;
  bool fine =
      count == 0 || (gd_slurm_command(arguments, &output, NULL) == GD_OK && output.code == 0);
  gd_process_output_deinit(&output);
  gd_mem_free(arguments);
  /* An answer that came meanwhile is for the next search. */
  for (uint32_t i = 0; i < slurm->count && fine; i++)
    if (is_active(&slurm->jobs[i]) && !has_file(&slurm->jobs[i], "result.json"))
      gd_slurm_forget(slurm, &slurm->jobs[i]);
  return fine ? count : -1;
}
