/*
 * Points are planned in groups that share a model and a method; threads take groups from a common
 * counter, so that a slow one delays nobody. See points.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "search/points.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "base/cpus.h"
#include "base/mem.h"
#include "base/switches.h"
#include "pass/graph_cache.h"
#include "trial/agree.h"

enum { MOST_THREADS = 16 };

/* --- making -------------------------------------------------------------------------------- */

static void set_point(const struct gd_points_asked *asked, int model, int method, int machine,
                      struct gd_point *point) {
  const struct gd_point_machine *at = &asked->machines[machine];
  point->model = &asked->models[model];
  point->argument = asked->arguments ? asked->arguments[model] : point->model->name;
  point->options = asked->options;
  point->options.method = asked->methods[method];
  point->options.target = at->target;
  point->options.place = at->place;
  point->predictor = at->predictor;
  gd_options_share(&point->options, at->shared_bytes);
}

enum gd_status gd_points_make(const struct gd_points_asked *asked, struct gd_points *points,
                              struct gd_error *err) {
  int count = asked->n_models * asked->n_methods * asked->n_machines, at = 0;
  *points = (struct gd_points){0};
  points->all = gd_mem_alloc((size_t)count + 1, sizeof *points->all);
  points->identities = gd_mem_alloc((size_t)asked->n_models + 1, sizeof *points->identities);
  if (!points->all || !points->identities)
    return gd_nomem(err, "before the first plan");
  points->count = count;
  for (int model = 0; model < asked->n_models; model++) {
    /* A model that cannot be built says so when it is planned. */
    struct gd_model_identity *identity = &points->identities[model];
    bool known =
        asked->identities || gd_model_identify(&asked->models[model], identity, NULL) == GD_OK;
    if (asked->identities)
      *identity = asked->identities[model];
    for (int method = 0; method < asked->n_methods; method++)
      for (int machine = 0; machine < asked->n_machines; machine++, at++) {
        set_point(asked, model, method, machine, &points->all[at]);
        points->all[at].options.identity = known ? identity : NULL;
        points->all[at].number = at;
      }
  }
  return GD_OK;
}

void gd_points_free(struct gd_points *points) {
  gd_mem_free(points->all);
  gd_mem_free(points->identities);
  *points = (struct gd_points){0};
}

int gd_points_threads(int ranks) {
  if (ranks <= 1 || gd_env("OMP_NUM_THREADS"))
    return 0;
  int cores = gd_cpus(ranks) / ranks;
  return cores > 1 ? cores : 1;
}

/* --- several of them ------------------------------------------------------------------------ */

/* Models in the order asked for; of each the shortest first, and last what does not fit. */
static int compare_points(const void *left, const void *right) {
  const struct gd_point *a = left, *b = right;
  bool a_fits = a->trial.status != GD_TRIAL_INFEASIBLE;
  bool b_fits = b->trial.status != GD_TRIAL_INFEASIBLE;
  if (a->model != b->model)
    return a->model < b->model ? -1 : 1;
  if (a_fits != b_fits)
    return a_fits ? -1 : 1;
  if (a_fits &&
      (a->prediction.days < b->prediction.days || a->prediction.days > b->prediction.days))
    return a->prediction.days < b->prediction.days ? -1 : 1;
  return a->number - b->number;
}

void gd_points_rank(struct gd_point *points, int count) {
  qsort(points, (size_t)count, sizeof *points, compare_points);
}

static bool fits(const struct gd_point *point) {
  return point->status == GD_OK && point->trial.status != GD_TRIAL_INFEASIBLE;
}

int gd_points_count_parts(const struct gd_method *method) {
  int count = 0;
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++)
    if (gd_method_row((enum gd_method_part_id)i)->group != GD_GROUP_FREE_LUNCH)
      count += gd_method_has(method, (enum gd_method_part_id)i) > 0;
  return count;
}

const struct gd_point *gd_points_best_of(const struct gd_point *points, int count, int stride) {
  const struct gd_point *best = NULL;
  double least_days = (double)INFINITY;
  for (int i = 0; i < count; i += stride)
    if (fits(&points[i]) && points[i].prediction.days < least_days)
      least_days = points[i].prediction.days;
  for (int i = 0; i < count; i += stride) {
    const struct gd_point *point = &points[i];
    if (!fits(point) || point->prediction.days > GD_POINTS_NEAR * least_days)
      continue;
    int more = best ? gd_points_count_parts(&point->options.method) -
                          gd_points_count_parts(&best->options.method)
                    : -1;
    if (more < 0 || (more == 0 && point->prediction.days < best->prediction.days))
      best = point;
  }
  return best;
}

const struct gd_point *gd_points_best(const struct gd_point *points, int count) {
  return gd_points_best_of(points, count, 1);
}

const struct gd_point *gd_points_nearest(const struct gd_point *points, int count) {
  const struct gd_point *nearest = NULL;
  double least = (double)INFINITY;
  for (int i = 0; i < count; i++) {
    struct gd_trial_need need = gd_trial_need(&points[i].trial);
    double share =
        need.limit_bytes > 0 ? (double)need.bytes / (double)need.limit_bytes : (double)INFINITY;
    if (points[i].status == GD_OK && points[i].trial.status == GD_TRIAL_INFEASIBLE &&
        (!nearest || share < least)) {
      nearest = &points[i];
      least = share;
    }
  }
  return nearest;
}

/*
 * Options are each rank's own under one's own mpirun. Those that decide which trials there are, and
 * for which run, are compared before the first one: the rest is by each trial.
 */
enum gd_status gd_points_agree(const struct gd_points_asked *asked, bool simulate, bool fast,
                               struct gd_comm *comm, struct gd_error *err) {
  const struct gd_recipe *first = &asked->models[0].recipe;
  uint64_t models = 0, methods = 0, recipes = 0, definitions = 0;
  char name[GD_METHOD_NAME];
  for (int i = 0; i < asked->n_methods; i++)
    methods = gd_cache_hash_text(methods, gd_method_name(&asked->methods[i], name));
  for (int i = 0; i < asked->n_models; i++) {
    const struct gd_recipe *recipe = &asked->models[i].recipe;
    int64_t facts[] = {recipe->batch, recipe->seq, recipe->steps, (int64_t)recipe->optimizer};
    models = gd_cache_hash_text(models, asked->models[i].name);
    recipes = gd_cache_hash(recipes, facts, sizeof facts);
    int64_t definition = gd_agree_model_hash(&asked->models[i]);
    definitions = gd_cache_hash(definitions, &definition, sizeof definition);
  }
  const struct gd_term terms[] = {
      {"list of models", (int64_t)models, false},
      {"list of methods", (int64_t)methods, false},
      {"batch", first->batch, true},
      {"sequence length", first->seq, true},
      {"number of steps", first->steps, true},
      {"optimizer", (int64_t)first->optimizer, false},
      {"recipe", (int64_t)recipes, false},
      {GD_TERM_MODEL, (int64_t)definitions, false},
      {"--simulate", simulate, true},
      {"--fast", fast, true},
  };
  return gd_agree_terms(comm, terms, sizeof terms / sizeof *terms, err);
}

/* --- failures ------------------------------------------------------------------------------ */

/* Whether a failure of that kind lies in the machine and not in the trial: it may go away. */
static bool may_succeed_later(enum gd_status status) {
  return status == GD_ENVIRONMENT || status == GD_NOMEM_DEVICE || status == GD_NOMEM_HOST ||
         status == GD_MISMATCH;
}

void gd_point_set_failure(struct gd_point *point) {
  struct gd_trial *trial = &point->trial;
  trial->failure = trial->status != GD_TRIAL_FAILED   ? GD_FAILURE_NONE
                   : may_succeed_later(point->status) ? GD_FAILURE_ENVIRONMENT
                   : point->status == GD_INTERNAL     ? GD_FAILURE_CRASH
                                                      : GD_FAILURE_PLAN;
}

/* For that reason, before it has run. */
static void fail_point(struct gd_point *point, const struct gd_error *error) {
  point->status = error->status;
  point->source = GD_SEARCH_PLAN;
  point->trial.status = GD_TRIAL_FAILED;
  snprintf(point->trial.model, sizeof point->trial.model, "%s", point->model->name);
  gd_method_name(&point->options.method, point->trial.method);
  snprintf(point->trial.reason, sizeof point->trial.reason, "%s", error->text);
  gd_point_set_failure(point);
}

enum gd_status gd_points_error(const struct gd_point *points, int count, bool refused,
                               struct gd_error *err) {
  for (int i = 0; i < count; i++) {
    enum gd_status status = points[i].status;
    if (status != GD_OK && (refused || (status != GD_BAD_INPUT && status != GD_UNSUPPORTED)))
      return gd_fail(err, status, "%s", points[i].trial.reason);
  }
  return GD_OK;
}

bool gd_point_same_failure(const struct gd_point *a, const struct gd_point *b) {
  return a->source != GD_SEARCH_PENDING && b->source != GD_SEARCH_PENDING &&
         a->trial.status != GD_TRIAL_OK && a->trial.status == b->trial.status &&
         strcmp(a->trial.reason, b->trial.reason) == 0;
}

/* --- planning ------------------------------------------------------------------------------ */

struct group {
  struct gd_point *points;
  int count;
  struct gd_planner *planner; /* kept; NULL: it gets one of its own */
};

/* A planner for each model, method and number of ranks. */
struct gd_points_kept {
  struct gd_graph_cache *graphs;
  struct kept_planner {
    const struct gd_model *model;
    char method[GD_METHOD_NAME];
    int ranks;
    int call; /* that it was used in last */
    struct gd_planner *planner;
  } * list; /* in gd_mem */
  uint32_t count, capacity;
  int calls;
};

struct work {
  struct group *groups;
  int count;
  struct gd_graph_cache *graphs; /* of all of them */
  atomic_int next;
};

struct gd_points_kept *gd_points_kept_new(void) {
  struct gd_points_kept *kept = gd_mem_alloc(1, sizeof *kept);
  if (kept)
    kept->graphs = gd_graph_cache_new();
  return kept;
}

void gd_points_kept_free(struct gd_points_kept *kept) {
  if (!kept)
    return;
  for (uint32_t i = 0; i < kept->count; i++)
    gd_planner_free(kept->list[i].planner);
  gd_mem_free(kept->list);
  gd_graph_cache_free(kept->graphs);
  gd_mem_free(kept);
}

/* One that no other group of this call has: a method may be named twice. */
static struct gd_planner *find_planner(struct gd_points_kept *kept, const struct gd_point *point) {
  struct kept_planner wanted = {
      .model = point->model, .ranks = point->options.ranks, .call = kept->calls};
  gd_method_name(&point->options.method, wanted.method);
  for (uint32_t i = 0; i < kept->count; i++) {
    struct kept_planner *at = &kept->list[i];
    if (at->model == wanted.model && at->ranks == wanted.ranks && at->call != wanted.call &&
        strcmp(at->method, wanted.method) == 0) {
      at->call = wanted.call;
      return at->planner;
    }
  }
  if (!gd_vec_reserve((void **)&kept->list, &kept->capacity, kept->count + 1, sizeof *kept->list))
    return NULL;
  wanted.planner = gd_planner_new(point->model);
  if (wanted.planner)
    kept->list[kept->count++] = wanted;
  return wanted.planner;
}

/* One planner for all of them: what a graph needs does not depend on the memory of a GPU. */
static void plan_group(const struct group *group, struct gd_graph_cache *graphs) {
  struct gd_planner *own = group->planner ? NULL : gd_planner_new(group->points[0].model);
  struct gd_planner *planner = group->planner ? group->planner : own;
  for (int i = 0; i < group->count; i++) {
    struct gd_point *point = &group->points[i];
    struct gd_error error = {0};
    point->options.graphs = graphs;
    point->status = planner ? gd_planner_predict(planner, &point->options, point->predictor,
                                                 &point->trial, &point->prediction, &error)
                            : gd_nomem(&error, "before the first plan");
    if (point->status != GD_OK)
      fail_point(point, &error);
    else if (point->trial.status == GD_TRIAL_INFEASIBLE)
      point->source = GD_SEARCH_PLAN;
  }
  for (int i = 0; i < group->count; i++)
    group->points[i].options.graphs = NULL; /* they are gone when all is planned */
  gd_planner_free(own);
}

static void *take_groups(void *argument) {
  struct work *work = argument;
  for (int i; (i = atomic_fetch_add(&work->next, 1)) < work->count;)
    plan_group(&work->groups[i], work->graphs);
  return NULL;
}

static int thread_count(int groups) {
  int cpus = gd_cpus(1);
  int most = cpus < MOST_THREADS ? cpus : MOST_THREADS;
  return groups < most ? groups : most;
}

static bool is_alike(const struct gd_point *a, const struct gd_point *b) {
  char left[GD_METHOD_NAME], right[GD_METHOD_NAME];
  return a->model == b->model && a->options.target && b->options.target &&
         strcmp(gd_method_name(&a->options.method, left),
                gd_method_name(&b->options.method, right)) == 0;
}

enum gd_status gd_points_plan_with(struct gd_points_kept *kept, struct gd_point *points, int count,
                                   struct gd_error *err) {
  pthread_t threads[MOST_THREADS];
  struct work work = {.groups = gd_mem_alloc((size_t)count + 1, sizeof *work.groups)};
  int started = 0;
  if (!work.groups)
    return gd_nomem(err, "before the first plan");
  if (kept)
    kept->calls++;
  for (int i = 0; i < count; i++) {
    if (i == 0 || !is_alike(&points[i - 1], &points[i]))
      work.groups[work.count++] = (struct group){
          .points = &points[i], .planner = kept ? find_planner(kept, &points[i]) : NULL};
    work.groups[work.count - 1].count++;
  }
  work.graphs = kept ? kept->graphs : gd_graph_cache_new();
  int wanted = thread_count(work.count);
  while (started + 1 < wanted && pthread_create(&threads[started], NULL, take_groups, &work) == 0)
    started++;
  take_groups(&work); /* this thread works too, so none that could not be started is missed */
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  if (!kept)
    gd_graph_cache_free(work.graphs);
  gd_mem_free(work.groups);
  return GD_OK;
}

enum gd_status gd_points_plan(struct gd_point *points, int count, struct gd_error *err) {
  return gd_points_plan_with(NULL, points, count, err);
}
