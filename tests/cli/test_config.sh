#!/usr/bin/env bash
# Configurations that are wrong: exit 2, and the sentence has the file, the place and the field.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

# wrong TEXT SED_EXPRESSION: the tiny configuration, edited, is refused with the text.
wrong() {
  tiny_config "$WORK/model" "$2"
  for command in models plan bench; do
    expect 2 "$command" "$WORK/model"
    said "$1"
    said "model/config.json"
    silent
  done
}
wrong "num_attention_heads 3 does not divide hidden_size 16" 's/"num_attention_heads": 2/"num_attention_heads": 3/'
wrong "hidden_size is missing" '/"hidden_size"/d'
wrong 'hidden_size is "wide"' 's/"hidden_size": 16/"hidden_size": "wide"/'
wrong "hidden_size is -16" 's/"hidden_size": 16/"hidden_size": -16/'
wrong "vocab_size is 0" 's/"vocab_size": 64/"vocab_size": 0/'
wrong "num_hidden_layers is 2.5" 's/"num_hidden_layers": 2/"num_hidden_layers": 2.5/'
wrong "model_type is missing" '/"model_type"/d'
wrong "hidden_size is 4000000000000000000" 's/"hidden_size": 16/"hidden_size": 4000000000000000000/'

# A type that is not there: what needs the graph refuses it, and plan answers by the size.
tiny_config "$WORK/model" 's/gpt_neox/abacus/'
for command in models bench; do
  expect 2 "$command" "$WORK/model"
  said 'model_type is "abacus"'
  silent
done
expect 0 plan "$WORK/model" --gpu a100
shown "FLOPs only"
shown 'model_type is "abacus"'

# Malformed, truncated, empty, not an object: the offset in the file.
wrong "line 4, column" 's/"hidden_size": 16,/"hidden_size": ,/'
said "byte"
tiny_config "$WORK/model"
head -c 100 "$WORK/model/config.json" >"$WORK/cut" && mv "$WORK/cut" "$WORK/model/config.json"
expect 2 plan "$WORK/model"
said "byte 100"
: >"$WORK/model/config.json"
expect 2 plan "$WORK/model"
said "empty"
echo '[1, 2]' >"$WORK/model/config.json"
expect 2 plan "$WORK/model"
said "expected an object"
rm "$WORK/model/config.json"
expect 2 plan "$WORK/model"
said "no config.json"
expect 2 plan "$WORK/nowhere/config.json"
said "No such file"
expect 2 plan /dev/null/config.json

# Sizes that overflow 64 bits when multiplied.
tiny_config "$WORK/huge" 's/"hidden_size": 16/"hidden_size": 2147483648/; s/"intermediate_size": 64/"intermediate_size": 2147483648/'
expect 2 plan "$WORK/huge" --seq 1000000000
said "overflows"
tiny_config "$WORK/tiny"
expect 2 plan "$WORK/tiny" --seq 1000000000 --batch 1000000000
said "overflows"
expect 2 models "$WORK/tiny" --seq 1000000000
said "overflows"
