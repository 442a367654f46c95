/*
 * `gpudays verify DIR`: numerics against a reference that transformers made. The comparison and its
 * bounds are src/exec/reference.c's.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/show.h"
#include "exec/reference.h"

static enum gd_status show_object(struct gd_cli *cli, const struct gd_verify_options *options,
                                  const struct gd_verify_result *result, struct gd_error *err) {
  struct gd_show_object object;
  gd_show_begin(&object);
  gd_show_set_bool(&object, "ok", result->ok);
  gd_show_set_real(&object, "loss_error", result->loss_error);
  gd_show_set_real(&object, "gradient_error", result->gradient_error);
  if (result->trajectory_error < 0)
    gd_show_set_null(&object, "trajectory_error");
  else
    gd_show_set_real(&object, "trajectory_error", result->trajectory_error);
  gd_show_set_text(&object, "worst_parameter", result->worst_parameter);
  gd_show_set_real(&object, "worst_error", result->worst_error);
  gd_show_set_real(&object, "together_error", result->together_error);
  gd_show_set_real(&object, "loss_bound", result->loss_bound);
  gd_show_set_real(&object, "gradient_bound", result->gradient_bound);
  gd_show_set_real(&object, "trajectory_bound", result->trajectory_bound);
  gd_show_set_real(&object, "loss", result->loss);
  gd_show_set_real(&object, "loss_reference", result->loss_reference);
  gd_show_set_int(&object, "tensors", result->parameters);
  gd_show_set_text(&object, "backend", options->backend);
  gd_show_set_text(&object, "precision", gd_precision_name(options->precision));
  return gd_show_json(&cli->out, &object, err);
}

static void add_row(struct gd_show_rows *rows, const char *what, double error, double bound,
                    const char *where) {
  struct gd_cli *cli = rows->cli;
  const char **row = gd_show_row(rows);
  row[0] = what;
  row[1] = gd_show_cell(cli, "%.2e", error);
  row[2] = gd_show_cell(cli, "%.0e", bound);
  row[3] = error <= bound ? "ok" : "FAILED";
  row[4] = where;
}

static enum gd_status append_summary(struct gd_cli *cli, const struct gd_verify_options *options,
                                     const struct gd_verify_result *result, struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"RELATIVE ERROR", false, 0},
                                                  {"FOUND", true, 0},
                                                  {"BOUND", true, 0},
                                                  {"", false, 0},
                                                  {"", false, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  bool full = options->precision == GD_PRECISION_FP32;
  add_row(&rows, "loss", result->loss_error, result->loss_bound,
          gd_show_cell(cli, "%.6f, reference %.6f", result->loss, result->loss_reference));
  add_row(&rows, "gradient", result->gradient_error, result->gradient_bound,
          gd_show_cell(cli, "%s %d: %s", full ? "worst of" : "together; worst of",
                       result->parameters, result->worst_parameter));
  if (result->trajectory_error >= 0)
    add_row(&rows, "trajectory", result->trajectory_error, result->trajectory_bound,
            "losses before each update");
  gd_show_bold(cli, result->ok ? "ok" : "FAILED");
  gd_strbuf_printf(&cli->out, ": %s on %s, %s\n", cli->arguments[0], options->backend,
                   gd_precision_name(options->precision));
  return gd_show_rows(&rows, 2, err);
}

/* Adds "loss error 1.0e-03 (bound 1e-05)" when that is past its bound. */
static void append_miss(struct gd_strbuf *misses, const char *what, double error, double bound) {
  if (!(error <= bound))
    gd_strbuf_printf(misses, "%s%s error %.2e (bound %.0e)", misses->length ? ", " : "", what,
                     error, bound);
}

enum gd_status gd_cmd_verify(struct gd_cli *cli, struct gd_error *err) {
  struct gd_verify_result result = {0};
  struct gd_strbuf misses = {0};
  struct gd_method *methods;
  int n_methods;
  GD_TRY(gd_cli_methods(cli, "naive", &methods, &n_methods, err));
  if (n_methods != 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "verify takes one method, and --methods has %d; choose one of naive, "
                   "free-lunch, compile, kernels, tf32, each with or without +ckpt",
                   n_methods);
  const struct gd_verify_options options = {
      .backend = gd_cli_backend(cli),
      .method = methods[0],
      .threads = (int)cli->options.threads,
      .precision = cli->options.precision_given ? cli->options.precision : GD_PRECISION_FP32,
  };
  GD_TRY(gd_verify(cli->arguments[0], &options, &result, err));
  GD_TRY(cli->options.json ? show_object(cli, &options, &result, err)
                           : append_summary(cli, &options, &result, err));
  if (result.ok)
    return GD_OK;
  append_miss(&misses, "loss", result.loss_error, result.loss_bound);
  append_miss(&misses, "gradient", result.gradient_error, result.gradient_bound);
  append_miss(&misses, "trajectory", result.trajectory_error, result.trajectory_bound);
  gd_fail(err, GD_MISMATCH, "%s is not reproduced: %s; worst parameter %s", cli->arguments[0],
          misses.text ? misses.text : "the errors are not numbers", result.worst_parameter);
  gd_strbuf_deinit(&misses);
  return GD_MISMATCH;
}
