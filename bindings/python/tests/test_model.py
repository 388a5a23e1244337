"""Models: every op has a method, shapes are inferred, and errors are exceptions with the text of the library."""
import re
import unittest

import numpy as np
import weft
from weft.value import Value

from support import ROOT, small_model


class Ops(unittest.TestCase):
    def test_every_op_and_collective_has_a_method(self):
        for table, macro in (("ops.def", "WEFT_OP"), ("collectives.def", "WEFT_COLLECTIVE")):
            names = re.findall(macro + r"\((\w+)\)$", (ROOT / "src" / "ops" / table).read_text(encoding="utf-8"), re.M)
            self.assertGreater(len(names), 5)
            operators = {"add": "__add__", "sub": "__sub__", "mul": "__mul__", "div": "__truediv__"}
            for name in names:
                home = weft.Model if name == "concat" else Value
                self.assertTrue(hasattr(home, operators.get(name, name)), name)

    def test_shapes(self):
        model = weft.Model()
        x, ids = model.input("x", (6, 8)), model.input("ids", (6,), "int32")
        self.assertEqual((x.shape, x.dtype, ids.shape, ids.dtype), ((1, 6, 8), "float32", (1, 6), "int32"))
        table = ids.embedding(10, 8)
        cases = {
            "operators": (((x + table) * table - x) / table, (1, 6, 8)),
            "scalars": (-(2 * x * 3) / 4, (1, 6, 8)),
            "parameters": (x + model.parameter("shift", (8,)), (1, 6, 8)),
            "positions": (ids.embedding(6, 8, positions=True), (1, 6, 8)),
            "matmul": (x @ x.transpose(0, 2, 1), (1, 6, 6)),
            "mean": (x.mean(), (1, 6)),
            "sum over two axes": (x.sum((1, 2)), (1,)),
            "max": (x.max(1), (1, 8)),
            "slice": (x.slice(-1, 2, 5), (1, 6, 3)),
            "concat": (model.concat([x, table]), (1, 6, 16)),
            "reshape": (x.reshape(-1, 48), (1, 48)),
            "attention": (x.linear(24).attention(4, causal=True), (1, 6, 8)),
            "separate attention": (model.attention(x, x, table, heads=2), (1, 6, 8)),
            "attention to other rows": (model.attention(x, x.slice(1, 0, 4), x.slice(1, 0, 4), heads=2), (1, 6, 8)),
            "masked attention": (x.linear(24).attention(4, mask=ids), (1, 6, 8)),
            "masked attention to other rows": (model.attention(x.slice(1, 0, 2), x, x, heads=2, mask=ids), (1, 2, 8)),
            "conv1d": (x.conv1d(5, 3, padding=1, stride=2), (1, 3, 5)),
            "conv2d": (x.reshape(-1, 6, 4, 2).conv2d(4, (3, 1), groups=2, bias=False), (1, 4, 4, 4)),
            "max_pool": (x.reshape(-1, 6, 4, 2).max_pool(2), (1, 3, 2, 2)),
            "average_pool": (x.reshape(-1, 6, 4, 2).average_pool(2, 1), (1, 5, 3, 2)),
            "grouped attention": (model.attention(x, x.linear(4), x.linear(4), heads=4), (1, 6, 8)),
            "rope": (x.rope(2, [1.0, 0.1]), (1, 6, 8)),
            "rope at positions": (x.rope(2, [1.0], ids), (1, 6, 8)),
            "norms": (x.layer_norm().rms_norm().rms_norm(unit_offset=True).batch_norm(momentum=0.2), (1, 6, 8)),
            "caps": (x.softcap(30.0).linear(24).attention(4, cap=50.0), (1, 6, 8)),
            "elements": (x.exp().gelu().gelu(tanh=True).log().relu().sigmoid().silu().softplus().sqrt().tanh().softmax().log_softmax().dropout(0.1), (1, 6, 8)),
            "gather": (x.gather(model.input("k", (6, 3), "int32")), (1, 6, 3)),
            "where": (model.input("c", (6, 8), "int32").where(x, table), (1, 6, 8)),
        }
        for name, (value, shape) in cases.items():
            with self.subTest(name):
                self.assertEqual(value.shape, shape)
        with self.assertRaisesRegex(ValueError, "expected none with causal"):
            x.linear(24).attention(4, causal=True, mask=ids)
        out = x.linear(10)
        self.assertEqual(out.softmax_cross_entropy(ids, smoothing=0.1).shape, (1,))

    def test_collectives(self):
        model = weft.Model()
        model.axis("a", 4)
        x = model.input("x", (4, 8)).cut(1, "a", drop=True)
        w = model.parameter("w", (8, 16), "normal", 0.1).cut(1, "a").share_gradient()
        y = model.node("linear", x, params=[w])
        self.assertEqual((x.shape, y.shape), ((1, 8), (1, 4)))
        self.assertEqual(y.all_gather("a", 1).shape, (1, 16))
        for z in (y.all_reduce("a"), y.broadcast("a", 2), y.mask("a", [0, 3]), y.ppermute("a", [-1, 0, 1, 2])):
            self.assertEqual(z.shape, (1, 4))
        self.assertEqual(y.reduce_scatter("a", 1).shape, (1, 1))
        model.output(y, cut=(1, "a"))

    def test_sequential(self):
        model = weft.Model()
        net = weft.Sequential(weft.Linear(8, name="first"), weft.ReLU(), lambda v: v * 2, weft.Linear(3))
        self.assertEqual(net(model.input("x", (4,))).shape, (1, 3))
        self.assertEqual([p.name for p in model.parameters], ["first.weight", "first.bias", "linear_0.weight", "linear_0.bias"])
        self.assertIn("Linear(8, name='first')", repr(net))

    def test_contents(self):
        model = small_model()
        self.assertEqual([item.name for item in model.inputs], ["x", "y"])
        self.assertEqual([(item.name, item.shape) for item in model.parameters][:2], [("hidden.weight", (1, 16)), ("hidden.bias", (16,))])
        self.assertEqual([item.op for item in model.nodes], ["linear", "tanh", "linear", "mse"])
        self.assertEqual([item.shape for item in model.outputs], [(1, 1)])
        self.assertEqual(model.n_parameters, 16 + 16 + 16 + 1)

    def test_presets(self):
        model = weft.Model.preset("gpt-nano:blocks=2", seq_len=16)
        self.assertEqual((model.preset_info.tokens, model.preset_info.vocabulary, model.preset_info.seq_len), (1, 256, 16))
        self.assertTrue(model.preset_info.text.startswith("gpt-nano:blocks=2,"))

    def test_a_linear_node_takes_the_weight_of_pytorch(self):
        model = weft.Model()
        model.output(model.input("x", (4,)).linear(3, out_in=True, name="fc"))
        weight, bias, x = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((3, 4), (3,), (2, 4)))
        with model.plan(micro_batches=1, micro_batch_size=2).run() as run:
            run.write("fc.weight", weight)
            run.write("fc.bias", bias)
            np.testing.assert_allclose(run.forward(x), x @ weight.T + bias, rtol=1e-6)

    def test_linear_nodes_get_adapters(self):
        model = weft.Model.preset("gpt-nano:blocks=2,width=32,heads=2", seq_len=16)
        adapted = model.adapt(rank=2, alpha=4, targets=["c_fc", "1.attn.c_attn"])
        names = [item.name for item in adapted.parameters]
        self.assertEqual(names[:len(model.parameters)], [item.name for item in model.parameters])
        self.assertEqual(names[len(model.parameters):], [f"{node}.lora_{factor}.weight" for node in ("h.0.mlp.c_fc", "h.1.attn.c_attn", "h.1.mlp.c_fc")
                                                         for factor in "AB"])
        groups = [weft.ParameterGroup("*", frozen=True), weft.ParameterGroup("*.lora_?.weight")]
        self.assertEqual(adapted.plan(groups=groups).info.trained, 2 * (2 * (32 + 128)) + 2 * (32 + 96))
        with self.assertRaisesRegex(weft.NotFoundError, "target 'q_proj' of the adapters"):
            model.adapt(targets=["q_proj"])

    def test_a_packed_sample_has_several_sequences(self):
        packed = weft.Model.packed("gpt-nano:blocks=1,width=32,heads=2", 6)
        self.assertEqual([item.name for item in packed.inputs], ["tokens", "targets", "positions"])
        tokens, targets = np.array([[1, 2, 1, 2, 1, 2]], "i4"), np.array([[2, 3, 2, 3, -1, -1]], "i4")
        with packed.plan(micro_batches=1, micro_batch_size=1).run() as run:
            together = run.evaluate(tokens, targets, np.array([[0, 1, 0, 1, 0, 0]], "i4"))
            targets[:, 2:] = -1
            self.assertAlmostEqual(run.evaluate(tokens, targets, np.array([[0, 1, 2, 3, 4, 5]], "i4")), together, places=5)

    def test_a_decoder_continues_sequences(self):
        model = weft.Model.decoder("gpt-nano:blocks=2,width=32,heads=2,context=20", sequences=2)
        self.assertEqual([item.name for item in model.inputs], ["tokens", "positions", "sequences"])
        plan = model.plan(micro_batches=1, micro_batch_size=8, short_size=2, step_kinds=weft.StepKinds.FORWARD)
        self.assertGreater(plan.memory(0)["state"], 0)
        with plan.run() as run, weft.Generator(run) as generator:
            self.assertIsNone(generator.poll())
            first = generator.add([1, 2, 3], limit=4, temperature=0)
            second = generator.add([7], limit=2, stops=[300], top_p=0.5)
            with self.assertRaises(weft.QueueFullError):
                generator.add([1])
            seen = list(generator.tokens(2))
            self.assertEqual([token.end for token in seen if token.end], [weft.SequenceEnd.LIMIT] * 2)
            self.assertEqual([token.index_ for token in seen if token.sequence == first], [0, 1, 2, 3])
            self.assertEqual(len([token for token in seen if token.sequence == second]), 2)
            generator.remove(generator.add([5]))
            with self.assertRaises(weft.NotFoundError):
                generator.remove(first)
            self.assertEqual(list(generator.tokens(1)), [])
            generator.add([1, 2])
        self.assertTrue(generator.closed)
        with plan.run() as run:
            generator = weft.Generator(run)
            generator.add([3])
        for call in (generator.poll, lambda: generator.add([1]), lambda: generator.remove(1)):
            with self.assertRaisesRegex(ValueError, "the Generator is closed"):
                call()

    def test_a_sequence_whose_logits_are_not_numbers_ends_alone(self):
        model = weft.Model.decoder("gpt-nano:blocks=1,width=32,heads=2,context=20", sequences=2)
        plan = model.plan(micro_batches=1, micro_batch_size=8, short_size=2, step_kinds=weft.StepKinds.FORWARD)
        with plan.run() as run:
            positions = run.read("wpe.weight")
            positions[5] = np.nan
            run.write("wpe.weight", positions)
            with weft.Generator(run) as generator:
                first, second = generator.add([1, 2], limit=3), generator.add([1, 2, 3, 4, 5, 6], limit=3)
                seen = []
                with self.assertRaisesRegex(weft.DataError, f"sequence {second} is not finite") as caught:
                    for token in generator.tokens(2):
                        seen.append(token.sequence)
                self.assertEqual(caught.exception.sequence, second)
                seen += [token.sequence for token in generator.tokens(1)]
                self.assertEqual(seen, [first] * 3)
                self.assertIsNone(generator.poll(60))
        self.assertIsNone(weft.DataError("of a file").sequence)

    def test_an_axis_that_does_not_exist_is_refused(self):
        model = weft.Model()
        x = model.input("x", (2, 3))
        for call in (lambda: x.sum(axis=3), lambda: x.slice(-4, 0, 1), lambda: x.mean(axis=(1, 3)), lambda: model.concat([x, x], axis=3)):
            with self.assertRaises(IndexError):
                call()


class Shapes(unittest.TestCase):
    def test_a_number_is_one_dimension(self):
        model = weft.Model()
        self.assertEqual(model.input("x", 3).shape, (1, 3))
        self.assertEqual(model.input("y", np.int64(3)).shape, (1, 3))
        self.assertEqual(model.parameter("w", 3).shape, (3,))


class Errors(unittest.TestCase):
    def test_a_status_is_a_class_with_the_text(self):
        model = weft.Model()
        x = model.input("x", (4,))
        with self.assertRaisesRegex(weft.InvalidError, "'x'") as caught:
            model.input("x", (4,))
        self.assertIsInstance(caught.exception, (weft.Error, ValueError))
        self.assertEqual(caught.exception.status, weft.StatusCode.EINVAL)
        with self.assertRaisesRegex(weft.NotFoundError, "softmax"):
            model.node("no-such-op", x)
        model.output(x.relu())
        model.plan()
        with self.assertRaises(weft.StateError):
            model.input("late", (4,))

    def test_values_of_another_model(self):
        with self.assertRaisesRegex(ValueError, "another model"):
            weft.Model().input("x", (4,)) + weft.Model().input("x", (4,))

    def test_parameters_of_another_model(self):
        x, w = weft.Model().input("x", (4,)), weft.Model().parameter("w", (4,))
        x.model.parameter("w", (4,))
        for call in (lambda: x * w, lambda: x.model.node("mul", x, params=[w])):
            with self.assertRaisesRegex(ValueError, "the parameter belongs to another model"):
                call()
        with self.assertRaisesRegex(TypeError, "expected Parameter, got Value"):
            x.model.node("mul", x, params=[x])

    def test_operands_that_are_no_values(self):
        with self.assertRaises(TypeError):
            weft.Model().input("x", (4,)) + "text"

    def test_dimensions_are_not_cut(self):
        model = weft.Model()
        x = model.input("x", (np.int64(4),))
        self.assertEqual(x.shape, (1, 4))
        for add in (lambda n: model.input("y", (n,)), lambda n: model.parameter("w", [n, 4]), lambda n: x.linear(n)):
            with self.assertRaisesRegex(OverflowError, f"{2**64 + 2} is out of the range"):
                add(2**64 + 2)
            for n in (3.7, "4"):
                with self.assertRaises(TypeError):
                    add(n)

    def test_options(self):
        model = small_model()
        with self.assertRaisesRegex(TypeError, "no option 'rnaks'; it has ranks, micro_batches, .*link_latency_seconds") as caught:
            model.plan(rnaks=2)
        self.assertNotRegex(str(caught.exception), r"\b(size|n_cuts)\b")
        with self.assertRaisesRegex(TypeError, "no option 'lr'; it has rule, rate, momentum, beta1,"):
            weft.AdamW(lr=1e-3)
        with self.assertRaisesRegex(OverflowError, "'ranks' is -1"):
            model.plan(ranks=-1)
        with self.assertRaisesRegex(TypeError, "option 'micro_batches': 'float'"):
            model.plan(micro_batches=2.9)
        self.assertEqual(model.plan(micro_batches=np.int64(2)).info.micro_batches, 2)
        with self.assertRaisesRegex(ValueError, "'uniform'"):
            model.plan(split="evenly")
        with self.assertRaisesRegex(TypeError, "float64, got|dtype"):
            model.input("z", (), "complex64")

    def test_a_number_of_elements_is_no_option(self):
        model = small_model()
        x = weft.Model().input("x", (4,))
        for option, call in (("n_speeds", lambda: model.plan(ranks=2, speeds=[1.0, 1.0], n_speeds=10**9)), ("size", lambda: model.plan(size=8)),
                             ("n_frequencies", lambda: x.model.node("rope", x, heads=1, frequencies=[0.1, 0.1], n_frequencies=2 * 10**9)),
                             ("inputs", lambda: x.model.node("relu", x, inputs={"x": 1})), ("log_payload", lambda: model.plan().run(log_payload=3))):
            with self.assertRaisesRegex(TypeError, f"no option '{option}'; it has "):
                call()

    def test_objects_of_another_class(self):
        model = small_model()
        plan, profile = model.plan(ranks=2), weft.Profile(model, repeats=1)
        run = plan.run()
        mesh = weft.Mesh.listen()
        other = weft.Mesh.join(mesh.join_endpoint)
        cases = {
            "argument 'plan': expected Plan, got Model": (lambda: weft.Run(model), lambda: weft.Prediction(model), lambda: other.serve(model)),
            "argument 'mesh': expected Mesh, got Plan": (lambda: weft.Run(plan, plan),),
            "argument 'mesh': expected Mesh, got bool": (lambda: weft.Run(plan, False),),
            "argument 'ops': expected Model, got Plan": (lambda: other.serve(None, plan),),
            "argument 'model': expected Model, got Plan": (lambda: weft.Plan(plan), lambda: weft.Profile(plan), lambda: weft.compare(plan),
                                                           lambda: weft.Plan.load(plan, "file")),
            "argument 'profile': expected Profile, got Plan": (lambda: run.profile(plan),),
            "argument 'run': expected Run, got Model": (lambda: weft.Generator(model),),
            "option 'profile': expected Profile, got Model": (lambda: model.plan(profile=model),),
            "option 'profile': expected Profile, got bool": (lambda: model.plan(profile=True),),
            "option 'cluster': expected Cluster, got Profile": (lambda: model.plan(cluster=profile),),
            "option 'cluster': expected Cluster, got int": (lambda: model.plan(cluster=3),),
            "option 'tokenizer': expected Tokenizer, got Model": (lambda: weft.Data(__file__, vocabulary=300, seq_len=8, tokenizer=model),),
            "option 'optimizer': expected Optimizer, got str": (lambda: model.plan(optimizer="sgd"),),
            "option 'groups': expected ParameterGroup, got str": (lambda: model.plan(groups=["a"]),),
            "option 'axes': expected Mapping, got list": (lambda: model.plan(axes=[("data", 2)]),),
        }
        for text, calls in cases.items():
            for call in calls:
                with self.subTest(text), self.assertRaisesRegex(TypeError, text):
                    call()
        with self.assertRaises(TypeError):
            weft.Model(3)   # which is no pointer

    def test_closed_objects(self):
        model = small_model()
        model.close()
        model.close()
        with self.assertRaisesRegex(ValueError, "the Model is closed"):
            model.plan()


if __name__ == "__main__":
    unittest.main()
