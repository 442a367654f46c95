/*
 * `gpudays watch RUN`: follows a run that another process trains, from its folder alone. On a
 * terminal the screen is drawn anew; where it is piped, each step is a line.
 */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/switches.h"
#include "cli/cli.h"
#include "cli/show_run.h"

enum { LOOK_MS = 500, COLUMNS = 80 };

struct following {
  struct gd_cli *cli;
  const char *folder;
  struct gd_run_view view;
  bool draws;         /* on a terminal */
  int64_t step, eval; /* last ones that were printed */
};

static int terminal_columns(void) {
  struct winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS;
}

static bool may_draw(void) {
  const char *term = gd_env("TERM");
  return isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
}

/* What is new, in the order of steps; an evaluation comes after its step. */
static void append_lines(struct following *f) {
  const struct gd_run_log *log = &f->view.log;
  struct gd_strbuf *out = &f->cli->out;
  uint32_t point = 0, eval = 0;
  if (f->view.step < f->step) /* the run went back to a checkpoint */
    f->step = f->eval = f->view.step;
  while (point < log->n_points && log->points[point].step <= f->step)
    point++;
  while (eval < log->n_evals && log->evals[eval].step <= f->eval)
    eval++;
  while (point < log->n_points || eval < log->n_evals) {
    if (eval == log->n_evals ||
        (point < log->n_points && log->points[point].step <= log->evals[eval].step)) {
      f->step = log->points[point].step;
      gd_show_run_point(out, &f->view, &log->points[point++]);
    } else {
      f->eval = log->evals[eval].step;
      gd_show_run_eval(out, &f->view, &log->evals[eval++]);
    }
  }
}

static void append_end(struct following *f) {
  if (f->view.state == GD_RUN_STATE_FINISHED)
    gd_strbuf_printf(&f->cli->out, "finished: the model is in %s/model\n", f->folder);
  else
    gd_strbuf_printf(&f->cli->out, "stopped at step %lld: 'gpudays train %s' goes on\n",
                     (long long)f->view.step, f->folder);
}

static enum gd_status show_now(struct following *f, struct gd_error *err) {
  if (f->draws) {
    gd_show_run(f->cli, &f->view, f->folder, terminal_columns());
    fputs("\033[H\033[J", stdout); /* home, and clear what is below */
    fflush(stdout);
  } else {
    append_lines(f);
  }
  return gd_cli_write(f->cli, err);
}

static enum gd_status follow(struct following *f, struct gd_error *err) {
  f->draws = may_draw();
  f->step = f->view.step - 1; /* so that a line comes at once */
  f->eval = f->view.step - 1;
  GD_TRY(show_now(f, err));
  while (f->view.state == GD_RUN_STATE_TRAINING) {
    poll(NULL, 0, LOOK_MS);
    GD_TRY(gd_run_view_read(&f->view, f->folder, err));
    GD_TRY(show_now(f, err));
  }
  append_end(f);
  return GD_OK;
}

static enum gd_status show_once(struct following *f, struct gd_error *err) {
  struct gd_show_object object;
  if (!f->cli->options.json) {
    gd_show_run(f->cli, &f->view, f->folder, isatty(STDOUT_FILENO) ? terminal_columns() : COLUMNS);
    return GD_OK;
  }
  gd_show_begin(&object);
  gd_show_set_run(&object, f->folder, &f->view);
  return gd_show_json(&f->cli->out, &object, err);
}

enum gd_status gd_cmd_watch(struct gd_cli *cli, struct gd_error *err) {
  struct following f = {.cli = cli, .folder = cli->arguments[0]};
  enum gd_status status = gd_run_view_read(&f.view, f.folder, err);
  if (status == GD_OK)
    status = cli->options.once || cli->options.json ? show_once(&f, err) : follow(&f, err);
  gd_show_run_damage(&cli->notes, &f.view, f.folder);
  gd_run_view_deinit(&f.view);
  return status;
}
