#!/usr/bin/env bash
# GPUDAYS_ISA: the CPU's kernels of each level that this CPU has compute the right numbers, generated
# ones included; a level that it lacks is an error.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

expect 0 doctor --threads 1 --json
best=$(field isa)
has=true
for level in plain avx2 avx512 avx512_bf16 amx; do
  export GPUDAYS_ISA=$level
  if $has; then
    for method in naive free-lunch; do
      expect 0 verify "$GD_SOURCE_DIR/tests/reference/neox-parallel" --backend cpu --methods $method --threads 1
    done
    expect 0 doctor --threads 1 --json
    field_is isa "$level"
    expect 0 plan pythia-14m --device-memory 2GiB --threads 1
    shown ", 1 thread, $level"
  else
    expect 3 plan pythia-14m --threads 1
    said "gpudays: GPUDAYS_ISA=$level cannot be had: this CPU has $best at most"
  fi
  [[ $level != "$best" ]] || has=false
done
