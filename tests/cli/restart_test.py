#!/usr/bin/env python3
"""Runs that begin again after a rank is lost, and workers that join again. The results are those of an undisturbed run."""
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from weft import Case, DRAWN, STEP_LINE, TINY, WEFT, children, free_port, last_line, lines, run, until

# Rank 0 writes a line for each step to a pipe, and waits when it is full. So it has most steps to do when the first checkpoint is read.
STEPS = 400
TRAIN = ["train", TINY, *DRAWN, "--micro-batches", "4", "--micro-batch-size", "2", "--seed", "1", "--steps", str(STEPS), "--json"]
SAVED = '"event":"checkpoint"'


class Restarts(Case):
    @classmethod
    def setUpClass(cls):
        cls.undisturbed = last_line(run(*TRAIN, "--in-process").stdout)["digest"]

    def start(self, *args, **kwargs):
        process = subprocess.Popen([WEFT, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def train(self, *args, **kwargs):
        return self.start(*TRAIN, "--ranks", 3, "--checkpoint", self.path("ck"), "--checkpoint-every", 50, *args, **kwargs)

    def worker(self, *args):
        return self.start("worker", *args)

    def ends_undisturbed(self, process):
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(last_line(out)["digest"], self.undisturbed)
        return err

    def ends(self, process, status=0):
        err = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, status, err)
        return err

    def test_ranks_of_this_machine_start_again(self):
        process = self.train("--restarts", 2, "--log", self.path("log"))
        for _ in range(2):
            until(process.stdout, SAVED)
            os.kill(children(process.pid)[0], signal.SIGKILL)
        err = self.ends_undisturbed(process)
        self.assertRegex(err, r"rank 1 .*lost: killed by signal 9.*last checkpoint: .*step-\d+; restart 1 of 2\n")
        self.assertIn("; restart 2 of 2\n", err)
        with open(self.path("log"), encoding="utf-8") as log:
            events = [line["event"] for line in lines(log.read())]
        self.assertEqual((events.count("run"), events.count("restart"), events[-1]), (3, 2, "done"))

    def test_weights_and_adapters_of_the_start_are_not_loaded_again(self):
        llama = str(pathlib.Path(__file__).resolve().parents[1] / "data" / "llama")
        lora = [*DRAWN, "--micro-batches", "4", "--micro-batch-size", "2", "--seed", "1", "--lr", "0.1", "--train", "lora:rank=2,targets=q_proj"]
        self.assertEqual(run("train", llama, *lora, "--steps", 2, "--in-process", "--checkpoint", self.path("first")).returncode, 0)
        self.assertEqual(run("export", self.path("first"), self.path("adapter") + "/").returncode, 0)
        args = ["train", llama, *lora[:-1], "lora", "--adapter", self.path("adapter"), "--steps", STEPS, "--json"]
        undisturbed = last_line(run(*args, "--in-process").stdout)["digest"]
        process = self.start(*args, "--ranks", 2, "--checkpoint", self.path("ck"), "--checkpoint-every", 50, "--restarts", 1)
        until(process.stdout, SAVED)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        out, err = process.communicate(timeout=120)
        self.assertIn("; restart 1 of 1\n", err)
        self.assertEqual((process.returncode, last_line(out)["digest"]), (0, undisturbed), err)

    def test_a_run_without_a_checkpoint_begins_again(self):
        process = self.start(*TRAIN, "--ranks", 2, "--restarts", 1, "--log", self.path("log"))
        until(process.stdout, STEP_LINE)
        os.kill(children(process.pid)[0], signal.SIGKILL)
        self.assertRegex(self.ends_undisturbed(process), "nothing was saved; restart 1 of 1\n")
        with open(self.path("log"), encoding="utf-8") as log:
            restart = [line for line in lines(log.read()) if line["event"] == "restart"]
        self.assertEqual([line["restart"] for line in restart], [1])
        self.assertIn("killed by signal 9", restart[0]["reason"])

    def test_a_run_that_no_rank_has_joined_does_not_start_again(self):
        done = run(*TRAIN, "--ranks", 2, "--external", 1, "--listen", f"ipc://{self.path('socket')}", "--join-timeout", 1, "--restarts", 9)
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stderr, "rank 1 has not joined")
        self.assertNotIn("restart 1", done.stderr)

    def test_the_last_loss_ends_the_run(self):
        process = self.train("--restarts", 1)
        for _ in range(2):
            until(process.stdout, SAVED)
            os.kill(children(process.pid)[-1], signal.SIGKILL)
        self.assertRegex(self.ends(process, 4), r"restart 1 of 1\n.*rank 2 .*lost: killed by signal 9.*last checkpoint: .*step-\d+\n$")

    def test_a_signal_ends_a_run_that_could_start_again(self):
        process = self.train("--restarts", 9)
        until(process.stdout, SAVED)
        process.send_signal(signal.SIGTERM)
        self.assertNotIn("restart", self.ends(process, 128 + signal.SIGTERM))

    def test_workers_join_the_next_start(self):
        for name, rank_0, worker in (("file", ["--listen", "tcp://127.0.0.1:0", "--join-file", self.path("join")],
                                      ["--join-file", self.path("join")]), ("key", *self.with_a_key())):
            with self.subTest(name):
                process = self.train("--external", 2, "--restarts", 1, *rank_0)
                survivor, victim = (self.worker(*worker, "--repeat", "lost") for _ in range(2))
                until(process.stdout, SAVED)
                victim.kill()
                replacement = self.worker(*worker)
                err = self.ends_undisturbed(process)
                self.assertIn("; restart 1 of 1\n", err)
                self.assertRegex(err, f"waiting for 2 ranks: weft worker .*{worker[0]}.* --repeat lost\n")
                self.assertRegex(self.ends(survivor), r"rank \d .*lost.*; joining again\n[^$]*the run has ended\n$")
                self.ends(replacement)
                self.ends(victim, -signal.SIGKILL)
                shutil.rmtree(self.path("ck"))

    def with_a_key(self):
        key, address = self.path("key"), f"tcp://127.0.0.1:{free_port()}"
        self.assertEqual(run("key", key).returncode, 0)
        return ["--listen", address, "--key", key], ["--join", address, "--key", key]

    def test_ranks_of_a_launcher_join_the_next_start(self):
        places = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WEFT_KEY": self.secret()}
        start = lambda rank: self.train("--launcher", "env", "--restarts", 1, env={**os.environ, **places, "RANK": str(rank)})
        ranks = [start(rank) for rank in range(3)]
        until(ranks[0].stdout, SAVED)
        ranks[2].kill()
        replacement = start(2)   # as Kubernetes does
        self.assertIn("; restart 1 of 1\n", self.ends_undisturbed(ranks[0]))
        self.assertEqual((self.ends(ranks[1]), self.ends(replacement)), ("", ""))
        self.ends(ranks[2], -signal.SIGKILL)

    def secret(self):
        self.assertEqual(run("key", self.path("secret")).returncode, 0)
        with open(self.path("secret"), encoding="ascii") as file:
            return file.read().strip()

    def test_a_worker_that_always_repeats_serves_runs_until_a_signal(self):
        rank_0, worker = self.with_a_key()
        server = self.worker(*worker, "--repeat", "always")
        for _ in range(2):
            done = run(*TRAIN, "--ranks", 2, "--external", 1, *rank_0)
            self.assertEqual((done.returncode, last_line(done.stdout)["digest"]), (0, self.undisturbed), done.stderr)
        server.send_signal(signal.SIGTERM)
        err = self.ends(server, 128 + signal.SIGTERM)
        self.assertEqual(err.count("the run has ended\n"), 2)

    def test_a_worker_for_which_no_run_begins_ends_in_time(self):
        address = f"tcp://127.0.0.1:{free_port()}"
        self.assertEqual(run("key", self.path("key")).returncode, 0)
        done = run("worker", "--join", address, "--key", self.path("key"), "--repeat", "lost", "--join-timeout", 2)
        self.assertEqual(done.returncode, 4)
        self.assertEqual(done.stderr.count("joining tcp"), 2, done.stderr)   # what it does, and that it failed

    def test_a_worker_that_is_refused_does_not_repeat(self):
        rank_0, _ = self.with_a_key()
        process = self.train("--external", 2, "--join-timeout", 600, *rank_0)
        until(process.stderr, "waiting for 2 ranks")
        done = run("worker", "--join", rank_0[1], "--rank", 7, "--key", rank_0[3], "--repeat", "lost")
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stderr, "refused by rank 0: it asks to be rank 7, the run has the ranks 0 to 2\n$")
        process.send_signal(signal.SIGTERM)
        self.ends(process, 128 + signal.SIGTERM)

    def test_what_cannot_start_again_is_refused(self):
        external = ["--ranks", 2, "--external", 1, "--listen", "tcp://127.0.0.1:0", "--restarts", 1]
        done = run(*TRAIN, *external)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--restarts with --external requires --join-file or --key", done.stderr)
        done = run(*TRAIN, *external, "--insecure")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--listen is 'tcp://127.0.0.1:0', expected a port", done.stderr)
        self.fails(2, "the key in --join is that of one run", "worker", "--join", "tcp://127.0.0.1:1?key=" + 128 * "a", "--repeat", "always")
        os.mkfifo(self.path("pipe"))
        self.fails(2, "expected a regular file", "worker", "--join", "tcp://127.0.0.1:1", "--key", self.path("pipe"), "--repeat", "lost")
        self.fails(2, "--join-file - cannot be combined with --repeat", "worker", "--join-file", "-", "--repeat", "lost")
        self.fails(2, "--parent cannot be combined with --repeat", "worker", "--join-file", "x", "--parent", 1, "--repeat", "always")
        self.fails(2, "--repeat", "worker", "--join-file", "x", "--repeat", "sometimes")


if __name__ == "__main__":
    unittest.main()
