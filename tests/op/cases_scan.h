/*
 * Cases of test_ops.c: scan, scan_grad.
 */
#ifndef GD_TESTS_OP_CASES_SCAN_H
#define GD_TESTS_OP_CASES_SCAN_H

static void cases_scan(void) {
}

static void cases_scan_grad(void) {
}

#endif
