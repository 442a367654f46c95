/*
 * Methods by name, and the search space: all of it read from methods.def.
 */
#include "pass/method.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

#define OFFSET_FLAG(name)     offsetof(struct gd_method, name)
#define OFFSET_NUMBER(name)   offsetof(struct gd_method, name)
#define OFFSET_SHARDING(name) offsetof(struct gd_method, sharding)
#define VALUE_FLAG(id)        1
#define VALUE_NUMBER(id)      1
#define VALUE_SHARDING(id)    GD_SHARDING_##id
enum {
  MASTER = GD_STATE_MASTER,
  COMPUTE = GD_STATE_COMPUTE,
  GRADIENT = GD_STATE_GRADIENT,
  MOMENTS = GD_STATE_MOMENTS,
  ALL_STATE = GD_STATE_ALL,
  BUCKETS = false,
  LAYERS = true,
  ONCE = false,
  TWICE = true,
};
/* Arguments are initialisers. NOLINTBEGIN(bugprone-macro-parentheses) */
#define MEMORY(divided, moved, units, gathered) \
  .divides = divided, .offloads = moved, .by_layer = units, .regathers = gathered
#define MEMORY_SAME .divides = GD_STATE_NONE
#define EXPORT(...) .exports = {__VA_ARGS__}
#define PART(id, text, kind_, group_, needs_, search_, numerics_, paper_, passes_, memory, \
             exports_, title_, words_, doc_)                                               \
  [GD_METHOD_PART_##id] = {.name = #text,                                                  \
                           .kind = GD_KIND_##kind_,                                        \
                           .group = GD_GROUP_##group_,                                     \
                           .needs = GD_GROUP_##needs_,                                     \
                           .search = GD_SEARCH_##search_,                                  \
                           .numerics = GD_NUMERICS_##numerics_,                            \
                           .paper = GD_ON_PAPER_##paper_,                                  \
                           .passes = passes_,                                              \
                           memory,                                                         \
                           exports_,                                                       \
                           .title = title_,                                                \
                           .words = words_,                                                \
                           .doc = doc_,                                                    \
                           .offset = OFFSET_##kind_(text),                                 \
                           .value = (int)VALUE_##kind_(id)},
static const struct gd_method_part parts[GD_METHOD_PART_COUNT] = {
#include "pass/methods.def"
};
#undef PART
/* NOLINTEND(bugprone-macro-parentheses) */

/* Names of a whole group, all of it or none. */
static const struct {
  const char *name;
  bool all;
} bases[] = {{"naive", false}, {"free-lunch", true}};
enum { BASES = sizeof bases / sizeof *bases, MOST_NUMBER = 9999 };

const struct gd_method_part *gd_method_row(enum gd_method_part_id id) {
  GD_ASSERT(id < GD_METHOD_PART_COUNT);
  return &parts[id];
}

/* --- shardings ------------------------------------------------------------------------------ */

const struct gd_method_part *gd_sharding_part(enum gd_sharding sharding) {
  GD_ASSERT(sharding < GD_SHARDING_COUNT);
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++)
    if (parts[i].kind == GD_KIND_SHARDING && parts[i].value == (int)sharding)
      return &parts[i];
  return NULL;
}

const char *gd_sharding_name(enum gd_sharding sharding) {
  const struct gd_method_part *part = gd_sharding_part(sharding);
  return part ? part->name : "";
}

static bool divides(enum gd_sharding sharding, enum gd_part_state state) {
  const struct gd_method_part *part = gd_sharding_part(sharding);
  return part && (part->divides & state);
}

bool gd_shards_gradients(enum gd_sharding sharding) {
  return divides(sharding, GD_STATE_GRADIENT);
}

bool gd_shards_parameters(enum gd_sharding sharding) {
  return divides(sharding, GD_STATE_COMPUTE);
}

bool gd_shards_by_block(enum gd_sharding sharding) {
  const struct gd_method_part *part = gd_sharding_part(sharding);
  return part && part->by_layer;
}

bool gd_regathers(enum gd_sharding sharding) {
  const struct gd_method_part *part = gd_sharding_part(sharding);
  return part && part->regathers;
}

/* --- parts of a method ---------------------------------------------------------------------- */

int gd_method_has(const struct gd_method *method, enum gd_method_part_id id) {
  const struct gd_method_part *part = gd_method_row(id);
  const char *field = (const char *)method + part->offset;
  switch (part->kind) {
  case GD_KIND_FLAG: return *(const bool *)(const void *)field;
  case GD_KIND_NUMBER: return *(const int *)(const void *)field;
  case GD_KIND_SHARDING: break;
  }
  return (int)method->sharding == part->value;
}

static void set_part(struct gd_method *method, const struct gd_method_part *part, int value) {
  char *field = (char *)method + part->offset;
  switch (part->kind) {
  case GD_KIND_FLAG: *(bool *)(void *)field = value; break;
  case GD_KIND_NUMBER: *(int *)(void *)field = value; break;
  case GD_KIND_SHARDING:
    method->sharding = value ? (enum gd_sharding)part->value : GD_SHARDING_NONE;
    break;
  }
}

static int count_group(const struct gd_method *method, enum gd_part_group group, int *of) {
  int count = 0;
  *of = 0;
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++)
    if (parts[i].group == group) {
      ++*of;
      count += gd_method_has(method, (enum gd_method_part_id)i) != 0;
    }
  return count;
}

static bool has_group(const struct gd_method *method, enum gd_part_group group) {
  int of;
  return count_group(method, group, &of) > 0;
}

bool gd_method_is_naive(const struct gd_method *method) {
  return !has_group(method, GD_GROUP_FREE_LUNCH);
}

bool gd_method_is_free_lunch(const struct gd_method *method) {
  int of;
  return count_group(method, GD_GROUP_FREE_LUNCH, &of) == of;
}

/* --- names ---------------------------------------------------------------------------------- */

const char *gd_method_word(int number) {
  if (number < BASES)
    return bases[number].name;
  return number < BASES + GD_METHOD_PART_COUNT ? parts[number - BASES].name : NULL;
}

/* GD_GROUP_NONE: every word that a name can have. */
void gd_method_list_parts(struct gd_strbuf *out, enum gd_part_group group, const char *last) {
  const char *before = NULL;
  int count = 0;
  for (int i = 0; gd_method_word(i); i++) {
    if (group != GD_GROUP_NONE && (i < BASES || parts[i - BASES].group != group))
      continue;
    if (before)
      gd_strbuf_printf(out, "%s%s", count++ ? ", " : "", before);
    before = gd_method_word(i);
  }
  if (before)
    gd_strbuf_printf(out, "%s%s%s%s", count ? " " : "", count ? last : "", count ? " " : "",
                     before);
}

/* A failure whose sentence ends in a list of parts. */
static enum gd_status fail_with_list(struct gd_error *err, const char *sentence,
                                     enum gd_part_group group, const char *last, const char *end) {
  struct gd_strbuf list = {0};
  gd_method_list_parts(&list, group, last);
  (void)gd_fail(err, GD_BAD_INPUT, "%s %s%s", sentence, list.failed ? "" : list.text, end);
  gd_strbuf_deinit(&list);
  return GD_BAD_INPUT;
}

struct reading {
  struct gd_method *method;
  bool naive; /* was named */
  bool clash; /* two shardings */
};

/* The value that a word gives a part; 0: it is not this part. */
static int value_of(const struct gd_method_part *part, const char *word, size_t length) {
  size_t name = strlen(part->name);
  long value = 0;
  if (length < name || memcmp(word, part->name, name) != 0)
    return 0;
  if (part->kind != GD_KIND_NUMBER)
    return length == name;
  for (size_t i = name; i < length && value <= MOST_NUMBER; i++)
    value = isdigit((unsigned char)word[i]) ? 10 * value + (word[i] - '0') : MOST_NUMBER + 1;
  return value <= MOST_NUMBER ? (int)value : 0;
}

/* Whether one word of a name is known. */
static bool take_word(struct reading *r, const char *word, size_t length) {
  for (int i = 0; i < BASES; i++)
    if (strlen(bases[i].name) == length && memcmp(word, bases[i].name, length) == 0) {
      r->naive |= !bases[i].all;
      for (int k = 0; k < GD_METHOD_PART_COUNT && bases[i].all; k++)
        if (parts[k].group == GD_GROUP_FREE_LUNCH)
          set_part(r->method, &parts[k], 1);
      return true;
    }
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    int value = value_of(&parts[i], word, length);
    if (value == 0)
      continue;
    r->clash |= parts[i].kind == GD_KIND_SHARDING && r->method->sharding != GD_SHARDING_NONE &&
                (int)r->method->sharding != parts[i].value;
    set_part(r->method, &parts[i], value);
    return true;
  }
  return false;
}

static enum gd_status check_needs(const struct gd_method *method, const char *text,
                                  struct gd_error *err) {
  char sentence[256];
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    if (!gd_method_has(method, (enum gd_method_part_id)i) || parts[i].needs == GD_GROUP_NONE ||
        has_group(method, parts[i].needs))
      continue;
    snprintf(sentence, sizeof sentence,
             "method \"%.64s\" has %s, which needs a sharding, and shards nothing; add", text,
             parts[i].name);
    return fail_with_list(err, sentence, parts[i].needs, "or", "");
  }
  return GD_OK;
}

static const char without_text[] = " without ";

static enum gd_status parse_parts(const char *text, const char *end, struct gd_method *method,
                                  struct gd_error *err) {
  struct reading r = {.method = method};
  char sentence[256];
  for (const char *part = text;;) {
    size_t length = strcspn(part, "+");
    if (length > (size_t)(end - part))
      length = (size_t)(end - part);
    if (!take_word(&r, part, length)) {
      snprintf(sentence, sizeof sentence, "unknown part \"%.*s\" of method \"%.96s\"; there are",
               (int)(length > 32 ? 32 : length), part, text);
      return fail_with_list(err, sentence, GD_GROUP_NONE, "and", ", joined by +");
    }
    if (part + length == end)
      break;
    part += length + 1;
  }
  if (r.clash)
    return gd_fail(err, GD_BAD_INPUT, "method \"%s\" names two shardings; choose one", text);
  if (r.naive && !gd_method_is_naive(method))
    return gd_fail(err, GD_BAD_INPUT,
                   "method \"%s\" is naive and not naive; leave out one of the two", text);
  return check_needs(method, text, err);
}

enum gd_status gd_method_parse(const char *text, struct gd_method *method, struct gd_error *err) {
  const char *without = strstr(text, without_text);
  *method = (struct gd_method){0};
  GD_TRY(parse_parts(text, without ? without : text + strlen(text), method, err));
  return without ? gd_method_leave_out(method, without + strlen(without_text), '+', err) : GD_OK;
}

const char *gd_method_name(const struct gd_method *method, char name[GD_METHOD_NAME]) {
  int n_passes;
  const struct gd_pass *passes = gd_passes(&n_passes);
  bool all = gd_method_is_free_lunch(method);
  size_t length = 0;
  if (all || gd_method_is_naive(method))
    length = (size_t)snprintf(name, GD_METHOD_NAME, "%s", bases[all].name);
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    int value = gd_method_has(method, (enum gd_method_part_id)i);
    if (value == 0 || (all && parts[i].group == GD_GROUP_FREE_LUNCH))
      continue;
    length += (size_t)snprintf(name + length, GD_METHOD_NAME - length, "%s%s", length ? "+" : "",
                               parts[i].name);
    if (parts[i].kind == GD_KIND_NUMBER)
      length += (size_t)snprintf(name + length, GD_METHOD_NAME - length, "%d", value);
  }
  const char *separator = without_text;
  for (int i = 0; i < n_passes; i++)
    if (method->without >> i & 1u) {
      length += (size_t)snprintf(name + length, GD_METHOD_NAME - length, "%s%s", separator,
                                 passes[i].name);
      separator = "+";
    }
  GD_ASSERT(length < GD_METHOD_NAME);
  return name;
}

/* --- passes that are switched off ----------------------------------------------------------- */

static enum gd_status take_pass(const char *name, size_t length, uint32_t *bits,
                                struct gd_error *err) {
  int count, number = gd_pass_find(name, length);
  const struct gd_pass *passes = gd_passes(&count);
  struct gd_strbuf list = {0};
  if (number >= 0 && passes[number].stays)
    return gd_fail(err, GD_BAD_INPUT, "pass %s cannot be switched off: %s", passes[number].name,
                   passes[number].stays);
  if (number >= 0) {
    *bits |= 1u << number;
    return GD_OK;
  }
  gd_pass_list(&list);
  (void)gd_fail(err, GD_BAD_INPUT, "unknown pass \"%.*s\"; there are %s",
                (int)(length > 32 ? 32 : length), name, list.failed ? "" : list.text);
  gd_strbuf_deinit(&list);
  return GD_BAD_INPUT;
}

/* Whether a list of names, separated by blanks, has this one. */
static bool lists(const char *names, const char *name) {
  size_t length = strlen(name);
  for (const char *at = names; (at = strstr(at, name)); at += length)
    if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
      return true;
  return false;
}

bool gd_pass_is_on(const struct gd_method *method, int number) {
  int count;
  const struct gd_pass *pass = &gd_passes(&count)[number];
  bool named = pass->always;
  for (int i = 0; i < GD_METHOD_PART_COUNT && !named; i++)
    named = gd_method_has(method, (enum gd_method_part_id)i) && lists(parts[i].passes, pass->name);
  return named && !(method->without >> number & 1u);
}

enum gd_status gd_method_leave_out(struct gd_method *method, const char *passes, char separator,
                                   struct gd_error *err) {
  const char separators[] = {separator, '\0'};
  uint32_t bits = 0;
  int count;
  const struct gd_pass *table = gd_passes(&count);
  for (const char *at = passes;;) {
    size_t length = strcspn(at, separators);
    GD_TRY(take_pass(at, length, &bits, err));
    if (at[length] == '\0')
      break;
    at += length + 1;
  }
  uint32_t before = method->without;
  for (int i = 0; i < count; i++)
    if ((bits >> i & 1u) && gd_pass_is_on(method, i))
      method->without |= 1u << i;
  for (int i = 0; i < count; i++)
    for (int k = 0; k < i; k++)
      if ((method->without >> k & 1u) && gd_pass_is_on(method, i) &&
          lists(table[i].needs, table[k].name)) {
        method->without = before;
        return gd_fail(err, GD_BAD_INPUT,
                       "pass %s cannot be switched off alone: pass %s needs it; switch off both, "
                       "or neither",
                       table[k].name, table[i].name);
      }
  return GD_OK;
}

/* --- the search space ----------------------------------------------------------------------- */

/* Whether a point of the space is one: all needs are met, and on one device no part is there for
   nothing. */
static bool is_point(const struct gd_method *method, bool several) {
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    bool wanted = several || parts[i].search != GD_SEARCH_ENABLES;
    if (!gd_method_has(method, (enum gd_method_part_id)i))
      continue;
    if (parts[i].needs != GD_GROUP_NONE && !has_group(method, parts[i].needs))
      return false;
    for (int k = 0; k < GD_METHOD_PART_COUNT && !wanted; k++)
      wanted = parts[k].needs == parts[i].group && gd_method_has(method, (enum gd_method_part_id)k);
    if (!wanted)
      return false;
  }
  return true;
}

/* Shardings outermost; of the flags that vary the first in the table changes fastest. */
int gd_method_space(bool several, struct gd_method methods[GD_METHODS_MOST]) {
  const struct gd_method_part *flags[GD_METHOD_PART_COUNT];
  int count = 0, n_flags = 0;
  struct gd_method all = {0};
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    if (parts[i].search == GD_SEARCH_ALWAYS)
      set_part(&all, &parts[i], 1);
    if (parts[i].kind == GD_KIND_FLAG && parts[i].search == GD_SEARCH_VARIES)
      flags[n_flags++] = &parts[i];
  }
  for (int sharding = 0; sharding < GD_SHARDING_COUNT; sharding++)
    for (unsigned bits = 0; bits < 1u << n_flags; bits++) {
      struct gd_method method = all;
      method.sharding = (enum gd_sharding)sharding;
      for (int i = 0; i < n_flags; i++)
        set_part(&method, flags[i], bits >> i & 1u);
      if (!is_point(&method, several))
        continue;
      GD_ASSERT(count < GD_METHODS_MOST);
      methods[count++] = method;
    }
  return count;
}

enum gd_status gd_method_parse_list(const char *list, bool several, const char *without,
                                    struct gd_arena *arena, struct gd_method **methods, int *count,
                                    struct gd_error *err) {
  size_t most = 1;
  for (const char *at = list; *at; at++)
    most += *at == ',';
  *count = 0;
  *methods = gd_arena_alloc(arena, most * GD_METHODS_MOST, sizeof **methods);
  if (!*methods)
    return gd_nomem(err, "while reading --methods");
  for (;;) {
    size_t length = strcspn(list, ",");
    char name[GD_METHOD_NAME * 2];
    snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name), list);
    if (strcmp(name, "all") == 0)
      *count += gd_method_space(several, *methods + *count);
    else
      GD_TRY(gd_method_parse(name, &(*methods)[(*count)++], err));
    if (list[length] == '\0')
      break;
    list += length + 1;
  }
  for (int i = 0; i < *count && without; i++)
    GD_TRY(gd_method_leave_out(&(*methods)[i], without, ',', err));
  return GD_OK;
}
