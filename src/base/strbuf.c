/*
 * Growing strings, and the few number formats and parsers that every module shares.
 */
#define _POSIX_C_SOURCE 200809L
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

static bool grow(struct gd_strbuf *buf, size_t extra) {
  if (buf->failed)
    return false;
  if (extra > SIZE_MAX / 4 || buf->length > SIZE_MAX / 4) { /* room below cannot overflow */
    buf->failed = true;
    return false;
  }
  size_t need = buf->length + extra + 1;
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

static inline bool reserve(struct gd_strbuf *buf, size_t extra) {
  bool fits = extra < buf->capacity && buf->length < buf->capacity - extra && !buf->failed;
  return fits || grow(buf, extra);
}

void gd_strbuf_append_bytes(struct gd_strbuf *buf, const char *bytes, size_t length) {
  if (!reserve(buf, length))
    return;
  memcpy(buf->text + buf->length, bytes, length);
  buf->length += length;
  buf->text[buf->length] = '\0';
}

char *gd_strbuf_room(struct gd_strbuf *buf, size_t bytes) {
  return reserve(buf, bytes) ? buf->text + buf->length : NULL;
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

/* --- what may be shown --------------------------------------------------------------------- */

/* The code point of the UTF-8 character at text, and its bytes; false: it is none. */
static bool read_character(const char *text, uint32_t *code, size_t *bytes) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  unsigned char first = (unsigned char)text[0];
  size_t count = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  *bytes = 1;
  *code = first;
  if (count <= 1)
    return count == 1;
  if (first >= 0xf8)
    return false;
  *code = first & (0x7fu >> count);
  for (size_t i = 1; i < count; i++) {
    unsigned char next = (unsigned char)text[i];
    if ((next & 0xc0u) != 0x80u)
      return false;
    *code = *code << 6 | (next & 0x3fu);
  }
  if (*code < least[count] || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000))
    return false;
  *bytes = count;
  return true;
}

static bool is_shown(uint32_t code) {
  bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  bool turns = code == 0x061c || code == 0x200e || code == 0x200f ||
               (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
               code == 0xfeff;
  return !control && !turns;
}

bool gd_text_shown(const char *text, size_t *bytes) {
  uint32_t code;
  return read_character(text, &code, bytes) && is_shown(code);
}

void gd_text_clean(char *text) {
  char *to = text;
  for (size_t bytes; *text; text += bytes) {
    if (gd_text_shown(text, &bytes) || *text == '\n' || *text == '\t') {
      memmove(to, text, bytes);
      to += bytes;
    } else {
      *to++ = '?';
    }
  }
  *to = '\0';
}

/* Length of the terminal sequence at text, if this program writes it itself; else 0. */
static size_t own_sequence(const char *text) {
  static const char *const own[] = {"\033[1m", "\033[0m"};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (strncmp(text, own[i], strlen(own[i])) == 0)
      return strlen(own[i]);
  return 0;
}

/* Bytes up to the first that may not be shown, almost always all of them: looked at by the block,
   as compilers make vectors of these. */
static size_t count_plain(const char *text, size_t length) {
  enum { BLOCK = 64 };
  size_t at = 0;
  for (; length - at >= BLOCK; at += BLOCK) {
    uint8_t odd = 0;
    for (size_t i = 0; i < BLOCK; i++) {
      uint8_t byte = (uint8_t)text[at + i], above = (uint8_t)(byte - ' ');
      odd |= (uint8_t)((above >= 0x7f - ' ') & (byte != '\n'));
    }
    if (odd)
      break;
  }
  while (at < length && ((text[at] >= ' ' && text[at] < 0x7f) || text[at] == '\n'))
    at++;
  return at;
}

void gd_strbuf_clean(struct gd_strbuf *buf, bool json) {
  struct gd_strbuf clean = {0};
  const char *at = buf->text ? buf->text : "", *copied = at, *end = at + buf->length;
  for (size_t bytes = 1; (at += count_plain(at, (size_t)(end - at))) < end; at += bytes) {
    uint32_t code;
    bool whole = read_character(at, &code, &bytes);
    size_t own = *at == '\033' ? own_sequence(at) : 0;
    if (own > 0)
      bytes = own;
    if (own > 0 || *at == '\t' || (whole && is_shown(code)))
      continue;
    gd_strbuf_append_bytes(&clean, copied, (size_t)(at - copied));
    if (json)
      gd_strbuf_printf(&clean, "\\u%04x", whole ? (unsigned)code : 0xfffdu);
    else
      gd_strbuf_append(&clean, "?");
    copied = at + bytes;
  }
  if (!buf->text || copied == buf->text) /* almost always */
    return;
  gd_strbuf_append_bytes(&clean, copied, (size_t)(at - copied));
  clean.failed |= buf->failed;
  gd_strbuf_deinit(buf);
  *buf = clean;
}

enum { LONGEST_WORD = 63 };

/* Gives up, with a number above it, as soon as the distance must be above `most`. */
static int edit_distance(const char *a, const char *b, int most) {
  int row[LONGEST_WORD + 1];
  size_t a_length = strnlen(a, LONGEST_WORD + 1), b_length = strnlen(b, LONGEST_WORD + 1);
  if (a_length > LONGEST_WORD || b_length > LONGEST_WORD)
    return LONGEST_WORD;
  int difference = abs((int)a_length - (int)b_length), least = difference;
  for (size_t j = 0; j <= b_length; j++)
    row[j] = (int)j;
  for (size_t i = 1; i <= a_length && least <= most; i++) {
    int diagonal = row[0];
    row[0] = least = (int)i;
    for (size_t j = 1; j <= b_length; j++) {
      int best = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      if (row[j] + 1 < best)
        best = row[j] + 1;
      if (row[j - 1] + 1 < best)
        best = row[j - 1] + 1;
      row[j] = best;
      if (best < least)
        least = best;
    }
  }
  return least <= most ? row[b_length] : most + 1;
}

int gd_edit_distance(const char *a, const char *b) {
  return edit_distance(a, b, LONGEST_WORD);
}

bool gd_edit_within(const char *a, const char *b, int most) {
  return edit_distance(a, b, most) <= most;
}
