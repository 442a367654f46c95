/*
 * Figures: what the CSV holds, what comes out of gnuplot, that no text reaches gnuplot or a page as
 * more than text, and what is said where gnuplot is missing or the folder cannot be written.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "plot/plot.h"
#include "support/fault.h"
#include "support/scratch.h"

static const char *const gpus[] = {"3090", "A6000, 48 GB", "A100"};
static const double fast[] = {18, 15, 7.25}, slow[] = {92, (double)NAN, 36};
static const double low[] = {17, 14, 7}, high[] = {19, 16, 8};
static const char *const why[] = {NULL, "infeasible", NULL};
static const struct gd_plot_series two[] = {
    {.name = "optimal", .y = fast, .low = low, .high = high, .count = 3},
    {.name = "naive", .y = slow, .labels = why, .count = 3}};

static struct gd_plot bars(void) {
  return (struct gd_plot){.kind = GD_PLOT_BARS,
                          .title = "Days",
                          .x_label = "GPU",
                          .y_label = "days",
                          .categories = gpus,
                          .n_categories = 3,
                          .series = two,
                          .n_series = 2};
}

static void check_csv(const struct gd_plot *plot, const char *expected) {
  struct gd_strbuf out = {0};
  gd_plot_csv(plot, &out);
  assert_string_equal(out.text, expected);
  gd_strbuf_deinit(&out);
}

static void test_csv(void **state) {
  static const double x[] = {1000, 2e20}, y[] = {0.1, 3};
  static const char *const labels[] = {"a \"b\"", NULL};
  static const char *const classes[] = {"no", "yes"};
  static const double answers[] = {1, (double)NAN, 0};
  struct gd_plot_series point = {.name = "p", .x = x, .y = y, .labels = labels, .count = 2};
  struct gd_plot_series row = {.name = "r", .y = answers, .count = 3};
  (void)state;
  struct gd_plot plot = bars();
  check_csv(&plot, "GPU,optimal,optimal low,optimal high,naive\n3090,18,17,19,92\n"
                   "\"A6000, 48 GB\",15,14,16,\nA100,7.25,7,8,36\n");
  plot = (struct gd_plot){
      .kind = GD_PLOT_SCATTER, .x_label = "FLOPs", .series = &point, .n_series = 1};
  check_csv(&plot, "series,FLOPs,y,label\np,1000,0.1,\"a \"\"b\"\"\"\np,2e+20,3,\n");
  plot = (struct gd_plot){.kind = GD_PLOT_CELLS,
                          .categories = gpus,
                          .n_categories = 3,
                          .series = &row,
                          .n_series = 1,
                          .classes = classes,
                          .n_classes = 2};
  check_csv(&plot, "row,3090,\"A6000, 48 GB\",A100\nr,yes,,no\n");
}

/* --- with gnuplot -------------------------------------------------------------------------- */

static void need_gnuplot(void) {
  struct gd_error err = {0};
  if (gd_plot_works(&err) != GD_OK) {
    print_message("%s\n", err.text);
    skip();
  }
}

static void read_back(const char *name, struct gd_strbuf *to) {
  struct gd_error err = {0};
  to->length = 0;
  if (gd_file_read(scratch_path(name), 1 << 24, to, &err) != GD_OK)
    fail_msg("%s", err.text);
}

static int count_of(const char *text, const char *word) {
  int count = 0;
  for (; (text = strstr(text, word)); text += strlen(word))
    count++;
  return count;
}

static void test_files(void **state) {
  struct gd_strbuf text = {0};
  struct gd_error err = {0};
  struct gd_plot plot = bars();
  (void)state;
  need_gnuplot();
  for (int kind = GD_PLOT_BARS; kind <= GD_PLOT_CELLS; kind++)
    for (int log_y = 0; log_y < 2; log_y++) {
      struct gd_plot_series series[] = {two[0], two[1]};
      series[0].x = low;
      series[1].x = high;
      plot.kind = (enum gd_plot_kind)kind;
      plot.log_y = plot.log_x = log_y;
      plot.series = series;
      if (gd_plot_write(&plot, scratch_path(""), "figure", &err) != GD_OK)
        fail_msg("%d: %s", kind, err.text);
      read_back("figure.png", &text);
      assert_memory_equal(text.text, "\x89PNG\r\n", 6);
      read_back("figure.svg", &text);
      assert_non_null(strstr(text.text, "viewBox=\"0 0 720 "));
      assert_non_null(strstr(text.text, "</svg>"));
      assert_null(strstr(text.text, "gnuplot_"));
      assert_non_null(strstr(text.text, "class=\"gd-ink\""));
    }
  read_back("figure.csv", &text);
  assert_int_equal(scratch_count(""), 3);
  gd_strbuf_deinit(&text);
}

/* A figure as a page holds it. */
static void draw_inside(const struct gd_plot *plot, const char *name, struct gd_strbuf *text) {
  struct gd_error err = {0};
  struct gd_plot_batch *batch = gd_plot_batch_new();
  assert_non_null(batch);
  if (gd_plot_batch_add(batch, plot, plot, scratch_path(""), name, &err) != GD_OK ||
      gd_plot_batch_draw(batch, &err) != GD_OK)
    fail_msg("%s", err.text);
  gd_strbuf_append(text, gd_plot_batch_svg(batch, 0));
  gd_plot_batch_free(batch);
}

/* Many figures, by several runs of gnuplot: each file is the figure of its name. One that is not
   for a page has no PNG. */
static void test_batch(void **state) {
  enum { FIGURES = 5 };
  static const char *const titles[FIGURES] = {"First", "Second", "Third", "Fourth", "Fifth"};
  struct gd_error err = {0};
  struct gd_strbuf text = {0};
  char name[32];
  (void)state;
  need_gnuplot();
  struct gd_plot_batch *batch = gd_plot_batch_new();
  assert_non_null(batch);
  for (int i = 0; i < FIGURES; i++) {
    struct gd_plot plot = bars();
    plot.title = titles[i];
    snprintf(name, sizeof name, "figure-%d", i);
    assert_int_equal(
        gd_plot_batch_add(batch, &plot, i == 3 ? NULL : &plot, scratch_path(""), name, &err),
        GD_OK);
  }
  if (gd_plot_batch_draw(batch, &err) != GD_OK)
    fail_msg("%s", err.text);
  for (int i = 0; i < FIGURES; i++) {
    snprintf(name, sizeof name, "figure-%d.svg", i);
    read_back(name, &text);
    for (int k = 0; k < FIGURES; k++)
      assert_int_equal(strstr(text.text, titles[k]) != NULL, k == i);
    snprintf(name, sizeof name, "figure-%d.png", i);
    assert_int_equal(access(scratch_path(name), F_OK) == 0, i != 3);
    assert_int_equal(strstr(gd_plot_batch_svg(batch, i), titles[i]) != NULL, i != 3);
  }
  gd_plot_batch_free(batch);
  gd_strbuf_deinit(&text);
}

/* No text is smaller than 12 pixels, whatever the kind and however many there are of them. */
static void test_text_sizes(void **state) {
  enum { COLUMNS = 16, ROWS = 6 };
  double values[COLUMNS], x[COLUMNS];
  const char *names[COLUMNS], *labels[COLUMNS];
  struct gd_plot_series series[ROWS];
  struct gd_plot_panel panels[ROWS];
  (void)state;
  need_gnuplot();
  for (int i = 0; i < COLUMNS; i++) {
    x[i] = i + 1;
    values[i] = 12345.678 / (i + 1);
    names[i] = labels[i] = i % 2 ? "Pythia 160M" : "free-lunch";
  }
  for (int s = 0; s < ROWS; s++) {
    series[s] = (struct gd_plot_series){
        .name = names[s], .x = x, .y = values, .labels = labels, .count = COLUMNS};
    panels[s] = (struct gd_plot_panel){names[s], "unit", series, 2};
  }
  for (int kind = GD_PLOT_BARS; kind <= GD_PLOT_CELLS + 1; kind++) {
    struct gd_strbuf text = {0};
    struct gd_plot plot = {.kind = (enum gd_plot_kind)kind,
                           .title = "Title",
                           .x_label = "x",
                           .y_label = "y",
                           .note = "A note",
                           .categories = names,
                           .n_categories = COLUMNS,
                           .series = series,
                           .n_series = ROWS,
                           .empty_name = "nothing"};
    if (kind > GD_PLOT_CELLS) {
      plot.kind = GD_PLOT_LINES;
      plot.panels = panels;
      plot.n_panels = ROWS;
      plot.series = NULL;
      plot.n_series = 0;
    }
    draw_inside(&plot, "sizes", &text);
    int count = 0;
    for (const char *at = text.text; (at = strstr(at, "font-size=\"")); count++) {
      at += strlen("font-size=\"");
      assert_true(strtod(at, NULL) >= 12);
    }
    assert_true(count > 3);
    gd_strbuf_deinit(&text);
  }
}

/* Small multiples: each panel has its title, all share one legend, and the CSV says which is which.
 */
static void test_panels(void **state) {
  static const double x[] = {1, 2, 4}, y[] = {8, 4, 2};
  struct gd_plot_series series[] = {{.name = "A100", .x = x, .y = y, .count = 3},
                                    {.name = "H100", .x = x, .y = fast, .count = 2}};
  struct gd_plot_panel panels[] = {{"small", NULL, series, 2}, {"large", NULL, series, 1}};
  struct gd_plot plot = {.kind = GD_PLOT_SCATTER,
                         .x_label = "USD",
                         .y_label = "days",
                         .panels = panels,
                         .n_panels = 2,
                         .shared_y = true,
                         .joined = true,
                         .log_x = true,
                         .log_y = true};
  struct gd_strbuf text = {0};
  (void)state;
  check_csv(&plot, "panel,series,USD,days\nsmall,A100,1,8\nsmall,A100,2,4\nsmall,A100,4,2\n"
                   "small,H100,1,18\nsmall,H100,2,15\n"
                   "large,A100,1,8\nlarge,A100,2,4\nlarge,A100,4,2\n");
  need_gnuplot();
  draw_inside(&plot, "panels", &text);
  assert_int_equal(count_of(text.text, "small"), 1);
  assert_int_equal(count_of(text.text, "large"), 1);
  assert_int_equal(count_of(text.text, "A100"), 1);
  gd_strbuf_deinit(&text);
}

/* What an axis shows: bars of a known height, in the SVG's own numbers. */
static void test_bar_heights(void **state) {
  static const double values[] = {10, 20, 40};
  struct gd_plot_series series = {.name = "v", .y = values, .count = 3};
  struct gd_plot plot = bars();
  struct gd_strbuf text = {0};
  double heights[3];
  (void)state;
  need_gnuplot();
  plot.series = &series;
  plot.n_series = 1;
  draw_inside(&plot, "f", &text);
  const char *at = text.text;
  for (int i = 0; i < 3; i++) {
    double x0, y0, x1, y1, x2, y2;
    at = strstr(at, "<polygon fill = 'rgb( 47, 120, 196)' points = '");
    assert_non_null(at);
    at = strstr(at, "points = '") + strlen("points = '");
    assert_int_equal(sscanf(at, "%lf,%lf %lf,%lf %lf,%lf", &x0, &y0, &x1, &y1, &x2, &y2), 6);
    heights[i] = y0 - y2;
  }
  assert_true(fabs(heights[1] / heights[0] - 2) < 0.01);
  assert_true(fabs(heights[2] / heights[0] - 4) < 0.01);
  gd_strbuf_deinit(&text);
}

/* Sixteen columns of 38 pixels: "1 3090" has 34 and would touch its neighbours, so it takes two
   lines. */
static void test_names_of_columns(void **state) {
  static const char *const cards[] = {"3090", "A6000", "A100", "H100"};
  double values[16];
  char names[16][16];
  const char *categories[16];
  for (int i = 0; i < 16; i++) {
    values[i] = i;
    snprintf(names[i], sizeof names[i], "%d %s", 1 << i % 4, cards[i / 4]);
    categories[i] = names[i];
  }
  struct gd_plot_series series = {.name = "Pythia 160M", .y = values, .count = 16};
  struct gd_plot plot = {.kind = GD_PLOT_CELLS,
                         .title = "t",
                         .categories = categories,
                         .n_categories = 16,
                         .series = &series,
                         .n_series = 1};
  struct gd_strbuf text = {0};
  (void)state;
  need_gnuplot();
  draw_inside(&plot, "f", &text);
  for (int i = 0; i < 16; i++)
    assert_int_equal(count_of(text.text, names[i]), 0);
  for (int i = 0; i < 4; i++)
    assert_int_equal(count_of(text.text, cards[i]), 4);
  gd_strbuf_deinit(&text);
}

/* Numbers over neighbouring bars stand upright, all of them, where one is wider than its bar. */
static void test_numbers_of_bars(void **state) {
  static const double left[] = {2.9e20, 5e21, 1.3e22}, right[] = {2.9e20, 8.7e20, 1.3e22};
  static const double small[] = {1, 2, 3};
  static const char *const many[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
  struct gd_plot_series series[] = {{.name = "v", .y = left, .count = 3},
                                    {.name = "w", .y = right, .count = 3}};
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title = "t",
                         .log_y = true,
                         .categories = many,
                         .n_categories = 9,
                         .series = series,
                         .n_series = 2};
  struct gd_strbuf text = {0};
  (void)state;
  need_gnuplot();
  draw_inside(&plot, "f", &text);
  assert_int_equal(count_of(text.text, "rotate(-90"), 6);
  gd_strbuf_deinit(&text);
  series[0].y = series[1].y = small;
  draw_inside(&plot, "f", &text);
  assert_int_equal(count_of(text.text, "rotate(-90"), 0);
  gd_strbuf_deinit(&text);
}

/* Texts that would be commands, markup or escapes anywhere else. */
static void test_hostile_texts(void **state) {
  struct gd_strbuf text = {0}, evil = {0}, command = {0};
  struct gd_plot plot = bars();
  (void)state;
  need_gnuplot();
  gd_strbuf_printf(&evil, "`touch %s` ' \" <b>&amp; $(x) @y _a^b {c} \\n\n%%s é",
                   scratch_path("owned"));
  gd_strbuf_printf(&command, "''; system(\"touch %s\") #", scratch_path("owned"));
  const char *names[] = {evil.text, command.text, "'"};
  struct gd_plot_series series = {.name = evil.text, .y = fast, .labels = names, .count = 3};
  plot.title = plot.x_label = plot.y_label = plot.note = evil.text;
  plot.categories = names;
  plot.series = &series;
  plot.n_series = 1;
  draw_inside(&plot, "figure-7", &text);
  assert_int_equal(scratch_count(""), 3); /* the figure's files, and nothing else */
  assert_null(strstr(text.text, "<b>"));
  assert_non_null(strstr(text.text, "&lt;b"));
  assert_non_null(strstr(text.text, "_a^b")); /* word by word: lines break anywhere */
  assert_non_null(strstr(text.text, "{c}"));
  assert_non_null(strstr(text.text, "\\n"));
  /* Every id is this figure's own. */
  assert_int_equal(count_of(text.text, " id="),
                   count_of(text.text, " id='figure-7-") + count_of(text.text, " id=\"figure-7"));
  assert_int_equal(count_of(text.text, "href='#"), count_of(text.text, "href='#figure-7-"));
  gd_strbuf_deinit(&text);
  gd_strbuf_deinit(&evil);
  gd_strbuf_deinit(&command);
}

/* In a CDATA section ]]> is its end, and in any other text it is an error of XML; which of them the
   texts are is up to gnuplot's version. The text is all there in either case. */
static void test_cdata(void **state) {
  struct gd_strbuf text = {0};
  struct gd_plot plot = bars();
  (void)state;
  need_gnuplot();
  const char *names[] = {"]]><script>x()</script>", "a]]>b]]]>", "]]>"};
  struct gd_plot_series series = {
      .name = "]]>\x9b\xe2\x80\xae.", .y = fast, .labels = names, .count = 3};
  plot.title = names[0];
  plot.categories = names;
  plot.series = &series;
  plot.n_series = 1;
  draw_inside(&plot, "figure-7", &text);
  assert_true(count_of(text.text, "]]]]><![CDATA[>") + count_of(text.text, "]]&gt;") >= 5);
  assert_null(strstr(text.text, "\xe2\x80\xae"));
  for (const char *at = text.text, *open; at; at = open ? strstr(open, "]]>") : NULL) {
    at += at == text.text ? 0 : 3;
    const char *end = strstr(at, "]]>");
    open = strstr(at, "<![CDATA[");
    assert_true(open ? end && open < end : !end); /* none outside of a section */
  }
  gd_strbuf_deinit(&text);
}

static void test_nothing_to_draw(void **state) {
  static const double none[] = {(double)NAN, (double)NAN, (double)NAN};
  struct gd_plot_series series = {.name = "n", .x = none, .y = none, .count = 3};
  struct gd_plot plot = bars();
  struct gd_error err = {0};
  (void)state;
  need_gnuplot();
  plot.series = &series;
  plot.n_series = 1;
  for (int kind = GD_PLOT_BARS; kind <= GD_PLOT_CELLS; kind++) {
    plot.kind = (enum gd_plot_kind)kind;
    if (gd_plot_write(&plot, scratch_path(""), "none", &err) != GD_OK)
      fail_msg("%d: %s", kind, err.text);
  }
  plot = (struct gd_plot){.kind = GD_PLOT_LINES};
  assert_int_equal(gd_plot_write(&plot, scratch_path(""), "none", &err), GD_OK);
}

/* --- without ------------------------------------------------------------------------------- */

static void test_no_gnuplot(void **state) {
  struct gd_plot plot = bars();
  struct gd_error err = {0};
  char *path = getenv("PATH"), saved[4096];
  (void)state;
  snprintf(saved, sizeof saved, "%s", path ? path : "");
  setenv("PATH", scratch_path("nowhere"), 1);
  assert_int_equal(gd_plot_works(&err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "gnuplot-nox"));
  err = (struct gd_error){0};
  assert_int_equal(gd_plot_write(&plot, scratch_path(""), "figure", &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "gnuplot-nox"));
  setenv("PATH", saved, 1);
  assert_int_equal(access(scratch_path("figure.csv"), F_OK), 0);
  assert_int_equal(scratch_count(""), 1);
}

static void test_bad_folder(void **state) {
  struct gd_plot plot = bars();
  struct gd_error err = {0};
  (void)state;
  assert_int_equal(gd_plot_write(&plot, scratch_path("no/such"), "figure", &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "no/such/figure.csv"));
}

static enum gd_status csv_attempt(void *context, struct gd_error *err) {
  struct gd_strbuf out = {0};
  struct gd_plot plot = bars();
  (void)context;
  gd_plot_csv(&plot, &out);
  bool failed = out.failed;
  gd_strbuf_deinit(&out);
  return failed ? gd_fail(err, GD_ENVIRONMENT, "out of memory") : GD_OK;
}

static void test_out_of_memory(void **state) {
  (void)state;
  assert_int_equal(fault_sweep(csv_attempt, NULL), GD_OK);
}

/* --- files of src/base --------------------------------------------------------------------- */

static void test_write_and_folders(void **state) {
  struct gd_error err = {0};
  struct gd_strbuf text = {0};
  (void)state;
  assert_int_equal(gd_file_make_folder(scratch_path("a/b//c/"), &err), GD_OK);
  assert_int_equal(gd_file_make_folder(scratch_path("a/b"), &err), GD_OK);
  assert_int_equal(gd_file_write(scratch_path("a/b/c/file"), "one", 3, &err), GD_OK);
  assert_int_equal(gd_file_write(scratch_path("a/b/c/file"), "two!", 4, &err), GD_OK);
  assert_int_equal(scratch_count("a/b/c"), 1);
  read_back("a/b/c/file", &text);
  assert_string_equal(text.text, "two!");
  assert_int_equal(gd_file_make_folder(scratch_path("a/b/c/file"), &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "Not a directory"));
  err = (struct gd_error){0};
  assert_int_equal(gd_file_make_folder(scratch_path("a/b/c/file/d"), &err), GD_ENVIRONMENT);
  err = (struct gd_error){0};
  assert_int_equal(gd_file_make_folder("", &err), GD_ENVIRONMENT);
  err = (struct gd_error){0};
  assert_int_equal(gd_file_read(scratch_path("a/b/c/file"), 3, &text, &err), GD_ENVIRONMENT);
  gd_strbuf_deinit(&text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_csv),
      cmocka_unit_test_setup_teardown(test_files, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_batch, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_text_sizes, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_panels, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_bar_heights, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_names_of_columns, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_numbers_of_bars, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_hostile_texts, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_cdata, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_nothing_to_draw, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_no_gnuplot, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_bad_folder, scratch_setup, scratch_teardown),
      cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test_setup_teardown(test_write_and_folders, scratch_setup, scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
