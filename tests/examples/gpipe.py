#!/usr/bin/env python3
"""Runs the gpipe example over all numbers of stages and schedules: each must pass, and all must print the same numbers."""
import itertools
import subprocess
import sys


def numbers(program, stages, schedule, where):
    """What the program prints after its first line, which names the stages and the schedule."""
    done = subprocess.run([program, "--stages", str(stages), "--schedule", schedule, *where], stdout=subprocess.PIPE, text=True, check=False)
    first, _, rest = done.stdout.partition("\n")
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"{stages} stages, {schedule}: exit code {done.returncode}")
    if str(stages) not in first or schedule not in first:
        sys.exit(f"{stages} stages, {schedule}: the first line is '{first}'")
    return rest


def main():
    program = sys.argv[1]
    found = {case: numbers(program, *case) for case in itertools.product((1, 2, 3, 4), ("gpipe", "1f1b"), ((), ("--in-process",)))}
    expected = next(iter(found.values()))
    if "ok" not in expected:
        sys.exit("the program printed no numbers")
    for (stages, schedule, _), text in found.items():
        if text != expected:
            sys.exit(f"{stages} stages, {schedule}: the numbers differ from those of one stage")


main()
