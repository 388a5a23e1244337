#!/usr/bin/env python3
"""weft eval: the loss over a whole file, as Transformers computes it (tests/data/make_perplexity.py), on every mesh."""
import json
import math
import os
import struct
import subprocess
import sys
import unittest

from weft import Case, TINY, WEFT, lines, run

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
LLAMA = os.path.join(DATA, "llama")


class Eval(Case):
    def setUp(self):
        super().setUp()
        with open(os.path.join(DATA, "perplexity.json"), encoding="utf-8") as file:
            self.expected = json.load(file)
        self.ids = self.write("ids.u16", self.expected["tokens"])

    def write(self, name, tokens, code="H"):
        with open(self.path(name), "wb") as file:
            file.write(struct.pack(f"<{len(tokens)}{code}", *tokens))
        return self.path(name)

    def eval(self, model, *args, data=None, **kwargs):
        done = run("eval", model, "--data", data or self.ids, "--json", *args, **kwargs)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = lines(done.stdout)
        self.assertEqual(len(out), 1)
        return out[0]

    def test_the_loss_is_that_of_transformers(self):
        for name, loss in self.expected["losses"].items():
            out = self.eval(os.path.join(DATA, name), "--threads", 0)
            self.assertAlmostEqual(out["loss"], loss, delta=1e-6, msg=name)
            self.assertAlmostEqual(out["perplexity"], math.exp(out["loss"]), delta=1e-9)
            self.assertEqual((out["tokens"], out["windows"]), (12 * 19 + 5, 20))

    def test_the_loss_has_the_same_bits_on_every_mesh(self):
        one = self.eval(LLAMA)["loss"]
        for more in (["--ranks", 2], ["--mesh", "stage=2"], ["--mesh", "data=2"], ["--mesh", "data=3"], ["--mesh", "data=2,stage=2"],
                     ["--threads", 3], ["--threads", 0, "--mesh", "data=2,stage=2"]):
            self.assertEqual(self.eval(LLAMA, *more)["loss"], one, more)
        pieces = self.eval(LLAMA, "--mesh", "tensor=2")["loss"]
        self.assertAlmostEqual(pieces, one, delta=1e-6)
        self.assertEqual(self.eval(LLAMA, "--mesh", "data=2,stage=2,tensor=2", "--in-process")["loss"], pieces)
        bf16 = self.eval(LLAMA, "--precision", "bf16")["loss"]
        self.assertNotEqual(bf16, one)
        self.assertAlmostEqual(bf16, one, delta=0.05)
        self.assertEqual(self.eval(LLAMA, "--precision", "bf16", "--mesh", "data=2,stage=2", "--in-process")["loss"], bf16)
        self.assertNotIn(self.eval(LLAMA, "--precision", "bf16", "--f32-nodes", "lm_head")["loss"], (one, bf16))
        self.assertEqual(self.eval(LLAMA, "--precision", "bf16", "--f32-nodes", "*")["loss"], one)

    def test_each_token_after_the_first_counts_once(self):
        """The loss of a file is that of its windows, whatever their number, and the last one may be shorter."""
        tokens = self.expected["tokens"]
        total, count = 0, 0
        for begin in range(0, len(tokens) - 1, 12):
            part = tokens[begin:begin + 13]
            out = self.eval(LLAMA, "--threads", 0, data=self.write("part.u32", part, "I"))
            self.assertEqual((out["tokens"], out["windows"]), (len(part) - 1, 1))
            total += out["loss"] * out["tokens"]
            count += out["tokens"]
        self.assertAlmostEqual(self.eval(LLAMA)["loss"], total / count, delta=1e-12)
        short = self.eval(LLAMA, "--seq-len", 5)
        self.assertEqual((short["tokens"], short["windows"]), (count, -(-count // 5)))

    def test_text_is_encoded_as_in_training(self):
        text = self.path("book.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("It was a day of words.\n" * 30)
        self.fails(2, "is the file of FILE", "tokenizer", "train", text, "--vocabulary", 300, "--out", text)
        run("tokenizer", "train", text, "--vocabulary", 300, "--out", self.path("tok.json"))
        model = "gpt2:blocks=1,width=16,heads=2,context=16,vocabulary=300,dropout=0"
        self.train(model, "--data", text, "--tokenizer", self.path("tok.json"), "--steps", 2, "--checkpoint", self.path("ck"), "--in-process")
        run("tokenize", self.path("tok.json"), text, "--out", self.path("book.u16"))
        ids = self.eval(self.path("ck"), data=self.path("book.u16"))["loss"]
        self.assertEqual(self.eval(self.path("ck"), data=text)["loss"], ids)
        os.rename(self.path("ck/source"), self.path("aside"))
        self.fails(3, "or a text with a tokenizer", "eval", self.path("ck"), "--data", text)
        self.assertEqual(self.eval(self.path("ck"), "--tokenizer", self.path("tok.json"), data=text)["loss"], ids)

    def test_training_and_eval_compute_the_same_loss(self):
        text = self.path("book.txt")
        with open(text, "wb") as file:
            file.write(bytes(i * i % 251 for i in range(16 * 8 + 6)))
        done = run("train", TINY, "--data", text, "--eval", text, "--micro-batches", 2, "--micro-batch-size", 1, "--steps", 2, "--json",
                   "--checkpoint", self.path("ck"), "--in-process")
        self.assertEqual(done.returncode, 0, done.stderr)
        held_out = [line for line in lines(done.stdout) if line["event"] == "eval"][-1]
        out = self.eval(self.path("ck"), data=text)
        self.assertEqual((out["tokens"], out["windows"]), (16 * 8 + 5, held_out["windows"]))
        self.assertAlmostEqual(out["loss"], held_out["eval_loss"], delta=1e-12)

    def test_answers_of_samples_are_evaluated(self):
        samples = self.path("a.jsonl")
        with open(samples, "w", encoding="utf-8") as file:
            for number in range(20):
                file.write(json.dumps({"prompt": "n" * (number % 7), "completion": "ab" * (1 + number % 3)}) + "\n")
        tokenizer = os.path.join(DATA, "tokenizers", "byte_fallback")
        model = "gpt2:blocks=1,width=16,heads=2,context=32,vocabulary=522,dropout=0"
        done = run("train", model, "--data", samples, "--eval", samples, "--tokenizer", tokenizer, "--micro-batches", 2, "--micro-batch-size", 2,
                   "--steps", 2, "--json", "--checkpoint", self.path("ck"), "--in-process")
        self.assertEqual(done.returncode, 0, done.stderr)
        held_out = [line for line in lines(done.stdout) if line["event"] == "eval"][-1]
        out = self.eval(self.path("ck"), data=samples)
        self.assertEqual(out["windows"], held_out["windows"])
        self.assertLess(out["windows"], 10)
        self.assertAlmostEqual(out["loss"], held_out["eval_loss"], delta=1e-6)
        self.assertEqual(self.eval(self.path("ck"), "--mesh", "data=2,stage=2", data=samples)["loss"], out["loss"])

    def test_the_result_is_printed_for_a_person(self):
        done = run("eval", LLAMA, "--data", self.ids, "--quiet")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        loss = self.eval(LLAMA)["loss"]
        self.assertEqual(done.stdout.splitlines()[:3], [f"loss {loss:.6f}", f"perplexity {math.exp(loss):.4f}", f"tokens {12 * 19 + 5}"])
        self.assertRegex(done.stdout.splitlines()[3], r"^time \d+\.\d+ (us|ms|s)$")

    def test_processes_of_a_launcher_compute_it(self):
        one = self.eval(LLAMA)["loss"]
        command = [WEFT, "eval", LLAMA, "--data", self.ids, "--json", "--launcher", "env", "--join-file", self.path("join")]
        ranks = [subprocess.Popen(command, env=dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1"), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
        said = [rank.communicate(timeout=60) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
        self.assertEqual(json.loads(said[0][0])["loss"], one)
        self.assertEqual(said[1][0], "")

    def test_what_is_wrong_is_named(self):
        self.fails(2, "--data is required", "eval", LLAMA)
        self.fails(3, "none: cannot open", "eval", self.path("none"), "--data", self.ids)
        self.fails(3, "1 of its 1 tokens are for evaluation, expected at least 2", "eval", LLAMA, "--data", self.write("one.u16", [3]))
        self.fails(3, "token 1 is 37, expected 0 to 36", "eval", LLAMA, "--data", self.write("far.u16", [3, 37]))
        self.fails(3, "no-tokenizer: does not exist", "eval", LLAMA, "--data", self.ids, "--tokenizer", "no-tokenizer")
        self.fails(3, "no-tokenizer: does not exist", "train", TINY, "--data", self.ids, "--tokenizer", "no-tokenizer", "--in-process")
        self.fails(3, "none.u16: cannot open", "eval", LLAMA, "--data", self.path("none.u16"))
        self.fails(2, "which requires --data FILE", "train", TINY, "--data", "synthetic", "--eval", self.ids, "--steps", 1)
        self.train("mlp:layers=2,width=4", "--steps", 0, "--checkpoint", self.path("mlp"))
        self.fails(3, "does not take tokens, so it has no perplexity", "eval", self.path("mlp"), "--data", self.ids)


if __name__ == "__main__":
    sys.exit(unittest.main())
