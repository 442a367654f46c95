#!/usr/bin/env bash
# What train.py asks of its libraries, in which order: it runs on stand-ins for them, which say what
# they are asked. With the libraries themselves tools/check_train_py.py runs it.
GD_SOURCE_DIR=${GD_SOURCE_DIR:-$(cd "$(dirname "$0")/../.." && pwd)}
# shellcheck source=/dev/null
source "$GD_SOURCE_DIR/tests/cli/common.sh"
command -v python3 >/dev/null || { echo "skipped: no python3" && exit 77; }

mkdir -p "$WORK"/{torch,transformers,numpy,deepspeed}
cat >"$WORK/numpy/__init__.py" <<'END'
int64 = int
class Ids(list):
    def max(self):
        return max(self)
    def __getitem__(self, i):
        return Ids(list.__getitem__(self, i)) if isinstance(i, slice) else list.__getitem__(self, i)
def fromfile(path, kind, count):
    return [0]
def memmap(path, *arguments, **more):
    return Ids(open(path, "rb").read())
END
cat >"$WORK/torch/__init__.py" <<'END'
class utils:
    class data:
        Dataset = object
class cuda:
    is_available = staticmethod(lambda: True)
class optim:
    Adam = None
float32 = "fp32"
END
cat >"$WORK/deepspeed/__init__.py" <<'END'
import os
def init_distributed(backend, auto_mpi_discovery):
    print("deepspeed starts", backend, "rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"])
END
cat >"$WORK/transformers/__init__.py" <<'END'
import os
class TrainingArguments:
    seed, output_dir = 0, "none"
    def __init__(self, **settings):
        print("arguments deepspeed" if "deepspeed" in settings else "arguments", "rank", os.environ.get("RANK"),
              "compile", settings.get("torch_compile"))
class Trainer:
    def __init__(self, model, args, train_dataset, **more):
        print("trainer of", model)
    def train(self, **more):
        print("train")
    save_model = train
class AutoConfig:
    for_model = staticmethod(lambda **config: config)
class AutoModelForCausalLM:
    @staticmethod
    def from_config(config, **how):
        print("model", how["attn_implementation"])
        return config["model_type"]
def set_seed(seed):
    pass
END
echo 'def get_last_checkpoint(folder): return None' >"$WORK/transformers/trainer_utils.py"
head -c 9000 /dev/zero >"$WORK/train.bin"

# runs OPTIONS -- ARGUMENT...: the program of the options; its events, one line, in OUT.
runs() {
  local options=()
  while [[ $1 != -- ]]; do options+=("$1") && shift; done
  shift
  expect 0 export pythia-14m --seq 64 --batch 8 --gpu "${options[@]}" --format train.py -q -o "$WORK/train.py"
  LAST="train.py of ${options[*]}, $*"
  RC=0
  (cd "$WORK" && env -u RANK -u WORLD_SIZE -u LOCAL_RANK PYTHONPATH="$WORK" "${launch[@]}" python3 train.py train.bin "$@") \
    >"$WORK/events" 2>"$ERR" || RC=$?
  paste -sd'|' "$WORK/events" >"$OUT"
}
is() {
  [[ $RC == 0 && $(cat "$OUT") == "$1" ]] || fail "$LAST: exit $RC, events '$(cat "$OUT")', not '$1'"
}

launch=(env)
end="model sdpa|trainer of gpt_neox|train|train"
runs a100 --
is "arguments rank None compile True|$end"
runs a100 -- --cpu
is "arguments rank None compile None|$end"
# DeepSpeed finds the variables of a launcher also where one process was started without.
for method in free-lunch+zero2 free-lunch+ckpt+zero3; do
  runs a100 --methods "$method" --
  is "arguments deepspeed rank 0 compile False|$end"
  # On CPUs nobody starts it before the model is made, which ZeRO 3 needs.
  runs a100 --methods "$method" -- --set use_cpu=true torch_compile=true
  is "deepspeed starts gloo rank 0 of 1|arguments deepspeed rank 0 compile True|$end"
  runs a100 --methods "$method" -- --cpu
  is "arguments rank None compile None|$end"
done
launch=(env WORLD_SIZE=2 RANK=1 LOCAL_RANK=1)
runs 2xa100 --methods free-lunch+zero3 -- --set use_cpu=true
is "deepspeed starts gloo rank 1 of 2|arguments deepspeed rank 1 compile False|$end"
# Another number of processes would be another batch.
launch=(env)
runs 2xa100 --methods free-lunch+zero3 --
[[ $RC == 1 ]] || fail "$LAST: exit $RC"
said "torchrun --nproc-per-node=2 train.py"
