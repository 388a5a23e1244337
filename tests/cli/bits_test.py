#!/usr/bin/env python3
"""Ranks as processes compute the same bits as one process."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest

from weft import Case, DRAWN, STEP, TINY, WEFT, children, lines, run, until


class Bits(Case):
    def resumed(self, checkpoint, *args):
        """Resumes from a copy, because a resumed run saves into its directory."""
        copy = tempfile.mkdtemp(dir=self.directory)
        shutil.copytree(checkpoint, copy, dirs_exist_ok=True)
        return self.train("--resume", copy, *args)

    def expect_near(self, steps, others, count):
        self.assertEqual((len(steps), len(others)), (count, count))
        for step, other in zip(steps, others):
            self.assertAlmostEqual(other["loss"], step["loss"], delta=1e-4 * step["loss"])

    def expect_planned_bytes(self, done, ranks):
        peaks = done["peak_bytes_by_rank"]
        self.assertEqual((len(peaks["planned"]), len(peaks["measured"])), (ranks, ranks))
        for planned, measured in zip(peaks["planned"], peaks["measured"]):
            self.assertAlmostEqual(measured, planned, delta=2 * 4096)

    def test_processes_compute_the_same_bits_and_resume(self):
        alone = self.train(TINY, *STEP, "--steps", 6)[1]
        half = self.train(TINY, *STEP, "--steps", 3, "--ranks", 3, "--checkpoint", self.path("ck"))[1]
        self.assertEqual(half["steps"], 3)
        whole = self.train("--resume", self.path("ck"), "--steps", 6, "--ranks", 2)[1]
        self.assertEqual((whole["digest"], whole["optimizer_digest"]), (alone["digest"], alone["optimizer_digest"]))
        generate = ["generate", self.path("ck"), "--prompt", "to and", "--tokens", 8, "--json"]
        self.assertEqual(run(*generate, "--ranks", 3).stdout, run(*generate).stdout)

    def test_gradient_groups_have_one_digest_and_are_saved(self):
        args = [TINY, *DRAWN, "--micro-batches", 5, "--micro-batch-size", 2, "--seed", 1]
        grouped = [*args, "--gradient-groups", 3]
        serial, alone = self.train(*args, "--steps", 4)[1], self.train(*grouped, "--steps", 4)[1]
        self.assertNotEqual(alone["digest"], serial["digest"])
        self.train(*grouped, "--steps", 2, "--ranks", 3, "--checkpoint", self.path("ck"))
        whole = self.train("--resume", self.path("ck"), "--steps", 4, "--ranks", 2, "--schedule", "gpipe")[1]
        self.assertEqual((whole["digest"], whole["optimizer_digest"]), (alone["digest"], alone["optimizer_digest"]))
        self.expect_planned_bytes(whole, 2)
        self.fails(3, "gradient_groups is 6, expected 1 to the number of micro-batches, 5", "train", *args,
                   "--gradient-groups", 6)

    def test_replicas_have_the_digest_of_gradient_groups_and_resume_elsewhere(self):
        args = [TINY, *DRAWN, "--micro-batches", 6, "--micro-batch-size", 2, "--seed", 1, "--gradient-groups", 4]
        alone = self.train(*args, "--steps", 4)[1]
        self.assertEqual(self.train(*args, "--steps", 4, "--mesh", "data=4", "--in-process")[1]["digest"], alone["digest"])
        half = self.train(*args, "--steps", 2, "--mesh", "data=2,stage=2", "--checkpoint", self.path("ck"))[1]
        self.expect_planned_bytes(half, 4)
        for n, mesh in enumerate([["--ranks", 3], ["--mesh", "data=4"], ["--mesh", "stage=2,data=2", "--schedule", "zb-h1"], []]):
            shutil.copytree(self.path("ck"), self.path(str(n)))
            whole = self.train("--resume", self.path(str(n)), "--steps", 4, *mesh)[1]
            self.assertEqual((whole["digest"], whole["optimizer_digest"]), (alone["digest"], alone["optimizer_digest"]), mesh)
        for n, shard in enumerate(["none", "optimizer", "parameters"]):
            shutil.copytree(self.path("ck"), self.path("shard" + str(n)))
            whole = self.train("--resume", self.path("shard" + str(n)), "--steps", 4, "--mesh", "data=4", "--shard", shard)[1]
            self.assertEqual((whole["digest"], whole["optimizer_digest"]), (alone["digest"], alone["optimizer_digest"]), shard)
            for planned, measured in zip(*whole["peak_bytes_by_rank"].values()):
                self.assertAlmostEqual(measured, planned, delta=2 * 4096)
        self.fails(3, "data is 8", "train", *args, "--mesh", "data=8")
        self.fails(2, "'row' is no axis", "train", *args, "--mesh", "row=2")
        self.fails(2, "--ranks cannot be combined with --mesh", "train", *args, "--mesh", "data=2", "--ranks", 2)

    def test_pieces_have_one_digest_and_their_checkpoints_load_with_any_number(self):
        for model in (TINY, "mlp:layers=3,width=7"):
            args = [model, *DRAWN, "--micro-batches", 3, "--micro-batch-size", 2, "--seed", 1, "--steps", 4]
            (steps, whole), (steps_in_pieces, alone) = self.train(*args), self.train(*args, "--tensor", 2)
            self.assertNotEqual(alone["digest"], whole["digest"])
            self.expect_near(steps, steps_in_pieces, 4)
            for extra in (["--ranks", 2], ["--ranks", 2, "--in-process", "--schedule", "gpipe"], ["--threads", 2]):
                done = self.train(*args, "--tensor", 2, *extra)[1]
                self.assertEqual((done["digest"], done["optimizer_digest"]), (alone["digest"], alone["optimizer_digest"]))
        args = [TINY, *STEP]
        alone = self.train(*args, "--steps", 4, "--tensor", 2)[1]
        self.train(*args, "--steps", 2, "--ranks", 2, "--tensor", 2, "--checkpoint", self.path("pieces"))
        done = self.resumed(self.path("pieces"), "--steps", 4)[1]
        self.assertEqual((done["digest"], done["optimizer_digest"]), (alone["digest"], alone["optimizer_digest"]))
        steps_in_pieces = self.resumed(self.path("pieces"), "--steps", 6)[0]
        self.expect_near(self.resumed(self.path("pieces"), "--steps", 6, "--tensor", 1)[0], steps_in_pieces, 4)
        self.train(*args, "--steps", 2, "--checkpoint", self.path("whole"))
        self.expect_near(self.resumed(self.path("whole"), "--steps", 6)[0],
                         self.resumed(self.path("whole"), "--steps", 6, "--tensor", 2)[0], 4)
        self.fails(3, "heads, expected a multiple of tensor, 3", "train", *args, "--tensor", 3)

    def test_any_mesh_has_the_digest_of_one_rank_with_the_same_groups_and_pieces(self):
        args = [TINY, *DRAWN, "--micro-batches", 5, "--micro-batch-size", 2, "--seed", 1, "--gradient-groups", 2, "--dropout", 0.1, "--steps", 4]
        alone = self.train(*args, "--tensor", 2)[1]
        meshes = [(2, "tensor=2"), (4, "stage=2,tensor=2", "--schedule", "zb-h1"), (4, "data=2,tensor=2", "--schedule", "gpipe", "--recompute", "stage"),
                  (8, "data=2,stage=2,tensor=2"), (8, "data=2,stage=2,tensor=2", "--in-process", "--threads", 2)]
        for ranks, *mesh in meshes:
            done = self.train(*args, "--mesh", *mesh)[1]
            self.assertEqual((done["digest"], done["optimizer_digest"]), (alone["digest"], alone["optimizer_digest"]), mesh)
            self.expect_planned_bytes(done, ranks)
        # A checkpoint of a mesh goes on with the bits on any other of the same pieces, and within rounding with others.
        self.train(*args[:-1], 2, "--mesh", "data=2,stage=2", "--checkpoint", self.path("ck"))
        whole, done = self.resumed(self.path("ck"), "--steps", 4, "--ranks", 1)
        self.assertEqual(done["digest"], self.train(*args)[1]["digest"])
        for mesh in (["--ranks", 3], ["--mesh", "data=2,stage=1", "--shard", "parameters"]):
            self.assertEqual(self.resumed(self.path("ck"), "--steps", 4, *mesh)[1]["digest"], done["digest"], mesh)
        # A saved plan replaces the mesh of the checkpoint.
        self.assertEqual(run("plan", TINY, *args[1 + len(DRAWN):-2], "--ranks", 3, "--save", self.path("three")).returncode, 0)
        self.assertEqual(self.resumed(self.path("ck"), "--steps", 4, "--plan", self.path("three"))[1]["digest"], done["digest"])
        self.expect_near(whole, self.resumed(self.path("ck"), "--steps", 4, "--mesh", "data=4", "--gradient-groups", 4)[0], 2)
        self.expect_near(whole, self.resumed(self.path("ck"), "--steps", 4, "--mesh", "tensor=2", "--tensor", 2)[0], 2)
        plan = run("plan", TINY, *args[1 + len(DRAWN):-2], "--mesh", "stage=2,tensor=2", "--recompute", "stage", "--write-schedule", self.path("rows"))
        self.assertEqual(plan.returncode, 0, plan.stderr)
        done = self.train(*args, "--mesh", "stage=2,tensor=2", "--schedule-file", self.path("rows"))[1]
        self.assertEqual(done["digest"], alone["digest"])
        self.fails(3, "axis 'tensor' has 4 ranks, expected at most 2", "train", *args, "--mesh", "tensor=4", "--tensor", 2)
        self.fails(3, "heads, expected a multiple of tensor, 3", "train", *args, "--mesh", "tensor=3")

    def test_processes_of_one_machine_share_memory_for_large_tensors(self):
        model = ["mlp:layers=4,width=256", "--micro-batches", "2", "--micro-batch-size", "128", "--seed", "1", "--json"]
        process = subprocess.Popen([WEFT, "train", *model, "--steps", "1000000", "--ranks", "2"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        until(process.stdout, '"event":"run"')
        steps = [json.loads(process.stdout.readline()) for _ in range(4)]
        for pid in [process.pid, *children(process.pid)]:
            with open(f"/proc/{pid}/maps", encoding="utf-8") as file:
                self.assertIn("memfd:weft", file.read())
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        alone = self.train(*model[:-1], "--steps", 4, "--in-process")[0]
        self.assertEqual([step["loss"] for step in steps], [step["loss"] for step in alone])

    def test_asynchronous_processes_compute_the_bits_of_one_process(self):
        model = "gpt-nano:blocks=2,width=32,heads=2,context=16,tied=0"
        two_bw = ["--schedule", "pipedream-2bw", "--micro-batches", 3]
        for extra in (["--schedule", "pipedream", "--ranks", 3], ["--schedule", "pipedream", "--ranks", 3, "--vertical-sync"],
                      [*two_bw, "--ranks", 3], [*two_bw, "--stage-replicas", "2,2"], ["--schedule", "pipedream", "--stage-replicas", "2,1"]):
            args = [model, *DRAWN, *extra, "--micro-batch-size", 2, "--seed", 1, "--segment", 4]
            steps, done = self.train(*args, "--steps", 10)
            self.assertEqual([step["step"] for step in steps], list(range(1, 11)))
            inside, same = self.train(*args, "--steps", 10, "--in-process")
            for key in ["loss", "grad_norm", "micro_batch_losses"]:
                self.assertEqual([step[key] for step in steps], [step[key] for step in inside], extra)
            self.assertEqual(done["digest"], same["digest"])
            # At the end of a segment a run may stop and go on.
            half = self.train(*args, "--steps", 8, "--checkpoint", self.path("async"))[1]
            self.assertEqual(half["steps"], 8)
            whole = self.train("--resume", self.path("async"), "--steps", 10)[1]
            self.assertEqual((whole["digest"], whole["optimizer_digest"]), (done["digest"], done["optimizer_digest"]))
            shutil.rmtree(self.path("async"))
        self.fails(2, "--steps leaves 9 to do, expected a multiple of the 2 replicas of stage 0", "train", *args, "--steps", 9,
                   "--log", self.path("log"))
        self.assertFalse(os.path.exists(self.path("log")))

    def test_the_ranks_of_stages_are_kept_and_shown(self):
        args = ["mlp", *DRAWN, "--clip", 0, "--schedule", "pipedream-2bw", "--micro-batches", 2, "--stage-replicas", "2,2", "--segment", 4]
        begun = lines(run("train", *args, "--steps", 4, "--json", "--checkpoint", self.path("ck")).stdout)[0]
        self.assertEqual((begun["mesh"]["stage"], begun["stage_replicas"]), (2, [2, 2]))
        self.assertIn("4 ranks (stage=2 of 2,2 ranks), pipedream-2bw", run("train", *args, "--steps", 4).stderr)
        whole = self.train(*args, "--steps", 8)[1]["digest"]
        for more in ([], ["--ranks", 4]):  # as many as the list has
            shutil.copytree(self.path("ck"), self.path("copy"))
            self.assertEqual(self.train("--resume", self.path("copy"), *more, "--steps", 8)[1]["digest"], whole)
            shutil.rmtree(self.path("copy"))
        begun = lines(run("train", "--resume", self.path("ck"), "--ranks", 2, "--steps", 8, "--json").stdout)[0]
        self.assertEqual((begun["mesh"]["stage"], begun.get("stage_replicas")), (2, None))
        self.fails(2, "--write-schedule: the ranks of a stage take turns", "plan", "mlp", *args[1 + len(DRAWN):], "--write-schedule",
                   self.path("rows"))


if __name__ == "__main__":
    unittest.main()
