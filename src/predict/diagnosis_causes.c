/*
 * The causes that make a run slow; see diagnosis.h. One row each: what it changes in the simulated
 * step, what tells of it, and what to do about it with each software. A cause is added by a row
 * and, where it changes something new, a field of struct gd_step_state.
 *
 * Priors are this program's own estimate of how often a run that its owner finds slow has the
 * fault: what is off unless somebody turns it on (torch.compile, TF32) more often than hardware.
 */
#include "predict/diagnosis.h"

static void run_eager(struct gd_step_state *state, double level) {
  (void)level;
  state->eager = true;
}

static void write_scores(struct gd_step_state *state, double level) {
  (void)level;
  state->scores = true;
}

/* 1: in TF32, 2: in fp32 proper. */
static void widen(struct gd_step_state *state, double level) {
  state->tf32 = level < 2;
  state->fp32 = level >= 2;
}

static void shrink(struct gd_step_state *state, double level) {
  state->micro_batch = (int64_t)level;
}

static void recompute(struct gd_step_state *state, double level) {
  (void)level;
  state->ckpt = true;
}

static void slow_links(struct gd_step_state *state, double level) {
  state->links = level;
}

static void slow_clock(struct gd_step_state *state, double level) {
  state->clock = level;
}

static void wait_for_data(struct gd_step_state *state, double level) {
  state->wait = level;
}

static void miscount(struct gd_step_state *state, double level) {
  state->counted = level;
}

#define PYTORCH    [GD_FRAMEWORK_PYTORCH]
#define TRAINER    [GD_FRAMEWORK_TRAINER]
#define TORCHTITAN [GD_FRAMEWORK_TORCHTITAN]
#define MEGATRON   [GD_FRAMEWORK_MEGATRON]
#define LLM_C      [GD_FRAMEWORK_LLM_C]

static const char loader[] = "DataLoader(..., num_workers=8, pin_memory=True, prefetch_factor=4)";
static const char network[] =
    "NCCL_DEBUG=INFO: 'Using network Socket' is Ethernet; unset NCCL_IB_DISABLE, name the "
    "InfiniBand cards in NCCL_IB_HCA";
static const char bus[] =
    "nvidia-smi topo -m: SYS and PHB go through the host; larger micro-batches, or more gradient "
    "accumulation, reduce seldomer";
static const char clock[] = "nvidia-smi -q -d PERFORMANCE,POWER: cool it, or raise the limit "
                            "(nvidia-smi -pl)";
static const char autocast[] =
    "with torch.autocast('cuda', dtype=torch.bfloat16): ...; at the least "
    "torch.set_float32_matmul_precision('high')";
static const char count[] =
    "count micro-batch x accumulation x sequence x GPUs, each once, without "
    "padding";

static const struct gd_cause causes[] = {
    {.name = "not-compiled",
     .title = "kernels are launched op by op: nothing is compiled",
     .prior = 0.3,
     .fact = GD_RUN_COMPILED,
     .fault = GD_RUN_NO,
     .apply = run_eager,
     .levels = {1},
     .remedy = {PYTORCH = "model = torch.compile(model)", TRAINER = "--torch_compile True",
                TORCHTITAN = "--compile.enable"}},
    {.name = "attention-scores",
     .title = "attention writes its scores to memory: it is not fused",
     .prior = 0.15,
     .fact = GD_RUN_FUSED_ATTENTION,
     .fault = GD_RUN_NO,
     .apply = write_scores,
     .levels = {1},
     .remedy = {PYTORCH = "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
                TRAINER = "from_pretrained(..., attn_implementation='sdpa')",
                MEGATRON = "--use-flash-attn", LLM_C = "make train_gpt2cu USE_CUDNN=1"}},
    {.name = "fp32-gemms",
     .title = "GEMMs are computed in fp32 or TF32, not in 16 bits",
     .prior = 0.15,
     .fact = GD_RUN_HALF,
     .fault = GD_RUN_NO,
     .apply = widen,
     .levels = {1, 2},
     .remedy = {PYTORCH = autocast, TRAINER = "--bf16 True (at the least --tf32 True)",
                MEGATRON = "--bf16", LLM_C = "make train_gpt2cu PRECISION=BF16"}},
    {.name = "small-micro-batch",
     .title = "micro-batches are too small to keep the GPU busy",
     .prior = 0.15,
     .fact = GD_RUN_FACT_COUNT,
     .apply = shrink,
     .levels = {1, 2, 4},
     .remedy = {PYTORCH = "batch_size = %lld, and so many times fewer gradient_accumulation_steps",
                TRAINER = "--per_device_train_batch_size %lld",
                TORCHTITAN = "--training.local_batch_size %lld",
                MEGATRON = "--micro-batch-size %lld", LLM_C = "-b %lld"}},
    {.name = "checkpointing",
     .title = "activations are recomputed although they would fit",
     .prior = 0.08,
     .fact = GD_RUN_CHECKPOINTING,
     .fault = GD_RUN_YES,
     .apply = recompute,
     .levels = {1},
     .remedy = {PYTORCH = "leave out torch.utils.checkpoint",
                TRAINER = "--gradient_checkpointing False",
                TORCHTITAN = "--activation_checkpoint.mode none",
                MEGATRON = "leave out --recompute-granularity", LLM_C = "-r 0"}},
    {.name = "slow-links",
     .title = "GPUs wait for each other: the links between them are slow",
     .prior = 0.25,
     .fact = GD_RUN_FAST_NETWORK,
     .fault = GD_RUN_NO,
     .apply = slow_links,
     .levels = {0.5, 0.25, 0.12, 0.06, 0.03, 0.01},
     .multi_gpu = true,
     .remedy = {PYTORCH = network, TRAINER = network, TORCHTITAN = network, MEGATRON = network,
                LLM_C = network},
     .in_node = bus},
    {.name = "data-loading",
     .title = "the GPU waits for data",
     .prior = 0.12,
     .fact = GD_RUN_LOADER_WORKERS,
     .apply = wait_for_data,
     .levels = {0.15, 0.3, 0.6, 1.2, 2.5, 5},
     .remedy = {PYTORCH = loader,
                TRAINER = "--dataloader_num_workers 8 --dataloader_pin_memory True",
                TORCHTITAN = "tokenize before the run; put the data on a local disk",
                MEGATRON = "--num-workers 8; put the data on a local disk",
                LLM_C = "put the shards on a local disk"}},
    {.name = "low-clock",
     .title = "the GPU runs below its clock: a limit of power, or heat",
     .prior = 0.06,
     .fact = GD_RUN_FULL_CLOCK,
     .fault = GD_RUN_NO,
     .apply = slow_clock,
     .levels = {0.85, 0.7, 0.55, 0.4, 0.25},
     .remedy = {PYTORCH = clock, TRAINER = clock, TORCHTITAN = clock, MEGATRON = clock,
                LLM_C = clock}},
    {.name = "miscounted",
     .title = "the count is of one GPU, or of one micro-step, only",
     .prior = 0.05,
     .fact = GD_RUN_FACT_COUNT,
     .apply = miscount,
     .levels = {1},
     .remedy = {PYTORCH = count, TRAINER = count, TORCHTITAN = count, MEGATRON = count,
                LLM_C = count}},
};

const struct gd_cause *gd_causes(int *number) {
  *number = sizeof causes / sizeof *causes;
  return causes;
}
