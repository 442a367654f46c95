#!/usr/bin/env python3
"""Writes the text that results/training was measured on: documentation out of Debian packages, as JSON lines.

Usage: tools/make_text.py FOLDER [PACKAGE...]
FOLDER/text.jsonl and FOLDER/held-out.jsonl (every hundredth document) have a document a line; FOLDER/tokenizer.json is a
byte-level BPE of 50,257 tokens trained on the first. Needs apt-get, dpkg-deb and `pip install tokenizers`; used while
developing only.
"""
import gzip
import html.parser
import json
import os
import subprocess
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PACKAGES = ["debian-reference-en", "git-doc", "perl-doc", "postgresql-doc-15", "python3.11-doc"]
LEAST, MOST = 500, 1_000_000  # characters of a document


class Text(html.parser.HTMLParser):
    """What a page says, without its tags, scripts and styles."""

    def __init__(self):
        super().__init__()
        self.parts, self.hidden = [], 0

    def handle_starttag(self, tag, attrs):
        self.hidden += tag in ("script", "style", "head", "nav")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style", "head", "nav")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)


def read(path):
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "rb") as file:
        text = file.read().decode("utf-8", "replace")
    if path.endswith(".html"):
        parser = Text()
        parser.feed(text)
        lines = [line.rstrip() for line in "".join(parser.parts).splitlines()]
        text = "\n".join(line for i, line in enumerate(lines) if line or (i and lines[i - 1]))
    return text


def documents(folder):
    seen = set()
    for top, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            path = os.path.join(top, name)
            plain = name[:-3] if name.endswith(".gz") else name
            if os.path.islink(path) or not plain.endswith((".html", ".txt", ".pod", ".rst", ".1", ".3", ".7")):
                continue
            text = read(path)
            if LEAST <= len(text) <= MOST and text not in seen:
                seen.add(text)
                yield text


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder, packages = os.path.abspath(sys.argv[1]), sys.argv[2:] or PACKAGES
    os.makedirs(folder + "/packages", exist_ok=True)
    subprocess.run(["apt-get", "download", "-qq", *packages], cwd=folder + "/packages", check=True)
    for name in sorted(os.listdir(folder + "/packages")):
        subprocess.run(["dpkg-deb", "-x", f"{folder}/packages/{name}", folder + "/files"], check=True)
    texts = list(documents(folder + "/files"))
    for name, held_out in (("text", False), ("held-out", True)):
        with open(f"{folder}/{name}.jsonl", "w", encoding="utf-8") as out:
            for text in (t for i, t in enumerate(texts) if (i % 100 == 99) == held_out):
                out.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        (t for i, t in enumerate(texts) if i % 100 != 99),
        trainers.BpeTrainer(
            vocab_size=50257, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
        ),
    )
    tokenizer.save(folder + "/tokenizer.json")
    print(f"{len(texts)} documents, {sum(map(len, texts)):,} characters, {tokenizer.get_vocab_size():,} tokens")


if __name__ == "__main__":
    main()
