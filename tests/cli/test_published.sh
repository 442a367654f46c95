#!/usr/bin/env bash
# Published rates: what `accuracy --json` says of each, and a lab's own by `accuracy add`.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
rows=$GD_SOURCE_DIR/data/published/rows.csv

# Every row is there once, with the fit to all and five without something.
expect 0 accuracy --store "$WORK/none.db" --json
awk '/^  "published": [{]/ { on = 1 } /^  [}]/ { on = 0 } on' "$OUT" >"$WORK/published"
count=$(($(wc -l <"$rows") - 1))
for key in id source stack gpu model published; do
  [[ $(grep -c "^        \"$key\": " "$WORK/published") == "$count" ]] || fail "not $count rows with $key"
done
[[ $(grep -c '"left_out": ' "$WORK/published") == $((5 * count)) ]] || fail "not five folds a row"
# The scores follow from the rows: how many, the median, the worst; of rows and of the folds without the GPU.
scores() { # scores NAME: of the object "NAME_left_out"
  awk -v want="\"$1_left_out\":" '$1 == want { on = 1 } on && /compared|median|worst/ { gsub(/,/, ""); print $2 }
    on && /}/ { exit }' "$WORK/published"
}
computed() { # computed NAME: the same from the rows
  awk -v want="$1" '/^        "id"/ { what = "nothing" } /"left_out"/ { gsub(/[",]/, ""); what = $2 }
    /"error": / && what == want && $2 != "null," { print $2 < 0 ? -$2 : $2 + 0 }' "$WORK/published" | sort -g |
    awk '{ e[NR] = $1 } END { print NR; printf "%.12g\n%.12g\n", e[int((NR + 1) / 2)], e[NR] }'
}
for what in nothing gpu source_and_stack; do
  paste <(scores "$what") <(computed "$what") >"$WORK/both"
  awk 'function off(a, b) { return a > b ? a - b : b - a } off($1, $2) > 1e-5 * $1 { bad = 1 } END { exit bad || NR != 3 }' \
    "$WORK/both" || fail "$what: scores $(tr '\n' ' ' <"$WORK/both")"
done
# within is what low, high and published say; an interval of 90 % holds most of what it was not fitted to.
awk '/"published": [0-9]/ { p = $2 + 0 } /"low"/ { l = $2 + 0; some = $2 != "null," } /"high"/ { h = $2 + 0 }
  /"within"/ { want = l <= p && p <= h ? "true" : "false"; n += some; held += want == "true"
    if (some && $2 !~ want) bad = 1 } END { exit bad || !(n > 1000 && held > 0.7 * n) }' "$WORK/published" ||
  fail "within is not what the interval says"

# --- rates of one's own ------------------------------------------------------------------------

cd "$WORK" || exit
kept=$XDG_DATA_HOME/gpudays/published
head=$(head -1 "$rows")
good='ours-1,our cluster,pytorch,l40s,1,gpt2,1024,12,480,free-lunch,bf16,,,,120000,tokens/s,'
add() { # add CODE ROW...: of a file with these rows
  local code=$1
  shift
  printf '%s\n' "$head" "$@" >own.csv
  expect "$code" accuracy add own.csv
}
add 0 "$good"
shown "1 row is kept in $kept/own.csv"
shown "TIME OFF BY"
cmp -s own.csv "$kept/own.csv" || fail "the file was not kept"
expect 0 fit --json
field_is rows $((count + 1))
# Again, and as programs read it; another file has no row of the same name.
expect 0 accuracy add own.csv --json
field_is kept "$kept/own.csv"
field_is stack pytorch-compile
field_is published 120000.0
[[ $(field error) == -0.0* ]] || fail "an error of $(field error)"
expect 0 accuracy add own.csv --csv
[[ $(wc -l <"$OUT") == 2 ]] || fail "not a header and a row"
# What can be and yet is far off is kept, with a word.
cp own.csv good.csv
add 0 "${good/120000/400000}"
tr -s ' \n' ' ' <"$OUT" | grep -F "note: ours-1 is off by more than any interval (x0." >/dev/null || fail "no word on a rate three times too high"
add 0 "$good"
! grep "^note" "$OUT" || fail "a note on a rate that is near"
# Rows of another file by that name would take the place of these.
mkdir elsewhere
sed 's/ours-1/theirs-1/' own.csv >elsewhere/own.csv
expect 2 accuracy add elsewhere/own.csv
said "$kept/own.csv has the row ours-1, which would be lost"
grep -q ours-1 "$kept/own.csv" || fail "the row that was kept is gone"
cp own.csv other.csv
expect 2 accuracy add other.csv
said 'other.csv, line 2, column "id": "ours-1"; expected an id that no other row has'
# What is wrong is said with its line, nothing is shown, and what was kept stays.
cp "$kept/own.csv" before.csv
second=${good/ours-1/ours-2}
refused() { # refused TEXT ROW...
  local text=$1
  shift
  add 2 "$@"
  silent
  said "$text"
  cmp -s before.csv "$kept/own.csv" || fail "$LAST: the kept file has changed"
}
refused 'own.csv, line 3, column "id": "ours-1"; expected an id that no other row has' "$good" "$good"
refused 'own.csv, line 2, column "id": "20"' "$(sed -n 2p "$rows")"
refused 'own.csv, line 2, column "id": ""' "${good/ours-1/}"
refused 'own.csv, line 3: unknown GPU "l40x"; did you mean l40' "$good" "${second/l40s/l40x}"
refused 'own.csv, line 2: unknown model "gpt9"; did you mean gpt2' "${good/gpt2/gpt9}"
refused 'own.csv, line 2: "my/model" is a path from the current folder' "${good/gpt2/my/model}"
refused 'own.csv, line 2: unknown part "flash"' "${good/free-lunch/flash}"
refused 'line 2, column "stack": "jax"; expected one of composer, deepspeed' "${good/,pytorch,/,jax,}"
refused 'line 2, column "stack": "own"' "${good/,pytorch,/,own,}"
refused 'line 2, column "per_gpu": "-5"; expected a number' "${good/120000/-5}"
refused 'line 2, column "per_gpu": "fast"' "${good/120000/fast}"
refused 'line 2, column "count": "0"' "${good/l40s,1,/l40s,0,}"
refused 'line 2, column "precision": "bf17"; expected fp32, bf16 or fp16' "${good/bf16/bf17}"
refused 'line 2, column "unit": "images/s"; expected tokens/s' "${good/tokens/images}"
refused 'line 2, column "seq": ""; expected the tokens of a sequence' "${good/,1024,/,,}"
refused 'line 2, column "seq": "1024"; expected nothing' "${good/gpt2/vit}"
refused 'line 2, column "batch": "8"; expected the samples of a step on all GPUs' "${good/,480,/,8,}"
# What no computer does: rates above the peak, a precision that the GPU has not, more than its memory.
refused 'line 2, column "per_gpu": "1e9"; expected at most 448,399 tokens/s a GPU, which is gpt2 on the NVIDIA L40S 48 GB at 100 % of its bf16 peak' "${good/120000/1e9}"
refused 'line 2, column "per_gpu": "0.001"; expected at least 4' "${good/120000/0.001}"
refused 'line 2, column "per_gpu": "460000"; expected at most 448' "${good/120000/460000}"
refused 'expected at most 975.6 images/s a GPU, which is vit on the' "ours-1,us,pytorch,l40s,1,vit,,12,480,free-lunch,bf16,,,,1200,images/s,"
refused 'line 2, column "precision": "bf16"; expected a precision of the NVIDIA V100 SXM2 16 GB: fp32 or fp16' "${good/l40s/v100}"
refused 'line 3, column "precision": "bf16"; expected a precision of the NVIDIA T4' "$good" "${second/l40s/t4}"
refused 'line 2, column "micro_batch": "1"; expected one that fits: pythia-6.9b needs about ' "${good/gpt2,1024,12/pythia-6.9b,1024,1}"
refused 'line 2, column "batch": "480"; expected the samples of a step on all GPUs' "${good/l40s,1,/l40s,64,}"
refused 'line 2, column "batch": "481"; expected samples that can be shared out evenly' \
  "${good/l40s,1,gpt2,1024,12,480/l40s,2,gpt2,1024,12,481}"
refused 'line 2, column "count": "1.7"; expected a whole number' "${good/l40s,1,/l40s,1.7,}"
refused 'line 2, column "micro_batch": "12.5"; expected a whole number' "${good/,12,480/,12.5,480}"
refused 'line 2, column "seq": "1024.5"; expected a whole number' "${good/,1024,/,1024.5,}"
refused 'line 2, column "attention": "xformers"; expected scores where' "${good/bf16,,/bf16,xformers,}"
refused 'own.csv, line 2: 2 cells; the header has 17' 'ours-1,x'
refused 'own.csv has no rows'
: >own.csv
expect 2 accuracy add own.csv
said "own.csv is empty"
printf '%s\n%s\n' "${head/,stack/}" "${good/,pytorch/}" >own.csv
expect 2 accuracy add own.csv
said "own.csv has no column 'stack'; 'gpudays accuracy add --template' prints them"
# What a spreadsheet writes: CRLF, a byte order mark; the columns that say nothing left out.
printf '\xef\xbb\xbf%s\r\n%s\r\n' "$head" "$good" >own.csv
expect 0 accuracy add own.csv
printf '%s\n%s\n' id,source,stack,gpu,count,model,seq,micro_batch,batch,method,precision,per_gpu \
  ours-1,us,pytorch,l40s,1,gpt2,1024,12,480,free-lunch,bf16,120000 >own.csv
expect 0 accuracy add own.csv
# The template is a file that wants nothing but a rate.
expect 0 accuracy add --template
cp "$OUT" template.csv
[[ $(head -1 template.csv) == "$head" ]] || fail "the template has other columns"
expect 2 accuracy add template.csv
said 'template.csv, line 2, column "per_gpu": ""; expected a number'
sed -i '2s|,,,,,tokens|,,,,120000,tokens|' template.csv
expect 0 accuracy add template.csv
# Not such a file.
for wrong in "add" "add own.csv other.csv" "add own.csv --template"; do
  # shellcheck disable=SC2086
  expect 2 accuracy $wrong
  said "takes one file of published rates (CSV), or --template"
done
expect 2 accuracy --template
said "gpudays accuracy add --template"
sed 's/ours-1/ours-4/' own.csv >own.txt
expect 2 accuracy add own.txt
silent
said "give it one that ends in .csv"
expect 2 accuracy add "$WORK"
said "is a folder; name a CSV file"
expect 2 accuracy add "$WORK/not-there.csv"
said "No such file"
# Where it cannot be kept: no folder can be made, the disk is full.
touch file
sed 's/ours-1/ours-4/' own.csv >new.csv
XDG_DATA_HOME=$WORK/file expect 3 accuracy add new.csv
silent
cat >full.sh <<'END'
mount -t tmpfs -o size=4k none "$1" && mkdir -p "$1/gpudays/published" && head -c 4096 /dev/zero >"$1/gpudays/rest"
XDG_DATA_HOME=$1 "$2" accuracy add new.csv
code=$?
ls "$1/gpudays/published"
exit $code
END
full() { # on a file system of one page, in a name space of its own
  unshare --mount --map-root-user sh full.sh "$WORK/full" "$GPUDAYS" >"$OUT" 2>"$ERR"
}
mkdir full
if unshare --mount --map-root-user mount -t tmpfs none "$WORK/full" 2>/dev/null; then
  LAST="accuracy add on a full disk" RC=0
  full || RC=$?
  [[ $RC == 3 ]] || fail "$LAST: exit $RC"
  silent
  said "No space left on device"
else
  echo "no file system of one's own here: a full disk is not tried"
fi
# A file that became wrong afterwards is named by every command that reads it.
sed -i 's/,l40s,/,l40x,/' "$kept/own.csv"
expect 2 fit
said 'own.csv, line 2: unknown GPU "l40x"'
