#!/usr/bin/env python3
"""Runs a program that trains and prints "step N  loss X" lines: it must pass, and the loss must fall and end below 0.001."""
import re
import subprocess
import sys

done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True, check=False)
print(done.stdout)
if done.returncode != 0:
    sys.exit(f"exit code {done.returncode}")
losses = [float(x) for x in re.findall(r"^step +\d+  loss (\S+)$", done.stdout, re.M)]
if len(losses) < 3:
    sys.exit(f"{len(losses)} losses were printed, expected 3 or more")
if any(not after < before for before, after in zip(losses, losses[1:])):
    sys.exit("the loss does not fall")
if not losses[-1] < 0.001:
    sys.exit(f"the last loss is {losses[-1]}, expected less than 0.001")
