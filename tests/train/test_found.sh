#!/usr/bin/env bash
# What readers and attackers found wrong in `gpudays train`, each once.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

tiny_config "$WORK/tiny"
# ids FIRST COUNT: raw uint16 below 64.
ids() { awk -v x="$1" -v n="$2" 'BEGIN { for (i = 0; i < n; i++) { x = (x * 5 + 3) % 64; printf "\\x%02x\\x00", x } }'; }
# shellcheck disable=SC2059
printf "$(ids 1 4000)" >"$WORK/a.bin"
# shellcheck disable=SC2059
printf "$(ids 2 500)" >"$WORK/b.bin"
short=(--seq 16 --batch 4 --threads 1 --precision fp32)
run=(train "$WORK/tiny" --data "$WORK/a.bin" "${short[@]}")
# refused CODE SENTENCE ARGUMENT...
refused() {
  local code=$1 sentence=$2
  shift 2
  expect "$code" "$@"
  said "$sentence"
}

# One wrong id is found before the first step, not when its turn comes; nothing is left behind.
cp "$WORK/a.bin" "$WORK/wrong.bin"
printf '\xff\x00' | dd of="$WORK/wrong.bin" bs=2 seek=3999 conv=notrunc 2>/dev/null
refused 2 "token 3999 is 255" train "$WORK/tiny" --data "$WORK/wrong.bin" "${short[@]}" --steps 2 --dry-run
# A start that fails leaves the name free.
refused 1 "of device memory" "${run[@]}" --steps 3 --device-memory 64KiB -o "$WORK/run"
[[ ! -e $WORK/run ]] || fail "$LAST: a folder was left"
refused 1 "of device memory" "${run[@]}" --steps 3 --device-memory 64KiB -o "$WORK/run" --dry-run
expect 0 "${run[@]}" --steps 6 -o "$WORK/run" --checkpoint-every 2
expect 0 "${run[@]}" --steps 6 -o "$WORK/other" --dry-run --json
field_is steps 6
field_above checkpoint_bytes 1000
# A shorter run has a shorter warm-up.
expect 0 "${run[@]}" --steps 300 --dry-run
shown "warm-up 30"
refused 2 "--data is given twice" "${run[@]}" --data "$WORK/b.bin"
refused 2 "--eval-every needs data to evaluate on" "${run[@]}" --eval-every 5
refused 2 "name the .bin file next to it" train "$WORK/tiny" --data "$WORK/a.idx" "${short[@]}"
# A run that is done is not said to have gone on.
expect 0 train "$WORK/run" --threads 1
! grep -q "went on" "$OUT" || fail "$LAST: says that it went on"

# copy NAME: of the run, to be damaged.
copy() {
  rm -rf "${WORK:?}/$1"
  cp -r "$WORK/run" "$WORK/$1"
}
# Data that has changed, and a run.json that ends before its checkpoint or has another model.
copy changed
sed -i "s|$WORK/a.bin|$WORK/b.bin|" "$WORK/changed/run.json"
refused 2 "has 500 tokens, and had 4000 when the run began" train "$WORK/changed" --threads 1
copy shortened
sed -i 's/"steps": 6/"steps": 3/; s/"warmup_steps": [0-9]*/"warmup_steps": 0/' "$WORK/shortened/run.json"
refused 2 "the checkpoint is of step 6, and run.json ends at step 3" train "$WORK/shortened" --threads 1
copy shallow
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' "$WORK/shallow/run.json"
cmp -s "$WORK/shallow/run.json" "$WORK/run/run.json" && fail "the tiny model has not two layers"
refused 2 "is it another model's?" train "$WORK/shallow" --threads 1
# No steps are lost silently.
copy lost
rm -r "$WORK/lost/checkpoints"
try train "$WORK/lost" --threads 1
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
said "there is no whole checkpoint yet of the 6 steps in log.jsonl: the run begins again"

# A FIFO never answers.
copy fifo
rm "$WORK/fifo/log.jsonl"
mkfifo "$WORK/fifo/log.jsonl"
refused 3 "log.jsonl cannot be" train "$WORK/fifo" --threads 1
copy fifo
newest=$(find "$WORK/fifo/checkpoints" -name 'step-*' | sort | tail -1)
for file in model optimizer; do
  rm "$newest/$file.safetensors"
  mkfifo "$newest/$file.safetensors"
  try evaluate "$WORK/fifo" --data "$WORK/b.bin" --threads 1 --json
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  said "$(basename "$newest") is left out"
  field_is step 4
done

# A limit of file sizes is a full disk; who reads the notes may go away.
LAST="gpudays ${run[*]} with a limit of file sizes" RC=0
(ulimit -f 20 && exec "$GPUDAYS" "${run[@]}" --steps 4 --checkpoint-every 2 -o "$WORK/full") >"$OUT" 2>"$ERR" </dev/null || RC=$?
[[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
said "and training goes on"

# Weights that are no numbers are no success: 0x7fc00000 is NaN.
cp -r "$WORK/run/model" "$WORK/nan"
size=$(wc -c <"$WORK/nan/model.safetensors")
rm "$WORK/nan/model.safetensors"
awk -v n=$((size / 4)) 'BEGIN { for (i = 0; i < n; i++) printf "\\x00\\x00\\xc0\\x7f" }' >"$WORK/escapes"
header=$(od -An -tu8 -N8 "$WORK/run/model/model.safetensors" | tr -d ' ')
head -c $((header + 8)) "$WORK/run/model/model.safetensors" >"$WORK/nan/model.safetensors"
# shellcheck disable=SC2059
printf "$(head -c $((4 * (size - header - 8))) "$WORK/escapes")" >>"$WORK/nan/model.safetensors"
refused 1 "is not finite" evaluate "$WORK/nan" --data "$WORK/b.bin" --seq 16 --threads 1
try "${run[@]}" --steps 2 --init "$WORK/nan" -o "$WORK/nans"
[[ $RC == 1 ]] || fail "$LAST: exit $RC, not 1"
said "is not finite"
# A run is something to begin with, too.
expect 0 "${run[@]}" --steps 2 --init "$WORK/run" -o "$WORK/begun"

# Masks that nobody knows are asked for.
refused 2 "which token masks is not known" train "$GD_SOURCE_DIR/tests/reference/roberta-a" --data "$WORK/a.bin" "${short[@]}"
