#!/usr/bin/env python3
"""Makes the images that tests/data/test_images.c and tests/train/test_images.sh read, and what Pillow
makes of them: tests/data/images. Needs Pillow and NumPy (made with Pillow 13.0.0, NumPy as it came):

  python3 -m venv /tmp/images && /tmp/images/bin/pip install pillow numpy
  /tmp/images/bin/python tools/make_images.py

codec/NAME.jpg|png   a file of every kind that decoders meet
codec/NAME.rgb       its pixels after Pillow's convert("RGB")
resize/NAME.rgb      codec/colour.png: crop(box), resize(size, BILINEAR); the name is
                     LEFT-TOP-WIDTH-HEIGHT-to-WIDTH-HEIGHT; bicubic-NAME.rgb: BICUBIC
train, eval          two classes that a small model tells apart
With --rand: what timm's RandAugment makes of codec/colour.png (needs timm and torch; made with timm
1.0.31 and Pillow 13.0.0)
rand/changes.txt     operation, magnitude, increasing, negative: a line for each
rand/changes.rgb     the images that they make, one below the other
With --speed FOLDER  100 JPEGs of 500 x 375 instead, for bench/bench_images.c
"""
import pathlib
import struct
import sys
import zlib

import numpy as np
from PIL import Image, PngImagePlugin

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/images"
W, H = 26, 19  # odd, and no multiple of a JPEG block


def scene(rng, width, height):
    """Smooth colours with edges and some noise: what a photograph is to a codec."""
    y, x = np.mgrid[0:height, 0:width].astype(float)
    pixels = np.zeros((height, width, 3))
    for c in range(3):
        a, b, phase = rng.uniform(0.05, 0.5, 2).tolist() + [rng.uniform(0, 6)]
        pixels[:, :, c] = 128 + 90 * np.sin(a * x + b * y + phase)
    left, top = rng.integers(0, width // 2), rng.integers(0, height // 2)
    pixels[top : top + height // 3, left : left + width // 3] = rng.uniform(0, 255, 3)
    return np.clip(pixels + rng.normal(0, 6, pixels.shape), 0, 255).astype(np.uint8)


def write_rgb(path, image):
    """Width and height as little-endian uint32, then rows of RGB."""
    path.write_bytes(struct.pack("<II", *image.size) + image.tobytes())


def write_16bit(path, pixels):
    """Pillow writes no 16-bit colour; the low bytes are those that rounding leaves alone."""
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels.astype(np.uint16) * 257)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def make_codec(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    colour = Image.fromarray(scene(rng, W, H))
    alpha = Image.fromarray(np.dstack([scene(rng, W, H), np.arange(W * H).reshape(H, W) % 256]).astype(np.uint8))
    palette = colour.quantize(16)
    gamma = PngImagePlugin.PngInfo()
    gamma.add(b"gAMA", struct.pack(">I", 100000))
    colour.save(folder / "colour.png", optimize=True)
    colour.convert("L").save(folder / "grey.png", optimize=True)
    colour.convert("1").save(folder / "bits.png", optimize=True)
    alpha.save(folder / "alpha.png", optimize=True)
    palette.save(folder / "palette.png", optimize=True, transparency=3)
    colour.resize((13, 9)).save(folder / "gamma.png", optimize=True, pnginfo=gamma)
    write_16bit(folder / "deep.png", scene(rng, 15, 11))
    colour.save(folder / "colour.jpg", quality=75)
    colour.save(folder / "full.jpg", quality=90, subsampling=0)
    colour.save(folder / "progressive.jpg", quality=75, progressive=True)
    colour.convert("L").save(folder / "grey.jpg", quality=80)
    colour.convert("CMYK").save(folder / "cmyk.jpg", quality=80)
    for path in sorted([*folder.glob("*.png"), *folder.glob("*.jpg")]):
        write_rgb(path.with_suffix(path.suffix + ".rgb"), Image.open(path).convert("RGB"))


def make_resize(folder):
    folder.mkdir(parents=True, exist_ok=True)
    image = Image.open(ROOT / "codec/colour.png").convert("RGB")
    cases = [
        ((0, 0, W, H), (9, 7)), ((0, 0, W, H), (2, 3)), ((0, 0, W, H), (31, 19)), ((0, 0, W, H), (26, 23)),
        ((3, 2, 17, 11), (16, 16)), ((5, 4, 1, 1), (4, 4)), ((7, 0, 8, 19), (8, 8)), ((2, 6, 10, 12), (10, 12)),
    ]
    for (left, top, width, height), size in cases:
        part = image.crop((left, top, left + width, top + height))
        name = "%d-%d-%d-%d-to-%d-%d.rgb" % (left, top, width, height, *size)
        write_rgb(folder / name, part.resize(size, Image.BILINEAR))
        write_rgb(folder / ("bicubic-" + name), part.resize(size, Image.BICUBIC))


def make_classes():
    rng = np.random.default_rng(2)
    tints = {"cold": (-60, 0, 60), "warm": (60, 0, -60)}
    for part, count in ("train", 6), ("eval", 3):
        for name, tint in tints.items():
            folder = ROOT / part / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(count):
                pixels = np.clip(scene(rng, 34 + i, 26) * 0.5 + 64 + np.array(tint), 0, 255).astype(np.uint8)
                path = folder / ("%d.%s" % (i, "png" if i == 0 else "jpg"))
                if i == 0:
                    Image.fromarray(pixels).quantize(32).save(path, optimize=True)
                else:
                    Image.fromarray(pixels).save(path, quality=60)


def make_rand(folder):
    """Every operation of timm's "rand" policies by its own code, level and sign included."""
    from timm.data import auto_augment

    folder.mkdir(parents=True, exist_ok=True)
    image = Image.open(ROOT / "codec/colour.png").convert("RGB")
    hparams = dict(img_mean=(124, 116, 104), interpolation=Image.BICUBIC)
    lines, made = [], []
    for increasing in 1, 0:
        for name in auto_augment.rand_augment_choices("rand", increasing=bool(increasing)):
            one_way = auto_augment.LEVEL_TO_ARG[name] is None
            both_ways = name.startswith(("Rotate", "Shear", "Translate")) or (
                increasing and name.startswith(("Color", "Contrast", "Brightness", "Sharpness")))
            if not increasing and (one_way or both_ways or name == "SolarizeAdd"):
                continue  # as above
            for level in (9,) if one_way else (9, 4.37) if increasing else (9, 2.5):
                for negative in (0, 1) if both_ways else (0,):
                    auto_augment.random.random = lambda: 0.9 if negative else 0.1
                    op = auto_augment.AugmentOp(name, prob=1, magnitude=level, hparams=hparams)
                    made.append(np.asarray(op(image)))
                    lines.append("%s %g %d %d" % (name.replace("Increasing", ""), level, increasing, negative))
    (folder / "changes.txt").write_text("\n".join(lines) + "\n")
    write_rgb(folder / "changes.rgb", Image.fromarray(np.concatenate(made)))


def make_speed(folder):
    rng = np.random.default_rng(3)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(100):
        Image.fromarray(scene(rng, 500, 375)).save(folder / ("%03d.jpg" % i), quality=85)


if len(sys.argv) == 3 and sys.argv[1] == "--speed":
    make_speed(pathlib.Path(sys.argv[2]) / "class")
elif sys.argv[1:] == ["--rand"]:
    make_rand(ROOT / "rand")
else:
    make_codec(ROOT / "codec")
    make_resize(ROOT / "resize")
    make_classes()
