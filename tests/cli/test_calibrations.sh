#!/usr/bin/env bash
# Calibrations of others: loaded, listed, named, used; what whole steps say, learned from files of trials.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
cd "$GD_SOURCE_DIR" || exit

cp data/calibration/h200.json "$WORK/from kim.json"
expect 2 calibrate load "$WORK/from kim.json"
said "is no name for a calibration"
# A name is taken as it is or refused: nothing is kept elsewhere, or under another name.
for name in ../evil lab/kim .kim kim.json Kim "$(printf 'k%.0s' {1..101})"; do
  expect 2 calibrate load "$WORK/from kim.json" "$name"
  silent
  said "is no name for a calibration; give one of small letters, digits, '.', '-' and '_', without a folder or .json"
done
[[ -z $(find "$WORK" -name '*evil*' -o -name 'kim.json*' -o -name 'lab') ]] || fail "something was kept"
expect 0 calibrate load "$WORK/from kim.json" kim
shown "kim: NVIDIA H200"
[[ -s $XDG_DATA_HOME/gpudays/calibration/kim.json ]] || fail "not kept"
expect 2 calibrate load "$WORK/from kim.json" kim
said "there is a calibration kim already"
echo '{"format": 1}' >"$WORK/broken.json"
expect 2 calibrate load "$WORK/broken.json"
[[ ! -e $XDG_DATA_HOME/gpudays/calibration/broken.json ]] || fail "a broken file is kept"
# Times that its own peak does not allow, and none at all.
sed -E '/^ *\["matmul"/s/,[0-9.e-]+\](,?)$/,1e-12]\1/' data/calibration/h200.json >"$WORK/fast.json"
cmp -s "$WORK/fast.json" data/calibration/h200.json && fail "no time was changed"
expect 2 calibrate load "$WORK/fast.json"
said "these times are not of that device"
# Peaks and memory that no such GPU has, taken or named by path.
sed -E 's/("bf16": )[0-9.e+]+/\15e15/' data/calibration/h200.json >"$WORK/peak.json"
sed -E 's/("memory_bytes_per_s": )[0-9.e+]+/\11e14/' data/calibration/h200.json >"$WORK/memory.json"
for what in "peak peaks.bf16 is 5e+15 FLOP/s" "memory memory_bytes_per_s is 1e+14"; do
  expect 2 calibrate load "$WORK/${what%% *}.json"
  said "${what#* }, and the data sheet of the NVIDIA H200 SXM 141 GB says"
  expect 2 plan pythia-14m --gpu h200 --calibration "$WORK/${what%% *}.json"
  said "this was not measured on it"
done
sed -E '/^ *\["/d' data/calibration/h200.json >"$WORK/empty.json"
expect 2 calibrate load "$WORK/empty.json"
said "a list of 1 to 100,000 points"
expect 2 calibrate load
expect 2 calibrate nonsense
said "calibrate takes learn, load or list"
expect 0 calibrate list --json
[[ $(grep -c '"name"' "$OUT") == 3 ]] || fail "not three calibrations"
expect 0 calibrate list
shown "in the program"
shown "29 trials of 9 models"

# By name, and a wrong one.
expect 0 plan pythia-1b --gpu h200 --methods free-lunch --calibration kim --json
kim=$(field step_s)
expect 0 plan pythia-1b --gpu h200 --methods free-lunch --calibration h200 --json
[[ $(field step_s) == "$kim" ]] || fail "the same file, other times"
expect 2 plan pythia-1b --gpu h200 --calibration nobody
said 'unknown calibration "nobody"; there are kim'
expect 2 plan pythia-1b --gpu h200 --calibration epyc-2-threads
said "--gpu needs one of a GPU"
expect 0 plan pythia-14m --backend cpu --methods free-lunch --calibration epyc-2-threads --json
field_is predicted true

# A colleague's, of a GPU without trials: what calibrations alone missed elsewhere is the interval.
grep -vE '^  "(learned|errors)":' data/calibration/h200.json >"$WORK/alone.json"
expect 0 calibrate load "$WORK/alone.json"
expect 0 plan pythia-1b --gpu h200 --methods free-lunch --calibration alone
tr -s ' \n' ' ' <"$OUT" >"$WORK/said"
grep -F "compared with no trial here; on another GPU a calibration alone was off by 12 %" "$WORK/said" >/dev/null ||
  fail "it is not said what the interval rests on"
grep -F "interval of 90 % x0.79 to x1.27" "$WORK/said" >/dev/null || fail "another interval"
expect 0 plan pythia-1b --gpu a100 --methods free-lunch --calibration alone
tr -s ' \n' ' ' <"$OUT" | grep -F "errors of calibrations alone, since there are no trials of it (x0.79 to x1.27)" \
  >/dev/null || fail "carried over from a calibration alone: not said"

# Of several of one GPU, the one that trials taught is taken, and of these the newest, whatever its name.
sed 's/"date": "2026/"date": "2027/; s/"host_bytes_per_s": [0-9.e+]*/"host_bytes_per_s": 1e9/' data/calibration/h200.json \
  >"$WORK/a new one.json"
expect 0 calibrate load "$WORK/a new one.json" zoe
slow=(plan pythia-1b --gpu h200 --methods free-lunch+fsdp3+offload --threads 16 --json)
expect 0 "${slow[@]}" --calibration zoe
zoe=$(field step_s)
expect 0 "${slow[@]}" --calibration kim
[[ $(field step_s) != "$zoe" ]] || fail "a slower host changes nothing"
expect 0 "${slow[@]}"
[[ $(field step_s) == "$zoe" ]] || fail "the newest was not taken"
rm "$XDG_DATA_HOME/gpudays/calibration/zoe.json"

# Learned from a few trials; the sentence names them.
awk 'NR == 1 || /^(vit|pythia-410m),/' results/h200.csv >"$WORK/few.csv"
expect 2 calibrate learn "$WORK/few.csv" --calibration epyc-2-threads
said "too few to learn from"
expect 0 calibrate learn "$WORK/few.csv" --calibration kim --json
field_is learned_from "4 trials of 2 models, few.csv"
field_above energy 0.5
field_above worst_error 0
expect 0 plan pythia-1b --gpu h200 --methods free-lunch --calibration kim --json
grep -q "learned from 4 trials of 2 models, few.csv" "$OUT" || fail "the sentence does not say what was learned"
[[ $(field step_s) != "$kim" ]] || fail "nothing was learned"
# A file that is not there is what is wrong, whether this machine was calibrated or not.
for calibration in "" "--calibration kim"; do
  # shellcheck disable=SC2086
  expect 2 calibrate learn "$WORK/nothing.csv" $calibration
  said "$WORK/nothing.csv: "
  said "No such file"
done
# A step that is faster than the device by its own peak is no trial of it.
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; print; next }
  /^vit,/ { f = 1e-4 # every time, and what follows from it
    split("micro_step_s last_micro_step_s update_s step_s days days_low days_high warmup_s", times, " ")
    for (i in times) if ($(at[times[i]]) != "") $(at[times[i]]) = sprintf("%.17g", $(at[times[i]]) * f)
    split("tokens_per_s samples_per_s peak_flops", rates, " ")
    for (i in rates) $(at[rates[i]]) = sprintf("%.17g", $(at[rates[i]]) / f)
    print }' results/h200.csv >"$WORK/faster.csv"
expect 2 calibrate learn "$WORK/faster.csv" --calibration kim
said "$WORK/faster.csv, line 2: a step of vit in "
said "and the peak of the NVIDIA H200 is"
# What results save wrote goes through a database; what other programs disturbed is passed over.
expect 2 calibrate learn "$WORK/theirs.jsonl" --calibration kim
said "'gpudays results load $WORK/theirs.jsonl --store theirs.db', then 'calibrate learn --store theirs.db'"
awk -F, -v OFS=, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
  NR > 1 && $1 == "pythia-14m" { $(at["busy_share"] + 4) = 0.3 } # four commas are inside of quotes
  NR == 1 || $1 ~ /^(pythia-14m|vit-base|gpt2)$/' \
  results/epyc.csv >"$WORK/busy.csv"
expect 0 calibrate learn "$WORK/busy.csv" --calibration epyc-2-threads -o "$WORK/learned.json" --json
field_is learned_from "6 trials of 2 models, busy.csv"
awk -F, 'NR == 1 || $1 ~ /^(pythia-14m|gpt2)$/' "$WORK/busy.csv" >"$WORK/busier.csv"
expect 2 calibrate learn "$WORK/busier.csv" --calibration epyc-2-threads
said "more while other programs used over 5 % of the CPUs) are too few to learn from"
