#!/usr/bin/env python3
"""tools/abi finds what can break programs for the last release. Exits with 77 if there is no abidiff."""
import importlib.machinery
import importlib.util
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("abi", str(ROOT / "tools" / "abi"))
abi = importlib.util.module_from_spec(importlib.util.spec_from_loader("abi", loader))
loader.exec_module(abi)

HEADER = """\
#include <stddef.h>
#include <stdint.h>
typedef enum weft_mode { WEFT_TRAIN = 1, WEFT_EVAL = 2 } weft_mode;
typedef struct weft_run weft_run;
typedef struct weft_config { size_t size; int32_t ranks; weft_mode mode; } weft_config;
void weft_run_free(weft_run *run);
int32_t weft_run_start(const weft_config *config, weft_run **out);
"""
FUNCTIONS = ("void weft_run_free(weft_run*run)", "int32_t weft_run_start(const weft_config*config,weft_run**out)")


class Abi(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.library, self.baseline = self.described("last", HEADER, FUNCTIONS)

    def described(self, name, header, functions):
        root = pathlib.Path(tempfile.mkdtemp(prefix=name, dir=self.folder))
        for path, text in (("include/weft.h", header), ("bindings/api.json", json.dumps({"functions": [{"c": c} for c in functions]})),
                           ("src/weft.map", "WEFT_0.2 { global: weft_*; local: *; };")):
            (root / path).parent.mkdir(parents=True)
            (root / path).write_text(text, encoding="utf-8")
        return root / "libweft.so", abi.describe(root, root)

    def reports(self, header=HEADER, functions=FUNCTIONS, library=None):
        new, _ = self.described("new", header, functions)
        return "\n".join(abi.differences(new.parent, library or new, self.baseline))

    def test_the_same_is_compatible(self):
        self.assertEqual(self.reports(), "")

    def test_a_new_function_and_a_new_enumerator_are_compatible(self):
        header = HEADER.replace("WEFT_EVAL = 2", "WEFT_EVAL = 2, WEFT_FORWARD = 3") + "void weft_run_stop(weft_run *run);\n"
        self.assertEqual(self.reports(header, (*FUNCTIONS, "void weft_run_stop(weft_run*run)")), "")

    def test_a_new_field_is_found(self):
        self.assertIn("rate", self.reports(HEADER.replace("int32_t ranks;", "double rate; int32_t ranks;")))
        self.assertIn("rate", self.reports(HEADER.replace("weft_mode mode;", "weft_mode mode; double rate;")))

    def test_a_field_of_another_type_is_found(self):
        self.assertIn("ranks", self.reports(HEADER.replace("int32_t ranks;", "int64_t ranks;")))

    def test_a_removed_field_is_found(self):
        self.assertIn("mode", self.reports(HEADER.replace("weft_mode mode;", "")))

    def test_another_value_of_an_enumeration_is_found(self):
        self.assertIn("WEFT_EVAL", self.reports(HEADER.replace("WEFT_EVAL = 2", "WEFT_EVAL = 3")))

    def test_another_parameter_is_found(self):
        start = FUNCTIONS[1].replace("weft_run**out", "weft_run**out,int32_t rank")
        self.assertIn("weft_run_start", self.reports(HEADER.replace("weft_run **out", "weft_run **out, int32_t rank"), (FUNCTIONS[0], start)))

    def test_a_removed_function_is_found(self):
        self.assertIn("weft_run_free", self.reports(functions=FUNCTIONS[1:]))

    def test_a_symbol_that_the_library_does_not_define_is_found(self):
        library, _ = self.described("built", HEADER, FUNCTIONS[1:])
        self.assertIn(f"{library} does not define weft_run_free@@WEFT_0.2", self.reports(library=library))


if __name__ == "__main__":
    if not shutil.which("abidiff"):
        print("skipped: there is no abidiff")
        sys.exit(abi.SKIP)
    unittest.main()
