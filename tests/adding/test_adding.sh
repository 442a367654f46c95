#!/usr/bin/env bash
# docs/adding.md is true: a copy of the tree gets an op, a family, a part of a method and a GPU by the
# edits of this folder's scripts, which touch exactly the files that it names, and then builds and uses them.
# Takes minutes, so it is part of `make check-all` (GD_TEST_ALL).
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "$0")" && pwd)
: "${GD_SOURCE_DIR:?is the root of the source}"
[[ -n ${GD_TEST_ALL:-} ]] || {
  echo "skipped: builds a copy of the tree; GD_TEST_ALL=1 runs it"
  exit 77
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# What git would commit, or all but builds where this is no checkout.
mkdir "$work/tree" "$work/touched"
cd "$GD_SOURCE_DIR"
if git rev-parse --git-dir >/dev/null 2>&1; then
  git ls-files -z --cached --others --exclude-standard | while IFS= read -rd '' path; do
    [[ ! -e $path ]] || printf '%s\0' "$path"
  done >"$work/files"
else
  find . -path ./build -prune -o -path ./.git -prune -o -type f -print0 >"$work/files"
fi
tar -c --null -T "$work/files" | tar -x -C "$work/tree"
cd "$work/tree"

# --- edits ---

# insert_before FILE PATTERN [LINES]: stdin goes before the one line that matches, or so many lines above it.
insert_before() {
  local lines
  lines=$(grep -nE -- "${2//\(/\\(}" "$1" | cut -d : -f 1)
  [[ $lines =~ ^[0-9]+$ ]] || fail "$1 has not one line '$2'"
  cat >"$work/text"
  sed -i "$((lines - ${3:-0} - 1))r $work/text" "$1"
  echo "$1" >>"$work/touched/$part"
}
# edit FILE FROM TO: a text that stands in one line of the file.
edit() {
  [[ $(grep -cF -- "$2" "$1") == 1 ]] || fail "$1 has not one line with '$2'"
  sed -i "s/$2/$3/" "$1"
  echo "$1" >>"$work/touched/$part"
}
new_file() { # FILE: as it is in tree/ of this folder
  [[ ! -e $1 ]] || fail "$1 is there already"
  cp "$here/tree/$1" "$1"
  echo "$1" >>"$work/touched/$part"
}

# named TITLE: the files that its first sentence names for it; tools are no edits.
# shellcheck disable=SC2016 # backticks of Markdown
named() {
  awk -v title="- **$1**" 'index($0, title) == 1 { on = 1; print; next } on && /^(-|#|$)/ { exit } on' docs/adding.md |
    tr '\n' ' ' | sed 's/[.] .*//' | grep -oE '`[a-z]+/[A-Za-z0-9_./-]+`' | tr -d '`' | grep -v '^tools/' | sort -u
}
for part in op family method gpu; do
  case $part in
  op) title="An op" ;;
  family) title="A family" ;;
  method) title="A part of a method" ;;
  gpu) title="A GPU" ;;
  esac
  # shellcheck source=/dev/null
  source "$here/$part.sh"
  diff <(sort -u "$work/touched/$part") <(named "$title") >"$work/differs" ||
    fail "the edits for '$title' (<) are not those of docs/adding.md (>):" "$(grep '^[<>]' "$work/differs")"
done

# --- build ---

# Nothing here is timed: as fast to build as can be. Without optimisation intrinsics warn, so warnings are none.
if ! { cmake -S . -B build -G Ninja -DCMAKE_C_FLAGS_RELWITHDEBINFO=-O0 -DGD_WERROR=OFF &&
  cmake --build build --target gpudays test_op_cpu_ops test_grad_grad test_methods_parts test_hw_hw test_model_recipes; } >"$work/log" 2>&1; then
  fail "the copy does not build: $(grep -m 5 -E ' error: |undefined reference|CMake Error' "$work/log")"
fi

# --- use ---

export XDG_DATA_HOME=$work/data XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache GPUDAYS_DB=$work/results.db
program=build/gpudays
run() { "$program" "$@" >"$work/out" 2>&1 || fail "gpudays $*: $(cat "$work/out")"; }
shows() { grep -qE -- "$1" "$work/out" || fail "the answer lacks '$1': $(cat "$work/out")"; }

build/tests/op/test_cpu_ops test_sub >"$work/out" 2>&1 || fail "the op differs from ref: $(cat "$work/out")"
shows 'OK *\] test_sub'
build/tests/grad/test_grad >"$work/out" 2>&1 || fail "its gradient is wrong: $(tail -5 "$work/out")"
for name in methods/test_parts hw/test_hw model/test_recipes; do
  (cd build && "tests/$name") >"$work/out" 2>&1 || fail "$name: $(grep -m 3 -F -e '---' "$work/out")"
done
run models toy
shows 'Toy'
run gpus toy-gpu
shows 'NVIDIA Toy 48 GB'
run plan toy --methods free-lunch+nodecay --explain
shows '= sub\('
run plan toy --gpu toy-gpu --count 2 --methods free-lunch+nodecay+zero1 --json
shows '"feasible": true'
shows '"method": "free-lunch\+nodecay\+zero1"|"method": "free-lunch\+zero1\+nodecay"'
run bench toy --backend cpu --methods naive,free-lunch+nodecay --sample-seconds 0.2
shows 'nodecay'
