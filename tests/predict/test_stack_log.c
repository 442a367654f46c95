/*
 * Logs of other software: each format's steps, settings and facts; what is left out of the times;
 * and what must not be taken for anything.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/strbuf.h"
#include "predict/stack_log.h"

static void parse(struct gd_stack_log *log, const char *text) {
  struct gd_error err = {0};
  if (gd_stack_log_parse(log, text, strlen(text), &err) != GD_OK)
    fail_msg("%s", err.text);
}

static void refuse(const char *text) {
  struct gd_stack_log log;
  struct gd_error err = {0};
  assert_int_equal(gd_stack_log_parse(&log, text, strlen(text), &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "known are nanoGPT"));
}

#define assert_near(value, expected) assert_true(fabs((value) - (expected)) <= 1e-6 * (expected))

static void test_nanogpt(void **state) {
  (void)state;
  struct gd_stack_log log;
  parse(&log, "Overriding: compile = False\n"
              "gradient_accumulation_steps = 40\n"
              "batch_size = 12 # micro-batch\n"
              "eval_batch_size = 99\n"
              "# dtype = 'float32' # as in a comment\n"
              "block_size = 1024\n"
              "tokens per iteration will be: 491,520\n"
              "WARNING: using slow attention. Flash Attention requires PyTorch >= 2.0\n"
              "step 0: train loss 10.9895, val loss 10.9900\n"
              "iter 0: loss 10.9774, time 25117.76ms, mfu -100.00%\n"
              "iter 10: loss 10.4046, time 4666.49ms, mfu 28.86%\n"
              "iter 20: loss 9.8023, time 4627.31ms, mfu 28.88%\n"
              "iter 30: loss 9.4981, time 4619.24ms, mfu 28.91%\n"
              "step 40: train loss 9.1, val loss 9.2\n"
              "iter 40: loss 9.2941, time 30619.24ms, mfu 26.91%\n");
  assert_string_equal(log.format->name, "nanogpt");
  assert_int_equal(log.n_steps, 5);
  assert_int_equal(log.times.steps, 3); /* neither the first nor the one that evaluated */
  assert_near(log.times.median_s, 4.62731);
  assert_near(log.batch, 480);
  assert_near(log.micro_batch, 12);
  assert_near(log.tokens_per_s, 491520 / ((4.66649 + 4.62731 + 4.61924) / 3));
  assert_near(log.mfu, 0.2691);
  assert_int_equal(log.facts[GD_RUN_COMPILED].answer, GD_RUN_NO);
  assert_int_equal(log.facts[GD_RUN_FUSED_ATTENTION].answer, GD_RUN_NO);
  assert_int_equal(log.facts[GD_RUN_HALF].answer, GD_RUN_UNKNOWN);
  gd_stack_log_deinit(&log);
}

static void test_torchtitan(void **state) {
  (void)state;
  struct gd_stack_log log;
  parse(&log, "\033[36m[rank0]: - Applied full activation checkpointing to the model\033[0m\n"
              "[rank0]: Compiling each TransformerBlock with torch.compile\n"
              "[rank0]: Trainer is initialized with local batch size 2, global batch size 16, "
              "gradient accumulation steps 1, sequence length 2048, total steps 10\n"
              "\033[31mstep: 10 \033[32m loss: 1.5 \033[34m memory: 26.47GiB(33.47%) "
              "\033[36mtps: 4,096 \033[35mtflops: 100 mfu: 10.46%\033[39m\n"
              "[rank1]:step: 10 loss: 1.5 memory: 26.47GiB(33.47%) tps: 4,096 mfu: 10.46%\n"
              "[rank0]:step: 20 loss: 1.4 memory: 26.47GiB(33.47%) tps: 2,048 mfu: 5.23%\n");
  assert_string_equal(log.format->name, "torchtitan");
  assert_int_equal(log.n_steps, 2); /* a step that each rank prints is one */
  assert_near(log.steps[0].seconds, 1);
  assert_near(log.steps[1].seconds, 2);
  assert_near(log.gpus, 8);
  assert_near(log.batch, 16);
  assert_int_equal(log.facts[GD_RUN_CHECKPOINTING].answer, GD_RUN_YES);
  assert_int_equal(log.facts[GD_RUN_COMPILED].answer, GD_RUN_YES);
  gd_stack_log_deinit(&log);
}

static void test_megatron(void **state) {
  (void)state;
  struct gd_stack_log log;
  parse(&log, "  micro_batch_size ................................ 4\n"
              "  seq_length ...................................... 2048\n"
              "  world_size ...................................... 16\n"
              "  use_flash_attn .................................. False\n"
              "  bf16 ............................................ True\n"
              " iteration      182/  250000 | consumed samples:       186368 | elapsed time per "
              "iteration (ms): 2000.0 | learning rate: 1.365E-05 | global batch size:   64 |\n"
              " iteration      183/  250000 | consumed samples:       187392 | elapsed time per "
              "iteration (ms): 2000.0 | learning rate: 1.372E-05 | global batch size:   64 |\n");
  assert_string_equal(log.format->name, "megatron");
  assert_near(log.times.mean_s, 2);
  assert_near(log.gpus, 16);
  assert_near(log.tokens_per_s, 64 * 2048 / 2.0);
  assert_int_equal(log.facts[GD_RUN_FUSED_ATTENTION].answer, GD_RUN_NO);
  assert_int_equal(log.facts[GD_RUN_HALF].answer, GD_RUN_YES);
  gd_stack_log_deinit(&log);
  /* One of two that is off says nothing. */
  parse(&log,
        "  bf16 ............................................ False\n"
        "  fp16 ............................................ True\n"
        " iteration 1/ 5 | elapsed time per iteration (ms): 2000.0 | global batch size: 64 |\n");
  assert_int_equal(log.facts[GD_RUN_HALF].answer, GD_RUN_YES);
  gd_stack_log_deinit(&log);
  parse(&log,
        "  bf16 ............................................ False\n"
        " iteration 1/ 5 | elapsed time per iteration (ms): 2000.0 | global batch size: 64 |\n");
  assert_int_equal(log.facts[GD_RUN_HALF].answer, GD_RUN_UNKNOWN);
  gd_stack_log_deinit(&log);
}

static void test_llm_c(void **state) {
  (void)state;
  struct gd_stack_log log;
  parse(&log, "| micro batch size B    | 56                 |\n"
              "| sequence length T     | 1024               |\n"
              "| total batch size      | 458752             |\n"
              "| device                | NVIDIA A800 80GB PCIe |\n"
              "| precision             | BF16               |\n"
              "| num_processes         | 1                  |\n"
              "step    1/21479 | loss 11.0 (+nanz)| norm 16.3 (+nanz)| lr 2.86e-06 | 5734.72 ms | "
              "-100.0% bf16 MFU | 167751 tok/s\n"
              "step    2/21479 | loss 10.8 (+nanz)| norm 15.0 (+nanz)| lr 5.71e-06 | 2391.52 ms | "
              "43.0% bf16 MFU | 191824 tok/s\n"
              "step    3/21479 | loss 10.8 (+nanz)| norm 15.0 (+nanz)| lr 5.71e-06 | 2391.52 ms | "
              "43.0% bf16 MFU | 191824 tok/s\n");
  assert_string_equal(log.format->name, "llm.c");
  assert_string_equal(log.device, "NVIDIA A800 80GB PCIe");
  assert_near(log.times.mean_s, 2.39152);
  assert_near(log.batch, 448);
  assert_near(log.mfu, 0.43);
  assert_int_equal(log.facts[GD_RUN_HALF].answer, GD_RUN_YES);
  gd_stack_log_deinit(&log);
}

static void test_trainer(void **state) {
  (void)state;
  struct gd_stack_log log;
  parse(&log, "bf16=False,\nfp16=False,\ntf32=True,\ndataloader_num_workers=0,\n"
              "gradient_checkpointing=True,\nper_device_train_batch_size=4,\n"
              "  Total train batch size (w. parallel, distributed & accumulation) = 32\n"
              "  Gradient Accumulation steps = 2\n"
              " 10%|#         | 10/100 [00:30<04:30,  3.00s/it]\r"
              " 20%|##        | 20/100 [01:00<04:00,  3.00s/it]\r"
              " 30%|###       | 30/100 [01:30<03:30,  3.00s/it]\r"
              "100%|##########| 100/100 [1:00:00<00:00,  3.00s/it]\n"
              "{'train_runtime': '300.0', 'train_samples_per_second': '10.666', "
              "'train_steps_per_second': '0.333', 'epoch': 1.0}\n");
  assert_string_equal(log.format->name, "trainer");
  assert_int_equal(log.n_steps, 3); /* differences of four lines */
  assert_near(log.steps[0].seconds, 3);
  assert_near(log.steps[2].seconds, (3600.0 - 90) / 70);
  assert_near(log.samples_per_s, 10.666);
  assert_near(log.gpus, 4);
  assert_int_equal(log.facts[GD_RUN_HALF].answer, GD_RUN_NO);
  assert_string_equal(log.facts[GD_RUN_HALF].said, "bf16=False, fp16=False");
  assert_int_equal(log.facts[GD_RUN_TF32].answer, GD_RUN_YES);
  assert_int_equal(log.facts[GD_RUN_CHECKPOINTING].answer, GD_RUN_YES);
  assert_int_equal(log.facts[GD_RUN_LOADER_WORKERS].answer, GD_RUN_NO);
  gd_stack_log_deinit(&log);
}

/* Steps of 1 s of which every tenth waits 5 s more; then a slow rise. */
static void test_times(void **state) {
  (void)state;
  struct gd_stack_log log;
  struct gd_strbuf text = {0};
  for (int i = 0; i < 100; i++)
    gd_strbuf_printf(&text, "step %d | loss: 3 | dt: %dms | tok/sec: 524288\n", i,
                     i % 10 == 9 ? 6000 : 1000);
  parse(&log, text.text);
  assert_int_equal(log.times.stalls, 10);
  assert_near(log.times.mean_s, 1.5);
  assert_near(log.times.median_s, 1);
  assert_near(log.times.stalled, 50.0 / 150);
  gd_stack_log_deinit(&log);
  gd_strbuf_deinit(&text);
  text = (struct gd_strbuf){0};
  for (int i = 0; i < 100; i++)
    gd_strbuf_printf(&text, "step %d | loss: 3 | dt: %dms | tok/sec: 524288\n", i, 1000 + 2 * i);
  parse(&log, text.text);
  assert_int_equal(log.times.stalls, 0);
  assert_true(log.times.drift > 1.1 && log.times.drift < 1.2);
  gd_stack_log_deinit(&log);
  gd_strbuf_deinit(&text);
  /* Lines that were left out were as usual: one stall of 100 s in 1,000 steps. */
  parse(&log, "step 1 | dt: 1000ms | tok/sec: 5\nstep 2 | dt: 1000ms | tok/sec: 5\n"
              "step 3 | dt: 101000ms | tok/sec: 5\nstep 1000 | dt: 1000ms | tok/sec: 5\n");
  assert_near(log.times.mean_s, 1.1);
  gd_stack_log_deinit(&log);
}

static void test_refused(void **state) {
  (void)state;
  refuse("");
  refuse("\n\n\n");
  refuse("epoch 1: 3.2 it/s\n");
  refuse("iter x: loss 1, time nan ms\n");
  refuse("iter 1: loss 2.0, time -5ms, mfu 1%\n");
  refuse("iter 1: loss 2.0, time 1e300ms, mfu 1%\n");
}

/* Without a header nobody knows of what batch: the rates count, but the first. */
static void test_rates_alone(void **state) {
  (void)state;
  struct gd_stack_log log;
  parse(&log, "step: 1 loss: 2 tps: 5 mfu: 1%\n");
  assert_near(log.tokens_per_gpu_s, 5.0);
  parse(&log, "step: 1 loss: 2 tps: 5 mfu: 1%\nstep: 2 loss: 2 tps: 100 mfu: 1%\n"
              "step: 3 loss: 2 tps: 50 mfu: 1%\n");
  assert_near(log.tokens_per_gpu_s, 2 / (1 / 100.0 + 1 / 50.0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nanogpt),  cmocka_unit_test(test_torchtitan),
      cmocka_unit_test(test_megatron), cmocka_unit_test(test_llm_c),
      cmocka_unit_test(test_trainer),  cmocka_unit_test(test_times),
      cmocka_unit_test(test_refused),  cmocka_unit_test(test_rates_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
