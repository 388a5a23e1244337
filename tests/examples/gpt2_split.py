#!/usr/bin/env python3
"""Runs the small model of gpt2_split: the shares must sum up, be even, and the loss must fall."""
import re
import sys

import shares

text, _ = shares.run(sys.argv[1], "--small", "--steps", "4")
shares.losses(text, r"^step +\d+  loss (\S+)$")
if not re.search(r"^parameters after training: [0-9a-f]{32}$", text, re.M):
    sys.exit("no digest was printed")
parts = [float(row[5]) for row in shares.ROW.findall(text)]
if max(parts) > 30:   # a quarter each, as evenly as whole nodes allow
    sys.exit(f"the ranks compute {parts} % of the whole")
