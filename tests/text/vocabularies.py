#!/usr/bin/env python3
"""Makes tokenizer.json files with the vocabularies of real models, from packages of npm.

usage: vocabularies.py FOLDER

Downloads the packages with npm and writes FOLDER/NAME.json: gpt2 and cl100k (gpt-tokenizer), llama3 and qwen2 (llama3-tokenizer-js; qwen2
has the patterns and normalizer of Qwen with this vocabulary), llama2 (llama-tokenizer-js), and mistral (mistral-tokenizer-js).
A file that exists is kept.
"""
import base64
import json
import pathlib
import re
import subprocess
import sys
import tarfile

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def letters():
    """The characters that stand for bytes."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


LETTERS = letters()


def package(folder, name):
    """The unpacked package."""
    place = folder / name
    if not place.exists():
        packed = subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, capture_output=True, text=True).stdout.split()[-1]
        with tarfile.open(folder / packed) as archive:
            archive.extractall(place, filter="data")
        (folder / packed).unlink()
    return place / "package"


def added(tokens, special=True):
    return [{"id": id, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
            for content, id in tokens.items()]


def tokenizer(vocab, merges, **parts):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False} | parts.pop("model", {})
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
            "post_processor": None, "decoder": None} | parts | {"model": model | {"vocab": vocab, "merges": merges}}


def parts_of(ranks, token):
    """The two tokens that make this one: what is left when tokens of lower rank are merged."""
    parts = [token[i:i + 1] for i in range(len(token))]
    limit = ranks[token]
    while len(parts) > 2:
        best = min(range(len(parts) - 1), key=lambda i: ranks.get(parts[i] + parts[i + 1], limit))
        assert ranks.get(parts[best] + parts[best + 1], limit) < limit, token
        parts[best:best + 2] = [parts[best] + parts[best + 1]]
    return parts


def tiktoken(file):
    ranks = {}
    for line in file.read_text().split("\n"):
        if line:
            token, rank = line.split(" ")
            ranks[base64.b64decode(token)] = int(rank)
    name = lambda token: "".join(LETTERS[byte] for byte in token)
    merges = [[name(part) for part in parts_of(ranks, token)] for token in sorted(ranks, key=ranks.get) if len(token) > 1]
    return {name(token): rank for token, rank in ranks.items()}, merges


def javascript(text, bits):
    """The vocabulary and the merges of the packages for Llama and Mistral: two constants in base64."""
    constants = sorted(re.findall(r"""["'`]([A-Za-z0-9+/=]{10000,})["'`]""", text), key=lambda found: text.index(found))
    tokens = merges = None
    for data in map(base64.b64decode, constants):
        try:
            tokens = data.decode().split("\n")
        except UnicodeDecodeError:
            merges = data
    if bits == 16:
        ids = [merges[i] | merges[i + 1] << 8 for i in range(0, len(merges), 2)]
    else:
        whole = "".join(f"{byte:08b}" for byte in merges)
        ids = [int(whole[i:i + bits], 2) for i in range(0, len(whole) - bits + 1, bits)]
    pairs = [[tokens[ids[i]], tokens[ids[i + 1]]] for i in range(0, len(ids) - 1, 2)]
    return {token: id for id, token in enumerate(tokens)}, pairs


def split(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}, BYTE_LEVEL | {"use_regex": False}]}


def template(begin, end=None):
    single = [{"SpecialToken": {"id": token, "type_id": 0}} if token else {"Sequence": {"id": "A", "type_id": 0}}
              for token in [begin[0], None, *([end[0]] if end else [])]]
    specials = {token: {"id": token, "ids": [id], "tokens": [token]} for token, id in [begin, *([end] if end else [])]}
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": specials}


def sentencepiece(vocab, merges, metaspace):
    """Llama 2 has normalizers; newer files have the pre-tokenizer Metaspace."""
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    decoders = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return tokenizer(vocab, merges, added_tokens=added({"<unk>": 0, "<s>": 1, "</s>": 2}), normalizer=None if metaspace else normalizer,
                     pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False} if metaspace else None,
                     post_processor=template(("<s>", 1)), decoder={"type": "Sequence", "decoders": decoders},
                     model={"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True})


def gpt2(folder):
    vocab, merges = tiktoken(package(folder, "gpt-tokenizer") / "data" / "r50k_base.tiktoken")
    vocab["<|endoftext|>"] = 50256
    merges = [" ".join(pair) for pair in merges]  # the older form
    return tokenizer(vocab, merges, added_tokens=added({"<|endoftext|>": 50256}), pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL,
                     post_processor=BYTE_LEVEL | {"trim_offsets": False})


def of_openai(file, pattern, specials):
    def make(folder):
        vocab, merges = tiktoken(package(folder, "gpt-tokenizer") / "data" / file)
        return tokenizer(vocab, merges, added_tokens=added(dict(zip(specials, range(len(vocab), 1 << 30)))), pre_tokenizer=split(pattern),
                         decoder=BYTE_LEVEL, model={"ignore_merges": True})
    return make


def llama3(folder, **parts):
    vocab, merges = javascript((package(folder, "llama3-tokenizer-js") / "src" / "data-converted.js").read_text(), 17)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>", "<|eot_id|>"]
    specials = {name: len(vocab) + i for i, name in enumerate(names)}
    begin = names[0], specials[names[0]]
    return tokenizer(vocab, merges, **({
        "added_tokens": added(specials), "pre_tokenizer": split(GPT4), "decoder": BYTE_LEVEL, "model": {"ignore_merges": True},
        "post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL, template(begin)]}} | parts))


def qwen2(folder):
    return llama3(folder, normalizer={"type": "NFC"}, pre_tokenizer=split(GPT4.replace("{1,3}", "")), model={}, post_processor=BYTE_LEVEL)


def llama2(folder):
    return sentencepiece(*javascript((package(folder, "llama-tokenizer-js") / "llama-tokenizer.js").read_text(), 16), False)


def mistral(folder):
    return sentencepiece(*javascript((package(folder, "mistral-tokenizer-js") / "mistral-tokenizer.js").read_text(), 16), True)


ALL = {"gpt2": gpt2, "cl100k": of_openai("cl100k_base.tiktoken", GPT4, ["<|endoftext|>", "<|fim_prefix|>"]),
       "o200k": of_openai("o200k_base.tiktoken", O200K, ["<|endoftext|>", "<|endofprompt|>"]),
       "llama3": llama3, "qwen2": qwen2, "llama2": llama2, "mistral": mistral}


def make_all(folder):
    """Returns {name: file}."""
    out = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in ALL.items():
        out[name] = folder / f"{name}.json"
        if not out[name].exists():
            text = json.dumps(make(folder), ensure_ascii=False)
            out[name].write_text(text, encoding="utf-8")
    return out


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for found in make_all(pathlib.Path(sys.argv[1])).values():
        print(found)
