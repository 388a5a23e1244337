#!/usr/bin/env python3
"""weft and files that are hostile, damaged or in the way: what is shown, what is refused, what is never lost."""
import json
import os
import pty
import re
import subprocess
import unittest

from weft import Case, TINY, TINY_STEP, WEFT, lines, run

# What a terminal obeys: C0 without the line break, DEL, and C1 in UTF-8.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
HOSTILE = "\x1b[31mred\x07\x7f\n\u009b2J"
HOSTILE_SHOWN = "\\x1b[31mred\\x07\\x7f\\x0a\\xc2\\x9b2J"


def write_tensors(path, names):
    """A safetensors file of f32 tensors with 2 elements each."""
    header = {name: {"dtype": "F32", "shape": [2], "data_offsets": [8 * i, 8 * i + 8]} for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + bytes(8 * len(names)))


def on_a_terminal(*args):
    """What the command writes to a terminal that is its standard output."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([WEFT, *map(str, args)], stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        out = b""
        try:
            while chunk := os.read(ours, 65536):
                out += chunk
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return process.returncode, out


class ControlCharacters(Case):
    def test_names_of_tensors_are_shown_without_them(self):
        write_tensors(self.path("w"), [HOSTILE, "plain\u00e4"])
        done = run("inspect", self.path("w"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(CONTROL.search(done.stdout), ascii(done.stdout))
        self.assertIn(f"  {HOSTILE_SHOWN}  F32[2]\n", done.stdout)
        self.assertIn("  plain\u00e4  F32[2]\n", done.stdout)
        printed = run("inspect", self.path("w"), "--json").stdout
        self.assertIsNone(CONTROL.search(printed), ascii(printed))
        self.assertEqual(sorted(t["name"] for t in lines(printed)[0]["parameters"]), sorted([HOSTILE, "plain\u00e4"]))
        refused = run("train", TINY, "--init", self.path("w"), "--steps", 0)
        self.assertEqual(refused.returncode, 3)
        self.assertIsNone(CONTROL.search(refused.stderr), ascii(refused.stderr))
        self.assertIn(f"'{HOSTILE_SHOWN}'", refused.stderr)

    def test_paths_and_kept_options_are_shown_without_them(self):
        data, directory = self.path("data" + HOSTILE), self.path("ck" + HOSTILE)
        with open(data, "wb") as file:
            file.write(bytes(range(256)))
        done = run("train", TINY, *TINY_STEP, "--data", data, "--steps", 1, "--checkpoint", directory)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"saved {self.path('ck')}{HOSTILE_SHOWN}/step-00000001", done.stderr)
        looked = run("inspect", directory)
        self.assertIn(f"--data {self.path('data')}{HOSTILE_SHOWN}\n", looked.stdout)
        exported = run("export", directory, self.path("out" + HOSTILE))
        self.assertIn("out" + HOSTILE_SHOWN, exported.stdout)
        for text in (done.stderr, looked.stdout, exported.stdout):
            self.assertIsNone(CONTROL.search(text), ascii(text))

    def test_generated_text_is_as_it_is_except_on_a_terminal(self):
        self.train(TINY, "--steps", 0, "--checkpoint", self.path("ck"), "--in-process")
        args = ["generate", self.path("ck"), "--prompt", "a", "--tokens", 60, "--seed", 1]
        piped = subprocess.run([WEFT, *map(str, args)], capture_output=True, check=True).stdout
        self.assertEqual(len(piped), 62)
        self.assertRegex(piped, rb"[\x00-\x09\x0b-\x1f]")
        status, shown = on_a_terminal(*args)
        self.assertEqual(status, 0)
        self.assertNotRegex(shown.replace(b"\r\n", b"").replace(b"\t", b""), rb"[\x00-\x1f\x7f]")


class InTheWay(Case):
    def refused(self, path, text):
        before = {}
        for root, _, names in os.walk(self.directory):
            for name in names:
                with open(os.path.join(root, name), "rb") as file:
                    before[os.path.join(root, name)] = file.read()
        self.fails(3, text, "export", "ck", path, cwd=self.directory)
        for name, content in before.items():
            with open(name, "rb") as file:
                self.assertEqual(file.read(), content, name)

    def test_export_leaves_the_files_of_every_checkpoint_alone(self):
        for name in ("ck", "other", "moved"):
            self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path(name))
        step = "step-00000001"
        os.rename(self.path("moved", step), self.path("moved", "best"))
        os.symlink(self.path("ck", step, "manifest.json"), self.path("link"))
        os.symlink(self.path("other", step), self.path("directory"))
        for path in (f"ck/{step}/manifest.json", f"{self.path('ck')}/{step}/model-00001.safetensors", f"other/{step}/optimizer-00001.safetensors",
                     f"ck/../ck/./{step}/manifest.json", f"ck/{step}/new", "link", "directory/manifest.json", "moved/best/manifest.json"):
            self.refused(path, f"{path}: lies in the checkpoint '")
        self.refused("other/latest", f"other/latest: names the latest checkpoint of '{os.path.realpath(self.path('other'))}'")
        # One that lacks its manifest is still one.
        os.remove(self.path("other", step, "manifest.json"))
        self.refused(f"other/{step}/model-00001.safetensors", "lies in the checkpoint")
        for args in (["train", TINY, *TINY_STEP, "--steps", 0, "--trace", self.path("ck", "latest")],
                     ["plan", TINY, "--save", self.path("ck", step, "manifest.json")],
                     ["plan", TINY, "--trace", self.path("ck", step, "manifest.json")],
                     ["profile", TINY, "--repeats", 1, "--out", self.path("ck", step, "manifest.json")]):
            self.assertIn("checkpoint", run(*args).stderr)
        self.assertEqual(run("inspect", self.path("ck")).returncode, 0)

    def test_export_to_another_name_of_a_file_of_a_checkpoint_replaces_the_name(self):
        _, done = self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("ck"))
        os.link(self.path("ck", "step-00000001", "manifest.json"), self.path("twin"))
        self.assertEqual(run("export", self.path("ck"), self.path("twin")).returncode, 0)
        self.assertEqual(lines(run("inspect", self.path("ck"), "--json").stdout)[0]["digest"], done["digest"])
        # What has nothing to do with a checkpoint may have the names of its files.
        for name in ("manifest.json", "latest"):
            self.assertEqual(run("export", self.path("ck"), self.path(name)).returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
