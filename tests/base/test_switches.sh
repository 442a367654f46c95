#!/usr/bin/env bash
# The environment switches of src/base/switches.def, through the command: a wrong value is refused by
# every command that may read it, with the values that are allowed; doctor shows and marks it; a name
# that is no switch is noted.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"
tiny_config "$WORK/tiny"
quick=(--seq 8 --batch 4 --steps 10 --sample-seconds 0.05 --threads 1 --no-store --methods naive)

GPUDAYS_NCCL=ofg expect 2 plan "$WORK/tiny" --seq 8 --batch 4 --steps 10 --threads 1
said 'gpudays: GPUDAYS_NCCL is "ofg"; expected on or off, or unset it'
silent
for command in "bench $WORK/tiny ${quick[*]}" "bench $WORK/tiny ${quick[*]} --ranks 2" "estimate pythia-14m --gpu a100" \
  "calibrate --threads 1" "verify $GD_SOURCE_DIR/tests/reference/neox-parallel" results "best pythia-14m" models; do
  # shellcheck disable=SC2086
  GPUDAYS_ATTENTION_TILE=xyz expect 2 $command
  said 'gpudays: GPUDAYS_ATTENTION_TILE is "xyz"; expected 0 to 9 or w, or unset it'
done
# Every switch with a list of values, by the table. doctor, which measures, is asked of all of them at once.
switches=()
while read -r name; do
  switches+=("GPUDAYS_$name=no such value")
  export "GPUDAYS_$name=no such value"
  expect 2 models
  said "gpudays: GPUDAYS_$name is \"no such value\"; expected "
  unset "GPUDAYS_$name"
done < <(sed -nE 's/^GD_SWITCH\(([A-Z0-9_]+), [A-Z]+, "[a-z0-9].*/\1/p' "$GD_SOURCE_DIR/src/base/switches.def")
((${#switches[@]} >= 15)) || fail "switches.def has ${#switches[@]} switches with a list of values"
export "${switches[@]}"
expect 0 doctor --threads 1
for switch in "${switches[@]}"; do
  shown "! $switch is wrong: expected "
  unset "${switch%%=*}"
done
# Values of the terminal's are shown, not obeyed.
GPUDAYS_NCCL=$'\e[31mon' expect 2 models
! grep -q $'\e' "$ERR" || fail "$LAST: an escape sequence on stderr"
# Empty is unset.
GPUDAYS_NCCL='' GPUDAYS_AUTOTUNE='' expect 0 models

# What helps to find the mistake works in spite of it.
GPUDAYS_NCCL=ofg expect 0 help
GPUDAYS_NCCL=ofg expect 0 plan --help
GPUDAYS_NCCL=ofg expect 0 --version
GPUDAYS_NCCL=ofg expect 0 completion bash
GPUDAYS_NCCL=ofg GPUDAYS_CUDNN=1 GPUDAYS_NCL=off expect 0 doctor --threads 1
shown '! GPUDAYS_NCCL=ofg is wrong: expected on or off, or unset it'
shown '* GPUDAYS_CUDNN=1: '
shown '! GPUDAYS_NCL is set, but gpudays has no such variable; did you mean GPUDAYS_NCCL?'
shown '  GPUDAYS_GEMM_GROUP (0 or 1), unset: where it is faster'
GPUDAYS_NCCL=ofg GPUDAYS_CUDNN=1 expect 0 doctor --threads 1 --json
sed -n '/"wrong_environment"/,/}/p' "$OUT" >"$WORK/wrong"
grep -qF '"GPUDAYS_NCCL": "on or off"' "$WORK/wrong" || fail "$LAST: GPUDAYS_NCCL is not wrong"
! grep -qF CUDNN "$WORK/wrong" || fail "$LAST: GPUDAYS_CUDNN is wrong"

# A name that is no switch: the command runs, and says so once.
GPUDAYS_ATENTION_TILE=w try models
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
[[ $(cat "$ERR") == "gpudays: note: GPUDAYS_ATENTION_TILE is set, but gpudays has no such variable; did you mean GPUDAYS_ATTENTION_TILE?" ]] ||
  fail "$LAST: not that note alone"
GPUDAYS_ZEBRA=1 try bench "$WORK/tiny" "${quick[@]}"
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
[[ $(cat "$ERR") == "gpudays: note: GPUDAYS_ZEBRA is set, but gpudays has no such variable" ]] ||
  fail "$LAST: not that note alone"
GPUDAYS_ZEBRA=1 expect 0 models --quiet
