/*
 * `gpudays calibrate`: measures this machine so that times can be predicted on it and on its like,
 * keeps the rates where `plan` and `bench` look for them, and shows them.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/calibrations.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/progress.h"
#include "cli/show.h"
#include "comm/comm.h"
#include "predict/calibrate.h"
#include "predict/interval.h"
#include "trial/load.h"

/* --- how it looks -------------------------------------------------------------------------- */

static enum gd_status append_points(struct gd_cli *cli, const struct gd_rates *rates,
                                    struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"OP", false, 0},
                                                  {"UNIT", false, 0},
                                                  {"POINTS", true, 1},
                                                  {"SLOWEST", true, 0},
                                                  {"FASTEST", true, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int kind = 0; kind < GD_OP_COUNT; kind++)
    for (int unit = 0; unit < GD_PEAK_COUNT; unit++) {
      struct gd_rates_range range =
          gd_rates_range(rates, (enum gd_op_kind)kind, (enum gd_peak)unit);
      if (range.count == 0)
        continue;
      const char **row = gd_show_row(&rows);
      row[0] = gd_op_info((enum gd_op_kind)kind)->name;
      row[1] = gd_unit_name((enum gd_peak)unit);
      row[2] = gd_show_cell(cli, "%d", range.count);
      row[3] = gd_show_cell(cli, range.flops ? "%.3g GFLOP/s" : "%.3g GB/s", 1e-9 * range.low);
      row[4] = gd_show_cell(cli, range.flops ? "%.3g GFLOP/s" : "%.3g GB/s", 1e-9 * range.high);
    }
  return gd_show_rows(&rows, 2, err);
}

/* What the load of others does to predictions. */
static void append_load(struct gd_cli *cli, const struct gd_rates *rates) {
  char line[256], what[96] = "", interval[GD_INTERVAL_TEXT];
  bool validated;
  double error = gd_calibration_error(rates, GD_POINT_FREE_LUNCH, &validated);
  if (!gd_backend_is_gpu(rates->backend))
    snprintf(what, sizeof what, ", so predictions are unvalidated and within %s",
             gd_interval_say(error, interval));
  snprintf(line, sizeof line,
           "note: other programs used %.0f %% of the CPUs meanwhile%s; calibrate again when the "
           "machine is quiet",
           100 * rates->busy_share, what);
  gd_show_paragraph(&cli->out, 2, line);
}

static enum gd_status append_summary(struct gd_cli *cli, const struct gd_rates *rates,
                                     const char *path, double seconds, struct gd_error *err) {
  struct gd_strbuf *out = &cli->out, line = {0};
  char text[GD_SHOW_TEXT];
  gd_strbuf_printf(out, "%s, measured in %s\n", rates->device,
                   gd_show_seconds(text, sizeof text, seconds));
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    if (rates->flops[i] > 0)
      gd_strbuf_printf(out, "  peak %s %s\n", gd_unit_name((enum gd_peak)i),
                       gd_show_rate(text, sizeof text, rates->flops[i]));
  gd_strbuf_printf(out, "  memory %.3g GB/s, link to host memory %.3g GB/s\n",
                   1e-9 * rates->memory_bytes_per_s, 1e-9 * rates->host_link.bytes_per_s);
  gd_strbuf_printf(out, "  between ranks %.3g GB/s (%s)\n\n", 1e-9 * rates->peer_link.bytes_per_s,
                   rates->peer_source);
  GD_TRY(append_points(cli, rates, err));
  if (rates->checked_trials > 0)
    gd_strbuf_printf(&line, "checked against %s: median error %.0f %%, worst %.0f %%. ",
                     rates->checked, 100 * rates->median_error, 100 * rates->worst_error);
  gd_strbuf_printf(&line, "Kept in %s", path);
  gd_show_buffer(out, 2, &line);
  if (rates->busy_share > GD_LOAD_QUIET)
    append_load(cli, rates);
  return GD_OK;
}

static enum gd_status show_object(struct gd_cli *cli, const struct gd_rates *rates,
                                  const char *path, double seconds, struct gd_error *err) {
  struct gd_show_object root, peaks;
  bool validated;
  gd_show_begin(&root);
  gd_show_set_text(&root, "device", rates->device);
  gd_show_set_text(&root, "backend", rates->backend);
  gd_show_set_text(&root, "file", path);
  gd_show_set_real(&root, "seconds", seconds);
  gd_show_begin(&peaks);
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    gd_show_set_real(&peaks, gd_unit_name((enum gd_peak)i), rates->flops[i]);
  gd_show_set_object(&root, "peak_flops", &peaks);
  gd_show_set_real(&root, "memory_bytes_per_s", rates->memory_bytes_per_s);
  gd_show_set_real(&root, "host_link_bytes_per_s", rates->host_link.bytes_per_s);
  gd_show_set_real(&root, "peer_link_bytes_per_s", rates->peer_link.bytes_per_s);
  gd_show_set_text(&root, "peer_source", rates->peer_source);
  gd_show_set_int(&root, "points", rates->n_points);
  gd_show_set_int(&root, "checked_trials", rates->checked_trials);
  gd_show_set_real(&root, "median_error", rates->median_error);
  gd_show_set_real(&root, "worst_error", rates->worst_error);
  if (rates->busy_share >= 0)
    gd_show_set_real(&root, "busy_share", rates->busy_share);
  else
    gd_show_set_null(&root, "busy_share");
  gd_show_set_real(&root, "interval", gd_calibration_error(rates, GD_POINT_FREE_LUNCH, &validated));
  gd_show_set_bool(&root, "validated", validated);
  return gd_show_json(&cli->out, &root, err);
}

/* --- all of it ----------------------------------------------------------------------------- */

struct watching {
  struct gd_progress progress;
  struct gd_load before;
};

static void show_progress(void *user, const char *what, double done, double eta_s) {
  gd_progress_report(&((struct watching *)user)->progress, what, done, eta_s);
}

/* Until here the other ranks computed too, and they are no strangers. */
static void begin_alone(void *user) {
  gd_load_read(&((struct watching *)user)->before);
}

enum gd_status gd_cmd_calibrate(struct gd_cli *cli, struct gd_error *err) {
  if (cli->n_arguments > 0)
    return gd_cmd_calibrations(cli, err);
  struct watching watching = {.progress = {.on = cli->progress}};
  struct gd_rates rates = {0};
  struct gd_load after;
  char path[4096];
  int rank, size;
  struct gd_calibrate_options options = {.backend = gd_cli_backend(cli),
                                         .threads = (int)cli->options.threads,
                                         .limit_s = cli->options.time_limit,
                                         .progress = show_progress,
                                         .alone = begin_alone,
                                         .progress_user = &watching};
  if (strcmp(options.backend, "ref") == 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "the ref backend is plain and slow on purpose; calibrate cpu or cuda");
  if (cli->options.output && !gd_cli_file(cli->options.output))
    return gd_fail(err, GD_BAD_INPUT, "a calibration needs a file: -o FILE (one named - is ./-)");
  snprintf(watching.progress.label, sizeof watching.progress.label, "calibrating");
  /* Otherwise the ranks of the user's own mpirun would all calibrate at once. */
  if (cli->options.ranks > 1 || gd_comm_in_job(&rank, &size)) {
    GD_TRY(gd_launch_join(cli, err));
    options.threads = (int)cli->options.threads;
    options.comm = cli->comm;
  }
  int64_t start_ns = gd_clock_ns();
  gd_load_read(&watching.before);
  enum gd_status status = gd_calibrate(&options, &rates, err);
  gd_load_read(&after);
  gd_progress_clear(&watching.progress);
  rates.busy_share = gd_load_share(&watching.before, &after);
  double seconds = 1e-9 * (double)(gd_clock_ns() - start_ns);
  if (status == GD_OK && cli->rank > 0) {
    gd_rates_deinit(&rates);
    return GD_OK; /* rank 0 speaks */
  }
  if (status == GD_OK)
    status =
        gd_calibration_keep(&rates, cli->options.output, GD_LOAD_QUIET, path, sizeof path, err);
  if (status == GD_OK)
    status = cli->options.json ? show_object(cli, &rates, path, seconds, err)
                               : append_summary(cli, &rates, path, seconds, err);
  gd_rates_deinit(&rates);
  return status;
}
