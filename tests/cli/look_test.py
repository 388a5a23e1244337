#!/usr/bin/env python3
"""weft generate, plan, inspect and export."""
import json
import struct
import unittest

from weft import Case, TINY, TINY_STEP, lines, run


class Look(Case):
    def test_generate_is_the_same_for_any_number_of_ranks(self):
        self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", self.path("ck"))
        args = ["generate", self.path("ck"), "--prompt", "a", "some longer text than the window of 16", "--tokens", 20, "--in-process", "--json"]
        texts = {run(*args, "--ranks", ranks, "--threads", threads).stdout for ranks, threads in ((1, 0), (1, 1), (2, 1), (4, 2))}
        self.assertEqual(len(texts), 1)
        first, second = lines(texts.pop())
        self.assertEqual((first["prompt"], len(first["tokens"])), ("a", 20))
        self.assertNotEqual(first["tokens"], second["tokens"])
        # A text does not depend on those beside it.
        alone = lines(run("generate", self.path("ck"), "--prompt", "a", "--tokens", 15, "--in-process", "--json").stdout)
        self.assertEqual(alone[0]["tokens"][:15], first["tokens"][:15])
        seeds = {run("generate", self.path("ck"), "--prompt", "a", "--tokens", 20, "--json", "--seed", s).stdout for s in (1, 2)}
        self.assertEqual(len(seeds), 2)
        greedy = {run("generate", self.path("ck"), "--prompt", "a", "--tokens", 9, "--json", *more).stdout
                  for more in (["--temperature", 0], ["--top-k", 1], ["--top-k", 1, "--seed", 3])}
        self.assertEqual(len(greedy), 1)

    def test_plan_of_gpt2_owns_what_is_known(self):
        done = run("plan", "gpt2", "--ranks", 4, "--cut", "h.3,h.6,h.9", "--micro-batch-size", 1, "--seq-len", 64)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("124.44 M parameters", done.stdout)
        owned = [line.split()[1] for line in done.stdout.splitlines() if line[:4].strip().isdigit() and ":" not in line]
        self.assertEqual(owned, ["60.65", "21.26", "21.26", "21.27"])

    def test_plan_as_json(self):
        plan = lines(run("plan", "mlp:layers=8,width=64", "--ranks", 4, "--micro-batches", 4, "--schedule", "gpipe", "--json").stdout)[0]
        self.assertNotIn("timetable", plan)
        self.assertEqual([r["rank"] for r in plan["ranks"]], [0, 1, 2, 3])
        self.assertEqual(sum(r["owned"] for r in plan["ranks"]), plan["parameters"])
        # Equal stages: (p - 1) / (m + p - 1) of the time is idle, and 3/7 is that. The loss and the first stage without an I are not equal.
        self.assertAlmostEqual(plan["idle"], 3 / 7, delta=0.05)
        self.assertTrue(all(r["peak_bytes"] > 0 for r in plan["ranks"]))
        timetable = lines(run("plan", "mlp", "--ranks", 2, "--micro-batches", 2, "--json", "--timetable").stdout)[0]["timetable"]
        self.assertEqual(timetable, ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"])

    def test_inspect_and_export(self):
        _, done = self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("ck"))
        seen = lines(run("inspect", self.path("ck"), "--json", "--digests").stdout)[0]
        self.assertEqual((seen["step"], seen["seed"], seen["digest"]), (1, 1, done["digest"]))
        self.assertEqual(seen["options"]["micro-batches"], "4")
        self.assertEqual(len(seen["optimizer"]), 2 * len(seen["parameters"]))
        wte = next(t for t in seen["parameters"] if t["name"] == "wte.weight")
        self.assertEqual((wte["dtype"], wte["shape"]), ("F32", [256, 32]))
        text = run("inspect", self.path("ck")).stdout
        self.assertIn("  h.0.attn.c_attn.weight  F32[32,96]\n", text)
        self.assertIn(f"digest {done['digest']}\n", text)
        self.assertEqual(run("export", self.path("ck"), self.path("w.safetensors")).returncode, 0)
        with open(self.path("w.safetensors"), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__")
        self.assertEqual(sorted(header), sorted(t["name"] for t in seen["parameters"]))


if __name__ == "__main__":
    unittest.main()
