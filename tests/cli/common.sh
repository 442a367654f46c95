# What the tests of the command line share; sourced by each. GPUDAYS is the program, GD_SOURCE_DIR
# the root of the source. `try` runs the program and leaves its answer in OUT, ERR (files) and RC.
# shellcheck shell=bash
set -euo pipefail
export LC_ALL=C
unset NO_COLOR COLUMNS

: "${GPUDAYS:?is the path of the program}" "${GD_SOURCE_DIR:?is the root of the source}"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
OUT=$WORK/out ERR=$WORK/err RC=0
touch "$OUT" "$ERR"
# Tests outside tools/run-test must not see the user's presets and results either.
export XDG_CONFIG_HOME=${XDG_CONFIG_HOME:-$WORK/config} XDG_DATA_HOME=$WORK/data
unset GPUDAYS_DB

fail() {
  echo "FAILED: $*" >&2
  sed 's/^/  stdout: /' "$OUT" | head -40 >&2
  sed 's/^/  stderr: /' "$ERR" | head -10 >&2
  exit 1
}

# await COMMAND...: until it succeeds. The limit is for what never comes, not for what comes late.
await() {
  local until=$((SECONDS + 200))
  until "$@"; do
    ((SECONDS < until)) || fail "$LAST: waited in vain for: $*"
    sleep 0.02
  done
}
# has_child PID; is_gone PATH
has_child() { [[ -n $(pgrep -P "$1" || true) ]]; }
is_gone() { [[ ! -e $1 ]]; }

# try ARGUMENT...: runs the program.
try() {
  LAST="gpudays $*"
  RC=0
  "$GPUDAYS" "$@" >"$OUT" 2>"$ERR" </dev/null || RC=$?
}

# expect CODE ARGUMENT...: the exit code; an error is exactly one line "gpudays: ..." on stderr.
expect() {
  local code=$1
  shift
  try "$@"
  [[ $RC == "$code" ]] || fail "$LAST: exit $RC, not $code"
  if [[ $code == 0 ]]; then
    [[ ! -s $ERR ]] || fail "$LAST: something on stderr"
  else
    [[ $(wc -l <"$ERR") == 1 ]] || fail "$LAST: not one line on stderr"
    grep -q '^gpudays: .' "$ERR" || fail "$LAST: the error does not begin with 'gpudays: '"
  fi
}

# said/shown TEXT: a fixed text on stderr/stdout of the last run.
said() {
  grep -qF -- "$1" "$ERR" || fail "$LAST: stderr lacks '$1'"
}
shown() {
  grep -qF -- "$1" "$OUT" || fail "$LAST: stdout lacks '$1'"
}
silent() {
  [[ ! -s $OUT ]] || fail "$LAST: something on stdout"
}

# field NAME: the first value of that name in the JSON of the last run, without quotes.
field() {
  sed -nE 's/^ *"'"$1"'": ("(.*)"|([^"[{,]+)),?$/\2\3/p' "$OUT" | head -1
}
# field_is NAME VALUE
field_is() {
  local value
  value=$(field "$1")
  [[ $value == "$2" ]] || fail "$LAST: $1 is '$value', not '$2'"
}
# field_above NAME NUMBER: it is a number greater than that.
field_above() {
  local value
  value=$(field "$1")
  awk -v v="$value" -v low="$2" 'BEGIN { exit !(v ~ /^-?[0-9.]+(e[-+]?[0-9]+)?$/ && v + 0 > low) }' ||
    fail "$LAST: $1 is '$value', not above $2"
}

# tiny_config FOLDER [SED_EXPRESSION]: a model of a few thousand parameters as transformers saves it.
tiny_config() {
  mkdir -p "$1"
  sed -e "${2:-}" >"$1/config.json" <<'END'
{
  "architectures": ["GPTNeoXForCausalLM"],
  "hidden_act": "gelu",
  "hidden_size": 16,
  "initializer_range": 0.02,
  "intermediate_size": 64,
  "layer_norm_eps": 1e-05,
  "max_position_embeddings": 32,
  "model_type": "gpt_neox",
  "num_attention_heads": 2,
  "num_hidden_layers": 2,
  "rotary_emb_base": 10000,
  "rotary_pct": 0.25,
  "tie_word_embeddings": false,
  "use_parallel_residual": true,
  "vocab_size": 64
}
END
}
