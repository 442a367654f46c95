#!/usr/bin/env python3
"""The same trial in PyTorch + transformers, for comparison: not needed by the program or its tests.

Times passes (forward + backward of one micro-batch) and updates (clipping + Adam) of a preset apart,
as `gpudays bench` does, on the CPU or on a GPU, eager attention, no compilation: the naive method.

  python3 bench/peer_pytorch.py pythia-70m --micro-batch 1 --precision bf16 --threads 2
"""
import argparse
import json
import pathlib
import statistics
import time

import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--samples", type=int, default=3)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)

    root = pathlib.Path(__file__).resolve().parent.parent
    preset = json.loads((root / "data" / "models" / f"{args.model}.json").read_text())
    recipe = preset["recipe"]
    config = GPTNeoXConfig(**{k: v for k, v in preset["config"].items() if k != "model_type"})
    config.max_position_embeddings = max(config.max_position_embeddings, recipe["seq"])
    config._attn_implementation = "eager"
    model = GPTNeoXForCausalLM(config).to(args.device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, betas=tuple(recipe["betas"]))
    ids = torch.randint(config.vocab_size, (args.micro_batch, recipe["seq"]), device=args.device)

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
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()

    def update():
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    one_pass(), update()  # warm-up
    passes, updates = [], []
    for _ in range(args.samples):
        passes.append(timed(one_pass))
        updates.append(timed(update))
    pass_s, update_s = statistics.median(passes), statistics.median(updates)
    accumulation = recipe["batch"] / args.micro_batch
    step_s = pass_s * accumulation + update_s
    print(f"PyTorch {torch.__version__}, {args.model}, {args.precision}, {args.device}, "
          f"{torch.get_num_threads()} threads: pass {pass_s:.3f} s, update {update_s:.3f} s, "
          f"{recipe['batch'] * recipe['seq'] / step_s:.1f} tokens/s")


if __name__ == "__main__":
    main()
