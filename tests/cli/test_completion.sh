#!/usr/bin/env bash
# Completion: the answers of `completion words`, bash's own completion with the script, and the
# scripts of the other shells where these are there. What is offered is always accepted.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
tiny_config "$WORK/tiny"

# same_words WORDS FILE: joined by blanks, a line each, in any order.
same_words() {
  tr ' ' '\n' <<<"$1" | sed '/^$/d' | sort | diff - <(sed '/^$/d' "$2" | sort) >"$ERR" ||
    fail "$LAST: other words than '$1'"
}
# offered KIND WORDS WORD...: the answer to these words.
offered() {
  local kind=$1 words=$2
  shift 2
  expect 0 completion words -- "$@"
  [[ $(head -1 "$OUT") == "$kind" ]] || fail "$LAST: the kind is not '$kind'"
  tail -n +2 "$OUT" | cut -f1 >"$WORK/words"
  same_words "$words" "$WORK/words"
}
# Everything that `help --csv` lists for a command, and nothing else.
options_of() {
  "$GPUDAYS" help --csv | tail -n +2 | awk -F, -v command="$1" '
    { n = split($4, on, " ") }
    { for (i = 1; i <= n; i++) if (on[i] == command) printf "--%s ", $1 }'
}
commands=$("$GPUDAYS" help --json |
  sed -n '/^  "commands": \[$/,/^  \]/s/^ *"name": "\(.*\)",$/\1/p' | tr '\n' ' ')
presets=$("$GPUDAYS" models --csv | tail -n +2 | cut -d, -f1 | tr '\n' ' ')

offered words "$commands" ""
offered words "bench best" be
offered words "$commands" help ""
offered words "bash zsh fish" completion ""
offered words "" completion bash ""
offered words "$(options_of gpudays)" --
for command in $commands; do
  offered words "$(options_of "$command")" "$command" --
done
expect 0 completion words -- bench --
grep -qE $'^--threads\tthreads to run with' "$OUT" || fail "$LAST: an option without its help"
# None that is given, and none behind "--".
offered words "" plan pythia-14m --threads 2 --thread
offered words "--threads" plan pythia-14m --thread
offered files "" plan -- --thread
offered words "" nonsense ""

# Values: fixed sets, models, methods by their parts, files, folders; nothing for a number.
declare -A values=([backend]="cuda cpu ref" [precision]="fp32 bf16 fp16" [optimizer]="adam adamw"
  [micro-batch]="auto pow2 max")
for option in "${!values[@]}"; do
  offered words "${values[$option]}" plan pythia-14m "--$option" ""
  for value in ${values[$option]}; do
    [[ $value != cuda ]] || "$GPUDAYS" doctor | grep '^GPU  *ok' >/dev/null || continue # it needs one
    expect 0 plan "$WORK/tiny" --threads 1 "--$option" "$value"
  done
done
offered words "--backend=cuda --backend=cpu --backend=ref" plan --backend=
offered words "infiniband-hdr" plan --gpu a100 --network infiniband-h
offered words "paper-a100" plan --gpu a100 --machine paper-a1
offered words "us eu" cost --energy ""
offered words "--precision=bf16" plan --precision=b
offered words "ok infeasible failed implausible" results --status ""
offered words "time days model method device status mfu memory" results --sort ""
while read -r value; do
  expect 0 results --sort "$value"
done <"$WORK/words"
offered words "" bench --threads ""
offered words "" bench --time-limit ""
offered words "" results --host ""
offered files "" bench --store ""
offered folders "" verify ""
offered words "" verify one ""
offered words "save load remove" results ""
offered words "learn load list" calibrate ""
offered files "" results save ""
offered files "epyc h200" results load ""
offered words "" results remove ""
offered files "$presets" bench ""
offered files "$presets" bench pythia-14m --threads 2 ""
offered files "pythia-70m" plan pythia-7
offered "words open" "mamba,pythia-70m" bench --models mamba,pythia-7
offered "words open" "all naive free-lunch compile kernels tf32 ckpt zero1 zero2 zero3 fsdp2 fsdp3" \
  bench --methods ""
offered "words open" "--methods=naive,ckpt+zero1 --methods=naive,ckpt+zero2 --methods=naive,ckpt+zero3" \
  bench --methods=naive,ckpt+z
offered "words open" "kernels+zero1+compile kernels+zero1+free-lunch kernels+zero1+tf32 kernels+zero1+ckpt kernels+zero1+offload" \
  plan --methods kernels+zero1+
offered "words open" "free-lunch+ckpt" results --method free-lunch+c
offered "words open" "kernels,accumulate" plan --without kernels,a
mkdir -p "$XDG_CONFIG_HOME/gpudays/models"
cp "$GD_SOURCE_DIR/data/models/pythia-14m.json" "$XDG_CONFIG_HOME/gpudays/models/our-own.json"
offered files "our-own" bench our

expect 2 completion tcsh
said 'bash, zsh or fish, not for "tcsh"'
expect 2 completion
expect 2 completion bash zsh
expect 0 completion bash --json
field_is shell bash

# --- bash itself -----------------------------------------------------------------------------

# completed WORDS WORD...: what bash offers with the cursor behind the last word.
completed() {
  local words=$1
  shift
  LAST="bash completion of gpudays $*"
  # shellcheck disable=SC2016 # expanded there
  (cd "$WORK/files" && PATH=$(dirname "$GPUDAYS"):$PATH bash --norc --noprofile -eu -c '
    source <(gpudays completion bash)
    complete -p gpudays >/dev/null
    COMP_WORDS=(gpudays "$@") COMP_CWORD=$#
    _gpudays
    printf "%s\n" "${COMPREPLY[@]}"' bash "$@") >"$OUT" 2>"$ERR" || fail "$LAST: an error"
  [[ ! -s $ERR ]] || fail "$LAST: something on stderr"
  same_words "$words" "$OUT"
}
mkdir -p "$WORK/files/pythia-7-folder"
touch "$WORK/files/pythia-7-notes" "$WORK/files/other"
completed "bench best" be
completed "" nonsense be
completed "--device-memory" bench pythia-14m --dev
completed "cuda cpu" bench pythia-14m --backend c
completed "cuda cpu ref" bench pythia-14m --backend = # as bash cuts the line
completed "cuda cpu" bench pythia-14m --backend = c
completed "pythia-70m" bench --threads = 2 pythia-7 --models pythia-7
completed "pythia-70m pythia-7-folder pythia-7-notes" bench --threads = 2 pythia-7
completed "pythia-7-folder" verify ""
completed "other" results save o
completed "other" bench --store = o

# --- the other shells ------------------------------------------------------------------------

for shell in zsh fish; do
  expect 0 completion "$shell"
  if ! command -v "$shell" >/dev/null; then
    echo "skipped in part: no $shell here, its script is not checked"
    continue
  fi
  "$shell" -n "$OUT" 2>"$ERR" || fail "$shell does not read its script"
done
if command -v fish >/dev/null; then
  "$GPUDAYS" completion fish >"$WORK/gpudays.fish"
  PATH=$(dirname "$GPUDAYS"):$PATH HOME=$WORK fish --no-config -c "source $WORK/gpudays.fish
    complete -C 'gpudays bench --backend '; complete -C 'gpudays be'; complete -C 'gpudays x --backend='" \
    >"$OUT" 2>"$ERR" || fail "fish completes nothing"
  cut -f1 "$OUT" >"$WORK/words"
  same_words "cuda cpu ref bench best" "$WORK/words"
fi
