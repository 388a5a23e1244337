#!/usr/bin/env python3
"""Writes adapters/gpt2/ and adapters/llama/ beside itself: adapters of low rank for the models of make_pretrained.py, as Hugging Face's PEFT saves
them, and what it computes with them.

    python3 -m venv venv && venv/bin/pip install torch transformers peft && venv/bin/python tests/data/make_adapters.py

The adapters are float32, and B is not 0. expected.json has logits, and 10 losses of training only the adapters with AdamW, in double precision.
"""
import json
import pathlib
import shutil

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).parent
STEPS = 10


def write(name, **options):
    torch.manual_seed(4)
    folder = HERE / "adapters" / name
    shutil.rmtree(folder, ignore_errors=True)
    base = AutoModelForCausalLM.from_pretrained(HERE / name)
    model = get_peft_model(base, LoraConfig(r=3, lora_alpha=5, task_type="CAUSAL_LM", **options))
    for parameter_name, parameter in model.named_parameters():
        if "lora_B" in parameter_name:
            parameter.data = 0.2 * torch.randn(parameter.shape)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = None
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")
    saved = json.loads((HERE / name / "expected.json").read_text())
    tokens, targets = (torch.tensor(saved[key]) for key in ("tokens", "targets"))
    model = model.double().eval()
    out = {}
    with torch.no_grad():
        out["logits"] = model(tokens[:1]).logits[0].flatten().tolist()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    out["losses"] = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        out["losses"].append(loss.item())
    (folder / "expected.json").write_text(json.dumps(out) + "\n")
    for file in folder.iterdir():
        file.chmod(0o644)


write("gpt2", target_modules="all-linear", fan_in_fan_out=True)
write("llama", target_modules=["q_proj", "down_proj"])
