#!/usr/bin/env bash
# The catalogue on the command line: the table, one GPU with its machines and sources, JSON and CSV,
# a user's records, and what --check says of files that are wrong.
# shellcheck source=/dev/null
source "$(dirname "$0")/common.sh"
export XDG_CONFIG_HOME=$WORK/config

# The table: one line a GPU, desktops first; the same GPUs in CSV and JSON.
expect 0 gpus
grep -qE '^GPU +CLASS +MEMORY +GB/s +16-BIT +TF32 +FP32 +PEERS +LINK +W +USD +USD/h FROM$' "$OUT" ||
  fail "the table has another head"
grep -qE '^3090 +desktop +23.7 GiB +936 +71.0 ' "$OUT" || fail "no line of the 3090"
grep -qE '^v100-16gb .* 125 +- +15.7 +switch ' "$OUT" || fail "the V100 has TF32"
[[ $(sed -n 2p "$OUT") == 3060* ]] || fail "desktops are not first"
! grep -q ' $' "$OUT" || fail "blanks at the end of lines"
grep -qE '^infiniband-ndr +InfiniBand NDR, four lanes +50.0 +1.00 us$' "$OUT" || fail "no networks"
rows=$(($(sed '/^$/,$d' "$OUT" | wc -l) - 1))
expect 0 gpus --csv
[[ $(wc -l <"$OUT") == $((rows + 1)) ]] || fail "CSV has another number of rows"
grep -q '^name,title,architecture,class,compute_capability,' "$OUT" || fail "CSV has other columns"
expect 0 gpus --json
[[ $(grep -c '"plan_bytes"' "$OUT") == "$rows" ]] || fail "JSON has another number of GPUs"
for name in gpus machines rents networks energies; do
  shown "\"$name\": ["
done

# One GPU, by name, alias and the driver's name.
for name in a100 A100-80GB "NVIDIA A100-SXM4-80GB"; do
  expect 0 gpus "$name" --json
  field_is name a100
  field_is memory_bytes 85094039552
  field_is memory_bytes_per_s 2039000000000.0
  field_is fp16 312000000000000.0
  field_is usd 19000.0
done
shown '"name": "server-8x-a100"'
shown '"usd": 162673.0'
shown '"provider": "AWS p4d.24xlarge, reserved"'
shown '"source": "Table 5 of arXiv:2410.23261: quote of thinkmate.com, GPX servers"'
expect 0 gpus a100
shown "NVIDIA A100 SXM4 80 GB, a100, datacenter"
shown "server-8x-a100"
shown "162,673"
shown "paper-a100"
shown "usd: Table 5 of arXiv:2410.23261"
shown "(2024-09-21)"
expect 0 gpus h100 --csv
[[ $(wc -l <"$OUT") == 2 ]] || fail "CSV of one GPU is not one row"
expect 2 gpus a11
said 'unknown GPU "a11"; did you mean a10, '
silent

# A file of one's own: checked, in the list, by path, and hiding.
cat >"$WORK/mine.json" <<'END'
{"kind": "gpu", "name": "a100", "title": "Our A100", "architecture": "ampere", "class": "datacenter",
 "compute_capability": 8.0, "multiprocessors": 108, "memory_gib": 40, "memory_gb_per_s": 1500,
 "tflops": {"fp32": 19.5, "tf32": 156, "fp16": 300, "bf16": 300}, "host_link_gb_per_s": 31.5,
 "peer_link_gb_per_s": 300, "topology": "switch", "power_w": 400, "usd": 9000,
 "source": "measured", "date": "2026-11-15"}
END
expect 0 gpus --check "$WORK/mine.json"
shown "fine: GPU a100"
expect 0 gpus --check "$WORK/mine.json" --json
field_is ok true
field_is holds "GPU a100"
expect 0 gpus "$WORK/mine.json" --json
field_is title "Our A100"
field_is usd 9000.0
mkdir -p "$XDG_CONFIG_HOME/gpudays/gpus"
cp "$WORK/mine.json" "$XDG_CONFIG_HOME/gpudays/gpus/"
expect 0 gpus a100 --json
field_is title "Our A100"
shown '"usd": 82673.0'
expect 0 gpus --json
[[ $(grep -c '"plan_bytes"' "$OUT") == "$rows" ]] || fail "the user's GPU is listed next to the other"

# What is wrong is one sentence, with file and field.
wrong() {
  sed -e "$1" "$WORK/mine.json" >"$WORK/wrong.json"
  expect 2 gpus --check "$WORK/wrong.json"
  said "$WORK/wrong.json: $2"
  silent
}
wrong 's/"power_w"/"power"/' '"power" is not a field of a record of kind gpu; did you mean power_w?'
wrong 's/"power_w": 400, //' 'power_w is missing'
wrong 's/"memory_gib": 40/"memory_gib": "40"/' 'memory_gib is "40"; expected a number'
wrong 's/"fp16": 300/"fp16": -1/' 'tflops.fp16 is -1; expected'
wrong 's/"source": "measured", //' 'compute_capability has no source'
wrong 's/"2026-11-15"/"yesterday"/' 'date is "yesterday"; expected a date'
wrong 's/^{.*/{"kind": "tpu",/' 'kind is "tpu"; expected gpu, machine,'
wrong 's/}$//' 'line 6'
expect 2 gpus --check "$WORK/nothing.json"
said "nothing.json: cannot be opened"
expect 2 gpus a100 --check "$WORK/mine.json"
# A file to begin with: what is printed is a record that is right, and answers under a name of one's own.
expect 0 gpus a100 --template
cp "$OUT" "$WORK/template.json"
sed -i 's/"name": "a100"/"name": "ours"/; /"aliases"/d; s/"title": .*/"title": "Our card",/' "$WORK/template.json"
expect 0 gpus --check "$WORK/template.json"
expect 0 plan pythia-160m --gpu "2x$WORK/template.json"
shown "Our card"
expect 2 gpus a100 a40 --template
expect 2 gpus a101 --template
said "a100"
echo '{"kind": "price", "gpu": "nothing", "usd": 1, "source": "nowhere", "date": "2026"}' \
  >"$XDG_CONFIG_HOME/gpudays/gpus/price.json"
expect 2 gpus
said 'price.json: gpu is "nothing"; no record of that name exists'
