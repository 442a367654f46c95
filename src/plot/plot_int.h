/*
 * Inside of src/plot: the script that gnuplot gets.
 */
#ifndef GD_PLOT_PLOT_INT_H
#define GD_PLOT_PLOT_INT_H

#include "plot/plot.h"

/* Colours of text and of what is drawn like text. They occur nowhere else, so that the SVG can be
   told apart by them and given classes. */
#define GD_PLOT_INK   "#1e1f21"
#define GD_PLOT_MUTED "#5b5f66"

/* The size that the figure will have. */
void gd_plot_size(const struct gd_plot *plot, int *width, int *height);
/*
 * Everything that gnuplot needs to know but terminal and output, ending in `plot ...`; it must be
 * drawn on a canvas of that size. Out of memory shows in script->failed.
 */
void gd_plot_script(const struct gd_plot *plot, struct gd_strbuf *script);

#endif
