#!/usr/bin/env python3
"""Writes perplexity.json beside itself: the loss that Hugging Face's Transformers computes over a sequence of tokens with the models of
make_pretrained.py.

    python3 -m venv venv && venv/bin/pip install torch 'transformers>=4.51' && venv/bin/python tests/data/make_perplexity.py

The sequence is divided into windows of the length of the context; the last one is shorter. A token is predicted from the tokens before it in
its window, and the first token of a window from none of them: it is the last target of the window before. Computed in double precision.
"""
import json
import pathlib

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
MODELS = ["gpt2", "gpt_neox", "llama", "mistral", "phi3", "qwen2", "qwen3"]
LENGTH = 12


def loss_of(model, tokens):
    total = 0.0
    with torch.no_grad():
        for begin in range(0, len(tokens) - 1, LENGTH):
            window = tokens[begin:begin + LENGTH + 1]
            logits = model(window[None, :-1]).logits[0]
            total += F.cross_entropy(logits, window[1:], reduction="sum").item()
    return total / (len(tokens) - 1)


torch.manual_seed(21)
sequence = torch.randint(0, 37, (LENGTH * 19 + 6,))
losses = {name: loss_of(AutoModelForCausalLM.from_pretrained(HERE / name).double().eval(), sequence) for name in MODELS}
(HERE / "perplexity.json").write_text(json.dumps({"tokens": sequence.tolist(), "losses": losses}) + "\n")
