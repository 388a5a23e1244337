"""Runs over processes."""
import contextlib
import os
import signal
import sys
import tempfile
import types
import unittest
from unittest import mock

import weft
from weft import Mesh
from weft.mesh import main_of

from support import ProcessTest, python, sine, small_plan


def digest_after(run, steps=3):
    for _ in range(steps):
        run.train(*sine())
    return run.digest()


@contextlib.contextmanager
def program_of_ranks(command):
    """Ranks as processes run this command of a shell."""
    with tempfile.TemporaryDirectory() as folder, mock.patch("sys.executable", os.path.join(folder, "python")):
        with open(sys.executable, "w") as file:
            file.write(f"#!/bin/sh\n{command}\n")
        os.chmod(sys.executable, 0o755)
        yield


class Processes(ProcessTest):
    def test_processes_give_the_digest_of_one_process(self):
        with small_plan().run() as run:
            expected = digest_after(run)
        with weft.Run(small_plan(), processes=True) as run:
            self.assertEqual(digest_after(run), expected)
            processes = run._ranks.processes
            self.assertEqual(run.forward(sine()[0]).shape, (64, 1))
        self.assertEqual([process.returncode for process in processes], [0])

    def test_a_process_may_join_by_itself(self):
        mesh = Mesh.listen("tcp://127.0.0.1:0", join_timeout_seconds=120)
        self.assertIn("?key=", mesh.join_endpoint)
        process = python("import sys; from weft.worker import main; sys.exit(main())", mesh.join_endpoint)
        with small_plan().run() as run:
            expected = digest_after(run)
        with weft.Run(small_plan(), mesh) as run:
            self.assertEqual(digest_after(run), expected)
        self.assertEqual((process.wait(), process.stdout.read(), process.stderr.read()), (0, "", ""))
        mesh.close()
        process.communicate()

    def test_a_lost_process_is_named(self):
        run = weft.Run(small_plan(), processes=True)
        run.train(*sine())
        killed = run._ranks.processes[0]
        killed.kill()
        with self.assertRaises(weft.PeerError) as caught:
            while True:
                run.train(*sine())
        self.assertEqual((caught.exception.failure.rank, caught.exception.failure.pid), (1, killed.pid))
        self.assertEqual(run.failure.cause, weft._types.Cause.CLOSED)
        self.assertIn(str(run.failure), str(caught.exception))
        self.assertRegex(str(run.failure), f"^rank 1 .stage 1, pid {killed.pid}")
        run.close()

    def test_a_process_that_does_not_join_is_reported(self):
        with program_of_ranks("exit 3"), self.assertRaisesRegex(weft.PeerError, "ended with status 3 before the run started"):
            weft.Run(small_plan(), processes=True)

    def test_poll_reports_a_process_that_does_not_join(self):
        with program_of_ranks("exit 3"), weft.Run(small_plan(), processes=True, wait=False) as run:
            with self.assertRaisesRegex(weft.PeerError, "ended with status 3 before the run started"):
                run.poll()

    def test_close_kills_processes_that_have_not_joined(self):
        with program_of_ranks("exec sleep 3600"):
            run = weft.Run(small_plan(), processes=True, wait=False)
            run.close()
        self.assertEqual([process.returncode for process in run._ranks.processes], [-signal.SIGKILL])

    def test_close_kills_a_process_that_does_not_end(self):
        run = weft.Run(small_plan(), processes=True)
        run._ranks.processes[0].send_signal(signal.SIGSTOP)
        with mock.patch("weft.mesh.END_TIME", 0), self.assertRaisesRegex(weft.PeerError, "ended with status -9"):
            run.close()

    def test_processes_end_if_rank_0_ends_before_the_run_starts(self):
        code = """
import os, weft
from support import small_plan

run = weft.Run(small_plan(), processes=True, wait=False)
os._exit(0)
"""
        process = python(code)
        out, err = process.communicate(timeout=240)   # the other process has this output as well
        self.assertEqual((process.returncode, out, err), (0, "", "weft.worker: the process of rank 0 has ended\n"))

    def test_a_program_without_a_guard_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write("""
import weft

class Same(weft.Op):
    def forward(self, call):
        call.output[...] = call.inputs[0]

model, same = weft.Model(), Same()
model.output(model.apply(same, model.apply(same, model.input("x", (1,)), name="a"), name="b"))
weft.Run(model.plan(ranks=2, cuts=["b"]), processes=True)
""")
            process = python("import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')", path)
            out, err = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 1, out + err)
        self.assertIn("if __name__ == \"__main__\":", err)
        self.assertIn("ended with status 1 before the run started", err)

    def test_a_program_may_be_a_module_of_a_package(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "package"))
            files = {"__init__.py": "", "same.py": "def same(array): return array", "program.py": """
import numpy as np, weft
from .same import same

class Same(weft.Op):
    def forward(self, call):
        call.output[...] = same(call.inputs[0])

if __name__ == "__main__":
    model, op = weft.Model(), Same()
    model.output(model.apply(op, model.apply(op, model.input("x", (1,)), name="a"), name="b"))
    plan = model.plan(ranks=2, cuts=["b"], micro_batches=1)
    with weft.Run(plan, processes=True) as run:
        print(run.forward(np.ones((4, 1))).sum())
"""}
            for name, text in files.items():
                with open(os.path.join(folder, "package", name), "w") as file:
                    file.write(text)
            as_option_m = "import runpy, sys; sys.path[0] = sys.argv[1]; runpy.run_module('package.program', run_name='__main__', alter_sys=True)"
            process = python(as_option_m, folder)
            out, err = process.communicate(timeout=240)
        self.assertEqual((process.returncode, out), (0, "4.0\n"), err)

    def test_an_op_without_a_file_is_refused(self):
        class Same(weft.Op):
            __module__ = "__main__"

        for file in (None, "<stdin>"):
            main = types.ModuleType("__main__")
            if file:
                main.__file__ = file
            with mock.patch.dict(sys.modules, {"__main__": main}), self.assertRaisesRegex(TypeError, "define it in a file"):
                main_of([Same()])

    def test_a_mesh_closes_its_run(self):
        run = weft.Run(small_plan(), processes=True)
        run._mesh.close()
        self.assertTrue(run.closed)

    def test_no_rank_joins(self):
        with Mesh.listen(join_timeout_seconds=0.2) as mesh:
            with self.assertRaisesRegex(weft.TimedOutError, "rank 1"):
                weft.Run(small_plan(), mesh)

    def test_log_lines(self):
        lines = []
        with weft.Run(small_plan(), processes=True, log=lambda level, text: lines.append((level, text))) as run:
            run.train(*sine())
        self.assertTrue(lines)
        self.assertEqual({level for level, _ in lines}, {weft.LogLevel.INFO})

    def test_keys(self):
        secret = weft.new_key()
        self.assertEqual((len(secret), len(weft.public_key(secret))), (64, 64))
        self.assertNotEqual(weft.new_key(), secret)


if __name__ == "__main__":
    unittest.main()
