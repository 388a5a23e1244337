"""Runs the command for the tests of it. The program is the first argument of the test script."""
import contextlib
import ctypes
import json
import os
import platform
import random
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

WEFT = os.path.abspath(sys.argv.pop(1))
# Small enough that a step takes milliseconds, large enough for four stages.
TINY = "gpt-nano:blocks=2,width=32,heads=2,context=16"
DRAWN = ["--data", "synthetic"]
STEP = [*DRAWN, "--micro-batches", "4", "--micro-batch-size", "2", "--seed", "1"]
TINY_STEP = [*STEP, "--in-process"]


def run(*args, **kwargs):
    kwargs.setdefault("timeout", 120)
    return subprocess.run([WEFT, *map(str, args)], capture_output=True, text=True, check=False, **kwargs)


def until(stream, text):
    """What the stream says up to the line that contains the text. Fails if it ends before."""
    said = ""
    for line in iter(stream.readline, ""):
        said += line
        if text in line:
            return said
    raise AssertionError(f"'{text}' is not in {said!r}")


STEP_LINE = '"event":"step"'

# What a system call does instead: fails with the number of an error, or ends the process with SIGSYS.
FAILS, ENDS = 0x50000, 0x80000000
LINKAT = {"x86_64": 265, "aarch64": 37}[platform.machine()]   # names a file that is complete


def change_calls(actions):
    """For a new process. By the numbers of the calls."""
    load, if_equal, result, passes = 0x20, 0x15, 0x06, 0x7fff0000
    steps = [(load, 0, 0, 0)]
    for number, action in actions.items():
        steps += [(if_equal, 0, 1, number), (result, 0, 0, action)]
    steps.append((result, 0, 0, passes))
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    filter_ = struct.pack("HP", len(steps), ctypes.addressof(program))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    libc, no_new_privileges, set_seccomp, by_filter = ctypes.CDLL(None, use_errno=True), 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) != 0 or libc.prctl(set_seccomp, by_filter, filter_) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(child) for child in file.read().split()]


def lines(output):
    return [json.loads(line) for line in output.splitlines()]


def last_line(output):
    """Of what communicate() returns after readline(), which reads ahead: the first line may be cut."""
    return json.loads(output.splitlines()[-1])


def free_port():
    """Outside the range from which the system chooses: another process could get a port of that range before it is used."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first_chosen = int(file.read().split()[0])
    while True:
        port = random.randrange(10000, max(first_chosen, 20000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def tensors_of(path):
    """Names, shapes and bytes of a safetensors file of f32 tensors."""
    with open(path, "rb") as file:
        header, data = json.loads(file.read(int.from_bytes(file.read(8), "little"))), file.read()
    header.pop("__metadata__", None)
    return {name: (t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]]) for name, t in header.items()}


def write_file(path, tensors, dtype="F32"):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="weft-cli-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def train(self, *args, status=0, **kwargs):
        """Trains with --json; returns the steps and the last line."""
        done = run("train", *args, "--json", **kwargs)
        self.assertEqual(done.returncode, status, done.stderr)
        out = lines(done.stdout)
        self.assertEqual(out[-1]["event"], "done")
        return [line for line in out if line["event"] == "step"], out[-1]

    def fails(self, status, text, *args, **kwargs):
        done = run(*args, **kwargs)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertIn(text, done.stderr)
        self.assertRegex(done.stderr, r"(?m)^weft: ")
        self.assertNotIn("terminate", done.stderr)
        self.assertEqual(done.stdout, "")
