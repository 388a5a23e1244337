#!/usr/bin/env python3
"""Runs the residual network: it must learn, and all splits must give the same bits, in processes and without, also if they recompute.

usage: resnet.py PROGRAM
"""
import re
import sys

import shares

program = sys.argv[1]


def trained(*options):
    text, found = shares.run(program, *options)
    shares.losses(text, r"^step +\d+  loss (\S+)$")
    if not re.search(r"^parameters and running moments: [0-9a-f]{32}$", text, re.M):
        sys.exit("no digest was printed")
    return found


found = trained("--ranks", "3")
accuracy = float(re.search(r"^held-out accuracy (\S+) over 512 images$", found, re.M).group(1))
if not accuracy > 0.9:
    sys.exit(f"the held-out accuracy is {accuracy}, expected more than 0.9")
for options in (("--ranks", "1", "--in-process"), ("--ranks", "4", "--recompute", "stage")):
    if trained(*options) != found:
        sys.exit(f"{' '.join(options)} gives other numbers")
