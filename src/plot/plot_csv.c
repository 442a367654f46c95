/*
 * The data of a figure as CSV.
 */
#include <math.h>

#include "base/csv.h"
#include "plot/plot.h"

/* Which columns the points of a figure need. */
struct points_columns {
  bool panels, errors, labels;
};

static void add_columns(struct points_columns *columns, const struct gd_plot_series *series,
                        int count) {
  for (int s = 0; s < count; s++) {
    columns->errors = columns->errors || (series[s].low && series[s].high);
    columns->labels = columns->labels || series[s].labels;
  }
}

/* A row for each point of one pair of axes. */
static void points_rows(const struct points_columns *columns, const char *panel,
                        const struct gd_plot_series *of, int n_series, struct gd_strbuf *out) {
  bool errors = columns->errors, labels = columns->labels;
  for (int s = 0; s < n_series; s++)
    for (int i = 0; i < of[s].count; i++) {
      const struct gd_plot_series *series = &of[s];
      if (columns->panels) {
        gd_csv_append_cell(out, panel ? panel : "");
        gd_strbuf_append(out, ",");
      }
      gd_csv_append_cell(out, series->name);
      gd_strbuf_append(out, ",");
      gd_csv_append_number(out, series->x[i]);
      gd_strbuf_append(out, ",");
      gd_csv_append_number(out, series->y[i]);
      if (errors) {
        gd_strbuf_append(out, ",");
        gd_csv_append_number(out, series->low ? series->low[i] : (double)NAN);
        gd_strbuf_append(out, ",");
        gd_csv_append_number(out, series->high ? series->high[i] : (double)NAN);
      }
      if (labels)
        gd_strbuf_append(out, ",");
      if (labels && series->labels && series->labels[i])
        gd_csv_append_cell(out, series->labels[i]);
      gd_strbuf_append(out, "\n");
    }
}

static void points_csv(const struct gd_plot *plot, struct gd_strbuf *out) {
  struct points_columns columns = {.panels = plot->n_panels > 0};
  add_columns(&columns, plot->series, plot->n_series);
  for (int i = 0; i < plot->n_panels; i++)
    add_columns(&columns, plot->panels[i].series, plot->panels[i].n_series);
  gd_strbuf_append(out, columns.panels ? "panel,series," : "series,");
  gd_csv_append_cell(out, plot->x_label ? plot->x_label : "x");
  gd_strbuf_append(out, ",");
  gd_csv_append_cell(out, plot->y_label ? plot->y_label : "y");
  gd_strbuf_printf(out, "%s%s\n", columns.errors ? ",low,high" : "",
                   columns.labels ? ",label" : "");
  points_rows(&columns, NULL, plot->series, plot->n_series, out);
  for (int i = 0; i < plot->n_panels; i++)
    points_rows(&columns, plot->panels[i].title, plot->panels[i].series, plot->panels[i].n_series,
                out);
}

/* Like the drawing: a row for each series, a column for each category. */
static void cells_csv(const struct gd_plot *plot, struct gd_strbuf *out) {
  gd_csv_append_cell(out, plot->y_label ? plot->y_label : "row");
  for (int i = 0; i < plot->n_categories; i++) {
    gd_strbuf_append(out, ",");
    gd_csv_append_cell(out, plot->categories[i]);
  }
  gd_strbuf_append(out, "\n");
  for (int s = 0; s < plot->n_series; s++) {
    gd_csv_append_cell(out, plot->series[s].name);
    for (int i = 0; i < plot->n_categories; i++) {
      double value = i < plot->series[s].count ? plot->series[s].y[i] : (double)NAN;
      gd_strbuf_append(out, ",");
      if (plot->n_classes > 0 && value >= 0 && value < plot->n_classes)
        gd_csv_append_cell(out, plot->classes[(int)value]);
      else
        gd_csv_append_number(out, value);
    }
    gd_strbuf_append(out, "\n");
  }
}

/* A row for each category, a column for each series, then its interval where it has one. */
static void categories_csv(const struct gd_plot *plot, struct gd_strbuf *out) {
  gd_csv_append_cell(out, plot->x_label ? plot->x_label : "category");
  for (int s = 0; s < plot->n_series; s++) {
    const struct gd_plot_series *series = &plot->series[s];
    struct gd_strbuf name = {0};
    for (int part = 0; part < (series->low && series->high ? 3 : 1); part++) {
      name.length = 0;
      gd_strbuf_printf(&name, "%s%s", series->name, part == 0 ? "" : part == 1 ? " low" : " high");
      gd_strbuf_append(out, ",");
      gd_csv_append_cell(out, name.text ? name.text : "");
    }
    gd_strbuf_deinit(&name);
  }
  gd_strbuf_append(out, "\n");
  for (int i = 0; i < plot->n_categories; i++) {
    gd_csv_append_cell(out, plot->categories[i]);
    for (int s = 0; s < plot->n_series; s++) {
      const struct gd_plot_series *series = &plot->series[s];
      const double *parts[] = {series->y, series->low, series->high};
      for (int part = 0; part < (series->low && series->high ? 3 : 1); part++) {
        gd_strbuf_append(out, ",");
        if (i < series->count)
          gd_csv_append_number(out, parts[part][i]);
      }
    }
    gd_strbuf_append(out, "\n");
  }
}

void gd_plot_csv(const struct gd_plot *plot, struct gd_strbuf *out) {
  switch (plot->kind) {
  case GD_PLOT_BARS:
  case GD_PLOT_STACKED: categories_csv(plot, out); break;
  case GD_PLOT_SCATTER:
  case GD_PLOT_LINES: points_csv(plot, out); break;
  case GD_PLOT_CELLS: cells_csv(plot, out); break;
  }
}
