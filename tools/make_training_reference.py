#!/usr/bin/env python3
"""Losses of 200 training steps in PyTorch and transformers, for tests/train/test_parity.sh.

Each family trains from the weights of tests/reference/NAME on one file of tokens, or on one archive
of images, in the order of `gpudays train` (src/data/permute.c and dataset.c, written again here), with
AdamW or Adam, gradient clipping, warm-up and a cosine. The data is written too, so that the test
reads the same. Models of images have label smoothing and no augmentation; NAME+drop-path has
stochastic depth, whose draws (src/base/rng.h) are computed here too.

Usage: make_training_reference.py [NAME...]
Needs torch, safetensors, numpy, Pillow and transformers 5; made with torch 2.15.0, transformers 5.23.0
and Pillow 13.0.0.
"""
import io
import math
import os
import sys
import tarfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "tests/train/parity")
STEPS, BATCH, SEQ, WARMUP, LR, CLIP, MASK, TOKENS = 200, 8, 24, 20, 3e-3, 1.0, 96, 12000
FAMILIES = {"neox-parallel": "causal", "llama-a": "causal", "gpt2-a": "causal", "mamba-a": "causal",
            "roberta-a": "masked", "vit-a": "images", "vit-a+drop-path": "images", "convnext-a": "images",
            "convnext-a+drop-path": "images"}
IMAGES, CLASSES, SMOOTHING, DROP_PATH = 36, 11, 0.1, 0.2
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
M64 = (1 << 64) - 1


def philox(seed, stream, index, rounds=10):
    c = [index & 0xFFFFFFFF, index >> 32, stream & 0xFFFFFFFF, stream >> 32]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(rounds):
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


def make_images(path):
    """Patches of a colour and a direction for each class, of several sizes; as WebDataset has them."""
    from PIL import Image
    rng = np.random.default_rng(4)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(IMAGES):
            width, height, number = 22 + i % 5, 18 + i % 3, i % CLASSES
            y, x = np.mgrid[0:height, 0:width]
            stripes = np.sin(0.5 * (x * math.cos(number) + y * math.sin(number)) + rng.uniform(0, 6))
            colour = np.array([math.cos(number), math.cos(2 * number), math.cos(3 * number)])
            pixels = 128 + 70 * stripes[:, :, None] * colour + rng.normal(0, 20, (1, 1, 3))
            image = Image.fromarray((np.clip(pixels, 0, 255).astype(np.uint8) & 0xF8))
            file = io.BytesIO()
            image.save(file, "PNG", optimize=True)
            for name, data in ("%02d.png" % i, file.getvalue()), ("%02d.cls" % i, str(number).encode()):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def read_images(path, height, width):
    """Pixels [n,3,height,width] and classes, through the transform of evaluation."""
    from PIL import Image
    pixels, classes = [], []
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            data = tar.extractfile(member).read()
            if member.name.endswith(".cls"):
                classes.append(int(data))
                continue
            image = Image.open(io.BytesIO(data)).convert("RGB")
            if image.height * width <= image.width * height:
                scaled = height * 256 // 224
                size = scaled * image.width // image.height, scaled
            else:
                scaled = width * 256 // 224
                size = scaled, scaled * image.height // image.width
            image = image.resize((max(size[0], width), max(size[1], height)), Image.BILINEAR)
            left, top = round((image.width - width) / 2), round((image.height - height) / 2)
            bytes_ = np.asarray(image.crop((left, top, left + width, top + height)), dtype=np.float32)
            pixels.append(((bytes_ / 255 - np.float32(MEAN)) / np.float32(DEVIATION)).transpose(2, 0, 1))
    return torch.tensor(np.stack(pixels)), torch.tensor(classes)


def drop_branches(model, name):
    """Stochastic depth of every residual branch but the first block's; returns what sets the step."""
    state = {}

    def dropper(rate, stream):
        threshold = math.floor(np.float32(rate).item() * 65536 + 0.5)

        def hook(_module, _inputs, output):
            kept = []
            for sample in range(BATCH):
                words = philox(0, stream << 32 | state["step"], sample // 8, 7)
                bits = words[sample % 8 // 2] >> (sample % 2 * 16) & 0xFFFF
                kept.append(65536 / (65536 - threshold) if bits >= threshold else 0)
            first = output[0] if isinstance(output, tuple) else output
            first = first * torch.tensor(kept, dtype=first.dtype).reshape([-1] + [1] * (first.dim() - 1))
            return (first,) + output[1:] if isinstance(output, tuple) else first
        return hook

    stream = 0
    if name == "vit-a":
        blocks = model.vit.layers if hasattr(model.vit, "layers") else model.vit.encoder.layer
        branches = [[b.attention, b.output.dense if hasattr(b, "output") else b.mlp] for b in blocks]
    else:
        blocks = [layer for stage in model.convnext.encoder.stages for layer in stage.layers]
        branches = [[b.drop_path] for b in blocks]
    for i, block in enumerate(branches):
        for module in block if i > 0 else []:
            module.register_forward_hook(dropper(DROP_PATH * i / (len(branches) - 1), stream))
            stream += 1
    return state


def learning_rate(step):
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    left = (STEPS - step) / (STEPS - WARMUP)
    return LR / 10 + (LR - LR / 10) * 0.5 * (1 + math.cos(math.pi * (1 - left)))


def token_losses(model, step, tokens, causal, vocabulary):
    rows = [sample(tokens, step * BATCH + i, causal, vocabulary) for i in range(BATCH)]
    ids = torch.tensor([r[0] for r in rows])
    labels = torch.tensor([r[1] for r in rows])
    logits = model(input_ids=ids).logits.float()
    if causal:
        logits, labels = logits[:, :-1], labels[:, 1:]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), labels.reshape(-1), ignore_index=-100)


def image_losses(model, name, step, pixels, classes, state):
    key = [philox(0, fnv("order"), epoch) for epoch in range(STEPS * BATCH // IMAGES + 1)]
    rows = []
    for i in range(step * BATCH, (step + 1) * BATCH):
        epoch, at = divmod(i, IMAGES)
        rows.append(permute(key[epoch][0] << 32 | key[epoch][1], IMAGES, at))
    state["step"] = step
    logits = model(pixel_values=pixels[rows]).logits
    return torch.nn.functional.cross_entropy(logits, classes[rows], label_smoothing=SMOOTHING)


def losses(name, kind, tokens):
    name, _, drops = name.partition("+")
    folder = os.path.join(ROOT, "tests/reference", name)
    config = AutoConfig.from_pretrained(folder)
    maker = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM,
             "images": AutoModelForImageClassification}[kind]
    state = {}
    if kind == "images":
        size = config.image_size if isinstance(config.image_size, (list, tuple)) else [config.image_size] * 2
        pixels, classes = read_images(os.path.join(FOLDER, "images.tar"), *size)
    model = maker.from_pretrained(folder, attn_implementation="eager" if name not in ("mamba-a", "convnext-a") else None)
    model.train()
    if drops:
        state = drop_branches(model, name)
    # Mamba's own code marks these (_no_weight_decay); loading forgets the mark.
    rest = [p for n, p in model.named_parameters() if n.endswith((".A_log", ".mixer.D"))]
    decayed = [p for p in model.parameters() if not any(p is q for q in rest)]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    for step in range(STEPS):
        if kind == "images":
            loss = image_losses(model, name, step, pixels, classes, state)
        else:
            loss = token_losses(model, step, tokens, kind == "causal", config.vocab_size)
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
    make_images(os.path.join(FOLDER, "images.tar"))
    for name in sys.argv[1:] or FAMILIES:
        with open(os.path.join(FOLDER, name + ".txt"), "w") as file:
            print("# losses of 200 steps by tools/make_training_reference.py", file=file)
            for step, loss in enumerate(losses(name, FAMILIES[name], tokens)):
                print(step + 1, f"{loss:.9g}", file=file)
                last = loss
        print(name, last)


if __name__ == "__main__":
    main()
