#!/usr/bin/env python3
"""What weft train says before the first step, during a long step, and when it is asked to stop."""
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import unittest

from weft import Case, DRAWN, TINY, TINY_STEP, WEFT, lines, run, until

# A step that takes seconds on any machine, with the memory of a few micro-batches.
LONG_STEP = ["train", TINY, *DRAWN, "--micro-batches", "20000", "--micro-batch-size", "2", "--steps", "3", "--in-process"]


class Terminal:
    """A process whose standard error is a terminal."""

    def __init__(self, case, *args, columns=0):
        self.main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.process = subprocess.Popen([WEFT, *map(str, args)], stdout=subprocess.DEVNULL, stderr=side, env={**os.environ, "TERM": "xterm"})
        os.close(side)
        case.addCleanup(os.close, self.main)
        case.addCleanup(lambda: self.process.poll() is None and self.process.kill())

    def until(self, pattern):
        seen = b""
        while not re.search(pattern, seen):
            seen += os.read(self.main, 4096)   # fails if the command has ended
        return seen


class Progress(Case):
    def start(self, *args):
        process = subprocess.Popen([WEFT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def test_the_first_line_says_what_runs(self):
        done = run("train", TINY, *TINY_STEP, "--steps", 1, "--mesh", "data=2,stage=2", "--schedule", "gpipe")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr.splitlines()[0],
                         r"\Agpt-nano: 0\.03 M parameters, 4 ranks \(data=2,stage=2\), gpipe, 4 micro-batches of 2 x 16 tokens; "
                         r"predicted: \d+\.\d [KM]iB on the largest rank, about \S+ \w+ per step\Z")
        done = run("train", "mlp:width=16", "--steps", 1, "--micro-batches", 1, "--in-process")
        self.assertIn(" 1 micro-batch of 4 samples; ", done.stderr)
        self.assertIn(" 1 micro-batch of 4\n", run("plan", "mlp:width=16", "--micro-batches", 1).stdout)
        done = run("train", "mlp:width=16", "--steps", 1, "--in-process")
        self.assertRegex(done.stderr.splitlines()[0], r"\Amlp: 0\.00 M parameters, 1 rank, 1f1b, 8 micro-batches of 4 samples; predicted: ")

    def test_json_says_what_runs_with_the_bytes_of_each_kind(self):
        done = run("train", TINY, *TINY_STEP, "--steps", 2, "--ranks", 2, "--json")
        first, *_, last = lines(done.stdout)
        self.assertEqual((first["event"], first["ranks"], first["schedule"], first["from_step"], first["to_step"]), ("run", 2, "1f1b", 0, 2))
        self.assertEqual(first["mesh"], {"data": 1, "stage": 2, "tensor": 1})
        self.assertEqual([sum(rank.values()) for rank in first["memory_by_rank"]], last["peak_bytes_by_rank"]["planned"])
        self.assertEqual(sorted((link["from"], link["to"]) for link in first["links"]), [(0, 1), (1, 0)])
        self.assertGreater(first["predicted_seconds"], 0)

    def test_a_step_has_the_learning_rate_of_the_schedule(self):
        steps, _ = self.train(TINY, *TINY_STEP, "--steps", 4, "--warmup", 2, "--lr", 0.5)
        self.assertEqual([step["learning_rate"] for step in steps], [0.25, 0.5, 0.5, 0.5])
        self.assertTrue(all(step["seconds"] > 0 for step in steps))

    def test_text_is_not_replaced_by_drawn_tokens_without_being_asked(self):
        self.fails(2, "--data is missing: gpt-nano:", "train", TINY, "--steps", 1, "--in-process")
        self.fails(2, "--data is missing", "train", TINY, "--steps", 0, "--eval", 0.1, "--in-process")
        for args in ([TINY, "--steps", 0], [TINY, *DRAWN, "--steps", 1], ["mlp:width=16", "--steps", 1]):
            self.assertEqual(run("train", *args, "--in-process").returncode, 0, args)

    def test_a_run_that_has_all_its_steps_says_so(self):
        done = self.train(TINY, *TINY_STEP, "--steps", 2, "--checkpoint", self.path("ck"))[1]
        again = run("train", "--resume", self.path("ck"), "--in-process")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("weft: train: nothing is left to do: the checkpoint has 2 steps, and --steps is 2\na larger --steps or --epochs continues\n", again.stderr)
        self.assertIn(done["digest"], again.stdout)
        more = run("train", "--resume", self.path("ck"), "--in-process", "--steps", 3)
        self.assertNotIn("nothing is left", more.stderr)

    def test_a_long_step_shows_its_progress_and_the_first_interrupt_is_answered(self):
        terminal = Terminal(self, *LONG_STEP)
        terminal.until(rb"step 1/3  [1-9]\d*/20000 micro-batches  \d+ s")
        terminal.process.send_signal(signal.SIGINT)
        terminal.until(rb"weft: train: finishing step 1(, about [^;]+)?; \^C again stops now")
        terminal.process.send_signal(signal.SIGINT)
        self.assertEqual(terminal.process.wait(timeout=60), 130)

    def test_a_line_of_progress_is_within_a_row_of_the_terminal(self):
        terminal = Terminal(self, *LONG_STEP, columns=23)
        seen = terminal.until(rb"step 1/3  [1-9]\d*/20000.*\x1b\[K")
        shown = re.findall(rb"\r([^\r\n\x1b]+)\x1b\[K", seen)
        terminal.process.kill()
        terminal.process.wait(timeout=60)
        self.assertEqual({len(line) for line in shown}, {22}, shown)

    def test_an_interrupt_before_the_first_step_is_answered(self):
        process = self.start("train", "mlp:layers=8,width=2048", "--steps", 1, "--in-process")
        until(process.stderr, "predicted: ")
        process.send_signal(signal.SIGINT)
        until(process.stderr, "weft: train: stopping before the first step; ^C again stops now")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=60), 130)

    def test_minutes_and_most_of_the_memory_are_announced_with_the_option_that_changes_them(self):
        process = self.start("train", "gpt2", *DRAWN, "--micro-batch-size", 512, "--in-process")
        said = until(process.stderr, "of memory;")
        process.kill()
        self.assertRegex(said, r"weft: train: a step of 8 micro-batches of 512 x 1024 tokens is predicted to take \d+ h \d+ min; a smaller --micro-batch-size, ")
        self.assertRegex(said, r"weft: train: this rank needs \S+ GiB of its \S+ GiB of memory; a smaller --micro-batch-size or --seq-len, or --recompute stage, needs less")
        small = run("train", TINY, *TINY_STEP, "--steps", 1)
        self.assertNotIn("weft: train", small.stderr)


if __name__ == "__main__":
    unittest.main()
