#!/usr/bin/env python3
"""Prints the functions that a man page describes beside the one it is called after, one per line: each gets a page that leads there.

usage: names.py PAGE
"""
import pathlib
import re
import sys


def names(text):
    """All names in the NAME section of an mdoc page."""
    section = re.search(r"^\.Sh NAME\n(.*?)^\.Nd ", text, re.S | re.M)
    return re.findall(r"^\.Nm (\S+)", section[1], re.M) if section else []


if __name__ == "__main__":
    page = pathlib.Path(sys.argv[1])
    for name in names(page.read_text(encoding="utf-8")):
        if name != page.stem:
            print(name)
