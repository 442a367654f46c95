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
shown "METHOD"
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
[[ $(cells 8) == "0.01000 1.625 39.75 50.12 80.50" ]] || fail "not by days: $(cells 8)"
expect 0 results --sort days --status ok --reverse --limit 2
[[ $(cells 8) == "80.50 50.12" ]] || fail "not by days from the end: $(cells 8)"
expect 0 results --sort model
[[ $(cells 2 | cut -d' ' -f1,2) == "pythia-12b pythia-14m" ]] || fail "not by model"

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
[[ $(cells 8) == "1.625 39.75" ]] || fail "not the best: $(cells 8)"
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

# Methods change the FLOPs that are executed, not the recipe nor the model's FLOPs: free-lunch trims
# a position that naive computes.
expect 0 results --model pythia-14m --method naive --json
naive=$(grep -m1 '"flops_per_step"' "$OUT") naive_executed=$(field executed_flops_per_step)
expect 0 best pythia-14m --device epyc --json
field_is method free-lunch
[[ $(grep -m1 '"flops_per_step"' "$OUT") == "$naive" ]] || fail "the FLOPs of naive and free-lunch differ"
[[ $(field executed_flops_per_step) != "$naive_executed" ]] || fail "free-lunch executes all of them"
expect 1 best pythia-14m --precision fp32
said "4 with --precision"
said "gpudays bench pythia-14m --precision fp32 --methods all"
expect 0 best pythia-14m --batch 8 --seq 64
[[ $(cells 8) == 0.01000 ]] || fail "not the short one: $(cells 8)"

# For programs: exact numbers, provenance.
expect 0 results --model pythia-12b --json
field_is status infeasible
field_is host lab2
field_is time 2024-05-05T10:00:00.000Z
field_is best null
expect 0 results --csv
[[ $(wc -l <"$OUT") == 7 ]] || fail "CSV has a header and 6 rows"
shown ",provenance.host,"

# Each row has an ID, the same in every database that it is saved to and loaded from.
expect 0 results --sort days --status ok
id=$(sed -n 2p "$OUT" | cut -d' ' -f1)
[[ $id =~ ^[0-9a-f]{8}$ ]] || fail "$LAST: '$id' is no ID"
cells 1 >"$WORK/ids"
expect 0 results --sort days --status ok --store "$WORK/piped.db"
[[ $(cells 1) == "$(<"$WORK/ids")" ]] || fail "IDs change when trials are saved and loaded"
expect 0 results --id "${id:0:5}"
rows 1
expect 0 results --id "$id" --json
field_is id "$id"
expect 0 results --csv
grep -q ",$id," "$OUT" || fail "$LAST: no column id"
cp "$OUT" "$WORK/table.csv"
expect 0 results load "$WORK/table.csv" --store "$WORK/table.db"
shown "loaded 6 trials"
# best and export take the trial that is named, if it is of the recipe.
expect 0 best pythia-14m --device epyc
id=$(sed -n 2p "$OUT" | cut -d' ' -f1)
expect 0 best pythia-14m --id "$id"
rows 1
expect 0 export pythia-14m --id "$id" --format hf --json
field_is method free-lunch
expect 1 export pythia-14m --id 0000 --format hf
said "no good trial of pythia-14m with --id 0000"
expect 2 results --id xyz
said 'an ID that '

# Removing: one row at once, several with --yes; without it they are shown and stay.
expect 0 results save "$WORK/all"
removing() { GPUDAYS_DB=$WORK/removing.db expect "$@"; }
removing 0 results load "$WORK/all"
removing 0 results remove "$id"
shown "removed 1 trial"
removing 1 results --store "$WORK/removing.db" remove "$id"
said "no trial that matches has the ID $id; nothing was removed"
removing 0 results --total --history --json
field_is trials 6
removing 2 results remove --model pythia-14m --json
field_is removed 0
matching=$(field matching)
((matching > 1)) || fail "$LAST: $matching rows"
said "$matching trials match and none was removed; --yes removes them"
removing 2 results remove --model pythia-14m
shown "pythia-14m"
! grep -q pythia-12b "$OUT" || fail "$LAST: lists what it would not remove"
removing 0 results --total --history --json
field_is trials 6
# A filter means what is listed; what that superseded stays history, an ID reaches it.
removing 0 results remove --model pythia-14m --yes
shown "removed $matching trials"
removing 0 results --history
cells 1 >"$WORK/ids"
removing 0 results --model pythia-14m --history
rows 1
# shellcheck disable=SC2046
removing 0 results remove $(cat "$WORK/ids") --yes --json
field_is removed 2
removing 0 results
shown "no finished trials"
shown "gpudays results load h200"
removing 1 results remove --model nope
said "no trial matches"
for arguments in "" "12g4" "123" "$id --id $id" "$id --sort days" "$id --total" "$id --csv"; do
  # shellcheck disable=SC2086
  removing 2 results remove $arguments
done
removing 2 results --yes
# Removed is as never measured: correcting a trial is removing and measuring it.
tiny_config "$WORK/small"
small=("$WORK/small" --seq 8 --batch 4 --steps 10 --threads 1 --sample-seconds 0.05 --methods naive --json)
removing 0 bench "${small[@]}"
removing 0 bench "${small[@]}"
field_is source store
removing 0 results remove --model small
removing 0 bench "${small[@]}"
field_is source run

# What comes with gpudays needs no path, and is the same as from its file.
for name in h200 epyc; do
  GPUDAYS_DB=$WORK/named.db expect 0 results load "$name"
  shown " from $name; 0 more"
  GPUDAYS_DB=$WORK/named.db expect 0 results load "$GD_SOURCE_DIR/results/$name.csv" --json
  field_is added 0
  field_above known 20
done
GPUDAYS_DB=$WORK/named.db expect 2 results load h201
said "h201: there is no such file, and of the results that come with gpudays (epyc, h200)"

# Where rows are otherwise alike, what they differ in is shown; elsewhere it is not.
expect 0 results --model pythia-14m --device epyc --status ok
! grep -qE 'LIMIT|VERSION|MEASURED|MACHINE' "$OUT" || fail "$LAST: columns that tell nothing apart"
sed 's/"host":"[^"]*"/"host":"lab9"/; s/"version":"[^"]*"/"version":"0.0.9"/' "$saved" >"$WORK/twin"
head -1 "$saved" >"$WORK/twin.jsonl"
tail -n +2 "$WORK/twin" >>"$WORK/twin.jsonl"
GPUDAYS_DB=$WORK/twin.db expect 0 results load "$saved"
GPUDAYS_DB=$WORK/twin.db expect 0 results load "$WORK/twin.jsonl"
GPUDAYS_DB=$WORK/twin.db expect 0 results --model pythia-14m --device epyc
shown MACHINE
shown lab9
! grep -q 'HOST LIMIT' "$OUT" || fail "$LAST: columns that tell nothing apart"

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
sample=(--seq 8 --batch 4 --steps 10 --threads 1 --sample-seconds 0.05 --methods naive --json)
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
expect 0 results --json --model 'm[1]'
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

# Where others had more than half of the cores the time may be many times too long: such a trial is
# chosen only where there is no other, and never without a word. On a GPU that counts with offload.
# loud PATTERN: the trials whose lines match it were measured so.
loud() {
  sed "/$1/s/\"busy_share\":[^,]*/\"busy_share\":0.62/" "$saved" >"$WORK/loud"
  rm -f "$WORK/loud.db"*
  GPUDAYS_DB=$WORK/loud.db expect 0 results load "$WORK/loud"
}
# chosen METHOD [NOTED]: what best and export take; NOTED: the methods to measure again.
chosen() {
  local command
  for command in "best pythia-14m --device epyc" "export pythia-14m --device epyc --format hf --json"; do
    # shellcheck disable=SC2086
    GPUDAYS_DB=$WORK/loud.db try $command --json
    [[ $RC == 0 ]] || fail "$LAST: exit $RC"
    grep -q "\"method\": \"$1\"" "$OUT" || fail "$LAST: not $1"
    [[ -z ${2:-} ]] || grep -qF "had up to 62 % of the cores" "$OUT" "$ERR" || fail "$LAST: no note"
    [[ -z ${2:-} ]] || grep -qF "gpudays bench pythia-14m --methods $2 --fresh measures again" "$OUT" "$ERR" ||
      fail "$LAST: another note"
    [[ -n ${2:-} ]] || silent_errors
  done
}
silent_errors() {
  [[ ! -s $ERR ]] || fail "$LAST: something on stderr"
}
loud 'nothing'
chosen free-lunch
loud '"method":"free-lunch",.*EPYC'
chosen free-lunch+ckpt free-lunch
loud 'EPYC'
chosen free-lunch free-lunch,free-lunch+ckpt,naive
loud 'cuda'
GPUDAYS_DB=$WORK/loud.db expect 0 cost pythia-14m --times measured --json
shown "while other programs had 62 % of the cores: too long, and to be measured again"
# And one that took twice as long on quiet cores.
awk 'function scale(name, by,  length_) {
    if (!match($0, "\"" name "\":[0-9.e+-]+")) exit 1
    length_ = length(name) + 3
    $0 = sprintf("%s\"%s\":%.17g%s", substr($0, 1, RSTART - 1), name,
      by * substr($0, RSTART + length_, RLENGTH - length_), substr($0, RSTART + RLENGTH))
  }
  { print }
  /"status":"ok".*"backend":"cuda"/ {
    n = split("micro_step_s update_s step_s step_half_width_s micro_step_half_width_s update_half_width_s days days_low days_high", longer)
    for (i = 1; i <= n; i++) scale(longer[i], 2)
    n = split("tokens_per_s samples_per_s mfu hfu", less)
    for (i = 1; i <= n; i++) scale(less[i], 0.5)
    sub(/"method":"[^"]*"/, "\"method\":\"free-lunch+ckpt+zero2\"")
    sub(/"busy_share":[^,]*/, "\"busy_share\":0.01")
    sub(/"key":"[^"]*"/, "\"key\":\"table;key=0123456789abcdef0123456789abcdef\"")
    print
  }' "$WORK/loud" >"$WORK/both"
GPUDAYS_DB=$WORK/both.db expect 0 results load "$WORK/both"
shown "loaded 8 trials"
GPUDAYS_DB=$WORK/both.db expect 0 cost pythia-14m --times measured --json
shown '"method": "free-lunch+ckpt+zero2"'
! grep -q "had 62 %" "$OUT" || fail "$LAST: the disturbed one is chosen"

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
[[ $(cells 8) == 36.36 ]] || fail "not the best of Pythia-1B: $(cells 8)"
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
refused micro_step_s '"micro_step_s":[0-9.]+/"micro_step_s":0.0'
refused tokens_per_s '"tokens_per_s":[0-9.]+/"tokens_per_s":1.0'
refused peak_bytes '"peak_bytes":[0-9]+/"peak_bytes":1'
refused samples '"micro_step_ns":\[\]/"micro_step_ns":[1]'
refused loss '"loss":[0-9.]+/"loss":-1.0'
refused loss '"loss":[0-9.]+/"loss":1e30'
refused norm '"norm":[0-9.]+/"norm":-1.0'
sed '2s/,36[.][0-9]*,/,35.0,/; 2s/,ok,/,fine,/' "$GD_SOURCE_DIR/results/h200.csv" >"$WORK/table.csv"
expect 2 results load "$WORK/table.csv"
said "status"
refused days_high '"days_high":[0-9.]+/"days_high":0.5'
refused device_limit_bytes '"device_limit_bytes":[0-9]+/"device_limit_bytes":1'
refused step_s '"status":"ok"/"status":"failed"'
refused step_s '"status":"ok"/"status":"infeasible"'
refused norm '"norm":[0-9.]+/"norm":1e30'
refused days_high '"days_high":[0-9.]+/"days_high":900'
refused step_half_width_s '"update_half_width_s":[0-9.e-]+/"update_half_width_s":70'
refused peak_bytes '"bytes":[{]"parameters":[0-9]+/"bytes":{"parameters":7'
refused parameters '"parameters":[0-9]+,"micro_batch"/"parameters":7,"micro_batch"'
said "as the model of that name has"
refused parameters '"parameters":[0-9]+,"micro_batch"/"parameters":0,"micro_batch"'
refused accumulation '"accumulation":256/"accumulation":0'
refused duplicate '"ranks":1/"ranks":1,"ranks":1'

# table COLUMN VALUE [LINE [NAMED]]: the published table with one cell changed is refused, and the
# sentence names that line and column, or the column NAMED. In lines 2 and 3 no cell has a comma.
table() {
  local line=${3:-2}
  awk -F, -v OFS=, -v column="$1" -v value="$2" -v line="$line" '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i == column) at = i }
    NR == line { $at = value } { print } END { exit !at }' \
    "$WORK/published.csv" >"$WORK/table.csv" || fail "no column $1"
  ! cmp -s "$WORK/published.csv" "$WORK/table.csv" || fail "nothing was changed: $1"
  expect 2 results load "$WORK/table.csv"
  said "table.csv, line $line, column \"${4:-$1}\""
}
# A second one of the same plan that does not fit, without the cells of what was measured.
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) name[i] = $i }
  NR == 2 { print
    for (i = 1; i <= NF; i++)
      if (name[i] == "status") $i = "infeasible"
      else if (name[i] == "feasible") $i = "false"
      else if (name[i] == "device_limit_bytes") $i = 1000
      else if (name[i] ~ /^(micro_step_s|update_s|step_s|days.*|.*_per_s|mfu|hfu|loss|grad_norm)$/) $i = "" }
  { print }' "$GD_SOURCE_DIR/results/h200.csv" >"$WORK/published.csv"
GPUDAYS_DB=$WORK/two.db expect 0 results load "$WORK/published.csv"
shown "loaded 31 trials"
table feasible false
said "expected true, as the status is ok"
table feasible true 3
said "expected false, as the status is infeasible"
table feasible maybe
table count 2
said "expected 1, as many as ranks"
table ranks 2 2 count # of two columns that differ the one that repeats the other
said "expected 2, as many as ranks"
table nodes 2
said "expected at most as many as ranks"
table backend abc
said "expected the name of a backend"
table remainder 1 2 accumulation
said "micro_batch, the last remainder"
table gpu "NVIDIA H100"
said "expected the same as device"
# The table has these under other names than a record has, or in another form.
table days_high 0.001
said "expected at least days"
table days_low 1000
table categories.gradients 9e15
table host_categories.inputs -1
table executed_flops_per_step -1
table grad_norm 0
table key hello
table mfu 0.1
said "expected the FLOPs of a step / step_s / peak_flops"
table device_limit_bytes 1000
table days 1 3
said "expected 0, as the status is infeasible"
table grad_norm 1e30
# powered FACTOR: the first trial drew 500 W, and its energy is FACTOR times that.
powered() {
  awk -F, -v factor="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i
      print $0 ",gpu_power_w,energy_kwh"; next }
    NR == 2 { printf "%s,500,%.17g\n", $0, factor * 500 * 24 * $at["days"] / 1000; next }
    { print $0 ",," }' "$WORK/published.csv" >"$WORK/table.csv"
}
powered 1
GPUDAYS_DB=$WORK/powered.db expect 0 results load "$WORK/table.csv"
powered 2
expect 2 results load "$WORK/table.csv"
said 'table.csv, line 2, column "energy_kwh"'
table days_low 0.0001
said "as far below days as days_high is above"
table categories.gradients 7 2 peak_bytes
said "the sum of its bytes by category"
table parameters 1000
said "as the model of that name has"
table tokens_per_s 1e9
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "tokens_per_s") at = i }
  NR == 2 { $at = sprintf("%.17g", 10 * $at) } { print }' "$WORK/published.csv" >"$WORK/table.csv"
expect 2 results load "$WORK/table.csv"
said 'column "tokens_per_s"'
sed '1s/$/,colour/; 2,$s/$/,red/' "$WORK/published.csv" >"$WORK/table.csv"
expect 2 results load "$WORK/table.csv"
said '"colour", is not one that '
# What a file says of its recipe is not believed: the trial is the one of its key and numbers.
recipe_of() { # STORE: of the first trial
  GPUDAYS_DB=$1 expect 0 results --json
  sed -n 's/^      "recipe": "\(.*\)".*/\1/p' "$OUT" | head -n 1
}
other=0123456789abcdef0123456789abcdef
for form in jsonl csv; do
  if [[ $form == jsonl ]]; then
    sed -n '1,2p' "$saved" >"$WORK/true.jsonl"
    sed -E "2s/\"recipe\":\"[^\"]*\"/\"recipe\":\"$other\"/" "$WORK/true.jsonl" >"$WORK/forged.jsonl"
  else
    GPUDAYS_DB=$WORK/true-jsonl.db expect 0 results --csv
    cp "$OUT" "$WORK/true.csv"
    sed "2s/$(recipe_of "$WORK/true-jsonl.db")/$other/" "$WORK/true.csv" >"$WORK/forged.csv"
  fi
  ! cmp -s "$WORK/true.$form" "$WORK/forged.$form" || fail "no recipe in $form"
  for what in true forged; do
    GPUDAYS_DB=$WORK/$what-$form.db expect 0 results load "$WORK/$what.$form"
  done
  [[ $(recipe_of "$WORK/true-$form.db") == "$(recipe_of "$WORK/forged-$form.db")" ]] ||
    fail "the recipe of a file was believed: $form"
done
# That of a model that nobody here knows is known from the key alone.
sed '2s/pythia-14m/somebodys/g' "$WORK/true.csv" >"$WORK/table.csv"
GPUDAYS_DB=$WORK/foreign.db expect 0 results load "$WORK/table.csv"
[[ -z $(recipe_of "$WORK/foreign.db") ]] || fail "$LAST: a recipe out of nothing"

# Of the characters of a pattern * and ? are wild, and no other.
sed -n '1p' "$saved" >"$WORK/names"
sed -n '2s/pythia-14m/m[1]/gp' "$saved" >>"$WORK/names"
sed -n '2{s/pythia-14m/m1/g;s/1","provenance"/9","provenance"/p}' "$saved" >>"$WORK/names"
GPUDAYS_DB=$WORK/names.db expect 0 results load "$WORK/names"
shown "loaded 2 trials"
for pattern in 'm[1]' 'm[*' '?[1]'; do
  GPUDAYS_DB=$WORK/names.db expect 0 results --model "$pattern" --json
  shown '"model": "m[1]"'
  ! grep -qF '"model": "m1"' "$OUT" || fail "$LAST: lists m1"
done

for column in key ranks categories.inputs; do
  sed "1s/,$column,/,other,/" "$WORK/published.csv" >"$WORK/table.csv"
  expect 2 results load "$WORK/table.csv"
  said "table.csv has no column '$column'"
done
sed '1s/,loss,/,days,/' "$WORK/published.csv" >"$WORK/table.csv"
expect 2 results load "$WORK/table.csv"
said 'table.csv: columns 45 and 55 are both called "days"; expected each name once'
expect 2 accuracy "$WORK/table.csv"
said 'both called "days"'
# A table of an older gpudays has its own names.
sed '1s/,micro_step_s,/,pass_s,/' "$WORK/published.csv" >"$WORK/older.csv"
cp "$WORK/older.csv" "$WORK/published.csv"
table pass_s 0
# A last micro-step of its own stays in the table, however often it is written and loaded.
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
  NR == 2 { $at["last_micro_step_s"] = $at["pass_s"] } NR <= 2 { print }' \
  "$WORK/published.csv" >"$WORK/last.csv"
GPUDAYS_DB=$WORK/last1.db expect 0 results load "$WORK/last.csv"
GPUDAYS_DB=$WORK/last1.db expect 0 results --csv
cp "$OUT" "$WORK/last.csv"
grep -q . <(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 { print $at["last_micro_step_s"] }' "$WORK/last.csv") ||
  fail "the last micro-step is not in the table"
GPUDAYS_DB=$WORK/last2.db expect 0 results load "$WORK/last.csv"

# A name that turns the direction of writing, or moves the cursor, reaches no terminal.
sed '2s/AMD EPYC 9R14/AMD\\u001b[2J/' "$saved" >"$WORK/changed"
expect 2 results load "$WORK/changed"
said "without control characters"
sed '2s/AMD EPYC 9R14/AMD\xe2\x80\xaeEPYC\xe2\x81\xa6/' "$saved" >"$WORK/changed"
GPUDAYS_DB=$WORK/changed.db expect 0 results load "$WORK/changed"
GPUDAYS_DB=$WORK/changed.db expect 0 results
shown "AMD?EPYC?"
# What never ends is no file.
for endless in /dev/zero /dev/urandom; do
  run=(timeout 200 "$GPUDAYS" results load "$endless")
  "${run[@]}" 2>"$ERR" && fail "$endless was loaded"
  grep -q "is no file but a device" "$ERR" || fail "$endless: $(cat "$ERR")"
done
yes '' | timeout 200 "$GPUDAYS" results load /dev/stdin 2>"$ERR" && fail "empty lines were loaded"
grep -q "is empty" "$ERR" || fail "empty lines: $(cat "$ERR")"
head -1 "$saved" | cat - <(yes '' 2>/dev/null) | timeout 200 "$GPUDAYS" results load /dev/stdin 2>"$ERR" && fail "endless lines"
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

# A row is the same text wherever it stands: the first of a table is made apart, for its header.
export GPUDAYS_DB=$WORK/order.db
expect 0 results load "$saved"
expect 0 results --history --csv
sort "$OUT" >"$WORK/forward"
expect 0 results --history --csv --reverse
sort "$OUT" | cmp - "$WORK/forward" || fail "rows of CSV differ with their order"
# Trials of before, which do not say on how many devices they ran, have the columns of the others.
sed 's/"devices":[0-9]*/"devices":0/; s/"key":"table;key=0000/"key":"table;key=1111/' "$saved" >"$WORK/before"
sed 's/"devices":[0-9]*/"devices":1/; s/"key":"table;key=0000/"key":"table;key=2222/' "$saved" >"$WORK/today"
expect 0 results load "$WORK/before" --store "$WORK/mixed.db"
expect 0 results load "$WORK/today" --store "$WORK/mixed.db"
expect 0 results --history --csv --store "$WORK/mixed.db"
sed 's/"[^"]*"//g; s/[^,]//g' "$OUT" | sort -u >"$WORK/commas"
[[ $(wc -l <"$WORK/commas") == 1 ]] || fail "rows of CSV have different numbers of columns"
cp "$OUT" "$WORK/mixed.csv"
expect 0 results load "$WORK/mixed.csv" --store "$WORK/mixed2.db"
shown "loaded 14 trials"
# "best" is a trial of the list, word for word.
expect 0 results --json
awk '/^  "best_by_model": / { best = 1 } best' "$OUT" | grep '": .*[^{[]$' | grep -v ': null,*$' |
  sed 's/^ *//' >"$WORK/best"
awk '/^  "best": / { exit } { print }' "$OUT" | sed 's/^ *//' >"$WORK/trials"
[[ $(wc -l <"$WORK/best") -gt 60 ]] || fail "no best trial"
while IFS= read -r line; do
  grep -qxF -e "$line" -e "${line%,}" "$WORK/trials" || fail "best has $line, no trial does"
done <"$WORK/best"

# One value under its name of before and of today, and a method that switched passes off: refused.
tmp=$WORK/both.csv
sed '1s/,micro_step_s,/,micro_step_s,pass_s,/; 1!s/^\(\([^,"]*\|"[^"]*"\),\)\{1\}/&/' \
  "$GD_SOURCE_DIR/results/h200.csv" | awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "pass_s") at = i; print; next }
  { n = 0; line = ""; rest = $0
    while (match(rest, /^("[^"]*"|[^,]*)(,|$)/)) {
      cell = substr(rest, 1, RLENGTH); rest = substr(rest, RLENGTH + 1)
      if (++n == at) line = line "1,"
      line = line cell
      if (rest == "") break
    }
    print line }' >"$tmp"
expect 2 results load "$tmp" --store "$WORK/both.db"
said "twice, once as 'pass_s'"
sed 's/"method":"naive"/"method":"naive without trim"/' "$saved" >"$WORK/without.jsonl"
! cmp -s "$saved" "$WORK/without.jsonl" || fail "nothing was changed"
expect 2 results load "$WORK/without.jsonl" --store "$WORK/both.db"
said "method"
