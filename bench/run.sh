#!/usr/bin/env bash
# The performance benchmarks: GEMMs, memory-bound kernels, fused kernels, the store, collectives,
# planning time, and whole trials by method. Goals are in results/performance.md; nothing here passes
# or fails.
set -euo pipefail
: "${GPUDAYS:?run it through make bench}" "${GD_BENCH_DIR:?run it through make bench}"

"$GPUDAYS" doctor
for bench in bench_gemm bench_ops bench_attention bench_loss bench_cuda "bench_compile pythia-70m" \
  bench_store; do
  echo
  # shellcheck disable=SC2086 # a program and its argument
  "$GD_BENCH_DIR/"$bench
done
echo
for ranks in 2 4; do
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --oversubscribe --bind-to none -n "$ranks" "$GD_BENCH_DIR/bench_comm"
done
echo
for model in pythia-160m pythia-6.9b; do
  "$GPUDAYS" plan "$model" --device-memory 1TiB --micro-batch 1
done
echo
# Ratios within one run: free-lunch over naive, what checkpointing costs, and the peer where it is
# installed.
for model in pythia-70m roberta-base; do
  "$GPUDAYS" bench --no-store "$model" --methods naive,kernels,compile,free-lunch,free-lunch+ckpt \
    --micro-batch 1 --quiet
  for mode in eager compile; do
    if python3 -c 'import torch, transformers' 2>/dev/null; then
      python3 "$(dirname "$0")/peer_torch.py" "$model" --mode "$mode" || echo "the peer failed"
    fi
  done
done
echo
# What ZeRO 1 costs over plain data parallel.
"$GPUDAYS" bench --no-store pythia-70m --methods free-lunch,free-lunch+zero1 --ranks 2 \
  --micro-batch 1 --batch 8 --quiet
