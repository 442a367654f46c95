/*
 * Watching over mpirun; see mpirun.h.
 *
 * Its stderr carries three kinds of lines: what ranks wrote, which is passed on at once; boxes of
 * text between two lines of dashes, which are its reports; and diagnostics that begin with
 * "[host:pid]". The last two are kept back and asked for the reason when the run has failed.
 */
#define _GNU_SOURCE
#include "comm/mpirun.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/process.h"
#include "base/strbuf.h"
#include "base/switches.h"

#define MS_NS 1000000LL

/* --- finding it ---------------------------------------------------------------------------- */

/* The first folder of PATH with either name wins: Debian's second one is OpenMPI for certain, and a
 * module that was loaded stands before it. */
enum gd_status gd_mpirun_find(char *path, size_t size, struct gd_error *err) {
  static const char *const names[] = {"mpirun.openmpi", "mpirun"};
  const char *folders = gd_env("PATH");
  for (const char *at = folders ? folders : "/usr/bin:/bin"; *at;) {
    size_t length = strcspn(at, ":");
    for (size_t i = 0; i < sizeof names / sizeof *names && length > 0; i++) {
      int written = snprintf(path, size, "%.*s/%s", (int)length, at, names[i]);
      if (written > 0 && (size_t)written < size && access(path, X_OK) == 0)
        return GD_OK;
    }
    at += length + (at[length] == ':');
  }
  return gd_fail(
      err, GD_ENVIRONMENT,
      "--ranks needs mpirun, and there is none in PATH; install OpenMPI (Debian: apt-get "
      "install openmpi-bin), or add its bin folder to PATH");
}

/* --- listening ----------------------------------------------------------------------------- */

struct relay {
  void (*heard)(const char *text, size_t length); /* as the order has it */
  char line[2048];                                /* what has come of the current line */
  size_t length;
  bool in_box;
  bool met;              /* all ranks have */
  bool said;             /* a rank gave its own reason: a line "gpudays: ..." */
  char reason[2048];     /* rank 0's, which others need not repeat */
  int rank, signal;      /* of the first rank that was killed; signal 0: none */
  bool no_network;       /* mpirun has found no network interface */
  bool boxed;            /* mpirun has reported something */
  struct gd_strbuf box;  /* of the box that is open, its lines joined by blanks */
  struct gd_strbuf head; /* the first box that says something */
};

static bool is_rule(const char *line) {
  size_t dashes = strspn(line, "-");
  return dashes >= 40 && line[dashes] == '\0';
}

/* "[host:1234] ..." or "[host][[12,1],0][file:56:name] ..."; "[warn] ..." comes from the event
 * library that mpirun is built on; "mpirun: Forwarding signal 10 to job" is what we asked it for.
 */
static bool is_diagnostic(const char *line) {
  if (strstr(line, ": Forwarding signal ") || strncmp(line, "[warn] ", 7) == 0 ||
      strncmp(line, "[err] ", 6) == 0 || (line[0] == '[' && strstr(line, "][[")))
    return true;
  const char *end = strchr(line, ']'), *colon = strchr(line, ':');
  return line[0] == '[' && end && colon && colon < end && isdigit((unsigned char)colon[1]);
}

/* What it says about how a job ends tells nothing of why, and a file of shared memory that somebody
 * else has removed is no reason for anything. */
static bool is_reason(const char *text) {
  return text[0] && !strstr(text, "Primary job") && !strstr(text, "non-zero status") &&
         !(strstr(text, "during shared memory initialization") && strstr(text, "unlink(2)"));
}

/* Both versions word it alike: "mpirun noticed that process rank 2 with PID 0 on node vm exited on
 * signal 9 (Killed)." */
static void read_box(struct relay *relay) {
  const char *text = relay->box.text ? relay->box.text : "";
  const char *process = strstr(text, "process rank "), *cause = strstr(text, "exited on signal ");
  if (process && cause && relay->signal == 0) {
    relay->rank = (int)strtol(process + strlen("process rank "), NULL, 10);
    relay->signal = (int)strtol(cause + strlen("exited on signal "), NULL, 10);
  }
  relay->boxed = true;
  if (!relay->head.text && is_reason(text))
    gd_strbuf_append(&relay->head, text);
  gd_strbuf_deinit(&relay->box);
  relay->box = (struct gd_strbuf){0};
}

/* Whether a rank says what rank 0 has said: "gpudays: rank 3: ..." behind "gpudays: ...". */
static bool repeats(struct relay *relay, const char *line) {
  static const char name[] = "gpudays: ", rank[] = "rank ";
  const char *text = line + sizeof name - 1, *at = text + sizeof rank - 1;
  if (strncmp(line, name, sizeof name - 1) != 0)
    return false;
  if (strncmp(text, rank, sizeof rank - 1) != 0) {
    snprintf(relay->reason, sizeof relay->reason, "%s", text);
    return false;
  }
  size_t digits = strspn(at, "0123456789");
  return digits > 0 && strncmp(at + digits, ": ", 2) == 0 && relay->reason[0] &&
         strcmp(at + digits + 2, relay->reason) == 0;
}

/* A whole line without its newline, or at the end of the stream what there is of one. */
static void take_line(struct relay *relay, bool whole) {
  relay->line[relay->length] = '\0';
  /* A progress line that was drawn before: what counts comes after it. */
  char *last = strrchr(relay->line, '\r');
  char *line = last ? last + 1 : relay->line;
  if (last && !relay->in_box)
    relay->heard(relay->line, (size_t)(line - relay->line));
  if (is_rule(line)) {
    if (relay->in_box)
      read_box(relay);
    relay->in_box = !relay->in_box;
  } else if (relay->in_box) {
    if (line[0])
      gd_strbuf_printf(&relay->box, "%s%s", relay->box.length ? " " : "",
                       line + strspn(line, " \t"));
  } else if (strcmp(line, GD_MPIRUN_MET) == 0) {
    relay->met = true;
  } else if (is_diagnostic(line)) {
    relay->no_network = relay->no_network || strstr(line, "unable to find network interfaces");
  } else if (repeats(relay, line)) {
    /* where all ranks fail alike, one speaks for them */
  } else if (whole || line[0]) {
    relay->said = relay->said || strncmp(line, "gpudays: ", 9) == 0;
    relay->heard(line, strlen(line));
    if (whole)
      relay->heard("\n", 1);
  }
  relay->length = 0;
}

static void take(struct relay *relay, const char *text, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (text[i] == '\n') {
      take_line(relay, true);
      continue;
    }
    relay->line[relay->length++] = text[i];
    if (relay->length + 1 == sizeof relay->line)
      take_line(relay, false);
  }
  /* Progress is a line that never ends. */
  if (relay->length > 0 && relay->line[0] == '\r' && !relay->in_box) {
    relay->heard(relay->line, relay->length);
    relay->length = 0;
  }
}

/* Everything there is to read; false at the end of the stream. */
static bool listen_to(int fd, struct relay *relay) {
  char text[4096];
  for (;;) {
    ssize_t count = read(fd, text, sizeof text);
    if (count > 0)
      take(relay, text, (size_t)count);
    else if (count == 0)
      return false;
    else if (errno != EINTR)
      return errno == EAGAIN;
  }
}

/* --- running ------------------------------------------------------------------------------- */

struct watch {
  struct gd_process process;
  bool orderly;                 /* as the order has it */
  bool asked;                   /* the ranks were asked to end by themselves */
  int status;                   /* as waitpid has it, once it has ended */
  int stop_signal;              /* that asked us to end; 0: none */
  bool unmet;                   /* the ranks did not meet in time */
  int64_t stop_ns;              /* when they were asked to end, for either reason; 0: not yet */
  int64_t looked_ns, waited_ns; /* for the ranks to meet: last look, time that counts so far */
};

static void ask_to_end(struct watch *watch) {
  if (watch->stop_ns)
    return;
  watch->stop_ns = gd_clock_ns();
  kill(watch->process.pid, SIGTERM);
}

/* mpirun passes SIGUSR1 on to the ranks of all machines; they take it from before they meet on. */
static void take_signals(struct watch *watch, bool met) {
  int asked = gd_signals_asked(&watch->process.signals);
  if (asked == 0 || watch->stop_signal)
    return;
  if (watch->orderly && met && !watch->asked) {
    watch->asked = true;
    kill(watch->process.pid, SIGUSR1);
    return;
  }
  watch->stop_signal = asked;
  ask_to_end(watch);
}

/* While somebody has suspended all of us, looks are far apart: no step counts for more than two
 * seconds. */
static void count_wait(struct watch *watch, double meet_s) {
  int64_t now = gd_clock_ns(), step = now - watch->looked_ns;
  watch->waited_ns += step < 2000 * MS_NS ? step : 2000 * MS_NS;
  watch->looked_ns = now;
  watch->unmet = watch->unmet || 1e-9 * (double)watch->waited_ns >= meet_s;
  if (watch->unmet)
    ask_to_end(watch);
}

/* mpirun ends its ranks in order when it is asked to; the ranks here are helped along. */
static void press(const struct watch *watch) {
  int64_t since = watch->stop_ns ? gd_clock_ns() - watch->stop_ns : 0;
  if (since > 300 * MS_NS)
    gd_process_kill_descendants(since > 3000 * MS_NS ? 0 : watch->process.pid);
}

static void watch_over(struct watch *watch, struct relay *relay, double meet_s) {
  bool open = true;
  watch->looked_ns = gd_clock_ns();
  while (waitpid(watch->process.pid, &watch->status, WNOHANG) == 0) {
    struct pollfd fds[] = {{.fd = watch->process.signals.fd, .events = POLLIN},
                           {.fd = open ? watch->process.errors : -1, .events = POLLIN}};
    poll(fds, 2, watch->stop_ns ? 50 : relay->met ? -1 : 500);
    open = open && listen_to(watch->process.errors, relay);
    take_signals(watch, relay->met);
    if (!relay->met)
      count_wait(watch, meet_s);
    press(watch);
  }
  gd_process_sweep();
  listen_to(watch->process.errors, relay);
  if (relay->length > 0)
    take_line(relay, false);
}

/* The same of a run that is one process. */
static enum gd_status judge_alone(const struct watch *watch, const struct relay *relay, int *code,
                                  struct gd_error *err) {
  int signal = WIFSIGNALED(watch->status) ? WTERMSIG(watch->status) : 0;
  if (signal)
    return gd_fail(err, gd_process_was_stopped_by(signal) ? GD_ENVIRONMENT : GD_INTERNAL,
                   "the process that trains was killed by signal %d (%s)", signal,
                   strsignal(signal));
  *code = WEXITSTATUS(watch->status);
  if (*code == 0 || (relay->said && *code < GD_EXIT_COUNT))
    return GD_OK;
  return gd_fail(err, GD_INTERNAL,
                 "the process that trains ended with exit code %d and gave no reason", *code);
}

/* What happened, from how mpirun ended and what it said. */
static enum gd_status judge(const struct watch *watch, const struct relay *relay, double meet_s,
                            int *code, struct gd_error *err) {
  char why[400] = "it gave no reason";
  if (watch->unmet && !relay->said)
    return gd_fail(err, GD_ENVIRONMENT,
                   "mpirun had not started all ranks %.3g s after it was asked to: a node does not "
                   "answer, or a rank is stuck before MPI_Init; look for it (ps, top), or raise "
                   "--rank-timeout",
                   meet_s);
  if (WIFSIGNALED(watch->status))
    return gd_fail(err, GD_ENVIRONMENT,
                   "mpirun was killed by signal %d (%s); its ranks were stopped",
                   WTERMSIG(watch->status), strsignal(WTERMSIG(watch->status)));
  int result = WEXITSTATUS(watch->status);
  if (result == 0 || (relay->said && result < GD_EXIT_COUNT)) {
    *code = result;
    return GD_OK;
  }
  if (relay->signal > 0)
    return gd_fail(err, gd_process_was_stopped_by(relay->signal) ? GD_ENVIRONMENT : GD_INTERNAL,
                   "rank %d was killed by signal %d (%s); the other ranks were stopped",
                   relay->rank, relay->signal, strsignal(relay->signal));
  if (relay->no_network)
    return gd_fail(
        err, GD_ENVIRONMENT,
        "mpirun found no network interface, and needs the loopback one at least: ip link "
        "set lo up");
  if (gd_process_was_stopped_by(result - 128))
    return gd_fail(err, GD_ENVIRONMENT,
                   "mpirun was asked to end by signal %d (%s); its ranks were stopped",
                   result - 128, strsignal(result - 128));
  /* OpenMPI 4 reports every other end, and has this code for each of the three. */
  if (result == 1 && !relay->boxed)
    return gd_fail(err, GD_ENVIRONMENT,
                   "mpirun ended with exit code 1 and without a word, as it does when somebody "
                   "sends it SIGTERM, SIGINT or SIGHUP; its ranks were stopped");
  if (relay->head.text)
    gd_json_excerpt(why, sizeof why, relay->head.text);
  return gd_fail(err, GD_ENVIRONMENT, "mpirun ended with exit code %d: %s", result, why);
}

enum gd_status gd_mpirun_run(const struct gd_mpirun_order *order, int *code, bool *asked,
                             struct gd_error *err) {
  struct watch watch = {.orderly = order->orderly};
  struct relay relay = {.heard = order->heard};
  /* The ranks do not outlive us, whatever ends us: mpirun ends them when it is asked to. Ctrl-C is
     for us to pass on where they are to end in order: a terminal sends it to a whole group. */
  GD_TRY(gd_process_start(&(struct gd_process_order){.name = order->alone ? "gpudays" : "mpirun",
                                                     .arguments = order->arguments,
                                                     .death_signal = SIGTERM,
                                                     .own_group = order->orderly},
                          &watch.process, err));
  watch_over(&watch, &relay, order->meet_s);
  if (order->scratch)
    gd_scratch_remove(order->scratch); /* before the signal that asked us to end does so */
  enum gd_status status = watch.stop_signal ? GD_OK
                          : order->alone    ? judge_alone(&watch, &relay, code, err)
                                            : judge(&watch, &relay, order->meet_s, code, err);
  if (asked)
    *asked = watch.asked || watch.stop_signal;
  gd_strbuf_deinit(&relay.box);
  gd_strbuf_deinit(&relay.head);
  if (watch.stop_signal) {
    signal(watch.stop_signal, SIG_DFL);
    raise(watch.stop_signal); /* it comes when signals do again */
    *code = 128 + watch.stop_signal;
  }
  gd_process_close(&watch.process);
  return status;
}
