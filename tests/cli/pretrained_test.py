#!/usr/bin/env python3
"""A directory that Hugging Face's Transformers wrote (tests/data/make_pretrained.py), as a model of the command."""
import json
import os
import shutil
import sys
import unittest

from weft import Case, lines, run

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
HERE = os.path.join(DATA, "gpt2")
LLAMAS = ["gemma2", "gemma3_text", "llama", "mistral", "mistral_window", "qwen2", "qwen2_window", "qwen2_yarn", "qwen3", "phi3", "gpt_neox"]
MODEL = "gpt2:blocks=2,width=16,heads=2,context=12,vocabulary=37,dropout=0,tied=1"
STEPS = ["--data", "synthetic", "--micro-batches", 2, "--micro-batch-size", 2, "--steps", 2]


class Pretrained(Case):
    def digest(self, *args):
        return self.train(*args, *STEPS)[1]["digest"]

    def test_greedy_text_is_that_of_transformers(self):
        for name, ranks in [("gpt2", 1), ("gpt2", 2)] + [(llama, 1) for llama in LLAMAS]:
            with open(os.path.join(DATA, name, "expected.json"), encoding="utf-8") as file:
                texts = json.load(file)["texts"]
            prompts = [" ".join(map(str, text[:3])) for text in texts]
            done = run("generate", os.path.join(DATA, name), "--temperature", 0, "--tokens", 9, "--ranks", ranks, "--prompt", *prompts)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.rstrip("\n").split("\n\n"), [" ".join(map(str, text)) for text in texts], name)

    def test_llamas_are_trained_and_exported(self):
        for name in [*LLAMAS, "phi3_longrope"]:
            here, out = os.path.join(DATA, name), self.path(name + "-out") + "/"
            digest = self.digest(here, "--checkpoint", self.path(name))
            self.assertEqual(self.digest(here, "--mesh", "stage=2"), digest, name)
            self.assertEqual(self.digest(here, "--mesh", "stage=2,tensor=2"), self.digest(here, "--mesh", "tensor=2"), name)
            self.assertEqual(run("export", self.path(name), out).returncode, 0)
            self.assertEqual(self.train(out, *STEPS[:-1], 0)[1]["digest"], digest, name)
            with open(out + "config.json", encoding="utf-8") as file:
                rotation = json.load(file).get("rope_scaling")
            if rotation:  # the only name that Transformers 4 knows for each
                self.assertEqual([key for key in rotation if key.endswith("type")], ["type" if name == "phi3_longrope" else "rope_type"], name)

    def test_gemma_without_caps_and_windows_is_exported(self):
        model = "gemma2:blocks=2,width=8,heads=2,key_heads=1,head_size=4,inner=8,vocabulary=9,context=4,window=,score_cap=0,logit_cap=0"
        digest = self.digest(model, "--checkpoint", self.path("gemma"))
        self.assertEqual(run("export", self.path("gemma"), self.path("out/")).returncode, 0)
        with open(self.path("out/config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual((config["attn_logit_softcapping"], config["final_logit_softcapping"]), (None, None))
        self.assertEqual((config["sliding_window"], config["layer_types"]), (4096, ["full_attention"] * 2))
        self.assertEqual(self.train(self.path("out/"), *STEPS[:-1], 0)[1]["digest"], digest)

    def test_training_starts_from_its_weights(self):
        digest = self.digest(HERE)
        self.assertEqual(self.digest(MODEL, "--init", HERE), digest)
        self.assertEqual(self.digest(HERE, "--ranks", 2), digest)
        self.assertNotEqual(self.digest(MODEL), digest)

    def test_an_end_token_outside_of_the_vocabulary_matters_only_to_samples(self):
        shutil.copytree(HERE, self.path("gpt2"))
        with open(self.path("gpt2/generation_config.json"), "w", encoding="utf-8") as file:
            json.dump({"eos_token_id": 50256}, file)
        with open(self.path("ids.u16"), "wb") as file:
            file.write(bytes([5, 0]) * 99)
        with open(self.path("s.jsonl"), "w", encoding="utf-8") as file:
            file.write('{"prompt": "a", "completion": "b"}\n')
        self.assertEqual(self.digest(self.path("gpt2")), self.digest(HERE))
        losses = [lines(run("eval", model, "--data", self.path("ids.u16"), "--json").stdout)[0]["loss"] for model in (self.path("gpt2"), HERE)]
        self.assertEqual(losses[0], losses[1])
        self.fails(3, "eos_token_id of the model is 50256, expected a token of its vocabulary of 37", "eval", self.path("gpt2"), "--data",
                   self.path("s.jsonl"))

    def test_other_heads_are_refused(self):
        self.fails(3, "has heads=2, MODEL has heads=4", "train", MODEL.replace("heads=2", "heads=4"), "--init", HERE, *STEPS)

    def test_checkpoints_do_not_go_into_it(self):
        shutil.copytree(HERE, self.path("gpt2"))
        before = os.listdir(self.path("gpt2"))
        self.fails(3, "is a directory of Transformers", "train", HERE, *STEPS, "--checkpoint", self.path("gpt2"))
        self.assertEqual(os.listdir(self.path("gpt2")), before)

    def test_it_is_planned_and_inspected(self):
        done = run("plan", HERE, "--ranks", 2, "--json")
        self.assertEqual(lines(done.stdout)[0]["model"], MODEL)
        done = run("inspect", HERE, "--json")
        self.assertEqual(lines(done.stdout)[0]["model"], MODEL)
        self.assertIn("model " + MODEL, run("inspect", HERE).stdout.splitlines())

    def test_a_checkpoint_is_exported_as_one(self):
        digest = self.digest(HERE, "--checkpoint", self.path("ck"))
        out = self.path("out") + "/"
        for _ in 1, 2:  # the second one replaces the first one
            self.assertEqual(run("export", self.path("ck"), out).returncode, 0)
            self.assertEqual(sorted(os.listdir(out)), ["config.json", "model.safetensors"])
        blocked = self.path("blocked/")
        os.makedirs(blocked + "config.json")
        self.fails(3, "expected a regular file or nothing, found a directory", "export", self.path("ck"), blocked)
        self.assertEqual(os.listdir(blocked), ["config.json"])
        self.assertEqual(self.train(out, *STEPS[:-1], 0)[1]["digest"], digest)
        self.fails(3, "does not name its model, expected a checkpoint or a directory of Transformers", "export", out + "model.safetensors", self.path("again"))
        before = sorted(os.walk(self.path("ck")))
        for inside in "ck/", "ck/sub/", "ck/step-00000009/", "ck/step-00000002/a/b/":
            self.fails(3, "contains checkpoints, expected a directory outside of it", "export", self.path("ck"), self.path(inside))
        self.assertEqual(sorted(os.walk(self.path("ck"))), before)
        self.assertEqual(self.train(self.path("ck"), *STEPS[:-1], 0)[1]["digest"], digest)

    def test_what_cannot_be_exported_or_read_is_named(self):
        done = run("train", "mlp:layers=2,width=4", "--steps", 1, "--checkpoint", self.path("mlp"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.fails(3, "Transformers has no architecture for model 'mlp'", "export", self.path("mlp"), self.path("out/"))
        for key, found, expected in ("bias", 1, 0), ("window", 2, "none"):
            done = run("train", f"llama:blocks=1,width=8,heads=2,key_heads=1,head_size=4,inner=8,vocabulary=9,context=4,{key}={found}", *STEPS,
                       "--checkpoint", self.path(key))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.fails(3, f"key {key} is {found}, expected {expected} for 'llama' of Transformers", "export", self.path(key), self.path("out/"))
        shutil.copytree(HERE, self.path("bert"))
        with open(self.path("bert/config.json"), "w", encoding="utf-8") as file:
            json.dump({"model_type": "bert"}, file)
        self.fails(3, "'model_type' is 'bert', this version of weft knows gpt2", "train", self.path("bert"), *STEPS)


if __name__ == "__main__":
    sys.exit(unittest.main())
