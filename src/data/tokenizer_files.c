/*
 * Documents in, tokens out; see tokenizer_files.h. A batch of documents is read, cut into groups
 * of about equal length, tokenized group by group by all threads, and written in order.
 */
#define _POSIX_C_SOURCE 200809L
#include "data/tokenizer_files.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <omp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

enum {
  BATCH_BYTES = 32 << 20,
  GROUP_BYTES = 128 << 10,
  PIECE_BYTES = 1 << 18, /* of one read */
  LLMC_HEADER = 1024,
  LLMC_MAGIC_16 = 20240520, /* llm.c, dev/data/data_common.py: GPT-2, version 1 */
  LLMC_MAGIC_32 = 20240801, /* and Llama 3, version 7 */
  NPY_HEADER = 128
};

struct document {
  size_t start, length; /* in the batch's text */
  int input;
  int64_t line; /* 0: the whole file */
};

struct group {
  size_t first, count; /* documents */
  struct gd_token_ids ids;
  int64_t bytes;
  int64_t *ends; /* of documents in ids; NULL: nobody asked */
  struct gd_error err;
};

struct making {
  const struct gd_tokenizer *tokenizer;
  const struct gd_tokens_order *order;
  struct gd_tokens_made *made;
  struct gd_error *err;
  struct gd_tokenizer_work **works; /* of threads */
  struct gd_strbuf text;            /* of the batch */
  struct document *documents;
  uint32_t n_documents, documents_room;
  struct group *groups;
  uint32_t n_groups, groups_room;
  char *piece;   /* what was read last */
  int64_t *ends; /* token after the last of each document, with validation */
  int64_t n_ends, ends_room;
  struct gd_file_out out;
  int64_t start_ns, all_bytes, read_bytes;
};

static enum gd_status nomem(struct making *m) {
  return gd_nomem(m->err, "while tokenizing");
}

/* --- tokens as bytes ----------------------------------------------------------------------- */

static size_t header_bytes(enum gd_tokens_format format) {
  return format == GD_TOKENS_LLMC ? LLMC_HEADER : format == GD_TOKENS_NPY ? NPY_HEADER : 0;
}

static void put_le32(char *at, uint32_t value) {
  for (int i = 0; i < 4; i++)
    at[i] = (char)(value >> 8 * i & 255);
}

static void make_header(enum gd_tokens_format format, int width, int64_t count,
                        char header[LLMC_HEADER]) {
  memset(header, 0, LLMC_HEADER);
  if (format == GD_TOKENS_LLMC) {
    put_le32(header, width == 2 ? LLMC_MAGIC_16 : LLMC_MAGIC_32);
    put_le32(header + 4, width == 2 ? 1 : 7);
    put_le32(header + 8, (uint32_t)count);
  } else if (format == GD_TOKENS_NPY) {
    memset(header, ' ', NPY_HEADER);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = NPY_HEADER - 10;
    header[9] = 0;
    int length = snprintf(header + 10, NPY_HEADER - 10,
                          "{'descr': '<u%d', 'fortran_order': False, 'shape': (%" PRId64 ",), }",
                          width, count);
    header[10 + length] = ' ';
    header[NPY_HEADER - 1] = '\n';
  }
}

static void write_header(FILE *stream, enum gd_tokens_format format) {
  static const char zeros[LLMC_HEADER];
  fwrite(zeros, 1, header_bytes(format), stream); /* finish_header writes over it at the end */
}

/* The header with the count that is known now. The first failure is kept for gd_file_end. */
static void finish_header(struct gd_file_out *out, enum gd_tokens_format format, int width,
                          int64_t count) {
  char header[LLMC_HEADER];
  size_t bytes = header_bytes(format);
  fflush(out->stream);
  if (bytes == 0 || out->failure)
    return;
  make_header(format, width, count, header);
  if (pwrite(out->fd, header, bytes, 0) != (ssize_t)bytes)
    out->failure = errno ? errno : EIO;
}

static enum gd_status write_tokens(struct making *m, const int32_t *ids, int64_t count) {
  int64_t done = 0;
  int width = m->made->width;
  while (done < count) {
    unsigned char bytes[16384];
    int64_t some = count - done < 4096 ? count - done : 4096;
    for (int64_t i = 0; i < some; i++) {
      uint32_t id = (uint32_t)ids[done + i];
      for (int b = 0; b < width; b++)
        bytes[i * width + b] = (unsigned char)(id >> 8 * b);
    }
    fwrite(bytes, (size_t)width, (size_t)some, m->out.stream);
    done += some;
  }
  m->made->tokens += count;
  if (m->order->format == GD_TOKENS_LLMC && m->made->tokens > INT32_MAX)
    return gd_fail(m->err, GD_BAD_INPUT,
                   "llm.c's header counts up to 2,147,483,647 tokens, and here are more; use "
                   "--format npy or raw");
  return GD_OK;
}

/* --- one batch ----------------------------------------------------------------------------- */

/* A line of JSONL: its text, or why there is none. The value is the caller's to release. */
static enum gd_status parse_line(const struct making *m, const struct document *document,
                                 json_t **root, const char **text, size_t *length,
                                 struct gd_error *err) {
  json_error_t error = {0};
  char path[256], clean[JSON_ERROR_TEXT_LENGTH], field[64];
  const char *key = m->order->field ? m->order->field : "text";
  *root = json_loadb(m->text.text + document->start, document->length, JSON_ALLOW_NUL, &error);
  gd_json_excerpt(path, sizeof path, m->order->inputs[document->input]);
  if (!*root)
    return gd_fail(err, GD_BAD_INPUT, "%s: line %" PRId64 ": not JSON: %s", path, document->line,
                   gd_json_excerpt(clean, sizeof clean, error.text));
  const json_t *value = json_object_get(*root, key);
  if (!json_is_string(value))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: line %" PRId64 ": has no text \"%s\"; --field names another one", path,
                   document->line, gd_json_excerpt(field, sizeof field, key));
  *text = json_string_value(value);
  *length = json_string_length(value);
  return GD_OK;
}

static bool is_jsonl(const struct gd_tokens_order *order, int input) {
  const char *dot = strrchr(order->inputs[input], '.');
  return order->field || (dot && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".ndjson") == 0));
}

static enum gd_status encode_document(const struct making *m, struct group *group,
                                      struct gd_tokenizer_work *work,
                                      const struct document *document) {
  const char *text = m->text.text + document->start;
  size_t length = document->length;
  json_t *root = NULL;
  enum gd_status status = GD_OK;
  if (is_jsonl(m->order, document->input))
    status = parse_line(m, document, &root, &text, &length, &group->err);
  if (status == GD_OK)
    status = gd_tokenizer_encode(m->tokenizer, work, text, length, m->order->special, &group->ids,
                                 &group->err);
  json_decref(root);
  if (status == GD_OK && m->order->eos >= 0) {
    int64_t count = group->ids.count;
    /* Room is doubled by the encoder; one more is asked for here. */
    if (count == group->ids.capacity) {
      int32_t *grown =
          gd_mem_grow(group->ids.ids, (size_t)count, (size_t)count * 2 + 16, sizeof *grown);
      if (!grown)
        return gd_nomem(&group->err, "while tokenizing");
      group->ids.ids = grown;
      group->ids.capacity = count * 2 + 16;
    }
    group->ids.ids[group->ids.count++] = m->order->eos;
  }
  group->bytes += (int64_t)length;
  return status;
}

static void encode_group(const struct making *m, struct group *group,
                         struct gd_tokenizer_work *work) {
  for (size_t i = 0; i < group->count; i++) {
    if (encode_document(m, group, work, &m->documents[group->first + i]) != GD_OK)
      return;
    if (group->ends)
      group->ends[i] = group->ids.count;
  }
}

static enum gd_status make_groups(struct making *m) {
  m->n_groups = 0;
  for (size_t first = 0; first < m->n_documents;) {
    size_t bytes = 0, count = 0;
    while (first + count < m->n_documents && bytes < GROUP_BYTES)
      bytes += m->documents[first + count++].length + 16;
    if (!gd_vec_reserve((void **)&m->groups, &m->groups_room, m->n_groups + 1, sizeof *m->groups))
      return nomem(m);
    struct group *group = &m->groups[m->n_groups++];
    *group = (struct group){.first = first, .count = count};
    if (m->order->validation > 0) {
      group->ends = gd_mem_alloc(count, sizeof *group->ends);
      if (!group->ends)
        return nomem(m);
    }
    first += count;
  }
  return GD_OK;
}

static enum gd_status keep_ends(struct making *m, const struct group *group) {
  int64_t before = m->made->tokens;
  if (m->n_ends + (int64_t)group->count > m->ends_room) {
    int64_t room = (m->n_ends + (int64_t)group->count) * 2;
    int64_t *grown = gd_mem_grow(m->ends, (size_t)m->ends_room, (size_t)room, sizeof *grown);
    if (!grown)
      return nomem(m);
    m->ends = grown;
    m->ends_room = room;
  }
  for (size_t i = 0; i < group->count; i++)
    m->ends[m->n_ends++] = before + group->ends[i];
  return GD_OK;
}

static enum gd_status write_group(struct making *m, const struct group *group) {
  if (group->err.status != GD_OK) {
    *m->err = group->err;
    return group->err.status;
  }
  if (group->ends)
    GD_TRY(keep_ends(m, group));
  m->made->documents += (int64_t)group->count;
  m->made->bytes += group->bytes;
  return write_tokens(m, group->ids.ids, group->ids.count);
}

static void free_groups(struct making *m) {
  for (uint32_t i = 0; i < m->n_groups; i++) {
    gd_token_ids_deinit(&m->groups[i].ids);
    gd_mem_free(m->groups[i].ends);
  }
  m->n_groups = 0;
}

static enum gd_status encode_batch(struct making *m) {
  enum gd_status status = make_groups(m);
  if (status == GD_OK) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(m->order->threads)
    for (uint32_t i = 0; i < m->n_groups; i++)
      encode_group(m, &m->groups[i], m->works[omp_get_thread_num()]);
  }
  for (uint32_t i = 0; i < m->n_groups && status == GD_OK; i++)
    status = write_group(m, &m->groups[i]);
  free_groups(m);
  m->n_documents = 0;
  if (status == GD_OK && m->out.failure)
    status = GD_ENVIRONMENT; /* gd_file_end says why */
  if (m->order->report && m->all_bytes > 0) {
    double done = (double)m->read_bytes / (double)m->all_bytes;
    double seconds = (double)(gd_clock_ns() - m->start_ns) * 1e-9;
    m->order->report(m->order->user, "tokenizing", done,
                     done > 0 ? seconds * (1 - done) / done : -1);
  }
  return status;
}

/* --- reading ------------------------------------------------------------------------------- */

static enum gd_status add_document(struct making *m, struct document document) {
  if (m->n_documents == UINT32_MAX / 2 ||
      !gd_vec_reserve((void **)&m->documents, &m->documents_room, m->n_documents + 1,
                      sizeof *m->documents))
    return nomem(m);
  m->documents[m->n_documents++] = document;
  return GD_OK;
}

/* A line from start to the end of the text so far, without its line end. */
static enum gd_status add_line(struct making *m, int input, size_t start, int64_t line) {
  size_t length = m->text.length - start;
  while (length > 0 && strchr("\n\r", m->text.text[start + length - 1]) &&
         m->text.text[start + length - 1] != '\0')
    length--;
  if (length == 0)
    return GD_OK;
  return add_document(m, (struct document){start, length, input, line});
}

/* Tokenizes the documents so far, where there are enough; what comes after them stays. */
static enum gd_status flush(struct making *m, size_t *start, bool now) {
  if (m->n_documents == 0 || (!now && m->text.length < BATCH_BYTES))
    return GD_OK;
  GD_TRY(encode_batch(m));
  memmove(m->text.text, m->text.text + *start, m->text.length - *start);
  m->text.length -= *start;
  *start = 0;
  return GD_OK;
}

static enum gd_status read_lines(struct making *m, int input, const char *piece, size_t length,
                                 size_t *start, int64_t *line) {
  while (length > 0) {
    const char *end = memchr(piece, '\n', length);
    size_t some = end ? (size_t)(end - piece) + 1 : length;
    gd_strbuf_append_bytes(&m->text, piece, some);
    if (m->text.failed)
      return nomem(m);
    piece += some;
    length -= some;
    if (!end)
      break;
    GD_TRY(add_line(m, input, *start, ++*line));
    *start = m->text.length;
    GD_TRY(flush(m, start, false));
  }
  return GD_OK;
}

static enum gd_status read_stream(struct making *m, int input, FILE *stream) {
  bool lines = m->order->split_lines || is_jsonl(m->order, input);
  size_t start = m->text.length, got;
  int64_t line = 0;
  while ((got = fread(m->piece, 1, PIECE_BYTES, stream)) > 0) {
    m->read_bytes += (int64_t)got;
    if (lines) {
      GD_TRY(read_lines(m, input, m->piece, got, &start, &line));
      continue;
    }
    gd_strbuf_append_bytes(&m->text, m->piece, got);
    if (m->text.failed)
      return nomem(m);
    if (m->text.length - start >= INT32_MAX)
      return gd_fail(m->err, GD_BAD_INPUT,
                     "%s: has more than 2 GiB, the most a document may have; use --split-lines",
                     m->order->inputs[input]);
  }
  if (ferror(stream))
    return gd_fail(m->err, GD_ENVIRONMENT, "cannot read %s: %s", m->order->inputs[input],
                   strerror(errno));
  if (lines)
    GD_TRY(add_line(m, input, start, line + 1));
  else if (m->text.length > start)
    GD_TRY(add_document(m, (struct document){start, m->text.length - start, input, 0}));
  start = m->text.length;
  return flush(m, &start, false);
}

static enum gd_status open_input(const char *path, FILE **stream, int64_t *bytes,
                                 struct gd_error *err) {
  struct stat about;
  char clean[256];
  *bytes = 0;
  *stream = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
  if (!*stream || fstat(fileno(*stream), &about) != 0)
    return gd_fail(err, GD_BAD_INPUT, "cannot open %s: %s",
                   gd_json_excerpt(clean, sizeof clean, path), strerror(errno));
  if (S_ISDIR(about.st_mode)) {
    fclose(*stream);
    *stream = NULL;
    return gd_fail(err, GD_BAD_INPUT, "%s is a folder; name files",
                   gd_json_excerpt(clean, sizeof clean, path));
  }
  if (S_ISREG(about.st_mode))
    *bytes = (int64_t)about.st_size;
  return GD_OK;
}

static void close_input(FILE *stream) {
  if (stream && stream != stdin)
    fclose(stream);
}

/* All inputs are looked at before the first is read: a wrong name is no matter of hours. */
static enum gd_status look_at_inputs(struct making *m) {
  for (int i = 0; i < m->order->n_inputs; i++) {
    FILE *stream = NULL;
    int64_t bytes = 0;
    GD_TRY(open_input(m->order->inputs[i], &stream, &bytes, m->err));
    close_input(stream);
    m->all_bytes += bytes;
  }
  return GD_OK;
}

static enum gd_status read_inputs(struct making *m) {
  size_t start;
  for (int i = 0; i < m->order->n_inputs; i++) {
    FILE *stream = NULL;
    int64_t bytes;
    GD_TRY(open_input(m->order->inputs[i], &stream, &bytes, m->err));
    enum gd_status status = read_stream(m, i, stream);
    close_input(stream);
    GD_TRY(status);
  }
  start = m->text.length;
  GD_TRY(flush(m, &start, true));
  if (m->made->documents == 0)
    return gd_fail(m->err, GD_BAD_INPUT, "there is no text in what was named");
  return GD_OK;
}

/* --- validation ---------------------------------------------------------------------------- */

static enum gd_status copy_tail(struct making *m, struct gd_file_out *to, int64_t from_token) {
  int64_t at = (int64_t)header_bytes(m->order->format) + from_token * m->made->width;
  for (;;) {
    ssize_t got = pread(m->out.fd, m->piece, PIECE_BYTES, (off_t)at);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return gd_fail(m->err, GD_ENVIRONMENT, "cannot read back %s: %s", m->order->output,
                     strerror(errno));
    if (got == 0)
      return GD_OK;
    fwrite(m->piece, 1, (size_t)got, to->stream);
    at += got;
  }
}

/* The last documents go from the file to one next to it. */
static enum gd_status split_validation(struct making *m) {
  struct gd_file_out tail;
  struct gd_tokens_made *made = m->made;
  char path[GD_FILE_PATH];
  int64_t apart = (int64_t)((double)made->documents * m->order->validation + 0.5);
  if (made->documents < 2)
    return gd_fail(m->err, GD_BAD_INPUT,
                   "one document cannot be split for validation; --split-lines makes one of each "
                   "line");
  apart = apart < 1 ? 1 : apart >= made->documents ? made->documents - 1 : apart;
  int64_t kept = m->ends[made->documents - apart - 1];
  if (snprintf(path, sizeof path, "%s.val", m->order->output) >= (int)sizeof path)
    return gd_fail(m->err, GD_BAD_INPUT, "the name of the output is too long");
  fflush(m->out.stream);
  if (m->out.failure)
    return GD_ENVIRONMENT;
  GD_TRY(gd_file_begin(&tail, path, m->err));
  write_header(tail.stream, m->order->format);
  enum gd_status status = copy_tail(m, &tail, kept);
  finish_header(&tail, m->order->format, made->width, made->tokens - kept);
  GD_TRY(gd_file_end(&tail, status, m->err));
  if (ftruncate(m->out.fd, (off_t)header_bytes(m->order->format) + (off_t)kept * made->width) != 0)
    m->out.failure = errno;
  made->validation_documents = apart;
  made->validation_tokens = made->tokens - kept;
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

/* What raw tokens are. */
static enum gd_status write_sidecar(struct making *m) {
  char path[GD_FILE_PATH], text[256];
  if (snprintf(path, sizeof path, "%s.json", m->order->output) >= (int)sizeof path)
    return gd_fail(m->err, GD_BAD_INPUT, "the name of the output is too long");
  int length = snprintf(text, sizeof text,
                        "{\"dtype\": \"uint%d\", \"tokens\": %" PRId64 ", \"vocabulary\": %" PRId64
                        ", \"eos\": %d}\n",
                        m->made->width * 8, m->made->tokens - m->made->validation_tokens,
                        gd_tokenizer_size(m->tokenizer), m->order->eos);
  return gd_file_write(path, text, (size_t)length, m->err);
}

static enum gd_status make_file(struct making *m) {
  const struct gd_tokens_order *order = m->order;
  bool renamed;
  GD_TRY(look_at_inputs(m));
  GD_TRY(gd_file_begin(&m->out, order->output, m->err));
  renamed = m->out.path[0] != '\0';
  enum gd_status status = GD_OK;
  if (!renamed && (order->format != GD_TOKENS_RAW || order->validation > 0))
    status = gd_fail(m->err, GD_BAD_INPUT,
                     "%s cannot be written at its start once more: --format raw without "
                     "--validation writes to it",
                     order->output);
  write_header(m->out.stream, order->format);
  if (status == GD_OK)
    status = read_inputs(m);
  if (status == GD_OK && order->validation > 0)
    status = split_validation(m);
  if (status == GD_OK)
    finish_header(&m->out, order->format, m->made->width,
                  m->made->tokens - m->made->validation_tokens);
  if (status == GD_ENVIRONMENT && m->out.failure)
    status = GD_OK; /* the end has the reason */
  GD_TRY(gd_file_end(&m->out, status, m->err));
  return order->format == GD_TOKENS_RAW && renamed ? write_sidecar(m) : GD_OK;
}

enum gd_status gd_tokens_make(const struct gd_tokenizer *tokenizer,
                              const struct gd_tokens_order *order, struct gd_tokens_made *made,
                              struct gd_error *err) {
  struct making m = {.tokenizer = tokenizer, .order = order, .made = made, .err = err};
  enum gd_status status = GD_OK;
  *made = (struct gd_tokens_made){.width = gd_tokenizer_size(tokenizer) <= 65536 ? 2 : 4};
  m.start_ns = gd_clock_ns();
  m.piece = gd_mem_alloc(PIECE_BYTES, 1);
  m.works = gd_mem_alloc((size_t)order->threads, sizeof(void *));
  if (!m.piece || !m.works)
    status = nomem(&m);
  for (int i = 0; i < order->threads && status == GD_OK; i++)
    status = gd_tokenizer_work_new(&m.works[i], tokenizer, err);
  if (status == GD_OK)
    status = make_file(&m);
  for (int i = 0; i < order->threads && m.works; i++)
    gd_tokenizer_work_free(m.works[i]);
  gd_mem_free(m.works);
  gd_mem_free(m.piece);
  gd_mem_free(m.documents);
  gd_mem_free(m.groups);
  gd_mem_free(m.ends);
  gd_strbuf_deinit(&m.text);
  return status;
}

/* --- reading tokens ------------------------------------------------------------------------ */

static uint32_t le32(const unsigned char *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static enum gd_status detect(struct gd_tokens_reader *reader, struct gd_error *err) {
  unsigned char head[LLMC_HEADER + 1] = {0};
  size_t got = fread(head, 1, LLMC_HEADER, reader->stream), skip = 0;
  uint32_t magic = le32(head), version = le32(head + 4);
  if (got == LLMC_HEADER &&
      ((magic == LLMC_MAGIC_16 && version == 1) || (magic == LLMC_MAGIC_32 && version == 7))) {
    skip = LLMC_HEADER;
    reader->width = version == 1 ? 2 : 4;
    reader->left = le32(head + 8);
  } else if (got > 10 && memcmp(head, "\x93NUMPY", 6) == 0) {
    const char *text = (const char *)head + 10;
    size_t length = (size_t)(head[8] | head[9] << 8);
    bool two = strstr(text, "'<u2'") != NULL;
    if (head[6] != 1 || length + 10 > got || (!two && !strstr(text, "'<u4'")) ||
        strstr(text, "'fortran_order': True"))
      return gd_fail(err, GD_UNSUPPORTED, "%s: a NumPy array that is not uint16 or uint32",
                     reader->path);
    skip = length + 10;
    reader->width = two ? 2 : 4;
  }
  if (fseek(reader->stream, (long)skip, SEEK_SET) != 0)
    return gd_fail(err, GD_ENVIRONMENT, "cannot read %s: %s", reader->path, strerror(errno));
  return GD_OK;
}

enum gd_status gd_tokens_open(struct gd_tokens_reader *reader, const char *path,
                              const struct gd_tokenizer *tokenizer, struct gd_error *err) {
  int64_t bytes;
  *reader = (struct gd_tokens_reader){
      .path = path, .left = -1, .width = gd_tokenizer_size(tokenizer) <= 65536 ? 2 : 4};
  GD_TRY(open_input(path, &reader->stream, &bytes, err));
  return detect(reader, err);
}

enum gd_status gd_tokens_read(struct gd_tokens_reader *reader, const struct gd_tokenizer *tokenizer,
                              int32_t *ids, int64_t most, int64_t *count, struct gd_error *err) {
  *count = 0;
  while (*count < most && reader->left != 0) {
    unsigned char bytes[4] = {0};
    if (fread(bytes, (size_t)reader->width, 1, reader->stream) != 1)
      break;
    uint32_t id = le32(bytes);
    if ((int64_t)id >= gd_tokenizer_size(tokenizer))
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: has the token %" PRIu32 ", and the tokenizer only those below %" PRId64,
                     reader->path, id, gd_tokenizer_size(tokenizer));
    ids[(*count)++] = (int32_t)id;
    reader->left -= reader->left > 0;
  }
  if (ferror(reader->stream))
    return gd_fail(err, GD_ENVIRONMENT, "cannot read %s: %s", reader->path, strerror(errno));
  return GD_OK;
}

void gd_tokens_close(struct gd_tokens_reader *reader) {
  close_input(reader->stream);
  reader->stream = NULL;
}
