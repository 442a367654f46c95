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
# The engine's settings are trained with by the engine; PyTorch has others, by its own memory.
field_is next "gpudays train pythia-410m --ranks 4 --methods $best --data FILE"
field_is next_export "gpudays export pythia-410m --gpu 4x3090 --format train.py"
[[ $(field "done") == "$(date -d "+$(awk -v d="$days" 'BEGIN { printf "%d", d * 86400 }') seconds" +%F)" ]] ||
  fail "$LAST: $days days from now are not $(field "done")"

expect 0 plan gpt2 --gpu 16xa100 --seq 512 --batch 64 --methods free-lunch+zero1 --json # two machines
field_is next "gpudays train gpt2 --batch 64 --seq 512 --ranks 16 --slurm --nodes 2 --backend cuda --methods free-lunch+zero1 --data FILE"
expect 0 plan vit --gpu v100 --json # which the engine does not run on
field_is next "gpudays export vit --gpu v100-16gb --format train.py"
expect 0 plan vit --gpu v100
shown "which plans anew"
expect 0 plan gpt2 --gpu 4x3090 --methods free-lunch --without recompute --json
field_is next "gpudays train gpt2 --ranks 4 --methods free-lunch --data FILE"
# For this machine bench follows, with all that was asked for; it can be typed.
expect 0 plan pythia-14m --methods free-lunch --without tf32,recompute --threads 2 --device-memory 4GiB --micro-batch 2 --json
field_is next "gpudays bench pythia-14m --threads 2 --device-memory 4GiB --micro-batch 2 --methods free-lunch --without recompute,tf32"
read -ra words <<<"$(field next)"
expect 0 "${words[@]:1}" --simulate
expect 0 plan pythia-14m --methods 'free-lunch without tf32' --threads 2 --json
field_is next "gpudays bench pythia-14m --threads 2 --methods free-lunch --without tf32"
# What was timed is trained with the same limits, and with all passes.
tiny_config "$WORK/tiny"
settings="--seq 8 --batch 4 --threads 1 --device-memory 1GiB --host-memory 1GiB --micro-batch 2 --methods free-lunch"
# shellcheck disable=SC2086
try bench "$WORK/tiny" $settings --without tf32 --sample-seconds 1 # stderr: such trials are not stored
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
shown "  next      gpudays train $WORK/tiny --batch 4 --seq 8 --threads 1 --device-memory 1GiB --host-memory 1GiB --micro-batch 2 --methods free-lunch --data FILE"
# The train command is one, up to the data.
head -c 100000 /dev/zero >"$WORK/ids.bin"
expect 0 plan pythia-14m --gpu 4x3090 --device-memory 4GiB --json
next=$(field next)
read -ra words <<<"${next#gpudays }"
[[ ${words[-1]} == FILE ]] || fail "$LAST: next is '$next'"
expect 0 "${words[@]::${#words[@]}-1}" "$WORK/ids.bin" --dry-run --json
expect 0 plan pythia-410m --gpu 4x3090 --stack pytorch --json
field_is next "$(field next_export)"
expect 0 plan gpt2 --gpu 4x3090 --stack deepspeed --methods free-lunch+zero2
shown "fused kernels, ZeRO stage 2, not compiled"
! grep -q 'compiled and' "$OUT" || fail "$LAST: DeepSpeed compiles nothing"

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
shown "PyTorch   has a plan of its own"
shown "            gpudays export pythia-410m --gpu 4x3090 --format train.py"
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

# The parts of the memory add up, and weights that are gathered from 64 shards are one of them.
parts_add_up() {
  awk -v name="$LAST" '
    function bytes(size, unit) { return size * (unit ~ /GiB/ ? 1024 : unit ~ /KiB/ ? 1 / 1024 : 1) }
    /^  memory/ { at = 1 }
    /^  [a-z]/ && !/^  memory/ { at = 0 }
    at { text = text " " $0 }
    END { n = split(text, words, " "); whole = bytes(words[2], words[3]); split(text, list, ": "); n = split(list[2], parts, ",")
          for (i = 1; i <= n; i++) { m = split(parts[i], w, " "); sum += bytes(w[m - 1], w[m]) }
          if (sum < 0.98 * whole || sum > 1.01 * whole) { print "parts are " sum " MiB of " whole; exit 1 } }' "$OUT"
}
for method in zero1 zero3 fsdp2 fsdp3; do
  expect 0 plan llama-3.1-8b --gpu 64xh200 --methods free-lunch+$method
  parts_add_up || fail "$LAST: the parts of the memory do not add up"
done
expect 0 plan llama-3.1-8b --gpu 64xh100 --methods free-lunch+fsdp2
grep -qE "gathered bf16( weights)?" "$OUT" || fail "$LAST: no gathered weights"
expect 0 plan llama-3.1-8b --gpu 64xh100 --methods free-lunch+fsdp2 --json
field_above gathered_bytes 1e10

# A picture needs a comparison, and a name; its figures do too, and need no gnuplot.
expect 2 plan pythia-14m --gpu 3090 -o "$WORK/days.svg"
said "draws a comparison"
for name in days days.pdf .svg svg; do
  expect 2 plan pythia-14m --gpu 1x3090,2x3090 -o "$WORK/$name"
  said "ends in .svg, .png or .csv"
done
expect 2 plan pythia-14m --gpu 1x3090,2x3090 -o "$WORK/days.svg" --json
said "leave out --json"
mkdir "$WORK/pictures"
expect 0 plan pythia-410m --gpu 1x3090,2x3090,8xa100 -o "$WORK/pictures/days.csv"
[[ $(wc -l <"$WORK/pictures/days.csv") == 4 ]] || fail "$LAST: not three points in days.csv"
[[ $(ls "$WORK/pictures") == days.csv ]] || fail "$LAST: more than one file"
if ! command -v gnuplot >/dev/null; then
  echo "skipped in part: no gnuplot for the picture"
  exit 0
fi
# One file, the named one: what lies next to it is the user's.
for name in days.csv days.png; do
  echo mine >"$WORK/pictures/$name"
done
expect 0 plan pythia-410m --gpu 1x3090,2x3090,8xa100 -o "$WORK/pictures/days.svg"
grep -q 'RTX 3090' "$WORK/pictures/days.svg" || fail "$LAST: the picture does not name its GPUs"
[[ $(cat "$WORK"/pictures/days.{csv,png}) == mine$'\n'mine && $(find "$WORK/pictures" -type f | wc -l) == 3 ]] ||
  fail "$LAST: it wrote to files that nobody named"
expect 0 plan pythia-160m --gpu 1x3090,2x3090 --stack pytorch -o "$WORK/pictures/a'\"<b.svg"
grep -q 'PyTorch' "$WORK/pictures/a'\"<b.svg" || fail "$LAST: the picture does not name its software"
! grep -q "a'\"<b" "$WORK/pictures/a'\"<b.svg" || fail "$LAST: the file's name is in its markup"
expect 0 plan pythia-160m --gpu 1x3090,2x3090 -o "$WORK/pictures/days.png"
[[ $(head -c 4 "$WORK/pictures/days.png" | tail -c 3) == PNG ]] || fail "$LAST: days.png is no PNG"
