#!/usr/bin/env python3
"""Runs the classifier, smaller, with all ways to split it: it must learn, and all must give the same bits, in processes and without.

usage: classifier.py PROGRAM learn|bits   bits: only the same bits, where learning would take minutes
"""
import re
import sys

import shares

program, learn = sys.argv[1], sys.argv[2:] == ["learn"]


def trained(steps, *split):
    text, found = shares.run(program, "--width", "64", "--steps", str(steps), "--split", *split)
    shares.losses(text, r"^steps up to +\d+  loss (\S+)$")
    if not re.search(r"^parameters after training: [0-9a-f]{32}$", text, re.M):
        sys.exit("no digest was printed")
    return text, found


if learn:
    accuracy = float(re.search(r"^held-out accuracy (\S+) over 1024 samples$", trained(200, "profile")[0], re.M).group(1))
    if not accuracy > 0.9:
        sys.exit(f"the held-out accuracy is {accuracy}, expected more than 0.9")
found = {split: trained(20 if learn else 4, *split) for split in (("profile",), ("cost", "--in-process"), ("stages",))}
if [row[1] for row in shares.ROW.findall(found["stages",][0])] != ["embed", "block_1.ln_1", "block_2.ln_1", "norm_2"]:
    sys.exit("--split stages does not cut at the stages")
if len({numbers for _, numbers in found.values()}) != 1:
    sys.exit("the splits give different numbers")
