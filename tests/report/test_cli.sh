#!/usr/bin/env bash
# `gpudays report`: an empty store and a full one, a report over an older one, folders and disks that
# are no good, and no gnuplot.
# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/cli/common.sh"
out=$WORK/made/report

# Every item of the paper has its anchor, its entry in the contents, and says where it comes from.
items=(table-1 table-3 table-4 table-5 table-6 table-7 appendix-j)
for i in {1..13}; do items+=("figure-$i"); done
check_page() {
  local id order
  # The reader's results, the cost, then the paper, folded; each table and figure once.
  order=$(grep -oE '<h2[^>]*>[^<]*|<details class="appendix"' "$1" | sed 's/<h2[^>]*>//' | tr '\n' '|')
  [[ $order == 'Your results|What it would cost|<details class="appendix"|Appendix: the paper, reproduced|' ]] ||
    fail "$1: the chapters are $order"
  [[ $(grep -oE '<h[1-6]' "$1" | awk '{ level = substr($0, 3); if (level > last + 1) bad = 1; last = level }
    END { print bad + 0 }') == 0 ]] || fail "$1 leaves out a level of headings"
  [[ $(grep -c '<figure id="table-1-paper"' "$1") == 1 && $(grep -c 'id="table-[14]-map"' "$1") == 0 ]] ||
    fail "$1 has Table 1 twice"
  for id in "${items[@]}"; do
    grep -q "<section id=\"$id\"" "$1" || fail "$1 has no $id"
    grep -q "<a href=\"#$id\"" "$1" || fail "the contents lack $id"
  done
  [[ $(grep -c '<figure id=' "$1") == $(grep -c '<p class="from">Source: .' "$1") ]] ||
    fail "not every block names its source"
  ! grep -Eq '(src|href|action)="?(https?:)?//' "$1" || fail "$1 asks for something outside"
  ! grep -Eq '@import|url\(' "$1" || fail "the style asks for something outside"
  [[ $(grep -oE ' id=("[^"]*"|'"'[^']*'"')' "$1" | tr -d "\"'" | sort | uniq -d) == "" ]] ||
    fail "$1 has an id twice"
}
# Links to files next to the page all work.
check_files() {
  local file links=0
  while read -r file; do
    links=$((links + 1))
    [[ -s $1/$file ]] || fail "$file is linked and not there"
  done < <(grep -oE 'href="[^"#:]+"' "$1/index.html" | cut -d'"' -f2)
  ((links >= 10)) || fail "$1/index.html links to $links files"
}

expect 2 report
said "gpudays report -o DIR"
silent
expect 2 report -o "$out" pythia-14m
expect 2 report -o ""

with_gnuplot=true
command -v gnuplot >/dev/null || with_gnuplot=false

# An empty store: the paper's side, and predictions.
try report -o "$out" --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
field_is page "$out/index.html"
field_is trials 0
field_above figures 25
field_above tables 10
check_page "$out/index.html"
check_files "$out"
[[ $(grep -c . "$out/table-1-intervals.csv") == 145 ]] || fail "not 144 predictions"
# Every one that is a number lies within its interval.
awk -F, 'NR > 1 && $5 != "" { n++; if (!($6 < $5 && $5 < $7)) exit 1 } END { exit n < 100 }' \
  "$out/table-1-intervals.csv" || fail "predictions outside their intervals"
# Figures whose numbers the paper does not give are drawn from predictions, and say so.
for figure in 4-predicted 5-predicted 11-predicted 10-predicted-1 10-predicted-several; do
  [[ -s $out/figure-$figure.csv ]] || fail "no figure-$figure.csv"
done
[[ $(grep -c "with free-lunch alone too" "$out/figure-10-predicted-1.csv") -ge 1 &&
  $(grep -c "only with memory-saving methods" "$out/figure-10-predicted-1.csv") -ge 1 ]] || fail "the classes of Figure 10"
awk -F, 'NR > 1 { at[$1] = $2 } END { exit !(at["best"] > 1 && at["worst"] < 1 && at["median"] == 1) }' \
  "$out/figure-5-predicted.csv" || fail "speeds of Figure 5"
awk -F, '$1 == "Pythia 160M" { exit !($2 < -5 && $3 > -5) }' "$out/figure-11-predicted.csv" ||
  fail "memory-saving methods cost time on one GPU: Figure 11"
# Of the paper's software they say what its text says: only a cost on one GPU, gains of tens of percent
# on several, least of models of images; the best is faster than free-lunch alone, both than the median.
awk -F, 'NR > 1 { for (i = 2; i <= NF; i++) {
    if ($i == "") continue
    if (i % 4 == 2 && $i >= 0) exit 1
    if ($i > most) most = $i
    if (/^(ViT|ConvNeXt)/ && $i > 2) exit 1 } } END { exit !(most > 30) }' "$out/figure-11-stack.csv" ||
  fail "Figure 11 of the paper's software"
awk -F, 'NR > 1 { at[$1] = $2 } END { exit !(at["best"] > at["free-lunch alone"] && at["free-lunch alone"] > 1.2 &&
  at["worst"] < 0.9) }' "$out/figure-5-stack.csv" || fail "Figure 5 of the paper's software"
[[ $(grep -o "only with memory-saving methods" "$out/figure-10-stack-1.csv" | wc -l) == 4 ]] ||
  fail "Figure 10 of the paper's software"
# In whole percent, as the paper has them, and never "-0".
! grep -E ',-?[0-9]*\.|,-0(,|$)' "$out/figure-4-predicted.csv" || fail "Figure 4 is not in whole percent"
grep -q "Table 1 says what those of each GPU rest on" "$out/index.html" || fail "what Figures 4, 5 and 11 rest on"
# Figure 6 (a) has sizes of its own.
[[ $(grep -cE '^(RoBERTa 350M|ConvNeXt 350M|ViT 310M),' "$out/figure-6a.csv") == 3 ]] || fail "sizes of Figure 6 (a)"
grep -q 'class="chip predicted"' "$out/index.html" || fail "nothing says that it is predicted"
grep -q 'class="lacks".*Nothing was measured or trained here yet.*gpudays bench.*gpudays train' "$out/index.html" ||
  fail "an empty store does not say how to fill it"
[[ $(grep -c 'class="lacks"' "$out/index.html") == 1 ]] || fail "what is not there is told more than once"
# An example stands in the place of results, and the default model's cost: both before the paper.
awk '/id="example"/ { at = NR } /id="cost-pythia-1b-best"/ { cost = NR } /id="paper"/ { paper = NR }
  END { exit !(at && at < cost && cost < paper) }' "$out/index.html" || fail "no example, or no cost of one"
awk -F, '$1 == "4 GPUs" { exit !($9 < $8 && $8 < $10 && $8 > 1) }' "$out/example.csv" || fail "the example on 4 A100"
if $with_gnuplot; then
  [[ ! -s $ERR ]] || fail "$LAST: something on stderr"
  [[ $(grep -c '<svg' "$out/index.html") == $(find "$out" -name '*.svg' | wc -l) ]] ||
    fail "not every figure is in the page"
  [[ $(find "$out" -name '*.svg' | wc -l) == $(find "$out" -name '*.png' | wc -l) ]] ||
    fail "not every figure is there as SVG and PNG"
fi

# A full one, over the older one: replaced, and nothing else left behind.
expect 0 results load "$GD_SOURCE_DIR/results/h200.csv"
try report -o "$out" --no-predictions
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
shown "30 trials"
! grep -q 'class="lacks".*Nothing was measured' "$out/index.html" || fail "a full store is said to be empty"
[[ $(grep -c '<section id="\(best\|methods\|store\)"' "$out/index.html") == 3 ]] || fail "the reader's results"
grep -q "NVIDIA H200 (vm, loaded from h200.csv)" "$out/index.html" || fail "nothing says that they were loaded"
check_page "$out/index.html"
check_files "$out"
[[ -s $out/best-settings.csv ]] || fail "no measured table"
# Figure 5 compares only where free-lunch alone was measured too: pythia-1b, not pythia-6.9b, whose
# three trials are all of memory-saving methods. One combination has no interval.
awk -F, 'NR > 1 { at[$1] = $2; n += $3 != "" }
  END { exit !(at["free-lunch alone"] > 1.18 && at["free-lunch alone"] < 1.19 &&
               at["best"] > 1.16 && at["best"] < at["free-lunch alone"] && n == 0) }' \
  "$out/figure-5-measured.csv" || fail "the measured speeds of Figure 5"
grep -qF "Mean over 1 combination of model, device and count in which free-lunch alone was measured too." \
  "$out/index.html" || fail "what Figure 5 is a mean of"
grep -q "NVIDIA H200" "$out/index.html" || fail "the page does not name the device"
[[ $(find "$out" -type f | grep -Evc '\.(html|csv|svg|png|txt)$') == 0 ]] || fail "leftovers"
[[ $(find "$out" -name 'index.html*' | wc -l) == 1 ]] || fail "leftovers of the page"
# What that one has and the next has not goes, and nothing else.
echo mine >"$out/notes.csv"
[[ -e $out/best-settings.csv && ! -e $out/table-1-predicted.csv ]] || fail "files of the older report"
try report -o "$out" --no-store --no-predictions --json
field_is trials 0
[[ ! -e $out/best-settings.csv ]] || fail "a table of the older report is still there"
[[ $(cat "$out/notes.csv") == mine ]] || fail "a file of the user's is gone"

# No gnuplot: the numbers, and one note.
mkdir "$WORK/bin"
(
  PATH=$WORK/bin
  try report -o "$WORK/plain" --no-predictions
  [[ $RC == 0 ]] || fail "$LAST without gnuplot: exit $RC"
  PATH=/usr/bin:/bin
  [[ $(grep -c "gnuplot-nox" "$ERR") == 1 ]] || fail "$LAST: not one note about gnuplot"
  [[ -s $WORK/plain/figure-2-paper.csv ]] || fail "no CSV without gnuplot"
  [[ ! -e $WORK/plain/figure-2-paper.svg ]] || fail "an SVG without gnuplot"
  check_page "$WORK/plain/index.html"
  check_files "$WORK/plain"
)

# Folders that cannot be made or written, and a disk that is full.
echo text >"$WORK/file"
expect 3 report -o "$WORK/file"
said "Not a directory"
expect 3 report -o "$WORK/file/below"
said "$WORK/file"
expect 3 report -o /proc/gpudays
said "/proc/gpudays"
if ((EUID != 0)); then
  mkdir -m 555 "$WORK/locked"
  expect 3 report -o "$WORK/locked/report"
  said "Permission denied"
fi
before=$(cksum <"$out/index.html")
(
  trap '' XFSZ
  ulimit -f 200 # blocks: less than the page has
  expect 3 report -o "$out" --no-predictions
  said "cannot write"
)
[[ $(cksum <"$out/index.html") == "$before" ]] || fail "a report that failed spoilt the older one"
[[ $(find "$out" -type f | grep -Evc '\.(html|csv|svg|png|txt)$') == 0 ]] || fail "leftovers of a failure"

# Answers of a survey stand next to what the paper states, and say that they are invented.
"$GPUDAYS" survey --synthetic 12 -o "$WORK/answers.csv" >/dev/null
expect 0 report -o "$WORK/asked" --no-store --no-predictions --survey "$WORK/answers.csv"
check_page "$WORK/asked/index.html"
check_files "$WORK/asked"
grep -q 'answers.csv, 12 respondents: synthetic answers' "$WORK/asked/index.html" ||
  fail "the page does not say whose answers these are"
[[ -s $WORK/asked/figure-1-answers.csv && -s $WORK/asked/figure-8-uses-answers.csv ]] ||
  fail "figures of the answers are missing"
expect 2 report -o "$WORK/asked" --no-store --no-predictions --survey "$WORK/nosuch.csv"
# A bad one is found before anything is written: no folder, and an older page as it was.
sed '$s/^/no such answer,/' "$WORK/answers.csv" >"$WORK/bad.csv"
expect 2 survey "$WORK/bad.csv"
wrong=$(cat "$ERR")
expect 2 report -o "$WORK/unmade" --no-store --no-predictions --survey "$WORK/bad.csv"
[[ $(cat "$ERR") == "$wrong" ]] || fail "$LAST: another sentence than survey's: $wrong"
[[ ! -e $WORK/unmade ]] || fail "$LAST: made a folder"
before=$(find "$WORK/asked" -type f -exec stat -c '%n %y %s' {} + | sort)
expect 2 report -o "$WORK/asked" --no-store --no-predictions --survey "$WORK/bad.csv"
[[ $(find "$WORK/asked" -type f -exec stat -c '%n %y %s' {} + | sort) == "$before" ]] ||
  fail "$LAST: wrote to the older report"

# A limit that was set is not the machine's: what does not fit in it is left out, and told.
export GPUDAYS_DB=$WORK/limited.db
expect 1 bench pythia-1b --methods free-lunch --device-memory 1GiB
try report -o "$WORK/limited" --no-predictions --json
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
field_is trials 0
grep -qF "1 infeasible trial within a limit that was set" "$WORK/limited/index.html" ||
  fail "the page does not tell what was left out"
