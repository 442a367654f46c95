/*
 * What the store holds, for the report: trials of the presets' own recipes, grouped by model,
 * device and number of ranks, with the ones that the figures compare.
 */
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"
#include "report/report_int.h"

/* --- trials -------------------------------------------------------------------------------- */

struct collecting {
  struct gd_report *report;
  struct gd_report_trial *trials; /* in gd_mem */
  uint32_t count, capacity;
  int limited;
};

static enum gd_status collect(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct collecting *to = user;
  struct gd_arena *arena = &to->report->arena;
  const struct gd_trial *from = &row->trial;
  if (gd_trial_is_limited(from)) {
    to->limited++;
    return GD_OK;
  }
  if (!gd_vec_reserve((void **)&to->trials, &to->capacity, to->count + 1, sizeof *to->trials))
    return gd_report_no_memory(err);
  struct gd_report_trial *trial = &to->trials[to->count++];
  *trial = (struct gd_report_trial){
      .model = gd_arena_copy_string(arena, from->model),
      .method_name = gd_arena_copy_string(arena, from->method),
      .device = gd_arena_copy_string(arena, from->device),
      .host = gd_arena_copy_string(arena, row->provenance.host),
      .date = gd_arena_printf(arena, "%.10s", row->provenance.time),
      .version = gd_arena_copy_string(arena, from->version),
      .backend = gd_arena_copy_string(arena, from->backend),
      .reason = gd_arena_copy_string(arena, from->reason),
      .recipe = gd_arena_copy_string(arena, from->recipe),
      .origin = gd_arena_copy_string(arena, row->origin),
      .status = from->status,
      .ranks = from->ranks > 0 ? from->ranks : 1,
      .nodes = from->nodes > 0 ? from->nodes : 1,
      .disturbed = gd_trial_is_disturbed(from),
      .days = from->days,
      .days_low = from->days_low,
      .days_high = from->days_high,
      .mfu = from->mfu,
      .train_flops = from->train_flops,
      .micro_batch = from->micro_batch,
      .accumulation = from->accumulation,
      .peak_bytes = from->peak_bytes,
  };
  if (!trial->model || !trial->method_name || !trial->device || !trial->host || !trial->date ||
      !trial->version || !trial->backend || !trial->reason || !trial->recipe || !trial->origin)
    return gd_report_no_memory(err);
  const struct gd_method *method = &trial->method;
  /* A trial without some pass is an experiment with this engine, not one of the paper's methods. */
  trial->known_method =
      gd_method_parse(from->method, &trial->method, NULL) == GD_OK && !trial->method.without;
  bool lunch = gd_method_is_free_lunch(method);
  bool saves = method->ckpt || method->sharding != GD_SHARDING_NONE || method->offload;
  trial->naive = trial->known_method && gd_method_is_naive(method) && !saves;
  trial->free_lunch = trial->known_method && lunch && !saves;
  trial->memory_saving = trial->known_method && lunch && saves;
  return GD_OK;
}

/* --- recipes ------------------------------------------------------------------------------- */

enum gd_status gd_report_count_preset(const char *name, struct gd_report_preset *preset,
                                      struct gd_error *err) {
  struct gd_model model;
  struct gd_graph graph = {0};
  struct gd_error why = {0};
  *preset = (struct gd_report_preset){.parameters = (double)NAN, .train_flops = (double)NAN};
  enum gd_status status = gd_model_load(name, &model, &why);
  struct gd_setup setup = {.model = &model, .micro_batch = 1};
  if (status == GD_OK) {
    setup.precision = model.recipe.precision;
    status = gd_pipeline_build(&setup, &graph, &why);
  }
  if (status == GD_OK)
    *preset = (struct gd_report_preset){
        .known = true,
        .parameters = (double)gd_graph_parameters(&graph),
        .train_flops = graph.model_flops * (double)model.recipe.batch * (double)model.recipe.steps,
    };
  gd_graph_deinit(&graph);
  if (status == GD_OK)
    status = gd_recipe_hash(&model, NULL, preset->recipe, &why);
  /* No such preset (any more) is an answer; no memory is not. */
  return status == GD_ENVIRONMENT ? gd_fail(err, status, "%s", why.text) : GD_OK;
}

/* Trials of another or an unknown recipe say nothing of the paper's runs. Trials come
   sorted by model. */
static enum gd_status drop_other_recipes(struct collecting *to, struct gd_report_measured *measured,
                                         struct gd_error *err) {
  uint32_t kept = 0;
  const char *model = NULL;
  struct gd_report_preset preset = {0};
  measured->others =
      gd_arena_alloc(&to->report->arena, (size_t)to->count + 1, sizeof *measured->others);
  if (!measured->others)
    return gd_report_no_memory(err);
  for (uint32_t i = 0; i < to->count; i++) {
    struct gd_report_trial *trial = &to->trials[i];
    if (!model || strcmp(model, trial->model) != 0) {
      model = trial->model;
      GD_TRY(gd_report_count_preset(model, &preset, err));
    }
    /* A trial that could not even be planned has no FLOPs, and belongs to any recipe. */
    if (preset.known && trial->train_flops > 0 && strcmp(trial->recipe, preset.recipe) != 0)
      measured->others[measured->other_recipes++] = *trial;
    else
      to->trials[kept++] = *trial;
  }
  to->count = kept;
  return GD_OK;
}

/* --- groups -------------------------------------------------------------------------------- */

static int rank_of(const struct gd_paper *paper, const char *model) {
  for (int i = 0; i < paper->n_recipes; i++)
    if (strcmp(paper->recipes[i].model, model) == 0)
      return i;
  return paper->n_recipes;
}

/* qsort has no context: trials carry their model's place. */
static int compare(const void *a, const void *b) {
  const struct gd_report_trial *x = a, *y = b;
  if (x->place != y->place)
    return x->place < y->place ? -1 : 1;
  int order = strcmp(x->model, y->model);
  if (order == 0)
    order = strcmp(x->device, y->device);
  if (order == 0)
    order = (x->ranks > y->ranks) - (x->ranks < y->ranks);
  if (order == 0)
    order = (x->nodes > y->nodes) - (x->nodes < y->nodes);
  if (order == 0)
    order = (x->status != GD_TRIAL_OK) - (y->status != GD_TRIAL_OK);
  if (order == 0)
    order = x->disturbed - y->disturbed;
  if (order == 0 && x->status == GD_TRIAL_OK)
    order = (x->days > y->days) - (x->days < y->days);
  return order ? order : strcmp(x->method_name, y->method_name);
}

static bool same_group(const struct gd_report_trial *a, const struct gd_report_trial *b) {
  return strcmp(a->model, b->model) == 0 && strcmp(a->device, b->device) == 0 &&
         a->ranks == b->ranks && a->nodes == b->nodes;
}

/* Trials of a group are sorted: the good ones first, by days. */
static void fill_group(struct gd_report_group *group) {
  enum { MOST = 4 * GD_METHODS_MOST };
  const struct gd_report_trial *saving[MOST] = {0};
  group->median_days = group->worst_days = (double)NAN;
  for (int i = 0; i < group->count; i++) {
    const struct gd_report_trial *trial = &group->trials[i];
    bool ok = trial->status == GD_TRIAL_OK;
    if (trial->naive && !group->naive)
      group->naive = trial;
    if (trial->free_lunch && !group->free_lunch)
      group->free_lunch = trial;
    if (ok && (trial->free_lunch || trial->memory_saving) && !group->best)
      group->best = trial;
    if (ok && trial->memory_saving && group->n_saving < MOST)
      saving[group->n_saving++] = trial;
  }
  int n = group->n_saving;
  if (n > 0)
    group->saving = saving[0];
  if (n >= 3) {
    group->median_days = (saving[(n - 1) / 2]->days + saving[n / 2]->days) / 2;
    group->worst_days = saving[n - 1]->days;
  }
}

static enum gd_status make_groups(struct gd_report *report, struct gd_error *err) {
  struct gd_report_measured *measured = &report->measured;
  measured->groups =
      gd_arena_alloc(&report->arena, (size_t)measured->n_trials + 1, sizeof *measured->groups);
  if (!measured->groups)
    return gd_report_no_memory(err);
  for (int i = 0, next; i < measured->n_trials; i = next) {
    const struct gd_report_trial *first = &measured->trials[i];
    for (next = i + 1; next < measured->n_trials; next++)
      if (!same_group(first, &measured->trials[next]))
        break;
    struct gd_report_group *group = &measured->groups[measured->n_groups++];
    *group = (struct gd_report_group){.model = first->model,
                                      .device = first->device,
                                      .ranks = first->ranks,
                                      .nodes = first->nodes,
                                      .trials = first,
                                      .count = next - i};
    fill_group(group);
  }
  return GD_OK;
}

bool gd_report_is_at(const struct gd_report_trial *trial, const struct gd_report_site *site) {
  return strcmp(trial->device, site->device) == 0 && trial->ranks == site->ranks &&
         trial->nodes == site->nodes;
}

static bool at_site(const struct gd_report_group *group, const struct gd_report_site *site) {
  return strcmp(group->device, site->device) == 0 && group->ranks == site->ranks &&
         group->nodes == site->nodes;
}

/* whole: with the instructions of a CPU, "AMD EPYC, 2 threads, avx512_bf16". */
static const char *site_label(struct gd_report *report, const struct gd_report_group *group,
                              bool whole) {
  const char *device =
      strncmp(group->device, "NVIDIA ", 7) == 0 ? group->device + 7 : group->device;
  const char *comma = strchr(device, ','), *second = comma ? strchr(comma + 1, ',') : NULL;
  int length = (int)(second && !whole ? (size_t)(second - device) : strlen(device));
  if (group->nodes > 1)
    return gd_report_print(report, "%d x %.*s, %d nodes", group->ranks, length, device,
                           group->nodes);
  return gd_report_print(report, "%d x %.*s", group->ranks, length, device);
}

/* Short, unless another site is called so. */
static const char *new_label(struct gd_report *report, const struct gd_report_group *group) {
  const char *label = site_label(report, group, false);
  for (int i = 0; i < report->measured.n_sites; i++)
    if (strcmp(report->measured.sites[i].label, label) == 0)
      return site_label(report, group, true);
  return label;
}

static enum gd_status list_sites(struct gd_report *report, struct gd_error *err) {
  struct gd_report_measured *measured = &report->measured;
  size_t most = (size_t)measured->n_groups + 1;
  measured->sites = gd_arena_alloc(&report->arena, most, sizeof *measured->sites);
  measured->models = gd_arena_alloc(&report->arena, most, sizeof *measured->models);
  if (!measured->sites || !measured->models)
    return gd_report_no_memory(err);
  for (int i = 0; i < measured->n_groups; i++) {
    const struct gd_report_group *group = &measured->groups[i];
    int at = 0;
    while (at < measured->n_sites && !at_site(group, &measured->sites[at]))
      at++;
    if (at == measured->n_sites) {
      const char *label = new_label(report, group);
      int same = 0;
      for (int k = 0; k < measured->n_sites; k++)
        same += strcmp(measured->sites[k].device, group->device) == 0;
      measured->n_devices += same == 0;
      measured->sites[measured->n_sites++] =
          (struct gd_report_site){group->device, label, group->ranks, group->nodes};
    }
    if (i == 0 || strcmp(group->model, measured->groups[i - 1].model) != 0)
      measured->models[measured->n_models++] = group->model;
  }
  return GD_OK;
}

/* Devices and dates, for the lines that say where numbers come from. */
static void name_sources(struct gd_report *report) {
  struct gd_report_measured *measured = &report->measured;
  struct gd_strbuf names = {0};
  const char *first = "9", *last = "";
  int others = 0;
  for (int i = 0; i < measured->n_trials + measured->other_recipes; i++) {
    const struct gd_report_trial *trial =
        i < measured->n_trials ? &measured->trials[i] : &measured->others[i - measured->n_trials];
    first = strcmp(trial->date, first) < 0 ? trial->date : first;
    last = strcmp(trial->date, last) > 0 ? trial->date : last;
    /* What was loaded says whose it is. */
    const char *name = trial->origin[0] ? gd_report_print(report, "%s (%s, loaded from %s)",
                                                          trial->device, trial->host, trial->origin)
                                        : trial->device;
    if (names.text && strstr(names.text, name))
      continue;
    if (names.length > 200)
      others++;
    else
      gd_strbuf_printf(&names, "%s%s", names.length ? ", " : "", name);
  }
  if (others > 0)
    gd_strbuf_append(&names, " and others");
  measured->devices = gd_report_print(report, "%s", names.text ? names.text : "");
  measured->dates =
      strcmp(first, last) == 0 ? first : gd_report_print(report, "%s to %s", first, last);
  gd_strbuf_deinit(&names);
}

enum gd_status gd_report_measure(struct gd_report *report, struct gd_error *err) {
  struct collecting to = {.report = report};
  struct gd_report_measured *measured = &report->measured;
  if (!report->order->store)
    return GD_OK;
  enum gd_status status = gd_store_query(
      report->order->store, &(struct gd_store_filter){.brief = true, .sort = GD_STORE_SORT_MODEL},
      collect, &to, err);
  measured->limited = to.limited;
  if (status == GD_OK)
    status = drop_other_recipes(&to, measured, err);
  if (status == GD_OK && to.count > 0) {
    for (uint32_t i = 0; i < to.count; i++)
      to.trials[i].place = rank_of(&report->paper, to.trials[i].model);
    qsort(to.trials, to.count, sizeof *to.trials, compare);
    measured->trials = gd_arena_alloc(&report->arena, to.count, sizeof *to.trials);
    if (measured->trials) {
      memcpy(measured->trials, to.trials, to.count * sizeof *to.trials);
      measured->n_trials = (int)to.count;
    } else {
      status = gd_report_no_memory(err);
    }
  }
  gd_mem_free(to.trials);
  if (status == GD_OK)
    status = make_groups(report, err);
  if (status == GD_OK)
    status = list_sites(report, err);
  if (status == GD_OK)
    name_sources(report);
  report->made->trials = measured->n_trials;
  return status;
}

const struct gd_report_group *gd_report_find_group(const struct gd_report_measured *measured,
                                                   const char *model,
                                                   const struct gd_report_site *site) {
  for (int i = 0; i < measured->n_groups; i++)
    if (strcmp(measured->groups[i].model, model) == 0 && at_site(&measured->groups[i], site))
      return &measured->groups[i];
  return NULL;
}

const struct gd_paper_gpu *gd_report_paper_gpu(const struct gd_report *report, const char *device) {
  for (int i = 0; i < report->paper.n_gpus; i++) {
    const char *title = report->paper.gpus[i].title, *word = strrchr(title, ' ');
    const char *found = strstr(device, word ? word + 1 : title);
    /* "H100" is not in "GH1000": the name must end there. */
    char after = found ? found[strlen(word ? word + 1 : title)] : 'x';
    if (found && (after == '\0' || strchr(" -,(", after)))
      return &report->paper.gpus[i];
  }
  return NULL;
}

/* --- words and numbers --------------------------------------------------------------------- */

const char *gd_report_measured_from(struct gd_report *report) {
  const struct gd_report_measured *measured = &report->measured;
  return measured->n_devices > 1
             ? gd_report_print(report, "measured by gpudays on %d kinds of device, %s",
                               measured->n_devices, measured->dates)
             : gd_report_print(report, "measured by gpudays on %s, %s", measured->devices,
                               measured->dates);
}

const char *gd_report_model_title(struct gd_report *report, const char *model) {
  const struct gd_paper_recipe *recipe = gd_paper_find_recipe(&report->paper, model);
  return recipe ? gd_report_print(report, "%s %s", recipe->family, recipe->size)
                : gd_report_print(report, "%s", model);
}

const char *gd_report_days(struct gd_report *report, double days) {
  char text[48];
  bool whole = fabs(days - round(days)) < 1e-9 || days >= 100;
  return gd_report_print(report, "%s",
                         whole ? gd_format_number(text, sizeof text, days, 0)
                               : gd_format_digits(text, sizeof text, days, 3));
}

void gd_report_set_days(struct gd_report *report, struct gd_report_cell *cell, double days) {
  if (isfinite(days))
    *cell = (struct gd_report_cell){gd_report_days(report, days), days, NULL, NULL};
}

void gd_report_set_digits(struct gd_report *report, struct gd_report_cell *cell, double value) {
  char text[48];
  if (isfinite(value))
    *cell = (struct gd_report_cell){
        gd_report_print(report, "%s", gd_format_digits(text, sizeof text, value, 3)), value, NULL,
        NULL};
}

void gd_report_set_count(struct gd_report *report, struct gd_report_cell *cell, int64_t value) {
  char text[48];
  *cell = (struct gd_report_cell){
      gd_report_print(report, "%s", gd_format_count(text, sizeof text, value)), (double)value, NULL,
      NULL};
}

/* Two-sided 95 % points of Student's t, by degrees of freedom; beyond the table the next lower. */
static double student(int freedom) {
  static const struct {
    int freedom;
    double t;
  } points[] = {{1, 12.706}, {2, 4.303},  {3, 3.182},  {4, 2.776},  {5, 2.571},  {6, 2.447},
                {7, 2.365},  {8, 2.306},  {9, 2.262},  {10, 2.228}, {12, 2.179}, {15, 2.131},
                {20, 2.086}, {25, 2.060}, {30, 2.042}, {40, 2.021}, {60, 2.000}, {120, 1.980}};
  double t = points[0].t;
  for (size_t i = 0; i < sizeof points / sizeof *points; i++)
    if (freedom >= points[i].freedom)
      t = points[i].t;
  return t;
}

struct gd_report_mean gd_report_mean_of(const double *values, int count) {
  struct gd_report_mean result = {.count = count, .mean = (double)NAN, .half = (double)NAN};
  double sum = 0, squares = 0;
  for (int i = 0; i < count; i++)
    sum += values[i];
  if (count > 0)
    result.mean = sum / count;
  for (int i = 0; i < count; i++)
    squares += (values[i] - result.mean) * (values[i] - result.mean);
  if (count > 1)
    result.half = student(count - 1) * sqrt(squares / (count - 1) / count);
  return result;
}

double *gd_report_numbers(struct gd_report *report, int count) {
  double *numbers =
      gd_arena_alloc(&report->arena, (size_t)(count > 0 ? count : 1), sizeof *numbers);
  report->body.failed = report->body.failed || !numbers;
  for (int i = 0; i < count && numbers; i++)
    numbers[i] = (double)NAN;
  return numbers;
}

const char **gd_report_texts(struct gd_report *report, int count) {
  const char **texts =
      gd_arena_alloc(&report->arena, (size_t)(count > 0 ? count : 1), sizeof *texts);
  report->body.failed = report->body.failed || !texts;
  return texts;
}

struct gd_plot_series *gd_report_series(struct gd_report *report, int count) {
  struct gd_plot_series *series =
      gd_arena_alloc(&report->arena, (size_t)(count > 0 ? count : 1), sizeof *series);
  report->body.failed = report->body.failed || !series;
  return series;
}
