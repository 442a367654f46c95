#!/usr/bin/env python3
"""Writes src/data/unicode_tables.inc: what the tokenizers library takes each code point for.

The library gets its answers from several crates, each with a Unicode version of its own (Oniguruma for patterns, Rust's
standard library, unicode_categories, unicode-normalization-alignments), so it is asked, code point by code point.
Needs `pip install tokenizers`; used while developing only.

Usage: tools/make_unicode.py > src/data/unicode_tables.inc
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co").split()
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
LINES = [c for c in POINTS if c != 10]
ALL = "\n".join(map(chr, LINES))


def per_point(normalizer):
    """The normalized form of every code point but the line end, each alone."""
    out = normalizer.normalize_str(ALL).split("\n")
    assert len(out) == len(LINES)
    return dict(zip(LINES, out))


def matched(pattern):
    """Code points that the pattern matches, as Oniguruma sees it."""
    out = per_point(n.Replace(Regex("(?!\\n)" + pattern), ""))
    found = {c for c in LINES if out[c] == ""}
    if n.Replace(Regex(pattern), "").normalize_str("\n") == "":
        found.add(10)
    return found


def pieces(pre_tokenizer, c):
    return [text for text, _ in pre_tokenizer.pre_tokenize_str("a" + chr(c) + "a")]


def runs(values):
    """(length, value) of the runs of a list over all code points."""
    out = []
    for v in values:
        if out and out[-1][1] == v:
            out[-1][0] += 1
        else:
            out.append([1, v])
    return out


def show(name, kind, numbers):
    print(f"static const {kind} {name}[] = {{")
    line = ""
    for number in numbers:
        item = f"{number},"
        if len(line) + len(item) > 120:
            print(line)
            line = ""
        line += item
    print(line)
    print("};")


def flags():
    category = [0] * 0x110000
    for i, name in enumerate(CATEGORIES):
        if name not in ("Cn", "Cs"):
            for c in matched(f"\\p{{{name}}}"):
                category[c] = i
    space, word, digit = matched("\\s"), matched("\\w"), matched("\\d")
    assert digit == {c for c in POINTS if CATEGORIES[category[c]] == "Nd"}
    assert space == {c for c in POINTS if pieces(p.WhitespaceSplit(), c) == ["a", "a"]}
    numeric = {c for c in POINTS if len(pieces(p.Digits(individual_digits=True), c)) == 3}
    punctuation = {c for c in POINTS if len(pieces(p.Punctuation(), c)) == 3}
    regex_word = {c for c in POINTS if len(pieces(p.Whitespace(), c)) == 1}
    assert space == {c for c in POINTS if len(pieces(p.Whitespace(), c)) == 2}
    clean = n.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    other = {c for c in POINTS if clean.normalize_str("a" + chr(c) + "a") == "aa"}
    stripping = n.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    nonspacing = {c for c in POINTS if stripping.normalize_str("a" + chr(c)) == "a"}
    mark_out = per_point(n.StripAccents())
    mark = {c for c in LINES if mark_out[c] == ""}
    values = []
    for c in range(0x110000):
        v = category[c]
        for bit, members in enumerate((space, word, regex_word, numeric, punctuation, other, nonspacing, mark)):
            v |= (c in members) << (5 + bit)
        values.append(v)
    # A run is a value of 13 bits and its length; lengths take as many 16-bit words as they need, 15 bits each.
    numbers = []
    table = sorted({v for _, v in runs(values)})
    for length, v in runs(values):
        index = table.index(v)
        assert index < 128
        low = length & 0xFF
        numbers.append(index << 9 | (length > 0xFF) << 8 | low)
        if length > 0xFF:
            numbers += [(length >> 8) & 0xFFFF]
            assert length >> 24 == 0
    print("/* Category in 5 bits, then flags: see enum gd_unicode_flag. */")
    show("property_values", "uint16_t", table)
    print("/* Runs: index of the value << 9, 256 where the next number holds the length's upper bits, its lower 8. */")
    show("property_runs", "uint16_t", numbers)


def lowercase():
    out = per_point(n.Lowercase())
    rows = []  # first, last, step, difference
    special = []
    for c in LINES:
        if out[c] == chr(c):
            continue
        if len(out[c]) != 1:
            special.append((c, out[c]))
            continue
        d = ord(out[c]) - c
        if rows and rows[-1][3] == d and (c - rows[-1][1] == rows[-1][2] or rows[-1][0] == rows[-1][1] and c - rows[-1][1] <= 2):
            rows[-1][2] = c - rows[-1][1]
            rows[-1][1] = c
        else:
            rows.append([c, c, 1, d])
    assert special == [(0x130, "i\u0307")], special
    print("/* First and last code point, step, difference to the lower-case one. U+0130 has two: it is in the code. */")
    show("lower_case", "struct case_range", ["{%d,%d,%d,%d}" % tuple(r) for r in rows])


def decompositions():
    nfd, nfkd, nfc = per_point(n.NFD()), per_point(n.NFKD()), per_point(n.NFC())
    data, rows = [], {"canonical": [], "compatible": []}
    known = {}

    def place(text):
        points = tuple(map(ord, text))
        if points not in known:
            known[points] = len(data)
            data.extend(points)
        return known[points]

    for c in LINES:
        if 0xAC00 <= c <= 0xD7A3:
            continue
        if nfd[c] != chr(c):
            rows["canonical"].append((c, place(nfd[c]), len(nfd[c])))
        if nfkd[c] != nfd[c]:
            rows["compatible"].append((c, place(nfkd[c]), len(nfkd[c])))
    assert len(data) < 1 << 14
    print("/* Full decompositions: code point, place in decomposed << 5 | code points. Hangul is computed. */")
    for name, entries in rows.items():
        assert all(length < 32 for _, _, length in entries)
        show(name, "struct decomposition", ["{%d,%d}" % (c, at << 5 | length) for c, at, length in entries])
    show("decomposed", "uint32_t", data)

    compose = n.NFC()
    pairs = []
    for c, _, _ in rows["canonical"]:
        if nfc[c] != chr(c):
            continue
        step = [int(x, 16) for x in unicodedata.decomposition(chr(c)).split()]
        assert len(step) == 2 and compose.normalize_str("".join(map(chr, step))) == chr(c), hex(c)
        pairs.append((step[0], step[1], c))
    print("/* Primary composites: first, second, composed. */")
    show("compositions", "struct composition", ["{%d,%d,%d}" % row for row in sorted(pairs)])


def classes():
    """Combining classes: Python's, where the library sorts by them."""
    order = n.NFD()
    theirs = {c: unicodedata.combining(chr(c)) for c in POINTS}
    # Whoever has a class moves in front of U+0345 (240) or, itself of 240, stays behind U+0301 (230).
    # What has a decomposition is never sorted itself.
    theirs = {c: 0 if order.normalize_str(chr(c)) != chr(c) else k for c, k in theirs.items()}
    moved = order.normalize_str("\n".join("\u0345" + chr(c) for c in LINES)).split("\n")
    for c, text in zip(LINES, moved):
        if 0 < theirs[c] < 240 and text[0] == "\u0345":
            theirs[c] = 0  # newer than the library
        if order.normalize_str(chr(c)) == chr(c):
            assert (text[0] != "\u0345") == (0 < theirs[c] < 240), hex(c)
    by_class = {}
    for c in POINTS:
        if theirs[c]:
            by_class.setdefault(theirs[c], c)
    for c in POINTS:
        if theirs[c]:
            for k, rep in by_class.items():
                text = order.normalize_str(chr(rep) + chr(c))
                assert (text == chr(rep) + chr(c)) == (k <= theirs[c]), (hex(c), k)
    rows = []
    for c in POINTS:
        if theirs[c]:
            if rows and rows[-1][1] == c - 1 and rows[-1][2] == theirs[c]:
                rows[-1][1] = c
            else:
                rows.append([c, c, theirs[c]])
    print("/* Combining classes: first and last code point, class. */")
    show("combining_classes", "struct class_range", ["{%d,%d,%d}" % tuple(r) for r in rows])


def main():
    print(f"/* Written by tools/make_unicode.py from tokenizers {tokenizers.__version__}; do not edit. */")
    flags()
    lowercase()
    decompositions()
    classes()


if __name__ == "__main__":
    sys.exit(main())
