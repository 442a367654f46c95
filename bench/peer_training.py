#!/usr/bin/env python3
"""Trains a model folder of transformers in PyTorch on the batches of a `gpudays train` run, for comparison.

Order and schedule are those of `gpudays train` with seed 0 (tools/make_training_reference.py has them too):
compiled, SDPA, fused AdamW, bf16 autocast, cosine to a tenth. Writes a line a step: step, loss, seconds.

  python3 bench/peer_training.py FOLDER TOKENS.bin -o losses.txt --seq 1024 --batch 64 --steps 1526 --most 377
"""
import argparse
import math
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from make_training_reference import fnv, permute, philox  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("tokens", help="raw uint16 ids")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=32)
    parser.add_argument("--steps", type=int, required=True, help="of the schedule")
    parser.add_argument("--most", type=int, help="end after so many")
    parser.add_argument("--time-limit", type=float, default=1e9, help="end after so many seconds")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--fp32", action="store_true", help="neither autocast nor compiled")
    args = parser.parse_args()

    tokens = np.fromfile(args.tokens, dtype=np.uint16)
    stride = args.seq - 1
    count = (len(tokens) - args.seq) // stride + 1

    def sample(index):
        epoch, at = divmod(index, count)
        key = philox(0, fnv("order"), epoch)
        first = permute(key[0] << 32 | key[1], count, at) * stride
        return tokens[first:first + args.seq].astype(np.int64)

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(args.folder, attn_implementation="sdpa").to(args.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), eps=1e-8,
                                  weight_decay=args.weight_decay, fused=args.device == "cuda")
    vocabulary = model.config.vocab_size

    def loss_of(ids):
        logits = model(input_ids=ids, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, vocabulary).float(), ids[:, 1:].reshape(-1))

    run = loss_of if args.fp32 else torch.compile(loss_of)
    start, seconds = time.time(), []
    with open(args.output, "w") as out:
        for step in range(min(args.steps, args.most or args.steps)):
            left = (args.steps - step) / (args.steps - args.warmup)
            rate = args.lr * (step + 1) / args.warmup if step < args.warmup else \
                args.lr / 10 + 0.9 * args.lr * 0.5 * (1 + math.cos(math.pi * (1 - left)))
            for group in optimizer.param_groups:
                group["lr"] = rate
            before, total = time.time(), 0.0
            optimizer.zero_grad()
            for at in range(0, args.batch, args.micro_batch):
                rows = [sample(step * args.batch + i) for i in range(at, min(at + args.micro_batch, args.batch))]
                ids = torch.from_numpy(np.stack(rows)).to(args.device)
                with torch.autocast(args.device, torch.bfloat16, enabled=not args.fp32):
                    loss = run(ids) * (len(rows) / args.batch)
                loss.backward()
                total += loss.item()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if args.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.time() - before)
            print(step + 1, f"{total:.6g}", f"{seconds[-1]:.4f}", file=out, flush=True)
            if time.time() - start > args.time_limit:
                break
    rate = args.batch * args.seq / statistics.median(seconds)
    print(f"{len(seconds)} steps, loss {total:.6g}, median {rate:,.0f} tokens/s")


main()
