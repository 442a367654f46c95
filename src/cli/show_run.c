/*
 * Runs as text and JSON; see show_run.h.
 */
#define _GNU_SOURCE
#include "cli/show_run.h"

#include <langinfo.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/curve.h"

enum { CURVE_ROWS = 8, CURVE_MARGIN = 14, BAR = 30 };

const char *gd_show_date(char *text, size_t size, int64_t seconds) {
  struct tm local;
  time_t when = (time_t)seconds;
  if (!localtime_r(&when, &local) || strftime(text, size, "%Y-%m-%d %H:%M", &local) == 0)
    snprintf(text, size, "?");
  return text;
}

/* "2026-11-18T09:40:00Z", or null for 0. */
static void set_time(struct gd_show_object *to, const char *key, int64_t seconds) {
  struct tm utc;
  time_t when = (time_t)seconds;
  char text[40];
  if (seconds > 0 && gmtime_r(&when, &utc) &&
      strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0)
    gd_show_set_text(to, key, text);
  else
    gd_show_set_null(to, key);
}

void gd_show_set_run(struct gd_show_object *to, const char *folder,
                     const struct gd_run_view *view) {
  gd_show_set_text(to, "run", folder);
  gd_show_set_text(to, "model", view->model);
  gd_show_set_text(to, "method", view->session.method);
  gd_show_set_text(to, "state", gd_run_state_name(view->state));
  gd_show_set_int(to, "step", view->step);
  gd_show_set_int(to, "steps", view->steps);
  gd_show_set_real(to, "loss", view->loss);
  gd_show_set_real(to, "eval_loss", view->eval_loss);
  gd_show_set_positive(to, "step_s", view->step_s);
  gd_show_set_positive(to, "tokens_per_s", view->log.images ? 0 : view->tokens_per_s);
  gd_show_set_positive(to, "images_per_s", view->log.images ? view->tokens_per_s : 0);
  gd_show_set_int(to, "skipped", view->skipped);
  gd_show_set_positive(to, "expected_step_s", view->session.expected_step_s);
  gd_show_set_text(to, "expected_by", view->session.expected_by);
  set_time(to, "changed", view->changed_s);
  set_time(to, "completion", view->completion_s);
  gd_show_set_int(to, "damaged_lines", view->log.damaged);
}

void gd_show_run_damage(struct gd_strbuf *notes, const struct gd_run_view *view,
                        const char *folder) {
  if (view->log.damaged > 0)
    gd_strbuf_printf(notes, "%s/log.jsonl has %lld damaged line%s, which %s passed over\n", folder,
                     (long long)view->log.damaged, view->log.damaged == 1 ? "" : "s",
                     view->log.damaged == 1 ? "was" : "were");
}

void gd_show_run_point(struct gd_strbuf *out, const struct gd_run_view *view,
                       const struct gd_run_point *point) {
  char step[GD_SHOW_TEXT], steps[GD_SHOW_TEXT], rate[GD_SHOW_TEXT];
  gd_strbuf_printf(out, "step %s of %s, loss %.4f, lr %.2e, norm %.3g, %s %s/s",
                   gd_format_count(step, sizeof step, point->step),
                   gd_format_count(steps, sizeof steps, view->steps), point->loss, point->lr,
                   point->norm, gd_format_number(rate, sizeof rate, point->tokens_per_s, 0),
                   view->log.images ? "images" : "tokens");
  if (point->mfu > 0)
    gd_strbuf_printf(out, ", MFU %.0f %%", 100 * point->mfu);
  gd_strbuf_append(out, point->skipped ? ", update skipped\n" : "\n");
}

void gd_show_run_eval(struct gd_strbuf *out, const struct gd_run_view *view,
                      const struct gd_run_eval *eval) {
  char step[GD_SHOW_TEXT], steps[GD_SHOW_TEXT];
  gd_strbuf_printf(out, "step %s of %s, evaluation %.4f\n",
                   gd_format_count(step, sizeof step, eval->step),
                   gd_format_count(steps, sizeof steps, view->steps), eval->loss);
}

static void append_bar(struct gd_strbuf *out, const struct gd_run_view *view) {
  char left[GD_SHOW_TEXT], date[GD_SHOW_TEXT];
  double share = fmin((double)view->step / (double)view->steps, 1);
  int filled = (int)(share * BAR);
  gd_strbuf_append(out, "  [");
  for (int i = 0; i < BAR; i++)
    gd_strbuf_append(out, i < filled ? "#" : "-");
  gd_strbuf_printf(out, "] %.0f %%", floor(100 * share));
  if (view->completion_s > 0)
    gd_strbuf_printf(
        out, ", %s left: done %s",
        gd_show_seconds(left, sizeof left, view->step_s * (double)(view->steps - view->step)),
        gd_show_date(date, sizeof date, view->completion_s));
  else
    gd_strbuf_printf(out, ", %s; last change %s", gd_run_state_name(view->state),
                     gd_show_date(date, sizeof date, view->changed_s));
  gd_strbuf_append(out, "\n");
}

/* How the steps compare with the expected time; nothing where it is not known. */
static void append_expected(struct gd_strbuf *out, const struct gd_run_session *session,
                            double step_s) {
  char now[GD_SHOW_TEXT], then[GD_SHOW_TEXT], line[256];
  if (session->expected_step_s <= 0 || step_s <= 0)
    return;
  double more = step_s / session->expected_step_s - 1;
  snprintf(line, sizeof line, "a step takes %s; the %s said %s: %.0f %% %s",
           gd_show_seconds(now, sizeof now, step_s), session->expected_by,
           gd_show_seconds(then, sizeof then, session->expected_step_s), 100 * fabs(more),
           more >= 0 ? "longer" : "shorter");
  gd_show_paragraph(out, 2, line);
}

static void append_curve(struct gd_cli *cli, const struct gd_run_log *log, int columns) {
  double *x = gd_mem_alloc(2 * (size_t)log->n_points + 1, sizeof *x), *y = x + log->n_points;
  if (!x) {
    cli->out.failed = true;
    return;
  }
  for (uint32_t i = 0; i < log->n_points; i++) {
    x[i] = (double)log->points[i].step;
    y[i] = log->points[i].loss;
  }
  columns -= CURVE_MARGIN;
  gd_curve_append(&cli->out,
                  &(struct gd_curve){.x = x,
                                     .y = y,
                                     .count = (int)log->n_points,
                                     .columns = columns < 8                  ? 8
                                                : columns > GD_CURVE_COLUMNS ? GD_CURVE_COLUMNS
                                                                             : columns,
                                     .rows = CURVE_ROWS,
                                     .indent = 2,
                                     .braille = strcmp(nl_langinfo(CODESET), "UTF-8") == 0});
  gd_mem_free(x);
}

void gd_show_run(struct gd_cli *cli, const struct gd_run_view *view, const char *folder,
                 int columns) {
  const struct gd_run_log *log = &view->log;
  gd_show_bold(cli, view->model);
  gd_strbuf_printf(&cli->out, ", %s: %s (%s)\n", view->session.method,
                   gd_run_state_name(view->state), folder);
  append_bar(&cli->out, view);
  if (log->n_points > 0) {
    gd_strbuf_append(&cli->out, "  ");
    gd_show_run_point(&cli->out, view, &log->points[log->n_points - 1]);
  } else
    gd_strbuf_append(&cli->out, "  no step yet\n");
  if (log->n_evals > 0) {
    gd_strbuf_append(&cli->out, "  ");
    gd_show_run_eval(&cli->out, view, &log->evals[log->n_evals - 1]);
  }
  append_expected(&cli->out, &view->session, view->step_s);
  append_curve(cli, log, columns);
}
