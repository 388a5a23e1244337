#!/usr/bin/env python3
"""Logs of weft train, and the page of weft report, as a browser shows it."""
import html
import json
import os
import re
import shutil
import subprocess
import unittest

from weft import Case, DRAWN, TINY, TINY_STEP, lines, run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PLAN = [TINY, "--ranks", 2, "--micro-batches", 4, "--micro-batch-size", 2, "--schedule", "gpipe"]


class Logs(Case):
    def test_a_log_has_the_lines_of_json(self):
        done = run("train", TINY, *TINY_STEP, "--steps", 3, "--eval", 0.1, "--eval-every", 2, "--json", "--log", self.path("log"))
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("log"), encoding="utf-8") as file:
            log = file.read()
        self.assertEqual(log, done.stdout)
        self.assertEqual([line["event"] for line in lines(log)], ["run", "eval", "step", "step", "eval", "step", "eval", "done"])
        steps = [line for line in lines(log) if line["event"] == "step"]
        self.assertLess(0, steps[0]["elapsed"])
        self.assertLess(steps[0]["elapsed"], steps[2]["elapsed"])

    def test_a_resumed_run_adds_to_its_log_and_another_replaces_it(self):
        args = ["--log", self.path("log"), "-q"]
        self.assertEqual(run("train", TINY, *TINY_STEP, "--steps", 2, "--checkpoint", self.path("ck"), *args).returncode, 0)
        with open(self.path("log"), "a", encoding="utf-8") as file:
            file.write('{"event": "st')   # of a process that was killed
        self.assertEqual(run("train", "--resume", self.path("ck"), "--steps", 3, "--in-process", *args).returncode, 0)
        with open(self.path("log"), encoding="utf-8") as file:
            self.assertEqual([line["step"] for line in lines(file.read()) if line["event"] == "step"], [1, 2, 3])
        self.assertEqual(run("train", TINY, *TINY_STEP, "--steps", 1, *args).returncode, 0)
        with open(self.path("log"), encoding="utf-8") as file:
            self.assertEqual([line["step"] for line in lines(file.read()) if line["event"] == "step"], [1])

    def test_options_that_contradict_each_other_are_refused_before_the_log_is_replaced(self):
        args = ["train", TINY, *DRAWN, "--ranks", 2, "--steps", 1, "--json", "--log", self.path("log")]
        done = run(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.fails(2, "--in-process cannot be combined with --listen", *args, "--in-process", "--listen", "tcp://127.0.0.1:0")
        self.fails(2, "--external is 2, expected at most 1", *args, "--external", 2)
        with open(self.path("log"), encoding="utf-8") as file:
            self.assertEqual(file.read(), done.stdout)

    def test_a_log_that_cannot_be_written_is_an_error(self):
        self.fails(3, f"{self.path('none', 'log')}: cannot write into '{self.path('none')}': no such file", "train", TINY, *TINY_STEP, "--log", self.path("none", "log"))
        self.fails(1, "/dev/full: cannot write: no space left on device", "train", TINY, *TINY_STEP, "--log", "/dev/full", "-q")
        self.fails(1, f"no space left on device; last checkpoint: {self.path('full', 'step-00000001')}", "train", TINY, *TINY_STEP, "--log", "/dev/full",
                   "--checkpoint", self.path("full"), "-q")
        self.train(TINY, *TINY_STEP, "--steps", 1, "--checkpoint", self.path("ck"))
        self.fails(3, "is part of the checkpoints in", "train", TINY, *TINY_STEP, "--log", self.path("ck", "latest"), "-q")


class Page(Case):
    def files(self):
        done = run("train", *PLAN, "--data", "synthetic", "--steps", 5, "--in-process", "--eval", 0.1, "--log", self.path("run.log"),
                   "--trace", self.path("trace.json"), "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("plan", *PLAN, "--trace", self.path("predicted.json"), "--save", self.path("plan.json"), "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("prediction.json"), "w", encoding="utf-8") as file:
            file.write(done.stdout)
        return [self.path(name) for name in ("run.log", "trace.json", "predicted.json", "plan.json", "prediction.json")]

    def make(self, *files):
        done = run("report", *files, "--out", self.path("page.html"))
        self.assertEqual((done.returncode, done.stdout), (0, self.path("page.html") + "\n"), done.stderr)
        with open(self.path("page.html"), encoding="utf-8") as file:
            return file.read()

    def shown(self):
        """The document after its script has run, without the script."""
        if not BROWSER:
            self.skipTest("no browser is installed (chromium)")
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={self.path('profile')}",
                   "--virtual-time-budget=2000", "--dump-dom", "file://" + self.path("page.html")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=150, env={**os.environ, "HOME": self.directory})
        return re.sub(r"(?s)<script.*?</script>", "", done.stdout)

    def test_a_page_needs_nothing_else(self):
        page = self.make(*self.files())
        self.assertEqual(re.findall(r"https?://[^'\"]+", page), ["http://www.w3.org/2000/svg"])   # the name of a format
        self.assertNotRegex(page, r"(?i)<link|<img|@import|\bsrc=|fetch\(|XMLHttpRequest|url\(")

    def test_a_browser_draws_every_file(self):
        files = self.files()
        self.make(*files)
        shown = self.shown()
        self.assertIn('data-drawn="5"', shown)
        with open(files[0], encoding="utf-8") as file:
            log = lines(file.read())
        self.assertIn(log[-1]["digest"], shown)
        curve = re.search(r'data-series="loss of each step" data-points="(\d+)"', shown)
        self.assertEqual(int(curve[1]), 5)
        self.assertRegex(shown, r'data-series="held-out loss" data-points="1"')
        # 16 actions of gpipe, and what clears, reduces and updates, of each of the two traces.
        slices = 0
        for name in files[1:3]:
            with open(name, encoding="utf-8") as file:
                events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e["args"]["mode"] == "train"]
            slices += len([e for e in events if e["args"]["step"] == max(e["args"]["step"] for e in events)])
        self.assertEqual(shown.count('class="slice"'), slices)
        self.assertLess(shown.index(">predicted"), shown.index(">measured, step 5"))
        self.assertGreaterEqual(shown.count('class="part"'), 2 * 2 * 5)   # ranks, files with memory, kinds
        self.assertEqual(shown.count('class="link"'), 2 * 2)
        self.assertIn("stages begin at", shown)

    def test_runs_are_compared_and_a_resumed_step_counts_once(self):
        step = {"event": "step", "step": 1, "loss": 3.5, "idle": 0.1, "tokens_per_second": 10, "learning_rate": 1, "grad_norm": None, "seconds": 1}
        for name, steps in (("a", [step, {**step, "step": 2}, {**step, "step": 2, "loss": 2.25}]), ("b", [step])):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write("".join(json.dumps(line) + "\n" for line in [{"event": "run"}, *steps]) + '{"event":"st')
        self.make(self.path("a"), self.path("b"))
        shown = self.shown()
        self.assertIn(">2 runs</h1>", shown)
        self.assertIn('data-series="a loss of each step" data-points="2"', shown)
        self.assertIn('data-series="b loss of each step" data-points="1"', shown)
        self.assertIn("<td>2.25</td>", shown)
        self.assertIn("not finished", shown)

    def test_text_of_a_file_is_not_markup(self):
        evil = "</script><script>document.title='x'</script><img src=x onerror=document.body.dataset.evil=1>"
        with open(self.path("log"), "w", encoding="utf-8") as file:
            file.write(json.dumps({"event": "run", "model": evil}) + "\n" + json.dumps({"event": "step", "step": 1, "loss": 1}) + "\n")
        self.assertNotIn("<img", self.make(self.path("log")))
        shown = self.shown()
        self.assertIn(html.escape(evil.split(":")[0], quote=False), shown)
        self.assertNotIn("data-evil", shown)

    def test_a_file_of_another_kind_is_an_error(self):
        with open(self.path("text"), "w", encoding="utf-8") as file:
            file.write("words\n")
        self.fails(3, f"{self.path('text')}: expected a log of 'weft train --log'", "report", self.path("text"))
        with open(self.path("log"), "w", encoding="utf-8") as file:
            file.write('{"event":"run"}\nwords\n{"event":"done"}\n')
        self.fails(3, "log: line 2 is not an object with the key 'event'", "report", self.path("log"))
        deep = "[" * 200000 + "]" * 200000
        with open(self.path("log"), "w", encoding="utf-8") as file:
            file.write('{"event":"run"}\n{"event":' + deep + "}\n")
        self.fails(3, "log: line 2 is not an object with the key 'event'", "report", self.path("log"))
        with open(self.path("plan"), "w", encoding="utf-8") as file:
            file.write('{"rows":1,"model_hash":' + deep + "}")
        self.fails(3, "plan: expected a log of 'weft train --log'", "report", self.path("plan"))
        with open(self.path("trace"), "w", encoding="utf-8") as file:
            file.write('{"traceEvents":[]}')
        self.fails(3, "trace: the trace contains no action of a training step", "report", self.path("trace"))
        self.fails(3, f"{self.path('none')}: cannot open", "report", self.path("none"))
        self.fails(2, "FILE is required", "report")
        self.fails(2, "is the file of FILE", "report", self.path("log"), "--out", self.path("log"))


if __name__ == "__main__":
    unittest.main()
