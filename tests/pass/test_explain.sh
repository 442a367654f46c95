#!/usr/bin/env bash
# `plan --explain passes` and `--explain PASS`: the pipeline as text, compared with golden/*.txt, of a model of
# two layers. And `--without PASS` of plan and bench: what the method is then called, what cannot be switched off,
# and that such a trial is never stored and never answered from the store.
# After a change on purpose: GPUDAYS=build/dev/gpudays tests/pass/test_explain.sh --update
GD_SOURCE_DIR=${GD_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/cli/common.sh"
golden=$GD_SOURCE_DIR/tests/pass/golden
update=${1:-}
mkdir "$WORK/tiny"
sed 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/' \
  "$GD_SOURCE_DIR/tests/reference/neox-parallel/config.json" >"$WORK/tiny/config.json"
tiny=(plan "$WORK/tiny" --gpu h200 --micro-batch 2 --seq 64 --batch 8)

# explained NAME METHOD: the text behind the summary, without times.
explained() {
  local file=$golden/explain_$1.txt
  expect 0 "${tiny[@]}" --methods "$2" --explain "$1"
  sed -n '/^-- /,$p' "$OUT" | sed -E 's/ +[0-9.]+ ms/ MS/; s/^-- [^,]*/-- MODEL/' >"$WORK/text"
  if [[ $update == --update ]]; then
    mkdir -p "$golden" && cp "$WORK/text" "$file"
    return
  fi
  diff "$file" "$WORK/text" >"$ERR" || fail "$LAST: differs from $file"
}
for pass in passes trim precision kernels compile tf32 ckpt shard offload; do
  explained "$pass" free-lunch+ckpt+zero2+offload
done
explained accumulate free-lunch

# The word behind --explain is its value only if it names a pass.
expect 0 plan --explain "$WORK/tiny" --gpu h200
shown "packed "
expect 0 "${tiny[@]}" --explain ckpt
shown "pass ckpt is not part of free-lunch"
expect 2 "${tiny[@]}" --explain=nothing
said "passes, or one of trim, precision, kernels"
silent

# --without: in the name, in the graph, in the bytes.
expect 0 "${tiny[@]}" --methods free-lunch --json
whole=$(field peak_bytes)
expect 0 "${tiny[@]}" --methods free-lunch --without accumulate,kernels --json
field_is method "free-lunch without kernels+accumulate"
(($(field peak_bytes) > whole)) || fail "$LAST: needs no more memory"
expect 0 "${tiny[@]}" --methods free-lunch --without accumulate --explain passes
shown "switched off: accumulate"
expect 0 "${tiny[@]}" --methods naive --without compile --json
field_is method naive
expect 0 "${tiny[@]}" --methods 'free-lunch without tf32' --json
field_is method "free-lunch without tf32"
expect 0 "${tiny[@]}" --methods all --without compile --csv
(($(grep -c 'without compile' "$OUT") == 12)) || fail "$LAST: not all 12 methods say so"

# What cannot be switched off, and why.
expect 2 "${tiny[@]}" --without nothing
said 'unknown pass "nothing"; there are trim, precision, kernels, recompute, compile, tf32, ckpt, shard, accumulate, offload'
expect 2 "${tiny[@]}" --without precision
said "cannot be switched off: it makes the precision"
expect 2 "${tiny[@]}" --methods naive+zero1+offload --without shard
said "pass offload needs it; switch off both, or neither"
expect 2 "${tiny[@]}" --methods naive+zero1 --without shard --count 2
said "cannot be switched off on 2 ranks"
expect 2 plan "$WORK/tiny" --gpu h200 --stack paper --methods free-lunch --without tf32
said "leave out --without"

# A trial without some pass answers for no method: it is not stored, and none of the store answers for it.
bench=(bench "$WORK/tiny" --methods free-lunch --micro-batch 2 --seq 64 --batch 4 --threads 1 --sample-seconds 0.05)
expect 0 "${bench[@]}" --without accumulate --no-store
try "${bench[@]}" --without accumulate --json
[[ $RC == 0 && $(wc -l <"$ERR") == 1 ]] || fail "$LAST: exit $RC, or not one line on stderr"
said "gpudays: note: nothing is stored of trials with --without: they answer for no method"
field_is method "free-lunch without accumulate"
field_is status ok
loss=$(field loss)
expect 0 results --json
! grep -q '"method"' "$OUT" || fail "$LAST: the trial was stored"
expect 0 "${bench[@]}" --json -q
field_is method free-lunch
field_is source run
awk -v a="$loss" -v b="$(field loss)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < 1e-6 * a ^ 2) }' ||
  fail "$LAST: the loss is $(field loss), without accumulate $loss"
expect 0 "${bench[@]}" --without accumulate --json -q
field_is source run
expect 2 "${bench[@]}" --without accumulate --slurm
said "trials of --without are not stored"

# The name of such a trial is no method to ask for, and none to load.
expect 2 bench "$WORK/tiny" --methods "naive,free-lunch without compile"
said "--without PASS"
