#!/usr/bin/env bash
# The autotuner, on a GPU that computes nothing (fake_gpu.c), whose cuBLASLt proposes three
# algorithms, the second being the fastest: what is timed is logged, kept in a file that the next
# process reads, and left alone where a switch says so.
# shellcheck source=/dev/null
source "$(dirname "$0")/fake.sh"

export GPUDAYS_CUDNN=0 GPUDAYS_AUTOTUNE_LOG=$WORK/log GD_TEST_ALGORITHMS=$WORK/ran

cached() { # the file of results
  find "$WORK/cache" -name 'autotune-*.txt'
}
run() { # PRECISION: a trial from a clean log
  rm -rf "$WORK/log" "$WORK/ran"
  mkdir "$WORK/ran"
  touch "$WORK/log"
  expect 0 bench pythia-14m --backend cuda --seq 512 --batch 64 --micro-batch 64 --precision "$1" \
    --methods free-lunch --sample-seconds 0.02 --no-store --json
  field_is status ok
}
logged() { # PATTERN
  grep -qE -- "$1" "$WORK/log" || fail "the log lacks a line like '$1': $(head -c 2000 "$WORK/log")"
}

# Nothing is timed: the first candidate, or the one that is asked for; no file.
for switch in "GPUDAYS_AUTOTUNE=off 1" "GPUDAYS_AUTOTUNE=3 3" \
  "GPUDAYS_AUTOTUNE=5 2" "GPUDAYS_DETERMINISTIC=1 1"; do
  export "${switch% *}"
  run bf16
  unset "${switch%%=*}"
  [[ ! -s $WORK/log ]] || fail "$switch: something was timed"
  [[ $(ls "$WORK/ran") == "${switch#* }" ]] || fail "$switch: ran algorithms $(ls "$WORK/ran")"
  [[ -z $(cached) ]] || fail "$switch: results were kept"
done

# Everything is timed once: algorithms of GEMMs, tilings of attention, what an epilogue replaces.
run bf16
logged '^cublaslt [0-9.]+ [NT]{2} .*: candidate 2 of 3: 100.0 us, .*TFLOP/s, chosen$'
logged '^cublaslt .*: candidate 1 of 3: 300.0 us, [0-9.]+ TFLOP/s$'
logged '^attention_forward [0-9a-f]{16} bf16 .* causal: warps .* us, .*TFLOP/s, chosen$'
logged '^attention_grad_keys '
[[ -n $(cached) ]] || fail "no results were kept"
grep -q '^cublaslt .*number 2 of 3' "$(cached)" || fail "the algorithm is not in the file"
grep -q '^attention_grad_queries .*warps ' "$(cached)" || fail "the tiling is not in the file"

# The next process reads all of it: nothing is timed, and the fastest runs.
run bf16
[[ ! -s $WORK/log ]] || fail "timed again: $(head -3 "$WORK/log")"
[[ $(ls "$WORK/ran") == 2 ]] || fail "ran algorithms $(ls "$WORK/ran")"

# A damaged line costs timing it again, and nothing else.
sed -i '0,/^attention_forward/s/^attention_forward/attention_backward/' "$(cached)"
run bf16
logged '^attention_forward '
if grep -q '^cublaslt' "$WORK/log"; then fail "a damaged line of attention cost those of GEMMs"; fi

# TF32: each path is one more candidate, unless a switch rules it out.
run fp32
logged '^cublaslt .* tf32 .* emulated in [0-9]+ MiB.*chosen$'
logged '^cublaslt .* tf32 .* transposed: candidate'
rm "$(cached)"
GPUDAYS_TF32_EMULATED=0 GPUDAYS_GEMM_TRANSPOSED=0 run fp32
if grep -qE 'emulated|transposed' "$WORK/log"; then fail "a path was timed that is ruled out"; fi
