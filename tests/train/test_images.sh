#!/usr/bin/env bash
# `gpudays train` on images: a small ViT learns two classes from a folder and from shards alike, goes on
# from its checkpoint with the losses that it would have had, and what is wrong is said before anything
# is written.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

IMAGES=$GD_SOURCE_DIR/tests/data/images
# Two classes, transformers' default, instead of eleven.
mkdir "$WORK/vit"
sed '/"id2label"/,/}/d; /"label2id"/,/}/d' "$GD_SOURCE_DIR/tests/reference/vit-a/config.json" >"$WORK/vit/config.json"
try train "$WORK/vit" --data "$IMAGES/train" --dry-run -o "$WORK/no"
if [[ $RC == 3 ]]; then
  echo "skipped: $(cat "$ERR")"
  exit 77
fi

run=(train "$WORK/vit" --data "$IMAGES/train" --batch 8 --steps 30 --warmup 2 --lr 1e-3 --schedule cosine
  --precision fp32 --methods free-lunch --micro-batch 4 --threads 1)
# losses RUN: step and loss of every line of the log.
losses() {
  sed -nE 's/^\{"step": ([0-9]+), "loss": ([^,]+),.*/\1 \2/p' "$1/log.jsonl"
}
same() { # RUN: the losses are those of the uninterrupted run, to the last digit
  diff <(losses "$WORK/whole") <(losses "$1") >"$OUT" || fail "$LAST: the losses differ"
}
differs() { # RUN
  ! diff <(losses "$WORK/whole") <(losses "$1") >/dev/null || fail "$LAST: nothing changed"
}

# --- one run ------------------------------------------------------------------------------------

expect 0 "${run[@]}" --dry-run -o "$WORK/whole"
shown "30 steps of 8 images"
shown "12 images of 2 classes, 20.00 epochs: cold to warm"
shown "20 x 28 pixels; augmentation crop,flip, label smoothing 0, normalization imagenet"
[[ ! -e $WORK/whole ]] || fail "$LAST: something was written"
expect 0 "${run[@]}" -o "$WORK/whole" --eval "$IMAGES/eval" --eval-every 10 --json
field_is step 30
field_is eval_accuracy 1.0
field_above data_wait_s 0
[[ $(losses "$WORK/whole" | wc -l) == 30 ]] || fail "$LAST: the log has not 30 steps"
# What is seen of it counts images.
expect 0 watch "$WORK/whole" --once
grep -qE 'step 30 of 30, loss [0-9.]+, .* [0-9,]+ images/s' "$OUT" || fail "$LAST: counts no images"
expect 0 runs "$WORK/whole" --json
field_is tokens_per_s null
field_above images_per_s 0
grep -aqF images_per_s "$WORK"/whole/tensorboard/events.out.tfevents.* || fail "$LAST: TensorBoard gets no images"
awk 'NR == 1 { first = $2 } { last = $2 } END { exit !(first > 0.5 && last < 0.5 * first) }' \
  <(losses "$WORK/whole") || fail "$LAST: nothing was learnt"
[[ $(grep -c '"eval_accuracy": ' "$WORK/whole/log.jsonl") -ge 3 ]] || fail "$LAST: not three evaluations"
[[ $(grep -c '"images_per_s": .*"data_wait_s": .*"images": ' "$WORK/whole/log.jsonl") == 30 ]] ||
  fail "$LAST: the log has no images or waits"
expect 0 models "$WORK/whole/model" --json
expect 0 watch "$WORK/whole"
shown " images/s"
expect 0 train "$WORK/whole"
shown "30 of 30 steps"
# The names of the classes go with the model; the transform cannot, for a model that is not square.
tr -d ' \n' <"$WORK/whole/model/config.json" >"$OUT"
shown '"id2label":{"0":"cold","1":"warm"},"label2id":{"cold":0,"warm":1}'
[[ ! -e $WORK/whole/model/preprocessor_config.json ]] || fail "$LAST: a transform that is not the run's"

# --- evaluate -----------------------------------------------------------------------------------

number_of() { # KEY: its value in the JSON that was printed
  sed -nE "s/^ *\"$1\": ([^,]*),?$/\1/p" "$OUT"
}
# What the run itself found at its end, by its own plan: loss and share of the classes.
found=$(sed -nE 's/.*"step": 30, "eval_loss": ([^,]+), "eval_accuracy": ([^,}]+).*/\1 \2/p' "$WORK/whole/log.jsonl")
evaluated() { # SAMPLES: the answer is that of the run
  read -r loss accuracy <<<"$found"
  field_is samples "$1"
  field_is tokens null
  field_is perplexity null
  awk -v a="$(number_of loss)" -v b="$loss" -v x="$(number_of accuracy)" -v y="$accuracy" \
    'BEGIN { exit !(b > 0 && a - b < 1e-5 * b && b - a < 1e-5 * b && x == y) }' ||
    fail "$LAST: not the loss and accuracy of the run: $found"
}
expect 0 evaluate "$WORK/whole" --json
field_is step 30
evaluated 6
expect 0 evaluate "$WORK/whole" --data "$IMAGES/eval/" --micro-batch 4 --threads 1 --data-threads 3 --json
evaluated 6
expect 0 evaluate "$WORK/whole/model" --data "$IMAGES/eval" --json
field_is step null
evaluated 6
expect 0 evaluate "$WORK/whole" --backend ref --json
evaluated 6
expect 0 evaluate "$WORK/whole"
shown "step 30: loss 0."
shown ", top-1 100.00 %"
shown "  6 images, in fp32"
# Classes have the numbers of the training data, whichever are there; and the numbers in shards.
mkdir "$WORK/some"
cp -r "$IMAGES/eval/warm" "$WORK/some"
for trained in "$WORK/whole" "$WORK/whole/model"; do
  expect 0 evaluate "$trained" --data "$WORK/some" --json
  field_is samples 3
  field_is accuracy 1.0
done
# A model's own names, in an order of its own; without them, and with others, all classes are needed.
cp -r "$WORK/whole/model" "$WORK/swapped"
sed -i 's/"0": "cold"/"0": "warm"/; s/"1": "warm"/"1": "cold"/' "$WORK/swapped/config.json"
expect 0 evaluate "$WORK/swapped" --data "$IMAGES/eval" --json
field_is accuracy 0.0
sed -i 's/"0": "warm"/"0": "hot"/' "$WORK/swapped/config.json"
expect 0 evaluate "$WORK/swapped" --data "$IMAGES/eval" --json
field_is accuracy 1.0
try evaluate "$WORK/swapped" --data "$WORK/some"
[[ $RC == 2 ]] || fail "$LAST: exit $RC"
said "has 1 classes (warm to warm), and the model 2"
(cd "$WORK/some" && n=0 && for image in warm/*; do
  cp "$image" "$n.${image##*.}" && echo 0 >"$n.cls" && n=$((n + 1))
done && tar -cf "$WORK/wrong.tar" ./[0-9]*)
expect 0 evaluate "$WORK/whole" --data "$WORK/wrong.tar" --json
field_is accuracy 0.0
expect 0 evaluate "$WORK/whole" --data "$WORK/wrong.tar" --samples 2 --json
field_is samples 2
# Where the training data is gone, classes go by their names.
cp -r "$IMAGES/train" "$WORK/moved"
expect 0 "${run[@]/#$IMAGES\/train/$WORK/moved}" --eval "$IMAGES/eval" -o "$WORK/lost"
expect 0 evaluate "$WORK/lost" --json
evaluated 6
mkdir "$WORK/moved/extra"
try evaluate "$WORK/lost"
[[ $RC == 2 ]] || fail "$LAST: exit $RC"
said "moved has 3 classes now, and the model has 2"
rm -r "$WORK/moved"
try evaluate "$WORK/lost" --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
evaluated 6
said "is not there: its classes are taken to have the names"
try evaluate "$WORK/lost" --data "$WORK/some/warm"
[[ $RC == 2 ]] || fail "$LAST: exit $RC"
said "has no folders"
for wrong in "--seq 4 --seq" "--tokenizer gpudays-4k --tokenizer" "--mask-token 3 --mask-token"; do
  # shellcheck disable=SC2086
  try evaluate "$WORK/whole" ${wrong% *}
  [[ $RC == 2 ]] || fail "$LAST: exit $RC"
  said "${wrong##* } is for models of tokens"
done
try evaluate "$WORK/whole/model"
[[ $RC == 2 ]] || fail "$LAST: exit $RC"
said "evaluate needs --data FILE: images"
try evaluate "$WORK/whole" --normalize unit
[[ $RC == 2 ]] || fail "$LAST: exit $RC"
said "imagenet, half or none"
cp -r "$IMAGES/eval" "$WORK/cut"
head -c 200 "$IMAGES/eval/warm/2.jpg" >"$WORK/cut/warm/2.jpg"
try evaluate "$WORK/whole" --data "$WORK/cut"
[[ $RC == 2 ]] || fail "$LAST: exit $RC"
said "cut/warm/2.jpg cannot be decoded (JPEG)"

# --- the same samples ---------------------------------------------------------------------------

# Shards: the order of the folder, classes by number.
mkdir "$WORK/shard"
number=0
for class in cold warm; do
  for image in "$IMAGES/train/$class"/*; do
    name=$(printf '%s/%03d' "$WORK/shard" "$number")
    cp "$image" "$name.${image##*.}"
    [[ $class == cold ]] && echo 0 >"$name.cls" || echo 1 >"$name.cls"
    number=$((number + 1))
  done
done
for format in ustar pax gnu; do
  (cd "$WORK/shard" && tar --format=$format -cf "$WORK/a-$format.tar" 00[0-4].* && tar --format=$format -cf "$WORK/b-$format.tar" 00[5-9].* 01*)
  expect 0 "${run[@]/#$IMAGES\/train/$WORK/a-$format.tar}" "$WORK/b-$format.tar" -o "$WORK/shards-$format"
  same "$WORK/shards-$format"
done
expect 0 "${run[@]}" --data-threads 5 -o "$WORK/threads"
same "$WORK/threads"
# Killed, and on from a checkpoint.
LAST="gpudays ${run[*]}, killed"
"$GPUDAYS" "${run[@]}" --checkpoint-every 4 -o "$WORK/killed" >"$OUT" 2>"$ERR" </dev/null &
program=$!
until compgen -G "$WORK/killed/checkpoints/step-*" >/dev/null || ! kill -0 "$program" 2>/dev/null; do sleep 0.01; done
kill -KILL "$program" 2>/dev/null || true
wait "$program" 2>/dev/null || true
expect 0 train "$WORK/killed" --threads 1
same "$WORK/killed"
# In legs, with everything that is random and soft; also with other micro-batches and ranks.
hard=(--augment "crop,flip,rand-m9-mstd0.5-inc1,erase=0.3,mixup=0.8,cutmix=1" --label-smoothing 0.1 --normalize half --drop-path 0.3)
expect 0 "${run[@]}" "${hard[@]}" --dry-run -o "$WORK/hard"
shown "stochastic depth: up to 0.3, at the last block"
expect 0 "${run[@]}" "${hard[@]}" -o "$WORK/hard"
differs "$WORK/hard"
expect 0 "${run[@]}" "${hard[@]}" -o "$WORK/legs" --time-limit 0.000001s
expect 0 train "$WORK/legs" --threads 1 --time-limit 0.000001s
expect 0 train "$WORK/legs" --threads 1
diff <(losses "$WORK/hard") <(losses "$WORK/legs") >"$OUT" || fail "$LAST: the losses differ"
near() { # RUN: within 1e-5 of the hard run, where sums have another order
  paste -d' ' <(losses "$WORK/hard") <(losses "$1") | awk '
    $1 != $3 || $2 - $4 > 1e-5 * $2 || $4 - $2 > 1e-5 * $2 { print; bad = 1 }
    END { exit bad || NR != 30 }' >"$OUT" || fail "$LAST: the losses differ by more than 1e-5"
}
expect 0 "${run[@]}" "${hard[@]}" --micro-batch 3 -o "$WORK/micro"
near "$WORK/micro"
if command -v mpirun >/dev/null; then
  expect 0 "${run[@]}" "${hard[@]}" --ranks 2 --micro-batch 4 --eval "$IMAGES/eval" -o "$WORK/ranks" --json
  field_above eval_accuracy 0
  near "$WORK/ranks"
else
  echo "skipped in part: mpirun is missing"
fi
# Each part changes something.
for part in "--augment none" "--augment crop" "--augment flip" "--augment crop,flip,rand" "--label-smoothing 0.1" "--normalize none" "--drop-path 0.5"; do
  # shellcheck disable=SC2086
  expect 0 "${run[@]}" --steps 3 $part -o "$WORK/part-${part// /-}"
  differs "$WORK/part-${part// /-}"
done

# Pixels are normalized as the model's folder says, or the run that a new one begins with.
cp -r "$WORK/whole/model" "$WORK/half"
echo '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}' >"$WORK/half/preprocessor_config.json"
new=(train "$WORK/vit" --data "$IMAGES/train" --steps 2 --dry-run -o "$WORK/no")
expect 0 "${new[@]/#$WORK\/vit/$WORK/half}"
shown "normalization half"
expect 0 "${new[@]/#$WORK\/vit/$WORK/half}" --normalize none
shown "normalization none"
expect 0 "${new[@]}" --init "$WORK/half"
shown "normalization half"
expect 0 "${new[@]}" --init "$WORK/hard"
shown "normalization half"
expect 0 evaluate "$WORK/half" --data "$IMAGES/eval" --json
half=$(number_of loss)
expect 0 evaluate "$WORK/whole/model" --data "$IMAGES/eval" --normalize half --json
field_is loss "$half"
expect 0 evaluate "$WORK/whole/model" --data "$IMAGES/eval" --json
[[ $(number_of loss) != "$half" ]] || fail "$LAST: normalized alike"
echo '{"image_mean": [0.48, 0.46, 0.41], "image_std": 0.27}' >"$WORK/half/preprocessor_config.json"
for command in "evaluate $WORK/half --data $IMAGES/eval" "train $WORK/half --data $IMAGES/train -o $WORK/no"; do
  # shellcheck disable=SC2086
  try $command
  [[ $RC == 2 ]] || fail "$LAST: exit $RC"
  said "image_mean 0.48 0.46 0.41 and image_std 0.27 0.27 0.27 are none of imagenet, half and none"
done
echo '{"image_mean": "imagenet"}' >"$WORK/half/preprocessor_config.json"
try evaluate "$WORK/half" --data "$IMAGES/eval"
[[ $RC == 2 ]] || fail "$LAST: exit $RC"
said "image_mean and image_std are not three numbers each"
expect 0 evaluate "$WORK/half" --data "$IMAGES/eval" --normalize half

# What a preset says of images, unless the command line does.
preset() { # IMAGES: preset.json with the small ViT
  printf '{"config": %s, "images": %s}' "$(cat "$WORK/vit/config.json")" "$1" >"$WORK/preset.json"
}
new=(train "$WORK/preset.json" --data "$IMAGES/train" --steps 2 --dry-run -o "$WORK/no")
preset '{"augment": "crop,rand-m5,mixup=0.2", "normalize": "half", "label_smoothing": 0.2, "drop_path": 0.25}'
expect 0 "${new[@]}"
shown "augmentation crop,rand-m5,mixup=0.2, label smoothing 0.2, normalization half"
shown "stochastic depth: up to 0.25"
expect 0 "${new[@]}" --augment none --label-smoothing 0 --normalize none --drop-path 0
shown "augmentation none, label smoothing 0, normalization none"
! grep -qF "stochastic depth" "$OUT" || fail "$LAST: stochastic depth"
expect 0 models "$WORK/preset.json" --json
field_is augment crop,rand-m5,mixup=0.2
field_is train_drop_path 0.25
field_is drop_path 0.0
expect 0 models "$WORK/preset.json"
shown "drop path   0.25 at the last block, of train"
while IFS='|' read -r images sentence; do
  preset "$images"
  try "${new[@]}"
  [[ $RC == 2 ]] || fail "$LAST: exit $RC"
  said "$sentence"
done <<'END'
{"augment": "crops"}|has no part "crops"
{"drop_path": 1}|drop_path is 1
{"smoothing": 0.1}|smoothing
{"normalize": 3}|normalize
"crop"|images is "crop"; expected an object
END

# ConvNeXt, from one of its own configurations.
mkdir "$WORK/convnext"
sed '/"id2label"/,/}/d; /"label2id"/,/}/d' "$GD_SOURCE_DIR/tests/reference/convnext-a/config.json" >"$WORK/convnext/config.json"
expect 0 train "$WORK/convnext" --data "$IMAGES/train" --eval "$IMAGES/eval" --batch 6 --steps 2 --warmup 1 \
  --lr 1e-3 --threads 1 -o "$WORK/convnext-run"
shown "top-1 "
tr -d ' \n' <"$WORK/convnext-run/model/preprocessor_config.json" >"$OUT"
shown '"size":{"shortest_edge":73},"resample":2,"do_center_crop":true,"crop_size":{"height":64,"width":64}'
shown '"image_mean":[0.485,0.456,0.406],"image_std":[0.229,0.224,0.225]}'
expect 0 evaluate "$WORK/convnext-run" --json
loss=$(number_of loss)
expect 0 evaluate "$WORK/convnext-run/model" --data "$IMAGES/eval" --json
field_is loss "$loss"

# --- what is refused ----------------------------------------------------------------------------

refused() { # CODE SENTENCE ARGUMENT...
  local code=$1 sentence=$2
  shift 2
  expect "$code" "$@"
  said "$sentence"
  [[ ! -e $WORK/no ]] || fail "$LAST: something was written"
}
refused 2 "has 2 classes (cold to warm), and the model 11" \
  train "$GD_SOURCE_DIR/tests/reference/vit-a" --data "$IMAGES/train" -o "$WORK/no"
refused 2 "has no part \"crops\"" "${run[@]}" --augment crops -o "$WORK/no"
refused 2 "\"m12\" is no setting of RandAugment" "${run[@]}" --augment crop,rand-m12 -o "$WORK/no"
refused 2 "imagenet, half or none" "${run[@]}" --normalize unit -o "$WORK/no"
refused 2 "is for models of tokens" "${run[@]}" --mask-token 3 -o "$WORK/no"
refused 2 "expected a number from 0 to below 1" "${run[@]}" --drop-path 1 -o "$WORK/no"
refused 2 "drop_path (stochastic depth) is for models of images" train pythia-14m --data x --drop-path 0.1 -o "$WORK/no"
refused 2 "is trained on tokens" train pythia-14m --data x --label-smoothing 0.1 -o "$WORK/no"
refused 2 "No such file" "${run[@]/#$IMAGES\/train/$WORK/nothing.tar}" -o "$WORK/no"
refused 2 "is a folder among 2 paths" "${run[@]}" "$WORK/a-pax.tar" -o "$WORK/no"
mkdir -p "$WORK/more/hot"
cp "$IMAGES/train/warm/1.jpg" "$WORK/more/hot"
refused 2 "more/hot is a class that the training data" "${run[@]}" --eval "$WORK/more" -o "$WORK/no"
# A broken image is met on the way: file and reason.
cp -r "$IMAGES/train" "$WORK/broken"
head -c 300 "$IMAGES/train/warm/1.jpg" >"$WORK/broken/warm/1.jpg"
try "${run[@]/#$IMAGES\/train/$WORK/broken}" -o "$WORK/met" # a note too, where steps were made before
[[ $RC == 2 ]] || fail "$LAST: exit $RC, not 2"
said "broken/warm/1.jpg cannot be decoded (JPEG)"
refused 2 "and --augment would change" train "$WORK/whole" --augment none
