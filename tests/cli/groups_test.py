#!/usr/bin/env python3
"""--freeze and --param-group of weft train and weft plan: what they change, what they cost, and how they are kept."""
import json
import unittest

from weft import Case, TINY, TINY_STEP, lines, run

PROCESSES = [a for a in TINY_STEP if a != "--in-process"]
BELOW = ["--freeze", "w?e.*,h.0.*"]
CUT = ["--ranks", 2, "--cut", "h.1"]
UNTIED = TINY + ",tied=0"


class Groups(Case):
    def plan(self, *args):
        done = run("plan", UNTIED, *CUT, *args, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return lines(done.stdout)[0]

    def digest(self, *args):
        return self.train(UNTIED, "--steps", 3, *args)[1]["digest"]

    def test_one_digest_over_ranks_and_processes(self):
        all_trained = self.digest(*TINY_STEP)
        for groups in (BELOW, ["--param-group", "h.1.*:rate=0.5,decay=0;*.bias:frozen", "--weight-decay", 0.1]):
            expected = self.digest(*TINY_STEP, *groups)
            self.assertNotEqual(expected, all_trained)
            self.assertEqual(self.digest(*TINY_STEP, *CUT, *groups), expected)
            self.assertEqual(self.digest(*PROCESSES, *CUT, *groups), expected)
            self.assertEqual(self.digest(*PROCESSES, "--ranks", 3, "--schedule", "zb-h1", *groups), expected)

    def test_a_group_replaces_freeze(self):
        some = self.plan("--freeze", "*", "--param-group", "h.1.*")
        self.assertEqual(some["trained_parameters"], self.plan("--param-group", "*:frozen;h.1.*:rate=1")["trained_parameters"])
        self.assertLess(some["trained_parameters"], some["parameters"] / 2)
        text = run("plan", UNTIED, *BELOW).stdout
        self.assertRegex(text, r"0\.\d\d M parameters \(0\.\d\d M trained\), 1 rank")
        self.assertIn("trained)", run("train", UNTIED, "--steps", 1, *TINY_STEP, *BELOW).stderr)

    def test_nothing_is_sent_back_below_the_lowest_trained_parameter(self):
        whole, part = self.plan(), self.plan(*BELOW)
        links = [{(link["from"], link["to"]): link["bytes"] for link in plan["links"]} for plan in (whole, part)]
        self.assertEqual(links[0][(0, 1)], links[1][(0, 1)])
        self.assertGreater(links[0][(1, 0)], 1000)
        self.assertLess(links[1][(1, 0)], 100)  # the losses
        memory = [plan["ranks"][0]["memory"] for plan in (whole, part)]
        self.assertEqual((memory[1]["gradients"], memory[1]["optimizer"]), (0, 0))
        self.assertGreater(memory[0]["weights"], memory[1]["weights"])  # packed ones for the backward pass
        self.assertLess(memory[1]["activations"], memory[0]["activations"])
        self.assertLess(part["seconds"], whole["seconds"])

    def test_a_resumed_run_keeps_its_groups(self):
        groups = [*BELOW, "--param-group", "ln_f.*:rate=0.1"]
        expected = self.train(UNTIED, "--steps", 4, *TINY_STEP, *groups)[1]
        self.train(UNTIED, "--steps", 2, *TINY_STEP, *groups, "--checkpoint", self.path("out"))
        done = self.train("--resume", self.path("out"), "--steps", 4, "--in-process")[1]
        self.assertEqual((done["digest"], done["optimizer_digest"]), (expected["digest"], expected["optimizer_digest"]))
        self.fails(3, "has no optimizer state, because it was frozen", "train", "--resume", self.path("out"), "--steps", 5, "--freeze", "wte.*",
                   "--in-process", "-q")
        # Its weights can be trained on.
        self.train(self.path("out"), "--steps", 1, *TINY_STEP)

    def test_a_plan_file_has_the_groups(self):
        groups = [*BELOW, "--param-group", "ln_f.*:rate=0.1;h.1.mlp.*:decay=0.5"]
        expected = self.digest(*TINY_STEP, *groups)
        saved = run("plan", UNTIED, *CUT, *groups, "--micro-batches", 4, "--micro-batch-size", 2, "--seed", 1, "--save", self.path("plan"))
        self.assertEqual(saved.returncode, 0, saved.stderr)
        with open(self.path("plan"), encoding="utf-8") as file:
            self.assertEqual([group["pattern"] for group in json.load(file)["groups"]], ["w?e.*", "h.0.*", "ln_f.*", "h.1.mlp.*"])
        planned = ["--plan", self.path("plan"), "--data", "synthetic", "--in-process"]
        self.assertEqual(self.digest(*planned), expected)
        self.train(UNTIED, "--steps", 2, *planned, "--checkpoint", self.path("out"))
        self.assertEqual(self.train("--resume", self.path("out"), "--steps", 3, "--in-process")[1]["digest"], expected)
        for option in (BELOW, ["--param-group", "h.0.*:frozen"]):
            self.fails(2, f"{option[0]} cannot be combined with --plan", "train", UNTIED, *planned, *option)

    def test_a_plan_file_without_groups_replaces_those_of_a_checkpoint(self):
        run("plan", UNTIED, *CUT, "--micro-batches", 4, "--micro-batch-size", 2, "--seed", 1, "--save", self.path("plan"))
        digests = []
        for stops in ((4,), (2, 4)):
            out = self.path(f"out{len(stops)}")
            self.train(UNTIED, "--steps", 1, *TINY_STEP, "--param-group", "*:rate=0.5", "--checkpoint", out)
            for i, steps in enumerate(stops):
                done = self.train("--resume", out, "--steps", steps, "--in-process", *(["--plan", self.path("plan")] if i == 0 else []))[1]
            digests.append(done["digest"])
        self.assertEqual(digests[0], digests[1])

    def test_faults_are_named(self):
        self.fails(3, "pattern 'encoder.*' of a parameter group matches none of the", "plan", UNTIED, "--freeze", "encoder.*")
        self.fails(3, "freeze all parameters", "train", UNTIED, *TINY_STEP, "--freeze", "*", "-q")
        for text, fault in (("h.0.*:speed=2", "'speed=2', expected rate=X, decay=X or frozen"), ("h.0.*:rate", "'rate', expected rate=X"),
                            ("h.0.*:rate=-1", "'rate=-1', expected a finite number of 0 or more"), (":rate=1", "':rate=1', expected PATTERN")):
            self.fails(2, fault, "plan", UNTIED, "--param-group", text)


if __name__ == "__main__":
    unittest.main()
