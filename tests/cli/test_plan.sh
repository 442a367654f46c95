#!/usr/bin/env bash
# Plans: categories that sum to the peak, micro-batch policies, limits of both memories, --explain.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

sum_is_peak() {
  local sum
  sum=$(sed -n '/"categories": {/,/}/s/.*: \([0-9]*\),\{0,1\}$/\1/p' "$OUT" |
    awk '{ sum += $1 } END { printf "%.0f", sum }')
  [[ $sum == "$(field peak_bytes)" ]] || fail "$LAST: categories sum to $sum, not to the peak"
}

expect 0 plan pythia-14m --methods naive --device-memory 4GiB --threads 1 --micro-batch pow2 --json
field_is status planned
field_is feasible true
field_is reason null
field_is model pythia-14m
field_is method naive
field_is count 1
field_is micro_batch 8
field_is accumulation 128
field_is precision bf16
field_is precision_substituted true
field_is device_limit_bytes 4294967296
for name in micro_step_s update_s step_s days days_low days_high; do
  field_is "$name" null
done
[[ -n $(field gpu) ]] || fail "no gpu"
sum_is_peak
pow2=$(field peak_bytes)

# Ranks share the machine's memory, as they do in bench; a limit that is given is that of a rank.
expect 0 plan pythia-14m --methods naive --threads 1 --json
whole=$(field device_limit_bytes)
expect 0 plan pythia-14m --methods naive --threads 1 --ranks 2 --json
half=$(field device_limit_bytes)
((3 * half > whole && 3 * half < 2 * whole)) || fail "of $whole bytes a rank of two has $half"
expect 0 plan pythia-14m --methods naive --threads 1 --ranks 2 --device-memory 4GiB --json
field_is device_limit_bytes 4294967296

# More bytes than can be counted.
expect 2 plan mamba-130m --threads 1 --batch 1000000000 --micro-batch 1000000000 --methods naive
said "more than can be planned"

# By default a pass ends at enough work for a thread.
expect 0 plan pythia-14m --methods naive --device-memory 4GiB --threads 1 --json
field_is micro_batch 2
expect 0 plan pythia-14m --methods naive --device-memory 4GiB --threads 1 --micro-batch auto --json
field_is micro_batch 2
expect 0 plan pythia-14m --methods naive --device-memory 4GiB --threads 2 --json
field_is micro_batch 4
expect 0 plan pythia-14m --methods naive --device-memory 1GiB --threads 2 --json
field_is micro_batch 1
expect 2 plan pythia-14m --methods naive --micro-batch most
said "auto, pow2, max or a whole number"

expect 0 plan pythia-14m --methods naive --device-memory 4GiB --threads 1 --micro-batch max --json
field_above micro_batch 7
field_above peak_bytes "$((pow2 - 1))"
expect 0 plan pythia-14m --methods naive --device-memory 4GiB --threads 1 --micro-batch 3 --json
field_is micro_batch 3
field_is accumulation 342
field_is remainder 1
expect 0 plan pythia-14m --methods naive --device-memory 4GiB --threads 1 --precision fp32 --batch 2 --json
field_is precision fp32
field_is precision_substituted false
field_is micro_batch 2

expect 0 plan pythia-14m --methods naive --device-memory 4GiB --threads 1 --micro-batch pow2
shown "fits: "
shown "gradient accumulation 128 x micro-batch 8"
for name in parameters gradients optimizer activations workspace inputs peak limit headroom; do
  grep -qE "^  $name +[0-9,]+ +[0-9.]+ [KMGT]?i?B" "$OUT" || fail "$LAST: no line for $name"
done
shown "the recipe's fp16 runs as bf16"
[[ $(awk 'length > 80' "$OUT") == "  next "* ]] || fail "$LAST: more than 80 columns besides the command"

# Too little of either memory: exit 1, the breakdown in every form, one sentence.
expect 1 plan pythia-14m --methods naive --device-memory 1MiB --threads 1
shown "does not fit"
shown "activations"
said "1.00 MiB"
said "parameters"
expect 1 plan pythia-14m --methods naive --device-memory 1MiB --threads 1 --json
field_is feasible false
field_is status infeasible
field_is micro_batch 1
shown "activations"
[[ $(field reason) != null ]] || fail "no reason"
sum_is_peak
expect 1 plan pythia-14m --methods naive --host-memory 1KiB --threads 1
shown "of host memory and has 1.00 KiB"
said "host memory"
expect 1 plan pythia-14m --methods naive --host-memory 1KiB --threads 1 --json
field_is feasible false
field_is host_limit_bytes 1024

# What is short is named: offloaded state and activations, not the batch on its way.
expect 1 plan pythia-14m --methods free-lunch+zero1+offload --host-memory 64MiB --threads 1
said "of host memory (parameters 53.7 MiB, optimizer 107 MiB, activations "
said "MiB too little; --host-memory sets that limit"

# Several models; one that does not fit is the verdict, and all are shown.
tiny_config "$WORK/tiny"
expect 1 plan "$WORK/tiny" pythia-160m --device-memory 64MiB --threads 1 --json
[[ $(grep -c '"model":' "$OUT") == 2 ]] || fail "not two trials"
said "pythia-160m"
expect 1 plan "$WORK/tiny" pythia-160m --device-memory 64MiB --threads 1 --csv
[[ $(wc -l <"$OUT") == 3 ]] || fail "not two rows of CSV"
grep -q '^model,method,gpu,count,.*,categories.parameters,' "$OUT" || fail "CSV has other columns"
[[ $(sed 's/"[^"]*"/x/g' "$OUT" | awk -F, '{ print NF }' | sort -u | wc -l) == 1 ]] ||
  fail "the rows of the CSV differ in length"

expect 0 plan "$WORK/tiny" --explain --threads 1
shown "fits: "
shown "gpt_neox.embed_in.weight"
shown "matmul"
# The same plan twice is the same text, up to the time it took and the memory that is free.
steady() {
  expect 0 plan "$WORK/tiny" --explain --threads 1 --device-memory 1GiB --host-memory 1GiB
  sed 's/planned in .*//' "$OUT"
}
[[ $(steady | cksum) == $(steady | cksum) ]] || fail "two plans differ"

# Ranks share the cores in a plan as in the run that it is the plan of.
expect 0 plan "$WORK/tiny" --methods free-lunch+zero1 --ranks 2 --batch 4 --seq 8 --json
planned=$(field peak_bytes)
expect 0 bench "$WORK/tiny" --methods free-lunch+zero1 --ranks 2 --batch 4 --seq 8 --simulate --json
[[ $(field peak_bytes) == "$planned" ]] || fail "plan says $planned bytes, bench $(field peak_bytes)"
