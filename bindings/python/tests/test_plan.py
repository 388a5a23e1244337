"""Plans, predictions, profiles and pictures."""
import io
import pathlib
import re
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree as xml

import weft

from support import ROOT, sine, small_model, small_plan

SVG = "{http://www.w3.org/2000/svg}"


class Plans(unittest.TestCase):
    def test_options_arrive(self):
        plan = small_model().plan(axes={"data": 2, "stage": 2}, micro_batches=4, split="uniform", seed=7, schedule="gpipe", gradient_groups=2,
                                  link_latency_seconds=1e-6, speeds=[1.0, 1.0, 0.5, 0.5], optimizer=weft.SGD(0.5, momentum=0.9, total=10, curve="cosine"))
        settings = plan.settings()
        self.assertEqual({key: settings[key] for key in ("axes", "micro_batches", "seed", "schedule", "gradient_groups")},
                         {"axes": {"data": 2, "stage": 2, "tensor": 1}, "micro_batches": 4, "seed": 7, "schedule": "gpipe", "gradient_groups": 2})
        self.assertEqual((plan.rate(0), plan.rate(5)), (0.5, 0.25))
        self.assertEqual((plan.info.ranks, plan.stages, plan.replicas(0)), (4, 2, 2))

    def test_what_c_would_read_beyond_is_refused(self):
        for options, text in (({"ranks": 2}, "speeds has 1 entries, expected one for each of 2 ranks"), ({"axes": {"data": 2}}, "speeds has 1"),
                              ({"ranks": 200_000_000}, "200000000")):
            with self.assertRaisesRegex(weft.InvalidError, text):
                small_model().plan(speeds=[1.0], **options)
        for value in (1 << 32, -1):
            for call in (lambda: small_model().plan(ranks=value), lambda: small_model().plan(axes={"data": value}), lambda: small_plan().rate(value << 32)):
                with self.assertRaisesRegex(OverflowError, "out of"):
                    call()
        with self.assertRaisesRegex(weft.InvalidError, "contains a NUL"):
            small_model().plan(schedule="1f1b\0")
        with tempfile.TemporaryDirectory() as folder, small_plan().run() as run, self.assertRaises(TypeError):
            run.save(folder, options={"epoch": 3})

    def test_groups(self):
        plan = small_plan(groups=[weft.ParameterGroup("hidden.*", frozen=True), weft.ParameterGroup("*.bias", rate_factor=0.5)])
        with plan.run() as run:
            before = run.parameters()
            x, y = sine()
            run.train(x, y + 1)
            changed = {name: float(abs(value - before[name]).max()) for name, value in run.parameters().items()}
        self.assertEqual(changed["hidden.weight"], 0)
        self.assertAlmostEqual(changed["out.bias"] / changed["out.weight"], 0.5, delta=0.01)   # the first step of adamw has the size of the rate

    def test_cuts_and_memory(self):
        plan = small_model().plan(ranks=2, cuts=["out"])
        self.assertEqual((plan.first(0), plan.first(1), plan.first(2)), ("hidden", "out", None))
        self.assertEqual(plan.owned(1), 17)
        self.assertEqual(sum(plan.memory(0).values()), plan.bytes(0))
        self.assertEqual((plan.updates, plan.noam, plan.versions(0)), (1, 0, 1))

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "plan.json")
            plan = small_plan(schedule="gpipe")
            plan.save(path)
            self.assertEqual(weft.Plan.load(small_model(), path).settings(), plan.settings())

    def test_settings_make_the_same_plan(self):
        groups = [weft.ParameterGroup("hidden.*", frozen=True), weft.ParameterGroup("out.bias", rate_factor=0.5)]
        plan = small_plan(optimizer=weft.SGD(0.5, momentum=0.9, curve="linear", total=10), groups=groups, precision="bf16", link_latency_seconds=0)
        settings = plan.settings()
        self.assertLessEqual(set(settings), set(weft.PlanOptions.__annotations__))
        self.assertEqual((settings["groups"], settings["optimizer"]), (groups, weft.SGD(0.5, momentum=0.9, curve="linear", total=10)))
        again = small_model().plan(**settings)
        self.assertEqual((again.settings(), again.timetable()), (settings, plan.timetable()))
        self.assertNotEqual(weft.ParameterGroup("out.*"), groups[0])
        self.assertNotEqual(weft.AdamW(0.5), settings["optimizer"])

    def test_the_model_may_be_closed_first(self):
        model = small_model()
        plan = model.plan()
        model.close()
        self.assertEqual(plan.stages, 1)

    def test_compare(self):
        rows = weft.compare(small_model(), ranks=2, schedule="auto")
        self.assertEqual(sum(row.best for row in rows), 1)
        self.assertIn("1f1b", [row.schedule for row in rows])
        self.assertIn("gpipe", [info.name for info in weft.schedules()])

    def test_profiles(self):
        with tempfile.TemporaryDirectory() as folder:
            profile = weft.Profile(small_model(), repeats=2)
            profile.save(pathlib.Path(folder, "profile.json"))
            loaded = weft.Profile.load(pathlib.Path(folder, "profile.json"))
        self.assertEqual([node.name for node in loaded.nodes][:1], ["hidden"])
        self.assertGreater(loaded.nodes[0].forward_seconds, 0)
        self.assertGreater(small_model().plan(profile=loaded).predict().info.step_seconds, 0)
        bf16 = weft.Profile(small_model(), repeats=2, precision="bf16")
        self.assertGreater(small_model().plan(profile=bf16, precision="bf16").predict().info.step_seconds, 0)
        with self.assertRaisesRegex(weft.Error, "made with precision bf16, the plan has precision f32"):
            small_model().plan(profile=bf16)

    def test_clusters(self):
        cluster = weft.Cluster(ROOT / "examples" / "clusters" / "two-sites.json")
        self.assertGreater(cluster.ranks, 1)
        model = weft.Model.preset("mlp:width=16", stages=cluster.ranks)
        self.assertEqual(model.plan(ranks=cluster.ranks, cluster=cluster).info.ranks, cluster.ranks)


class Pictures(unittest.TestCase):
    def test_a_prediction_is_a_picture(self):
        prediction = small_plan(schedule="gpipe").predict()
        self.assertEqual((prediction.info.ranks, len(prediction.ranks), len(prediction.links)), (2, 2, prediction.info.links))
        picture = xml.fromstring(prediction._repr_svg_())
        names = sorted(rect[0].text.split(",")[0] for rect in picture.iter(SVG + "rect") if len(rect))
        self.assertEqual(names, sorted(e["name"] for e in prediction.trace()["traceEvents"] if e["ph"] == "X"))
        self.assertIn("per step", repr(prediction))
        inference = small_plan(step_kinds=weft.StepKinds.FORWARD).predict()
        self.assertIn("<svg", inference._repr_svg_())


class Progress(unittest.TestCase):
    def lines(self, file):
        x, y = sine()
        with small_plan().run() as run:
            steps = [(step, run.train(x, y)) for step in weft.progress(run, 3, file)]
            self.assertEqual([step for step, _ in steps], [0, 1, 2])
        return file.getvalue(), steps[-1][1]

    def test_a_file_gets_the_last_line(self):
        text, loss = self.lines(io.StringIO())
        self.assertRegex(text, rf"^step 3/3  loss {re.escape(f'{loss:.4g}')}  \S+ s\n$")

    def test_a_terminal_gets_a_line_that_changes(self):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        with unittest.mock.patch.object(sys.modules["weft._progress"], "INTERVAL", 0):
            text, _ = self.lines(terminal)
        self.assertEqual([line[:8] for line in text.split("\r")], ["", "step 1/3", "step 2/3", "step 3/3"])


if __name__ == "__main__":
    unittest.main()
