#!/usr/bin/env bash
# Why a run is slow: logs that others published, whose cause is known (tests/cli/why/README.md), and
# rates that are typed.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
logs=$GD_SOURCE_DIR/tests/cli/why

# first NAME ARGUMENT...: that cause is the first of all.
first() {
  local name=$1
  shift
  expect 0 why "$@" --json
  [[ $(sed -n '/"causes"/,$p' "$OUT" | grep -m 1 '"name"') == *"\"$name\""* ]] ||
    fail "$LAST: the first cause is not $name"
}
lacks() {
  ! grep -qF -- "$1" "$OUT" || fail "$LAST: says $1"
}
# The reference of each is what the software is predicted to reach: two to six times as much.
gap() { # gap LEAST MOST
  awk -v low="$1" -v high="$2" '/^  "gap": / { found = 1; exit !($2 + 0 >= low && $2 + 0 <= high) }
    END { if (!found) exit 1 }' "$OUT" || fail "$LAST: a gap of $(field gap)"
}

first attention-scores gpt2 --gpu a100-40gb --log "$logs/attention_scores.log" --micro-batch 16
gap 1.5 2.5
field_is good false
first fp32-gemms gpt2 --gpu 8xv100-32gb --log "$logs/fp32.log" --micro-batch 16
gap 4 7
shown "torch.float16" # Volta has no bf16
first data-loading gpt2 --gpu 2xh100 --log "$logs/data_stalls.log" --micro-batch 64 --methods free-lunch
shown "2 of 7 steps took more than 1.5 times the median of 1.01 s"
field_is stalls 2
first slow-links llama-3.1-8b --gpu h100 --log "$logs/slow_network.log"
field_is count 32 # by the log: a global batch of 32 in local ones of 1
gap 3 8
first small-micro-batch gpt2-medium --gpu l40s --seq 128 --batch 1 --micro-batch 1 --step-time 37ms \
  --stack hf-trainer --precision fp16
shown "--per_device_train_batch_size 64"

# Two faults at once: both are found, and the first step says that nothing was compiled.
first attention-scores gpt2 --gpu a100-40gb --log "$logs/eager_op_by_op.log" --micro-batch 16
[[ $(sed -n '/"causes"/,$p' "$OUT" | grep '"name"' | sed -n 2p) == *'"not-compiled"'* ]] ||
  fail "$LAST: the second cause is not that nothing is compiled"
shown "said: the first step took 1.13 s, later ones 0.357 s"
# Each simulation agrees with what was measured: 178 of 191 ms, 367 of 357 ms, 5.4 of 4.8 s.
agrees() { # agrees LOG GPU: the likeliest set with the first cause is within 15 % of the measured time
  expect 0 why gpt2 --gpu "$2" --log "$logs/$1" --micro-batch 16 --json
  awk '/^  "step_s": / { measured = $2 + 0 } /"step_with_s": / && !with { with = $2 + 0 }
    END { exit !(with > measured / 1.15 && with < measured * 1.15) }' "$OUT" || fail "$LAST: does not agree"
}
agrees attention_scores.log a100-40gb
agrees eager_op_by_op.log a100-40gb
agrees fp32.log 8xv100-32gb

# What such software reaches elsewhere is as uncertain as plan says of it, for what others published and for what
# nobody did: a state-space model, a convolutional network, a GPU without a row.
same_interval() { # same_interval MODEL GPU RATE_OPTION
  local ratio
  expect 0 plan "$1" --gpu "$2" --stack pytorch --json
  ratio=$(awk -v low="$(field days_low)" -v high="$(field days_high)" 'BEGIN { print high / low }')
  expect 0 why "$1" --gpu "$2" --stack pytorch "$3" 60 --json
  awk -v low="$(field per_s_low)" -v high="$(field per_s_high)" -v want="$ratio" \
    'BEGIN { r = high / low / want; exit !(r > 0.999 && r < 1.001) }' ||
    fail "$LAST: an interval of $(field per_s_low) to $(field per_s_high) where plan has a factor of $ratio"
}
same_interval gpt2 a100 --tokens-per-s
same_interval mamba a100 --tokens-per-s
shown "none of them of a state-space model"
same_interval convnext-xlarge-22k a100 --samples-per-s
same_interval vit l40s --samples-per-s

# Nothing to find: the stage after has what such software reaches, and llm.c too.
expect 0 why gpt2 --gpu a100-40gb --log "$logs/good.log" --micro-batch 16
shown "answer    that is good: about what such software reaches elsewhere"
shown "its own engine is predicted to reach"
lacks "evidence"
expect 0 why gpt2 --gpu a100-40gb --log "$logs/good.log" --micro-batch 16 --json
field_is good true
field_is published "$(sed -n 's/^\([^,]*\),karpathy.nanoGPT issue 110,.*/\1/p' "$GD_SOURCE_DIR/data/published/rows.csv")"
expect 0 why gpt2 --gpu a100-pcie --log "$logs/llm_c.log" --json
field_is format llm.c
field_is stack llmq
awk '/^  "gap": / { exit !($2 + 0 < 1.5) }' "$OUT" || fail "$LAST: a gap of $(field gap)"

# Lines of torchtitan without what came before them: rates of a GPU, the first line left out.
for step in 1 10 20; do
  echo "[rank0]:2025-06-01 12:00:$((10 + step)),000 - root - INFO - step: $step  loss:  7.1  memory: 40.00GiB(50.6%)  tps: $((step == 1 ? 1000 : 5210))  tflops: 260.1  mfu: 26.3%"
done >"$WORK/titan.log"
expect 0 why llama-3.1-8b --gpu 8xh100 --log "$WORK/titan.log"
shown "41,680 tokens/s"
shown "are assumed (--batch, --seq)"
# Standard input, and what a shell or another program pipes.
cp "$OUT" "$WORK/of_file"
"$GPUDAYS" why llama-3.1-8b --gpu 8xh100 --log - <"$WORK/titan.log" >"$OUT" || fail "--log -: exit $?"
diff "$WORK/of_file" "$OUT" || fail "--log - differs from the file"
"$GPUDAYS" why llama-3.1-8b --gpu 8xh100 --log <(cat "$WORK/titan.log") >"$OUT" || fail "--log <(cat): exit $?"
diff "$WORK/of_file" "$OUT" || fail "--log <(cat) differs from the file"
expect 2 why llama-3.1-8b --gpu 8xh100 --log - </dev/null
said "standard input: no line of the log"

# Without hardware a log says what it says.
expect 0 why pythia-14m --log "$logs/trainer.log" --seq 128
shown "said: torch_compile=False"
shown "said: bf16=False, fp16=False"
shown "--torch_compile True"
lacks "elsewhere"

# --- what is typed -----------------------------------------------------------------------------

# The same rate by three options is the same answer.
expect 0 why gpt2 --gpu a100 --tokens-per-s 64K --batch 64 --json
cp "$OUT" "$WORK/tokens"
expect 0 why gpt2 --gpu a100 --samples-per-s 62.5 --batch 64 --json
cmp -s "$OUT" "$WORK/tokens" || fail "$LAST: another answer than by tokens"
expect 0 why gpt2 --gpu a100 --step-time 1.024s --batch 64 --json
field_is per_s 64000.0
# An eighth of what is expected of 8 GPUs: somebody counted one of them. A log counts itself.
first miscounted gpt2 --gpu 8xa100 --tokens-per-s 175K --micro-batch 32 --stack nanogpt --methods free-lunch \
  --precision bf16
expect 0 why gpt2 --gpu a100-40gb --log "$logs/fused.log" --json
lacks '"miscounted"'
# What the command line says outweighs guesses.
first fp32-gemms gpt2 --gpu a100 --tokens-per-s 30K --precision fp32
shown '"said": true'
first slow-links gpt2-xl --gpu 16xa100 --tokens-per-s 60K --network ethernet-10 --stack nanogpt --methods free-lunch
shown "said: --network ethernet-10"
expect 0 why gpt2-xl --gpu a100 --tokens-per-s 20K --json
lacks '"slow-links"'
expect 0 why vit --gpu a100 --samples-per-s 300 --json
field_is unit images/s
shown '"causes"'

# What no cause explains is said to be so.
expect 0 why gpt2 --gpu a100 --tokens-per-s 100
shown "1,995x slower than elsewhere, and no known cause explains it: does"

# More than the multipliers can do is refused, with the way out.
expect 1 why gpt2 --gpu a100 --tokens-per-s 2M
said "2,000,000 tokens/s is impossible: at the peak of 1 x NVIDIA A100"
said "name all GPUs of the job (--gpu 2xa100, --count)"
silent
# What only another GPU can do.
expect 0 why gpt2 --gpu l4 --log "$logs/good.log"
shown "3.3x as fast as such software is predicted to be: check --gpu,"
lacks "evidence"
expect 0 why gpt2 --gpu 8xa100 --tokens-per-s 1.5M

# --- what is wrong -----------------------------------------------------------------------------

wrong() { # wrong TEXT ARGUMENT...
  local text=$1
  shift
  expect 2 why "$@"
  said "$text"
  silent
}
wrong "why needs what you measured" gpt2 --gpu a100
wrong "say the same; give one" gpt2 --gpu a100 --tokens-per-s 5K --step-time 1s
wrong "why needs the GPUs of the run" gpt2 --tokens-per-s 5K
wrong "is a model of images; give --samples-per-s" vit --gpu a100 --tokens-per-s 5K
wrong '--step-time is "3", without a unit; write 3s, 3ms or 3m (minutes)' gpt2 --gpu a100 --step-time 3
wrong "expected a time such as 1.2s or 350ms" gpt2 --gpu a100 --step-time 3x
wrong "a run has one" gpt2 --gpu a100 --tokens-per-s 5K --methods naive,free-lunch
wrong "why knows no causes in --stack paper" gpt2 --gpu a100 --tokens-per-s 5K --stack paper
wrong "leaves nothing for some of 8 GPUs" gpt2 --gpu 8xa100 --tokens-per-s 5K --batch 4
printf 'nothing of the kind\n' >"$WORK/other.log"
wrong "no line of the log tells how long a step took; known are nanoGPT, torchtitan" gpt2 --gpu a100 --log "$WORK/other.log"
expect 3 why gpt2 --gpu a100 --log "$WORK/none.log"
head -c 100000 /dev/urandom >"$WORK/noise.log"
try why gpt2 --gpu a100 --log "$WORK/noise.log"
[[ $RC == 2 ]] || fail "$LAST: exit $RC of noise"
