"""What the tests of the binding share."""
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

import numpy as np

import weft

PACKAGE = pathlib.Path(weft.__file__).resolve().parent
ROOT = pathlib.Path(__file__).resolve().parents[3]


def sine(samples=64):
    """Inputs and targets of a small task."""
    x = np.linspace(-3, 3, samples, dtype=np.float32)[:, None]
    return x, np.sin(x)


def small_model(width=16):
    model = weft.Model()
    x, y = model.input("x", (1,), want_grad=True), model.input("y", (1,))
    out = model.output(x.linear(width, std=0.5, name="hidden").tanh().linear(1, name="out"))
    out.mse(y)
    return model


def small_plan(**options):
    return small_model().plan(**{"ranks": 2, "micro_batches": 4, "micro_batch_size": 16, "optimizer": weft.AdamW(0.02), **options})


def interrupt_when(armed, times):
    """A thread that sends SIGINT to this process so often, each time soon after `armed` is set."""
    def send():
        for _ in range(times):
            armed.wait()
            time.sleep(random.random() * 0.002)
            armed.clear()
            os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=send).start()


def python(code, *arguments, **options):
    """Starts another process with this package. faulthandler shows where it crashes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(pathlib.Path(__file__).parent)]), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", code, *arguments], env=environment, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)


class ProcessTest(unittest.TestCase):
    def passes(self, code, *arguments):
        """The output of a process that must end with status 0."""
        process = python(code, *arguments)
        out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, err)
        return out
