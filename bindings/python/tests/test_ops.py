"""Ops of the program: values, gradients, exceptions, and processes."""
import sys
import threading
import unittest
import unittest.mock

import numpy as np

import weft
from weft import _raw

from support import ProcessTest, sine


class Square(weft.Op):
    def forward(self, call):
        call.output[...] = call.inputs[0] ** 2

    def backward(self, call):
        call.grad_inputs[0][...] = 2 * call.inputs[0] * call.grad_output


class Scaled(weft.Op):
    """x * scale, with one scale per column, through a stash of another dtype: the sign of x."""
    name = "test.scaled"
    backward_reads = weft.OpReads.PARAMS | weft.OpReads.STASH
    backward_params_reads = weft.OpReads.INPUTS

    def stash(self, inputs, params):
        return weft.Shape(inputs[0].dims, "int32")

    def forward(self, call):
        (x,), (scale,) = call.inputs, call.params
        call.output[...] = x * scale
        call.stash[...] = np.sign(x)

    def backward(self, call):
        assert call.inputs == [None] and call.output is None
        assert set(np.unique(call.stash)) <= {-1, 0, 1}
        call.grad_inputs[0][...] = call.params[0] * call.grad_output

    def backward_params(self, call):
        call.grad_params[0][...] = (call.inputs[0] * call.grad_output).sum(0)


class Fails(Square):
    def __init__(self, method):
        self.method = method

    def fail(self, method):
        if method == self.method:
            raise KeyError("the reason")

    def shape(self, inputs, params):
        self.fail("shape")
        return inputs[0]

    def forward(self, call):
        self.fail("forward")
        super().forward(call)

    def backward(self, call):
        self.fail("backward")
        super().backward(call)


def plan_with(op, **options):
    model = weft.Model()
    x, y = model.input("x", (1,)), model.input("y", (1,))
    model.apply(op, x.linear(4, std=0.5, name="in")).linear(1, name="out").mse(y)
    return model.plan(micro_batches=4, micro_batch_size=16, **options)


class Values(unittest.TestCase):
    def gradients(self, with_op, threads=0):
        model = weft.Model()
        x, y = model.input("x", (1,), want_grad=True), model.input("y", (1,))
        h, scale = x.linear(4, std=0.5, name="in"), model.parameter("scale", (4,), "normal", 1.0)
        if with_op:
            h = model.apply(Square(), model.apply(Scaled(), h, params=[scale], name="scaled"))
        else:
            h = h * scale
            h = h * h
        h.linear(1, name="out").mse(y)
        with model.plan(ranks=2, micro_batches=4, micro_batch_size=16).run(threads=threads) as run:
            run.gradients(*sine())
            return {**run.parameters("grad"), "x": run.read("x", "grad")}

    def test_gradients_are_those_of_built_in_ops(self):
        expected = self.gradients(with_op=False)
        for threads in (0, 2):
            for name, found in self.gradients(with_op=True, threads=threads).items():
                np.testing.assert_allclose(found, expected[name], atol=1e-6, err_msg=name)

    def test_arrays_are_those_of_the_library(self):
        class Looks(Square):
            seen = []

            def forward(self, call):
                super().forward(call)
                self.seen.append((call.inputs[0].flags.writeable, call.output.flags.writeable, call.output.flags.owndata, call.output.dtype))

        with plan_with(Looks()).run() as run:
            run.evaluate(*sine())
        self.assertEqual(set(Looks.seen), {(False, True, False, np.dtype(np.float32))})

    def test_arrays_that_are_kept_are_empty_after_the_call(self):
        kept = []

        class Keeps(Scaled):
            def keep(self, call):
                kept.extend(x for x in (*call.inputs, *call.params, call.output, call.stash, call.grad_output, *call.grad_inputs, *call.grad_params)
                            if x is not None)

            def forward(self, call):
                super().forward(call)
                self.keep(call)

            def backward(self, call):
                super().backward(call)
                self.keep(call)

            def backward_params(self, call):
                self.keep(call)
                super().backward_params(call)

        model = weft.Model()
        x, y = model.input("x", (1,)), model.input("y", (1,))
        h = model.apply(Keeps(), x.linear(4, name="in"), params=[model.parameter("scale", (4,), "normal", 1.0)])
        h.linear(1, name="out").mse(y)
        with model.plan(micro_batches=4, micro_batch_size=16).run() as run:
            run.train(*sine())
        self.assertEqual(len(kept), 4 * (4 + 4 + 3))
        for array in kept:
            self.assertEqual((array.size, array.base), (0, None))
            with self.assertRaises(IndexError):
                array[0]

    def test_an_op_without_gradient(self):
        class Forward(weft.Op):
            def forward(self, call):
                call.output[...] = call.inputs[0]

        with self.assertRaisesRegex(weft.InvalidError, "gradient"):
            plan_with(Forward())


class Exceptions(ProcessTest):
    def test_an_exception_is_the_cause(self):
        for method in ("forward", "backward"):
            for threads in (0, 1):
                with self.subTest(method=method, threads=threads), plan_with(Fails(method)).run(threads=threads) as run:
                    with self.assertRaisesRegex(weft.CallbackError, "KeyError: 'the reason'") as caught:
                        run.train(*sine())
                    self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_an_exception_without_text(self):
        class Raises(Square):
            def forward(self, call):
                raise Silent

        for failure in (RuntimeError, KeyboardInterrupt, SystemExit):
            class Silent(Exception):
                def __str__(self):
                    raise failure

                def __bool__(self):
                    raise failure

            with plan_with(Raises()).run() as run:
                with self.subTest(failure), self.assertRaisesRegex(weft.CallbackError, "Silent") as caught:
                    run.train(*sine())
                self.assertIsInstance(caught.exception.__cause__, Silent)

    def test_a_text_with_a_nul_and_a_long_text(self):
        class Raises(Square):
            def __init__(self, text):
                self.text = text

            def forward(self, call):
                raise ValueError(self.text)

        for text, expected in (("before\0after", r"ValueError: before\\x00after$"), ("-" + "\u00fc" * 400, "ValueError: -\u00fc{243}$")):
            with self.subTest(text=text), plan_with(Raises(text)).run() as run, self.assertRaisesRegex(weft.CallbackError, expected):
                run.train(*sine())

    def test_an_exception_in_shape(self):
        with self.assertRaisesRegex(weft.CallbackError, "the reason") as caught:
            plan_with(Fails("shape"))
        self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_an_exception_in_shape_while_adapters_are_made(self):
        op, model = Fails(None), weft.Model()
        model.output(model.apply(op, model.input("x", (4,)).linear(4, name="in")).linear(1, name="out"))
        op.method = "shape"
        with self.assertRaisesRegex(weft.CallbackError, "the reason") as caught:
            model.adapt(targets=["all-linear"])
        self.assertIsInstance(caught.exception.__cause__, KeyError)

    def test_an_op_that_is_refused(self):
        model, first = weft.Model(), Square()
        model.op(first)
        with self.assertRaisesRegex(weft.InvalidError, "Square"):
            model.op(Square())   # there is one with the name
        x, refused = model.apply(first, model.input("x", (1,))), weft.Op()
        for _ in range(2):
            with self.assertRaisesRegex(weft.InvalidError, "forward is NULL"):
                model.apply(refused, x)

    def test_an_interrupt_after_an_op_is_added(self):
        add = _raw.weft_model_add_op

        def interrupted(*arguments):
            add(*arguments)
            raise KeyboardInterrupt

        model, square = weft.Model(), Square()
        with unittest.mock.patch.object(_raw, "weft_model_add_op", interrupted), self.assertRaises(KeyboardInterrupt):
            model.op(square)
        model.output(model.apply(square, model.input("x", (1,))))
        with model.plan(micro_batches=1).run() as run:
            np.testing.assert_array_equal(run.forward(np.full((4, 1), 3, np.float32)), np.full((4, 1), 9))

    def test_an_op_does_not_run_in_the_main_thread(self):
        class Where(Square):
            threads = set()

            def forward(self, call):
                self.threads.add(threading.get_ident())
                super().forward(call)

        with plan_with(Where()).run(threads=0) as run:
            run.train(*sine())
        self.assertEqual(len(Where.threads), 1)
        self.assertNotIn(threading.get_ident(), Where.threads)   # where Python raises KeyboardInterrupt

    def test_an_op_cannot_use_objects_whose_calls_may_wait_for_it(self):
        self.passes("""
import weft
from test_ops import Square, plan_with
from support import sine, small_plan
uses = {
    "digest": lambda: run.digest(), "read": lambda: run.read("in.weight"), "train": lambda: run.train(*sine()),
    "submit": lambda: run.submit(*sine()), "poll": lambda: run.poll(), "fileno": lambda: run.fileno(), "failure": lambda: run.failure,
    "close": lambda: run.close(), "generator": lambda: weft.Generator(run), "start": lambda: small_plan().run(), "open": lambda: weft.Checkpoint("file"),
}
refused = set()
class Uses(Square):
    def forward(self, call):
        super().forward(call)
        for name, use in uses.items():
            try:
                use()
            except weft.StateError as error:
                assert "cannot be used in an op" in str(error), error
                refused.add(name)
for threads in (0, 2):
    with plan_with(Uses()).run(threads=threads) as run:
        run.train(*sine())
        run.submit(*sine())
        assert list(run.events())[-1].kind == weft.EventKind.DONE
        run.digest()
    assert refused == set(uses), refused ^ set(uses)
    refused.clear()
class Fails(Square):
    def forward(self, call):
        run.digest()
with plan_with(Fails()).run() as run:
    try:
        run.train(*sine())
    except weft.CallbackError as error:
        assert isinstance(error.__cause__, weft.StateError)
    else:
        raise AssertionError
""")

    def test_a_callback_in_a_callback(self):
        self.passes("""
import ctypes, faulthandler, weft
faulthandler.dump_traceback_later(60, exit=True)   # a call that waits for its own end
from test_ops import Square, plan_with
from weft import _raw
from weft.events import _logging
from weft.ops import Registered
from support import sine
class Inner(Square):
    def shape(self, inputs, params):
        return (1,)
class Outer(Square):
    def forward(self, call):
        super().forward(call)
        inner(ctypes.addressof(_raw.weft_op_call()))
        log(int(weft.LogLevel.INFO), b"text", None)
        run.digest()
inner, log = Registered(Inner()).functions[0], _logging(lambda level, text: None)
with plan_with(Outer()).run() as run:
    try:
        run.train(*sine())
    except weft.CallbackError as error:
        assert isinstance(error.__cause__, weft.StateError), error.__cause__
    else:
        raise AssertionError
""")

    def test_an_op_that_exits(self):
        class Exits(Square):
            def forward(self, call):
                sys.exit("the reason")

        with plan_with(Exits()).run() as run:
            with self.assertRaisesRegex(weft.CallbackError, "SystemExit: the reason") as caught:
                run.train(*sine())
        self.assertIsInstance(caught.exception.__cause__, SystemExit)

    def test_the_process_may_end_while_an_op_runs(self):
        self.passes("""
import threading, time
from test_ops import Square, plan_with
from support import sine
began = threading.Event()
class Slow(Square):
    def forward(self, call):
        began.set()
        time.sleep(0.05)
        super().forward(call)
run = plan_with(Slow()).run(threads=1)
run.submit(*sine())
began.wait()
""")


class Processes(unittest.TestCase):
    def test_processes_have_the_ops(self):
        digests = set()
        for processes in (False, True):
            with weft.Run(plan_with(Square(), ranks=2), processes=processes) as run:
                run.train(*sine())
                digests.add(run.digest())
        self.assertEqual(len(digests), 1)

    def test_a_failure_in_another_process(self):
        model = weft.Model()
        x, y = model.input("x", (1,)), model.input("y", (1,))
        model.apply(Fails("forward"), x.linear(4, name="in"), name="there").linear(1, name="out").mse(y)
        run = weft.Run(model.plan(ranks=2, cuts=["there"], micro_batches=4, micro_batch_size=16), processes=True)
        with self.assertRaisesRegex(weft.CallbackError, "KeyError: 'the reason'") as caught:
            run.train(*sine())
        self.assertEqual(caught.exception.failure.rank, 1)
        run.close()


if __name__ == "__main__":
    unittest.main()
