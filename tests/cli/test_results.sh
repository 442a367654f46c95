#!/usr/bin/env bash
# `gpudays results` and `gpudays best` on a file of saved trials, and on databases that are no good.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
saved=$(cd "$(dirname "$0")" && pwd)/results.jsonl

# rows: how many rows the table of the last run has.
rows() {
  [[ $(($(wc -l <"$OUT") - 1)) == "$1" ]] || fail "$LAST: not $1 rows"
}
# cells N: column N of the table (no cell before it is empty or has two blanks), joined by blanks.
cells() {
  tail -n +2 "$OUT" | sed -E 's/ {2,}/\t/g' | cut -f"$1" | paste -sd' '
}

# The saved trials are as old as the program: its fields, its FLOPs, its recipes.
"$GD_SOURCE_DIR/tools/make_fixtures" "$WORK/made"
cmp "$saved" "$WORK/made" >"$OUT" || fail "$saved is older than the program; run tools/make_fixtures"

# Nothing yet: an answer, and a database in folders that are made on the way.
expect 0 results
shown "no finished trials"
[[ -f $XDG_DATA_HOME/gpudays/results.db ]] || fail "no database was made"
expect 0 results --json
field_is best null
expect 0 results --pending
shown "no pending trials"
expect 1 best pythia-14m
said "gpudays bench pythia-14m"

# Load twice: nothing is doubled; what was superseded is history.
expect 0 results load "$saved"
shown "loaded 7 trials"
expect 0 results load "$saved" --json
field_is added 0
field_is known 7
expect 0 results
rows 6
shown "FREE LUNCH"
shown "zero2"
# One row is not of the preset's recipe: each says which it is; MFU says of which peak.
shown "8 x 64, 143,000 steps"
shown "1,024 x 2,049, 143,000 steps"
shown "OF PEAK"
expect 0 results --history
rows 7

# Through a pipe, as save - writes into one.
LAST="results save - | results load -" RC=0
"$GPUDAYS" results save - 2>"$ERR" | "$GPUDAYS" results load - --store "$WORK/piped.db" >"$OUT" || RC=$?
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
shown "loaded 7 trials from standard input"
# What is saved is what was loaded, byte for byte: no number loses a digit on the way.
expect 0 results save "$WORK/again"
shown "saved 7 trials"
cmp "$saved" "$WORK/again" >"$OUT" || fail "what was saved differs from what was loaded"

# Filters, alone and together.
expect 0 results --model pythia-12b
rows 1
shown infeasible
expect 0 results --model 'pythia-1?m'
rows 5
expect 0 results --model 'pythia-*' --device a100 --status ok
rows 1
expect 0 results --method ckpt+free-lunch
rows 1
expect 0 results --host lab2
rows 2
expect 0 results --ranks 4
rows 2
expect 0 results --since 2024-05-06
rows 2
expect 0 results --since 7d
shown "no finished trials"
expect 0 results --model nope
shown "no finished trials"

# Sorting.
expect 0 results --sort days --status ok
[[ $(cells 10) == "0.01000 1.625 39.75 50.12 80.50" ]] || fail "not by days: $(cells 10)"
expect 0 results --sort days --status ok --reverse --limit 2
[[ $(cells 10) == "80.50 50.12" ]] || fail "not by days from the end: $(cells 10)"
expect 0 results --sort model
[[ $(cells 1 | cut -d' ' -f1,2) == "pythia-12b pythia-14m" ]] || fail "not by model"

# Totals.
expect 0 results --total
shown "6 trials, 2 models, 2 devices: 5 ok, 1 infeasible"
expect 0 results --total --history --model pythia-14m --json
field_is trials 6
field_is ok 6
field_above measured_hours 0
expect 0 results --total --csv
[[ $(wc -l <"$OUT") == 2 ]] || fail "a total is one row"

# Best: of this recipe, not of the short one; the newest measurement, not the one it superseded.
expect 0 best pythia-14m
rows 2
[[ $(cells 10) == "1.625 39.75" ]] || fail "not the best: $(cells 10)"
! grep -q "RECIPE" "$OUT" || fail "one recipe goes without saying"
expect 0 best pythia-14m --device epyc --json
field_is days 39.75
[[ $(grep -c '"days":' "$OUT") == 2 ]] || fail "one trial, and it is the best"
expect 1 best pythia-14m --steps 7
said "1 with --batch 8 --seq 64 --steps 143000, 4 with --steps 143000; gpudays bench pythia-14m --steps 7"
expect 1 best pythia-14m --tokens 20B --seq 512
said "4 with --seq 2049 --steps 143000; gpudays bench pythia-14m --seq 512 --tokens 20B --methods all"
# A filter that leaves out what is stored is told from a store without trials.
expect 1 best pythia-14m --ranks 2
said "no good trial of pythia-14m with --ranks 2 is stored; without that there are 5; gpudays bench"
expect 1 best pythia-12b
expect 2 best
expect 2 best no-such-model

# Methods change the FLOPs of a step, not its recipe: free-lunch trims a position that naive computes.
expect 0 results --model pythia-14m --method naive --json
naive=$(grep -m1 '"flops_per_step"' "$OUT")
expect 0 best pythia-14m --device epyc --json
field_is method free-lunch
[[ $(grep -m1 '"flops_per_step"' "$OUT") != "$naive" ]] || fail "the FLOPs of naive and free-lunch are equal"
expect 1 best pythia-14m --precision fp32
said "4 with --precision"
said "gpudays bench pythia-14m --precision fp32 --methods all"
expect 0 best pythia-14m --batch 8 --seq 64
[[ $(cells 10) == 0.01000 ]] || fail "not the short one: $(cells 10)"

# For programs: exact numbers, provenance.
expect 0 results --model pythia-12b --json
field_is status infeasible
field_is host lab2
field_is time 2024-05-05T10:00:00.000Z
field_is best null
expect 0 results --csv
[[ $(wc -l <"$OUT") == 7 ]] || fail "CSV has a header and 6 rows"
shown ",provenance.host,"

# What cannot be meant.
for arguments in "--sort colour" "--status good" "--status planned" "--since yesterday" \
  "--since 2024-13-01" "--method nope" "--ranks 0" "--limit 0" "--flavour 3" "save" "load" \
  "keep x" "save x y" "--pending --status ok" "save x --model y" "--json --csv"; do
  # shellcheck disable=SC2086
  expect 2 results $arguments
  silent
done
expect 2 results load "$WORK/none"
said "$WORK/none"
echo '{"format":"gpudays results","version":1}' >"$WORK/bad"
echo '{"key":"x"}' >>"$WORK/bad"
expect 2 results load "$WORK/bad"
said "line 2"
expect 3 results save "$WORK/no/such/folder"

# Databases that are no good are named and stay as they are.
echo "my shopping list" >"$WORK/list"
cp "$WORK/list" "$WORK/list.copy"
GPUDAYS_DB=$WORK/list expect 3 results
said "$WORK/list is damaged"
cmp -s "$WORK/list" "$WORK/list.copy" || fail "the damaged file was changed"
GPUDAYS_DB=/proc/none/results.db expect 3 results
said "GPUDAYS_DB"
GPUDAYS_DB=$WORK expect 3 results
said "is no file"
GPUDAYS_DB=:memory: expect 3 results
said "would forget all results"

# --- what was loaded is not ours ----------------------------------------------------------------

tiny_config "$WORK/m[1]"
sample=(--seq 8 --batch 4 --steps 10 --threads 1 --sample-seconds 0.05 --json)
export GPUDAYS_DB=$WORK/ours.db
expect 0 bench "$WORK/m[1]" "${sample[@]}"
field_is source run
expect 0 bench "$WORK/m[1]" "${sample[@]}"
field_is source store
# A name is a name, also where a shell would take it for a pattern.
expect 0 best "$WORK/m[1]" --seq 8 --batch 4 --steps 10
rows 1
expect 0 results save "$WORK/mine"
# Another switch is another machine, and so is another driver: it is measured again.
GPUDAYS_DETERMINISTIC=1 expect 0 bench "$WORK/m[1]" "${sample[@]}"
field_is source run
expect 0 results --json
shown "GPUDAYS_DETERMINISTIC=1"
expect 0 bench "$WORK/m[1]" "${sample[@]}"
field_is source store
# Loaded elsewhere, the same trial is shown with its host and file, and does not answer.
export GPUDAYS_DB=$WORK/theirs.db
expect 0 results load "$WORK/mine"
expect 0 results
shown "LOADED"
shown ", mine"
expect 0 bench "$WORK/m[1]" "${sample[@]}"
field_is source run
expect 0 results
rows 2
expect 0 results --json --model 'm[[]1]'
shown '"origin": "mine"'
shown '"origin": "here"'

# What bench said of the load while measuring stays with the trial.
sed 's/"busy_share":[^,]*/"busy_share":0.5/' "$saved" >"$WORK/loud"
GPUDAYS_DB=$WORK/loud.db expect 0 results load "$WORK/loud"
for command in results "best pythia-14m"; do
  # shellcheck disable=SC2086
  GPUDAYS_DB=$WORK/loud.db expect 0 $command
  shown "other programs used up to 50 %"
done

# --- what is published --------------------------------------------------------------------------

export GPUDAYS_DB=$WORK/published.db
expect 0 results load "$GD_SOURCE_DIR/results/h200.csv"
shown "loaded 30 trials"
expect 0 results load "$GD_SOURCE_DIR/results/h200.csv" --json
field_is known 30
expect 0 results --model mamba --status infeasible
shown "250 GiB of 138 GiB"
expect 0 results --model vit
shown TF32
expect 0 results --model pythia-1b
! grep -q "OF PEAK" "$OUT" || fail "one peak goes without saying"
expect 0 best pythia-1b
shown "vm, h200.csv"
[[ $(cells 10) == 36.36 ]] || fail "not the best of Pythia-1B: $(cells 10)"
expect 0 results --csv
cp "$OUT" "$WORK/table.csv"
GPUDAYS_DB=$WORK/again.db expect 0 results load "$WORK/table.csv"
shown "loaded 30 trials"

# --- what cannot be -----------------------------------------------------------------------------

# refused WHAT EXPRESSION: the saved trials with one thing changed are refused, and why.
refused() {
  sed -E "2s/$2/" "$saved" >"$WORK/changed"
  cmp -s "$saved" "$WORK/changed" && fail "nothing was changed: $2"
  expect 2 results load "$WORK/changed"
  said "line 2"
  said "$1"
}
refused time '"time":"2024/"time":"9999'
refused time '-05-01T/-02-31T'
refused days '"days":[0-9.]+/"days":80.6'
refused mfu '"mfu":[0-9.]+/"mfu":"nan"'
refused mfu '"mfu":[0-9.]+/"mfu":-5'
refused mfu '"mfu":[0-9.]+/"mfu":0.9'
refused throttled_share '"throttled_share":0.0/"throttled_share":7'
refused gpu_throttled_share '"gpu_throttled_share":0.0/"gpu_throttled_share":-1'
refused gpu_max_clock_mhz '"gpu_max_clock_mhz":0/"gpu_max_clock_mhz":2000000000'
refused peak_flops '"peak_flops":[0-9.]+/"peak_flops":-1'
refused ranks '"ranks":1/"ranks":2147483647'
refused threads '"threads":8/"threads":2147483647'
refused peak_bytes '"peak_bytes":[0-9]+/"peak_bytes":4611686018427387904'
refused host_bytes '"host_bytes":[0-9]+/"host_bytes":5764607524000000'
refused step_s '"step_s":[0-9.]+/"step_s":"inf"'
refused key '"key":"[^"]*"/"key":"hello"'
refused method '"key":"[^"]*"/"key":"model=pythia-14m;graph=1;batch=1024;seq=2049;steps=143000;method=free-lunch;precision=bf16;ranks=1;backend=cpu;device=x"'
refused model '"model":"[^"]*"/"model":""'
refused device '"device":"[^"]*"/"device":""'
refused step_s '"accumulation":256/"accumulation":1'
refused accumulation '"micro_batch":4/"micro_batch":3'
refused pass_s '"pass_s":[0-9.]+/"pass_s":0.0'
refused tokens_per_s '"tokens_per_s":[0-9.]+/"tokens_per_s":1.0'
refused peak_bytes '"peak_bytes":[0-9]+/"peak_bytes":1'
refused samples '"pass_ns":\[\]/"pass_ns":[1]'
refused loss '"loss":[0-9.]+/"loss":-1.0'
refused loss '"loss":[0-9.]+/"loss":1e30'
refused norm '"norm":[0-9.]+/"norm":-1.0'
sed '2s/,36[.][0-9]*,/,35.0,/; 2s/,ok,/,fine,/' "$GD_SOURCE_DIR/results/h200.csv" >"$WORK/table.csv"
expect 2 results load "$WORK/table.csv"
said "status"
# A name that turns the direction of writing, or moves the cursor, reaches no terminal.
sed '2s/AMD EPYC 9R14/AMD\\u001b[2J/' "$saved" >"$WORK/changed"
expect 2 results load "$WORK/changed"
said "without control characters"
sed '2s/AMD EPYC 9R14/AMD\xe2\x80\xaeEPYC\xe2\x81\xa6/' "$saved" >"$WORK/changed"
GPUDAYS_DB=$WORK/turned.db expect 0 results load "$WORK/changed"
GPUDAYS_DB=$WORK/turned.db expect 0 results
shown "AMD?EPYC?"
# What never ends is no file.
for endless in /dev/zero /dev/urandom; do
  run=(timeout 20 "$GPUDAYS" results load "$endless")
  "${run[@]}" 2>"$ERR" && fail "$endless was loaded"
  grep -q "is no file but a device" "$ERR" || fail "$endless: $(cat "$ERR")"
done
yes '' | timeout 20 "$GPUDAYS" results load /dev/stdin 2>"$ERR" && fail "empty lines were loaded"
grep -q "is empty" "$ERR" || fail "empty lines: $(cat "$ERR")"
head -1 "$saved" | cat - <(yes '' 2>/dev/null) | timeout 20 "$GPUDAYS" results load /dev/stdin 2>"$ERR" && fail "endless lines"
grep -q "empty lines" "$ERR" || fail "endless lines: $(cat "$ERR")"

# --- many ---------------------------------------------------------------------------------------

# Rows are written as they come: 7,000 of them within 48 MiB, which kept would be over 100.
awk 'NR == 1 { print; next }
  { for (i = 0; i < 1000; i++) { line = $0; sub(/"key":"[^"]*"/, sprintf("\"key\":\"table;key=%016x%016x\"", NR, i), line); print line } }' \
  "$saved" >"$WORK/many"
export GPUDAYS_DB=$WORK/many.db
expect 0 results load "$WORK/many"
for format in --json --csv; do
  (ulimit -d 49152 && "$GPUDAYS" results --history "$format" >"$OUT" 2>"$ERR") || fail "7,000 trials as $format"
  [[ $(grep -c 0123456789ab "$OUT") -ge 7000 ]] || fail "not 7,000 trials as $format"
done
