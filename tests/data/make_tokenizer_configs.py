#!/usr/bin/env python3
"""Writes tokenizers/configs.json beside itself: what AutoTokenizer of Hugging Face's Transformers does with tokenizer_config.json.

    python3 -m venv venv && venv/bin/pip install transformers==4.57.6 && venv/bin/python tests/data/make_tokenizer_configs.py

Each item has the folder of a tokenizer.json, the files beside it, a text, and its ids with special tokens.
"""
import json
import pathlib
import shutil
import tempfile

import transformers

FOLDER = pathlib.Path(__file__).resolve().parent / "tokenizers"
CONFIG, MAP = "tokenizer_config.json", "special_tokens_map.json"
BASE = {"tokenizer_class": "PreTrainedTokenizerFast"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}


def token(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **flags}


def typed(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


CASES = [
    # The post-processor of a class.
    ("byte_fallback", {CONFIG: BASE}, "a b"),
    ("byte_fallback", {CONFIG: {**BASE, "add_bos_token": False, "add_eos_token": False}}, "a b"),
    ("byte_fallback", {CONFIG: LLAMA}, "a b"),
    ("byte_fallback", {CONFIG: {"tokenizer_class": "LlamaTokenizerFast"}}, "a b"),
    ("byte_fallback", {CONFIG: {**LLAMA, "add_bos_token": False}}, "a b"),
    ("byte_fallback", {CONFIG: {**LLAMA, "add_eos_token": True}}, "a b"),
    ("byte_fallback", {CONFIG: {**LLAMA, "add_bos_token": None, "bos_token": None}}, "a b"),
    ("byte_fallback", {CONFIG: {**LLAMA, "add_eos_token": True}, MAP: {"eos_token": "<unk>"}}, "a b"),
    ("byte_fallback", {CONFIG: {"tokenizer_class": "GPTNeoXTokenizerFast"}}, "a b"),
    ("byte_fallback", {CONFIG: {"tokenizer_class": "GPTNeoXTokenizer", "add_bos_token": True, "bos_token": "</s>"}}, "a b"),
    ("byte_fallback", {CONFIG: {"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>"}}, "a b<eos><pad>"),
    ("byte_fallback", {CONFIG: {"tokenizer_class": "Qwen2Tokenizer", "add_bos_token": True, "bos_token": "<s>"}}, "a b<|endoftext|>"),
    ("byte_fallback", {CONFIG: {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "bos_token": "<s>"}}, "a b<|endoftext|>"),
    ("bytes_of_gpt2", {CONFIG: {"tokenizer_class": "LlamaTokenizerFast"}}, "a<unk>b</s>c"),
    # A space before a text.
    ("bytes_of_gpt2", {CONFIG: BASE}, "a b"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "add_prefix_space": None}}, "a b"),
    ("bytes_of_gpt2", {CONFIG: {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True}}, "a b"),
    ("bytes_of_gpt2", {CONFIG: {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False}}, "a b"),
    ("pattern_of_gpt4", {CONFIG: {**BASE, "add_prefix_space": True}}, "a b"),
    ("byte_fallback", {CONFIG: {**BASE, "add_prefix_space": False}}, "a b"),
    # Tokens.
    ("bytes_of_gpt2", {CONFIG: {**BASE, "additional_special_tokens": ["<new>", "<|end|>"]}}, "a <new> b"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "extra_special_tokens": {"image_token": "<new>"}}}, "a <new> b"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "pad_token": "<new>"}}, "a <new> b"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "pad_token": typed("<new>", lstrip=True)}}, "a <new> b"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "mask_token": "an"}}, "an and"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "added_tokens_decoder": {"9": token("<b>"), "700": token("<a>", normalized=True, special=False, rstrip=True)}}},
     "<a> <b> c"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "added_tokens_decoder": {"0": token("<|end|>", lstrip=True)}}}, "a <|end|> b"),
    ("pattern_of_gpt4", {CONFIG: {**BASE, "added_tokens_decoder": {}}}, "a <|end|> hello b"),
    ("pattern_of_gpt4", {CONFIG: {**BASE, "additional_special_tokens": [typed("<|end|>", rstrip=True)]}}, "a <|end|> hello b"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "pad_token": "<p>"}, MAP: {"pad_token": "<q>", "additional_special_tokens": ["<r>"]}}, "a<p><q><r>"),
    ("bytes_of_gpt2", {CONFIG: {**BASE, "added_tokens_decoder": {}, "pad_token": "<p>"}, MAP: {"pad_token": "<q>"}}, "a<p><q>"),
]


def ids(name, files, text):
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(FOLDER / name / "tokenizer.json", folder)
        for file, content in files.items():
            pathlib.Path(folder, file).write_text(json.dumps(content), encoding="utf-8")
        return transformers.AutoTokenizer.from_pretrained(folder)(text)["input_ids"]


rows = [json.dumps({"tokenizer": name, "files": files, "text": text, "ids": ids(name, files, text)}) for name, files, text in CASES]
(FOLDER / "configs.json").write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
