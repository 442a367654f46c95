/*
 * The commands that a browser does not have, since they need a device, files or processes; each
 * says so. Those that it has are src/cli's own: models, gpus, estimate, plan, cost, export, why,
 * published, schema, help.
 */
#include "cli/cli.h"
#include "plot/plot.h"
#include "train/run_folder.h"

static enum gd_status absent(const struct gd_cli *cli, struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT,
                 "a browser cannot run '%s'; it needs gpudays on a computer of yours",
                 cli->command->name);
}

#define ABSENT(name)                                                       \
  enum gd_status gd_cmd_##name(struct gd_cli *cli, struct gd_error *err) { \
    return absent(cli, err);                                               \
  }

ABSENT(accuracy)
ABSENT(bench)
ABSENT(best)
ABSENT(calibrate)
ABSENT(completion)
ABSENT(doctor)
ABSENT(evaluate)
ABSENT(fit)
ABSENT(report)
ABSENT(results)
ABSENT(runs)
ABSENT(sample)
ABSENT(survey)
ABSENT(tokens)
ABSENT(train)
ABSENT(verify)
ABSENT(watch)

/* The processes of a search; see cli/cmd_trial.c. */
const struct gd_command gd_command_trial = {.name = "", .run = gd_cmd_bench};
const struct gd_command gd_command_rank = {.name = "", .run = gd_cmd_bench};

bool gd_cmd_trial_parse(int argc, char **argv, struct gd_cli *cli) {
  (void)argc;
  (void)argv;
  (void)cli;
  return false;
}

int64_t gd_run_folder_ranks(const char *folder) {
  (void)folder;
  return 0;
}

enum gd_status gd_plot_works(struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT, "a browser has no gnuplot to draw figures with");
}

bool gd_plot_file_known(const char *path) {
  (void)path;
  return false;
}

bool gd_plot_file_is_drawn(const char *path) {
  (void)path;
  return true;
}

enum gd_status gd_plot_write_file(const struct gd_plot *plot, const char *path,
                                  struct gd_error *err) {
  (void)plot;
  (void)path;
  return gd_plot_works(err);
}

enum gd_status gd_plot_write(const struct gd_plot *plot, const char *dir, const char *name,
                             struct gd_error *err) {
  (void)plot;
  (void)dir;
  (void)name;
  return gd_plot_works(err);
}
