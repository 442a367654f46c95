#!/usr/bin/env bash
# A run that is killed at random moments, runs out of disk at random sizes, and finds its newest
# checkpoint damaged: it goes on from the last whole checkpoint, never from an older one, and ends with
# the losses of a run that nobody disturbed. GD_TEST_SEED gives a sample again; GD_TEST_ALL=1: 50 kills.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

kills=5 full=3 flips=3
if [[ -n ${GD_TEST_ALL:-} ]]; then
  kills=50 full=10 flips=20
fi
seed=${GD_TEST_SEED:-$(date +%j)}
echo "GD_TEST_SEED=$seed: $kills kills, $full full disks, $flips bytes flipped"
RANDOM=$seed

steps=60
run=(train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --steps "$steps" --warmup 4 --lr 1e-2
  --precision fp32 --methods free-lunch --micro-batch 4 --threads 1 --eval "$WORK/eval.bin" --eval-every 20)
expect 0 "${run[@]}" -o "$WORK/whole"
evaluations() { grep eval_loss "$1/log.jsonl"; }

# finishes RUN: from its last whole checkpoint to the end, as the run that nobody disturbed.
finishes() {
  local from
  from=$(newest "$1")
  try train "$1" --threads 1 --json
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  field_is step "$steps"
  field_is resumed_step "${from/#0/null}"
  same "$WORK/whole" "$1"
  diff <(evaluations "$WORK/whole") <(evaluations "$1") >"$OUT" || fail "$LAST: the evaluations differ"
  cmp "$WORK/whole/model/model.safetensors" "$1/model/model.safetensors" || fail "$LAST: another model"
}

# --- killed -------------------------------------------------------------------------------------

# One run is killed again and again, each time after a number of further steps and a moment more; then
# it is another one's turn.
killed=0 number=0
until ((killed == kills)); do
  number=$((number + 1))
  folder=$WORK/killed$number
  command=("${run[@]}" -o "$folder" --checkpoint-every $((1 + RANDOM % 7)))
  for ((turn = 0; turn < 6 && killed < kills; turn++)); do
    before=$(newest "$folder")
    at=$((before + 1 + RANDOM % 25))
    LAST="gpudays ${command[*]}, killed after step $at"
    "$GPUDAYS" "${command[@]}" >"$OUT" 2>"$ERR" </dev/null &
    program=$!
    # As often as not before the first step: while it starts, reads or checks.
    if ((RANDOM % 4)); then
      until logged "$folder" "$at" || ! kill -0 "$program" 2>/dev/null; do sleep 0.005; done
    fi
    sleep "0.0$((RANDOM % 90 + 10))"
    kill -KILL "$program" 2>/dev/null || true
    wait "$program" 2>/dev/null || true
    killed=$((killed + 1))
    (($(newest "$folder") >= before)) || fail "$LAST: the checkpoint of step $before is gone"
    [[ -e $folder/run.json ]] || continue
    command=(train "$folder" --threads 1)
    (($(newest "$folder") < steps)) || break
  done
  if [[ -e $folder/run.json ]]; then
    finishes "$folder"
  fi
  rm -rf "$folder"
done
echo "$killed kills of $number runs"

# --- a full disk --------------------------------------------------------------------------------

# Files may not grow past a size between nothing and what they need: run.json, the log or a checkpoint
# is cut short. Training goes on without a checkpoint or a log, and ends with 3 without its last checkpoint.
largest=$(find "$WORK/whole" -type f -printf '%s\n' | sort -n | tail -1)
for ((i = 0; i < full; i++)); do
  blocks=$((RANDOM % (largest / 1024 + 1)))
  folder=$WORK/full$i
  LAST="gpudays ${run[*]} with files of at most $blocks KiB" RC=0
  (
    trap '' XFSZ
    ulimit -f "$blocks"
    exec "$GPUDAYS" "${run[@]}" -o "$folder" --checkpoint-every 5
  ) 2>&1 >/dev/null </dev/null | cat >"$ERR" || RC=$?
  [[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
  if [[ -e $folder/run.json ]]; then
    finishes "$folder"
  else
    rm -rf "$folder"
    expect 0 "${run[@]}" -o "$folder"
    same "$WORK/whole" "$folder"
  fi
  rm -rf "$folder"
done

# --- damage -------------------------------------------------------------------------------------

# Any byte of any file of the newest checkpoint: what is damaged is left out, and the one before counts.
expect 0 "${run[@]}" -o "$WORK/damaged" --checkpoint-every 10 --keep 3
rm -rf "$WORK/damaged/checkpoints/step-00000060" "$WORK/damaged/model"
[[ $(checkpoints "$WORK/damaged" | wc -l) == 2 ]] || fail "$LAST: not two checkpoints"
mapfile -t files < <(cd "$WORK/damaged/checkpoints/step-00000050" && find . -type f | sort)
for ((i = 0; i < flips; i++)); do
  folder=$WORK/flipped
  rm -rf "$folder"
  cp -r "$WORK/damaged" "$folder"
  file=${files[RANDOM % ${#files[@]}]}
  at=$folder/checkpoints/step-00000050/$file
  offset=$(((RANDOM * 32768 + RANDOM) % $(wc -c <"$at")))
  byte=$(od -An -tu1 -j "$offset" -N 1 "$at")
  # shellcheck disable=SC2059
  printf "\\x$(printf %02x $((byte ^ 1 << RANDOM % 8)))" | dd of="$at" bs=1 seek="$offset" conv=notrunc 2>"$ERR"
  try train "$folder" --threads 1 --json
  LAST="$LAST after a flip in $file at $offset"
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  if [[ $file == ./config.json ]]; then # nothing is read from it
    field_is resumed_step 50
  else
    field_is resumed_step 40
    said "step-00000050 is left out"
  fi
  same "$WORK/whole" "$folder"
done
