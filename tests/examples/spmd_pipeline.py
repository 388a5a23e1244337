#!/usr/bin/env python3
"""Runs the spmd_pipeline example over all numbers of ranks: each must pass, and all must print the same numbers, those of gpipe.

usage: spmd_pipeline.py SPMD_PIPELINE GPIPE
"""
import itertools
import subprocess
import sys


def numbers(*command):
    """What the program prints after its first line, without the digest, and the digest."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}")
    lines = done.stdout.splitlines()
    return lines[0], lines[1:-1], lines[-1]


def main():
    program, gpipe = sys.argv[1:]
    found = {}
    for ranks, where in itertools.product(("1", "2", "4"), ((), ("--in-process",))):
        first, *found[ranks, where] = numbers(program, "--ranks", ranks, *where)
        if f"4 coordinates on {ranks} rank" not in first:
            sys.exit(f"{ranks} ranks: the first line is '{first}'")
    expected = next(iter(found.values()))
    for case, text in found.items():
        if text != expected:
            sys.exit(f"{case}: the numbers differ from those of one rank")
    _, theirs, _ = numbers(gpipe, "--in-process")
    rounded = [[line.split("  ")[0], line.split()[-1]] for line in theirs]
    if [[line.split("  ")[0], line.split()[-1]] for line in expected[0]] != rounded or "ok" not in rounded[0]:
        sys.exit("the lines are not those of gpipe")


main()
