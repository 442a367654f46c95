# Shared by run.sh and sanitize.sh: where logs and compiled kernels go.
# shellcheck shell=bash

prepare() { # NAME: sets out, unless it is set, and GD_TEST_CACHE, which is removed where it is ours
  [ -n "${out:-}" ] || out=$(mktemp -d "${TMPDIR:-/tmp}/$1.XXXXXX")
  mkdir -p "$out"
  if [ -z "${GD_TEST_CACHE:-}" ]; then
    GD_TEST_CACHE=$(mktemp -d)
    trap 'rm -rf "$GD_TEST_CACHE"' EXIT
  fi
  export OMP_WAIT_POLICY=passive
}

conclude() { # STATUS
  echo "$SECONDS s in all: $([ "$1" = 0 ] && echo passed || echo FAILED)"
  exit "$1"
}
