#!/usr/bin/env python3
"""Losses of 200 training steps in PyTorch and transformers, for tests/train/test_parity.sh.

Each family trains from the weights of tests/reference/NAME on one file of tokens, or on one archive
of images, in the order of `gpudays train` (src/data/permute.c and dataset.c, written again here), with
AdamW or Adam, gradient clipping, warm-up and a cosine. The data is written too, so that the test
reads the same. Models of images have label smoothing and no augmentation; NAME+drop-path has
stochastic depth, whose draws (src/base/rng.h) are computed here too. NAME+recipe has all that
ConvNeXt's recipe has: random crop and flip, RandAugment, random erasing, mixup and CutMix besides.
What is drawn is that of src/data/image_set.c, written again; what is done with it is Pillow's and timm's.

Usage: make_training_reference.py [NAME...]
Needs torch, safetensors, numpy, Pillow and transformers 5, and timm for NAME+recipe; made with torch
2.15.0, transformers 5.23.0, Pillow 13.0.0 and timm 1.0.31.
"""
import io
import math
import os
import sys
import tarfile

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM

try:
    from PIL import Image
except ImportError:  # models of tokens need none
    Image = None

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "tests/train/parity")
STEPS, BATCH, SEQ, WARMUP, LR, CLIP, MASK, TOKENS = 200, 8, 24, 20, 3e-3, 1.0, 96, 12000
FAMILIES = {"neox-parallel": "causal", "llama-a": "causal", "gpt2-a": "causal", "mamba-a": "causal",
            "roberta-a": "masked", "vit-a": "images", "vit-a+drop-path": "images", "convnext-a": "images",
            "convnext-a+drop-path": "images", "vit-a+recipe": "images", "convnext-a+recipe": "images"}
IMAGES, CLASSES, SMOOTHING, DROP_PATH = 36, 11, 0.1, 0.2
ERASE, MIXUP, CUTMIX, MAGNITUDE, MAGNITUDE_DEVIATION = 0.25, 0.8, 1.0, 9, 0.5
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


def open_images(path):
    """Images and classes."""
    images, classes = [], []
    with tarfile.open(path) as tar:
        for member in tar.getmembers():
            data = tar.extractfile(member).read()
            if member.name.endswith(".cls"):
                classes.append(int(data))
            else:
                images.append(Image.open(io.BytesIO(data)).convert("RGB"))
    return images, classes


def normalized(image):
    values = np.asarray(image, dtype=np.float32) / 255
    return ((values - np.float32(MEAN)) / np.float32(DEVIATION)).transpose(2, 0, 1)


def evaluated(image, height, width):
    """The transform of evaluation."""
    if image.height * width <= image.width * height:
        scaled = height * 256 // 224
        size = scaled * image.width // image.height, scaled
    else:
        scaled = width * 256 // 224
        size = scaled, scaled * image.height // image.width
    image = image.resize((max(size[0], width), max(size[1], height)), Image.BILINEAR)
    left, top = round((image.width - width) / 2), round((image.height - height) / 2)
    return normalized(image.crop((left, top, left + width, top + height)))


class Draws:
    """Random numbers of one purpose and one sample."""

    def __init__(self, purpose, index):
        self.stream, self.index, self.words = fnv(purpose), index, []

    def uniform(self, low=0.0, high=1.0):
        if not self.words:
            self.words = philox(0, self.stream, self.index)
            self.stream = (self.stream + 1) & M64
        return low + (high - low) * (self.words.pop(0) * 2.0 ** -32)

    def below(self, bound):
        return min(int(self.uniform(0, bound)), bound - 1)

    def normal(self):
        radius = math.sqrt(-2 * math.log(1 - self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def gamma(self, alpha):
        boost = (1 - self.uniform()) ** (1 / alpha) if alpha < 1 else 1.0
        base = (alpha + 1 if alpha < 1 else alpha) - 1 / 3
        while True:
            x = self.normal()
            v, u = (1 + x / math.sqrt(9 * base)) ** 3, 1 - self.uniform()
            if v > 0 and math.log(u) < 0.5 * x * x + base * (1 - v + math.log(v)):
                return boost * base * v

    def beta(self, alpha):
        a, b = self.gamma(alpha), self.gamma(alpha)
        return a / (a + b)


def random_part(draws, width, height):
    """torchvision's RandomResizedCrop: left, top, width, height."""
    for _ in range(10):
        area = width * height * draws.uniform(0.08, 1)
        ratio = math.exp(draws.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 1 <= w <= width and 1 <= h <= height:
            top = draws.below(height - h + 1)
            return draws.below(width - w + 1), top, w, h
    ratio = width / height
    w, h = min(width, max(1, round(height * 4 / 3))), min(height, max(1, round(width * 4 / 3)))
    w, h = (width, h) if ratio < 3 / 4 else (w, height) if ratio > 4 / 3 else (width, height)
    return (width - w) // 2, (height - h) // 2, w, h


def rand_augment(image, index):
    """timm's rand-m9-mstd0.5-inc1."""
    from timm.data import auto_augment

    draws = Draws("rand", index)
    names = auto_augment.rand_augment_choices("rand", increasing=True)
    hparams = dict(img_mean=tuple(round(255 * m) for m in MEAN), interpolation=Image.BICUBIC)
    for _ in range(2):
        name = names[draws.below(len(names))]
        if draws.uniform() >= 0.5:
            continue
        level = min(max(MAGNITUDE + MAGNITUDE_DEVIATION * draws.normal(), 0), 10)
        sign = 0.9 if draws.uniform() < 0.5 else 0.1
        if name == "PosterizeIncreasing" and level == 10:  # no bits: Pillow before 13 made it black
            image = Image.new("RGB", image.size)
            continue
        auto_augment.random.random = lambda: sign
        image = auto_augment.AugmentOp(name, prob=1, magnitude=level, hparams=hparams)(image)
    return image


def erase(pixels, index):
    """torchvision's RandomErasing, with the noise of timm's."""
    draws, (_, height, width) = Draws("erase", index), pixels.shape
    if draws.uniform() >= ERASE:
        return pixels
    for _ in range(10):
        area = width * height * draws.uniform(0.02, 0.33)
        ratio = math.exp(draws.uniform(math.log(0.3), math.log(3.3)))
        h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if h < height and w < width:
            top = draws.below(height - h + 1)
            left = draws.below(width - w + 1)
            noise = Draws("noise", index)
            values = [noise.normal() for _ in range(3 * h * w)]
            pixels[:, top:top + h, left:left + w] = np.array(values, dtype=np.float32).reshape(3, h, w)
            break
    return pixels


def augmented(image, index, height, width):
    draws = Draws("crop", index)
    mirrored = draws.uniform() < 0.5
    left, top, w, h = random_part(draws, image.width, image.height)
    image = image.crop((left, top, left + w, top + h)).resize((width, height), Image.BICUBIC)
    if mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return erase(normalized(rand_augment(image, index)), index)


def mixed(pixels, other, index):
    """Pixels with those of the other sample of the pair, and the share of the target that stays."""
    draws, (_, height, width) = Draws("mix", index >> 1), pixels.shape
    cuts = draws.uniform() < 0.5
    share = draws.beta(CUTMIX if cuts else MIXUP)
    if not cuts:
        return np.float32(share) * pixels + np.float32(1 - share) * other, share
    side = math.sqrt(1 - share)
    h, w, y, x = int(height * side), int(width * side), draws.below(height), draws.below(width)
    top, left = max(0, y - h // 2), max(0, x - w // 2)
    bottom, right = min(height, y + h // 2), min(width, x + w // 2)
    pixels = pixels.copy()
    pixels[:, top:bottom, left:right] = other[:, top:bottom, left:right]
    return pixels, 1 - (bottom - top) * (right - left) / (height * width)


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


def image_at(index):
    """Which image sample `index` of a run with seed 0 is made of."""
    epoch, at = divmod(index, IMAGES)
    key = philox(0, fnv("order"), epoch)
    return permute(key[0] << 32 | key[1], IMAGES, at)


def plain_samples(step, images, size):
    """Pixels and classes of a step."""
    rows = [image_at(index) for index in range(step * BATCH, (step + 1) * BATCH)]
    pixels = np.stack([evaluated(images[0][row], *size) for row in rows])
    return torch.tensor(pixels), torch.tensor([images[1][row] for row in rows])


def recipe_samples(step, images, size, n_classes):
    """Pixels and probabilities of the classes."""
    all_pixels, targets = [], []
    opened, classes = images
    for index in range(step * BATCH, (step + 1) * BATCH):
        mine, other = image_at(index), image_at(index ^ 1)
        pixels, share = mixed(augmented(opened[mine], index, *size),
                              augmented(opened[other], index ^ 1, *size), index)
        target = np.full(n_classes, SMOOTHING / n_classes, dtype=np.float32)
        target[classes[mine]] += np.float32((1 - SMOOTHING) * share)
        target[classes[other]] += np.float32((1 - SMOOTHING) * (1 - share))
        all_pixels.append(pixels)
        targets.append(target)
    return torch.tensor(np.stack(all_pixels)), torch.tensor(np.stack(targets))


def image_losses(model, step, images, size, recipe):
    if recipe:
        pixels, targets = recipe_samples(step, images, size, model.config.num_labels)
        return torch.nn.functional.cross_entropy(model(pixel_values=pixels).logits, targets)
    pixels, classes = plain_samples(step, images, size)
    return torch.nn.functional.cross_entropy(model(pixel_values=pixels).logits, classes, label_smoothing=SMOOTHING)


def losses(name, kind, tokens):
    name, _, more = name.partition("+")
    folder = os.path.join(ROOT, "tests/reference", name)
    config = AutoConfig.from_pretrained(folder)
    maker = {"causal": AutoModelForCausalLM, "masked": AutoModelForMaskedLM,
             "images": AutoModelForImageClassification}[kind]
    state = {}
    if kind == "images":
        size = config.image_size if isinstance(config.image_size, (list, tuple)) else [config.image_size] * 2
        images = open_images(os.path.join(FOLDER, "images.tar"))
    model = maker.from_pretrained(folder, attn_implementation="eager" if name not in ("mamba-a", "convnext-a") else None)
    model.train()
    if more:
        state = drop_branches(model, name)
    # Mamba's own code marks these (_no_weight_decay); loading forgets the mark.
    rest = [p for n, p in model.named_parameters() if n.endswith((".A_log", ".mixer.D"))]
    decayed = [p for p in model.parameters() if not any(p is q for q in rest)]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                                  lr=LR, betas=(0.9, 0.95), eps=1e-8)
    for step in range(STEPS):
        if kind == "images":
            state["step"] = step
            loss = image_losses(model, step, images, size, more == "recipe")
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
