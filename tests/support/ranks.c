/*
 * mpirun, as a test calls it: root or not, more ranks than cores.
 */
#define _POSIX_C_SOURCE 200809L
#include "support/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool ranks_can_start(void) {
  if (system("command -v mpirun >/dev/null 2>&1") == 0)
    return true;
  printf("SKIPPED what needs several ranks: mpirun is not installed (tools/setup)\n");
  return false;
}

int ranks_run(const char *self, int ranks) {
  char command[1024];
  fflush(stdout);
  snprintf(command, sizeof command, "mpirun %s --oversubscribe --bind-to none -n %d '%s'",
           geteuid() == 0 ? "--allow-run-as-root" : "", ranks, self);
  return system(command) != 0;
}

struct gd_comm *ranks_join(void) {
  struct gd_comm *comm = NULL;
  struct gd_error err = {0};
  if (gd_comm_open(&comm, NULL, &err) != GD_OK) {
    fprintf(stderr, "%s\n", err.text);
    exit(1);
  }
  return comm;
}
