#!/usr/bin/env bash
# The tests of this folder without CMake, for a machine that has a GPU and the binaries alone.
#
# Usage: tests/gpu/run.sh [-j N] [-o FOLDER] BUILD [PATTERN...]
#   BUILD    where gpudays and tests/ are, build/dev as a rule
#   PATTERN  pieces whose names match one of these, such as 'cuda_ops*' or cuda_fused_1_2; none: all
#   -j N     so many at once (8)
#   -o       what each piece prints goes there, one file a piece; a fresh folder otherwise
#   -l       only list the pieces
# Kernels are compiled once for all pieces, into GD_TEST_CACHE where that is set.
# Exit 1 where a piece fails. One that is skipped, with its reason, does not.
set -euo pipefail
# shellcheck source=tests/gpu/common.sh
source "$(dirname "$0")/common.sh"

jobs=8
out=
list=
while getopts j:o:l option; do
  case $option in
  j) jobs=$OPTARG ;;
  o) out=$OPTARG ;;
  l) list=1 ;;
  *) exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || {
  sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
  exit 2
}
folder=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
shift

pieces() { # lines: name of the piece, program, argument
  local path name
  for path in "$folder"/test_*.c "$folder"/test_*.sh; do
    name=$(basename "${path%.*}")
    name=${name#test_}
    [[ $path == *.c ]] && path=$build/tests/gpu/test_$name
    if grep -q "^$name " "$folder/parts"; then
      sed -n "s/^$name //p" "$folder/parts" | while read -r argument; do
        echo "${name}_${argument//\//_} $path $argument"
      done
    else
      echo "$name $path"
    fi
  done
}

wanted() { # NAME PATTERN...
  local name=$1 pattern
  shift
  [ $# -gt 0 ] || return 0
  for pattern in "$@"; do
    # shellcheck disable=SC2053 # it is a pattern
    [[ $name == $pattern ]] && return 0
  done
  return 1
}

# shellcheck disable=SC2317 # xargs calls it
run() { # NAME PROGRAM [ARGUMENT]
  local start=$SECONDS status=0 verdict=passed
  local -a command=("$2")
  [[ $2 == *.sh ]] && command=(bash "$2")
  if [[ $2 != *.sh && ! -x $2 ]]; then
    echo "skipped: $2 is not there" >"$out/$1.log"
    status=77
  else
    timeout 600 bash "$folder/../../tools/run-test" "${command[@]}" "${@:3}" \
      >"$out/$1.log" 2>&1 || status=$?
  fi
  case $status in
  0) ;;
  77) verdict="skipped ($(grep -m 1 skipped "$out/$1.log" || true))" ;;
  124) verdict="FAILED: more than 600 s" ;;
  *) verdict="FAILED ($status)" ;;
  esac
  printf '%-22s %4d s  %s\n' "$1" $((SECONDS - start)) "$verdict"
  [[ $status == 0 || $status == 77 ]] || {
    grep -hE 'FAILED|ERROR|not |differ|Error|error' "$out/$1.log" | head -12 | sed 's/^/    /'
    return 1
  }
}

selected=$(pieces | while read -r line; do
  if wanted "${line%% *}" "$@"; then echo "$line"; fi
done)
[ -n "$selected" ] || {
  echo "no piece is called so; there are:"
  pieces | cut -d ' ' -f 1
  exit 2
}
if [ -n "$list" ]; then
  cut -d ' ' -f 1 <<<"$selected"
  exit 0
fi

prepare gpu-check
export GD_TEST_CACHE folder out
export GPUDAYS=$build/gpudays GD_SOURCE_DIR=${folder%/tests/gpu}
export -f run
echo "$(wc -l <<<"$selected") pieces, $jobs at once; logs in $out"
status=0
# The longest first: those of several ranks, then what is compiled most for.
{
  grep '^cuda_space' <<<"$selected" || true
  grep '^cuda_ops' <<<"$selected" || true
  grep -vE '^cuda_(space|ops|failures_real|rank_lost)' <<<"$selected" || true
} | xargs -r -P "$jobs" -L 1 bash -c 'run "$@"' run || status=1
# One takes all of the GPU's memory, the other waits a few seconds for ranks that share it: no other
# may run meanwhile.
{ grep -E '^cuda_(failures_real|rank_lost)' <<<"$selected" || true; } |
  xargs -r -L 1 bash -c 'run "$@"' run || status=1
conclude $status
