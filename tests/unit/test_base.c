/*
 * The ground everything stands on: memory and arenas with their fault switch, strings, number
 * formats, the random generator against its published answers, and the half-precision conversions
 * over every pattern they can meet.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "ir/dtype.h"
#include "support/bits.h"

#if defined __SANITIZE_ADDRESS__
#define ADDRESS_SANITIZER
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER
#endif
#endif
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- status -------------------------------------------------------------------------------- */

static enum gd_status fails(struct gd_error *err) {
  GD_TRY(gd_fail(err, GD_BAD_INPUT, "first: %d", 1));
  return GD_OK;
}

static void test_status(void **state) {
  (void)state;
  struct gd_error err = {0};
  assert_int_equal(fails(&err), GD_BAD_INPUT);
  assert_int_equal(gd_fail(&err, GD_INTERNAL, "second"), GD_INTERNAL);
  assert_int_equal(err.status, GD_BAD_INPUT); /* the first failure is the cause */
  assert_string_equal(err.text, "first: 1");
  assert_non_null(strstr(err.file, "test_base.c"));
  assert_int_equal(fails(NULL), GD_BAD_INPUT);
  err = (struct gd_error){0};
  assert_int_equal(gd_fail(&err, GD_INTERNAL, "%2000s", "x"), GD_INTERNAL);
  assert_int_equal(strlen(err.text), sizeof err.text - 1);
  for (int status = GD_OK; status <= GD_INTERNAL; status++)
    assert_string_not_equal(gd_status_name((enum gd_status)status), "unknown");
}

/* --- memory -------------------------------------------------------------------------------- */

static bool all_zero(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (bytes[i] != 0)
      return false;
  return true;
}

static void test_memory(void **state) {
  (void)state;
  int64_t blocks = gd_mem_live_blocks();
  unsigned char *block = gd_mem_alloc(100, 1);
  assert_non_null(block);
  assert_true(all_zero(block, 100));
  assert_int_equal(gd_mem_live_blocks(), blocks + 1);
  memset(block, 0xaa, 100);
  block = gd_mem_grow(block, 100, 1000, 1);
  assert_non_null(block);
  assert_int_equal(block[99], 0xaa);
  assert_true(all_zero(block + 100, 900));
  assert_int_equal(gd_mem_live_blocks(), blocks + 1);
  gd_mem_free(block);
  gd_mem_free(NULL);
  assert_int_equal(gd_mem_live_blocks(), blocks);

  void *nothing = gd_mem_alloc(0, 8); /* still a block of its own, not NULL */
  assert_non_null(nothing);
  gd_mem_free(nothing);
  volatile size_t many = SIZE_MAX / 8 + 2; /* times 8 wraps to 8 */
  assert_null(gd_mem_grow(NULL, 0, many, 8));
#ifndef ADDRESS_SANITIZER /* its calloc reports where the C library's returns NULL */
  assert_null(gd_mem_alloc(many, 8));
#endif
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

static void test_fault(void **state) {
  (void)state;
  int64_t blocks = gd_mem_live_blocks();
  gd_mem_fail_after(3);
  void *first = gd_mem_alloc(1, 1), *second = gd_mem_alloc(1, 1), *third = gd_mem_alloc(1, 1);
  void *fourth = gd_mem_alloc(1, 1);
  assert_non_null(first);
  assert_non_null(second);
  assert_null(third); /* the third and no other */
  assert_non_null(fourth);
  gd_mem_fail_after(1);
  assert_null(gd_mem_grow(first, 1, 2, 1)); /* first stays the caller's */
  gd_mem_fail_after(1);
  gd_mem_fail_after(0);
  first = gd_mem_grow(first, 1, 2, 1);
  assert_non_null(first);
  gd_mem_free(first);
  gd_mem_free(second);
  gd_mem_free(fourth);
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

static void test_arena(void **state) {
  (void)state;
  struct gd_arena arena = {0};
  int64_t blocks = gd_mem_live_blocks();
  unsigned char *previous_end = NULL;
  for (size_t size = 0; size < 3000; size += 7) {
    unsigned char *block = gd_arena_alloc(&arena, size, 1);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 16, 0);
    assert_true(all_zero(block, size));
    memset(block, 0xff, size); /* what the next one gets is zero all the same */
    previous_end = block + size;
  }
  assert_non_null(previous_end);
  unsigned char *large = gd_arena_alloc(&arena, 1 << 20, 1);
  assert_non_null(large);
  assert_true(all_zero(large, 1 << 20));
  assert_string_equal(gd_arena_copy_string(&arena, "text"), "text");
  assert_string_equal(gd_arena_copy_string(&arena, ""), "");
  assert_string_equal(gd_arena_printf(&arena, "layer.%d", 12), "layer.12");
  assert_null(gd_arena_alloc(&arena, SIZE_MAX / 8 + 2, 8));
  assert_null(gd_arena_alloc(&arena, SIZE_MAX, 1));
  assert_true(gd_mem_live_blocks() > blocks);
  gd_arena_deinit(&arena);
  gd_arena_deinit(&arena);
  assert_int_equal(gd_mem_live_blocks(), blocks);
  gd_mem_fail_after(1);
  assert_null(gd_arena_copy_string(&arena, "text"));
  gd_mem_fail_after(1);
  assert_null(gd_arena_printf(&arena, "%d", 1));
  gd_arena_deinit(&arena);
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

static void test_sizes(void **state) {
  (void)state;
  int64_t value;
  assert_true(gd_size_mul(INT64_MAX, 1, &value));
  assert_true(value == INT64_MAX);
  assert_true(gd_size_mul(INT64_MAX, 0, &value));
  assert_true(value == 0);
  assert_false(gd_size_mul(INT64_MAX / 2 + 1, 2, &value));
  assert_false(gd_size_mul((int64_t)1 << 32, (int64_t)1 << 32, &value));
  assert_true(gd_size_add(INT64_MAX - 1, 1, &value));
  assert_false(gd_size_add(INT64_MAX, 1, &value));
}

static void test_vector(void **state) {
  (void)state;
  int64_t blocks = gd_mem_live_blocks();
  int64_t *items = NULL;
  uint32_t capacity = 0;
  for (uint32_t i = 0; i < 1000; i++) {
    assert_true(gd_vec_reserve((void **)&items, &capacity, i + 1, sizeof *items));
    items[i] = i;
  }
  for (uint32_t i = 0; i < 1000; i++)
    assert_int_equal(items[i], i);
  assert_true(gd_vec_reserve((void **)&items, &capacity, 5000, sizeof *items));
  assert_int_equal(capacity, 5000);
  gd_mem_fail_after(1);
  assert_false(gd_vec_reserve((void **)&items, &capacity, 5001, sizeof *items));
  assert_int_equal(capacity, 5000);
  assert_int_equal(items[999], 999);
  gd_mem_free(items);
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

/* --- strings ------------------------------------------------------------------------------- */

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

/* --- what may be shown --------------------------------------------------------------------- */

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
}

/* --- random numbers ------------------------------------------------------------------------ */

/* Known answers of the Random123 distribution for philox4x32-10. */
static void test_philox(void **state) {
  (void)state;
  static const struct {
    uint64_t seed, stream, index; /* key, counter words 2 and 3, counter words 0 and 1 */
    uint32_t answer[4];
  } cases[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      /* Digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0. */
      {0x299f31d0a4093822,
       0x0370734413198a2e,
       0x85a308d3243f6a88,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    uint32_t words[4];
    gd_rng_philox(cases[i].seed, cases[i].stream, cases[i].index, words);
    assert_memory_equal(words, cases[i].answer, sizeof words);
  }
}

/*
 * Of a million elements: the share that is kept, its variance over blocks of 100, and what
 * elements 1 to 9 apart (of the same word, of the same counter, of the next) have in common, all
 * within five standard deviations; so for steps, streams and seeds that follow each other, which is
 * how dropouts of a run are told apart.
 */
static void test_dropout(void **state) {
  (void)state;
  enum { N = 1000000, BLOCK = 100, LAGS = 9 };
  static unsigned char kept[N + LAGS];
  static unsigned char last[N];
  /* Counter 0 is a known answer of the Random123 distribution for philox4x32-7. */
  static const uint32_t known[2][4] = {{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48},
                                       {0x1df8a382, 0x46b9669e, 0xfa04da42, 0x14f30e67}};
  for (uint64_t e = 0; e < 8; e++) {
    uint32_t shift = e % 2 ? 16 : 0;
    assert_int_equal(gd_rng_dropout(0, 0, e), known[0][e / 2] >> shift & 0xffff);
    assert_int_equal(gd_rng_dropout(42, 0x500000003, 0xffffffff0 + e),
                     known[1][e / 2] >> shift & 0xffff);
  }
  for (int series = 0; series < 5; series++) {
    uint64_t seed = 7 + (series == 1), step = 100 + (series == 2), layer = 3 + (series == 3);
    double probability = series == 4 ? 0.5 : 0.1, n = N;
    uint32_t threshold = gd_rng_dropout_threshold(probability);
    double p = threshold / 65536.0, q = 1 - p, squares = 0;
    assert_true(fabs(p - probability) <= 0x1p-17);
    assert_true(fabs(gd_rng_dropout_scale(probability) * q - 1) < 1e-15);
    int64_t total = 0, together = 0;
    for (uint64_t i = 0; i < N + LAGS; i++)
      kept[i] = gd_rng_dropout(seed, layer << 32 | step, i) >= threshold;
    for (int64_t i = 0; i < N; i += BLOCK) {
      int64_t sum = 0;
      for (int64_t k = 0; k < BLOCK; k++)
        sum += kept[i + k];
      squares += ((double)sum - BLOCK * q) * ((double)sum - BLOCK * q);
      total += sum;
    }
    assert_true(fabs((double)total - n * q) < 5 * sqrt(n * p * q));
    /* The mean of N / BLOCK squares, each with a variance of about twice its mean squared. */
    assert_true(fabs(squares / (n * p * q) - 1) < 5 * sqrt(2.0 * BLOCK / n));
    for (int lag = 1; lag <= LAGS; lag++) {
      double sum = 0;
      for (int64_t i = 0; i < N; i++)
        sum += (kept[i] - q) * (kept[i + lag] - q);
      assert_true(fabs(sum) < 5 * sqrt(n) * p * q);
    }
    for (int64_t i = 0; i < N; i++)
      together += kept[i] && last[i];
    if (series > 0 && series < 4) /* two draws with the same probability */
      assert_true(fabs((double)together - n * q * q) < 5 * sqrt(n * q * q * (1 - q * q)));
    memcpy(last, kept, sizeof last);
  }
  assert_int_equal(gd_rng_dropout_threshold(0), 0);
  assert_int_equal(gd_rng_dropout_threshold(0.999999999), 65535);
  assert_true(gd_rng_dropout_scale(0) == 1);
}

static void test_draws(void **state) {
  (void)state;
  enum { DRAWS = 100003 };
  double sum = 0, squares = 0;
  int64_t seen[7] = {0};
  for (uint64_t i = 0; i < 20000; i++) {
    float u = gd_rng_uniform(1, 2, i);
    assert_true(u >= 0 && u < 1);
    sum += (double)u;
    int64_t below = gd_rng_below(1, 3, i, 7);
    assert_in_range(below, 0, 6);
    seen[below]++;
  }
  assert_true(fabs(sum / 20000 - 0.5) < 0.01); /* five standard errors */
  for (int i = 0; i < 7; i++)
    assert_true(fabs((double)seen[i] - 20000 / 7.0) < 260);

  float *values = gd_mem_alloc(DRAWS, sizeof *values);
  float few[6];
  gd_rng_normal(5, 6, 0.02, 0, values, DRAWS);
  for (int64_t first = 0; first <= 8; first += 4) { /* drawn alone, a slice is the same */
    gd_rng_normal(5, 6, 0.02, first, few, 6);
    assert_memory_equal(values + first, few, sizeof few);
  }
  sum = 0;
  for (int i = 0; i < DRAWS; i++) {
    assert_true(isfinite(values[i]));
    sum += (double)values[i];
    squares += (double)values[i] * (double)values[i];
  }
  assert_true(fabs(sum / DRAWS) < 5 * 0.02 / sqrt(DRAWS));
  assert_true(fabs(sqrt(squares / DRAWS) / 0.02 - 1) < 0.012);
  gd_mem_free(values);
}

static void test_hash(void **state) {
  (void)state;
  /* FNV-1a's published values. */
  assert_true(gd_hash_string("") == 0xcbf29ce484222325u);
  assert_true(gd_hash_string("a") == 0xaf63dc4c8601ec8cu);
  assert_true(gd_hash_string("foobar") == 0x85944171f73967e8u);
}

/* --- dtypes -------------------------------------------------------------------------------- */

static void test_round_trips(void **state) {
  (void)state;
  for (uint32_t pattern = 0; pattern <= 0xffff; pattern++) {
    uint16_t half = (uint16_t)pattern;
    bool bf16_nan = (half & 0x7f80) == 0x7f80 && (half & 0x7f) != 0;
    bool f16_nan = (half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0;
    uint16_t bf16 = gd_f32_to_bf16(gd_bf16_to_f32(half));
    uint16_t f16 = gd_f32_to_f16(gd_f16_to_f32(half));
    /* A NaN keeps sign and payload and becomes a quiet one. */
    assert_int_equal(bf16, bf16_nan ? half | 0x40 : half);
    assert_int_equal(f16, f16_nan ? half | 0x200 : half);
    assert_int_equal(isnan(gd_bf16_to_f32(half)) != 0, bf16_nan);
    assert_int_equal(isnan(gd_f16_to_f32(half)) != 0, f16_nan);
  }
}

/* What each f16 pattern means, from the definition. */
static void test_f16_values(void **state) {
  (void)state;
  for (int pattern = 0; pattern < 0x7c00; pattern++) {
    int exponent = pattern >> 10, mantissa = pattern & 0x3ff;
    double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    assert_true((double)gd_f16_to_f32((uint16_t)pattern) == value);
    assert_true((double)gd_f16_to_f32((uint16_t)(pattern | 0x8000)) == -value);
  }
  assert_true(gd_f16_to_f32(0x7c00) == INFINITY);
  assert_true(gd_f16_to_f32(0xfc00) == -INFINITY);
}

/* Between every two neighbours: the tie goes to the even one, a hair off it to the nearer one. */
static void test_rounding(void **state) {
  (void)state;
  for (uint32_t pattern = 0; pattern < 0x7bff; pattern++) {
    float low = gd_f16_to_f32((uint16_t)pattern), high = gd_f16_to_f32((uint16_t)(pattern + 1));
    float middle = (low + high) / 2; /* exact in fp32 */
    uint32_t even = pattern & 1 ? pattern + 1 : pattern;
    assert_int_equal(gd_f32_to_f16(middle), even);
    assert_int_equal(gd_f32_to_f16(-middle), even | 0x8000);
    assert_int_equal(gd_f32_to_f16(nextafterf(middle, 0)), pattern);
    assert_int_equal(gd_f32_to_f16(nextafterf(middle, INFINITY)), pattern + 1);
  }
  for (uint32_t pattern = 0; pattern < 0x7f80; pattern++) {
    uint32_t middle = pattern << 16 | 0x8000;
    uint32_t even = pattern & 1 ? pattern + 1 : pattern;
    assert_int_equal(gd_f32_to_bf16(float_of(middle)), even);
    assert_int_equal(gd_f32_to_bf16(float_of(middle | 0x80000000u)), even | 0x8000);
    assert_int_equal(gd_f32_to_bf16(float_of(middle - 1)), pattern);
    assert_int_equal(gd_f32_to_bf16(float_of(middle + 1)), pattern + 1);
  }
  /* The edges: past the largest finite number, below half the smallest. */
  assert_int_equal(gd_f32_to_f16(65504.0f), 0x7bff);
  assert_int_equal(gd_f32_to_f16(65519.996f), 0x7bff);
  assert_int_equal(gd_f32_to_f16(65520.0f), 0x7c00);
  assert_int_equal(gd_f32_to_f16(-1e30f), 0xfc00);
  assert_int_equal(gd_f32_to_f16(0x1p-25f), 0);
  assert_int_equal(gd_f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
  assert_int_equal(gd_f32_to_f16(float_of(1)), 0);
  assert_int_equal(gd_f32_to_f16(float_of(0x80000001)), 0x8000);
  assert_int_equal(gd_f32_to_bf16(3.4028235e38f), 0x7f80);
  assert_int_equal(gd_f32_to_bf16(INFINITY), 0x7f80);
  /* A NaN whose payload is in the low bits only must not become an infinity. */
  assert_int_equal(gd_f32_to_bf16(float_of(0x7f800001)), 0x7fc0);
  assert_int_equal(gd_f32_to_f16(float_of(0xff800001)), 0xfe00);
}

static void test_dtypes(void **state) {
  (void)state;
  static const float values[] = {0, -1.5f, 100, -3};
  for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++) {
    unsigned char storage[16] __attribute__((aligned(16)));
    enum gd_dtype parsed;
    assert_true(gd_dtype_parse(gd_dtype_name((enum gd_dtype)dtype), &parsed));
    assert_int_equal(parsed, dtype);
    for (int64_t i = 0; i < 4; i++)
      gd_dtype_store((enum gd_dtype)dtype, storage, i, values[i]);
    for (int64_t i = 0; i < 4; i++) {
      float expected = dtype == GD_DTYPE_I32 ? (float)(int32_t)values[i] : values[i];
      assert_int_equal(bits_of(gd_dtype_load((enum gd_dtype)dtype, storage, i)), bits_of(expected));
    }
  }
  enum gd_dtype parsed;
  assert_true(gd_dtype_parse("bfloat16", &parsed));
  assert_int_equal(parsed, GD_DTYPE_BF16);
  assert_false(gd_dtype_parse("float64", &parsed));
  assert_false(gd_dtype_parse("", &parsed));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status),       cmocka_unit_test(test_memory),
      cmocka_unit_test(test_fault),        cmocka_unit_test(test_arena),
      cmocka_unit_test(test_sizes),        cmocka_unit_test(test_vector),
      cmocka_unit_test(test_strbuf),       cmocka_unit_test(test_format_bytes),
      cmocka_unit_test(test_format_count), cmocka_unit_test(test_parse_bytes),
      cmocka_unit_test(test_parse_int),    cmocka_unit_test(test_edit_distance),
      cmocka_unit_test(test_shown),        cmocka_unit_test(test_clean),
      cmocka_unit_test(test_philox),       cmocka_unit_test(test_draws),
      cmocka_unit_test(test_dropout),      cmocka_unit_test(test_hash),
      cmocka_unit_test(test_round_trips),  cmocka_unit_test(test_f16_values),
      cmocka_unit_test(test_rounding),     cmocka_unit_test(test_dtypes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
