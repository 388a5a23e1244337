#!/usr/bin/env python3
"""weft train --epochs: the steps of passes over the data."""
import json
import os
import sys
import unittest
from unittest import mock

from weft import Case, TINY, lines, run

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "tokenizers", "byte_fallback")
MODEL = "gpt2:blocks=2,width=16,heads=2,context=24,vocabulary=522"
BATCH = ["--micro-batches", 2, "--micro-batch-size", 2]


class Epochs(Case):
    def samples(self, count):
        path = self.path("a.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            for i in range(count):
                file.write(json.dumps({"prompt": f"{i}", "completion": "x" * (1 + 5 * i % 13)}) + "\n")
        return path

    def all_lines(self, *args):
        done = run("train", *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return lines(done.stdout)

    def test_packed_sequences_are_counted(self):
        args = [MODEL, "--data", self.samples(23), "--tokenizer", FILES, "--eval", 0.1, *BATCH, "--lr-schedule", "linear", "--warmup", 1]
        first, *_, last = out = self.all_lines(*args, "--epochs", 3)
        sequences = first["sequences"]
        self.assertGreater(sequences, 4)
        self.assertLess(sequences, 21)
        self.assertNotEqual(3 * sequences % 4, 0)
        self.assertEqual(first["steps_per_epoch"], sequences / 4)
        self.assertEqual((first["to_step"], last["steps"]), (3 * sequences // 4 + 1,) * 2)
        rates = [line["learning_rate"] for line in out if line["event"] == "step"]
        same = self.all_lines(*args, "--steps", last["steps"])
        self.assertEqual(rates, [line["learning_rate"] for line in same if line["event"] == "step"])
        self.assertEqual(last["digest"], same[-1]["digest"])
        for more in ["--ranks", 2], ["--in-process", "--mesh", "data=2", "--gradient-groups", 2], ["--schedule", "auto"]:
            self.assertEqual(self.all_lines(*args, *more, "--epochs", 3)[-1]["steps"], last["steps"])
        self.assertEqual(self.all_lines(*args, "--micro-batches", 1, "--epochs", 3)[-1]["steps"], -(-3 * sequences // 2))

    def test_the_epochs_before_a_resumed_run_count(self):
        args = [MODEL, "--data", self.samples(9), "--tokenizer", FILES, *BATCH]
        whole = self.train(*args, "--epochs", 3)[1]
        once = self.train(*args, "--epochs", 1, "--checkpoint", self.path("ck"))[1]
        self.assertEqual(self.train("--resume", self.path("ck"))[1], {**once, "seconds": mock.ANY, "peak_bytes_by_rank": mock.ANY})
        done = run("train", "--resume", self.path("ck"), "--epochs", 1)
        self.assertIn("a larger --steps or --epochs continues", done.stderr)
        resumed = self.train("--resume", self.path("ck"), "--epochs", 3)[1]
        self.assertEqual((resumed["steps"], resumed["digest"]), (whole["steps"], whole["digest"]))

    def test_a_step_of_more_than_the_data_is_announced(self):
        args = ["train", MODEL, "--data", self.samples(1), "--tokenizer", FILES, "--epochs", 1]
        done = run(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("a step takes 32 epochs of the data; a smaller --micro-batch-size or --micro-batches makes smaller steps", done.stderr)
        self.assertNotIn("a step takes", run(*args, "--micro-batches", 1, "--micro-batch-size", 1).stderr)

    def test_a_text_is_counted_in_sequences_as_well(self):
        text = self.path("book.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("abcdefgh" * 32 + "a")
        first, *_, last = self.all_lines(TINY, "--data", text, *BATCH, "--epochs", 2)
        self.assertEqual((first["sequences"], first["steps_per_epoch"], last["steps"]), (16, 4, 8))
        done = run("train", TINY, "--data", text, *BATCH, "--steps", 1)
        self.assertEqual(done.stderr.splitlines()[1], "data: 16 sequences of 16 tokens, 4 steps per epoch, 0.25 epochs in all")
        with open(text, "a", encoding="utf-8") as file:
            file.write("b")
        self.assertEqual(self.train(TINY, "--data", text, *BATCH, "--epochs", 2)[1]["steps"], 9)

    def test_long_samples_are_cut_or_skipped(self):
        samples = self.path("a.jsonl")
        with open(samples, "w", encoding="utf-8") as file:
            for prompt, completion in [("a", "b")] * 4 + [("a", "xyz" * 20), ("a" * 60, "b"), ("c", "d")]:
                file.write(json.dumps({"prompt": prompt, "completion": completion}) + "\n")
        args = [MODEL, "--data", samples, "--tokenizer", FILES, *BATCH]
        self.fails(3, "2 of 7 samples are longer", "train", *args, "--epochs", 2)
        for what, cut, skipped in ("cut", 1, 1), ("skip", 0, 2):
            done = run("train", *args, "--epochs", 2, "--long-samples", what, "--checkpoint", self.path(what), "--log", self.path(what + ".log"))
            self.assertEqual(done.returncode, 0, done.stderr)
            counts = f"long samples: {cut} cut, {skipped} skipped"
            self.assertTrue(done.stderr.splitlines()[1].endswith(f" epochs in all; {counts}, with those held out"), done.stderr)
            with open(self.path(what + ".log"), encoding="utf-8") as file:
                first = lines(file.read())[0]
            self.assertEqual((first["cut_samples"], first["skipped_samples"]), (cut, skipped))
            whole = self.train(*args, "--epochs", 4, "--long-samples", what)[1]
            self.assertEqual(self.train("--resume", self.path(what), "--epochs", 4)[1]["digest"], whole["digest"])
            self.fails(3, "2 of 7 samples are longer", "eval", self.path(what), "--data", samples)
            done = run("eval", self.path(what), "--data", samples, "--long-samples", what, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([lines(done.stdout)[0][key] for key in ("cut_samples", "skipped_samples")], [cut, skipped])
            self.assertIn(f"\n{counts}\n", run("eval", self.path(what), "--data", samples, "--long-samples", what, "--quiet").stdout)
            text = self.path("book.txt")
            with open(text, "w", encoding="utf-8") as file:
                file.write("other data " * 40)
            self.train("--resume", self.path(what), "--data", text, "--steps", 8)
        done = run("train", MODEL, "--data", self.samples(4), "--tokenizer", FILES, "--steps", 1, "--long-samples", "cut", "--log", self.path("log"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("long samples", done.stderr)
        with open(self.path("log"), encoding="utf-8") as file:
            first = lines(file.read())[0]
        self.assertEqual((first["cut_samples"], first["skipped_samples"]), (0, 0))
        self.fails(2, "--long-samples skip requires samples, NAME.jsonl", "train", TINY, "--data", "synthetic", "--long-samples", "skip")
        self.fails(2, "--long-samples: 'drop', expected one of refuse, cut, skip", "train", *args, "--long-samples", "drop")

    def test_what_is_wrong_is_named(self):
        text = self.path("book.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write("abcdefgh" * 32)
        self.fails(2, "--steps excludes --epochs", "train", TINY, "--data", text, "--epochs", 2, "--steps", 3)
        self.fails(2, "--epochs: '1.5', expected a whole number", "train", TINY, "--data", text, "--epochs", 1.5)
        self.fails(2, "--epochs requires --data FILE", "train", TINY, "--data", "synthetic", "--epochs", 2)
        self.fails(2, "--epochs requires --data FILE", "train", "mlp:width=8", "--epochs", 2)
        self.fails(2, "--steps is 4, expected more than --warmup, which is 9: --lr-schedule cosine falls after the warm-up\n--epochs 1 has this number of steps\n",
                   "train", TINY, "--data", text, *BATCH, "--epochs", 1, "--lr-schedule", "cosine", "--warmup", 9)
        self.assertNotIn("data: ", run("train", TINY, "--data", "synthetic", "--steps", 1).stderr)
        plan = self.path("plan")
        self.assertEqual(run("plan", TINY, *BATCH, "--lr-schedule", "cosine", "--steps", 9, "--save", plan).returncode, 0)
        self.fails(2, "--epochs cannot be combined with --plan, whose learning rate has a last step", "train", TINY, "--data", text, "--plan", plan,
                   "--epochs", 2)
        self.assertEqual(run("plan", TINY, *BATCH, "--save", plan).returncode, 0)
        self.assertEqual(self.train(TINY, "--data", text, "--plan", plan, "--epochs", 1)[1]["steps"], 4)


if __name__ == "__main__":
    sys.exit(unittest.main())
