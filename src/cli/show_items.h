/*
 * The lines of an answer: a label, and a text that is wrapped under itself at 80 columns; dates
 * next to durations. `plan`, `bench` and `cost` answer with them.
 */
#ifndef GD_CLI_SHOW_ITEMS_H
#define GD_CLI_SHOW_ITEMS_H

#include "cli/show.h"
#include "money/calendar.h"

/* "  label     text" */
void gd_show_item(struct gd_cli *cli, const char *label, const char *text);
/* The same from a buffer, which is freed; nothing where it is empty. */
void gd_show_item_buffer(struct gd_cli *cli, const char *label, struct gd_strbuf *text);
/* An argument of a printed command as a shell takes it: quoted where it must be. */
const char *gd_show_argument(struct gd_cli *cli, const char *text);
/* A command is one line, however long: it is there to be copied. */
void gd_show_item_command(struct gd_cli *cli, const char *label, const char *command);

/* The day that is so many days from now, as 2026-12-31; "" past ten years. */
enum { GD_SHOW_DAY = 16 };
const char *gd_show_day(char text[GD_SHOW_DAY], double days);
/* "done by 2026-12-31 (2026-12-21 - 2027-01-13)", in the arena; "" past ten years. */
const char *gd_show_done(struct gd_cli *cli, double days, double low, double high);
/* "time": the duration with its interval, after `of` where that is not NULL, then when it is done.
 */
void gd_show_item_time(struct gd_cli *cli, const char *of, double days, double low, double high,
                       const struct gd_calendar *calendar);

/* "deadline": "likely: the upper end of the interval, 4.6 days, is within 5 days"; nothing without
   a limit. */
void gd_show_item_deadline(struct gd_cli *cli, const struct gd_calendar *calendar,
                           double limit_days);
/* "calendar": "24 jobs of 24 h, 6 h of waiting each: done by ...", with what is assumed; nothing
   where no queue was asked about. */
void gd_show_item_calendar(struct gd_cli *cli, const struct gd_queue *queue,
                           const struct gd_calendar *calendar);
/* "likely", "at risk", "no"; null where nothing was asked. */
void gd_show_set_limit(struct gd_show_object *to, const char *key, enum gd_deadline limit);
/* The same for programs: done, done_low, done_high, calendar_days, deadline, jobs. */
void gd_show_calendar(struct gd_show_object *to, const struct gd_calendar *calendar,
                      double limit_days);
/* Terms of the queue as an object; null where none was asked about. */
void gd_show_set_queue(struct gd_show_object *to, const char *key, const struct gd_queue *queue,
                       double checkpoint_bytes);

/* What --wall-limit, --queue-wait and --jobs say; GD_BAD_INPUT where a job could not train. */
struct gd_queue gd_show_queue_of(const struct gd_cli *cli);
enum gd_status gd_show_check_queue(const struct gd_cli *cli, struct gd_error *err) GD_MUST_USE;

#endif
