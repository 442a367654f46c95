#!/usr/bin/env bash
# The runs of `gpudays report --runs`: what is drawn is what their logs say, a run that cannot be read
# hides no other, and folders without runs are refused before anything is written.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

tiny_config "$WORK/tiny"
awk 'BEGIN { for (i = 0; i < 20000; i++) { x = (x * 5 + 3 + (i % 7 == 0)) % 64
  printf "\\x%02x\\x00", x } }' >"$WORK/escapes"
# shellcheck disable=SC2059
printf "$(cat "$WORK/escapes")" >"$WORK/train.bin"
cd "$WORK" || exit 1
for lr in 1e-2 1e-3; do
  expect 0 train tiny --data train.bin --eval train.bin --eval-every 10 --seq 16 --batch 4 --steps 40 --warmup 4 \
    --lr "$lr" --precision fp32 --threads 1 -o "runs/lr-$lr"
done
# A run of many steps is drawn by means, an update that was skipped is counted, and steps are held against the expected time.
mkdir many
sed 's/"steps": 40/"steps": 6000/' runs/lr-1e-2/run.json |
  sed 's/"expected_step_s": 0.0/"expected_step_s": 0.5/; s/"expected_by": ""/"expected_by": "trial"/' >many/run.json
grep -q '"expected_step_s": 0.5' many/run.json || fail "run.json has no expected time to change"
awk 'BEGIN { for (i = 1; i <= 6000; i++)
  printf "{\"step\": %d, \"loss\": %s, \"lr\": 0.001, \"gradient_norm\": 1, \"tokens_per_s\": 100, \"mfu\": 0, " \
    "\"step_s\": 0.75, \"tokens\": %d%s}\n", i, i == 7 ? "null" : 2, 64 * i, i == 7 ? ", \"skipped\": true" : "" }' \
  >many/log.jsonl

report=(report --no-store --no-predictions)
expect 2 "${report[@]}" -o "$WORK/no" runs
said "report does not know what runs is: runs come behind --runs"
mkdir empty
expect 2 "${report[@]}" -o "$WORK/no" --runs empty
said "there is no run in empty"
expect 2 "${report[@]}" -o "$WORK/no" --runs none
said "none cannot be read"
[[ ! -e $WORK/no ]] || fail "$LAST: something was written"

mkdir runs/broken
echo '{' >runs/broken/run.json
try "${report[@]}" -o page --runs runs many --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
field_is runs 3
grep -qF "The run runs/broken was left out" page/index.html || fail "$LAST: says nothing of a broken run"
for id in runs run-1 run-2 run-3; do
  grep -qF "<section id=\"$id\"" page/index.html || fail "$LAST: the page has no section $id"
done
if grep -qF 'id="run-4"' page/index.html; then fail "$LAST: a run too many"; fi
# runs/lr-1e-2 comes first: all of its losses are there, with their steps.
sed -nE 's/^\{"step": ([0-9]+), "loss": ([0-9.]+),.*/\1 \2/p' runs/lr-1e-2/log.jsonl >"$WORK/logged"
grep '^Loss,training,' page/run-1-curves.csv | cut -d, -f3,4 | tr , ' ' >"$WORK/drawn"
paste -d' ' "$WORK/logged" "$WORK/drawn" | awk '
  $1 != $3 || $2 - $4 > 1e-6 || $4 - $2 > 1e-6 { bad = 1 } END { exit bad || NR != 40 }' ||
  fail "$LAST: run-1-curves.csv is not the log"
[[ $(grep -c '^Loss,evaluation,' page/run-1-curves.csv) == 4 ]] || fail "$LAST: not four evaluations"
! grep -Eq '^(Step time|Skipped updates)' page/run-1-curves.csv ||
  fail "$LAST: nothing was expected, and nothing was skipped"
# 6,000 steps are 300 points; each step takes half as long again as was expected.
awk -F, '$1 ~ /^Step time/ { n++; if ($4 != 50) bad = 1; last = $3 } END { exit bad || n != 300 || last != 6000 }' \
  page/run-3-curves.csv || fail "$LAST: the step times of run 3 are wrong"
[[ $(grep '^Skipped updates so far,' page/run-3-curves.csv | tail -1 | cut -d, -f4) == 1 ]] ||
  fail "$LAST: the skipped update is not counted"
[[ $(tail -n +2 page/runs-table.csv | wc -l) == 3 ]] || fail "$LAST: runs-table.csv has not three rows"

# More runs than the page has curves of: those that changed last have theirs, the table links to files of the others.
mkdir crowd
for i in {01..27}; do
  mkdir "crowd/r$i"
  cp runs/lr-1e-2/run.json "crowd/r$i/"
  head -5 runs/lr-1e-2/log.jsonl >"crowd/r$i/log.jsonl"
  touch -d "2024-01-01 10:$i" "crowd/r$i/log.jsonl"
done
touch -d "2024-01-02" crowd/r02/log.jsonl
expect 0 "${report[@]}" -o crowded --runs crowd --json
field_is runs 27
diff <(printf 'r%02d\n' 2 {21..27}) <(cut -d, -f1 crowded/runs-loss.csv | tail -n +2 | uniq) >"$OUT" ||
  fail "$LAST: not the losses of the runs that changed last"
grep -qF "The curves of the 8 runs that changed last follow; those of the other 19 are files" crowded/index.html ||
  fail "$LAST: does not say which runs have curves on the page"
file=svg
command -v gnuplot >/dev/null || file=csv
for i in {1..27}; do
  if [[ $i == 2 || $i -gt 20 ]]; then link="#run-$i"; else link=run-$i.$file; fi
  grep -qF "<a href=\"$link\">$(printf 'r%02d' "$i")</a>" crowded/index.html || fail "$LAST: no link to run $i"
  if [[ $link == \#* ]]; then
    grep -qF "<section id=\"run-$i\"" crowded/index.html || fail "$LAST: no curves of run $i"
  else
    [[ -s crowded/$link ]] || fail "$LAST: $link is not there"
    [[ $(grep -c '^Loss,training,' "crowded/run-$i.csv") == 5 ]] || fail "$LAST: the curves of run $i"
  fi
done
