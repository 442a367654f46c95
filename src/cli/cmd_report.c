/*
 * `gpudays report -o DIR`: the page and its files. What they hold is src/report's.
 */
#include "cli/cli.h"
#include "cli/show.h"
#include "report/report.h"
#include "store/store_best.h"
#include "train/run_view.h"

static enum gd_status show(struct gd_cli *cli, const struct gd_report_summary *made,
                           struct gd_error *err) {
  struct gd_show_object object;
  if (made->note[0])
    gd_strbuf_printf(&cli->notes, "%s\n", made->note);
  if (cli->options.json) {
    gd_show_begin(&object);
    gd_show_set_text(&object, "page", made->page);
    gd_show_set_int(&object, "tables", made->tables);
    gd_show_set_int(&object, "figures", made->figures);
    gd_show_set_int(&object, "files", made->files);
    gd_show_set_int(&object, "trials", made->trials);
    gd_show_set_int(&object, "runs", made->runs);
    gd_show_set_text(&object, "note", made->note);
    return gd_show_json(&cli->out, &object, err);
  }
  gd_strbuf_printf(&cli->out, "wrote %s: %d tables, %d figures, %lld trial%s", made->page,
                   made->tables, made->figures, (long long)made->trials,
                   made->trials == 1 ? "" : "s");
  if (made->runs > 0)
    gd_strbuf_printf(&cli->out, ", %d run%s", made->runs, made->runs == 1 ? "" : "s");
  gd_strbuf_printf(&cli->out, "; %d files\n", made->files);
  return GD_OK;
}

/* Those of --runs and of the folders behind it; else of the folder runs, where there is one. */
static enum gd_status find_runs(struct gd_cli *cli, struct gd_report_order *order,
                                struct gd_error *err) {
  const int n_folders = cli->options.runs ? cli->n_arguments + 1 : 0;
  if (!cli->options.runs && cli->n_arguments > 0)
    return gd_fail(err, GD_BAD_INPUT, "report does not know what %s is: runs come behind --runs",
                   cli->arguments[0]);
  const char **folders = gd_arena_alloc(&cli->arena, (size_t)n_folders + 1, sizeof *folders);
  if (!folders)
    return gd_nomem(err, "while looking for runs");
  folders[0] = cli->options.runs;
  for (int i = 1; i < n_folders; i++)
    folders[i] = cli->arguments[i - 1];
  GD_TRY(gd_run_view_find_all(folders, n_folders, &cli->arena, &order->runs, &order->n_runs, err));
  if (cli->options.runs && order->n_runs == 0)
    return gd_fail(err, GD_BAD_INPUT, "there is no run in %s, as 'gpudays train' makes them",
                   cli->options.runs);
  return GD_OK;
}

enum gd_status gd_cmd_report(struct gd_cli *cli, struct gd_error *err) {
  struct gd_report_order order = {.folder = cli->options.output,
                                  .no_predictions = cli->options.no_predictions,
                                  .survey = cli->options.survey};
  struct gd_report_summary made;
  if (!order.folder || !order.folder[0])
    return gd_fail(err, GD_BAD_INPUT, "report needs a folder to write to: gpudays report -o DIR");
  if (!gd_cli_file(order.folder))
    return gd_fail(err, GD_BAD_INPUT, "report needs a folder: -o DIR (a folder named - is ./-)");
  GD_TRY(find_runs(cli, &order, err));
  if (!cli->options.no_store)
    GD_TRY(gd_store_open(cli->options.store, &order.store, err));
  enum gd_status status = gd_report_write(&order, &made, err);
  if (status == GD_OK && order.store)
    gd_store_note_left_out(order.store, &cli->notes);
  gd_store_close(order.store);
  return status == GD_OK ? show(cli, &made, err) : status;
}
