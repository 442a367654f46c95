/*
 * What a code point is, and the normal forms of text, as the Hugging Face tokenizers library has
 * them: each of its parts follows another version of Unicode, and unicode_tables.inc, written by
 * tools/make_unicode.py, holds its answers. For tokenizer.c; all text here is valid UTF-8, which
 * gd_unicode_clean makes of any bytes.
 *
 *   struct gd_unicode unicode = {0};
 *   GD_TRY(gd_unicode_init(&unicode, err));
 *   if (unicode.properties[0xe9] & GD_UNICODE_WORD) ...
 *   gd_unicode_deinit(&unicode);
 */
#ifndef GD_DATA_UNICODE_H
#define GD_DATA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

enum { GD_UNICODE_POINTS = 0x110000 };

/* The lower five bits of a property are the category, in this order. */
enum gd_unicode_category {
  GD_UNICODE_CN,
  GD_UNICODE_LU,
  GD_UNICODE_LL,
  GD_UNICODE_LT,
  GD_UNICODE_LM,
  GD_UNICODE_LO,
  GD_UNICODE_MN,
  GD_UNICODE_MC,
  GD_UNICODE_ME,
  GD_UNICODE_ND,
  GD_UNICODE_NL,
  GD_UNICODE_NO,
  GD_UNICODE_PC,
  GD_UNICODE_PD,
  GD_UNICODE_PS,
  GD_UNICODE_PE,
  GD_UNICODE_PI,
  GD_UNICODE_PF,
  GD_UNICODE_PO,
  GD_UNICODE_SM,
  GD_UNICODE_SC,
  GD_UNICODE_SK,
  GD_UNICODE_SO,
  GD_UNICODE_ZS,
  GD_UNICODE_ZL,
  GD_UNICODE_ZP,
  GD_UNICODE_CC,
  GD_UNICODE_CF,
  GD_UNICODE_CS,
  GD_UNICODE_CO,
  GD_UNICODE_CATEGORIES
};
enum gd_unicode_flag {
  GD_UNICODE_SPACE = 1 << 5,       /* White_Space: \s, char::is_whitespace */
  GD_UNICODE_WORD = 1 << 6,        /* \w of Oniguruma */
  GD_UNICODE_RUST_WORD = 1 << 7,   /* \w of Rust's regex crate */
  GD_UNICODE_NUMERIC = 1 << 8,     /* char::is_numeric */
  GD_UNICODE_PUNCTUATION = 1 << 9, /* of ASCII, or of category P */
  GD_UNICODE_CLEANED = 1 << 10,    /* what BertNormalizer's clean_text removes */
  GD_UNICODE_NONSPACING = 1 << 11, /* what its strip_accents removes */
  GD_UNICODE_MARK = 1 << 12,       /* what StripAccents removes */
};

struct gd_unicode {
  uint16_t *properties; /* of each code point */
};

enum gd_status gd_unicode_init(struct gd_unicode *unicode, struct gd_error *err) GD_MUST_USE;
void gd_unicode_deinit(struct gd_unicode *unicode); /* safe on a zeroed one */

enum gd_unicode_form { GD_UNICODE_NFC, GD_UNICODE_NFD, GD_UNICODE_NFKC, GD_UNICODE_NFKD };
/* Appends the text in that form. False when memory is out. */
bool gd_unicode_normalize(const char *text, size_t length, enum gd_unicode_form form,
                          struct gd_strbuf *out);
/* Appends the text in lower case, each code point by itself. */
void gd_unicode_lower(const char *text, size_t length, struct gd_strbuf *out);

/* Bytes at the start of the text that are valid UTF-8. */
size_t gd_unicode_valid(const char *text, size_t length);
/* Appends the text with U+FFFD for each part that is no UTF-8, as Python and Rust do it. */
void gd_unicode_clean(const char *text, size_t length, struct gd_strbuf *out);

/* The code point at the start of valid UTF-8, and the bytes that it has. */
static inline uint32_t gd_unicode_decode(const char *text, size_t *bytes) {
  const unsigned char *at = (const unsigned char *)text;
  if (at[0] < 0x80) {
    *bytes = 1;
    return at[0];
  }
  if (at[0] < 0xe0) {
    *bytes = 2;
    return (at[0] & 0x1fu) << 6 | (at[1] & 0x3fu);
  }
  if (at[0] < 0xf0) {
    *bytes = 3;
    return (at[0] & 0xfu) << 12 | (at[1] & 0x3fu) << 6 | (at[2] & 0x3fu);
  }
  *bytes = 4;
  return (at[0] & 7u) << 18 | (at[1] & 0x3fu) << 12 | (at[2] & 0x3fu) << 6 | (at[3] & 0x3fu);
}
/* Writes up to 4 bytes, and says how many. */
size_t gd_unicode_encode(uint32_t point, char *text);
/* Bytes of the last character of a text that is not empty. */
size_t gd_unicode_last(const char *text, size_t length);

#endif
