/*
 * Compiling a pattern to a small program, and running it; see tokenizer_regex.h. A pattern is
 * parsed to a tree (parse_*), the tree becomes instructions (emit_*), and each alternative of the
 * whole pattern knows the characters that it may begin with, so that most are never tried.
 */
#include "data/tokenizer_regex.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum {
  MOST_PATTERN = 16384,   /* bytes of a pattern */
  MOST_PROGRAM = 20000,   /* instructions, after {n,m} were written out */
  MOST_DEPTH = 50,        /* groups in groups */
  MOST_REPEAT = 1000,     /* of {n,m} */
  MOST_ALTERNATIVES = 64, /* of a whole pattern that are told apart by their first character */
  UNBOUNDED = INT32_MAX,  /* the maximum of * and + */
  STEPS_A_BYTE = 1024     /* limit of the steps of all matches, for each byte of the text */
};

struct range {
  uint32_t first, last;
};

/* Characters: a union of categories, flags and ranges, or all others. */
struct set {
  uint64_t ascii[2];   /* the answer for code points below 128 */
  uint32_t categories; /* bit per category */
  uint16_t flags;      /* enum gd_unicode_flag: any of these */
  uint16_t not_flags;  /* or without any one of these */
  uint32_t first_range, n_ranges;
  bool negated;
};

enum node_kind { EMPTY, SET, SEQUENCE, CHOICE, REPEAT, LOOKAHEAD, ATOMIC, ASSERTION };
enum repeat_mode { GREEDY, LAZY, POSSESSIVE };
enum assertion { LINE_START, LINE_END, TEXT_START, TEXT_END, WORD_EDGE, NO_WORD_EDGE };

struct node {
  enum node_kind kind;
  uint32_t a, b; /* children; SET: a is the set; ASSERTION: a says which; LOOKAHEAD: b is "not" */
  int32_t least, most;
  enum repeat_mode mode;
};

enum code { MATCH_SET, MATCH_SPAN, SPLIT, JUMP, LOOK, LOOK_NOT, WHOLE, ASSERT_AT, DONE };

struct instruction {
  enum code code;
  uint32_t a, b; /* sets; targets: SPLIT tries a first, then b; LOOK..WHOLE end before b */
  int32_t least, most;
  bool possessive;
};

struct gd_regex_entry {
  uint32_t at;  /* instruction to go on with */
  size_t place; /* of the text */
  size_t low;   /* a span gives back down to here; SIZE_MAX: no span */
};

struct gd_regex {
  const struct gd_unicode *unicode;
  char excerpt[96]; /* for messages */
  struct set *sets;
  struct range *ranges;
  struct node *nodes;
  struct instruction *program;
  uint32_t n_sets, sets_room, n_ranges, ranges_room, n_nodes, nodes_room, n_program, program_room;
  uint32_t starts[MOST_ALTERNATIVES]; /* of alternatives, in the program */
  uint64_t first[129];                /* alternatives that may begin so; 128: beyond ASCII */
};

/* --- sets ---------------------------------------------------------------------------------- */

static bool set_has_slowly(const struct gd_regex *regex, const struct set *set, uint32_t point) {
  uint16_t property = regex->unicode->properties[point];
  bool has = (set->categories >> (property & 31) & 1) != 0 || (property & set->flags) != 0 ||
             (set->not_flags & ~property) != 0;
  for (uint32_t i = 0; i < set->n_ranges && !has; i++) {
    const struct range *range = &regex->ranges[set->first_range + i];
    has = point >= range->first && point <= range->last;
  }
  return has != set->negated;
}

static inline bool set_has(const struct gd_regex *regex, const struct set *set, uint32_t point) {
  if (point < 128)
    return (set->ascii[point >> 6] >> (point & 63) & 1) != 0;
  return set_has_slowly(regex, set, point);
}

static void set_finish(const struct gd_regex *regex, struct set *set) {
  set->ascii[0] = set->ascii[1] = 0;
  for (uint32_t c = 0; c < 128; c++)
    if (set_has_slowly(regex, set, c))
      set->ascii[c >> 6] |= UINT64_C(1) << (c & 63);
}

/* --- parsing ------------------------------------------------------------------------------- */

struct parser {
  struct gd_regex *regex;
  const char *text;
  size_t length, at;
  int depth;
  bool ignore_case;
  struct gd_error *err;
};

static enum gd_status nomem(struct parser *p) {
  return gd_nomem(p->err, "for the pattern %s", p->regex->excerpt);
}
#define refuse(p, what)                                                              \
  gd_fail((p)->err, GD_UNSUPPORTED, "the pattern %s has %s, which is not supported", \
          (p)->regex->excerpt, what)
#define broken(p, why) \
  gd_fail((p)->err, GD_BAD_INPUT, "the pattern %s is broken: %s", (p)->regex->excerpt, why)

static enum gd_status add_node(struct parser *p, struct node node, uint32_t *index) {
  struct gd_regex *regex = p->regex;
  if (!gd_vec_reserve((void **)&regex->nodes, &regex->nodes_room, regex->n_nodes + 1,
                      sizeof *regex->nodes))
    return nomem(p);
  *index = regex->n_nodes;
  regex->nodes[regex->n_nodes++] = node;
  return GD_OK;
}

static enum gd_status add_range(struct parser *p, struct set *set, uint32_t first, uint32_t last) {
  struct gd_regex *regex = p->regex;
  if (set->n_ranges == 0)
    set->first_range = regex->n_ranges;
  if (!gd_vec_reserve((void **)&regex->ranges, &regex->ranges_room, regex->n_ranges + 1,
                      sizeof *regex->ranges))
    return nomem(p);
  regex->ranges[regex->n_ranges++] = (struct range){first, last};
  set->n_ranges++;
  return GD_OK;
}

/* With the other case of letters where that is asked for. Oniguruma also takes U+017F for an s and
   U+212A for a k. */
static enum gd_status add_characters(struct parser *p, struct set *set, uint32_t first,
                                     uint32_t last) {
  GD_TRY(add_range(p, set, first, last));
  if (!p->ignore_case)
    return GD_OK;
  if (last >= 128)
    return refuse(p, "letters beyond ASCII where case is ignored");
  for (uint32_t c = first; c <= last; c++) {
    uint32_t small = c | 32;
    if (small < 'a' || small > 'z')
      continue;
    GD_TRY(add_range(p, set, c ^ 32, c ^ 32));
    if (small == 's' || small == 'k')
      GD_TRY(add_range(p, set, small == 's' ? 0x17f : 0x212a, small == 's' ? 0x17f : 0x212a));
  }
  return GD_OK;
}

static enum gd_status add_set(struct parser *p, struct set *set, uint32_t *node) {
  struct gd_regex *regex = p->regex;
  if (!gd_vec_reserve((void **)&regex->sets, &regex->sets_room, regex->n_sets + 1,
                      sizeof *regex->sets))
    return nomem(p);
  set_finish(regex, set);
  regex->sets[regex->n_sets++] = *set;
  return add_node(p, (struct node){.kind = SET, .a = regex->n_sets - 1}, node);
}

static enum gd_status next_point(struct parser *p, uint32_t *point) {
  size_t bytes;
  if (p->at >= p->length)
    return broken(p, "it ends too early");
  *point = gd_unicode_decode(p->text + p->at, &bytes);
  p->at += bytes;
  return GD_OK;
}

static bool next_is(const struct parser *p, const char *text) {
  size_t length = strlen(text);
  return p->length - p->at >= length && memcmp(p->text + p->at, text, length) == 0;
}

static bool take(struct parser *p, const char *text) {
  if (!next_is(p, text))
    return false;
  p->at += strlen(text);
  return true;
}

/* Names of categories, as bits. 0: unknown. */
static uint32_t categories_of(const char *name, size_t length) {
  static const char names[] = "CnLuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCo";
  uint32_t bits = 0;
  if (length == 0 || length > 2)
    return 0;
  for (uint32_t i = 0; i < GD_UNICODE_CATEGORIES; i++)
    if (memcmp(names + (size_t)2 * i, name, length) == 0)
      bits |= UINT32_C(1) << i;
  return bits;
}

/* After "\p" or "\P". */
static enum gd_status parse_property(struct parser *p, bool negated, struct set *set) {
  char sentence[64], name[24];
  if (!take(p, "{"))
    return refuse(p, "\\p without braces");
  if (take(p, "^"))
    negated = !negated;
  const char *start = p->text + p->at, *end = memchr(start, '}', p->length - p->at);
  if (!end)
    return broken(p, "\\p{ has no }");
  size_t length = (size_t)(end - start);
  uint32_t bits = categories_of(start, length);
  p->at += length + 1;
  if (bits == 0) {
    size_t shown = length < sizeof name - 1 ? length : sizeof name - 1;
    memcpy(name, start, shown);
    name[shown] = '\0';
    gd_json_excerpt(sentence, sizeof sentence, name);
    return gd_fail(p->err, GD_UNSUPPORTED,
                   "the pattern %s has the class \\p{%s}, which is not supported; the two-letter "
                   "categories of Unicode are",
                   p->regex->excerpt, sentence);
  }
  if (p->ignore_case && (bits & (UINT32_C(7) << GD_UNICODE_LU)) &&
      (bits & (UINT32_C(7) << GD_UNICODE_LU)) != UINT32_C(7) << GD_UNICODE_LU)
    return refuse(p, "\\p{Lu} and its like where case is ignored");
  set->categories |= negated ? ~bits & ((UINT32_C(1) << GD_UNICODE_CATEGORIES) - 1) : bits;
  return GD_OK;
}

static enum gd_status parse_hex(struct parser *p, uint32_t *point) {
  int most = 2, digits = 0;
  bool braces = p->text[p->at - 1] == 'x' && take(p, "{");
  if (p->text[p->at - 1] == 'u')
    most = 4;
  if (braces)
    most = 6;
  *point = 0;
  for (; digits < most && p->at < p->length; digits++) {
    char c = p->text[p->at];
    int value = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (value < 0)
      break;
    *point = *point * 16 + (uint32_t)value;
    p->at++;
  }
  if (digits == 0 || (braces && !take(p, "}")) || *point >= GD_UNICODE_POINTS ||
      (*point >= 0xd800 && *point < 0xe000))
    return broken(p, "an escape has no code point of Unicode");
  if (most == 2 && *point >= 128)
    return refuse(p, "a byte above \\x7f");
  return GD_OK;
}

/* After a backslash: a class into the set, or one character (*is_class false). */
static enum gd_status parse_escape(struct parser *p, struct set *set, bool *is_class,
                                   uint32_t *point) {
  static const char from[] = "nrtfvae", to[] = "\n\r\t\f\v\a\x1b";
  GD_TRY(next_point(p, point));
  *is_class = true;
  switch (*point) {
  case 'p': return parse_property(p, false, set);
  case 'P': return parse_property(p, true, set);
  case 's': set->flags |= GD_UNICODE_SPACE; return GD_OK;
  case 'S': set->not_flags |= GD_UNICODE_SPACE; return GD_OK;
  case 'w': set->flags |= GD_UNICODE_WORD; return GD_OK;
  case 'W': set->not_flags |= GD_UNICODE_WORD; return GD_OK;
  case 'd': set->categories |= UINT32_C(1) << GD_UNICODE_ND; return GD_OK;
  case 'D':
    set->categories |= ((UINT32_C(1) << GD_UNICODE_CATEGORIES) - 1) ^ UINT32_C(1) << GD_UNICODE_ND;
    return GD_OK;
  default: break;
  }
  *is_class = false;
  const char *found = *point < 128 && *point > 0 ? strchr(from, (int)*point) : NULL;
  if (found)
    *point = (uint32_t)to[found - from];
  else if (*point == 'x' || *point == 'u')
    return parse_hex(p, point);
  else if ((*point >= 'a' && *point <= 'z') || (*point >= 'A' && *point <= 'Z') ||
           (*point >= '0' && *point <= '9') || *point >= 128) {
    char what[24] = "the escape \\";
    what[12] = (char)*point;
    return refuse(p, *point < 128 ? what : "an escaped character beyond ASCII");
  }
  return GD_OK;
}

/* After "[". */
static enum gd_status parse_class(struct parser *p, uint32_t *node) {
  struct set set = {0};
  bool first = true;
  set.negated = take(p, "^");
  for (;; first = false) {
    uint32_t point, last;
    bool is_class = false, last_is_class = false;
    if (next_is(p, "]") && !first) {
      p->at++;
      break;
    }
    if (next_is(p, "&&"))
      return refuse(p, "an intersection of classes (&&)");
    if (next_is(p, "["))
      return refuse(p, "a class in a class");
    GD_TRY(next_point(p, &point));
    if (point == ']' && first)
      return refuse(p, "a class that begins with ]");
    if (point == '\\')
      GD_TRY(parse_escape(p, &set, &is_class, &point));
    if (is_class)
      continue;
    last = point;
    if (next_is(p, "-") && p->at + 1 < p->length && p->text[p->at + 1] != ']') {
      p->at++;
      if (next_is(p, "["))
        return refuse(p, "a class in a class");
      GD_TRY(next_point(p, &last));
      if (last == '\\')
        GD_TRY(parse_escape(p, &set, &last_is_class, &last));
      if (last_is_class)
        return refuse(p, "a range that ends in a class");
      if (last < point)
        return broken(p, "a range ends before it starts");
    }
    GD_TRY(add_characters(p, &set, point, last));
  }
  return add_set(p, &set, node);
}

static enum gd_status parse_choice(struct parser *p, uint32_t *node);

/* After "(". */
static enum gd_status parse_group(struct parser *p, uint32_t *node) {
  bool ignoring = p->ignore_case;
  struct node around = {.kind = EMPTY};
  if (++p->depth > MOST_DEPTH)
    return refuse(p, "groups nested more than 50 deep");
  if (take(p, "?")) {
    if (take(p, "="))
      around.kind = LOOKAHEAD;
    else if (take(p, "!")) {
      around.kind = LOOKAHEAD;
      around.b = 1;
    } else if (take(p, ">"))
      around.kind = ATOMIC;
    else if (take(p, "i:"))
      p->ignore_case = true;
    else if (take(p, "-i:"))
      p->ignore_case = false;
    else if (next_is(p, "<=") || next_is(p, "<!"))
      return refuse(p, "a lookbehind");
    else if (!take(p, ":"))
      return refuse(p, "a kind of group");
  }
  GD_TRY(parse_choice(p, node));
  if (!take(p, ")"))
    return broken(p, "a group has no )");
  p->ignore_case = ignoring;
  p->depth--;
  if (around.kind == EMPTY)
    return GD_OK;
  around.a = *node;
  return add_node(p, around, node);
}

static enum gd_status add_assertion(struct parser *p, enum assertion which, uint32_t *node) {
  return add_node(p, (struct node){.kind = ASSERTION, .a = (uint32_t)which}, node);
}

/* Case folding of these pairs has characters of its own (U+00DF, U+FB00 to U+FB06). */
static bool folds_together(const struct parser *p) {
  static const char *const pairs[] = {"ss", "ff", "fi", "fl", "st"};
  if (!p->ignore_case || p->at == 0 || p->at >= p->length)
    return false;
  char pair[3] = {(char)(p->text[p->at - 1] | 32), (char)(p->text[p->at] | 32), 0};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    if (strcmp(pair, pairs[i]) == 0)
      return true;
  return false;
}

static enum gd_status parse_atom(struct parser *p, uint32_t *node) {
  struct set set = {0};
  uint32_t point;
  bool is_class = false;
  GD_TRY(next_point(p, &point));
  switch (point) {
  case '(': return parse_group(p, node);
  case '[': return parse_class(p, node);
  case '^': return add_assertion(p, LINE_START, node);
  case '$': return add_assertion(p, LINE_END, node);
  case '*':
  case '+':
  case '?': return broken(p, "a quantifier has nothing to repeat");
  case '.':
    set.negated = true;
    GD_TRY(add_range(p, &set, '\n', '\n'));
    return add_set(p, &set, node);
  case '\\':
    if (take(p, "A"))
      return add_assertion(p, TEXT_START, node);
    if (take(p, "z"))
      return add_assertion(p, TEXT_END, node);
    if (take(p, "b"))
      return add_assertion(p, WORD_EDGE, node);
    if (take(p, "B"))
      return add_assertion(p, NO_WORD_EDGE, node);
    GD_TRY(parse_escape(p, &set, &is_class, &point));
    break;
  default: break;
  }
  if (!is_class) {
    if (folds_together(p))
      return refuse(p, "letters that fold together where case is ignored");
    GD_TRY(add_characters(p, &set, point, point));
  }
  return add_set(p, &set, node);
}

/* {n}, {n,}, {,m}, {n,m}; false and nothing taken where the brace is a character. */
static bool take_interval(struct parser *p, int32_t *least, int32_t *most) {
  size_t at = p->at + 1;
  int64_t numbers[2] = {-1, -1};
  int which = 0;
  if (!next_is(p, "{"))
    return false;
  for (; at < p->length && p->text[at] != '}'; at++) {
    char c = p->text[at];
    if (c == ',' && which == 0)
      which = 1;
    else if (c >= '0' && c <= '9' && numbers[which] <= 100000)
      numbers[which] = (numbers[which] < 0 ? 0 : numbers[which] * 10) + (c - '0');
    else
      return false;
  }
  if (at >= p->length || (numbers[0] < 0 && numbers[1] < 0))
    return false;
  p->at = at + 1;
  *least = numbers[0] < 0 ? 0 : (int32_t)numbers[0];
  *most = which == 0 ? *least : numbers[1] < 0 ? UNBOUNDED : (int32_t)numbers[1];
  return true;
}

static enum gd_status parse_quantified(struct parser *p, uint32_t *node) {
  GD_TRY(parse_atom(p, node));
  while (p->at < p->length) {
    struct node repeat = {.kind = REPEAT, .a = *node, .mode = GREEDY};
    char c = p->text[p->at];
    bool interval = false;
    if (c == '*' || c == '+' || c == '?') {
      p->at++;
      repeat.least = c == '+';
      repeat.most = c == '?' ? 1 : UNBOUNDED;
    } else if (take_interval(p, &repeat.least, &repeat.most)) {
      interval = true;
    } else {
      break;
    }
    if (repeat.least > repeat.most)
      return refuse(p, "a quantifier {n,m} with n above m");
    if (repeat.least > MOST_REPEAT || (repeat.most > MOST_REPEAT && repeat.most != UNBOUNDED))
      return refuse(p, "a quantifier above 1000");
    if (interval && repeat.least == repeat.most && next_is(p, "?"))
      return refuse(p, "the quantifier {n}?");
    if (take(p, "?"))
      repeat.mode = LAZY;
    else if (!interval && take(p, "+"))
      repeat.mode = POSSESSIVE;
    if (p->regex->nodes[*node].kind == LOOKAHEAD || p->regex->nodes[*node].kind == ASSERTION)
      return refuse(p, "a quantifier of an assertion");
    GD_TRY(add_node(p, repeat, node));
  }
  return GD_OK;
}

static enum gd_status parse_sequence(struct parser *p, uint32_t *node) {
  uint32_t last = UINT32_MAX;
  GD_TRY(add_node(p, (struct node){.kind = EMPTY}, node));
  while (p->at < p->length && p->text[p->at] != '|' && p->text[p->at] != ')') {
    uint32_t item, link;
    GD_TRY(parse_quantified(p, &item));
    GD_TRY(add_node(p, (struct node){.kind = SEQUENCE, .a = item, .b = UINT32_MAX}, &link));
    if (last == UINT32_MAX)
      *node = link;
    else
      p->regex->nodes[last].b = link;
    last = link;
  }
  return GD_OK;
}

static enum gd_status parse_choice(struct parser *p, uint32_t *node) {
  uint32_t last = UINT32_MAX;
  GD_TRY(parse_sequence(p, node));
  while (take(p, "|")) {
    uint32_t item, link;
    if (last == UINT32_MAX) {
      GD_TRY(add_node(p, (struct node){.kind = CHOICE, .a = *node, .b = UINT32_MAX}, &last));
      *node = last;
    }
    GD_TRY(parse_sequence(p, &item));
    GD_TRY(add_node(p, (struct node){.kind = CHOICE, .a = item, .b = UINT32_MAX}, &link));
    p->regex->nodes[last].b = link;
    last = link;
  }
  return GD_OK;
}

/* --- what a pattern begins with ------------------------------------------------------------ */

struct beginning {
  uint64_t ascii[2];
  bool beyond, empty; /* characters beyond ASCII; may match nothing */
};

static struct beginning begins(const struct gd_regex *regex, uint32_t index) {
  struct beginning all = {.empty = true}, one;
  const struct node *node = &regex->nodes[index];
  switch (node->kind) {
  case SET:
    return (struct beginning){
        {regex->sets[node->a].ascii[0], regex->sets[node->a].ascii[1]}, true, false};
  case SEQUENCE:
    for (; index != UINT32_MAX && all.empty; index = regex->nodes[index].b) {
      one = begins(regex, regex->nodes[index].a);
      all.ascii[0] |= one.ascii[0];
      all.ascii[1] |= one.ascii[1];
      all.beyond |= one.beyond;
      all.empty = one.empty;
    }
    return all;
  case CHOICE:
    all.empty = false;
    for (; index != UINT32_MAX; index = regex->nodes[index].b) {
      one = begins(regex, regex->nodes[index].a);
      all.ascii[0] |= one.ascii[0];
      all.ascii[1] |= one.ascii[1];
      all.beyond |= one.beyond;
      all.empty |= one.empty;
    }
    return all;
  case REPEAT:
    all = begins(regex, node->a);
    all.empty |= node->least == 0;
    return all;
  case ATOMIC: return begins(regex, node->a);
  default: return all; /* assertions take no characters */
  }
}

/* --- instructions -------------------------------------------------------------------------- */

static enum gd_status emit(struct parser *p, struct instruction instruction, uint32_t *index) {
  struct gd_regex *regex = p->regex;
  if (regex->n_program >= MOST_PROGRAM)
    return refuse(p, "more repetitions than fit");
  if (!gd_vec_reserve((void **)&regex->program, &regex->program_room, regex->n_program + 1,
                      sizeof *regex->program))
    return nomem(p);
  *index = regex->n_program;
  regex->program[regex->n_program++] = instruction;
  return GD_OK;
}

static enum gd_status emit_node(struct parser *p, uint32_t index);

static enum gd_status emit_choice(struct parser *p, uint32_t index) {
  uint32_t jumps = UINT32_MAX, split, jump; /* jumps to the end, chained by their targets */
  for (; index != UINT32_MAX; index = p->regex->nodes[index].b) {
    bool is_last = p->regex->nodes[index].b == UINT32_MAX;
    if (!is_last)
      GD_TRY(emit(p, (struct instruction){.code = SPLIT, .a = p->regex->n_program + 1}, &split));
    GD_TRY(emit_node(p, p->regex->nodes[index].a));
    if (is_last)
      break;
    GD_TRY(emit(p, (struct instruction){.code = JUMP, .a = jumps}, &jump));
    jumps = jump;
    p->regex->program[split].b = p->regex->n_program;
  }
  while (jumps != UINT32_MAX) {
    uint32_t next = p->regex->program[jumps].a;
    p->regex->program[jumps].a = p->regex->n_program;
    jumps = next;
  }
  return GD_OK;
}

/* The body as often as it must be there, then a loop or as many optional ones. */
static enum gd_status emit_loop(struct parser *p, const struct node *node) {
  uint32_t splits = UINT32_MAX, split, jump;
  bool lazy = node->mode == LAZY;
  if (begins(p->regex, node->a).empty)
    return refuse(p, "a repetition of what may be empty");
  for (int32_t i = 0; i < node->least; i++)
    GD_TRY(emit_node(p, node->a));
  if (node->most == UNBOUNDED) {
    GD_TRY(emit(p, (struct instruction){.code = SPLIT}, &split));
    GD_TRY(emit_node(p, node->a));
    GD_TRY(emit(p, (struct instruction){.code = JUMP, .a = split}, &jump));
    p->regex->program[split].a = lazy ? p->regex->n_program : split + 1;
    p->regex->program[split].b = lazy ? split + 1 : p->regex->n_program;
    return GD_OK;
  }
  for (int32_t i = node->least; i < node->most; i++) {
    GD_TRY(emit(p, (struct instruction){.code = SPLIT, .a = splits}, &split));
    splits = split;
    GD_TRY(emit_node(p, node->a));
  }
  while (splits != UINT32_MAX) {
    uint32_t next = p->regex->program[splits].a;
    p->regex->program[splits].a = lazy ? p->regex->n_program : splits + 1;
    p->regex->program[splits].b = lazy ? splits + 1 : p->regex->n_program;
    splits = next;
  }
  return GD_OK;
}

static enum gd_status emit_repeat(struct parser *p, struct node node) {
  uint32_t index, ignored;
  if (p->regex->nodes[node.a].kind == SET && node.mode != LAZY)
    return emit(p,
                (struct instruction){.code = MATCH_SPAN,
                                     .a = p->regex->nodes[node.a].a,
                                     .least = node.least,
                                     .most = node.most,
                                     .possessive = node.mode == POSSESSIVE},
                &index);
  if (node.mode != POSSESSIVE)
    return emit_loop(p, &node);
  GD_TRY(emit(p, (struct instruction){.code = WHOLE}, &index));
  GD_TRY(emit_loop(p, &node));
  GD_TRY(emit(p, (struct instruction){.code = DONE}, &ignored));
  p->regex->program[index].b = p->regex->n_program;
  return GD_OK;
}

static enum gd_status emit_node(struct parser *p, uint32_t index) {
  const struct node node = p->regex->nodes[index];
  uint32_t at;
  switch (node.kind) {
  case EMPTY: return GD_OK;
  case SET: return emit(p, (struct instruction){.code = MATCH_SET, .a = node.a}, &at);
  case SEQUENCE:
    for (; index != UINT32_MAX; index = p->regex->nodes[index].b)
      GD_TRY(emit_node(p, p->regex->nodes[index].a));
    return GD_OK;
  case CHOICE: return emit_choice(p, index);
  case REPEAT: return emit_repeat(p, node);
  case ASSERTION: return emit(p, (struct instruction){.code = ASSERT_AT, .a = node.a}, &at);
  case LOOKAHEAD:
  case ATOMIC: {
    enum code code = node.kind == ATOMIC ? WHOLE : node.b ? LOOK_NOT : LOOK;
    uint32_t end;
    GD_TRY(emit(p, (struct instruction){.code = code}, &at));
    GD_TRY(emit_node(p, node.a));
    GD_TRY(emit(p, (struct instruction){.code = DONE}, &end));
    p->regex->program[at].b = p->regex->n_program;
    return GD_OK;
  }
  default: return GD_OK;
  }
}

/* One alternative, or all that are left. */
static enum gd_status emit_alternative(struct parser *p, uint32_t node, uint32_t number) {
  struct gd_regex *regex = p->regex;
  struct beginning begin = begins(regex, node);
  uint32_t ignored;
  if (begin.empty)
    return refuse(p, "a match of the empty text");
  regex->starts[number] = regex->n_program;
  for (uint32_t c = 0; c < 128; c++)
    if (begin.ascii[c >> 6] >> (c & 63) & 1)
      regex->first[c] |= UINT64_C(1) << number;
  if (begin.beyond)
    regex->first[128] |= UINT64_C(1) << number;
  GD_TRY(emit_node(p, node));
  return emit(p, (struct instruction){.code = DONE}, &ignored);
}

static enum gd_status compile(struct parser *p) {
  uint32_t root, number = 0;
  GD_TRY(parse_choice(p, &root));
  if (p->at < p->length)
    return broken(p, "there is a ) without its (");
  if (p->regex->nodes[root].kind != CHOICE)
    return emit_alternative(p, root, 0);
  for (uint32_t at = root; at != UINT32_MAX; at = p->regex->nodes[at].b) {
    bool rest = number == MOST_ALTERNATIVES - 1;
    GD_TRY(emit_alternative(p, rest ? at : p->regex->nodes[at].a, number++));
    if (rest)
      break;
  }
  return GD_OK;
}

static enum gd_status make(struct gd_regex **regex, const struct gd_unicode *unicode,
                           const char *pattern, size_t length, struct gd_error *err) {
  struct gd_strbuf text = {0};
  *regex = gd_mem_alloc(1, sizeof **regex);
  gd_strbuf_append_bytes(&text, pattern, length < 200 ? length : 200);
  if (!*regex || text.failed) {
    gd_strbuf_deinit(&text);
    gd_mem_free(*regex);
    *regex = NULL;
    return gd_nomem(err, "for a pattern");
  }
  (*regex)->unicode = unicode;
  gd_json_excerpt((*regex)->excerpt, sizeof(*regex)->excerpt, text.text);
  gd_strbuf_deinit(&text);
  return GD_OK;
}

enum gd_status gd_regex_compile(struct gd_regex **regex, const struct gd_unicode *unicode,
                                const char *pattern, size_t length, struct gd_error *err) {
  GD_TRY(make(regex, unicode, pattern, length, err));
  struct parser p = {.regex = *regex, .text = pattern, .length = length, .err = err};
  enum gd_status status =
      length > MOST_PATTERN ? refuse(&p, "more than 16,384 bytes") : compile(&p);
  if (status != GD_OK) {
    gd_regex_free(*regex);
    *regex = NULL;
  }
  return status;
}

enum gd_status gd_regex_compile_literal(struct gd_regex **regex, const struct gd_unicode *unicode,
                                        const char *text, size_t length, struct gd_error *err) {
  struct gd_strbuf escaped = {0};
  for (size_t i = 0; i < length; i++) {
    if (strchr("\\[](){}.*+?|^$#&-~", text[i]) && text[i] != '\0')
      gd_strbuf_append_bytes(&escaped, "\\", 1);
    gd_strbuf_append_bytes(&escaped, text + i, 1);
  }
  enum gd_status status =
      escaped.failed
          ? gd_nomem(err, "for a pattern")
          : gd_regex_compile(regex, unicode, escaped.text ? escaped.text : "", escaped.length, err);
  gd_strbuf_deinit(&escaped);
  return status;
}

void gd_regex_free(struct gd_regex *regex) {
  if (!regex)
    return;
  gd_mem_free(regex->sets);
  gd_mem_free(regex->ranges);
  gd_mem_free(regex->nodes);
  gd_mem_free(regex->program);
  gd_mem_free(regex);
}

/* --- matching ------------------------------------------------------------------------------ */

/* Ends of a run that are no place in the text. */
#define NO_MATCH SIZE_MAX
#define NO_STEPS (SIZE_MAX - 1)
#define NO_ROOM  (SIZE_MAX - 2)

static bool push(struct gd_regex_stack *stack, struct gd_regex_entry entry) {
  if (stack->count == stack->capacity) {
    size_t capacity = stack->capacity ? stack->capacity * 2 : 64;
    struct gd_regex_entry *grown =
        gd_mem_grow(stack->entries, stack->capacity, capacity, sizeof *grown);
    if (!grown)
      return false;
    stack->entries = grown;
    stack->capacity = capacity;
  }
  stack->entries[stack->count++] = entry;
  return true;
}

static bool is_word(const struct gd_regex *regex, const char *text, size_t at) {
  size_t bytes;
  return (regex->unicode->properties[gd_unicode_decode(text + at, &bytes)] & GD_UNICODE_WORD) != 0;
}

static bool holds(const struct gd_regex *regex, enum assertion which, const char *text,
                  size_t length, size_t at) {
  bool before, after;
  switch (which) {
  case LINE_START: return at == 0 || (at < length && text[at - 1] == '\n');
  case LINE_END: return at == length || text[at] == '\n';
  case TEXT_START: return at == 0;
  case TEXT_END: return at == length;
  default: break;
  }
  before = at > 0 && is_word(regex, text, at - gd_unicode_last(text, at));
  after = at < length && is_word(regex, text, at);
  return (before != after) == (which == WORD_EDGE);
}

/* Goes over as many characters of the set as may be; *low is the place after the least. */
static size_t run_span(const struct gd_regex *regex, const struct instruction *span,
                       const char *text, size_t length, size_t at, size_t *low) {
  const struct set *set = &regex->sets[span->a];
  int32_t count = 0;
  size_t bytes;
  *low = at;
  while (at < length && count < span->most) {
    uint32_t point = gd_unicode_decode(text + at, &bytes);
    if (!set_has(regex, set, point))
      break;
    at += bytes;
    count += count < INT32_MAX - 1;
    if (count == span->least)
      *low = at;
  }
  return count < span->least ? NO_MATCH : at;
}

/* The end of a match of the program at `from`, or one of the above. Recursive only into
   lookaheads and atomic groups, whose depth the parser bounds. */
static size_t run(const struct gd_regex *regex, struct gd_regex_stack *stack, const char *text,
                  size_t length, uint32_t from, size_t at) {
  size_t base = stack->count, end, low, bytes;
  uint32_t pc = from;
  for (;;) {
    const struct instruction *now = &regex->program[pc];
    bool fits = true;
    if (--stack->steps < 0)
      return NO_STEPS;
    switch (now->code) {
    case MATCH_SET:
      fits =
          at < length && set_has(regex, &regex->sets[now->a], gd_unicode_decode(text + at, &bytes));
      if (fits)
        at += bytes;
      pc++;
      break;
    case MATCH_SPAN:
      end = run_span(regex, now, text, length, at, &low);
      pc++;
      fits = end != NO_MATCH;
      if (!fits)
        break;
      stack->steps -= (int64_t)(end - at) / 8;
      at = end;
      if (end > low && !now->possessive && !push(stack, (struct gd_regex_entry){pc, end, low}))
        return NO_ROOM;
      break;
    case SPLIT:
      if (!push(stack, (struct gd_regex_entry){now->b, at, SIZE_MAX}))
        return NO_ROOM;
      pc = now->a;
      break;
    case JUMP: pc = now->a; break;
    case LOOK:
    case LOOK_NOT:
    case WHOLE: {
      size_t kept = stack->count;
      end = run(regex, stack, text, length, pc + 1, at);
      stack->count = kept;
      if (end == NO_STEPS || end == NO_ROOM)
        return end;
      fits = (end != NO_MATCH) == (now->code != LOOK_NOT);
      if (fits && now->code == WHOLE)
        at = end;
      pc = now->b;
      break;
    }
    case ASSERT_AT:
      fits = holds(regex, (enum assertion)now->a, text, length, at);
      pc++;
      break;
    case DONE: return at;
    }
    if (fits)
      continue;
    if (stack->count == base)
      return NO_MATCH;
    struct gd_regex_entry *last = &stack->entries[stack->count - 1];
    if (last->low == SIZE_MAX) {
      at = last->place;
      stack->count--;
    } else {
      last->place -= gd_unicode_last(text, last->place);
      at = last->place;
      if (last->place <= last->low)
        stack->count--;
    }
    pc = last->at;
  }
}

void gd_regex_begin(struct gd_regex_stack *stack, size_t length) {
  stack->steps = 1000000 + (int64_t)length * STEPS_A_BYTE;
}

enum gd_status gd_regex_find(const struct gd_regex *regex, struct gd_regex_stack *stack,
                             const char *text, size_t length, size_t *start, size_t *end,
                             bool *found, struct gd_error *err) {
  size_t at = *start, bytes;
  for (; at < length; at += bytes) {
    unsigned char c = (unsigned char)text[at];
    uint64_t may = regex->first[c < 128 ? c : 128];
    for (; may; may &= may - 1) {
      int number = __builtin_ctzll(may);
      stack->count = 0;
      size_t stop = run(regex, stack, text, length, regex->starts[number], at);
      if (stop == NO_ROOM)
        return gd_nomem(err, "for a match of the pattern %s", regex->excerpt);
      if (stop == NO_STEPS)
        return gd_fail(err, GD_BAD_INPUT,
                       "the pattern %s takes too long on this text; is it meant for text with "
                       "such long runs?",
                       regex->excerpt);
      if (stop != NO_MATCH) {
        *start = at;
        *end = stop;
        *found = true;
        return GD_OK;
      }
    }
    (void)gd_unicode_decode(text + at, &bytes);
  }
  *found = false;
  return GD_OK;
}

void gd_regex_stack_deinit(struct gd_regex_stack *stack) {
  gd_mem_free(stack->entries);
  *stack = (struct gd_regex_stack){0};
}
