#!/usr/bin/env python3
"""The same trial in PyTorch + transformers, for comparison: not needed by the program or its tests.

Times passes (forward + backward of one micro-batch) and updates (clipping + Adam) of a preset apart,
as `gpudays bench` does, on the CPU or on a GPU. --mode eager is the naive method (eager attention,
no compilation), --mode compile is what free-lunch competes with: torch.compile, fused attention
(SDPA), bf16 autocast.

  python3 bench/peer_torch.py pythia-70m --micro-batch 1 --threads 2 --mode compile
"""
import argparse
import json
import pathlib
import statistics
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

MASKED = {"roberta", "bert"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, default=3)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    root = pathlib.Path(__file__).resolve().parent.parent
    preset = json.loads((root / "data" / "models" / f"{args.model}.json").read_text())
    recipe = preset["recipe"]
    fields = dict(preset["config"])
    kind = fields.pop("model_type")
    config = AutoConfig.for_model(kind, **fields)
    if hasattr(config, "max_position_embeddings"):
        room = recipe["seq"] + (2 if kind == "roberta" else 0)
        config.max_position_embeddings = max(config.max_position_embeddings, room)
    attention = "eager" if args.mode == "eager" else "sdpa"
    auto = AutoModelForMaskedLM if kind in MASKED else AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation=attention)
    model = model.to(args.device, torch.float32).train()  # masters in fp32; autocast does the rest
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, betas=tuple(recipe["betas"]))
    ids = torch.randint(config.vocab_size, (args.micro_batch, recipe["seq"]), device=args.device)
    labels = ids.clone()
    if kind in MASKED:  # BERT's masking rate, as `gpudays bench` draws it
        labels[torch.rand(labels.shape, device=args.device) >= 0.15] = -100
    run = torch.compile(model) if args.mode == "compile" else model
    extra = {} if kind in MASKED else {"use_cache": False}

    def wait():
        if args.device != "cpu":
            torch.cuda.synchronize()

    def timed(work):
        wait()
        start = time.perf_counter()
        work()
        wait()
        return time.perf_counter() - start

    def one_pass():
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = run(input_ids=ids, labels=labels, **extra).loss
        loss.backward()

    def update():
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):  # warm-up: the second pass compiles once more where gradients exist
        one_pass(), update()
    passes, updates = [], []
    for _ in range(args.samples):
        passes.append(timed(one_pass))
        updates.append(timed(update))
    pass_s, update_s = statistics.median(passes), statistics.median(updates)
    accumulation = recipe["batch"] / args.micro_batch
    step_s = pass_s * accumulation + update_s
    print(f"PyTorch {torch.__version__}, {args.mode}, {args.model}, {args.precision}, {args.device}, "
          f"{torch.get_num_threads()} threads: pass {pass_s:.3f} s, update {update_s:.3f} s, "
          f"{recipe['batch'] * recipe['seq'] / step_s:.1f} tokens/s")


if __name__ == "__main__":
    main()
