#!/usr/bin/env bash
# One run in sessions: from one rank to four, to sharded parameters, to offloading, to two ranks, each for
# thirty steps, with the losses of a run that nobody stopped and no sample seen twice; and one that is
# killed at step 80 of 200, with the same losses bit for bit.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

common=(--seq 16 --batch 8 --warmup 4 --lr 1e-2 --precision fp32 --methods free-lunch --micro-batch 2
  --threads 1)
run=(train "$WORK/tiny" --data "$WORK/train.bin" "${common[@]}")

# --- killed -------------------------------------------------------------------------------------

for precision in fp32 bf16; do
  whole=$WORK/whole-$precision folder=$WORK/killed-$precision
  killed=("${run[@]}" --steps 200 --checkpoint-every 30 --precision "$precision")
  expect 0 "${killed[@]}" -o "$whole"
  LAST="gpudays ${killed[*]}, killed at step 80"
  touch "$WORK/held"
  GPUDAYS_TEST_TRAIN=hold@80=$WORK/held "$GPUDAYS" "${killed[@]}" -o "$folder" >"$OUT" 2>"$ERR" </dev/null &
  program=$!
  await logged "$folder" 80
  kill -KILL "$program"
  wait "$program" 2>/dev/null || true
  before=$(newest "$folder")
  [[ $before == 60 || $before == 30 ]] || fail "$LAST: the newest checkpoint is of step $before"
  expect 0 train "$folder" --threads 1 --json
  field_is resumed_step "$before"
  same "$whole" "$folder"
  [[ $(losses "$folder" | wc -l) == 200 ]] || fail "$LAST: not 200 steps"
  cmp "$whole/model/model.safetensors" "$folder/model/model.safetensors" || fail "$LAST: another model"
done

# --- the chain ----------------------------------------------------------------------------------

if ! command -v mpirun >/dev/null; then
  echo "skipped in part: mpirun is missing"
  exit 0
fi
expect 0 "${run[@]}" --steps 150 -o "$WORK/whole"
expect 0 "${run[@]}" --steps 150 --dry-run -o "$WORK/none"
shown "1,333 sequences, 0.90 epochs" # each sample once: what is not seen twice is what is not skipped
# state RUN KEY: of the newest checkpoint.
state() { sed -nE 's/^ *"'"$2"'": "?([^",]+)"?,?$/\1/p' "$(checkpoints "$1" | tail -1)/state.json" | head -1; }
chain=("" "--ranks 4" "--ranks 4 --methods free-lunch+zero3" "--ranks 4 --methods free-lunch+zero3+offload"
  "--ranks 2 --methods free-lunch")
command=("${run[@]}" --steps 150 -o "$WORK/chain")
for ((session = 0; session < 5; session++)); do
  end=$((30 * (session + 1)))
  # shellcheck disable=SC2206
  words=(${chain[session]})
  GPUDAYS_TEST_TRAIN=late@$end expect 0 "${command[@]}" "${words[@]}" --json
  field_is step "$end"
  ((session == 0)) || field_is resumed_step "$((end - 30))"
  # It has seen samples up to here, and goes on with the next one.
  [[ $(state "$WORK/chain" first_sample) == $((8 * end)) ]] || fail "$LAST: other samples"
  [[ $(state "$WORK/chain" method) == "$(field method)" ]] || fail "$LAST: another method"
  [[ " ${chain[session]} " != *"--ranks"* || $(state "$WORK/chain" ranks) == "${words[1]}" ]] || fail "$LAST: other ranks"
  command=(train "$WORK/chain" --threads 1)
done
field_is finished true
near "$WORK/whole" "$WORK/chain"
[[ $(losses "$WORK/chain" | wc -l) == 150 ]] || fail "$LAST: not 150 steps"
