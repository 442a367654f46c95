/*
 * The system calls of Linux that emscripten's C library lacks. A page has no processes and one
 * thread: each fails as on a kernel without it, and its callers do what they do there (plan on one
 * thread, say that no compiler runs).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <spawn.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Emscripten takes what a page prints for a terminal. */
int isatty(int fd) {
  (void)fd;
  errno = ENOTTY;
  return 0;
}

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
  (void)pid;
  memset(set, 0, size);
  errno = ENOSYS;
  return -1;
}

int __sched_cpucount(size_t size, const cpu_set_t *set) {
  (void)size;
  (void)set;
  return 1;
}

int posix_spawnp(pid_t *restrict pid, const char *restrict file,
                 const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *restrict attr,
                 char *const *restrict argv, char *const *restrict envp) {
  (void)pid;
  (void)file;
  (void)actions;
  (void)attr;
  (void)argv;
  (void)envp;
  return ENOSYS;
}

int prctl(int option, ...) {
  (void)option;
  errno = ENOSYS;
  return -1;
}

int signalfd(int fd, const sigset_t *set, int flags) {
  (void)fd;
  (void)set;
  (void)flags;
  errno = ENOSYS;
  return -1;
}
