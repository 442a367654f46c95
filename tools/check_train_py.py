"""What `gpudays export --format train.py` writes, run on this CPU for one step with the real libraries.

tools/check_export.py calls it. Of every family the model that the program builds has the loss of
tests/reference; of causal ones the first step has the loss and the gradient norm of `gpudays train`
on the same weights and sequences. One model takes that step by every kind of sharding and offloading,
FSDP and ZeRO, in two processes and in one.
"""

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFERENCES = ROOT / "tests/reference"
CAUSAL = ["neox-parallel", "gpt2-a", "llama-a", "mistral", "qwen2", "olmo", "mamba-a"]
OTHERS = ["bert", "roberta-a", "vit-a", "convnext-a"]
# Of so many processes. DeepSpeed compiles kernels for the CPU before the first step of ZeRO: minutes.
METHODS = [("free-lunch", 2), ("free-lunch+ckpt", 2), ("free-lunch+fsdp2", 2), ("free-lunch+ckpt+fsdp3", 2),
           ("free-lunch+fsdp3+offload", 2), ("free-lunch+zero1", 2), ("free-lunch+zero2", 2),
           ("free-lunch+zero3", 2), ("free-lunch+ckpt+zero3+offload", 2), ("free-lunch+zero2", 1),
           ("free-lunch+zero3", 1), ("free-lunch+zero2+offload", 1)]
SEQ, BATCH = 16, 4
IMAGES = ("vit-a", "convnext-a")


def call(*arguments, **more):
    done = subprocess.run([str(argument) for argument in arguments], capture_output=True, text=True,
                          timeout=3600, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, arguments))}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def write_program(program, folder, name, *options):
    sizes = ["--batch", str(BATCH), "--steps", "10", "--precision", "fp32"]
    if name not in IMAGES:
        sizes += ["--seq", str(SEQ)]
    call(program, "export", REFERENCES / name, *sizes, *options, "--format", "train.py", "-q",
         "-o", folder / "train.py")
    return folder / "train.py"


def write_data(folder, name):
    import numpy
    random = numpy.random.default_rng(0)
    if name in IMAGES:
        from PIL import Image
        for label in "ab":
            (folder / "images" / label).mkdir(parents=True)
            for i in range(BATCH):
                pixels = random.integers(0, 256, (40, 40, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(folder / "images" / label / f"{i}.png")
        return folder / "images"
    # Just the sequences of one step: whatever their order, the step has all of them.
    random.integers(0, 80, BATCH * (SEQ - 1) + 1).astype("<u2").tofile(folder / "train.bin")
    if name not in CAUSAL:
        random.integers(0, 80, BATCH * SEQ).astype("<u2").tofile(folder / "train.bin")
    return folder / "train.bin"


def first_step(folder):
    (state,) = folder.glob("*/checkpoint-1/trainer_state.json")
    return next(row for row in json.loads(state.read_text())["log_history"] if "loss" in row)


def check_reference(path, name):
    """The model as the program builds it, with the reference's weights and batch."""
    import torch
    from safetensors.torch import load_file
    spec = importlib.util.spec_from_file_location("train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.make_model(REFERENCES / name).eval()
    batch = load_file(REFERENCES / name / "batch.safetensors")
    batch = {key: value.long() if value.dtype == torch.int32 else value for key, value in batch.items()}
    with torch.no_grad():
        loss = model(**batch).loss.item()
    expected = load_file(REFERENCES / name / "reference.safetensors")["loss"].item()
    assert math.isclose(loss, expected, rel_tol=1e-5), f"{name}: loss {loss}, the reference's is {expected}"
    return loss


def check_family(program, name):
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        path = write_program(program, folder, name, "--gpu", "a100")
        data = write_data(folder, name)
        loss = check_reference(path, name)
        init = ["--init", REFERENCES / name] if name in CAUSAL else []
        call(sys.executable, path, data, "--cpu", *init, "--set", "max_steps=1", "logging_steps=1", cwd=folder)
        step = first_step(folder)
        said = f"{name}: reference loss {loss:.6f}, first step {step['loss']:.6f}"
        if name in CAUSAL:
            call(program, "train", REFERENCES / name, "--init", REFERENCES / name, "--data", data,
                 "--token-bytes", "2", "--seq", SEQ, "--batch", BATCH, "--steps", "1", "--precision", "fp32",
                 "--methods", "naive", "-q", "-o", folder / "run")
            own = json.loads((folder / "run/log.jsonl").read_text().splitlines()[0])
            assert math.isclose(own["loss"], step["loss"], rel_tol=1e-5), f"{said}; gpudays {own['loss']}"
            assert math.isclose(own["gradient_norm"], step["grad_norm"], rel_tol=1e-3), f"{said}; {own}, {step}"
            said += f" (gpudays train: {own['loss']:.6f}); gradient norm {step['grad_norm']:.4f} " \
                    f"({own['gradient_norm']:.4f})"
        print(said, flush=True)


def check_method(program, method, processes):
    """Started as its first lines say: by torchrun, or by python3 alone."""
    name = "llama-a"
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        gpus = "a100" if processes == 1 else f"{processes}xa100"
        path = write_program(program, folder, name, "--gpu", gpus, "--methods", method)
        data = write_data(folder, name)
        tools = Path(sys.executable).parent  # where pip puts torchrun, and ninja, which DeepSpeed looks for
        launch = [sys.executable] if processes == 1 else \
            [tools / "torchrun", f"--nproc-per-node={processes}", "--master-port=29617"]
        call(*launch, path, data, "--init", REFERENCES / name, "--set", "use_cpu=true", "tf32=false",
             "torch_compile=false", 'optim="adamw_torch"', "max_steps=1", "logging_steps=1", cwd=folder,
             env=os.environ | {"OMP_NUM_THREADS": "1", "PATH": f"{tools}:{os.environ['PATH']}"})
        step = first_step(folder)
        print(f"{name}, {method}, {processes} process{'es' if processes > 1 else ''}: first step "
              f"{step['loss']:.6f}, gradient norm {step['grad_norm']:.4f}", flush=True)
        return step["loss"], step["grad_norm"]


def check_programs(program):
    print("train.py, one step in fp32 on the CPU; of causal models on the weights and sequences of gpudays train")
    for name in CAUSAL + OTHERS:
        check_family(program, name)
    steps = [check_method(program, *point) for point in METHODS]
    for kind, values in zip(("losses", "gradient norms"), zip(*steps)):
        assert max(values) - min(values) < 1e-4, f"{kind} of one step by method: {values}"
    print("every program took its step; losses are the reference's and those of gpudays train within 1e-5, "
          "gradient norms\nwithin 1e-3, and the same by every method; torch.compile is not run here")


if __name__ == "__main__":
    check_programs(str(Path(sys.argv[1]).resolve()))
