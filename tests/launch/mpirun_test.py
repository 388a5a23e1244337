#!/usr/bin/env python3
"""The distribution's mpirun starts the ranks. Exits with 77 if there is none."""
import os
import shutil
import subprocess
import sys
import unittest

from ranks import Launch, PLAIN, SKIPPED, TRAIN, WEFT, digest_of, lines

MPIRUN = shutil.which("mpirun")
# As root, in a container, with more ranks than cores.
OPTIONS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


class Mpirun(Launch):
    def mpirun(self, *args):
        done = subprocess.run([MPIRUN, *OPTIONS, *map(str, args)], env=PLAIN, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return digest_of(done.stdout)

    def test_ranks_meet_by_a_join_file(self):
        found = self.mpirun("-n", 3, WEFT, *TRAIN, "--launcher", "mpi", "--join-file", self.path("join"))
        self.assertEqual(found, self.digest("--ranks", 3))

    def test_ranks_meet_at_a_socket_file(self):
        found = self.mpirun("-n", 3, WEFT, *TRAIN, "--launcher", "auto", "--listen", f"ipc://{self.path('socket')}")
        self.assertEqual(found, self.digest("--ranks", 3))

    def test_two_commands(self):
        meet = ["--launcher", "mpi", "--join-file", self.path("join")]
        found = self.mpirun("-n", 1, WEFT, *TRAIN, *meet, ":", "-n", 2, WEFT, "worker", "--quiet", *meet)
        self.assertEqual(found, self.digest("--ranks", 3))

    def test_an_error_of_rank_zero_ends_all(self):
        done = subprocess.run([MPIRUN, *OPTIONS, "-n", "3", WEFT, *TRAIN, "--launcher", "mpi", "--join-file", self.path("join"),
                               "--data", self.path("none")], env=PLAIN, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn(self.path("none"), done.stderr)


if __name__ == "__main__":
    if not MPIRUN:
        print("skipped: there is no mpirun")
        sys.exit(SKIPPED)
    unittest.main()
