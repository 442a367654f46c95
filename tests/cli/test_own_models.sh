#!/usr/bin/env bash
# What a MODEL may be: presets by their name in any case and by the names of Hugging Face, and own
# config.json files: what is assumed of them, which of their fields count, and what can be said of
# those that the engine does not have.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

# --- names ---------------------------------------------------------------------------------------

while read -r word preset; do
  expect 0 models "$word" --json
  field_is name "$preset"
done <<'END'
Pythia-410M pythia-410m
EleutherAI/pythia-410m pythia-410m
eleutherai/PYTHIA-410m pythia-410m
EleutherAI/pythia-410m-deduped pythia-410m
pythia-12b-deduped pythia-12b
meta-llama/Llama-3.2-1B llama-3.2-1b
meta-llama/Meta-Llama-3.1-8B llama-3.1-8b
openai-community/gpt2 gpt2
GPT2-XL gpt2-xl
FacebookAI/roberta-base roberta-base
roberta-large roberta
google-bert/bert-base-uncased bert-base
state-spaces/mamba-130m-hf mamba-130m
state-spaces/mamba-2.8b mamba
google/vit-base-patch16-224 vit-base
google/vit-large-patch16-224-in21k vit
facebook/convnext-large-224 convnext-large-1k
Qwen/Qwen2.5-0.5B qwen2.5-0.5b
Qwen/Qwen3-1.7B-Base qwen3-1.7b
allenai/OLMo-1B-hf olmo-1b
HuggingFaceTB/SmolLM-135M smollm-135m
END

# Every preset of a published checkpoint says which; no two presets have one name.
expect 0 models --json
names=$(grep -oE '"[A-Za-z0-9-]+/[A-Za-z0-9._-]+"' "$OUT")
[[ $(wc -l <<<"$names") -ge 50 ]] || fail "few names of Hugging Face"
[[ -z $(sort -f <<<"$names" | uniq -di) ]] || fail "two presets have one name: $(sort -f <<<"$names" | uniq -di)"
for file in "$GD_SOURCE_DIR"/data/models/*.json; do
  case $file in
    */gpt-*) ;; # sizes that were measured, without a checkpoint
    *) grep -q '^  "hub": \["' "$file" || fail "$file has no name of Hugging Face" ;;
  esac
done
expect 0 models EleutherAI/pythia-14m
shown "  hub         EleutherAI/pythia-14m, EleutherAI/pythia-14m-deduped"

# In every command that takes a model, and as the preset in what is printed.
expect 0 plan EleutherAI/pythia-14m --gpu a100 --json
field_is model pythia-14m
expect 0 estimate openai-community/gpt2 --gpu a100 --count 1 --json
field_is model gpt2
expect 0 cost EleutherAI/pythia-14m --machine desktop-1x-4090 --times analytic --json
field_is model pythia-14m
expect 0 published openai-community/gpt2 --limit 1
expect 1 best EleutherAI/Pythia-14M
said "pythia-14m"
expect 0 bench EleutherAI/pythia-14m --gpu a100 --simulate --no-store --json
field_is model pythia-14m
expect 0 results load "$GD_SOURCE_DIR/tests/cli/results.jsonl"
expect 0 results --model pythia-14m --csv
cp "$OUT" "$WORK/by_name"
[[ $(wc -l <"$WORK/by_name") -gt 1 ]] || fail "no results of pythia-14m"
expect 0 results --model EleutherAI/Pythia-14m --csv
cmp -s "$WORK/by_name" "$OUT" || fail "results --model takes no name of Hugging Face"
expect 2 train EleutherAI/pythia-14m
said "train needs --data FILE"

# What is here comes before what is there; a path that is not there is no name.
mkdir -p "$WORK/EleutherAI"
tiny_config "$WORK/EleutherAI/pythia-14m"
(cd "$WORK" && "$GPUDAYS" models EleutherAI/pythia-14m --json >"$OUT")
field_is vocab 64
for path in ./EleutherAI/pythia-410m /EleutherAI/pythia-410m; do
  expect 2 models "$path"
  said "cannot be opened"
done
expect 2 plan EleutherAI/pythia-999m
said '"EleutherAI/pythia-999m" is no folder here, and no preset has that Hugging Face name; nearest are pythia-'
said "huggingface.co/EleutherAI/pythia-999m/resolve/main/config.json"
said "--params"
expect 2 train Qwen/Qwen2-72B --data x.bin
said "nearest are"
expect 2 models Pythia-16M
said 'did you mean pythia-160m, pythia-14m'

# --- what is assumed -----------------------------------------------------------------------------

# 20 tokens a parameter in whole steps of 512 sequences, unless somebody says otherwise.
own=$WORK/own
llama() { # llama FOLDER MODEL_TYPE [FIELD...]: sizes of no preset
  local folder=$1 type=$2
  shift 2
  mkdir -p "$folder"
  cat >"$folder/config.json" <<END
{$(printf '"%s": %s, ' "$@")
 "model_type": "$type", "vocab_size": 50000, "hidden_size": 2304, "num_hidden_layers": 24,
 "num_attention_heads": 18, "num_key_value_heads": 6, "intermediate_size": 6144,
 "hidden_act": "silu", "max_position_embeddings": 4096, "tie_word_embeddings": false}
END
}
llama "$own" llama rms_norm_eps 1e-6
expect 0 models "$own" --json
steps=$(field steps) parameters=$(field parameters)
awk -v s="$steps" -v n="$parameters" 'BEGIN { want = 20 * n / (512 * 2048); exit !(s >= want && s < want + 1) }' ||
  fail "$steps steps are not 20 tokens for each of $parameters parameters"
shown '"field": "tokens"'
shown "arXiv:2203.15556"
for field in batch seq lr precision; do
  shown "\"field\": \"$field\""
done
expect 0 models "$own" --batch 256 --json
awk -v a="$steps" -v b="$(field steps)" 'BEGIN { exit !(b >= 2 * a - 2 && b <= 2 * a) }' ||
  fail "half the batch has not twice the steps"
expect 0 models "$own" --tokens 10B --batch 256 --seq 1024 --json
[[ $(grep -c '"field": "\(tokens\|batch\|seq\)"' "$OUT") == 0 ]] || fail "what was given is said to be assumed"
for command in "plan $own --gpu 4xa100" "plan $own --gpu a100,h100" "estimate $own --gpu a100" \
  "models $own" "bench $own --gpu 4xa100 --simulate --no-store" "cost $own --machine desktop-1x-4090 --times analytic"; do
  # shellcheck disable=SC2086 # a word each
  expect 0 $command
  shown "assumed"
  grep -q 'Chinchilla' "$OUT" || fail "$LAST: does not say what tokens come from"
done
expect 0 plan "$own" --gpu 4xa100 --json
shown '"field": "tokens"'
expect 0 plan pythia-160m --gpu a100 --json
shown '"assumed": []'
expect 0 models pythia-160m
! grep -q assumed "$OUT" || fail "$LAST: a preset's recipe is said to be assumed"

# --- which fields count --------------------------------------------------------------------------

# use FIELD USE: the row of that field in the table of the last run.
use() {
  [[ $(awk -v f="$1" '$1 == f' "$OUT" | grep -cE " $2( |\$)") == 1 ]] || fail "$LAST: $1 is not $2"
}
llama "$WORK/odd" llama use_cache true foo_gate 3
expect 0 models --check "$WORK/odd"
use hidden_size used
use use_cache ignored
use foo_gate unknown
shown "1 unknown"
expect 0 plan "$WORK/odd" --gpu a100
shown "foo_gate"
expect 0 models "$WORK/odd" --json
shown '"foo_gate"'
# Every unsupported value is named, not the first alone; the rest is as read as it would be.
llama "$WORK/odd" llama clip_qkv 8 rope_scaling '{"rope_type": "longrope", "bar": 1, "factor": 2}' foo_gate 3 \
  is_encoder_decoder true hidden_dropout 0.5
expect 1 models --check "$WORK/odd/config.json"
said "several fields are not supported"
use clip_qkv unsupported
use rope_scaling.rope_type unsupported
use rope_scaling.bar unknown
use rope_scaling.factor ignored
use is_encoder_decoder unsupported
use hidden_dropout unknown
use num_key_value_heads used
shown "clip_qkv is 8; expected null"
expect 1 models --check "$WORK/odd" --json
field_is unsupported 3
expect 2 bench "$WORK/odd"
said "is_encoder_decoder is true"
# A field of each family that nobody knows is found, and of the presets there is none.
for preset in pythia-14m gpt2 llama-3.2-1b qwen2.5-0.5b qwen3-0.6b olmo-1b roberta-base bert-base mamba-130m vit-base convnext-large-1k; do
  expect 0 models --check "$preset" --json
  field_is unknown 0
  mkdir -p "$WORK/f"
  sed -n '/"config": {/,/^  }/p' "$GD_SOURCE_DIR/data/models/$preset.json" |
    sed '1s/.*/{ "attention_wobble": 2,/; $s/},*/}/' >"$WORK/f/config.json"
  expect 0 models --check "$WORK/f" --json
  field_is unknown 1
  grep -A2 '"attention_wobble"' "$OUT" | grep '"use": "unknown"' >/dev/null || fail "$preset: the unknown field is not listed"
done

# --- models that are not built here ----------------------------------------------------------------

# The count is that of transformers' modules but for norms, biases and positions: exact ones of
# transformers 5.23 for the configurations of tests/model/unknown.
while read -r name exact; do
  expect 0 plan "$GD_SOURCE_DIR/tests/model/unknown/$name.json" --gpu 64xh100 --json
  awk -v a="$(field parameters)" -v b="$exact" 'BEGIN { exit !(a > 0.98 * b && a <= b) }' ||
    fail "$name: $(field parameters) parameters, transformers has $exact"
  shown '"flops_only": true'
done <"$GD_SOURCE_DIR/tests/model/unknown/counts.txt"
expect 0 plan "$GD_SOURCE_DIR/tests/model/unknown/mixtral.json" --gpu 64xh100
shown "2 of 8 experts"
shown "model_type mixtral: routed experts are not there"
expect 0 plan "$GD_SOURCE_DIR/tests/model/unknown/gemma3.json" --gpu a100 --json
shown "q/k norms"
shown "sliding_window"
for command in bench "train --data x" "export --format hf"; do
  # shellcheck disable=SC2086 # a word each
  expect 2 $command -- "$GD_SOURCE_DIR/tests/model/unknown/olmo2.json"
  said 'model_type is "olmo2"; this version has gpt_neox'
done
expect 1 models --check "$GD_SOURCE_DIR/tests/model/unknown/olmo2.json"
use model_type unsupported
# Without the sizes of a transformer there is nothing to count.
echo '{"model_type": "rwkv", "vocab_size": 100}' >"$WORK/rwkv.json"
expect 2 plan "$WORK/rwkv.json" --gpu a100
said "there is no hidden_size"

# The interval of a size holds what is predicted for a model of that size which no preset has.
llama "$WORK/new" newmodel rms_norm_eps 1e-6
for gpu in a100 4x3090 8xh100; do
  expect 0 plan "$own" --tokens 50B --gpu $gpu --json
  days=$(field days)
  expect 0 plan "$WORK/new" --tokens 50B --gpu $gpu --json
  awk -v d="$days" -v low="$(field days_low)" -v high="$(field days_high)" 'BEGIN { exit !(low < d && d < high) }' ||
    fail "$gpu: $days days are not between $(field days_low) and $(field days_high)"
done

# A size alone: 6 N D, twice the tokens in twice the days.
expect 0 plan --params 1.3B --tokens 26B --gpu 4xa100 --json
field_is train_flops 2.028e20
field_is parameters 1300000000.0
days=$(field days)
field_above mfu_low 0.1
awk -v low="$(field days_low)" -v d="$days" -v high="$(field days_high)" 'BEGIN { exit !(low < d && d < high) }' ||
  fail "the interval does not hold the days"
expect 0 plan --params 1.3B --tokens 52B --gpu 4xa100 --json
awk -v a="$days" -v b="$(field days)" 'BEGIN { exit !(b > 1.99 * a && b < 2.01 * a) }' ||
  fail "twice the tokens are not twice the days"
expect 0 plan --params 1.3B --tokens 26B --gpu 4xa100
shown "6 N D of 1.3e9 parameters and 2.6e10 tokens"
shown "FLOPs only"
expect 0 plan --params 1.3B --gpu a100,4x3090,h100 --csv
[[ $(wc -l <"$OUT") == 4 ]] || fail "$LAST: not a row for each GPU"
expect 0 plan --params 70B --gpu 4x3090,64xh100
shown "does not fit"
expect 0 estimate --params 1.3B --tokens 26B --gpu a100 --count 4 --json
awk -v d="$(field days)" 'BEGIN { want = 6 * 1.3e9 * 26e9 / (4 * 312e12) / 86400; exit !(d > 0.999 * want && d < 1.001 * want) }' ||
  fail "$(field days) days are not 6 N D at the peak"
expect 0 cost --params 1.3B --tokens 26B --machine desktop-2x-4090
shown "1,300,000,000 parameters"
shown "6 N D of 1.3e9 parameters and 2.6e10 tokens; days are"
shown "next      gpudays plan --params 1300000000 --tokens 26B"
# plan and cost answer the same of it, for other software too.
expect 0 plan --params 1.3B --gpu 4xa100 --stack pytorch
shown "PyTorch with torch.compile"
expect 0 plan "$GD_SOURCE_DIR/tests/model/unknown/gemma3.json" --gpu 4xa100 --stack pytorch --json
field_is stack pytorch
field_above days 0
expect 2 plan --params 1.3B --stack pytorch
said "predicts for given GPUs"
expect 2 plan "$GD_SOURCE_DIR/tests/model/unknown/gemma3.json" pythia-1b --gpu a100
said "a comparison is of models that can be built"
while read -r size stack; do
  expect 0 plan --params "$size" --gpu 4x3090 --stack "$stack" --json
  days=$(field days) low=$(field days_low) high=$(field days_high) kwh=$(field energy_kwh)
  expect 0 cost --params "$size" --gpu 4x3090 --stack "$stack" --json
  grep -A 40 '"options": \[' "$OUT" >"$WORK/option"
  for pair in "days $days" "days_low $low" "days_high $high"; do
    grep -q "\"${pair% *}\": ${pair#* }," "$WORK/option" || fail "$LAST: not '$pair', as plan has"
  done
  grep -q "\"energy_kwh\": ${kwh%%.*}" "$WORK/option" || fail "$LAST: the energy is not the $kwh kWh of plan"
  grep -A 3 '"assumed": \[' "$OUT" >"$WORK/assumed"
  grep -q '"field": "tokens"' "$WORK/assumed" || fail "$LAST: the tokens are not assumed"
  shown '"stand_ins": ['
done <<'END'
1.3B own
7B own
1.3B pytorch
END
# What a size alone is not answered for is refused, never passed over; a count that no preset's batch divides among, too.
for option in "--days 1" "--wall-limit 24h" "--wall-limit 24h --jobs 2"; do
  # shellcheck disable=SC2086
  expect 2 plan --params 1.3B --tokens 26B --gpu 4xa100 $option
  said "gpudays cost does, with the same arguments"
done
expect 2 plan --params 1.3B --tokens 26B --gpu 3xa100
said "does not divide among 3"
# The sizes that are counted are fields that are used, whatever the type.
expect 1 models --check "$GD_SOURCE_DIR/tests/model/unknown/gemma3.json"
[[ $(grep -cE '^(hidden_size|num_hidden_layers|vocab_size) +[0-9]+ +used' "$OUT") == 3 ]] || fail "$LAST: sizes are not used"
expect 2 plan --params 1.3B pythia-14m
said "leave out pythia-14m"
expect 2 plan --params 1.3B --explain
said "leave out --explain"
expect 2 plan
said "plan needs an argument"
expect 2 bench --params 1B
said "--params is not an option of bench"
