#!/usr/bin/env bash
# The op tests and the fused ones under compute-sanitizer: a sample of their cases, each with the
# kernels it has for aligned tensors, for others and for sums onto memory. Every tensor is an
# allocation of its own, of exactly its size, so a read one element past an end is seen too.
#
# Usage: tests/gpu/sanitize.sh [-t TOOL] [-n N] [-o FOLDER] BUILD [PIECE...]
#   BUILD    where tests/ is, build/dev as a rule
#   PIECE    of attention, gemms, scan, rest, fused; none: all, side by side
#   -t TOOL  memcheck, racecheck, initcheck or synccheck (memcheck)
#   -n N     every Nth case (attention 7, the others 5); 1 takes all but the large ones
#   -o       what each piece prints goes there, one file a piece; a fresh folder otherwise
# Kernels are compiled before, without the tool, into GD_TEST_CACHE where that is set.
set -euo pipefail
# shellcheck source=tests/gpu/common.sh
source "$(dirname "$0")/common.sh"

tool=memcheck
every=
out=
while getopts t:n:o: option; do
  case $option in
  t) tool=$OPTARG ;;
  n) every=$OPTARG ;;
  o) out=$OPTARG ;;
  *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}
build=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- attention gemms scan rest fused

sanitizer=$(command -v compute-sanitizer || true)
for path in /usr/local/cuda/bin /usr/local/cuda*/bin /usr/local/cuda*/compute-sanitizer; do
  [ -n "$sanitizer" ] || [ ! -x "$path/compute-sanitizer" ] || sanitizer=$path/compute-sanitizer
done
[ -n "$sanitizer" ] || {
  echo "skipped: compute-sanitizer was not found (it comes with the CUDA toolkit)"
  exit 77
}

prepare sanitize
# Timing candidates under the tool would choose at random, and take long.
export XDG_CACHE_HOME=$GD_TEST_CACHE GPUDAYS_DETERMINISTIC=1
export GD_TEST_APART=1

check() { # PIECE: exit 77 is a skip
  local start=$SECONDS log=$out/$1.log status=0
  local -a command=("$build/tests/gpu/test_cuda_ops" "$1")
  local GD_TEST_BRIEF=${every:-$([ "$1" = attention ] && echo 7 || echo 5)}
  export GD_TEST_BRIEF
  [ "$1" != fused ] || command=("$build/tests/gpu/test_cuda_fused")
  GD_TEST_BUILD=1 "${command[@]}" >"$log" 2>&1 || status=$?
  local built=$SECONDS
  [ $status != 0 ] ||
    timeout 580 "$sanitizer" --tool "$tool" --target-processes application-only \
      --report-api-errors no --error-exitcode 99 --print-limit 20 "${command[@]}" >>"$log" 2>&1 ||
    status=$?
  local verdict="passed" summary
  summary=$(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -1 | sed 's/^=* *//' || true)
  case $status in
  0) [ -n "$summary" ] || { verdict="FAILED: $tool said nothing" && status=1; } ;;
  77) verdict=$(grep -m 1 skipped "$log" || echo skipped) ;;
  99) verdict="FAILED: $tool found something" ;;
  124) verdict="FAILED: more than 580 s" ;;
  *) verdict="FAILED ($status)" ;;
  esac
  printf '%-10s %3d s, %d of them compiling  %s  %s\n' "$1" $((SECONDS - start)) \
    $((built - start)) "$verdict" "$summary"
  [[ $status == 0 || $status == 77 ]] && return
  grep -E -m 12 '=========|ERROR|not ' "$log" | sed 's/^/    /'
  return 1
}

echo "$tool: $*; logs in $out"
failed=0
pids=()
for piece in "$@"; do
  check "$piece" &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid" || failed=1
done
conclude $failed
