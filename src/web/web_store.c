/*
 * The store of a browser: there is no database, so nothing was ever measured here. Takes the place
 * of src/store/store*.c, without SQLite.
 */
#include "store/store.h"
#include "store/store_best.h"

enum gd_status gd_store_open(const char *path, struct gd_store **store, struct gd_error *err) {
  (void)path;
  (void)err;
  *store = NULL; /* as all who take one allow */
  return GD_OK;
}

void gd_store_close(struct gd_store *store) {
  (void)store;
}

enum gd_status gd_store_find_path(const char *asked, char path[GD_STORE_PATH],
                                  struct gd_error *err) {
  (void)asked;
  path[0] = '\0';
  return gd_fail(err, GD_ENVIRONMENT, "a browser has no database of results");
}

enum gd_status gd_store_query(struct gd_store *store, const struct gd_store_filter *filter,
                              gd_store_visit visit, void *user, struct gd_error *err) {
  (void)store;
  (void)filter;
  (void)visit;
  (void)user;
  (void)err;
  return GD_OK;
}

enum gd_status gd_best_query(struct gd_store *store, const struct gd_best_asked *asked,
                             gd_store_visit visit, void *user, struct gd_error *err) {
  (void)store;
  (void)visit;
  (void)user;
  return gd_fail(err, GD_MISMATCH,
                 "a browser has no database of results; name the point with --methods: gpudays "
                 "export %s --methods free-lunch",
                 asked->argument);
}

void gd_store_note_left_out(const struct gd_store *store, struct gd_strbuf *notes) {
  (void)store;
  (void)notes;
}

const char *gd_store_sort_name(enum gd_store_sort sort) {
  (void)sort;
  return "time";
}

bool gd_store_sort_parse(const char *text, enum gd_store_sort *sort) {
  (void)text;
  (void)sort;
  return false;
}

bool gd_store_is_id(const char *text) {
  (void)text;
  return false;
}
