/*
 * Host memory with a counter and a fault switch, and arenas on top of it.
 */
#include "base/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* Test instrumentation, the one exception to "no mutable globals": allocation has no context. */
static _Atomic int64_t live_blocks;
static _Atomic int64_t fail_countdown;

static bool request_fails(void) {
  if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
    return false;
  return atomic_fetch_sub(&fail_countdown, 1) == 1;
}

void gd_mem_fail_after(int64_t nth) {
  atomic_store(&fail_countdown, nth);
}

int64_t gd_mem_live_blocks(void) {
  return atomic_load(&live_blocks);
}

void *gd_mem_alloc(size_t count, size_t size) {
  if ((size && count > SIZE_MAX / size) || request_fails())
    return NULL;
  void *block = calloc(count ? count : 1, size ? size : 1);
  if (block)
    atomic_fetch_add(&live_blocks, 1);
  return block;
}

void *gd_mem_grow(void *block, size_t old_count, size_t count, size_t size) {
  GD_ASSERT(count >= old_count && size > 0);
  if (count > SIZE_MAX / size || request_fails())
    return NULL;
  char *grown = realloc(block, count * size);
  if (!grown)
    return NULL;
  if (!block)
    atomic_fetch_add(&live_blocks, 1);
  memset(grown + old_count * size, 0, (count - old_count) * size);
  return grown;
}

void gd_mem_free(void *block) {
  if (!block)
    return;
  atomic_fetch_sub(&live_blocks, 1);
  free(block);
}

struct gd_arena_chunk {
  struct gd_arena_chunk *next;
  size_t used, size; /* bytes of data */
  _Alignas(16) char data[];
};

/* Chunks double: a fused op's graph needs few bytes, and a model has thousands of them. */
enum { ARENA_FIRST_BYTES = 1024, ARENA_CHUNK_BYTES = 64 * 1024, ARENA_ALIGN = 16 };

void *gd_arena_alloc(struct gd_arena *arena, size_t count, size_t size) {
  if (size && count > (SIZE_MAX - sizeof(struct gd_arena_chunk) - ARENA_ALIGN) / size)
    return NULL;
  size_t bytes = (count * size + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
  struct gd_arena_chunk *chunk = arena->chunks;
  if (!chunk || chunk->size - chunk->used < bytes) {
    size_t room = chunk ? 2 * chunk->size : ARENA_FIRST_BYTES;
    room = room < ARENA_CHUNK_BYTES ? room : ARENA_CHUNK_BYTES;
    room = room > bytes ? room : bytes;
    chunk = gd_mem_alloc(1, sizeof *chunk + room);
    if (!chunk)
      return NULL;
    chunk->size = room;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
  }
  void *at = chunk->data + chunk->used;
  chunk->used += bytes;
  return at;
}

char *gd_arena_copy_string(struct gd_arena *arena, const char *text) {
  size_t length = strlen(text);
  char *copy = gd_arena_alloc(arena, length + 1, 1);
  if (copy)
    memcpy(copy, text, length);
  return copy;
}

char *gd_arena_printf(struct gd_arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (length < 0)
    return NULL;
  char *text = gd_arena_alloc(arena, (size_t)length + 1, 1);
  if (!text)
    return NULL;
  va_start(args, format);
  vsnprintf(text, (size_t)length + 1, format, args);
  va_end(args);
  return text;
}

void gd_arena_deinit(struct gd_arena *arena) {
  while (arena->chunks) {
    struct gd_arena_chunk *chunk = arena->chunks;
    arena->chunks = chunk->next;
    gd_mem_free(chunk);
  }
}

bool gd_size_mul(int64_t a, int64_t b, int64_t *result) {
  return !__builtin_mul_overflow(a, b, result);
}

bool gd_size_add(int64_t a, int64_t b, int64_t *sum) {
  return !__builtin_add_overflow(a, b, sum);
}

void *gd_mem_copy(const void *from, size_t count, size_t capacity, size_t size) {
  GD_ASSERT(capacity >= count && size > 0);
  if (capacity > SIZE_MAX / size || request_fails())
    return NULL;
  char *block = malloc(capacity * size);
  if (!block)
    return NULL;
  atomic_fetch_add(&live_blocks, 1);
  if (count > 0)
    memcpy(block, from, count * size);
  memset(block + count * size, 0, (capacity - count) * size);
  return block;
}

bool gd_vec_reserve(void **items, uint32_t *capacity, uint32_t count, size_t size) {
  if (count <= *capacity)
    return true;
  uint32_t room = *capacity ? *capacity * 2 : 8;
  if (room < count)
    room = count;
  void *grown = gd_mem_grow(*items, *capacity, room, size);
  if (!grown)
    return false;
  *items = grown;
  *capacity = room;
  return true;
}
