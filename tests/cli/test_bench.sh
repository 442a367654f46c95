#!/usr/bin/env bash
# A measurement from end to end on a model that takes milliseconds: JSON, text, CSV, several models,
# and trials that are not good.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

tiny_config "$WORK/tiny"
quick=(--seq 8 --batch 4 --steps 10 --sample-seconds 1 --threads 1 --methods naive)

expect 0 bench "$WORK/tiny" "${quick[@]}" --json
field_is status ok
field_is model tiny
field_is method naive
field_is reason null
field_is ranks 1
field_is threads 1
field_is micro_batch 4
field_is accumulation 1
for name in micro_step_s update_s step_s days days_high tokens_per_s samples_per_s mfu hfu peak_flops loss \
  grad_norm peak_bytes host_bytes parameters train_flops warmup_s; do
  field_above "$name" 0
done
field_above days_low -1
field_above resident_bytes -1
[[ -n $(field busy_share) ]] || fail "no busy_share"
# ln(64) = 4.16 is the loss of a model that knows nothing.
awk -v loss="$(field loss)" 'BEGIN { exit !(loss > 3.9 && loss < 4.5) }' || fail "loss $(field loss)"
awk -v days="$(field days)" -v step="$(field step_s)" \
  'BEGIN { want = step * 10 / 86400; exit !(days > 0.999 * want && days < 1.001 * want) }' ||
  fail "days are not steps x step_s"
awk -v step="$(field step_s)" -v pass="$(field micro_step_s)" -v update="$(field update_s)" \
  'BEGIN { want = pass + update; exit !(step > 0.999 * want && step < 1.001 * want) }' ||
  fail "a step is not one pass and an update"
[[ $(sed -n '/"micro_step_s": \[/,/\]/p' "$OUT" | grep -cE '^ +[0-9.e-]+,?$') -ge 3 ]] ||
  fail "fewer than three samples"
shown '"best": {'
shown '"commit":'

expect 0 bench "$WORK/tiny" "${quick[@]}"
head -1 "$OUT" | grep '^tiny on ' >/dev/null || fail "another first line"
sed -n 2p "$OUT" | grep -E '^  time      [0-9,.]+ (us|ms|s|min|h|days)  \(95 %: [0-9.,]+ - [0-9.,]+\), done by ' >/dev/null ||
  fail "the answer is not the second line"
grep -qE '^  speed +[0-9,.]+ tokens/s; MFU [0-9.]+ %' "$OUT" || fail "no speed"
shown "  settings  naive (op by op), bf16, gradient accumulation"
shown "10 steps of 4 x 8 tokens"
shown ": plausible"
grep -qE "^  memory    [0-9.]+ MiB of [0-9.]+ GiB: workspace " "$OUT" || fail "no memory line"
shown "  next      gpudays train $WORK/tiny --batch 4 --seq 8 --steps 10 --threads 1 --methods naive --data FILE"
[[ $(awk 'length > 80' "$OUT") == "  next "* ]] || fail "more than 80 columns besides the command"
! grep -q $'\e' "$OUT" || fail "colours in a pipe"

# The seed alone decides the numbers.
loss() {
  expect 0 bench "$WORK/tiny" "${quick[@]}" --json --seed "$1"
  field loss
}
first=$(loss 7)
[[ $first == "$(loss 7)" ]] || fail "one seed, two losses"
[[ $first != "$(loss 8)" ]] || fail "two seeds, one loss"

# A smaller last micro-batch, another backend without a peak.
expect 0 bench "$WORK/tiny" "${quick[@]}" --batch 5 --micro-batch 2 --backend ref --json
field_is remainder 1
field_is accumulation 3
field_is backend ref
field_is mfu null
shown '"last_micro_step_s": ['
expect 0 bench "$WORK/tiny" "${quick[@]}" --batch 5 --micro-batch 2
tr -s ' \n' ' ' <"$OUT" | grep -F "gradient accumulation 3 x micro-batch 2, the last 1" >/dev/null ||
  fail "the last micro-batch is not said"

# Many days are shown in years too.
expect 0 bench "$WORK/tiny" "${quick[@]}" --steps 1000000000 --batch 4096 --micro-batch 1
grep -qE '^  time +[0-9,]+ days \([0-9,.]+ years\)  \(95 %: ' "$OUT" || fail "no years"

# Does not fit: shown, never best, exit 1; with a good one as well, exit 0.
expect 1 bench pythia-160m --device-memory 16MiB --json
field_is status infeasible
field_is days null
field_is loss null
shown '"best": null'
expect 1 bench pythia-160m --device-memory 16MiB
shown "infeasible"
shown "activations"
said "of device memory and has 16.0 MiB"
! grep -q activations "$ERR" || fail "the reason is told twice"
expect 0 results --model pythia-160m
shown "of 16.0 MiB"
expect 0 bench "$WORK/tiny" pythia-160m "${quick[@]}" --device-memory 16MiB
grep -qE '^  MODEL +METHOD +TIME +95 % +STEP' "$OUT" || fail "several models make no table"
grep -qE '^  pythia-160m +naive +infeasible$' "$OUT" || fail "the infeasible one is not in the table"
shown "of device memory"

# The days of two models are not compared: each has its own best, null where none is good. One model
# given twice is still one; two folders of one name are two.
expect 0 bench pythia-160m "$WORK/tiny" "${quick[@]}" --device-memory 16MiB --json
shown '"best": null'
[[ $(grep -c '"status": "ok"' "$OUT") == 2 ]] || fail "the good trial is not the best of its model"
sed -n '/^  "best_by_model": {$/,/^  }$/p' "$OUT" >"$WORK/best"
grep -qx '    "pythia-160m": null,' "$WORK/best" || fail "an infeasible trial is best"
grep -qx '    "tiny": {' "$WORK/best" || fail "the good model has no best trial"
expect 0 bench "$WORK/tiny" "$WORK/tiny" "${quick[@]}" --json
shown '"best": {'
! grep -q best_by_model "$OUT" || fail "one model twice is taken for two"
[[ $(field days) != null ]] || fail "no days"
awk '/"days":/ { gsub(/[",:]/, ""); days[++n] = $2 }
  END { low = days[1] < days[2] ? days[1] : days[2]; exit !(n == 3 && days[3] == low) }' "$OUT" ||
  fail "the best is not the one with the fewest days"
tiny_config "$WORK/other/tiny" 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'
expect 0 bench "$WORK/tiny" "$WORK/other/tiny" "${quick[@]}" --json
[[ $(grep -c '^    ".*/tiny": {$' "$OUT") == 2 ]] || fail "two models of one name share a best trial"
expect 0 bench "$WORK/tiny" "$WORK/tiny" "${quick[@]}" --csv
[[ $(wc -l <"$OUT") == 3 ]] || fail "not two rows of CSV"
grep -q ',days,days_low,days_high,tokens_per_s,' "$OUT" || fail "CSV has other columns"

# fp16 of one image at a time, and a last micro-batch of images that is smaller.
images=("$GD_SOURCE_DIR/tests/reference/vit-a" --sample-seconds 0.1 --json)
expect 0 bench "${images[@]}" --precision fp16 --micro-batch 1
field_is status ok
field_above grad_norm 0
expect 0 bench "${images[@]}" --precision fp32 --micro-batch 3
field_is status ok

# A compiled kernel that others could have written is not run, but compiled anew, and that is said
# once.
export XDG_CACHE_HOME=$WORK/cache
kernels=("$WORK/tiny" --methods free-lunch --seq 8 --batch 4 --sample-seconds 0.1 --no-store)
tiny_config "$WORK/tiny"
expect 0 bench "${kernels[@]}"
objects=("$XDG_CACHE_HOME/gpudays/kernels"/*.so)
[[ -f ${objects[0]} ]] || fail "no compiled kernels"
chmod 666 "${objects[0]}"
expect 0 doctor
shown "$(basename "${objects[0]}") can be written by others (mode 0666)"
try bench "${kernels[@]}"
[[ $RC == 0 && $(wc -l <"$ERR") == 1 ]] || fail "$LAST: exit $RC, or not one note"
said "1 of the compiled kernels in $XDG_CACHE_HOME/gpudays/kernels is not used"
said "$(basename "${objects[0]}") can be written by others (mode 0666)"
expect 0 bench "${kernels[@]}"
if [[ $(id -u) == 0 ]]; then
  chown 65534 "${objects[0]}" "${objects[1]}"
  try bench "${kernels[@]}"
  [[ $RC == 0 && $(wc -l <"$ERR") == 1 ]] || fail "$LAST: exit $RC, or not one note"
  said "2 of the compiled kernels in $XDG_CACHE_HOME/gpudays/kernels are not used"
  said "belongs to user 65534, and this is user 0"
  expect 0 bench "${kernels[@]}"
fi
unset XDG_CACHE_HOME

# Other programs that compute all the time: every sample is longer alike, and only busy_share tells.
# The model is large enough that its samples last the half second that the accounts need.
spinners=()
stop_spinners() {
  kill "${spinners[@]}" 2>/dev/null || true
  rm -rf "$WORK"
}
trap stop_spinners EXIT
for ((i = 0; i < $(nproc); i++)); do
  while :; do :; done &
  spinners+=($!)
done
busy=(pythia-14m --seq 256 --batch 8 --micro-batch 8 --threads 2 --sample-seconds 0.3)
expect 0 bench "${busy[@]}" --json
field_above busy_share 0.2
awk -v share="$(field busy_share)" 'BEGIN { exit !(share <= 1) }' || fail "more than all of the CPUs"
expect 0 bench "${busy[@]}"
grep -qE '^  note: other programs used [0-9]+ % of the CPUs' "$OUT" || fail "no note of the load"
[[ $(awk 'length > 80' "$OUT") == "  next "* ]] || fail "more than 80 columns besides the command"

# Threads that spin while they wait for one that is not running make a small model up to a thousand
# times slower. It is measured again with threads that sleep, which is faster nearly always, and
# stays a trial that others have disturbed.
for ((i = 0; i < 3 * $(nproc); i++)); do
  while :; do :; done &
  spinners+=($!)
done
unset OMP_WAIT_POLICY GOMP_SPINCOUNT
waits=("$GD_SOURCE_DIR/tests/reference/neox-parallel" --seq 32 --batch 8 --steps 10 --threads 2
  --methods naive --sample-seconds 1 --no-store --json)
export GPUDAYS_TEST_FAULT=naive=spun # how slow spinning threads are is up to the scheduler
for ((tries = 0; tries < 10; tries++)); do
  expect 0 bench "${waits[@]}"
  [[ $(field note) == null ]] || break
done
field_is note "its threads slept while they waited for each other (OMP_WAIT_POLICY=passive), as other programs had the CPUs"
field_above busy_share 0.5
low=$(field days_low)
awk -v low="$low" -v days="$(field days)" 'BEGIN { exit !(low < 0.5 * days) }' || fail "$LAST: the interval ends at $low"
# Who has chosen how threads wait is not asked again.
OMP_WAIT_POLICY=active expect 0 bench "${waits[@]}"
field_is note null
unset GPUDAYS_TEST_FAULT
