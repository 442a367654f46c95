/*
 * The report's parts: escaping, tables as HTML and CSV, means, and the page of an empty and of a
 * full store, whose numbers are held against the paper's tables. The full store is what is
 * published: results/h200.csv.
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

#include "base/csv.h"
#include "base/file.h"
#include "report/html.h"
#include "report/report_int.h"
#include "support/scratch.h"

/* --- parts --------------------------------------------------------------------------------- */

static void check_text(const char *text, const char *expected) {
  struct gd_strbuf out = {0};
  gd_html_text(&out, text);
  assert_string_equal(out.text ? out.text : "", expected);
  gd_strbuf_deinit(&out);
}

static void test_escaping(void **state) {
  (void)state;
  check_text("", "");
  check_text("plain 12 \xc3\xa9 \xe2\x80\x94 \xf0\x9f\x9a\x80",
             "plain 12 \xc3\xa9 \xe2\x80\x94 \xf0\x9f\x9a\x80");
  check_text("<script>alert(\"1\" & '2')</script>",
             "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
  check_text("a\x01"
             "b\nc\x7f",
             "a b c ");
  /* Not UTF-8: a lone byte, a cut character, an overlong slash, a surrogate, too large. */
  check_text("a\xff"
             "b",
             "a\xef\xbf\xbd"
             "b");
  check_text("\xe2\x80", "\xef\xbf\xbd\xef\xbf\xbd");
  check_text("\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd");
  check_text("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  check_text("\xf5\x80\x80\x80<", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd&lt;");
}

static void test_table(void **state) {
  static const struct gd_report_column columns[] = {
      {"Model", NULL, false}, {"1", "A, \"B\"", true}, {"2", "A, \"B\"", true}};
  struct gd_arena arena = {0};
  struct gd_strbuf out = {0};
  (void)state;
  struct gd_report_table *table = gd_report_table_new(&arena, columns, 3, 2);
  struct gd_report_cell *row = gd_report_table_row(table);
  row[0].text = "<x>";
  row[1] = (struct gd_report_cell){"1,240\xe2\x80\xa1", 1240, "wrong", NULL};
  row[2] = (struct gd_report_cell){"\xe2\x80\x94", (double)NAN, "none", NULL};
  row = gd_report_table_row(table);
  row[0].text = "a,b";
  row[0].href = "run-1.svg?\"<";
  gd_report_table_csv(table, &out);
  assert_string_equal(out.text,
                      "Model,\"A, \"\"B\"\" x 1\",\"A, \"\"B\"\" x 2\"\n<x>,1240,\n\"a,b\",,\n");
  out.length = 0;
  gd_report_table_html(table, &out);
  assert_non_null(strstr(out.text, "<th scope=\"colgroup\" colspan=\"2\">A, &quot;B&quot;</th>"));
  assert_non_null(strstr(out.text, "<th scope=\"row\">&lt;x&gt;</th>"));
  assert_non_null(strstr(out.text, "<td class=\"n edge wrong\" data-v=\"1240\">1,240"));
  assert_non_null(strstr(out.text, "<td class=\"n none\">"));
  assert_non_null(strstr(out.text, "<a href=\"run-1.svg?&quot;&lt;\">a,b</a></th>"));
  gd_strbuf_deinit(&out);
  gd_arena_deinit(&arena);
}

static void test_mean(void **state) {
  static const double values[] = {1, 2, 3, 4};
  (void)state;
  struct gd_report_mean mean = gd_report_mean_of(values, 4);
  assert_true(fabs(mean.mean - 2.5) < 1e-12);
  /* 3.182 x 1.29099 / 2: by hand */
  assert_true(fabs(mean.half - 2.054) < 1e-3);
  assert_true(isnan(gd_report_mean_of(values, 1).half));
  assert_true(isnan(gd_report_mean_of(values, 0).mean));
}

/* --- the whole ----------------------------------------------------------------------------- */

static void read_csv(const char *name, struct gd_csv *csv) {
  struct gd_error err = {0};
  char path[64];
  snprintf(path, sizeof path, "out/%s", name);
  if (gd_csv_load(csv, scratch_path(path), &err) != GD_OK)
    fail_msg("%s", err.text);
}

static double number(const struct gd_csv *csv, int row, int column) {
  double value = (double)NAN;
  if (gd_csv_cell(csv, row, column)[0])
    assert_int_equal(gd_csv_number(csv, row, column, -1e30, 1e30, &value, NULL), GD_OK);
  return value;
}

static void write_report(struct gd_store *store, struct gd_report_summary *made) {
  struct gd_error err = {0};
  struct gd_report_order order = {
      .folder = scratch_path("out"), .store = store, .no_predictions = true};
  if (gd_report_write(&order, made, &err) != GD_OK)
    fail_msg("%s", err.text);
}

/* Every cell of Tables 1 and 4, in the table's CSV and in the figure's. */
static void check_days(const struct gd_paper *paper, const char *name, enum gd_paper_table table) {
  struct gd_csv csv = {0};
  int feasible = 0;
  read_csv(name, &csv);
  assert_int_equal(csv.rows, 9);
  assert_int_equal(csv.columns, 17);
  for (int row = 0; row < csv.rows; row++)
    for (int i = 0; i < 16; i++) {
      const struct gd_paper_days *cell = gd_paper_find(paper, table, paper->recipes[row].model,
                                                       paper->gpus[i / 4].gpu, 1 << i % 4);
      double shown = number(&csv, row, 1 + i);
      assert_non_null(cell);
      assert_true(cell->days > 0 ? fabs(shown - cell->days) < 1e-9 : isnan(shown));
      feasible += cell->days > 0;
    }
  assert_int_equal(feasible, table == GD_PAPER_OPTIMAL ? 140 : 91);
  gd_csv_deinit(&csv);
}

/* A number of a figure's CSV, by the names of its row and column. */
static double value_of(const char *name, const char *row_name, const char *column_name) {
  struct gd_csv csv = {0};
  double value = (double)NAN;
  read_csv(name, &csv);
  int column = gd_csv_column(&csv, column_name);
  if (column < 0)
    fail_msg("%s has no column %s", name, column_name);
  for (int row = 0; row < csv.rows; row++)
    if (strcmp(gd_csv_cell(&csv, row, 0), row_name) == 0)
      value = number(&csv, row, column);
  gd_csv_deinit(&csv);
  return value;
}

static int count_word(const char *name, const char *word) {
  struct gd_strbuf text = {0};
  struct gd_error err = {0};
  char path[64];
  int count = 0;
  snprintf(path, sizeof path, "out/%s", name);
  assert_int_equal(gd_file_read(scratch_path(path), 1 << 26, &text, &err), GD_OK);
  for (const char *at = text.text; (at = strstr(at, word)); at += strlen(word))
    count++;
  gd_strbuf_deinit(&text);
  return count;
}

static bool near(double value, double expected, double bound) {
  return fabs(value - expected) <= bound;
}

/* The prices of Sec. 4.1: hardware of four machines, and a run on A100s and on H100s. */
static void check_costs(void) {
  static const struct {
    const char *gpu, *label;
    double hardware_usd, run_usd;
  } expected[] = {{"RTX 3090", "2", 4000, 240},
                  {"A100", "8", 162000, 800},
                  {"H100", "4", 127500, 560},
                  {"H100", "8", 250000, 550}};
  static const char *const files[] = {"figure-7-hardware.csv", "figure-7-experiment.csv"};
  for (int f = 0; f < 2; f++) {
    struct gd_csv csv = {0};
    int found = 0;
    read_csv(files[f], &csv);
    for (int row = 0; row < csv.rows; row++)
      for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (strcmp(gd_csv_cell(&csv, row, 0), expected[i].gpu) == 0 &&
            strcmp(gd_csv_cell(&csv, row, 3), expected[i].label) == 0) {
          double usd = f ? expected[i].run_usd : expected[i].hardware_usd;
          assert_true(near(number(&csv, row, 1), usd, 0.05 * usd));
          found++;
        }
    assert_int_equal(found, 4);
    gd_csv_deinit(&csv);
  }
}

static void test_paper_side(void **state) {
  struct gd_report_summary made;
  struct gd_error err = {0};
  struct gd_paper paper = {0};
  (void)state;
  write_report(NULL, &made);
  assert_int_equal(made.trials, 0);
  assert_int_equal(gd_paper_load(&paper, &err), GD_OK);
  check_days(&paper, "table-1-paper.csv", GD_PAPER_OPTIMAL);
  check_days(&paper, "table-4-paper.csv", GD_PAPER_NAIVE);
  gd_paper_deinit(&paper);
  /* Statements of the paper's text, out of the figures. */
  assert_true(near(value_of("figure-2-paper.csv", "all", "best settings (Table 1)"), 4.4, 0.1));
  assert_true(near(value_of("figure-2-paper.csv", "all", "analytic (Sec. 3.1)"), 6, 0.1));
  assert_true(near(value_of("figure-6b.csv", "Pythia 1B", "original"), 192, 0));
  assert_true(near(value_of("figure-6b.csv", "Pythia 1B", "8 A100, best settings"), 72, 0));
  assert_int_equal(count_word("figure-3-paper.csv", "only with efficient methods"), 9);
  assert_int_equal(count_word("figure-3-paper.csv", "with naive settings too"), 11);
  assert_int_equal(count_word("appendix-j-paper.csv", "\n"), 141);
  assert_int_equal(count_word("figure-7-hardware.csv", "\n"), 17);
  check_costs();
}

static void test_measured_side(void **state) {
  struct gd_report_summary made;
  struct gd_error err = {0};
  struct gd_store *store = NULL;
  int64_t added, known;
  (void)state;
  assert_int_equal(gd_store_open(scratch_path("results.db"), &store, &err), GD_OK);
  if (gd_store_load(store, GD_SOURCE_DIR "/results/h200.csv", &added, &known, &err) != GD_OK)
    fail_msg("%s", err.text);
  write_report(store, &made);
  assert_int_equal(made.trials, added);
  /* The best of Pythia-1B, of its thirteen trials, and how the naive one compares. */
  assert_true(near(value_of("best-settings.csv", "Pythia 1.0B", "Measured x Days"), 36.365, 1e-3));
  assert_true(
      near(value_of("best-settings.csv", "Pythia 1.0B", "Times naive"), 57.216 / 36.365, 1e-3));
  assert_true(near(value_of("methods-1.csv", "naive", "Pythia 1.0B"), 57.216 / 36.365, 1e-3));
  assert_true(near(value_of("methods-1.csv", "free-lunch", "Pythia 1.0B"), 1, 1e-12));
  assert_true(near(value_of("figure-2-measured.csv", "Pythia 1.0B", "best settings"),
                   57.216 / 36.365, 1e-3));
  /* 36.927 of zero1+offload against 36.365 of free-lunch alone, in whole percent. */
  assert_true(near(value_of("figure-4-measured.csv", "Pythia 1.0B", "1 x H200"),
                   round(100 * (1 - 36.927 / 36.365)), 1e-9));
  assert_int_equal(count_word("figure-3-measured.csv", "only with efficient methods"), 1);
  assert_int_equal(count_word("trials.csv", "\n"), (int)added + 1);
  /* A store of other recipes: nothing of it is the paper's run, but all of it is the reader's. */
  gd_store_close(store);
  store = NULL;
  assert_int_equal(gd_store_open(scratch_path("other.db"), &store, &err), GD_OK);
  assert_int_equal(
      gd_store_load(store, GD_SOURCE_DIR "/tests/cli/results.jsonl", &added, &known, &err), GD_OK);
  write_report(store, &made);
  assert_true(made.trials < added);
  assert_true(count_word("index.html", "1 trial of other recipes") == 1);
  assert_int_equal(count_word("trials.csv", ",another\n"), 1);
  assert_int_equal(count_word("trials.csv", "\n"), (int)made.trials + 2);
  gd_store_close(store);
}

/* --- what goes wrong ----------------------------------------------------------------------- */

static void test_no_gnuplot(void **state) {
  struct gd_report_summary made;
  char saved[4096];
  (void)state;
  snprintf(saved, sizeof saved, "%s", getenv("PATH"));
  setenv("PATH", scratch_path("nowhere"), 1);
  write_report(NULL, &made);
  setenv("PATH", saved, 1);
  assert_non_null(strstr(made.note, "gnuplot-nox"));
  assert_int_equal(count_word("index.html", "<svg"), 0);
  assert_int_equal(count_word("index.html", ".svg\""), 0);
  assert_true(count_word("index.html", "<details open><summary>Numbers") > 12);
  assert_true(near(value_of("figure-6b.csv", "Pythia 1B", "original"), 192, 0));
}

static void test_bad_folders(void **state) {
  struct gd_report_summary made;
  struct gd_error err = {0};
  (void)state;
  scratch_write_text("file", "x");
  assert_int_equal(
      gd_report_write(&(struct gd_report_order){.folder = scratch_path("file")}, &made, &err),
      GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "file"));
  err = (struct gd_error){0};
  assert_int_equal(gd_report_write(&(struct gd_report_order){.folder = "/proc/no"}, &made, &err),
                   GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "/proc/no"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_escaping),
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_mean),
      cmocka_unit_test_setup_teardown(test_paper_side, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_measured_side, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_no_gnuplot, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_bad_folders, scratch_setup, scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
