#!/usr/bin/env bash
# Ranks from the command line: started by --ranks, joined under mpirun, and ended when one of them
# dies, stops, or the launcher is told to.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

# A program that is not one of ours must not look like one of ours: every process started here has
# this in its environment.
export GD_TEST_RUN=$$-$RANDOM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset OMP_NUM_THREADS

# marked: the processes that have it. One grep for all of them: what waits for ranks asks again and again.
marked() {
  { grep -lsz "^GD_TEST_RUN=$GD_TEST_RUN\$" /proc/[0-9]*/environ || true; } | cut -d / -f 3
}
# left_over: the processes of a run that are still there. Shells and tools of this script are not.
left_over() {
  local pid
  for pid in $(marked); do
    [[ ! $(cat "/proc/$pid/comm" 2>/dev/null) =~ ^(gpudays|mpirun|orte|prte|sleep) ]] || echo "$pid"
  done
}

tiny_config "$WORK/tiny"
quick=(--seq 8 --batch 12 --steps 10 --sample-seconds 0.2 --methods naive)
# Two thousand tokens a pass on one thread: seconds each, so a run of half a minute.
long=(pythia-14m --seq 512 --micro-batch 4 --batch 12 --threads 1 --sample-seconds 60 --no-store)

# --- what needs no mpirun --------------------------------------------------------------------

mkdir "$WORK/empty"
LAST="bench --ranks without mpirun" RC=0
PATH=$WORK/empty "$GPUDAYS" bench "$WORK/tiny" --ranks 3 >"$OUT" 2>"$ERR" || RC=$?
[[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
said "there is none in PATH; install OpenMPI"

expect 2 bench "$WORK/tiny" --ranks 0
said '--ranks is "0"; expected a whole number from 1'
expect 2 bench "$WORK/tiny" --rank-timeout 0
expect 2 models --ranks 2
expect 0 bench "$WORK/tiny" "${quick[@]}" --ranks 1 --json
field_is status ok
! grep -q OpenMPI= "$OUT" || fail "$LAST: the version of a library that it does not use"

# fake SCRIPT OPTION...: what a gpudays under a fake mpirun makes of it.
fake() {
  mkdir -p "$WORK/fake"
  printf '#!/bin/sh\n%s\n' "$1" >"$WORK/fake/mpirun"
  chmod +x "$WORK/fake/mpirun"
  LAST="gpudays bench under: $1" RC=0
  PATH=$WORK/fake:/usr/bin:/bin "$GPUDAYS" bench "$WORK/tiny" "${quick[@]}" \
    --ranks 3 --no-store "${@:2}" >"$OUT" 2>"$ERR" || RC=$?
}
rule=$(printf -- '-%.0s' {1..74})

# OpenMPI 5 wraps its lines and calls itself prterun.
fake "cat >&2 <<'END'
$rule
prterun noticed that process rank 1 with PID 4711 on node n01 exited on
signal 11 (Segmentation fault).
$rule
END
exit 139"
[[ $RC == 4 && $(cat "$ERR") == "gpudays: rank 1 was killed by signal 11 (Segmentation fault); \
the other ranks were stopped" ]] || fail "$LAST: exit $RC, another sentence"
# Its own trouble.
fake "cat >&2 <<'END'
[n01:12] something internal
$rule
There are not enough slots available in the system to satisfy the 3
slots that were requested by the application:
$rule
END
exit 1"
[[ $RC == 3 && $(wc -l <"$ERR") == 1 ]] || fail "$LAST: exit $RC, or not one line"
said "mpirun ended with exit code 1: There are not enough slots available in the system to satisfy the 3 slots"
# A segment that was gone already is no reason, and neither is how it words its end.
fake "cat >&2 <<'END'
$rule
A system call failed during shared memory initialization that should
not have.  It is likely that your MPI job will now either abort or
experience performance degradation.

  System call: unlink(2) /dev/shm/vader_segment.n01.0.4a300001.1
  Error:       No such file or directory (errno 2)
$rule
END
exit 1"
[[ $RC == 3 && $(cat "$ERR") == "gpudays: mpirun ended with exit code 1: it gave no reason" ]] ||
  fail "$LAST: exit $RC, or another sentence"
fake "exit 143"
[[ $RC == 3 ]] || fail "$LAST: exit $RC"
said "mpirun was asked to end by signal 15 (Terminated); its ranks were stopped"
fake "exit 5"
[[ $RC == 3 ]] || fail "$LAST: exit $RC"
said "exit code 5: it gave no reason"
# A rank's own words pass, with its code.
fake "echo answer; echo 'gpudays: the model does not fit' >&2; exit 1"
[[ $RC == 1 && ! -s $OUT && $(cat "$ERR") == "gpudays: the model does not fit" ]] ||
  fail "$LAST: exit $RC, or other words"
fake "printf 'note without an end' >&2; exit 0"
[[ $RC == 4 && $(cat "$ERR") == "gpudays: its process ended without an answer" ]] ||
  fail "$LAST: exit $RC, or other words"
# What it leaves behind is ended.
fake "setsid sleep 2000 & exit 0"
[[ $RC == 4 ]] || fail "$LAST: exit $RC"
[[ -z $(left_over) ]] || fail "$LAST: left over: $(left_over)"

if ! command -v mpirun >/dev/null; then
  echo "SKIPPED: runs of several ranks: mpirun is missing; run tools/setup" \
    "(Debian: apt-get install openmpi-bin)" >&2
  exit 77
fi

# --- runs ------------------------------------------------------------------------------------

expect 0 bench "$WORK/tiny" "${quick[@]}" --ranks 2 --json
field_is status ok
# What was measured with one OpenMPI is no answer for another: its version is one of the machine's.
version=$(mpirun --version | sed -n '1s/.* \([0-9][0-9.a-z]*\)$/\1/p')
shown "OpenMPI=$version"
field_is threads "$(($(nproc) > 3 ? $(nproc) / 2 : 1))"
[[ $(grep -c '"best"' "$OUT") == 1 ]] || fail "$LAST: not one answer"
expect 0 bench "$WORK/tiny" "${quick[@]}" --ranks 3 --threads 2 --json
field_is threads 2
expect 0 bench "$WORK/tiny" "${quick[@]}" --ranks 2
[[ $(grep -c '^tiny on 2 ranks on ' "$OUT") == 1 ]] || fail "$LAST: not one answer"
! grep -q $'\e' "$OUT" || fail "$LAST: bold in a file" # a rank's stdout is a terminal of mpirun's
expect 1 bench pythia-160m --batch 12 --device-memory 16MiB --ranks 3
shown infeasible
expect 2 bench no-such-model --ranks 2
said 'unknown model "no-such-model"'
GPUDAYS_LIBMPI=libm.so.6 expect 3 bench "$WORK/tiny" "${quick[@]}" --ranks 2 --no-store
said "is not OpenMPI's"

# The user's own mpirun: the job's size counts.
by_hand() {
  LAST="mpirun -n 2 gpudays $*" RC=0
  mpirun --oversubscribe -n 2 "$GPUDAYS" "$@" >"$OUT" 2>"$ERR" </dev/null || RC=$?
}
by_hand bench "$WORK/tiny" "${quick[@]}" --json
[[ $RC == 0 && $(grep -c '"best"' "$OUT") == 1 ]] || fail "$LAST: exit $RC, or not one answer"
[[ $(cat "$ERR") == "gpudays: note: nothing is stored inside of one's own mpirun or srun; 'gpudays bench --ranks N' stores" ]] ||
  fail "$LAST: does not say once that nothing is stored"
by_hand bench "$WORK/tiny" "${quick[@]}" --ranks 2 --json
[[ $RC == 0 && $(grep -c '"best"' "$OUT") == 1 ]] || fail "$LAST: exit $RC, or not one answer"
by_hand bench "$WORK/tiny" "${quick[@]}" --ranks 3
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "--ranks is 3, but this process is one of 2 ranks already"
[[ $(grep -c '^gpudays: ' "$ERR") == 1 ]] || fail "$LAST: more than one rank speaks"
# Nothing is removed behind OpenMPI's back, which would say so.
by_hand bench "$GD_SOURCE_DIR/tests/reference/gpt2-b" --seq 16 --batch 16 --sample-seconds 0.2 \
  --methods free-lunch+zero1 --no-store
[[ $RC == 0 && ! -s $ERR ]] || fail "$LAST: exit $RC, or something on stderr"
# Ranks that run different commands end at once, whoever joins and whoever never does.
by_two() {
  LAST="mpirun -n 1 gpudays $1 : -n 1 gpudays $2" RC=0
  # shellcheck disable=SC2086
  timeout 100 mpirun --oversubscribe -n 1 "$GPUDAYS" $1 : -n 1 "$GPUDAYS" $2 >"$OUT" 2>"$ERR" </dev/null || RC=$?
}
by_two "plan pythia-14m" "bench $WORK/tiny ${quick[*]} --rank-timeout 600"
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "'plan' needs no ranks, but this process is one of 2 that mpirun started with 2 commands"
by_two "bench $WORK/tiny ${quick[*]} --rank-timeout 600" "models"
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "'models' needs no ranks"
by_two "bench $WORK/tiny ${quick[*]} --rank-timeout 600" "calibrate --rank-timeout 600"
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "rank 0 runs 'bench' and rank 1 runs 'calibrate'"
# The same command with its own options is fine.
by_two "bench $WORK/tiny ${quick[*]} --json" "bench $WORK/tiny ${quick[*]} --json"
[[ $RC == 0 && $(grep -c '"best"' "$OUT") == 1 ]] || fail "$LAST: exit $RC, or not one answer"
by_hand models --json
[[ $RC == 0 && $(grep -c '^  "models"' "$OUT") == 1 ]] || fail "$LAST: not one answer"

# A step of one task is no job: the search goes on as it would outside, and starts ranks.
LAST="mpirun -n 1 gpudays bench --ranks 2" RC=0
mpirun --oversubscribe -n 1 "$GPUDAYS" bench "$WORK/tiny" "${quick[@]}" --ranks 2 --fresh --json \
  >"$OUT" 2>"$ERR" </dev/null || RC=$?
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
field_is ranks 2
LAST="gpudays bench in srun --pty bash"
PMIX_RANK=0 PMIX_NAMESPACE=slurm.pmix.7.0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 \
  expect 0 bench "$WORK/tiny" "${quick[@]}" --seq 7 --json
expect 0 bench "$WORK/tiny" "${quick[@]}" --seq 7 --json
field_is source store # it was kept

# --- agreement -------------------------------------------------------------------------------

# unlike "OPTIONS" "OPTIONS"...: one rank for each, under the user's own mpirun.
unlike() {
  local words=() options
  LAST="ranks with: $*" RC=0
  for options; do
    ((${#words[@]} == 0)) || words+=(:)
    # shellcheck disable=SC2206 # options are words
    words+=(-n 1 "$GPUDAYS" bench "$WORK/tiny" "${quick[@]}" --rank-timeout 200 $options)
  done
  mpirun --oversubscribe "${words[@]}" >"$OUT" 2>"$ERR" </dev/null || RC=$?
}

# One with a remainder and one without took each other's messages.
unlike "--micro-batch 3" "--micro-batch 4"
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "gpudays: rank 1 has another micro-batch than rank 0 (4, not 3); start all ranks with the same gpudays"
unlike "" "" "--precision fp32" "--precision fp32"
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "gpudays: ranks 2, 3 have another precision than rank 0; start all ranks"
unlike "" "--sample-seconds 0.3"
said "gpudays: rank 1 has another --sample-seconds than rank 0"
# What decides which trials there are, and for which run, is compared before the first one.
for case in "--batch 13|batch than rank 0 (13, not 12)" "--seq 9|sequence length than rank 0 (9, not 8)" \
  "--steps 11|number of steps than rank 0 (11, not 10)" "--methods naive,kernels|list of methods than" \
  "$GD_SOURCE_DIR/tests/reference/gpt2-b|list of models than rank 0;"; do
  unlike "" "${case%|*}"
  [[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
  said "gpudays: rank 1 has another ${case#*|}"
  [[ $(grep -c '^gpudays: ' "$ERR") == 1 ]] || fail "$LAST: more than one rank speaks"
done
# A model is what it is, not what it is called: the shapes of these two are the same.
tiny_config "$WORK/elsewhere/tiny" 's/1e-05/1e-06/'
definition="another definition of the model (config.json or preset) than rank 0; start all ranks with the \
same gpudays, the same options and the same files of the model"
LAST="ranks with two models of one name" RC=0
mpirun --oversubscribe -n 1 "$GPUDAYS" bench "$WORK/tiny" "${quick[@]}" --rank-timeout 200 : \
  -n 2 "$GPUDAYS" bench "$WORK/elsewhere/tiny" "${quick[@]}" --rank-timeout 200 \
  >"$OUT" 2>"$ERR" </dev/null || RC=$?
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "gpudays: ranks 1, 2 have $definition"
silent
# The same where --ranks starts them, and the second machine has an older copy of the file.
cat >"$WORK/mpirun.openmpi" <<'END'
#!/bin/bash
options=()
while [[ $1 != -n ]]; do options+=("$1") && shift; done
shift 2
exec mpirun "${options[@]}" -n 1 "$@" : -n 1 unshare --map-root-user --mount \
  sh -c 'mount --bind "$WORK/elsewhere/tiny" "$WORK/tiny" && exec "$@"' sh "$@"
END
if unshare --map-root-user --mount true 2>/dev/null; then
  export WORK
  mkdir "$WORK/copies"
  mv "$WORK/mpirun.openmpi" "$WORK/copies"
  chmod +x "$WORK/copies/mpirun.openmpi"
  LAST="--ranks 2 with two copies of a model" RC=0
  PATH=$WORK/copies:$PATH "$GPUDAYS" bench "$WORK/tiny" "${quick[@]}" --ranks 2 --no-store \
    >"$OUT" 2>"$ERR" </dev/null || RC=$?
  [[ $RC != 0 ]] || fail "$LAST: exit 0"
  tr '\n' ' ' <"$ERR" | grep -F "rank 1 has $definition" >/dev/null || fail "$LAST: another sentence"
else
  echo "skipped in part: nothing can be mounted here, so no rank has its own copy of a model"
fi
# Unequal limits: the least counts, and is said.
unlike "--json" "--json --device-memory 1GiB" "--json"
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
field_is device_limit_bytes 1073741824
[[ $(field note) == "ranks have unequal limits, and all run with the least: device memory 1.00 GiB (rank 1) to "* ]] ||
  fail "$LAST: note '$(field note)'"
unlike "" "--device-memory 1GiB"
shown "note: ranks have unequal limits"
# Those of one machine divide its memory.
by_hand bench "$WORK/tiny" "${quick[@]}" --json
half=$(field device_limit_bytes)
expect 0 bench "$WORK/tiny" "${quick[@]}" --json
whole=$(field device_limit_bytes)
# What is free varies with what else runs: less than three quarters, and not half to the byte.
awk -v half="$half" -v whole="$whole" 'BEGIN { exit !(half < 0.75 * whole) }' ||
  fail "$LAST: $half of $whole bytes for one of two ranks"

# --- peaks -----------------------------------------------------------------------------------

# More ranks than cores compute no faster: the peak is that of the cores.
# Both are measured, and load makes either of them lower: of several the highest counts.
cores=$(nproc) peak=0 twice=0
for ((tries = 1; ; tries++)); do
  expect 0 bench "$WORK/tiny" "${quick[@]}" --batch 64 --ranks "$cores" --threads 1 --json --fresh
  peak=$(printf '%s\n' "$peak" "$(field peak_flops)" | sort -g | tail -n 1)
  expect 0 bench "$WORK/tiny" "${quick[@]}" --batch 64 --ranks $((2 * cores)) --threads 1 --json --fresh
  twice=$(printf '%s\n' "$twice" "$(field peak_flops)" | sort -g | tail -n 1)
  ! awk -v one="$peak" -v two="$twice" 'BEGIN { exit !(two < 1.5 * one) }' || break
  ((tries < 10)) || fail "$LAST: a peak of $twice with twice the ranks, $peak with one for each core"
done

# --- ends ------------------------------------------------------------------------------------

# rank_pid RANK: of the run that was started last; empty: there is none.
rank_pid() {
  local pid
  for pid in $(marked); do
    if grep -qsz "^OMPI_COMM_WORLD_RANK=$1\$" "/proc/$pid/environ" &&
      [[ $(readlink "/proc/$pid/exe") == "$PROGRAM" ]]; then
      echo "$pid"
      return
    fi
  done
}
PROGRAM=$(realpath "$GPUDAYS")

# begin RANKS ARGUMENT...: runs in the background; every rank has joined the job, since its arenas are
# in memory: before that it has some 20 MB. False: the run has ended before. INT: background jobs of a
# script ignore it.
begin() {
  local ranks=$1 rank
  shift
  LAST="gpudays bench $*"
  env --default-signal=INT "$GPUDAYS" bench "$@" --ranks "$ranks" >"$OUT" 2>"$ERR" </dev/null &
  LAUNCHER=$!
  for ((rank = 0; rank < ranks; rank++)); do
    await has_come_or_gone "$rank"
  done
  kill -0 "$LAUNCHER" 2>/dev/null
}
start() { begin "$@" || fail "$LAST: it has ended"; }
has_come_or_gone() {
  local pid
  kill -0 "$LAUNCHER" 2>/dev/null || return 0
  pid=$(rank_pid "$1")
  [[ -n $pid ]] && grep -Eqs '^VmRSS:\s+[0-9]{6,} kB' "/proc/$pid/status"
}

# prompt SIGNAL CODE: a run whose launcher gets it ends within two seconds. Load makes a prompt end
# late, and nothing makes a late one prompt: one of five is that soon, or the last one within twenty
# seconds, which a machine needs that is busy all the time. All else must be right each time.
prompt() {
  local try
  for try in 1 2 3 4 5; do
    start 2 "${long[@]}"
    kill "-$1" "$LAUNCHER"
    finish "$2"
    ! awk -v took="$TOOK" 'BEGIN { exit !(took < 2) }' || return 0
    echo "$LAST, $1: took $TOOK s, not below 2; try $try of 5" >&2
  done
  awk -v took="$TOOK" 'BEGIN { exit !(took < 20) }' || fail "$LAST, $1: never below 2 s"
}

# finish CODE: the launcher ends with CODE, long before the run would, and nothing is left of it.
finish() {
  local from=$EPOCHREALTIME
  RC=0
  wait "$LAUNCHER" || RC=$?
  TOOK=$(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
  [[ $RC == "$1" ]] || fail "$LAST: exit $RC, not $1"
  awk -v took="$TOOK" 'BEGIN { exit !(took < 100) }' || fail "$LAST: took $TOOK s"
  [[ -z $(left_over) ]] || fail "$LAST: left over: $(left_over)"
}

start 3 "${long[@]}"
kill -KILL "$(rank_pid 2)"
finish 3
[[ $(cat "$ERR") == "gpudays: rank 2 was killed by signal 9 (Killed); the other ranks were stopped" ]] ||
  fail "$LAST: another sentence"
silent

prompt INT 130
silent
[[ ! -s $ERR ]] || fail "$LAST: words on Ctrl-C"

prompt TERM 143

# mpirun itself, which leaves its session folder behind then; its folder goes nevertheless.
mkdir "$WORK/tmp"
TMPDIR=$WORK/tmp start 2 "${long[@]}"
kill -KILL "$(pgrep -P "$(pgrep -P "$LAUNCHER")")"
finish 3
said "mpirun was killed by signal 9 (Killed); its ranks were stopped"
[[ -z $(ls -A "$WORK/tmp") ]] || fail "$LAST: left in TMPDIR: $(ls -A "$WORK/tmp")"
TMPDIR=$WORK/tmp start 2 "${long[@]}"
! grep -qsz "^TMPDIR=/dev/shm" "/proc/$(rank_pid 1)/environ" || fail "$LAST: a rank's TMPDIR is mpirun's"
kill -HUP "$(pgrep -P "$(pgrep -P "$LAUNCHER")")"
finish 3
said "without a word, as it does when somebody sends it SIGTERM, SIGINT or SIGHUP; its ranks were stopped"
[[ -z $(ls -A "$WORK/tmp") ]] || fail "$LAST: left in TMPDIR: $(ls -A "$WORK/tmp")"

# A rank that stops: the others wait for it at the end.
# One that computes for longer than the limit, on a machine that is so busy, is taken for such a one, and may be gone before
# it is stopped.
for limit in 2 10 60; do
  if begin 2 "${long[@]}" --sample-seconds 1 --seq 256 --rank-timeout "$limit" && victim=$(rank_pid 1) &&
    [[ -n $victim ]] && kill -STOP "$victim"; then
    finish 3
    [[ $(cat "$ERR") != *"no answer from rank 1 for $limit s in"* ]] || break
  else
    wait "$LAUNCHER" || true
  fi
done
said "no answer from rank 1 for $limit s in"
[[ $(wc -l <"$ERR") == 1 ]] || fail "$LAST: not one line on stderr"
silent

# A rank that never comes: the others wait in MPI_Init, which has no limit of its own. A sleep stands
# for it, under the user's own mpirun and, where the program is the last but its arguments, under ours.
LAST="mpirun of a gpudays and a sleep" RC=0
mpirun --oversubscribe -n 1 "$GPUDAYS" bench "$WORK/tiny" "${quick[@]}" --rank-timeout 2 : \
  -n 1 sleep 2000 >"$OUT" 2>"$ERR" </dev/null || RC=$?
[[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
said "gpudays: rank 0 has waited 10 s in MPI_Init, which ends when all 2 ranks are there: one of them"
[[ -z $(left_over) ]] || fail "$LAST: left over: $(left_over)"

# late RANK: a --ranks 2 of which that rank does not come.
late() {
  printf '%s\n' '#!/bin/bash' "[[ \$OMPI_COMM_WORLD_RANK != $1 ]] || exec sleep 2000" 'exec "$@"' \
    >"$WORK/late"
  chmod +x "$WORK/late"
  for _ in 1 2 3; do # on a busy machine a rank may start too late to say it first
      fake "for word; do shift; [ \"\$word\" != '$(realpath "$GPUDAYS")' ] || set -- \"\$@\" '$WORK/late'
set -- \"\$@\" \"\$word\"; done; exec '$(command -v mpirun)' \"\$@\"" --ranks 2 --rank-timeout 2
    grep "had not started all ranks" "$ERR" >/dev/null || break
  done
  LAST="gpudays bench --ranks 2 without rank $1"
  [[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
  said "rank $((1 - $1)) has waited 10 s in MPI_Init, which ends when all 2 ranks are there"
  [[ $(wc -l <"$ERR") == 1 ]] || fail "$LAST: not one line on stderr"
  [[ -z $(left_over) ]] || fail "$LAST: left over: $(left_over)"
  silent
}
late 1
late 0
