#!/usr/bin/env python3
"""Runs every `weft plan` command of README.md and compares its output with the one that README.md shows.

usage: readme_plans.py WEFT README

A plan and its prediction do not depend on the machine.
"""
import pathlib
import re
import shlex
import subprocess
import sys


def plans(text):
    """(command, output) of each block that starts with the command."""
    return re.findall(r"^```\n\$ (weft plan [^\n]*)\n(.*?)^```$", text, re.S | re.M)


def main():
    weft, readme = sys.argv[1], pathlib.Path(sys.argv[2])
    shown = plans(readme.read_text(encoding="utf-8"))
    if not shown:
        sys.exit(f"{readme.name}: expected a block that starts with '$ weft plan'")
    status = 0
    for command, expected in shown:
        done = subprocess.run([weft, *shlex.split(command)[1:]], capture_output=True, text=True, check=False)
        print(command, "as shown" if done.stdout == expected else f"prints now:\n{done.stdout}{done.stderr}")
        status |= done.stdout != expected
    return status


if __name__ == "__main__":
    sys.exit(main())
