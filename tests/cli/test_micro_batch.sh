#!/usr/bin/env bash
# The micro-batch that `plan` chooses is the fastest by prediction, not the largest: more memory
# never makes a plan slower.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

# days MODEL GPU METHOD GIB [OPTION]...
days() {
  expect 0 plan "$1" --gpu "$2" --methods "$3" --device-memory "$4GiB" --json "${@:5}"
  field days
}

while read -r model gpu method sizes; do
  before="" at=""
  for size in $sizes; do
    now=$(days "$model" "$gpu" "$method" "$size")
    [[ -z $before ]] || awk -v now="$now" -v before="$before" 'BEGIN { exit !(now <= 1.0001 * before) }' ||
      fail "$model, $method on $gpu: $now days in $size GiB, $before in $at"
    before=$now at=$size
  done
done <<'END'
pythia-410m 3090 free-lunch 16 19 20 21 22 23
pythia-160m 3090 free-lunch 6 8 10 12 14
pythia-1b 2xa100-40gb free-lunch+zero1 20 24 28 32 36
END

# Where layers recompute at the largest size that fits, half of it is held against it.
chosen=$(days pythia-410m 3090 free-lunch 22)
size=$(field micro_batch)
for other in $((size / 2)) $((2 * size)); do
  awk -v a="$chosen" -v b="$(days pythia-410m 3090 free-lunch 22 --micro-batch "$other")" 'BEGIN { exit !(a <= b) }' ||
    fail "micro-batch $other is faster than $size"
done

# No interval ends above the peak, by the FLOPs that run: recomputed ones count, masked scores do not.
for question in "pythia-160m --gpu 3090" "pythia-160m --gpu 4xa100" "pythia-410m --gpu 4x3090 --methods free-lunch+ckpt" \
  "pythia-31m --gpu 3090 --seq 24576 --batch 64 --tokens 1B" "pythia-410m --gpu 3090 --seq 16384 --batch 64"; do
  read -ra words <<<"$question"
  expect 0 plan "${words[@]}" --json
  mfu=$(field mfu) flops=$(field flops_per_step) ran=$(field executed_flops_per_step)
  awk -v share="$mfu" -v flops="$flops" -v ran="$ran" -v days="$(field days)" -v low="$(field days_low)" '
    BEGIN { exit !(share > 0 && low < days && share * ran / flops * days / low <= 1.0001) }' ||
    fail "$LAST: the fast end is above the peak"
done
# A causal model of long sequences can be above 100 % MFU, whose scores are all counted: the answer says so.
expect 0 plan pythia-31m --gpu 3090 --seq 24576 --batch 64 --tokens 1B
tr -s ' \n' ' ' <"$OUT" | grep -E "MFU 1[0-9]+ % \(HFU [0-9]+ %: masked scores are skipped\)" >/dev/null || fail "$LAST: no HFU"
expect 0 cost pythia-31m --gpu 3090 --seq 24576 --batch 64 --tokens 1B
! grep -E "impossible|doubtful" "$OUT" || fail "$LAST: what can be is called impossible"
