/*
 * Drawing the progress line; see progress.h. Ten times a second at most: a terminal over ssh is
 * slow, and the cores belong to the trial.
 */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/switches.h"
#include "cli/show.h"

enum { PERIOD_NS = 100000000 };

/* A rank writes to a pipe: the process that has started it says how wide the terminal is. */
int gd_progress_columns(void) {
  struct winsize size;
  const char *mark = gd_env("GPUDAYS_LAUNCHED"), *columns = mark ? strchr(mark, 'w') : NULL;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return size.ws_col;
  int told = columns ? (int)strtol(columns + 1, NULL, 10) : 0;
  return told > 0 ? told : 80;
}

/* Draws the line; it has no characters that move the cursor. */
static void draw(struct gd_progress *progress, const char *line) {
  int length = (int)strlen(line);
  int columns = gd_progress_columns() - 1; /* the last column would wrap on some terminals */
  if (length > columns)
    length = columns;
  int rest = progress->shown > length ? progress->shown - length : 0;
  fprintf(stderr, "\r%.*s%*s", length, line, rest, "");
  fflush(stderr);
  progress->shown = length;
  progress->last_ns = gd_clock_ns();
}

static bool is_too_soon(const struct gd_progress *progress) {
  return progress->shown > 0 && gd_clock_ns() - progress->last_ns < PERIOD_NS;
}

/* The fields up to that rank. */
static void join(char *line, size_t size, const struct gd_progress_field *fields, int count,
                 int most) {
  size_t used = 0;
  line[0] = '\0';
  for (int i = 0; i < count && used < size; i++)
    if (fields[i].rank <= most)
      used += (size_t)snprintf(line + used, size - used, "%s%s", used ? ", " : "", fields[i].text);
}

void gd_progress_fields(struct gd_progress *progress, const struct gd_progress_field *fields,
                        int count) {
  char line[512];
  if (!progress->on || is_too_soon(progress))
    return;
  int most = count, columns = gd_progress_columns() - 1;
  do
    join(line, sizeof line, fields, count, most);
  while ((int)strlen(line) > columns && most-- > 0);
  gd_text_clean(line);
  draw(progress, line);
}

void gd_progress_report(void *user, const char *what, double done, double eta_s) {
  struct gd_progress *progress = user;
  char line[256], eta[GD_SHOW_TEXT];
  bool same = progress->shown > 0 && strncmp(progress->what, what, sizeof progress->what - 1) == 0;
  if (!progress->on || (same && is_too_soon(progress)))
    return;
  snprintf(progress->what, sizeof progress->what, "%s", what);
  if (eta_s < 0)
    snprintf(line, sizeof line, "%s: %s ...", progress->label, what);
  else
    snprintf(line, sizeof line, "%s: %s, %.0f %%, %s left", progress->label, what, 100 * done,
             gd_show_seconds(eta, sizeof eta, eta_s < 1 ? 1 : eta_s));
  gd_text_clean(line); /* the label is a model's name, and the words are another process's */
  draw(progress, line);
}

void gd_progress_clear(struct gd_progress *progress) {
  if (progress->shown > 0) {
    fprintf(stderr, "\r%*s\r", progress->shown, "");
    fflush(stderr);
  }
  progress->shown = 0;
}
