#!/usr/bin/env python3
"""Losses of 200 training steps in PyTorch and transformers, for tests/train/test_parity.sh.

Each family trains from the weights of tests/reference/NAME on one file of tokens, in the order of
`gpudays train` (src/data/permute.c and dataset.c, written again here), with AdamW or Adam, gradient
clipping, warm-up and a cosine. The file is written too, so that the test reads the same one.

Usage: make_training_reference.py [NAME...]
Needs torch, safetensors, numpy and transformers 5; made with torch 2.15.0 and transformers 5.23.0.
"""
import math
import os
import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "tests/train/parity")
STEPS, BATCH, SEQ, WARMUP, LR, CLIP, MASK, TOKENS = 200, 8, 24, 20, 3e-3, 1.0, 96, 12000
FAMILIES = {"neox-parallel": "causal", "llama-a": "causal", "gpt2-a": "causal", "mamba-a": "causal",
            "roberta-a": "masked"}
M64 = (1 << 64) - 1


def philox(seed, stream, index):
    c = [index & 0xFFFFFFFF, index >> 32, stream & 0xFFFFFFFF, stream >> 32]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def fnv(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & M64
    return value


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def permute(key, count, index):
    half = 1
    while half < 32 and (1 << (2 * half)) < count:
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for r in range(8):
            left, right = right, left ^ (mix((mix((key + r) & M64) + right) & M64) & mask)
        index = left << half | right
        if index < count:
            return index


def sample(tokens, index, causal, vocabulary):
    """Ids and labels of sample `index` of a run with seed 0."""
    stride = SEQ - causal
    count = (len(tokens) - SEQ) // stride + 1
    epoch, at = divmod(index, count)
    key = philox(0, fnv("order"), epoch)
    sequence = permute(key[0] << 32 | key[1], count, at)
    ids = [int(t) for t in tokens[sequence * stride:sequence * stride + SEQ]]
    if causal:
        return ids, list(ids)
    labels, found = [-100] * SEQ, False
    for i in range(SEQ):
        draw = philox(0, (fnv("mask") + (epoch << 16)) & M64, sequence * SEQ + i)
        if draw[0] % 100 >= 15 and not (not found and i + 1 == SEQ):
            continue
        found = True
        labels[i] = ids[i]
        fate = draw[1] % 100
        if fate < 80:
            ids[i] = MASK
        elif fate < 90:
            ids[i] = draw[2] % vocabulary
    return ids, labels


def learning_rate(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    left = (STEPS - step) / (STEPS - WARMUP)
    return LR / 10 + (LR - LR / 10) * 0.5 * (1 + math.cos(math.pi * (1 - left)))


def losses(name, kind, tokens):
    folder = os.path.join(ROOT, "tests/reference", name)
    config = AutoConfig.from_pretrained(folder)
    maker = AutoModelForCausalLM if kind == "causal" else AutoModelForMaskedLM
    model = maker.from_pretrained(folder, attn_implementation="eager" if name != "mamba-a" else None)
    model.train()
    # Mamba's own code marks these (_no_weight_decay); loading forgets the mark.
    rest = [p for n, p in model.named_parameters() if n.endswith((".A_log", ".mixer.D"))]
    decayed = [p for p in model.parameters() if not any(p is q for q in rest)]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    for step in range(STEPS):
        rows = [sample(tokens, step * BATCH + i, kind == "causal", config.vocab_size) for i in range(BATCH)]
        ids = torch.tensor([r[0] for r in rows])
        labels = torch.tensor([r[1] for r in rows])
        logits = model(input_ids=ids).logits.float()
        if kind == "causal":
            logits, labels = logits[:, :-1], labels[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab_size), labels.reshape(-1),
                                                 ignore_index=-100)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        yield loss.item()


def main():
    os.makedirs(FOLDER, exist_ok=True)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    values, x = [], 7
    for i in range(TOKENS):  # a walk with a period that is too long to learn whole
        x = (x * 37 + 11 + (i * i) % 5 + (i % 7 == 0)) % 96
        values.append(x)
    tokens = np.array(values, dtype=np.uint16)
    tokens.tofile(os.path.join(FOLDER, "tokens.bin"))
    for name in sys.argv[1:] or FAMILIES:
        with open(os.path.join(FOLDER, name + ".txt"), "w") as file:
            print("# losses of 200 steps by tools/make_training_reference.py", file=file)
            for step, loss in enumerate(losses(name, FAMILIES[name], tokens)):
                print(step + 1, f"{loss:.9g}", file=file)
                last = loss
        print(name, last)


main()
