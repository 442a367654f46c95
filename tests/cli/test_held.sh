#!/usr/bin/env bash
# A trial that is held back by what is not the machine's speed says so: stopped by signals, and under
# a CPU quota where this test may make one.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

run=(bench pythia-14m --seq 64 --batch 16 --micro-batch 2 --threads 1 --sample-seconds 1 --no-store --methods naive)
group="" others=()
clean_up() {
  ((${#others[@]} == 0)) || kill "${others[@]}" 2>/dev/null || true
  [[ -z $group ]] || rmdir "$group" 2>/dev/null || true
  rm -rf "$WORK"
}
trap clean_up EXIT

# nap MICROSECONDS: at least so long, and NAPPED says how long it was.
mkfifo "$WORK/nobody"
exec {nobody}<>"$WORK/nobody"
nap() {
  local from=${EPOCHREALTIME/./} seconds
  printf -v seconds '%d.%06d' $(($1 / 1000000)) $(($1 % 1000000))
  read -r -t "$seconds" -u "$nobody" || true
  NAPPED=$((${EPOCHREALTIME/./} - from))
}

# stopped PERCENT: a trial whose process is stopped and continued in turn, so that it is stopped for
# that share of the time. On a busy machine every nap is longer than it was meant to be: each is as
# long as it has to be after those before.
stopped() {
  LAST="gpudays ${run[*]}, stopped for $1 % of the time" RC=0
  "$GPUDAYS" "${run[@]}" >"$OUT" 2>"$ERR" </dev/null &
  local program=$! child parent stops=0 runs=0 wanted
  await has_child "$program"
  child=$(pgrep -P "$program")
  # A number may be another process's as soon as the program has taken note of the end.
  while read -r _ _ _ parent _ 2>/dev/null <"/proc/$child/stat" && [[ $parent == "$program" ]]; do
    kill -STOP "$child" 2>/dev/null || break
    wanted=$((runs * $1 / (100 - $1) - stops))
    nap $((wanted > 50000 ? wanted : 50000))
    stops=$((stops + NAPPED))
    kill -CONT "$child" 2>/dev/null || break
    wanted=$((stops * (100 - $1) / $1 - runs))
    nap $((wanted > 50000 ? wanted : 50000))
    runs=$((runs + NAPPED))
  done
  wait "$program" || RC=$?
}

run+=(--json)
stopped 45
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
field_above stalled_share 0.15
# The low end is lower than the samples' own by the share: days * (1 - width) * (1 - share).
awk -v low="$(field days_low)" -v days="$(field days)" -v high="$(field days_high)" \
  -v share="$(field stalled_share)" \
  'BEGIN { own = 2 * days - high; if (own < 0) own = 0; exit !(low <= own * (1 - share) * 1.0001) }' ||
  fail "$LAST: the interval is not wider below"
unset 'run[-1]'
stopped 45
tr '\n' ' ' <"$OUT" | tr -s ' ' | grep 'note: the process did not run for [0-9]* % of the time (stopped' >/dev/null ||
  fail "$LAST: no note"

stopped 85
[[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
said "of the time in which it was measured: it was stopped"

# --- other programs --------------------------------------------------------------------------

# Three times as many of them as there are cores, and one thread of ours, which is also less urgent.
for ((i = 0; i < 3 * $(nproc); i++)); do
  timeout 600 bash -c 'while :; do :; done' &
  others+=("$!")
done
busy=("${run[@]}" --seq 16 --sample-seconds 1)
LAST="gpudays ${busy[*]} with other programs running" RC=0
nice -n 2 "$GPUDAYS" "${busy[@]}" >"$OUT" 2>"$ERR" </dev/null || RC=$?
kill "${others[@]}"
wait "${others[@]}" 2>/dev/null || true
others=()
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
tr '\n' ' ' <"$OUT" | tr -s ' ' >"$WORK/line"
grep -q 'note: other programs used [0-9]* % of the CPUs .* the same command with --fresh measures again' "$WORK/line" ||
  fail "$LAST: no note"
grep -q 'more than half, and best, cost and export take any other trial first' "$WORK/line" ||
  fail "$LAST: not marked"

# --- a quota ---------------------------------------------------------------------------------

group=/sys/fs/cgroup/cpu/gpudays-test-$$
if [[ ! -e /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]]; then
  group=/sys/fs/cgroup/gpudays-test-$$
fi
if ! mkdir "$group" 2>/dev/null ||
  ! { echo 15000 >"$group/cpu.cfs_quota_us" || echo "15000 100000" >"$group/cpu.max"; } 2>/dev/null ||
  ! bash -c 'echo $$ >"$1/cgroup.procs"' - "$group" 2>/dev/null; then
  echo "skipped in part: no CPU quota can be set here (root and a writable /sys/fs/cgroup are needed)"
  exit 0
fi
# So little, and so urgent, that it is less than what other programs leave.
hurry=(nice -n -15)
"${hurry[@]}" true 2>/dev/null || hurry=()
LAST="a quota of 0.15 CPUs" RC=0
run+=(--seq 16 --sample-seconds 1)
for form in --json --quiet; do
  bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' - "$group" "${hurry[@]}" "$GPUDAYS" \
    "${run[@]}" "$form" >"$OUT" 2>"$ERR" </dev/null || RC=$?
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  if [[ $form == --json ]]; then
    field_above throttled_share 0.05
    field_is threads 1
  fi
done
tr '\n' ' ' <"$OUT" | tr -s ' ' | grep 'note: a CPU quota (cgroup) denied [0-9]* % of the CPU time' >/dev/null ||
  fail "$LAST: no note"
# What was measured under a quota is no answer without one.
export GPUDAYS_DB=$WORK/quota.db
stored=("${run[@]/--no-store/--json}" --sample-seconds 0.1)
for inside in yes no; do
  LAST="in the store, under the quota: $inside" RC=0
  if [[ $inside == yes ]]; then
    bash -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' - "$group" "$GPUDAYS" "${stored[@]}" \
      >"$OUT" 2>"$ERR" </dev/null || RC=$?
  else
    "$GPUDAYS" "${stored[@]}" >"$OUT" 2>"$ERR" </dev/null || RC=$?
  fi
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  field_is source run
done
