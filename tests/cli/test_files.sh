#!/usr/bin/env bash
# Files of every command that writes one, by one rule: links are followed, devices are written and
# never replaced, folders are refused, the system's reason is said. And what others wrote: it cannot
# draw on a terminal, run in a spreadsheet, or take minutes.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
cd "$WORK" || exit
cp "$GD_SOURCE_DIR/tests/cli/results.jsonl" results.jsonl
expect 0 results load results.jsonl
export_to=(export pythia-14m --methods naive --quiet --format hf -o)

# Each command that writes a file, by a name; command_of says how it is asked to.
writers=(save export template synthetic accuracy)
command_of() { # NAME TARGET: in ARGUMENTS
  case $1 in
  save) ARGUMENTS=(results save "$2") ;;
  export) ARGUMENTS=("${export_to[@]}" "$2") ;;
  template) ARGUMENTS=(survey --template -o "$2") ;;
  synthetic) ARGUMENTS=(survey --synthetic 2 -o "$2") ;;
  accuracy) ARGUMENTS=(accuracy -o "$2") ;;
  esac
}

for writer in "${writers[@]}"; do
  # A link: its target gets the text and keeps its permissions.
  rm -rf to && mkdir to && echo old >to/target && chmod 640 to/target && ln -s target to/link
  command_of "$writer" to/link
  expect 0 "${ARGUMENTS[@]}"
  [[ -L to/link && $(stat -c %a to/target) == 640 ]] || fail "$LAST: the link or the mode is gone"
  [[ $(wc -l <to/target) -gt 0 && $(head -1 to/target) != old ]] || fail "$LAST: the target is old"
  [[ $(find to | wc -l) == 3 ]] || fail "$LAST: something is left next to the file"
  # A link to nothing, a folder, a folder that is not there.
  ln -s nowhere to/dangling
  command_of "$writer" to/dangling
  expect 3 "${ARGUMENTS[@]}"
  said "to/dangling is a symbolic link to a file that is not there; remove it"
  command_of "$writer" to
  expect 2 "${ARGUMENTS[@]}"
  said "to is a folder; name a file"
  command_of "$writer" no/such
  expect 3 "${ARGUMENTS[@]}"
  said "cannot write no/such: No such file or directory"
  # A device: written, and still there.
  if [[ -w /dev/full ]]; then
    ln -s /dev/full to/full
    for target in /dev/full to/full; do
      command_of "$writer" "$target"
      expect 3 "${ARGUMENTS[@]}"
      said "cannot write $target: No space left on device"
      [[ -c /dev/full && -L to/full ]] || fail "$LAST: the device was replaced"
    done
  fi
  command_of "$writer" /dev/null
  expect 0 "${ARGUMENTS[@]}"
  [[ -c /dev/null ]] || fail "$LAST: /dev/null was replaced"
  # Standard output, by both names, and nothing but the text.
  command_of "$writer" to/whole
  expect 0 "${ARGUMENTS[@]}"
  for target in - /dev/stdout; do
    command_of "$writer" "$target"
    expect 0 "${ARGUMENTS[@]}"
    cmp -s "$OUT" to/whole || fail "$LAST: stdout is not the file"
  done
  # A pipe.
  command_of "$writer" /dev/fd/3
  "$GPUDAYS" "${ARGUMENTS[@]}" 3>&1 >/dev/null 2>"$ERR" | cmp -s - to/whole || fail "$writer: not through a pipe"
done
for wrong in "report --no-store -o -" "survey results.jsonl -o -" "calibrate -o -"; do
  # shellcheck disable=SC2086
  expect 2 $wrong
done

# As a user without permissions: the reason is the system's, whatever was tried on the way.
if [[ $(id -u) == 0 ]] && command -v setpriv >/dev/null &&
  setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$GPUDAYS" 2>/dev/null; then
  open=$(mktemp -d /tmp/gpudays-files-XXXXXX)
  trap 'rm -rf "$WORK" "$open"' EXIT
  chmod 755 "$open"
  mkdir -m 777 "$open/home"
  mkdir "$open/locked" "$open/model"
  tiny_config "$open/model" && chmod 000 "$open/model/config.json"
  tiny_config "$open/locked/model" && chmod 700 "$open/locked"
  echo old >"$open/file"
  cp results.jsonl "$open/results.jsonl" && chmod 644 "$open/results.jsonl"
  cat >"$open/gpudays" <<END
#!/bin/sh
export HOME="$open/home" TMPDIR=/tmp
unset XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$GPUDAYS" "\$@"
END
  chmod 755 "$open/gpudays"
  theirs=$GPUDAYS GPUDAYS=$open/gpudays
  expect 0 results load "$open/results.jsonl"
  for target in new file locked/new; do
    for writer in "${writers[@]}"; do
      command_of "$writer" "$open/$target"
      expect 3 "${ARGUMENTS[@]}"
      said "cannot write $open/$target: Permission denied"
    done
  done
  [[ $(cat "$open/file") == old ]] || fail "a file of another user was replaced"
  expect 3 report --no-store -o "$open/new"
  said "cannot make the folder $open/new: Permission denied"
  expect 3 results --store "$open/new/db"
  said "cannot make the folder $open/new for results: Permission denied"
  for model in model locked/model locked/model/config.json; do
    expect 2 plan "$open/$model"
    said "cannot be opened: Permission denied"
  done
  expect 2 survey "$open/locked/answers.csv"
  said "Permission denied"
  expect 2 results load "$open/locked/results.jsonl"
  said "Permission denied"
  GPUDAYS=$theirs
else
  echo "skipped in part: not root, or no setpriv: no other user to try"
fi

# Names with characters that would turn the terminal around: on no stream, in no format.
evil=$'m\e]0;t\a\e[2J\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8f\xc2\x9bx'
tiny_config "$evil"
clean() {
  ! LC_ALL=C grep -qP '\x1b|\x07|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\xc2[\x80-\x9f]' \
    "$OUT" "$ERR" || fail "$LAST: control characters in the output"
}
for arguments in "plan" "plan --json" "plan --csv" "plan --explain" "estimate" "bench --no-store --sample-seconds 0.1"; do
  # shellcheck disable=SC2086
  try ${arguments%% *} "./$evil" --seq 8 --batch 4 --steps 10 ${arguments#* }
  clean
done
for arguments in "plan $evil-no" "survey $evil.csv" "results load $evil" "gpus --check $evil" "$evil" \
  "plan --$evil" "results save $evil/x/y" "bench $evil --methods $evil" "verify $evil"; do
  # shellcheck disable=SC2086
  try $arguments
  [[ $RC != 0 ]] || fail "$LAST: it worked"
  clean
done

# Cells that a spreadsheet would run.
cp -r "$evil" '=SUM(1)'
expect 0 plan './=SUM(1)' --seq 8 --batch 4 --steps 10 --csv
! grep -qE '(^|,)"?=' "$OUT" || fail "a cell is a formula"

# Two megabytes that hold nothing: an answer at once.
# in_time WHAT FILE: within two seconds of CPU time, whatever other work the machine has.
in_time() {
  local TIMEFORMAT='%U %S'
  { time try survey "$2"; } 2>"$WORK/times"
  [[ $RC == 2 || $RC == 0 ]] || fail "$1: exit $RC"
  awk '{ exit !($1 + $2 < 2) }' "$WORK/times" || fail "$1: took $(cat "$WORK/times") s of CPU time"
}
head -c 2000000 /dev/zero | tr '\0' ',' >commas.csv
in_time "2 MB of commas" commas.csv
"$GPUDAYS" survey --template >header.csv
columns=$(head -1 header.csv | tr -cd ',' | wc -c)
for part in 'a;' 'robots on the moon;' ','; do # in one cell of several answers
  {
    cat header.csv
    printf 'a,PhD student,"'
    { yes "$part" || true; } | tr -d "\n" | head -c 2000000 || true
    printf '"%s\n' "$(printf ',%.0s' $(seq 3 "$columns"))"
  } >cell.csv
  in_time "2 MB of '$part' in a cell" cell.csv
done

# Neither the store nor what a command reads is written over, by whatever name.
mkdir apart && ln -s q.db apart/link && cp "$GD_SOURCE_DIR/tests/cli/results.jsonl" apart/q.jsonl
expect 0 results load apart/q.jsonl --store apart/q.db
sum=$(sha256sum <apart/q.db)
for target in apart/q.db ./apart/q.db apart/link apart/q.db-wal apart/q.db-shm apart/q.db-journal; do
  for store in apart/q.db apart/link; do
    expect 2 results save "$target" --store "$store"
    said "the store of results, and is not written over; name another file"
    expect 2 "${export_to[@]}" "$target" --store "$store"
    said "the store of results, and is not written over"
    expect 2 accuracy --store "$store" -o "$target"
    said "the store of results, and is not written over"
  done
  GPUDAYS_DB=apart/q.db expect 2 survey --template -o "$target"
  said "the store of results, and is not written over"
done
ln apart/q.db apart/index.html
expect 2 report -o apart --store apart/q.db --no-predictions
said "apart/index.html is the store of results"
[[ $(sha256sum <apart/q.db) == "$sum" ]] || fail "the store was changed"
tiny_config apart/tiny
cp apart/tiny/config.json apart/before.json
for model in apart/tiny apart/tiny/config.json; do
  expect 2 export "$model" --methods naive --quiet --format hf -o apart/tiny/./config.json
  said "apart/tiny/./config.json is a file that this command reads, and is not written over"
done
cmp -s apart/tiny/config.json apart/before.json || fail "the configuration was changed"
expect 0 results --csv --store apart/q.db
cp "$OUT" apart/q.csv
expect 2 accuracy apart/q.csv -o apart/q.csv
said "apart/q.csv is a file that this command reads"
