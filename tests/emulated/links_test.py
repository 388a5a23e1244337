#!/usr/bin/env python3
"""Runs over a link that delays, loses and reorders packets, or is interrupted for 2 s: each ends with the digest of an undisturbed run.

    links_test.py WEFT EMULATED_LINK lossy|interrupted
"""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

WEFT, EMULATOR, WHICH = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
RUNS, AT_ONCE = 20, 4   # more of them would test a busy machine, not the link
STEPS, CUT_AFTER, CUT_MS = 8, 3, 2000
# Delay in ms, rate in Mbit/s, share of packets that are lost and that overtake others in percent.
CONDITIONS = {"lossy": [20, 50, 2, 5], "interrupted": [20, 50, 0, 0]}[WHICH]
# Rank 1 is beyond the link, so every message crosses it: 128 KiB forward and as much backward per micro-batch and cut.
TRAIN = [WEFT, "train", "mlp:layers=6,width=256", "--micro-batches", "3", "--micro-batch-size", "128", "--ranks", "3",
         "--steps", str(STEPS), "--seed", "1", "--json"]
SKIPPED = 77


def within(namespace, command):
    return ["nsenter", f"--net={namespace}", *command]


def finish(process):
    out, err = process.communicate(timeout=100)
    if process.returncode != 0:
        raise AssertionError(f"status {process.returncode}: {err.strip()}")
    return out


def digest(output):
    return json.loads(output.splitlines()[-1])["digest"]


def disturbed(seed):
    """The digest of a run over an emulated link."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([EMULATOR, *map(str, CONDITIONS), str(seed)], **pipes) as link:
        here, there = link.stdout.readline().strip(), link.stdout.readline().strip()
        if not there:
            raise PermissionError(link.stderr.read().strip())
        ranks = []
        try:
            zero = subprocess.Popen(within(here, [*TRAIN, "--external", "2", "--listen", "tcp://10.9.0.1:0"]), **pipes)
            ranks.append(zero)
            join = next((line for line in zero.stderr if "weft worker" in line), "")
            if not join:
                raise AssertionError("rank 0 does not say how to join it")
            worker = [WEFT, *shlex.split(join.split("weft worker", 1)[1].join(["worker", ""])), "--quiet"]
            ranks += [subprocess.Popen(within(side, [*worker, "--rank", rank]), **pipes) for rank, side in [("1", there), ("2", here)]]
            head = ""
            if WHICH == "interrupted":
                while f'"step":{CUT_AFTER},' not in head and (line := zero.stdout.readline()):
                    head += line
                link.stdin.write(f"cut {CUT_MS}\n")
                link.stdin.flush()
            out = head + finish(zero)
            for rank in ranks[1:]:
                finish(rank)
            return digest(out)
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                rank.communicate()
            link.stdin.close()


def main():
    expected = digest(subprocess.run([*TRAIN, "--in-process"], capture_output=True, text=True, check=True).stdout)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {pool.submit(disturbed, seed): seed for seed in range(RUNS)}
        for run in concurrent.futures.as_completed(runs):
            try:
                found = run.result()
            except PermissionError as error:
                print(f"skipped: this user cannot make network namespaces with TUN devices: {error}")
                pool.shutdown(cancel_futures=True)
                return SKIPPED
            except (AssertionError, subprocess.TimeoutExpired) as error:
                found = str(error)
            if found != expected:
                failed += 1
                print(f"seed {runs[run]}: expected digest {expected}, found {found}")
    print(f"{RUNS - failed} of {RUNS} runs ended with the digest of an undisturbed run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
