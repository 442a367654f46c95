/*
 * Runs a piece of code again and again, with the first, second, third ... request for memory
 * failing, until it no longer asks for that many (past 256 in growing steps, or long code would
 * take forever; past the first 64 a third of them, see sample.h). jansson's requests count too.
 * Each time the code must report, never crash, and leave no block behind.
 *
 *   assert_int_equal(fault_sweep(open_and_close, NULL), GD_OK);
 */
#ifndef GD_TESTS_SUPPORT_FAULT_H
#define GD_TESTS_SUPPORT_FAULT_H

#include "base/status.h"

/* Frees whatever it made before it returns, whatever it returns. */
typedef enum gd_status (*fault_attempt)(void *context, struct gd_error *err);

/* The status of the undisturbed run. A leak, a failure without a sentence or code that never asks
   for memory fails the cmocka test. */
enum gd_status fault_sweep(fault_attempt attempt, void *context);

#endif
