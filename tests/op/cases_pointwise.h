/*
 * Cases of test_ops.c: slice, pad, cast, positions, mul, dropout, rmsnorm, rmsnorm_grad, pool, pool_grad.
 */
#ifndef GD_TESTS_OP_CASES_POINTWISE_H
#define GD_TESTS_OP_CASES_POINTWISE_H

static void cases_slice(void) {
}

static void cases_pad(void) {
}

static void cases_cast(void) {
}

static void cases_positions(void) {
}

static void cases_mul(void) {
}

static void cases_dropout(void) {
}

static void cases_rmsnorm(void) {
}

static void cases_rmsnorm_grad(void) {
}

static void cases_pool(void) {
}

static void cases_pool_grad(void) {
}

#endif
