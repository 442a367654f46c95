/*
 * Presets in the place of a model that is only known by its size; see stand_in.h.
 */
#include "search/stand_in.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- who stands in ------------------------------------------------------------------------- */

struct candidate {
  struct gd_model model;
  double active, apart; /* |log| of N over the outline's */
};

static int compare(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  if (x->apart < y->apart || x->apart > y->apart)
    return x->apart < y->apart ? -1 : 1;
  return strcmp(x->model.name, y->model.name);
}

/* The outline's batch and sequence, and steps of as many FLOPs as it has. */
static void set_recipe(const struct gd_outline *outline, struct candidate *of) {
  struct gd_recipe *recipe = &of->model.recipe;
  recipe->batch = outline->recipe.batch;
  if (!of->model.family->images)
    recipe->seq = outline->recipe.seq;
  recipe->precision = outline->recipe.precision;
  double per_step = 6 * of->active * (double)recipe->batch * (double)recipe->seq;
  double steps = ceil(gd_outline_flops(outline) / per_step);
  recipe->steps = steps < 1 ? 1 : steps < 1e9 ? (int64_t)steps : 1000000000;
  recipe->warmup_steps = 0;
}

/* False: it is of another kind, cannot be read, or has no such sequence. */
static bool make_candidate(const char *name, const struct gd_outline *outline,
                           struct candidate *of) {
  bool attends, causal;
  if (gd_model_load(name, &of->model, NULL) != GD_OK || of->model.family->images != outline->images)
    return false;
  if (!outline->images)
    of->model.recipe.seq = outline->recipe.seq;
  if (gd_model_active_parameters(&of->model, &of->active, &attends, NULL) != GD_OK || !attends ||
      gd_model_is_causal(&of->model, &causal, NULL) != GD_OK || (!causal && !outline->images))
    return false;
  of->apart = fabs(log(of->active / outline->active));
  set_recipe(outline, of);
  return true;
}

enum gd_status gd_stand_ins_find(const struct gd_outline *outline, struct gd_stand_ins *in,
                                 struct gd_error *err) {
  struct gd_arena arena = {0};
  const char *const *names;
  struct candidate *list = NULL;
  int count, found = 0;
  *in = (struct gd_stand_ins){0};
  enum gd_status status = gd_model_list(&arena, &names, &count, err);
  if (status == GD_OK) {
    list = gd_arena_alloc(&arena, (size_t)count + 1, sizeof *list);
    if (!list)
      status = gd_nomem(err, "while looking for comparable presets");
  }
  for (int i = 0; status == GD_OK && i < count; i++)
    found += make_candidate(names[i], outline, &list[found]);
  if (status == GD_OK && found == 0)
    status = gd_fail(err, GD_UNSUPPORTED,
                     "no preset has sequences of %lld tokens, so that nothing stands in for %s; "
                     "choose a shorter --seq",
                     (long long)outline->recipe.seq, outline->name);
  if (status == GD_OK)
    qsort(list, (size_t)found, sizeof *list, compare);
  for (int i = 0; status == GD_OK && i < found && i < GD_STAND_INS; i++) {
    in->models[i] = list[i].model;
    in->active[i] = list[i].active;
    in->count++;
  }
  gd_arena_deinit(&arena);
  return status;
}

double gd_stand_ins_distance(const struct gd_stand_ins *in, const struct gd_outline *outline) {
  return exp(fabs(log(in->active[0] / outline->active)));
}

/* --- their days ---------------------------------------------------------------------------- */

void gd_stand_ins_best(const struct gd_stand_ins *in, const struct gd_point *points, int each,
                       struct gd_stand_in_answer answers[GD_STAND_INS]) {
  for (int i = 0; i < in->count; i++) {
    struct gd_stand_in_answer *answer = &answers[i];
    const struct gd_point *best = gd_points_best(&points[i * each], each);
    *answer = (struct gd_stand_in_answer){.fits = best};
    if (!best)
      continue;
    snprintf(answer->method, sizeof answer->method, "%s", best->trial.method);
    const struct gd_prediction *p = &best->prediction;
    if (p->known) {
      answer->days = p->days;
      answer->low = p->days_low;
      answer->high = p->days_high;
      answer->power_w = p->power_w;
    }
  }
}

/* What fits, by offloading, though the state of this size does not: N of at least nearly as much.
 */
#define LIKE_SIZE 0.9

/* Whether the state alone, however it is split, is more than the GPUs hold, and where it goes then
   is not known from a model of that size. */
static bool is_too_large(const struct gd_stand_ins *in, const struct gd_outline *outline,
                         const struct gd_stand_in_answer *answers, struct gd_stand_in_place place) {
  if (place.memory_bytes <= 0 ||
      GD_STATE_BYTES_LOW * outline->parameters / place.count <= place.memory_bytes)
    return false;
  for (int i = 0; i < in->count; i++)
    if (answers[i].fits && in->active[i] >= LIKE_SIZE * outline->parameters)
      return false;
  return true;
}

void gd_stand_ins_days(const struct gd_stand_ins *in, const struct gd_outline *outline,
                       const struct gd_stand_in_answer answers[GD_STAND_INS],
                       struct gd_stand_in_place place, struct gd_stand_in_days *days) {
  double logs = 0, watts = 0;
  int known = 0, powered = 0;
  size_t length = 0;
  *days = (struct gd_stand_in_days){.too_large = is_too_large(in, outline, answers, place)};
  for (int i = 0; i < in->count; i++) {
    const struct gd_stand_in_answer *answer = &answers[i];
    if (!answer->fits)
      continue;
    days->fitting++;
    if (length < sizeof days->names)
      length += (size_t)snprintf(days->names + length, sizeof days->names - length, "%s%s (%s)",
                                 length ? ", " : "", in->models[i].name, answer->method);
    if (answer->days <= 0 || days->too_large)
      continue;
    logs += log(answer->days);
    days->low = known == 0 ? answer->low : fmin(days->low, answer->low);
    days->high = fmax(days->high, answer->high);
    known++;
    if (answer->power_w > 0) {
      watts += answer->power_w;
      powered++;
    }
  }
  days->days = known > 0 ? exp(logs / known) : 0;
  days->power_w = powered > 0 ? watts / powered : 0;
}
