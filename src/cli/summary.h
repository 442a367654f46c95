/*
 * The summary of one point for people: title, then answer, step, memory, rate and notes, of a trial
 * that was planned, predicted or measured. `plan`, `bench` and `bench --simulate` show single
 * points by it.
 */
#ifndef GD_CLI_SUMMARY_H
#define GD_CLI_SUMMARY_H

#include "cli/predicting.h"
#include "search/points.h"

/* planned: the answer is whether it fits, with memory by category and, where they are known, the
   predicted times of that hardware; else it is what came of a search. */
enum gd_status gd_summary_append(struct gd_cli *cli, const struct gd_predicting *p,
                                 const struct gd_point *point, bool planned,
                                 struct gd_error *err) GD_MUST_USE;

/* Notes that a table has too, once for all of its rows; up_to: "up to " there. Each is empty where
   there is nothing to say. */
void gd_summary_load_note(struct gd_strbuf *out, const char *up_to, double busy_share,
                          bool disturbed);
void gd_summary_held_note(struct gd_strbuf *out, const char *up_to, const struct gd_trial *trial);
void gd_summary_clock_notes(struct gd_strbuf *out, const char *up_to, const struct gd_trial *trial);
/* The share of the time that the process was held back, by what is not the GPU. */
double gd_summary_held_share(const struct gd_trial *trial);

#endif
