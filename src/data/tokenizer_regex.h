/*
 * Regular expressions of tokenizers: the part of Oniguruma's syntax that they use, on UTF-8, with
 * Unicode's classes. Literals, classes, \p{L}, \s \d \w, groups, (?i:), alternatives, quantifiers
 * (greedy, lazy, possessive), lookahead, anchors. What else a pattern says is refused when it is
 * compiled, as is a pattern that matches the empty text.
 *
 * Matching backtracks: runs of one class take one entry of the stack, and a budget of steps, for
 * all matches in a text together, ends what would take forever.
 */
#ifndef GD_DATA_TOKENIZER_REGEX_H
#define GD_DATA_TOKENIZER_REGEX_H

#include "data/unicode.h"

struct gd_regex;
/* Where a match stands; one a thread, reused. Zeroed is empty. */
struct gd_regex_stack {
  struct gd_regex_entry *entries;
  size_t count, capacity;
  int64_t steps; /* that are left */
};

/* GD_BAD_INPUT: not a pattern; GD_UNSUPPORTED: not one of ours. The sentence has the pattern. */
enum gd_status gd_regex_compile(struct gd_regex **regex, const struct gd_unicode *unicode,
                                const char *pattern, size_t length,
                                struct gd_error *err) GD_MUST_USE;
/* The text itself. */
enum gd_status gd_regex_compile_literal(struct gd_regex **regex, const struct gd_unicode *unicode,
                                        const char *text, size_t length,
                                        struct gd_error *err) GD_MUST_USE;
void gd_regex_free(struct gd_regex *regex); /* NULL is fine */

/* Before the matches in a text of so many bytes: the steps that all of them may take together. */
void gd_regex_begin(struct gd_regex_stack *stack, size_t length);
/* The first match at or after *start, in [*start, *end); *found false: there is none. */
enum gd_status gd_regex_find(const struct gd_regex *regex, struct gd_regex_stack *stack,
                             const char *text, size_t length, size_t *start, size_t *end,
                             bool *found, struct gd_error *err) GD_MUST_USE;
void gd_regex_stack_deinit(struct gd_regex_stack *stack);

#endif
