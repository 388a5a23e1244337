#!/usr/bin/env python3
"""A rank of an example that waits for rank 0 ends when the process that started it ends."""
import os
import select
import subprocess
import sys
import tempfile
import time


def is_waiting(pid):
    """Its thread for connections has begun."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return any(line.startswith("Threads:") and int(line.split()[1]) > 1 for line in file)


def start(program):
    rank = subprocess.Popen([program], env={**os.environ, "WEFT_JOIN": "ipc:///tmp/weft-nobody-listens/rank0"})
    print(rank.pid, flush=True)
    while rank.poll() is None and not is_waiting(rank.pid):
        time.sleep(0.001)
    sys.stdin.read()


def main():
    with tempfile.TemporaryDirectory() as sockets:   # the rank leaves its socket there
        with subprocess.Popen([sys.executable, __file__, "start", sys.argv[1]], env={**os.environ, "TMPDIR": sockets}, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as parent:
            rank = os.pidfd_open(int(parent.stdout.readline()))
            parent.stdin.close()
        if not select.select([rank], [], [], 20)[0]:
            sys.exit("the rank still waits")


if sys.argv[1] == "start":
    start(sys.argv[2])
else:
    main()
