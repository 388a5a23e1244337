#!/usr/bin/env python3
"""weft generate, plan, inspect and export."""
import contextlib
import json
import struct
import os
import pty
import subprocess
import unittest

from weft import Case, TINY, TINY_STEP, WEFT, lines, run


class Look(Case):
    def test_generate_takes_and_gives_ids_of_another_vocabulary(self):
        self.train(TINY + ",vocabulary=300", "--steps", 0, "--checkpoint", self.path("ids"), "--in-process")
        args = ["generate", self.path("ids"), "--tokens", 3, "--in-process"]
        done = run(*args, "--prompt", "299 0  17", "5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\A299 0 17( \d+){3}\n\n5( \d+){3}\n\Z")
        texts = lines(run(*args, "--prompt", "299 0  17", "5", "--json", "--ranks", 3).stdout)
        self.assertEqual([text["text"] for text in texts], done.stdout.split("\n\n")[0:1] + done.stdout.split("\n\n")[1].splitlines())
        for text, begun in zip(texts, ([299, 0, 17], [5])):
            self.assertEqual([int(word) for word in text["text"].split()], begun + text["tokens"])
            self.assertTrue(all(0 <= token < 300 for token in text["tokens"]))
        for bad in ("300", "-1", "word", "1,2", "99999999999999999999"):
            self.fails(3, f"prompt 2: '{bad}', expected token ids from 0 to 299, separated by blanks", *args, "--prompt", "1", f"7 {bad}")
        self.fails(3, "prompt 1 is empty", *args, "--prompt", "  ")

    def test_generate_prints_tokens_as_they_come_and_stops_without_a_reader(self):
        self.train(TINY, "--steps", 0, "--checkpoint", self.path("ck"), "--in-process")
        process = subprocess.Popen([WEFT, "generate", self.path("ck"), "--prompt", "Call", "--tokens", "100000000", "--slide", "--in-process"], stdout=subprocess.PIPE)
        seen = process.stdout.read(50)
        process.stdout.close()
        self.assertEqual(process.wait(timeout=60), 0)
        whole = subprocess.run([WEFT, "generate", self.path("ck"), "--prompt", "Call", "--tokens", "46", "--slide", "--in-process"], capture_output=True, check=True)
        self.assertEqual(whole.stdout, seen + b"\n")

    def test_a_terminal_gets_characters_whole(self):
        self.train(TINY, "--steps", 0, "--checkpoint", self.path("ck"), "--in-process")
        # Bytes of the prompt are the start of a character that the next token may complete.
        command = [WEFT, "generate", self.path("ck"), "--prompt", b"caf\xc3\xa9 \xe2\x82", "--tokens", "200", "--slide", "--in-process"]
        plain = subprocess.run(command, capture_output=True, check=True).stdout
        shown = "".join(c if c in "\n\t" or c.isprintable() or ord(c) > 0x9f and not 0xdc80 <= ord(c) <= 0xdcff
                        else "".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape"))
                        for c in plain.decode("utf-8", "surrogateescape"))
        main, side = pty.openpty()
        with subprocess.Popen(command, stdout=side, stderr=subprocess.DEVNULL) as process:
            os.close(side)
            seen = b""
            with contextlib.suppress(OSError):   # the last writer has closed it
                while chunk := os.read(main, 4096):
                    seen += chunk
        os.close(main)
        self.assertEqual(seen.decode("utf-8").replace("\r\n", "\n"), shown)

    def test_generate_wants_a_checkpoint(self):
        self.fails(3, f"{self.path('none')}: cannot open", "generate", self.path("none"), "--prompt", "x")
        self.fails(3, "none: cannot open", "generate", "none", "--prompt", "x", cwd=self.directory)
        self.train(TINY, "--steps", 0, "--checkpoint", self.path("ck"), "--in-process")
        run("export", self.path("ck"), self.path("weights.safetensors"))
        self.fails(3, "contains only weights", "generate", "weights.safetensors", "--prompt", "x", cwd=self.directory)

    def test_export_replaces_files_alone(self):
        self.train(TINY, "--steps", 0, "--checkpoint", self.path("ck"), "--in-process")
        os.mkfifo(self.path("pipe"))
        os.mkdir(self.path("directory"))
        for name in ("pipe", "directory"):
            self.fails(3, f"{self.path(name)}: expected a regular file or nothing", "export", self.path("ck"), self.path(name))
        os.symlink(self.path("target"), self.path("link"))
        with open(self.path("target"), "wb"):
            pass
        self.assertEqual(run("export", self.path("ck"), self.path("link")).returncode, 0)
        self.assertTrue(os.path.islink(self.path("link")))
        self.assertGreater(os.path.getsize(self.path("target")), 0)

    def test_generate_is_the_same_for_any_number_of_ranks(self):
        self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", self.path("ck"))
        args = ["generate", self.path("ck"), "--prompt", "a", "some longer text than the window of 16", "--tokens", 20, "--slide", "--in-process", "--json"]
        texts = {run(*args, "--ranks", ranks, "--threads", threads).stdout for ranks, threads in ((1, 0), (1, 1), (2, 1), (4, 2))}
        self.assertEqual(len(texts), 1)
        first, second = lines(texts.pop())
        self.assertEqual((first["prompt"], len(first["tokens"])), ("a", 20))
        self.assertNotEqual(first["tokens"], second["tokens"])
        # A text does not depend on those beside it.
        alone = lines(run("generate", self.path("ck"), "--prompt", "a", "--tokens", 15, "--in-process", "--json").stdout)
        self.assertEqual(alone[0]["tokens"][:15], first["tokens"][:15])
        seeds = {run("generate", self.path("ck"), "--prompt", "a", "--tokens", 15, "--json", "--seed", s).stdout for s in (1, 2)}
        self.assertEqual(len(seeds), 2)
        greedy = {run("generate", self.path("ck"), "--prompt", "a", "--tokens", 9, "--json", *more).stdout
                  for more in (["--temperature", 0], ["--top-k", 1], ["--top-k", 1, "--seed", 3])}
        self.assertEqual(len(greedy), 1)

    def test_a_fallback_is_told_once(self):
        self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("ck"))
        os.remove(self.path("ck", "latest"))
        done = run("generate", self.path("ck"), "--prompt", "a", "--tokens", 1, "--in-process")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Aweft: generate: fell back to step-00000001: .*\n\Z")

    def test_plan_of_gpt2_owns_what_is_known(self):
        done = run("plan", "gpt2", "--ranks", 4, "--cut", "h.3,h.6,h.9", "--micro-batch-size", 1, "--seq-len", 64)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("124.44 M parameters", done.stdout)
        owned = [line.split()[1] for line in done.stdout.splitlines() if line[:4].strip().isdigit() and ":" not in line]
        self.assertEqual(owned, ["60.65", "21.26", "21.26", "21.27"])

    def test_what_a_terminal_would_obey_is_shown_instead(self):
        done = run("inspect", self.path("\x1b[31mred\x07"))
        self.assertEqual(done.returncode, 3)
        self.assertIn("/\\x1b[31mred\\x07", done.stderr)
        self.assertNotIn("\x1b", done.stderr)

    def test_plan_as_json(self):
        plan = lines(run("plan", "mlp:layers=8,width=512", "--ranks", 4, "--micro-batches", 4, "--micro-batch-size", 64, "--schedule", "gpipe",
                         "--json").stdout)[0]
        self.assertNotIn("timetable", plan)
        self.assertEqual([r["rank"] for r in plan["ranks"]], [0, 1, 2, 3])
        self.assertEqual(sum(r["owned"] for r in plan["ranks"]), plan["parameters"])
        # Equal stages: (p - 1) / (m + p - 1) of the time is idle, and 3/7 is that. The loss and the first stage without an I are not equal.
        self.assertAlmostEqual(plan["idle"], 3 / 7, delta=0.05)
        self.assertTrue(all(r["peak_bytes"] > 0 for r in plan["ranks"]))
        timetable = lines(run("plan", "mlp", "--ranks", 2, "--micro-batches", 2, "--json", "--timetable").stdout)[0]["timetable"]
        self.assertEqual(timetable, ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"])

    def test_profile_feeds_a_plan(self):
        model = "mlp:layers=6,width=32"
        done = run("profile", model, "--micro-batch-size", 2, "--repeats", 3, "--out", self.path("p.json"), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = lines(done.stdout)[0]
        self.assertEqual([n["name"] for n in seen["nodes"]][:3], ["layers.0", "layers.0.relu", "layers.1"])
        self.assertTrue(all(n["forward"] > 0 for n in seen["nodes"]))
        with open(self.path("p.json"), encoding="utf-8") as file:
            profile = json.load(file)
        self.assertEqual(*([(n["name"], round(1e9 * n["forward"])) for n in nodes] for nodes in (profile["nodes"], seen["nodes"])))
        for node in profile["nodes"]:
            node["forward"] = 5.0 if node["name"] == "layers.4" else 0.001
        with open(self.path("q.json"), "w", encoding="utf-8") as file:
            json.dump(profile, file)
        args = ["plan", model, "--ranks", 2, "--profile", self.path("q.json"), "--json"]
        plan = lines(run(*args, "--micro-batch-size", 2).stdout)[0]
        # The one slow node shares its stage with fewer others.
        self.assertEqual(plan["ranks"][1]["from"], "layers.4")
        refused = run(*args, "--micro-batch-size", 3)
        self.assertEqual(refused.returncode, 3)
        self.assertIn("micro-batches of 2", refused.stderr)

    def test_a_profile_has_a_precision(self):
        model = "gpt-nano:blocks=2,width=32,heads=2,context=16"
        precision = ["--precision", "bf16", "--f32-nodes", "lm_head"]
        done = run("profile", model, "--ranks", 2, "--micro-batch-size", 2, "--repeats", 3, "--out", self.path("p.json"), *precision)
        self.assertEqual(done.returncode, 0, done.stderr)
        args = ["plan", model, "--ranks", 2, "--micro-batch-size", 2, "--profile", self.path("p.json")]
        self.fails(3, "made with precision bf16 and f32_nodes 'lm_head', the plan has precision f32", *args)
        self.assertEqual(run(*args, *precision).returncode, 0)

    def test_a_profile_of_ranks_has_the_time_between_actions(self):
        model = "mlp:layers=4,width=8"
        done = run("profile", model, "--ranks", 2, "--micro-batch-size", 2, "--repeats", 3, "--out", self.path("p.json"), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("p.json"), encoding="utf-8") as file:
            profile = json.load(file)
        self.assertGreater(profile["overhead"], 0)
        self.assertGreater(profile["memory_speed"], 0)
        args = ["plan", model, "--ranks", 2, "--micro-batch-size", 2, "--profile", self.path("p.json"), "--json"]
        seconds = lines(run(*args).stdout)[0]["seconds"]
        profile["overhead"] += 1.0
        with open(self.path("p.json"), "w", encoding="utf-8") as file:
            json.dump(profile, file)
        # A second before each action of a rank.
        self.assertGreater(lines(run(*args).stdout)[0]["seconds"], seconds + 16)

    def test_a_profile_times_weight_gradients_at_once_where_activations_are_small(self):
        def weight_together(samples):
            done = run("profile", "mlp:layers=4,width=64", "--micro-batch-size", samples, "--repeats", 8, "--out", self.path("p.json"))
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(self.path("p.json"), encoding="utf-8") as file:
                return [node["weight_together"] for node in json.load(file)["nodes"] if node["weight"] > 0]

        small = weight_together(1)
        self.assertTrue(small and all(seconds > 0 for seconds in small))
        self.assertEqual(set(weight_together(4096)), {0})

    def test_a_saved_plan_is_used_as_it_is(self):
        args = ["plan", TINY, "--json", "--timetable"]
        made = run(*args, "--ranks", 2, "--micro-batches", 3, "--schedule", "gpipe", "--speeds", "3,1", "--save", self.path("plan.json"))
        self.assertEqual(made.returncode, 0, made.stderr)
        again = run(*args, "--plan", self.path("plan.json"), "--save", self.path("again.json"))
        # What it was made from, here the speeds, is no part of a plan; a prediction goes without.
        first, second = ({k: v for k, v in lines(done.stdout)[0].items() if "seconds" not in k and "idle" not in k} for done in (made, again))
        for plan in first, second:
            plan["ranks"] = [{k: r[k] for k in ("from", "owned", "resident", "peak_bytes")} for r in plan["ranks"]]
        self.assertEqual(second, first)
        with open(self.path("plan.json"), "rb") as first, open(self.path("again.json"), "rb") as second:
            self.assertEqual(first.read(), second.read())
        self.assertEqual(run(*args, "--plan", self.path("plan.json"), "--ranks", 3).returncode, 2)
        other = run("plan", "mlp", "--plan", self.path("plan.json"))
        self.assertEqual(other.returncode, 3)
        self.assertIn("another model", other.stderr)
        trained = run("train", TINY, "--data", "synthetic", "--steps", 2, "--in-process", "--plan", self.path("plan.json"))
        self.assertEqual(trained.returncode, 0, trained.stderr)

    def test_partition_by_type_and_for_unequal_ranks(self):
        args = ["plan", TINY, "--ranks", 2, "--json"]
        self.assertEqual(lines(run(*args, "--partition", "type:attention").stdout)[0]["ranks"][1]["from"], "h.1.ln_1")
        self.assertEqual(run(*args, "--partition", "type:").returncode, 2)
        model = ["plan", "mlp:layers=8,width=64", "--ranks", 2, "--json"]
        self.assertEqual(lines(run(*model, "--speeds", "3,1").stdout)[0]["ranks"][1]["from"], "layers.6")
        self.assertEqual(run(*model, "--speeds", "3").returncode, 2)
        self.assertEqual(run(*model, "--memory-limit", "1kB").returncode, 3)

    def test_a_checkpoint_may_not_say_what_model_it_is_of(self):
        subprocess.run([os.environ["UNNAMED"], TINY, self.path("ck")], check=True)
        shown = run("inspect", self.path("ck"))
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("\nstep 0, seed 1\n", shown.stdout)
        self.assertNotIn("model", lines(run("inspect", self.path("ck"), "--json").stdout)[0])
        self.fails(3, "does not name its model", "generate", self.path("ck"), "--prompt", "x")
        self.fails(2, "MODEL is missing", "train", "--resume", self.path("ck"), "--steps", 1)
        steps, _ = self.train(TINY, *TINY_STEP, "--resume", self.path("ck"), "--steps", 1)
        self.assertEqual(len(steps), 1)

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

    def test_inspect_reads_a_tensor_in_pieces(self):
        size = 1 << 28
        header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
        with open(self.path("large"), "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + size)
        process = subprocess.Popen([WEFT, "inspect", self.path("large"), "--digests"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        self.assertLess(usage.ru_maxrss * 1024, size)

    def test_a_pipe_is_no_checkpoint(self):
        os.mkfifo(self.path("pipe"))
        for args in (["inspect", self.path("pipe")], ["generate", self.path("pipe"), "--prompt", "x"], ["train", "--resume", self.path("pipe")],
                     ["train", TINY, *TINY_STEP, "--init", self.path("pipe")]):
            self.fails(3, f"{self.path('pipe')}: expected a regular file, found a device or pipe", *args)


if __name__ == "__main__":
    unittest.main()
