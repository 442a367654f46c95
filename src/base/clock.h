/*
 * The host clock: monotonic nanoseconds.
 */
#ifndef GD_BASE_CLOCK_H
#define GD_BASE_CLOCK_H

#include <stdint.h>

int64_t gd_clock_ns(void);

#endif
