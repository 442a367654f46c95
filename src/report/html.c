/*
 * Escaping; see html.h.
 */
#include "report/html.h"

#include <stdbool.h>
#include <string.h>

/* Bytes of the UTF-8 character there; 0: it is none. Overlong forms, surrogates and what lies
   beyond U+10FFFF are none either. */
static size_t utf8_length(const unsigned char *at) {
  size_t length = at[0] < 0x80                    ? 1
                  : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                  : (at[0] & 0xf0) == 0xe0        ? 3
                  : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                  : 0;
  for (size_t i = 1; i < length; i++)
    if ((at[i] & 0xc0) != 0x80)
      return 0;
  bool wrong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0) ||
               (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90);
  return length > 1 && wrong ? 0 : length;
}

void gd_html_text(struct gd_strbuf *out, const char *text) {
  while (*text) {
    size_t length = utf8_length((const unsigned char *)text);
    switch (*text) {
    case '&': gd_strbuf_append(out, "&amp;"); break;
    case '<': gd_strbuf_append(out, "&lt;"); break;
    case '>': gd_strbuf_append(out, "&gt;"); break;
    case '"': gd_strbuf_append(out, "&quot;"); break;
    case '\'': gd_strbuf_append(out, "&#39;"); break;
    default:
      if (length == 0)
        gd_strbuf_append(out, "\xef\xbf\xbd");
      else if (length == 1 && ((unsigned char)*text < ' ' || *text == 127))
        gd_strbuf_append(out, " ");
      else
        gd_strbuf_append_bytes(out, text, length);
    }
    text += length > 0 ? length : 1;
  }
}

void gd_html_element(struct gd_strbuf *out, const char *tag, const char *class_name,
                     const char *text) {
  gd_strbuf_printf(out, "<%s", tag);
  if (class_name)
    gd_strbuf_printf(out, " class=\"%s\"", class_name);
  gd_strbuf_append(out, ">");
  gd_html_text(out, text);
  gd_strbuf_printf(out, "</%s>\n", tag);
}
