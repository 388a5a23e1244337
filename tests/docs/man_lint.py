#!/usr/bin/env python3
"""Lints man pages with mandoc; warnings count. Exits with 77 if there is no mandoc.

usage: man_lint.py PAGE...
"""
import shutil
import subprocess
import sys

if not shutil.which("mandoc"):
    print("skipped: there is no mandoc")
    sys.exit(77)
sys.exit(subprocess.run(["mandoc", "-Tlint", "-Wwarning", *sys.argv[1:]], check=False).returncode)
