#!/usr/bin/env python3
"""Runs the mesh_2d example over replicas, stages and schedules: each must pass, and all must print the same numbers."""
import itertools
import subprocess
import sys


def numbers(program, replicas, stages, schedule, where):
    """What the program prints after its first line, which names the mesh and the schedule."""
    options = ["--data", str(replicas), "--stages", str(stages), "--schedule", schedule, *where]
    done = subprocess.run([program, *options], stdout=subprocess.PIPE, text=True, check=False)
    first, _, rest = done.stdout.partition("\n")
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"{options}: exit code {done.returncode}")
    if f"data={replicas} x stage={stages}, schedule {schedule}" not in first:
        sys.exit(f"{options}: the first line is '{first}'")
    return rest


def main():
    program = sys.argv[1]
    cases = itertools.product((1, 2), (1, 2, 4), ("gpipe", "1f1b"), ((), ("--in-process",)))
    found = {case: numbers(program, *case) for case in cases}
    expected = next(iter(found.values()))
    if "ok" not in expected:
        sys.exit("the program printed no numbers")
    for case, text in found.items():
        if text != expected:
            sys.exit(f"{case}: the numbers differ from those of one replica of one stage")


main()
