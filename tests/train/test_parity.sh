#!/usr/bin/env bash
# Training against PyTorch: 200 steps of each family from the same weights on the same samples have the
# losses of transformers (parity/*.txt, by tools/make_training_reference.py) within 1e-4; models of images
# plain, with stochastic depth, and with all of ConvNeXt's recipe. GD_TEST_BACKEND=cuda: on a GPU, in
# every precision.
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
  ! grep -q "skipped" "$OUT" || fail "$LAST: an update was skipped, and transformers skips none"
}

# Where libpng is missing, images cannot be read.
try train "$GD_SOURCE_DIR/tests/reference/vit-a" --data "$here/images.tar" --dry-run -o "$WORK/no"
images=$RC
[[ $images != 3 ]] || echo "skipped in part: $(cat "$ERR")"

for file in "$here"/*.txt; do
  name=$(basename "$file" .txt) folder=$GD_SOURCE_DIR/tests/reference/${name%%+*}
  run=(train "$folder" --init "$folder" --batch 8 --steps 200 --warmup 20 --lr 3e-3 --schedule cosine
    --optimizer adamw --betas "0.9,0.95" --weight-decay 0.1 --clip 1 --precision fp32 --threads 1)
  case $name in
    vit* | convnext*)
      [[ $images != 3 ]] || continue
      run+=(--data "$here/images.tar" --label-smoothing 0.1)
      case $name in
        *+recipe) run+=(--augment "crop,bicubic,flip,rand-m9-mstd0.5-inc1,noise=0.25,mixup=0.8,cutmix=1") ;;
        *) run+=(--augment none) ;;
      esac
      [[ $name != *+* ]] || run+=(--drop-path 0.2)
      ;;
    *) run+=(--data "$here/tokens.bin" --seq 24 --mask-token 96) ;;
  esac
  if [[ ${GD_TEST_BACKEND:-cpu} == cuda ]]; then
    trained --methods naive --backend cuda -o "$WORK/$name-cuda-naive-fp32"
    compare "$name" "$WORK/$name-cuda-naive-fp32" 1e-4
    for precision in fp32:1e-3 fp16:1e-2 bf16:3e-2; do # fp32 is TF32 there
      trained --methods free-lunch --backend cuda --precision "${precision%:*}" \
        -o "$WORK/$name-cuda-${precision%:*}"
      compare "$name" "$WORK/$name-cuda-${precision%:*}" "${precision#*:}"
    done
    continue
  fi
  trained --methods free-lunch -o "$WORK/$name-cpu"
  compare "$name" "$WORK/$name-cpu" 1e-4
  [[ ${GD_TEST_ALL:-} == 1 ]] || continue # ref takes minutes
  trained --methods naive --backend ref -o "$WORK/$name-ref"
  compare "$name" "$WORK/$name-ref" 1e-4
done
