#!/usr/bin/env bash
# Output for people fits the terminal: no line is longer than COLUMNS, tables say which columns they left
# out, --wide shows all of them, and so does a pipe.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

cd "$WORK" || exit 1
tiny_config m 's/"vocab_size": 64/"vocab_size": 5000/'
for ((i = 0; i < 200; i++)); do echo 'The quick brown fox jumps over the lazy dog.'; done >text.txt
expect 0 results load h200
expect 0 results load epyc
expect 0 tokens text.txt --tokenizer gpudays-4k -o tokens.bin
expect 0 train ./m --data tokens.bin --steps 3 --seq 8 --batch 4 --threads 1 -o runs/a
point=(./m --seq 8 --batch 4 --steps 10 --threads 1 --sample-seconds 0.02)

# fits ARGUMENT...: at 80 and at 120 columns; exit 0 or 1.
fits() {
  local columns longest
  for columns in 80 120; do
    COLUMNS=$columns try "$@"
    ((RC <= 1)) || fail "$LAST: exit $RC"
    [[ -s $OUT ]] || fail "$LAST: nothing on stdout"
    longest=$(LC_ALL=C.UTF-8 wc -L <"$OUT")
    ((longest <= columns)) || fail "$LAST: a line of $longest columns where there are $columns"
  done
}
fits models
fits models pythia-1b
fits gpus
fits gpus h200
fits estimate
fits plan pythia-160m --device-memory 8GiB
fits plan pythia-160m --methods all --device-memory 8GiB
fits plan pythia-1b pythia-160m --gpu h100,a100 --count 1,8
fits plan pythia-1b --gpu 8xh100 --stack pytorch
fits plan pythia-6.9b --gpu 3090
fits cost pythia-1b
fits cost pythia-1b --budget 40000
fits cost pythia-160m --text
fits bench "${point[@]}" --methods naive --profile
fits bench "${point[@]}" --methods free-lunch,naive
fits results
fits results --total
fits best pythia-160m
fits published gpt2 --limit 20
fits calibrate list
fits tokens text.txt --tokenizer gpudays-4k -o again.bin
fits train ./m --data tokens.bin --steps 3 --dry-run
fits runs
fits watch runs/a --once
fits evaluate runs/a --data tokens.bin --samples 4
fits survey --questions
fits verify "$GD_SOURCE_DIR/tests/reference/neox-parallel"
fits doctor
fits help
fits help methods
[[ -z ${GD_TEST_ALL:-} ]] || fits accuracy
[[ -z ${GD_TEST_ALL:-} ]] || fits fit
[[ -z ${GD_TEST_ALL:-} ]] || fits cost --budget 40000 --days 30
[[ -z ${GD_TEST_ALL:-} ]] || fits plan pythia-160m --gpu 4x3090 --methods all
[[ -z ${GD_TEST_ALL:-} ]] || fits bench pythia-160m --simulate --gpu 4xa100 --methods all
[[ -z ${GD_TEST_ALL:-} ]] || fits plan pythia-1b --gpu 8xh100 --stack megatron --methods all

# What is left out is named, and a smaller table is not a different one: its first columns stay.
COLUMNS=80 expect 0 gpus
shown "not shown for lack of width: "
shown "--wide shows"
! head -1 "$OUT" | grep LINK >/dev/null || fail "$LAST: the least important column is there"
head -1 "$OUT" | grep '^GPU .*MEMORY' >/dev/null || fail "$LAST: an important column is missing"
! sed -n '/^not shown/p' "$OUT" | grep -w MEMORY >/dev/null || fail "$LAST: MEMORY is not left out"
COLUMNS=80 expect 0 gpus --wide
head -1 "$OUT" | grep LINK >/dev/null || fail "$LAST: not all columns"
head -1 "$OUT" >wide
! grep -q "not shown" "$OUT" || fail "$LAST: says that columns are missing"
expect 0 gpus
cp "$OUT" piped
head -1 "$OUT" | cmp -s wide - || fail "$LAST: a pipe does not have all columns"
# A wider terminal shows no less.
before=0
for columns in 60 80 100 120 160 300; do
  COLUMNS=$columns expect 0 gpus
  now=$(head -1 "$OUT" | sed -E 's/ {2,}/\t/g' | awk -F'\t' '{ print NF }')
  ((now >= before)) || fail "$LAST: $now columns of the table at $columns, $before where it was narrower"
  before=$now
done
head -1 "$OUT" | cmp -s wide - || fail "$LAST: not all columns at 300"
# Long cells are wrapped, and no word of them is lost.
COLUMNS=50 expect 0 results --model 'pythia-1b' --limit 3
longest=$(wc -L <"$OUT")
((longest <= 50)) || fail "$LAST: $longest columns"
# What is no number of columns, and output that other programs read, stay as they are.
for columns in "" x 0 -5; do
  COLUMNS=$columns expect 0 gpus
  cmp -s piped "$OUT" || fail "COLUMNS=$columns $LAST: not as without it"
done
for arguments in "export pythia-160m --format sbatch" "help --man" "completion bash" \
  "gpus --json" "gpus --csv" "survey --template"; do
  # shellcheck disable=SC2086
  expect 0 $arguments -q
  cp "$OUT" plain
  # shellcheck disable=SC2086
  COLUMNS=60 expect 0 $arguments -q
  cmp -s plain "$OUT" || fail "$LAST: changed by the width"
done
# A command to type goes on behind a backslash, so that it can be copied.
COLUMNS=60 expect 0 plan pythia-1b --gpu 8xh100 --stack pytorch
grep -A1 'gpudays export .* \\$' "$OUT" | grep -E '^ +--' >/dev/null || fail "$LAST: a command is broken without a backslash"
# One without a name before it, too.
COLUMNS=80 expect 1 plan llama-3.2-1b --seq 8192 --batch 64 --gpu 3090 --methods free-lunch
grep -A1 '^ *gpudays plan .* \\$' "$OUT" | grep -E '^ +--methods' >/dev/null || fail "$LAST: a remedy is broken without a backslash"
