/*
 * A growing string. Failure (out of memory) is sticky: append freely, check once at the end.
 *
 *   struct gd_strbuf out = {0};
 *   gd_strbuf_printf(&out, "%d ops\n", count);
 *   if (out.failed) ...
 *   gd_strbuf_deinit(&out);
 */
#ifndef GD_BASE_STRBUF_H
#define GD_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gd_strbuf {
  char *text;      /* NUL-terminated once anything was appended; NULL before */
  size_t length;   /* without the NUL */
  size_t capacity; /* bytes allocated */
  bool failed;     /* memory ran out at some append */
};

void gd_strbuf_append(struct gd_strbuf *buf, const char *text);
void gd_strbuf_append_bytes(struct gd_strbuf *buf, const char *bytes, size_t length);
/* Room for so many bytes at the end, to be written by the caller, who then adds to length and ends
   the text with a NUL; NULL: there is no memory. */
char *gd_strbuf_room(struct gd_strbuf *buf, size_t bytes);
void gd_strbuf_printf(struct gd_strbuf *buf, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void gd_strbuf_deinit(struct gd_strbuf *buf);

/* "1.5 GiB": binary units, three significant digits, into a buffer the caller owns. */
const char *gd_format_bytes(char *text, size_t size, int64_t bytes);
/* "1,234,567". */
const char *gd_format_count(char *text, size_t size, int64_t count);
/* "1,234.5": thousands separated, so many decimals. 48 bytes hold any. */
const char *gd_format_number(char *text, size_t size, double value, int decimals);
/* The same with `digits` significant ones, and no more decimals than that takes. */
const char *gd_format_digits(char *text, size_t size, double value, int digits);
/* Decimals that give a value so many significant digits; 9.996 counts as 10.0. */
int gd_format_decimals(double value, int digits);
/* "2GiB", "512MiB", "1.5G", "4096B"; false when it is not a size, or has no unit. */
bool gd_parse_bytes(const char *text, int64_t *bytes);
/* Whole string as a decimal integer in [low, high]. */
bool gd_parse_int(const char *text, int64_t low, int64_t high, int64_t *value);

/*
 * Whether the character at text may reach a terminal, and its bytes (1 where it is no UTF-8). What
 * others wrote may hold characters that move the cursor or turn the reading order around, and then
 * shows something else than what is there: control characters (C0, DEL, C1), the bidirectional
 * controls (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), and bytes that are no
 * UTF-8.
 */
bool gd_text_shown(const char *text, size_t *bytes);
/* Puts ? in the place of each such character; tabs and line ends stay. */
void gd_text_clean(char *text);
/*
 * The same for the whole output of a command. In JSON, where they can only be inside of strings,
 * they become escapes, so that the value stays. Of escape sequences only bold and its end stay.
 */
void gd_strbuf_clean(struct gd_strbuf *buf, bool json);

/* Edit distance between short words, for "did you mean". */
int gd_edit_distance(const char *a, const char *b);
/* Whether it is at most that, without the work of finding out how much more it is. */
bool gd_edit_within(const char *a, const char *b, int most);

#endif
