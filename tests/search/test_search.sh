#!/usr/bin/env bash
# The search from the command line: 12 points, the store, trials that break in every way, Ctrl-C,
# Ctrl-Z, ranks, several searches at once, the time limit. tests/search/test_kill.c kills it.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

# Every process of a run has this in its environment.
export GD_TEST_RUN=$$-$RANDOM
unset OMP_NUM_THREADS
model=$GD_SOURCE_DIR/tests/reference/neox-parallel
quick=("$model" --seq 16 --batch 8 --sample-seconds 0.02 --threads 1 --device-memory 64MiB)

left_over() {
  local pid
  for pid in $(pgrep '^(gpudays|mpirun|orte|prte)' 2>/dev/null || true); do
    ! grep -qsz "^GD_TEST_RUN=$GD_TEST_RUN\$" "/proc/$pid/environ" || echo "$pid"
  done
}
# count TEXT NUMBER: so many lines of stdout have it.
count() {
  local found
  found=$(grep -c -- "$1" "$OUT" || true)
  [[ $found == "$2" ]] || fail "$LAST: $found lines with '$1', not $2"
}
seconds_since() {
  awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'
}
below() {
  awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }' || fail "$LAST: took $1 s, not below $2 s"
}
fresh_store() {
  export GPUDAYS_DB=$WORK/$1.db
}

# --- 12 points, then out of the store --------------------------------------------------------

expect 0 bench "${quick[@]}" --methods all --json
count '^      "status": "ok"' 12
count '^      "source": "run"' 12
field_is source run
cp "$OUT" "$WORK/first"
from=$EPOCHREALTIME
expect 0 bench "${quick[@]}" --methods all --json
below "$(seconds_since "$from")" 1
count '^      "source": "store"' 12
diff <(grep -v '"source"\|plan_s' "$WORK/first") <(grep -v '"source"\|plan_s' "$OUT") >"$ERR" ||
  fail "$LAST: other numbers out of the store"
expect 0 bench "${quick[@]}" --methods all
[[ $(grep -c '^  neox-parallel  free-lunch' "$OUT") == 12 ]] || fail "$LAST: not 12 rows"
grep -qE '^  best for neox-parallel: free-lunch[^ ]*, ' "$OUT" || fail "$LAST: no winner"
grep -qE '^  slower: free-lunch[^ ]* [0-9.,]+x' "$OUT" || fail "$LAST: nobody lost"
shown "note: 12 of 12 were measured before; --fresh measures anew"
! grep -q $'\e' "$OUT" || fail "$LAST: colours in a file"
expect 0 bench "${quick[@]}" --methods free-lunch
grep -qE '^  note: measured on [0-9-]{10} at [0-9:]{5} UTC; --fresh measures anew$' "$OUT" ||
  fail "$LAST: it does not say that it was measured before"

# Anew; one part of the space; another question; no store at all.
expect 0 bench "${quick[@]}" --methods free-lunch --fresh --json
field_is source run
expect 0 bench "${quick[@]}" --methods free-lunch,naive --json
count '^      "source": "store"' 1
count '^      "source": "run"' 1
expect 0 bench "${quick[@]}" --methods free-lunch --seed 1 --json
field_is source run
expect 0 bench "${quick[@]}" --methods free-lunch --no-store --json
field_is source run
GPUDAYS_DB=/nowhere/at/all expect 0 bench "${quick[@]}" --no-store --json
expect 0 bench "${quick[@]}" --store "$WORK/other.db" --json
field_is source run
[[ -f $WORK/other.db ]] || fail "$LAST: no database"
GPUDAYS_DB=$WORK/other.db expect 0 bench "${quick[@]}" --json
field_is source store
# Asked for twice, measured once; a list of models is further arguments.
expect 0 bench "${quick[@]}" --models "$model,$model" --seed 2 --json
count '"source": "run"' 4
[[ $(grep '"step_s"' "$OUT" | tr -d ' ' | sort -u | wc -l) == 1 ]] || fail "$LAST: measured more than once"

# On two ranks the space has 22 points, of which a sample runs (tests/methods has all of them).
# GD_TEST_ALL=1: all.
expect 0 plan "$model" --seq 16 --batch 8 --threads 1 --methods all --ranks 2 --json
methods=$(sed -n 's/^ *"method": "\(.*\)",$/\1/p' "$OUT" | sort -u)
[[ $(wc -l <<<"$methods") == 22 ]] || fail "$LAST: not 22 methods"
if [[ -z ${GD_TEST_ALL:-} ]]; then
  seed=${GD_TEST_SEED:-$RANDOM}
  echo "GD_TEST_SEED=$seed"
  methods=$(shuf -n 5 --random-source=<(yes "$seed") <<<"$methods")
fi
if command -v mpirun >/dev/null; then
  for source in run store; do
    expect 0 bench "${quick[@]}" --methods "$(paste -sd, <<<"$methods")" --ranks 2 --json
    count '^      "status": "ok"' "$(wc -l <<<"$methods")"
    count "^      \"source\": \"$source\"" "$(wc -l <<<"$methods")"
  done
else
  echo "skipped in part: there is no mpirun, so no search on two ranks"
fi

# What does not fit is known without running: a byte is missing.
tight=("${quick[@]}" --micro-batch 8)
expect 0 plan "$model" --seq 16 --batch 8 --threads 1 --micro-batch 8 --json
expect 0 bench "${tight[@]}" --methods naive,free-lunch+zero1+offload \
  --device-memory $(($(field peak_bytes) - 1))B --json
count '^      "source": "plan"' 1
count '^      "status": "infeasible"' 1
count '^      "status": "ok"' 1
shown "micro-batch 8 needs"

# --- trials that break -----------------------------------------------------------------------

# broken FAULT KIND REASON: the trial has the reason and its kind, and the others are fine. What would
# fail again is known by the store too; what may not is tried again, here without the fault.
broken() {
  fresh_store "fault-$1"
  local points=(--methods "free-lunch,free-lunch+ckpt,free-lunch+zero1+offload" --json)
  GPUDAYS_TEST_FAULT=free-lunch+ckpt=$1 expect 0 bench "${quick[@]}" "${points[@]}" \
    --trial-timeout 20s "${@:4}"
  count '^      "status": "ok"' 2
  count '^      "status": "failed"' 1
  count "^      \"failure\": \"$2\"" 1
  count '^      "source": "run"' 3
  shown "$3"
  [[ -z $(left_over) ]] || fail "$LAST: left over: $(left_over)"
  expect 0 bench "${quick[@]}" "${points[@]}"
  if [[ $2 != environment ]]; then
    count '^      "source": "store"' 3
    shown "$3"
  else
    count '^      "source": "store"' 2
    count '^      "status": "ok"' 3
    count '^      "tries": 2' 1
  fi
}
broken segfault crash "its process ended by signal 11 (Segmentation fault)"
broken assert crash "ended by signal 6 (Aborted): internal error:"
broken exit crash "its process ended with exit code 5 and gave no reason"
broken silent crash "its process ended without an answer"
broken kill environment "was killed by signal 9 (Killed) at a resident set of"
broken hang environment "it took longer than 3 s and was ended; --trial-timeout sets the limit" \
  --trial-timeout 3s

# Counted in the output, and by best, which would name another one otherwise.
fresh_store counted
failing=("${quick[@]}" --methods "naive,kernels,compile")
GPUDAYS_TEST_FAULT=kernels=kill expect 0 bench "${failing[@]}"
shown "note: 1 of 3 failed (environment, will be tried again by the same command)"
GPUDAYS_TEST_FAULT=kernels=kill expect 0 bench "${failing[@]}"
shown "for want of memory (tried 2 times)"
expect 0 best "$model" --seq 16 --batch 8
shown "note: 1 trial of neox-parallel is missing: it failed (environment) and will be tried again"
GPUDAYS_TEST_FAULT=kernels=segfault expect 0 bench "${failing[@]}"
expect 0 best "$model" --seq 16 --batch 8
! grep -q missing "$OUT" || fail "$LAST: what fails again is not missing"
expect 0 bench "${failing[@]}"
shown "note: 1 of 3 failed (crash); --retry-failed tries it again"
shown "note: 3 of 3 were measured before"
expect 0 bench "${failing[@]}" --retry-failed
shown "note: 2 of 3 were measured before"
! grep -q failed "$OUT" || fail "$LAST: it was not tried again"

# Alone, it is the error, with the same exit code out of the store.
fresh_store alone
GPUDAYS_TEST_FAULT=naive=segfault expect 4 bench "${quick[@]}"
said "its process ended by signal 11"
silent
expect 4 bench "${quick[@]}"
said "neox-parallel failed: its process ended by signal 11"
shown "UTC; --retry-failed tries it again"
expect 0 bench "${quick[@]}" --fresh
expect 0 bench "${quick[@]}"

# A reason that several share is shown once: with those that it concerns, or, where nothing else
# happened, as the error. The store has it for each.
fresh_store alike
expect 0 bench "${quick[@]}" --methods naive
expect 0 bench "${quick[@]}" --methods naive,compile,kernels --trial-timeout 0.001s
shown "neox-parallel, 2 of 3 (compile, kernels): it took longer than 0.001 s and was"
count "it took longer" 1
expect 1 bench "${quick[@]}" --methods compile,kernels,free-lunch --trial-timeout 0.001s
count "it took longer" 0
count ' failed$' 3
said "all 3 trials failed: it took longer than 0.001 s and was ended; --trial-timeout sets the limit"
expect 0 results --status failed --json
count "it took longer" 3

# Memory that the machine refuses: the plan of 700 MiB keeps to its limit.
fresh_store memory
refused=(pythia-14m --seq 512 --batch 64 --threads 1 --device-memory 1GiB --micro-batch pow2
  --methods kernels)
LAST="bench under ulimit -v" RC=0
(ulimit -v 600000 && exec "$GPUDAYS" bench "${refused[@]}") >"$OUT" 2>"$ERR" || RC=$?
[[ $RC == 3 && $(wc -l <"$ERR") == 1 ]] || fail "$LAST: exit $RC, or not one sentence"
expect 0 results --status failed --json
expect 1 bench "${refused[@]}" --time-limit 1s # it is tried again, and takes longer than that
said "no trial was good before the time limit, and 1 of 1 are pending"

# A plan that no machine has the memory for is not tried.
beyond=(--batch 1048576 --micro-batch 1048576 --device-memory 1000000GiB --host-memory 1000GiB)
expect 1 bench pythia-14m --threads 1 "${beyond[@]}" \
  --methods kernels,naive
shown "its plan keeps to the limits, but needs"

# Killed by the kernel for its memory, in a control group of 256 MiB where we may make one.
group=
for parent in /sys/fs/cgroup/memory /sys/fs/cgroup; do
  [[ -n $group || ! -w $parent ]] || group=$parent/gpudays-test-$$
done
file=memory.max
[[ $group != /sys/fs/cgroup/memory/* ]] || file=memory.limit_in_bytes
if [[ -n $group ]] && mkdir "$group" 2>/dev/null && echo 268435456 >"$group/$file" 2>/dev/null; then
  fresh_store oom
  LAST="bench in a control group" RC=0
  (echo "$BASHPID" >"$group/cgroup.procs" &&
    GPUDAYS_TEST_FAULT=free-lunch=memory exec "$GPUDAYS" bench "${quick[@]}" --json \
      --methods free-lunch,naive) >"$OUT" 2>"$ERR" || RC=$?
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    rmdir "$group" 2>/dev/null && break
    sleep 0.1
  done
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  count '^      "status": "ok"' 1
  shown "the machine ran out of memory: the kernel killed the trial"
else
  [[ -z $group ]] || rmdir "$group" 2>/dev/null || true
  echo "skipped in part: no control group can be made here, so nothing is killed for its memory"
fi

# A disk that is full: the search ends with its sentence, what was stored stays, and it goes on later.
fresh_store disk/full
mkdir "$WORK/disk"
cat >"$WORK/fill" <<'END'
set -eu
mount -t tmpfs -o size=2m small "$WORK/disk"
"$GPUDAYS" bench "$@" --methods free-lunch --json >"$WORK/before"
head -c 4194304 /dev/zero >"$WORK/disk/filler" 2>/dev/null || true
code=0
"$GPUDAYS" bench "$@" --methods free-lunch,naive,kernels >"$WORK/full" 2>"$WORK/said" || code=$?
echo "$code" >"$WORK/code"
rm "$WORK/disk/filler"
"$GPUDAYS" results --csv >"$WORK/kept"
"$GPUDAYS" bench "$@" --methods free-lunch,naive,kernels --json >"$WORK/after"
END
if unshare --map-root-user --mount true 2>/dev/null; then
  LAST="bench on a full disk"
  (export WORK && exec unshare --map-root-user --mount bash "$WORK/fill" "${quick[@]}") \
    >"$OUT" 2>"$ERR" ||
    fail "$LAST: it does not go on"
  cp "$WORK/said" "$ERR"
  [[ $(cat "$WORK/code") == 3 && ! -s $WORK/full && $(wc -l <"$ERR") == 1 ]] ||
    fail "$LAST: exit $(cat "$WORK/code"), or not one sentence"
  said "disk is full"
  cp "$WORK/kept" "$OUT"
  count ',free-lunch,' 1
  [[ $(wc -l <"$OUT") == 2 ]] || fail "$LAST: more is stored than was measured"
  cp "$WORK/after" "$OUT"
  count '^      "source": "store"' 1
  count '^      "source": "run"' 2
else
  echo "skipped in part: nothing can be mounted here, so no disk is full (tests/store tries it too)"
fi

# --- Ctrl-C, and its like --------------------------------------------------------------------

long=(pythia-14m --seq 512 --micro-batch 8 --batch 8 --threads 1 --sample-seconds 60)
# interrupt SIGNAL CODE ARGUMENT...
interrupt() {
  local tries from
  LAST="gpudays bench ${*:3}, $1"
  env --default-signal=INT "$GPUDAYS" bench "${@:3}" >"$OUT" 2>"$ERR" </dev/null &
  local search=$!
  for ((tries = 0; ; tries++)); do
    [[ -z $(pgrep -P "$search" || true) ]] || break
    ((tries < 100)) || fail "$LAST: no trial begins"
    sleep 0.05
  done
  sleep 0.5
  from=$EPOCHREALTIME
  kill "-$1" "$search"
  RC=0
  wait "$search" || RC=$?
  below "$(seconds_since "$from")" 1
  [[ $RC == "$2" ]] || fail "$LAST: exit $RC, not $2"
  [[ -z $(left_over) ]] || fail "$LAST: left over: $(left_over)"
  [[ ! -s $OUT && ! -s $ERR ]] || fail "$LAST: words"
}
fresh_store interrupt
interrupt INT 130 "${long[@]}" --methods naive,free-lunch
interrupt TERM 143 "${long[@]}" --methods naive,free-lunch
interrupt HUP 129 "${long[@]}"
GPUDAYS_TEST_FAULT=naive=hang interrupt INT 130 "${quick[@]}"
# What is ignored, as nohup has it, ends nothing.
LAST="bench that ignores SIGHUP" RC=0
GPUDAYS_TEST_FAULT=naive=slow2 env --ignore-signal=HUP "$GPUDAYS" bench "${quick[@]}" --fresh \
  >"$OUT" 2>"$ERR" </dev/null &
search=$!
for ((tries = 0; tries < 100; tries++)); do
  [[ -z $(pgrep -P "$search" || true) ]] || break
  sleep 0.05
done
kill -HUP "$search"
wait "$search" || RC=$?
[[ $RC == 0 && ! -s $ERR ]] || fail "$LAST: exit $RC"
# A parent that does not care for its children leaves us that way; we do.
LAST="bench with SIGCHLD ignored" RC=0
env --ignore-signal=CHLD "$GPUDAYS" bench "${quick[@]}" --fresh >"$OUT" 2>"$ERR" </dev/null || RC=$?
[[ $RC == 0 && ! -s $ERR ]] || fail "$LAST: exit $RC"

# --- several ranks ---------------------------------------------------------------------------

# In a /dev/shm of its own: whatever ends ranks, their shared memory goes with them.
cat >"$WORK/stop" <<'END'
set -eu
mount -t tmpfs -o size=256m shm /dev/shm
for signal in INT TERM HUP time; do
  limit=()
  [[ $signal != time ]] || limit=(--time-limit 4s)
  env --default-signal=INT "$GPUDAYS" bench "$@" "${limit[@]}" >"$WORK/out" 2>"$WORK/err" </dev/null &
  search=$!
  tries=0
  until [[ $(pgrep -c -f "^$GPUDAYS trial-child $WORK/") == 3 ]]; do # the starter, and two ranks
    ((tries++ < 200)) || { echo "no rank came up" && exit 1; }
    sleep 0.05
  done
  if [[ $signal != time ]]; then
    sleep 1 # until they compute, on a machine that is not too busy
    kill "-$signal" "$search"
  fi
  wait "$search" || true
  [[ -z $(ls -A /dev/shm) ]] || { echo "$signal: left in /dev/shm: $(ls -A /dev/shm)" && exit 1; }
done
END
# On a machine of its own rank 1 has no file of the trial: mpirun's second half is given another folder.
cat >"$WORK/far" <<'END'
set -eu
mkdir "$WORK/bin"
cat >"$WORK/bin/mpirun.openmpi" <<'FAR'
#!/bin/bash
options=()
while [[ $1 != -n ]]; do options+=("$1") && shift; done
shift 2
touch "$WORK/bin/far"
exec mpirun "${options[@]}" -n 1 "$@" : -n 1 unshare --mount \
  sh -c 'mount -t tmpfs none "$(dirname "$3")" && exec "$@"' sh "$@"
FAR
chmod +x "$WORK/bin/mpirun.openmpi"
PATH=$WORK/bin:$PATH "$GPUDAYS" bench "$@" --methods kernels --ranks 2 --json
[[ -e $WORK/bin/far ]]
END
# inside SCRIPT ARGUMENT...: with mounts of its own.
inside() {
  LAST="$1 with mounts of its own"
  (export WORK GPUDAYS_DB && exec unshare --map-root-user --mount bash "$WORK/$1" "${@:2}") \
    >"$OUT" 2>"$ERR" || fail "$LAST"
}
if ! command -v mpirun >/dev/null; then
  echo "skipped in part: there is no mpirun, so no ranks are ended"
elif ! unshare --map-root-user --mount true 2>/dev/null; then
  echo "skipped in part: nothing can be mounted here, so nobody looks for what ranks leave"
else
  fresh_store ranks
  inside stop "${long[@]}" --ranks 2 --micro-batch 4
  [[ -z $(left_over) ]] || fail "$LAST: left over: $(left_over)"
  inside far "${quick[@]}"
  field_is status ok
  field_is ranks 2
fi
# An mpirun that starts nobody.
mkdir "$WORK/idle"
printf '#!/bin/sh\nexec sleep 60\n' >"$WORK/idle/mpirun"
chmod +x "$WORK/idle/mpirun"
fresh_store idle
from=$EPOCHREALTIME
PATH=$WORK/idle:$PATH expect 3 bench "${quick[@]}" --ranks 2 --rank-timeout 0.1
below "$(seconds_since "$from")" 8
said "mpirun had not started all ranks 5.11 s after it was asked to"

# --- Ctrl-Z ----------------------------------------------------------------------------------

# states: those of all processes of the search.
states() {
  local pid
  for pid in $(left_over); do
    sed 's/.*) \(.\).*/\1/' "/proc/$pid/stat" 2>/dev/null
  done | sort -u | tr -d '\n'
}
# stop_all PROCESSES ARGUMENT...: a search that is stopped with all that it has started.
stop_all() {
  local tries
  LAST="bench ${*:2}, stopped"
  "$GPUDAYS" bench "${@:2}" >"$OUT" 2>"$ERR" </dev/null &
  search=$!
  for ((tries = 0; tries < 100; tries++)); do
    [[ $(left_over | wc -l) -lt $1 ]] || break
    sleep 0.05
  done
  kill -TSTP "$search"
  for ((tries = 0; tries < 100; tries++)); do
    [[ $(states) != T ]] || return 0
    sleep 0.05
  done
  fail "$LAST: not all are stopped: $(states)"
}
# The trial stops with the search, goes on with it, and was not away for too long.
fresh_store stopped
GPUDAYS_TEST_FAULT=naive=slow1 stop_all 2 "${quick[@]}" --trial-timeout 4s
sleep 4
kill -CONT "$search"
RC=0
wait "$search" || RC=$?
[[ $RC == 0 && ! -s $ERR ]] || fail "$LAST: exit $RC"
if command -v mpirun >/dev/null; then
  stop_all 5 "${long[@]}" --ranks 2 --micro-batch 4 --time-limit 30s
  kill -CONT "$search"
  kill -TERM "$search"
  RC=0
  wait "$search" 2>/dev/null || RC=$?
  [[ $RC == 143 && -z $(left_over) ]] || fail "$LAST: exit $RC, left over: $(left_over)"
fi

# --- a search that is killed, and several at once --------------------------------------------

# Its trial has ended, and it has not looked: the next one does.
fresh_store late
GPUDAYS_TEST_FAULT=naive=slow1 "$GPUDAYS" bench "${quick[@]}" >"$OUT" 2>"$ERR" </dev/null &
search=$!
for ((tries = 0; tries < 100; tries++)); do
  [[ -z $(pgrep -P "$search" || true) ]] || break
  sleep 0.05
done
kill -STOP "$search"
for ((tries = 0; tries < 200; tries++)); do
  ! compgen -G "$GPUDAYS_DB.trials/*/result.json" >/dev/null || break
  sleep 0.05
done
step=$(sed -n 's/.*"step_s":\([0-9.e-]*\).*/\1/p' "$GPUDAYS_DB".trials/*/result.json)
kill -KILL "$search"
wait "$search" 2>/dev/null || true
expect 0 bench "${quick[@]}" --json
field_is step_s "$step"
field_is source run
expect 0 results --json
field_is step_s "$step"
[[ ! -e $GPUDAYS_DB.trials ]] || fail "$LAST: left over: $(ls "$GPUDAYS_DB.trials")"

# Each point is measured by one of them, and all of them have all points.
fresh_store four
for i in 1 2 3 4; do
  "$GPUDAYS" bench "${quick[@]}" --methods naive,kernels,compile --json >"$WORK/four.$i" &
done
wait
cat "$WORK"/four.? >"$OUT"
LAST="four searches at once"
count '^      "source": "run"' 3
count '^      "source": "store"' 9
count '^      "status": "ok"' 12

# --- the time limit --------------------------------------------------------------------------

# The first one ends, the second one never, and the rest have no time left.
fresh_store limit
from=$EPOCHREALTIME
limited=("${quick[@]}" --methods "free-lunch,free-lunch+ckpt,free-lunch+ckpt+zero3+offload")
GPUDAYS_TEST_FAULT=free-lunch+ckpt+zero3+offload=hang expect 0 bench "${limited[@]}" --time-limit 5s
below "$(seconds_since "$from")" 6.5
grep -qE '^  neox-parallel  free-lunch\+ckpt +pending$' "$OUT" || fail "$LAST: no pending row"
shown "pending, 2 of 3: free-lunch+ckpt, free-lunch+ckpt+zero3+offload; the time"
expect 0 bench "${limited[@]}" --json
count '^      "source": "store"' 1
count '^      "source": "run"' 2
expect 1 bench "${long[@]}" --methods naive,kernels --time-limit 1s --json
said "no trial was good before the time limit, and 2 of 2 are pending"
count '"source": "pending"' 2

# --- what cannot be meant --------------------------------------------------------------------

expect 2 bench "${quick[@]}" --time-limit 10x
said '--time-limit is "10x"; expected a time above 0 such as 90s, 10m, 2h or 1d'
expect 2 bench "${quick[@]}" --trial-timeout 0
expect 2 bench "${quick[@]}" --no-store --retry-failed
said "--no-store uses no results; leave out --retry-failed"
expect 2 bench "${quick[@]}" --no-store --fresh
said "--no-store uses no results; leave out --fresh"
expect 2 bench --models "tiny,,pythia-14m"
said "--models has an empty name"
expect 2 bench "${quick[@]}" --methods all --ranks 3
said "does not divide among 3 ranks"
expect 3 bench "${quick[@]}" --store "$model/config.json/results.db"

# A search that measures anew and is killed leaves nothing pending, and no folder for long.
fresh_store anew
expect 0 bench "${quick[@]}" --methods naive --store "$WORK/anew.db"
GPUDAYS_TEST_FAULT=naive=slow5 "$GPUDAYS" bench "${quick[@]}" --methods naive --fresh \
  --store "$WORK/anew.db" >"$OUT" 2>"$ERR" &
sleep 1
kill -9 $!
wait $! 2>/dev/null || true
expect 0 bench "${quick[@]}" --methods naive --store "$WORK/anew.db"
expect 0 results --pending --store "$WORK/anew.db"
shown "no pending trials"
[[ ! -e $WORK/anew.db.trials ]] || fail "the folder of the killed search is left"
