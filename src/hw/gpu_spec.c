/*
 * GPUs as people write them; see gpu_spec.h. Knows no catalogue.
 */
#include "hw/gpu_spec.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

static const char digits[] = "0123456789";

/* Digits as a count; 0: they are no sensible one. */
static int count_of(const char *text, size_t length) {
  long count = length > 0 && length < 9 ? strtol(text, NULL, 10) : 0;
  return count >= 1 && count <= GD_GPU_SPEC_MOST ? (int)count : 0;
}

static char *trim(char *text) {
  while (isspace((unsigned char)*text))
    text++;
  size_t length = strlen(text);
  while (length > 0 && isspace((unsigned char)text[length - 1]))
    text[--length] = '\0';
  return text;
}

/* "4x", "4 x " or "4*" in front of a name: its length, and the count; 0: there is none. */
static size_t leading_count(const char *text, int *count) {
  size_t number = strspn(text, digits), at = number;
  while (text[at] == ' ')
    at++;
  if (number == 0 || !text[at] || !strchr("xX*", text[at]))
    return 0;
  *count = count_of(text, number);
  return at + 1;
}

/* ":4" behind a name: where the colon is; NULL: there is none. */
static char *trailing_count(char *text, int *count) {
  char *colon = strrchr(text, ':');
  if (!colon || !colon[1] || colon[1 + strspn(colon + 1, digits)])
    return NULL;
  *count = count_of(colon + 1, strlen(colon + 1));
  return colon;
}

static enum gd_status parse_one(char *part, struct gd_gpu_spec *spec, struct gd_error *err) {
  char clean[64], *name = trim(part);
  int count = 0;
  bool counted = false;
  gd_json_excerpt(clean, sizeof clean, name);
  if (gd_file_is_missing(name)) {
    size_t skipped = leading_count(name, &count);
    char *colon = skipped ? NULL : trailing_count(name, &count);
    counted = skipped || colon;
    if (colon)
      *colon = '\0';
    name = trim(name + skipped);
  }
  if (!*name || (counted && count == 0))
    return gd_fail(err, GD_BAD_INPUT,
                   "--gpu is \"%s\"; expected a GPU, or how many of it: 3090, 4x3090 or 3090:4 "
                   "('gpudays gpus' lists them)",
                   clean);
  *spec = (struct gd_gpu_spec){.name = name, .count = count};
  return GD_OK;
}

enum gd_status gd_gpu_specs_parse(const char *text, struct gd_arena *arena,
                                  struct gd_gpu_spec **specs, int *count, struct gd_error *err) {
  size_t most = 1;
  for (const char *at = text; *at; at++)
    most += *at == ',';
  char *copy = gd_arena_copy_string(arena, text);
  struct gd_gpu_spec *list = gd_arena_alloc(arena, most, sizeof *list);
  int n = 0;
  if (!copy || !list)
    return gd_nomem(err, "while reading the GPUs");
  for (char *part = copy; part;) {
    char *comma = strchr(part, ',');
    if (comma)
      *comma = '\0';
    GD_TRY(parse_one(part, &list[n++], err));
    part = comma ? comma + 1 : NULL;
  }
  *specs = list;
  *count = n;
  return GD_OK;
}
