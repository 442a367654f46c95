#!/usr/bin/env bash
# A row of the store that cannot be read is named by whoever leaves it out, and bench says that it
# measures it again.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

model=$GD_SOURCE_DIR/tests/reference/neox-parallel
quick=("$model" --seq 16 --batch 8 --sample-seconds 0.02 --threads 1 --methods naive)
export GPUDAYS_DB=$WORK/store.db

# damage FROM TO: the bytes of a closed store, changed in place; as many as there were.
damage() {
  [[ ${#1} == "${#2}" && ! -e $GPUDAYS_DB-wal ]] || fail "cannot change $1 into $2"
  cp "$GPUDAYS_DB" "$WORK/before"
  sed -i "0,/$1/s/$1/$2/" "$GPUDAYS_DB"
  ! cmp -s "$GPUDAYS_DB" "$WORK/before" || fail "the store has no $1"
}
# noted ARGUMENT...: succeeds, with a note on stderr.
noted() {
  try "$@"
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
}
# count TEXT NUMBER: so many lines of stdout have it.
count() {
  [[ $(grep -c -- "$1" "$OUT" || true) == "$2" ]] || fail "$LAST: not $2 lines with '$1' on stdout"
}
# lines TEXT NUMBER: so many lines of stderr have it.
lines() {
  [[ $(grep -cF -- "$1" "$ERR" || true) == "$2" ]] || fail "$LAST: not $2 lines with '$1' on stderr"
}

expect 0 bench "${quick[@]}" --methods naive,kernels --json
expect 0 bench "${quick[@]}" --methods naive,kernels --json
count '^      "source": "store"' 2
lines "trial" 0

# Samples that are none.
damage '"pass_ns"' '"pass_nX"'
noted bench "${quick[@]}" --methods naive,kernels --json
count '^      "source": "store"' 1
lines "has a samples that this gpudays does not understand: it was edited, or $GPUDAYS_DB is damaged; it was measured again" 1
expect 0 bench "${quick[@]}" --methods naive,kernels --json
count '^      "source": "store"' 2
lines "damaged" 0

# A key that contradicts its trial: also left out by who reads without measuring, and named there.
export GPUDAYS_DB=$WORK/other.db
expect 0 bench "${quick[@]}" --methods naive,kernels --json
damage 'method=naive;' 'method=native'
for command in "best $model --seq 16 --batch 8" "results" "accuracy" \
  "export $model --seq 16 --batch 8 --format hf -o -" "cost $model --seq 16 --batch 8"; do
  # shellcheck disable=SC2086
  noted $command
  lines "1 trial was left out: trial" 1
done
noted bench "${quick[@]}" --methods naive,kernels
said "neox-parallel, naive: trial"
lines "; it was measured again" 1
# Where it was the only one.
export GPUDAYS_DB=$WORK/one.db
expect 0 bench "${quick[@]}" --methods naive --json
damage 'method=naive;' 'method=native'
try best "$model" --seq 16 --batch 8
said "1 damaged one is left out ('gpudays results' says which); gpudays bench"
