/*
 * Tests that start themselves again as the ranks of a job.
 */
#ifndef GD_TESTS_SUPPORT_RANKS_H
#define GD_TESTS_SUPPORT_RANKS_H

#include <stdbool.h>

#include "comm/comm.h"

/* Whether mpirun is there; says loudly what is skipped without it. */
bool ranks_can_start(void);
/* Runs this program under mpirun; 0: every rank ended well, 1: not so. */
int ranks_run(const char *self, int ranks);
/* In such a rank: the job, to be closed. Ends the program where there is none. */
struct gd_comm *ranks_join(void);

#endif
