#!/usr/bin/env bash
# `gpudays tokens`: text and JSONL to files of tokens in each format, documents and their ends, validation, threads,
# tokens back to text, and what cannot be read or written.
# shellcheck source=/dev/null
source "$(dirname "$0")/../cli/common.sh"
cd "$WORK" || exit
tokenizers=$GD_SOURCE_DIR/tests/data/tokenizers

# number FILE OFFSET BYTES: an unsigned number in a file.
number() {
  od -An -v -t "u$3" -j "$2" -N "$3" "$1" | tr -d ' '
}
size() {
  stat -c %s "$1"
}

printf 'Hello, world!\n' >a.txt
printf 'The second document.\n\nIts second line\r\n' >b.txt

# A document a file, each with its end, behind llm.c's header; back, it is the text.
expect 0 tokens a.txt b.txt -o out.bin
shown "out.bin: 2 documents"
shown "tokens of 2 bytes"
shown "bytes a token"
[[ $(number out.bin 0 4) == 20240520 && $(number out.bin 4 4) == 1 ]] || fail "not llm.c's header"
tokens=$(number out.bin 8 4)
[[ $(size out.bin) == $((1024 + 2 * tokens)) ]] || fail "the header counts $tokens tokens"
expect 0 tokens --decode out.bin
cat a.txt b.txt | sed 's/\r$/?/' >both
sed 's/<|endoftext|>//' "$OUT" | cmp - both >"$ERR" || fail "decodes to another text"
[[ $(grep -o '<|endoftext|>' "$OUT" | wc -l) == 2 ]] || fail "not two ends"
expect 0 tokens --decode out.bin -o back.txt
sed 's/<|endoftext|>//' back.txt | cmp - <(cat a.txt b.txt) >"$ERR" || fail "the file has another text"
expect 0 tokens --decode out.bin --count 1 --json
field_is tokens 1
field_is text H

# Numbers for programs; other formats.
expect 0 tokens a.txt b.txt -o out.npy --format npy --json
field_is documents 2
field_is tokens "$tokens"
field_is bytes "$(cat a.txt b.txt | wc -c)"
field_is vocabulary 4096
field_is eos 0
head -c 128 out.npy | grep -aF "{'descr': '<u2', 'fortran_order': False, 'shape': ($tokens,), }" >/dev/null || fail "not NumPy's header"
cmp <(tail -c +129 out.npy) <(tail -c +1025 out.bin) >"$ERR" || fail "npy has other tokens"
expect 0 tokens a.txt b.txt -o out.raw --format raw
cmp out.raw <(tail -c +1025 out.bin) >"$ERR" || fail "raw has other tokens"
grep -qF '"dtype": "uint16", "tokens": '"$tokens"', "vocabulary": 4096, "eos": 0' out.raw.json || fail "$(cat out.raw.json)"
expect 0 tokens --decode out.raw --count 3
cp "$OUT" three
expect 0 tokens --decode out.npy --count 3
cmp three "$OUT" || fail "formats differ"
"$GPUDAYS" tokens a.txt b.txt --format raw -o - >piped || fail "raw to a pipe"
cmp piped out.raw || fail "a pipe gets other tokens"
"$GPUDAYS" tokens - -o - --format raw <a.txt >piped || fail "from stdin"
cmp -n 8 piped out.raw || fail "stdin has other tokens"

# JSONL, with the field that is named; lines of a text.
printf '{"text": "Hello, world!\\n"}\n\n{"text": "The second document.\\n\\nIts second line\\r\\n", "id": 2}' >two.jsonl
expect 0 tokens two.jsonl -o jsonl.bin
cmp jsonl.bin out.bin || fail "JSONL has other tokens"
sed 's/"text"/"body"/' two.jsonl >two.data
expect 0 tokens two.data --field body -o body.bin
cmp body.bin out.bin || fail "--field has other tokens"
expect 2 tokens two.jsonl --field body -o no.bin
said 'two.jsonl: line 1: has no text "body"'
printf '{"text": "x"}\n{"text": 3}\n' >wrong.jsonl
expect 2 tokens wrong.jsonl -o no.bin
said "wrong.jsonl: line 2: has no text"
printf '{"text": "x"}\n{"text"\n' >wrong.jsonl
expect 2 tokens wrong.jsonl -o no.bin
said "wrong.jsonl: line 2: not JSON"
[[ ! -e no.bin ]] || fail "a failure left a file"
expect 0 tokens b.txt --split-lines -o lines.bin --json
field_is documents 2

# The end of a document: none, or one that is named.
expect 0 tokens a.txt --eos none -o bare.bin --json
bare=$(field tokens)
expect 0 tokens a.txt -o ended.bin --json
field_is tokens $((bare + 1))
expect 2 tokens a.txt --eos '<nothing>' -o no.bin
said 'no token of the tokenizer'
expect 0 tokens a.txt --tokenizer "$tokenizers/bert.json" -o bert.bin --json
field_is eos 3
expect 0 tokens a.txt --tokenizer "$tokenizers/llama2.json" --special --eos none -o llama.bin --json
[[ $(number llama.bin 1024 2) == 1 ]] || fail "no <s> before the document"

# Any number of threads, the same file.
for i in $(seq 2000); do
  printf '{"text": "Document %d: %s, and the gradient norm of step %d."}\n' "$i" "$((i * 7919))" "$i"
done >many.jsonl
expect 0 tokens many.jsonl -o one.bin --threads 1
expect 0 tokens many.jsonl -o four.bin --threads 4
cmp one.bin four.bin || fail "threads change the tokens"

# The last documents apart.
expect 0 tokens many.jsonl --validation 0.01 -o part.bin --json
field_is validation_documents 20
apart=$(field validation_tokens)
cmp <(tail -c +1025 one.bin) <(tail -qc +1025 part.bin part.bin.val) >"$ERR" || fail "the parts are not the whole"
[[ $(number part.bin.val 8 4) == "$apart" ]] || fail "the header of .val counts otherwise"
[[ $(size part.bin) == $((1024 + 2 * $(number part.bin 8 4))) ]] || fail "the header of the rest counts otherwise"
expect 0 tokens --decode part.bin.val --count 4
shown "Document 1981"
expect 2 tokens a.txt --validation 0.5 -o no.bin
said "--split-lines"
expect 2 tokens many.jsonl --validation 1 -o no.bin
said "leaves nothing to train on"

# What does not go together, and what is not there.
expect 2 tokens a.txt
said "-o FILE"
expect 2 tokens a.txt -o x --count 3
said "--count goes with --decode"
expect 2 tokens a.txt -o - --json
expect 2 tokens a.txt -o -
said "--format raw"
expect 2 tokens out.bin --decode --eos none
expect 2 tokens a.txt -o x --format hf
said "llmc, raw or npy"
expect 2 tokens none.txt -o x
said "cannot open none.txt"
expect 2 tokens . -o x
said "is a folder"
expect 2 tokens a.txt --tokenizer none.json -o x
said "none.json: no such file"
expect 2 tokens a.txt --tokenizer a.txt -o x
said "is it a tokenizer.json?"
sed 's/"type":"BPE"/"type":"Unigram"/' "$tokenizers/gpt2.json" >unigram.json
expect 2 tokens a.txt --tokenizer unigram.json -o x
said 'the model "Unigram" is not supported'
: >empty.txt
expect 2 tokens empty.txt -o x
said "there is no text"
expect 2 tokens a.txt -o a.txt
said "not written over"
[[ ! -e x ]] || fail "a failure left a file"

# A full disk leaves nothing, and says so.
expect 3 tokens many.jsonl --format raw -o /dev/full
said "No space left"
printf '\377\376 not UTF-8 \0 here\n' >bytes.txt
expect 0 tokens bytes.txt -o bytes.bin
expect 0 tokens --decode bytes.bin -o bytes.back
grep -qF $'\xef\xbf\xbd\xef\xbf\xbd not UTF-8 ' bytes.back || fail "bytes are not replaced"
# An id that the tokenizer does not have.
expect 2 tokens --decode out.bin --tokenizer "$tokenizers/gpt2.json"
said "and the tokenizer only those below 400"
