#!/usr/bin/env bash
# Training on the GPU against PyTorch: tests/train/test_parity.sh with another backend.
set -euo pipefail
"$GPUDAYS" doctor | grep '^GPU  *ok' >/dev/null || {
  "$GPUDAYS" doctor | grep '^GPU' || true
  echo "skipped: there is no GPU"
  exit 77
}
GD_TEST_BACKEND=cuda exec bash "$(dirname "$0")/../train/test_parity.sh"
