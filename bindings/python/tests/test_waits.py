"""Waits release the GIL, and KeyboardInterrupt ends them."""
import ctypes
import signal
import threading
import unittest

import numpy as np

import weft
from weft import _raw

from support import ProcessTest, python

# Takes seconds: the signal arrives during the first steps.
LONG = """
import numpy as np, weft
run = weft.Model.preset("mlp:layers=8,width=1024").plan(ranks=2, micro_batch_size=64).run(threads={threads})
x = np.zeros((512, 1024), np.float32)
"""


class Gil(unittest.TestCase):
    def test_python_runs_in_another_thread_during_one_call_of_the_library(self):
        class Square(weft.Op):
            threads = set()

            def forward(self, call):
                self.threads.add(threading.get_ident())
                call.output[...] = call.inputs[0] ** 2

        model = weft.Model()
        model.output(model.apply(Square(), model.input("x", (1,))))
        with model.plan(micro_batches=1).run(threads=1) as run:
            run.submit(np.ones((4, 1), np.float32), mode="forward")
            # It returns after the op. If it held the GIL, the op would wait for it.
            found = _raw.weft_run_poll(run._ptr, ctypes.byref(run._event), -1, None)
            self.assertEqual((found, run._event.kind), (1, weft.EventKind.MICRO_BATCH))
        self.assertEqual(len(Square.threads - {threading.get_ident()}), 1)


class Interrupt(ProcessTest):
    def interrupted(self, code):
        """Sends SIGINT when the process prints "waiting"; it must then print "interrupted" and end."""
        process = python(code)
        try:
            self.assertEqual(process.stdout.readline(), "waiting\n", process.poll() is not None and process.stderr.read())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=240)
        finally:
            process.kill()
        self.assertEqual((process.returncode, out.splitlines()[:1]), (0, ["interrupted"]), err)
        return out

    def steps(self, threads):
        out = self.interrupted(LONG.format(threads=threads) + """
for _ in range(16):
    run.submit(x, x)
try:
    print("waiting", flush=True)
    for event in run.events():
        pass
except KeyboardInterrupt:
    print("interrupted")
    print(run.pending)
""")
        self.assertGreater(int(out.splitlines()[1]), 0)   # the steps were not waited for

    def test_a_wait_for_events_of_threads(self):
        self.steps(1)

    def test_a_wait_that_computes(self):
        self.steps(0)

    def test_a_run_can_be_used_after_an_interrupted_step(self):
        self.interrupted(LONG.format(threads=1) + """
loss = run.evaluate(x, x)
try:
    print("waiting", flush=True)
    while True:
        run.evaluate(x, x)
except KeyboardInterrupt:
    print("interrupted")
assert run.evaluate(x, x) == loss
assert run.pending == 0
""")

    def test_interrupts_at_any_moment_lose_no_step(self):
        for plan, threads in (("small_plan()", 0), ("small_plan()", 1), ("plan_with(Square())", 0)):
            self.passes(f"""
import threading
from support import interrupt_when, sine, small_plan
from test_ops import Square, plan_with
run = {plan}.run(threads={threads})
loss, armed, count = run.evaluate(*sine()), threading.Event(), 0
interrupt_when(armed, 200)
while count < 200:
    try:
        armed.set()
        while True:
            assert run.evaluate(*sine()) == loss
    except KeyboardInterrupt:
        count += 1
assert run.evaluate(*sine()) == loss and run.pending == 0
""")

    def test_the_start_of_a_run_over_processes(self):
        self.interrupted("""
import weft
from support import small_plan
plan, mesh = small_plan(), weft.Mesh.listen()
try:
    print("waiting", flush=True)
    weft.Run(plan, mesh)   # no process joins
except KeyboardInterrupt:
    print("interrupted")
""")

    def test_the_start_of_the_processes_of_a_run(self):
        self.interrupted("""
import os, sys, tempfile, weft
from support import small_plan
with tempfile.TemporaryDirectory() as folder:
    sys.executable = os.path.join(folder, "python")   # a process that does not join
    with open(sys.executable, "w") as file:
        file.write("#!/bin/sh\\nexec sleep 1000\\n")
    os.chmod(sys.executable, 0o755)
    try:
        print("waiting", flush=True)
        weft.Run(small_plan(), processes=True)
    except KeyboardInterrupt:
        print("interrupted")
""")

    def test_a_process_that_serves(self):
        self.interrupted("""
import weft
rank0 = weft.Mesh.listen()
mesh = weft.Mesh.join(rank0.join_endpoint)
try:
    print("waiting", flush=True)
    mesh.serve()   # the run does not start
except KeyboardInterrupt:
    print("interrupted")
""")


if __name__ == "__main__":
    unittest.main()
