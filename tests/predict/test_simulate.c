/*
 * The predicted clock on graphs made by hand: GEMMs at a known rate, copies hidden as far as
 * what reads them allows, collectives by alpha and beta, and faster hardware that is never slower.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "pass/pass.h"
#include "predict/interval.h"
#include "predict/predict.h"
#include "support/scratch.h"

/* A device whose every figure is round: 1e12 FLOP/s at half of the peak, 1e9 bytes/s of link. */
static const char device[] =
    "{\"format\":1,\"device\":\"round\",\"backend\":\"cuda\",\"multiprocessors\":0,\"threads\":1,"
    "\"cpus\":1,\"busy_share\":0,"
    "\"peaks\":{\"fp32\":2e12,\"tf32\":0,\"fp16\":0,\"bf16\":4e12},\"memory_bytes_per_s\":1e11,"
    "\"op_s\":0,\"host_bytes_per_s\":1e10,\"async_speed\":1,"
    "\"host_link\":{\"bytes_per_s\":1e9,\"latency_s\":0},"
    "\"peer_link\":{\"bytes_per_s\":1e9,\"latency_s\":1e-3},\"peer_source\":\"test\","
    "\"rates\":[{\"op\":\"matmul\",\"unit\":\"fp32\",\"flops_per_s\":1e12},"
    "{\"op\":\"add\",\"unit\":\"fp32\",\"bytes_per_s\":1e11}]}";

static void parse_rates(struct gd_rates *rates) {
  struct gd_json json = {0};
  struct gd_error err = {0};
  *rates = (struct gd_rates){0};
  assert_int_equal(gd_json_parse(&json, "device", device, (int64_t)strlen(device), &err), GD_OK);
  if (gd_rates_parse(rates, &json, &err) != GD_OK)
    fail_msg("%s", err.text);
  gd_json_deinit(&json);
}

static void assert_near(double value, double expected) {
  if (fabs(value - expected) > 1e-9 + 1e-6 * fabs(expected))
    fail_msg("%.12g instead of %.12g", value, expected);
}

static const struct gd_caps caps = {
    .backend = "cpu", .alignment_bytes = 64, .dtype = {[GD_DTYPE_F32] = true}};

/* Plans what was built and simulates its pass program. */
static void simulate(struct gd_graph *graph, const struct gd_rates *rates,
                     struct gd_simulated *out) {
  struct gd_plan plan = {0};
  struct gd_error err = {0};
  if (gd_graph_check(graph, &err) != GD_OK || gd_plan_make(graph, &caps, &plan, &err) != GD_OK ||
      gd_simulate(&plan, GD_PROGRAM_MICRO_STEP, rates, out, &err) != GD_OK)
    fail_msg("%s", err.text);
  gd_plan_deinit(&plan);
}

static gd_tensor_id leaf(struct gd_graph *graph, const char *name, int64_t rows, int64_t columns) {
  const int64_t dims[2] = {rows, columns};
  return gd_graph_leaf(graph, GD_ROLE_INPUT, name, GD_DTYPE_F32, 2, dims);
}

static gd_tensor_id gemm(struct gd_graph *graph, gd_tensor_id a, gd_tensor_id b) {
  return gd_matmul(graph, a, b, GD_NONE,
                   (struct gd_attr_matmul){.alpha = 1, .out_dtype = GD_DTYPE_COUNT});
}

static void gemms_take_their_flops(void **state) {
  struct gd_graph graph = {0};
  struct gd_rates rates;
  struct gd_simulated out;
  (void)state;
  parse_rates(&rates);
  gd_graph_init(&graph);
  gemm(&graph, leaf(&graph, "a", 1000, 2000), leaf(&graph, "b", 2000, 3000));
  simulate(&graph, &rates, &out);
  assert_near(out.seconds, 2.0 * 1000 * 2000 * 3000 / 1e12);
  assert_near(out.main_s, out.seconds);
  assert_int_equal(out.n_rows, 1);
  assert_int_equal(out.rows[0].kind, GD_OP_matmul);
  assert_near(out.rows[0].flops, 12e9);
  gd_graph_deinit(&graph);
  gd_rates_deinit(&rates);
}

/* A copy from host memory (1 ms), then GEMMs (2 ms each), the copy read at a given place. */
static double with_copy(const struct gd_rates *rates, int reads_at) {
  struct gd_graph graph = {0};
  struct gd_simulated out;
  const int64_t n = 1000;
  gd_graph_init(&graph);
  gd_tensor_id far = leaf(&graph, "far", 250, n); /* 1e6 bytes: 1 ms of the link */
  graph.tensors[far].space = GD_SPACE_HOST;
  gd_tensor_id w = leaf(&graph, "w", n, n), x = leaf(&graph, "x", n, n);
  gd_tensor_id near = gd_transfer(&graph, far, GD_SPACE_DEVICE);
  for (int i = 0; i < 2; i++) {
    if (i == reads_at)
      gd_add(&graph, near, near); /* 3e6 bytes at 1e11/s: 0.03 ms */
    x = gemm(&graph, x, w);
  }
  simulate(&graph, rates, &out);
  assert_near(out.async_s, 1e6 / rates->host_link.bytes_per_s);
  gd_graph_deinit(&graph);
  return out.seconds;
}

static void copies_hide_as_far_as_they_may(void **state) {
  struct gd_rates rates;
  (void)state;
  parse_rates(&rates);
  /* Read at once, all of the copy shows; read after a GEMM that takes longer, none of it. */
  assert_near(with_copy(&rates, 0), 1e-3 + 2 * 2e-3 + 3e-5);
  assert_near(with_copy(&rates, 1), 2 * 2e-3 + 3e-5);
  assert_near(with_copy(&rates, 2), 2 * 2e-3); /* read by nobody: it ends before the GEMMs do */
  /* A slower link shows by what the GEMM does not cover. */
  rates.host_link.bytes_per_s = 1e6 / 5e-3;
  assert_near(with_copy(&rates, 1), 5e-3 + 3e-5 + 2e-3);
  gd_rates_deinit(&rates);
}

/* While both run, a machine without a core to spare slows the computation. */
static void asynchronous_copies_take_their_share(void **state) {
  struct gd_rates rates;
  (void)state;
  parse_rates(&rates);
  rates.async_speed = 0.5;
  /* 1 ms of copy and 1 ms of a GEMM in 2 ms, then 1 ms of the GEMM and the rest. */
  assert_near(with_copy(&rates, 1), 2e-3 + 1e-3 + 3e-5 + 2e-3);
  gd_rates_deinit(&rates);
}

static double collective(const struct gd_rates *rates, enum gd_op_kind kind, int64_t elements,
                         int ranks) {
  struct gd_graph graph = {0};
  struct gd_simulated out;
  gd_graph_init(&graph);
  gd_tensor_id flat = gd_graph_leaf(&graph, GD_ROLE_GRAD, "flat", GD_DTYPE_F32, 1, &elements);
  union gd_attr attr = {.ranks = {.rank = 0, .ranks = ranks}};
  gd_graph_op(&graph, kind, &attr, 1, &flat);
  simulate(&graph, rates, &out);
  gd_graph_deinit(&graph);
  return out.seconds;
}

static void collectives_are_alpha_and_beta(void **state) {
  struct gd_rates rates;
  (void)state;
  parse_rates(&rates);
  /* 4e6 bytes over 4 ranks: each sends three quarters, 1e9 bytes/s, 1 ms a hop. */
  assert_near(collective(&rates, GD_OP_reduce_scatter, 1000000, 4), 3e-3 + 3e-3);
  assert_near(collective(&rates, GD_OP_all_gather, 1000000, 4), 3e-3 + 3e-3);
  assert_near(collective(&rates, GD_OP_all_reduce, 1000000, 4), 2 * (3e-3 + 3e-3));
  assert_near(collective(&rates, GD_OP_all_reduce, 1000000, 2), 2 * (2e-3 + 1e-3));
  gd_rates_deinit(&rates);
}

/* A calibration is worth the worst error of its class of points, and on a CPU no less than what
   others had of it. The check that ends it validates a CPU, and never what is offloaded. */
static void load_widens_intervals(void **state) {
  (void)state;
  static const struct {
    int checked, multiprocessors;
    double worst, busy;
    enum gd_point_class of;
    int trials;
    double trials_worst;
    int cpus;
    double error;
    bool validated;
  } cases[] = {
      {6, 0, 0.04, 0.01, GD_POINT_FREE_LUNCH, 0, 0, 16, 0.10, true},
      {6, 0, 0.25, 0.01, GD_POINT_NAIVE, 0, 0, 16, 0.25, true},
      {6, 0, 0.04, 0.63, GD_POINT_NAIVE, 0, 0, 16, 0.63, false},
      {6, 0, 0.75, 0.63, GD_POINT_NAIVE, 0, 0, 16, 0.75, false},
      {0, 0, 0, 0.01, GD_POINT_NAIVE, 0, 0, 16, GD_PREDICT_UNVALIDATED, false},
      {6, 0, 0.04, -1, GD_POINT_NAIVE, 0, 0, 16, 0.10, true},
      {6, 0, 0.04, 0.01, GD_POINT_OFFLOAD, 0, 0, 16, GD_PREDICT_UNVALIDATED, false},
      {6, 0, 0.04, 0.01, GD_POINT_OFFLOAD, 3, 0.21, 2, 0.21, true},
      {6, 132, 0.04, 0.63, GD_POINT_NAIVE, 0, 0, 16, GD_PREDICT_UNVALIDATED, false},
      {6, 132, 0.20, 0.63, GD_POINT_NAIVE, 8, 0.35, 4, 0.35, true},
      {6, 132, 0.20, 0.63, GD_POINT_NAIVE, 8, 0.05, 16, 0.20, true},
      {6, 132, 0.04, 0.63, GD_POINT_OFFLOAD, 8, 0.30, 16, 0.30, true},
      {6, 132, 0.04, 0.63, GD_POINT_OFFLOAD, 8, 0.30, 4, GD_PREDICT_UNVALIDATED, false},
      {6, 132, 0.04, 0.63, GD_POINT_OFFLOAD, 8, 0.47, 4, 0.47, false},
      {6, 132, 0.04, 0.63, GD_POINT_OTHER, 0, 0, 16, GD_PREDICT_UNVALIDATED, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    bool validated;
    struct gd_rates rates = {.checked_trials = cases[i].checked,
                             .multiprocessors = cases[i].multiprocessors,
                             .worst_error = cases[i].worst,
                             .cpus = cases[i].cpus,
                             .busy_share = cases[i].busy};
    rates.errors[cases[i].of] = (struct gd_trial_errors){.trials = cases[i].trials,
                                                         .worst_error = cases[i].trials_worst,
                                                         .cpus_least = 16,
                                                         .cpus_most = 16};
    assert_near(gd_calibration_error(&rates, cases[i].of, &validated), cases[i].error);
    assert_int_equal(validated, cases[i].validated);
  }
}

/* Errors that are none are refused with their name. */
/* 90 % of one more draw: Student's, wider for fewer, and back. */
static void intervals_are_students(void **state) {
  char text[GD_INTERVAL_TEXT];
  (void)state;
  assert_near(gd_interval_half(0.01, 9), 1.86 * 0.1 * sqrt(1 + 1.0 / 9));
  assert_near(gd_interval_half(0.01, 1), 6.31 * 0.1 * sqrt(2));
  for (int draws = 1; draws < 40; draws++)
    assert_true(gd_interval_half(0.01, draws) > gd_interval_half(0.01, draws + 1));
  assert_near(gd_interval_half_of(gd_interval_error(0.3)), 0.3);
  assert_string_equal(gd_interval_say(0.4, text), "x0.60 to x1.67");
  /* What trials taught sets the interval of their class, whatever the worst of them was. */
  struct gd_rates rates = {.multiprocessors = 132,
                           .busy_share = 0,
                           .cpus = 16,
                           .learned_trials = 29,
                           .n_without = 9,
                           .learned_square = 0.0064,
                           .errors[GD_POINT_NAIVE] = {7, 0.04, 0.5, 16, 16}};
  bool validated;
  assert_near(gd_calibration_error(&rates, GD_POINT_NAIVE, &validated),
              gd_interval_error(gd_interval_half(0.0064, 9)));
  assert_true(validated);
  /* Without trials of its own: those of another GPU, to which calibrations alone were compared. */
  rates = (struct gd_rates){.multiprocessors = 132, .others_square = 0.0144, .others_models = 9};
  assert_near(gd_calibration_error(&rates, GD_POINT_FREE_LUNCH, &validated),
              gd_interval_error(gd_interval_half(0.0144, 9)));
  assert_false(validated);
  assert_near(gd_calibration_error(&rates, GD_POINT_OFFLOAD, &validated), GD_PREDICT_UNVALIDATED);
}

static void bad_errors_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *errors, *said; /* said NULL: good */
  } cases[] = {
      {"{\"naive\":{\"trials\":7,\"median_error\":0.2,\"worst_error\":0.3,\"cpus\":[4,16]}}", NULL},
      {"{}", NULL},
      {"[]", "errors"},
      {"{\"naive\":3}", "errors"},
      {"{\"naive\":{\"trials\":0,\"median_error\":0,\"worst_error\":0,\"cpus\":[1,1]}}", "trials"},
      {"{\"naive\":{\"trials\":1,\"median_error\":0,\"worst_error\":-1,\"cpus\":[1,1]}}",
       "worst_error"},
      {"{\"naive\":{\"trials\":1,\"median_error\":0,\"worst_error\":0}}", "cpus"},
      {"{\"naive\":{\"trials\":1,\"median_error\":0,\"worst_error\":0,\"cpus\":[9,1]}}", "cpus"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[sizeof device + 256];
    struct gd_rates rates = {0};
    struct gd_json json = {0};
    struct gd_error err = {0};
    int length = snprintf(text, sizeof text, "{\"errors\":%s,%s", cases[i].errors, device + 1);
    assert_int_equal(gd_json_parse(&json, "device", text, length, &err), GD_OK);
    assert_int_equal(gd_rates_parse(&rates, &json, &err), cases[i].said ? GD_BAD_INPUT : GD_OK);
    if (cases[i].said)
      assert_non_null(strstr(err.text, cases[i].said));
    if (i == 0) {
      assert_int_equal(rates.errors[GD_POINT_NAIVE].trials, 7);
      assert_int_equal(rates.errors[GD_POINT_NAIVE].cpus_most, 16);
      assert_near(rates.errors[GD_POINT_NAIVE].worst_error, 0.3);
    }
    gd_rates_deinit(&rates);
    gd_json_deinit(&json);
  }
}

static void methods_have_classes(void **state) {
  (void)state;
  static const struct {
    const char *method;
    enum gd_point_class of;
  } cases[] = {{"naive", GD_POINT_NAIVE},
               {"naive+ckpt", GD_POINT_NAIVE},
               {"naive+zero1+offload", GD_POINT_OTHER},
               {"kernels", GD_POINT_OTHER},
               {"free-lunch", GD_POINT_FREE_LUNCH},
               {"free-lunch+ckpt", GD_POINT_FREE_LUNCH},
               {"free-lunch+ckpt+fsdp3+offload", GD_POINT_OFFLOAD}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_method method;
    struct gd_error err = {0};
    assert_int_equal(gd_method_parse(cases[i].method, &method, &err), GD_OK);
    assert_int_equal(gd_point_class_of(&method), cases[i].of);
  }
}

/* --- topologies ---------------------------------------------------------------------------- */

/* What collectives took on one machine says nothing of another's links. */
static void links_of_others_stay_there(void **state) {
  struct gd_rates rates;
  struct gd_hw hw = {0};
  struct gd_gpu_fit fit;
  struct gd_target target;
  struct gd_error err = {0};
  (void)state;
  gd_gpu_fit_start(&fit);
  parse_rates(&rates);
  const struct gd_work slow = {.kind = GD_OP_all_reduce, .sizes = {4e6, 4, 1, 1}, .bytes = 4e6};
  assert_int_equal(gd_rates_add(&rates, &slow, 10, &err), GD_OK);
  gd_rates_sort(&rates);
  assert_near(gd_rates_seconds(&rates, &slow), 10);
  assert_int_equal(gd_hw_load(&hw, &err), GD_OK);
  assert_int_equal(gd_hw_target(&hw, "h100", 4, 0, NULL, NULL, &target, &err), GD_OK);
  gd_rates_retarget(&rates, &target, &fit);
  assert_near(gd_rates_seconds(&rates, &slow), gd_rates_bound(&rates, &slow));
  assert_true(gd_rates_seconds(&rates, &slow) < 1e-3);
  gd_hw_deinit(&hw);
  gd_rates_deinit(&rates);
}

/* A plan's collectives are those of the target's links, and its computation waits for the slowest.
 */
static void targets_bring_their_links(void **state) {
  struct gd_rates rates;
  struct gd_hw hw = {0};
  struct gd_gpu_fit fit;
  struct gd_target target;
  struct gd_error err = {0};
  struct gd_work work = {.kind = GD_OP_all_gather, .sizes = {4e8, 16, 1, 1}, .bytes = 4e8};
  (void)state;
  gd_gpu_fit_start(&fit);
  parse_rates(&rates);
  assert_int_equal(gd_hw_load(&hw, &err), GD_OK);
  assert_int_equal(gd_hw_target(&hw, "h100", 16, 0, NULL, NULL, &target, &err), GD_OK);
  gd_rates_retarget(&rates, &target, &fit);
  double cards = gd_rates_seconds(&rates, &work);
  assert_near(cards,
              gd_collective_seconds(&rates.fabric, GD_COLLECTIVE_ALL_GATHER, work.sizes[0], 1));
  assert_near(rates.slowest, gd_slowest_of(16));
  assert_int_equal(gd_hw_target(&hw, "h100", 16, 0, NULL, "infiniband-hdr", &target, &err), GD_OK);
  assert_true(target.cards_assumed);
  gd_rates_retarget(&rates, &target, &fit);
  assert_true(gd_rates_seconds(&rates, &work) > 1.8 * cards); /* as many cards of half the speed */
  assert_int_equal(gd_hw_target(&hw, "h100", 16, 0, NULL, "ethernet-400", &target, &err), GD_OK);
  gd_rates_retarget(&rates, &target, &fit);
  assert_true(gd_rates_seconds(&rates, &work) > 4 * cards); /* one of the same speed */
  work.sizes[1] = 8;                                        /* a node of it */
  assert_true(gd_rates_seconds(&rates, &work) < cards);
  gd_hw_deinit(&hw);
  gd_rates_deinit(&rates);
}

/* --- points -------------------------------------------------------------------------------- */

/* A vocabulary of 50,265 words keeps loads to one element, one of 50,250 to two, in 16 bits. */
static void odd_rows_take_longer(void **state) {
  static const struct {
    int64_t columns;
    int elements;
  } cases[] = {{50272, 8}, {50268, 4}, {50266, 2}, {50265, 1}};
  struct gd_rates rates = {.op_s = 0, .multiprocessors = 132, .compute_capability = 90};
  double before = 0;
  (void)state;
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    rates.flops[i] = i == GD_PEAK_FP32 ? 66.9e12 : 989e12;
  rates.memory_bytes_per_s = 4.8e12;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_graph graph;
    struct gd_work work;
    const int64_t x[2] = {65536, 1024}, w[2] = {cases[i].columns, 1024};
    gd_graph_init(&graph);
    gd_tensor_id left = gd_graph_leaf(&graph, GD_ROLE_INPUT, "x", GD_DTYPE_BF16, 2, x);
    gd_tensor_id right = gd_graph_leaf(&graph, GD_ROLE_INPUT, "w", GD_DTYPE_BF16, 2, w);
    gd_matmul(&graph, left, right, GD_NONE,
              (struct gd_attr_matmul){.trans_b = true, .alpha = 1, .out_dtype = GD_DTYPE_COUNT});
    gd_work_of(&graph, graph.n_ops - 1, 1, &work);
    assert_int_equal(gd_work_load_elements(&work), cases[i].elements);
    double flops = work.flops / gd_rates_bound(&rates, &work);
    assert_true(i == 0 || flops <= before);
    if (cases[i].elements == 1) /* results/cuda-notes.md */
      assert_true(flops > 0.8 * 139e12 && flops < 1.02 * 139e12);
    assert_true(gd_rates_is_arithmetic(&rates, &work));
    before = flops;
    gd_graph_deinit(&graph);
  }
}

static void near_points_decide(void **state) {
  struct gd_rates rates;
  struct gd_error err = {0};
  struct gd_work small = {.kind = GD_OP_matmul, .unit = GD_PEAK_FP32, .sizes = {1, 64, 64, 64}};
  struct gd_work large = {
      .kind = GD_OP_matmul, .unit = GD_PEAK_FP32, .sizes = {1, 4096, 4096, 4096}};
  (void)state;
  parse_rates(&rates);
  small.flops = 2.0 * 64 * 64 * 64;
  large.flops = 2.0 * 4096 * 4096 * 4096;
  assert_int_equal(gd_rates_add(&rates, &small, small.flops / 1e11, &err), GD_OK);
  assert_int_equal(gd_rates_add(&rates, &large, large.flops / 1.8e12, &err), GD_OK);
  gd_rates_sort(&rates);
  assert_true(fabs(gd_rates_seconds(&rates, &small) * 1e11 / small.flops - 1) < 0.01);
  assert_true(fabs(gd_rates_seconds(&rates, &large) * 1.8e12 / large.flops - 1) < 0.01);
  struct gd_work middle = large;
  middle.sizes[1] = middle.sizes[2] = middle.sizes[3] = 512;
  middle.flops = 2.0 * 512 * 512 * 512;
  double rate = middle.flops / gd_rates_seconds(&rates, &middle);
  assert_true(rate > 1e11 && rate < 1.8e12);
  gd_rates_deinit(&rates);
}

static void files_keep_every_point(void **state) {
  struct gd_rates rates, again = {0};
  struct gd_error err = {0};
  struct gd_work work = {.kind = GD_OP_attention,
                         .unit = GD_PEAK_BF16,
                         .variant = 1,
                         .sizes = {8, 2049, 64, 1},
                         .flops = 3e9,
                         .bytes = 4e6};
  (void)state;
  parse_rates(&rates);
  assert_int_equal(gd_rates_add(&rates, &work, 0.0125, &err), GD_OK);
  gd_rates_sort(&rates);
  if (gd_rates_save(&rates, scratch_path("rates.json"), &err) != GD_OK ||
      gd_rates_load(&again, scratch_path("rates.json"), &err) != GD_OK)
    fail_msg("%s", err.text);
  assert_near(gd_rates_seconds(&again, &work), 0.0125);
  assert_near(gd_rates_seconds(&again, &work), gd_rates_seconds(&rates, &work));
  gd_rates_deinit(&again);
  gd_rates_deinit(&rates);
}

static void broken_files_are_named(void **state) {
  static const char *const broken[][2] = {
      {"{\"format\":2}", "format"},
      {"{\"format\":1,\"peaks\":3}", "peaks"},
      {"{\"format\":1,\"peaks\":{\"fp32\":-1}}", "fp32"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    struct gd_rates rates = {0};
    struct gd_error err = {0};
    scratch_write_text("broken.json", broken[i][0]);
    assert_int_equal(gd_rates_load(&rates, scratch_path("broken.json"), &err), GD_BAD_INPUT);
    assert_non_null(strstr(err.text, broken[i][1]));
    gd_rates_deinit(&rates);
  }
}

/* --- whole models -------------------------------------------------------------------------- */

static double step_of(const struct gd_rates *rates, const char *method) {
  struct gd_model model;
  struct gd_error err = {0};
  struct gd_graph graph = {0};
  struct gd_plan plan = {0};
  struct gd_prediction prediction;
  struct gd_predictor predictor = {.rates = *rates, .of[GD_POINT_NAIVE].error = 0.4};
  struct gd_setup setup = {.model = &model, .precision = GD_PRECISION_FP32, .micro_batch = 2};
  assert_int_equal(gd_model_load("pythia-14m", &model, &err), GD_OK);
  model.recipe.seq = 128;
  assert_int_equal(gd_method_parse(method, &setup.method, &err), GD_OK);
  if (gd_pipeline_build(&setup, &graph, &err) != GD_OK ||
      gd_plan_make(&graph, &caps, &plan, &err) != GD_OK ||
      gd_predict(&predictor, &plan, NULL,
                 &(struct gd_step_shape){.accumulation = 8, .steps = 864000}, &prediction,
                 &err) != GD_OK)
    fail_msg("%s: %s", method, err.text);
  assert_near(prediction.step_s, 8 * prediction.micro_step_s + prediction.update_s);
  assert_near(prediction.days, 10 * prediction.step_s);
  assert_true(prediction.days_low <= 0.6 * prediction.days + 1e-12);
  assert_true(prediction.days_high >= 1.4 * prediction.days);
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
  return prediction.step_s;
}

static void better_hardware_is_never_slower(void **state) {
  struct gd_rates rates;
  (void)state;
  parse_rates(&rates);
  double plain = step_of(&rates, "kernels"), offloaded = step_of(&rates, "kernels+zero1+offload");
  assert_true(plain < step_of(&rates, "kernels+ckpt"));
  assert_true(plain < offloaded);
  struct gd_rates better = rates;
  better.flops[GD_PEAK_FP32] *= 2;
  assert_true(step_of(&better, "kernels") < plain);
  better = rates;
  better.memory_bytes_per_s *= 2;
  assert_true(step_of(&better, "kernels") < plain);
  better = rates;
  better.host_link.bytes_per_s *= 2;
  assert_near(step_of(&better, "kernels"), plain);
  assert_true(step_of(&better, "kernels+zero1+offload") < offloaded);
  gd_rates_deinit(&rates);
}

/* An all_reduce over four ranks and a link of 2 GB/s, 40 us. */
static struct gd_work reduced(double bytes, double *seconds) {
  *seconds = 2 * 0.75 * bytes / 2e9 + 2 * 3 * 40e-6;
  return (struct gd_work){.kind = GD_OP_all_reduce, .sizes = {bytes, 4, 1, 1}, .bytes = 2 * bytes};
}

static void add_point(struct gd_rates *rates, const struct gd_work *work, double seconds) {
  struct gd_error err = {0};
  if (gd_rates_add(rates, work, seconds, &err) != GD_OK)
    fail_msg("%s", err.text);
}

/* The roofline's link is far off at first, so that latency and bandwidth contradict each other. */
static void links_are_fitted(void **state) {
  static const double sizes[] = {65536, 1 << 20, 8 << 20};
  (void)state;
  for (int disturbed = 0; disturbed < 2; disturbed++) {
    struct gd_rates rates;
    struct gd_error err = {0};
    parse_rates(&rates);
    rates.peer_link = (struct gd_link){2e10, 1e-6};
    for (int i = 0; i < 3; i++) {
      double seconds;
      struct gd_work work = reduced(sizes[i], &seconds);
      add_point(&rates, &work, i == 0 && disturbed ? 1 : seconds);
    }
    gd_rates_sort(&rates);
    assert_int_equal(gd_rates_drop_disturbed(&rates, &err), GD_OK);
    gd_rates_fit_links(&rates);
    assert_int_equal(rates.first[GD_OP_all_reduce + 1] - rates.first[GD_OP_all_reduce], 3);
    double seconds, larger;
    struct gd_work small = reduced(sizes[0], &seconds);
    reduced(sizes[1], &larger);
    if (disturbed) { /* as long as the next size, not a second */
      assert_true(gd_rates_seconds(&rates, &small) < 1.1 * larger);
    } else {
      assert_near(rates.peer_link.bytes_per_s / 2e9, 1);
      assert_near(rates.peer_link.latency_s, 40e-6);
      assert_near(gd_rates_seconds(&rates, &small), seconds);
    }
    gd_rates_deinit(&rates);
  }
}

/* One size says a rate and no latency; none leaves the link as it was. */
static void links_need_points(void **state) {
  struct gd_rates rates;
  double seconds;
  (void)state;
  parse_rates(&rates);
  gd_rates_fit_links(&rates);
  assert_near(rates.peer_link.latency_s, 1e-3);
  struct gd_work work = reduced(1 << 20, &seconds);
  add_point(&rates, &work, seconds);
  gd_rates_sort(&rates);
  gd_rates_fit_links(&rates);
  assert_near(rates.peer_link.latency_s, 0);
  assert_near(gd_rates_seconds(&rates, &work), seconds);
  gd_rates_deinit(&rates);
}

static struct gd_work moved(double elements) {
  return (struct gd_work){.kind = GD_OP_mul, .sizes = {elements, 1, 1, 1}, .bytes = 8 * elements};
}

static void neighbours_judge(void **state) {
  (void)state;
  for (int others = 1; others <= 2; others++) {
    struct gd_rates rates;
    struct gd_error err = {0};
    parse_rates(&rates);
    for (int i = 0; i <= others; i++) {
      struct gd_work work = moved(1e6 * (1 << i));
      add_point(&rates, &work, (i == 0 ? 10 : 1) * work.bytes / 1e11);
    }
    gd_rates_sort(&rates);
    assert_int_equal(gd_rates_drop_disturbed(&rates, &err), GD_OK);
    uint32_t kept = rates.first[GD_OP_mul + 1] - rates.first[GD_OP_mul];
    assert_int_equal(kept, 2); /* of two both, of three the two that agree */
    gd_rates_deinit(&rates);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gemms_take_their_flops),
      cmocka_unit_test(copies_hide_as_far_as_they_may),
      cmocka_unit_test(asynchronous_copies_take_their_share),
      cmocka_unit_test(collectives_are_alpha_and_beta),
      cmocka_unit_test(targets_bring_their_links),
      cmocka_unit_test(links_of_others_stay_there),
      cmocka_unit_test(links_are_fitted),
      cmocka_unit_test(links_need_points),
      cmocka_unit_test(neighbours_judge),
      cmocka_unit_test(load_widens_intervals),
      cmocka_unit_test(methods_have_classes),
      cmocka_unit_test(intervals_are_students),
      cmocka_unit_test(bad_errors_are_refused),
      cmocka_unit_test(odd_rows_take_longer),
      cmocka_unit_test(near_points_decide),
      cmocka_unit_test_setup_teardown(files_keep_every_point, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(broken_files_are_named, scratch_setup, scratch_teardown),
      cmocka_unit_test(better_hardware_is_never_slower),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
