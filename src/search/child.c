/*
 * Trials in processes of their own; see child.h. The order and the result are files, since ranks
 * under mpirun inherit nothing else; everything about ending a process is in `watch_over`.
 */
#define _GNU_SOURCE
#include "search/child.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/file.h"
#include "base/json.h"
#include "base/process.h"
#include "base/scratch.h"

#define MS_NS INT64_C(1000000)

/* --- the order ----------------------------------------------------------------------------- */

/* Text that is not UTF-8 cannot be packed; a path may be such, so it travels as bytes. */
static json_t *pack_bytes(const char *text) {
  json_t *bytes = json_array();
  for (; bytes && *text; text++)
    if (json_array_append_new(bytes, json_integer((unsigned char)*text)) != 0) {
      json_decref(bytes);
      return NULL;
    }
  return bytes;
}

static json_t *pack_order(const struct gd_child_order *order, bool progress) {
  const struct gd_trial_options *trial = &order->trial;
  char method[GD_METHOD_NAME];
  return json_pack("{so so ss ss si si si si sI ss sI sI sI sf sb sb s{sI sI sI}}", "model",
                   pack_bytes(order->model), "recipe", gd_recipe_json(&order->recipe), "method",
                   gd_method_name(&trial->method, method), "backend", trial->backend, "threads",
                   trial->threads, "ranks", trial->ranks, "nodes", trial->nodes, "micro_batch",
                   (int)trial->micro_batch, "micro_batch_size", (json_int_t)trial->micro_batch_size,
                   "precision", trial->precision ? gd_precision_name(*trial->precision) : "",
                   "device_limit_bytes", (json_int_t)trial->device_limit_bytes, "host_limit_bytes",
                   (json_int_t)trial->host_limit_bytes, "seed", (json_int_t)trial->seed,
                   "sample_seconds", trial->sample_seconds, "profile", trial->profile, "progress",
                   progress, "plan", "micro_batch", (json_int_t)trial->expected.micro_batch,
                   "saved_blocks", (json_int_t)trial->expected.saved_blocks, "hash",
                   (json_int_t)trial->expected.hash);
}

enum gd_status gd_child_write_order(const char *path, const struct gd_child_order *order,
                                    bool progress, struct gd_error *err) {
  json_t *json = pack_order(order, progress);
  struct gd_file_out out;
  enum gd_status status = gd_file_begin(&out, path, err);
  if (status == GD_OK) {
    if (!json || json_dumpf(json, out.stream, JSON_COMPACT) != 0)
      status = ferror(out.stream) ? GD_OK : gd_nomem(err, "while writing an order");
    status = gd_file_end(&out, status, err);
  }
  json_decref(json);
  return status;
}

static enum gd_status unpack_model(const struct gd_json *json, struct gd_model *model,
                                   struct gd_error *err) {
  char name[PATH_MAX];
  json_t *bytes = json_object_get(json->root, "model"), *value;
  size_t i;
  if (json_array_size(bytes) == 0 || json_array_size(bytes) >= sizeof name)
    return gd_json_mismatch(json, json->root, "model", "the bytes of a name", err);
  json_array_foreach(bytes, i, value) {
    name[i] = (char)json_integer_value(value);
  }
  name[json_array_size(bytes)] = '\0';
  return gd_model_load(name, model, err);
}

static enum gd_status unpack_numbers(const struct gd_json *json, struct gd_trial_options *trial,
                                     bool *progress, struct gd_error *err) {
  const json_t *root = json->root;
  int64_t threads, ranks, nodes, micro_batch, seed;
  GD_TRY(gd_json_int(json, root, "threads", 0, INT_MAX, &threads, err));
  GD_TRY(gd_json_int(json, root, "ranks", 1, INT_MAX, &ranks, err));
  GD_TRY(gd_json_int(json, root, "nodes", 0, INT_MAX, &nodes, err));
  GD_TRY(gd_json_int(json, root, "micro_batch", 0, GD_MICRO_BATCH_FIXED, &micro_batch, err));
  GD_TRY(gd_json_int(json, root, "micro_batch_size", 0, INT64_MAX, &trial->micro_batch_size, err));
  GD_TRY(
      gd_json_int(json, root, "device_limit_bytes", 0, INT64_MAX, &trial->device_limit_bytes, err));
  GD_TRY(gd_json_int(json, root, "host_limit_bytes", 0, INT64_MAX, &trial->host_limit_bytes, err));
  GD_TRY(gd_json_int(json, root, "seed", INT64_MIN, INT64_MAX, &seed, err));
  GD_TRY(gd_json_number(json, root, "sample_seconds", 0, 1e9, &trial->sample_seconds, err));
  GD_TRY(gd_json_bool(json, root, "profile", &trial->profile, err));
  GD_TRY(gd_json_bool(json, root, "progress", progress, err));
  trial->threads = (int)threads;
  trial->ranks = (int)ranks;
  trial->nodes = (int)nodes;
  trial->micro_batch = (enum gd_micro_batch)micro_batch;
  trial->seed = (uint64_t)seed;
  return GD_OK;
}

/* Orders that were written by a gpudays of before have none. */
static enum gd_status unpack_plan(const struct gd_json *json, struct gd_plan_identity *plan,
                                  struct gd_error *err) {
  const json_t *object = json_object_get(json->root, "plan");
  int64_t hash;
  if (!object)
    return GD_OK;
  GD_TRY(gd_json_int(json, object, "micro_batch", 0, INT64_MAX, &plan->micro_batch, err));
  GD_TRY(gd_json_int(json, object, "saved_blocks", 0, INT64_MAX, &plan->saved_blocks, err));
  GD_TRY(gd_json_int(json, object, "hash", INT64_MIN, INT64_MAX, &hash, err));
  plan->hash = (uint64_t)hash;
  return GD_OK;
}

static enum gd_status unpack_order(const struct gd_json *json, struct gd_child_task *task,
                                   struct gd_error *err) {
  struct gd_trial_options *trial = &task->order.trial;
  const char *method, *backend, *precision;
  GD_TRY(unpack_model(json, &task->model, err));
  GD_TRY(gd_recipe_parse(json, json_object_get(json->root, "recipe"), &task->model.recipe, err));
  GD_TRY(gd_json_string(json, json->root, "method", &method, err));
  GD_TRY(gd_method_parse(method, &trial->method, err));
  GD_TRY(gd_json_string(json, json->root, "backend", &backend, err));
  snprintf(task->backend, sizeof task->backend, "%s", backend);
  trial->backend = task->backend;
  GD_TRY(gd_json_string(json, json->root, "precision", &precision, err));
  if (gd_precision_parse(precision, &task->precision))
    trial->precision = &task->precision;
  task->order.recipe = task->model.recipe;
  GD_TRY(unpack_plan(json, &trial->expected, err));
  return unpack_numbers(json, trial, &task->progress, err);
}

enum gd_status gd_child_parse_order(const char *text, int64_t length, struct gd_child_task *task,
                                    struct gd_error *err) {
  struct gd_json json = {0};
  *task = (struct gd_child_task){0};
  enum gd_status status = gd_json_parse(&json, "the order for a trial", text, length, err);
  if (status == GD_OK)
    status = unpack_order(&json, task, err);
  gd_json_deinit(&json);
  return status;
}

/* --- the result ---------------------------------------------------------------------------- */

enum gd_status gd_child_write_result(const char *path, const struct gd_trial *trial,
                                     struct gd_error *err) {
  struct gd_strbuf line = {0};
  struct gd_provenance here;
  enum gd_status status = gd_record_print(trial, &line, err);
  gd_provenance_here(trial->backend, &here);
  gd_strbuf_append(&line, "\n");
  if (status == GD_OK)
    status = gd_provenance_print(&here, &line, err);
  if (status == GD_OK)
    status = gd_file_write(path, line.text, line.length, err);
  gd_strbuf_deinit(&line);
  return status;
}

/* Two lines: the record, and where it was made. */
static enum gd_status parse_result(const struct gd_strbuf *text, struct gd_trial *trial,
                                   struct gd_provenance *provenance, struct gd_error *err) {
  static const char label[] = "the answer of a trial";
  size_t first = text->text ? strcspn(text->text, "\n") : 0;
  if (text->failed || first == 0)
    return gd_fail(err, GD_ENVIRONMENT, "the answer of its process cannot be read");
  GD_TRY(gd_record_parse(label, text->text, (int64_t)first, trial, err));
  if (!provenance)
    return GD_OK;
  if (first == text->length)
    return gd_fail(err, GD_INTERNAL, "the answer of its process does not say where it comes from");
  return gd_provenance_parse(label, text->text + first + 1, (int64_t)(text->length - first - 1),
                             provenance, err);
}

enum gd_status gd_child_read_result(const char *path, struct gd_trial *trial,
                                    struct gd_provenance *provenance, struct gd_error *err) {
  struct gd_strbuf text = {0};
  char part[4096];
  size_t count;
  FILE *file = fopen(path, "re");
  if (!file)
    return gd_fail(err, GD_INTERNAL, "its process ended without an answer");
  while ((count = fread(part, 1, sizeof part - 1, file)) > 0) {
    part[count] = '\0';
    gd_strbuf_append(&text, part);
  }
  fclose(file);
  enum gd_status status = parse_result(&text, trial, provenance, err);
  gd_strbuf_deinit(&text);
  return status;
}

/* --- words of the child -------------------------------------------------------------------- */

/* "@0.25 12.5 micro-steps": the share that is done, the seconds left, and what goes on. */
void gd_child_report(void *user, const char *what, double done, double eta_s) {
  struct gd_child_reported *last = user;
  int64_t now = gd_clock_ns();
  if (last->ns && now - last->ns < 100 * MS_NS &&
      strncmp(last->what, what, sizeof last->what - 1) == 0)
    return;
  last->ns = now;
  snprintf(last->what, sizeof last->what, "%s", what);
  fprintf(stderr, "@%.4f %.2f %s\n", done, eta_s, what);
  fflush(stderr);
}

struct words {
  const struct gd_child_options *options;
  char line[1024 + 64]; /* what has come of the current line */
  size_t length;
  struct gd_child_said said;
};

void gd_child_hear(struct gd_child_said *said, const char *line) {
  if (strncmp(line, "gpudays: ", 9) == 0 && !said->sentence[0])
    snprintf(said->sentence, sizeof said->sentence, "%s", line + 9);
  else if (line[0] && strncmp(line, "gpudays: ", 9) != 0)
    gd_json_excerpt(said->other, sizeof said->other, line);
}

static void take_line(struct words *words) {
  char *line = words->line, *end;
  line[words->length] = '\0';
  words->length = 0;
  if (line[0] == '@') {
    double done = strtod(line + 1, &end), eta_s = strtod(end, &end);
    if (words->options->progress && *end == ' ')
      words->options->progress(words->options->progress_user, end + 1, done, eta_s);
  } else {
    gd_child_hear(&words->said, line);
  }
}

static void listen_to(int fd, struct words *words) {
  char text[4096];
  ssize_t count;
  while ((count = read(fd, text, sizeof text)) > 0)
    for (ssize_t i = 0; i < count; i++)
      if (text[i] == '\n')
        take_line(words);
      else if (words->length + 1 < sizeof words->line)
        words->line[words->length++] = text[i];
}

/* --- the process --------------------------------------------------------------------------- */

struct watch {
  struct gd_process process;
  int status; /* as wait4 has it */
  struct rusage usage;
  bool several;    /* ranks: the process is a launcher that ends them in order */
  int stop_signal; /* that asked us to end */
  bool late, hung;
  int64_t start_ns, press_ns; /* when it began; when it was first asked to end, 0: not yet */
  int64_t oom_kills;          /* before */
};

/* Processes of our control group, or else of the machine, that the kernel has killed for want of
   memory; -1: not known. */
static int64_t count_oom_kills(void) {
  char line[128];
  int64_t count = gd_cgroup_oom_kills("");
  if (count >= 0)
    return count;
  FILE *file = fopen("/proc/vmstat", "re");
  while (file && fgets(line, sizeof line, file))
    if (strncmp(line, "oom_kill ", 9) == 0)
      count = strtoll(line + 9, NULL, 10);
  if (file)
    fclose(file);
  return count;
}

static void take_signals(struct watch *watch) {
  int asked = gd_signals_asked(&watch->process.signals);
  if (watch->stop_signal == 0)
    watch->stop_signal = asked;
}

/* Milliseconds until something has to be looked at; -1: nothing is due. */
static int wait_ms(const struct watch *watch, const struct gd_child_options *options) {
  int64_t now = gd_clock_ns(), due = INT64_MAX;
  if (watch->press_ns)
    return 20;
  if (options->timeout_s > 0)
    due =
        watch->start_ns + watch->process.signals.suspended_ns + (int64_t)(options->timeout_s * 1e9);
  if (options->deadline_ns && options->deadline_ns < due)
    due = options->deadline_ns;
  if (due == INT64_MAX)
    return -1;
  int64_t left_ms = due > now ? (due - now) / MS_NS + 1 : 0;
  return left_ms > 60000 ? 60000 : (int)left_ms;
}

/* Asks first, which a launcher needs to end its ranks; then the whole group, then all there is. */
static void press(struct watch *watch, const struct gd_child_options *options) {
  int64_t now = gd_clock_ns();
  if (!watch->press_ns) {
    watch->late = options->deadline_ns && now >= options->deadline_ns;
    int64_t ran_ns = now - watch->start_ns - watch->process.signals.suspended_ns;
    watch->hung = options->timeout_s > 0 && 1e-9 * (double)ran_ns >= options->timeout_s;
    if (!watch->late && !watch->hung && !watch->stop_signal)
      return;
    watch->press_ns = now;
    kill(-watch->process.pid, SIGTERM);
    kill(-watch->process.pid, SIGCONT); /* a stopped one hears nothing */
    return;
  }
  if (now - watch->press_ns > (watch->several ? 600 : 200) * MS_NS) {
    kill(-watch->process.pid, SIGKILL);
    gd_process_kill_descendants(0);
  }
}

static void watch_over(struct watch *watch, const struct gd_child_options *options,
                       struct words *words) {
  while (wait4(watch->process.pid, &watch->status, WNOHANG, &watch->usage) == 0) {
    struct pollfd fds[] = {{.fd = watch->process.signals.fd, .events = POLLIN},
                           {.fd = watch->process.errors, .events = POLLIN}};
    poll(fds, 2, wait_ms(watch, options));
    if (fds[1].revents & POLLHUP && !(fds[1].revents & POLLIN))
      poll(fds, 1, 20); /* stderr is closed: there is only its end to wait for */
    take_signals(watch);
    listen_to(watch->process.errors, words);
    press(watch, options);
  }
  gd_process_sweep();
  listen_to(watch->process.errors, words);
  if (words->length > 0)
    take_line(words);
}

/* --- what came of it ----------------------------------------------------------------------- */

const char *gd_child_span(char *text, size_t size, double seconds) {
  if (seconds >= 7200)
    snprintf(text, size, "%.3g h", seconds / 3600);
  else if (seconds >= 120)
    snprintf(text, size, "%.3g min", seconds / 60);
  else
    snprintf(text, size, "%.3g s", seconds);
  return text;
}

static enum gd_status judge_signal(const struct watch *watch, const struct words *words,
                                   struct gd_error *err) {
  int signal = WTERMSIG(watch->status);
  char resident[32];
  gd_format_bytes(resident, sizeof resident, (int64_t)watch->usage.ru_maxrss * 1024);
  if (signal == SIGKILL && count_oom_kills() > watch->oom_kills)
    return gd_fail(err, GD_ENVIRONMENT,
                   "the machine ran out of memory: the kernel killed the trial, whose resident set "
                   "had grown to %s; lower --device-memory or --host-memory",
                   resident);
  if (signal == SIGKILL)
    return gd_fail(err, GD_ENVIRONMENT,
                   "its process was killed by signal 9 (Killed) at a resident set of %s: "
                   "by a user, or because memory ran out",
                   resident);
  const char *said = words->said.sentence[0] ? words->said.sentence : words->said.other;
  return gd_fail(err, gd_process_was_stopped_by(signal) ? GD_ENVIRONMENT : GD_INTERNAL,
                 "its process ended by signal %d (%s)%s%.800s", signal, strsignal(signal),
                 said[0] ? ": " : "", said);
}

static enum gd_status judge(const struct watch *watch, const struct words *words,
                            const struct gd_child_options *options, const char *result,
                            struct gd_trial *trial, struct gd_error *err) {
  char text[32];
  if (watch->hung)
    return gd_fail(err, GD_ENVIRONMENT,
                   "it took longer than %s and was ended; --trial-timeout sets the limit",
                   gd_child_span(text, sizeof text, options->timeout_s));
  if (WIFSIGNALED(watch->status))
    return judge_signal(watch, words, err);
  int code = WEXITSTATUS(watch->status);
  if (code == 0)
    return gd_child_read_result(result, trial, NULL, err);
  if (words->said.sentence[0] && strstr(words->said.sentence, "signal 9") &&
      count_oom_kills() > watch->oom_kills)
    return gd_fail(err, GD_ENVIRONMENT, "the machine ran out of memory: %s", words->said.sentence);
  if (words->said.sentence[0])
    return gd_fail(err, gd_exit_status(code), "%s", words->said.sentence);
  return gd_fail(err, gd_exit_status(code), "its process ended with exit code %d%s%s", code,
                 words->said.other[0] ? ": " : " and gave no reason", words->said.other);
}

/* --- all of it ----------------------------------------------------------------------------- */

#define FOLDER_NAME "gpudays-trial-"
#define ORDER_NAME  "order.json"
#define RESULT_NAME "result.json"

void gd_child_sweep(const char *folder) {
  enum { DAYS = 30 };
  if (folder)
    gd_scratch_sweep(folder, "", RESULT_NAME, DAYS);
}

static const char *path_in(const struct gd_scratch *scratch, const char *name,
                           char path[PATH_MAX]) {
  snprintf(path, PATH_MAX, "%s/%s", scratch->path, name);
  return path;
}

bool gd_child_collect(const struct gd_scratch *scratch, struct gd_trial *trial,
                      struct gd_provenance *provenance) {
  char path[PATH_MAX];
  struct gd_trial answer;
  struct gd_provenance where;
  if (!gd_scratch_has(scratch, RESULT_NAME) ||
      gd_child_read_result(path_in(scratch, RESULT_NAME, path), &answer, &where, NULL) != GD_OK)
    return false;
  *trial = answer;
  *provenance = where;
  return true;
}

static enum gd_status run(const struct gd_child_order *order,
                          const struct gd_child_options *options, const char *order_path,
                          const char *result_path, struct gd_trial *trial, struct gd_child_end *end,
                          struct gd_error *err) {
  struct watch watch = {.several = order->trial.ranks > 1};
  struct words words = {.options = options};
  struct gd_error broken = {0};
  char self[PATH_MAX], ranks[16], timeout[32];
  GD_TRY(gd_process_self(self, sizeof self, err));
  snprintf(ranks, sizeof ranks, "%d", order->trial.ranks);
  snprintf(timeout, sizeof timeout, "%g", order->rank_timeout_s);
  const char *const arguments[] = {self,  GD_CHILD_COMMAND, order_path, result_path,
                                   ranks, timeout,          NULL};
  watch.start_ns = gd_clock_ns();
  watch.oom_kills = count_oom_kills();
  /* A launcher ends its ranks when it is asked to; a lone trial has nothing to put in order. Where
     memory runs out, the trial is to be killed, and not the search or a neighbour. */
  GD_TRY(
      gd_process_start(&(struct gd_process_order){.name = "a trial",
                                                  .arguments = arguments,
                                                  .death_signal = watch.several ? SIGTERM : SIGKILL,
                                                  .own_group = true,
                                                  .silent = true,
                                                  .expendable = true},
                       &watch.process, err));
  watch_over(&watch, options, &words);
  take_signals(&watch);
  end->wall_s = 1e-9 * (double)(gd_clock_ns() - watch.start_ns);
  end->signal = watch.stop_signal;
  /* A signal that came when all was over takes no answer away. */
  bool answered = !watch.press_ns && WIFEXITED(watch.status) && WEXITSTATUS(watch.status) == 0;
  if (watch.stop_signal && !answered)
    end->how = GD_CHILD_STOPPED;
  else if (watch.late)
    end->how = GD_CHILD_LATE;
  else if ((end->status = judge(&watch, &words, options, result_path, trial, &broken)) != GD_OK) {
    end->how = GD_CHILD_BROKEN;
    trial->status = GD_TRIAL_FAILED;
    snprintf(trial->reason, sizeof trial->reason, "%s", broken.text);
  }
  gd_process_close(&watch.process);
  return GD_OK;
}

enum gd_status gd_child_run(const struct gd_child_order *order,
                            const struct gd_child_options *options, struct gd_trial *trial,
                            struct gd_child_end *end, struct gd_error *err) {
  struct gd_scratch own = GD_SCRATCH_NONE;
  const struct gd_scratch *scratch = options->scratch ? options->scratch : &own;
  char order_path[PATH_MAX], result_path[PATH_MAX];
  *end = (struct gd_child_end){0};
  if (!options->scratch)
    GD_TRY(gd_scratch_open(&own, NULL, FOLDER_NAME, err));
  path_in(scratch, ORDER_NAME, order_path);
  unlink(path_in(scratch, RESULT_NAME, result_path)); /* of a trial before */
  enum gd_status status = gd_child_write_order(order_path, order, options->progress != NULL, err);
  if (status == GD_OK)
    status = run(order, options, order_path, result_path, trial, end, err);
  gd_scratch_remove(&own);
  return status;
}
