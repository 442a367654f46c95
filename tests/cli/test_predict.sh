#!/usr/bin/env bash
# Predictions: plans for hardware that is not here, simulated searches, fast ones, calibration.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

# Hardware one does not own: all 22 points, ranked, with days, interval and what they rest on.
expect 0 plan pythia-1b --gpu a100 --count 4 --methods all --json
[[ $(grep -c '"predicted": true' "$OUT") == 22 ]] || fail "not 22 predictions"
field_is gpu a100
field_is count 4
field_is backend cuda
field_is validated false
grep -q '"basis": "unvalidated' "$OUT" || fail "no basis"
sed -nE 's/^ *"days": ([0-9.]+),$/\1/p' "$OUT" >"$WORK/days"
sort -g "$WORK/days" | cmp - "$WORK/days" || fail "not ranked by days"
# No narrower than +-40 %.
awk '/"days":/ { d = $2 + 0 } /"days_low":/ { l = $2 + 0 } /"days_high":/ { h = $2 + 0
  if (!(l > 0 && l <= 0.6001 * d && h >= 1.4 * d)) exit 1 }' "$OUT" || fail "interval too narrow"
expect 0 plan pythia-1b --gpu a100 --count 4 --methods all
shown "predicted, not measured: unvalidated"
shown "NVIDIA H200"

# More and faster hardware takes less time; memory is the plan's.
days() { field days | sed 's/\..*//'; }
expect 0 plan pythia-410m --gpu rtx-3090 --methods free-lunch --json
slow=$(days) small=$(field peak_bytes)
expect 0 plan pythia-410m --gpu h200 --methods free-lunch --json
fast=$(days)
expect 0 plan pythia-410m --gpu h200 --count 2 --methods free-lunch --json
faster=$(days)
((slow > fast && fast > faster)) || fail "days: $slow, $fast, $faster"
((small < 24 * 1024 * 1024 * 1024)) || fail "more than the card has"

# What does not fit has no time, and says why.
expect 1 plan pythia-6.9b --gpu rtx-3090 --methods free-lunch --json
field_is feasible false
field_is days null
field_is predicted false

# Wrong questions.
expect 2 plan pythia-14m --count 4
said "--count needs --gpu"
expect 2 plan pythia-14m --gpu a100 --ranks 2
said "--count"
expect 2 plan pythia-14m --gpu no-such-gpu
expect 2 bench pythia-14m --gpu a100
said "--simulate"
expect 2 bench pythia-14m --simulate --fast
said "--simulate measures nothing"

# A machine that was not measured plans as ever, and says how to get times.
expect 0 plan pythia-14m --device-memory 4GiB --threads 1
shown "gpudays calibrate"

# Simulated: the table of bench, marked, and nothing kept.
expect 0 bench pythia-14m --simulate --gpu a100 --methods naive,free-lunch --json
[[ $(grep -c '"source": "predicted"' "$OUT") -ge 2 ]] || fail "not marked as predicted"
field_is status ok
[[ ! -e $XDG_DATA_HOME/gpudays/results.db ]] || fail "a simulation was stored"
expect 0 bench pythia-14m --simulate --gpu a100 --methods naive,free-lunch
shown "predicted, not measured"
shown "best for pythia-14m: free-lunch"

# Calibration within a few seconds, more where others keep the machine busy; times are predicted from
# then on.
for limit in 2s 10s 60s; do
  expect 0 calibrate --threads 1 --time-limit $limit --json
  [[ $(field points) -le 50 ]] || break
done
file=$(field file)
[[ -s $file ]] || fail "no calibration was written"
[[ $(field points) -gt 50 ]] || fail "only $(field points) points"
[[ $(field checked_trials) -ge 1 ]] || fail "nothing was checked"
expect 0 plan pythia-14m --device-memory 4GiB --threads 1 --json
field_is predicted true
expect 0 plan pythia-14m --device-memory 4GiB --threads 1
shown "calibrated here on"
# With other threads the rates are scaled, and nothing has validated that.
expect 0 plan pythia-14m --device-memory 4GiB --threads 2 --json
field_is predicted true
field_is validated false
echo '{"format": 1}' >"$file"
expect 2 plan pythia-14m --device-memory 4GiB --threads 1
said "peaks"
rm "$file"
expect 2 calibrate --backend ref

# Fast: some points are measured, the others are predicted and never stored.
expect 0 bench pythia-14m --seq 32 --batch 4 --steps 10 --threads 1 --sample-seconds 0.05 \
  --methods naive,free-lunch,free-lunch+ckpt,free-lunch+zero1+offload --fast --json
run=$(grep -c '"source": "run"' "$OUT") || true
((run >= 1)) || fail "nothing was measured"
expect 0 results --csv
stored=$(($(wc -l <"$OUT") - 1))
((stored <= run && stored >= 1)) || fail "$stored stored, $run measured"
