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
# A shorter run has a shorter warm-up: of a bare configuration 2 % of its steps.
expect 0 "${run[@]}" --steps 300 --dry-run
shown "warm-up 6"
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
for edit in 's/"steps": 6/"steps": 3/; s/"warmup_steps": [0-9]*/"warmup_steps": 0/' 's/"num_hidden_layers": 2/"num_hidden_layers": 1/'; do
  copy edited
  sed -i "$edit" "$WORK/edited/run.json"
  cmp -s "$WORK/edited/run.json" "$WORK/run/run.json" && fail "run.json is not what it was"
  try train "$WORK/edited" --threads 1
  [[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
  said "is left out: it is of another run (its "
done
# Likewise of a run whose checkpoints do not say whose they are.
unbound() {
  rm -rf "$WORK/unbound"
  cp -r "$GD_SOURCE_DIR/tests/train/unbound" "$WORK/unbound"
  sed -i "s|DATA|$WORK/a.bin|; $1" "$WORK/unbound/run.json"
}
unbound 's/"steps": 6/"steps": 3/'
refused 2 "the checkpoint is of step 4, and run.json ends at step 3" train "$WORK/unbound" --threads 1
unbound 's/"num_hidden_layers": 1/"num_hidden_layers": 2/'
refused 2 "is it another model's?" train "$WORK/unbound" --threads 1
# No steps are lost silently.
copy lost
rm -r "$WORK/lost/checkpoints"
try train "$WORK/lost" --threads 1
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
said "there is no whole checkpoint yet of the 6 steps in log.jsonl: the run begins again"
[[ $(wc -l <"$WORK/lost/log.jsonl.old") == 6 ]] || fail "$LAST: the log that was is gone"
# Damaged checkpoints alone: what is whole in them may be wanted.
copy hurt
for file in "$WORK"/hurt/checkpoints/step-*/model.safetensors; do
  printf 'XXXX' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 8)) conv=notrunc 2>/dev/null
done
before=$(cd "$WORK/hurt" && find checkpoints log.jsonl -type f -exec cksum {} + | sort)
try train "$WORK/hurt" --threads 1
[[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
said "no checkpoint of it is whole: bring one back from a copy"
[[ $before == "$(cd "$WORK/hurt" && find checkpoints log.jsonl -type f -exec cksum {} + | sort)" ]] ||
  fail "$LAST: something was lost"

# --- whose a checkpoint is --------------------------------------------------------------------

# resumes RUN STEP: it goes on from that step, to the losses of the whole run.
resumes() {
  try train "$1" --threads 1 --json
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  field_is resumed_step "$2"
  diff <(sed 's/"tokens_per_s.*//' "$WORK/run/log.jsonl") <(sed 's/"tokens_per_s.*//' "$1/log.jsonl") >"$OUT" ||
    fail "$LAST: other losses"
}
# A checkpoint of another seed, other data of the same size, another recipe or model is named, passed
# over and left alone; one of the same run that lies elsewhere is taken.
# shellcheck disable=SC2059
printf "$(ids 3 4000)" >"$WORK/other.bin"
mkdir "$WORK/deep" "$WORK/moved"
sed 's/"rotary_pct": 0.25/"rotary_pct": 0.5/' "$WORK/tiny/config.json" >"$WORK/deep/config.json"
foreign=("seed or initial weights:--seed 1" "data:--data $WORK/other.bin" "recipe:--lr 3e-3" "model:")
for other in "${foreign[@]}"; do
  model=$WORK/tiny
  [[ $other != model:* ]] || model=$WORK/deep
  options=(--data "$WORK/a.bin")
  [[ $other != data:* ]] || options=()
  # shellcheck disable=SC2206
  options+=(${other#*:})
  rm -rf "$WORK/begot"
  expect 0 train "$model" "${options[@]}" "${short[@]}" --steps 6 -o "$WORK/begot"
  copy mixed
  rm -r "$WORK/mixed/checkpoints/step-00000006"
  cp -r "$WORK/begot/checkpoints/step-00000006" "$WORK/mixed/checkpoints/step-00000005"
  cp -r "$WORK/begot/checkpoints/step-00000006" "$WORK/mixed/checkpoints/step-00000900"
  resumes "$WORK/mixed" 4
  said "step-00000900 is left out: it is of another run (its ${other%%:*} is not that of run.json)"
  for step in 005 900; do
    cmp "$WORK/begot/checkpoints/step-00000006/state.json" "$WORK/mixed/checkpoints/step-00000$step/state.json" ||
      fail "$LAST: the checkpoint of another run was touched"
  done
  [[ -e $WORK/mixed/checkpoints/step-00000006 ]] || fail "$LAST: its own were pruned for others"
  try evaluate "$WORK/mixed" --data "$WORK/b.bin" --threads 1 --json
  field_is step 6
done
# A run that has only others' checkpoints does not throw its log away.
copy mistaken
sed -i 's/"seed": 0/"seed": 1/' "$WORK/mistaken/run.json"
try train "$WORK/mistaken" --threads 1
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "has a log of 6 steps, but all its checkpoints are of another run: restore run.json"
[[ $(grep -c step_s "$WORK/mistaken/log.jsonl") == 6 ]] || fail "$LAST: the log was cut"
# Data may move; other data of the same length may not take its place.
copy moved
cp "$WORK/a.bin" "$WORK/moved.bin"
sed -i "s|$WORK/a.bin|$WORK/moved.bin|" "$WORK/moved/run.json"
rm -r "$WORK/moved/checkpoints/step-00000006"
resumes "$WORK/moved" 4
cp "$WORK/other.bin" "$WORK/moved.bin"
refused 2 "has other tokens, files or weights than when the run began" train "$WORK/moved" --threads 1
# A damaged checkpoint does not push a whole one out.
copy pushed
printf 'x' >>"$WORK/pushed/checkpoints/step-00000006/checksums-0.txt"
try train "$WORK/pushed" --threads 1 --keep 1 --checkpoint-every 5 --time-limit 0.000001s
[[ $RC == 0 && -e $WORK/pushed/checkpoints/step-00000005/state.json ]] || fail "$LAST: no checkpoint"
[[ ! -e $WORK/pushed/checkpoints/step-00000006 ]] || fail "$LAST: the damaged one stayed"
# A run of a program that did not bind its checkpoints goes on.
unbound ""
expect 0 train "$WORK/unbound" --threads 1 --json
field_is resumed_step 4
field_is step 6

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

# A log that cannot be written costs its lines and a sentence, not the run; the model is small enough
# to be written all the same. With room again it goes on.
LAST="gpudays train with a full log"
small=(train "$GD_SOURCE_DIR/tests/train/unbound/checkpoints/step-00000004/config.json" --data "$WORK/a.bin"
  "${short[@]}" --steps 240 --checkpoint-every 50)
touch "$WORK/held"
expect 0 "${small[@]}" -o "$WORK/whole"
(ulimit -S -f 20 && GPUDAYS_TEST_TRAIN=hold@200=$WORK/held exec "$GPUDAYS" "${small[@]}" -o "$WORK/full-log") >"$OUT" 2>"$ERR" </dev/null &
program=$!
await grep -qs "tensorboard.* cannot be written: File too large; log.jsonl goes on without TensorBoard's" "$ERR"
if command -v prlimit >/dev/null; then
  prlimit --pid "$program" --fsize=unlimited
fi
rm "$WORK/held"
RC=0
wait "$program" || RC=$?
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
said "/full-log/log.jsonl cannot be written: File too large; training goes on, and the log lacks these steps"
[[ $(grep -c "cannot be written" "$ERR") == 2 ]] || fail "$LAST: it is said more than once"
cmp "$WORK/whole/model/model.safetensors" "$WORK/full-log/model/model.safetensors" || fail "$LAST: another model"
steps_of() { sed -nE 's/^\{"step": ([0-9]+), "loss": ([^,]+),.*/\1 \2/p' "$1/log.jsonl"; }
! comm -13 <(steps_of "$WORK/whole" | sort) <(steps_of "$WORK/full-log" | sort) | grep . >"$OUT" || fail "$LAST: other losses"
if command -v prlimit >/dev/null; then
  lacks=$(sed -nE 's/.*log\.jsonl is written again, from step [0-9]+ on; it lacks ([0-9]+) lines$/\1/p' "$ERR")
  [[ -n $lacks && $(steps_of "$WORK/full-log" | wc -l) == $((240 - lacks)) ]] || fail "$LAST: it lacks other lines"
  [[ $(steps_of "$WORK/full-log" | tail -1) == "240 "* ]] || fail "$LAST: the last steps are missing"
fi
expect 0 runs "$WORK/full-log" # without a damaged line
# A model that cannot be published is there, and the next try has it.
LAST="gpudays train without room for RUN/model"
rm -r "$WORK/full-log/model"
echo "in the way" >"$WORK/full-log/model"
expect 3 train "$WORK/full-log" --threads 1
said "the run is done and its last checkpoint whole: 'gpudays train $WORK/full-log' tries again"
rm "$WORK/full-log/model"
expect 0 train "$WORK/full-log" --threads 1
cmp "$WORK/whole/model/model.safetensors" "$WORK/full-log/model/model.safetensors" || fail "$LAST: another model"

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

# A data file that becomes shorter under the mapping ends the run with a sentence, not with a bus error.
cp "$WORK/a.bin" "$WORK/shrinks.bin"
LAST="train, whose data file shrinks"
touch "$WORK/held"
GPUDAYS_TEST_TRAIN=hold@5=$WORK/held "$GPUDAYS" train "$WORK/tiny" --data "$WORK/shrinks.bin" "${short[@]}" --steps 400 \
  -o "$WORK/shrunk" >"$OUT" 2>"$ERR" </dev/null &
program=$!
await grep -qs '"step": 5,' "$WORK/shrunk/log.jsonl"
truncate -s 0 "$WORK/shrinks.bin"
rm "$WORK/held"
RC=0
wait "$program" || RC=$?
[[ $RC == 3 ]] || fail "$LAST: exit $RC"
said "became shorter"

# A signal that comes twice at once is one; the run ends in order.
LAST="train, SIGTERM twice"
touch "$WORK/held"
GPUDAYS_TEST_TRAIN=hold@5=$WORK/held "$GPUDAYS" "${run[@]}" --steps 400 -o "$WORK/twice" >"$OUT" 2>"$ERR" </dev/null &
program=$!
await grep -qs '"step": 5,' "$WORK/twice/log.jsonl"
kill -TERM "$program"
kill -TERM "$program"
rm "$WORK/held"
RC=0
wait "$program" || RC=$?
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
[[ -n $(ls "$WORK/twice/checkpoints") ]] || fail "$LAST: no checkpoint"

# Weights that lie next to a configuration are not used, which is said.
expect 0 train "$WORK/run/model" --data "$WORK/a.bin" "${short[@]}" --steps 2 --dry-run
shown "initial weights: drawn; those in"
expect 0 train "$WORK/run/model" --init "$WORK/run/model" --data "$WORK/a.bin" "${short[@]}" --steps 2 --dry-run
shown "initial weights: "
