#!/usr/bin/env python3
"""weft export: shards, types, and the files of a model that training keeps beside its checkpoints."""
import json
import os
import shutil
import struct
import sys
import unittest

from weft import Case, lines, run, tensors_of

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
LLAMA = os.path.join(DATA, "llama")
STEPS = ["--data", "synthetic", "--micro-batches", 2, "--micro-batch-size", 2, "--steps", 2, "--in-process"]
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def content(path):
    with open(path, "rb") as file:
        return file.read()


def header(path):
    data = content(path)
    out = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    out.pop("__metadata__")
    return out


def rounded(values):
    """The upper half of each float32, rounded to nearest, ties to even."""
    bits = [bits for bits, in struct.iter_unpack("<I", values)]
    return b"".join(struct.pack("<H", (b + 0x7fff + (b >> 16 & 1)) >> 16) for b in bits)


class Export(Case):
    def setUp(self):
        super().setUp()
        self.source, self.kept, self.out = self.path("llama"), self.path("ck", "source"), self.path("out/")
        shutil.copytree(LLAMA, self.source)
        self.files = {
            "generation_config.json": b'{"bos_token_id": 1, "eos_token_id": [2, 36], "temperature": 0.6}\n',
            "tokenizer_config.json": b'{"model_max_length": 12 }',
            "special_tokens_map.json": b"{}\n",
            "chat_template.jinja": b"{{ messages }}",
            "vocab.json": b"{ }",
            "merges.txt": b"#version: 0.2\n",
            "tokenizer.model": bytes(range(256)),
        }
        for name, data in self.files.items():
            self.write(os.path.join(self.source, name), data)
        with open(os.path.join(self.source, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        config.update(bos_token_id=1, eos_token_id=[2, 36], pad_token_id=None)
        self.write(os.path.join(self.source, "config.json"), json.dumps(config).encode())

    def write(self, path, data):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def export(self, *args, checkpoints="ck"):
        done = run("export", self.path(checkpoints), self.out, *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return sorted(os.listdir(self.out))

    def config(self):
        with open(self.path("out", "config.json"), encoding="utf-8") as file:
            return json.load(file)

    def read_again(self):
        return self.train(self.out, *STEPS, "--steps", 0)[1]["digest"]

    def weights(self):
        out = {}
        for name in os.listdir(self.out):
            if name.endswith(".safetensors"):
                out.update(tensors_of(os.path.join(self.out, name)))
        return out

    def test_files_of_the_source_are_as_they_came(self):
        self.train(self.source, *STEPS, "--checkpoint", self.path("ck"))
        shutil.rmtree(self.source)
        self.assertEqual(self.export(), sorted(["config.json", SINGLE, *self.files]))
        for name, data in self.files.items():
            self.assertEqual(content(os.path.join(self.out, name)), data, name)
        self.assertEqual([self.config()[key + "_token_id"] for key in ("bos", "eos", "pad")], [1, [2, 36], None])
        self.assertFalse([name for name in os.listdir(self.path("ck")) if name.startswith(".")])

    def test_later_runs_keep_them(self):
        self.train(self.source, *STEPS, "--checkpoint", self.path("ck"))
        shutil.rmtree(self.source)
        self.train("--resume", self.path("ck"), "--steps", 3, "--in-process")
        self.train("--resume", self.path("ck"), "--steps", 4, "--checkpoint", self.path("moved"), "--in-process")
        self.train(self.path("moved"), *STEPS, "--checkpoint", self.path("tuned"))
        self.train(LLAMA, "--init", self.path("moved"), *STEPS, "--checkpoint", self.path("begun"))
        for name in "ck", "moved", "tuned", "begun":
            self.assertEqual(self.export(checkpoints=name), sorted(["config.json", SINGLE, *self.files]), name)
            self.assertEqual(self.config()["eos_token_id"], [2, 36])
            shutil.rmtree(self.out)

    def test_a_scaling_outside_of_the_context_is_kept(self):
        path = os.path.join(self.source, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        del config["rope_scaling"]
        scaling = {"rope_type": "dynamic", "factor": 2.5}
        for field in "rope_scaling", "rope_parameters":
            self.write(path, json.dumps({**config, field: scaling}).encode())
            self.assertEqual(run("export", self.source, self.out).returncode, 0)
            self.assertEqual(self.config()["rope_scaling"], scaling)

    def test_a_new_run_in_the_same_directory_has_the_files_of_its_own_model(self):
        none = [*STEPS, "--steps", 0, "--checkpoint", self.path("ck")]
        self.train(self.source, *none)
        self.assertIn("tokenizer.model", os.listdir(self.kept))
        shutil.rmtree(self.path("ck", "step-00000000"))
        self.train(LLAMA, *none)
        self.assertEqual(sorted(os.listdir(self.kept)), ["base_model_path", "config.json"])

    def test_the_tokenizer_of_the_training_is_kept(self):
        self.write(self.path("book.txt"), b"It was a day of words and of rain.\n" * 40)
        for name in "mine.json", "other/tokenizer.json":
            os.makedirs(self.path("other"), exist_ok=True)
            done = run("tokenizer", "train", self.path("book.txt"), "--vocabulary", 300, "--out", self.path(name))
            self.assertEqual(done.returncode, 0, done.stderr)
        self.write(self.path("other/tokenizer_config.json"), b"{}")
        model = "gpt2:blocks=1,width=16,heads=2,context=16,vocabulary=300,dropout=0"
        tokenizer = content(self.path("mine.json"))
        steps = ["--data", self.path("book.txt"), *STEPS[2:]]
        self.train(model, *steps, "--tokenizer", self.path("mine.json"), "--checkpoint", self.path("ck"))
        self.train(model, *steps, "--tokenizer", self.path("other/tokenizer.json"), "--checkpoint", self.path("ck2"))
        shutil.rmtree(self.path("other"))
        os.remove(self.path("mine.json"))
        self.assertEqual(os.listdir(self.kept), ["tokenizer.json"])
        self.assertEqual(self.export(), ["config.json", SINGLE, "tokenizer.json"])
        self.assertEqual(self.export(checkpoints="ck2"), ["config.json", SINGLE, "tokenizer.json", "tokenizer_config.json"])
        self.assertEqual(content(os.path.join(self.out, "tokenizer.json")), tokenizer)
        for place in "ck", "ck/step-00000002", "out/":
            done = run("generate", self.path(place), "--prompt", "It was", "--tokens", 4, "--in-process")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.startswith("It was"), done.stdout)
            self.assertEqual(run("tokenize", self.path(place), self.path("book.txt")).returncode, 0)
        self.write(self.path("ck/source/generation_config.json"), b'{"eos_token_id": [7, 2]}')
        self.assertIn(f"tokenizer and configuration in {self.kept}\ntexts end at 7 2\n", run("inspect", self.path("ck")).stdout)
        shown = lines(run("inspect", self.path("ck"), "--json").stdout)[0]
        self.assertEqual((shown["source"], shown["ends"]), (self.kept, [7, 2]))
        self.train("--resume", self.path("ck"), "--steps", 3, "--in-process")
        # Text for weights that have a tokenizer is encoded with it.
        for begin in [self.out], [self.path("ck")], [model, "--init", self.out]:
            self.train(*begin, *steps, "--checkpoint", self.path("next"))
            self.assertEqual(content(self.path("next/source/tokenizer.json")), tokenizer, begin)
            shutil.rmtree(self.path("next"))

    def test_an_export_has_no_file_of_an_earlier_one(self):
        self.train(self.source, *STEPS, "--checkpoint", self.path("ck"))
        self.train(LLAMA, *STEPS, "--checkpoint", self.path("bare"))
        self.train(LLAMA, *STEPS, "--train", "lora", "--checkpoint", self.path("lora"))
        self.write(self.path("out", "tokenizer.json"), b"{}")
        whole, adapters = ["config.json", SINGLE], ["adapter_config.json", "adapter_model.safetensors"]
        self.assertEqual(self.export(checkpoints="bare"), [*whole, "tokenizer.json"])   # of the user: no export was there
        self.assertEqual(self.export(), sorted([*whole, *self.files]))
        self.write(self.path("out", "notes"), b"")
        self.assertEqual(self.export(checkpoints="bare"), [*whole, "notes"])
        self.export()
        self.assertEqual(self.export(checkpoints="lora"), [*adapters, "notes"])
        self.assertEqual(self.export(), sorted([*whole, "notes", *self.files]))

    def test_a_directory_of_transformers_is_exported_as_a_checkpoint_of_its_weights(self):
        self.train(self.source, *STEPS, "--steps", 0, "--checkpoint", self.path("ck"))
        for options in [], ["--dtype", "bf16"], ["--shard-size", "4K"]:
            names = self.export(*options)
            made = {name: content(os.path.join(self.out, name)) for name in names}
            self.assertEqual(self.export(*options, checkpoints="llama"), names)
            self.assertEqual({name: content(os.path.join(self.out, name)) for name in names}, made, options)
        done = run("export", self.out, self.path("all.safetensors"))
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.path('all.safetensors')}: {len(self.weights())} tensors\n"))
        self.assertEqual(tensors_of(self.path("all.safetensors")), self.weights())

    def test_what_an_export_reads_is_not_replaced(self):
        self.train(self.source, *STEPS, "--train", "lora", "--checkpoint", self.path("lora"))
        self.export(checkpoints="lora")
        shutil.copytree(self.out, self.path("adapters"))
        self.export(checkpoints="llama")
        for options, place in ([], "out/"), ([], "out/" + SINGLE), ([], "out/config.json"), ([], "out/tokenizer.json"), (["--adapter", self.path("adapters")], "adapters/"), (
                ["--adapter", self.path("adapters")], "adapters/adapter_model.safetensors"):
            self.fails(3, f"{self.path(place)}: is read by the export; name another place", "export", self.out, *options, self.path(place))
        self.write(self.path("links", "config.json"), b"{}")
        os.symlink(self.path("out", SINGLE), self.path("links", SINGLE))
        self.fails(3, f"{self.path('links', SINGLE)}: is read by the export", "export", self.out, self.path("links/"))
        self.assertEqual(content(self.path("links", "config.json")), b"{}")
        # Adapters beside the description of a model of another program.
        self.write(self.path("both", "config.json"), b'{"a": 1}')
        done = run("export", self.path("lora"), self.path("both/"))
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.path('both/')}: 8 tensors of step 2\n"), done.stderr)
        self.assertEqual(self.read_again(), self.train(self.source, *STEPS, "--steps", 0)[1]["digest"])

    def test_shards_have_an_index_and_the_same_weights(self):
        digest = self.train(self.source, *STEPS, "--checkpoint", self.path("ck"))[1]["digest"]
        self.export()
        whole = self.weights()
        self.assertEqual(self.read_again(), digest)
        names = [name for name in self.export("--shard-size", "4K") if name.endswith(".safetensors")]
        self.assertGreater(len(names), 2)
        self.assertEqual(names, [f"model-{i + 1:05}-of-{len(names):05}.safetensors" for i in range(len(names))])
        with open(os.path.join(self.out, INDEX), encoding="utf-8") as file:
            index = json.load(file)
        self.assertEqual(index["metadata"], {"total_size": sum(len(data) for _, data in whole.values())})
        self.assertEqual(index["weight_map"], {tensor: name for name in names for tensor in header(os.path.join(self.out, name))})
        for name in names:
            tensors = tensors_of(os.path.join(self.out, name))
            self.assertTrue(len(tensors) == 1 or sum(len(data) for _, data in tensors.values()) <= 4096)
        self.assertEqual(self.weights(), whole)
        self.assertEqual(self.read_again(), digest)
        # What an earlier export left does not remain beside the new files, nor what a killed one left.
        self.write(self.path("out", ".model-00001-of-00009.safetensors.weft-1.tmp"), b"x")
        self.assertNotEqual(self.export("--shard-size", "6K"), names)
        self.assertEqual(self.weights(), whole)
        files = self.export()
        self.assertIn(SINGLE, files)
        self.assertFalse([name for name in files if "-of-" in name or name == INDEX])
        self.write(self.path("out", "model-1-of-2.safetensors"), b"of another program")
        self.assertIn("model-1-of-2.safetensors", self.export())
        # Nor is a directory removed, whatever its name.
        os.mkdir(self.path("out", "model-00002-of-00003.safetensors"))
        self.write(self.path("out", "model-00002-of-00003.safetensors", "notes"), b"of the user")
        self.fails(3, "model-00002-of-00003.safetensors: cannot remove: is a directory", "export", self.path("ck"), self.path("out/"))
        self.assertEqual(content(self.path("out", "model-00002-of-00003.safetensors", "notes")), b"of the user")

    def test_bf16_is_rounded_once(self):
        self.train(self.source, *STEPS, "--checkpoint", self.path("ck"))
        self.export()
        self.assertEqual(self.config()["torch_dtype"], "float32")
        whole = self.weights()
        self.export("--dtype", "bf16", "--shard-size", "4K")
        self.assertEqual(self.config()["torch_dtype"], "bfloat16")
        self.assertEqual(self.weights(), {name: (shape, rounded(data)) for name, (shape, data) in whole.items()})
        for name in os.listdir(self.out):
            if name.endswith(".safetensors"):
                self.assertEqual({tensor["dtype"] for tensor in header(os.path.join(self.out, name)).values()}, {"BF16"})
        digest = self.read_again()
        # Numbers that are bf16 already do not change.
        self.train(self.out, *STEPS, "--steps", 0, "--checkpoint", self.path("again"))
        self.export("--dtype", "bf16", checkpoints="again")
        self.assertEqual(self.read_again(), digest)
        file = self.path("one.safetensors")
        self.assertEqual(run("export", self.path("ck"), file, "--dtype", "bf16").returncode, 0)
        self.assertEqual({tensor["dtype"] for tensor in header(file).values()}, {"BF16"})

    def test_a_model_of_another_program_is_not_replaced(self):
        self.train(self.source, *STEPS, "--checkpoint", self.path("ck"))
        shutil.copytree(self.source, self.path("other"))
        before = {name: content(self.path("other", name)) for name in os.listdir(self.path("other"))}
        self.fails(3, "was not written by an export", "export", self.path("ck"), self.path("other") + "/")
        self.assertEqual({name: content(self.path("other", name)) for name in os.listdir(self.path("other"))}, before)
        for name in os.listdir(self.path("other")):
            if name.endswith(".safetensors"):
                os.remove(self.path("other", name))
        self.fails(3, "config.json: was not written by an export", "export", self.path("ck"), self.path("other") + "/")

    def test_a_failed_export_does_not_look_whole(self):
        self.train(self.source, *STEPS, "--checkpoint", self.path("ck"))
        self.export("--shard-size", "4K")
        for blocked in INDEX, "tokenizer.model", "model-00002-of-":
            name = next(name for name in os.listdir(self.out) if name.startswith(blocked))
            os.remove(os.path.join(self.out, name))
            os.mkdir(os.path.join(self.out, name))
            self.fails(3, "expected a regular file or nothing, found a directory", "export", self.path("ck"), self.out, "--shard-size", "4K")
            self.assertFalse(os.path.exists(os.path.join(self.out, "config.json")))
            os.rmdir(os.path.join(self.out, name))
            self.export("--shard-size", "4K")

    def test_generation_ends_at_the_end_of_a_text(self):
        args = ["generate", self.source, "--temperature", 0, "--in-process", "--json", "--prompt", "3 5 7", "--tokens", 9]
        whole = lines(run(*args, "--ignore-eos").stdout)[0]["tokens"]
        self.assertEqual(len(whole), 9)
        def ends(**files):
            for name, value in files.items():
                self.write(os.path.join(self.source, name + ".json"), json.dumps(value).encode())
            done = run(*args)
            self.assertEqual(done.returncode, 0, done.stderr)
            return lines(done.stdout)[0]["tokens"]
        end = whole[4]
        cut = whole[:whole.index(end)]
        self.assertEqual(ends(generation_config={"eos_token_id": [end, 99]}), cut)
        self.assertEqual(ends(generation_config={"eos_token_id": end}), cut)
        config = json.loads(content(os.path.join(LLAMA, "config.json")))
        self.assertEqual(ends(generation_config={}, config=dict(config, eos_token_id=end)), cut)
        self.assertEqual(ends(config=dict(config, eos_token_id=None)), whole)
        self.write(os.path.join(self.source, "generation_config.json"), b'{"eos_token_id": "x"}')
        self.fails(3, "generation_config.json: 'eos_token_id' is \"x\", expected a token", *args)

    def test_options_are_checked(self):
        self.fails(2, "--dtype: 'f16', expected one of f32, bf16", "export", "ck", "out/", "--dtype", "f16")
        self.fails(2, "--shard-size requires a directory", "export", "ck", "out", "--shard-size", "4K")
        self.train(self.source, *STEPS, "--checkpoint", self.path("ck"))
        self.fails(2, "--shard-size: '0', expected a number of bytes above 0", "export", self.path("ck"), self.out, "--shard-size", 0)


if __name__ == "__main__":
    sys.exit(unittest.main())
