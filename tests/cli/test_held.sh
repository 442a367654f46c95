#!/usr/bin/env bash
# A trial that is held back by what is not the machine's speed says so: stopped by signals, and under
# a CPU quota where this test may make one.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

run=(bench pythia-14m --seq 64 --batch 16 --micro-batch 2 --threads 1 --sample-seconds 2 --no-store)

# stopped STOP RUN: a trial whose process is stopped and continued for so many seconds in turn.
stopped() {
  LAST="gpudays ${run[*]}, stopped for $1 s every $2 s" RC=0
  "$GPUDAYS" "${run[@]}" >"$OUT" 2>"$ERR" </dev/null &
  local program=$! child
  while kill -0 "$program" 2>/dev/null; do
    child=$(pgrep -P "$program" | head -1) || true
    [[ -z $child ]] || kill -STOP "$child" 2>/dev/null || true
    sleep "$1"
    [[ -z $child ]] || kill -CONT "$child" 2>/dev/null || true
    sleep "$2"
  done
  wait "$program" || RC=$?
}

run+=(--json)
stopped 0.1 0.1
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
field_above stalled_share 0.15
# What the interval alone does not know: the low end is lower by the share.
awk -v low="$(field days_low)" -v days="$(field days)" -v high="$(field days_high)" \
  'BEGIN { exit !(days - low > 1.05 * (high - days) || low == 0) }' ||
  fail "$LAST: the interval is not wider below"
unset 'run[-1]'
stopped 0.1 0.1
tr '\n' ' ' <"$OUT" | tr -s ' ' | grep -q 'note: the process did not run for [0-9]* % of the time (stopped' ||
  fail "$LAST: no note"

stopped 0.5 0.1
[[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
said "of the time in which it was measured: it was stopped"

# --- a quota ---------------------------------------------------------------------------------

group=/sys/fs/cgroup/cpu/gpudays-test-$$
if [[ ! -e /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]]; then
  group=/sys/fs/cgroup/gpudays-test-$$
fi
leave() {
  rmdir "$group" 2>/dev/null || true
  rm -rf "$WORK"
}
trap leave EXIT
if ! mkdir "$group" 2>/dev/null ||
  ! { echo 15000 >"$group/cpu.cfs_quota_us" || echo "15000 100000" >"$group/cpu.max"; } 2>/dev/null ||
  ! bash -c 'echo $$ >"$1/cgroup.procs"' - "$group" 2>/dev/null; then
  echo "skipped in part: no CPU quota can be set here (root and a writable /sys/fs/cgroup are needed)"
  exit 0
fi
# So little that it is less than what is left beside the other tests.
LAST="a quota of 0.15 CPUs" RC=0
run+=(--seq 16 --sample-seconds 1)
for form in --json --quiet; do
  bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' - "$group" "$GPUDAYS" \
    "${run[@]}" "$form" >"$OUT" 2>"$ERR" </dev/null || RC=$?
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  if [[ $form == --json ]]; then
    field_above throttled_share 0.05
    field_is threads 1
  fi
done
tr '\n' ' ' <"$OUT" | tr -s ' ' | grep -q 'note: a CPU quota (cgroup) denied [0-9]* % of the CPU time' ||
  fail "$LAST: no note"
