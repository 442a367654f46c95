#!/usr/bin/env bash
# What is installed is removed again, and nothing else; a program that was moved runs.
set -euo pipefail
build=$(dirname "$GPUDAYS")
root=$TMPDIR/root
[[ -f $build/cmake_install.cmake && -f $build/gpudays.1 ]] || {
  echo "skipped: nothing to install in this build"
  exit 77
}

fail() {
  echo "test_uninstall: $*" >&2
  exit 1
}
installed() { (cd "$root" && find . -type f -o -type l | sort); }

# The component's list is a file of its own: that of the user's installation stays.
mkdir -p "$root/usr/bin" "$root/usr/share/man/man1"
touch "$root/usr/bin/other" "$root/usr/share/man/man1/other.1"
others=$(installed)
DESTDIR=$root cmake --install "$build" --component program --prefix /usr >"$TMPDIR/log"
for file in bin/gpudays share/man/man1/gpudays.1 share/bash-completion/completions/gpudays \
  share/zsh/site-functions/_gpudays share/fish/vendor_completions.d/gpudays.fish; do
  [[ -f $root/usr/$file ]] || fail "$file is not installed"
done
mkdir "$TMPDIR/elsewhere" "$TMPDIR/home"
cp "$root/usr/bin/gpudays" "$TMPDIR/elsewhere/"
(cd / && HOME=$TMPDIR/home XDG_DATA_HOME=$TMPDIR/home "$TMPDIR/elsewhere/gpudays" models >"$TMPDIR/models") ||
  fail "the program does not run in another folder"
grep -q '^pythia-410m' "$TMPDIR/models" || fail "the moved program has no presets"

# Two lists that lead to the same files: the second removes nothing.
cp "$build/install_manifest_program.txt" "$TMPDIR/list"
remove() { DESTDIR=$root cmake "-DMANIFEST=$1" -P "$GD_SOURCE_DIR/cmake/uninstall.cmake" >"$TMPDIR/log" 2>&1; }
cp "$TMPDIR/list" "$TMPDIR/again"
remove "$TMPDIR/list" || fail "uninstalling fails: $(<"$TMPDIR/log")"
[[ $(installed) == "$others" ]] || fail "left, or removed too much: $(installed)"
remove "$TMPDIR/again" || fail "uninstalling twice fails"
grep -q Removed "$TMPDIR/log" && fail "something was removed twice"
if remove "$TMPDIR/list"; then
  fail "uninstalling without a list is fine"
fi
grep -q "make install" "$TMPDIR/log" || fail "the sentence does not say what writes the list: $(<"$TMPDIR/log")"
