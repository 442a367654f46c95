/*
 * Tokenizers of Hugging Face (tokenizer.json): text to token ids and back, equal to the tokenizers
 * library token by token. BPE on bytes (GPT-2, NeoX, Llama 3, Qwen), BPE in the way of
 * SentencePiece with byte fallback (Llama 2), WordPiece (BERT). What a file asks for and is not
 * here is refused when it is loaded, by name. Truncation and padding are not done.
 *
 *   struct gd_tokenizer *tokenizer = NULL;
 *   struct gd_tokenizer_work *work = NULL;
 *   struct gd_token_ids ids = {0};
 *   GD_TRY(gd_tokenizer_load(&tokenizer, "gpudays-4k", err));
 *   GD_TRY(gd_tokenizer_work_new(&work, tokenizer, err));
 *   GD_TRY(gd_tokenizer_encode(tokenizer, work, "a text", 6, false, &ids, err));
 *   gd_token_ids_deinit(&ids);
 *   gd_tokenizer_work_free(work);
 *   gd_tokenizer_free(tokenizer);
 */
#ifndef GD_DATA_TOKENIZER_H
#define GD_DATA_TOKENIZER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

struct gd_tokenizer;
/* Buffers and known words of one thread; a tokenizer itself is only read while it encodes. */
struct gd_tokenizer_work;

struct gd_token_ids {
  int32_t *ids;
  int64_t count, capacity;
};
void gd_token_ids_deinit(struct gd_token_ids *ids); /* safe on a zeroed one */

/*
 * A tokenizer.json, the folder that holds one, or the name of one that is in the program.
 * GD_BAD_INPUT: no such file, or not a tokenizer; GD_UNSUPPORTED: one with parts that are not here.
 */
enum gd_status gd_tokenizer_load(struct gd_tokenizer **tokenizer, const char *path,
                                 struct gd_error *err) GD_MUST_USE;
/* The text of one; label is for messages. */
enum gd_status gd_tokenizer_parse(struct gd_tokenizer **tokenizer, const char *label,
                                  const char *text, size_t length,
                                  struct gd_error *err) GD_MUST_USE;
/* Appends the text of a tokenizer.json: what gd_tokenizer_load reads. */
enum gd_status gd_tokenizer_text(const char *path, struct gd_strbuf *text,
                                 struct gd_error *err) GD_MUST_USE;
void gd_tokenizer_free(struct gd_tokenizer *tokenizer); /* NULL is fine */

/* Ids are below this. */
int64_t gd_tokenizer_size(const struct gd_tokenizer *tokenizer);
/* The id of a token by its text, added ones first; -1: there is none. */
int32_t gd_tokenizer_id(const struct gd_tokenizer *tokenizer, const char *token);
/* The text that an id has in the vocabulary; NULL: none. */
const char *gd_tokenizer_token(const struct gd_tokenizer *tokenizer, int32_t id);
/* The token that ends a document, by its usual names; -1: none of them is there. */
int32_t gd_tokenizer_eos(const struct gd_tokenizer *tokenizer);

enum gd_status gd_tokenizer_work_new(struct gd_tokenizer_work **work,
                                     const struct gd_tokenizer *tokenizer,
                                     struct gd_error *err) GD_MUST_USE;
void gd_tokenizer_work_free(struct gd_tokenizer_work *work); /* NULL is fine */

/*
 * Appends the ids of a text. Bytes that are no UTF-8 count as U+FFFD. special: with the tokens that
 * the post-processor puts around it. GD_BAD_INPUT: a text of 2 GiB or more, or a character without
 * a token and no token for unknown ones; what was appended before stays.
 */
enum gd_status gd_tokenizer_encode(const struct gd_tokenizer *tokenizer,
                                   struct gd_tokenizer_work *work, const char *text, size_t length,
                                   bool special, struct gd_token_ids *ids,
                                   struct gd_error *err) GD_MUST_USE;
/* Appends the text of ids; those that no token has are left out, special ones where skip_special.
 */
enum gd_status gd_tokenizer_decode(const struct gd_tokenizer *tokenizer, const int32_t *ids,
                                   int64_t count, bool skip_special, struct gd_strbuf *text,
                                   struct gd_error *err) GD_MUST_USE;

#endif
