#!/usr/bin/env python3
"""Loads what `gpudays export` writes with the tools it is for, at every point of the search space.

Usage: tools/check_export.py GPUDAYS >results/export-checked.txt

Needs transformers, accelerate, deepspeed, torchtitan 0.2 (tyro), torch, torchvision and Pillow.
Settings, of trials and of plans for other hardware, are parsed by the tools' own loaders, the batch
is checked by them, and the learning rates of their schedulers are compared with the recipe's. A GPU
is not needed; that there is an Ampere GPU is pretended where transformers asks. train.py takes real
steps on the CPU: check_train_py.py.
"""

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import tomllib
import unittest.mock
from pathlib import Path

import check_train_py

os.environ.update(DS_ACCELERATOR="cpu", TRANSFORMERS_VERBOSITY="error", DS_BUILD_OPS="0")
ROOT = Path(__file__).resolve().parent.parent
MODELS = ["pythia-160m", "roberta", "vit", "mamba-130m", "llama-3.1-8b"]
RANKS = [1, 4]
TARGETS = [("pythia-410m", "4x3090"), ("gpt2-xl", "8xa100"), ("roberta", "4xa6000"),
           ("vit", "8xh100"), ("mamba-1.4b", "4xa100"), ("llama-3.1-8b", "16xh100")]
MICRO_BATCH = 16


def call(program, *arguments, code=0, **more):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, **more)
    if done.returncode != code:
        sys.exit(f"gpudays {' '.join(arguments)}: exit {done.returncode}: {done.stderr}")
    return done.stderr if code else done.stdout


def methods_of(program, ranks):
    out = call(program, "plan", "pythia-14m", "--methods", "all", "--ranks", str(ranks),
               "--micro-batch", "4", "--device-memory", "1TiB", "--host-memory", "1TiB", "--json")
    return [trial["method"] for trial in json.loads(out)["trials"]]


def complete(trial, model):
    """What a trial computes from its own numbers, which 'results load' checks."""
    trial["step_half_width_s"] = 0.0
    trial["step_s"] = trial["accumulation"] * trial["micro_step_s"] + trial["update_s"]
    step, peak = trial["step_s"], 1e18
    days = trial["train_flops"] / trial["model_flops_per_step"] * step / 86400
    trial.update(
        days=days, days_low=days, days_high=days, peak_flops=peak,
        mfu=trial["model_flops_per_step"] / step / peak,
        hfu=trial["exec_flops_per_step"] / step / peak,
        samples_per_s=model["batch"] / step, tokens_per_s=model["batch"] * (model["seq"] or 1) / step)


def fill_store(program, folder, backend):
    """A measured trial of every model and point, made from one that the tests have."""
    lines = (ROOT / "tests/cli/results.jsonl").read_text().splitlines()
    saved = [lines[0]]
    for name in MODELS:
        model = json.loads(call(program, "models", name, "--json"))
        for ranks in RANKS:
            for method in methods_of(program, ranks) + ["naive"]:
                row = json.loads(lines[1])
                row["key"] = f"table;key={len(saved):032x}"
                row["trial"].update(
                    model=name, method=method, ranks=ranks, backend=backend, device=backend,
                    parameters=model["parameters"], precision=model["precision"],
                    micro_batch=MICRO_BATCH, accumulation=model["batch"] // ranks // MICRO_BATCH,
                    model_flops_per_step=model["flops_per_step"],
                    exec_flops_per_step=model["flops_per_step"],
                    train_flops=model["train_flops"], recipe="", machine="",
                    precision_substituted=False, remainder=0)
                complete(row["trial"], model)
                saved.append(json.dumps(row))
    path = folder / f"{backend}.jsonl"
    path.write_text("\n".join(saved) + "\n")
    call(program, "results", "load", str(path))


def rate_of(recipe, step):
    """The learning rate of a step, as src/model has it, but for the first step of the warm-up."""
    if step < recipe["warmup_steps"]:
        return recipe["lr"] * step / recipe["warmup_steps"]
    done = (step - recipe["warmup_steps"]) / (recipe["steps"] - recipe["warmup_steps"])
    if recipe["schedule"] == "constant":
        return recipe["lr"]
    share = 1 - done if recipe["schedule"] == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return recipe["min_lr"] + (recipe["lr"] - recipe["min_lr"]) * share


def steps_of(recipe):
    warmup, steps = recipe["warmup_steps"], recipe["steps"]
    return [warmup // 2, warmup, (warmup + steps) // 2, steps - 1]


def same_rates(recipe, rate, what):
    for step in steps_of(recipe):
        expected = rate_of(recipe, step)
        assert math.isclose(rate(step), expected, rel_tol=1e-3, abs_tol=1e-9), \
            f"{what}: rate {rate(step)} at step {step}, the recipe's is {expected}"


def optimizer_of(rate):
    import torch
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=rate)


class Ranks:
    """What DeepSpeed asks how many ranks there are."""

    def __init__(self, count):
        self.count = count

    def get_data_parallel_world_size(self):
        return self.count

    get_model_parallel_world_size = get_tensor_model_parallel_world_size = lambda self: 1


def check_deepspeed_config(config, recipe, ranks):
    from deepspeed.runtime.config import DeepSpeedConfig
    with unittest.mock.patch("deepspeed.runtime.config.dist.get_rank", return_value=0):
        loaded = DeepSpeedConfig(config, mpu=Ranks(ranks))
    assert loaded.train_batch_size == recipe["batch"]
    assert (loaded.train_micro_batch_size_per_gpu * loaded.gradient_accumulation_steps * ranks
            == recipe["batch"])
    assert loaded.bfloat16_config.enabled == (recipe["precision"] == "bf16")
    assert loaded.float16_config.enabled == (recipe["precision"] == "fp16")
    assert loaded.gradient_clipping == recipe["max_grad_norm"]
    return loaded


def stage_of(method):
    names = {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp2": 2, "fsdp3": 3}
    return next((stage for name, stage in names.items() if name in method.split("+")), 0)


def check_deepspeed(path, recipe, method, ranks):
    import deepspeed.runtime.lr_schedules as schedules
    config = json.loads(path.read_text())
    loaded = check_deepspeed_config(str(path), recipe, ranks)
    assert loaded.zero_optimization_stage == stage_of(method)
    assert (loaded.zero_config.offload_optimizer is not None) == ("offload" in method)
    decoupled = recipe["optimizer"] == "adamw" or recipe.get("decoupled_decay")
    assert loaded.optimizer_name == ("adamw" if decoupled else "adam")
    maker = getattr(schedules, loaded.scheduler_name)
    scheduler = maker(optimizer_of(recipe["lr"]), **config["scheduler"]["params"])

    def rate(step):
        scheduler.step(step)
        return scheduler.get_last_lr()[0]
    same_rates(recipe, rate, "DeepSpeed")


def check_hf(path, recipe, method, ranks):
    import transformers
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    (args,) = parser.parse_json_file(json_file=str(path))
    again = transformers.TrainingArguments(**json.loads(path.read_text()))
    assert again.learning_rate == args.learning_rate == recipe["lr"]
    assert (args.per_device_train_batch_size * args.gradient_accumulation_steps * ranks
            == recipe["batch"])
    parts = method.split("+")
    zero = any(part.startswith("zero") for part in parts)
    fsdp = any(part.startswith("fsdp") for part in parts)
    assert bool(args.fsdp) == fsdp and (args.deepspeed is not None) == zero
    mamba = "mamba" in args.output_dir
    assert args.torch_compile == (parts[0] == "free-lunch" and not zero and not mamba)
    if fsdp:
        from accelerate import FullyShardedDataParallelPlugin
        from torch.distributed.fsdp import CPUOffloadPolicy
        plugin = FullyShardedDataParallelPlugin(**args.fsdp_plugin_args)
        assert plugin.reshard_after_forward == ("fsdp3" in parts)
        assert isinstance(plugin.cpu_offload, CPUOffloadPolicy) == ("offload" in parts)
        assert plugin.activation_checkpointing == ("ckpt" in parts)
    else:
        assert args.gradient_checkpointing == ("ckpt" in parts)
    if zero:  # as Trainer does it when the run begins, on that many ranks
        class Several(transformers.TrainingArguments):
            world_size = property(lambda self: ranks)
        args.__class__ = Several
        filled = HfTrainerDeepSpeedConfig(json.loads(path.read_text())["deepspeed"])
        filled.trainer_config_process(args)
        filled.trainer_config_finalize(args, None, args.max_steps)
        assert check_deepspeed_config(filled.config, recipe, ranks).zero_optimization_stage == \
            stage_of(method)
    optimizer = optimizer_of(args.learning_rate)
    scheduler = transformers.get_scheduler(
        args.lr_scheduler_type, optimizer, num_warmup_steps=args.get_warmup_steps(args.max_steps),
        num_training_steps=args.max_steps, scheduler_specific_kwargs=args.lr_scheduler_kwargs)
    same_rates(recipe, lambda step: recipe["lr"] * scheduler.lr_lambdas[0](step), "transformers")


def check_torchtitan(path, recipe, method, ranks):
    from torchtitan.components.lr_scheduler import build_lr_schedulers
    from torchtitan.config import ConfigManager
    from torchtitan.models.llama3 import llama3_args
    tomllib.loads(path.read_text())
    config = ConfigManager().parse_args([f"--job.config_file={path}"])
    parallelism, training = config.parallelism, config.training
    assert (parallelism.data_parallel_replicate_degree * parallelism.data_parallel_shard_degree
            == ranks)
    assert training.global_batch_size == recipe["batch"]
    assert training.global_batch_size % (training.local_batch_size * ranks) == 0
    assert config.model.flavor in llama3_args
    assert training.enable_cpu_offload == ("offload" in method)
    assert (config.activation_checkpoint.mode == "full") == ("ckpt" in method)
    assert config.compile.enable == method.startswith("free-lunch")

    class Container(list):
        pass
    schedulers = build_lr_schedulers(Container([optimizer_of(recipe["lr"])]), config.lr_scheduler,
                                     training.steps)
    (scheduler,) = schedulers.schedulers
    # It counts the steps of the warm-up from one and reaches the end one step late.
    for step in steps_of(recipe)[1:3]:
        assert math.isclose(recipe["lr"] * scheduler.lr_lambdas[0](step), rate_of(recipe, step),
                            rel_tol=1e-2), f"torchtitan: rate at step {step}"


CHECKS = {"hf": check_hf, "deepspeed": check_deepspeed, "torchtitan": check_torchtitan}


def pretend_gpu():
    import transformers.training_args as where
    where.is_torch_tf32_available = lambda: True
    where.is_torch_bf16_gpu_available = lambda: True
    where.enable_tf32 = lambda on: None


def be_quiet():
    import logging
    import deepspeed  # noqa: F401  makes its logger
    for name in ("DeepSpeed", "torchtitan", "root", ""):
        logging.getLogger(name).setLevel(logging.ERROR)


def check_fields():
    """The lists that the tests go by name fields which the tools have."""
    import dataclasses
    import transformers
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from torchtitan.config import JobConfig

    def listed(name):
        lines = (ROOT / "tests/export" / name).read_text().splitlines()
        return [line.split()[0] for line in lines if not line.startswith("#")]
    known = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    names = {name.split(".")[0] for name in listed("fields_hf.txt")}
    assert names <= known, names - known
    config = JobConfig()
    for name in listed("fields_torchtitan.txt"):
        section, key = name.split(".")
        assert hasattr(getattr(config, section), key), name
    fields = DeepSpeedZeroConfig.model_fields
    known = set(fields) | {field.alias for field in fields.values()}
    for name in listed("fields_deepspeed.txt"):
        parts = name.split(".")
        assert parts[0] != "zero_optimization" or len(parts) == 1 or parts[1] in known, name
    print("fields_hf.txt, fields_deepspeed.txt (zero_optimization), fields_torchtitan.txt: "
          "all there")


def check_point(program, folder, recipe, point, tally):
    name, backend, ranks, method = point
    for form, check in CHECKS.items():
        path = folder / f"settings.{'toml' if form == 'torchtitan' else 'json'}"
        arguments = ["export", name, "--format", form, "--methods", method, "--ranks", str(ranks),
                     "--device", backend, "-o", str(path)]
        refused = form == "torchtitan" and (
            name != "llama-3.1-8b" or "zero1" in method or ("offload" in method and ranks == 1))
        if refused:
            said = call(program, *arguments, code=2)
            assert "torchtitan" in said and "--format" in said, said
            tally[form][1] += 1
            continue
        call(program, *arguments)
        check(path, recipe, method, ranks)
        tally[form][0] += 1


def check_targets(program, folder):
    """The plans for hardware that is not here: of the format's software, each method, and the engine's own."""
    for name, gpu in TARGETS:
        recipe = json.loads(call(program, "models", name, "--json"))
        ranks = int(gpu.split("x")[0])
        tally = {form: 0 for form in CHECKS}
        for method in [None, *methods_of(program, 4)]:
            for form, check in CHECKS.items():
                if form == "torchtitan" and (name != "llama-3.1-8b" or (method and "zero1" in method)):
                    continue
                path = folder / f"plan.{'toml' if form == 'torchtitan' else 'json'}"
                asked = ["export", name, "--gpu", gpu, "--format", form, "--micro-batch", "1",
                         "--device-memory", "1TiB", "--host-memory", "1TiB", "-o", str(path), "--json",
                         *(["--methods", method] if method else [])]
                said = json.loads(call(program, *asked))
                check(path, recipe | {"precision": said["precision"]}, said["method"], ranks)
                tally[form] += 1
        print(f"{name}, --gpu {gpu}: " + ", ".join(f"{form} {n}" for form, n in tally.items()), flush=True)


def main():
    program = str(Path(sys.argv[1]).resolve())
    print("# What gpudays export writes, loaded by the tools it is for.")
    print("# Written by tools/check_export.py: loaded / refused with a sentence, of 12 + 22 points and naive.")
    print("# No GPU was there; for rows of cuda transformers was told that it has one.")
    print(f"python {platform.python_version()}")
    for package in ("transformers", "accelerate", "deepspeed", "torchtitan", "torch", "torchvision"):
        print(f"{package} {importlib.metadata.version(package)}")
    pretend_gpu()
    be_quiet()
    check_fields()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GPUDAYS_DB"] = str(folder / "results.db")
        for backend in ("cuda", "cpu"):
            fill_store(program, folder, backend)
            for model in MODELS:
                recipe = json.loads(call(program, "models", model, "--json"))
                for ranks in RANKS:
                    tally = {form: [0, 0] for form in CHECKS}
                    for method in methods_of(program, ranks) + ["naive"]:
                        point = (model, backend, ranks, method)
                        check_point(program, folder, recipe, point, tally)
                    counts = ", ".join(f"{form} {a}/{b}" for form, (a, b) in tally.items())
                    print(f"{model}, {recipe['precision']}, {backend}, {ranks} rank"
                          f"{'s' if ranks > 1 else ''}: {counts}", flush=True)
        print("plans for other hardware, all methods and the one that is chosen:")
        check_targets(program, folder)
    print("every file was loaded; batches, precisions and methods are those of the trial or plan; learning rates "
          "are the recipe's\n(hf, deepspeed: 4 steps, within 0.1 %; torchtitan: 2 steps, within 1 %)")
    check_train_py.check_programs(program)


if __name__ == "__main__":
    main()
