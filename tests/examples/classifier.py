#!/usr/bin/env python3
"""Runs the classifier, smaller, with all ways to split it: it must learn, and all must give the same bits, in processes and without."""
import re
import sys

import shares

program = sys.argv[1]
found = {}
for case in (("profile",), ("cost", "--in-process"), ("stages",)):
    text, found[case] = shares.run(program, "--width", "64", "--steps", "200", "--split", *case)
    shares.losses(text, r"^steps up to +\d+  loss (\S+)$")
    accuracy = float(re.search(r"^held-out accuracy (\S+) over 1024 samples$", text, re.M).group(1))
    if not accuracy > 0.9:
        sys.exit(f"the held-out accuracy is {accuracy}, expected more than 0.9")
    if not re.search(r"^parameters after training: [0-9a-f]{32}$", text, re.M):
        sys.exit("no digest was printed")
if [row[1] for row in shares.ROW.findall(text)] != ["embed", "block_1.ln_1", "block_2.ln_1", "norm_2"]:
    sys.exit("--split stages does not cut at the stages")
if len(set(found.values())) != 1:
    sys.exit("the splits give different numbers")
