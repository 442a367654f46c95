#!/usr/bin/env bash
# Planning is linear in the layers, for methods that between them run every pass. 1,024 layers take
# four times as long as 256, and about five where the larger graph leaves the caches; quadratic would
# be sixteen times. What is compared is CPU time, and of each the shortest so far: other programs can
# only make it longer, through caches and hyperthreads, so the two take turns until the bound holds.
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

# plan_ms LAYERS: milliseconds of CPU time.
plan_ms() {
  local seconds TIMEFORMAT=%U
  seconds=$({ time "$GPUDAYS" plan "$TMPDIR/$1" --micro-batch 2 --ranks 2 --device-memory 64GiB \
    --host-memory 64GiB --methods naive,free-lunch+ckpt+zero3+offload,free-lunch+fsdp2 \
    >"$TMPDIR/out"; } 2>&1)
  grep -q "free-lunch+fsdp2 *yes" "$TMPDIR/out" || { cat "$TMPDIR/out" >&2; exit 1; }
  echo "${seconds/./}"
}

few=1000000 many=1000000
for round in {1..12}; do
  ms=$(plan_ms 256)
  few=$((10#$ms < few ? 10#$ms : few))
  ms=$(plan_ms 1024)
  many=$((10#$ms < many ? 10#$ms : many))
  echo "round $round, the shortest so far: 256 layers: $few ms, 1,024 layers: $many ms"
  ((round < 3 || many >= 8 * few)) || exit 0
done
echo "FAILED: four times the layers take over eight times as long" >&2
exit 1
