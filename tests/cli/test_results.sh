#!/usr/bin/env bash
# `gpudays results` and `gpudays best` on a file of saved trials, and on databases that are no good.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
saved=$(cd "$(dirname "$0")" && pwd)/results.jsonl

# rows: how many rows the table of the last run has.
rows() {
  [[ $(($(wc -l <"$OUT") - 1)) == "$1" ]] || fail "$LAST: not $1 rows"
}
# cells N: column N of the table (no cell before it is empty or has two blanks), joined by blanks.
cells() {
  tail -n +2 "$OUT" | sed -E 's/ {2,}/\t/g' | cut -f"$1" | paste -sd' '
}

# The saved trials are as old as the program: its fields, its FLOPs, its recipes.
"$GD_SOURCE_DIR/tools/make_fixtures" "$WORK/made"
cmp "$saved" "$WORK/made" >"$OUT" || fail "$saved is older than the program; run tools/make_fixtures"

# Nothing yet: an answer, and a database in folders that are made on the way.
expect 0 results
shown "no finished trials"
[[ -f $XDG_DATA_HOME/gpudays/results.db ]] || fail "no database was made"
expect 0 results --json
field_is best null
expect 0 results --pending
shown "no pending trials"
expect 1 best pythia-14m
said "gpudays bench pythia-14m"

# Load twice: nothing is doubled; what was superseded is history.
expect 0 results load "$saved"
shown "loaded 7 trials"
expect 0 results load "$saved" --json
field_is added 0
field_is known 7
expect 0 results
rows 6
shown "FREE LUNCH"
shown "zero2"
expect 0 results --history
rows 7

# What is saved is what was loaded, byte for byte: no number loses a digit on the way.
expect 0 results save "$WORK/again"
shown "saved 7 trials"
cmp "$saved" "$WORK/again" >"$OUT" || fail "what was saved differs from what was loaded"

# Filters, alone and together.
expect 0 results --model pythia-12b
rows 1
shown infeasible
expect 0 results --model 'pythia-1?m'
rows 5
expect 0 results --model 'pythia-*' --device a100 --status ok
rows 1
expect 0 results --method ckpt+free-lunch
rows 1
expect 0 results --host lab2
rows 2
expect 0 results --ranks 4
rows 2
expect 0 results --since 2024-05-06
rows 2
expect 0 results --since 7d
shown "no finished trials"
expect 0 results --model nope
shown "no finished trials"

# Sorting.
expect 0 results --sort days --status ok
[[ $(cells 10) == "0.01000 1.625 39.75 50.12 80.50" ]] || fail "not by days: $(cells 10)"
expect 0 results --sort days --status ok --reverse --limit 2
[[ $(cells 10) == "80.50 50.12" ]] || fail "not by days from the end: $(cells 10)"
expect 0 results --sort model
[[ $(cells 1 | cut -d' ' -f1,2) == "pythia-12b pythia-14m" ]] || fail "not by model"

# Totals.
expect 0 results --total
shown "6 trials, 2 models, 2 devices: 5 ok, 1 infeasible"
expect 0 results --total --history --model pythia-14m --json
field_is trials 6
field_is ok 6
field_above measured_hours 0
expect 0 results --total --csv
[[ $(wc -l <"$OUT") == 2 ]] || fail "a total is one row"

# Best: of this recipe, not of the short one; the newest measurement, not the one it superseded.
expect 0 best pythia-14m
rows 2
[[ $(cells 10) == "1.625 39.75" ]] || fail "not the best: $(cells 10)"
expect 0 best pythia-14m --device epyc --json
field_is days 39.75
[[ $(grep -c '"days":' "$OUT") == 2 ]] || fail "one trial, and it is the best"
expect 1 best pythia-14m --steps 7
said "with others"
expect 1 best pythia-12b
expect 2 best
expect 2 best no-such-model

# For programs: exact numbers, provenance.
expect 0 results --model pythia-12b --json
field_is status infeasible
field_is host lab2
field_is time 2024-05-05T10:00:00.000Z
field_is best null
expect 0 results --csv
[[ $(wc -l <"$OUT") == 7 ]] || fail "CSV has a header and 6 rows"
shown ",provenance.host,"

# What cannot be meant.
for arguments in "--sort colour" "--status good" "--status planned" "--since yesterday" \
  "--since 2024-13-01" "--method nope" "--ranks 0" "--limit 0" "--flavour 3" "save" "load" \
  "keep x" "save x y" "--pending --status ok" "save x --model y" "--json --csv"; do
  # shellcheck disable=SC2086
  expect 2 results $arguments
  silent
done
expect 2 results load "$WORK/none"
said "$WORK/none"
echo '{"format":"gpudays results","version":1}' >"$WORK/bad"
echo '{"key":"x"}' >>"$WORK/bad"
expect 2 results load "$WORK/bad"
said "line 2"
expect 3 results save "$WORK/no/such/folder"

# Databases that are no good are named and stay as they are.
echo "my shopping list" >"$WORK/list"
cp "$WORK/list" "$WORK/list.copy"
GPUDAYS_DB=$WORK/list expect 3 results
said "$WORK/list is damaged"
cmp -s "$WORK/list" "$WORK/list.copy" || fail "the damaged file was changed"
GPUDAYS_DB=/proc/none/results.db expect 3 results
said "GPUDAYS_DB"
GPUDAYS_DB=$WORK expect 3 results
said "is no file"
