"""The structs, constants and functions of the raw layer are those of bindings/api.json, which tests/abi/layout.py compares with the compiler."""
import ctypes
import enum
import json
import unittest

import weft
from weft import _raw, _types

from support import ROOT, ProcessTest


class Layout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.api = json.loads((ROOT / "bindings" / "api.json").read_text(encoding="utf-8"))

    def test_structs(self):
        for struct in self.api["structs"]:
            with self.subTest(struct["name"]):
                ours = getattr(_raw, struct["name"])
                self.assertEqual((ctypes.sizeof(ours), ctypes.alignment(ours)), (struct["size"], struct["align"]))
                found = [(name, getattr(ours, name).offset, getattr(ours, name).size) for name, _ in ours._fields_]
                self.assertEqual(found, [(f["name"], f["offset"], f["size"]) for f in struct["fields"]])

    def test_constants(self):
        for constant in self.api["constants"]:
            self.assertEqual(getattr(_raw, constant["name"]), constant["value"])

    def test_functions(self):
        for function in self.api["functions"]:
            self.assertEqual(len(getattr(_raw, function["name"]).argtypes), len(function["params"]), function["name"])

    def test_enumerations(self):
        classes = {name.lower(): e for name, e in vars(_types).items() if isinstance(e, enum.EnumMeta)}
        for described in self.api["enums"]:
            members = classes[described["name"].replace("weft_", "").replace("_", "")].__members__
            self.assertEqual(len(members), len(described["values"]), described["name"])
            for (name, member), value in zip(members.items(), described["values"]):
                self.assertTrue(value["name"].endswith("_" + name), value["name"])
                self.assertEqual(member, value["value"])

    def test_enumerations_are_public(self):
        classes = {name for name, e in vars(_types).items() if isinstance(e, enum.EnumMeta)}
        self.assertEqual(classes - set(weft.__all__), {"PredictFlags", "RunFlags", "SaveFlags", "TokenizerFlags"})   # texts or parameters


class Library(ProcessTest):
    def refused(self, functions):
        """The error of a package whose library has only these functions."""
        return self.passes(f"""
import ctypes, os
os.environ["WEFT_LIBRARY"] = "the file"
ctypes.CDLL = lambda path: type("Library", (), {{"_name": path, **{functions}}})
try:
    import weft
except ImportError as error:
    print(error)
""")

    def test_another_version_is_refused(self):
        expected = f"{_raw.WEFT_VERSION_MAJOR}.{_raw.WEFT_VERSION_MINOR}"
        self.assertEqual(self.refused("{'weft_version': staticmethod(lambda: b'0.1.7')}"),
                         f"weft: 'the file' is version 0.1.7, expected {expected}. WEFT_LIBRARY can name the file.\n")

    def test_a_library_without_a_function_is_refused(self):
        for functions, missing in (("{}", "weft_version"), (f"{{'weft_version': staticmethod(lambda: {weft.__version__.encode()})}}", "weft_status_text")):
            self.assertEqual(self.refused(functions), f"weft: 'the file' has no function {missing}, expected the libweft of this package. "
                                                      "WEFT_LIBRARY can name the file.\n")


if __name__ == "__main__":
    unittest.main()
