/*
 * Lists of methods: names, the whole search space, passes that all go without.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pass/method.h"
#include "support/ok.h"

static void check(const char *list, bool several, const char *without, int expected,
                  const char *last) {
  struct gd_arena arena = {0};
  struct gd_method *methods;
  struct gd_error err = {0};
  char name[GD_METHOD_NAME];
  int count;
  OK(gd_method_parse_list(list, several, without, &arena, &methods, &count, &err));
  assert_int_equal(count, expected);
  assert_string_equal(gd_method_name(&methods[count - 1], name), last);
  gd_arena_deinit(&arena);
}

static void names_and_all(void **state) {
  (void)state;
  check("naive", false, NULL, 1, "naive");
  check("naive,ckpt+free-lunch", false, NULL, 2, "free-lunch+ckpt");
  check("all,naive", false, NULL, 13, "naive");
  check("all,all", true, NULL, 44, "free-lunch+ckpt+fsdp3+offload");
}

static void each_goes_without(void **state) {
  (void)state;
  check("naive,free-lunch", false, "compile", 2, "free-lunch without compile");
}

static void refused(const char *list, const char *without) {
  struct gd_arena arena = {0};
  struct gd_method *methods;
  struct gd_error err = {0};
  int count;
  assert_int_equal(gd_method_parse_list(list, false, without, &arena, &methods, &count, &err),
                   GD_BAD_INPUT);
  gd_arena_deinit(&arena);
}

static void what_is_no_method(void **state) {
  (void)state;
  refused("naive,", NULL);
  refused("", NULL);
  refused("naive,nonsense", NULL);
  refused("naive", "nonsense");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_and_all),
      cmocka_unit_test(each_goes_without),
      cmocka_unit_test(what_is_no_method),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
