#!/usr/bin/env bash
# Planning is linear in the layers, for methods that between them run every pass. 1,024 layers take
# four times as long as 256, and up to six times where caches are shared and the larger graph leaves
# them; quadratic would be sixteen times. CPU time, the shortest of three.
set -euo pipefail
export LC_ALL=C
[[ -z ${ASAN_OPTIONS:-} ]] || {
  echo "skipped: sanitizers have times of their own"
  exit 77
}

for layers in 256 1024; do
  mkdir "$TMPDIR/$layers"
  sed "s/\"num_hidden_layers\": [0-9]*/\"num_hidden_layers\": $layers/" \
    "$GD_SOURCE_DIR/tests/reference/neox-parallel/config.json" >"$TMPDIR/$layers/config.json"
done

# plan_ms LAYERS: milliseconds of CPU time, the shortest of three.
plan_ms() {
  local shortest=1000000 seconds TIMEFORMAT=%U
  for _ in 1 2 3; do
    seconds=$({ time "$GPUDAYS" plan "$TMPDIR/$1" --micro-batch 2 --ranks 2 --device-memory 64GiB \
      --host-memory 64GiB --methods naive,free-lunch+ckpt+zero3+offload,free-lunch+fsdp2 \
      >"$TMPDIR/out"; } 2>&1)
    grep -q "free-lunch+fsdp2 *yes" "$TMPDIR/out" || { cat "$TMPDIR/out" >&2; exit 1; }
    shortest=$(awk -v a="$shortest" -v b="$seconds" 'BEGIN { b *= 1000; print b < a ? b : a }')
  done
  echo "$shortest"
}

few=$(plan_ms 256)
many=$(plan_ms 1024)
echo "256 layers: $few ms, 1,024 layers: $many ms"
awk -v few="$few" -v many="$many" 'BEGIN { exit !(few > 0 && many < 8 * few) }' || {
  echo "FAILED: four times the layers take over eight times as long" >&2
  exit 1
}
