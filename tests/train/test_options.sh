#!/usr/bin/env bash
# What `gpudays train` is told once and remembers, how long it trains, how it ends where signals are
# ignored, what it does with very large files, and what it says to those who mistype.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

run=(train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --warmup 4 --lr 1e-2
  --precision fp32 --methods free-lunch --micro-batch 2 --threads 1)
ranks=()
if command -v mpirun >/dev/null; then
  ranks=(2)
else
  echo "skipped in part: mpirun is missing"
fi

# --- epochs -------------------------------------------------------------------------------------

# 645 sequences of 8 a step.
steps_of() { # EPOCHS STEPS
  expect 0 "${run[@]}" --epochs "$1" --dry-run --json
  field_is steps "$2"
}
steps_of 1 81
steps_of 0.5 41
steps_of 2 162
steps_of 0.1 9
expect 0 "${run[@]}" --epochs 0.25 -o "$WORK/quarter" --json
field_is step 21
expect 2 "${run[@]}" --epochs 1 --steps 5
said "--steps and --epochs say the same thing twice"
expect 2 "${run[@]}" --epochs 1 --tokens 1M
said "--tokens and --epochs say the same thing twice"
expect 2 "${run[@]}" --epochs 0
said "--epochs"
expect 2 train "$WORK/tiny" --data "$WORK/train.bin:0.5" "$WORK/eval.bin:0.5" --seq 32 --epochs 1
said "files with weights have epochs of their own lengths"
expect 2 train "$WORK/quarter" --epochs 1
said "--epochs would change what it trains"

# --- deterministic ------------------------------------------------------------------------------

expect 0 "${run[@]}" --steps 20 --deterministic -o "$WORK/same" --time-limit 0.000001s
grep -q '"deterministic": "kept"' "$WORK/same/run.json" || fail "$LAST: run.json does not say so"
expect 0 train "$WORK/same" --dry-run --json
field_is deterministic true
expect 0 train "$WORK/quarter" --dry-run --json
field_is deterministic false
expect 0 train "$WORK/quarter" --deterministic --dry-run --json
field_is deterministic true
expect 0 train "$WORK/same" --threads 1
# A trial with it is another one than without.
bench=(bench "$WORK/tiny" --seq 32 --batch 8 --steps 20 --precision fp32 --methods free-lunch --threads 1
  --sample-seconds 0.05 --store "$WORK/results.db" --json)
expect 0 "${bench[@]}" --deterministic
shown "GPUDAYS_DETERMINISTIC=kept"
field_is source run
expect 0 "${bench[@]}"
! grep -q "GPUDAYS_DETERMINISTIC=kept" "$OUT" || fail "$LAST: deterministic without being asked"
expect 0 "${bench[@]}" --deterministic
field_is source store
expect 2 models --deterministic
said "--deterministic is not an option of models; it belongs to bench, train"

# --- threads ------------------------------------------------------------------------------------

grep -q '"threads": 1' "$WORK/same/run.json" || fail "run.json does not say how many threads"
expect 0 train "$WORK/same" --dry-run --json
field_is threads 1
expect 0 train "$WORK/same" --threads 2 --dry-run --json
field_is threads 2

# --- what is chosen -----------------------------------------------------------------------------

# naive is measured to compare with: it is not what train takes.
naive=(bench "$WORK/tiny" --seq 32 --batch 8 --steps 20 --precision fp32 --methods naive --threads 1
  --sample-seconds 0.05 --store "$WORK/seen.db" --json)
chosen=(train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --steps 20 --precision fp32 --threads 1
  --store "$WORK/seen.db" --dry-run --json)
expect 0 "${naive[@]}"
expect 0 "${chosen[@]}"
field_is method free-lunch
expect 0 "${naive[@]/naive/free-lunch+ckpt}"
expect 0 "${chosen[@]}"
field_is method free-lunch+ckpt
expect 0 train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --epochs 41 --precision fp16 --threads 1 \
  --store "$WORK/none.db" --dry-run
shown "after 40 epochs hardly anything is learnt from the same tokens"
grep -qE "(bf16 \(for the recipe's fp16, which is not fast here\)|fp16): nothing" "$OUT" ||
  fail "$LAST: another precision than the one that trains"
expect 0 train "$WORK/tiny" --data "$WORK/train.bin" --seq 32 --batch 8 --epochs 39 --threads 1 --dry-run
! grep -q "hardly anything" "$OUT" || fail "$LAST: 39 epochs are not too many"

# --- ranks --------------------------------------------------------------------------------------

session_ranks() { sed -n '/"session"/,$s/.*"ranks": \([0-9]*\),.*/\1/p' "$1/run.json"; }
for n in "${ranks[@]}"; do
  expect 0 "${run[@]}" --steps 40 -o "$WORK/whole" --ranks "$n"
  GPUDAYS_TEST_TRAIN=late@10 expect 0 "${run[@]}" --steps 40 -o "$WORK/ranks" --ranks "$n"
  GPUDAYS_TEST_TRAIN=late@20 expect 0 train "$WORK/ranks" --threads 1
  [[ $(session_ranks "$WORK/ranks") == "$n" ]] || fail "$LAST: not $n ranks"
  GPUDAYS_TEST_TRAIN=late@30 expect 0 train "$WORK/ranks" --threads 1 --ranks 1
  [[ $(session_ranks "$WORK/ranks") == 1 ]] || fail "$LAST: not one rank"
  LAST="gpudays train $WORK/ranks without mpirun" RC=0
  env PATH="$WORK" "$GPUDAYS" train "$WORK/ranks" --threads 1 >"$OUT" 2>"$ERR" </dev/null || RC=$?
  [[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
  said "was started with --ranks $n, and there is no mpirun in PATH to start them"
  expect 0 train "$WORK/ranks" --threads 1
  [[ $(session_ranks "$WORK/ranks") == "$n" ]] || fail "$LAST: not $n ranks"
  near "$WORK/whole" "$WORK/ranks"
done

# --- signals that are ignored -------------------------------------------------------------------

# A script's background job has SIGINT ignored, nohup SIGHUP: they stay so, and SIGTERM ends the run.
for n in 1 "${ranks[@]}"; do
  LAST="gpudays ${run[*]} --ranks $n, with SIGINT and SIGHUP ignored"
  touch "$WORK/held"
  (
    trap '' INT HUP
    GPUDAYS_TEST_TRAIN=hold@5=$WORK/held exec "$GPUDAYS" "${run[@]}" --steps 4000 --ranks "$n" -o "$WORK/ignored$n"
  ) >"$OUT" 2>"$ERR" </dev/null &
  program=$!
  await logged "$WORK/ignored$n" 5
  kill -INT "$program"
  kill -HUP "$program"
  rm "$WORK/held"
  await logged "$WORK/ignored$n" 50
  kill -TERM "$program"
  RC=0
  wait "$program" || RC=$?
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  shown "asked to stop"
  [[ $(newest "$WORK/ignored$n") == "$(last_logged "$WORK/ignored$n")" ]] || fail "$LAST: no checkpoint of its end"
done
expect 0 train --help
shown "SIGTERM ends it in order"

# --- a token file of 100 GB ---------------------------------------------------------------------

# It is opened in under a second; CPU time, since the machine may be busy.
if truncate -s 100000000000 "$WORK/large.bin" 2>/dev/null && [[ $(du -k "$WORK/large.bin" | cut -f1) -lt 1024 ]]; then
  large=(train "$WORK/tiny" --data "$WORK/large.bin" --seq 32 --batch 8 --steps 5 --threads 1 --dry-run)
  LAST="gpudays ${large[*]}"
  TIMEFORMAT="%U %S"
  used=$({ time "$GPUDAYS" "${large[@]}" >"$OUT" 2>"$ERR" </dev/null; } 2>&1) || fail "$LAST: failed"
  shown "50,000,000,000 tokens"
  awk '{ exit !($1 + $2 < 1) }' <<<"$used" || fail "$LAST: took $used s of CPU time"
else
  echo "skipped in part: the file system of $WORK has no holes"
fi

# --- mistakes -----------------------------------------------------------------------------------

# mistake SENTENCE ARGUMENT...: one sentence with what to do, exit 2, and nothing is left behind.
mistake() {
  local sentence=$1
  shift
  expect 2 "$@"
  said "$sentence"
  silent
  [[ ! -e runs ]] || fail "$LAST: something was written"
}
cd "$WORK" || exit 1
mkdir empty
printf '\xff\xd8\xff\xe0\x00\x10%0200d' 0 >image.jpg
short=(train tiny --data train.bin --seq 32 --batch 8 --steps 5)
mistake "train needs an argument: gpudays train MODEL|RUN" train
mistake "train needs --data FILE" train tiny
mistake "train needs --data before the files: gpudays train tiny --data train.bin" train tiny train.bin
mistake "there is no run and no model runs/mine" train runs/mine
mistake 'unknown model "mispelt"' train mispelt
mistake "empty is neither a run of 'gpudays train' nor a model" train empty --data train.bin
mistake "none.bin: No such file" train tiny --data none.bin
mistake "is no regular file but a folder" train tiny --data empty
mistake "image.jpg begins as a JPEG image does, and is no file of token ids" train tiny --data image.jpg --seq 32
mistake "neither a folder of images nor a tar archive" train vit --data train.bin
mistake "did you mean --data?" train tiny --dta train.bin
mistake "--warmup is 10; expected a whole number from 0 to 5" "${short[@]}" --warmup 10
mistake "--decay is 10; expected a whole number from 0 to 5" "${short[@]}" --schedule wsd --decay 10
mistake '--betas is "0.9"; expected two numbers from 0 to below 1' "${short[@]}" --betas 0.9
mistake '--betas is "0.9,1.5"; expected two numbers' "${short[@]}" --betas 0.9,1.5
mistake '--schedule is "sine"; expected constant' "${short[@]}" --schedule sine
mistake "--min-lr is 1; expected a number from 0 to 0.5" "${short[@]}" --lr 0.5 --min-lr 1
mistake "train takes one method" "${short[@]}" --methods naive,free-lunch
mistake "train takes one method" "${short[@]}" --methods all
mistake "--job-time needs --slurm" "${short[@]}" --job-time 1h
mistake "--samples needs data to evaluate on" "${short[@]}" --samples 5
mistake "micro-batch 16 is outside 1..8" "${short[@]}" --micro-batch 16
mistake 'unknown part "bogus"' "${short[@]}" --methods bogus
mistake "is longer than" train "$GD_SOURCE_DIR/tests/reference/roberta-a" --data train.bin --seq 64 --batch 8
for n in "${ranks[@]}"; do # all ranks fail alike, and one speaks
  mistake "a batch of 7 does not divide among 2 ranks; choose --ranks or --batch so that it does" \
    train tiny --data train.bin --seq 32 --batch 7 --steps 5 --ranks "$n"
done
