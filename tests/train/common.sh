# What the tests of `gpudays train` share: a tiny model, token files, and what a run leaves.
# shellcheck shell=bash
# shellcheck source=/dev/null
source "$(dirname "${BASH_SOURCE[0]}")/../cli/common.sh"

tiny_config "$WORK/tiny"
# 20,000 ids below 64 as raw uint16: a walk that a model can learn. printf writes NUL bytes.
ids() { # START
  awk -v x="$1" 'BEGIN { for (i = 0; i < 20000; i++) { x = (x * 5 + 3 + (i % 7 == 0)) % 64
    printf "\\x%02x\\x00", x } }'
}
# shellcheck disable=SC2059
printf "$(ids 1)" >"$WORK/train.bin"
# shellcheck disable=SC2059
printf "$(ids 2)" >"$WORK/eval.bin"
[[ $(wc -c <"$WORK/train.bin") == 40000 ]] || fail "the token file has another length"

# losses RUN: step and loss of every line of the log.
losses() {
  sed -nE 's/^\{"step": ([0-9]+), "loss": ([^,]+),.*/\1 \2/p' "$1/log.jsonl"
}
# checkpoints RUN: those that are whole.
checkpoints() {
  find "$1/checkpoints" -name 'step-*' 2>/dev/null | sort
}
# newest RUN: the step of the newest one; 0: none.
newest() {
  local path
  path=$(checkpoints "$1" | tail -1)
  echo $((10#0${path##*step-}))
}
# logged RUN STEP: the log has that step.
logged() {
  grep -qs "\"step\": $2," "$1/log.jsonl"
}
# last_logged RUN: the last step of the log.
last_logged() { losses "$1" | tail -1 | cut -d' ' -f1; }
# same WHOLE RUN: the same losses to the last digit.
same() {
  diff <(losses "$1") <(losses "$2") >"$OUT" || fail "$LAST: the losses differ"
}
# near WHOLE RUN: within 1e-5, where sums have another order.
near() {
  paste -d' ' <(losses "$1") <(losses "$2") | awk '
    $1 != $3 || $2 - $4 > 1e-5 * $2 || $4 - $2 > 1e-5 * $2 { print; bad = 1 }
    END { exit bad || NR < 2 }' >"$OUT" || fail "$LAST: the losses differ by more than 1e-5"
}
