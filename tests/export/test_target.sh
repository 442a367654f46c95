#!/usr/bin/env bash
# `gpudays export MODEL --gpu 4x3090`: the plan for hardware that is not here, by whose memory it is
# planned, every way to say the hardware, the program that it writes, and what is refused.
GD_SOURCE_DIR=${GD_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/cli/common.sh"

# given ARGUMENT...: it succeeds, with notes alone on stderr.
given() {
  try "$@"
  [[ $RC == 0 ]] || fail "$LAST: exit $RC"
  ! grep -qv '^gpudays: note: .' "$ERR" || fail "$LAST: something but notes on stderr"
}
# setting NAME VALUE [FILE]: of the file that was written.
setting() {
  local value
  value=$(sed -nE 's/^ *"'"$1"'": "?([^",]*)"?,?$/\1/p' "${3:-$OUT}" | head -1)
  [[ $value == "$2" ]] || fail "$LAST: $1 is '$value', not '$2'"
}
lacks() {
  ! grep -qF -- "$1" "${2:-$OUT}" || fail "$LAST: '$1' is there"
}

# --- the point of plan ------------------------------------------------------------------------

# same MODEL HARDWARE...: with the engine's own plan the settings are those that plan answers with.
same() {
  local method micro accumulation precision
  expect 0 plan "$@" --json
  method=$(field method) micro=$(field micro_batch) accumulation=$(field accumulation)
  precision=$(field precision)
  given export "$@" --stack own --format hf --json
  field_is method "$method"
  field_is micro_batch "$micro"
  field_is accumulation "$accumulation"
  field_is precision "$precision"
  field_is stack own
  field_is measured false
  given export "$@" --stack own --format hf
  setting per_device_train_batch_size "$micro"
  setting gradient_accumulation_steps "$accumulation"
  setting "$precision" true
  lacks use_cpu
}
same pythia-410m --gpu 4x3090
same gpt2 --gpu a100 --seq 512 --batch 512 --tokens 5B
same roberta --gpu 8xa6000
same mamba-130m --gpu 2x4090

# planned ARGUMENT...: likewise what another software's plan says.
planned() {
  local method micro next
  expect 0 plan "$@" --json
  method=$(field method) micro=$(field micro_batch) next=$(field next)
  [[ $next == gpudays\ export\ * ]] || fail "$LAST: next is '$next'"
  # shellcheck disable=SC2086 # a command line
  given ${next#gpudays } --json
  field_is method "$method"
  field_is micro_batch "$micro"
}
planned pythia-410m --gpu 4x3090 --stack pytorch
planned llama-3.1-8b --gpu 8xa100 --stack torchtitan
planned gpt2 --gpu 4xa100 --stack deepspeed --device-memory 20GiB
planned pythia-1b --gpu 16xh100 --nodes 4 --stack pytorch --micro-batch 2

# --- the software that runs it ----------------------------------------------------------------

given export pythia-410m --gpu 4x3090 --format hf --json
field_is stack pytorch-compile
field_is device "NVIDIA GeForce RTX 3090 24 GB"
field_is ranks 4
field_above days 1
of_pytorch=$(field micro_batch)
given export pythia-410m --gpu 4x3090 --format hf
said "planned for PyTorch with torch.compile on 4 x NVIDIA GeForce RTX 3090 24 GB"
setting per_device_train_batch_size "$of_pytorch"
setting torch_compile true
setting fp16 true
given export pythia-410m --gpu 4x3090 --format hf --stack own
said "planned for gpudays' own engine"
own=$(sed -nE 's/.*per_device_train_batch_size": ([0-9]+).*/\1/p' "$OUT")
((own > of_pytorch)) || fail "PyTorch, which needs more memory, has micro-batch $of_pytorch, the engine $own"
given export pythia-410m --gpu 4x3090 --format deepspeed --json
field_is stack deepspeed
given export llama-3.1-8b --gpu 8xa100 --format torchtitan --json
field_is stack torchtitan
[[ $(field method) == free-lunch*+fsdp[23] ]] || fail "$LAST: $(field method) is not how torchtitan shards"
given export mamba-130m --gpu a100 --format hf --json
field_is stack pytorch-eager
# The Trainer shards ZeRO by DeepSpeed, uncompiled; nobody gets that unasked.
given export gpt2-xl --gpu 4x3090 --format hf
lacks deepspeed
given export gpt2-xl --gpu 4xa100 --format hf --methods free-lunch+zero2 --json
field_is stack deepspeed

# Limits and lengths count, and the batch stays whole.
given export pythia-410m --gpu 4x3090 --format hf --device-memory 12GiB --seq 512 --batch 128 --tokens 1B
micro=$(sed -nE 's/.*per_device_train_batch_size": ([0-9]+).*/\1/p' "$OUT")
times=$(sed -nE 's/.*gradient_accumulation_steps": ([0-9]+).*/\1/p' "$OUT")
[[ $((micro * times * 4)) == 128 ]] || fail "$LAST: $micro x $times x 4 is not 128"
setting max_steps 15259 # the last one is a part of one
said "make them 512 tokens long"
given export gpt2 --gpu 3xa100 --batch 300 --format hf --micro-batch 64
setting per_device_train_batch_size 50
setting gradient_accumulation_steps 2
given export vit --gpu 8xa100 --format hf
setting dataloader_num_workers 4

# --- jobs on several nodes --------------------------------------------------------------------

given export pythia-1b --gpu 16xa100 --nodes 4 --network 2xinfiniband-hdr --format sbatch --job-time 12h
shown "#SBATCH --nodes=4"
shown "#SBATCH --gpus-per-node=4"
shown "--nnodes=4 --nproc-per-node=4"
shown "4 nodes joined by infiniband-hdr"
shown "as gpudays predicts it"
shown "#SBATCH --time=0-12:00:00"
shown "gpudays export pythia-1b --gpu 16xa100 --nodes 4 --network 2xinfiniband-hdr --stack pytorch-compile --methods"
cp "$OUT" "$WORK/job"
bash -n "$WORK/job"
given export pythia-1b --gpu a100 --count 16 --nodes 4 --network 2xinfiniband-hdr --format sbatch --job-time 12h
cmp "$OUT" "$WORK/job" || fail "$LAST: --count 16 is not 16x"

# --- train.py ---------------------------------------------------------------------------------

# program MODEL ARGUMENT...: written, compiled where there is Python, and the settings are those of hf.
python=$(command -v python3 || true)
[[ -n $python ]] || echo "no python3: the syntax of train.py is not checked"
program() {
  given export "$@" --format train.py
  cp "$OUT" "$WORK/train.py"
  ! grep -nE '@[A-Z]|^#(if|end)' "$OUT" || fail "$LAST: something is not filled in"
  [[ -z $python ]] || python3 -m py_compile "$WORK/train.py" 2>"$ERR" || fail "$LAST: Python refuses it"
  given export "$@" --format hf
  while IFS= read -r line; do
    [[ $line != ?* ]] || grep -qF -- "$line" "$WORK/train.py" || fail "$LAST: train.py lacks $line"
  done <"$OUT"
  cp "$WORK/train.py" "$OUT"
}
for method in naive free-lunch free-lunch+ckpt free-lunch+zero1 free-lunch+ckpt+zero3+offload \
  free-lunch+fsdp2 free-lunch+ckpt+fsdp3+offload; do
  program gpt2 --gpu 4xa100 --methods $method
  shown "torchrun --nproc-per-node=4 train.py train.bin"
done
program pythia-410m --gpu 4x3090
shown "GPUS = 4 "
shown "SEQ = 2049 "
shown "AutoModelForCausalLM"
shown '"attn_implementation": "sdpa"'
shown '"model_type": "gpt_neox"'
program gpt2 --gpu a100 --methods naive
shown '"attn_implementation": "eager"'
shown "    python3 train.py train.bin"
# Its first lines, which are folded, say why it is not the answer of plan, and why it does not compile.
begins() {
  [[ $(head -20 "$OUT" | tr '\n' ' ') == *"$1"* ]] || fail "$LAST: the first lines lack '$1'"
}
program pythia-410m --gpu 4x3090
begins "It is planned by the memory and speed of PyTorch with torch.compile"
lacks "torch_compile is false"
lacks "start_deepspeed"
program gpt2 --gpu 4x3090 --methods free-lunch+zero2
setting torch_compile false
begins "torch_compile is false: DeepSpeed is planned without it"
[[ $(awk 'NR <= 12 && length > 110' "$OUT") == "" ]] || fail "$LAST: long lines"
given export gpt2 --gpu 4x3090 --methods free-lunch+zero2 --format hf
said "torch_compile is false: DeepSpeed is planned without it"
program mamba-130m --gpu a100
begins "torch_compile is false: in the versions of the paper"
given export pythia-410m --gpu 4x3090 --stack own --format train.py
lacks "It is planned by the memory"
program roberta --gpu 4xa100
shown "MASK_TOKEN = 50264"
shown "AutoModelForMaskedLM"
program vit --gpu 8xa100
shown "AutoModelForImageClassification"
shown "torchvision"
lacks "numpy"
program convnext-large-1k --gpu 8xa100
lacks attn_implementation
program mamba-130m --gpu a100
shown 'NO_DECAY = ("A_log", ".D")'
program gpt2 --gpu 16xa100 --nodes 2
shown "torchrun --nnodes=2 --nproc-per-node=8"
program pythia-70m --methods free-lunch --ranks 2 --device-memory 4GiB # without --gpu: this machine
given export "$GD_SOURCE_DIR/tests/reference/bert" --gpu a100 --seq 16 --batch 8 --format train.py
said "which token masks is not known"

# What comes from outside stays text in the program.
tiny_config "$WORK/a'''b" 's/"vocab_size": 64/"vocab_size": 64, "note": "'"'''"'; raise SystemExit(3) \\" \\u0027"/'
given export "$WORK/a'''b" --gpu a100 --seq 16 --batch 8 --steps 10 --format train.py
lacks "'''; raise"
[[ -z $python ]] || python3 - "$OUT" <<'END_OF_PYTHON' >"$WORK/said" || fail "$LAST: not a program that ends its strings"
import ast, json, sys
tree = ast.parse(open(sys.argv[1]).read())
texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
config = next(json.loads(t) for t in texts if '"model_type"' in t and t.lstrip().startswith("{"))
assert config["note"] == "'''; raise SystemExit(3) \" '", config["note"]
END_OF_PYTHON

# --- what is refused --------------------------------------------------------------------------

# What fits is a command, and it does.
fits() {
  local command
  silent
  command=$(sed -nE "s/.*what fits: '([^']*)'.*/\1/p" "$ERR")
  [[ -n $command ]] || fail "$LAST: nothing is said that fits"
  # shellcheck disable=SC2086 # a command line
  try ${command#gpudays }
  [[ $RC == 0 ]] || fail "$command: exit $RC, where it was said to fit"
}
expect 1 export pythia-12b --gpu 3090 --format hf
said "does not fit on 1 x NVIDIA GeForce RTX 3090 24 GB with PyTorch"
fits
expect 1 export pythia-12b --gpu 3090 --format train.py --stack own
said "device memory"
fits
expect 1 export pythia-12b --gpu 8xa100 --format hf --methods free-lunch
fits
expect 1 export gpt2 --gpu a100 --format hf --device-memory 100MiB
silent
refused() {
  expect 2 export pythia-14m "$@"
  silent
}
refused --gpu 4x3090 --format yaml
refused --gpu 4x3090
refused --gpu no-such-gpu --format hf
refused --gpu a100,h100 --format hf
refused --gpu 3x3090 --format hf
refused --gpu 4x3090 --format hf --methods all
refused --gpu 4x3090 --format hf --methods naive,free-lunch
refused --gpu 4x3090 --format hf --methods nope
refused --gpu 4x3090 --format hf --ranks 4
refused --gpu 4x3090 --format hf --device a100
said "leave one of them out"
refused --gpu 4x3090 --format hf --stack nope
refused --format hf --stack pytorch
said "name one with --gpu"
refused --format hf --count 4
refused --format hf --nodes 2
refused --gpu 4x3090 --format torchtitan
said "GPT-NeoX"
refused --gpu 4x3090 --format hf --seed 4294967296
mkdir "$WORK/folder"
refused --gpu 4x3090 --format train.py -o "$WORK/folder"
expect 3 export pythia-14m --gpu 4x3090 --format train.py -o "$WORK/no/such/train.py"
given export pythia-14m --gpu 4x3090 --format train.py -o "$WORK/written.py"
shown "wrote $WORK/written.py"
given export pythia-14m --gpu 4x3090 --format train.py
cmp "$OUT" "$WORK/written.py" || fail "-o writes something else"
