#!/usr/bin/env bash
# The version that the build writes: that of CMakeLists.txt alone, with what git says of the commit; a tag that says
# another version ends the build; an archive of git knows its commit.
set -euo pipefail
for tool in git cmake; do
  command -v "$tool" >/dev/null || {
    echo "skipped: no $tool here"
    exit 77
  }
done
script=$GD_SOURCE_DIR/cmake/write_version.cmake
tree=$TMPDIR/tree
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b \
  GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

fail() {
  echo "test_version: $*" >&2
  exit 1
}

write() { # VERSION [FOLDER]
  rm -f "$TMPDIR/version.h" "$TMPDIR/version.cmake"
  cmake "-DVERSION=$1" "-DSOURCE_DIR=${2:-$tree}" "-DGIT=$(command -v git)" "-DOUTPUT=$TMPDIR/version.h" \
    "-DPACKAGES=$TMPDIR/version.cmake" -P "$script"
}

# expect VERSION COMMIT SOURCE PACKAGE [FOLDER]
expect() {
  write "$1" "${5:-$tree}" || fail "cmake failed"
  local name said
  for name in "VERSION $1" "COMMIT $2" "SOURCE $3"; do
    said=$(sed -n "s/^#define GD_${name% *} \"\([^\"]*\)\".*/\1/p" "$TMPDIR/version.h")
    [[ $said == "${name#* }" ]] || fail "GD_${name% *} is '$said', not '${name#* }'"
  done
  said=$(sed -n 's/^set(GD_PACKAGE_VERSION "\(.*\)")$/\1/p' "$TMPDIR/version.cmake")
  [[ $said == "$4" ]] || fail "the version of packages is '$said', not '$4'"
}
commit() {
  git -C "$tree" commit -q --allow-empty -m "$1"
  head=$(git -C "$tree" rev-parse --short=12 HEAD)
}

mkdir -p "$tree/cmake"
cp "$GD_SOURCE_DIR/cmake/archived.txt" "$tree/cmake/"
cp "$GD_SOURCE_DIR/.gitattributes" "$tree/"
expect 0.1.0 unknown unknown 0.1.0
git -C "$tree" init -q
git -C "$tree" add .
commit one
expect 0.1.0 "$head" "$head" "0.1.0~1.g$head"
commit two
expect 0.1.0 "$head" "$head" "0.1.0~2.g$head"
git -C "$tree" tag v0.1.0
expect 0.1.0 "$head" v0.1.0 0.1.0
if write 0.2.0 2>"$TMPDIR/err"; then
  fail "a tag of another version is fine"
fi
grep -q 'the tag is v0.1.0' "$TMPDIR/err" || fail "the sentence does not name the tag: $(<"$TMPDIR/err")"

# As a release is downloaded, with no git around it.
git -C "$tree" archive --prefix=archive/ HEAD | tar -x -C "$TMPDIR"
expect 0.1.0 "$head" v0.1.0 0.1.0 "$TMPDIR/archive"
commit three
expect 0.1.0 "$head" "v0.1.0-1-g$head" "0.1.0+1.g$head"
expect 0.2.0 "$head" "v0.1.0-1-g$head" "0.2.0~1.g$head"
echo "changed" >>"$tree/cmake/archived.txt"
expect 0.1.0 "$head-dirty" "v0.1.0-1-g$head-dirty" "0.1.0+1.g$head.dirty"
if command -v dpkg >/dev/null; then # the order that packages are updated in
  dpkg --compare-versions "0.1.0~2.gf" lt 0.1.0 || fail "what is before the tag is newer than it"
  dpkg --compare-versions "0.1.0+1.g0" gt 0.1.0 || fail "what is after the tag is older than it"
  dpkg --compare-versions "0.2.0~1.g0" gt "0.1.0+9.gf" || fail "the next version is older"
fi

# The program says what was built.
said=$("$GPUDAYS" --version)
[[ $said =~ ^gpudays\ ([0-9.]+)\ \((v([0-9.]+)(-[0-9]+-g[0-9a-f]{12,})?|[0-9a-f]{12,}|unknown)(-dirty)?\)$ ]] ||
  fail "--version says '$said'"
project=$(sed -n 's/^project(gpudays VERSION \([0-9.]*\).*/\1/p' "$GD_SOURCE_DIR/CMakeLists.txt")
[[ ${BASH_REMATCH[1]} == "$project" ]] || fail "--version is not that of CMakeLists.txt, $project"
