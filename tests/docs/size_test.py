#!/usr/bin/env python3
"""tools/size: sees the functions that there are, and refuses a file over the limit."""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "size"
loader = importlib.machinery.SourceFileLoader("size", str(TOOL))
size = importlib.util.module_from_spec(importlib.util.spec_from_loader("size", loader))
sys.dont_write_bytecode = True
loader.exec_module(size)

SOURCE = """\
// a comment with a { brace
#define MACRO(x) { x
namespace weft {
struct Point {
  int x = 0;
  int twice() const { return 2 * x; }
};
static const int kTable[] = {1, 2};
struct Point make(int x) {
  if (x) {
    return {x};
  }
  const char* s = "}";
  const char* t = R"(} "{)";
  return {};
}
}  // namespace weft
"""


class Size(unittest.TestCase):
    def test_functions_are_found_with_their_lengths(self):
        self.assertEqual(list(size.functions(SOURCE)), [("twice", 6, 1), ("make", 9, 8)])

    def test_a_file_over_the_limit_is_refused(self):
        for lines, status in ((size.LIMIT, 0), (size.LIMIT + 1, 1)):
            with tempfile.TemporaryDirectory() as directory:
                source = pathlib.Path(directory) / "src" / "long.cc"
                source.parent.mkdir()
                source.write_text("\n" * lines, encoding="utf-8")
                done = subprocess.run([sys.executable, TOOL, "--check", directory], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, status, done.stdout)
                self.assertEqual("long.cc" in done.stdout, status == 1)


if __name__ == "__main__":
    unittest.main()
