#!/usr/bin/env bash
# The planner for browsers (build/planner.html, tools/planner) in headless Chromium: it answers questions
# with the native program's digits, asks no host for anything, and is used by keyboard, on a phone, in
# light, dark and print. Skipped where the page cannot be built; with GD_TEST_ALL what it needs is
# installed first.
# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/cli/common.sh"

skip() {
  echo "skipped: $*"
  exit 77
}

browser=
for name in chromium chromium-browser google-chrome; do
  [[ -n $browser ]] || browser=$(command -v "$name" || true)
done
[[ -n $browser ]] || skip "no Chromium here; apt-get install chromium"

# A page of older sources answers an older question: what can be built is built.
page=$GD_SOURCE_DIR/build/planner.html log=$WORK/log
if "$GD_SOURCE_DIR/tools/planner" --check 2>"$log"; then
  "$GD_SOURCE_DIR/tools/planner" 2>"$log" || { cat "$log" >&2; fail "tools/planner"; }
elif [[ -n ${GD_TEST_ALL:-} ]]; then
  timeout 900 "$GD_SOURCE_DIR/tools/setup" --planner >"$log" 2>&1 || skip "emscripten cannot be installed here"
  timeout 300 "$GD_SOURCE_DIR/tools/planner" --fetch >"$log" 2>&1 || skip "the sources of jansson cannot be had here"
  "$GD_SOURCE_DIR/tools/planner" 2>"$log" || { cat "$log" >&2; fail "tools/planner"; }
elif [[ ! -e $page ]]; then
  skip "neither build/planner.html nor what builds it is here; make planner"
elif ! grep -F "$("$GPUDAYS" --version)" "$page" >/dev/null; then
  skip "build/planner.html is of other sources than this program; make planner"
fi
command -v node >/dev/null || skip "no node here; emscripten brings one"

node "$GD_SOURCE_DIR/tests/web/planner.js" "$browser" "$page" "$GPUDAYS" "$WORK/profile"
