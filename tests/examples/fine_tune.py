#!/usr/bin/env python3
"""Runs the fine_tune example in two processes and in one: the losses fall, and both answer and export the same."""
import pathlib
import re
import subprocess
import sys
import tempfile


def lines(program, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        words = [*arguments[:3], f"{folder}/new", *arguments[3:]]
        done = subprocess.run([program, *words], stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout)
        if done.returncode != 0:
            sys.exit(f"exit code {done.returncode}")
        files = {path.name: path.read_bytes() for path in pathlib.Path(folder, "new-adapters").iterdir()}
        if sorted(files) != ["adapter_config.json", "adapter_model.safetensors"]:
            sys.exit(f"the adapters consist of {sorted(files)}")
        return done.stdout.splitlines(), files


def refused(program, base, *arguments):
    """A file of weights does not describe its model."""
    words = [f"{base}/model.safetensors", *arguments, "unused"]
    done = subprocess.run([program, *words], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 2 or "does not describe its model" not in done.stderr:
        sys.exit(f"a file of weights: exit code {done.returncode}, {done.stderr}")


def main():
    program, *arguments = sys.argv[1:]
    refused(program, *arguments)
    processes = lines(program, *arguments)
    losses = [float(loss) for loss in re.findall(r"^step \d+  loss (\S+)$", "\n".join(processes[0]), re.M)]
    if len(losses) != 4 or losses[-1] > losses[0] - 0.25:
        sys.exit(f"the losses are {losses}")
    if not re.fullmatch(r"klm=[a-z=0-9]{3}", processes[0][-1]):
        sys.exit(f"the text is '{processes[0][-1]}'")
    if lines(program, *arguments, "--in-process") != processes:
        sys.exit("the output depends on the number of processes")


main()
