#!/usr/bin/env python3
"""Runs the classifier, smaller, with both ways to split it: it must learn, and both must give the same bits."""
import re
import sys

import shares

program = sys.argv[1]
found = {}
for split in ("cost", "stages"):
    text, found[split] = shares.run(program, "--split", split, "--width", "64", "--steps", "200")
    shares.losses(text, r"^steps up to +\d+  loss (\S+)$")
    accuracy = float(re.search(r"^held-out accuracy (\S+) over 1024 samples$", text, re.M).group(1))
    if not accuracy > 0.9:
        sys.exit(f"the held-out accuracy is {accuracy}, expected more than 0.9")
if "block_2.ln_1" not in text:
    sys.exit("--split stages does not cut at the second block")
if found["cost"] != found["stages"]:
    sys.exit("the two splits give other numbers")
