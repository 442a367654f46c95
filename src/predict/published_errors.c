/*
 * Fits without some rows, and the intervals that follow; see published_errors.h.
 */
#include "predict/published_errors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "predict/interval.h"

void gd_published_errors_deinit(struct gd_published_errors *errors) {
  gd_arena_deinit(&errors->arena);
  *errors = (struct gd_published_errors){0};
}

/* --- fits without some rows ----------------------------------------------------------------- */

/* The leave of each row for one kind; rows with the same one share a fit. */
static struct gd_published_leave leave_of(const struct gd_published_row *row,
                                          enum gd_published_unseen unseen) {
  struct gd_published_leave leave = {0};
  if (unseen == GD_UNSEEN_MODEL)
    leave.fold = row->fold + 1;
  if (unseen == GD_UNSEEN_GPU || unseen == GD_UNSEEN_BOTH)
    leave.gpu = row->gpu_name;
  if (unseen == GD_UNSEEN_ARCHITECTURE)
    leave.architecture = row->target.gpu->architecture;
  if (unseen == GD_UNSEEN_STACK || unseen == GD_UNSEEN_BOTH) {
    leave.source = row->group + 1;
    leave.stack = row->facts->name;
  }
  return leave;
}

static bool same_text(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_leave(const struct gd_published_leave *a, const struct gd_published_leave *b) {
  return a->fold == b->fold && a->source == b->source && same_text(a->gpu, b->gpu) &&
         same_text(a->architecture, b->architecture) && same_text(a->stack, b->stack);
}

/* Fits that were made: a GPU that is the only one of its architecture, or the only one of its
   source and stack, is left out by several kinds, and each time the same rows remain. */
struct made {
  const struct made *next;
  const bool *left_out; /* by row, then by GEMM */
  struct gd_published_fit fit;
};

static const bool *list_left_out(struct gd_published_errors *e,
                                 const struct gd_published_leave *leave) {
  const struct gd_published *published = e->published;
  size_t count = (size_t)published->count + (size_t)published->n_gemms;
  bool *left_out = gd_arena_alloc(&e->arena, count + 1, sizeof *left_out);
  for (int i = 0; left_out && i < published->count; i++)
    left_out[i] = gd_published_left_out(published, leave, &published->rows[i]);
  for (int i = 0; left_out && i < published->n_gemms; i++)
    left_out[published->count + i] = gd_published_gemm_left_out(leave, &published->gemms[i]);
  return left_out;
}

/* From what is expected, not from the fit to all: nothing of the rows left out is in it. */
static enum gd_status fit_without(struct gd_published_errors *e, const struct made **all,
                                  const struct gd_published_leave *leave,
                                  const struct gd_published_fit **fit, struct gd_error *err) {
  const size_t count = (size_t)e->published->count + (size_t)e->published->n_gemms;
  const bool *left_out = list_left_out(e, leave);
  struct made *made = gd_arena_alloc(&e->arena, 1, sizeof *made);
  if (!left_out || !made)
    return gd_nomem(err, "while judging predictions");
  for (const struct made *known = *all; known; known = known->next)
    if (memcmp(known->left_out, left_out, count * sizeof *left_out) == 0) {
      *fit = &known->fit;
      return GD_OK;
    }
  GD_TRY(gd_published_fit(e->published, leave, NULL, &made->fit, err));
  made->left_out = left_out;
  made->next = *all;
  *all = made;
  *fit = &made->fit;
  return GD_OK;
}

static enum gd_status predict_unseen(struct gd_published_errors *e, enum gd_published_unseen unseen,
                                     const struct made **all, struct gd_error *err) {
  const struct gd_published *published = e->published;
  double *predicted = e->predicted[unseen];
  bool *done = gd_arena_alloc(&e->arena, (size_t)published->count + 1, sizeof *done);
  if (!done)
    return gd_nomem(err, "while judging predictions");
  for (int i = 0; i < published->count; i++) {
    struct gd_published_leave leave = leave_of(&published->rows[i], unseen);
    const struct gd_published_fit *fit;
    if (done[i])
      continue;
    GD_TRY(fit_without(e, all, &leave, &fit, err));
    for (int k = i; k < published->count; k++) {
      struct gd_published_leave other = leave_of(&published->rows[k], unseen);
      if (done[k] || !same_leave(&leave, &other))
        continue;
      done[k] = true;
      bool stack = unseen == GD_UNSEEN_STACK || unseen == GD_UNSEEN_BOTH ||
                   fit->stack_rows[published->rows[k].stack] > 0;
      predicted[k] = stack && fit->rows > 0
                         ? gd_published_predict(published, &published->rows[k], fit, NULL)
                         : 0;
    }
  }
  return GD_OK;
}

double gd_published_error(const struct gd_published_errors *e, enum gd_published_unseen unseen,
                          int row) {
  double predicted = e->predicted[unseen][row];
  return predicted > 0 ? log(e->published->rows[row].per_gpu / predicted) : (double)NAN;
}

/* --- scores --------------------------------------------------------------------------------- */

struct weighted {
  double value, weight;
};

static int compare(const void *a, const void *b) {
  double x = ((const struct weighted *)a)->value, y = ((const struct weighted *)b)->value;
  return (x > y) - (x < y);
}

/* The value below which that share of the weight lies; sorts. */
static double quantile(struct weighted *all, int count, double share) {
  double whole = 0, sum = 0;
  qsort(all, (size_t)count, sizeof *all, compare);
  for (int i = 0; i < count; i++)
    whole += all[i].weight;
  for (int i = 0; i < count; i++) {
    sum += all[i].weight;
    if (sum >= share * whole * (1 - 1e-12))
      return all[i].value;
  }
  return count > 0 ? all[count - 1].value : 0;
}

struct gd_published_score
gd_published_score(const struct gd_published_errors *e, enum gd_published_unseen unseen,
                   bool (*takes)(const struct gd_published_row *row, const void *user),
                   const void *user) {
  enum { MOST = 4096 };
  struct weighted sizes[MOST], errors[MOST];
  struct gd_published_score score = {0};
  for (int i = 0; i < e->published->count && score.rows < MOST; i++) {
    double error = gd_published_error(e, unseen, i);
    if (isnan(error) || (takes && !takes(&e->published->rows[i], user)))
      continue;
    sizes[score.rows] = (struct weighted){fabs(exp(error) - 1), 1};
    errors[score.rows++] = (struct weighted){error, 1};
  }
  score.median = quantile(sizes, score.rows, 0.5);
  score.p90 = quantile(sizes, score.rows, 0.9);
  score.worst = quantile(sizes, score.rows, 1);
  score.bias = exp(quantile(errors, score.rows, 0.5)) - 1;
  return score;
}

/* Errors of one or two kinds of fits together, every source and GPU of it weighing the same. */
static void add_errors(const struct gd_published_errors *e, enum gd_published_unseen unseen,
                       struct weighted *all, int *count) {
  const struct gd_published *published = e->published;
  for (int i = 0; i < published->count; i++) {
    int alike = 0;
    double error = gd_published_error(e, unseen, i);
    if (isnan(error))
      continue;
    for (int k = 0; k < published->count; k++)
      alike += published->rows[k].group == published->rows[i].group &&
               !isnan(gd_published_error(e, unseen, k));
    all[(*count)++] = (struct weighted){error, 1.0 / alike};
  }
}

/* Of how many sources, GPUs or architectures there are errors: what a question is another one of.
 */
enum draw { DRAW_SOURCE, DRAW_GPU, DRAW_ARCHITECTURE };

static bool same_draw(const struct gd_published_row *a, const struct gd_published_row *b,
                      enum draw draw) {
  return draw == DRAW_SOURCE ? a->group == b->group
         : draw == DRAW_GPU  ? strcmp(a->gpu_name, b->gpu_name) == 0
                            : strcmp(a->target.gpu->architecture, b->target.gpu->architecture) == 0;
}

static int count_draws(const struct gd_published_errors *e, enum gd_published_unseen unseen,
                       enum draw draw) {
  int count = 0;
  for (int i = 0; i < e->published->count; i++) {
    bool first = !isnan(gd_published_error(e, unseen, i));
    for (int k = 0; k < i && first; k++)
      first = isnan(gd_published_error(e, unseen, k)) ||
              !same_draw(&e->published->rows[k], &e->published->rows[i], draw);
    count += first;
  }
  return count;
}

static double half_width(const struct weighted *all, int count, int draws) {
  double sum = 0, whole = 0;
  for (int i = 0; i < count; i++) {
    sum += all[i].weight * all[i].value * all[i].value;
    whole += all[i].weight;
  }
  return whole > 0 ? gd_interval_half(sum / whole, draws) : 1;
}

static void set_interval(struct gd_published_interval *to, struct weighted *all, int count,
                         double half) {
  double whole = 0, within = 0;
  to->rows = count;
  to->within = 0;
  to->low = exp(-half);
  to->high = exp(half);
  for (int i = 0; i < count; i++) {
    whole += all[i].weight;
    within += fabs(all[i].value) <= half ? all[i].weight : 0;
    to->within += fabs(all[i].value) <= half;
    all[i].value = fabs(exp(all[i].value) - 1);
  }
  to->covered = whole > 0 ? within / whole : 0;
  to->median = quantile(all, count, 0.5);
  to->p90 = quantile(all, count, 0.9);
}

/* Which errors an interval comes from. What is known of a question may still be of other models,
   computers and versions, so the most that is known has errors of GPUs left out among its own; and
   with less known no interval is narrower. */
static enum gd_status set_intervals(struct gd_published_errors *e, struct gd_error *err) {
  static const struct {
    enum gd_published_unseen from, and;
    enum draw draw;
  } rules[GD_KNOWN_COUNT] = {
      [GD_KNOWN_BOTH] = {GD_UNSEEN_MODEL, GD_UNSEEN_GPU, DRAW_GPU},
      [GD_KNOWN_STACK] = {GD_UNSEEN_GPU, GD_UNSEEN_GPU, DRAW_GPU},
      [GD_KNOWN_STACK_ALONE] = {GD_UNSEEN_ARCHITECTURE, GD_UNSEEN_ARCHITECTURE, DRAW_ARCHITECTURE},
      [GD_KNOWN_GPU] = {GD_UNSEEN_STACK, GD_UNSEEN_STACK, DRAW_SOURCE},
      [GD_KNOWN_NOTHING] = {GD_UNSEEN_BOTH, GD_UNSEEN_BOTH, DRAW_ARCHITECTURE}};
  /* What knows more than each, in that order. */
  static const int more[GD_KNOWN_COUNT] = {-1, GD_KNOWN_BOTH, GD_KNOWN_STACK, GD_KNOWN_BOTH,
                                           GD_KNOWN_GPU};
  double half[GD_KNOWN_COUNT];
  struct weighted *all =
      gd_arena_alloc(&e->arena, 2 * (size_t)e->published->count + 1, sizeof *all);
  if (!all)
    return gd_nomem(err, "while judging predictions");
  for (int known = 0; known < GD_KNOWN_COUNT; known++) {
    int count = 0, draws = count_draws(e, rules[known].and, rules[known].draw);
    add_errors(e, rules[known].from, all, &count);
    if (rules[known].and != rules[known].from)
      add_errors(e, rules[known].and, all, &count);
    half[known] = half_width(all, count, draws);
    if (more[known] >= 0)
      half[known] = fmax(half[known], half[more[known]]);
    e->of[known].sources = count_draws(e, rules[known].and, DRAW_SOURCE);
    set_interval(&e->of[known], all, count, half[known]);
  }
  return GD_OK;
}

const struct gd_published_interval *
gd_published_interval_without(const struct gd_published_errors *e,
                              enum gd_published_unseen unseen) {
  static const enum gd_published_known known[GD_UNSEEN_COUNT] = {
      [GD_UNSEEN_NOTHING] = GD_KNOWN_BOTH, [GD_UNSEEN_MODEL] = GD_KNOWN_BOTH,
      [GD_UNSEEN_GPU] = GD_KNOWN_STACK,    [GD_UNSEEN_ARCHITECTURE] = GD_KNOWN_STACK_ALONE,
      [GD_UNSEEN_STACK] = GD_KNOWN_GPU,    [GD_UNSEEN_BOTH] = GD_KNOWN_NOTHING};
  return &e->of[known[unseen]];
}

static enum gd_status make(struct gd_published_errors *e, struct gd_error *err) {
  const struct gd_published *published = e->published;
  const struct made *fits = NULL;
  for (int i = 0; i < GD_UNSEEN_COUNT; i++) {
    e->predicted[i] =
        gd_arena_alloc(&e->arena, (size_t)published->count + 1, sizeof *e->predicted[i]);
    if (!e->predicted[i])
      return gd_nomem(err, "while judging predictions");
  }
  GD_TRY(gd_published_fit(published, NULL, NULL, &e->fit, err));
  for (int i = 0; i < published->count; i++)
    e->predicted[GD_UNSEEN_NOTHING][i] =
        gd_published_predict(published, &published->rows[i], &e->fit, NULL);
  for (int i = GD_UNSEEN_MODEL; i < GD_UNSEEN_COUNT; i++)
    GD_TRY(predict_unseen(e, (enum gd_published_unseen)i, &fits, err));
  return set_intervals(e, err);
}

enum gd_status gd_published_errors_make(const struct gd_published *published,
                                        struct gd_published_errors *errors, struct gd_error *err) {
  *errors = (struct gd_published_errors){.published = published};
  enum gd_status status = make(errors, err);
  if (status != GD_OK)
    gd_published_errors_deinit(errors);
  return status;
}

/* --- the file ------------------------------------------------------------------------------- */

static const char *const known_names[GD_KNOWN_COUNT] = {[GD_KNOWN_BOTH] = "stack_and_gpu",
                                                        [GD_KNOWN_STACK] = "stack_and_architecture",
                                                        [GD_KNOWN_STACK_ALONE] = "stack",
                                                        [GD_KNOWN_GPU] = "gpu",
                                                        [GD_KNOWN_NOTHING] = "nothing"};

const char *gd_published_known_words(enum gd_published_known known) {
  static const char *const words[GD_KNOWN_COUNT] = {
      [GD_KNOWN_BOTH] = "published figures of that software and of that GPU",
      [GD_KNOWN_STACK] = "published figures of that software on GPUs of that architecture",
      [GD_KNOWN_STACK_ALONE] = "published figures of that software on GPUs of other architectures",
      [GD_KNOWN_GPU] = "documents of that software, and published figures of others on that GPU",
      [GD_KNOWN_NOTHING] = "documents of that software, and published figures of others elsewhere"};
  return words[known];
}

/* Four digits: more would be noise from one compiler to the next. */
static void append_figure(struct gd_strbuf *out, const char *key, double value) {
  gd_strbuf_printf(out, "\"%s\": %.4g", key, value);
}

static const char *gpu_of(const struct gd_published_row *row) {
  return row->target.gpu->name;
}
static const char *architecture_of(const struct gd_published_row *row) {
  return row->target.gpu->architecture;
}
static const char *kind_of(const struct gd_published_row *row) {
  return row->kind;
}

/* Each once. */
static void append_names(const struct gd_published *published,
                         const char *(*of)(const struct gd_published_row *row),
                         struct gd_strbuf *out) {
  bool first = true;
  for (int i = 0; i < published->count; i++) {
    const char *name = of(&published->rows[i]);
    bool said = false;
    for (int k = 0; k < i && !said; k++)
      said = strcmp(of(&published->rows[k]), name) == 0;
    if (!said)
      gd_strbuf_printf(out, "%s\"%s\"", first ? "" : ", ", name);
    first = first && said;
  }
}

enum gd_status gd_published_errors_append(const struct gd_published_errors *e,
                                          struct gd_strbuf *out, struct gd_error *err) {
  const struct gd_published *published = e->published;
  gd_strbuf_printf(out,
                   "{\n  \"source\": \"gpudays fit: data/published, %d rows of %d sources\",\n"
                   "  \"rows\": %d,\n  \"sources\": %d,\n  \"parameters\": {",
                   published->count, published->n_sources, published->count, published->n_sources);
  for (int i = 0; i < GD_GPU_PARAMETERS; i++) {
    gd_strbuf_append(out, i ? ",\n    " : "\n    ");
    append_figure(out, gd_gpu_parameter((enum gd_gpu_parameter)i)->name, e->fit.gpu.value[i]);
  }
  gd_strbuf_append(out, "\n  },\n  \"stacks\": {");
  for (int i = 0, first = 1; i < published->stacks.count; i++) {
    if (e->fit.stack_rows[i] == 0)
      continue;
    gd_strbuf_printf(out, "%s\n    \"%s\": {\n      ", first ? "" : ",",
                     published->stacks.all[i].name);
    append_figure(out, "traffic", e->fit.stack[i][GD_STACK_TRAFFIC]);
    gd_strbuf_append(out, ",\n      ");
    append_figure(out, "host_s", e->fit.stack[i][GD_STACK_HOST]);
    gd_strbuf_printf(out, ",\n      \"rows\": %d\n    }", e->fit.stack_rows[i]);
    first = 0;
  }
  gd_strbuf_append(out, "\n  },\n  \"gpus\": [");
  append_names(published, gpu_of, out);
  gd_strbuf_append(out, "],\n  \"architectures\": [");
  append_names(published, architecture_of, out);
  gd_strbuf_append(out, "],\n  \"kinds\": [");
  append_names(published, kind_of, out);
  gd_strbuf_append(out, "],\n  \"intervals\": {");
  for (int i = 0; i < GD_KNOWN_COUNT; i++) {
    const struct gd_published_interval *of = &e->of[i];
    gd_strbuf_printf(out, "%s\n    \"%s\": {\n      ", i ? "," : "", known_names[i]);
    append_figure(out, "low", of->low);
    gd_strbuf_append(out, ",\n      ");
    append_figure(out, "high", of->high);
    gd_strbuf_append(out, ",\n      ");
    append_figure(out, "median_error", of->median);
    gd_strbuf_append(out, ",\n      ");
    append_figure(out, "p90_error", of->p90);
    gd_strbuf_append(out, ",\n      ");
    append_figure(out, "covered", of->covered);
    gd_strbuf_printf(out, ",\n      \"rows\": %d,\n      \"sources\": %d\n    }", of->rows,
                     of->sources);
  }
  gd_strbuf_append(out, "\n  }\n}\n");
  return out->failed ? gd_nomem(err, "while writing a fit") : GD_OK;
}

static enum gd_status read_list(const struct gd_json *json, const char *key, char *to, size_t size,
                                struct gd_error *err) {
  const json_t *list = json_object_get(json->root, key), *one;
  size_t i, length = (size_t)snprintf(to, size, ",");
  if (!json_is_array(list))
    return gd_json_mismatch(json, json->root, key, "a list of names", err);
  json_array_foreach(list, i, one) {
    if (!json_is_string(one) || length + json_string_length(one) + 2 > size)
      return gd_json_mismatch(json, json->root, key, "a list of names", err);
    length += (size_t)snprintf(to + length, size - length, "%s,", json_string_value(one));
  }
  return GD_OK;
}

static enum gd_status read_fitted(const struct gd_json *json, struct gd_fitted *to,
                                  struct gd_error *err) {
  const json_t *intervals = json_object_get(json->root, "intervals");
  int64_t rows, sources;
  GD_TRY(gd_json_int(json, json->root, "rows", 1, 1000000, &rows, err));
  GD_TRY(gd_json_int(json, json->root, "sources", 1, 1000000, &sources, err));
  to->rows = (int)rows;
  to->sources = (int)sources;
  GD_TRY(read_list(json, "gpus", to->gpus, sizeof to->gpus, err));
  GD_TRY(read_list(json, "architectures", to->architectures, sizeof to->architectures, err));
  GD_TRY(read_list(json, "kinds", to->kinds, sizeof to->kinds, err));
  for (int i = 0; i < GD_KNOWN_COUNT; i++) {
    const json_t *one = json_object_get(intervals, known_names[i]);
    struct gd_published_interval *of = &to->of[i];
    if (!json_is_object(one))
      return gd_json_mismatch(json, json->root, "intervals", known_names[i], err);
    GD_TRY(gd_json_number(json, one, "low", 0.01, 1.01, &of->low, err));
    GD_TRY(gd_json_number(json, one, "high", 0.99, 100, &of->high, err));
    GD_TRY(gd_json_number(json, one, "median_error", 0, 10, &of->median, err));
    GD_TRY(gd_json_number(json, one, "p90_error", 0, 10, &of->p90, err));
    GD_TRY(gd_json_number(json, one, "covered", 0, 1, &of->covered, err));
    GD_TRY(gd_json_int(json, one, "rows", 0, 1000000, &rows, err));
    GD_TRY(gd_json_int(json, one, "sources", 0, 1000000, &sources, err));
    of->rows = (int)rows;
    of->sources = (int)sources;
  }
  return GD_OK;
}

enum gd_status gd_fitted_load(struct gd_fitted *fitted, struct gd_error *err) {
  struct gd_fitted made = {0};
  struct gd_json json = {0};
  bool found;
  GD_TRY(gd_gpu_fit_load(&made.gpu, err));
  GD_TRY(gd_fitted_open(&json, &found, err));
  enum gd_status status = found ? read_fitted(&json, &made, err) : GD_OK;
  gd_json_deinit(&json);
  if (status == GD_OK)
    *fitted = made;
  return status;
}

static bool has_name(const char *names, const char *name) {
  char wanted[80];
  snprintf(wanted, sizeof wanted, ",%.70s,", name);
  return strstr(names, wanted) != NULL;
}

static enum gd_published_known known_of(const struct gd_fitted *fitted, const struct gd_gpu *gpu,
                                        const struct gd_stack_facts *facts) {
  bool known = has_name(fitted->gpus, gpu->name);
  if (facts->rows == 0)
    return known ? GD_KNOWN_GPU : GD_KNOWN_NOTHING;
  return known                                                ? GD_KNOWN_BOTH
         : has_name(fitted->architectures, gpu->architecture) ? GD_KNOWN_STACK
                                                              : GD_KNOWN_STACK_ALONE;
}

void gd_fitted_stand(const struct gd_fitted *fitted, const struct gd_gpu *gpu,
                     const struct gd_stack_facts *facts, const struct gd_model *models,
                     int n_models, struct gd_fitted_ground *ground) {
  const char *unlike = NULL;
  for (int i = 0; i < n_models && !unlike; i++)
    if (!has_name(fitted->kinds, gd_family_kind(models[i].family)))
      unlike = gd_family_kind(models[i].family);
  ground->known = unlike ? GD_KNOWN_NOTHING : known_of(fitted, gpu, facts);
  ground->interval = &fitted->of[ground->known];
  snprintf(ground->words, sizeof ground->words, "%s%s%s", gd_published_known_words(ground->known),
           unlike ? ", none of them of a " : "", unlike ? unlike : "");
}
