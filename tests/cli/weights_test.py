#!/usr/bin/env python3
"""Weights that ranks of several processes read themselves, or are sent."""
import subprocess
import unittest

from weft import Case, DRAWN, TINY, WEFT, last_line, run, until

STEP = [*DRAWN, "--micro-batches", 4, "--micro-batch-size", 2, "--steps", 1, "--seed", 3]


class Weights(Case):
    def setUp(self):
        super().setUp()
        self.train(TINY, *STEP, "--seed", 1, "--checkpoint", self.path("ck"), "--in-process")
        self.assertEqual(run("export", self.path("ck"), self.path("weights")).returncode, 0)
        self.digest = self.train(TINY, *STEP, "--init", self.path("weights"), "--in-process")[1]["digest"]

    def test_some_keep_their_initial_values(self):
        train = [TINY + ",vocabulary=300", *STEP]
        wider = [*train, "--init", self.path("weights")]
        self.fails(3, "'wte.weight' is f32[256,32], expected f32[300,32]", "train", *wider)
        digests = {self.train(*wider, "--init-except", names, *how)[1]["digest"]
                   for names in ("wte.*", "wte.weight") for how in (["--in-process"], ["--ranks", 2])}
        self.assertEqual(len(digests), 1)
        self.fails(3, "pattern 'head' matches no parameter", "train", *wider, "--init-except", "head", "--in-process")
        self.fails(2, "--init-except requires weights to start from", "train", *train, "--init-except", "wte.*")
        self.fails(2, "--resume excludes --init-except", "train", "--resume", self.path("ck"), "--init-except", "wte.*")

    def test_started_ranks_read_them(self):
        done = run("train", TINY, *STEP, "--init", self.path("weights"), "--ranks", 4, "--json", "--verbose")
        self.assertEqual(last_line(done.stdout)["digest"], self.digest, done.stderr)
        for rank in (1, 2, 3):
            self.assertIn(f"rank {rank} reads its weights itself", done.stderr)

    def test_workers_read_them_only_from_their_directory(self):
        args = ["train", TINY, *STEP, "--init", self.path("weights"), "--ranks", 3, "--external", 2, "--listen", "tcp://127.0.0.1:0", "--json", "--verbose"]
        with subprocess.Popen([WEFT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as zero:
            endpoint = until(zero.stderr, "waiting for 2 ranks").split()[-1].strip("'")
            workers = [[WEFT, "worker", "--quiet", "--join", endpoint, "--rank", str(rank), *more] for rank, more in ((1, ["--weights", self.directory]), (2, []))]
            with subprocess.Popen(workers[0]) as first, subprocess.Popen(workers[1]) as second:
                out, err = zero.communicate(timeout=60)
        self.assertEqual([zero.returncode, first.returncode, second.returncode], [0, 0, 0], err)
        self.assertIn("rank 1 reads its weights itself", err)
        self.assertIn("rank 2 is sent its weights", err)
        self.assertEqual(last_line(out)["digest"], self.digest)


if __name__ == "__main__":
    unittest.main()
