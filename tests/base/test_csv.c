/*
 * CSV: what RFC 4180 allows is read as it says, all else is refused with the line and the remedy;
 * what is written is read back the same; nothing leaks, memory running out included.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/csv.h"
#include "support/fault.h"
#include "support/scratch.h"

static enum gd_status parse(struct gd_csv *csv, const char *text, struct gd_error *err) {
  *err = (struct gd_error){0};
  return gd_csv_parse(csv, "t.csv", text, (int64_t)strlen(text), err);
}

/* The table as one line: cells joined by |, rows by /, the header first; lines of rows behind #. */
static const char *flat(const struct gd_csv *csv) {
  static char text[512];
  size_t used = 0;
  for (int r = -1; r < csv->rows; r++)
    for (int c = 0; c < csv->columns; c++)
      used += (size_t)snprintf(text + used, sizeof text - used, "%s%s",
                               c       ? "|"
                               : r < 0 ? ""
                                       : "/",
                               r < 0 ? csv->header[c] : gd_csv_cell(csv, r, c));
  for (int r = 0; r < csv->rows; r++)
    used += (size_t)snprintf(text + used, sizeof text - used, "#%d", csv->lines[r]);
  return text;
}

static void expect_table(const char *text, const char *table) {
  struct gd_csv csv;
  struct gd_error err;
  int64_t blocks = gd_mem_live_blocks();
  if (parse(&csv, text, &err) != GD_OK)
    fail_msg("\"%s\" was refused: %s", text, err.text);
  assert_string_equal(flat(&csv), table);
  gd_csv_deinit(&csv);
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

static void expect_sentence(const char *text, const char *sentence) {
  struct gd_csv csv;
  struct gd_error err;
  int64_t blocks = gd_mem_live_blocks();
  assert_int_equal(parse(&csv, text, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, sentence);
  assert_int_equal(gd_mem_live_blocks(), blocks);
  gd_csv_deinit(&csv); /* harmless */
}

static void test_plain(void **state) {
  (void)state;
  expect_table("a,b\n1,2\n3,4\n", "a|b/1|2/3|4#2#3");
  expect_table("a,b\n1,2", "a|b/1|2#2");
  expect_table("a,b\n1,", "a|b/1|#2");
  expect_table("a,b\n,", "a|b/|#2");
  expect_table("a", "a");
  expect_table("a,,b\n", "a||b");
  expect_table("a\n b \n", "a/ b #2"); /* blanks belong to the cell */
  expect_table("a,b\n1,x\"y\"\n", "a|b/1|x\"y\"#2");
}

static void test_line_ends(void **state) {
  (void)state;
  expect_table("a,b\r\n1,2\r\n3,4\r\n", "a|b/1|2/3|4#2#3");
  expect_table("a,b\r\n1,2\n3,4", "a|b/1|2/3|4#2#3");
  expect_table("a,b\r\n\"1\",\"2\"\r\n", "a|b/1|2#2");
  /* Empty lines are nobody's row, and still count. */
  expect_table("\n\r\na\n\n\n1\n\r\n2\n\n", "a/1/2#6#8");
  expect_table("a\n\"\"\n", "a/#2");
  static const char lone[] = ": a carriage return without a line feed; save the file with lines "
                             "that end in LF or CRLF, or quote the cell";
  char sentence[256];
  snprintf(sentence, sizeof sentence, "t.csv, line 1%s", lone);
  expect_sentence("a,b\r1,2\r", sentence);
  expect_sentence("a\r", sentence);
  snprintf(sentence, sizeof sentence, "t.csv, line 2%s", lone);
  expect_sentence("a,b\n1,\"2\"\rx", sentence);
  expect_table("a\n\"x\ry\"\n", "a/x\ry#2");
}

static void test_quotes(void **state) {
  (void)state;
  expect_table("\"a\",\"b\"\n\"1,5\",\"say \"\"hi\"\"\"\n", "a|b/1,5|say \"hi\"#2");
  expect_table("a\n\"\"\"\"\n", "a/\"#2");
  expect_table("a,b\n\"\",\"\"\n", "a|b/|#2");
  /* Lines inside cells count: the row behind is where an editor shows it. */
  expect_table("a,b\n\"x\ny\r\nz\",1\n2,3\n", "a|b/x\ny\r\nz|1/2|3#2#5");
  expect_table("\"a\nb\",c,\"d\ne\"\n1,2,3\n", "a\nb|c|d\ne/1|2|3#4");
  expect_sentence("a\n\"x\ny\n",
                  "t.csv, line 2: a quoted cell does not end; expected a closing \"");
  expect_sentence("\"", "t.csv, line 1: a quoted cell does not end; expected a closing \"");
  expect_sentence("a\n\"x\"\"", "t.csv, line 2: a quoted cell does not end; expected a closing \"");
  expect_sentence("a\n1\n\"x\"y\n", "t.csv, line 3: text behind a closing quote; expected a comma "
                                    "or the end of the line");
  expect_sentence("a,b\n\"x\" ,1\n", "t.csv, line 2: text behind a closing quote; expected a comma "
                                     "or the end of the line");
}

static void test_mark(void **state) {
  (void)state;
  expect_table("\xef\xbb\xbf"
               "a,b\n1,2\n",
               "a|b/1|2#2");
  expect_table("\xef\xbb\xbf\"a\"\n", "a");
  expect_sentence("\xef\xbb\xbf", "t.csv is empty; expected a header and rows");
  expect_table("\xef\xbb,b\n", "\xef\xbb|b"); /* a part of one is none */
}

static void test_refused(void **state) {
  (void)state;
  struct gd_csv csv;
  struct gd_error err = {0};
  expect_sentence("", "t.csv is empty; expected a header and rows");
  expect_sentence("\n\r\n\n", "t.csv is empty; expected a header and rows");
  expect_sentence("a,b\n1,2\n3\n", "t.csv, line 3: 1 cells; the header has 2");
  expect_sentence("a,b\n\n\"x\ny\",2,3\n", "t.csv, line 3: 3 cells; the header has 2");
  expect_sentence("a,b\n   \n", "t.csv, line 2: 1 cells; the header has 2");
  assert_int_equal(gd_csv_parse(&csv, "z.csv", "a\n1\0002\n", 6, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "z.csv holds a NUL byte; expected text");
  /* Escape sequences in a name do not reach the terminal. */
  err = (struct gd_error){0};
  assert_int_equal(gd_csv_parse(&csv, "\033[2J.csv", "", 0, &err), GD_BAD_INPUT);
  assert_null(strchr(err.text, '\033'));
  err = (struct gd_error){0};
  assert_int_equal(gd_csv_parse(&csv, "big", "a", (int64_t)1 << 40, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "big has more than 256 MiB; expected a table");
}

/* A cell of megabytes, and many columns: memory follows the size of the file. */
static void test_large(void **state) {
  (void)state;
  enum { CELL = 5 << 20, COLUMNS = 20000, EMPTY_LINES = 100000 };
  struct gd_strbuf text = {0};
  struct gd_csv csv;
  struct gd_error err = {0};
  gd_strbuf_append(&text, "a,b\n\"");
  for (int i = 0; i < CELL / 8; i++)
    gd_strbuf_append_bytes(&text, "1234567,", 8);
  gd_strbuf_append(&text, "\",2\n");
  assert_int_equal(gd_csv_parse(&csv, "t.csv", text.text, (int64_t)text.length, &err), GD_OK);
  assert_int_equal(strlen(gd_csv_cell(&csv, 0, 0)), CELL);
  assert_string_equal(gd_csv_cell(&csv, 0, 1), "2");
  gd_csv_deinit(&csv);
  text.length = 0;
  for (int row = 0; row < 2; row++) {
    for (int i = 0; i < COLUMNS; i++)
      gd_strbuf_printf(&text, "%s%d", i ? "," : "", i + row);
    for (int i = 0; i < EMPTY_LINES; i++)
      gd_strbuf_append(&text, "\n");
  }
  assert_int_equal(gd_csv_parse(&csv, "t.csv", text.text, (int64_t)text.length, &err), GD_OK);
  assert_int_equal(csv.columns, COLUMNS);
  assert_int_equal(csv.rows, 1);
  assert_int_equal(gd_csv_column(&csv, "19999"), COLUMNS - 1);
  assert_string_equal(gd_csv_cell(&csv, 0, COLUMNS - 1), "20000");
  assert_int_equal(csv.lines[0], EMPTY_LINES + 1);
  gd_csv_deinit(&csv);
  gd_strbuf_deinit(&text);
}

static void test_numbers(void **state) {
  (void)state;
  static const char *const bad[] = {"",      "x",   "1x",     "0x10", "nan", "inf",
                                    "1e999", "1,5", "-0.001", "10.1", "1 2", "-"};
  struct gd_csv csv;
  struct gd_error err;
  double value = 0;
  assert_int_equal(parse(&csv, "days,b\n7.5,\n 1e1,\n+0,\n", &err), GD_OK);
  assert_int_equal(gd_csv_number(&csv, 0, 0, 0, 10, &value, &err), GD_OK);
  assert_true(value == 7.5);
  assert_int_equal(gd_csv_number(&csv, 1, 0, 0, 10, &value, &err), GD_OK);
  assert_true(value == 10);
  assert_int_equal(gd_csv_number(&csv, 2, 0, 0, 10, &value, &err), GD_OK);
  assert_true(value == 0);
  gd_csv_deinit(&csv);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char text[64], sentence[160];
    snprintf(text, sizeof text, "a,days\n\n1,\"%s\"\n", bad[i]);
    snprintf(sentence, sizeof sentence,
             "t.csv, line 3, column \"days\": \"%s\"; expected a number from 0 to 10", bad[i]);
    assert_int_equal(parse(&csv, text, &err), GD_OK);
    value = -1;
    assert_int_equal(gd_csv_number(&csv, 0, 1, 0, 10, &value, &err), GD_BAD_INPUT);
    assert_string_equal(err.text, sentence);
    assert_true(value == -1);
    gd_csv_deinit(&csv);
  }
}

static void test_columns(void **state) {
  (void)state;
  struct gd_csv csv;
  struct gd_error err;
  assert_int_equal(parse(&csv, "a,b,a\n1,2,\033[2J\n", &err), GD_OK);
  assert_int_equal(gd_csv_column(&csv, "b"), 1);
  assert_int_equal(gd_csv_column(&csv, "a"), 0);
  assert_int_equal(gd_csv_column(&csv, "A"), -1);
  assert_int_equal(gd_csv_mismatch(&csv, 0, 2, "a day", &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "t.csv, line 2, column \"a\": \"?[2J\"; expected a day");
  gd_csv_deinit(&csv);
}

static void test_files(void **state) {
  (void)state;
  struct gd_csv csv;
  struct gd_error err = {0};
  scratch_write_text("good.csv", "a,b\r\n1,2\r\n");
  assert_int_equal(gd_csv_load(&csv, scratch_path("good.csv"), &err), GD_OK);
  assert_string_equal(flat(&csv), "a|b/1|2#2");
  gd_csv_deinit(&csv);
  assert_int_equal(gd_csv_load(&csv, scratch_path("none.csv"), &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "No such file"));
  err = (struct gd_error){0};
  assert_int_equal(gd_csv_load(&csv, scratch_path(""), &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "is a folder; name a CSV file"));
  err = (struct gd_error){0};
  scratch_write("zero.csv", "a\0b", 3);
  assert_int_equal(gd_csv_load(&csv, scratch_path("zero.csv"), &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "NUL"));
  err = (struct gd_error){0};
  assert_int_equal(gd_csv_load(&csv, "/dev/zero", &err), GD_BAD_INPUT); /* never ends */
  assert_string_equal(err.text, "/dev/zero has more than 256 MiB; expected a table");
  err = (struct gd_error){0};
  scratch_write_text("empty.csv", "");
  assert_int_equal(gd_csv_load(&csv, scratch_path("empty.csv"), &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "is empty"));
}

/* What is appended is what is read. */
static void test_round_trip(void **state) {
  (void)state;
  static const char *const cells[] = {
      "plain", "",         "1,5",          "say \"hi\"", "two\nlines", "\r", " padded ",
      "\"",    "\xc3\xa9", "\xef\xbb\xbf", ",",          "=1+1",       "+a", "-b",
      "@c",    "\td",      "'=e",          "''",         "'-3.5",      "-",  "-3.5",
      "+1e9",  "'",        "=\"x\",y",     "--",         "'\r"};
  enum { COUNT = sizeof cells / sizeof *cells };
  struct gd_strbuf text = {0};
  struct gd_csv csv;
  struct gd_error err = {0};
  for (int i = 0; i < 2 * COUNT; i++) {
    gd_csv_append_cell(&text, cells[i % COUNT]);
    gd_strbuf_append(&text, i % COUNT == COUNT - 1 ? "\n" : ",");
  }
  assert_int_equal(gd_csv_parse(&csv, "t.csv", text.text, (int64_t)text.length, &err), GD_OK);
  assert_int_equal(csv.columns, COUNT);
  assert_int_equal(csv.rows, 1);
  for (int i = 0; i < COUNT; i++) {
    assert_string_equal(csv.header[i], cells[i]);
    assert_string_equal(gd_csv_cell(&csv, 0, i), cells[i]);
  }
  gd_csv_deinit(&csv);
  gd_strbuf_deinit(&text);
}

/* No cell is a formula; numbers stay numbers; what a file of others holds is read the same way. */
static void test_formulas(void **state) {
  (void)state;
  static const struct {
    const char *text, *cell;
  } cases[] = {
      {"=HYPERLINK(\"x\")", "\"'=HYPERLINK(\"\"x\"\")\""},
      {"@SUM(A1)", "'@SUM(A1)"},
      {"-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"},
      {"+49 30 1", "'+49 30 1"},
      {"\tx", "'\tx"},
      {"\rx", "\"'\rx\""},
      {"'=x", "''=x"},
      {"-3.5", "-3.5"},
      {"+2e-3", "+2e-3"},
      {"-", "-"},
      {"-inf", "'-inf"},
      {"a=b", "a=b"},
      {"it's", "it's"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_strbuf text = {0};
    gd_csv_append_cell(&text, cases[i].text);
    assert_string_equal(text.text, cases[i].cell);
    gd_strbuf_deinit(&text);
  }
  struct gd_csv csv;
  struct gd_error err = {0};
  double value = 0;
  static const char file[] = "a,b,c\n'-3.5,'x,\"'=1\"\n";
  assert_int_equal(gd_csv_parse(&csv, "t.csv", file, (int64_t)strlen(file), &err), GD_OK);
  assert_int_equal(gd_csv_number(&csv, 0, 0, -10, 10, &value, &err), GD_OK);
  assert_true(value == -3.5);
  assert_string_equal(gd_csv_cell(&csv, 0, 1), "'x");
  assert_string_equal(gd_csv_cell(&csv, 0, 2), "=1");
  gd_csv_deinit(&csv);
}

static enum gd_status load(void *context, struct gd_error *err) {
  struct gd_csv csv;
  enum gd_status status = gd_csv_load(&csv, context, err);
  gd_csv_deinit(&csv);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  char path[512];
  scratch_write_text("good.csv", "a,b\n1,2\n");
  snprintf(path, sizeof path, "%s", scratch_path("good.csv"));
  assert_int_equal(fault_sweep(load, path), GD_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_plain),
      cmocka_unit_test(test_line_ends),
      cmocka_unit_test(test_quotes),
      cmocka_unit_test(test_mark),
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_large),
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_columns),
      cmocka_unit_test_setup_teardown(test_files, scratch_setup, scratch_teardown),
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_formulas),
      cmocka_unit_test_setup_teardown(test_memory, scratch_setup, scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
