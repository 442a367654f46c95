/*
 * The good trials of a model, fastest first; see best.h.
 */
#include "cli/best.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

enum { MOST_RECIPES = 4, PART_TEXT = 512 };

struct choosing {
  gd_store_visit visit;
  void *user;
  int64_t same_recipe, other_recipes, unknown_recipes;
  struct { /* the first few of the others */
    struct gd_recipe sizes;
    int64_t trials;
  } others[MOST_RECIPES];
  int n_others;
  enum gd_precision precision, own; /* that was asked for; the preset's, of a trial with another in
                                       its place */
};

static enum gd_status choose(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct choosing *choosing = user;
  choosing->same_recipe++;
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

/* " with --ranks 2 --device a100": what was asked of trials beside the recipe. */
static void describe_filter(char text[PART_TEXT], const struct gd_store_filter *filter) {
  const struct {
    const char *name, *value;
  } texts[] = {{"method", filter->method},
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
static enum gd_status fail_none(const struct gd_cli *cli, const struct gd_model *model,
                                const struct choosing *choosing, int64_t filtered,
                                const struct gd_store_filter *filter, struct gd_error *err) {
  char asked[PART_TEXT] = "", others[PART_TEXT] = ":", unknown[96] = "", without[96] = "";
  char ranks[24] = "", recipe[GD_CLI_RECIPE_TEXT];
  if (filter->ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", filter->ranks);
  describe_filter(asked, filter);
  describe_others(others, model, choosing);
  if (choosing->unknown_recipes > 0)
    snprintf(unknown, sizeof unknown,
             "%s %" PRId64 " of an unknown recipe ('gpudays results' lists them)",
             choosing->other_recipes > 0 ? "," : "", choosing->unknown_recipes);
  if (filtered > 0)
    snprintf(without, sizeof without, "; without %s there %s %" PRId64,
             strstr(asked + 1, " --") ? "those" : "that", filtered == 1 ? "is" : "are", filtered);
  bool other = choosing->other_recipes + choosing->unknown_recipes > 0;
  return gd_fail(err, GD_MISMATCH,
                 "no good trial of %s%s%s%s is stored%s%s%s; gpudays bench %s%s --methods %s%s",
                 model->name, other ? " with this recipe" : "",
                 asked[0] ? other ? " and" : " with" : "", asked, other ? others : "", unknown,
                 without, cli->arguments[0], gd_cli_recipe_options(cli, recipe, sizeof recipe),
                 filter->method ? filter->method : "all", ranks);
}

enum gd_status gd_best_query(const struct gd_cli *cli, struct gd_store *store,
                             const struct gd_model *model, const struct gd_store_filter *filter,
                             gd_store_visit visit, void *user, struct gd_error *err) {
  static const enum gd_trial_status ok = GD_TRIAL_OK;
  const enum gd_precision *given = gd_cli_precision(cli);
  struct choosing choosing = {.visit = visit,
                              .user = user,
                              .precision = given ? *given : model->recipe.precision,
                              .own = model->recipe.precision};
  struct gd_store_filter all = *filter;
  char recipe[GD_HASH_TEXT];
  int64_t filtered = 0;
  GD_TRY(gd_recipe_hash(model, given, recipe, err));
  all.model = NULL;
  all.recipe = recipe;
  all.status = &ok;
  all.sort = GD_STORE_SORT_DAYS;
  GD_TRY(gd_store_query(store, &all, choose, &choosing, err));
  if (choosing.same_recipe > 0)
    return GD_OK;
  all.recipe = NULL;
  all.model_name = model->name;
  all.brief = true;
  GD_TRY(gd_store_query(store, &all, count_others, &choosing, err));
  if (choosing.other_recipes + choosing.unknown_recipes == 0) {
    all = (struct gd_store_filter){.model_name = model->name, .status = &ok, .brief = true};
    GD_TRY(gd_store_query(store, &all, count_any, &filtered, err));
  }
  return fail_none(cli, model, &choosing, filtered, filter, err);
}
