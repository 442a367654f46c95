/*
 * Remedies for what does not fit; see remedies.h.
 */
#include "search/remedies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

enum { MOST_GPUS = 512, LEAST_SEQ = 128, MOST_GPU_KINDS = 64, MOST_FOUND = 8 };
static const int64_t no_limit = INT64_MAX / 4;

struct finding {
  const struct gd_remedies_asked *asked;
  struct gd_points_kept *kept; /* graphs of the model as it is */
  struct gd_remedy found[MOST_FOUND];
  int count;
};

/* The best of all methods on that machine; *fits false: none does. */
static enum gd_status try_question(struct gd_points_kept *kept, const struct gd_points_asked *like,
                                   const struct gd_model *model, const struct gd_target *target,
                                   const struct gd_predictor *predictor, struct gd_remedy *remedy,
                                   bool *fits, struct gd_error *err) {
  struct gd_method methods[GD_METHODS_MOST];
  struct gd_points points = {0};
  struct gd_point_machine machine = like->machines[0];
  struct gd_points_asked asked = *like;
  int ranks = target ? target->count : asked.options.ranks;
  asked.models = model;
  asked.identities = NULL;
  asked.methods = methods;
  asked.n_methods = gd_method_space(ranks > 1, methods);
  asked.machines = &machine;
  if (target) {
    machine = (struct gd_point_machine){.target = target, .predictor = predictor};
    asked.options.ranks = target->count;
    asked.options.nodes = target->nodes;
  }
  enum gd_status status = gd_points_make(&asked, &points, err);
  if (status == GD_OK)
    status = gd_points_plan_with(kept, points.all, points.count, err);
  const struct gd_point *best = status == GD_OK ? gd_points_best(points.all, points.count) : NULL;
  *fits = best != NULL;
  if (best) {
    remedy->days = best->prediction.known ? best->prediction.days : 0;
    remedy->host_bytes = best->trial.host_bytes;
    snprintf(remedy->method, sizeof remedy->method, "%s", best->trial.method);
  }
  gd_points_free(&points);
  return status;
}

static void keep_found(struct finding *finding, const struct gd_remedy *remedy) {
  if (finding->count < MOST_FOUND)
    finding->found[finding->count++] = *remedy;
}

static struct gd_remedy remedy_of(const struct finding *finding, enum gd_remedy_kind kind) {
  const struct gd_target *target = finding->asked->target;
  return (struct gd_remedy){.kind = kind,
                            .count = target ? target->count : finding->asked->points->options.ranks,
                            .gpu = target ? target->gpu : NULL};
}

static enum gd_status try_methods(struct finding *finding, struct gd_error *err) {
  const struct gd_points_asked *points = finding->asked->points;
  struct gd_remedy remedy = remedy_of(finding, GD_REMEDY_METHOD);
  bool fits;
  if (!finding->asked->named)
    return GD_OK;
  GD_TRY(try_question(finding->kept, points, points->models, finding->asked->target,
                      points->machines[0].predictor, &remedy, &fits, err));
  if (fits)
    keep_found(finding, &remedy);
  return GD_OK;
}

/* What offloading would need, where that is all that is missing. */
static enum gd_status try_host(struct finding *finding, struct gd_error *err) {
  struct gd_points_asked points = *finding->asked->points;
  struct gd_remedy remedy = remedy_of(finding, GD_REMEDY_HOST);
  const int64_t gib = 1 << 30;
  bool fits;
  if (!finding->asked->target || points.options.host_limit_bytes > 0)
    return GD_OK;
  points.options.host_limit_bytes = no_limit;
  GD_TRY(try_question(finding->kept, &points, points.models, finding->asked->target,
                      points.machines[0].predictor, &remedy, &fits, err));
  remedy.host_bytes = (remedy.host_bytes + gib - 1) / gib * gib;
  if (fits)
    keep_found(finding, &remedy);
  return GD_OK;
}

/* Plans on count GPUs of a kind, with their own predictor. */
static enum gd_status try_target(struct finding *finding, const char *gpu, int count,
                                 struct gd_remedy *remedy, bool *fits, struct gd_error *err) {
  const struct gd_points_asked *points = finding->asked->points;
  const struct gd_target *like = finding->asked->target;
  struct gd_target target;
  struct gd_predictor predictor = {0};
  *fits = false;
  if (gd_hw_target(finding->asked->hw, gpu, count, 0, NULL, NULL, &target, NULL) != GD_OK)
    return GD_OK; /* no such machines: no remedy */
  target.calibration = gpu == like->gpu->name ? like->calibration : NULL;
  GD_TRY(gd_predictor_for_target(&predictor, &target, err));
  enum gd_status status =
      try_question(finding->kept, points, points->models, &target, &predictor, remedy, fits, err);
  gd_predictor_deinit(&predictor);
  remedy->count = count;
  return status;
}

/* The fewest of the same GPUs, doubled until it fits. */
static enum gd_status try_counts(struct finding *finding, struct gd_error *err) {
  const struct gd_target *target = finding->asked->target;
  int64_t batch = finding->asked->points->models[0].recipe.batch;
  bool fits = false;
  if (!target)
    return GD_OK;
  for (int count = 2 * target->count; !fits && count <= MOST_GPUS && batch % count == 0;
       count *= 2) {
    struct gd_remedy remedy = remedy_of(finding, GD_REMEDY_COUNT);
    GD_TRY(try_target(finding, target->gpu->name, count, &remedy, &fits, err));
    if (fits)
      keep_found(finding, &remedy);
  }
  return GD_OK;
}

/* Half the length at twice the batch, so that a step has as many tokens. */
static bool halve_length(struct gd_model *model) {
  if (model->recipe.seq / 2 < LEAST_SEQ)
    return false;
  model->recipe.seq /= 2;
  model->recipe.batch *= 2;
  return true;
}

static enum gd_status try_length(struct finding *finding, const struct gd_model *model,
                                 struct gd_remedy *remedy, bool *fits, struct gd_error *err) {
  const struct gd_points_asked *points = finding->asked->points;
  *remedy = remedy_of(finding, GD_REMEDY_SEQ);
  GD_TRY(try_question(NULL, points, model, finding->asked->target, points->machines[0].predictor,
                      remedy, fits, err));
  remedy->seq = model->recipe.seq;
  remedy->batch = model->recipe.batch;
  return GD_OK;
}

/* The longest that fits. The shortest is tried first: where even that does not fit, as weights and
   gradients are too large, none does. */
static enum gd_status try_lengths(struct finding *finding, struct gd_error *err) {
  struct gd_model model = finding->asked->points->models[0], shortest = model;
  struct gd_remedy remedy;
  bool fits = false;
  if (model.family->images || !halve_length(&shortest))
    return GD_OK;
  while (halve_length(&shortest)) {
  }
  GD_TRY(try_length(finding, &shortest, &remedy, &fits, err));
  if (!fits)
    return GD_OK;
  fits = false;
  while (!fits && halve_length(&model) && model.recipe.seq > shortest.recipe.seq) {
    struct gd_remedy longer;
    GD_TRY(try_length(finding, &model, &longer, &fits, err));
    if (fits)
      remedy = longer;
  }
  keep_found(finding, &remedy);
  return GD_OK;
}

static int compare_memory(const void *left, const void *right) {
  const struct gd_gpu *const *a = left, *const *b = right;
  return (*a)->memory_bytes < (*b)->memory_bytes ? -1 : (*a)->memory_bytes > (*b)->memory_bytes;
}

/* The GPU with the least memory on which it fits, as many as were asked for. */
static enum gd_status try_gpus(struct finding *finding, struct gd_error *err) {
  const struct gd_target *target = finding->asked->target;
  const struct gd_gpu *gpus[MOST_GPU_KINDS];
  int count = 0;
  bool fits = false;
  if (!target || finding->asked->fixed_memory)
    return GD_OK;
  for (int i = 0; i < finding->asked->hw->n_gpus && count < MOST_GPU_KINDS; i++) {
    const struct gd_gpu *gpu = &finding->asked->hw->gpus[i];
    if (gpu->memory_bytes > target->gpu->memory_bytes && gpu->compute_capability >= GD_GPU_OLDEST)
      gpus[count++] = gpu;
  }
  /* NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers */
  qsort(gpus, (size_t)count, sizeof gpus[0], compare_memory);
  for (int i = 0; i < count && !fits; i++) {
    struct gd_remedy remedy = remedy_of(finding, GD_REMEDY_GPU);
    if (i > 0 && gpus[i]->memory_bytes == gpus[i - 1]->memory_bytes)
      continue; /* as much as the one before, which was not enough */
    remedy.gpu = gpus[i];
    GD_TRY(try_target(finding, gpus[i]->name, target->count, &remedy, &fits, err));
    if (fits)
      keep_found(finding, &remedy);
  }
  return GD_OK;
}

/* How long the point would take if memory were no matter: what remedies are compared with. */
static enum gd_status find_days(struct finding *finding, double *days, struct gd_error *err) {
  struct gd_points points = {0};
  struct gd_points_asked asked = *finding->asked->points;
  asked.options.device_limit_bytes = asked.options.host_limit_bytes = no_limit;
  enum gd_status status = gd_points_make(&asked, &points, err);
  if (status == GD_OK)
    status = gd_points_plan_with(finding->kept, points.all, points.count, err);
  const struct gd_point *best = status == GD_OK ? gd_points_best(points.all, points.count) : NULL;
  if (best && best->prediction.known)
    *days = best->prediction.days;
  gd_points_free(&points);
  return status;
}

static int compare_days(const void *left, const void *right) {
  const struct gd_remedy *a = left, *b = right;
  return a->days < b->days ? -1 : a->days > b->days;
}

enum gd_status gd_remedies_find(const struct gd_remedies_asked *asked, struct gd_remedies *remedies,
                                struct gd_error *err) {
  struct finding finding = {.asked = asked, .kept = gd_points_kept_new()};
  *remedies = (struct gd_remedies){0};
  if (!finding.kept)
    return gd_nomem(err, "while looking for what fits");
  enum gd_status status = find_days(&finding, &remedies->days, err);
  if (status == GD_OK)
    status = try_methods(&finding, err);
  if (status == GD_OK && finding.count == 0)
    status = try_host(&finding, err);
  if (status == GD_OK)
    status = try_lengths(&finding, err);
  if (status == GD_OK)
    status = try_counts(&finding, err);
  if (status == GD_OK && finding.count < GD_REMEDIES_MOST)
    status = try_gpus(&finding, err);
  gd_points_kept_free(finding.kept);
  if (finding.count > 1)
    qsort(finding.found, (size_t)finding.count, sizeof *finding.found, compare_days);
  for (; status == GD_OK && remedies->count < finding.count && remedies->count < GD_REMEDIES_MOST;
       remedies->count++)
    remedies->list[remedies->count] = finding.found[remedies->count];
  return status;
}
