#!/usr/bin/env python3
"""Ranks as processes: what happens when one of them goes away."""
import errno
import os
import platform
import resource
import signal
import socket
import subprocess
import time
import unittest

from weft import Case, DRAWN, ENDS, FAILS, STEP, STEP_LINE, TINY, WEFT, change_calls, children, free_port, last_line, run, until


def with_an_old_system_that_kills_no_rank():
    """For the new process: pidfd_open does not exist, and kill ends who calls it."""
    pidfd_open, kill = 434, {"x86_64": 62, "aarch64": 129}[platform.machine()]
    change_calls({pidfd_open: FAILS | errno.ENOSYS, kill: ENDS})


class Processes(Case):
    def start(self, *args, **kwargs):
        process = subprocess.Popen([WEFT, "train", TINY, *STEP, "--steps", "1000000", "--json", *map(str, args)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        until(process.stdout, STEP_LINE)
        return process

    def test_a_killed_rank_is_named_in_one_line(self):
        process = self.start("--ranks", 3, "--checkpoint", self.path("ck"), "--checkpoint-every", 1)
        ranks = children(process.pid)
        self.assertEqual(len(ranks), 2)
        while '"checkpoint"' not in process.stdout.readline():
            pass
        os.kill(ranks[1], signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 4, err)
        self.assertRegex(err, rf"\Aweft: train: rank 2 \(stage 2, pid {ranks[1]} on \S+\) lost: killed by signal 9; last frame .* ago.*; "
                              rf"last checkpoint: {self.path('ck')}/step-\d+\n\Z")
        for pid in ranks:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a rank is left over")

    def test_a_killed_rank_is_named_with_all_its_stages(self):
        process = self.start("--ranks", 2, "--schedule", "interleaved", "--chunks", 2)
        rank, = children(process.pid)
        os.kill(rank, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 4, err)
        self.assertRegex(err, rf"\Aweft: train: rank 1 \(stages 1 and 3, pid {rank} on \S+\) lost: killed by signal 9; last frame ")

    def test_a_stopped_rank_is_named_after_the_peer_timeout(self):
        process = self.start("--ranks", 3, "--peer-timeout", 2)
        ranks = children(process.pid)
        begin = time.monotonic()
        os.kill(ranks[0], signal.SIGSTOP)
        line = process.stderr.readline()
        self.assertLess(time.monotonic() - begin, 4)
        self.assertRegex(line, rf"\Aweft: train: rank 1 \(stage 1, pid {ranks[0]} on \S+\) lost: silent for 2 s; last frame 2 s ago")
        self.assertEqual(process.wait(timeout=60), 4)
        for pid in ranks:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a rank is left over")

    def test_strangers_cannot_take_the_descriptors_that_saving_needs(self):
        port = free_port()
        process = self.start("--ranks", 2, "--listen", f"tcp://127.0.0.1:{port}", "--checkpoint", self.path("ck"), "--checkpoint-every", 1)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (128, 128))
        strangers = [socket.socket() for _ in range(300)]
        for stranger in strangers:
            self.addCleanup(stranger.close)
            stranger.setblocking(False)
            stranger.connect_ex(("127.0.0.1", port))
        saved = 0
        while saved < 30:
            line = process.stdout.readline()
            self.assertTrue(line, "the run has ended")
            saved += '"checkpoint"' in line
        for stranger in strangers:   # all ranks are there: the address does not answer
            self.assertRaises(OSError, stranger.getpeername)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(last_line(out)["event"], "done")

    @unittest.skipUnless(os.environ.get("WEFT_SANITIZE", "none") == "none", "sanitizers want descriptors of their own")
    def test_without_descriptors_it_ends_with_the_status_for_resources(self):
        for most in range(6, 17):
            done = run("train", TINY, *STEP, "--steps", 1, "--ranks", 2, "-q",
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
            self.assertEqual(done.returncode, 5, done.stderr)
            self.assertIn("too many open files", done.stderr)

    @unittest.skipUnless(os.environ.get("WEFT_SANITIZE", "none") == "none", "sanitizers want descriptors of their own")
    def test_many_ranks_without_descriptors_end_with_the_status_for_resources(self):
        def limit(soft, hard):
            return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        args = ["gpt-nano:blocks=4,width=16,heads=2,context=16,tied=0", *DRAWN, "--ranks", 6, "--steps", 1, "-q"]
        done = run("train", *args, preexec_fn=limit(36, 36))
        self.assertEqual(done.returncode, 5, done.stderr)
        self.assertIn("ranks cannot be connected: too many open files", done.stderr)
        # The hard limit counts.
        done = run("train", *args, preexec_fn=limit(36, 128))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_ranks_end_by_themselves_on_old_systems(self):
        done = run("train", TINY, *STEP, "--steps", 1, "--ranks", 3, "-q", preexec_fn=with_an_old_system_that_kills_no_rank)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_second_signal_leaves_no_socket_of_its_process(self):
        sockets = self.path("sockets")
        os.mkdir(sockets)
        # The second signal ends the process without joining its threads, which the thread sanitizer reports as leaks.
        options = os.environ.get("TSAN_OPTIONS", "") + ":report_thread_leaks=0"
        process = self.start("--ranks", 2, "--peer-timeout", 1000,
                             env={**os.environ, "XDG_RUNTIME_DIR": sockets, "TSAN_OPTIONS": options})
        rank, = children(process.pid)
        self.addCleanup(os.kill, rank, signal.SIGKILL)
        os.kill(rank, signal.SIGSTOP)   # it does not end the step, and removes nothing
        before = len(os.listdir(sockets))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        self.assertIn(process.wait(timeout=60), (130, 143))
        self.assertEqual(len(os.listdir(sockets)), before - 1)

    def test_interrupt_ends_every_rank_after_the_step(self):
        process = self.start("--ranks", 2, "--checkpoint", self.path("ck"))
        ranks = children(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        done = last_line(out)
        self.assertEqual(done["event"], "done")
        self.assertTrue(os.path.isdir(self.path("ck", f"step-{done['steps']:08d}")))
        for pid in ranks:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a rank is left over")


if __name__ == "__main__":
    unittest.main()
