#!/usr/bin/env bash
# What `gpudays train` does about steps that go wrong: a spike of the loss or of the gradient norm costs
# its update, three in a row lead back to the last checkpoint; a model that does not learn is said so
# once; the checkpoint with the lowest evaluation loss stays.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

run=(train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --steps 60 --warmup 4 --lr 1e-2
  --precision fp32 --methods free-lunch --micro-batch 4 --threads 1)
expect 0 "${run[@]}" -o "$WORK/whole" --json
field_is skipped 0
! grep -q skipped "$WORK/whole/log.jsonl" || fail "$LAST: an update was skipped"

# line RUN STEP: its line of the log; norm RUN STEP.
line() { sed -n "/^{\"step\": $2, \"loss\"/p" "$1/log.jsonl"; }
norm() { line "$@" | sed -E 's/.*"gradient_norm": ([^,]+),.*/\1/'; }

# --- one spike ----------------------------------------------------------------------------------

# The step is as it was; its update is skipped, so the next step sees the same parameters with other data.
ranks=("")
! command -v mpirun >/dev/null || ranks+=("--ranks 2")
for extra in "${ranks[@]}"; do
  for spike in norm loss; do
    folder=$WORK/$spike${extra: -1}
    # shellcheck disable=SC2086
    GPUDAYS_TEST_TRAIN=$spike@45 expect 0 "${run[@]}" -o "$folder" $extra
    shown "1 update was skipped: the loss was not finite, or it or the norm spiked"
    [[ $(line "$folder" 45) == *'"skipped": true'* ]] || fail "$LAST: step 45 is not skipped"
    [[ $(grep -c skipped "$folder/log.jsonl") == 1 ]] || fail "$LAST: other steps are skipped"
  done
done
diff <(losses "$WORK/whole" | head -45) <(losses "$WORK/norm" | head -45) >"$OUT" ||
  fail "$LAST: the losses before the spike differ"
awk -v a="$(norm "$WORK/whole" 45)" -v b="$(norm "$WORK/norm" 45)" \
  'BEGIN { exit !(b > 1023 * a && b < 1025 * a) }' || fail "$LAST: the norm is not 1024 times as large"
# Nothing of the spike is left: skipping by the norm and skipping by the loss end alike.
diff <(losses "$WORK/norm" | tail -15) <(losses "$WORK/loss" | tail -15) >"$OUT" ||
  fail "$LAST: the losses after both spikes differ"
diff <(losses "$WORK/whole") <(losses "$WORK/norm") >"$OUT" && fail "$LAST: the update was not skipped"
# Before there is enough to judge by, none is one.
GPUDAYS_TEST_TRAIN=norm@20 expect 0 "${run[@]}" -o "$WORK/early" --json
field_is skipped 0

# --- three in a row -----------------------------------------------------------------------------

GPUDAYS_TEST_TRAIN=norm@45,loss@46,norm@47 try "${run[@]}" -o "$WORK/back" --checkpoint-every 10 --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
said "loss or gradient norm spiked for 3 steps up to step 47: back to the checkpoint of step 40, and on with the data behind"
field_is step 60
field_is skipped 3
GPUDAYS_TEST_TRAIN=norm@45,loss@46,norm@47 expect 1 "${run[@]}" -o "$WORK/nowhere"
said "3 updates in a row were skipped, and there is no checkpoint to go back to"

# A run that was stopped on the way, by a signal or a time limit, goes back to the same checkpoint as
# one that was not: before the spike, among its steps, and when the steps are done again.
back=norm@45,loss@46,norm@47
for stop in 43 40 46 44,late@52; do
  folder=$WORK/stopped-${stop%%,*}
  GPUDAYS_TEST_TRAIN=$back,late@$stop try "${run[@]}" -o "$folder" --checkpoint-every 10 --keep 1
  for session in 2 3 4; do
    [[ $RC == 0 ]] || fail "$LAST: exit $RC"
    (($(last_logged "$folder") < 60)) || break
    late=""
    [[ $session != 2 || $stop != *,* ]] || late=,late@52
    GPUDAYS_TEST_TRAIN=$back$late try train "$folder" --threads 1
  done
  same "$WORK/back" "$folder"
done
# Killed between the roll-back and the next checkpoint, too.
LAST="gpudays ${run[*]}, killed after a roll-back"
touch "$WORK/held"
# The step is done twice; the second time it waits.
GPUDAYS_TEST_TRAIN=$back,late@43 try "${run[@]}" -o "$WORK/killed" --checkpoint-every 10
GPUDAYS_TEST_TRAIN=$back,hold@42=$WORK/held "$GPUDAYS" train "$WORK/killed" --threads 1 >"$OUT" 2>"$ERR" </dev/null &
program=$!
await grep -qs "back to the checkpoint of step 40" "$ERR"
await logged "$WORK/killed" 42
kill -KILL "$program"
wait "$program" 2>/dev/null || true
[[ ! -e $WORK/killed/checkpoints/step-00000043 ]] || fail "$LAST: a checkpoint of steps done again is there"
GPUDAYS_TEST_TRAIN=$back try train "$WORK/killed" --threads 1
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
same "$WORK/back" "$WORK/killed"

# --- nothing is learnt --------------------------------------------------------------------------

try "${run[@]}" --lr 1e-12 --steps 140 -o "$WORK/dull"
[[ $RC == 0 && $(wc -l <"$ERR") == 1 ]] || fail "$LAST: exit $RC, or not one line on stderr"
said "at step 132, after the warm-up: guessing among 64 tokens gives ln(64) = 4.1589. Nothing is learnt"

# --- the best checkpoint ------------------------------------------------------------------------

# Noise cannot be learnt: what is learnt makes its loss worse, so that an early checkpoint is the best.
noise() {
  awk 'BEGIN { x = 1; for (i = 0; i < 20000; i++) { x = (x * 16807) % 2147483647
    printf "\\x%02x\\x00", int(x / 65536) % 64 } }'
}
# shellcheck disable=SC2059
printf "$(noise)" >"$WORK/noise.bin"
expect 0 "${run[@]}" -o "$WORK/best" --eval "$WORK/noise.bin" --eval-every 5 --checkpoint-every 5 --keep 1 --json
best=$(sed -nE 's/^\{"step": ([0-9]+), "eval_loss": ([^}]+)\}/\2 \1/p' "$WORK/best/log.jsonl" |
  sort -g | head -1 | cut -d' ' -f2)
field_is best_step "$best"
((best < 60)) || fail "$LAST: the last one is the best"
[[ -e $WORK/best/checkpoints/step-$(printf %08d "$best")/state.json ]] || fail "$LAST: it is gone"
(($(checkpoints "$WORK/best" | wc -l) <= 2)) || fail "$LAST: more than the newest and the best are left"

# --- the hardware -------------------------------------------------------------------------------

# Checks change nothing of a run, also in fp16 with its loss scale, and with dropout's seeds.
for extra in "${ranks[@]}"; do
  for precision in fp32 fp16; do
    folder=$WORK/checked-$precision${extra: -1}
    # shellcheck disable=SC2086
    expect 0 "${run[@]}" --precision $precision -o "$folder-not" $extra
    # shellcheck disable=SC2086
    expect 0 "${run[@]}" --precision $precision -o "$folder" --check-hardware 7 $extra
    same "$folder-not" "$folder"
  done
  # A device that gives another loss the second time.
  # shellcheck disable=SC2086
  GPUDAYS_TEST_TRAIN=flip@21 try "${run[@]}" -o "$folder-bad" --check-hardware 7 --checkpoint-every 5 $extra
  [[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
  said "the same micro-step after step 21 gave loss "
  said "(rank $((${extra: -1} + 0 > 0))): its device or memory computes wrongly"
  (($(newest "$folder-bad") <= 20)) || fail "$LAST: a checkpoint was written after it"
done
GPUDAYS_TEST_TRAIN=flip@22 expect 0 "${run[@]}" -o "$WORK/unseen" --check-hardware 7
# A spike is checked at once, and is none of the hardware's.
GPUDAYS_TEST_TRAIN=norm@45 try "${run[@]}" -o "$WORK/innocent" --check-hardware 100
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
said "the spike of step 45 is none of the hardware's: the same micro-step gives the same again"
GPUDAYS_TEST_TRAIN=norm@45,flip@45 expect 3 "${run[@]}" -o "$WORK/guilty" --check-hardware 100
said "the same micro-step after step 45 gave loss "
