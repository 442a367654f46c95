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
/* A line of the caller's own: fields joined by ", ". Those that matter least are left out, whole,
   until it fits the terminal. */
struct gd_progress_field {
  const char *text;
  int rank; /* 0 matters most */
};
void gd_progress_fields(struct gd_progress *progress, const struct gd_progress_field *fields,
                        int count);
/* The columns of the terminal that the line is drawn on; 80 where nobody knows. */
int gd_progress_columns(void);
void gd_progress_clear(struct gd_progress *progress);

#endif
