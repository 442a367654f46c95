#!/usr/bin/env bash
# The answers that README.md shows are what the program prints, up to numbers. The measured one is part of
# `make check-all`. After a change on purpose: make readme
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

blocks=(days fit cost size)
[[ -z ${GD_TEST_ALL:-} ]] || blocks+=(quickstart)
"$GD_SOURCE_DIR/tools/readme" "$GPUDAYS" --check "${blocks[@]}" >"$OUT" 2>"$ERR" || fail "README.md is not what the program says"

# The check finds a line that is not there, and a word.
mkdir -p "$WORK/tree/tools"
cp "$GD_SOURCE_DIR/tools/readme" "$WORK/tree/tools"
for change in '/^  trust  /d' 's/compiled and fused/fused/'; do
  sed "$change" "$GD_SOURCE_DIR/README.md" >"$WORK/tree/README.md"
  cmp -s "$WORK/tree/README.md" "$GD_SOURCE_DIR/README.md" && fail "$change changes nothing"
  ! "$WORK/tree/tools/readme" "$GPUDAYS" --check days >"$OUT" 2>"$ERR" || fail "$change is not noticed"
done
# It writes what it would accept.
"$WORK/tree/tools/readme" "$GPUDAYS" days >"$OUT" 2>"$ERR" || fail "the block cannot be written"
"$WORK/tree/tools/readme" "$GPUDAYS" --check days >"$OUT" 2>"$ERR" || fail "what was written is not accepted"
