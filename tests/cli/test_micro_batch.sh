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
  last="" at=""
  for size in $sizes; do
    now=$(days "$model" "$gpu" "$method" "$size")
    [[ -z $last ]] || awk -v now="$now" -v last="$last" 'BEGIN { exit !(now <= 1.0001 * last) }' ||
      fail "$model, $method on $gpu: $now days in $size GiB, $last in $at"
    last=$now at=$size
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
