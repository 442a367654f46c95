#!/usr/bin/env bash
# Where output goes: a full disk is an error, progress and bold are for terminals alone; `doctor`.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
tiny_config "$WORK/tiny"
quick=(--seq 8 --batch 4 --steps 10 --sample-seconds 0.2 --threads 1 --no-store --methods naive)

# full ARGUMENT...: stdout cannot be written: exit 3, whatever the answer was.
full() {
  LAST="gpudays $* >/dev/full"
  RC=0
  : >"$OUT"
  "$GPUDAYS" "$@" >/dev/full 2>"$ERR" || RC=$?
  [[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
  [[ $(wc -l <"$ERR") == 1 ]] || fail "$LAST: not one line on stderr"
  said "No space left on device"
}
if [[ -w /dev/full ]]; then
  full models
  full models --json
  full help
  full --version
  full plan pythia-14m --device-memory 1MiB --threads 1
  full bench "$WORK/tiny" "${quick[@]}"
fi
# A closed one, too.
RC=0
"$GPUDAYS" models >&- 2>"$ERR" || RC=$?
[[ $RC == 3 ]] || fail "closed stdout: exit $RC, not 3"

expect 0 doctor --threads 1
for name in gpudays cpu memory peak presets gnuplot; do
  grep -qE "^$name +" "$OUT" || fail "doctor says nothing about $name"
done
expect 0 doctor --threads 1 --json
field_is threads 1
field_above memory_bytes 0
field_above fp32 0
field_above bf16 0
field_above presets 9
# Variables of the environment: those of the table, those that are set, and those that nothing reads.
GPUDAYS_DETERMINISTIC=1 GPUDAYS_DETERMINSTIC=1 expect 0 doctor --threads 1
shown "* GPUDAYS_DETERMINISTIC=1: 1: on a GPU no algorithm is chosen by its time"
shown "  GPUDAYS_CUDNN (0 or 1), unset: the faster of cuDNN and the own kernels"
shown "! GPUDAYS_DETERMINSTIC is set, but gpudays has no such variable; did you mean GPUDAYS_DETERMINISTIC?"
GPUDAYS_NVML=off GPUDAYS_NO_SUCH=0 expect 0 doctor --threads 1 --json
field_is GPUDAYS_NVML off
field_is GPUDAYS_NO_SUCH 0
GPUDAYS_NVML=off expect 0 doctor --threads 1
if grep -n '^!' "$OUT"; then
  fail "doctor does not know a variable of its own"
fi

# On a terminal: a progress line on stderr that is cleared, and a bold answer.
if ! script -qec true /dev/null </dev/null >/dev/null 2>&1; then
  echo "skipped in part: script(1) is not installed or can make no terminal (/dev/pts) here"
  exit 0
fi
# terminal COMMAND...: stdout and stderr of the program on a terminal of its own, in OUT.
terminal() {
  LAST="gpudays $* on a terminal"
  : >"$ERR"
  printf -v line '%q ' "$GPUDAYS" "$@"
  TERM=xterm script -qec "$line" /dev/null >"$OUT" </dev/null || fail "$LAST: failed"
}
terminal bench "$WORK/tiny" "${quick[@]}"
shown $'\r'"tiny: warm-up"
shown $'\e[1m'
# Several: a line for each finished trial, and how far the search is.
terminal bench "$WORK/tiny" "${quick[@]}" --methods naive,free-lunch
shown $'\r'"1 of 2, tiny, "
shown $'\r'"2 of 2, tiny, "
[[ $(grep -c $'\e\\[32m.*(95 %: ' "$OUT") == 2 ]] || fail "$LAST: no live table"
terminal bench "$WORK/tiny" "${quick[@]}" --quiet
! grep -q "warm-up" "$OUT" || fail "$LAST: progress in spite of --quiet"
# Machines are compared by prediction, which takes a while.
terminal cost "$WORK/tiny" --times predicted
shown $'\r'"tiny: comparing machines ..."
shown "DAYS FROM"
terminal cost "$WORK/tiny" --times predicted --quiet
! grep -q "comparing" "$OUT" || fail "$LAST: progress in spite of --quiet"
expect 0 cost "$WORK/tiny" --times predicted
[[ ! -s $ERR ]] || fail "$LAST: progress on what is no terminal"
export NO_COLOR=1
terminal bench "$WORK/tiny" "${quick[@]}"
terminal bench "$WORK/tiny" "${quick[@]}" --methods naive,free-lunch
! grep -qF $'\e[' "$OUT" || fail "$LAST: bold in spite of NO_COLOR"
