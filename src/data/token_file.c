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
enum { LLMC_GPT2_VERSION = 1, LLMC_LLAMA3_VERSION = 7 };
/* Megatron: magic 9, version 8, dtype 1, sequences 8, documents 8; then 4 bytes a sequence (its
   tokens), 8 a sequence (where it begins), 8 a document (its first sequence), and where there are
   several modes, 1 a sequence. */
enum {
  INDEX_HEADER_BYTES = 34,
  INDEX_SEQUENCE_BYTES = 12,
  INDEX_DOCUMENT_BYTES = 8,
  INDEX_MODE_BYTES = 1
};
/* Ids that decide about the width of a raw file, at places all over it: it may begin with padding.
   LEAST: where there are fewer, an unusual length or small ids say nothing. */
enum { PLACES = 64, IDS_AT_PLACE = 64, LEAST_LOOKED_AT = 16 };
enum { TEXT_LOOKED_AT = 4096 };

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
    status = gd_fail(err, GD_BAD_INPUT, "%s is no regular file%s", path,
                     S_ISDIR(facts.st_mode) ? " but a folder: a model of tokens is trained on the "
                                              "token files in it, each by its name"
                                            : ": token files are memory-mapped");
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

/* The header of llm.c and NumPy counts exactly what follows it. */
static enum gd_status check_length(const struct gd_token_file *file, struct gd_error *err) {
  int64_t rest = file->map_bytes - file->first_byte;
  if (file->count > 0 && rest % file->width == 0 && file->count == rest / file->width)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT,
                 "%s: its header says %" PRId64 " tokens of %d bytes, and %" PRId64
                 " bytes follow: the file is cut or damaged",
                 file->path, file->count, file->width, rest);
}

static enum gd_status read_llmc(struct gd_token_file *file, struct gd_error *err) {
  bool gpt2 = little_endian(file->map, 4) == LLMC_GPT2;
  int64_t version = (int64_t)little_endian(file->map + 4, 4);
  int64_t known = gpt2 ? LLMC_GPT2_VERSION : LLMC_LLAMA3_VERSION;
  file->format = GD_TOKENS_LLMC;
  file->first_byte = LLMC_HEADER_BYTES;
  file->width = gpt2 ? 2 : 4;
  file->count = (int64_t)little_endian(file->map + 8, 4);
  if (version != known)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: its header says version %" PRId64 " at byte 4, and llm.c writes %" PRId64
                   " in files of %d bytes a token: the file is damaged, or of another tool",
                   file->path, version, known, file->width);
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

/* An index of Megatron-LM, mapped. */
struct index {
  char path[GD_FILE_PATH];
  const unsigned char *map;
  int64_t bytes, sequences, documents;
};

/* Header and length: everything behind lies inside of the file. */
static enum gd_status check_index_header(struct index *x, struct gd_token_file *file,
                                         struct gd_error *err) {
  if (x->bytes < INDEX_HEADER_BYTES || memcmp(x->map, "MMIDIDX\0\0", 9) != 0)
    return gd_fail(err, GD_BAD_INPUT, "%s is no index of Megatron-LM, and stands next to %s",
                   x->path, file->path);
  uint64_t version = little_endian(x->map + 9, 8);
  if (version != 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: its header says version %" PRIu64 " at byte 9, and 1 is known", x->path,
                   version);
  if (!megatron_width(x->map[17]))
    return gd_fail(err, GD_BAD_INPUT, "%s: dtype %d has no token ids", x->path, x->map[17]);
  file->width = megatron_width(x->map[17]);
  uint64_t sequences = little_endian(x->map + 18, 8), documents = little_endian(x->map + 26, 8);
  int64_t rest = x->bytes - INDEX_HEADER_BYTES;
  bool fits = sequences <= (uint64_t)(rest / INDEX_SEQUENCE_BYTES) &&
              documents <= (uint64_t)(rest / INDEX_DOCUMENT_BYTES);
  x->sequences = fits ? (int64_t)sequences : 0;
  x->documents = fits ? (int64_t)documents : 0;
  int64_t left = rest - x->sequences * INDEX_SEQUENCE_BYTES - x->documents * INDEX_DOCUMENT_BYTES;
  if (!fits || (left != 0 && left != x->sequences * INDEX_MODE_BYTES))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: its header says %" PRIu64 " sequences and %" PRIu64
                   " documents, and %" PRId64 " bytes follow: the index is cut or damaged",
                   x->path, sequences, documents, rest);
  return GD_OK;
}

/* Each sequence begins where the one before ends, and the last one ends with the file. */
static enum gd_status check_index_sequences(const struct index *x, const struct gd_token_file *file,
                                            struct gd_error *err) {
  const unsigned char *lengths = x->map + INDEX_HEADER_BYTES, *starts = lengths + 4 * x->sequences;
  uint64_t at = 0;
  for (int64_t i = 0; i < x->sequences; i++) {
    uint64_t length = little_endian(lengths + 4 * i, 4), start = little_endian(starts + 8 * i, 8);
    if (length > INT32_MAX)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: sequence %" PRId64 " has %" PRId32
                     " tokens: the index is damaged at byte %" PRId64,
                     x->path, i, (int32_t)(uint32_t)length, INDEX_HEADER_BYTES + 4 * i);
    if (start != at)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: sequence %" PRId64 " begins at byte %" PRIu64
                     ", and the one before ends at %" PRIu64
                     ": the index is damaged at byte %" PRId64,
                     x->path, i, start, at, INDEX_HEADER_BYTES + 4 * x->sequences + 8 * i);
    at += length * (uint64_t)file->width;
  }
  if (at != (uint64_t)file->map_bytes)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s has sequences of %" PRIu64 " bytes, and %s has %" PRId64
                   ": one of them is cut, or they are of two data sets",
                   x->path, at, file->path, file->map_bytes);
  return GD_OK;
}

/* The first sequences of documents do not fall, and the last number is that of all sequences. */
static enum gd_status check_index_documents(const struct index *x, struct gd_error *err) {
  int64_t first = INDEX_HEADER_BYTES + INDEX_SEQUENCE_BYTES * x->sequences;
  uint64_t before = 0;
  for (int64_t i = 0; i < x->documents; i++) {
    int64_t place = first + INDEX_DOCUMENT_BYTES * i;
    uint64_t at = little_endian(x->map + place, 8);
    bool last = i + 1 == x->documents;
    if (at < before || at > (uint64_t)x->sequences || (i == 0 && at != 0) ||
        (last && at != (uint64_t)x->sequences))
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: document %" PRId64 " begins at sequence %" PRIu64 " of %" PRId64
                     ", behind %" PRIu64 ": the index is damaged at byte %" PRId64,
                     x->path, i, at, x->sequences, before, place);
    before = at;
  }
  return GD_OK;
}

/* *found false: there is no index next to it. */
static enum gd_status read_megatron(struct gd_token_file *file, bool *found, struct gd_error *err) {
  struct index x = {0};
  size_t length = strlen(file->path);
  *found = length > 4 && strcmp(file->path + length - 4, ".bin") == 0;
  if (!*found)
    return GD_OK;
  snprintf(x.path, sizeof x.path, "%.*s.idx", (int)(length - 4), file->path);
  *found = access(x.path, F_OK) == 0;
  if (!*found)
    return GD_OK;
  GD_TRY(map_file(x.path, &x.map, &x.bytes, err));
  file->format = GD_TOKENS_MEGATRON;
  enum gd_status status = check_index_header(&x, file, err);
  if (status == GD_OK)
    status = check_index_sequences(&x, file, err);
  if (status == GD_OK)
    status = check_index_documents(&x, err);
  munmap((void *)(uintptr_t)x.map, (size_t)x.bytes);
  GD_TRY(status);
  file->count = file->map_bytes / file->width;
  return GD_OK;
}

static bool is_text(const struct gd_token_file *file) {
  int64_t count = file->map_bytes < TEXT_LOOKED_AT ? file->map_bytes : TEXT_LOOKED_AT,
          printable = 0;
  for (int64_t i = 0; i < count; i++)
    printable += isprint(file->map[i]) || isspace(file->map[i]) || file->map[i] >= 0x80;
  return printable == count;
}

/* Whether every second number of 2 bytes is the upper half of an id below 2^20: no vocabulary is
   larger. Where the lower halves are as small, all of the upper ones must be zero, and some lower
   ones not: bits or bases of DNA. A length that is none of 4 bytes says nothing then: the file is
   cut. */
static int raw_width(const struct gd_token_file *file) {
  int64_t count = file->map_bytes / 4, looked = count < IDS_AT_PLACE ? count : IDS_AT_PLACE;
  bool large = false, upper = false, lower = false;
  for (int64_t place = 0; place < PLACES; place++) {
    const unsigned char *at = file->map + 4 * ((count - looked) / (PLACES - 1) * place);
    for (int64_t i = 0; i < looked; i++) {
      uint64_t low = little_endian(at + 4 * i, 2), high = little_endian(at + 4 * i + 2, 2);
      if (high >= 16)
        return 2;
      large |= low >= 16;
      upper |= high > 0;
      lower |= low > 0;
    }
  }
  if (count < LEAST_LOOKED_AT)
    return large && file->map_bytes % 4 == 0 ? 4 : 2;
  return large || (lower && !upper) ? 4 : 2;
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
                   "%s: %" PRId64 " bytes are no whole number of ids of %d bytes: the file is cut "
                   "in token %" PRId64 ", or of a format that is not known%s",
                   file->path, file->map_bytes, file->width, file->count,
                   width == 0 && file->width == 4 ? "; --token-bytes 2 takes it for uint16" : "");
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

/* What else a raw file may be, told where its ids make no sense: a first id may look like anything.
 */
static const char *looks_like(const struct gd_token_file *file) {
  static const struct {
    int64_t at;
    const char *bytes, *what;
  } known[] = {{0, "\xff\xd8\xff", "a JPEG image"},   {0, "\x89PNG\r\n", "a PNG image"},
               {0, "\x1f\x8b\x08", "a gzip archive"}, {0, "PK\x03\x04", "a zip archive"},
               {0, "PAR1", "a Parquet file"},         {0, "\x28\xb5\x2f\xfd", "a zstd archive"},
               {0, "BZh", "a bzip2 archive"},         {0, "\xfd\x37zXZ", "an xz archive"},
               {257, "ustar", "a tar archive"}};
  for (size_t i = 0; i < sizeof known / sizeof *known && file->format == GD_TOKENS_RAW; i++) {
    int64_t length = (int64_t)strlen(known[i].bytes);
    if (file->map_bytes >= known[i].at + length &&
        memcmp(file->map + known[i].at, known[i].bytes, (size_t)length) == 0)
      return known[i].what;
  }
  return NULL;
}

static enum gd_status past_vocabulary(const struct gd_token_file *file, int64_t place, uint64_t id,
                                      int64_t vocabulary, struct gd_error *err) {
  const char *other = looks_like(file);
  if (other)
    return gd_fail(err, GD_BAD_INPUT, "%s begins as %s does, and is no file of token ids",
                   file->path, other);
  return gd_fail(err, GD_BAD_INPUT,
                 "%s: token %" PRId64 " is %" PRIu64 ", and the model's vocabulary has %" PRId64
                 " (read as %s, %d bytes an id): was it tokenised for another model?",
                 file->path, place, id, vocabulary, gd_token_format_name(file->format),
                 file->width);
}

enum gd_status gd_token_file_read(const struct gd_token_file *file, int64_t first, int64_t count,
                                  int64_t vocabulary, int32_t *ids, struct gd_error *err) {
  const unsigned char *from = file->map + file->first_byte + first * file->width;
  GD_ASSERT(first >= 0 && count >= 0 && first + count <= file->count);
  for (int64_t i = 0; i < count; i++) {
    uint64_t id = little_endian(from + i * file->width, file->width);
    if (id >= (uint64_t)vocabulary)
      return past_vocabulary(file, first + i, id, vocabulary, err);
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
