/*
 * Reading JSON with errors a person can act on: the file, the field by its full path, what was
 * found and what was expected. jansson does the parsing.
 *
 *   struct gd_json json = {0};
 *   GD_TRY(gd_json_load(&json, "config.json", err));
 *   int64_t layers;
 *   GD_TRY(gd_json_int(&json, json.root, "num_hidden_layers", 1, 100000, &layers, err));
 *   gd_json_deinit(&json);
 */
#ifndef GD_BASE_JSON_H
#define GD_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

/*
 * Which fields of a document were asked for, where somebody wants to know: what a reader never
 * asked for had no part in what it made. Objects and keys are borrowed.
 */
struct gd_json_field {
  const json_t *object;
  const char *key;
};
struct gd_json_log {
  struct gd_json_field *asked; /* in gd_mem */
  uint32_t count, capacity;
  bool failed;                  /* memory ran out: it may lack some */
  struct gd_json_field refused; /* the last one with a value that cannot be; key NULL: none */
};
bool gd_json_log_has(const struct gd_json_log *log, const json_t *object, const char *key);
/* Whether a field of that object was asked for, there or not: it was looked into. */
bool gd_json_log_has_any(const struct gd_json_log *log, const json_t *object);
void gd_json_log_deinit(struct gd_json_log *log); /* safe on a zeroed one */

struct gd_json {
  json_t *root;
  char file[512];          /* for messages */
  struct gd_json_log *log; /* borrowed; NULL: none is kept */
};

/* Whole file / text as one JSON object. Errors name file, line, column and byte offset. */
enum gd_status gd_json_load(struct gd_json *json, const char *path,
                            struct gd_error *err) GD_MUST_USE;
enum gd_status gd_json_parse(struct gd_json *json, const char *label, const char *text,
                             int64_t length, struct gd_error *err) GD_MUST_USE;
void gd_json_deinit(struct gd_json *json); /* safe on a zeroed one */

/*
 * Required fields of an object. Missing, of another type, or out of [low, high]: GD_BAD_INPUT with
 * the field's name and the value found. Integers written as 1024.0 are accepted, 10.5 is not.
 */
enum gd_status gd_json_int(const struct gd_json *json, const json_t *object, const char *key,
                           int64_t low, int64_t high, int64_t *value,
                           struct gd_error *err) GD_MUST_USE;
enum gd_status gd_json_number(const struct gd_json *json, const json_t *object, const char *key,
                              double low, double high, double *value,
                              struct gd_error *err) GD_MUST_USE;
enum gd_status gd_json_bool(const struct gd_json *json, const json_t *object, const char *key,
                            bool *value, struct gd_error *err) GD_MUST_USE;
/* The string is borrowed from the object. It has no control characters, so it may go into a
   message as it is. */
enum gd_status gd_json_string(const struct gd_json *json, const json_t *object, const char *key,
                              const char **value, struct gd_error *err) GD_MUST_USE;
/* The value or NULL, and the log's to know; so do all of the above. */
json_t *gd_json_get(const struct gd_json *json, const json_t *object, const char *key);
/* True when the key is there and not null: `if (gd_json_has(...)) GD_TRY(gd_json_int(...))`. */
bool gd_json_has(const json_t *object, const char *key);

/* Notes for the log that the field's value cannot be; gd_json_mismatch does. */
void gd_json_refuse(const struct gd_json *json, const json_t *object, const char *key);
/* The same failure for checks made elsewhere: "config.json: betas is 3; expected two numbers". */
enum gd_status gd_json_mismatch(const struct gd_json *json, const json_t *object, const char *key,
                                const char *expected, struct gd_error *err);
/* Appends a value as text; flags are jansson's. False: memory ran out. */
bool gd_json_append(struct gd_strbuf *out, const json_t *value, size_t flags);
/* Text out of a file made fit for a message: control characters become '?', the rest is cut to
   size bytes (at least 8) and then ends in "...". */
const char *gd_json_excerpt(char *out, size_t size, const char *text);

/* One value as jansson writes it, without a tree of them. A text must be UTF-8, a number finite. */
void gd_json_append_text(struct gd_strbuf *out, const char *text);
void gd_json_append_int(struct gd_strbuf *out, int64_t value);
void gd_json_append_real(struct gd_strbuf *out, double value);

#endif
