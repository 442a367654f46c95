/*
 * Every status has a code, and a code that came from one stands for a status with the same code.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/exit_code.h"

static void test_there_and_back(void **state) {
  (void)state;
  for (int status = GD_OK; status <= GD_INTERNAL; status++) {
    enum gd_exit code = gd_exit_of((enum gd_status)status);
    assert_int_equal(gd_exit_of(gd_exit_status((int)code)), code);
  }
  for (int code = 0; code < GD_EXIT_COUNT; code++)
    assert_int_equal(gd_exit_of(gd_exits[code].status), code);
  assert_int_equal(gd_exit_status(5), GD_INTERNAL);
  assert_int_equal(gd_exit_status(-1), GD_INTERNAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_there_and_back)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
