/*
 * What searches of other builds of this program have left behind: pending rows of the store, and
 * the folders of their trials or jobs. The key of a trial names the build that asks, so that no
 * search of this build would ever look there. A result is stored under its own key, as the trial of
 * the build that measured it: like every stored trial of another build, it answers for no question
 * of this one. What will never have a result is cleared away.
 */
#ifndef GD_SEARCH_LEFTOVERS_H
#define GD_SEARCH_LEFTOVERS_H

#include "search/search.h"

/*
 * folder: of the store's trials, or of the jobs. Sets n_found of the search. Folders that another
 * process holds are left alone.
 */
enum gd_status gd_leftovers_take(struct gd_search *search, const char *folder,
                                 struct gd_error *err) GD_MUST_USE;

#endif
