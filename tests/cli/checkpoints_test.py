#!/usr/bin/env python3
"""weft train --checkpoint: which directories a run writes into, and that no other run loses its checkpoints."""
import json
import os
import re
import shutil
import signal
import subprocess
import unittest

from weft import Case, STEP_LINE, TINY, TINY_STEP, WEFT, lines, run, until


class OneRun(Case):
    """One run at a time writes into a directory, and it replaces only its own checkpoints."""

    def start(self, *args):
        process = subprocess.Popen([WEFT, "train", *map(str, args), "--json", "--steps", "1000000"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        return process

    def stop(self, process):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)

    def base(self, name, steps):
        self.train(TINY, *TINY_STEP, "--steps", steps, "--checkpoint", self.path(name))
        return self.path(name)

    def content(self, directory):
        return sorted(os.path.join(at, name) for at, _, names in os.walk(directory) for name in names)

    def refused(self, text, directory, *args):
        before = self.content(directory)
        self.fails(3, text, "train", *args)
        self.assertEqual(self.content(directory), before)

    def test_a_second_run_is_refused_while_another_uses_the_directory(self):
        directory = self.path("ck")
        first = self.start(TINY, *TINY_STEP, "--checkpoint", directory, "--checkpoint-every", 0)
        until(first.stdout, STEP_LINE)
        busy = f"another writer uses '{directory}' (process {first.pid})"
        self.fails(3, busy, "train", TINY, *TINY_STEP, "--steps", 2, "--checkpoint", directory)
        self.stop(first)
        saved = os.listdir(directory)
        self.assertEqual(len(saved), 2, saved)  # the checkpoint and its name

    def test_a_second_run_does_not_continue_what_the_first_still_trains(self):
        directory = self.base("ck", 2)
        first = self.start("--resume", directory, "--in-process", "--checkpoint-every", 0)
        until(first.stdout, STEP_LINE)
        self.fails(3, f"another writer uses '{directory}'", "train", "--resume", directory, "--in-process", "--steps", 1000000)
        self.stop(first)

    def test_a_run_that_was_killed_does_not_keep_the_directory(self):
        directory = self.path("ck")
        first = self.start(TINY, *TINY_STEP, "--checkpoint", directory, "--checkpoint-every", 1)
        until(first.stdout, '"event":"checkpoint"')
        first.kill()
        first.wait()
        with open(os.path.join(directory, "latest"), encoding="utf-8") as latest:
            step = int(latest.read()[len("step-"):])
        self.train("--resume", directory, "--in-process", "--steps", step + 1)

    def test_a_checkpoint_of_another_model_is_not_replaced(self):
        base = self.base("base", 0)
        text = f"'{base}' contains a checkpoint of step 0, which this run does not continue"
        self.refused(text, base, "gpt-nano:blocks=3,width=32,heads=2,context=16", *TINY_STEP, "--steps", 0, "--checkpoint", base)
        self.refused(text, base, base, *TINY_STEP, "--steps", 2, "--checkpoint", base)
        done = run("train", TINY, *TINY_STEP, "--steps", 0, "--checkpoint", base)
        self.assertIn("use another directory, or remove this one", done.stderr)

    def test_a_resumed_run_does_not_remove_the_checkpoints_of_another(self):
        one, two = self.base("one", 2), self.base("two", 3)
        self.refused(f"'{one}' contains a checkpoint of step 2, which this run does not continue", one,
                     "--resume", two, "--checkpoint", one, "--steps", 5, "--in-process")
        self.train("--resume", two, "--checkpoint", self.path("three"), "--steps", 5, "--in-process")

    def test_a_directory_continues_if_that_of_its_step_is_a_link(self):
        for name, resumed in (("one", "one"), ("two", "two/step-00000002")):
            base = self.base(name, 2)
            shutil.move(os.path.join(base, "step-00000002"), self.path(name + "-elsewhere"))
            os.symlink(self.path(name + "-elsewhere"), os.path.join(base, "step-00000002"))
            self.train("--resume", self.path(resumed), "--checkpoint", base, "--steps", 3, "--in-process")

    def test_a_single_checkpoint_is_continued_without_another(self):
        base = self.base("one", 1)
        done = run("train", "--resume", os.path.join(base, "step-00000001"), "--steps", 2, "--in-process")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--resume names a single checkpoint, so that nothing is saved without --checkpoint DIR", done.stderr)
        self.assertEqual(sorted(os.listdir(base)), ["latest", "step-00000001"])

    def test_a_resumed_run_is_planned_for_the_same_cluster(self):
        def memory(*args):
            done = run("train", *args, "--in-process", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            return lines(done.stdout)[0]["memory_by_rank"], done.stderr
        cluster, out = self.path("cluster"), self.path("out")
        with open(cluster, "w", encoding="utf-8") as file:
            json.dump({"weft_cluster": 1, "machines": [{"name": "a", "speed": 8}, {"name": "b"}], "within": {"latency": 0, "bandwidth": 1e10},
                       "between": {"latency": 0, "bandwidth": 1e10}}, file)
        step = [a for a in TINY_STEP if a != "--in-process"]
        planned, _ = memory(TINY, *step, "--cluster", cluster, "--steps", 1, "--checkpoint", out)
        alike, _ = memory(TINY, *step, "--ranks", 2, "--steps", 1)
        self.assertNotEqual(planned, alike)
        self.assertEqual(memory("--resume", out, "--steps", 2)[0], planned)
        os.rename(cluster, cluster + "2")
        resumed, err = memory("--resume", out, "--steps", 3)
        self.assertEqual(resumed, alike)
        self.assertIn(f"'{cluster}', the --cluster of the checkpoint, does not exist here", err)
        self.assertEqual(memory("--resume", out, "--steps", 4, "--cluster", cluster + "2")[0], planned)
        self.assertEqual(memory("--resume", out, "--steps", 5, "--ranks", 2)[0], planned)
        saved = run("plan", TINY, "--ranks", 2, "--micro-batches", 4, "--micro-batch-size", 2, "--seed", 1, "--save", self.path("plan"))
        self.assertEqual(saved.returncode, 0, saved.stderr)
        self.assertEqual(memory("--resume", out, "--plan", self.path("plan"), "--steps", 6)[0], alike)
        other = self.path("other")
        memory(TINY, *step, "--cluster", cluster + "2", "--steps", 1, "--checkpoint", other)
        resumed, err = memory("--resume", other, "--steps", 2, "--ranks", 3)
        self.assertEqual(len(resumed), 3)
        self.assertIn(f"'{cluster}2', the --cluster of the checkpoint, has 2 ranks; the run continues without it", err)

    def test_a_resumed_run_does_not_go_back_before_a_later_checkpoint(self):
        directory = self.path("ck")
        self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", directory, "--checkpoint-every", 1)
        first = os.path.join(directory, "step-00000001")
        self.refused("contains a checkpoint of step 2, and this run starts at step 1", directory,
                     "--resume", first, "--checkpoint", directory, "--steps", 5, "--in-process")
        shutil.rmtree(os.path.join(directory, "step-00000002"))
        self.train("--resume", first, "--checkpoint", directory, "--steps", 3, "--in-process")

    def test_a_directory_whose_latest_is_no_file_is_refused_before_the_first_step(self):
        directory = self.base("ck", 2)
        latest = os.path.join(directory, "latest")
        for make in (lambda: os.mkfifo(latest), lambda: os.symlink("step-00000002", latest), lambda: os.mkdir(latest)):
            os.remove(latest)
            make()
            self.refused(f"'{latest}' is not a regular file", directory, "--resume", directory, "--steps", 5, "--in-process")

    def test_a_damaged_checkpoint_of_another_run_counts_too(self):
        directory = self.base("ck", 2)
        os.remove(os.path.join(directory, "latest"))
        os.truncate(os.path.join(directory, "step-00000002", "manifest.json"), 10)
        self.refused("contains a checkpoint of step 2", directory, TINY, *TINY_STEP, "--steps", 5, "--checkpoint", directory)

    def test_a_directory_that_has_only_almost_the_name_of_a_checkpoint_is_none(self):
        directory = self.path("ck")
        names = ["step-7", "step-000000009", "step-00000009x", "step-", "step-+0000009"]
        for name in names:
            os.makedirs(os.path.join(directory, name))
        self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", directory)
        self.train("--resume", directory, "--in-process", "--steps", 2)
        self.assertEqual(sorted(os.listdir(directory)), sorted([*names, "latest", "step-00000001", "step-00000002"]))

    # Earlier versions stored the default, which was then the whole context.
    def test_a_resumed_run_keeps_the_length_of_its_sequences(self):
        model = "llama:blocks=1,width=8,heads=1,key_heads=1,head_size=8,inner=8,context=1040,vocabulary=256"
        text, directory = self.path("book.txt"), self.path("ck")
        with open(text, "w", encoding="utf-8") as file:
            file.write("It was a day of rain. " * 300)
        args = ["--data", text, "--micro-batches", 1, "--micro-batch-size", 1, "--seed", 1]
        whole = self.train(model, *args, "--seq-len", 1040, "--steps", 3)[1]["digest"]
        self.train(model, *args, "--seq-len", 1040, "--steps", 2, "--checkpoint", directory)
        manifest = os.path.join(directory, "step-00000002", "manifest.json")
        with open(manifest, encoding="utf-8") as file:
            stored = file.read()
        self.assertIn('"seq-len": "1040"', stored)
        stored = stored.replace('"seq-len": "1040"', '"seq-len": "0"')
        for _ in range(2):  # at first with the old checksum
            with open(manifest, "w", encoding="utf-8") as file:
                file.write(stored)
            sums = re.search(r"checksum is (\w+), but the rest has (\w+)", run("inspect", directory).stderr)
            stored = stored.replace(*sums.groups()) if sums else stored
        self.assertEqual(self.train("--resume", directory, "--steps", 3)[1]["digest"], whole)
        self.train(model, *args, "--steps", 1, "--checkpoint", self.path("default"))
        with open(os.path.join(self.path("default"), "step-00000001", "manifest.json"), encoding="utf-8") as file:
            self.assertIn('"seq-len": "1024"', file.read())

    def test_a_refused_run_leaves_no_directory(self):
        self.fails(3, "cannot open", "train", "--resume", self.base("ck", 1), "--checkpoint", self.path("new"), "--profile", self.path("none"))
        file = self.path("none.safetensors")
        self.fails(3, "none.safetensors", "train", TINY, *TINY_STEP, "--init", file, "--checkpoint", self.path("new"))
        done = run("train", TINY, *TINY_STEP, "--trace", self.path("ck", "latest"), "--checkpoint", self.path("new"))
        self.assertIn("names the latest checkpoint", done.stderr)
        self.assertFalse(os.path.exists(self.path("new")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
