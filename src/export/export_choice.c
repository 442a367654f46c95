/*
 * Which trial is exported; see export_choice.h.
 */
#include "export/export_choice.h"

#include <stdio.h>
#include <string.h>

struct first {
  struct gd_trial *trial;
  bool found;
};

static enum gd_status keep_first(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct first *first = user;
  (void)err;
  if (!first->found)
    *first->trial = row->trial;
  first->found = true;
  return GD_OK;
}

/* The fastest stored trial; method NULL: whatever its method. */
static enum gd_status read_best(const struct gd_export_choice *choice, const char *method,
                                struct gd_trial *trial, struct gd_error *err) {
  struct gd_store *store = NULL;
  struct gd_store_filter filter = *choice->best->filter;
  struct gd_best_asked asked = *choice->best;
  struct first first = {.trial = trial};
  asked.filter = &filter;
  filter.method = method;
  filter.brief = true;
  GD_TRY(gd_store_open(choice->store, &store, err));
  enum gd_status status = gd_best_query(store, &asked, keep_first, &first, err);
  if (status == GD_OK && asked.notes)
    gd_store_note_left_out(store, asked.notes);
  gd_store_close(store);
  return status;
}

/* The point as it fits this machine, or the memory that was named. */
static enum gd_status plan_point(const struct gd_export_choice *choice,
                                 const struct gd_method *method, struct gd_trial *trial,
                                 struct gd_error *err) {
  struct gd_trial_options options = choice->plan;
  struct gd_error verdict = {0};
  char name[GD_METHOD_NAME], ranks[24] = "";
  struct gd_place place;
  options.method = *method;
  GD_TRY(gd_place_find(options.backend, &(struct gd_backend_options){.threads = options.threads},
                       &place, err));
  options.place = &place;
  gd_options_share(&options, gd_place_shared_bytes(&place));
  *trial = (struct gd_trial){0};
  GD_TRY(gd_trial_plan(choice->model, &options, trial, err));
  if (gd_trial_verdict(trial, &verdict) != GD_OK)
    return gd_fail(err, verdict.status, "%s", verdict.text);
  if (trial->ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", trial->ranks);
  if (choice->best->notes)
    gd_strbuf_printf(choice->best->notes,
                     "micro-batch %lld is planned, not measured; 'gpudays bench %s%s --methods "
                     "%s%s --micro-batch %lld' measures it\n",
                     (long long)trial->micro_batch, choice->best->argument,
                     choice->best->recipe_options, gd_method_name(method, name), ranks,
                     (long long)trial->micro_batch);
  return GD_OK;
}

enum gd_status gd_export_choose(const struct gd_export_choice *choice, struct gd_trial *trial,
                                struct gd_error *err) {
  const struct gd_trial_options *plan = &choice->plan;
  const struct gd_store_filter *filter = choice->best->filter;
  bool planned = plan->device_limit_bytes || plan->host_limit_bytes ||
                 plan->micro_batch != GD_MICRO_BATCH_AUTO;
  struct gd_error missing = {0};
  struct gd_method method;
  char name[GD_METHOD_NAME];
  if (!choice->method && planned)
    return gd_fail(err, GD_BAD_INPUT,
                   "--device-memory, --host-memory and --micro-batch make a new plan; add its "
                   "method with --methods");
  if (!choice->method)
    return read_best(choice, NULL, trial, err);
  if (strchr(choice->method, ',') || strcmp(choice->method, "all") == 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "export takes one method, such as --methods free-lunch+ckpt+zero2; without "
                   "--methods it is the best");
  GD_TRY(gd_method_parse(choice->method, &method, err));
  if (!planned) {
    enum gd_status status = read_best(choice, gd_method_name(&method, name), trial, &missing);
    if (status != GD_MISMATCH || filter->device || filter->host || filter->since || filter->id)
      return status == GD_OK ? GD_OK : gd_fail(err, status, "%s", missing.text);
  }
  return plan_point(choice, &method, trial, err);
}
