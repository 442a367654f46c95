/*
 * The result store: every trial that was run here or loaded from others, in one SQLite database.
 * A trial is found by its key, the text of everything that determines its result: asked again, it
 * is read, not run. src/store is the only code that sees SQL; src/search writes, src/cli shows.
 *
 *   struct gd_store *store = NULL;
 *   struct gd_store_key key;
 *   GD_TRY(gd_store_open(NULL, &store, err));
 *   GD_TRY(gd_store_key_make(&(struct gd_store_asked){.model = &model, .plan = &planned}, &key,
 *                            err));
 *   GD_TRY(gd_store_find(store, &key, &trial, NULL, &found, err));
 *   if (!found || trial.status == GD_TRIAL_PLANNED) {
 *     GD_TRY(gd_store_put(store, &key, &planned, NULL, err)); // pending, should we be killed
 *     ... measure ...
 *     GD_TRY(gd_store_put(store, &key, &trial, NULL, err));   // takes its place
 *   }
 *   gd_store_close(store);
 *
 * Once gd_store_put has returned, the row survives a crash of this process, its kill, and (on a
 * disk that keeps its promises) a power cut. Any number of processes may have the database open
 * and write to it. A store must not be used by a forked child: open another one there.
 */
#ifndef GD_STORE_STORE_H
#define GD_STORE_STORE_H

#include "store/record.h"
#include "trial/recipe.h"

struct gd_store;

/*
 * Opens the database, and creates it with its folders where there is none. path NULL: $GPUDAYS_DB,
 * else $XDG_DATA_HOME/gpudays/results.db, else ~/.local/share/gpudays/results.db. An older schema
 * is brought up to date. GD_ENVIRONMENT, naming the file and the remedy, for a file that is
 * damaged, no database of ours, or of a newer schema (all left untouched), and for a folder or a
 * disk that does not let us. What is there can also be read on a disk that is full or read-only,
 * with what a killed process had left in its log; an older schema is then changed in a copy in
 * memory. Close it with gd_store_close, also after a failure (it is NULL then).
 */
enum gd_status gd_store_open(const char *path, struct gd_store **store,
                             struct gd_error *err) GD_MUST_USE;
void gd_store_close(struct gd_store *store); /* NULL is fine */
const char *gd_store_path(const struct gd_store *store);
/* Whether its disk was full when it was opened, or last written to: then it may only be read. */
bool gd_store_is_full(const struct gd_store *store);
/* Which file gd_store_open(asked) opens; the errors are its own. */
enum { GD_STORE_PATH = 4096 }; /* bytes of the longest path, as Linux has it */
enum gd_status gd_store_find_path(const char *asked, char path[GD_STORE_PATH],
                                  struct gd_error *err) GD_MUST_USE;

/* --- keys ---------------------------------------------------------------------------------- */

/* What determines a result. Of the build (version, commit, changes to it) the key knows itself. */
struct gd_store_asked {
  const struct gd_model *model; /* with its recipe; its graph counts, not its name alone */
  const struct gd_trial *plan;  /* after gd_trial_plan: method, ranks, nodes, backend, device,
                                   threads, precision, limits, whether there is a compiler, and the
                                   machine, or what a job asks for instead */
  enum gd_micro_batch micro_batch;
  int64_t micro_batch_size; /* GD_MICRO_BATCH_FIXED */
  uint64_t seed;
  double sample_seconds; /* 0: the default */
  bool profile;          /* a trial without one is no answer to who asked for it */
};

struct gd_store_key {
  char hash[GD_HASH_TEXT]; /* of the text */
  char text[4096];         /* canonical: "name=value;name=value" */
};
/* GD_ENVIRONMENT without memory; GD_INTERNAL when the model's graph cannot be built. */
enum gd_status gd_store_key_make(const struct gd_store_asked *asked, struct gd_store_key *key,
                                 struct gd_error *err) GD_MUST_USE;

/*
 * What the numbers of a trial say of its recipe: batch, steps, precision (unless the device put
 * another in its place) and, of one that was run, the sequence; other fields of *recipe stay as
 * they are. False where they do not tell.
 */
bool gd_recipe_sizes(const struct gd_trial *trial, struct gd_recipe *recipe);
/*
 * The identity that a trial of a preset must have by its own numbers: batch, sequence, steps,
 * precision and parameters; *model is the preset with that recipe. Empty where they do not tell, or
 * the preset is another model by now: *model is of no use then.
 */
enum gd_status gd_recipe_of_trial(const struct gd_trial *trial, struct gd_model *model,
                                  char hash[GD_HASH_TEXT], struct gd_error *err) GD_MUST_USE;

/* --- trials by key ------------------------------------------------------------------------- */

/*
 * The newest finished trial of that key, or the pending one (status planned) where none has
 * finished. A trial that was loaded is never found so: it was measured elsewhere. *found false
 * leaves *trial as it was; gd_store_damage then tells whether there is one that cannot be read.
 * provenance may be NULL.
 */
enum gd_status gd_store_find(struct gd_store *store, const struct gd_store_key *key,
                             struct gd_trial *trial, struct gd_provenance *provenance, bool *found,
                             struct gd_error *err) GD_MUST_USE;
/*
 * One trial, one transaction. A finished one supersedes those of the same key before it, which stay
 * as history, and ends the pending one; a pending one (status planned) replaces
 * only a pending one, and is not kept where the key has an answer.
 * Loaded trials are left alone. provenance NULL: this machine, now.
 */
enum gd_status gd_store_put(struct gd_store *store, const struct gd_store_key *key,
                            const struct gd_trial *trial, const struct gd_provenance *provenance,
                            struct gd_error *err) GD_MUST_USE;
/* Forgets that the trial is pending; nothing happens where it is not. */
enum gd_status gd_store_drop_pending(struct gd_store *store, const struct gd_store_key *key,
                                     struct gd_error *err) GD_MUST_USE;

/*
 * The keys of all pending trials, also of other builds of this program; free *keys by gd_mem_free.
 * gd_store_key_same_trial: whether `other` asks what `ours` asks, but for the build and for what
 * older keys do not say.
 */
enum gd_status gd_store_pending_keys(struct gd_store *store, struct gd_store_key **keys,
                                     uint32_t *count, struct gd_error *err) GD_MUST_USE;
bool gd_store_key_same_build(const struct gd_store_key *a, const struct gd_store_key *b);
bool gd_store_key_same_trial(const struct gd_store_key *ours, const struct gd_store_key *other);
/*
 * The recipe of a trial that was not planned by this process: what the key says, or else what its
 * numbers and the preset of its name say; empty where neither does, and never what it says itself.
 * An older gpudays names no machine: what is known of it is noted.
 */
enum gd_status gd_store_identify(const struct gd_store_key *key,
                                 const struct gd_provenance *provenance, struct gd_trial *trial,
                                 struct gd_error *err) GD_MUST_USE;

/* --- many trials --------------------------------------------------------------------------- */

enum gd_store_sort {
  GD_STORE_SORT_TIME, /* newest first */
  GD_STORE_SORT_DAYS, /* shortest first, those without days last */
  GD_STORE_SORT_MODEL,
  GD_STORE_SORT_METHOD,
  GD_STORE_SORT_DEVICE,
  GD_STORE_SORT_STATUS,
  GD_STORE_SORT_MEMORY, /* smallest peak first */
  GD_STORE_SORT_MFU,    /* highest first */
  GD_STORE_SORT_COUNT
};
const char *gd_store_sort_name(enum gd_store_sort sort); /* "time", "days", ... */
bool gd_store_sort_parse(const char *text, enum gd_store_sort *sort);

/*
 * What people name a row by: the first digits of the hash of all that it says, so that it is the
 * same wherever the row is saved and loaded as JSON lines. A name is GD_STORE_LEAST_ID of them or
 * more.
 */
enum { GD_STORE_SHORT_ID = 9, GD_STORE_LEAST_ID = 4 };
bool gd_store_is_id(const char *text);

/* Which rows; a zeroed one means all that is finished and not superseded. */
struct gd_store_filter {
  const char *id;    /* how the row's id begins; NULL: any */
  const char *model; /* exact, or with * and ? as in a shell; likewise method and host */
  const char *method;
  const char *device; /* a part of the name is enough, in either case of letters */
  const char *host;
  const char *model_name;             /* exact, whatever characters it has; NULL: any */
  const char *recipe;                 /* exact, a hash; NULL: any */
  const enum gd_trial_status *status; /* NULL: any */
  int ranks;                          /* 0: any */
  const char *since;                  /* a time as in struct gd_provenance, or its beginning */
  bool pending;                       /* those that are planned, instead of those that ended */
  bool history;                       /* also what was superseded */
  bool brief;                         /* leave samples and profile empty: several times faster */
  enum gd_store_sort sort;
  bool reverse;
  int64_t limit; /* at most so many rows; 0: all */
};

struct gd_store_row {
  int64_t id; /* in this database */
  char short_id[GD_STORE_SHORT_ID];
  bool superseded;
  char key_hash[GD_HASH_TEXT];
  char origin[256]; /* empty: measured here (or by a job of ours); else the file it came from */
  struct gd_trial trial;
  struct gd_provenance provenance;
};
/* Called for each row in order; a status other than GD_OK ends the query and is returned. */
typedef enum gd_status (*gd_store_visit)(void *user, const struct gd_store_row *row,
                                         struct gd_error *err);
/* A row that is damaged is left out, and told by gd_store_damage: the others are none the worse. */
enum gd_status gd_store_query(struct gd_store *store, const struct gd_store_filter *filter,
                              gd_store_visit visit, void *user, struct gd_error *err) GD_MUST_USE;
/* How many rows the last gd_store_query, gd_store_find or gd_store_save left out; *sentence says
   which is the first and what is wrong with it, good until the next of them. */
int64_t gd_store_damage(const struct gd_store *store, const char **sentence);

/* How many rows a filter finds, and the time that measuring them took. */
struct gd_store_total {
  int64_t trials;
  int64_t by_status[GD_TRIAL_STATUS_COUNT];
  int64_t models, devices; /* different ones */
  double measured_s;       /* warm-up and samples */
};
enum gd_status gd_store_count(struct gd_store *store, const struct gd_store_filter *filter,
                              struct gd_store_total *total, struct gd_error *err) GD_MUST_USE;

/* Searches that were interrupted, or run now: trials that are planned, and how many of the same
   model, recipe, device, ranks and host this build has measured. */
struct gd_store_progress {
  char model[sizeof((struct gd_trial *)0)->model], device[sizeof((struct gd_trial *)0)->device];
  char host[sizeof((struct gd_provenance *)0)->host],
      since[sizeof((struct gd_provenance *)0)->time];
  int ranks;
  int64_t pending, measured;
};
typedef enum gd_status (*gd_store_visit_progress)(void *user, const struct gd_store_progress *of,
                                                  struct gd_error *err);
/* The filter's pending is taken for set. The one that was planned last comes first. */
enum gd_status gd_store_progress(struct gd_store *store, const struct gd_store_filter *filter,
                                 gd_store_visit_progress visit, void *user,
                                 struct gd_error *err) GD_MUST_USE;

/* Forgets rows (row.id of a query), all of them or none. What they superseded stays history. */
enum gd_status gd_store_remove(struct gd_store *store, const int64_t *ids, uint32_t count,
                               struct gd_error *err) GD_MUST_USE;

/* --- exchange ------------------------------------------------------------------------------ */

/*
 * Writes all finished trials, history included, as JSON lines: a header, then one a trial. The file
 * appears whole or not at all, and replaces an older one.
 */
enum gd_status gd_store_save(struct gd_store *store, const char *path, int64_t *saved,
                             struct gd_error *err) GD_MUST_USE;
/*
 * Reads such a file, all of it or (GD_BAD_INPUT with the line) nothing. Trials that are here
 * already, equal in every number and in provenance, count as known. Others are added, with the name
 * of the file as their origin; of the same key from the same host the newest is current. They
 * neither supersede trials that were measured here, nor the other way round.
 */
/* A path that names no file may be the name of a table that comes with gpudays: "h200". */
enum gd_status gd_store_load(struct gd_store *store, const char *path, int64_t *added,
                             int64_t *known, struct gd_error *err) GD_MUST_USE;

#endif
