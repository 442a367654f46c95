#!/usr/bin/env bash
# Parity with transformers on the GPU: every committed reference, in every precision, naive and with
# fused and generated kernels; and TF32, whose rounding is that of a 16-bit precision.
set -euo pipefail
"$GPUDAYS" doctor | grep -q '^GPU  *ok' || {
  echo "skipped: there is no GPU"
  exit 77
}
failed=0
for folder in "$GD_SOURCE_DIR"/tests/reference/*/; do
  for precision in fp32 bf16 fp16; do
    for method in naive compile+kernels compile+kernels+ckpt; do
      "$GPUDAYS" verify "$folder" --backend cuda --precision "$precision" --methods "$method" || {
        echo "FAILED: $folder $precision $method"
        failed=$((failed + 1))
      }
    done
  done
done
echo "$failed failures"
[ "$failed" -eq 0 ]
