/*
 * Cases of test_ops.c: conv1d, conv1d_dx, conv1d_dw.
 */
#ifndef GD_TESTS_OP_CASES_CONV1D_H
#define GD_TESTS_OP_CASES_CONV1D_H

static void cases_conv1d(void) {
}

static void cases_conv1d_dx(void) {
}

static void cases_conv1d_dw(void) {
}

#endif
