/*
 * The fields of a record, for the two who store them: record.c as JSON, store.c as columns.
 */
#ifndef GD_STORE_RECORD_INT_H
#define GD_STORE_RECORD_INT_H

#include <jansson.h>

#include "store/record.h"

enum gd_field_kind {
  GD_FIELD_TEXT,
  GD_FIELD_BOOL,
  GD_FIELD_INT,
  GD_FIELD_INT64,
  GD_FIELD_REAL,
  GD_FIELD_STATUS,
  GD_FIELD_PRECISION,
  GD_FIELD_FAILURE
};

struct gd_field {
  const char *name; /* of the column and of the JSON field */
  enum gd_field_kind kind;
  bool later;          /* not in the first format: may be missing, and is no part of a digest */
  size_t offset, size; /* in its struct; size of a text's array */
  const char
      *first_name; /* in the first format, where that was another: still read, and digested */
};

/* What is one value; by name, in the order of the struct. */
extern const struct gd_field gd_trial_fields[];
extern const int gd_trial_field_count;
extern const struct gd_field gd_provenance_fields[];
extern const int gd_provenance_field_count;

/* What is many values: each is one JSON value, and a text in the database. */
enum gd_part { GD_PART_SAMPLES, GD_PART_BYTES, GD_PART_HOST_PARTS, GD_PART_PROFILE, GD_PART_COUNT };
const char *gd_part_name(enum gd_part part); /* "samples", "bytes", ... */
/* The names of today, or those of the first format, which digests are made of. */
enum gd_names { GD_NAMES_TODAY, GD_NAMES_FIRST };
/* Appends the part as one JSON value. */
void gd_part_append(struct gd_strbuf *out, const struct gd_trial *trial, enum gd_part part,
                    enum gd_names names);
/* false: not what gd_part_append makes. Ops that this version does not have are left out. */
bool gd_part_parse(const char *text, struct gd_trial *trial, enum gd_part part);

/* Copies text into a field, with '?' for what is no UTF-8 or is a control character: what is stored
   may end up on a terminal. */
void gd_clean_text(char *to, size_t size, const char *text);

/* Every field must be there; others are the caller's business. */
enum gd_status gd_fields_set(const struct gd_json *json, const json_t *object,
                             const struct gd_field *fields, int count, void *record,
                             struct gd_error *err) GD_MUST_USE;
/* Appends the record on one line. With the names of the first format, fields that came later are
   left out: so a digest is made. */
void gd_record_append(struct gd_strbuf *out, const struct gd_trial *trial, enum gd_names names);
void gd_provenance_append(struct gd_strbuf *out, const struct gd_provenance *provenance);
/* Also that the numbers make sense together. */
enum gd_status gd_record_set(const struct gd_json *json, const json_t *object,
                             struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;

#define GD_RECORD_MOST_BYTES (INT64_C(1) << 50) /* 1 PiB of one rank: past any machine */

/* Whether every number is one that a trial can have, and what a trial computes from its own (step,
   days, MFU). false: which field is wrong, and what it should be. */
bool gd_record_believable(const struct gd_trial *trial, const char **field, const char **expected);
/* The same of a trial that was written elsewhere: limits, bytes by category and the interval fit
   what they are of. Databases of before may have trials that this program would not write. */
bool gd_record_consistent(const struct gd_trial *trial, const char **field, const char **expected);
/* Sequences of a step of all ranks, of a trial that is ok. */
double gd_record_batch(const struct gd_trial *trial);
/* What the share of the peak of the FLOPs that ran (hfu) is at most, of a trial that is ok: 1, and
   4 where TF32 may be done by the units of fp16, whose peak is two to four times as high. mfu also
   counts GEMMs that the loss skips. */
double gd_record_most_hfu(const struct gd_trial *trial);
/* A time as in struct gd_provenance, that has been. */
bool gd_time_believable(const char *text);

#endif
