#!/usr/bin/env python3
"""Trains GPT-2 with PyTorch on random tokens and prints the seconds of each step as a JSON list, for tools/bench.

    torch_step.py BLOCKS WIDTH HEADS VOCABULARY SAMPLES LENGTH STEPS THREADS [compile] [bf16]

The model is that of weft's presets, in the form that is fastest in PyTorch: scaled_dot_product_attention, one batch per step, a tied head, AdamW in
its fused form, gradients clipped to 1. The first two steps, which compile, are left out.
"""
import contextlib
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP = 2


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = [y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.c_attn(self.ln_1(x)).chunk(3, dim=-1)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).flatten(-2))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, blocks, width, heads, vocabulary, length):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(blocks)])
        self.ln_f = nn.LayerNorm(width)
        for matrix in (p for p in self.parameters() if p.dim() > 1):
            nn.init.normal_(matrix, std=0.02)

    def forward(self, tokens, targets):
        x = self.blocks(self.wte(tokens) + self.wpe.weight[:tokens.shape[1]])
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    blocks, width, heads, vocabulary, samples, length, steps, threads = map(int, sys.argv[1:9])
    options = sys.argv[9:]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = GPT(blocks, width, heads, vocabulary, length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    call = torch.compile(model) if "compile" in options else model
    bf16 = torch.autocast("cpu", dtype=torch.bfloat16) if "bf16" in options else contextlib.nullcontext()
    seconds = []
    for _ in range(WARM_UP + steps):
        batch = torch.randint(0, vocabulary, (samples, length + 1))
        begin = time.perf_counter()
        with bf16:
            loss = call(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps(seconds[WARM_UP:]))


main()
