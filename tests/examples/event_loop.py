#!/usr/bin/env python3
"""event_loop prints the steps of embed, digit for digit, between the events of its two processes.

usage: event_loop.py EVENT_LOOP EMBED
"""
import subprocess
import sys


def lines(program):
    return subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout.splitlines()


found = lines(sys.argv[1])
expected = ["rank 1 has joined, 0 are missing", "started with 2 ranks", *lines(sys.argv[2]), "rank 1 has ended with status 0"]
if found != expected:
    sys.exit(f"expected {expected}, found {found}")
