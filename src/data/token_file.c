/*
 * Token files; see token_file.h. Sources of the formats: llm.c dev/data/data_common.py and
 * llmc/dataloader.h; Megatron-LM megatron/core/datasets/indexed_dataset.py; NumPy
 * numpy/lib/format.py (versions 1 to 3); nanoGPT data/openwebtext/prepare.py.
 */
#define _GNU_SOURCE
#include "data/token_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LLMC_HEADER_BYTES = 1024, LLMC_GPT2 = 20240520, LLMC_LLAMA3 = 20240801 };
enum {
  INDEX_HEADER_BYTES = 34
};                         /* Megatron: magic 9, version 8, dtype 1, sequences 8, documents 8 */
enum { LOOKED_AT = 4096 }; /* ids that decide about the width of a raw file */

const char *gd_token_format_name(enum gd_token_format format) {
  static const char *const names[GD_TOKENS_FORMATS] = {[GD_TOKENS_RAW] = "raw",
                                                       [GD_TOKENS_LLMC] = "llm.c",
                                                       [GD_TOKENS_MEGATRON] = "Megatron",
                                                       [GD_TOKENS_NUMPY] = "NumPy"};
  return names[format];
}

static uint64_t little_endian(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++)
    value |= (uint64_t)at[i] << (8 * i);
  return value;
}

/* Maps a regular file whole. */
static enum gd_status map_file(const char *path, const unsigned char **map, int64_t *bytes,
                               struct gd_error *err) {
  struct stat facts;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not hang */
  if (fd < 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: %s", path, strerror(errno));
  enum gd_status status = GD_OK;
  if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode))
    status =
        gd_fail(err, GD_BAD_INPUT, "%s is no regular file: token files are memory-mapped", path);
  else if (facts.st_size == 0)
    status = gd_fail(err, GD_BAD_INPUT, "%s is empty", path);
  if (status == GD_OK) {
    void *mapped = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
      status = gd_fail(err, GD_ENVIRONMENT, "%s cannot be mapped: %s", path, strerror(errno));
    else {
      *map = mapped;
      *bytes = facts.st_size;
    }
  }
  close(fd);
  return status;
}

/* --- formats ------------------------------------------------------------------------------- */

static enum gd_status check_length(const struct gd_token_file *file, struct gd_error *err) {
  if (file->count > 0 && file->count <= (file->map_bytes - file->first_byte) / file->width)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT,
                 "%s: its header says %" PRId64 " tokens of %d bytes, and %" PRId64
                 " bytes follow: the file is cut or damaged",
                 file->path, file->count, file->width, file->map_bytes - file->first_byte);
}

static enum gd_status read_llmc(struct gd_token_file *file, struct gd_error *err) {
  file->format = GD_TOKENS_LLMC;
  file->first_byte = LLMC_HEADER_BYTES;
  file->width = little_endian(file->map, 4) == LLMC_GPT2 ? 2 : 4;
  file->count = (int64_t)little_endian(file->map + 8, 4);
  return check_length(file, err);
}

/* "{'descr': '<u2', 'fortran_order': False, 'shape': (123,), }" */
static enum gd_status read_numpy(struct gd_token_file *file, struct gd_error *err) {
  char header[512] = "";
  int major = file->map[6], prefix = major == 1 ? 10 : 12;
  int64_t length =
      file->map_bytes < prefix ? -1 : (int64_t)little_endian(file->map + 8, major == 1 ? 2 : 4);
  if (length < 0 || length >= (int64_t)sizeof header || prefix + length > file->map_bytes)
    return gd_fail(err, GD_BAD_INPUT, "%s: the header of this .npy file is cut or damaged",
                   file->path);
  memcpy(header, file->map + prefix, (size_t)length);
  const char *descr = strstr(header, "'descr': '"), *shape = strstr(header, "'shape': (");
  char kind = descr ? descr[11] : 0;
  int width = descr ? descr[12] - '0' : 0;
  char *end = NULL;
  file->format = GD_TOKENS_NUMPY;
  file->first_byte = prefix + length;
  file->count = shape ? strtoll(shape + 10, &end, 10) : 0;
  bool flat = end && (strncmp(end, ",)", 2) == 0 || strncmp(end, ", )", 3) == 0);
  bool little = descr && (descr[10] == '<' || descr[10] == '|');
  if (!flat || !little || (kind != 'u' && kind != 'i') || (width != 2 && width != 4 && width != 8))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: token ids must be an array of one dim of little-endian integers of 2, 4 "
                   "or 8 bytes; this file's header is %.200s",
                   file->path, header);
  file->width = width;
  return check_length(file, err);
}

/* Bytes of an id by Megatron's number of a dtype; 0: no integer that can be one. */
static int megatron_width(int code) {
  static const int widths[] = {0, 0, 0, 2, 4, 8, 0, 0, 2}; /* 3 int16, 4 int32, 5 int64, 8 uint16 */
  return code < (int)(sizeof widths / sizeof *widths) ? widths[code] : 0;
}

/* *found false: there is no index next to it. */
static enum gd_status read_megatron(struct gd_token_file *file, bool *found, struct gd_error *err) {
  char index_path[GD_FILE_PATH];
  const unsigned char *index;
  int64_t bytes;
  size_t length = strlen(file->path);
  *found = length > 4 && strcmp(file->path + length - 4, ".bin") == 0;
  if (!*found)
    return GD_OK;
  snprintf(index_path, sizeof index_path, "%.*s.idx", (int)(length - 4), file->path);
  *found = access(index_path, F_OK) == 0;
  if (!*found)
    return GD_OK;
  GD_TRY(map_file(index_path, &index, &bytes, err));
  bool known = bytes >= INDEX_HEADER_BYTES && memcmp(index, "MMIDIDX\0\0", 9) == 0;
  int code = known ? index[17] : 0;
  munmap((void *)(uintptr_t)index, (size_t)bytes);
  if (!known)
    return gd_fail(err, GD_BAD_INPUT, "%s is no index of Megatron-LM, and stands next to %s",
                   index_path, file->path);
  if (!megatron_width(code))
    return gd_fail(err, GD_BAD_INPUT, "%s: dtype %d has no token ids", index_path, code);
  file->format = GD_TOKENS_MEGATRON;
  file->width = megatron_width(code);
  file->count = file->map_bytes / file->width;
  return check_length(file, err);
}

static bool is_text(const struct gd_token_file *file) {
  int64_t count = file->map_bytes < LOOKED_AT ? file->map_bytes : LOOKED_AT, printable = 0;
  for (int64_t i = 0; i < count; i++)
    printable += isprint(file->map[i]) || isspace(file->map[i]) || file->map[i] >= 0x80;
  return printable == count;
}

/* Ids of 4 bytes have zeros in their upper half, all of them below 65,536 and most of any others.
 */
static int raw_width(const struct gd_token_file *file) {
  int64_t count = file->map_bytes / 4, zeros = 0, lower = 0;
  if (file->map_bytes % 4)
    return 2;
  if (count > LOOKED_AT)
    count = LOOKED_AT;
  for (int64_t i = 0; i < count; i++) {
    zeros += little_endian(file->map + 4 * i + 2, 2) < 16; /* below 2^20: no vocabulary is larger */
    lower += little_endian(file->map + 4 * i, 2) < 16;
  }
  return zeros == count && lower < count ? 4 : 2;
}

static enum gd_status read_raw(struct gd_token_file *file, int width, struct gd_error *err) {
  if (is_text(file))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is text, and no token ids; 'gpudays tokens %s --tokenizer tokenizer.json -o "
                   "FILE' makes a token file of it",
                   file->path, file->path);
  file->format = GD_TOKENS_RAW;
  if (width == 3)
    return gd_fail(err, GD_BAD_INPUT, "token ids have 2 or 4 bytes, not 3");
  file->width = width ? width : raw_width(file);
  file->count = file->map_bytes / file->width;
  if (file->map_bytes % file->width)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: %" PRId64 " bytes are no whole number of ids of %d bytes: the file is cut, "
                   "or of a format that is not known",
                   file->path, file->map_bytes, file->width);
  return GD_OK;
}

static enum gd_status find_format(struct gd_token_file *file, int width, struct gd_error *err) {
  bool found;
  uint64_t magic = file->map_bytes >= LLMC_HEADER_BYTES ? little_endian(file->map, 4) : 0;
  if (magic == LLMC_GPT2 || magic == LLMC_LLAMA3)
    return read_llmc(file, err);
  if (file->map_bytes >= 12 && memcmp(file->map, "\x93NUMPY", 6) == 0)
    return read_numpy(file, err);
  GD_TRY(read_megatron(file, &found, err));
  return found ? GD_OK : read_raw(file, width, err);
}

enum gd_status gd_token_file_open(struct gd_token_file *file, const char *path, int width,
                                  struct gd_error *err) {
  *file = (struct gd_token_file){0};
  if (strlen(path) >= sizeof file->path)
    return gd_fail(err, GD_BAD_INPUT, "the path %.64s... is too long", path);
  memcpy(file->path, path, strlen(path) + 1);
  size_t length = strlen(path);
  if (length > 4 && strcmp(path + length - 4, ".idx") == 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is an index of Megatron-LM; name the .bin file next to it", path);
  GD_TRY(map_file(path, &file->map, &file->map_bytes, err));
  enum gd_status status = find_format(file, width, err);
  if (status != GD_OK)
    gd_token_file_close(file);
  return status;
}

void gd_token_file_close(struct gd_token_file *file) {
  if (file->map)
    munmap((void *)(uintptr_t)file->map, (size_t)file->map_bytes);
  *file = (struct gd_token_file){0};
}

/* --- ids ----------------------------------------------------------------------------------- */

enum gd_status gd_token_file_read(const struct gd_token_file *file, int64_t first, int64_t count,
                                  int64_t vocabulary, int32_t *ids, struct gd_error *err) {
  const unsigned char *from = file->map + file->first_byte + first * file->width;
  GD_ASSERT(first >= 0 && count >= 0 && first + count <= file->count);
  for (int64_t i = 0; i < count; i++) {
    uint64_t id = little_endian(from + i * file->width, file->width);
    if (id >= (uint64_t)vocabulary)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: token %" PRId64 " is %" PRIu64 ", and the model's vocabulary has %" PRId64
                     " (read as %s, %d bytes an id): was it tokenised for another model?",
                     file->path, first + i, id, vocabulary, gd_token_format_name(file->format),
                     file->width);
    ids[i] = (int32_t)id;
  }
  return GD_OK;
}

void gd_token_file_prefetch(const struct gd_token_file *file, int64_t first, int64_t count) {
  int64_t page = sysconf(_SC_PAGESIZE);
  int64_t begin = (file->first_byte + first * file->width) / page * page;
  int64_t end = file->first_byte + (first + count) * file->width;
  madvise((void *)(uintptr_t)(file->map + begin), (size_t)(end - begin), MADV_WILLNEED);
}
