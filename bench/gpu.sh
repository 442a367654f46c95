#!/usr/bin/env bash
# bench/gpu.sh FILE.csv [STORE]: measures the models of the field's table on the GPU of this machine, naive
# and with free-lunch, every point of pythia-1b, and pythia-6.9b with what saves memory, into a store
# of its own, and writes all trials to FILE.csv. About eight minutes on an H200. Where a STORE is
# named it stays, and what it has is not measured again.
set -euo pipefail
: "${GPUDAYS:=build/dev/gpudays}"
out=${1:?usage: bench/gpu.sh FILE.csv [STORE]}
store=${2:-}
[ -n "$store" ] || {
  store=$(mktemp -d)/results.db
  trap 'rm -rf "$(dirname "$store")"' EXIT
}
bench() {
  "$GPUDAYS" bench "$@" --backend cuda --store "$store" --quiet || true # infeasible is an answer
}
# First, while the store is empty: what is in it is not measured again, and the time is of the whole.
start=$(date +%s)
bench pythia-1b --methods all
echo "all points of pythia-1b: $(($(date +%s) - start)) s"
for model in pythia-160m pythia-410m pythia-1b pythia-2.8b roberta mamba vit convnext-xlarge-22k; do
  bench "$model" --methods naive,free-lunch
done
bench pythia-6.9b --methods free-lunch+ckpt,free-lunch+ckpt+zero2+offload,free-lunch+ckpt+fsdp3+offload
"$GPUDAYS" results --store "$store" --csv --sort model >"$out.part"
mv "$out.part" "$out"
