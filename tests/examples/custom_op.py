#!/usr/bin/env python3
"""Runs the custom_op example over processes and in one process: both must pass and print the same losses, which fall."""
import re
import subprocess
import sys


def output(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    return done.stdout


def main():
    program = sys.argv[1]
    processes = output(program)
    if output(program, "--in-process") != processes:
        sys.exit("the output over processes differs from that in one process")
    losses = [float(x) for x in re.findall(r"^step +\d+  loss (\S+)$", processes, re.M)]
    if len(losses) != 4 or any(not after < before for before, after in zip(losses, losses[1:])) or losses[-1] > losses[0] / 20:
        sys.exit(f"the losses are {losses}, expected 4 that fall to a twentieth")


main()
