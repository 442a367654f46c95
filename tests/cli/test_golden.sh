#!/usr/bin/env bash
# Output that must not change by accident, compared with golden/*.txt.
# After a change on purpose: GPUDAYS=build/dev/gpudays tests/cli/test_golden.sh --update
GD_SOURCE_DIR=${GD_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
golden=$GD_SOURCE_DIR/tests/cli/golden

# golden NAME ARGUMENT...: the first line of the file says where it comes from.
golden() {
  local file=$golden/$1.txt
  shift
  expect 0 "$@"
  if [[ $update == --update ]]; then
    { echo "# gpudays $* (written by tests/cli/test_golden.sh --update)" && cat "$OUT"; } >"$file"
    return
  fi
  [[ -f $file ]] || fail "$file is missing; run tests/cli/test_golden.sh --update"
  tail -n +2 "$file" >"$WORK/golden"
  diff "$WORK/golden" "$OUT" >"$ERR" || fail "$LAST: differs from $file"
}
update=${1:-}
golden help help
for command in models gpus estimate plan bench results best export cost survey tokens report verify fit accuracy doctor schema completion help; do
  golden "help_$command" help "$command"
done
golden help_methods help methods
golden help_passes help passes
golden models_pythia-160m models pythia-160m
golden models_pythia-160m_json models pythia-160m --json
golden models_pythia-160m_csv models pythia-160m --csv
