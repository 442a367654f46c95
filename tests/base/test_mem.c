/*
 * Error records, memory and arenas with their fault switch, checked sizes, growing arrays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "base/status.h"

#if defined __SANITIZE_ADDRESS__
#define ADDRESS_SANITIZER
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER
#endif
#endif

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
  assert_non_null(strstr(err.file, "test_mem.c"));
  assert_int_equal(fails(NULL), GD_BAD_INPUT);
  err = (struct gd_error){0};
  assert_int_equal(gd_fail(&err, GD_INTERNAL, "%2000s", "x"), GD_INTERNAL);
  assert_int_equal(strlen(err.text), sizeof err.text - 1);
  for (int status = GD_OK; status <= GD_INTERNAL; status++)
    assert_string_not_equal(gd_status_name((enum gd_status)status), "unknown");
}

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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_status), cmocka_unit_test(test_memory), cmocka_unit_test(test_fault),
      cmocka_unit_test(test_arena),  cmocka_unit_test(test_sizes),  cmocka_unit_test(test_vector),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
