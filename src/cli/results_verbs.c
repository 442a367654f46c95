/*
 * `gpudays results save`, `load` and `remove`: see results_verbs.h.
 */
#include "cli/results_verbs.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/show.h"

static enum gd_status save(struct gd_cli *cli, struct gd_store *store, struct gd_error *err) {
  struct gd_show_object object;
  const char *file = gd_cli_file(cli->arguments[1]);
  int64_t saved = 0;
  GD_TRY(gd_store_save(store, file ? file : "/dev/stdout", &saved, err));
  if (!file)
    return GD_OK;
  if (!cli->options.json) {
    gd_strbuf_printf(&cli->out, "saved %lld trial%s to %s\n", (long long)saved,
                     saved == 1 ? "" : "s", file);
    return GD_OK;
  }
  gd_show_begin(&object);
  gd_show_set_int(&object, "saved", saved);
  return gd_show_json(&cli->out, &object, err);
}

static enum gd_status load(struct gd_cli *cli, struct gd_store *store, struct gd_error *err) {
  struct gd_show_object object;
  int64_t added = 0, known = 0;
  bool piped = strcmp(cli->arguments[1], "-") == 0;
  const char *file = piped ? "/dev/stdin" : cli->arguments[1];
  GD_TRY(gd_store_load(store, file, &added, &known, err));
  if (!cli->options.json) {
    gd_strbuf_printf(&cli->out, "loaded %lld trial%s from %s; %lld more were here already\n",
                     (long long)added, added == 1 ? "" : "s", piped ? "standard input" : file,
                     (long long)known);
    return GD_OK;
  }
  gd_show_begin(&object);
  gd_show_set_int(&object, "added", added);
  gd_show_set_int(&object, "known", known);
  return gd_show_json(&cli->out, &object, err);
}

/* --- remove -------------------------------------------------------------------------------- */

struct doomed {
  int64_t *ids; /* in gd_mem */
  uint32_t capacity, count;
  struct gd_show_object names; /* for programs */
};

static enum gd_status add_doomed(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct doomed *doomed = user;
  for (uint32_t i = 0; i < doomed->count; i++)
    if (doomed->ids[i] == row->id) /* two names of one row */
      return GD_OK;
  if (!gd_vec_reserve((void **)&doomed->ids, &doomed->capacity, doomed->count + 1,
                      sizeof *doomed->ids) ||
      json_array_append_new(doomed->names.object, json_string(row->short_id)) != 0)
    return gd_nomem(err, "while looking for trials to remove");
  doomed->ids[doomed->count++] = row->id;
  return GD_OK;
}

/* The rows of each ID, or those of the filters where no ID is given. An ID names also what is
   pending or superseded. */
static enum gd_status find_doomed(struct gd_cli *cli, struct gd_store *store,
                                  const struct gd_store_filter *filter, struct doomed *doomed,
                                  struct gd_error *err) {
  struct gd_store_filter one = *filter;
  one.brief = true;
  if (cli->n_arguments == 1)
    return gd_store_query(store, &one, add_doomed, doomed, err);
  for (int i = 1; i < cli->n_arguments; i++) {
    uint32_t before = doomed->count;
    one.id = cli->arguments[i];
    one.history = true;
    GD_TRY(gd_store_query(store, &one, add_doomed, doomed, err));
    one.pending = !filter->pending;
    GD_TRY(gd_store_query(store, &one, add_doomed, doomed, err));
    one.pending = filter->pending;
    if (doomed->count == before)
      return gd_fail(err, GD_MISMATCH, "no trial that matches has the ID %s; nothing was removed",
                     one.id);
  }
  return GD_OK;
}

/* What would be removed: the rows as `results` lists them. */
static enum gd_status list_doomed(struct gd_cli *cli, struct gd_store *store,
                                  const struct gd_store_filter *filter, struct gd_error *err) {
  struct gd_store_filter one = *filter;
  one.brief = true;
  if (cli->n_arguments == 1)
    return gd_results_list(cli, store, &one, err);
  for (int i = 1; i < cli->n_arguments; i++) {
    one.id = cli->arguments[i];
    one.history = true;
    GD_TRY(gd_results_list(cli, store, &one, err));
  }
  return GD_OK;
}

static enum gd_status show_removed(struct gd_cli *cli, struct doomed *doomed, bool removed,
                                   struct gd_error *err) {
  struct gd_show_object object;
  if (!cli->options.json) {
    if (removed)
      gd_strbuf_printf(&cli->out, "removed %u trial%s\n", (unsigned)doomed->count,
                       doomed->count == 1 ? "" : "s");
    return GD_OK;
  }
  gd_show_begin(&object);
  gd_show_set_int(&object, "removed", removed ? doomed->count : 0);
  gd_show_set_int(&object, "matching", doomed->count);
  gd_show_set_object(&object, "ids", &doomed->names);
  return gd_show_json(&cli->out, &object, err);
}

/* One row goes at once, several only with --yes: then nothing that was not seen is lost. */
static enum gd_status remove_rows(struct gd_cli *cli, struct gd_store *store,
                                  const struct gd_store_filter *filter, struct gd_error *err) {
  struct doomed doomed = {.names = {.object = json_array()}};
  enum gd_status status = find_doomed(cli, store, filter, &doomed, err);
  if (status == GD_OK && doomed.count == 0)
    status = gd_fail(err, GD_MISMATCH, "no trial matches; nothing was removed");
  bool remove = doomed.count == 1 || cli->options.yes;
  if (status == GD_OK && remove)
    status = gd_store_remove(store, doomed.ids, doomed.count, err);
  else if (status == GD_OK && !cli->options.json)
    status = list_doomed(cli, store, filter, err);
  if (status == GD_OK)
    status = show_removed(cli, &doomed, remove, err);
  if (status == GD_OK && !remove)
    status = gd_fail(err, GD_BAD_INPUT, "%u trials match and none was removed; --yes removes them",
                     (unsigned)doomed.count);
  json_decref(doomed.names.object);
  gd_mem_free(doomed.ids);
  return status;
}

/* --- verbs --------------------------------------------------------------------------------- */

static bool has_filter(const struct gd_cli *cli) {
  const struct gd_store_filter *f = &cli->options.filter;
  return f->id || f->model || f->method || f->device || f->host || f->status || f->since ||
         f->pending || f->history || cli->options.ranks;
}

static enum gd_status check_remove(const struct gd_cli *cli, struct gd_error *err) {
  char clean[64];
  for (int i = 1; i < cli->n_arguments; i++)
    if (!gd_store_is_id(cli->arguments[i]))
      return gd_fail(err, GD_BAD_INPUT,
                     "\"%s\" is no ID; 'gpudays results' shows them, and their first 4 digits are "
                     "enough",
                     gd_json_excerpt(clean, sizeof clean, cli->arguments[i]));
  if (cli->n_arguments == 1 && !has_filter(cli))
    return gd_fail(err, GD_BAD_INPUT,
                   "results remove needs to know which: IDs, or a filter such as --model; --model "
                   "'*' is all");
  if (cli->n_arguments > 1 && cli->options.filter.id)
    return gd_fail(err, GD_BAD_INPUT, "results remove takes IDs as arguments; leave out --id");
  return GD_OK;
}

/* A filter with save or load would be ignored, and is refused instead. */
enum gd_status gd_results_check_verb(const struct gd_cli *cli, struct gd_error *err) {
  const struct gd_store_filter *f = &cli->options.filter;
  const char *verb = cli->arguments[0];
  char clean[64];
  bool removes = strcmp(verb, "remove") == 0;
  bool known = strcmp(verb, "save") == 0 || strcmp(verb, "load") == 0 || removes;
  if (!known)
    return gd_fail(err, GD_BAD_INPUT,
                   "unexpected argument \"%s\"; results takes 'save FILE', 'load FILE', 'remove "
                   "ID...' or nothing",
                   gd_json_excerpt(clean, sizeof clean, verb));
  if (f->reverse || f->sort || f->limit || cli->options.total || cli->options.csv)
    return gd_fail(err, GD_BAD_INPUT,
                   "results %s prints no list; leave out what sorts, limits or counts one", verb);
  if (removes)
    return check_remove(cli, err);
  if (cli->n_arguments != 2)
    return gd_fail(err, GD_BAD_INPUT, "results %s takes one file: gpudays results %s FILE", verb,
                   verb);
  if (has_filter(cli) || cli->options.yes)
    return gd_fail(err, GD_BAD_INPUT, "results %s takes all results; leave the filters out", verb);
  return GD_OK;
}

enum gd_status gd_results_run_verb(struct gd_cli *cli, struct gd_store *store,
                                   const struct gd_store_filter *filter, struct gd_error *err) {
  const char *verb = cli->arguments[0];
  if (strcmp(verb, "remove") == 0)
    return remove_rows(cli, store, filter, err);
  return strcmp(verb, "save") == 0 ? save(cli, store, err) : load(cli, store, err);
}
