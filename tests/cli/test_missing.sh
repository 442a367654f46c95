#!/usr/bin/env bash
# What is asked for when it is needed: without gnuplot and OpenMPI everything else works, and what needs them says which
# package has them. SLURM without a cluster, and a search without time, say what they lack.
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

# --- no cluster, no time -------------------------------------------------------------------------

GPUDAYS=$program
# SLURM's commands without a cluster: one sentence, not sbatch's own.
mkdir -p "$WORK/nocluster"
for command in sbatch squeue scancel; do
  printf '#!/bin/sh\necho "%s: fatal: Could not establish a configuration source" >&2\nexit 1\n' $command >"$WORK/nocluster/$command"
done
chmod +x "$WORK"/nocluster/*
PATH="$WORK/nocluster:$PATH" expect 3 bench pythia-14m --slurm --gpu a100 --methods free-lunch --store "$WORK/slurm.db"
said "they find no cluster"
! grep -q "fatal" "$ERR" || fail "$LAST: the words of sbatch"
# A search that measured nothing says how long its first trial wants.
expect 1 bench pythia-1b --methods free-lunch --backend cpu --time-limit 1s --store "$WORK/limit.db"
said "free-lunch alone is expected to take "
# A name that begins several records: all of them.
expect 2 plan pythia-1b --gpu 16xa100 --network infiniband
said "infiniband-hdr or infiniband-ndr"
