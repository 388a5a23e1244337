"""Steps, events, parameters and files of runs in this process."""
import array
import os
import pathlib
import tempfile
import threading
import unittest

import numpy as np

import weft

from support import sine, small_model, small_plan


class Steps(unittest.TestCase):
    def test_training_has_the_losses_of_the_c_program(self):
        model = weft.Model()
        x, y = model.input("x", (1,)), model.input("y", (1,))
        x.linear(32, name="hidden").gelu().linear(1, name="out").mse(y)
        plan = model.plan(ranks=2, micro_batches=4, micro_batch_size=16, optimizer=weft.AdamW(0.02, curve="cosine", total=500, clip=0))
        xs = np.arange(64, dtype=np.float32)[:, None] / np.float32(10) - np.float32(3.2)
        with plan.run() as run:
            losses = [run.train(xs, np.sin(xs)) for _ in range(101)]
        self.assertEqual([f"{losses[i]:.6f}" for i in (0, 100)], ["0.491866", "0.082035"])   # README.md

    def test_the_result_does_not_depend_on_ranks_and_threads(self):
        digests = set()
        for options, threads in (({"ranks": 1}, 0), ({"ranks": 2, "schedule": "gpipe"}, 0), ({"ranks": 2}, 2)):
            with small_plan(**options).run(threads=threads) as run:
                for _ in range(3):
                    run.train(*sine())
                digests.add((run.digest(), run.optimizer_digest()))
        self.assertEqual(len(digests), 1)

    def test_the_last_loss_may_be_zero(self):
        x, y = sine()
        with small_plan().run() as run:
            self.assertIsNone(run.last_loss)
            run.train(x, y)
            self.assertGreater(run.last_loss, 0)
            for name in ("out.weight", "out.bias"):
                run.write(name, np.zeros_like(run.read(name)))
            self.assertEqual(run.evaluate(x, np.zeros_like(y)), 0)
            self.assertEqual(run.last_loss, 0)
            run.evaluate(x, y)
            last = run.last_loss
            run.forward(x)
            self.assertEqual(run.last_loss, last)
            self.assertGreater(last, 0)

    def test_a_rate_that_is_set_replaces_that_of_the_plan(self):
        x, y = sine()
        with small_plan().run() as run:
            before = run.digest()
            run.set_rate(0)
            run.train(x, y)
            self.assertEqual(run.digest(), before)
            run.set_rate(0.1)
            run.train(x, y)
            self.assertNotEqual(run.digest(), before)
            with self.assertRaisesRegex(weft.InvalidError, "rate is -1, expected"):
                run.set_rate(-1)

    def test_inputs_by_name(self):
        x, y = sine()
        with small_plan().run() as run:
            self.assertEqual(run.evaluate(y=y, x=x), run.evaluate(x, y))
            self.assertEqual(run.evaluate(x, y=y), run.evaluate(x, y))
            for arguments, named, text in (((x,), {}, "'y' is missing"), ((x, y), {"x": x}, "'x' is given twice"), ((x, y, y), {}, "got 3 inputs"),
                                           ((x, y), {"z": x}, "'z' is not an input")):
                with self.assertRaisesRegex(TypeError, text):
                    run.train(*arguments, **named)
            with self.assertRaisesRegex(weft.InvalidError, "input 'x' expects"):
                run.train(np.zeros((64, 2), np.float32), y)
            self.assertEqual(run.pending, 0)

    def test_forward_returns_all_outputs(self):
        x, y = sine()
        with small_plan(short_size=4).run(threads=1) as run:
            weights = run.parameters()
            expected = np.tanh(x @ weights["hidden.weight"] + weights["hidden.bias"]) @ weights["out.weight"] + weights["out.bias"]
            np.testing.assert_allclose(run.forward(x), expected, atol=1e-5)
            self.assertEqual(run.forward(x[:20]).shape, (20, 1))
            out = np.full((64, 1), np.nan, np.float32)
            self.assertIs(run.forward(x, out=[out]), out)
            self.assertIs(run.forward(x, out=out), out)
            np.testing.assert_array_equal(out, run.forward(x))
            for wrong in ([], [out, out], [out[:63]], out[:63], [np.zeros((64, 8), np.float32)], [np.zeros((64, 1), np.int32)]):
                with self.assertRaisesRegex(ValueError, "outputs|expected float32 .64, 1."):
                    run.forward(x, out=wrong)
            self.assertEqual(run.pending, 0)

    def test_a_sample_may_have_several_rows_of_an_output(self):
        x = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
        rows, whole = x.reshape(8, 3), x.reshape(4, 6)

        def plan(*shapes):
            model = weft.Model()
            value, y = model.input("x", (2, 3)), model.input("y", (6,))
            for shape in shapes:
                model.output(value.reshape(*shape))
            value.reshape(-1, 6).linear(6).mse(y)
            kinds = weft.StepKinds
            return model.plan(micro_batches=2, micro_batch_size=2, step_kinds=kinds.EVAL | kinds.EVAL_OUTPUTS | kinds.FORWARD)

        with plan((-1, 3)).run() as run:
            np.testing.assert_array_equal(run.forward(x), rows)
        with plan((-1, 3), (-1, 6)).run() as run:
            for found in run.forward(x), run.step_outputs(x, whole, mode="eval")[1]:
                for array, expected in zip(found, (rows, whole)):
                    np.testing.assert_array_equal(array, expected)
            out = [np.empty((8, 3), np.float32), np.empty((4, 6), np.float32)]
            run.forward(x, out=out)
            np.testing.assert_array_equal(out[0], rows)
            np.testing.assert_array_equal(out[1], whole)
            with self.assertRaisesRegex(ValueError, "expected float32 .8, 3."):
                run.forward(x, out=[np.empty((4, 3), np.float32), out[1]])

    def test_training_steps_can_deliver_outputs(self):
        x, y = sine()
        kinds = weft.StepKinds
        with small_plan(step_kinds=kinds.TRAIN | kinds.TRAIN_OUTPUTS | kinds.EVAL | kinds.FORWARD).run(threads=1) as run:
            weights, expected = run.parameters(), run.forward(x)
            hidden = np.tanh(x @ weights["hidden.weight"] + weights["hidden.bias"])
            np.testing.assert_allclose(expected, hidden @ weights["out.weight"] + weights["out.bias"], atol=1e-5)
            loss, outputs = run.step_outputs(x, y)
            np.testing.assert_array_equal(outputs, expected)
            self.assertAlmostEqual(loss, np.mean((expected - y) ** 2), places=5)
            self.assertFalse(np.array_equal(run.forward(x), expected))
            with self.assertRaisesRegex(weft.StateError, "no outputs of steps of mode EVAL"):
                run.step_outputs(x, y, mode="eval")

    def test_gradients(self):
        x, y = sine()
        y += 1
        with small_plan(optimizer=weft.SGD(0.5, clip=0)).run() as run:
            loss = run.gradients(x, y)
            before, gradient = run.read("out.bias"), run.read("out.bias", "grad")
            self.assertEqual(run.read("x", "grad").shape, (64, 1))
            np.testing.assert_allclose(gradient, [2 * np.mean(run.forward(x) - y)], rtol=1e-4)
            self.assertEqual(run.train(x, y), loss)
            np.testing.assert_allclose(run.read("out.bias"), before - 0.5 * gradient, rtol=1e-6)

    def test_events(self):
        x, y = sine()
        with small_plan().run(threads=1) as run:
            self.assertIsNone(run.poll())
            first, second = run.submit(x, y, tag=7), run.submit(x, mode="forward")
            self.assertEqual((first, run.pending), (7, 2))
            events = list(run.events())
            self.assertEqual([e.kind.name for e in events], (["MICRO_BATCH"] * 4 + ["DONE"]) * 2)
            self.assertEqual([e.tag for e in events], [7] * 5 + [second] * 5)
            self.assertEqual([e.micro_batch for e in events[:4]], [0, 1, 2, 3])
            self.assertEqual([len(e.outputs) for e in events], [0] * 5 + [1] * 4 + [0])
            outputs = np.concatenate([e.outputs[0] for e in events[5:9]])
            np.testing.assert_array_equal(outputs, run.forward(x))   # copies: a later poll does not change them
            self.assertEqual(len(events[4].idle_by_rank), 2)
            self.assertAlmostEqual(events[4].loss, np.mean([e.loss for e in events[:4]]), places=6)

    def test_a_full_queue(self):
        with small_plan().run() as run:
            for _ in range(16):
                run.submit(*sine())
            with self.assertRaises(weft.QueueFullError):
                run.submit(*sine())
            with self.assertRaisesRegex(weft.StateError, "16 steps"):
                run.train(*sine())
            self.assertEqual(sum(e.kind == weft.EventKind.DONE for e in run.events()), 16)

    def test_an_index_outside_of_its_table_is_refused_and_the_run_goes_on(self):
        model = weft.Model()
        ids, y = model.input("ids", (2,), "int32"), model.input("y", (2, 4))
        ids.embedding(10, 4).mse(y)
        with model.plan(ranks=1, micro_batches=1).run() as run:
            with self.assertRaisesRegex(weft.DataError, "input 'ids': node .* input 0: element 0 is 10, expected 0 to 9"):
                run.train(np.full((4, 2), 10), np.zeros((4, 2, 4)))
            self.assertGreater(run.train(np.full((4, 2), 9), np.zeros((4, 2, 4))), 0)

    def test_a_failed_run_raises_its_failure(self):
        model = weft.Model()
        ids, y = model.input("ids", (2,), "int32"), model.input("y", (2, 4))
        ids.reshape(-1, 2).embedding(10, 4).mse(y)   # indices that a node computes are not checked before the step
        with model.plan(ranks=1, micro_batches=1).run() as run:
            with self.assertRaisesRegex(weft.DataError, "10") as caught:
                run.train(np.full((4, 2), 10), np.zeros((4, 2, 4)))
            self.assertEqual((caught.exception.failure.rank, run.failure.rank), (0, 0))
            self.assertEqual((run.failure.heard_seconds, run.failure.reported_seconds), (-1, -1))   # unknown: it is this process
            self.assertIn(str(run.failure), str(caught.exception))
            with self.assertRaises(weft.DataError):
                run.digest()


class Threads(unittest.TestCase):
    def test_calls_of_threads_do_not_take_the_events_of_each_other(self):
        x, y = sine()
        for threads in (0, 1):
            with small_plan().run(threads=threads) as run:
                loss, digest, done = run.evaluate(x, y), run.digest(), threading.Event()
                found = set()

                def look():
                    while not done.is_set():
                        found.update({run.digest(), run.poll(0), run.forward(x).tobytes()})

                other = threading.Thread(target=look)
                other.start()
                try:
                    losses = {run.evaluate(x, y) for _ in range(200)}
                finally:
                    done.set()
                    other.join()
                self.assertEqual((losses, found), ({loss}, {digest, None, run.forward(x).tobytes()}))

    def test_the_end_of_an_interrupted_step_keeps_the_events_of_others(self):
        x, y = sine()
        with small_plan().run() as run:
            with run._owned() as tag:   # a step of a call that is interrupted
                self.assertTrue(run._begun(0, run._arrays((x, y), {}, weft.StepMode.EVAL), weft.StepMode.EVAL, tag))
                run.submit(x, mode="forward", tag=7)
            with self.assertRaises(weft.StateError):   # it has waited for the end of the step that was left
                run.digest()
            events = list(run.events())
            self.assertEqual([event.tag for event in events], [7] * 5)
            np.testing.assert_array_equal(np.concatenate([e.outputs[0] for e in events[:4]]), run.forward(x))


class Arrays(unittest.TestCase):
    def same_memory(self, value, code=weft.DType.F32):
        from weft.arrays import as_array
        return as_array(value, code).ctypes.data

    def test_buffers_are_not_copied(self):
        base = np.zeros((4, 3), np.float32)
        self.assertEqual(self.same_memory(base), base.ctypes.data)
        self.assertEqual(self.same_memory(base[1:3]), base[1:3].ctypes.data)
        self.assertEqual(self.same_memory(memoryview(base)), base.ctypes.data)
        numbers = array.array("f", range(4))
        self.assertEqual(self.same_memory(numbers), numbers.buffer_info()[0])
        self.assertEqual(self.same_memory(np.zeros(3, np.int32), weft.DType.I32) % 4, 0)

    def test_dlpack_is_not_copied(self):
        base = np.arange(6, dtype=np.float32)

        class Exporter:   # of another library: it has no buffer
            def __dlpack__(self, **options):
                return base.__dlpack__(**options)

            def __dlpack_device__(self):
                return base.__dlpack_device__()

        self.assertEqual(self.same_memory(Exporter()), base.ctypes.data)

        class Trained(Exporter):   # as torch.nn.Parameter
            requires_grad = True

            def __dlpack__(self, **options):
                raise RuntimeError("Can't export tensors that require gradient")

            def detach(self):
                return Exporter()

        self.assertEqual(self.same_memory(Trained()), base.ctypes.data)

    def test_dlpack_of_another_dtype_is_refused(self):
        from weft.arrays import as_array

        class Bfloat16:
            dtype = "torch.bfloat16"

            def __dlpack__(self, **options):
                raise RuntimeError("Unsupported dtype in DLTensor.")

            def __dlpack_device__(self):
                return (1, 0)

        with self.assertRaisesRegex(TypeError, "a Bfloat16 of torch.bfloat16 as an array: Unsupported dtype"):
            as_array(Bfloat16())

    def test_torch_is_not_copied(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        tensor = torch.zeros(4, 3)
        self.assertEqual(self.same_memory(tensor), tensor.data_ptr())
        x, y = (torch.from_numpy(a) for a in sine())
        with small_plan().run() as run:
            self.assertEqual(run.evaluate(x, y), run.evaluate(*sine()))
            self.assertEqual(torch.from_numpy(run.forward(x)).shape, (64, 1))
            out = torch.zeros(64, 1)
            run.forward(x, out=[out.numpy()])
            self.assertGreater(out.abs().max().item(), 0)

    def test_conversions(self):
        from weft.arrays import as_array
        base = np.arange(6.0).reshape(2, 3)
        self.assertEqual(as_array(base, weft.DType.F32).dtype, np.float32)
        self.assertEqual(as_array([[1, 2]], weft.DType.I32).dtype, np.int32)
        self.assertTrue(as_array(base.T.astype(np.float32), weft.DType.F32).flags.c_contiguous)
        with self.assertRaisesRegex(OverflowError, "int32"):
            as_array([2**31], weft.DType.I32)
        with self.assertRaisesRegex(TypeError, "expected an array of int32, got float64"):
            as_array(base, weft.DType.I32)

    def test_the_library_reads_the_memory_of_the_array(self):
        x, y = sine()
        with small_plan().run() as run:
            before = run.evaluate(x, y)
            run.submit(x, y, mode="eval")
            x[:] = 0   # the step has not begun: without threads, poll() computes
            event = [e for e in run.events()][-1]
            self.assertNotEqual(event.loss, before)

    def test_outputs_of_another_shape_are_refused(self):
        with small_plan().run() as run:
            with self.assertRaises(weft.InvalidError):
                run.read("out.weight", out=np.zeros(3, np.float32))
            with self.assertRaisesRegex(ValueError, "contiguous"):
                run.read("out.weight", out=np.zeros((16, 2), np.float32)[:, :1])
            fixed = np.zeros((16, 1), np.float32)
            fixed.flags.writeable = False
            with self.assertRaisesRegex(ValueError, "read-only"):
                run.read("out.weight", out=fixed)
            self.assertFalse(fixed.any())


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_run_continues_from_a_checkpoint(self):
        x, y = sine()
        with small_plan().run() as run:
            run.train(x, y)
            run.save(self.folder / "out", options={"note": "first"})
            run.train(x, y)
            digest = run.digest()
        with small_plan(ranks=1).run(threads=1) as run:
            run.load(self.folder / "out")
            run.train(x, y)
            self.assertEqual(run.digest(), digest)
        with weft.Checkpoint(self.folder / "out") as checkpoint:
            self.assertEqual((checkpoint.info.step, checkpoint.info.options), (1, {"note": "first"}))
            self.assertEqual(checkpoint.tensors["out.weight"].shape, (16, 1))
            with small_plan().run() as run:
                run.load(checkpoint, "weights")
                self.assertEqual(run.digest(), checkpoint.digest())
                run.write("out.weight", np.full((16, 1), 7))
                for kept in ("out.weight", ["out.w*", "*.bias"]):
                    run.load(checkpoint, kept=kept)
                    self.assertEqual(run.read("out.weight").tolist(), [[7]] * 16)
                with self.assertRaisesRegex(weft.NotFoundError, "pattern 'head' matches no parameter"):
                    run.load(checkpoint, kept="head")
                with self.assertRaisesRegex(ValueError, "kept requires what='weights'"):
                    run.load(checkpoint, "all", kept="out.*")
            checkpoint.export(self.folder / "weights.safetensors")
            checkpoint.export(self.folder / "rounded.safetensors", dtype="bf16", shard_bytes=1 << 20)
            with self.assertRaisesRegex(weft.Error, "/none: "):
                checkpoint.export(self.folder / "joined.safetensors", adapters=self.folder / "none")
            self.assertIsNone(checkpoint.info.source)
        self.assertEqual(weft.Checkpoint(self.folder / "weights.safetensors").info.weights_only, 1)
        self.assertEqual(weft.Checkpoint(self.folder / "rounded.safetensors").tensors["out.weight"].dtype, "BF16")
        (self.folder / "model").mkdir()
        (self.folder / "model" / "generation_config.json").write_text('{"eos_token_id": [2, 5]}')
        weft.keep_source(self.folder / "out", self.folder / "model")
        info = weft.Checkpoint(self.folder / "out").info
        self.assertEqual(os.path.realpath(info.source), os.path.realpath(self.folder / "out" / "source"))
        self.assertEqual(list(info.ends), [2, 5])
        with self.assertRaises(weft.NotFoundError):
            weft.keep_source(self.folder / "out", tokenizer=self.folder / "none.json")

    def test_a_queued_save(self):
        with small_plan().run() as run:
            run.submit(*sine())
            tag = run.save(self.folder / "out", queue=True)
            run.submit(*sine())
            saved = [e for e in run.events() if e.kind == weft.EventKind.SAVED]
            self.assertEqual([(e.tag, e.step) for e in saved], [(tag, 1)])
            self.assertTrue(saved[0].path.endswith("step-00000001"))
            run.export(self.folder / "weights.safetensors")

    def test_parameters_can_be_written(self):
        with small_plan().run() as run, small_plan(seed=1).run() as other:
            self.assertNotEqual(run.digest(), other.digest())
            for name, value in run.parameters().items():
                other.write(name, value)
            self.assertEqual(run.digest(), other.digest())

    def test_the_measured_timeline(self):
        with small_plan().run(threads=1) as run:
            run.record()
            run.train(*sine())
            self.assertIn("1F0", run.timeline().svg())

    def test_the_profile_of_a_run(self):
        profile = weft.Profile(small_model(), micro_batch_size=16, repeats=2)
        with small_plan().run(threads=1) as run:
            run.record()
            for _ in range(6):
                run.train(*sine())
            measured = run.profile(profile)
        self.assertEqual([node.name for node in measured.nodes], [node.name for node in profile.nodes])
        self.assertGreater(small_model().plan(micro_batch_size=16, profile=measured).predict().info.step_seconds, 0)

    def test_data(self):
        (self.folder / "text").write_bytes(bytes(range(256)) * 4)
        data = weft.Data(self.folder / "text", vocabulary=256, seq_len=16, eval_share=0.25)
        x, target = data.sample(seed=1, step=0, samples=3)
        self.assertEqual((x.shape, x.dtype), ((3, 16), np.int32))
        np.testing.assert_array_equal(x[:, 1:], target[:, :-1])
        self.assertEqual(data.eval(0, 2)[0].shape, (2, 16))
        self.assertGreater(data.eval_windows, 1)


if __name__ == "__main__":
    unittest.main()
