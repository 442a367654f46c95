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

# A deterministic run keeps what it has chosen, and goes on with it wherever another would be chosen by
# now: the cache is gone, and a trial has filled it again on a GPU whose third algorithm is the fastest.
awk 'BEGIN { for (i = 0; i < 66000; i++) printf "\\x%02x\\x%02x", (i * 7) % 251, i % 90 }' >"$WORK/escapes"
# shellcheck disable=SC2059
printf "$(cat "$WORK/escapes")" >"$WORK/ids.bin"
new_run() { # FOLDER OPTION...
  local folder=$1
  shift
  trained train pythia-14m --data "$WORK/ids.bin" --backend cuda --seq 512 --batch 64 --micro-batch 64 \
    --precision bf16 --methods free-lunch --steps 4 -o "$folder" --time-limit 0.000001s "$@"
}
trained() { # ARGUMENT...: from a clean log
  rm -rf "$WORK/log" "$WORK/ran"
  mkdir "$WORK/ran"
  touch "$WORK/log"
  expect 0 "$@"
}
ran() { # NUMBER: that algorithm alone, and nothing was timed
  [[ ! -s $WORK/log ]] || fail "$LAST: timed again: $(head -3 "$WORK/log")"
  [[ $(ls "$WORK/ran") == "$1" ]] || fail "$LAST: ran algorithms $(ls "$WORK/ran")"
}
rm -rf "$WORK/cache"
new_run "$WORK/kept" --deterministic
grep -q '"deterministic": "kept"' "$WORK/kept/run.json" || fail "$LAST: run.json does not say so"
kernels=$WORK/kept/kernels/$(basename "$(cached)" .txt | sed 's/autotune-//')-rank0.txt
grep -q '^cublaslt .*number 2 of 3' "$kernels" || fail "$LAST: the algorithm is not kept"
grep -q '^attention_grad_queries .*warps ' "$kernels" || fail "$LAST: the tiling is not kept"
rm -rf "$WORK/cache"
GD_TEST_FASTEST=3 new_run "$WORK/other"
[[ ! -e $WORK/other/kernels ]] || fail "$LAST: its choices are kept"
grep -q '^cublaslt .*number 3 of 3' "$(cached)" || fail "$LAST: another algorithm is in the file"
GD_TEST_FASTEST=3 new_run "$WORK/new" --deterministic
ran 3
GD_TEST_FASTEST=3 trained train "$WORK/kept" --time-limit 0.000001s
ran 2
# A line that is damaged is timed again; a folder that cannot be had ends the run before its first step.
sed -i '0,/^attention_forward/s/^attention_forward/attention_backward/' "$kernels"
rm -rf "$WORK/cache"
rm -rf "$WORK/log"
touch "$WORK/log"
try train "$WORK/kept" --time-limit 0.000001s
[[ $RC == 0 ]] || fail "$LAST: exit $RC"
said "kernels were chosen that this run had not: with another GPU, driver or library, or another plan, the losses from step 3"
logged '^attention_forward '
if grep -q '^cublaslt' "$WORK/log"; then fail "a damaged line of attention cost those of GEMMs"; fi
rm -r "$WORK/new/kernels"
touch "$WORK/new/kernels"
expect 3 train "$WORK/new"
said "$WORK/new/kernels"
# A start that fails leaves the name free.
GD_TEST_BREAK=$WORK/broken expect 3 train pythia-14m --data "$WORK/ids.bin" --backend cuda --seq 512 --batch 64 \
  --micro-batch 4 --precision bf16 --methods free-lunch --steps 4 -o "$WORK/lost" --deterministic
[[ -e $WORK/broken && ! -e $WORK/lost ]] || fail "$LAST: a folder was left"
# One that chose nothing by time goes on so, and keeps nothing.
GPUDAYS_DETERMINISTIC=1 new_run "$WORK/untimed"
ran 1
trained train "$WORK/untimed" --time-limit 0.000001s
ran 1
[[ ! -e $WORK/untimed/kernels ]] || fail "$LAST: choices are kept that were not made"
