/*
 * Reads a tokenizer.json: each part becomes a step of struct gd_tokenizer (tokenizer_int.h), and
 * what is not supported is refused by its name. The JSON is not kept: all texts are copied.
 */
#define _POSIX_C_SOURCE 200809L
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/embedded.h"
#include "base/file.h"
#include "base/json.h"
#include "data/tokenizer_int.h"

enum {
  MOST_FILE = 256 << 20, /* the largest of today are below 40 MB */
  MOST_NESTED = 8,       /* Sequences in Sequences */
  MOST_ADDED = 1 << 20
};

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

struct loader {
  struct gd_tokenizer *tokenizer;
  struct gd_error *err;
};

static enum gd_status nomem(struct loader *l) {
  return gd_nomem(l->err, "while reading %s", l->tokenizer->label);
}

static enum gd_status wrong(struct loader *l, const char *where, const char *key,
                            const char *expected) {
  return gd_fail(l->err, GD_BAD_INPUT, "%s: %s: %s is missing or wrong; expected %s",
                 l->tokenizer->label, where, key, expected);
}

static enum gd_status unsupported(struct loader *l, const char *what, const char *name) {
  char clean[64];
  return gd_fail(l->err, GD_UNSUPPORTED, "%s: the %s \"%s\" is not supported", l->tokenizer->label,
                 what, gd_json_excerpt(clean, sizeof clean, name));
}

/* --- fields -------------------------------------------------------------------------------- */

static enum gd_status copy_text(struct loader *l, const char *text, size_t length,
                                struct gd_text *out) {
  char *copy = gd_arena_alloc(&l->tokenizer->arena, length + 1, 1);
  if (!copy)
    return nomem(l);
  memcpy(copy, text, length);
  *out = (struct gd_text){copy, length};
  return GD_OK;
}

static enum gd_status text_field(struct loader *l, const json_t *object, const char *where,
                                 const char *key, struct gd_text *out) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_string(value))
    return wrong(l, where, key, "a text");
  return copy_text(l, json_string_value(value), json_string_length(value), out);
}

static enum gd_status bool_field(struct loader *l, const json_t *object, const char *where,
                                 const char *key, bool otherwise, bool *out) {
  const json_t *value = json_object_get(object, key);
  *out = otherwise;
  if (!value || json_is_null(value))
    return GD_OK;
  if (!json_is_boolean(value))
    return wrong(l, where, key, "true or false");
  *out = json_is_true(value);
  return GD_OK;
}

/* One character, as Metaspace and Strip have. */
static enum gd_status character_field(struct loader *l, const json_t *object, const char *where,
                                      const char *key, struct gd_text *out) {
  size_t bytes = 0;
  GD_TRY(text_field(l, object, where, key, out));
  if (out->length > 0)
    (void)gd_unicode_decode(out->text, &bytes);
  return out->length == bytes && bytes > 0 ? GD_OK : wrong(l, where, key, "one character");
}

static enum gd_status pattern_field(struct loader *l, const json_t *object, const char *where,
                                    struct gd_regex **regex) {
  const json_t *pattern = json_object_get(object, "pattern");
  const json_t *text = json_object_get(pattern, "String"),
               *code = json_object_get(pattern, "Regex");
  if (json_is_string(text))
    return gd_regex_compile_literal(regex, &l->tokenizer->unicode, json_string_value(text),
                                    json_string_length(text), l->err);
  if (json_is_string(code))
    return gd_regex_compile(regex, &l->tokenizer->unicode, json_string_value(code),
                            json_string_length(code), l->err);
  return wrong(l, where, "pattern", "{\"String\": ...} or {\"Regex\": ...}");
}

static enum gd_status id_value(struct loader *l, const json_t *value, const char *where,
                               int32_t *id) {
  if (!json_is_integer(value) || json_integer_value(value) < 0 ||
      json_integer_value(value) >= GD_TOKENIZER_MOST_IDS)
    return wrong(l, where, "an id", "a whole number from 0 to 16,777,215");
  *id = (int32_t)json_integer_value(value);
  return GD_OK;
}

/* --- steps --------------------------------------------------------------------------------- */

typedef enum gd_status step_reader(struct loader *l, const json_t *object, const char *type,
                                   struct gd_step *step);

/* One step, or those of a Sequence; null is none. */
static enum gd_status read_steps(struct loader *l, const json_t *object, const char *what,
                                 const char *list, step_reader *read, int depth,
                                 struct gd_steps *steps) {
  const char *type = json_string_value(json_object_get(object, "type"));
  if (!object || json_is_null(object))
    return GD_OK;
  if (!type)
    return wrong(l, what, "type", "its name");
  if (strcmp(type, "Sequence") == 0) {
    const json_t *items = json_object_get(object, list);
    if (!json_is_array(items) || depth >= MOST_NESTED)
      return wrong(l, what, list, "a list");
    for (size_t i = 0; i < json_array_size(items); i++) {
      const json_t *one = json_array_get(items, i);
      if (!json_is_object(one))
        return wrong(l, what, list, "a list of objects");
      GD_TRY(read_steps(l, one, what, list, read, depth + 1, steps));
    }
    return GD_OK;
  }
  if (steps->count == GD_TOKENIZER_STEPS)
    return gd_fail(l->err, GD_UNSUPPORTED, "%s: more than %d steps of the %s", l->tokenizer->label,
                   GD_TOKENIZER_STEPS, what);
  return read(l, object, type, &steps->items[steps->count++]);
}

static enum gd_status read_replace(struct loader *l, const json_t *object, const char *where,
                                   struct gd_step *step) {
  step->kind = GD_STEP_REPLACE;
  GD_TRY(pattern_field(l, object, where, &step->regex));
  return text_field(l, object, where, "content", &step->content);
}

static enum gd_status read_normalizer(struct loader *l, const json_t *object, const char *type,
                                      struct gd_step *step) {
  static const struct {
    const char *name;
    enum gd_step_kind kind;
  } simple[] = {{"NFC", GD_STEP_NFC},
                {"NFD", GD_STEP_NFD},
                {"NFKC", GD_STEP_NFKC},
                {"NFKD", GD_STEP_NFKD},
                {"Lowercase", GD_STEP_LOWERCASE},
                {"StripAccents", GD_STEP_STRIP_ACCENTS}};
  const char *where = "normalizer";
  for (size_t i = 0; i < sizeof simple / sizeof *simple; i++)
    if (strcmp(type, simple[i].name) == 0) {
      step->kind = simple[i].kind;
      return GD_OK;
    }
  if (strcmp(type, "Replace") == 0)
    return read_replace(l, object, where, step);
  if (strcmp(type, "Prepend") == 0) {
    step->kind = GD_STEP_PREPEND;
    return text_field(l, object, where, "prepend", &step->text);
  }
  if (strcmp(type, "Strip") == 0) {
    step->kind = GD_STEP_STRIP;
    GD_TRY(bool_field(l, object, where, "strip_left", true, &step->left));
    return bool_field(l, object, where, "strip_right", true, &step->right);
  }
  if (strcmp(type, "BertNormalizer") == 0) {
    step->kind = GD_STEP_BERT_NORMALIZER;
    GD_TRY(bool_field(l, object, where, "clean_text", true, &step->clean));
    GD_TRY(bool_field(l, object, where, "handle_chinese_chars", true, &step->chinese));
    GD_TRY(bool_field(l, object, where, "lowercase", true, &step->lower));
    return bool_field(l, object, where, "strip_accents", step->lower, &step->accents);
  }
  return unsupported(l, where, type);
}

static enum gd_status read_behavior(struct loader *l, const json_t *object,
                                    enum gd_split_behavior *behavior) {
  static const char *const names[] = {[GD_SPLIT_REMOVED] = "Removed",
                                      [GD_SPLIT_ISOLATED] = "Isolated",
                                      [GD_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                      [GD_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
                                      [GD_SPLIT_CONTIGUOUS] = "Contiguous"};
  const json_t *value = json_object_get(object, "behavior");
  *behavior = GD_SPLIT_ISOLATED;
  if (!value)
    return GD_OK;
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
    if (json_is_string(value) && strcmp(json_string_value(value), names[i]) == 0) {
      *behavior = (enum gd_split_behavior)i;
      return GD_OK;
    }
  return wrong(l, "pre_tokenizer", "behavior", "Removed, Isolated, MergedWithPrevious, ...");
}

static enum gd_status read_metaspace(struct loader *l, const json_t *object, const char *where,
                                     struct gd_step *step) {
  bool prefix;
  const json_t *value = json_object_get(object, "prepend_scheme");
  const char *scheme = json_string_value(value);
  step->kind = GD_STEP_METASPACE;
  GD_TRY(character_field(l, object, where, "replacement", &step->text));
  GD_TRY(bool_field(l, object, where, "split", true, &step->split));
  GD_TRY(bool_field(l, object, where, "add_prefix_space", true, &prefix));
  step->scheme = prefix ? GD_PREPEND_ALWAYS : GD_PREPEND_NEVER;
  if (scheme && strcmp(scheme, "first") == 0)
    step->scheme = GD_PREPEND_FIRST;
  else if (scheme && strcmp(scheme, "never") == 0)
    step->scheme = GD_PREPEND_NEVER;
  else if (scheme ? strcmp(scheme, "always") != 0 : value != NULL)
    return wrong(l, where, "prepend_scheme", "always, first or never");
  return GD_OK;
}

static enum gd_status read_pre_tokenizer(struct loader *l, const json_t *object, const char *type,
                                         struct gd_step *step) {
  const char *where = "pre_tokenizer";
  if (strcmp(type, "ByteLevel") == 0) {
    step->kind = GD_STEP_BYTE_LEVEL;
    for (int i = 0; i + 1 < l->tokenizer->pre_tokenizers.count; i++)
      if (l->tokenizer->pre_tokenizers.items[i].kind == GD_STEP_BYTE_LEVEL)
        return unsupported(l, where, "ByteLevel after another one");
    GD_TRY(bool_field(l, object, where, "add_prefix_space", true, &step->add_prefix_space));
    GD_TRY(bool_field(l, object, where, "use_regex", true, &step->use_regex));
    if (!step->use_regex)
      return GD_OK;
    return gd_regex_compile(&l->tokenizer->byte_level, &l->tokenizer->unicode, gpt2_pattern,
                            sizeof gpt2_pattern - 1, l->err);
  }
  if (strcmp(type, "Split") == 0) {
    step->kind = GD_STEP_SPLIT;
    GD_TRY(pattern_field(l, object, where, &step->regex));
    GD_TRY(read_behavior(l, object, &step->behavior));
    return bool_field(l, object, where, "invert", false, &step->invert);
  }
  if (strcmp(type, "Metaspace") == 0) {
    GD_TRY(read_metaspace(l, object, where, step));
    for (int i = 0; i + 1 < l->tokenizer->pre_tokenizers.count; i++)
      if (l->tokenizer->pre_tokenizers.items[i].kind == GD_STEP_BYTE_LEVEL &&
          step->scheme == GD_PREPEND_FIRST)
        return unsupported(l, "pre-tokenizer", "Metaspace (first) after ByteLevel");
    return GD_OK;
  }
  if (strcmp(type, "Digits") == 0) {
    step->kind = GD_STEP_DIGITS;
    GD_TRY(bool_field(l, object, where, "individual_digits", false, &step->individual));
    step->behavior = step->individual ? GD_SPLIT_ISOLATED : GD_SPLIT_CONTIGUOUS;
    return GD_OK;
  }
  if (strcmp(type, "Punctuation") == 0) {
    step->kind = GD_STEP_PUNCTUATION;
    return read_behavior(l, object, &step->behavior);
  }
  step->behavior = GD_SPLIT_REMOVED;
  step->kind = GD_STEP_WHITESPACE_SPLIT;
  if (strcmp(type, "BertPreTokenizer") == 0)
    step->kind = GD_STEP_BERT;
  else if (strcmp(type, "Whitespace") == 0)
    step->kind = GD_STEP_WHITESPACE;
  else if (strcmp(type, "WhitespaceSplit") != 0)
    return unsupported(l, "pre-tokenizer", type);
  return GD_OK;
}

static enum gd_status read_decoder(struct loader *l, const json_t *object, const char *type,
                                   struct gd_step *step) {
  const char *where = "decoder";
  if (strcmp(type, "Replace") == 0)
    return read_replace(l, object, where, step);
  if (strcmp(type, "Metaspace") == 0)
    return read_metaspace(l, object, where, step);
  if (strcmp(type, "WordPiece") == 0) {
    step->kind = GD_STEP_WORDPIECE;
    GD_TRY(text_field(l, object, where, "prefix", &step->text));
    return bool_field(l, object, where, "cleanup", true, &step->cleanup);
  }
  if (strcmp(type, "Strip") == 0) {
    const json_t *start = json_object_get(object, "start"), *stop = json_object_get(object, "stop");
    step->kind = GD_STEP_STRIP_DECODER;
    if (!json_is_integer(start) || !json_is_integer(stop))
      return wrong(l, where, "start or stop", "a whole number");
    step->start = json_integer_value(start);
    step->stop = json_integer_value(stop);
    return character_field(l, object, where, "content", &step->text);
  }
  if (strcmp(type, "BPEDecoder") == 0) {
    step->kind = GD_STEP_BPE_DECODER;
    return text_field(l, object, where, "suffix", &step->text);
  }
  if (strcmp(type, "ByteLevel") == 0)
    step->kind = GD_STEP_BYTE_LEVEL;
  else if (strcmp(type, "ByteFallback") == 0)
    step->kind = GD_STEP_BYTE_FALLBACK;
  else if (strcmp(type, "Fuse") == 0)
    step->kind = GD_STEP_FUSE;
  else
    return unsupported(l, where, type);
  return GD_OK;
}

/* --- the post-processor -------------------------------------------------------------------- */

/* ["[SEP]", 102] */
static enum gd_status push_pair(struct loader *l, const json_t *object, const char *key,
                                struct gd_token_ids *to) {
  int32_t id;
  GD_TRY(id_value(l, json_array_get(json_object_get(object, key), 1), "post_processor", &id));
  return gd_token_ids_push(to, &id, 1) ? GD_OK : nomem(l);
}

static enum gd_status push_special(struct loader *l, const json_t *object, const char *name,
                                   struct gd_token_ids *to) {
  const json_t *token = json_object_get(json_object_get(object, "special_tokens"), name);
  const json_t *ids = json_object_get(token, "ids");
  if (!json_is_array(ids))
    return wrong(l, "post_processor", "special_tokens", "ids for every token of the template");
  for (size_t i = 0; i < json_array_size(ids); i++) {
    int32_t id;
    GD_TRY(id_value(l, json_array_get(ids, i), "post_processor", &id));
    if (!gd_token_ids_push(to, &id, 1))
      return nomem(l);
  }
  return GD_OK;
}

/* The tokens before the text and those after it. */
static enum gd_status read_template(struct loader *l, const json_t *object,
                                    struct gd_token_ids *before, struct gd_token_ids *after) {
  const json_t *single = json_object_get(object, "single");
  int sequences = 0;
  if (!json_is_array(single))
    return wrong(l, "post_processor", "single", "a list");
  for (size_t i = 0; i < json_array_size(single); i++) {
    const json_t *piece = json_array_get(single, i);
    const char *special =
        json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
    if (special)
      GD_TRY(push_special(l, object, special, sequences ? after : before));
    else if (json_object_get(piece, "Sequence"))
      sequences++;
    else
      return wrong(l, "post_processor", "single", "a list of SpecialToken and Sequence");
  }
  if (sequences != 1)
    return unsupported(l, "post-processor", "a template without exactly one text");
  return GD_OK;
}

/* Those of a later processor are around those of an earlier one. */
static enum gd_status read_post(struct loader *l, const json_t *object, int depth) {
  struct gd_token_ids before = {0}, after = {0};
  struct gd_tokenizer *t = l->tokenizer;
  const char *type = json_string_value(json_object_get(object, "type"));
  enum gd_status status = GD_OK;
  if (!object || json_is_null(object))
    return GD_OK;
  if (!type)
    return wrong(l, "post_processor", "type", "its name");
  if (strcmp(type, "ByteLevel") == 0)
    return GD_OK;
  if (strcmp(type, "Sequence") == 0) {
    const json_t *items = json_object_get(object, "processors");
    if (!json_is_array(items) || depth >= MOST_NESTED)
      return wrong(l, "post_processor", "processors", "a list");
    for (size_t i = 0; i < json_array_size(items); i++)
      GD_TRY(read_post(l, json_array_get(items, i), depth + 1));
    return GD_OK;
  }
  if (strcmp(type, "TemplateProcessing") == 0) {
    status = read_template(l, object, &before, &after);
  } else if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
    status = push_pair(l, object, "cls", &before);
    if (status == GD_OK)
      status = push_pair(l, object, "sep", &after);
  } else {
    status = unsupported(l, "post-processor", type);
  }
  if (status == GD_OK && (!gd_token_ids_push(&before, t->before.ids, t->before.count) ||
                          !gd_token_ids_push(&t->after, after.ids, after.count)))
    status = nomem(l);
  if (status == GD_OK) {
    struct gd_token_ids old = t->before;
    t->before = before;
    before = old;
  }
  gd_token_ids_deinit(&before);
  gd_token_ids_deinit(&after);
  return status;
}

/* --- the model ----------------------------------------------------------------------------- */

static enum gd_status reserve_ids(struct loader *l, int32_t id) {
  struct gd_tokenizer *t = l->tokenizer;
  if (id < t->n_tokens)
    return GD_OK;
  /* Twice as many, so that ids in order take few steps. */
  size_t old = (size_t)t->n_tokens, count = (size_t)id + 1;
  size_t room = 64;
  while (room < count)
    room *= 2;
  size_t had = 64;
  while (had < old)
    had *= 2;
  had = old ? had : 0;
  if (room > had) {
    struct gd_text *tokens = gd_mem_grow(t->tokens, had, room, sizeof *tokens);
    if (!tokens)
      return nomem(l);
    t->tokens = tokens;
    bool *special = gd_mem_grow(t->special, had, room, sizeof *special);
    if (!special)
      return nomem(l);
    t->special = special;
  }
  t->n_tokens = (int64_t)count;
  return GD_OK;
}

static enum gd_status read_vocabulary(struct loader *l, json_t *vocabulary) {
  struct gd_tokenizer *t = l->tokenizer;
  const char *key;
  json_t *value;
  if (!json_is_object(vocabulary))
    return wrong(l, "model", "vocab", "an object of tokens and ids");
  json_object_foreach(vocabulary, key, value) {
    int32_t id;
    struct gd_text text;
    GD_TRY(id_value(l, value, "vocab", &id));
    GD_TRY(copy_text(l, key, strlen(key), &text));
    GD_TRY(reserve_ids(l, id));
    if (!gd_token_map_add(&t->vocabulary, text, id))
      return nomem(l);
    t->tokens[id] = text;
  }
  if (t->vocabulary.n_entries == 0)
    return wrong(l, "model", "vocab", "at least one token");
  return GD_OK;
}

/* The two texts of a merge: "a b" or ["a", "b"]. */
static bool merge_texts(const json_t *merge, struct gd_text *left, struct gd_text *right) {
  if (json_is_array(merge) && json_array_size(merge) == 2) {
    const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
    if (!json_is_string(a) || !json_is_string(b))
      return false;
    *left = (struct gd_text){json_string_value(a), json_string_length(a)};
    *right = (struct gd_text){json_string_value(b), json_string_length(b)};
    return true;
  }
  if (!json_is_string(merge))
    return false;
  const char *text = json_string_value(merge), *blank = strchr(text, ' ');
  if (!blank || strchr(blank + 1, ' '))
    return false;
  *left = (struct gd_text){text, (size_t)(blank - text)};
  *right = (struct gd_text){blank + 1, strlen(blank + 1)};
  return true;
}

static enum gd_status read_merge(struct loader *l, const json_t *merge, uint32_t rank,
                                 struct gd_strbuf *whole) {
  struct gd_tokenizer *t = l->tokenizer;
  struct gd_text left, right;
  char clean[64];
  if (!merge_texts(merge, &left, &right))
    return gd_fail(l->err, GD_BAD_INPUT, "%s: merge %u is neither \"a b\" nor [\"a\", \"b\"]",
                   t->label, rank);
  size_t skipped = t->prefix.length < right.length ? t->prefix.length : right.length;
  whole->length = 0;
  gd_strbuf_append_bytes(whole, left.text, left.length);
  gd_strbuf_append_bytes(whole, right.text + skipped, right.length - skipped);
  if (whole->failed)
    return nomem(l);
  int32_t a = gd_token_map_find(&t->vocabulary, left.text, left.length);
  int32_t b = gd_token_map_find(&t->vocabulary, right.text, right.length);
  int32_t ab = gd_token_map_find(&t->vocabulary, whole->text, whole->length);
  if (a < 0 || b < 0 || ab < 0)
    return gd_fail(l->err, GD_BAD_INPUT,
                   "%s: merge %u makes \"%s\" of tokens that are not all in vocab", t->label, rank,
                   gd_json_excerpt(clean, sizeof clean, whole->text));
  return gd_tokenizer_add_merge(t, a, b, rank, ab) ? GD_OK : nomem(l);
}

static enum gd_status read_merges(struct loader *l, const json_t *merges) {
  struct gd_tokenizer *t = l->tokenizer;
  struct gd_strbuf whole = {0};
  enum gd_status status = GD_OK;
  uint32_t rank = 0;
  if (!json_is_array(merges))
    return wrong(l, "model", "merges", "a list");
  size_t count = json_array_size(merges);
  if (count == 0)
    return GD_OK;
  if (count > GD_TOKENIZER_MOST_IDS)
    return wrong(l, "model", "merges", "at most 16,777,216");
  t->n_merge_slots = 64;
  while (t->n_merge_slots < count * 2)
    t->n_merge_slots *= 2;
  t->merges = gd_mem_alloc(t->n_merge_slots, sizeof *t->merges);
  if (!t->merges)
    return nomem(l);
  for (uint32_t i = 0; i < t->n_merge_slots; i++)
    t->merges[i].left = -1;
  for (size_t i = 0; i < count && status == GD_OK; i++) {
    const json_t *merge = json_array_get(merges, i);
    if (i == 0 && json_is_string(merge) && strncmp(json_string_value(merge), "#version", 8) == 0)
      continue;
    status = read_merge(l, merge, rank++, &whole);
  }
  gd_strbuf_deinit(&whole);
  return status;
}

static enum gd_status optional_text(struct loader *l, const json_t *object, const char *key,
                                    struct gd_text *out) {
  const json_t *value = json_object_get(object, key);
  return !value || json_is_null(value) ? GD_OK : text_field(l, object, "model", key, out);
}

static enum gd_status read_unknown(struct loader *l, const json_t *model) {
  struct gd_tokenizer *t = l->tokenizer;
  struct gd_text name = {0};
  t->unknown = -1;
  GD_TRY(optional_text(l, model, "unk_token", &name));
  t->unknown_named = name.text != NULL;
  if (name.text)
    t->unknown = gd_token_map_find(&t->vocabulary, name.text, name.length);
  return GD_OK;
}

static enum gd_status read_bpe(struct loader *l, const json_t *model) {
  struct gd_tokenizer *t = l->tokenizer;
  const json_t *dropout = json_object_get(model, "dropout");
  if (dropout && !json_is_null(dropout) &&
      (!json_is_number(dropout) || json_number_value(dropout) != 0))
    return unsupported(l, "model", "BPE with dropout");
  GD_TRY(optional_text(l, model, "continuing_subword_prefix", &t->prefix));
  GD_TRY(optional_text(l, model, "end_of_word_suffix", &t->suffix));
  GD_TRY(bool_field(l, model, "model", "fuse_unk", false, &t->fuse_unknown));
  GD_TRY(bool_field(l, model, "model", "byte_fallback", false, &t->byte_fallback));
  GD_TRY(bool_field(l, model, "model", "ignore_merges", false, &t->ignore_merges));
  return read_merges(l, json_object_get(model, "merges"));
}

static enum gd_status read_wordpiece(struct loader *l, const json_t *model) {
  struct gd_tokenizer *t = l->tokenizer;
  const json_t *most = json_object_get(model, "max_input_chars_per_word");
  t->wordpiece = true;
  t->most_characters = 100;
  if (most && (!json_is_integer(most) || json_integer_value(most) < 0))
    return wrong(l, "model", "max_input_chars_per_word", "a whole number");
  if (most)
    t->most_characters = json_integer_value(most);
  return text_field(l, model, "model", "continuing_subword_prefix", &t->prefix);
}

static enum gd_status read_model(struct loader *l, const json_t *root) {
  struct gd_tokenizer *t = l->tokenizer;
  const json_t *model = json_object_get(root, "model");
  const char *type = json_string_value(json_object_get(model, "type"));
  if (!json_is_object(model))
    return gd_fail(l->err, GD_BAD_INPUT,
                   "%s: there is no model in it; is it a tokenizer.json of Hugging Face?",
                   t->label);
  if (!type) /* older files leave it out */
    type = json_object_get(model, "merges") ? "BPE" : "WordPiece";
  if (strcmp(type, "BPE") != 0 && strcmp(type, "WordPiece") != 0)
    return unsupported(l, "model", type);
  GD_TRY(read_vocabulary(l, json_object_get(model, "vocab")));
  GD_TRY(read_unknown(l, model));
  GD_TRY(strcmp(type, "BPE") == 0 ? read_bpe(l, model) : read_wordpiece(l, model));
  const struct gd_steps *steps = &t->pre_tokenizers;
  t->bytes = !t->wordpiece && steps->count > 0 &&
             steps->items[steps->count - 1].kind == GD_STEP_BYTE_LEVEL && !t->byte_fallback &&
             t->prefix.length == 0 && t->suffix.length == 0 &&
             !(t->unknown_named && t->unknown < 0);
  return gd_tokenizer_finish_model(t, l->err);
}

/* --- added tokens -------------------------------------------------------------------------- */

static enum gd_status trie_add(struct loader *l, struct gd_token_trie *trie, struct gd_text text,
                               int32_t token) {
  uint32_t node = 0;
  if (trie->count == 0) {
    if (!gd_vec_reserve((void **)&trie->nodes, &trie->capacity, 1, sizeof *trie->nodes))
      return nomem(l);
    trie->nodes[trie->count++] = (struct gd_trie_node){.token = -1};
  }
  if (text.length == 0)
    return GD_OK;
  trie->first[(unsigned char)text.text[0]] = true;
  for (size_t i = 0; i < text.length; i++) {
    unsigned char byte = (unsigned char)text.text[i];
    uint32_t child = trie->nodes[node].child;
    while (child && trie->nodes[child].byte != byte)
      child = trie->nodes[child].sibling;
    if (!child) {
      if (!gd_vec_reserve((void **)&trie->nodes, &trie->capacity, trie->count + 1,
                          sizeof *trie->nodes))
        return nomem(l);
      child = trie->count++;
      trie->nodes[child] =
          (struct gd_trie_node){.sibling = trie->nodes[node].child, .token = -1, .byte = byte};
      trie->nodes[node].child = child;
    }
    node = child;
  }
  trie->nodes[node].token = token;
  return GD_OK;
}

/* The library gives tokens that the vocabulary does not have the ids after it, whatever the file
   says; a file that says otherwise was not written by it. */
static enum gd_status added_id(struct loader *l, const json_t *object, struct gd_added_token *token,
                               int32_t *next) {
  struct gd_tokenizer *t = l->tokenizer;
  int32_t said;
  char clean[64];
  GD_TRY(id_value(l, json_object_get(object, "id"), "added_tokens", &said));
  token->id = gd_token_map_find(&t->vocabulary, token->content.text, token->content.length);
  if (token->id < 0)
    token->id = (*next)++;
  if (token->id != said)
    return gd_fail(l->err, GD_BAD_INPUT,
                   "%s: the added token \"%s\" has the id %d; its place in the vocabulary is %d",
                   t->label, gd_json_excerpt(clean, sizeof clean, token->content.text), said,
                   token->id);
  return reserve_ids(l, token->id);
}

static enum gd_status read_added(struct loader *l, const json_t *object,
                                 struct gd_tokenizer_work *work, int32_t *next) {
  struct gd_tokenizer *t = l->tokenizer;
  struct gd_added_token token = {0};
  const char *where = "added_tokens";
  GD_TRY(text_field(l, object, where, "content", &token.content));
  if (token.content.length == 0)
    return GD_OK;
  GD_TRY(bool_field(l, object, where, "special", false, &token.special));
  GD_TRY(bool_field(l, object, where, "single_word", false, &token.single_word));
  GD_TRY(bool_field(l, object, where, "lstrip", false, &token.lstrip));
  GD_TRY(bool_field(l, object, where, "rstrip", false, &token.rstrip));
  GD_TRY(bool_field(l, object, where, "normalized", !token.special, &token.normalized));
  GD_TRY(added_id(l, object, &token, next));
  token.pattern = token.content;
  if (token.normalized && t->normalizers.count > 0) {
    struct gd_text normal;
    gd_regex_begin(&work->stack, token.content.length);
    GD_TRY(gd_tokenizer_normalize(t, work, token.content.text, token.content.length, &normal));
    GD_TRY(copy_text(l, normal.text, normal.length, &token.pattern));
  }
  if (token.pattern.length == 0) /* the library finds it everywhere */
    return unsupported(l, "added token without text after the normalizers,", token.content.text);
  if (t->n_added >= MOST_ADDED ||
      !gd_vec_reserve((void **)&t->added, &t->added_room, t->n_added + 1, sizeof *t->added))
    return nomem(l);
  t->tokens[token.id] = token.pattern;
  t->special[token.id] |= token.special;
  t->added[t->n_added++] = token;
  return trie_add(l, token.normalized ? &t->normalized : &t->raw, token.pattern,
                  (int32_t)t->n_added - 1);
}

static enum gd_status read_all_added(struct loader *l, const json_t *list) {
  struct gd_tokenizer_work *work = NULL;
  int32_t next = (int32_t)l->tokenizer->vocabulary.n_entries;
  if (!list || json_is_null(list))
    return GD_OK;
  if (!json_is_array(list))
    return wrong(l, "added_tokens", "the list", "a list of objects");
  GD_TRY(gd_tokenizer_work_new(&work, l->tokenizer, l->err));
  work->err = l->err;
  enum gd_status status = GD_OK;
  for (size_t i = 0; i < json_array_size(list) && status == GD_OK; i++)
    status = read_added(l, json_array_get(list, i), work, &next);
  gd_tokenizer_work_free(work);
  return status;
}

/* --- all of it ----------------------------------------------------------------------------- */

static enum gd_status read_root(struct loader *l, const json_t *root) {
  struct gd_tokenizer *t = l->tokenizer;
  const json_t *decoder = json_object_get(root, "decoder");
  t->has_decoder = decoder && !json_is_null(decoder);
  GD_TRY(gd_unicode_init(&t->unicode, l->err));
  GD_TRY(read_steps(l, json_object_get(root, "normalizer"), "normalizer", "normalizers",
                    read_normalizer, 0, &t->normalizers));
  GD_TRY(read_steps(l, json_object_get(root, "pre_tokenizer"), "pre_tokenizer", "pretokenizers",
                    read_pre_tokenizer, 0, &t->pre_tokenizers));
  GD_TRY(read_steps(l, decoder, "decoder", "decoders", read_decoder, 0, &t->decoders));
  GD_TRY(read_model(l, root));
  GD_TRY(read_post(l, json_object_get(root, "post_processor"), 0));
  return read_all_added(l, json_object_get(root, "added_tokens"));
}

enum gd_status gd_tokenizer_parse(struct gd_tokenizer **tokenizer, const char *label,
                                  const char *text, size_t length, struct gd_error *err) {
  json_error_t error = {0};
  char clean[JSON_ERROR_TEXT_LENGTH];
  struct loader l = {.tokenizer = gd_mem_alloc(1, sizeof **tokenizer), .err = err};
  *tokenizer = NULL;
  if (!l.tokenizer)
    return gd_nomem(err, "for a tokenizer");
  gd_json_excerpt(l.tokenizer->label, sizeof l.tokenizer->label, label);
  json_t *root = json_loadb(text, length, JSON_ALLOW_NUL, &error);
  enum gd_status status;
  if (root)
    status = read_root(&l, root);
  else if (error.text[0] == '\0' || json_error_code(&error) == json_error_out_of_memory)
    status = nomem(&l);
  else
    status = gd_fail(err, GD_BAD_INPUT, "%s: line %d, column %d: %s; is it a tokenizer.json?",
                     l.tokenizer->label, error.line, error.column,
                     gd_json_excerpt(clean, sizeof clean, error.text));
  json_decref(root);
  if (status == GD_OK)
    *tokenizer = l.tokenizer;
  else
    gd_tokenizer_free(l.tokenizer);
  return status;
}

enum gd_status gd_tokenizer_text(const char *path, struct gd_strbuf *text, struct gd_error *err) {
  static const char folder[] = "tokenizers/";
  char inside[GD_FILE_PATH], clean[256];
  struct stat about;
  for (int i = 0; i < gd_embedded_file_count; i++) {
    const struct gd_embedded_file *file = &gd_embedded_files[i];
    size_t length = strlen(path);
    if (strncmp(file->path, folder, sizeof folder - 1) == 0 &&
        strncmp(file->path + sizeof folder - 1, path, length) == 0 &&
        strcmp(file->path + sizeof folder - 1 + length, ".json") == 0) {
      gd_strbuf_append_bytes(text, file->text, (size_t)file->length);
      return text->failed ? gd_nomem(err, "for a tokenizer") : GD_OK;
    }
  }
  if (stat(path, &about) != 0 && gd_file_is_missing(path))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: no such file; name a tokenizer.json, the folder that holds one, or "
                   "gpudays-4k",
                   gd_json_excerpt(clean, sizeof clean, path));
  if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
    if (snprintf(inside, sizeof inside, "%s/tokenizer.json", path) >= (int)sizeof inside)
      return gd_fail(err, GD_BAD_INPUT, "the path of the tokenizer is too long");
    path = inside;
  }
  return gd_file_read(path, MOST_FILE, text, err);
}

enum gd_status gd_tokenizer_load(struct gd_tokenizer **tokenizer, const char *path,
                                 struct gd_error *err) {
  struct gd_strbuf text = {0};
  *tokenizer = NULL;
  enum gd_status status = gd_tokenizer_text(path, &text, err);
  if (status == GD_OK)
    status = gd_tokenizer_parse(tokenizer, path, text.text ? text.text : "", text.length, err);
  gd_strbuf_deinit(&text);
  return status;
}

static void free_steps(struct gd_steps *steps) {
  for (int i = 0; i < steps->count; i++)
    gd_regex_free(steps->items[i].regex);
}

void gd_tokenizer_free(struct gd_tokenizer *tokenizer) {
  if (!tokenizer)
    return;
  free_steps(&tokenizer->normalizers);
  free_steps(&tokenizer->pre_tokenizers);
  free_steps(&tokenizer->decoders);
  gd_regex_free(tokenizer->byte_level);
  gd_mem_free(tokenizer->added);
  gd_mem_free(tokenizer->raw.nodes);
  gd_mem_free(tokenizer->normalized.nodes);
  gd_mem_free(tokenizer->tokens);
  gd_mem_free(tokenizer->special);
  gd_token_ids_deinit(&tokenizer->before);
  gd_token_ids_deinit(&tokenizer->after);
  gd_token_map_deinit(&tokenizer->vocabulary);
  gd_token_map_deinit(&tokenizer->byte_words);
  gd_mem_free(tokenizer->merges);
  gd_unicode_deinit(&tokenizer->unicode);
  gd_arena_deinit(&tokenizer->arena);
  gd_mem_free(tokenizer);
}
