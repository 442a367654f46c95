/*
 * results/accuracy.svg: predicted over published rates, both axes logarithmic, and below it how
 * many times the published rate the predicted one is, where an error of a tenth can be seen. Each
 * rate is predicted without its GPU, or where it is the only GPU of its software without its model.
 * What is missed by more than a quarter is ringed, and has a number in the lower part and its name
 * at the side.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/accuracy.h"
#include "report/html.h"

enum {
  LEFT = 92,
  WIDTH = 540,
  TOP = 56,
  HEIGHT = 400,       /* of the upper part */
  LOWER = TOP + 432,  /* where the lower part begins, */
  LOWER_HEIGHT = 160, /* and how high it is */
  SIDE = LEFT + WIDTH + 24,
  ALL_WIDTH = 910,
  ALL_HEIGHT = LOWER + LOWER_HEIGHT + 60,
  LINE = 17,
};
static const double missed = 0.25; /* of the time; as predicted over published rates: */
static const double too_fast = 1 / (1 - missed), too_slow = 1 / (1 + missed);

/* A rate that was predicted by a fit that had not seen it. */
struct mark {
  const struct gd_published_row *row;
  double predicted;
  bool by_model; /* only its model was left out */
};

struct picture {
  const struct gd_accuracy *a;
  struct gd_strbuf *out;
  int low, high;                  /* decades of both axes */
  double factor;                  /* the lower part reaches from 1 / factor to factor */
  int order[GD_PUBLISHED_STACKS]; /* of a stack among those with marks, from 0; else -1 */
};

static bool mark_of(const struct gd_accuracy *a, int row, struct mark *mark) {
  *mark = (struct mark){.row = &a->published.rows[row]};
  double error = gd_published_error(&a->published_errors, GD_UNSEEN_GPU, row);
  mark->by_model = isnan(error);
  if (mark->by_model)
    error = gd_published_error(&a->published_errors, GD_UNSEEN_MODEL, row);
  mark->predicted = mark->row->per_gpu / exp(error);
  return !isnan(error);
}

static bool is_missed(const struct mark *mark) {
  return fabs(mark->row->per_gpu / mark->predicted - 1) > missed;
}

/* --- places ----------------------------------------------------------------------------------- */

static double share_of(const struct picture *p, double value) {
  return (log10(value) - p->low) / (p->high - p->low);
}

static double x_of(const struct picture *p, double value) {
  return LEFT + WIDTH * share_of(p, value);
}

static double y_of(const struct picture *p, double value) {
  return TOP + HEIGHT * (1 - share_of(p, value));
}

static double ratio_y(const struct picture *p, double ratio) {
  return LOWER + LOWER_HEIGHT * (0.5 - 0.5 * log(ratio) / log(p->factor));
}

static void measure(struct picture *p) {
  double least = HUGE_VAL, most = 0;
  int stacks = 0;
  bool has[GD_PUBLISHED_STACKS] = {false};
  p->factor = 1.6;
  for (int i = 0; i < p->a->published.count; i++) {
    struct mark mark;
    if (!mark_of(p->a, i, &mark))
      continue;
    double published = mark.row->per_gpu;
    least = fmin(least, fmin(published, mark.predicted));
    most = fmax(most, fmax(published, mark.predicted));
    p->factor =
        fmax(p->factor, 1.1 * fmax(published, mark.predicted) / fmin(published, mark.predicted));
    has[mark.row->stack] = true;
  }
  p->low = most > 0 ? (int)floor(log10(least)) : 0;
  p->high = most > 0 ? (int)ceil(log10(most)) : 1;
  if (p->high == p->low)
    p->high++;
  for (int i = 0; i < GD_PUBLISHED_STACKS; i++)
    p->order[i] = has[i] ? stacks++ : -1;
}

/* --- axes ------------------------------------------------------------------------------------- */

static void grid_line(struct gd_strbuf *out, double x, double y, bool upright, double length) {
  gd_strbuf_printf(out, "<path d=\"M%.1f %.1f%c%.1f\" stroke=\"#ddd\"/>\n", x, y,
                   upright ? 'v' : 'h', length);
}

static void label(struct gd_strbuf *out, double x, double y, const char *anchor, const char *text) {
  gd_strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
  gd_html_text(out, text);
  gd_strbuf_append(out, "</text>\n");
}

/* "10", "1,000". */
static void decade_label(struct gd_strbuf *out, double x, double y, const char *anchor,
                         int decade) {
  char text[32];
  if (decade < 0)
    snprintf(text, sizeof text, "%g", pow(10, decade));
  else
    gd_format_number(text, sizeof text, pow(10, decade), 0);
  label(out, x, y, anchor, text);
}

static void upper_axes(const struct picture *p) {
  for (int decade = p->low; decade <= p->high; decade++) {
    double value = pow(10, decade);
    grid_line(p->out, LEFT, y_of(p, value), false, WIDTH);
    grid_line(p->out, x_of(p, value), TOP, true, HEIGHT);
    decade_label(p->out, LEFT - 8, y_of(p, value) + 4, "end", decade);
  }
  const double most = pow(10, p->high), least = pow(10, p->low);
  gd_strbuf_printf(p->out,
                   "<path d=\"M%d %dL%d %d\" stroke=\"#666\"/>\n"
                   "<path d=\"M%d %.1fL%.1f %dM%.1f %dL%d %.1f\" stroke=\"#999\" "
                   "stroke-dasharray=\"4\"/>\n",
                   LEFT, TOP + HEIGHT, LEFT + WIDTH, TOP, LEFT, y_of(p, least * too_fast),
                   x_of(p, most / too_fast), TOP, x_of(p, least / too_slow), TOP + HEIGHT,
                   LEFT + WIDTH, y_of(p, most * too_slow));
  gd_strbuf_printf(p->out,
                   "<text transform=\"translate(18,%d) rotate(-90)\" text-anchor=\"middle\">"
                   "predicted, a second and GPU</text>\n",
                   TOP + HEIGHT / 2);
}

static void lower_axes(const struct picture *p) {
  const double ratios[] = {0.25, 0.5, too_slow, 1, too_fast, 2, 4};
  for (int decade = p->low; decade <= p->high; decade++) {
    grid_line(p->out, x_of(p, pow(10, decade)), LOWER, true, LOWER_HEIGHT);
    decade_label(p->out, x_of(p, pow(10, decade)), LOWER + LOWER_HEIGHT + 18, "middle", decade);
  }
  for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
    char text[32];
    bool dashed = i == 2 || i == 4;
    if (fabs(log(ratios[i])) > log(p->factor))
      continue;
    snprintf(text, sizeof text, "x %.3g", ratios[i]);
    gd_strbuf_printf(p->out, "<path d=\"M%d %.1fh%d\" stroke=\"%s\"%s/>\n", LEFT,
                     ratio_y(p, ratios[i]), WIDTH, dashed ? "#999" : "#666",
                     dashed ? " stroke-dasharray=\"4\"" : "");
    label(p->out, LEFT - 8, ratio_y(p, ratios[i]) + 4, "end", text);
  }
  gd_strbuf_printf(p->out,
                   "<text transform=\"translate(18,%d) rotate(-90)\" text-anchor=\"middle\">"
                   "predicted / published</text>\n",
                   LOWER + LOWER_HEIGHT / 2);
  label(p->out, LEFT + WIDTH / 2.0, LOWER + LOWER_HEIGHT + 42, "middle",
        "published, tokens or images a second and GPU");
}

/* --- marks ------------------------------------------------------------------------------------ */

/* Okabe and Ito's colours, which people tell apart however they see them; then the same as rings.
 */
static void append_dot(const struct picture *p, double x, double y, int order) {
  static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                        "#e69f00", "#56b4e9", "#000000"};
  enum { COLOURS = sizeof colours / sizeof *colours };
  const char *colour = colours[order % COLOURS];
  if (order < COLOURS)
    gd_strbuf_printf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"", x, y, colour);
  else
    gd_strbuf_printf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"none\" stroke=\"%s\"",
                     x, y, colour);
  gd_strbuf_append(p->out, " opacity=\"0.6\"/>\n");
}

static void append_marks(const struct picture *p) {
  for (int i = 0; i < p->a->published.count; i++) {
    struct mark mark;
    if (!mark_of(p->a, i, &mark))
      continue;
    double x = x_of(p, mark.row->per_gpu);
    append_dot(p, x, y_of(p, mark.predicted), p->order[mark.row->stack]);
    append_dot(p, x, ratio_y(p, mark.predicted / mark.row->per_gpu), p->order[mark.row->stack]);
  }
}

/* --- the side --------------------------------------------------------------------------------- */

static int append_legend(const struct picture *p, int y) {
  const struct gd_published *published = &p->a->published;
  char text[128];
  for (int i = 0; i < published->stacks.count; i++) {
    int rows = 0;
    bool by_model = true;
    if (p->order[i] < 0)
      continue;
    for (int k = 0; k < published->count; k++) {
      struct mark mark;
      bool counts = published->rows[k].stack == i && mark_of(p->a, k, &mark);
      rows += counts;
      by_model = by_model && (!counts || mark.by_model);
    }
    append_dot(p, SIDE + 4, y - 4, p->order[i]);
    snprintf(text, sizeof text, "%.60s, %d rate%s%s", published->stacks.all[i].name, rows,
             rows == 1 ? "" : "s", by_model ? " *" : "");
    label(p->out, SIDE + 14, y, "start", text);
    y += LINE;
  }
  label(p->out, SIDE, y + 4, "start", "predicted without its GPU; *: only one");
  label(p->out, SIDE, y + 4 + LINE, "start", "GPU has rates, without its model");
  label(p->out, SIDE, y + 4 + 2 * LINE, "start", "dashed: 25 % off in time");
  return y + 4 + 4 * LINE;
}

static void append_ring(const struct picture *p, double x, double y) {
  gd_strbuf_printf(
      p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"none\" stroke=\"#000\"/>\n", x, y);
}

/* A number beyond the mark, where fewer marks are. */
static void append_miss(const struct picture *p, const struct mark *mark, int number, int y) {
  char text[160];
  double x = x_of(p, mark->row->per_gpu), error = mark->row->per_gpu / mark->predicted - 1;
  double lower_y = ratio_y(p, mark->predicted / mark->row->per_gpu);
  append_ring(p, x, y_of(p, mark->predicted));
  append_ring(p, x, lower_y);
  snprintf(text, sizeof text, "%d", number);
  label(p->out, x, lower_y + (error > 0 ? 19 : -9), "middle", text);
  snprintf(text, sizeof text, "%d  %.20s, %d x %.12s: %+.0f %%", number, mark->row->model,
           mark->row->target.count, mark->row->gpu_name, 100 * error);
  label(p->out, SIDE, y, "start", text);
}

static void append_misses(const struct picture *p, int y) {
  const int most = (LOWER + LOWER_HEIGHT - y) / LINE - 1;
  int count = 0;
  char text[64];
  label(p->out, SIDE, y, "start", "off by more than 25 %, in time:");
  for (int i = 0; i < p->a->published.count; i++) {
    struct mark mark;
    if (mark_of(p->a, i, &mark) && is_missed(&mark) && ++count <= most)
      append_miss(p, &mark, count, y + count * LINE);
  }
  if (count > most)
    snprintf(text, sizeof text, "and %d more: accuracy.md", count - most);
  else
    snprintf(text, sizeof text, "none");
  if (count == 0 || count > most)
    label(p->out, SIDE, y + (count > most ? most + 1 : 1) * LINE, "start", text);
}

void gd_accuracy_published_picture(const struct gd_accuracy *a, struct gd_strbuf *out) {
  struct picture p = {.a = a, .out = out};
  measure(&p);
  gd_strbuf_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
                   "height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n"
                   "<title>Predicted over published throughput</title>\n"
                   "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" "
                   "y=\"30\" font-size=\"16\" font-weight=\"bold\">Predicted over published "
                   "throughput, %d rates of %d sources</text>\n",
                   ALL_WIDTH, ALL_HEIGHT, ALL_WIDTH, ALL_HEIGHT, LEFT, a->published.count,
                   a->published.n_sources);
  upper_axes(&p);
  lower_axes(&p);
  append_marks(&p);
  append_misses(&p, append_legend(&p, TOP + 12));
  gd_strbuf_append(out, "</svg>\n");
}
