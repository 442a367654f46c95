/*
 * The good trials of a model in the store, fastest first: what `best` shows and `export` exports.
 */
#ifndef GD_STORE_STORE_BEST_H
#define GD_STORE_STORE_BEST_H

#include "model/model.h"
#include "pass/method.h"
#include "store/store.h"

struct gd_best_asked {
  const struct gd_model *model;          /* with the recipe that is asked for */
  const enum gd_precision *precision;    /* NULL: the recipe's */
  const struct gd_store_filter *filter;  /* model, recipe, status and sort are set here */
  const char *argument, *recipe_options; /* what the user called the model, and " --batch 64": for
                                            the command that would measure one */
  struct gd_strbuf *notes; /* gets a line about trials that were disturbed; NULL: none */
};

/*
 * Visits the trials that are ok, pass the filter and train the recipe that is asked for (whatever
 * the model was called), by days, and those that were disturbed (gd_trial_is_disturbed) after all
 * others. With no such trial: GD_MISMATCH with the recipes that are stored,
 * or the filter that leaves all out, and the command that measures some.
 */
enum gd_status gd_best_query(struct gd_store *store, const struct gd_best_asked *asked,
                             gd_store_visit visit, void *user, struct gd_error *err) GD_MUST_USE;

/* The same, but only the first trial on each device and number of ranks. */
enum gd_status gd_best_by_place(struct gd_store *store, const struct gd_best_asked *asked,
                                gd_store_visit visit, void *user, struct gd_error *err) GD_MUST_USE;

/* How many trials of the recipe failed by their environment, here: one of them may be the best. */
enum gd_status gd_best_missing(struct gd_store *store, const struct gd_best_asked *asked,
                               int *missing, struct gd_error *err) GD_MUST_USE;

/* The method of the first of gd_best_query's trials that so many ranks of this backend measured,
   naive ones apart, which are there to compare with. False: there is none, or no store. */
bool gd_best_method(const char *store_path, const struct gd_best_asked *asked, const char *backend,
                    int ranks, char name[GD_METHOD_NAME]);

/* Appends which trials the last query could not read and left out, as a line, and that the disk of
   the database is full. */
void gd_store_note_left_out(const struct gd_store *store, struct gd_strbuf *notes);

#endif
