/*
 * Cases of test_ops.c: depthwise, depthwise_dx, depthwise_dw.
 */
#ifndef GD_TESTS_OP_CASES_DEPTHWISE_H
#define GD_TESTS_OP_CASES_DEPTHWISE_H

static void cases_depthwise(void) {
}

static void cases_depthwise_dx(void) {
}

static void cases_depthwise_dw(void) {
}

#endif
