#!/usr/bin/env python3
"""Loads what `weft export` writes with Hugging Face's Transformers and PEFT: each architecture of tests/data, trained on each axis of a mesh, and
adapters. The loss of a text must be the one that `weft eval` prints.

usage: exports_test.py WEFT

Requires PyPI. Exits with 77 if a package cannot be installed. The environment is in a temporary folder, or in WEFT_TRANSFORMERS if it is set.
"""
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
sys.path.insert(0, str(ROOT / "tests"))
import pypi

PACKAGES = ["torch==2.5.1", "transformers==4.57.1", "peft==0.17.1"]
AXES = ["", "data=2", "stage=2", "tensor=2"]
ADAPTED = {"gpt2": "lora:rank=2,targets=all-linear", "llama": "lora:rank=2", "qwen3": "lora:rank=2,alpha=8,targets=q_proj,down_proj"}


def weft(*args):
    done = subprocess.run([WEFT, *map(str, args)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"weft {' '.join(map(str, args))}: {done.stderr}")
    return done.stdout


def write(path, tokens):
    path.write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))


class Case:
    """A directory of tests/data, and texts for it."""

    def __init__(self, name, folder):
        self.name, self.base, self.folder = name, DATA / name, pathlib.Path(folder)
        config = json.loads((self.base / "config.json").read_text(encoding="utf-8"))
        draw = random.Random(name)
        tokens = lambda count: [draw.randrange(config["vocab_size"]) for _ in range(count)]
        # One window of weft eval.
        self.text = tokens(config.get("n_positions", config.get("max_position_embeddings")) + 1)
        write(self.folder / "held.u16", self.text)
        write(self.folder / "text.u16", tokens(400))
        self.untrained = self.eval(self.base)

    def eval(self, model):
        return json.loads(weft("eval", model, "--data", self.folder / "held.u16", "--threads", 0, "--json"))["loss"]

    def loss(self, model):
        tokens = torch.tensor([self.text])
        with torch.no_grad():
            logits = model.double().eval()(tokens[:, :-1]).logits[0]
        return torch.nn.functional.cross_entropy(logits, tokens[0, 1:]).item()

    def load(self, path):
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype="auto", attn_implementation="eager")

    def train(self, mesh, *args):
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        weft("train", self.base, "--data", self.folder / "text.u16", "--steps", 3, "--micro-batches", 4, "--micro-batch-size", 1, "--lr", 0.01,
             "--seed", 1, "--in-process", "--quiet", "--checkpoint", checkpoint, *(["--mesh", mesh] if mesh else []), *args)
        return checkpoint

    def export(self, checkpoint, *args):
        out = tempfile.mkdtemp(dir=self.folder)
        weft("export", checkpoint, f"{out}/new/", *args)
        return f"{out}/new"

    def check(self, what, model, expected, error=1e-5):
        if abs(expected - self.untrained) < 1e-3:
            raise AssertionError(f"{self.name}, {what}: training did not change the loss {expected}")
        found = self.loss(model)
        if abs(found - expected) > error * expected:
            raise AssertionError(f"{self.name}, {what}: the loss is {found}, expected {expected}")

    def check_model(self):
        for mesh in AXES:
            checkpoint = self.train(mesh)
            expected = self.eval(checkpoint)
            self.check(f"mesh '{mesh}'", self.load(self.export(checkpoint, "--shard-size", "4K")), expected)
        model = self.load(self.export(checkpoint, "--dtype", "bf16"))
        if model.dtype != torch.bfloat16:
            raise AssertionError(f"{self.name}: the type of an export in bf16 is {model.dtype}")
        self.check("bf16", model, expected, 0.01)

    def check_adapters(self, adapters):
        for mesh in AXES:
            checkpoint = self.train(mesh, "--train", adapters)
            expected = self.eval(checkpoint)
            self.check(f"adapters, mesh '{mesh}'", peft.PeftModel.from_pretrained(self.load(self.base), self.export(checkpoint)), expected)
            self.check(f"merged, mesh '{mesh}'", self.load(self.export(checkpoint, "--merge")), expected)


def main():
    names = sorted(path.parent.name for path in DATA.glob("*/expected.json") if (path.parent / "config.json").exists())
    assert set(ADAPTED) < set(names), names
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            Case(name, folder).check_model()
        print(name, "ok")
    for name, adapters in ADAPTED.items():
        with tempfile.TemporaryDirectory() as folder:
            Case(name, folder).check_adapters(adapters)
        print(name, "with adapters ok")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    WEFT = sys.argv[1]
    pypi.enter("WEFT_TRANSFORMERS", PACKAGES)
    import peft
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    main()
