/*
 * JSON reading: what is wrong with a file is said in one sentence with the file, the place and the
 * remedy; fields are found, converted and bounded; nothing leaks, memory running out included.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "support/fault.h"
#include "support/scratch.h"

static enum gd_status parse(struct gd_json *json, const char *text, struct gd_error *err) {
  *err = (struct gd_error){0};
  return gd_json_parse(json, "config.json", text, (int64_t)strlen(text), err);
}

static void expect_sentence(const char *text, const char *sentence) {
  struct gd_json json;
  struct gd_error err;
  assert_int_equal(parse(&json, text, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, sentence);
  assert_null(json.root);
}

static void test_syntax(void **state) {
  (void)state;
  expect_sentence("", "config.json: empty; expected a JSON object");
  expect_sentence("[1, 2]", "config.json: the outermost value is an array; expected an object");
  expect_sentence("3", "config.json: line 1, column 1 (byte 1): '[' or '{' expected near '3'");
  expect_sentence("{\"a\": NaN}",
                  "config.json: line 1, column 9 (byte 9): invalid token near 'NaN'");
  expect_sentence("{\"a\": -Infinity}",
                  "config.json: line 1, column 7 (byte 7): invalid token near '-'");
  expect_sentence("{\"a\": 1,\n \"a\": 2}",
                  "config.json: line 2, column 4 (byte 13): duplicate object key near '\"a\"'");
  expect_sentence("{\"a\": 1",
                  "config.json: line 1, column 7 (byte 7): '}' expected near end of file; is the "
                  "file complete?");
  expect_sentence("{\"a\": \"b", "config.json: line 1, column 8 (byte 8): premature end of input "
                                 "near '\"b'; is the file complete?");
  expect_sentence("{} {}", "config.json: line 1, column 4 (byte 4): end of file expected near '{'");
  expect_sentence("{\"a\": 1e999}",
                  "config.json: line 1, column 11 (byte 11): real number overflow near '1e999'");
  expect_sentence("{\"a\": 99999999999999999999}", "config.json: line 1, column 26 (byte 26): too "
                                                   "big integer near '99999999999999999999'");
  expect_sentence("\xef\xbb\xbf{}",
                  "config.json: byte 0: a byte order mark; save the file as UTF-8 without one");
}

/* Control characters of the file do not reach the message. */
static void test_binary(void **state) {
  (void)state;
  struct gd_json json;
  struct gd_error err;
  assert_int_equal(parse(&json, "\x89PNG\r\n\x1a\n", &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "byte "));
  assert_int_equal(parse(&json, "{\x1b[2J\n", &err), GD_BAD_INPUT);
  for (const char *at = err.text; *at; at++)
    assert_true((unsigned char)*at >= 0x20);
  err = (struct gd_error){0};
  assert_int_equal(gd_json_parse(&json, "zero", "{\"a\"\0:1}", 8, &err), GD_BAD_INPUT);
}

static void test_depth(void **state) {
  (void)state;
  enum { DEPTH = 100000 };
  struct gd_json json;
  struct gd_error err = {0};
  char *text = gd_mem_alloc(DEPTH, 1);
  memset(text, '[', DEPTH);
  assert_int_equal(gd_json_parse(&json, "deep.json", text, DEPTH, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "maximum parsing depth reached"));
  /* The deepest that is accepted: naming a field down there must not be too much either. */
  enum { DEEPEST = 2046 };
  size_t length = 0;
  for (int i = 0; i < DEEPEST; i++) {
    memcpy(text + length, "{\"k\":", 5);
    length += 5;
  }
  memcpy(text + length, "{}", 2);
  length += 2;
  memset(text + length, '}', DEEPEST);
  length += DEEPEST;
  err = (struct gd_error){0};
  assert_int_equal(gd_json_parse(&json, "deep.json", text, (int64_t)length, &err), GD_OK);
  const json_t *at = json.root;
  while (json_object_size(at) > 0)
    at = json_object_get(at, "k");
  int64_t value;
  assert_int_equal(gd_json_int(&json, at, "x", 0, 1, &value, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "deep.json: k.k.k."));
  gd_json_deinit(&json);
  gd_mem_free(text);
}

static void test_files(void **state) {
  (void)state;
  struct gd_json json;
  struct gd_error err = {0};
  assert_int_equal(gd_json_load(&json, scratch_path("none.json"), &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "none.json: cannot be opened: No such file or directory"));

  err = (struct gd_error){0};
  assert_int_equal(gd_json_load(&json, scratch_path(""), &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, ": a folder; name a JSON file"));

  err = (struct gd_error){0};
  scratch_write("empty.json", "", 0);
  assert_int_equal(gd_json_load(&json, scratch_path("empty.json"), &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "empty.json: empty; expected a JSON object"));

  err = (struct gd_error){0};
  scratch_write("huge.json", "{", 1);
  assert_int_equal(truncate(scratch_path("huge.json"), (16 << 20) + 1), 0);
  assert_int_equal(gd_json_load(&json, scratch_path("huge.json"), &err), GD_BAD_INPUT);
  assert_non_null(
      strstr(err.text, "has 16777217 bytes, more than the 16 MiB a JSON file may have"));

  /* A device has no size to ask for: the cap holds while reading. */
  err = (struct gd_error){0};
  assert_int_equal(gd_json_load(&json, "/dev/zero", &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "/dev/zero: larger than 16 MiB, the most a JSON file may have");

  err = (struct gd_error){0};
  scratch_write_text("fine.json", "{\"a\": 1}");
  assert_int_equal(gd_json_load(&json, scratch_path("fine.json"), &err), GD_OK);
  assert_int_equal(json_integer_value(json_object_get(json.root, "a")), 1);
  gd_json_deinit(&json);
  gd_json_deinit(&json);

  if (geteuid() != 0) { /* nothing is unreadable to root */
    err = (struct gd_error){0};
    assert_int_equal(chmod(scratch_path("fine.json"), 0), 0);
    assert_int_equal(gd_json_load(&json, scratch_path("fine.json"), &err), GD_BAD_INPUT);
    assert_non_null(strstr(err.text, "Permission denied"));
  }
}

/* A pipe, as `<(...)` of a shell gives: its end is met while reading. */
static void test_pipe(void **state) {
  (void)state;
  enum { LENGTH = 40000 };
  int ends[2];
  char path[64];
  char *text = gd_mem_alloc(LENGTH, 1);
  struct gd_json json;
  struct gd_error err = {0};
  memset(text, ' ', LENGTH);
  memcpy(text, "{\"a\": 1", 7);
  text[LENGTH - 1] = '}';
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(write(ends[1], text, LENGTH), LENGTH); /* a pipe holds 64 KiB */
  close(ends[1]);
  snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
  assert_int_equal(gd_json_load(&json, path, &err), GD_OK);
  gd_json_deinit(&json);
  close(ends[0]);
  gd_mem_free(text);
}

static const char fields[] =
    "{\"one\": 1, \"whole\": 1024.0, \"half\": 10.5, \"big\": 1e300, \"text\": \"abc\",\n"
    "\"none\": null, \"yes\": true, \"list\": [1, {\"deep\": {\"x\": -3}}], \"negative\": -7,\n"
    "\"esc\": \"a\\u001b[2Jb\\u009bc\", \"last\": 9223372036854775807, \"sub\": {\"lr\": 2}}";

static void expect_int_failure(const struct gd_json *json, const json_t *object, const char *key,
                               int64_t low, int64_t high, const char *sentence) {
  struct gd_error err = {0};
  int64_t value = 77;
  assert_int_equal(gd_json_int(json, object, key, low, high, &value, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, sentence);
  assert_int_equal(value, 77);
}

static void test_int(void **state) {
  (void)state;
  struct gd_json json;
  struct gd_error err = {0};
  int64_t value;
  assert_int_equal(parse(&json, fields, &err), GD_OK);
  const json_t *root = json.root;
  assert_int_equal(gd_json_int(&json, root, "one", 1, 1, &value, &err), GD_OK);
  assert_int_equal(value, 1);
  assert_int_equal(gd_json_int(&json, root, "whole", 0, 2000, &value, &err), GD_OK);
  assert_int_equal(value, 1024);
  assert_int_equal(gd_json_int(&json, root, "last", 0, INT64_MAX, &value, &err), GD_OK);
  assert_true(value == INT64_MAX);
  expect_int_failure(&json, root, "half", 0, 99,
                     "config.json: half is 10.5; expected a whole number from 0 to 99");
  expect_int_failure(&json, root, "big", 0, INT64_MAX,
                     "config.json: big is 1e+300; expected a whole number of at least 0");
  expect_int_failure(&json, root, "negative", 0, 9,
                     "config.json: negative is -7; expected a whole number from 0 to 9");
  expect_int_failure(&json, root, "text", 1, 9,
                     "config.json: text is \"abc\"; expected a whole number from 1 to 9");
  expect_int_failure(&json, root, "yes", 1, 9,
                     "config.json: yes is true; expected a whole number from 1 to 9");
  expect_int_failure(&json, root, "none", 1, 9,
                     "config.json: none is null; expected a whole number from 1 to 9");
  expect_int_failure(&json, root, "list", 1, 9,
                     "config.json: list is an array of 2; expected a whole number from 1 to 9");
  expect_int_failure(&json, root, "sub", 1, 9,
                     "config.json: sub is an object; expected a whole number from 1 to 9");
  expect_int_failure(&json, root, "esc", 1, 9,
                     "config.json: esc is \"a?[2Jb?c\"; expected a whole number from 1 to 9");
  expect_int_failure(&json, root, "hidden_size", 1, 9,
                     "config.json: hidden_size is missing; expected a whole number from 1 to 9");
  const json_t *deep = json_object_get(json_array_get(json_object_get(root, "list"), 1), "deep");
  expect_int_failure(&json, deep, "x", 0, 9,
                     "config.json: list[1].deep.x is -3; expected a whole number from 0 to 9");
  /* An object that is none at all is a missing field, not a crash. */
  expect_int_failure(&json, json_object_get(root, "text"), "y", 0, 9,
                     "config.json: text.y is missing; expected a whole number from 0 to 9");
  gd_json_deinit(&json);
}

static void test_others(void **state) {
  (void)state;
  struct gd_json json;
  struct gd_error err = {0};
  double number;
  bool truth = false;
  const char *text;
  assert_int_equal(parse(&json, fields, &err), GD_OK);
  const json_t *root = json.root;
  assert_int_equal(gd_json_number(&json, root, "one", 0, 1, &number, &err), GD_OK);
  assert_true(number == 1.0);
  assert_int_equal(gd_json_number(&json, root, "half", 0, HUGE_VAL, &number, &err), GD_OK);
  assert_true(number == 10.5);
  assert_int_equal(gd_json_bool(&json, root, "yes", &truth, &err), GD_OK);
  assert_true(truth);
  assert_int_equal(gd_json_string(&json, root, "text", &text, &err), GD_OK);
  assert_string_equal(text, "abc");
  assert_true(gd_json_has(root, "one"));
  assert_false(gd_json_has(root, "none"));
  assert_false(gd_json_has(root, "absent"));

  assert_int_equal(gd_json_number(&json, json_object_get(root, "sub"), "lr", 0, 1, &number, &err),
                   GD_BAD_INPUT);
  assert_string_equal(err.text, "config.json: sub.lr is 2; expected a number from 0 to 1");
  err = (struct gd_error){0};
  assert_int_equal(gd_json_number(&json, root, "text", 0, HUGE_VAL, &number, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "config.json: text is \"abc\"; expected a number of at least 0");
  err = (struct gd_error){0};
  assert_int_equal(gd_json_bool(&json, root, "one", &truth, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "config.json: one is 1; expected true or false");
  err = (struct gd_error){0};
  assert_int_equal(gd_json_string(&json, root, "none", &text, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "config.json: none is null; expected a string");
  err = (struct gd_error){0};
  assert_int_equal(gd_json_string(&json, root, "esc", &text, &err), GD_BAD_INPUT);
  assert_string_equal(err.text,
                      "config.json: esc is \"a?[2Jb?c\"; expected a string without control "
                      "characters");
  gd_json_deinit(&json);
}

static void test_excerpt(void **state) {
  (void)state;
  char text[12];
  assert_string_equal(gd_json_excerpt(text, sizeof text, ""), "");
  assert_string_equal(gd_json_excerpt(text, sizeof text, "elevenchars"), "elevenchars");
  assert_string_equal(gd_json_excerpt(text, sizeof text, "twelve chars"), "twelve c...");
  /* "u" with two dots is two bytes: the cut falls between characters. */
  assert_string_equal(gd_json_excerpt(text, sizeof text, "abcdefg\xc3\xbcxyzabc"), "abcdefg...");
  assert_string_equal(gd_json_excerpt(text, sizeof text, "a\nb\tc\x7f"), "a?b?c?");
  assert_string_equal(gd_json_excerpt(text, sizeof text, "\xc3\xbc\xc2\x9b"), "\xc3\xbc?");
}

/* A value as jansson writes it. */
static void expect_like_jansson(const struct gd_strbuf *out, json_t *value) {
  char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
  assert_non_null(text);
  assert_string_equal(out->text, text);
  free(text);
  json_decref(value);
}

static void test_append(void **state) {
  static const char *const texts[] = {"", "plain", "a \"b\" \\ /", "\n\t\r\b\f\x01\x1f\x7f",
                                      "\xc3\xbc, \xe2\x82\xac"};
  static const int64_t ints[] = {0, 1, -1, 42, INT64_MAX, INT64_MIN};
  static const double reals[] = {0,      -0.0,    1,      -1,     0.1,        1e15,
                                 1e16,   1e20,    1e-5,   1e-300, 1.5e300,    -2.5e-7,
                                 123456, 1.0 / 3, 5e-324, 0.0001, 1e14 + 0.5, 9007199254740993.0};
  struct gd_strbuf out = {0};
  uint64_t seed = 1;
  (void)state;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++, out.length = 0) {
    gd_json_append_text(&out, texts[i]);
    expect_like_jansson(&out, json_string(texts[i]));
  }
  for (size_t i = 0; i < sizeof ints / sizeof *ints; i++, out.length = 0) {
    gd_json_append_int(&out, ints[i]);
    expect_like_jansson(&out, json_integer(ints[i]));
  }
  for (size_t i = 0; i < sizeof reals / sizeof *reals; i++, out.length = 0) {
    gd_json_append_real(&out, reals[i]);
    expect_like_jansson(&out, json_real(reals[i]));
  }
  for (int i = 0; i < 20000; i++, out.length = 0) { /* any bits that are a number */
    double value;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    memcpy(&value, &seed, sizeof value);
    if (!isfinite(value))
      continue;
    gd_json_append_real(&out, value);
    expect_like_jansson(&out, json_real(value));
  }
  gd_strbuf_deinit(&out);
}

static enum gd_status load_once(void *context, struct gd_error *err) {
  struct gd_json json = {0};
  enum gd_status status = gd_json_load(&json, context, err);
  gd_json_deinit(&json);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  char path[1024];
  snprintf(path, sizeof path, "%s", scratch_path("memory.json"));
  scratch_write_text("memory.json", fields);
  assert_int_equal(fault_sweep(load_once, path), GD_OK);
  scratch_write_text("memory.json", "{\"a\": [1, 2, {\"b\": \"c\"}], ");
  assert_int_equal(fault_sweep(load_once, path), GD_BAD_INPUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_syntax), cmocka_unit_test(test_binary),  cmocka_unit_test(test_depth),
      cmocka_unit_test(test_files),  cmocka_unit_test(test_pipe),    cmocka_unit_test(test_int),
      cmocka_unit_test(test_others), cmocka_unit_test(test_excerpt), cmocka_unit_test(test_memory),
      cmocka_unit_test(test_append),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
