/*
 * JSON files of the user: read with a size cap, parsed by jansson, and asked for fields with
 * sentences that name the file, the field's full path, what was found and what was expected.
 *
 * What a file holds is never trusted, messages included: text that goes into one is cut short and
 * loses its control characters, so that a file cannot write to the terminal.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/strbuf.h"

/* Configurations are kilobytes, the index of the largest checkpoints is a few megabytes. */
enum { FILE_CAP_BYTES = 16 * 1024 * 1024, FIRST_READ_BYTES = 16 * 1024 };
enum { FIELD_BYTES = 256, VALUE_BYTES = 96, EXPECTED_BYTES = 128 };

const char *gd_json_excerpt(char *out, size_t size, const char *text) {
  size_t length = 0;
  GD_ASSERT(size >= 8);
  for (size_t bytes; *text; text += bytes) {
    bool shown = gd_text_shown(text, &bytes);
    size_t room = shown ? bytes : 1;
    if (length + room >= size) {
      /* The cut takes back whole characters until "..." fits. */
      if (length > size - 4) {
        length = size - 4;
        while (length > 0 && ((unsigned char)out[length] & 0xc0u) == 0x80u)
          length--;
      }
      memcpy(out + length, "...", 3);
      length += 3;
      break;
    }
    memcpy(out + length, shown ? text : "?", room);
    length += room;
  }
  out[length] = '\0';
  return out;
}

/* Reads the open file up to its end; *text is the caller's to free, on failure too. */
static enum gd_status read_all(int fd, const char *path, int64_t size_hint, char **text,
                               int64_t *length, struct gd_error *err) {
  size_t room = size_hint > 0 && size_hint < FILE_CAP_BYTES ? (size_t)size_hint + 1
                                                            : (size_t)FIRST_READ_BYTES;
  size_t used = 0;
  *text = gd_mem_alloc(room, 1);
  if (!*text)
    return gd_fail(err, GD_ENVIRONMENT, "%s: memory ran out while reading it", path);
  for (;;) {
    ssize_t got = read(fd, *text + used, room - used);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return gd_fail(err, GD_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    if (got == 0)
      break;
    used += (size_t)got;
    if (used > FILE_CAP_BYTES)
      return gd_fail(err, GD_BAD_INPUT, "%s: larger than 16 MiB, the most a JSON file may have",
                     path);
    if (used == room) {
      char *grown = gd_mem_grow(*text, room, room * 2, 1);
      if (!grown)
        return gd_fail(err, GD_ENVIRONMENT, "%s: memory ran out while reading it", path);
      *text = grown;
      room *= 2;
    }
  }
  *length = (int64_t)used;
  return GD_OK;
}

enum gd_status gd_json_load(struct gd_json *json, const char *path, struct gd_error *err) {
  char *text = NULL;
  int64_t length = 0;
  struct stat about;
  enum gd_status status;
  *json = (struct gd_json){0};
  /* A FIFO that nobody writes to is empty: in a folder that is searched it would be waited for. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
  fcntl(fd, F_SETFL, 0); /* one that somebody writes to is read as it comes */
  if (fstat(fd, &about) != 0) {
    status = gd_fail(err, GD_BAD_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    goto done;
  }
  if (S_ISDIR(about.st_mode)) {
    status = gd_fail(err, GD_BAD_INPUT, "%s: a folder; name a JSON file", path);
    goto done;
  }
  if (S_ISREG(about.st_mode) && about.st_size > FILE_CAP_BYTES) {
    status = gd_fail(err, GD_BAD_INPUT,
                     "%s: has %" PRId64 " bytes, more than the 16 MiB a JSON file may have", path,
                     (int64_t)about.st_size);
    goto done;
  }
  status = read_all(fd, path, (int64_t)about.st_size, &text, &length, err);
  if (status == GD_OK)
    status = gd_json_parse(json, path, text, length, err);
done:
  gd_mem_free(text);
  close(fd);
  return status;
}

static enum gd_status syntax_failure(const char *file, const json_error_t *error,
                                     struct gd_error *err) {
  char text[JSON_ERROR_TEXT_LENGTH];
  /* jansson says nothing at all at the places where its own allocation failed. */
  if (error->text[0] == '\0' || json_error_code(error) == json_error_out_of_memory)
    return gd_fail(err, GD_ENVIRONMENT, "%s: memory ran out while reading it", file);
  gd_json_excerpt(text, sizeof text, error->text);
  bool ended = json_error_code(error) == json_error_premature_end_of_input ||
               strstr(text, "near end of file") != NULL;
  return gd_fail(err, GD_BAD_INPUT, "%s: line %d, column %d (byte %d): %s%s", file, error->line,
                 error->column, error->position, text, ended ? "; is the file complete?" : "");
}

enum gd_status gd_json_parse(struct gd_json *json, const char *label, const char *text,
                             int64_t length, struct gd_error *err) {
  json_error_t error = {0};
  *json = (struct gd_json){0};
  gd_json_excerpt(json->file, sizeof json->file, label);
  if (length == 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: empty; expected a JSON object", json->file);
  if (length > FILE_CAP_BYTES)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: has %" PRId64 " bytes, more than the 16 MiB a JSON file may have",
                   json->file, length);
  if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: byte 0: a byte order mark; save the file as UTF-8 without one", json->file);
  json->root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
  if (!json->root)
    return syntax_failure(json->file, &error, err);
  if (!json_is_object(json->root)) {
    gd_json_deinit(json);
    return gd_fail(err, GD_BAD_INPUT, "%s: the outermost value is an array; expected an object",
                   json->file);
  }
  return GD_OK;
}

void gd_json_deinit(struct gd_json *json) {
  json_decref(json->root);
  json->root = NULL;
}

/* --- the log ------------------------------------------------------------------------------- */

bool gd_json_log_has(const struct gd_json_log *log, const json_t *object, const char *key) {
  for (uint32_t i = 0; i < log->count; i++)
    if (log->asked[i].object == object && strcmp(log->asked[i].key, key) == 0)
      return true;
  return false;
}

bool gd_json_log_has_any(const struct gd_json_log *log, const json_t *object) {
  for (uint32_t i = 0; i < log->count; i++)
    if (log->asked[i].object == object)
      return true;
  return false;
}

void gd_json_log_deinit(struct gd_json_log *log) {
  gd_mem_free(log->asked);
  *log = (struct gd_json_log){0};
}

json_t *gd_json_get(const struct gd_json *json, const json_t *object, const char *key) {
  struct gd_json_log *log = json->log;
  json_t *value = json_object_get(object, key);
  if (!log || !object || gd_json_log_has(log, object, key))
    return value;
  if (gd_vec_reserve((void **)&log->asked, &log->capacity, log->count + 1, sizeof *log->asked))
    log->asked[log->count++] = (struct gd_json_field){.object = object, .key = key};
  else
    log->failed = true;
  return value;
}

void gd_json_refuse(const struct gd_json *json, const json_t *object, const char *key) {
  if (json->log)
    json->log->refused = (struct gd_json_field){.object = object, .key = key};
}

/*
 * Where a value sits below the root, as "config.rope_parameters" or "shards[3]". Only asked for on
 * the way to an error message, so a walk over the document is cheap enough. Depth is bounded by
 * jansson's own limit (2048).
 */
struct field_path {
  char text[FIELD_BYTES];
  size_t length;
};

static void path_append(struct field_path *path, const char *piece) {
  size_t room = sizeof path->text - path->length;
  size_t length = strlen(piece);
  if (length >= room)
    length = room - 1;
  memcpy(path->text + path->length, piece, length);
  path->length += length;
  path->text[path->length] = '\0';
}

static void path_append_key(struct field_path *path, const char *key) {
  char clean[64];
  if (path->length > 0)
    path_append(path, ".");
  path_append(path, gd_json_excerpt(clean, sizeof clean, key));
}

static bool find_path(json_t *from, const json_t *target, struct field_path *path) {
  size_t length = path->length;
  if (from == target)
    return true;
  if (json_is_object(from)) {
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value) {
      path_append_key(path, key);
      if (find_path(value, target, path))
        return true;
      path->length = length;
      path->text[length] = '\0';
    }
  } else if (json_is_array(from)) {
    size_t i;
    json_t *value;
    json_array_foreach(from, i, value) {
      char index[32];
      snprintf(index, sizeof index, "[%zu]", i);
      path_append(path, index);
      if (find_path(value, target, path))
        return true;
      path->length = length;
      path->text[length] = '\0';
    }
  }
  return false;
}

/* A value in a few words; value is not NULL. */
static const char *describe(char *text, size_t size, const json_t *value) {
  char clean[64];
  switch (json_typeof(value)) {
  case JSON_OBJECT: snprintf(text, size, "an object"); break;
  case JSON_ARRAY: snprintf(text, size, "an array of %zu", json_array_size(value)); break;
  case JSON_STRING:
    snprintf(text, size, "\"%s\"", gd_json_excerpt(clean, sizeof clean, json_string_value(value)));
    break;
  case JSON_INTEGER: snprintf(text, size, "%" PRId64, (int64_t)json_integer_value(value)); break;
  case JSON_REAL: snprintf(text, size, "%.15g", json_real_value(value)); break;
  case JSON_TRUE: snprintf(text, size, "true"); break;
  case JSON_FALSE: snprintf(text, size, "false"); break;
  case JSON_NULL: snprintf(text, size, "null"); break;
  }
  return text;
}

enum gd_status gd_json_mismatch(const struct gd_json *json, const json_t *object, const char *key,
                                const char *expected, struct gd_error *err) {
  struct field_path path = {0};
  char found[VALUE_BYTES];
  const json_t *value = json_object_get(object, key);
  gd_json_refuse(json, object, key);
  /* A detached object has no path: its key alone has to do. */
  if (!json->root || !find_path(json->root, object, &path))
    path = (struct field_path){0};
  path_append_key(&path, key);
  if (!value)
    return gd_fail(err, GD_BAD_INPUT, "%s: %s is missing; expected %s", json->file, path.text,
                   expected);
  return gd_fail(err, GD_BAD_INPUT, "%s: %s is %s; expected %s", json->file, path.text,
                 describe(found, sizeof found, value), expected);
}

/* The integer in value, or false: 1024.0 counts as one, 10.5 and 1e300 do not. */
static bool whole_number(const json_t *value, int64_t *number) {
  if (json_is_integer(value)) {
    *number = (int64_t)json_integer_value(value);
    return true;
  }
  if (!json_is_real(value))
    return false;
  double real = json_real_value(value);
  /* Above 2^53 a double no longer says which integer was meant. */
  if (!(fabs(real) <= 0x1p53) || real != floor(real))
    return false;
  *number = (int64_t)real;
  return true;
}

enum gd_status gd_json_int(const struct gd_json *json, const json_t *object, const char *key,
                           int64_t low, int64_t high, int64_t *value, struct gd_error *err) {
  int64_t number;
  if (whole_number(gd_json_get(json, object, key), &number) && number >= low && number <= high) {
    *value = number;
    return GD_OK;
  }
  char expected[EXPECTED_BYTES];
  if (high == INT64_MAX)
    snprintf(expected, sizeof expected, "a whole number of at least %" PRId64, low);
  else
    snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, low, high);
  return gd_json_mismatch(json, object, key, expected, err);
}

enum gd_status gd_json_number(const struct gd_json *json, const json_t *object, const char *key,
                              double low, double high, double *value, struct gd_error *err) {
  const json_t *found = gd_json_get(json, object, key);
  if (json_is_number(found)) {
    double number = json_number_value(found);
    if (number >= low && number <= high) {
      *value = number;
      return GD_OK;
    }
  }
  char expected[EXPECTED_BYTES];
  if (isinf(low) && isinf(high))
    snprintf(expected, sizeof expected, "a number");
  else if (isinf(high))
    snprintf(expected, sizeof expected, "a number of at least %g", low);
  else
    snprintf(expected, sizeof expected, "a number from %g to %g", low, high);
  return gd_json_mismatch(json, object, key, expected, err);
}

enum gd_status gd_json_bool(const struct gd_json *json, const json_t *object, const char *key,
                            bool *value, struct gd_error *err) {
  const json_t *found = gd_json_get(json, object, key);
  if (!json_is_boolean(found))
    return gd_json_mismatch(json, object, key, "true or false", err);
  *value = json_is_true(found);
  return GD_OK;
}

enum gd_status gd_json_string(const struct gd_json *json, const json_t *object, const char *key,
                              const char **value, struct gd_error *err) {
  const json_t *found = gd_json_get(json, object, key);
  if (!json_is_string(found))
    return gd_json_mismatch(json, object, key, "a string", err);
  for (const char *at = json_string_value(found); *at; at++)
    if ((unsigned char)*at < 0x20 || *at == 0x7f ||
        (*at == '\xc2' && (unsigned char)at[1] < 0xa0)) /* C0, DEL, C1 */
      return gd_json_mismatch(json, object, key, "a string without control characters", err);
  *value = json_string_value(found);
  return GD_OK;
}

bool gd_json_has(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return value && !json_is_null(value);
}

/* --- writing: what jansson writes, without a tree ------------------------------------------- */

static bool is_plain(char c) {
  return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

static void append_escaped(struct gd_strbuf *out, char c) {
  static const char named[] = "\bb\ff\nn\rr\tt\"\"\\\\";
  const char *at = named;
  while (*at && *at != c)
    at += 2;
  if (*at)
    gd_strbuf_printf(out, "\\%c", at[1]);
  else
    gd_strbuf_printf(out, "\\u%04X", (unsigned)(unsigned char)c);
}

void gd_json_append_text(struct gd_strbuf *out, const char *text) {
  size_t length = strlen(text), plain = 0;
  char *to = gd_strbuf_room(out, length + 2);
  if (!to)
    return;
  *to++ = '"';
  for (; plain < length && is_plain(text[plain]); plain++) /* almost always all of it */
    to[plain] = text[plain];
  out->length += 1 + plain;
  for (size_t i = plain; i < length; i++) {
    if (is_plain(text[i]))
      gd_strbuf_append_bytes(out, text + i, 1);
    else
      append_escaped(out, text[i]);
  }
  gd_strbuf_append_bytes(out, "\"", 1);
}

void gd_json_append_int(struct gd_strbuf *out, int64_t value) {
  char text[24], *at = text + sizeof text;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do
    *--at = (char)('0' + rest % 10);
  while (rest /= 10);
  if (value < 0)
    *--at = '-';
  gd_strbuf_append_bytes(out, at, (size_t)(text + sizeof text - at));
}

/* A whole number gets a point, an exponent no plus and no zeros before it. */
void gd_json_append_real(struct gd_strbuf *out, double value) {
  char text[48];
  if (fabs(value) < 1e15 && value == (double)(int64_t)value && !signbit(value)) { /* often 0 */
    gd_json_append_int(out, (int64_t)value);
    gd_strbuf_append_bytes(out, ".0", 2);
    return;
  }
  int length = snprintf(text, sizeof text, "%.17g", value);
  char *exponent = memchr(text, 'e', (size_t)length);
  if (exponent) {
    char *from = exponent + 1, *to = exponent + 1;
    if (*from == '-')
      to++;
    from++;
    while (*from == '0' && from[1])
      from++;
    memmove(to, from, strlen(from) + 1);
  } else if (!memchr(text, '.', (size_t)length)) {
    memcpy(text + length, ".0", 3);
  }
  gd_strbuf_append(out, text);
}

static int append_piece(const char *bytes, size_t length, void *user) {
  struct gd_strbuf *out = user;
  gd_strbuf_append_bytes(out, bytes, length);
  return out->failed ? -1 : 0;
}

bool gd_json_append(struct gd_strbuf *out, const json_t *value, size_t flags) {
  return value && json_dump_callback(value, append_piece, out, flags) == 0 && !out->failed;
}
