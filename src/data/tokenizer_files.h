/*
 * Files of text made into a file of tokens, as `train` reads them, and tokens read back. Documents
 * are read in order, tokenized by all threads, and written in order: the number of threads changes
 * nothing. The file appears whole or not at all (base/file.h).
 *
 *   struct gd_tokens_order order = {.inputs = paths, .n_inputs = 2, .output = "train.bin",
 *                                   .eos = gd_tokenizer_eos(tokenizer), .threads = 8};
 *   struct gd_tokens_made made;
 *   GD_TRY(gd_tokens_make(tokenizer, &order, &made, err));
 */
#ifndef GD_DATA_TOKENIZER_FILES_H
#define GD_DATA_TOKENIZER_FILES_H

#include <stdio.h>

#include "data/tokenizer.h"

/* Little-endian uint16 where the vocabulary has up to 65,536 tokens, else uint32. */
enum gd_tokens_format {
  GD_TOKENS_LLMC, /* behind llm.c's header of 256 int32: magic, version, tokens */
  GD_TOKENS_RAW,  /* tokens alone; FILE.json next to it says what they are */
  GD_TOKENS_NPY,  /* an array of NumPy */
};

struct gd_tokens_order {
  const char *const *inputs; /* files; "-" is stdin. .jsonl and .ndjson: a JSON object a line */
  int n_inputs;
  const char *output; /* with validation, the tail goes to <output>.val */
  enum gd_tokens_format format;
  bool split_lines;  /* each line of a text that is not empty is a document */
  bool special;      /* with the post-processor's tokens around each document */
  const char *field; /* of JSON objects; given: all inputs are JSONL; NULL: "text" */
  int32_t eos;       /* after each document; -1: none */
  double validation; /* share of documents at the end that is kept apart; 0: none */
  int threads;
  void (*report)(void *user, const char *what, double done, double eta_s); /* NULL: none */
  void *user;
};

struct gd_tokens_made {
  int64_t documents, tokens, bytes; /* all of them; bytes of text */
  int64_t validation_documents, validation_tokens;
  int width; /* bytes of a token: 2 or 4 */
};

/* GD_BAD_INPUT names file and line of what cannot be read; GD_ENVIRONMENT: a full disk, and so on.
 */
enum gd_status gd_tokens_make(const struct gd_tokenizer *tokenizer,
                              const struct gd_tokens_order *order, struct gd_tokens_made *made,
                              struct gd_error *err) GD_MUST_USE;

/* The tokens of a file in any of the formats, known by its content; raw ones have the width that
   the vocabulary needs. */
struct gd_tokens_reader {
  FILE *stream;
  const char *path; /* for messages; the caller's */
  int width;
  int64_t left; /* tokens; -1: as many as there are */
};
enum gd_status gd_tokens_open(struct gd_tokens_reader *reader, const char *path,
                              const struct gd_tokenizer *tokenizer,
                              struct gd_error *err) GD_MUST_USE;
/* Up to `most` ids; *count 0 at the end. An id that the tokenizer does not have: GD_BAD_INPUT. */
enum gd_status gd_tokens_read(struct gd_tokens_reader *reader, const struct gd_tokenizer *tokenizer,
                              int32_t *ids, int64_t most, int64_t *count,
                              struct gd_error *err) GD_MUST_USE;
void gd_tokens_close(struct gd_tokens_reader *reader);

#endif
