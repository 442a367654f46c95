#!/usr/bin/env bash
# `gpudays runs` and `gpudays watch`: what is seen of a run from its folder alone, while it is being
# trained, when it was stopped and when it is done; and a damaged log hides no more than its line.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"
export TZ=UTC

tiny_config "$WORK/tiny"
awk 'BEGIN { for (i = 0; i < 20000; i++) { x = (x * 5 + 3 + (i % 7 == 0)) % 64
  printf "\\x%02x\\x00", x } }' >"$WORK/escapes"
# shellcheck disable=SC2059
printf "$(cat "$WORK/escapes")" >"$WORK/train.bin"
run=(train "$WORK/tiny" --data "$WORK/train.bin" --seq 16 --batch 4 --warmup 4 --lr 1e-2 --precision fp32
  --methods free-lunch --micro-batch 4 --threads 1 --quiet)

# --- none, and what is none -----------------------------------------------------------------------

cd "$WORK" || exit 1
expect 0 runs
shown "no runs in runs: 'gpudays train MODEL --data FILE' makes one"
expect 0 runs --json
shown '"runs": []'
expect 2 runs "$WORK/none"
said "none cannot be read: No such file"
mkdir "$WORK/empty"
expect 0 runs "$WORK/empty"
shown "no runs in $WORK/empty"
expect 2 watch "$WORK/empty"
said "empty is no run: it has no run.json"

# --- done, and stopped ------------------------------------------------------------------------------

expect 0 "${run[@]}" --steps 40 --eval "$WORK/train.bin" --eval-every 10 -o "$WORK/runs/a"
expect 0 "${run[@]}" --steps 4000 -o "$WORK/runs/b" --time-limit 0.000001s
expect 0 runs
grep -qE '^RUN +MODEL +METHOD +STEP +LOSS +EVAL +TOKENS/S +STATE +DATE$' "$OUT" || fail "$LAST: no titles"
grep -qE '^runs/a +tiny +free-lunch +40 of 40 +[0-9.]+ +[0-9.]+ +[0-9,]+ +finished +20[0-9]{2}-[0-9-]+ [0-9:]+$' \
  "$OUT" || fail "$LAST: no row of a run that is done"
grep -qE '^runs/b +tiny +free-lunch +1 of 4,000 +[0-9.]+ +[0-9,]+ +stopped +20' "$OUT" ||
  fail "$LAST: no row of a run that was stopped"
cp "$OUT" "$WORK/both"
expect 0 runs runs/a "$WORK/runs/b"
[[ $(wc -l <"$OUT") == 3 ]] || fail "$LAST: not two runs"
expect 0 runs runs/a --json
field_is state finished
field_is step 40
field_is completion null
loss=$(sed -nE 's/^\{"step": 40, "loss": ([0-9.]+),.*/\1/p' runs/a/log.jsonl)
awk -v a="$(field loss)" -v b="$loss" 'BEGIN { exit !(a - b < 1e-8 && b - a < 1e-8) }' ||
  fail "$LAST: the loss is not the log's"
expect 0 runs --csv
[[ $(cut -d, -f1,4,5 "$OUT" | tr '\n' ' ') == "run,state,step runs/a,finished,40 runs/b,stopped,1 " ]] ||
  fail "$LAST: another table"

# Steps that are done are not a model that is there: it was killed before the end.
cp -r runs/a "$WORK/killed"
rm -r "$WORK/killed/model"
expect 0 runs "$WORK/killed" --json
field_is state stopped


# A run of an older program: the same under the names that run.json had then.
mkdir -p "$WORK/old/names" "$WORK/old/today"
sed 's/"expected_step_s": [0-9.e-]*/"expected_step_s": 0.5/; s/"expected_by": "[a-z]*"/"expected_by": "trial"/' \
  "$WORK/runs/b/run.json" >"$WORK/old/today/run.json"
sed 's/"session": {/"leg": {/; s/"expected_/"promised_/' "$WORK/old/today/run.json" >"$WORK/old/names/run.json"
[[ $(grep -cE '"(leg|promised_step_s|promised_by)"' "$WORK/old/names/run.json") == 3 ]] || fail "run.json has other names"
cp "$WORK/runs/b/log.jsonl" "$WORK/old/names"
cp "$WORK/runs/b/log.jsonl" "$WORK/old/today"
expect 0 watch "$WORK/old/today" --json
sed '/"run":/d; /"changed"/d' "$OUT" >"$WORK/today.json"
expect 0 watch "$WORK/old/names" --json
shown '"expected_step_s": 0.5'
shown '"expected_by": "trial"'
sed '/"run":/d; /"changed"/d' "$OUT" | diff - "$WORK/today.json" >"$WORK/diff" || fail "$LAST: $(cat "$WORK/diff")"

# --- watch: a snapshot ------------------------------------------------------------------------------

expect 0 watch runs/a --once
shown "tiny, free-lunch: finished (runs/a)"
shown "[##############################] 100 %, finished; last change 20"
shown "step 40 of 40, evaluation "
# The curve falls: its first column has a star in the first row, the last column one in the last row.
awk '/\|/ { n++; row[n] = $0; sub(/^[^|]*\|/, "", row[n]) }
  END { exit !(n == 8 && row[1] ~ /^\*/ && length(row[8]) > 50) }' "$OUT" || fail "$LAST: no curve"
tail -1 "$OUT" | grep -E '^ +1 +40$' >/dev/null || fail "$LAST: no range of steps"
if locale -a 2>/dev/null | grep -ixE 'C.utf-?8' >/dev/null; then
  LC_ALL=C.UTF-8 expect 0 watch runs/a --once
  grep -q $'\xe2\xa0' "$OUT" || fail "$LAST: no Braille patterns"
fi
expect 0 watch runs/b --once
shown "[------------------------------] 0 %, stopped; last change"
# Of a run that nobody trains there is nothing to wait for.
expect 0 watch runs/b
shown "step 1 of 4,000, loss "
shown "stopped at step 1: 'gpudays train runs/b' goes on"
expect 0 watch runs/a
[[ $(tail -1 "$OUT") == "finished: the model is in runs/a/model" ]] || fail "$LAST: another end"

# --- damage -----------------------------------------------------------------------------------------

cp -r runs "$WORK/damaged"
sed -i -e '3s/.*/{"step": 2\x01\x1b[2Jgarbage/' -e '5s/"step_s".*//' "$WORK/damaged/a/log.jsonl"
printf '{"step": 41, "lo' >>"$WORK/damaged/a/log.jsonl" # being written: no damage yet
mkdir "$WORK/damaged/c"
echo '{"format": 1, "model": 3}' >"$WORK/damaged/c/run.json"
try runs "$WORK/damaged"
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
said "damaged/a/log.jsonl has 2 damaged lines, which were passed over"
said "damaged/c was left out: "
[[ $(wc -l <"$ERR") == 2 ]] || fail "$LAST: more is said"
rows() { sed -E "s|$WORK/damaged|runs|; s/ +/ /g; s/ 20[0-9]{2}-.*//" "$1"; } # without dates
diff <(rows "$OUT") <(rows "$WORK/both") >"$ERR" || fail "$LAST: other rows"
try watch "$WORK/damaged/a" --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
field_is step 40
field_is damaged_lines 2

# --- being trained ----------------------------------------------------------------------------------

"$GPUDAYS" "${run[@]}" --steps 1000000 -o "$WORK/live" >"$WORK/trained" 2>&1 </dev/null &
trainer=$!
await test -s "$WORK/live/log.jsonl"
"$GPUDAYS" watch "$WORK/live" >"$WORK/watched" 2>"$WORK/said" </dev/null &
watcher=$!
expect 0 runs "$WORK/live" --json
field_is state training
[[ $(field completion) == 20* ]] || fail "$LAST: no date of completion"
expect 0 runs "$WORK/live"
shown " training  done 20"
expect 3 train "$WORK/live"
several() { [[ $(grep -c '^step ' "$WORK/watched") -gt 50 ]]; }
await several
kill -TERM "$trainer"
wait "$trainer" || fail "the run ended with an error"
LAST="gpudays watch, of a run that was ended"
wait "$watcher" || fail "$LAST: exit $?"
[[ ! -s $WORK/said ]] || fail "$LAST: something on stderr"
# Each step since the first one that it saw, once; and the last one of the log.
sed -nE 's/^step ([0-9,]+) of 1,000,000, loss .*/\1/p' "$WORK/watched" | tr -d , >"$OUT"
awk 'NR > 1 && $1 != last + 1 { exit 1 } { last = $1 }' "$OUT" || fail "$LAST: steps are missing"
step=$(tail -1 "$WORK/live/log.jsonl" | sed -E 's/^\{"step": ([0-9]+),.*/\1/')
[[ $(tail -1 "$OUT") == "$step" ]] || fail "$LAST: the last step is not $step"
grep -qF "stopped at step $step: 'gpudays train $WORK/live' goes on" "$WORK/watched" || fail "$LAST: no end"

# --- the progress line ------------------------------------------------------------------------------

# On a terminal with the date of completion; the test of train sees that nothing is said otherwise.
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
  LAST="gpudays train on a terminal"
  printf -v line '%q ' "$GPUDAYS" "${run[@]/--quiet/}" --steps 40 -o "$WORK/shown"
  TERM=xterm script -qec "${line//\'\'/}" /dev/null >"$OUT" </dev/null || fail "$LAST: failed"
  grep -aqE 'step [0-9]+ of 40, loss [0-9.]+, done 20[0-9]{2}-[0-9]{2}-[0-9]{2} [0-9:]{5} \([0-9.]+ (s|min) left\)' \
    "$OUT" || fail "$LAST: no date of completion"
  # What does not fit is left out, whole, the least important first; of ranks, too.
  ranks=("")
  ! command -v mpirun >/dev/null || ranks+=("--ranks 2 --micro-batch 2")
  for extra in "${ranks[@]}"; do
    number=0
    for columns in 200 90 70 40; do
      folder=$WORK/wide$((number++))${extra: -1}
      # shellcheck disable=SC2086
      printf -v line '%q ' "$GPUDAYS" "${run[@]/--quiet/}" --steps 40 -o "$folder" $extra
      LAST="gpudays train $extra on a terminal of $columns columns"
      TERM=xterm script -qec "stty columns $columns rows 24; ${line//\'\'/}" /dev/null >"$WORK/shown.txt" </dev/null || fail "$LAST: failed"
      tr '\r' '\n' <"$WORK/shown.txt" | grep -a '^step ' | sed $'s/\033.*//; s/ *$//' >"$OUT"
      awk -v most="$columns" 'length > most - 1 { exit 1 }' "$OUT" || fail "$LAST: too long a line"
      pattern='step [0-9]+ of 40, loss [0-9.]+'
      ((columns < 70)) || pattern+=', done [0-9: -]+ \([0-9.]+ [a-z]+ left\)'
      ((columns < 90)) || pattern+=', [0-9,]+ tokens/s(, MFU [0-9]+ %)?'
      ((columns < 200)) || pattern+=', lr [0-9.e-]+, norm [0-9.]+'
      ! grep -avxE "$pattern" "$OUT" || fail "$LAST: another line"
      [[ -s $OUT ]] || fail "$LAST: no line"
    done
  done
  TERM=xterm script -qec "$(printf '%q ' "$GPUDAYS" watch "$WORK/shown")" /dev/null >"$OUT" </dev/null ||
    fail "$LAST: watch failed"
  grep -aqF $'\033[H\033[J' "$OUT" || fail "$LAST: watch does not draw"
else
  echo "skipped in part: script(1) has no terminal to offer"
fi
