#!/usr/bin/env bash
# The manual page that the program writes: groff has nothing to say about it, every option is there
# with its argument, help line and commands, every command, every name of the JSON output, every
# variable of the environment; and back.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
page=$WORK/gpudays.1
expect 0 help --man
cp "$OUT" "$page"
cmp "$page" "$(dirname "$GPUDAYS")/gpudays.1" 2>"$ERR" || fail "the page that is installed is another"
if grep -n '@' "$page" >"$OUT"; then
  fail "a mark of the page's source is left"
fi
if command -v groff >/dev/null; then
  groff -man -ww -z -Tutf8 "$page" >"$OUT" 2>"$ERR" || fail "groff does not read the page"
  [[ ! -s $ERR ]] || fail "groff warns"
  groff -man -Tascii -P-cbou -rHY=0 "$page" | tr -s ' \n' ' ' >"$OUT"
  shown "--micro-batch SIZE auto (default), pow2 or max of what fits; or a number. pow2 is the"
else
  echo "skipped in part: no groff here, the page is not rendered"
fi

# One line an option: name|letter|argument|help|commands. In the CSV only help is ever quoted, and
# has an apostrophe where it begins as a formula does.
"$GPUDAYS" help --csv | tail -n +2 | sed -e 's/""/"/g' -e "s/,'-/,-/" |
  sed -E 's/^([^,]*),([^,]*),([^,]*),([^,]*),"?(.*[^"])"?$/\1|\2|\3|\5|\4/' >"$WORK/program"
[[ -s $WORK/program ]] || fail "help --csv is empty"

awk '
  function flush() {
    if (name != "")
      print name "|" letter "|" argument "|" help "|" commands
    name = letter = argument = help = commands = ""
  }
  { gsub(/\\-/, "-") }
  /^\.SH/ { flush(); inside = $2 == "OPTIONS" }
  !inside { next }
  /^\.TP/ { flush(); head = 1; next }
  head {
    head = 0
    line = $0
    gsub(/\\f[IR]/, "", line)
    if (match(line, /-[a-zA-Z] ", "/))
      letter = substr(line, RSTART + 1, 1)
    match(line, /--[a-z0-9-]+/)
    name = substr(line, RSTART + 2, RLENGTH - 2)
    if (match(line, / " \[?[A-Z]+\]?"$/))
      argument = substr(line, RSTART + 3, RLENGTH - 4)
    next
  }
  name != "" && help == "" { help = $0; sub(/\.$/, "", help); next }
  /^Commands: / { commands = $0; sub(/^Commands: /, "", commands); gsub(/[,.]/, "", commands) }
  END { flush() }
' "$page" >"$WORK/manual"
diff "$WORK/program" "$WORK/manual" >"$OUT" || fail "options of the program (<) and the manual (>)"
[[ $(wc -l <"$WORK/program") -ge 60 ]] || fail "there are hardly any options"

# Commands: name, arguments, help line.
"$GPUDAYS" help --json | sed -n '/^  "commands": \[$/,/^  \]/p' |
  sed -n 's/^ *"\(name\|arguments\|help\)": "\(.*\)",\{0,1\}$/\2/p' | paste -d'|' - - - >"$WORK/program"
awk '
  { gsub(/\\-/, "-") }
  /^\.SH/ { inside = $2 == "COMMANDS" }
  inside && /^\.TP/ { head = 1; next }
  inside && head {
    head = 0
    name = $2
    argument = $0
    sub(/^\.BR? [a-z]+ ?/, "", argument)
    gsub(/\\f[IR]|"/, "", argument)
    sub(/^ /, "", argument)
    first = 1
    next
  }
  inside && first { first = 0; print name "|" argument "|" $0 }
' "$page" >"$WORK/manual"
while IFS='|' read -r name arguments help; do
  grep -qF -- "$name|$arguments|$help" "$WORK/manual" || fail "manual lacks $name|$arguments|$help"
done <"$WORK/program"
[[ $(wc -l <"$WORK/program") == $(wc -l <"$WORK/manual") ]] || fail "the manual has more commands"
[[ $(wc -l <"$WORK/manual") -ge 15 ]] || fail "there are hardly any commands"

# Names in JSON. The bench has a smaller last micro-batch and two models, so all its names are there.
tiny_config "$WORK/tiny"
tiny_config "$WORK/other"
sample=(--seq 8 --batch 3 --steps 10 --micro-batch 2 --threads 1 --sample-seconds 0.1 --methods naive)
{
  "$GPUDAYS" models --json
  "$GPUDAYS" models --check pythia-14m --json
  "$GPUDAYS" plan --params 1B --gpu a100 --json
  "$GPUDAYS" gpus --json
  "$GPUDAYS" gpus --check "$GD_SOURCE_DIR/data/gpus/a100.json" --json
  "$GPUDAYS" estimate --json
  "$GPUDAYS" plan "$WORK/tiny" --json --threads 1
  "$GPUDAYS" plan pythia-14m --gpu 4xa100 --methods fsdp3 --json
  "$GPUDAYS" plan pythia-160m --gpu a100 --stack paper --json
  "$GPUDAYS" plan pythia-160m --gpu a100 --stack pytorch --json
  "$GPUDAYS" why gpt2 --gpu a100-40gb --log "$GD_SOURCE_DIR/tests/cli/why/attention_scores.log" --json
  "$GPUDAYS" fit --json
  "$GPUDAYS" bench "$WORK/tiny" "$WORK/other" --json "${sample[@]}"
  "$GPUDAYS" results load "$(dirname "$0")/results.jsonl" --json
  "$GPUDAYS" results save "$WORK/saved" --json
  "$GPUDAYS" results --json
  "$GPUDAYS" results --total --json
  "$GPUDAYS" best pythia-14m --json
  "$GPUDAYS" export pythia-14m --format hf --json
  "$GPUDAYS" results remove --model pythia-14m --json 2>/dev/null || [[ $? == 2 ]]
  "$GPUDAYS" survey --questions --json
  "$GPUDAYS" tokens "$GD_SOURCE_DIR/README.md" -o "$WORK/tokens" --json
  "$GPUDAYS" tokens --decode "$WORK/tokens" --count 9 --json
  "$GPUDAYS" train "$GD_SOURCE_DIR/examples/tiny" --data "$WORK/tokens" --tokenizer gpudays-4k --seq 16 --batch 1 \
    --steps 1 --warmup 0 --threads 1 -o "$WORK/trained" --json
  "$GPUDAYS" train "$WORK/trained" --dry-run --threads 1 --json
  "$GPUDAYS" sample "$WORK/trained" --length 1 --threads 1 --json
  "$GPUDAYS" evaluate "$WORK/trained" --data "$WORK/tokens" --samples 1 --threads 1 --json
  "$GPUDAYS" survey --synthetic 9 --json
  "$GPUDAYS" survey --synthetic 9 -o "$WORK/answers.csv" --quiet >/dev/null
  "$GPUDAYS" survey "$WORK/answers.csv" --json
  sed 's/^yes/maybe/' "$WORK/answers.csv" >"$WORK/refused.csv"
  "$GPUDAYS" survey "$WORK/refused.csv" --json 2>/dev/null || [[ $? == 2 ]]
  "$GPUDAYS" cost pythia-1b --times paper --budget 5000 --days 30 --text --json
  "$GPUDAYS" cost pythia-1b --times paper --machine server-8x-a100 --wall-limit 24h --queue-wait 6h --json
  "$GPUDAYS" cost pythia-160m --gpu 4xa100 --budget 600 --json 2>/dev/null || [[ $? == 1 ]] # at risk
  "$GPUDAYS" verify "$GD_SOURCE_DIR/tests/reference/neox-tied" --json --threads 1
  "$GPUDAYS" report -o "$WORK/report" --json
  "$GPUDAYS" doctor --json --threads 1
  "$GPUDAYS" completion bash --json
  printf '\1\0%.0s' {1..200} >"$WORK/ids"
  "$GPUDAYS" train "$WORK/tiny" --data "$WORK/ids" --seq 8 --batch 1 --steps 9 --threads 1 -o "$WORK/run" >/dev/null
  "$GPUDAYS" runs "$WORK/run" --json
  "$GPUDAYS" accuracy --json # of the trials and of the run that are in the database now
  "$GPUDAYS" accuracy add --template | sed 's/,,,,,tokens/,,,,9e4,tokens/' >"$WORK/rates.csv"
  XDG_DATA_HOME=$WORK/added "$GPUDAYS" accuracy add "$WORK/rates.csv" --json
} | grep -oE '^ *"[a-z0-9_]+":' | tr -d '": ' | sort -u >"$WORK/program"
awk '/^\.SH/ { inside = $2 == "JSON" } inside && /^\.IR? /' "$page" | tr ' ' '\n' |
  grep -E '^[a-z][a-z0-9_]*$' | sort -u >"$WORK/manual"
# Inside of objects that the manual describes by their own command or by words.
printf '%s\n' gpudays commit fp32 bf16 tiny other >>"$WORK/manual"
sort -u -o "$WORK/manual" "$WORK/manual"
diff "$WORK/program" "$WORK/manual" >"$OUT" || fail "JSON names of the program (<) and the manual (>)"

# Variables of our own: the rows of the table, but for those of tests and of gpudays itself.
sed -nE 's/^GD_SWITCH\(([A-Z0-9_]+), (TUNING|PLACE),.*/GPUDAYS_\1/p' "$GD_SOURCE_DIR/src/base/switches.def" |
  sort -u >"$WORK/program"
[[ -s $WORK/program ]] || fail "no variable in src/base/switches.def"
awk '/^\.SH/ { inside = $2 == "ENVIRONMENT" } inside && /^\.BR GPUDAYS/ { print $2 }' "$page" |
  sort -u >"$WORK/manual"
diff "$WORK/program" "$WORK/manual" >"$OUT" || fail "variables of the table (<) and the manual (>)"
