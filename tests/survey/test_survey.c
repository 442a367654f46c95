/*
 * The survey: the schema is the paper's Table 2; files of answers are read as people and forms
 * write them, everything wrong in them is named by line and column, counts are right, and what is
 * synthetic says so in every figure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/fault.h"
#include "survey/survey.h"

#define REQUIRED \
  "q2_role,q4_use,q5_satisfaction,q7_desktop_gpus,q10_workstation_gpus,q13_datacenter_gpus"
#define GOOD "Postdoc,Inference,3,Not sure,None available,Ampere"

static enum gd_status parse(struct gd_survey *survey, const char *text, struct gd_error *err) {
  *err = (struct gd_error){0};
  return gd_survey_parse(survey, "a.csv", text, (int64_t)strlen(text), err);
}

static void parse_good(struct gd_survey *survey, const char *text) {
  struct gd_error err;
  if (parse(survey, text, &err) != GD_OK)
    fail_msg("\"%s\" was refused: %s", text, err.text);
}

static const struct gd_survey_table *tabulate(struct gd_survey *survey) {
  const struct gd_survey_table *tables;
  struct gd_error err = {0};
  int count;
  assert_int_equal(gd_survey_tabulate(survey, &tables, &count, &err), GD_OK);
  assert_int_equal(count, survey->schema.columns);
  return tables;
}

/* The table of a question, or of one row of a grid. */
static const struct gd_survey_table *find(const struct gd_survey *survey,
                                          const struct gd_survey_table *tables, const char *id,
                                          const char *row) {
  for (int i = 0; i < survey->schema.columns; i++)
    if (strcmp(tables[i].question->id, id) == 0 && (!row || strcmp(tables[i].row, row) == 0))
      return &tables[i];
  fail_msg("no table of %s", id);
  return NULL;
}

static int count_of(const struct gd_survey_table *table, const char *label) {
  for (int i = 0; i < table->n_counts; i++)
    if (strcmp(table->counts[i].answer->label, label) == 0)
      return table->counts[i].count;
  fail_msg("no answer %s in %s", label, table->question->id);
  return -1;
}

/* --- the schema ---------------------------------------------------------------------------- */

static void test_schema(void **state) {
  (void)state;
  struct gd_survey_schema schema;
  struct gd_error err = {0};
  int kinds[GD_SURVEY_KIND_COUNT] = {0};
  assert_int_equal(gd_survey_schema_load(&schema, &err), GD_OK);
  assert_int_equal(schema.n_questions, 19);
  for (int i = 0; i < schema.n_questions; i++) {
    const struct gd_survey_question *question = &schema.questions[i];
    char prefix[16];
    snprintf(prefix, sizeof prefix, "q%d_", i + 1);
    assert_int_equal(strncmp(question->id, prefix, strlen(prefix)), 0);
    kinds[question->kind]++;
  }
  assert_int_equal(kinds[GD_SURVEY_TEXT], 3);
  assert_int_equal(kinds[GD_SURVEY_NUMBER], 1);
  assert_int_equal(kinds[GD_SURVEY_SCALE], 1);
  assert_int_equal(kinds[GD_SURVEY_GRID], 3);
  assert_int_equal(kinds[GD_SURVEY_SINGLE], 4);
  assert_int_equal(kinds[GD_SURVEY_MULTIPLE], 7);
  /* As many answers as Table 2 has: "[Other]" apart. */
  assert_int_equal(schema.questions[6].n_answers, 9);   /* desktop */
  assert_int_equal(schema.questions[9].n_answers, 8);   /* workstation */
  assert_int_equal(schema.questions[12].n_answers, 10); /* data center */
  assert_int_equal(schema.questions[16].n_answers, 17); /* networks */
  assert_int_equal(schema.questions[14].n_rows, 7);
  assert_int_equal(schema.columns, 16 + 3 * 7);
  /* Short where that is unambiguous. */
  assert_string_equal(schema.questions[12].answers[5].text, "Ampere (A2 / A10 / A30 / A40 / A100)");
  assert_string_equal(schema.questions[12].answers[5].label, "Ampere");
  assert_string_equal(schema.questions[16].answers[3].label, "Ethernet unknown");
  gd_survey_schema_deinit(&schema);
}

static void test_template(void **state) {
  (void)state;
  struct gd_survey_schema schema;
  struct gd_survey survey;
  struct gd_strbuf text = {0};
  struct gd_error err = {0};
  assert_int_equal(gd_survey_schema_load(&schema, &err), GD_OK);
  assert_int_equal(gd_survey_template(&schema, false, &text, &err), GD_OK);
  assert_int_equal(strncmp(text.text, "q1_institution,q2_role,", 23), 0);
  assert_non_null(strstr(text.text, ",q15_datacenter_time [64+ GPUs],"));
  assert_int_equal(parse(&survey, text.text, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "a.csv has a header and no answers; expected a row a respondent");
  assert_int_equal(survey.all_problems, 0);
  gd_survey_deinit(&survey);
  gd_strbuf_deinit(&text);
  gd_survey_schema_deinit(&schema);
}

/* --- reading ------------------------------------------------------------------------------- */

static void test_counts(void **state) {
  (void)state;
  struct gd_survey survey;
  parse_good(&survey,
             "q5_satisfaction,q2_role,q4_use,q6_cloud_usd,q7_desktop_gpus,q10_workstation_gpus,"
             "q13_datacenter_gpus,q15_datacenter_time [4 GPUs],q1_institution\n"
             "3,Postdoc,Inference; Fine-tuning,0,Not sure,None available,Ampere; Hopper,Days,One\n"
             "5,ph.d. student,Inference,100,None available,Turing,None available,N/A,one \n"
             "1,Other: engineer,Rendering; Other: art,99.5,Ampere,Ampere,Volta,Weeks,\n"
             "3,Engineer,Inference,,Ampere,None available,Volta,,Two\n");
  const struct gd_survey_table *tables = tabulate(&survey), *table;
  assert_int_equal(survey.respondents, 4);
  assert_int_equal(survey.synthetic, 0);
  assert_null(gd_survey_warning(&survey));
  table = find(&survey, tables, "q2_role", NULL);
  assert_int_equal(table->answered, 4);
  assert_int_equal(count_of(table, "Postdoc"), 1);
  assert_int_equal(count_of(table, "Ph.D. Student"), 1);
  assert_int_equal(count_of(table, "something else"), 2);
  assert_int_equal(table->n_others, 1); /* the same but for a capital */
  assert_string_equal(table->others[0], "engineer");
  table = find(&survey, tables, "q4_use", NULL);
  assert_int_equal(count_of(table, "Inference"), 3);
  assert_int_equal(count_of(table, "Fine-tuning"), 1);
  assert_int_equal(count_of(table, "something else"), 1);
  table = find(&survey, tables, "q5_satisfaction", NULL);
  assert_int_equal(count_of(table, "3"), 2);
  assert_int_equal(count_of(table, "2"), 0);
  table = find(&survey, tables, "q6_cloud_usd", NULL);
  assert_int_equal(table->answered, 3);
  assert_int_equal(count_of(table, "0"), 1);
  assert_int_equal(count_of(table, "up to 99"), 1);
  assert_int_equal(count_of(table, "100 to 499"), 1);
  assert_true(table->least == 0 && table->median == 99.5 && table->most == 100);
  table = find(&survey, tables, "q15_datacenter_time", "4 GPUs");
  assert_int_equal(table->answered, 3);
  assert_int_equal(count_of(table, "Days"), 1);
  assert_int_equal(count_of(table, "N/A"), 1);
  assert_int_equal(find(&survey, tables, "q15_datacenter_time", "8 GPUs")->answered, 0);
  table = find(&survey, tables, "q1_institution", NULL);
  assert_int_equal(table->answered, 3);
  assert_int_equal(table->distinct, 2);
  gd_survey_deinit(&survey);
}

/* Wilson's interval against its published example: 81 of 263 (Newcombe 1998, Table I: 0.2553 to
   0.3662), and at the ends. */
static void test_interval(void **state) {
  (void)state;
  struct gd_survey survey;
  struct gd_strbuf text = {0};
  gd_strbuf_append(&text, REQUIRED "\n");
  for (int i = 0; i < 263; i++)
    gd_strbuf_printf(&text, "%s,Inference,3,Not sure,Not sure,Not sure\n",
                     i < 81 ? "Postdoc" : "Professor");
  parse_good(&survey, text.text);
  const struct gd_survey_table *table = find(&survey, tabulate(&survey), "q2_role", NULL);
  assert_int_equal(count_of(table, "Postdoc"), 81);
  assert_float_equal((float)table->counts[3].share, 0.3080f, 5e-5f);
  assert_float_equal((float)table->counts[3].low, 0.2553f, 5e-5f);
  assert_float_equal((float)table->counts[3].high, 0.3662f, 5e-5f);
  assert_true(table->counts[0].count == 0 && table->counts[0].low == 0);
  assert_true(table->counts[0].high > 0 && table->counts[0].high < 0.02);
  table = find(&survey, tabulate(&survey), "q5_satisfaction", NULL);
  assert_true(table->counts[2].count == 263 && table->counts[2].high == 1);
  assert_true(table->counts[2].low > 0.98 && table->counts[2].low < 1);
  table = find(&survey, tabulate(&survey), "q6_cloud_usd", NULL);
  assert_true(table->answered == 0 && isnan(table->counts[0].share) && isnan(table->median));
  gd_survey_deinit(&survey);
  gd_strbuf_deinit(&text);
}

/* As Google Forms exports it: texts of questions as names, commas between answers, a timestamp. */
static void test_forms(void **state) {
  (void)state;
  struct gd_survey survey;
  parse_good(&survey,
             "Timestamp,What is your role?,What do you use GPUs for?,"
             "How satisfied are you by your current access to GPUs? (1\xe2\x80\x93"
             "5),Which Desktop GPUs are you able to use at your university\xe2\x80\x99s compute "
             "cluster?,q10_workstation_gpus,q13_datacenter_gpus,"
             "How long can you use these Data Center GPUs for? [8 GPUs]\r\n"
             "4/2/2024 10:00:00,Master\xe2\x80\x99s Student,\"Training (with small data / models), "
             "Inference\",4,Ampere (RTX 3000 series),None available,\"Volta (V100), "
             "Ampere (A2 / A10 / A30 / A40 / A100)\",Weeks\r\n,,,,,,,\r\n");
  const struct gd_survey_table *tables = tabulate(&survey);
  assert_int_equal(survey.respondents, 1);
  assert_int_equal(count_of(find(&survey, tables, "q2_role", NULL), "Master's Student"), 1);
  assert_int_equal(count_of(find(&survey, tables, "q4_use", NULL), "Training"), 1);
  assert_int_equal(count_of(find(&survey, tables, "q4_use", NULL), "Inference"), 1);
  assert_int_equal(count_of(find(&survey, tables, "q13_datacenter_gpus", NULL), "Volta"), 1);
  assert_int_equal(count_of(find(&survey, tables, "q13_datacenter_gpus", NULL), "Ampere"), 1);
  assert_int_equal(count_of(find(&survey, tables, "q15_datacenter_time", "8 GPUs"), "Weeks"), 1);
  gd_survey_deinit(&survey);
}

/* --- what is wrong ------------------------------------------------------------------------- */

/* One row with one more column, or another first cell; the sentence that refuses it. */
static void expect_refused(const char *text, const char *sentence) {
  struct gd_survey survey;
  struct gd_error err;
  int64_t blocks = gd_mem_live_blocks();
  assert_int_equal(parse(&survey, text, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, sentence);
  gd_survey_deinit(&survey);
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

static void test_cells_refused(void **state) {
  (void)state;
  expect_refused(REQUIRED "\n" GOOD "\nPostdco,Inference,3,Not sure,Not sure,Ampere\n",
                 "a.csv, line 3, column \"q2_role\": \"Postdco\"; expected \"Postdoc\"; or, if "
                 "something else is meant, \"Other: Postdco\"");
  expect_refused(REQUIRED "\n,Inference,3,Not sure,Not sure,Ampere\n",
                 "a.csv, line 2, column \"q2_role\": \"\"; expected an answer: the question must "
                 "be answered");
  expect_refused(REQUIRED "\nPostdoc,Inference,6,Not sure,Not sure,Ampere\n",
                 "a.csv, line 2, column \"q5_satisfaction\": \"6\"; expected a number from 1 to 5");
  expect_refused(REQUIRED "\nPostdoc,Inference,3,Not sure; Ampere,Not sure,Ampere\n",
                 "a.csv, line 2, column \"q7_desktop_gpus\": \"Not sure; Ampere\"; expected \"Not "
                 "sure\" alone, or the other answers without it");
  expect_refused(REQUIRED ",q6_cloud_usd\n" GOOD ",$100\n",
                 "a.csv, line 2, column \"q6_cloud_usd\": \"$100\"; expected a plain number from 0 "
                 "to 1e+07, without unit or separators");
  expect_refused(REQUIRED ",q6_cloud_usd\n" GOOD ",-1\n",
                 "a.csv, line 2, column \"q6_cloud_usd\": \"-1\"; expected a plain number from 0 "
                 "to 1e+07, without unit or separators");
  expect_refused(REQUIRED ",q15_datacenter_time [2 GPUs]\n" GOOD ",Years\n",
                 "a.csv, line 2, column \"q15_datacenter_time [2 GPUs]\": \"Years\"; expected one "
                 "of: N/A; Hours; Days; Weeks; Months; Indefinitely");
  expect_refused(REQUIRED ",q8_desktop_memory\n" GOOD ",17 GB\n",
                 "a.csv, line 2, column \"q8_desktop_memory\": \"17 GB\"; expected one of: Not "
                 "sure; None available; 4 GB; 8 GB; 12 GB; 16 GB; 20 GB; 24 GB; 32 GB");
  expect_refused(REQUIRED ",q17_network\n" GOOD ",Ethernet\n",
                 "a.csv, line 2, column \"q17_network\": \"Ethernet\"; expected \"Ethernet "
                 "unknown\" ('gpudays survey --questions' lists all 17 answers)");
  expect_refused(REQUIRED ",q17_network\n" GOOD ",carrier pigeons\n",
                 "a.csv, line 2, column \"q17_network\": \"carrier pigeons\"; expected an answer "
                 "such as \"Infiniband NDR\" ('gpudays survey --questions' lists all 17 answers)");
  expect_refused(
      REQUIRED "\nPostdoc, ; ,3,Not sure,Not sure,Ampere\n",
      "a.csv, line 2, column \"q4_use\": \";\"; expected answers between the separators, "
      "or an empty cell");
  expect_refused("synthetic," REQUIRED "\nmaybe," GOOD "\n",
                 "a.csv, line 2, column \"synthetic\": \"maybe\"; expected yes for a synthetic "
                 "answer, no or nothing for a real one");
}

static void test_columns_refused(void **state) {
  (void)state;
  expect_refused(REQUIRED ",q6_cloud_us\n" GOOD ",0\n",
                 "a.csv, line 1, column \"q6_cloud_us\": \"q6_cloud_us\"; expected a column of the "
                 "survey; did you mean q6_cloud_usd?");
  expect_refused(REQUIRED ",favourite colour\n" GOOD ",red\n",
                 "a.csv, line 1, column \"favourite colour\": \"favourite colour\"; expected a "
                 "column of the survey: the id or the text of a question ('gpudays survey "
                 "--template' prints all)");
  expect_refused(REQUIRED ",What is your role?\n" GOOD ",Professor\n",
                 "a.csv, line 1, column \"What is your role?\": \"What is your role?\"; expected "
                 "each question once; this column is there twice");
  expect_refused("q2_role,q4_use,q7_desktop_gpus\n"
                 "Postdoc,Inference,Not sure\n",
                 "a.csv, line 1, column \"q5_satisfaction\": \"\"; expected this column: the "
                 "question must be answered");
  expect_refused(REQUIRED "\n" GOOD ",more\n", "a.csv, line 2: 7 cells; the header has 6");
}

/* The columns of the file that the paper's authors draw Figures 1 and 8 from, and "Masters". */
static void test_columns_of_the_paper(void **state) {
  (void)state;
  struct gd_survey survey;
  parse_good(&survey, "role,areas,uses,satisfaction,cloud_budget,desktop_gen,desktop_mem,desktop_1,"
                      "workstation_gen,workstation_64,data_center_gen,data_center_4,gpu_link,"
                      "node_link\n"
                      "Masters Student,Machine Learning,\"Inference, Fine-tuning\",3,0,Not sure,"
                      "24 GB,Days,None available,,Ampere,Weeks,NVLink,Ethernet (10 Gbps)\n");
  const struct gd_survey_table *tables = tabulate(&survey), *table;
  table = find(&survey, tables, "q2_role", NULL);
  assert_int_equal(count_of(table, "Master's Student"), 1);
  table = find(&survey, tables, "q15_datacenter_time", "4 GPUs");
  assert_int_equal(count_of(table, "Weeks"), 1);
  table = find(&survey, tables, "q9_desktop_time", "1 GPU");
  assert_int_equal(count_of(table, "Days"), 1);
  gd_survey_deinit(&survey);
  expect_refused(
      "role,uses,satisfaction,desktop_gen,workstation_gen,data_center_gen,desktop_3\n"
      "Postdoc,Inference,3,Not sure,None available,Ampere,Days\n",
      "a.csv, line 1, column \"desktop_3\": \"desktop_3\"; expected a column of the "
      "survey: the id or the text of a question ('gpudays survey --template' prints all)");
}

/* All that is wrong, in the order of the file; beyond the bound only counted. */
static void test_many_problems(void **state) {
  (void)state;
  struct gd_survey survey;
  struct gd_error err;
  struct gd_strbuf text = {0};
  gd_strbuf_append(&text, REQUIRED "\n" GOOD "\n");
  for (int i = 0; i < GD_SURVEY_PROBLEMS; i++)
    gd_strbuf_append(&text, "Postdoc,,9,Not sure,Not sure,Ampere\n");
  assert_int_equal(parse(&survey, text.text, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "line 3, column \"q4_use\": \"\""));
  assert_non_null(strstr(err.text, " (and 199 more problems)"));
  assert_int_equal(survey.all_problems, 2 * GD_SURVEY_PROBLEMS);
  assert_int_equal(survey.n_problems, GD_SURVEY_PROBLEMS);
  assert_int_equal(survey.problems[1].line, 3);
  assert_string_equal(survey.problems[1].column, "q5_satisfaction");
  assert_string_equal(survey.problems[1].found, "9");
  assert_int_equal(survey.problems[2].line, 4);
  gd_survey_deinit(&survey);
  gd_strbuf_deinit(&text);
}

/* --- access, the paper, figures ------------------------------------------------------------ */

static void test_access(void **state) {
  (void)state;
  struct gd_survey survey;
  struct gd_error err = {0};
  const struct gd_survey_access *access;
  int count;
  parse_good(&survey, REQUIRED "\n" GOOD "\n"
                               "Postdoc,Inference,3,Ampere; Turing,Other: a wall,None available\n"
                               "Postdoc,Inference,3,Not sure,Not sure,Not sure\n");
  assert_int_equal(gd_survey_count_access(&survey, &access, &count, &err), GD_OK);
  assert_int_equal(count, 3);
  const int expected[3][3] = {{1, 0, 2}, {1, 1, 1}, {1, 1, 1}};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(access[i].answered, 3);
    assert_int_equal(access[i].have, expected[i][0]);
    assert_int_equal(access[i].none, expected[i][1]);
    assert_int_equal(access[i].unsure, expected[i][2]);
  }
  assert_string_equal(access[2].question->class_name, "Data Center");
  gd_survey_deinit(&survey);
}

/* Shares of the paper's statements are counted from the answers here, and only from them. */
static void test_statements(void **state) {
  (void)state;
  struct gd_survey survey;
  struct gd_error err = {0};
  const struct gd_survey_comparison *compared;
  int count, respondents;
  parse_good(&survey, REQUIRED ",q16_gpu_links,q17_network\n" GOOD
                               ",NVLink,Ethernet (10 Gbps); Infiniband HDR\n" GOOD
                               ",No,Ethernet (1 Gbps); Ethernet (10 Gbps)\n" GOOD ",Not sure,\n");
  assert_int_equal(gd_survey_compare(&survey, &compared, &count, &respondents, &err), GD_OK);
  assert_int_equal(count, survey.schema.n_statements);
  assert_int_equal(respondents, 50);
  for (int i = 0; i < count; i++) {
    const struct gd_survey_comparison *b = &compared[i];
    if (strcmp(b->id, "survey_gpu_links") == 0) {
      assert_true(b->paper_percent == 70 && b->here.count == 1 && b->answered == 3);
    } else if (strcmp(b->id, "survey_ethernet") == 0) {
      assert_true(b->paper_percent == 33 && b->here.count == 2 && b->answered == 2);
    } else if (strcmp(b->id, "survey_infiniband") == 0) {
      assert_true(b->paper_percent == 24 && b->here.count == 1 && b->answered == 2);
    } else if (strcmp(b->id, "survey_satisfaction_low") == 0) {
      assert_true(b->paper_percent == 66 && b->here.count == 3 && b->answered == 3);
    }
  }
  gd_survey_deinit(&survey);
}

static const struct gd_plot *find_plot(const struct gd_survey_figure *figures, int count,
                                       const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(figures[i].name, name) == 0)
      return &figures[i].plot;
  fail_msg("no %s", name);
  return NULL;
}

static void test_figures(void **state) {
  (void)state;
  struct gd_survey survey;
  struct gd_error err = {0};
  const struct gd_survey_figure *figures;
  int count;
  parse_good(&survey, REQUIRED ",q15_datacenter_time [1 GPU],q15_datacenter_time [4 GPUs]\n" GOOD
                               ",Weeks,Days\n" GOOD ",Weeks,N/A\n" GOOD ",,Days\n");
  assert_int_equal(gd_survey_plots(&survey, &figures, &count, &err), GD_OK);
  assert_int_equal(count, 17); /* 16 questions have one, and the classes */
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++)
      assert_string_not_equal(figures[i].name, figures[j].name);
  const struct gd_plot *plot = find_plot(figures, count, "figure-1");
  assert_int_equal(plot->kind, GD_PLOT_STACKED);
  assert_int_equal(plot->n_categories, 7);
  assert_int_equal(plot->n_series, 5); /* N/A is the rest of n */
  assert_string_equal(plot->categories[2], "4 GPUs");
  assert_string_equal(plot->series[0].name, "Hours");
  assert_string_equal(plot->series[4].name, "Indefinitely");
  assert_true(plot->series[2].y[0] == 2); /* weeks, 1 GPU */
  assert_true(plot->series[1].y[2] == 2); /* days, 4 GPUs */
  assert_true(plot->series[0].y[2] == 0 && plot->series[1].y[6] == 0);
  assert_string_equal(plot->note,
                      "n = 2 / 0 / 3 / 0 / 0 / 0 / 0 of 3 respondents, by bar; the rest "
                      "of n cannot use so many");
  assert_null(strstr(plot->title, "synthetic"));
  plot = find_plot(figures, count, "figure-8-satisfaction");
  assert_int_equal(plot->kind, GD_PLOT_BARS);
  assert_int_equal(plot->n_categories, 5);
  assert_true(plot->series[0].y[2] == 3 && plot->series[0].count == 5);
  plot = find_plot(figures, count, "figure-8-classes");
  assert_true(plot->series[0].y[2] == 3 && plot->series[1].y[1] == 3 && plot->series[2].y[0] == 3);
  gd_survey_deinit(&survey);
}

/* --- synthetic answers --------------------------------------------------------------------- */

static void make_synthetic(struct gd_strbuf *text, int respondents, uint64_t seed) {
  struct gd_survey_schema schema;
  struct gd_error err = {0};
  text->length = 0;
  assert_int_equal(gd_survey_schema_load(&schema, &err), GD_OK);
  assert_int_equal(gd_survey_synthetic(&schema, respondents, seed, text, &err), GD_OK);
  gd_survey_schema_deinit(&schema);
}

static void test_synthetic(void **state) {
  (void)state;
  struct gd_survey survey;
  struct gd_strbuf text = {0}, again = {0};
  struct gd_error err = {0};
  const struct gd_survey_figure *figures;
  int count;
  make_synthetic(&text, 300, 7);
  make_synthetic(&again, 300, 7);
  assert_string_equal(text.text, again.text);
  make_synthetic(&again, 300, 8);
  assert_string_not_equal(text.text, again.text);
  for (uint64_t seed = 0; seed < 20; seed++) { /* all pass their own check */
    make_synthetic(&again, 50, seed);
    parse_good(&survey, again.text);
    assert_int_equal(survey.respondents, 50);
    assert_int_equal(survey.synthetic, 50);
    gd_survey_deinit(&survey);
  }
  parse_good(&survey, text.text);
  assert_string_equal(gd_survey_warning(&survey), "synthetic answers, not a survey of people");
  assert_int_equal(gd_survey_plots(&survey, &figures, &count, &err), GD_OK);
  for (int i = 0; i < count; i++) {
    assert_non_null(strstr(figures[i].plot.title, "synthetic"));
    assert_non_null(strstr(figures[i].plot.note, "synthetic"));
    assert_non_null(strstr(figures[i].plot.note, "n = "));
  }
  /* More GPUs are never lent for longer; every answer of Figure 1 occurs. */
  const struct gd_survey_table *tables = tabulate(&survey);
  const struct gd_survey_question *grid =
      find(&survey, tables, "q15_datacenter_time", "1 GPU")->question;
  for (int r = 0; r < survey.respondents; r++) {
    const struct gd_survey_cell *cells =
        &survey.cells[r * survey.schema.columns + grid->first_column];
    for (int row = 1; row < grid->n_rows; row++)
      assert_true(cells[row].chosen <= cells[row - 1].chosen);
  }
  for (int i = 0; i < grid->n_answers; i++)
    assert_true(tables[grid->first_column].counts[i].count > 0);
  gd_survey_deinit(&survey);
  gd_strbuf_deinit(&text);
  gd_strbuf_deinit(&again);
}

static void test_some_synthetic(void **state) {
  (void)state;
  struct gd_survey survey;
  parse_good(&survey, "Synthetic," REQUIRED "\nYes," GOOD "\nno," GOOD "\n," GOOD "\n");
  assert_int_equal(survey.synthetic, 1);
  assert_string_equal(gd_survey_warning(&survey), "1 of 3 answers are synthetic, not of people");
  gd_survey_deinit(&survey);
}

/* --- memory -------------------------------------------------------------------------------- */

static enum gd_status all_of_it(void *context, struct gd_error *err) {
  struct gd_survey survey;
  const struct gd_survey_figure *figures;
  const struct gd_survey_comparison *compared;
  int count, respondents;
  enum gd_status status = gd_survey_parse(&survey, "a.csv", context, (int64_t)strlen(context), err);
  if (status == GD_OK)
    status = gd_survey_plots(&survey, &figures, &count, err);
  if (status == GD_OK)
    status = gd_survey_compare(&survey, &compared, &count, &respondents, err);
  gd_survey_deinit(&survey);
  return status;
}

static enum gd_status invent(void *context, struct gd_error *err) {
  struct gd_survey_schema schema;
  struct gd_strbuf text = {0};
  (void)context;
  enum gd_status status = gd_survey_schema_load(&schema, err);
  if (status == GD_OK)
    status = gd_survey_synthetic(&schema, 3, 1, &text, err);
  gd_survey_schema_deinit(&schema);
  gd_strbuf_deinit(&text);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  char good[] = "synthetic," REQUIRED "\nyes," GOOD "\nyes,Other: a,Other: b; Other: c,1,Not sure,"
                "Not sure,Not sure\n";
  char bad[] = REQUIRED "\n" GOOD "\nPostdco,Inference,9,,Not sure,Ampere\n";
  assert_int_equal(fault_sweep(all_of_it, good), GD_OK);
  assert_int_equal(fault_sweep(all_of_it, bad), GD_BAD_INPUT);
  assert_int_equal(fault_sweep(invent, NULL), GD_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_schema),          cmocka_unit_test(test_template),
      cmocka_unit_test(test_counts),          cmocka_unit_test(test_interval),
      cmocka_unit_test(test_forms),           cmocka_unit_test(test_cells_refused),
      cmocka_unit_test(test_columns_refused), cmocka_unit_test(test_columns_of_the_paper),
      cmocka_unit_test(test_many_problems),   cmocka_unit_test(test_access),
      cmocka_unit_test(test_statements),      cmocka_unit_test(test_figures),
      cmocka_unit_test(test_synthetic),       cmocka_unit_test(test_some_synthetic),
      cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
