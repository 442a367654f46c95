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
