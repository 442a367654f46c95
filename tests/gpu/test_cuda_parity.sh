#!/usr/bin/env bash
# Parity with transformers on the GPU: every committed reference, in every precision, naive and with
# fused and generated kernels, a few of them at a time.
set -euo pipefail
"$GPUDAYS" doctor | grep '^GPU  *ok' >/dev/null || {
  echo "skipped: there is no GPU"
  exit 77
}
verify() { # FOLDER PRECISION METHOD
  "$GPUDAYS" verify "$1" --backend cuda --precision "$2" --methods "$3" || {
    echo "FAILED: $*"
    return 1
  }
}
export -f verify
jobs=$(($(nproc) / 2))
jobs=$((jobs < 1 ? 1 : jobs > 8 ? 8 : jobs))
for folder in "$GD_SOURCE_DIR"/tests/reference/*/; do
  for precision in fp32 bf16 fp16; do
    for method in naive compile+kernels compile+kernels+ckpt; do
      printf '%s\0' "$folder" "$precision" "$method"
    done
  done
done | xargs -0 -n 3 -P "$jobs" bash -c 'verify "$@"' verify
