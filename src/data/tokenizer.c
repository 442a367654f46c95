/*
 * A text on its way through a tokenizer: added tokens are found in it, then the rest is normalized,
 * looked through for added tokens once more, split (tokenizer_split.c) and tokenized
 * (tokenizer_model.c). See tokenizer.h; reading tokenizer.json is tokenizer_load.c's.
 */
#include "data/tokenizer.h"

#include <string.h>

#include "data/tokenizer_int.h"

/* --- added tokens -------------------------------------------------------------------------- */

/* The longest added token at the start of the text, as an index; -1: none. */
static int32_t trie_match(const struct gd_token_trie *trie, const char *text, size_t length,
                          size_t *bytes) {
  uint32_t node = 0;
  int32_t token = -1;
  for (size_t at = 0; at < length; at++) {
    uint32_t child = trie->nodes[node].child;
    while (child && trie->nodes[child].byte != (unsigned char)text[at])
      child = trie->nodes[child].sibling;
    if (!child)
      break;
    node = child;
    if (trie->nodes[node].token >= 0) {
      token = trie->nodes[node].token;
      *bytes = at + 1;
    }
  }
  return token;
}

static bool has_flag(const struct gd_tokenizer *tokenizer, const char *text, uint16_t flag) {
  size_t bytes;
  return (tokenizer->unicode.properties[gd_unicode_decode(text, &bytes)] & flag) != 0;
}

/* Where a token may not be a part of a word. */
static bool is_alone(const struct gd_tokenizer *tokenizer, const char *text, size_t length,
                     size_t start, size_t end) {
  if (start > 0 &&
      has_flag(tokenizer, text + start - gd_unicode_last(text, start), GD_UNICODE_RUST_WORD))
    return false;
  return end == length || !has_flag(tokenizer, text + end, GD_UNICODE_RUST_WORD);
}

static void take_spaces(const struct gd_tokenizer *tokenizer, const struct gd_added_token *token,
                        const char *text, size_t length, size_t from, size_t *start, size_t *end) {
  size_t bytes;
  while (token->lstrip && *start > from) {
    bytes = gd_unicode_last(text, *start);
    if (!has_flag(tokenizer, text + *start - bytes, GD_UNICODE_SPACE))
      break;
    *start -= bytes;
  }
  while (token->rstrip && *end < length && has_flag(tokenizer, text + *end, GD_UNICODE_SPACE)) {
    (void)gd_unicode_decode(text + *end, &bytes);
    *end += bytes;
  }
}

typedef enum gd_status piece_reader(const struct gd_tokenizer *tokenizer,
                                    struct gd_tokenizer_work *work, const char *text, size_t length,
                                    bool first);

/* Hands what is between added tokens to `rest`, and their ids to the output. */
static enum gd_status cut_tokens(const struct gd_tokenizer *tokenizer,
                                 struct gd_tokenizer_work *work, const struct gd_token_trie *trie,
                                 const char *text, size_t length, bool first, piece_reader *rest) {
  size_t from = 0, at = 0, bytes = 0;
  while (trie->count > 0 && at < length) {
    if (!trie->first[(unsigned char)text[at]]) {
      at++;
      continue;
    }
    int32_t index = trie_match(trie, text + at, length - at, &bytes);
    if (index < 0) {
      at++;
      continue;
    }
    const struct gd_added_token *token = &tokenizer->added[index];
    size_t start = at, end = at + bytes;
    at = end; /* the search goes on behind the token, whether or not it counts */
    if (token->single_word && !is_alone(tokenizer, text, length, start, end))
      continue;
    take_spaces(tokenizer, token, text, length, from, &start, &end);
    if (from < start)
      GD_TRY(rest(tokenizer, work, text + from, start - from, first && from == 0));
    if (!gd_token_ids_push(work->out, &token->id, 1))
      return gd_nomem(work->err, "while tokenizing");
    from = end;
  }
  if (from < length)
    GD_TRY(rest(tokenizer, work, text + from, length - from, first && from == 0));
  return GD_OK;
}

static enum gd_status read_raw(const struct gd_tokenizer *tokenizer, struct gd_tokenizer_work *work,
                               const char *text, size_t length, bool first) {
  struct gd_text normal;
  GD_TRY(gd_tokenizer_normalize(tokenizer, work, text, length, &normal));
  return cut_tokens(tokenizer, work, &tokenizer->normalized, normal.text, normal.length,
                    first && !work->cut_start, gd_tokenizer_split);
}

/* --- encoding ------------------------------------------------------------------------------ */

enum gd_status gd_tokenizer_encode(const struct gd_tokenizer *tokenizer,
                                   struct gd_tokenizer_work *work, const char *text, size_t length,
                                   bool special, struct gd_token_ids *ids, struct gd_error *err) {
  const struct gd_token_ids *before = &tokenizer->before, *after = &tokenizer->after;
  if (length >= GD_TOKENIZER_MOST_TEXT)
    return gd_fail(err, GD_BAD_INPUT,
                   "a text of %zu bytes is longer than the 2 GiB that one may have; split it",
                   length);
  work->out = ids;
  work->err = err;
  if (special && !gd_token_ids_push(ids, before->ids, before->count))
    return gd_nomem(err, "while tokenizing");
  if (gd_unicode_valid(text, length) != length) {
    work->clean.length = 0;
    gd_unicode_clean(text, length, &work->clean);
    if (work->clean.failed)
      return gd_nomem(err, "while tokenizing");
    text = work->clean.text;
    length = work->clean.length;
  }
  gd_regex_begin(&work->stack, length);
  GD_TRY(cut_tokens(tokenizer, work, &tokenizer->raw, text, length, true, read_raw));
  if (special && !gd_token_ids_push(ids, after->ids, after->count))
    return gd_nomem(err, "while tokenizing");
  return GD_OK;
}

enum gd_status gd_tokenizer_work_new(struct gd_tokenizer_work **work,
                                     const struct gd_tokenizer *tokenizer, struct gd_error *err) {
  (void)tokenizer;
  *work = gd_mem_alloc(1, sizeof **work);
  return *work ? GD_OK : gd_nomem(err, "for a tokenizer's buffers");
}

void gd_tokenizer_work_free(struct gd_tokenizer_work *work) {
  if (!work)
    return;
  gd_regex_stack_deinit(&work->stack);
  gd_strbuf_deinit(&work->clean);
  gd_strbuf_deinit(&work->normal[0]);
  gd_strbuf_deinit(&work->normal[1]);
  for (int i = 0; i <= GD_TOKENIZER_STEPS; i++)
    gd_strbuf_deinit(&work->steps[i]);
  gd_strbuf_deinit(&work->word);
  gd_mem_free(work->symbols);
  gd_mem_free(work->next);
  gd_mem_free(work->previous);
  gd_mem_free(work->heap);
  gd_mem_free(work->cache.slots);
  gd_mem_free(work->cache.texts);
  gd_mem_free(work->cache.ids);
  gd_mem_free(work);
}

/* --- tokens by name ------------------------------------------------------------------------ */

int64_t gd_tokenizer_size(const struct gd_tokenizer *tokenizer) {
  return tokenizer->n_tokens;
}

int32_t gd_tokenizer_id(const struct gd_tokenizer *tokenizer, const char *token) {
  size_t length = strlen(token);
  for (uint32_t i = 0; i < tokenizer->n_added; i++) {
    struct gd_text content = tokenizer->added[i].content;
    if (content.length == length && memcmp(content.text, token, length) == 0)
      return tokenizer->added[i].id;
  }
  return gd_token_map_find(&tokenizer->vocabulary, token, length);
}

const char *gd_tokenizer_token(const struct gd_tokenizer *tokenizer, int32_t id) {
  return id >= 0 && id < tokenizer->n_tokens ? tokenizer->tokens[id].text : NULL;
}

int32_t gd_tokenizer_eos(const struct gd_tokenizer *tokenizer) {
  static const char *const names[] = {"<|endoftext|>",   "</s>",
                                      "<|end_of_text|>", "[SEP]",
                                      "<eos>",           "<\uff5cend\u2581of\u2581sentence\uff5c>"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    int32_t id = gd_tokenizer_id(tokenizer, names[i]);
    if (id >= 0)
      return id;
  }
  return -1;
}
