#!/usr/bin/env python3
"""Holds the C++ of src/ and tests/ to .clang-format.

usage: format.py CLANG_FORMAT [ROOT]

Versions of clang-format lay out some lines otherwise. It was written with version 14; with another the test is skipped.
"""
import pathlib
import re
import subprocess
import sys

VERSION = "14"
SKIPPED = 77


def main():
    program, root = sys.argv[1], pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else ".")
    found = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"version (\d+)", found)
    if not version or version[1] != VERSION:
        print(f"{found.strip()}, expected version {VERSION}")
        return SKIPPED
    files = sorted(str(path) for folder in ("src", "tests") for path in (root / folder).rglob("*") if path.suffix in {".cc", ".h"})
    checked = subprocess.run([program, "--dry-run", "--Werror", "-ferror-limit=0", *files], capture_output=True, text=True, check=False)
    wrong = sorted({match[1] for match in re.finditer(r"^(.+?):\d+:\d+: error", checked.stderr, re.M)})
    for name in wrong:
        print(f"{name}: not as .clang-format says; clang-format -i {name}")
    if checked.returncode and not wrong:
        print(checked.stderr)
    print(f"{len(files)} files, {len(wrong)} to format")
    return 1 if checked.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
