#!/usr/bin/env bash
# What can be typed and what cannot: help fits a terminal, errors are one sentence with a remedy.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

commands=$("$GPUDAYS" help --json | sed -n '/^  "commands": \[$/,/^  \]/s/^ *"name": "\(.*\)",$/\1/p')
[[ $(wc -w <<<"$commands") -ge 6 ]] || fail "help --json does not list the commands"

# A name stands for one option: the first row that has it is the one that is found.
twice=$("$GPUDAYS" help --csv | tail -n +2 | cut -d, -f1 | sort | uniq -d)
[[ -z $twice ]] || fail "two options are called $twice"

# A small terminal has 24 lines; plan, cost, results, bench and train have more options than that, and the list of
# commands is in groups.
fits_screen() {
  local most=24
  [[ $* != *plan* && $* != *results* && $* != *cost* ]] || most=32
  [[ $* != *bench* ]] || most=44
  [[ $* != *train* ]] || most=80
  [[ $* != help && $* != --help ]] || most=44
  expect 0 "$@"
  [[ $(wc -l <"$OUT") -le $most ]] || fail "$LAST: more than $most lines"
  awk 'length > 80 { exit 1 }' "$OUT" || fail "$LAST: more than 80 columns"
}
fits_screen help
fits_screen --help
for command in $commands; do
  fits_screen help "$command"
  cp "$OUT" "$WORK/help"
  fits_screen "$command" --help
  cmp -s "$WORK/help" "$OUT" || fail "help $command and $command --help differ"
  shown "Usage: gpudays $command"
done
# Options of train are in groups, each in one; none is left over.
expect 0 train --help
sed -n '/^More$/,$p' "$OUT" | grep -- '^ *--' >"$WORK/left" && fail "$LAST: $(cat "$WORK/left") in no group"
[[ $(grep -oE -- '^ *(-o, )?--[a-z-]+' "$OUT" | sort | uniq -d) == "" ]] || fail "$LAST: an option is in two groups"
try -h
shown "Usage: gpudays COMMAND"

expect 0 --version
grep -qE '^gpudays [0-9]+\.[0-9]+\.[0-9]+ \(.+\)$' "$OUT" || fail "--version says something else"
expect 0 -V --json
[[ -n $(field gpudays) ]] || fail "no version in the JSON"

# usage CODE TEXT ARGUMENT...: nothing on stdout, the sentence has the text.
usage() {
  local text=$1
  shift
  expect 2 "$@"
  said "$text"
  silent
}
usage "no command was given"
usage "did you mean bench?" benhc
usage "did you mean models?" model
usage 'unknown command "xyzzy"' xyzzy
usage 'unknown command "foo"' help foo
usage "did you mean --threads?" bench pythia-14m --thread 2
usage "did you mean --device-memory?" plan pythia-14m --device 2GiB
usage "did you mean --micro-batch?" plan pythia-14m --microbatch=2
usage 'unknown option "-x"' plan pythia-14m -x
usage "it belongs to plan" bench pythia-14m --explain
usage "it belongs to bench" plan pythia-14m --seed 1
usage "it stands alone" models --version
usage "--json takes no value" models --json=yes
usage "--threads needs a value" bench pythia-14m --threads
usage "bench needs an argument" bench
usage "verify needs an argument" verify
usage 'unexpected argument "two"' verify one two
usage "exclude each other" models --json --csv
usage "--explain is text" plan pythia-14m --explain --json
# The word after --explain is a pass or a model; what is neither is told of the passes.
usage '"recompte" after --explain is neither a pass nor a model; passes are trim, precision, kernels, recompute,' \
  plan pythia-14m --explain recompte
usage "is neither a pass nor a model" plan --explain recompte pythia-14m
usage 'unknown model "recompte"' plan recompte --explain pythia-14m
usage '--explain is "recompte"; expected passes, or one of trim,' plan pythia-14m --explain=recompte
# The paper's software has no use for what the engine is told.
for option in "--without trim" "--precision fp32" "--threads 2" --explain; do
  # shellcheck disable=SC2086 # a word each
  usage "leave out ${option%% *}" plan pythia-160m --stack paper --gpu a100 $option
done
for option in "--without trim" --explain; do
  # shellcheck disable=SC2086 # a word each
  usage "leave out ${option%% *}" plan pythia-160m --stack composer --gpu a100 $option
done
usage 'expected one of composer, deepspeed, llmq, megatron, own, paper, pytorch-compile' \
  plan pythia-160m --stack jax --gpu a100
usage "--stack megatron predicts for given GPUs" plan pythia-160m --stack megatron
usage '--threads is "x"' bench pythia-14m --threads x
usage '--threads is "0"' bench pythia-14m --threads=0
usage '--threads is "2.5"' bench pythia-14m --threads=2.5
usage '--seq is "1"' plan pythia-14m --seq 1
usage '--batch is "99999999999999999999"' plan pythia-14m --batch 99999999999999999999
usage '--steps is ""' plan pythia-14m --steps ''
usage '--device-memory is "0GiB"' plan pythia-14m --device-memory 0GiB
# A bare number could be anything: sizes and times ask for their unit.
usage '--device-memory is "0"; expected a size above 0' plan pythia-14m --device-memory 0
usage '--tokens is 20, less than the 2,098,176 of one step of pythia-14m; did you mean 20B?' \
  plan pythia-14m --tokens 20
usage 'less than the 2,098,176 of one step' cost pythia-14m --tokens 1M
usage '--device-memory is "24", without a unit; write 24GiB, 24MiB or 24B (bytes)' \
  plan pythia-14m --device-memory 24
usage '--host-memory is "1e9", without a unit' plan pythia-14m --host-memory 1e9
usage '--trial-timeout is "30", without a unit; write 30s, 30m (minutes) or 30h' \
  bench pythia-14m --trial-timeout 30
usage '--time-limit is "1.5", without a unit' bench pythia-14m --time-limit 1.5
usage '--job-time is "3600", without a unit' export pythia-14m --job-time 3600
usage '--device-memory is "2 lots"' plan pythia-14m --device-memory '2 lots'
usage '--host-memory is "-1GiB"' plan pythia-14m --host-memory -1GiB
usage '--micro-batch is "half"' plan pythia-14m --micro-batch half
usage "outside 1..1024" plan pythia-14m --micro-batch 1025
usage '--precision is "int8"' plan pythia-14m --precision int8
usage '--optimizer is "sgd"' plan pythia-14m --optimizer sgd
usage '--backend is "gpu"; expected cpu, cuda or ref' plan pythia-14m --backend gpu
usage '--backend is "abacus"' plan pythia-14m --backend abacus
usage '--sample-seconds is "nan"' bench pythia-14m --sample-seconds nan
usage '--sample-seconds is "0"' bench pythia-14m --sample-seconds 0
usage '"free-bus"' plan pythia-14m --methods free-bus
usage 'two shardings' plan pythia-14m --methods free-lunch+zero1+zero2
usage 'shards nothing' bench pythia-14m --methods free-lunch+offload
usage 'naive and not naive' bench pythia-14m --methods naive+free-lunch
usage 'did you mean pythia-160m' plan pythia160m
usage 'did you mean pythia-14m' bench pythia-14m pytia-14m
# Nothing is no name, no file and no number, wherever it stands.
for command in models gpus estimate plan bench best "export --format hf" survey cost verify accuracy \
  help "results save" "results load"; do
  # shellcheck disable=SC2086 # a word each
  usage "an argument is empty: gpudays ${command%% *}" $command ""
done
usage "an argument is empty" plan pythia-14m ""
usage 'unexpected argument ""' doctor ""
for option in methods gpu machine network without store; do
  usage "--$option is \"\"; expected " bench pythia-14m "--$option" ""
done
for option in rent energy machine store; do
  usage "--$option is \"\"; expected " cost pythia-14m "--$option="
done
usage '--output is ""; expected PATH' export pythia-14m --format hf -o ""
usage '--model is ""' results --model ""
usage '--check is ""' gpus --check ""
# Hexadecimal is no way to write dollars, seconds or tokens.
usage '--budget is "0x10"' cost pythia-14m --budget 0x10
usage '--tokens is "0x10"' plan pythia-14m --tokens 0x10
usage '--sample-seconds is "0x1"' bench pythia-14m --sample-seconds 0x1
# Control characters of what was typed do not reach the terminal.
usage 'unknown command "?[31m"' $'\e[31m'

# Options stand anywhere, --name=value is --name value, the last one counts, -- ends them.
expect 0 --json models pythia-14m --batch=3 --batch 2
field_is batch 2
expect 0 models --json -- pythia-14m
field_is name pythia-14m
expect 2 models -- --json
