#!/usr/bin/env bash
# `gpudays train`: a run goes on from its checkpoint with the losses that it would have had, also
# with another method, micro-batch or number of ranks; what is wrong is said before anything is
# written; and no interruption costs more than the steps since the last checkpoint.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

run=(train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --steps 40 --warmup 4 --lr 1e-2
  --schedule cosine --precision fp32 --methods free-lunch --micro-batch 4 --threads 1)

# --- one run, uninterrupted ---------------------------------------------------------------------

expect 0 "${run[@]}" --dry-run -o "$WORK/whole"
shown "20,000 tokens, 645 sequences, 0.50 epochs"
[[ ! -e $WORK/whole ]] || fail "$LAST: something was written"
expect 0 "${run[@]}" -o "$WORK/whole" --eval "$WORK/eval.bin" --json
field_is step 40
field_is finished true
field_above eval_loss 0
[[ $(losses "$WORK/whole" | wc -l) == 40 ]] || fail "$LAST: the log has not 40 steps"
awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(first > 4 && last < 0.8 * first) }' \
  <(losses "$WORK/whole") || fail "$LAST: nothing was learnt"
grep -q '"eval_loss"' "$WORK/whole/log.jsonl" || fail "$LAST: no evaluation in the log"
# The model is one that this program loads, with the loss of its end.
[[ -s $WORK/whole/model/model.safetensors && -s $WORK/whole/model/config.json ]] || fail "$LAST: no model"
expect 0 models "$WORK/whole/model" --json
# A run that is done is not trained again.
expect 0 train "$WORK/whole" --json
field_is step 40

# --- interrupted --------------------------------------------------------------------------------

# kill_at RUN STEP N: SIGKILL when the log has that step and N checkpoints are whole. They are written
# during later steps, so a later step may have been logged by then, even the last one.
kill_at() {
  LAST="gpudays ${run[*]}, killed at step $2 with $3 checkpoints"
  "$GPUDAYS" "${run[@]}" -o "$1" --checkpoint-every 5 >"$OUT" 2>"$ERR" </dev/null &
  local program=$!
  until { grep -q "\"step\": $2," "$1/log.jsonl" 2>/dev/null && (($(checkpoints "$1" | wc -l) >= $3)); } ||
    ! kill -0 "$program" 2>/dev/null; do
    sleep 0.02
  done
  kill -KILL "$program" 2>/dev/null || true
  wait "$program" 2>/dev/null || true
  (($(checkpoints "$1" | wc -l) >= $3)) || fail "$LAST: $(checkpoints "$1" | wc -l) checkpoints"
}
kill_at "$WORK/killed" 17 1
expect 0 train "$WORK/killed" --threads 1 --json
field_is step 40
same "$WORK/whole" "$WORK/killed"

# --time-limit ends in order, and the command goes on.
expect 0 "${run[@]}" -o "$WORK/limited" --time-limit 0.001s
tr '\n' ' ' <"$OUT" | tr -s ' ' | grep -F "the time is up: 'gpudays train $WORK/limited' goes on" >/dev/null ||
  fail "$LAST: does not say how to go on"
expect 0 train "$WORK/limited" --threads 1
same "$WORK/whole" "$WORK/limited"

# SIGTERM: a checkpoint, a sentence, exit code 0.
LAST="gpudays ${run[*]}, ended by SIGTERM" RC=0
"$GPUDAYS" "${run[@]}" --steps 100000 --warmup 4 -o "$WORK/term" >"$OUT" 2>"$ERR" </dev/null &
program=$!
until [[ -s $WORK/term/log.jsonl ]] || ! kill -0 "$program" 2>/dev/null; do sleep 0.02; done
kill -TERM "$program"
wait "$program" || RC=$?
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
shown "asked to stop"
[[ $(checkpoints "$WORK/term" | wc -l) == 1 ]] || fail "$LAST: not one checkpoint"

# --- every family -------------------------------------------------------------------------------

# Masks, and the dropout of the second RoBERTa, are those of the steps that they belong to.
cp -r "$GD_SOURCE_DIR/tests/reference/roberta-a" "$WORK/dropout"
sed -i 's/dropout_prob": 0.0/dropout_prob": 0.1/' "$WORK/dropout/config.json"
for family in "$GD_SOURCE_DIR"/tests/reference/{roberta-a,bert,llama-a,gpt2-a,mamba-a} "$WORK/dropout"; do
  name=$(basename "$family")
  some=(train "$family" --data "$WORK/train.bin" --seq 16 --batch 6 --steps 12 --warmup 2 --lr 1e-3
    --mask-token 64 --methods free-lunch --micro-batch 4 --threads 1)
  expect 0 "${some[@]}" -o "$WORK/$name-whole"
  expect 0 "${some[@]}" -o "$WORK/$name-sessions" --time-limit 0.000001s
  expect 0 train "$WORK/$name-sessions" --threads 1 --time-limit 0.000001s
  expect 0 train "$WORK/$name-sessions" --threads 1
  diff <(losses "$WORK/$name-whole") <(losses "$WORK/$name-sessions") >"$OUT" || fail "$name: the losses differ"
  [[ $(losses "$WORK/$name-sessions" | wc -l) == 12 ]] || fail "$name: not 12 steps"
done
expect 2 train "$WORK/dropout" --data "$WORK/train.bin" --mask-token 64000 -o "$WORK/no" --seq 16 --batch 6
said "the mask is token 64000, and the model's vocabulary has"
# An evaluation has no dropout, changes nothing that is trained, and takes all samples: 21 are five
# micro-batches of 4, or three of 6, and a part of one.
some=(train "$WORK/dropout" --data "$WORK/train.bin" --seq 16 --batch 6 --steps 12 --warmup 2 --lr 1e-3
  --mask-token 64 --threads 1)
head -c 672 "$WORK/eval.bin" >"$WORK/few.bin"
expect 0 "${some[@]}" --methods free-lunch --micro-batch 4 --eval "$WORK/few.bin" --eval-every 3 \
  -o "$WORK/evaluated" --json
eval_loss=$(field eval_loss)
diff <(losses "$WORK/dropout-whole") <(losses "$WORK/evaluated") >"$OUT" || fail "$LAST: evaluating changed the losses"
# evaluated ARGUMENT...: the same with another plan, within rounding.
n_evaluated=0
evaluated() {
  expect 0 "${some[@]}" "$@" --eval "$WORK/few.bin" -o "$WORK/evaluated-$((n_evaluated++))" --json
  awk -v a="$eval_loss" -v b="$(field eval_loss)" 'BEGIN { exit !(a > 0 && b > a - 1e-4 && b < a + 1e-4) }' ||
    fail "$LAST: evaluations of two plans differ: $eval_loss, $(field eval_loss)"
}
evaluated --methods naive --micro-batch 6
evaluated --methods free-lunch+ckpt+zero3+offload --micro-batch 3
if command -v mpirun >/dev/null; then
  for method in naive+zero2 free-lunch+zero3 free-lunch+ckpt+fsdp3+offload; do
    evaluated --ranks 2 --methods "$method" --micro-batch 2
  done
fi

# --- another plan -------------------------------------------------------------------------------

# sessions RUN ARGUMENT...: ten steps with the settings of `run`, the rest with these.
sessions() {
  local folder=$1
  shift
  cp -r "$WORK/ten" "$folder"
  expect 0 train "$folder" --threads 1 "$@"
  near "$WORK/whole" "$folder"
}
kill_at "$WORK/ten" 12 1
sessions "$WORK/micro" --micro-batch 3
sessions "$WORK/naive" --methods naive+ckpt --micro-batch 8
if command -v mpirun >/dev/null; then
  sessions "$WORK/zero3" --methods free-lunch+zero3 --ranks 2
  cp -r "$WORK/ten" "$WORK/chain"
  for session in "--ranks 4" "--ranks 2 --methods free-lunch+zero1" "--ranks 2 --methods free-lunch+zero2+offload" \
    "--ranks 2 --methods naive+fsdp3"; do
    # shellcheck disable=SC2086
    expect 0 train "$WORK/chain" --threads 1 $session --time-limit 0.001s
  done
  expect 0 train "$WORK/chain" --threads 1 --methods naive
  near "$WORK/whole" "$WORK/chain"
else
  echo "skipped in part: mpirun is missing"
fi

# --- damage -------------------------------------------------------------------------------------

kill_at "$WORK/damaged" 14 2
newest=$(checkpoints "$WORK/damaged" | tail -1)
for file in optimizer.safetensors state.json checksums-0.txt; do
  rm -rf "$WORK/flipped"
  cp -r "$WORK/damaged" "$WORK/flipped"
  # A letter in the middle becomes another one.
  size=$(wc -c <"$newest/$file")
  at="$WORK/flipped/checkpoints/$(basename "$newest")/$file"
  byte=$(dd if="$at" bs=1 skip=$((size / 2)) count=1 2>/dev/null | od -An -tu1)
  # shellcheck disable=SC2059
  printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$at" bs=1 seek=$((size / 2)) conv=notrunc 2>/dev/null
  try train "$WORK/flipped" --threads 1
  [[ $RC == 0 ]] || fail "$LAST: exit $RC after damage to $file"
  said "$(basename "$newest") is left out"
  same "$WORK/whole" "$WORK/flipped"
done
# Half a checkpoint, as a killed process leaves it.
mkdir "$WORK/damaged/checkpoints/.part-step-00000099"
touch "$WORK/damaged/checkpoints/.part-step-00000099/model.safetensors"
rm "$newest/state.json"
try train "$WORK/damaged" --threads 1
[[ $RC == 0 ]] || fail "$LAST: exit $RC without state.json"
same "$WORK/whole" "$WORK/damaged"
[[ ! -e $WORK/damaged/checkpoints/.part-step-00000099 ]] || fail "$LAST: a part was left"

# A disk without room: files may not grow past 20 blocks of 1,024 bytes; training goes on.
LAST="gpudays ${run[*]} with a limit of file sizes" RC=0
(
  trap '' XFSZ
  ulimit -f 20
  exec "$GPUDAYS" "${run[@]}" --checkpoint-every 10 -o "$WORK/full"
) >"$OUT" 2>"$ERR" </dev/null || RC=$?
[[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
said "the checkpoint of step 10 was not written, and training goes on"
same "$WORK/whole" "$WORK/full"
try train "$WORK/full" --threads 1 # it begins again, and says so
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
same "$WORK/whole" "$WORK/full"

# --- what is refused ----------------------------------------------------------------------------

refused() { # CODE SENTENCE ARGUMENT...
  local code=$1 sentence=$2
  shift 2
  expect "$code" "$@"
  said "$sentence"
  [[ ! -e $WORK/no ]] || fail "$LAST: something was written"
}
echo "Once upon a time" >"$WORK/text.txt"
printf '\x07\x00\x09\x01' >"$WORK/short.bin"
cp "$WORK/train.bin" "$WORK/high.bin"
printf '\xff\x00' | dd of="$WORK/high.bin" bs=2 seek=5 conv=notrunc 2>/dev/null
refused 2 "train needs --data FILE" train "$WORK/tiny" -o "$WORK/no"
refused 2 "is text, and no token ids" train "$WORK/tiny" --data "$WORK/text.txt" -o "$WORK/no"
refused 2 "No such file" train "$WORK/tiny" --data "$WORK/none.bin" -o "$WORK/no"
refused 2 "fewer than one sequence" train "$WORK/tiny" --data "$WORK/short.bin" -o "$WORK/no"
refused 2 "give one to all of them" train "$WORK/tiny" --data "$WORK/train.bin:0.5" "$WORK/eval.bin" -o "$WORK/no"
refused 2 "schedule" train "$WORK/tiny" --data "$WORK/train.bin" --schedule sine -o "$WORK/no"
refused 2 "betas" train "$WORK/tiny" --data "$WORK/train.bin" --betas 0.9 -o "$WORK/no"
refused 2 "steps such as 500" train "$WORK/tiny" --data "$WORK/train.bin" --checkpoint-every 1x -o "$WORK/no"
refused 2 "neither a folder of images nor a tar archive" train vit --data "$WORK/train.bin" -o "$WORK/no"
expect 2 train "$WORK/tiny" --data "$WORK/high.bin" --seq 32 --batch 700 --steps 1 --threads 1 -o "$WORK/high"
said "token 5 is 255, and the model's vocabulary has 64"
expect 2 train "$WORK/whole" --lr 1e-3
said "--lr would change what it trains"
expect 2 "${run[@]}" -o "$WORK/whole"
said "has a run already"

# Two processes cannot train one run.
exec 9>"$WORK/whole/.lock"
flock 9
expect 3 train "$WORK/whole"
said "is being trained by another process"
exec 9>&-
