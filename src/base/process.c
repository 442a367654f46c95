/*
 * The tree of processes below this one; see process.h.
 */
#define _GNU_SOURCE
#include "base/process.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

/* --- signals ------------------------------------------------------------------------------- */

static const int watched[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGTSTP};
enum { WATCHED = sizeof watched / sizeof *watched };

/* A signal that is blocked waits for its reader even where it is ignored: those are left alone. */
static bool is_ignored(int signal) {
  struct sigaction action;
  return signal != SIGCHLD && sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static sigset_t set_of(unsigned bits) {
  sigset_t set;
  sigemptyset(&set);
  for (int i = 0; i < WATCHED; i++)
    if (bits >> i & 1)
      sigaddset(&set, watched[i]);
  return set;
}

bool gd_signals_open(struct gd_signals *signals) {
  sigset_t before;
  unsigned wanted = 0;
  for (int i = 0; i < WATCHED; i++)
    wanted |= (is_ignored(watched[i]) ? 0u : 1u) << i;
  sigset_t ours = set_of(wanted);
  *signals = (struct gd_signals){.fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (signals->fd < 0)
    return false;
  sigprocmask(SIG_BLOCK, &ours, &before);
  for (int i = 0; i < WATCHED; i++)
    if (sigismember(&before, watched[i]) == 0)
      signals->blocked |= wanted & 1u << i;
  return true;
}

static int signal_descendants(int signal, pid_t spare);

/*
 * Trials lead process groups of their own, which a terminal's Ctrl-Z does not reach. A process that
 * was being forked during the first look is found by the second. SIGSTOP, since SIGTSTP may be
 * ignored, and mpirun ignores it.
 */
static void suspend(struct gd_signals *signals) {
  int64_t before = gd_clock_ns();
  signal_descendants(SIGSTOP, 0);
  signal_descendants(SIGSTOP, 0);
  raise(SIGSTOP);
  signal_descendants(SIGCONT, 0);
  signals->suspended_ns += gd_clock_ns() - before;
}

int gd_signals_asked(struct gd_signals *signals) {
  struct signalfd_siginfo info;
  int asked = 0;
  bool stop = false;
  while (read(signals->fd, &info, sizeof info) == (ssize_t)sizeof info) {
    stop = stop || info.ssi_signo == SIGTSTP;
    if (info.ssi_signo != SIGCHLD && info.ssi_signo != SIGTSTP && asked == 0)
      asked = (int)info.ssi_signo;
  }
  if (stop && asked == 0)
    suspend(signals);
  return asked;
}

static void unblock(const struct gd_signals *signals) {
  sigset_t ours = set_of(signals->blocked);
  sigprocmask(SIG_UNBLOCK, &ours, NULL);
}

void gd_signals_close(struct gd_signals *signals) {
  close(signals->fd);
  unblock(signals);
}

/* --- starting one -------------------------------------------------------------------------- */

/* Between fork and exec: system calls alone. */
_Noreturn static void become(const struct gd_process_order *order, int errors,
                             const struct gd_signals *signals, pid_t parent) {
  if (order->own_group)
    setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, order->death_signal);
  int score = order->expendable ? open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC) : -1;
  if (score >= 0) {
    ssize_t written = write(score, "1000", 4); /* refused: the kernel decides, as without it */
    (void)written;
    close(score);
  }
  int nothing = open("/dev/null", O_RDWR);
  if (nothing >= 0) {
    dup2(nothing, STDIN_FILENO);
    if (order->silent)
      dup2(nothing, STDOUT_FILENO);
  }
  dup2(errors, STDERR_FILENO);
  unblock(signals);
  if (getppid() == parent)
    execv(order->arguments[0], (char *const *)(uintptr_t)order->arguments);
  _exit(127);
}

enum gd_status gd_process_start(const struct gd_process_order *order, struct gd_process *process,
                                struct gd_error *err) {
  int ends[2];
  pid_t self = getpid();
  if (pipe2(ends, O_CLOEXEC) != 0)
    return gd_fail(err, GD_ENVIRONMENT, "cannot start %s: %s", order->name, strerror(errno));
  process->errors = ends[0];
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  bool heard = gd_signals_open(&process->signals);
  process->pid = heard ? fork() : -1;
  if (process->pid == 0)
    become(order, ends[1], &process->signals, self);
  int reason = errno;
  close(ends[1]);
  if (process->pid < 0) {
    if (heard)
      gd_signals_close(&process->signals);
    close(ends[0]);
    return gd_fail(err, GD_ENVIRONMENT, "cannot start %s: %s", order->name, strerror(reason));
  }
  if (order->own_group)
    setpgid(process->pid, process->pid); /* whoever of the two comes first */
  return GD_OK;
}

void gd_process_close(struct gd_process *process) {
  close(process->errors);
  gd_signals_close(&process->signals);
}

/* --- ending all ---------------------------------------------------------------------------- */

struct process {
  pid_t pid, parent;
  bool ours;
};

/* The parent's id in /proc/PID/stat, behind the name, which may hold anything. */
static pid_t parent_of(const char *pid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  text[length > 0 ? length : 0] = '\0';
  char *end = strrchr(text, ')');
  return end && strlen(end) > 4 ? (pid_t)strtol(end + 4, NULL, 10) : 0;
}

static struct process *list_processes(uint32_t *count) {
  struct process *list = NULL;
  uint32_t capacity = 0;
  struct dirent *entry;
  DIR *folder = opendir("/proc");
  *count = 0;
  while (folder && (entry = readdir(folder))) {
    if (!isdigit((unsigned char)entry->d_name[0]))
      continue;
    if (!gd_vec_reserve((void **)&list, &capacity, *count + 1, sizeof *list))
      break;
    list[(*count)++] = (struct process){.pid = (pid_t)strtol(entry->d_name, NULL, 10),
                                        .parent = parent_of(entry->d_name)};
  }
  if (folder)
    closedir(folder);
  return list;
}

static int signal_descendants(int signal, pid_t spare) {
  uint32_t count;
  int reached = 0;
  struct process *list = list_processes(&count);
  for (bool grew = true; grew;) {
    grew = false;
    for (uint32_t i = 0; i < count; i++) {
      bool ours = list[i].parent == getpid();
      for (uint32_t j = 0; j < count && !ours; j++)
        ours = list[j].ours && list[j].pid == list[i].parent;
      grew = grew || (ours && !list[i].ours);
      list[i].ours = ours;
    }
  }
  for (uint32_t i = 0; i < count; i++)
    if (list[i].ours && list[i].pid != spare)
      reached += kill(list[i].pid, signal) == 0;
  gd_mem_free(list);
  return reached;
}

int gd_process_kill_descendants(pid_t spare) {
  return signal_descendants(SIGKILL, spare);
}

bool gd_process_was_stopped_by(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
         signal == SIGQUIT || signal == SIGXCPU || signal == SIGPWR;
}

void gd_process_sweep(void) {
  for (int i = 0; i < 200; i++) {
    while (waitpid(-1, NULL, WNOHANG) > 0)
      ;
    if (gd_process_kill_descendants(0) == 0)
      return;
    poll(NULL, 0, 5);
  }
}

/* --- this one ------------------------------------------------------------------------------ */

enum gd_status gd_process_self(char *path, size_t size, struct gd_error *err) {
  ssize_t length = readlink("/proc/self/exe", path, size - 1);
  if (length < 0)
    return gd_fail(err, GD_ENVIRONMENT,
                   "cannot read /proc/self/exe (%s), which is needed to start this program again; "
                   "mount /proc",
                   strerror(errno));
  path[length] = '\0';
  return GD_OK;
}

/* --- commands ------------------------------------------------------------------------------ */

/* out and errors: where its two streams go. */
static int spawn(const char *const *arguments, int out, int errors, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  int failure = posix_spawnp(pid, arguments[0], &actions, &attributes,
                             (char *const *)(uintptr_t)arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failure;
}

/* What there is to read now; false at the end. */
static bool take(int fd, struct gd_strbuf *to) {
  enum { MOST_BYTES = 1 << 20 }; /* further words are not kept */
  char text[4096];
  ssize_t count = read(fd, text, sizeof text - 1);
  if (count <= 0)
    return count < 0 && (errno == EINTR || errno == EAGAIN);
  text[count] = '\0';
  if (to->length < MOST_BYTES)
    gd_strbuf_append(to, text);
  return true;
}

/* Both streams until both have ended; false: not in time. */
static bool listen_to(int out, int errors, int64_t deadline_ns, struct gd_process_output *output) {
  struct pollfd fds[] = {{.fd = out, .events = POLLIN}, {.fd = errors, .events = POLLIN}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    int64_t left_ms = (deadline_ns - gd_clock_ns()) / 1000000;
    if (left_ms <= 0)
      return false;
    poll(fds, 2, left_ms > 1000 ? 1000 : (int)left_ms);
    if (fds[0].revents && !take(out, &output->out))
      fds[0].fd = -1;
    if (fds[1].revents && !take(errors, &output->errors))
      fds[1].fd = -1;
  }
  return true;
}

/* Its end, which comes with that of its streams unless it has closed them; false: not in time. */
static bool wait_until(pid_t pid, int64_t deadline_ns, int *status) {
  while (waitpid(pid, status, WNOHANG) == 0) {
    if (gd_clock_ns() >= deadline_ns)
      return false;
    poll(NULL, 0, 5);
  }
  return true;
}

enum gd_status gd_process_run(const char *const *arguments, double timeout_s,
                              struct gd_process_output *output, struct gd_error *err) {
  int outs[2] = {-1, -1}, errors[2] = {-1, -1}, status = 0;
  pid_t pid = 0;
  *output = (struct gd_process_output){0};
  int failure = pipe2(outs, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0 ? errno : 0;
  if (!failure)
    failure = spawn(arguments, outs[1], errors[1], &pid);
  if (outs[1] >= 0)
    close(outs[1]);
  if (errors[1] >= 0)
    close(errors[1]);
  bool in_time = true;
  if (!failure) {
    int64_t deadline_ns = gd_clock_ns() + (int64_t)(timeout_s * 1e9);
    in_time =
        listen_to(outs[0], errors[0], deadline_ns, output) && wait_until(pid, deadline_ns, &status);
    if (!in_time) {
      kill(-pid, SIGKILL);
      while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    }
    output->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  if (outs[0] >= 0)
    close(outs[0]);
  if (errors[0] >= 0)
    close(errors[0]);
  if (failure == ENOENT)
    return gd_fail(err, GD_UNSUPPORTED, "%s is not in PATH", arguments[0]);
  if (failure)
    return gd_fail(err, GD_ENVIRONMENT, "cannot run %s: %s", arguments[0], strerror(failure));
  if (!in_time)
    return gd_fail(err, GD_ENVIRONMENT, "%s did not end within %.3g s", arguments[0], timeout_s);
  if (output->out.failed || output->errors.failed)
    return gd_nomem(err, "while reading what %s says", arguments[0]);
  return GD_OK;
}

void gd_process_output_deinit(struct gd_process_output *output) {
  gd_strbuf_deinit(&output->out);
  gd_strbuf_deinit(&output->errors);
  *output = (struct gd_process_output){0};
}

int64_t gd_process_resident_bytes(void) {
  long long total, resident;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file)
    return -1;
  int got = fscanf(file, "%lld %lld", &total, &resident);
  fclose(file);
  return got == 2 ? resident * (int64_t)sysconf(_SC_PAGESIZE) : -1;
}
