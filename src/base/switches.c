/*
 * The table of environment switches; see switches.h.
 */
#define _GNU_SOURCE /* environ */
#include "base/switches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/strbuf.h"

static const char prefix[] = "GPUDAYS_";

const struct gd_switch gd_switches[] = {
#define GD_SWITCH(name, kind, values, unset, about) \
  {"GPUDAYS_" #name, GD_SWITCH_##kind, values, unset, about},
#include "base/switches.def"
#undef GD_SWITCH
};
const int gd_switch_count = (int)(sizeof gd_switches / sizeof *gd_switches);

const struct gd_switch *gd_switch_find(const char *name) {
  size_t length = strcspn(name, "=");
  for (int i = 0; i < gd_switch_count; i++)
    if (strncmp(gd_switches[i].name, name, length) == 0 && !gd_switches[i].name[length])
      return &gd_switches[i];
  return NULL;
}

/* --- values -------------------------------------------------------------------------------- */

enum { LONGEST_VALUE = 64 };

/* The next of the values "0|1", in item; false: there are no more. */
static bool next_value(const char **at, char item[LONGEST_VALUE]) {
  size_t length = strcspn(*at, "|");
  if (length == 0)
    return false;
  GD_ASSERT(length < LONGEST_VALUE);
  memcpy(item, *at, length);
  item[length] = '\0';
  *at += length + ((*at)[length] == '|');
  return true;
}

/* FILE, DIR, TEXT: a word in capitals allows anything. */
static bool is_free_text(const char *values) {
  return values[0] >= 'A' && values[0] <= 'Z';
}

/* "1..999": whole numbers, both ends included. */
static bool is_range(const char *item, long *low, long *high) {
  char *dots;
  *low = strtol(item, &dots, 10);
  if (dots == item || strncmp(dots, "..", 2) != 0)
    return false;
  *high = strtol(dots + 2, NULL, 10);
  return true;
}

/* Digits alone: no sign, no blank, no leading zero. */
static bool in_range(const char *value, long low, long high) {
  size_t digits = strspn(value, "0123456789");
  if (digits == 0 || digits > 9 || value[digits] || (value[0] == '0' && digits > 1))
    return false;
  long number = strtol(value, NULL, 10);
  return number >= low && number <= high;
}

bool gd_switch_allows(const struct gd_switch *row, const char *value) {
  const char *at = row->values;
  char item[LONGEST_VALUE];
  long low, high;
  if (!value[0] || is_free_text(row->values))
    return true;
  while (next_value(&at, item))
    if (is_range(item, &low, &high) ? in_range(value, low, high) : strcmp(value, item) == 0)
      return true;
  return false;
}

const char *gd_switch_values(const struct gd_switch *row, char *text, size_t size) {
  const char *at = row->values;
  char item[LONGEST_VALUE];
  size_t length = 0;
  text[0] = '\0';
  while (length < size && next_value(&at, item)) {
    const char *before = length == 0 ? "" : *at ? ", " : " or ";
    long low, high;
    int added = is_range(item, &low, &high)
                    ? snprintf(text + length, size - length, "%s%ld to %ld", before, low, high)
                    : snprintf(text + length, size - length, "%s%s", before, item);
    length += (size_t)added;
  }
  return text;
}

const char *gd_switch_given(const struct gd_switch *row) {
  return getenv(row->name);
}

const char *gd_env(const char *name) {
  const char *value = getenv(name);
  if (strncmp(name, prefix, strlen(prefix)) != 0)
    return value;
  const struct gd_switch *row = gd_switch_find(name);
  GD_ASSERT(row);
  if (!value || is_free_text(row->values))
    return value;
  return value[0] && gd_switch_allows(row, value) ? value : NULL;
}

enum gd_status gd_switches_check(struct gd_error *err) {
  char clean[128], values[128];
  for (int i = 0; i < gd_switch_count; i++) {
    const struct gd_switch *row = &gd_switches[i];
    const char *value = gd_switch_given(row);
    if (value && !gd_switch_allows(row, value))
      return gd_fail(err, GD_BAD_INPUT, "%s is \"%s\"; expected %s, or unset it", row->name,
                     gd_json_excerpt(clean, sizeof clean, value),
                     gd_switch_values(row, values, sizeof values));
  }
  return GD_OK;
}

/* --- variables that are in no row ------------------------------------------------------------ */

const char *gd_switch_unknown(size_t *at) {
  while (environ && environ[*at]) {
    const char *variable = environ[(*at)++];
    if (strncmp(variable, prefix, strlen(prefix)) == 0 && !gd_switch_find(variable))
      return variable;
  }
  return NULL;
}

/* NULL: none is near enough to be meant. */
static const char *nearest_name(const char *name) {
  const char *nearest = NULL;
  for (int most = 1; most <= 3 && !nearest; most++)
    for (int i = 0; i < gd_switch_count && !nearest; i++)
      if (gd_switches[i].kind != GD_SWITCH_INTERNAL &&
          gd_edit_within(name, gd_switches[i].name, most))
        nearest = gd_switches[i].name;
  return nearest;
}

const char *gd_switch_unknown_text(const char *variable, char *text, size_t size) {
  char name[128], clean[128];
  snprintf(name, sizeof name, "%.*s", (int)strcspn(variable, "="), variable);
  const char *nearest = nearest_name(name);
  snprintf(text, size, "%s is set, but gpudays has no such variable%s%s%s",
           gd_json_excerpt(clean, sizeof clean, name), nearest ? "; did you mean " : "",
           nearest ? nearest : "", nearest ? "?" : "");
  return text;
}
