#!/usr/bin/env python3
"""names.py finds two classes with one name, and only those."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

NAMES = pathlib.Path(__file__).parent / "names.py"
ONE = "namespace weft {\n\nstruct Message {\n  int a;\n};\n\n}  // namespace weft\n"


class Names(unittest.TestCase):
    def faults(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "src")
            source.mkdir()
            for name, text in files.items():
                (source / name.replace("_", ".")).write_text(text)
            return subprocess.run([sys.executable, NAMES, folder], capture_output=True, text=True).stderr

    def test_one_name_for_two_classes(self):
        other = ONE.replace("struct Message {", "class Message final : public Base {")
        self.assertRegex(self.faults(a_h=ONE, b_cc=other), r"weft::Message is defined 2 times: .*a.h:3, .*b.cc:3")

    def test_names_that_do_not_meet(self):
        own = ONE.replace("weft {\n", "weft {\n\nnamespace {\n", 1).replace("}  // namespace weft", "}  // namespace\n\n}  // namespace weft")
        self.assertEqual(self.faults(a_h=ONE, b_cc=own, c_cc=own), "")
        self.assertEqual(self.faults(a_h=ONE, b_h=ONE.replace("weft", "weft::jinja")), "")
        self.assertEqual(self.faults(a_h=ONE, b_h=ONE.replace("struct Message {\n  int a;\n};", "struct Message;")), "")

    def test_nothing_to_read(self):
        self.assertIn("no class", self.faults())


unittest.main()
