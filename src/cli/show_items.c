/*
 * Lines of an answer; see show_items.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/show_items.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

enum { LABEL = 12, MOST_COLUMNS = 80, LEAST_COLUMNS = 40 };

/* --- lines --------------------------------------------------------------------------------- */

/* 80, or what a narrower terminal has. */
static int columns_of_items(void) {
  int columns = gd_show_columns();
  if (columns <= 0 || columns > MOST_COLUMNS)
    return MOST_COLUMNS;
  return columns > LEAST_COLUMNS ? columns : LEAST_COLUMNS;
}

void gd_show_item(struct gd_cli *cli, const char *label, const char *text) {
  gd_strbuf_printf(&cli->out, "  %-*s", LABEL - 2, label);
  gd_show_wrap(&cli->out, LABEL, LABEL, columns_of_items(), text);
}

void gd_show_item_buffer(struct gd_cli *cli, const char *label, struct gd_strbuf *text) {
  if (text->text && !text->failed)
    gd_show_item(cli, label, text->text);
  cli->out.failed = cli->out.failed || text->failed;
  gd_strbuf_deinit(text);
}

/* As a shell takes it: quoted where it must be, and without what moves the cursor. */
const char *gd_show_argument(struct gd_cli *cli, const char *text) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                              "_-./:@%+=,";
  struct gd_strbuf quoted = {0};
  if (*text && text[strspn(text, plain)] == '\0')
    return text;
  gd_strbuf_append(&quoted, "'");
  for (; *text; text++)
    if (*text == '\'')
      gd_strbuf_append(&quoted, "'\\''");
    else
      gd_strbuf_printf(&quoted, "%c", (unsigned char)*text < ' ' || *text == 127 ? '?' : *text);
  gd_strbuf_append(&quoted, "'");
  const char *cell = gd_show_cell(cli, "%s", quoted.text ? quoted.text : "");
  gd_strbuf_deinit(&quoted);
  return cell ? cell : "";
}

void gd_show_item_command(struct gd_cli *cli, const char *label, const char *command) {
  gd_strbuf_printf(&cli->out, "  %-*s%s\n", LABEL - 2, label, command);
}

/* --- dates --------------------------------------------------------------------------------- */

const char *gd_show_day(char text[GD_SHOW_DAY], double days) {
  text[0] = '\0';
  if (!(days < 3652))
    return text;
  time_t at = time(NULL) + (time_t)(days * 86400);
  struct tm parts;
  if (localtime_r(&at, &parts))
    strftime(text, GD_SHOW_DAY, "%Y-%m-%d", &parts);
  return text;
}

const char *gd_show_done(struct gd_cli *cli, double days, double low, double high) {
  char date[GD_SHOW_DAY], first[GD_SHOW_DAY], last[GD_SHOW_DAY];
  gd_show_day(first, low);
  if (!gd_show_day(date, days)[0] || !gd_show_day(last, high)[0])
    return "";
  if (days < 1 || !(high > low))
    return gd_show_cell(cli, "done by %s", date);
  return gd_show_cell(cli, "done by %s (%s - %s)", date, first, last);
}

void gd_show_item_time(struct gd_cli *cli, const char *of, double days, double low, double high,
                       const struct gd_calendar *calendar) {
  struct gd_show_duration shown;
  char interval[sizeof shown.interval + GD_SHOW_TEXT] = "";
  gd_show_duration(&shown, days, low, high);
  const char *done = calendar->jobs > 0 ? "of computing" : gd_show_done(cli, days, low, high);
  if (high > low)
    snprintf(interval, sizeof interval, "  (%.40s%s)", of ? of : "", shown.interval);
  size_t length = LABEL + strlen(shown.value) + strlen(interval) + 2 + strlen(done);
  gd_strbuf_printf(&cli->out, "  %-*s", LABEL - 2, "time");
  gd_show_bold(cli, shown.value);
  if (!done[0])
    gd_strbuf_printf(&cli->out, "%s\n", interval);
  else if ((int)length > columns_of_items())
    gd_strbuf_printf(&cli->out, "%s,\n%*s%s\n", interval, LABEL, "", done);
  else
    gd_strbuf_printf(&cli->out, "%s%s%s\n", interval, calendar->jobs > 0 ? " " : ", ", done);
}

/* --- deadlines ----------------------------------------------------------------------------- */

static const char *plural(double count) {
  return fabs(count - 1) < 1e-9 ? "" : "s";
}

/* "4.61", and no digits that say nothing. */
static const char *number_of_days(char text[GD_SHOW_TEXT], double days) {
  if (days < 999.5)
    snprintf(text, GD_SHOW_TEXT, "%.3g", days);
  else
    gd_format_number(text, GD_SHOW_TEXT, days, 0);
  return text;
}

void gd_show_item_deadline(struct gd_cli *cli, const struct gd_calendar *calendar,
                           double limit_days) {
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  enum gd_deadline deadline = gd_deadline_of(calendar->days_low, calendar->days_high, limit_days);
  const char *name = gd_deadline_name(deadline), *text = NULL;
  switch (deadline) {
  case GD_DEADLINE_NONE: return;
  case GD_DEADLINE_LIKELY:
    text = gd_show_cell(cli, "%s: %g day%s, and the interval ends at %s", name, limit_days,
                        plural(limit_days), number_of_days(a, calendar->days_high));
    break;
  case GD_DEADLINE_AT_RISK:
    text = gd_show_cell(cli, "%s: %g day%s lie within the interval, %s - %s days", name, limit_days,
                        plural(limit_days), number_of_days(a, calendar->days_low),
                        number_of_days(b, calendar->days_high));
    break;
  case GD_DEADLINE_NO:
    text = gd_show_cell(cli, "%s: %g day%s, and the interval begins at %s", name, limit_days,
                        plural(limit_days), number_of_days(a, calendar->days_low));
    break;
  }
  gd_show_item(cli, "deadline", text ? text : "");
}

/* --- queues -------------------------------------------------------------------------------- */

/* "24 h", "90 min". */
static const char *say_seconds(char text[GD_SHOW_TEXT], double seconds) {
  if (seconds >= 3600)
    snprintf(text, GD_SHOW_TEXT, "%.4g h", seconds / 3600);
  else if (seconds >= 60)
    snprintf(text, GD_SHOW_TEXT, "%.3g min", seconds / 60);
  else
    snprintf(text, GD_SHOW_TEXT, "%.3g s", seconds);
  return text;
}

void gd_show_item_calendar(struct gd_cli *cli, const struct gd_queue *queue,
                           const struct gd_calendar *calendar) {
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  struct gd_strbuf text = {0};
  if (!gd_queue_is_asked(queue))
    return;
  if (!isfinite(calendar->days)) {
    gd_show_item(cli, "calendar",
                 gd_show_cell(cli,
                              "never: of a job of %s, %s go into its start, loading the "
                              "checkpoint and ending in order; or more than %d jobs",
                              say_seconds(a, queue->wall_limit_s),
                              say_seconds(b, calendar->overhead_s), (int)GD_QUEUE_JOBS_MOST));
    return;
  }
  gd_strbuf_printf(&text, "%lld job%s", (long long)calendar->jobs, plural((double)calendar->jobs));
  if (queue->wall_limit_s > 0)
    gd_strbuf_printf(&text, " of %s", say_seconds(a, queue->wall_limit_s));
  if (queue->wait_s > 0)
    gd_strbuf_printf(&text, ", %s of waiting%s", say_seconds(a, queue->wait_s),
                     calendar->jobs > 1 ? " each" : "");
  if (queue->at_a_time > 1)
    gd_strbuf_printf(&text, ", %d in the queue at a time", queue->at_a_time);
  gd_strbuf_printf(&text, ": %s days", number_of_days(a, calendar->days));
  const char *done = gd_show_done(cli, calendar->days, calendar->days_low, calendar->days_high);
  gd_strbuf_printf(&text, "%s%s", done[0] ? ", " : "", done);
  gd_show_item_buffer(cli, "calendar", &text);
  gd_show_item(
      cli, "",
      gd_show_cell(cli,
                   "assumed: %s to start, a checkpoint of %s read and written at %g GB/s "
                   "by each job, and an end in order before its limit: %s of a job do not train",
                   say_seconds(a, GD_QUEUE_STARTUP_S),
                   gd_format_bytes(b, sizeof b, (int64_t)calendar->checkpoint_bytes),
                   GD_QUEUE_BYTES_PER_S / 1e9,
                   say_seconds((char[GD_SHOW_TEXT]){0}, calendar->overhead_s)));
}

static void set_date(struct gd_show_object *to, const char *key, double days) {
  char date[GD_SHOW_DAY];
  if (days > 0 && gd_show_day(date, days)[0])
    gd_show_set_text(to, key, date);
  else
    gd_show_set_null(to, key);
}

void gd_show_set_limit(struct gd_show_object *to, const char *key, enum gd_deadline limit) {
  if (limit == GD_DEADLINE_NONE)
    gd_show_set_null(to, key);
  else
    gd_show_set_text(to, key, gd_deadline_name(limit));
}

void gd_show_calendar(struct gd_show_object *to, const struct gd_calendar *calendar,
                      double limit_days) {
  const bool known = calendar->days > 0;
  const double none = (double)NAN;
  set_date(to, "done_low", calendar->days_low);
  set_date(to, "done", calendar->days);
  set_date(to, "done_high", calendar->days_high);
  gd_show_set_real(to, "calendar_days", known ? calendar->days : none);
  gd_show_set_real(to, "calendar_days_low", known ? calendar->days_low : none);
  gd_show_set_real(to, "calendar_days_high", known ? calendar->days_high : none);
  gd_show_set_int(to, "jobs", calendar->jobs);
  enum gd_deadline deadline =
      known ? gd_deadline_of(calendar->days_low, calendar->days_high, limit_days)
            : GD_DEADLINE_NONE;
  gd_show_set_limit(to, "deadline", deadline);
}

void gd_show_set_queue(struct gd_show_object *to, const char *key, const struct gd_queue *queue,
                       double checkpoint_bytes) {
  struct gd_show_object object;
  if (!gd_queue_is_asked(queue)) {
    gd_show_set_null(to, key);
    return;
  }
  gd_show_begin(&object);
  gd_show_set_positive(&object, "wall_limit_s", queue->wall_limit_s);
  gd_show_set_real(&object, "wait_s", queue->wait_s);
  gd_show_set_int(&object, "jobs_at_a_time", queue->at_a_time > 1 ? queue->at_a_time : 1);
  gd_show_set_real(&object, "startup_s", GD_QUEUE_STARTUP_S);
  gd_show_set_real(&object, "checkpoint_bytes", checkpoint_bytes);
  gd_show_set_real(&object, "checkpoint_bytes_per_s", GD_QUEUE_BYTES_PER_S);
  gd_show_set_real(&object, "overhead_s", gd_queue_overhead_s(queue, checkpoint_bytes));
  gd_show_set_object(to, key, &object);
}

struct gd_queue gd_show_queue_of(const struct gd_cli *cli) {
  const struct gd_cli_options *options = &cli->options;
  return (struct gd_queue){.wall_limit_s = options->wall_limit,
                           .wait_s = options->queue_wait,
                           .at_a_time = (int)options->jobs};
}

enum gd_status gd_show_check_queue(const struct gd_cli *cli, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  const struct gd_queue queue = gd_show_queue_of(cli);
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  if (options->jobs > 0 && !(queue.wall_limit_s > 0))
    return gd_fail(err, GD_BAD_INPUT,
                   "--jobs %lld is how many jobs of a run are in the queue at a time; --wall-limit "
                   "says how long one may take",
                   (long long)options->jobs);
  double overhead_s = gd_queue_overhead_s(&queue, 0);
  if (queue.wall_limit_s > 0 && overhead_s >= queue.wall_limit_s)
    return gd_fail(err, GD_BAD_INPUT,
                   "--wall-limit %s: a job needs %s to start and to end in order, and would not "
                   "train",
                   say_seconds(a, queue.wall_limit_s), say_seconds(b, overhead_s));
  return GD_OK;
}
