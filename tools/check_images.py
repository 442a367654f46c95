#!/usr/bin/env python3
"""Whether transformers makes the same of RUN/model as gpudays, image by image.

    python3 tools/check_images.py GPUDAYS RUN FOLDER [COUNT]

Log-probabilities of every class for the first COUNT (6) images of each class of FOLDER: those of
`gpudays evaluate`, whose loss of one image under the name of a class is the negative of it, against
AutoModelForImageClassification twice: on pixels by Pillow, as docs/modules/data.md describes them, and
on those of the folder's own AutoImageProcessor, which resizes through torchvision. Exit 1 past 1e-4
of the first. Needs torch, torchvision, transformers and Pillow.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModelForImageClassification

BOUND = 1e-4


def pixels_of(image, side, mean, deviation):
    scaled = side * 256 // 224
    short = min(image.width, image.height)
    image = image.resize((scaled * image.width // short, scaled * image.height // short), Image.BILINEAR)
    left, top = round((image.width - side) / 2), round((image.height - side) / 2)
    values = np.asarray(image.crop((left, top, left + side, top + side)), dtype=np.float32) / 255
    return torch.tensor(((values - np.float32(mean)) / np.float32(deviation)).transpose(2, 0, 1)[None])


def ours(gpudays, model, image, classes):
    """The log-probability of each class."""
    found = []
    for name in classes:
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / name).mkdir()
            shutil.copy(image, pathlib.Path(folder) / name)
            text = subprocess.run([gpudays, "evaluate", model, "--data", folder, "--json"], check=True,
                                  capture_output=True, text=True).stdout
            found.append(-json.loads(text)["loss"])
    return np.array(found)


def main():
    gpudays, run, data = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 6
    folder = run + "/model"
    model = AutoModelForImageClassification.from_pretrained(folder).eval()
    processor = AutoImageProcessor.from_pretrained(folder)
    classes = [model.config.id2label[i] for i in range(model.config.num_labels)]
    by_pillow, by_processor, images = 0.0, 0.0, 0
    for name in classes:
        for path in sorted((pathlib.Path(data) / name).iterdir())[:count]:
            image = Image.open(path).convert("RGB")
            side = processor.crop_size["height"]
            right = ours(gpudays, folder, path, classes)
            with torch.no_grad():
                pixels = pixels_of(image, side, processor.image_mean, processor.image_std)
                mine = model(pixel_values=pixels).logits.log_softmax(-1)[0].numpy()
                own = model(**processor(image, return_tensors="pt")).logits.log_softmax(-1)[0].numpy()
            by_pillow = max(by_pillow, np.abs(mine - right).max())
            by_processor = max(by_processor, np.abs(own - right).max())
            images += 1
    print(f"{images} images, {len(classes)} classes ({', '.join(classes[:4])}): largest difference of a "
          f"log-probability {by_pillow:.1e}; with the folder's own processor {by_processor:.1e}")
    sys.exit(by_pillow > BOUND)


main()
