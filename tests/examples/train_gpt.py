#!/usr/bin/env python3
"""Runs the train_gpt example in two processes and in one: the losses fall, and both generate the same text from their checkpoints."""
import pathlib
import re
import subprocess
import sys
import tempfile


def lines(program, file, *where):
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "saved"
        done = subprocess.run([program, file, saved, *where], stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        if done.returncode != 0:
            sys.exit(f"exit code {done.returncode}")
        if [path.name for path in sorted(saved.iterdir())] != ["latest", "step-00000040"]:
            sys.exit(f"the checkpoint consists of {[path.name for path in saved.iterdir()]}")
        return done.stdout.splitlines()


def main():
    program, file = sys.argv[1:]
    processes = lines(program, file)
    losses = [float(loss) for loss in re.findall(r"^step \d+  loss (\S+)$", "\n".join(processes), re.M)]
    if len(losses) != 4 or losses[-1] > losses[0] - 0.5:
        sys.exit(f"the losses are {losses}")
    if not re.fullmatch(r"T.{60}", processes[-1]):
        sys.exit(f"the text is '{processes[-1]}'")
    if lines(program, file, "--in-process") != processes:
        sys.exit("the output depends on the number of processes")


main()
