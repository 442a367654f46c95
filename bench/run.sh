#!/usr/bin/env bash
# The performance benchmarks: products, memory-bound kernels, the fused loss, planning time, and a
# whole trial.
# Goals are in docs/performance.md; nothing here passes or fails.
set -euo pipefail
: "${GPUDAYS:?run it through make bench}" "${GD_BENCH_DIR:?run it through make bench}"

"$GPUDAYS" doctor
echo
"$GD_BENCH_DIR/bench_gemm"
echo
"$GD_BENCH_DIR/bench_ops"
echo
"$GD_BENCH_DIR/bench_loss"
echo
for model in pythia-160m pythia-6.9b; do
  "$GPUDAYS" plan "$model" --device-memory 1TiB --micro-batch 1
done
echo
"$GPUDAYS" bench pythia-70m --micro-batch 1 --quiet
