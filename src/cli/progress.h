/*
 * The progress line: one line on stderr, rewritten in place while a trial runs and cleared at its
 * end. Shown on a terminal only; who pipes or says --quiet sees nothing of it.
 */
#ifndef GD_CLI_PROGRESS_H
#define GD_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct gd_progress {
  bool on;
  char label[160]; /* what runs: "pythia-14m (2 of 5)" */
  int64_t last_ns; /* when it was last drawn */
  int shown;       /* columns on the screen now */
  char what[32];   /* what was last drawn as going on */
};

/* The callback of struct gd_trial_options; user is the struct. eta_s below 0: not known yet. */
void gd_progress_report(void *user, const char *what, double done, double eta_s);
/* A line of the caller's own, what matters most first: it is cut at the terminal's width. */
void gd_progress_line(struct gd_progress *progress, const char *line);
void gd_progress_clear(struct gd_progress *progress);

#endif
