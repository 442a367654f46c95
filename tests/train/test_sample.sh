#!/usr/bin/env bash
# `gpudays sample` and `gpudays evaluate`: a run that learnt a text by heart goes on with it, its model
# folder gives the same loss, and `train --init` goes on from it.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

cat >"$WORK/config.json" <<'EOF'
{"model_type": "gpt_neox", "vocab_size": 4096, "hidden_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 64, "rotary_pct": 0.25,
 "layer_norm_eps": 1e-5, "hidden_act": "gelu", "initializer_range": 0.02, "use_parallel_residual": true,
 "tie_word_embeddings": false, "bos_token_id": 0, "eos_token_id": 0}
EOF
mkdir "$WORK/tiny"
mv "$WORK/config.json" "$WORK/tiny"
for _ in $(seq 200); do echo "The quick brown fox jumps over the lazy dog, and the dog sleeps on."; done >"$WORK/text.txt"
expect 0 tokens "$WORK/text.txt" --tokenizer gpudays-4k -o "$WORK/text.bin"

run=(train "$WORK/tiny" --data "$WORK/text.bin" --eval "$WORK/text.bin" --seq 32 --batch 8 --warmup 2
  --schedule wsd --decay 20 --lr 1e-2 --precision fp32 --methods free-lunch --threads 1)
expect 0 "${run[@]}" --steps 60 --tokenizer gpudays-4k -o "$WORK/run" --json
trained=$(field eval_loss)
# Stable behind the warm-up, and down over the last 20 steps.
rate() { sed -nE 's/^\{"step": '"$1"',.*"lr": ([^,]+),.*/\1/p' "$WORK/run/log.jsonl"; }
[[ $(rate 20) == 0.01 && $(rate 40) == 0.01 ]] || fail "wsd is not stable: $(rate 20), $(rate 40)"
awk -v x="$(rate 51)" 'BEGIN { exit !(x > 0.0054 && x < 0.0056) }' || fail "wsd does not decay: $(rate 51)"

# The likeliest tokens are the text; the same seed is the same text.
expect 0 sample "$WORK/run" --prompt "The quick brown" --temperature 0 --length 12 --threads 1
shown "The quick brown fox jumps over the lazy"
expect 0 sample "$WORK/run" --prompt "The quick" --length 20 --seed 3 --threads 1
cp "$OUT" "$WORK/once"
expect 0 sample "$WORK/run/model" --prompt "The quick" --length 20 --seed 3 --threads 1
cmp -s "$OUT" "$WORK/once" || fail "$LAST: run and model folder differ"
expect 0 sample "$WORK/run" --length 3 --threads 1 --json
field_is prompt ""
field_is prompt_tokens 1
field_is step 60
# Not past the sequences that it was trained on: 32 tokens.
expect 0 sample "$WORK/run" --prompt "The" --temperature 0 --length 1000 --threads 1 --json
[[ $(sed -n '/"tokens": \[/,/\]/p' "$OUT" | grep -c '^ *[0-9]*,*$') == 32 ]] || fail "$LAST: not 32 tokens"

# The loss of the last evaluation; a model folder has the same, and another way to cut sequences.
evaluated() { # LOSS
  awk -v a="$1" -v b="$(field loss)" 'BEGIN { exit !(a > 0 && b > a - 1e-5 && b < a + 1e-5) }' ||
    fail "$LAST: loss $(field loss), not $1"
}
expect 0 evaluate "$WORK/run" --samples 256 --threads 1 --json
evaluated "$trained"
field_above bits_per_byte 0
expect 0 evaluate "$WORK/run" --samples 256 --threads 1 --micro-batch 3 --json
evaluated "$trained"
expect 0 evaluate "$WORK/run/model" --data "$WORK/text.bin" --seq 32 --samples 256 --threads 1 --json
evaluated "$trained"
field_is step null
field_is samples 200
expect 0 evaluate "$WORK/run/model" --data "$WORK/text.bin" --seq 32 --samples 4 --backend ref --json
expect 0 evaluate "$WORK/run" --threads 1
shown "bits a byte"

# Weights to begin with: the first loss is the last one's, not that of random ones.
first() { sed -nE 's/^\{"step": 1, "loss": ([^,]+),.*/\1/p' "$1/log.jsonl"; }
expect 0 "${run[@]}" --steps 20 --init "$WORK/run/model" -o "$WORK/more"
awk -v a="$(first "$WORK/run")" -v b="$(first "$WORK/more")" 'BEGIN { exit !(a > 8 && b < 1) }' ||
  fail "$LAST: it does not begin with the weights: $(first "$WORK/run"), $(first "$WORK/more")"
sed 's/"hidden_size": 64/"hidden_size": 32/' "$WORK/tiny/config.json" >"$WORK/other.json"
mkdir "$WORK/other" && mv "$WORK/other.json" "$WORK/other/config.json"
expect 2 train "$WORK/other" --data "$WORK/text.bin" --seq 32 --batch 8 --steps 1 --init "$WORK/run/model" \
  --threads 1 -o "$WORK/misfit"
said "has other dims than config.json asks for"

# --- what is refused ----------------------------------------------------------------------------

refused() { # CODE SENTENCE ARGUMENT...
  local code=$1 sentence=$2
  shift 2
  expect "$code" "$@"
  said "$sentence"
}
mkdir "$WORK/nothing"
refused 2 "neither a run of 'gpudays train' nor a model folder" sample "$WORK/nothing"
refused 2 "is a model of images" sample "$GD_SOURCE_DIR/tests/reference/vit-a"
refused 2 "fills in masked tokens" sample "$GD_SOURCE_DIR/tests/reference/roberta-a"
refused 2 "has no tokenizer.json" sample "$GD_SOURCE_DIR/tests/reference/neox-parallel"
refused 2 "is it another model's tokenizer?" sample "$GD_SOURCE_DIR/tests/reference/neox-parallel" --prompt zebra \
  --tokenizer gpudays-4k
refused 2 "evaluate needs --data FILE" evaluate "$WORK/run/model"
refused 2 "--mask-token says which token masks" evaluate "$GD_SOURCE_DIR/tests/reference/roberta-a" \
  --data "$WORK/text.bin"
refused 2 "--normalize is for models of images" evaluate "$WORK/run" --normalize half
refused 2 "leave their weights out" evaluate "$WORK/run" "$WORK/text.bin:0.5" --data "$WORK/text.bin:0.5"
refused 1 "of device memory" evaluate "$WORK/run" --device-memory 1MiB
refused 2 "the prompt has" sample "$WORK/run" --prompt "$(head -3 "$WORK/text.txt")"
refused 2 "the tokenizer has 4096 tokens, and" train "$GD_SOURCE_DIR/tests/reference/neox-parallel" \
  --data "$WORK/text.bin" --tokenizer gpudays-4k -o "$WORK/no"
mkdir "$WORK/young" && cp "$WORK/run/run.json" "$WORK/young"
refused 2 "has no whole checkpoint yet" sample "$WORK/young"

# --- the end of `make quickstart` -----------------------------------------------------------------

LAST="tools/learn"
"$GD_SOURCE_DIR/tools/learn" "$GPUDAYS" 1 "$WORK/learn" >"$OUT" 2>"$ERR" </dev/null || fail "$LAST failed"
[[ $(grep -c '^\$ gpudays sample' "$OUT") == 2 ]] || fail "$LAST: not two samples"
shown "went on from the checkpoint of step 1"
