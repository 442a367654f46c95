/*
 * The fused loss: found in every model, replaced, with the loss, gradients and FLOPs of the unfused
 * graph, and without its logits in the plan. With gradients added in place too.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/autodiff.h"
#include "pass/kernels.h"
#include "support/fault.h"
#include "support/graphs.h"
#include "support/small_run.h"

/* --- the pattern --------------------------------------------------------------------------- */

enum { LOGITS_READ = 1, WEIGHT_TRANSPOSED = 2, SCALED = 4, CAST = 8, RESHAPED = 16, BIAS = 32 };

/* The loss of x[2,3,4] against 7 classes, with what a model may do on the way. */
static void loss_graph(struct gd_graph *g, unsigned with) {
  gd_graph_init(g);
  g->labels = gd_graph_leaf(g, GD_ROLE_INPUT, "labels", GD_DTYPE_I32, 2, (int64_t[]){2, 3});
  g->loss_weight = gd_graph_leaf(g, GD_ROLE_INPUT, "weight", GD_DTYPE_F32, 1, (int64_t[]){1});
  gd_tensor_id x = gd_graph_param(g, "x", 3, (int64_t[]){2, 3, 4}, GD_INIT_NORMAL, 1);
  int64_t transposed[2] = {4, 7}, usual[2] = {7, 4};
  gd_tensor_id w =
      gd_graph_param(g, "w", 2, with & WEIGHT_TRANSPOSED ? transposed : usual, GD_INIT_NORMAL, 1);
  gd_tensor_id bias =
      with & BIAS ? gd_graph_param(g, "bias", 1, (int64_t[]){7}, GD_INIT_ZEROS, 0) : GD_NONE;
  if (with & RESHAPED)
    x = gd_reshape(g, x, 2, (int64_t[]){6, 4});
  gd_tensor_id logits = gd_matmul(g, x, w, bias,
                                  (struct gd_attr_matmul){.trans_b = !(with & WEIGHT_TRANSPOSED),
                                                          .alpha = with & SCALED ? 0.5f : 1,
                                                          .out_dtype = GD_DTYPE_COUNT});
  if (with & LOGITS_READ)
    gd_activate(g, logits, GD_ACTIVATION_TANH);
  if (with & CAST)
    logits = gd_cast(g, logits, GD_DTYPE_F32);
  if (with & RESHAPED)
    logits = gd_reshape(g, logits, 3, (int64_t[]){2, 3, 7});
  g->loss = gd_xent(g, logits, g->labels, g->loss_weight,
                    (struct gd_attr_xent){.ignore = -100, .shift = true});
}

static void test_pattern(void **state) {
  static const struct {
    unsigned with;
    int found;
  } cases[] = {{0, 1},
               {BIAS, 1},
               {CAST, 1},
               {RESHAPED, 1},
               {CAST | RESHAPED | BIAS, 1},
               {LOGITS_READ, 0},
               {WEIGHT_TRANSPOSED, 0},
               {SCALED, 0}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_graph graph;
    struct gd_error err = {0};
    loss_graph(&graph, cases[i].with);
    uint32_t n_before = graph.n_ops;
    if (gd_kernels_loss(&graph, &err) != GD_OK || gd_graph_verify(&graph, &err) != GD_OK)
      fail_msg("%s", err.text);
    assert_int_equal(graph_count_ops(&graph, GD_OP_linear_xent), cases[i].found);
    assert_int_equal(graph_count_ops(&graph, GD_OP_xent), !cases[i].found);
    if (!cases[i].found)
      assert_int_equal(graph.n_ops, n_before);
    assert_int_equal(graph.tensors[graph.loss].producer, graph.n_ops - 1);
    if (gd_autodiff(&graph, &err) != GD_OK || gd_graph_verify(&graph, &err) != GD_OK)
      fail_msg("%s", err.text);
    gd_graph_deinit(&graph);
  }
}

static void test_text(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  struct gd_setup setup = {.method = {.compile = true}};
  struct gd_pass_ctx ctx = {&setup, &err};
  struct gd_strbuf text = {0};
  (void)state;
  loss_graph(&graph, BIAS | RESHAPED);
  assert_int_equal(gd_kernels_loss(&graph, &err), GD_OK);
  assert_int_equal(gd_autodiff(&graph, &err), GD_OK);
  assert_int_equal(gd_pass_accumulate(&ctx, &graph), GD_OK);
  assert_int_equal(gd_graph_verify(&graph, &err), GD_OK);
  for (gd_op_id id = 0; id < graph.n_ops; id++)
    gd_op_print(&graph, id, &text);
  assert_string_equal(
      text.text,
      "-    fwd  %10 = reshape(x) : f32[6,4]\n"
      "-    fwd  %11, %12, %13, grad.w += %14, grad.bias += %15 = linear_xent(%10, w, labels, "
      "weight, loss_scale, bias) ignore=-100 shift : f32[1], f32[2,3], f32[6,4], f32[7,4], "
      "f32[7]\n"
      "-    bwd  %16 = reshape(%13) : f32[2,3,4]\n"
      "-    bwd  %17 = accumulate(grad.x, %16) : f32[2,3,4]\n"
      "-    bwd  %18 = accumulate(loss_sum, %11) : f32[1]\n");
  gd_strbuf_deinit(&text);
  gd_graph_deinit(&graph);
}

/* --- whole models -------------------------------------------------------------------------- */

struct bounds {
  double loss, gradient;
};

static void compare(const struct small_setup *plain_setup, struct bounds bounds) {
  const char *reference = plain_setup->reference, *name = "";
  struct small_setup setups[2] = {*plain_setup, *plain_setup};
  struct small_run plain, fused;
  small_start(&plain, plain_setup);
  setups[0].before = setups[1].before = gd_kernels_loss;
  setups[1].after = gd_pass_accumulate;
  double losses[2];
  for (int pass = 0; pass < 2; pass++)
    losses[pass] = small_pass(&plain);
  for (int i = 0; i < 2; i++) {
    small_start(&fused, &setups[i]);
    assert_int_equal(graph_count_ops(&fused.graph, GD_OP_linear_xent), 1);
    assert_int_equal(graph_count_ops(&fused.graph, GD_OP_xent) +
                         graph_count_ops(&fused.graph, GD_OP_xent_grad),
                     0);
    assert_true(fused.graph.model_flops == plain.graph.model_flops);
    for (int pass = 0; pass < 2; pass++) {
      double loss = small_pass(&fused);
      if (!(fabs(loss - losses[pass]) <= bounds.loss * losses[pass]))
        fail_msg("%s on %s: the loss is %.9g, not %.9g", reference, setups[i].backend, loss,
                 losses[pass]);
    }
    double worst = small_worst_gradient(&fused, &plain, &name);
    if (!(worst <= bounds.gradient))
      fail_msg("%s on %s: %s differs by %g", reference, setups[i].backend, name, worst);
    small_stop(&fused);
  }
  small_stop(&plain);
}

/* The same logits, the same gradient of them, the same dx: only dw is summed in another order. */
static void test_models_cpu(void **state) {
  (void)state;
  for (int i = 0; small_references[i]; i++) {
    struct small_setup setup = {.reference = small_references[i], .backend = "cpu"};
    compare(&setup, (struct bounds){1e-7, 1e-6});
    setup.precision = GD_PRECISION_BF16;
    compare(&setup, (struct bounds){1e-7, 1e-6});
  }
}

static void test_models_ref(void **state) {
  (void)state;
  for (int i = 0; small_references[i]; i++)
    for (int p = 0; p < 2; p++) {
      /* One image alone would overflow fp16 under the first loss scale. */
      bool images = strncmp(small_references[i], "vit", 3) == 0 ||
                    strncmp(small_references[i], "convnext", 8) == 0;
      enum gd_precision half = images ? GD_PRECISION_BF16 : GD_PRECISION_FP16;
      compare(&(struct small_setup){.reference = small_references[i],
                                    .backend = "ref",
                                    .precision = p ? half : GD_PRECISION_FP32,
                                    .micro_batch = 2,
                                    .seq = 7},
              (struct bounds){1e-7, 1e-6});
    }
}

/* No label counts: no loss, no gradient, and nothing that is not a number. */
static void test_all_ignored(void **state) {
  (void)state;
  static const char *const references[] = {"roberta-a", "neox-tied", "vit-a"};
  for (int i = 0; i < 3; i++)
    for (int ref = 0; ref < 2; ref++) {
      struct small_setup setup = {.reference = references[i],
                                  .backend = ref ? "ref" : "cpu",
                                  .all_ignored = true,
                                  .before = gd_kernels_loss};
      struct small_run fused, plain;
      small_start(&fused, &setup);
      setup.before = NULL;
      small_start(&plain, &setup);
      assert_true(small_pass(&fused) == 0 && small_pass(&plain) == 0);
      assert_true(small_worst_gradient(&fused, &plain, NULL) == 0);
      small_stop(&fused);
      small_stop(&plain);
    }
}

static void test_threads_change_nothing(void **state) {
  (void)state;
  for (int i = 0; small_references[i]; i++) {
    struct small_setup setup = {.reference = small_references[i],
                                .backend = "cpu",
                                .threads = 1,
                                .precision = GD_PRECISION_BF16,
                                .before = gd_kernels_loss,
                                .after = gd_pass_accumulate};
    struct small_run one, three;
    small_start(&one, &setup);
    setup.threads = 3;
    small_start(&three, &setup);
    assert_true(small_pass(&one) == small_pass(&three));
    assert_true(small_worst_gradient(&one, &three, NULL) == 0);
    small_stop(&one);
    small_stop(&three);
  }
}

/* Presets: the logits are gone from the plan, and what is there instead has a bound. */
static void test_plan(void **state) {
  static const char *const names[] = {"pythia-160m", "roberta-base", "mamba-1.4b"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct gd_plan plans[2];
    struct gd_graph graphs[2];
    struct gd_error err = {0};
    struct gd_caps caps;
    struct gd_model model;
    gd_backend_cpu.caps(&(struct gd_backend_options){.threads = 2}, &caps);
    if (gd_model_load(names[i], &model, &err) != GD_OK)
      fail_msg("%s", err.text);
    struct gd_setup setup = {.model = &model,
                             .precision = GD_PRECISION_BF16,
                             .micro_batch = 4,
                             .method = {.compile = true}};
    struct gd_pass_ctx ctx = {&setup, &err};
    for (int fused = 0; fused < 2; fused++) {
      struct gd_graph *g = &graphs[fused];
      gd_graph_init(g);
      model.family->build(&model, setup.micro_batch, g);
      assert_int_equal(gd_pass_precision(&ctx, g), GD_OK);
      assert_int_equal(gd_kernels_scan(g, &err), GD_OK); /* or its states hide the logits' bytes */
      if (fused)
        assert_int_equal(gd_kernels_loss(g, &err), GD_OK);
      assert_int_equal(gd_autodiff(g, &err), GD_OK);
      assert_int_equal(gd_pass_accumulate(&ctx, g), GD_OK);
      assert_int_equal(gd_graph_verify(g, &err), GD_OK);
      assert_int_equal(gd_plan_make(g, &caps, &plans[fused], &err), GD_OK);
    }
    assert_true(graphs[0].model_flops == graphs[1].model_flops);
    int64_t classes = model.family->classes(&model);
    int64_t rows = gd_tensor_elements(&graphs[1], graphs[1].labels);
    for (gd_tensor_id id = 0; id < graphs[1].n_tensors; id++) { /* no logits are left */
      const struct gd_tensor *t = &graphs[1].tensors[id];
      assert_true(t->producer == GD_NONE || t->alias_of != GD_NONE || t->rank == 0 ||
                  t->dims[t->rank - 1] != classes ||
                  gd_tensor_elements(&graphs[1], id) < rows * classes);
    }
    assert_true(plans[1].bytes[GD_CATEGORY_ACTIVATIONS] < plans[0].bytes[GD_CATEGORY_ACTIVATIONS]);
    int64_t more = plans[1].bytes[GD_CATEGORY_WORKSPACE] - plans[0].bytes[GD_CATEGORY_WORKSPACE];
    assert_true(more < 36 << 20);
    for (int fused = 0; fused < 2; fused++) {
      gd_plan_deinit(&plans[fused]);
      gd_graph_deinit(&graphs[fused]);
    }
  }
}

/* Of the presets only masked language models leave out rows on a GPU, trimmed or not. */
static void test_masked(void **state) {
  static const struct {
    const char *name;
    bool masked;
  } models[] = {
      {"pythia-160m", false}, {"roberta-base", true}, {"mamba-1.4b", false}, {"vit", false}};
  (void)state;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    for (int large = 0; large < 2; large++) {
      struct gd_error err = {0};
      struct gd_model model;
      struct gd_graph graph;
      struct gd_setup setup = {.method = {.kernels = true},
                               .loss_chunk_bytes = large ? 512 << 20 : 0};
      struct gd_pass_ctx ctx = {&setup, &err};
      if (gd_model_load(models[i].name, &model, &err) != GD_OK)
        fail_msg("%s", err.text);
      gd_graph_init(&graph);
      graph.trims = true;
      model.family->build(&model, 8, &graph);
      assert_int_equal(gd_pass_kernels(&ctx, &graph), GD_OK);
      const struct gd_op *op = &graph.ops[graph.tensors[graph.loss].producer];
      assert_int_equal(op->kind, GD_OP_linear_xent);
      bool gathers = gd_loss_gathers(&op->attr.xent, gd_tensor_elements(&graph, op->in[2]));
      assert_int_equal(gathers, !large || models[i].masked);
      if (models[i].masked) /* what a GPU counts before the program runs */
        assert_int_equal(gd_tensor_root(&graph, op->in[2], NULL), graph.labels);
      gd_graph_deinit(&graph);
    }
}

static enum gd_status fuse_and_fold(void *context, struct gd_error *err) {
  struct gd_graph graph;
  struct gd_setup setup = {.method = {.compile = true}};
  struct gd_pass_ctx ctx = {&setup, err};
  (void)context;
  loss_graph(&graph, BIAS | RESHAPED);
  enum gd_status status = gd_graph_check(&graph, err);
  if (status == GD_OK)
    status = gd_kernels_loss(&graph, err);
  if (status == GD_OK)
    status = gd_autodiff(&graph, err);
  if (status == GD_OK)
    status = gd_pass_accumulate(&ctx, &graph);
  gd_graph_deinit(&graph);
  return status;
}

static void test_out_of_memory(void **state) {
  (void)state;
  assert_int_equal(fault_sweep(fuse_and_fold, NULL), GD_OK);
}

static void test_chunk_rows(void **state) {
  const struct gd_attr_xent cpu = {0}, large = {.chunk_bytes = 256 << 20};
  (void)state;
  assert_int_equal(gd_loss_chunk_rows(&cpu, 2048, 50304, GD_DTYPE_BF16) % 16, 0);
  assert_true(gd_loss_chunk_rows(&cpu, 2048, 50304, GD_DTYPE_BF16) * 50304 * 2 <= 33 << 20);
  assert_true(gd_loss_chunk_rows(&cpu, 2048, 50304, GD_DTYPE_F32) * 50304 * 4 <= 33 << 20);
  assert_int_equal(gd_loss_chunk_rows(&cpu, 9, 50304, GD_DTYPE_BF16), 9);
  assert_int_equal(gd_loss_chunk_rows(&cpu, 2048, 10000000, GD_DTYPE_F32), 16);
  assert_int_equal(gd_loss_chunk_rows(&cpu, 0, 0, GD_DTYPE_F32), 0);
  assert_int_equal(gd_loss_chunk_rows(&large, 9000, 50304, GD_DTYPE_BF16), 2656);
  assert_int_equal(gd_loss_row_pitch(&cpu, 50257), 50257);
  assert_int_equal(gd_loss_row_pitch(&large, 50257), 50304);
  assert_false(gd_loss_pads(&cpu, 50257));
  assert_true(gd_loss_pads(&large, 50257));
  assert_false(gd_loss_pads(&large, 50280)); /* GEMMs over multiples of 8 are fast as they are */
}

/* Which losses leave out rows, and in chunks of what size a GPU does. */
static void test_gathered_rows(void **state) {
  const struct gd_attr_xent cpu = {.shift = true}, causal = {.chunk_bytes = 512 << 20};
  const struct gd_attr_xent masked = {.masked = true, .chunk_bytes = 512 << 20};
  const struct gd_attr_xent least = {.masked = true, .chunk_bytes = 1};
  const enum gd_dtype half = GD_DTYPE_F16;
  (void)state;
  assert_true(gd_loss_gathers(&cpu, 1) && gd_loss_gathers(&masked, 2048));
  assert_false(gd_loss_gathers(&masked, 2047) || gd_loss_gathers(&causal, 131072));
  assert_int_equal(gd_loss_gathered_rows(&masked, 131072, 50265, half), 5248);
  assert_int_equal(gd_loss_gathered_rows(&masked, 8192, 50265, half), 1408);
  assert_int_equal(gd_loss_gathered_rows(&masked, 2048, 50265, half), 384);
  assert_int_equal(gd_loss_gathered_rows(&least, 2048, 50265, half), 16);
  for (int64_t rows = 2048; rows < 1 << 22; rows += rows / 7) {
    int64_t most = gd_loss_chunk_rows(&masked, rows, 50265, half);
    int64_t chunk = gd_loss_gathered_rows(&masked, rows, 50265, half);
    assert_true(chunk > 0 && chunk <= most && chunk % 128 == 0);
    /* The labels of a masked model leave less than half a chunk of the deepest empty. */
    assert_true((rows * 15 / 100 + chunk - 1) / chunk * chunk - rows * 15 / 100 <
                rows / 100 + most / 2);
  }
}

/* A device that wants larger chunks gets them, and the scratch for them. */
static void test_chunk_bytes(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  struct gd_setup setup = {.method = {.kernels = true}};
  struct gd_pass_ctx ctx = {&setup, &err};
  (void)state;
  for (int large = 0; large < 2; large++) {
    setup.loss_chunk_bytes = large ? 1 << 20 : 0;
    loss_graph(&graph, BIAS);
    assert_int_equal(gd_pass_kernels(&ctx, &graph), GD_OK);
    gd_op_id id = graph.tensors[graph.loss].producer;
    assert_int_equal(graph.ops[id].kind, GD_OP_linear_xent);
    assert_int_equal(graph.ops[id].attr.xent.chunk_bytes, setup.loss_chunk_bytes);
    int64_t rows = gd_tensor_elements(&graph, graph.labels);
    const struct gd_tensor *w = &graph.tensors[graph.ops[id].in[1]];
    int64_t pitch = large ? (w->dims[0] + 63) / 64 * 64 : w->dims[0];
    assert_true(gd_op_scratch_bytes(&graph, id) >=
                rows * (pitch * gd_dtype_bytes(w->dtype) + 8) + 256 +
                    (large && w->dims[0] % 8 != 0 /* w, bias, and dw of the last rows */
                         ? w->dims[1] * (pitch * gd_dtype_bytes(w->dtype) + 64 * 4) + pitch * 4
                         : 0));
    gd_graph_deinit(&graph);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pattern),     cmocka_unit_test(test_text),
      cmocka_unit_test(test_models_cpu),  cmocka_unit_test(test_models_ref),
      cmocka_unit_test(test_all_ignored), cmocka_unit_test(test_threads_change_nothing),
      cmocka_unit_test(test_plan),        cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_chunk_rows),  cmocka_unit_test(test_gathered_rows),
      cmocka_unit_test(test_masked),      cmocka_unit_test(test_chunk_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
