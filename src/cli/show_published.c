/*
 * Published rates as JSON; see show_published.h. Errors are of times, as on the page.
 */
#include "cli/show_published.h"

#include <math.h>

static const struct {
  const char *name, *score;
} unseen[GD_UNSEEN_COUNT] = {
    [GD_UNSEEN_NOTHING] = {"nothing", "nothing_left_out"},
    [GD_UNSEEN_MODEL] = {"model", "model_left_out"},
    [GD_UNSEEN_GPU] = {"gpu", "gpu_left_out"},
    [GD_UNSEEN_ARCHITECTURE] = {"architecture", "architecture_left_out"},
    [GD_UNSEEN_STACK] = {"source_and_stack", "source_and_stack_left_out"},
    [GD_UNSEEN_BOTH] = {"gpu_source_and_stack", "gpu_source_and_stack_left_out"}};

/* Rates: the most time is the least rate. Nothing is left to predict from: null. */
static void set_prediction(struct gd_show_object *to, const struct gd_published_errors *errors,
                           enum gd_published_unseen without, int at) {
  const struct gd_published_interval *interval = gd_published_interval_without(errors, without);
  double published = errors->published->rows[at].per_gpu;
  double error = gd_published_error(errors, without, at), predicted = published / exp(error);
  double low = predicted / interval->high, high = predicted / interval->low;
  gd_show_set_real(to, "predicted", predicted);
  gd_show_set_real(to, "error", exp(error) - 1);
  gd_show_set_real(to, "low", low);
  gd_show_set_real(to, "high", high);
  if (isnan(error))
    gd_show_set_null(to, "within");
  else
    gd_show_set_bool(to, "within", low <= published && published <= high);
}

void gd_show_published_row(struct gd_show_object *to, const struct gd_published_row *row) {
  char method[GD_METHOD_NAME];
  gd_show_begin(to);
  gd_show_set_text(to, "id", row->id);
  gd_show_set_text(to, "source", row->source);
  gd_show_set_text(to, "stack", row->facts->name);
  gd_show_set_text(to, "gpu", row->gpu_name);
  gd_show_set_int(to, "count", row->target.count);
  gd_show_set_text(to, "model", row->model);
  gd_show_set_int(to, "seq", row->seq);
  gd_show_set_int(to, "micro_batch", row->micro_batch);
  gd_show_set_int(to, "batch", row->batch);
  gd_show_set_text(to, "method", gd_method_name(&row->method, method));
  gd_show_set_text(to, "precision", gd_precision_name(row->precision));
  gd_show_set_real(to, "published", row->per_gpu);
}

static void set_row(struct gd_show_object *to, const struct gd_published_errors *errors, int at) {
  struct gd_show_object folds = {.object = json_array()};
  gd_show_published_row(to, &errors->published->rows[at]);
  set_prediction(to, errors, GD_UNSEEN_NOTHING, at);
  for (int i = GD_UNSEEN_MODEL; i < GD_UNSEEN_COUNT; i++) {
    struct gd_show_object fold;
    gd_show_begin(&fold);
    gd_show_set_text(&fold, "left_out", unseen[i].name);
    set_prediction(&fold, errors, (enum gd_published_unseen)i, at);
    gd_show_append(&folds, &fold);
  }
  gd_show_set_object(to, "folds", &folds);
}

static void set_score(struct gd_show_object *to, const char *key,
                      const struct gd_published_score *score) {
  struct gd_show_object object;
  bool any = score->rows > 0;
  gd_show_begin(&object);
  gd_show_set_int(&object, "compared", score->rows);
  gd_show_set_real(&object, "median_error", any ? score->median : (double)NAN);
  gd_show_set_real(&object, "p90_error", any ? score->p90 : (double)NAN);
  gd_show_set_real(&object, "worst_error", any ? score->worst : (double)NAN);
  gd_show_set_object(to, key, &object);
}

void gd_show_published(struct gd_show_object *to, const struct gd_published_errors *errors) {
  struct gd_show_object object, rows = {.object = json_array()};
  gd_show_begin(&object);
  gd_show_set_int(&object, "sources", errors->published->n_sources);
  for (int i = 0; i < GD_UNSEEN_COUNT; i++) {
    struct gd_published_score score =
        gd_published_score(errors, (enum gd_published_unseen)i, NULL, NULL);
    set_score(&object, unseen[i].score, &score);
  }
  for (int i = 0; i < errors->published->count; i++) {
    struct gd_show_object row;
    set_row(&row, errors, i);
    gd_show_append(&rows, &row);
  }
  gd_show_set_object(&object, "rows", &rows);
  gd_show_set_object(to, "published", &object);
}
