/* The user's folders, the table of environment switches, and the CPUs of this process. */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpus.h"
#include "base/paths.h"
#include "base/switches.h"

static void test_xdg_first(void **state) {
  char path[64];
  (void)state;
  setenv("HOME", "/home/user", 1);
  setenv("XDG_CONFIG_HOME", "/etc/own", 1);
  unsetenv("XDG_DATA_HOME");
  setenv("XDG_CACHE_HOME", "relative", 1); /* is ignored */
  assert_true(gd_path_config("models", path, sizeof path));
  assert_string_equal(path, "/etc/own/gpudays/models");
  assert_true(gd_path_data("results.db", path, sizeof path));
  assert_string_equal(path, "/home/user/.local/share/gpudays/results.db");
  assert_true(gd_path_cache("kernels", path, sizeof path));
  assert_string_equal(path, "/home/user/.cache/gpudays/kernels");
}

static void test_neither_or_cut(void **state) {
  char path[24];
  (void)state;
  setenv("HOME", "/home/user", 1);
  unsetenv("XDG_CONFIG_HOME");
  assert_false(gd_path_config("a-name-that-is-too-long", path, sizeof path));
  assert_true(path[0] == '/');
  unsetenv("HOME");
  assert_false(gd_path_config("models", path, sizeof path));
  assert_string_equal(path, "");
}

static void test_switches(void **state) {
  size_t at = 0;
  int unknown = 0;
  (void)state;
  setenv("GPUDAYS_NCCL", "off", 1);
  setenv("GPUDAYS_NCL", "off", 1);
  assert_string_equal(gd_env("GPUDAYS_NCCL"), "off");
  assert_int_equal(gd_switch_find("GPUDAYS_NCCL=off")->kind, GD_SWITCH_TUNING);
  assert_null(gd_switch_find("GPUDAYS_NCL"));
  assert_null(gd_switch_find("GPUDAYS_NCCL_"));
  for (const char *found; (found = gd_switch_unknown(&at)); unknown++)
    assert_string_equal(found, "GPUDAYS_NCL=off");
  assert_int_equal(unknown, 1);
  for (int i = 0; i < gd_switch_count; i++) {
    assert_true(strncmp(gd_switches[i].name, "GPUDAYS_", 8) == 0);
    assert_true(i == 0 || strcmp(gd_switches[i - 1].name, gd_switches[i].name) < 0);
  }
}

/* What each form of values allows, and what a reader sees of a value that is not allowed. */
static void test_switch_values(void **state) {
  static const struct {
    const char *name, *value;
    bool allowed;
  } cases[] = {
      {"GPUDAYS_NCCL", "on", true},
      {"GPUDAYS_NCCL", "", true},
      {"GPUDAYS_NCCL", "ofg", false},
      {"GPUDAYS_NCCL", "on|off", false},
      {"GPUDAYS_NCCL", "On", false},
      {"GPUDAYS_TF32_EMULATED", "2", true},
      {"GPUDAYS_TF32_EMULATED", "3", false},
      {"GPUDAYS_TF32_EMULATED", "01", false},
      {"GPUDAYS_AUTOTUNE", "off", true},
      {"GPUDAYS_AUTOTUNE", "999", true},
      {"GPUDAYS_AUTOTUNE", "0", false},
      {"GPUDAYS_AUTOTUNE", "1000", false},
      {"GPUDAYS_AUTOTUNE", "+7", false},
      {"GPUDAYS_AUTOTUNE", "7x", false},
      {"GPUDAYS_AUTOTUNE", "1..999", false},
      {"GPUDAYS_AUTOTUNE", "99999999999999999999", false},
      {"GPUDAYS_ATTENTION_TILE", "w", true},
      {"GPUDAYS_ATTENTION_TILE", "9", true},
      {"GPUDAYS_ATTENTION_TILE", "10", false},
      {"GPUDAYS_DB", "any text", true},
  };
  struct gd_error err = {0};
  char text[64];
  (void)state;
  unsetenv("GPUDAYS_NCL");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct gd_switch *row = gd_switch_find(cases[i].name);
    bool is_choice = strcmp(row->values, "FILE") != 0;
    setenv(cases[i].name, cases[i].value, 1);
    memset(&err, 0, sizeof err);
    if (gd_switch_allows(row, cases[i].value) != cases[i].allowed ||
        (gd_switches_check(&err) == GD_OK) != cases[i].allowed)
      fail_msg("%s=%s", cases[i].name, cases[i].value);
    const char *seen = gd_env(cases[i].name);
    assert_string_equal(gd_switch_given(row), cases[i].value);
    assert_true(is_choice && (!cases[i].allowed || !cases[i].value[0]) ? !seen : seen != NULL);
    unsetenv(cases[i].name);
  }
  setenv("GPUDAYS_AUTOTUNE", "fast", 1);
  memset(&err, 0, sizeof err);
  assert_int_equal(gd_switches_check(&err), GD_BAD_INPUT);
  assert_string_equal(err.text,
                      "GPUDAYS_AUTOTUNE is \"fast\"; expected off or 1 to 999, or unset it");
  unsetenv("GPUDAYS_AUTOTUNE");
  assert_string_equal(gd_switch_values(gd_switch_find("GPUDAYS_TF32_EMULATED"), text, sizeof text),
                      "0, 1 or 2");
  for (int i = 0; i < gd_switch_count; i++) /* none is cut short */
    assert_in_range(strlen(gd_switch_values(&gd_switches[i], text, sizeof text)), 1,
                    sizeof text - 2);
}

static void test_cpus(void **state) {
  (void)state;
  assert_true(gd_cpus(0) >= 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_xdg_first), cmocka_unit_test(test_neither_or_cut),
      cmocka_unit_test(test_switches),  cmocka_unit_test(test_switch_values),
      cmocka_unit_test(test_cpus),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
