/*
 * How much memory this machine, or the container that the process is in, has left.
 */
#ifndef GD_BACKEND_HOST_MEMORY_H
#define GD_BACKEND_HOST_MEMORY_H

#include <stdint.h>

int64_t gd_host_memory_bytes(void);

#endif
