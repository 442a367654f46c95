/*
 * main(): reads the command line, runs one subcommand, writes what it appended, and turns its
 * status into one sentence and an exit code. It owns everything and frees everything.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/exit_code.h"
#include "base/json.h"
#include "base/switches.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/show.h"

/* https://no-color.org: set and not empty means none. */
static bool may_be_coloured(int stream) {
  const char *no_color = gd_env("NO_COLOR"), *term = gd_env("TERM");
  return isatty(stream) && !(no_color && no_color[0]) && term && strcmp(term, "dumb") != 0;
}

/* Columns of the output: $COLUMNS, or those of the terminal; 0 where it is neither, as in a pipe.
   Less than any table can have is not tried. */
static int columns_of_output(void) {
  enum { LEAST = 40, MOST = 10000 };
  const char *columns = gd_env("COLUMNS");
  struct winsize size;
  int64_t count = 0;
  if ((!columns || !gd_parse_int(columns, 1, MOST, &count)) && isatty(STDOUT_FILENO) &&
      ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
    count = size.ws_col;
  return count > 0 && count < LEAST ? LEAST : (int)count;
}

static enum gd_status run(struct gd_cli *cli, struct gd_error *err) {
  if (cli->options.version)
    return gd_cmd_version(cli, err);
  if (cli->options.help)
    return gd_cmd_help(cli, err);
  GD_TRY(gd_cli_protect(cli, err));
  return cli->command->run(cli, err);
}

/* Commands that may read switches: all but those that help to find out what is wrong. */
static bool reads_switches(const struct gd_cli *cli) {
  return cli->command && !cli->options.help && !cli->options.version &&
         cli->command->run != gd_cmd_help && cli->command->run != gd_cmd_version &&
         cli->command->run != gd_cmd_doctor && cli->command->run != gd_cmd_completion;
}

/* Once: not by the ranks and trials that this program starts. */
static void note_unknown_switches(struct gd_cli *cli) {
  char text[256];
  const char *unknown;
  size_t at = 0;
  if (!reads_switches(cli) || cli->rank > 0 || gd_env("GPUDAYS_LAUNCHED") ||
      cli->command == &gd_command_trial || cli->command == &gd_command_rank)
    return;
  while ((unknown = gd_switch_unknown(&at)))
    gd_strbuf_printf(&cli->notes, "%s\n", gd_switch_unknown_text(unknown, text, sizeof text));
}

/* One line each, after the output: what there is to say about it. */
static void write_notes(struct gd_cli *cli) {
  gd_strbuf_clean(&cli->notes, false);
  const char *at = cli->notes.text;
  if (cli->notes.length == 0 || cli->notes.failed || cli->options.quiet)
    return;
  for (size_t length; *at; at += length + (at[length] != '\0')) {
    length = strcspn(at, "\n");
    fprintf(stderr, "gpudays: note: %.*s\n", (int)length, at);
  }
}

/*
 * A plan is some MB in small pieces, freed before the next one is made. glibc gives them back to
 * the kernel each time, and having them mapped again takes almost as long as planning. Not in a
 * trial, whose resident memory is measured.
 */
static void keep_freed_memory(const struct gd_cli *cli) {
#ifdef M_TOP_PAD /* glibc's alone */
  if (cli->command != &gd_command_trial && cli->command != &gd_command_rank) {
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
    mallopt(M_MMAP_THRESHOLD, 16 << 20);
  }
#else
  (void)cli;
#endif
}

int main(int argc, char **argv) {
  struct gd_cli cli = {0};
  struct gd_error err = {0}, write_err = {0};
  int code = -1;
  signal(SIGCHLD, SIG_DFL); /* ignored, as some parents leave it, children cannot be waited for */
  signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is a full disk */
  setlocale(LC_CTYPE, "");  /* the width of names in tables; numbers stay as they are in C */
  enum gd_status status =
      gd_cmd_trial_parse(argc, argv, &cli) ? GD_OK : gd_options_parse(argc, argv, &cli, &err);
  gd_show_set_columns(columns_of_output(), cli.options.wide);
  cli.bold = may_be_coloured(STDOUT_FILENO);
  cli.colour = may_be_coloured(STDERR_FILENO);
  cli.progress = isatty(STDERR_FILENO);
  keep_freed_memory(&cli);
  gd_launch_begin(&cli);
  cli.progress = cli.progress && !cli.options.quiet;
  if (status == GD_OK && reads_switches(&cli))
    status = gd_switches_check(&err);
  if (status == GD_OK && cli.options.deterministic && !gd_cli_determinism()[0])
    status = gd_cli_be_deterministic("kept", &err);
  if (status == GD_OK)
    status = gd_launch_ranks(&cli, argc, argv, &code, &err);
  if (status == GD_OK && code < 0)
    status = run(&cli, &err);
  status = gd_launch_meet(&cli, status, &err);
  /* The answer may be no, and its table is still worth reading; after other errors there is none.
   */
  if (gd_cli_write(&cli, &write_err) != GD_OK) {
    status = write_err.status;
    err = write_err;
  }
  if (status == GD_OK) {
    note_unknown_switches(&cli);
    write_notes(&cli);
  }
  if (status != GD_OK && cli.rank > 0)
    fprintf(stderr, "gpudays: rank %d: %s\n", cli.rank, err.text);
  else if (status != GD_OK)
    fprintf(stderr, "gpudays: %s\n", err.text);
  if (status != GD_OK || code < 0)
    code = (int)gd_exit_of(status);
  gd_launch_leave(&cli, code);
  gd_strbuf_deinit(&cli.out);
  gd_strbuf_deinit(&cli.notes);
  gd_arena_deinit(&cli.arena);
  return code;
}
