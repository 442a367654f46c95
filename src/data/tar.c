/*
 * tar archives; see tar.h. Format: POSIX.1-2017, pax (ustar and extended headers), and the GNU tar
 * manual, "Basic Tar Format".
 */
#include "data/tar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 512, NAME_AT = 0, NAME_SIZE = 100, SIZE_AT = 124, SIZE_SIZE = 12, SUM_AT = 148 };
enum { SUM_SIZE = 8, TYPE_AT = 156, MAGIC_AT = 257, PREFIX_AT = 345, PREFIX_SIZE = 155 };

/* Octal digits, or with the top bit set a binary number, as GNU tar writes sizes of 8 GiB and more.
   -1: neither. */
static int64_t number_of(const uint8_t *field, int size) {
  uint64_t value = 0;
  int i = 0;
  if (field[0] & 0x80) {
    for (i = 0; i < size; i++) {
      if (value >> 55)
        return -1;
      value = value << 8 | (i == 0 ? field[0] & 0x7fu : field[i]);
    }
    return (int64_t)value;
  }
  while (i < size && field[i] == ' ')
    i++;
  for (; i < size && field[i] >= '0' && field[i] <= '7'; i++)
    value = value << 3 | (field[i] - (uint64_t)'0');
  return i < size && field[i] != ' ' && field[i] != '\0' ? -1 : (int64_t)value;
}

/* The sum of all bytes, those of the sum itself taken for spaces. */
static bool sum_is_right(const uint8_t *header) {
  int64_t sum = 0;
  for (int i = 0; i < BLOCK; i++)
    sum += i >= SUM_AT && i < SUM_AT + SUM_SIZE ? ' ' : header[i];
  return sum == number_of(header + SUM_AT, SUM_SIZE);
}

static int text_length(const uint8_t *field, int64_t size) {
  const uint8_t *end = memchr(field, 0, (size_t)size);
  return (int)(end ? end - field : size);
}

static bool is_zero(const uint8_t *header) {
  for (int i = 0; i < BLOCK; i++)
    if (header[i])
      return false;
  return true;
}

/* Records "LENGTH KEY=VALUE\n" of an extended header: path and size. */
static bool read_records(const uint8_t *text, int64_t size, char *name, int64_t *bytes) {
  int64_t at = 0;
  while (at < size) {
    int64_t length = 0, i = at;
    for (; i < size && text[i] >= '0' && text[i] <= '9' && length < size; i++)
      length = length * 10 + (text[i] - '0');
    if (i == at || i >= size || text[i] != ' ' || length <= i - at + 1 || length > size - at)
      return false;
    const uint8_t *key = text + i + 1;
    int64_t rest = at + length - i - 2; /* without the newline */
    if (rest >= 5 && memcmp(key, "path=", 5) == 0) {
      if (rest - 5 >= GD_TAR_NAME)
        return false;
      snprintf(name, GD_TAR_NAME, "%.*s", (int)rest - 5, (const char *)key + 5);
    } else if (rest >= 5 && memcmp(key, "size=", 5) == 0) {
      *bytes = 0;
      for (int64_t k = 5; k < rest; k++) {
        if (key[k] < '0' || key[k] > '9' || *bytes > INT64_MAX / 16)
          return false;
        *bytes = *bytes * 10 + (key[k] - '0');
      }
    }
    at += length;
  }
  return true;
}

static bool fail(const struct gd_tar *tar, const char *why, enum gd_status *status,
                 struct gd_error *err) {
  *status = gd_fail(err, GD_BAD_INPUT, "%s, byte %" PRId64 ": %s", tar->path, tar->at, why);
  return false;
}

static void take_name(const uint8_t *header, char *name) {
  int prefix =
      memcmp(header + MAGIC_AT, "ustar", 6) == 0 ? text_length(header + PREFIX_AT, PREFIX_SIZE) : 0;
  snprintf(name, GD_TAR_NAME, "%.*s%s%.*s", prefix, (const char *)header + PREFIX_AT,
           prefix ? "/" : "", text_length(header + NAME_AT, NAME_SIZE), (const char *)header);
}

bool gd_tar_next(struct gd_tar *tar, struct gd_tar_member *member, enum gd_status *status,
                 struct gd_error *err) {
  char long_name[GD_TAR_NAME] = "";
  int64_t long_bytes = -1;
  *status = GD_OK;
  while (tar->at < tar->size) {
    const uint8_t *header = tar->bytes + tar->at;
    if (tar->size - tar->at < BLOCK)
      return fail(tar, "the archive is cut", status, err);
    if (is_zero(header))
      return false;
    if (!sum_is_right(header))
      return fail(tar,
                  "this is no header of a tar archive; images are in tar archives, or in a folder "
                  "for each class",
                  status, err);
    uint8_t type = header[TYPE_AT];
    bool extends = type == 'x' || type == 'L';
    int64_t bytes = number_of(header + SIZE_AT, SIZE_SIZE), first = tar->at + BLOCK;
    if (!extends && type != 'g' && type != 'K' && long_bytes >= 0)
      bytes = long_bytes;
    if (bytes < 0 || bytes > tar->size - first)
      return fail(tar, "the archive is cut, or its header damaged", status, err);
    if (type == 'x' && !read_records(tar->bytes + first, bytes, long_name, &long_bytes))
      return fail(tar, "an extended header is damaged", status, err);
    if (type == 'L') {
      if (text_length(tar->bytes + first, bytes) >= GD_TAR_NAME)
        return fail(tar, "a name is too long", status, err);
      snprintf(long_name, sizeof long_name, "%.*s", text_length(tar->bytes + first, bytes),
               (const char *)tar->bytes + first);
    }
    int64_t padded = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    tar->at = padded < tar->size - first ? first + padded : tar->size;
    if (type == '0' || type == '\0' || type == '7') {
      *member = (struct gd_tar_member){.first = first, .bytes = bytes};
      if (long_name[0])
        memcpy(member->name, long_name, sizeof long_name);
      else
        take_name(header, member->name);
      return true;
    }
    if (!extends && type != 'g' && type != 'K') {
      long_name[0] = '\0';
      long_bytes = -1;
    }
  }
  return false;
}
