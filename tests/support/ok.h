/*
 * OK(call): the call succeeds, or the test fails with what `err`, which is in scope, says.
 */
#ifndef GD_TESTS_SUPPORT_OK_H
#define GD_TESTS_SUPPORT_OK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define OK(expr)                           \
  do {                                     \
    if ((expr) != GD_OK)                   \
      fail_msg("%s: %s", #expr, err.text); \
  } while (0)

#endif
