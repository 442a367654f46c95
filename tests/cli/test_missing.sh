#!/usr/bin/env bash
# What is asked for when it is needed: without gnuplot and OpenMPI everything else works, and what needs them says which
# package has them.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
program=$GPUDAYS
printf '#!%s\nPATH=%s exec %q "$@"\n' "$BASH" "$WORK/empty" "$program" >"$WORK/bare"
mkdir "$WORK/empty"
chmod +x "$WORK/bare"
GPUDAYS=$WORK/bare

expect 0 plan pythia-410m --gpu 4x3090
shown "days"
expect 3 plan pythia-14m --gpu 1x3090,2x3090 -o "$WORK/days.svg"
said "gnuplot is not in PATH"
said "apt-get install gnuplot-nox"
[[ ! -e $WORK/days.svg ]] || fail "$LAST: a picture that nobody drew"
expect 3 bench pythia-14m --ranks 2
said "apt-get install openmpi-bin"
silent
expect 0 doctor --threads 1
shown "apt-get install gnuplot-nox"
expect 0 survey --synthetic 20 -o "$WORK/answers.csv"
expect 3 survey "$WORK/answers.csv" -o "$WORK/figures"
said "apt-get install gnuplot-nox"
