"""The examples of docstrings and of README.md run, and print what they show."""
import doctest
import importlib
import pathlib
import pkgutil
import unittest

import weft

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


class Docs(unittest.TestCase):
    def test_docstrings(self):
        attempted = 0
        for module in pkgutil.iter_modules(weft.__path__, "weft."):
            found = doctest.testmod(importlib.import_module(module.name))
            self.assertEqual(found.failed, 0, module.name)
            attempted += found.attempted
        self.assertGreater(attempted, 10)
        self.assertEqual(doctest.testmod(weft).failed, 0)

    def test_readme(self):
        found = doctest.testfile(str(README), module_relative=False)
        self.assertGreater(found.attempted, 5)
        self.assertEqual(found.failed, 0)


if __name__ == "__main__":
    unittest.main()
