#!/usr/bin/env bash
# The answer of plan: the best method of all, its lines, comparisons, pictures, remedies.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

# One question, one answer: the simplest method of those near to the first of the ranking, never naive.
expect 0 plan pythia-410m --gpu 4x3090 --json
best=$(field method)
micro_batch=$(field micro_batch)
days=$(field days)
field_above days_low 0
awk -v low="$(field days_low)" -v days="$days" -v high="$(field days_high)" \
  'BEGIN { exit !(low < days && days < high) }' || fail "$LAST: $days days lie outside of their interval"
field_above mfu 0.05
field_above tokens_per_s 1000
awk -v all="$(field tokens_per_s)" -v each="$(field tokens_per_s_per_gpu)" \
  'BEGIN { exit !(all > 3.999 * each && all < 4.001 * each) }' || fail "$LAST: four GPUs are not four times one"
for name in rent_usd rent_usd_per_gpu_hour hardware_usd experiment_usd wall_energy_kwh energy_usd co2_kg; do
  field_above "$name" 0
done
# Dollars of rent are GPU-hours at their price.
awk -v usd="$(field rent_usd)" -v hour="$(field rent_usd_per_gpu_hour)" -v days="$days" \
  'BEGIN { ratio = usd / (hour * 24 * days * 4); exit !(ratio > 0.999 && ratio < 1.001) }' ||
  fail "$LAST: $(field rent_usd) dollars are not $days days of four GPUs at $(field rent_usd_per_gpu_hour)"
field_is next "gpudays export pythia-410m --gpu 4x3090 --format hf"
[[ $(field "done") == "$(date -d "+$(awk -v d="$days" 'BEGIN { printf "%d", d * 86400 }') seconds" +%F)" ]] ||
  fail "$LAST: $days days from now are not $(field "done")"

expect 0 plan pythia-410m --gpu 4x3090 --methods all --csv
(($(wc -l <"$OUT") > 20)) || fail "$LAST: not the whole space of methods"
awk -F, -v best="$best" -v days="$days" 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
  NR == 2 { least = $column["days"] } $2 == best { of_best = $column["days"] }
  END { exit !(of_best == days && days < 1.02 * least) }' "$OUT" || fail "$LAST: $best does not lead"
for stack in "" "--stack pytorch"; do # of the ranking one is the answer
  # shellcheck disable=SC2086
  expect 0 plan pythia-410m --gpu 4x3090 --methods all $stack --json
  [[ $(grep -c '"answer": true' "$OUT") == 1 && $(grep -c '"answer": false' "$OUT") == 21 ]] ||
    fail "$LAST: not one answer of 22"
  if [[ -z $stack ]]; then
    [[ $(sed -nE 's/^ *"method": "(.*)",$/method \1/p; s/^ *"answer": true$/answer/p' "$OUT" | grep -B 1 '^answer' | head -n 1) == "method $best" ]] ||
      fail "$LAST: $best is not the answer"
  fi
done
expect 0 plan pythia-410m --gpu 4x3090 --methods all
shown "answer: $best, within 2 % of the first and simpler"
expect 0 plan pythia-410m --gpu h100 --methods all
! grep -q 'answer:' "$OUT" || fail "$LAST: an answer where the first is it"

# The same in words; every form of four GPUs is the same question.
expect 0 plan pythia-410m --gpu 4x3090
for line in time speed settings memory cost next trust; do
  grep -q "^  $line  " "$OUT" || fail "$LAST: no line $line"
done
shown "$best ("
shown "micro-batch $micro_batch per GPU"
shown "gpudays' own engine"
shown "9 times out of 10: untested on RTX 3090"
! grep -q 'naive' "$OUT" || fail "$LAST: naive is no answer"
[[ $(awk 'length > 80' "$OUT") == "" ]] || fail "$LAST: more than 80 columns"
cp "$OUT" "$WORK/first"
for other in "--gpu 3090:4" "--gpu 3090 --count 4" "--gpu 4xRTX-3090" "--gpu 4X3090"; do
  # shellcheck disable=SC2086
  expect 0 plan pythia-410m $other
  cmp -s "$OUT" "$WORK/first" || fail "$LAST: not what --gpu 4x3090 says"
done

# How much is trained; and cost has the same method, days and dollars for the same question.
shown "143,000 steps of 1,024 x 2,049 tokens, 3.0e11 in all"
for question in "pythia-410m --gpu 4x3090" "pythia-1b --tokens 20B --gpu 2x4090" "llama-3.2-1b --tokens 20B --gpu 4x3090"; do
  # shellcheck disable=SC2086
  expect 0 plan $question --json
  planned="$(field method) $(field days) $(field days_high) $(field rent_usd)"
  # shellcheck disable=SC2086
  expect 0 cost $question --times predicted --json
  [[ "$(field method) $(field days) $(field days_high) $(field rent_usd)" == "$planned" ]] ||
    fail "$LAST: $(field method) $(field days) $(field days_high) $(field rent_usd), and plan has $planned"
done
# A command that is printed can be typed, whatever a folder is called.
mkdir "$WORK/a b\$(x)"
tiny_config "$WORK/a b\$(x)"
expect 0 plan "$WORK/a b\$(x)" --gpu a100
shown "gpudays export '$WORK/a b\$(x)' "
# A micro-batch that was asked for is what does not fit.
expect 0 plan pythia-410m --gpu 4x3090 --micro-batch 32
shown "it needs"
shown "micro-batch 32"
! grep -q 'micro-batch 1$' "$OUT" || fail "$LAST: another micro-batch than asked for"

# The software that it is for.
expect 0 plan pythia-410m --gpu 4x3090 --stack pytorch
shown "PyTorch"
expect 0 plan pythia-410m --gpu 4x3090 --stack pytorch --json
field_is stack pytorch-compile

# Of models of a kind of which nobody published a rate the interval is wider, and the answer says so.
expect 0 plan pythia-160m --gpu a100 --stack megatron --json
width=$(awk -v l="$(field days_low)" -v h="$(field days_high)" 'BEGIN { print h / l }')
field_is validated true
for model in mamba-130m convnext-large-1k; do
  expect 0 plan "$model" --gpu a100 --stack megatron --json
  field_is validated false
  awk -v w="$width" -v l="$(field days_low)" -v h="$(field days_high)" 'BEGIN { exit !(h / l > 1.2 * w) }' ||
    fail "$LAST: no wider than of a transformer"
done
expect 0 plan mamba-130m --gpu a100 --stack megatron
tr -s ' \n' ' ' <"$OUT" | grep "none of them of a state-space model" >/dev/null || fail "$LAST: does not say so"

# Several: a table, a row each; more GPUs are faster, and each is no faster.
expect 0 plan pythia-410m --gpu 1x3090,2x3090,4x3090,8x3090
[[ $(grep -c '^pythia-410m ' "$OUT") == 4 ]] || fail "$LAST: not four rows"
expect 0 plan pythia-410m --gpu 3090 --count 1,2,4,8 --json
[[ $(grep -c '"model":' "$OUT") == 4 ]] || fail "$LAST: not four answers"
sed -nE 's/^ *"tokens_per_s(_per_gpu)?": (.*),$/\1 \2/p' "$OUT" |
  awk '/_per_gpu/ { if (each && $2 > 1.01 * each) exit 1; each = $2; next } { if ($1 <= all) exit 1; all = $1 }' ||
  fail "$LAST: speeds do not grow with GPUs, or grow by more"
expect 0 plan pythia-160m pythia-410m llama-3.2-1b --gpu 4x3090,4x4090,a100,h100 --csv
[[ $(tail -n +2 "$OUT" | cut -d, -f1 | sort | uniq -c | awk '{ print $1 }' | sort -u) == 4 ]] ||
  fail "$LAST: not three models on four GPUs"

# What does not fit: what is too large, and what to do; each command answers, as soon as it says.
expect 1 plan pythia-1b --gpu 3090 --device-memory 8GiB --methods free-lunch
shown "does not fit: free-lunch needs"
shown "Adam's moments"
shown "fp32 master and"
grep -E '^ +gpudays plan ' "$OUT" >"$WORK/commands"
(($(wc -l <"$WORK/commands") >= 2 && $(wc -l <"$WORK/commands") <= 3)) || fail "$LAST: not two or three remedies"
while read -r _ command; do
  # shellcheck disable=SC2086
  expect 0 $command
done <"$WORK/commands"
expect 1 plan pythia-1b --gpu 3090 --device-memory 8GiB --methods free-lunch --json
field_is next null
field_is feasible false
sed -nE 's/^ *"days": ([0-9.]+),$/\1/p' "$OUT" | sort -C -g || fail "$LAST: remedies are not ranked by days"

# A shorter sequence, and no shorter than it must be.
expect 1 plan pythia-14m --gpu 3060 --seq 131072 --batch 16 --device-memory 1GiB
shown "sequence 32768: fits" "gpudays plan pythia-14m --seq 32768 --batch 64 --gpu 3060 --device-memory 1GiB"
expect 1 plan pythia-14m --gpu 3060 --seq 65536 --batch 32 --device-memory 1GiB
expect 0 plan pythia-14m --gpu 3060 --seq 32768 --batch 64 --device-memory 1GiB
expect 1 plan pythia-12b --gpu 3090
shown "of host memory a GPU: fits with"
expect 1 plan pythia-14m --device-memory 1MiB --threads 1
shown "nothing near to it fits"

# A picture needs a comparison, and a name.
expect 2 plan pythia-14m --gpu 3090 -o "$WORK/days.svg"
said "draws a comparison"
expect 2 plan pythia-14m --gpu 1x3090,2x3090 -o "$WORK/days.png"
said "ends in .svg"
expect 2 plan pythia-14m --gpu 1x3090,2x3090 -o "$WORK/days.svg" --json
said "leave out --json"
if ! command -v gnuplot >/dev/null; then
  echo "skipped in part: no gnuplot for the picture"
  exit 0
fi
expect 0 plan pythia-410m --gpu 1x3090,2x3090,8xa100 -o "$WORK/days.svg"
for ending in svg csv png; do
  [[ -s $WORK/days.$ending ]] || fail "$LAST: no days.$ending"
done
[[ $(wc -l <"$WORK/days.csv") == 4 ]] || fail "$LAST: not three points in days.csv"
grep -q 'RTX 3090' "$WORK/days.svg" || fail "$LAST: the picture does not name its GPUs"
expect 0 plan pythia-160m --gpu 1x3090,2x3090 --stack pytorch -o "$WORK/days.svg"
grep -q 'PyTorch' "$WORK/days.svg" || fail "$LAST: the picture does not name its software"
