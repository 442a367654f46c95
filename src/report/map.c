/*
 * A map: the paper's models as rows and a value of each by column, drawn as cells. Days of the
 * tables, what predictions miss them by, and what is feasible are maps.
 */
#include <string.h>

#include "report/report_int.h"

enum gd_status gd_report_add_map(struct gd_report *report, const struct gd_report_block *block,
                                 const struct gd_report_map *map, struct gd_error *err) {
  const struct gd_paper *paper = &report->paper;
  struct gd_plot_series *series = gd_report_series(report, paper->n_recipes);
  struct gd_plot plot = map->look;
  if (!series || !map->columns)
    return gd_report_no_memory(err);
  plot.kind = GD_PLOT_CELLS;
  plot.categories = map->columns;
  plot.n_categories = map->n_columns;
  plot.series = series;
  plot.n_series = 0;
  for (int m = 0; m < paper->n_recipes; m++) {
    if (map->pythia_only && strcmp(paper->recipes[m].family, "Pythia") != 0)
      continue;
    double *values = gd_report_numbers(report, map->n_columns);
    if (!values)
      return gd_report_no_memory(err);
    for (int i = 0; i < map->n_columns; i++)
      values[i] = map->value(report, map->user, m, i);
    series[plot.n_series++] =
        (struct gd_plot_series){.name = gd_report_model_title(report, paper->recipes[m].model),
                                .y = values,
                                .count = map->n_columns};
  }
  return gd_report_add_plot(report, block, &plot, err);
}
