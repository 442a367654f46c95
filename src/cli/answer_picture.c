/*
 * A comparison of plan as a picture: dollars of rent and days, a series for each kind of GPU (and
 * model), its points labelled by how many there are; see answer.h.
 */
#include <math.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/cli.h"
#include "plot/plot.h"

struct picture {
  struct gd_cli *cli;
  const struct gd_answer *answers;
  int count;
  bool rented;    /* x is dollars; else it is the number of GPUs */
  bool one_model; /* whose name is in the title */
  int unpriced;   /* answers with days, but nobody rents that GPU out */
};

static bool is_shown(const struct picture *picture, const struct gd_answer *answer) {
  return answer->fits && answer->days > 0 && answer->gpu &&
         (!picture->rented || isfinite(answer->rent_usd));
}

static bool same_series(const struct gd_answer *a, const struct gd_answer *b) {
  return strcmp(a->gpu, b->gpu) == 0 && strcmp(a->model, b->model) == 0 &&
         strcmp(a->stack, b->stack) == 0;
}

/* The answers of one kind of GPU and model, from the one at `first` on. */
static enum gd_status fill_series(struct picture *picture, int first, struct gd_plot_series *series,
                                  struct gd_error *err) {
  struct gd_arena *arena = &picture->cli->arena;
  size_t most = (size_t)(picture->count - first);
  double *x = gd_arena_alloc(arena, most, sizeof *x), *y = gd_arena_alloc(arena, most, sizeof *y);
  double *low = gd_arena_alloc(arena, most, sizeof *low);
  double *high = gd_arena_alloc(arena, most, sizeof *high);
  const char **labels = gd_arena_alloc(arena, most, sizeof *labels);
  if (!x || !y || !low || !high || !labels)
    return gd_nomem(err, "for a picture");
  const struct gd_answer *of = &picture->answers[first];
  *series = (struct gd_plot_series){
      .name =
          picture->one_model ? of->gpu : gd_show_cell(picture->cli, "%s, %s", of->model, of->gpu),
      .x = x,
      .y = y,
      .low = low,
      .high = high,
      .labels = labels};
  for (int i = first; i < picture->count; i++) {
    const struct gd_answer *answer = &picture->answers[i];
    if (!is_shown(picture, answer) || !same_series(answer, of))
      continue;
    int at = series->count++;
    x[at] = picture->rented ? answer->rent_usd : answer->count;
    y[at] = answer->days;
    low[at] = answer->days_low;
    high[at] = answer->days_high;
    labels[at] = gd_show_cell(picture->cli, "%d", answer->count);
  }
  return GD_OK;
}

static enum gd_status fill_all(struct picture *picture, struct gd_plot_series *series, int *count,
                               struct gd_error *err) {
  for (int i = 0; i < picture->count; i++) {
    bool first = is_shown(picture, &picture->answers[i]);
    for (int k = 0; first && k < i; k++)
      first = !is_shown(picture, &picture->answers[k]) ||
              !same_series(&picture->answers[i], &picture->answers[k]);
    if (first)
      GD_TRY(fill_series(picture, i, &series[(*count)++], err));
  }
  return GD_OK;
}

enum gd_status gd_answer_may_draw(const struct gd_cli *cli, bool comparing, struct gd_error *err) {
  const char *path = cli->options.output;
  if (!path)
    return GD_OK;
  if (gd_cli_for_programs(cli))
    return gd_fail(err, GD_BAD_INPUT,
                   "-o writes a picture next to the table; leave out --json and --csv");
  if (!comparing || cli->options.n_gpus == 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "-o %s draws a comparison; name several with --gpu, as in --gpu 1x4090,2x4090",
                   path);
  if (!gd_plot_file_known(path))
    return gd_fail(err, GD_BAD_INPUT,
                   "-o %s: plan writes one file, a picture or its figures; give it a name that "
                   "ends in .svg, .png or .csv",
                   path);
  return gd_plot_file_is_drawn(path) ? gd_plot_works(err) : GD_OK;
}

enum gd_status gd_answer_draw(struct gd_cli *cli, const struct gd_answer *answers, int count,
                              struct gd_error *err) {
  struct picture picture = {.cli = cli, .answers = answers, .count = count, .one_model = true};
  struct gd_plot_series *series = gd_arena_alloc(&cli->arena, (size_t)count + 1, sizeof *series);
  int n_series = 0;
  if (!series)
    return gd_nomem(err, "for a picture");
  for (int i = 0; i < count; i++) {
    picture.rented = picture.rented || (answers[i].days > 0 && isfinite(answers[i].rent_usd));
    picture.one_model = picture.one_model && strcmp(answers[i].model, answers[0].model) == 0;
  }
  for (int i = 0; i < count; i++)
    picture.unpriced += picture.rented && answers[i].days > 0 && !isfinite(answers[i].rent_usd);
  GD_TRY(fill_all(&picture, series, &n_series, err));
  if (n_series == 0)
    return gd_fail(err, GD_UNSUPPORTED, "nothing that is compared has days: there is no picture");
  struct gd_plot plot = {
      .kind = GD_PLOT_SCATTER,
      .title = gd_show_cell(
          cli, picture.one_model ? "Days and dollars of %s%s" : "Days and dollars%.0s%s",
          answers[0].model, picture.rented ? "" : " by number of GPUs"),
      .x_label = picture.rented ? "USD of rent for the run" : "GPUs",
      .y_label = "days",
      .note = gd_show_cell(cli, "labels: GPUs; predicted by gpudays for %s; bars: 90 %% of cases%s",
                           answers[0].software,
                           picture.unpriced ? "; GPUs that nobody rents out are left out" : ""),
      .series = series,
      .n_series = n_series,
      .log_x = true,
      .log_y = true};
  return gd_plot_write_file(&plot, cli->options.output, err);
}
