/*
 * Tests that start themselves again as the ranks of a job.
 */
#ifndef GD_TESTS_SUPPORT_RANKS_H
#define GD_TESTS_SUPPORT_RANKS_H

#include <stdbool.h>

/* Whether mpirun is there; says loudly what is skipped without it. */
bool ranks_can_start(void);
/* Runs this program under mpirun; 0: every rank ended well, 1: not so. */
int ranks_run(const char *self, int ranks);

#endif
