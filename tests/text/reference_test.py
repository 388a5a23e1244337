#!/usr/bin/env python3
"""Compares tokenizers with Hugging Face's `tokenizers`: real vocabularies from npm, and small ones that this library trained.

usage: reference_test.py LIBRARY [COUNT [SEED]]

LIBRARY is libweft. COUNT random and adversarial strings are encoded and decoded for each vocabulary, and so are random ids. For some
vocabularies, each code point is encoded. Tokenizers that weft trains are compared, too. Requires npm, PyPI and about five minutes. Exits with
77 if a package cannot be installed. The environment and the vocabularies are in a temporary folder, or in WEFT_TOKENIZERS if it is set.
"""
import ctypes
import json
import os
import pathlib
import random
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSION = "0.23.3"
ADD_SPECIALS, SKIP_SPECIALS = 1, 4
EACH_CHARACTER = ["gpt2", "qwen2", "o200k", "llama2", "words"]
sys.path[:0] = [str(HERE), str(HERE.parent)]
import pypi


class Weft:
    """The functions of the library."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def call(self, function, *arguments):
        error = ctypes.create_string_buffer(4096)
        error[0:4] = (4096).to_bytes(4, "little")
        if getattr(self.library, function)(*arguments, error) < 0:
            raise RuntimeError(error.raw[4:].split(b"\0")[0].decode(errors="replace") or function)

    def open(self, path):
        out = ctypes.c_void_p()
        self.call("weft_tokenizer_open", str(path).encode(), ctypes.byref(out))
        return out

    def encode(self, tokenizer, text, flags=0):
        content, size = text.encode(), ctypes.c_size_t()
        ids = (ctypes.c_int32 * (4 * len(content) + 64))()
        self.call("weft_tokenizer_encode", tokenizer, content, ctypes.c_size_t(len(content)), flags, ids, ctypes.c_size_t(len(ids)), ctypes.byref(size))
        assert size.value <= len(ids)
        return ids[:size.value]

    def decode(self, tokenizer, ids, flags=0):
        array, size = (ctypes.c_int32 * len(ids))(*ids), ctypes.c_size_t()
        text = ctypes.create_string_buffer(512 * len(ids) + 64)
        self.call("weft_tokenizer_decode", tokenizer, array, ctypes.c_size_t(len(ids)), flags, text, ctypes.c_size_t(len(text)), ctypes.byref(size))
        assert size.value <= len(text)
        return text.raw[:size.value].decode()

    def stream(self, tokenizer, ids):
        stream, text, size, parts = ctypes.c_void_p(), ctypes.c_char_p(), ctypes.c_size_t(), []
        self.call("weft_text_stream_new", tokenizer, 0, ctypes.byref(stream))
        for id in ids:
            self.call("weft_text_stream_add", stream, id, ctypes.byref(text), ctypes.byref(size))
            parts.append(ctypes.string_at(text, size.value).decode())
        self.call("weft_text_stream_finish", stream, ctypes.byref(text), ctypes.byref(size))
        parts.append(ctypes.string_at(text, size.value).decode())
        self.library.weft_text_stream_free(stream)
        return "".join(parts)


class Comparison:
    def __init__(self, weft, name, path):
        from tokenizers import Tokenizer  # pylint: disable=import-outside-toplevel
        self.weft, self.name, self.path = weft, name, path
        self.tokenizer, self.reference = weft.open(path), Tokenizer.from_file(str(path))
        self.compared = self.different = 0

    def same(self, what, of, found, expected):
        self.compared += 1
        if found == expected:
            return
        self.different += 1
        if self.different <= 5:
            print(f"{self.name}: {what} of {of!r}:\n  weft       {found!r}\n  tokenizers {expected!r}")

    def text(self, text):
        ids = self.reference.encode(text, add_special_tokens=False).ids
        self.same("ids", text, self.weft.encode(self.tokenizer, text), ids)
        self.same("ids with specials", text, self.weft.encode(self.tokenizer, text, ADD_SPECIALS), self.reference.encode(text).ids)
        decoded = self.reference.decode(ids, skip_special_tokens=False)
        self.same("text", ids, self.weft.decode(self.tokenizer, ids), decoded)
        self.same("stream", ids, self.weft.stream(self.tokenizer, ids), decoded)

    def ids(self, rng):
        size = self.reference.get_vocab_size()
        small = rng.random() < 0.5  # single bytes, in most vocabularies
        ids = [rng.randrange(min(300, size) if small else size + 3) for _ in range(rng.randint(1, 12))]
        self.same("text", ids, self.weft.decode(self.tokenizer, ids), self.reference.decode(ids, skip_special_tokens=False))
        self.same("plain text", ids, self.weft.decode(self.tokenizer, ids, SKIP_SPECIALS), self.reference.decode(ids))

    def characters(self, samples):
        batch = []
        for text in samples.each_character():
            batch.append(text)
            if len(batch) == 65536:
                self.batch(batch)
                batch = []
        self.batch(batch)

    def batch(self, texts):
        for text, found in zip(texts, self.reference.encode_batch(texts, add_special_tokens=False)):
            self.same("ids", text, self.weft.encode(self.tokenizer, text), found.ids)

    def finish(self):
        print(f"{self.name}: {self.compared} results compared, {self.different} differ", flush=True)
        return self.different


def compare_training(weft, text, size, folder):
    """Trains the same tokenizer with both."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # pylint: disable=import-outside-toplevel
    reference = Tokenizer(models.BPE())
    reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    reference.decoder = decoders.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    reference.train_from_iterator([text], trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=["<|end|>"],
                                                              initial_alphabet=alphabet, show_progress=False))

    class Config(ctypes.Structure):
        _fields_ = [("size", ctypes.c_uint32), ("vocabulary", ctypes.c_uint32), ("min_count", ctypes.c_uint32), ("n_specials", ctypes.c_uint32),
                    ("specials", ctypes.POINTER(ctypes.c_char_p))]
    specials, path = (ctypes.c_char_p * 1)(b"<|end|>"), folder / "trained.json"
    config = Config(ctypes.sizeof(Config), size, 2, 1, specials)
    content = text.encode()
    weft.call("weft_tokenizer_train", content, ctypes.c_size_t(len(content)), ctypes.byref(config), str(path).encode())
    same = json.loads(path.read_text(encoding="utf-8")) == json.loads(reference.to_str())
    print(f"training of {size} tokens on {len(content)} bytes: {'the same' if same else 'DIFFERENT'}", flush=True)
    return 0 if same else 1


def compare(library, folder, count, seed):
    import samples  # pylint: disable=import-outside-toplevel
    import vocabularies  # pylint: disable=import-outside-toplevel
    weft, different = Weft(library), 0
    try:
        files = vocabularies.make_all(folder)
    except (OSError, subprocess.CalledProcessError) as reason:
        print("skipped: no packages from npm:", reason)
        return pypi.SKIP
    places = sorted((ROOT / "tests" / "data" / "tokenizers").glob("*/"))
    files |= {place.name: place / "tokenizer.json" for place in places if place.is_dir()}
    for name, path in files.items():
        comparison, rng = Comparison(weft, name, path), random.Random(seed)
        for text in samples.texts(seed, count):
            comparison.text(text)
        for _ in range(count):
            comparison.ids(rng)
        if name in EACH_CHARACTER:
            comparison.characters(samples)
        different += comparison.finish()
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "man").glob("*.[137]")))
    for text, size in (pages, 3000), (pages + " ".join(samples.texts(seed, 5000)), 8000), ("aaaa aaaaaaa aa bababab abab " * 50, 400):
        different += compare_training(weft, text, size, folder)
    return 1 if different else 0


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    folder = pypi.enter("WEFT_TOKENIZERS", [f"tokenizers=={VERSION}"])
    count, seed = ([int(x) for x in sys.argv[2:]] + [20000, 1][len(sys.argv) - 2:])[:2]
    sys.exit(compare(sys.argv[1], folder, count, seed))


if __name__ == "__main__":
    main()
