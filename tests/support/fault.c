/*
 * Fault injection: gd_mem_fail_after, with jansson's allocations led through gd_mem as well.
 */
#include "support/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "support/sample.h"

/*
 * jansson 2.14 does not check when its lexer's buffer cannot grow (lex_save) and then asserts or
 * reads past it. That buffer has sizes of 32, 64, 128, ...; those get their memory at the second
 * try.
 */
static void *counted_alloc(size_t size) {
  void *block = gd_mem_alloc(1, size);
  bool lexer = size >= 32 && (size & (size - 1)) == 0;
  return block || !lexer ? block : gd_mem_alloc(1, size);
}

/* Whether the nth request failed; leaves the switch off. Had it not, one of n more would. */
static bool fired(int64_t nth) {
  bool failed = false;
  for (int64_t i = 0; i < nth && !failed; i++) {
    void *probe = gd_mem_alloc(1, 1);
    failed = !probe;
    gd_mem_free(probe);
  }
  gd_mem_fail_after(0);
  return !failed;
}

enum gd_status fault_sweep(fault_attempt attempt, void *context) {
  enum { MOST = 100000, ALWAYS = 64, PARTS = 3 };
  json_malloc_t malloc_before;
  json_free_t free_before;
  json_get_alloc_funcs(&malloc_before, &free_before);
  json_set_alloc_funcs(counted_alloc, gd_mem_free);
  int64_t blocks = gd_mem_live_blocks();
  struct gd_error err = {0};
  enum gd_status undisturbed = attempt(context, &err);
  assert_int_equal(gd_mem_live_blocks(), blocks);
  int64_t nth = 1, tries = 0;
  for (; nth < MOST; nth += 1 + nth / 256) {
    if (++tries > ALWAYS && !sample_has((uint64_t)tries, PARTS))
      continue;
    err = (struct gd_error){0};
    gd_mem_fail_after(nth);
    enum gd_status status = attempt(context, &err);
    bool reached = fired(nth);
    assert_int_equal(gd_mem_live_blocks(), blocks);
    assert_int_equal(err.status, status);
    if (status != GD_OK)
      assert_true(err.text[0] != '\0');
    if (!reached) {
      assert_int_equal(status, undisturbed);
      break;
    }
  }
  assert_in_range(nth, 2, MOST - 1);
  json_set_alloc_funcs(malloc_before, free_before);
  return undisturbed;
}
