/*
 * A figure as a script for gnuplot. The layout is made here, in pixels from the top left: margins
 * from the widths of the texts, ticks, legend, labels next to their points. gnuplot gets ranges,
 * rectangles, points and texts, so that its versions draw nearly the same.
 *
 * Every text goes through `quote`: gnuplot runs `commands` inside double quotes, but nothing inside
 * single ones.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plot/plot_int.h"

enum { PAD = GD_PLOT_PAD, FONT = 13, TITLE = GD_PLOT_TITLE, LINE = GD_PLOT_LINE };

/* Each at least 3:1 against white and against #14171b; the first four are told apart with any kind
   of colour blindness, those behind them by their names. */
static const char *const palette[] = {"#2f78c4", "#dd7a0a", "#14a085", "#a8437f",
                                      "#8a7a1f", "#6b6fd6", "#e0525e", "#7c8694"};
enum { COLOURS = sizeof palette / sizeof *palette };

int gd_plot_marker(int series) {
  static const int markers[COLOURS] = {7, 5, 9, 13, 11, 6, 4, 8};
  return markers[series % COLOURS];
}

static const double ramp[][3] = {
    {222, 234, 246}, {168, 206, 232}, {100, 166, 214}, {44, 118, 186}, {13, 64, 128}};
static const double two_ways[][3] = {
    {176, 88, 8}, {236, 170, 98}, {240, 238, 232}, {132, 182, 218}, {28, 96, 168}};
enum { STOPS = 5 };
enum { MOST_MARKS = 64 }; /* points of a line that are marked */

/* --- texts --------------------------------------------------------------------------------- */

/* A quote becomes the typographic one: gnuplot takes two of them at the beginning of a string for
   an empty string, and what follows for commands. No text of an SVG may hold ]]>: GD_PLOT_JOINER,
   which has no width, keeps the three apart until the SVG is rewritten. */
static void quote(struct gd_strbuf *out, const char *text) {
  const char *start = text;
  gd_strbuf_append(out, "'");
  for (size_t bytes; *text; text += bytes) {
    bool shown = gd_text_shown(text, &bytes);
    if (*text == '>' && text - start >= 2 && text[-1] == ']' && text[-2] == ']')
      gd_strbuf_append(out, GD_PLOT_JOINER);
    if (*text == '\'')
      gd_strbuf_append(out, "\xe2\x80\x99");
    else
      gd_strbuf_append_bytes(out, shown ? text : " ", shown ? bytes : 1);
  }
  gd_strbuf_append(out, "'");
}

/* About as wide as the widest of the usual sans-serif fonts makes it. */
double gd_plot_text_width(const char *text, size_t length, double size) {
  double glyphs = 0;
  for (size_t i = 0; i < length && text[i]; i++)
    if (((unsigned char)text[i] & 0xc0) != 0x80)
      glyphs += strchr("ijl.,:;|!'() ", text[i]) ? 0.36 : 0.6;
  return glyphs * size;
}

/* y is the middle of the line. */
void gd_plot_put_text(struct gd_plot_layout *at, double x, double y, struct gd_plot_style style,
                      const char *text) {
  static const char *const sides[] = {"left", "center", "right"};
  gd_strbuf_append(at->out, "set label ");
  quote(at->out, text);
  gd_strbuf_printf(at->out, " at screen %.5f,%.5f %s font '%s,%d' tc rgb '%s' front noenhanced",
                   x / at->width, 1 - y / at->height, sides[style.align], style.bold ? ":Bold" : "",
                   style.size, style.colour);
  if (style.rotate)
    gd_strbuf_printf(at->out, " rotate by %d", style.rotate);
  gd_strbuf_append(at->out, "\n");
}

/* The length of the part of the text that fits into so many pixels, cut at a blank; at least a
   word. */
static size_t line_length(const char *text, double width, int size) {
  size_t best = 0;
  for (size_t i = 1; text[i - 1]; i++)
    if (text[i] == ' ' || text[i] == '\0') {
      if (best > 0 && gd_plot_text_width(text, i, size) > width)
        break;
      best = i;
      if (text[i] == '\0')
        break;
    }
  return best;
}

int gd_plot_put_lines(struct gd_plot_layout *at, double x, double y, double width,
                      struct gd_plot_style style, const char *text) {
  int lines = 0;
  char line[512];
  while (*text) {
    size_t length = line_length(text, width, style.size);
    if (at) {
      snprintf(line, sizeof line, "%.*s", (int)length, text);
      gd_plot_put_text(at, x, y + lines * (style.size + 4), style, line);
    }
    lines++;
    text += length;
    text += *text == ' ';
  }
  return lines;
}

/* --- colours ------------------------------------------------------------------------------- */

/* The colour at `part`, 0 to 1, of a ramp. */
static void mix(const double (*stops)[3], double part, int *rgb) {
  part = part < 0 ? 0 : part > 1 ? 1 : part;
  int at = (int)(part * (STOPS - 1));
  if (at > STOPS - 2)
    at = STOPS - 2;
  double rest = part * (STOPS - 1) - at;
  for (int i = 0; i < 3; i++)
    rgb[i] = (int)lround(stops[at][i] + rest * (stops[at + 1][i] - stops[at][i]));
}

static int number_of(const int *rgb) {
  return rgb[0] << 16 | rgb[1] << 8 | rgb[2];
}

/* Of one of so many series or classes, as a number. */
int gd_plot_colour_of(const struct gd_plot *plot, int index, int count) {
  int rgb[3];
  unsigned value = 0;
  if (plot->ordered) {
    double first = count > 3 ? 0.12 : 0.35;
    mix(ramp, count > 1 ? first + (1 - first) * index / (count - 1) : 0.6, rgb);
    return number_of(rgb);
  }
  sscanf(palette[index % COLOURS] + 1, "%x", &value);
  return (int)value;
}

/* Black or white, whichever is read better on it. */
const char *gd_plot_text_on(int colour) {
  double sum = 0;
  static const double weights[] = {0.2126, 0.7152, 0.0722};
  for (int i = 0; i < 3; i++)
    sum += weights[i] * pow((colour >> (16 - 8 * i) & 255) / 255.0, 2.2);
  return sum > 0.2 ? "#101214" : "#ffffff";
}

int gd_plot_cell_colour(const struct gd_plot *plot, struct gd_plot_span span, double y) {
  int rgb[3];
  if (plot->n_classes > 0) {
    int index = (int)y;
    return gd_plot_colour_of(plot, index < 0 ? 0 : index, plot->n_classes);
  }
  if (plot->diverging) {
    double most = fmax(fabs(span.low), fabs(span.high));
    mix(two_ways, most > 0 ? 0.5 + 0.5 * y / most : 0.5, rgb);
    return number_of(rgb);
  }
  double width = plot->log_y ? log(span.high / span.low) : span.high - span.low;
  double from = plot->log_y ? log(y / span.low) : y - span.low;
  mix(ramp, width > 0 ? from / width : 0.5, rgb);
  return number_of(rgb);
}

/* --- legend -------------------------------------------------------------------------------- */

static bool has_empty_cell(const struct gd_plot *plot) {
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count; i++)
      if (!isfinite(plot->series[s].y[i]))
        return true;
  return false;
}

bool gd_plot_ends_labelled(const struct gd_plot *plot) {
  return plot->kind == GD_PLOT_LINES && plot->n_panels == 0 && plot->n_series > 1 &&
         plot->n_series <= 8;
}

/* How many entries the legend has. */
static int legend_count(const struct gd_plot *plot) {
  if (plot->kind == GD_PLOT_CELLS)
    return plot->n_classes + (plot->empty_name && has_empty_cell(plot));
  if (plot->n_panels > 0)
    return gd_plot_panels_series(plot) > 1 ? gd_plot_panels_series(plot) : 0;
  return plot->n_series > 1 && !gd_plot_ends_labelled(plot) ? plot->n_series : 0;
}

static const char *legend_name(const struct gd_plot *plot, int i) {
  if (plot->n_panels > 0)
    return gd_plot_panels_name(plot, i);
  if (plot->kind != GD_PLOT_CELLS)
    return plot->series[i].name;
  return i < plot->n_classes ? plot->classes[i] : plot->empty_name;
}

/* The marker or the square in front of a name of the legend. */
static void put_key(struct gd_plot_layout *at, int i, double x, double y) {
  const struct gd_plot *plot = at->plot;
  char colour[16];
  if (plot->kind == GD_PLOT_CELLS && i == plot->n_classes)
    snprintf(colour, sizeof colour, "'#B0808080'");
  else
    snprintf(colour, sizeof colour, "'#%06x'",
             gd_plot_colour_of(plot, i, plot->n_classes > 0 ? plot->n_classes : plot->n_series));
  if (plot->kind == GD_PLOT_SCATTER || plot->kind == GD_PLOT_LINES)
    gd_strbuf_printf(at->out, "set label '' at screen %.5f,%.5f point pt %d ps 1 lc rgb %s front\n",
                     (x + 6) / at->width, 1 - y / at->height, gd_plot_marker(i), colour);
  else
    gd_strbuf_printf(at->out,
                     "set object rect from screen %.5f,%.5f to screen %.5f,%.5f fs solid noborder "
                     "fc rgb %s front\n",
                     x / at->width, 1 - (y - 6) / at->height, (x + 12) / at->width,
                     1 - (y + 6) / at->height, colour);
}

int gd_plot_put_legend(struct gd_plot_layout *at, double y) {
  double x = PAD;
  int lines = 0, count = legend_count(at->plot);
  for (int i = 0; i < count; i++) {
    const char *name = legend_name(at->plot, i);
    double width = 18 + gd_plot_text_width(name, strlen(name), FONT) + 18;
    if (lines == 0 || x + width > at->width - PAD) {
      lines++;
      x = PAD;
    }
    if (at->out) {
      put_key(at, i, x, y + (lines - 1) * LINE);
      gd_plot_put_text(at, x + 18, y + (lines - 1) * LINE,
                       (struct gd_plot_style){GD_PLOT_INK, FONT, GD_PLOT_LEFT, false, 0}, name);
    }
    x += width;
  }
  return lines;
}

/* --- frame --------------------------------------------------------------------------------- */

bool gd_plot_has_categories(const struct gd_plot *plot) {
  return plot->kind == GD_PLOT_BARS || plot->kind == GD_PLOT_STACKED || plot->kind == GD_PLOT_CELLS;
}

double gd_plot_category_width(const struct gd_plot_layout *at) {
  return (at->right - at->left) / (at->plot->n_categories > 0 ? at->plot->n_categories : 1);
}

/* For a line of a name: neighbours need a gap between them. */
static double category_room(const struct gd_plot_layout *at) {
  return gd_plot_category_width(at) - 8;
}

enum { CATEGORY_GAP = 6 }; /* between the words of neighbours, at least */

static double widest_word(const char *name) {
  double most = 0;
  for (const char *word = name; *word;) {
    size_t length = strcspn(word, " ");
    most = fmax(most, gd_plot_text_width(word, length, GD_PLOT_SMALL));
    word += length + (word[length] == ' ');
  }
  return most;
}

/* Whether the words of all of them fit under each other into their columns. */
static bool categories_fit(const struct gd_plot_layout *at) {
  for (int i = 0; i < at->plot->n_categories; i++)
    if (widest_word(at->plot->categories[i]) + CATEGORY_GAP > gd_plot_category_width(at) + 1e-6)
      return false;
  return true;
}

/* How high the names of the categories stand. */
static double categories_height(const struct gd_plot_layout *at) {
  double most = 0;
  bool fit = categories_fit(at);
  for (int i = 0; i < at->plot->n_categories; i++) {
    const char *name = at->plot->categories[i];
    double height =
        fit ? (GD_PLOT_SMALL + 4) * gd_plot_put_lines(NULL, 0, 0, category_room(at),
                                                      (struct gd_plot_style){.size = GD_PLOT_SMALL},
                                                      name)
            : GD_PLOT_SMALL + 0.6 * gd_plot_text_width(name, strlen(name), GD_PLOT_SMALL);
    most = height > most ? height : most;
  }
  return most;
}

static void put_categories(struct gd_plot_layout *at) {
  bool fit = categories_fit(at), over = at->plot->kind == GD_PLOT_CELLS;
  struct gd_plot_style style = {GD_PLOT_INK, GD_PLOT_SMALL, GD_PLOT_CENTRE, false, 0};
  for (int i = 0; i < at->plot->n_categories; i++) {
    const char *name = at->plot->categories[i];
    double x = at->left + (i + 0.5) * gd_plot_category_width(at), width = category_room(at);
    if (fit) {
      int lines = gd_plot_put_lines(NULL, 0, 0, width, style, name);
      double y = over ? at->top - 6 - (lines - 0.5) * (GD_PLOT_SMALL + 4) : at->bottom + 14;
      gd_plot_put_lines(at, x, y, width, style, name);
    } else {
      style.align = over ? GD_PLOT_LEFT : GD_PLOT_RIGHT;
      style.rotate = 35;
      gd_plot_put_text(at, x + (over ? -6 : 6), over ? at->top - 8 : at->bottom + 10, style, name);
    }
  }
}

static double widest_tick(const struct gd_plot_layout *at) {
  char text[48];
  double most = 0;
  if (at->plot->kind == GD_PLOT_CELLS) {
    for (int s = 0; s < at->plot->n_series; s++) {
      const char *name = at->plot->series[s].name;
      double width = gd_plot_text_width(name, strlen(name), GD_PLOT_SMALL);
      most = width > most ? width : most;
    }
    return most;
  }
  for (int i = 0; i < at->n_ticks; i++) {
    gd_plot_format_value(text, sizeof text, at->ticks[i]);
    double width = gd_plot_text_width(text, strlen(text), GD_PLOT_SMALL);
    most = width > most ? width : most;
  }
  return most;
}

static double widest_series_name(const struct gd_plot *plot) {
  double most = 0;
  for (int s = 0; s < plot->n_series; s++) {
    double width =
        gd_plot_text_width(plot->series[s].name, strlen(plot->series[s].name), GD_PLOT_SMALL);
    most = width > most ? width : most;
  }
  return most;
}

/* Margins from what stands in them; the height follows where the caller left it open. */
static void set_margins(struct gd_plot_layout *at) {
  const struct gd_plot *plot = at->plot;
  double y = PAD, under = 10;
  struct gd_strbuf *out = at->out;
  at->out = NULL;
  if (plot->title)
    y += (TITLE + 4) * gd_plot_put_lines(NULL, 0, 0, at->width - 2 * PAD,
                                         (struct gd_plot_style){.size = TITLE, .bold = true},
                                         plot->title) +
         6;
  at->legend_top = y + LINE / 2.0;
  int legend = gd_plot_put_legend(at, 0);
  y += legend * LINE + (legend ? 8 : 0);
  at->out = out;
  at->left = PAD + widest_tick(at) + 10;
  at->right = at->width - PAD;
  if (!gd_plot_has_categories(plot))
    at->right -= 24;               /* half of the last tick's text */
  if (plot->kind == GD_PLOT_CELLS) /* few columns need not be wide */
    at->right = fmin(at->right, at->left + 150.0 * plot->n_categories);
  if (plot->kind == GD_PLOT_CELLS && plot->n_categories > 0 && !categories_fit(at)) {
    const char *last = plot->categories[plot->n_categories - 1]; /* leans out at the right */
    double lean = 0.82 * gd_plot_text_width(last, strlen(last), GD_PLOT_SMALL);
    at->right = fmin(at->right, at->width - PAD - lean);
  }
  if (gd_plot_ends_labelled(plot))
    at->right -= fmin(widest_series_name(plot) + 8, 0.35 * at->width);
  if (plot->y_label)
    y += LINE + 8;
  if (plot->kind == GD_PLOT_CELLS)
    y += categories_height(at) + 8;
  else
    under += gd_plot_has_categories(plot) ? categories_height(at) + 4 : GD_PLOT_UNDER + 2;
  if (plot->x_label)
    under += LINE + 4;
  if (plot->note)
    under += 6 + (GD_PLOT_SMALL + 4) *
                     gd_plot_put_lines(NULL, 0, 0, at->width - 2 * PAD,
                                       (struct gd_plot_style){.size = GD_PLOT_SMALL}, plot->note);
  at->top = y + 4;
  double axes = plot->kind == GD_PLOT_CELLS ? GD_PLOT_CELL_HEIGHT * (double)plot->n_series : 280;
  if (plot->height <= 0)
    at->height = ceil(at->top + axes + under);
  at->bottom = at->height - under;
  if (at->bottom < at->top + 20)
    at->bottom = at->top + 20;
}

static void set_ranges(struct gd_plot_layout *at, double *x_ticks, int *n_x_ticks) {
  const struct gd_plot *plot = at->plot;
  *n_x_ticks = 0;
  at->x0 = 0;
  at->x1 = plot->n_categories > 0 ? plot->n_categories : 1;
  if (plot->kind == GD_PLOT_CELLS) {
    at->y0 = 0;
    at->y1 = plot->n_series > 0 ? plot->n_series : 1;
    return;
  }
  at->log_y = plot->log_y && plot->kind != GD_PLOT_STACKED;
  at->n_ticks = gd_plot_set_range(gd_plot_span_y(plot), at->log_y, gd_plot_has_categories(plot),
                                  &at->y0, &at->y1, at->ticks);
  if (!gd_plot_has_categories(plot)) {
    at->log_x = plot->log_x;
    *n_x_ticks =
        gd_plot_set_range(gd_plot_span_x(plot), at->log_x, false, &at->x0, &at->x1, x_ticks);
  }
}

void gd_plot_put_ticks(struct gd_plot_layout *at, const double *x_ticks, int n_x_ticks) {
  char text[48];
  struct gd_plot_style style = {GD_PLOT_INK, GD_PLOT_SMALL, GD_PLOT_RIGHT, false, 0};
  for (int i = 0; i < at->n_ticks; i++) {
    double y = gd_plot_pixel_y(at, at->ticks[i]);
    gd_strbuf_printf(at->out,
                     "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead lc rgb "
                     "'#%s' lw 1 back\n",
                     at->left / at->width, 1 - y / at->height, at->right / at->width,
                     1 - y / at->height, fabs(at->ticks[i]) > 0 ? "C0808080" : "40707070");
    gd_plot_put_text(at, at->left - 8, y, style,
                     gd_plot_format_value(text, sizeof text, at->ticks[i]));
  }
  style.align = GD_PLOT_CENTRE;
  for (int i = 0; i < n_x_ticks; i++) {
    double x = gd_plot_pixel_x(at, x_ticks[i]);
    gd_strbuf_printf(at->out,
                     "set arrow from screen %.5f,%.5f to screen %.5f,%.5f nohead lc rgb "
                     "'#C0808080' lw 1 back\n",
                     x / at->width, 1 - at->bottom / at->height, x / at->width,
                     1 - at->top / at->height);
    gd_plot_put_text(at, x, at->bottom + GD_PLOT_UNDER, style,
                     gd_plot_format_value(text, sizeof text, x_ticks[i]));
  }
}

static void put_frame(struct gd_plot_layout *at, const double *x_ticks, int n_x_ticks) {
  const struct gd_plot *plot = at->plot;
  double inner = at->width - 2 * PAD, y = at->height - 10;
  struct gd_plot_style note = {GD_PLOT_MUTED, GD_PLOT_SMALL, GD_PLOT_LEFT, false, 0};
  if (plot->title)
    gd_plot_put_lines(at, PAD, PAD + TITLE / 2.0, inner,
                      (struct gd_plot_style){GD_PLOT_INK, TITLE, GD_PLOT_LEFT, true, 0},
                      plot->title);
  gd_plot_put_legend(at, at->legend_top);
  gd_plot_put_ticks(at, x_ticks, n_x_ticks);
  if (gd_plot_has_categories(plot))
    put_categories(at);
  if (plot->kind == GD_PLOT_CELLS)
    for (int s = 0; s < plot->n_series; s++)
      gd_plot_put_text(at, at->left - 8,
                       at->top + (s + 0.5) * (at->bottom - at->top) / plot->n_series,
                       (struct gd_plot_style){GD_PLOT_INK, GD_PLOT_SMALL, GD_PLOT_RIGHT, false, 0},
                       plot->series[s].name);
  if (plot->y_label) {
    double above = plot->kind == GD_PLOT_CELLS ? categories_height(at) + 8 : 0;
    gd_plot_put_text(at, PAD, at->top - above - LINE / 2.0 - 7, note, plot->y_label);
  }
  if (plot->note) {
    int lines = gd_plot_put_lines(NULL, 0, 0, inner, note, plot->note);
    gd_plot_put_lines(at, PAD, y - (lines - 1) * (GD_PLOT_SMALL + 4) - 2, inner, note, plot->note);
    y -= lines * (GD_PLOT_SMALL + 4) + 6;
  }
  note.align = GD_PLOT_RIGHT;
  if (plot->x_label)
    gd_plot_put_text(at, at->right, y - 2, note, plot->x_label);
}

/* --- all of it ----------------------------------------------------------------------------- */

static void put_settings(struct gd_plot_layout *at) {
  gd_strbuf_append(at->out,
                   "set encoding utf8\nunset key\nunset border\nunset xtics\nunset ytics\n");
  gd_strbuf_printf(at->out,
                   "set lmargin at screen %.6f\nset rmargin at screen %.6f\n"
                   "set tmargin at screen %.6f\nset bmargin at screen %.6f\n",
                   at->left / at->width, at->right / at->width, 1 - at->top / at->height,
                   1 - at->bottom / at->height);
  gd_strbuf_printf(at->out, "set xrange [%.12g:%.12g]\nset yrange [%.12g:%.12g]\n", at->x0, at->x1,
                   at->y0, at->y1);
  if (at->log_x)
    gd_strbuf_append(at->out, "set logscale x\n");
  if (at->log_y)
    gd_strbuf_append(at->out, "set logscale y\n");
}

/* Marks that would cover the line are left out. */
static void put_series(struct gd_plot_layout *at, int s) {
  const struct gd_plot *plot = at->plot;
  bool lines = plot->kind == GD_PLOT_LINES, marks = plot->series[s].count <= MOST_MARKS;
  if (plot->joined)
    gd_strbuf_printf(at->out, ", $s%d using 1:2 with lines lw 1 lc rgb '#%06x' notitle", s,
                     0x80000000u | (unsigned)gd_plot_colour_of(plot, s, plot->n_series));
  gd_strbuf_printf(at->out, ", $s%d using 1:2 with %s", s,
                   !lines  ? "points"
                   : marks ? "linespoints"
                           : "lines");
  if (!lines || marks)
    gd_strbuf_printf(at->out, " pt %d ps 0.9", gd_plot_marker(s));
  gd_strbuf_printf(at->out, " lw 2 lc rgb '#%06x' notitle",
                   gd_plot_colour_of(plot, s, plot->n_series));
}

static void put_plot(struct gd_plot_layout *at, bool errors) {
  const struct gd_plot *plot = at->plot;
  gd_strbuf_printf(at->out, "$frame << END\n%.12g %.12g\nEND\n", at->x0, at->y0);
  gd_strbuf_append(at->out, "plot $frame using 1:2 with dots lc rgb '#ffffffff' notitle");
  if (at->n_boxes > 0)
    gd_strbuf_append(at->out, ", $boxes using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable "
                              "fs solid noborder notitle");
  if (at->n_empty > 0)
    gd_strbuf_append(at->out, ", $empty using 1:2:3:4:5:6 with boxxyerror lc rgb '#C0808080' "
                              "fs solid noborder notitle");
  if (errors)
    gd_strbuf_append(at->out,
                     ", $errors using 1:2:3:4 with vectors nohead lw 1.5 lc rgb '" GD_PLOT_INK
                     "' notitle");
  for (int s = 0; s < plot->n_series && !gd_plot_has_categories(plot); s++)
    if (gd_plot_any_drawn(at, &plot->series[s]))
      put_series(at, s);
  gd_strbuf_append(at->out, "\n");
}

/* What cells lack for their texts, and for words of their names to stand side by side where a width
   that the page has is enough for these. */
static double lacking_width(const struct gd_plot_layout *at) {
  enum { MOST_WIDER = 180 };
  const struct gd_plot *plot = at->plot;
  if (plot->kind != GD_PLOT_CELLS || plot->n_categories == 0)
    return 0;
  double has = at->width - PAD - at->left, word = 0;
  double lacks = gd_plot_cells_width(plot) * plot->n_categories - has;
  for (int i = 0; i < plot->n_categories; i++)
    word = fmax(word, widest_word(plot->categories[i]) + CATEGORY_GAP);
  double for_words = word * plot->n_categories - has;
  return plot->width <= 0 && for_words > lacks && for_words <= MOST_WIDER ? for_words : lacks;
}

static void lay_out(struct gd_plot_layout *at, const struct gd_plot *plot, double *x_ticks,
                    int *n_x_ticks) {
  *at = (struct gd_plot_layout){.plot = plot,
                                .width = plot->width > 0 ? plot->width : 720,
                                .height = plot->height > 0 ? plot->height : 0};
  set_ranges(at, x_ticks, n_x_ticks);
  set_margins(at);
  double lacking = lacking_width(at);
  if (lacking > 0) { /* no text is smaller than all others: the figure is wider instead */
    at->width = ceil(at->width + lacking);
    set_margins(at);
  }
  *n_x_ticks = gd_plot_thin_out(at, x_ticks, *n_x_ticks);
  if (plot->kind == GD_PLOT_BARS) { /* room for a label over the highest bar */
    double part = 16 / (at->bottom - at->top);
    at->y1 = at->log_y ? at->y1 * pow(at->y1 / at->y0, part) : at->y1 + (at->y1 - at->y0) * part;
  }
}

void gd_plot_size(const struct gd_plot *plot, int *width, int *height) {
  struct gd_plot_layout at;
  if (plot->n_panels > 0) {
    gd_plot_panels_size(plot, width, height);
    return;
  }
  double x_ticks[GD_PLOT_MOST_TICKS];
  int n_x_ticks;
  lay_out(&at, plot, x_ticks, &n_x_ticks);
  *width = (int)at.width;
  *height = (int)at.height;
}

void gd_plot_script(const struct gd_plot *plot, struct gd_strbuf *script) {
  struct gd_plot_layout at;
  if (plot->n_panels > 0) {
    gd_plot_panels_script(plot, script);
    return;
  }
  double x_ticks[GD_PLOT_MOST_TICKS];
  int n_x_ticks;
  lay_out(&at, plot, x_ticks, &n_x_ticks);
  at.out = script;
  put_settings(&at);
  put_frame(&at, x_ticks, n_x_ticks);
  gd_plot_put_content(&at);
  if (!gd_plot_has_categories(plot))
    gd_plot_points_data(&at);
  put_plot(&at, gd_plot_errors_data(&at));
}
