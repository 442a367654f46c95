/*
 * The beginning of the page: in a few sentences what the paper, the store and the predictions say.
 * Every number is computed from the same tables that follow.
 */
#include <string.h>

#include "report/html.h"
#include "report/report_int.h"

static void add_fact(struct gd_report *report, enum gd_report_source source, const char *text) {
  gd_strbuf_append(&report->body, "<li>");
  gd_report_chip(&report->body, source);
  gd_html_text(&report->body, text);
  gd_strbuf_append(&report->body, "</li>\n");
}

/* Cells of Table 1 that are feasible, and those beyond the peak. */
static void paper_facts(struct gd_report *report) {
  double ratios = 0;
  int feasible = 0, beyond = 0, pairs = 0;
  for (int i = 0; i < report->paper.n_days; i++) {
    const struct gd_paper_days *cell = &report->paper.days[i];
    if (cell->table != GD_PAPER_OPTIMAL || !(cell->days > 0))
      continue;
    const struct gd_paper_days *naive =
        gd_paper_find(&report->paper, GD_PAPER_NAIVE, cell->model, cell->gpu, cell->count);
    feasible++;
    beyond += cell->share > 1;
    if (naive && naive->days > 0) {
      ratios += naive->days / cell->days;
      pairs++;
    }
  }
  if (pairs > 0)
    add_fact(report, GD_REPORT_PAPER,
             gd_report_print(report,
                             "With the best settings all models train %.1f times as fast as with "
                             "naive ones, on average over %d cells where both are feasible.",
                             ratios / pairs, pairs));
  add_fact(
      report, GD_REPORT_PAPER,
      gd_report_print(report,
                      "%d of the %d times of Table 1 would need more than the GPUs' peak, by the "
                      "paper's own FLOPs and peaks; they are marked.",
                      beyond, feasible));
}

/* The fastest trial of each site, of the largest model that it has a good one of. */
static void measured_facts(struct gd_report *report) {
  enum { MOST = 4 };
  const struct gd_report_measured *measured = &report->measured;
  if (measured->n_trials == 0)
    add_fact(report, GD_REPORT_MEASURED,
             "Nothing yet. 'gpudays bench pythia-160m --methods all' measures the search space of "
             "one model on this machine; make the report again then.");
  for (int i = 0, said = 0; i < measured->n_sites && said < MOST; i++) {
    const struct gd_report_trial *best = NULL;
    for (int g = 0; g < measured->n_groups; g++) {
      const struct gd_report_trial *trial = measured->groups[g].best;
      if (trial && strcmp(trial->device, measured->sites[i].device) == 0 &&
          trial->ranks == measured->sites[i].ranks && trial->nodes == measured->sites[i].nodes &&
          (!best || trial->train_flops > best->train_flops))
        best = trial;
    }
    if (!best)
      continue;
    said++;
    add_fact(report, GD_REPORT_MEASURED,
             gd_report_print(report,
                             "%s takes %s days on %s with %s (95 %%: %s to %s): the run with the "
                             "most FLOPs that was measured there.",
                             gd_report_model_title(report, best->model),
                             gd_report_days(report, best->days), measured->sites[i].label,
                             best->method_name, gd_report_days(report, best->days_low),
                             gd_report_days(report, best->days_high)));
  }
}

/* The paper's own example, on this engine. */
static void predicted_facts(struct gd_report *report) {
  const struct gd_paper *paper = &report->paper;
  for (int k = 0; k < paper->n_recipes * GD_REPORT_CELLS && report->predicted.known; k++) {
    const struct gd_paper_recipe *recipe = &paper->recipes[k / GD_REPORT_CELLS];
    int cell = k % GD_REPORT_CELLS, count = gd_report_counts[cell % GD_REPORT_COUNTS];
    const struct gd_paper_gpu *gpu = &paper->gpus[cell / GD_REPORT_COUNTS];
    const struct gd_report_prediction *best = &report->predicted.best[k];
    const struct gd_paper_days *days =
        gd_paper_find(paper, GD_PAPER_OPTIMAL, recipe->model, gpu->gpu, count);
    if (strcmp(recipe->model, "pythia-1b") != 0 || strcmp(gpu->gpu, "a100") != 0 || count != 4 ||
        best->state != GD_REPORT_KNOWN || !days)
      continue;
    add_fact(
        report, GD_REPORT_PREDICTED,
        gd_report_print(report,
                        "Pythia 1.0B on 4 A100 would take this program's engine %s days, %s to "
                        "%s with what is known (the paper: %s, at %.0f %% of the peak).",
                        gd_report_days(report, best->days), gd_report_days(report, best->low),
                        gd_report_days(report, best->high), gd_report_days(report, days->days),
                        100 * days->share));
  }
}

void gd_report_summarise(struct gd_report *report) {
  gd_strbuf_append(&report->body, "<section id=\"summary\" aria-labelledby=\"summary-title\">\n"
                                  "<h2 id=\"summary-title\">In short</h2>\n<ul class=\"facts\">\n");
  paper_facts(report);
  measured_facts(report);
  predicted_facts(report);
  gd_strbuf_append(&report->body, "</ul>\n</section>\n");
}
