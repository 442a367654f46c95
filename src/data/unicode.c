/*
 * Properties of code points, normal forms, lower case and valid UTF-8; see unicode.h. The tables
 * are small enough to be read: runs of properties are spread over an array when a tokenizer is
 * loaded, decompositions are searched.
 */
#include "data/unicode.h"

#include <string.h>

#include "base/mem.h"

struct case_range {
  uint32_t first, last, step;
  int32_t difference;
};
struct decomposition {
  uint32_t point, place; /* place in `decomposed` << 5 | how many */
};
struct composition {
  uint32_t first, second, composed;
};
struct class_range {
  uint32_t first, last;
  uint8_t class;
};

#include "data/unicode_tables.inc"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Hangul syllables are computed: Unicode, section 3.12. */
enum {
  HANGUL_S = 0xac00,
  HANGUL_L = 0x1100,
  HANGUL_V = 0x1161,
  HANGUL_T = 0x11a7,
  HANGUL_L_COUNT = 19,
  HANGUL_V_COUNT = 21,
  HANGUL_T_COUNT = 28,
  HANGUL_S_COUNT = HANGUL_L_COUNT * HANGUL_V_COUNT * HANGUL_T_COUNT
};

enum gd_status gd_unicode_init(struct gd_unicode *unicode, struct gd_error *err) {
  size_t at = 0;
  unicode->properties = gd_mem_alloc(GD_UNICODE_POINTS, sizeof *unicode->properties);
  if (!unicode->properties)
    return gd_nomem(err, "for the properties of characters");
  for (size_t i = 0; i < COUNT(property_runs); i++) {
    uint16_t value = property_values[property_runs[i] >> 9];
    size_t length = property_runs[i] & 0xffu;
    if (property_runs[i] & 0x100u)
      length |= (size_t)property_runs[++i] << 8;
    GD_ASSERT(length <= GD_UNICODE_POINTS - at);
    while (length-- > 0)
      unicode->properties[at++] = value;
  }
  GD_ASSERT(at == GD_UNICODE_POINTS);
  return GD_OK;
}

void gd_unicode_deinit(struct gd_unicode *unicode) {
  gd_mem_free(unicode->properties);
  unicode->properties = NULL;
}

/* --- UTF-8 --------------------------------------------------------------------------------- */

size_t gd_unicode_encode(uint32_t point, char *text) {
  if (point < 0x80) {
    text[0] = (char)point;
    return 1;
  }
  if (point < 0x800) {
    text[0] = (char)(0xc0 | point >> 6);
    text[1] = (char)(0x80 | (point & 0x3f));
    return 2;
  }
  if (point < 0x10000) {
    text[0] = (char)(0xe0 | point >> 12);
    text[1] = (char)(0x80 | (point >> 6 & 0x3f));
    text[2] = (char)(0x80 | (point & 0x3f));
    return 3;
  }
  text[0] = (char)(0xf0 | point >> 18);
  text[1] = (char)(0x80 | (point >> 12 & 0x3f));
  text[2] = (char)(0x80 | (point >> 6 & 0x3f));
  text[3] = (char)(0x80 | (point & 0x3f));
  return 4;
}

size_t gd_unicode_last(const char *text, size_t length) {
  size_t bytes = 1;
  while (bytes < length && ((unsigned char)text[length - bytes] & 0xc0u) == 0x80u)
    bytes++;
  return bytes;
}

/* Bytes of the character at `at`, or 0 and in *bad how many belong to one U+FFFD: the longest
   beginning of a character, at least one byte (Unicode, section 3.9). */
static size_t character(const unsigned char *at, size_t room, size_t *bad) {
  unsigned char low = 0x80, high = 0xbf;
  size_t needed = at[0] < 0x80                    ? 1
                  : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                  : (at[0] & 0xf0u) == 0xe0u      ? 3
                  : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                  : 0;
  *bad = 1;
  if (needed == 0)
    return 0;
  low = at[0] == 0xe0 ? 0xa0 : at[0] == 0xf0 ? 0x90 : low;
  high = at[0] == 0xed ? 0x9f : at[0] == 0xf4 ? 0x8f : high;
  for (size_t i = 1; i < needed; i++) {
    if (i >= room || at[i] < low || at[i] > high) {
      *bad = i;
      return 0;
    }
    low = 0x80;
    high = 0xbf;
  }
  return needed;
}

/* Bytes of ASCII at the start, in steps of 8 while there are. */
static size_t ascii_bytes(const char *text, size_t length) {
  size_t at = 0;
  for (uint64_t eight; at + 8 <= length; at += 8) {
    memcpy(&eight, text + at, 8);
    if (eight & 0x8080808080808080u)
      break;
  }
  while (at < length && (unsigned char)text[at] < 0x80)
    at++;
  return at;
}

size_t gd_unicode_valid(const char *text, size_t length) {
  size_t at = 0, bad;
  while (at < length) {
    at += ascii_bytes(text + at, length - at);
    if (at == length)
      break;
    size_t bytes = character((const unsigned char *)text + at, length - at, &bad);
    if (bytes == 0)
      return at;
    at += bytes;
  }
  return length;
}

void gd_unicode_clean(const char *text, size_t length, struct gd_strbuf *out) {
  size_t at = 0;
  while (at < length && !out->failed) {
    size_t bad = 0, good = gd_unicode_valid(text + at, length - at);
    gd_strbuf_append_bytes(out, text + at, good);
    at += good;
    if (at < length) {
      (void)character((const unsigned char *)text + at, length - at, &bad);
      gd_strbuf_append_bytes(out, "\xef\xbf\xbd", 3);
      at += bad;
    }
  }
}

/* --- case ---------------------------------------------------------------------------------- */

static uint32_t lower(uint32_t point) {
  size_t low = 0, high = COUNT(lower_case);
  while (low < high) {
    size_t middle = (low + high) / 2;
    const struct case_range *range = &lower_case[middle];
    if (point > range->last)
      low = middle + 1;
    else if (point < range->first)
      high = middle;
    else if ((point - range->first) % range->step == 0)
      return (uint32_t)((int64_t)point + range->difference);
    else
      return point;
  }
  return point;
}

void gd_unicode_lower(const char *text, size_t length, struct gd_strbuf *out) {
  char bytes[4];
  for (size_t at = 0, size; at < length; at += size) {
    uint32_t point = gd_unicode_decode(text + at, &size);
    if (point < 0x80) {
      bytes[0] = (char)(point >= 'A' && point <= 'Z' ? point + 32 : point);
      gd_strbuf_append_bytes(out, bytes, 1);
    } else if (point == 0x130) {
      gd_strbuf_append_bytes(out, "i\xcc\x87", 3);
    } else {
      gd_strbuf_append_bytes(out, bytes, gd_unicode_encode(lower(point), bytes));
    }
  }
}

/* --- normal forms -------------------------------------------------------------------------- */

/* Code points with their combining classes, and room to sort them. */
struct points {
  uint32_t *items; /* class << 24 | code point */
  size_t count, capacity;
};

static uint32_t class_of(uint32_t point) {
  size_t low = 0, high = COUNT(combining_classes);
  if (point < combining_classes[0].first)
    return 0;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (point > combining_classes[middle].last)
      low = middle + 1;
    else if (point < combining_classes[middle].first)
      high = middle;
    else
      return combining_classes[middle].class;
  }
  return 0;
}

static bool push(struct points *points, uint32_t point) {
  if (points->count == points->capacity) {
    size_t capacity = points->capacity ? points->capacity * 2 : 256;
    uint32_t *grown = gd_mem_grow(points->items, points->capacity, capacity, sizeof *grown);
    if (!grown)
      return false;
    points->items = grown;
    points->capacity = capacity;
  }
  points->items[points->count++] = class_of(point) << 24 | point;
  return true;
}

static const struct decomposition *find(const struct decomposition *table, size_t count,
                                        uint32_t point) {
  size_t low = 0;
  while (low < count) {
    size_t middle = (low + count) / 2;
    if (point > table[middle].point)
      low = middle + 1;
    else if (point < table[middle].point)
      count = middle;
    else
      return &table[middle];
  }
  return NULL;
}

static bool push_decomposed(struct points *points, uint32_t point, bool compatibly) {
  const struct decomposition *found = NULL;
  if (point < 0xa0)
    return push(points, point);
  if (point - HANGUL_S < HANGUL_S_COUNT) {
    uint32_t index = point - HANGUL_S, t = index % HANGUL_T_COUNT;
    return push(points, HANGUL_L + index / (HANGUL_V_COUNT * HANGUL_T_COUNT)) &&
           push(points, HANGUL_V + index / HANGUL_T_COUNT % HANGUL_V_COUNT) &&
           (t == 0 || push(points, HANGUL_T + t));
  }
  if (compatibly)
    found = find(compatible, COUNT(compatible), point);
  if (!found)
    found = find(canonical, COUNT(canonical), point);
  if (!found)
    return push(points, point);
  for (uint32_t i = 0; i < (found->place & 31); i++)
    if (!push(points, decomposed[(found->place >> 5) + i]))
      return false;
  return true;
}

/* A run of combining marks in the order of their classes; equal ones stay as they are. Short runs
   by insertion, long ones by counting, so that no text takes more than linear time. */
static bool sort_run(uint32_t *items, size_t count) {
  if (count <= 16) {
    for (size_t i = 1; i < count; i++)
      for (size_t j = i; j > 0 && items[j - 1] >> 24 > items[j] >> 24; j--) {
        uint32_t swapped = items[j];
        items[j] = items[j - 1];
        items[j - 1] = swapped;
      }
    return true;
  }
  size_t starts[257] = {0};
  uint32_t *sorted = gd_mem_alloc(count, sizeof *sorted);
  if (!sorted)
    return false;
  for (size_t i = 0; i < count; i++)
    starts[(items[i] >> 24) + 1]++;
  for (size_t i = 1; i < 257; i++)
    starts[i] += starts[i - 1];
  for (size_t i = 0; i < count; i++)
    sorted[starts[items[i] >> 24]++] = items[i];
  memcpy(items, sorted, count * sizeof *items);
  gd_mem_free(sorted);
  return true;
}

static bool sort_marks(struct points *points) {
  for (size_t at = 0; at < points->count;) {
    size_t end = at;
    while (end < points->count && points->items[end] >> 24)
      end++;
    if (end - at > 1 && !sort_run(points->items + at, end - at))
      return false;
    at = end + 1;
  }
  return true;
}

/* 0: the two do not compose. */
static uint32_t composed(uint32_t first, uint32_t second) {
  size_t low = 0, high = COUNT(compositions);
  if (first - HANGUL_L < HANGUL_L_COUNT && second - HANGUL_V < HANGUL_V_COUNT)
    return HANGUL_S + ((first - HANGUL_L) * HANGUL_V_COUNT + second - HANGUL_V) * HANGUL_T_COUNT;
  if (first - HANGUL_S < HANGUL_S_COUNT && (first - HANGUL_S) % HANGUL_T_COUNT == 0 &&
      second - HANGUL_T - 1 < HANGUL_T_COUNT - 1)
    return first + second - HANGUL_T;
  while (low < high) {
    size_t middle = (low + high) / 2;
    const struct composition *row = &compositions[middle];
    if (first > row->first || (first == row->first && second > row->second))
      low = middle + 1;
    else if (first < row->first || second < row->second)
      high = middle;
    else
      return row->composed;
  }
  return 0;
}

/* Unicode, section 3.11: each character with the last starter, unless one between is in the way. */
static void compose(struct points *points) {
  size_t starter = SIZE_MAX, kept = 0;
  uint32_t last_class = 0;
  for (size_t i = 0; i < points->count; i++) {
    uint32_t class = points->items[i] >> 24, point = points->items[i] & 0xffffff, whole = 0;
    bool adjacent = starter != SIZE_MAX && kept == starter + 1;
    if (starter != SIZE_MAX && (adjacent || last_class < class))
      whole = composed(points->items[starter] & 0xffffff, point);
    if (whole) {
      points->items[starter] = whole;
      continue;
    }
    if (class == 0)
      starter = kept;
    last_class = class;
    points->items[kept++] = points->items[i];
  }
  points->count = kept;
}

bool gd_unicode_normalize(const char *text, size_t length, enum gd_unicode_form form,
                          struct gd_strbuf *out) {
  struct points points = {0};
  bool fine = true, compatibly = form == GD_UNICODE_NFKC || form == GD_UNICODE_NFKD;
  char bytes[4];
  size_t ascii = ascii_bytes(text, length);
  if (ascii < length && ascii > 0)
    ascii--; /* what follows may combine with it */
  gd_strbuf_append_bytes(out, text, ascii);
  for (size_t at = ascii, size; at < length && fine; at += size)
    fine = push_decomposed(&points, gd_unicode_decode(text + at, &size), compatibly);
  fine = fine && sort_marks(&points);
  if (fine && (form == GD_UNICODE_NFC || form == GD_UNICODE_NFKC))
    compose(&points);
  for (size_t i = 0; i < points.count && fine; i++)
    gd_strbuf_append_bytes(out, bytes, gd_unicode_encode(points.items[i] & 0xffffff, bytes));
  gd_mem_free(points.items);
  return fine && !out->failed;
}
