/*
 * For tests of the search: GPUDAYS_TEST_FAULT=METHOD=FAULT breaks the trial of that method in a way
 * that real ones break, at rank 0; absentRANK, stoppedRANK and killedRANK say at which. held=FILE
 * is a trial that takes as long as FILE is there, spun one that has less of busy
 * CPUs unless OMP_WAIT_POLICY is set.
 */
#ifndef GD_SEARCH_CHILD_FAULT_H
#define GD_SEARCH_CHILD_FAULT_H

#include "trial/choose.h"

/* Of a trial that is about to run. Nothing happens where the variable is not set. */
void gd_child_inject_fault(int rank, struct gd_trial_options *options);

#endif
