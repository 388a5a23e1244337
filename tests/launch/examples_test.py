#!/usr/bin/env python3
"""The scripts of examples/launch parse, and what they start trains."""
import os
import pathlib
import subprocess
import unittest

from ranks import Launch, PLAIN, STEP, TINY, WEFT, digest_of

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "launch"

# Runs the command here: it takes the options and the host of ssh.
FAKE_SSH = """#!/bin/sh
[ "$1 $2" = "-o BatchMode=yes" ] || exit 255
echo "$3" >> "$SSH_LOG"
shift 3
exec sh -c "$*"
"""


class Examples(Launch):
    def executable(self, name, text=None):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)

    def test_every_script_parses(self):
        scripts = sorted(EXAMPLES.glob("*.sh"))
        self.assertEqual([script.name for script in scripts], ["slurm.sh", "ssh.sh"])
        for script in scripts:
            done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_ssh_starts_a_rank_on_each_host(self):
        self.executable("ssh", FAKE_SSH)
        os.symlink(WEFT, self.path("weft"))
        environment = {**PLAIN, "PATH": self.directory + ":" + os.environ["PATH"], "SSH_LOG": self.path("log")}
        done = subprocess.run([EXAMPLES / "ssh.sh", EXAMPLES / "hosts", "127.0.0.1", TINY, *STEP, "--steps", "3", "--json"],
                              env=environment, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("key=", done.stderr)
        with open(self.path("log"), encoding="utf-8") as file:
            self.assertEqual(sorted(file.read().split()), ["node1", "node2", "user@192.0.2.13"])
        self.assertEqual(digest_of(done.stdout), self.digest("--ranks", 4))


if __name__ == "__main__":
    unittest.main()
