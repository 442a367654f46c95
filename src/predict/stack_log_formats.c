/*
 * What lines of other software's logs look like; see stack_log.h. Three tables: formats with the
 * lines of their steps, settings, and words that say a fact. A format, a setting or a fact is added
 * by a row. The formats are those that the programs print: nanoGPT's and build-nanogpt's train.py,
 * nanochat's base_train.py, transformers' trainer.py and training_args.py, torchtitan's
 * metrics.py, Megatron-LM's training.py, llm.c's train_gpt2.cu.
 */
#include "predict/stack_log_int.h"

#define LOG(member) offsetof(struct gd_stack_log, member)

static const struct gd_stack_log_format
    nanogpt = {"nanogpt", "nanoGPT", "pytorch-compile", GD_FRAMEWORK_PYTORCH},
    build = {"build-nanogpt", "build-nanogpt or nanochat", "pytorch-compile", GD_FRAMEWORK_PYTORCH},
    trainer = {"trainer", "Hugging Face Trainer", "pytorch-eager", GD_FRAMEWORK_TRAINER},
    titan = {"torchtitan", "torchtitan", "torchtitan", GD_FRAMEWORK_TORCHTITAN},
    megatron = {"megatron", "Megatron-LM", "megatron", GD_FRAMEWORK_MEGATRON},
    llm_c = {"llm.c", "llm.c", "llmq", GD_FRAMEWORK_LLM_C};

/* The more particular first: " tok/s" is in " tok/sec", too. */
const struct gd_step_line gd_step_lines[] = {
    {&nanogpt, {"iter ", ": loss "}, "iter ", ", time ", NULL, true, "mfu "},
    {&titan, {"step:", "tps:"}, "step:", NULL, "tps:", false, "mfu:"},
    {&titan, {"step:", "wps:"}, "step:", NULL, "wps:", false, "mfu:"},
    {&megatron,
     {"iteration", "elapsed time per iteration (ms):"},
     "iteration",
     "elapsed time per iteration (ms):",
     NULL,
     true,
     NULL},
    {&build, {"step", "tok/sec"}, "step", "dt:", "tok/sec:", true, "mfu:"},
    {&build, {"step", "tokens/sec"}, "step", "time:", "tokens/sec:", true, NULL},
    {&llm_c, {"step ", " tok/s"}, "step ", "< ms", "< tok/s", true, "<% bf16 MFU"},
    {&trainer, {"it/s]", "%|"}, NULL, NULL, NULL, true, NULL},
    {&trainer, {"s/it]", "%|"}, NULL, NULL, NULL, true, NULL},
    {&trainer, {"train_runtime", "train_samples_per_second"}, NULL, NULL, NULL, true, NULL},
};
const int gd_step_line_count = sizeof gd_step_lines / sizeof *gd_step_lines;

/* A comment of a configuration does not say what is so. */
const struct gd_log_setting gd_log_settings[] = {
    {&nanogpt, "tokens per iteration will be:", LOG(step_tokens)},
    {&nanogpt, "gradient_accumulation_steps =", LOG(accumulation)},
    {&nanogpt, "batch_size =", LOG(micro_batch)},
    {&nanogpt, "block_size =", LOG(seq)},
    {&build, "total desired batch size:", LOG(step_tokens)},
    {&build, "gradient accumulation steps:", LOG(accumulation)},
    {&build, "Total batch size", LOG(step_tokens)},
    {&trainer, "Instantaneous batch size per device =", LOG(micro_batch)},
    {&trainer, "Total train batch size (w. parallel, distributed & accumulation) =", LOG(batch)},
    {&trainer, "Gradient Accumulation steps =", LOG(accumulation)},
    {&trainer, "per_device_train_batch_size=", LOG(micro_batch)},
    {&trainer, "gradient_accumulation_steps=", LOG(accumulation)},
    {&trainer, "block_size=", LOG(seq)},
    {&trainer, "train_samples_per_second'", LOG(samples_per_s)},
    {&trainer, "train_tokens_per_second'", LOG(tokens_per_s)},
    {&titan, "local batch size", LOG(micro_batch)},
    {&titan, "global batch size", LOG(batch)},
    {&titan, "sequence length", LOG(seq)},
    {&titan, "gradient accumulation steps", LOG(accumulation)},
    {&megatron, "global batch size:", LOG(batch)},
    {&megatron, " micro_batch_size ", LOG(micro_batch)},
    {&megatron, " seq_length ", LOG(seq)},
    {&megatron, " world_size ", LOG(gpus)},
    {&llm_c, "| micro batch size B", LOG(micro_batch)},
    {&llm_c, "| sequence length T", LOG(seq)},
    {&llm_c, "| total batch size", LOG(step_tokens)},
    {&llm_c, "| num_processes", LOG(gpus)},
};
const int gd_log_setting_count = sizeof gd_log_settings / sizeof *gd_log_settings;

/* Of any format; the last line that says something of a fact is believed. */
const struct gd_log_words gd_log_words[] = {
    {"using slow attention", GD_RUN_FUSED_ATTENTION, GD_RUN_NO},
    {"attn_implementation=eager", GD_RUN_FUSED_ATTENTION, GD_RUN_NO},
    {"attn_implementation='eager'", GD_RUN_FUSED_ATTENTION, GD_RUN_NO},
    {"\"_attn_implementation\": \"eager\"", GD_RUN_FUSED_ATTENTION, GD_RUN_NO},
    {"attn_implementation=sdpa", GD_RUN_FUSED_ATTENTION, GD_RUN_YES},
    {"attn_implementation='sdpa'", GD_RUN_FUSED_ATTENTION, GD_RUN_YES},
    {"attn_implementation=flash_attention", GD_RUN_FUSED_ATTENTION, GD_RUN_YES},
    {"use_flash_attn .", GD_RUN_FUSED_ATTENTION, GD_RUN_UNKNOWN},
    {"compiling the model...", GD_RUN_COMPILED, GD_RUN_YES},
    {"Compiling each TransformerBlock", GD_RUN_COMPILED, GD_RUN_YES},
    {"--compile=False", GD_RUN_COMPILED, GD_RUN_NO},
    {"compile = ", GD_RUN_COMPILED, GD_RUN_UNKNOWN},
    {"torch_compile=", GD_RUN_COMPILED, GD_RUN_UNKNOWN},
    {"dtype = 'float32'", GD_RUN_HALF, GD_RUN_NO},
    {"dtype = float32", GD_RUN_HALF, GD_RUN_NO},
    {"--dtype=float32", GD_RUN_HALF, GD_RUN_NO},
    {"dtype = 'bfloat16'", GD_RUN_HALF, GD_RUN_YES},
    {"dtype = bfloat16", GD_RUN_HALF, GD_RUN_YES},
    {"dtype = 'float16'", GD_RUN_HALF, GD_RUN_YES},
    {"dtype = float16", GD_RUN_HALF, GD_RUN_YES},
    {"16-bits training: ", GD_RUN_HALF, GD_RUN_UNKNOWN},
    {"| precision             | BF16", GD_RUN_HALF, GD_RUN_YES},
    {"| precision             | FP32", GD_RUN_HALF, GD_RUN_NO},
    {"tf32=", GD_RUN_TF32, GD_RUN_UNKNOWN},
    {"gradient_checkpointing=", GD_RUN_CHECKPOINTING, GD_RUN_UNKNOWN},
    {"Applied full activation checkpointing", GD_RUN_CHECKPOINTING, GD_RUN_YES},
    {"recompute_granularity ........................... full", GD_RUN_CHECKPOINTING, GD_RUN_YES},
    {"dataloader_num_workers=0", GD_RUN_LOADER_WORKERS, GD_RUN_NO},
    {"NCCL INFO Using network Socket", GD_RUN_FAST_NETWORK, GD_RUN_NO},
    {"NCCL_IB_DISABLE=1", GD_RUN_FAST_NETWORK, GD_RUN_NO},
    {"NCCL INFO Using network IB", GD_RUN_FAST_NETWORK, GD_RUN_YES},
    {"NCCL INFO Using network AWS Libfabric", GD_RUN_FAST_NETWORK, GD_RUN_YES},
    {"SW Power Cap                      : Active", GD_RUN_FULL_CLOCK, GD_RUN_NO},
    {"SW Thermal Slowdown               : Active", GD_RUN_FULL_CLOCK, GD_RUN_NO},
    {"HW Thermal Slowdown               : Active", GD_RUN_FULL_CLOCK, GD_RUN_NO},
};
const int gd_log_word_count = sizeof gd_log_words / sizeof *gd_log_words;

/* Lines after which the next step has also evaluated, or written a checkpoint. */
const char *const gd_log_interruptions[] = {"val loss",
                                            "validation loss",
                                            "saving checkpoint",
                                            "Saving model checkpoint",
                                            "eval_loss",
                                            "HellaSwag",
                                            "Saving the checkpoint",
                                            "saving model",
                                            "saving checkpoint at iteration",
                                            "Running Evaluation",
                                            "validation loss at iteration"};
const int gd_log_interruption_count = sizeof gd_log_interruptions / sizeof *gd_log_interruptions;
