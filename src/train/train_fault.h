/*
 * Disturbances of a run on purpose, for tests/train: GPUDAYS_TEST_TRAIN is a list of FAULT@STEP or
 * FAULT@STEP=VALUE, joined by commas. STEP counts as the log does.
 *
 *   hold@12=FILE   every rank waits after step 12 while there is such a file
 *   stop@3         a signal, as it seems, at the first look during the evaluation of step 3
 *   norm@40        the gradient of step 40 is 1024 times what it is; likewise
 *   loss@40        its loss
 *   late@10        the time limit, as it seems, ends the run with step 10
 *   within@10      likewise, after the first micro-step of step 10, which is not made
 *   slow@1=500     every step from the first on takes 500 ms more
 *   flip@40        a micro-step of step 40 that is repeated has another loss
 */
#ifndef GD_TRAIN_TRAIN_FAULT_H
#define GD_TRAIN_TRAIN_FAULT_H

#include <stdbool.h>
#include <stdint.h>

bool gd_train_fault(const char *name, int64_t step);
/* Waits as hold@STEP=FILE says; asked may end it. */
void gd_train_fault_hold(int64_t step, bool (*asked)(void *user), void *user);

/* Sleeps as slow@1=MS says. */
void gd_train_fault_slow(int64_t step);

#endif
