#!/usr/bin/env python3
"""Writes small tokenizers of each kind with texts and the ids that the tokenizers library gives them.

tests/data/tokenizers/KIND.json is the tokenizer, KIND.jsonl a text a line: text, ids, special (ids with the tokens
around a text), decoded. With --4k also data/tokenizers/gpudays-4k.json, trained on the documentation and headers of the
Debian machine that it runs on. Needs `pip install tokenizers`; used while developing only.
"""
import glob
import gzip
import json
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, models, trainers
from tokenizers import decoders as d
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p
from tokenizers import processors as post

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
WORDS = "Größe naïve café Ελληνικά Русский текст 中文字符 日本語 한국어 العربية हिन्दी ½ ① ﬁ e\u0301 👩‍👧 ".split(" ")
TEXTS = [
    "", " ", "a", "Hello, world!", "  two  spaces   three ", "\n\n\tdef f(x):\n        return x * 2\r\n", "\u00a0\u3000x\u2028y",
    "I'm we'll DON'T they'Re 'ſ it's", "1234567 12 3.14159 ½ ² ٣ Ⅷ", "Größe naïve café e\u0301 \u1e9b\u0323 Å", "中文 字符mixed日本語カタカナ",
    "한국어 \u1112\u1161\u11ab 각", "العربية ١٢٣ हिन्दी क्षि", "👩‍👩‍👧‍👦 🇩🇪 x🏳️‍🌈", "\x00 a\x00b \x7f\x85 \ufffd", "a\u0301\u0323\u0327b \u0323\u0301", "x" * 120, "ab" * 60,
    "'" * 9 + "-" * 70, "<|endoftext|>a <|endoftext|> b", "<s>x</s> y<s>", "[CLS] the [MASK] of[SEP]", "tokA tokAx tokAAA  <mask>  x [MASK]  y",
    "\u2581a \u2581\u2581 b", "The quick brown fox jumps over the lazy dog; gradient norm and learning rate.", "ǅ İstanbul ΣΑΣ ſtraße ẞ", "#include <stdio.h>\nint main(void) { return 0; }\n",
]


def compact(tokenizer):
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n"


def train_bytes(lines, size, pre, normalizer=None, processor=None, added=(), ignore_merges=False):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer, t.decoder = pre, d.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], initial_alphabet=p.ByteLevel.alphabet(), show_progress=False))
    if processor:
        t.post_processor = processor
    for token in added:
        t.add_special_tokens([token]) if token.special else t.add_tokens([token])
    return t


def part(**parts):
    t = Tokenizer(models.BPE())
    for name, value in parts.items():
        setattr(t, name, value)
    return {k: v for k, v in json.loads(t.to_str()).items() if k in parts}


def train_pieces(lines, size, fallback, fuse, legacy, **parts):
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    t.pre_tokenizer = p.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{i:02X}>" for i in range(256)] if fallback else [])
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, limit_alphabet=90, show_progress=False))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["id"] < 3]
    j["pre_tokenizer"] = None
    j.update(part(**parts))
    if legacy:
        j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]
    return json.dumps(j, ensure_ascii=False, separators=(",", ":")) + "\n"


def train_wordpiece(lines, normalizer, pre):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, d.WordPiece()
    t.train_from_iterator(lines, trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=120, show_progress=False))
    t.post_processor = post.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return compact(t)


def kinds(lines):
    level = p.ByteLevel(add_prefix_space=False)
    bare = p.ByteLevel(add_prefix_space=False, use_regex=False)
    llama2 = d.Sequence([d.Replace("▁", " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    yield "gpt2", compact(train_bytes(lines, 400, level))
    yield "neox", compact(train_bytes(lines, 400, level, n.NFC(), added=[AddedToken("  ", normalized=True)]))
    yield "llama3", compact(train_bytes(
        lines, 400, p.Sequence([p.Split(Regex(LLAMA3), "isolated"), bare]), ignore_merges=True,
        processor=post.TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])))
    yield "qwen2", compact(train_bytes(lines, 400, p.Sequence([p.Split(Regex(QWEN2), "isolated"), bare]), n.NFC()))
    yield "falcon", compact(train_bytes(lines, 360, p.Sequence(
        [p.Punctuation("contiguous"), level, p.Digits(False), p.Split(Regex("[0-9][0-9][0-9]"), "isolated")])))
    yield "roberta", compact(train_bytes(
        lines, 360, p.ByteLevel(add_prefix_space=True), processor=post.RobertaProcessing(("<|endoftext|>", 0), ("<|endoftext|>", 0)),
        added=[AddedToken("tokA", single_word=True, normalized=False), AddedToken("tokAAA", normalized=False),
               AddedToken("<mask>", lstrip=True, special=True), AddedToken("[MASK]", rstrip=True, normalized=True)]))
    yield "llama2", train_pieces(
        lines, 560, True, True, True, normalizer=n.Sequence([n.Prepend("▁"), n.Replace(" ", "▁")]), decoder=llama2,
        post_processor=post.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)]))
    yield "metaspace", train_pieces(
        lines, 300, False, False, False, decoder=d.Metaspace(),
        normalizer=n.Sequence([n.NFKD(), n.StripAccents(), n.Lowercase(), n.Strip(), n.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizer=p.Metaspace(prepend_scheme="first"))
    yield "bert", train_wordpiece(lines, n.BertNormalizer(), p.BertPreTokenizer())
    yield "whitespace", train_wordpiece(lines, n.NFKC(), p.Sequence([p.Whitespace(), p.Digits(True)]))


def debian():
    paths = sorted(glob.glob("/usr/share/doc/**/*", recursive=True) + glob.glob("/usr/share/man/man[1357]/*.gz") +
                   glob.glob("/usr/include/*.h") + glob.glob("/usr/lib/python3/dist-packages/*.py"))
    left = 40 << 20
    for path in paths:
        try:
            data = (gzip.open if path.endswith(".gz") else open)(path, "rb").read(60000)
            yield data.decode()
        except (OSError, UnicodeDecodeError, EOFError):
            continue
        left -= len(data)
        if left < 0:
            return


def main():
    lines = [line for name in ("README.md", "docs/tour.md", "docs/methods.md", "src/base/file.c", "src/cli/cli.c")
             for line in open(os.path.join(ROOT, name), encoding="utf-8")] + WORDS * 3
    folder = os.path.join(ROOT, "tests/data/tokenizers")
    for name, text in kinds(lines):
        t = Tokenizer.from_str(text)
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as f:
            f.write(text)
        with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as f:
            for sample in TEXTS:
                ids = t.encode(sample, add_special_tokens=False).ids
                row = {"text": sample, "ids": ids, "special": t.encode(sample).ids, "decoded": t.decode(ids, skip_special_tokens=False)}
                f.write(json.dumps(row, separators=(",", ":")) + "\n")
    if "--4k" in sys.argv:
        t = train_bytes(debian(), 4096, p.ByteLevel(add_prefix_space=False))
        with open(os.path.join(ROOT, "data/tokenizers/gpudays-4k.json"), "w", encoding="utf-8") as f:
            f.write(compact(t))


if __name__ == "__main__":
    main()
