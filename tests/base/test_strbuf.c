/*
 * Strings: the growing buffer, number formats and their parsers, edit distance, and which
 * characters may be shown on a terminal.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/strbuf.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void test_strbuf(void **state) {
  (void)state;
  int64_t blocks = gd_mem_live_blocks();
  struct gd_strbuf buf = {0};
  gd_strbuf_append(&buf, "");
  assert_string_equal(buf.text, "");
  for (int i = 0; i < 1000; i++)
    gd_strbuf_printf(&buf, "%03d,", i);
  gd_strbuf_append(&buf, "end");
  assert_false(buf.failed);
  assert_int_equal(buf.length, 4003);
  assert_int_equal(strlen(buf.text), 4003);
  assert_memory_equal(buf.text, "000,001,", 8);
  assert_string_equal(buf.text + 4000 - 4, "999,end");
  gd_strbuf_deinit(&buf);
  gd_strbuf_deinit(&buf);
  assert_int_equal(gd_mem_live_blocks(), blocks);

  gd_strbuf_append(&buf, "kept");
  gd_mem_fail_after(1);
  gd_strbuf_printf(&buf, "%500s", "lost");
  gd_strbuf_append(&buf, "also lost"); /* though there would be room: failure is sticky */
  assert_true(buf.failed);
  assert_string_equal(buf.text, "kept");
  gd_strbuf_deinit(&buf);
  gd_mem_fail_after(1);
  gd_strbuf_append(&buf, "x");
  assert_true(buf.failed);
  gd_strbuf_deinit(&buf);
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

static void test_format_bytes(void **state) {
  (void)state;
  static const struct {
    int64_t bytes;
    const char *text;
  } cases[] = {
      {0, "0 B"},
      {1, "1 B"},
      {1023, "1023 B"},
      {1024, "1.00 KiB"},
      {1536, "1.50 KiB"},
      {10 * 1024 + 1, "10.0 KiB"},
      {100 * 1024, "100 KiB"},
      {1024 * 1024 - 1, "1.00 MiB"}, /* not 1024 KiB */
      {(int64_t)3 << 29, "1.50 GiB"},
      {(int64_t)80 << 30, "80.0 GiB"},
      {INT64_MAX, "8.00 EiB"},
      {-2048, "-2.00 KiB"},
  };
  char text[32];
  for (size_t i = 0; i < COUNT(cases); i++)
    assert_string_equal(gd_format_bytes(text, sizeof text, cases[i].bytes), cases[i].text);
}

static void test_format_count(void **state) {
  (void)state;
  char text[32];
  assert_string_equal(gd_format_count(text, sizeof text, 0), "0");
  assert_string_equal(gd_format_count(text, sizeof text, 999), "999");
  assert_string_equal(gd_format_count(text, sizeof text, 1000), "1,000");
  assert_string_equal(gd_format_count(text, sizeof text, 162322944), "162,322,944");
  assert_string_equal(gd_format_count(text, sizeof text, -123456), "-123,456");
  assert_string_equal(gd_format_count(text, sizeof text, INT64_MIN), "-9,223,372,036,854,775,808");
}

static void test_parse_bytes(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int64_t bytes;
  } good[] = {
      {"0B", 0},
      {"4096B", 4096},
      {"512MiB", 512 << 20},
      {"2GiB", (int64_t)2 << 30},
      {"2 GiB", (int64_t)2 << 30},
      {"1.5G", (int64_t)3 << 29},
      {"1.5gb", 1500000000},
      {"1k", 1024},
      {"1kb", 1000},
      {".5M", 1 << 19},
      {"2T", (int64_t)2 << 40},
  };
  static const char *const bad[] = {"",     "24",       "1.5",   "GiB",  "-1",    "+1",
                                    "nan",  "inf",      "1e999", "0x1p", "1 2 G", "1Gi",
                                    "1PiB", "5000000T", " 1",    "1G "};
  int64_t bytes;
  for (size_t i = 0; i < COUNT(good); i++) {
    if (!gd_parse_bytes(good[i].text, &bytes))
      fail_msg("\"%s\" is a size", good[i].text);
    assert_int_equal(bytes, good[i].bytes);
  }
  for (size_t i = 0; i < COUNT(bad); i++)
    if (gd_parse_bytes(bad[i], &bytes))
      fail_msg("\"%s\" is no size", bad[i]);
}

static void test_parse_int(void **state) {
  (void)state;
  static const char *const bad[] = {"",   "-",   "1x",   " 1",
                                    "+1", "1.0", "0x10", "9223372036854775808"};
  int64_t value;
  assert_true(gd_parse_int("17", 0, 17, &value));
  assert_int_equal(value, 17);
  assert_true(gd_parse_int("-17", -17, 17, &value));
  assert_int_equal(value, -17);
  assert_true(gd_parse_int("9223372036854775807", 0, INT64_MAX, &value));
  assert_false(gd_parse_int("18", 0, 17, &value));
  assert_false(gd_parse_int("-1", 0, 17, &value));
  for (size_t i = 0; i < COUNT(bad); i++)
    if (gd_parse_int(bad[i], INT64_MIN, INT64_MAX, &value))
      fail_msg("\"%s\" is no integer", bad[i]);
}

static void test_edit_distance(void **state) {
  (void)state;
  char long_word[200];
  assert_int_equal(gd_edit_distance("", ""), 0);
  assert_int_equal(gd_edit_distance("", "abc"), 3);
  assert_int_equal(gd_edit_distance("abc", ""), 3);
  assert_int_equal(gd_edit_distance("kitten", "sitting"), 3);
  assert_int_equal(gd_edit_distance("pythia-16m", "pythia-160m"), 1);
  assert_int_equal(gd_edit_distance("pythia-16m", "pythia-1b"), 2);
  memset(long_word, 'a', sizeof long_word - 1);
  long_word[sizeof long_word - 1] = '\0';
  assert_int_equal(gd_edit_distance(long_word, "a"), 63); /* far, whatever it is */
  long_word[63] = '\0';
  assert_int_equal(gd_edit_distance(long_word, ""), 63);
  assert_true(gd_edit_within("kitten", "sitting", 3));
  assert_false(gd_edit_within("kitten", "sitting", 2));
  assert_true(gd_edit_within("", "", 0));
  assert_true(gd_edit_within("abc", "abc", 0));
  assert_false(gd_edit_within("abc", "abd", 0));
  assert_false(gd_edit_within(long_word, "a", 2));
}

static void test_shown(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool shown;
    size_t bytes;
  } cases[] = {
      {"a", true, 1},
      {"\xc3\xa9", true, 2},
      {"\xe2\x82\xac", true, 3},
      {"\xf0\x9f\x98\x80", true, 4},
      {"\033[2J", false, 1},
      {"\x7f", false, 1},
      {"\xc2\x9b", false, 2},         /* U+009B, which is ESC [ */
      {"\x9b", false, 1},             /* the same byte alone */
      {"\xe2\x80\xae", false, 3},     /* U+202E, right to left */
      {"\xe2\x80\xaa", false, 3},     /* U+202A */
      {"\xe2\x80\xaf", true, 3},      /* U+202F, a narrow space */
      {"\xe2\x80\x8e", false, 3},     /* U+200E */
      {"\xe2\x80\x8f", false, 3},     /* U+200F */
      {"\xe2\x80\x8d", true, 3},      /* U+200D, which joins emoji */
      {"\xe2\x81\xa6", false, 3},     /* U+2066 */
      {"\xe2\x81\xa9", false, 3},     /* U+2069 */
      {"\xd8\x9c", false, 2},         /* U+061C */
      {"\xc0\xaf", false, 1},         /* overlong */
      {"\xed\xa0\x80", false, 1},     /* a surrogate */
      {"\xf4\x90\x80\x80", false, 1}, /* above U+10FFFF */
      {"\xe2\x80", false, 1},         /* cut short */
      {"\xff", false, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t bytes = 0;
    assert_int_equal(gd_text_shown(cases[i].text, &bytes), cases[i].shown);
    assert_int_equal(bytes, cases[i].bytes);
  }
}

static void test_clean(void **state) {
  (void)state;
  struct gd_error err = {0};
  struct gd_strbuf out = {0};
  char text[] = "a\033[31mb\tc\nd\xe2\x80\xaez\xc3\xa9\x9b";
  gd_text_clean(text);
  assert_string_equal(text, "a?[31mb\tc\nd?z\xc3\xa9?");
  (void)gd_fail(&err, GD_BAD_INPUT, "no model \"%s\"", "x\r\033]0;t\007\nok \xe2\x80\xaey");
  assert_string_equal(err.text, "no model \"x??]0;t? ok ?y\"");
  gd_strbuf_clean(&out, false); /* nothing at all */
  assert_null(out.text);
  gd_strbuf_append(&out, "\033[1mbold\033[0m \033[2J\xe2\x80\xae\n");
  gd_strbuf_clean(&out, false);
  assert_string_equal(out.text, "\033[1mbold\033[0m ?[2J?\n");
  gd_strbuf_deinit(&out);
  gd_strbuf_append(&out, "{\"a\": \"\xe2\x80\xae\x7f\xc2\x9b\xc3\xa9\"}\n");
  gd_strbuf_clean(&out, true);
  assert_string_equal(out.text, "{\"a\": \"\\u202e\\u007f\\u009b\xc3\xa9\"}\n");
  gd_strbuf_deinit(&out);
  for (size_t at = 0; at < 200; at++) { /* wherever it stands in a long text */
    static const char odd[] = "\x01\x1f\x7f\x80\xff\r";
    char expected[201];
    memset(expected, '~', 200);
    expected[200] = '\0';
    gd_strbuf_append(&out, expected);
    out.text[at] = odd[at % (sizeof odd - 1)];
    out.text[199 - at] = '\n';
    expected[at] = '?';
    expected[199 - at] = '\n';
    gd_strbuf_clean(&out, false);
    assert_string_equal(out.text, expected);
    gd_strbuf_deinit(&out);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_strbuf),       cmocka_unit_test(test_format_bytes),
      cmocka_unit_test(test_format_count), cmocka_unit_test(test_parse_bytes),
      cmocka_unit_test(test_parse_int),    cmocka_unit_test(test_edit_distance),
      cmocka_unit_test(test_shown),        cmocka_unit_test(test_clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
