"""No order of dropping objects, and no way of ending the process, uses memory after it was freed. Each case is a process."""
import unittest

from support import ProcessTest

BEGIN = """
import gc, sys, threading, numpy as np, weft
from support import sine, small_model, small_plan
"""


class Lifetimes(ProcessTest):
    def test_objects_may_be_dropped_in_any_order(self):
        self.passes(BEGIN + """
import itertools
for order in itertools.permutations(("model", "plan", "run")):
    model = small_model()
    plan = model.plan(micro_batches=4, micro_batch_size=16)
    objects = {"model": model, "plan": plan, "run": plan.run(threads=1)}
    objects["run"].submit(*sine())
    value, pending = model.input, objects["run"].events()
    del model, plan
    for name in order:
        del objects[name]
        gc.collect()
""")

    def test_objects_are_neither_copied_nor_pickled(self):
        self.passes(BEGIN + """
import copy, pickle
model = small_model()
run = model.plan().run()
for copied in copy.copy, copy.deepcopy, pickle.dumps:
    for item in model, run:
        try:
            copied(item)
        except TypeError as error:
            assert f"a {type(item).__name__} is memory of this process" in str(error), error
        else:
            raise AssertionError((copied, item))
""")

    def test_inputs_may_be_dropped_while_a_step_runs(self):
        self.passes(BEGIN + """
with small_plan().run(threads=1) as run:
    expected = run.evaluate(*sine())
    for _ in range(16):
        run.submit(*sine(), mode="eval")
    gc.collect()
    noise = [np.full((64, 1), np.nan, np.float32) for _ in range(1000)]
    assert {e.loss for e in run.events() if e.kind == weft.EventKind.DONE} == {expected}
""")

    def test_the_process_may_end_during_a_step(self):
        self.passes(BEGIN + """
model = weft.Model.preset("mlp:layers=4,width=512")
run = model.plan(ranks=2).run(threads=1)
x = np.zeros((32, 512), np.float32)
for _ in range(4):
    run.submit(x, x)
""")

    def test_the_process_may_end_while_another_thread_waits(self):
        self.passes(BEGIN + """
run = weft.Model.preset("mlp:layers=4,width=512").plan(ranks=2).run(threads=1)
x = np.zeros((32, 512), np.float32)
began = threading.Event()
def wait():
    for _ in range(4):
        run.submit(x, x)
    began.set()
    try:
        list(run.events())
    except ValueError:
        pass
threading.Thread(target=wait, daemon=True).start()
began.wait()
""")

    def test_a_run_may_be_closed_by_another_thread(self):
        self.passes(BEGIN + """
run = weft.Model.preset("mlp:layers=4,width=512").plan(ranks=2).run(threads=1)
x = np.zeros((32, 512), np.float32)
for _ in range(8):
    run.submit(x, x)
closer = threading.Thread(target=run.close)
closer.start()
try:
    list(run.events())
except ValueError as error:
    assert "the Run is closed" in str(error)
closer.join()
""")

    def test_a_forked_process_frees_nothing(self):
        self.passes(BEGIN + """
import os
run = small_plan().run(threads=1)
child = os.fork()
if child == 0:
    del run
    gc.collect()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
run.train(*sine())
""")

    def test_a_forked_process_may_close_a_run_that_another_thread_uses(self):
        self.passes(BEGIN + """
import os
run = weft.Run(small_plan(), weft.Mesh.listen(), wait=False)
held = threading.Event()
def hold():
    with run._lock:   # as a call of the library does
        held.set()
        forked.wait()
forked = threading.Event()
other = threading.Thread(target=hold)
other.start()
held.wait()
child = os.fork()
if child == 0:
    assert run.closed
    run.close()
    os._exit(0)
forked.set()
other.join()
assert os.waitpid(child, 0)[1] == 0 and not run.closed
""")

    def test_a_cycle_is_collected(self):
        self.passes(BEGIN + """
import weakref
run = small_plan().run(threads=1)
run.self = run
found = weakref.ref(run)
del run
gc.collect()
assert found() is None
""")

    def collected_in_a_callback(self, code):
        """`code` makes a run in a cycle, drops it, and waits until a callback of this run has collected it."""
        return self.passes(BEGIN + """
import weakref
from weft import _raw
from test_ops import Square, plan_with
gc.disable()   # only the callback collects
free, freed = _raw.weft_run_free, []
def counted(run):
    free(run)
    freed.append(threading.get_ident())
    print("freed")
_raw.weft_run_free = counted
began, dropped, collected = threading.Event(), threading.Event(), threading.Event()
def collect():
    began.set()
    dropped.wait()
    gc.collect()
    collected.set()
def drop(run):
    run.self = run
    return weakref.ref(run)
""" + code)

    OP = """
class Collects(Square):
    def forward(self, call):
        collect()
        super().forward(call)
run = plan_with(Collects()).run(threads=1)
run.submit(*sine())
began.wait()
found = drop(run)
del run
dropped.set()
collected.wait()
assert found() is None
"""

    def test_a_run_that_its_op_collects_is_freed_by_the_next_call(self):
        self.collected_in_a_callback(self.OP + """
assert not freed
weft.Model()
assert freed == [threading.get_ident()]
""")

    def test_a_run_that_its_op_collects_is_freed_at_exit(self):
        out = self.collected_in_a_callback(self.OP + "assert not freed")
        self.assertEqual(out, "freed\n")

    def test_a_run_that_its_log_function_collects(self):
        self.collected_in_a_callback("""
mesh = weft.Mesh.listen()
run = weft.Run(small_plan(), mesh, wait=False, log=lambda level, text: collect(), log_level="debug")
other = weft.Mesh.join(mesh.join_endpoint)
service = other._join(None, None, {})   # rank 0 logs that it has joined
began.wait()
found = drop(run)
del run
dropped.set()
collected.wait()
assert found() is None and not freed
mesh.close()
assert freed == [threading.get_ident()]
""")

    def test_an_object_that_another_thread_closes_during_a_call_is_freed_after_it(self):
        self.passes(BEGIN + """
from weft import _raw
from test_ops import Square
free, freed = _raw.weft_model_free, []
def counted(model):
    free(model)
    freed.append(1)
_raw.weft_model_free = counted
class Closes(Square):
    def shape(self, inputs, params):   # in a call that uses the model
        closer = threading.Thread(target=model.close)
        closer.start()
        closer.join()
        assert model.closed and not freed
        return inputs[0]
model = weft.Model()
x = model.input("x", (1,))
model.apply(Closes(), x)
assert freed == [1]
try:
    x.relu()
    assert False
except ValueError as error:
    assert str(error) == "the Model is closed"
""")

    OBSERVED = """
from weft import _raw
def in_another_thread(function):
    out = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    thread.join()
    return out[0]
def observed(name):
    function = getattr(_raw, name)
    def call(*arguments):
        assert not in_another_thread(lambda: used()._lock.acquire(blocking=False)), name
        seen.add(name)
        return function(*arguments)
    return call
def observe(*names):
    for name in names:
        setattr(_raw, name, observed(name))
seen = set()
"""

    def test_a_model_is_used_by_one_thread_at_a_time(self):
        self.passes(BEGIN + self.OBSERVED + """
import tempfile
from test_ops import Square
model = weft.Model()
def used():
    return model
observe(*("weft_model_" + name for name in ("adapt", "add_axis", "add_input", "add_node", "add_op", "add_output", "add_param", "cut_input", "cut_output",
                                            "cut_param", "describe", "parameters", "shape", "share_gradient")),
        "weft_plan_compare", "weft_plan_load", "weft_plan_new", "weft_profile_new", "weft_run_join")
x = model.apply(Square(), model.input("x", (4,))).linear(4, name="a")
model.output(x)
model.inputs, model.n_parameters, x.shape, model.adapt(targets=["a"])
weft.Profile(model, repeats=1), weft.compare(model)
with tempfile.TemporaryDirectory() as folder:
    model.plan().save(folder + "/plan")
    weft.Plan.load(model, folder + "/plan")
mesh = weft.Mesh.listen()
weft.Mesh.join(mesh.join_endpoint)._join(None, model, {}).close()
model = weft.Model()
model.axis("a", 2)
w = model.parameter("w", (8, 4)).cut(1, "a").share_gradient()
model.output(model.node("linear", model.input("x", (2, 8)).cut(1, "a", drop=True), params=[w]), cut=(1, "a"))
assert len(seen) == 19, seen
""")

    def test_a_mesh_is_used_by_one_thread_at_a_time(self):
        self.passes(BEGIN + self.OBSERVED + """
mesh = weft.Mesh.listen()
other = weft.Mesh.join(mesh.join_endpoint)
uses = [other, mesh]
def used():
    return uses.pop(0)
observe("weft_run_join", "weft_run_start")
service = other._join(None, None, {})
weft.Run(small_plan(), mesh).close()
assert len(seen) == 2
""")

    def test_threads_may_build_one_model(self):
        self.passes(BEGIN + """
model = weft.Model()
x = model.input("x", (8,))
def add(k):
    for i in range(500):
        x.linear(8, name=f"{k}.{i}")
        if i % 50 == 0:
            model.parameters
threads = [threading.Thread(target=add, args=(k,)) for k in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert {item.name for item in model.nodes} == {f"{k}.{i}" for k in range(4) for i in range(500)}
""")

    def test_an_op_cannot_use_its_model(self):
        self.passes(BEGIN + """
from test_ops import Square
def refused(call):
    try:
        call()
    except weft.CallbackError as error:
        assert str(error.__cause__) == "a Model cannot be used in an op, a log function or `choose`", error.__cause__
    else:
        raise AssertionError
class Forward(Square):
    def forward(self, call):
        model.inputs
class Shape(Square):
    def shape(self, inputs, params):
        model.input("z", (1,))
model = weft.Model()
refused(lambda: model.apply(Shape(), model.input("x", (1,))))
model.output(model.apply(Forward(), model.input("y", (1,))))
for threads in (1, 2):
    refused(lambda: weft.Profile(model, threads=threads))
""")

    def test_a_checkpoint_is_used_by_one_thread_at_a_time(self):
        self.passes(BEGIN + self.OBSERVED + """
import tempfile
def used():
    return checkpoint
observe("weft_checkpoint_digest", "weft_checkpoint_export_as", "weft_run_load", "weft_checkpoint_free")
with tempfile.TemporaryDirectory() as folder, small_plan().run() as run:
    run.save(folder + "/out")
    checkpoint = weft.Checkpoint(folder + "/out")
    checkpoint.digest()
    checkpoint.export(folder + "/file.safetensors")
    run.load(checkpoint)
    checkpoint.close()
assert len(seen) == 4
""")


if __name__ == "__main__":
    unittest.main()
