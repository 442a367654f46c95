/*
 * A file of token ids, as other tools write them: memory-mapped, never copied. The format is found
 * by content:
 *
 *   llm.c      1,024 bytes of header (magic 20240520: uint16, 20240801: uint32), then ids
 *   Megatron   FILE.bin next to FILE.idx, which says the width of an id
 *   NumPy      .npy of one dim, unsigned or signed, of 2, 4 or 8 bytes
 *   raw        ids and nothing else, as nanoGPT writes them: uint16 or uint32
 *
 *   struct gd_token_file file;
 *   GD_TRY(gd_token_file_open(&file, "train.bin", 0, err));
 *   GD_TRY(gd_token_file_read(&file, first, 2049, vocabulary, ids, err));
 *   gd_token_file_close(&file);
 */
#ifndef GD_DATA_TOKEN_FILE_H
#define GD_DATA_TOKEN_FILE_H

#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

enum gd_token_format {
  GD_TOKENS_RAW,
  GD_TOKENS_LLMC,
  GD_TOKENS_MEGATRON,
  GD_TOKENS_NUMPY,
  GD_TOKENS_FORMATS
};
const char *gd_token_format_name(enum gd_token_format format); /* "raw", "llm.c", ... */

struct gd_token_file {
  char path[GD_FILE_PATH];
  enum gd_token_format format;
  int width;          /* bytes of an id */
  int64_t count;      /* ids */
  int64_t first_byte; /* where they begin */
  const unsigned char *map;
  int64_t map_bytes;
};

/*
 * Opens and checks it; costs no more for 100 GB than for one page, but for Megatron's index, which
 * is read whole. width: bytes of an id in a raw file, 2 or 4; 0: found by content. GD_BAD_INPUT:
 * text, an empty or cut file, another format, a header or an index that does not fit the file; the
 * sentence has file and place.
 */
enum gd_status gd_token_file_open(struct gd_token_file *file, const char *path, int width,
                                  struct gd_error *err) GD_MUST_USE;
void gd_token_file_close(struct gd_token_file *file); /* safe on a zeroed one */

/* Ids first .. first + count. GD_BAD_INPUT: one is not below the vocabulary; the sentence has file
   and position. The stretch must lie inside of the file. */
enum gd_status gd_token_file_read(const struct gd_token_file *file, int64_t first, int64_t count,
                                  int64_t vocabulary, int32_t *ids,
                                  struct gd_error *err) GD_MUST_USE;
/* Asks the system to have that stretch in memory soon. */
void gd_token_file_prefetch(const struct gd_token_file *file, int64_t first, int64_t count);

#endif
