#!/usr/bin/env python3
"""Continues texts of random tokens with a GPT-2 of Transformers with random weights, like bench_generate, for tools/bench.

    transformers_generate.py BLOCKS WIDTH HEADS VOCABULARY LENGTH TEXTS TOKENS THREADS [bf16]

Calls the model itself, without the overhead of generate(), and computes logits of the last token only. The same texts get a token before that.
"""
import json
import sys
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def seconds_of(model, ids, tokens):
    past, seconds = None, []
    for _ in range(tokens):
        begin = time.perf_counter()
        out = model.transformer(ids, past_key_values=past, use_cache=True)
        past = out.past_key_values
        ids = model.lm_head(out.last_hidden_state[:, -1:]).argmax(-1)
        seconds.append(time.perf_counter() - begin)
    return seconds


def main():
    blocks, width, heads, vocabulary, length, texts, tokens, threads = map(int, sys.argv[1:9])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = GPT2Config(n_layer=blocks, n_embd=width, n_head=heads, vocab_size=vocabulary, n_positions=length + tokens + 1)
    model = GPT2LMHeadModel(config).eval()
    if "bf16" in sys.argv[9:]:
        model = model.to(torch.bfloat16)
    begin = torch.randint(0, vocabulary, (texts, length))
    with torch.inference_mode():
        seconds_of(model, begin, 1)
        first, *others = seconds_of(model, begin, tokens + 1)
    print(json.dumps({"first": first, "tokens": others}))


main()
