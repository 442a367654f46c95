/*
 * Inside the store: the handle, and one way from SQLite's codes to sentences.
 */
#ifndef GD_STORE_STORE_INT_H
#define GD_STORE_STORE_INT_H

#include <sqlite3.h>

#include "store/store.h"

enum {
  GD_STORE_SCHEMA = 4, /* PRAGMA user_version of what this program writes */
  GD_STORE_FETCHES = 2,
};

struct gd_store {
  sqlite3 *db;
  sqlite3_stmt *insert, *insert_details; /* prepared at the first put */
  sqlite3_stmt *fetch[GD_STORE_FETCHES]; /* one row by id; [1]: with its details */
  int64_t beat_ns;                       /* gd_clock_ns() of the last sign of life */
  int64_t damaged;                       /* rows that the last query left out */
  char damage[512];                      /* what the first of them is, in a sentence */
  bool full;                             /* its disk, when it was opened or last written to */
  char path[GD_STORE_PATH];
};

/* The recipe's identity of a key's text; substituted: the device changed the precision. false: the
   text does not tell. */
bool gd_recipe_of_key(const char *key_text, bool substituted, char hash[GD_HASH_TEXT]);

/* The value of a field of a key's text, as it was before it was written there; false: it has none,
   or one that is too long. */
bool gd_key_value(const char *key_text, const char *name, char *value, size_t size);
/* The field of the trial that its key says otherwise; NULL: none. What the key does not have it
   does not say. */
const char *gd_key_contradicts(const char *key_text, const struct gd_trial *trial);
/* Whether it is the whole key of a trial, or what stands for it where only its hash is known. */
bool gd_key_is_whole(const char *key_text);
#define GD_KEY_OF_TABLE "table;key="

/* What presets say of trials, remembered while many are read; zeroed at first. */
enum { GD_IDENTITIES = 64 };
struct gd_identities {
  struct gd_identity {
    char question[320];
    char hash[GD_HASH_TEXT]; /* of the graph, or of the recipe */
    int64_t parameters;
    double flops; /* model FLOPs of a sequence */
    int64_t seq;  /* of a model of images, which have no other; 0: of any other model */
  } list[GD_IDENTITIES];
  int count, next;
};
/* gd_store_identify for many trials. */
enum gd_status gd_store_identify_with(struct gd_identities *known, const struct gd_store_key *key,
                                      const struct gd_provenance *provenance,
                                      struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;
/* The field of a trial that the preset of its name has otherwise, and what was expected; NULL:
   none, or there is no such preset, or the key says that it is another model. */
const char *gd_store_contradicts_preset(struct gd_identities *known, const struct gd_store_key *key,
                                        const struct gd_trial *trial, char expected[64]);

/* What SQLite's code means for the user: the file, what happened, the remedy. */
enum gd_status gd_store_fail(struct gd_store *store, int code, const char *what,
                             struct gd_error *err);
#define GD_SQL_TRY(store, what, call, err)                        \
  do {                                                            \
    int gd_sql_code_ = (call);                                    \
    if (gd_sql_code_ != SQLITE_OK && gd_sql_code_ != SQLITE_DONE) \
      return gd_store_fail((store), gd_sql_code_, (what), (err)); \
  } while (0)

enum gd_status gd_store_exec(struct gd_store *store, const char *what, const char *sql,
                             struct gd_error *err) GD_MUST_USE;
/* The text of a column; "" for NULL. */
static inline const char *gd_store_text(sqlite3_stmt *statement, int column) {
  const char *text = (const char *)sqlite3_column_text(statement, column);
  return text ? text : "";
}

/* gd_store_begin, work, gd_store_end(status of the work): commits, or takes all of it back. */
enum gd_status gd_store_begin(struct gd_store *store, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_store_end(struct gd_store *store, enum gd_status status, struct gd_error *err);

/* Runs the steps that the schema of the database lacks: step i takes version i to i + 1, each in a
   transaction of its own. */
enum gd_status gd_store_migrate(struct gd_store *store, const char *const *steps, int count,
                                struct gd_error *err) GD_MUST_USE;
extern const char *const gd_store_steps[GD_STORE_SCHEMA];

/* A row as it is, within a transaction: nothing else changes. origin: as in struct gd_store_row.
 *added false: it is there already. */
enum gd_status gd_store_insert(struct gd_store *store, const struct gd_store_key *key,
                               const struct gd_trial *trial, const struct gd_provenance *provenance,
                               const char *origin, bool *added, struct gd_error *err) GD_MUST_USE;
/* Statements with up to three texts bound, run to their end. */
enum gd_status gd_store_change(struct gd_store *store, const char *what, const char *sql,
                               const char *a, const char *b, const char *c,
                               struct gd_error *err) GD_MUST_USE;

/* SELECT `what` of the rows of a filter; ends with `end`. */
enum gd_status gd_store_prepare(struct gd_store *store, const struct gd_store_filter *filter,
                                const char *what, const char *end, sqlite3_stmt **statement,
                                struct gd_error *err) GD_MUST_USE;

/* A row that was left out, and what of it no trial has. */
void gd_store_note_damage(struct gd_store *store, int64_t id, const char *column);

/* gd_store_open, with the kind of disk given instead of asked for, for tests. */
enum gd_store_disk { GD_STORE_ASK, GD_STORE_LOCAL, GD_STORE_NETWORK };
enum gd_status gd_store_open_as(const char *path, enum gd_store_disk disk, struct gd_store **store,
                                struct gd_error *err) GD_MUST_USE;
/* Whether files there are on another machine, where WAL's shared memory does not work. */
bool gd_store_on_network(const char *path);
/* The same by the magic number that statfs gives. */
bool gd_store_is_network(int64_t magic);

#endif
