/*
 * Host memory. All of it goes through here, so that tests can fail the Nth request and count what
 * is left over. Arenas give the lifetime of a graph or a plan: everything in one is freed at once.
 *
 *   struct gd_arena arena = {0};
 *   int64_t *dims = gd_arena_alloc(&arena, 4, sizeof *dims);   // zeroed; NULL when memory is out
 *   gd_arena_deinit(&arena);
 */
#ifndef GD_BASE_MEM_H
#define GD_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* count * size zeroed bytes, or NULL (also when that overflows). Free with gd_mem_free. */
void *gd_mem_alloc(size_t count, size_t size);
/* Grows a block from old_count to count elements; the new tail is zeroed. NULL leaves it as it was.
 */
void *gd_mem_grow(void *block, size_t old_count, size_t count, size_t size);
/* A block for `capacity` elements that begins with a copy of `count`; the tail is zeroed. */
void *gd_mem_copy(const void *from, size_t count, size_t capacity, size_t size);
void gd_mem_free(void *block); /* NULL is fine */

/* Fault injection: the nth request from now fails (0 = never). Live blocks are counted always. */
void gd_mem_fail_after(int64_t nth);
int64_t gd_mem_live_blocks(void);

struct gd_arena_chunk;
struct gd_arena {
  struct gd_arena_chunk *chunks; /* newest first */
};

/* Zeroed, 16-byte aligned; NULL when memory is out. Lives until gd_arena_deinit. */
void *gd_arena_alloc(struct gd_arena *arena, size_t count, size_t size);
char *gd_arena_copy_string(struct gd_arena *arena, const char *text);
char *gd_arena_printf(struct gd_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void gd_arena_deinit(struct gd_arena *arena); /* safe on a zeroed arena, and twice */

/* a * b and a + b for non-negative sizes; false when the result does not fit. */
bool gd_size_mul(int64_t a, int64_t b, int64_t *result);
bool gd_size_add(int64_t a, int64_t b, int64_t *sum);

/*
 * Makes room for one more element in an array that doubles: growth with an explicit
 * element size. Returns false when memory is out.
 *   if (!gd_vec_reserve((void **)&items, &capacity, count + 1, sizeof *items)) ...
 */
bool gd_vec_reserve(void **items, uint32_t *capacity, uint32_t count, size_t size);

#endif
