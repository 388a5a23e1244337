#!/usr/bin/env python3
"""Runs the small model of gpt2_split, in processes and without: even shares of the whole, a loss that falls, the same numbers."""
import re
import sys

import shares

text, numbers = shares.run(sys.argv[1], "--small", "--steps", "4")
shares.losses(text, r"^step +\d+  loss (\S+)$")
if not re.search(r"^parameters after training: [0-9a-f]{32}$", text, re.M):
    sys.exit("no digest was printed")
parts = [float(row[5]) for row in shares.ROW.findall(text)]
if max(parts) > 30:   # a quarter each, as evenly as whole nodes allow
    sys.exit(f"the ranks compute {parts} % of the whole")
if shares.run(sys.argv[1], "--small", "--steps", "4", "--in-process") != (text, numbers):
    sys.exit("with --in-process the numbers are others")
