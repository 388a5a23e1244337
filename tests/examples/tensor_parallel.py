#!/usr/bin/env python3
"""Runs the tensor_parallel example, in processes and without: both must pass, and print the same."""
import subprocess
import sys


def output(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, flush=True)
    if done.returncode != 0 or done.stdout.count("   ok") != 3:
        sys.exit(f"{command}: exit code {done.returncode}")
    return done.stdout


if output(sys.argv[1]) != output(sys.argv[1], "--in-process"):
    sys.exit("with --in-process the numbers are others")
