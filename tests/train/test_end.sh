#!/usr/bin/env bash
# How `gpudays train` ends when somebody ends it, or one of its ranks: a signal lets all ranks finish
# the micro-step and write a checkpoint; a rank that dies or stops is named, and --retries goes on from the
# last checkpoint. The losses are those of a run that nobody disturbed.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

run=(train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --steps 40 --warmup 4 --lr 1e-2
  --precision fp32 --methods free-lunch --micro-batch 2 --threads 1)
ranks=()
if command -v mpirun >/dev/null; then
  ranks=(2)
else
  echo "skipped in part: mpirun is missing"
fi

# start RUN STEP ARGUMENT...: in the background, until it has logged that step; it goes on without the
# file $WORK/held. PROGRAM is its process.
start() {
  LAST="gpudays ${run[*]} ${*:3}"
  touch "$WORK/held"
  GPUDAYS_TEST_TRAIN=hold@$2=$WORK/held env --default-signal=INT "$GPUDAYS" "${run[@]}" -o "$1" "${@:3}" >"$OUT" 2>"$ERR" </dev/null &
  PROGRAM=$!
  await logged "$1" "$2"
}
# ends CODE
ends() {
  RC=0
  wait "$PROGRAM" 2>/dev/null || RC=$?
  [[ $RC == "$1" ]] || fail "$LAST: exit $RC, not $1"
}
# workers: the processes that train, in the order of their ranks.
workers() {
  local pid parent=$1
  for pid in $(pgrep -P "$parent" || true); do
    if [[ $(cat "/proc/$pid/comm" 2>/dev/null) == gpudays ]]; then
      echo "$pid"
    else
      workers "$pid"
    fi
  done
}
# rank_of PID
rank_of() {
  tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p'
}
# worker RANK
worker() {
  local pid
  for pid in $(workers "$PROGRAM"); do
    [[ $(rank_of "$pid") != "$1" ]] || echo "$pid"
  done
}
# goes_on RUN WHOLE ARGUMENT...: to its end, with the losses of the other run.
goes_on() {
  expect 0 train "$1" --threads 1 "${@:3}" --json
  field_is step 40
  field_is finished true
  same "$2" "$1"
}

expect 0 "${run[@]}" -o "$WORK/whole1"
for n in "${ranks[@]}"; do
  expect 0 "${run[@]}" -o "$WORK/whole$n" --ranks "$n"
done

# --- signals ------------------------------------------------------------------------------------

for n in "${ranks[@]}"; do
  for signal in TERM INT HUP USR1; do
    start "$WORK/$signal" 3 --ranks "$n"
    kill "-$signal" "$PROGRAM"
    ends 0
    [[ ! -s $ERR ]] || fail "$LAST: something on stderr"
    tr '\n' ' ' <"$OUT" | tr -s ' ' >"$WORK/flat"
    grep -qF "asked to stop: 'gpudays train $WORK/$signal' goes on" "$WORK/flat" ||
      fail "$LAST: does not say how to go on after SIG$signal"
    [[ $(newest "$WORK/$signal") == "$(last_logged "$WORK/$signal")" ]] ||
      fail "$LAST: the checkpoint is of step $(newest "$WORK/$signal")"
    (($(newest "$WORK/$signal") < 40)) || fail "$LAST: it was not ended"
    [[ $signal == INT || $signal == USR1 ]] || goes_on "$WORK/$signal" "$WORK/whole$n" --ranks "$n"
  done
done

# In an evaluation: it is called off, and made up for.
evaluated=(--eval "$WORK/eval.bin" --eval-every 3)
GPUDAYS_TEST_TRAIN=stop@3 expect 0 "${run[@]}" "${evaluated[@]}" -o "$WORK/eval"
[[ $(newest "$WORK/eval") == 3 ]] || fail "$LAST: the checkpoint is of step $(newest "$WORK/eval")"
! grep -q eval_loss "$WORK/eval/log.jsonl" || fail "$LAST: half an evaluation is in the log"
expect 0 train "$WORK/eval" --threads 1
same "$WORK/whole1" "$WORK/eval"
[[ $(grep eval_loss "$WORK/eval/log.jsonl" | head -1) == '{"step": 3, '* ]] ||
  fail "$LAST: the evaluation of step 3 is missing"

# --- ranks that die or stop ---------------------------------------------------------------------

for n in "${ranks[@]}"; do
  start "$WORK/dead" 12 --ranks "$n" --checkpoint-every 5
  kill -KILL "$(worker 1)"
  ends 3
  said "rank 1 was killed by signal 9 (Killed); the other ranks were stopped"
  (($(newest "$WORK/dead") >= 5)) || fail "$LAST: no checkpoint"
  goes_on "$WORK/dead" "$WORK/whole$n" --ranks "$n"

  start "$WORK/stopped" 12 --ranks "$n" --checkpoint-every 5 --rank-timeout 5
  kill -STOP "$(worker 1)"
  rm "$WORK/held"
  ends 3
  said "no answer from rank 1 for 5 s in"
  (($(newest "$WORK/stopped") >= 5)) || fail "$LAST: no checkpoint"
  goes_on "$WORK/stopped" "$WORK/whole$n" --ranks "$n"

  start "$WORK/again" 12 --ranks "$n" --checkpoint-every 5 --retries 2 --json
  kill -KILL "$(worker 0)"
  await grep -qs "retry 1 of 2" "$ERR"
  rm "$WORK/held"
  ends 0
  said "rank 0 was killed by signal 9 (Killed); the other ranks were stopped; going on from the last checkpoint: retry 1 of 2"
  field_is retries 1
  field_is step 40
  same "$WORK/whole$n" "$WORK/again"
done

# --- a process that dies ------------------------------------------------------------------------

# Two deaths, one before the first checkpoint; then the end.
start "$WORK/alone" 3 --checkpoint-every 5 --retries 2 --json
kill -KILL "$(workers "$PROGRAM")"
await grep -qs "retry 1 of 2" "$ERR"
await logged "$WORK/alone" 3
kill -KILL "$(workers "$PROGRAM")"
await grep -qs "retry 2 of 2" "$ERR"
rm "$WORK/held"
ends 0
said "the process that trains was killed by signal 9 (Killed); going on from the last checkpoint: retry 2 of 2"
field_is retries 2
field_is step 40
same "$WORK/whole1" "$WORK/alone"
# As often as was said, and no more.
start "$WORK/given-up" 12 --checkpoint-every 5 --retries 1
kill -KILL "$(workers "$PROGRAM")"
await grep -qs "retry 1 of 1" "$ERR"
await has_child "$PROGRAM"
kill -KILL "$(workers "$PROGRAM")"
ends 3
[[ $(tail -1 "$ERR") == "gpudays: the process that trains was killed by signal 9 (Killed)" ]] ||
  fail "$LAST: other words"
goes_on "$WORK/given-up" "$WORK/whole1"
# A watched run ends in order, too.
start "$WORK/watched" 3 --retries 1
kill -TERM "$PROGRAM"
ends 0
shown "asked to stop"
[[ $(newest "$WORK/watched") == "$(last_logged "$WORK/watched")" ]] || fail "$LAST: another checkpoint"
# What the user did wrong is said once.
expect 2 train "$WORK/tiny" --data "$WORK/none.bin" -o "$WORK/no" --retries 3
said "No such file"

# --- within a step -----------------------------------------------------------------------------

# A long step is not waited for: it is left out, and made when the run goes on.
for n in 1 "${ranks[@]}"; do
  words=()
  [[ $n == 1 ]] || words=(--ranks "$n")
  GPUDAYS_TEST_TRAIN=within@17 expect 0 "${run[@]}" -o "$WORK/within$n" "${words[@]}"
  shown "the time is up"
  [[ $(last_logged "$WORK/within$n") == 16 && $(newest "$WORK/within$n") == 16 ]] || fail "$LAST: not 16 steps"
  expect 0 train "$WORK/within$n" --threads 1
  same "$WORK/whole$n" "$WORK/within$n"
done
# Nor the first one.
expect 0 train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 4000000 --micro-batch 1 --steps 2 --threads 1 \
  --time-limit 1s -o "$WORK/long"
shown "0 of 2 steps"

# --- what a run may not be given ------------------------------------------------------------------

for option in "--mask-token 3" "--token-bytes 2" "--seed 0" "--lr 1e-3" "--data $WORK/eval.bin"; do
  # shellcheck disable=SC2086
  expect 2 train "$WORK/whole1" $option
  said "${option%% *} would change what it trains"
done
