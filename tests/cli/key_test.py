#!/usr/bin/env python3
"""Keys and permissions to join, as files and options."""
import os
import signal
import stat
import subprocess
import unittest

from weft import Case, DRAWN, ENDS, LINKAT, TINY, WEFT, change_calls, run

TRAIN = ["train", TINY, *DRAWN, "--ranks", 3, "--external", 1, "--listen", "tcp://127.0.0.1:0", "--steps", 2, "--seed", 1]


class Keys(Case):
    def start(self, *args):
        """Returns when the command waits for a rank, and what it has said until then."""
        process = subprocess.Popen([WEFT, *map(str, TRAIN), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        said = process.stderr.readline()
        while "waiting for 1 rank: " not in said.splitlines()[-1]:
            line = process.stderr.readline()
            self.assertTrue(line, said)
            said += line
        return process, said

    def joins(self, process, *args):
        done = run("worker", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        return done

    def test_no_message_shows_the_key_of_a_join_line(self):
        line = "127.0.0.1:1?key=" + 128 * "a"
        for text, args in (("expected an address without a key", ["train", TINY, *DRAWN, "--listen", "tcp://" + line]),
                           ("expected an address without a key", ["worker", "--join", "tcp://h:1", "--listen", "tcp://" + line]),
                           ("expected tcp://ADDRESS:PORT", ["worker", "--join", line]),
                           ("unknown argument", ["worker", "tcp://" + line]),
                           ("unknown argument", ["worker", "--join", "tcp://h:1?key", 64 * "a"]),
                           ("--rank", ["worker", "--join", "tcp://h:1", "--rank", line])):
            self.fails(2, text, *args)
            self.assertNotIn("aaaa", run(*args).stderr)

    def test_a_key_is_made_once_and_read_by_its_owner_only(self):
        path = self.path("key")
        made = run("key", path)
        self.assertRegex(made.stdout, r"\A[0-9a-f]{64}\n\Z")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertEqual(run("key", path).stdout, made.stdout)
        with open(path, encoding="utf-8") as file:
            self.assertNotIn(made.stdout.strip(), file.read())
        os.rename(path, self.path("its key"))
        os.chmod(self.path("its key"), 0o640)
        self.fails(3, f"change it: chmod 600 '{self.path('its key')}'\n", "key", self.path("its key"))
        os.rename(self.path("its key"), path)
        self.fails(3, "can be read by other users: expected mode 600", "key", path)
        self.fails(3, "can be read by other users", "worker", "--join", "tcp://127.0.0.1:1", "--key", path)
        with open(self.path("none"), "w", encoding="utf-8", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write("no key\n")
        self.fails(3, "does not contain a secret key", "key", self.path("none"))

    def test_a_key_that_cannot_be_written_is_no_wrong_input(self):
        path = self.path("key")
        done = subprocess.run(["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", WEFT, "key", path], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, f"weft: key: '{path}': cannot be written: file too large\n"))
        self.assertFalse(os.path.exists(path), "a part of the key is left")
        self.fails(3, "cannot be written: no such file or directory", "key", os.path.join(path, "key"))

    def test_a_writer_that_is_killed_leaves_no_part_of_a_key(self):
        path = self.path("key")
        done = run("key", path, preexec_fn=lambda: change_calls({LINKAT: ENDS}))
        self.assertEqual(done.returncode, -signal.SIGSYS, done.stderr)
        self.assertFalse(os.path.exists(path), "a part of the key is left")
        self.assertEqual(run("key", path).returncode, 0)

    @unittest.skipUnless(os.environ.get("WEFT_SANITIZE", "none") == "none", "sanitizers map terabytes")
    def test_a_key_that_is_read_is_in_memory_once(self):
        parts = [b"%d".rjust(3000, b"-") % i + b"part-of-the-key" + b"-" * 900 for i in range(6)]
        process = subprocess.Popen([WEFT, "worker", "--join-file", "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, pipesize=4096)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        # The pipe has room for one part, so that the last one leaves this process only when those before were read.
        for part in parts:
            self.assertEqual(process.stdin.write(part), len(part))
        found = 0
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps, open(f"/proc/{process.pid}/mem", "rb", buffering=0) as memory:
            for area in maps:
                begin, end = (int(at, 16) for at in area.split()[0].split("-"))
                if area.split()[1].startswith("rw"):
                    memory.seek(begin)
                    found += memory.read(end - begin).count(b"0part-of-the-key")
        self.assertEqual(found, 1)
        process.stdin.close()
        process.stdin = None
        self.assertEqual(process.wait(timeout=60), 3)

    def test_the_permission_to_join_stands_in_no_words_of_a_command(self):
        path = self.path("join")
        process, said = self.start("--join-file", path)
        self.assertNotIn("?key=", said)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        with open(path, encoding="utf-8") as file:
            self.assertRegex(file.read(), r"\Atcp://127\.0\.0\.1:\d+\?key=[0-9a-f]{128}\n\Z")
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="utf-8") as file:
            ranks = file.read().split()
        self.assertEqual(len(ranks), 1)
        with open(f"/proc/{ranks[0]}/cmdline", encoding="utf-8") as file:
            self.assertNotIn("?key=", file.read())
        self.joins(process, "--join-file", path)
        self.assertFalse(os.path.exists(path), "the file is left")

    def test_machines_that_are_allowed_join_by_their_own_keys(self):
        zero, machine = run("key", self.path("zero")).stdout.strip(), run("key", self.path("machine")).stdout.strip()
        with open(self.path("allow"), "w", encoding="utf-8") as file:
            file.write(f"# who may join\n{machine} machine b\n")
        process, said = self.start("--key", self.path("zero"), "--allow", self.path("allow"))
        endpoint = said.split("--join ")[1].strip().strip("'")
        self.assertRegex(endpoint, rf"\Atcp://127\.0\.0\.1:\d+\?key={zero}\Z")
        self.fails(3, "does not permit to join", "worker", "--join", endpoint)
        run("key", self.path("stranger"))
        refused = run("worker", "--join", endpoint, "--key", self.path("stranger"))
        self.assertEqual(refused.returncode, 4, refused.stderr)
        self.assertIn("the listener does not admit this key", refused.stderr)
        self.joins(process, "--join", endpoint, "--key", self.path("machine"))

    def test_an_error_in_the_allowed_keys_names_the_file(self):
        with open(self.path("allow"), "w", encoding="utf-8") as file:
            file.write("no-key machine b\n")
        self.fails(3, f"{self.path('allow')}: line 1 of the allowed keys: expected a key of 64 digits", *TRAIN, "--allow", self.path("allow"))

    def test_allowed_keys_without_an_end_are_refused(self):
        self.fails(3, "/dev/zero: expected at most 16777216 bytes", *TRAIN, "--allow", "/dev/zero")

    def test_both_sides_say_that_nothing_is_encrypted(self):
        process, said = self.start("--insecure")
        self.assertIn("nothing is encrypted (--insecure)", said)
        endpoint = said.split("--join ")[1].split()[0].strip("'")
        self.assertIn("nothing is encrypted (--insecure)", self.joins(process, "--join", endpoint, "--insecure").stderr)

    def test_a_key_requires_encryption(self):
        run("key", self.path("key"))
        fault = "keys cannot be checked without encryption; remove the keys, or --insecure"
        for command in TRAIN, ["worker", "--join", "tcp://127.0.0.1:1"]:
            self.fails(3, fault, *command, "--key", self.path("key"), "--insecure")


if __name__ == "__main__":
    unittest.main()
