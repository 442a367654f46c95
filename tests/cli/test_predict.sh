#!/usr/bin/env bash
# Predictions: plans for hardware that is not here, simulated searches, fast ones, calibration.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"

# Hardware one does not own: all 22 points, ranked, with days, interval and what they rest on.
expect 0 plan pythia-1b --gpu a100 --count 4 --methods all --json
[[ $(grep -c '"predicted": true' "$OUT") == 22 ]] || fail "not 22 predictions"
field_is gpu a100
field_is count 4
field_is backend cuda
field_is validated false
grep -q '"basis": "unvalidated' "$OUT" || fail "no basis"
sed -nE 's/^ *"days": ([0-9.]+),$/\1/p' "$OUT" >"$WORK/days"
sort -g "$WORK/days" | cmp - "$WORK/days" || fail "not ranked by days"
# The interval joins the errors that it names: wider than that of the GPU whose times are carried over,
# narrower for a GPU of its architecture; free-lunch without offload.
ratio() { awk -v low="$(field days_low)" -v high="$(field days_high)" 'BEGIN { printf "%.0f", 1000 * high / low }'; }
expect 0 plan pythia-2.8b --gpu h200 --methods free-lunch+ckpt --json
measured=$(ratio)
expect 0 plan pythia-2.8b --gpu h200 --count 8 --methods free-lunch+ckpt --json
several=$(ratio)
expect 0 plan pythia-2.8b --gpu h100 --methods free-lunch+ckpt --json
alike=$(ratio)
expect 0 plan pythia-2.8b --gpu a100 --methods free-lunch+ckpt --json
other=$(ratio)
field_is validated false
((measured >= 1200 && measured < several && several <= 1600 && alike <= 1600 && alike < other && other < 2000)) ||
  fail "intervals: $measured, $several, $alike, $other"
# What it rests on is said in words, with what each part of it is.
expect 0 plan pythia-1b --gpu a100 --methods free-lunch
tr -s ' \n' ' ' <"$OUT" >"$WORK/said"
for words in "unvalidated on the NVIDIA A100 SXM4 80 GB, where nobody has run it" \
  "errors on 29 trials there, each predicted without those of its model (x0.88 to x1.13)" \
  "of that model on 203 published rates of other software, their architectures left out (x0.78 to x1.28)" \
  "interval of 90 % x0.76 to x1.32"; do
  grep -F -- "$words" "$WORK/said" >/dev/null || fail "not said: $words"
done
expect 0 plan pythia-1b --gpu a100 --methods free-lunch+zero1+offload
tr -s ' \n' ' ' <"$OUT" | grep -F "has CPUs that nobody measured (x0.60 to x1.67)" >/dev/null || fail "nothing of CPUs"
expect 0 plan pythia-1b --gpu h200 --count 8 --methods free-lunch
tr -s ' \n' ' ' <"$OUT" | grep -F "joins errors on 462 published rates" >/dev/null || fail "nothing of links"
expect 0 plan pythia-1b --gpu a100 --count 4 --methods all
shown "predicted, not measured: unvalidated"
shown "NVIDIA H200"

# More and faster hardware takes less time; memory is the plan's.
days() { field days | sed 's/\..*//'; }
expect 0 plan pythia-410m --gpu rtx-3090 --methods free-lunch --json
slow=$(days) small=$(field peak_bytes)
expect 0 plan pythia-410m --gpu h200 --methods free-lunch --json
fast=$(days)
expect 0 plan pythia-410m --gpu h200 --count 2 --methods free-lunch --json
faster=$(days)
((slow > fast && fast > faster)) || fail "days: $slow, $fast, $faster"
((small < 24 * 1024 * 1024 * 1024)) || fail "more than the card has"

# Nodes follow from the count and the machine, and the network between them is named.
expect 0 plan pythia-410m --gpu h100 --count 16 --methods free-lunch --json
field_is nodes 2
field_is machine dgx-h100
field_is network_cards 8
field_is network infiniband-ndr
field_is network_assumed true
assumed=$(field days)
expect 0 plan pythia-410m --gpu h100 --count 16 --nodes 2 --network infiniband-ndr \
  --methods free-lunch --json
field_is network_assumed false
[[ $(field days) == "$assumed" ]] || fail "the same network, other days"
expect 0 plan pythia-410m --gpu h100 --count 16 --nodes 2 --network ethernet-10 \
  --methods free-lunch --json
field_is network ethernet-10
field_is network_cards 1
field_is network_cards_assumed true
field_above days "$assumed"
one=$(field days)
expect 0 plan pythia-410m --gpu h100 --count 16 --nodes 2 --network 4xethernet-10 \
  --methods free-lunch --json
field_is network_cards 4
field_is network_cards_assumed false
awk -v a="$(field days)" -v b="$one" 'BEGIN { exit !(a < b) }' || fail "four cards are no faster than one"
expect 0 plan pythia-410m --gpu h100 --count 16 --network ethernet-10 --methods free-lunch
shown "1 card a node"
shown "assumed"
# What they exchange is explained, and thousands of GPUs are planned as quickly as two.
expect 0 plan pythia-410m --gpu a100 --count 1024 --methods free-lunch+fsdp3 --explain
shown "collectives among 1024 GPUs"
# More GPUs share one batch: never slower, each of them no faster, with less of a step to compute, and it is said.
# A sharding that is too fine waits: the fastest of several gets no slower still.
together=0 rate_before=1000000 share_before=101 days_before=1000000
for count in 8 64 512 4096; do
  expect 0 plan pythia-1b --gpu h100 --count $count --batch 4096 --methods free-lunch --explain
  { tr -s ' \n' ' ' <"$OUT" && echo; } >"$WORK/said"
  read -r share rate < <(sed -nE 's/.*a step of [^ ]+ [a-z]+ computes for [^ ]+ [a-z]+ \(([0-9]+) %\).* the rest: ([0-9,]+) tokens\/s a GPU.*/\1 \2/p' \
    "$WORK/said")
  rate=${rate//,/}
  ((share > 0 && share <= share_before && rate > 0 && rate <= rate_before && rate * count > together)) ||
    fail "$count GPUs: $share % of a step, $rate tokens/s a GPU"
  together=$((rate * count)) rate_before=$rate share_before=$share
  expect 0 plan pythia-2.8b --gpu h100 --count $count --batch 4096 --json \
    --methods free-lunch,free-lunch+zero1,free-lunch+fsdp2,free-lunch+fsdp3
  awk -v a="$(field days)" -v b="$days_before" 'BEGIN { exit !(a > 0 && a < b) }' || fail "$count GPUs are no faster"
  days_before=$(field days)
done
expect 0 plan pythia-410m --gpu a100 --count 1024 --methods free-lunch+fsdp3 --explain
shown "180 GB/s together"
grep -qE "^  micro-step +all-gather +[0-9]+ .* ring, (LL|LL128|Simple) " "$OUT" || fail "no all-gathers"
expect 0 plan pythia-410m --gpu h100 --count 4096 --batch 4096 --methods free-lunch,free-lunch+fsdp3
shown "512 nodes of 8 GPUs"
expect 0 plan pythia-410m --gpu h100 --count 16 --methods free-lunch
shown "2 nodes of 8 GPUs, joined by infiniband-ndr"
shown "as in dgx-h100"
shown "assumed"
expect 0 plan pythia-410m --gpu v100-32gb --count 8 --nodes 2 --methods free-lunch,naive
shown "2 nodes of 4 GPUs, joined by infiniband-hdr"
expect 0 plan pythia-410m --gpu h100 --count 8 --methods free-lunch --json
field_is nodes 1
field_is network null
expect 0 bench pythia-14m --simulate --gpu h100 --count 16 --methods naive --json
field_is nodes 2
field_is network infiniband-ndr
expect 0 bench pythia-14m --simulate --gpu h100 --count 16 --methods naive,free-lunch
shown "2 nodes of 8 GPUs, joined by infiniband-ndr"
expect 0 plan pythia-410m --stack paper --gpu a100-40gb --count 16 --methods free-lunch --json
field_is nodes 2
field_is network infiniband-hdr
expect 2 plan pythia-410m --gpu h100 --count 16 --nodes 3
said "16 GPUs cannot be spread evenly over 3 nodes; choose --count as a multiple of --nodes"
expect 0 plan pythia-410m --gpu h100 --count 8 --network ethernet-10 --methods free-lunch
shown "8 GPUs are in one node, so that --network ethernet-10 is not used"
expect 2 plan pythia-410m --gpu h100 --count 16 --network ethernet-11
said 'ethernet-1'
for command in plan "bench --simulate"; do
  # shellcheck disable=SC2086
  expect 2 $command pythia-410m --gpu h100 --count 16 --network nonsense
  said 'unknown network "nonsense"; did you mean '
  said "('gpudays gpus' lists all; a path to a file of its own works too)"
done
expect 2 plan pythia-410m --ranks 4 --nodes 2
said "--nodes needs --gpu"
expect 2 bench pythia-410m --gpu h100 --count 16 --nodes 2 --simulate --slurm-config x
said "--slurm-config needs --slurm"

# What a GPU cannot compute in is substituted and said, or refused where it was asked for.
expect 0 plan pythia-1b --gpu v100-32gb --methods free-lunch --json
field_is precision fp16
field_is precision_substituted true
expect 0 plan pythia-1b --gpu v100-32gb --methods free-lunch
shown "the recipe's bf16 runs as fp16 here, with a loss scale: this GPU"
expect 0 plan pythia-1b --gpu v100-32gb --methods naive,free-lunch
[[ $(grep -c "the recipe's bf16 runs as fp16" "$OUT") == 1 ]] || fail "not said once"
expect 0 bench pythia-1b --simulate --gpu v100-32gb --methods free-lunch --json
field_is precision_substituted true
expect 0 plan pythia-1b --stack paper --gpu v100-32gb --count 4 --methods free-lunch --json
field_is precision_substituted true
field_above days 1
expect 2 plan pythia-1b --gpu v100-32gb --precision bf16
said "--precision is bf16, which this GPU does not compute in; choose fp16, or leave it out"
expect 0 plan pythia-1b --gpu a100 --methods free-lunch --json
field_is precision bf16
field_is precision_substituted false
sed -e 's/"name": "v100-32gb"/"name": "p40"/' -e 's/"aliases": [^]]*\]/"aliases": []/' \
  -e 's/"compute_capability": 7.0/"compute_capability": 6.1/' -e 's/"fp16": 125/"fp16": 0/' \
  "$GD_SOURCE_DIR/data/gpus/v100-32gb.json" >"$WORK/p40.json"
expect 0 plan pythia-160m --gpu "$WORK/p40.json" --methods free-lunch --json
field_is precision fp32
field_is precision_substituted true

# Rows of the Megatron/DeepSpeed table are plans too: naive with checkpointing and ZeRO.
expect 0 plan gpt-345m --stack paper --gpu a100-40gb --count 8 --batch 512 \
  --methods naive+ckpt+zero1 --json
field_is micro_batch 64
expect 0 plan gpt-345m --stack megatron --gpu a100-40gb --count 8 --batch 512 --micro-batch 64 \
  --methods naive+ckpt+zero1 --json
awk -v s="$(field step_s)" 'BEGIN { exit !(s > 2.33 && s < 2.43) }' || fail "not as in results/accuracy.md"
expect 1 plan gpt-2.5b --stack paper --gpu a100-40gb --count 8 --batch 256 --methods naive+ckpt
# What is asked for is honoured: micro-batch, memory, and the network between nodes.
expect 0 plan gpt2 --stack paper --gpu a100 --micro-batch 4 --json
field_is micro_batch 4
expect 1 plan gpt2 --stack paper --gpu a100 --micro-batch 4 --device-memory 10GiB --methods naive
said "micro-batch 4 needs"
shown "of 10.0 GiB"
expect 0 plan gpt2 --stack paper --gpu a100 --device-memory 20GiB --json
small=$(field micro_batch)
expect 0 plan gpt2 --stack paper --gpu a100 --json
[[ $small -ge 1 && $small -lt $(field micro_batch) ]] || fail "--device-memory counts for nothing: $small"
expect 2 plan gpt2 --stack paper --gpu a100 --batch 8 --micro-batch 16
said "--micro-batch is 16, but a batch of 8 leaves each of 1 GPUs 8"
step_of() { # ARGUMENT...: seconds of a step
  expect 0 plan gpt2 --gpu a100 --batch 512 --methods free-lunch+zero1 --json "$@"
  field step_s
}
fast=$(step_of --stack paper --count 16 --network infiniband-ndr)
slow=$(step_of --stack paper --count 16 --network ethernet-10)
awk -v a="$fast" -v b="$slow" 'BEGIN { exit !(b > 1.2 * a) }' || fail "the network counts for nothing: $fast, $slow"
fast=$(step_of --stack paper --count 16 --micro-batch 8)
slow=$(step_of --stack paper --count 16 --micro-batch 1)
awk -v a="$fast" -v b="$slow" 'BEGIN { exit !(b > 1.02 * a) }' || fail "the micro-batch counts for nothing: $fast, $slow"

# One network model: where the network is the bound, this engine's step and compiled PyTorch's take as long.
for sharding in zero1 zero3 fsdp2; do
  for gpu in 16xa100 16xh100; do
    for stack in own pytorch; do
      expect 0 plan pythia-1b --gpu $gpu --network ethernet-10 --micro-batch 4 --methods free-lunch+$sharding --stack $stack --json
      printf '%s ' "$(field step_s)"
    done | awk -v what="$gpu $sharding" '{ exit !($1 / $2 > 0.95 && $1 / $2 < 1.05) }' || fail "$gpu $sharding: two networks"
  done
done

# Other software: its name, an alias, what is asked for, and an interval by what is known.
expect 0 plan gpt2 --stack pytorch --gpu 4090 --methods free-lunch --batch 480 --seq 1024 --micro-batch 12 --json
field_is stack pytorch-compile
field_is micro_batch 12
field_is validated true
awk -v s="$(field step_s)" 'BEGIN { r = 480 * 1024 / s; exit !(r > 90000 && r < 125000) }' ||
  fail "not near the 106,298 tokens/s that were published"
awk -v l="$(field days_low)" -v h="$(field days_high)" 'BEGIN { exit !(h / l > 1.2 && h / l <= 1.6) }' || fail "interval"
expect 0 plan gpt2 --stack torchtitan --gpu v100-32gb --methods free-lunch --json
field_is validated false
field_is precision_substituted true
awk -v l="$(field days_low)" -v h="$(field days_high)" 'BEGIN { exit !(h / l > 1.6) }' || fail "too narrow"
expect 0 plan gpt2-medium --stack megatron --gpu a100 --methods naive+ckpt --micro-batch 1 --batch 8 --seq 1024
shown "bound by the host"
expect 0 plan tinyllama-1.1b --stack llmq --gpu l4 --methods free-lunch+ckpt
shown "the power limit holds the clock at"
expect 2 plan gpt2 --stack composer --gpu a100 --methods kernels
said "--stack composer knows naive and free-lunch"
eager=$(step_of --stack pytorch-eager) compiled=$(step_of --stack pytorch)
awk -v a="$compiled" -v b="$eager" 'BEGIN { exit !(b > 1.05 * a) }' || fail "compiled is no faster: $compiled, $eager"
# Memory is an estimate: up to 15 % above what there is an asked micro-batch may run, and the answer says why it may,
# how far published runs went, and what fits; beyond that it does not fit.
memory_of() { # memory_of SIZE: bytes in percent of those there are
  try plan pythia-1b --gpu a100 --stack pytorch --methods free-lunch --micro-batch "$1" --json
  awk -v need="$(field peak_bytes)" 'BEGIN { printf "%.0f", 100 * need / (80 * 2 ^ 30 * 0.99) }'
}
[[ $(memory_of 14) -lt 100 && $(memory_of 16) -gt 100 && $(memory_of 16) -lt 115 && $(memory_of 20) -gt 115 ]] ||
  fail "estimates of $(memory_of 14), $(memory_of 16), $(memory_of 20)"
expect 0 plan pythia-1b --gpu a100 --stack pytorch --micro-batch 14 --json
field_is may_not_fit false
expect 0 plan pythia-1b --gpu a100 --stack pytorch --micro-batch 16 --json
field_is may_not_fit true
expect 0 plan pythia-1b --gpu a100 --stack pytorch --micro-batch 16
tr -s ' \n' ' ' <"$OUT" >"$WORK/said"
for text in "of 79.2 GiB: by an estimate; it may not fit" "never by more than 14 %; what is above 15 % is refused" \
  "fits by the estimate, and takes"; do
  grep -F "$text" "$WORK/said" >/dev/null || fail "$LAST: it is not said why it may run: $text"
done
expect 0 plan pythia-1b --gpu a100 --stack pytorch --micro-batch 16 --methods all
grep "^pythia-1b *free-lunch *perhaps" "$OUT" >/dev/null || fail "$LAST: free-lunch fits for sure"
expect 1 plan pythia-1b --gpu a100 --stack pytorch --methods free-lunch --micro-batch 20
said "does not fit: micro-batch 20 needs"
# A table for programs has the columns of all rows, and each value under its own.
expect 0 plan pythia-6.9b vit --gpu 3090,8xa100 --stack paper --csv
awk '{ while (match($0, /"[^"]*"/)) $0 = substr($0, 1, RSTART - 1) substr($0, RSTART + RLENGTH) }
  NR == 1 { n = split($0, names, ","); for (i = 1; i <= n; i++) at[names[i]] = i; next }
  { bad = bad || split($0, cell, ",") != n || (cell[at["feasible"]] == "true" && !(cell[at["mfu"]] > 0 && cell[at["mfu"]] < 1))
    images += cell[at["images_per_s"]] > 0; tokens += cell[at["tokens_per_s"]] > 0 }
  END { exit bad || NR != 5 || images != 2 || tokens != 1 }' "$OUT" || fail "$LAST: values under other names"
# A file of the user's own.
mkdir -p "$WORK/config/gpudays/stacks"
sed -e 's/"name": "pytorch-eager"/"name": "ours"/' -e '0,/"eager",/s//"ours-eager",/' \
  "$GD_SOURCE_DIR/data/stacks/pytorch-eager.json" >"$WORK/config/gpudays/stacks/ours.json"
XDG_CONFIG_HOME=$WORK/config expect 0 plan gpt2 --stack ours --gpu a100 --methods free-lunch --json
field_is stack ours
field_is validated false
sed -i 's/"kernels": "eager"/"kernels": "quick"/' "$WORK/config/gpudays/stacks/ours.json"
XDG_CONFIG_HOME=$WORK/config expect 2 plan gpt2 --stack ours --gpu a100
said 'expected eager or compiled or fused'
expect 2 plan gpt-345m --stack paper --gpu a100-40gb --count 8 --methods naive+fsdp2
said "--stack paper knows naive"

# What does not fit has no time, and says why.
expect 1 plan pythia-6.9b --gpu rtx-3090 --methods free-lunch --json
field_is feasible false
field_is days null
field_is predicted false

# Wrong questions.
expect 2 plan pythia-14m --count 4
said "--count needs --gpu"
expect 2 plan pythia-14m --gpu a100 --ranks 2
said "--count"
expect 2 plan pythia-14m --gpu no-such-gpu
expect 2 bench pythia-14m --gpu a100
said "--simulate"
expect 2 bench pythia-14m --simulate --fast
said "--simulate measures nothing"

# A machine that was not measured plans as ever, and says how to get times.
expect 0 plan pythia-14m --device-memory 4GiB --threads 1
shown "gpudays calibrate"

# Simulated: the table of bench, marked, and nothing kept.
expect 0 bench pythia-14m --simulate --gpu a100 --methods naive,free-lunch --json
[[ $(grep -c '"source": "predicted"' "$OUT") -ge 2 ]] || fail "not marked as predicted"
field_is status ok
[[ ! -e $XDG_DATA_HOME/gpudays/results.db ]] || fail "a simulation was stored"
expect 0 bench pythia-14m --simulate --gpu a100 --methods naive,free-lunch
shown "predicted, not measured"
shown "best for pythia-14m: free-lunch"

# MFU compares methods: it is a share of the model's FLOPs, also where a method trims a position
# (1.6 % of 65 tokens), so that it is inverse to the days.
expect 0 bench pythia-14m --simulate --gpu a100 --methods naive,free-lunch --seq 65 --json
awk -F '[:,]' '/^ *"method"/ { method = $2 } /^ *"flops_per_step"/ { flops[method] = $2 }
  /^ *"executed_flops_per_step"/ { executed[method] = $2 }
  /^ *"days"/ { days[method] = $2 } /^ *"mfu"/ { mfu[method] = $2 }
  END {
    a = " \"naive\""; b = " \"free-lunch\""
    ratio = mfu[b] / mfu[a] / (days[a] / days[b])
    exit !(flops[a] > 0 && flops[a] == flops[b] && executed[b] < executed[a] &&
           ratio > 1 - 1e-9 && ratio < 1 + 1e-9)
  }' "$OUT" || fail "MFU and days of naive and free-lunch have different ratios"

# Calibration within a few seconds, more where others keep the machine busy; times are predicted from
# then on.
for limit in 2s 10s 60s; do
  expect 0 calibrate --threads 1 --time-limit $limit --json
  file=$(field file)
  [[ $(field points) -le 50 && $limit != 60s ]] || break
  rm "$file" # or it stays, where the next one is disturbed by more
done
[[ -s $file ]] || fail "no calibration was written"
[[ $(field points) -gt 50 ]] || fail "only $(field points) points"
[[ $(field checked_trials) -ge 1 ]] || fail "nothing was checked"
expect 0 plan pythia-14m --device-memory 4GiB --threads 1 --json
field_is predicted true
expect 0 plan pythia-14m --device-memory 4GiB --threads 1
shown "calibrated here on"
# What is measured after it says how far the prediction was off.
expect 0 bench pythia-14m --threads 1 --seq 64 --batch 2 --steps 1000 --sample-seconds 1 --methods free-lunch
grep -qE '^  predicted [0-9.]+ [a-z]+, (as measured|[0-9,]+ % (less|more) than measured)$' "$OUT" || fail "not held against its prediction"
# With other threads the rates are scaled, and nothing has validated that.
expect 0 plan pythia-14m --device-memory 4GiB --threads 2 --json
field_is predicted true
field_is validated false
echo '{"format": 1}' >"$file"
expect 2 plan pythia-14m --device-memory 4GiB --threads 1
said "peaks"
rm "$file"
expect 2 calibrate --backend ref
hogs=()
trap 'kill "${hogs[@]}" 2>/dev/null || true; rm -rf "$WORK"' EXIT

# Under the load of others a calibration says so, and predictions from it are as wide; it does not
# take the place of one that was made in peace.
for ((i = 0; i < $(nproc); i++)); do
  timeout 1200 bash -c 'while :; do :; done' &
  hogs+=($!)
done
expect 0 calibrate --threads 1 --time-limit 2s --json
file=$(field file) share=$(field busy_share)
field_is validated false
field_above busy_share 0.2
field_above interval "$(awk -v s="$share" 'BEGIN { print s - 0.001 }')"
expect 0 plan pythia-14m --device-memory 4GiB --threads 1
shown "other programs used"
expect 0 plan pythia-14m --device-memory 4GiB --threads 1 --json
field_is validated false
awk -v d="$(field days)" -v l="$(field days_low)" -v s="$share" \
  'BEGIN { if (s > 0.8) s = 0.8; exit !(l <= 1.001 * (1 - s) * d) }' || fail "too narrow an interval"
sed -i 's/"busy_share": *[0-9.e-]*/"busy_share": 0/' "$file"
cp "$file" "$WORK/before"
expect 1 calibrate --threads 1 --time-limit 1s
said "the better calibration"
cmp "$file" "$WORK/before" || fail "the better calibration is gone"
kill "${hogs[@]}" 2>/dev/null || true
wait "${hogs[@]}" 2>/dev/null || true
hogs=()
rm "$file"

# Ranks run the collectives of their backend together; then rank 0 works for longer than the others
# would wait for one that is silent.
if command -v mpirun >/dev/null; then
  for limit in 3 20 100; do # where a machine is so busy that ranks take each other for silent
    try calibrate --ranks 2 --threads 1 --time-limit $((limit + 2))s --rank-timeout $limit \
      -o "$WORK/ranks.json" --json
    [[ $RC != 0 ]] || break
  done
  [[ $RC == 0 && ! -s $ERR ]] || fail "$LAST: exit $RC, or something on stderr"
  field_is peer_source measured
  for op in all_reduce reduce_scatter all_gather gather; do
    sizes=$(grep -cE "\"$op\",\"fp32\",0,false,\\[[0-9.e+]+,2\.0," "$WORK/ranks.json" || true)
    ((sizes == 3)) || fail "$sizes sizes of $op, not 3"
  done
fi

# Fast: some points are measured, the others are predicted and never stored.
expect 0 bench pythia-14m --seq 32 --batch 4 --steps 10 --threads 1 --sample-seconds 0.05 \
  --methods naive,free-lunch,free-lunch+ckpt,free-lunch+zero1+offload --fast --json
run=$(grep -c '"source": "run"' "$OUT") || true
((run >= 1)) || fail "nothing was measured"
expect 0 results --csv
stored=$(($(wc -l <"$OUT") - 1))
((stored <= run && stored >= 1)) || fail "$stored stored, $run measured"

# Fewer FLOPs executed than the model has: where the two differ by enough to be shown, it says why.
expect 0 bench pythia-14m --seq 512 --batch 2 --steps 10 --threads 1 --sample-seconds 0.05 \
  --methods free-lunch --no-store
! grep -q ", HFU" "$OUT" || tr -s " \n" " " <"$OUT" | grep "(less: masked scores, rows without a label" >/dev/null

# A GPU older than the engine's kernels: a prediction, and the word that no trial can confirm it.
expect 0 plan pythia-1b --gpu v100-32gb --methods free-lunch
tr '\n' ' ' <"$OUT" | tr -s ' ' >"$WORK/line"
grep -qF "the engine does not run on it (compute capability 7.0; 8.0 is needed)" "$WORK/line" ||
  fail "$LAST: no word that the engine does not run there"
expect 0 plan pythia-1b --gpu v100-32gb --methods free-lunch --json
field_is engine_runs false
expect 0 plan pythia-1b --gpu a100 --methods free-lunch --json
field_is engine_runs true

# Counts that do not fit are told by the option that was given; a node of any size is an assumption.
expect 2 plan pythia-1b --gpu a100 --count 3
said "choose --count or --batch"
expect 2 plan pythia-1b --ranks 3
said "choose --ranks or --batch"
expect 0 plan pythia-1b --gpu a100 --count 16 --nodes 1 --methods free-lunch
shown "16 GPUs in one node are assumed"
expect 0 plan pythia-1b --gpu a100 --count 8 --nodes 1 --methods free-lunch
! grep -q "are assumed" "$OUT" || fail "$LAST: the catalogue has such a machine"
