/*
 * Fits, folds and scores of accuracy.h; the page is accuracy_page.c, the trials accuracy_trials.c.
 */
#include "report/accuracy.h"

#include "base/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- scores -------------------------------------------------------------------------------- */

struct gd_accuracy_score gd_accuracy_score(double *errors, int count) {
  struct gd_accuracy_score score = {.count = count};
  if (count == 0)
    return score;
  qsort(errors, (size_t)count, sizeof *errors, gd_compare_doubles);
  score.median = count % 2 ? errors[count / 2] : (errors[count / 2 - 1] + errors[count / 2]) / 2;
  score.p90 = errors[(int)ceil(0.9 * count) - 1];
  score.worst = errors[count - 1];
  return score;
}

/* --- folds --------------------------------------------------------------------------------- */

/* Errors of many cells; there is room for all of them. By value: an empty one to fill. */
struct errors {
  double *values;
  int count;
};

static void push(struct errors *errors, double value) {
  errors->values[errors->count++] = value;
}

static bool in_fold(const struct gd_accuracy_fold *fold, const struct gd_stack_cell *cell) {
  bool whole = !fold->leave.gpu && !fold->leave.family && !fold->leave.model;
  return whole || gd_stack_leaves_out(&fold->leave, cell);
}

/* Errors of a fold's cells of one group; table 0: of both tables. */
static struct gd_accuracy_score score_cells(const struct gd_accuracy *a,
                                            const struct gd_accuracy_fold *fold,
                                            enum gd_stack_group group, int table,
                                            struct errors errors, struct errors *all) {
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    struct gd_stack_answer answer;
    if (cell->group != group || !in_fold(fold, cell) || (table && cell->paper->table != table))
      continue;
    gd_stack_cell_predict(cell, &fold->fit, &answer);
    if (!answer.feasible)
      continue;
    push(&errors, gd_stack_cell_error(cell, answer.days));
    if (all)
      push(all, errors.values[errors.count - 1]);
  }
  return gd_accuracy_score(errors.values, errors.count);
}

static void score_fold(const struct gd_accuracy *a, struct gd_accuracy_fold *fold,
                       struct errors room, struct errors *all, struct errors *apart) {
  gd_stack_fit(&a->stack, &fold->leave, &fold->fit);
  fold->score = score_cells(a, fold, GD_STACK_FITTED, 0, room, all);
  fold->apart = score_cells(a, fold, GD_STACK_APART, 0, room, apart);
  fold->table[0] = score_cells(a, fold, GD_STACK_FITTED, GD_PAPER_OPTIMAL, room, NULL);
  fold->table[1] = score_cells(a, fold, GD_STACK_FITTED, GD_PAPER_NAIVE, room, NULL);
}

static void name_folds(struct gd_accuracy *a) {
  const struct gd_paper *paper = &a->stack.paper;
  a->all.name = "nothing";
  for (int i = 0; i < paper->n_gpus && i < GD_ACCURACY_FOLDS; i++)
    a->gpus[a->n_gpus++] =
        (struct gd_accuracy_fold){.leave.gpu = paper->gpus[i].gpu, .name = paper->gpus[i].title};
  for (int i = 0; i < paper->n_recipes && i < GD_ACCURACY_FOLDS; i++)
    a->models[a->n_models++] = (struct gd_accuracy_fold){.leave.model = paper->recipes[i].model,
                                                         .name = paper->recipes[i].model};
  for (int i = 0; i < paper->n_recipes; i++) {
    const char *family = paper->recipes[i].family;
    bool known = false;
    for (int j = 0; j < a->n_families; j++)
      known = known || strcmp(a->families[j].name, family) == 0;
    if (!known && a->n_families < GD_ACCURACY_FOLDS)
      a->families[a->n_families++] =
          (struct gd_accuracy_fold){.leave.family = family, .name = family};
  }
}

static void fill_cells(struct gd_accuracy *a) {
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    struct gd_stack_answer answer;
    for (int f = 0; f < a->n_gpus; f++)
      if (gd_stack_leaves_out(&a->gpus[f].leave, cell)) {
        gd_stack_cell_predict(cell, &a->gpus[f].fit, &answer);
        a->cells[i].days_gpu = answer.days;
        a->cells[i].point = answer.point;
      }
    for (int f = 0; f < a->n_families; f++)
      if (gd_stack_leaves_out(&a->families[f].leave, cell)) {
        gd_stack_cell_predict(cell, &a->families[f].fit, &answer);
        a->cells[i].days_family = answer.days;
      }
  }
}

enum { ROOMS = 6 };

/* rooms: so many empty ones. */
static void score_folds(struct gd_accuracy *a, struct errors *rooms) {
  struct errors one = rooms[0], *gpus = &rooms[1], *families = &rooms[2];
  struct errors *apart_gpus = &rooms[3], *apart_families = &rooms[4], *models = &rooms[5];
  score_fold(a, &a->all, one, NULL, NULL);
  for (int i = 0; i < a->n_gpus; i++)
    score_fold(a, &a->gpus[i], one, gpus, apart_gpus);
  for (int i = 0; i < a->n_families; i++)
    score_fold(a, &a->families[i], one, families, apart_families);
  for (int i = 0; i < a->n_models; i++)
    score_fold(a, &a->models[i], one, models, NULL);
  a->held_model = gd_accuracy_score(models->values, models->count);
  a->held_gpu = gd_accuracy_score(gpus->values, gpus->count);
  a->held_family = gd_accuracy_score(families->values, families->count);
  a->apart_gpu = gd_accuracy_score(apart_gpus->values, apart_gpus->count);
  a->apart_family = gd_accuracy_score(apart_families->values, apart_families->count);
}

/* --- the Megatron table --------------------------------------------------------------------- */

static enum gd_status predict_rows(struct gd_accuracy *a, const struct gd_stacks *stacks,
                                   struct errors memory, struct errors time, struct gd_error *err) {
  const struct gd_paper *paper = &a->stack.paper;
  struct gd_gpu_fit fit;
  GD_TRY(gd_gpu_fit_load(&fit, err));
  for (int i = 0; i < paper->n_megatron; i++) {
    const struct gd_megatron_row *row = &paper->megatron[i];
    struct gd_stack_megatron *result = &a->megatron[i];
    if (row->model_parallel > 1)
      continue;
    GD_TRY(gd_stack_megatron(&a->stack.hw, stacks, &fit, row, result, err));
    if (row->batch == 0)
      continue; /* nothing was measured */
    push(&memory, fabs(result->bytes.device / row->memory_high_bytes - 1));
    push(&time, fabs(result->iteration_s / row->iteration_s - 1));
  }
  a->megatron_memory = gd_accuracy_score(memory.values, memory.count);
  a->megatron_time = gd_accuracy_score(time.values, time.count);
  return GD_OK;
}

static enum gd_status predict_megatron(struct gd_accuracy *a, struct errors memory,
                                       struct errors time, struct gd_error *err) {
  struct gd_stacks stacks;
  GD_TRY(gd_stacks_load(&stacks, err));
  enum gd_status status = predict_rows(a, &stacks, memory, time, err);
  gd_stacks_deinit(&stacks);
  return status;
}

/* --- all of it ------------------------------------------------------------------------------ */

static enum gd_status make(struct gd_accuracy *a, struct gd_error *err) {
  GD_TRY(gd_stack_load(&a->stack, err));
  int n = a->stack.n_cells;
  struct errors rooms[ROOMS] = {{0}};
  double *room = gd_arena_alloc(&a->arena, ROOMS * (size_t)n, sizeof *room);
  a->cells = gd_arena_alloc(&a->arena, (size_t)n, sizeof *a->cells);
  a->megatron = gd_arena_alloc(&a->arena, (size_t)a->stack.paper.n_megatron, sizeof *a->megatron);
  if (!room || !a->cells || !a->megatron)
    return gd_nomem(err, "while judging predictions");
  name_folds(a);
  for (int i = 0; i < ROOMS; i++)
    rooms[i].values = room + i * (ptrdiff_t)n;
  score_folds(a, rooms);
  fill_cells(a);
  return predict_megatron(a, (struct errors){.values = room},
                          (struct errors){.values = room + a->stack.paper.n_megatron}, err);
}

enum gd_status gd_accuracy_make(struct gd_accuracy *accuracy, struct gd_error *err) {
  *accuracy = (struct gd_accuracy){0};
  enum gd_status status = make(accuracy, err);
  if (status != GD_OK)
    gd_accuracy_deinit(accuracy);
  return status;
}

void gd_accuracy_deinit(struct gd_accuracy *accuracy) {
  gd_published_errors_deinit(&accuracy->published_errors);
  gd_published_deinit(&accuracy->published);
  gd_stack_deinit(&accuracy->stack);
  gd_arena_deinit(&accuracy->arena);
  gd_mem_free(accuracy->trials);
  gd_mem_free(accuracy->runs);
  *accuracy = (struct gd_accuracy){0};
}

int gd_accuracy_feasible(const struct gd_accuracy *accuracy, enum gd_paper_table table,
                         int *cells) {
  int right = 0;
  *cells = 0;
  for (int i = 0; i < accuracy->stack.n_cells; i++) {
    const struct gd_paper_days *paper = accuracy->stack.cells[i].paper;
    if (paper->table != (int)table)
      continue;
    ++*cells;
    right += (accuracy->cells[i].days_gpu > 0) == (paper->days > 0);
  }
  return right;
}

static const struct gd_stack_point *find_point(const struct gd_stack_cell *cell,
                                               const struct gd_paper_setting *setting) {
  for (int i = 0; i < cell->n_points; i++) {
    const struct gd_method *method = &cell->points[i].method;
    if (method->ckpt == setting->checkpointing && method->offload == setting->offloading &&
        strcmp(gd_sharding_name(method->sharding), setting->sharding) == 0)
      return &cell->points[i];
  }
  return NULL;
}

void gd_accuracy_micro_batches(const struct gd_accuracy *accuracy, int *exact, int *near) {
  const struct gd_paper *paper = &accuracy->stack.paper;
  *exact = *near = 0;
  for (int i = 0; i < accuracy->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &accuracy->stack.cells[i];
    const struct gd_paper_setting *setting =
        gd_paper_find_setting(paper, cell->paper->model, cell->paper->gpu, cell->paper->count);
    if (cell->paper->table != GD_PAPER_OPTIMAL || !setting)
      continue;
    const struct gd_stack_point *point = find_point(cell, setting);
    int64_t found = point ? point->micro_batch : 0;
    *exact += found == setting->micro_batch;
    *near += found > 0 && 2 * found >= setting->micro_batch && found <= 2 * setting->micro_batch;
  }
}

/* The fit that has not seen a cell. */
static const struct gd_stack_fit *fit_of(const struct gd_accuracy *a,
                                         enum gd_accuracy_unseen unseen,
                                         const struct gd_stack_cell *cell) {
  const struct gd_accuracy_fold *folds = unseen == GD_ACCURACY_GPU_UNSEEN     ? a->gpus
                                         : unseen == GD_ACCURACY_MODEL_UNSEEN ? a->models
                                                                              : a->families;
  int count = unseen == GD_ACCURACY_GPU_UNSEEN     ? a->n_gpus
              : unseen == GD_ACCURACY_MODEL_UNSEEN ? a->n_models
                                                   : a->n_families;
  for (int f = 0; f < count && unseen != GD_ACCURACY_ALL_SEEN; f++)
    if (gd_stack_leaves_out(&folds[f].leave, cell))
      return &folds[f].fit;
  return &a->all.fit;
}

static enum gd_accuracy_group group_of(const struct gd_method *method) {
  return method->offload                         ? GD_ACCURACY_OFFLOAD
         : method->ckpt                          ? GD_ACCURACY_CKPT
         : method->sharding == GD_SHARDING_ZERO1 ? GD_ACCURACY_ZERO_1
                                                 : GD_ACCURACY_PLAIN;
}

/* Group GD_ACCURACY_GROUP_COUNT: all of them. */
static struct gd_accuracy_choices count_choices(const struct gd_accuracy *a,
                                                enum gd_accuracy_unseen unseen,
                                                enum gd_accuracy_group group) {
  static const double nearly = 0.02;
  struct gd_accuracy_choices choices = {0};
  double regrets[512];
  int count = 0;
  for (int i = 0; i < a->stack.n_cells && count < 512; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    const struct gd_stack_fit *fit = fit_of(a, unseen, cell);
    struct gd_stack_answer answer;
    if (cell->paper->table != GD_PAPER_OPTIMAL || !cell->setting ||
        (group != GD_ACCURACY_GROUP_COUNT && group_of(&cell->setting->method) != group))
      continue;
    gd_stack_cell_predict(cell, fit, &answer);
    double regret = gd_stack_cell_regret(cell, fit);
    choices.of++;
    choices.right += answer.point == cell->setting;
    choices.near += regret >= 0 && regret <= nearly;
    if (regret >= 0)
      regrets[count++] = regret;
  }
  choices.regret = gd_accuracy_score(regrets, count);
  return choices;
}

struct gd_accuracy_choices gd_accuracy_choices(const struct gd_accuracy *accuracy,
                                               enum gd_accuracy_unseen unseen) {
  return count_choices(accuracy, unseen, GD_ACCURACY_GROUP_COUNT);
}

struct gd_accuracy_choices gd_accuracy_choices_of(const struct gd_accuracy *accuracy,
                                                  enum gd_accuracy_group group) {
  return count_choices(accuracy, GD_ACCURACY_GPU_UNSEEN, group);
}

int gd_accuracy_rule_finds(const struct gd_accuracy *accuracy) {
  int found = 0;
  for (int i = 0; i < accuracy->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &accuracy->stack.cells[i];
    if (cell->paper->table != GD_PAPER_OPTIMAL || !cell->setting)
      continue;
    const struct gd_method *method = &cell->setting->method;
    enum gd_sharding ruled = cell->paper->count > 1 ? GD_SHARDING_ZERO1 : GD_SHARDING_NONE;
    found += method->sharding == ruled && !method->ckpt && !method->offload;
  }
  return found;
}
