#!/usr/bin/env bash
# `gpudays export`: which trial it takes, where the text goes, what it says when there is none; the
# SLURM job as a program, run with a scontrol, srun and torchrun of our own; golden files.
# After a change on purpose: GPUDAYS=build/dev/gpudays tests/export/test_cli.sh --update
GD_SOURCE_DIR=${GD_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=/dev/null
source "$here/../cli/common.sh"
update=${1:-}

# given CODE ARGUMENT...: as expect, but notes may stand on stderr.
given() {
  local code=$1
  shift
  try "$@"
  [[ $RC == "$code" ]] || fail "$LAST: exit $RC, not $code"
  ! grep -qv '^gpudays: note: .' "$ERR" || fail "$LAST: something but notes on stderr"
}
has() {
  grep -qE -- "$2" "$1" || fail "$1 lacks '$2'"
}

# --- nothing stored, nothing asked ------------------------------------------------------------

expect 1 export pythia-14m --format hf
said "gpudays bench pythia-14m --methods all"
silent
expect 1 export pythia-14m --format hf --ranks 4
said "gpudays bench pythia-14m --methods all --ranks 4"
expect 2 export pythia-14m
said "hf, train.py, deepspeed, torchtitan or sbatch"
expect 2 export pythia-14m --format yaml
said "hf, train.py, deepspeed, torchtitan or sbatch"
expect 2 export no-such-model --format hf
expect 2 export --format hf
for arguments in "--methods all" "--methods naive,free-lunch" "--methods nope" \
  "--device-memory 8GiB" "--micro-batch 3" "--methods naive --seed 4294967296" "--csv" \
  "--methods free-lunch --ranks 3" "--job-time never"; do
  # shellcheck disable=SC2086
  expect 2 export pythia-14m --format hf $arguments
  silent
done
expect 1 export pythia-14m --format hf --methods naive --device-memory 1MiB
said "device memory"

# --- the best that is stored ------------------------------------------------------------------

# The A100's trial is the fastest of all.
expect 0 results load "$GD_SOURCE_DIR/tests/cli/results.jsonl"

# golden NAME ARGUMENT...: the first line of the file says where it comes from.
golden() {
  local file=$here/golden/$1.txt
  shift
  given 0 "$@"
  cat "$ERR" >>"$OUT"
  if [[ $update == --update ]]; then
    { echo "# gpudays $* (written by tests/export/test_cli.sh --update)" && cat "$OUT"; } >"$file"
    return
  fi
  [[ -f $file ]] || fail "$file is missing; run tests/export/test_cli.sh --update"
  tail -n +2 "$file" >"$WORK/golden"
  diff "$WORK/golden" "$OUT" >"$WORK/diff" || { cp "$WORK/diff" "$ERR" && fail "$LAST: differs from $file"; }
}
mkdir -p "$here/golden"
golden hf_best export pythia-14m --format hf
golden deepspeed_best export pythia-14m --format deepspeed
golden sbatch_best export pythia-14m --format sbatch --job-time 12h
golden hf_fsdp3 export vit --format hf --methods free-lunch+ckpt+fsdp3+offload --ranks 4 \
  --micro-batch 24 --device-memory 1TiB --host-memory 1TiB --batch 1024
golden torchtitan export llama-3.1-8b --format torchtitan --methods free-lunch+ckpt+fsdp3 --ranks 8 \
  --micro-batch 2 --device-memory 1TiB

given 0 export pythia-14m --format hf --device epyc
field_is per_device_train_batch_size 8
field_is use_cpu true
field_is gradient_checkpointing false
given 0 export pythia-14m --format hf --methods ckpt+free-lunch
field_is per_device_train_batch_size 32
field_is gradient_checkpointing true
! grep -q 'not measured' "$ERR" || fail "$LAST: it was measured"
# Asked for on a device, it is measured there or not at all; elsewhere it is planned.
expect 1 export pythia-14m --format hf --methods free-lunch+zero1 --ranks 2 --device a100
said "--methods free-lunch+zero1 --ranks 2"
given 0 export pythia-14m --format hf --methods free-lunch+zero1 --ranks 2 --device-memory 2GiB
said "planned, not measured"
given 0 export pythia-14m --format deepspeed --methods free-lunch+zero2 --ranks 4 --seq 256 --batch 64 \
  --tokens 20B --optimizer adamw
said "gpudays bench pythia-14m --batch 64 --seq 256 --tokens 20B --optimizer adamw --methods"
said "make them 256 tokens long"
given 0 export pythia-14m --format sbatch --methods naive --seq 256 --batch 64
shown "gpudays export pythia-14m --batch 64 --seq 256 --methods naive --ranks 1 --format hf -o"
grep -qE "^#SBATCH --mem=[1-9]G" "$OUT" || fail "a small trial on a CPU asks for the memory of a GPU"
expect 1 export pythia-14m --format hf --steps 7
expect 2 export pythia-14m --format torchtitan
said "GPT-NeoX"

# --- files ------------------------------------------------------------------------------------

given 0 export pythia-14m --format hf -o "$WORK/args.json"
shown "wrote $WORK/args.json"
"$GPUDAYS" export pythia-14m --format hf --quiet >"$WORK/args.stdout" 2>"$ERR"
[[ ! -s $ERR ]] || fail "--quiet has notes"
cmp "$WORK/args.json" "$WORK/args.stdout" >"$OUT" || fail "-o writes something else"
given 0 export pythia-14m --format deepspeed --output="$WORK/args.json"
has "$WORK/args.json" '"train_batch_size": 1024'
mkdir "$WORK/folder"
expect 2 export pythia-14m --format hf -o "$WORK/folder"
expect 3 export pythia-14m --format hf -o "$WORK/no/such/folder"
[[ -z $(find "$WORK" -name '*.tmp') ]] || fail "something is left over"
expect 0 export pythia-14m --format sbatch --json
field_is format sbatch
field_is method free-lunch+ckpt+zero2+offload
field_is measured true

# --- the job as a program ---------------------------------------------------------------------

# All points, by two shells' opinions.
mkdir "$WORK/jobs"
points=0
for ranks in 1 4; do
  methods=$("$GPUDAYS" plan pythia-14m --methods all --ranks $ranks --device-memory 1TiB \
    --host-memory 1TiB --micro-batch 4 --json | sed -n 's/^ *"method": "\(.*\)",$/\1/p')
  for method in $methods; do
    given 0 export pythia-14m --format sbatch --methods "$method" --ranks $ranks \
      --device-memory 1TiB --host-memory 1TiB --micro-batch 4 -o "$WORK/jobs/$ranks-$method"
    bash -n "$WORK/jobs/$ranks-$method" 2>"$ERR" || fail "bash does not take the job of $method"
    points=$((points + 1))
  done
done
[[ $points == 34 ]] || fail "$points points, not 12 + 22"
given 0 export pythia-14m --format sbatch -o "$WORK/jobs/best"
if command -v shellcheck >/dev/null; then
  shellcheck "$WORK"/jobs/* >"$OUT" || fail "shellcheck"
fi

# Options of sbatch are known ones, with values of their shape.
options=0
while read -r option; do
  options=$((options + 1))
  name=${option%%=*} value=
  [[ $option != *=* ]] || value=${option#*=}
  pattern=$(awk -v name="$name" '$1 == name { print $3; found = 1 } END { exit !found }' \
    "$here/fields_sbatch.txt") || fail "sbatch has no option --$name"
  [[ $value =~ ^($pattern)$ ]] || fail "--$name is '$value', not $pattern"
done < <(sed -n 's/^#SBATCH --//p' "$WORK"/jobs/*)
((options >= 35 * 5)) || fail "35 jobs have $options options"

# Where the tools are ours: arguments and settings arrive, the end is remembered, bad use is told.
mkdir "$WORK/bin" "$WORK/run"
printf '#!/bin/sh\necho node7\necho node8\n' >"$WORK/bin/scontrol"
# shellcheck disable=SC2016
printf '#!/bin/sh\nprintf "%%s\\n" "$OMP_NUM_THREADS" "$@" >srun.log\n[ ! -e broken ]\n' \
  >"$WORK/bin/srun"
chmod +x "$WORK"/bin/*
job() {
  LAST="the job $*"
  RC=0
  (cd "$WORK/run" && PATH=$WORK/bin:$PATH SLURM_JOB_ID=12345 SLURM_JOB_NODELIST='node[7-8]' \
    bash "$WORK/jobs/best" "$@") >"$OUT" 2>"$ERR" || RC=$?
}
job
[[ $RC == 2 ]] || fail "$LAST: exit $RC without a program"
job train.py
[[ $RC == 2 ]] || fail "$LAST: exit $RC without settings"
said "pythia-14m.hf.json is missing"
"$GPUDAYS" export pythia-14m --format hf --quiet -o "$WORK/run/pythia-14m.hf.json" >"$OUT"
touch "$WORK/run/broken"
job train.py
[[ $RC == 1 && ! -e $WORK/run/pythia-14m.finished ]] || fail "$LAST: exit $RC of a broken run"
rm "$WORK/run/broken"
job train.py "a b" --lr=1
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
paste -sd'|' "$WORK/run/srun.log" >"$OUT"
shown "4|--kill-on-bad-exit=1|--cpus-per-task=16|torchrun|--nnodes=1|--nproc-per-node=4|"
shown "|--rdzv-endpoint=node7:22345|train.py|a b|--lr=1|pythia-14m.hf.json"
rm "$WORK/run/srun.log"
job train.py
[[ $RC == 0 && ! -e $WORK/run/srun.log ]] || fail "$LAST: runs again after its end"
shown "the run has ended"
