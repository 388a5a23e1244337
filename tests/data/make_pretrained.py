#!/usr/bin/env python3
"""Writes gpt2/, llama/, ... beside itself: small models with random weights, as Hugging Face's Transformers saves them, and what it
computes with them.

    python3 -m venv venv && venv/bin/pip install torch 'transformers>=4.51' && venv/bin/python tests/data/make_pretrained.py

The weights are float32; those of gpt2 are in several safetensors files with an index. expected.json has logits, 20 losses of training
with AdamW, and texts that greedy generation continued after three tokens. They are computed in double precision.
"""
import json
import pathlib
import shutil

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma3TextConfig, GPT2Config, GPTNeoXConfig, LlamaConfig, MistralConfig, Phi3Config, Qwen2Config, Qwen3Config

HERE = pathlib.Path(__file__).parent
STEPS = 20


def expected(model):
    model = model.double().eval()
    config = model.config
    samples = torch.randint(0, config.vocab_size, (4, config.max_position_embeddings + 1))
    tokens, targets = samples[:, :-1], samples[:, 1:]
    out = {"tokens": tokens.tolist(), "targets": targets.tolist()}
    with torch.no_grad():
        out["logits"] = model(tokens[:1]).logits[0].flatten().tolist()
        prompts = tokens[:, :3]
        whole = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=9, do_sample=False, pad_token_id=0)
        out["texts"] = whole.tolist()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    out["losses"] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        out["losses"].append(loss.item())
    return out


SIZES = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
             max_position_embeddings=12, vocab_size=37, initializer_range=0.2, bos_token_id=0, eos_token_id=None)
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8}
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 6, "beta_fast": 4.0, "beta_slow": 0.5}
LONGROPE = {"type": "longrope", "short_factor": [1.0, 1.25, 1.5, 1.75], "long_factor": [1.0, 2.0, 3.5, 5.0]}
CONFIGS = [
    GPT2Config(n_layer=2, n_embd=16, n_head=2, n_positions=12, vocab_size=37, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
               initializer_range=0.2, bos_token_id=0, eos_token_id=None),
    LlamaConfig(**SIZES, rope_scaling=LLAMA3, rope_theta=500.0),
    MistralConfig(**SIZES, head_dim=6, sliding_window=None, rope_theta=1e6),
    Qwen2Config(**SIZES, tie_word_embeddings=True),
    Qwen3Config(**SIZES, head_dim=8),
    Phi3Config(**SIZES, pad_token_id=0, partial_rotary_factor=0.5),
    # Other implementations of attention have no cap. The embedding of a padding token would have no gradient.
    Gemma2Config(**SIZES | {"num_hidden_layers": 3, "hidden_size": 20}, head_dim=6, sliding_window=4, query_pre_attn_scalar=10,
                 attn_logit_softcapping=1.5, final_logit_softcapping=2.0, attn_implementation="eager", pad_token_id=None),
    Gemma3TextConfig(**SIZES | {"num_hidden_layers": 4, "hidden_size": 20}, head_dim=6, sliding_window=4, query_pre_attn_scalar=10,
                     layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], rope_theta=100.0,
                     rope_local_base_freq=20.0, rope_scaling={"rope_type": "linear", "factor": 2.0}, pad_token_id=None),
    GPTNeoXConfig(**{key: value for key, value in SIZES.items() if key != "num_key_value_heads"}, rotary_pct=0.5),
]
VARIANTS = {
    "mistral_window": MistralConfig(**SIZES, head_dim=6, sliding_window=4, rope_theta=1e6),
    "qwen2_window": Qwen2Config(**SIZES, tie_word_embeddings=True, use_sliding_window=True, sliding_window=5, max_window_layers=1),
    "qwen2_yarn": Qwen2Config(**SIZES, tie_word_embeddings=True, rope_scaling=YARN, rope_theta=100.0),
    "phi3_longrope": Phi3Config(**SIZES | {"hidden_size": 32}, pad_token_id=None, rope_scaling=LONGROPE,
                                original_max_position_embeddings=8),
}


def write(name, config):
    torch.manual_seed(15)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():  # biases and norms are constants at first
        parameter.data += 0.05 * torch.randn(parameter.shape)
    model.save_pretrained(folder, **({"max_shard_size": "12KB"} if config.model_type == "gpt2" else {}))
    (folder / "generation_config.json").unlink()
    for file in folder.iterdir():
        file.chmod(0o644)
    (folder / "expected.json").write_text(json.dumps(expected(model)) + "\n")


for each in CONFIGS:
    write(each.model_type, each)
for name, each in VARIANTS.items():
    write(name, each)
