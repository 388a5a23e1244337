#!/usr/bin/env python3
"""Runs the encoder and decoder: they must learn, and all splits must give the same bits, in processes and without.

usage: seq2seq.py PROGRAM learn|bits   bits: the same bits alone, where learning would take minutes
"""
import re
import sys

import shares

program, what = sys.argv[1:]


def trained(*options):
    text, found = shares.run(program, *options)
    if not re.search(r"^parameters: [0-9a-f]{32}$", text, re.M):
        sys.exit("no digest was printed")
    return text, found


if what == "learn":
    text = trained()[0]
    shares.losses(text, r"^step +\d+  loss (\S+)$")
    right = int(re.search(r"^(\d+) of 64 new words are reversed without an error$", text, re.M).group(1))
    if right < 58:
        sys.exit(f"{right} of 64 words are right, expected 58 or more")
few = ("--steps", "10")
found = trained(*few, "--ranks", "3")[1]
for options in (("--ranks", "1", "--in-process"), ("--ranks", "5")):
    if trained(*few, *options)[1] != found:
        sys.exit(f"{' '.join(options)} gives other numbers")
