/*
 * The report from its first file to its last: what is needed is read, items are made in the order
 * of the page, the page is written last.
 */
#define _GNU_SOURCE
#include "report/report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "gd_version.h"
#include "report/report_int.h"

static enum gd_status make_items(struct gd_report *report, struct gd_error *err) {
  GD_TRY(gd_report_items_results(report, err));
  GD_TRY(gd_report_items_bill(report, err));
  gd_report_appendix(report, "paper", "Appendix: the paper, reproduced");
  GD_TRY(gd_report_items_days(report, err));
  GD_TRY(gd_report_items_methods(report, err));
  GD_TRY(gd_report_items_cost(report, err));
  GD_TRY(gd_report_items_rest(report, err));
  gd_report_appendix_end(report);
  return GD_OK;
}

/* When the page was made, and what went into it. */
static void set_made_at(struct gd_report *report) {
  char now[32] = "";
  time_t seconds = time(NULL);
  struct tm parts;
  if (gmtime_r(&seconds, &parts))
    strftime(now, sizeof now, "%Y-%m-%d %H:%M UTC", &parts);
  const struct gd_report_measured *measured = &report->measured;
  int trials = measured->n_trials + measured->other_recipes;
  const char *left_out =
      measured->limited > 0
          ? gd_report_print(report,
                            "; %d more in the store %s left out, within a limit of memory that "
                            "was set",
                            measured->limited, measured->limited == 1 ? "is" : "are")
          : "";
  if (trials > 0)
    report->made_at = gd_report_print(report, "%s, from %d trial%s on %s%s.", now, trials,
                                      trials == 1 ? "" : "s", measured->devices, left_out);
  else
    report->made_at = gd_report_print(report, "%s, without trials%s.", now, left_out);
}

/* The one file of the user's that the page is made of. */
static enum gd_status read_survey(struct gd_report *report, struct gd_error *err) {
  if (!report->order->survey)
    return GD_OK;
  GD_TRY(gd_survey_load(&report->answers, report->order->survey, err));
  return gd_survey_plots(&report->answers, &report->answer_figures, &report->n_answer_figures, err);
}

static enum gd_status make(struct gd_report *report, struct gd_error *err) {
  struct gd_error no_gnuplot = {0};
  GD_TRY(read_survey(report, err)); /* before anything is written: it may be wrong */
  GD_TRY(gd_file_make_folder(report->order->folder, err));
  GD_TRY(gd_paper_load(&report->paper, err));
  GD_TRY(gd_hw_load(&report->hw, err));
  GD_TRY(gd_report_measure(report, err));
  GD_TRY(gd_report_predict(report, err));
  report->draws = gd_plot_works(&no_gnuplot) == GD_OK;
  if (!report->draws)
    snprintf(report->made->note, sizeof report->made->note, "%.500s", no_gnuplot.text);
  set_made_at(report);
  if (!report->draws)
    gd_report_text(report,
                   gd_report_print(report, "This page has no drawings: %.400s.", no_gnuplot.text));
  report->batch = gd_plot_batch_new();
  if (!report->batch)
    return gd_report_no_memory(err);
  GD_TRY(make_items(report, err));
  GD_TRY(gd_plot_batch_draw(report->batch, err));
  GD_TRY(gd_report_write_page(report, err));
  return gd_report_replace_files(report, err);
}

enum gd_status gd_report_write(const struct gd_report_order *order,
                               struct gd_report_summary *summary, struct gd_error *err) {
  struct gd_report report = {.order = order, .made = summary};
  *summary = (struct gd_report_summary){0};
  snprintf(summary->page, sizeof summary->page, "%s/index.html", order->folder);
  enum gd_status status = make(&report, err);
  gd_plot_batch_free(report.batch);
  gd_mem_free(report.places);
  gd_strbuf_deinit(&report.body);
  gd_strbuf_deinit(&report.contents);
  gd_strbuf_deinit(&report.files);
  gd_survey_deinit(&report.answers);
  gd_paper_deinit(&report.paper);
  gd_hw_deinit(&report.hw);
  gd_arena_deinit(&report.arena);
  return status;
}
