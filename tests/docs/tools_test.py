#!/usr/bin/env python3
"""The scripts in tools/ and .ci/ parse, and each of tools/ describes itself with --help."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = sorted((ROOT / "tools").iterdir())


def interpreter(script):
    with open(script, encoding="utf-8") as text:
        return text.readline().removeprefix("#!/usr/bin/env ").removeprefix("#!/bin/").strip()


class Tools(unittest.TestCase):
    def test_every_script_parses(self):
        for script in [*TOOLS, ROOT / ".ci" / "run"]:
            with self.subTest(script=script.name):
                if interpreter(script) == "python3":
                    compile(script.read_text(encoding="utf-8"), str(script), "exec")
                else:
                    self.assertIn(interpreter(script), ("bash", "sh"))
                    done = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_tool_has_help(self):
        for script in TOOLS:
            with self.subTest(script=script.name):
                done = subprocess.run([script, "--help"], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertRegex(done.stdout, rf"(tools/|usage: ){script.name}")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
