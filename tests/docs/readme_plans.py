#!/usr/bin/env python3
"""Runs every `weft plan` command of README.md and compares its output with the one that README.md shows. Also plans each row of the table of
the memory for fine-tuning.

usage: readme_plans.py WEFT README

A plan and its prediction do not depend on the machine.
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys


# Models of the table, by their sizes.
GEMMA3 = "gemma3:heads=4,key_heads=1,vocabulary=262144,context=32768,window=512/512/512/512/512/0"
MODELS = {
    "SmolLM2 135M": "llama:blocks=30,width=576,heads=9,key_heads=3,head_size=64,inner=1536,vocabulary=49152,tied=1",
    "Gemma 3 270M": GEMMA3 + ",blocks=18,width=640,inner=2048",
    "Qwen2.5 0.5B": "qwen2:blocks=24,width=896,heads=14,key_heads=2,head_size=64,inner=4864,vocabulary=151936,tied=1",
    "Gemma 3 1B": GEMMA3 + ",blocks=26,width=1152,inner=6912",
    "TinyLlama 1.1B": "llama:blocks=22,width=2048,heads=32,key_heads=4,head_size=64,inner=5632",
    "Llama 3.2 3B": "llama:blocks=28,width=3072,heads=24,key_heads=8,head_size=128,inner=8192,vocabulary=128256,tied=1",
    "Mistral 7B": "mistral",
    "Llama 3.1 8B": "llama:key_heads=8,inner=14336,vocabulary=128256",
    "Qwen2.5 14B": "qwen2:blocks=48,width=5120,heads=40,key_heads=8,head_size=128,inner=13824,vocabulary=152064",
    "Qwen2.5 32B": "qwen2:blocks=64,width=5120,heads=40,key_heads=8,head_size=128,inner=27648,vocabulary=152064",
}
ALL = "--seq-len 512 --micro-batches 4 --micro-batch-size 1 --recompute stage --partition parameters --json".split()
ADAPTERS = "--train lora --precision bf16".split()


def memory(weft, model, options):
    """The GiB of the largest of 1, 2 and 4 ranks."""
    out = []
    for ranks in (1, 2, 4):
        done = subprocess.run([weft, "plan", model, "--ranks", str(ranks), *ALL, *options], capture_output=True, text=True, check=True)
        out.append(max(rank["peak_bytes"] for rank in json.loads(done.stdout.splitlines()[0])["ranks"]) / (1 << 30))
    return out


def table(weft, text):
    """The rows as README.md has them, and as they should be."""
    shown = [line for line in text.splitlines() if line.startswith(tuple(f"| {name} |" for name in MODELS))]
    expected = []
    for name, model in MODELS.items():
        numbers = memory(weft, model, ADAPTERS) + memory(weft, model, [])
        expected.append(f"| {name} | {' | '.join(f'{n:.1f}' for n in numbers)} |")
    return shown, expected


def plans(text):
    """(command, output) of each block that starts with the command."""
    return re.findall(r"^```\n\$ (weft plan [^\n]*)\n(.*?)^```$", text, re.S | re.M)


def main():
    weft, readme = sys.argv[1], pathlib.Path(sys.argv[2])
    text = readme.read_text(encoding="utf-8")
    shown = plans(text)
    if not shown:
        sys.exit(f"{readme.name}: expected a block that starts with '$ weft plan'")
    status = 0
    for command, expected in shown:
        done = subprocess.run([weft, *shlex.split(command)[1:]], capture_output=True, text=True, check=False)
        print(command, "as shown" if done.stdout == expected else f"prints now:\n{done.stdout}{done.stderr}")
        status |= done.stdout != expected
    rows, wanted = table(weft, text)
    if rows != wanted:
        print("the table of the memory for fine-tuning is now:", *wanted, sep="\n")
        status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
