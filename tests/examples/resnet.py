#!/usr/bin/env python3
"""Runs the residual network: it must learn, and all splits must give the same bits, in processes and without, also if they recompute.

usage: resnet.py PROGRAM learn|bits   bits: the same bits alone, where learning would take minutes
"""
import re
import sys

import shares

program, what = sys.argv[1:]


def trained(*options):
    text, found = shares.run(program, *options)
    if not re.search(r"^parameters and running moments: [0-9a-f]{32}$", text, re.M):
        sys.exit("no digest was printed")
    return text, found


if what == "learn":
    text = trained()[0]
    shares.losses(text, r"^step +\d+  loss (\S+)$")
    accuracy = float(re.search(r"^held-out accuracy (\S+) over 512 images$", text, re.M).group(1))
    if not accuracy > 0.9:
        sys.exit(f"the held-out accuracy is {accuracy}, expected more than 0.9")
few = ("--steps", "5")
found = trained(*few, "--ranks", "3")[1]
for options in (("--ranks", "1", "--in-process"), ("--ranks", "4", "--recompute", "stage")):
    if trained(*few, *options)[1] != found:
        sys.exit(f"{' '.join(options)} gives other numbers")
