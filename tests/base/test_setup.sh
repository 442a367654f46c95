#!/usr/bin/env bash
# tools/setup where nothing can be installed: exit 3, what is missing, how to get it without root, and what needs no
# building. It runs on a PATH of its own, with what a bare system has and a compiler that is made up.
set -euo pipefail
bin=$TMPDIR/bin
mkdir "$bin" "$TMPDIR/home"
for tool in bash env sed grep sort head tail uname mktemp rm dirname cat true; do
  ln -s "$(type -P $tool)" "$bin/$tool"
done

fail() {
  echo "test_setup: $*" >&2
  sed 's/^/  /' "$TMPDIR/out" >&2
  exit 1
}
fake() { # NAME LINE...
  printf '#!%s\n' "$BASH" >"$bin/$1"
  printf '%s\n' "${@:2}" >>"$bin/$1"
  chmod +x "$bin/$1"
}
# setup CODE ARGUMENT...
setup() {
  local code=0
  env -i HOME="$TMPDIR/home" PATH="$bin" TMPDIR="$TMPDIR" "${variables[@]}" "${as[@]}" \
    bash "$GD_SOURCE_DIR/tools/setup" "${@:2}" >"$TMPDIR/out" 2>&1 </dev/null || code=$?
  ((code == $1)) || fail "tools/setup ${*:2} exits $code, not $1"
}
said() { grep -qF -- "$1" "$TMPDIR/out" || fail "it does not say: $1"; }
unsaid() { ! grep -qF -- "$1" "$TMPDIR/out" || fail "it says: $1"; }
variables=(LC_ALL=C) as=()

# Only a compiler.
fake cc 'exit 0'
setup 3 --build
said "no apt-get; 6 of the above"
said "missing: cmake (build description, at least 3.22)"
said "pip install --user cmake ninja"
said "conda install -c conda-forge pkg-config jansson util-linux sqlite"
said "apt-get install cmake ninja-build pkg-config libjansson-dev libsmartcols-dev libsqlite3-dev"
said "tools/package tarball"
unsaid "gcc"
for later in gnuplot openmpi chromium cmocka turbojpeg; do # asked for when they are needed
  unsaid "$later"
done
setup 1 --build --check
setup 3
said "gnuplot-nox"
said "openmpi-bin"
variables+=(GD_RELEASES=https://example.org/v1)
setup 3 --build
said "curl -fL https://example.org/v1/gpudays-"
unset 'variables[1]'

# What pip and conda have installed is used, too old a cmake is not.
mkdir -p "$TMPDIR/home/.local/bin"
fake cmake 'echo cmake version 3.21.7'
setup 3 --build
said "missing: cmake (build description, at least 3.22)"
fake cmake 'echo cmake version 3.22.0'
fake ninja 'exit 0'
mv "$bin/cmake" "$bin/ninja" "$TMPDIR/home/.local/bin/"
setup 3 --build
said "4 of the above"
unsaid "pip install"
# A pkg-config that finds what is in the folder of the environment.
# shellcheck disable=SC2016
fake pkg-config 'IFS=:; for folder in $PKG_CONFIG_PATH; do [[ ! -e $folder/$2.pc ]] || exit 0; done; exit 1'
mkdir -p "$TMPDIR/conda/lib/pkgconfig"
touch "$TMPDIR/conda/lib/pkgconfig"/{jansson,smartcols}.pc
variables+=("CONDA_PREFIX=$TMPDIR/conda")
setup 3 --build
said "missing: libsqlite3-dev"
unsaid "missing: libjansson-dev"
touch "$TMPDIR/conda/lib/pkgconfig/sqlite3.pc"
setup 0 --build
said "everything is there"
rm "$bin/cc"
setup 3 --build
said "conda install -c conda-forge c-compiler"
variables+=("CC=$bin/other-cc")
fake other-cc 'exit 0'
setup 0 --build
rm "$TMPDIR/conda/lib/pkgconfig/sqlite3.pc"

# With apt, but without root: no sudo, then one that refuses. Nothing is installed.
fake apt-get "touch '$TMPDIR/installed'"
fake dpkg-query 'exit 1'
if ((EUID == 0)); then
  command -v setpriv >/dev/null || {
    echo "skipped in part: this is root, and there is no setpriv to be somebody else"
    exit 0
  }
  chmod 777 "$TMPDIR"
  as=("$(command -v setpriv)" --reuid 65534 --regid 65534 --clear-groups)
  "${as[@]}" test -r "$GD_SOURCE_DIR/tools/setup" -a -x "$bin/cc" -o -r "$bin/other-cc" || {
    echo "skipped in part: another user cannot read this folder"
    exit 0
  }
fi
setup 3 --build
said "neither root nor sudo; 1 of the above"
said "conda install -c conda-forge sqlite"
fake sudo 'exit 1'
setup 3 --build
said "sudo is refused"
[[ ! -e $TMPDIR/installed ]] || fail "apt-get was run"
# And with root's rights, apt-get gets exactly what is missing.
# shellcheck disable=SC2016
fake sudo '[[ $1 != -n ]] || shift; exec "$@"'
# shellcheck disable=SC2016
fake apt-get 'echo "apt-get $*" >&2; exit 1'
setup 3 --build
said "apt-get update failed"
