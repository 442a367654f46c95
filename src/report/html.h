/*
 * HTML as text. Everything that is not our own markup goes through gd_html_text.
 */
#ifndef GD_REPORT_HTML_H
#define GD_REPORT_HTML_H

#include "base/strbuf.h"

/* Text or the value of an attribute in double quotes: & < > " ' are escaped, control characters
   become blanks, and bytes that are not UTF-8 become U+FFFD. */
void gd_html_text(struct gd_strbuf *out, const char *text);
/* <tag>text</tag>\n; class_name may be NULL. Tag and class are ours, the text is anyone's. */
void gd_html_element(struct gd_strbuf *out, const char *tag, const char *class_name,
                     const char *text);

#endif
