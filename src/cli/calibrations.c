/*
 * Calibrations that are kept; see calibrations.h. A file of a colleague's is checked before it is
 * taken; what whole steps say is learned from the database or from files of trials, of the device
 * of one calibration.
 */
#include "cli/calibrations.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/csv.h"
#include "cli/show.h"
#include "predict/learn.h"
#include "predict/predict.h"
#include "store/store_runs.h"

/* --- learn --------------------------------------------------------------------------------- */

struct lessons {
  struct gd_learner *learner;
  const struct gd_rates *rates;
};

static enum gd_status add_row(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct lessons *lessons = user;
  return gd_learner_add(lessons->learner, lessons->rates, &row->trial, err);
}

/* A run of hours is a trial whose step is that of the whole run. */
static enum gd_status add_run(void *user, const struct gd_run_record *run, struct gd_error *err) {
  struct lessons *lessons = user;
  struct gd_trial trial = run->trial;
  int64_t steps = run->last_step - run->first_step;
  if (steps <= 0)
    return GD_OK;
  trial.status = GD_TRIAL_OK;
  trial.step_s = (run->seconds - run->stalled_s) / (double)steps;
  return gd_learner_add(lessons->learner, lessons->rates, &trial, err);
}

/* What cannot be read is said before anything that is only there to learn into. */
static enum gd_status check_file(const char *path, struct gd_error *err) {
  struct gd_csv csv = {0};
  size_t length = strlen(path);
  if (length > 6 && strcmp(path + length - 6, ".jsonl") == 0)
    return gd_fail(
        err, GD_BAD_INPUT,
        "%s is not CSV; what 'gpudays results save' wrote goes into a database: 'gpudays "
        "results load %s --store theirs.db', then 'calibrate learn --store theirs.db'",
        path, path);
  enum gd_status status = gd_csv_load(&csv, path, err);
  gd_csv_deinit(&csv);
  return status;
}

/* What is wrong with a trial begins with where it is. */
static enum gd_status add_trial(struct lessons *lessons, const struct gd_csv *csv, int row,
                                const struct gd_trial *trial, struct gd_error *err) {
  struct gd_error why = {0};
  enum gd_status status = gd_learner_add(lessons->learner, lessons->rates, trial, &why);
  return status == GD_BAD_INPUT
             ? gd_fail(err, status, "%s, line %d: %s", csv->file, csv->lines[row], why.text)
         : status != GD_OK ? gd_fail(err, status, "%s", why.text)
                           : GD_OK;
}

static enum gd_status add_file(struct lessons *lessons, const char *path, struct gd_error *err) {
  struct gd_csv csv = {0};
  enum gd_status status = gd_csv_load(&csv, path, err);
  for (int row = 0; status == GD_OK && row < csv.rows; row++) {
    struct gd_trial trial;
    bool superseded;
    status = gd_record_read_csv(&csv, row, &trial, NULL, &superseded, err);
    if (status == GD_OK && !superseded)
      status = add_trial(lessons, &csv, row, &trial, err);
  }
  gd_csv_deinit(&csv);
  return status;
}

static enum gd_status add_all(struct gd_cli *cli, struct lessons *lessons, char *from, size_t size,
                              struct gd_error *err) {
  struct gd_store *store = NULL;
  struct gd_store_filter filter = {.brief = true, .sort = GD_STORE_SORT_MODEL};
  size_t length = 0;
  if (cli->n_arguments > 1) {
    for (int i = 1; i < cli->n_arguments; i++) {
      const char *path = cli->arguments[i], *name = strrchr(path, '/');
      GD_TRY(add_file(lessons, path, err));
      if (length < size)
        length += (size_t)snprintf(from + length, size - length, "%s%s", i > 1 ? ", " : "",
                                   name ? name + 1 : path);
    }
    return GD_OK;
  }
  snprintf(from, size, "of the database");
  GD_TRY(gd_store_open(cli->options.store, &store, err));
  enum gd_status status = gd_store_query(store, &filter, add_row, lessons, err);
  if (status == GD_OK)
    status = gd_store_query_runs(store, add_run, lessons, err);
  gd_store_close(store);
  return status;
}

static enum gd_status own_device(struct gd_cli *cli, char *path, size_t size,
                                 struct gd_error *err) {
  struct gd_place place;
  GD_TRY(gd_place_find(gd_cli_backend(cli),
                       &(struct gd_backend_options){.threads = (int)cli->options.threads}, &place,
                       err));
  if (gd_calibration_path(place.info.name, path, size) && access(path, R_OK) == 0)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT,
                 "%s was not calibrated; 'gpudays calibrate' does that, or name a calibration with "
                 "--calibration",
                 place.info.name);
}

static enum gd_status show_learned(struct gd_cli *cli, const struct gd_rates *rates,
                                   const char *path, struct gd_error *err) {
  struct gd_show_object root;
  struct gd_strbuf line = {0};
  if (cli->options.json) {
    gd_show_begin(&root);
    gd_show_set_text(&root, "device", rates->device);
    gd_show_set_text(&root, "file", path);
    gd_show_set_text(&root, "learned_from", rates->learned_from);
    gd_show_set_int(&root, "trials", rates->learned_trials);
    gd_show_set_real(&root, "energy", rates->learned.energy);
    gd_show_set_real(&root, "host", rates->learned.host);
    gd_show_set_real(&root, "step", rates->learned.step);
    gd_show_set_real(&root, "median_error", rates->learned_median);
    gd_show_set_real(&root, "worst_error", rates->learned_worst);
    return gd_show_json(&cli->out, &root, err);
  }
  gd_strbuf_printf(&cli->out, "%s, learned from %s\n", rates->device, rates->learned_from);
  if (rates->multiprocessors > 0)
    gd_strbuf_printf(&cli->out,
                     "  a FLOP draws %.2f times the published energy\n"
                     "  work on host memory takes %.2f times what it took alone\n",
                     rates->learned.energy, rates->learned.host);
  gd_strbuf_printf(&cli->out, "  a step takes %.2f times its ops one by one\n",
                   rates->learned.step);
  gd_strbuf_printf(&line,
                   "trials of each model, predicted from those of the others: median error %.1f "
                   "%%, worst %.0f %%. Kept in %s",
                   100 * rates->learned_median, 100 * rates->learned_worst, path);
  gd_show_buffer(&cli->out, 2, &line);
  return GD_OK;
}

static enum gd_status learn_into(struct gd_cli *cli, struct gd_rates *rates, const char *path,
                                 struct gd_error *err) {
  char from[128] = "", kept[4096];
  struct lessons lessons = {.learner = gd_learner_new(), .rates = rates};
  if (!lessons.learner)
    return gd_nomem(err, "before the first trial");
  enum gd_status status = add_all(cli, &lessons, from, sizeof from, err);
  if (status == GD_OK)
    status = gd_learner_learn(lessons.learner, rates, from, err);
  gd_learner_free(lessons.learner);
  GD_TRY(status);
  const char *to = cli->options.output ? cli->options.output : path[0] ? path : NULL;
  if (to && access(to, F_OK) == 0)
    status = gd_rates_save_learned(to, rates, err);
  else /* one that is inside the program, or a new file */
    status = gd_calibration_keep(rates, to, 1, kept, sizeof kept, err);
  GD_TRY(status);
  return show_learned(cli, rates, to ? to : kept, err);
}

static enum gd_status learn(struct gd_cli *cli, struct gd_error *err) {
  struct gd_rates rates = {0};
  char path[4096] = "";
  for (int i = 1; i < cli->n_arguments; i++)
    GD_TRY(check_file(cli->arguments[i], err));
  if (cli->options.calibration) {
    GD_TRY(gd_calibration_find(cli->options.calibration, &rates, path, sizeof path, err));
  } else {
    GD_TRY(own_device(cli, path, sizeof path, err));
    GD_TRY(gd_rates_load(&rates, path, err));
  }
  enum gd_status status = learn_into(cli, &rates, path, err);
  gd_rates_deinit(&rates);
  return status;
}

/* --- load ---------------------------------------------------------------------------------- */

/* A name is taken as it is, or not at all: what it becomes is a file of that folder. */
static enum gd_status check_name(const char *name, struct gd_error *err) {
  enum { MOST = 100 };
  size_t length = strlen(name);
  bool file = length > 5 && strcmp(name + length - 5, ".json") == 0;
  if (length > 0 && length <= MOST && name[0] != '.' && !file &&
      strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == length)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT,
                 "\"%.*s\" is no name for a calibration; give one of small letters, digits, '.', "
                 "'-' and '_', without a folder or .json: gpudays calibrate load FILE NAME",
                 MOST, name);
}

/* "lab/h200-kim.json" is h200-kim. */
static enum gd_status name_of(const char *path, char *name, size_t size, struct gd_error *err) {
  const char *last = strrchr(path, '/');
  last = last ? last + 1 : path;
  size_t length = strlen(last);
  if (length > 5 && strcmp(last + length - 5, ".json") == 0)
    length -= 5;
  snprintf(name, size, "%.*s", (int)(length < size ? length : size - 1), last);
  return check_name(name, err);
}

static enum gd_status load(struct gd_cli *cli, struct gd_error *err) {
  struct gd_rates rates = {0};
  char name[128], path[4096];
  if (cli->n_arguments < 2 || cli->n_arguments > 3)
    return gd_fail(err, GD_BAD_INPUT, "say which file: gpudays calibrate load FILE [NAME]");
  if (cli->n_arguments == 3) {
    GD_TRY(check_name(cli->arguments[2], err));
    snprintf(name, sizeof name, "%s", cli->arguments[2]);
  } else
    GD_TRY(name_of(cli->arguments[1], name, sizeof name, err));
  GD_TRY(gd_rates_take(&rates, cli->arguments[1], err));
  enum gd_status status = GD_OK;
  if (!gd_calibration_path(name, path, sizeof path))
    status = gd_fail(err, GD_ENVIRONMENT,
                     "there is no folder to keep the calibration in; set HOME or XDG_DATA_HOME");
  else if (access(path, F_OK) == 0)
    status =
        gd_fail(err, GD_BAD_INPUT,
                "there is a calibration %s already, %s; choose another name: gpudays calibrate "
                "load FILE NAME",
                name, path);
  if (status == GD_OK)
    status = gd_calibration_add(cli->arguments[1], path, err);
  if (status == GD_OK)
    gd_strbuf_printf(&cli->out, "%s: %s, measured on %.10s; --calibration %s uses it\n", name,
                     rates.device, rates.date, name);
  gd_rates_deinit(&rates);
  return status;
}

/* --- list ---------------------------------------------------------------------------------- */

struct listing {
  struct gd_cli *cli;
  struct gd_show_rows rows;
  struct gd_show_object objects;
};

static enum gd_status list_one(void *user, const struct gd_calibration_entry *entry,
                               struct gd_error *err) {
  struct listing *listing = user;
  struct gd_cli *cli = listing->cli;
  const struct gd_rates *rates = entry->rates;
  (void)err;
  if (cli->options.json) {
    struct gd_show_object object;
    gd_show_begin(&object);
    gd_show_set_text(&object, "name", entry->name);
    gd_show_set_text(&object, "device", rates->device);
    gd_show_set_text(&object, "date", rates->date);
    gd_show_set_int(&object, "points", rates->n_points);
    gd_show_set_text(&object, "learned_from", rates->learned_from);
    gd_show_set_text(&object, "file", entry->path);
    gd_show_append(&listing->objects, &object);
    return GD_OK;
  }
  const char **row = gd_show_row(&listing->rows);
  row[0] = gd_show_cell(cli, "%s", entry->name);
  row[1] = gd_show_cell(cli, "%s", rates->device);
  row[2] = gd_show_cell(cli, "%.10s", rates->date);
  row[3] = gd_show_cell(cli, "%u", rates->n_points);
  row[4] = rates->learned_from[0] ? gd_show_cell(cli, "%s", rates->learned_from) : "-";
  row[5] = gd_show_cell(cli, "%s", entry->path[0] ? entry->path : "in the program");
  return GD_OK;
}

static enum gd_status list(struct gd_cli *cli, struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"NAME", false, 0},         {"DEVICE", false, 0},
                                                  {"DATE", false, 2},         {"POINTS", true, 3},
                                                  {"LEARNED FROM", false, 1}, {"FILE", false, 4}};
  struct listing listing = {
      .cli = cli, .rows = GD_SHOW_ROWS(cli, columns), .objects = {.object = json_array()}};
  struct gd_show_object root;
  if (cli->n_arguments > 1)
    return gd_fail(err, GD_BAD_INPUT, "calibrate list takes nothing else");
  enum gd_status status = gd_calibration_each(list_one, &listing, err);
  if (status == GD_OK && !cli->options.json) {
    json_decref(listing.objects.object);
    return gd_show_rows(&listing.rows, 0, err);
  }
  gd_show_begin(&root);
  gd_show_set_object(&root, "calibrations", &listing.objects);
  return status == GD_OK ? gd_show_json(&cli->out, &root, err) : status;
}

enum gd_status gd_cmd_calibrations(struct gd_cli *cli, struct gd_error *err) {
  const char *verb = cli->arguments[0];
  if (strcmp(verb, "learn") == 0)
    return learn(cli, err);
  if (strcmp(verb, "load") == 0)
    return load(cli, err);
  if (strcmp(verb, "list") == 0)
    return list(cli, err);
  return gd_fail(err, GD_BAD_INPUT,
                 "calibrate takes learn, load or list, and nothing to measure this machine; not "
                 "\"%s\"",
                 verb);
}
