#!/usr/bin/env bash
# The search space trained on the GPU, on one rank and on two and four that share it, or on as many
# as the argument says: tests/methods/test_space with another backend. It compares bits on one rank,
# which need algorithms that are not chosen by their time.
set -euo pipefail
"$GPUDAYS" doctor | grep -q '^GPU  *ok' || {
  "$GPUDAYS" doctor | grep '^GPU' || true
  echo "skipped: there is no GPU"
  exit 77
}
GPUDAYS_DETERMINISTIC=1 GD_TEST_BACKEND=cuda "$(dirname "$GPUDAYS")/tests/methods/test_space" "$@"
