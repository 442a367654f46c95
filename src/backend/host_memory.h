/*
 * How much memory this machine has left, or the container or the cluster's job that the process is
 * in may have.
 */
#ifndef GD_BACKEND_HOST_MEMORY_H
#define GD_BACKEND_HOST_MEMORY_H

#include <stdint.h>

int64_t gd_host_memory_bytes(void);
/* How much there is, used or not. */
int64_t gd_host_memory_total_bytes(void);

/* The same of the folders proc and sys that are in `root`: for tests. */
int64_t gd_host_memory_under(const char *root);

#endif
