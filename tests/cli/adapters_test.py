#!/usr/bin/env python3
"""--train: parameters by name, and adapters of low rank."""
import json
import os
import sys
import unittest

from weft import Case, TINY, TINY_STEP, lines, run, tensors_of, write_file

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
STEPS = ["--data", "synthetic", "--micro-batches", 4, "--micro-batch-size", 2, "--seed", 1, "--steps", 3, "--lr", 0.01]
LORA = ["--train", "lora:rank=4,alpha=8"]
FULL = STEPS[:-4]


def data(name):
    return os.path.join(DATA, name)


class Adapters(Case):
    def digest(self, *args):
        return self.train(*args)[1]["digest"]

    def plan(self, *args):
        done = run("plan", *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return lines(done.stdout)[0]

    def params(self, name, checkpoint):
        """The parameters of a checkpoint, as a file."""
        file = self.path(name)
        self.assertEqual(run("export", checkpoint, file).returncode, 0)
        return tensors_of(file)

    def test_one_digest_however_the_work_is_split(self):
        same = [*STEPS, "--gradient-groups", 2, "--tensor", 2]
        for name, train in ("llama", LORA), ("qwen3", [*LORA, "--precision", "bf16"]), ("gemma2", [*LORA, "--precision", "bf16"]), ("gpt2", ["--train", "lora:rank=2,targets=all-linear"]), ("gpt_neox", LORA), ("phi3", LORA):
            expected = self.digest(data(name), *train, *same, "--in-process")
            for split in (["--mesh", "data=2"], ["--mesh", "stage=2,tensor=2"], ["--mesh", "data=2,tensor=2", "--shard", "parameters"],
                          ["--ranks", 2, "--schedule", "zb-h1", "--recompute", "every:3"]):
                self.assertEqual(self.digest(data(name), *train, *same, *split, "--in-process"), expected, (name, split))
        self.assertEqual(self.digest(data("llama"), *LORA, *STEPS, "--ranks", 2), self.digest(data("llama"), *LORA, *STEPS, "--in-process"))

    def test_only_adapters_are_trained_and_have_gradients(self):
        self.train(data("llama"), *LORA, *STEPS, "--in-process", "--checkpoint", self.path("out"))
        self.train(data("llama"), *LORA, *STEPS, "--steps", 0, "--in-process", "--checkpoint", self.path("first"))
        before, after = self.params("before", self.path("first")), self.params("after", self.path("out"))
        changed = {name for name in before if before[name] != after[name]}
        self.assertEqual(changed, {f"model.layers.{i}.self_attn.{p}_proj.lora_{m}.weight" for i in (0, 1) for p in "qv" for m in "AB"})
        base, adapted = self.plan(data("llama")), self.plan(data("llama"), *LORA)
        trained = 4 * 16 * 4 + 2 * 4 * (16 + 8)
        self.assertEqual(adapted["trained_parameters"], trained)
        self.assertEqual(adapted["parameters"], base["parameters"] + trained)
        self.assertLess(adapted["ranks"][0]["memory"]["gradients"], base["ranks"][0]["memory"]["gradients"] / 4)
        self.assertLess(adapted["ranks"][0]["memory"]["optimizer"], base["ranks"][0]["memory"]["optimizer"] / 4)

    def test_ranks_that_share_a_stage_exchange_few_columns_for_adapters(self):
        sent = lambda *args: sum(link["bytes"] for link in self.plan(*args, "--mesh", "tensor=2")["links"])
        for model in ("llama:blocks=2,width=128,heads=4,key_heads=2,head_size=32,inner=256,vocabulary=99,context=32",
                      "gpt-nano:blocks=2,context=32"):
            frozen = sent(model, "--train", "*.0.*")  # its backward pass ends where that of adapters does
            for lora in "lora:rank=2", "lora:rank=2,targets=all-linear":
                self.assertLess(sent(model, "--train", lora), 1.05 * frozen, (model, lora))

    def test_a_head_before_a_cap_has_no_adapter(self):
        self.train(data("gemma2"), "--train", "lora:rank=2,targets=all-linear", *STEPS, "--in-process", "--checkpoint", self.path("ck"))
        self.assertFalse(any(name.startswith("lm_head") for name in self.params("all", self.path("ck"))))
        self.assertEqual(run("export", "--merge", self.path("ck"), self.path("merged/")).returncode, 0)

    def test_adapters_are_not_exported_without_other_trained_parameters(self):
        self.train(data("llama"), *LORA, "--param-group", "*norm*:rate=1", *STEPS, "--in-process", "--checkpoint", self.path("ck"))
        self.fails(3, "was trained too", "export", self.path("ck"), self.path("out/"))
        self.assertEqual(run("export", "--merge", self.path("ck"), self.path("merged/")).returncode, 0)

    def test_adapters_name_their_base_only_if_it_was_not_trained(self):
        def base_of(directory):
            with open(os.path.join(directory, "adapter_config.json"), encoding="utf-8") as file:
                return json.load(file)["base_model_name_or_path"]

        for name, options in ("lora", LORA), ("whole", []):
            self.train(data("llama"), *options, *STEPS, "--in-process", "--checkpoint", self.path(name))
        self.train("--resume", self.path("lora"), "--steps", 4, "--in-process")
        self.assertEqual(run("export", self.path("lora"), self.path("a/")).returncode, 0)
        self.assertEqual(base_of(self.path("a")), os.path.abspath(data("llama")))
        self.assertEqual(run("export", self.path("whole"), "--adapter", self.path("a"), self.path("b/")).returncode, 0)
        self.assertIsNone(base_of(self.path("b")))
        self.train(self.path("whole"), *LORA, *STEPS, "--in-process", "--checkpoint", self.path("lora2"))
        self.assertEqual(run("export", self.path("lora2"), self.path("c/")).returncode, 0)
        self.assertIsNone(base_of(self.path("c")))

    def test_a_weight_beside_its_adapter_is_that_of_the_base(self):
        """PEFT stores lm_head.base_layer.weight if the head has an adapter, also if the head is tied."""
        for name, weight in ("llama", "lm_head.weight"), ("qwen2", "model.embed_tokens.weight"):
            out, adapter = self.path(name), self.path(name + "-adapter")
            self.train(data(name), "--train", "lora:rank=4,targets=q_proj,lm_head", *STEPS, "--lr", 0.1, "--in-process", "--checkpoint", out)
            self.assertEqual(run("export", out, adapter + "/").returncode, 0)
            prompt = ["--prompt", "1 2 3", "--temperature", 0, "--tokens", 7]
            texts, exports = [], []

            def use():
                texts.append(run("generate", data(name), "--adapter", adapter, *prompt).stdout)
                done = run("export", data(name), "--adapter", adapter, adapter + "-all.safetensors")
                exports.append((done.returncode, done.stderr))
                return tensors_of(adapter + "-all.safetensors")

            whole = use()
            file = os.path.join(adapter, "adapter_model.safetensors")
            tensors = tensors_of(file)
            shape, values = tensors_of(os.path.join(data(name), "model.safetensors"))[weight]
            tensors["base_model.model.lm_head.base_layer.weight"] = (shape, values)
            write_file(file, tensors)
            self.assertEqual(use(), whole)
            self.assertEqual(texts[0], texts[1])
            self.assertEqual(exports, 2 * [(0, "")])
            tensors["base_model.model.lm_head.base_layer.weight"] = (shape, values[::-1])
            write_file(file, tensors)
            self.fails(3, f"the value of '{weight}' beside the adapters differs from that of the model", "export", data(name), "--adapter", adapter,
                       adapter + "-joined/")

    def test_an_untrained_adapter_changes_nothing(self):
        loss = lambda *args: self.train(*args, *STEPS, "--steps", 1, "--in-process")[0][0]["loss"]
        self.assertEqual(loss(data("llama")), loss(data("llama"), *LORA))

    def test_a_run_is_resumed_generated_from_and_planned(self):
        expected = self.train(data("llama"), *LORA, *STEPS, "--in-process")[1]
        self.train(data("llama"), *LORA, *STEPS, "--steps", 2, "--in-process", "--checkpoint", self.path("out"))
        done = self.train("--resume", self.path("out"), "--steps", 3, "--ranks", 2, "--in-process")[1]
        self.assertEqual((done["digest"], done["optimizer_digest"]), (expected["digest"], expected["optimizer_digest"]))
        prompt = ["--prompt", "1 2 3", "--temperature", 0, "--tokens", 9]
        texts = [run("generate", self.path("out"), *prompt, *split).stdout for split in ([], ["--mesh", "stage=2"], ["--mesh", "tensor=2"])]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])
        self.assertEqual(len(texts[0].split()), 12)
        self.assertIn("lora_rank=4,lora_alpha=8,lora_targets=q_proj/v_proj", self.plan(self.path("out"))["model"])
        # Its adapters are trained on; without --train, all parameters are.
        self.train(self.path("out"), "--train", "lora", *STEPS, "--in-process")
        self.assertEqual(self.plan(self.path("out"), "--train", "lora")["trained_parameters"],
                         self.plan(data("llama"), *LORA)["trained_parameters"])
        self.fails(3, "--train: lora_rank=2, and MODEL has lora_rank=4", "plan", self.path("out"), "--train", "lora:rank=2")

    def test_dropout_affects_only_training(self):
        out, same = self.path("out"), [*STEPS, "--lr", 0.1, "--gradient-groups", 2, "--tensor", 2, "--in-process"]
        lora = ["--train", "lora:rank=4,alpha=8,dropout=0.5", *same]
        digest = self.digest(data("llama"), *lora, "--checkpoint", out)
        for split in ["--ranks", 2], ["--mesh", "tensor=2"], ["--mesh", "data=2"]:
            self.assertEqual(self.digest(data("llama"), *lora, *split), digest, split)
        self.assertNotEqual(self.digest(data("llama"), *LORA, *same), digest)
        for options, made in (["--merge"], "-merged/"), ([], "-adapter/"):
            self.assertEqual(run("export", *options, out, out + made).returncode, 0)
        prompt = ["--prompt", "1 2 3", "--temperature", 0, "--tokens", 7]
        self.assertEqual(run("generate", out, *prompt).stdout, run("generate", out + "-merged", *prompt).stdout)
        # As PEFT, a continued training drops as much.
        with open(out + "-adapter/adapter_config.json", encoding="utf-8") as file:
            self.assertEqual(json.load(file)["lora_dropout"], 0.5)
        self.train(data("llama"), "--adapter", out + "-adapter", "--train", "lora", *STEPS, "--in-process", "--checkpoint", out + "-again")
        self.assertIn("lora_rank=4,lora_alpha=8,lora_dropout=0.5,", self.plan(out + "-again")["model"])
        self.fails(3, "lora_dropout is 1, expected a number from 0 to 0.99", "plan", data("llama"), "--train", "lora:dropout=1")

    def test_adapters_are_exported_merged_and_read_beside_a_base(self):
        prompt = ["--prompt", "1 2 3", "4 5", "--temperature", 0, "--tokens", 7]
        text = lambda *args: run("generate", *args, *prompt).stdout
        for name, targets in ("llama", "q_proj,down_proj"), ("gpt2", "all-linear"):
            out = self.path(name)
            lora = ["--train", f"lora:rank=4,alpha=6,targets={targets}"]
            digest = self.digest(data(name), *lora, *STEPS, "--lr", 0.1, "--in-process", "--checkpoint", out)
            done = run("export", out, out + "-adapter/")
            self.assertEqual((done.returncode, done.stdout), (0, f"{out}-adapter/: {8 if name == 'llama' else 16} tensors of step 3\n"))
            self.assertEqual(sorted(os.listdir(out + "-adapter")), ["adapter_config.json", "adapter_model.safetensors"])
            with open(out + "-adapter/adapter_config.json", encoding="utf-8") as file:
                self.assertEqual(json.load(file)["base_model_name_or_path"], os.path.abspath(data(name)))
            names = tensors_of(out + "-adapter/adapter_model.safetensors")
            prefix = "base_model.model." + ("transformer.h.0.attn.c_attn" if name == "gpt2" else "model.layers.0.self_attn.q_proj")
            self.assertEqual([names[f"{prefix}.lora_{factor}.weight"][0] for factor in "AB"], [[4, 16], [48 if name == "gpt2" else 16, 4]])
            self.assertEqual(run("export", "--merge", out, out + "-merged/").returncode, 0)
            self.assertEqual(run("export", "--merge", out, out + "-merged.safetensors").returncode, 0)
            before = sorted(os.listdir(self.directory))
            for options, made in (["--merge"], "-merged"), ([], "-adapter"):
                done = run("export", data(name), "--adapter", out + "-adapter", *options, out + "-joined/")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, rf"\A{out}-joined/: \d+ tensors\n\Z")
                self.assertEqual(sorted(os.listdir(out + "-joined")), sorted(os.listdir(out + made)))
                for file in os.listdir(out + made):
                    with open(os.path.join(out + made, file), "rb") as one, open(os.path.join(out + "-joined", file), "rb") as other:
                        self.assertEqual(one.read(), other.read(), file)
            self.assertEqual(sorted(os.listdir(self.directory)), sorted([*before, name + "-joined"]))
            new = self.path(name + "-new")
            self.assertEqual(run("export", data(name), "--adapter", out + "-adapter", f"{new}/deep/").returncode, 0)
            self.assertEqual(os.listdir(new), ["deep"])
            expected = text(out)
            self.assertNotEqual(expected, text(data(name)))
            self.assertEqual(text(data(name), "--adapter", out + "-adapter"), expected)
            self.assertEqual(text(out + "-merged"), expected)
            with open(self.path("ids.u16"), "wb") as file:
                file.write(bytes(token for i in range(40) for token in (i * 7 % 37, 0)))
            losses = [json.loads(run("eval", *args, "--data", self.path("ids.u16"), "--json").stdout)["loss"]
                      for args in ([out], [data(name), "--adapter", out + "-adapter"], [data(name)])]
            self.assertEqual(losses[0], losses[1])
            self.assertNotEqual(losses[0], losses[2])
            beside = ["--adapter", out + "-adapter", *STEPS, "--in-process"]
            self.assertEqual(self.digest(data(name), *beside, "--steps", 0), digest)
            self.assertEqual(self.digest(self.plan(data(name))["model"], "--init", data(name), *beside, "--steps", 0), digest)
            self.assertEqual(self.digest(data(name), *beside, "--train", "lora", "--lr", 0.1), self.digest(out, "--train", "lora", *STEPS, "--lr", 0.1, "--in-process"))
            merged = self.digest(out + "-merged", *STEPS, "--steps", 0, "--in-process")
            self.assertEqual(self.digest(self.plan(data(name))["model"], "--init", out + "-merged.safetensors", *STEPS, "--steps", 0, "--in-process"), merged)
        self.fails(3, "its model has no adapters to merge", "export", "--merge", self.base(), self.path("none"))
        self.fails(3, "has no adapter_config.json", "generate", data("gpt2"), "--adapter", data("llama"), *prompt)
        self.fails(3, "contains only adapters", "generate", self.path("gpt2-adapter"), *prompt)
        self.fails(3, "contains only adapters\nname the model that they are for", "export", "--merge", self.path("gpt2-adapter"), self.path("none/"))
        self.fails(3, "the model has adapters already", "export", self.path("gpt2"), "--adapter", self.path("gpt2-adapter"), self.path("none/"))
        self.fails(3, "has no adapter_config.json", "export", data("llama"), "--adapter", self.path("llama"), self.path("none/"))
        self.fails(3, "of another kind", "export", data("mistral"), "--adapter", self.path("llama-adapter"), self.path("none/"))
        self.assertFalse([name for name in os.listdir(self.directory) if name.startswith("none")])
        self.fails(3, "the model has adapters already", "generate", self.path("gpt2"), "--adapter", self.path("gpt2-adapter"), *prompt)
        self.fails(3, "of another kind", "generate", data("mistral"), "--adapter", self.path("llama-adapter"), *prompt)

    def test_an_adapter_of_a_tied_head_is_not_merged(self):
        self.train(TINY, "--train", "lora:targets=lm_head", "--steps", 1, *TINY_STEP, "--checkpoint", self.path("out"))
        self.fails(3, "the adapter of 'lm_head' cannot be merged into 'wte.weight', which other nodes use", "export", "--merge", self.path("out"),
                   self.path("merged/"))

    def base(self):
        self.train(TINY, "--steps", 0, *TINY_STEP, "--checkpoint", self.path("base"))
        return self.path("base")

    def test_a_plan_file_is_of_the_model_with_adapters(self):
        plan = [*STEPS[2:-4], "--seed", 1, "--ranks", 2, "--save", self.path("plan")]
        done = run("plan", data("llama"), *LORA, "--lr", 0.01, *plan)
        self.assertEqual(done.returncode, 0, done.stderr)
        expected = self.digest(data("llama"), *LORA, *STEPS, "--in-process")
        self.assertEqual(self.digest(data("llama"), *LORA, "--plan", self.path("plan"), "--data", "synthetic", "--steps", 3, "--in-process"), expected)
        self.fails(2, "--train cannot be combined with --plan", "train", data("llama"), "--train", "model.*", "--plan", self.path("plan"))

    def test_weights_without_adapters_load_into_a_model_with_adapters(self):
        expected = self.digest(data("llama"), *LORA, *STEPS, "--in-process")
        model = self.plan(data("llama"))["model"]
        self.assertEqual(self.digest(model, "--init", data("llama"), *LORA, *STEPS, "--in-process"), expected)
        self.train(data("llama"), *STEPS, "--steps", 0, "--in-process", "--checkpoint", self.path("base"))
        self.assertEqual(self.digest(self.path("base"), *LORA, *STEPS, "--in-process"), expected)
        self.fails(3, "missing tensors: 'model.layers.2.input_layernorm.weight'", "train", model.replace("blocks=2", "blocks=3"), "--init",
                   data("llama"), *LORA, *STEPS, "--in-process", "-q")

    def test_parameters_are_trained_by_name(self):
        expected = self.digest(TINY, "--steps", 3, *TINY_STEP, "--param-group", "*:frozen;h.1.*:rate=1;ln_f.*:rate=1")
        self.assertEqual(self.digest(TINY, "--steps", 3, *TINY_STEP, "--train", "h.1.*,ln_f.*"), expected)
        self.assertEqual(self.plan(TINY, "--train", "all"), self.plan(TINY))
        self.train(TINY, "--steps", 2, *TINY_STEP, "--train", "h.1.*,ln_f.*", "--checkpoint", self.path("out"))
        self.assertEqual(self.digest("--resume", self.path("out"), "--steps", 3, "--in-process"), expected)

    def test_faults_are_named(self):
        self.fails(3, "pattern 'encoder.*' of a parameter group matches none of the", "plan", TINY, "--train", "encoder.*")
        self.fails(3, "target 'k_proj' of the adapters: no linear node has this name", "plan", TINY, "--train", "lora:targets=k_proj")
        form = "expected lora:rank=R,alpha=A,dropout=P,targets=NAME,..."
        for text, fault in (("lora:", form), ("lora:rank", f"'rank', {form}"), ("lora:rank=x", f"'rank=x', {form}"), ("lora:alpha=nan", f"'alpha=nan', {form}"),
                            ("lora:size=2", f"'size=2', {form}"), ("lora:rank=2,rank=3", "'rank=3', a second rank"),
                            ("lora:targets=", f"'targets=', {form}"), (",", "expected all, lora, or patterns"),
                            ("a,,b", "'a,,b', expected all, lora, or patterns")):
            self.fails(2, fault, "plan", TINY, "--train", text)


if __name__ == "__main__":
    sys.exit(unittest.main())
