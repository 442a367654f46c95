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

# No interval is faster than the bound of `estimate`, and one that ends there says so.
for gpu in 3090 4xa100; do
  expect 0 estimate pythia-160m --gpu "${gpu#4x}" --count "$([[ $gpu == 4x* ]] && echo 4 || echo 1)" --json
  bound=$(field days)
  expect 0 plan pythia-160m --gpu $gpu --json
  awk -v low="$(field days_low)" -v bound="$bound" 'BEGIN { exit !(low >= 0.9999 * bound) }' ||
    fail "$LAST: $(field days_low) days are fewer than the bound, $bound"
done
expect 0 plan llama-3.2-1b --gpu 4x3090
low=$(sed -nE 's/.*MFU ([0-9]+) %.*/\1/p' "$OUT" | head -1)
[[ $low -lt 77 ]] || grep -q "100 % MFU" <(tr -s ' \n' ' ' <"$OUT") || fail "$LAST: MFU $low %, and the end at 100 % is not said"
