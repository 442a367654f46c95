#!/usr/bin/env bash
# Training against PyTorch: 200 steps of each family from the same weights on the same samples have the
# losses of transformers (parity/*.txt, by tools/make_training_reference.py) within 1e-4.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"
here=$GD_SOURCE_DIR/tests/train/parity

# compare NAME RUN BOUND: the largest relative difference of the losses.
compare() {
  sed -nE 's/^\{"step": ([0-9]+), "loss": ([^,]+),.*/\1 \2/p' "$2/log.jsonl" >"$WORK/losses"
  [[ $(wc -l <"$WORK/losses") == 200 ]] || fail "$LAST: the log has not 200 steps"
  paste -d' ' "$WORK/losses" <(grep -v '^#' "$here/$1.txt") | awk -v bound="$3" '
    { d = ($2 - $4) / $4; d = d < 0 ? -d : d; if ($1 != $3) bad = 1 }
    d > most { most = d; at = $1 }
    END { print most, "at step", at; exit bad || !(most <= bound) }' >"$WORK/worst" ||
    fail "$LAST: the losses differ by $(cat "$WORK/worst")"
  echo "$1, ${2##*/}: largest relative difference of the loss $(cat "$WORK/worst")"
}

# trained ARGUMENT...: a note is fine: a masked model learns slowly at first.
trained() {
  try "${run[@]}" "$@"
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
}

for file in "$here"/*.txt; do
  name=$(basename "$file" .txt)
  run=(train "$GD_SOURCE_DIR/tests/reference/$name" --init "$GD_SOURCE_DIR/tests/reference/$name"
    --data "$here/tokens.bin" --seq 24 --batch 8 --steps 200 --warmup 20 --lr 3e-3 --schedule cosine
    --optimizer adamw --betas "0.9,0.95" --weight-decay 0.1 --clip 1 --precision fp32 --mask-token 96 --threads 1)
  trained --methods free-lunch -o "$WORK/$name-cpu"
  compare "$name" "$WORK/$name-cpu" 1e-4
  [[ ${GD_TEST_ALL:-} == 1 ]] || continue # ref takes a minute and a half
  trained --methods naive --backend ref -o "$WORK/$name-ref"
  compare "$name" "$WORK/$name-ref" 1e-4
done
