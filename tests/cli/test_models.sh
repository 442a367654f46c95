#!/usr/bin/env bash
# Sizes and FLOPs of the presets: exact parameter counts (Hugging Face's), FLOPs as the paper's
# Table 3 rounds them; the recipe and its overrides; presets of the user's.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

while read -r name parameters flops; do
  expect 0 models "$name" --json
  field_is name "$name"
  field_is parameters "$parameters"
  rounded=$(printf '%.1e' "$(field train_flops)")
  [[ $rounded == "$flops" ]] || fail "$name: train_flops is $rounded, not $flops"
done <<'END'
pythia-160m 162322944 2.9e+20
pythia-410m 405334016 8.2e+20
pythia-1b 1011781632 1.9e+21
pythia-2.8b 2775208960 5.4e+21
pythia-6.9b 6857302016 1.3e+22
END

expect 0 models pythia-1b --json
field_is family GPT-NeoX
field_is batch 1024
field_is seq 2049
field_is steps 143000
field_is precision bf16
field_is optimizer adam
awk -v train="$(field train_flops)" -v step="$(field flops_per_step)" -v steps="$(field steps)" \
  'BEGIN { exit !(train > 0.999999 * step * steps && train < 1.000001 * step * steps) }' ||
  fail "train_flops is not flops_per_step x steps"

# What else Table 3 states: vocabulary, or size and classes of images; null where there is none.
field_is vocab 50304
field_is image_height null
field_is classes null
expect 0 models vit --json
field_is seq 197
field_is vocab null
field_is image_height 224
field_is image_width 224
field_is classes 21841
expect 0 models convnext-xlarge-22k --json
field_is seq null
field_is classes 21841
expect 0 models vit
shown "224 x 224 pixels, 21,841 classes"
expect 0 models pythia-1b --json

# FLOPs of a step grow with the batch exactly, and the recipe can be overridden.
flops=$(field flops_per_step)
expect 0 models pythia-1b --json --batch 2048 --steps 7 --seq 2049 --optimizer adamw --precision fp32
awk -v a="$flops" -v b="$(field flops_per_step)" 'BEGIN { exit b != 2 * a }' ||
  fail "twice the batch is not twice the FLOPs"
field_is steps 7
field_is warmup_steps 7
field_is optimizer adamw
field_is precision fp32

# The table: one line a model, smallest first, and the same rows in CSV and JSON.
expect 0 models
shown "162,322,944"
shown "2.9e20"
grep -qE '^MODEL +FAMILY +PARAMETERS +SEQ +BATCH +STEPS +PREC +OPT +FLOPS$' "$OUT" ||
  fail "the table has another head"
! grep -q ' $' "$OUT" || fail "blanks at the end of lines"
rows=$(($(wc -l <"$OUT") - 1))
expect 0 models --csv
[[ $(wc -l <"$OUT") == $((rows + 1)) ]] || fail "CSV has another number of rows"
grep -q '^name,family,parameters,train_flops,' "$OUT" || fail "CSV has other columns"
grep -q '^pythia-160m,GPT-NeoX,162322944,2.9' "$OUT" || fail "CSV lacks pythia-160m"
expect 0 models --json
[[ $(grep -c '"parameters"' "$OUT") == "$rows" ]] || fail "JSON has another number of models"
expect 0 models pythia-160m
shown "162,322,944 parameters"
shown "143,000 steps of 1,024 x 2,049 tokens"

# A bare configuration, by its folder and by its file.
tiny_config "$WORK/tiny"
expect 0 models "$WORK/tiny" --json
field_is name tiny
field_is seq 32
tiny=$(field parameters)
expect 0 models "$WORK/tiny/config.json" --json
field_is parameters "$tiny"

# A preset of the user's is listed; a broken one does not hide the others.
export XDG_CONFIG_HOME=$WORK/own
mkdir -p "$WORK/own/gpudays/models"
cp "$WORK/tiny/config.json" "$WORK/own/gpudays/models/mine.json"
echo '{"model_type": "gpt_neox"' >"$WORK/own/gpudays/models/broken.json"
expect 0 models
grep -q '^mine ' "$OUT" || fail "the user's preset is not listed"
shown "pythia-12b"
shown "note: broken cannot be read"
expect 0 models --json
shown '"unreadable": ['
expect 2 models broken
said "broken.json"

# --tokens is another way to say --steps: 300e9 / (1024 x 2049), rounded up.
for count in 300B 300e9 0.3T 300000000000; do
  expect 0 models pythia-160m --json --tokens "$count"
  field_is steps 142982
done
expect 2 models pythia-160m --tokens 300B --steps 5
expect 2 models pythia-160m --tokens 300X
