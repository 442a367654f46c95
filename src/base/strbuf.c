/*
 * Growing strings, and the few number formats and parsers that every module shares.
 */
#include "base/strbuf.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static bool reserve(struct gd_strbuf *buf, size_t extra) {
  if (buf->failed)
    return false;
  size_t need = buf->length + extra + 1;
  if (need <= buf->capacity)
    return true;
  size_t room = buf->capacity ? buf->capacity * 2 : 256;
  while (room < need)
    room *= 2;
  char *grown = gd_mem_grow(buf->text, buf->capacity, room, 1);
  if (!grown) {
    buf->failed = true;
    return false;
  }
  buf->text = grown;
  buf->capacity = room;
  return true;
}

void gd_strbuf_append_bytes(struct gd_strbuf *buf, const char *bytes, size_t length) {
  if (!reserve(buf, length))
    return;
  memcpy(buf->text + buf->length, bytes, length);
  buf->length += length;
  buf->text[buf->length] = '\0';
}

void gd_strbuf_append(struct gd_strbuf *buf, const char *text) {
  gd_strbuf_append_bytes(buf, text, strlen(text));
}

void gd_strbuf_printf(struct gd_strbuf *buf, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int length = vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (length < 0 || !reserve(buf, (size_t)length)) {
    buf->failed = true;
    return;
  }
  va_start(args, format);
  vsnprintf(buf->text + buf->length, (size_t)length + 1, format, args);
  va_end(args);
  buf->length += (size_t)length;
}

void gd_strbuf_deinit(struct gd_strbuf *buf) {
  gd_mem_free(buf->text);
  *buf = (struct gd_strbuf){0};
}

const char *gd_format_bytes(char *text, size_t size, int64_t bytes) {
  static const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes;
  size_t unit = 0;
  while (fabs(value) >= 1023.95 && unit + 1 < sizeof units / sizeof *units) {
    value /= 1024;
    unit++;
  }
  if (unit == 0)
    snprintf(text, size, "%" PRId64 " B", bytes);
  else
    snprintf(text, size, "%.*f %s",
             fabs(value) < 9.995   ? 2
             : fabs(value) < 99.95 ? 1
                                   : 0,
             value, units[unit]);
  return text;
}

const char *gd_format_count(char *text, size_t size, int64_t count) {
  char digits[32];
  int length = snprintf(digits, sizeof digits, "%" PRId64, count);
  size_t at = 0;
  for (int i = 0; i < length && at + 2 < size; i++) {
    if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
      text[at++] = ',';
    text[at++] = digits[i];
  }
  text[at] = '\0';
  return text;
}

const char *gd_format_number(char *text, size_t size, double value, int decimals) {
  char plain[48], whole[48];
  /* Beyond 2^53 a double has no units digit to separate. */
  if (!(fabs(value) < 0x1p53)) {
    snprintf(text, size, "%.3g", value);
    return text;
  }
  snprintf(plain, sizeof plain, "%.*f", decimals, fabs(value));
  size_t digits = strcspn(plain, ".");
  int64_t integer = 0;
  for (size_t i = 0; i < digits; i++)
    integer = integer * 10 + (plain[i] - '0');
  snprintf(text, size, "%s%s%s", value < 0 ? "-" : "",
           gd_format_count(whole, sizeof whole, integer), plain + digits);
  return text;
}

int gd_format_decimals(double value, int digits) {
  double size = fabs(value);
  int decimals = digits - 1;
  if (!(size > 0) || !isfinite(size))
    return 0;
  if (size < 1)
    for (; size < 1 && decimals < 12; size *= 10)
      decimals++;
  else
    for (; decimals > 0 && size >= 10 - 5 * pow(10, -digits); size /= 10)
      decimals--;
  return decimals;
}

const char *gd_format_digits(char *text, size_t size, double value, int digits) {
  return gd_format_number(text, size, value, gd_format_decimals(value, digits));
}

bool gd_parse_bytes(const char *text, int64_t *bytes) {
  static const struct {
    const char *unit;
    double scale;
  } units[] = {
      {"b", 1},        {"k", 0x1p10},   {"kib", 0x1p10}, {"kb", 1e3},     {"m", 0x1p20},
      {"mib", 0x1p20}, {"mb", 1e6},     {"g", 0x1p30},   {"gib", 0x1p30}, {"gb", 1e9},
      {"t", 0x1p40},   {"tib", 0x1p40}, {"tb", 1e12},
  };
  char *end;
  if (!isdigit((unsigned char)text[0]) && text[0] != '.')
    return false;
  errno = 0;
  double value = strtod(text, &end);
  if (errno || end == text || !(value >= 0))
    return false;
  while (*end == ' ')
    end++;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strcasecmp(end, units[i].unit) == 0) {
      value *= units[i].scale;
      if (!(value < 0x1p62))
        return false;
      *bytes = (int64_t)value;
      return true;
    }
  return false;
}

bool gd_parse_int(const char *text, int64_t low, int64_t high, int64_t *value) {
  char *end;
  if (!isdigit((unsigned char)text[0]) && text[0] != '-')
    return false;
  errno = 0;
  long long parsed = strtoll(text, &end, 10);
  if (errno || *end != '\0' || parsed < low || parsed > high)
    return false;
  *value = parsed;
  return true;
}

int gd_edit_distance(const char *a, const char *b) {
  enum { LONGEST = 63 };
  int row[LONGEST + 1];
  size_t a_length = strlen(a), b_length = strlen(b);
  if (a_length > LONGEST || b_length > LONGEST)
    return LONGEST;
  for (size_t j = 0; j <= b_length; j++)
    row[j] = (int)j;
  for (size_t i = 1; i <= a_length; i++) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= b_length; j++) {
      int best = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      if (row[j] + 1 < best)
        best = row[j] + 1;
      if (row[j - 1] + 1 < best)
        best = row[j - 1] + 1;
      row[j] = best;
    }
  }
  return row[b_length];
}
