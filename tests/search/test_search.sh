#!/usr/bin/env bash
# The search from the command line: 12 points, the store, trials that break in every way, Ctrl-C,
# Ctrl-Z, ranks, several searches at once, the time limit. tests/search/test_kill.c kills it.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

# Every process of a run has this in its environment.
export GD_TEST_RUN=$$-$RANDOM
unset OMP_NUM_THREADS
model=$GD_SOURCE_DIR/tests/reference/neox-parallel
quick=("$model" --seq 16 --batch 8 --sample-seconds 0.02 --threads 1 --device-memory 64MiB --methods naive)

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
# Load makes a prompt end late, and nothing makes a late one prompt: one of five is soon, or the limit
# is ten times as long, which a machine needs that is busy all the time. All else must be right each
# time. too_late SECONDS LIMIT TRY: whether it is worth another try.
too_late() {
  awk -v a="$1" -v b="$2" 'BEGIN { exit !(a >= b) }' || return 1
  echo "$LAST: took $1 s, not below $2 s; try $3 of 5" >&2
  (($3 == 5)) || return 0
  below "$1" "$((10 * $2))"
  return 1
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
# In CPU time of all its processes, of which it needs a fortieth of that: load is not counted.
TIMEFORMAT='%3U %3S'
{ time expect 0 bench "${quick[@]}" --methods all --json 2>&3; } 3>&2 2>"$WORK/took"
below "$(awk '{ print $1 + $2 }' "$WORK/took")" 1
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

# The trial's process has the plan that the search has chosen, or says that it has not.
expect 0 bench "${quick[@]}" --methods naive --no-store --json
count '"note": null' 2
GPUDAYS_TEST_FAULT=naive=otherplan expect 0 bench "${quick[@]}" --methods naive --no-store --json
count '"note": "the plan of this process is not the one that the search has chosen' 2
field_is status ok

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
expect 0 plan "$model" --seq 16 --batch 8 --threads 1 --micro-batch 8 --methods naive --json
expect 0 bench "${tight[@]}" --methods naive,free-lunch+zero1+offload \
  --device-memory $(($(field peak_bytes) - 1))B --json
count '^      "source": "plan"' 1
count '^      "status": "infeasible"' 1
count '^      "status": "ok"' 1
shown "micro-batch 8 needs"

# --- trials that break -----------------------------------------------------------------------

# broken FAULT KIND REASON [TIMEOUT]: the trial has the reason and its kind, and the others are fine.
# What would fail again is known by the store too; what may not is tried again, here without the fault.
broken() {
  fresh_store "fault-$1${4:-}"
  local points=(--methods "free-lunch,free-lunch+ckpt,free-lunch+zero1+offload" --json)
  GPUDAYS_TEST_FAULT=free-lunch+ckpt=$1 expect 0 bench "${quick[@]}" "${points[@]}" \
    --trial-timeout "${4:-200s}"
  # On a machine that is so busy the others come to the short limit too.
  if [[ ${4:-} == 3s && $(grep -c '^      "status": "failed"' "$OUT") != 1 ]]; then
    broken "$1" "$2" "${3/3 s/60 s}" 60s
    return
  fi
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
broken hang environment "it took longer than 3 s and was ended; --trial-timeout sets the limit" 3s

# Counted in the output, and by best, which would name another one otherwise.
fresh_store counted
failing=("${quick[@]}" --methods "naive,kernels,compile")
GPUDAYS_TEST_FAULT=kernels=kill expect 0 bench "${failing[@]}"
shown "note: 1 of 3 failed (environment, will be tried again by the same command)"
GPUDAYS_TEST_FAULT=kernels=kill expect 0 bench "${failing[@]}"
tr -s ' \n' ' ' <"$OUT" | grep -F "because memory ran out (tried 2 times)" >/dev/null || fail "$LAST: tries are not counted"
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
# happened, as the error. The store has it for each. The trials take so long that none is over before
# the search looks at the clock.
fresh_store alike
larger=(pythia-14m --seq 64 --batch 2 --sample-seconds 0.02 --threads 1)
expect 0 bench "${larger[@]}" --methods naive
expect 0 bench "${larger[@]}" --methods naive,compile,kernels --trial-timeout 0.001s
shown "pythia-14m, 2 of 3 (compile, kernels): it took longer than 0.001 s and was"
count "it took longer" 1
expect 1 bench "${larger[@]}" --methods compile,kernels,free-lunch --trial-timeout 0.001s
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
GPUDAYS_TEST_FAULT=kernels=hang expect 1 bench "${refused[@]}" --time-limit 1s # it is tried again
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
clean_up() {
  local pid
  for pid in $(left_over); do
    kill -KILL "$pid" 2>/dev/null || true
  done
  [[ -z $group ]] || rmdir "$group" 2>/dev/null || true
  rm -rf "$WORK"
}
trap clean_up EXIT
if [[ -n $group ]] && mkdir "$group" 2>/dev/null && echo 268435456 >"$group/$file" 2>/dev/null; then
  # What the kernel kills in another group meanwhile says nothing of a trial that somebody kills.
  fresh_store killed
  LAST="bench during a kill for want of memory" RC=0 code=0
  GPUDAYS_TEST_FAULT=naive=held=$WORK "$GPUDAYS" bench "${quick[@]}" >"$OUT" 2>"$ERR" </dev/null &
  search=$!
  await pgrep -P "$search" -f trial-child >"$WORK/child"
  child=$(cat "$WORK/child")
  (echo "$BASHPID" >"$group/cgroup.procs" && exec tail /dev/zero) >/dev/null 2>&1 || code=$?
  [[ $code == 137 ]] || fail "$LAST: nothing was killed for its memory (exit $code)"
  kill -KILL "$child"
  wait "$search" || RC=$?
  [[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
  said "its process was killed by signal 9 (Killed) at a resident set of"
  fresh_store oom
  LAST="bench in a control group" RC=0
  (echo "$BASHPID" >"$group/cgroup.procs" &&
    GPUDAYS_TEST_FAULT=free-lunch=memory exec "$GPUDAYS" bench "${quick[@]}" --json \
      --methods free-lunch,naive) >"$OUT" 2>"$ERR" || RC=$?
  await rmdir "$group" 2>/dev/null
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
"$GPUDAYS" results --csv >"$WORK/locked" 2>"$WORK/locked.said"
"$GPUDAYS" best "${@:1:5}" --json >"$WORK/locked.best" 2>>"$WORK/locked.said"
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
  # What is stored answers all the while, with a word on the disk.
  cmp "$WORK/locked" "$WORK/kept" || fail "$LAST: other results than with space"
  grep -q '"method": "free-lunch"' "$WORK/locked.best" || fail "$LAST: best does not answer"
  [[ $(grep -c "note: the disk of .* is full" "$WORK/locked.said") == 2 && $(wc -l <"$WORK/locked.said") == 2 ]] ||
    fail "$LAST: results and best do not say that the disk is full"
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
  local try
  for try in 1 2 3 4 5; do
    interrupt_once "$@"
    too_late "$TOOK" 1 "$try" || return 0
  done
}
interrupt_once() {
  local from
  LAST="gpudays bench ${*:3}, $1"
  env --default-signal=INT "$GPUDAYS" bench "${@:3}" >"$OUT" 2>"$ERR" </dev/null &
  local search=$!
  await has_child "$search"
  sleep 0.5 # more often than not it computes by then
  from=$EPOCHREALTIME
  kill "-$1" "$search"
  RC=0
  wait "$search" || RC=$?
  TOOK=$(seconds_since "$from")
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
touch "$WORK/held"
GPUDAYS_TEST_FAULT=naive=held=$WORK/held env --ignore-signal=HUP "$GPUDAYS" bench "${quick[@]}" --fresh \
  >"$OUT" 2>"$ERR" </dev/null &
search=$!
await has_child "$search"
kill -HUP "$search"
rm "$WORK/held"
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
for signal in INT TERM HUP 4s 20s 60s; do
  limit=()
  [[ $signal != *s ]] || limit=(--time-limit "$signal")
  env --default-signal=INT "$GPUDAYS" bench "$@" "${limit[@]}" >"$WORK/out" 2>"$WORK/err" </dev/null &
  search=$!
  tries=0 up=yes
  until [[ $(pgrep -c -f "^$GPUDAYS trial-child $WORK/") == 3 ]]; do # the starter, and two ranks
    ((tries++ < 4000)) || { echo "no rank came up" && exit 1; }
    kill -0 "$search" 2>/dev/null || { up=no && break; }
    sleep 0.05
  done
  if [[ $signal != *s ]]; then
    sleep 1 # more often than not they compute by then
    kill "-$signal" "$search"
  fi
  wait "$search" || true
  [[ -z $(ls -A /dev/shm) ]] || { echo "$signal: left in /dev/shm: $(ls -A /dev/shm)" && exit 1; }
  # The time may be over before the ranks are there, on a machine that is busy.
  [[ $signal != *s || $up == no ]] || break
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
printf '#!/bin/sh\nexec sleep 600\n' >"$WORK/idle/mpirun"
chmod +x "$WORK/idle/mpirun"
fresh_store idle
PATH=$WORK/idle:$PATH expect 3 bench "${quick[@]}" --ranks 2 --rank-timeout 0.1
said "mpirun had not started all ranks 16 s after it was asked to"

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
  LAST="bench ${*:2}, stopped"
  "$GPUDAYS" bench "${@:2}" >"$OUT" 2>"$ERR" </dev/null &
  search=$!
  await are_there "$1"
  kill -TSTP "$search"
  await are_stopped
}
are_there() { [[ $(left_over | wc -l) -ge $1 ]]; }
are_stopped() { [[ $(states) == T ]]; }
# The trial stops with the search, goes on with it, and was not away for too long.
fresh_store stopped
for limit in 3 20 60; do # the trial itself must not take as long as that
  touch "$WORK/held"
  GPUDAYS_TEST_FAULT=naive=held=$WORK/held stop_all 2 "${quick[@]}" --trial-timeout "${limit}s"
  sleep "$limit"
  rm "$WORK/held"
  kill -CONT "$search"
  RC=0
  wait "$search" || RC=$?
  [[ $RC != 0 ]] || break
done
[[ $RC == 0 && ! -s $ERR ]] || fail "$LAST: exit $RC"
if command -v mpirun >/dev/null; then
  stop_all 5 "${long[@]}" --ranks 2 --micro-batch 4 --time-limit 600s
  kill -CONT "$search"
  kill -TERM "$search"
  RC=0
  wait "$search" 2>/dev/null || RC=$?
  [[ $RC == 143 && -z $(left_over) ]] || fail "$LAST: exit $RC, left over: $(left_over)"
fi

# --- a search that is killed, and several at once --------------------------------------------

# Its trial has ended, and it has not looked: the next one does.
fresh_store late
# unseen: leaves a trial that has ended, and whose search was killed before it looked.
unseen() {
  LAST="a search that is stopped while its trial ends"
  touch "$WORK/held"
  GPUDAYS_TEST_FAULT=naive=held=$WORK/held "$GPUDAYS" bench "${quick[@]}" >"$OUT" 2>"$ERR" </dev/null &
  search=$!
  await has_child "$search"
  kill -STOP "$search"
  rm "$WORK/held"
  await compgen -G "$GPUDAYS_DB.trials/*/result.json" >/dev/null
}
unseen
step=$(sed -n 's/.*"step_s":\([0-9.e-]*\).*/\1/p' "$GPUDAYS_DB".trials/*/result.json)
kill -KILL "$search"
wait "$search" 2>/dev/null || true
expect 0 bench "${quick[@]}" --json
field_is step_s "$step"
field_is source run
expect 0 results --json
field_is step_s "$step"
[[ ! -e $GPUDAYS_DB.trials ]] || fail "$LAST: left over: $(ls "$GPUDAYS_DB.trials")"

# The same of a search of another build: its key, and so its folder, has another name. What it
# measured is stored as its own, and this build measures for itself.
fresh_store elsewhere
unseen
kill -KILL "$search"
wait "$search" 2>/dev/null || true
expect 0 results --pending # closes the store: all of it is in one file
key=$(basename "$GPUDAYS_DB".trials/*) commit=$(LC_ALL=C grep -aoE ';commit=[0-9a-f-]{7}' "$GPUDAYS_DB" | head -n 1)
LC_ALL=C sed -i "s/$key/0123456789abcdef0123456789abcdef/g; s/$commit/;commit=5a9dd79/g" "$GPUDAYS_DB"
mv "$GPUDAYS_DB.trials/$key" "$GPUDAYS_DB.trials/0123456789abcdef0123456789abcdef"
cp -r "$GPUDAYS_DB" "$WORK/elsewhere2.db"
cp -r "$GPUDAYS_DB.trials" "$WORK/elsewhere2.db.trials"
step=$(sed -n 's/.*"step_s":\([0-9.e-]*\).*/\1/p' "$GPUDAYS_DB".trials/*/result.json)
try bench "${quick[@]}" --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
[[ $(field step_s) != "$step" ]] || fail "$LAST: the result of another build as this one's"
field_is source run
said "1 trial of another build of gpudays was found next to the store and is stored as that build's; this one measures its own"
expect 0 results --json
shown "\"step_s\": $step,"
[[ $(grep -c '^      "key"' "$OUT") == 2 ]] || fail "$LAST: not the trials of both builds"
expect 0 bench "${quick[@]}" --json
field_is source store
[[ $(field step_s) != "$step" ]] || fail "$LAST: the result of another build as this one's"
expect 0 results --pending
shown "no pending trials"
[[ ! -e $GPUDAYS_DB.trials ]] || fail "$LAST: left over: $(ls "$GPUDAYS_DB.trials")"
# Asked for something else, a search of this build stores it under its own key.
fresh_store elsewhere2
try bench "${quick[@]}" --seed 5 --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
said "1 trial of another build"
expect 0 results --json
shown "\"step_s\": $step,"
[[ $(grep -c '"step_s"' "$OUT") == 3 ]] || fail "$LAST: not two trials and the best of them"
expect 0 results --pending
shown "no pending trials"
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
limited=("${quick[@]}" --methods "free-lunch,free-lunch+ckpt,free-lunch+ckpt+zero3+offload")
for limit in 4 20 60; do # the first one has to end before
  fresh_store "limit$limit"
  from=$EPOCHREALTIME
  GPUDAYS_TEST_FAULT=free-lunch+ckpt+zero3+offload=hang try bench "${limited[@]}" --time-limit "${limit}s"
  below "$(seconds_since "$from")" $((limit + 60))
  [[ $RC != 0 ]] || break
done
[[ $RC == 0 && ! -s $ERR ]] || fail "$LAST: exit $RC, or something on stderr"
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
GPUDAYS_TEST_FAULT=naive=held=$WORK "$GPUDAYS" bench "${quick[@]}" --methods naive --fresh \
  --store "$WORK/anew.db" >"$OUT" 2>"$ERR" &
await has_child $!
kill -9 $!
wait $! 2>/dev/null || true
expect 0 bench "${quick[@]}" --methods naive --store "$WORK/anew.db"
expect 0 results --pending --store "$WORK/anew.db"
shown "no pending trials"
[[ ! -e $WORK/anew.db.trials ]] || fail "the folder of the killed search is left"
