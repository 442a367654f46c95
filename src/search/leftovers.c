/*
 * Trials and jobs of other builds; see leftovers.h.
 */
#define _GNU_SOURCE
#include "search/leftovers.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/mem.h"
#include "base/scratch.h"
#include "search/child.h"

enum { QUIET_S = 60 }; /* a folder in which nothing happened for so long, and whose job is gone */

/* Whether a point of this search, still to be measured, asks the same. */
static bool is_asked(const struct gd_search *search, const struct gd_store_key *key) {
  for (int i = 0; i < search->count; i++)
    if (search->points[i].source == GD_SEARCH_PENDING &&
        gd_store_key_same_trial(&search->points[i].key, key))
      return true;
  return false;
}

static bool is_quiet(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && time(NULL) - info.st_mtime > QUIET_S;
}

/* Stored where it has ended, as the trial of the build that measured it; forgotten where it never
   will. */
static enum gd_status settle(struct gd_search *search, const char *folder,
                             const struct gd_store_key *key, struct gd_error *err) {
  struct gd_scratch scratch = GD_SCRATCH_NONE;
  struct gd_provenance where;
  struct gd_trial trial;
  bool ours, queued = false;
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%.3900s/%s", folder, key->hash);
  bool gone = is_quiet(path);
  GD_TRY(gd_scratch_take(&scratch, folder, key->hash, &ours, err));
  if (!ours)
    return GD_OK;
  enum gd_status status = GD_OK;
  if (gd_child_collect(&scratch, &trial, &where)) {
    status = gd_store_identify(key, &where, &trial, err);
    if (status == GD_OK)
      status = gd_store_put(search->store, key, &trial, &where, err);
    search->n_found += status == GD_OK;
    gone = true;
  } else if (search->slurm) {
    status = gd_slurm_is_queued(key->hash, &queued, err);
    gone = gone && !queued;
  } else {
    gone = true; /* its process ended with the search that started it */
  }
  if (status == GD_OK && gone)
    status = gd_store_drop_pending(search->store, key, err);
  if (status == GD_OK && gone)
    gd_scratch_remove(&scratch);
  else
    gd_scratch_leave(&scratch);
  return status;
}

static enum gd_status take(struct gd_search *search, const char *folder,
                           const struct gd_store_key *key, struct gd_error *err) {
  char path[PATH_MAX];
  struct stat info;
  snprintf(path, sizeof path, "%.3900s/%s", folder, key->hash);
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
    return settle(search, folder, key, err);
  /* Asked for by this search under its own key, it is no longer what the other one left to do. */
  return is_asked(search, key) ? gd_store_drop_pending(search->store, key, err) : GD_OK;
}

enum gd_status gd_leftovers_take(struct gd_search *search, const char *folder,
                                 struct gd_error *err) {
  struct gd_store_key *keys = NULL;
  uint32_t count = 0;
  if (!search->store || search->count == 0)
    return GD_OK;
  enum gd_status status = gd_store_pending_keys(search->store, &keys, &count, err);
  for (uint32_t i = 0; i < count && status == GD_OK; i++)
    if (!gd_store_key_same_build(&search->points[0].key, &keys[i]))
      status = take(search, folder, &keys[i], err);
  gd_mem_free(keys);
  return status;
}
