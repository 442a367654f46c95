/*
 * The environment: the one place that reads it, and the table of gpudays' own variables
 * (switches.def). Nothing else calls getenv; tools/lint checks.
 */
#ifndef GD_BASE_SWITCHES_H
#define GD_BASE_SWITCHES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum gd_switch_kind {
  GD_SWITCH_TUNING,   /* part of a trial's key */
  GD_SWITCH_PLACE,    /* where something is; no part of a key */
  GD_SWITCH_TEST,     /* for tests */
  GD_SWITCH_INTERNAL, /* set by gpudays itself */
};

struct gd_switch {
  const char *name; /* "GPUDAYS_DB" */
  enum gd_switch_kind kind;
  const char *values; /* "0|1", "off|1..999", "FILE": see switches.def */
  const char *unset;  /* what happens without it */
  const char *about;  /* one or two sentences */
};

extern const struct gd_switch gd_switches[];
extern const int gd_switch_count;

/*
 * The value of an environment variable, or NULL. Names of gpudays must be in the table. A switch
 * with a list of values is NULL too where its value is empty or not in the list: commands refuse
 * such a value before anything reads it (gd_switches_check), and doctor goes on without it.
 */
const char *gd_env(const char *name);

/* The row of "GPUDAYS_X", or of "GPUDAYS_X=value"; NULL where there is none. */
const struct gd_switch *gd_switch_find(const char *name);

/* What the variable is set to, allowed or not; NULL: not set. */
const char *gd_switch_given(const struct gd_switch *row);

/* Whether the variable may have this value. Empty is allowed: it is as if it were not set. */
bool gd_switch_allows(const struct gd_switch *row, const char *value);

/* The allowed values for people, in text: "0 or 1", "off or 1 to 999", "FILE". Returns text. */
const char *gd_switch_values(const struct gd_switch *row, char *text, size_t size);

/* GD_BAD_INPUT for the first switch that has a wrong value, with those that are allowed. */
enum gd_status gd_switches_check(struct gd_error *err) GD_MUST_USE;

/* The next variable "GPUDAYS_X=value" that is set and has no row: *at begins as 0. NULL: no more.
 */
const char *gd_switch_unknown(size_t *at);

/* "GPUDAYS_NCL is set, but gpudays has no such variable; did you mean GPUDAYS_NCCL?" in text, for a
   variable that gd_switch_unknown found. Returns text. */
const char *gd_switch_unknown_text(const char *variable, char *text, size_t size);

#endif
