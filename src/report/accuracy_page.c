/*
 * results/accuracy.md: what accuracy.h found, for people. Numbers come from there alone; the words
 * are about what they mean. Rounded so that compilers cannot disagree about a digit.
 */
#define _GNU_SOURCE /* lstat */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "predict/interval.h"
#include "report/accuracy.h"

static const double gib = 1024.0 * 1024 * 1024;

static void score_cells(struct gd_strbuf *out, const struct gd_accuracy_score *score) {
  if (score->count)
    gd_strbuf_printf(out, "%d | %.0f %% | %.0f %% | %.0f %% |", score->count, 100 * score->median,
                     100 * score->p90, 100 * score->worst);
  else
    gd_strbuf_append(out, "0 | | | |");
}

static void score_row(struct gd_strbuf *out, const char *name,
                      const struct gd_accuracy_score *score) {
  gd_strbuf_printf(out, "| %s | ", name);
  score_cells(out, score);
  gd_strbuf_append(out, "\n");
}

/* Signed, in percent; empty where there is nothing to compare. */
static void percent(struct gd_strbuf *out, double predicted, double measured) {
  if (predicted > 0 && measured > 0)
    gd_strbuf_printf(out, " %+.0f %% |", 100 * (predicted / measured - 1));
  else
    gd_strbuf_append(out, " |");
}

/* --- summary ------------------------------------------------------------------------------- */

static void published_row(const struct gd_accuracy *a, struct gd_strbuf *out,
                          enum gd_published_unseen unseen, const char *name) {
  if (a->published.count == 0)
    return;
  struct gd_published_score found = gd_published_score(&a->published_errors, unseen, NULL, NULL);
  score_row(
      out, name,
      &(struct gd_accuracy_score){
          .count = found.rows, .median = found.median, .p90 = found.p90, .worst = found.worst});
}

static void summary(const struct gd_accuracy *a, struct gd_strbuf *out) {
  int cells[2], right[2];
  struct gd_accuracy_score trials = gd_accuracy_trials(a, NULL);
  right[0] = gd_accuracy_feasible(a, GD_PAPER_OPTIMAL, &cells[0]);
  right[1] = gd_accuracy_feasible(a, GD_PAPER_NAIVE, &cells[1]);
  gd_strbuf_append(out, "| what | compared | median error | 90th percentile | worst |\n"
                        "|---|---:|---:|---:|---:|\n");
  score_row(out, "step time of trials measured with `gpudays`", &trials);
  if (a->n_runs > 0) {
    struct gd_accuracy_score runs = gd_accuracy_runs(a);
    score_row(out, "step time of runs trained with `gpudays`", &runs);
  }
  published_row(a, out, GD_UNSEEN_GPU, "published throughput, GPU left out");
  published_row(a, out, GD_UNSEEN_STACK, "published throughput, source and stack left out");
  score_row(out, "days of Tables 1 and 4, GPU left out", &a->held_gpu);
  score_row(out, "days of Tables 1 and 4, family left out", &a->held_family);
  score_row(out, "Megatron/DeepSpeed table, memory", &a->megatron_memory);
  score_row(out, "Megatron/DeepSpeed table, time", &a->megatron_time);
  gd_strbuf_printf(out,
                   "\nFits or does not fit, as the paper says: %d of %d cells of Table 1, %d of %d "
                   "of Table 4 (%.1f %%).\n",
                   right[0], cells[0], right[1], cells[1],
                   100.0 * (right[0] + right[1]) / (cells[0] + cells[1]));
}

/* --- trials -------------------------------------------------------------------------------- */

static void trial_row(const struct gd_accuracy_trial *t, struct gd_strbuf *out) {
  gd_strbuf_printf(out, "| %s | %s | %d | %lld |", t->model, t->method, t->ranks,
                   (long long)t->micro_batch);
  if (t->planned_bytes > 0)
    gd_strbuf_printf(out, " %.1f | %.1f |", (double)t->peak_bytes / gib,
                     (double)t->planned_bytes / gib);
  else
    gd_strbuf_printf(out, " %.1f | |", (double)t->peak_bytes / gib);
  if (t->measured_s > 0)
    gd_strbuf_printf(out, " %.3g |", t->measured_s);
  else
    gd_strbuf_append(out, " does not fit |");
  if (t->why)
    gd_strbuf_printf(out, " %s | | |\n", t->why);
  else if (!t->feasible || !t->planned_feasible)
    gd_strbuf_printf(out, " %s | | |\n", t->planned_feasible ? "fits" : "does not fit");
  else {
    gd_strbuf_printf(out, " %.3g | %.3g to %.3g |", t->predicted_s, t->low_s, t->high_s);
    percent(out, t->predicted_s, t->measured_s);
    gd_strbuf_append(out, "\n");
  }
}

/* What the intervals of that device rest on. */
static void class_table(const struct gd_accuracy *a, const char *device, struct gd_strbuf *out) {
  gd_strbuf_append(out, "\n| class of points | trials | CPUs a rank | median error | worst |\n"
                        "|---|---:|---:|---:|---:|\n");
  for (int i = 0; i < GD_POINT_CLASSES; i++) {
    struct gd_trial_errors errors = gd_accuracy_errors(a, device, (enum gd_point_class)i);
    gd_strbuf_printf(out, "| %s | %d |", gd_point_class_name((enum gd_point_class)i),
                     errors.trials);
    if (errors.trials == 0)
      gd_strbuf_append(out, " | | |\n");
    else
      gd_strbuf_printf(out, " %d to %d | %.0f %% | %.0f %% |\n", errors.cpus_least,
                       errors.cpus_most, 100 * errors.median_error, 100 * errors.worst_error);
  }
}

static void device_section(const struct gd_accuracy *a, const struct gd_accuracy_trial *first,
                           struct gd_strbuf *out) {
  struct gd_accuracy_score score = gd_accuracy_trials(a, first->device);
  gd_strbuf_printf(out, "\n### %s\n\n", first->device);
  if (first->file[0])
    gd_strbuf_printf(out, "Trials of `results/%s`.\n", first->file);
  if (first->basis)
    gd_strbuf_printf(out, "Predictions rest on: %s.\n", first->basis);
  if (score.count) {
    int compared, within = gd_accuracy_within(a, first->device, &compared);
    gd_strbuf_printf(out, "Step time, %d trials: median error %.1f %%, worst %.1f %%; ",
                     score.count, 100 * score.median, 100 * score.worst);
    gd_strbuf_printf(out, "%d of %d lie within their interval.\n", within, compared);
    class_table(a, first->device, out);
  }
  gd_strbuf_append(out, "\n| model | method | ranks | micro-batch | GiB, run | GiB, planned | "
                        "step, measured (s) | step, predicted (s) | interval (s) | error |\n"
                        "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
  for (uint32_t i = 0; i < a->n_trials; i++)
    if (strcmp(a->trials[i].device, first->device) == 0)
      trial_row(&a->trials[i], out);
}

/* What `plan` prints for free-lunch by how much is known of the GPU. */
static enum gd_status own_intervals(const struct gd_accuracy *a, struct gd_strbuf *out,
                                    struct gd_error *err) {
  struct gd_accuracy_interval all[GD_ACCURACY_INTERVALS];
  GD_TRY(gd_accuracy_intervals(a, all, err));
  gd_strbuf_append(out,
                   "\n| asked of | interval of 90 % | high / low | left-out errors within it |\n"
                   "|---|---:|---:|---:|\n");
  for (int i = 0; i < GD_ACCURACY_INTERVALS; i++) {
    char text[GD_INTERVAL_TEXT];
    gd_strbuf_printf(out, "| %s | %s | %.2f | ", all[i].question,
                     gd_interval_say(all[i].error, text), pow(1 - all[i].error, -2));
    if (all[i].trials > 0)
      gd_strbuf_printf(out, "%d of %d trials%s", all[i].trials_within, all[i].trials,
                       all[i].rates > 0 ? "; " : "");
    if (all[i].rates > 0)
      gd_strbuf_printf(out, "%.0f %% of %d published rates", 100 * all[i].rates_within,
                       all[i].rates);
    gd_strbuf_append(out, " |\n");
  }
  gd_strbuf_append(out,
                   "\nNobody has run this engine on more than one GPU, nor on another than the "
                   "first, so that no trial can say how good those\nintervals are. They join two "
                   "errors that have nothing to do with each other: on trials, each predicted "
                   "without its model,\nand on published rates of other software, predicted "
                   "without their model, GPU or architecture. The last column says how\noften "
                   "each of them alone lies within the whole.\n");
  return GD_OK;
}

static enum gd_status trials_section(const struct gd_accuracy *a, struct gd_strbuf *out,
                                     struct gd_error *err) {
  gd_strbuf_append(out,
                   "\n## Trials measured with gpudays\n\n"
                   "Memory needs no prediction: it is the plan that would run. Step times "
                   "come from walking that plan with the\nrates of the device's calibration, for "
                   "the micro-batch, the memory and the threads of the trial: `plan --gpu` gives "
                   "the\nsame with `--threads`, and without it assumes four CPUs a GPU for what is "
                   "offloaded.\nEach trial is predicted without what trials of its model taught, "
                   "and intervals are of 90 %: Student's, over as many\nmodels as there are, 10 % "
                   "at least. A class without trials has x0.60 to x1.67.\n");
  GD_TRY(own_intervals(a, out, err));
  if (a->n_trials == 0)
    gd_strbuf_append(out, "\nThere are none.\n");
  for (uint32_t i = 0; i < a->n_trials; i++) {
    bool seen = false;
    for (uint32_t j = 0; j < i; j++)
      seen = seen || strcmp(a->trials[i].device, a->trials[j].device) == 0;
    if (!seen)
      device_section(a, &a->trials[i], out);
  }
  return GD_OK;
}

/* --- runs ---------------------------------------------------------------------------------- */

static void run_row(const struct gd_accuracy_run *r, struct gd_strbuf *out) {
  const struct gd_accuracy_trial *t = &r->trial;
  gd_strbuf_printf(out, "| %s | %s | %s | %d | %lld | %.3g | %.3g |", t->model, t->method,
                   t->device, t->ranks, (long long)r->steps, t->measured_s, r->whole_s);
  if (t->predicted_s > 0)
    gd_strbuf_printf(out, " %.3g |", t->predicted_s);
  else
    gd_strbuf_printf(out, " %s |", t->why ? t->why : "");
  percent(out, t->predicted_s, t->measured_s);
  if (r->expected_s > 0)
    gd_strbuf_printf(out, " %.3g (%s) | %s |\n", r->expected_s, r->expected_by, r->slowed_by);
  else
    gd_strbuf_printf(out, " | %s |\n", r->slowed_by);
}

static void runs_section(const struct gd_accuracy *a, struct gd_strbuf *out) {
  if (a->n_runs == 0)
    return;
  gd_strbuf_append(out, "\n## Runs trained with gpudays\n\n"
                        "A step of a run is the median of its steps; a step of the whole has "
                        "evaluation and checkpoints in it.\n\n"
                        "| model | method | device | ranks | steps | step (s) | of the whole (s) | "
                        "predicted (s) | error | expected (s) | slowed by |\n"
                        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---|\n");
  for (uint32_t i = 0; i < a->n_runs; i++)
    run_row(&a->runs[i], out);
}

/* --- the paper's tables --------------------------------------------------------------------- */

static void parameters(const struct gd_accuracy *a, struct gd_strbuf *out) {
  gd_strbuf_append(out, "\n| parameter | fitted to all | range over the fits below | meaning |\n"
                        "|---|---:|---:|---|\n");
  for (int i = 0; i < GD_STACK_PARAMETERS; i++) {
    const struct gd_stack_parameter_info *info = gd_stack_parameter((enum gd_stack_parameter)i);
    double low = (double)INFINITY, high = 0;
    for (int f = 0; f < a->n_gpus + a->n_families; f++) {
      double value = (f < a->n_gpus ? &a->gpus[f] : &a->families[f - a->n_gpus])->fit.value[i];
      low = fmin(low, value);
      high = fmax(high, value);
    }
    gd_strbuf_printf(out, "| %s | %.3g %s | %.3g to %.3g | %s |\n", info->name,
                     a->all.fit.value[i] / info->shown, info->unit, low / info->shown,
                     high / info->shown, info->meaning);
  }
}

static void folds(const char *what, const struct gd_accuracy_fold *fold, int n,
                  const struct gd_accuracy_score *together, struct gd_strbuf *out) {
  gd_strbuf_printf(out,
                   "\n| %s left out | fitted to | scored | median | 90th percentile | worst | "
                   "median of Table 1 | of Table 4 |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
                   what);
  for (int i = 0; i < n; i++) {
    gd_strbuf_printf(out, "| %s | %d | ", fold[i].name, fold[i].fit.cells);
    score_cells(out, &fold[i].score);
    for (int t = 0; t < 2; t++)
      if (fold[i].table[t].count)
        gd_strbuf_printf(out, " %.0f %% |", 100 * fold[i].table[t].median);
      else
        gd_strbuf_append(out, " |");
    gd_strbuf_append(out, "\n");
  }
  gd_strbuf_append(out, "| **together** | | ");
  score_cells(out, together);
  gd_strbuf_append(out, " | |\n");
}

static void cell_name(const struct gd_stack_cell *cell, struct gd_strbuf *out) {
  gd_strbuf_printf(out, "| %d | %s | %s | %d |", cell->paper->table, cell->paper->model,
                   cell->paper->gpu, cell->paper->count);
}

/* GPU-days of a cell over the median of its row's: 1 where the paper's times scale. */
static double scatter(const struct gd_accuracy *a, const struct gd_stack_cell *cell) {
  double values[16];
  int n = 0;
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_paper_days *other = a->stack.cells[i].paper;
    if (other->table == cell->paper->table && strcmp(other->model, cell->paper->model) == 0 &&
        strcmp(other->gpu, cell->paper->gpu) == 0 && other->days > 0 && n < 16)
      values[n++] = other->days * other->count;
  }
  struct gd_accuracy_score score = gd_accuracy_score(values, n);
  return cell->paper->days * cell->paper->count / score.median;
}

static const char *note_of(const struct gd_accuracy *a, const struct gd_stack_cell *cell) {
  const struct gd_paper *paper = &a->stack.paper;
  for (int i = 0; i < paper->n_notes; i++) {
    const struct gd_paper_note *note = &paper->notes[i];
    if (note->table == cell->paper->table && strcmp(note->model, cell->paper->model) == 0 &&
        strcmp(note->gpu, cell->paper->gpu) == 0 &&
        (note->count == 0 || note->count == cell->paper->count))
      return note->note;
  }
  return "";
}

static void feasibility(const struct gd_accuracy *a, struct gd_strbuf *out) {
  int exact, near;
  gd_accuracy_micro_batches(a, &exact, &near);
  gd_strbuf_append(out, "\n### Fits or does not fit\n\n");
  for (int t = 0; t < 2; t++) {
    int cells, table = t ? GD_PAPER_NAIVE : GD_PAPER_OPTIMAL;
    int right = gd_accuracy_feasible(a, (enum gd_paper_table)table, &cells);
    gd_strbuf_printf(out, "Table %d: %d of %d right. ", table, right, cells);
  }
  gd_strbuf_printf(out,
                   "\nOf the %d micro-batches of Appendix J, %d are found exactly and %d within a "
                   "factor of two.\nNothing in the memory model is fitted, but its three constants "
                   "(context, allocator, live parameters of ZeRO 3)\nwere chosen with these tables "
                   "in view.\n\n| table | model | GPU | count | paper | predicted | why |\n"
                   "|---:|---|---|---:|---|---|---|\n",
                   a->stack.paper.n_settings, exact, near);
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    bool fits = a->cells[i].days_gpu > 0;
    if (fits == (cell->paper->days > 0))
      continue;
    cell_name(cell, out);
    gd_strbuf_printf(out, " %s | %s | %s |\n", fits ? "does not fit" : "fits",
                     fits ? "fits" : "does not fit", note_of(a, cell));
  }
}

static void choice_cells(struct gd_strbuf *out, const struct gd_accuracy_choices *choices) {
  gd_strbuf_printf(out, " %d of %d | %d | %.0f %% | %.0f %% |", choices->right, choices->of,
                   choices->near, 100 * choices->regret.median, 100 * choices->regret.p90);
}

/* Which method is the fastest, by fits that have seen all of it and less. */
static void choices(const struct gd_accuracy *a, struct gd_strbuf *out) {
  static const char *const unseen[GD_ACCURACY_UNSEEN_COUNT] = {"nothing", "GPU", "model", "family"};
  static const char *const groups[GD_ACCURACY_GROUP_COUNT] = {"free-lunch alone", "ZeRO 1",
                                                              "checkpointing", "offload"};
  gd_strbuf_append(
      out,
      "\n### Which method\n\n"
      "Appendix J names the fastest method of each cell, of 12 or 22. The paper has no times "
      "of the others, and its days are rounded\nto whole ones: where two methods are within "
      "2 % of one another its own table cannot tell which is faster. \"Found\" counts\nexact "
      "names; \"within 2 %\" also what we choose where the paper's method is predicted to take "
      "2 % longer at most. Regret: how\nmuch longer that is.\n\n"
      "| left out | found | within 2 % | regret, median | 90th percentile |\n"
      "|---|---:|---:|---:|---:|\n");
  for (int i = 0; i < GD_ACCURACY_UNSEEN_COUNT; i++) {
    struct gd_accuracy_choices found = gd_accuracy_choices(a, (enum gd_accuracy_unseen)i);
    gd_strbuf_printf(out, "| %s |", unseen[i]);
    choice_cells(out, &found);
    gd_strbuf_append(out, "\n");
  }
  gd_strbuf_printf(out,
                   "\nZeRO 1 on several GPUs and free-lunch alone on one, a rule without a model, "
                   "finds %d.\n",
                   gd_accuracy_rule_finds(a));
  gd_strbuf_append(out,
                   "\n| the paper chooses, GPU left out | found | within 2 % | regret, median | "
                   "90th percentile |\n|---|---:|---:|---:|---:|\n");
  for (int g = 0; g < GD_ACCURACY_GROUP_COUNT; g++) {
    struct gd_accuracy_choices found = gd_accuracy_choices_of(a, (enum gd_accuracy_group)g);
    gd_strbuf_printf(out, "| %s |", groups[g]);
    choice_cells(out, &found);
    gd_strbuf_append(out, "\n");
  }
}

static void flags(const struct gd_accuracy *a, struct gd_strbuf *out) {
  gd_strbuf_append(
      out, "\n### Cells above the peak\n\n"
           "By the FLOPs of our graph and the data sheets' peaks (dense, fp32 sums; TF32 "
           "for fp32 recipes of Table 1, fp32\nfor those of Table 4), these times need more "
           "than the GPUs can do. They are neither fitted nor scored.\n\n"
           "| table | model | GPU | count | days | of the peak |\n"
           "|---:|---|---|---:|---:|---:|\n");
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    if (cell->group != GD_STACK_IMPOSSIBLE)
      continue;
    cell_name(cell, out);
    gd_strbuf_printf(out, " %.0f | %.0f %% |\n", cell->paper->days, 100 * cell->share);
  }
}

static void apart(const struct gd_accuracy *a, struct gd_strbuf *out) {
  gd_strbuf_append(out, "\n### Cells at 80 to 100 % of the peak\n\n"
                        "Not impossible, and not believable either: not fitted, scored apart.\n\n"
                        "| left out | scored | median | 90th percentile | worst |\n"
                        "|---|---:|---:|---:|---:|\n");
  score_row(out, "GPU", &a->apart_gpu);
  score_row(out, "family", &a->apart_family);
  gd_strbuf_append(out,
                   "\n| table | model | GPU | count | days | of the peak | predicted, GPU left "
                   "out | error |\n|---:|---|---|---:|---:|---:|---:|---:|\n");
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    if (cell->group != GD_STACK_APART)
      continue;
    cell_name(cell, out);
    gd_strbuf_printf(out, " %.0f | %.0f %% | %.1f |", cell->paper->days, 100 * cell->share,
                     a->cells[i].days_gpu);
    percent(out, a->cells[i].days_gpu, cell->paper->days);
    gd_strbuf_append(out, "\n");
  }
}

static void misses(const struct gd_accuracy *a, struct gd_strbuf *out) {
  gd_strbuf_append(out, "\n### Times that are missed by more than 40 %\n\n"
                        "\"Scatter\" is the cell's GPU-days over the median of its row of four: "
                        "far from 1, the paper's own times do not\nscale, and no model of the "
                        "hardware finds them all.\n\n| table | model | GPU | count | days | "
                        "predicted, GPU left out | error | scatter | why |\n"
                        "|---:|---|---|---:|---:|---:|---:|---:|---|\n");
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    double days = a->cells[i].days_gpu;
    if (cell->group != GD_STACK_FITTED || days <= 0 || gd_stack_cell_error(cell, days) <= 0.4)
      continue;
    cell_name(cell, out);
    gd_strbuf_printf(out, " %.0f | %.1f |", cell->paper->days, days);
    percent(out, days, cell->paper->days);
    gd_strbuf_printf(out, " %.2f | %s |\n", scatter(a, cell), note_of(a, cell));
  }
}

static void paper_section(const struct gd_accuracy *a, struct gd_strbuf *out) {
  gd_strbuf_append(
      out,
      "\n## The paper's Tables 1 and 4\n\n"
      "The profile `--stack paper` predicts the paper's software (PyTorch, Transformers, "
      "DeepSpeed) "
      "from the graph of each\nmodel: GEMMs, bytes moved by other ops, what autograd keeps, "
      "collectives and copies to the host. No compilation\nunder ZeRO or for Mamba, no fused "
      "attention for RoBERTa; largest power of two as micro-batch; 64 GB of host memory\na GPU. "
      "Table 1 is the fastest of the 12 or 22 methods that fit, Table 4 the naive one. Seven "
      "parameters, the same for\nall GPUs and models, are fitted by least squares in the logarithm "
      "of days, outliers weighted down, and of how much longer\nthe paper's own method would take, "
      "a fifth as heavy; a multiplier cannot be less than 1:\n");
  gd_strbuf_append(
      out,
      "\n```\n"
      "micro-step = forward + backward; checkpointed: 2 forward + backward\n"
      "phase      = FLOPs / peak + FLOPs / (reuse x B) + bytes x factor / (0.8 B)\n"
      "             B: memory bandwidth of the data sheet; factor: compiled, eager, eager x "
      "autocast; scores\n"
      "copies     = bytes a parameter / (0.85 B): 12 for casts under autocast, 16 into and out of "
      "buckets of data parallel,\n"
      "             two passes over ZeRO's gradients\n"
      "collective = bytes x (n - 1) / n / link; link: bus, or 70 % of NVLink where all are joined "
      "by it\n"
      "             in every micro-step, as the paper times it: data parallel 4 bytes a parameter "
      "and ZeRO 2 behind the\n"
      "             backward pass as far as that takes, ZeRO 1 after it; ZeRO 3 and FSDP gather "
      "behind the whole of it\n"
      "offload    = bytes / half of the host link, and 0.3e9 parameters a second of Adam a GPU's "
      "share of CPUs\n"
      "unseen     = of the backward pass, then of the forward pass, the share that the last ahead "
      "kernels of it are:\n"
      "             without sharding and with ZeRO 1, not offloaded; never so much that what is "
      "seen is above the peak\n"
      "step       = (micro-step - unseen) x accumulation + update; what is a number here is "
      "assumed, not fitted\n"
      "```\n"
      "\nThe paper reads the host's clock and does not wait for the GPU (`step_time.py` of its "
      "release, github.com/apoorvkh/\nacademic-pretraining, 2024-10-28). The host may run some "
      "1,000 launches ahead, so that the last kernels of a micro-step are in\nno time that it "
      "takes, unless the software waits by itself: FSDP does before it gathers, DeepSpeed from "
      "ZeRO 2 on and where\nit offloads. This is why cells above the peak exist, and why data "
      "parallel and ZeRO 1 win there. `gpudays plan --stack paper`\nanswers with days of a run, "
      "which waits, and has this clock's next to them.\n");
  parameters(a, out);
  gd_strbuf_printf(out,
                   "\nWhat is in the model was chosen with these tables in view; the values of its "
                   "parameters were "
                   "not.\nOnly what a fit has not seen counts. Each row below is a fit of its own, "
                   "without any cell of that GPU or family,\nscored on the cells that were left "
                   "out. Cells under 10 days are rounded to whole days: half a day of their error\n"
                   "is the table's. (Scored on the %d cells it is fitted to, the fit to all has a "
                   "median error of %.0f %%.)\n",
                   a->all.fit.cells, 100 * a->all.score.median);
  folds("GPU", a->gpus, a->n_gpus, &a->held_gpu, out);
  folds("family", a->families, a->n_families, &a->held_family, out);
  gd_strbuf_append(out, "\nOf one model alone, its relatives stay in the fit:\n");
  folds("model", a->models, a->n_models, &a->held_model, out);
  choices(a, out);
  feasibility(a, out);
  misses(a, out);
  flags(a, out);
  apart(a, out);
}

/* --- Megatron ------------------------------------------------------------------------------- */

static void megatron_row(const struct gd_megatron_row *row, const struct gd_stack_megatron *found,
                         struct gd_strbuf *out) {
  gd_strbuf_printf(out, "| %s | %d | %s |", row->model, row->zero_stage,
                   row->offload ? "yes" : "no");
  if (row->batch == 0) {
    gd_strbuf_printf(out, " none | does not fit | %.1f: %s | | | | |\n", found->bytes.device / gib,
                     found->bytes.device > found->limit_bytes ? "does not fit" : "fits");
    return;
  }
  gd_strbuf_printf(out, " %d | %.1f to %.1f | %.1f |", row->batch, row->memory_low_bytes / gib,
                   row->memory_high_bytes / gib, found->bytes.device / gib);
  percent(out, found->bytes.device, row->memory_high_bytes);
  gd_strbuf_printf(out, " %.2f | %.2f |", row->iteration_s, found->iteration_s);
  percent(out, found->iteration_s, row->iteration_s);
  gd_strbuf_append(out, "\n");
}

static void waiting_row(const struct gd_megatron_row *row, struct gd_strbuf *out) {
  gd_strbuf_printf(out, "| %s | %d | %d | %s | %d | %.1f | %.2f |\n", row->model,
                   row->model_parallel, row->zero_stage, row->offload ? "yes" : "no", row->batch,
                   row->memory_high_bytes / gib, row->iteration_s);
}

static void megatron_section(const struct gd_accuracy *a, struct gd_strbuf *out) {
  const struct gd_paper *paper = &a->stack.paper;
  int right = 0, rows = 0, shorter = 0, timed = 0;
  for (int i = 0; i < paper->n_megatron; i++) {
    const struct gd_megatron_row *row = &paper->megatron[i];
    const struct gd_stack_megatron *found = &a->megatron[i];
    if (row->model_parallel > 1)
      continue;
    rows++;
    right += (found->bytes.device <= found->limit_bytes) == (row->batch > 0);
    timed += row->batch > 0;
    shorter += row->batch > 0 && found->iteration_s < row->iteration_s;
  }
  gd_strbuf_printf(
      out,
      "\n## The Megatron/DeepSpeed table\n\n"
      "GPT on 8 x A100 40 GB, sequences of 1,024, every layer checkpointed, one micro-step a step. "
      "Nothing "
      "is fitted to it:\nthe parameters are those of `--stack megatron`, from what others "
      "published "
      "of that software; %d of %d times are predicted\ntoo short.\nMemory is compared with the "
      "highest of "
      "the 8 "
      "GPUs, as `nvidia-smi` shows it, with what the allocator holds and does\nnot use. Fits or "
      "not: "
      "%d of %d right.\n\n"
      "| model | ZeRO | offload | batch | GiB, lowest to highest | GiB, predicted | error | "
      "iteration (s) | predicted (s) | error |\n"
      "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|\n",
      shorter, timed, right, rows);
  for (int i = 0; i < paper->n_megatron; i++)
    if (paper->megatron[i].model_parallel == 1)
      megatron_row(&paper->megatron[i], &a->megatron[i], out);
  gd_strbuf_append(out,
                   "\nThese rows wait for tensor parallelism:\n\n"
                   "| model | model parallel | ZeRO | offload | batch | GiB | iteration (s) |\n"
                   "|---|---:|---:|---|---:|---:|---:|\n");
  for (int i = 0; i < paper->n_megatron; i++)
    if (paper->megatron[i].model_parallel > 1)
      waiting_row(&paper->megatron[i], out);
}

/* --- every cell ----------------------------------------------------------------------------- */

static void cells_section(const struct gd_accuracy *a, struct gd_strbuf *out) {
  static const char *const groups[GD_STACK_GROUP_COUNT] = {
      [GD_STACK_FITTED] = "", [GD_STACK_APART] = "apart", [GD_STACK_IMPOSSIBLE] = "above the peak"};
  gd_strbuf_append(out,
                   "\n## Every cell\n\n| table | model | GPU | count | days | of the peak | GPU "
                   "left out | error | family left out | error | method, micro-batch | |\n"
                   "|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|\n");
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    const struct gd_accuracy_cell *found = &a->cells[i];
    char method[GD_METHOD_NAME];
    cell_name(cell, out);
    if (cell->paper->days > 0)
      gd_strbuf_printf(out, " %.0f | %.0f %% |", cell->paper->days, 100 * cell->share);
    else
      gd_strbuf_append(out, " does not fit | |");
    if (!found->point) {
      gd_strbuf_append(out, " does not fit | | | | | |\n");
      continue;
    }
    gd_strbuf_printf(out, " %.1f |", found->days_gpu);
    percent(out, found->days_gpu, cell->paper->days);
    gd_strbuf_printf(out, " %.1f |", found->days_family);
    percent(out, found->days_family, cell->paper->days);
    gd_strbuf_printf(out, " %s, %lld | %s |\n", gd_method_name(&found->point->method, method),
                     (long long)found->point->micro_batch,
                     groups[cell->group] ? groups[cell->group] : "");
  }
}

enum gd_status gd_accuracy_page(const struct gd_accuracy *accuracy, struct gd_strbuf *out,
                                struct gd_error *err) {
  gd_strbuf_append(out,
                   "# How good predictions are\n\n"
                   "Written by `make accuracy` (`gpudays accuracy`); a test compares this page "
                   "with what the program computes.\n\n");
  summary(accuracy, out);
  GD_TRY(trials_section(accuracy, out, err));
  runs_section(accuracy, out);
  GD_TRY(gd_accuracy_published_section(accuracy, out, err));
  paper_section(accuracy, out);
  megatron_section(accuracy, out);
  cells_section(accuracy, out);
  return GD_OK;
}

/* Next to a link or a device there is nobody's place for it. */
static bool has_place(const char *path) {
  struct stat facts;
  return lstat(path, &facts) == 0 && S_ISREG(facts.st_mode);
}

bool gd_accuracy_picture_path(const struct gd_accuracy *a, const char *page, char *path,
                              size_t size) {
  const char *end = strrchr(page, '/');
  int length = snprintf(path, size, "%.*saccuracy.svg", end ? (int)(end + 1 - page) : 0, page);
  return a->published.count > 0 && has_place(page) && length >= 0 && (size_t)length < size;
}

static enum gd_status write_picture(const struct gd_accuracy *a, const char *path,
                                    struct gd_strbuf *text, struct gd_error *err) {
  gd_accuracy_published_picture(a, text);
  if (text->failed)
    return gd_nomem(err, "while drawing published throughput");
  return gd_file_write(path, text->text, text->length, err);
}

enum gd_status gd_accuracy_write_page(const struct gd_accuracy *a, const char *path,
                                      struct gd_error *err) {
  struct gd_strbuf page = {0};
  char picture[GD_FILE_PATH];
  enum gd_status status = gd_accuracy_page(a, &page, err);
  if (status == GD_OK)
    status = page.failed ? gd_nomem(err, "while writing the page")
                         : gd_file_write(path, page.text, page.length, err);
  page.length = 0;
  if (status == GD_OK && gd_accuracy_picture_path(a, path, picture, sizeof picture))
    status = write_picture(a, picture, &page, err);
  gd_strbuf_deinit(&page);
  return status;
}
