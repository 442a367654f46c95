#!/usr/bin/env bash
# The commands of docs/seeds.md run, and print what the page says that they print. The first one
# loads the trials that others are about. Those of `report` have tests of their own.
# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/cli/common.sh"
cd "$GD_SOURCE_DIR" || exit
export GPUDAYS_DB=$WORK/results.db

rows=0 before=
while IFS='|' read -r _ says state _ command prints _; do
  [[ $state =~ ^\ (same|differs|open)\ $ ]] || fail "docs/seeds.md: the state of \"$says\" is \"$state\""
  rows=$((rows + 1))
  command=${command//\`/} prints=${prints//\`/}
  read -r program arguments <<<"$command"
  prints=${prints# } prints=${prints% }
  [[ $program == gpudays ]] || fail "docs/seeds.md: no command for \"$says\""
  [[ $arguments == report\ * ]] && continue
  [[ -n $prints ]] || fail "docs/seeds.md: \"$says\": nothing is looked for"
  if [[ $arguments != "$before" ]]; then
    read -ra words <<<"$arguments"
    try "${words[@]}"
    tr -s ' ' <"$OUT" >"$WORK/squeezed" && cp "$WORK/squeezed" "$OUT" # of columns one blank is left
    before=$arguments
  fi
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  shown "$prints"
done < <(grep '^| ' docs/seeds.md | grep -v '^| it says ')
((rows >= 45)) || fail "docs/seeds.md has $rows rows"
