/*
 * Faults of trials on purpose; see child_fault.h.
 */
#define _XOPEN_SOURCE 700
#include "search/child_fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/switches.h"

/* Next to four other programs a core, this one then has 4 % of it instead of 20 %. */
enum { SPUN_NICE = 8 };

/* Takes memory until somebody objects; past a few GiB that will not happen. */
static void take_memory(void) {
  enum { PIECE = 16 << 20, MOST = 256 };
  for (int i = 0; i < MOST; i++) {
    char *piece = gd_mem_alloc(1, PIECE);
    if (!piece)
      break;
    memset(piece, 1, PIECE);
  }
  raise(SIGKILL);
}

/* What befalls one rank before a timed launch with collectives: the others launch theirs and wait
   inside of it. */
static const struct {
  const char *name;
  int signal; /* 0: it does nothing any more, but its other threads do */
} rank_faults[] = {{"absent", 0}, {"stopped", SIGSTOP}, {"killed", SIGKILL}};

static void strike_rank(void *user, const char *what, double done, double eta_s) {
  const int *number = user;
  (void)done, (void)eta_s;
  if (strcmp(what, "last micro-step") != 0 && strcmp(what, "updates") != 0)
    return;
  if (*number)
    raise(*number);
  for (;;)
    pause();
}

static void strike_later(int rank, const char *fault, struct gd_trial_options *options) {
  for (size_t i = 0; i < sizeof rank_faults / sizeof *rank_faults; i++) {
    size_t length = strlen(rank_faults[i].name);
    if (strncmp(fault, rank_faults[i].name, length) != 0 ||
        strtol(fault + length, NULL, 10) != rank)
      continue;
    options->progress = strike_rank;
    options->progress_user = (void *)(uintptr_t)&rank_faults[i].signal;
  }
}

void gd_child_inject_fault(int rank, struct gd_trial_options *options) {
  const char *wanted = gd_env("GPUDAYS_TEST_FAULT");
  char name[GD_METHOD_NAME];
  size_t length = strlen(gd_method_name(&options->method, name));
  if (!wanted || strncmp(wanted, name, length) != 0 || wanted[length] != '=')
    return;
  const char *fault = wanted + length + 1;
  strike_later(rank, fault, options);
  if (rank > 0)
    return;
  if (strcmp(fault, "segfault") == 0)
    raise(SIGSEGV);
  else if (strcmp(fault, "assert") == 0)
    GD_ASSERT(!"a fault that was asked for");
  else if (strcmp(fault, "kill") == 0)
    raise(SIGKILL);
  else if (strcmp(fault, "memory") == 0)
    take_memory();
  else if (strcmp(fault, "exit") == 0)
    _exit(5);
  else if (strcmp(fault, "silent") == 0)
    _exit(0);
  else if (strcmp(fault, "otherplan") == 0)
    options->expected.hash ^= 1;
  else if (strcmp(fault, "spun") == 0 && !gd_env("OMP_WAIT_POLICY"))
    (void)!nice(SPUN_NICE);
  else if (strncmp(fault, "held=", 5) == 0)
    while (access(fault + 5, F_OK) == 0)
      nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  else if (strcmp(fault, "hang") == 0) {
    signal(SIGTERM, SIG_IGN); /* the kind that does not listen either */
    for (;;)
      pause();
  }
}
