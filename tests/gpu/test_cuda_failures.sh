#!/usr/bin/env bash
# What goes wrong on a GPU: others have its memory, or take it while a search runs; its context is
# lost; a library is missing; ranks share it. Each is a stored reason, and the search goes on.
# Usage: test_cuda_failures.sh real|fake: the GPU that is there, or one that computes nothing
# (fake_gpu.c), which shows the same everywhere.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"

kind=${1:-fake}
tools=$(dirname "$GPUDAYS")/tests/gpu
for name in hold_memory fake_gpu.so broken_gpu.so; do
  [[ -e $tools/$name ]] || {
    echo "skipped: $tools/$name is not there"
    exit 77
  }
done
export GPUDAYS_DETERMINISTIC=1 # nothing here is about speed
if [[ $kind == fake ]]; then
  mkdir "$WORK/fake" "$WORK/state"
  for name in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13; do
    ln -s "$tools/fake_gpu.so" "$WORK/fake/$name"
  done
  # A process that was killed, whose number is another one's by now.
  echo "140000000000 1" >"$WORK/state/$$"
  # Nothing of a real one: neither its libraries nor kernels that were compiled for it.
  export GPUDAYS_CUDA_PATH=$WORK/fake GD_FAKE_GPU=$WORK/state
  export HOME=$WORK XDG_CACHE_HOME=$WORK/cache
  unset VIRTUAL_ENV CONDA_PREFIX CUDA_HOME CUDA_PATH
fi
"$GPUDAYS" doctor >"$WORK/doctor" 2>&1 || true
grep -q '^GPU  *ok' "$WORK/doctor" || {
  grep '^GPU' "$WORK/doctor" || true
  [[ $kind == real ]] || fail "doctor does not know the GPU that computes nothing"
  echo "skipped: there is no GPU"
  exit 77
}

if [[ $kind == fake ]]; then # the same for programs
  expect 0 doctor --threads 1 --json
  sed -i -n '/^  "gpu": {/,/^  }/p' "$OUT"
  field_is name "GPU that computes nothing"
  field_above memory_bytes 140000000000
  field_above tf32 0
  field_is peak_source reckoned
  field_is missing ""
fi

# 80 GB as naive, 14.5 GB with kernels and everything kept, 9.4 GB with nothing kept, 3.3 GB with
# checkpoints.
model=(pythia-14m --backend cuda --seq 512 --batch 1024 --precision bf16 --sample-seconds 0.02
  --trial-timeout 400s --methods naive)
whole=("${model[@]}" --micro-batch 1024)

# The sizes above are for cards of about 140 GB.
limit=$("$GPUDAYS" plan pythia-14m --backend cuda --json | sed -n 's/.*"device_limit_bytes": \([0-9]*\).*/\1/p')
if [[ $kind == real ]] && ((${limit:-0} < 85000000000 || limit > 160000000000)); then
  echo "skipped: the GPU has room for plans of ${limit:-?} bytes, and this wants 85 to 160 GB"
  exit 77
fi

count() { # TEXT NUMBER: so many lines of stdout have it
  local found
  found=$(grep -c -- "$1" "$OUT" || true)
  [[ $found == "$2" ]] || fail "$LAST: $found lines with '$1', not $2"
}
fresh_store() {
  export GPUDAYS_DB=$WORK/$1.db
}
# hold AMOUNT: another program has it until `let_go`; FREE says what is left.
hold() {
  coproc HOLDER { exec "$tools/hold_memory" "$1"; }
  local line=
  read -r -t 300 line <&"${HOLDER[0]}" || fail "hold_memory $1 does not begin"
  FREE=$(sed -n 's/^holding [0-9]* bytes, \([0-9]*\) are free$/\1/p' <<<"$line")
  [[ -n $FREE ]] || fail "hold_memory $1 says '$line'"
}
let_go() {
  local pid=$HOLDER_PID input=${HOLDER[1]}
  exec {input}>&-
  wait "$pid" || fail "hold_memory ended with $?"
}
gib() {
  echo $(($1 << 30))
}
# ends ARGUMENT...: expect, of what might wait for ever.
ends() {
  local from=$SECONDS
  expect "$@"
  ((SECONDS - from <= 300)) || fail "$LAST: took $((SECONDS - from)) s"
}

# --- memory that others have -----------------------------------------------------------------

fresh_store before
hold "-$(gib 8)"
expect 0 bench "${whole[@]}" --methods naive,free-lunch,free-lunch+ckpt --json
count '^      "status": "ok"' 1
count '^      "status": "failed"' 2
count '^      "source": "run"' 3
count 'the GPU refuses .*iB: .*iB of its .*iB are free, as other programs or ranks use the GPU; wait' 2
count 'or plan for what is left with --device-memory"' 2
count 'the GPU refuses 74.7 GiB' 1
expect 0 results --status failed --json
count 'the GPU refuses ' 2
expect 0 results --status ok --json
count '^      "method": "free-lunch+ckpt"' 1
# What is left is what a plan is made for where that is said.
expect 0 bench "${model[@]}" --methods naive,free-lunch --device-memory 6GiB --json
count '^      "status": "ok"' 2
# Alone it is the answer, and it is no.
expect 1 bench "${whole[@]}" --methods naive --fresh
said "the GPU refuses 74.7 GiB: "
let_go
# As soon as the others are gone.
expect 0 bench "${whole[@]}" --methods naive --fresh --json
field_is status ok

# Not even a context. A real driver may find other words.
hold -1000000
if [[ $kind == fake ]]; then
  expect 1 bench "${whole[@]}" --methods free-lunch+ckpt --no-store
  said "the GPU has no memory for cuDevicePrimaryCtxRetain: other programs may have taken"
else
  try bench "${whole[@]}" --methods free-lunch+ckpt --no-store
  [[ $RC == 1 || $RC == 3 ]] || fail "$LAST: exit $RC"
  [[ $(grep -c '^gpudays: .*\(GPU\|CUDA\)' "$ERR") == 1 ]] || fail "$LAST: no sentence"
  sed 's/^/with a full card: /' "$ERR"
fi
let_go

# --- nothing kept ----------------------------------------------------------------------------

fresh_store kept
expect 0 bench "${whole[@]}" --methods free-lunch --json
kept_bytes=$(field peak_bytes)
hold "-$((kept_bytes - 200000000))"
expect 0 bench "${whole[@]}" --methods free-lunch --fresh --json
field_is status ok
left_bytes=$(field peak_bytes)
((left_bytes < kept_bytes * 3 / 4)) || fail "$LAST: $left_bytes bytes, after $kept_bytes"
count '^      "reason": "measured with nothing saved: the GPU refuses ' 1
let_go
expect 0 bench "${whole[@]}" --methods free-lunch # from the store
count 'note: measured with nothing saved: the GPU refuses ' 1
expect 0 bench "${whole[@]}" --methods free-lunch --fresh --json
field_is peak_bytes "$kept_bytes"

# --- memory that others take meanwhile -------------------------------------------------------

fresh_store meanwhile
LAST="bench while others take memory" RC=0
touch "$WORK/held"
GPUDAYS_TEST_FAULT=naive=held=$WORK/held "$GPUDAYS" bench "${whole[@]}" --methods free-lunch+ckpt,naive \
  --json >"$OUT" 2>"$ERR" </dev/null &
search=$!
is_stored() { "$GPUDAYS" results --csv 2>/dev/null | grep ",$1," >/dev/null; }
await is_stored free-lunch+ckpt # the better one comes first
hold "-$(gib 8)"
rm "$WORK/held"
wait "$search" || RC=$?
[[ $RC == 0 && ! -s $ERR ]] || fail "$LAST: exit $RC"
count '^      "status": "ok"' 1
count '^      "status": "failed"' 1
count 'the GPU refuses 74.7 GiB: .* as other programs or ranks use the GPU' 1
let_go
expect 0 results --status failed --json
count 'the GPU refuses 74.7 GiB: ' 1

# --- a context that is lost ------------------------------------------------------------------

small=("${model[@]}" --micro-batch 128)
methods=free-lunch,free-lunch+ckpt,kernels
lost='an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)'
if [[ $kind == real ]]; then
  mkdir "$WORK/broken"
  ln -s "$tools/broken_gpu.so" "$WORK/broken/libcuda.so.1"
  broken=$WORK/broken
  for path in ${GPUDAYS_CUDA_PATH:+"$GPUDAYS_CUDA_PATH"/lib*.so*}; do
    [[ $path == */libcuda.so* ]] || ln -s "$path" "$broken/"
  done
  GPUDAYS_CUDA_PATH=$broken "$GPUDAYS" doctor >"$OUT" 2>&1 || true
  grep -q "^NVIDIA driver  *ok: .*$broken" "$OUT" || fail "the driver that breaks is not loaded"
else
  broken=$WORK/fake
fi
fresh_store lost
export GD_TEST_BREAK=$WORK/lost
GPUDAYS_CUDA_PATH=$broken ends 0 bench "${small[@]}" --methods "$methods" --json
[[ -e $GD_TEST_BREAK ]] || fail "$LAST: nothing broke"
count '^      "status": "ok"' 2
count '^      "status": "failed"' 1
count '^      "source": "run"' 3
count "\"reason\": \"CUDA fails in .*: $lost" 1
expect 0 results --status failed --json
count "$lost" 1
# Alone it is the error.
rm "$GD_TEST_BREAK"
GPUDAYS_CUDA_PATH=$broken ends 3 bench "${small[@]}" --methods free-lunch --fresh
said "$lost"
silent
# All trials of a rank that somebody else has started are in one process: the job ends with it, and
# the others do not fail for the same reason.
if command -v mpirun >/dev/null; then
  rm "$GD_TEST_BREAK"
  LAST="mpirun -n 2 gpudays bench that loses a context" RC=0
  GPUDAYS_CUDA_PATH=$broken OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    timeout 300 mpirun --oversubscribe -n 2 "$GPUDAYS" bench "${small[@]}" --methods "$methods" \
    >"$OUT" 2>"$ERR" </dev/null || RC=$?
  [[ $RC == 3 ]] || fail "$LAST: exit $RC, not 3"
  said "CUDA fails in "
  said "$lost"
  silent
fi
unset GD_TEST_BREAK
expect 0 bench "${small[@]}" --methods free-lunch --fresh --json
field_is status ok

# --- host memory that the driver does not pin --------------------------------------------------

if [[ $kind == fake ]]; then
  offload=("${small[@]}" --methods free-lunch+zero2+offload --no-store)
  GD_TEST_PIN=2 expect 1 bench "${offload[@]}" # CUDA_ERROR_OUT_OF_MEMORY
  said "gpudays: the driver refuses to pin "
  said "iB of host memory"
  # Any other error is not about memory: a broken context, or an operating system that cannot.
  GD_TEST_PIN=304 expect 3 bench "${offload[@]}"
  said "gpudays: CUDA fails in pinning host memory: another error (CUDA_ERROR_OTHER)"
  if command -v mpirun >/dev/null; then # without NCCL collectives are staged
    GD_TEST_PIN=2 expect 1 bench "${small[@]}" --methods naive+zero1 --ranks 2 --no-store
    said "gpudays: the driver refuses to pin "
    # Ranks that share a GPU have its peak once.
    expect 0 bench "${small[@]}" --methods naive --no-store --json
    peak=$(field peak_flops)
    expect 0 bench "${small[@]}" --methods naive --ranks 2 --no-store --json
    field_is devices 1
    field_is peak_flops "$peak"
  fi
fi

# --- a library that is missing ---------------------------------------------------------------

# lacks NAME: all trials fail for want of cuBLASLt, with the libraries of folder NAME.
lacks() {
  fresh_store "$1"
  GPUDAYS_CUDA_PATH=$WORK/$1 expect 1 bench "${small[@]}" --methods "$methods"
  said "all 3 trials failed: $2"
  expect 0 results --status failed --json
  count "$2" 3
}
if [[ $kind == fake ]]; then
  mkdir "$WORK/less" "$WORK/old"
  for name in less/libcuda.so.1 less/libnvrtc.so.13 old/libcuda.so.1 old/libnvrtc.so.13; do
    ln -s "$tools/fake_gpu.so" "$WORK/$name"
  done
  # Any library that has none of its functions.
  ln -s "$(ldd "$GPUDAYS" | awk '$1 ~ /^libm\.so/ { print $3 }')" "$WORK/old/libcublasLt.so.13"
  lacks old "cuBLASLt ($WORK/old/libcublasLt.so.13) has no cublasLtCreate; it is too old"
  GPUDAYS_CUDA_PATH=$WORK/less "$GPUDAYS" doctor >"$WORK/doctor" 2>&1 || true
  if grep -q '^cuBLASLt  *ok' "$WORK/doctor"; then
    echo "skipped in part: this machine has a cuBLASLt of its own, so none is missing"
  else
    lacks less "cuBLASLt was not found (libcublasLt.so.13 or libcublasLt.so.12); install"
  fi
  # One that is there and does not load is no missing one: the loader says why.
  mkdir "$WORK/none" "$WORK/torn"
  head -c 1000 /dev/zero >"$WORK/torn/libcuda.so.1"
  torn="does not load: $WORK/torn/libcuda.so.1: invalid ELF header; mend that, or install NVIDIA's driver"
  GPUDAYS_CUDA_PATH=$WORK/none expect 0 doctor --threads 1
  if grep -q '^NVIDIA driver  *ok' "$OUT"; then
    echo "skipped in part: this machine has a driver of its own, so none fails to load"
  else
    shown "NVIDIA driver was not found (libcuda.so.1); install"
    GPUDAYS_CUDA_PATH=$WORK/none expect 0 doctor --threads 1 --json
    sed -i -n '/^  "gpu": {/,/^  }/p' "$OUT"
    field_is name ""
    field_is memory_bytes null
    field_is tf32 null
    shown '"missing": "NVIDIA driver was not found (libcuda.so.1); install'
    GPUDAYS_CUDA_PATH=$WORK/torn expect 0 doctor --threads 1
    shown "NVIDIA driver ($WORK/torn/libcuda.so.1) $torn"
    GPUDAYS_CUDA_PATH=$WORK/none LD_LIBRARY_PATH=$WORK/torn expect 0 doctor --threads 1
    shown "NVIDIA driver (libcuda.so.1) $torn"
  fi
  # One that can be done without: what is done instead.
  ln -s "$(readlink "$WORK/old/libcublasLt.so.13")" "$WORK/old/libnccl.so.2"
  GPUDAYS_CUDA_PATH=$WORK/old expect 0 doctor --threads 1 --json
  shown '"NCCL": "ranks exchange through host memory"'
  # A GPU that is newer than the compiler, and a text that it refuses: not the same.
  fresh_store nvrtc
  export XDG_CACHE_HOME=$WORK/cold
  GD_TEST_NVRTC=old expect 3 bench "${small[@]}" --methods free-lunch
  said "NVRTC 13.0 does not know sm_80; install a newer CUDA"
  GD_TEST_NVRTC=broken expect 4 bench "${small[@]}" --methods free-lunch --fresh
  said "NVRTC refuses the kernels of "
  export XDG_CACHE_HOME=$WORK/cache
fi

# --- ranks that share a GPU ------------------------------------------------------------------

expect 0 plan "${model[@]:0:3}" --json
alone_bytes=$(field device_limit_bytes) alone_host_bytes=$(field host_limit_bytes)
for ranks in 2 4; do
  expect 0 plan "${model[@]:0:3}" --ranks $ranks --json
  shared_bytes=$(field device_limit_bytes)
  ((shared_bytes > 0 && shared_bytes * ranks < alone_bytes)) ||
    fail "$LAST: $shared_bytes bytes for each of $ranks ranks, of $alone_bytes"
  host_bytes=$(field host_limit_bytes) # what is free varies a little from one call to the next
  ((host_bytes > 0 && host_bytes * ranks < alone_host_bytes * 3 / 2)) ||
    fail "$LAST: $host_bytes bytes of host memory for each of $ranks ranks, of $alone_host_bytes"
done
expect 0 plan "${model[@]:0:3}" --threads 1 --json
field_is threads 1
if command -v mpirun >/dev/null; then
  fresh_store ranks
  # One rank has room for 80 GB; two have not.
  expect 0 bench "${model[@]}" --batch 2048 --micro-batch pow2 --methods naive --ranks 2 --json
  field_is status ok
  field_is micro_batch 512
else
  echo "skipped in part: there is no mpirun, so no ranks that share a GPU"
fi

# --- one rank is refused its memory ----------------------------------------------------------

# Each of two ranks has a card; on that of rank 1 is another program. The trial fails for both of
# them, with the words of rank 1, and the next one begins for both.
if [[ $kind == fake ]] && command -v mpirun >/dev/null; then
  mkdir "$WORK/other"
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  two=("${model[@]}" --batch 2048 --micro-batch 1024 --device-memory 100GiB --rank-timeout 300)
  printf '%s\n' '#!/bin/bash' "[[ \$OMPI_COMM_WORLD_RANK != 1 ]] || export GD_FAKE_GPU='$WORK/other'" \
    'exec "$@"' >"$WORK/apart"
  chmod +x "$WORK/apart"
  LAST="two ranks, each of which sees its own card alone" RC=0
  # This machine's own NCCL would find no GPU.
  GPUDAYS_NCCL=off mpirun --oversubscribe -n 2 "$WORK/apart" "$GPUDAYS" bench "${model[@]}" \
    --micro-batch 64 --methods naive --json >"$OUT" 2>"$ERR" </dev/null || RC=$?
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  field_is device_limit_bytes "$alone_bytes" # all of it
  GD_FAKE_GPU=$WORK/other hold "-$(gib 8)"
  LAST="two ranks, of which one is refused its memory" RC=0
  GPUDAYS_NCCL=off mpirun --oversubscribe -n 2 "$WORK/apart" "$GPUDAYS" bench "${two[@]}" \
    --methods naive+zero1,free-lunch+ckpt --json >"$OUT" 2>"$ERR" </dev/null || RC=$?
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  count '^      "status": "ok"' 1
  count '^      "status": "failed"' 1
  count '"reason": "rank 1: the GPU refuses 74.6 GiB: .* as other programs or ranks use the GPU' 1
  let_go
fi

# --- ranks that NCCL waits for ---------------------------------------------------------------

# An NCCL that does nothing, and streams that are busy while a file is there, as those of a rank are
# while another one stays away. Its abort waits for captured graphs to be destroyed, as NCCL's does.
if [[ $kind == fake ]] && command -v mpirun >/dev/null; then
  mkdir "$WORK/nccl"
  for name in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 libnccl.so.2; do
    ln -s "$tools/fake_gpu.so" "$WORK/nccl/$name"
  done
  export GPUDAYS_CUDA_PATH=$WORK/nccl GPUDAYS_NCCL=on GD_TEST_BUSY=$WORK/busy
  # What is calibrated is what runs use: two ranks on one GPU have no NCCL.
  expect 3 calibrate --backend cuda --ranks 2 --threads 1 --time-limit 3s -o "$WORK/links.json"
  said "ranks share a GPU, which NCCL refuses"
  apart=(timeout 300 mpirun --oversubscribe -n 2 "$WORK/apart" "$GPUDAYS" bench "${small[@]}"
    --methods naive+zero1 --device-memory 100GiB --json)
  # limited FOUND COMMAND...: with the shortest limit that the ranks need by themselves, on a machine
  # that may be busy. LIMIT: which; the sentence is found.
  limited() {
    for LIMIT in 2 20 100; do
      RC=0
      "${@:2}" --rank-timeout "$LIMIT" >"$OUT" 2>"$ERR" </dev/null || RC=$?
      ! grep -qF -- "$1" "$ERR" || break
    done
    [[ $RC == 3 ]] || fail "$LAST: exit $RC"
    said "$1"
  }
  touch "$GD_TEST_BUSY"
  LAST="ranks that wait in vain inside a graph"
  limited "waits for the other ranks in vain (the time is up)" "${apart[@]}"
  # Stopped for longer than the limit, they have waited for less.
  have_asked() { mapfile -t asked < <(compgen -G "$GD_TEST_BUSY.*") && ((${#asked[@]} == 2)); }
  has_come_or_gone() { have_asked || ! kill -0 "$job" 2>/dev/null; }
  for LIMIT in 4 20 100; do
    rm -f "$GD_TEST_BUSY".*
    touch "$GD_TEST_BUSY"
    LAST="a job that is suspended" RC=0
    "${apart[@]}" --rank-timeout "$LIMIT" >"$OUT" 2>"$ERR" </dev/null &
    job=$!
    await has_come_or_gone
    if have_asked && kill -STOP "${asked[@]##*.}"; then
      sleep $((LIMIT + 1))
      kill -CONT "${asked[@]##*.}"
      sleep 0.5
    fi
    rm "$GD_TEST_BUSY"
    wait "$job" || RC=$?
    [[ $RC != 0 ]] || break
  done
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  field_is status ok
  # A rank that does not come to NCCL's own start.
  touch "$WORK/init"
  LAST="a rank that does not join NCCL"
  GD_TEST_INIT=$WORK/init limited "s in ncclCommInitRank, which ends when all 2 ranks are there" "${apart[@]}"
  said "has waited $LIMIT s in ncclCommInitRank"
  # Several ranks on one GPU: where NCCL is told that it may.
  shared=("${small[@]}" --methods naive+zero1 --ranks 2 --no-store --json)
  expect 3 bench "${shared[@]}"
  said "GPUDAYS_NCCL=on cannot be had: ranks share a GPU, which NCCL refuses (2.30.3 and later permit"
  NCCL_MULTI_RANK_GPU_ENABLE=1 expect 0 bench "${shared[@]}"
  field_is status ok
fi

# --- libraries of a newer CUDA than the driver -------------------------------------------------

if [[ $kind == fake ]]; then
  mkdir "$WORK/both"
  for name in libcuda.so.1 libnvrtc.so.13 libnvrtc.so.12 libcublasLt.so.13 libcublasLt.so.12; do
    ln -s "$tools/fake_gpu.so" "$WORK/both/$name"
  done
  for driver in 13000:13 12040:12; do
    GPUDAYS_NCCL=off GPUDAYS_CUDA_PATH=$WORK/both GD_TEST_DRIVER=${driver%:*} expect 0 doctor --threads 1
    shown "$WORK/both/libnvrtc.so.${driver#*:}"
    shown "$WORK/both/libcublasLt.so.${driver#*:}"
  done
  # None that the driver takes.
  GPUDAYS_CUDA_PATH=$WORK/fake GD_TEST_DRIVER=12040 expect 3 bench "${small[@]}" --methods naive --no-store
  said "NVRTC ($WORK/fake/libnvrtc.so.13) is of a newer CUDA than the driver, which is of 12.4 and takes"
fi

# --- a GPU that is slowed down -----------------------------------------------------------------

tiny=("$GD_SOURCE_DIR/tests/reference/neox-parallel" --backend cuda --seq 32 --batch 4 --steps 10
  --precision bf16 --sample-seconds 0.2 --methods naive)
# clocks BITS,MHZ ARGUMENT...: a trial while NVML tells that; its text in one line is in $OUT. By
# itself the time of the fake is that of usleep(3): samples enough for an interval of some percent.
clocks() {
  GD_TEST_CLOCKS=$1 expect 0 bench "${tiny[@]}" --methods free-lunch --no-store "${@:2}"
  [[ " $* " == *" --json "* ]] || { tr '\n' ' ' <"$OUT" | tr -s ' ' >"$OUT.line" && mv "$OUT.line" "$OUT"; }
}
hidden() { # TEXT: stdout does not have it
  ! grep -qF -- "$1" "$OUT" || fail "$LAST: says '$1'"
}
if [[ $kind == fake ]]; then
  unset GPUDAYS_NCCL GD_TEST_BUSY
  mkdir "$WORK/nvml"
  for name in libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 libnvidia-ml.so.1; do
    ln -s "$tools/fake_gpu.so" "$WORK/nvml/$name"
  done
  export GPUDAYS_CUDA_PATH=$WORK/nvml GPUDAYS_NVML=on
  expect 0 doctor --threads 1
  shown "13.580.65, $WORK/nvml/libnvidia-ml.so.1"
  clocks 0x48,990
  shown "note: the GPU was slowed down by heat for 100 % of the time, to 990 of 1980 MHz: the time is too"
  clocks 0x8,990 --methods naive,free-lunch
  shown "note: the GPU was slowed down by its hardware (heat or power) for up to 100 % of the time"
  clocks 0x48,990 --json
  field_is gpu_throttled_share 1.0
  field_is gpu_clock_mhz 990
  field_is gpu_low_clock_mhz 990
  field_is gpu_max_clock_mhz 1980
  field_is gpu_power_capped_share 0.0
  field_is gpu_power_w 650.0
  field_is gpu_power_limit_w 700.0
  awk -v e="$(field energy_kwh)" -v d="$(field days)" \
    'BEGIN { exit !(e > 0.999 * 0.65 * 24 * d && e < 1.001 * 0.65 * 24 * d) }' || fail "$LAST: energy is not 650 W"
  shown '"gpu_clock_reasons": "thermal, hardware slowdown"'
  # Half of the clock may be half of the time; what is above has nothing to do with it.
  awk -v low="$(field days_low)" -v days="$(field days)" -v high="$(field days_high)" \
    'BEGIN { exit !(low <= 0.5 * days && (low == 0 || low >= 0.5 * (2 * days - high) * 0.999)) }' ||
    fail "$LAST: the interval does not reach down to half"
  # The limit of its power is what a card under load runs at.
  clocks 0x4,1700 --json
  field_is gpu_power_capped_share 1.0
  field_is gpu_throttled_share 0.0
  shown '"gpu_clock_reasons": "power cap"'
  awk -v low="$(field days_low)" -v days="$(field days)" -v high="$(field days_high)" \
    'BEGIN { exit !(low == 0 || days - low < 1.001 * (high - days)) }' || fail "$LAST: the interval is wider below"
  clocks 0x4,1700
  hidden "note: the GPU"
  shown "about 650 W a GPU, "
  shown "kWh for the run (measured by NVML)"
  # What NVML measured is kept with the trial, and what it costs is counted with that.
  GD_TEST_CLOCKS=0x4,1700 GD_TEST_NAME="NVIDIA H200" expect 0 bench "${tiny[@]}" --methods free-lunch \
    --store "$WORK/power.db" --json
  days=$(field days)
  expect 0 results --store "$WORK/power.db" --json
  field_is gpu_power_w 650.0
  field_above energy_kwh 0
  expect 0 cost "${tiny[0]}" --seq 32 --batch 4 --steps 10 --times measured --store "$WORK/power.db" \
    --machine rented-1x-h200 --json
  field_is gpu_power_w 650.0
  field_is gpu_power_from "measured by NVML"
  awk -v a="$(field days)" -v b="$days" 'BEGIN { exit !(a > 0.999 * b && a < 1.001 * b) }' || fail "other days"
  expect 0 plan pythia-14m --gpu h200 --methods free-lunch --json
  awk -v e="$(field energy_kwh)" -v d="$(field days)" -v w="$(field gpu_power_w)" \
    'BEGIN { exit !(w > 84 && w <= 700 && e > 0.0239 * w * d && e < 0.0241 * w * d) }' || fail "$LAST: energy"
  clocks 0x4,1700 --profile
  shown "note: the GPU's power limit (700 W) lowered its clock for 100 % of the time, median 1700 of 1980 MHz"
  # Application clocks: worth a word where they cost something.
  clocks 0x2,1200
  shown "note: a setting holds the GPU's clock down, at 1200 of 1980 MHz"
  clocks 0x2,1980
  hidden "note: a setting"
  # What is stored says it as well; the slowest of the ranks tells.
  fresh_store clocks
  GD_TEST_CLOCKS=0x80,330 expect 0 bench "${tiny[@]}" --methods free-lunch
  expect 0 bench "${tiny[@]}" --methods free-lunch
  shown "note: the GPU was slowed down by the brake of its power supply"
  if command -v mpirun >/dev/null; then
    printf '%s\n' '#!/bin/bash' "[[ \$OMPI_COMM_WORLD_RANK != 1 ]] || export GD_TEST_CLOCKS=0x20,1320" \
      'exec "$@"' >"$WORK/one_hot"
    chmod +x "$WORK/one_hot"
    LAST="two ranks, of which one has a hot GPU" RC=0
    GPUDAYS_NCCL=off mpirun --oversubscribe -n 2 "$WORK/one_hot" "$GPUDAYS" bench "${tiny[@]}" \
      --methods naive --json >"$OUT" 2>"$ERR" </dev/null || RC=$?
    [[ $RC == 0 ]] || fail "$LAST: exit $RC"
    field_is gpu_throttled_share 1.0
    field_is gpu_low_clock_mhz 1320
  fi
  # Not watched: nothing is known, and the key of a trial does not change.
  GPUDAYS_NVML=off clocks 0x48,990 --json
  field_is gpu_throttled_share null
  field_is gpu_max_clock_mhz null
  hidden GPUDAYS_NVML
  # Without the library.
  export GPUDAYS_CUDA_PATH=$WORK/fake
  ln -s "$(readlink "$WORK/old/libcublasLt.so.13")" "$WORK/fake/libnvidia-ml.so.1"
  expect 3 bench "${tiny[@]}" --methods free-lunch --no-store
  said "gpudays: GPUDAYS_NVML=on cannot be had: NVML ($WORK/fake/libnvidia-ml.so.1) has no nvmlInit_v2"
  unset GPUDAYS_NVML
  clocks 0x48,990 --json
  field_is gpu_throttled_share null
  expect 0 doctor --threads 1
  shown "without it the GPU's clocks are not watched"
fi
