#!/usr/bin/env bash
# `verify`: a reference that holds, one that does not, and folders that are none.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
reference=$GD_SOURCE_DIR/tests/reference/neox-parallel

expect 0 verify "$reference" --threads 1
head -1 "$OUT" | grep '^ok: ' >/dev/null || fail "does not begin with ok"
for name in loss gradient trajectory; do
  grep -qE "^  $name +[0-9.]+e[-+][0-9]+ +1e-0[0-9] +ok" "$OUT" || fail "no line for $name"
done
expect 0 verify "$reference" --threads 1 --json
field_is ok true
for name in loss_error gradient_error trajectory_error; do
  field_above "$name" -1
done
[[ -n $(field worst_parameter) ]] || fail "no worst parameter"
expect 0 verify "$reference" --threads 1 --precision bf16
shown "on cpu, bf16"

# Another epsilon is another model: the numbers are off.
cp -r "$reference" "$WORK/off"
sed -i 's/"layer_norm_eps": [0-9.e-]*/"layer_norm_eps": 0.1/' "$WORK/off/config.json"
expect 1 verify "$WORK/off" --threads 1
head -1 "$OUT" | grep '^FAILED: ' >/dev/null || fail "does not begin with FAILED"
said "is not reproduced"
said "(bound 1e-05)"
expect 1 verify "$WORK/off" --threads 1 --json
field_is ok false

# The recipe says whether what Mamba exempts from weight decay was decayed all the same.
mamba=$GD_SOURCE_DIR/tests/reference/mamba-a
grep -q '"decay_all": false' "$mamba/recipe.json" || fail "mamba-a decays everything"
expect 0 verify "$mamba" --threads 1
cp -r "$mamba" "$WORK/decayed"
sed -i 's/"decay_all": false/"decay_all": true/' "$WORK/decayed/recipe.json"
expect 1 verify "$WORK/decayed" --threads 1
grep -qE "^  trajectory .* FAILED" "$OUT" || fail "another decay trains the same"
sed -i 's/"decay_all": true/"decay_all": 1/' "$WORK/decayed/recipe.json"
expect 2 verify "$WORK/decayed" --threads 1
said "decay_all is 1"

# What the library's verifier does not take, the program does not either.
for methods in zero1 free-lunch+fsdp3 zero2+offload; do
  expect 2 verify "$reference" --threads 1 --methods "$methods"
  said "whole parameters on one device"
done
expect 2 verify "$reference" --threads 1 --methods naive,free-lunch
said "verify takes one method, and --methods has 2"

expect 2 verify "$WORK/nowhere"
said "nowhere/config.json"
cp -r "$reference" "$WORK/part"
rm "$WORK/part/reference.safetensors"
expect 2 verify "$WORK/part"
said "reference.safetensors"
cp -r "$reference" "$WORK/cut"
head -c 1000 "$reference/model.safetensors" >"$WORK/cut/model.safetensors"
expect 2 verify "$WORK/cut"
said "model.safetensors"
silent
