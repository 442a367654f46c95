/*
 * The good trials of a model, fastest first; see store_best.h.
 */
#include "store/store_best.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

enum { MOST_RECIPES = 4, PART_TEXT = 512 };

struct choosing {
  gd_store_visit visit;
  void *user;
  int64_t same_recipe, other_recipes, unknown_recipes;
  bool disturbed; /* visit those, not the others */
  int n_disturbed;
  double most_busy;
  struct gd_strbuf methods; /* of the disturbed ones, each once */
  int64_t damaged;          /* that may have been of it, and cannot be read */
  struct {                  /* the first few of the others */
    struct gd_recipe sizes;
    int64_t trials;
  } others[MOST_RECIPES];
  int n_others;
  enum gd_precision precision, own; /* that was asked for; the preset's, of a trial with another in
                                       its place */
};

static void note_method(struct choosing *choosing, const struct gd_trial *trial) {
  struct gd_strbuf *list = &choosing->methods;
  size_t length = strlen(trial->method);
  choosing->most_busy = fmax(choosing->most_busy, trial->busy_share);
  for (const char *at = list->text; at && *at; at += strcspn(at, ",") + (strchr(at, ',') != NULL))
    if (strcspn(at, ",") == length && strncmp(at, trial->method, length) == 0)
      return;
  gd_strbuf_printf(list, "%s%s", list->length ? "," : "", trial->method);
}

static enum gd_status choose(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct choosing *choosing = user;
  bool disturbed = gd_trial_is_disturbed(&row->trial);
  if (disturbed != choosing->disturbed) {
    choosing->n_disturbed += disturbed;
    return GD_OK;
  }
  choosing->same_recipe++;
  if (disturbed)
    note_method(choosing, &row->trial);
  return choosing->visit(choosing->user, row, err);
}

static bool is_same(const struct gd_recipe *a, const struct gd_recipe *b) {
  return a->batch == b->batch && a->seq == b->seq && a->steps == b->steps &&
         a->precision == b->precision;
}

static enum gd_status count_others(void *user, const struct gd_store_row *row,
                                   struct gd_error *err) {
  struct choosing *choosing = user;
  struct gd_recipe sizes = {.precision = choosing->own};
  int at = 0;
  (void)err;
  if (!row->trial.recipe[0]) {
    choosing->unknown_recipes++;
    return GD_OK;
  }
  choosing->other_recipes++;
  if (!gd_recipe_sizes(&row->trial, &sizes))
    return GD_OK;
  while (at < choosing->n_others && !is_same(&choosing->others[at].sizes, &sizes))
    at++;
  if (at == MOST_RECIPES)
    return GD_OK;
  choosing->others[at].sizes = sizes;
  choosing->others[at].trials++;
  choosing->n_others += at == choosing->n_others;
  return GD_OK;
}

static enum gd_status count_any(void *user, const struct gd_store_row *row, struct gd_error *err) {
  int64_t *count = user;
  (void)row;
  (void)err;
  (*count)++;
  return GD_OK;
}

/* --- why there is none ---------------------------------------------------------------------- */

static void append(char text[PART_TEXT], const char *name, int64_t value) {
  size_t length = strlen(text);
  snprintf(text + length, PART_TEXT - length, " --%s %" PRId64, name, value);
}

/* ", 2 with --batch 64 --seq 256": what each of the others has another way than was asked. */
static void describe_others(char text[PART_TEXT], const struct gd_model *model,
                            const struct choosing *choosing) {
  const struct gd_recipe *asked = &model->recipe;
  int64_t told = 0;
  for (int i = 0; i < choosing->n_others; i++) {
    const struct gd_recipe *sizes = &choosing->others[i].sizes;
    size_t length = strlen(text);
    told += choosing->others[i].trials;
    snprintf(text + length, PART_TEXT - length, "%s %" PRId64 " with", i ? "," : "",
             choosing->others[i].trials);
    size_t before = strlen(text);
    if (sizes->batch != asked->batch)
      append(text, "batch", sizes->batch);
    if (sizes->seq != asked->seq && sizes->seq > 0)
      append(text, "seq", sizes->seq);
    if (sizes->steps != asked->steps)
      append(text, "steps", sizes->steps);
    length = strlen(text);
    if (sizes->precision != choosing->precision)
      snprintf(text + length, PART_TEXT - length, " --precision %s",
               gd_precision_name(sizes->precision));
    if (strlen(text) == before)
      snprintf(text + before, PART_TEXT - before, " another --precision, --optimizer or model");
  }
  size_t length = strlen(text);
  if (choosing->other_recipes > told)
    snprintf(text + length, PART_TEXT - length, "%s %" PRId64 " with still other values",
             told ? "," : "", choosing->other_recipes - told);
}

/* " with --ranks 2 --device a100": what was asked of trials besides the recipe. */
static void describe_filter(char text[PART_TEXT], const struct gd_store_filter *filter) {
  const struct {
    const char *name, *value;
  } texts[] = {{"id", filter->id},
               {"method", filter->method},
               {"device", filter->device},
               {"host", filter->host},
               {"since", filter->since}};
  if (filter->ranks > 0)
    append(text, "ranks", filter->ranks);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    size_t length = strlen(text);
    char clean[64];
    if (texts[i].value)
      snprintf(text + length, PART_TEXT - length, " --%s %s", texts[i].name,
               gd_json_excerpt(clean, sizeof clean, texts[i].value));
  }
}

/* Why there is none, and what to do. filtered: good trials of the model that the filter left out.
 */
static enum gd_status fail_none(const struct gd_best_asked *asked, const struct choosing *choosing,
                                int64_t filtered, struct gd_error *err) {
  const struct gd_model *model = asked->model;
  const struct gd_store_filter *filter = asked->filter;
  char given[PART_TEXT] = "", others[PART_TEXT] = ":", unknown[96] = "", without[96] = "";
  char ranks[24] = "", damaged[96] = "";
  if (filter->ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", filter->ranks);
  describe_filter(given, filter);
  describe_others(others, model, choosing);
  if (choosing->unknown_recipes > 0)
    snprintf(unknown, sizeof unknown,
             "%s %" PRId64 " of an unknown recipe ('gpudays results' lists them)",
             choosing->other_recipes > 0 ? "," : "", choosing->unknown_recipes);
  if (filtered > 0)
    snprintf(without, sizeof without, "; without %s there %s %" PRId64,
             strstr(given + 1, " --") ? "those" : "that", filtered == 1 ? "is" : "are", filtered);
  if (choosing->damaged > 0)
    snprintf(damaged, sizeof damaged,
             "; %" PRId64 " damaged %s left out ('gpudays results' says which)", choosing->damaged,
             choosing->damaged == 1 ? "one is" : "ones are");
  bool other = choosing->other_recipes + choosing->unknown_recipes > 0;
  return gd_fail(err, GD_MISMATCH,
                 "no good trial of %s%s%s%s is stored%s%s%s%s; gpudays bench %s%s --methods %s%s",
                 model->name, other ? " with this recipe" : "",
                 given[0] ? other ? " and" : " with" : "", given, other ? others : "", unknown,
                 without, damaged, asked->argument, asked->recipe_options,
                 filter->method ? filter->method : "all", ranks);
}

/* Those of the recipe that were disturbed, after all others. */
static enum gd_status visit_disturbed(struct gd_store *store, const struct gd_best_asked *asked,
                                      const struct gd_store_filter *filter,
                                      struct choosing *choosing, struct gd_error *err) {
  char ranks[24] = "";
  int count = choosing->n_disturbed;
  choosing->disturbed = true;
  enum gd_status status = gd_store_query(store, filter, choose, choosing, err);
  if (filter->ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", filter->ranks);
  if (status == GD_OK && asked->notes)
    gd_strbuf_printf(
        asked->notes,
        "%d trial%s of %s %s measured while other programs had up to %.0f %% of the cores, and "
        "%s after all others; gpudays bench %s%s --methods %s%s --fresh measures again\n",
        count, count == 1 ? "" : "s", asked->model->name, count == 1 ? "was" : "were",
        100 * choosing->most_busy, count == 1 ? "comes" : "come", asked->argument,
        asked->recipe_options, choosing->methods.text ? choosing->methods.text : "all", ranks);
  gd_strbuf_deinit(&choosing->methods);
  return status;
}

enum gd_status gd_best_query(struct gd_store *store, const struct gd_best_asked *asked,
                             gd_store_visit visit, void *user, struct gd_error *err) {
  static const enum gd_trial_status ok = GD_TRIAL_OK;
  const struct gd_model *model = asked->model;
  struct choosing choosing = {.visit = visit,
                              .user = user,
                              .precision =
                                  asked->precision ? *asked->precision : model->recipe.precision,
                              .own = model->recipe.precision};
  struct gd_store_filter all = *asked->filter;
  char recipe[GD_HASH_TEXT];
  int64_t filtered = 0;
  GD_TRY(gd_recipe_hash(model, asked->precision, recipe, err));
  all.model = NULL;
  all.recipe = recipe;
  all.status = &ok;
  all.sort = GD_STORE_SORT_DAYS;
  GD_TRY(gd_store_query(store, &all, choose, &choosing, err));
  if (choosing.n_disturbed > 0)
    GD_TRY(visit_disturbed(store, asked, &all, &choosing, err));
  if (choosing.same_recipe > 0)
    return GD_OK;
  const char *sentence;
  choosing.damaged = gd_store_damage(store, &sentence);
  all.recipe = NULL;
  all.model_name = model->name;
  all.brief = true;
  GD_TRY(gd_store_query(store, &all, count_others, &choosing, err));
  if (choosing.other_recipes + choosing.unknown_recipes == 0) {
    all = (struct gd_store_filter){.model_name = model->name, .status = &ok, .brief = true};
    GD_TRY(gd_store_query(store, &all, count_any, &filtered, err));
  }
  return fail_none(asked, &choosing, filtered, err);
}

/* --- one on each place ---------------------------------------------------------------------- */

enum { MOST_PLACES = 256 };

struct places {
  gd_store_visit visit;
  void *user;
  struct {
    char device[sizeof((struct gd_trial *)0)->device];
    int ranks;
  } list[MOST_PLACES];
  int count;
};

static enum gd_status visit_place(void *user, const struct gd_store_row *row,
                                  struct gd_error *err) {
  struct places *places = user;
  const struct gd_trial *trial = &row->trial;
  for (int i = 0; i < places->count; i++)
    if (places->list[i].ranks == trial->ranks && strcmp(places->list[i].device, trial->device) == 0)
      return GD_OK;
  if (places->count == MOST_PLACES)
    return GD_OK;
  snprintf(places->list[places->count].device, sizeof places->list->device, "%s", trial->device);
  places->list[places->count++].ranks = trial->ranks;
  return places->visit(places->user, row, err);
}

enum gd_status gd_best_by_place(struct gd_store *store, const struct gd_best_asked *asked,
                                gd_store_visit visit, void *user, struct gd_error *err) {
  struct places *places = gd_mem_alloc(1, sizeof *places);
  if (!places)
    return gd_nomem(err, "while looking for the best trial");
  places->visit = visit;
  places->user = user;
  enum gd_status status = gd_best_query(store, asked, visit_place, places, err);
  gd_mem_free(places);
  return status;
}

/* --- what is missing ------------------------------------------------------------------------ */

static enum gd_status count_missing(void *user, const struct gd_store_row *row,
                                    struct gd_error *err) {
  int *missing = user;
  (void)err;
  *missing += row->trial.failure == GD_FAILURE_ENVIRONMENT && row->origin[0] == '\0';
  return GD_OK;
}

enum gd_status gd_best_missing(struct gd_store *store, const struct gd_best_asked *asked,
                               int *missing, struct gd_error *err) {
  static const enum gd_trial_status failed = GD_TRIAL_FAILED;
  struct gd_store_filter filter = *asked->filter;
  char recipe[GD_HASH_TEXT];
  int found = 0;
  GD_TRY(gd_recipe_hash(asked->model, asked->precision, recipe, err));
  filter.model = NULL;
  filter.recipe = recipe;
  filter.status = &failed;
  filter.brief = true;
  GD_TRY(gd_store_query(store, &filter, count_missing, &found, err));
  *missing = found;
  return GD_OK;
}

void gd_store_note_left_out(const struct gd_store *store, struct gd_strbuf *notes) {
  const char *sentence;
  int64_t damaged = gd_store_damage(store, &sentence);
  if (damaged > 0)
    gd_strbuf_printf(notes,
                     "%" PRId64 " trial%s left out: %s; restore a copy of it, or go on without "
                     "that trial\n",
                     damaged, damaged == 1 ? " was" : "s were", sentence);
  if (gd_store_is_full(store))
    gd_strbuf_printf(
        notes,
        "the disk of %s is full: what is stored can be read, and nothing can be added; "
        "free some space\n",
        gd_store_path(store));
}

struct finding {
  const char *backend;
  int ranks;
  char *method; /* "": not found yet */
};

static enum gd_status take_method(void *user, const struct gd_store_row *row,
                                  struct gd_error *err) {
  struct finding *finding = user;
  (void)err;
  bool naive = strncmp(row->trial.method, "naive", 5) == 0; /* to compare with: nobody's choice */
  if (!finding->method[0] && !naive && strcmp(row->trial.backend, finding->backend) == 0 &&
      row->trial.ranks == finding->ranks)
    snprintf(finding->method, GD_METHOD_NAME, "%s", row->trial.method);
  return GD_OK;
}

bool gd_best_method(const char *store_path, const struct gd_best_asked *asked, const char *backend,
                    int ranks, char name[GD_METHOD_NAME]) {
  struct finding finding = {.backend = backend, .ranks = ranks, .method = name};
  struct gd_store *store = NULL;
  struct gd_error unused = {0};
  name[0] = '\0';
  bool found = gd_store_open(store_path, &store, &unused) == GD_OK &&
               gd_best_query(store, asked, take_method, &finding, &unused) == GD_OK;
  gd_store_close(store);
  return found && name[0];
}
