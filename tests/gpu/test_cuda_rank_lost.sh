#!/usr/bin/env bash
# A rank that stays away from a graph whose NCCL kernels the others already wait in, one that is
# stopped and one that is killed: the trial ends in time with a sentence, and the search goes on.
# With real NCCL and 2 and 4 ranks; skipped with its reason where NCCL does not take them.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"
# shellcheck source=tests/gpu/nccl.sh
source "$(dirname "$0")/nccl.sh"

"$GPUDAYS" doctor >"$WORK/doctor" 2>&1 || true
grep -q '^GPU  *ok' "$WORK/doctor" || {
  echo "skipped: there is no GPU"
  exit 77
}
nccl_takes 4 || {
  echo "skipped: $NCCL_REFUSES"
  exit 77
}
limit=8
export GPUDAYS_NCCL=on GPUDAYS_DETERMINISTIC=1
# shellcheck disable=SC2054
model=("$GD_SOURCE_DIR/tests/reference/neox-parallel" --seq 32 --batch 16 --steps 10 --backend cuda
  --precision fp32 --micro-batch 1 --methods naive+zero1,naive --rank-timeout "$limit" --json)

# judge SECONDS MOST: the first method failed with a sentence, the second was measured.
judge() {
  (($1 <= $2)) || fail "$LAST: took $1 s, not $2"
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  [[ $(grep -c '^      "status": "ok"' "$OUT") == 1 ]] || fail "$LAST: the search did not go on"
  [[ $(grep -c '^      "status": "failed"' "$OUT") == 1 ]] || fail "$LAST: no trial failed"
  echo "$LAST: $1 s, $(sed -n 's/^      "reason": \(".*"\),*$/\1/p' "$OUT" | grep -v '""' | head -1)"
}

for ranks in 2 4; do
  export GPUDAYS_DB=$WORK/$ranks.db
  # Kernels are compiled, and what a search takes here is known.
  from=$SECONDS
  expect 0 bench "${model[@]}" --ranks $ranks --sample-seconds 0.05 --fresh
  from=$SECONDS
  expect 0 bench "${model[@]}" --ranks $ranks --sample-seconds 0.05 --fresh
  usual=$((SECONDS - from + 1))
  [[ $(grep -c '^      "status": "ok"' "$OUT") == 2 ]] || fail "$LAST: not both were measured"

  for fault in absent stopped killed; do
    LAST="$ranks ranks, one is $fault" RC=0 from=$SECONDS
    GPUDAYS_TEST_FAULT=naive+zero1=${fault}1 timeout 120 "$GPUDAYS" bench "${model[@]}" --ranks $ranks \
      --sample-seconds 0.05 --fresh >"$OUT" 2>"$ERR" </dev/null || RC=$?
    judge $((SECONDS - from)) $((usual + 10 + limit))
    [[ $fault != absent ]] || grep -q 'waits for the other ranks in vain' "$OUT" || fail "$LAST: another reason"
  done
done
