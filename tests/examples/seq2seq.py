#!/usr/bin/env python3
"""Runs the encoder and decoder: they must learn, and all splits must give the same bits, in processes and without.

usage: seq2seq.py PROGRAM [STEPS]
"""
import re
import sys

import shares

program, *steps = sys.argv[1:]


def trained(*options):
    text, found = shares.run(program, *options, *(("--steps", steps[0]) if steps else ()))
    shares.losses(text, r"^step +\d+  loss (\S+)$")
    if not re.search(r"^parameters: [0-9a-f]{32}$", text, re.M):
        sys.exit("no digest was printed")
    return found


found = trained("--ranks", "3")
right = int(re.search(r"^(\d+) of 64 new words are reversed without an error$", found, re.M).group(1))
if not steps and right < 58:
    sys.exit(f"{right} of 64 words are right, expected 58 or more")
for options in (("--ranks", "1", "--in-process"), ("--ranks", "5")):
    if trained(*options) != found:
        sys.exit(f"{' '.join(options)} gives other numbers")
