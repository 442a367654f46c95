#!/usr/bin/env bash
# A run whose collectives go through NCCL, with the one rank that a single GPU allows: the losses
# must be those without it, and a wish that cannot be had must be a sentence.
set -euo pipefail
"$GPUDAYS" doctor >"${TMPDIR:-/tmp}/doctor.$$" || true
trap 'rm -f "${TMPDIR:-/tmp}/doctor.$$"' EXIT
for part in GPU NCCL; do
  grep -q "^$part  *ok" "${TMPDIR:-/tmp}/doctor.$$" || {
    grep "^$part" "${TMPDIR:-/tmp}/doctor.$$" || true
    echo "skipped: $part is missing"
    exit 77
  }
done
loss() { # WISH METHOD
  GPUDAYS_NCCL=$1 "$GPUDAYS" bench "$GD_SOURCE_DIR/tests/reference/neox-parallel" --seq 32 --batch 4 --steps 10 \
    --backend cuda --precision fp32 --methods "$2" --no-store --json |
    sed -n 's/^ *"loss": \([0-9.e+-]*\),*$/\1/p' | head -1
}
for method in zero2+offload zero3+offload fsdp3+offload; do
  with=$(loss on "$method")
  without=$(loss off "$method")
  echo "$method: $with with NCCL, $without without"
  [ -n "$with" ] && [ "$with" = "$without" ]
done
