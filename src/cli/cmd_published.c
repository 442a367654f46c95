/*
 * `gpudays published [MODEL]`: rates that others measured and published, those nearest to a model
 * first, each with its share of the peak, what is predicted for it, and where it stands. The rows
 * are src/predict/published.h's.
 */
#include <math.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/show.h"
#include "cli/show_published.h"

struct found {
  const struct gd_published_row *row;
  double parameters, mfu, predicted;
  double apart; /* from the model that is asked for: |log| of their parameters */
  int at;
};

struct question {
  struct gd_cli *cli;
  struct gd_published published;
  struct gd_published_fit fit;
  const struct gd_gpu *gpu; /* NULL: all; likewise */
  const struct gd_stack_facts *stack;
  double parameters; /* of the model asked for; 0: none is */
  bool images;
  struct found *found;
  int count;
};

static enum gd_status count_parameters(struct question *q, struct gd_error *err) {
  struct gd_model model;
  struct gd_graph graph;
  if (q->cli->n_arguments == 0)
    return GD_OK;
  GD_TRY(gd_model_load(q->cli->arguments[0], &model, err));
  gd_graph_init(&graph);
  model.family->build(&model, 1, &graph);
  enum gd_status status = gd_graph_check(&graph, err);
  q->parameters = (double)gd_graph_parameters(&graph);
  q->images = model.family->images;
  gd_graph_deinit(&graph);
  return status;
}

static enum gd_status read_question(struct question *q, struct gd_error *err) {
  const struct gd_cli_options *options = &q->cli->options;
  GD_TRY(count_parameters(q, err));
  if (options->gpu)
    GD_TRY(gd_hw_gpu(&q->published.hw, options->gpu, &q->gpu, err));
  if (options->stack)
    GD_TRY(gd_stacks_find(&q->published.stacks, options->stack, &q->stack, err));
  return gd_published_kept_fit(&q->published, &q->fit, err);
}

static bool is_asked(const struct question *q, const struct gd_published_row *row) {
  int64_t count = q->cli->options.count;
  return (!q->gpu || row->target.gpu == q->gpu) && (!q->stack || row->facts == q->stack) &&
         (count == 0 || row->target.count == count) &&
         (q->parameters <= 0 || (row->seq == 0) == q->images);
}

/* Of the peak of the row's precision, with FLOPs as the paper counts them. */
static double mfu_of(const struct gd_published_row *row, const struct gd_stack_works *works) {
  const double *peaks = row->target.gpu->flops;
  double peak = row->precision == GD_PRECISION_BF16   ? peaks[GD_PEAK_BF16]
                : row->precision == GD_PRECISION_FP16 ? peaks[GD_PEAK_FP16]
                                                      : peaks[GD_PEAK_FP32];
  double each = works->model_flops / (double)row->micro_batch;
  return peak > 0 ? row->per_gpu * each / (row->seq > 0 ? (double)row->seq : 1) / peak : 0;
}

static int compare(const void *a, const void *b) {
  const struct found *x = a, *y = b;
  if (x->apart < y->apart || x->apart > y->apart)
    return x->apart < y->apart ? -1 : 1;
  return x->at - y->at;
}

static enum gd_status find_rows(struct question *q, struct gd_error *err) {
  q->found = gd_arena_alloc(&q->cli->arena, (size_t)q->published.count + 1, sizeof *q->found);
  if (!q->found)
    return gd_nomem(err, "while listing published rates");
  for (int i = 0; i < q->published.count; i++) {
    const struct gd_published_row *row = &q->published.rows[i];
    const struct gd_stack_works *works = &q->published.works[row->works];
    if (!is_asked(q, row))
      continue;
    q->found[q->count++] = (struct found){
        .row = row,
        .parameters = works->parameters,
        .mfu = mfu_of(row, works),
        .predicted = gd_published_predict(&q->published, row, &q->fit, NULL),
        .apart = q->parameters > 0 ? fabs(log(works->parameters / q->parameters)) : 0,
        .at = i};
  }
  qsort(q->found, (size_t)q->count, sizeof *q->found, compare);
  int64_t limit = q->cli->options.filter.limit;
  if (limit > 0 && limit < q->count)
    q->count = (int)limit;
  return GD_OK;
}

/* --- output -------------------------------------------------------------------------------- */

static enum gd_status show_objects(struct question *q, struct gd_error *err) {
  struct gd_show_object root, row, rows = {.object = json_array()};
  for (int i = 0; i < q->count; i++) {
    const struct found *found = &q->found[i];
    gd_show_published_row(&row, found->row);
    gd_show_set_real(&row, "parameters", found->parameters);
    gd_show_set_real(&row, "mfu", found->mfu > 0 ? found->mfu : (double)NAN);
    gd_show_set_real(&row, "predicted", found->predicted);
    gd_show_append(&rows, &row);
  }
  if (q->cli->options.csv)
    return gd_show_csv(&q->cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "published", &rows);
  return gd_show_json(&q->cli->out, &root, err);
}

static enum gd_status show_table(struct question *q, struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false, 0}, {"SIZE", true, 5},        {"GPUS", false, 0},   {"STACK", false, 1},
      {"SEQ", true, 4},    {"MICRO-BATCH", true, 6}, {"METHOD", false, 3}, {"PER S, GPU", true, 0},
      {"MFU", true, 0},    {"PREDICTED", true, 1},   {"SOURCE", false, 2}};
  struct gd_cli *cli = q->cli;
  char method[GD_METHOD_NAME], text[GD_SHOW_TEXT];
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < q->count; i++) {
    const struct found *found = &q->found[i];
    const struct gd_published_row *of = found->row;
    const char **row = gd_show_row(&rows);
    row[0] = of->model;
    row[1] = gd_show_cell(cli, "%s", gd_show_power(text, sizeof text, found->parameters));
    row[2] = gd_show_cell(cli, "%d x %s", of->target.count, of->gpu_name);
    row[3] = of->facts->name;
    row[4] = of->seq > 0 ? gd_show_count_cell(cli, of->seq) : "images";
    row[5] = gd_show_count_cell(cli, of->micro_batch);
    row[6] = gd_show_cell(cli, "%s", gd_method_name(&of->method, method));
    row[7] = gd_show_cell(cli, "%s", gd_format_number(text, sizeof text, of->per_gpu, 0));
    if (found->mfu > 0)
      row[8] = gd_show_cell(cli, "%.0f %%", 100 * found->mfu);
    row[9] = gd_show_cell(cli, "%+.0f %%", 100 * (found->predicted / of->per_gpu - 1));
    row[10] = of->source;
  }
  if (q->count == 0) {
    gd_strbuf_append(&cli->out, "nobody's rate of that is stored: 'gpudays accuracy add FILE' adds "
                                "one, 'gpudays plan --stack NAME' predicts it\n");
    return GD_OK;
  }
  GD_TRY(gd_show_rows(&rows, 0, err));
  gd_strbuf_printf(&cli->out,
                   "\n%d of %d rates. PER S, GPU: tokens, or images; PREDICTED: gpudays plan "
                   "--stack, over that rate\n",
                   q->count, q->published.count);
  return GD_OK;
}

enum gd_status gd_cmd_published(struct gd_cli *cli, struct gd_error *err) {
  struct question question = {.cli = cli};
  GD_TRY(gd_published_load(&question.published, err));
  enum gd_status status = read_question(&question, err);
  if (status == GD_OK)
    status = find_rows(&question, err);
  if (status == GD_OK)
    status = (gd_cli_for_programs(cli) ? show_objects : show_table)(&question, err);
  gd_published_deinit(&question.published);
  return status;
}
