#!/usr/bin/env bash
# The library as it is installed: the header and pkg-config are all that a program needs, nothing
# but the API is exported, and the example of examples/ runs with the shared and the static library.
set -euo pipefail
build=$(dirname "$GPUDAYS")
root=$TMPDIR/root
source=$GD_SOURCE_DIR/examples/plan_and_train.c

fail() {
  echo "test_install: $*" >&2
  exit 1
}
[[ -e $build/libgpudays.so ]] || {
  echo "skipped: this build has no shared library"
  exit 77
}
command -v pkg-config >/dev/null || {
  echo "skipped: no pkg-config here"
  exit 77
}
# By components: the list of files of a whole installation is the user's, for `make uninstall`.
for component in runtime development; do
  DESTDIR=$root cmake --install "$build" --component $component --prefix /usr >"$TMPDIR/log"
done
pc=$(find "$root" -name gpudays.pc)
[[ -n $pc ]] || fail "gpudays.pc is not installed"
export PKG_CONFIG_PATH=${pc%/*}
lib=${pc%/pkgconfig/*}

# Exactly what the header declares.
nm -D --defined-only "$lib/libgpudays.so" | awk '{ print $3 }' | sort >"$TMPDIR/exported"
grep -ohE '\bgpd_[a-z_]+\(' "$GD_SOURCE_DIR/include/gpudays/gpudays.h" | tr -d '(' | sort -u >"$TMPDIR/declared"
diff "$TMPDIR/declared" "$TMPDIR/exported" >&2 || fail "declared (<) and exported (>) differ"
readelf -d "$lib/libgpudays.so" | grep 'SONAME.*libgpudays\.so\.[0-9]' >/dev/null || fail "no soname"
[[ $(pkg-config --modversion gpudays) == "$("$GPUDAYS" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -1)" ]] ||
  fail "the version of gpudays.pc is another"

read -ra flags < <(pkg-config --cflags --libs gpudays)
read -ra all < <(pkg-config --static --cflags --libs gpudays)
cc -std=c17 -Wall -Wextra -Wpedantic -Werror "$source" "${flags[@]}" -o "$TMPDIR/shared"
cc -std=c17 "$source" -Wl,-Bstatic "${flags[@]}" -Wl,-Bdynamic "${all[@]}" -o "$TMPDIR/static"
mkdir "$TMPDIR/home"
export HOME=$TMPDIR/home XDG_DATA_HOME=$TMPDIR/home XDG_CONFIG_HOME=$TMPDIR/home
for kind in shared static; do
  LD_LIBRARY_PATH=$lib "$TMPDIR/$kind" "$GD_SOURCE_DIR/tests/reference/neox-tied" >"$TMPDIR/$kind.txt" ||
    fail "the $kind example fails"
done
ldd "$TMPDIR/static" | grep gpudays >/dev/null && fail "the static example loads the shared library"
cat "$TMPDIR/shared.txt"
diff "$TMPDIR/shared.txt" "$TMPDIR/static.txt" || fail "shared and static differ"
grep -q '^free-lunch+zero1 on 4 x .*A100' "$TMPDIR/shared.txt" || fail "no plan"
grep -qE '^[0-9.]+ days \(' "$TMPDIR/shared.txt" || fail "no prediction"
grep -q '^verify: ok' "$TMPDIR/shared.txt" || fail "not verified"
awk '/^step/ { if (n++ && $4 >= last) exit 1; last = $4 } END { exit n != 5 }' "$TMPDIR/shared.txt" ||
  fail "the loss does not fall in five steps"
# Errors are the caller's to see: one sentence, and a status.
if LD_LIBRARY_PATH=$lib "$TMPDIR/shared" /nonexistent >"$TMPDIR/out" 2>"$TMPDIR/err"; then
  fail "a folder that is not there is fine"
fi
grep -q '(bad input)\|(environment)' "$TMPDIR/err" || fail "no status: $(cat "$TMPDIR/err")"
