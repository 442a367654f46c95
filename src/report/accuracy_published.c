/*
 * The part of results/accuracy.md about throughput that others published; see accuracy.h. Numbers
 * are those of predict/published_errors.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/csv.h"
#include "base/embedded.h"
#include "report/accuracy.h"

enum gd_status gd_accuracy_add_published(struct gd_accuracy *a, struct gd_error *err) {
  GD_TRY(gd_published_load(&a->published, err));
  return gd_published_errors_make(&a->published, &a->published_errors, err);
}

/* --- groups of rows -------------------------------------------------------------------------- */

enum group { GROUP_GPU, GROUP_STACK, GROUP_SOURCE, GROUP_SIZE, GROUP_SEQ, GROUP_COUNT, GROUPS };

/* A row's place in a kind of groups, as text. */
static const char *label_of(const struct gd_accuracy *a, const struct gd_published_row *row,
                            enum group group, char text[64]) {
  static const double sizes[] = {3e8, 1e9, 3e9, 1e10, HUGE_VAL};
  static const char *const size_names[] = {"up to 0.3e9", "0.3e9 to 1e9", "1e9 to 3e9",
                                           "3e9 to 10e9", "above 10e9"};
  const struct gd_stack_works *works = &a->published.works[row->works];
  int i = 0;
  switch (group) {
  case GROUP_GPU: return row->gpu_name;
  case GROUP_STACK: return row->facts->name;
  case GROUP_SOURCE:
    snprintf(text, 64, "%.*s", (int)strcspn(a->published.sources[row->group], " "),
             a->published.sources[row->group]);
    return text;
  case GROUP_SIZE:
    while (works->parameters > sizes[i])
      i++;
    return size_names[i];
  case GROUP_SEQ:
    if (row->seq == 0)
      return "images";
    snprintf(text, 64, "%lld", (long long)row->seq);
    return text;
  case GROUP_COUNT: snprintf(text, 64, "%d", row->target.count); return text;
  case GROUPS: break;
  }
  return "";
}

struct member {
  const struct gd_accuracy *a;
  enum group group;
  const char *label;
};

static bool is_member(const struct gd_published_row *row, const void *user) {
  const struct member *member = user;
  char text[64];
  return strcmp(label_of(member->a, row, member->group, text), member->label) == 0;
}

static void cells(struct gd_strbuf *out, const struct gd_published_score *score) {
  if (score->rows > 0)
    gd_strbuf_printf(out, " %d | %.0f %% | %.0f %% | %.0f %% |", score->rows, 100 * score->median,
                     100 * score->p90, 100 * score->worst);
  else
    gd_strbuf_append(out, " | | | |");
}

static void group_table(const struct gd_accuracy *a, enum group group, const char *title,
                        struct gd_strbuf *out) {
  static const enum gd_published_unseen shown[] = {GD_UNSEEN_MODEL, GD_UNSEEN_GPU, GD_UNSEEN_STACK};
  const struct gd_published *published = &a->published;
  gd_strbuf_printf(out,
                   "\n| %s | rows | median | 90 %% | worst | rows, GPU left out | median | 90 %% | "
                   "worst | rows, stack left out | median | 90 %% | worst |\n"
                   "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
                   title);
  for (int i = 0; i < published->count; i++) {
    char text[64], other[64];
    const char *label = label_of(a, &published->rows[i], group, text);
    bool said = false;
    for (int k = 0; k < i && !said; k++)
      said = strcmp(label_of(a, &published->rows[k], group, other), label) == 0;
    if (said)
      continue;
    struct member member = {a, group, label};
    gd_strbuf_printf(out, "| %s |", label);
    for (size_t s = 0; s < sizeof shown / sizeof *shown; s++) {
      struct gd_published_score score =
          gd_published_score(&a->published_errors, shown[s], is_member, &member);
      cells(out, &score);
    }
    gd_strbuf_append(out, "\n");
  }
}

/* --- what was fitted -------------------------------------------------------------------------- */

static void parameters(const struct gd_accuracy *a, struct gd_strbuf *out) {
  const struct gd_published_fit *fit = &a->published_errors.fit;
  gd_strbuf_append(out, "\n| parameter of every GPU | value | expected | unit | of what |\n"
                        "|---|---:|---:|---|---|\n");
  for (int i = 0; i < GD_GPU_PARAMETERS; i++) {
    const struct gd_gpu_parameter_info *info = gd_gpu_parameter((enum gd_gpu_parameter)i);
    gd_strbuf_printf(out, "| %s | %.2g | %.2g | %s | %s |\n", info->name, fit->gpu.value[i],
                     info->start, info->unit, info->meaning);
  }
  gd_strbuf_append(out, "\n| stack | rows | traffic | expected | host, us an op | expected |\n"
                        "|---|---:|---:|---:|---:|---:|\n");
  for (int i = 0; i < a->published.stacks.count; i++) {
    const struct gd_stack_facts *facts = &a->published.stacks.all[i];
    if (facts->own || facts->paper)
      continue;
    gd_strbuf_printf(out, "| %s | %d | %.2f | %.2f | %.2g | %.2g |\n", facts->name,
                     fit->stack_rows[i], fit->stack[i][GD_STACK_TRAFFIC],
                     facts->start[GD_STACK_TRAFFIC], 1e6 * fit->stack[i][GD_STACK_HOST],
                     1e6 * facts->start[GD_STACK_HOST]);
  }
}

static void gemms(const struct gd_accuracy *a, struct gd_strbuf *out) {
  gd_strbuf_append(out,
                   "\n| GPU | best GEMM in 16 bits, measured (TFLOP/s) | model | data sheet |\n"
                   "|---|---:|---:|---:|\n");
  for (int i = 0; i < a->published.n_gemms; i++) {
    const struct gd_published_gemm *gemm = &a->published.gemms[i];
    struct gd_gpu_model model;
    gd_gpu_model_make(gemm->gpu, &a->published_errors.fit.gpu, &model);
    gd_strbuf_printf(out, "| %s | %.0f | %.0f | %.0f |\n", gemm->gpu->name, gemm->flops / 1e12,
                     gd_gpu_model_gemm_flops(&model, 8192, 8192, 8192) / 1e12,
                     gemm->gpu->flops[GD_PEAK_BF16] / 1e12);
  }
}

/* --- intervals and misses --------------------------------------------------------------------- */

static bool is_of_source(const struct gd_published_row *row, const void *user) {
  return row->group == *(const int *)user;
}

/* Why the last median may be the smaller of the last two: rows of a GPU teach what they are off by,
   too. */
static void explain_last(const struct gd_accuracy *a, struct gd_strbuf *out) {
  const struct gd_published_errors *e = &a->published_errors;
  int nearer = 0, sources = a->published.n_sources;
  for (int i = 0; i < sources; i++)
    nearer += gd_published_score(e, GD_UNSEEN_BOTH, is_of_source, &i).median <
              gd_published_score(e, GD_UNSEEN_STACK, is_of_source, &i).median;
  gd_strbuf_printf(
      out,
      "\nThe last median may be smaller than the one above it though less is known, since of %d "
      "sources %d are predicted nearer without what others published of their GPU:\nthat is "
      "fitted with the errors of the others' software. A point or two among so few sources is no "
      "knowledge, so the interval is by the rule as wide as\nthe one above it, or wider.\n",
      sources, nearer);
}

static void intervals(const struct gd_accuracy *a, struct gd_strbuf *out) {
  gd_strbuf_append(out,
                   "\nIntervals of `plan --stack`, by what is known of the question. By weight: "
                   "every source weighs the same, and each GPU\nwithin it, as in the fit; row by "
                   "row, the one with the most rows decides.\n\n"
                   "| it rests on | interval, over the prediction | high / low | left-out rows "
                   "within it | by weight | median error, by weight | 90 %, by weight |\n"
                   "|---|---:|---:|---:|---:|---:|---:|\n");
  for (int i = 0; i < GD_KNOWN_COUNT; i++) {
    const struct gd_published_interval *of = &a->published_errors.of[i];
    gd_strbuf_printf(out,
                     "| %s | %.2f to %.2f | %.2f | %.0f %% of %d | %.0f %% | %.0f %% | %.0f %% |\n",
                     gd_published_known_words((enum gd_published_known)i), of->low, of->high,
                     of->high / of->low, 100.0 * of->within / (of->rows > 0 ? of->rows : 1),
                     of->rows, 100 * of->covered, 100 * of->median, 100 * of->p90);
  }
  explain_last(a, out);
}

/* What a file says of that row, or what the step itself shows. */
static void append_cause(const struct gd_accuracy *a, const struct gd_csv *notes, int at,
                         enum gd_published_unseen unseen, struct gd_strbuf *out) {
  const struct gd_published_row *row = &a->published.rows[at];
  struct gd_stack_step step;
  int id = gd_csv_column(notes, "id"), cause = gd_csv_column(notes, "cause");
  for (int i = 0; i < notes->rows; i++)
    if (strcmp(gd_csv_cell(notes, i, id), row->id) == 0) {
      gd_strbuf_append(out, gd_csv_cell(notes, i, cause));
      return;
    }
  gd_published_predict(&a->published, row, &a->published_errors.fit, &step);
  double expected = row->facts->start[GD_STACK_HOST];
  double fitted = a->published_errors.fit.stack[row->stack][GD_STACK_HOST];
  bool unfitted = unseen == GD_UNSEEN_STACK || unseen == GD_UNSEEN_BOTH;
  if (step.host_s > 0.5 * step.gpu_s && unfitted)
    gd_strbuf_printf(out,
                     "the host launches kernels for %.0f %% of the step, at %.0f us an op on that "
                     "computer where %.0f are expected",
                     100 * fmin(1, step.host_s / (step.forward_s + step.backward_s)), 1e6 * fitted,
                     1e6 * expected);
  else if (step.host_s > 0.5 * step.gpu_s)
    gd_strbuf_printf(out, "the host launches kernels for %.0f %% of the step",
                     100 * fmin(1, step.host_s / (step.forward_s + step.backward_s)));
  else if (unfitted)
    gd_strbuf_append(out, "bytes moved by other ops are not those expected of such software");
  else
    gd_strbuf_append(out, "not known");
}

static enum gd_status misses(const struct gd_accuracy *a, struct gd_strbuf *out,
                             struct gd_error *err) {
  static const struct {
    enum gd_published_unseen unseen;
    const char *name;
  } kinds[] = {{GD_UNSEEN_MODEL, "its model"},
               {GD_UNSEEN_GPU, "its GPU"},
               {GD_UNSEEN_STACK, "its source and stack"}};
  struct gd_csv notes = {0};
  const struct gd_embedded_file *file = gd_embedded_find("published/notes.csv");
  if (file)
    GD_TRY(gd_csv_parse(&notes, file->path, file->text, file->length, err));
  gd_strbuf_append(out, "\nEvery row that is missed by more than 25 %:\n\n"
                        "| row | stack | GPU | count | model | sequence | micro-batch | left out | "
                        "error | why |\n|---|---|---|---:|---|---:|---:|---|---:|---|\n");
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    for (int i = 0; i < a->published.count; i++) {
      const struct gd_published_row *row = &a->published.rows[i];
      double error = exp(gd_published_error(&a->published_errors, kinds[k].unseen, i)) - 1;
      if (isnan(error) || fabs(error) <= 0.25)
        continue;
      gd_strbuf_printf(out, "| %s | %s | %s | %d | %s | %lld | %lld | %s | %+.0f %% | ", row->id,
                       row->facts->name, row->gpu_name, row->target.count, row->model,
                       (long long)row->seq, (long long)row->micro_batch, kinds[k].name,
                       100 * error);
      append_cause(a, &notes, i, kinds[k].unseen, out);
      gd_strbuf_append(out, " |\n");
    }
  gd_csv_deinit(&notes);
  return GD_OK;
}

enum gd_status gd_accuracy_published_section(const struct gd_accuracy *a, struct gd_strbuf *out,
                                             struct gd_error *err) {
  if (a->published.count == 0)
    return GD_OK;
  gd_strbuf_printf(
      out,
      "\n## Published throughput\n\n"
      "%d rates that %d sources measured and published, with the software that they name "
      "(`data/published`, each with its\nsource), against `plan --stack`. `gpudays fit` finds the "
      "parameters below, every source weighing the same, and each GPU\nwithin it. A row counts "
      "only "
      "by fits that have not seen it: without its model (a fifth of the models at a time), without "
      "its\nGPU, or without its source and its stack, of which then only the facts of its file are "
      "known. Errors are of times.\nWhat is in the model was chosen with these rows in view; no "
      "parameter is of one row, one model or one GPU.\n",
      a->published.count, a->published.n_sources);
  gd_strbuf_append(out, "\n![predicted over published, both axes logarithmic](accuracy.svg)\n");
  intervals(a, out);
  group_table(a, GROUP_GPU, "GPU", out);
  group_table(a, GROUP_STACK, "stack", out);
  group_table(a, GROUP_SOURCE, "source", out);
  group_table(a, GROUP_SIZE, "parameters", out);
  group_table(a, GROUP_SEQ, "sequence", out);
  group_table(a, GROUP_COUNT, "GPUs", out);
  GD_TRY(misses(a, out, err));
  parameters(a, out);
  gemms(a, out);
  return GD_OK;
}
